//! Tests of DPDK ports against independent facts: a capture file, sent frames, and the kernel's own counts.

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_dpdk::Sender;
use weir_io::dpdk::{Capture, Settings, captures, open};
use weir_io::live::{Backend, Counts, Lease, Next};
use weir_packet::Frame;
use weir_packet::savefile::Layout;
use weir_packet::savefile::walk::{Cursor, Visit, walk};
use weir_testkit::net::cable;
use weir_testkit::savefile::Pcap;

/// Time without packets after which all packets have come.
const LOOK: Duration = Duration::from_millis(100);

fn one(device: &str) -> Capture {
    open(device, &Settings::default())
        .unwrap_or_else(|error| panic!("{error}"))
        .remove(0)
}

/// Frames of a walk.
#[derive(Default)]
struct Frames(Vec<Vec<u8>>);

impl Visit for Frames {
    fn frames(&mut self, _: usize, _: &[u32], frames: &[Frame<'_>]) -> bool {
        self.0
            .extend(frames.iter().map(|frame| frame.data.to_vec()));
        true
    }
}

/// Returns the frames of a burst, as the walk of the pipeline finds them.
fn walked(layout: &Layout, lent: &dyn Lease) -> Vec<Vec<u8>> {
    let (mut frames, mut cursor) = (Frames::default(), [Cursor::new(0, lent.bytes().len())]);
    walk(layout, lent.bytes(), true, &mut cursor, &mut frames);
    frames.0
}

/// Returns all frames: waits for `enough` frames, or until no more come, and then reads to the end.
fn all(capture: &mut Capture, enough: usize) -> io::Result<Vec<Vec<u8>>> {
    let (stop, layout) = (AtomicBool::new(false), capture.layout());
    let mut frames = Vec::new();
    let (mut last, begun) = (i64::MIN, std::time::Instant::now());
    loop {
        match capture.next_within(&stop, LOOK)? {
            Next::Records(lent, packets) => {
                let found = walked(&layout, lent.as_ref());
                assert_eq!(found.len() as u64, packets);
                frames.extend(found);
                let time = layout
                    .record(lent.bytes(), 0)
                    .and_then(|record| record.time_ns)
                    .unwrap();
                assert!(
                    time >= last && time > 1_600_000_000_000_000_000,
                    "{time} behind {last}"
                );
                last = time;
            }
            // Frames of a sender that is still running may take long to arrive on a busy machine.
            Next::Nothing if enough < usize::MAX && begun.elapsed().as_secs() < 60 => {}
            Next::Nothing => stop.store(true, Ordering::Relaxed),
            Next::End => return Ok(frames),
        }
        if frames.len() >= enough {
            stop.store(true, Ordering::Relaxed);
        }
    }
}

/// Returns a frame of `len` bytes that carries `n`: IPv4 with UDP, of many flows, with a VLAN tag if `tagged`.
fn frame(n: u32, len: usize, tagged: bool) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1];
    if tagged {
        frame.extend([0x81, 0, 0x20, 7]);
    }
    frame.extend([8, 0, 0x45, 0]);
    frame.extend((len as u16 - 14).to_be_bytes());
    frame.extend([0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    frame.extend([(n >> 4 & 0xff) as u8, (n & 0xff) as u8, 0, 53, 0, 8, 0, 0]);
    frame.extend(n.to_be_bytes());
    frame.extend((frame.len()..len).map(|i| (n as usize * 31 + i) as u8));
    frame
}

fn number(frame: &[u8]) -> u32 {
    let at = if frame[12..14] == [0x81, 0] { 46 } else { 42 };
    u32::from_be_bytes(frame[at..at + 4].try_into().unwrap())
}

fn written(name: &str, bytes: &[u8]) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::write(&path, bytes).unwrap();
    path
}

#[test]
fn a_capture_file_comes_as_our_own_reader_reads_it() {
    let mut file = Pcap::new(1, 262_144);
    let frames: Vec<Vec<u8>> = (0..3000u32)
        .map(|n| {
            frame(
                n,
                [60, 1514, 2048, 2049, 9014, 65_535][n as usize % 6].min(65_535),
                false,
            )
        })
        .collect();
    frames.iter().for_each(|frame| file.packet(frame));
    let file = file.bytes;
    let (layout, start) = Layout::read(&file, true).unwrap();
    let (mut read, mut cursor) = (Frames::default(), [Cursor::new(start, file.len())]);
    walk(&layout, &file, true, &mut cursor, &mut read);
    assert_eq!(read.0.len(), frames.len());

    let path = written("all.pcap", &file);
    let mut capture = one(&format!("net_pcap_all,rx_pcap={}", path.display()));
    let come = all(&mut capture, usize::MAX).unwrap();
    assert!(
        come == read.0 && come == frames,
        "{} of {}",
        come.len(),
        frames.len()
    );
    let received = frames.len() as u64;
    assert_eq!(
        capture.counts(),
        Counts {
            received,
            filtered: Some(0),
            dropped: 0,
            handed_over: received
        }
    );
}

/// Returns a capture file of `count` frames of `len` bytes.
fn frames_of(count: u32, len: usize) -> Vec<u8> {
    let mut file = Pcap::new(1, 262_144);
    for n in 0..count {
        file.packet(
            &[
                frame(n, len.min(65_535), false),
                vec![0; len.saturating_sub(65_535)],
            ]
            .concat(),
        );
    }
    file.bytes
}

#[test]
fn large_frames_wait_in_the_device_while_their_memory_is_out() {
    let path = written("large.pcap", &frames_of(200, 9000));
    let mut capture = one(&format!("net_pcap_large,rx_pcap={}", path.display()));
    let (stop, layout) = (AtomicBool::new(false), capture.layout());
    let mut numbers: Vec<u32> = Vec::new();
    for most in [64, 128, 192, 200] {
        let mut out = Vec::new();
        while let Next::Records(lent, _) = capture.next_within(&stop, LOOK).unwrap() {
            out.push(lent);
        }
        numbers.extend(
            out.iter()
                .flat_map(|lent| walked(&layout, lent.as_ref()))
                .map(|frame| number(&frame)),
        );
        assert_eq!(numbers, (0..most).collect::<Vec<_>>());
    }
    assert_eq!(
        capture.counts(),
        Counts {
            received: 200,
            filtered: Some(0),
            dropped: 0,
            handed_over: 200
        }
    );
}

#[test]
fn frames_that_are_too_large_are_counted() {
    let path = written(
        "huge.pcap",
        &[frames_of(70, 60), frames_of(70, 66_000)[24..].to_vec()].concat(),
    );
    let mut capture = one(&format!("net_pcap_huge,rx_pcap={}", path.display()));
    let come = all(&mut capture, usize::MAX).unwrap();
    assert_eq!(
        come,
        (0..70).map(|n| frame(n, 60, false)).collect::<Vec<_>>()
    );
    assert_eq!(
        capture.counts(),
        Counts {
            received: 140,
            filtered: Some(0),
            dropped: 70,
            handed_over: 70
        }
    );
}

#[test]
fn a_ring_brings_back_each_frame_in_order() {
    const FRAMES: u32 = 30_000;
    let asked = weir_dpdk::Settings {
        senders: 1,
        ..weir_dpdk::Settings::default()
    };
    let mut opened = weir_dpdk::open("net_ring_io", &asked).unwrap();
    let mut sender: Sender = opened.senders.remove(0);
    let mut capture = captures(opened, false).remove(0);
    let sending = std::thread::spawn(move || {
        let frames: Vec<Vec<u8>> = (0..FRAMES)
            .map(|n| frame(n, 60 + n as usize % 1400, false))
            .collect();
        let mut sent = 0;
        while sent < frames.len() {
            let batch: Vec<&[u8]> = frames[sent..].iter().take(64).map(Vec::as_slice).collect();
            match sender.send(&batch).unwrap() {
                0 => std::thread::yield_now(),
                took => sent += took,
            }
        }
        frames
    });
    let come = all(&mut capture, FRAMES as usize).unwrap();
    assert!(come == sending.join().unwrap(), "{}", come.len());
}

#[test]
fn a_device_that_never_runs_dry_can_be_stopped() {
    let mut capture = one("net_null_stop,size=64");
    let stop = AtomicBool::new(false);
    let (mut before, mut after) = (0, 0);
    while before < 100_000 {
        let Next::Records(_, packets) = capture.next_within(&stop, LOOK).unwrap() else {
            panic!("it runs dry")
        };
        before += packets;
    }
    stop.store(true, Ordering::Relaxed);
    while let Next::Records(_, packets) = capture.next_within(&stop, LOOK).unwrap() {
        after += packets;
    }
    assert!((4096..4096 + 256).contains(&after), "{after}");
    assert!(matches!(capture.next_within(&stop, LOOK), Ok(Next::End)));
    let received = before + after;
    assert_eq!(
        capture.counts(),
        Counts {
            received,
            filtered: Some(0),
            dropped: 0,
            handed_over: received
        }
    );
    assert_eq!(capture.port().stats().unwrap().received, received);
    println!("{}", capture.describe());
}

/// Sends frames `0..count` from interface `far`.
fn send(count: u32, make: impl Fn(u32) -> Vec<u8>) {
    // SAFETY: the address is a live local with the length given; each frame lives through its call.
    unsafe {
        let socket = libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0);
        let mut address: libc::sockaddr_ll = std::mem::zeroed();
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_ifindex = libc::if_nametoindex(c"far".as_ptr()) as i32;
        let len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        assert_eq!(libc::bind(socket, (&raw const address).cast(), len), 0);
        for n in 0..count {
            let frame = make(n);
            let sent = libc::send(socket, frame.as_ptr().cast(), frame.len(), 0);
            assert_eq!(sent, frame.len() as isize, "{}", io::Error::last_os_error());
        }
        libc::close(socket);
    }
}

fn made(n: u32) -> Vec<u8> {
    frame(n, 60 + n as usize % 1400, n.is_multiple_of(5))
}

#[test]
fn an_interface_brings_each_frame_that_was_sent() {
    const FRAMES: u32 = 40_000;
    if !cable("an_interface_brings_each_frame_that_was_sent", "") {
        return;
    }
    let mut capture = one("net_af_packet_each,iface=near");
    // A new thread is in the same namespace.
    let sending = std::thread::spawn(|| send(FRAMES, made));
    let come = all(&mut capture, usize::MAX).unwrap();
    sending.join().unwrap();
    assert_eq!(come.len(), FRAMES as usize);
    for (n, frame) in (0..).zip(&come) {
        assert_eq!(*frame, made(n), "frame {n}");
    }
    let received = FRAMES.into();
    assert_eq!(
        capture.counts(),
        Counts {
            received,
            filtered: Some(0),
            dropped: 0,
            handed_over: received
        }
    );
}

#[test]
fn what_the_kernel_drops_without_a_word_is_counted() {
    const FRAMES: u32 = 5000;
    if !cable("what_the_kernel_drops_without_a_word_is_counted", "") {
        return;
    }
    // A ring of 64 frames, which is not read while frames are sent.
    let mut capture = one("net_af_packet_few,iface=near,blocksz=4096,framesz=2048,framecnt=64");
    send(FRAMES, made);
    assert_eq!(
        capture.port().stats().unwrap().missed,
        0,
        "the driver says nothing of it"
    );
    let come = all(&mut capture, usize::MAX).unwrap();
    let numbers: Vec<u32> = come.iter().map(|frame| number(frame)).collect();
    assert_eq!(numbers, (0..64).collect::<Vec<_>>());
    let (received, handed_over) = (FRAMES.into(), 64);
    assert_eq!(
        capture.counts(),
        Counts {
            received,
            filtered: Some(0),
            dropped: received - handed_over,
            handed_over
        }
    );
}

#[test]
fn a_capture_that_is_stopped_amid_traffic_agrees_with_the_kernel() {
    if !cable(
        "a_capture_that_is_stopped_amid_traffic_agrees_with_the_kernel",
        "",
    ) {
        return;
    }
    let mut capture = one("net_af_packet_amid,iface=near");
    let sending = std::thread::spawn(|| send(20_000, made));
    // The end is an error if the counts differ.
    let come = all(&mut capture, 5000).unwrap();
    sending.join().unwrap();
    assert!((5000..20_000).contains(&come.len()), "{}", come.len());
    assert!((0..).zip(&come).all(|(n, frame)| number(frame) == n));
    let received = come.len() as u64;
    assert_eq!(
        capture.counts(),
        Counts {
            received,
            filtered: Some(0),
            dropped: 0,
            handed_over: received
        }
    );
}

#[test]
fn queues_share_what_an_interface_brings() {
    const FRAMES: u32 = 20_000;
    if !cable("queues_share_what_an_interface_brings", "") {
        return;
    }
    let settings = Settings {
        queues: 2,
        ..Settings::default()
    };
    let captures = open("net_af_packet_two,iface=near", &settings).unwrap();
    send(FRAMES, made);
    let threads: Vec<_> = captures
        .into_iter()
        .map(|mut capture| {
            std::thread::spawn(move || {
                let come = all(&mut capture, usize::MAX).unwrap();
                (come, capture.counts())
            })
        })
        .collect();
    let mut seen = BTreeMap::new();
    let mut dropped = 0;
    for thread in threads {
        let (come, counts) = thread.join().unwrap();
        assert!(
            !come.is_empty() && counts.handed_over == come.len() as u64,
            "{counts:?}"
        );
        dropped += counts.dropped;
        for frame in come {
            assert_eq!(frame, made(number(&frame)));
            assert_eq!(seen.insert(number(&frame), ()), None);
        }
    }
    assert_eq!(seen.len() as u64 + dropped, FRAMES.into());
}
