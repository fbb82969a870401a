//! Making of a tree: boxes of rules, and the cuts of cells.

use super::*;

/// The large sets of the rules, each with the word of the key for which it is; `None` if there are too many.
pub(super) fn large_sets(rules: &[Rule]) -> Option<Vec<(usize, &Arc<Addresses>)>> {
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

pub(super) fn number_of(
    word: usize,
    set: &Arc<Addresses>,
    sets: &[(usize, &Arc<Addresses>)],
) -> Option<usize> {
    sets.iter()
        .position(|(its_word, other)| *its_word == word && Arc::ptr_eq(other, set))
}

/// The boxes of a rule for IPv4, apart from each other; `None` if there are too many.
pub(super) fn boxes_of(rule: &Rule, sets: &[(usize, &Arc<Addresses>)]) -> Option<Vec<Ranges>> {
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

pub(super) type Ranges = [(u32, u32); 5];

pub(super) struct Builder<'a> {
    pub(super) boxes: &'a [(Ranges, Entry)],
    pub(super) tree: Tree,
    /// Steps that are left.
    pub(super) steps: usize,
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
    pub(super) fn grow(&mut self, place: usize, boxes: Vec<u32>, cell: Ranges, level: u32) {
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
