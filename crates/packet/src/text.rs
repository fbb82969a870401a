//! Text of others that need not be text.

use core::fmt::Write as _;

/// `bytes` as text: those that are not UTF-8 are escaped, as `\xff`. All else stays as it is, control characters too.
pub fn from_bytes(bytes: &[u8]) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        out.push_str(chunk.valid());
        chunk.invalid().iter().for_each(|byte| _ = write!(out, "\\x{byte:02x}"));
    }
    out
}
