//! The first rule for a packet of IPv4 with ports, by a tree of cuts.
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
//! **Why it is right.** The boxes of a leaf are compared in all fields, so that a wrong box never matches. Each box that a packet may need is in
//! its leaf: a child gets all boxes that meet its cell but those that lie within the cell in one box before them that ends the search. The bits
//! above those of the node are skipped if all its boxes agree in them. A packet with other bits there is led to a wrong child; as no box of the
//! node holds it, none there does.
//!
//! 1. The cut is the one after which a packet near a rule has the fewest boxes in its cell, less what the boxes that are in several parts cost.
//! 2. A leaf that stays large, or for which there is no memory, has no boxes: its packets are left to the rows of bits.
//! 3. Packets go down together, a level at a time, so that their waits for memory are one.
//!
//! **Source**: cuts of Gupta and McKeown, "Packet classification using hierarchical intelligent cuttings" (Hot Interconnects 1999), with the
//! bits of Woo, "A modular approach to packet classification" (INFOCOM 2000).

use crate::Addresses;
use crate::Verdict;
use crate::fields::Fields;
use crate::rules::{Action, Rule};
use core::hint::select_unpredictable;
use std::sync::Arc;
use weir_memory::{Boxes, LANES, Point, in_huge_pages, prefetch_all};

/// Packets that go down together.
pub(crate) const TOGETHER: usize = 32;

/// Memory of the leaves, bytes, after which no leaf gets boxes.
const MOST_BYTES: usize = 32 << 20;

/// Boxes of a node up to which it is not cut.
const LEAF: usize = 8;

/// Boxes of a leaf beyond which the rows of bits judge its packets.
const MOST_IN_LEAF: usize = 64;

/// Boxes of a rule beyond which the list has no tree.
const MOST_BOXES: usize = 64;

/// Levels below the root.
const MOST_LEVELS: u32 = 12;

/// Bits by which a node is cut at most.
const MOST_BITS: u32 = 10;

/// Boxes of a node up to which each is compared with those before it.
const FEW: usize = 128;

/// Steps for each box of the list, and in all, after which no node is cut: the time that the tree takes, about a nanosecond each.
const MOST_STEPS: (usize, usize) = (1024, 32 << 20);

/// Fields: source, destination, source port, destination port, protocol. Each lies in a word of the key, this many bits above its end.
const PLACES: [(usize, u32); 5] = [(0, 0), (1, 0), (2, 16), (2, 0), (3, 0)];

/// Fields of a packet: addresses, ports, protocol. One in whose last word bits 8 to 15 are not 0 is in no box.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'a>(&'a [u32; 4]);

impl<'a> Key<'a> {
    /// The key of a packet; in no box if it is none of IPv4, or lacks a field.
    #[inline(always)]
    pub(crate) fn of(fields: &'a Fields) -> Self {
        Self(fields.key())
    }

    #[inline(always)]
    fn point(self) -> Point {
        let [src, dst, ports, proto] = *self.0;
        Point { long: [src, dst], short: [(ports >> 16) as u16, ports as u16, proto as u16] }
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

    /// The verdict, if the search ends here without a look at rare conditions: that of the rule, or the default if none matched.
    #[inline]
    pub(crate) fn end(self) -> Option<Verdict> {
        // Without a branch for each verdict, which is hard to predict.
        let denied = if self.0 & Self::REJECTS != 0 { Verdict::Reject } else { Verdict::Drop };
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
    /// Groups of the leaf behind this one.
    left: u8,
}

impl First {
    /// What stands for a packet that the rows of bits judge.
    pub(crate) const BY_ROWS: Self = Self { entry: Entry(Entry::NO_RULE), group: 0, lane: 0, left: 0 };

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
    /// Boxes that hold no key, since the protocol of a key is below 256.
    fn new() -> Self {
        Self { boxes: Boxes::new(), entries: [Entry(0); LANES] }
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
    /// First group of the leaf that is the node of this number, above [`SIZE_BITS`] bits for the number of groups behind it; [`ROWS`] if the
    /// rows of bits judge its packets.
    leaves: Vec<u32>,
    levels: u32,
    /// Whether groups are worth a prefetch.
    prefetches: bool,
    /// Result for a key that no box holds.
    none: Entry,
}

/// Groups of a leaf without boxes.
static NO_BOXES: Boxes = Boxes::new();

/// Bytes of groups that the second-level caches of most processors keep.
const CACHED: usize = 256 << 10;

/// Bits of the number of groups behind the first one of a leaf.
const SIZE_BITS: u32 = 4;

/// Mark of a leaf without boxes.
const ROWS: u32 = u32::MAX;

impl Tree {
    /// Makes the tree. `plain` has the actions of the rules without rare conditions, `None` for the others. `None`: a rule has too many boxes.
    ///
    /// **Cost**: time and memory are bounded by constants beside the number of rules.
    pub(crate) fn new(rules: &[Rule], plain: &[Option<Action>], default: Verdict) -> Option<Self> {
        let mut boxes = Vec::new();
        for (number, rule) in (0u32..).zip(rules) {
            let of_rule = boxes_of(rule)?;
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
        };
        let steps = (MOST_STEPS.0 * boxes.len()).min(MOST_STEPS.1);
        let mut builder = Builder { boxes: &boxes, tree, steps };
        let all = [u32::MAX, u32::MAX, 0xffff, 0xffff, 0xff].map(|last| (0, last));
        builder.grow(0, (0..boxes.len() as u32).collect(), all, 0);
        let Self { nodes, groups, leaves, .. } = &builder.tree;
        let (nodes, groups, leaves) = (in_huge_pages(nodes), in_huge_pages(groups), in_huge_pages(leaves));
        let prefetches = size_of_val(&groups[..]) > CACHED;
        Some(Self { nodes, groups, leaves, prefetches, ..builder.tree })
    }

    /// Returns the bytes of the tables.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.nodes[..]) + size_of_val(&self.groups[..]) + size_of_val(&self.leaves[..])
    }

    /// Finds the first rule of each packet; [`First::BY_ROWS`] where the rows of bits have to.
    #[inline]
    pub(crate) fn first_of_each(&self, packets: &[Fields], mut each: impl FnMut(usize, First)) {
        let (mut places, mut holding) = ([0u32; TOGETHER], [0u8; TOGETHER]);
        let (places, holding) = (&mut places[..packets.len()], &mut holding[..packets.len()]);
        for _ in 0..self.levels {
            for (place, fields) in places.iter_mut().zip(packets) {
                *place = self.below(*place, Key::of(fields));
            }
        }
        for place in places.iter_mut() {
            *place = self.leaves[*place as usize];
        }
        if self.prefetches {
            places.iter().for_each(|&place| prefetch_all(&self.groups, Self::group(place)));
        }
        let boxes = |place: &u32| self.groups.get(Self::group(*place)).map_or(&NO_BOXES, |group| &group.boxes);
        Boxes::holding_each(
            places.iter().map(boxes).zip(packets.iter().map(|fields| Key::of(fields).point())),
            holding,
        );
        for (i, (&place, fields)) in places.iter().zip(packets).enumerate() {
            let (group, left) = (place >> SIZE_BITS, place & ((1 << SIZE_BITS) - 1));
            match place {
                ROWS => each(i, First::BY_ROWS),
                _ => each(i, self.from(Key::of(fields), group, left, holding[i].into())),
            }
        }
    }

    /// Finds the first rule of a key; [`First::BY_ROWS`] if the rows of bits have to.
    pub(crate) fn first(&self, key: Key<'_>) -> First {
        let place = (0..self.levels).fold(0, |place, _| self.below(place, key));
        let leaf = self.leaves[place as usize];
        let (group, left) = (leaf >> SIZE_BITS, leaf & ((1 << SIZE_BITS) - 1));
        match leaf {
            ROWS => First::BY_ROWS,
            _ => self.from(key, group, left, self.groups[group as usize].holding(key)),
        }
    }

    /// Finds the rule behind one that was found.
    pub(crate) fn next(&self, key: Key<'_>, First { group, lane, left, .. }: First) -> First {
        let behind = u32::MAX << 1 << lane;
        self.from(key, group, left.into(), self.groups[group as usize].holding(key) & behind)
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

    /// The first of the boxes `holding` of a group, or of the `left` groups behind it.
    #[inline(always)]
    fn from(&self, key: Key<'_>, mut group: u32, mut left: u32, mut holding: u32) -> First {
        while left > 0 && holding == 0 {
            (group, left) = (group + 1, left - 1);
            holding = self.groups[group as usize].holding(key);
        }
        let lane = holding.trailing_zeros() % LANES as u32;
        let entry = self.groups[group as usize].entries[lane as usize];
        let entry = select_unpredictable(holding == 0, self.none, entry);
        First { entry, group, lane: lane as u8, left: left as u8 }
    }
}

/// The boxes of a rule for IPv4, apart from each other; `None` if there are too many.
fn boxes_of(rule: &Rule) -> Option<Vec<[(u32, u32); 5]>> {
    let addresses = |set: &Option<Arc<Addresses>>| set.as_ref().map_or(vec![(0, u32::MAX)], |set| set.v4().to_vec());
    let ports = |ranges: &Option<Vec<(u16, u16)>>| joined(ranges.as_deref().unwrap_or(&[(0, u16::MAX)]));
    let proto = rule.proto.map_or(vec![(0, 255)], |set| {
        let members: Vec<(u16, u16)> = crate::classifier::ranges_of(set);
        joined(&members)
    });
    let size = |set: &Option<Arc<Addresses>>| set.as_ref().map_or(1, |set| set.v4().len());
    if size(&rule.src).max(size(&rule.dst)) > MOST_BOXES {
        return None;
    }
    let lists = [addresses(&rule.src), addresses(&rule.dst), ports(&rule.sport), ports(&rule.dport), proto];
    if lists.iter().map(Vec::len).product::<usize>() > MOST_BOXES {
        return None;
    }
    let mut boxes = vec![[(0, 0); 5]];
    for (field, list) in lists.iter().enumerate() {
        let with = |one: &[(u32, u32); 5], range| {
            let mut one = *one;
            one[field] = range;
            one
        };
        boxes = boxes.iter().flat_map(|one| list.iter().map(move |&range| with(one, range))).collect();
    }
    Some(boxes)
}

/// Ranges in order; those that overlap or touch are one.
fn joined(ranges: &[(u16, u16)]) -> Vec<(u32, u32)> {
    let mut ranges: Vec<(u32, u32)> = ranges.iter().map(|&(first, last)| (u32::from(first), u32::from(last))).collect();
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
        let cut = if is_done { None } else { self.cut(&boxes, &cell) };
        let Some(cut) = cut else { return self.end(place, &boxes) };
        let first = self.tree.nodes.len() as u32;
        let parts = 1usize << cut.bits;
        let (word, above) = PLACES[cut.field];
        let node = Node { base: first, mask: (parts - 1) as u16, word: word as u8, shift: (cut.shift + above) as u8 };
        self.tree.nodes[place] = node;
        self.tree.nodes.resize(self.tree.nodes.len() + parts, Node::default());
        self.tree.leaves.resize(self.tree.nodes.len(), ROWS);
        let mut inside = vec![Vec::new(); parts];
        let (least, most) = cell[cut.field];
        for &number in &boxes {
            let (first, last) = self.boxes[number as usize].0[cut.field];
            let part = |value: u32| ((value.clamp(least, most) - cut.base) >> cut.shift) as usize;
            inside[part(first)..=part(last)].iter_mut().for_each(|inside| inside.push(number));
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
            let part: Ranges = core::array::from_fn(|i| (ranges[i].0.max(cell[i].0), ranges[i].1.min(cell[i].1)));
            (part, entry.end().is_some())
        };
        let covers = |outer: &Ranges, inner: &Ranges| {
            outer.iter().zip(inner).all(|(outer, inner)| outer.0 <= inner.0 && inner.1 <= outer.1)
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
        self.tree.nodes[place] = Node { base: place as u32, ..Node::default() };
        let size = boxes.len().div_ceil(LANES).max(1);
        if boxes.len() > MOST_IN_LEAF || (self.tree.groups.len() + size) * size_of::<Group>() > MOST_BYTES {
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
            let (least, most) = ranges().fold((u32::MAX, 0), |(a, b), (first, last)| (a.min(first), b.max(last)));
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
                let inside = (0..1usize << bits).map(|part| begun[(part + 1) * fine - 1] - ended[part * fine]);
                let (sum, squares) = inside.fold((0.0, 0.0), |(sum, squares), inside| {
                    (sum + f64::from(inside), squares + f64::from(inside).powi(2))
                });
                let (near, copies) = (squares / sum, sum / before);
                let gain = (before / near).log2() - COPIES * copies.log2() - NODES * f64::from(1 << bits) / before;
                if near < 0.9 * before && copies <= MOST_COPIES && best.is_none_or(|best| gain > best.0) {
                    best = Some((gain, Cut { field, base, shift: open - bits, bits }));
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
    fn line(random: &mut Random) -> String {
        let action = ["pass", "drop", "reject", "count"][random.below(4)];
        let mut text = format!("{action} {}", ["tcp", "udp", "proto 6,17,132"][random.below(3)]);
        for end in ["src", "dst"] {
            let (a, b, c) = (random.below(4), random.below(256), random.below(256));
            text += &match random.below(5) {
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
            set.as_ref().is_none_or(|set| set.v4().iter().any(|&(a, b)| (a..=b).contains(&(address as u32))))
        };
        let proto = fields.proto().unwrap();
        let dport =
            |ranges: &Vec<(u16, u16)>| ranges.iter().any(|&(a, b)| (a..=b).contains(&fields.ports().unwrap().1));
        has(&rule.src, fields.src())
            && has(&rule.dst, fields.dst())
            && rule.proto.is_none_or(|set| set[usize::from(proto / 64)] >> (proto % 64) & 1 == 1)
            && rule.dport.as_ref().is_none_or(dport)
    }

    #[test]
    fn packets_come_to_the_rules_that_hold_for_them_in_order_up_to_the_first_that_decides() {
        let mut random = Random(23);
        let (mut matched, mut by_rows, mut deepest) = (0, 0, 0);
        for rules in [0, 1, 8, 9, 64, 65, 600, 600, 2000] {
            let text: String = (0..rules).map(|_| line(&mut random)).collect();
            let list = RuleList::parse(&text, &mut |_| unreachable!("no line names a file")).unwrap();
            let plain: Vec<_> = list.rules.iter().map(|rule| Some(rule.action)).collect();
            let tree = Tree::new(&list.rules, &plain, Verdict::Pass).unwrap();
            deepest = deepest.max(tree.levels);
            let packets: Vec<Fields> = (0..TOGETHER * 10)
                .map(|_| {
                    let mut address = || match random.below(8) {
                        0 => [0, u128::from(u32::MAX), random.next() as u32 as u128][random.below(3)],
                        _ => 10 << 24 | (random.below(6) << 16 | random.below(1 << 16)) as u128,
                    };
                    let (src, dst) = (address(), address());
                    let dport = if random.below(2) == 0 { random.below(64) } else { random.below(1 << 16) } as u16;
                    let proto = Some([6, 6, 17, 132, 33][random.below(5)]);
                    Fields::of_ip(IpFields { src, dst, proto, ports: Ports::Known(7, dport), ..WHOLE })
                })
                .collect();
            for packets in packets.chunks(TOGETHER) {
                tree.first_of_each(packets, |i, first| {
                    let key = Key::of(&packets[i]);
                    assert_eq!(first.entry, tree.first(key).entry);
                    if first.is_by_rows() {
                        return by_rows += 1;
                    }
                    let mut first = first;
                    let wanted = (0..rules).filter(|&rule| holds(&list.rules[rule], &packets[i]));
                    for rule in wanted {
                        assert_eq!(first.entry.rule(), Some(rule as u32), "{:?}\n{text}", packets[i]);
                        matched += 1;
                        if let Action::Decide(verdict) = list.rules[rule].action {
                            return assert_eq!(first.entry.end(), Some(verdict));
                        }
                        assert_eq!(first.entry.end(), None);
                        first = tree.next(key, first);
                    }
                    assert_eq!((first.entry.rule(), first.entry.end()), (None, Some(Verdict::Pass)), "{text}");
                });
            }
        }
        println!("{matched} matched, {by_rows} left to the rows, {deepest} levels");
        assert!(matched > 1000 && deepest > 1, "{matched} {deepest}");
    }

    #[test]
    fn packets_without_all_fields_or_of_ipv6_have_no_key() {
        assert!(Fields::of_ip(WHOLE).has_key());
        let others = [
            IpFields { is_v6: true, ..WHOLE },
            IpFields { proto: None, ..WHOLE },
            IpFields { ports: Ports::Absent, ..WHOLE },
            IpFields { ports: Ports::None, ..WHOLE },
        ];
        let others = others.map(Fields::of_ip);
        others.iter().for_each(|fields| assert!(!fields.has_key(), "{fields:?}"));
        let contents = [Content::Neighbors, Content::NonIp, Content::Malformed];
        let others = contents.map(|content| Fields::of_ip(WHOLE).with_content(content));
        others.iter().for_each(|fields| assert!(!fields.has_key(), "{fields:?}"));
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
