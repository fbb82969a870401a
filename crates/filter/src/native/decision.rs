//! The decision graph of a program that is small enough to be judged without branches.

use crate::Program;
use crate::graph::{Graph, Node, Results};
pub(super) use crate::graph::{NodeId, Place, Term, ValueId};
use crate::program::Address;

/// Largest number of tests worth making without a branch. Measured with lists of ports and hosts, on packets that no branch
/// predictor can foresee: 30 ports or hosts (about 100 tests) take equal times with and without branches. With 12, this code
/// takes half the time.
const MAX_TESTS: usize = 100;

/// Largest number of basic blocks that are run symbolically before giving up.
const MAX_VISITS: usize = 4 * MAX_TESTS;

/// Largest number of lookups in sets that are made for all packets of a batch.
pub(super) const MAX_LOOKUPS: usize = 8;

/// The decisions of a small program; the results of its nodes are 0 and 1.
pub(super) struct Decision {
    graph: Graph,
    /// Offsets of the tests of sets.
    offsets: Vec<u32>,
    lookups: Vec<Lookup>,
}

/// The question whether the set of a test has the address at a fixed place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lookup {
    /// Number of the test in the program.
    pub(super) test: u32,
    /// [`Address::V4`] or [`Address::V6`].
    pub(super) address: Address,
    /// Offset of the address in the packet, bytes.
    pub(super) offset: u32,
}

impl Lookup {
    /// Number of captured bytes that a packet with the address has.
    pub(super) fn end(self) -> u64 {
        let size = if self.address == Address::V4 { 4 } else { 16 };
        u64::from(self.offset) + size
    }
}

impl Decision {
    /// Runs `program` symbolically; `None` if it loops, if its graph grows too large, or if it asks sets for addresses whose places depend
    /// on the packet.
    pub(super) fn new(program: &Program) -> Option<Self> {
        let mut decision = Self {
            graph: Graph::new(program, Results::Verdict, MAX_VISITS)?,
            offsets: program.tests().iter().map(|test| test.offset).collect(),
            lookups: Vec::new(),
        };
        let reached = decision.reachable();
        let mut tests = 0;
        for (node, _) in decision.nodes().iter().zip(reached).filter(|node| node.1) {
            tests += usize::from(matches!(node, Node::Test { .. } | Node::InSet { .. }));
            if matches!(node, Node::InSet { .. }) {
                decision.asked_by(node)?;
            }
        }
        decision.lookups = decision.chosen();
        (tests <= MAX_TESTS && decision.lookups.len() <= MAX_LOOKUPS).then_some(decision)
    }

    /// The lookup that a node asks for; `None` if it asks for none, or for one at a place that depends on the packet.
    fn asked_by(&self, node: &Node) -> Option<Lookup> {
        let &Node::InSet {
            address, test, of, ..
        } = node
        else {
            return None;
        };
        let offset = match (address, self.term(of)) {
            (Address::V4, Term::Load(place)) if place.base.is_none() && place.size == 4 => place.k,
            (Address::V6, _) => self.offsets[test as usize],
            _ => return None,
        };
        Some(Lookup {
            test,
            address,
            offset,
        })
    }

    /// The lookups that are made before the program runs: all for IPv6, and for IPv4 those of the
    /// first test and of the tests after it, which concern packets of one kind. In programs of
    /// libpcap that kind is IPv4. Other kinds, which have their addresses elsewhere (ARP), would
    /// double the lookups of all packets, so the code for one packet judges theirs.
    fn chosen(&self) -> Vec<Lookup> {
        let mut lookups: Vec<Lookup> = Vec::new();
        let mut is_behind = vec![false; self.nodes().len()];
        let reached = self.reachable();
        // Successors have smaller indices.
        for (index, node) in self.nodes().iter().enumerate().rev() {
            let asked = self.asked_by(node).filter(|_| reached[index]);
            let is_v4 = asked.is_some_and(|asked| asked.address == Address::V4);
            let has_v4 = || lookups.iter().any(|known| known.address == Address::V4);
            let is_left_out = is_v4 && !is_behind[index] && has_v4();
            if is_behind[index] || is_v4 && !is_left_out {
                node.successors()
                    .for_each(|next| is_behind[next.0 as usize] = true);
            }
            let asked = asked.filter(|asked| !is_left_out && !lookups.contains(asked));
            lookups.extend(asked);
        }
        lookups
    }

    /// The lookups that are made before the program runs.
    pub(super) fn lookups(&self) -> &[Lookup] {
        &self.lookups
    }

    /// The lookup that a node asks for, and its number among those made; `None` if it is not made.
    pub(super) fn lookup(&self, node: &Node) -> Option<(usize, Lookup)> {
        let asked = self.asked_by(node)?;
        let number = self.lookups.iter().position(|known| *known == asked)?;
        Some((number, asked))
    }

    /// The nodes; a node's successors have smaller indices.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.graph.nodes
    }

    pub(super) fn root(&self) -> NodeId {
        self.graph.root
    }

    /// Whether each node can be reached from the root.
    pub(super) fn reachable(&self) -> Vec<bool> {
        self.graph.reachable()
    }

    /// Every place that is loaded.
    pub(super) fn places(&self) -> Vec<Place> {
        self.graph.values.places().collect()
    }

    pub(super) fn term(&self, id: ValueId) -> Term {
        self.graph.values.term(id)
    }

    pub(super) fn constant(&self, id: ValueId) -> Option<u32> {
        self.graph.values.constant(id)
    }
}
