//! Counts of packets by what decided about them.

use crate::{DecidedBy, Verdict};

/// Number of packets and of their bytes on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Count {
    /// Number of packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
}

impl Count {
    fn add(&mut self, wire_len: u32) {
        self.packets += 1;
        self.bytes += u64::from(wire_len);
    }
}

/// Count of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCount {
    /// All packets to which the rule applied.
    pub all: Count,
    /// Packets among them that lack a field which the rule names.
    pub absent: u64,
}

/// Counts of all packets that a rule list judged, each where its verdict is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counts of the rules, in the order of the list.
    pub rules: Vec<RuleCount>,
    /// IP packets whose source is *persona non grata*.
    pub persona_non_grata: Count,
    /// IP packets whose destination does not accept their source.
    pub not_accepted: Count,
    /// IP packets for which no rule decided.
    pub default: Count,
    /// Messages of neighbor discovery that the `neighbors` line let pass.
    pub neighbors: Count,
    /// Frames without IP.
    pub non_ip: Count,
    /// Frames whose IP header is cut or contradicts itself.
    pub malformed: Count,
    /// Packets that passed.
    pub passed: Count,
    /// Packets that were dropped or rejected.
    pub denied: Count,
}

impl Counters {
    /// Makes the counters of a list with `rules` rules.
    pub fn new(rules: usize) -> Self {
        Self { rules: vec![RuleCount::default(); rules], ..Self::default() }
    }

    /// Counts a packet to which a rule applied; `is_absent` if the packet lacks a field of the rule.
    pub(crate) fn apply(&mut self, rule: u32, wire_len: u32, is_absent: bool) {
        let count = &mut self.rules[rule as usize];
        count.all.add(wire_len);
        count.absent += u64::from(is_absent);
    }

    /// Counts a verdict. Packets of rules are counted by [`Self::apply`] too.
    pub(crate) fn decide(&mut self, verdict: Verdict, by: DecidedBy, wire_len: u32) {
        match by {
            DecidedBy::Rule(_) => {}
            DecidedBy::PersonaNonGrata => self.persona_non_grata.add(wire_len),
            DecidedBy::NotAccepted => self.not_accepted.add(wire_len),
            DecidedBy::Default => self.default.add(wire_len),
            DecidedBy::Neighbors => self.neighbors.add(wire_len),
            DecidedBy::NonIp => self.non_ip.add(wire_len),
            DecidedBy::Malformed => self.malformed.add(wire_len),
        }
        match verdict {
            Verdict::Pass => self.passed.add(wire_len),
            Verdict::Drop | Verdict::Reject => self.denied.add(wire_len),
        }
    }
}
