//! Tests of the ring on private networks, compared with independent counts of the packets.

mod counting;
mod fanout;
mod modes;
mod net;
mod record;

use super::*;
use crate::live::{Lease, TURN};
use std::net::UdpSocket;
use weir_testkit::net::alone;
use weir_testkit::wait;

#[test]
fn names_that_are_none() {
    assert_eq!(index_of("no-such-if"), None);
    assert_eq!(index_of("a\0b"), None);
    assert_eq!(index_of("lo:1"), None);
    assert!(index_of("lo").is_some());
    assert!(matches!(
        Ring::open("no-such-if", &Settings::default()),
        Err(Error::NoInterface)
    ));
}

/// Returns a function that sends packets on the loopback; no packet is answered.
fn sender() -> impl Fn(u32) {
    let far = UdpSocket::bind("127.0.0.1:0").unwrap();
    let near = UdpSocket::bind("127.0.0.1:0").unwrap();
    move |packets| {
        for _ in 0..packets {
            near.send_to(&[7; 1000], far.local_addr().unwrap()).unwrap();
        }
    }
}

/// A reader may be away for as long as blocks last of which each takes its full time: the same at all latencies.
#[test]
fn blocks_are_as_small_as_the_latency_asks() {
    for bytes in [1usize << 20, 4 << 20, 32 << 20, 33_333_333, 1 << 30] {
        let usual = Settings::of_size(bytes);
        let away = |settings: &Settings| settings.retire * settings.blocks as u32;
        for millis in [1, 2, 5, 10, 25, 50, 1000] {
            let asked = Duration::from_millis(millis);
            let settings = Settings::of_latency(bytes, asked);
            assert_eq!(settings.retire, asked.min(Settings::RETIRE));
            assert!(
                settings.block.is_power_of_two() && settings.block <= usual.block,
                "{settings:?}"
            );
            assert!(
                settings.blocks * settings.block <= bytes && settings.block >= 16 << 10,
                "{settings:?}"
            );
            assert!(
                settings.block == 16 << 10 || away(&settings) >= away(&usual),
                "{settings:?}"
            );
            assert!(
                millis < 50 || (settings.block, settings.blocks) == (usual.block, usual.blocks),
                "{settings:?}"
            );
        }
    }
    let [early, usual] =
        [1, 50].map(|millis| Settings::of_latency(32 << 20, Duration::from_millis(millis)));
    assert_eq!(
        (early.block, early.blocks, usual.block, usual.blocks),
        (16 << 10, 2048, 1 << 20, 32)
    );
}

fn small() -> Settings {
    Settings {
        promiscuous: false,
        retire: Duration::from_millis(4),
        ..Settings::of_blocks(256 << 10, 64 << 10)
    }
}

#[track_caller]
fn block(ring: &mut Ring, stop: &AtomicBool) -> (Arc<dyn Lease>, u64) {
    match ring.next_within(stop, TURN).unwrap() {
        Next::Records(block, packets) => (block, packets),
        other => panic!("{other:?}"),
    }
}

#[test]
fn blocks_come_back_in_any_order_and_are_never_taken_twice() {
    if !alone("blocks_come_back_in_any_order_and_are_never_taken_twice") {
        return;
    }
    let stop = AtomicBool::new(false);
    let mut ring = Ring::open("lo", &small()).unwrap();
    assert_eq!(ring.layout().interfaces[0].link, LinkType::ETHERNET);
    let send = sender();
    let mut out = Vec::new();
    for _ in 0..4 {
        send(1);
        let (block, packets) = block(&mut ring, &stop);
        assert_eq!(packets, 1);
        out.push((block.bytes().slice().to_vec(), block));
    }
    // All blocks are leased: new packets are lost, and no leased block is handed over again.
    send(50);
    assert!(matches!(
        ring.next_within(&stop, TURN).unwrap(),
        Next::Nothing
    ));
    assert!(
        out.iter()
            .all(|(bytes, block)| bytes == block.bytes().slice())
    );
    for at in [2, 0, 1, 0] {
        // The block is dropped in another thread, as by workers.
        let (_, block) = out.remove(at);
        std::thread::spawn(move || drop(block)).join().unwrap();
    }
    // The kernel notices the free block at its next check.
    let (mut tries, mut last) = (0, 0);
    wait::until("a block", || {
        send(1);
        tries += 1;
        let next = ring.next_within(&stop, TURN).unwrap();
        if let Next::Records(_, packets) = next {
            last += packets;
        }
        last > 0
    });
    let first = last;
    send(6);
    stop.store(true, Ordering::Relaxed);
    loop {
        match ring.next_within(&stop, TURN).unwrap() {
            Next::Records(_, packets) => last += packets,
            Next::Nothing => {}
            Next::End => break,
        }
    }
    let Counts {
        received,
        dropped,
        handed_over,
        ..
    } = ring.counts();
    assert_eq!(
        (received, handed_over, last),
        (4 + 50 + tries + 6, 4 + last, first + 6),
        "{dropped}"
    );
    assert_eq!(dropped, 50);
}

#[test]
fn a_ring_that_is_full_ends_though_its_next_block_is_out() {
    if !alone("a_ring_that_is_full_ends_though_its_next_block_is_out") {
        return;
    }
    let stop = AtomicBool::new(false);
    let mut ring = Ring::open("lo", &small()).unwrap();
    let send = sender();
    send(5);
    let first = block(&mut ring, &stop);
    // These packets fill the other three blocks, and more.
    send(400);
    for _ in 0..3 {
        drop(block(&mut ring, &stop));
    }
    stop.store(true, Ordering::Relaxed);
    loop {
        match ring.next_within(&stop, TURN).unwrap() {
            Next::End => break,
            Next::Records(..) | Next::Nothing => {}
        }
    }
    drop(first);
    let Counts {
        received,
        dropped,
        handed_over,
        ..
    } = ring.counts();
    assert_eq!((received, dropped + handed_over), (405, 405));
}

#[test]
fn a_ring_ends_though_its_next_block_is_kept() {
    if !alone("a_ring_ends_though_its_next_block_is_kept") {
        return;
    }
    let stop = AtomicBool::new(false);
    let mut ring = Ring::open(
        "lo",
        &Settings {
            blocks: 2,
            ..small()
        },
    )
    .unwrap();
    let send = sender();
    send(1);
    let kept = block(&mut ring, &stop);
    send(1);
    drop(block(&mut ring, &stop));
    // Both blocks are the last of the ring; the next block is the one still kept.
    stop.store(true, Ordering::Relaxed);
    let begun = Instant::now();
    loop {
        match ring.next_within(&stop, TURN).unwrap() {
            Next::End => break,
            Next::Records(..) | Next::Nothing => {
                assert!(begun.elapsed() < Duration::from_secs(30), "it does not end")
            }
        }
    }
    assert_eq!((ring.counts().received, kept.1), (2, 1));
}

#[test]
fn what_comes_after_the_end_is_not_received() {
    if !alone("what_comes_after_the_end_is_not_received") {
        return;
    }
    let stop = AtomicBool::new(false);
    let mut ring = Ring::open("lo", &small()).unwrap();
    let send = sender();
    send(30);
    stop.store(true, Ordering::Relaxed);
    drop(block(&mut ring, &stop));
    send(30);
    loop {
        match ring.next_within(&stop, TURN).unwrap() {
            Next::End => break,
            Next::Records(..) | Next::Nothing => {}
        }
    }
    assert_eq!(
        ring.counts(),
        Counts {
            received: 30,
            filtered: Some(0),
            dropped: 0,
            handed_over: 30
        }
    );
}
