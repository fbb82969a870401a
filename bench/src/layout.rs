//! The alignment study: filters over packets in memory, laid out at several alignments.
//!
//! **Source**: Pudelko, Emmerich, Carle, Effects of Unaligned Memory Access on the Performance of
//! Packet Analyzers, 2017, and the program published with it. As there: packets of random sizes in
//! one buffer, an index of their places, a filter that rejects almost all of them after reading two
//! to four fields. Otherwise than there: the record is that of weir's ring, with 16 bytes of header
//! instead of 8; the buffer is packed again for each layout, so that every layout has the same
//! packets; 128 is a further layout; the walk is also measured without an index, and with
//! prefetching; pages come from several policies.

use crate::Size;
use crate::clock::{Samples, time};
use crate::plot::{self, Scale};
use crate::report::Report;
use crate::rivals::median;
use std::hint::black_box;
use weir_filter::{Filter, interpreter};
use weir_generator::{FRAME_MAX, Generator, Profile, Sizes};
use weir_memory::{Available, Policy, Region, Request, prefetch};
use weir_packet::savefile::Record;
use weir_packet::{Frame, LinkType};
use weir_store::record::{self, Shape};

/// Columns of the raw data.
pub const RAW: &str = "policy,sizes,filter,walk,layout,round,wall_ns,cpu_ns,matches";

/// Layouts: alignment, and whether two bytes are in front. The first is the base.
const LAYOUTS: [(u32, bool); 11] = [
    (1, false),
    (2, false),
    (4, false),
    (8, false),
    (16, false),
    (32, false),
    (64, false),
    (128, false),
    (4, true),
    (8, true),
    (64, true),
];

const POLICIES: [Policy; 3] = [Policy::Virtual, Policy::Thp, Policy::Hugetlb2M];

/// Packets that are judged at once, and the distance of prefetching: those of the ring's scan.
const BATCH: usize = 32;
const AHEAD: usize = 16;

/// Length of headers that the study's program writes; the rest of a packet is zero.
const TEMPLATE: usize = 48;

/// An experiment of the study: a filter, and the fields that vary so that it accepts a known share.
struct Experiment {
    name: &'static str,
    expression: &'static str,
    accepts: &'static str,
    vary: fn(&mut [u8], u64),
}

const EXPERIMENTS: [Experiment; 3] = [
    Experiment {
        name: "ethertype",
        expression: "ether proto 0x86dd",
        accepts: "1/1001",
        vary: |frame, random| {
            if random.is_multiple_of(1001) {
                frame[12..14].copy_from_slice(&[0x86, 0xdd]);
            }
        },
    },
    Experiment {
        name: "address",
        expression: "dst host 0.0.0.0",
        accepts: "1/256",
        vary: |frame, random| frame[30..34].copy_from_slice(&[random as u8, 0, 0, 0]),
    },
    Experiment {
        name: "address and port",
        expression: "dst host 0.0.0.0 and udp port 0",
        accepts: "1/512",
        vary: |frame, random| {
            frame[30..34].copy_from_slice(&[random as u8 % 32, 0, 0, 0]);
            frame[36..38].copy_from_slice(&[0, (random >> 8) as u8 % 16]);
        },
    },
];

/// Way from one packet to the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Walk {
    /// By an index of all places, as the study.
    Index,
    /// By the index, and the packets ahead are fetched into the cache.
    Ahead,
    /// By the length of the packet before.
    Chain,
}

impl Walk {
    const ALL: [Self; 3] = [Self::Index, Self::Ahead, Self::Chain];

    fn name(self) -> &'static str {
        match self {
            Self::Index => "index",
            Self::Ahead => "index, prefetched",
            Self::Chain => "chain",
        }
    }
}

/// Times of a layout, by walk.
type Times = [Samples; 3];

/// Times of each layout, by pattern of sizes.
type Found<'a> = Vec<(&'a str, Vec<Times>)>;

/// Runs the study.
pub fn run(
    size: Size,
    rounds: usize,
    bytes: Option<u64>,
    report: &mut Report,
) -> anyhow::Result<()> {
    let free = Available::now().map_or(1 << 30, |free| free.bytes);
    let bytes = bytes
        .unwrap_or(if size == Size::Full { 1 << 30 } else { 4 << 20 })
        .min(free / 4) as usize;
    let patterns = [
        ("MWN", Sizes::Mwn),
        ("uniform", Sizes::Uniform),
        ("64 bytes", Sizes::Fixed(64)),
    ];
    report.line(&format!(
        "- a buffer of {} MiB; one thread, its processor time",
        bytes >> 20
    ));
    let shapes: Vec<Shape> = LAYOUTS
        .iter()
        .filter_map(|&(align, pad)| Shape::new(align, pad))
        .collect();
    let mut drawn = Vec::new();
    for (name, sizes) in patterns {
        drawn.push((name, lengths(sizes, bytes)?));
    }
    efficiency(&shapes, &drawn, report);
    let mut all = Vec::new();
    for policy in POLICIES {
        let request = Request {
            pages: policy,
            populate: true,
            ..Request::default()
        };
        let mut region = match Region::zeroed(bytes, &request) {
            Ok(region) => region,
            Err(error) => {
                report.heading(&format!("Pages: {policy}"));
                report.line(&format!("not to be had: {error}"));
                continue;
            }
        };
        report.heading(&format!("Pages: {policy} ({})", region.obtained()));
        let mut found = Vec::new();
        for (sizes, lengths) in &drawn {
            let mut times = measure(
                policy,
                (sizes, lengths),
                &shapes,
                &mut region,
                rounds,
                report,
            )?;
            // The study's Figure 3 shows the last experiment.
            found.push((*sizes, times.swap_remove(EXPERIMENTS.len() - 1)));
        }
        picture(policy, &shapes, &found, report);
        findings(policy, &shapes, &found, &drawn, report);
        all.push((policy.to_string(), found));
    }
    conclude(&shapes, &drawn, &all, report);
    Ok(())
}

/// Lengths of as many packets as have room at the widest layout.
fn lengths(sizes: Sizes, bytes: usize) -> anyhow::Result<Vec<u16>> {
    let mut generator = Generator::new(&Profile {
        sizes,
        packets: u64::MAX,
        ..Profile::default()
    })?;
    let (mut buffer, mut lengths, mut used) = ([0; FRAME_MAX], Vec::new(), 0);
    while let Some(generated) = generator.next(&mut buffer) {
        used += record::max_len(generated.len).next_multiple_of(128) + 128;
        if used > bytes {
            break;
        }
        lengths.push(generated.len as u16);
    }
    Ok(lengths)
}

/// Packs all packets into the buffer, and returns their places.
fn pack(shape: Shape, lengths: &[u16], buffer: &mut [u8]) -> Vec<u32> {
    let frame = vec![0; FRAME_MAX];
    let (mut at, mut places) = (0, Vec::with_capacity(lengths.len()));
    for &len in lengths {
        at = shape.place(at);
        let data = &frame[..usize::from(len)];
        let packet = Record {
            time_ns: Some(0),
            frame: Frame {
                data,
                wire_len: len.into(),
                interface: 0,
            },
            options: Default::default(),
        };
        places.push(at as u32);
        at += record::write(&mut buffer[at..], 0, None, &packet);
    }
    places
}

/// Writes the headers of an experiment into packed packets.
fn fill(vary: fn(&mut [u8], u64), places: &[u32], buffer: &mut [u8]) {
    let mut state = 0;
    for &at in places {
        state = mix(state);
        let frame = &mut buffer[at as usize + record::HEADER..];
        template(frame);
        vary(frame, state);
    }
}

/// UDP over IPv4 from 10.0.0.1, ports 1234 to 5678; the lengths of the headers are not kept up.
fn template(frame: &mut [u8]) {
    frame[..TEMPLATE].fill(0);
    frame[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..30].copy_from_slice(&[10, 0, 0, 1]);
    frame[34..38].copy_from_slice(&[0x04, 0xd2, 0x16, 0x2e]);
}

/// SplitMix64's output function.
fn mix(x: u64) -> u64 {
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb)
}

/// Number of packets that match.
fn walk(way: Walk, filter: &Filter, shape: Shape, buffer: &[u8], places: &[u32]) -> u64 {
    let mut frames = [Frame {
        data: &[],
        wire_len: 0,
        interface: 0,
    }; BATCH];
    let (mut matches, mut at) = (0, shape.place(0));
    for begin in (0..places.len()).step_by(BATCH) {
        let count = BATCH.min(places.len() - begin);
        for (frame, index) in frames[..count].iter_mut().zip(begin..) {
            if way != Walk::Chain {
                at = places[index] as usize;
            }
            if way == Walk::Ahead
                && let Some(&ahead) = places.get(index + AHEAD)
            {
                prefetch(buffer, ahead as usize);
            }
            *frame = record::frame(&buffer[at..]).expect("packed above");
            if way == Walk::Chain {
                at = shape.place(at + record::HEADER + frame.data.len());
            }
        }
        matches += u64::from(filter.matches(&frames[..count]).count_ones());
    }
    matches
}

/// Times of each layout for each experiment, in the order of [`EXPERIMENTS`].
///
/// Layouts begin elsewhere in each round, and so do walks: none always finds the caches as the same neighbour left them.
fn measure(
    policy: Policy,
    (sizes, lengths): (&str, &[u16]),
    shapes: &[Shape],
    region: &mut Region,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<Vec<Vec<Times>>> {
    let mut judges = Vec::new();
    for experiment in &EXPERIMENTS {
        let filter = Filter::compile(experiment.expression, LinkType::ETHERNET, false)?;
        filter.make_native();
        let expected = naive(&filter, lengths, experiment.vary);
        judges.push((experiment, filter, expected));
    }
    let mut times = vec![vec![Times::default(); shapes.len()]; judges.len()];
    // The first round is not counted.
    for round in 0..=rounds {
        for layout in (0..shapes.len()).map(|turn| (turn + round) % shapes.len()) {
            let shape = shapes[layout];
            let places = pack(shape, lengths, region.bytes_mut());
            for ((experiment, filter, expected), times) in judges.iter().zip(&mut times) {
                fill(experiment.vary, &places, region.bytes_mut());
                for turn in 0..Walk::ALL.len() {
                    let place = (turn + round) % Walk::ALL.len();
                    let way = Walk::ALL[place];
                    let buffer = black_box(region.bytes());
                    let (matches, elapsed) = time(|| walk(way, filter, shape, buffer, &places));
                    if matches != *expected {
                        report.wrong(&format!(
                            "{shape}, {}: {matches} matches of {expected}",
                            way.name()
                        ));
                    }
                    if round == 0 {
                        continue;
                    }
                    let samples = &mut times[layout][place];
                    samples.add(elapsed, lengths.len());
                    let ns = [samples.wall[round - 1], samples.cpu[round - 1]]
                        .map(|ns| format!("{ns:.3}"));
                    let (policy, shape, matches) =
                        (policy.to_string(), shape.to_string(), matches.to_string());
                    let number = round.to_string();
                    report.raw(&[
                        &policy,
                        sizes,
                        experiment.name,
                        way.name(),
                        &shape,
                        &number,
                        &ns[0],
                        &ns[1],
                        &matches,
                    ]);
                }
            }
        }
    }
    for ((experiment, _, expected), times) in judges.iter().zip(&times) {
        report.line(&format!(
            "\n{sizes}, {} packets, `{}`, accepts {} (here {expected} packets: the interpreter says the same)\n",
            lengths.len(),
            experiment.expression,
            experiment.accepts,
        ));
        show(shapes, times, report);
    }
    Ok(times)
}

/// Number of packets that match, judged one by one by the interpreter, in no buffer.
fn naive(filter: &Filter, lengths: &[u16], vary: fn(&mut [u8], u64)) -> u64 {
    let (mut frame, mut state) = (vec![0; FRAME_MAX], 0);
    let matches = lengths.iter().filter(|&&len| {
        state = mix(state);
        template(&mut frame);
        vary(&mut frame, state);
        interpreter::run(filter.program(), &frame[..usize::from(len)], len.into()) != 0
    });
    matches.count() as u64
}

/// Gains over the base layout, round by round: 0.15 is 15 % more packets in a time.
fn gains(base: &Samples, other: &Samples) -> Vec<f64> {
    base.cpu
        .iter()
        .zip(&other.cpu)
        .map(|(base, other)| base / other - 1.0)
        .collect()
}

fn percent(share: f64) -> String {
    format!("{:+.1} %", share * 100.0)
}

fn show(shapes: &[Shape], times: &[Times], report: &mut Report) {
    let rows = shapes.iter().zip(times).map(|(shape, of)| {
        let mut cells = vec![shape.to_string()];
        for way in 0..Walk::ALL.len() {
            let gain = gains(&times[0][way], &of[way]);
            let low = gain.iter().copied().fold(f64::INFINITY, f64::min);
            let high = gain.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            cells.push(format!("{:.1}", 1000.0 / of[way].median()));
            cells.push(format!(
                "{} ({} .. {})",
                percent(median(gain.iter().copied())),
                percent(low),
                percent(high)
            ));
        }
        cells
    });
    let head = [
        "layout",
        "index: Mpps",
        "gain over 1",
        "prefetched: Mpps",
        "gain over 1",
        "chain: Mpps",
        "gain over 1",
    ];
    report.table(&head, &rows.collect::<Vec<_>>());
}

/// Share of the used bytes that are headers of records and bytes of packets.
fn share(shape: Shape, lengths: &[u16], snaplen: usize) -> f64 {
    let (mut at, mut useful) = (0, 0);
    for &len in lengths {
        let len = record::HEADER + usize::from(len).min(snaplen);
        at = shape.place(at) + len;
        useful += len;
    }
    useful as f64 / at as f64
}

fn efficiency(shapes: &[Shape], drawn: &[(&str, Vec<u16>)], report: &mut Report) {
    report.heading("Storage efficiency");
    report.line("Bytes of packets and of headers (16 bytes; the study's program: 8) of all bytes used. The study: 97.3 % for MWN at 64.\n");
    // Computed from the study's sizes with its header.
    let study = [
        (2, 99.99),
        (4, 99.83),
        (8, 99.46),
        (16, 98.83),
        (32, 98.10),
        (64, 96.75),
    ];
    let rows = shapes.iter().map(|&shape| {
        let cell =
            |lengths: &[u16], snaplen| format!("{:.2} %", share(shape, lengths, snaplen) * 100.0);
        let mut cells = vec![shape.to_string()];
        cells.extend(drawn.iter().map(|(_, lengths)| cell(lengths, usize::MAX)));
        cells.extend([64, 96, 128].map(|snaplen| cell(&drawn[0].1, snaplen)));
        let known = study
            .iter()
            .find(|(align, _)| shape.align() == *align && shape.pad() == 0);
        cells.push(known.map_or("-".to_owned(), |(_, share)| format!("{share:.2} %")));
        cells
    });
    let head = [
        "layout",
        "MWN",
        "uniform",
        "64 bytes",
        "MWN cut to 64",
        "to 96",
        "to 128",
        "study's program, MWN",
    ];
    report.table(&head, &rows.collect::<Vec<_>>());
}

fn picture(policy: Policy, shapes: &[Shape], found: &[(&str, Vec<Times>)], report: &mut Report) {
    let categories: Vec<String> = shapes.iter().map(Shape::to_string).collect();
    let mut lines = Vec::new();
    for (sizes, times) in found {
        for (way, name) in [(0, "index"), (1, "prefetched")] {
            let value = |of: &Times| {
                Some(100.0 + 100.0 * median(gains(&times[0][way], &of[way]).into_iter()))
            };
            lines.push(plot::Line {
                label: format!("{sizes}, {name}"),
                values: times.iter().map(value).collect(),
            });
        }
    }
    let title = format!(
        "{}, pages {policy}: throughput, % of alignment 1",
        EXPERIMENTS[2].expression
    );
    let svg = plot::lines(
        &title,
        ("alignment", "%"),
        Scale::Linear,
        &categories,
        &lines,
    );
    report.picture(&policy.to_string(), &svg);
}

/// Each finding of the study, by a rule on the rounds of its Figure 3, walked by index.
fn findings(
    policy: Policy,
    shapes: &[Shape],
    found: &[(&str, Vec<Times>)],
    drawn: &[(&str, Vec<u16>)],
    report: &mut Report,
) {
    let place = |align: usize, pad: usize| {
        shapes
            .iter()
            .position(|shape| shape.align() == align && shape.pad() == pad)
            .expect("it is a layout")
    };
    let verdict = |confirmed: bool, refuted: bool| match (confirmed, refuted) {
        (true, _) => "confirmed".to_owned(),
        (_, true) => "refuted".to_owned(),
        _ => "other here".to_owned(),
    };
    let spread = |values: &[f64]| {
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        (
            low,
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        )
    };
    let (one, line, padded) = (place(1, 0), place(64, 0), place(64, 2));
    let mut rows = Vec::new();
    for ((sizes, times), (_, lengths)) in found
        .iter()
        .zip(drawn)
        .filter(|((sizes, _), _)| *sizes != "64 bytes")
    {
        let gain = gains(&times[one][0], &times[line][0]);
        let (middle, (low, high)) = (median(gain.iter().copied()), spread(&gain));
        rows.push(vec![
            format!("{sizes}: 12 to 27 % gained at 64"),
            format!(
                "{} ({} .. {})",
                percent(middle),
                percent(low),
                percent(high)
            ),
            verdict((0.12..=0.27).contains(&middle) && low > 0.0, high < 0.12),
        ]);
        let change = gains(&times[line][0], &times[padded][0]);
        let (middle, (low, high)) = (median(change.iter().copied()), spread(&change));
        rows.push(vec![
            format!("{sizes}: 64+2 changes little"),
            format!(
                "{} ({} .. {})",
                percent(middle),
                percent(low),
                percent(high)
            ),
            verdict(middle.abs() <= 0.03, low > 0.03 || high < -0.03),
        ]);
        if *sizes == "MWN" {
            let lost = 1.0 - share(shapes[line], lengths, usize::MAX);
            rows.push(vec![
                format!("{sizes}: 64 costs 2.7 % of the memory"),
                format!("{:.1} %", lost * 100.0),
                verdict((0.017..=0.037).contains(&lost), lost > 0.08),
            ]);
        }
    }
    report.line(&format!("\nThe study's findings, pages {policy}: median, and least to most of all rounds. A gain is confirmed by a median"));
    report.line("within 12 to 27 % and every round above 0, refuted if every round gains less. A small change is confirmed by a");
    report.line("median of at most 3 %, refuted if every round changes by more. A cost is confirmed within a percentage point, refuted");
    report.line("above 8 %. All else is other here.\n");
    report.table(&["finding", "here", ""], &rows);
}

/// Names the layout for this machine: of those within 2 % of the fastest with prefetching, the one that wastes least.
fn conclude(
    shapes: &[Shape],
    drawn: &[(&str, Vec<u16>)],
    all: &[(String, Found<'_>)],
    report: &mut Report,
) {
    report.heading("Default");
    // Mean over the policies of the logarithm of the time of a packet, with prefetching.
    let cost = |pattern: usize, layout: usize| {
        all.iter()
            .map(|(_, found)| found[pattern].1[layout][1].median().ln())
            .sum::<f64>()
            / all.len() as f64
    };
    let place = |name: &str| {
        drawn
            .iter()
            .position(|(known, _)| *known == name)
            .expect("it is a pattern")
    };
    let (internet, small) = (place("MWN"), place("64 bytes"));
    let least = (0..shapes.len())
        .map(|layout| cost(internet, layout))
        .fold(f64::INFINITY, f64::min);
    let near = (0..shapes.len()).filter(|&layout| cost(internet, layout) <= least + 0.02);
    let used = |pattern: usize, layout: usize| share(shapes[layout], &drawn[pattern].1, usize::MAX);
    let Some(chosen) = near.max_by(|&a, &b| used(internet, a).total_cmp(&used(internet, b))) else {
        return report.line("no pages could be had");
    };
    let policies: Vec<&str> = all.iter().map(|(policy, _)| policy.as_str()).collect();
    report.line(&format!(
        "On this machine: **{}**. Of the layouts within 2 % of the fastest (MWN sizes, `{}`, index and prefetching, mean over {}) it \
         uses memory best: {:.1} %. weir's default is {}.",
        shapes[chosen],
        EXPERIMENTS[2].expression,
        policies.join(", "),
        used(internet, chosen) * 100.0,
        Shape::default(),
    ));
    report.line(&format!(
        "With frames of 64 bytes alone, {} is {} than 1 by {:.0} %, and uses {:.1} % of the memory.",
        shapes[chosen],
        if cost(small, chosen) <= cost(small, 0) { "faster" } else { "slower" },
        ((cost(small, 0) - cost(small, chosen)).exp() - 1.0).abs() * 100.0,
        used(small, chosen) * 100.0,
    ));
}
