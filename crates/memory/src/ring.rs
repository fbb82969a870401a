//! A bounded ring of plain values from one thread to another, in memory of a chosen kind.
//!
//! ```text
//! head: values taken so far (by the consumer)     tail: values put so far (by the producer)
//! slot of the n-th value: n mod capacity          tail - head values wait; both only grow, and wrap at 2^64
//! ```
//!
//! Each side keeps a copy of the other's index, and loads the index again only if the copy leaves no room or no values. So a
//! batch costs one store that the other side sees. Loads of a line that the other side wrote are rare (the cached indices of
//! FastForward-like queues; Lamport 1983 for the two indices). Nothing blocks and nothing spins here.
//!
//! Checked under loom as shipped, except for the slots, which are loom's own cells there.

use crate::{Error, Request};
use std::fmt;
use zerocopy::FromZeros;

#[cfg(not(loom))]
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

#[cfg(loom)]
use loom::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

/// A pair of cache lines of its own, because processors fetch lines in pairs.
#[derive(Debug)]
#[repr(align(128))]
struct Lines<T>(T);

struct Shared<T> {
    /// Number of values taken; written by the consumer.
    head: Lines<AtomicUsize>,
    /// Number of values put; written by the producer.
    tail: Lines<AtomicUsize>,
    /// Whether one of the sides is gone.
    closed: Lines<AtomicBool>,
    slots: Slots<T>,
}

/// A ring for `capacity` values, rounded up to a power of two (at least 1).
///
/// **Cost**: the region is made here; putting and taking never allocate or enter the kernel.
/// **Errors**: as of [`crate::Region::zeroed`].
pub fn channel<T: Copy + FromZeros + Send>(
    capacity: usize,
    request: &Request,
) -> Result<(Producer<T>, Consumer<T>), Error> {
    let too_large = Error::TooLarge {
        len: capacity,
        size: size_of::<T>(),
    };
    let capacity = capacity
        .max(1)
        .checked_next_power_of_two()
        .ok_or(too_large)?;
    let shared = Arc::new(Shared {
        head: Lines(AtomicUsize::new(0)),
        tail: Lines(AtomicUsize::new(0)),
        closed: Lines(AtomicBool::new(false)),
        slots: Slots::new(capacity, request)?,
    });
    Ok((
        Producer {
            shared: Arc::clone(&shared),
            capacity,
            tail: 0,
            head_seen: 0,
        },
        Consumer {
            shared,
            capacity,
            head: 0,
            tail_seen: 0,
        },
    ))
}

/// The side that puts values. **Threads**: one at a time; it may be sent to another thread.
pub struct Producer<T> {
    shared: Arc<Shared<T>>,
    capacity: usize,
    /// Number of values put: the shared tail.
    tail: usize,
    /// The head as last seen; the true one is at least this.
    head_seen: usize,
}

impl<T: Copy> Producer<T> {
    /// Puts as many of `items` as fit, in order, and returns their number. All of them become
    /// visible together.
    ///
    /// **Cost**: copies, one store; one load if the ring seems too full.
    #[inline]
    pub fn push(&mut self, items: &[T]) -> usize {
        let mut room = self.capacity - self.tail.wrapping_sub(self.head_seen);
        if room < items.len() {
            // Acquire: the consumer has copied the values in the slots that are reused below.
            self.head_seen = self.shared.head.0.load(Ordering::Acquire);
            room = self.capacity - self.tail.wrapping_sub(self.head_seen);
        }
        let count = room.min(items.len());
        let at = self.tail & (self.capacity - 1);
        let first = count.min(self.capacity - at);
        // SAFETY: the slots from tail on, `room` of them, are the producer's until the store below; there is one producer.
        unsafe {
            self.shared.slots.write(at, &items[..first]);
            self.shared.slots.write(0, &items[first..count]);
        }
        self.tail = self.tail.wrapping_add(count);
        // Release: the values are written before the index is visible.
        self.shared.tail.0.store(self.tail, Ordering::Release);
        count
    }

    /// Number of waiting values, at least: the consumer may be taking some.
    pub fn len(&self) -> usize {
        self.tail
            .wrapping_sub(self.shared.head.0.load(Ordering::Acquire))
    }
}

/// The side that takes values. **Threads**: one at a time; it may be sent to another thread.
pub struct Consumer<T> {
    shared: Arc<Shared<T>>,
    capacity: usize,
    /// Number of values taken: the shared head.
    head: usize,
    /// The tail as last seen; the true one is at least this.
    tail_seen: usize,
}

impl<T: Copy> Consumer<T> {
    /// Takes as many values as there are and fit, the oldest first, into the front of `items`, and returns their number.
    ///
    /// **Cost**: copies, one store; one load if the ring seems to hold too few.
    #[inline]
    pub fn pop(&mut self, items: &mut [T]) -> usize {
        let mut there = self.tail_seen.wrapping_sub(self.head);
        if there < items.len() {
            // Acquire: the values below the index are written.
            self.tail_seen = self.shared.tail.0.load(Ordering::Acquire);
            there = self.tail_seen.wrapping_sub(self.head);
        }
        let count = there.min(items.len());
        let at = self.head & (self.capacity - 1);
        let first = count.min(self.capacity - at);
        // SAFETY: the slots from head on, `there` of them, are the consumer's until the store below; there is one consumer.
        unsafe {
            self.shared.slots.read(at, &mut items[..first]);
            self.shared.slots.read(0, &mut items[first..count]);
        }
        self.head = self.head.wrapping_add(count);
        // Release: the values are copied before the producer may overwrite them.
        self.shared.head.0.store(self.head, Ordering::Release);
        count
    }

    /// Number of waiting values, at least: the producer may be putting more.
    pub fn len(&self) -> usize {
        self.shared
            .tail
            .0
            .load(Ordering::Acquire)
            .wrapping_sub(self.head)
    }
}

/// Methods that both sides have.
macro_rules! side {
    ($side:ident, $other:literal) => {
        impl<T: Copy> $side<T> {
            /// Number of values that fit.
            pub fn capacity(&self) -> usize {
                self.capacity
            }

            /// Whether no value waits.
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            #[doc = concat!("Whether the ", $other, " is gone. All that it did before is visible once this is true:")]
            /// a consumer that sees it, and then pops nothing, has taken all values.
            pub fn is_closed(&self) -> bool {
                self.shared.closed.0.load(Ordering::Acquire)
            }

            /// The memory that the ring really has, read back now.
            #[cfg(not(loom))]
            pub fn obtained(&self) -> crate::Obtained {
                self.shared.slots.0.obtained()
            }
        }

        impl<T> Drop for $side<T> {
            fn drop(&mut self) {
                self.shared.closed.0.store(true, Ordering::Release);
            }
        }

        impl<T: Copy> fmt::Debug for $side<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({} of {})", stringify!($side), self.len(), self.capacity)
            }
        }
    };
}

side!(Producer, "consumer");
side!(Consumer, "producer");

/// The slots. Each side owns a part, which follows from the indices.
#[cfg(not(loom))]
struct Slots<T>(crate::Table<std::cell::UnsafeCell<T>>);

// SAFETY: values are copied in by one thread and out by another, which `T: Send` allows. The caller of `write` and `read`
// promises that no two threads access a slot at the same time.
#[cfg(not(loom))]
unsafe impl<T: Send> Sync for Slots<T> {}

#[cfg(not(loom))]
impl<T: Copy> Slots<T> {
    fn new(capacity: usize, request: &Request) -> Result<Self, Error>
    where
        T: FromZeros,
    {
        crate::Table::zeroed(capacity, request).map(Self)
    }

    /// Copies `items` into the slots from `at` on.
    ///
    /// # Safety
    /// `at + items.len()` is at most the capacity, and no other thread accesses these slots now.
    #[inline]
    unsafe fn write(&self, at: usize, items: &[T]) {
        let slots = std::cell::UnsafeCell::raw_get(self.0.as_ptr());
        // SAFETY: in bounds and without other access, as promised; `items` is borrowed from elsewhere, because slots are
        // never borrowed.
        unsafe { std::ptr::copy_nonoverlapping(items.as_ptr(), slots.add(at), items.len()) };
    }

    /// Copies the slots from `at` on into `items`.
    ///
    /// # Safety
    /// The promises of `write`.
    #[inline]
    unsafe fn read(&self, at: usize, items: &mut [T]) {
        let slots = std::cell::UnsafeCell::raw_get(self.0.as_ptr());
        // SAFETY: as for `write`; slots hold zeroed values or copies of `T`, both valid.
        unsafe { std::ptr::copy_nonoverlapping(slots.add(at), items.as_mut_ptr(), items.len()) };
    }
}

#[cfg(loom)]
struct Slots<T>(Vec<loom::cell::UnsafeCell<T>>);

// SAFETY: as for the other `Slots`; loom reports any breach of the promise.
#[cfg(loom)]
unsafe impl<T: Send> Sync for Slots<T> {}

#[cfg(loom)]
impl<T: Copy> Slots<T> {
    fn new(capacity: usize, _: &Request) -> Result<Self, Error>
    where
        T: FromZeros,
    {
        Ok(Self(
            (0..capacity)
                .map(|_| loom::cell::UnsafeCell::new(T::new_zeroed()))
                .collect(),
        ))
    }

    /// # Safety
    /// The promises of `write` above.
    unsafe fn write(&self, at: usize, items: &[T]) {
        for (slot, item) in self.0[at..].iter().zip(items) {
            // SAFETY: no other thread accesses the slot now, as promised.
            slot.with_mut(|slot| unsafe { *slot = *item });
        }
    }

    /// # Safety
    /// The promises of `write` above.
    unsafe fn read(&self, at: usize, items: &mut [T]) {
        for (slot, item) in self.0[at..].iter().zip(items) {
            // SAFETY: no other thread accesses the slot now, as promised.
            slot.with(|slot| unsafe { *item = *slot });
        }
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::*;
    use loom::thread;

    /// More values than slots, in batches that wrap: each comes out once, in order, and the end is reported only after all
    /// of them.
    #[test]
    fn values_come_out_once_in_order() {
        loom::model(|| {
            let (mut producer, mut consumer) = channel::<u32>(2, &Request::default()).unwrap();
            let putting = thread::spawn(move || {
                let (mut left, mut tries) = (&[1u32, 2, 3][..], 0);
                while !left.is_empty() && tries < 3 {
                    left = &left[producer.push(left)..];
                    tries += 1;
                    thread::yield_now();
                }
                3 - left.len()
            });
            let mut taken = Vec::new();
            let mut items = [0; 2];
            for _ in 0..2 {
                let count = consumer.pop(&mut items);
                taken.extend_from_slice(&items[..count]);
                thread::yield_now();
            }
            let put = putting.join().unwrap();
            assert!(consumer.is_closed());
            while consumer.len() > 0 {
                let count = consumer.pop(&mut items);
                taken.extend_from_slice(&items[..count]);
            }
            assert_eq!(taken, [1, 2, 3][..put]);
        });
    }

    /// A consumer that finds the producer gone sees all values that the producer put.
    #[test]
    fn closed_means_that_everything_is_visible() {
        loom::model(|| {
            let (mut producer, mut consumer) = channel::<u32>(2, &Request::default()).unwrap();
            let putting = thread::spawn(move || {
                assert_eq!(producer.push(&[7]), 1);
            });
            let closed = consumer.is_closed();
            let count = consumer.pop(&mut [0; 2]);
            assert!(!closed || count == 1);
            putting.join().unwrap();
        });
    }

    /// The producer overwrites a slot only after the consumer has copied it.
    #[test]
    fn a_slot_is_used_again_only_after_it_was_read() {
        loom::model(|| {
            let (mut producer, mut consumer) = channel::<u32>(1, &Request::default()).unwrap();
            assert_eq!(producer.push(&[1]), 1);
            let taking = thread::spawn(move || {
                let mut items = [0; 1];
                assert_eq!(consumer.pop(&mut items), 1);
                assert_eq!(items, [1]);
                consumer
            });
            let again = producer.push(&[2]);
            let mut consumer = taking.join().unwrap();
            let mut items = [0; 1];
            assert_eq!(consumer.pop(&mut items), again);
            assert_eq!(items[0], 2 * again as u32);
        });
    }
}
