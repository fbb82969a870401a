//! MV-Sketch: rows of buckets, each of which finds the key that has the majority of its weight.
//!
//! # The algorithm
//!
//! The sketch has d rows of w buckets. A key has one bucket in each row. A bucket has the `total` of the weights of its packets,
//! a candidate `key`, and `votes` for the candidate, by the majority vote of Boyer and Moore. For a packet of weight x:
//!
//! ```text
//! total += x
//! candidate:       votes += x
//! another key:     votes -= x, if votes >= x
//!                  else the key of the packet becomes the candidate, with x - votes
//! ```
//!
//! A bucket is in use if its total is not zero. Whether its key has zero bytes does not matter.
//!
//! # Why the bounds hold
//!
//! Let f be the weight of a key in a bucket. After every packet:
//!
//! 1. *The candidate has votes <= f <= (total + votes) / 2.*
//! 2. *Every other key has f <= (total - votes) / 2.*
//!
//! A packet of the candidate adds x to total, votes and f of the candidate, so all sides of 1 grow by x, and the right side of
//! 2 stays. A packet of another key, while votes suffice, leaves the right side of 1 as it is and adds x to the right side of 2. If
//! votes do not suffice, let v be the votes before. The new candidate had f <= (total - v) / 2, and has x more. Then
//! (total + x + x - v) / 2 is that limit plus x, and x - v <= x <= f. For the old candidate, (total + x - (x - v)) / 2 is
//! (total + v) / 2 as before. Total and votes have the same parity, so no half is lost.
//!
//! A key takes the least of its upper bounds, and the largest of its votes in rows in which it is the candidate. **These bounds
//! always hold.** How wide they are is a matter of chance: an upper bound is too high by half of the weight of other keys in the
//! bucket at most, of which N / w is expected. By Markov's inequality it exceeds N / w with probability 1/2 at most, so the estimate
//! of d rows is too high by more than **N / w with probability 2^-d** at most. In terms of the paper, epsilon = 2 / w and the
//! excess is epsilon N / 2. The probability is over the hash functions, whose rows derive from one hash; as for
//! [`Cms`](crate::Cms), the bound is *empirically verified* for them. A key with more than half of the weight of one of its buckets
//! is the candidate there, so that a scan of all buckets finds it.
//!
//! # Merge
//!
//! Bucket by bucket, as another vote: totals are added up; votes of one key are added up; of two keys the one with more votes
//! stays, with the difference. Both properties follow for the sums, so the bounds hold for both streams together, at the summed
//! total.
//!
//! # The other quantity
//!
//! A bucket also sums up the quantity that does not rank, for its candidate and since it became the candidate: a lower bound. The
//! candidate has weighed `votes` or more since then, so at most `f - votes` is missing; each missing packet is taken for the
//! largest of the stream (each missing byte for one of the smallest packets).
//!
//! **Source**: Tang, Huang and Lee, "MV-Sketch: a fast and compact invertible sketch for heavy flow detection in network data
//! streams" (2019); Boyer and Moore, "MJRTY: a fast majority vote algorithm" (1991).

mod image;

use core::borrow::Borrow;

use weir_memory::{Request, Table};
use zerocopy::FromZeros;

use crate::error::alike;
use crate::{Counts, Entry, Error, Key, LANES, Packet, Weigh, place, same, split_largest, spread};

/// The weight of one bucket and its candidate; a bucket without weight is free.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(32))]
struct Bucket<K> {
    total: u64,
    votes: u64,
    /// Sum of the quantity that does not rank, since the key became the candidate.
    companion: u64,
    key: K,
}

/// Rows of buckets, each with a candidate for the majority of its weight.
///
/// **Cost**: an update touches one or two cache lines of each row. **Layout**: 64 bytes a bucket for keys of up to 40 bytes, 32 for
/// keys of up to 8. **Error bound**: [`bounds`](Self::bounds) always hold. For each queried key, the upper bound exceeds the truth
/// by more than [`excess`](Self::excess) with probability [`delta`](Self::delta) at most. Sums saturate at the largest u64: an upper
/// bound of that value means as much or more. The module's text has the algorithm and the argument.
pub struct MajorityVote<K> {
    /// Row after row.
    buckets: Table<Bucket<K>>,
    rows: usize,
    weigh: Weigh,
    seed: u64,
    total: Counts,
    /// Bytes of the smallest and the largest packet. Before the first packet, the smallest is the largest u32.
    sizes: (u32, u32),
}

/// Smallest and largest size, if there are no packets.
const NO_SIZES: (u32, u32) = (u32::MAX, 0);

/// Number of rows for a probability of 1/16.
const ROWS: usize = 4;

const MOST_ROWS: usize = 32;

impl<K: Key> MajorityVote<K> {
    /// A sketch of four rows in at most `memory_bytes` that ranks by `weigh`; `seed` names the seed of its keys' hashes.
    ///
    /// **Errors**: the memory cannot be obtained, or is too small for one bucket in each row.
    pub fn new(
        memory_bytes: usize,
        weigh: Weigh,
        seed: u64,
        request: &Request,
    ) -> Result<Self, Error> {
        let row = ROWS * size_of::<Bucket<K>>();
        match memory_bytes / row {
            0 => Err(Error::TooLittleMemory {
                given: memory_bytes,
                least: row,
            }),
            width => Self::of_shape(ROWS, width, weigh, seed, request),
        }
    }

    /// A sketch whose upper bounds exceed the truth by more than `epsilon / 2` of the total with probability `delta` at most: rows
    /// of 2 / epsilon buckets, and log2(1 / delta) rows.
    ///
    /// **Errors**: the memory cannot be obtained; `epsilon` or `delta` is not between 0 and 1, or needs more than 2^32 buckets a
    /// row or 32 rows.
    pub fn for_error(
        epsilon: f64,
        delta: f64,
        weigh: Weigh,
        seed: u64,
        request: &Request,
    ) -> Result<Self, Error> {
        if !((2.0 / 2f64.powi(32))..1.0).contains(&epsilon) {
            return Err(Error::Parameter {
                name: "epsilon",
                given: epsilon,
                must: "below 1 and at least 2 / 2^32",
            });
        }
        if !(0.5f64.powi(MOST_ROWS as i32)..1.0).contains(&delta) {
            return Err(Error::Parameter {
                name: "delta",
                given: delta,
                must: "below 1 and at least 2^-32",
            });
        }
        let rows = (1.0 / delta).log2().ceil() as usize;
        let width = (2.0 / epsilon).ceil() as usize;
        Self::of_shape(rows.max(1), width, weigh, seed, request)
    }

    /// A sketch of `rows` rows, each of `width` buckets.
    ///
    /// **Errors**: the memory cannot be obtained; there are no rows or more than 32, no buckets or more than 2^32 a row.
    pub fn of_shape(
        rows: usize,
        width: usize,
        weigh: Weigh,
        seed: u64,
        request: &Request,
    ) -> Result<Self, Error> {
        if !(1..=MOST_ROWS).contains(&rows) {
            return Err(Error::Parameter {
                name: "rows",
                given: rows as f64,
                must: "from 1 to 32",
            });
        }
        if !(1..=1 << 32).contains(&width) {
            return Err(Error::Parameter {
                name: "width",
                given: width as f64,
                must: "from 1 to 2^32",
            });
        }
        Ok(Self {
            buckets: Table::zeroed(rows * width, request)?,
            rows,
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

    /// Counts a batch of packets. Calls `new` with the index of each packet whose key was not a candidate before. The key may have
    /// been a candidate earlier, and replaced since.
    pub fn update_and_tell<P: Packet<K>>(&mut self, items: &[P], new: impl FnMut(usize)) {
        self.update_as(items, |item| item, new);
    }

    /// Counts a batch of packets under the parts that `part` makes of them. `new` as in
    /// [`update_and_tell`](Self::update_and_tell).
    #[inline]
    pub fn update_as<'a, T, P: Packet<K>>(
        &mut self,
        items: &'a [T],
        part: impl Fn(&'a T) -> P,
        mut new: impl FnMut(usize),
    ) {
        for (batch, items) in items.chunks(LANES).enumerate() {
            let known = match self.weigh {
                Weigh::Packets => self.update_lanes::<T, P, true>(items, &part),
                Weigh::Bytes => self.update_lanes::<T, P, false>(items, &part),
            };
            let mut unknown = !known & (u32::MAX >> (LANES - items.len()));
            while unknown != 0 {
                new(batch * LANES + unknown.trailing_zeros() as usize);
                unknown &= unknown - 1;
            }
        }
    }

    /// Counts at most [`LANES`] packets. In the returned mask, bit i is set if the key of packet i was a candidate.
    #[inline(always)]
    fn update_lanes<'a, T, P: Packet<K>, const PACKETS: bool>(
        &mut self,
        items: &'a [T],
        part: &impl Fn(&'a T) -> P,
    ) -> u32 {
        let width = self.width();
        let mut columns = [Columns::default(); LANES];
        let mut places = [0; LANES];
        let (mut bytes, mut sizes) = (0, self.sizes);
        for ((columns, at), item) in columns.iter_mut().zip(&mut places).zip(items) {
            let item = part(item);
            *columns = Columns::of(item.hash());
            *at = columns.next(width);
            weir_memory::prefetch(&self.buckets, *at);
            bytes += u64::from(item.bytes());
            sizes = (sizes.0.min(item.bytes()), sizes.1.max(item.bytes()));
        }
        self.sizes = sizes;
        self.total.packets = self.total.packets.saturating_add(items.len() as u64);
        self.total.bytes = self.total.bytes.saturating_add(bytes);
        let mut known = 0;
        for row in 0..self.rows {
            let (begun, further) = self.buckets[row * width..].split_at_mut(width);
            for (i, item) in items.iter().enumerate() {
                let at = places[i];
                // The buckets of the next row are on their way while those of this row are counted.
                places[i] = columns[i].next(width);
                weir_memory::prefetch(further, places[i]);
                let item = part(item);
                let size = u64::from(item.bytes());
                let (weight, companion) = if PACKETS { (1, size) } else { (size, 1) };
                known |= u32::from(begun[at].add(item, weight, companion)) << i;
            }
        }
        known
    }

    /// The buckets of a hash, one of each row.
    fn buckets_of(&self, hash: u64) -> impl Iterator<Item = &Bucket<K>> {
        self.places(hash).map(|place| &self.buckets[place])
    }

    /// Indices of the buckets of a hash.
    pub(crate) fn places(&self, hash: u64) -> impl Iterator<Item = usize> + use<K> {
        let (width, mut columns) = (self.width(), Columns::of(hash));
        (0..self.rows).map(move |row| row * width + columns.next(width))
    }

    /// Lower and upper bound of a key's weight, whether the key is a candidate or not.
    pub fn bounds(&self, key: &K, hash: u64) -> (u64, u64) {
        self.buckets_of(hash)
            .map(|bucket| bucket.bounds(key))
            .fold((0, u64::MAX), |(lower, upper), (least, most)| {
                (lower.max(least), upper.min(most))
            })
    }

    /// The bounds of a key, if it is a candidate.
    pub fn get(&self, key: &K, hash: u64) -> Option<Entry<K>> {
        let is_candidate = |bucket: &&Bucket<K>| bucket.is_of(key);
        self.buckets_of(hash).find(is_candidate)?;
        let (lower, upper) = self.bounds(key, hash);
        let all = match self.weigh {
            Weigh::Packets => self.total.bytes,
            Weigh::Bytes => self.total.packets,
        };
        let (companion_lower, companion_upper) = self
            .buckets_of(hash)
            .filter(is_candidate)
            .map(|bucket| {
                let missed = self.companion_of(upper - bucket.votes.min(upper));
                (bucket.companion, bucket.companion.saturating_add(missed))
            })
            .fold((0, all), |(lower, upper), (least, most)| {
                (lower.max(least), upper.min(most))
            });
        Some(Entry {
            key: *key,
            lower,
            upper,
            companion_lower,
            companion_upper,
        })
    }

    /// The most that packets of this weight can have of the quantity that does not rank.
    fn companion_of(&self, weight: u64) -> u64 {
        match self.weigh {
            Weigh::Packets => weight.saturating_mul(u64::from(self.sizes.1)),
            // If packets may have no bytes, the number of missed packets is unbounded.
            Weigh::Bytes => weight
                .checked_div(u64::from(self.sizes.0))
                .unwrap_or(u64::MAX),
        }
    }

    /// The candidate of each bucket in use; a key may be the candidate of several.
    pub fn candidates(&self) -> impl Iterator<Item = &K> {
        let used = self.buckets.iter().filter(|bucket| bucket.total > 0);
        used.map(|bucket| &bucket.key)
    }

    /// All candidates, each once, in an arbitrary order; `hash` is the hash function of the keys.
    ///
    /// **Cost**: reads all buckets, and for each candidate the bucket of each row.
    pub fn entries(&self, hash: impl Fn(&K) -> u64) -> impl Iterator<Item = Entry<K>> {
        let width = self.width();
        let used = self.buckets.iter().enumerate();
        used.filter(|(_, bucket)| bucket.total > 0)
            .filter_map(move |(at, bucket)| {
                let hash = hash(&bucket.key);
                // A candidate of several rows is told in the first of them.
                let mut earlier = self.buckets_of(hash).take(at / width);
                let is_told = earlier.any(|earlier| earlier.is_of(&bucket.key));
                (!is_told).then(|| self.get(&bucket.key, hash)).flatten()
            })
    }

    /// The `k` candidates with the largest upper bounds, largest first, equal ones in the order of their key's bytes; and the
    /// largest possible weight of any other key.
    ///
    /// **Cost**: as of [`entries`](Self::entries); allocates room for all candidates.
    pub fn ranking(&self, k: usize, hash: impl Fn(&K) -> u64) -> (Vec<Entry<K>>, u64) {
        let (listed, others) = split_largest(self.entries(hash).collect(), k, |entry| {
            (entry.upper, entry.key)
        });
        let most = others.iter().map(|entry| entry.upper).max().unwrap_or(0);
        (listed, most.max(self.absent_upper()))
    }

    /// Largest possible weight of a key outside the candidates.
    ///
    /// **Cost**: reads all buckets.
    pub fn absent_upper(&self) -> u64 {
        self.buckets
            .chunks_exact(self.width())
            .map(|row| row.iter().map(Bucket::others).max().unwrap_or(0))
            .min()
            .unwrap_or(0)
    }

    /// Weight by which an upper bound may be too high: the total divided by the number of buckets in a row, rounded up.
    pub fn excess(&self) -> u64 {
        self.total.by(self.weigh).div_ceil(self.width() as u64)
    }

    /// Probability that an upper bound is too high by more than [`excess`](Self::excess), for each queried key.
    pub fn delta(&self) -> f64 {
        0.5f64.powi(self.rows as i32)
    }

    /// Share of the total, twice that by which an upper bound may be too high: the epsilon of the paper.
    pub fn epsilon(&self) -> f64 {
        2.0 / self.width() as f64
    }

    /// Counts of all packets.
    pub fn total(&self) -> Counts {
        self.total
    }

    /// The quantity that ranks.
    pub fn weigh(&self) -> Weigh {
        self.weigh
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of buckets in a row.
    #[inline(always)]
    pub fn width(&self) -> usize {
        self.buckets.len() / self.rows
    }

    /// Memory of the sketch, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket<K>>()
    }

    /// The memory that the sketch really has, read back now.
    ///
    /// **Cost**: reads /proc/self/smaps.
    pub fn obtained(&self) -> weir_memory::Obtained {
        self.buckets.obtained()
    }

    /// Seed of the keys' hashes, as given at construction.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        self.buckets.fill(Bucket::new_zeroed());
        self.total = Counts::default();
        self.sizes = NO_SIZES;
    }

    /// Adds all counts of `other`. The bounds hold for both streams together.
    ///
    /// **Errors**: the sketches differ in shape, weight or seed, or the sum of the totals exceeds 2^63; then nothing has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        alike("rows", self.rows as u64, other.rows as u64)?;
        alike("width", self.width() as u64, other.width() as u64)?;
        alike("weight", self.weigh as u64, other.weigh as u64)?;
        alike("hash seed", self.seed, other.seed)?;
        self.total = self.total.plus(other.total).ok_or(Error::TooMuch)?;
        self.sizes = (
            self.sizes.0.min(other.sizes.0),
            self.sizes.1.max(other.sizes.1),
        );
        for (mine, theirs) in self.buckets.iter_mut().zip(other.buckets.iter()) {
            mine.join(theirs);
        }
        Ok(())
    }
}

impl<K: Key> Bucket<K> {
    /// Adds a packet, and returns whether its key was the candidate.
    #[inline(always)]
    fn add(&mut self, packet: impl Packet<K>, weight: u64, companion: u64) -> bool {
        let is_known = self.total != 0 && packet.is_of(&self.key);
        self.total = self.total.saturating_add(weight);
        if is_known {
            self.votes = self.votes.saturating_add(weight);
            self.companion = self.companion.saturating_add(companion);
        } else if self.votes >= weight {
            self.votes -= weight;
        } else {
            self.votes = weight - self.votes;
            self.companion = companion;
            self.key = *packet.key().borrow();
        }
        is_known
    }

    /// Whether the key is the candidate.
    fn is_of(&self, key: &K) -> bool {
        self.total != 0 && same(&self.key, key)
    }

    /// Lower and upper bound of a key that has this bucket.
    fn bounds(&self, key: &K) -> (u64, u64) {
        if self.total == u64::MAX {
            let votes = if self.is_of(key) { self.votes } else { 0 };
            (votes, u64::MAX)
        } else if self.is_of(key) {
            (self.votes, self.others() + self.votes)
        } else {
            (0, self.others())
        }
    }

    /// Largest possible weight of a key that is not the candidate.
    fn others(&self) -> u64 {
        if self.total == u64::MAX {
            return u64::MAX;
        }
        (self.total - self.votes) / 2
    }

    /// Adds the weight and the votes of the other bucket.
    fn join(&mut self, other: &Self) {
        let Self {
            votes,
            companion,
            key,
            ..
        } = *other;
        if other.total == 0 {
            return;
        }
        if self.total == 0 {
            *self = *other;
            return;
        }
        self.total += other.total;
        if same(&self.key, &key) {
            self.votes += votes;
            self.companion += companion;
        } else if self.votes >= votes {
            self.votes -= votes;
        } else {
            self.votes = votes - self.votes;
            (self.companion, self.key) = (companion, key);
        }
    }
}

/// Places of one key, row after row: row i takes the upper part of `a + i b`. Here `a` is the hash times an odd constant, and `b`
/// is `a` with its halves exchanged, made odd.
#[derive(Clone, Copy, Default)]
struct Columns {
    hash: u64,
    step: u64,
}

impl Columns {
    #[inline(always)]
    fn of(hash: u64) -> Self {
        let hash = spread(hash);
        Self {
            hash,
            step: hash.rotate_left(32) | 1,
        }
    }

    /// Index of the next row's bucket in its row.
    #[inline(always)]
    fn next(&mut self, width: usize) -> usize {
        let column = place(self.hash, width);
        self.hash = self.hash.wrapping_add(self.step);
        column
    }
}

impl<K> core::fmt::Debug for MajorityVote<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(
            f,
            "MajorityVote({} rows, {} buckets, by {:?}, {:?})",
            self.rows,
            self.buckets.len(),
            self.weigh,
            self.total
        )
    }
}
