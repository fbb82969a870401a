//! The ring beside `rtrb`: values of 64 bytes in batches of 32, from one thread to another, and back and forth in one thread.
//!
//!     cargo run --release -p weir-memory --example ring_speed -- [MILLIONS] [ROUNDS]
//!
//! Interleaved rounds, nanoseconds per value, median and range. Both sums are compared with the true one.

use rtrb::RingBuffer;
use std::hint::spin_loop;
use std::time::Instant;
use weir_memory::{Policy, Request, ring};

type Item = [u64; 8];
const BATCH: usize = 32;
const CAPACITY: usize = 4096;

fn main() {
    let mut arguments = std::env::args()
        .skip(1)
        .map(|word| word.parse::<u64>().expect("a number"));
    let total = arguments.next().unwrap_or(4) * 1_000_000;
    let rounds = arguments.next().unwrap_or(9);
    let plain = Request {
        pages: Policy::Virtual,
        populate: true,
        ..Request::default()
    };
    let huge = Request {
        populate: true,
        ..Request::default()
    };
    type Contest<'a> = (&'a str, Box<dyn Fn() -> u64 + 'a>);
    let contests: [Contest; 6] = [
        (
            "two threads, own, 4 KiB pages",
            Box::new(|| own(total, &plain)),
        ),
        ("two threads, own, auto", Box::new(|| own(total, &huge))),
        ("two threads, rtrb", Box::new(|| other(total))),
        (
            "one thread, own, 4 KiB pages",
            Box::new(|| own_alone(total, &plain)),
        ),
        (
            "one thread, own, auto",
            Box::new(|| own_alone(total, &huge)),
        ),
        ("one thread, rtrb", Box::new(|| other_alone(total))),
    ];
    let mut times = vec![Vec::new(); contests.len()];
    for _ in 0..rounds {
        for (times, (name, contest)) in times.iter_mut().zip(&contests) {
            let start = Instant::now();
            let sum = contest();
            times.push(start.elapsed().as_nanos() as f64 / total as f64);
            assert_eq!(sum, total * (total - 1) / 2, "{name} lost values");
        }
    }
    for (times, (name, _)) in times.iter_mut().zip(&contests) {
        times.sort_by(f64::total_cmp);
        let (first, last) = (times[0], times[times.len() - 1]);
        println!(
            "{name:<30}  {:>6.2} ns per value  ({first:.2} to {last:.2})",
            times[times.len() / 2]
        );
    }
}

/// Fills a batch with the values from `next` on; each value is its number eight times.
fn fill(batch: &mut [Item; BATCH], next: u64) {
    for (place, item) in batch.iter_mut().enumerate() {
        *item = [next + place as u64; 8];
    }
}

fn sum(items: &[Item]) -> u64 {
    items.iter().map(|item| item[7]).sum()
}

fn own(total: u64, request: &Request) -> u64 {
    let (mut producer, mut consumer) =
        ring::channel::<Item>(CAPACITY, request).expect("memory for a small ring");
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut batch = [[0; 8]; BATCH];
            for next in (0..total).step_by(BATCH) {
                fill(&mut batch, next);
                let mut left = &batch[..];
                while !left.is_empty() {
                    left = &left[producer.push(left)..];
                    if !left.is_empty() {
                        spin_loop();
                    }
                }
            }
        });
        let (mut batch, mut taken, mut result) = ([[0; 8]; BATCH], 0, 0);
        while taken < total {
            let count = consumer.pop(&mut batch);
            result += sum(&batch[..count]);
            taken += count as u64;
            if count == 0 {
                spin_loop();
            }
        }
        result
    })
}

fn other(total: u64) -> u64 {
    let (mut producer, mut consumer) = RingBuffer::<Item>::new(CAPACITY);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut batch = [[0; 8]; BATCH];
            for next in (0..total).step_by(BATCH) {
                fill(&mut batch, next);
                let mut left = &batch[..];
                while !left.is_empty() {
                    left = producer.push_partial_slice(left).1;
                    if !left.is_empty() {
                        spin_loop();
                    }
                }
            }
        });
        let (mut batch, mut taken, mut result) = ([[0; 8]; BATCH], 0, 0);
        while taken < total {
            let count = consumer.pop_partial_slice(&mut batch).0.len();
            result += sum(&batch[..count]);
            taken += count as u64;
            if count == 0 {
                spin_loop();
            }
        }
        result
    })
}

fn own_alone(total: u64, request: &Request) -> u64 {
    let (mut producer, mut consumer) =
        ring::channel::<Item>(CAPACITY, request).expect("memory for a small ring");
    let (mut batch, mut result) = ([[0; 8]; BATCH], 0);
    for next in (0..total).step_by(BATCH) {
        fill(&mut batch, next);
        producer.push(&batch);
        let count = consumer.pop(&mut batch);
        result += sum(&batch[..count]);
    }
    result
}

fn other_alone(total: u64) -> u64 {
    let (mut producer, mut consumer) = RingBuffer::<Item>::new(CAPACITY);
    let (mut batch, mut result) = ([[0; 8]; BATCH], 0);
    for next in (0..total).step_by(BATCH) {
        fill(&mut batch, next);
        let _ = producer.push_partial_slice(&batch);
        let count = consumer.pop_partial_slice(&mut batch).0.len();
        result += sum(&batch[..count]);
    }
    result
}
