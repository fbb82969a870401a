//! Cost of the flow key of a frame, compared with etherparse.

use crate::Size;
use crate::by_etherparse::{lax, strict};
use crate::clock::{Samples, time};
use crate::report::Report;
use crate::sketch::stream::random;
use anyhow::Context;
use std::fs;
use std::hint::black_box;
use weir_generator::{FRAME_MAX, Generator, Profile, Sizes};
use weir_packet::flow::{FlowKey, Hasher, Parser};
use weir_packet::{Frame, LinkType};

/// Number of frames that stay in the second-level cache.
const CACHED: usize = 20_000;
/// Required cost of a key and desired cost, ns.
const MUST: f64 = 13.0;
const GOAL: f64 = 8.0;

/// Measures frames in memory and in the cache.
pub fn run(size: Size, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    let cache = last_level_cache().unwrap_or(32 << 20);
    let (least, bytes, cached) = match size {
        Size::Full => (1_000_000, 2 * cache + (4 << 20), CACHED),
        Size::Smoke => (3000, 0, 1000),
    };
    let frames = frames(least, bytes)?;
    let mib = |bytes: usize| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let title = format!(
        "{} distinct frames, {}",
        frames.places.len(),
        mib(frames.bytes.len())
    );
    let beyond = format!("{title}, beyond a last-level cache of {}", mib(cache));
    compare(
        &frames,
        usize::MAX,
        1,
        if size == Size::Full { &beyond } else { &title },
        rounds,
        report,
    );
    let passes = frames.places.len() / cached;
    compare(
        &frames,
        cached,
        passes,
        &format!("{cached} of these frames, again and again"),
        rounds,
        report,
    );
    Ok(())
}

/// Frames back to back in one buffer.
struct Frames {
    bytes: Vec<u8>,
    places: Vec<(usize, usize)>,
}

/// At least `least` frames and `least_bytes` bytes: half from the generator, half made by hand, in random order.
fn frames(least: usize, least_bytes: usize) -> anyhow::Result<Frames> {
    let profile = Profile {
        packets: u64::MAX,
        flows: 1_000_000.min(least as u64),
        sizes: Sizes::Fixed(60),
        ..Profile::default()
    };
    let mut generator = Generator::new(&profile)?;
    let mut buffer = [0; FRAME_MAX];
    let mut frames = Frames {
        bytes: Vec::with_capacity(least_bytes + least * 80),
        places: Vec::new(),
    };
    while frames.places.len() < least || frames.bytes.len() < least_bytes {
        let number = frames.places.len() as u64;
        let from = frames.bytes.len();
        if random(!number) & 1 == 0 {
            let made = generator
                .next(&mut buffer)
                .context("the generator has no end")?;
            frames.bytes.extend_from_slice(&buffer[..made.len]);
        } else {
            by_hand(number, &mut frames.bytes);
        }
        frames.places.push((from, frames.bytes.len()));
    }
    Ok(frames)
}

/// An Ethernet frame of at least 64 bytes: one of five with a VLAN tag, half of them IPv6, three of four TCP.
fn by_hand(number: u64, out: &mut Vec<u8>) {
    let dice = random(number);
    out.extend([2; 12]);
    if dice.is_multiple_of(5) {
        out.extend([0x81, 0, 0, 7]);
    }
    let tcp = dice >> 8 & 3 > 0;
    let proto = if tcp { 6 } else { 17 };
    let ends = [random(number << 1), random(number << 1 | 1)];
    if dice >> 16 & 1 == 0 {
        out.extend([0x86, 0xdd, 0x60, 0, 0, 0, 0, 28, proto, 64]);
        for end in ends {
            out.extend([0x20, 1, 0xd, 0xb8, 0, 0, 0, 0]);
            out.extend(end.to_be_bytes());
        }
    } else {
        out.extend([0x08, 0, 0x45, 0, 0, 48, 0, 0, 0x40, 0, 64, proto, 0, 0]);
        for end in ends {
            out.extend(&end.to_be_bytes()[..4]);
        }
    }
    out.extend(&(ends[0] ^ ends[1]).to_be_bytes()[..4]);
    // The rest of a header without options, for TCP or UDP, and some payload.
    out.extend(if tcp {
        [0, 0, 0, 0, 0, 0, 0, 0, 0x50, 0x10, 0, 0]
    } else {
        [0, 28, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]
    });
    out.extend([0; 12]);
}

fn compare(
    all: &Frames,
    most: usize,
    passes: usize,
    title: &str,
    rounds: usize,
    report: &mut Report,
) {
    let places = &all.places[..most.min(all.places.len())];
    let frames: Vec<Frame<'_>> = places
        .iter()
        .map(|&(from, to)| Frame {
            data: &all.bytes[from..to],
            wire_len: (to - from) as u32,
            interface: 0,
        })
        .collect();
    let parser = Parser::new(LinkType::ETHERNET, false).expect("Ethernet has keys");
    let hasher = Hasher::new(1);
    // Sums over the fields of each key: equal keys have equal sums.
    let rivals: [(&str, &str, &dyn Fn() -> u64); 4] = [
        ("weir Parser::key", "frame by frame", &|| {
            one_by_one(&frames, |data| parser.key(data).ok())
        }),
        (
            "weir Parser::key, Hasher::flow",
            "32 keys, then 32 hashes",
            &|| with_hash(&frames, &parser, &hasher),
        ),
        ("etherparse SlicedPacket", "frame by frame", &|| {
            one_by_one(&frames, strict)
        }),
        ("etherparse LaxSlicedPacket", "frame by frame", &|| {
            one_by_one(&frames, lax)
        }),
    ];
    let mut samples = vec![Samples::default(); rivals.len()];
    let mut sums = [0; 4];
    for _ in 0..rounds {
        for (((_, _, run), samples), sum) in rivals.iter().zip(&mut samples).zip(&mut sums) {
            // Warms up the caches.
            run();
            let (found, elapsed) = time(|| (0..passes).fold(0, |_, _| run()));
            *sum = found;
            samples.add(elapsed, passes * frames.len());
        }
    }
    report.heading(&format!("Flow keys: {title}"));
    let rows: Vec<Vec<String>> = rivals
        .iter()
        .zip(&samples)
        .zip(&sums)
        .map(|(((name, way, _), samples), sum)| {
            let [median, range, wall] = samples.cells();
            report_raw(report, title, name, samples, *sum);
            vec![
                (*name).to_owned(),
                (*way).to_owned(),
                median,
                range,
                wall,
                format!("{sum:016x}"),
            ]
        })
        .collect();
    report.table(
        &[
            "what",
            "how",
            "cpu, median",
            "min - max",
            "wall",
            "checksum of keys",
        ],
        &rows,
    );
    // The second sum includes hashes.
    if sums[2..].iter().any(|sum| *sum != sums[0]) {
        report.wrong("the keys differ");
    }
    let cost = samples[0].median();
    let theirs = samples[2].median().min(samples[3].median());
    let found = format!(
        "{cost:.1} ns; etherparse {theirs:.1} ns; with the hash {:.1} ns",
        samples[1].median()
    );
    report.bar(
        &format!("flow key, {title}"),
        &format!("{MUST} ns (goal {GOAL} ns)"),
        &found,
        cost <= MUST,
    );
}

fn report_raw(report: &mut Report, title: &str, name: &str, samples: &Samples, sum: u64) {
    for (round, (wall, cpu)) in samples.wall.iter().zip(&samples.cpu).enumerate() {
        let cells = [
            (round + 1).to_string(),
            format!("{wall:.3}"),
            format!("{cpu:.3}"),
            String::new(),
            sum.to_string(),
        ];
        let [round, wall, cpu, bytes, sum] = &cells;
        report.raw(&["flow key", title, name, round, wall, cpu, bytes, sum]);
    }
}

/// Reads the keys of a batch before the first is hashed, as a measurement does.
#[inline(always)]
fn with_hash(frames: &[Frame<'_>], parser: &Parser, hasher: &Hasher) -> u64 {
    let mut keys = [None; 32];
    let mut sum = 0u64;
    for batch in frames.chunks(32) {
        for (key, frame) in keys.iter_mut().zip(batch) {
            *key = parser.key(frame.data).ok();
        }
        for key in keys[..batch.len()].iter().flatten() {
            sum = sum
                .wrapping_add(digest(key))
                .wrapping_add(hasher.flow(key).symmetric);
        }
    }
    black_box(sum)
}

#[inline(always)]
fn one_by_one(frames: &[Frame<'_>], key: impl Fn(&[u8]) -> Option<FlowKey>) -> u64 {
    let digests = frames
        .iter()
        .filter_map(|frame| key(frame.data))
        .map(|key| digest(&key));
    black_box(digests.fold(0, u64::wrapping_add))
}

/// Reads every field of a key at little cost, so that the compiler can leave none out.
#[inline(always)]
fn digest(key: &FlowKey) -> u64 {
    let half = |bytes: &[u8; 16], at: usize| {
        u64::from_le_bytes(*bytes[at..].first_chunk().expect("eight of sixteen bytes"))
    };
    let ports = u64::from(key.sport) << 32 | u64::from(key.dport) << 16;
    let meta = u64::from(key.proto) | u64::from(key.family) << 8 | u64::from(key.flags) << 48;
    (half(&key.src, 0) ^ half(&key.dst, 0).rotate_left(17))
        .wrapping_add(half(&key.src, 8).rotate_left(31) ^ half(&key.dst, 8).rotate_left(43))
        .wrapping_add(ports ^ meta)
}

/// Size of the largest cache of this processor, bytes.
fn last_level_cache() -> Option<usize> {
    let size = |index: usize| {
        let text = fs::read_to_string(format!(
            "/sys/devices/system/cpu/cpu0/cache/index{index}/size"
        ))
        .ok()?;
        Some(text.trim().strip_suffix('K')?.parse::<usize>().ok()? << 10)
    };
    (0..5).filter_map(size).max()
}
