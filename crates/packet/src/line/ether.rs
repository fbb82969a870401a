//! Ethernet II, 802.3 and VLAN tags, and the payload of an EtherType.

use super::text::{Line, Printed, after, array, be16, put, within};
use super::{arp, ip, ip6, llc, mpls, ppp};

/// Largest length of 802.3; EtherTypes are greater.
const LENGTH_MAX: u16 = 1500;

/// Prints a frame. Returns the length of its header with all VLAN tags.
pub(super) fn frame(line: &mut Line<'_>, data: &[u8], wire: usize) -> usize {
    frame_with(line, data, wire, None)
}

/// Prints a frame with a tag of Marvell's switches between its addresses and its type (DSA).
pub(super) fn switched(line: &mut Line<'_>, data: &[u8], wire: usize) -> usize {
    match array::<4>(data, 12) {
        Some(tag) => frame_with(line, data, wire, Some(tag)),
        None => {
            line.cut("ether");
            data.len()
        }
    }
}

/// Prints a tag of a switch: its direction, its port and its VLAN, tagged or not.
fn switch_tag(line: &mut Line<'_>, [mode, port, high, low]: [u8; 4]) {
    let (device, number, vlan) = (
        mode & 31,
        port >> 3,
        u16::from(high & 15) << 8 | u16::from(low),
    );
    let tagged = if mode & 0x20 != 0 { 't' } else { 'u' };
    match mode >> 6 {
        0 => put!(
            line,
            "DSA To CPU: port {device}.{number}, VLAN {vlan}{tagged}, "
        ),
        1 => put!(
            line,
            "DSA CPU > port {device}.{number}, VLAN {vlan}{tagged}, "
        ),
        2 => put!(
            line,
            "DSA To Sniffer: port {device}.{number}, VLAN {vlan}{tagged}, "
        ),
        _ => {
            let kind = if port & 4 != 0 { "trunk" } else { "port" };
            put!(
                line,
                "DSA Forward {kind} {device}.{number}, VLAN {vlan}{tagged}, "
            );
        }
    }
}

fn frame_with(line: &mut Line<'_>, data: &[u8], wire: usize, switch: Option<[u8; 4]>) -> usize {
    let start = if switch.is_some() { 18 } else { 14 };
    let (Some(dst), Some(src), Some(kind)) = (
        array::<6>(data, 0),
        array::<6>(data, 6),
        be16(data, start - 2),
    ) else {
        line.cut("ether");
        return data.len();
    };
    if line.link_header {
        ends(line, &src, &dst);
    }
    if let Some(tag) = switch {
        switch_tag(line, tag);
    }
    let (kind, header) = match tags(line, kind, data, start, wire) {
        Ok(found) => found,
        Err(header) => return header,
    };
    let is_tagged = header > start;
    let (rest, rest_wire) = after(data, wire, header);
    if kind <= LENGTH_MAX {
        let length = rest_wire.min(usize::from(kind));
        if line.link_header {
            line.text("802.3");
            if !is_tagged {
                put!(line, ", length {length}: ");
            }
        }
        llc::packet(line, within(rest, length), length, (&src, &dst));
        return header;
    }
    if line.link_header {
        write_type(line, kind);
        match is_tagged {
            true => line.text(", "),
            false => put!(line, ", length {wire}: "),
        }
    }
    if !payload(line, kind, rest, rest_wire) {
        // Without `-e` too, an unknown type is told with the addresses.
        if !line.link_header {
            ends(line, &src, &dst);
            write_type(line, kind);
            put!(line, ", length {wire}: ");
        }
        if !line.dumped {
            line.dump(rest);
        }
    }
    header
}

pub(super) fn ends(line: &mut Line<'_>, src: &[u8], dst: &[u8]) {
    line.mac(src);
    line.text(" > ");
    line.mac(dst);
    line.text(", ");
}

fn write_type(line: &mut Line<'_>, kind: u16) {
    let name = type_name(kind);
    match (line.is_quiet(), name) {
        (false, _) => put!(line, "ethertype {name} (0x{kind:04x})"),
        (true, "Unknown") => put!(line, "Unknown Ethertype (0x{kind:04x})"),
        (true, _) => line.text(name),
    }
}

/// Whether the type is a VLAN tag: 802.1Q, 802.1ad or a number in use before 802.1ad.
fn is_tag(kind: u16) -> bool {
    matches!(kind, 0x8100 | 0x88a8 | 0x9100 | 0x9200)
}

/// Largest number of tags that are followed, as many as a flow key is read after.
const MOST_TAGS: usize = 32;

/// Reads the tags that begin at `at`, and prints them if link headers are printed. Returns the type after them and the offset
/// after that type; `Err` with the offset if a tag is cut off.
fn tags(
    line: &mut Line<'_>,
    mut kind: u16,
    data: &[u8],
    mut at: usize,
    wire: usize,
) -> Result<(u16, usize), usize> {
    let start = at;
    let end = at + 4 * MOST_TAGS;
    while is_tag(kind) {
        if at >= end {
            line.text("...");
            return Err(at);
        }
        let (Some(tag), Some(next)) = (be16(data, at), be16(data, at + 2)) else {
            line.cut("vlan");
            return Err(data.len());
        };
        if line.link_header {
            write_type(line, kind);
            match at == start {
                true => put!(line, ", length {wire}: "),
                false => line.text(", "),
            }
            let dei = if tag & 0x1000 == 0 { "" } else { ", DEI" };
            put!(line, "vlan {}, p {}{dei}, ", tag & 0xfff, tag >> 13);
        }
        kind = next;
        at += 4;
    }
    Ok((kind, at))
}

/// Prints the payload that an EtherType announces; `false` if there is no printer, and no name to print.
pub(super) fn payload(line: &mut Line<'_>, kind: u16, data: &[u8], wire: usize) -> bool {
    match kind {
        0x0800 => _ = ip::packet(line, data, wire),
        0x86dd => _ = ip6::packet(line, data, wire),
        0x0806 | 0x8035 => arp::packet(line, data, wire),
        0x8847 | 0x8848 => mpls::labels(line, data, wire),
        0x8863 | 0x8864 => _ = ppp::over_ethernet(line, data, wire),
        0x8100 | 0x88a8 | 0x9100 | 0x9200 => {
            if let Ok((kind, header)) = tags(line, kind, data, 0, wire) {
                let (rest, rest_wire) = after(data, wire, header);
                let mut is_known = true;
                line.nested(|line| {
                    is_known = payload(line, kind, rest, rest_wire);
                    Some(())
                });
                return is_known;
            }
        }
        0x88cc => lldp(line, data, wire),
        _ => match printed(kind) {
            Some(name) => put!(line, "{name}, length {wire}"),
            None => return false,
        },
    }
    true
}

/// The name that `-e` prints for an EtherType.
pub(super) fn type_name(kind: u16) -> &'static str {
    match kind {
        0x0800 => "IPv4",
        0x86dd => "IPv6",
        0x0806 => "ARP",
        0x8035 => "Reverse ARP",
        0x8100 => "802.1Q",
        0x88a8 => "802.1Q-QinQ",
        0x9100 => "802.1Q-9100",
        0x9200 => "802.1Q-9200",
        0x8847 => "MPLS unicast",
        0x8848 => "MPLS multicast",
        0x8863 => "PPPoE D",
        0x8864 => "PPPoE S",
        _ => known(kind).unwrap_or("Unknown"),
    }
}

/// LLDP (802.1AB): the name of the system.
fn lldp(line: &mut Line<'_>, data: &[u8], wire: usize) {
    line.text("LLDP");
    line.length(wire);
    let printed = system_name(line, data, wire);
    line.unless_cut(printed, "lldp");
}

fn system_name(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    const END: u16 = 0;
    const SYSTEM_NAME: u16 = 5;
    let mut at = 0;
    while at + 2 <= wire {
        let head = be16(data, at)?;
        let (kind, length) = (head >> 9, usize::from(head & 0x1ff));
        let value = data.get(at + 2..at + 2 + length)?;
        match kind {
            END => break,
            SYSTEM_NAME => {
                line.text(": ");
                line.bytes(value);
            }
            _ => {}
        }
        at += 2 + length;
    }
    Some(())
}

/// EtherTypes whose packets are only named here, where tcpdump prints more.
fn printed(kind: u16) -> Option<&'static str> {
    match kind {
        0x04e0 | 0x0707 | 0x6003 | 0x809b | 0x80f3 | 0x8137 | 0x8808 | 0x8809 | 0x880b | 0x886f
        | 0x888e | 0x8899 | 0x88a2 | 0x88ca | 0x88e5 | 0x88f7 | 0x8902 | 0x8947 | 0x894f
        | 0x9000 | 0xfefe => known(kind),
        _ => None,
    }
}

/// Names of EtherTypes, in tcpdump's words.
fn known(kind: u16) -> Option<&'static str> {
    Some(match kind {
        0x0600 => "NS",
        0x0707 => "GeoNet (old)",
        0x1000 => "Trail",
        0x1111 => "CALM FAST",
        0x6001 => "MOP DL",
        0x6002 => "MOP RC",
        0x6003 => "DN",
        0x6004 => "LAT",
        0x6007 => "SCA",
        0x6558 => "TEB",
        0x8038 => "Lanbridge",
        0x803c => "DEC DNS",
        0x803e => "DEC DTS",
        0x805b => "VEXP",
        0x805c => "VPROD",
        0x809b => "Appletalk",
        0x80f3 => "Appletalk ARP",
        0x8137 => "IPX",
        0x8808 => "MPCP",
        0x8809 => "Slow Protocols",
        0x880b => "PPP",
        0x886f => "MS NLB heartbeat",
        0x888e => "EAPOL",
        0x8899 => "Realtek protocols",
        0x88a2 => "AoE",
        0x88ca => "TIPC",
        0x88cc => "LLDP",
        0x88e5 => "802.1AE MACsec",
        0x88f7 => "PTP",
        0x8902 => "CFM",
        0x893a => "IEEE1905.1",
        0x8947 => "GeoNet",
        0x894f => "NSH",
        0x9000 => "Loopback",
        0xabcd => "CFM (old)",
        0xfefe => "OSI",
        _ => return None,
    })
}
