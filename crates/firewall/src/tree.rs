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

use crate::classifier::ranges_of;
use crate::fields::Fields;
use crate::rules::{Action, Rule};
use crate::{Addresses, Verdict};
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

/// The large sets of the rules, each with the word of the key for which it is; `None` if there are too many.
fn large_sets(rules: &[Rule]) -> Option<Vec<(usize, &Arc<Addresses>)>> {
    let mut sets: Vec<(usize, &Arc<Addresses>)> = Vec::new();
    for (word, set) in rules
        .iter()
        .flat_map(|rule| [(0, &rule.src), (1, &rule.dst)])
    {
        let Some(set) = set.as_ref().filter(|set| set.v4().len() > MOST_BOXES) else {
            continue;
        };
        if number_of(word, set, &sets).is_none() {
            sets.push((word, set));
        }
        if sets.len() > MOST_SETS {
            return None;
        }
    }
    Some(sets)
}

fn number_of(
    word: usize,
    set: &Arc<Addresses>,
    sets: &[(usize, &Arc<Addresses>)],
) -> Option<usize> {
    sets.iter()
        .position(|(its_word, other)| *its_word == word && Arc::ptr_eq(other, set))
}

/// The boxes of a rule for IPv4, apart from each other; `None` if there are too many.
fn boxes_of(rule: &Rule, sets: &[(usize, &Arc<Addresses>)]) -> Option<Vec<Ranges>> {
    let mut named = 0u32;
    let mut addresses = |word: usize, set: &Option<Arc<Addresses>>| {
        let Some(set) = set else {
            return vec![(0, u32::MAX)];
        };
        let Some(number) = number_of(word, set, sets) else {
            return set.v4().to_vec();
        };
        named |= 1 << number;
        vec![(0, u32::MAX)]
    };
    let (src, dst) = (addresses(0, &rule.src), addresses(1, &rule.dst));
    let wide = |&(first, last): &(u16, u16)| (u32::from(first), u32::from(last));
    let ports = |ranges: &Option<Vec<(u16, u16)>>| {
        joined(
            ranges
                .as_deref()
                .unwrap_or(&[(0, u16::MAX)])
                .iter()
                .map(wide)
                .collect(),
        )
    };
    let protocols = joined(rule.proto.map_or(vec![(0, 255)], |set| {
        ranges_of(set).iter().map(wide).collect()
    }));
    let (sports, dports) = (ports(&rule.sport), ports(&rule.dport));
    if [&src, &dst, &sports, &dports, &protocols]
        .map(Vec::len)
        .iter()
        .product::<usize>()
        > MOST_BOXES
    {
        return None;
    }
    // A packet may be in any of the sets that the rule does not name.
    let marks = (0..1u32 << sets.len())
        .filter(|marks| marks & named == named)
        .map(|marks| marks << PROTOCOL_BITS);
    let marked = marks.flat_map(|marks| {
        protocols
            .iter()
            .map(move |&(first, last)| (marks | first, marks | last))
    });
    let lists = [src, dst, sports, dports, joined(marked.collect())];
    let mut boxes = vec![[(0, 0); 5]];
    for (field, list) in lists.iter().enumerate() {
        let with = |one: &[(u32, u32); 5], range| {
            let mut one = *one;
            one[field] = range;
            one
        };
        boxes = boxes
            .iter()
            .flat_map(|one| list.iter().map(move |&range| with(one, range)))
            .collect();
    }
    Some(boxes)
}

/// Ranges in order; ranges that overlap or touch are one.
fn joined(mut ranges: Vec<(u32, u32)>) -> Vec<(u32, u32)> {
    ranges.sort_unstable();
    let mut joined: Vec<(u32, u32)> = Vec::new();
    for (first, last) in ranges {
        match joined.last_mut() {
            Some(before) if first <= before.1 + 1 => before.1 = before.1.max(last),
            _ => joined.push((first, last)),
        }
    }
    joined
}

type Ranges = [(u32, u32); 5];

struct Builder<'a> {
    boxes: &'a [(Ranges, Entry)],
    tree: Tree,
    /// Steps that are left.
    steps: usize,
}

/// A cut of a cell: a field, and the first of its values in the cell and its bits.
#[derive(Clone, Copy, Debug)]
struct Cut {
    field: usize,
    base: u32,
    shift: u32,
    bits: u32,
}

impl Builder<'_> {
    /// Makes the node `place` of a cell, whose boxes are among these, and all below it.
    fn grow(&mut self, place: usize, boxes: Vec<u32>, cell: Ranges, level: u32) {
        self.tree.levels = self.tree.levels.max(level);
        let boxes = self.needed(boxes, &cell);
        let is_done = boxes.len() <= LEAF || level == MOST_LEVELS || self.steps == 0;
        let cut = if is_done {
            None
        } else {
            self.cut(&boxes, &cell)
        };
        let Some(cut) = cut else {
            return self.end(place, &boxes);
        };
        let first = self.tree.nodes.len() as u32;
        let parts = 1usize << cut.bits;
        let (word, above) = PLACES[cut.field];
        let node = Node {
            base: first,
            mask: (parts - 1) as u16,
            word: word as u8,
            shift: (cut.shift + above) as u8,
        };
        self.tree.nodes[place] = node;
        self.tree
            .nodes
            .resize(self.tree.nodes.len() + parts, Node::default());
        self.tree.leaves.resize(self.tree.nodes.len(), ROWS);
        let mut inside = vec![Vec::new(); parts];
        let (least, most) = cell[cut.field];
        for &number in &boxes {
            let (first, last) = self.boxes[number as usize].0[cut.field];
            let part = |value: u32| ((value.clamp(least, most) - cut.base) >> cut.shift) as usize;
            inside[part(first)..=part(last)]
                .iter_mut()
                .for_each(|inside| inside.push(number));
        }
        for (part, inside) in inside.into_iter().enumerate() {
            let from = cut.base + ((part as u32) << cut.shift);
            let mut cell = cell;
            cell[cut.field] = (from, from + ((1 << cut.shift) - 1));
            self.grow(first as usize + part, inside, cell, level + 1);
        }
    }

    /// Leaves out boxes that no packet of the cell comes to, because one before them ends the search.
    fn needed(&mut self, boxes: Vec<u32>, cell: &Ranges) -> Vec<u32> {
        let clipped = |number: u32| {
            let (ranges, entry) = &self.boxes[number as usize];
            let part: Ranges =
                core::array::from_fn(|i| (ranges[i].0.max(cell[i].0), ranges[i].1.min(cell[i].1)));
            (part, entry.end().is_some())
        };
        let covers = |outer: &Ranges, inner: &Ranges| {
            outer
                .iter()
                .zip(inner)
                .all(|(outer, inner)| outer.0 <= inner.0 && inner.1 <= outer.1)
        };
        // Of many boxes only those that cover the cell's addresses are compared: they are in all parts of a cut by addresses.
        let is_few = boxes.len() <= FEW;
        let (mut kept, mut ending): (Vec<u32>, Vec<Ranges>) = (Vec::new(), Vec::new());
        let mut steps = 0;
        for number in boxes {
            let (part, ends) = clipped(number);
            steps += 1 + ending.len();
            if ending.iter().any(|before| covers(before, &part)) {
                continue;
            }
            kept.push(number);
            if ends && covers(&part, cell) {
                break;
            }
            let is_wide = part[..2] == cell[..2] && ending.len() < FEW;
            if ends && (is_few || is_wide) {
                ending.push(part);
            }
        }
        self.steps = self.steps.saturating_sub(steps);
        kept
    }

    /// Makes a leaf.
    fn end(&mut self, place: usize, boxes: &[u32]) {
        self.tree.nodes[place] = Node {
            base: place as u32,
            ..Node::default()
        };
        let size = boxes.len().div_ceil(LANES).max(1);
        if boxes.len() > MOST_IN_LEAF
            || (self.tree.groups.len() + size) * size_of::<Group>() > MOST_BYTES
        {
            return;
        }
        self.tree.leaves[place] = (self.tree.groups.len() as u32) << SIZE_BITS | (size as u32 - 1);
        for part in 0..size {
            let mut group = Group::new();
            for (lane, &one) in boxes.iter().skip(part * LANES).take(LANES).enumerate() {
                let (ranges, entry) = &self.boxes[one as usize];
                group.set(lane, ranges, *entry);
            }
            self.tree.groups.push(group);
        }
    }

    /// The best cut of a cell; `None` if none makes it better.
    fn cut(&mut self, boxes: &[u32], cell: &Ranges) -> Option<Cut> {
        let before = boxes.len() as f64;
        let mut best: Option<(f64, Cut)> = None;
        for (field, &(from, to)) in cell.iter().enumerate() {
            let all = self.boxes;
            let ranges = || {
                boxes.iter().map(|&number| {
                    let (first, last) = all[number as usize].0[field];
                    (first.max(from), last.min(to))
                })
            };
            let (least, most) = ranges().fold((u32::MAX, 0), |(a, b), (first, last)| {
                (a.min(first), b.max(last))
            });
            // Bits in which boxes differ, or which one leaves open.
            let open = u32::BITS - (least ^ most).leading_zeros();
            let base = (u64::from(least) >> open << open) as u32;
            let finest = (4 * boxes.len()).ilog2().min(MOST_BITS).min(open);
            self.steps = self.steps.saturating_sub(2 * boxes.len() + (4 << finest));
            // Of the finest parts: boxes that begin in or before each, and boxes that end before it.
            let (mut begun, mut ended) = (vec![0u32; 1 << finest], vec![0u32; (1 << finest) + 1]);
            for (first, last) in ranges() {
                begun[((first - base) >> (open - finest)) as usize] += 1;
                ended[((last - base) >> (open - finest)) as usize + 1] += 1;
            }
            for part in 1..1 << finest {
                begun[part] += begun[part - 1];
                ended[part] += ended[part - 1];
            }
            for bits in (1..=finest).rev().step_by(2) {
                let fine = 1usize << (finest - bits);
                let inside = (0..1usize << bits)
                    .map(|part| begun[(part + 1) * fine - 1] - ended[part * fine]);
                let (sum, squares) = inside.fold((0.0, 0.0), |(sum, squares), inside| {
                    (sum + f64::from(inside), squares + f64::from(inside).powi(2))
                });
                let (near, copies) = (squares / sum, sum / before);
                let gain = (before / near).log2()
                    - COPIES * copies.log2()
                    - NODES * f64::from(1 << bits) / before;
                if near < 0.9 * before
                    && copies <= MOST_COPIES
                    && best.is_none_or(|best| gain > best.0)
                {
                    best = Some((
                        gain,
                        Cut {
                            field,
                            base,
                            shift: open - bits,
                            bits,
                        },
                    ));
                }
            }
        }
        best.map(|best| best.1)
    }
}

/// Weight of the copies of boxes that a cut makes.
const COPIES: f64 = 0.25;

/// Weight of the nodes that a cut makes for each box.
const NODES: f64 = 0.03;

/// Copies of each box that a cut makes at most, on average.
const MOST_COPIES: f64 = 8.0;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fields::{Content, IpFields, Ports, TcpFlags};
    use crate::rules::RuleList;
    use weir_testkit::Random;

    const WHOLE: IpFields = IpFields {
        is_v6: false,
        src: 0,
        dst: 0,
        proto: Some(6),
        ports: Ports::Known(7, 65535),
        flags: TcpFlags::NotTcp,
    };

    /// A rule over few networks, hosts and ports, so that most of them overlap; and some over nearly all.
    fn line(random: &mut Random, sets: usize) -> String {
        let action = ["pass", "drop", "reject", "count"][random.below(4)];
        let mut text = format!(
            "{action} {}",
            ["tcp", "udp", "proto 6,17,132"][random.below(3)]
        );
        for end in ["src", "dst"] {
            let (a, b, c) = (random.below(4), random.below(256), random.below(256));
            text += &match random.below(5) {
                // The last set is for one end alone, so that there are three.
                0 if sets > 0 && (sets == 1 || end == "src") => {
                    format!(" {end} $s{}", random.below(sets))
                }
                0 => String::new(),
                1 => format!(" {end} 10.{a}.0.0/16"),
                2 => format!(" {end} 10.{a}.{b}.0/24"),
                3 => format!(" {end} 10.{a}.{b}.{c}"),
                _ => format!(" {end} 10.{a}.{b}.{c}-10.{}.{c}.{b},255.255.255.255", a + 1),
            };
        }
        if random.below(3) > 0 {
            let port = random.below(60);
            text += &format!(" dport {port},{}-65535", port + 1 + random.below(60_000));
        }
        text + "\n"
    }

    fn holds(rule: &Rule, fields: &Fields) -> bool {
        let has = |set: &Option<Arc<Addresses>>, address: u128| {
            set.as_ref().is_none_or(|set| {
                set.v4()
                    .iter()
                    .any(|&(a, b)| (a..=b).contains(&(address as u32)))
            })
        };
        let proto = fields.proto().unwrap();
        let dport = |ranges: &Vec<(u16, u16)>| {
            ranges
                .iter()
                .any(|&(a, b)| (a..=b).contains(&fields.ports().unwrap().1))
        };
        has(&rule.src, fields.src())
            && has(&rule.dst, fields.dst())
            && rule
                .proto
                .is_none_or(|set| set[usize::from(proto / 64)] >> (proto % 64) & 1 == 1)
            && rule.dport.as_ref().is_none_or(dport)
    }

    #[test]
    fn packets_come_to_the_rules_that_hold_for_them_in_order_up_to_the_first_that_decides() {
        let mut random = Random(23);
        let (mut matched, mut by_rows, mut deepest) = (0, 0, 0);
        for (rules, sets) in [
            (0, 0),
            (1, 0),
            (8, 0),
            (9, 0),
            (64, 0),
            (65, 0),
            (600, 0),
            (2000, 0),
            (20, 1),
            (90, 1),
            (60, 3),
        ] {
            let mut text = String::new();
            for set in 0..sets {
                let mut member = || {
                    format!(
                        " 10.{}.{}.{}/28",
                        random.below(4),
                        random.below(256),
                        random.below(16) << 4
                    )
                };
                let members: String = (0..3000).map(|_| member()).collect();
                text += &format!("set s{set}{members}\n");
            }
            text.extend((0..rules).map(|_| line(&mut random, sets)));
            let list =
                RuleList::parse(&text, &mut |_| unreachable!("no line names a file")).unwrap();
            let plain: Vec<_> = list.rules.iter().map(|rule| Some(rule.action)).collect();
            let tree = Tree::new(&list.rules, &plain, Verdict::Pass).unwrap();
            deepest = deepest.max(tree.levels);
            let packets: Vec<Fields> = (0..TOGETHER * 20)
                .map(|_| {
                    let mut address = || match random.below(8) {
                        0 => {
                            [0, u128::from(u32::MAX), random.next() as u32 as u128][random.below(3)]
                        }
                        _ => 10 << 24 | (random.below(6) << 16 | random.below(1 << 16)) as u128,
                    };
                    let (src, dst) = (address(), address());
                    let dport = if random.below(2) == 0 {
                        random.below(64)
                    } else {
                        random.below(1 << 16)
                    } as u16;
                    let proto = Some([6, 6, 17, 132, 33][random.below(5)]);
                    Fields::of_ip(IpFields {
                        src,
                        dst,
                        proto,
                        ports: Ports::Known(7, dport),
                        ..WHOLE
                    })
                })
                .collect();
            for packets in packets.chunks(TOGETHER) {
                tree.first_of_each(packets, |i, first| {
                    let key = tree.key(&packets[i]);
                    let key = Key(&key);
                    assert_eq!(first.entry, tree.first(key).entry);
                    if first.is_by_rows() {
                        return by_rows += 1;
                    }
                    let mut first = first;
                    let wanted = (0..rules).filter(|&rule| holds(&list.rules[rule], &packets[i]));
                    for rule in wanted {
                        assert_eq!(
                            first.entry.rule(),
                            Some(rule as u32),
                            "{:?}\n{text}",
                            packets[i]
                        );
                        matched += 1;
                        if let Action::Decide(verdict) = list.rules[rule].action {
                            return assert_eq!(first.entry.end(), Some(verdict));
                        }
                        assert_eq!(first.entry.end(), None);
                        first = tree.next(key, first);
                    }
                    assert_eq!(
                        (first.entry.rule(), first.entry.end()),
                        (None, Some(Verdict::Pass)),
                        "{text}"
                    );
                });
            }
        }
        println!("{matched} matched, {by_rows} left to the rows, {deepest} levels");
        assert!(
            matched > 1000 && by_rows < matched && deepest > 1,
            "{matched} {by_rows} {deepest}"
        );
    }

    #[test]
    fn packets_without_all_fields_or_of_ipv6_have_no_key() {
        assert!(Fields::of_ip(WHOLE).has_key());
        let others = [
            IpFields {
                is_v6: true,
                ..WHOLE
            },
            IpFields {
                proto: None,
                ..WHOLE
            },
            IpFields {
                ports: Ports::Absent,
                ..WHOLE
            },
            IpFields {
                ports: Ports::None,
                ..WHOLE
            },
        ];
        let others = others.map(Fields::of_ip);
        others
            .iter()
            .for_each(|fields| assert!(!fields.has_key(), "{fields:?}"));
        let contents = [Content::Neighbors, Content::NonIp, Content::Malformed];
        let others = contents.map(|content| Fields::of_ip(WHOLE).with_content(content));
        others
            .iter()
            .for_each(|fields| assert!(!fields.has_key(), "{fields:?}"));
    }

    #[test]
    fn a_list_of_four_large_sets_has_no_tree() {
        let has_tree = |sets: usize| {
            let addresses: String = (0..65).map(|i| format!(" 10.0.0.{}", 2 * i)).collect();
            let text: String = (0..sets)
                .map(|set| format!("set s{set} 10.1.0.{set}{addresses}\ndrop src $s{set}\n"))
                .collect();
            let list =
                RuleList::parse(&text, &mut |_| unreachable!("no line names a file")).unwrap();
            Tree::new(&list.rules, &vec![None; sets], Verdict::Pass).is_some()
        };
        assert!(has_tree(MOST_SETS) && !has_tree(MOST_SETS + 1));
    }

    #[test]
    fn a_rule_of_many_ranges_has_no_tree() {
        let ports: Vec<String> = (0..65).map(|i| (i * 2).to_string()).collect();
        let list = |ports: &[String]| {
            let text = format!("drop tcp dport {}\n", ports.join(","));
            RuleList::parse(&text, &mut |_| unreachable!("no line names a file")).unwrap()
        };
        let has_tree = |ports| Tree::new(&list(ports).rules, &[None], Verdict::Pass).is_some();
        assert!(has_tree(&ports[..MOST_BOXES]) && !has_tree(&ports));
    }
}
