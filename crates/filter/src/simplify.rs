//! Makes a program short without changing its result on any packet.
//!
//! libpcap's own optimizer is not used, because some of its programs are false: for `(host A and host B) or host C or host B`
//! the optimized program of libpcap 1.10 rejects packets of B. Here a program becomes a [`Graph`] of decisions, the graph is
//! simplified, and becomes a program again ([`assemble`]).
//!
//! The rules, and why each changes no result. Besides its result, a program has no effect, so only the result counts.
//!
//! 1. *Equal values have one number* (`graph`). A value is a function of the packet. A load has the
//!    same value at each place of the program, because packets do not change in the meantime.
//! 2. *Values and tests in their simplest form* (`graph::values`). Equations over 32-bit words.
//! 3. *Known outcomes* (`facts`). If every path to a test decides it, the edge leads to the branch at once. Facts come from the
//!    tests and checks that a path has passed; where paths meet, a fact stays only if it holds on all.
//! 4. *Checks made before.* A load beyond the captured bytes ends the program with 0, so a load is
//!    never simply dropped. It stays as a check until each path to it has passed a check that
//!    reaches at least as far from the same base. A check in front of a decision that always gives
//!    0 is dropped, because both give 0.
//! 5. *Equal nodes are one* and *a test with equal branches is none*: a test itself cannot fail, and its operands' loads are
//!    checks of their own (rule 4).
//! 6. *Tests of the same value side by side* (`order`). In a row of tests that all lead to the same node if they have a certain
//!    outcome, and otherwise to the next test, the order does not matter: nothing happens between them.
//!
//! A program that jumps backwards (`protochain`) stays as it is, and any other stays if it would become longer.

mod assemble;
mod facts;
mod order;

use crate::Program;
use crate::graph::{Graph, NO, Node, NodeId, Nodes, Results, ValueId, Values, ZERO};
use crate::program::{Address, Relation};
use facts::Facts;

/// Largest number of passes. Most programs are done after two.
const MAX_PASSES: usize = 6;

/// Longest way that an edge is led on at once; the rest is done by later nodes and passes.
const MAX_WAY: usize = 64;

/// The simplified program: its result equals the result of `program` for every packet and every
/// wire length.
///
/// **Cost**: about linear in the program's length, a microsecond per instruction; allocates.
#[must_use]
pub fn simplify(program: &Program) -> Program {
    let length = program.insns().len();
    let shorter = || {
        let mut graph = Graph::new(program, Results::Exact, 2 * length + 64)?;
        for _ in 0..MAX_PASSES {
            let size = graph.nodes.len();
            graph = pass(order::by_value(graph));
            if graph.nodes.len() >= size {
                break;
            }
        }
        assemble::program(&graph, program.tests(), length)
    };
    shorter().unwrap_or_else(|| program.clone())
}

/// Whether no packet has a result but 0, as far as [`simplify`] can tell.
#[must_use]
pub fn rejects_all(simplified: &Program) -> bool {
    matches!(simplified.insns(), [only] if (only.code, only.k) == (0x06, 0))
}

/// A program without sets and with the same results: each set test becomes comparisons with the set's addresses. `None` if it would
/// have more than `longest` instructions, if a set test reads an IPv6 address, or if the program loops.
pub(crate) fn written_out(program: &Program, longest: usize) -> Option<Program> {
    let length = program.insns().len();
    let ranges = |node: &Node| match *node {
        Node::InSet { test, .. } => program.tests()[test as usize].set.addresses().v4().len(),
        _ => 0,
    };
    let graph = Graph::new(program, Results::Exact, 2 * length + 64)?;
    if graph.nodes.iter().map(ranges).sum::<usize>() > longest {
        return None;
    }
    let Graph {
        mut values,
        nodes,
        root,
    } = graph;
    let mut made = Nodes::default();
    let mut places = Vec::with_capacity(nodes.len());
    for node in nodes {
        let place = |id: NodeId| places[id.0 as usize];
        let next = match node.with_successors(place) {
            Node::InSet {
                address: Address::V4,
                test,
                of,
                yes,
                no,
            } => {
                let ranges = program.tests()[test as usize].set.addresses().v4();
                ranges.iter().rev().fold(no, |no, &range| {
                    in_range(&mut values, &mut made, of, range, [yes, no])
                })
            }
            Node::InSet { .. } => return None,
            node => made.intern(node),
        };
        places.push(next);
    }
    let graph = pass(Graph {
        values,
        root: places[root.0 as usize],
        nodes: made.list(),
    });
    assemble::program(&graph, &[], longest)
}

/// The test whether a value is in a range.
fn in_range(
    values: &mut Values,
    made: &mut Nodes,
    of: ValueId,
    range: (u32, u32),
    [yes, no]: [NodeId; 2],
) -> NodeId {
    let mut test = |relation, k, yes, no| {
        let b = values.number(k);
        made.intern(Node::Test {
            relation,
            a: of,
            b,
            yes,
            no,
        })
    };
    if range.0 == range.1 {
        return test(Relation::Equal, range.0, yes, no);
    }
    let not_above = test(Relation::Greater, range.1, no, yes);
    test(Relation::GreaterEqual, range.0, not_above, no)
}

/// Leads each edge on as far as the facts decide, from the root to the leaves; then makes the graph
/// again from its leaves.
fn pass(graph: Graph) -> Graph {
    let Graph {
        values,
        nodes,
        root,
    } = graph;
    let mut walk = Walk {
        values: &values,
        nodes: &nodes,
        led: nodes.clone(),
        facts: vec![None; nodes.len()],
    };
    let root = walk.arrive(root, Facts::default());
    for index in (0..nodes.len()).rev() {
        if let Some(facts) = walk.facts[index].take() {
            walk.leave(index, *facts);
        }
    }
    let led = walk.led;
    let mut made = Nodes::default();
    let mut places = vec![NO; led.len()];
    let graph = Graph {
        values: Values::default(),
        nodes: led,
        root,
    };
    for (index, reached) in graph.reachable().into_iter().enumerate() {
        if reached {
            let node = graph.nodes[index].with_successors(|id| places[id.0 as usize]);
            places[index] = made.intern(node);
        }
    }
    Graph {
        values,
        root: places[root.0 as usize],
        nodes: made.list(),
    }
}

struct Walk<'a> {
    values: &'a Values,
    nodes: &'a [Node],
    /// The nodes with edges that are led on.
    led: Vec<Node>,
    /// Facts on all edges to a node so far; `None` if there is no edge.
    facts: Vec<Option<Box<Facts>>>,
}

impl Walk<'_> {
    /// Leads an edge on from `to`, where `facts` hold, and notes the facts at its end. Returns the end.
    fn arrive(&mut self, to: NodeId, facts: Facts) -> NodeId {
        let mut at = to;
        for _ in 0..MAX_WAY {
            match self.next(at, &facts) {
                Some(next) => at = next,
                None => break,
            }
        }
        match &mut self.facts[at.0 as usize] {
            Some(known) => known.meet(&facts, self.values),
            none => *none = Some(Box::new(facts)),
        }
        at
    }

    /// The only node to which the facts lead from `at`; `None` if they do not decide.
    fn next(&self, at: NodeId, facts: &Facts) -> Option<NodeId> {
        match self.nodes[at.0 as usize] {
            Node::Captured { place, next } => facts.is_captured(place, self.values).then_some(next),
            Node::Test {
                relation,
                a,
                b,
                yes,
                no,
            } => facts
                .decide(relation, a, b, self.values)
                .map(|holds| if holds { yes } else { no }),
            // The code that asks a set also ends the program for a packet that ends within the address.
            Node::InSet {
                address: Address::V6 | Address::V6Indirect,
                ..
            } => None,
            Node::InSet {
                test, of, yes, no, ..
            } => facts
                .is_member(test, of)
                .map(|holds| if holds { yes } else { no }),
            Node::Return(_) | Node::ReturnValue(_) => None,
        }
    }

    /// Leads on the edges from a node whose facts are complete.
    fn leave(&mut self, index: usize, mut facts: Facts) {
        if let Some(next) = self.next(NodeId(index as u32), &facts) {
            let next = self.arrive(next, facts);
            // A test with equal branches is none.
            self.led[index] = Node::Test {
                relation: Relation::Equal,
                a: ZERO,
                b: ZERO,
                yes: next,
                no: next,
            };
            return;
        }
        match self.nodes[index] {
            Node::Captured { place, next } => {
                facts.learn_captured(place, self.values);
                let next = self.arrive(next, facts);
                self.led[index] = Node::Captured { place, next };
            }
            Node::Test {
                relation,
                a,
                b,
                yes,
                no,
            } => {
                let mut otherwise = facts.clone();
                facts.learn(relation, a, b, true, self.values);
                otherwise.learn(relation, a, b, false, self.values);
                let (yes, no) = (self.arrive(yes, facts), self.arrive(no, otherwise));
                self.led[index] = Node::Test {
                    relation,
                    a,
                    b,
                    yes,
                    no,
                };
            }
            Node::InSet {
                address,
                test,
                of,
                yes,
                no,
            } => {
                let mut otherwise = facts.clone();
                if address == Address::V4 {
                    facts.learn_member(test, of, true);
                    otherwise.learn_member(test, of, false);
                }
                let (yes, no) = (self.arrive(yes, facts), self.arrive(no, otherwise));
                self.led[index] = Node::InSet {
                    address,
                    test,
                    of,
                    yes,
                    no,
                };
            }
            Node::Return(_) | Node::ReturnValue(_) => {}
        }
    }
}
