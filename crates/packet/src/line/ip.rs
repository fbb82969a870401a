//! IPv4 (RFC 791).

use super::names;
use super::options;
use super::text::{Line, Printed, array, be16, put};
use super::upper::{self, Address, Ends, Layer};

const HEADER: usize = 20;
const MORE_FRAGMENTS: u16 = 0x2000;

/// Prints a packet.
pub(super) fn packet(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    let Some(&first) = data.first() else {
        line.cut("ip");
        return Some(());
    };
    match first >> 4 {
        4 => {}
        6 => {
            line.text("IP6, wrong link-layer encapsulation (invalid)");
            return Some(());
        }
        version => {
            put!(line, "IP{version} (invalid)");
            return Some(());
        }
    }
    if !line.link_header {
        line.text("IP ");
    }
    let printed = version4(line, data, wire);
    line.unless_cut(printed, "ip");
    Some(())
}

fn version4(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    data.get(HEADER - 1)?;
    if wire < HEADER {
        put!(line, "truncated-ip {wire}");
        return Some(());
    }
    let header = usize::from(data[0] & 15) * 4;
    if header < HEADER {
        put!(line, "bad-hlen {header}");
        return Some(());
    }
    let (total, offset, protocol) = (be16(data, 2)?, be16(data, 6)?, data[9]);
    // If the card cuts large segments to size (TSO), a capture on the sending host sees a total length of 0.
    let total = if total == 0 { wire } else { usize::from(total) };
    if total > wire {
        put!(line, "truncated-ip - {} bytes missing! ", total - wire);
    }
    if total < header {
        put!(line, "bad-len {total}");
        return Some(());
    }
    // The following lengths are counted from the header's claim, as tcpdump does; the mark in front shows that the claim is
    // wrong.
    let length = total - header;
    let data = data.get(..total).unwrap_or(data);
    let ends = Ends {
        src: Address::V4(array(data, 12)?),
        dst: Address::V4(array(data, 16)?),
    };
    if line.is_verbose() {
        fields(line, data, header, ends)?;
    }
    if offset & 0x1fff != 0 {
        ends.write(line);
        put!(line, "ip-proto-{protocol}");
        return Some(());
    }
    if !upper::has_ports(protocol) {
        ends.write(line);
    }
    if data.len() < header {
        put!(
            line,
            " [remaining caplen({}) < header length({header})]",
            data.len()
        );
        return None;
    }
    let layer = Layer {
        ends,
        first_next: protocol,
        is_fragment: offset & MORE_FRAGMENTS != 0,
    };
    upper::packet(line, &layer, protocol, &data[header..], length);
    Some(())
}

/// Prints the fields of the header (`-v`), on a line of their own.
fn fields(line: &mut Line<'_>, data: &[u8], header: usize, ends: Ends) -> Printed {
    const FLAGS: [(u16, &str); 3] = [(0x8000, "+"), (0x4000, "DF"), (MORE_FRAGMENTS, "+")];
    let (tos, ttl, protocol) = (data[1], data[8], data[9]);
    put!(line, "(tos 0x{tos:x}");
    line.text(["", ",ECT(1)", ",ECT(0)", ",CE"][usize::from(tos & 3)]);
    if ttl > 0 {
        put!(line, ", ttl {ttl}");
    }
    let offset = be16(data, 6)?;
    put!(
        line,
        ", id {}, offset {}, flags [",
        be16(data, 4)?,
        u32::from(offset & 0x1fff) * 8
    );
    let mut set = FLAGS.iter().filter(|(bit, _)| offset & bit != 0);
    match set.next() {
        None => line.text("none"),
        Some((bit, name)) => line.text(if *bit == 0x8000 { "rsvd" } else { name }),
    }
    set.for_each(|(_, name)| put!(line, ", {name}"));
    put!(
        line,
        "], proto {} ({protocol}), length {}",
        names::ip_protocol(protocol),
        be16(data, 2)?
    );
    let mut is_cut = false;
    if header > HEADER {
        line.text(", options (");
        let bytes = data.get(HEADER..header).unwrap_or(data.get(HEADER..)?);
        is_cut = options::ip(line, bytes, header - HEADER).is_none();
        line.text(if is_cut { " [truncated-option])" } else { ")" });
    }
    if let Some(bytes) = data.get(..header) {
        let sum = upper::checksum(&[bytes]);
        if sum != 0 {
            let found = be16(data, 10)?;
            put!(
                line,
                ", bad cksum {found:x} (->{:x})!",
                upper::should_be(found, sum)
            );
        }
    }
    line.text(")\n    ");
    if is_cut {
        ends.write(line);
        return None;
    }
    Some(())
}
