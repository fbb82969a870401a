//! A hash table of addresses.

use crate::Address;
use core::num::NonZeroU32;
use weir_memory::prefetch;

/// No room for another address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the permissions of {most} addresses were changed, and there is no room for another one")]
pub struct Full {
    /// Number of addresses for which there is room.
    pub most: usize,
}

/// Flag of an address, whether it is *persona non grata*, and number of its row, if it has one.
///
/// **Layout**: bits 0 to 29 are the number of the row, all ones if there is none; bit 30 is the flag; bit 31 is set, so that a free slot
/// takes no room of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(NonZeroU32);

impl Entry {
    const SET: u32 = 1 << 31;
    const FLAG: u32 = 1 << 30;
    const ROW: u32 = Self::FLAG - 1;

    /// An address without flag and row.
    pub(super) const NEW: Self = Self::of(Self::ROW);

    const fn of(bits: u32) -> Self {
        Self(NonZeroU32::MIN.saturating_add((bits | Self::SET) - 1))
    }

    #[inline]
    pub(super) fn flag(self) -> bool {
        self.0.get() & Self::FLAG != 0
    }

    pub(super) fn with_flag(self, flag: bool) -> Self {
        Self::of(self.0.get() & !Self::FLAG | if flag { Self::FLAG } else { 0 })
    }

    #[inline]
    pub(super) fn row(self) -> Option<usize> {
        let row = self.0.get() & Self::ROW;
        (row != Self::ROW).then_some(row as usize)
    }

    /// Gives the address this row, or none.
    pub(super) fn with_row(self, row: Option<usize>) -> Self {
        let row = row.map_or(Self::ROW, |row| row as u32 & Self::ROW);
        Self::of(self.0.get() & !Self::ROW | row)
    }
}

/// Open addressing with linear probing, at most a quarter full: most searches end in the first slot, and the processor foresees that.
#[derive(Clone, Debug)]
pub(super) struct Table<A> {
    slots: Vec<Option<(A, Entry)>>,
    len: usize,
    most: usize,
    seed: u64,
}

impl<A: Address> Table<A> {
    /// Smallest number of slots.
    const LEAST: usize = 16;

    /// Slots for each address, at least.
    const SLOTS: usize = 4;

    /// Makes a table of up to `most` addresses; rows have no higher number.
    pub(super) fn new(most: usize, seed: u64) -> Self {
        let most = most.min(Entry::ROW as usize);
        Self {
            slots: vec![None; Self::LEAST],
            len: 0,
            most,
            seed,
        }
    }

    #[inline]
    pub(super) fn get(&self, address: A) -> Option<Entry> {
        self.slots[self.place(address)].map(|(_, entry)| entry)
    }

    /// Starts to fetch the first slot of the address.
    #[inline]
    pub(super) fn prefetch(&self, address: A) {
        prefetch(
            &self.slots,
            address.hash(self.seed) as usize & (self.slots.len() - 1),
        );
    }

    /// Returns the entry of the address, which is new if there was none. **Errors**: no room for another one.
    pub(super) fn entry(&mut self, address: A) -> Result<&mut Entry, Full> {
        let mut place = self.place(address);
        if self.slots[place].is_none() {
            if self.len == self.most {
                return Err(Full { most: self.most });
            }
            if (self.len + 1) * Self::SLOTS > self.slots.len() {
                self.grow();
                place = self.place(address);
            }
            self.len += 1;
        }
        let (_, entry) = self.slots[place].get_or_insert((address, Entry::NEW));
        Ok(entry)
    }

    /// Returns the addresses and their entries, in no order.
    pub(super) fn iter(&self) -> impl Iterator<Item = (A, Entry)> {
        self.slots.iter().flatten().copied()
    }

    /// Returns the addresses and their entries, in no order.
    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut (A, Entry)> {
        self.slots.iter_mut().flatten()
    }

    /// Checks that all of these addresses are there, or can be. **Errors**: they can not. **Cost**: if there is little room, they are
    /// sorted.
    pub(super) fn has_room_for_all(
        &self,
        addresses: impl Iterator<Item = A> + Clone,
    ) -> Result<(), Full> {
        let room = self.most - self.len;
        if addresses.clone().count() <= room {
            return Ok(());
        }
        let mut new: Vec<A> = addresses
            .filter(|address| self.get(*address).is_none())
            .collect();
        new.sort_unstable();
        new.dedup();
        if new.len() <= room {
            Ok(())
        } else {
            Err(Full { most: self.most })
        }
    }

    /// Slot of the address, or the free one where it belongs.
    #[inline]
    fn place(&self, address: A) -> usize {
        let mask = self.slots.len() - 1;
        let mut place = address.hash(self.seed) as usize & mask;
        while self.slots[place].is_some_and(|(known, _)| known != address) {
            place = (place + 1) & mask;
        }
        place
    }

    #[cold]
    fn grow(&mut self) {
        let more = vec![None; self.slots.len() * 2];
        for (address, entry) in std::mem::replace(&mut self.slots, more)
            .into_iter()
            .flatten()
        {
            let place = self.place(address);
            self.slots[place] = Some((address, entry));
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn an_entry_has_a_flag_and_a_row_that_change_apart() {
        assert_eq!(size_of::<Option<(u32, Entry)>>(), 8);
        let mut entry = Entry::NEW;
        assert_eq!((entry.flag(), entry.row()), (false, None));
        for row in [Some(0), Some(7), None, Some(Entry::ROW as usize - 1)] {
            for flag in [true, true, false] {
                entry = entry.with_flag(flag).with_row(row);
                assert_eq!((entry.flag(), entry.row()), (flag, row));
            }
        }
    }
}
