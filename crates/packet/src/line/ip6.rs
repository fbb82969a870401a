//! IPv6 and its extension headers (RFC 8200).

use super::names;
use super::text::{Line, Printed, array, be16, be32, put};
use super::upper::{self, Address, Ends, Layer};

const HEADER: usize = 40;
const HOP_BY_HOP: u8 = 0;

/// Prints a packet.
pub(super) fn packet(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    let printed = version6(line, data, wire);
    line.unless_cut(printed, "ip6");
    Some(())
}

fn version6(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    data.get(HEADER - 1)?;
    if wire < HEADER {
        put!(line, "truncated-ip6 {wire}");
        return Some(());
    }
    if !line.link_header {
        line.text("IP6 ");
    }
    if data[0] >> 4 != 6 {
        put!(line, "version error: {} != 6", data[0] >> 4);
        return Some(());
    }
    let (claimed, next, hops) = (be16(data, 4)?, data[6], data[7]);
    let rest = wire - HEADER;
    // A payload length of 0 before hop-by-hop options is a jumbogram (RFC 2675), or a large segment that the card has yet to cut.
    let payload = match claimed {
        0 if next == HOP_BY_HOP => rest,
        claimed => usize::from(claimed),
    };
    if payload > rest {
        put!(line, "truncated-ip6 - {} bytes missing!", payload - rest);
    }
    if line.is_verbose() {
        let flow = be32(data, 0)?;
        line.text("(");
        if flow & 0x0ff0_0000 != 0 {
            put!(line, "class 0x{:02x}, ", flow >> 20 & 0xff);
        }
        if flow & 0xf_ffff != 0 {
            put!(line, "flowlabel 0x{:05x}, ", flow & 0xf_ffff);
        }
        put!(
            line,
            "hlim {hops}, next-header {} ({next}) payload length: {claimed}) ",
            names::ip_protocol(next)
        );
    }
    let ends = Ends {
        src: Address::V6(array(data, 8)?),
        dst: Address::V6(array(data, 24)?),
    };
    if !upper::has_ports(next) {
        ends.write(line);
    }
    let body = &data[HEADER..data.len().min(HEADER + payload)];
    let layer = Layer {
        ends,
        first_next: next,
        is_fragment: false,
    };
    extensions(line, layer, next, body, payload)
}

/// Walks the extension headers, each at least eight bytes long, up to the first header of another kind.
fn extensions(
    line: &mut Line<'_>,
    mut layer: Layer,
    mut next: u8,
    mut data: &[u8],
    mut wire: usize,
) -> Printed {
    let mut is_first = true;
    // Nothing is printed of a later header of which no byte was captured.
    while is_first || !data.is_empty() {
        is_first = false;
        let length = match next {
            HOP_BY_HOP => options_header(line, ("HBH", "hbhopt"), data),
            60 => options_header(line, ("DSTOPT", "dstopt"), data),
            43 => routing(line, data),
            44 => {
                layer.is_fragment = true;
                fragment(line, data, wire)
            }
            62 | 135 => {
                let printed = mobility(line, data);
                line.unless_cut(printed, "mobility");
                return Some(());
            }
            _ => {
                upper::packet(line, &layer, next, data, wire);
                return Some(());
            }
        };
        let Some(length) = length else {
            return Some(());
        };
        next = *data.first()?;
        wire = wire.checked_sub(length)?;
        data = data.get(length..)?;
    }
    Some(())
}

/// Prints the name of a header with options; returns its length. `None` if it is cut, which is marked.
fn options_header(line: &mut Line<'_>, (name, mark): (&str, &str), data: &[u8]) -> Option<usize> {
    let length = data.get(1).map(|units| (usize::from(*units) + 1) * 8);
    let length = length.filter(|length| *length <= data.len());
    match length {
        Some(_) => put!(line, "{name} "),
        None => line.cut(mark),
    }
    length
}

/// Prints a routing header (RFC 5095, RFC 6275, RFC 8754); returns its length.
fn routing(line: &mut Line<'_>, data: &[u8]) -> Option<usize> {
    line.text("RT6");
    let length = routing_fields(line, data);
    if length.is_none() {
        line.cut("rt6");
    }
    // After an unknown type, nothing is read.
    length.filter(|length| *length != usize::MAX)
}

fn routing_fields(line: &mut Line<'_>, data: &[u8]) -> Option<usize> {
    let [_, units, kind] = array::<3>(data, 0)?;
    put!(line, " (len={units}, type={kind}");
    line.text(if kind == 0 { " [Deprecated]" } else { "" });
    put!(line, ", segleft={}", data.get(3)?);
    if !matches!(kind, 0 | 2 | 4) {
        line.text(" (unknown type) (invalid)");
        return Some(usize::MAX);
    }
    let reserved = be32(data, 4)?;
    if kind != 4 {
        if reserved != 0 {
            put!(line, ", rsv=0x{reserved:x}");
        }
        if units % 2 == 1 {
            return None;
        }
        for index in 0..usize::from(units / 2) {
            let address = array(data, 8 + 16 * index)?;
            put!(line, ", [{index}]");
            line.ipv6(address);
        }
    }
    line.text(") ");
    Some((usize::from(units) + 1) * 8)
}

/// Prints the place of a fragment in bytes, and its length. Returns the length of the header, unless the fragment is a later one:
/// nothing more is known of it.
fn fragment(line: &mut Line<'_>, data: &[u8], wire: usize) -> Option<usize> {
    const HEADER: usize = 8;
    let Some(field) = be16(data, 2) else {
        line.cut("frag6");
        return None;
    };
    let (offset, length) = (field & 0xfff8, wire.wrapping_sub(HEADER));
    match line.is_verbose() {
        true => put!(
            line,
            "frag (0x{:08x}:{offset}|{length})",
            be32(data, 4).unwrap_or(0)
        ),
        false => put!(line, "frag ({offset}|{length})"),
    }
    if offset != 0 {
        return None;
    }
    line.text(" ");
    Some(HEADER)
}

/// Prints a mobility header (RFC 6275) by its kind.
fn mobility(line: &mut Line<'_>, data: &[u8]) -> Printed {
    let kind = *data.get(2)?;
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
        other => {
            put!(line, "type-#{other} len={}", data.get(1)?);
            return Some(());
        }
    }
    Some(())
}
