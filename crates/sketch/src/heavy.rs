//! Heavy hitters with bounds that always hold.
//!
//! # The algorithm
//!
//! Misra-Gries in buckets, lazily. The hash picks a bucket of 13 slots; a bucket has a `floor`, and a slot a `count`
//! that starts at the floor of that moment, kept as `error`. For a packet of weight w:
//!
//! ```text
//! key in slot s:            count[s] += w
//! else, m = least count of the bucket, in slot s:
//!   floor + w < m:          floor += w                        // every slot loses w, the packet is forgotten
//!   else:                   error[s] = floor; count[s] = floor + w; key[s] = key
//!                           floor = max(floor, m)             // m - floor of every slot and of the packet is lost
//! ```
//!
//! Misra and Gries take w from every counter of the table; here, the floor of one bucket rises by w
//! instead. So a miss touches one or two cache lines, and no counter is stored for short-lived
//! keys.
//!
//! # Why the bounds hold
//!
//! Let f be the true weight of a key. Two things hold after every packet, for every key of the bucket:
//!
//! 1. *A key in the table has count - error <= f <= count.* Its weight since it was put into its slot is counted exactly and is
//!    count - error. Its weight before was at most error, by 2.
//! 2. *A key outside the table has f <= floor.* At the start both are 0. If its packet is forgotten, f and floor grow by the same
//!    w. If the key was replaced, f <= count by 1, and the floor is at least that count.
//!
//! The width of the bounds: let R be the sum of max(count - floor, 0) over the slots, and P = R + 14 floor. A hit adds w to
//! P at most. A miss that raises the floor takes 13 w from R, because no count falls under the floor, and adds 14 w. A miss
//! that replaces takes 13 d from R, where d = max(m - floor, 0) <= w. It adds 14 d, and the new slot adds w - d. So P never
//! exceeds the weight N_b of the bucket's packets, and **floor <= N_b / 14**; error is the floor of an earlier moment. With
//! B buckets, N_b is about N / B, apart from the heavy keys of a bucket. These do not raise the floor, because it only rises
//! with misses.
//!
//! # Merge
//!
//! Bucket by bucket. If a key is in both buckets, its counts and errors are added up. If a key is in only one bucket, the
//! floor of the other is added to its count and error, because the key may have weighed that much there. The 13 largest
//! counts stay. The floor is the sum of both floors, or the largest dropped count if that is larger. Both properties hold
//! for the result as above, and so does P, by the argument of Agarwal et al.
//!
//! # Measured alternatives
//!
//! The rival that can give both bounds is Space-Saving in the same buckets: a miss replaces the least slot, whose count becomes
//! the error. 10 M packets, Zipf(1.1) over a million 13-byte keys, a key is heavy above 1e-4 of the packets.
//! Each cell gives F1 by the lower bound, and the largest possible weight of a key outside the table:
//!
//! | | 256 KiB, as it comes | 1 MiB, as it comes | 1 MiB, heavy keys last |
//! |---|---|---|---|
//! | Space-Saving, 6 slots | .9858, 2418 | 1.0000, 625 | 1.0000, 362 |
//! | Space-Saving, 13 slots | .9992, 1172 | 1.0000, 225 | 1.0000, 123 |
//! | Misra-Gries, 6 slots | .9984, 1618 | 1.0000, 482 | .9984, 211 |
//! | **Misra-Gries, 13 slots** | 1.0000, 1042 | 1.0000, 197 | .9992, 113 |
//!
//! With 6 slots a head is one line, and an update 1 ns shorter; between the two algorithms no difference in time was
//! measurable (10 to 12 ns on a quiet core). The `heavykeeper` crate took 2.0 times as long in the same run, with F1
//! .9992 and .9434 and no bounds; Apache frequent items (2^15) 2.3 times, with F1 .9562 and 1.0000 by its lower bound.
//! The upper bound classifies no better, and worse when heavy keys come late: .969 at 1 MiB.
//!
//! The probable slot of a key is prefetched, which pays in tables larger than the second-level cache. All tags of a bucket
//! are compared in one word, because no branch predictor can foresee which of two slots holds the key.
//!
//! **Source**: Misra and Gries, "Finding repeated elements" (1982); Metwally et al., "Efficient computation of frequent
//! and top-k elements in data streams" (2005); Agarwal et al., "Mergeable summaries" (2012).

mod bucket;
mod image;
mod merge;

use weir_memory::{Request, Table};

use crate::times::Millisecond;
use crate::{Counts, Error, Key, LANES, Packet, Times, Weigh, place, same, split_largest, spread};
use bucket::{Head, Placed, Slot, WAYS};

/// A table of the heaviest keys by packets or by bytes, with a lower and an upper bound for every possible key.
///
/// Every key whose weight exceeds its bucket's floor is in the table; the floor is at most a fourteenth of the weight that fell
/// into the bucket. The other quantity (bytes if packets rank) is counted too, with bounds of its own.
///
/// **Cost**: an update reads two or three cache lines, of which two are adjacent. **Layout**: 128 bytes for a bucket
/// of 13, and a slot for each key: 32 bytes for keys of up to 16 bytes, 64 for up to 48. **Error bound**:
/// deterministic, see [`bounds`](Self::bounds). Sums saturate at the largest u64: an upper bound of that value means as much or
/// more, and lower bounds still hold. The module's text has the algorithm, the argument and the rivals.
pub struct Heavy<K> {
    heads: Table<Head>,
    /// Slots of all buckets; the slots of bucket b begin at `b * WAYS`.
    slots: Table<Slot<K>>,
    /// Times of the keys in the slots, if the table keeps them.
    times: Option<Table<Times>>,
    /// Number of packets that are in no peak.
    late: u64,
    weigh: Weigh,
    seed: u64,
    total: Counts,
    /// Bytes of the smallest and the largest packet. Before the first packet, the smallest is the largest u32.
    sizes: (u32, u32),
}

/// Buckets and tags of up to [`LANES`] packets, and sums over these packets.
struct Places {
    buckets: [u32; LANES],
    tags: [u8; LANES],
    /// Guesses of the slots.
    likely: [u8; LANES],
    bytes: u64,
    /// Bytes of the smallest and the largest packet.
    sizes: (u32, u32),
}

impl Places {
    /// The places of packets in a table of `buckets` buckets; the guesses are filled in later.
    #[inline(always)]
    fn of<K, P: Packet<K>>(
        packets: impl Iterator<Item = P>,
        buckets: usize,
        ask: impl Fn(usize),
    ) -> Self {
        let mut places = Self {
            buckets: [0; LANES],
            tags: [0; LANES],
            likely: [0; LANES],
            bytes: 0,
            sizes: NO_SIZES,
        };
        let (mut bytes, (mut least, mut most)) = (0, NO_SIZES);
        for ((packet, to), tag) in packets.zip(&mut places.buckets).zip(&mut places.tags) {
            let bucket;
            (bucket, *tag) = home(packet.hash(), buckets);
            *to = bucket as u32;
            ask(bucket);
            bytes += u64::from(packet.bytes());
            (least, most) = (least.min(packet.bytes()), most.max(packet.bytes()));
        }
        (places.bytes, places.sizes) = (bytes, (least, most));
        places
    }
}

/// Smallest and largest size, if there are no packets.
const NO_SIZES: (u32, u32) = (u32::MAX, 0);

/// A key of [`Heavy`], with bounds of its weight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<K> {
    /// The key.
    pub key: K,
    /// Lower bound of the weight: the weight counted since the key was put into the table.
    pub lower: u64,
    /// Upper bound of the weight; the largest u64 stands for as much or more.
    pub upper: u64,
    /// Lower bound of the quantity that does not rank.
    pub companion_lower: u64,
    /// Upper bound of the quantity that does not rank. If `lower` and `upper` are far apart, this bound is wide: each packet that
    /// may have been missed is taken for the largest of the stream (or each byte for one of the smallest packets).
    pub companion_upper: u64,
}

impl<K: Key> Heavy<K> {
    /// A table of at most `memory_bytes` that ranks by `weigh`; `seed` names the seed of its keys' hashes.
    ///
    /// **Errors**: the memory cannot be obtained, or is too small for one bucket.
    pub fn new(
        memory_bytes: usize,
        weigh: Weigh,
        seed: u64,
        request: &Request,
    ) -> Result<Self, Error> {
        Self::of_memory(memory_bytes, weigh, seed, request, false)
    }

    /// A table that also keeps the [times](Times) of its keys: 32 bytes for each.
    ///
    /// **Errors**: as of [`new`](Self::new).
    pub fn with_times(
        memory_bytes: usize,
        weigh: Weigh,
        seed: u64,
        request: &Request,
    ) -> Result<Self, Error> {
        Self::of_memory(memory_bytes, weigh, seed, request, true)
    }

    fn of_memory(
        memory_bytes: usize,
        weigh: Weigh,
        seed: u64,
        request: &Request,
        has_times: bool,
    ) -> Result<Self, Error> {
        let times = if has_times { size_of::<Times>() } else { 0 };
        let bucket = size_of::<Head>() + WAYS * (size_of::<Slot<K>>() + times);
        // Bucket numbers have 32 bits.
        match (memory_bytes / bucket).min(u32::MAX as usize) {
            0 => Err(Error::TooLittleMemory {
                given: memory_bytes,
                least: bucket,
            }),
            buckets => Self::of_buckets(buckets, weigh, seed, request, has_times),
        }
    }

    fn of_buckets(
        buckets: usize,
        weigh: Weigh,
        seed: u64,
        request: &Request,
        has_times: bool,
    ) -> Result<Self, Error> {
        let times = has_times.then(|| Table::zeroed(buckets * WAYS, request));
        Ok(Self {
            heads: Table::zeroed(buckets, request)?,
            slots: Table::zeroed(buckets * WAYS, request)?,
            times: times.transpose()?,
            late: 0,
            weigh,
            seed,
            total: Counts::default(),
            sizes: NO_SIZES,
        })
    }

    /// Counts a batch of packets.
    pub fn update<P: Packet<K>>(&mut self, items: &[P]) {
        self.update_and_tell(items, |_| {});
    }

    /// Counts a batch of packets. Calls `new` with the index of each packet whose key was not in the table before. The key
    /// may have been in the table earlier, and replaced since.
    pub fn update_and_tell<P: Packet<K>>(&mut self, items: &[P], new: impl FnMut(usize)) {
        self.update_as(items, |item| item, new);
    }

    /// Counts a batch of packets under the parts that `part` makes of them. `new` as in
    /// [`update_and_tell`](Self::update_and_tell).
    pub fn update_as<'a, T, P: Packet<K>>(
        &mut self,
        items: &'a [T],
        part: impl Fn(&'a T) -> P,
        mut new: impl FnMut(usize),
    ) {
        for (i, items) in items.chunks(LANES).enumerate() {
            let heads = &self.heads[..];
            let mut places = Places::of(items.iter().map(&part), heads.len(), |bucket| {
                Head::prefetch_all(heads, bucket)
            });
            let Places {
                buckets,
                tags,
                likely,
                ..
            } = &mut places;
            let buckets = &buckets[..items.len()];
            for ((bucket, tag), likely) in buckets.iter().zip(tags).zip(&mut *likely) {
                let slot = heads[*bucket as usize].likely(*tag);
                weir_memory::prefetch(&self.slots, *bucket as usize * WAYS + slot);
                *likely = slot as u8;
            }
            if let Some(times) = &self.times {
                for (bucket, slot) in buckets.iter().zip(likely) {
                    weir_memory::prefetch(times, *bucket as usize * WAYS + usize::from(*slot));
                }
            }
            self.add_at(items.iter().map(&part), &places, |j| new(i * LANES + j));
        }
    }

    /// The first of three steps of an update: prefetches the memory that the second step reads.
    ///
    /// A caller with other work to do between the steps does not wait for memory.
    #[inline]
    pub fn prefetch_buckets<P: Packet<K>>(&self, items: &[P]) {
        items
            .iter()
            .for_each(|item| weir_memory::prefetch(&self.heads, self.bucket(item.hash())));
    }

    /// The second step: prefetches the memory that the third step needs. Writes a guess of each packet's slot to `likely`.
    #[inline]
    pub fn prefetch_counts<P: Packet<K>>(&self, items: &[P], likely: &mut [u8]) {
        for (item, likely) in items.iter().zip(likely) {
            let (bucket, tag) = self.home(item.hash());
            let head = &self.heads[bucket];
            let slot = head.likely(tag);
            head.prefetch_count(slot);
            self.prefetch_slot(bucket, slot);
            *likely = slot as u8;
        }
    }

    #[inline(always)]
    fn prefetch_slot(&self, bucket: usize, slot: usize) {
        weir_memory::prefetch(&self.slots, bucket * WAYS + slot);
        if let Some(times) = &self.times {
            weir_memory::prefetch(times, bucket * WAYS + slot);
        }
    }

    /// The third step: counts packets, with as many guesses. A wrong guess only costs time. `new` as in
    /// [`update_and_tell`](Self::update_and_tell).
    #[inline]
    pub fn add<P: Packet<K>>(&mut self, items: &[P], likely: &[u8], mut new: impl FnMut(usize)) {
        for (i, (items, likely)) in items.chunks(LANES).zip(likely.chunks(LANES)).enumerate() {
            let mut places = Places::of(items.iter(), self.heads.len(), |_| {});
            places.likely[..likely.len()].copy_from_slice(likely);
            self.add_at(items.iter(), &places, |j| new(i * LANES + j));
        }
    }

    #[inline(always)]
    fn add_at<P: Packet<K>>(
        &mut self,
        packets: impl ExactSizeIterator<Item = P>,
        places: &Places,
        new: impl FnMut(usize),
    ) {
        // No sum in the table exceeds the totals. While the totals have room for a batch of the largest packets, no sum
        // overflows.
        const ROOM: u64 = u64::MAX - LANES as u64 * u32::MAX as u64;
        match self.weigh {
            _ if self.total.packets.max(self.total.bytes) > ROOM => {
                self.add_far(packets, places, new)
            }
            Weigh::Packets if self.times.is_some() => {
                self.add_by::<P, true, false, true>(packets, places, new)
            }
            Weigh::Bytes if self.times.is_some() => {
                self.add_by::<P, false, false, true>(packets, places, new)
            }
            Weigh::Packets => self.add_by::<P, true, false, false>(packets, places, new),
            Weigh::Bytes => self.add_by::<P, false, false, false>(packets, places, new),
        }
    }

    /// Counts packets if sums may exceed 64 bits: such sums saturate at the largest u64.
    #[cold]
    #[inline(never)]
    fn add_far<P: Packet<K>>(
        &mut self,
        packets: impl ExactSizeIterator<Item = P>,
        places: &Places,
        new: impl FnMut(usize),
    ) {
        match self.weigh {
            Weigh::Packets => self.add_by::<P, true, true, true>(packets, places, new),
            Weigh::Bytes => self.add_by::<P, false, true, true>(packets, places, new),
        }
    }

    /// Counts packets; without `TIMES`, the table keeps no times.
    #[inline(always)]
    fn add_by<P: Packet<K>, const PACKETS: bool, const FAR: bool, const TIMES: bool>(
        &mut self,
        packets: impl ExactSizeIterator<Item = P>,
        places: &Places,
        mut new: impl FnMut(usize),
    ) {
        let Self {
            heads,
            slots,
            times,
            late,
            total,
            sizes,
            ..
        } = self;
        let mut times = times.as_mut().filter(|_| TIMES);
        let mut now = Millisecond::NONE;
        let Places {
            buckets,
            tags,
            likely,
            bytes,
            sizes: (least, most),
        } = places;
        total.packets = total.packets.saturating_add(packets.len() as u64);
        total.bytes = total.bytes.saturating_add(*bytes);
        *sizes = (sizes.0.min(*least), sizes.1.max(*most));
        let heads = &mut heads[..];
        let slots = &mut slots.as_chunks_mut::<WAYS>().0[..heads.len()];
        for (i, (((packet, &bucket), &tag), &likely)) in
            packets.zip(buckets).zip(tags).zip(likely).enumerate()
        {
            let bytes = u64::from(packet.bytes());
            let (weight, companion) = if PACKETS { (1, bytes) } else { (bytes, 1) };
            let (head, slots) = (&mut heads[bucket as usize], &mut slots[bucket as usize]);
            let (time_ns, size) = (packet.time_ns(), packet.bytes());
            let slot = usize::from(likely);
            let placed = if head.holds(slots, (tag, slot), &packet) {
                head.hit::<K, FAR>(slots, slot, weight, companion);
                if !TIMES {
                    continue;
                }
                Placed::Hit(slot)
            } else {
                head.add_elsewhere::<K, FAR>(slots, tag, packet, weight, companion)
            };
            if let Some(times) = &mut times
                && let Placed::Hit(slot) | Placed::Put(slot) = placed
            {
                let times = &mut times[bucket as usize * WAYS + slot];
                if let Placed::Put(_) = placed {
                    *times = Times::NONE;
                }
                *late += u64::from(times.add(time_ns, size, &mut now));
            }
            if !matches!(placed, Placed::Hit(_)) {
                new(i);
            }
        }
    }

    /// Times of a key; `None` if the table keeps no times, or may have forgotten packets of the key.
    pub fn times(&self, key: &K, hash: u64) -> Option<Times> {
        let times = self.times.as_ref()?;
        let (bucket, tag) = self.home(hash);
        let head = &self.heads[bucket];
        let slots = self.slots_of(bucket);
        // Packets without bytes leave no trace if bytes rank.
        if self.weigh == Weigh::Bytes && self.sizes.0 == 0 {
            return None;
        }
        match head.find(slots, tag, |in_it| same(in_it, key)) {
            Some(slot) => (slots[slot].error == 0).then(|| times[bucket * WAYS + slot]),
            None => (head.floor() == 0).then_some(Times::NONE),
        }
    }

    /// Number of packets that are in no [peak](Times::peak), because their milliseconds were over.
    pub fn late(&self) -> u64 {
        self.late
    }

    /// Lower and upper bound of a key's weight, whether the key is in the table or not.
    ///
    /// Their difference never exceeds a fourteenth of the weight that fell into the key's bucket.
    pub fn bounds(&self, key: &K, hash: u64) -> (u64, u64) {
        match self.get(key, hash) {
            Some(entry) => (entry.lower, entry.upper),
            None => (0, self.heads[self.bucket(hash)].floor()),
        }
    }

    /// The bounds of a key, if it is in the table.
    pub fn get(&self, key: &K, hash: u64) -> Option<Entry<K>> {
        let (bucket, tag) = self.home(hash);
        let slot = self.heads[bucket].find(self.slots_of(bucket), tag, |in_it| same(in_it, key))?;
        Some(self.entry(bucket, slot))
    }

    /// The bucket of a hash.
    #[inline(always)]
    pub(crate) fn bucket(&self, hash: u64) -> usize {
        self.home(hash).0
    }

    /// Bucket and tag of a hash.
    #[inline(always)]
    fn home(&self, hash: u64) -> (usize, u8) {
        home(hash, self.heads.len())
    }

    fn slots_of(&self, bucket: usize) -> &[Slot<K>; WAYS] {
        &self.slots.as_chunks::<WAYS>().0[bucket]
    }

    fn entry(&self, bucket: usize, slot: usize) -> Entry<K> {
        let upper = self.heads[bucket].count(slot);
        let Slot {
            companion,
            error,
            key,
        } = self.slots_of(bucket)[slot];
        let (other, missed) = self.missed(error);
        Entry {
            key,
            lower: upper - error,
            upper,
            companion_lower: companion,
            companion_upper: companion.saturating_add(missed).min(other),
        }
    }

    /// Total of the figure that does not weigh, and how much of it packets with this weight can have at most.
    fn missed(&self, weight: u64) -> (u64, u64) {
        match self.weigh {
            Weigh::Packets => (
                self.total.bytes,
                weight.saturating_mul(u64::from(self.sizes.1)),
            ),
            // If packets may have no bytes, the number of missed packets is unbounded.
            Weigh::Bytes => (
                self.total.packets,
                weight
                    .checked_div(u64::from(self.sizes.0))
                    .unwrap_or(u64::MAX),
            ),
        }
    }

    /// Largest possible figure that does not weigh, of a key that is not in the table.
    pub fn absent_companion(&self, hash: u64) -> u64 {
        let (other, missed) = self.missed(self.heads[self.bucket(hash)].floor());
        missed.min(other)
    }

    /// All keys in the table, in an arbitrary order.
    pub fn iter(&self) -> impl Iterator<Item = Entry<K>> {
        let slots = self
            .heads
            .iter()
            .enumerate()
            .flat_map(|(bucket, head)| (0..head.len()).map(move |slot| (bucket, slot)));
        slots.map(|(bucket, slot)| self.entry(bucket, slot))
    }

    /// The `k` keys with the largest lower bounds, largest first; equal ones in the order of their key's bytes.
    ///
    /// **Cost**: allocates, and reads all keys.
    pub fn top(&self, k: usize) -> Vec<Entry<K>> {
        self.ranking(k).0
    }

    /// The keys of [`top`](Self::top), and the largest possible weight of any other key. This weight is the larger of two
    /// values: the largest upper bound of the other keys in the table, and [`absent_upper`](Self::absent_upper).
    ///
    /// **Cost**: reads all keys; allocates room for a little more than `2 * k` of them.
    pub fn ranking(&self, k: usize) -> (Vec<Entry<K>>, u64) {
        let room = k.saturating_mul(2).saturating_add(LANES);
        // No key of the final list has less than `least`, because at least `k` keys have that much.
        let (mut listed, mut least, mut most) = (Vec::new(), 0, self.absent_upper());
        let split = |all, most: &mut u64| {
            let (listed, others) =
                split_largest(all, k, |entry: &Entry<K>| (entry.lower, entry.key));
            *most = others.iter().map(|entry| entry.upper).fold(*most, u64::max);
            listed
        };
        for entry in self.iter() {
            if entry.lower < least {
                most = most.max(entry.upper);
                continue;
            }
            listed.push(entry);
            if listed.len() >= room {
                listed = split(listed, &mut most);
                least = listed.last().map_or(u64::MAX, |entry| entry.lower);
            }
        }
        (split(listed, &mut most), most)
    }

    /// Largest possible weight of a key outside the table.
    pub fn absent_upper(&self) -> u64 {
        self.heads.iter().map(Head::floor).max().unwrap_or(0)
    }

    /// The exact number of keys, if all keys are in the table.
    ///
    /// A key that was refused or replaced leaves a floor above zero, unless it weighed nothing.
    pub fn count_of_keys(&self) -> Option<usize> {
        let weighty = self.weigh == Weigh::Packets || self.sizes.0 > 0;
        (weighty && self.absent_upper() == 0).then(|| self.heads.iter().map(Head::len).sum())
    }

    /// Counts of all packets.
    pub fn total(&self) -> Counts {
        self.total
    }

    /// The quantity that ranks.
    pub fn weigh(&self) -> Weigh {
        self.weigh
    }

    /// Number of keys that the table can hold, if they fall evenly into the buckets.
    pub fn capacity(&self) -> usize {
        self.slots.len()
    }

    /// Memory of the tables, bytes.
    pub fn memory_bytes(&self) -> usize {
        let times = self.times.as_ref().map_or(0, |times| times.len());
        self.heads.len() * size_of::<Head>()
            + self.slots.len() * size_of::<Slot<K>>()
            + times * size_of::<Times>()
    }

    /// The memory that the table really has, read back now.
    ///
    /// **Cost**: reads /proc/self/smaps.
    pub fn obtained(&self) -> weir_memory::Obtained {
        self.slots.obtained()
    }

    /// Seed of the keys' hashes, as given at construction.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        self.heads.fill(Head::EMPTY);
        self.late = 0;
        self.total = Counts::default();
        self.sizes = NO_SIZES;
    }
}

/// Bucket of a hash among `len` buckets, and its tag. The tag is the eight bits below the bits that choose the bucket, so
/// most keys of a bucket have different tags; 0 means no key.
#[inline(always)]
fn home(hash: u64, len: usize) -> (usize, u8) {
    let spread = spread(hash);
    let tag = (spread >> 24) as u8;
    (place(spread, len), tag + u8::from(tag == 0))
}

impl<K> core::fmt::Debug for Heavy<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "Heavy({} buckets of {WAYS}, by {:?}, {:?})",
            self.heads.len(),
            self.weigh,
            self.total
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Item;
    use weir_memory::Policy;

    /// No test stream is long enough to overflow, so the totals begin near the end, as if one key had all of them.
    #[test]
    fn sums_end_at_the_largest_u64_and_lower_bounds_hold() {
        let request = Request {
            pages: Policy::Virtual,
            ..Request::default()
        };
        let item = |key: u32, bytes| Item {
            hash: u64::from(key) << 20,
            bytes,
            key,
        };
        for weigh in [Weigh::Packets, Weigh::Bytes] {
            let mut heavy = Heavy::new(1024, weigh, 0, &request).expect("enough memory");
            heavy.update(&[item(1, u32::MAX)]);
            let begun = u64::MAX - 100 * u64::from(u32::MAX);
            heavy.total.bytes = begun;
            match weigh {
                Weigh::Packets => heavy.slots[0].companion = begun,
                Weigh::Bytes => heavy.heads[0].set_count(0, begun),
            }
            for round in 0..10 {
                let mut items = vec![item(1, u32::MAX); 30];
                items.extend((2..40).map(|key| item(key, u32::MAX - round)));
                heavy.update(&items);
            }
            assert_eq!(heavy.total.bytes, u64::MAX);
            let one = heavy
                .get(&1, item(1, 0).hash)
                .expect("the largest key stays");
            let (lower, upper) = match weigh {
                Weigh::Packets => (one.companion_lower, one.companion_upper),
                Weigh::Bytes => (one.lower, one.upper),
            };
            assert_eq!((lower, upper), (u64::MAX, u64::MAX), "as many or more");
            for key in 2..40 {
                let (lower, upper) = heavy.bounds(&key, item(key, 0).hash);
                let truth = match weigh {
                    Weigh::Packets => 10,
                    Weigh::Bytes => (0..10).map(|round| u64::from(u32::MAX) - round).sum(),
                };
                assert!(
                    lower <= truth && truth <= upper,
                    "{key}: {truth} in {lower}..={upper}"
                );
            }
        }
    }
}
