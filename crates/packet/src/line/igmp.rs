//! IGMP (RFC 1112, RFC 2236, RFC 3376).

use super::text::{Line, array, be16, put};

/// Prints `igmp v3 report, 1 group record(s), length 24`.
pub(super) fn message(line: &mut Line<'_>, data: &[u8], wire: usize) {
    line.text("igmp ");
    if kind(line, data, wire).is_none() {
        return line.cut("igmp");
    }
    line.length(wire);
}

fn kind(line: &mut Line<'_>, data: &[u8], wire: usize) -> Option<()> {
    let [kind, response] = array::<2>(data, 0)?;
    match kind {
        0x11 => query(line, response, data, wire)?,
        0x12 => about(line, "v1 report ", array(data, 4)?),
        0x16 => about(line, "v2 report ", array(data, 4)?),
        0x17 => about(line, "leave ", array(data, 4)?),
        0x22 => put!(line, "v3 report, {} group record(s)", be16(data, 6)?),
        0x13 => line.text("dvmrp"),
        0x14 => line.text("pimv1"),
        other => put!(line, "type 0x{other:02x}"),
    }
    Some(())
}

fn about(line: &mut Line<'_>, words: &str, group: [u8; 4]) {
    line.text(words);
    line.ipv4(group);
}

/// Prints a query. Its version follows from the length and the response time (RFC 3376, 7.1).
fn query(line: &mut Line<'_>, response: u8, data: &[u8], wire: usize) -> Option<()> {
    let group: [u8; 4] = array(data, 4)?;
    let version = match (wire, response) {
        (12.., _) => 3,
        (_, 0) => 1,
        _ => 2,
    };
    put!(line, "query v{version}");
    if group != [0; 4] {
        about(line, " [gaddr ", group);
        line.text("]");
    }
    Some(())
}
