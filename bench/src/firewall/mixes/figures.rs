//! The parent's experiment: packets a second by workers, distribution and size of the cache, as in its four figures.
//!
//! A slice of all combinations, as the figures need it: 1 to 3 workers of both engines in each distribution with a cache of 16 384 verdicts
//! (figures 1 and 3), and all sizes of the cache with 3 workers by address (figures 2 and 4); each with work and without.

use super::Prepared;
use super::teams::{self, Distribution, Engine, Start};
use crate::Size;
use crate::plot::{self, Line, Notes, Scale};
use crate::report::Report;
use crate::rivals::median;
use weir_generator::trains::Packet;

/// Numbers of workers.
const WORKERS: [u32; 3] = [1, 2, 3];

/// Cache of the figures over workers, entries.
const CACHE: usize = 1 << 14;

/// Sizes of the cache in the figures over caches, entries.
const CACHES: [usize; 9] = [
    16,
    64,
    256,
    512,
    1 << 10,
    1 << 11,
    1 << 12,
    1 << 14,
    1 << 16,
];

/// Sizes of figure 2, the first of [`CACHES`] that it has.
const LARGE: usize = 4;

/// Sizes of figure 4.
const SMALL: std::ops::Range<usize> = 0..8;

/// Packets that are judged in their order before the clock starts.
const IN_ORDER: usize = 20_000;

/// Largest difference of accepted packets from the serial program, as a share: workers have their packets at different times.
const APART: f64 = 0.02;

/// Rate and share of verdicts in the cache, medians.
#[derive(Clone, Copy, Debug, Default)]
struct Point {
    mpps: f64,
    hits: f64,
}

/// Results of a mix.
#[derive(Debug)]
pub struct Figures {
    /// By work (with, without), engine (striped, sharded), distribution and workers.
    by_workers: [[[[Point; 3]; 3]; 2]; 2],
    /// By work and size of the cache, for as many workers as there are numbers.
    by_cache: [[Point; CACHES.len()]; 2],
}

/// Engines of the figures over workers.
const ENGINES: [Engine; 2] = [Engine::Striped(CACHE), Engine::Sharded];

/// A team and its packets.
struct Case<'a> {
    number: usize,
    start: &'a Start,
    engine: Engine,
    distribution: Distribution,
    workers: u32,
    work: bool,
}

/// Measures a mix, of whose packets with work and without the serial program accepts so many.
pub fn measure(
    number: usize,
    prepared: &Prepared,
    accepted: [u64; 2],
    size: Size,
    rounds: usize,
    report: &mut Report,
) -> Figures {
    let mut figures = Figures {
        by_workers: Default::default(),
        by_cache: Default::default(),
    };
    let in_order = if size == Size::Full {
        IN_ORDER
    } else {
        IN_ORDER / 10
    };
    check_in_order(number, prepared, in_order, report);
    for (at, packets) in [&prepared.with_work, &prepared.without_work]
        .into_iter()
        .enumerate()
    {
        let accepted = accepted[at];
        let case = |engine, distribution, workers| Case {
            number,
            start: &prepared.start,
            engine,
            distribution,
            workers,
            work: at == 0,
        };
        for (d, distribution) in Distribution::ALL.into_iter().enumerate() {
            for (w, workers) in WORKERS.into_iter().enumerate() {
                // One worker has all packets in each distribution.
                if workers == 1 && d > 0 {
                    (0..ENGINES.len()).for_each(|e| {
                        figures.by_workers[at][e][d][w] = figures.by_workers[at][e][0][w];
                    });
                    continue;
                }
                let streams = distribution.streams(packets, workers);
                for (e, engine) in ENGINES.into_iter().enumerate() {
                    let case = case(engine, distribution, workers);
                    figures.by_workers[at][e][d][w] =
                        point(&case, &streams, accepted, rounds, report);
                }
            }
        }
        let most = WORKERS[WORKERS.len() - 1];
        let streams = Distribution::Address.streams(packets, most);
        for (c, room) in CACHES.into_iter().enumerate() {
            figures.by_cache[at][c] = match room {
                CACHE => figures.by_workers[at][0][0][WORKERS.len() - 1],
                _ if size == Size::Smoke && c % 4 != 0 => continue,
                _ => {
                    let case = case(Engine::Striped(room), Distribution::Address, most);
                    point(&case, &streams, accepted, rounds, report)
                }
            };
        }
    }
    figures
}

/// Measures a team in all rounds; the median counts.
fn point(
    case: &Case<'_>,
    streams: &[Vec<Packet>],
    accepted: u64,
    rounds: usize,
    report: &mut Report,
) -> Point {
    let Case {
        number,
        start,
        engine,
        distribution,
        workers,
        work,
    } = *case;
    let words = format!(
        "mix {number}{} by {}, {workers} workers",
        if work { "" } else { " without work" },
        distribution.name()
    );
    let runs: Vec<teams::Run> = (0..rounds)
        .map(|round| {
            let run = teams::run(
                engine.team(start, workers, distribution),
                streams,
                work,
                false,
            );
            let (ns, hits) = (format!("{:.2}", 1e3 / run.mpps), format!("{:.4}", run.hits));
            report.raw(&[
                "figures",
                &words,
                &engine.name(),
                &(round + 1).to_string(),
                &ns,
                &hits,
            ]);
            if (run.accepted as f64 / accepted as f64 - 1.0).abs() > APART {
                report.wrong(&format!(
                    "{words}, {}: {} packets pass, of the serial program {accepted}",
                    engine.name(),
                    run.accepted
                ));
            }
            run
        })
        .collect();
    Point {
        mpps: median(runs.iter().map(|run| run.mpps)),
        hits: median(runs.iter().map(|run| run.hits)),
    }
}

/// Compares the answers of all teams with the serial program's, where packets are judged in their order.
fn check_in_order(number: usize, prepared: &Prepared, packets: usize, report: &mut Report) {
    let packets = &prepared.without_work[..packets];
    let wanted = prepared.serial.clone().run(packets, false);
    for workers in WORKERS {
        for (engine, distribution) in ENGINES
            .into_iter()
            .flat_map(|engine| Distribution::ALL.map(|by| (engine, by)))
        {
            let mut team = engine.team(&prepared.start, workers, distribution);
            if teams::in_order(&mut team, packets, distribution) != wanted {
                let (engine, by) = (engine.name(), distribution.name());
                report.wrong(&format!(
                    "mix {number}: another histogram of {workers} {engine} workers by {by}"
                ));
            }
        }
    }
}

/// Shows the tables and the four figures.
pub fn show(all: &[&Figures], report: &mut Report) {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    report.heading("The parent's experiment");
    report.line(&format!(
        "Million packets a second of all workers, at most {} packets in flight, median; of one worker in brackets. The striped engine is \
         the parent's design, here with a cache of {CACHE} verdicts a worker. {cores} cores: more workers than that share them.",
        super::BATCH
    ));
    for (at, words) in ["with work", "without work"].into_iter().enumerate() {
        for (e, engine) in ["striped", "sharded"].into_iter().enumerate() {
            report.line(&format!("\n{engine}, {words}:\n"));
            by_workers(all, at, e, report);
        }
        report.line(&format!("\nstriped, 3 workers by address, {words}, by the entries of the cache; share of verdicts in it in brackets:\n"));
        by_cache(all, at, report);
    }
    for (figure, distribution) in [(1, 0), (3, 2)] {
        let name = Distribution::ALL[distribution].name();
        let plots = [(0, 0), (0, 1), (1, 0), (1, 1)]
            .map(|(at, e)| ratios(all, figure, (at, e, distribution), name, cores));
        report.picture(&format!("figure-{figure}"), &plot::column(&plots));
    }
    for (figure, sizes) in [(2, LARGE..CACHES.len()), (4, SMALL)] {
        let plots = [0, 1].map(|at| rates(all, figure, at, sizes.clone()));
        report.picture(&format!("figure-{figure}"), &plot::column(&plots));
    }
}

fn by_workers(all: &[&Figures], at: usize, e: usize, report: &mut Report) {
    let rows = (1..).zip(all).map(|(number, figures)| {
        let points = &figures.by_workers[at][e];
        let one = points[0][0].mpps;
        let cell = |point: &Point| format!("{:.2} ({:.2}x)", point.mpps, point.mpps / one);
        let more = points
            .iter()
            .flat_map(|points| points[1..].iter().map(cell));
        [number.to_string(), format!("{one:.2}")]
            .into_iter()
            .chain(more)
            .collect()
    });
    let more = Distribution::ALL.map(|by| {
        WORKERS[1..]
            .iter()
            .map(move |workers| format!("{workers} by {}", by.name()))
    });
    let more: Vec<String> = more.into_iter().flatten().collect();
    let head: Vec<&str> = ["mix", "1 worker"]
        .into_iter()
        .chain(more.iter().map(String::as_str))
        .collect();
    report.table(&head, &rows.collect::<Vec<_>>());
}

fn by_cache(all: &[&Figures], at: usize, report: &mut Report) {
    let rows = (1..).zip(all).map(|(number, figures)| {
        let points = &figures.by_cache[at];
        let best = points
            .iter()
            .zip(CACHES)
            .max_by(|a, b| a.0.mpps.total_cmp(&b.0.mpps))
            .map_or(0, |(_, room)| room);
        let cells = points
            .iter()
            .map(|point| format!("{:.2} ({:.0} %)", point.mpps, 100.0 * point.hits));
        std::iter::once(number.to_string())
            .chain(cells)
            .chain([best.to_string()])
            .collect()
    });
    let sizes = CACHES.map(|room| room.to_string());
    let head: Vec<&str> = std::iter::once("mix")
        .chain(sizes.iter().map(String::as_str))
        .chain(["fastest with"])
        .collect();
    report.table(&head, &rows.collect::<Vec<_>>());
}

/// A plot of work ratios over workers, as figures 1 and 3.
fn ratios(
    all: &[&Figures],
    figure: u32,
    place: (usize, usize, usize),
    name: &str,
    cores: usize,
) -> String {
    let (at, e, distribution) = place;
    let lines = (1..).zip(all).map(|(number, figures)| {
        let points = &figures.by_workers[at][e][distribution];
        let values = points
            .iter()
            .map(|point| Some(point.mpps / points[0].mpps))
            .collect();
        Line {
            label: format!("mix {number}"),
            values,
        }
    });
    let oversubscribed = WORKERS.iter().position(|&workers| workers as usize > cores);
    let bands = oversubscribed.map(|first| {
        (
            first,
            WORKERS.len() - 1,
            format!("more workers than the {cores} cores here"),
        )
    });
    // What the parent's text tells of its own figures.
    let mark = match figure {
        1 => (2, 3.59, "the parent's mix 7: 3.59x on 4 cores".to_owned()),
        _ => (2, 3.0, "the parent's: all below 3x on 4 cores".to_owned()),
    };
    let notes = Notes {
        bands: bands.into_iter().collect(),
        marks: vec![mark],
    };
    let (engine, work) = (
        ["striped, the parent's design", "sharded"][e],
        ["with work", "without work"][at],
    );
    let title = format!("Figure {figure}: work ratio by {name}, {engine}, {work}");
    let lines: Vec<Line> = lines.collect();
    plot::lines_with_notes(
        &title,
        ("workers", "of 1 worker"),
        Scale::Linear,
        &WORKERS.map(|w| w.to_string()),
        &lines,
        &notes,
    )
}

/// A plot of rates over the size of the cache, as figures 2 and 4, with the sharded engine's next
/// to.
fn rates(all: &[&Figures], figure: u32, at: usize, sizes: std::ops::Range<usize>) -> String {
    let lines = (1..).zip(all).map(|(number, figures)| {
        let striped = figures.by_cache[at][sizes.clone()]
            .iter()
            .map(|point| (point.mpps > 0.0).then_some(point.mpps));
        let sharded = figures.by_workers[at][1][0][WORKERS.len() - 1].mpps;
        Line {
            label: format!("mix {number}"),
            values: striped.chain([None, Some(sharded)]).collect(),
        }
    });
    let place = |room: usize| {
        CACHES[sizes.clone()]
            .iter()
            .position(|&size| size >= room)
            .unwrap_or(0)
    };
    let bands = vec![
        (
            place(512),
            place(2048),
            "the parent's optimum, mixes 1 to 7".to_owned(),
        ),
        (place(4096), place(4096), "mix 8".to_owned()),
    ];
    let categories = CACHES[sizes.clone()].iter().map(usize::to_string);
    let categories: Vec<String> = categories
        .chain([String::new(), "sharded".to_owned()])
        .collect();
    let title = format!(
        "Figure {figure}: rate over the cache, striped, 3 workers by address, {}",
        ["with work", "without work"][at]
    );
    let (lines, notes) = (
        lines.collect::<Vec<_>>(),
        Notes {
            bands,
            marks: Vec::new(),
        },
    );
    let axes = ("verdicts in the cache of each worker", "Mpps");
    plot::lines_with_notes(&title, axes, Scale::Log, &categories, &lines, &notes)
}
