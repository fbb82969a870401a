//! 802.2 LLC and SNAP, and the protocols above them, by name.

use super::ether;
use super::text::{Line, after, array, be16, put};

const UI: u8 = 3;

/// Prints the LLC frame after an 802.3 length or an 802.11 data header.
pub(super) fn packet(line: &mut Line<'_>, data: &[u8], wire: usize) {
    let Some([dsap, ssap, control]) = array::<3>(data, 0) else {
        return line.cut("llc");
    };
    let (rest, rest_wire) = after(data, wire, 3);
    match (dsap, ssap, control) {
        (0xaa, 0xaa, UI) => snap(line, rest, rest_wire),
        (0x42, 0x42, UI) => stp(line, rest, rest_wire),
        (0xff, 0xff, _) => put!(line, "IPX, length {wire}"),
        (0xe0, 0xe0, _) => put!(line, "IPX, length {rest_wire}"),
        (0xfe, 0xfe, UI) => put!(line, "OSI, length {rest_wire}"),
        (0xf0, 0xf0, _) => put!(line, "NetBEUI, length {rest_wire}"),
        _ => put!(
            line,
            "LLC, dsap 0x{dsap:02x}, ssap 0x{ssap:02x}, ctrl 0x{control:02x}, length {wire}"
        ),
    }
}

/// Prints a SNAP header: an organisation, and a protocol number that it assigns; organisation 0 uses EtherTypes.
fn snap(line: &mut Line<'_>, data: &[u8], wire: usize) {
    let (Some(oui), Some(protocol)) = (array::<3>(data, 0), be16(data, 3)) else {
        return line.cut("snap");
    };
    let (rest, rest_wire) = after(data, wire, 5);
    match (oui, protocol) {
        ([0, 0, 0], 1501..) => ether::payload(line, protocol, rest, rest_wire),
        ([0, 0, 0x0c], 0x010b) => stp(line, rest, rest_wire),
        ([0, 0, 0x0c], 0x2000) => put!(line, "CDP, length {rest_wire}"),
        ([0, 0, 0x0c], 0x2003) => put!(line, "VTP, length {rest_wire}"),
        ([0, 0, 0x0c], 0x2004) => put!(line, "DTP, length {rest_wire}"),
        ([0, 0, 0x0c], 0x0111) => put!(line, "UDLD, length {rest_wire}"),
        ([a, b, c], _) => {
            put!(
                line,
                "SNAP, oui 0x{a:02x}{b:02x}{c:02x}, pid 0x{protocol:04x}, length {rest_wire}"
            );
        }
    }
}

/// Spanning tree (802.1D, 802.1w, 802.1s).
fn stp(line: &mut Line<'_>, data: &[u8], wire: usize) {
    let Some([_, _, version, kind]) = array::<4>(data, 0) else {
        return line.cut("stp");
    };
    line.text(match version {
        0 => "STP 802.1d, ",
        2 => "STP 802.1w, ",
        3 => "STP 802.1s, ",
        _ => "STP, ",
    });
    match kind {
        0x00 => line.text("Config"),
        0x02 => line.text("Rapid STP"),
        0x80 => line.text("Topology Change"),
        other => put!(line, "type 0x{other:02x}"),
    }
    if let (0 | 2, Some(priority), Some(mac)) = (kind, be16(data, 17), array::<6>(data, 19)) {
        put!(line, ", bridge-id {priority:04x}.");
        line.mac(&mac);
    }
    line.length(wire);
}
