//! Rule lists of several lengths over frames in memory, without locality.

use crate::Size;
use crate::clock::{Samples, time};
use crate::report::Report;
use std::fmt::Write;
use weir_firewall::rules::{Action, Rule, RuleList};
use weir_firewall::{Around, Classifier, Content, Counters, Fields, Found, Verdict};
use weir_packet::flow::Parser;
use weir_packet::{Frame, LinkType};

/// Bytes of a frame: Ethernet, IPv4, TCP or UDP.
const FRAME: usize = 60;

/// Frames of a batch, as between interfaces.
const BATCH: usize = 32;

/// Frames that the linear scan judges.
const SCANNED: usize = 20_000;

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn below(&mut self, most: u64) -> u64 {
        self.next() % most
    }
}

/// Families of rule lists, with the shares of prefix lengths and ports that filters of each kind have. **Source**: Taylor and Turner,
/// ClassBench (INFOCOM 2005): access lists name destinations and ports, firewalls have wide fields, IP chains are between both.
#[derive(Clone, Copy, Debug)]
enum Family {
    Acl,
    Firewall,
    Chain,
}

impl Family {
    fn name(self) -> &'static str {
        match self {
            Self::Acl => "acl",
            Self::Firewall => "fw",
            Self::Chain => "ipc",
        }
    }

    /// Lengths of prefixes of source and destination that a rule chooses from.
    fn lengths(self) -> ([u32; 4], [u32; 4]) {
        match self {
            Self::Acl => ([0, 16, 24, 32], [24, 28, 32, 32]),
            Self::Firewall => ([0, 0, 16, 24], [0, 16, 24, 32]),
            Self::Chain => ([16, 24, 28, 32], [16, 24, 32, 32]),
        }
    }
}

/// A rule list as text, and frames of which most match one of its rules.
fn make(family: Family, rules: usize, frames: usize) -> (String, Vec<u8>) {
    let mut random = Random(rules as u64 * 31 + family as u64);
    let (mut text, mut targets) = (String::new(), Vec::new());
    let (sources, destinations) = family.lengths();
    for number in 0..rules {
        // Addresses share their upper halves, so that prefixes nest.
        let mut address = || (random.below(40) * 0x0107_0000 + 0x0a00_0000) as u32 | random.below(1 << 16) as u32;
        let (src, dst) = (address(), address());
        let prefix = |address: u32, length: u32| if length == 0 { 0 } else { address & (u32::MAX << (32 - length)) };
        let (src_length, dst_length) = (sources[random.below(4) as usize], destinations[random.below(4) as usize]);
        let proto = if random.below(10) < 7 { "tcp" } else { "udp" };
        let port = [22, 25, 53, 80, 110, 123, 443, 8080][random.below(8) as usize] + random.below(4);
        let ports = match random.below(4) {
            0 => format!("dport {port}-{}", port + random.below(2000)),
            1 => "dport 1024-65535".to_owned(),
            _ => format!("dport {port}"),
        };
        let action = if number % 3 == 0 { "pass" } else { "drop" };
        let shown = |address: u32| std::net::Ipv4Addr::from(address);
        let _ = writeln!(
            text,
            "{action} {proto} src {}/{src_length} dst {}/{dst_length} {ports}",
            shown(prefix(src, src_length)),
            shown(prefix(dst, dst_length)),
        );
        targets.push((src, dst, if proto == "tcp" { 6 } else { 17 }, port as u16));
    }
    let mut bytes = Vec::with_capacity(frames * FRAME);
    for _ in 0..frames {
        let &(src, dst, proto, port) = &targets[random.below(targets.len() as u64) as usize];
        // The host part is any, and one of four frames is of nobody.
        let (src, dst) = match random.below(4) {
            0 => (random.next() as u32, random.next() as u32),
            _ => (src ^ random.below(256) as u32, dst),
        };
        frame(&mut bytes, (src, dst), proto, (1024 + random.below(60_000) as u16, port));
    }
    (text, bytes)
}

fn frame(bytes: &mut Vec<u8>, (src, dst): (u32, u32), proto: u8, (sport, dport): (u16, u16)) {
    let start = bytes.len();
    bytes.extend([2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, proto, 0, 0]);
    bytes.extend(src.to_be_bytes());
    bytes.extend(dst.to_be_bytes());
    bytes.extend(sport.to_be_bytes());
    bytes.extend(dport.to_be_bytes());
    bytes.resize(start + FRAME, 0x50);
}

pub fn run(size: Size, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    report.heading("Rule lists");
    report.line("Frames of 60 bytes in memory, distinct flows, no locality; ns a frame from its bytes to its verdict and counters.");
    report.line("");
    let frames = if size == Size::Full { 1_000_000 } else { 20_000 };
    let mut rows = Vec::new();
    let lengths: &[usize] = if size == Size::Full { &[10, 1_000, 10_000] } else { &[10, 1_000] };
    for &rules in lengths {
        for family in [Family::Acl, Family::Firewall, Family::Chain] {
            let (text, bytes) = make(family, rules, frames);
            rows.push(judge(&format!("{} {rules}", family.name()), &text, &bytes, rounds, report)?);
        }
    }
    let prefixes = if size == Size::Full { 1_000_000 } else { 10_000 };
    let (text, bytes) = set(prefixes, frames);
    let row = judge(&format!("set of {prefixes}, protocol"), &text, &bytes, rounds, report)?;
    rows.push(row);
    let table: Vec<Vec<String>> = rows.iter().map(|(cells, _)| cells.clone()).collect();
    report.table(&["rules", "ns a frame", "min - max", "Mpps", "denied", "linear scan", "of the scan"], &table);
    if size == Size::Full {
        let mpps = rows.last().map_or(0.0, |(_, ns)| 1e3 / ns);
        report.bar("source set of 1 M and protocol, one core", "25 Mpps", &format!("{mpps:.1} Mpps"), mpps >= 25.0);
    }
    Ok(())
}

/// A set of addresses and short prefixes, half of whose members send a frame now and then.
fn set(prefixes: usize, frames: usize) -> (String, Vec<u8>) {
    let mut random = Random(5);
    let mut text = "set banned".to_owned();
    let members: Vec<u32> = (0..prefixes).map(|_| random.next() as u32 & !0xff | 1 << 24).collect();
    for (i, member) in members.iter().enumerate() {
        if i % 1000 == 999 {
            text.push_str("\nset banned");
        }
        let _ = write!(text, " {}/{}", std::net::Ipv4Addr::from(*member), 24 + i % 2 * 4);
    }
    text.push_str("\ndrop tcp src $banned\n");
    let mut bytes = Vec::with_capacity(frames * FRAME);
    for _ in 0..frames {
        let source = match random.below(2) {
            0 => random.next() as u32,
            _ => members[random.below(members.len() as u64) as usize] | random.below(32) as u32,
        };
        frame(&mut bytes, (source, random.next() as u32), if random.below(4) == 0 { 17 } else { 6 }, (1, 2));
    }
    (text, bytes)
}

fn judge(
    case: &str,
    text: &str,
    bytes: &[u8],
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<(Vec<String>, f64)> {
    let list = RuleList::parse(text, &mut |_| Err(std::io::ErrorKind::NotFound.into()))?;
    let classifier = Classifier::new(list)?;
    let parser = Parser::new(LinkType::ETHERNET, false).expect("weir reads Ethernet");
    let frames = || bytes.chunks_exact(FRAME);
    let mut by_scan = 0;
    let scanned = frames().len().min(SCANNED);
    let (verdicts, elapsed) = time(|| {
        let verdict = |frame: &[u8]| scan(classifier.list(), frame, &mut by_scan);
        frames().take(scanned).map(verdict).collect::<Vec<_>>()
    });
    let scan_ns = elapsed.cpu * 1e9 / scanned as f64;
    let (mut samples, mut denied) = (Samples::default(), 0);
    for round in 0..rounds {
        let mut counters = Counters::new(classifier.list().rules.len());
        let mut same = true;
        let ((), elapsed) = time(|| {
            let (mut fields, mut found) = ([Fields::without_ip(Content::NonIp); BATCH], [Found::default(); BATCH]);
            for batch in bytes.chunks(BATCH * FRAME) {
                let frames = batch.chunks_exact(FRAME);
                let count = frames.len();
                fields.iter_mut().zip(frames).for_each(|(fields, data)| *fields = Fields::of(&parser, data));
                classifier.look_up(&fields[..count], &mut found[..count]);
                for ((data, fields), found) in batch.chunks_exact(FRAME).zip(&fields).zip(found) {
                    let frame = Frame { data, wire_len: FRAME as u32, interface: 0 };
                    classifier.judge_found(
                        found,
                        fields,
                        &Around::of(frame),
                        &mut counters,
                    );
                }
            }
        });
        samples.add(elapsed, frames().len());
        denied = counters.denied.packets;
        if round == 0 {
            let mut again = Counters::new(classifier.list().rules.len());
            for (data, wanted) in frames().zip(&verdicts) {
                let around = Around::of(Frame { data, wire_len: FRAME as u32, interface: 0 });
                same &= classifier.judge(&Fields::of(&parser, data), &around, &mut again).0 == *wanted;
            }
        }
        if !same {
            report.wrong(&format!("{case}: another verdict than that of the linear scan"));
        }
        let ns = format!("{:.2}", samples.cpu[round]);
        report.raw(&["lists", case, "weir", &(round + 1).to_string(), &ns, &denied.to_string()]);
    }
    let [median, range, _] = samples.cells();
    let cells = vec![
        case.to_owned(),
        median,
        range,
        format!("{:.1}", 1e3 / samples.median()),
        denied.to_string(),
        format!("{scan_ns:.0} ns"),
        format!("{:.1}x", scan_ns / samples.median()),
    ];
    Ok((cells, samples.median()))
}

/// The first rule that matches, one after another, with the fields taken from fixed places. `looked` counts rules.
fn scan(list: &RuleList, frame: &[u8], looked: &mut u64) -> Verdict {
    let address = |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let within = |ranges: &Option<Vec<(u16, u16)>>, port: u16| {
        ranges.as_ref().is_none_or(|ranges| ranges.iter().any(|(first, last)| (*first..=*last).contains(&port)))
    };
    let has = |set: &Option<std::sync::Arc<weir_firewall::Addresses>>, address: u32| {
        set.as_ref().is_none_or(|set| {
            let behind = set.v4().partition_point(|range| range.0 <= address);
            behind > 0 && address <= set.v4()[behind - 1].1
        })
    };
    let protocol = frame[23];
    let matches = |rule: &&Rule| {
        *looked += 1;
        rule.proto.is_none_or(|set| set[usize::from(protocol / 64)] >> (protocol % 64) & 1 == 1)
            && has(&rule.src, address(26))
            && has(&rule.dst, address(30))
            && within(&rule.sport, port(34))
            && within(&rule.dport, port(36))
    };
    match list.rules.iter().find(matches).map(|rule| rule.action) {
        Some(Action::Decide(verdict)) => verdict,
        _ => list.default,
    }
}
