//! ARP and RARP (RFC 826, RFC 903, RFC 2390).

use super::text::{Line, be16, put};
use super::{ether, names};

/// Prints `Request who-has 10.0.0.1 tell 10.0.0.2, length 28`.
pub(super) fn packet(line: &mut Line<'_>, data: &[u8], wire: usize) {
    // With `-e`, the link header has already named the EtherType.
    if !line.link_header {
        line.text("ARP, ");
    }
    let (Some(hard), Some(proto), Some(op)) = (be16(data, 0), be16(data, 2), be16(data, 6)) else {
        return line.cut("arp");
    };
    let (hard_len, proto_len) = (usize::from(data[4]), usize::from(data[5]));
    // Trailer encapsulation (RFC 893) asks for IPv4 addresses under another EtherType.
    if !matches!(proto, 0x0800 | 0x1000) || proto_len != 4 || hard_len == 0 {
        return foreign(line, (hard, hard_len), (proto, proto_len), wire);
    }
    // Sender and target, hardware before protocol address, from byte 8 on.
    let field = |at: usize, len: usize| data.get(at..at + len);
    let sender_hard = field(8, hard_len);
    let sender = field(8 + hard_len, 4);
    let target_hard = field(12 + hard_len, hard_len);
    let target = field(12 + 2 * hard_len, 4);
    let (Some(sender_hard), Some(sender), Some(target_hard), Some(target)) =
        (sender_hard, sender, target_hard, target)
    else {
        put!(line, "{} ", names::arp(op).unwrap_or("Unknown"));
        return line.cut("arp");
    };
    operation(line, op, [sender_hard, target_hard], [sender, target]);
    line.length(wire);
}

/// Address resolution for other protocols than IPv4: only their names and lengths.
fn foreign(line: &mut Line<'_>, hard: (u16, usize), proto: (u16, usize), wire: usize) {
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
    line.length(wire);
}

fn operation(
    line: &mut Line<'_>,
    op: u16,
    [sender_hard, target_hard]: [&[u8]; 2],
    [sender, target]: [&[u8]; 2],
) {
    match names::arp(op) {
        Some(name) => put!(line, "{name} "),
        None => put!(line, "Unknown ({op}) "),
    }
    match op {
        1 => {
            line.text("who-has ");
            address(line, target);
            if target_hard.iter().any(|&byte| byte != 0) {
                line.text(" (");
                line.mac(target_hard);
                line.text(")");
            }
            line.text(" tell ");
            address(line, sender);
        }
        2 => pair(line, (sender, true), " is-at ", (sender_hard, false)),
        3 | 8 => {
            line.text("who-is ");
            pair(line, (target_hard, false), " tell ", (sender_hard, false));
        }
        4 => pair(line, (target_hard, false), " at ", (target, true)),
        9 => pair(line, (sender_hard, false), " at ", (sender, true)),
        _ => pair(line, (sender, true), " > ", (target, true)),
    }
}

/// Two fields with a word between them; `true` marks a protocol address.
fn pair(line: &mut Line<'_>, first: (&[u8], bool), word: &str, second: (&[u8], bool)) {
    for (i, (field, protocol)) in [first, second].into_iter().enumerate() {
        if i > 0 {
            line.text(word);
        }
        if protocol {
            address(line, field)
        } else {
            line.mac(field)
        }
    }
}

fn address(line: &mut Line<'_>, field: &[u8]) {
    if let Ok(address) = field.try_into() {
        line.ipv4(address);
    }
}
