//! Highest gain of a second thread on this machine: the yardstick for two workers.
//!
//! Cores of a virtual machine share memory, caches and power with neighbours that a measurement cannot see.

use crate::rivals::median;
use std::hint::black_box;
use std::time::Instant;

/// Gains of two threads over one, as medians over the rounds.
#[derive(Clone, Copy, Debug)]
pub struct Ceiling {
    /// Gain when computing in registers.
    pub computing: f64,
    /// Gain when adding up memory.
    pub reading: f64,
}

/// Measures both over `words` words of memory and as many steps, with one thread and with two in turn.
pub fn measure(rounds: usize, words: usize) -> Ceiling {
    let memory: Vec<u64> = (0..words as u64).collect();
    let halves = memory.split_at(memory.len() / 2);
    let expected = memory
        .iter()
        .fold(0u64, |sum, word| sum.wrapping_add(*word));
    let steps = words as u64;
    let (mut computing, mut reading) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        computing.push(
            seconds(|| compute(steps))
                / seconds(|| both(|| compute(steps / 2), || compute(steps / 2))),
        );
        let one = seconds(|| assert_eq!(add_up(&memory), expected, "one thread reads all of it"));
        let two = seconds(|| {
            let (a, b) = both(|| add_up(halves.0), || add_up(halves.1));
            assert_eq!(a.wrapping_add(b), expected, "two threads read all of it");
        });
        reading.push(one / two);
    }
    Ceiling {
        computing: median(computing.into_iter()),
        reading: median(reading.into_iter()),
    }
}

fn seconds<T>(work: impl FnOnce() -> T) -> f64 {
    let begun = Instant::now();
    black_box(work());
    begun.elapsed().as_secs_f64()
}

fn both<T: Send>(a: impl FnOnce() -> T + Send, b: impl FnOnce() -> T + Send) -> (T, T) {
    std::thread::scope(|scope| {
        let other = scope.spawn(b);
        (a(), other.join().expect("the work does not panic"))
    })
}

/// A chain of multiplications and additions.
fn compute(steps: u64) -> u64 {
    (0..steps).fold(1, |x, i| {
        black_box(x ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15)
    })
}

fn add_up(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, word| sum.wrapping_add(*word))
}
