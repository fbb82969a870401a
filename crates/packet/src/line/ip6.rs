//! IPv6 and its extension headers (RFC 8200).

use super::text::{Line, after, array, be16, be32, put, within};
use super::upper::{self, Address, Ends, Fragment, Notes};

const HEADER: usize = 40;
const HOP_BY_HOP: u8 = 0;

/// Prints a packet from its addresses on.
pub(super) fn packet(line: &mut Line<'_>, data: &[u8], wire: usize) {
    let Some(&first) = data.first() else {
        return line.cut("ip6");
    };
    if first >> 4 != 6 {
        return put!(line, "IP{} (invalid), length {wire}", first >> 4);
    }
    if wire < HEADER {
        return put!(line, "truncated-ip6 {wire}");
    }
    let (Some(payload), Some(src), Some(dst)) = (be16(data, 4), array(data, 8), array(data, 24))
    else {
        return line.cut("ip6");
    };
    let next = data[6];
    let rest = wire - HEADER;
    // A payload length of 0 before hop-by-hop options is a jumbogram (RFC 2675), or a large segment that the card has yet to cut.
    let payload = if payload == 0 && next == HOP_BY_HOP {
        rest
    } else {
        usize::from(payload)
    };
    if payload > rest {
        put!(line, "truncated-ip6 - {} bytes missing! ", payload - rest);
    }
    let ends = Ends {
        src: Address::V6(src),
        dst: Address::V6(dst),
        notes: Notes::default(),
        fragment: None,
    };
    let body = within(data.get(HEADER..).unwrap_or(&[]), payload);
    extensions(line, ends, next, body, payload);
}

/// Walks the extension headers, each at least eight bytes long, up to the first header of another kind.
fn extensions<'a>(
    line: &mut Line<'_>,
    mut ends: Ends,
    mut next: u8,
    mut data: &'a [u8],
    mut wire: usize,
) {
    loop {
        let name = match next {
            HOP_BY_HOP => "HBH",
            43 => "srcrt",
            60 => "DSTOPT",
            44 => "frag6",
            59 | 135 => {
                ends.write(line);
                last(line, next, data, wire);
                return upper::fragment(line, &ends);
            }
            _ => return upper::packet(line, ends, next, data, wire),
        };
        let header: Option<(u8, usize)> = match (name, array::<2>(data, 0)) {
            ("frag6", Some([after, _])) => fragment(&mut ends, data, wire).then_some((after, 8)),
            (_, Some([after, units])) => Some((after, (usize::from(units) + 1) * 8)),
            (_, None) => None,
        };
        let (following, length) = header.unwrap_or((next, usize::MAX));
        if name != "frag6" {
            ends.notes.add(name);
        }
        if length > data.len() {
            ends.write(line);
            line.cut(name);
            return upper::fragment(line, &ends);
        }
        let rest: (&'a [u8], usize) = after(data, wire, length);
        (data, wire) = rest;
        next = following;
        if ends.is_later_fragment() {
            return upper::packet(line, ends, next, data, wire);
        }
    }
}

/// Notes a fragment header; `false` if it was cut off.
fn fragment(ends: &mut Ends, data: &[u8], wire: usize) -> bool {
    let (Some(field), Some(id)) = (be16(data, 2), be32(data, 4)) else {
        return false;
    };
    let fragment = Fragment {
        id,
        offset: u32::from(field & 0xfff8),
        length: wire.saturating_sub(8),
        more: field & 1 != 0,
    };
    ends.fragment = Some(fragment);
    true
}

/// Prints the headers that nothing follows: no next header, and mobility (RFC 6275).
fn last(line: &mut Line<'_>, next: u8, data: &[u8], wire: usize) {
    if next == 59 {
        return put!(line, "no next header, length {wire}");
    }
    let Some(&kind) = data.get(2) else {
        return line.cut("mobility");
    };
    line.text("mobility: ");
    match kind {
        0 => line.text("BRR"),
        1 => line.text("HoTI"),
        2 => line.text("CoTI"),
        3 => line.text("HoT"),
        4 => line.text("CoT"),
        5 => line.text("BU"),
        6 => line.text("BA"),
        7 => line.text("BE"),
        other => put!(line, "type-#{other}"),
    }
    line.length(wire);
}
