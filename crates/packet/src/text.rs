//! Text from outside the program: bytes that may not be UTF-8, and characters that could steer a terminal.

use core::fmt::Write as _;
use std::borrow::Cow;

/// `bytes` as text: bytes that are not UTF-8 are escaped, as `\xff`. All other bytes stay as they are, control characters too.
pub fn from_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        chunk
            .invalid()
            .iter()
            .for_each(|byte| _ = write!(out, "\\x{byte:02x}"));
    }
    out
}

/// Whether a character could steer a terminal or end a line: control characters (C0, DEL, C1), separators of lines and
/// paragraphs, and controls of the direction of writing (Unicode Standard Annex 9).
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// `text` in one harmless line: control characters are escaped (`\n`, `\x1b`, `\u0085`). Backslashes stay, so that escaping
/// twice changes nothing.
pub fn printable(text: &str) -> Cow<'_, str> {
    if !text.contains(is_control) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        let _ = match c {
            '\n' => out.write_str("\\n"),
            '\r' => out.write_str("\\r"),
            '\t' => out.write_str("\\t"),
            c if c.is_ascii_control() => write!(out, "\\x{:02x}", u32::from(c)),
            c if is_control(c) => write!(out, "\\u{:04x}", u32::from(c)),
            c => out.write_char(c),
        };
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_steer_a_terminal_is_escaped_and_all_else_stays() {
        assert_eq!(
            printable("b\u{1b}[31m\n\r\t\0\u{7f}"),
            r"b\x1b[31m\n\r\t\x00\x7f"
        );
        assert_eq!(printable("\u{80}\u{9b}\u{85}"), r"\u0080\u009b\u0085");
        assert_eq!(
            printable("a\u{202e}b\u{2066}\u{2028}\u{2029}\u{200f}\u{61c}"),
            r"a\u202eb\u2066\u2028\u2029\u200f\u061c"
        );
        let kept = "é 漢字 \u{1f600} \\n ~\u{a0}";
        assert_eq!(printable(kept), kept);
        for c in (0..=0x10_ffff).filter_map(char::from_u32) {
            let (once, steers) = (printable(&c.to_string()).into_owned(), c.is_control());
            assert_eq!(printable(&once), once, "{:x}", u32::from(c));
            assert!(
                !steers || once.is_ascii() && once.starts_with('\\'),
                "{:x}",
                u32::from(c)
            );
        }
    }
}
