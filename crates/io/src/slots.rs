//! The table of mappings that a signal handler reads while threads change it.
//!
//! A slot is claimed by one thread, published with its bounds, read by the handler, and given back. Only atomics: the
//! handler may run in any thread at any instruction. Checked under loom as it is shipped.

#[cfg(not(loom))]
use std::sync::atomic::{AtomicUsize, Ordering};

#[cfg(loom)]
use loom::sync::atomic::{AtomicUsize, Ordering};

/// A slot that nobody has.
const FREE: usize = 0;

/// A slot that is being filled.
const CLAIMED: usize = 1;

/// No fault so far.
const NO_FAULT: usize = usize::MAX;

/// One mapping, or none.
#[derive(Debug)]
pub(crate) struct Slot {
    /// Address of the first byte; [`FREE`] and [`CLAIMED`] are no addresses of mappings.
    base: AtomicUsize,
    len: AtomicUsize,
    /// Lowest offset that faulted.
    fault: AtomicUsize,
}

impl Slot {
    #[cfg(not(loom))]
    pub(crate) const fn new() -> Self {
        Self { base: AtomicUsize::new(FREE), len: AtomicUsize::new(0), fault: AtomicUsize::new(NO_FAULT) }
    }

    #[cfg(loom)]
    pub(crate) fn new() -> Self {
        Self { base: AtomicUsize::new(FREE), len: AtomicUsize::new(0), fault: AtomicUsize::new(NO_FAULT) }
    }

    /// Takes the slot for `base..base + len`, if it is free.
    pub(crate) fn claim(&self, base: usize, len: usize) -> bool {
        if self.base.compare_exchange(FREE, CLAIMED, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return false;
        }
        self.fault.store(NO_FAULT, Ordering::Relaxed);
        self.len.store(len, Ordering::Release);
        // Publishes the two stores above to whoever sees the address.
        self.base.store(base, Ordering::Release);
        true
    }

    /// Gives the slot back; the mapping is still there, and nobody reads it any more.
    pub(crate) fn release(&self) {
        self.base.store(FREE, Ordering::Release);
    }

    /// The offset of `address` in the slot's mapping, if it lies in it.
    ///
    /// Never right by chance: bounds of two owners are not mixed, since the address is read again behind the length.
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

    /// Notes a fault at `offset`.
    pub(crate) fn note(&self, offset: usize) {
        self.fault.fetch_min(offset, Ordering::AcqRel);
    }

    /// The lowest offset that faulted.
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

    /// Two threads use one slot in turn for mappings of different places; each one's reader (the handler runs in its thread)
    /// finds its own bounds and its own fault, never the other's.
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

    /// A handler in one thread looks for its own address while another thread claims and releases the same slot: it never
    /// takes the slot for its own.
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

    /// Readers on several threads fault in one mapping: the lowest place is kept.
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
