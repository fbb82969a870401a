//! The ring in memory: writing against copying, scanning against reading a file, and both at once.

use super::{Source, interface, mark, ratios};
use crate::Size;
use crate::clock::{Elapsed, Samples, time};
use crate::report::Report;
use crate::rivals::median;
use std::hint::{black_box, spin_loop};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Instant;
use weir_filter::{Filter, Names, interpreter};
use weir_generator::Sizes;
use weir_memory::{Policy, Region, Request};
use weir_packet::savefile::walk::{Cursor as Place, Visit, walk};
use weir_packet::savefile::write::Encoder;
use weir_packet::savefile::{Format, Layout};
use weir_packet::{Frame, LinkType};
use weir_store::record::Shape;
use weir_store::ring::{Filters, From, History, Scan, Settings, Writer, ring};

/// Packets between two looks at the clock, as in the pipeline.
const BATCH: usize = 32;

/// Required speed of writing, as a share of copying; and the desired one.
const MUST_WRITE: f64 = 0.9;
const GOAL_WRITE: f64 = 1.2;
const MUST_SMALL: f64 = 0.5;
const GOAL_SMALL: f64 = 0.8;
/// Required speed of a scan, as a multiple of reading a file; and the desired one.
const MUST_SCAN: f64 = 2.0;
const GOAL_SCAN: f64 = 4.0;
/// Required speed of a writer next to a scan, as a share of a writer next to a reader of as many
/// bytes.
const MUST_BESIDE: f64 = 0.9;

/// Bytes that a scan loads of a packet: one cache line, and its offset.
const SCANNED: u64 = 64 + 4;

/// Layouts that are written.
const LAYOUTS: [(u32, bool); 5] = [
    (1, false),
    (16, false),
    (64, false),
    (128, false),
    (64, true),
];

fn request() -> Request {
    Request {
        pages: Policy::Thp,
        populate: true,
        ..Request::default()
    }
}

fn raw(
    report: &mut Report,
    section: &str,
    what: &str,
    sizes: &str,
    round: usize,
    of: (Elapsed, usize, usize),
) {
    let (elapsed, packets, bytes) = of;
    let times = [elapsed.wall, elapsed.cpu].map(|s| format!("{s:.6}"));
    let counts = [round + 1, packets, bytes].map(|n| n.to_string());
    report.raw(&[
        section, what, sizes, &counts[0], &times[0], &times[1], &counts[1], &counts[2],
    ]);
}

/// Runs the parts of the ring.
pub fn run(size: Size, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    let (source_bytes, ring_bytes) = if size == Size::Full {
        (512 << 20, 256 << 20)
    } else {
        (2 << 20, 4 << 20)
    };
    for (name, sizes) in [
        ("MWN", Sizes::Mwn),
        ("uniform", Sizes::Uniform),
        ("64 bytes", Sizes::Fixed(64)),
    ] {
        let source = Source::new(sizes, source_bytes)?;
        write(name, &source, ring_bytes, rounds, report)?;
        if name == "MWN" {
            scan(&source, rounds, report)?;
            beside(&source, ring_bytes, rounds, report)?;
        }
    }
    Ok(())
}

/// Writes all packets. Pins end by the time since `begun`.
fn fill(writer: &mut Writer, source: &Source, begun: Instant) {
    for begin in (0..source.len()).step_by(BATCH) {
        let now = begun.elapsed().as_nanos() as u64;
        for index in begin..source.len().min(begin + BATCH) {
            writer.append(&source.packet(index), now);
        }
        writer.publish();
    }
}

/// Copies all records to where a ring of this shape would put them.
fn copy(shape: Shape, source: &Source, buffer: &mut [u8]) {
    let mut at = shape.place(0);
    for index in 0..source.len() {
        let record = source.record(index);
        if at + record.len() > buffer.len() {
            at = shape.place(0);
        }
        buffer[at..at + record.len()].copy_from_slice(record);
        at = shape.place(at + record.len());
    }
}

/// Number of packets that a ring holds, and the sum of their marks; those of the source from the same packet on.
fn held(history: &History, source: &Source, written: u64) -> (u64, u64, u64) {
    let mut cursor = history.cursor(From::Oldest);
    let (mut packets, mut found, mut expected) = (0, 0u64, 0u64);
    while let Some(piece) = cursor.next(0) {
        for index in 0..piece.len() {
            found = found.wrapping_add(mark(&piece.record(index)));
            let origin = piece.number(index) % source.len() as u64;
            expected = expected.wrapping_add(mark(&source.packet(origin as usize)));
            packets += 1;
        }
    }
    let is_whole = cursor.number() == Some(written);
    (if is_whole { packets } else { 0 }, found, expected)
}

fn write(
    name: &str,
    source: &Source,
    bytes: usize,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading(&format!("Writing the ring: {name}"));
    let mut buffer = Region::zeroed(bytes, &request())?;
    let shapes: Vec<Shape> = LAYOUTS
        .iter()
        .filter_map(|&(align, pad)| Shape::new(align, pad))
        .collect();
    let mut rings = Vec::new();
    for &shape in &shapes {
        let (mut writer, history) = ring(&Settings {
            bytes,
            shape,
            memory: request(),
            ..Settings::default()
        })?;
        writer.interface(&interface());
        rings.push((writer, history));
    }
    report.line(&format!(
        "{} packets, {} MB in memory, into rings of {} MiB ({}); a copy moves header and frame to the same places\n",
        source.len(),
        source.bytes.len() / 1_000_000,
        bytes >> 20,
        rings[0].1.obtained(),
    ));
    let mut times = vec![[Samples::default(), Samples::default()]; shapes.len()];
    let begun = Instant::now();
    // The first round is not counted: it sees every page for the first time.
    for round in 0..=rounds {
        for layout in (0..shapes.len()).map(|turn| (turn + round) % shapes.len()) {
            let (shape, (writer, history)) = (shapes[layout], &mut rings[layout]);
            let copies = |buffer: &mut Region| {
                time(|| copy(shape, black_box(source), black_box(buffer.bytes_mut()))).1
            };
            let writes = |writer: &mut Writer| time(|| fill(writer, black_box(source), begun)).1;
            let (copied, wrote) = if round % 2 == 0 {
                let copied = copies(&mut buffer);
                (copied, writes(writer))
            } else {
                let wrote = writes(writer);
                (copies(&mut buffer), wrote)
            };
            let written = ((round + 1) * source.len()) as u64;
            let (packets, found, expected) = held(history, source, written);
            if found != expected
                || packets == 0
                || writer.refused() != weir_store::ring::Refused::default()
            {
                report.wrong(&format!(
                    "{name}, {shape}: the ring holds {packets} packets, or other ones than were written"
                ));
            }
            if round == 0 {
                continue;
            }
            for (what, elapsed, samples) in [("copy", copied, 0), ("ring", wrote, 1)] {
                times[layout][samples].add(elapsed, source.len());
                raw(
                    report,
                    "write",
                    &format!("{what} {shape}"),
                    name,
                    round - 1,
                    (elapsed, source.len(), source.bytes.len()),
                );
            }
        }
    }
    let mut rows = Vec::new();
    for (shape, [copied, wrote]) in shapes.iter().zip(&times) {
        let gains: Vec<f64> = copied
            .cpu
            .iter()
            .zip(&wrote.cpu)
            .map(|(copied, wrote)| copied / wrote)
            .collect();
        let (middle, text) = ratios(&gains);
        let gb =
            |samples: &Samples| source.bytes.len() as f64 / source.len() as f64 / samples.median();
        rows.push(vec![
            shape.to_string(),
            format!("{:.1} ns", copied.median()),
            format!("{:.1} ns", wrote.median()),
            format!("{:.2} Mpps", 1000.0 / wrote.median()),
            format!("{:.2} GB/s", gb(wrote)),
            text.clone(),
        ]);
        if *shape == Shape::default() {
            match name {
                "MWN" => {
                    let must = format!("{MUST_WRITE}x a copy (goal {GOAL_WRITE}x)");
                    report.bar(
                        "ring write with index, MWN",
                        &must,
                        &text,
                        middle >= MUST_WRITE,
                    );
                }
                "64 bytes" => {
                    let must = format!("{MUST_SMALL}x a copy (goal {GOAL_SMALL}x)");
                    report.bar(
                        "ring write with index, 64-byte frames",
                        &must,
                        &text,
                        middle >= MUST_SMALL,
                    );
                }
                _ => {}
            }
        }
    }
    let head = [
        "layout",
        "copy, per packet",
        "ring, per packet",
        "ring",
        "ring",
        "speed of a copy",
    ];
    report.table(&head, &rows);
    Ok(())
}

/// A ring that holds all packets of the source.
fn filled(source: &Source) -> anyhow::Result<(Writer, History)> {
    let bytes = (source.bytes.len() + source.len() * 68).next_multiple_of(64 << 20) * 9 / 8;
    let (mut writer, history) = ring(&Settings {
        bytes,
        memory: request(),
        ..Settings::default()
    })?;
    writer.interface(&interface());
    fill(&mut writer, source, Instant::now());
    Ok((writer, history))
}

/// `dst host A and udp port B` of a UDP packet in the middle.
fn expression(source: &Source) -> String {
    let is_udp = |index: &usize| {
        let data = source.packet(*index).frame.data;
        data.len() > 42 && data[12..14] == [8, 0] && data[14] == 0x45 && data[23] == 17
    };
    let index = (source.len() / 2..source.len()).find(is_udp).unwrap_or(0);
    let data = source.packet(index).frame.data;
    let [a, b, c, d] = [30, 31, 32, 33].map(|at| data[at]);
    format!(
        "dst host {a}.{b}.{c}.{d} and udp port {}",
        u16::from_be_bytes([data[36], data[37]])
    )
}

struct Count<'a> {
    filter: &'a Filter,
    matches: u64,
}

impl Visit for Count<'_> {
    fn frames(&mut self, _: usize, _: &[u32], frames: &[Frame<'_>]) -> bool {
        self.matches += u64::from(self.filter.matches(frames).count_ones());
        true
    }
}

fn scan(source: &Source, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    report.heading("Scanning the ring: MWN");
    let (_writer, history) = filled(source)?;
    let expression = expression(source);
    let filter = Filter::compile(&expression, LinkType::ETHERNET, false)?;
    filter.make_native();
    let filters = Arc::new(Filters::compile(
        &expression,
        &history.interfaces(),
        &Names::NONE,
    )?);
    let judged = (0..source.len()).filter(|&index| {
        let frame = source.packet(index).frame;
        interpreter::run(filter.program(), frame.data, frame.wire_len) != 0
    });
    let expected = judged.count() as u64;
    let mut encoder = Encoder::new(Format::Pcap, 0);
    let id = encoder.interface(&interface())?;
    let mut file = Vec::with_capacity(source.bytes.len() + 64);
    for index in 0..source.len() {
        let packet = source.packet(index);
        encoder.packet(&mut file, id, packet.time_ns, &packet.frame);
    }
    report.line(&format!(
        "`{expression}`: {expected} of {} packets match, says the interpreter; one thread; the file is in memory, and is read as weir reads \
         a file that it maps\n",
        source.len()
    ));
    let (mut scanned, mut read) = (Samples::default(), Samples::default());
    for round in 0..=rounds {
        let (found, by_scan) = time(|| {
            let mut scan = Scan::new(
                &history,
                None,
                Some(Arc::clone(&filters)),
                i64::MIN..=i64::MAX,
            );
            let mut matches = 0;
            while let Some(piece) = scan.next(0) {
                matches += piece.found.len() as u64;
            }
            matches
        });
        let (counted, by_file) = time(|| {
            let (layout, start) = Layout::read(&file, true).expect("it was just written");
            let mut count = Count {
                filter: &filter,
                matches: 0,
            };
            let mut place = [Place::new(start, file.len())];
            walk(&layout, black_box(&file), true, &mut place, &mut count);
            count.matches
        });
        if [found, counted] != [expected; 2] {
            report.wrong(&format!(
                "{expression}: {found} by the scan, {counted} in the file, {expected} by the interpreter"
            ));
        }
        if round > 0 {
            scanned.add(by_scan, source.len());
            read.add(by_file, source.len());
            for (what, elapsed) in [("ring", by_scan), ("file", by_file)] {
                raw(
                    report,
                    "scan",
                    what,
                    "MWN",
                    round - 1,
                    (elapsed, source.len(), source.bytes.len()),
                );
            }
        }
    }
    let gains: Vec<f64> = read
        .cpu
        .iter()
        .zip(&scanned.cpu)
        .map(|(read, scanned)| read / scanned)
        .collect();
    let (middle, text) = ratios(&gains);
    let row = |name: &str, samples: &Samples| {
        let [cpu, spread, _] = samples.cells();
        vec![
            name.to_owned(),
            cpu,
            spread,
            format!("{:.1} Mpps", 1000.0 / samples.median()),
        ]
    };
    report.table(
        &["", "per packet", "least - most", ""],
        &[
            row("ring, scan", &scanned),
            row("file, weir's reader", &read),
        ],
    );
    let must = format!("{MUST_SCAN}x weir's file reader (goal {GOAL_SCAN}x)");
    report.bar("scan of the ring, MWN", &must, &text, middle >= MUST_SCAN);
    Ok(())
}

/// Companion of a writer.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Beside {
    Nothing,
    Scan,
    Reader,
}

/// Writes while another thread scans the same ring, or reads as many bytes of other memory one after another.
fn beside(source: &Source, bytes: usize, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    report.heading("A writer beside a scan: MWN");
    let (mut writer, history) = ring(&Settings {
        bytes,
        memory: request(),
        ..Settings::default()
    })?;
    writer.interface(&interface());
    let begun = Instant::now();
    fill(&mut writer, source, begun);
    let filters = Arc::new(Filters::compile(
        &expression(source),
        &history.interfaces(),
        &Names::NONE,
    )?);
    let other = vec![1u8; bytes];
    let mut times = [Samples::default(), Samples::default(), Samples::default()];
    let mut rates = Vec::new();
    let mut missed = 0;
    for round in 0..=rounds {
        // Bytes that the scan loaded in a second.
        let mut rate = 0.0;
        for (index, what) in [(0, Beside::Nothing), (1, Beside::Scan), (2, Beside::Reader)] {
            let (stop, loaded) = (AtomicBool::new(false), AtomicU64::new(0));
            let asked = rate;
            let (elapsed, loaded_bytes, gone) = thread::scope(|scope| {
                let companion = scope.spawn(|| match what {
                    Beside::Nothing => 0,
                    Beside::Scan => scan_until(&stop, &loaded, &history, &filters, begun),
                    Beside::Reader => read_until(&stop, &loaded, &other, asked),
                });
                let ((), elapsed) = time(|| (0..4).for_each(|_| fill(&mut writer, source, begun)));
                let loaded = loaded.load(Ordering::Relaxed);
                stop.store(true, Ordering::Relaxed);
                (elapsed, loaded, companion.join().unwrap_or(0))
            });
            if what == Beside::Scan {
                rate = loaded_bytes as f64 / elapsed.wall;
            }
            if round > 0 {
                times[index].add(elapsed, source.len() * 4);
                let name = ["alone", "scan", "reader"][index];
                raw(
                    report,
                    "beside",
                    name,
                    "MWN",
                    round - 1,
                    (elapsed, source.len() * 4, source.bytes.len() * 4),
                );
                missed += gone;
            }
        }
        rates.push(rate);
    }
    let refused = writer.refused().no_room;
    let row = |name: &str, samples: &Samples| {
        let [cpu, spread, wall] = samples.cells();
        vec![name.to_owned(), cpu, spread, wall]
    };
    report.table(
        &["a writer beside", "per packet", "least - most", "wall"],
        &[
            row("nothing", &times[0]),
            row("a scan of its ring", &times[1]),
            row("a reader of as many bytes", &times[2]),
        ],
    );
    report.line(&format!(
        "\nThe scan loads {:.2} GB/s (a cache line and 4 bytes of a packet); the writer lost {refused} packets; the scan, which begins anew at the \
         oldest packet, was overtaken by {missed}.",
        median(rates.into_iter()) / 1e9
    ));
    let gains: Vec<f64> = times[2]
        .cpu
        .iter()
        .zip(&times[1].cpu)
        .map(|(reader, scan)| reader / scan)
        .collect();
    let (middle, text) = ratios(&gains);
    let found = format!("{text}, {refused} lost");
    let must = format!("{MUST_BESIDE}x beside a reader, no loss");
    report.bar(
        "writer beside a scan",
        &must,
        &found,
        middle >= MUST_BESIDE && refused == 0,
    );
    Ok(())
}

/// Scans again and again; returns the number of packets that were gone before the scan came to them.
fn scan_until(
    stop: &AtomicBool,
    loaded: &AtomicU64,
    history: &History,
    filters: &Arc<Filters>,
    begun: Instant,
) -> u64 {
    let mut missed = 0;
    while !stop.load(Ordering::Relaxed) {
        let mut scan = Scan::new(
            history,
            None,
            Some(Arc::clone(filters)),
            i64::MIN..=i64::MAX,
        );
        while let Some(piece) = scan.next(begun.elapsed().as_nanos() as u64) {
            loaded.fetch_add(piece.piece.len() as u64 * SCANNED, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                break;
            }
        }
        missed += scan.missed();
    }
    missed
}

/// Reads memory one piece after another, `rate` bytes in a second.
fn read_until(stop: &AtomicBool, loaded: &AtomicU64, bytes: &[u8], rate: f64) -> u64 {
    const PIECE: usize = 64 << 10;
    let begun = Instant::now();
    let mut sum = 0u64;
    for piece in bytes.chunks_exact(PIECE).cycle() {
        let words = piece
            .chunks_exact(8)
            .map(|word| u64::from_le_bytes(*word.first_chunk().expect("eight bytes")));
        sum = words.fold(sum, u64::wrapping_add);
        let so_far = loaded.fetch_add(PIECE as u64, Ordering::Relaxed) + PIECE as u64;
        while begun.elapsed().as_secs_f64() * rate < so_far as f64 {
            if stop.load(Ordering::Relaxed) {
                black_box(sum);
                return 0;
            }
            spin_loop();
        }
        if stop.load(Ordering::Relaxed) {
            break;
        }
    }
    black_box(sum);
    0
}
