//! Packets and bits of keys in windows that slide.
//!
//! ```text
//! time     |----|----|----|----|----|----|--    panes, ten of them as long as a window
//! window        [                        ]      the pane of this packet, up to the packet, and the nine before it
//! ```
//!
//! A window is never longer than asked for. A burst that fits into nine panes lies within one window, wherever it begins.

use super::firing::nanoseconds;
use super::trigger::{Figure, Key, Threshold};
use std::hash::{BuildHasher, RandomState};
use weir_packet::flow::{FlowKey, Hasher};

/// Panes of a window.
pub(super) const PANES: usize = 10;

/// Sets of the table, and keys of a set.
const SETS: usize = 1 << 13;
const WAYS: usize = 8;

/// Smallest number of packets of a window that has grown.
const GROWN: u64 = 100;

/// A key of the table.
#[derive(Clone, Copy, Debug)]
struct Slot {
    key: FlowKey,
    /// Pane of its last packet; `i64::MIN` in an empty slot.
    pane: i64,
    /// Sum of its counts at that packet.
    held: u64,
}

impl Slot {
    const EMPTY: Self = Self {
        key: FlowKey::NONE,
        pane: i64::MIN,
        held: 0,
    };
}

/// Begin of the packets.
#[derive(Clone, Copy, Debug)]
struct First {
    pane: i64,
    /// Time from the begin of its pane to the first packet, ns.
    head_ns: i64,
    /// Packets of the pane.
    packets: i64,
}

/// Counts of keys by panes.
///
/// **Memory**: 9 MiB, and 14 MiB for growth; a few hundred bytes for all packets together. If more keys come than there is room for, the
/// key of a set with the least count is forgotten: counts are never too high. **Cost**: a hash and a set of eight keys; no allocation.
pub(super) struct Rates {
    threshold: Threshold,
    hasher: Hasher,
    pane_ns: i64,
    /// Length of a window, s.
    seconds: f64,
    /// Number of the current pane.
    pane: i64,
    first: Option<First>,
    /// Bits of the hash of the key of each slot, so that a search reads one cache line.
    tags: Vec<u32>,
    slots: Vec<Slot>,
    /// Counts of each slot by the number of the pane, modulo their number.
    counts: Vec<u64>,
    /// Counts of a slot.
    each: usize,
    /// Keys that were forgotten although their window held packets.
    pub forgotten: u64,
}

impl Rates {
    pub fn new(threshold: Threshold) -> Self {
        let each = match threshold.figure {
            Figure::Growth => 2 * PANES,
            _ => PANES,
        };
        let slots = match threshold.key {
            Key::Total => 1,
            Key::Of(_) => SETS * WAYS,
        };
        Self {
            threshold,
            hasher: Hasher::new(RandomState::new().hash_one(0)),
            pane_ns: (nanoseconds(threshold.window) / PANES as i64).max(1),
            seconds: threshold.window.as_secs_f64(),
            pane: i64::MIN,
            first: None,
            tags: vec![0; slots],
            slots: vec![Slot::EMPTY; slots],
            counts: vec![0; slots * each],
            each,
            forgotten: 0,
        }
    }

    /// Time in which packets count, ns.
    pub fn reach_ns(&self) -> i64 {
        self.pane_ns.saturating_mul(self.each as i64)
    }

    /// Memory of the table, bytes.
    pub fn memory_bytes(&self) -> u64 {
        let slots = size_of_val(&self.tags[..]) + size_of_val(&self.slots[..]);
        (slots + size_of_val(&self.counts[..])) as u64
    }

    /// Counts a packet of these keys that arrived at `time`, ns. Calls `exceeds` with each key that exceeds the threshold now.
    pub fn count(
        &mut self,
        keys: [Option<FlowKey>; 2],
        bits: u64,
        time: i64,
        exceeds: &mut dyn FnMut(FlowKey),
    ) {
        self.begin(time.div_euclid(self.pane_ns), time);
        let amount = match self.threshold.figure {
            Figure::Bits => bits,
            _ => 1,
        };
        for key in keys.into_iter().flatten() {
            let slot = match self.threshold.key {
                Key::Total => 0,
                Key::Of(_) => self.slot(&key),
            };
            self.slide(slot);
            let pane = self.pane.rem_euclid(self.each as i64) as usize;
            self.counts[slot * self.each + pane] += amount;
            self.slots[slot].held += amount;
            if self.value(slot) > self.threshold.above {
                exceeds(key);
            }
        }
    }

    /// Begins the pane of a packet. A late packet counts in the open pane.
    fn begin(&mut self, pane: i64, time: i64) {
        self.pane = self.pane.max(pane);
        let first = self.first.get_or_insert(First {
            pane,
            head_ns: time.rem_euclid(self.pane_ns),
            packets: 0,
        });
        first.packets += i64::from(first.pane == self.pane);
    }

    /// The slot of a key. If there is none, the key with the least count of its set gives its slot away.
    fn slot(&mut self, key: &FlowKey) -> usize {
        let hash = self.hasher.plain(key);
        let first = (hash >> 32) as usize % SETS * WAYS;
        // Never zero, which is the tag of an empty slot.
        let tag = hash as u32 | 1;
        let tags = &self.tags[first..first + WAYS];
        let found = (first..)
            .zip(tags)
            .find(|(slot, other)| **other == tag && self.slots[*slot].key == *key);
        if let Some((slot, _)) = found {
            return slot;
        }
        let oldest = self.pane.saturating_sub(self.each as i64);
        let held = |slot: &Slot| if slot.pane > oldest { slot.held } else { 0 };
        let set = (first..).zip(&self.slots[first..first + WAYS]);
        let least = set.map(|(at, slot)| (held(slot), at)).min();
        let (least, slot) = least.expect("a set has slots");
        self.forgotten += u64::from(least > 0);
        self.tags[slot] = tag;
        self.slots[slot] = Slot {
            key: *key,
            ..Slot::EMPTY
        };
        slot
    }

    /// Clears the panes of a slot that no window holds any more.
    #[inline]
    fn slide(&mut self, slot: usize) {
        let each = self.each as i64;
        let Slot { pane, held, .. } = &mut self.slots[slot];
        let passed = self.pane.saturating_sub(*pane).min(each);
        for ago in 0..passed {
            let at = (self.pane - ago).rem_euclid(each) as usize;
            self.counts[slot * self.each + at] = 0;
        }
        if passed > 0 {
            *held = self.counts[slot * self.each..][..self.each].iter().sum();
            *pane = self.pane;
        }
    }

    /// Figure of a slot in the window that ends now.
    fn value(&self, slot: usize) -> f64 {
        let counts = &self.counts[slot * self.each..][..self.each];
        let of = |panes: core::ops::Range<i64>| -> u64 {
            let pane = |ago: i64| (self.pane - ago).rem_euclid(self.each as i64) as usize;
            panes.map(|ago| counts[pane(ago)]).sum()
        };
        if self.threshold.figure != Figure::Growth {
            return self.slots[slot].held as f64 / self.seconds;
        }
        let now = of(0..PANES as i64);
        if now < GROWN || !self.is_whole() {
            return 0.0;
        }
        match of(PANES as i64..2 * PANES as i64) {
            0 => 0.0,
            before => now as f64 / before as f64,
        }
    }

    /// Whether all of the previous window was seen; else steady traffic would seem to grow.
    ///
    /// The first pane counts as seen if its first packet arrived as soon as two packets follow each other.
    fn is_whole(&self) -> bool {
        let begin = self.pane - 2 * PANES as i64 + 1;
        self.first.is_some_and(|first| {
            let gap_ns = (self.pane_ns - first.head_ns) / first.packets.max(1);
            begin > first.pane || begin == first.pane && first.head_ns <= 2 * gap_ns
        })
    }
}

#[cfg(test)]
mod tests;
