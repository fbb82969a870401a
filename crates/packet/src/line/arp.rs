//! ARP and RARP (RFC 826, RFC 903, RFC 2390).

use super::text::{Line, be16, put};
use super::{ether, names};

/// Prints `Request who-has 10.0.0.1 tell 10.0.0.2, length 28`.
pub(super) fn packet(line: &mut Line<'_>, data: &[u8], wire: usize) {
    let (Some(hard), Some(proto), Some(op)) = (be16(data, 0), be16(data, 2), be16(data, 6)) else {
        return line.cut("arp");
    };
    let (hard_len, proto_len) = (usize::from(data[4]), usize::from(data[5]));
    if data.len() < 8 + 2 * (hard_len + proto_len) {
        return line.cut("arp");
    }
    // With `-e`, the link header has already named the EtherType.
    if !line.link_header {
        line.text("ARP, ");
    }
    // Trailer encapsulation (RFC 893) asks for IPv4 addresses under another EtherType.
    let is_foreign = !matches!(proto, 0x0800 | 0x1000) || proto_len != 4 || hard_len == 0;
    if is_foreign || line.is_verbose() {
        kinds(line, (hard, hard_len), (proto, proto_len));
        if !line.is_verbose() {
            return line.length(wire);
        }
        line.text(", ");
    }
    // Sender and target, hardware before protocol address, from byte 8 on.
    let second = 8 + hard_len + proto_len;
    let hards = [&data[8..8 + hard_len], &data[second..second + hard_len]];
    let protos = [
        &data[8 + hard_len..second],
        &data[second + hard_len..second + hard_len + proto_len],
    ];
    match names::arp(op) {
        Some(name) => put!(line, "{name} "),
        None => put!(line, "Unknown ({op}) "),
    }
    if operation(line, op, hards, protos, proto) {
        line.length(wire);
    } else {
        line.dump(data);
    }
}

/// Prints the names and lengths of both kinds of addresses.
fn kinds(line: &mut Line<'_>, hard: (u16, usize), proto: (u16, usize)) {
    match names::hardware(hard.0) {
        Some(name) => line.text(name),
        None => put!(line, "Unknown Hardware ({})", hard.0),
    }
    put!(line, " (len {}), ", hard.1);
    match ether::type_name(proto.0) {
        "Unknown" if proto.0 == 0x0200 => line.text("PUP"),
        "Unknown" => put!(line, "Unknown Protocol (0x{:04x})", proto.0),
        name => line.text(name),
    }
    put!(line, " (len {})", proto.1);
}

/// Prints who asks or answers; `false` if the operation is unknown.
fn operation(
    line: &mut Line<'_>,
    op: u16,
    [sender_hard, target_hard]: [&[u8]; 2],
    [sender, target]: [&[u8]; 2],
    proto: u16,
) -> bool {
    match op {
        1 => {
            line.text("who-has ");
            address(line, target, proto);
            if target_hard.iter().any(|&byte| byte != 0) {
                line.text(" (");
                hardware(line, target_hard);
                line.text(")");
            }
            line.text(" tell ");
            address(line, sender, proto);
        }
        2 => {
            address(line, sender, proto);
            line.text(" is-at ");
            hardware(line, sender_hard);
        }
        3 | 8 => {
            line.text("who-is ");
            hardware(line, target_hard);
            line.text(" tell ");
            hardware(line, sender_hard);
        }
        4 => {
            hardware(line, target_hard);
            line.text(" at ");
            address(line, target, proto);
        }
        9 => {
            hardware(line, sender_hard);
            line.text(" at ");
            address(line, sender, proto);
        }
        _ => return false,
    }
    true
}

fn hardware(line: &mut Line<'_>, field: &[u8]) {
    match field {
        [] => line.text("<empty>"),
        field => line.mac(field),
    }
}

fn address(line: &mut Line<'_>, field: &[u8], proto: u16) {
    match field.try_into() {
        _ if !matches!(proto, 0x0800 | 0x1000) => line.text("<wrong proto type>"),
        Ok(address) => line.ipv4(address),
        Err(_) => line.text("<wrong len>"),
    }
}
