//! Conditions of rules as sets of values for each field, and the lines of a rule list for them.

use super::ranges::Ranges;
use crate::fields::PORT_PROTOCOLS;
use crate::rules::Answer;
use core::net::{Ipv4Addr, Ipv6Addr};

/// Field of a packet. The number is its place in [`Conditions`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Field {
    /// 4 or 6.
    Family,
    Src,
    Dst,
    Protocol,
    Sport,
    Dport,
    Flags,
    /// Type of an ICMP message of IPv4.
    IcmpType,
    /// Type of an ICMP message of IPv6.
    Icmp6Type,
    /// Number of the interface in a list of names.
    Interface,
    /// Place of the state in [`STATES`].
    State,
}

const FIELDS: usize = Field::State as usize + 1;

/// All fields, each behind those on which its values depend.
const FIELDS_IN_ORDER: [Field; FIELDS] = [
    Field::Family,
    Field::Protocol,
    Field::Src,
    Field::Dst,
    Field::Sport,
    Field::Dport,
    Field::Flags,
    Field::IcmpType,
    Field::Icmp6Type,
    Field::Interface,
    Field::State,
];

/// States of connections that both firewalls know.
pub(super) const STATES: [&str; 5] = ["new", "established", "related", "invalid", "untracked"];
const NEW: u128 = 0;
const INVALID: u128 = 3;

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const ICMP6: u8 = 58;
/// Authentication header. Weir looks for the protocol behind it, nftables does not (`IP6_FH_F_AUTH` in include/net/netfilter/nf_tables_ipv6.h).
pub(super) const AUTHENTICATION: u8 = 51;

/// Values that the fields of a packet may have; a field without a set may have any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conditions {
    fields: [Option<Ranges>; FIELDS],
    /// Names of the address sets that are exactly those of source and destination.
    names: [Option<String>; 2],
    /// Whether ports are named without their protocol.
    has_bare_ports: bool,
}

/// Verdict of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Pass,
    Drop,
    Reject(Answer),
    Count,
}

impl Action {
    fn word(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::Drop => "drop",
            Self::Reject(_) => "reject",
            Self::Count => "count",
        }
    }
}

impl Conditions {
    pub fn get(&self, field: Field) -> Option<&Ranges> {
        self.fields[field as usize].as_ref()
    }

    pub fn restrict(&mut self, field: Field, values: &Ranges) {
        let place = &mut self.fields[field as usize];
        *place = Some(place.as_ref().map_or_else(|| values.clone(), |before| before.and(values)));
        if let Some(name) = self.names.get_mut((field as usize).wrapping_sub(Field::Src as usize)) {
            *name = None;
        }
    }

    /// The conditions of packets that meet these and others.
    pub fn and(&self, others: &Self) -> Self {
        let mut both = self.clone();
        for field in FIELDS_IN_ORDER {
            if let Some(values) = others.get(field).filter(|values| Some(*values) != self.get(field)) {
                both.restrict(field, values);
            }
        }
        both
    }

    /// Restricts source or destination to a set with a name.
    pub fn restrict_to_set(&mut self, field: Field, values: &Ranges, name: String) {
        self.restrict(field, values);
        if self.get(field) == Some(values) {
            self.names[field as usize - Field::Src as usize] = Some(name);
        }
    }

    pub fn name_bare_ports(&mut self) {
        self.has_bare_ports = true;
    }

    /// Whether no packet meets the conditions.
    pub fn is_empty(&self) -> bool {
        self.fields.iter().flatten().any(Ranges::is_empty)
    }

    /// The parts of these conditions for which those of `others`, which are narrower, do not hold. No packet is in two parts. `None`: the values of
    /// a field are not known to their end.
    pub fn without(&self, others: &Self) -> Option<Vec<Self>> {
        let (mut parts, mut rest) = (Vec::new(), self.clone());
        for field in FIELDS_IN_ORDER {
            let Some(values) = others.get(field).filter(|values| Some(*values) != self.get(field)) else { continue };
            let most = match field {
                Field::Family => 6,
                Field::Src | Field::Dst if rest.family() == Some(4) => u32::MAX.into(),
                Field::Src | Field::Dst if rest.family() == Some(6) => u128::MAX,
                Field::Protocol | Field::Flags | Field::IcmpType | Field::Icmp6Type => u8::MAX.into(),
                Field::Sport | Field::Dport => u16::MAX.into(),
                Field::State => STATES.len() as u128 - 1,
                Field::Src | Field::Dst | Field::Interface => return None,
            };
            let all =
                if field == Field::Family { Ranges::new(vec![(4, 4), (6, 6)]) } else { Ranges::new(vec![(0, most)]) };
            let mut part = rest.clone();
            part.restrict(field, &all.and(&values.others(most)));
            if !part.is_empty() {
                parts.push(part);
            }
            rest.restrict(field, values);
        }
        Some(parts)
    }

    pub fn may_be(&self, field: Field, number: u8) -> bool {
        self.get(field).is_none_or(|ranges| ranges.contains(number.into()))
    }

    /// Whether a line for these conditions may pass packets with an authentication header that nftables denies.
    pub fn is_open_to_authentication(&self, action: Action) -> bool {
        let is_wrong = match action {
            Action::Pass => true,
            Action::Drop | Action::Reject(_) => self.may_be(Field::Protocol, AUTHENTICATION),
            Action::Count => false,
        };
        is_wrong && self.get(Field::Protocol).is_some()
    }

    /// Names of the sets of addresses, and their fields.
    pub fn sets(&self) -> impl Iterator<Item = (&String, Field)> {
        self.names.iter().zip([Field::Src, Field::Dst]).filter_map(|(name, field)| Some((name.as_ref()?, field)))
    }

    /// The lines of a rule list. **Errors**: the reason for which there are none.
    pub fn lines(&self, action: Action, rate: &str, interfaces: &[String]) -> Result<Vec<String>, String> {
        let protocol = self.get(Field::Protocol);
        if self.has_bare_ports && protocol.is_none_or(|protocol| !protocol.is_within(&PORT_PROTOCOLS)) {
            return Err("th: ports of protocols that need not have any, without meta l4proto in front".to_owned());
        }
        let mut common = String::new();
        let mut add = |words: &str| {
            common.push(' ');
            common.push_str(words);
        };
        if let Some(family) = self.family() {
            let addresses = |field, name: &Option<String>| {
                let list = |ranges: &Ranges| listed(ranges.iter().map(|range| address_text(family, range)));
                self.get(field).map(|ranges| name.as_ref().map_or_else(|| list(ranges), |name| format!("${name}")))
            };
            let (src, dst) = (addresses(Field::Src, &self.names[0]), addresses(Field::Dst, &self.names[1]));
            let all = if family == 4 { "0.0.0.0/0" } else { "::/0" };
            match (src, dst) {
                (None, None) => add(&format!("src {all}")),
                (src, dst) => {
                    src.into_iter().for_each(|src| add(&format!("src {src}")));
                    dst.into_iter().for_each(|dst| add(&format!("dst {dst}")));
                }
            }
        }
        if let Some(protocol) = protocol {
            add(&protocol_text(protocol));
        }
        for (field, name) in [(Field::Sport, "sport"), (Field::Dport, "dport")] {
            if let Some(ports) = self.get(field) {
                add(&format!("{name} {}", listed(ports.iter().map(range_text))));
            }
        }
        let is_deny = matches!(action, Action::Drop | Action::Reject(_));
        if let Some(states) = self.get(Field::State) {
            // What netfilter takes up in the middle is new there, and invalid here: denied with the new ones, and passed with neither.
            let has = |state| match (state == INVALID, is_deny) {
                (true, true) => states.contains(INVALID) || states.contains(NEW),
                (true, false) => states.contains(INVALID) && states.contains(NEW),
                (false, _) => states.contains(state),
            };
            let names: Vec<String> =
                (0..).zip(STATES).filter(|(state, _)| has(*state)).map(|(_, name)| name.to_owned()).collect();
            if names.is_empty() {
                return Err("ct state invalid: what passes by it would be more here than in the kernel".to_owned());
            }
            add(&format!("state {}", listed(names.into_iter())));
        }
        let of_family = if self.family() == Some(6) { Field::Icmp6Type } else { Field::IcmpType };
        if let Some(types) = self.get(of_family).filter(|types| !types.others(255).is_empty()) {
            add(&format!("type {}", listed(types.iter().map(range_text))));
        }
        let on = self.get(Field::Interface).map(|numbers| {
            let names = numbers.iter().flat_map(|(first, last)| first..=last);
            names.map(|number| format!(" on {}", interfaces[number as usize])).collect()
        });
        let on: Vec<String> = on.unwrap_or_else(|| vec![String::new()]);
        let flags = self.get(Field::Flags).map(|bytes| bytes.masks().into_iter().map(flags_text).collect());
        let flags: Vec<String> = flags.unwrap_or_else(|| vec![String::new()]);
        if !rate.is_empty() && on.len() * flags.len() > 1 {
            return Err("limit: one rate for a rule that becomes several lines".to_owned());
        }
        let with = match action {
            Action::Reject(answer) => answer.name().map_or_else(String::new, |name| format!(" with {name}")),
            _ => String::new(),
        };
        let line = |on: &String, flags: &String| format!("{}{with}{common}{flags}{on}{rate}", action.word());
        Ok(on.iter().flat_map(|on| flags.iter().map(move |flags| line(on, flags))).collect())
    }

    /// The family, if it is but one.
    fn family(&self) -> Option<u8> {
        match (self.may_be(Field::Family, 4), self.may_be(Field::Family, 6)) {
            (true, false) => Some(4),
            (false, true) => Some(6),
            _ => None,
        }
    }
}

fn listed(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(",")
}

fn range_text((first, last): (u128, u128)) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}

/// An address, a prefix, or a range of addresses.
pub(super) fn address_text(family: u8, (first, last): (u128, u128)) -> String {
    let (text, width): (fn(u128) -> String, u32) = match family {
        4 => (|bits| Ipv4Addr::from_bits(bits as u32).to_string(), 32),
        _ => (|bits| Ipv6Addr::from_bits(bits).to_string(), 128),
    };
    let differ = first ^ last;
    let is_prefix = first & differ == 0 && differ.checked_add(1).is_none_or(u128::is_power_of_two);
    match is_prefix {
        _ if first == last => text(first),
        true => format!("{}/{}", text(first), width - (u128::BITS - differ.leading_zeros())),
        false => format!("{}-{}", text(first), text(last)),
    }
}

fn protocol_text(protocols: &Ranges) -> String {
    let name = |number: u128| match number {
        1 => "icmp".to_owned(),
        6 => "tcp".to_owned(),
        17 => "udp".to_owned(),
        58 => "icmp6".to_owned(),
        132 => "sctp".to_owned(),
        number => number.to_string(),
    };
    let all: Vec<String> = protocols.iter().flat_map(|(first, last)| first..=last).map(name).collect();
    match &all[..] {
        [one] if !one.starts_with(|first: char| first.is_ascii_digit()) => one.clone(),
        all => format!("proto {}", all.join(",")),
    }
}

fn flags_text((set, mask): (u8, u8)) -> String {
    let letters = |bits: u8| "FSRPAUEW".chars().enumerate().filter(move |(bit, _)| bits >> bit & 1 == 1);
    let letters = |bits: u8| letters(bits).map(|(_, letter)| letter).collect::<String>();
    if mask == 0 { String::new() } else { format!(" flags {}/{}", letters(set), letters(mask)) }
}
