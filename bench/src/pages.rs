//! Random look-ups in tables of several sizes, with the pages of each policy.
//!
//! A look-up in a large table reads a cache line, and before that the page table's entries for its address. Larger pages
//! have fewer entries, which stay in the caches.

use crate::Size;
use crate::clock::{Samples, time};
use crate::plot::{self, Scale};
use crate::report::Report;
use std::hint::black_box;
use weir_memory::{Policy, Request, Table};

/// Columns of the raw data.
pub const RAW: &str = "bytes,policy,look-ups,round,wall_ns,cpu_ns,checksum";

const POLICIES: [Policy; 5] = [
    Policy::Virtual,
    Policy::Thp,
    Policy::Hugetlb2M,
    Policy::Hugetlb1G,
    Policy::Contiguous,
];

/// Dependence between look-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AccessMode {
    /// Each index depends on the value before, so that the processor waits for each look-up.
    Dependent,
    /// All indices are known beforehand, so that the processor works on many look-ups at once.
    Independent,
}

impl AccessMode {
    const ALL: [Self; 2] = [Self::Dependent, Self::Independent];

    fn name(self) -> &'static str {
        match self {
            Self::Dependent => "dependent",
            Self::Independent => "independent",
        }
    }
}

/// A table of one policy with its times.
struct Tried {
    policy: Policy,
    table: Table<u64>,
    samples: [Samples; 2],
}

/// Runs all sizes.
pub fn run(size: Size, rounds: usize, report: &mut Report) {
    let (sizes, steps): (&[usize], usize) = match size {
        Size::Full => (&[1 << 20, 64 << 20, 1 << 30], 2_000_000),
        Size::Smoke => (&[1 << 20, 4 << 20], 20_000),
    };
    let mut medians: Vec<Vec<(Policy, [f64; 2])>> = Vec::new();
    for &bytes in sizes {
        report.heading(&format!("Tables of {}", name(bytes)));
        let mut tried = Vec::new();
        for policy in POLICIES {
            match make(bytes, policy) {
                Ok(table) => {
                    report.line(&format!("- {policy}: {}", table.obtained()));
                    tried.push(Tried {
                        policy,
                        table,
                        samples: Default::default(),
                    });
                }
                Err(error) => report.line(&format!("- {policy}: not to be had: {error}")),
            }
        }
        report.line("");
        compare(&mut tried, bytes, steps, rounds, report);
        medians.push(
            tried
                .iter()
                .map(|one| (one.policy, [0, 1].map(|way| one.samples[way].median())))
                .collect(),
        );
    }
    let categories: Vec<String> = sizes.iter().map(|bytes| name(*bytes)).collect();
    for (at, way) in AccessMode::ALL.iter().enumerate() {
        let line = |policy: Policy| plot::Line {
            label: policy.to_string(),
            values: medians
                .iter()
                .map(|found| Some(found.iter().find(|(other, _)| *other == policy)?.1[at]))
                .collect(),
        };
        let lines: Vec<plot::Line> = POLICIES
            .map(line)
            .into_iter()
            .filter(|line| line.values.iter().any(Option::is_some))
            .collect();
        let title = format!("Random look-ups, {}: ns each, median", way.name());
        let svg = plot::lines(
            &title,
            ("size of the table", "ns"),
            Scale::Linear,
            &categories,
            &lines,
        );
        report.picture(way.name(), &svg);
    }
}

fn name(bytes: usize) -> String {
    if bytes >= 1 << 30 {
        format!("{} GiB", bytes >> 30)
    } else {
        format!("{} MiB", bytes >> 20)
    }
}

/// A table whose memory is populated; each value is computed from its index.
fn make(bytes: usize, pages: Policy) -> Result<Table<u64>, weir_memory::Error> {
    let request = Request {
        pages,
        populate: true,
        ..Request::default()
    };
    let mut table = Table::zeroed(bytes / size_of::<u64>(), &request)?;
    table
        .iter_mut()
        .zip(0..)
        .for_each(|(value, place)| *value = mix(place));
    Ok(table)
}

fn compare(tried: &mut [Tried], bytes: usize, steps: usize, rounds: usize, report: &mut Report) {
    let expected = AccessMode::ALL.map(|way| without_table(way, bytes / size_of::<u64>(), steps));
    let mut wrong = Vec::new();
    for round in 0..rounds {
        for one in &mut *tried {
            for (at, way) in AccessMode::ALL.into_iter().enumerate() {
                // Warms up the caches.
                look_up(way, black_box(&one.table), steps);
                let (sum, elapsed) = time(|| look_up(way, black_box(&one.table), steps));
                one.samples[at].add(elapsed, steps);
                if sum != expected[at] {
                    wrong.push(one.policy);
                }
                let samples = &one.samples[at];
                let times = [samples.wall[round], samples.cpu[round]].map(|ns| format!("{ns:.3}"));
                let (policy, number) = (one.policy.to_string(), (round + 1).to_string());
                let (bytes, sum) = (bytes.to_string(), format!("{sum:016x}"));
                report.raw(&[
                    &bytes,
                    &policy,
                    way.name(),
                    &number,
                    &times[0],
                    &times[1],
                    &sum,
                ]);
            }
        }
    }
    let base = tried.iter().find(|one| one.policy == Policy::Virtual);
    let base = base.map(|one| [one.samples[0].median(), one.samples[1].median()]);
    let row = |one: &Tried| {
        let mut cells = vec![one.policy.to_string()];
        for at in 0..2 {
            let [median, range, _] = one.samples[at].cells();
            let faster = base.map_or("-".to_owned(), |base| {
                format!("{:.2}x", base[at] / one.samples[at].median())
            });
            cells.extend([median, range, faster]);
        }
        cells
    };
    let head = [
        "pages",
        "dependent",
        "min - max",
        "of virtual",
        "independent",
        "min - max",
        "of virtual",
    ];
    report.table(&head, &tried.iter().map(row).collect::<Vec<_>>());
    report.line(&format!(
        "\nChecksums: dependent {:016x}, independent {:016x}.",
        expected[0], expected[1]
    ));
    for policy in wrong {
        report.wrong(&format!("{policy}: another checksum"));
    }
}

fn look_up(way: AccessMode, table: &[u64], steps: usize) -> u64 {
    walk(way, table.len(), steps, |place| table[place])
}

/// The same look-ups, with each value computed instead of read.
fn without_table(way: AccessMode, len: usize, steps: usize) -> u64 {
    walk(way, len, steps, |place| mix(place as u64))
}

#[inline(always)]
fn walk(way: AccessMode, len: usize, steps: usize, value: impl Fn(usize) -> u64) -> u64 {
    // The length is a power of two.
    let mask = len - 1;
    match way {
        // The step number is mixed in, so that the walk does not enter a cycle.
        AccessMode::Dependent => {
            (0..steps as u64).fold(1, |x, step| value((x ^ step) as usize & mask))
        }
        AccessMode::Independent => (0..steps as u64).fold(0, |sum: u64, step| {
            sum.wrapping_add(value(mix(!step) as usize & mask))
        }),
    }
}

/// SplitMix64's output function.
#[inline(always)]
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}
