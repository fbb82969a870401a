//! A set of addresses as the places where it begins and ends.

use crate::Address;
use core::hint::select_unpredictable;
use weir_memory::prefetch;

/// A set of addresses.
///
/// **Layout**: the addresses, in ascending order, at which membership changes, and whether the
/// lowest address is a member. The addresses fill whole blocks of a cache line, the last block with
/// [`Address::LAST`]. So a search ends with the same number of comparisons for every set, none of
/// which waits for another or is mispredicted; it takes half the time of a plain binary search.
#[derive(Clone, Debug)]
pub struct Ranges<A> {
    blocks: Vec<A>,
    /// Number of edges in the blocks.
    len: u32,
    starts_inside: bool,
}

impl<A: Address> Ranges<A> {
    /// Edges in a block.
    const BLOCK: usize = 64 / size_of::<A>();

    /// Makes the set of all addresses if `all`, else the empty set.
    pub fn new(all: bool) -> Self {
        Self {
            blocks: Vec::new(),
            len: 0,
            starts_inside: all,
        }
    }

    /// Takes the set out, and leaves an empty one.
    pub(super) fn take(&mut self) -> Self {
        std::mem::replace(self, Self::new(false))
    }

    /// Number of edges.
    #[inline]
    pub fn edges(&self) -> usize {
        self.len as usize
    }

    /// Whether the address is a member. **Cost**: a binary search among the blocks.
    #[inline]
    pub fn contains(&self, address: A) -> bool {
        self.inside_behind(self.edges_up_to(address))
    }

    /// Number of edges that are not above the address.
    #[inline]
    fn edges_up_to(&self, address: A) -> usize {
        let (mut start, mut blocks) = (0, self.blocks.len() / Self::BLOCK);
        while blocks > 1 {
            let half = blocks / 2;
            let middle = start + half * Self::BLOCK;
            start = select_unpredictable(self.blocks[middle] <= address, middle, start);
            blocks -= half;
        }
        let block = self
            .blocks
            .get(start..start + Self::BLOCK)
            .unwrap_or_default();
        let up_to = block
            .iter()
            .map(|&edge| u32::from(edge <= address))
            .sum::<u32>() as usize;
        // What fills the last block is not above the highest address.
        (start + up_to).min(self.edges())
    }

    /// Whether addresses after the first `edges` edges are members.
    #[inline]
    fn inside_behind(&self, edges: usize) -> bool {
        self.starts_inside ^ (edges % 2 == 1)
    }

    /// Makes all addresses from `first` to `last` members, or takes them out. **Cost**: a search;
    /// the edges after are moved.
    pub fn set(&mut self, first: A, last: A, inside: bool) {
        let behind = last.next();
        let from = if first == A::ZERO {
            0
        } else {
            self.edges_up_to(first.before())
        };
        // The edges in between, which are taken out, are few.
        let is_between = |edge: &&A| behind.is_none_or(|behind| **edge <= behind);
        let to = from
            + self.blocks[from..self.edges()]
                .iter()
                .take_while(is_between)
                .count();
        let (before, after) = (self.inside_behind(from), self.inside_behind(to));
        let begins = first > A::ZERO && before != inside;
        let ends = behind.filter(|_| after != inside);
        if first == A::ZERO {
            self.starts_inside = inside;
        }
        match (begins, ends) {
            (true, Some(end)) => self.replace(from, to, [first, end]),
            (true, None) => self.replace(from, to, [first]),
            (false, Some(end)) => self.replace(from, to, [end]),
            (false, None) => self.replace(from, to, []),
        }
    }

    /// Replaces the edges from `from` to before `to` by others.
    fn replace<const MORE: usize>(&mut self, from: usize, to: usize, edges: [A; MORE]) {
        let (old, new) = (self.edges(), self.edges() + MORE - (to - from));
        if new > self.blocks.len() {
            self.blocks
                .resize(new.next_multiple_of(Self::BLOCK), A::LAST);
        }
        if to - from != MORE {
            self.blocks.copy_within(to..old, from + MORE);
        }
        if new < old {
            self.blocks[new..old].fill(A::LAST);
        }
        self.blocks[from..from + MORE].copy_from_slice(&edges);
        self.len = new as u32;
    }

    /// Starts to fetch the block in the middle and those next to it, at which a search looks first.
    #[inline]
    pub(super) fn prefetch(&self) {
        let middle = self.blocks.len() / 2;
        for at in [middle, middle / 2, middle + middle / 2] {
            prefetch(&self.blocks, at);
        }
    }
}
