//! UDP (RFC 768).

use super::app;
use super::text::{Line, Printed, be16, put};
use super::upper::{Layer, ports};

const PROTOCOL: u8 = 17;
const HEADER: usize = 8;

/// Prints `UDP, length 118`: the length of the payload, according to the header; or the application protocol.
pub(super) fn datagram(line: &mut Line<'_>, layer: &Layer, data: &[u8], wire: usize) -> Printed {
    let Some((src, dst)) = ports(data) else {
        layer.write_without_ports(line, PROTOCOL);
        return None;
    };
    layer.write_with_ports(line, PROTOCOL, src, dst);
    if wire < HEADER {
        put!(line, "truncated-udp {wire}");
        return Some(());
    }
    let claimed = match usize::from(be16(data, 4)?) {
        // RFC 2675: zero stands for a length of more than sixteen bits.
        0 if wire > 0xffff => wire,
        claimed => claimed,
    };
    if claimed < HEADER {
        put!(line, "truncated-udplength {claimed}");
        return Some(());
    }
    let (claimed, length) = (claimed - HEADER, wire - HEADER);
    let payload = data.get(HEADER..)?;
    let there = length.min(claimed);
    if !line.is_quiet()
        && let Some(printed) = app::over_udp(line, [src, dst], payload, there)
    {
        return printed;
    }
    match claimed > there && !layer.is_fragment {
        true => put!(line, "UDP, bad length {claimed} > {there}"),
        false => {
            line.text("UDP");
            line.length(claimed);
        }
    }
    Some(())
}
