//! Reading and filtering of capture files, compared with tcpdump and libpcap.

use crate::inputs::{self, Input, Pieces};
use crate::report::Report;
use crate::rivals::{
    Rival, Runs, first_output, interleave, median, peak_memory, tcpdump_count, tcpdump_write, weir,
};
use crate::{Size, ceiling, native, verdicts};
use anyhow::Context;
use std::fs::{self, File};
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Instant;
use weir_generator::Sizes;
use weir_io::input::Opening;
use weir_io::{Input as Source, Kind};

/// Columns of the raw data.
pub const RAW: &str = "section,input,expression,rival,round,wall_s,cpu_s,answer";

/// Expressions from one comparison to many.
const EXPRESSIONS: [&str; 5] = [
    "ip",
    "tcp port 443",
    "udp port 53",
    "tcp[tcpflags] & (tcp-syn|tcp-fin) != 0 and src net 10.0.0.0/8",
    "(tcp port 80 or tcp port 443 or udp port 53) and (src net 10.0.0.0/8 or dst net 198.18.0.0/15) \
     and not host 10.1.2.3 and ip[6:2] & 0x1fff = 0 and greater 60",
];

/// Required speed on an input, as a multiple of the fastest tcpdump.
struct Bar {
    name: &'static str,
    sizes: Sizes,
    pieces: Pieces,
    bytes: u64,
    must: f64,
}

const BARS: [Bar; 4] = [
    Bar {
        name: "60-byte frames",
        sizes: Sizes::Fixed(60),
        pieces: Pieces::Large,
        bytes: 1_040_000_000,
        must: 6.0,
    },
    Bar {
        name: "MWN sizes",
        sizes: Sizes::Mwn,
        pieces: Pieces::Large,
        bytes: 2_200_000_000,
        must: 4.0,
    },
    Bar {
        name: "60-byte frames, small folios",
        sizes: Sizes::Fixed(60),
        pieces: Pieces::Small,
        bytes: 520_000_000,
        must: 3.0,
    },
    Bar {
        name: "MWN sizes, small folios",
        sizes: Sizes::Mwn,
        pieces: Pieces::Small,
        bytes: 1_100_000_000,
        must: 2.0,
    },
];

/// Required gain of two workers over one.
const TWO_WORKERS: f64 = 1.7;

/// Runs all parts.
pub fn run(
    binary: &Path,
    size: Size,
    rounds: usize,
    data: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    let scale = if size == Size::Full { 1 } else { 1000 };
    for bar in &BARS {
        report.heading(&format!("Filter and count: {}", bar.name));
        let name = format!("{}-{:?}.pcap", bar.sizes, bar.pieces).to_lowercase();
        let input = inputs::make(data, &name, bar.sizes, bar.bytes / scale, bar.pieces)?;
        inputs::settle();
        against_tcpdump(binary, bar, &input, rounds, report)?;
        match (bar.sizes, bar.pieces) {
            (Sizes::Fixed(_), Pieces::Large) => compressed(binary, &input, rounds, report)?,
            (Sizes::Mwn, Pieces::Large) => {
                start_up(binary, &input, rounds, report)?;
                memory(binary, &input, data, size, report)?;
            }
            _ => {}
        }
        fs::remove_file(&input.path)?;
    }
    native::compare(if size == Size::Full { 400 } else { 3 }, report)?;
    verdicts::compare(report)?;
    report.bars();
    Ok(())
}

fn against_tcpdump(
    binary: &Path,
    bar: &Bar,
    input: &Input,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    let mapped = match Source::open(
        input.path.to_str().context("a plain path")?,
        &Opening::default(),
        &Arc::default(),
    )?
    .kind
    {
        Kind::File(file) => file.prefers_mapping(),
        Kind::Stream(_) | Kind::Live(_) => false,
    };
    report.line(&format!(
        "{}; weir {} it\n",
        input.title,
        if mapped { "maps" } else { "reads" }
    ));
    let mut rows = Vec::new();
    let (mut worst, mut gains) = (f64::INFINITY, Vec::new());
    for expression in EXPRESSIONS {
        let rivals = [
            weir(binary, expression, &input.path, 1),
            tcpdump_count(expression, &input.path),
            tcpdump_write(expression, &input.path),
            weir(binary, expression, &input.path, 2),
        ];
        let runs = interleave(&rivals, rounds)?;
        let answers: Vec<u64> = runs.iter().filter_map(|runs| runs.answer).collect();
        if answers.windows(2).any(|two| two[0] != two[1]) {
            report.wrong(&format!(
                "'{expression}' on {}: the answers are {answers:?}",
                input.title
            ));
        }
        keep_raw(bar.name, input, expression, &rivals, &runs, report);
        let [one, count, write, two] = &runs[..] else {
            unreachable!("four rivals ran")
        };
        let fastest = count.wall_s().min(write.wall_s());
        // Runs of the same round are divided, so that a slow minute of the machine affects both.
        let pairs = one.costs.iter().zip(&two.costs);
        let gain = median(pairs.map(|(one, two)| one.wall.as_secs_f64() / two.wall.as_secs_f64()));
        let ratio = fastest / one.wall_s();
        worst = worst.min(ratio);
        gains.push(gain);
        rows.push(row(
            expression,
            input,
            &runs,
            ratio,
            gain,
            answers.first().copied(),
        ));
    }
    report.table(
        &[
            "expression",
            "matched",
            "tcpdump --count",
            "tcpdump -w",
            "weir",
            "min-max",
            "cpu",
            "faster",
            "2 workers",
            "gain",
        ],
        &rows,
    );
    let worst_two = gains.iter().copied().fold(f64::INFINITY, f64::min);
    let middle = median(gains.into_iter());
    let must = format!("{:.0}x tcpdump on each", bar.must);
    report.bar(
        &format!("filter and count, {}", bar.name),
        &must,
        &format!("{worst:.1}x on the slowest expression"),
        worst >= bar.must,
    );
    if bar.pieces == Pieces::Large {
        let ceiling = ceiling::measure(rounds, (input.bytes / 8) as usize);
        report.line(&format!(
            "\nTwo threads that only compute gain {:.2}x over one here and now, two that only read memory {:.2}x.",
            ceiling.computing, ceiling.reading
        ));
        report.bar(
            &format!("two workers, {}", bar.name),
            &format!("{TWO_WORKERS}x one"),
            &format!(
                "{worst_two:.2}x on the worst expression, {middle:.2}x in the middle; reading memory {:.2}x",
                ceiling.reading
            ),
            worst_two >= TWO_WORKERS,
        );
    }
    Ok(())
}

fn row(
    expression: &str,
    input: &Input,
    runs: &[Runs],
    ratio: f64,
    gain: f64,
    answer: Option<u64>,
) -> Vec<String> {
    let per_packet = |seconds: f64| format!("{:.1} ns", seconds * 1e9 / input.packets as f64);
    let (low, high) = runs[0].range_s();
    let short: String = if expression.len() > 34 {
        format!("{}...", &expression[..31])
    } else {
        expression.to_owned()
    };
    vec![
        format!("`{short}`"),
        answer.map_or("-".to_owned(), |n| n.to_string()),
        per_packet(runs[1].wall_s()),
        per_packet(runs[2].wall_s()),
        per_packet(runs[0].wall_s()),
        format!(
            "{} - {}",
            per_packet(low).trim_end_matches(" ns"),
            per_packet(high)
        ),
        per_packet(runs[0].cpu_s()),
        format!("{ratio:.1}x"),
        per_packet(runs[3].wall_s()),
        format!("{gain:.2}x"),
    ]
}

fn keep_raw(
    section: &str,
    input: &Input,
    expression: &str,
    rivals: &[Rival],
    runs: &[Runs],
    report: &mut Report,
) {
    for (rival, runs) in rivals.iter().zip(runs) {
        for (round, cost) in runs.costs.iter().enumerate() {
            report.raw(&[
                section,
                &input.title,
                expression,
                &rival.name,
                &(round + 1).to_string(),
                &format!("{:.6}", cost.wall.as_secs_f64()),
                &format!("{:.6}", cost.cpu.as_secs_f64()),
                &runs.answer.map_or(String::new(), |n| n.to_string()),
            ]);
        }
    }
}

/// Compares the whole program on compressed files with its decoder alone.
fn compressed(
    binary: &Path,
    input: &Input,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    /// Required share of the decoder's speed.
    const MUST: f64 = 0.9;
    report.heading("Compressed files: weir against its decoder alone");
    let mut rows = Vec::new();
    for (tool, arguments, extension) in [
        ("gzip", &["-1", "-c"][..], "gz"),
        ("zstd", &["-q", "-c"][..], "zst"),
        ("lz4", &["-q", "-c"][..], "lz4"),
    ] {
        let path = input.path.with_extension(format!("pcap.{extension}"));
        let made = Command::new(tool)
            .args(arguments)
            .arg(&input.path)
            .stdout(File::create(&path)?)
            .status();
        if !made.as_ref().is_ok_and(std::process::ExitStatus::success) {
            report.line(&format!("skipped: {tool} is not here"));
            continue;
        }
        let rival = weir(binary, "tcp port 443", &path, 1);
        let (mut alone, mut whole, mut answers) = (Vec::new(), Vec::new(), Vec::new());
        let mut decoded = 0;
        for _ in 0..rounds {
            let begun = Instant::now();
            decoded = decode(&path)?;
            alone.push(begun.elapsed().as_secs_f64());
            let runs = interleave(std::slice::from_ref(&rival), 1)?;
            whole.push(runs[0].wall_s());
            answers.extend(runs[0].answer);
        }
        if decoded != input.bytes {
            report.wrong(&format!(
                "{tool}: {decoded} bytes decoded of {}",
                input.bytes
            ));
        }
        let (alone, whole) = (median(alone.into_iter()), median(whole.into_iter()));
        let share = alone / whole;
        rows.push(vec![
            extension.to_owned(),
            format!("{:.0} MB/s", input.bytes as f64 / alone / 1e6),
            format!("{:.0} MB/s", input.bytes as f64 / whole / 1e6),
            format!("{:.0} %", share * 100.0),
            answers.first().map_or("-".to_owned(), u64::to_string),
        ]);
        let found = format!("{:.0} %", share * 100.0);
        report.bar(
            &format!("{extension} file, share of the decoder's speed"),
            "90 %",
            &found,
            share >= MUST,
        );
        fs::remove_file(&path)?;
    }
    report.table(
        &[
            "file",
            "decoder alone",
            "weir, decode and filter",
            "share",
            "matched",
        ],
        &rows,
    );
    Ok(())
}

/// Decodes a file with weir's decoder in this thread; returns the number of decoded bytes.
fn decode(path: &Path) -> anyhow::Result<u64> {
    let mut head = [0u8; 16];
    let mut file = File::open(path)?;
    file.read_exact(&mut head)?;
    let kind = weir_packet::savefile::magic::compression(&head).context("a compressed file")?;
    let mut decoder =
        weir_io::compressed::decoder(kind, File::open(path)?, weir_io::compressed::ZSTD_WINDOW)?;
    let mut buffer = vec![0u8; 1 << 20];
    let mut total = 0;
    loop {
        match decoder.read(&mut buffer)? {
            0 => return Ok(total),
            n => total += n as u64,
        }
    }
}

/// Compares the time until the first line, on a file of a few packets.
fn start_up(
    binary: &Path,
    input: &Input,
    rounds: usize,
    report: &mut Report,
) -> anyhow::Result<()> {
    const MUST_MS: f64 = 20.0;
    report.heading("Start-up: time to the first printed line, 20 packets");
    let path = input.path.with_file_name("tiny.pcap");
    let bytes = fs::read(&input.path)?;
    let mut end = 24;
    for _ in 0..20 {
        let captured = bytes.get(end + 8..end + 12).context("twenty packets")?;
        end += 16 + u32::from_le_bytes(captured.try_into().expect("four bytes")) as usize;
    }
    fs::write(&path, &bytes[..end])?;
    let file = path.to_str().context("a plain path")?;
    let ours = [
        binary.to_str().context("a plain path")?,
        "filter",
        "ip",
        file,
    ]
    .map(str::to_owned);
    let theirs = ["tcpdump", "-n", "-r", file, "ip"].map(str::to_owned);
    let (mut our_times, mut their_times) = (Vec::new(), Vec::new());
    for _ in 0..rounds * 5 {
        our_times.push(first_output(&ours)?.as_secs_f64() * 1e3);
        their_times.push(first_output(&theirs)?.as_secs_f64() * 1e3);
    }
    let (ours, theirs) = (
        median(our_times.into_iter()),
        median(their_times.into_iter()),
    );
    report.line(&format!("weir {ours:.1} ms, tcpdump {theirs:.1} ms"));
    report.bar(
        "start-up to first output, tiny file",
        "20 ms",
        &format!("{ours:.1} ms"),
        ours <= MUST_MS,
    );
    fs::remove_file(path)?;
    Ok(())
}

/// Compares the memory used on a small file and on a large one.
fn memory(
    binary: &Path,
    input: &Input,
    data: &Path,
    size: Size,
    report: &mut Report,
) -> anyhow::Result<()> {
    report.heading("Peak memory beyond the page cache (anonymous pages and page tables)");
    let (small_bytes, large_bytes) = if size == Size::Full {
        (100_000_000, 4_000_000_000)
    } else {
        (100_000, 4_000_000)
    };
    let small = inputs::make(data, "small.pcap", Sizes::Mwn, small_bytes, Pieces::Large)?;
    let large = inputs::repeat(input, data, "large.pcap", large_bytes)?;
    inputs::settle();
    let mut rows = Vec::new();
    let mut peaks = Vec::new();
    for workers in [1, 2] {
        for file in [&small, &large] {
            let command = weir(binary, "tcp port 443", &file.path, workers).command;
            let peak = (0..3)
                .map(|_| peak_memory(&command))
                .collect::<anyhow::Result<Vec<_>>>()?;
            let peak = peak.into_iter().max().unwrap_or(0);
            peaks.push(peak);
            rows.push(vec![
                workers.to_string(),
                file.title.clone(),
                format!("{} kB", peak / 1024),
            ]);
        }
    }
    report.table(&["workers", "file", "peak"], &rows);
    // Allowed difference between runs: an allocator may touch more or less of its heap. Growth with the file is not
    // allowed.
    const SLACK: u64 = 2 << 20;
    let holds = peaks.chunks(2).all(|pair| pair[1] <= pair[0] + SLACK);
    let found = format!("1 worker {} and {} kB", peaks[0] / 1024, peaks[1] / 1024);
    report.bar(
        "peak memory, 100 MB and 4 GB",
        "independent of file size",
        &found,
        holds,
    );
    fs::remove_file(&small.path)?;
    fs::remove_file(&large.path)?;
    Ok(())
}
