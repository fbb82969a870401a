//! Link headers: the printer of each link type.
//!
//! Every printer returns the length of its header, so that a hex dump can leave it out.

use super::text::{Line, after, array, be16, put};
use super::{cooked, ether, ip, ip6, mpls, ppp, wlan};
use crate::LinkType;

/// Number of bytes shown of a frame that has no printer.
const SHOWN: usize = 16;

/// Prints a frame. Returns the length of its link header.
pub(super) fn frame(line: &mut Line<'_>, link: LinkType, data: &[u8], wire: usize) -> usize {
    match link {
        LinkType::ETHERNET => ether::frame(line, data, wire),
        LinkType::NULL => null(line, data, wire, false),
        LinkType::LOOP => null(line, data, wire, true),
        LinkType::RAW
        | LinkType::RAW_BSD
        | LinkType::RAW_OPENBSD
        | LinkType::IPV4
        | LinkType::IPV6 => {
            line.text(if line.link_header { "ip: " } else { "" });
            by_version(line, data, wire);
            0
        }
        LinkType::LINUX_SLL => cooked::v1(line, data, wire),
        LinkType::LINUX_SLL2 => cooked::v2(line, data, wire),
        LinkType::PPP | LinkType::PPP_SERIAL => ppp::frame(line, data, wire),
        LinkType::PPP_PPPD | LinkType::PPP_WITH_DIR => ppp::directed(line, data, wire),
        LinkType::PPP_ETHER => ppp::over_ethernet(line, data, wire),
        LinkType::C_HDLC => chdlc(line, data, wire),
        LinkType::FRELAY => frame_relay(line, data, wire),
        LinkType::SLIP => slip(line, data, wire),
        LinkType::IEEE802_11 => wlan::frame(line, data, wire),
        LinkType::IEEE802_11_RADIO => wlan::radiotap(line, data, wire),
        LinkType::MPLS => {
            mpls::labels(line, data, wire);
            0
        }
        LinkType(284) => ether::switched(line, data, wire),
        other => unknown(line, other, data, wire),
    }
}

/// Prints an IP packet whose version is known only from its first nibble.
pub(super) fn by_version(line: &mut Line<'_>, data: &[u8], wire: usize) {
    match data.first().map(|byte| byte >> 4) {
        None => line.cut("ip"),
        Some(4) => _ = ip::packet(line, data, wire),
        Some(6) => _ = ip6::packet(line, data, wire),
        Some(version) => put!(line, "unknown ip {version}"),
    }
}

fn unknown(line: &mut Line<'_>, link: LinkType, data: &[u8], wire: usize) -> usize {
    put!(line, "link type {}", link.0);
    if let Some(name) = link.name() {
        put!(line, " ({name})");
    }
    line.length(wire);
    line.text(if data.is_empty() { "" } else { ": " });
    for byte in data.iter().take(SHOWN) {
        line.hex_byte(*byte);
    }
    if data.len() > SHOWN {
        line.text("...");
    }
    0
}

/// Prints a BSD loopback frame. `LOOP` is big-endian. `NULL` is in the byte order of the capturing host, which is not known here;
/// families are small numbers, so the value reveals the order.
fn null(line: &mut Line<'_>, data: &[u8], wire: usize, big_endian: bool) -> usize {
    let Some(bytes) = array::<4>(data, 0) else {
        line.cut("null");
        return 0;
    };
    let mut family = u32::from_le_bytes(bytes);
    if big_endian || family > 0xffff {
        family = family.swap_bytes();
    }
    // AF_INET6 is 24 on NetBSD and OpenBSD, 28 on FreeBSD, 30 on macOS, 23 on Windows and 10 on Linux.
    let name = match family {
        2 => "IPv4",
        10 | 23 | 24 | 28 | 30 => "IPv6",
        6 => "NS",
        7 => "ISO",
        16 => "Appletalk",
        _ => "Unknown",
    };
    if line.link_header {
        put!(line, "AF {name} ({family}), length {wire}: ");
    }
    let (rest, rest_wire) = after(data, wire, 4);
    match name {
        "IPv4" => _ = ip::packet(line, rest, rest_wire),
        "IPv6" => _ = ip6::packet(line, rest, rest_wire),
        _ => put!(line, "AF {family}, length {rest_wire}"),
    }
    4
}

/// Cisco HDLC: address, control, then an EtherType or a protocol number of Cisco.
fn chdlc(line: &mut Line<'_>, data: &[u8], wire: usize) -> usize {
    let Some([address, _, hi, lo]) = array::<4>(data, 0) else {
        line.cut("chdlc");
        return 0;
    };
    let protocol = u16::from_be_bytes([hi, lo]);
    if line.link_header {
        match address {
            0x0f => line.text("unicast, "),
            0x8f => line.text("bcast, "),
            other => put!(line, "0x{other:02x}, "),
        }
        put!(
            line,
            "ethertype {} (0x{protocol:04x}), length {wire}: ",
            ether::type_name(protocol)
        );
    }
    let (rest, rest_wire) = after(data, wire, 4);
    match protocol {
        0x8035 => put!(line, "SLARP, length {rest_wire}"),
        0x2000 => put!(line, "CDP, length {rest_wire}"),
        0xfefe => put!(line, "OSI, length {rest_wire}"),
        _ if ether::payload(line, protocol, rest, rest_wire) => {}
        // The link header names the protocol.
        _ if line.link_header => {}
        _ => put!(line, "unknown CHDLC protocol (0x{protocol:04x})"),
    }
    4
}

/// Frame relay, RFC 2427: a Q.922 address of two to four bytes, control 3, and an NLPID.
fn frame_relay(line: &mut Line<'_>, data: &[u8], wire: usize) -> usize {
    let Some(last) = data
        .iter()
        .take(4)
        .position(|byte| byte & 1 == 1)
        .filter(|&last| last > 0)
    else {
        line.cut("fr");
        return 0;
    };
    let mut dlci = u32::from(data[0] >> 2) << 4 | u32::from(data[1] >> 4);
    for byte in &data[2..=last.max(1)] {
        dlci = dlci << 7 | u32::from(byte >> 1);
    }
    put!(line, "Q.922, DLCI {dlci}, ");
    if line.link_header {
        put!(line, "length {wire}: ");
    }
    let header = last + 1;
    let rest = data.get(header..).unwrap_or(&[]);
    let (nlpid, header) = match rest {
        [3, 0, nlpid, ..] => (*nlpid, header + 3),
        [3, nlpid, ..] => (*nlpid, header + 2),
        [_, _, ..] => {
            cisco_relay(line, be16(rest, 0).unwrap_or(0), data, wire, header);
            return header + 2;
        }
        _ => {
            line.cut("fr");
            return header;
        }
    };
    let (inner, inner_wire) = after(data, wire, header);
    match nlpid {
        0xcc => _ = ip::packet(line, inner, inner_wire),
        0x8e => _ = ip6::packet(line, inner, inner_wire),
        0x08 => put!(line, "Q.933, length {inner_wire}"),
        0x81..=0x83 => put!(line, "OSI, length {inner_wire}"),
        other => put!(line, "NLPID 0x{other:02x}, length {inner_wire}"),
    }
    header
}

/// Cisco's frame relay encapsulation: an EtherType instead of control and NLPID.
fn cisco_relay(line: &mut Line<'_>, protocol: u16, data: &[u8], wire: usize, header: usize) {
    let (rest, rest_wire) = after(data, wire, header + 2);
    if !ether::payload(line, protocol, rest, rest_wire) {
        put!(line, "ethertype 0x{protocol:04x}, length {rest_wire}");
    }
}

/// libpcap's SLIP header: a direction byte and fifteen bytes about Van Jacobson compression.
fn slip(line: &mut Line<'_>, data: &[u8], wire: usize) -> usize {
    const HEADER: usize = 16;
    let Some(direction) = data.first().filter(|_| data.len() >= HEADER) else {
        line.cut("slip");
        return 0;
    };
    if line.link_header {
        line.text(match direction {
            0 => "I ",
            1 => "O ",
            _ => "invalid direction ",
        });
    }
    let (rest, rest_wire) = after(data, wire, HEADER);
    match rest.first().map(|byte| byte >> 4) {
        Some(version) if !matches!(version, 4 | 6) => put!(line, "ip v{version}"),
        _ => by_version(line, rest, rest_wire),
    }
    HEADER
}
