//! Packets of a run, the expressions that judge them with their naive twins, and the files and streams that hold them.

use crate::simulated::{BEGUN_NS, MS, Packet, SECOND};
use std::io::{self, Read};
use weir_testkit::Random;
use weir_testkit::savefile::{Pcap, Pcapng};

/// An expression, and whether a packet matches it according to its fields. A load from outside the captured bytes rejects.
pub type Predicate = (&'static str, fn(&Packet) -> bool);

pub const EXPRESSIONS: [Predicate; 8] = [
    ("", |_| true),
    ("udp[0:2] & 1 = 0", |packet| {
        packet.kept >= 36 && packet.flow & 1 == 0
    }),
    ("less 400", |packet| packet.bytes <= 400),
    ("ether[3] & 3 != 0", |packet| packet.number & 3 != 0),
    ("not udp src port 5", |packet| {
        packet.kept >= 36 && packet.flow != 5
    }),
    ("greater 300", |packet| packet.bytes >= 300),
    ("udp src port 3", |packet| {
        packet.kept >= 36 && packet.flow == 3
    }),
    ("ip[9] = 6", |_| false),
];

/// Rules, and whether they deny a packet: if no rule decides, one whose IP header is cut is denied.
pub const RULES: [Predicate; 3] = [
    (
        "drop expr 'ether[3] & 0x60 = 0x20'\ndefault pass\n",
        |packet| packet.number & 0x60 == 0x20 || packet.kept < 34,
    ),
    ("pass expr 'greater 200'\ndefault drop\n", |packet| {
        packet.bytes < 200
    }),
    ("default pass\n", |packet| packet.kept < 34),
];

/// A file, or the content of a stream.
#[derive(Clone, Debug, Default)]
pub struct Content {
    pub bytes: Vec<u8>,
    /// Packets that can be read, with the offsets of their records.
    pub packets: Vec<Packet>,
    pub starts: Vec<u64>,
    /// Whether a reader meets a fault behind them.
    pub is_faulty: bool,
    /// Packets lost before the file was written, according to its statistics.
    pub lost: u64,
}

impl Content {
    /// Returns the number of packets whose records begin before this offset.
    pub fn before(&self, offset: u64) -> usize {
        self.starts.partition_point(|start| *start < offset)
    }
}

/// Kinds of traffic and damage.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nature {
    /// Whether lengths differ. Packets are of 60 bytes otherwise.
    pub mixed: bool,
    /// Whether fewer bytes are captured of some packets.
    pub truncated: bool,
    /// Whether some stamps are far off.
    pub jumps: bool,
    /// Whether the last record is cut off.
    pub cut: bool,
    /// Whether a record in the middle is no record.
    pub damaged: bool,
    /// Whether statistics tell lost packets.
    pub gap: bool,
    /// Whether packets are so large that several cursors walk a file of them.
    pub large: bool,
}

/// Draws packets of a source. Their stamps ascend, unless they jump; flows are from 1 to 8.
pub fn packets(random: &mut Random, nature: Nature, first: u32, most: usize) -> Vec<Packet> {
    // Some begin where windows do.
    let begun = random.below(SECOND as usize) as i64;
    let is_whole = random.below(4) == 0;
    let mut at = BEGUN_NS
        + if is_whole {
            begun - begun % (50 * MS)
        } else {
            begun
        };
    let all = random.below(most) as u32;
    let draw = |number| {
        at += [0, 1, MS, 30 * MS][random.below(4)] * random.below(5) as i64;
        let jump = match random.below(20) {
            0 if nature.jumps => (random.next() % 8000) as i64 * SECOND - 4000 * SECOND,
            _ => 0,
        };
        let shortest = if nature.large { 2000 } else { 60 };
        let length = if nature.mixed {
            shortest + random.below(240)
        } else {
            shortest
        };
        let kept = if nature.truncated && random.below(3) == 0 {
            14 + random.below(46)
        } else {
            length
        };
        let longer = if nature.mixed && random.below(3) == 0 {
            random.below(1200)
        } else {
            0
        };
        Packet {
            number: first + number,
            flow: 1 + random.below(8) as u16,
            kept,
            bytes: (length + longer) as u32,
            stamp: Some(at + jump),
        }
    };
    (0..all).map(draw).collect()
}

/// Returns a file with these packets, as pcap or pcapng.
pub fn content(
    random: &mut Random,
    nature: Nature,
    is_pcapng: bool,
    packets: Vec<Packet>,
) -> Content {
    let mut content = if is_pcapng {
        pcapng(nature, &packets)
    } else {
        pcap(&packets)
    };
    content.packets = packets;
    if nature.damaged && !content.starts.is_empty() {
        let number = random.below(content.starts.len());
        let start = content.starts[number] as usize;
        // An impossible length, in both formats.
        content.bytes[start..(start + 16)].fill(0xff);
        fault_at(&mut content, number);
    } else if nature.cut && !content.starts.is_empty() {
        let last = content.starts.len() - 1;
        let start = content.starts[last] as usize;
        content.bytes.truncate(start + 1 + random.below(20));
        fault_at(&mut content, last);
    }
    content
}

fn fault_at(content: &mut Content, number: usize) {
    content.packets.truncate(number);
    content.starts.truncate(number);
    content.is_faulty = true;
}

fn pcap(packets: &[Packet]) -> Content {
    let (mut file, mut starts) = (Pcap::with(1, 65535, false, true), Vec::new());
    for packet in packets {
        let stamp = packet.stamp.expect("packets of files have a stamp");
        starts.push(file.bytes.len() as u64);
        let (seconds, rest) = (stamp.div_euclid(SECOND), stamp.rem_euclid(SECOND));
        file.header(
            seconds as u32,
            rest as u32,
            packet.kept as u32,
            packet.bytes,
        );
        file.bytes.extend(packet.frame());
    }
    Content {
        bytes: file.bytes,
        starts,
        ..Content::default()
    }
}

/// Returns a pcapng file; with a gap, its statistics tell ten lost packets, in front of all.
fn pcapng(nature: Nature, packets: &[Packet]) -> Content {
    let (mut file, mut starts) = (Pcapng::new(false), Vec::new());
    file.interface(1, 0, 9);
    file.interface(1, 0, 9);
    let time = |stamp: i64| {
        [(stamp >> 32) as u32, stamp as u32]
            .map(u32::to_le_bytes)
            .concat()
    };
    if nature.gap {
        let mut body = 0u32.to_le_bytes().to_vec();
        body.extend(time(BEGUN_NS));
        body.extend([5, 0, 8, 0, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        file.block(5, &body);
    }
    for packet in packets {
        starts.push(file.bytes.len() as u64);
        let mut body = (packet.number & 1).to_le_bytes().to_vec();
        body.extend(time(packet.stamp.expect("packets of files have a stamp")));
        body.extend((packet.kept as u32).to_le_bytes());
        body.extend(packet.bytes.to_le_bytes());
        body.extend(packet.frame());
        file.block(6, &body);
    }
    Content {
        bytes: file.bytes,
        starts,
        lost: if nature.gap { 10 } else { 0 },
        ..Content::default()
    }
}

/// A pipe that gives its bytes in pieces, and may fail at its end.
pub struct Pieces {
    pub bytes: Vec<u8>,
    pub at: usize,
    pub random: Random,
    pub fails: bool,
}

impl Read for Pieces {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let left = self.bytes.len() - self.at;
        if left == 0 && self.fails {
            return Err(io::Error::other("the pipe broke"));
        }
        let most = [7, 100, 1000, 5000][self.random.below(4)];
        let len = (1 + self.random.below(most)).min(left).min(buffer.len());
        buffer[..len].copy_from_slice(&self.bytes[self.at..self.at + len]);
        self.at += len;
        Ok(len)
    }
}
