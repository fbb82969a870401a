//! Packets of connections in their order.

use super::frames::{Class, Packet, checksum};

const SYN: u8 = 2;
const ACK: u8 = 0x10;

/// A packet: whether the client sends it, its protocol, and what is behind the header of IP.
type Step = (bool, u8, Vec<u8>);

fn tcp(is_client: bool, ports: (u16, u16), flags: u8, numbers: (u32, u32)) -> Step {
    let (from, to) = if is_client { ports } else { (ports.1, ports.0) };
    let mut bytes = [from.to_be_bytes(), to.to_be_bytes()].concat();
    bytes.extend(numbers.0.to_be_bytes());
    bytes.extend(numbers.1.to_be_bytes());
    bytes.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
    (is_client, 6, bytes)
}

fn udp(is_client: bool, ports: (u16, u16)) -> Step {
    let (from, to) = if is_client { ports } else { (ports.1, ports.0) };
    (
        is_client,
        17,
        [
            from.to_be_bytes(),
            to.to_be_bytes(),
            [0, 12],
            [0, 0],
            *b"da",
            *b"ta",
        ]
        .concat(),
    )
}

/// The steps of several connections, of packets that open none, and of errors.
fn steps(host: u8, is_v6: bool) -> Vec<Step> {
    let (icmp, question, answer, error) = if is_v6 {
        (58, 128, 129, [1, 4])
    } else {
        (1, 8, 0, [3, 3])
    };
    let echo = |is_client, kind, id| {
        (
            is_client,
            icmp,
            vec![kind, 0, 0, 0, 0, id, 0, 1, 1, 2, 3, 4],
        )
    };
    let about = |ports| {
        let quoted = packet(host, is_v6, 0, &udp(true, ports)).bytes;
        (false, icmp, [&error[..], &[0; 6], &quoted].concat())
    };
    let (web, answered) = ((5000, 80), (6000, 53));
    vec![
        tcp(true, web, SYN, (100, 0)),
        tcp(true, web, SYN, (100, 0)),
        tcp(false, web, SYN | ACK, (300, 101)),
        tcp(true, web, ACK, (101, 301)),
        tcp(false, web, ACK | 8, (301, 101)),
        tcp(true, web, ACK | 8, (101, 301)),
        udp(true, answered),
        udp(true, answered),
        about(answered),
        udp(false, answered),
        udp(true, answered),
        about((6001, 53)),
        tcp(true, (5001, 80), ACK, (7, 8)),
        tcp(false, (5001, 80), ACK | 8, (8, 7)),
        tcp(false, (5002, 80), SYN | ACK, (8, 7)),
        tcp(true, (5003, 81), SYN, (9, 0)),
        tcp(false, (5003, 81), 4 | ACK, (0, 10)),
        udp(false, (6002, 53)),
        udp(true, (6002, 53)),
        udp(false, (6002, 53)),
        echo(true, question, 7),
        echo(false, answer, 7),
        echo(true, question, 7),
        echo(false, answer, 8),
        (true, 200, vec![1; 12]),
        (true, 200, vec![1; 12]),
        (false, 200, vec![1; 12]),
        (true, 200, vec![2; 12]),
        tcp(true, web, ACK | 1, (101, 301)),
        tcp(false, web, ACK | 1, (301, 102)),
        tcp(true, web, ACK, (102, 302)),
    ]
}

fn packet(host: u8, is_v6: bool, number: usize, (is_client, proto, behind): &Step) -> Packet {
    let mut bytes = Vec::new();
    if is_v6 {
        let client = [0x20, 1, 0xd, 0xb8, 0, host, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        let server = [0x26, 0, 0, 0, 0, host, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
        bytes.extend((0x6000_0000 | number as u32).to_be_bytes());
        bytes.extend((behind.len() as u16).to_be_bytes());
        bytes.extend([*proto, 64]);
        bytes.extend(
            if *is_client {
                [client, server]
            } else {
                [server, client]
            }
            .concat(),
        );
    } else {
        let (client, server) = ([10, host, 0, 1], [192, 168, host, 1]);
        bytes.extend([0x45, 0]);
        bytes.extend((20 + behind.len() as u16).to_be_bytes());
        bytes.extend((number as u16).to_be_bytes());
        bytes.extend([0x40, 0, 64, *proto, 0, 0]);
        bytes.extend(
            if *is_client {
                [client, server]
            } else {
                [server, client]
            }
            .concat(),
        );
        let sum = checksum(&bytes);
        bytes[10..12].copy_from_slice(&sum.to_be_bytes());
    }
    bytes.extend(behind);
    Packet {
        class: Class::Whole,
        bytes,
        input: usize::from(!is_client),
        sender: 2,
    }
}

/// The packets between the client and the server of this number.
pub fn packets(host: u8) -> Vec<Packet> {
    let of = |is_v6: bool| {
        let steps = steps(host, is_v6);
        (1..)
            .zip(steps)
            .map(|(number, step)| packet(host, is_v6, number, &step))
            .collect::<Vec<_>>()
    };
    [of(false), of(true)].concat()
}

/// A packet between two ends that no other test uses.
pub fn between(is_client: bool, is_v6: bool, number: usize, proto: u8, behind: &[u8]) -> Packet {
    packet(99, is_v6, number, &(is_client, proto, behind.to_vec()))
}
