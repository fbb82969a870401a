//! Keys from the bytes of a terminal.

/// A key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// A character.
    Char(char),
    /// Enter.
    Enter,
    /// Escape.
    Esc,
    /// Tab.
    Tab,
    /// Shift and Tab.
    BackTab,
    /// Backspace.
    Backspace,
    /// Up.
    Up,
    /// Down.
    Down,
    /// Left.
    Left,
    /// Right.
    Right,
    /// Page up.
    PageUp,
    /// Page down.
    PageDown,
    /// Home.
    Home,
    /// End.
    End,
    /// Control and C.
    Interrupt,
    /// Control and Z.
    Suspend,
    /// Control and L.
    Redraw,
    /// Control and U: an empty line.
    Clear,
    /// No key: the terminal's answer about its background, light or not.
    Background {
        /// Whether it is light.
        light: bool,
    },
}

/// Reader of keys. A sequence may arrive in pieces.
#[derive(Debug, Default)]
pub struct Keys {
    pending: Vec<u8>,
}

/// Begin of the terminal's answer about the colour of its background. **Source**: xterm's ctlseqs, OSC 11.
const BACKGROUND: &[u8] = b"11;rgb:";

/// Longest sequence, bytes; longer sequences are left out.
const LONGEST: usize = 32;

impl Keys {
    /// Takes bytes, and returns the complete keys.
    pub fn take(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        let mut rest = &self.pending[..];
        while let Some((key, used)) = first(rest) {
            keys.extend(key);
            rest = &rest[used..];
        }
        let used = self.pending.len() - rest.len();
        self.pending.drain(..used);
        keys
    }

    /// Whether a sequence has begun. If nothing follows, [`Self::end`] ends it.
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Whether the pending bytes are an escape alone, which may be the key.
    pub fn is_escape(&self) -> bool {
        self.pending == [0x1b]
    }

    /// Ends a sequence to which nothing came: a single escape is the key.
    pub fn end(&mut self) -> Option<Key> {
        let is_escape = self.is_escape();
        self.pending.clear();
        is_escape.then_some(Key::Esc)
    }
}

/// The first key of some bytes, with its length; `None` if more bytes are needed. Sequences of no key are left out.
fn first(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let (&byte, after) = bytes.split_first()?;
    let key = match byte {
        b'\r' | b'\n' => Key::Enter,
        b'\t' => Key::Tab,
        0x03 => Key::Interrupt,
        0x0c => Key::Redraw,
        0x15 => Key::Clear,
        0x1a => Key::Suspend,
        0x08 | 0x7f => Key::Backspace,
        0x1b => return sequence(after).map(|(key, used)| (key, used + 1)),
        0x00..0x20 => return Some((None, 1)),
        0x20..0x7f => Key::Char(char::from(byte)),
        _ => return letter(bytes),
    };
    Some((Some(key), 1))
}

/// A character of several bytes.
fn letter(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let length = match bytes[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Some((None, 1)),
    };
    let Some(letter) = bytes.get(..length) else {
        let is_begin = str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none());
        return (!is_begin).then_some((None, 1));
    };
    let Ok(text) = str::from_utf8(letter) else {
        return Some((None, 1));
    };
    let letter = text.chars().next().filter(|c| !c.is_control());
    Some((letter.map(Key::Char), length))
}

/// A sequence after escape.
fn sequence(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    match bytes.first()? {
        b'[' => {}
        b']' => return answer(&bytes[1..]).map(|(key, used)| (key, used + 1)),
        b'O' => return bytes.get(1).map(|end| (named(&[], *end), 2)),
        // A second key: the escape stands alone.
        _ => return Some((Some(Key::Esc), 0)),
    }
    let body = &bytes[1..];
    let Some(end) = body.iter().position(|byte| (0x40..0x7f).contains(byte)) else {
        return (body.len() > LONGEST).then_some((None, bytes.len()));
    };
    Some((named(&body[..end], body[end]), end + 2))
}

/// An answer of the terminal, to its end: BEL, or escape and a backslash.
fn answer(bytes: &[u8]) -> Option<(Option<Key>, usize)> {
    let Some(end) = bytes.iter().position(|byte| *byte < 0x20) else {
        return (bytes.len() > LONGEST).then_some((None, bytes.len()));
    };
    let used = match bytes[end..] {
        [0x1b] => return None,
        [0x1b, b'\\', ..] => end + 2,
        [0x07, ..] => end + 1,
        _ => end,
    };
    let colour = bytes[..end].strip_prefix(BACKGROUND);
    let light = colour.and_then(is_light);
    Some((light.map(|light| Key::Background { light }), used))
}

/// Whether a colour, such as `ffff/ffff/dddd`, is light.
fn is_light(colour: &[u8]) -> Option<bool> {
    let parts = str::from_utf8(colour).ok()?.split('/');
    let share = |part: &str| {
        let most = 16_u32.checked_pow(part.len() as u32)?.checked_sub(1)?;
        let value = u32::from_str_radix(part, 16).ok()?;
        Some(f64::from(value) / f64::from(most.max(1)))
    };
    let parts: Vec<f64> = parts.map(share).collect::<Option<_>>()?;
    let [red, green, blue] = parts[..] else {
        return None;
    };
    // Weights of ITU-R BT.601.
    Some(0.299 * red + 0.587 * green + 0.114 * blue > 0.5)
}

/// The key of a sequence with parameters and an end.
fn named(parameters: &[u8], end: u8) -> Option<Key> {
    Some(match (parameters, end) {
        (_, b'A') => Key::Up,
        (_, b'B') => Key::Down,
        (_, b'C') => Key::Right,
        (_, b'D') => Key::Left,
        (_, b'H') | (b"1" | b"7", b'~') => Key::Home,
        (_, b'F') | (b"4" | b"8", b'~') => Key::End,
        (b"5", b'~') => Key::PageUp,
        (b"6", b'~') => Key::PageDown,
        (_, b'Z') => Key::BackTab,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(bytes: &[u8]) -> Vec<Key> {
        let mut keys = Keys::default();
        let mut found = keys.take(bytes);
        found.extend(keys.end());
        found
    }

    #[test]
    fn bytes_are_keys() {
        assert_eq!(
            all(b"q\x1b[A\x1bOB\x1b[6~\x1b[Z\r\x7f\x1a\x1b"),
            [
                Key::Char('q'),
                Key::Up,
                Key::Down,
                Key::PageDown,
                Key::BackTab,
                Key::Enter,
                Key::Backspace,
                Key::Suspend,
                Key::Esc
            ]
        );
        assert_eq!(all("ü漢".as_bytes()), [Key::Char('ü'), Key::Char('漢')]);
        assert_eq!(all(b"\x1b[200~\xff\x00x"), [Key::Char('x')]);
        assert_eq!(all(b"\x1bq"), [Key::Esc, Key::Char('q')]);
    }

    #[test]
    fn keys_in_pieces_are_the_same_keys() {
        let bytes = "q\x1b[A\u{fc}\x1b[5~漢\x1bOC1".as_bytes();
        let whole = all(bytes);
        for cut in 0..bytes.len() {
            let mut keys = Keys::default();
            let mut found = keys.take(&bytes[..cut]);
            found.extend(keys.take(&bytes[cut..]));
            assert_eq!(found, whole, "{cut}");
        }
    }

    #[test]
    fn the_terminal_tells_its_background() {
        let light = Key::Background { light: true };
        let dark = Key::Background { light: false };
        assert_eq!(
            all(b"\x1b]11;rgb:ffff/ffff/dddd\x1b\\q"),
            [light, Key::Char('q')]
        );
        assert_eq!(all(b"\x1b]11;rgb:00/2b/36\x07q"), [dark, Key::Char('q')]);
        for answer in [
            "11;rgb:xx/yy/zz",
            "11;rgb:1/2",
            "11;rgb:///",
            "0;q",
            "11;rgb:123456789/1/1",
        ] {
            let bytes = format!("\x1b]{answer}\x07p");
            assert_eq!(all(bytes.as_bytes()), [Key::Char('p')], "{answer}");
        }
        let (mut keys, bytes) = (Keys::default(), b"\x1b]11;rgb:f/f/f\x1b\\");
        let found: Vec<Key> = bytes.iter().flat_map(|byte| keys.take(&[*byte])).collect();
        assert_eq!(found, [light]);
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut keys = Keys::default();
        for _ in 0..1000 {
            keys.take(b"\x1b[1;1;1;1");
            assert!(keys.pending.len() < 64);
        }
        for _ in 0..1000 {
            keys.take(b"\x1b]1;1;1;1");
            assert!(keys.pending.len() < 64);
        }
    }
}
