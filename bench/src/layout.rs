//! The alignment study: filters over packets in memory, laid out at several alignments.
//!
//! **Source**: Pudelko, Emmerich, Carle, Effects of Unaligned Memory Access on the Performance of Packet Analyzers, 2017, and the
//! program published with it. As there: packets of random sizes in one buffer, an index of their places, a filter that rejects almost
//! all of them after reading two to four fields. Otherwise than there: the record is that of weir's ring, with 16 bytes of header
//! instead of 8; the buffer is packed anew for each layout, so that every layout has the same packets; 128 is a further layout; the
//! walk is also measured without an index, and with prefetching; pages come from several policies.

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

/// Layouts: alignment, and whether two bytes stand in front. The first is the base.
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

/// The study's Figure 3 shows the last one.
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

/// Runs the study.
pub fn run(size: Size, rounds: usize, bytes: Option<u64>, report: &mut Report) -> anyhow::Result<()> {
    let free = Available::now().map_or(1 << 30, |free| free.bytes);
    let bytes = bytes.unwrap_or(if size == Size::Full { 512 << 20 } else { 4 << 20 }).min(free / 4) as usize;
    let patterns = [("MWN", Sizes::Mwn), ("uniform", Sizes::Uniform), ("64 bytes", Sizes::Fixed(64))];
    report.line(&format!("- a buffer of {} MiB; one thread, its processor time", bytes >> 20));
    let shapes: Vec<Shape> = LAYOUTS.iter().filter_map(|&(align, pad)| Shape::new(align, pad)).collect();
    let mut drawn = Vec::new();
    for (name, sizes) in patterns {
        drawn.push((name, lengths(sizes, bytes)?));
    }
    efficiency(&shapes, &drawn, report);
    let mut best: Vec<(String, Vec<f64>)> = Vec::new();
    for policy in POLICIES {
        let request = Request { pages: policy, populate: true, ..Request::default() };
        let mut region = match Region::zeroed(bytes, &request) {
            Ok(region) => region,
            Err(error) => {
                report.heading(&format!("Pages: {policy}"));
                report.line(&format!("not to be had: {error}"));
                continue;
            }
        };
        report.heading(&format!("Pages: {policy} ({})", region.obtained()));
        let mut gains = Vec::new();
        for (sizes, lengths) in &drawn {
            for experiment in &EXPERIMENTS {
                let times = measure(policy, sizes, lengths, experiment, &shapes, &mut region, rounds, report)?;
                show(&shapes, &times, report);
                if experiment.name == EXPERIMENTS[2].name {
                    gains.push((*sizes, times));
                }
            }
        }
        picture(policy, &shapes, &gains, report);
        findings(policy, &shapes, &gains, report);
        let internet = &gains.iter().find(|(sizes, _)| *sizes == "MWN").expect("it is a pattern").1;
        best.push((policy.to_string(), internet.iter().map(|times| times[1].median()).collect()));
    }
    conclude(&shapes, &drawn[0].1, &best, report);
    Ok(())
}

/// Lengths of as many packets as have room at the widest layout.
fn lengths(sizes: Sizes, bytes: usize) -> anyhow::Result<Vec<u16>> {
    let mut generator = Generator::new(&Profile { sizes, packets: u64::MAX, ..Profile::default() })?;
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
fn pack(shape: Shape, lengths: &[u16], vary: fn(&mut [u8], u64), buffer: &mut [u8]) -> Vec<u32> {
    let mut frame = vec![0; FRAME_MAX];
    let (mut at, mut state, mut places) = (0, 0, Vec::with_capacity(lengths.len()));
    for &len in lengths {
        state = mix(state);
        template(&mut frame);
        vary(&mut frame, state);
        at = shape.place(at);
        let data = &frame[..usize::from(len)];
        let packet = Record { time_ns: Some(0), frame: Frame { data, wire_len: len.into(), interface: 0 } };
        places.push(at as u32);
        at += record::write(&mut buffer[at..], 0, None, &packet);
    }
    places
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
    let mut frames = [Frame { data: &[], wire_len: 0, interface: 0 }; BATCH];
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

#[expect(clippy::too_many_arguments, reason = "one call")]
fn measure(
    policy: Policy,
    sizes: &str,
    lengths: &[u16],
    experiment: &Experiment,
    shapes: &[Shape],
    region: &mut Region,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<Vec<Times>> {
    let filter = Filter::compile(experiment.expression, LinkType::ETHERNET, false)?;
    filter.make_native();
    let expected = naive(&filter, lengths, experiment.vary);
    let mut times: Vec<Times> = shapes.iter().map(|_| Times::default()).collect();
    // The first walk of a region and a filter is not counted.
    let places = pack(shapes[0], lengths, experiment.vary, region.bytes_mut());
    black_box(walk(Walk::Index, &filter, shapes[0], region.bytes(), &places));
    for round in 0..rounds {
        for (shape, times) in shapes.iter().zip(&mut times) {
            let places = pack(*shape, lengths, experiment.vary, region.bytes_mut());
            for (way, samples) in Walk::ALL.into_iter().zip(times) {
                let buffer = black_box(region.bytes());
                let (matches, elapsed) = time(|| walk(way, &filter, *shape, buffer, &places));
                samples.add(elapsed, lengths.len());
                if matches != expected {
                    report.wrong(&format!("{shape}, {}: {matches} matches of {expected}", way.name()));
                }
                let ns = [samples.wall[round], samples.cpu[round]].map(|ns| format!("{ns:.3}"));
                let (policy, shape, matches) = (policy.to_string(), shape.to_string(), matches.to_string());
                let number = (round + 1).to_string();
                report.raw(&[&policy, sizes, experiment.name, way.name(), &shape, &number, &ns[0], &ns[1], &matches]);
            }
        }
    }
    report.line(&format!(
        "\n{sizes}, {} packets, `{}`, accepts {} (here {expected} packets: the interpreter says the same)\n",
        lengths.len(),
        experiment.expression,
        experiment.accepts,
    ));
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
    base.cpu.iter().zip(&other.cpu).map(|(base, other)| base / other - 1.0).collect()
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
            cells.push(format!("{} ({} .. {})", percent(median(gain.iter().copied())), percent(low), percent(high)));
        }
        cells
    });
    let head =
        ["layout", "index: Mpps", "gain over 1", "prefetched: Mpps", "gain over 1", "chain: Mpps", "gain over 1"];
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
    let study = [(2, 99.99), (4, 99.83), (8, 99.46), (16, 98.83), (32, 98.10), (64, 96.75)];
    let rows = shapes.iter().map(|&shape| {
        let cell = |lengths: &[u16], snaplen| format!("{:.2} %", share(shape, lengths, snaplen) * 100.0);
        let mut cells = vec![shape.to_string()];
        cells.extend(drawn.iter().map(|(_, lengths)| cell(lengths, usize::MAX)));
        cells.extend([64, 96, 128].map(|snaplen| cell(&drawn[0].1, snaplen)));
        let known = study.iter().find(|(align, _)| shape.align() == *align && shape.pad() == 0);
        cells.push(known.map_or("-".to_owned(), |(_, share)| format!("{share:.2} %")));
        cells
    });
    let head = ["layout", "MWN", "uniform", "64 bytes", "MWN cut to 64", "to 96", "to 128", "study's program, MWN"];
    report.table(&head, &rows.collect::<Vec<_>>());
}

fn picture(policy: Policy, shapes: &[Shape], found: &[(&str, Vec<Times>)], report: &mut Report) {
    let categories: Vec<String> = shapes.iter().map(Shape::to_string).collect();
    let mut lines = Vec::new();
    for (sizes, times) in found {
        for (way, name) in [(0, "index"), (1, "prefetched")] {
            let value = |of: &Times| Some(100.0 + 100.0 * median(gains(&times[0][way], &of[way]).into_iter()));
            lines.push(plot::Line { label: format!("{sizes}, {name}"), values: times.iter().map(value).collect() });
        }
    }
    let title = format!("{}, pages {policy}: throughput, % of alignment 1", EXPERIMENTS[2].expression);
    let svg = plot::lines(&title, ("alignment", "%"), Scale::Linear, &categories, &lines);
    report.picture(&policy.to_string(), &svg);
}

/// Each finding of the study, by a rule on the rounds of its Figure 3, walked by index.
fn findings(policy: Policy, shapes: &[Shape], found: &[(&str, Vec<Times>)], report: &mut Report) {
    let place = |align: usize, pad: usize| {
        shapes.iter().position(|shape| shape.align() == align && shape.pad() == pad).expect("it is a layout")
    };
    let verdict = |confirmed: bool, refuted: bool| match (confirmed, refuted) {
        (true, _) => "confirmed",
        (_, true) => "refuted",
        _ => "other here",
    };
    let mut rows = Vec::new();
    for (sizes, times) in found.iter().filter(|(sizes, _)| *sizes != "64 bytes") {
        let gain = gains(&times[0][0], &times[place(64, 0)][0]);
        let (middle, low) = (median(gain.iter().copied()), gain.iter().copied().fold(f64::INFINITY, f64::min));
        rows.push(vec![
            format!("{sizes}: 12 to 27 % gained at 64"),
            format!("{}, at least {}", percent(middle), percent(low)),
            verdict((0.12..=0.27).contains(&middle) && low > 0.0, middle < 0.03).to_owned(),
        ]);
        let change = gains(&times[place(64, 0)][0], &times[place(64, 2)][0]);
        let middle = median(change.iter().copied());
        rows.push(vec![
            format!("{sizes}: 64+2 changes little"),
            percent(middle),
            verdict(middle.abs() <= 0.03, middle.abs() > 0.08).to_owned(),
        ]);
    }
    report.line(&format!("\nThe study's findings, pages {policy}. Confirmed: a median within 12 to 27 % and every round above 0; a change of at"));
    report.line("most 3 %. Refuted: a median gain below 3 %; a change above 8 %. Else other here.\n");
    report.table(&["finding", "here", ""], &rows);
}

/// Names the layout for this machine: of those within 2 % of the fastest with prefetching, the one that wastes least.
fn conclude(shapes: &[Shape], lengths: &[u16], best: &[(String, Vec<f64>)], report: &mut Report) {
    report.heading("Default");
    let cost = |place: usize| best.iter().map(|(_, times)| times[place].ln()).sum::<f64>() / best.len() as f64;
    let least = (0..shapes.len()).map(cost).fold(f64::INFINITY, f64::min);
    let near = (0..shapes.len()).filter(|&place| cost(place) <= least + 0.02);
    let chosen =
        near.max_by(|&a, &b| share(shapes[a], lengths, usize::MAX).total_cmp(&share(shapes[b], lengths, usize::MAX)));
    let Some(chosen) = chosen else { return report.line("no pages could be had") };
    let policies: Vec<&str> = best.iter().map(|(policy, _)| policy.as_str()).collect();
    report.line(&format!(
        "On this machine: **{}**. Of the layouts within 2 % of the fastest (MWN sizes, `{}`, index and prefetching, mean over {}) it \
         uses memory best: {:.1} %. weir's default is {}.",
        shapes[chosen],
        EXPERIMENTS[2].expression,
        policies.join(", "),
        share(shapes[chosen], lengths, usize::MAX) * 100.0,
        Shape::default(),
    ));
}
