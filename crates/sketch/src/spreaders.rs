//! Keys with the most distinct elements: hosts that talk to many peers or ports.
//!
//! # The algorithm
//!
//! A sample of the pairs (key, element), not of the packets. The hash of a pair picks a bucket of 7 slots and a rank:
//!
//! ```text
//! x = mix(hash of the pair)      bucket = (upper 32 bits of x) * buckets / 2^32
//! rank = lower 32 bits of x, without the last three; at least 8
//! rank <= floor[bucket], or rank is in the bucket:   nothing
//! a slot is free:                                    the slot takes the rank and the key
//! else, m = least rank there:                        floor[bucket] = min(m, rank); if m < rank, the slot of m takes rank and key
//! ```
//!
//! So a bucket holds the pairs of its 7 largest ranks, and the floor is the eighth rank. A repeated pair has the same bucket and the same
//! rank, and changes nothing: no filter of seen pairs is needed. Once buckets have lost pairs, most packets end at the gate, which
//! is the first byte of the floor, in a table small enough for the second-level cache.
//!
//! # Why the estimate is right
//!
//! Given the ranks of all other pairs of a bucket, a pair is sampled if its rank exceeds the
//! seventh of the others. For a sampled pair that is the floor. So it stands for 1 / p pairs, where
//! p = (2^32 - 1 - floor) / (2^32 - 1), and the sum of 1 / p over the sampled pairs of a key is an
//! unbiased estimate of its number of elements (Horvitz and Thompson; the rank conditioning of
//! Cohen and Kaplan). Its variance equals the variance of a sample that takes each pair with the
//! same probability: with s sampled pairs, the standard error is about sqrt((1 - p) / s) of the
//! truth. **While no bucket has lost a pair, all numbers are exact.**
//!
//! The bounds of a key with s sampled pairs are the numbers n that the sample does not contradict:
//!
//! ```text
//! D(n) = s ln(s / (n p)) + (n - s) ln((n - s) / (n (1 - p)))        at most ln(2 k / 0.05), k = number of pairs of all keys
//! ```
//!
//! By Chernoff's bound, a sample has so many (or so few) of n pairs with a probability of e^-D(n) at most. As there are at most
//! k keys, **all bounds of a sketch hold together** with a probability of 95 %. That is needed: the top of a ranking is
//! chosen for high estimates, and bounds for one key chosen beforehand would be wrong there most of the time. As some buckets may
//! have lost pairs and others not, either bound takes p of the key's pairs or of all buckets, whichever makes it wider.
//!
//! Two pairs of one bucket and rank are taken for one, which is as rare as a collision of 29 bits within a bucket. Ranks end at 2^32, so a
//! bucket cannot count far beyond 2^20 pairs: [`Spreaders::is_saturated`].
//!
//! # Marks: whether contacts were answered
//!
//! Each pair of the sample has three marks: *sent* (its key has sent to the element), *answered* (the element has sent to the key), and
//! *accepted* (by a packet other than a refusal). A packet may be offered twice, as the contact of its sender, and, with source and destination
//! exchanged, as an answer to a contact of its receiver: see [`Marks`]. Either creates the pair. Numbers of elements count sent
//! pairs only, and of these the pairs without an answer, or with nothing but refusals. So neither the order of packets nor who began
//! matters: the clients of a server have answered it.
//!
//! A pair in the sample has been in it since its first packet, because floors never fall. So its marks are complete, and a union
//! (bitwise or) of marks is right for repeated packets and for merges.
//!
//! # Merge
//!
//! Bucket by bucket, the 7 largest ranks of both with the marks of both, and the eighth as the floor. The result equals
//! one sketch of both streams, in whatever order the packets arrived, because the largest ranks of
//! a union are among the largest of its parts.
//!
//! # What hostile traffic can do
//!
//! Without the seed nobody can choose ranks. A flood of new pairs takes slots from all keys
//! equally: it widens bounds and bends no estimate. A flood of repeated pairs does nothing.
//!
//! # Measured alternatives
//!
//! 24 M packets, 14.7 M pairs, 1 M hosts, of which a thousand have 1000 to 20 000 peers; hashing included, one core of a shared machine. Ns a
//! packet, and the mean relative error of the thousand. SpreadSketch (d = 4, a line for each bucket, one hash for all rows) and RGS-Sketch
//! are written for the bench, and prefetch too:
//!
//! | | 16 MiB | 4 MiB | 1 MiB |
//! |---|---|---|---|
//! | SpreadSketch | 11.0, 0.084 | 8.5, 0.084 | 7.7, 0.109 |
//! | RGS-Sketch | 14.1, 0.044 | -, 0.045 | -, 0.051 |
//! | buckets of 16 ranks, floors and keys in tables of their own | 9.0, 0.024 | - | - |
//! | 15 slots; ranks and keys in tables of their own | 10.5, 0.024 | 6.8, 0.052 | 4.4, 0.102 |
//! | 15 slots in two adjacent lines | 10.7, 0.024 | - | - |
//! | 7 slots in one line | 9.1, 0.028 | - | 4.5, 0.115 |
//! | **the same, the next packets looked through in the meantime** | 8.0, 0.027 | -, 0.056 | -, 0.109 |
//!
//! With 4 MiB and less, RGS-Sketch has the smaller error: registers of five bits cost less than sampled keys. It drops registers of hosts
//! that find no cell, so its answer depends on the order of the packets, and merged parts do not equal the whole.
//!
//! A search for the least rank by a chain of minima, with the place found by a second loop, took 15.5 ns: the compiler makes it of
//! branches. `weir-bench sketch` repeats the comparison.
//!
//! **Source**: Gibbons, "Distinct sampling for highly-accurate answers to distinct values queries and event reports" (2001); Cohen and
//! Kaplan, "Summarizing data using bottom-k sketches" (2007).

mod image;
mod marks;
mod ranking;

pub use marks::Marks;

use weir_memory::{Request, Table};
use zerocopy::FromZeros;

use crate::error::alike;
use crate::{Error, Key, mix, same};

/// Slots of a bucket. Their ranks and the floor fill a cache line.
const SLOTS: usize = 7;
const LINE: usize = SLOTS + 1;

/// A bucket is saturated if fewer numbers than this are left above its floor.
const LEAST_RANKS: u32 = 1 << 15;

/// The bits of a rank. The other bits of a slot are its own number, so that the least of the slots tells its place.
const RANK: u32 = !(LINE as u32 - 1);

/// Lower bits of a floor that its gate lacks.
const GATE: u32 = 24;

/// Packets processed together. The memory of packets that may be sampled is prefetched, and they
/// are few.
const BATCH: usize = 64;

/// Packets whose pairs may be sampled: bucket, rank, and place among the packets.
#[derive(Clone, Copy)]
struct Taken {
    pairs: [(u32, u32, u32); BATCH],
    count: usize,
}

impl Taken {
    const NONE: Self = Self {
        pairs: [(0, 0, 0); BATCH],
        count: 0,
    };

    /// Takes the pairs whose ranks pass their gates.
    #[inline(always)]
    fn take<K>(&mut self, contacts: impl Iterator<Item = impl Contact<K>>, gates: &[u8]) {
        self.count = 0;
        for (index, contact) in (0..).zip(contacts) {
            let (bucket, rank) = home(contact.pair(), gates.len());
            // Written in any case and kept if the rank is high enough: nothing here waits for memory or for a guess.
            self.pairs[self.count % BATCH] = (bucket, rank, index);
            let passes = (rank >> GATE) as u8 >= gates[bucket as usize];
            self.count += usize::from(passes & (contact.marks() != Marks::NONE));
        }
    }

    #[inline(always)]
    fn pairs(&self) -> &[(u32, u32, u32)] {
        &self.pairs[..self.count]
    }
}

/// A packet as a contact of its key with an element.
#[derive(Clone, Copy, Debug)]
pub struct Pair<K> {
    /// Hash of the key together with the element, uniform over all 64 bits, seeded by the caller; it is the identity of the pair.
    pub hash: u64,
    /// Key of the pair.
    pub key: K,
}

/// A packet in any form that has a key and an element.
pub trait Contact<K> {
    /// Hash of the key together with the element: see [`Pair::hash`].
    fn pair(&self) -> u64;
    /// Key of the packet. Called for sampled pairs only.
    fn key(&self) -> K;
    /// Marks that the packet gives to its pair. A packet with [`Marks::NONE`] is not counted.
    #[inline(always)]
    fn marks(&self) -> Marks {
        Marks::CONTACT
    }
}

impl<K: Key> Contact<K> for Pair<K> {
    #[inline(always)]
    fn pair(&self) -> u64 {
        self.hash
    }

    #[inline(always)]
    fn key(&self) -> K {
        self.key
    }
}

impl<K, C: Contact<K>> Contact<K> for &C {
    #[inline(always)]
    fn pair(&self) -> u64 {
        C::pair(self)
    }

    #[inline(always)]
    fn key(&self) -> K {
        C::key(self)
    }

    #[inline(always)]
    fn marks(&self) -> Marks {
        C::marks(self)
    }
}

/// A key of [`Spreaders`], with its number of distinct elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spreader<K> {
    /// The key.
    pub key: K,
    /// Estimated number of distinct elements.
    pub estimate: u64,
    /// Lower bound: with `upper`, it holds with a probability of 95 %, and it is never below the number in the sample.
    pub lower: u64,
    /// Upper bound. Equals `lower` if the number is exact.
    pub upper: u64,
    /// Estimated number of elements that did not answer; `None` if the sketch has seen no answer at all. Then the packets probably
    /// have one direction only.
    pub unanswered: Option<u64>,
    /// Estimated number of elements that answered with refusals only; `None` as in `unanswered`.
    pub refused: Option<u64>,
}

/// Pairs of the largest ranks. With keys of four bytes, a bucket fills a cache line.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(32))]
struct Bucket<K> {
    /// Ranks above the floor, each with the number of its slot in the lower bits; 0 is a free slot. The floor comes last; it is the
    /// largest rank that the bucket has lost, or 0.
    line: [u32; LINE],
    /// The key of each slot.
    keys: [K; SLOTS],
    /// The marks of each slot, in bytes that the alignment leaves over.
    marks: marks::All,
}

/// The keys with the most distinct elements, by a sample of the distinct pairs.
///
/// Hash and seed: as for [`Pair::hash`]. Sketches of the same seed and size can be merged.
///
/// **Cost**: an update reads a byte, and one bucket if the pair may be sampled; it allocates nothing. **Layout**: a bucket of seven pairs
/// takes 65 bytes with keys of 4 bytes, 97 with 8, and 161 with 16. **Error bound**: exact until a bucket has lost a pair, see
/// [`is_exact`](Self::is_exact); then [`Spreader::lower`] and [`Spreader::upper`].
pub struct Spreaders<K> {
    /// The upper bits of each floor. They are few, so that the floors of all buckets stay in the
    /// second-level cache.
    gates: Table<u8>,
    buckets: Table<Bucket<K>>,
    seed: u64,
}

impl<K: Key> Spreaders<K> {
    /// Memory of a bucket, bytes.
    const BUCKET: usize = 1 + size_of::<Bucket<K>>();

    /// A sketch of at most `memory_bytes`; `seed` names the seed of its pairs' hashes.
    ///
    /// **Errors**: the memory cannot be obtained, or is too small for one bucket.
    pub fn new(memory_bytes: usize, seed: u64, request: &Request) -> Result<Self, Error> {
        // Bucket numbers have 32 bits.
        match (memory_bytes / Self::BUCKET).min(u32::MAX as usize) {
            0 => Err(Error::TooLittleMemory {
                given: memory_bytes,
                least: Self::BUCKET,
            }),
            buckets => Self::of_buckets(buckets, seed, request),
        }
    }

    fn of_buckets(buckets: usize, seed: u64, request: &Request) -> Result<Self, Error> {
        Ok(Self {
            gates: Table::zeroed(buckets, request)?,
            buckets: Table::zeroed(buckets, request)?,
            seed,
        })
    }

    /// Counts a batch of packets; hundreds at once are faster than tens.
    pub fn update<C: Contact<K>>(&mut self, contacts: &[C]) {
        self.update_as(contacts, |contact| contact);
    }

    /// Counts a batch of packets as the contacts that `part` makes of them. `part` is called twice for a packet that may be sampled.
    pub fn update_as<'a, T, C: Contact<K>>(&mut self, items: &'a [T], part: impl Fn(&'a T) -> C) {
        // Memory for the pairs of one piece arrives while the next piece is looked through.
        let (mut now, mut before) = (&mut Taken::NONE.clone(), &mut Taken::NONE.clone());
        let mut piece_before: &[T] = &[];
        for piece in items.chunks(BATCH) {
            now.take(piece.iter().map(&part), &self.gates);
            for (bucket, ..) in now.pairs() {
                weir_memory::prefetch_all(&self.buckets, *bucket as usize);
            }
            self.add_all(before, |index| part(&piece_before[index]));
            core::mem::swap(&mut now, &mut before);
            piece_before = piece;
        }
        self.add_all(before, |index| part(&piece_before[index]));
    }

    #[inline(always)]
    fn add_all<C: Contact<K>>(&mut self, taken: &Taken, contact: impl Fn(usize) -> C) {
        for (bucket, rank, index) in taken.pairs() {
            let contact = contact(*index as usize);
            self.add(*bucket as usize, *rank, contact.marks(), || contact.key());
        }
    }

    /// Puts a pair into its bucket, unless its rank is too low. If the pair is there, it gets the marks.
    #[inline(always)]
    fn add(&mut self, bucket: usize, rank: u32, given: Marks, key: impl FnOnce() -> K) {
        let Bucket { line, keys, marks } = &mut self.buckets[bucket];
        let there = entry_of(line, rank);
        if (there != 0) | (rank <= line[SLOTS]) {
            if there != 0 {
                marks.add(there as usize % LINE, given);
            }
            return;
        }
        let least = least(line);
        let slot = match least {
            // Slots are filled in order.
            0 => line[..SLOTS].iter().filter(|rank| **rank > 0).count(),
            _ => least as usize % LINE,
        };
        if least > 0 {
            let floor = (least & RANK).min(rank);
            line[SLOTS] = floor;
            self.gates[bucket] = (floor >> GATE) as u8;
        }
        if least < rank {
            line[slot] = rank | slot as u32;
            keys[slot] = key();
            marks.set(slot, given);
        }
    }

    /// Adds all pairs of `other`: the sketch then equals one sketch of both streams.
    ///
    /// **Cost**: reads all buckets of both; allocates nothing. **Errors**: the sketches differ in size or seed; then nothing
    /// has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Error> {
        self.check_alike(other)?;
        for (bucket, Bucket { line, keys, marks }) in other.buckets.iter().enumerate() {
            self.raise(bucket, line[SLOTS]);
            for (slot, rank) in line[..SLOTS]
                .iter()
                .enumerate()
                .filter(|(_, rank)| **rank > 0)
            {
                self.add(bucket, rank & RANK, marks.of(slot), || keys[slot]);
            }
        }
        Ok(())
    }

    /// Adds the marks of `other` to the pairs of this sketch; other pairs are not added. So the answers of a later time count, and its
    /// contacts do not.
    ///
    /// Pairs of which `other` can tell nothing, because it has lost pairs of their ranks, leave the sample.
    ///
    /// **Cost**: reads all buckets of both; allocates nothing. **Errors**: as for [`merge`](Self::merge).
    pub fn merge_marks(&mut self, other: &Self) -> Result<(), Error> {
        self.check_alike(other)?;
        for (bucket, Bucket { line, marks, .. }) in other.buckets.iter().enumerate() {
            self.raise(bucket, line[SLOTS]);
            let own = &mut self.buckets[bucket];
            for (slot, rank) in (0..).zip(&line[..SLOTS]) {
                let there = match rank & RANK {
                    0 => 0,
                    rank => entry_of(&own.line, rank),
                };
                if there != 0 {
                    own.marks.add(there as usize % LINE, marks.of(slot));
                }
            }
        }
        Ok(())
    }

    /// Refuses a sketch of another size or seed.
    fn check_alike(&self, other: &Self) -> Result<(), Error> {
        alike(
            "buckets",
            self.buckets.len() as u64,
            other.buckets.len() as u64,
        )?;
        alike("hash seed", self.seed, other.seed)
    }

    /// Forgets all pairs of the bucket up to this rank.
    fn raise(&mut self, bucket: usize, floor: u32) {
        let Bucket { line, keys, marks } = &mut self.buckets[bucket];
        if floor <= line[SLOTS] {
            return;
        }
        let before = core::mem::take(line);
        let kept = (0..SLOTS).filter(|slot| before[*slot] & RANK > floor);
        for (to, from) in kept.enumerate() {
            line[to] = before[from] & RANK | to as u32;
            keys[to] = keys[from];
            marks.set(to, marks.of(from));
        }
        line[SLOTS] = floor;
        self.gates[bucket] = (floor >> GATE) as u8;
    }

    /// Whether all pairs are in the sample, so that all numbers are exact.
    pub fn is_exact(&self) -> bool {
        self.floors().all(|floor| floor == 0)
    }

    /// Share of the distinct pairs that is in the sample; 1 if all are.
    ///
    /// **Cost**: reads all ranks.
    pub fn share(&self) -> f64 {
        let mut all = ranking::Sum::default();
        self.items()
            .for_each(|(weight, ..)| all.count(weight, Marks::CONTACT));
        all.share()
    }

    /// Whether some pair was sent and answered. If not, the packets probably have one direction only.
    ///
    /// **Cost**: reads all marks, up to the first such pair.
    pub fn knows_answers(&self) -> bool {
        let both = Marks::CONTACT | Marks::REFUSAL;
        self.items().any(|(_, _, marks)| marks.contains(both))
    }

    /// Whether some bucket has so many pairs that estimates are too low. A sketch of one MiB gets there with some 10^10 pairs.
    pub fn is_saturated(&self) -> bool {
        self.floors().any(|floor| u32::MAX - floor < LEAST_RANKS)
    }

    /// Estimated number of distinct pairs that the sample is taken of: with the pairs of answers alone, which
    /// [`distinct`](Self::distinct) does not count.
    ///
    /// **Cost**: reads all ranks.
    pub fn sampled_from(&self) -> u64 {
        let all = self.items().map(|(weight, ..)| (weight, Marks::CONTACT));
        ranking::rounded(all.collect::<ranking::Sum>().weight)
    }

    /// Number of keys with a sent pair in the sample; if the sample [is exact](Self::is_exact), the number of all keys.
    ///
    /// **Cost**: sorts the keys of the sample, and allocates room for them.
    pub fn sampled_keys(&self) -> usize {
        let mut keys: Vec<&K> = self.pairs().map(|(_, key, _)| key).collect();
        keys.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
        keys.dedup();
        keys.len()
    }

    /// Upper bound of the number of elements of any key without a pair in the sample; 0 if the sample is exact.
    ///
    /// **Cost**: reads all ranks.
    pub fn absent_upper(&self) -> u64 {
        self.scale().upper(ranking::Sum::default(), 0)
    }

    fn floors(&self) -> impl Iterator<Item = u32> {
        self.buckets.iter().map(|bucket| bucket.line[SLOTS])
    }

    /// Number of pairs that the sample can hold.
    pub fn capacity(&self) -> usize {
        self.buckets.len() * SLOTS
    }

    /// Memory of the tables, bytes.
    pub fn memory_bytes(&self) -> usize {
        self.buckets.len() * Self::BUCKET
    }

    /// The memory that the table really has, read back now.
    ///
    /// **Cost**: reads /proc/self/smaps.
    pub fn obtained(&self) -> weir_memory::Obtained {
        self.buckets.obtained()
    }

    /// Seed of the pairs' hashes, as given at construction.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Forgets everything; keeps the memory.
    pub fn clear(&mut self) {
        self.gates.fill(0);
        self.buckets
            .iter_mut()
            .for_each(|bucket| bucket.line = [0; LINE]);
    }

    /// The sampled pairs: weight, key and marks.
    fn items(&self) -> impl Iterator<Item = (u64, &K, Marks)> {
        self.buckets
            .iter()
            .flat_map(|Bucket { line, keys, marks }| {
                let weight = ranking::weight(line[SLOTS]);
                let pairs = line.iter().zip(keys).enumerate();
                let pairs = pairs.filter(|(_, (rank, _))| **rank > 0);
                pairs.map(move |(slot, (_, key))| (weight, key, marks.of(slot)))
            })
    }

    /// The sampled pairs that were sent.
    fn pairs(&self) -> impl Iterator<Item = (u64, &K, Marks)> {
        self.items()
            .filter(|(_, _, marks)| marks.contains(Marks::CONTACT))
    }

    /// The keys of the sampled pairs that were sent, in no order: a key comes once for each of its pairs.
    ///
    /// **Cost**: reads all pairs of the sample.
    pub fn sent_keys(&self) -> impl Iterator<Item = &K> {
        self.pairs().map(|(_, key, _)| key)
    }

    /// Estimated number of distinct elements of this key; 0 if none of its pairs is in the sample.
    ///
    /// **Cost**: reads all pairs of the sample.
    pub fn estimate(&self, key: &K) -> Spreader<K> {
        let of_key = self.pairs().filter(|(_, other, _)| same(key, other));
        let sum = of_key.map(|(weight, _, marks)| (weight, marks)).collect();
        self.scale().told(key, sum, self.knows_answers())
    }

    /// Estimated number of distinct pairs of all keys.
    ///
    /// **Cost**: reads all ranks.
    pub fn distinct(&self) -> u64 {
        let all: ranking::Sum = self
            .pairs()
            .map(|(weight, _, marks)| (weight, marks))
            .collect();
        ranking::rounded(all.weight)
    }
}

/// Bucket and rank of a pair.
#[inline(always)]
pub(crate) fn home(hash: u64, buckets: usize) -> (u32, u32) {
    let mixed = mix(hash);
    let bucket = ((mixed >> 32) * buckets as u64) >> 32;
    (bucket as u32, (mixed as u32 & RANK).max(!RANK + 1))
}

/// The entry of a rank: the rank with the number of its slot, or 0 if no slot has it. Without a branch for each slot, because nobody
/// can foresee the slot.
#[inline(always)]
fn entry_of(line: &[u32; LINE], rank: u32) -> u32 {
    const SLOT: [u32; LINE] = [!0, !0, !0, !0, !0, !0, !0, 0];
    let hit = |at: usize| match line[at] & RANK == rank {
        true => line[at] & SLOT[at],
        false => 0,
    };
    let four: [u32; 4] = core::array::from_fn(|at| hit(at) | hit(at + 4));
    four[0] | four[1] | four[2] | four[3]
}

/// The least of the slots. In halves, because a chain of minima is compiled to branches that nobody can foresee.
#[inline(always)]
fn least(line: &[u32; LINE]) -> u32 {
    const FLOOR: [u32; 4] = [0, 0, 0, u32::MAX];
    let four: [u32; 4] = core::array::from_fn(|at| line[at].min(line[at + 4] | FLOOR[at]));
    four[0].min(four[2]).min(four[1].min(four[3]))
}

impl<K> core::fmt::Debug for Spreaders<K> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "Spreaders({} buckets of {SLOTS})", self.buckets.len())
    }
}
