//! Every design, distribution, state, sketch and way of reading against a serial table made by hand.

mod measured;
mod reading;
pub(crate) mod times;

use reading::build::Pcap;
use reading::compare::{piecewise, plain};
use reading::{Random, Scratch};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_io::Input;
use weir_measure::{
    Arrivals, BoundKind, By, Config, KeyKind, SharedTables, Sketch, State, Window, Windowing,
};
use weir_packet::flow::FlowKey;
use weir_pipeline::measuring::{Design, Distribute, Run, Settings};

const SECOND: i64 = 1_000_000_000;

/// A made packet, with the facts that the program must find.
#[derive(Clone, Copy, Debug)]
struct Made {
    time_ns: i64,
    flow: u32,
    bytes: u32,
    arp: bool,
}

impl Made {
    fn key(self) -> FlowKey {
        let mut key = FlowKey {
            sport: self.flow as u16,
            dport: 53,
            proto: 17,
            family: 4,
            flags: 1,
            ..FlowKey::NONE
        };
        key.src[..4].copy_from_slice(&(0x0a00_0000 + self.flow / 7).to_be_bytes());
        key.dst[..4].copy_from_slice(&(0xc000_0200 + self.flow % 5).to_be_bytes());
        key
    }

    fn frame(self) -> Vec<u8> {
        let mut frame = vec![2; 12];
        if self.arp {
            frame.extend([0x08, 0x06]);
            frame.resize(60, 0);
            return frame;
        }
        let key = self.key();
        frame.extend([0x08, 0x00, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0]);
        frame.extend(&key.src[..4]);
        frame.extend(&key.dst[..4]);
        frame.extend(key.sport.to_be_bytes());
        frame.extend(key.dport.to_be_bytes());
        frame.resize(60, 0);
        frame
    }
}

/// Returns packets of a few heavy flows and many light ones. Their times advance, and step back now and then, some of them far.
fn traffic(packets: usize, disorder_ns: u64) -> Vec<Made> {
    let mut numbers = Random(0x5eed);
    let mut clock = 1_700_000_000 * SECOND;
    (0..packets)
        .map(|_| {
            clock += numbers.below(200_000) as i64;
            let back = if numbers.below(50) == 0 {
                numbers.below(disorder_ns as usize) as i64
            } else {
                0
            };
            let class = numbers.below(10);
            let flow = if class < 6 {
                numbers.below(20)
            } else {
                100 + numbers.below(40_000)
            };
            // Whole microseconds, the resolution of the file.
            let time_ns = (clock - back) / 1000 * 1000;
            Made {
                time_ns,
                flow: flow as u32,
                bytes: 60 + numbers.below(1400) as u32,
                arp: numbers.below(100) == 0,
            }
        })
        .collect()
}

fn file(packets: &[Made]) -> Vec<u8> {
    let mut file = Pcap::new(1, 65_535);
    for packet in packets {
        let data = packet.frame();
        let (seconds, rest) = (packet.time_ns / SECOND, packet.time_ns % SECOND / 1000);
        file.header(seconds as u32, rest as u32, data.len() as u32, packet.bytes);
        file.bytes.extend(&data);
    }
    file.bytes
}

/// Expected contents of one result.
#[derive(Clone, Debug, Default, PartialEq)]
struct Expected {
    number: i64,
    revision: u32,
    arrivals: Arrivals,
    bytes: u64,
    not_ip: u64,
    table: HashMap<FlowKey, (u64, u64)>,
}

impl Expected {
    fn add(&mut self, other: &Self) {
        self.arrivals += other.arrivals;
        self.bytes += other.bytes;
        self.not_ip += other.not_ip;
        for (key, counts) in &other.table {
            let sum = self.table.entry(*key).or_default();
            *sum = (sum.0 + counts.0, sum.1 + counts.1);
        }
    }
}

/// Reference: takes one packet after the other, one source after the other. Returns the results in their order of output.
fn serial(
    sources: &[&[Made]],
    windowing: Windowing,
    kind: KeyKind,
    keep: impl Fn(&Made) -> bool,
) -> Vec<Expected> {
    let mut windows = times::Serial::new(windowing);
    for packets in sources {
        for (packet, stamp) in packets.iter().zip(windows.stamps(packets)) {
            let at = windows.place(stamp);
            at.arrivals.received += 1;
            at.arrivals.jumped += u64::from(stamp == times::Stamp::Jumped);
            if !keep(packet) {
                at.arrivals.filtered += 1;
                continue;
            }
            at.bytes += u64::from(packet.bytes);
            if packet.arp {
                at.not_ip += 1;
            } else {
                let counts = at.table.entry(kind.project(&packet.key())).or_default();
                counts.0 += 1;
                counts.1 += u64::from(packet.bytes);
            }
        }
    }
    windows.finish()
}

/// A combination of settings to measure with.
#[derive(Clone, Copy, Debug)]
struct Case {
    design: Design,
    distribute: Distribute,
    workers: usize,
    batch: usize,
    sketch: Sketch,
    shared: bool,
    by: By,
    kind: KeyKind,
    windowing: Windowing,
    filtering: bool,
    /// Size of an exact table, bytes: eight times that of a sketch.
    memory: usize,
}

const WHOLE: Windowing = Windowing {
    window_ns: None,
    late_ns: 0,
};

const PLAIN: Case = Case {
    design: Design::Rss,
    distribute: Distribute::Flow,
    workers: 2,
    batch: 32,
    sketch: Sketch::Exact,
    shared: false,
    by: By::Packets,
    kind: KeyKind::FiveTuple,
    windowing: WHOLE,
    filtering: false,
    memory: 8 << 20,
};

const CMS: Sketch = Sketch::Cms {
    conservative: false,
};

impl Case {
    fn settings(self) -> Settings {
        Settings {
            config: Arc::new(Config {
                keys: vec![self.kind],
                by: self.by,
                sketch: self.sketch,
                memory: if self.sketch == Sketch::Exact {
                    self.memory
                } else {
                    self.memory / 8
                },
                windowing: self.windowing,
                seed: 7,
                shared: self.shared.then(SharedTables::default),
                ..Config::default()
            }),
            design: self.design,
            distribute: self.distribute,
            workers: self.workers,
            batch: self.batch,
            ..Settings::default()
        }
    }

    fn run(self) -> Run {
        let expression = if self.filtering {
            "udp[0:2] & 1 = 0"
        } else {
            ""
        };
        measured::run(self.settings(), expression)
    }

    fn keep(self) -> impl Fn(&Made) -> bool {
        move |packet| !self.filtering || (!packet.arp && packet.key().sport & 1 == 0)
    }
}

/// Compares a window with its expected contents.
fn compare(case: &Case, expected: &Expected, arrivals: Arrivals, state: Option<&State>) {
    assert_eq!(arrivals, expected.arrivals, "{case:?}");
    let passed = arrivals.received - arrivals.filtered - arrivals.late;
    let Some(state) = state else {
        return assert_eq!(passed, 0, "{case:?}");
    };
    assert_eq!(
        (state.tally().passed, state.tally().bytes),
        (passed, expected.bytes),
        "{case:?}"
    );
    assert_eq!(state.tally().keyless.not_ip, expected.not_ip, "{case:?}");
    let table = state.table(0, usize::MAX);
    let mut found = 0;
    for row in &table.rows {
        let &(packets, bytes) = expected.table.get(&row.key).unwrap_or(&(0, 0));
        let truth = if case.by == By::Packets {
            packets
        } else {
            bytes
        };
        match row.bound.kind {
            BoundKind::Exact => assert_eq!(
                (row.counts.packets, row.counts.bytes),
                (packets, bytes),
                "{case:?}"
            ),
            BoundKind::Deterministic => {
                assert!(
                    (row.bound.lower..=row.bound.upper).contains(&truth),
                    "{case:?}: {row:?}, not {truth}"
                );
            }
            BoundKind::Probabilistic { .. } => {
                found += usize::from(row.bound.lower <= truth);
                assert!(row.bound.upper >= truth, "{case:?}: {row:?}, not {truth}");
            }
            BoundKind::None => {
                assert!(
                    matches!(case.sketch, Sketch::Simple | Sketch::ReversibleSets),
                    "{case:?}: {row:?}"
                );
                assert!(
                    (row.bound.lower..=row.bound.upper).contains(&truth),
                    "{case:?}: {row:?}, not {truth}"
                );
            }
        }
    }
    match case.sketch {
        Sketch::Exact => assert_eq!(table.rows.len(), expected.table.len(), "{case:?}"),
        Sketch::Heavy | Sketch::Majority | Sketch::Reversible | Sketch::ReversibleSets => {}
        Sketch::Simple => {
            let in_rows: u64 = table.rows.iter().map(|row| row.counts.packets).sum();
            let all: u64 = expected.table.values().map(|(packets, _)| packets).sum();
            assert_eq!(in_rows + table.evicted.packets, all, "{case:?}");
        }
        Sketch::Cms { .. } => {
            assert!(
                found * 100 >= table.rows.len() * 98,
                "{case:?}: {found} of {}",
                table.rows.len()
            )
        }
    }
    // Every sketch but a simple table with collisions and full sets must name the heaviest flows.
    let mut heaviest: Vec<(u64, FlowKey)> = expected
        .table
        .iter()
        .map(|(key, &(packets, bytes))| {
            (
                if case.by == By::Packets {
                    packets
                } else {
                    bytes
                },
                *key,
            )
        })
        .collect();
    heaviest.sort_unstable_by_key(|&(weight, _)| std::cmp::Reverse(weight));
    for (weight, key) in heaviest.iter().take(5) {
        // A newer key may have taken the slot of a heavy key, and a full set may lack a part of it.
        let hidden = table.evicted.packets > 0 || table.overflowed > 0;
        assert!(
            hidden || table.rows.iter().any(|row| row.key == *key),
            "{case:?}: {key:?} of {weight} is missing"
        );
    }
    if case.sketch == Sketch::Exact && case.kind == KeyKind::FiveTuple {
        assert_eq!(state.flows().value, expected.table.len() as u64);
    }
}

/// Runs a case over the packets of one source, and compares all its windows and their sum.
fn check(case: Case, packets: &[Made], inputs: impl IntoIterator<Item = Input>) {
    check_all(case, &[packets], inputs);
}

/// Runs a case over several sources, and compares all windows and their sum.
fn check_all(case: Case, sources: &[&[Made]], inputs: impl IntoIterator<Item = Input>) {
    let expected = serial(sources, case.windowing, case.kind, case.keep());
    let mut run = case.run();
    let stop = AtomicBool::new(false);
    let timed: Vec<&Expected> = expected
        .iter()
        .filter(|window| window.number != Windowing::UNTIMED)
        .collect();
    let mut rest = timed.into_iter();
    let mut each = |window: Window<'_>| {
        let right = rest
            .next()
            .unwrap_or_else(|| panic!("{case:?}: a window too many: {window:?}"));
        assert_eq!(
            (window.span, window.revision),
            (Some(case.windowing.span(right.number)), right.revision),
            "{case:?}"
        );
        compare(&case, right, window.arrivals, window.state);
    };
    let mut received = 0;
    for input in inputs {
        let measured =
            measured::source(&mut run, input, &stop, &mut |_| {}, &mut each).expect("workers live");
        assert!(measured.report.fault.is_none());
        received += measured.report.received;
    }
    let finished = run.finish(&mut each).expect("workers live");
    if case.windowing.window_ns.is_some() {
        assert_eq!(rest.count(), 0, "{case:?}: windows are missing");
    }
    let mut whole = Expected::default();
    expected.iter().for_each(|window| whole.add(window));
    assert_eq!(received, whole.arrivals.received, "{case:?}");
    assert_eq!(
        received,
        sources
            .iter()
            .map(|packets| packets.len() as u64)
            .sum::<u64>(),
        "{case:?}"
    );
    compare(&case, &whole, finished.arrivals, finished.state.as_ref());
    let arrivals = finished.arrivals;
    assert_eq!(
        arrivals.received,
        finished.processed + arrivals.filtered + arrivals.late,
        "{case:?}"
    );
    let further = expected.iter().filter(|window| window.revision > 0);
    assert_eq!(
        finished.further.results,
        further.clone().count() as u64,
        "{case:?}"
    );
    assert_eq!(
        finished.further.packets,
        further.map(|window| window.arrivals.received).sum::<u64>(),
        "{case:?}"
    );
}

fn crews() -> Vec<(Design, Distribute, usize)> {
    let mut crews = vec![
        (Design::Rss, Distribute::Flow, 1),
        (Design::Rss, Distribute::Flow, 2),
        (Design::Rss, Distribute::Flow, 4),
    ];
    for design in [Design::Async, Design::Sync] {
        for distribute in [Distribute::Flow, Distribute::Address, Distribute::Random] {
            crews.push((design, distribute, 2));
        }
        crews.push((design, Distribute::Flow, 1));
        crews.push((design, Distribute::Flow, 3));
    }
    crews
}

#[test]
fn every_design_gives_the_serial_answer() {
    let packets = traffic(6_000, 0);
    let scratch = Scratch::new("designs.pcap", &file(&packets));
    for (at, (design, distribute, workers)) in crews().into_iter().enumerate() {
        let case = Case {
            design,
            distribute,
            workers,
            ..PLAIN
        };
        // Keys are recovered from these, which takes longer than all else: in each design, and not with each distribution.
        let recovers = |sketch| matches!(sketch, Sketch::Reversible | Sketch::ReversibleSets);
        let is_tried = |sketch| !recovers(sketch) || at % 4 == 1;
        for sketch in [
            Sketch::Exact,
            Sketch::Heavy,
            CMS,
            Sketch::Cms { conservative: true },
            Sketch::Simple,
            Sketch::Majority,
            Sketch::ReversibleSets,
        ]
        .into_iter()
        .filter(|sketch| is_tried(*sketch))
        {
            check(Case { sketch, ..case }, &packets, [plain(&scratch)]);
        }
        for sketch in [
            Sketch::Exact,
            CMS,
            Sketch::Cms { conservative: true },
            Sketch::Simple,
            Sketch::ReversibleSets,
        ]
        .into_iter()
        .filter(|sketch| is_tried(*sketch))
        {
            check(
                Case {
                    sketch,
                    shared: true,
                    ..case
                },
                &packets,
                [plain(&scratch)],
            );
        }
        for shared in [false, true]
            .into_iter()
            .filter(|_| is_tried(Sketch::Reversible))
        {
            let sources = Case {
                sketch: Sketch::Reversible,
                kind: KeyKind::SRC,
                shared,
                ..case
            };
            check(sources, &packets, [plain(&scratch)]);
        }
    }
}

#[test]
fn every_key_weight_batch_and_way_gives_the_serial_answer() {
    let packets = traffic(6_000, 0);
    let bytes = file(&packets);
    let scratch = Scratch::new("keys.pcap", &bytes);
    let bytes = Arc::new(bytes);
    let crews = [(Design::Rss, 1), (Design::Rss, 3), (Design::Async, 2)];
    for (design, workers) in crews {
        let case = Case {
            design,
            workers,
            ..PLAIN
        };
        for kind in [
            "5tuple",
            "conversation",
            "pair",
            "src",
            "dst",
            "sport",
            "dport",
            "proto",
            "src/28",
            "dst/30",
        ] {
            let kind = kind.parse().expect("a key");
            check(Case { kind, ..case }, &packets, [plain(&scratch)]);
            check(
                Case {
                    kind,
                    sketch: Sketch::Heavy,
                    by: By::Bytes,
                    ..case
                },
                &packets,
                [plain(&scratch)],
            );
        }
        for batch in [1, 7, 100] {
            check(
                Case {
                    batch,
                    filtering: true,
                    ..case
                },
                &packets,
                [plain(&scratch)],
            );
        }
        check(
            Case {
                by: By::Bytes,
                sketch: CMS,
                ..case
            },
            &packets,
            [plain(&scratch)],
        );
        for most in [1000, 100_000] {
            check(case, &packets, [piecewise(&bytes, most)]);
        }
    }
}

#[test]
fn windows_close_in_order_and_late_packets_are_a_further_result_of_theirs() {
    // Packets step back by up to 700 ms: more than the wait for late packets in the second case, and more than a window in the
    // third.
    let packets = traffic(4_000, 700_000_000);
    let bytes = file(&packets);
    let scratch = Scratch::new("windows.pcap", &bytes);
    let bytes = Arc::new(bytes);
    let cuts = [
        (SECOND, SECOND),
        (SECOND, SECOND / 10),
        (SECOND / 10, 0),
        (SECOND / 10, SECOND / 4),
        (3600 * SECOND, 0),
    ];
    let mut late = 0;
    for (window, allowed) in cuts {
        let windowing = Windowing {
            window_ns: Some(window),
            late_ns: allowed,
        };
        let results = serial(&[&packets], windowing, KeyKind::FiveTuple, |_| true);
        late += results
            .iter()
            .filter(|result| result.revision > 0)
            .map(|result| result.arrivals.received)
            .sum::<u64>();
        for (design, distribute, workers) in crews() {
            let case = Case {
                design,
                distribute,
                workers,
                windowing,
                ..PLAIN
            };
            check(case, &packets, [plain(&scratch)]);
            check(
                Case {
                    sketch: Sketch::Heavy,
                    filtering: true,
                    ..case
                },
                &packets,
                [plain(&scratch)],
            );
            if workers == 2 {
                check(
                    Case {
                        shared: true,
                        ..case
                    },
                    &packets,
                    [plain(&scratch)],
                );
                check(case, &packets, [piecewise(&bytes, 50_000)]);
            }
        }
    }
    assert!(late > 50, "the test holds late packets: {late}");
}

/// All packets come in one delivery: a stopped run does not measure the rest of it.
#[test]
fn a_run_that_is_stopped_leaves_the_packets_that_no_worker_has() {
    let packets = traffic(20_000, 0);
    let scratch = Scratch::new("stopped", &file(&packets));
    let windowing = Windowing {
        window_ns: Some(SECOND / 1000),
        late_ns: 0,
    };
    for (design, distribute, workers) in crews() {
        let case = Case {
            design,
            distribute,
            workers,
            sketch: Sketch::Heavy,
            windowing,
            ..PLAIN
        };
        let mut run = case.run();
        let (stop, mut results) = (AtomicBool::new(false), Vec::new());
        let mut each = |window: Window<'_>| {
            results.push((window.span, window.arrivals));
            stop.store(results.len() > 2, Ordering::Relaxed);
        };
        let measured = measured::source(&mut run, plain(&scratch), &stop, &mut |_| {}, &mut each)
            .expect("workers live");
        let finished = run.finish(&mut each).expect("workers live");
        let received = measured.report.received as usize;
        assert!(received < packets.len() / 2, "{case:?}: {received}");
        assert_eq!(
            (finished.arrivals.received, finished.processed),
            (received as u64, received as u64),
            "{case:?}"
        );
        let expected = serial(&[&packets[..received]], windowing, case.kind, case.keep());
        let expected: Vec<_> = expected
            .iter()
            .map(|one| (Some(windowing.span(one.number)), one.arrivals))
            .collect();
        assert_eq!(results, expected, "{case:?}");
    }
}

#[test]
fn several_sources_are_one_stream() {
    let packets = traffic(6_000, 0);
    let (first, second) = packets.split_at(2_345);
    let files = [first, second].map(file);
    let scratches = [
        Scratch::new("one.pcap", &files[0]),
        Scratch::new("two.pcap", &files[1]),
    ];
    let pipe = Arc::new(files[1].clone());
    let windowing = Windowing {
        window_ns: Some(SECOND),
        late_ns: 0,
    };
    for (design, distribute, workers) in crews() {
        let case = Case {
            design,
            distribute,
            workers,
            windowing,
            ..PLAIN
        };
        check_all(case, &[first, second], scratches.iter().map(plain));
        check_all(
            case,
            &[first, second],
            [plain(&scratches[0]), piecewise(&pipe, 10_000)],
        );
    }
}

#[test]
fn a_full_exact_table_says_what_is_not_in_it() {
    let packets = traffic(6_000, 0);
    let scratch = Scratch::new("full.pcap", &file(&packets));
    let mut settings = PLAIN.settings();
    let config = Arc::get_mut(&mut settings.config).expect("nobody else has it");
    config.memory = 64 << 10;
    settings.workers = 1;
    let mut run = measured::run(settings, "");
    measured::source(
        &mut run,
        plain(&scratch),
        &AtomicBool::new(false),
        &mut |_| {},
        &mut |_| {},
    )
    .expect("it works");
    let state = run
        .finish(&mut |_| {})
        .expect("it works")
        .state
        .expect("packets were measured");
    let table = state.table(0, usize::MAX);
    let truth = &serial(&[&packets], WHOLE, KeyKind::FiveTuple, |_| true)[0].table;
    let listed: u64 = table.rows.iter().map(|row| row.counts.packets).sum();
    let all: u64 = truth.values().map(|counts| counts.0).sum();
    assert!(table.untracked.packets > 0 && table.rows.len() < truth.len());
    assert_eq!(listed + table.untracked.packets, all);
    assert!(
        table
            .rows
            .iter()
            .all(|row| truth[&row.key] == (row.counts.packets, row.counts.bytes))
    );
}

#[test]
fn a_fault_keeps_what_was_before_it() {
    let packets = traffic(6_000, 0);
    let mut bytes = file(&packets);
    bytes.truncate(16 * 24 + 76 * 5_000);
    let whole = (bytes.len() - 24) / 76;
    let scratch = Scratch::new("cut.pcap", &bytes);
    for (design, distribute, workers) in crews() {
        let mut run = Case {
            design,
            distribute,
            workers,
            ..PLAIN
        }
        .run();
        let measured = measured::source(
            &mut run,
            plain(&scratch),
            &AtomicBool::new(false),
            &mut |_| {},
            &mut |_| {},
        )
        .expect("workers live");
        let fault = measured
            .report
            .fault
            .expect("the file ends inside a packet");
        assert_eq!(fault.packet, whole as u64 + 1);
        let finished = run.finish(&mut |_| {}).expect("workers live");
        assert_eq!(finished.processed, whole as u64);
        let right = &serial(&[&packets[..whole]], WHOLE, KeyKind::FiveTuple, |_| true)[0];
        compare(&PLAIN, right, finished.arrivals, finished.state.as_ref());
    }
}
