//! Tables of processes and containers: 5-tuples are counted, and answers add up the 5-tuples of each process by the known sockets.
//!
//! ```text
//! of each 5-tuple that the table holds
//!   the process of its source sends its packets, and the process of its destination receives them
//!   without any of them, they belong to no known process
//! packets of 5-tuples that the table does not hold may belong to any process, on both sides
//! ```

use super::folded::{self, NOTHING, plus};
use super::{Answers, Counter, Hash, largest_changes};
use crate::KeyKind;
use crate::answer::{Bound, BoundKind, Change, Estimate, Keys, Missing, Row, Sides, Table};
use crate::owners::{Owners, Process};
use std::collections::HashMap;
use weir_packet::flow::FlowKey;
use weir_sketch::{Counts, Weigh};
use zerocopy::IntoBytes;

impl Counter {
    /// Returns the largest `rows` processes or containers, each with what its sockets sent and received; packets between two processes count for
    /// both. Packets of no known process are a row of their own.
    ///
    /// **Cost**: looks up both ends of all flows that the table holds.
    pub fn owned(
        &self,
        (kind, owners): (KeyKind, &Owners),
        by: Weigh,
        rows: usize,
        hash: impl Fn(&FlowKey) -> u64,
    ) -> Table {
        let table = self.settled();
        let Owned { mut all, gone, .. } = Owned::of(table, (kind, owners), by, &hash);
        let others = all.split_off(rows.min(all.len()));
        let (mut at_most, mut counts) = (gone.by(by).saturating_mul(2), gone);
        for row in &others {
            at_most = at_most.max(row.bound.upper);
            counts = plus(counts, row.counts);
        }
        let listed = table.table(by, 0, None, &hash);
        let keys = others.len() as u64;
        Table {
            rows: all,
            missing: Missing {
                at_most,
                kind: listed.missing.kind,
                keys: match table.has_all() {
                    true => Keys::About(Estimate::exact(keys)),
                    false => Keys::AtLeast(keys),
                },
                counts,
            },
            ..listed
        }
    }

    /// Returns the processes whose figures changed most; a window without a table had no packets.
    pub fn changes_of_owners(
        [before, after]: [Option<&Self>; 2],
        (kind, owners): (KeyKind, &Owners),
        by: Weigh,
        rows: usize,
        hash: impl Fn(&FlowKey) -> u64,
    ) -> Vec<Change> {
        let owned = |table: Option<&Self>| {
            let owned = table.map(|table| Owned::of(table.settled(), (kind, owners), by, &hash));
            owned.unwrap_or_default()
        };
        let [then, now] = [owned(before), owned(after)];
        let of = |owned: &Owned| -> HashMap<FlowKey, Row> {
            owned.all.iter().map(|row| (row.key, *row)).collect()
        };
        let (of_then, of_now) = (of(&then), of(&now));
        let figure =
            |owned: &Owned, rows: &HashMap<FlowKey, Row>, key: &FlowKey| match rows.get(key) {
                Some(row) => (row.counts.by(by), row.bound),
                None => (0, owned.beyond(NOTHING, by)),
            };
        let only_now = of_now.keys().filter(|key| !of_then.contains_key(*key));
        let changes = of_then.keys().chain(only_now).map(|key| {
            Change::between(
                *key,
                figure(&then, &of_then, key),
                figure(&now, &of_now, key),
            )
        });
        largest_changes(changes.collect(), rows)
    }
}

/// Rows of all processes.
#[derive(Default)]
struct Owned {
    /// Rows, largest first.
    all: Vec<Row>,
    /// Packets and bytes of flows that the table does not hold.
    gone: Counts,
    /// Kind of the bounds of `gone`.
    kind: Option<BoundKind>,
}

impl Owned {
    fn of(table: &dyn Answers, (kind, owners): (KeyKind, &Owners), by: Weigh, hash: Hash) -> Self {
        let listed = table.table(by, 0, None, hash).missing;
        let (mut rows, mut gone) = (HashMap::new(), listed.counts);
        owners.with(|known| {
            table.each(by, hash, &mut |mut flow| {
                flow.times = table.times(&flow.key, hash(&flow.key));
                gone.packets = gone.packets.saturating_sub(flow.counts.packets);
                gone.bytes = gone.bytes.saturating_sub(flow.counts.bytes);
                match known.of(&flow.key) {
                    [None, None] => add(
                        &mut rows,
                        Process::default().key(kind),
                        &flow,
                        known.is_sent(&flow.key),
                    ),
                    ends => {
                        for (end, is_sent) in ends.into_iter().zip([true, false]) {
                            if let Some(process) = end {
                                add(&mut rows, process.key(kind), &flow, is_sent);
                            }
                        }
                    }
                }
            });
        });
        let mut owned = Self {
            gone,
            kind: Some(listed.kind),
            all: rows.into_values().collect(),
        };
        owned.all.sort_unstable_by(|a, b| {
            let figures = b.counts.by(by).cmp(&a.counts.by(by));
            figures.then_with(|| a.key.as_bytes().cmp(b.key.as_bytes()))
        });
        let bounds = owned.all.iter().map(|row| owned.beyond(row.bound, by));
        let bounds: Vec<Bound> = bounds.collect();
        for (row, bound) in owned.all.iter_mut().zip(bounds) {
            row.bound = bound;
            // Any process may have been seen in a flow that is gone.
            row.times = row.times.filter(|_| gone == Counts::default());
        }
        owned
    }

    /// The bound of a figure to which any of the packets that are gone may belong, on both sides.
    fn beyond(&self, bound: Bound, by: Weigh) -> Bound {
        match (self.gone.by(by), self.kind) {
            (0, _) | (_, None) => bound,
            (gone, Some(kind)) => bound.and(Bound {
                kind,
                lower: 0,
                upper: gone.saturating_mul(2),
            }),
        }
    }
}

/// Adds the packets of a flow to the sent or the received packets of a process, or of a container.
fn add(rows: &mut HashMap<FlowKey, Row>, key: FlowKey, flow: &Row, is_sent: bool) {
    let row = rows.entry(key).or_insert(folded::nothing(key));
    folded::add(row, flow);
    if let Some(Sides { tx, rx }) = &mut row.sides {
        let side = if is_sent { tx } else { rx };
        *side = plus(*side, flow.counts);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::owners::End;
    use crate::{Config, Sketch};
    use weir_sketch::Item;

    const OWN: [u8; 4] = [10, 0, 0, 1];

    fn flow(src: ([u8; 4], u16), dst: ([u8; 4], u16)) -> FlowKey {
        let mut key = FlowKey {
            sport: src.1,
            dport: dst.1,
            proto: 17,
            family: 4,
            flags: FlowKey::HAS_PORTS,
            ..FlowKey::NONE
        };
        key.src = padded(src.0);
        key.dst = padded(dst.0);
        key
    }

    /// An address as keys hold it: in its first bytes.
    fn padded(address: [u8; 4]) -> [u8; 16] {
        let mut bytes = [0; 16];
        bytes[..4].copy_from_slice(&address);
        bytes
    }

    fn owners(sockets: &[(u16, u32)]) -> Owners {
        let owners = Owners::default();
        let sockets = sockets.iter().map(|(port, number)| {
            let end = End {
                proto: 17,
                local: (OWN.into(), *port),
                remote: None,
            };
            let process = Process {
                number: *number,
                ..Process::default()
            };
            (end, process)
        });
        owners.learn(sockets, [OWN.into()], 0);
        owners
    }

    /// Flows of `packets` packets of 100 bytes, in a table of `memory` bytes.
    fn counted(flows: &[(FlowKey, u32)], memory: usize) -> (Counter, fn(&FlowKey) -> u64) {
        let config = Config {
            sketch: Sketch::Exact,
            memory,
            ..Config::default()
        };
        let hash: fn(&FlowKey) -> u64 =
            |key| (u64::from(key.sport) * 31 + u64::from(key.dport)) << 40;
        let items: Vec<_> = flows
            .iter()
            .flat_map(|(key, packets)| (0..*packets).map(|_| *key))
            .map(|key| Item {
                hash: hash(&key),
                bytes: 100,
                key,
            })
            .collect();
        let mut table =
            Counter::new(&config, KeyKind::Process.stored(), None).expect("enough memory");
        for some in items.chunks(16) {
            table.update(some, &[]);
        }
        (table, hash)
    }

    #[test]
    fn both_ends_have_processes() {
        let far = [192, 0, 2, 1];
        let flows = [
            (flow((OWN, 1000), (far, 53)), 3),
            (flow((far, 53), (OWN, 1000)), 4),
            // Between two processes of this host, and within one.
            (flow((OWN, 1000), (OWN, 2000)), 5),
            (flow((OWN, 2000), (OWN, 2000)), 6),
            // Nobody's.
            (flow((OWN, 3000), (far, 53)), 7),
            (flow((far, 53), (far, 54)), 8),
        ];
        let (table, hash) = counted(&flows, 1 << 16);
        let owners = owners(&[(1000, 1), (2000, 2)]);
        let answer = table.owned((KeyKind::Process, &owners), Weigh::Packets, 10, hash);
        let rows: Vec<_> = answer
            .rows
            .iter()
            .map(|row| {
                let Sides { tx, rx } = row.sides.expect("it has sides");
                let number = Process::of(&row.key).number;
                assert_eq!(
                    (row.bound.lower, row.bound.upper),
                    (row.counts.packets, row.counts.packets)
                );
                (number, row.counts.packets, tx.packets, rx.packets)
            })
            .collect();
        assert_eq!(rows, [(2, 17, 6, 11), (0, 15, 7, 8), (1, 12, 8, 4)]);
        assert_eq!(
            (answer.missing.at_most, answer.missing.counts.packets),
            (0, 0)
        );
        let first = table.owned((KeyKind::Process, &owners), Weigh::Bytes, 1, hash);
        assert_eq!(first.rows.len(), 1);
        assert_eq!(
            (first.missing.at_most, first.missing.counts.packets),
            (1500, 27)
        );
    }

    /// Whatever a table has no room for may be any process's.
    #[test]
    fn bounds_hold_for_a_table_that_is_too_small() {
        let far = [192, 0, 2, 1];
        let flows: Vec<_> = (0..200)
            .map(|n| (flow((OWN, 1000 + n), (far, 53)), 2))
            .collect();
        let (table, hash) = counted(&flows, 16 * 64);
        let sockets: Vec<_> = (0..200).map(|n| (1000 + n, u32::from(n % 2) + 1)).collect();
        let answer = table.owned(
            (KeyKind::Process, &owners(&sockets)),
            Weigh::Packets,
            10,
            hash,
        );
        assert!(answer.missing.at_most > 0);
        for row in &answer.rows {
            assert!(row.bound.lower <= 200 && 200 <= row.bound.upper, "{row:?}");
        }
        let nothing = owners(&[]);
        let changes = Counter::changes_of_owners(
            [None, Some(&table)],
            (KeyKind::Process, &nothing),
            Weigh::Packets,
            3,
            hash,
        );
        assert_eq!(changes.len(), 1);
        assert!(changes[0].lower <= 400 && 400 <= changes[0].upper);
    }

    #[test]
    fn changes_are_those_of_processes() {
        let far = [192, 0, 2, 1];
        let (before, hash) = counted(&[(flow((OWN, 1000), (far, 53)), 3)], 1 << 16);
        let after = [
            (flow((OWN, 1001), (far, 53)), 10),
            (flow((OWN, 2000), (far, 53)), 4),
        ];
        let (after, _) = counted(&after, 1 << 16);
        let owners = owners(&[(1000, 1), (1001, 1), (2000, 2)]);
        let changes = Counter::changes_of_owners(
            [Some(&before), Some(&after)],
            (KeyKind::Process, &owners),
            Weigh::Packets,
            3,
            hash,
        );
        let changes: Vec<_> = changes
            .iter()
            .map(|change| (Process::of(&change.key).number, change.before, change.after))
            .collect();
        assert_eq!(changes, [(1, 3, 10), (2, 0, 4)]);
    }
}
