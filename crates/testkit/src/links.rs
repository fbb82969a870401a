//! An IP packet after the header of each link type, made by hand.

use crate::Random;
use crate::savefile::Pcapng;

/// Frames that hold this IP packet, each with the number of its link type: after Ethernet with
/// tags, labels, PPPoE and SNAP, and after the headers of other link types. **Source**: the
/// LINKTYPE registry of tcpdump.org, and the documents that it names.
pub fn on_all_links(ip: &[u8]) -> Vec<(u16, Vec<u8>)> {
    let is_v6 = ip[0] >> 4 == 6;
    let kind: &[u8] = if is_v6 { &[0x86, 0xdd] } else { &[8, 0] };
    let ppp: &[u8] = if is_v6 { &[0, 0x57] } else { &[0, 0x21] };
    let family = |v6: u8| if is_v6 { v6 } else { 2 };
    let snap = [&[0xaa, 0xaa, 3, 0, 0, 0], kind].concat();
    let frame = |parts: &[&[u8]]| [&parts.concat(), ip].concat();
    let ethernet =
        |parts: &[&[u8]]| frame(&[&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2], &parts.concat()]);
    let length = ((ip.len() + snap.len()) as u16).to_be_bytes();
    let session = [
        &[0x11, 0, 0, 1][..],
        &((ip.len() + 2) as u16).to_be_bytes(),
        ppp,
    ]
    .concat();
    let wlan = [&[8, 0][..], &[0; 22], &snap].concat();
    let attribute = [(ip.len() + 4) as u8, ((ip.len() + 4) >> 8) as u8, 9, 0];
    vec![
        (0, frame(&[&[family(30), 0, 0, 0]])),
        (1, ethernet(&[kind])),
        (1, ethernet(&[&[0x81, 0, 0x60, 7], kind])),
        (1, ethernet(&[&[0x88, 0xa8, 0, 9, 0x81, 0, 0, 7], kind])),
        (1, ethernet(&[&[0x88, 0x47, 0, 1, 0, 64, 0, 2, 1, 64]])),
        (1, ethernet(&[&[0x88, 0x64], &session])),
        (1, ethernet(&[&length, &snap])),
        (9, frame(&[&[0xff, 3], ppp])),
        (10, frame(&[&[0x50], &[1; 12], &snap])),
        (50, frame(&[&[0xff, 3], ppp])),
        (51, frame(&[&session])),
        (101, frame(&[])),
        (104, frame(&[&[0x0f, 0], kind])),
        (105, frame(&[&wlan])),
        (
            107,
            frame(&[&[0x18, 0x41, 3, if is_v6 { 0x8e } else { 0xcc }]]),
        ),
        (108, frame(&[&[0, 0, 0, family(24)]])),
        (113, frame(&[&[0, 0, 0, 1, 0, 6], &[0; 8], kind])),
        (
            113,
            frame(&[&[0, 0, 0, 1, 0, 6], &[0; 8], &[0x81, 0, 0, 5], kind]),
        ),
        (127, frame(&[&[0, 0, 8, 0, 0, 0, 0, 0], &wlan])),
        (192, frame(&[&[0, 0, 8, 0, 105, 0, 0, 0], &wlan])),
        (204, frame(&[&[0, 0xff, 3], ppp])),
        (219, frame(&[&[0, 1, 1, 64]])),
        (226, frame(&[&[1, family(26)], &[0; 22]])),
        (if is_v6 { 229 } else { 228 }, frame(&[])),
        (239, frame(&[&[family(10), 0, 0, 0], &attribute])),
        (242, frame(&[&[0; 40], kind, &[0, 0]])),
        (276, frame(&[kind, &[0; 7], &[1, 0, 6], &[0; 8]])),
    ]
}

/// An IPv4 packet of `proto` from 10.0.0.1 to 10.0.0.2, after `options`: whole words.
pub fn ip4(proto: u8, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = 20 + options.len();
    let total = ((header + payload.len()) as u16).to_be_bytes();
    let fixed = [
        0x40 | (header / 4) as u8,
        0,
        total[0],
        total[1],
        0,
        7,
        0,
        0,
        64,
        proto,
        0,
        0,
        10,
        0,
        0,
        1,
        10,
        0,
        0,
        2,
    ];
    [&fixed, options, payload].concat()
}

/// An IPv6 packet from 2001:db8::1 to 2001:db8::2, whose first header has the number `next`.
pub fn ip6(next: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u16).to_be_bytes();
    let host = |last: u8| [0x20, 1, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last];
    [
        &[0x60, 0, 0, 0, length[0], length[1], next, 64][..],
        &host(1),
        &host(2),
        payload,
    ]
    .concat()
}

/// A datagram of UDP.
pub fn udp(source: u16, destination: u16, payload: &[u8]) -> Vec<u8> {
    let length = ((payload.len() + 8) as u16).to_be_bytes();
    [
        &source.to_be_bytes()[..],
        &destination.to_be_bytes(),
        &length,
        &[0, 0],
        payload,
    ]
    .concat()
}

/// A segment of TCP with `options`: whole words.
pub fn tcp(source: u16, destination: u16, options: &[u8], payload: &[u8]) -> Vec<u8> {
    let words = (5 + options.len() / 4) as u8;
    let rest = [
        0,
        0,
        0,
        1,
        0,
        0,
        0,
        2,
        words << 4,
        0x18,
        0x20,
        0,
        0,
        0,
        0,
        0,
    ];
    [
        &source.to_be_bytes()[..],
        &destination.to_be_bytes(),
        &rest,
        options,
        payload,
    ]
    .concat()
}

/// IP packets whose headers are found in different ways: with options, extension headers, fragments and authentication; of protocols with
/// ports and without.
pub fn packets() -> Vec<Vec<u8>> {
    // A question of DNS.
    let data = b"\0\x07\x01\0\0\x01\0\0\0\0\0\0\x03www\x07example\0\0\x01\0\x01";
    let datagram = udp(4000, 53, data);
    let segment = tcp(4000, 443, &[1, 1, 1, 1], data);
    let behind = |next: u8, header: &[u8], rest: &[u8]| [&[next], header, rest].concat();
    let options = |next: u8, rest: &[u8]| behind(next, &[0, 1, 4, 0, 0, 0, 0], rest);
    let routing = |next: u8, rest: &[u8]| {
        behind(
            next,
            &[
                2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
            ],
            rest,
        )
    };
    let fragment = |next: u8, offset: u8, rest: &[u8]| {
        behind(next, &[0, 0, offset << 3 | 1, 0, 0, 0, 9], rest)
    };
    let authentication = |next: u8, rest: &[u8]| {
        behind(
            next,
            &[
                4, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2,
            ],
            rest,
        )
    };
    let mut later = ip4(17, &[], data);
    later[7] = 185;
    let mut first = ip4(17, &[], &datagram);
    first[6] = 0x20;
    let sctp = [&[0x0f, 0xa0, 0, 53, 0, 0, 0, 0, 0, 0, 0, 0][..], data].concat();
    vec![
        ip4(17, &[], &datagram),
        ip4(6, &[], &segment),
        ip4(17, &[7, 4, 4, 0, 1, 1, 1, 0], &datagram),
        first,
        later,
        ip4(6, &[], &tcp(4000, 443, &[], &[])),
        ip4(17, &[], &udp(4000, 53, &[])),
        ip4(1, &[], &[8, 0, 0, 0, 0, 1, 0, 1, 9, 9]),
        ip4(47, &[], &[0; 12]),
        ip4(51, &[], &authentication(17, &datagram)),
        ip4(132, &[], &sctp),
        ip4(136, &[], &datagram),
        ip6(17, &datagram),
        ip6(6, &segment),
        ip6(58, &[128, 0, 0, 0, 0, 1, 0, 1]),
        ip6(59, &[1, 2, 3, 4]),
        ip6(0, &options(17, &datagram)),
        ip6(0, &options(43, &routing(60, &options(6, &segment)))),
        ip6(44, &fragment(17, 0, &datagram)),
        ip6(44, &fragment(17, 9, data)),
        ip6(51, &authentication(17, &datagram)),
        ip6(60, &options(50, &[9; 20])),
        ip6(132, &sctp),
    ]
}

/// Packets whose transport is short, and DCCP with a header of 16 bytes and of 8, which is too short.
fn short_packets() -> Vec<Vec<u8>> {
    let dccp = |words: u8| [&[0x0f, 0xa0, 0, 53, words][..], &[0; 11], b"data"].concat();
    let mut packets = vec![ip4(33, &[], &dccp(4)), ip6(33, &dccp(2))];
    for bytes in 0..6 {
        packets.extend([ip4(17, &[], &[9; 6][..bytes]), ip6(6, &[9; 6][..bytes])]);
    }
    packets
}

/// Frames of Ethernet with IP after tags, labels, PPPoE and SNAP, and without IP, after no tag to
/// more tags than are read.
fn ethernet() -> Vec<Vec<u8>> {
    let (ieee, provider, old) = ([0x81, 0, 0x60, 7], [0x88, 0xa8, 0, 9], [0x91, 0, 0, 5]);
    let many = [ieee; 40];
    let tags: [&[[u8; 4]]; 5] = [&[], &[old], &[ieee, old], &[provider, ieee, ieee], &many];
    let arp = [&[0, 1, 8, 0, 6, 4, 0, 1][..], &[7; 20]].concat();
    let others: [(u16, &[u8]); 6] = [
        (0x0806, &arp),
        // LLDP, slow protocols, spanning tree by its length, and the largest length and the least type.
        (0x88cc, &[2, 7, 4, 2, 0, 0, 0, 0, 1, 4, 7, 3]),
        (0x8809, &[1, 1, 1, 20, 0x80, 0]),
        (38, &[0x42, 0x42, 3, 0, 0, 0, 0, 0, 0x80, 0]),
        (0x05ff, &[0xaa, 0xaa, 3, 0, 0, 0, 8, 0, 0x45, 0]),
        (0x0600, &[0x45, 0, 0, 20]),
    ];
    let packets = [packets(), short_packets()].concat();
    let on_ethernet = packets
        .iter()
        .flat_map(|ip| on_all_links(ip))
        .filter(|(link, _)| *link == 1);
    let mut frames: Vec<Vec<u8>> = on_ethernet.map(|(_, frame)| frame).collect();
    let bodies = packets
        .iter()
        .map(|ip| (if ip[0] >> 4 == 6 { 0x86dd } else { 0x0800 }, &ip[..]))
        .chain(others);
    for (kind, body) in bodies {
        let addresses = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        let tagged = tags.map(|tags| {
            [
                &addresses,
                tags.as_flattened(),
                &u16::to_be_bytes(kind),
                body,
            ]
            .concat()
        });
        frames.extend(tagged);
    }
    frames
}

/// A pcapng file of [`packets`] after the headers of all link types, whole, padded to 60 bytes, and
/// `damaged` times with bytes that were changed or cut.
pub fn headers(damaged: usize) -> Vec<u8> {
    let frames: Vec<(u16, Vec<u8>)> = packets().iter().flat_map(|ip| on_all_links(ip)).collect();
    let mut links: Vec<u16> = frames.iter().map(|frame| frame.0).collect();
    links.sort_unstable();
    links.dedup();
    let mut file = Pcapng::new(false);
    links.iter().for_each(|link| file.interface(*link, 0, 6));
    let mut random = Random(11);
    let mut put = |link: &u16, frame: &[u8]| {
        let id = links.binary_search(link).expect("all are there");
        file.enhanced(id as u32, frame.len() as u32, frame);
    };
    for (link, frame) in &frames {
        put(link, frame);
        let mut padded = frame.clone();
        padded.resize(frame.len().max(60) + 4, 0);
        put(link, &padded);
    }
    for _ in 0..damaged {
        let (link, frame) = &frames[random.below(frames.len())];
        let mut frame = frame.clone();
        damage(&mut frame, &mut random);
        if random.below(3) == 0 {
            frame.truncate(random.below(frame.len()));
        }
        put(link, &frame);
    }
    file.bytes
}

/// A pcapng file of frames of Ethernet with IP in many ways, and without: each padded, cut at each length, and of all of these copies with
/// `damaged` times bytes that were changed. Java finds headers of most of them without the library.
pub fn ethernet_headers(damaged: usize) -> Vec<u8> {
    let mut file = Pcapng::new(false);
    file.interface(1, 0, 6);
    let mut random = Random(12);
    let mut put = |frame: &[u8]| {
        file.enhanced(0, frame.len() as u32, frame);
        for _ in 0..damaged {
            let mut frame = frame.to_vec();
            damage(&mut frame, &mut random);
            file.enhanced(0, frame.len() as u32, &frame);
        }
    };
    for frame in ethernet() {
        let mut padded = frame.clone();
        padded.resize(frame.len().max(60) + 4, 0x45);
        put(&padded);
        (0..=frame.len()).for_each(|length| put(&frame[..length]));
    }
    file.bytes
}

/// Changes up to three bytes of headers.
fn damage(frame: &mut [u8], random: &mut Random) {
    const TELLING: [u8; 16] = [
        0, 4, 6, 8, 17, 43, 44, 50, 51, 58, 59, 60, 0x45, 0x60, 0x81, 0xff,
    ];
    let reached = frame.len().min(90);
    for _ in 0..random.below(4).min(reached) {
        let at = random.below(reached);
        frame[at] = match random.below(3) {
            0 => random.next() as u8,
            1 => frame[at] ^ 1 << random.below(8),
            _ => TELLING[random.below(TELLING.len())],
        };
    }
}
