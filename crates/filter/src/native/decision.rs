//! The decision graph of a program that is small enough to be judged without branches.

use crate::Program;
use crate::graph::{Graph, Node, Results};
pub(super) use crate::graph::{NodeId, Place, Term, ValueId};

/// Largest number of tests worth making without a branch. Measured with lists of ports and hosts, on packets that no branch
/// predictor can foresee: 30 ports or hosts (about 100 tests) take equal times with and without branches. With 12, this code
/// takes half the time.
const MAX_TESTS: usize = 100;

/// Largest number of basic blocks that are run symbolically before giving up.
const MAX_VISITS: usize = 4 * MAX_TESTS;

/// The decisions of a small program; the results of its nodes are 0 and 1.
pub(super) struct Decision(Graph);

impl Decision {
    /// Runs `program` symbolically; `None` if it loops, tests sets, or if its graph grows too large.
    pub(super) fn new(program: &Program) -> Option<Self> {
        // Sets are left to the code for one packet.
        if !program.tests().is_empty() {
            return None;
        }
        let decision = Self(Graph::new(program, Results::Verdict, MAX_VISITS)?);
        let tests = |(node, reached): &(&Node, bool)| *reached && matches!(node, Node::Test { .. });
        let tests = decision
            .nodes()
            .iter()
            .zip(decision.reachable())
            .filter(tests)
            .count();
        (tests <= MAX_TESTS).then_some(decision)
    }

    /// The nodes; a node's successors have smaller indices.
    pub(super) fn nodes(&self) -> &[Node] {
        &self.0.nodes
    }

    pub(super) fn root(&self) -> NodeId {
        self.0.root
    }

    /// Whether each node can be reached from the root.
    pub(super) fn reachable(&self) -> Vec<bool> {
        self.0.reachable()
    }

    /// Every place that is loaded.
    pub(super) fn places(&self) -> Vec<Place> {
        self.0.values.places().collect()
    }

    pub(super) fn term(&self, id: ValueId) -> Term {
        self.0.values.term(id)
    }

    pub(super) fn constant(&self, id: ValueId) -> Option<u32> {
        self.0.values.constant(id)
    }
}
