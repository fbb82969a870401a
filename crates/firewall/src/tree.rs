//! The first rule for a packet of IPv4 with ports and without extension headers, by a tree of cuts.
//!
//! A rule is one or more boxes in the space of the five fields: a range of each. A node of the tree cuts its part of the space, its cell, into
//! 2^k equal parts by k bits of one field, and a leaf has the boxes that meet its cell, in the order of the list.
//!
//! ```text
//! leaf(key):  node = root
//!             until node is a leaf: node = node.base + (key[node.field] >> node.shift & node.mask)
//! first(key): first box of the leaf that holds the key, eight compared at a time
//! ```
//!
//! **Why it is right.** The boxes of a leaf are compared in all fields, so that a wrong box never
//! matches. Each box that a packet may need is in its leaf: a child gets all boxes that meet its
//! cell, except boxes whose part in the cell lies within an earlier box that ends the search. The
//! bits above those of the node are skipped if all its boxes agree in them. A packet with other
//! bits there is led to a wrong child; as no box of the node holds it, none there does.
//!
//! **Large sets.** A set of more ranges than a rule may have boxes is not a range of an address. It
//! has a bit above the protocol in the key, found by [`AddressBitmap`] before the packet goes down;
//! a rule that names the set has the boxes in which the bit is 1.
//!
//! 1. The cut is the one after which a packet near a rule has the fewest boxes in its cell, less what the boxes that are in several parts cost.
//! 2. A leaf that stays large, or for which there is no memory, has no boxes: its packets are left to the rows of bits.
//! 3. Packets go down together, a level at a time, so that their waits for memory are one.
//!
//! **Source**: cuts of Gupta and McKeown, "Packet classification using hierarchical intelligent cuttings" (Hot Interconnects 1999), with the
//! bits of Woo, "A modular approach to packet classification" (INFOCOM 2000).

mod build;

use crate::classifier::ranges_of;
use crate::fields::Fields;
use crate::rules::{Action, Rule};
use crate::{Addresses, Verdict};
use build::{Builder, Ranges, boxes_of, large_sets};
use core::hint::select_unpredictable;
use std::sync::Arc;
use weir_memory::{AddressBitmap, Boxes, LANES, Place, Point, in_huge_pages, prefetch_all};

/// Packets that go down together.
pub(crate) const TOGETHER: usize = 32;

/// Memory of the leaves, bytes, after which no leaf gets boxes.
const MOST_BYTES: usize = 32 << 20;

/// Boxes of a node up to which it is not cut.
const LEAF: usize = 8;

/// Boxes of a leaf beyond which the rows of bits judge its packets.
const MOST_IN_LEAF: usize = 64;

/// Boxes of a rule, but for its large sets, beyond which the list has no tree.
const MOST_BOXES: usize = 64;

/// Levels below the root.
const MOST_LEVELS: u32 = 12;

/// Bits by which a node is cut at most.
const MOST_BITS: u32 = 10;

/// Boxes of a node up to which each is compared with all earlier boxes.
const FEW: usize = 128;

/// Steps for each box of the list, and in all, after which no node is cut: the time that the tree takes, about a nanosecond each.
const MOST_STEPS: (usize, usize) = (1024, 32 << 20);

/// Fields: source, destination, source port, destination port, protocol. Each lies in a word of the key, this many bits above its end.
const PLACES: [(usize, u32); 5] = [(0, 0), (1, 0), (2, 16), (2, 0), (3, 0)];

/// Fields of a packet: addresses, ports, and the protocol below a bit for each large set. What a packet without
/// [these fields](Fields::has_key) is in has no meaning.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a>(pub(crate) &'a [u32; 4]);

impl<'a> Key<'a> {
    /// The key of a packet for a list without large sets.
    #[inline(always)]
    pub(crate) fn of(fields: &'a Fields) -> Self {
        Self(fields.key())
    }

    #[inline(always)]
    fn point(self) -> Point {
        let [src, dst, ports, proto] = *self.0;
        Point {
            long: [src, dst],
            short: [(ports >> 16) as u16, ports as u16, proto as u16],
        }
    }
}

/// A rule that matched, or none, and what it does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry(u32);

impl Entry {
    const ENDS: u32 = 1 << 31;
    const PASSES: u32 = 1 << 30;
    const REJECTS: u32 = 1 << 29;
    /// Number that stands for no rule.
    const NO_RULE: u32 = Self::REJECTS - 1;

    fn new(rule: u32, plain: Option<Action>) -> Self {
        Self(match plain {
            Some(Action::Decide(Verdict::Pass)) => rule | Self::ENDS | Self::PASSES,
            Some(Action::Decide(Verdict::Drop)) => rule | Self::ENDS,
            Some(Action::Decide(Verdict::Reject)) => rule | Self::ENDS | Self::REJECTS,
            Some(Action::Count) | None => rule,
        })
    }

    /// The number of the rule; `None` if no rule matched.
    #[inline]
    pub(crate) fn rule(self) -> Option<u32> {
        let number = self.0 & Self::NO_RULE;
        (number != Self::NO_RULE).then_some(number)
    }

    /// The verdict, if the search ends here without rare conditions: the rule's, or the default if
    /// no rule matched.
    #[inline]
    pub(crate) fn end(self) -> Option<Verdict> {
        // Without a branch for each verdict, which is hard to predict.
        let denied = if self.0 & Self::REJECTS != 0 {
            Verdict::Reject
        } else {
            Verdict::Drop
        };
        let verdict = select_unpredictable(self.0 & Self::PASSES != 0, Verdict::Pass, denied);
        (self.0 & Self::ENDS != 0).then_some(verdict)
    }
}

/// A rule that matched a key, and where the search goes on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    /// The rule.
    pub(crate) entry: Entry,
    group: u32,
    lane: u8,
    /// Groups of the leaf after this one.
    left: u8,
}

impl First {
    /// Mark of a packet that the rows of bits judge.
    pub(crate) const BY_ROWS: Self = Self {
        entry: Entry(Entry::NO_RULE),
        group: 0,
        lane: 0,
        left: 0,
    };

    /// Whether the rows of bits judge the packet.
    #[inline]
    pub(crate) fn is_by_rows(self) -> bool {
        self.entry == Self::BY_ROWS.entry
    }
}

impl Default for First {
    fn default() -> Self {
        Self::BY_ROWS
    }
}

/// Node: from the bits of a word of the key to the next node. A leaf leads to itself.
#[derive(Clone, Copy, Debug, Default)]
struct Node {
    /// Number of the first child, or of the leaf itself.
    base: u32,
    mask: u16,
    word: u8,
    shift: u8,
}

/// Eight boxes, and their rules. **Layout**: four cache lines.
#[repr(C, align(64))]
#[derive(Clone, Copy, Debug)]
struct Group {
    boxes: Boxes,
    entries: [Entry; LANES],
}

impl Group {
    /// Boxes that hold no key, since protocol and marks of a key are not a number of 16 ones.
    fn new() -> Self {
        Self {
            boxes: Boxes::new(),
            entries: [Entry(0); LANES],
        }
    }

    fn set(&mut self, lane: usize, ranges: &Ranges, entry: Entry) {
        let [src, dst, ..] = *ranges;
        let [.., sport, dport, proto] = ranges.map(|(first, last)| (first as u16, last as u16));
        self.boxes.set(lane, [src, dst], [sport, dport, proto]);
        self.entries[lane] = entry;
    }

    /// Boxes that hold the key, a bit each.
    #[inline(always)]
    fn holding(&self, key: Key<'_>) -> u32 {
        self.boxes.holding(key.point()).into()
    }
}

/// A tree for a list of rules.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    nodes: Vec<Node>,
    groups: Vec<Group>,
    /// First group of the leaf that is the node of this number, above [`SIZE_BITS`] bits for the
    /// number of groups after it; [`ROWS`] if the rows of bits judge its packets.
    leaves: Vec<u32>,
    levels: u32,
    /// Whether groups are worth a prefetch.
    prefetches: bool,
    /// Result for a key that no box holds.
    none: Entry,
    sets: Vec<LargeSet>,
}

/// A set of more ranges than a rule may have boxes.
#[derive(Clone, Debug)]
struct LargeSet {
    /// Word of the key in which the address is: 0 for the source, 1 for the destination.
    word: usize,
    bitmap: AddressBitmap,
}

impl LargeSet {
    /// Sets the bit of the set of this number in the keys whose address it has. Their waits for memory are one.
    #[inline(always)]
    fn mark(&self, keys: &mut [[u32; 4]], number: usize) {
        let mut places = [Place::default(); TOGETHER];
        keys.iter()
            .for_each(|key| self.bitmap.prefetch(key[self.word]));
        places
            .iter_mut()
            .zip(&*keys)
            .for_each(|(place, key)| *place = self.bitmap.place(key[self.word]));
        for (key, place) in keys.iter_mut().zip(places) {
            key[3] |= u32::from(self.bitmap.has(key[self.word], place)) << (PROTOCOL_BITS + number);
        }
    }
}

/// Bits of the protocol in the last word of a key.
const PROTOCOL_BITS: usize = 8;

/// Large sets of a list beyond which it has no tree: a rule has a box for each combination of the
/// sets that it does not name.
const MOST_SETS: usize = 3;

/// Groups of a leaf without boxes.
static NO_BOXES: Boxes = Boxes::new();

/// Bytes of groups that the second-level caches of most processors keep.
const CACHED: usize = 256 << 10;

/// Bits of the number of groups after the first group of a leaf.
const SIZE_BITS: u32 = 4;

/// Mark of a leaf without boxes.
const ROWS: u32 = u32::MAX;

impl Tree {
    /// Makes the tree. `plain` has the actions of the rules without rare conditions, `None` for the others. `None`: a rule has too many boxes.
    ///
    /// **Cost**: time and memory are bounded by constants next to the number of rules.
    pub(crate) fn new(rules: &[Rule], plain: &[Option<Action>], default: Verdict) -> Option<Self> {
        let sets = large_sets(rules)?;
        let mut boxes = Vec::new();
        // No packet that the tree judges has an extension header.
        let of_tree = (0u32..)
            .zip(rules)
            .filter(|(_, rule)| rule.extensions.is_none());
        for (number, rule) in of_tree {
            let of_rule = boxes_of(rule, &sets)?;
            let entry = Entry::new(number, plain[number as usize]);
            boxes.extend(of_rule.into_iter().map(|ranges| (ranges, entry)));
        }
        let none = Entry::new(Entry::NO_RULE, Some(Action::Decide(default)));
        let tree = Self {
            nodes: vec![Node::default()],
            groups: Vec::new(),
            leaves: vec![ROWS],
            levels: 0,
            prefetches: false,
            none,
            sets: Vec::new(),
        };
        let steps = (MOST_STEPS.0 * boxes.len()).min(MOST_STEPS.1);
        let mut builder = Builder {
            boxes: &boxes,
            tree,
            steps,
        };
        let last_protocol = (1 << (PROTOCOL_BITS + sets.len())) - 1;
        let all = [u32::MAX, u32::MAX, 0xffff, 0xffff, last_protocol].map(|last| (0, last));
        builder.grow(0, (0..boxes.len() as u32).collect(), all, 0);
        let Self {
            nodes,
            groups,
            leaves,
            ..
        } = &builder.tree;
        let (nodes, groups, leaves) = (
            in_huge_pages(nodes),
            in_huge_pages(groups),
            in_huge_pages(leaves),
        );
        let prefetches = size_of_val(&groups[..]) > CACHED;
        let bitmap = |(word, set): (usize, &Arc<Addresses>)| LargeSet {
            word,
            bitmap: AddressBitmap::new(set.v4()),
        };
        let sets = sets.into_iter().map(bitmap).collect();
        Some(Self {
            nodes,
            groups,
            leaves,
            prefetches,
            sets,
            ..builder.tree
        })
    }

    /// Returns the bytes of the tables.
    pub(crate) fn bytes(&self) -> usize {
        let sets: usize = self.sets.iter().map(|set| set.bitmap.bytes()).sum();
        size_of_val(&self.nodes[..])
            + size_of_val(&self.groups[..])
            + size_of_val(&self.leaves[..])
            + sets
    }

    /// Finds the first rule of each packet; [`First::BY_ROWS`] where the rows of bits have to.
    #[inline(always)]
    pub(crate) fn first_of_each(&self, packets: &[Fields], each: impl FnMut(usize, First)) {
        if self.sets.is_empty() {
            return self.first_of_keys(packets.iter().map(Key::of), each);
        }
        let mut keys = [[0; 4]; TOGETHER];
        let keys = &mut keys[..packets.len()];
        keys.iter_mut()
            .zip(packets)
            .for_each(|(key, fields)| *key = *fields.key());
        (0..)
            .zip(&self.sets)
            .for_each(|(number, set)| set.mark(keys, number));
        self.first_of_keys(keys.iter().map(Key), each);
    }

    #[inline(always)]
    fn first_of_keys<'k>(
        &self,
        keys: impl ExactSizeIterator<Item = Key<'k>> + Clone,
        mut each: impl FnMut(usize, First),
    ) {
        let (mut places, mut holding) = ([0u32; TOGETHER], [0u8; TOGETHER]);
        let (places, holding) = (&mut places[..keys.len()], &mut holding[..keys.len()]);
        for _ in 0..self.levels {
            for (place, key) in places.iter_mut().zip(keys.clone()) {
                *place = self.below(*place, key);
            }
        }
        for place in places.iter_mut() {
            *place = self.leaves[*place as usize];
        }
        if self.prefetches {
            places
                .iter()
                .for_each(|&place| prefetch_all(&self.groups, Self::group(place)));
        }
        let boxes = |place: &u32| {
            self.groups
                .get(Self::group(*place))
                .map_or(&NO_BOXES, |group| &group.boxes)
        };
        Boxes::holding_each(
            places.iter().map(boxes).zip(keys.clone().map(Key::point)),
            holding,
        );
        for (i, (&place, key)) in places.iter().zip(keys).enumerate() {
            let (group, left) = (place >> SIZE_BITS, place & ((1 << SIZE_BITS) - 1));
            match place {
                ROWS => each(i, First::BY_ROWS),
                _ => each(i, self.from(key, group, left, holding[i].into())),
            }
        }
    }

    /// The key of a packet, with the large sets that have its addresses.
    pub(crate) fn key(&self, fields: &Fields) -> [u32; 4] {
        let mut key = [*fields.key()];
        (0..)
            .zip(&self.sets)
            .for_each(|(number, set)| set.mark(&mut key, number));
        key[0]
    }

    /// Finds the first rule of a [key](Self::key); [`First::BY_ROWS`] if the rows of bits have to.
    pub(crate) fn first(&self, key: Key<'_>) -> First {
        let place = (0..self.levels).fold(0, |place, _| self.below(place, key));
        let leaf = self.leaves[place as usize];
        let (group, left) = (leaf >> SIZE_BITS, leaf & ((1 << SIZE_BITS) - 1));
        match leaf {
            ROWS => First::BY_ROWS,
            _ => self.from(key, group, left, self.groups[group as usize].holding(key)),
        }
    }

    /// Finds the next matching rule after a match.
    pub(crate) fn next(
        &self,
        key: Key<'_>,
        First {
            group, lane, left, ..
        }: First,
    ) -> First {
        let behind = u32::MAX << 1 << lane;
        self.from(
            key,
            group,
            left.into(),
            self.groups[group as usize].holding(key) & behind,
        )
    }

    /// Number of the first group of a leaf.
    #[inline(always)]
    fn group(leaf: u32) -> usize {
        (leaf >> SIZE_BITS) as usize
    }

    #[inline(always)]
    fn below(&self, place: u32, key: Key<'_>) -> u32 {
        let node = self.nodes[place as usize];
        node.base + (key.0[usize::from(node.word & 3)] >> (node.shift & 31) & u32::from(node.mask))
    }

    /// The first of the boxes `holding` of a group, or of the `left` groups after it.
    #[inline(always)]
    fn from(&self, key: Key<'_>, mut group: u32, mut left: u32, mut holding: u32) -> First {
        while left > 0 && holding == 0 {
            (group, left) = (group + 1, left - 1);
            holding = self.groups[group as usize].holding(key);
        }
        let lane = holding.trailing_zeros() % LANES as u32;
        let entry = self.groups[group as usize].entries[lane as usize];
        let entry = select_unpredictable(holding == 0, self.none, entry);
        First {
            entry,
            group,
            lane: lane as u8,
            left: left as u8,
        }
    }
}

#[cfg(test)]
mod tests;
