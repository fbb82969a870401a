//! Runs of rivals as whole processes, in turn, and their costs.

use anyhow::{Context, ensure};
use nix::sys::resource::{UsageWho, getrusage};
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Function that finds the number of packets in the output of a program.
pub type Answer = fn(&str) -> Option<u64>;

/// A command, and the way to read its answer.
#[derive(Debug)]
pub struct Rival {
    /// Name for the tables.
    pub name: String,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Finds the number of packets in standard output; `None` if the program does not print that.
    pub answer: Option<Answer>,
}

/// Cost of one run.
#[derive(Clone, Copy, Debug)]
pub struct Cost {
    /// Wall time from start to end.
    pub wall: Duration,
    /// Processor time, user and system.
    pub cpu: Duration,
}

/// All runs of one rival.
#[derive(Debug, Default)]
pub struct Runs {
    /// Costs in the order of the rounds.
    pub costs: Vec<Cost>,
    /// Number of packets found, if the program prints it; the same in every run.
    pub answer: Option<u64>,
}

impl Runs {
    /// Median of the wall times, s.
    pub fn wall_s(&self) -> f64 {
        median(self.costs.iter().map(|cost| cost.wall.as_secs_f64()))
    }

    /// Median of the processor times, s.
    pub fn cpu_s(&self) -> f64 {
        median(self.costs.iter().map(|cost| cost.cpu.as_secs_f64()))
    }

    /// Shortest and longest wall time, s.
    pub fn range_s(&self) -> (f64, f64) {
        let walls = self.costs.iter().map(|cost| cost.wall.as_secs_f64());
        (
            walls.clone().fold(f64::INFINITY, f64::min),
            walls.fold(0.0, f64::max),
        )
    }
}

/// The middle value, or the mean of the two middle ones.
pub fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    match values.len() {
        0 => f64::NAN,
        n if n % 2 == 1 => values[n / 2],
        n => f64::midpoint(values[n / 2 - 1], values[n / 2]),
    }
}

/// `weir filter EXPR FILE --count` with `workers` workers.
pub fn weir(binary: &Path, expression: &str, file: &Path, workers: usize) -> Rival {
    let workers_text = workers.to_string();
    let words = [
        "filter",
        expression,
        path(file),
        "--count",
        "--workers",
        &workers_text,
    ];
    let command = std::iter::once(path(binary))
        .chain(words)
        .map(str::to_owned)
        .collect();
    Rival {
        name: format!(
            "weir, {workers} worker{}",
            if workers == 1 { "" } else { "s" }
        ),
        command,
        answer: Some(first_word),
    }
}

/// `tcpdump -n -r FILE --count EXPR`.
pub fn tcpdump_count(expression: &str, file: &Path) -> Rival {
    let command = ["tcpdump", "-n", "-r", path(file), "--count", expression]
        .map(str::to_owned)
        .to_vec();
    Rival {
        name: "tcpdump --count".to_owned(),
        command,
        answer: Some(first_word),
    }
}

/// `tcpdump -n -r FILE -w /dev/null EXPR`. As root, tcpdump would give /dev/null to another user, unless it stays root.
pub fn tcpdump_write(expression: &str, file: &Path) -> Rival {
    let command = [
        "tcpdump",
        "-Z",
        "root",
        "-n",
        "-r",
        path(file),
        "-w",
        "/dev/null",
        expression,
    ]
    .map(str::to_owned)
    .to_vec();
    Rival {
        name: "tcpdump -w /dev/null".to_owned(),
        command,
        answer: None,
    }
}

fn first_word(output: &str) -> Option<u64> {
    output.split_whitespace().next()?.parse().ok()
}

/// A path as an argument.
pub fn path(path: &Path) -> &str {
    path.to_str().expect("our own folders have plain names")
}

/// Runs all rivals once per round, in turn, after a warm-up round that does not count.
pub fn interleave(rivals: &[Rival], rounds: usize) -> anyhow::Result<Vec<Runs>> {
    let mut runs: Vec<Runs> = rivals.iter().map(|_| Runs::default()).collect();
    for round in 0..=rounds {
        for (rival, runs) in rivals.iter().zip(&mut runs) {
            let (cost, answer) = once(rival)?;
            ensure!(
                round == 0 || runs.answer == answer,
                "{} changes its answer",
                rival.name
            );
            runs.answer = answer;
            if round > 0 {
                runs.costs.push(cost);
            }
        }
    }
    Ok(runs)
}

/// Processor time of all child processes that have ended and were waited for.
pub fn children_cpu() -> Duration {
    let usage = getrusage(UsageWho::RUSAGE_CHILDREN).expect("the call has no way to fail");
    let micros = |time: nix::sys::time::TimeVal| {
        use nix::sys::time::TimeValLike;
        Duration::from_micros(time.num_microseconds() as u64)
    };
    micros(usage.user_time()) + micros(usage.system_time())
}

pub fn once(rival: &Rival) -> anyhow::Result<(Cost, Option<u64>)> {
    let cpu_before = children_cpu();
    let begun = Instant::now();
    let output = Command::new(&rival.command[0])
        .args(&rival.command[1..])
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("{} cannot be started", rival.command[0]))?;
    let cost = Cost {
        wall: begun.elapsed(),
        cpu: children_cpu() - cpu_before,
    };
    ensure!(
        output.status.success(),
        "{} failed: {}",
        rival.command.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    let answer = match rival.answer {
        None => None,
        Some(read) => {
            let text = String::from_utf8_lossy(&output.stdout);
            let start = || text.chars().take(40).collect::<String>();
            Some(read(&text).with_context(|| format!("{} answered '{}'", rival.name, start()))?)
        }
    };
    Ok((cost, answer))
}

/// Time from the start of a command to its first byte on standard output.
pub fn first_output(command: &[String]) -> anyhow::Result<Duration> {
    let begun = Instant::now();
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| command[0].clone())?;
    let mut byte = [0u8];
    let mut output = child.stdout.take().context("standard output is piped")?;
    let got = output.read(&mut byte)?;
    let time = begun.elapsed();
    // Nobody reads the rest: the command is not to wait for that.
    drop(output);
    child.wait()?;
    ensure!(got == 1, "{} printed nothing", command.join(" "));
    Ok(time)
}

/// Peak of a command's own memory, bytes: anonymous pages and page tables, without pages of the files it maps.
pub fn peak_memory(command: &[String]) -> anyhow::Result<u64> {
    let mut child = Command::new(&command[0])
        .args(&command[1..])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| command[0].clone())?;
    let status = format!("/proc/{}/status", child.id());
    let mut peak = 0;
    while child.try_wait()?.is_none() {
        if let Ok(text) = std::fs::read_to_string(&status) {
            let field = |name: &str| -> u64 {
                let line = text.lines().find(|line| line.starts_with(name));
                line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok())
                    .unwrap_or(0)
            };
            peak = peak.max((field("RssAnon:") + field("VmPTE:")) * 1024);
        }
    }
    Ok(peak)
}
