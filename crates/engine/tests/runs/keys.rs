//! Replacement of a measurement's keys during the run, against counts of the made packets.

use crate::running::{Collect, Feed, LONG, captures, end, files, gate, setup, wait_for};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use weir_engine::control::{ChangeError, Snapshot};
use weir_engine::event::Event;
use weir_engine::handle::Handle;
use weir_engine::run::{Run, Setup};
use weir_engine::session::{Order, Session};
use weir_engine::sink::Wanted;
use weir_measure::{Config, KeyKind, Prefix, Setting, SharedTables, Sketch, State, Windowing};
use weir_pipeline::measuring::{Design, Settings};
use weir_testkit::savefile::Pcap;
use weir_testkit::{Scratch, wait};

const PACKETS: u32 = 60_000;

/// Number of packets of each key.
type Table = BTreeMap<u32, u64>;

fn source(number: u32) -> u32 {
    number % 7
}

fn port(number: u32) -> u32 {
    1000 + number % 11
}

/// Returns a datagram whose source and source port follow from its number.
fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 100];
    frame[12..18].copy_from_slice(&[8, 0, 0x45, 0, 0, 86]);
    frame[22..24].copy_from_slice(&[64, 17]);
    frame[26..34].copy_from_slice(&[10, 0, 0, source(number) as u8, 10, 1, 1, 1]);
    frame[34..36].copy_from_slice(&(port(number) as u16).to_be_bytes());
    frame[36..40].copy_from_slice(&[0, 53, 0, 66]);
    frame
}

fn counts(numbers: impl Iterator<Item = u32>, key: fn(u32) -> u32) -> Table {
    let mut table = Table::new();
    numbers.for_each(|number| *table.entry(key(number)).or_default() += 1);
    table
}

/// Returns the counts by source address or by source port.
fn table(state: Option<&State>) -> Table {
    let rows = state.map_or_else(Vec::new, |state| state.table(0, usize::MAX).rows);
    let key = |key: &weir_packet::flow::FlowKey| match key.sport {
        0 => key.src.iter().map(|&byte| u32::from(byte)).sum::<u32>() - 10,
        port => port.into(),
    };
    rows.iter()
        .map(|row| (key(&row.key), row.counts.packets))
        .collect()
}

/// Windows as given out: beginning, change that ended the window early, and contents.
type Heard = Arc<Mutex<Vec<(Option<i64>, Option<u64>, Table)>>>;

fn start(setup: Setup, sources: Session) -> (Handle, Heard) {
    let told = Heard::default();
    let hears = Arc::clone(&told);
    let hear = move |event: Event<'_>| {
        if let Event::Window(window) = event {
            let from = window.span.map(|(from, _)| from);
            hears
                .lock()
                .unwrap()
                .push((from, window.change, table(window.state)));
        }
    };
    (Handle::start(Run::new(setup), sources, hear).unwrap(), told)
}

fn measure(design: Design, workers: usize, window_ns: Option<i64>, shared: bool) -> Settings {
    let config = Config {
        keys: vec![KeyKind::SRC],
        sketch: Sketch::Exact,
        memory: 1 << 20,
        windowing: Windowing {
            window_ns,
            late_ns: 0,
        },
        shared: shared.then(SharedTables::default),
        ..Config::default()
    };
    Settings {
        config: Arc::new(config),
        design,
        workers,
        ..Settings::default()
    }
}

/// Returns the sum of the counts before the change, and the sums of the windows before and behind it.
fn parts(told: &Heard) -> (Table, Table, Table) {
    let told = told.lock().unwrap();
    let sums: Vec<usize> = (0..told.len()).filter(|&i| told[i].0.is_none()).collect();
    let [at] = sums[..] else {
        panic!("one sum: {told:?}")
    };
    assert_eq!(told[at].1, Some(1));
    assert!(told[at..].iter().skip(1).all(|window| window.1.is_none()));
    let add = |windows: &[(Option<i64>, Option<u64>, Table)]| {
        let mut sum = Table::new();
        windows
            .iter()
            .flat_map(|window| &window.2)
            .for_each(|(&key, packets)| *sum.entry(key).or_default() += packets);
        sum
    };
    (told[at].2.clone(), add(&told[..at]), add(&told[at + 1..]))
}

#[test]
fn batches_up_to_the_change_are_counted_by_the_old_keys_and_all_others_by_the_new_ones() {
    let scratch = Scratch::new();
    let mut pcap = Pcap::new(1, 65535);
    (0..PACKETS).for_each(|number| pcap.packet(&frame(number)));
    // The last packet is late: its window is complete long before the change.
    let late = frame(PACKETS);
    pcap.header(1_700_000_000, 0, late.len() as u32, late.len() as u32);
    pcap.bytes.extend(&late);
    let all = PACKETS + 1;
    let file = scratch.file("a.pcap", &pcap.bytes);
    let designs = [
        (Design::Rss, 1, false),
        (Design::Rss, 3, false),
        (Design::Rss, 3, true),
        (Design::Async, 2, false),
        (Design::Async, 2, true),
        (Design::Sync, 2, false),
    ];
    for (design, workers, shared) in designs {
        for window_ns in [None, Some(7_000_000_000)] {
            let case = format!("{design:?}, {workers} workers, shared: {shared}, {window_ns:?}");
            let ((name, sink), _) = Collect::target(Wanted::Matching);
            let (sink, reached, lets_go_on, sizes) = gate(sink.unwrap());
            let measure = Some(measure(design, workers, window_ns, shared));
            let setup = Setup {
                main: (name, Some(sink)),
                measure,
                ..setup("", None)
            };
            let (mut handle, told) = start(setup, files(&[&file], Order::OneByOne));
            reached.recv_timeout(LONG).unwrap();
            let control = Arc::clone(handle.control());
            let changing = std::thread::spawn(move || {
                control.set_counting(Setting::Keys(vec![KeyKind::Sport]), LONG)
            });
            wait_for(handle.control(), 1);
            let earlier = handle
                .control()
                .set_counting(Setting::Keys(vec![KeyKind::Dport]), LONG);
            assert!(matches!(earlier, Err(ChangeError::Earlier)), "{earlier:?}");
            drop(lets_go_on);
            assert_eq!(changing.join().unwrap().unwrap(), 1);
            let ended = end(&mut handle);
            let measured = ended.measured.unwrap();
            // The batch under way is the last of the old keys.
            let first = sizes.lock().unwrap()[0] as u32;
            assert!(first > 0 && first < PACKETS);
            let (before, after) = (counts(0..first, source), counts(first..all, port));
            let (sum, windows_before, windows_after) = parts(&told);
            assert_eq!(
                (&sum, &table(measured.state.as_ref())),
                (&before, &after),
                "{case}"
            );
            assert_eq!(
                (measured.processed, measured.counted_before),
                (all.into(), first.into()),
                "{case}"
            );
            let further = u64::from(window_ns.is_some());
            assert_eq!(
                (measured.further.results, measured.further.packets),
                (further, further),
                "{case}"
            );
            if window_ns.is_some() {
                assert_eq!((windows_before, windows_after), (before, after), "{case}");
                let told = told.lock().unwrap();
                let early: Vec<_> = told
                    .iter()
                    .filter(|window| window.0.is_some() && window.1.is_some())
                    .collect();
                let [early] = early[..] else {
                    panic!("{case}: {early:?}")
                };
                // Later packets of that window are in a further result of it.
                assert_eq!(
                    told.iter().filter(|window| window.0 == early.0).count(),
                    2,
                    "{case}"
                );
            }
        }
    }
}

/// Returns packets with these numbers, stamped with the time of day.
fn packets(numbers: std::ops::Range<u32>) -> Feed {
    let now = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap()
        .as_nanos() as i64;
    numbers
        .map(|number| (now + i64::from(number), frame(number)))
        .collect()
}

#[test]
fn workers_of_captures_that_wait_for_packets_begin_with_other_keys() {
    for (interfaces, design, window_ns) in [
        (1, Design::Auto, None),
        (2, Design::Auto, None),
        (2, Design::Auto, Some(50_000_000)),
        (1, Design::Async, None),
        (1, Design::Async, Some(50_000_000)),
    ] {
        let setup = Setup {
            measure: Some(measure(design, 2, window_ns, false)),
            ..setup("", None)
        };
        let (inputs, feeds) = captures(interfaces, &setup.stop);
        let (mut handle, told) = start(setup, Session::from(inputs));
        let control = Arc::clone(handle.control());
        // The last interface never has a packet.
        feeds[0].send(packets(0..500)).unwrap();
        let delivered = |snapshot: Snapshot| {
            snapshot
                .captures
                .iter()
                .map(|(_, counts)| counts.handed_over)
                .sum()
        };
        let wait = |packets: u64| {
            wait::until(format_args!("{packets} packets"), || {
                control.snapshot(LONG).map(delivered) == Some(packets)
            });
        };
        wait(500);
        assert_eq!(
            control
                .set_counting(Setting::Keys(vec![KeyKind::Sport]), LONG)
                .unwrap(),
            1
        );
        // The call returned once the sum was given out.
        assert_eq!(
            parts(&told).0,
            counts(0..500, source),
            "{interfaces}, {design:?}"
        );
        feeds[0].send(packets(500..800)).unwrap();
        wait(800);
        control.stop();
        let ended = end(&mut handle);
        let measured = ended.measured.unwrap();
        let (before, after) = (counts(0..500, source), counts(500..800, port));
        let (sum, windows_before, windows_after) = parts(&told);
        assert_eq!(
            (&sum, &table(measured.state.as_ref())),
            (&before, &after),
            "{interfaces}, {design:?}"
        );
        assert_eq!(measured.processed, 800);
        let (late, further) = (measured.arrivals.late, measured.further.results);
        assert_eq!((late, further), (0, 0), "{interfaces}, {design:?}");
        if window_ns.is_some() {
            assert_eq!(
                (windows_before, windows_after),
                (before, after),
                "{interfaces}, {design:?}"
            );
        }
        let over = control.set_counting(Setting::Keys(vec![KeyKind::SRC]), Duration::MAX);
        assert!(matches!(over, Err(ChangeError::Over)), "{over:?}");
    }
}

#[test]
fn keys_are_refused_where_nothing_is_measured_and_in_a_run_that_ends_first() {
    let run = Run::new(setup("", None));
    let refused = run
        .control()
        .set_counting(Setting::Keys(vec![KeyKind::SRC]), LONG);
    assert!(
        matches!(refused, Err(ChangeError::NoMeasurement)),
        "{refused:?}"
    );
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &Pcap::new(1, 65535).bytes);
    let run = Run::new(Setup {
        measure: Some(measure(Design::Auto, 1, None, false)),
        ..setup("", None)
    });
    let control = Arc::clone(run.control());
    let waits = std::thread::spawn(move || {
        control.set_counting(Setting::Keys(vec![KeyKind::SRC]), Duration::MAX)
    });
    wait_for(run.control(), 1);
    let mut handle = Handle::start(run, files(&[&file], Order::OneByOne), |_| {}).unwrap();
    end(&mut handle);
    let over = waits.join().unwrap();
    assert!(matches!(over, Err(ChangeError::Over)), "{over:?}");
}

#[test]
fn keys_whose_tables_cannot_be_had_change_nothing() {
    /// Variable set in the process with limited memory, which has room for a few tables of 256 MiB. Hardly any of it is touched.
    const LIMITED: &str = "WEIR_TEST_MEMORY_IS_LIMITED";
    if std::env::var_os(LIMITED).is_none() {
        let done = Command::new("sh")
            .args(["-c", "ulimit -v 1500000 && exec \"$0\" --exact keys::keys_whose_tables_cannot_be_had_change_nothing"])
            .arg(std::env::current_exe().unwrap())
            .env(LIMITED, "1")
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let scratch = Scratch::new();
    let mut pcap = Pcap::new(1, 65535);
    (0..PACKETS).for_each(|number| pcap.packet(&frame(number)));
    let file = scratch.file("a.pcap", &pcap.bytes);
    let ((name, sink), _) = Collect::target(Wanted::Matching);
    let (sink, reached, lets_go_on, _) = gate(sink.unwrap());
    let mut measure = measure(Design::Rss, 1, None, false);
    let config = measure.config.with(Setting::Memory(256 << 20));
    measure.config = Arc::new(config.expect("any memory goes with packets"));
    let setup = Setup {
        main: (name, Some(sink)),
        measure: Some(measure),
        ..setup("", None)
    };
    let (mut handle, told) = start(setup, files(&[&file], Order::OneByOne));
    reached.recv_timeout(LONG).unwrap();
    // Of related keys, some would share a table.
    let prefixes = [8, 16, 24].map(Prefix::of);
    let keys = prefixes.map(|prefix| [KeyKind::Src(prefix), KeyKind::Dst(prefix)]);
    let refused = handle
        .control()
        .set_counting(Setting::Keys(keys.concat()), LONG);
    assert!(
        matches!(refused, Err(ChangeError::Tables(_))),
        "{refused:?}"
    );
    assert_eq!(handle.control().change(), 0);
    drop(lets_go_on);
    let measured = end(&mut handle).measured.unwrap();
    assert_eq!(table(measured.state.as_ref()), counts(0..PACKETS, source));
    assert!(told.lock().unwrap().is_empty());
}
