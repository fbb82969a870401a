//! Merge of two tables, bucket by bucket.

use super::Heavy;
use super::bucket::{Head, Slot, WAYS};
use crate::error::alike;
use crate::{Error, Key, same};

/// A key that competes for a slot: its count, its tag and the rest.
type Candidate<K> = (u64, u8, Slot<K>);

impl<K: Key> Heavy<K> {
    /// Adds all counts of `other`. The bounds, and their width, are the same as for
    /// both streams together.
    ///
    /// **Cost**: reads all buckets of both tables; allocates room for the keys of two buckets. **Errors**: the tables differ in
    /// size, weight or seed, or the sum of the totals exceeds 2^63; then nothing has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        alike("buckets", self.heads.len() as u64, other.heads.len() as u64)?;
        alike("weight", self.weigh as u64, other.weigh as u64)?;
        alike("hash seed", self.seed, other.seed)?;
        self.total = self.total.plus(other.total).ok_or(Error::TooMuch)?;
        self.sizes = (
            self.sizes.0.min(other.sizes.0),
            self.sizes.1.max(other.sizes.1),
        );
        let mut candidates = Vec::with_capacity(2 * WAYS);
        let mine = self
            .heads
            .iter_mut()
            .zip(self.slots.as_chunks_mut::<WAYS>().0);
        let theirs = other.heads.iter().zip(other.slots.as_chunks::<WAYS>().0);
        for (mine, theirs) in mine.zip(theirs) {
            join(mine, theirs, &mut candidates);
        }
        Ok(())
    }
}

/// Merges the second bucket into the first.
fn join<K: Key>(
    (head, slots): (&mut Head, &mut [Slot<K>; WAYS]),
    (other, other_slots): (&Head, &[Slot<K>; WAYS]),
    candidates: &mut Vec<Candidate<K>>,
) {
    candidates.clear();
    candidates.extend((0..head.len()).map(|slot| missed(head, slots, slot, other.floor())));
    let known = candidates.len();
    for slot in 0..other.len() {
        let key = &other_slots[slot].key;
        match candidates[..known]
            .iter_mut()
            .find(|(_, _, mine)| same(&mine.key, key))
        {
            Some((count, _, mine)) => {
                // The key is in both buckets. The other bucket's floor had been added as its largest possible weight there,
                // so it is subtracted again.
                *count = *count - other.floor() + other.count(slot);
                mine.error = mine.error - other.floor() + other_slots[slot].error;
                mine.companion += other_slots[slot].companion;
            }
            None => candidates.push(missed(other, other_slots, slot, head.floor())),
        }
    }
    candidates.sort_unstable_by(|(a, _, a_slot), (b, _, b_slot)| {
        b.cmp(a)
            .then_with(|| a_slot.key.as_bytes().cmp(b_slot.key.as_bytes()))
    });
    let gone = candidates.get(WAYS).map_or(0, |(count, ..)| *count);
    *head = Head::with_floor(gone.max(head.floor() + other.floor()));
    for (index, (count, tag, slot)) in candidates.iter().take(WAYS).enumerate() {
        head.put(slots, index, *tag, *count, *slot);
    }
}

/// A candidate of a key that is in one bucket only, and may have weighed `floor` in the other.
fn missed<K: Key>(head: &Head, slots: &[Slot<K>; WAYS], slot: usize, floor: u64) -> Candidate<K> {
    let Slot {
        companion,
        error,
        key,
    } = slots[slot];
    (
        head.count(slot) + floor,
        head.tag(slot),
        Slot {
            companion,
            error: error + floor,
            key,
        },
    )
}
