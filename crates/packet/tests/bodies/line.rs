//! Body, with its oracle, that the fuzz target and the tests share.
#![allow(dead_code, reason = "each test and fuzz target uses its part")]

use weir_packet::line::{Conversations, Detail, Hex, Style, write_line};
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

/// Prints `data[3..]` with a link type, style and wire length taken from the first three bytes. The text must be of printable
/// characters.
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
        0 | 7 => Hex::None,
        1 => Hex::Hex,
        2 => Hex::HexAscii,
        3 => Hex::FrameHex,
        4 => Hex::FrameHexAscii,
        5 => Hex::Ascii,
        _ => Hex::FrameAscii,
    };
    let detail = match flags >> 4 & 3 {
        0 | 1 => Detail::Normal,
        2 => Detail::Verbose,
        _ => Detail::Quiet,
    };
    let style = Style {
        link_header: flags & 1 == 1,
        detail,
        absolute: flags & 0x40 != 0,
        hex,
    };
    let frame = Frame {
        data,
        wire_len: data.len() as u32 + missing,
        interface: 0,
    };
    let print = |style: &Style, conversations: &mut Conversations| {
        let mut out = String::new();
        write_line(&mut out, link, &frame, style, conversations);
        out
    };
    let mut conversations = Conversations::new();
    let out = print(&style, &mut conversations);
    assert!(
        out.bytes()
            .all(|byte| matches!(byte, b' '..=b'~' | b'\n' | b'\t')),
        "{link:?} {data:02x?}: {out:?}"
    );
    assert!(
        out.len() <= 8192 + 8 * data.len(),
        "{link:?} {data:02x?}: {} bytes of text",
        out.len()
    );
    // The first packet of a conversation has its numbers as they are, but for selective acknowledgments.
    if !out.contains("sack") {
        let absolute = Style {
            absolute: true,
            ..style
        };
        assert_eq!(print(&absolute, &mut Conversations::new()), out);
    }
    // Whatever came before, only the numbers of TCP differ.
    let again = print(&style, &mut conversations);
    let words = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
    assert_eq!(words(&again), words(&out));
    let dumped = out.lines().filter(|line| line.starts_with("\t0x")).count();
    match hex {
        Hex::None | Hex::Ascii | Hex::FrameAscii => {}
        Hex::Hex | Hex::HexAscii => assert!(dumped <= 2 * data.len().div_ceil(16)),
        Hex::FrameHex | Hex::FrameHexAscii => assert!(dumped >= data.len().div_ceil(16)),
    }
}
