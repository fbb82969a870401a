//! One bucket: the counts of 13 keys, and a bound for all other keys of the bucket.

use core::hint::select_unpredictable;

use core::borrow::Borrow;

use zerocopy::{FromZeros, Immutable, IntoBytes};

use crate::{Key, Packet};

/// Slots of a bucket; with this number its head fills two cache lines.
pub(super) const WAYS: usize = 13;

/// Slot of a packet's key after an update.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Placed {
    /// The key had this slot before.
    Hit(usize),
    /// The key got this slot, possibly from another key.
    Put(usize),
    /// The packet is forgotten.
    Nowhere,
}

/// The part of a bucket that is read and written for every packet.
#[derive(Clone, Copy, FromZeros, Immutable, IntoBytes)]
#[repr(C, align(64))]
pub(super) struct Head {
    /// Upper bound of the weight of any key outside the bucket's slots.
    floor: u64,
    /// Tag of each slot. 0 is a free slot; free slots come after all others. The last three bytes are never used.
    tags: [u8; 16],
    /// Count of each slot: an upper bound of its key's weight.
    counts: [u64; WAYS],
}

const _: () = assert!(size_of::<Head>() == 128);

/// The rest of the data about a key.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(32))]
pub(super) struct Slot<K> {
    /// Sum of the quantity that does not rank, since the key was put into the slot.
    pub(super) companion: u64,
    /// Largest possible weight of the key before it was put into the slot.
    pub(super) error: u64,
    pub(super) key: K,
}

/// The sum. With `FAR` it saturates at the largest u64; without, the caller knows that it fits.
#[inline(always)]
fn sum<const FAR: bool>(a: u64, b: u64) -> u64 {
    if FAR { a.saturating_add(b) } else { a + b }
}

impl Head {
    pub(super) const EMPTY: Self = Self {
        floor: 0,
        tags: [0; 16],
        counts: [0; WAYS],
    };

    /// Whether the key of a packet is in its likely slot, by its tag and by the key itself. `likely` is a recent result of
    /// [`Self::likely`].
    #[inline(always)]
    pub(super) fn holds<K: Key>(
        &self,
        slots: &[Slot<K>; WAYS],
        (tag, likely): (u8, usize),
        packet: &impl Packet<K>,
    ) -> bool {
        likely < WAYS && self.tags[likely] == tag && packet.is_of(&slots[likely].key)
    }

    /// Adds a packet whose key is not in the likely slot, and returns where. Without `FAR`, the totals have room for the packet, and so
    /// has every sum here. A separate function, so that its many variables take no registers from the common path.
    #[inline(never)]
    pub(super) fn add_elsewhere<K: Key, const FAR: bool>(
        &mut self,
        slots: &mut [Slot<K>; WAYS],
        tag: u8,
        packet: impl Packet<K>,
        weight: u64,
        companion: u64,
    ) -> Placed {
        match self.find(slots, tag, |key| packet.is_of(key)) {
            Some(slot) => {
                self.hit::<K, FAR>(slots, slot, weight, companion);
                Placed::Hit(slot)
            }
            None => self.miss::<K, FAR>(slots, tag, packet.key().borrow(), weight, companion),
        }
    }

    /// Adds a packet to the key in a slot.
    #[inline(always)]
    pub(super) fn hit<K, const FAR: bool>(
        &mut self,
        slots: &mut [Slot<K>; WAYS],
        slot: usize,
        weight: u64,
        companion: u64,
    ) {
        self.counts[slot] = sum::<FAR>(self.counts[slot], weight);
        slots[slot].companion = sum::<FAR>(slots[slot].companion, companion);
    }

    /// Prefetches both cache lines of a head.
    #[inline(always)]
    pub(super) fn prefetch_all(heads: &[Self], bucket: usize) {
        let begin = bucket.wrapping_mul(size_of::<Self>());
        weir_memory::prefetch(heads.as_bytes(), begin);
        weir_memory::prefetch(heads.as_bytes(), begin.wrapping_add(size_of::<Self>() / 2));
    }

    /// Prefetches the count of a slot.
    #[inline(always)]
    pub(super) fn prefetch_count(&self, slot: usize) {
        weir_memory::prefetch(&self.counts, slot);
    }

    /// The likely slot of a key with this tag: almost always the first slot with the tag.
    #[inline(always)]
    pub(super) fn likely(&self, tag: u8) -> usize {
        (weir_memory::equal(&self.tags, tag) | 1 << (WAYS - 1)).trailing_zeros() as usize
    }

    /// The slot of a key, if the key is in the bucket.
    #[inline(always)]
    pub(super) fn find<K>(
        &self,
        slots: &[Slot<K>; WAYS],
        tag: u8,
        is: impl Fn(&K) -> bool,
    ) -> Option<usize> {
        let mut found = weir_memory::equal(&self.tags, tag) & ((1 << WAYS) - 1);
        while found != 0 {
            let slot = found.trailing_zeros() as usize;
            if is(&slots[slot].key) {
                return Some(slot);
            }
            found &= found - 1;
        }
        None
    }

    /// Adds a packet whose key is not in the bucket.
    #[inline(always)]
    fn miss<K: Key, const FAR: bool>(
        &mut self,
        slots: &mut [Slot<K>; WAYS],
        tag: u8,
        key: &K,
        weight: u64,
        companion: u64,
    ) -> Placed {
        let (least, slot) = self.least();
        let error = self.floor;
        let count = sum::<FAR>(error, weight);
        if count < least {
            self.floor = count;
            return Placed::Nowhere;
        }
        self.floor = error.max(least);
        self.put(
            slots,
            slot,
            tag,
            count,
            Slot {
                companion,
                error,
                key: *key,
            },
        );
        Placed::Put(slot)
    }

    /// The least count, and its first slot.
    ///
    /// A tree of selections, each of which carries its slot along: no branch, and a chain of four steps instead of the
    /// thirteen of a loop. Counts use all 64 bits, so slot and count do not fit in one word.
    #[inline(always)]
    fn least(&self) -> (u64, usize) {
        let at = |slot: usize| (self.counts[slot], slot);
        let less = |a: (u64, usize), b: (u64, usize)| {
            let second = b.0 < a.0;
            (
                select_unpredictable(second, b.0, a.0),
                select_unpredictable(second, b.1, a.1),
            )
        };
        let four = |slot: usize| {
            less(
                less(at(slot), at(slot + 1)),
                less(at(slot + 2), at(slot + 3)),
            )
        };
        less(less(four(0), four(4)), less(four(8), at(12)))
    }

    /// Puts a key in a slot.
    #[inline(always)]
    pub(super) fn put<K: Key>(
        &mut self,
        slots: &mut [Slot<K>; WAYS],
        slot: usize,
        tag: u8,
        count: u64,
        what: Slot<K>,
    ) {
        self.tags[slot] = tag;
        self.counts[slot] = count;
        slots[slot] = what;
    }

    /// A bucket with this floor and no keys.
    pub(super) fn with_floor(floor: u64) -> Self {
        Self {
            floor,
            ..Self::EMPTY
        }
    }

    #[inline(always)]
    pub(super) fn floor(&self) -> u64 {
        self.floor
    }

    pub(super) fn count(&self, slot: usize) -> u64 {
        self.counts[slot]
    }

    #[cfg(test)]
    pub(super) fn set_count(&mut self, slot: usize, count: u64) {
        self.counts[slot] = count;
    }

    pub(super) fn tag(&self, slot: usize) -> u8 {
        self.tags[slot]
    }

    /// Number of keys in the bucket; they fill the first slots.
    pub(super) fn len(&self) -> usize {
        (0..WAYS).take_while(|slot| self.tag(*slot) != 0).count()
    }
}
