//! Packets whose fields rulesets name, and those that lack them.

use weir_testkit::Random;

/// Relation of the verdicts of both firewalls on a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Equal.
    Whole,
    /// The packet lacks fields, or has an authentication header: what weir passes, nftables passes.
    Lacking,
    /// Valid neighbor discovery, which weir passes.
    Neighbors,
}

/// A packet of IP.
#[derive(Clone, Debug)]
pub struct Packet {
    pub class: Class,
    pub bytes: Vec<u8>,
    /// Place in [`INPUTS`] of the interface where it arrives.
    pub input: usize,
    /// Last byte of the address of Ethernet that sends it.
    pub sender: u8,
}

/// Interfaces where packets arrive.
pub const INPUTS: [&str; 2] = ["in0", "in1"];

/// Interface where all packets leave that do not leave by [`WAN`].
pub const OUTPUT: &str = "out";

/// Interface where packets to 192.168.0.0/16 and 2001:db8:5::/48 leave.
pub const WAN: &str = "wan0";

impl Packet {
    /// Name of the interface where the packet leaves.
    pub fn output(&self) -> &'static str {
        let is_wan = match self.bytes[0] >> 4 {
            4 => self.bytes[16..].starts_with(&[192, 168]),
            _ => self.bytes[24..].starts_with(&[0x20, 1, 0xd, 0xb8, 0, 5]),
        };
        if is_wan { WAN } else { OUTPUT }
    }
}

pub const V4: [[u8; 4]; 8] = [
    [10, 0, 0, 1],
    [10, 0, 0, 2],
    [10, 0, 5, 1],
    [10, 9, 0, 255],
    [192, 168, 1, 1],
    [192, 168, 1, 200],
    [198, 51, 100, 7],
    [1, 1, 1, 1],
];
pub const V6: [&str; 6] = [
    "2001:db8::1",
    "2001:db8::2",
    "2001:db8:5::1",
    "2001:db8:ffff::9",
    "2600::1",
    "2001:db7:ffff::1",
];
pub const PORTS: [u16; 10] = [0, 22, 23, 53, 80, 443, 1024, 5000, 8080, 65535];

fn one<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len())]
}

/// Options of TCP: none, sizes of segments, also behind others and behind the end of the list, and those that are broken.
const OPTIONS: [&[u8]; 10] = [
    &[],
    &[],
    &[2, 4, 2, 0x18],
    &[1, 1, 2, 4, 5, 0xb4, 0, 0],
    &[3, 3, 7, 1, 2, 4, 0, 1],
    &[0, 0, 0, 0, 2, 4, 0x10, 0],
    &[2, 3, 9, 1, 2, 4, 0, 9],
    &[5, 0, 2, 4, 0, 9, 0, 0],
    &[5, 18, 2, 4],
    &[1, 1, 2, 4],
];

/// The packet of this number, which no other equals.
pub fn packet(random: &mut Random, number: usize) -> Packet {
    let is_v6 = random.below(2) == 0;
    let icmp = if is_v6 { 58 } else { 1 };
    let proto = one(
        random,
        &[6, 6, 6, 17, 17, 132, icmp, icmp, 1, 47, 50, 136, 33, 200, 4],
    );
    let mut class = Class::Whole;
    let mut transport = one(random, &PORTS).to_be_bytes().to_vec();
    transport.extend(one(random, &PORTS).to_be_bytes());
    transport.extend(random.bytes(8));
    transport.extend([
        0x50,
        one(
            random,
            &[2, 0x12, 0x10, 4, 1, 0x11, 0x18, 0, 0xff, 0x29, 0xc2],
        ),
    ]);
    transport.extend(random.bytes(6));
    if proto == 6 {
        let options = one(random, &OPTIONS);
        transport[12] += 4 * options.len() as u8;
        transport.extend(options);
        if random.below(12) == 0 {
            transport.truncate(14 + random.below(transport.len() - 14));
            class = Class::Lacking;
        }
    }
    if matches!(proto, 1 | 58) {
        transport[0] = one(random, &[0, 3, 5, 8, 11, 13, 128, 129, 135, 136, 1, 2]);
        transport[1] = one(random, &[0, 0, 1, 4]);
    }
    let mut hop_limit = 64;
    let later = random.below(12) == 0;
    if random.below(12) == 0 {
        // Shorter than the header that rules read.
        transport.truncate(random.below(14));
        class = Class::Lacking;
    }
    if later {
        class = Class::Lacking;
    }
    let mut next = proto;
    let mut behind = transport;
    let is_short = random.below(2) == 0;
    let kind = random.below(3);
    let extension = |number: u8, next: &mut u8, behind: &mut Vec<u8>| {
        let mut header = match number {
            // Length in words of four bytes without two.
            51 => [vec![*next, 4], vec![0; 22]].concat(),
            44 => vec![*next, 0, 0, 1, 0, 0, 0, 7],
            43 => vec![*next, 0, [0, 2, 4][kind % 3], 0, 0, 0, 0, 0],
            // Options: padding of six or fourteen bytes.
            _ if is_short => vec![*next, 0, 1, 4, 0, 0, 0, 0],
            _ => [vec![*next, 1, 1, 12], vec![0; 12]].concat(),
        };
        header.append(behind);
        (*behind, *next) = (header, number);
    };
    let mut fragment = 0u16;
    if is_v6 {
        const CHAINS: [&[u8]; 11] = [
            &[],
            &[],
            &[],
            &[60],
            &[43],
            &[60, 43, 60],
            &[51],
            &[44],
            &[60, 44, 0],
            &[60, 0],
            &[51, 60],
        ];
        let chain = CHAINS[number % CHAINS.len()];
        let is_plain = chain.is_empty() && !later;
        if chain.contains(&51) {
            class = Class::Lacking;
        }
        chain
            .iter()
            .for_each(|number| extension(*number, &mut next, &mut behind));
        if later {
            let mut header = vec![next, 0, 1, 0x41, 0, 0, 0, 7];
            header.append(&mut behind);
            (behind, next) = (header, 44);
        }
        if proto == 58 && is_plain && number.is_multiple_of(3) && class == Class::Whole {
            hop_limit = 255;
            // A solicitation or an advertisement of a neighbor as RFC 4861 has it, or its type with junk behind.
            if matches!(behind[0], 135 | 136) && random.below(2) == 0 {
                behind = vec![behind[0], 0, 0, 0, 0, 0, 0, 0];
                behind.extend(
                    one(random, &V6)
                        .parse::<std::net::Ipv6Addr>()
                        .unwrap()
                        .octets(),
                );
                class = Class::Neighbors;
            }
        }
    } else {
        if random.below(15) == 0 {
            extension(51, &mut next, &mut behind);
            class = Class::Lacking;
        }
        fragment = if later {
            0x2021
        } else {
            one(random, &[0, 0, 0x4000, 0x2000])
        };
    }
    let mut bytes = Vec::new();
    if is_v6 {
        bytes.extend((0x6000_0000 | number as u32).to_be_bytes());
        bytes.extend((behind.len() as u16).to_be_bytes());
        bytes.extend([next, hop_limit]);
        for _ in 0..2 {
            bytes.extend(
                one(random, &V6)
                    .parse::<std::net::Ipv6Addr>()
                    .unwrap()
                    .octets(),
            );
        }
        if class == Class::Neighbors {
            let sum = checksum(&[&bytes[8..], &behind, &[0, behind.len() as u8, 0, 58]].concat());
            behind[2..4].copy_from_slice(&sum.to_be_bytes());
        }
    } else {
        let options = if random.below(6) == 0 {
            vec![1; 4 * (1 + random.below(3))]
        } else {
            Vec::new()
        };
        bytes.extend([0x45 + options.len() as u8 / 4, 0]);
        bytes.extend(((20 + options.len() + behind.len()) as u16).to_be_bytes());
        bytes.extend((number as u16).to_be_bytes());
        bytes.extend(fragment.to_be_bytes());
        bytes.extend([hop_limit, next, 0, 0]);
        bytes.extend(one(random, &V4));
        bytes.extend(one(random, &V4));
        bytes.extend(options);
        let sum = checksum(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    bytes.extend(behind);
    Packet {
        class,
        bytes,
        input: random.below(2),
        sender: one(random, &[1, 5, 7]),
    }
}

/// Checksum of an even number of bytes: RFC 1071.
pub fn checksum(bytes: &[u8]) -> u16 {
    let sum: u32 = bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]))
        .sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    !((sum & 0xffff) + (sum >> 16)) as u16
}

/// The packet without what a router changes.
pub fn unchanged(packet: &[u8]) -> Vec<u8> {
    let mut bytes = packet.to_vec();
    match bytes.first().map(|first| first >> 4) {
        Some(4) if bytes.len() >= 20 => {
            bytes[8] = 0;
            bytes[10..12].fill(0);
        }
        Some(6) if bytes.len() >= 40 => bytes[7] = 0,
        _ => {}
    }
    bytes
}

/// The packet in a frame of Ethernet between addresses of bytes 2.
pub fn frame(packet: &[u8]) -> Vec<u8> {
    frame_of(packet, 2)
}

/// The same with another last byte of the sender.
pub fn frame_of(packet: &[u8], sender: u8) -> Vec<u8> {
    let kind: [u8; 2] = if packet[0] >> 4 == 4 {
        [8, 0]
    } else {
        [0x86, 0xdd]
    };
    [&[2; 6], &[2; 5][..], &[sender], &kind, packet].concat()
}
