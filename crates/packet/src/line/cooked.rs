//! Linux "cooked" captures: the link header of captures on the interface `any`.

use super::text::{Line, after, array, be16, be32, put};
use super::{ether, llc};

/// Prints a header of version 1:
/// ```text
/// 0 direction   2 ARPHRD   4 address length   6 address (8)   14 protocol
/// ```
pub(super) fn v1(line: &mut Line<'_>, data: &[u8], wire: usize) -> usize {
    const HEADER: usize = 16;
    let (Some(direction), Some(len), Some(address), Some(protocol)) = (
        be16(data, 0),
        be16(data, 4),
        array::<8>(data, 6),
        be16(data, 14),
    ) else {
        line.cut("linux-sll");
        return 0;
    };
    if line.link_header {
        way(line, direction);
        sender(line, &address, usize::from(len));
        announced(line, protocol, wire);
    }
    payload(line, protocol, data, wire, HEADER);
    HEADER
}

/// Prints a header of version 2:
/// ```text
/// 0 protocol   4 interface index   8 ARPHRD   10 direction   11 address length   12 address (8)
/// ```
pub(super) fn v2(line: &mut Line<'_>, data: &[u8], wire: usize) -> usize {
    const HEADER: usize = 20;
    let (Some(protocol), Some(interface), Some([direction, len]), Some(address)) = (
        be16(data, 0),
        be32(data, 4),
        array::<2>(data, 10),
        array::<8>(data, 12),
    ) else {
        line.cut("linux-sll2");
        return 0;
    };
    if line.link_header {
        way(line, u16::from(direction));
        put!(line, "ifindex {interface} ");
        sender(line, &address, usize::from(len));
        announced(line, protocol, wire);
    }
    payload(line, protocol, data, wire, HEADER);
    HEADER
}

fn way(line: &mut Line<'_>, direction: u16) {
    line.text(match direction {
        0 => " In ",
        1 => "  B ",
        2 => "  M ",
        3 => "  P ",
        4 => "Out ",
        _ => "  ? ",
    });
}

fn sender(line: &mut Line<'_>, address: &[u8; 8], len: usize) {
    if len == 6 {
        line.mac(&address[..6]);
        line.text(" ");
    }
}

fn announced(line: &mut Line<'_>, protocol: u16, wire: usize) {
    match protocol {
        1 => put!(line, "802.3, length {wire}: "),
        4 => put!(line, "802.2, length {wire}: "),
        _ => put!(
            line,
            "ethertype {} (0x{protocol:04x}), length {wire}: ",
            ether::type_name(protocol)
        ),
    }
}

/// Prints the payload of a cooked header. Protocol numbers up to 1500 are the kernel's own (`linux/if_ether.h`): 4 is 802.2, 1 is
/// Novell's raw 802.3.
fn payload(line: &mut Line<'_>, protocol: u16, data: &[u8], wire: usize, header: usize) {
    let (rest, rest_wire) = after(data, wire, header);
    match protocol {
        1 => put!(line, "IPX, length {rest_wire}"),
        4 => llc::packet(line, rest, rest_wire, (&[], &[])),
        0..=1500 => put!(line, "protocol 0x{protocol:04x}, length {rest_wire}"),
        _ if ether::payload(line, protocol, rest, rest_wire) => {}
        _ => put!(line, "ethertype 0x{protocol:04x}, length {rest_wire}"),
    }
}
