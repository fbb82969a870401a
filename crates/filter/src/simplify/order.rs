//! The order of tests: tests of one value side by side, so that it is loaded once.
//!
//! libpcap tests `host A or host B` as source A, destination A, source B, destination B.

use crate::graph::{Graph, NO, Node, NodeId, Nodes, ValueId, Values};
use crate::program::Address;

/// Reorders each row of tests that have one exit in common: destination A, destination B, ... then source B, ....
///
/// A row is a path over tests of which each but the first is reached from the one before alone. A
/// packet leaves the row at the exit if any of its tests has the outcome that leads there, whatever
/// the order. A test changes nothing, and none fails that did not fail before: it compares one
/// value with a constant or a set, and moves after another test of that value, which has read it
/// already. The values are first read in the order in which they were. A test of two values is in
/// no row: the second one may be a load or a division that only a test before makes safe, as in
/// `ether[14] = 0 or ether[20] > 100 / ether[14]`.
pub(super) fn by_value(graph: Graph) -> Graph {
    let rows = rows(&graph);
    let Graph {
        values,
        nodes,
        root,
    } = graph;
    let mut made = Nodes::default();
    let mut places = vec![NO; nodes.len()];
    for index in 0..nodes.len() {
        let place = |id: NodeId| places[id.0 as usize];
        places[index] = match &rows[index] {
            None => made.intern(nodes[index].with_successors(place)),
            Some(row) => {
                let (exit, end) = (place(row.exit), place(row.end));
                let one = |next, &at: &NodeId| {
                    let towards = |id: NodeId| if id == row.exit { exit } else { next };
                    made.intern(nodes[at.0 as usize].with_successors(towards))
                };
                row.grouped(&values, &nodes).iter().rev().fold(end, one)
            }
        };
    }
    Graph {
        values,
        root: places[root.0 as usize],
        nodes: made.list(),
    }
}

/// A row of tests.
struct Row {
    tests: Vec<NodeId>,
    exit: NodeId,
    /// Node after the last test.
    end: NodeId,
}

impl Row {
    /// The tests, ordered by the first occurrence of their values.
    fn grouped(&self, values: &Values, nodes: &[Node]) -> Vec<NodeId> {
        let mut first = std::collections::HashMap::new();
        let value = |id: &NodeId| test(values, nodes[id.0 as usize]).map(|(value, ..)| value);
        for (place, id) in self.tests.iter().enumerate() {
            first.entry(value(id)).or_insert(place);
        }
        let mut grouped = self.tests.clone();
        grouped.sort_by_key(|id| first[&value(id)]);
        grouped
    }
}

/// The value that a test of one value reads, and its branches; `None` for other nodes, and for a test that may end the program.
fn test(values: &Values, node: Node) -> Option<(ValueId, NodeId, NodeId)> {
    match node {
        Node::Test { b, .. } if values.constant(b).is_none() => None,
        Node::Test { a, yes, no, .. }
        | Node::InSet {
            address: Address::V4,
            of: a,
            yes,
            no,
            ..
        } => Some((a, yes, no)),
        _ => None,
    }
}

/// The rows with at least three tests, by their first nodes.
fn rows(graph: &Graph) -> Vec<Option<Row>> {
    let reached = graph.reachable();
    let mut ways = vec![0usize; graph.nodes.len()];
    for (node, _) in graph
        .nodes
        .iter()
        .zip(&reached)
        .filter(|(_, reached)| **reached)
    {
        node.successors()
            .for_each(|next| ways[next.0 as usize] += 1);
    }
    let mut rows: Vec<_> = graph.nodes.iter().map(|_| None).collect();
    let mut taken = vec![false; graph.nodes.len()];
    for index in (0..graph.nodes.len()).rev() {
        if !reached[index] || taken[index] {
            continue;
        }
        let Some((_, yes, no)) = test(&graph.values, graph.nodes[index]) else {
            continue;
        };
        let sides = [(yes, no), (no, yes)].map(|(exit, next)| row(graph, &ways, index, exit, next));
        let [one, other] = sides;
        let longest = if other.tests.len() > one.tests.len() {
            other
        } else {
            one
        };
        if longest.tests.len() >= 3 {
            longest
                .tests
                .iter()
                .for_each(|id| taken[id.0 as usize] = true);
            rows[index] = Some(longest);
        }
    }
    rows
}

/// The row from a test on, with this exit.
fn row(graph: &Graph, ways: &[usize], first: usize, exit: NodeId, mut next: NodeId) -> Row {
    let mut tests = vec![NodeId(first as u32)];
    while ways[next.0 as usize] == 1
        && let Some((_, yes, no)) = test(&graph.values, graph.nodes[next.0 as usize])
        && (yes == exit || no == exit)
        && yes != no
    {
        tests.push(next);
        next = if yes == exit { no } else { yes };
    }
    Row {
        tests,
        exit,
        end: next,
    }
}
