//! Time to filter a packet: libpcap's interpreter, weir's interpreter, native code packet by packet and in batches, and the
//! same predicate written by hand.
//!
//! The packets are distinct and random, and few enough to stay in the second-level cache. Branch
//! predictors learn even thousands of packets that arrive again in the same order, which no network
//! does. The packets are therefore shuffled before every pass; the second table shows the learnt
//! order for comparison.

use crate::report::Report;
use crate::rivals::median;
use std::hint::black_box;
use std::time::Instant;
use weir_filter::{Filter, MAX_BATCH, Native, interpreter, libpcap};
use weir_packet::{Frame, LinkType};

const PACKETS: usize = 4096;

/// Function that judges up to 64 frames: bit i of the result is the verdict on frame i.
type Judge<'a> = &'a dyn Fn(&[Frame<'_>]) -> u64;

/// A predicate written by hand.
type ByHand = fn(&[u8]) -> bool;

const CASES: [(&str, ByHand); 3] = [
    ("ip", hand::ip),
    ("tcp port 80", hand::tcp_port_80),
    (hand::LONG, hand::long),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Order {
    Shuffled,
    Same,
}

/// Measures all cases in both orders.
pub fn compare(rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    let packets = packets();
    let mut frames: Vec<Frame<'_>> = packets
        .iter()
        .map(|data| Frame {
            data,
            wire_len: data.len() as u32,
            interface: 0,
        })
        .collect();
    for order in [Order::Shuffled, Order::Same] {
        let learnt = match order {
            Order::Shuffled => "shuffled before each pass",
            Order::Same => "the same order each pass, which a branch predictor learns",
        };
        report.heading(&format!(
            "Filter alone: {PACKETS} packets in the L2 cache, {learnt}"
        ));
        let mut rows = Vec::new();
        for (expression, by_hand) in CASES {
            let times = measure(expression, by_hand, &mut frames, rounds, order, report)?;
            let [pcap, interpreted, one, batch, hand] = times;
            let short: String = expression.chars().take(28).collect();
            let ns = |time: f64| format!("{time:.2} ns");
            let mut row = vec![format!("`{short}`")];
            row.extend([pcap, interpreted, one, batch, hand].map(ns));
            row.extend([
                format!("1/{:.1}", pcap / batch),
                format!("{:.2}x", batch / hand),
            ]);
            rows.push(row);
            if order == Order::Shuffled {
                let found = format!("1/{:.1}", pcap / batch);
                let what = format!("native filter alone against bpf_filter, `{short}`");
                report.bar(&what, "1/5 of its time", &found, batch * 5.0 <= pcap);
                let found = format!("{:.2}x", batch / hand);
                let what = format!("native filter against the predicate by hand, `{short}`");
                report.bar(&what, "1.3x its time", &found, batch <= hand * 1.3);
            }
        }
        let head = [
            "expression",
            "bpf_filter",
            "interpreter",
            "native, one",
            "native, batch",
            "by hand",
            "of bpf",
            "of hand",
        ];
        report.table(&head, &rows);
    }
    Ok(())
}

/// Median time per packet, ns: bpf_filter, the interpreter, native code packet by packet, native code in batches, and the
/// predicate by hand.
fn measure(
    expression: &str,
    by_hand: ByHand,
    frames: &mut [Frame<'_>],
    rounds: usize,
    order: Order,
    report: &mut Report,
) -> anyhow::Result<[f64; 5]> {
    let filter = Filter::compile(expression, LinkType::ETHERNET, false)?;
    let program = filter.program();
    let native = Native::compile(program)?;
    let pcap = |frame: &Frame<'_>| libpcap::bpf_filter(program, frame.data, frame.wire_len) != 0;
    let interpret = |frame: &Frame<'_>| interpreter::run(program, frame.data, frame.wire_len) != 0;
    let rivals: [Judge<'_>; 5] = [
        &|batch| mask(batch, pcap),
        &|batch| mask(batch, interpret),
        &|batch| mask(batch, |frame| native.run(frame) != 0),
        &|batch| native_batch(batch, &native),
        &|batch| mask(batch, |frame| by_hand(frame.data)),
    ];
    let mut times: [Vec<f64>; 5] = Default::default();
    let mut random = Random(1);
    for _ in 0..rounds {
        for (rival, times) in rivals.iter().zip(&mut times) {
            if order == Order::Shuffled {
                (1..frames.len())
                    .rev()
                    .for_each(|index| frames.swap(index, random.below(index + 1)));
            }
            let answer = checksum(frames, |batch| mask(batch, |frame| by_hand(frame.data)));
            let begun = Instant::now();
            let found = black_box(checksum(black_box(frames), rival));
            times.push(begun.elapsed().as_secs_f64() * 1e9 / frames.len() as f64);
            if found != answer {
                report.wrong(&format!(
                    "'{expression}': a rival finds other packets than the predicate by hand"
                ));
            }
        }
    }
    Ok(times.map(|times| median(times.into_iter())))
}

/// Judges all frames. The result depends on each verdict, and its cost is negligible.
fn checksum(frames: &[Frame<'_>], judge: impl Fn(&[Frame<'_>]) -> u64) -> u64 {
    frames
        .chunks(MAX_BATCH)
        .fold(0, |sum: u64, batch| sum.rotate_left(7) ^ judge(batch))
}

/// Judges one frame after the other, as a program with libpcap does.
#[inline(always)]
fn mask(frames: &[Frame<'_>], judge: impl Fn(&Frame<'_>) -> bool) -> u64 {
    frames.iter().enumerate().fold(0, |mask, (index, frame)| {
        mask | u64::from(judge(frame)) << index
    })
}

fn native_batch(frames: &[Frame<'_>], native: &Native) -> u64 {
    let mut verdicts = 0;
    native.matches(frames, &mut verdicts);
    verdicts
}

/// xorshift64* (Vigna 2016).
struct Random(u64);

impl Random {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % limit
    }
}

/// Predicates in plain code, with the checks that safe code needs.
mod hand {
    pub const LONG: &str = "(tcp port 80 or tcp port 443 or udp port 53) and (src net 10.0.0.0/8 or dst net 192.168.0.0/16) and not host 10.1.2.3";

    fn half(data: &[u8], at: usize) -> Option<u16> {
        Some(u16::from_be_bytes(data.get(at..at + 2)?.try_into().ok()?))
    }

    fn word(data: &[u8], at: usize) -> Option<u32> {
        Some(u32::from_be_bytes(data.get(at..at + 4)?.try_into().ok()?))
    }

    #[inline(never)]
    pub fn ip(data: &[u8]) -> bool {
        half(data, 12) == Some(0x800)
    }

    /// Offset of the transport header of an unfragmented IPv4 packet.
    fn transport(data: &[u8]) -> Option<usize> {
        if half(data, 20)? & 0x1fff != 0 {
            return None;
        }
        Some(14 + usize::from(data.get(14)? & 0xf) * 4)
    }

    fn tcp_port_80_checked(data: &[u8]) -> Option<bool> {
        Some(match half(data, 12)? {
            0x86dd => *data.get(20)? == 6 && (half(data, 54)? == 80 || half(data, 56)? == 80),
            0x800 if *data.get(23)? == 6 => {
                let at = transport(data)?;
                half(data, at)? == 80 || half(data, at + 2)? == 80
            }
            _ => false,
        })
    }

    #[inline(never)]
    pub fn tcp_port_80(data: &[u8]) -> bool {
        tcp_port_80_checked(data).unwrap_or(false)
    }

    fn long_checked(data: &[u8]) -> Option<bool> {
        if half(data, 12)? != 0x800 {
            return Some(false);
        }
        let protocol = *data.get(23)?;
        if protocol != 6 && protocol != 17 {
            return Some(false);
        }
        let at = transport(data)?;
        let source = half(data, at)?;
        let ports = match protocol {
            6 if source == 80 || source == 443 => true,
            6 => matches!(half(data, at + 2)?, 80 | 443),
            _ if source == 53 => true,
            _ => half(data, at + 2)? == 53,
        };
        if !ports {
            return Some(false);
        }
        let (from, to) = (word(data, 26)?, word(data, 30)?);
        let nets = from >> 24 == 10 || to >> 16 == 0xc0a8;
        Some(nets && from != 0x0a01_0203 && to != 0x0a01_0203)
    }

    #[inline(never)]
    pub fn long(data: &[u8]) -> bool {
        long_checked(data).unwrap_or(false)
    }
}

/// Ethernet frames of every kind that the expressions distinguish, in random order, 54 to 110 bytes.
fn packets() -> Vec<Vec<u8>> {
    let mut state = Random(0x9e37_79b9_7f4a_7c15);
    let mut random = move |limit| state.below(limit);
    (0..PACKETS)
        .map(|_| {
            let mut packet: Vec<u8> = (0..54 + random(57)).map(|_| random(256) as u8).collect();
            let kind = random(10);
            let protocol = [6, 6, 6, 17, 17, 1][random(6)];
            let ports: [u16; 6] = [80, 443, 53, 8080, 22, 50_000];
            let (from, to) = (
                ports[random(6)].to_be_bytes(),
                ports[random(6)].to_be_bytes(),
            );
            let at = match kind {
                0..=6 => {
                    packet[12..14].copy_from_slice(&[8, 0]);
                    packet[14] = if random(16) == 0 { 0x46 } else { 0x45 };
                    packet[20..22].copy_from_slice(if random(16) == 0 {
                        &[0, 9]
                    } else {
                        &[0x40, 0]
                    });
                    packet[23] = protocol;
                    packet[26] = [10, 172][random(2)];
                    packet[30..32].copy_from_slice(&[[192, 168], [8, 8]][random(2)]);
                    if random(8) == 0 {
                        packet[26..30].copy_from_slice(&[10, 1, 2, 3]);
                    }
                    14 + usize::from(packet[14] & 0xf) * 4
                }
                7 | 8 => {
                    packet[12..14].copy_from_slice(&[0x86, 0xdd]);
                    packet[20] = protocol;
                    54
                }
                _ => {
                    packet[12..14].copy_from_slice(&[8, 6]);
                    return packet;
                }
            };
            if packet.len() >= at + 4 {
                packet[at..at + 2].copy_from_slice(&from);
                packet[at + 2..at + 4].copy_from_slice(&to);
            }
            packet
        })
        .collect()
}
