//! The view against a naive twin that keeps every packet, and under clocks of all kinds. Time comes with the windows, so a day takes a
//! second.

use std::collections::BTreeMap;
use std::sync::Arc;
use weir_measure::{
    Aggregate, Arrivals, By, Config, Counts, KeyKind, Kind, Observation, Sketch, Spares, State,
    Weigh, Window, Windowing,
};
use weir_packet::flow::{FlowKey, Hasher};
use weir_testkit::Random;
use weir_view::{Ask, Settings, Snapshot, Span, View};

const SECOND: i64 = 1_000_000_000;
/// Begin of the tests, at a whole minute: 2023-11-14 22:13:00.
const BEGIN: i64 = 1_699_999_980 * SECOND;
const ALL: Ask = Ask {
    span: Span::Second,
    at: None,
    rows: usize::MAX,
    changes: usize::MAX,
    points: usize::MAX,
    history: 0,
};

/// Key of a host.
fn host(number: u32) -> FlowKey {
    let mut key = FlowKey {
        family: 4,
        ..FlowKey::NONE
    };
    key.src[..4].copy_from_slice(&0x0a00_0000_u32.wrapping_add(number).to_be_bytes());
    key
}

/// A packet from one host to another.
#[derive(Clone, Copy, Debug)]
struct Packet {
    from: u32,
    to: u32,
    bytes: u32,
}

impl Packet {
    fn observed(&self, hasher: &Hasher, time_ns: i64) -> Observation {
        let flow = FlowKey {
            dst: host(self.to).src,
            sport: 4000,
            dport: 53,
            proto: 17,
            flags: FlowKey::HAS_PORTS,
            ..host(self.from)
        };
        let mut packet = Observation::mark(hasher.plain(&flow));
        packet.arrived(Kind::Flow, self.bytes, time_ns);
        packet.flow = flow;
        packet
    }
}

/// Makes windows out of packets, as measuring does.
struct Meter {
    config: Arc<Config>,
    aggregate: Aggregate,
    spares: Arc<Spares>,
    window_ns: i64,
}

impl Meter {
    fn new(window_ns: i64, sketch: Sketch, by: By, memory: usize) -> Self {
        let config = Arc::new(Config {
            keys: vec![KeyKind::HOST, KeyKind::SRC],
            by,
            sketch,
            memory,
            windowing: Windowing {
                window_ns: Some(window_ns),
                late_ns: 0,
            },
            ..Config::default()
        });
        let spares = Arc::<Spares>::default();
        let aggregate = Aggregate::new(Arc::clone(&config), Arc::clone(&spares));
        Self {
            config,
            aggregate: aggregate.expect("memory"),
            spares,
            window_ns,
        }
    }

    /// Gives a window with these packets to a view; number 0 begins at [`BEGIN`].
    fn window(&mut self, view: &mut View, number: i64, revision: u32, packets: &[Packet]) {
        let from = BEGIN.saturating_add(number.saturating_mul(self.window_ns));
        let hasher = self.config.hasher();
        let observed = packets.iter().map(|packet| packet.observed(&hasher, from));
        let observed: Vec<Observation> = observed.collect();
        self.aggregate.take(&observed, &[]).expect("memory");
        let state = self.aggregate.close(i64::MAX).pop().map(|(_, state)| state);
        let span = (from, from.saturating_add(self.window_ns));
        view.add(&Window {
            span: Some(span),
            covered: Some(span),
            revision,
            left_out: 0,
            arrivals: Arrivals {
                received: packets.len() as u64,
                ..Arrivals::default()
            },
            state: state.as_ref(),
            change: None,
            before: None,
            health: None,
            names: None,
        });
        state
            .into_iter()
            .for_each(|state: State| self.spares.keep(state));
    }
}

/// All packets of each window, by the number of the window.
type Twin = BTreeMap<i64, Vec<Packet>>;

/// Packets and bytes of each host that sent or received them, in some windows.
fn hosts<'a>(windows: impl Iterator<Item = &'a Vec<Packet>>) -> BTreeMap<u32, Counts> {
    let mut hosts = BTreeMap::<u32, Counts>::new();
    for packet in windows.flatten() {
        for end in [packet.from, packet.to] {
            let counts = hosts.entry(end).or_default();
            counts.packets += 1;
            counts.bytes += u64::from(packet.bytes);
        }
    }
    hosts
}

/// Rows and rest are the whole table, of both figures.
#[track_caller]
fn adds_up(snapshot: &Snapshot) {
    for table in &snapshot.tables {
        let rows = table.rows.iter().map(|row| row.listed.counts);
        let sum = rows.fold(table.rest.counts, |sum, counts| Counts {
            packets: sum.packets + counts.packets,
            bytes: sum.bytes + counts.bytes,
        });
        assert_eq!(sum, table.whole, "{:?}", table.kind);
        for row in &table.rows {
            let sides = row.listed.sides.map(|sides| (sides.tx, sides.rx));
            assert!(sides.is_none_or(|(tx, rx)| {
                (tx.packets + rx.packets, tx.bytes + rx.bytes)
                    == (row.listed.counts.packets, row.listed.counts.bytes)
            }));
        }
    }
}

/// A step of the view has what the windows of the twin had.
#[track_caller]
fn is_true(snapshot: &Snapshot, truth: &BTreeMap<u32, Counts>) {
    adds_up(snapshot);
    let table = &snapshot.tables[0];
    assert_eq!(table.kind, KeyKind::HOST);
    let sum = |figure: fn(&Counts) -> u64| truth.values().map(figure).sum::<u64>();
    let whole = (sum(|counts| counts.packets), sum(|counts| counts.bytes));
    assert_eq!((table.whole.packets, table.whole.bytes), whole);
    assert_eq!(snapshot.totals.measured.packets * 2, whole.0);
    assert_eq!(snapshot.totals.arrivals.received * 2, whole.0);
    for (number, counts) in truth {
        let key = host(*number);
        let row = table.rows.iter().find(|row| row.listed.key == key);
        let (ranking, other) = match table.by {
            Weigh::Packets => (counts.packets, counts.bytes),
            Weigh::Bytes => (counts.bytes, counts.packets),
        };
        match row {
            Some(row) => {
                let (bound, companion) = (row.listed.bound, row.listed.companion);
                assert!(
                    (bound.lower..=bound.upper).contains(&ranking)
                        && (companion.lower..=companion.upper).contains(&other),
                    "{number}: {counts:?} is not within {bound:?} and {companion:?}"
                );
            }
            None => assert!(
                ranking <= table.rest.at_most,
                "{number}: {ranking} is more than {}",
                table.rest.at_most
            ),
        }
    }
}

/// Compares all steps of all lengths with the twin.
fn compare(view: &View, twin: &Twin, window_ns: i64) {
    for span in Span::ALL {
        let length = span.seconds() * SECOND / window_ns;
        let mut steps: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for window in twin.keys() {
            steps
                .entry(window.div_euclid(length))
                .or_default()
                .push(*window);
        }
        let kept = steps.iter().rev().take(span.steps());
        for (_, windows) in kept {
            let at = Some(BEGIN + windows[0] * window_ns);
            let snapshot = view.snapshot(&Ask { span, at, ..ALL }).expect("kept");
            let last = windows[windows.len() - 1];
            let ends = (snapshot.from_ns, snapshot.to_ns);
            assert_eq!(
                ends,
                (
                    BEGIN + windows[0] * window_ns,
                    BEGIN + (last + 1) * window_ns
                )
            );
            is_true(
                &snapshot,
                &hosts(windows.iter().map(|window| &twin[window])),
            );
        }
    }
}

/// Packets among hosts, of which a few have most.
fn traffic(random: &mut Random, packets: usize) -> Vec<Packet> {
    let mut host = || {
        let many = [4, 40, 400][random.below(3)];
        random.below(many) as u32
    };
    let pairs: Vec<_> = (0..packets).map(|_| (host(), host())).collect();
    let packet = |(from, to)| Packet {
        from,
        to,
        bytes: 60 + random.below(1400) as u32,
    };
    pairs.into_iter().map(packet).collect()
}

#[test]
fn every_step_has_what_a_twin_that_keeps_all_packets_has() {
    let settings = Settings {
        rows: 12,
        kinds: 8,
        ..Settings::default()
    };
    for (seed, (sketch, by, memory, window_ns)) in [
        (Sketch::Exact, By::Packets, 64 << 10, SECOND),
        (Sketch::Heavy, By::Bytes, 4 << 10, SECOND),
        (Sketch::Majority, By::Packets, 4 << 10, SECOND),
        (Sketch::Heavy, By::Packets, 4 << 10, SECOND / 4),
    ]
    .into_iter()
    .enumerate()
    {
        let mut random = Random(seed as u64);
        let mut meter = Meter::new(window_ns, sketch, by, memory);
        let (mut view, mut twin) = (View::new(settings.clone()), Twin::new());
        for number in 0..260 {
            // Some windows have no packet, and some get more of them later.
            let many = random.below(3) * 60;
            let packets = traffic(&mut random, many);
            meter.window(&mut view, number, 0, &packets);
            twin.insert(number, packets);
            if random.below(8) == 0 {
                let late = number - random.below(100).min(number as usize) as i64;
                let packets = traffic(&mut random, 20);
                meter.window(&mut view, late, 1, &packets);
                twin.entry(late).or_default().extend(packets);
            }
        }
        compare(&view, &twin, window_ns);
    }
}

#[test]
fn a_day_is_kept_in_the_memory_of_the_formula_and_becomes_coarser_with_age() {
    let settings = Settings::default();
    let mut meter = Meter::new(10 * SECOND, Sketch::Heavy, By::Packets, 4 << 10);
    let mut view = View::new(settings.clone());
    let (mut random, mut most) = (Random(3), 0);
    // Windows of 10 s: the view has nothing finer then.
    for number in 0..6 * 60 * 25 {
        let packets = [0, 1].map(|_| Packet {
            from: random.next() as u32 >> 8,
            to: 7,
            bytes: 100,
        });
        meter.window(&mut view, number, 0, &packets);
        most = most.max(view.memory());
    }
    assert!(most <= View::most_memory(&settings), "{most}");
    assert!(most < 8 << 20, "{most}: few rows take little");
    // The formula of docs/reference/view.md.
    let Settings { rows, kinds, .. } = settings;
    let steps = 2760 * (500 + kinds * (300 + rows * View::ROW));
    assert!(View::most_memory(&settings) <= steps + kinds * 8_000_000 + 22_000_000);
    let points = |span| {
        let ask = Ask { span, ..ALL };
        view.snapshot(&ask).expect("windows").points
    };
    let day = points(Span::Minute);
    assert_eq!(day.len(), 1440);
    assert_eq!(day[1439].to_ns - day[0].from_ns, 24 * 3600 * SECOND);
    assert!(day.iter().all(|point| point.totals.measured.packets == 12));
    let hours = points(Span::TenSeconds);
    assert_eq!(
        (hours.len(), hours[719].to_ns - hours[0].from_ns),
        (720, 7200 * SECOND)
    );
    assert_eq!(points(Span::Second).len(), 600);
    let snapshot = view.snapshot(&ALL).expect("windows");
    assert!(snapshot.tables[0].forgotten > 0, "18 000 hosts were seen");
}

/// Memory with tables that are full of keys all the time, and numbers of any length.
#[test]
fn full_tables_take_no_more_than_the_formula() {
    let settings = Settings {
        rows: 50,
        kinds: 2,
        ..Settings::default()
    };
    let mut meter = Meter::new(SECOND, Sketch::Exact, By::Bytes, 64 << 10);
    let mut view = View::new(settings.clone());
    let mut random = Random(5);
    for number in 0..900 {
        let packets: Vec<Packet> = (0..60)
            .map(|_| Packet {
                from: random.next() as u32,
                to: random.next() as u32,
                bytes: random.next() as u32 >> random.below(32),
            })
            .collect();
        meter.window(&mut view, number, 0, &packets);
    }
    let (memory, most) = (view.memory(), View::most_memory(&settings));
    assert!(memory <= most, "{memory} of {most}");
}

#[test]
fn rows_have_first_and_last_times_peaks_changes_and_a_history() {
    let mut meter = Meter::new(SECOND, Sketch::Exact, By::Bytes, 64 << 10);
    let mut view = View::new(Settings::default());
    let packet = |from, to, bytes| Packet { from, to, bytes };
    let windows = [
        vec![packet(1, 2, 100), packet(3, 2, 50)],
        vec![packet(1, 2, 1000), packet(2, 1, 500)],
        vec![],
        vec![packet(1, 2, 300), packet(4, 2, 60)],
    ];
    for (number, packets) in windows.iter().enumerate() {
        meter.window(&mut view, number as i64, 0, packets);
    }
    let ask = Ask {
        at: Some(BEGIN + SECOND),
        history: 3,
        ..ALL
    };
    let second = view.snapshot(&ask).expect("kept");
    let row = |snapshot: &Snapshot, number| {
        let mut rows = snapshot.tables[0].rows.iter();
        rows.find(|row| row.listed.key == host(number))
            .cloned()
            .expect("listed")
    };
    let one = row(&second, 1);
    let sides = one.listed.sides.expect("both directions");
    assert_eq!((sides.tx.bytes, sides.rx.bytes), (1000, 500));
    let past: Vec<_> = one
        .history
        .iter()
        .map(|counts| counts.map(|counts| counts.bytes))
        .collect();
    assert_eq!(past, [Some(100), Some(1500)]);
    let seen = one.seen.expect("seen");
    assert_eq!((seen.first_ns, seen.last_ns), (BEGIN, BEGIN + 4 * SECOND));
    assert_eq!(
        (seen.peak_bits_per_s, seen.peak_ns),
        (12_000, BEGIN + SECOND)
    );
    let words = |snapshot: &Snapshot| -> Vec<_> {
        let changes = snapshot.tables[0].changes.iter().flatten();
        let number = |key: &FlowKey| u32::from(key.src[3]);
        changes
            .map(|change| (number(&change.key), change.status().word(), change.delta()))
            .collect()
    };
    assert_eq!(
        words(&second),
        [(1, "grown", 1400), (2, "grown", 1350), (3, "gone", -50)]
    );
    assert!(!second.is_last);
    let last = view.snapshot(&ALL).expect("windows");
    assert!(last.is_last);
    assert_eq!(
        words(&last),
        [(2, "new", 360), (1, "new", 300), (4, "new", 60)]
    );
    let ten = view
        .snapshot(&Ask {
            span: Span::TenSeconds,
            ..ALL
        })
        .expect("windows");
    assert_eq!(row(&ten, 1).listed.peak_bits_per_s, 12_000);
    assert_eq!(ten.totals.covered_ns, 4 * SECOND as u64);
    assert_eq!(ten.tables[0].changes, None);
}

/// Times back and forth, at the ends of the range, and the same again.
#[test]
fn no_clock_does_harm() {
    let settings = Settings {
        rows: 5,
        kinds: 2,
        ..Settings::default()
    };
    for seed in 0..12 {
        let mut random = Random(seed);
        let mut meter = Meter::new(SECOND, Sketch::Heavy, By::Packets, 4 << 10);
        let mut view = View::new(settings.clone());
        let (mut number, mut packets) = (0_i64, 0);
        for _ in 0..400 {
            number = match random.below(12) {
                0 => number.saturating_sub(random.below(100) as i64),
                1 => number.saturating_add(random.below(100_000) as i64),
                2 => [i64::MIN, i64::MAX, -BEGIN / SECOND, 0][random.below(4)],
                3 => number,
                _ => number.saturating_add(1),
            };
            let revision = u32::from(random.below(6) == 0);
            let some = traffic(&mut random, 10);
            packets += some.len() as u64;
            meter.window(&mut view, number, revision, &some);
            let last = view.snapshot(&ALL).expect("windows");
            adds_up(&last);
            assert!(view.memory() <= View::most_memory(&settings));
        }
        for span in Span::ALL {
            let ask = Ask { span, ..ALL };
            let last = view.snapshot(&ask).expect("windows");
            // The last window is not always the latest.
            let latest = view
                .snapshot(&Ask {
                    at: Some(i64::MAX),
                    ..ask
                })
                .expect("windows");
            let sum: u64 = latest
                .points
                .iter()
                .map(|point| point.totals.measured.packets)
                .sum();
            assert_eq!(sum + latest.untimed.packets, packets, "{seed} {span:?}");
            for point in &latest.points {
                let at = Some(point.from_ns);
                adds_up(&view.snapshot(&Ask { at, ..ask }).expect("kept"));
            }
            assert_eq!(last.windows + last.untimed.packets / 10, 400);
        }
    }
}
