//! One slot that several threads change: the protocol of its lock. Checked under loom as it is shipped.
//!
//! ```text
//! word 0   packets; the uppermost bit is the lock
//! word 1   bytes
//! word 2.. the key, zero-filled
//! ```
//!
//! The thread that sets the lock bit owns the other words until it stores word 0 without the bit. So key and counts always
//! change together, and a reader that takes the lock sees them together.

use crate::Counts;

#[cfg(not(loom))]
pub(super) use std::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering},
    thread::yield_now,
};

#[cfg(loom)]
use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicU64, Ordering},
    thread::yield_now,
};

/// Words of a slot before the key.
pub(super) const HEAD: usize = 2;

/// Bit of the first word that is set while a thread owns the slot.
const LOCK: u64 = 1 << 63;

/// Attempts to take a lock before the thread lets others run. An owner needs some ten nanoseconds, unless it was interrupted.
const ATTEMPTS: u32 = 64;

/// The words of a key; zeros fill the last word.
#[inline(always)]
fn words(key: &[u8]) -> impl Iterator<Item = u64> {
    let (whole, rest) = key.as_chunks::<8>();
    let last = (!rest.is_empty()).then(|| {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        last
    });
    whole.iter().copied().chain(last).map(u64::from_ne_bytes)
}

/// Outcome of an update.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Added {
    /// The key was in the slot.
    Known,
    /// The key was put into a free slot.
    First,
    /// The key replaced another key, which had these counts.
    Replaced(Counts),
}

/// Takes the lock of a slot, and returns its number of packets.
#[inline(always)]
fn lock(slot: &[AtomicU64]) -> u64 {
    let mut attempts = 0u32;
    loop {
        let packets = slot[0].load(Ordering::Relaxed);
        if packets & LOCK == 0
            && slot[0]
                .compare_exchange_weak(
                    packets,
                    packets | LOCK,
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok()
        {
            return packets;
        }
        attempts += 1;
        if attempts.is_multiple_of(ATTEMPTS) || cfg!(loom) {
            yield_now();
        } else {
            spin_loop();
        }
    }
}

/// Counts a packet of `bytes` under the key with these bytes.
#[inline(always)]
pub(super) fn add(slot: &[AtomicU64], key: &[u8], bytes: u64) -> Added {
    let packets = lock(slot);
    let (head, place) = slot.split_at(HEAD);
    let had = head[1].load(Ordering::Relaxed);
    let known = packets != 0
        && words(key)
            .zip(place)
            .all(|(word, place)| place.load(Ordering::Relaxed) == word);
    if known {
        head[1].store(had.saturating_add(bytes), Ordering::Relaxed);
        head[0].store(packets + 1, Ordering::Release);
        return Added::Known;
    }
    words(key)
        .zip(place)
        .for_each(|(word, place)| place.store(word, Ordering::Relaxed));
    head[1].store(bytes, Ordering::Relaxed);
    head[0].store(1, Ordering::Release);
    if packets == 0 {
        Added::First
    } else {
        Added::Replaced(Counts {
            packets,
            bytes: had,
        })
    }
}

/// Reads a slot at one instant: copies the key to `key` and returns its counts. A free slot has none, and leaves `key` as it is.
pub(super) fn read(slot: &[AtomicU64], key: &mut [u8]) -> Option<Counts> {
    let packets = lock(slot);
    let bytes = slot[1].load(Ordering::Relaxed);
    if packets != 0 {
        for (part, word) in key.chunks_mut(8).zip(&slot[HEAD..]) {
            let word = word.load(Ordering::Relaxed).to_ne_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
    slot[0].store(packets, Ordering::Release);
    (packets != 0).then_some(Counts { packets, bytes })
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    /// Bytes of a packet tell which key it belongs to, and how many packets were counted.
    const BYTES: [u64; 2] = [1, 100];

    fn key(number: usize) -> [u8; 12] {
        let mut key = [0; 12];
        key[0] = number as u8;
        key[11] = 7 * number as u8;
        key
    }

    fn empty() -> Arc<Vec<AtomicU64>> {
        Arc::new((0..HEAD + 2).map(|_| AtomicU64::new(0)).collect())
    }

    /// Counts packets of these keys, and returns the evicted counts, by key.
    fn count(slot: &[AtomicU64], numbers: &[usize]) -> [u64; 2] {
        let mut evicted = [0; 2];
        for &number in numbers {
            if let Added::Replaced(counts) = add(slot, &key(number), BYTES[number]) {
                let other = usize::from(counts.bytes >= BYTES[1]);
                assert_ne!(other, number, "a key never replaces itself");
                assert_eq!(
                    counts.bytes,
                    counts.packets * BYTES[other],
                    "counts of one key"
                );
                evicted[other] += counts.packets;
            }
        }
        evicted
    }

    fn all_are_counted(here: &'static [usize], there: &'static [usize]) {
        loom::model(move || {
            let slot = empty();
            let other = Arc::clone(&slot);
            let thread = thread::spawn(move || count(&other, there));
            let mine = count(&slot, here);
            let theirs = thread.join().unwrap();
            let mut found = key(0);
            let counts = read(&slot, &mut found).expect("the last packet is in the slot");
            let last = usize::from(found == key(1));
            assert_eq!(found, key(last), "no mixture of two keys");
            assert_eq!(counts.bytes, counts.packets * BYTES[last]);
            let mut sum = [0, 1].map(|number| mine[number] + theirs[number]);
            sum[last] += counts.packets;
            let sent = |number| here.iter().chain(there).filter(|it| **it == number).count() as u64;
            assert_eq!(sum, [sent(0), sent(1)], "each packet is counted once");
        });
    }

    #[test]
    fn packets_of_one_key_are_all_counted() {
        all_are_counted(&[0, 0], &[0, 0]);
    }

    #[test]
    fn keys_that_replace_each_other_lose_no_packet() {
        all_are_counted(&[0, 0], &[1, 1]);
        all_are_counted(&[0, 1], &[1, 0]);
    }

    #[test]
    fn a_reader_finds_key_and_counts_of_one_instant() {
        loom::model(|| {
            let slot = empty();
            let other = Arc::clone(&slot);
            let thread = thread::spawn(move || count(&other, &[0, 1]));
            let mut found = [0xff; 12];
            if let Some(counts) = read(&slot, &mut found) {
                let number = usize::from(found == key(1));
                assert_eq!(found, key(number));
                assert_eq!(
                    counts,
                    Counts {
                        packets: 1,
                        bytes: BYTES[number]
                    }
                );
            }
            assert_eq!(thread.join().unwrap(), [1, 0]);
        });
    }
}
