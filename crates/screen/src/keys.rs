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
}

/// Reader of keys. A sequence may arrive in pieces.
#[derive(Debug, Default)]
pub struct Keys {
    pending: Vec<u8>,
}

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

    /// Ends a sequence to which nothing came: a single escape is the key.
    pub fn end(&mut self) -> Option<Key> {
        let is_escape = self.pending == [0x1b];
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
    fn what_is_kept_is_bounded() {
        let mut keys = Keys::default();
        for _ in 0..1000 {
            keys.take(b"\x1b[1;1;1;1");
            assert!(keys.pending.len() < 64);
        }
    }
}
