//! Costs in addition to those of packets: a call with a handle, a batch, a billion packets without
//! a collector, and worker threads.

use super::{Launch, Programs, input, interval};
use crate::Size;
use crate::report::Report;
use crate::rivals::median;
use anyhow::{Context, bail, ensure};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};

/// Longest time of a call that looks a handle up, ns.
const MUST_CALL: f64 = 10.0;
/// Longest time of a batch that is taken and released without a look at its packets, ns: fixed, and for each packet.
const MUST_BATCH: (f64, f64) = (100.0, 1.0);
/// Least rate of two workers in a process, as a share of that of two processes with a worker each.
const MUST_WORKERS: f64 = 0.9;
/// Bytes that all threads together may allocate for a packet: below this only the opening of sources shows.
const MUST_ALLOCATE: f64 = 0.01;

/// Small batches that are measured: packets of each burst that is written into a named pipe.
const BURSTS: [u32; 2] = [3, 30];

/// Large batches that are measured: packets in a file, and the length of a frame.
const BATCHES: [(u32, usize); 2] = [(300_000, 1518), (3_355_443, 64)];

/// Measures all of it.
pub fn run(
    programs: &Programs,
    size: Size,
    launches: usize,
    data: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    calls(programs, size, launches, data, report)?;
    billion(programs, size, data, report)?;
    workers(programs, size, launches, data, report)
}

/// A row of raw data.
fn raw(
    report: &mut Report,
    region: &str,
    program: &str,
    language: &str,
    launch: usize,
    found: &Launch,
) {
    let (launch, ns, packets) = (
        launch.to_string(),
        format!("{:.3}", found.ns),
        found.packets.to_string(),
    );
    report.raw(&[
        region,
        program,
        language,
        &launch,
        &ns,
        &packets,
        &found.checksum,
    ]);
}

fn calls(
    programs: &Programs,
    size: Size,
    launches: usize,
    data: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading("A call with a handle, and a batch");
    let full = size == Size::Full;
    let (turns, launches) = (if full { 8 } else { 2 }, launches.div_ceil(2));
    let mut rows = Vec::new();
    let file = input(data, 3000, 64)?;
    let work = if full { 10_000_000 } else { 1000 };
    let mut ns = [Vec::new(), Vec::new()];
    for launch in 0..launches {
        let found = [
            programs.rust("handle", &file, turns, work)?,
            programs.java("handle", &file, turns, work)?,
        ];
        for (i, found) in found.iter().enumerate() {
            raw(report, "-", "handle", ["rust", "java"][i], launch, found);
            ns[i].push(found.ns);
        }
    }
    let [rust, java] = ns.map(|ns| median(ns.into_iter()));
    rows.push(vec![
        "a call".to_owned(),
        "-".to_owned(),
        format!("{rust:.1}"),
        format!("{java:.1}"),
        "-".to_owned(),
    ]);
    report.bar(
        "C interface: a call with a handle",
        &format!("{MUST_CALL} ns"),
        &format!("{rust:.1} ns"),
        rust <= MUST_CALL,
    );
    let mut points = Vec::new();
    let pipe = data.join("bursts");
    let _ = std::fs::remove_file(&pipe);
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).context("a named pipe")?;
    let mut cases = Vec::new();
    for packets in BURSTS {
        cases.push((
            format!("bursts:{packets}"),
            pipe.clone(),
            64,
            if full { 5000 } else { 100 },
        ));
    }
    for (packets, len) in BATCHES {
        let packets = if full { packets } else { packets / 100 };
        cases.push((
            "batch:1".to_owned(),
            input(data, packets, len)?,
            len,
            u64::from(packets),
        ));
    }
    for (program, file, len, work) in cases {
        let (mut ns, mut each) = ([Vec::new(), Vec::new()], 0.0);
        for launch in 0..launches {
            let found = [
                programs.rust(&program, &file, turns, work)?,
                programs.java(&program, &file, turns, work)?,
            ];
            for (i, found) in found.iter().enumerate() {
                let region = file
                    .file_name()
                    .map_or_else(String::new, |name| name.to_string_lossy().into_owned());
                raw(
                    report,
                    &region,
                    &program,
                    ["rust", "java"][i],
                    launch,
                    found,
                );
                ns[i].push(found.ns);
                each = found.checksum.parse::<f64>()? / found.packets.max(1) as f64;
            }
        }
        if len != 64 {
            std::fs::remove_file(&file)?;
        }
        let [rust, java] = ns.map(|ns| median(ns.into_iter()));
        let must = MUST_BATCH.0 + MUST_BATCH.1 * each;
        rows.push(vec![
            "a batch".to_owned(),
            format!("{each:.0}"),
            format!("{rust:.0}"),
            format!("{java:.0}"),
            format!("{must:.0}"),
        ]);
        for (who, ns) in [("C interface", rust), ("Java", java)] {
            let what = format!("{who}: a batch of {each:.0} packets, taken and released");
            report.bar(
                &what,
                &format!("{must:.0} ns"),
                &format!("{ns:.0} ns"),
                ns <= must,
            );
        }
        points.push((each, rust, java));
    }
    std::fs::remove_file(&pipe)?;
    report.table(
        &["what", "packets", "Rust ns", "Java ns", "must, ns"],
        &rows,
    );
    let fit = |of: fn(&(f64, f64, f64)) -> f64| {
        line(
            &points
                .iter()
                .map(|point| (point.0, of(point)))
                .collect::<Vec<_>>(),
        )
    };
    let ((rust, rust_each), (java, java_each)) = (fit(|point| point.1), fit(|point| point.2));
    report.line(&format!(
        "\nBatches that the library has read ahead; packets are not looked at. Java has taken 60 000 small batches before. Small ones are bursts that were written into a named pipe, \
         1000 before any is taken; the memory of large ones, of a file that was read to its end, is freed at their release: that is in these \
         figures. Fitted: {rust:.0} ns + {rust_each:.3} ns a packet in Rust, \
         {java:.0} ns + {java_each:.3} ns in Java."
    ));
    Ok(())
}

/// The line with the smallest sum of squared relative errors: value at 0, and slope.
fn line(points: &[(f64, f64)]) -> (f64, f64) {
    let mut sums = [0.0; 5];
    for &(x, y) in points {
        let weight = 1.0 / (y * y);
        for (sum, term) in sums.iter_mut().zip([1.0, x, y, x * x, x * y]) {
            *sum += weight * term;
        }
    }
    let [n, x, y, xx, xy] = sums;
    let slope = (n * xy - x * y) / (n * xx - x * x);
    ((y - slope * x) / n, slope)
}

fn billion(
    programs: &Programs,
    size: Size,
    data: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading("Packets without a garbage collector");
    let (packets, work): (u32, u64) = if size == Size::Full {
        (3_355_443, 1_000_000_000)
    } else {
        (300_000, 5_000_000)
    };
    let file = input(data, packets, 64)?;
    let flags = [
        "-XX:+UnlockExperimentalVMOptions",
        "-XX:+UseEpsilonGC",
        "-Xmx64m",
    ];
    let mut java = programs.jvm(&flags, "Language", &[]);
    let done = java
        .arg("billion")
        .arg(&file)
        .args(["1", &work.to_string()])
        .output()
        .context("java")?;
    let told = String::from_utf8_lossy(&done.stderr).into_owned();
    ensure!(done.status.success(), "billion: {told}");
    let numbers = |text: &str| {
        text.split_whitespace()
            .map(str::parse)
            .collect::<Result<Vec<u64>, _>>()
    };
    let (out, told) = (
        numbers(&String::from_utf8_lossy(&done.stdout))?,
        numbers(&told)?,
    );
    let ([ns, seen, sum], [allocated, heap]) = (&out[..], &told[..]) else {
        bail!("it printed {out:?} and {told:?}")
    };
    let (seen, ns) = (*seen as f64, *ns as f64);
    report.line(&format!(
        "`java {} ... Language billion FILE 1 {work}`: {seen:.0} packets in {:.1} s ({:.1} Mpps, one worker that waits for the library's reader), \
         {:.1} MiB of heap in use at the end. All threads allocated {:.0} KiB behind the first tenth: the opening of sources of 100 files, and \
         compilation.",
        flags.join(" "),
        ns / 1e9,
        seen / ns * 1e3,
        *heap as f64 / f64::from(1 << 20),
        *allocated as f64 / 1024.0,
    ));
    // Batches end where pieces of the file do, so the last pass over the file may be a part of it.
    let one = programs.rust("checked", &file, 2, u64::from(packets))?;
    let (rounds, whole) = (
        (seen / f64::from(packets)).floor(),
        one.checksum.parse::<u64>()?,
    );
    let (low, high) = (rounds * whole as f64, (rounds + 1.0) * whole as f64);
    if !(low..=high).contains(&(*sum as f64)) {
        report.wrong(&format!(
            "a checksum of {sum}, not between {low} and {high}"
        ));
    }
    let found = *allocated as f64 / seen;
    let words = format!("{found:.5} bytes a packet");
    let must = format!("ends; below {MUST_ALLOCATE} bytes a packet");
    report.bar(
        &format!("Java: {work} packets under Epsilon with a heap of 64 MiB"),
        &must,
        &words,
        found < MUST_ALLOCATE,
    );
    Ok(())
}

/// A process of workers that waits after its warm-up.
struct Workers {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Workers {
    fn start(mut command: Command) -> anyhow::Result<Self> {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("java")?;
        let out = child.stdout.take().context("it is a pipe")?;
        Ok(Self {
            child,
            out: BufReader::new(out),
        })
    }

    fn wait_ready(&mut self) -> anyhow::Result<()> {
        let mut line = String::new();
        while line != "ready\n" {
            line.clear();
            ensure!(self.out.read_line(&mut line)? > 0, "the workers ended");
        }
        Ok(())
    }

    /// Lets it go on.
    fn go(&mut self) -> anyhow::Result<()> {
        Ok(self.child.stdin.take().context("once")?.write_all(b"\n")?)
    }

    /// Returns the rate of its median turn, packets a ns, and the packets and checksum of its last.
    fn finish(mut self) -> anyhow::Result<Launch> {
        let (mut ns, mut last) = (Vec::new(), (0, String::new()));
        for line in self.out.lines() {
            let line = line?;
            let words: Vec<&str> = line.split(' ').collect();
            let [took, packets, sum] = words[..] else {
                bail!("the workers printed: {line}")
            };
            last = (packets.parse()?, sum.to_owned());
            ns.push(took.parse::<f64>()? / last.0 as f64);
        }
        ensure!(self.child.wait()?.success(), "the workers failed");
        Ok(Launch {
            ns: median(ns.into_iter()),
            packets: last.0,
            checksum: last.1,
        })
    }
}

fn workers(
    programs: &Programs,
    size: Size,
    launches: usize,
    data: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading("Two workers");
    if std::thread::available_parallelism()?.get() < 2 {
        report.line("skipped: workers: they need two processors");
        return Ok(());
    }
    let (packets, work) = if size == Size::Full {
        (3_355_443, 40_000_000)
    } else {
        (30_000, 60_000)
    };
    let (file, turns) = (
        input(data, packets, 64)?,
        if size == Size::Full { 6 } else { 2 },
    );
    let start = |how: &str, work: u64| {
        let mut java = programs.jvm(&["-Xmx128m", "-XX:+UseSerialGC"], "Language", &[]);
        java.arg(format!("workers:{how}"))
            .arg(&file)
            .args([turns.to_string(), work.to_string()]);
        Workers::start(java)
    };
    let ways = [
        "two processes, a source each",
        "one process, a source each",
        "one process, one source",
    ];
    let whole = programs.rust("checked", &file, 2, u64::from(packets))?;
    let mut rates = [const { Vec::new() }; 3];
    for launch in 0..launches {
        for (way, rates) in rates.iter_mut().enumerate() {
            let mut started = match way {
                0 => vec![start("own:0", work / 2)?, start("own:1", work / 2)?],
                1 => vec![start("own:0,1", work)?],
                _ => vec![start("one:0,1", work)?],
            };
            started.iter_mut().try_for_each(Workers::wait_ready)?;
            started.iter_mut().try_for_each(Workers::go)?;
            let found = started
                .into_iter()
                .map(Workers::finish)
                .collect::<anyhow::Result<Vec<_>>>()?;
            for found in &found {
                raw(report, ways[way], "checked", "java", launch, found);
                // Each process judges whole files.
                let sums = [found, &whole].map(|one| one.checksum.parse::<u128>());
                let [sum, of_whole] = [sums[0].clone()?, sums[1].clone()?];
                if sum * u128::from(whole.packets) != of_whole * u128::from(found.packets) {
                    report.wrong(&format!(
                        "{}: a checksum of {sum} for {} packets",
                        ways[way], found.packets
                    ));
                }
            }
            rates.push(found.iter().map(|found| 1e3 / found.ns).sum::<f64>());
        }
    }
    let base = rates[0].clone();
    let mut rows = Vec::new();
    for (way, rates) in rates.into_iter().enumerate() {
        let mut ratios: Vec<f64> = rates
            .iter()
            .zip(&base)
            .map(|(rate, base)| rate / base)
            .collect();
        ratios.sort_by(f64::total_cmp);
        let ((low, high), ratio) = (interval(&ratios), median(ratios.iter().copied()));
        let found = format!("{ratio:.2} ({low:.2} to {high:.2})");
        rows.push(vec![
            ways[way].to_owned(),
            format!("{:.1}", median(rates.into_iter())),
            found.clone(),
        ]);
        if way == 1 {
            let must = format!("{MUST_WORKERS}x of two processes");
            report.bar(
                "Java: two workers in a process",
                &must,
                &found,
                ratio >= MUST_WORKERS,
            );
        }
    }
    report.table(
        &[
            "two workers, pinned to processors 0 and 1",
            "Mpps together",
            "of two processes (95 % of the median)",
        ],
        &rows,
    );
    report.line(
        "\nThe firewall with checked packets over a file in memory; each worker reads its source with a thread of the library on its own \
         processor. One source is read by one thread, which then is the limit.",
    );
    Ok(())
}
