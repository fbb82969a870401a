//! Comparison of the study's designs: with and without a distributor, separate and shared state, and several sketches.

use super::claims::{CLAIMS, Claim, Place, Verdict};
use super::holds_all;
use super::truth::{Truth, judge};
use crate::clock::range;
use crate::inputs::Input;
use crate::plot::{self, Scale};
use crate::report::Report;
use crate::rivals::{median, path};
use anyhow::{Context, ensure};
use std::path::Path;
use std::process::{Command, Stdio};

const DESIGNS: [&str; 3] = ["rss", "async", "sync"];
const STATES: [&str; 2] = ["separate", "shared"];
const SKETCHES: [&str; 5] = ["exact", "sht", "cms", "heavy", "rs-set"];

/// Most rounds of a cell whose packets take microseconds.
const SLOW_ROUNDS: usize = 3;

/// Required time of shared Count-Min, as a multiple of separate Count-Min.
const MUST_SHARED: f64 = 1.6;

/// Processing time per packet that the study published, ns.
///
/// **Source**: Wu, Li, Ran and Luo, "Network Measurement for 100Gbps Links Using Multicore Processors" (2016), tables of the
/// shared and separate designs.
const PUBLISHED: [(&str, f64); 14] = [
    ("rss separate, hash table (SHT)", 38.0),
    ("rss shared, hash table (SHT)", 49.5),
    ("rss separate, Count-Min", 82.9),
    ("rss shared, Count-Min", 1480.0),
    ("rss separate, reversible", 2140.0),
    ("rss shared, reversible", 9150.0),
    ("async separate, hash table (SHT)", 66.6),
    ("async shared, hash table (SHT)", 97.2),
    ("async separate, reversible", 7190.0),
    ("async shared, reversible", 8540.0),
    ("sync separate, hash table (SHT)", 79.0),
    ("sync shared, hash table (SHT)", 104.0),
    ("sync separate, reversible", 7830.0),
    ("sync shared, reversible", 7700.0),
];

/// Results of one combination.
struct Cell {
    name: String,
    design: usize,
    place: Place,
    workers: usize,
    command: Vec<String>,
    /// p50, p99 and p99.9 of the processing time, then of the delay, for each round.
    times: Vec<[f64; 6]>,
    refused: Option<String>,
}

/// Runs every combination once per round, in turn.
pub fn run(
    binary: &Path,
    input: &Input,
    truth: &Truth,
    memory: &str,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading("The 100 Gbit/s study, offline: designs, state, sketches");
    report.line(&format!(
        "{}. Times of `weir measure --stats`, medians over the rounds. Processing: what the worker spent on a packet, \
         parsing and filter in it, mean of a batch of 32. Delay: from the hand-out of a batch, with rss of a slice of the \
         file, to a batch's being counted.\n",
        input.title
    ));
    let mut cells = combinations(binary, input, memory);
    let mut reasons = Vec::new();
    for round in 0..rounds {
        for cell in &mut cells {
            measure(cell, round, input, truth, report)?;
        }
    }
    for why in cells.iter().filter_map(|cell| cell.refused.as_ref()) {
        if !reasons.contains(why) {
            reasons.push(why.clone());
        }
    }
    let row = |cell: &Cell| {
        let mut row = vec![cell.name.clone()];
        match &cell.refused {
            Some(_) => row.extend(["refused", "-", "-", "-", "-", "-"].map(str::to_owned)),
            None => row.extend((0..6).map(|at| duration(cell.middle(at)))),
        }
        row
    };
    let head = [
        "design, state, sketch, workers",
        "processing p50",
        "p99",
        "p99.9",
        "delay p50",
        "p99",
        "p99.9",
    ];
    report.table(&head, &cells.iter().map(row).collect::<Vec<_>>());
    for why in reasons {
        report.line(&format!("\nrefused: {why}"));
    }
    claims(&cells, report);
    published(report);
    picture(&cells, report);
    Ok(())
}

fn combinations(binary: &Path, input: &Input, memory: &str) -> Vec<Cell> {
    let cores = weir_pipeline::processors();
    let mut workers: Vec<usize> = std::iter::successors(Some(1), |n| Some(n * 2))
        .take_while(|n| *n < cores)
        .collect();
    workers.extend([cores.max(2)]);
    let mut cells = Vec::new();
    for (number, design) in DESIGNS.into_iter().enumerate() {
        for state in STATES {
            for sketch in SKETCHES {
                for &count in &workers {
                    let workers = count.to_string();
                    let memory = if holds_all(sketch) { memory } else { "4M" };
                    let words = [
                        path(binary),
                        "measure",
                        path(&input.path),
                        "--design",
                        design,
                        "--state",
                        state,
                        "--sketch",
                        sketch,
                        "--workers",
                        &workers,
                        "--memory",
                        memory,
                        "--top",
                        "100",
                        "--stats",
                        "--json",
                    ];
                    cells.push(Cell {
                        name: format!("{design} {state} {sketch}, {workers}"),
                        design: number,
                        place: (design, state, sketch),
                        workers: count,
                        command: words.map(str::to_owned).to_vec(),
                        times: Vec::new(),
                        refused: None,
                    });
                }
            }
        }
    }
    cells
}

fn measure(
    cell: &mut Cell,
    round: usize,
    input: &Input,
    truth: &Truth,
    report: &mut Report,
) -> anyhow::Result<()> {
    let is_slow = cell.place.2 == "rs-set";
    if cell.refused.is_some() || is_slow && round >= SLOW_ROUNDS {
        return Ok(());
    }
    let output = Command::new(&cell.command[0])
        .args(&cell.command[1..])
        .stdin(Stdio::null())
        .output()?;
    let text = String::from_utf8_lossy(&output.stderr);
    if output.status.code() == Some(2) {
        let line = text.lines().next().unwrap_or_default();
        cell.refused = Some(
            line.trim_start_matches("weir: ")
                .split(':')
                .next()
                .unwrap_or_default()
                .to_owned(),
        );
        return Ok(());
    }
    ensure!(
        output.status.success(),
        "{} failed: {text}",
        cell.command.join(" ")
    );
    let processing = times(&text, "processing time of a packet:").context("no processing times")?;
    let delay = times(&text, "delay from hand-out to done:").context("no delays")?;
    let mut all = [0.0; 6];
    all[..3].copy_from_slice(&processing);
    all[3..].copy_from_slice(&delay);
    let answer = serde_json::from_slice(&output.stdout).context("the answer is no JSON")?;
    let judged = judge(&answer, truth, 0)?;
    if let Some(fault) = judged.fault {
        report.wrong(&format!("{}: {fault}", cell.name));
    }
    let names = [
        "processing p50",
        "processing p99",
        "processing p99.9",
        "delay p50",
        "delay p99",
        "delay p99.9",
    ];
    for (name, ns) in names.iter().zip(all) {
        let (round, ns) = ((round + 1).to_string(), format!("{ns:.0}"));
        report.raw(&["study", &input.title, &cell.name, &round, name, &ns, "ns"]);
    }
    cell.times.push(all);
    Ok(())
}

/// Parses `p50 31 ns, p99 80 ns, p99.9 120 ns` after a name.
fn times(text: &str, name: &str) -> Option<[f64; 3]> {
    let line = text
        .lines()
        .find_map(|line| line.trim().strip_prefix(name))?;
    let mut numbers = line
        .split(',')
        .map(|part| part.split_whitespace().nth(1)?.parse().ok());
    let mut next = || numbers.next().flatten();
    Some([next()?, next()?, next()?])
}

impl Cell {
    fn middle(&self, at: usize) -> f64 {
        median(self.times.iter().map(|times| times[at]))
    }
}

/// A time with the unit that makes it shortest.
fn duration(ns: f64) -> String {
    match ns {
        ns if ns < 10_000.0 => format!("{ns:.0} ns"),
        ns if ns < 10_000_000.0 => format!("{:.0} us", ns / 1e3),
        ns => format!("{:.0} ms", ns / 1e6),
    }
}

/// Judges the study's claims by the ratios of two cells in each round, with the most workers.
fn claims(cells: &[Cell], report: &mut Report) {
    report.heading("The study's claims, as ratios inside this run");
    report.line(
        "A claim is a ratio of two processing times (p50, the most workers). It is confirmed if the slower cell is slower in \
         every round, by at least half of the published excess.\n",
    );
    let row = |claim: &Claim| {
        let ratios = ratios(cells, claim.slow, claim.fast);
        let (ratios, missing) = match ratios {
            Ok(ratios) => (ratios, None),
            Err(why) => (Vec::new(), Some(why)),
        };
        let (verdict, why) = claim.judge(&ratios, missing.as_deref());
        let here = match verdict {
            Verdict::NotTestable if ratios.is_empty() => "-".to_owned(),
            _ => ratio_text(&ratios),
        };
        let published = format!("{:.2}x", claim.published());
        [claim.text, &published, &here, verdict.text(), &why]
            .map(str::to_owned)
            .to_vec()
    };
    let head = ["claim", "study", "here (min - max)", "verdict", "reason"];
    report.table(&head, &CLAIMS.iter().map(row).collect::<Vec<_>>());
    report.line("");
    let shared = ("rss", "shared", "cms");
    if let Ok(ratios) = ratios(cells, shared, ("rss", "separate", "cms")) {
        report.bar(
            "measure, shared Count-Min against separate, rss",
            &format!("{MUST_SHARED}x"),
            &ratio_text(&ratios),
            median(ratios.iter().copied()) <= MUST_SHARED,
        );
    }
}

/// Ratios of the processing times of two cells, one of each round. **Errors**: the reason why a cell is missing.
fn ratios(cells: &[Cell], slow: Place, fast: Place) -> Result<Vec<f64>, String> {
    let find = |place: Place| {
        let (design, state, sketch) = place;
        let cell = cells.iter().filter(|cell| cell.place == place);
        let cell = cell
            .max_by_key(|cell| cell.workers)
            .ok_or_else(|| format!("this run has no {design} {state} {sketch}"))?;
        match &cell.refused {
            Some(why) => Err(why.clone()),
            None => Ok(cell),
        }
    };
    let (slow, fast) = (find(slow)?, find(fast)?);
    let both = slow.times.iter().zip(&fast.times);
    Ok(both.map(|(slow, fast)| slow[0] / fast[0]).collect())
}

fn ratio_text(ratios: &[f64]) -> String {
    let (low, high) = range(ratios);
    format!(
        "{:.2}x ({low:.2} - {high:.2})",
        median(ratios.iter().copied())
    )
}

fn published(report: &mut Report) {
    report.heading("What the study published");
    report.line(
        "Not measured here. Packet processing time of Wu, Li, Ran and Luo (2016): live traffic of random headers through DPDK \
         16.04, a 100GbE card (ConnectX-4), two 6-core Xeon E5-2643 at 3.4 GHz. Its sketches and its hash table differ from \
         ours, its reversible sketch keeps sets, and what lies in its times is not said; so compare the shape (separate \
         against shared, design against design), not the figures.\n",
    );
    let rows: Vec<Vec<String>> = PUBLISHED
        .iter()
        .map(|(name, ns)| vec![(*name).to_owned(), format!("{ns} ns")])
        .collect();
    report.table(&["the study's", "processing time"], &rows);
}

fn picture(cells: &[Cell], report: &mut Report) {
    let ours = cells
        .iter()
        .filter(|cell| cell.refused.is_none())
        .map(|cell| plot::Bar {
            label: cell.name.clone(),
            value: cell.middle(0),
            range: (cell.middle(0), cell.middle(1)),
            group: cell.design,
        });
    let theirs = PUBLISHED.iter().map(|(name, ns)| plot::Bar {
        label: format!("study: {name}"),
        value: *ns,
        range: (*ns, *ns),
        group: 3,
    });
    let bars: Vec<plot::Bar> = ours.chain(theirs).collect();
    let groups = [
        "rss",
        "async",
        "sync",
        "published by the study, on its hardware",
    ];
    let axis = "ns a packet, logarithmic: p50, whisker to p99 (the study: its one figure)";
    report.picture(
        "study",
        &plot::bars(
            "Processing time of a packet",
            axis,
            Scale::Log,
            &groups,
            &bars,
        ),
    );
}

#[cfg(test)]
mod tests {
    use super::times;

    #[test]
    fn the_line_of_stats_is_read() {
        let text = "x\n  delay from hand-out to done: p50 1 ns, p99 2 ns, p99.9 3 ns\n  processing time of a packet: p50 31 ns, p99 80 ns, p99.9 120 ns\n";
        assert_eq!(
            times(text, "processing time of a packet:"),
            Some([31.0, 80.0, 120.0])
        );
        assert_eq!(
            times(text, "delay from hand-out to done:"),
            Some([1.0, 2.0, 3.0])
        );
        assert_eq!(times(text, "nothing:"), None);
    }
}
