//! Segments on disk: the recorder against plain sequential writes.

use super::{Source, interface, ratios};
use crate::Size;
use crate::clock::{Elapsed, Samples, time};
use crate::report::Report;
use crate::rivals::median;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use weir_generator::Sizes;
use weir_store::disk::{Disk, Now, PAGE, Recorder, Settings, System};

/// Required speed of recording, as a share of sequential writes past the page cache; and the desired one.
const MUST: f64 = 0.85;
const GOAL: f64 = 0.95;
/// Required size of the index, as a share of the segments; and the desired one.
const MUST_INDEX: f64 = 0.02;
const GOAL_INDEX: f64 = 0.01;

/// Packets between two looks at the clock.
const BATCH: usize = 1024;

/// A recording of the packets of a source, one time or several.
struct Recorded {
    elapsed: Elapsed,
    packets: u64,
    bytes: u64,
    index_bytes: u64,
}

/// Records the packets `times` times into a new directory.
fn record(
    dir: &Path,
    source: &Source,
    times: usize,
    settings: &Settings,
) -> anyhow::Result<Recorded> {
    let begun = Instant::now();
    let now = || Now {
        steady_ns: begun.elapsed().as_nanos() as u64,
        wall_ns: 1_700_000_000_000_000_000,
    };
    let (mut recorder, _) =
        Recorder::open(Arc::new(System::default()), dir, settings.clone(), now())?;
    let id = recorder.interface(&interface());
    let (closed, elapsed) = time(|| {
        for number in 0..source.len() * times {
            recorder.packet(id, number as u64, &source.packet(number % source.len()))?;
            if number % BATCH == 0 {
                recorder.tick(now())?;
            }
        }
        recorder.close()
    });
    let stats = closed?.stats;
    Ok(Recorded {
        elapsed,
        packets: stats.packets,
        bytes: stats.bytes,
        index_bytes: stats.index_bytes,
    })
}

/// Writes as many bytes to files of the same length, a write of `piece` bytes after the other, and
/// makes each file durable.
///
/// What is written is `memory`, from its first whole page on, again and again. Memory that is longer than the caches is read from
/// RAM, as packets are; memory as long as one write stays in a cache.
fn plain(
    dir: &Path,
    bytes: u64,
    segment: u64,
    piece: usize,
    memory: &[u8],
) -> anyhow::Result<Elapsed> {
    let memory = &memory[memory.as_ptr().align_offset(PAGE)..];
    let mut pieces = memory.chunks_exact(piece).cycle();
    fs::create_dir_all(dir)?;
    let (written, elapsed) = time(|| {
        let mut left = bytes;
        for number in 0.. {
            if left == 0 {
                break;
            }
            let mut file =
                System::default().create(&dir.join(format!("{number}.pcapng")), 0o600)?;
            let mut offset = 0;
            while offset < segment.min(left) {
                offset += file.write_at(pieces.next().unwrap_or_default(), offset)? as u64;
            }
            file.sync()?;
            left = left.saturating_sub(offset);
        }
        Ok(())
    });
    let written: std::io::Result<()> = written;
    written?;
    Ok(elapsed)
}

/// Runs the part.
pub fn run(size: Size, rounds: usize, data: &Path, report: &mut Report) -> anyhow::Result<()> {
    report.heading("Recording on disk: MWN");
    let (memory, times) = if size == Size::Full {
        (512 << 20, 2)
    } else {
        (4 << 20, 1)
    };
    let source = Source::new(Sizes::Mwn, memory)?;
    let settings = Settings::default();
    let without = Settings {
        index_pairs: 0,
        ..settings.clone()
    };
    fs::create_dir_all(data)?;
    let mut samples: [Samples; 4] = Default::default();
    // From the middle, where huge pages are.
    let one_buffer =
        &source.bytes[source.bytes.len() / 2 - PAGE..][..(settings.buffer_bytes + PAGE)];
    let (mut bytes, mut index_bytes) = (0, 0);
    for round in 0..=rounds {
        let mut keep = |index: usize, name: &str, elapsed: Elapsed, bytes: u64| {
            if round > 0 {
                samples[index].add(elapsed, source.len() * times);
                let numbers = [round as u64, (source.len() * times) as u64, bytes]
                    .map(|number| number.to_string());
                let seconds = [elapsed.wall, elapsed.cpu].map(|s| format!("{s:.6}"));
                report.raw(&[
                    "disk",
                    name,
                    "MWN",
                    &numbers[0],
                    &seconds[0],
                    &seconds[1],
                    &numbers[1],
                    &numbers[2],
                ]);
            }
        };
        let dir = data.join("store-disk");
        let _ = fs::remove_dir_all(&dir);
        let recorded = record(&dir, &source, times, &settings)?;
        keep(0, "recorder", recorded.elapsed, recorded.bytes);
        fs::remove_dir_all(&dir)?;
        for (index, name, memory) in [
            (1, "plain", &source.bytes[..]),
            (2, "plain, one buffer", one_buffer),
        ] {
            let elapsed = plain(
                &dir,
                recorded.bytes,
                settings.segment_bytes,
                settings.buffer_bytes,
                memory,
            )?;
            keep(index, name, elapsed, recorded.bytes);
            fs::remove_dir_all(&dir)?;
        }
        let unindexed = record(&dir, &source, times, &without)?;
        keep(3, "no index", unindexed.elapsed, unindexed.bytes);
        fs::remove_dir_all(&dir)?;
        (bytes, index_bytes) = (recorded.bytes, recorded.index_bytes);
        if recorded.packets != (source.len() * times) as u64 {
            report.wrong(&format!(
                "{} packets were recorded of {}",
                recorded.packets,
                source.len() * times
            ));
        }
    }
    report.line(&format!(
        "{} packets, {} MB in segments of {} MiB; writes of {} kiB past the page cache, one at a time; fdatasync of each file\n",
        source.len() * times,
        bytes / 1_000_000,
        settings.segment_bytes >> 20,
        settings.buffer_bytes >> 10,
    ));
    let row = |name: &str, samples: &Samples| {
        let seconds = median(samples.wall.iter().copied()) * (source.len() * times) as f64 / 1e9;
        let cpu = samples.median();
        vec![
            name.to_owned(),
            format!("{:.0} MB/s", bytes as f64 / 1e6 / seconds),
            format!("{cpu:.0} ns"),
        ]
    };
    let rows = [
        row("weir's recorder", &samples[0]),
        row("plain writes of the packets' memory", &samples[1]),
        row("plain writes of one buffer", &samples[2]),
        row("weir's recorder without an index", &samples[3]),
    ];
    report.table(
        &["", "written", "processor time of a packet, this thread"],
        &rows,
    );
    for (plain, name) in [
        (&samples[1], ""),
        (&samples[2], ", one buffer in the cache"),
    ] {
        let shares: Vec<f64> = plain
            .wall
            .iter()
            .zip(&samples[0].wall)
            .map(|(plain, ours)| plain / ours)
            .collect();
        let (middle, text) = ratios(&shares);
        let must = format!("{MUST}x sequential direct writes{name} (goal {GOAL}x)");
        report.bar("disk, MWN, index included", &must, &text, middle >= MUST);
    }
    let share = index_bytes as f64 / bytes as f64;
    let found = format!("{:.2} %", share * 100.0);
    let must = format!(
        "{} % of the segments (goal {} %)",
        MUST_INDEX * 100.0,
        GOAL_INDEX * 100.0
    );
    report.bar(
        "index size, MWN",
        &must,
        &found,
        share <= MUST_INDEX && index_bytes > 0,
    );
    Ok(())
}
