//! Sketches and tables compared with public libraries, flow keys compared with etherparse, and spreaders with sketches of the literature: time,
//! memory, answers.

mod accuracy;
mod counter;
mod keys;
mod ours;
mod public;
mod spreaders;
mod stream;
mod twin;

use crate::clock::{Samples, time};
use crate::plot::{self, Scale};
use crate::report::Report;
use crate::{Size, machine};
use accuracy::{Accuracy, HEAVY, broken};
use counter::{Entry, Kind, checksum, sum_of};
use stream::{Key, count_by_sorting, zipf};
use twin::Twin;

/// Columns of the raw data.
pub const RAW: &str = "section,input,what,round,wall_ns,cpu_ns,bytes,checksum";

const SEED: u64 = 1;

const RIVALS: [&str; 7] = [
    "asap_sketchlib",
    "datasketches",
    "etherparse",
    "hashbrown",
    "heavykeeper",
    "probabilistic-collections",
    "streaming_algorithms",
];

/// A contestant with its results.
struct Found {
    entry: Entry,
    samples: Samples,
    bytes: usize,
    checksum: u64,
    /// Accuracy by the estimate. For contestants with bounds: by the lower and by the upper bound.
    answers: Vec<(&'static str, Accuracy)>,
    /// Flows outside the bounds, if the contestant gives bounds.
    broken: Option<usize>,
}

/// Runs all parts.
pub fn run(size: Size, rounds: usize, report: &mut Report) -> anyhow::Result<()> {
    let (packets, flows) = match size {
        Size::Full => (10_000_000, 1_000_000),
        Size::Smoke => (100_000, 10_000),
    };
    let stream = zipf(SEED, packets, flows);
    let truth = count_by_sorting(&stream);
    let threshold = ((packets as f64 * HEAVY).ceil() as u64).max(1);
    let heavy = truth
        .iter()
        .filter(|(_, count)| *count >= threshold)
        .count();
    let input = format!("{packets} packets, Zipf(1.1) over {flows} flows");
    report.line(&format!(
        "- {input}, seed {SEED}: {} occur, {heavy} of them heavy ({threshold} packets or more), the largest has {}",
        truth.len(),
        truth.iter().map(|(_, count)| *count).max().unwrap_or(0),
    ));
    report.line(&format!("- rivals: {}", machine::versions(&RIVALS)));
    report.line("- times are ns a packet of one thread; keys of 13 bytes lie in memory row by row; making the table is not timed, touching its pages first is");
    let all = contest(&stream, &truth, threshold, rounds, report);
    for found in &all {
        for (round, (wall, cpu)) in found
            .samples
            .wall
            .iter()
            .zip(&found.samples.cpu)
            .enumerate()
        {
            let name = found.entry.name;
            let cells = [round + 1, found.bytes].map(|n| n.to_string());
            let times = [wall, cpu].map(|ns| format!("{ns:.3}"));
            let sum = found.checksum.to_string();
            report.raw(&[
                "update", &input, name, &cells[0], &times[0], &times[1], &cells[1], &sum,
            ]);
        }
    }
    times(&all, report);
    answers(&all, threshold, report);
    checks(&all, &stream, &truth, report);
    verdicts(&all, report);
    picture(&all, report);
    drop((all, stream, truth));
    keys::run(size, rounds, report)?;
    spreaders::run(size, rounds, report);
    report.bars();
    Ok(())
}

/// Runs every contestant once per round, in turn.
fn contest(
    stream: &[Key],
    truth: &[(Key, u64)],
    threshold: u64,
    rounds: usize,
    report: &mut Report,
) -> Vec<Found> {
    let entries = ours::entries().into_iter().chain(public::entries());
    let mut all: Vec<Found> = entries
        .map(|entry| Found {
            entry,
            samples: Samples::default(),
            bytes: 0,
            checksum: 0,
            answers: Vec::new(),
            broken: None,
        })
        .collect();
    for round in 0..rounds {
        for found in &mut all {
            let mut counter = (found.entry.make)();
            let ((), elapsed) = time(|| counter.feed(stream));
            found.samples.add(elapsed, stream.len());
            let counter = &*counter;
            let sum = checksum(counter, truth);
            if round > 0 && sum != found.checksum {
                report.wrong(&format!(
                    "{} answers differently in round {}",
                    found.entry.name,
                    round + 1
                ));
            }
            (found.checksum, found.bytes) = (sum, counter.bytes());
            if round > 0 || found.entry.kind == Kind::Floor {
                continue;
            }
            let score = |estimate: &dyn Fn(&Key) -> u64| {
                Accuracy::of(truth, threshold, estimate, |key| counter.names(key))
            };
            found
                .answers
                .push(("estimate", score(&|key| counter.estimate(key))));
            let bounds = |key: &Key| counter.bounds(key);
            if truth.first().and_then(|(key, _)| bounds(key)).is_some() {
                let bounds = |key: &Key| bounds(key).expect("it gives bounds");
                found.answers = vec![
                    ("lower bound", score(&|key| bounds(key).0)),
                    ("upper bound", score(&|key| bounds(key).1)),
                ];
                found.broken = Some(broken(truth, bounds));
            }
        }
    }
    all
}

fn bytes_text(bytes: usize) -> String {
    if bytes == 0 {
        "-".to_owned()
    } else {
        format!("{:.2} MiB", bytes as f64 / f64::from(1 << 20))
    }
}

fn times(all: &[Found], report: &mut Report) {
    report.heading("Update");
    let rows: Vec<Vec<String>> = all
        .iter()
        .map(|found| {
            let [median, range, wall] = found.samples.cells();
            let (name, inside) = (found.entry.name.to_owned(), found.entry.inside.to_owned());
            vec![name, median, range, wall, bytes_text(found.bytes), inside]
        })
        .collect();
    report.table(
        &[
            "what",
            "cpu, median",
            "min - max",
            "wall",
            "memory",
            "in the time",
        ],
        &rows,
    );
}

fn answers(all: &[Found], threshold: u64, report: &mut Report) {
    report.heading("Answers: Count-Min");
    let of = |kind| all.iter().filter(move |found| found.entry.kind == kind);
    let row = |found: &Found| {
        let Accuracy {
            aae,
            heavy_are,
            worst,
            ..
        } = found.answers[0].1;
        let name = found.entry.name.to_owned();
        vec![
            name,
            format!("{aae:.2}"),
            format!("{heavy_are:.4}"),
            worst.to_string(),
            bytes_text(found.bytes),
            hex(found),
        ]
    };
    report.table(
        &[
            "what",
            "mean error, all flows",
            "mean relative error, heavy",
            "largest error",
            "memory",
            "checksum",
        ],
        &of(Kind::CountMin).map(row).collect::<Vec<_>>(),
    );
    report.heading(&format!(
        "Answers: heavy flows ({threshold} packets or more)"
    ));
    let mut rows = Vec::new();
    for found in of(Kind::Heavy) {
        for (by, answers) in &found.answers {
            rows.push(vec![
                found.entry.name.to_owned(),
                (*by).to_owned(),
                format!("{:.4}", answers.precision),
                format!("{:.4}", answers.recall),
                format!("{:.4}", answers.f1()),
                format!("{:.5}", answers.heavy_are),
                answers.worst.to_string(),
                found
                    .broken
                    .map_or("no bounds".to_owned(), |n| n.to_string()),
                hex(found),
            ]);
        }
    }
    let head = [
        "what",
        "told by",
        "precision",
        "recall",
        "F1",
        "mean relative error, heavy",
        "largest error",
        "bounds broken",
        "checksum",
    ];
    report.table(&head, &rows);
    report.heading("Answers: exact");
    let row = |found: &Found| {
        let worst = found.answers[0].1.worst.to_string();
        vec![
            found.entry.name.to_owned(),
            worst,
            bytes_text(found.bytes),
            hex(found),
        ]
    };
    report.table(
        &["what", "largest error", "memory", "checksum"],
        &of(Kind::Exact).map(row).collect::<Vec<_>>(),
    );
}

fn hex(found: &Found) -> String {
    format!("{:016x}", found.checksum)
}

/// Checks exact tables against sorting, Count-Min against its naive twin, and bounds against the truth.
fn checks(all: &[Found], stream: &[Key], truth: &[(Key, u64)], report: &mut Report) {
    report.heading("Checks");
    let sorted = sum_of(truth.iter().map(|(key, count)| (key, *count)));
    report.line(&format!(
        "- by sorting the stream: checksum {sorted:016x}; every exact table must have it"
    ));
    for found in all
        .iter()
        .filter(|found| found.entry.kind == Kind::Exact && found.checksum != sorted)
    {
        report.wrong(&format!("{} is not exact", found.entry.name));
    }
    for conservative in [false, true] {
        let twin = Twin::of(stream, conservative);
        let sum = sum_of(truth.iter().map(|(key, _)| (key, twin.estimate(key))));
        let rule = if conservative {
            "conservative"
        } else {
            "plain"
        };
        report.line(&format!(
            "- a naive Count-Min, {rule}: checksum {sum:016x}; weir's of this rule must have it"
        ));
        let ours = all
            .iter()
            .filter(|found| found.entry.ours && found.entry.kind == Kind::CountMin);
        for found in ours.filter(|found| found.entry.name.contains("conservative") == conservative)
        {
            if found.checksum != sum {
                report.wrong(&format!("{} differs from its naive twin", found.entry.name));
            }
        }
    }
    for found in all
        .iter()
        .filter(|found| found.broken.is_some_and(|broken| broken > 0))
    {
        let line = format!(
            "{}: bounds do not hold for {} flows",
            found.entry.name,
            found.broken.unwrap_or(0)
        );
        if found.entry.ours {
            report.wrong(&line)
        } else {
            report.line(&format!("- {line}"))
        }
    }
}

fn verdicts(all: &[Found], report: &mut Report) {
    let median = |found: &Found| found.samples.median();
    let of = |kind, ours| {
        all.iter()
            .filter(move |found| found.entry.kind == kind && found.entry.ours == ours)
    };
    let fastest = |kind, ours| {
        of(kind, ours)
            .min_by(|a, b| median(a).total_cmp(&median(b)))
            .expect("some take part")
    };
    let best = |found: &Found| {
        found
            .answers
            .iter()
            .map(|(_, answers)| answers.f1())
            .fold(0.0, f64::max)
    };

    let (mine, theirs) = (&all[1], fastest(Kind::CountMin, false));
    let (cost, other) = (median(mine), median(theirs));
    report.bar(
        "Count-Min in batches",
        "half the time of the best library (goal 8 ns)",
        &format!("{cost:.1} ns; {} {other:.1} ns", theirs.entry.name),
        cost * 2.0 <= other,
    );
    let mine = all
        .iter()
        .find(|found| found.entry.name.starts_with("weir Heavy"))
        .expect("it takes part");
    let theirs = fastest(Kind::Heavy, false);
    let (cost, other) = (median(mine), median(theirs));
    let f1 = mine.answers[0].1.f1();
    report.bar(
        "Heavy, F1 told by the lower bound",
        "0.99",
        &format!("{f1:.4}"),
        f1 >= 0.99,
    );
    let broken = mine.broken.unwrap_or(usize::MAX);
    report.bar(
        "Heavy, flows outside their bounds",
        "0",
        &broken.to_string(),
        broken == 0,
    );
    report.bar(
        "Heavy, time",
        "25 ns (goal 12 ns)",
        &format!("{cost:.1} ns"),
        cost <= 25.0,
    );
    report.bar(
        "Heavy, against heavykeeper and Apache frequent items",
        "faster than each",
        &format!(
            "{cost:.1} ns; {} {other:.1} ns with F1 {:.4}",
            theirs.entry.name,
            best(theirs)
        ),
        cost < other,
    );
    let (mine, theirs) = (fastest(Kind::Exact, true), fastest(Kind::Exact, false));
    let found = format!(
        "{:.1} ns; {} {:.1} ns",
        median(mine),
        theirs.entry.name,
        median(theirs)
    );
    report.bar(
        "Exact, 64 MiB",
        "25 ns (goal 15 ns)",
        &found,
        median(mine) <= 25.0,
    );
}

fn picture(all: &[Found], report: &mut Report) {
    let mut shown: Vec<&Found> = all.iter().collect();
    let order = |kind| {
        [Kind::Floor, Kind::CountMin, Kind::Heavy, Kind::Exact]
            .iter()
            .position(|k| *k == kind)
    };
    shown.sort_by_key(|found| order(found.entry.kind));
    let bars: Vec<plot::Bar> = shown
        .into_iter()
        .map(|found| plot::Bar {
            label: found.entry.name.to_owned(),
            value: found.samples.median(),
            range: found.samples.range(),
            group: usize::from(!found.entry.ours),
        })
        .collect();
    let axis = "ns a packet, processor time: median, smallest and largest of the rounds";
    let title = "One update: Count-Min, heavy hitters, exact tables";
    report.picture(
        "update",
        &plot::bars(
            title,
            axis,
            Scale::Linear,
            &["weir", "public libraries"],
            &bars,
        ),
    );
}
