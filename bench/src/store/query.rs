//! Queries of a record on disk, as whole processes: against tcpdump over the same segments, and against weir reading all of them.

use super::ratios;
use crate::Size;
use crate::report::Report;
use crate::rivals::{Rival, first_output, median, once, path};
use anyhow::{Context, ensure};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use std::collections::HashMap;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use weir_generator::{FRAME_MAX, Generator, Profile, Sizes};
use weir_packet::Frame;
use weir_packet::savefile::Record;
use weir_store::disk::{Now, Recorder, Settings, System};

/// Length of the recorded time, s.
const SECONDS: u64 = 3600;
/// The minute that is asked for, s from the begin.
const MINUTE: u64 = 1800;
/// Mean bytes that a packet of MWN sizes takes of a segment.
const PACKET_BYTES: u64 = 960;
/// Most packets of the host in its minute, as the requirement has it.
const MOST: u64 = 1000;

/// Required speed of a query of a minute, and of all the time, as a multiple of tcpdump; and the desired ones.
const MUST_MINUTE: f64 = 50.0;
const GOAL_MINUTE: f64 = 200.0;
const MUST_ALL: f64 = 20.0;
const GOAL_ALL: f64 = 100.0;
/// Longest time to the first packet, ms.
const MUST_FIRST_MS: f64 = 50.0;

/// A record on disk, and hosts to ask for.
struct Recorded {
    dir: PathBuf,
    segments: Vec<PathBuf>,
    bytes: u64,
    packets: u64,
    /// Begin and end of the minute, s since 1970.
    minute: (u64, u64),
    /// Host of the minute, and number of its packets in it.
    host: (Ipv4Addr, u64),
    /// Rare host, and number of its packets in all the time.
    rare: (Ipv4Addr, u64),
}

/// Addresses of a generated frame.
fn hosts(frame: &[u8]) -> Option<[Ipv4Addr; 2]> {
    let address =
        |at: usize| Ipv4Addr::from(*frame[at..].first_chunk::<4>().expect("checked below"));
    (frame.len() >= 34 && frame[12..14] == [8, 0]).then(|| [address(26), address(30)])
}

/// Records an hour of generated packets of about `bytes` bytes.
fn record(dir: &Path, bytes: u64) -> anyhow::Result<Recorded> {
    let _ = fs::remove_dir_all(dir);
    let rate = (bytes / PACKET_BYTES / SECONDS).max(1);
    let profile = Profile {
        sizes: Sizes::Mwn,
        packets: rate * SECONDS,
        flows: 1_000_000,
        rate_pps: rate,
        ..Profile::default()
    };
    let start_s = profile.start_ns as u64 / 1_000_000_000;
    let minute = (start_s + MINUTE, start_s + MINUTE + 60);
    let mut generator = Generator::new(&profile)?;
    let begun = Instant::now();
    let now = || Now {
        steady_ns: begun.elapsed().as_nanos() as u64,
        wall_ns: profile.start_ns,
    };
    let (mut recorder, _) =
        Recorder::open(Arc::new(System::default()), dir, Settings::default(), now())?;
    let id = recorder.interface(&super::interface());
    let mut frame = [0; FRAME_MAX];
    // Packets of each host: in all the time, and in the minute.
    let mut counts: HashMap<Ipv4Addr, (u64, u64)> = HashMap::new();
    let mut number = 0;
    while let Some(made) = generator.next(&mut frame) {
        let data = &frame[..made.len];
        let second = made.time_ns as u64 / 1_000_000_000;
        let of_minute = (minute.0..minute.1).contains(&second);
        for (index, host) in hosts(data).into_iter().flatten().enumerate() {
            // A packet to itself is one packet.
            if index == 0 || hosts(data).is_some_and(|both| both[0] != both[1]) {
                let count = counts.entry(host).or_default();
                *count = (count.0 + 1, count.1 + u64::from(of_minute));
            }
        }
        let packet = Record {
            time_ns: Some(made.time_ns),
            frame: Frame {
                data,
                wire_len: made.len as u32,
                interface: 0,
            },
            options: Default::default(),
        };
        recorder.packet(id, number, &packet)?;
        number += 1;
        if number.is_multiple_of(1024) {
            recorder.tick(now())?;
        }
    }
    let closed = recorder.close()?;
    let entries = fs::read_dir(dir)?.collect::<Result<Vec<_>, _>>()?;
    let mut segments: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
    segments.retain(|path| path.extension().is_some_and(|end| end == "pcapng"));
    segments.sort();
    let best = |weight: &dyn Fn(&(u64, u64)) -> u64| {
        counts
            .iter()
            .map(|(host, count)| (*host, weight(count)))
            .max_by_key(|(host, count)| (*count, *host))
    };
    let host =
        best(&|count| if count.1 <= MOST { count.1 } else { 0 }).context("there are hosts")?;
    let rare_most = (number / 16_000).clamp(2, MOST);
    let rare =
        best(&|count| if count.0 <= rare_most { count.0 } else { 0 }).context("there are hosts")?;
    Ok(Recorded {
        dir: dir.to_owned(),
        segments,
        bytes: closed.kept.1,
        packets: number,
        minute,
        host,
        rare,
    })
}

/// Takes all files of the record out of the page cache.
fn cool(dir: &Path) -> anyhow::Result<()> {
    for entry in fs::read_dir(dir)? {
        let file = File::open(entry?.path())?;
        file.sync_all()?;
        posix_fadvise(&file, 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
    }
    Ok(())
}

fn words(program: &str, arguments: &[&str]) -> Vec<String> {
    std::iter::once(program)
        .chain(arguments.iter().copied())
        .map(str::to_owned)
        .collect()
}

/// Number of lines.
fn lines(output: &str) -> Option<u64> {
    Some(output.lines().count() as u64)
}

/// Runs the part.
pub fn run(
    binary: &Path,
    size: Size,
    rounds: usize,
    bytes: Option<u64>,
    data: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading("Queries of a record on disk: MWN, an hour");
    let bytes = bytes.unwrap_or(if size == Size::Full { 4 << 30 } else { 8 << 20 });
    fs::create_dir_all(data)?;
    let recorded = record(&data.join("store-query"), bytes)?;
    report.line(&format!(
        "{} packets, {} MB with indexes; segments: {}; all of it out of the page cache before each run\n",
        recorded.packets,
        recorded.bytes / 1_000_000,
        recorded.segments.len(),
    ));
    let list = data.join("store-query.list");
    let names: Vec<&str> = recorded
        .segments
        .iter()
        .map(|segment| path(segment))
        .collect();
    fs::write(&list, names.join("\n") + "\n")?;
    let (weir, dir, list_name) = (path(binary), path(&recorded.dir), path(&list));
    let (from, to) = recorded.minute;
    // The end is part of a query's time; a minute ends before the next one begins.
    let (from_text, to_text) = (format!("{from}.0"), format!("{}.999999999", to - 1));
    let mut rows = Vec::new();
    for (title, (host, expected), times) in [
        ("a host in a minute", recorded.host, true),
        ("a rare host in all the time", recorded.rare, false),
    ] {
        let expression = format!("host {host}");
        let range: &[&str] = if times {
            &["--from", &from_text, "--to", &to_text]
        } else {
            &[]
        };
        let query = [&["query", dir, &expression, "-n"][..], range].concat();
        // Without -Z it opens the second file as another user.
        let tcpdump = ["-n", "-tt", "-Z", "root", "-V", list_name, &expression];
        let rivals = [
            Rival {
                name: "weir query".to_owned(),
                command: words(weir, &query),
                answer: Some(lines),
            },
            Rival {
                name: "tcpdump".to_owned(),
                command: words("tcpdump", &tcpdump),
                answer: Some(lines),
            },
            Rival {
                name: "weir, all read".to_owned(),
                command: words(weir, &["filter", &expression, dir, "-n"]),
                answer: Some(lines),
            },
        ];
        let mut seconds = [const { Vec::new() }; 3];
        let mut first = Vec::new();
        for round in 0..rounds {
            for (index, rival) in rivals.iter().enumerate() {
                cool(&recorded.dir)?;
                let (cost, answer) = once(rival)?;
                seconds[index].push(cost.wall.as_secs_f64());
                let numbers = [round as u64 + 1, answer.unwrap_or(0), recorded.bytes]
                    .map(|number| number.to_string());
                let costs = [cost.wall, cost.cpu].map(|time| format!("{:.6}", time.as_secs_f64()));
                report.raw(&[
                    "query",
                    &rival.name,
                    title,
                    &numbers[0],
                    &costs[0],
                    &costs[1],
                    &numbers[1],
                    &numbers[2],
                ]);
                // tcpdump and a filter know no times: they give the whole hour.
                if answer != Some(expected) && (index == 0 || !times) {
                    report.wrong(&format!(
                        "{}, {expression}: {answer:?} packets of {expected}",
                        rival.name
                    ));
                }
                ensure!(
                    answer.is_some_and(|answer| answer >= expected),
                    "{} finds too few packets",
                    rival.name
                );
            }
            cool(&recorded.dir)?;
            first.push(first_output(&rivals[0].command)?.as_secs_f64() * 1e3);
        }
        let [ours, theirs, naive] = &seconds;
        let ratio = |rival: &[f64]| -> Vec<f64> {
            rival
                .iter()
                .zip(ours)
                .map(|(rival, ours)| rival / ours)
                .collect()
        };
        let (middle, text) = ratios(&ratio(theirs));
        let (_, against_naive) = ratios(&ratio(naive));
        let first = median(first.into_iter());
        let second = |values: &[f64]| format!("{:.3} s", median(values.iter().copied()));
        rows.push(vec![
            format!("{title}, {expected} packets"),
            second(ours),
            format!("{first:.0} ms"),
            second(theirs),
            second(naive),
            text.clone(),
            against_naive,
        ]);
        let (must, goal) = if times {
            (MUST_MINUTE, GOAL_MINUTE)
        } else {
            (MUST_ALL, GOAL_ALL)
        };
        let name = format!("{title}, {:.1} GB, cold", recorded.bytes as f64 / 1e9);
        report.bar(
            &name,
            &format!("{must}x tcpdump (goal {goal}x)"),
            &text,
            middle >= must,
        );
        if times {
            let found = format!("{first:.0} ms");
            report.bar(
                "its first packet",
                &format!("{MUST_FIRST_MS} ms"),
                &found,
                first <= MUST_FIRST_MS,
            );
        }
    }
    let head = [
        "query",
        "weir query",
        "first packet",
        "tcpdump",
        "weir, all read",
        "against tcpdump",
        "against all read",
    ];
    report.table(&head, &rows);
    fs::remove_dir_all(&recorded.dir)?;
    fs::remove_file(&list)?;
    Ok(())
}
