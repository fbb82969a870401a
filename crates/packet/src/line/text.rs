//! The line being written, and bounds-checked reads of packet bytes.

use super::{Conversations, Detail, Hex, Style};
use core::fmt::Write;

/// Largest number of nested packets (tunnels; VLANs excluded) that the printer follows.
const DEPTH_MAX: u8 = 8;

/// The end of printing a packet: `None` if the captured bytes end in front of a field to be printed. The caller marks that.
pub(super) type Printed = Option<()>;

/// The caller's string, with the operations by which printers append to it.
pub(super) struct Line<'o> {
    out: &'o mut String,
    start: usize,
    /// Print link headers (`-e`).
    pub link_header: bool,
    /// Amount of detail.
    pub detail: Detail,
    /// No dump takes the place of a packet that has no printer: a dump follows anyway, or less is wanted.
    pub dumped: bool,
    absolute: bool,
    conversations: &'o mut Conversations,
    depth: u8,
}

/// `write!` into a line; writing to a `String` cannot fail.
macro_rules! put {
    ($line:expr, $($rest:tt)*) => { $line.put(format_args!($($rest)*)) };
}
pub(super) use put;

impl<'o> Line<'o> {
    pub fn new(out: &'o mut String, style: &Style, conversations: &'o mut Conversations) -> Self {
        let start = out.len();
        Self {
            out,
            start,
            link_header: style.link_header,
            detail: style.detail,
            // Characters alone (`-A`) show no such packet.
            dumped: !matches!(style.hex, Hex::None | Hex::Ascii | Hex::FrameAscii)
                || style.detail == Detail::Quiet,
            absolute: style.absolute,
            conversations,
            depth: 0,
        }
    }

    pub fn is_verbose(&self) -> bool {
        self.detail == Detail::Verbose
    }

    pub fn is_quiet(&self) -> bool {
        self.detail == Detail::Quiet
    }

    /// Place of the next character, for [`Line::back_to`].
    pub fn place(&self) -> usize {
        self.out.len()
    }

    /// Characters of the line so far.
    pub fn length_so_far(&self) -> usize {
        self.out.len() - self.start
    }

    /// Removes what was printed from `place` on.
    pub fn back_to(&mut self, place: usize) {
        self.out.truncate(place);
    }

    /// The table of conversations, if numbers are relative.
    pub fn conversations(&mut self) -> Option<&mut Conversations> {
        (!self.absolute).then_some(&mut *self.conversations)
    }

    pub fn put(&mut self, args: core::fmt::Arguments<'_>) {
        let done = self.out.write_fmt(args);
        debug_assert!(done.is_ok(), "writing to a String cannot fail");
    }

    pub fn text(&mut self, text: &str) {
        self.out.push_str(text);
    }

    /// Appends a decimal number. Written by hand because addresses and ports are most of the output, and `write!` costs
    /// several times more.
    pub fn dec(&mut self, value: u32) {
        let mut digits = [0u8; 10];
        let (mut rest, mut at) = (value, digits.len());
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        for &digit in &digits[at..] {
            self.out.push(char::from(digit));
        }
    }

    pub fn ipv4(&mut self, address: [u8; 4]) {
        for (i, byte) in address.into_iter().enumerate() {
            if i > 0 {
                self.out.push('.');
            }
            self.dec(u32::from(byte));
        }
    }

    /// Appends an address as RFC 5952 and tcpdump write it: `::1.2.3.4` also for addresses that embed an IPv4 address
    /// without `ffff`.
    pub fn ipv6(&mut self, address: [u8; 16]) {
        let [head @ .., a, b, c, d] = address;
        if head == [0; 12] && (a, b) != (0, 0) {
            self.out.push_str("::");
            return self.ipv4([a, b, c, d]);
        }
        put!(self, "{}", core::net::Ipv6Addr::from(address));
    }

    /// Appends bytes in hex with colons between them: a hardware address.
    pub fn mac(&mut self, address: &[u8]) {
        for (i, byte) in address.iter().enumerate() {
            if i > 0 {
                self.out.push(':');
            }
            self.hex_byte(*byte);
        }
    }

    pub fn hex_byte(&mut self, byte: u8) {
        for nibble in [byte >> 4, byte & 15] {
            self.out
                .push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
        }
    }

    /// Appends `, length N`.
    pub fn length(&mut self, length: usize) {
        self.text(", length ");
        self.dec(length as u32);
    }

    /// Appends the mark of bytes that were not captured: ` [|tcp]`.
    pub fn cut(&mut self, protocol: &str) {
        put!(self, " [|{protocol}]");
    }

    /// Appends the mark of `cut` if the printer ended because bytes are missing.
    pub fn unless_cut(&mut self, printed: Printed, protocol: &str) {
        if printed.is_none() {
            self.cut(protocol);
        }
    }

    /// Appends bytes of a packet as printable ASCII: `^M` for a control character, `M-` before a byte beyond ASCII.
    pub fn bytes(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            let low = byte & 0x7f;
            if byte != low {
                self.out.push_str("M-");
            }
            if (b' '..=b'~').contains(&low) {
                self.out.push(char::from(low));
            } else {
                self.out.push('^');
                self.out.push(char::from(low ^ 0x40));
            }
        }
    }

    /// Appends text that a printer found to be printable ASCII and tabs; other bytes become dots.
    pub fn ascii(&mut self, bytes: &[u8]) {
        self.out.extend(bytes.iter().map(|&byte| match byte {
            b' '..=b'~' | b'\t' => char::from(byte),
            _ => '.',
        }));
    }

    /// Appends a dump in place of a packet that has no printer.
    pub fn dump(&mut self, data: &[u8]) {
        super::hexdump::hex_ascii(self.out, data);
    }

    /// Appends a dump without characters.
    pub fn dump_hex(&mut self, data: &[u8]) {
        super::hexdump::hex(self.out, data);
    }

    /// Ends the line. A line without any text stays empty.
    pub fn end(self) {
        debug_assert!(
            self.out.len() >= self.start,
            "printers remove their own text only"
        );
    }

    /// Runs `inner` one level deeper, or prints that the nesting is too deep to follow.
    pub fn nested(&mut self, inner: impl FnOnce(&mut Self) -> Printed) -> Printed {
        if self.depth >= DEPTH_MAX {
            self.text("...");
            return Some(());
        }
        self.depth += 1;
        let printed = inner(self);
        self.depth -= 1;
        printed
    }
}

/// `N` bytes at `at`, if captured.
pub(super) fn array<const N: usize>(data: &[u8], at: usize) -> Option<[u8; N]> {
    data.get(at..)?.first_chunk().copied()
}

pub(super) fn be16(data: &[u8], at: usize) -> Option<u16> {
    array(data, at).map(u16::from_be_bytes)
}

pub(super) fn be32(data: &[u8], at: usize) -> Option<u32> {
    array(data, at).map(u32::from_be_bytes)
}

/// The bytes after the first `header` bytes: the captured rest, and the length of the rest on the
/// wire.
pub(super) fn after(data: &[u8], wire: usize, header: usize) -> (&[u8], usize) {
    (
        data.get(header..).unwrap_or(&[]),
        wire.saturating_sub(header),
    )
}

/// `data` without the bytes beyond `len`, because link-layer padding is no part of the packet.
pub(super) fn within(data: &[u8], len: usize) -> &[u8] {
    data.get(..len).unwrap_or(data)
}
