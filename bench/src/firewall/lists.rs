//! Rule lists of several lengths over frames in memory, without locality, against DPDK's classifiers if they were built in.

use crate::Size;
use crate::clock::{Samples, time};
use crate::report::Report;
use std::fmt::Write;
use weir_firewall::rules::{Action, Rule, RuleList};
use weir_firewall::{Around, Classifier, Content, Counters, Fields, Found, Verdict};
use weir_memory::prefetch;
use weir_packet::flow::Parser;
use weir_packet::{Frame, LinkType};

/// Bytes of a frame: Ethernet, IPv4, TCP or UDP.
pub const FRAME: usize = 60;

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
        let mut address =
            || (random.below(40) * 0x0107_0000 + 0x0a00_0000) as u32 | random.below(1 << 16) as u32;
        let (src, dst) = (address(), address());
        let prefix = |address: u32, length: u32| {
            if length == 0 {
                0
            } else {
                address & (u32::MAX << (32 - length))
            }
        };
        let (src_length, dst_length) = (
            sources[random.below(4) as usize],
            destinations[random.below(4) as usize],
        );
        let proto = if random.below(10) < 7 { "tcp" } else { "udp" };
        let port =
            [22, 25, 53, 80, 110, 123, 443, 8080][random.below(8) as usize] + random.below(4);
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
        frame(
            &mut bytes,
            (src, dst),
            proto,
            (1024 + random.below(60_000) as u16, port),
        );
    }
    (text, bytes)
}

fn frame(bytes: &mut Vec<u8>, (src, dst): (u32, u32), proto: u8, (sport, dport): (u16, u16)) {
    let start = bytes.len();
    bytes.extend([
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, proto, 0, 0,
    ]);
    bytes.extend(src.to_be_bytes());
    bytes.extend(dst.to_be_bytes());
    bytes.extend(sport.to_be_bytes());
    bytes.extend(dport.to_be_bytes());
    bytes.resize(start + FRAME, 0x50);
}

/// Verdicts of all frames.
#[derive(Debug, PartialEq, Eq)]
pub struct Answer {
    /// Frames that were dropped.
    pub denied: u64,
    /// Frames by the rule that decided.
    pub by_rule: Vec<u64>,
}

/// Another classifier, for the same list and the same frames.
pub trait Rival {
    /// Name.
    fn name(&self) -> &'static str;

    /// Verdicts on the first frames.
    fn verdicts(&mut self, frames: usize) -> Vec<Verdict>;

    /// Finds the rules of all frames, whose fields were read before.
    fn rules_alone(&mut self, batch: usize);

    /// Goes from the bytes of the frames to verdicts and counters, as weir does.
    fn judge(&mut self, bytes: &[u8], batch: usize) -> Answer;
}

/// Frames of a batch of the rivals.
const BATCHES: [usize; 2] = [BATCH, 256];

/// The rival for rule lists; `None` if none was built in.
fn by_acl(list: &RuleList, bytes: &[u8]) -> anyhow::Result<Option<Box<dyn Rival>>> {
    #[cfg(feature = "dpdk")]
    return Ok(Some(Box::new(super::by_dpdk::ByAcl::new(list, bytes)?)));
    #[cfg(not(feature = "dpdk"))]
    return Ok((list, bytes, None).2);
}

/// The rival for prefixes; `None` if none was built in.
fn by_lpm(prefixes: &[(u32, u32)], bytes: &[u8]) -> anyhow::Result<Option<Box<dyn Rival>>> {
    #[cfg(feature = "dpdk")]
    return Ok(Some(Box::new(super::by_dpdk::ByLpm::new(prefixes, bytes)?)));
    #[cfg(not(feature = "dpdk"))]
    return Ok((prefixes, bytes, None).2);
}

/// Result of a case.
struct Row {
    case: String,
    weir: Samples,
    weir_alone: Samples,
    scan_ns: f64,
    denied: u64,
    /// Wall time of compiling the list, ms, and bytes of its tables.
    compiled: (f64, usize),
    /// Name, medians of the whole work with both batches, and median of the rules alone, ns.
    rival: Option<(&'static str, [f64; 2], f64)>,
}

pub fn run(size: Size, rounds: usize, only: &str, report: &mut Report) -> anyhow::Result<()> {
    report.heading("Rule lists");
    report.line("Frames of 60 bytes in memory, distinct flows, no locality; ns a frame from its bytes to its verdict and counters.");
    report.line("Rules alone: fields were read before; weir's are counted too.");
    if cfg!(not(feature = "dpdk")) {
        report.line("DPDK's rte_acl and rte_lpm are missing: built without the feature `dpdk`.");
    }
    report.line("");
    let frames = if size == Size::Full {
        1_000_000
    } else {
        20_000
    };
    let mut rows = Vec::new();
    let is_asked_for = |case: &str| format!("lists {case}").starts_with(only);
    let lengths: &[usize] = if size == Size::Full {
        &[10, 1_000, 10_000]
    } else {
        &[10, 1_000]
    };
    for &rules in lengths {
        for family in [Family::Acl, Family::Firewall, Family::Chain] {
            let case = format!("{} {rules}", family.name());
            if is_asked_for(&case) {
                let (text, bytes) = make(family, rules, frames);
                let list = list(&text)?;
                let rival = by_acl(&list, &bytes)?;
                rows.push(judge(&case, list, &bytes, rival, rounds, report)?);
            }
        }
    }
    let prefixes = if size == Size::Full {
        1_000_000
    } else {
        10_000
    };
    let case = format!("set of {prefixes}, protocol");
    if is_asked_for(&case) {
        let (text, bytes) = set(&members(prefixes, &[24, 28]), frames);
        let row = judge(&case, list(&text)?, &bytes, None, rounds, report)?;
        if size == Size::Full {
            let mpps = 1e3 / row.weir.median();
            let found = format!("{mpps:.1} Mpps");
            report.bar(
                "source set of 1 M and protocol, one core",
                "25 Mpps",
                &found,
                mpps >= 25.0,
            );
        }
        rows.push(row);
    }
    let case = format!("{prefixes} prefixes of 20 to 28 bits, protocol");
    if is_asked_for(&case) {
        let members = members(prefixes, &[20, 21, 22, 23, 24, 26, 28]);
        let (text, bytes) = set(&members, frames);
        let rival = by_lpm(&members, &bytes)?;
        rows.push(judge(&case, list(&text)?, &bytes, rival, rounds, report)?);
    }
    tables(&rows, size, report);
    Ok(())
}

fn list(text: &str) -> anyhow::Result<RuleList> {
    Ok(RuleList::parse(text, &mut |_| {
        Err(std::io::ErrorKind::NotFound.into())
    })?)
}

fn tables(rows: &[Row], size: Size, report: &mut Report) {
    let table: Vec<Vec<String>> = rows
        .iter()
        .map(|row| {
            let [median, range, _] = row.weir.cells();
            let mpps = format!("{:.1}", 1e3 / row.weir.median());
            let scan = format!("{:.0} ns", row.scan_ns);
            let of_scan = format!("{:.1}x", row.scan_ns / row.weir.median());
            let (ms, bytes) = row.compiled;
            let (ms, mib) = (
                format!("{ms:.0} ms"),
                format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
            );
            vec![
                row.case.clone(),
                median,
                range,
                mpps,
                row.denied.to_string(),
                scan,
                of_scan,
                ms,
                mib,
            ]
        })
        .collect();
    let head = [
        "rules",
        "ns a frame",
        "min - max",
        "Mpps",
        "denied",
        "linear scan",
        "of the scan",
        "compiled in",
        "tables",
    ];
    report.table(&head, &table);
    let mut against = Vec::new();
    for row in rows {
        let Some((name, whole, alone)) = row.rival else {
            continue;
        };
        let speed = whole[0].min(whole[1]) / row.weir.median();
        against.push(vec![
            row.case.clone(),
            name.to_owned(),
            format!("{:.1} ns", row.weir.median()),
            format!("{:.1} ns", whole[0]),
            format!("{:.1} ns", whole[1]),
            format!("{speed:.2}x"),
            format!("{:.1} ns", row.weir_alone.median()),
            format!("{alone:.1} ns"),
        ]);
        if size == Size::Full {
            let what = format!("{}, of the speed of {name}", row.case);
            report.bar(&what, "1x", &format!("{speed:.2}x"), speed >= 1.0);
        }
    }
    if !against.is_empty() {
        report.line("");
        let head = [
            "rules",
            "rival",
            "weir",
            "by 32",
            "by 256",
            "weir is",
            "weir's rules alone",
            "the rival's",
        ];
        report.table(&head, &against);
    }
}

/// Random prefixes of these lengths in turn.
fn members(prefixes: usize, lengths: &[u32]) -> Vec<(u32, u32)> {
    let mut random = Random(5);
    let lengths = lengths.iter().cycle();
    lengths
        .take(prefixes)
        .map(|&bits| {
            (
                (random.next() as u32 | 1 << 24) & u32::MAX << (32 - bits.min(24)),
                bits,
            )
        })
        .collect()
}

/// A set of prefixes, and frames of which every other one comes from near a member.
fn set(members: &[(u32, u32)], frames: usize) -> (String, Vec<u8>) {
    let mut random = Random(6);
    let mut text = "set banned".to_owned();
    for (i, (member, bits)) in members.iter().enumerate() {
        if i % 1000 == 999 {
            text.push_str("\nset banned");
        }
        let _ = write!(text, " {}/{bits}", std::net::Ipv4Addr::from(*member));
    }
    text.push_str("\ndrop tcp src $banned\n");
    let mut bytes = Vec::with_capacity(frames * FRAME);
    for _ in 0..frames {
        let source = match random.below(2) {
            0 => random.next() as u32,
            _ => members[random.below(members.len() as u64) as usize].0 | random.below(32) as u32,
        };
        frame(
            &mut bytes,
            (source, random.next() as u32),
            if random.below(4) == 0 { 17 } else { 6 },
            (1, 2),
        );
    }
    (text, bytes)
}

/// Measures weir and the rival in turn, after all verdicts were compared.
fn judge(
    case: &str,
    list: RuleList,
    bytes: &[u8],
    mut rival: Option<Box<dyn Rival>>,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<Row> {
    let begun = std::time::Instant::now();
    let classifier = Classifier::new(list)?;
    let compiled_ms = begun.elapsed().as_secs_f64() * 1e3;
    let parser = Parser::new(LinkType::ETHERNET, false).expect("weir reads Ethernet");
    let frames = || bytes.chunks_exact(FRAME);
    let mut by_scan = 0;
    let scanned = frames().len().min(SCANNED);
    let (verdicts, elapsed) = time(|| {
        let verdict = |frame: &[u8]| scan(classifier.list(), frame, &mut by_scan);
        frames().take(scanned).map(verdict).collect::<Vec<_>>()
    });
    let scan_ns = elapsed.cpu * 1e9 / scanned as f64;
    let fields: Vec<Fields> = frames().map(|data| Fields::of(&parser, data)).collect();
    let mut again = Counters::new(classifier.list().rules.len());
    let same = frames()
        .zip(&fields)
        .zip(&verdicts)
        .all(|((data, fields), wanted)| {
            let around = Around::of(Frame {
                data,
                wire_len: FRAME as u32,
                interface: 0,
            });
            classifier.judge(fields, &around, &mut again).0 == *wanted
        });
    if !same {
        report.wrong(&format!(
            "{case}: another verdict than that of the linear scan"
        ));
    }
    let answer = |counters: &Counters| Answer {
        denied: counters.denied.packets,
        by_rule: counters
            .rules
            .iter()
            .map(|count| count.all.packets)
            .collect(),
    };
    let wanted = answer(&by_weir(&classifier, &parser, bytes));
    if let Some(rival) = &mut rival {
        let is_alike = |found: Answer| found == wanted;
        if rival.verdicts(scanned) != verdicts
            || !BATCHES
                .iter()
                .all(|&batch| is_alike(rival.judge(bytes, batch)))
        {
            report.wrong(&format!("{case}: {} says something else", rival.name()));
        }
    }
    let (mut weir, mut weir_alone, mut alone) =
        (Samples::default(), Samples::default(), Samples::default());
    let mut whole = [Samples::default(), Samples::default()];
    let steps = frames().len();
    for round in 0..rounds {
        let mut keep = |who: &str, samples: &mut Samples, elapsed| {
            samples.add(elapsed, steps);
            let ns = format!("{:.2}", samples.cpu[round]);
            report.raw(&[
                "lists",
                case,
                who,
                &(round + 1).to_string(),
                &ns,
                &wanted.denied.to_string(),
            ]);
        };
        let (counters, elapsed) = time(|| by_weir(&classifier, &parser, bytes));
        keep("weir", &mut weir, elapsed);
        let mut is_same = answer(&counters) == wanted;
        if let Some(rival) = &mut rival {
            for (batch, samples) in BATCHES.into_iter().zip(&mut whole) {
                let (found, elapsed) = time(|| rival.judge(bytes, batch));
                keep(&format!("{} by {batch}", rival.name()), samples, elapsed);
                is_same &= found == wanted;
            }
            let (counters, elapsed) = time(|| by_weir_alone(&classifier, &fields, bytes));
            keep("weir, rules alone", &mut weir_alone, elapsed);
            is_same &= answer(&counters) == wanted;
            let ((), elapsed) = time(|| rival.rules_alone(BATCHES[1]));
            keep(
                &format!("{}, rules alone", rival.name()),
                &mut alone,
                elapsed,
            );
        }
        if !is_same {
            report.wrong(&format!("{case}: another answer in round {}", round + 1));
        }
    }
    let compiled = (compiled_ms, classifier.bytes());
    let rival = rival.map(|rival| {
        (
            rival.name(),
            [whole[0].median(), whole[1].median()],
            alone.median(),
        )
    });
    Ok(Row {
        case: case.to_owned(),
        weir,
        weir_alone,
        scan_ns,
        denied: wanted.denied,
        compiled,
        rival,
    })
}

/// Judges and counts all frames.
fn by_weir(classifier: &Classifier, parser: &Parser, bytes: &[u8]) -> Counters {
    let mut counters = Counters::new(classifier.list().rules.len());
    let mut fields = [Fields::without_ip(Content::NonIp); BATCH];
    for batch in bytes.chunks(BATCH * FRAME) {
        let frames = batch.chunks_exact(FRAME);
        let count = frames.len();
        // The headers of the frames after, which would be on their way from the ring.
        (0..count).for_each(|i| prefetch(batch, (count + i) * FRAME));
        for (fields, data) in fields.iter_mut().zip(frames) {
            fields.read(parser, data);
        }
        judge_batch(classifier, &fields[..count], batch, &mut counters);
    }
    counters
}

/// Judges and counts frames whose fields are known.
fn by_weir_alone(classifier: &Classifier, fields: &[Fields], bytes: &[u8]) -> Counters {
    let mut counters = Counters::new(classifier.list().rules.len());
    for (fields, batch) in fields.chunks(BATCH).zip(bytes.chunks(BATCH * FRAME)) {
        judge_batch(classifier, fields, batch, &mut counters);
    }
    counters
}

fn judge_batch(classifier: &Classifier, fields: &[Fields], batch: &[u8], counters: &mut Counters) {
    let mut found = [Found::default(); BATCH];
    classifier.look_up(fields, &mut found[..fields.len()]);
    for ((data, fields), found) in batch.chunks_exact(FRAME).zip(fields).zip(found) {
        let frame = Frame {
            data,
            wire_len: FRAME as u32,
            interface: 0,
        };
        classifier.judge_found(found, fields, &Around::of(frame), counters);
    }
}

/// The first rule that matches, one after another, with the fields taken from fixed places. `looked` counts rules.
fn scan(list: &RuleList, frame: &[u8], looked: &mut u64) -> Verdict {
    let address =
        |at: usize| u32::from_be_bytes([frame[at], frame[at + 1], frame[at + 2], frame[at + 3]]);
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    let within = |ranges: &Option<Vec<(u16, u16)>>, port: u16| {
        ranges.as_ref().is_none_or(|ranges| {
            ranges
                .iter()
                .any(|(first, last)| (*first..=*last).contains(&port))
        })
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
        rule.proto
            .is_none_or(|set| set[usize::from(protocol / 64)] >> (protocol % 64) & 1 == 1)
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
