//! Rules that can never match, because a rule before them decides about all their packets.

use crate::fields::{Fields, IpFields, Ports, TcpFlags, has_ports};
use crate::rules::{Action, Rule, Vlan};
use crate::{Addresses, Classifier};
use std::sync::Arc;

/// Rule that can never match, or almost never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unreachable {
    /// Number of the rule.
    pub rule: usize,
    /// Number of a rule before it that decides about its packets.
    pub before: usize,
    /// Whether the rule still applies to packets that lack a field which the rule before names: that one is `pass`, and does not
    /// apply to them.
    pub but_absent: bool,
}

/// Largest number of rules with which a rule is compared.
const MOST_COMPARED: usize = 1000;

impl Classifier {
    /// Returns the rules that can never match, because a rule before them decides about all their packets.
    ///
    /// A rule that several others cover only together is not found. **Cost**: for each rule one
    /// packet is classified, and the rule is compared with the first thousand earlier rules that
    /// match this packet.
    pub fn unreachable(&self) -> Vec<Unreachable> {
        let rules = &self.list().rules;
        let mut found = Vec::new();
        for (number, rule) in rules.iter().enumerate() {
            let (mut covering, mut compared): (Option<Unreachable>, _) = (None, 0);
            self.candidates(self.rows(&a_packet_of(rule)), |before| {
                let before = before as usize;
                if before < number && covers(&rules[before], rule) {
                    let but_absent = leaves_absent(&rules[before], rule);
                    if !but_absent || covering.is_none() {
                        covering = Some(Unreachable {
                            rule: number,
                            before,
                            but_absent,
                        });
                    }
                }
                compared += 1;
                before < number
                    && compared < MOST_COMPARED
                    && covering.is_none_or(|covering| covering.but_absent)
            });
            found.extend(covering);
        }
        found
    }
}

/// Whether packets that lack a field skip the rule `before` and come to `rule`.
fn leaves_absent(before: &Rule, rule: &Rule) -> bool {
    let names_a_field = before.proto.is_some()
        || before.sport.is_some()
        || before.dport.is_some()
        || before.flags.is_some()
        || before.types.is_some()
        || before.mss.is_some()
        || before.extensions.is_some()
        || before.routing.is_some()
        || before.states.is_some();
    names_a_field
        && !before.action.applies_without_a_field()
        && rule.action.applies_without_a_field()
}

/// A packet for which the conditions on addresses, protocol and ports hold.
fn a_packet_of(rule: &Rule) -> Fields {
    let has_v4 = |set: &Option<Arc<Addresses>>| set.as_ref().is_none_or(|set| !set.v4().is_empty());
    let is_v6 = !(has_v4(&rule.src) && has_v4(&rule.dst));
    let first = |set: &Option<Arc<Addresses>>| match set {
        None => 0,
        Some(set) if is_v6 => set.v6().first().map_or(0, |range| range.0),
        Some(set) => set.v4().first().map_or(0, |range| u128::from(range.0)),
    };
    let proto = rule.proto.map_or(0, |set| {
        (0..=255u8)
            .find(|proto| set[usize::from(proto / 64)] >> (proto % 64) & 1 == 1)
            .unwrap_or(0)
    });
    let first_port = |ranges: &Option<Vec<(u16, u16)>>| {
        ranges.iter().flatten().next().map_or(0, |range| range.0)
    };
    let names_ports = rule.sport.is_some() || rule.dport.is_some();
    let ports = match names_ports || has_ports(proto) {
        true => Ports::Known(first_port(&rule.sport), first_port(&rule.dport)),
        false => Ports::None,
    };
    Fields::of_ip(IpFields {
        is_v6,
        src: first(&rule.src),
        dst: first(&rule.dst),
        proto: Some(proto),
        ports,
        flags: TcpFlags::NotTcp,
    })
}

/// Whether the rule `before` decides about every packet to which `rule` applies and which lacks no field.
fn covers(before: &Rule, rule: &Rule) -> bool {
    let flags = match (before.flags, rule.flags) {
        (None, _) => true,
        (Some(_), None) => false,
        // All that the one asks for is asked for by the other.
        (Some((set, mask)), Some((inner, inner_mask))) => {
            mask & !inner_mask == 0 && inner & mask == set
        }
    };
    let vlan = match (&before.vlan, &rule.vlan) {
        (None, _) => true,
        (Some(Vlan::Identifiers(outer)), Some(Vlan::Identifiers(inner))) => {
            covers_numbers(outer, inner)
        }
        (outer, inner) => outer == inner,
    };
    let applies_always = before.rate.is_none() && before.lasts.is_none();
    matches!(before.action, Action::Decide(_))
        && applies_always
        && (!rule.is_for_all_frames() || before.is_for_all_frames())
        && within(&before.src, &rule.src, |outer, inner| {
            Arc::ptr_eq(outer, inner) || outer.contains(inner)
        })
        && within(&before.dst, &rule.dst, |outer, inner| {
            Arc::ptr_eq(outer, inner) || outer.contains(inner)
        })
        && within(&before.proto, &rule.proto, |outer, inner| {
            (0..4).all(|word| inner[word] & !outer[word] == 0)
        })
        && within(&before.sport, &rule.sport, |outer, inner| {
            covers_numbers(outer, inner)
        })
        && within(&before.dport, &rule.dport, |outer, inner| {
            covers_numbers(outer, inner)
        })
        && flags
        && vlan
        && within(&before.states, &rule.states, |outer, inner| {
            outer.contains(*inner)
        })
        && (!before.fragment || rule.fragment)
        && within(&before.types, &rule.types, |outer, inner| {
            covers_numbers(outer, inner)
        })
        && within(&before.mss, &rule.mss, |outer, inner| {
            covers_numbers(outer, inner)
        })
        && within(&before.routing, &rule.routing, |outer, inner| {
            covers_numbers(outer, inner)
        })
        && (before.hours.is_none() || before.hours == rule.hours)
        && within(&before.extensions, &rule.extensions, |outer, inner| {
            inner & !outer == 0
        })
        && (before.on.is_none() || before.on == rule.on)
        && (before.to.is_none() || before.to == rule.to)
        && (before.expression.is_none() || before.expression == rule.expression)
}

/// Whether a condition, `None` if it always holds, holds wherever another one does.
fn within<T>(outer: &Option<T>, inner: &Option<T>, covers: impl Fn(&T, &T) -> bool) -> bool {
    match (outer, inner) {
        (None, _) => true,
        (Some(_), None) => false,
        (Some(outer), Some(inner)) => covers(outer, inner),
    }
}

/// Whether all numbers of the ranges `inner` are in the ranges `outer`.
fn covers_numbers(outer: &[(u16, u16)], inner: &[(u16, u16)]) -> bool {
    let mut outer = outer.to_vec();
    outer.sort_unstable();
    inner.iter().all(|&(first, last)| {
        // First number that is not covered yet.
        let mut next = u32::from(first);
        for &(from, to) in &outer {
            if u32::from(from) <= next {
                next = next.max(u32::from(to) + 1);
            }
        }
        next > u32::from(last)
    })
}
