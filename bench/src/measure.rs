//! `weir measure` as whole processes on capture files, and the designs of the 100 Gbit/s study.

mod claims;
mod floor;
mod study;
mod truth;

use crate::clock::range;
use crate::inputs::{self, Input, Pieces};
use crate::plot::{self, Scale};
use crate::report::Report;
use crate::rivals::{Rival, Runs, interleave, median, path, peak_memory};
use crate::{Size, ceiling};
use anyhow::{Context, ensure};
use serde_json::Value;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;
use truth::{Judged, Truth, judge};
use weir_generator::Sizes;

/// Columns of the raw data.
pub const RAW: &str = "section,input,what,round,quantity,value,unit";

/// Memory of the exact table, in which all flows fit.
fn exact_memory(size: Size) -> &'static str {
    if size == Size::Full { "256M" } else { "8M" }
}

/// Whether the sketch gets the memory in which all flows fit.
fn holds_all(sketch: &str) -> bool {
    ["exact", "sht", "rs-set"].contains(&sketch)
}

/// Most rows requested when answers are compared. Only an exact table may have more.
const ALL_ROWS: &str = "100000";

/// Required cost of one worker with `heavy` on 60-byte frames, and the desired cost, ns per packet.
const MUST_NS: f64 = 60.0;
const GOAL_NS: f64 = 35.0;
/// Required gain of two workers over one, and the desired gain.
const MUST_GAIN: f64 = 1.7;
const GOAL_GAIN: f64 = 1.9;

/// Runs all parts.
pub fn run(
    binary: &Path,
    size: Size,
    rounds: usize,
    data: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    let scale = if size == Size::Full { 1 } else { 1000 };
    let command = |file: &Path, sketch: &str, workers: usize, more: &[&str]| {
        let memory = if holds_all(sketch) {
            exact_memory(size)
        } else {
            "4M"
        };
        weir(binary, file, sketch, workers, memory, more)
    };
    for (name, sizes, bytes) in [
        ("60-byte frames", Sizes::Fixed(60), 1_040_000_000),
        ("MWN sizes", Sizes::Mwn, 2_200_000_000),
    ] {
        let file = format!("measure-{sizes}.pcap");
        let input = inputs::make(data, &file, sizes, bytes / scale, Pieces::Large)?;
        inputs::settle();
        let truth = Truth::read(&input.path)?;
        report.heading(&format!("Whole runs: {name}"));
        report.line(&format!(
            "{}; {} flows occur (found by etherparse and a hash map)\n",
            input.title,
            truth.flows.len()
        ));
        ensure!(
            truth.packets == input.packets,
            "the slow reader found {} packets",
            truth.packets
        );
        whole_runs(&command, name, &input, rounds, report)?;
        if sizes != Sizes::Mwn {
            floor::run(
                &command(&input.path, "heavy", 1, &[]),
                4 << 20,
                &input,
                rounds,
                report,
            )?;
        }
        compare_answers(&command, name, &input, &truth, report)?;
        if sizes == Sizes::Mwn {
            peak(&command, data, size, report)?;
        } else {
            study::run(binary, &input, &truth, exact_memory(size), rounds, report)?;
            conversations(&command, data, size, report)?;
        }
        fs::remove_file(&input.path)?;
    }
    report.bars();
    Ok(())
}

/// Makes a command from the file, the sketch, the number of workers, and further arguments.
type Weir<'a> = &'a dyn Fn(&Path, &str, usize, &[&str]) -> Rival;

/// `weir measure FILE --sketch S --workers N --memory M --json`, and further arguments.
fn weir(
    binary: &Path,
    file: &Path,
    sketch: &str,
    workers: usize,
    memory: &str,
    more: &[&str],
) -> Rival {
    let number = workers.to_string();
    let words = [
        "measure",
        path(file),
        "--sketch",
        sketch,
        "--workers",
        &number,
        "--memory",
        memory,
        "--json",
    ];
    let command = std::iter::once(path(binary))
        .chain(words)
        .chain(more.iter().copied())
        .map(str::to_owned)
        .collect();
    let plural = if workers == 1 { "" } else { "s" };
    Rival {
        name: format!("weir measure, {sketch}, {workers} worker{plural}"),
        command,
        answer: Some(passed),
    }
}

/// Number of measured packets in an answer.
fn passed(output: &str) -> Option<u64> {
    serde_json::from_str::<Value>(output).ok()?["passed"].as_u64()
}

fn whole_runs(
    weir: Weir<'_>,
    name: &str,
    input: &Input,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    const SKETCHES: [&str; 5] = ["heavy", "exact", "cms", "sht", "mv"];
    let mut rivals: Vec<Rival> = SKETCHES
        .iter()
        .flat_map(|sketch| [1, 2].map(|workers| weir(&input.path, sketch, workers, &[])))
        .collect();
    let tcpdump = [
        "tcpdump",
        "-Z",
        "root",
        "-n",
        "-r",
        path(&input.path),
        "-w",
        "/dev/null",
    ]
    .map(str::to_owned)
    .to_vec();
    let has_tcpdump = is_here("tcpdump");
    if has_tcpdump {
        rivals.push(Rival {
            name: "tcpdump -w /dev/null: reads, counts nothing".to_owned(),
            command: tcpdump,
            answer: None,
        });
    } else {
        report.line("skipped: tcpdump is not here\n");
    }
    let runs = interleave(&rivals, rounds)?;
    let packets = input.packets as f64;
    let ns = |seconds: f64| seconds * 1e9 / packets;
    let mut rows = Vec::new();
    let mut bars = Vec::new();
    for (rival, one) in rivals.iter().zip(&runs) {
        if one.answer.is_some_and(|answer| answer != input.packets) {
            report.wrong(&format!(
                "{} measured {:?} packets of {}",
                rival.name, one.answer, input.packets
            ));
        }
        for (round, cost) in one.costs.iter().enumerate() {
            for (what, time) in [("wall", cost.wall), ("cpu", cost.cpu)] {
                let (round, time) = (
                    (round + 1).to_string(),
                    format!("{:.6}", time.as_secs_f64()),
                );
                report.raw(&[
                    "whole runs",
                    &input.title,
                    &rival.name,
                    &round,
                    what,
                    &time,
                    "s",
                ]);
            }
        }
        let (low, high) = one.range_s();
        rows.push(vec![
            rival.name.clone(),
            format!("{:.1} ns", ns(one.wall_s())),
            format!("{:.1} - {:.1}", ns(low), ns(high)),
            format!("{:.1} ns", ns(one.cpu_s())),
            format!("{:.1}", 1e3 / ns(one.wall_s())),
        ]);
        let group = usize::from(rival.answer.is_none());
        bars.push(plot::Bar {
            label: rival.name.clone(),
            value: ns(one.wall_s()),
            range: (ns(low), ns(high)),
            group,
        });
    }
    report.table(
        &["what", "wall a packet", "min - max", "cpu a packet", "Mpps"],
        &rows,
    );
    report.line("");
    let mut gains = Vec::new();
    for (sketch, pair) in SKETCHES.iter().zip(runs.chunks(2)) {
        let (gain, spread) = gain(&pair[0], &pair[1]);
        report.line(&format!(
            "- {sketch}: two workers are {gain:.2}x as fast as one ({:.2} - {:.2})",
            spread.0, spread.1
        ));
        gains.push(gain);
    }
    let ceiling = ceiling::measure(rounds, (input.bytes / 8) as usize);
    let limits = format!(
        "computing {:.2}x, reading memory {:.2}x",
        ceiling.computing, ceiling.reading
    );
    report.line(&format!("- two threads at best, here and now: {limits}"));
    let cost = ns(runs[0].wall_s());
    if name.starts_with("60") {
        let (must, found) = (
            format!("{MUST_NS} ns (goal {GOAL_NS} ns)"),
            format!("{cost:.1} ns a packet"),
        );
        report.bar(
            &format!("measure, heavy, one worker, {name}"),
            &must,
            &found,
            cost <= MUST_NS,
        );
    }
    let (ratio, spread) = gain(&runs[6], &runs[2]);
    report.bar(
        &format!("measure, sht against exact, one worker, {name}"),
        "0.9x (goal 0.8x)",
        &format!("{ratio:.2}x ({:.2} - {:.2})", spread.0, spread.1),
        ratio <= 0.9,
    );
    report.bar(
        &format!("measure, heavy, two workers, {name}"),
        &format!("{MUST_GAIN}x one (goal {GOAL_GAIN}x)"),
        &format!("{:.2}x; two threads at best: {limits}", gains[0]),
        gains[0] >= MUST_GAIN,
    );
    let file = if name.starts_with("60") {
        "whole-60"
    } else {
        "whole-mwn"
    };
    let axis = "ns a packet, wall: median, smallest and largest of the rounds";
    let title = format!("weir measure, whole process: {name}");
    report.picture(
        file,
        &plot::bars(
            &title,
            axis,
            Scale::Linear,
            &["weir", "reading floor"],
            &bars,
        ),
    );
    Ok(())
}

/// Median gain of the second over the first, and its range. Runs of the same round are divided, so that a slow minute of
/// the machine affects both.
fn gain(one: &Runs, two: &Runs) -> (f64, (f64, f64)) {
    let both = one.costs.iter().zip(&two.costs);
    let gains: Vec<f64> = both
        .map(|(one, two)| one.wall.as_secs_f64() / two.wall.as_secs_f64())
        .collect();
    (median(gains.iter().copied()), range(&gains))
}

/// Runs a command of weir, and parses its answer.
fn ask(rival: &Rival) -> anyhow::Result<Value> {
    let output = Command::new(&rival.command[0])
        .args(&rival.command[1..])
        .stdin(Stdio::null())
        .output()?;
    let told = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success(),
        "{} failed: {told}",
        rival.command.join(" ")
    );
    serde_json::from_slice(&output.stdout).context("the answer is no JSON")
}

fn compare_answers(
    weir: Weir<'_>,
    name: &str,
    input: &Input,
    truth: &Truth,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading(&format!("Answers: {name}"));
    let mut rows = Vec::new();
    for sketch in ["heavy", "exact", "cms", "cms-conservative", "sht", "mv"] {
        for (by, quantity) in ["packets", "bytes"].into_iter().enumerate() {
            for workers in [1, 2] {
                let rival = weir(
                    &input.path,
                    sketch,
                    workers,
                    &["--by", quantity, "--top", ALL_ROWS],
                );
                let judged = judge(&ask(&rival)?, truth, by)?;
                let Judged {
                    rows: count,
                    broken,
                    below,
                    top_identical,
                    f1,
                    fault,
                    ..
                } = judged;
                if let Some(fault) = fault {
                    report.wrong(&format!("{}, by {quantity}: {fault}", rival.name));
                }
                if sketch == "exact" && !top_identical {
                    report.wrong(&format!(
                        "{}, by {quantity}: the first 100 rows differ",
                        rival.name
                    ));
                }
                if sketch == "heavy" && workers == 1 && by == 0 {
                    report.bar(
                        &format!("measure, heavy, F1, {name}"),
                        "0.99",
                        &format!("{f1:.4}"),
                        f1 >= 0.99,
                    );
                }
                rows.push(vec![
                    format!("{sketch}, by {quantity}, {workers}"),
                    count.to_string(),
                    broken.to_string(),
                    if sketch.starts_with("cms") {
                        below.to_string()
                    } else {
                        "-".to_owned()
                    },
                    if top_identical {
                        "identical"
                    } else {
                        "not all exact"
                    }
                    .to_owned(),
                    format!("{f1:.4}"),
                ]);
            }
        }
    }
    let head = [
        "sketch, ranked, workers",
        "rows",
        "bounds broken",
        "below a probable bound",
        "first 100",
        "F1",
    ];
    report.table(&head, &rows);
    Ok(())
}

/// Compares the memory used on a small file and on a large one of the same flows.
fn peak(weir: Weir<'_>, data: &Path, size: Size, report: &mut Report) -> anyhow::Result<()> {
    report.heading("Peak memory beyond the page cache (anonymous pages and page tables)");
    let (small_bytes, large_bytes) = if size == Size::Full {
        (100_000_000, 4_000_000_000)
    } else {
        (1_000_000, 10_000_000)
    };
    let small = inputs::make(
        data,
        "measure-small.pcap",
        Sizes::Mwn,
        small_bytes,
        Pieces::Large,
    )?;
    let large = inputs::repeat(&small, data, "measure-large.pcap", large_bytes)?;
    inputs::settle();
    let (mut rows, mut holds) = (Vec::new(), true);
    for workers in [1, 2] {
        let mut peaks = Vec::new();
        for file in [&small, &large] {
            let command = weir(&file.path, "heavy", workers, &[]).command;
            let peak = (0..5)
                .map(|_| peak_memory(&command))
                .collect::<anyhow::Result<Vec<_>>>()?;
            let peak = peak.into_iter().max().unwrap_or(0);
            rows.push(vec![
                format!("heavy, {workers}"),
                file.title.clone(),
                format!("{} kB", peak / 1024),
            ]);
            peaks.push(peak);
        }
        // Allowed difference: on a small file a worker may find no work, and never touch its tables of some 6 MiB.
        let slack = workers as u64 * (6 << 20);
        holds &= size == Size::Smoke || peaks[1] <= peaks[0] + slack;
    }
    report.table(&["sketch, workers", "file", "peak"], &rows);
    let found = rows
        .iter()
        .map(|row| row[2].clone())
        .collect::<Vec<_>>()
        .join(", ");
    report.bar(
        "measure, peak memory, 100 MB and 4 GB",
        "independent of file size",
        &found,
        holds,
    );
    fs::remove_file(&small.path)?;
    fs::remove_file(&large.path)?;
    Ok(())
}

/// Compares tshark's exact table of conversations with weir's on a small file.
fn conversations(
    weir: Weir<'_>,
    data: &Path,
    size: Size,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading("A peer: tshark's conversations");
    if !is_here("tshark") {
        report.line("skipped: tshark is not here");
        return Ok(());
    }
    let bytes = if size == Size::Full {
        20_000_000
    } else {
        400_000
    };
    let input = inputs::make(
        data,
        "measure-tshark.pcap",
        Sizes::Fixed(60),
        bytes,
        Pieces::Large,
    )?;
    let file = path(&input.path);
    let begun = Instant::now();
    let output = Command::new("tshark")
        .args(["-n", "-q", "-z", "conv,ip", "-r", file])
        .stderr(Stdio::null())
        .output()?;
    let theirs = begun.elapsed().as_secs_f64();
    ensure!(output.status.success(), "tshark failed");
    let begun = Instant::now();
    let rival = weir(
        &input.path,
        "exact",
        1,
        &["--key", "pair", "--top", ALL_ROWS],
    );
    let answer = ask(&rival)?;
    let ours = begun.elapsed().as_secs_f64();
    // Conversations count both directions, but these flows have only one. IPv6 has a separate table.
    let table = String::from_utf8_lossy(&output.stdout);
    let packets = |line: &str| {
        line.split_once("<->")?
            .1
            .split_whitespace()
            .nth(column(line)?)?
            .parse::<u64>()
            .ok()
    };
    let (mut conversations, mut sum) = (0, 0);
    for line in table.lines().filter(|line| line.contains("<->")) {
        conversations += 1;
        sum += packets(line).with_context(|| format!("tshark's line '{line}'"))?;
    }
    let rows = answer["top"].as_array().context("a table")?;
    let four = rows
        .iter()
        .filter(|row| row["src"].as_str().is_some_and(|src| !src.contains(':')));
    let (pairs, ours_sum) = four.fold((0, 0), |(n, sum), row| {
        (n + 1, sum + row["packets"].as_u64().unwrap_or_default())
    });
    report.line(&format!(
        "{}: tshark -z conv,ip {:.0} ns a packet, weir measure --key pair {:.0} ns; {conversations} and {pairs} pairs of IPv4 \
         addresses, {sum} and {ours_sum} packets",
        input.title,
        theirs * 1e9 / input.packets as f64,
        ours * 1e9 / input.packets as f64
    ));
    if (conversations, sum) != (pairs, ours_sum) {
        report.wrong("tshark and weir find other pairs");
    }
    fs::remove_file(&input.path)?;
    Ok(())
}

/// Index of the packets of both directions among the words after the second address. Packets and bytes come for one
/// direction, for the other, and for both; the unit of bytes is a separate word.
fn column(line: &str) -> Option<usize> {
    let words = line.split_once("<->")?.1.split_whitespace();
    let numbers: Vec<usize> = words
        .enumerate()
        .filter(|(_, word)| word.parse::<u64>().is_ok())
        .map(|(i, _)| i)
        .collect();
    // packets, bytes, packets, bytes, packets, bytes
    numbers.get(4).copied()
}

fn is_here(program: &str) -> bool {
    Command::new(program)
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok()
}
