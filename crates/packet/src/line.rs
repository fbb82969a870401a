//! A line of text per packet as `tcpdump -n` prints it, and hex dumps.
//!
//! `docs/how-to/from-tcpdump.md` says of which protocols the lines equal tcpdump's byte for byte, and what stays tcpdump's work.
//!
//! Packets are hostile: every read is checked, nesting is bounded, and bytes of packets become printable ASCII. A line of one
//! packet depends on earlier packets only by its [`Conversations`], which the caller keeps.

mod app;
mod arp;
mod conversations;
mod cooked;
mod dns;
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
mod options;
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
pub use conversations::Conversations;
use text::Line;

/// Bytes printed after the line.
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
    /// The packet without its link header as characters (`-A`).
    Ascii,
    /// The whole frame as characters (`-AA`).
    FrameAscii,
}

/// Amount of detail of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Detail {
    /// Less about the protocols (`-q`).
    Quiet,
    /// tcpdump's default.
    #[default]
    Normal,
    /// Fields of the IP header, and whether checksums are right (`-v`).
    Verbose,
}

/// Options of the printer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Style {
    /// Print the link header too (`-e`).
    pub link_header: bool,
    /// Amount of detail.
    pub detail: Detail,
    /// Print TCP sequence numbers as they are in the packet (`-S`), not relative to the start of the conversation.
    pub absolute: bool,
    /// Bytes to print after the line.
    pub hex: Hex,
}

/// Appends the text of one packet: the part of a line after the timestamp, without a final newline.
///
/// A hex dump follows on lines of its own, each begun by a newline and a tab. A packet of an unknown EtherType is such a dump
/// even if the style has none.
///
/// **Cost**: linear in the headers (and in the captured bytes with a dump); no allocation beyond the growth of `out`.
/// **Panics**: never, whatever the bytes are.
pub fn write_line(
    out: &mut String,
    link: LinkType,
    frame: &Frame<'_>,
    style: &Style,
    conversations: &mut Conversations,
) {
    let (data, wire) = (frame.data, frame.wire_len as usize);
    let mut line = Line::new(out, style, conversations);
    let header = linkhdr::frame(&mut line, link, data, wire.max(data.len()));
    line.end();
    let packet = data.get(header..).unwrap_or(&[]);
    match style.hex {
        Hex::None => {}
        Hex::Hex => hexdump::hex(out, packet),
        Hex::HexAscii => hexdump::hex_ascii(out, packet),
        Hex::FrameHex => hexdump::hex(out, data),
        Hex::FrameHexAscii => hexdump::hex_ascii(out, data),
        Hex::Ascii if packet.is_empty() => {}
        Hex::Ascii => hexdump::ascii(out, packet),
        Hex::FrameAscii => hexdump::ascii(out, data),
    }
}
