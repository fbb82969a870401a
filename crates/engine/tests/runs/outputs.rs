//! Replacement of outputs during a run, against the packets that tcpdump reads from the source.

use crate::running::{
    Collect, Got, LONG, PACKETS, Packet, captures, end, files, frame, gate, pcap, setup, wait_for,
};
use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, SystemTime};
use weir_engine::claims::Claims;
use weir_engine::control::{ChangeError, Control};
use weir_engine::event::Event;
use weir_engine::file::{FileSettings, FileSink};
use weir_engine::handle::Handle;
use weir_engine::name::Name;
use weir_engine::output_changes::OutputSlot;
use weir_engine::run::{Run, Setup, Stage};
use weir_engine::session::{Order, Session};
use weir_engine::sink::{End, Sink, SinkReport, StageCounts, Wanted};
use weir_packet::savefile::{Format, Layout, Record};
use weir_pipeline::measuring::Settings;
use weir_testkit::savefile::Pcap;
use weir_testkit::{Scratch, have, wait};

/// Events of replaced outputs: number of the change, name, packets written.
type Heard = Arc<Mutex<Vec<(u64, String, u64)>>>;

fn start(setup: Setup, sources: Session) -> (Handle, Heard) {
    let heard = Heard::default();
    let hears = Arc::clone(&heard);
    let hear = move |event: Event<'_>| {
        if let Event::OutputReplaced {
            change,
            name,
            report,
            ..
        } = event
        {
            hears
                .lock()
                .unwrap()
                .push((change, name.to_owned(), report.taken));
        }
    };
    (
        Handle::start(Run::new(setup), sources, hear).unwrap(),
        heard,
    )
}

fn claims(sources: &[&str]) -> Arc<Claims> {
    Arc::new(Claims::of(
        &sources
            .iter()
            .map(|source| Name::from((*source).to_owned()))
            .collect::<Vec<_>>(),
    ))
}

/// Returns a sink that writes a pcap file.
fn pcap_sink(path: &str, claims: &Arc<Claims>) -> Box<dyn Sink> {
    let settings = FileSettings {
        format: Format::Pcap,
        ..FileSettings::default()
    };
    Box::new(FileSink::new(
        &Name::from(path.to_owned()),
        settings,
        claims,
    ))
}

fn set(
    control: &Control,
    slot: OutputSlot,
    path: &str,
    claims: &Arc<Claims>,
) -> Result<u64, ChangeError> {
    control.set_output(slot, path, pcap_sink(path, claims), LONG)
}

/// Length of a record in a pcap file, bytes: each packet has 300.
const RECORD: usize = 316;

/// Returns the packets that tcpdump matches in these files, one file after another.
fn tcpdump(files: &[&str], expression: &str) -> Vec<Packet> {
    files
        .iter()
        .flat_map(|file| crate::running::tcpdump(file, expression).expect("it is a capture file"))
        .collect()
}

#[test]
fn the_batch_under_way_is_the_last_of_the_old_output_and_both_files_together_are_the_source() {
    if !have(
        "the_batch_under_way_is_the_last_of_the_old_output",
        &["tcpdump"],
    ) {
        return;
    }
    let scratch = Scratch::new();
    let source = scratch.file("a.pcap", &pcap(0..PACKETS));
    for workers in [1, 3] {
        let claims = claims(&[&source]);
        let name = |name: &str| scratch.at(&format!("{name}{workers}.pcap"));
        let (one, two, web_one, web_two) =
            (name("one"), name("two"), name("web-one"), name("web-two"));
        let (sink, reached, lets_go_on, packets) = gate(pcap_sink(&one, &claims));
        let mut setup = Setup {
            workers,
            main: (one.clone(), Some(sink)),
            ..setup("udp", None)
        };
        setup.selection.splits = vec!["udp port 80".to_owned()];
        setup.splits = vec![(web_one.clone(), Some(pcap_sink(&web_one, &claims)))];
        let (mut handle, heard) = start(setup, files(&[&source], Order::OneByOne));
        reached.recv_timeout(LONG).unwrap();
        let control = Arc::clone(handle.control());
        let (theirs, to) = (Arc::clone(&claims), two.clone());
        let main = std::thread::spawn(move || set(&control, OutputSlot::Main, &to, &theirs));
        wait_for(handle.control(), 1);
        let control = Arc::clone(handle.control());
        let (theirs, to) = (Arc::clone(&claims), web_two.clone());
        let split = std::thread::spawn(move || set(&control, OutputSlot::Split(0), &to, &theirs));
        wait_for(handle.control(), 2);
        assert!(
            heard.lock().unwrap().is_empty(),
            "the run is in the middle of a batch"
        );
        drop(lets_go_on);
        assert_eq!(
            (
                main.join().unwrap().unwrap(),
                split.join().unwrap().unwrap()
            ),
            (1, 2)
        );
        let ended = end(&mut handle);
        assert_eq!(
            (ended.ledger.passed, &ended.discrepancies),
            (PACKETS.into(), &Vec::new())
        );
        let [first] = packets.lock().unwrap()[..] else {
            panic!("it is the one batch that was under way")
        };
        assert_eq!(
            tcpdump(&[&one], "").len() as u64,
            first,
            "{workers} workers"
        );
        assert!(first > 0 && first < PACKETS.into());
        assert!(
            tcpdump(&[&one, &two], "") == tcpdump(&[&source], "udp"),
            "{workers} workers"
        );
        assert!(
            tcpdump(&[&web_one, &web_two], "") == tcpdump(&[&source], "udp port 80"),
            "{workers} workers"
        );
        assert_eq!(
            *heard.lock().unwrap(),
            [(1, one.clone(), first), (2, web_one.clone(), first / 2)]
        );
        let (rest, web) = (
            u64::from(PACKETS) - first,
            u64::from(PACKETS / 2) - first / 2,
        );
        let taken = |packets| StageCounts {
            judged: packets,
            taken: packets,
            lost: Vec::new(),
        };
        let outputs = [
            Stage::ReplacedOutputs {
                by: two.clone(),
                outputs: 1,
                counts: taken(first),
            },
            Stage::Output {
                name: two,
                counts: taken(rest),
            },
            Stage::ReplacedOutputs {
                by: web_two.clone(),
                outputs: 1,
                counts: taken(first / 2),
            },
            Stage::Output {
                name: web_two,
                counts: taken(web),
            },
        ];
        assert_eq!(ended.stages[2..], outputs);
    }
}

#[test]
fn an_output_of_rejected_packets_is_replaced_by_another_such_output() {
    let scratch = Scratch::new();
    let source = scratch.file("a.pcap", &pcap(0..PACKETS));
    let ((name, old), old_got) = Collect::target(Wanted::Rejected);
    let (sink, reached, lets_go_on, packets) = gate(old.unwrap());
    let setup = Setup {
        main: (name, Some(sink)),
        ..setup("udp port 53", None)
    };
    let (mut handle, _) = start(setup, files(&[&source], Order::OneByOne));
    reached.recv_timeout(LONG).unwrap();
    let control = Arc::clone(handle.control());
    let ((_, other), _) = Collect::target(Wanted::Matching);
    let refused = control.set_output(OutputSlot::Main, "other", other.unwrap(), LONG);
    assert!(matches!(refused, Err(ChangeError::Wants)), "{refused:?}");
    let ((_, new), new_got) = Collect::target(Wanted::Rejected);
    let changing = std::thread::spawn(move || {
        control
            .set_output(OutputSlot::Main, "new", new.unwrap(), LONG)
            .unwrap()
    });
    wait_for(handle.control(), 1);
    drop(lets_go_on);
    assert_eq!(changing.join().unwrap(), 1);
    let ended = end(&mut handle);
    assert_eq!(
        (ended.ledger.filtered, &ended.discrepancies),
        (u64::from(PACKETS / 2), &Vec::new())
    );
    let numbers = |got: &Got| -> Vec<u32> {
        let number = |packet: &Packet| u32::from_be_bytes(*packet.2.last_chunk().unwrap());
        got.lock()
            .unwrap()
            .iter()
            .map(|(packet, _)| number(packet))
            .collect()
    };
    let (old, new) = (numbers(&old_got), numbers(&new_got));
    assert_eq!(*packets.lock().unwrap(), [old.len() as u64]);
    assert!(!new.is_empty() && old.iter().chain(&new).copied().eq((1..PACKETS).step_by(2)));
}

/// If the filter is replaced first, and then the output, packets of the new output were judged by the new filter.
#[test]
fn an_output_gets_no_batch_that_was_judged_before_its_change() {
    let scratch = Scratch::new();
    let source = scratch.file("a.pcap", &pcap(0..PACKETS));
    // The batches of this file end at other places.
    let mut other = Pcap::new(1, 65535);
    other.packet(&[0; 60_000]);
    (0..PACKETS).for_each(|number| other.packet(&frame(number)));
    let other = scratch.file("b.pcap", &other.bytes);
    for (order, workers) in [
        (Order::OneByOne, 1),
        (Order::OneByOne, 3),
        (Order::Merged, 1),
        (Order::Sorted, 1),
    ] {
        let taken = Taken::default();
        let (reached, goes_on) = (channel(), channel());
        let sink = Numbers {
            taken: Arc::clone(&taken),
            stops: Some((30, reached.0, goes_on.1)),
            ..Numbers::default()
        };
        let main = ("old".to_owned(), Some(Box::new(sink) as Box<dyn Sink>));
        let setup = Setup {
            workers,
            main,
            ..setup("udp port 53", None)
        };
        let (mut handle, _) = start(setup, files(&[&source, &other], order));
        reached.1.recv_timeout(LONG).unwrap();
        let control = Arc::clone(handle.control());
        let (new, theirs) = (Taken::default(), Arc::clone(handle.control()));
        let sink = Numbers {
            taken: Arc::clone(&new),
            ..Numbers::default()
        };
        let changing = std::thread::spawn(move || {
            assert_eq!(control.set_filter("udp port 80", LONG).unwrap(), 1);
            control.set_output(OutputSlot::Main, "new", Box::new(sink), LONG)
        });
        wait_for(&theirs, 2);
        goes_on.0.send(()).unwrap();
        assert_eq!(changing.join().unwrap().unwrap(), 2);
        let ended = end(&mut handle);
        assert!(ended.discrepancies.is_empty(), "{:?}", ended.discrepancies);
        let (old, new) = (taken.lock().unwrap(), new.lock().unwrap());
        assert!(
            new.iter().all(|number| number % 2 == 1),
            "{order:?}, {workers}: judged by the new filter alone"
        );
        assert!(old.len() >= 30 && new.len() > 1000);
        assert_eq!((old.len() + new.len()) as u64, ended.ledger.passed);
    }
}

/// Numbers of packets.
type Taken = Arc<Mutex<Vec<u32>>>;

/// Keeps the numbers of packets in memory, and writes them out at its end.
#[derive(Default)]
struct Numbers {
    taken: Taken,
    waiting: Vec<u32>,
    /// Number of packets after which the sink signals, and waits.
    stops: Option<(usize, Sender<()>, Receiver<()>)>,
    /// Number of packets after which the sink's reader has gone.
    ends: Option<usize>,
    /// Whether packets that wait at the sink's end are lost.
    loses: bool,
    begun: usize,
}

impl Sink for Numbers {
    fn packet(&mut self, _: &Layout, record: &Record<'_>) -> Result<(), End> {
        if self.ends == Some(self.begun) {
            return Err(End::ClosedPipe);
        }
        self.begun += 1;
        self.waiting
            .push(u32::from_be_bytes(*record.frame.data.last_chunk().unwrap()));
        if let Some((_, reached, goes_on)) = self.stops.take_if(|stops| stops.0 == self.begun) {
            // The test may be over.
            let _ = reached.send(());
            let _ = goes_on.recv();
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<(), End> {
        Ok(())
    }

    fn finish(&mut self, layout: Option<&Layout>, _: bool) -> Result<(), End> {
        assert!(layout.is_some());
        if !self.loses {
            self.taken.lock().unwrap().append(&mut self.waiting);
        }
        Ok(())
    }

    fn report(&self) -> SinkReport {
        SinkReport {
            taken: self.taken.lock().unwrap().len() as u64,
            ..SinkReport::default()
        }
    }
}

#[test]
fn a_replaced_output_that_loses_its_tail_is_a_discrepancy_of_its_own() {
    let scratch = Scratch::new();
    let source = scratch.file("a.pcap", &pcap(0..PACKETS));
    let (reached, goes_on) = (channel(), channel());
    let old = Numbers {
        stops: Some((7, reached.0, goes_on.1)),
        loses: true,
        ..Numbers::default()
    };
    let setup = Setup {
        main: ("old".to_owned(), Some(Box::new(old))),
        ..setup("", None)
    };
    let (mut handle, _) = start(setup, files(&[&source], Order::OneByOne));
    reached.1.recv_timeout(LONG).unwrap();
    let control = Arc::clone(handle.control());
    let changing = std::thread::spawn(move || {
        control.set_output(OutputSlot::Main, "new", Box::new(Numbers::default()), LONG)
    });
    wait_for(handle.control(), 1);
    goes_on.0.send(()).unwrap();
    changing.join().unwrap().unwrap();
    let (ended, _) = handle.join(LONG).unwrap().unwrap();
    let [wrong] = &ended.discrepancies[..] else {
        panic!("{:?}", ended.discrepancies)
    };
    assert_eq!((&wrong.name[..], wrong.counts.taken), ("old", 0));
    assert!(wrong.counts.judged >= 7 && wrong.counts.judged < PACKETS.into());
}

#[test]
fn an_output_that_ended_is_replaced_while_the_measurement_beside_goes_on() {
    let scratch = Scratch::new();
    let source = scratch.file("a.pcap", &pcap(0..PACKETS));
    let (reached, goes_on, new) = (channel(), channel(), Taken::default());
    let gone = Numbers {
        ends: Some(5),
        ..Numbers::default()
    };
    let split = Numbers {
        stops: Some((100, reached.0, goes_on.1)),
        ..Numbers::default()
    };
    let mut setup = Setup {
        main: ("gone".to_owned(), Some(Box::new(gone))),
        ..setup("", None)
    };
    setup.selection.splits = vec!["udp port 80".to_owned()];
    setup.splits = vec![("web".to_owned(), Some(Box::new(split)))];
    setup.measure = Some(Settings {
        workers: 2,
        ..Settings::default()
    });
    let (mut handle, heard) = start(setup, files(&[&source], Order::OneByOne));
    reached.1.recv_timeout(LONG).unwrap();
    let control = Arc::clone(handle.control());
    let sink = Numbers {
        taken: Arc::clone(&new),
        ..Numbers::default()
    };
    let changing = std::thread::spawn(move || {
        control.set_output(OutputSlot::Main, "new", Box::new(sink), LONG)
    });
    wait_for(handle.control(), 1);
    goes_on.0.send(()).unwrap();
    changing.join().unwrap().unwrap();
    let ended = end(&mut handle);
    assert!(ended.discrepancies.is_empty(), "{:?}", ended.discrepancies);
    assert_eq!(
        ended.measured.map(|measured| measured.processed),
        Some(PACKETS.into())
    );
    // All packets from a batch on.
    let new = new.lock().unwrap();
    assert!(
        new[0] > 100 && new.iter().copied().eq(new[0]..PACKETS),
        "{}",
        new[0]
    );
    assert_eq!(*heard.lock().unwrap(), [(1, "gone".to_owned(), 5)]);
}

#[test]
fn an_output_that_cannot_be_made_takes_no_place() {
    let scratch = Scratch::new();
    let source = scratch.file("a.pcap", &pcap(0..PACKETS));
    let claims = claims(&[&source]);
    let (one, web) = (scratch.at("one.pcap"), scratch.at("web.pcap"));
    let (sink, reached, lets_go_on, _) = gate(pcap_sink(&one, &claims));
    let mut setup = Setup {
        main: (one.clone(), Some(sink)),
        ..setup("", None)
    };
    setup.selection.splits = vec!["udp port 80".to_owned(); 2];
    setup.splits = vec![
        (web.clone(), Some(pcap_sink(&web, &claims))),
        ("counted".to_owned(), None),
    ];
    let (mut handle, heard) = start(setup, files(&[&source], Order::OneByOne));
    reached.recv_timeout(LONG).unwrap();
    let control = handle.control();
    let refused =
        |slot: OutputSlot, path: &str| set(control, slot, path, &claims).unwrap_err().to_string();
    let nowhere = scratch.at("no-such-folder/two.pcap");
    assert!(refused(OutputSlot::Main, &nowhere).contains(&nowhere));
    // Refused names: the output's own file, the file of another output, and the source.
    for taken in [&one, &web] {
        assert!(
            refused(OutputSlot::Main, taken).contains("another output of this run"),
            "{taken}"
        );
    }
    assert!(refused(OutputSlot::Main, &source).contains("it is a source"));
    for slot in [
        OutputSlot::Split(1),
        OutputSlot::Split(2),
        OutputSlot::Split(usize::MAX),
    ] {
        assert!(matches!(
            set(control, slot, &scratch.at("two.pcap"), &claims),
            Err(ChangeError::NoOutput)
        ));
    }
    assert_eq!(control.change(), 0);
    drop(lets_go_on);
    assert_eq!(end(&mut handle).discrepancies, []);
    assert!(heard.lock().unwrap().is_empty());
    assert_eq!(
        std::fs::read(&one).unwrap().len(),
        24 + PACKETS as usize * RECORD
    );
    assert!(!std::path::Path::new(&scratch.at("two.pcap")).exists());
}

#[test]
fn a_run_that_is_over_or_gone_refuses_a_new_output_at_once() {
    let scratch = Scratch::new();
    let source = scratch.file("a.pcap", &pcap(0..10));
    let sink = || Some(Box::new(Numbers::default()) as Box<dyn Sink>);
    let setup = || Setup {
        main: ("old".to_owned(), sink()),
        ..setup("", None)
    };
    let (mut handle, _) = start(setup(), files(&[&source], Order::OneByOne));
    end(&mut handle);
    let gone = Run::new(setup());
    let control = Arc::clone(gone.control());
    drop(gone);
    for control in [handle.control(), &control] {
        let refused = control.set_output(OutputSlot::Main, "new", sink().unwrap(), Duration::MAX);
        assert!(matches!(refused, Err(ChangeError::Over)), "{refused:?}");
    }
    // A run that ends without a batch completes the new one too.
    let empty = scratch.file("empty.pcap", &pcap(0..0));
    let (run, new, claims) = (Run::new(setup()), scratch.at("new.pcap"), claims(&[&empty]));
    let waits = run.control().set_output(
        OutputSlot::Main,
        &new,
        pcap_sink(&new, &claims),
        Duration::ZERO,
    );
    assert!(
        matches!(waits, Err(ChangeError::UnderWay { change: 1 })),
        "{waits:?}"
    );
    let mut handle = Handle::start(run, files(&[&empty], Order::OneByOne), |_| {}).unwrap();
    end(&mut handle);
    assert_eq!(std::fs::read(&new).unwrap().len(), 24);
}

#[test]
fn captures_that_wait_for_packets_take_a_new_output_up_and_the_old_one_is_a_capture_file() {
    if !have(
        "captures_that_wait_for_packets_take_a_new_output_up",
        &["tcpdump"],
    ) {
        return;
    }
    let scratch = Scratch::new();
    for (interfaces, measures) in [(1, false), (1, true), (2, false), (2, true)] {
        let claims = claims(&[]);
        let names: Vec<String> = (0..3)
            .map(|i| scratch.at(&format!("{interfaces}{measures}{i}.pcap")))
            .collect();
        let mut setup = Setup {
            main: (names[0].clone(), Some(pcap_sink(&names[0], &claims))),
            ..setup("", None)
        };
        setup.measure = measures.then(|| Settings {
            workers: interfaces,
            ..Settings::default()
        });
        let (inputs, feeds) = captures(interfaces, &setup.stop);
        let (mut handle, heard) = start(setup, Session::from(inputs));
        let control = Arc::clone(handle.control());
        // No packet has arrived, and none arrives until the output is replaced.
        assert_eq!(
            set(&control, OutputSlot::Main, &names[1], &claims).unwrap(),
            1
        );
        let mut source = Pcap::with(1, 65535, false, true);
        for round in 0..2u32 {
            let now = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap();
            for first in (round * 300..(round + 1) * 300).step_by(50) {
                let stamp = |number: u32| now + Duration::from_micros(number.into());
                let numbers = first..first + 50;
                for number in numbers.clone() {
                    source.header(
                        stamp(number).as_secs() as u32,
                        stamp(number).subsec_nanos(),
                        300,
                        300,
                    );
                    source.bytes.extend(frame(number));
                }
                let packets = numbers
                    .map(|number| (stamp(number).as_nanos() as i64, frame(number)))
                    .collect();
                feeds[(first / 50) as usize % interfaces]
                    .send(packets)
                    .unwrap();
            }
            // All packets are written. The ledger counts those of both outputs.
            let all = 300 * u64::from(round + 1);
            let mut last = None;
            let all_written = wait::within(LONG, || {
                last = control.snapshot(LONG);
                let main = last.as_ref().and_then(|last| last.ledger.main.as_ref());
                main.is_some_and(|main| main.taken == all)
            });
            assert!(all_written, "{interfaces} {measures} {round}: {last:?}");
            if round == 0 {
                assert_eq!(
                    set(&control, OutputSlot::Main, &names[2], &claims).unwrap(),
                    2
                );
            }
        }
        control.stop();
        let ended = end(&mut handle);
        assert_eq!(
            (ended.ledger.received, &ended.discrepancies),
            (600, &Vec::new())
        );
        assert_eq!(
            ended.measured.map(|measured| measured.processed),
            measures.then_some(600)
        );
        let told: Vec<(u64, u64)> = heard
            .lock()
            .unwrap()
            .iter()
            .map(|(change, _, written)| (*change, *written))
            .collect();
        assert_eq!(told, [(1, 0), (2, 300)]);
        assert!(tcpdump(&[&names[0]], "").is_empty());
        for (i, name) in names[1..].iter().enumerate() {
            assert_eq!(tcpdump(&[name], "").len(), 300, "{i}");
        }
        let files: Vec<&str> = names.iter().map(String::as_str).collect();
        let source = scratch.file("all.pcap", &source.bytes);
        assert!(
            tcpdump(&files, "") == tcpdump(&[&source], ""),
            "{interfaces} interfaces"
        );
    }
}

/// The call returns no answer while a pipe has no bytes; later packets go to the new output.
#[test]
fn a_run_that_waits_for_a_pipe_takes_a_new_output_up_with_the_next_bytes() {
    let scratch = Scratch::new();
    let path = scratch.at("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let (old, new, reached, goes_on) = (Taken::default(), Taken::default(), channel(), channel());
    let sink = |taken: &Taken| {
        Box::new(Numbers {
            taken: Arc::clone(taken),
            ..Numbers::default()
        })
    };
    let first = Numbers {
        taken: Arc::clone(&old),
        stops: Some((1, reached.0, goes_on.1)),
        ..Numbers::default()
    };
    let setup = Setup {
        main: ("old".to_owned(), Some(Box::new(first))),
        ..setup("", None)
    };
    let (mut handle, heard) = start(setup, files(&[&path], Order::OneByOne));
    let mut pipe = File::options().write(true).open(&path).unwrap();
    let bytes = pcap(0..100);
    let (head, tail) = bytes.split_at(24 + 40 * RECORD);
    pipe.write_all(head).unwrap();
    reached.1.recv_timeout(LONG).unwrap();
    let control = Arc::clone(handle.control());
    let waits = control.set_output(OutputSlot::Main, "new", sink(&new), Duration::ZERO);
    assert!(
        matches!(waits, Err(ChangeError::UnderWay { change: 1 })),
        "{waits:?}"
    );
    let earlier = control.set_output(OutputSlot::Main, "newer", sink(&new), Duration::ZERO);
    assert!(matches!(earlier, Err(ChangeError::Earlier)), "{earlier:?}");
    goes_on.0.send(()).unwrap();
    pipe.write_all(tail).unwrap();
    drop(pipe);
    assert_eq!(end(&mut handle).discrepancies, []);
    let (old, new) = (old.lock().unwrap(), new.lock().unwrap());
    assert!(old.iter().chain(new.iter()).copied().eq(0..100));
    assert!(!new.is_empty() && new.last() == Some(&99));
    assert_eq!(
        *heard.lock().unwrap(),
        [(1, "old".to_owned(), old.len() as u64)]
    );
}

#[test]
fn a_file_that_could_not_be_made_can_be_asked_for_again() {
    let scratch = Scratch::new();
    let (fifo, first, second) = (
        scratch.at("fifo"),
        scratch.at("first.pcapng"),
        scratch.at("later/second.pcapng"),
    );
    assert!(
        Command::new("mkfifo")
            .arg(&fifo)
            .status()
            .unwrap()
            .success()
    );
    let claims = Arc::new(Claims::of(&[]));
    let file = |path: &str| -> Box<dyn Sink> {
        Box::new(FileSink::new(
            &Name::from(path.to_owned()),
            FileSettings::default(),
            &claims,
        ))
    };
    let setup = Setup {
        main: (first.clone(), Some(file(&first))),
        ..setup("", None)
    };
    let mut handle =
        Handle::start(Run::new(setup), files(&[&fifo], Order::OneByOne), |_| {}).unwrap();
    let mut pipe = File::options().write(true).open(&fifo).unwrap();
    let set = |path: &str| {
        handle
            .control()
            .set_output(OutputSlot::Main, path, file(path), Duration::ZERO)
    };
    assert!(matches!(set(&second), Err(ChangeError::Output(_))));
    std::fs::create_dir(scratch.at("later")).unwrap();
    assert!(matches!(
        set(&second),
        Err(ChangeError::UnderWay { change: 1 })
    ));
    assert!(matches!(
        set(&scratch.at("third.pcapng")),
        Err(ChangeError::Earlier)
    ));
    assert!(
        !std::fs::exists(scratch.at("third.pcapng")).unwrap(),
        "it was refused before it was made"
    );
    pipe.write_all(&pcap(0..10)).unwrap();
    drop(pipe);
    assert_eq!(end(&mut handle).ledger.passed, 10);
}

#[test]
fn splits_of_measured_captures_are_counted_without_outputs() {
    for captures_at_once in [1, 2] {
        let mut setup = setup("", None);
        setup.selection.splits = vec!["udp port 80".to_owned()];
        setup.measure = Some(Settings {
            workers: 1,
            ..Settings::default()
        });
        let (inputs, feeds) = captures(captures_at_once, &setup.stop);
        let mut run = Run::new(setup);
        let stop = Arc::clone(run.control());
        assert!(run.begin_capture(&inputs, &mut |_| {}).unwrap());
        for (feed, first) in feeds.iter().zip([0, 100]) {
            let packets = (first..first + 100).map(|number| (i64::from(number), frame(number)));
            feed.send(packets.collect()).unwrap();
        }
        drop(feeds);
        stop.stop();
        run.capture(inputs, &mut |_| {}).unwrap();
        let ended = run.finish(&mut |_| {}).0;
        assert_eq!((ended.imbalance, ended.ledger.check()), (None, Ok(())));
        let packets = 100 * captures_at_once as u64;
        let of_split = (packets / 2, packets / 2 * 300);
        assert_eq!(ended.ledger.passed, packets);
        assert_eq!(ended.ledger.splits, [of_split]);
    }
}
