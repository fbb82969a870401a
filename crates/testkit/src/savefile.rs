//! Capture files made by hand, field by field.

use crate::Random;

/// A pcap file being made.
#[derive(Clone, Debug)]
pub struct Pcap {
    /// Bytes of the file so far.
    pub bytes: Vec<u8>,
    big: bool,
    /// Number of packets so far; sets the time of the next one.
    pub count: u32,
}

impl Pcap {
    /// A little-endian file with microseconds.
    pub fn new(link: u32, snaplen: u32) -> Self {
        Self::with(link, snaplen, false, false)
    }

    /// A file of this byte order and resolution.
    pub fn with(link: u32, snaplen: u32, big: bool, nanoseconds: bool) -> Self {
        let mut pcap = Self {
            bytes: Vec::new(),
            big,
            count: 0,
        };
        pcap.word(if nanoseconds {
            0xa1b2_3c4d
        } else {
            0xa1b2_c3d4
        });
        if big {
            pcap.bytes.extend([0, 2, 0, 4])
        } else {
            pcap.bytes.extend([2, 0, 4, 0])
        }
        for word in [0, 0, snaplen, link] {
            pcap.word(word);
        }
        pcap
    }

    fn word(&mut self, word: u32) {
        self.bytes.extend(if self.big {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        });
    }

    /// Appends a whole packet with its time, ns since the epoch. The file must have nanoseconds.
    pub fn stamped(&mut self, time_ns: i64, data: &[u8]) {
        let (seconds, fraction) = (time_ns / 1_000_000_000, time_ns % 1_000_000_000);
        let len = data.len() as u32;
        self.header(seconds as u32, fraction as u32, len, len);
        self.bytes.extend(data);
        self.count += 1;
    }

    /// Appends a record whose time is 1 s + 1 unit after that of the record before.
    pub fn record(&mut self, wire_len: u32, data: &[u8]) {
        let count = self.count;
        self.header(
            1_700_000_000 + count / 1000,
            count % 1000,
            data.len() as u32,
            wire_len,
        );
        self.bytes.extend_from_slice(data);
        self.count += 1;
    }

    /// Appends the header of a record; the caller appends the packet's bytes.
    pub fn header(&mut self, seconds: u32, fraction: u32, captured: u32, wire_len: u32) {
        for word in [seconds, fraction, captured, wire_len] {
            self.word(word);
        }
    }

    /// Appends a record of a complete packet.
    pub fn packet(&mut self, data: &[u8]) {
        self.record(data.len() as u32, data);
    }
}

/// A pcapng file being made.
#[derive(Clone, Debug, Default)]
pub struct Pcapng {
    /// Bytes of the file so far.
    pub bytes: Vec<u8>,
    big: bool,
    /// Number of packets so far; sets the time of the next one.
    pub count: u64,
}

impl Pcapng {
    /// A file that begins with a section header.
    pub fn new(big: bool) -> Self {
        let mut file = Self::default();
        file.section(big);
        file
    }

    fn word(&self, out: &mut Vec<u8>, word: u32) {
        out.extend(if self.big {
            word.to_be_bytes()
        } else {
            word.to_le_bytes()
        });
    }

    fn half(&self, out: &mut Vec<u8>, half: u16) {
        out.extend(if self.big {
            half.to_be_bytes()
        } else {
            half.to_le_bytes()
        });
    }

    /// Appends a block, padded to four bytes.
    pub fn block(&mut self, kind: u32, body: &[u8]) {
        let total = body.len().next_multiple_of(4) as u32 + 12;
        let mut out = Vec::with_capacity(total as usize);
        self.word(&mut out, kind);
        self.word(&mut out, total);
        out.extend_from_slice(body);
        out.resize(out.len().next_multiple_of(4), 0);
        self.word(&mut out, total);
        self.bytes.extend(out);
    }

    /// Begins a section, from which on the file has this byte order.
    pub fn section(&mut self, big: bool) {
        self.big = big;
        let mut body = Vec::new();
        self.word(&mut body, 0x1a2b_3c4d);
        self.half(&mut body, 1);
        self.half(&mut body, 0);
        body.extend([0xff; 8]);
        self.block(0x0a0d_0d0a, &body);
    }

    /// Appends an interface with a resolution of 10^-`digits` s.
    pub fn interface(&mut self, link: u16, snaplen: u32, digits: u8) {
        let mut body = Vec::new();
        self.half(&mut body, link);
        self.half(&mut body, 0);
        self.word(&mut body, snaplen);
        self.half(&mut body, 9);
        self.half(&mut body, 1);
        body.extend([digits, 0, 0, 0]);
        self.word(&mut body, 0);
        self.block(1, &body);
    }

    /// Appends an enhanced packet block.
    pub fn enhanced(&mut self, interface: u32, wire_len: u32, data: &[u8]) {
        let ticks = 1_700_000_000_000_000 + self.count;
        self.count += 1;
        let mut body = Vec::with_capacity(data.len() + 24);
        for word in [
            interface,
            (ticks >> 32) as u32,
            ticks as u32,
            data.len() as u32,
            wire_len,
        ] {
            self.word(&mut body, word);
        }
        body.extend_from_slice(data);
        self.block(6, &body);
    }

    /// Appends an obsolete packet block.
    pub fn obsolete(&mut self, interface: u16, wire_len: u32, data: &[u8]) {
        let ticks = 1_700_000_000_000_000 + self.count;
        self.count += 1;
        let mut body = Vec::new();
        self.half(&mut body, interface);
        self.half(&mut body, 0xffff);
        for word in [
            (ticks >> 32) as u32,
            ticks as u32,
            data.len() as u32,
            wire_len,
        ] {
            self.word(&mut body, word);
        }
        body.extend_from_slice(data);
        self.block(2, &body);
    }

    /// Appends a simple packet block; `data` is as long as the snap length allows.
    pub fn simple(&mut self, wire_len: u32, data: &[u8]) {
        let mut body = Vec::new();
        self.word(&mut body, wire_len);
        body.extend_from_slice(data);
        self.block(3, &body);
    }

    /// Appends a complete packet of interface 0.
    pub fn packet(&mut self, data: &[u8]) {
        self.enhanced(0, data.len() as u32, data);
    }
}

/// A pcap file of frames of IPv4 and IPv6, TCP, UDP and ICMP, tagged or not, and some without IP: a thousand in a second. IPv4 sources are
/// 10.0.0.1 to .9, destination ports 1000 to 1012.
pub fn mixed(packets: u32) -> Vec<u8> {
    let mut random = Random(7);
    let mut pcap = Pcap::new(1, 65_535);
    for i in 0..packets {
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
        if i % 7 == 0 {
            frame.extend([0x81, 0, 0, 1 + (i % 90) as u8]);
        }
        let proto = [6, 17, 17, 1][random.below(4)];
        match i % 11 {
            0 => frame.extend([8, 6, 0, 1, 8, 0, 6, 4, 0, 1]),
            1 | 2 => {
                frame.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 24, proto, 64]);
                frame.extend(random.bytes(32));
            }
            _ => {
                frame.extend([
                    8,
                    0,
                    0x45,
                    0,
                    0,
                    44,
                    0,
                    0,
                    0,
                    0,
                    64,
                    proto,
                    0,
                    0,
                    10,
                    0,
                    0,
                    1 + random.below(9) as u8,
                ]);
                frame.extend([10, 1, 0, 1]);
            }
        }
        if i % 11 > 0 {
            frame.extend([
                0x9c,
                0x40,
                3,
                232 + random.below(13) as u8,
                0,
                24,
                0,
                0,
                0,
                0,
                0,
                0,
                0x50,
                i as u8,
            ]);
            frame.extend(random.bytes(10));
        }
        pcap.header(
            1_700_000_000 + i / 1000,
            i % 1000 * 1000,
            frame.len() as u32,
            frame.len() as u32 + i % 3,
        );
        pcap.bytes.extend(&frame);
    }
    pcap.bytes
}
