//! The course's mixes: a plain serial program, one packet at a time, against weir's engine.
//!
//! The serial program has a bit for each pair of destination and source, and a flag for each address. Streams are made before the clock
//! starts, the course's changes of the warm-up are applied before it too, and all destinations accept all sources at first. The rounds of a
//! packet are executed one by one in both programs; weir's engine executes those of several packets of a batch side by side.

use crate::Size;
use crate::clock::{Samples, time};
use crate::plot::{self, Scale};
use crate::report::Report;
use crate::rivals::median;
use std::sync::{Arc, Barrier};
use std::time::Instant;
use weir_firewall::permissions::{Change, Permissions, Span};
use weir_firewall::replicas::{Refused, Shard, Shared, Worker};
use weir_firewall::striped::{Striped, StripedWorker};
use weir_generator::trains::{Config, MIXES, Mix, Packet, Trains, fingerprint, fingerprints};

/// Packets in flight, at most, in the course.
const BATCH: usize = 256;

/// Packets between the one whose memory is fetched and the one that is judged.
const AHEAD: usize = 8;

/// Changes that a worker need not have taken up yet.
const LOG: usize = 4096;

/// Histogram of fingerprints, of 65 536 values, and the number of accepted packets.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    histogram: Vec<u32>,
    accepted: u64,
}

impl Answer {
    fn new() -> Self {
        Self { histogram: vec![0; 1 << 16], accepted: 0 }
    }

    fn add(&mut self, fingerprint: u16) {
        self.histogram[usize::from(fingerprint)] += 1;
        self.accepted += 1;
    }

    fn checksum(&self) -> u64 {
        let bins = self.histogram.iter().zip(1u64..);
        bins.fold(0, |sum, (count, bin)| sum.wrapping_add(u64::from(*count).wrapping_mul(bin.wrapping_mul(bin | 1))))
    }
}

/// The serial program.
#[derive(Clone)]
struct Serial {
    addresses: usize,
    refused: Vec<u64>,
    personae_non_gratae: Vec<bool>,
}

impl Serial {
    fn new(mix: &Mix) -> Self {
        let addresses = mix.addresses() as usize;
        Self { addresses, refused: vec![0; addresses * addresses / 64], personae_non_gratae: vec![false; addresses] }
    }

    fn apply(&mut self, config: &Config) {
        self.personae_non_gratae[config.address as usize] = config.persona_non_grata;
        for source in config.begin..config.end {
            let bit = config.address as usize * self.addresses + source as usize;
            match config.accepting {
                true => self.refused[bit / 64] &= !(1 << (bit % 64)),
                false => self.refused[bit / 64] |= 1 << (bit % 64),
            }
        }
    }

    fn passes(&self, source: u32, destination: u32) -> bool {
        let bit = destination as usize * self.addresses + source as usize;
        !self.personae_non_gratae[source as usize] && self.refused[bit / 64] >> (bit % 64) & 1 == 0
    }

    /// Judges the packets; with `work` it executes their rounds, else the seed stands for the result.
    fn run(&mut self, packets: &[Packet], work: bool) -> Answer {
        let mut answer = Answer::new();
        for packet in packets {
            match packet {
                Packet::Config(config) => self.apply(config),
                Packet::Data(data) if self.passes(data.source, data.destination) => {
                    answer.add(if work { fingerprint(data.iterations, data.seed) } else { data.seed as u16 });
                }
                Packet::Data(_) => {}
            }
        }
        answer
    }
}

fn change(config: &Config) -> Change<u32> {
    let sources = Span::half_open(config.begin, Some(config.end));
    Change {
        address: config.address,
        persona_non_grata: Some(config.persona_non_grata),
        accepts: sources.map(|sources| (sources, config.accepting)),
    }
}

/// Judges the packets in batches by a worker, which applies the changes among them.
fn weir(worker: &mut Worker<Permissions<u32>>, packets: &[Packet], work: bool) -> Answer {
    let mut answer = Answer::new();
    let mut accepted = Vec::with_capacity(BATCH);
    for batch in packets.chunks(BATCH) {
        worker.begin();
        for (i, packet) in batch.iter().enumerate() {
            if let Some(Packet::Data(data)) = batch.get(i + AHEAD) {
                worker.value().prefetch(data.source, data.destination);
            }
            match packet {
                Packet::Config(config) => {
                    // The other worker takes up the changes soon.
                    while let Err(Refused::NoRoom { .. }) = worker.change(&change(config)) {
                        std::hint::spin_loop();
                    }
                }
                Packet::Data(data) if worker.value().passes(data.source, data.destination) => match work {
                    true => accepted.push((data.iterations, data.seed)),
                    false => answer.add(data.seed as u16),
                },
                Packet::Data(_) => {}
            }
        }
        fingerprints(&mut accepted, |fingerprint| answer.add(fingerprint));
        worker.end();
    }
    answer
}

/// The same by the striped engine; returns the share of verdicts that were in the cache too.
fn striped(worker: &mut StripedWorker<u32>, packets: &[Packet]) -> (Answer, f64) {
    let mut answer = Answer::new();
    for batch in packets.chunks(BATCH) {
        worker.begin();
        for packet in batch {
            match packet {
                Packet::Config(config) => drop(worker.change(&change(config))),
                Packet::Data(data) if worker.denies(data.source, data.destination).is_none() => {
                    answer.add(data.seed as u16);
                }
                Packet::Data(_) => {}
            }
        }
        worker.end();
    }
    let (hits, misses) = worker.hits_and_misses();
    (answer, hits as f64 / (hits + misses).max(1) as f64)
}

/// Packets of a mix behind its warm-up, and both programs as the warm-up leaves them.
struct Prepared {
    serial: Serial,
    permissions: Permissions<u32>,
    with_work: Vec<Packet>,
    without_work: Vec<Packet>,
}

fn prepare(mix: &Mix, size: Size) -> Prepared {
    let mut trains = Trains::new(mix);
    let (mut serial, mut permissions) = (Serial::new(mix), Permissions::new(mix.addresses() as usize, true, 7));
    let warm_up = if size == Size::Full { mix.warm_up() } else { 10_000 };
    for _ in 0..warm_up {
        let config = trains.config();
        serial.apply(&config);
        permissions.apply(&change(&config)).expect("there is room for all addresses");
    }
    // About a third of a second of rounds.
    let rounds = if size == Size::Full { 300_000_000 } else { 3_000_000 };
    let with_work = trains.clone().take((rounds / mix.work as usize).max(1000)).collect();
    let without_work = trains.take(if size == Size::Full { 2_000_000 } else { 20_000 }).collect();
    Prepared { serial, permissions, with_work, without_work }
}

/// Sizes of the striped engine's cache, entries.
const CACHES: [usize; 4] = [16, 1 << 9, 1 << 12, 1 << 16];

/// Stripes of the striped engine.
const STRIPES: usize = 256;

/// Medians of a mix, ns a packet.
struct Medians {
    serial: f64,
    weir: f64,
    serial_bare: f64,
    weir_bare: f64,
    /// The striped engine without work, and its cache hits, by the size of the cache.
    striped: Vec<(f64, f64)>,
    /// Two workers that share permissions, and two independent programs: million packets a second.
    shared: f64,
    independent: f64,
}

pub fn run(size: Size, rounds: usize, report: &mut Report) {
    report.heading("The course's eight mixes");
    report.line("ns a packet, median; one thread unless said otherwise. *with work*: every round of each accepted packet is executed.");
    report.line("");
    let all: Vec<Medians> = (1..).zip(&MIXES).map(|(number, mix)| one(number, mix, size, rounds, report)).collect();
    let rows = (1..).zip(&all).map(|(number, medians)| {
        let Medians { serial, weir, serial_bare, weir_bare, shared, independent, .. } = medians;
        vec![
            number.to_string(),
            format!("{serial:.0}"),
            format!("{weir:.0}"),
            format!("{:.2}x", weir / serial),
            format!("{serial_bare:.1}"),
            format!("{weir_bare:.1}"),
            format!("{:.1}", 1e3 / weir_bare),
            format!("{shared:.2}"),
            format!("{independent:.2}"),
            format!("{:.2}x", shared / independent),
        ]
    });
    let head = [
        "mix",
        "serial",
        "weir",
        "of serial",
        "serial, no work",
        "weir, no work",
        "Mpps",
        "2 workers, Mpps",
        "2 programs, Mpps",
        "of 2 programs",
    ];
    report.table(&head, &rows.collect::<Vec<_>>());
    report.line("");
    report.line(&format!(
        "The striped engine without work, {STRIPES} stripes: ns a packet and share of verdicts in the cache, by the entries of the cache."
    ));
    report.line("");
    let rows = (1..).zip(&all).map(|(number, medians)| {
        let cells = medians.striped.iter().map(|(ns, hits)| format!("{ns:.1} ({:.0} %)", 100.0 * hits));
        let best = medians.striped.iter().map(|(ns, _)| *ns).fold(f64::INFINITY, f64::min);
        let ratio = format!("{:.2}x", best / medians.weir_bare);
        std::iter::once(number.to_string()).chain(cells).chain([format!("{:.1}", medians.weir_bare), ratio]).collect()
    });
    let heads: Vec<String> = CACHES.iter().map(|room| format!("cache of {room}")).collect();
    let head: Vec<&str> = std::iter::once("mix")
        .chain(heads.iter().map(String::as_str))
        .chain(["sharded", "fastest of sharded"])
        .collect();
    report.table(&head, &rows.collect::<Vec<_>>());
    let categories: Vec<String> = (1..=MIXES.len()).map(|number| number.to_string()).collect();
    let line = |label: &str, value: &dyn Fn(&Medians) -> f64| plot::Line {
        label: label.to_owned(),
        values: all.iter().map(|medians| Some(value(medians))).collect(),
    };
    let lines = [
        line("serial program", &|medians| 1e3 / medians.serial),
        line("weir, 1 worker", &|medians| 1e3 / medians.weir),
        line("weir, 2 workers", &|medians| medians.shared),
        line("2 serial-like programs of weir", &|medians| medians.independent),
    ];
    let svg =
        plot::lines("The course's mixes with work", ("mix", "million packets/s"), Scale::Log, &categories, &lines);
    report.picture("mixes", &svg);
    if size == Size::Full {
        let ratio = |mix: usize| all[mix - 1].weir / all[mix - 1].serial;
        let worst = (5..=8).map(ratio).fold(0.0, f64::max);
        report.bar(
            "mixes 5 to 8 with work, one worker, of the serial program",
            "0.4x",
            &format!("{worst:.2}x"),
            worst <= 0.4,
        );
        report.bar(
            "mix 4 with work, one worker, of the serial program",
            "0.6x",
            &format!("{:.2}x", ratio(4)),
            ratio(4) <= 0.6,
        );
        let slowest = all.iter().map(|medians| 1e3 / medians.weir_bare).fold(f64::INFINITY, f64::min);
        report.bar("without work, one worker, slowest mix", "10 Mpps", &format!("{slowest:.1} Mpps"), slowest >= 10.0);
        let best = |medians: &Medians| medians.striped.iter().map(|(ns, _)| *ns).fold(f64::INFINITY, f64::min);
        let least = all.iter().map(|medians| best(medians) / medians.weir_bare).fold(f64::INFINITY, f64::min);
        report.bar("striped of sharded without work, worst mix", "1x", &format!("{least:.2}x"), least >= 1.0);
        let share = all.iter().map(|medians| medians.shared / medians.independent).fold(f64::INFINITY, f64::min);
        report.bar("two workers against two programs, worst mix", "0.9x", &format!("{share:.2}x"), share >= 0.9);
    }
}

fn one(number: usize, mix: &Mix, size: Size, rounds: usize, report: &mut Report) -> Medians {
    let prepared = prepare(mix, size);
    let Prepared { serial, permissions, with_work, without_work } = &prepared;
    let mut samples: [Samples; 4] = Default::default();
    let (mut shared, mut independent) = (Vec::new(), Vec::new());
    let mut by_cache: [(Samples, f64); CACHES.len()] = Default::default();
    let mut wanted: [Option<Answer>; 2] = [None, None];
    for round in 0..rounds {
        for (at, (packets, work)) in [(with_work, true), (without_work, false)].into_iter().enumerate() {
            let mut program = serial.clone();
            let (expected, elapsed) = time(|| program.run(packets, work));
            samples[2 * at].add(elapsed, packets.len());
            let mut worker = Shared::new(permissions.clone(), LOG).worker(Shard::ALL);
            let (answer, elapsed) = time(|| weir(&mut worker, packets, work));
            samples[2 * at + 1].add(elapsed, packets.len());
            if answer != expected || wanted[at].get_or_insert_with(|| expected.clone()) != &expected {
                report.wrong(&format!("mix {number}: another histogram"));
            }
            for (rival, sample) in [("serial", &samples[2 * at]), ("weir", &samples[2 * at + 1])] {
                let case = format!("mix {number}{}", if work { "" } else { " without work" });
                let ns = format!("{:.2}", sample.cpu[round]);
                let (round, sum) = ((round + 1).to_string(), format!("{:016x}", expected.checksum()));
                report.raw(&["mixes", &case, rival, &round, &ns, &sum]);
            }
        }
        for ((samples, hits), room) in by_cache.iter_mut().zip(CACHES) {
            let mut worker = Striped::new(permissions.clone(), STRIPES, 1).worker(room);
            let ((answer, share), elapsed) = time(|| striped(&mut worker, without_work));
            samples.add(elapsed, without_work.len());
            *hits = share;
            if wanted[1].as_ref() != Some(&answer) {
                report.wrong(&format!("mix {number}: another histogram of the striped engine"));
            }
            let (case, ns) =
                (format!("mix {number} without work, cache of {room}"), format!("{:.2}", samples.cpu[round]));
            report.raw(&["mixes", &case, "striped", &(round + 1).to_string(), &ns, &format!("{share:.4}")]);
        }
        shared.push(two(permissions, with_work, true));
        independent.push(two(permissions, with_work, false));
    }
    Medians {
        serial: samples[0].median(),
        weir: samples[1].median(),
        serial_bare: samples[2].median(),
        weir_bare: samples[3].median(),
        striped: by_cache.iter().map(|(samples, hits)| (samples.median(), *hits)).collect(),
        shared: median(shared.into_iter()),
        independent: median(independent.into_iter()),
    }
}

/// Million packets a second of two threads: each judges its shard of the packets by one policy, or all of them by one of its own.
fn two(permissions: &Permissions<u32>, packets: &[Packet], is_shared: bool) -> f64 {
    let of_shard = |index: u32| -> Vec<Packet> {
        let is_of = |packet: &&Packet| {
            let address = match packet {
                Packet::Config(config) => config.address,
                Packet::Data(data) => data.destination,
            };
            Shard::of(address, 2).index == index
        };
        packets.iter().filter(is_of).copied().collect()
    };
    let streams: Vec<Vec<Packet>> =
        (0..2).map(|index| if is_shared { of_shard(index) } else { packets.to_vec() }).collect();
    let one = Shared::new(permissions.clone(), LOG);
    let workers: Vec<Worker<Permissions<u32>>> = (0..2)
        .map(|index| match is_shared {
            true => one.worker(Shard { index, of: 2 }),
            false => Shared::new(permissions.clone(), LOG).worker(Shard::ALL),
        })
        .collect();
    let start = Arc::new(Barrier::new(2));
    let run = |mut worker: Worker<_>, stream: &[Packet], start: Arc<Barrier>| {
        start.wait();
        let begun = Instant::now();
        let answer = weir(&mut worker, stream, true);
        std::hint::black_box(answer.checksum());
        // A worker that has ended delays nobody.
        drop(worker);
        begun.elapsed().as_secs_f64()
    };
    let seconds: Vec<f64> = std::thread::scope(|scope| {
        let threads = workers.into_iter().zip(&streams).map(|(worker, stream)| {
            let start = Arc::clone(&start);
            scope.spawn(move || run(worker, stream, start))
        });
        threads.collect::<Vec<_>>().into_iter().map(|thread| thread.join().expect("a worker does not panic")).collect()
    });
    // Each at its own pace, so that the end of the slower one, alone, is not counted against either.
    streams.iter().zip(&seconds).map(|(stream, seconds)| stream.len() as f64 / seconds / 1e6).sum()
}
