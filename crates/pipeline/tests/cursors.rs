//! Files made to mislead a reader that starts in the middle: the result must be that of a serial reader.
//!
//! A cursor inside a file is a guess, because a pcap has no mark to find, and a payload may hold a capture itself. The findings of
//! a guess count only once the chain before it has landed exactly on its start. These files make guesses wrong, and the tests check
//! that some were wrong, so that the right result depends on the proof.

mod reading;

use reading::Random;
use reading::build::{Pcap, Pcapng};
use reading::compare::everywhere;

/// Size of a large file, bytes: more than two mapped windows, and many windows of the other kind.
const LARGE: usize = 40 << 20;

fn fill(random: &mut Random, len: usize) -> Vec<u8> {
    random.bytes(len)
}

/// Returns a whole pcap file of small packets.
fn inner_pcap(random: &mut Random, records: usize) -> Vec<u8> {
    let mut inner = Pcap::new(1, 65_535);
    for _ in 0..records {
        let len = 40 + random.below(80);
        inner.packet(&random.bytes(len));
    }
    inner.bytes
}

fn inner_pcapng(random: &mut Random, records: usize, big: bool) -> Vec<u8> {
    let mut inner = Pcapng::new(big);
    inner.interface(1, 0, 6);
    for _ in 0..records {
        let len = 40 + random.below(80);
        inner.packet(&random.bytes(len));
    }
    inner.bytes
}

#[test]
fn ordinary_packets() {
    let mut random = Random(1);
    let mut pcap = Pcap::new(1, 65_535);
    let mut pcapng = Pcapng::new(false);
    pcapng.interface(1, 0, 9);
    while pcap.bytes.len() < LARGE {
        let len = 60 + random.below(1400);
        let data = fill(&mut random, len);
        pcap.packet(&data);
        pcapng.packet(&data);
    }
    // Guesses are right here, so nearly no packet is read twice.
    let twice = everywhere("pcap of ordinary packets", pcap.bytes);
    assert!(twice.total() < u64::from(pcap.count) / 10, "{twice:?}");
    let twice = everywhere("pcapng of ordinary packets", pcapng.bytes);
    assert!(twice.total() < pcapng.count / 10, "{twice:?}");
}

#[test]
fn captures_inside_a_capture() {
    let mut random = Random(2);
    for big in [false, true] {
        let mut outer = Pcap::with(1, 262_144, big, big);
        while outer.bytes.len() < LARGE {
            // Inner records end with the payload, so that a chain inside continues into the outer chain.
            let records = 300 + random.below(1800);
            let mut inner = inner_pcap(&mut random, records);
            if big {
                inner = swapped(&inner);
            }
            outer.packet(&inner);
        }
        let twice = everywhere("captures inside a capture", outer.bytes);
        assert!(
            twice.mapped.iter().chain(&twice.read).all(|&n| n > 0) && twice.streamed > 0,
            "{twice:?}"
        );
    }
}

/// Returns the same pcap in the other byte order.
fn swapped(pcap: &[u8]) -> Vec<u8> {
    let mut other = pcap[..24].to_vec();
    let mut at = 24;
    while at < pcap.len() {
        let captured = u32::from_le_bytes(pcap[at + 8..at + 12].try_into().unwrap()) as usize;
        for word in pcap[at..at + 16].as_chunks::<4>().0 {
            other.extend(word.iter().rev());
        }
        other.extend(&pcap[at + 16..at + 16 + captured]);
        at += 16 + captured;
    }
    other
}

#[test]
fn payloads_of_fake_headers() {
    for captured in [0u32, 16, 48] {
        let mut outer = Pcap::new(1, 262_144);
        let mut fake = Vec::new();
        while fake.len() < 9000 {
            for word in [1_700_000_000, 7, captured, 60] {
                fake.extend(u32::to_le_bytes(word));
            }
            // The data of a fake record is a fake header again.
            for _ in 0..captured / 16 {
                for word in [1_700_000_000, 7, captured, 60] {
                    fake.extend(u32::to_le_bytes(word));
                }
            }
        }
        let mut random = Random(3);
        while outer.bytes.len() < LARGE {
            // Shifted by 0 to 15 bytes in turn.
            let skip = outer.count as usize % 16;
            let len = 1000 + random.below(7000);
            outer.packet(&[&vec![0xaa; skip], &fake[..len]].concat());
        }
        let twice = everywhere("payloads of fake headers", outer.bytes);
        assert!(
            twice.mapped.iter().chain(&twice.read).all(|&n| n > 0) && twice.streamed > 0,
            "{twice:?}"
        );
    }
}

#[test]
fn payloads_of_nothing_but_zeros() {
    // Headers with small times and lengths among zeros: every offset near a header looks like one.
    let mut outer = Pcap::new(1, 262_144);
    while outer.bytes.len() < LARGE {
        let len = 1 + outer.count as usize % 2500;
        outer.header(
            outer.count / 100_000,
            outer.count % 1_000_000,
            len as u32,
            len as u32,
        );
        outer.bytes.resize(outer.bytes.len() + len, 0);
        outer.count += 1;
    }
    everywhere("payloads of zeros", outer.bytes);

    let mut outer = Pcapng::new(true);
    outer.interface(1, 0, 6);
    while outer.bytes.len() < LARGE {
        outer.packet(&vec![0; 1 + outer.count as usize % 2500]);
    }
    everywhere("payloads of zeros, pcapng", outer.bytes);
}

#[test]
fn pcapng_inside_pcap_and_pcap_inside_pcapng() {
    let mut random = Random(5);
    let mut outer = Pcap::new(1, 262_144);
    let mut other = Pcapng::new(false);
    other.interface(1, 0, 6);
    while outer.bytes.len() < LARGE {
        let records = 100 + random.below(1000);
        let big = random.below(2) == 1;
        outer.packet(&inner_pcapng(&mut random, records, big));
        other.packet(&inner_pcap(&mut random, records));
    }
    everywhere("pcapng inside pcap", outer.bytes);
    everywhere("pcap inside pcapng", other.bytes);
}

#[test]
fn packet_blocks_inside_packet_blocks() {
    for big in [false, true] {
        let mut random = Random(6);
        let mut outer = Pcapng::new(big);
        outer.interface(1, 0, 6);
        while outer.bytes.len() < LARGE {
            let records = 300 + random.below(1000);
            let mut inner = Pcapng::new(big);
            inner.interface(1, 0, 6);
            inner.interface(101, 0, 6);
            let header = inner.bytes.len();
            for _ in 0..records {
                let len = 40 + random.below(80);
                let data = random.bytes(len);
                // Mostly an interface of the section; sometimes one that the section lacks.
                let interface = u32::from(random.below(50) == 0);
                inner.enhanced(interface, len as u32, &data);
            }
            // With the inner section's header in front, without it, and at an odd place.
            let payload = match random.below(3) {
                0 => inner.bytes,
                1 => inner.bytes[header..].to_vec(),
                _ => [&[1, 2, 3], &inner.bytes[header..]].concat(),
            };
            outer.packet(&payload);
        }
        let twice = everywhere("packet blocks inside packet blocks", outer.bytes);
        assert!(
            twice.mapped.iter().chain(&twice.read).all(|&n| n > 0) && twice.streamed > 0,
            "{twice:?}"
        );
    }
}

#[test]
fn sections_of_alternating_byte_order() {
    let mut random = Random(7);
    let mut file = Pcapng::new(false);
    file.interface(1, 0, 6);
    let mut big = false;
    let mut next = 0;
    while file.bytes.len() < LARGE {
        if file.bytes.len() >= next {
            next += (2 << 20) + random.below(5 << 20);
            big = !big;
            file.section(big);
            // Interface 0 changes with the section.
            file.interface(1, 65_535, if big { 9 } else { 6 });
            file.interface(101, 0, 3);
        }
        let (id, len) = (random.below(2) as u32, 300 + random.below(1200));
        let data = fill(&mut random, len);
        file.enhanced(id, len as u32, &data);
    }
    let twice = everywhere("sections of alternating byte order", file.bytes);
    assert!(twice.total() > 0, "{twice:?}");
}

#[test]
fn interfaces_added_midway() {
    let mut random = Random(8);
    let mut file = Pcapng::new(false);
    file.interface(1, 65_535, 6);
    let mut count = 1;
    while file.bytes.len() < LARGE {
        if file.bytes.len() > count * (5 << 20) {
            // Another link type: the expression is compiled anew, and its plan with it.
            file.interface([101, 1, 0, 228][count % 4], 65_535, [6, 9, 3][count % 3]);
            count += 1;
        }
        let (id, len) = (random.below(count) as u32, 300 + random.below(1200));
        let data = fill(&mut random, len);
        match random.below(3) {
            0 => file.obsolete(id as u16, len as u32 + 4, &data),
            1 => file.simple(len as u32, &data),
            _ => file.enhanced(id, len as u32, &data),
        }
    }
    let twice = everywhere("interfaces added midway", file.bytes);
    assert!(twice.total() > 0, "{twice:?}");
}

#[test]
fn a_packet_of_an_interface_that_comes_later() {
    // A cursor behind the interface block needs the interface; a cursor in front does not know it yet.
    let mut random = Random(9);
    let mut file = Pcapng::new(false);
    file.interface(1, 0, 6);
    let bad = LARGE / 2;
    let mut done = false;
    while file.bytes.len() < LARGE {
        let data = fill(&mut random, 1000);
        if file.bytes.len() > bad && !done {
            file.enhanced(1, 1000, &data);
            file.interface(1, 0, 9);
            done = true;
        }
        file.enhanced(u32::from(done), 1000, &data);
    }
    everywhere("a packet of an interface that comes later", file.bytes);
}

#[test]
fn many_tiny_sections() {
    let mut random = Random(10);
    let mut file = Pcapng::default();
    while file.bytes.len() < 5 << 20 {
        file.section(random.below(2) == 1);
        for _ in 0..1 + random.below(3) {
            file.interface([1, 101][random.below(2)], 0, 6);
        }
        for _ in 0..random.below(4) {
            let len = 300 + random.below(900);
            let data = fill(&mut random, len);
            file.packet(&data);
        }
    }
    // A window is not walked to its end at each section.
    let twice = everywhere("many tiny sections", file.bytes);
    assert!(twice.total() < file.count, "{twice:?}");
}

#[test]
fn giant_records() {
    /// USBPCAP: records of up to 128 MiB.
    const LINK: u16 = 249;
    let mut random = Random(11);
    let mut pcap = Pcap::new(LINK.into(), 128 << 20);
    let mut pcapng = Pcapng::new(false);
    pcapng.interface(LINK, 0, 6);
    let mut giants = [
        1 << 20,
        3 << 20,
        17 << 20,
        (1 << 20) + 1,
        35 << 20,
        100 << 10,
    ]
    .into_iter();
    for i in 0.. {
        let len = if i % 2000 == 1999 {
            match giants.next() {
                Some(giant) => giant,
                None => break,
            }
        } else {
            200 + random.below(1500)
        };
        // A giant record holds a capture, so that guesses find records there.
        let data = if len > 1 << 19 {
            let mut inner = inner_pcap(&mut random, len / 96);
            inner.resize(len, 0);
            inner
        } else {
            fill(&mut random, len)
        };
        pcap.packet(&data);
        pcapng.packet(&data);
    }
    let twice = everywhere("giant records", pcap.bytes);
    assert!(twice.total() > 0, "{twice:?}");
    everywhere("giant records, pcapng", pcapng.bytes);
}

#[test]
fn packets_without_bytes() {
    let mut random = Random(12);
    let mut pcap = Pcap::new(1, 65_535);
    let mut pcapng = Pcapng::new(false);
    pcapng.interface(1, 0, 6);
    while pcap.bytes.len() < LARGE {
        let data = match random.below(3) {
            0 => fill(&mut random, 4000),
            _ => Vec::new(),
        };
        let wire_len = if random.below(2) == 0 {
            data.len() as u32
        } else {
            1514
        };
        for _ in 0..random.below(10) {
            pcap.record(wire_len, &data);
            pcapng.enhanced(0, wire_len, &data);
        }
    }
    everywhere("packets without bytes", pcap.bytes);
    everywhere("packets without bytes, pcapng", pcapng.bytes);
}

#[test]
fn blocks_that_hold_no_packets() {
    let mut random = Random(13);
    let mut file = Pcapng::new(false);
    file.interface(1, 0, 6);
    while file.bytes.len() < LARGE {
        match random.below(20) {
            // Name resolution, statistics, custom blocks: small, and one that spans windows.
            0 => file.block([4, 5, 0xbad, 0x4000_0bad][random.below(4)], &[0x55; 40]),
            1 if random.below(400) == 0 => file.block(0xbad, &vec![0x06; 3 << 20]),
            _ => {
                let len = 300 + random.below(1200);
                file.packet(&random.bytes(len));
            }
        }
    }
    everywhere("blocks that hold no packets", file.bytes);
}

#[test]
fn records_that_end_where_windows_end() {
    // Records of 1024 bytes after a first one that makes up for the header, so a record begins at every multiple of 1 KiB. The
    // shift by a few bytes puts each part of a header across the windows' ends.
    for shift in [0i32, 1, -1, 4, 15, 16, -15, -16] {
        let mut pcap = Pcap::new(1, 65_535);
        let mut random = Random(14);
        pcap.packet(&random.bytes((1024 - 24 - 16 + shift) as usize));
        while pcap.bytes.len() < (32 << 20) + shift.max(0) as usize {
            let data = random.bytes(1024 - 16);
            pcap.packet(&data);
        }
        if shift == 0 {
            assert_eq!(
                pcap.bytes.len(),
                32 << 20,
                "exactly two mapped windows, thirty-two others"
            );
        }
        everywhere(
            &format!("records that end where windows end, {shift:+}"),
            pcap.bytes,
        );
    }
    let mut file = Pcapng::new(false);
    file.interface(1, 0, 6);
    let mut random = Random(15);
    let rest = 1024 - file.bytes.len() - 32;
    file.packet(&random.bytes(rest));
    while file.bytes.len() < 32 << 20 {
        let data = random.bytes(1024 - 32);
        file.packet(&data);
    }
    assert_eq!(
        file.bytes.len(),
        32 << 20,
        "exactly two mapped windows, thirty-two others"
    );
    everywhere("blocks that end where windows end", file.bytes);
}

/// Random bytes, combined from all the parts above.
#[test]
fn files_of_anything() {
    let seed = std::env::var("WEIR_SEED")
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(20_231_114u64);
    println!("WEIR_SEED={seed}");
    for case in 0..24 {
        let mut random = Random(seed + case);
        let target = (1 << 20) + random.below(7 << 20);
        let file = if case % 2 == 0 {
            any_pcap(&mut random, target)
        } else {
            any_pcapng(&mut random, target)
        };
        everywhere(&format!("WEIR_SEED={seed}, case {case}"), file);
    }
}

fn any_payload(random: &mut Random) -> Vec<u8> {
    match random.below(8) {
        0 => Vec::new(),
        1 => vec![0; random.below(3000)],
        2 => {
            let records = random.below(200);
            inner_pcap(random, records)
        }
        3 => {
            let (records, big) = (random.below(200), random.below(2) == 1);
            inner_pcapng(random, records, big)
        }
        4 => [0x01, 0x00, 0x00, 0x00].repeat(random.below(500)),
        _ => {
            let len = random.below(1500);
            random.bytes(len)
        }
    }
}

fn any_pcap(random: &mut Random, target: usize) -> Vec<u8> {
    let snaplen = [0, 96, 65_535, 262_144, u32::MAX][random.below(5)];
    let mut pcap = Pcap::with(1, snaplen, random.below(2) == 1, random.below(2) == 1);
    while pcap.bytes.len() < target {
        let data = any_payload(random);
        let wire_len = (data.len() + random.below(3) * 7) as u32;
        pcap.record(wire_len, &data);
    }
    damage(random, pcap.bytes)
}

fn any_pcapng(random: &mut Random, target: usize) -> Vec<u8> {
    let mut file = Pcapng::new(random.below(2) == 1);
    file.interface(1, 0, 6);
    let mut count = 1;
    while file.bytes.len() < target {
        let data = any_payload(random);
        match random.below(400) {
            0 => {
                file.section(random.below(2) == 1);
                file.interface(1, 0, 9);
                count = 1;
            }
            1 => {
                file.interface([1, 101][random.below(2)], 0, 6);
                count += 1;
            }
            2..20 => file.simple(data.len() as u32, &data),
            20..40 => file.obsolete(random.below(count) as u16, data.len() as u32, &data),
            40..60 => file.block(0xbad, &data),
            _ => file.enhanced(random.below(count) as u32, data.len() as u32, &data),
        }
    }
    damage(random, file.bytes)
}

/// Half of the files end early or hold a wrong byte.
fn damage(random: &mut Random, mut file: Vec<u8>) -> Vec<u8> {
    match random.below(4) {
        0 => file.truncate(random.below(file.len())),
        1 => {
            let at = random.below(file.len());
            file[at] ^= 1 << random.below(8);
        }
        _ => {}
    }
    file
}
