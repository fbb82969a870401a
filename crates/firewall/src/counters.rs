//! Counts of packets by what decided about them.

use crate::control::Refusal;
use crate::{DecidedBy, Verdict};
use core::hint::select_unpredictable;

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

    fn add_all(&mut self, other: Self) {
        self.packets += other.packets;
        self.bytes += other.bytes;
    }
}

/// Count of a rule.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RuleCount {
    /// All packets to which the rule applied.
    pub all: Count,
    /// Packets among them that lack a field which the rule names.
    pub absent: u64,
    /// Packets that were taken as beyond the rule's rate because its table had no room for their source.
    pub no_room: u64,
    /// Packets that are beyond the rule's rate after every pause, because they have more bytes than may come at once.
    pub too_long: u64,
}

impl RuleCount {
    fn add_all(&mut self, other: Self) {
        self.all.add_all(other.all);
        self.absent += other.absent;
        self.no_room += other.no_room;
        self.too_long += other.too_long;
    }
}

/// Counts of packets to the control port, which nothing else judges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ControlCounts {
    /// Requests that were obeyed. They neither passed nor were denied.
    pub accepted: Count,
    /// Packets that were denied, by the number of the reason among [`Refusal::ALL`].
    pub refused: [Count; Refusal::ALL.len()],
}

impl ControlCounts {
    fn add_all(&mut self, other: &Self) {
        self.accepted.add_all(other.accepted);
        self.refused
            .iter_mut()
            .zip(other.refused)
            .for_each(|(count, other)| count.add_all(other));
    }
}

/// Counts of all packets that a rule list judged, each where its verdict is given.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Counts of the rules, in the order of the list.
    pub rules: Vec<RuleCount>,
    /// Packets to which rules applied that are in the list no longer.
    pub earlier: Count,
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
    /// Packets to the control port.
    pub control: ControlCounts,
    /// Packets that passed.
    pub passed: Count,
    /// Packets that were dropped or rejected, or not obeyed.
    pub denied: Count,
    /// Packets that passed and opened a connection for which the table of connections had no room.
    pub unrecorded: u64,
    /// Packets that passed without a judgement, because the firewall was overloaded and fails open. Part of [`Self::passed`].
    pub unjudged: Count,
}

impl Counters {
    /// Makes the counters of a list with `rules` rules.
    pub fn new(rules: usize) -> Self {
        Self {
            rules: vec![RuleCount::default(); rules],
            ..Self::default()
        }
    }

    /// Goes over to another list with `rules` rules. `places` has for each rule of the list before its number in the new one; a rule
    /// without one is counted as [earlier](Self::earlier) from now on.
    pub fn carry(&mut self, places: &[Option<u32>], rules: usize) {
        let before = std::mem::replace(&mut self.rules, vec![RuleCount::default(); rules]);
        let places = places.iter().copied().chain(std::iter::repeat(None));
        for (count, place) in before.into_iter().zip(places) {
            match place.and_then(|place| self.rules.get_mut(place as usize)) {
                Some(rule) => rule.add_all(count),
                None => self.earlier.add_all(count.all),
            }
        }
    }

    /// Adds the counts of another worker, by the same list.
    pub fn add_all(&mut self, other: &Self) {
        let Self {
            rules,
            earlier,
            persona_non_grata,
            not_accepted,
            default,
            neighbors,
            non_ip,
            malformed,
            control,
            passed,
            denied,
            unrecorded,
            unjudged,
        } = other;
        self.rules
            .iter_mut()
            .zip(rules)
            .for_each(|(count, other)| count.add_all(*other));
        self.earlier.add_all(*earlier);
        self.persona_non_grata.add_all(*persona_non_grata);
        self.not_accepted.add_all(*not_accepted);
        self.default.add_all(*default);
        self.neighbors.add_all(*neighbors);
        self.non_ip.add_all(*non_ip);
        self.malformed.add_all(*malformed);
        self.control.add_all(control);
        self.passed.add_all(*passed);
        self.denied.add_all(*denied);
        self.unrecorded += unrecorded;
        self.unjudged.add_all(*unjudged);
    }

    /// Counts a packet to the control port, by its outcome.
    pub fn control(&mut self, obeyed: Result<(), Refusal>, wire_len: u32) {
        match obeyed {
            Ok(()) => self.control.accepted.add(wire_len),
            Err(why) => {
                self.control.refused[why as usize].add(wire_len);
                self.denied.add(wire_len);
            }
        }
    }

    /// Counts packets that pass without a judgement.
    pub fn pass_unjudged(&mut self, packets: u64, bytes: u64) {
        for count in [&mut self.passed, &mut self.unjudged] {
            count.packets += packets;
            count.bytes += bytes;
        }
    }

    /// Counts a packet to which a rule applied; `is_absent` if the packet lacks a field of the rule.
    pub(crate) fn apply(&mut self, rule: u32, wire_len: u32, is_absent: bool) {
        let count = &mut self.rules[rule as usize];
        count.all.add(wire_len);
        count.absent += u64::from(is_absent);
    }

    /// Counts a packet that has all fields: its verdict, and the rule that decided, or the default.
    ///
    /// **Cost**: no branch on the rule or the verdict, both of which are hard to predict.
    #[inline]
    pub(crate) fn end(&mut self, rule: Option<u32>, verdict: Verdict, wire_len: u32) {
        let Self {
            rules,
            default,
            passed,
            denied,
            ..
        } = self;
        let by = match rules.len().checked_sub(1) {
            None => default,
            Some(last) => {
                let place = rule.map_or(0, |rule| rule as usize).min(last);
                select_unpredictable(rule.is_some(), &mut rules[place].all, default)
            }
        };
        by.add(wire_len);
        select_unpredictable(verdict == Verdict::Pass, passed, denied).add(wire_len);
    }

    /// Counts a verdict. [`Self::apply`] also counts packets of rules.
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
        // Chosen without a branch: verdicts are hard to predict.
        let passes = verdict == Verdict::Pass;
        let all = if passes {
            &mut self.passed
        } else {
            &mut self.denied
        };
        all.add(wire_len);
    }
}
