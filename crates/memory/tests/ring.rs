//! The ring against a serial queue, and between two threads.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_memory::{Policy, Request, ring};
use weir_testkit::Random;

const STEPS: usize = if cfg!(miri) { 300 } else { 50_000 };

#[test]
fn one_thread_sees_a_queue() {
    for (seed, capacity) in [(1, 1), (2, 2), (3, 7), (4, 64), (5, 100)] {
        let mut choices = Random(seed);
        let (mut producer, mut consumer) =
            ring::channel::<u64>(capacity, &Request::default()).unwrap();
        assert_eq!(producer.capacity(), capacity.next_power_of_two());
        let mut queue: VecDeque<u64> = VecDeque::new();
        let mut next = 0;
        for _ in 0..STEPS {
            if choices.below(2) == 0 {
                let items: Vec<u64> = (0..choices.below(2 * capacity + 2) as u64)
                    .map(|i| next + i)
                    .collect();
                let pushed = producer.push(&items);
                assert_eq!(pushed, items.len().min(producer.capacity() - queue.len()));
                queue.extend(&items[..pushed]);
                next += pushed as u64;
            } else {
                let mut items = vec![0; choices.below(2 * capacity + 2)];
                let popped = consumer.pop(&mut items);
                assert_eq!(popped, items.len().min(queue.len()));
                assert!(queue.drain(..popped).eq(items[..popped].iter().copied()));
            }
            assert_eq!((producer.len(), consumer.len()), (queue.len(), queue.len()));
            assert_eq!(producer.is_empty(), queue.is_empty());
        }
    }
}

#[test]
fn each_side_sees_the_other_go() {
    let (mut producer, mut consumer) = ring::channel::<u8>(4, &Request::default()).unwrap();
    assert!(!producer.is_closed() && !consumer.is_closed());
    producer.push(&[1, 2]);
    drop(producer);
    assert!(consumer.is_closed());
    let mut items = [0; 4];
    assert_eq!(consumer.pop(&mut items), 2);
    assert_eq!(items, [1, 2, 0, 0]);
    let (producer, consumer) = ring::channel::<u8>(4, &Request::default()).unwrap();
    drop(consumer);
    assert!(producer.is_closed());
}

/// Every value arrives once, in order and intact: each value is its number in eight words.
#[test]
fn two_threads_hand_over_everything_in_order() {
    let total: u64 = if cfg!(miri) { 300 } else { 1_000_000 };
    for (capacity, pages) in [
        (1, Policy::Auto),
        (8, Policy::Auto),
        (4096, Policy::Virtual),
    ] {
        let pages = if cfg!(miri) { Policy::Auto } else { pages };
        let request = Request {
            pages,
            ..Request::default()
        };
        let (producer, mut consumer) = ring::channel::<[u64; 8]>(capacity, &request).unwrap();
        // In a tiny ring, values are passed one by one, which is slow for two threads on one core.
        let total = if capacity < 8 { total / 100 } else { total };
        let full = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut next, mut choices) = (0, Random(9));
                // Moved here, so that the producer is dropped when the thread ends.
                let mut producer = producer;
                while next < total {
                    let end = total.min(next + 1 + choices.below(2 * capacity.min(100)) as u64);
                    let items: Vec<_> = (next..end).map(|number| [number; 8]).collect();
                    let pushed = producer.push(&items);
                    if pushed < items.len() {
                        full.store(true, Ordering::Relaxed);
                        std::thread::yield_now();
                    }
                    next += pushed as u64;
                }
            });
            let (mut expected, mut choices) = (0, Random(11));
            let mut items = [[0; 8]; 200];
            loop {
                let closed = consumer.is_closed();
                let popped = consumer.pop(&mut items[..1 + choices.below(200)]);
                for item in &items[..popped] {
                    assert_eq!(*item, [expected; 8]);
                    expected += 1;
                }
                if popped == 0 && closed {
                    break;
                }
                if popped == 0 {
                    std::thread::yield_now();
                }
            }
            assert_eq!(expected, total);
        });
        assert!(
            capacity > 8 || full.load(Ordering::Relaxed),
            "the ring was never full, nothing was tested"
        );
    }
}

#[test]
fn a_ring_lives_in_the_memory_that_was_asked_for() {
    if cfg!(miri) {
        return;
    }
    let request = Request {
        pages: Policy::Virtual,
        populate: true,
        ..Request::default()
    };
    let (producer, consumer) = ring::channel::<[u8; 64]>(1000, &request).unwrap();
    for obtained in [producer.obtained(), consumer.obtained()] {
        assert_eq!(
            (obtained.bytes, obtained.resident_bytes),
            (1024 * 64, 1024 * 64)
        );
        assert_eq!(obtained.policy, Policy::Virtual);
    }
    assert!(ring::channel::<u64>(usize::MAX, &request).is_err());
}
