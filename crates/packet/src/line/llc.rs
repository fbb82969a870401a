//! 802.2 LLC and SNAP, and the protocols above them, by name.

use super::ether;
use super::text::{Line, Printed, after, array, be16, put};

const UI: u8 = 3;

/// Prints the LLC frame after an 802.3 length or an 802.11 data header, whose ends are `(source, destination)`.
pub(super) fn packet(line: &mut Line<'_>, data: &[u8], wire: usize, ends: (&[u8], &[u8])) {
    let Some([dsap, ssap, control]) = array::<3>(data, 0) else {
        return line.cut("llc");
    };
    let (rest, rest_wire) = after(data, wire, 3);
    match (dsap, ssap, control) {
        (0xaa, 0xaa, UI) => snap(line, rest, rest_wire, ends),
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
fn snap(line: &mut Line<'_>, data: &[u8], wire: usize, (src, dst): (&[u8], &[u8])) {
    let (Some(oui), Some(protocol)) = (array::<3>(data, 0), be16(data, 3)) else {
        return line.cut("snap");
    };
    let (rest, rest_wire) = after(data, wire, 5);
    let is_known = match (oui, protocol) {
        ([0, 0, 0], _) => ether::payload(line, protocol, rest, rest_wire),
        ([0, 0, 0x0c], 0x010b) => {
            stp(line, rest, rest_wire);
            true
        }
        ([0, 0, 0x0c], 0x2000) => named(line, "CDP", rest_wire),
        ([0, 0, 0x0c], 0x2003) => named(line, "VTP", rest_wire),
        ([0, 0, 0x0c], 0x2004) => named(line, "DTP", rest_wire),
        ([0, 0, 0x0c], 0x0111) => named(line, "UDLD", rest_wire),
        _ => false,
    };
    if is_known {
        return;
    }
    if !line.link_header {
        ether::ends(line, src, dst);
    }
    let [a, b, c] = oui;
    put!(
        line,
        "SNAP, oui 0x{a:02x}{b:02x}{c:02x}, pid 0x{protocol:04x}, length {rest_wire}: "
    );
    if !line.dumped {
        line.dump(rest);
    }
}

fn named(line: &mut Line<'_>, name: &str, wire: usize) -> bool {
    put!(line, "{name}, length {wire}");
    true
}

/// Spanning tree (802.1D, 802.1w, 802.1s).
fn stp(line: &mut Line<'_>, data: &[u8], wire: usize) {
    let printed = bridge(line, data, wire);
    line.unless_cut(printed, "stp");
}

fn bridge(line: &mut Line<'_>, data: &[u8], wire: usize) -> Printed {
    const RAPID: u8 = 2;
    const MULTIPLE: u8 = 3;
    if wire < 4 {
        return None;
    }
    let [_, _, version, kind] = array::<4>(data, 0)?;
    match version {
        0 => line.text("STP 802.1d"),
        RAPID => line.text("STP 802.1w"),
        MULTIPLE => line.text("STP 802.1s"),
        4 => line.text("STP 802.1aq"),
        other => {
            put!(line, "STP Unknown STP protocol (0x{other:02x})");
            return Some(());
        }
    }
    match kind {
        0 => line.text(", Config"),
        2 => line.text(", Rapid STP"),
        0x80 => {
            line.text(", Topology Change");
            return Some(());
        }
        other => {
            put!(line, ", Unknown BPDU Type (0x{other:02x})");
            return Some(());
        }
    }
    let flags = *data.get(4)?;
    if version == MULTIPLE && kind == 2 && wire >= 102 {
        line.text(", CIST Flags [");
        bridge_flags(line, flags);
        line.text("]");
        line.length(wire);
        return Some(());
    }
    let (priority, mac, port) = (be16(data, 17)?, array::<6>(data, 19)?, be16(data, 25)?);
    line.text(", Flags [");
    bridge_flags(line, flags);
    put!(line, "], bridge-id {priority:04x}.");
    line.mac(&mac);
    put!(line, ".{port:04x}");
    line.length(wire);
    Some(())
}

fn bridge_flags(line: &mut Line<'_>, flags: u8) {
    const FLAGS: [(u8, &str); 6] = [
        (0x01, "Topology change"),
        (0x02, "Proposal"),
        (0x10, "Learn"),
        (0x20, "Forward"),
        (0x40, "Agreement"),
        (0x80, "Topology change ACK"),
    ];
    let mut separator = "";
    for (bit, name) in FLAGS {
        if flags & bit != 0 {
            put!(line, "{separator}{name}");
            separator = ", ";
        }
    }
    line.text(if separator.is_empty() { "none" } else { "" });
}
