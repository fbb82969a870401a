//! Tests on a private virtual cable, with senders that number their frames.

pub(in crate::sys) mod net;
mod refused;

use super::*;
use crate::live::{Backend, Counts, Lease, Next, TURN};
use crate::sys::inject::{self, Injector};
use crate::sys::packet_socket;
use net::*;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Instant, SystemTime};

fn small(mode: Mode) -> Settings {
    Settings {
        mode: Some(mode),
        promiscuous: false,
        ..Settings::of_size(1 << 20)
    }
}

fn counts(received: u64, dropped: u64, handed_over: u64) -> Counts {
    Counts {
        received,
        filtered: Some(0),
        dropped,
        handed_over,
    }
}

fn stopped() -> AtomicBool {
    AtomicBool::new(true)
}

/// Stops `capture` after `sent` frames in all; returns its counts and the numbers of the frames, each compared with the sent
/// frame.
fn rest(capture: &mut Socket, sent: u64, len: impl Fn(u64) -> usize) -> (Counts, Vec<u64>) {
    let mut numbers = Vec::new();
    capture.await_count(sent);
    let (counts, sum) = until_end(capture, &stopped(), |burst| {
        for (_, bytes) in packets(&*burst) {
            let number = number(bytes);
            assert!(bytes == frame(number, len(number)), "frame {number}");
            numbers.push(number);
        }
    })
    .unwrap();
    assert_eq!(numbers.len() as u64, sum);
    (counts, numbers)
}

/// Waits until the stack has as many packets as expected; returns their number.
fn passed(stack: &mut packet_socket::Ring, expected: u64) -> u64 {
    let start = Instant::now();
    let late = || start.elapsed() > Duration::from_secs(5);
    while stack.counts().received < expected && !late() {
        stack.next_within(&AtomicBool::new(false), TURN).unwrap();
    }
    while !matches!(stack.next_within(&stopped(), TURN).unwrap(), Next::End) {}
    stack.counts().handed_over
}

fn injector(mode: inject::Mode) -> Injector {
    let fields = inject::Fields {
        counter: Some(NUMBER),
        ..Default::default()
    };
    let at = if mode == inject::Mode::Pass {
        "near"
    } else {
        "far"
    };
    Injector::open(at, &frame(0, 64), &fields, mode).unwrap()
}

fn through_far() -> inject::Mode {
    inject::Mode::Redirect(packet_socket::index_of("far").unwrap())
}

#[test]
fn every_frame_arrives_once_in_order_as_it_was_sent() {
    if !cable("every_frame_arrives_once_in_order_as_it_was_sent", 1, 1500) {
        return;
    }
    let len = |number: u64| 60 + (number as usize * 37) % 1455;
    let raw = Raw::open("far");
    for mode in [Mode::Native, Mode::Generic] {
        for chunk in [2048, 4096] {
            let before = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64;
            let mut capture = open(
                "near",
                0,
                &Settings {
                    chunk,
                    ..small(mode)
                },
            )
            .unwrap();
            let word = if mode == Mode::Native {
                ", native, copied,"
            } else {
                ", generic, copied,"
            };
            assert!(capture.describe().contains(word), "{}", capture.describe());
            // The memory holds all these packets at the stop.
            let sent = 150;
            (0..sent).for_each(|number| raw.send(&frame(number, len(number))));
            let (counted, numbers) = rest(&mut capture, sent, len);
            assert_eq!(counted, counts(sent, 0, sent), "{mode:?} {chunk}");
            assert!(numbers.iter().copied().eq(0..sent), "{numbers:?}");
            drop(capture);

            let mut capture = open(
                "near",
                0,
                &Settings {
                    chunk,
                    ..small(mode)
                },
            )
            .unwrap();
            let stop = AtomicBool::new(false);
            let (mut times, mut sent) = (vec![before], 0);
            while sent < 2000 {
                (sent..sent + 40).for_each(|number| raw.send(&frame(number, len(number))));
                sent += 40;
                while capture.counts().handed_over < sent {
                    let Next::Records(burst, _) = capture.next_within(&stop, TURN).unwrap() else {
                        continue;
                    };
                    times.extend(packets(&*burst).iter().map(|(time, _)| *time));
                }
            }
            assert!(times.is_sorted(), "{times:?}");
            assert!(
                *times.last().unwrap()
                    <= SystemTime::UNIX_EPOCH.elapsed().unwrap().as_nanos() as i64
            );
            assert_eq!(rest(&mut capture, sent, len).0, counts(sent, 0, sent));
        }
    }
}

/// The common reader of records reads the same packets.
#[test]
fn bursts_are_laid_out_as_slots() {
    use weir_packet::savefile::walk::{Cursor, Visit, walk};
    struct Seen(Vec<Vec<u8>>);
    impl Visit for Seen {
        fn frames(&mut self, _: usize, _: &[u32], frames: &[weir_packet::Frame<'_>]) -> bool {
            self.0
                .extend(frames.iter().map(|frame| frame.data.to_vec()));
            true
        }
    }
    if !cable("bursts_are_laid_out_as_slots", 1, 9000) {
        return;
    }
    let mut capture = open("near", 0, &small(Mode::Native)).unwrap();
    let raw = Raw::open("far");
    let sent: Vec<_> = (0..20)
        .map(|number| frame(number, if number % 3 == 0 { 5000 } else { 100 }))
        .collect();
    sent.iter().for_each(|frame| raw.send(frame));
    capture.await_count(20);
    let (layout, mut seen) = (capture.layout(), Seen(Vec::new()));
    until_end(&mut capture, &stopped(), |burst| {
        let bytes = burst.bytes();
        walk(
            &layout,
            bytes,
            true,
            &mut [Cursor::new(0, bytes.len())],
            &mut seen,
        );
    })
    .unwrap();
    assert!(seen.0 == sent, "{} frames", seen.0.len());
}

/// Every injected frame is counted, whatever the room for frames.
#[test]
fn floods_are_counted_exactly() {
    if !cable("floods_are_counted_exactly", 1, 1500) {
        return;
    }
    for mode in [Mode::Generic, Mode::Native] {
        let settings = small(mode);
        let mut capture = open("near", 0, &settings).unwrap();
        let stop = AtomicBool::new(false);
        let sent = std::thread::scope(|scope| {
            let flood = scope.spawn(|| {
                let mode = if mode == Mode::Generic {
                    inject::Mode::Pass
                } else {
                    through_far()
                };
                let sent = injector(mode).inject(100_000).unwrap();
                stop.store(true, Ordering::Relaxed);
                sent
            });
            let mut last = None;
            let (counted, sum) = until_end(&mut capture, &stop, |burst| {
                for (_, bytes) in packets(&*burst) {
                    assert!(
                        last < Some(number(bytes)),
                        "{last:?}, then {}",
                        number(bytes)
                    );
                    last = Some(number(bytes));
                    assert!(bytes[22..] == frame(0, 64)[22..]);
                }
            })
            .unwrap();
            let sent = flood.join().unwrap();
            assert_eq!(counted.handed_over, sum);
            assert_eq!(counted.received, counted.handed_over + counted.dropped);
            if mode == Mode::Generic {
                assert_eq!(counted.received, sent);
            } else {
                // The cable itself may be full and drop frames, which it counts.
                assert!(counted.received <= sent);
            }
            sent
        });
        assert_eq!(sent, 100_000);
    }
}

#[test]
fn a_memory_that_is_full_drops_exactly_the_rest() {
    if !cable("a_memory_that_is_full_drops_exactly_the_rest", 1, 1500) {
        return;
    }
    let stop = AtomicBool::new(false);
    let raw = Raw::open("far");
    for mode in [Mode::Native, Mode::Generic] {
        let mut capture = open(
            "near",
            0,
            &Settings {
                memory: 16 << 10,
                ..small(mode)
            },
        )
        .unwrap();
        (0..100).for_each(|number| raw.send(&frame(number, 100)));
        // The first eight frames fill the memory: as long as their bursts are held, no other frame comes.
        let mut out = Vec::new();
        while out.iter().map(|(_, count)| count).sum::<u64>() < 8 {
            let Next::Records(burst, count) = capture.next_within(&stop, TURN).unwrap() else {
                panic!("8 were sent")
            };
            out.push((burst, count));
        }
        (100..150).for_each(|number| raw.send(&frame(number, 100)));
        capture.await_count(150);
        assert!(matches!(
            capture.next_within(&stop, TURN).unwrap(),
            Next::Nothing
        ));
        assert_eq!(capture.counts(), counts(150, 142, 8));
        let numbers: Vec<_> = out
            .iter()
            .flat_map(|(burst, _)| packets(&**burst))
            .map(|(_, b)| number(b))
            .collect();
        assert!(numbers.iter().copied().eq(0..8), "{numbers:?}");
        // Chunks dropped by another thread are available again after the next check of the reader.
        std::thread::spawn(move || drop(out)).join().unwrap();
        assert!(matches!(
            capture.next_within(&stop, TURN).unwrap(),
            Next::Nothing
        ));
        (150..155).for_each(|number| raw.send(&frame(number, 100)));
        let (counted, numbers) = rest(&mut capture, 155, |_| 100);
        assert_eq!(
            (counted, numbers),
            (counts(155, 142, 13), (150..155).collect())
        );
    }
}

/// Checks the meaning of each of the kernel's counters, so that no packet is counted twice.
#[test]
fn the_kernels_counts_mean_what_we_take_them_for() {
    if !cable("the_kernels_counts_mean_what_we_take_them_for", 1, 1500) {
        return;
    }
    let raw = Raw::open("far");
    for mode in [Mode::Native, Mode::Generic] {
        let told = |capture: &Socket| {
            let told = capture.statistics();
            [
                told.rx_dropped,
                told.rx_ring_full,
                told.rx_fill_ring_empty_descs,
                told.rx_invalid_descs,
            ]
        };
        let settings = Settings {
            memory: 16 << 10,
            ..small(mode)
        };
        // With eight chunks and a receive ring of eight, two counters count a packet without a chunk.
        let mut capture = open("near", 0, &settings).unwrap();
        (0..20).for_each(|number| raw.send(&frame(number, 100)));
        let (counted, _) = rest(&mut capture, 20, |_| 100);
        assert_eq!(
            (told(&capture), counted),
            ([12, 0, 12, 0], counts(20, 12, 8)),
            "{mode:?}"
        );
        drop(capture);
        // With eight chunks and a receive ring of four, one counter counts a packet without room in the ring.
        let interface = Arc::new(Interface::open("near").unwrap());
        let redirect = Arc::new(begin(&interface, 1, &settings).unwrap());
        let mut capture = Socket::open(&interface, &redirect, 0, &settings, Some(4)).unwrap();
        (0..20).for_each(|number| raw.send(&frame(number, 100)));
        let (counted, _) = rest(&mut capture, 20, |_| 100);
        assert_eq!(
            (told(&capture), counted),
            ([0, 16, 0, 0], counts(20, 16, 4)),
            "{mode:?}"
        );
    }
}

#[test]
fn a_packet_that_is_lost_is_noticed() {
    if !cable("a_packet_that_is_lost_is_noticed", 1, 1500) {
        return;
    }
    let mut capture = open("near", 0, &small(Mode::Native)).unwrap();
    let raw = Raw::open("far");
    (0..10).for_each(|number| raw.send(&frame(number, 100)));
    capture.await_count(10);
    capture.lose_one();
    let mut seen = 0;
    let error = until_end(&mut capture, &stopped(), |burst| {
        seen += packets(&*burst).len()
    })
    .unwrap_err();
    let expected = "the program counted 10 packets, dropped were 0 and handed over 9";
    assert_eq!((error.to_string().as_str(), seen), (expected, 9));
}

#[test]
fn what_comes_after_the_end_goes_to_the_stack() {
    if !cable("what_comes_after_the_end_goes_to_the_stack", 1, 1500) {
        return;
    }
    let raw = Raw::open("far");
    for mode in [Mode::Native, Mode::Generic] {
        let mut stack =
            packet_socket::Ring::open("near", &packet_socket::Settings::of_size(1 << 20)).unwrap();
        let mut capture = open("near", 0, &small(mode)).unwrap();
        (0..30).for_each(|number| raw.send(&frame(number, 100)));
        let stop = stopped();
        capture.await_count(30);
        let Next::Records(burst, 30) = capture.next_within(&stop, TURN).unwrap() else {
            panic!("30 were sent")
        };
        (30..70).for_each(|number| raw.send(&frame(number, 100)));
        drop(burst);
        assert_eq!(
            rest(&mut capture, 30, |_| 100),
            (counts(30, 0, 30), Vec::new())
        );
        assert_eq!(passed(&mut stack, 40), 40, "{mode:?}");
    }
}

#[test]
fn a_stop_in_the_middle_of_a_flood_loses_nothing() {
    if !cable("a_stop_in_the_middle_of_a_flood_loses_nothing", 1, 1500) {
        return;
    }
    for mode in [Mode::Generic, Mode::Native] {
        let injected = AtomicU64::new(0);
        let (stop, over) = (AtomicBool::new(false), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut injector = injector(if mode == Mode::Generic {
                    inject::Mode::Pass
                } else {
                    through_far()
                });
                while !over.load(Ordering::Relaxed) {
                    injected.fetch_add(injector.inject(256).unwrap(), Ordering::Relaxed);
                }
            });
            for _ in 0..6 {
                stop.store(false, Ordering::Relaxed);
                let mut capture = open("near", 0, &small(mode)).unwrap();
                let start = Instant::now();
                let mut numbers = Vec::new();
                let (counted, sum) = until_end(&mut capture, &stop, |burst| {
                    numbers.extend(packets(&*burst).iter().map(|(_, bytes)| number(bytes)));
                    stop.store(
                        start.elapsed() > Duration::from_millis(10),
                        Ordering::Relaxed,
                    );
                })
                .unwrap();
                assert!(sum > 0 && counted.handed_over == sum && numbers.len() as u64 == sum);
                assert_eq!(counted.received, sum + counted.dropped);
                assert!(numbers.is_sorted_by(|a, b| a < b));
                if mode == Mode::Generic {
                    // Only dropped frames are missing; frames dropped at the end come after the last captured frame.
                    let missing = numbers[numbers.len() - 1] - numbers[0] + 1 - sum;
                    assert!(missing <= counted.dropped, "{missing} {counted:?}");
                    if counted.dropped == 0 {
                        assert_eq!(missing, 0);
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
        });
        assert!(injected.load(Ordering::Relaxed) > 0);
    }
}

/// Another thread holds many bursts at once and drops them in random order; until then, their bytes must not change.
#[test]
fn bursts_may_come_back_in_any_order_from_elsewhere() {
    if !cable("bursts_may_come_back_in_any_order_from_elsewhere", 1, 1500) {
        return;
    }
    let mut capture = open(
        "near",
        0,
        &Settings {
            memory: 256 << 10,
            ..small(Mode::Generic)
        },
    )
    .unwrap();
    let stop = AtomicBool::new(false);
    let (give, take) = mpsc::channel::<Arc<dyn Lease>>();
    let (counted, sum) = std::thread::scope(|scope| {
        scope.spawn(move || {
            let (mut held, mut random) = (Vec::<(Vec<u64>, Arc<dyn Lease>)>::new(), 12345usize);
            let numbers = |burst: &dyn Lease| {
                packets(burst)
                    .iter()
                    .map(|(_, bytes)| number(bytes))
                    .collect::<Vec<_>>()
            };
            for burst in take {
                held.push((numbers(&*burst), burst));
                random = random
                    .wrapping_mul(6364136223846793005)
                    .wrapping_add(1442695040888963407);
                if held.len() > 6 {
                    let (then, burst) = held.swap_remove((random >> 33) % held.len());
                    assert_eq!(then, numbers(&*burst));
                }
            }
            assert!(held.iter().all(|(then, burst)| *then == numbers(&**burst)));
        });
        scope.spawn(|| {
            assert_eq!(injector(inject::Mode::Pass).inject(60_000).unwrap(), 60_000);
            stop.store(true, Ordering::Relaxed);
        });
        let end = until_end(&mut capture, &stop, |burst| give.send(burst).unwrap()).unwrap();
        drop(give);
        end
    });
    assert_eq!(counted.received, 60_000);
    assert_eq!(counted.handed_over, sum);
    assert_eq!(counted.received, sum + counted.dropped);
}

#[test]
fn packets_larger_than_a_chunk_are_put_together() {
    if !cable("packets_larger_than_a_chunk_are_put_together", 1, 9000) {
        return;
    }
    let raw = Raw::open("far");
    let len = |number: u64| 60 + (number as usize * 773) % (9014 - 60 + 1);
    for mode in [Mode::Native, Mode::Generic] {
        for chunk in [2048, 4096] {
            let mut capture = open(
                "near",
                0,
                &Settings {
                    chunk,
                    ..small(mode)
                },
            )
            .unwrap();
            (0..30).for_each(|number| raw.send(&frame(number, len(number))));
            raw.send(&frame(30, 9014));
            let (counted, numbers) = rest(&mut capture, 31, |number| {
                if number == 30 { 9014 } else { len(number) }
            });
            assert_eq!(counted, counts(31, 0, 31), "{mode:?} {chunk}");
            assert!(numbers.iter().copied().eq(0..31), "{numbers:?}");
        }
        // Three places of 9 KiB: while bursts hold them, large packets are dropped and small packets are not.
        let mut capture = open(
            "near",
            0,
            &Settings {
                memory: 64 << 10,
                ..small(mode)
            },
        )
        .unwrap();
        let mut out = Vec::new();
        let stop = AtomicBool::new(false);
        for number in 0..12 {
            raw.send(&frame(number, if number % 2 == 0 { 9000 } else { 100 }));
            capture.await_count(number + 1);
            if let Next::Records(burst, 1) = capture.next_within(&stop, TURN).unwrap() {
                out.push(burst);
            }
        }
        let numbers: Vec<_> = out
            .iter()
            .flat_map(|burst| packets(&**burst))
            .map(|(_, bytes)| number(bytes))
            .collect();
        assert_eq!(numbers, [0, 1, 2, 3, 4, 5, 7, 9, 11]);
        drop(out);
        // The reader collects returned places before it takes new packets.
        raw.send(&frame(12, 9000));
        let (counted, numbers) = rest(&mut capture, 13, |_| 9000);
        assert_eq!((counted, numbers), (counts(13, 3, 10), vec![12]));
    }
}

#[test]
fn each_queue_has_its_packets_and_its_counts() {
    if !cable("each_queue_has_its_packets_and_its_counts", 2, 1500) {
        return;
    }
    let mut senders = [0, 1].map(|queue| {
        Sender::open(
            "far",
            &SendSettings {
                queue,
                ..Default::default()
            },
        )
        .unwrap()
    });
    // A virtual cable does not report queues to generic mode, where all packets belong to queue 0.
    let settings = small(Mode::Native);
    assert!(matches!(
        open_all("near", &settings, &stopped()),
        Err(Error::Stopped)
    ));
    let mut captures = open_all("near", &settings, &AtomicBool::new(false)).unwrap();
    assert_eq!(captures.len(), 2);
    for number in 0..300u64 {
        let queue = usize::from(number % 3 == 0);
        senders[queue].send(&frame(number, 200)).unwrap();
    }
    for sender in &mut senders {
        let sent = sender.finish().unwrap();
        assert_eq!((sent.completed, sent.refused), (sent.taken, 0));
    }
    let [even, odd] = &mut captures[..] else {
        unreachable!()
    };
    assert_eq!(
        rest(even, 200, |_| 200),
        (
            counts(200, 0, 200),
            (0..300).filter(|n| n % 3 != 0).collect()
        )
    );
    assert_eq!(
        rest(odd, 100, |_| 200),
        (
            counts(100, 0, 100),
            (0..300).filter(|n| n % 3 == 0).collect()
        )
    );
    drop(captures);
    // With a socket on one queue, the packets of the other queue go to the stack.
    let mut stack =
        packet_socket::Ring::open("near", &packet_socket::Settings::of_size(1 << 20)).unwrap();
    let mut capture = open("near", 1, &settings).unwrap();
    for number in 0..50 {
        senders[(number % 2) as usize]
            .send(&frame(number, 80))
            .unwrap();
    }
    for sender in &mut senders {
        sender.finish().unwrap();
    }
    assert_eq!(
        rest(&mut capture, 25, |_| 80),
        (counts(25, 0, 25), (0..50).filter(|n| n % 2 == 1).collect())
    );
    assert_eq!(passed(&mut stack, 25), 25);
    assert_eq!(senders[0].counts().taken, 225);
}

#[test]
fn a_sender_says_what_became_of_its_frames() {
    if !cable("a_sender_says_what_became_of_its_frames", 1, 1500) {
        return;
    }
    let mut sender = Sender::open(
        "far",
        &SendSettings {
            frames: 64,
            ..Default::default()
        },
    )
    .unwrap();
    let mut capture = open("near", 0, &small(Mode::Generic)).unwrap();
    // The frames are many times the size of the memory.
    let len = |number: u64| 60 + number as usize % 1400;
    (0..400).for_each(|number| sender.send(&frame(number, len(number))).unwrap());
    assert_eq!(
        sender.finish().unwrap(),
        Sent {
            taken: 400,
            completed: 400,
            ..Sent::default()
        }
    );
    assert_eq!(
        rest(&mut capture, 400, len),
        (counts(400, 0, 400), (0..400).collect())
    );
    // The other end of the cable is down.
    ip("link set near down");
    (0..100).for_each(|number| sender.send(&frame(number, 60)).unwrap());
    let sent = sender.finish().unwrap();
    assert_eq!(
        (sent, sent.sent()),
        (
            Sent {
                taken: 500,
                completed: 500,
                refused: 100,
                refused_bytes: 6000
            },
            400
        )
    );
    // It takes shorter frames only; the limit of the kernel has room for a VLAN tag.
    ip("link set near up mtu 500");
    let long: Vec<usize> = (0..700).map(len).filter(|&len| len > 518).collect();
    (0..700).for_each(|number| sender.send(&frame(number, len(number))).unwrap());
    let sent = sender.finish().unwrap();
    assert_eq!(
        (sent.refused - 100, sent.refused_bytes - 6000),
        (long.len() as u64, long.iter().sum::<usize>() as u64)
    );
    ip("link set far down");
    sender.send(&frame(0, 60)).unwrap();
    assert_eq!(
        sender.finish().unwrap_err().to_string(),
        "the interface went down"
    );
}

/// For one call the kernel copies fewer frames than wait here.
#[test]
fn a_flush_leaves_no_frame_to_the_next_call() {
    if !cable("a_flush_leaves_no_frame_to_the_next_call", 1, 1500) {
        return;
    }
    let mut sender = Sender::open("far", &SendSettings::default()).unwrap();
    let mut capture = open("near", 0, &small(Mode::Generic)).unwrap();
    (0..400).for_each(|number| sender.queue(&frame(number, 60)).unwrap());
    sender.flush().unwrap();
    assert_eq!(
        rest(&mut capture, 400, |_| 60),
        (counts(400, 0, 400), (0..400).collect())
    );
}

#[test]
fn nothing_is_left_behind() {
    if !cable("nothing_is_left_behind", 1, 1500) {
        return;
    }
    let about = || ip("-d link show near");
    for (mode, word) in [
        (Some(Mode::Native), "prog/xdp "),
        (Some(Mode::Generic), "xdpgeneric"),
        (None, "prog/xdp "),
    ] {
        let settings = Settings {
            mode,
            promiscuous: true,
            ..Settings::of_size(1 << 20)
        };
        let mut capture = open("near", 0, &settings).unwrap();
        assert!(
            about().contains(word) && about().contains("promiscuity 1"),
            "{}",
            about()
        );
        let error = open("near", 0, &settings).unwrap_err();
        assert!(matches!(error, Error::Attached(_)), "{error}");
        Raw::open("far").send(&frame(1, 100));
        let Next::Records(burst, 1) = capture.next_within(&AtomicBool::new(false), TURN).unwrap()
        else {
            panic!()
        };
        drop(capture);
        assert!(!about().contains("xdp"), "{}", about());
        // A child process of another test may hold the socket for a moment.
        let start = Instant::now();
        while !about().contains("promiscuity 0") {
            assert!(start.elapsed() < Duration::from_secs(5), "{}", about());
        }
        // A burst outlives its socket.
        assert_eq!(packets(&*burst)[0].1, frame(1, 100));
        // The socket is opened again at once, while the kernel still removes the former one.
        drop(open("near", 0, &settings).unwrap());
    }
}

#[test]
fn an_interface_that_goes_ends_it_with_all_that_came_before() {
    if !cable(
        "an_interface_that_goes_ends_it_with_all_that_came_before",
        1,
        1500,
    ) {
        return;
    }
    let stop = AtomicBool::new(false);
    for (command, said) in [
        ("link set near down", "the interface went down"),
        ("link del near", "the interface is gone"),
    ] {
        ip("link set near up");
        let mut capture = open("near", 0, &small(Mode::Native)).unwrap();
        let raw = Raw::open("far");
        (0..25).for_each(|number| raw.send(&frame(number, 100)));
        capture.await_count(25);
        ip(command);
        let mut seen = 0;
        let error =
            until_end(&mut capture, &stop, |burst| seen += packets(&*burst).len()).unwrap_err();
        assert_eq!((error.to_string().as_str(), seen), (said, 25));
        assert_eq!(capture.counts(), counts(25, 0, 25));
    }
}

#[test]
fn other_memory_and_other_ways_to_wait_capture_the_same() {
    if !cable(
        "other_memory_and_other_ways_to_wait_capture_the_same",
        1,
        1500,
    ) {
        return;
    }
    let raw = Raw::open("far");
    let plain = small(Mode::Native);
    let busy_poll = Some(BusyPoll {
        time: Duration::from_micros(20),
        packets: 64,
    });
    for settings in [
        Settings { busy_poll, ..plain },
        Settings {
            need_wakeup: false,
            ..plain
        },
        Settings {
            pages: Policy::Virtual,
            ..plain
        },
        Settings {
            pages: Policy::Thp,
            memory: 2 << 20,
            ..plain
        },
        Settings {
            zero_copy: ZeroCopy::Never,
            memory: 32 << 20,
            ..plain
        },
    ] {
        let mut capture = match open("near", 0, &settings) {
            Err(Error::Memory(error)) => {
                skipped(
                    "other_memory_and_other_ways_to_wait_capture_the_same",
                    error,
                );
                continue;
            }
            other => other.unwrap(),
        };
        assert!(matches!(
            capture.next_within(&AtomicBool::new(false), TURN).unwrap(),
            Next::Nothing
        ));
        (0..100).for_each(|number| raw.send(&frame(number, 100)));
        assert_eq!(
            rest(&mut capture, 100, |_| 100),
            (counts(100, 0, 100), (0..100).collect())
        );
    }
}
