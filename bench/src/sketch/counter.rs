//! Common interface of all contestants.

use super::stream::{Key, random};

/// A counter of packets per flow.
pub trait Counter {
    /// Counts the whole stream, by the fastest interface of the library. Only this is timed.
    fn feed(&mut self, stream: &[Key]);

    /// Estimated packets of a flow.
    fn estimate(&self, key: &Key) -> u64;

    /// Guaranteed bounds on the packets of a flow, if there are any.
    fn bounds(&self, _: &Key) -> Option<(u64, u64)> {
        None
    }

    /// Whether a flow would be among the listed heavy flows. Never called for a counter that cannot list flows.
    fn names(&self, _: &Key) -> bool {
        true
    }

    /// Bytes of the tables.
    fn bytes(&self) -> usize;
}

/// Kind of answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No answer: the cost that all others have too.
    Floor,
    /// An estimate for a given flow.
    CountMin,
    /// The list of heavy flows.
    Heavy,
    /// Exact counts of all flows.
    Exact,
}

/// A contestant.
pub struct Entry {
    /// Name for the tables.
    pub name: &'static str,
    /// Kind of its answer.
    pub kind: Kind,
    /// Whether the contestant is weir's.
    pub ours: bool,
    /// Work included in its time.
    pub inside: &'static str,
    /// Makes an empty counter; not timed.
    pub make: fn() -> Box<dyn Counter>,
}

/// Checksum of all answers: equal answers have equal checksums.
pub fn checksum(counter: &dyn Counter, truth: &[(Key, u64)]) -> u64 {
    sum_of(truth.iter().map(|(key, _)| (key, counter.estimate(key))))
}

/// Checksum of given answers.
pub fn sum_of<'a>(answers: impl Iterator<Item = (&'a Key, u64)>) -> u64 {
    answers.fold(0, |sum, (key, answer)| {
        sum.wrapping_add(answer.wrapping_mul(fingerprint(key)))
    })
}

fn fingerprint(key: &Key) -> u64 {
    let front = u64::from_le_bytes(*key.first_chunk().expect("13 bytes are more than 8"));
    let back = u64::from_le_bytes(*key.last_chunk().expect("13 bytes are more than 8"));
    random(front ^ random(back))
}
