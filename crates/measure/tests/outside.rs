//! Compares the statements of tables about unlisted keys with exact counts. The tests use many seeds, streams that are hard on
//! tables, and packets that are distributed to workers in any way.

#[path = "../../sketch/tests/support/mod.rs"]
mod support;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use support::random;

use weir_measure::{
    Aggregate, BoundKind, By, Config, KeyKind, Keys, Kind, Observation, Row, SharedTables, Sketch,
    Spares, State, Table, Weigh,
};
use weir_memory::{Policy, Request};
use weir_packet::flow::FlowKey;
use weir_sketch::Counts;
use zerocopy::{FromZeros, IntoBytes};

/// Packets and bytes of each key; the bytes of the key give the order.
type Truth = BTreeMap<Vec<u8>, (u64, u64)>;

fn flow(number: u64) -> FlowKey {
    let mut key = FlowKey {
        family: 4,
        proto: 17,
        dport: 53,
        flags: FlowKey::HAS_PORTS,
        ..FlowKey::NONE
    };
    key.src[..4].copy_from_slice(&(number as u32).to_be_bytes());
    key.dst[..4].copy_from_slice(&[10, 0, 0, (number % 7) as u8]);
    key.sport = (number >> 3) as u16;
    key
}

/// Numbers of flows in an order that is hard on some table: nearly alike, or large ones at the end, in bursts, in turn.
fn numbers(seed: u64, packets: u64) -> Vec<u64> {
    let draw = |at: u64, many: u64| random(seed, at) % many;
    let number = |at: u64| match seed % 6 {
        0 => draw(at, packets / 20),
        1 => at % 331,
        2 if at < packets / 2 => at,
        2 => draw(at, 40),
        3 => at / 30 % 97 + at / 900 * 13,
        4 if at.is_multiple_of(19) => 0,
        4 => at,
        // Two thirds of all keys have one packet, and few have many.
        _ => packets / (1 + draw(at, packets)),
    };
    (0..packets).map(number).collect()
}

struct Case {
    sketch: Sketch,
    by: Weigh,
    memory: usize,
    workers: usize,
    shared: bool,
    seed: u64,
}

const KEYS: [KeyKind; 3] = [KeyKind::FiveTuple, KeyKind::SRC, KeyKind::Pair];

impl Case {
    fn config(&self) -> Arc<Config> {
        Arc::new(Config {
            keys: self.keys(),
            by: match self.by {
                Weigh::Packets => By::Packets,
                Weigh::Bytes => By::Bytes,
            },
            sketch: self.sketch,
            memory: self.memory,
            request: Request {
                pages: Policy::Virtual,
                ..Request::default()
            },
            seed: self.seed,
            shared: self.shared.then(SharedTables::default),
            ..Config::default()
        })
    }

    /// The kinds of key that the sketch can count.
    fn keys(&self) -> Vec<KeyKind> {
        let keys = KEYS.into_iter();
        keys.filter(|kind| self.sketch.can_count(*kind)).collect()
    }

    /// Returns the merged state of all workers, and the exact counts for each table.
    fn run(&self) -> (State, Vec<Truth>) {
        let config = self.config();
        let hasher = config.hasher();
        let spares = Arc::new(Spares::default());
        let mut aggregates: Vec<Aggregate> = (0..self.workers)
            .map(|_| {
                Aggregate::new(Arc::clone(&config), Arc::clone(&spares)).expect("enough memory")
            })
            .collect();
        let keys = self.keys();
        let mut truths = vec![Truth::new(); keys.len()];
        let packets: Vec<Observation> = numbers(self.seed, 3000)
            .into_iter()
            .enumerate()
            .map(|(at, number)| {
                let key = flow(number);
                let bytes = match random(self.seed ^ 0xb17e, at as u64) {
                    draw if draw % 50 == 0 => 65_000,
                    draw => 60 + (draw % 1400) as u32,
                };
                let mut packet = Observation::new_zeroed();
                packet.arrived(Kind::Flow, bytes, 0);
                (packet.flow, packet.hash) = (key, hasher.plain(&key));
                for (kind, truth) in keys.iter().zip(&mut truths) {
                    let (packets, sum) = truth
                        .entry(kind.project(&key).as_bytes().to_vec())
                        .or_default();
                    (*packets, *sum) = (*packets + 1, *sum + u64::from(bytes));
                }
                packet
            })
            .collect();
        for (at, run) in packets.chunks(37).enumerate() {
            let worker = random(self.seed ^ 0xdea1, at as u64) as usize % self.workers;
            aggregates[worker].take(run, &[]).expect("enough memory");
        }
        let mut states = aggregates
            .iter_mut()
            .flat_map(|aggregate| aggregate.close(i64::MAX))
            .map(|(_, state)| state);
        let mut all = states.next().expect("one worker had packets");
        states.for_each(|state| all.merge(&state).expect("states of one configuration"));
        all.finalize(&config).expect("enough memory");
        (all, truths)
    }
}

/// Compares a table with the exact counts; returns whether the table called its rows exact.
fn check(table: &Table, by: Weigh, truth: &Truth, context: &str) {
    let figures = |(packets, bytes): (u64, u64)| match by {
        Weigh::Packets => (packets, bytes),
        Weigh::Bytes => (bytes, packets),
    };
    let mut outside = truth.clone();
    let mut before = u64::MAX;
    let mut seen = HashSet::new();
    for row in &table.rows {
        assert!(seen.insert(row.key), "{context}: a key twice: {row:?}");
        // A recovered key may have had no packet: then its bounds say so.
        let recovered = !matches!(row.bound.kind, BoundKind::Exact | BoundKind::Deterministic);
        let real = outside.remove(row.key.as_bytes());
        assert!(real.is_some() || recovered, "{context}: no packet: {row:?}");
        let (weight, companion) = figures(real.unwrap_or_default());
        let (told, companion_told) = figures((row.counts.packets, row.counts.bytes));
        let within =
            |value, bound: weir_measure::Bound| bound.lower <= value && value <= bound.upper;
        // If a bound is probable, only its upper end is certain.
        let probable = matches!(row.bound.kind, BoundKind::Probabilistic { .. });
        assert!(
            within(weight, row.bound) || probable && weight <= row.bound.upper,
            "{context}: {weight}, {row:?}"
        );
        assert!(
            within(companion, row.companion) || probable && companion <= row.companion.upper,
            "{context}: {companion}, {row:?}"
        );
        assert!(
            within(told, row.bound) && within(companion_told, row.companion),
            "{context}: {row:?}"
        );
        assert!(
            row.bound.kind != BoundKind::Exact || told == weight,
            "{context}: {weight}, {row:?}"
        );
        assert!(
            told <= before,
            "{context}: rows are ordered by the figure that is shown"
        );
        before = told;
    }
    let missing = table.missing;
    let most = outside
        .values()
        .map(|counts| figures(*counts).0)
        .max()
        .unwrap_or(0);
    let evicted = table.evicted != Counts::default();
    assert_eq!(missing.kind == BoundKind::None, evicted, "{context}");
    assert!(
        evicted || most <= missing.at_most,
        "{context}: a key outside has {most}, {missing:?}"
    );
    if missing.kind == BoundKind::Exact {
        assert_eq!(most, missing.at_most, "{context}");
        assert_eq!(
            missing.keys,
            Keys::About(weir_measure::Estimate::exact(outside.len() as u64)),
            "{context}"
        );
        let sum = outside
            .values()
            .fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1));
        assert_eq!(
            (missing.counts.packets, missing.counts.bytes),
            sum,
            "{context}"
        );
    }
    match missing.keys {
        Keys::AtLeast(least) => assert!(
            least <= outside.len() as u64,
            "{context}: {least} of {}",
            outside.len()
        ),
        Keys::About(keys) => {
            let error = keys.value.abs_diff(outside.len() as u64);
            assert!(
                error <= 3 * keys.plus_minus + 3,
                "{context}: {} keys are outside, {keys:?}",
                outside.len()
            );
        }
    }
    let listed: u64 = table.rows.iter().map(|row| row.counts.packets).sum();
    let all: u64 = truth.values().map(|counts| counts.0).sum();
    let probable = |row: &Row| matches!(row.bound.kind, BoundKind::Probabilistic { .. });
    let too_high = |row: &Row| row.counts.by(by) > row.bound.lower;
    if !table.rows.iter().any(|row| probable(row) || too_high(row)) {
        assert_eq!(
            listed + missing.counts.packets,
            all,
            "{context}: rows and rest are all packets"
        );
    }
}

#[test]
fn no_key_outside_a_list_is_larger_than_said() {
    let sketches = [
        Sketch::Heavy,
        Sketch::Exact,
        Sketch::Cms {
            conservative: false,
        },
        Sketch::Cms { conservative: true },
        Sketch::Simple,
        Sketch::Majority,
        Sketch::Reversible,
        Sketch::ReversibleSets,
    ];
    let mut larger = 0;
    for seed in 0..15 {
        for sketch in sketches {
            for by in [Weigh::Packets, Weigh::Bytes] {
                let memory = if seed % 5 == 0 {
                    200_000
                } else {
                    8_000 << (seed % 3)
                };
                let shared = sketch.can_be_shared() && seed % 4 == 3;
                let memory = if shared { 4 * memory } else { memory };
                // The narrowest rows of pairs take 2 MiB, and full sets name keys of no packet: fewer seeds, more memory.
                let memory = match sketch {
                    Sketch::Reversible | Sketch::ReversibleSets if seed >= 6 => continue,
                    Sketch::Reversible => 4 << 20,
                    Sketch::ReversibleSets => 16 << 20,
                    _ => memory,
                };
                let workers = 1 + seed as usize % 3;
                let case = Case {
                    sketch,
                    by,
                    memory,
                    workers,
                    shared,
                    seed,
                };
                let (state, truths) = case.run();
                for (i, truth) in truths.iter().enumerate() {
                    for rows in [0, 1, 10, usize::MAX] {
                        let context = format!(
                            "{sketch:?} by {by:?}, {memory} bytes, {workers} workers, seed {seed}, table {i}, {rows} rows"
                        );
                        let table = state.table(i, rows);
                        check(&table, by, truth, &context);
                        larger += u64::from(
                            table
                                .rows
                                .iter()
                                .any(|row| row.bound.lower < table.missing.at_most),
                        );
                    }
                }
            }
        }
    }
    assert!(
        larger > 120,
        "lists that may lack a larger key were judged: {larger}"
    );
}

/// Packets that found no room at one worker may be those of a key that another worker listed.
#[test]
fn a_full_exact_table_of_several_workers_does_not_call_its_rows_exact() {
    let mut doubtful = 0;
    for seed in (0..40).step_by(6) {
        for (workers, shared) in [(1, false), (3, false), (3, true)] {
            let memory = if shared { 64_000 } else { 8_000 };
            let case = Case {
                sketch: Sketch::Exact,
                by: Weigh::Packets,
                memory,
                workers,
                shared,
                seed,
            };
            let (state, truths) = case.run();
            let table = state.table(0, usize::MAX);
            check(
                &table,
                Weigh::Packets,
                &truths[0],
                &format!("seed {seed}, {workers} workers, shared {shared}"),
            );
            let exact = table
                .rows
                .iter()
                .all(|row| row.bound.kind == BoundKind::Exact);
            if table.untracked.packets > 0 {
                assert_eq!(
                    exact,
                    workers == 1 || shared,
                    "seed {seed}, {workers} workers, shared {shared}"
                );
                doubtful += u64::from(!exact);
            }
        }
    }
    assert!(doubtful > 0, "some table was full");
}

#[test]
fn exact_tables_count_sources_and_flows_as_they_are() {
    let case = Case {
        sketch: Sketch::Exact,
        by: Weigh::Packets,
        memory: 1 << 20,
        workers: 2,
        shared: false,
        seed: 6,
    };
    let (state, truths) = case.run();
    assert_eq!(
        state.flows(),
        weir_measure::Estimate::exact(truths[0].len() as u64)
    );
    assert_eq!(
        state.sources(),
        weir_measure::Estimate::exact(truths[1].len() as u64)
    );
    assert!(
        state.destinations().confidence < 1.0,
        "no table has destinations"
    );
}
