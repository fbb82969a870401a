//! Body, with its oracle, that the fuzz target and the tests share.
#![allow(dead_code, reason = "each test and fuzz target uses its part")]

use weir_packet::line::{Hex, Style, write_line};
use weir_packet::{Frame, LinkType};

/// Link types with a printer of their own, and one without.
pub const LINKS: [LinkType; 21] = [
    LinkType::ETHERNET,
    LinkType::NULL,
    LinkType::LOOP,
    LinkType::RAW,
    LinkType::RAW_BSD,
    LinkType::IPV4,
    LinkType::IPV6,
    LinkType::LINUX_SLL,
    LinkType::LINUX_SLL2,
    LinkType::PPP,
    LinkType::PPP_SERIAL,
    LinkType::PPP_ETHER,
    LinkType::PPP_PPPD,
    LinkType::PPP_WITH_DIR,
    LinkType::C_HDLC,
    LinkType::FRELAY,
    LinkType::SLIP,
    LinkType::IEEE802_11,
    LinkType::IEEE802_11_RADIO,
    LinkType::MPLS,
    LinkType(147),
];

/// Prints `data[3..]` with a link type, style and wire length taken from the first three bytes. The text must be one
/// line of printable characters, and the number of dump lines must be that of the style.
pub fn line(data: &[u8]) {
    let Some((head, rest)) = data.split_first_chunk::<3>() else {
        return;
    };
    let link = LINKS[usize::from(head[0]) % LINKS.len()];
    let extra = u32::from(head[2]) * u32::from(head[2] & 1);
    frame(link, rest, extra, head[1]);
}

/// Prints a frame as `line` does, with every choice made by the caller; `flags` chooses the style.
pub fn frame(link: LinkType, data: &[u8], missing: u32, flags: u8) {
    let hex = match flags >> 1 & 7 {
        0 | 5.. => Hex::None,
        1 => Hex::Hex,
        2 => Hex::HexAscii,
        3 => Hex::FrameHex,
        4 => Hex::FrameHexAscii,
    };
    let style = Style {
        link_header: flags & 1 == 1,
        hex,
    };
    let frame = Frame {
        data,
        wire_len: data.len() as u32 + missing,
        interface: 0,
    };
    let mut out = String::new();
    write_line(&mut out, link, &frame, &style);
    let mut lines = out.split('\n');
    let first = lines.next().expect("split yields at least one piece");
    assert!(
        first.bytes().all(|b| (b' '..=b'~').contains(&b)),
        "{link:?} {data:02x?}: {first:?}"
    );
    assert!(
        first.len() < 4096,
        "{link:?} {data:02x?}: {} bytes of text",
        first.len()
    );
    assert_eq!(first.ends_with("captured]"), missing > 0);
    let dumped = lines
        .inspect(|line| assert!(line.starts_with("\t0x")))
        .count();
    match hex {
        Hex::None => assert_eq!(dumped, 0),
        Hex::Hex | Hex::HexAscii => assert!(dumped <= data.len().div_ceil(16)),
        Hex::FrameHex | Hex::FrameHexAscii => assert_eq!(dumped, data.len().div_ceil(16)),
    }
}
