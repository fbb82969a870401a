//! Packets of connections in any order, of any flags, chunks and types: what no host sends among what hosts send.

use super::conversations::between;
use super::frames::Packet;
use weir_testkit::Random;

/// Rules by which the kernel writes the state of a packet into its traffic class.
pub const TELLING: &str =
    "table inet t { chain f { type filter hook forward priority 0; policy accept
ct state new meta nfproto ipv4 ip dscp set 1 accept
ct state established meta nfproto ipv4 ip dscp set 2 accept
ct state related meta nfproto ipv4 ip dscp set 3 accept
ct state invalid meta nfproto ipv4 ip dscp set 4 accept
ct state untracked meta nfproto ipv4 ip dscp set 5 accept
ct state new ip6 dscp set 1 accept
ct state established ip6 dscp set 2 accept
ct state related ip6 dscp set 3 accept
ct state invalid ip6 dscp set 4 accept
ct state untracked ip6 dscp set 5 accept
}
}
";

/// A packet, what it is in words, and whether weir may take it for invalid though the kernel does not.
pub struct Step {
    pub packet: Packet,
    pub what: String,
    pub may_be_stricter: bool,
}

/// Makes the packets of the connection of this number.
pub fn connection(random: &mut Random, number: usize) -> Vec<Step> {
    match number % 8 {
        0..=4 => tcp(random, number),
        5 | 6 => sctp(random, number),
        _ => others(random, number),
    }
}

fn one<T: Copy>(random: &mut Random, of: &[T]) -> T {
    of[random.below(of.len())]
}

/// Numbers of segments are those of two ends that say nothing, so that no check of a window takes part.
fn tcp(random: &mut Random, number: usize) -> Vec<Step> {
    const SYN: u8 = 2;
    const ANSWER: u8 = 0x12;
    const ACK: u8 = 0x10;
    let usual = [SYN, ANSWER, ACK, ACK, 0x11, 0x14, 4, 0x18, 0x52];
    let any = random.below(3) == 0;
    let (port, is_v6) = ((2000 + number % 60_000) as u16, number % 2 == 1);
    let length = one(random, &[4, 8, 14]);
    let step = |place: usize| {
        let (is_client, flags) = match place {
            0 if random.below(10) > 0 => (true, SYN),
            1 if random.below(5) > 1 => (false, ANSWER),
            2 if random.below(5) > 1 => (true, ACK),
            _ if any && random.below(2) == 0 => (random.below(2) == 0, random.below(256) as u8),
            _ => (random.below(2) == 0, one(random, &usual)),
        };
        let (ours, theirs) = if is_client {
            (1000u32, 5000u32)
        } else {
            (5000, 1000)
        };
        let sequence = if flags & SYN != 0 { ours } else { ours + 1 };
        let acknowledged = if flags & ACK != 0 { theirs + 1 } else { 0 };
        let ports = if is_client { [port, 80] } else { [80, port] };
        let mut bytes = ports.map(u16::to_be_bytes).concat();
        bytes.extend(sequence.to_be_bytes());
        bytes.extend(acknowledged.to_be_bytes());
        bytes.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        let what = format!("TCP, port {port}, of the client: {is_client}, flags {flags:#04x}");
        Step {
            packet: between(is_client, is_v6, place, 6, &bytes),
            what,
            may_be_stricter: false,
        }
    };
    (0..length).map(step).collect()
}

/// Tags are those that the other end gave in its INIT or INIT ACK.
fn sctp(random: &mut Random, number: usize) -> Vec<Step> {
    const INIT: u8 = 1;
    const HEARTBEAT: u8 = 4;
    const SHUTDOWN_ACK: u8 = 8;
    const SHUTDOWN_COMPLETE: u8 = 14;
    const STRAY: u8 = 255;
    let (port, is_v6) = ((2000 + number % 60_000) as u16, number % 2 == 1);
    let first = one(random, &[INIT, INIT, INIT, HEARTBEAT, STRAY]);
    let length = if first == STRAY {
        2
    } else {
        one(random, &[3, 6, 10])
    };
    let step = |place: usize| {
        let is_client = place == 0 || place > 1 && random.below(2) == 0;
        let count = one(random, &[1, 1, 1, 2, 3]);
        let types: Vec<u8> = match place {
            0 if first != STRAY => vec![first],
            // Of no association: an end of one, which is answered by its own tag, or what is not answered.
            0 if number.is_multiple_of(3) => vec![SHUTDOWN_ACK],
            1 if first == STRAY && number.is_multiple_of(3) => vec![SHUTDOWN_COMPLETE],
            _ if first == STRAY => vec![one(random, &[0, 3, 6, 11, 12, 13, 14, 64, 192])],
            1 if random.below(2) == 0 => vec![if first == INIT { 2 } else { 5 }],
            _ if first == HEARTBEAT && is_client => vec![one(random, &[0, 3, HEARTBEAT])],
            _ => (0..count).map(|_| random.below(15) as u8).collect(),
        };
        let is_first = types.contains(&INIT);
        let tag = match types[..] {
            _ if is_first => 0u32,
            [SHUTDOWN_COMPLETE] if first == STRAY => 0x22,
            _ => 0x11 + 0x11 * u32::from(is_client),
        };
        let ports = if is_client { [port, 80] } else { [80, port] };
        let mut bytes = ports.map(u16::to_be_bytes).concat();
        bytes.extend(tag.to_be_bytes());
        bytes.extend([0; 4]);
        for &kind in &types {
            // INIT and INIT ACK: RFC 9260, section 3.3.2.
            let own = if is_client { 0x11u32 } else { 0x22 };
            let body = match kind {
                1 | 2 => [
                    &own.to_be_bytes()[..],
                    &[0, 0, 5, 220, 0, 1, 0, 1, 0, 0, 0, 9],
                ]
                .concat(),
                _ => vec![0; 8],
            };
            bytes.extend([kind, 0, 0, 4 + body.len() as u8]);
            bytes.extend(body);
        }
        let what = format!("SCTP, port {port}, of the client: {is_client}, chunks {types:?}");
        Step {
            packet: between(is_client, is_v6, place, 132, &bytes),
            what,
            may_be_stricter: place > 0,
        }
    };
    (0..length).map(step).collect()
}

/// ICMP of any type and code, with and without a quotation of a datagram of the connection, GRE and others.
fn others(random: &mut Random, number: usize) -> Vec<Step> {
    let is_v6 = number / 8 % 2 == 1;
    let port = (2000 + number % 60_000) as u16;
    let datagram = [&port.to_be_bytes()[..], &[0, 53, 0, 12, 0, 0], b"data"].concat();
    let quoted = between(true, is_v6, 0, 17, &datagram).bytes;
    let mut steps = Vec::new();
    let mut add = |is_client, proto, bytes: &[u8], what: String| {
        let packet = between(is_client, is_v6, steps.len(), proto, bytes);
        steps.push(Step {
            packet,
            what,
            may_be_stricter: false,
        });
    };
    if random.below(2) == 0 {
        add(true, 17, &datagram, format!("datagram of port {port}"));
    }
    let queries = if is_v6 {
        [128, 129, 139, 140]
    } else {
        [8, 0, 13, 14]
    };
    for _ in 0..6 {
        let is_client = random.below(2) == 0;
        let kind = match random.below(3) {
            0 => one(random, &queries),
            1 => one(
                random,
                &[1, 2, 3, 4, 5, 11, 12, 130, 131, 134, 135, 136, 143],
            ),
            _ => random.below(256) as u8,
        };
        let code = one(random, &[0, 0, 0, 1, 4]);
        let id = port.to_be_bytes();
        let quote: &[u8] = if random.below(2) == 0 {
            &quoted
        } else {
            &[0; 24]
        };
        let message = [&[kind, code, 0, 0][..], &id, &[0, 1], quote].concat();
        let is_quoting = quote.len() > 24;
        add(
            is_client,
            if is_v6 { 58 } else { 1 },
            &message,
            format!(
                "ICMP {kind}/{code}, of the client: {is_client}, with a quotation: {is_quoting}"
            ),
        );
    }
    // The number of a protocol that no other connection of these ends has.
    let proto = (150 + number / 8 % 100) as u8;
    for is_client in [true, true, false, true] {
        add(
            is_client,
            proto,
            &[1; 12],
            format!("protocol {proto}, of the client: {is_client}"),
        );
    }
    let call = port.to_be_bytes();
    let pptp = |kind: u16| {
        [
            &[0x30, 1][..],
            &kind.to_be_bytes(),
            &[0, 4],
            &call,
            &[0; 12],
        ]
        .concat()
    };
    for (is_client, bytes) in [
        (true, pptp(0x880b)),
        (false, pptp(0x880b)),
        (true, pptp(0x0800)),
        (true, pptp(0x880b)),
    ] {
        add(
            is_client,
            47,
            &bytes,
            format!("PPTP, of the client: {is_client}, {bytes:02x?}"),
        );
    }
    steps
}
