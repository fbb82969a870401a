//! The course's mixes: a plain serial program, one packet at a time, against weir's engine.
//!
//! The serial program has a bit for each pair of destination and source, and a flag for each address. Streams are made before the clock
//! starts, the course's changes of the warm-up are applied before it too, and all destinations accept all sources at first, or refuse them with
//! `--refuse`. The rounds of a
//! packet are executed one by one in both programs; weir's engine executes those of several packets of a batch side by side.

mod figures;
mod programs;
mod teams;

use crate::Size;
use crate::clock::{Samples, time};
use crate::plot::{self, Scale};
use crate::report::Report;
use crate::rivals::median;
use figures::Figures;
use programs::{Answer, Serial, change};
use teams::{Distribution, Engine, STRIPES, Start};
use weir_generator::trains::{MIXES, Mix, Packet, Trains};

/// Packets in flight, at most, in the course.
const BATCH: usize = 256;

/// Packets of a mix after its warm-up, and both programs as the warm-up leaves them.
struct Prepared {
    serial: Serial,
    start: Start,
    with_work: Vec<Packet>,
    without_work: Vec<Packet>,
}

fn prepare(mix: &Mix, size: Size, accepts: bool) -> Prepared {
    let small = Mix {
        addresses_log: mix.addresses_log.min(11),
        work: mix.work.min(100),
        ..*mix
    };
    let mix = if size == Size::Full { mix } else { &small };
    let mut trains = Trains::new(mix);
    let (mut serial, mut start) = (
        Serial::new(mix, accepts),
        Start::new(mix.addresses() as usize, accepts),
    );
    let warm_up = if size == Size::Full {
        mix.warm_up()
    } else {
        2_000
    };
    for _ in 0..warm_up {
        let config = trains.config();
        serial.apply(&config);
        start.apply(change(&config));
    }
    // Some tenths of a second, and enough packets for the largest cache.
    let (rounds, least) = if size == Size::Full {
        (300_000_000, 150_000)
    } else {
        (100_000, 1000)
    };
    let with_work = trains
        .clone()
        .take((rounds / mix.work as usize).max(least))
        .collect();
    let without_work = trains
        .take(if size == Size::Full { 2_000_000 } else { 5_000 })
        .collect();
    Prepared {
        serial,
        start,
        with_work,
        without_work,
    }
}

/// Sizes of the striped engine's cache, entries.
const CACHES: [usize; 4] = [16, 1 << 9, 1 << 12, 1 << 16];

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
    figures: Figures,
}

pub fn run(size: Size, rounds: usize, accepts: bool, report: &mut Report) {
    report.heading("The course's eight mixes");
    report.line("ns a packet, median; one thread unless said otherwise. *with work*: every round of each accepted packet is executed.");
    report.line("");
    let all: Vec<Medians> = (1..)
        .zip(&MIXES)
        .map(|(number, mix)| one(number, &prepare(mix, size, accepts), size, rounds, report))
        .collect();
    let rows = (1..).zip(&all).map(|(number, medians)| {
        let Medians {
            serial,
            weir,
            serial_bare,
            weir_bare,
            shared,
            independent,
            ..
        } = medians;
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
        let cells = medians
            .striped
            .iter()
            .map(|(ns, hits)| format!("{ns:.1} ({:.0} %)", 100.0 * hits));
        let best = medians
            .striped
            .iter()
            .map(|(ns, _)| *ns)
            .fold(f64::INFINITY, f64::min);
        let ratio = format!("{:.2}x", best / medians.weir_bare);
        std::iter::once(number.to_string())
            .chain(cells)
            .chain([format!("{:.1}", medians.weir_bare), ratio])
            .collect()
    });
    let heads: Vec<String> = CACHES
        .iter()
        .map(|room| format!("cache of {room}"))
        .collect();
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
        line("2 programs of weir, apart", &|medians| medians.independent),
    ];
    let svg = plot::lines(
        "The course's mixes with work",
        ("mix", "million packets/s"),
        Scale::Log,
        &categories,
        &lines,
    );
    report.picture("mixes", &svg);
    let all_figures: Vec<&Figures> = all.iter().map(|medians| &medians.figures).collect();
    figures::show(&all_figures, report);
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
        let slowest = all
            .iter()
            .map(|medians| 1e3 / medians.weir_bare)
            .fold(f64::INFINITY, f64::min);
        report.bar(
            "without work, one worker, slowest mix",
            "10 Mpps",
            &format!("{slowest:.1} Mpps"),
            slowest >= 10.0,
        );
        let best = |medians: &Medians| {
            medians
                .striped
                .iter()
                .map(|(ns, _)| *ns)
                .fold(f64::INFINITY, f64::min)
        };
        let least = all
            .iter()
            .map(|medians| best(medians) / medians.weir_bare)
            .fold(f64::INFINITY, f64::min);
        report.bar(
            "striped of sharded without work, worst mix",
            "1x",
            &format!("{least:.2}x"),
            least >= 1.0,
        );
        let share = all
            .iter()
            .map(|medians| medians.shared / medians.independent)
            .fold(f64::INFINITY, f64::min);
        report.bar(
            "two workers against two programs, worst mix",
            "0.9x",
            &format!("{share:.2}x"),
            share >= 0.9,
        );
    }
}

/// Measures a mix.
fn one(
    number: usize,
    prepared: &Prepared,
    size: Size,
    rounds: usize,
    report: &mut Report,
) -> Medians {
    let Prepared {
        serial,
        start,
        with_work,
        without_work,
    } = prepared;
    let mut samples: [Samples; 4] = Default::default();
    let (mut shared, mut independent) = (Vec::new(), Vec::new());
    let mut by_cache: [(Samples, f64); CACHES.len()] = Default::default();
    let mut wanted: [Option<Answer>; 2] = [None, None];
    for round in 0..rounds {
        for (at, (packets, work)) in [(with_work, true), (without_work, false)]
            .into_iter()
            .enumerate()
        {
            let mut program = serial.clone();
            let (expected, elapsed) = time(|| program.run(packets, work));
            samples[2 * at].add(elapsed, packets.len());
            let mut team = Engine::Sharded.team(start, 1, Distribution::Address);
            let (answer, elapsed) = time(|| team[0].run(packets, BATCH, work));
            samples[2 * at + 1].add(elapsed, packets.len());
            if answer != expected || wanted[at].get_or_insert_with(|| expected.clone()) != &expected
            {
                report.wrong(&format!("mix {number}: another histogram"));
            }
            for (rival, sample) in [("serial", &samples[2 * at]), ("weir", &samples[2 * at + 1])] {
                let case = format!("mix {number}{}", if work { "" } else { " without work" });
                let ns = format!("{:.2}", sample.cpu[round]);
                let (round, sum) = (
                    (round + 1).to_string(),
                    format!("{:016x}", expected.checksum()),
                );
                report.raw(&["mixes", &case, rival, &round, &ns, &sum]);
            }
        }
        for ((samples, hits), room) in by_cache.iter_mut().zip(CACHES) {
            let mut team = Engine::Striped(room).team(start, 1, Distribution::Address);
            let (answer, elapsed) = time(|| team[0].run(without_work, BATCH, false));
            let (found, others) = team[0].hits_and_misses();
            let share = found as f64 / (found + others).max(1) as f64;
            samples.add(elapsed, without_work.len());
            *hits = share;
            if wanted[1].as_ref() != Some(&answer) {
                report.wrong(&format!(
                    "mix {number}: another histogram of the striped engine"
                ));
            }
            let (case, ns) = (
                format!("mix {number} without work, cache of {room}"),
                format!("{:.2}", samples.cpu[round]),
            );
            report.raw(&[
                "mixes",
                &case,
                "striped",
                &(round + 1).to_string(),
                &ns,
                &format!("{share:.4}"),
            ]);
        }
        let streams = Distribution::Address.streams(with_work, 2);
        shared.push(teams::run(
            Engine::Sharded.team(start, 2, Distribution::Address),
            &streams,
            true,
            true,
        ));
        let one = || Engine::Sharded.team(start, 1, Distribution::Address);
        let streams = [with_work.clone(), with_work.clone()];
        independent.push(teams::run(
            [one(), one()].into_iter().flatten().collect(),
            &streams,
            true,
            true,
        ));
    }
    let accepted = wanted.map(|answer| answer.map_or(0, |answer| answer.accepted));
    let figures = figures::measure(number, prepared, accepted, size, rounds, report);
    Medians {
        serial: samples[0].median(),
        weir: samples[1].median(),
        serial_bare: samples[2].median(),
        weir_bare: samples[3].median(),
        striped: by_cache
            .iter()
            .map(|(samples, hits)| (samples.median(), *hits))
            .collect(),
        // Each at its own pace, so that the end of the slower one, alone, is not counted against either.
        shared: median(shared.iter().map(|run| run.own_pace_mpps)),
        independent: median(independent.iter().map(|run| run.own_pace_mpps)),
        figures,
    }
}
