//! What all contestants have in common.

use super::stream::{Key, random};

/// Something that counts packets of flows.
pub trait Counter {
    /// Counts the whole stream, by the best way it offers. This is what is timed.
    fn feed(&mut self, stream: &[Key]);

    /// What it thinks a flow has.
    fn estimate(&self, key: &Key) -> u64;

    /// Bounds that it vouches for.
    fn bounds(&self, _: &Key) -> Option<(u64, u64)> {
        None
    }

    /// Would it name this flow when asked for the heavy ones? Something that cannot name flows is never asked.
    fn names(&self, _: &Key) -> bool {
        true
    }

    /// Bytes of its tables.
    fn bytes(&self) -> usize;
}

/// What sort of answer it gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// None: what all the others pay too.
    Floor,
    /// An estimate for a flow that one asks about.
    CountMin,
    /// The heavy flows by name.
    Heavy,
    /// Everything.
    Exact,
}

/// A contestant.
pub struct Entry {
    /// For the tables.
    pub name: &'static str,
    /// Its sort.
    pub kind: Kind,
    /// Whether it is weir's.
    pub ours: bool,
    /// What its time contains.
    pub inside: &'static str,
    /// Makes an empty one; not timed.
    pub make: fn() -> Box<dyn Counter>,
}

/// One number for all answers: equal answers, equal numbers.
pub fn checksum(counter: &dyn Counter, truth: &[(Key, u64)]) -> u64 {
    sum_of(truth.iter().map(|(key, _)| (key, counter.estimate(key))))
}

/// The same of given answers.
pub fn sum_of<'a>(answers: impl Iterator<Item = (&'a Key, u64)>) -> u64 {
    answers.fold(0, |sum, (key, answer)| sum.wrapping_add(answer.wrapping_mul(fingerprint(key))))
}

fn fingerprint(key: &Key) -> u64 {
    let front = u64::from_le_bytes(*key.first_chunk().expect("13 bytes are more than 8"));
    let back = u64::from_le_bytes(*key.last_chunk().expect("13 bytes are more than 8"));
    random(front ^ random(back))
}
