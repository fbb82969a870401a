//! Ethernet II, 802.3 and VLAN tags, and the payload of an EtherType.

use super::text::{Line, after, array, be16, put, within};
use super::{arp, ip, ip6, llc, mpls, ppp};

/// Largest length of 802.3; EtherTypes are greater.
const LENGTH_MAX: u16 = 1500;

/// Prints a frame. Returns the length of its header with all VLAN tags.
pub(super) fn frame(line: &mut Line<'_>, data: &[u8], wire: usize) -> usize {
    let (Some(dst), Some(src), Some(kind)) =
        (array::<6>(data, 0), array::<6>(data, 6), be16(data, 12))
    else {
        line.cut("ether");
        return 0;
    };
    if line.link_header {
        line.mac(&src);
        line.text(" > ");
        line.mac(&dst);
        if kind <= LENGTH_MAX {
            put!(
                line,
                ", 802.3, length {}: ",
                wire.saturating_sub(14).min(usize::from(kind))
            );
        } else {
            put!(
                line,
                ", ethertype {} (0x{kind:04x}), length {wire}: ",
                type_name(kind)
            );
        }
    }
    let (kind, header) = tags(line, kind, data, 14);
    if let Some(kind) = kind {
        let (rest, rest_wire) = after(data, wire, header);
        payload(line, kind, rest, rest_wire);
    }
    header
}

/// Whether the type is a VLAN tag: 802.1Q, 802.1ad or a number in use before 802.1ad.
fn is_tag(kind: u16) -> bool {
    matches!(kind, 0x8100 | 0x88a8 | 0x9100 | 0x9200)
}

/// Largest number of tags that are printed, as many as a flow key is read after.
const MOST_TAGS: usize = 32;

/// Prints the tags that begin at `at`. Returns the type after them and the offset after that type;
/// no type if a tag is cut off.
fn tags(line: &mut Line<'_>, mut kind: u16, data: &[u8], mut at: usize) -> (Option<u16>, usize) {
    let end = at + 4 * MOST_TAGS;
    while is_tag(kind) {
        let (Some(tag), Some(next)) = (be16(data, at), be16(data, at + 2)) else {
            line.cut("vlan");
            return (None, at);
        };
        if at >= end {
            line.text("...");
            return (None, at);
        }
        let dei = if tag & 0x1000 == 0 { "" } else { ", DEI" };
        put!(line, "vlan {}, p {}{dei}, ", tag & 0xfff, tag >> 13);
        if line.link_header && next > LENGTH_MAX {
            put!(line, "ethertype {} (0x{next:04x}), ", type_name(next));
        }
        kind = next;
        at += 4;
    }
    (Some(kind), at)
}

/// Prints the payload that an EtherType, or an 802.3 length, announces.
pub(super) fn payload(line: &mut Line<'_>, kind: u16, data: &[u8], wire: usize) {
    match kind {
        0x0800 => ip::packet(line, data, wire),
        0x86dd => ip6::packet(line, data, wire),
        0x0806 | 0x8035 => arp::packet(line, data, wire),
        0x8847 | 0x8848 => mpls::labels(line, data, wire),
        // Code 0 belongs to a session, whatever the EtherType says.
        0x8863 if data.get(1) != Some(&0) => ppp::discovery(line, data, wire),
        0x8863 | 0x8864 => {
            ppp::session(line, data, wire);
        }
        0x8100 | 0x88a8 | 0x9100 | 0x9200 => {
            let (kind, header) = tags(line, kind, data, 0);
            let (rest, rest_wire) = after(data, wire, header);
            if let Some(kind) = kind {
                line.nested(|line| payload(line, kind, rest, rest_wire));
            }
        }
        0..=LENGTH_MAX => {
            let length = wire.min(usize::from(kind));
            llc::packet(line, within(data, length), length);
        }
        _ => match known(kind) {
            Some(name) => put!(line, "{name}, length {wire}"),
            None => put!(line, "ethertype 0x{kind:04x}, length {wire}"),
        },
    }
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

/// EtherTypes that are only named, in tcpdump's words.
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
