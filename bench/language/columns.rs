//! The rules of `weir-bench python` in Rust, over columns of 65 536 packets: CASE FILE TURNS
//!
//! Prints a line for each turn, in which the whole file is read: nanoseconds of this thread's processor time, packets, checksum.

use std::time::Duration;
use weir_api::{Column, Next, Options, Source};

const ROOM: usize = 65_536;
const UDP: u8 = 17;

struct Columns {
    versions: Vec<u8>,
    protocols: Vec<u8>,
    sources: Vec<u32>,
    lengths: Vec<u32>,
    rows: usize,
}

/// The addresses of the set, as in the other languages: 10.0.x.y of a multiplicative sequence.
fn set() -> Vec<u32> {
    let mut set: Vec<u32> = (0..1000u32)
        .map(|i| 0x0a00_0000 | (i.wrapping_mul(2_654_435_761) >> 20))
        .collect();
    set.sort_unstable();
    set.dedup();
    set
}

impl Columns {
    /// UDP packets whose source `has` accepts: their lengths, and their number above.
    fn judge(&mut self, has: impl Fn(u32) -> bool) -> u64 {
        let rows = std::mem::take(&mut self.rows);
        let (mut bytes, mut packets) = (0u64, 0u64);
        for row in 0..rows {
            let passes =
                (self.versions[row] == 4) & (self.protocols[row] == UDP) & has(self.sources[row]);
            bytes += u64::from(self.lengths[row]) * u64::from(passes);
            packets += u64::from(passes);
        }
        bytes + (packets << 32)
    }
}

fn cpu_ns() -> u64 {
    let time = nix::time::clock_gettime(nix::time::ClockId::CLOCK_THREAD_CPUTIME_ID)
        .expect("each thread has this clock");
    time.tv_sec() as u64 * 1_000_000_000 + time.tv_nsec() as u64
}

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, case, file, turns, ..] = &arguments[..] else {
        panic!("CASE FILE TURNS")
    };
    let set = set();
    let in_set = |source: u32| set.binary_search(&source).is_ok();
    let in_prefix = |source: u32| source & 0xffff_f800 == 0x0a00_0000;
    let mut columns = Columns {
        versions: vec![0; ROOM],
        protocols: vec![0; ROOM],
        sources: vec![0; ROOM],
        lengths: vec![0; ROOM],
        rows: 0,
    };
    for _ in 0..turns.parse().expect("a number") {
        let options = Options {
            workers: 1,
            batches: 96,
            ..Options::default()
        };
        let source = Source::open(&[file], &options).expect("the file can be read");
        let (begun, mut sum, mut seen) = (cpu_ns(), 0u64, 0usize);
        let judge = |columns: &mut Columns| match &case[..] {
            "prefix" => columns.judge(in_prefix),
            "set" => columns.judge(in_set),
            "fill" => std::mem::take(&mut columns.rows) as u64,
            other => panic!("no case {other}"),
        };
        loop {
            let batch = match source
                .next(Duration::from_secs(1))
                .expect("the file can be read")
            {
                Next::Batch(batch) => batch,
                Next::Nothing => continue,
                Next::End => break,
            };
            seen += batch.len();
            let mut first = 0;
            while first < batch.len() {
                let from = columns.rows;
                let mut to = [
                    Column::IpVersion(&mut columns.versions[from..]),
                    Column::Protocol(&mut columns.protocols[from..]),
                    Column::Source4(&mut columns.sources[from..]),
                    Column::WireLength(&mut columns.lengths[from..]),
                ];
                let written;
                (written, first) = batch.fill(first, false, &mut to);
                columns.rows += written;
                if columns.rows == ROOM {
                    sum += judge(&mut columns);
                }
            }
        }
        sum += judge(&mut columns);
        println!("{} {seen} {sum}", cpu_ns() - begun);
    }
}
