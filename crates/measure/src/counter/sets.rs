//! Set-per-entry Reversible Sketch of the study: flows by recovery, without a bound.

use super::figure::{Figure, keys_outside, other, rest};
use super::{Answers, Hash};
use crate::answer::{Bound, BoundKind, Estimate, Missing, Row, Table};
use weir_packet::flow::FlowKey;
use weir_sketch::{Counts, PARTS, Parts, ReversibleSets, Weigh};

/// Flow keys: two addresses, two ports, and the protocol with the family and the flags.
#[derive(Debug)]
pub(crate) struct Flows;

impl Parts for Flows {
    type Key = FlowKey;

    #[inline]
    fn split(key: &FlowKey) -> [u128; PARTS] {
        [
            u128::from_be_bytes(key.src),
            u128::from_be_bytes(key.dst),
            key.sport.into(),
            key.dport.into(),
            u32::from_be_bytes([key.proto, key.family, key.flags, key.reserved]).into(),
        ]
    }

    fn join(parts: &[u128; PARTS]) -> Option<FlowKey> {
        let [src, dst, sport, dport, rest] = *parts;
        let [proto, family, flags, reserved] = u32::try_from(rest).ok()?.to_be_bytes();
        Some(FlowKey {
            src: src.to_be_bytes(),
            dst: dst.to_be_bytes(),
            sport: sport.try_into().ok()?,
            dport: dport.try_into().ok()?,
            proto,
            family,
            flags,
            reserved,
        })
    }
}

/// Returns the bound of a count that is never below the truth, and of whose excess nothing is known.
fn bound(value: u64) -> Bound {
    Bound {
        kind: BoundKind::None,
        lower: 0,
        upper: value,
    }
}

impl Answers for ReversibleSets<Flows> {
    fn table(&self, by: Weigh, rows: usize, keys: Option<Estimate>, hash: Hash) -> Table {
        let ranking = self.ranking(rows, by, hash);
        let row = |(key, counts): (FlowKey, Counts)| Row {
            key,
            counts,
            bound: bound(counts.by(by)),
            companion: bound(counts.by(other(by))),
            sides: None,
            times: None,
        };
        let rows: Vec<Row> = ranking.listed.into_iter().map(row).collect();
        let missing = Missing {
            at_most: ranking.at_most,
            kind: BoundKind::Deterministic,
            keys: keys_outside(rows.len(), rows.len(), None, keys),
            counts: rest(self.total(), &rows),
        };
        Table {
            rows,
            untracked: Counts::default(),
            evicted: Counts::default(),
            ipv6: Counts::default(),
            overflowed: self.overflowed() as u64,
            late: 0,
            missing,
        }
    }

    fn keys(&self, hash: Hash) -> Vec<FlowKey> {
        let all = self.ranking(usize::MAX, Weigh::Packets, hash).listed;
        all.into_iter().map(|(key, _)| key).collect()
    }

    fn figure(&self, _: &FlowKey, hash: u64, by: Weigh) -> Figure {
        let value = self.estimate(hash).by(by);
        Figure {
            value,
            bound: bound(value),
        }
    }

    fn describe(&self) -> [String; 2] {
        let shape = self.shape();
        [
            format!(
                "set-per-entry reversible, {} rows of {} entries; {} entries have a full set",
                shape.rows(),
                shape.width(),
                self.overflowed()
            ),
            self.obtained().to_string(),
        ]
    }
}
