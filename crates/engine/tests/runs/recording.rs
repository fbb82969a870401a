//! The sink of a recording in runs that hand on packet by packet: readers of the ring against the packets fed so far.

use crate::running::{captures, end, files, frame, pcap, setup};
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::sync::mpsc::channel;
use std::time::Duration;
use weir_engine::handle::Handle;
use weir_engine::record::trigger::{Condition, NotAsked, NotFired, Saved, Trigger};
use weir_engine::record::{RecordSink, Recording, Settings};
use weir_engine::run::{Run, Setup};
use weir_engine::session::{Order, Session};
use weir_engine::sink::Sink;
use weir_packet::savefile::{Interface, Layout, Record, Resolution};
use weir_packet::{Frame, LinkType};
use weir_store::ring::{self, From};
use weir_testkit::{Scratch, have, wait};

/// A recording in RAM, whose threads do not begin.
fn recording(scratch: &Scratch) -> (Recording, RecordSink) {
    recording_with(scratch, Vec::new(), Box::new(|_| {}))
}

/// A recording in RAM with triggers, whose threads do not begin.
fn recording_with(
    scratch: &Scratch,
    triggers: Vec<Trigger>,
    on_saved: Box<dyn FnMut(&Saved) + Send>,
) -> (Recording, RecordSink) {
    let settings = Settings {
        directory: scratch.path().to_owned(),
        ring: ring::Settings {
            bytes: 2 << 20,
            ..ring::Settings::default()
        },
        age: None,
        cutoff: None,
        chosen: Default::default(),
        disk: None,
        on_disk: Box::new(|_| {}),
        triggers,
        waits: false,
        names: weir_filter::Names::NONE,
        inner: None,
        mode: 0o600,
        reserve: 0,
        rewrite: Default::default(),
        on_saved,
    };
    Recording::new(settings).unwrap()
}

/// A run whose packets go to a sink.
fn run_into(sink: RecordSink) -> Setup {
    Setup {
        main: ("record".to_owned(), Some(Box::new(sink))),
        ..setup("", None)
    }
}

/// Waits until readers see this number of packets, and not more.
fn wait_until_seen(recording: &Recording, packets: u64) {
    let history = recording.handle().history();
    wait::until(format_args!("{packets} packets"), || {
        history.next() >= packets
    });
    assert_eq!(history.next(), packets);
}

#[test]
fn packets_taken_one_by_one_are_seen_after_32_and_at_a_flush() {
    let scratch = Scratch::new();
    let (recording, mut sink) = recording(&scratch);
    let layout = Layout::spool(vec![Interface::plain(
        LinkType::ETHERNET,
        65_535,
        Resolution::NANOSECOND,
    )]);
    let long = vec![0; 1 << 19];
    let take = |sink: &mut RecordSink, data: &[u8]| {
        let frame = Frame {
            data,
            wire_len: data.len() as u32,
            interface: 0,
        };
        sink.packet(
            &layout,
            &Record {
                time_ns: Some(0),
                frame,
                options: Default::default(),
            },
        )
        .unwrap();
        recording.handle().history().next()
    };
    let seen: Vec<u64> = (0..70)
        .map(|number| take(&mut sink, &frame(number)))
        .collect();
    let expected: Vec<u64> = (1..=70).map(|taken| taken / 32 * 32).collect();
    assert_eq!(seen, expected);
    sink.flush().unwrap();
    assert_eq!(recording.handle().history().next(), 70);
    assert_eq!(take(&mut sink, &frame(70)), 70);
    // A frame that no record holds is counted at the end too.
    assert_eq!(take(&mut sink, &long), 70);
    sink.finish(None, false).unwrap();
    let status = recording.handle().status();
    assert_eq!((status.taken, status.dropped()), (71, 1));
}

/// Each packet is seen before the next one comes, so readers never wait for a further packet.
#[test]
fn a_packet_of_several_captures_is_seen_while_no_other_one_comes() {
    let scratch = Scratch::new();
    let (recording, sink) = recording(&scratch);
    let setup = run_into(sink);
    let (inputs, feeds) = captures(2, &setup.stop);
    let mut handle = Handle::start(Run::new(setup), Session::from(inputs), |_| {}).unwrap();
    for number in 0..50 {
        feeds[number as usize % 2]
            .send(vec![(1_000_000_000 + i64::from(number), frame(number))])
            .unwrap();
        wait_until_seen(&recording, u64::from(number) + 1);
    }
    handle.control().stop();
    assert_eq!(end(&mut handle).ledger.passed, 50);
}

#[test]
fn a_packet_of_merged_files_is_seen_while_the_writer_of_a_pipe_rests() {
    if !have(
        "a_packet_of_merged_files_is_seen_while_the_writer_of_a_pipe_rests",
        &["mkfifo"],
    ) {
        return;
    }
    let scratch = Scratch::new();
    let (recording, sink) = recording(&scratch);
    let (fifo, file) = (scratch.at("fifo"), scratch.file("a.pcap", &pcap(10..20)));
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let sources = files(&[&fifo, &file], Order::Merged);
    let mut handle = Handle::start(Run::new(run_into(sink)), sources, |_| {}).unwrap();
    let mut pipe = File::options().write(true).open(&fifo).unwrap();
    let bytes = pcap(0..10);
    let first = bytes.len() - 9 * (16 + frame(0).len());
    pipe.write_all(&bytes[..first]).unwrap();
    // The first packets of both files have the same time, and that of the pipe goes first.
    wait_until_seen(&recording, 1);
    pipe.write_all(&bytes[first..]).unwrap();
    drop(pipe);
    assert_eq!(end(&mut handle).ledger.passed, 20);
    assert_eq!(recording.handle().history().next(), 20);
}

/// Readers that keep as many chunks as may be kept let nobody else read: a file says what it lacks, never that nothing was lost.
#[test]
fn a_file_that_cannot_read_its_span_says_so() {
    let scratch = Scratch::new();
    let (told, saved) = channel();
    let trigger = |name: &str, max_files| {
        let (name, condition) = (name.to_owned(), Condition::Asked);
        Trigger {
            name,
            condition,
            after: Duration::ZERO,
            max_files,
            ..Trigger::default()
        }
    };
    let on_saved = Box::new(move |saved: &Saved| {
        let _ = told.send((
            saved.packets,
            saved.missed,
            saved.path.clone(),
            saved.remarks.join("; "),
        ));
    });
    let (recording, mut sink) = recording_with(
        &scratch,
        vec![trigger("t", 1), trigger("none", 0)],
        on_saved,
    );
    let handle = recording.handle().clone();
    let layout = Layout::spool(vec![Interface::plain(
        LinkType::ETHERNET,
        65_535,
        Resolution::NANOSECOND,
    )]);
    for number in 0..64 {
        let data = frame(number);
        let frame = Frame {
            data: &data,
            wire_len: data.len() as u32,
            interface: 0,
        };
        sink.packet(
            &layout,
            &Record {
                time_ns: Some(0),
                frame,
                options: Default::default(),
            },
        )
        .unwrap();
    }
    sink.flush().unwrap();
    let most = handle.history().pins().1;
    let mut readers: Vec<_> = (0..most)
        .map(|_| handle.history().cursor(From::Oldest))
        .collect();
    readers
        .iter_mut()
        .for_each(|reader| assert!(reader.next(0).is_some()));
    let recorder = recording.start().unwrap();
    let asked = handle.fire(None, "a test").unwrap();
    assert_eq!(
        (&asked.fired[..], &asked.refused[..]),
        (
            &["t".to_owned()][..],
            &[("none".to_owned(), NotFired::Spent(0))][..]
        )
    );
    assert_eq!(
        handle.fire(Some("x"), "a test"),
        Err(NotAsked::Unknown("x".to_owned()))
    );
    let (packets, missed, path, remarks) = saved.recv().unwrap();
    assert_eq!(
        (packets, missed, &remarks[..]),
        (
            0,
            64,
            "up to 64 packets could not be read, because other readers used the ring"
        )
    );
    // The interface statistics count them: option 7, eight bytes.
    let option: Vec<u8> = [7u16.to_le_bytes(), 8u16.to_le_bytes()]
        .concat()
        .into_iter()
        .chain(64u64.to_le_bytes())
        .collect();
    let bytes = std::fs::read(path).unwrap();
    assert!(bytes.windows(option.len()).any(|window| window == option));
    drop(readers);
    let (status, is_whole) = recorder.finish();
    assert!(is_whole && status.triggers[0].saved == 1 && status.unchecked == 0);
    assert_eq!(handle.fire(None, "a test"), Err(NotAsked::Ended));
}
