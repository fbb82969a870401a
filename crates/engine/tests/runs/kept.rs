//! Batches that a sink keeps: their memory goes back in any order and from any thread, and no packet is lost.

use crate::running::{Found, LONG, PACKETS, checked, end, files, frame, pcap, setup};
use std::fs::File;
use std::io::{self, Write};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;
use weir_engine::batches::Batch;
use weir_engine::capture::{self, CaptureRequest};
use weir_engine::handle::Handle;
use weir_engine::name::Name;
use weir_engine::outputs::Target;
use weir_engine::port::{Port, PortSink};
use weir_engine::run::{Run, Setup};
use weir_engine::session::{Order, Session};
use weir_engine::sink::{End, Kind, Needs, Note, Packets, Sink, SinkReport, Wanted};
use weir_io::Input;
use weir_io::live::{Backend, Counts, Lease, Next};
use weir_packet::savefile::{Bytes, Interface, Layout, Record, Resolution, spool};
use weir_packet::{Frame, LinkType};
use weir_pipeline::measuring::Settings;
use weir_testkit::savefile::Pcap;
use weir_testkit::{Random, Scratch, net, skipped};

/// A sink that sends each batch on as a whole.
struct Forward {
    wanted: Wanted,
    to: Sender<Batch>,
    written: u64,
}

impl Forward {
    /// Returns an output, and the receiver of its batches.
    fn target(wanted: Wanted) -> (Target, Receiver<Batch>) {
        let (to, batches) = channel();
        (
            (
                "forward".to_owned(),
                Some(Box::new(Self {
                    wanted,
                    to,
                    written: 0,
                })),
            ),
            batches,
        )
    }
}

impl Sink for Forward {
    fn packet(&mut self, _: &Layout, _: &Record<'_>) -> Result<(), End> {
        panic!("all packets come in batches")
    }

    fn batch(&mut self, packets: &Packets<'_>) -> (u64, Result<(), End>) {
        let len = packets.len() as u64;
        if self.to.send(packets.keep()).is_err() {
            return (0, Err(End::ClosedPipe));
        }
        self.written += len;
        (len, Ok(()))
    }

    fn needs(&self) -> Needs {
        Needs {
            wanted: self.wanted,
            ..Needs::default()
        }
    }

    fn flush(&mut self) -> Result<(), End> {
        Ok(())
    }

    fn finish(&mut self, _: Option<&Layout>, _: bool) -> Result<(), End> {
        Ok(())
    }

    fn report(&self) -> SinkReport {
        SinkReport {
            taken: self.written,
            ..SinkReport::default()
        }
    }
}

fn number(found: &Found) -> u32 {
    u32::from_be_bytes(
        *found
            .packet
            .2
            .last_chunk()
            .expect("each frame ends with its number"),
    )
}

/// Holds up to `most` batches, and gives them back by chance, late and in any order. A batch is read when it is given back. Returns
/// the numbers of all packets, sorted, and the number of those that passed.
fn holder(batches: Receiver<Batch>, most: usize, seed: u64) -> JoinHandle<(Vec<u32>, usize)> {
    std::thread::spawn(move || {
        let (mut random, mut held) = (Random(seed), Vec::new());
        let (mut numbers, mut passed) = (Vec::new(), 0);
        loop {
            let ended = match batches.recv_timeout(Duration::from_millis(2)) {
                Ok(batch) => {
                    held.push(batch);
                    false
                }
                Err(RecvTimeoutError::Timeout) => false,
                Err(RecvTimeoutError::Disconnected) => true,
            };
            if (ended || held.len() > most || random.below(4) == 0) && !held.is_empty() {
                let batch: Batch = held.swap_remove(random.below(held.len()));
                for found in checked(&batch) {
                    assert_eq!(
                        found.packet.2,
                        frame(number(&found)),
                        "its bytes are as they were"
                    );
                    numbers.push(number(&found));
                    passed += usize::from(found.passed);
                }
            }
            if ended && held.is_empty() {
                numbers.sort_unstable();
                return (numbers, passed);
            }
        }
    })
}

/// A ring of blocks that a device fills in turn. If the next block is out, packets have no room.
#[derive(Debug)]
struct Ring {
    blocks: Arc<Mutex<Blocks>>,
    random: Random,
    next: usize,
    /// Number of packets that have reached the ring so far.
    reached: u32,
    all: u32,
    dropped: Vec<u32>,
    handed: Arc<Mutex<Vec<u32>>>,
    /// Remaining parts of a block.
    rest: Vec<(Arc<Out>, Vec<u32>)>,
}

#[derive(Debug)]
struct Blocks {
    is_out: Vec<bool>,
    twice: u32,
}

/// A block that is out.
#[derive(Debug)]
struct Out(Arc<Mutex<Blocks>>, usize);

impl Drop for Out {
    fn drop(&mut self) {
        let mut blocks = self.0.lock().unwrap();
        blocks.twice += u32::from(!std::mem::take(&mut blocks.is_out[self.1]));
    }
}

/// A part of a block that is out.
#[derive(Debug)]
struct Part(
    #[expect(dead_code, reason = "it is held")] Arc<Out>,
    Vec<u8>,
);

impl Lease for Part {
    fn bytes(&self) -> Bytes<'_> {
        (&self.1).into()
    }
}

impl Backend for Ring {
    fn next(&mut self, stop: &AtomicBool) -> io::Result<Next> {
        if self.rest.is_empty() && (self.reached == self.all || stop.load(Ordering::Relaxed)) {
            return Ok(Next::End);
        }
        if self.rest.is_empty() {
            let come = (1 + self.random.below(60) as u32).min(self.all - self.reached);
            let numbers: Vec<u32> = (self.reached..self.reached + come).collect();
            self.reached += come;
            let mut blocks = self.blocks.lock().unwrap();
            if std::mem::replace(&mut blocks.is_out[self.next], true) {
                self.dropped.extend(numbers);
                return Ok(Next::Nothing);
            }
            let out = Arc::new(Out(Arc::clone(&self.blocks), self.next));
            self.next = (self.next + 1) % blocks.is_out.len();
            let part = 1 + self.random.below(numbers.len());
            self.rest.extend(
                numbers
                    .chunks(part)
                    .rev()
                    .map(|numbers| (Arc::clone(&out), numbers.to_vec())),
            );
        }
        let (out, numbers) = self.rest.pop().expect("there is a rest");
        let mut bytes = Vec::new();
        for &number in &numbers {
            let frame = Frame {
                data: &frame(number),
                wire_len: 300,
                interface: 0,
            };
            spool::append(
                &mut bytes,
                0,
                i64::from(number),
                &Record {
                    time_ns: Some(number.into()),
                    frame,
                    options: Default::default(),
                },
            );
        }
        let packets = numbers.len() as u64;
        self.handed.lock().unwrap().extend(numbers);
        Ok(Next::Records(Arc::new(Part(out, bytes)), packets))
    }

    fn wait(&mut self, _: Duration) -> io::Result<()> {
        std::thread::yield_now();
        Ok(())
    }

    fn counts(&self) -> Counts {
        let (dropped, handed_over) = (
            self.dropped.len() as u64,
            self.handed.lock().unwrap().len() as u64,
        );
        Counts {
            received: self.reached.into(),
            filtered: Some(0),
            dropped,
            handed_over,
        }
    }

    fn layout(&self) -> Layout {
        Layout::spool(vec![Interface::plain(
            LinkType::ETHERNET,
            65_535,
            Resolution::NANOSECOND,
        )])
    }

    fn place(&self) -> &'static str {
        "device"
    }

    fn describe(&self) -> String {
        "a ring".to_owned()
    }
}

#[test]
fn blocks_of_a_ring_that_sinks_keep_go_back_in_any_order_and_the_account_is_exact() {
    let (mut dropped, mut runs) = (0, 0);
    for seed in 0..40 {
        let mut random = Random(seed);
        let all = 2000 + random.below(2000) as u32;
        let blocks = Arc::new(Mutex::new(Blocks {
            is_out: vec![false; 2 + random.below(6)],
            twice: 0,
        }));
        let handed = Arc::new(Mutex::new(Vec::new()));
        let ring = Ring {
            blocks: Arc::clone(&blocks),
            random: Random(seed),
            next: 0,
            reached: 0,
            all,
            dropped: Vec::new(),
            handed: Arc::clone(&handed),
            rest: Vec::new(),
        };
        let wanted = [Wanted::Matching, Wanted::Rejected, Wanted::All][seed as usize % 3];
        let (main, batches) = Forward::target(wanted);
        let mut setup = Setup {
            main,
            ..setup("udp port 53", None)
        };
        // The workers of a measurement hold the same memory too.
        setup.measure = (seed % 2 == 0).then(|| Settings {
            workers: 2,
            ..Settings::default()
        });
        let holder = holder(batches, random.below(12), seed);
        let input = Input::live("ring", Box::new(ring), &setup.stop);
        let mut handle =
            Handle::start(Run::new(setup), Session::from(vec![input]), |_| {}).unwrap();
        let ended = end(&mut handle);
        assert_eq!(ended.discrepancies, []);
        let (ledger, handed) = (&ended.ledger, handed.lock().unwrap());
        assert_eq!(
            (ledger.received, ledger.passed + ledger.filtered),
            (all.into(), handed.len() as u64)
        );
        let is_wanted = |number: &u32| match wanted {
            Wanted::Matching => number.is_multiple_of(2),
            Wanted::Rejected => !number.is_multiple_of(2),
            Wanted::All => true,
        };
        let expected: Vec<u32> = handed.iter().copied().filter(is_wanted).collect();
        let (numbers, passed) = holder.join().unwrap();
        assert_eq!(numbers, expected, "seed {seed}");
        assert_eq!(
            passed,
            expected
                .iter()
                .filter(|number| number.is_multiple_of(2))
                .count()
        );
        drop(handle);
        let blocks = blocks.lock().unwrap();
        assert!(
            blocks.twice == 0 && !blocks.is_out.contains(&true),
            "seed {seed}: {blocks:?}"
        );
        (dropped, runs) = (dropped + ledger.dropped.source, runs + 1);
    }
    println!("{runs} runs, {dropped} packets had no room");
    assert!(dropped > 0, "memory was never short");
}

/// Checks that packets sent into one end of a cable are kept in place at the other end.
fn live(test: &str, source: &str) {
    const SENT: u32 = 3000;
    if !net::cable(test, "") {
        return;
    }
    let (main, batches) = Forward::target(Wanted::All);
    let setup = Setup {
        main,
        ..setup("udp port 53", None)
    };
    let opened = match capture::open(
        &Name::from(source),
        &CaptureRequest::default(),
        &setup.stop,
        &mut |_| {},
    ) {
        Ok(opened) => opened,
        Err(error) => return skipped(test, error),
    };
    let mut handle = Handle::start(Run::new(setup), Session::from(opened.inputs), |_| {}).unwrap();
    let mut port = Port::open(&Name::from("af_packet:far"), &[]).unwrap();
    let (hold, held) = channel();
    let holder = holder(held, 6, 1);
    let mut seen = 0;
    for sent in 0..SENT {
        port.take(&frame(sent), false).unwrap();
        // Fewer packets are under way than the memory has room for.
        while sent % 300 == 299 && seen <= sent {
            port.flush().unwrap();
            let batch = batches.recv_timeout(LONG).unwrap();
            seen += batch.len() as u32;
            hold.send(batch).unwrap();
        }
    }
    handle.control().stop();
    let ended = end(&mut handle);
    assert_eq!(ended.discrepancies, []);
    assert_eq!(
        (
            ended.ledger.received,
            ended.ledger.passed,
            ended.ledger.filtered
        ),
        (3000, 1500, 1500)
    );
    drop(hold);
    let (numbers, passed) = holder.join().unwrap();
    assert!(numbers.into_iter().eq(0..SENT));
    assert_eq!(passed, 1500);
}

#[test]
fn blocks_of_a_packet_socket_stay_where_they_are_while_they_are_kept() {
    live(
        "blocks_of_a_packet_socket_stay_where_they_are_while_they_are_kept",
        "af_packet:near",
    );
}

#[test]
fn slots_of_af_xdp_stay_where_they_are_while_they_are_kept() {
    live(
        "slots_of_af_xdp_stay_where_they_are_while_they_are_kept",
        "af_xdp:near:0",
    );
}

#[test]
fn batches_of_files_outlive_the_run() {
    let scratch = Scratch::new();
    let (one, other) = (
        scratch.file("one.pcap", &pcap(0..PACKETS)),
        scratch.file("other.pcap", &pcap(PACKETS..70_000)),
    );
    for order in [Order::OneByOne, Order::Merged, Order::Sorted] {
        for (wanted, measures) in [
            (Wanted::Matching, false),
            (Wanted::Rejected, true),
            (Wanted::All, true),
        ] {
            let (main, batches) = Forward::target(wanted);
            let mut setup = Setup {
                main,
                workers: 2,
                ..setup("udp port 80", None)
            };
            let settings = Settings {
                workers: 2,
                ..Settings::default()
            };
            setup.measure = measures.then_some(settings);
            let mut handle =
                Handle::start(Run::new(setup), files(&[&one, &other], order), |_| {}).unwrap();
            assert_eq!(end(&mut handle).discrepancies, []);
            drop(handle);
            let (numbers, passed) = holder(batches, usize::MAX, 3).join().unwrap();
            let (first, step) = match wanted {
                Wanted::Matching => (1, 2),
                Wanted::Rejected => (0, 2),
                Wanted::All => (0, 1),
            };
            assert!(
                numbers.into_iter().eq((first..70_000).step_by(step)),
                "{order:?} {wanted:?}"
            );
            assert_eq!(
                passed,
                if wanted == Wanted::Rejected {
                    0
                } else {
                    35_000
                }
            );
        }
    }
}

#[test]
fn a_port_sends_alike_beside_a_measurement() {
    let test = "a_port_sends_alike_beside_a_measurement";
    if !net::cable(test, "") {
        return;
    }
    let scratch = Scratch::new();
    let mut file = Pcap::new(1, 65_535);
    for number in 0..500 {
        let frame = frame(number);
        // Some packets are shorter than a link header, and some are longer than the interface's limit.
        file.packet(match number % 10 {
            3 => &frame[..13],
            7 => &[7; 1600],
            _ => &frame,
        });
    }
    let file = scratch.file("a.pcap", &file.bytes);
    let reports = [(false, 0), (true, 0), (false, 100)].map(|(measures, snaplen)| {
        let port = Port::open(&Name::from("af_packet:far"), &[]).unwrap();
        let sink = PortSink {
            port,
            snaplen,
            flush_each: false,
            finisher: None,
        };
        let mut setup = Setup {
            main: ("port".to_owned(), Some(Box::new(sink))),
            ..setup("", None)
        };
        setup.measure = measures.then(|| Settings {
            workers: 1,
            ..Settings::default()
        });
        let mut handle =
            Handle::start(Run::new(setup), files(&[&file], Order::OneByOne), |_| {}).unwrap();
        let (ended, outputs) = handle.join(LONG).unwrap().unwrap();
        assert_eq!(ended.discrepancies, []);
        let report = outputs.reports().next().unwrap().1.unwrap();
        let refused: Vec<u64> = report.lost.iter().map(|lost| lost.packets).collect();
        (report.taken, report.kind, refused, report.notes)
    });
    let [alone, beside, cut] = reports;
    assert_eq!(alone, (400, Kind::Sent, vec![50, 50], Vec::new()));
    assert_eq!(beside, alone);
    // All packets but the short ones are longer than 100 bytes.
    assert_eq!(
        cut,
        (450, Kind::Sent, vec![50], vec![Note::Cut { packets: 450 }])
    );
}

#[test]
fn kept_batches_are_counted_as_in_flight() {
    let scratch = Scratch::new();
    let path = scratch.at("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let (main, batches) = Forward::target(Wanted::Matching);
    let setup = Setup {
        main,
        ..setup("", None)
    };
    let mut handle =
        Handle::start(Run::new(setup), files(&[&path], Order::OneByOne), |_| {}).unwrap();
    let mut pipe = File::options().write(true).open(&path).unwrap();
    pipe.write_all(&pcap(0..10)).unwrap();
    let mut first = vec![batches.recv_timeout(LONG).unwrap()];
    while first.iter().map(Batch::len).sum::<usize>() < 10 {
        first.push(batches.recv_timeout(LONG).unwrap());
    }
    let control = Arc::clone(handle.control());
    let asking =
        std::thread::spawn(move || control.snapshot(LONG).expect("the run goes on").in_flight);
    // The request is answered at the end of a batch, this one or the next, which is kept too.
    let rest: Vec<u8> = pcap(0..20)[24 + 10 * 316..].to_vec();
    while !asking.is_finished() {
        pipe.write_all(&rest).unwrap();
        let mut come = 0;
        while come < 10 {
            let batch = batches.recv_timeout(LONG).unwrap();
            come += batch.len();
            first.push(batch);
        }
    }
    let in_flight = asking.join().unwrap();
    assert!(
        in_flight >= 1 && in_flight <= first.len(),
        "{in_flight} of {}",
        first.len()
    );
    drop(pipe);
    end(&mut handle);
}
