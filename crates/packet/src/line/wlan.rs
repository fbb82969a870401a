//! 802.11, with or without a radiotap header: the kind of frame and its addresses.

use super::llc;
use super::text::{Line, after, array, put};

const RADIOTAP_TSFT: u32 = 1;
const RADIOTAP_FLAGS: u32 = 2;
const RADIOTAP_EXTENDED: u32 = 0x8000_0000;
/// Flags of the radiotap header: the FCS is also captured; the 802.11 header is padded to four
/// bytes.
const FCS: u8 = 0x10;
const PADDED: u8 = 0x20;

const MANAGEMENT: [&str; 16] = [
    "Assoc Request",
    "Assoc Response",
    "ReAssoc Request",
    "ReAssoc Response",
    "Probe Request",
    "Probe Response",
    "Timing Advertisement",
    "Management",
    "Beacon",
    "ATIM",
    "Disassociation",
    "Authentication",
    "DeAuthentication",
    "Action",
    "Action No Ack",
    "Management",
];

/// A frame after a radiotap header; all of radiotap is little-endian.
pub(super) fn radiotap(line: &mut Line<'_>, data: &[u8], wire: usize) -> usize {
    let (Some(len), Some(present)) = (
        array(data, 2).map(u16::from_le_bytes),
        array(data, 4).map(u32::from_le_bytes),
    ) else {
        line.cut("802.11_radio");
        return 0;
    };
    let len = usize::from(len);
    if len < 8 || len > data.len() {
        line.cut("802.11_radio");
        return 0;
    }
    let flags = flags(&data[..len], present);
    let (rest, rest_wire) = after(data, wire, len);
    let trailer = if flags & FCS == 0 { 0 } else { 4 };
    len + mac(
        line,
        rest,
        rest_wire.saturating_sub(trailer),
        flags & PADDED != 0,
    )
}

/// The flags byte. Only read at a known place: after a single word of presence bits.
fn flags(header: &[u8], present: u32) -> u8 {
    if present & RADIOTAP_EXTENDED != 0 || present & RADIOTAP_FLAGS == 0 {
        return 0;
    }
    let at = if present & RADIOTAP_TSFT == 0 { 8 } else { 16 };
    header.get(at).copied().unwrap_or(0)
}

/// A frame without a radio header.
pub(super) fn frame(line: &mut Line<'_>, data: &[u8], wire: usize) -> usize {
    mac(line, data, wire, false)
}

/// Prints one MAC frame. Returns the length of its header.
fn mac(line: &mut Line<'_>, data: &[u8], wire: usize, padded: bool) -> usize {
    let Some([control, flags]) = array::<2>(data, 0) else {
        line.cut("802.11");
        return 0;
    };
    line.text("802.11 ");
    let subtype = control >> 4;
    match control >> 2 & 3 {
        0 => management(line, subtype, data, wire),
        1 => self::control(line, subtype, data, wire),
        2 => data_frame(line, subtype, flags, data, wire, padded),
        _ => {
            put!(line, "extension {subtype}, length {wire}");
            2
        }
    }
}

fn management(line: &mut Line<'_>, subtype: u8, data: &[u8], wire: usize) -> usize {
    line.text(MANAGEMENT[usize::from(subtype & 15)]);
    let (Some(dst), Some(src), Some(bssid)) = (
        array::<6>(data, 4),
        array::<6>(data, 10),
        array::<6>(data, 16),
    ) else {
        line.cut("802.11");
        return 0;
    };
    line.text(", BSSID ");
    line.mac(&bssid);
    line.text(", ");
    addresses(line, &src, &dst);
    line.length(wire);
    24
}

fn control(line: &mut Line<'_>, subtype: u8, data: &[u8], wire: usize) -> usize {
    let name = match subtype {
        7 => "Control Wrapper",
        8 => "Block-Ack Request",
        9 => "Block-Ack",
        10 => "Power Save-Poll",
        11 => "RTS",
        12 => "CTS",
        13 => "ACK",
        14 => "CF-End",
        15 => "CF-End+CF-Ack",
        _ => "Control",
    };
    line.text(name);
    let Some(receiver) = array::<6>(data, 4) else {
        line.cut("802.11");
        return 0;
    };
    line.text(", RA ");
    line.mac(&receiver);
    line.length(wire);
    10
}

/// Prints a data frame. The directions decide which address is the source (802.11, table 9-30).
fn data_frame(
    line: &mut Line<'_>,
    subtype: u8,
    flags: u8,
    data: &[u8],
    wire: usize,
    padded: bool,
) -> usize {
    line.text(if subtype & 8 == 0 {
        "Data, "
    } else {
        "QoS Data, "
    });
    let (to_ds, from_ds) = (flags & 1 != 0, flags & 2 != 0);
    let place = |at: usize| array::<6>(data, at);
    let (dst, src) = match (to_ds, from_ds) {
        (false, false) => (place(4), place(10)),
        (false, true) => (place(4), place(16)),
        (true, false) => (place(16), place(10)),
        (true, true) => (place(16), place(24)),
    };
    let mut header = 24;
    header += if to_ds && from_ds { 6 } else { 0 };
    header += if subtype & 8 == 0 { 0 } else { 2 };
    header += if flags & 0x80 == 0 || subtype & 8 == 0 {
        0
    } else {
        4
    };
    if padded {
        header = usize::next_multiple_of(header, 4);
    }
    let (Some(dst), Some(src)) = (dst, src) else {
        line.cut("802.11");
        return 0;
    };
    addresses(line, &src, &dst);
    let (rest, rest_wire) = after(data, wire, header);
    if flags & 0x40 != 0 {
        line.text(", protected");
        line.length(rest_wire);
    } else if subtype & 4 != 0 {
        line.text(", no data");
    } else {
        line.text(", ");
        llc::packet(line, rest, rest_wire, (&src, &dst));
    }
    header
}

fn addresses(line: &mut Line<'_>, src: &[u8; 6], dst: &[u8; 6]) {
    line.mac(src);
    line.text(" > ");
    line.mac(dst);
}
