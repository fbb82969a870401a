//! Runs in threads of their own: batches, events and changes of a front end, against the made packets.

use crate::running::{
    Collect, LONG, PACKETS, WAITS, captures, end, files, frame, pcap, pulled, setup,
};
use std::fs::File;
use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use weir_engine::batches::{Batch, Batches, Next};
use weir_engine::control::{ChangeError, Control};
use weir_engine::event::Event;
use weir_engine::handle::{Handle, JoinError};
use weir_engine::run::{Driver, Ended, Error, Run, Setup};
use weir_engine::session::Order;
use weir_engine::sink::{End, Sink, SinkReport, Wanted};
use weir_packet::savefile::{Layout, Record};
use weir_pipeline::measuring::Settings;
use weir_pipeline::steps::SystemClock;
use weir_testkit::{Scratch, have, wait};

/// Returns the numbers of the packets that passed.
fn numbers(batch: &Batch) -> Vec<u32> {
    let numbers: Vec<u32> = batch
        .packets()
        .map(|record| {
            let data = record.frame.data;
            let number = u32::from_be_bytes(data[296..].try_into().unwrap());
            assert_eq!(data, frame(number));
            number
        })
        .collect();
    assert_eq!(numbers.len() as u64, batch.judged().0);
    numbers
}

/// Returns the numbers of the packets in all batches that are left.
fn all(batches: &Batches) -> Vec<u32> {
    let mut found = Vec::new();
    loop {
        match batches.next(LONG) {
            Next::Batch(batch) => found.extend(numbers(&batch)),
            Next::End => return found,
            Next::Nothing => panic!("the run is stuck"),
        }
    }
}

#[test]
fn batches_hold_what_passed_in_order_and_come_back_in_any_order() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..PACKETS));
    let (mut handle, batches) = pulled(&[&file], Order::OneByOne, "udp port 53", 3);
    let (mut found, mut held) = (Vec::new(), Vec::new());
    loop {
        match batches.next(Duration::from_millis(300)) {
            Next::Batch(batch) => {
                found.extend(numbers(&batch));
                assert_eq!(batch.change(), 0);
                held.push(batch);
            }
            // As many batches as may be out are held, so the run waits.
            Next::Nothing => {
                assert_eq!((held.len(), batches.outstanding()), (3, (0, 3)));
                let middle = held.remove(1);
                std::thread::spawn(move || drop(middle)).join().unwrap();
                held.pop();
            }
            Next::End => break,
        }
    }
    assert!(found.iter().copied().eq((0..PACKETS).step_by(2)));
    assert!(batches.full() > 2);
    let ended = end(&mut handle);
    assert_eq!(
        (ended.ledger.received, ended.ledger.passed),
        (PACKETS.into(), u64::from(PACKETS / 2))
    );
    // The batches outlive the run.
    assert!(!held.is_empty() && held.iter().all(|batch| !numbers(batch).is_empty()));
}

#[test]
fn files_that_are_merged_are_pulled_by_time() {
    let scratch = Scratch::new();
    // The stamp of each packet follows from its place in its file.
    let one = scratch.file("one.pcap", &pcap(0..1000));
    let other = scratch.file("other.pcap", &pcap(1000..2000));
    let (mut handle, batches) = pulled(&[&one, &other], Order::Merged, "", 8);
    let expected: Vec<u32> = (0..1000)
        .flat_map(|number| [number, 1000 + number])
        .collect();
    assert_eq!(all(&batches), expected);
    assert_eq!(end(&mut handle).ledger.passed, 2000);
}

#[test]
fn the_descriptor_is_readable_while_a_batch_waits_and_at_the_end() {
    let test = "the_descriptor_is_readable_while_a_batch_waits_and_at_the_end";
    if !have(test, &["python3"]) {
        return;
    }
    let scratch = Scratch::new();
    let path = scratch.at("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let (mut handle, batches) = pulled(&[&path], Order::OneByOne, "", 8);
    let mut pipe = File::options().write(true).open(&path).unwrap();
    let readable = |batches: &Batches, within: &str| {
        let stdin = Stdio::from(batches.poll_fd().unwrap().try_clone_to_owned().unwrap());
        let look = format!("import select; print(len(select.select([0], [], [], {within})[0]))");
        let done = Command::new("python3")
            .args(["-c", &look])
            .stdin(stdin)
            .output()
            .unwrap();
        done.stdout == b"1\n"
    };
    assert!(!readable(&batches, "0"));
    pipe.write_all(&pcap(0..10)).unwrap();
    assert!(readable(&batches, "60"));
    let Next::Batch(batch) = batches.next(LONG) else {
        panic!("it was readable")
    };
    let mut found = numbers(&batch);
    assert!(
        !readable(&batches, "0") || matches!(batches.next(LONG), Next::Batch(_)),
        "no batch waits"
    );
    drop(pipe);
    assert!(readable(&batches, "60"));
    found.extend(all(&batches));
    assert_eq!(found.len(), 10);
    assert!(readable(&batches, "60"), "the end stays");
    end(&mut handle);
}

#[test]
fn a_run_ends_when_nobody_takes_batches_any_more() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..PACKETS));
    let (mut handle, batches) = pulled(&[&file], Order::OneByOne, "", 2);
    let Next::Batch(batch) = batches.next(Duration::MAX) else {
        panic!("there are packets")
    };
    // One batch waits, and the next one finds no room.
    wait::until("a batch without room", || batches.full() > 0);
    assert_eq!(batches.outstanding(), (1, 1));
    drop(batches);
    let Ended { ledger, .. } = end(&mut handle);
    assert!(ledger.received < PACKETS.into(), "{ledger:?}");
    // Packets that were never taken do not count as passed.
    assert_eq!(
        (ledger.passed, ledger.dropped.output > 0),
        (numbers(&batch).len() as u64, true)
    );
}

#[test]
fn a_run_that_is_stopped_while_all_batches_are_out_accounts_for_the_rest() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..PACKETS));
    let (mut handle, batches) = pulled(&[&file], Order::OneByOne, "udp port 80", 1);
    let Next::Batch(held) = batches.next(LONG) else {
        panic!("there are packets")
    };
    wait::until("a batch without room", || batches.full() > 0);
    handle.control().stop();
    let ended = end(&mut handle);
    let dropped = ended.ledger.dropped.output;
    assert!(dropped > 0, "{:?}", ended.ledger);
    assert_eq!(ended.ledger.passed, numbers(&held).len() as u64);
}

#[test]
fn a_filter_is_replaced_between_two_batches_that_are_pulled() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..PACKETS));
    let (mut handle, batches) = pulled(&[&file], Order::OneByOne, "udp port 53", 1);
    let Next::Batch(first) = batches.next(LONG) else {
        panic!("there are packets")
    };
    // The next batch is judged, and waits for room.
    wait::until("a batch without room", || batches.full() > 0);
    assert_eq!(handle.control().set_filter("udp port 80", LONG).unwrap(), 1);
    assert!(matches!(
        handle.control().set_filter("udp porrt 80", LONG),
        Err(ChangeError::Refused(_))
    ));
    assert_eq!(handle.control().change(), 1);
    drop(first);
    let (mut changes, mut at) = (Vec::new(), 0);
    loop {
        match batches.next(LONG) {
            Next::Batch(batch) => {
                let change = batch.change();
                changes.push(change);
                let found = numbers(&batch);
                assert!(
                    found
                        .iter()
                        .all(|number| u64::from(number % 2) == change && *number >= at),
                    "{change}"
                );
                at = found.last().map_or(at, |last| last + 1);
            }
            Next::End => break,
            Next::Nothing => panic!("the run is stuck"),
        }
    }
    assert!(
        changes.len() > 5 && changes[0] == 0 && changes[1..].iter().all(|&change| change == 1),
        "{changes:?}"
    );
    let ended = end(&mut handle);
    assert_eq!(ended.ledger.received, u64::from(PACKETS));
}

#[test]
fn snapshots_add_up_while_the_run_goes_on() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..PACKETS));
    let (mut handle, batches) = pulled(&[&file], Order::OneByOne, "udp port 53", 2);
    let control = Arc::clone(handle.control());
    // The run has no room for a third batch, and answers while it waits.
    let asked = |control: &Control| control.snapshot(LONG).expect("the run goes on");
    wait::until("a run without room", || asked(&control).in_flight == 2);
    for _ in 0..3 {
        assert_eq!(asked(&control).ledger.check(), Ok(()));
    }
    let answers = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&answers);
    let asking = std::thread::spawn(move || {
        let mut last = 0;
        while let Some(snapshot) = control.snapshot(Duration::from_secs(1)) {
            assert_eq!(snapshot.ledger.check(), Ok(()));
            assert!(snapshot.ledger.received >= last && snapshot.ledger.received <= PACKETS.into());
            last = snapshot.ledger.received;
            counted.fetch_add(1, Ordering::Relaxed);
        }
        last
    });
    // The run waits for room, and is asked meanwhile.
    for asked in 1..=4 {
        let next = batches.next(LONG);
        wait::until("a snapshot", || answers.load(Ordering::Relaxed) >= asked);
        assert!(matches!(next, Next::Batch(_)));
    }
    while let Next::Batch(_) = batches.next(LONG) {}
    let last = asking.join().unwrap();
    assert!(last > 0, "{last}");
    end(&mut handle);
}

#[test]
fn a_run_that_waits_is_named_and_ends_when_it_is_stopped() {
    let scratch = Scratch::new();
    let path = scratch.at("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let mut run = setup("", None);
    run.measure = Some(Settings {
        workers: 2,
        ..Settings::default()
    });
    let mut handle =
        Handle::start(Run::new(run), files(&[&path], Order::OneByOne), |_| {}).unwrap();
    let mut pipe = File::options().write(true).open(&path).unwrap();
    pipe.write_all(&pcap(0..10)).unwrap();
    wait::until("three threads", || handle.threads().len() == 3);
    let stuck = handle.join(Duration::from_millis(50)).unwrap_err();
    assert_eq!(
        stuck.to_string(),
        "these threads have not ended: run 0, worker 0, worker 1"
    );
    handle.control().stop();
    let ended = end(&mut handle);
    assert_eq!((ended.ledger.received, ended.ledger.passed), (10, 10));
    // The thread sends the result just before its end.
    wait::until("the end of the thread", || handle.threads().is_empty());
    assert!(matches!(handle.join(Duration::MAX), Err(JoinError::Taken)));
}

#[test]
fn two_runs_in_one_process_do_not_know_of_each_other() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..PACKETS));
    let run = |expression: &str| {
        Handle::start(
            Run::new(setup(expression, None)),
            files(&[&file], Order::OneByOne),
            |_| {},
        )
    };
    let stopped = setup("", None);
    stopped.stop.store(true, Ordering::Relaxed);
    let mut handles = [
        run("udp port 53").unwrap(),
        run("udp port 80 and greater 200").unwrap(),
    ];
    let mut third =
        Handle::start(Run::new(stopped), files(&[&file], Order::OneByOne), |_| {}).unwrap();
    for handle in &mut handles {
        assert_eq!(end(handle).ledger.passed, u64::from(PACKETS / 2));
    }
    assert!(end(&mut third).ledger.received < PACKETS.into());
}

#[test]
fn a_run_that_waits_for_the_writer_of_a_fifo_can_be_stopped() {
    if !have(
        "a_run_that_waits_for_the_writer_of_a_fifo_can_be_stopped",
        &["mkfifo"],
    ) {
        return;
    }
    let scratch = Scratch::new();
    let fifo = scratch.at("fifo");
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let (mut handle, batches) = pulled(&[&fifo], Order::OneByOne, "", 2);
    assert!(matches!(
        batches.next(Duration::from_millis(200)),
        Next::Nothing
    ));
    handle.control().stop();
    assert!(matches!(batches.next(LONG), Next::End));
    assert_eq!(end(&mut handle).ledger.received, 0);
    // The run waits for a late writer.
    let (mut handle, batches) = pulled(&[&fifo], Order::OneByOne, "", 2);
    assert!(matches!(
        batches.next(Duration::from_millis(200)),
        Next::Nothing
    ));
    std::fs::write(&fifo, pcap(0..10)).unwrap();
    assert!(all(&batches).into_iter().eq(0..10));
    assert_eq!(end(&mut handle).ledger.received, 10);
}

/// A sink that panics at its first packet.
struct Panics;

impl Sink for Panics {
    fn packet(&mut self, _: &Layout, _: &Record<'_>) -> Result<(), End> {
        panic!("a mistake in a sink, planted");
    }

    fn flush(&mut self) -> Result<(), End> {
        Ok(())
    }

    fn finish(&mut self, _: Option<&Layout>, _: bool) -> Result<(), End> {
        Ok(())
    }

    fn report(&self) -> SinkReport {
        SinkReport::default()
    }
}

#[test]
fn a_stage_that_panics_ends_the_run_with_an_error_that_names_it() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &pcap(0..10));
    let sink = || {
        (
            "planted".to_owned(),
            Some(Box::new(Panics) as Box<dyn Sink>),
        )
    };
    let stage_of = |setup: Setup, on: fn(Event<'_>)| {
        let run = Run::new(setup);
        let mut handle = Handle::start(run, files(&[&file], Order::OneByOne), on).unwrap();
        let Ok(Err(Error::Panic { stage })) = handle.join(LONG) else {
            panic!("the run ended otherwise")
        };
        stage
    };
    let main = Setup {
        main: sink(),
        ..setup("", None)
    };
    assert_eq!(stage_of(main, |_| {}), "main output");
    let mut split = Setup {
        splits: vec![sink()],
        ..setup("", None)
    };
    split.selection.splits = vec!["udp port 53".to_owned()];
    assert_eq!(stage_of(split, |_| {}), "output of split 1");
    let hears = |event: Event<'_>| {
        if let Event::Closed(_) = event {
            panic!("a mistake in a front end, planted");
        }
    };
    assert_eq!(
        stage_of(setup("", None), hears),
        "function that hears events"
    );
}

/// One capture, and two by time: the run works only while the caller steps it, and never waits.
#[test]
fn a_caller_steps_captures_in_its_own_thread() {
    let system = SystemClock::default();
    for interfaces in [1, 2] {
        let (main, got) = Collect::target(Wanted::Matching);
        let setup = Setup {
            main,
            driver: Driver::OneThread(Arc::new(system)),
            ..setup("udp port 53", None)
        };
        let stop = Arc::clone(&setup.stop);
        let (inputs, feeds) = captures(interfaces, &stop);
        let mut run = Run::new(setup);
        assert!(run.begin_capture(&inputs, &mut |_| {}).unwrap());
        let mut lane = run.begin_lane(inputs).unwrap();
        let rest = run.step(&mut lane, &mut |_| {}).expect("it goes on");
        assert!(!rest.is_zero() && WAITS.get() == 0, "a step never waits");
        for number in 0..10 {
            let packet = (i64::from(number), frame(number));
            feeds[number as usize % interfaces]
                .send(vec![packet])
                .unwrap();
        }
        assert!(got.lock().unwrap().is_empty(), "nobody stepped");
        drop(feeds);
        stop.store(true, Ordering::Relaxed);
        while let Some(rest) = run.step(&mut lane, &mut |_| {}) {
            lane.wait(rest);
        }
        WAITS.set(0);
        run.end_lane(lane, &mut |_| {}).unwrap();
        let (ended, _) = run.finish(&mut |_| {});
        assert_eq!((ended.imbalance, ended.ledger.received), (None, 10));
        let of_53 = (0..10).filter(|number| number % 2 == 0).map(frame);
        let found = got.lock().unwrap();
        assert!(found.iter().map(|(packet, _)| packet.2.clone()).eq(of_53));
    }
}
