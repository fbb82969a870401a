//! Summaries of streams over hashed keys, each with its error bound. This crate knows nothing about packet formats.
//!
//! | sketch | names its heavy keys | answer for a key | merge of two against one stream |
//! |---|---|---|---|
//! | [`Exact`] | yes | exact, until its memory is full: then it says so | equal |
//! | [`Heavy`] | yes | lower and upper bound, always true | bounds kept |
//! | [`Cms`], plain | no | never below the truth, rarely more than epsilon N above | equal |
//! | [`Cms`], conservative | no | the same, closer to the truth | bound kept |
//! | [`MajorityVote`] | yes | lower and upper bound, always true, probably close | bounds kept |
//! | [`SimpleTable`] | yes | no bound: a count lacks what was evicted | none |
//! | [`Reversible`] | by recovery, also from sums and differences | lower and upper bound, rarely broken | equal |
//! | [`ReversibleSets`], a reproduction | by recovery | never below the truth | union: equal unless a set is full |
//! | [`Spreaders`] | yes | number of distinct elements: exact while the sample holds all pairs, then with a 95 % range | equal |
//! | [`Distinct`] | no | number of distinct keys, and a 95 % range, whoever chose the keys | equal |
//! | [`Mergeable`] | no | the same, in images that engines of Apache DataSketches merge; hostile traffic can bend it | equal |
//!
//! [`SharedExact`], [`SharedCms`], [`SharedSimpleTable`], [`SharedReversible`] and [`SharedReversibleSets`] are the forms that several threads update at
//! once, without losing an update.
//!
//! Each sketch is made with a budget in bytes, takes all its memory at the start and none on an update. ([`Mergeable`] is the
//! exception, and hashes its keys itself.) A key comes with its hash; the sketches never hash, but name the seed of their keys'
//! hashes, so that sketches of different seeds are not merged. ([`Reversible`] hashes its keys by functions of its own, as
//! they have to be undone.)
#![forbid(unsafe_code)]

mod cms;
mod distinct;
mod error;
mod exact;
// The naive twins compare with the shared forms, whose atomics are other ones under loom.
#[cfg(not(loom))]
pub mod fuzz_body;
mod heavy;
mod image;
mod mv;
mod rs;
mod rs_set;
mod sht;
mod spreaders;
mod times;

pub use cms::{Bound, Cell, Cms, Rule, Shape, SharedCms};
pub use distinct::{Distinct, Mergeable};
pub use error::Error;
pub use exact::{Exact, SharedExact};
pub use heavy::{Entry, Heavy};
pub use mv::MajorityVote;
pub use rs::{
    Changed, Changes, Difference, HeavyKeys, Recovered, Reversible, ReversibleShape,
    SharedReversible,
};
pub use rs_set::{PARTS, Parts, ReversibleSets, SetKeys, SetRanking, SharedReversibleSets};
#[cfg(not(loom))]
pub use sht::SharedSimpleTable;
pub use sht::SimpleTable;
pub use spreaders::{Contact, Marks, Pair, Spreader, Spreaders};
pub use times::Times;

use core::borrow::Borrow;

use zerocopy::{FromZeros, Immutable, IntoBytes};

/// Key of a count: a plain value that equals another if all bytes are equal.
pub trait Key:
    Copy + Eq + FromZeros + IntoBytes + Immutable + Send + Sync + core::fmt::Debug + 'static
{
}

impl<K: Copy + Eq + FromZeros + IntoBytes + Immutable + Send + Sync + core::fmt::Debug + 'static>
    Key for K
{
}

/// A packet, in the form that a sketch counts.
#[derive(Clone, Copy, Debug)]
pub struct Item<K> {
    /// Hash of the key, uniform over all 64 bits, seeded by the caller; equal keys have equal hashes.
    pub hash: u64,
    /// Bytes of the packet.
    pub bytes: u32,
    /// Key of the packet.
    pub key: K,
}

/// A packet in any form that a sketch can count.
pub trait Packet<K> {
    /// Hash of the key: see [`Item::hash`].
    fn hash(&self) -> u64;
    /// Bytes of the packet.
    fn bytes(&self) -> u32;
    /// Key of the packet.
    fn key(&self) -> impl Borrow<K>;
    /// Whether this is the key of the packet. Called for nearly every packet, while [`key`](Self::key) is called for new
    /// keys only.
    fn is_of(&self, key: &K) -> bool;
    /// Time of the packet, ns since 1970, for tables with [`Times`].
    #[inline(always)]
    fn time_ns(&self) -> i64 {
        Times::NO_TIME
    }
}

impl<K: Key> Packet<K> for Item<K> {
    #[inline(always)]
    fn hash(&self) -> u64 {
        self.hash
    }

    #[inline(always)]
    fn bytes(&self) -> u32 {
        self.bytes
    }

    #[inline(always)]
    fn key(&self) -> impl Borrow<K> {
        &self.key
    }

    #[inline(always)]
    fn is_of(&self, key: &K) -> bool {
        same(&self.key, key)
    }
}

impl<K, P: Packet<K>> Packet<K> for &P {
    #[inline(always)]
    fn hash(&self) -> u64 {
        P::hash(self)
    }

    #[inline(always)]
    fn bytes(&self) -> u32 {
        P::bytes(self)
    }

    #[inline(always)]
    fn key(&self) -> impl Borrow<K> {
        P::key(self)
    }

    #[inline(always)]
    fn is_of(&self, key: &K) -> bool {
        P::is_of(self, key)
    }

    #[inline(always)]
    fn time_ns(&self) -> i64 {
        P::time_ns(self)
    }
}

/// Counts of a key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Number of packets.
    pub packets: u64,
    /// Number of bytes.
    pub bytes: u64,
}

impl Counts {
    /// The count that ranks.
    pub fn by(&self, weigh: Weigh) -> u64 {
        match weigh {
            Weigh::Packets => self.packets,
            Weigh::Bytes => self.bytes,
        }
    }

    /// The sum of both counts; `None` if packets or bytes exceed [`LIMIT`].
    fn plus(self, other: Self) -> Option<Self> {
        let packets = self
            .packets
            .checked_add(other.packets)
            .filter(|sum| *sum <= LIMIT)?;
        let bytes = self
            .bytes
            .checked_add(other.bytes)
            .filter(|sum| *sum <= LIMIT)?;
        Some(Self { packets, bytes })
    }
}

/// Quantity by which keys are ranked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Weigh {
    /// Packets of the key.
    #[default]
    Packets,
    /// Bytes of the key.
    Bytes,
}

/// The largest total that a merge or an image may bring in. Updates may go on to the largest u64, and saturate there.
const LIMIT: u64 = 1 << 63;

/// Number of items processed together: the memory of all of them is prefetched before the first is counted.
const LANES: usize = 32;

/// Spreads the entropy of every bit of the hash into the upper bits.
///
/// Packets are often distributed to workers by bits of the same hash. Then these bits are equal for all packets of a sketch, and
/// must not be the only bits that choose the place of a key.
#[inline(always)]
fn spread(hash: u64) -> u64 {
    hash.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// A permutation of the numbers of 64 bits in which every bit depends on every other (Stafford's variant 13, as in
/// SplitMix64).
#[inline(always)]
fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Place of a spread hash among `len` places, by its upper bits.
#[inline(always)]
fn place(spread: u64, len: usize) -> usize {
    ((u128::from(spread) * len as u128) >> 64) as usize
}

/// Whether two keys are equal. Uses the key's own comparison, which knows the length; comparing slices of bytes is a call to
/// memcmp.
#[inline(always)]
fn same<K: Key>(a: &K, b: &K) -> bool {
    a == b
}

/// The `k` largest by rank, largest first, and all others in no order. Of equal ranks, smaller key bytes come first, so
/// that the order is deterministic.
fn split_largest<T, K: Key>(
    mut all: Vec<T>,
    k: usize,
    of: impl Fn(&T) -> (u64, K),
) -> (Vec<T>, Vec<T>) {
    let order = |a: &T, b: &T| {
        let ((a, a_key), (b, b_key)) = (of(a), of(b));
        b.cmp(&a)
            .then_with(|| a_key.as_bytes().cmp(b_key.as_bytes()))
    };
    let mut others = Vec::new();
    if k < all.len() {
        all.select_nth_unstable_by(k, order);
        others = all.split_off(k);
    }
    all.sort_unstable_by(order);
    (all, others)
}
