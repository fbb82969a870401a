//! Threads that panic: the source ends with a fault that names the thread. It never seems complete, and the run never hangs.

mod reading;

use reading::build::{Pcap, Pcapng};
use reading::compare::{options, plain};
use reading::naive;
use reading::{Random, Scratch};
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::ThreadId;
use std::time::Duration;
use weir_io::stream::Stream;
use weir_io::{Input, Kind};
use weir_packet::Frame;
use weir_packet::savefile::Layout;
use weir_pipeline::pump::Pump;
use weir_pipeline::reader::SourceError;
use weir_pipeline::{AccessMode, Consumer, Options, PlanError, Reader, SourceFault, With};
use weir_testkit::wait;

/// First bytes of a trap, a packet that makes its worker panic.
const TRAP: &[u8] = b"this packet is a trap";

/// First bytes of a packet that keeps its worker until a trap has sprung.
const WAIT: &[u8] = b"this packet waits for a trap";

/// Counts packets, and panics at a trap unless it is in this thread.
#[derive(Default)]
struct Trapped {
    safe: Option<ThreadId>,
    sprung: AtomicBool,
}

impl Trapped {
    /// Returns a consumer without traps for the calling thread.
    fn safe_here() -> Self {
        Self {
            safe: Some(std::thread::current().id()),
            ..Self::default()
        }
    }
}

impl Consumer for Trapped {
    type Plan = ();
    type Part = u64;

    fn plan(&self, _: &Layout, _: Option<&()>) -> Result<(), PlanError> {
        Ok(())
    }

    fn frames(&self, _: &With<'_, ()>, frames: &[Frame<'_>], part: &mut u64) {
        let safe = self.safe == Some(std::thread::current().id());
        if !safe && frames.iter().any(|frame| frame.data.starts_with(TRAP)) {
            self.sprung.store(true, Ordering::Relaxed);
            panic!("the trap of the test");
        }
        if !safe && frames[0].data.starts_with(WAIT) {
            wait::until("the trap", || self.sprung.load(Ordering::Relaxed));
        }
        *part += frames.len() as u64;
    }

    fn append(&self, part: &mut u64, next: u64) {
        *part += next;
    }
}

/// Six windows of a file that is read in pieces, with a trap in the fourth.
struct Trap {
    bytes: Vec<u8>,
    /// Number of packets that begin in the windows before that of the trap.
    windows: u64,
    /// Number of packets before the trap.
    before: u64,
}

/// Returns a file with a trap whose first packet is `first`.
fn file_with_a_trap(first: &[u8]) -> Trap {
    let mut random = Random(5);
    let mut file = Pcap::new(1, 65_535);
    let (mut windows, mut before) = (0, None);
    file.packet(first);
    while file.bytes.len() < 6 << 20 {
        windows += u64::from(file.bytes.len() < 3 << 20);
        let len = 300 + random.below(1200);
        file.packet(&random.bytes(len));
        if before.is_none() && file.bytes.len() > (3 << 20) + 5000 {
            before = Some(u64::from(file.count));
            file.packet(TRAP);
        }
    }
    Trap {
        bytes: file.bytes,
        windows: windows + 1,
        before: before.expect("the file is long enough"),
    }
}

/// Runs `work` in a thread; a hang is a failure.
fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (say, said) = channel();
    std::thread::spawn(move || say.send(work()));
    said.recv_timeout(Duration::from_secs(60)).expect("it ends")
}

/// Returns the number of packets delivered, and the fault, if any.
fn read(mut reader: Reader<Trapped>) -> (u64, Option<SourceFault>) {
    let mut delivered = 0;
    while let Some(delivery) = reader.next() {
        delivered += delivery.part;
        reader.recycle(delivery.view);
    }
    let report = reader.into_report();
    assert_eq!(report.received, delivered);
    (delivered, report.fault)
}

/// Returns the number of packets that a pump passed on, the number received by its source, and packet number and text of its fault.
fn pumped(reader: Reader<Trapped>, number: usize) -> (u64, u64, (u64, String)) {
    let mut pump = Pump::start(reader, number).unwrap();
    let mut delivered = 0;
    while pump.ended().is_none() {
        pump.receive(Duration::from_millis(50));
        while let Some((delivery, _)) = pump.first() {
            delivered += delivery.part;
            pump.leave();
        }
    }
    let (report, layout) = pump.ended().expect("it has ended");
    assert!(layout.is_some(), "what was known stays known");
    let fault = report.fault.as_ref().expect("a panic is a fault");
    (
        delivered,
        report.received,
        (fault.packet, fault.what.to_string()),
    )
}

#[test]
fn a_worker_that_panics_ends_the_file_with_a_fault_that_names_it() {
    for way in [AccessMode::Read, AccessMode::Mapped] {
        // The result of the trap's window arrives first; that of the first window arrives last.
        let Trap {
            mut bytes,
            windows,
            before,
        } = file_with_a_trap(if way == AccessMode::Read {
            WAIT
        } else {
            b"first"
        });
        if way == AccessMode::Mapped {
            // A mapped window is larger.
            bytes.extend(bytes[24..].repeat(6));
        }
        for workers in [2, 4] {
            let scratch = Scratch::new("trap", &bytes);
            let input = plain(&scratch);
            let (delivered, fault) = in_time(move || {
                read(Reader::new(
                    input,
                    Arc::new(Trapped::safe_here()),
                    options(way, workers),
                ))
            });
            let fault = fault.expect("a panic is a fault");
            let SourceError::Panic {
                thread: "worker",
                number,
            } = fault.what
            else {
                panic!("{way:?}: {fault:?}")
            };
            assert!(number < workers);
            assert_eq!(fault.packet, delivered + 1);
            if way == AccessMode::Read {
                assert!(
                    (windows..=before).contains(&delivered),
                    "{delivered} of {windows} to {before}"
                );
            }
            let said =
                format!("worker thread {number} ended with a panic: this is a mistake in weir");
            assert_eq!(fault.what.to_string(), said);
        }
    }
}

/// If the layout changed before a window, the result under the old layout is discarded, and its fault too.
#[test]
fn a_panic_in_a_window_that_is_thrown_away_is_no_fault() {
    let mut file = Pcapng::new(false);
    file.interface(1, 0, 6);
    file.packet(WAIT);
    let (mut changed, mut trapped) = (false, false);
    while file.bytes.len() < 5 << 20 {
        file.packet(&[7; 1000]);
        if !changed && file.bytes.len() > (1 << 20) + 5000 {
            changed = true;
            file.interface(101, 0, 6);
        }
        if !trapped && file.bytes.len() > (3 << 20) + 5000 {
            trapped = true;
            file.packet(TRAP);
        }
    }
    let scratch = Scratch::new("thrown", &file.bytes);
    let input = plain(&scratch);
    let (delivered, fault) = in_time(move || {
        read(Reader::new(
            input,
            Arc::new(Trapped::safe_here()),
            options(AccessMode::Read, 2),
        ))
    });
    assert!(fault.is_none(), "{fault:?}");
    assert_eq!(delivered, naive::read(&file.bytes).packets.len() as u64);
}

#[test]
fn a_reader_that_panics_ends_its_source_with_a_fault() {
    let Trap { bytes, before, .. } = file_with_a_trap(b"first");
    let scratch = Scratch::new("trap", &bytes);
    let reader = Reader::new(
        plain(&scratch),
        Arc::new(Trapped::default()),
        options(AccessMode::Read, 1),
    );
    let (delivered, received, fault) = in_time(move || pumped(reader, 3));
    assert!(
        delivered <= before && delivered > 0,
        "{delivered} of {before}"
    );
    assert_eq!(received, delivered);
    assert_eq!(
        fault,
        (
            delivered + 1,
            "reader thread 3 ended with a panic: this is a mistake in weir".to_owned()
        )
    );
}

/// Bytes of a source whose end is a panic.
struct Clinging(io::Cursor<Vec<u8>>);

impl Read for Clinging {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl Drop for Clinging {
    fn drop(&mut self) {
        panic!("the panic of the test");
    }
}

#[test]
fn a_reader_that_panics_behind_its_last_packet_has_its_account() {
    let mut file = Pcap::new(1, 65_535);
    (0..100).for_each(|_| file.packet(&[7; 1000]));
    let stream = Stream::direct(Clinging(io::Cursor::new(file.bytes)), Arc::default());
    let input = Input {
        name: "clinging".to_owned(),
        kind: Kind::Stream(stream),
    };
    let reader = Reader::new(input, Arc::new(Trapped::default()), Options::default());
    let answer = in_time(move || pumped(reader, 1));
    let fault = (
        101,
        "reader thread 1 ended with a panic: this is a mistake in weir".to_owned(),
    );
    assert_eq!(answer, (100, 100, fault));
}

/// Bytes, and then a panic as of a decoder.
struct Broken(io::Cursor<Vec<u8>>);

impl Read for Broken {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let read = self.0.read(buf)?;
        assert!(read > 0, "the panic of the test");
        Ok(read)
    }
}

#[test]
fn a_decoder_that_panics_is_no_end_of_the_data() {
    let mut file = Pcap::new(1, 65_535);
    while file.bytes.len() < 3 << 20 {
        file.packet(&[7; 1000]);
    }
    let all = u64::from(file.count);
    let (delivered, fault) = in_time(move || {
        let stop = Arc::new(AtomicBool::new(false));
        let stream = Stream::threaded(Box::new(Broken(io::Cursor::new(file.bytes))), stop).unwrap();
        let input = Input {
            name: "broken".to_owned(),
            kind: Kind::Stream(stream),
        };
        read(Reader::new(
            input,
            Arc::new(Trapped::default()),
            Options::default(),
        ))
    });
    assert!(delivered < all, "the last piece went with the decoder");
    let SourceError::Io(error) = fault.expect("it is a fault").what else {
        panic!("another fault")
    };
    assert!(error.to_string().contains("decoder"), "{error}");
}
