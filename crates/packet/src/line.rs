//! A line of text per packet, as `tcpdump -n` prints it but shorter, and hex dumps exactly as tcpdump's.
//!
//! Intended differences from tcpdump: no `IP `, `IP6 ` in front of the outermost addresses; TCP sequence numbers are absolute
//! (`-S`) and TCP options are left out; VLAN tags are always shown; application protocols (DNS, HTTP, ...) are not decoded;
//! fragments show their place in the datagram. If the capture cut the packet, the line ends in
//! `[96 of 1514 bytes captured]`. A header that the captured bytes do not hold is marked `[|tcp]`.
//!
//! Packets are hostile here: every read is checked, nesting is bounded, and text found in packets is not printed.

mod arp;
mod cooked;
mod ether;
mod hexdump;
mod icmp;
mod icmp6;
mod igmp;
mod ip;
mod ip6;
mod linkhdr;
mod llc;
mod mpls;
mod names;
mod ppp;
mod routing;
mod sctp;
mod tcp;
mod text;
mod tunnel;
mod udp;
mod upper;
mod wlan;

pub use tcp::flag_letters;

use crate::{Frame, LinkType};
use text::{Line, put};

/// Bytes printed after the line, in hex.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Hex {
    /// No bytes.
    #[default]
    None,
    /// The packet without its link header, in hex (`-x`).
    Hex,
    /// The packet without its link header, in hex and as characters (`-X`).
    HexAscii,
    /// The whole frame in hex (`-xx`).
    FrameHex,
    /// The whole frame in hex and as characters (`-XX`).
    FrameHexAscii,
}

/// Options of the printer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Style {
    /// Print the link header too (`-e`).
    pub link_header: bool,
    /// Bytes to print after the line.
    pub hex: Hex,
}

/// Appends the text of one packet: the part of a line after the timestamp, without a final newline.
///
/// A hex dump follows on lines of its own, each begun by a newline and a tab.
///
/// **Cost**: linear in the headers (and in the captured bytes with a dump); no allocation beyond the growth of `out`.
/// **Panics**: never, whatever the bytes are.
pub fn write_line(out: &mut String, link: LinkType, frame: &Frame<'_>, style: &Style) {
    let (data, wire) = (frame.data, frame.wire_len as usize);
    let mut line = Line::new(out, style.link_header);
    let header = linkhdr::frame(&mut line, link, data, wire.max(data.len()));
    line.trim();
    if data.len() < wire {
        put!(line, " [{} of {wire} bytes captured]", data.len());
    }
    let packet = data.get(header..).unwrap_or(&[]);
    match style.hex {
        Hex::None => {}
        Hex::Hex => hexdump::hex(out, packet),
        Hex::HexAscii => hexdump::hex_ascii(out, packet),
        Hex::FrameHex => hexdump::hex(out, data),
        Hex::FrameHexAscii => hexdump::hex_ascii(out, data),
    }
}
