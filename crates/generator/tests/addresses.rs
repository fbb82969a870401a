//! Built-in addresses belong to nobody: what is sent by mistake reaches no host of a stranger.

use std::net::{Ipv4Addr, Ipv6Addr};
use weir_generator::streams::Profile as Profiles;
use weir_generator::trains::MIXES;
use weir_generator::{FRAME_MAX, Generator, LINK_ADDRESSES, MixFrames, Packets, Profile, Sizes};

/// Addresses for private use (RFC 1918, RFC 6598), for benchmarks (RFC 2544) and for documentation (RFC 5737).
const IPV4: [(&str, u32); 8] = [
    ("10.0.0.0", 8),
    ("172.16.0.0", 12),
    ("192.168.0.0", 16),
    ("100.64.0.0", 10),
    ("198.18.0.0", 15),
    ("192.0.2.0", 24),
    ("198.51.100.0", 24),
    ("203.0.113.0", 24),
];

/// Addresses for benchmarks (RFC 5180), for documentation (RFC 3849), and unique local ones (RFC 4193).
const IPV6: [(&str, u32); 3] = [("2001:2::", 48), ("2001:db8::", 32), ("fc00::", 7)];

fn is_nobodys_ipv4(bytes: &[u8]) -> bool {
    let address = u32::from_be_bytes(bytes.try_into().unwrap());
    IPV4.iter().any(|(net, bits)| {
        (address ^ net.parse::<Ipv4Addr>().unwrap().to_bits()) >> (32 - bits) == 0
    })
}

fn is_nobodys_ipv6(bytes: &[u8]) -> bool {
    let address = u128::from_be_bytes(bytes.try_into().unwrap());
    IPV6.iter().any(|(net, bits)| {
        (address ^ net.parse::<Ipv6Addr>().unwrap().to_bits()) >> (128 - bits) == 0
    })
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
        let is_to_all = address == [0xff; 6] && is_arp(at);
        assert!(
            LINK_ADDRESSES.iter().any(|known| known == address) || is_to_all,
            "{address:x?}"
        );
    }
    let ip = &frame[at + 2..];
    match [frame[at], frame[at + 1]] {
        [0x08, 0x00] => assert!(
            is_nobodys_ipv4(&ip[12..16]) && is_nobodys_ipv4(&ip[16..20]),
            "{:?}",
            &ip[12..20]
        ),
        [0x86, 0xdd] => assert!(
            is_nobodys_ipv6(&ip[8..24]) && is_nobodys_ipv6(&ip[24..40]),
            "{:x?}",
            &ip[8..40]
        ),
        [0x08, 0x06] => assert!(
            is_nobodys_ipv4(&ip[14..18]) && is_nobodys_ipv4(&ip[24..28]),
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
