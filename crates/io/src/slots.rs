//! Slots of the table of mappings, which a signal handler reads while threads change it.
//!
//! A thread claims a slot, publishes it with its bounds, and gives it back; the handler reads it. All fields are atomics,
//! because the handler may run in any thread at any instruction. Tests under loom check this very code.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};

/// Base of a free slot.
const FREE: usize = 0;

/// Base of a slot that is being filled.
const CLAIMED: usize = 1;

/// Value of `fault` while no error has occurred.
const NO_FAULT: usize = usize::MAX;

/// Slot for one mapping.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Address of the first byte. No mapping has the address [`FREE`] or [`CLAIMED`].
    base: AtomicUsize,
    len: AtomicUsize,
    /// Lowest offset that faulted.
    fault: AtomicUsize,
}

impl Slot {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self {
            base: AtomicUsize::new(FREE),
            len: AtomicUsize::new(0),
            fault: AtomicUsize::new(NO_FAULT),
        }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self {
            base: AtomicUsize::new(FREE),
            len: AtomicUsize::new(0),
            fault: AtomicUsize::new(NO_FAULT),
        }
    }

    /// Claims the slot for `base..base + len`, if it is free; returns whether it was.
    pub(crate) fn claim(&self, base: usize, len: usize) -> bool {
        if self
            .base
            .compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed)
            .is_err()
        {
            return false;
        }
        self.fault.store(NO_FAULT, Ordering::Relaxed);
        self.len.store(len, Ordering::Release);
        // This store publishes the two stores above to every thread that reads the address.
        self.base.store(base, Ordering::Release);
        true
    }

    /// Frees the slot. The mapping must still exist, and no thread may read it any more.
    pub(crate) fn release(&self) {
        self.base.store(FREE, Ordering::Release);
    }

    /// Returns the offset of `address` in the slot's mapping, if the address lies in it.
    ///
    /// Bounds of two owners are never mixed, because the base is read again after the length.
    pub(crate) fn offset_of(&self, address: usize) -> Option<usize> {
        let base = self.base.load(Ordering::Acquire);
        if base == FREE || base == CLAIMED {
            return None;
        }
        let len = self.len.load(Ordering::Acquire);
        if self.base.load(Ordering::Relaxed) != base {
            return None;
        }
        address.checked_sub(base).filter(|&offset| offset < len)
    }

    /// Records an error at `offset`.
    pub(crate) fn note(&self, offset: usize) {
        self.fault.fetch_min(offset, Ordering::AcqRel);
    }

    /// Returns the lowest offset that faulted.
    pub(crate) fn fault(&self) -> Option<usize> {
        let at = self.fault.load(Ordering::Acquire);
        (at != NO_FAULT).then_some(at)
    }
}

#[cfg(all(test, loom))]
mod tests {
    use super::Slot;
    use loom::sync::Arc;
    use loom::thread;

    /// Two threads use one slot in turn, for mappings of different places. Each thread reads (as
    /// the handler in that thread would) its own bounds and its own error, never those of the other
    /// thread.
    #[test]
    fn a_slot_shows_each_owner_its_own_mapping() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let owners: Vec<_> = [(1000, 10), (5000, 20)]
                .into_iter()
                .map(|(base, len)| {
                    let slot = Arc::clone(&slot);
                    thread::spawn(move || {
                        if slot.claim(base, len) {
                            assert_eq!(slot.fault(), None);
                            assert_eq!(slot.offset_of(base + len - 1), Some(len - 1));
                            assert_eq!(slot.offset_of(base + len), None);
                            slot.note(7);
                            slot.note(3);
                            assert_eq!(slot.fault(), Some(3));
                            slot.release();
                        }
                    })
                })
                .collect();
            for owner in owners {
                owner.join().unwrap();
            }
        });
    }

    /// A handler looks for an address of its own thread while another thread claims and releases the same slot. The handler
    /// never finds its address in the slot of the other thread.
    #[test]
    fn a_slot_in_change_is_nobody_elses() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            let other = Arc::clone(&slot);
            assert!(slot.claim(1000, 10));
            let owner = thread::spawn(move || {
                other.release();
                assert!(other.claim(3000, 5000));
            });
            assert_eq!(slot.offset_of(1500), None);
            owner.join().unwrap();
        });
    }

    /// Readers on several threads fault in one mapping; the slot keeps the lowest offset.
    #[test]
    fn the_lowest_fault_is_kept() {
        loom::model(|| {
            let slot = Arc::new(Slot::new());
            assert!(slot.claim(1000, 10));
            let readers: Vec<_> = [6, 2]
                .into_iter()
                .map(|offset| {
                    let slot = Arc::clone(&slot);
                    thread::spawn(move || {
                        assert_eq!(slot.offset_of(1000 + offset), Some(offset));
                        slot.note(offset);
                    })
                })
                .collect();
            for reader in readers {
                reader.join().unwrap();
            }
            assert_eq!(slot.fault(), Some(2));
        });
    }
}
