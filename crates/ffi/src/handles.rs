//! Handles: numbers by which callers name the objects of this library.
//!
//! A handle is checked at each call. So a closed, foreign or invented handle is refused, and never dereferenced.
//!
//! ```text
//! handle   generation (32 bits) | kind of object (4 bits) | place in the table + 1 (28 bits)
//! state    generation (32 bits) | open (1 bit) | calls inside (31 bits)
//! ```
//! A state changes by compare-and-swap from what the handle says, so a wrong handle changes
//! nothing. Calls on objects of some kinds are inside together; calls on objects of other kinds run
//! one after the other, which saves an atomic operation per call.
//!
//! An object is freed by the change of its state from open without calls inside to the next generation. A generation is used once:
//! a place whose generations are used up stays empty.

use std::cell::UnsafeCell;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};

/// Places in a chunk of the table.
const CHUNK: usize = 1024;

/// Most chunks.
const CHUNKS: usize = 64;

/// Lowest bit of the kind in a handle.
const KIND: u32 = 28;

const OPEN: u64 = 1 << 31;
const CALLS: u64 = OPEN - 1;

/// Reason why a handle is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No object has this handle, or none any more.
    Closed,
    /// Other calls use the object.
    Busy,
    /// The object was made by the parent of this process.
    Forked,
}

// Threads that use different objects share no cache line.
#[repr(align(64))]
#[derive(Debug)]
struct Slot<T> {
    state: AtomicU64,
    /// Number of forks before the object was made.
    forks: AtomicU32,
    /// Place of the next free slot + 1, while this one is free.
    next: AtomicU32,
    value: UnsafeCell<Option<T>>,
}

/// A table of objects.
#[derive(Debug)]
pub struct Table<T> {
    chunks: [AtomicPtr<Slot<T>>; CHUNKS],
    /// Number of places that were ever in use.
    used: AtomicU32,
    /// First free place + 1 in the lower half; the upper half counts changes, so that no change is mistaken for none.
    free: AtomicU64,
    /// Fork depth: the number of forks between the process that loaded the library and this
    /// process.
    forks: AtomicU32,
}

// SAFETY: `value` is written by the one thread that took the slot out of the list of free ones, or that ended its generation while
// no call was inside; other threads get shared references while they are counted as calls inside.
unsafe impl<T: Send + Sync> Sync for Table<T> {}

/// An object in use by a call.
#[derive(Debug)]
pub struct Inside<'a, T> {
    slot: &'a Slot<T>,
    value: &'a T,
    /// The state to store at the end of a call that is inside alone; 0 for a call that runs next to
    /// others.
    alone: u64,
}

impl<T> std::ops::Deref for Inside<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        self.value
    }
}

impl<T> Drop for Inside<'_, T> {
    fn drop(&mut self) {
        if self.alone > 0 {
            // Nobody else changes the state while this call is inside.
            self.slot.state.store(self.alone, Ordering::Release);
        } else {
            self.slot.state.fetch_sub(1, Ordering::Release);
        }
    }
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Table<T> {
    /// Makes an empty table.
    pub const fn new() -> Self {
        Self {
            chunks: [const { AtomicPtr::new(std::ptr::null_mut()) }; CHUNKS],
            used: AtomicU32::new(0),
            free: AtomicU64::new(0),
            forks: AtomicU32::new(0),
        }
    }

    /// Notes that this process is the child of a fork: objects of before are refused.
    pub fn forked(&self) {
        self.forks.fetch_add(1, Ordering::Relaxed);
    }

    fn slot(&self, place: u32) -> Option<&Slot<T>> {
        let chunk = self
            .chunks
            .get(place as usize / CHUNK)?
            .load(Ordering::Acquire);
        // SAFETY: a chunk that is not null has `CHUNK` slots and is never freed.
        (!chunk.is_null()).then(|| unsafe { &*chunk.add(place as usize % CHUNK) })
    }

    /// Returns a free place.
    fn take_place(&self) -> Option<u32> {
        let mut free = self.free.load(Ordering::Acquire);
        while let Some(place) = (free as u32).checked_sub(1) {
            let next = self.slot(place)?.next.load(Ordering::Relaxed);
            let new = (free >> 32).wrapping_add(1) << 32 | u64::from(next);
            match self
                .free
                .compare_exchange_weak(free, new, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return Some(place),
                Err(now) => free = now,
            }
        }
        let place = self
            .used
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
                (used < (CHUNK * CHUNKS) as u32).then_some(used + 1)
            });
        let place = place.ok()?;
        let chunk = &self.chunks[place as usize / CHUNK];
        if chunk.load(Ordering::Acquire).is_null() {
            let slot = |_| Slot {
                state: AtomicU64::new(1 << 32),
                forks: AtomicU32::new(0),
                next: AtomicU32::new(0),
                value: UnsafeCell::new(None),
            };
            let made: Box<[Slot<T>]> = (0..CHUNK).map(slot).collect();
            let made = Box::into_raw(made).cast::<Slot<T>>();
            let null = std::ptr::null_mut();
            if chunk
                .compare_exchange(null, made, Ordering::AcqRel, Ordering::Acquire)
                .is_err()
            {
                // SAFETY: `made` is the box from above, which nobody else has seen.
                drop(unsafe { Box::from_raw(std::ptr::slice_from_raw_parts_mut(made, CHUNK)) });
            }
        }
        Some(place)
    }

    fn give_place(&self, place: u32, slot: &Slot<T>) {
        let mut free = self.free.load(Ordering::Acquire);
        loop {
            slot.next.store(free as u32, Ordering::Relaxed);
            let new = (free >> 32).wrapping_add(1) << 32 | u64::from(place + 1);
            match self
                .free
                .compare_exchange_weak(free, new, Ordering::AcqRel, Ordering::Acquire)
            {
                Ok(_) => return,
                Err(now) => free = now,
            }
        }
    }

    /// Adds an object of a kind below 16, and returns its handle, which is never 0. **Cost**: some atomic operations. **Errors**: the
    /// table is full, and the object comes back.
    pub fn insert(&self, value: T, kind: u32) -> Result<u64, T> {
        let Some((place, slot)) = self
            .take_place()
            .and_then(|place| Some((place, self.slot(place)?)))
        else {
            return Err(value);
        };
        // SAFETY: the place was taken out of the free ones, so no other thread writes; and none reads before the slot is open.
        unsafe { *slot.value.get() = Some(value) };
        slot.forks
            .store(self.forks.load(Ordering::Relaxed), Ordering::Relaxed);
        // Calls with wrong handles change nothing, so the state of a closed slot is its owner's.
        let state = slot.state.load(Ordering::Relaxed);
        slot.state.store(state | OPEN, Ordering::Release);
        Ok(state >> 32 << 32 | u64::from(kind << KIND) | u64::from(place + 1))
    }

    /// The slot of a handle, and its state while it is open without calls.
    #[inline]
    fn named(&self, handle: u64, kind: u32) -> Result<(u32, &Slot<T>, u64), Refused> {
        let (low, open) = (handle as u32, handle >> 32 << 32 | OPEN);
        let place = (low & ((1 << KIND) - 1))
            .checked_sub(1)
            .filter(|_| low >> KIND == kind)
            .ok_or(Refused::Closed)?;
        let slot = self.slot(place).ok_or(Refused::Closed)?;
        if slot.forks.load(Ordering::Relaxed) != self.forks.load(Ordering::Relaxed) {
            let is_open = slot.state.load(Ordering::Acquire) & !CALLS == open;
            return Err(if is_open {
                Refused::Forked
            } else {
                Refused::Closed
            });
        }
        Ok((place, slot, open))
    }

    /// Returns the object of a handle, which stays until the result is dropped. Other calls may be
    /// inside at the same time. **Cost**: two atomic operations.
    pub fn get(&self, handle: u64, kind: u32) -> Result<Inside<'_, T>, Refused> {
        let (_, slot, open) = self.named(handle, kind)?;
        let enter = |state: u64| (state & !CALLS == open).then_some(state + 1);
        slot.state
            .fetch_update(Ordering::Acquire, Ordering::Relaxed, enter)
            .map_err(|_| Refused::Closed)?;
        Self::inside(slot, 0)
    }

    /// The same, for kinds of which all calls are made so: others wait until the result is dropped. **Cost**: one atomic operation.
    #[inline]
    pub fn get_alone(&self, handle: u64, kind: u32) -> Result<Inside<'_, T>, Refused> {
        let (_, slot, open) = self.named(handle, kind)?;
        while let Err(state) =
            slot.state
                .compare_exchange(open, open + 1, Ordering::Acquire, Ordering::Relaxed)
        {
            if state & !CALLS != open {
                return Err(Refused::Closed);
            }
            std::thread::yield_now();
        }
        Self::inside(slot, open)
    }

    #[inline]
    fn inside(slot: &Slot<T>, alone: u64) -> Result<Inside<'_, T>, Refused> {
        // SAFETY: the slot is open, and stays so while this call is counted.
        match unsafe { (*slot.value.get()).as_ref() } {
            Some(value) => Ok(Inside { slot, value, alone }),
            None => Err(Refused::Closed),
        }
    }

    /// Takes the object of a handle out of the table, if no call uses it and `allows` agrees.
    ///
    /// `allows` is called while no call can use the object.
    pub fn remove(
        &self,
        handle: u64,
        kind: u32,
        allows: impl FnOnce(&T) -> bool,
    ) -> Result<T, Refused> {
        let (place, slot, open) = self.named(handle, kind)?;
        // Not open and not the next generation either: calls are refused, and the slot is in nobody's hands but ours.
        match slot
            .state
            .compare_exchange(open, open & !OPEN, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => {}
            Err(state) if state & !CALLS == open => return Err(Refused::Busy),
            Err(_) => return Err(Refused::Closed),
        }
        // SAFETY: the slot was open without calls inside, and is closed now.
        let value = unsafe { &mut *slot.value.get() };
        if !value.as_ref().is_some_and(allows) {
            slot.state.store(open, Ordering::Release);
            return Err(Refused::Busy);
        }
        let taken = value.take().ok_or(Refused::Closed);
        let next = (handle >> 32) + 1;
        slot.state.store(next << 32, Ordering::Release);
        if next < u64::from(u32::MAX) {
            self.give_place(place, slot);
        }
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::sync::atomic::AtomicUsize;

    #[test]
    fn a_handle_names_its_object_until_it_is_removed_and_never_again() {
        let table = Table::new();
        let mut known = HashSet::from([0]);
        assert_eq!(table.get(0, 3).err(), Some(Refused::Closed));
        for turn in 0..5000 {
            let handles = [turn, turn + 1].map(|value| table.insert(value, 3).unwrap());
            for (handle, value) in handles.into_iter().zip([turn, turn + 1]) {
                assert!(known.insert(handle), "a handle is given once");
                for alone in [false, true] {
                    let inside = if alone {
                        table.get_alone(handle, 3)
                    } else {
                        table.get(handle, 3)
                    };
                    let inside = inside.unwrap();
                    assert_eq!(
                        (*inside, table.remove(handle, 3, |_| true).err()),
                        (value, Some(Refused::Busy))
                    );
                }
                assert_eq!(
                    table.remove(handle, 3, |_| false).err(),
                    Some(Refused::Busy)
                );
                assert_eq!(
                    table.get(handle, 2).err(),
                    Some(Refused::Closed),
                    "another kind"
                );
                assert_eq!(table.remove(handle, 3, |_| true), Ok(value));
                assert_eq!(table.get(handle, 3).err(), Some(Refused::Closed));
                assert_eq!(table.get_alone(handle, 3).err(), Some(Refused::Closed));
                assert_eq!(table.remove(handle, 3, |_| true), Err(Refused::Closed));
            }
        }
        for invented in [1, 1 << 32, u64::MAX, 77 << 32 | 1, 1 << 32 | 60_000] {
            for kind in [0, 3, 15] {
                assert_eq!(table.get(invented, kind).err(), Some(Refused::Closed));
                assert_eq!(table.get_alone(invented, kind).err(), Some(Refused::Closed));
                assert_eq!(table.remove(invented, kind, |_| true), Err(Refused::Closed));
            }
        }
    }

    #[test]
    fn a_full_table_says_so_and_goes_on() {
        let table = Table::new();
        let handles: Vec<u64> = (0..CHUNK * CHUNKS)
            .map(|value| table.insert(value, 0).unwrap())
            .collect();
        assert_eq!(table.insert(70_000, 0), Err(70_000));
        assert_eq!(table.remove(handles[40_000], 0, |_| true), Ok(40_000));
        let again = table.insert(7, 0).unwrap();
        assert_eq!(
            (*table.get(again, 0).unwrap(), table.insert(0, 0)),
            (7, Err(0))
        );
    }

    #[test]
    fn objects_of_before_a_fork_are_refused() {
        let table = Table::new();
        let before = table.insert(1, 1).unwrap();
        table.forked();
        assert_eq!(
            (
                table.get(before, 1).err(),
                table.remove(before, 1, |_| true)
            ),
            (Some(Refused::Forked), Err(Refused::Forked))
        );
        let behind = table.insert(2, 1).unwrap();
        assert_eq!(*table.get(behind, 1).unwrap(), 2);
        assert_eq!(table.remove(behind, 1, |_| true), Ok(2));
    }

    /// Each object counts its own drop, and says whether a call still uses it.
    #[test]
    fn threads_use_and_remove_objects_without_a_use_after_the_end() {
        const TURNS: usize = if cfg!(miri) { 50 } else { 20_000 };
        static DROPPED: AtomicUsize = AtomicUsize::new(0);
        struct Counted(AtomicU32);
        impl Drop for Counted {
            fn drop(&mut self) {
                assert_eq!(self.0.load(Ordering::Relaxed), 0, "a call is inside");
                self.0.store(u32::MAX, Ordering::Relaxed);
                DROPPED.fetch_add(1, Ordering::Relaxed);
            }
        }
        let (table, shown) = (Table::<Counted>::new(), AtomicU64::new(0));
        // Calls on one kind of object are inside together, on the other one after the other.
        for kind in [0, 1] {
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| {
                        for _ in 0..TURNS {
                            let handle = shown.load(Ordering::Relaxed);
                            let inside = if kind == 0 {
                                table.get(handle, 0)
                            } else {
                                table.get_alone(handle, 1)
                            };
                            let Ok(inside) = inside else { continue };
                            let others = inside.0.fetch_add(1, Ordering::Relaxed);
                            assert!(others <= 1 - kind);
                            inside.0.fetch_sub(1, Ordering::Relaxed);
                        }
                    });
                }
                scope.spawn(|| {
                    for _ in 0..TURNS {
                        let Ok(handle) = table.insert(Counted(AtomicU32::new(0)), kind) else {
                            panic!("there is room")
                        };
                        shown.store(handle, Ordering::Relaxed);
                        while let Err(refused) = table.remove(handle, kind, |_| true) {
                            assert_eq!(refused, Refused::Busy);
                            std::thread::yield_now();
                        }
                    }
                });
            });
        }
        assert_eq!(DROPPED.load(Ordering::Relaxed), 2 * TURNS);
    }
}
