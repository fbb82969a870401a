//! Keys that had a row: when first, when last, and their largest rate.

use std::collections::HashMap;
use weir_packet::flow::FlowKey;

/// Times at which a key had a row among the largest, and its largest rate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Begin of the first window in which the key had a row, ns since 1970.
    pub first_ns: i64,
    /// End of the last such window.
    pub last_ns: i64,
    /// Largest rate in a window, bits of frames without FCS per second.
    pub peak_bits_per_s: u64,
    /// Begin of the window with this rate.
    pub peak_ns: i64,
    /// Number of the last window with the key: the order of forgetting, which no timestamp changes.
    pub(crate) turn: u64,
}

/// Keys of one kind, a limited number of them. The keys that were not seen for longest are forgotten.
#[derive(Debug, Default)]
pub(crate) struct Sightings {
    keys: HashMap<FlowKey, Seen>,
    /// Number of forgotten keys.
    pub forgotten: u64,
}

/// Most keys of a kind.
pub(crate) const MOST: usize = 1 << 14;

/// Bytes of a place in a hash table: an entry and its control byte, at a load of at most seven eighths.
const PLACE: usize = size_of::<(FlowKey, Seen)>() + 1;

impl Sightings {
    /// Largest memory, bytes.
    pub const fn most_memory() -> usize {
        // Forgetting lists the turns of all keys.
        (MOST * 8 / 7).next_power_of_two() * PLACE + MOST * size_of::<u64>()
    }

    /// Notes a row in the window `turn` with the begin and the end `span`.
    pub fn see(&mut self, key: &FlowKey, span: (i64, i64), rate: u64, turn: u64) {
        if let Some(seen) = self.keys.get_mut(key) {
            (seen.last_ns, seen.turn) = (span.1, turn);
            if rate > seen.peak_bits_per_s {
                (seen.peak_bits_per_s, seen.peak_ns) = (rate, span.0);
            }
            return;
        }
        if self.keys.len() >= MOST {
            self.forget();
        }
        let seen = Seen {
            first_ns: span.0,
            last_ns: span.1,
            peak_bits_per_s: rate,
            peak_ns: span.0,
            turn,
        };
        self.keys.insert(*key, seen);
    }

    /// Forgets a quarter of the keys or more, so that it happens seldom.
    fn forget(&mut self) {
        let mut turns: Vec<u64> = self.keys.values().map(|seen| seen.turn).collect();
        let quarter = turns.len() / 4;
        let (_, oldest, _) = turns.select_nth_unstable(quarter);
        let oldest = *oldest;
        let before = self.keys.len();
        self.keys.retain(|_, seen| seen.turn > oldest);
        self.forgotten += (before - self.keys.len()) as u64;
    }

    pub fn get(&self, key: &FlowKey) -> Option<&Seen> {
        self.keys.get(key)
    }

    /// Memory, bytes.
    pub fn memory(&self) -> usize {
        self.keys.capacity() * 8 / 7 * PLACE
    }
}
