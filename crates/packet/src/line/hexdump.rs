//! Hex dumps in tcpdump's layout: sixteen bytes a line, in groups of two.
//!
//! ```text
//! <tab>0x0010:  d4c7 ca3c ebda 0050 205a 2eac 1c57 aab9  ...<...P.Z...W..
//! ```

use core::fmt::Write;

const PER_LINE: usize = 16;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// `-x`
pub(super) fn hex(out: &mut String, data: &[u8]) {
    for (i, row) in data.chunks(PER_LINE).enumerate() {
        begin(out, i * PER_LINE);
        digits(out, row);
    }
}

/// `-X`: characters other than letters, digits and signs are printed as dots; so are spaces.
pub(super) fn hex_ascii(out: &mut String, data: &[u8]) {
    for (i, row) in data.chunks(PER_LINE).enumerate() {
        begin(out, i * PER_LINE);
        let start = out.len();
        digits(out, row);
        while out.len() < start + PER_LINE / 2 * 5 + 2 {
            out.push(' ');
        }
        for &byte in row {
            out.push(if byte.is_ascii_graphic() {
                char::from(byte)
            } else {
                '.'
            });
        }
    }
}

/// `-A`: characters, with dots for bytes that are none. Newlines and tabs stay as they are. A carriage return is left out before
/// a newline, and as one of the last two bytes.
pub(super) fn ascii(out: &mut String, data: &[u8]) {
    out.push('\n');
    for (i, &byte) in data.iter().enumerate() {
        match byte {
            b'\r' if i + 2 >= data.len() || data[i + 1] == b'\n' => {}
            b' '..=b'~' | b'\t' | b'\n' => out.push(char::from(byte)),
            _ => out.push('.'),
        }
    }
}

fn begin(out: &mut String, offset: usize) {
    let done = write!(out, "\n\t0x{offset:04x}: ");
    debug_assert!(done.is_ok(), "writing to a String cannot fail");
}

fn digits(out: &mut String, row: &[u8]) {
    for pair in row.chunks(2) {
        out.push(' ');
        for byte in pair {
            out.push(char::from(DIGITS[usize::from(byte >> 4)]));
            out.push(char::from(DIGITS[usize::from(byte & 15)]));
        }
    }
}
