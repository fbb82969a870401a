//! Streams of bytes: slow pipes, growing files, a stop from outside, compressed files.

mod reading;

use reading::build::{Pcap, Pcapng};
use reading::compare::{Answer, EXPRESSIONS, answer, collect, expected, reader, same};
use reading::{Random, Scratch, have, naive};
use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use weir_io::follow::Followed;
use weir_io::input::Opening;
use weir_io::stream::Stream;
use weir_io::{Input, Kind};
use weir_pipeline::Options;
use weir_pipeline::reader::SourceError;

fn pcap(len: usize) -> Vec<u8> {
    let mut random = Random(31);
    let mut file = Pcap::new(1, 65_535);
    while file.bytes.len() < len {
        let len = 60 + random.below(1400);
        file.packet(&random.bytes(len));
    }
    file.bytes
}

fn pcapng(len: usize) -> Vec<u8> {
    let mut random = Random(32);
    let mut file = Pcapng::new(true);
    file.interface(1, 0, 9);
    while file.bytes.len() < len {
        if random.below(500) == 0 {
            file.section(random.below(2) == 0);
            file.interface([1, 101][random.below(2)], 0, 6);
        }
        let len = 60 + random.below(1400);
        file.packet(&random.bytes(len));
    }
    file.bytes
}

fn flag() -> Arc<AtomicBool> {
    Arc::new(AtomicBool::new(false))
}

/// Opens a pipe by name, as `weir filter ip -` or a FIFO would be.
fn open(pipe: &PipeReader, stop: &Arc<AtomicBool>) -> Input {
    let name = format!("/dev/fd/{}", pipe.as_raw_fd());
    let input =
        Input::open(&name, &Opening::default(), stop).expect("a pipe can be opened by its number");
    assert!(matches!(input.kind, Kind::Stream(_)));
    input
}

/// Returns the contents of a file according to the naive reader.
fn right(file: &[u8]) -> Answer {
    expected(file, &naive::read(file), EXPRESSIONS[0].1)
}

fn write_in_pieces(mut pipe: PipeWriter, file: &[u8], most: usize) {
    let mut random = Random(most as u64);
    let mut rest = file;
    while !rest.is_empty() {
        let (piece, more) = rest.split_at(rest.len().min(1 + random.below(most)));
        // After a fault, the reader closes the pipe.
        if pipe.write_all(piece).is_err() {
            return;
        }
        rest = more;
    }
}

#[test]
fn a_pipe_that_is_written_in_tiny_pieces() {
    for file in [pcap(300_000), pcapng(300_000)] {
        for most in [1, 7, 100, 5000] {
            let file = &file[..file.len().min(most * 20_000)];
            let (receiver, sender) = io::pipe().unwrap();
            let found = std::thread::scope(|scope| {
                scope.spawn(|| write_in_pieces(sender, file, most));
                answer(open(&receiver, &flag()), "", Options::default()).0
            });
            same(
                &format!("pieces of up to {most} bytes"),
                &found,
                &right(file),
            );
        }
    }
}

#[test]
fn a_large_pipe() {
    for file in [pcap(20 << 20), pcapng(20 << 20)] {
        let (receiver, sender) = io::pipe().unwrap();
        let found = std::thread::scope(|scope| {
            scope.spawn(|| write_in_pieces(sender, &file, 100_000));
            answer(
                open(&receiver, &flag()),
                "",
                Options {
                    workers: 4,
                    ..Options::default()
                },
            )
            .0
        });
        same("a large pipe", &found, &right(&file));
    }
}

/// Packets written so far are delivered before more bytes arrive: the writer waits for each packet.
#[test]
fn packets_are_delivered_as_they_come() {
    let mut file = Pcap::new(1, 65_535);
    let (receiver, mut sender) = io::pipe().unwrap();
    let (arrived, arrivals) = channel();
    sender.write_all(&file.bytes).unwrap();
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut reader = reader(open(&receiver, &flag()), "", Options::default());
            while let Some(delivery) = reader.next() {
                arrived.send(delivery.part.selected.passed).unwrap();
                reader.recycle(delivery.view);
            }
            reader.report().received
        });
        for i in 0..20u8 {
            let before = file.bytes.len();
            file.packet(&vec![i; 100 + usize::from(i)]);
            // Written in two pieces, cut in the header and in the data in turn.
            let (one, two) = file.bytes[before..].split_at(if i % 2 == 0 { 10 } else { 50 });
            sender.write_all(one).unwrap();
            sender.write_all(two).unwrap();
            assert_eq!(arrivals.recv().unwrap(), 1);
        }
        drop(sender);
        assert_eq!(reading.join().unwrap(), 20);
    });
}

#[test]
fn a_pipe_that_ends_in_a_record() {
    let file = pcap(50_000);
    for len in [0, 3, 20, 24, 30, 45, 30_000] {
        let (receiver, mut sender) = io::pipe().unwrap();
        sender.write_all(&file[..len]).unwrap();
        drop(sender);
        let (found, _) = answer(open(&receiver, &flag()), "", Options::default());
        same(
            &format!("a pipe of {len} bytes"),
            &found,
            &right(&file[..len]),
        );
    }
}

/// A reader that fails at the end of its bytes.
struct Failing(io::Cursor<Vec<u8>>);

impl Read for Failing {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        match self.0.read(buf)? {
            0 => Err(io::Error::from(io::ErrorKind::ConnectionReset)),
            n => Ok(n),
        }
    }
}

#[test]
fn a_source_that_fails_delivers_what_came_before() {
    let file = pcap(3 << 20);
    for len in [10, 24, 100_000, 2_500_001] {
        let stream = Stream::direct(Failing(io::Cursor::new(file[..len].to_vec())), flag());
        let input = Input {
            name: "failing".to_owned(),
            kind: Kind::Stream(stream),
        };
        let mut reader = reader(input, "", Options::default());
        let mut found = Answer::default();
        while let Some(delivery) = reader.next() {
            collect(&mut found, &delivery);
        }
        let fault = reader.report().fault.as_ref().expect("it fails");
        assert!(
            matches!(&fault.what, SourceError::Io(error) if error.kind() == io::ErrorKind::ConnectionReset),
            "{fault:?}"
        );
        let right = right(&file[..len]);
        assert!(found.kept == right.kept, "{len} bytes");
        assert_eq!(fault.packet, right.received + 1);
    }
}

#[test]
fn a_growing_file_is_followed_until_told_to_stop() {
    for file in [pcap(400_000), pcapng(400_000)] {
        let scratch = Scratch::new("growing", b"");
        let stop = flag();
        let (arrived, arrivals) = channel();
        std::thread::scope(|scope| {
            let followed = Followed::new(
                scratch.path(),
                Arc::new(|change| panic!("nothing happens to it: {change:?}")),
                &stop,
            );
            let opening = Opening {
                follow: Some(&followed),
                ..Opening::default()
            };
            let input = Input::open(scratch.path(), &opening, &stop).unwrap();
            let reading = scope.spawn(move || {
                let mut reader = reader(input, "", Options::default());
                let mut found = Answer::default();
                while let Some(delivery) = reader.next() {
                    collect(&mut found, &delivery);
                    arrived.send(delivery.part.selected.passed).unwrap();
                    reader.recycle(delivery.view);
                }
                found.received = reader.report().received;
                assert!(
                    reader.report().fault.is_none(),
                    "being told to stop is no fault: {:?}",
                    reader.report()
                );
                found
            });
            let mut writer = OpenOptions::new().append(true).open(&scratch.0).unwrap();
            let (mut written, mut seen) = (0, 0);
            // Cuts at any place: after each piece, all its whole packets arrive.
            for len in [1, 25, 5000, 5001, 150_000, 399_990] {
                writer.write_all(&file[written..len]).unwrap();
                written = len;
                while seen < naive::read(&file[..len]).packets.len() as u64 {
                    seen += arrivals.recv().unwrap();
                }
            }
            stop.store(true, Ordering::Relaxed);
            let found = reading.join().unwrap();
            let mut right = right(&file[..written]);
            right.fault = None;
            same("a growing file", &found, &right);
        });
    }
}

#[test]
fn a_pipe_is_left_when_told_to_stop() {
    let file = pcap(100_000);
    let (receiver, mut sender) = io::pipe().unwrap();
    sender.write_all(&file[..50_000]).unwrap();
    let stop = flag();
    let mut reader = reader(open(&receiver, &stop), "", Options::default());
    let mut received = 0;
    let whole = naive::read(&file[..50_000]).packets.len() as u64;
    while received < whole {
        received += reader
            .next()
            .expect("packets are there")
            .part
            .selected
            .passed;
    }
    stop.store(true, Ordering::Relaxed);
    // More bytes are ready, and the writer is not done.
    sender.write_all(&file[50_000..60_000]).unwrap();
    assert!(reader.next().is_none());
    assert_eq!(
        (reader.report().received, reader.report().fault.is_none()),
        (whole, true)
    );
}

/// Runs `command` with `input`, and returns its output.
fn through(command: &str, arguments: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = Command::new(command)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the tool was found");
    let mut stdin = child.stdin.take().expect("it is piped");
    let mut output = Vec::new();
    std::thread::scope(|scope| {
        scope.spawn(move || stdin.write_all(input).expect("the tool reads all"));
        child
            .stdout
            .take()
            .expect("it is piped")
            .read_to_end(&mut output)
            .expect("the tool writes");
    });
    assert!(child.wait().expect("it ends").success());
    output
}

const TOOLS: [(&str, &[&str]); 3] = [
    ("gzip", &["-c"]),
    ("zstd", &["-c", "-q"]),
    ("lz4", &["-c", "-q"]),
];

/// Reads `packed` as a file and through a pipe.
fn both(packed: &[u8], workers: usize) -> [(Answer, Option<SourceError>); 2] {
    let scratch = Scratch::new("packed", packed);
    let options = Options {
        workers,
        ..Options::default()
    };
    let finish = |input: Input| {
        assert!(
            matches!(input.kind, Kind::Stream(_)),
            "it is recognised as compressed"
        );
        let mut reader = reader(input, "", options.clone());
        let mut found = Answer::default();
        while let Some(delivery) = reader.next() {
            collect(&mut found, &delivery);
            reader.recycle(delivery.view);
        }
        found.received = reader.report().received;
        let fault = reader.report().fault.as_ref();
        found.fault = fault.map(|fault| (fault.packet, fault.offset));
        let fault = fault.map(|fault| match &fault.what {
            SourceError::Io(error) => {
                SourceError::Io(io::Error::new(error.kind(), error.to_string()))
            }
            SourceError::Format(fault) => SourceError::Format(*fault),
            other => panic!("{other}"),
        });
        (found, fault)
    };
    let file = finish(Input::open(scratch.path(), &Opening::default(), &flag()).unwrap());
    let (receiver, sender) = io::pipe().unwrap();
    let pipe = std::thread::scope(|scope| {
        scope.spawn(|| write_in_pieces(sender, packed, 30_000));
        finish(open(&receiver, &flag()))
    });
    [file, pipe]
}

#[test]
fn compressed_in_one_piece_and_in_several() {
    for (tool, arguments) in TOOLS {
        if !have("compressed_in_one_piece_and_in_several", &[tool]) {
            continue;
        }
        for file in [pcap(9 << 20), pcapng(9 << 20)] {
            let right = right(&file);
            let parts = [
                &file[..1000],
                &file[1000..1000],
                &file[1000..5_000_000],
                &file[5_000_000..],
            ];
            let members: Vec<Vec<u8>> = parts
                .iter()
                .map(|part| through(tool, arguments, part))
                .collect();
            for (what, packed) in [
                ("one", through(tool, arguments, &file)),
                ("several", members.concat()),
            ] {
                for (found, fault) in both(&packed, 2) {
                    assert!(fault.is_none(), "{tool}, {what}: {fault:?}");
                    same(&format!("{tool}, {what}"), &found, &right);
                }
            }
        }
    }
}

#[test]
fn compressed_and_cut_short() {
    for (tool, arguments) in TOOLS {
        if !have("compressed_and_cut_short", &[tool]) {
            continue;
        }
        let file = pcap(6 << 20);
        let all = right(&file);
        let half = file.len() / 2;
        let first = through(tool, arguments, &file[..half]);
        let packed = [&first[..], &through(tool, arguments, &file[half..])].concat();
        for len in [
            5,
            11,
            30,
            first.len() / 2,
            first.len() - 1,
            first.len(),
            first.len() + 40,
            packed.len() - 1,
        ] {
            for (found, fault) in both(&packed[..len], 1) {
                assert!(fault.is_some(), "{tool}, cut to {len} bytes");
                assert!(
                    found.kept[..] == all.kept[..found.kept.len()],
                    "{tool}, cut to {len} bytes"
                );
                assert_eq!(found.received, found.passed + found.filtered);
                assert_eq!(
                    found.fault.map(|(packet, _)| packet),
                    Some(found.received + 1),
                    "{tool}, cut to {len} bytes"
                );
                // Whole parts are delivered: all of the first member once it is whole, all of the file but its last block.
                let whole = if len >= first.len() {
                    right(&file[..half]).received
                } else {
                    0
                };
                assert!(
                    found.received >= whole,
                    "{tool}, cut to {len} bytes: {} of {whole}",
                    found.received
                );
            }
        }
    }
}

#[test]
fn compressed_and_damaged() {
    for (tool, arguments) in TOOLS {
        if !have("compressed_and_damaged", &[tool]) {
            continue;
        }
        let file = pcap(6 << 20);
        let all = right(&file);
        let good = through(tool, arguments, &file);
        for at in [good.len() / 2, good.len() - 3] {
            let mut packed = good.clone();
            packed[at..at + 2].copy_from_slice(&[!good[at], !good[at + 1]]);
            for (found, fault) in both(&packed, 1) {
                assert!(fault.is_some(), "{tool}, damaged at {at}");
                assert_eq!(found.received, found.passed + found.filtered);
                assert_eq!(
                    found.fault.map(|(packet, _)| packet),
                    Some(found.received + 1)
                );
                // A checksum follows its data, so decoded bytes may be wrong, but only behind the damage.
                let same = found
                    .kept
                    .iter()
                    .zip(&all.kept)
                    .take_while(|(a, b)| a == b)
                    .count();
                assert!(
                    same * 4 >= found.kept.len(),
                    "{tool}, damaged at {at}: {same} of {}",
                    found.kept.len()
                );
            }
        }
    }
}

#[test]
fn garbage_behind_a_compressed_file_is_a_fault() {
    for (tool, arguments) in TOOLS {
        if !have("garbage_behind_a_compressed_file_is_a_fault", &[tool]) {
            continue;
        }
        let file = pcap(100_000);
        let packed = [
            &through(tool, arguments, &file)[..],
            b"garbage that is no frame of anything",
        ]
        .concat();
        for (found, fault) in both(&packed, 1) {
            assert!(
                matches!(fault, Some(SourceError::Io(_))),
                "{tool}: {fault:?}"
            );
            assert_eq!(found.received, right(&file).received, "{tool}");
        }
    }
}

#[test]
fn standard_input_that_is_a_file_read_partly() {
    // A file that was read in part already is read from that position on.
    let file = pcap(50_000);
    let scratch = Scratch::new("partly", &[&b"a line of text\n"[..], &file].concat());
    let mut handle = File::open(&scratch.0).unwrap();
    handle.read_exact(&mut [0; 15]).unwrap();
    let stream = Stream::direct(handle, flag());
    let (found, _) = answer(
        Input {
            name: "-".to_owned(),
            kind: Kind::Stream(stream),
        },
        "",
        Options::default(),
    );
    same("a file read partly", &found, &right(&file));
}
