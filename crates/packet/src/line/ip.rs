//! IPv4 (RFC 791).

use super::text::{Line, array, be16, put};
use super::upper::{self, Address, Ends, Fragment, Notes};

const HEADER: usize = 20;

/// Prints a packet from its addresses on.
pub(super) fn packet(line: &mut Line<'_>, data: &[u8], wire: usize) {
    let Some(&first) = data.first() else {
        return line.cut("ip");
    };
    if first >> 4 != 4 {
        return put!(line, "IP{} (invalid), length {wire}", first >> 4);
    }
    if wire < HEADER {
        return put!(line, "truncated-ip {wire}");
    }
    let header = usize::from(first & 15) * 4;
    if header < HEADER {
        return put!(line, "bad-hlen {header}");
    }
    let (Some(total), Some(id), Some(offset)) = (be16(data, 2), be16(data, 4), be16(data, 6))
    else {
        return line.cut("ip");
    };
    let (Some(src), Some(dst)) = (array(data, 12), array(data, 16)) else {
        return line.cut("ip");
    };
    // If the card cuts large segments to size (TSO), a capture on the sending host sees a total length of 0.
    let total = if total == 0 { wire } else { usize::from(total) };
    if total > wire {
        put!(line, "truncated-ip - {} bytes missing! ", total - wire);
    }
    if total < header {
        return put!(line, "bad-len {total}");
    }
    // The following lengths are counted from the header's claim, as tcpdump does; the mark in front shows that the claim is
    // wrong.
    let length = total - header;
    let offset_bytes = u32::from(offset & 0x1fff) * 8;
    let more = offset & 0x2000 != 0;
    let fragment = Fragment {
        id: u32::from(id),
        offset: offset_bytes,
        length,
        more,
    };
    let ends = Ends {
        src: Address::V4(src),
        dst: Address::V4(dst),
        notes: Notes::default(),
        fragment: (more || offset_bytes > 0).then_some(fragment),
    };
    if data.len() < header {
        ends.write(line);
        put!(line, "ip-proto-{}", data[9]);
        upper::fragment(line, &ends);
        put!(
            line,
            " [remaining caplen({}) < header length({header})] ",
            data.len()
        );
        return line.cut("ip");
    }
    let body = &data[header..total.min(data.len()).max(header)];
    upper::packet(line, ends, data[9], body, length);
}
