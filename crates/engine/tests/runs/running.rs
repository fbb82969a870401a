//! Runs over made packets, shared by the tests.

use std::cell::Cell;
use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_engine::batches::{Batch, Batches};
use weir_engine::control::Control;
use weir_engine::handle::Handle;
use weir_engine::name::Name;
use weir_engine::outputs::Target;
use weir_engine::run::{Ended, Run, Setup};
use weir_engine::session::{Order, Session};
use weir_engine::sink::{End, Needs, Packets, Sink, SinkReport, Wanted};
use weir_io::Input;
use weir_io::live::{Backend, Counts, Lease};
use weir_packet::descriptor::Descriptor;
use weir_packet::savefile::{Bytes, Interface, Layout, Record, Resolution, spool};
use weir_packet::{Frame, LinkType};
use weir_pipeline::select::Selection;
use weir_testkit::savefile::Pcap;
use weir_testkit::wait;

/// Longest wait for any step of the tests, even on a busy machine.
pub const LONG: Duration = Duration::from_secs(60);

pub const PACKETS: u32 = 60_000;

/// Returns a datagram to port 53 (even numbers) or 80 (odd numbers), with its number at the end.
pub fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 300];
    frame[12..15].copy_from_slice(&[8, 0, 0x45]);
    frame[23] = 17;
    frame[36..38].copy_from_slice(&[53u16, 80][number as usize % 2].to_be_bytes());
    frame[296..].copy_from_slice(&number.to_be_bytes());
    frame
}

pub fn pcap(numbers: std::ops::Range<u32>) -> Vec<u8> {
    let mut pcap = Pcap::new(1, 65535);
    numbers.for_each(|number| pcap.packet(&frame(number)));
    pcap.bytes
}

pub fn setup(expression: &str, pull: Option<usize>) -> Setup {
    Setup {
        selection: Selection {
            expression: expression.to_owned(),
            ..Selection::default()
        },
        workers: 1,
        pull,
        ..Setup::default()
    }
}

pub fn files(names: &[&str], order: Order) -> Session {
    let names = names
        .iter()
        .map(|name| Name::from((*name).to_owned()))
        .collect();
    let mut session = Session::new(names);
    session.order = order;
    session
}

/// Starts a run over these files, from which batches are pulled.
pub fn pulled(names: &[&str], order: Order, expression: &str, most: usize) -> (Handle, Batches) {
    let mut run = Run::new(setup(expression, Some(most)));
    let batches = run.batches().unwrap();
    (
        Handle::start(run, files(names, order), |_| {}).unwrap(),
        batches,
    )
}

pub fn end(handle: &mut Handle) -> Ended {
    let (ended, _) = handle.join(LONG).unwrap().unwrap();
    assert_eq!(
        (ended.imbalance.as_ref(), ended.ledger.check()),
        (None, Ok(()))
    );
    ended
}

/// Time (ns), wire length, and captured bytes of a packet.
pub type Packet = (i64, u32, Vec<u8>);

/// Returns the packets that tcpdump keeps of a capture, all of them if `expression` is empty. `None` if tcpdump refuses the capture
/// or the expression.
pub fn tcpdump(path: &str, expression: &str) -> Option<Vec<Packet>> {
    let words = ["--nano", "-r", path, "-w", "-"];
    let done = Command::new("tcpdump")
        .args(words)
        .args((!expression.is_empty()).then_some(expression))
        .output();
    let done = done.expect("tcpdump was found");
    done.status.success().then(|| read(&done.stdout))
}

/// Returns the packets of a capture that tcpdump does not keep: those left after all kept packets, checked with the negated
/// expression. `None` as for [`tcpdump`].
///
/// If an expression loads bytes from outside a packet, the packet is rejected, so the negated expression may keep fewer packets.
pub fn tcpdump_rejects(path: &str, expression: &str) -> Option<Vec<Packet>> {
    let (mut rest, passed) = (tcpdump(path, "")?, tcpdump(path, expression)?);
    let mut passed = passed.into_iter().peekable();
    rest.retain(|packet| passed.next_if_eq(packet).is_none());
    assert!(passed.next().is_none(), "they are some of all");
    let mut negated = tcpdump(path, &format!("not ({expression})"))?
        .into_iter()
        .peekable();
    rest.iter()
        .for_each(|packet| drop(negated.next_if_eq(packet)));
    assert!(
        negated.next().is_none(),
        "the negated expression keeps others"
    );
    Some(rest)
}

/// Returns the packets of a little-endian pcap file.
pub fn read(mut pcap: &[u8]) -> Vec<Packet> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let unit = match word(pcap, 0) {
        0xa1b2_3c4d => 1,
        0xa1b2_c3d4 => 1000,
        magic => panic!("{magic:x}"),
    };
    pcap = &pcap[24..];
    let mut packets = Vec::new();
    while !pcap.is_empty() {
        let (head, rest) = pcap.split_at(16);
        let (data, rest) = rest.split_at(word(head, 8) as usize);
        let time_ns = i64::from(word(head, 0)) * 1_000_000_000 + i64::from(word(head, 4)) * unit;
        packets.push((time_ns, word(head, 12), data.to_vec()));
        pcap = rest;
    }
    packets
}

/// A packet according to its descriptor, and its verdict.
pub struct Found {
    pub packet: Packet,
    pub interface: u32,
    pub timed: bool,
    pub passed: bool,
}

/// Returns the packets of a batch. Checks that descriptors and masks agree, and that no descriptor names a byte outside the region.
pub fn checked(batch: &Batch) -> Vec<Found> {
    let (region, verdicts) = (batch.region(), batch.verdicts());
    let words = verdicts.words();
    assert_eq!(
        (verdicts.len(), words.len()),
        (batch.len(), batch.len().div_ceil(64))
    );
    assert_eq!(
        words
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum::<u64>(),
        batch.judged().0
    );
    assert_eq!(batch.len() as u64, batch.judged().0 + batch.judged().1);
    assert!(batch.packet(batch.len()).is_none());
    let descriptors = batch.descriptors();
    assert_eq!(descriptors.len(), batch.len());
    let mut found = Vec::new();
    for (i, descriptor) in descriptors.iter().enumerate() {
        let Descriptor {
            offset,
            time_ns,
            captured,
            wire_len,
            interface,
            flags,
        } = *descriptor;
        assert!(
            offset + u64::from(captured) <= region.len() as u64,
            "{descriptor:?}, {} bytes",
            region.len()
        );
        let record = batch.packet(i).expect("a packet that was found");
        let data = record.frame.data;
        assert_eq!(data.len(), captured as usize);
        assert!(
            data.is_empty()
                || data.as_ptr() as usize == region.cast::<u8>() as usize + offset as usize
        );
        assert_eq!(
            (record.frame.wire_len, record.frame.interface),
            (wire_len, interface)
        );
        assert!((interface as usize) < batch.layout().interfaces.len());
        let timed = flags & Descriptor::NO_TIME == 0;
        assert_eq!(record.time_ns, timed.then_some(time_ns));
        let passed = words[i / 64] >> (i % 64) & 1 == 1;
        found.push(Found {
            packet: (time_ns, wire_len, data.to_vec()),
            interface,
            timed,
            passed,
        });
    }
    let passed = found
        .iter()
        .filter(|found| found.passed)
        .map(|found| &found.packet.2[..]);
    assert!(passed.eq(batch.packets().map(|record| record.frame.data)));
    found
}

/// Packets of a sink, each with its match, if the sink got a mask.
pub type Got = Arc<Mutex<Vec<(Packet, Option<bool>)>>>;

/// A sink that keeps copies of its packets, and is complete after a given number.
pub struct Collect {
    pub wanted: Wanted,
    pub most: usize,
    pub got: Got,
}

impl Collect {
    /// Returns an output for the wanted packets, and the list of its packets.
    pub fn target(wanted: Wanted) -> (Target, Got) {
        let got = Got::default();
        let sink = Self {
            wanted,
            most: usize::MAX,
            got: Arc::clone(&got),
        };
        ((format!("{wanted:?}"), Some(Box::new(sink))), got)
    }

    fn take(&self, record: &Record<'_>, matched: Option<bool>) -> Result<(), End> {
        let mut got = self.got.lock().unwrap();
        if got.len() == self.most {
            return Err(End::Complete);
        }
        // Time 0 for a packet without a time, as written by tcpdump.
        let packet = (
            record.time_ns.unwrap_or(0),
            record.frame.wire_len,
            record.frame.data.to_vec(),
        );
        got.push((packet, matched));
        Ok(())
    }
}

impl Sink for Collect {
    fn packet(&mut self, _: &Layout, record: &Record<'_>) -> Result<(), End> {
        self.take(record, None)
    }

    fn batch(&mut self, packets: &Packets<'_>) -> (u64, Result<(), End>) {
        let (mut number, matched) = (0, packets.matched());
        assert!(matched.is_none_or(|matched| matched.len() == packets.len()));
        packets.hand_on(|record| {
            let bit = matched.map(|matched| matched.words()[number / 64] >> (number % 64) & 1 == 1);
            number += 1;
            self.take(record, bit)
        })
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
            taken: self.got.lock().unwrap().len() as u64,
            ..SinkReport::default()
        }
    }
}

/// Numbers of packets of batches.
pub type Sizes = Arc<Mutex<Vec<u64>>>;

/// A sink that stops at its first batch until the test releases it.
pub struct Gate {
    sink: Box<dyn Sink>,
    reached: Sender<()>,
    goes_on: Receiver<()>,
    /// Number of packets of each batch.
    packets: Sizes,
}

impl Sink for Gate {
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        self.sink.packet(layout, record)
    }

    fn batch(&mut self, packets: &Packets<'_>) -> (u64, Result<(), End>) {
        let done = self.sink.batch(packets);
        self.packets.lock().unwrap().push(packets.len() as u64);
        // After the first batch, the other end may be gone.
        let _ = self.reached.send(());
        let _ = self.goes_on.recv();
        done
    }

    fn needs(&self) -> Needs {
        self.sink.needs()
    }

    fn flush(&mut self) -> Result<(), End> {
        self.sink.flush()
    }

    fn finish(&mut self, layout: Option<&Layout>, ended: bool) -> Result<(), End> {
        self.sink.finish(layout, ended)
    }

    fn report(&self) -> SinkReport {
        self.sink.report()
    }
}

/// Returns a sink that stops at its first batch, with the receiver of its signal, the sender that releases it, and the sizes of
/// its batches.
pub fn gate(sink: Box<dyn Sink>) -> (Box<dyn Sink>, Receiver<()>, Sender<()>, Sizes) {
    let ((reached, hears), (lets, goes_on), packets) = (channel(), channel(), Arc::default());
    (
        Box::new(Gate {
            sink,
            reached,
            goes_on,
            packets: Arc::clone(&packets),
        }),
        hears,
        lets,
        packets,
    )
}

/// Waits until a change has its number.
pub fn wait_for(control: &Control, change: u64) {
    wait::until(format_args!("change {change}"), || {
        control.change() >= change
    });
}

/// Packets: time of each, ns since 1970, and its bytes.
pub type Feed = Vec<(i64, Vec<u8>)>;

thread_local! {
    /// Number of waits for packets of a [`Fed`] in this thread.
    pub static WAITS: Cell<u32> = const { Cell::new(0) };
}

/// An interface whose packets the test hands over.
#[derive(Debug)]
pub struct Fed {
    packets: Receiver<Feed>,
    /// What came during a wait.
    come: Option<Feed>,
    handed_over: u64,
}

#[derive(Debug)]
pub struct Held(Vec<u8>);

impl Lease for Held {
    fn bytes(&self) -> Bytes<'_> {
        (&self.0).into()
    }
}

impl Backend for Fed {
    fn next(&mut self, stop: &AtomicBool) -> io::Result<weir_io::live::Next> {
        use weir_io::live::Next;
        let stopped = stop.load(Ordering::Relaxed);
        match self.come.take().map_or_else(|| self.packets.try_recv(), Ok) {
            Ok(packets) => {
                let mut bytes = Vec::new();
                for (time_ns, data) in &packets {
                    let frame = Frame {
                        data,
                        wire_len: data.len() as u32,
                        interface: 0,
                    };
                    spool::append(
                        &mut bytes,
                        0,
                        *time_ns,
                        &Record {
                            time_ns: Some(*time_ns),
                            frame,
                            options: Default::default(),
                        },
                    );
                }
                self.handed_over += packets.len() as u64;
                Ok(Next::Records(Arc::new(Held(bytes)), packets.len() as u64))
            }
            Err(TryRecvError::Empty) if !stopped => Ok(Next::Nothing),
            Err(_) => Ok(Next::End),
        }
    }

    fn wait(&mut self, most: Duration) -> io::Result<()> {
        WAITS.set(WAITS.get() + 1);
        self.come = self.packets.recv_timeout(most).ok();
        Ok(())
    }

    fn counts(&self) -> Counts {
        Counts {
            received: self.handed_over,
            handed_over: self.handed_over,
            ..Counts::default()
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
        "kernel"
    }

    fn describe(&self) -> String {
        "fed".to_owned()
    }
}

/// Returns captures of `interfaces` interfaces, and the senders that feed them.
pub fn captures(interfaces: usize, stop: &Arc<AtomicBool>) -> (Vec<Input>, Vec<Sender<Feed>>) {
    let one = |i: usize| {
        let (feed, packets) = channel();
        (
            Input::live(
                &format!("eth{i}"),
                Box::new(Fed {
                    packets,
                    come: None,
                    handed_over: 0,
                }),
                stop,
            ),
            feed,
        )
    };
    (0..interfaces).map(one).unzip()
}
