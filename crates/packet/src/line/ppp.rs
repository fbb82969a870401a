//! PPP (RFC 1661) and PPPoE (RFC 2516).

use super::text::{Line, Printed, after, array, be16, put, within};
use super::{ip, ip6, mpls, names};

/// A PPP frame, with or without the address and control bytes `ff 03`.
pub(super) fn frame(line: &mut Line<'_>, data: &[u8], wire: usize) -> usize {
    let skipped = if data.starts_with(&[0xff, 3]) { 2 } else { 0 };
    let (rest, rest_wire) = after(data, wire, skipped);
    skipped + protocol(line, rest, rest_wire, wire)
}

/// A PPP frame after a direction byte: 0 if the other end sent the frame, 1 if this end did.
pub(super) fn directed(line: &mut Line<'_>, data: &[u8], wire: usize) -> usize {
    let Some(&direction) = data.first() else {
        line.cut("ppp");
        return 0;
    };
    if line.link_header {
        line.text(if direction == 0 { "In  " } else { "Out " });
    }
    // pppd's device replaces the address byte and keeps the control byte.
    let skipped = match data {
        [_, 0xff, 3, ..] => 3,
        [_, 3, ..] => 2,
        _ => 1,
    };
    let (rest, rest_wire) = after(data, wire, skipped);
    skipped + protocol(line, rest, rest_wire, wire)
}

/// Prints the protocol field (one byte if odd, else two) and its payload; returns the length of the field.
fn protocol(line: &mut Line<'_>, data: &[u8], wire: usize, frame_wire: usize) -> usize {
    let (kind, header) = match data {
        [first, ..] if first & 1 == 1 => (u16::from(*first), 1),
        [hi, lo, ..] => (u16::from_be_bytes([*hi, *lo]), 2),
        _ => {
            line.cut("ppp");
            return 0;
        }
    };
    if line.link_header {
        let name = match kind {
            0x0021 => "IP",
            0x0057 => "IP6",
            0x0281 | 0x0283 => "MPLS",
            _ => names::ppp(kind).unwrap_or("unknown"),
        };
        put!(line, "{name} (0x{kind:04x}), length {frame_wire}: ");
    }
    let (rest, rest_wire) = after(data, wire, header);
    match kind {
        0x0021 => _ = ip::packet(line, rest, rest_wire),
        0x0057 => _ = ip6::packet(line, rest, rest_wire),
        0x0281 | 0x0283 => mpls::labels(line, rest, rest_wire),
        0x8021 | 0x8023 | 0x8057 | 0x80fd | 0x8281 | 0xc021 => control(line, kind, rest, rest_wire),
        _ => match names::ppp(kind) {
            Some(name) => put!(line, "{name}, length {rest_wire}"),
            None => {
                put!(line, "unknown PPP protocol (0x{kind:04x}) ");
                line.dump_hex(rest);
            }
        },
    }
    header
}

/// LCP and the network control protocols: code, identifier, length.
fn control(line: &mut Line<'_>, kind: u16, data: &[u8], wire: usize) {
    let name = names::ppp(kind).unwrap_or("PPP");
    let Some([code, id]) = array::<2>(data, 0).filter(|_| wire >= 4) else {
        return put!(line, "{name}, [|{name}]");
    };
    let word = names::ppp_code(code).unwrap_or("Unknown Opcode");
    // tcpdump counts the protocol field here.
    put!(
        line,
        "{name}, {word} (0x{code:02x}), id {id}, length {}",
        wire + 2
    );
}

/// A packet of PPPoE, discovery or session; returns the length of its header and of the PPP protocol field.
pub(super) fn over_ethernet(line: &mut Line<'_>, data: &[u8], wire: usize) -> usize {
    const HEADER: usize = 6;
    let (Some([versions, code]), Some(session), Some(length)) =
        (array::<2>(data, 0), be16(data, 2), be16(data, 4))
    else {
        line.cut("pppoe");
        return 0;
    };
    if versions >> 4 != 1 {
        put!(line, " [ver {}]", versions >> 4);
    }
    if versions & 15 != 1 {
        put!(line, " [type {}]", versions & 15);
    }
    line.text("PPPoE ");
    match code {
        0 => {}
        0x09 => line.text("PADI"),
        0x07 => line.text("PADO"),
        0x19 => line.text("PADR"),
        0x65 => line.text("PADS"),
        0xa7 => line.text("PADT"),
        other => put!(line, "PAD-{other:x}"),
    }
    let (rest, rest_wire) = after(data, wire, HEADER);
    let mut length = usize::from(length);
    if rest_wire < length {
        put!(line, " [len {length} > {rest_wire}!]");
        length = rest_wire;
    }
    if session != 0 {
        put!(line, " [ses 0x{session:x}]");
    }
    if code == 0 {
        line.text(" ");
        return HEADER + frame(line, within(rest, length), length);
    }
    let printed = tags(line, rest, length);
    line.unless_cut(printed, "pppoe");
    HEADER
}

/// Prints the tags of a discovery packet: names, and values as text or in hex.
fn tags(line: &mut Line<'_>, data: &[u8], length: usize) -> Printed {
    const SHOWN: usize = 20;
    let mut at = 0;
    while at < length {
        let (kind, size) = (be16(data, at)?, usize::from(be16(data, at + 2)?));
        at += 4;
        let value = data.get(at..at + size)?;
        match names::pppoe_tag(kind) {
            Some(name) => put!(line, " [{name}"),
            None => put!(line, " [TAG-0x{kind:x}"),
        }
        let shown = &value[..size.min(SHOWN)];
        let readable = shown
            .iter()
            .filter(|byte| (b' '..0x7f).contains(*byte))
            .count();
        if readable > shown.len() - readable {
            line.text(" \"");
            for &byte in shown {
                line.ascii(&[if (b' '..0x7f).contains(&byte) {
                    byte
                } else {
                    b'.'
                }]);
            }
            line.text("\"");
        } else if size > 0 {
            line.text(" 0x");
            shown.iter().for_each(|byte| put!(line, "{byte:02X}"));
            line.text(if size > SHOWN { "..." } else { "" });
        }
        line.text("]");
        at += size;
        if kind == 0 {
            break;
        }
    }
    Some(())
}
