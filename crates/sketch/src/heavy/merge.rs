//! Merge of two tables, bucket by bucket.

use super::Heavy;
use super::bucket::{Head, Slot, WAYS};
use crate::error::alike;
use crate::{Error, Key, Times, same};

/// A key that competes for a slot: its count, its tag, the rest, and its times.
type Candidate<K> = (u64, u8, Slot<K>, Times);

/// A bucket of a table.
struct Bucket<'a, K> {
    head: &'a Head,
    slots: &'a [Slot<K>; WAYS],
    /// Times of the slots, if the table has them.
    times: Option<&'a [Times; WAYS]>,
}

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
        alike(
            "times",
            self.times.is_some().into(),
            other.times.is_some().into(),
        )?;
        self.total = self.total.plus(other.total).ok_or(Error::TooMuch)?;
        self.sizes = (
            self.sizes.0.min(other.sizes.0),
            self.sizes.1.max(other.sizes.1),
        );
        let mut candidates = Vec::with_capacity(2 * WAYS);
        self.late += other.late;
        for bucket in 0..self.heads.len() {
            let floor = join(
                &self.bucket_at(bucket),
                &other.bucket_at(bucket),
                &mut candidates,
            );
            let head = &mut self.heads[bucket];
            *head = Head::with_floor(floor);
            let slots = &mut self.slots.as_chunks_mut::<WAYS>().0[bucket];
            for (index, (count, tag, slot, times)) in candidates.iter().take(WAYS).enumerate() {
                head.put(slots, index, *tag, *count, *slot);
                if let Some(all) = &mut self.times {
                    all[bucket * WAYS + index] = *times;
                }
            }
        }
        Ok(())
    }

    fn bucket_at(&self, bucket: usize) -> Bucket<'_, K> {
        Bucket {
            head: &self.heads[bucket],
            slots: self.slots_of(bucket),
            times: self
                .times
                .as_ref()
                .map(|times| &times.as_chunks::<WAYS>().0[bucket]),
        }
    }
}

/// Puts the keys of both buckets in `candidates`, the largest first, and returns the floor of the merged bucket.
fn join<K: Key>(
    mine: &Bucket<'_, K>,
    other: &Bucket<'_, K>,
    candidates: &mut Vec<Candidate<K>>,
) -> u64 {
    candidates.clear();
    candidates.extend((0..mine.head.len()).map(|slot| mine.missed(slot, other.head.floor())));
    let known = candidates.len();
    for slot in 0..other.head.len() {
        let key = &other.slots[slot].key;
        match candidates[..known]
            .iter_mut()
            .find(|(_, _, mine, _)| same(&mine.key, key))
        {
            Some((count, _, mine, times)) => {
                // The key is in both buckets. The other bucket's floor had been added as its largest possible weight there,
                // so it is subtracted again.
                *count = *count - other.head.floor() + other.head.count(slot);
                mine.error = mine.error - other.head.floor() + other.slots[slot].error;
                mine.companion += other.slots[slot].companion;
                *times = times.and(other.times(slot));
            }
            None => candidates.push(other.missed(slot, mine.head.floor())),
        }
    }
    candidates.sort_unstable_by(|(a, _, a_slot, _), (b, _, b_slot, _)| {
        b.cmp(a)
            .then_with(|| a_slot.key.as_bytes().cmp(b_slot.key.as_bytes()))
    });
    let gone = candidates.get(WAYS).map_or(0, |(count, ..)| *count);
    gone.max(mine.head.floor() + other.head.floor())
}

impl<K: Key> Bucket<'_, K> {
    fn times(&self, slot: usize) -> Times {
        self.times.map_or(Times::NONE, |times| times[slot])
    }

    /// A candidate of a key that is in one bucket only, and may have weighed `floor` in the other.
    fn missed(&self, slot: usize, floor: u64) -> Candidate<K> {
        let Slot {
            companion,
            error,
            key,
        } = self.slots[slot];
        (
            self.head.count(slot) + floor,
            self.head.tag(slot),
            Slot {
                companion,
                error: error + floor,
                key,
            },
            self.times(slot),
        )
    }
}
