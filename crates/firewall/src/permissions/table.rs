//! A hash table of addresses.

use crate::Address;
use weir_memory::prefetch;

/// No room for another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the permissions of {most} addresses were changed, and there is no room for another one")]
pub struct Full {
    /// Number of addresses for which there is room.
    pub most: usize,
}

/// Open addressing with linear probing, at most half full.
#[derive(Clone, Debug)]
pub(super) struct Table<A, V> {
    slots: Vec<Option<(A, V)>>,
    len: usize,
    most: usize,
    seed: u64,
}

impl<A: Address, V> Table<A, V> {
    /// Smallest number of slots.
    const LEAST: usize = 16;

    pub(super) fn new(most: usize, seed: u64) -> Self {
        Self { slots: empty(Self::LEAST), len: 0, most, seed }
    }

    #[inline]
    pub(super) fn get(&self, address: A) -> Option<&V> {
        self.slots[self.place(address)].as_ref().map(|(_, value)| value)
    }

    /// Starts to fetch the first slot of the address.
    #[inline]
    pub(super) fn prefetch(&self, address: A) {
        prefetch(&self.slots, address.hash(self.seed) as usize & (self.slots.len() - 1));
    }

    pub(super) fn get_or_insert_with(&mut self, address: A, value: impl FnOnce() -> V) -> Result<&mut V, Full> {
        let mut place = self.place(address);
        if self.slots[place].is_none() {
            if self.len == self.most {
                return Err(self.full());
            }
            if (self.len + 1) * 2 > self.slots.len() {
                self.grow();
                place = self.place(address);
            }
            self.len += 1;
        }
        let (_, value) = self.slots[place].get_or_insert_with(|| (address, value()));
        Ok(value)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &(A, V)> {
        self.slots.iter().flatten()
    }

    /// Returns the addresses with their values, in no order.
    pub(super) fn into_entries(self) -> impl Iterator<Item = (A, V)> {
        self.slots.into_iter().flatten()
    }

    /// Takes out the addresses for which `keeps` returns `false`. **Cost**: all slots are written anew.
    pub(super) fn retain(&mut self, keeps: impl Fn(A) -> bool) {
        let slots = std::mem::replace(&mut self.slots, empty(Self::LEAST));
        self.len = 0;
        for (address, value) in slots.into_iter().flatten().filter(|(address, _)| keeps(*address)) {
            let mut value = Some(value);
            let put = self.get_or_insert_with(address, || value.take().expect("asked for once"));
            debug_assert!(put.is_ok(), "there was room for all of them");
        }
    }

    /// Whether the address is there, or can be.
    pub(super) fn has_room(&self, address: A) -> bool {
        self.len < self.most || self.get(address).is_some()
    }

    /// Checks that all of these addresses are there, or can be. **Errors**: they can not. **Cost**: if there is little room, they are
    /// sorted.
    pub(super) fn has_room_for_all(&self, addresses: impl Iterator<Item = A> + Clone) -> Result<(), Full> {
        let room = self.most - self.len;
        if addresses.clone().count() <= room {
            return Ok(());
        }
        let mut new: Vec<A> = addresses.filter(|address| self.get(*address).is_none()).collect();
        new.sort_unstable();
        new.dedup();
        if new.len() <= room { Ok(()) } else { Err(self.full()) }
    }

    pub(super) fn full(&self) -> Full {
        Full { most: self.most }
    }

    /// Slot of the address, or the free one where it belongs.
    #[inline]
    fn place(&self, address: A) -> usize {
        let mask = self.slots.len() - 1;
        let mut place = address.hash(self.seed) as usize & mask;
        while self.slots[place].as_ref().is_some_and(|(known, _)| *known != address) {
            place = (place + 1) & mask;
        }
        place
    }

    #[cold]
    fn grow(&mut self) {
        let more = empty(self.slots.len() * 2);
        for (address, value) in std::mem::replace(&mut self.slots, more).into_iter().flatten() {
            let place = self.place(address);
            self.slots[place] = Some((address, value));
        }
    }
}

fn empty<T>(len: usize) -> Vec<Option<T>> {
    std::iter::repeat_with(|| None).take(len).collect()
}
