//! Virtual devices with known packets: received packets equal the sent ones, any thread may give them back, and mistakes are
//! reported.

use std::collections::BTreeSet;
use std::sync::mpsc;
use weir_dpdk::{Burst, Error, MOST, Opened, Queue, SendError, Settings, open};

fn opened(device: &str, settings: &Settings) -> Opened {
    open(device, settings).unwrap_or_else(|error| panic!("{device}: {error}"))
}

fn one_queue(device: &str) -> Queue {
    opened(device, &Settings::default()).queues.remove(0)
}

/// Distinct bytes for frame `n`.
fn frame(n: u32) -> Vec<u8> {
    let len = [60, 61, 64, 127, 590, 1514, 2048][n as usize % 7];
    (0..len)
        .map(|i| (n.wrapping_mul(0x9e37_79b9).rotate_left(i % 32) ^ i) as u8)
        .collect()
}

#[test]
fn null_brings_frames_of_the_size_asked_for() {
    let mut queue = one_queue("net_null_sizes,size=100,copy=1");
    let mut burst = queue.burst();
    let mut received = 0;
    for _ in 0..200 {
        let got = queue.receive(&mut burst);
        assert!(got > 0 && got == burst.len() && got <= MOST);
        for frame in burst.frames() {
            // The bytes that a filter reads lie in as few cache lines as possible.
            assert_eq!((frame.len(), frame.as_ptr() as usize % 64), (100, 0));
        }
        received += got as u64;
    }
    let stats = queue.port().stats().unwrap();
    assert_eq!(
        (stats.received, stats.missed, stats.errors, stats.no_memory),
        (received, 0, 0, 0)
    );
    assert_eq!(
        queue.port().more_stats().get("rx_good_packets"),
        Some(&received)
    );
    assert_eq!(queue.port().driver(), "net_null");
}

#[test]
fn a_queue_waits_while_its_packets_are_out_and_goes_on_when_they_are_back() {
    let mut queue = one_queue("net_null_waits,size=64");
    let mut out: Vec<Burst> = Vec::new();
    for round in 0..3 {
        let mut places = BTreeSet::new();
        loop {
            let mut burst = queue.burst();
            if queue.receive(&mut burst) == 0 {
                break;
            }
            for frame in burst.frames() {
                assert!(
                    places.insert(frame.as_ptr() as usize),
                    "round {round}: one place was handed over twice"
                );
            }
            out.push(burst);
        }
        assert!(
            queue.is_waiting() && places.len() > 10 * MOST,
            "{}",
            places.len()
        );
        // Given back in another order, by another thread.
        let back: Vec<Burst> = out.drain(..).rev().collect();
        std::thread::spawn(move || drop(back)).join().unwrap();
        assert!(!queue.is_waiting());
    }
    assert_eq!(queue.port().stats().unwrap().no_memory, 0);
}

#[test]
fn many_threads_give_back_while_one_receives() {
    let mut queue = one_queue("net_null_threads,size=64");
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (to, from) = mpsc::sync_channel::<Burst>(4);
            (
                to,
                std::thread::spawn(move || {
                    from.iter().map(|burst| burst.len() as u64).sum::<u64>()
                }),
            )
        })
        .collect();
    let mut received = 0;
    for turn in 0..3000 {
        let mut burst = queue.burst();
        received += queue.receive(&mut burst) as u64;
        threads[turn % 3].0.send(burst).unwrap();
    }
    let counted: u64 = threads
        .into_iter()
        .map(|(to, thread)| (drop(to), thread.join().unwrap()).1)
        .sum();
    assert_eq!(counted, received);
    assert_eq!(queue.port().stats().unwrap().received, received);
}

#[test]
fn a_ring_brings_back_what_was_sent() {
    const FRAMES: u32 = 20_000;
    let Opened {
        port,
        mut queues,
        mut senders,
    } = opened(
        "net_ring_back",
        &Settings {
            senders: 1,
            ..Settings::default()
        },
    );
    let (queue, sender) = (&mut queues[0], &mut senders[0]);
    let frames: Vec<Vec<u8>> = (0..FRAMES).map(frame).collect();
    let (mut sent, mut received) = (0, 0);
    let mut burst = queue.burst();
    while received < FRAMES as usize {
        let batch: Vec<&[u8]> = frames[sent..].iter().take(150).map(Vec::as_slice).collect();
        sent += sender.send(&batch).unwrap();
        for i in 0..queue.receive(&mut burst) {
            assert_eq!(burst.frames()[i], frames[received], "frame {received}");
            received += 1;
        }
        assert_eq!(burst.dropped(), 0);
    }
    assert_eq!(queue.receive(&mut burst), 0);
    let stats = port.stats().unwrap();
    assert_eq!(
        (stats.sent, stats.received, sender.sent()),
        (FRAMES.into(), FRAMES.into(), FRAMES.into())
    );
    assert_eq!(
        sender.send(&[&[0; 2049]]),
        Err(SendError::TooLong {
            len: 2049,
            room: 2048
        })
    );
}

#[test]
fn a_full_device_takes_no_more_and_nothing_is_lost() {
    let Opened {
        mut queues,
        mut senders,
        ..
    } = opened(
        "net_ring_full",
        &Settings {
            senders: 1,
            ..Settings::default()
        },
    );
    let frame = frame(1);
    let mut taken = 0;
    loop {
        match senders[0].send(&[frame.as_slice(); 100]).unwrap() {
            0 => break,
            took => taken += took,
        }
    }
    let mut burst = queues[0].burst();
    let mut received = 0;
    while queues[0].receive(&mut burst) > 0 {
        assert!(burst.frames().iter().all(|found| *found == frame));
        received += burst.len();
    }
    assert_eq!(received, taken);
}

#[test]
fn a_closed_device_can_be_opened_again() {
    let mut kept = Vec::new();
    for _ in 0..3 {
        let mut queue = one_queue("net_null_again");
        let mut burst = queue.burst();
        assert!(queue.receive(&mut burst) > 0);
        // The burst outlives its port.
        drop(queue);
        assert_eq!(burst.frames()[0].len(), 64);
        kept.push(burst);
    }
}

#[test]
fn mistakes_are_told_in_a_line() {
    let said = |device: &str, settings: &Settings| {
        let error = open(device, settings).expect_err(device);
        let text = error.to_string();
        assert!(!text.contains('\n') && text.len() < 400, "{text}");
        println!("{text}");
        (error, text)
    };
    let plain = Settings::default();
    let (error, _) = said("net_nosuch0", &plain);
    assert!(matches!(error, Error::Device { .. }), "{error:?}");
    let (error, text) = said("net_af_packet_none", &plain);
    assert!(
        matches!(error, Error::NoInterface(_)) && text.contains("iface="),
        "{text}"
    );
    let (_, text) = said("net_af_packet_none,iface=no-such-if", &plain);
    assert!(text.contains("no-such-if"), "{text}");
    let (_, text) = said("net_null_wrong,sise=3", &plain);
    assert!(
        text.contains("sise") && text.contains("arguments"),
        "{text}"
    );
    let (_, text) = said("net_pcap_none,rx_pcap=/no/such/file.pcap", &plain);
    assert!(text.contains("/no/such/file.pcap"), "{text}");
    let (error, _) = said(
        "net_null_queues",
        &Settings {
            queues: 2000,
            ..plain
        },
    );
    assert!(
        matches!(
            error,
            Error::Queues {
                what: "receive",
                asked: 2000,
                ..
            }
        ),
        "{error:?}"
    );
    let (error, text) = said(
        "net_null_memory",
        &Settings {
            mbufs: 1 << 23,
            ..plain
        },
    );
    assert!(
        matches!(error, Error::Memory { .. }) && text.contains("vm.nr_hugepages="),
        "{text}"
    );
    let (error, _) = said("0000:7f:1f.7", &plain);
    assert!(
        matches!(
            error,
            Error::WithoutPci { .. } | Error::Device { .. } | Error::Start { .. }
        ),
        "{error:?}"
    );
    let (error, _) = said("no device", &plain);
    assert!(matches!(error, Error::Name(_)), "{error:?}");
}
