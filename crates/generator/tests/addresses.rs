//! Built-in addresses belong to nobody: what is sent by mistake reaches no host of a stranger.

use std::net::IpAddr;
use weir_generator::streams::Profile as Profiles;
use weir_generator::trains::MIXES;
use weir_generator::{
    FRAME_MAX, Generator, LINK_ADDRESSES, MixFrames, Packets, Profile, Sizes, is_of_tests,
};

fn is_inside(text: &str) -> bool {
    match text.parse().unwrap() {
        IpAddr::V4(address) => is_of_tests(&address.octets()),
        IpAddr::V6(address) => is_of_tests(&address.octets()),
    }
}

/// First and last addresses of the networks, as the RFCs name them, and their neighbours.
#[test]
fn networks_of_tests_begin_and_end_where_the_rfcs_say() {
    for (before, first, last, after) in [
        ("9.255.255.255", "10.0.0.0", "10.255.255.255", "11.0.0.0"),
        (
            "100.63.255.255",
            "100.64.0.0",
            "100.127.255.255",
            "100.128.0.0",
        ),
        (
            "198.17.255.255",
            "198.18.0.0",
            "198.19.255.255",
            "198.20.0.0",
        ),
        ("2001:1:ffff::", "2001:2::", "2001:2:0:ffff::", "2001:2:1::"),
        (
            "2001:db7:ffff::",
            "2001:db8::",
            "2001:db8:ffff::",
            "2001:db9::",
        ),
    ] {
        let found = [before, first, last, after].map(is_inside);
        assert_eq!(found, [false, true, true, false], "{first}");
    }
    assert!(!is_of_tests(&[]) && !is_of_tests(&[10, 0, 0]) && !is_inside("0a00::1"));
}

/// Checks the addresses of a frame, which has a VLAN tag or none.
#[track_caller]
fn check(frame: &[u8]) {
    let is_arp = |at: usize| frame[at..at + 2] == [0x08, 0x06];
    let at = if frame[12..14] == [0x81, 0x00] {
        16
    } else {
        12
    };
    for address in [&frame[..6], &frame[6..12]] {
        let is_to_all = address == [0xff; 6] && (is_arp(at) || frame[30..34] == [0xff; 4]);
        assert!(
            LINK_ADDRESSES.iter().any(|known| known == address) || is_to_all,
            "{address:x?}"
        );
    }
    let ip = &frame[at + 2..];
    match [frame[at], frame[at + 1]] {
        // A storm goes to all stations of a link, with both of its addresses.
        [0x08, 0x00] => assert!(
            is_of_tests(&ip[12..16])
                && (is_of_tests(&ip[16..20]) || frame[..6] == [0xff; 6] && ip[16..20] == [0xff; 4]),
            "{:?}",
            &ip[12..20]
        ),
        [0x86, 0xdd] => assert!(
            is_of_tests(&ip[8..24]) && is_of_tests(&ip[24..40]),
            "{:x?}",
            &ip[8..40]
        ),
        [0x08, 0x06] => assert!(
            is_of_tests(&ip[14..18]) && is_of_tests(&ip[24..28]),
            "{:?}",
            &ip[14..28]
        ),
        other => panic!("a frame of the kind {other:x?}"),
    }
}

#[test]
fn all_profiles_and_seeds_stay_among_addresses_of_nobody() {
    let mut buffer = [0; FRAME_MAX];
    for seed in (0..40).chain([u64::MAX, 1 << 63, 0x5555_5555_5555_5555]) {
        for (sizes, flows) in [
            (Sizes::Mwn, 100_000),
            (Sizes::Uniform, 7),
            (Sizes::Fixed(60), 1),
            (Sizes::Fixed(1514), 5000),
        ] {
            let profile = Profile {
                seed,
                packets: 3000,
                sizes,
                flows,
                zipf: 0.3,
                ..Profile::default()
            };
            let mut generator = Generator::new(&profile).unwrap();
            while let Some(made) = generator.next(&mut buffer) {
                check(&buffer[..made.len]);
            }
        }
    }
}

#[test]
fn built_in_profiles_stay_among_addresses_of_nobody() {
    for name in Profiles::names() {
        let profile = Profiles::built_in(name).unwrap();
        let mut packets = Packets::new(&profile).unwrap();
        for _ in 0..30_000 {
            let Some(made) = packets.next() else { break };
            check(made.frame);
        }
    }
}

/// Actors of all kinds, with the highest numbers that they have.
#[test]
fn connections_stay_among_addresses_of_nobody() {
    for seed in 0..4 {
        let text = format!(
            "seed = {seed}\n[connections]\nspan_ms = 100\ninternet = 5000\nconnections = 3000\nretransmissions = 3000\nresets = 9\n\
             dialogues = 3000\nunanswered = 5\nscan_peers = 32768\nscan_sources = 256\nflood_frames = 20000\nflood_sources = 524288\n\
             arp_storm = 4000\nbroadcast_storm = 4000"
        );
        let mut packets = Packets::new(&Profiles::read(&text).unwrap()).unwrap();
        while let Some(made) = packets.next() {
            check(made.frame);
        }
    }
}

#[test]
fn all_mixes_stay_among_addresses_of_nobody() {
    let mut buffer = [0; FRAME_MAX];
    // The larger ones need seconds and hundreds of megabytes before their first packet; their addresses are numbers of the same kind.
    for mix in &MIXES[..4] {
        for seed in [1, 2, u64::MAX] {
            let mut frames = MixFrames::new(mix, seed, 5000, 0, 1_000_000, seed == 1);
            frames.sign(Box::new(|_, _, lines| lines.as_bytes().to_vec()));
            while let Some(made) = frames.next(&mut buffer) {
                check(&buffer[..made.len]);
            }
        }
    }
}
