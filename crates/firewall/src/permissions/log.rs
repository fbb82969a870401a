//! Changes of permissions as words of a log.

use super::{Change, Full, Permissions, Span};
use crate::Address;
use crate::replicas::{Replicated, Shard, WORDS};
use std::sync::Arc;

impl<A: Address> Replicated for Permissions<A> {
    type Change = Change<A>;
    type Large = ();

    fn has_room(&self, changes: &[Change<A>]) -> Result<(), Full> {
        Self::has_room(self, changes)
    }

    fn apply(&mut self, change: &Change<A>) -> Result<(), Full> {
        Self::apply(self, change)
    }

    fn prefetch(&self, changes: &[Change<A>]) {
        self.prefetch_changes(changes);
    }

    fn encode(change: &Change<A>) -> ([u64; WORDS], Option<Arc<()>>) {
        (words(change), None)
    }

    fn decode(words: [u64; WORDS], _: Option<Arc<()>>) -> Change<A> {
        change(words)
    }

    fn large(&self) -> Option<Arc<()>> {
        None
    }

    /// Keeps all flags, since a packet is judged where its destination is.
    fn keep(&mut self, shard: Shard) {
        self.retain(|destination| shard.has(destination));
    }

    fn part(change: Change<A>, shard: Shard) -> Change<A> {
        Change {
            accepts: change.accepts.filter(|_| shard.has(change.address)),
            ..change
        }
    }
}

/// Flags in the last word of a change: whether it has a flag and its value, whether it has sources and accepts them.
const HAS_FLAG: u64 = 1;
const FLAG: u64 = 2;
const HAS_SOURCES: u64 = 4;
const ACCEPTS: u64 = 8;

pub(crate) fn words<A: Address>(change: &Change<A>) -> [u64; WORDS] {
    let Change {
        address,
        persona_non_grata,
        accepts,
    } = *change;
    let (sources, accepting) = accepts.unwrap_or((
        Span {
            first: A::ZERO,
            last: A::ZERO,
        },
        false,
    ));
    let bit = |is_set: bool, bit: u64| if is_set { bit } else { 0 };
    let flags = bit(persona_non_grata.is_some(), HAS_FLAG)
        | bit(persona_non_grata == Some(true), FLAG)
        | bit(accepts.is_some(), HAS_SOURCES)
        | bit(accepting, ACCEPTS);
    let [a, b, c] = [address, sources.first, sources.last].map(Address::to_words);
    [a[0], a[1], b[0], b[1], c[0], c[1], flags]
}

pub(crate) fn change<A: Address>(words: [u64; WORDS]) -> Change<A> {
    let [a, b, c, d, e, f, flags] = words;
    let sources = Span {
        first: A::of_words([c, d]),
        last: A::of_words([e, f]),
    };
    Change {
        address: A::of_words([a, b]),
        persona_non_grata: (flags & HAS_FLAG != 0).then_some(flags & FLAG != 0),
        accepts: (flags & HAS_SOURCES != 0).then_some((sources, flags & ACCEPTS != 0)),
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_change_comes_out_of_its_words() {
        for address in [0, 1, u128::MAX, 0x2001_0db8 << 96 | 7] {
            for persona_non_grata in [None, Some(false), Some(true)] {
                let sources = Span::new(3, u128::MAX - 1).unwrap();
                for accepts in [None, Some((sources, false)), Some((sources, true))] {
                    let whole = Change {
                        address,
                        persona_non_grata,
                        accepts,
                    };
                    assert_eq!(change(words(&whole)), whole);
                    let sources = Span::new(3, u32::MAX).unwrap();
                    let small = Change {
                        address: address as u32,
                        persona_non_grata,
                        accepts: accepts.map(|(_, yes)| (sources, yes)),
                    };
                    assert_eq!(change(words(&small)), small);
                }
            }
        }
    }
}
