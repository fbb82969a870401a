//! UDP (RFC 768) and UDP-Lite (RFC 3828).

use super::text::{Line, be16, put};
use super::upper::{Ends, ports};

const HEADER: usize = 8;

/// Prints `UDP, length 118`: the length of the payload, according to the header.
pub(super) fn datagram(line: &mut Line<'_>, ends: &Ends, data: &[u8], wire: usize) {
    let Some((src, dst)) = ports(data) else {
        ends.write(line);
        return line.cut("udp");
    };
    ends.write_with_ports(line, src, dst);
    if wire < HEADER {
        return put!(line, "truncated-udp {wire}");
    }
    let Some(length) = be16(data, 4) else {
        return line.cut("udp");
    };
    let length = usize::from(length);
    // RFC 2675: zero stands for a length beyond sixteen bits, which only IPv6 has.
    let length = if length == 0 && ends.is_v6() {
        wire
    } else {
        length
    };
    if length < HEADER {
        return put!(line, "truncated-udplength {length}");
    }
    if length > wire && ends.fragment.is_none() {
        put!(
            line,
            "UDP, bad length {} > {}",
            length - HEADER,
            wire - HEADER
        );
    } else {
        put!(line, "UDP, length {}", length - HEADER);
    }
    if data.len() < HEADER {
        line.cut("udp");
    }
}

/// Prints `UDP-Lite, length 118`. The length field of UDP holds the checksum coverage in UDP-Lite.
pub(super) fn lite(line: &mut Line<'_>, ends: &Ends, data: &[u8], wire: usize) {
    let Some((src, dst)) = ports(data) else {
        ends.write(line);
        return line.cut("udplite");
    };
    ends.write_with_ports(line, src, dst);
    put!(line, "UDP-Lite, length {}", wire.saturating_sub(HEADER));
}
