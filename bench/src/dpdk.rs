//! Ports of DPDK: the cost of weir's receiving compared with the usual loop in C, and the whole pipeline on one core.
//!
//! The device is `net_null`, which returns empty packets as fast as they are polled. For the pipeline, a callback of DPDK
//! fills them with frames from a table. The packets are therefore known, and none is lost before the device.

use crate::Size;
use crate::by_etherparse::lax;
use crate::clock::{Elapsed, Samples, time};
use crate::heavy;
use crate::measured;
use crate::report::Report;
use anyhow::{Context, ensure};
use std::collections::HashMap;
use std::hint::black_box;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_dpdk::bench::{Feed, Table, plain_loop};
use weir_dpdk::{MOST, Opened};
use weir_generator::{FRAME_MAX, Generator, Profile, Sizes};
use weir_io::Input;
use weir_io::dpdk::{Capture, captures};
use weir_io::live::{Backend, Counts, Next};
use weir_packet::flow::FlowKey;
use weir_packet::savefile::Layout;
use weir_pipeline::measuring::Finished;

/// Columns of the raw data.
pub const RAW: &str = "section,what,round,wall_ns,cpu_ns,packets";

const EXPRESSION: &str = "udp or tcp port 443";

/// Required share of the C loop's rate; the desired share is 0.95.
const MUST_SHARE: f64 = 0.85;

/// Required rate with filter and sketch on one core, Mpps; the desired rate is 20.
const MUST_RATE: f64 = 12.0;

/// Rows of the answer that are checked.
const ROWS: usize = 100;

/// Runs both parts.
pub fn run(size: Size, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    let full = size == Size::Full;
    empty(if full { 50_000_000 } else { 200_000 }, rounds, report)?;
    pipeline(full, rounds, report)?;
    report.bars();
    Ok(())
}

fn null(number: usize) -> anyhow::Result<Opened> {
    Ok(weir_dpdk::open(
        &format!("net_null{number}"),
        &weir_dpdk::Settings::default(),
    )?)
}

fn keep(section: &str, what: &str, samples: &Samples, packets: u64, report: &mut Report) {
    for (round, (wall, cpu)) in samples.wall.iter().zip(&samples.cpu).enumerate() {
        let times = [wall, cpu].map(|ns| format!("{ns:.3}"));
        report.raw(&[
            section,
            what,
            &(round + 1).to_string(),
            &times[0],
            &times[1],
            &packets.to_string(),
        ]);
    }
}

fn row(what: &str, samples: &Samples, base: f64) -> Vec<String> {
    let (ns, [median, range, wall]) = (samples.median(), samples.cells());
    vec![
        what.to_owned(),
        format!("{:.1}", 1000.0 / ns),
        median,
        range,
        wall,
        format!("{:.2}", base / ns),
    ]
}

const HEAD: [&str; 6] = [
    "what",
    "Mpps",
    "a packet",
    "min - max",
    "at the wall",
    "rate of the first",
];

/// Compares receiving and freeing alone.
fn empty(packets: u64, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    report.heading("Receiving alone");
    let ways = [
        "C: rte_eth_rx_burst, rte_pktmbuf_free_bulk",
        "weir: Queue::receive",
        "weir: backend, with headers written",
    ];
    let mut samples = [const {
        Samples {
            wall: Vec::new(),
            cpu: Vec::new(),
        }
    }; 3];
    let mut opened = null(0)?;
    report.line(&format!(
        "- {}\n- {packets} packets of net_null a round and way\n",
        opened.port.describe()
    ));
    let queue = opened.queues.first_mut().context("a receive queue")?;
    let mut burst = queue.burst();
    // From here on this thread is registered with DPDK, also for the C loop.
    queue.receive(&mut burst);
    burst.clear();
    let mut backend = captures(null(1)?, true).remove(0);
    let never = AtomicBool::new(false);
    for _ in 0..rounds {
        let (received, elapsed) = time(|| plain_loop(queue, packets));
        samples[0].add(elapsed, received as usize);
        let (received, elapsed) = time(|| {
            let mut received = 0;
            while received < packets {
                received += queue.receive(black_box(&mut burst)) as u64;
            }
            received
        });
        samples[1].add(elapsed, received as usize);
        burst.clear();
        let (received, elapsed) = time(|| receive(&mut backend, &never, packets));
        samples[2].add(elapsed, received? as usize);
    }
    let base = samples[0].median();
    let rows: Vec<_> = ways
        .iter()
        .zip(&samples)
        .map(|(way, samples)| row(way, samples, base))
        .collect();
    report.table(&HEAD, &rows);
    for (way, samples) in ways.iter().zip(&samples) {
        keep("receiving", way, samples, packets, report);
    }
    let share = base / samples[1].median();
    report.bar(
        "rate of Queue::receive, of the C loop",
        &format!("{MUST_SHARE:.2}"),
        &format!("{share:.2}"),
        share >= MUST_SHARE,
    );
    let stats = opened.port.stats()?;
    report.line(&format!(
        "\nLoss: {} missed, {} without memory.",
        stats.missed, stats.no_memory
    ));
    Ok(())
}

/// Receives and frees at least `packets` packets.
fn receive(backend: &mut dyn Backend, stop: &AtomicBool, packets: u64) -> io::Result<u64> {
    let mut received = 0;
    while received < packets {
        if let Next::Records(lent, count) = black_box(backend.next(stop)?) {
            received += count;
            drop(lent);
        }
    }
    Ok(received)
}

/// Packets put in, and the answers found another way: a predicate written by hand, another parser, a hash map.
#[derive(Default)]
struct Traffic {
    table: Table,
    passed: u64,
    /// Number of flows among all packets.
    different: usize,
    /// Packets of each flow, among packets that pass.
    flows: HashMap<FlowKey, u64>,
}

fn traffic(packets: u64, flows: u64) -> anyhow::Result<Traffic> {
    let profile = Profile {
        packets,
        flows,
        zipf: 1.0,
        sizes: Sizes::Fixed(60),
        ..Profile::default()
    };
    let mut generator = Generator::new(&profile)?;
    let (mut traffic, mut frame) = (Traffic::default(), [0; FRAME_MAX]);
    let mut seen = vec![false; flows as usize];
    while let Some(made) = generator.next(&mut frame) {
        let frame = &frame[..made.len];
        traffic.table.push(frame);
        if let Some(flow) = made.flow {
            seen[flow as usize] = true;
        }
        if matches(frame) {
            traffic.passed += 1;
            if let Some(key) = lax(frame) {
                *traffic.flows.entry(key).or_default() += 1;
            }
        }
    }
    traffic.different = seen.iter().filter(|&&seen| seen).count();
    Ok(traffic)
}

/// [`EXPRESSION`] written by hand for frames of the generator: IPv4 without options, IPv6 without
/// extensions, no look after tags.
fn matches(frame: &[u8]) -> bool {
    let (proto, at) = match frame[12..14] {
        [0x08, 0x00] if frame[20] & 0x1f != 0 || frame[21] != 0 => return frame[23] == 17,
        [0x08, 0x00] => (frame[23], 34),
        [0x86, 0xdd] => (frame[20], 54),
        _ => return false,
    };
    let port = |at: usize| u16::from_be_bytes([frame[at], frame[at + 1]]);
    proto == 17 || proto == 6 && (port(at) == 443 || port(at + 2) == 443)
}

/// A capture that stops after a number of packets.
#[derive(Debug)]
struct Until {
    capture: Capture,
    packets: u64,
    _feed: Feed,
}

impl Backend for Until {
    fn next(&mut self, _: &AtomicBool) -> io::Result<Next> {
        self.capture.next(&AtomicBool::new(
            self.capture.counts().handed_over >= self.packets,
        ))
    }

    fn wait(&mut self, most: Duration) -> io::Result<()> {
        self.capture.wait(most)
    }

    fn counts(&self) -> Counts {
        self.capture.counts()
    }

    fn layout(&self) -> Layout {
        self.capture.layout()
    }

    fn place(&self) -> &'static str {
        self.capture.place()
    }

    fn describe(&self) -> String {
        self.capture.describe()
    }
}

/// A capture of the frames of the table.
fn fed(number: usize, table: &'static Table) -> anyhow::Result<Until> {
    let mut opened = null(number)?;
    let feed = table.feed(opened.queues.first_mut().context("a receive queue")?);
    Ok(Until {
        capture: captures(opened, true).remove(0),
        packets: table.len(),
        _feed: feed,
    })
}

/// Measures filter, flow key and sketch in one thread.
fn pipeline(full: bool, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    // The number is a multiple of the burst size, so that the callback fills every packet that the device counts.
    let (packets, flows) = if full {
        (8_000_000, 4_000_000)
    } else {
        (40_000, 10_000)
    };
    let packets = u64::next_multiple_of(packets, MOST as u64);
    report.heading("The pipeline on one core");
    // Leaked, because DPDK keeps the address until the process ends.
    let traffic: &'static Traffic = Box::leak(Box::new(traffic(packets, flows)?));
    report.line(&format!(
        "- {packets} frames of 60 bytes of {} different flows, filled in by a callback; {} pass `{EXPRESSION}`\n\
         - filter, flow key, `heavy` of {} MiB; one thread, which receives too\n",
        traffic.different,
        traffic.passed,
        heavy::MEMORY >> 20
    ));
    ensure!(
        !full || traffic.different >= 1_000_000,
        "too few flows occur"
    );
    let ways = [
        "receiving and filling alone",
        "filter, flow key and heavy too",
    ];
    let mut samples = [const {
        Samples {
            wall: Vec::new(),
            cpu: Vec::new(),
        }
    }; 2];
    let mut last = None;
    for round in 0..rounds {
        let mut backend = fed(2 + 2 * round, &traffic.table)?;
        let (received, elapsed) = time(|| receive(&mut backend, &AtomicBool::new(false), packets));
        ensure!(received? == packets, "the table has as many");
        samples[0].add(elapsed, packets as usize);
        drop(backend);
        let (finished, counts, elapsed) = measure(fed(3 + 2 * round, &traffic.table)?)?;
        samples[1].add(elapsed, packets as usize);
        judge(traffic, &finished, &counts, report);
        last = Some((finished, counts));
    }
    let base = samples[0].median();
    let rows: Vec<_> = ways
        .iter()
        .zip(&samples)
        .map(|(way, samples)| row(way, samples, base))
        .collect();
    report.table(&HEAD, &rows);
    for (way, samples) in ways.iter().zip(&samples) {
        keep("pipeline", way, samples, packets, report);
    }
    let rate = 1000.0 / samples[1].median();
    report.bar(
        "filter, flow key and heavy, one core",
        &format!("{MUST_RATE:.0} Mpps (goal 20)"),
        &format!("{rate:.1} Mpps"),
        rate >= MUST_RATE,
    );
    let (finished, losses) = last.context("at least one round")?;
    let first = finished
        .state
        .as_ref()
        .map(|state| state.table(0, 1))
        .and_then(|table| table.rows.first().copied());
    report.line(&format!(
        "\nAnswer: {} received, {} passed, {} filtered, {} dropped; the largest flow has {} packets.",
        finished.arrivals.received,
        finished.processed,
        finished.arrivals.filtered,
        losses.dropped,
        first.map_or(0, |row| row.counts.packets),
    ));
    Ok(())
}

/// Counts of a reader at the end of its source.
struct Losses {
    received: u64,
    dropped: u64,
    fault: Option<String>,
}

fn measure(backend: Until) -> anyhow::Result<(Finished, Losses, Elapsed)> {
    let stop = Arc::new(AtomicBool::new(false));
    let mut run = measured::run(heavy::settings(), EXPRESSION);
    // Tables are made before the first packet arrives.
    run.start(true)?;
    let input = Input::live("net_null", Box::new(backend), &stop);
    let (measured, elapsed) =
        time(|| measured::source(&mut run, input, &stop, &mut |_| {}, &mut |_| {}));
    stop.store(true, Ordering::Relaxed);
    let report = measured?.report;
    let finished = run.finish(&mut |_| {})?;
    let fault = report.fault.map(|fault| fault.what.to_string());
    Ok((
        finished,
        Losses {
            received: report.received,
            dropped: report.live.map_or(0, |live| live.dropped),
            fault,
        },
        elapsed,
    ))
}

/// Checks the answer against the packets that were put in.
fn judge(traffic: &Traffic, finished: &Finished, losses: &Losses, report: &mut Report) {
    if let Some(fault) = &losses.fault {
        report.wrong(fault);
    }
    let all = traffic.table.len();
    let counts = [
        losses.received,
        finished.arrivals.received,
        finished.arrivals.filtered,
        finished.processed,
        losses.dropped,
    ];
    let right = [all, all, all - traffic.passed, traffic.passed, 0];
    if counts != right {
        report.wrong(&format!(
            "received, received, filtered, passed, dropped: {counts:?} for {right:?}"
        ));
    }
    let Some(state) = &finished.state else {
        return report.wrong("nothing passed");
    };
    let rows = state.table(0, ROWS).rows;
    let mut largest: Vec<u64> = traffic.flows.values().copied().collect();
    largest.sort_unstable_by(|a, b| b.cmp(a));
    for (place, row) in rows.iter().enumerate() {
        let real = traffic.flows.get(&row.key).copied().unwrap_or(0);
        if !(row.bound.lower..=row.bound.upper).contains(&real) {
            report.wrong(&format!(
                "row {}: {real} packets are not within its bound {:?}",
                place + 1,
                row.bound
            ));
        }
        // The first ten are far larger than the errors of the sketch.
        if place < 10 && Some(&real) != largest.get(place) {
            report.wrong(&format!(
                "row {}: a flow of {real} packets, the {}. largest has {:?}",
                place + 1,
                place + 1,
                largest.get(place)
            ));
        }
    }
    if rows.len() < ROWS.min(largest.len()) {
        report.wrong(&format!("only {} rows", rows.len()));
    }
}
