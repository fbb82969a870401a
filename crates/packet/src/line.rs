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

/// Appends the text of one packet: the part of a line behind the time stamp, without a final newline.
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

/// The body that the fuzz target and the tests share.
#[doc(hidden)]
pub mod fuzz_body {
    use super::{Hex, Style, write_line};
    use crate::{Frame, LinkType};

    /// Link types with a printer of their own, and one without.
    pub const LINKS: [LinkType; 21] = [
        LinkType::ETHERNET,
        LinkType::NULL,
        LinkType::LOOP,
        LinkType::RAW,
        LinkType::RAW_BSD,
        LinkType::IPV4,
        LinkType::IPV6,
        LinkType::LINUX_SLL,
        LinkType::LINUX_SLL2,
        LinkType::PPP,
        LinkType::PPP_SERIAL,
        LinkType::PPP_ETHER,
        LinkType::PPP_PPPD,
        LinkType::PPP_WITH_DIR,
        LinkType::C_HDLC,
        LinkType::FRELAY,
        LinkType::SLIP,
        LinkType::IEEE802_11,
        LinkType::IEEE802_11_RADIO,
        LinkType::MPLS,
        LinkType(147),
    ];

    /// Prints `data[3..]` with a link type, style and wire length taken from the first three bytes. The text must be one
    /// line of printable characters, and the number of dump lines must be that of the style.
    pub fn line(data: &[u8]) {
        let Some((head, rest)) = data.split_first_chunk::<3>() else {
            return;
        };
        let link = LINKS[usize::from(head[0]) % LINKS.len()];
        let extra = u32::from(head[2]) * u32::from(head[2] & 1);
        frame(link, rest, extra, head[1]);
    }

    /// Prints a frame as `line` does, with every choice made by the caller; `flags` chooses the style.
    pub fn frame(link: LinkType, data: &[u8], missing: u32, flags: u8) {
        let hex = match flags >> 1 & 7 {
            0 | 5.. => Hex::None,
            1 => Hex::Hex,
            2 => Hex::HexAscii,
            3 => Hex::FrameHex,
            4 => Hex::FrameHexAscii,
        };
        let style = Style {
            link_header: flags & 1 == 1,
            hex,
        };
        let frame = Frame {
            data,
            wire_len: data.len() as u32 + missing,
            interface: 0,
        };
        let mut out = String::new();
        write_line(&mut out, link, &frame, &style);
        let mut lines = out.split('\n');
        let first = lines.next().expect("split yields at least one piece");
        assert!(
            first.bytes().all(|b| (b' '..=b'~').contains(&b)),
            "{link:?} {data:02x?}: {first:?}"
        );
        assert!(
            first.len() < 4096,
            "{link:?} {data:02x?}: {} bytes of text",
            first.len()
        );
        assert_eq!(first.ends_with("captured]"), missing > 0);
        let dumped = lines
            .inspect(|line| assert!(line.starts_with("\t0x")))
            .count();
        match hex {
            Hex::None => assert_eq!(dumped, 0),
            Hex::Hex | Hex::HexAscii => assert!(dumped <= data.len().div_ceil(16)),
            Hex::FrameHex | Hex::FrameHexAscii => assert_eq!(dumped, data.len().div_ceil(16)),
        }
    }
}
