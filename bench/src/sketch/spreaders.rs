//! Keys with the most distinct elements: weir's sample of pairs against SpreadSketch and RGS-Sketch, which are written here from
//! their papers. The non-duplicate sampler (PVLDB 17(11)) is missing, because only its abstract was to be had.

mod ours;
mod rgs;
mod spread_sketch;
mod traffic;

use crate::Size;
use crate::clock::{Samples, time};
use crate::report::Report;
use ours::{ByHost, Counts, Floor, Sample};
use rgs::RgsSketch;
use spread_sketch::SpreadSketch;
use std::collections::HashMap;
use traffic::{Contact, THRESHOLD, Traffic, repeated, scan_like};

const SEED: u64 = 0x1234_5678_9abc_def1;
/// Different pairs of the stream that repeats them.
const REPEATED: usize = 100_000;

/// A sketch that is fed with contacts.
trait Contestant {
    /// Counts packets. Only this is timed.
    fn update(&mut self, packets: &[Contact]);

    /// Hosts with an estimate of at least the threshold, and the estimates; none of a sketch that cannot tell.
    fn spreaders(&self, _threshold: f64) -> Vec<(u32, f64)> {
        Vec::new()
    }

    /// Bytes of the tables.
    fn bytes(&self) -> usize;
}

/// Makes a contestant of at most so many bytes.
type Make = fn(usize) -> Box<dyn Contestant>;

const SAMPLE: usize = 1;
const SPREAD_SKETCH: usize = 2;
const RGS: usize = 3;
const HEAVY: usize = 4;
const COUNTS: usize = 5;
const ALL: [(&str, Make); 6] = [
    ("floor: hash of the pair", |_| Box::new(Floor(SEED))),
    ("weir Spreaders", |bytes| Box::new(Sample::new(bytes, SEED))),
    ("SpreadSketch, d = 4", |bytes| {
        Box::new(SpreadSketch::new(bytes, SEED))
    }),
    ("RGS-Sketch", |bytes| Box::new(RgsSketch::new(bytes, SEED))),
    ("weir Heavy, by host", |bytes| {
        Box::new(ByHost::new(bytes, SEED))
    }),
    ("4 hashes, weir Cms 4 rows", |bytes| {
        Box::new(Counts::new(bytes, SEED))
    }),
];

/// How well the planted spreaders are found.
#[derive(Clone, Copy, Default)]
struct Score {
    recall: f64,
    /// Share of the named hosts that are not spreaders.
    false_share: f64,
    f1: f64,
    /// Mean relative error of the planted ones.
    error: f64,
}

impl Score {
    fn of(contestant: &dyn Contestant, traffic: &Traffic) -> Self {
        let planted: HashMap<u32, u32> = traffic.truth[..traffic.planted].iter().copied().collect();
        let estimates: HashMap<u32, f64> = contestant.spreaders(1.0).into_iter().collect();
        let error = |(host, peers): (&u32, &u32)| {
            (estimates.get(host).unwrap_or(&0.0) / f64::from(*peers) - 1.0).abs()
        };
        let threshold = f64::from(THRESHOLD);
        let named = estimates.iter().filter(|(_, peers)| **peers >= threshold);
        let named: Vec<&u32> = named.map(|(host, _)| host).collect();
        let hits = named
            .iter()
            .filter(|host| planted.contains_key(host))
            .count() as f64;
        let (found, all) = (named.len() as f64, planted.len() as f64);
        Self {
            recall: hits / all,
            false_share: 1.0 - hits / found.max(1.0),
            f1: 2.0 * hits / (found + all),
            error: planted.iter().map(error).sum::<f64>() / all,
        }
    }
}

/// Runs the comparison.
pub fn run(size: Size, rounds: usize, report: &mut Report) {
    let (packets, hosts, planted, memories) = match size {
        Size::Full => (24_000_000, 1_001_000, 1000, [16 << 20, 4 << 20, 1 << 20]),
        Size::Smoke => (60_000, 2000, 5, [1 << 18, 1 << 16, 1 << 14]),
    };
    let traffic = scan_like(SEED, packets, hosts, planted);
    let again = repeated(SEED, packets, REPEATED);
    let input = format!("{packets} packets, {} pairs, {hosts} hosts", traffic.pairs);
    report.heading("Spreaders");
    report.line(&format!(
        "- {input}, {planted} of them with 1000 to 20 000 peers; and {packets} packets of {REPEATED} pairs. A host is named from {THRESHOLD} peers on"
    ));
    report.line("- times are ns a packet of one thread, hashing included; making the sketch is not timed, touching its pages first is");
    let times = times(&traffic, &again, memories[0], rounds, &input, report);
    let scores = memories.map(|memory| scores(&traffic, memory));
    tables(&times, &memories, &scores, report);
    verdicts(&times, &scores, report);
}

/// Times of new and of repeated pairs, of each contestant in turn.
fn times(
    traffic: &Traffic,
    again: &[Contact],
    memory: usize,
    rounds: usize,
    input: &str,
    report: &mut Report,
) -> Vec<[Samples; 2]> {
    let mut all = vec![[Samples::default(), Samples::default()]; ALL.len()];
    for round in 0..rounds {
        for ((name, make), samples) in ALL.iter().zip(&mut all) {
            let streams = [&traffic.packets[..], again];
            for ((stream, kind), samples) in streams.iter().zip(["new", "repeated"]).zip(samples) {
                let mut contestant = make(memory);
                let ((), elapsed) = time(|| contestant.update(stream));
                samples.add(elapsed, stream.len());
                let times = [&samples.wall, &samples.cpu].map(|times| times[round].to_string());
                let bytes = contestant.bytes().to_string();
                let section = format!("spreaders, {kind} pairs");
                let round = (round + 1).to_string();
                report.raw(&[
                    &section, input, name, &round, &times[0], &times[1], &bytes, "",
                ]);
            }
        }
    }
    all
}

/// Scores of those that name hosts.
fn scores(traffic: &Traffic, memory: usize) -> [Score; 3] {
    [SAMPLE, SPREAD_SKETCH, RGS].map(|at| {
        let mut contestant = ALL[at].1(memory);
        contestant.update(&traffic.packets);
        Score::of(&*contestant, traffic)
    })
}

fn tables(times: &[[Samples; 2]], memories: &[usize], scores: &[[Score; 3]], report: &mut Report) {
    let row = |((name, _), [new, repeated]): (&(&str, Make), &[Samples; 2])| {
        let ([new, new_range, _], [old, old_range, _]) = (new.cells(), repeated.cells());
        vec![(*name).to_owned(), new, new_range, old, old_range]
    };
    let rows: Vec<_> = ALL.iter().zip(times).map(row).collect();
    let head = [
        "what",
        "new pairs, median",
        "min - max",
        "repeated pairs, median",
        "min - max",
    ];
    report.table(&head, &rows);
    let mut rows = Vec::new();
    for (memory, scores) in memories.iter().zip(scores) {
        for (at, score) in [SAMPLE, SPREAD_SKETCH, RGS].iter().zip(scores) {
            rows.push(vec![
                format!("{} KiB", memory >> 10),
                ALL[*at].0.to_owned(),
                format!("{:.4}", score.recall),
                format!("{:.2} %", score.false_share * 100.0),
                format!("{:.4}", score.f1),
                format!("{:.4}", score.error),
            ]);
        }
    }
    let head = [
        "memory",
        "what",
        "recall",
        "false",
        "F1",
        "mean relative error",
    ];
    report.table(&head, &rows);
}

fn verdicts(times: &[[Samples; 2]], scores: &[[Score; 3]], report: &mut Report) {
    let ratio =
        |at: usize, to: usize, kind: usize| times[at][kind].median() / times[to][kind].median();
    let mut bar = |what: &str, must: &str, found: f64, most: f64| {
        report.bar(what, must, &format!("{found:.3}"), found <= most);
    };
    let [ours, ..] = scores[0];
    bar(
        "Spreaders, 16 MiB: planted hosts missed",
        "0.01",
        1.0 - ours.recall,
        0.01,
    );
    bar(
        "Spreaders, 16 MiB: false hosts",
        "0.01",
        ours.false_share,
        0.01,
    );
    bar(
        "Spreaders, 16 MiB: mean relative error",
        "0.12",
        ours.error,
        0.12,
    );
    let spread = ratio(SAMPLE, SPREAD_SKETCH, 0);
    bar(
        "Spreaders, time against SpreadSketch",
        "0.42x (goal 0.25x)",
        spread,
        0.42,
    );
    let honest = ratio(SPREAD_SKETCH, COUNTS, 0);
    bar(
        "SpreadSketch here, against 4 hashes and 4 updates",
        "1.2x",
        honest,
        1.2,
    );
    let counts = ratio(SAMPLE, COUNTS, 0);
    bar(
        "Spreaders, against 4 hashes and 4 updates",
        "0.50x, which is 0.42 of 1.2",
        counts,
        0.5,
    );
    bar(
        "Spreaders, new pairs, against Heavy",
        "6x (goal 4x)",
        ratio(SAMPLE, HEAVY, 0),
        6.0,
    );
    bar(
        "Spreaders, repeated pairs, against Heavy",
        "2x (goal 1.5x)",
        ratio(SAMPLE, HEAVY, 1),
        2.0,
    );
    for ([ours, others @ ..], memory) in scores[1..].iter().zip(["4 MiB", "1 MiB"]) {
        let best = others.iter().map(|it| it.f1).fold(0.0, f64::max);
        let least = others
            .iter()
            .map(|it| it.error)
            .fold(f64::INFINITY, f64::min);
        let found = format!("{:.4}; {best:.4}", ours.f1);
        let what = format!("Spreaders, {memory}: F1");
        report.bar(&what, "best or equal", &found, ours.f1 >= best);
        let found = format!("{:.4}; {least:.4}", ours.error);
        let what = format!("Spreaders, {memory}: mean relative error");
        report.bar(&what, "best or equal", &found, ours.error <= least);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_three_find_what_was_planted() {
        let traffic = scan_like(5, 100_000, 3000, 4);
        for score in scores(&traffic, 1 << 20) {
            assert!(score.recall >= 0.75 && score.false_share == 0.0 && score.error < 0.25);
        }
    }
}
