//! A set of addresses as the places where it begins and ends.

use crate::Address;

/// A set of addresses.
///
/// **Layout**: the addresses, in ascending order, at which membership changes, and whether the lowest address is a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ranges<A> {
    starts_inside: bool,
    edges: Vec<A>,
}

impl<A: Address> Ranges<A> {
    /// Makes the set of all addresses if `all`, else the empty set.
    pub fn new(all: bool) -> Self {
        Self { starts_inside: all, edges: Vec::new() }
    }

    /// Whether the address is a member. **Cost**: a binary search.
    #[inline]
    pub fn contains(&self, address: A) -> bool {
        self.inside_behind(self.edges.partition_point(|&edge| edge <= address))
    }

    /// Whether addresses behind the first `edges` edges are members.
    #[inline]
    fn inside_behind(&self, edges: usize) -> bool {
        self.starts_inside ^ (edges % 2 == 1)
    }

    /// Makes all addresses from `first` to `last` members, or takes them out. **Cost**: the edges behind are moved.
    pub fn set(&mut self, first: A, last: A, inside: bool) {
        let behind = last.next();
        let from = self.edges.partition_point(|&edge| edge < first);
        let to = behind.map_or(self.edges.len(), |behind| self.edges.partition_point(|&edge| edge <= behind));
        let (before, after) = (self.inside_behind(from), self.inside_behind(to));
        let begins = first > A::ZERO && before != inside;
        let ends = behind.filter(|_| after != inside);
        if first == A::ZERO {
            self.starts_inside = inside;
        }
        self.edges.splice(from..to, begins.then_some(first).into_iter().chain(ends));
    }

    /// Number of edges.
    pub fn edges(&self) -> usize {
        self.edges.len()
    }
}
