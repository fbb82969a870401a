//! Conditions of rules as sets of values for each field, and the lines of a rule list for them.

use super::ranges::Ranges;
use super::{interfaces, words};
use crate::fields::PORT_PROTOCOLS;
use crate::rules::{Answer, DAY_S};
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
    /// Type above code of an ICMP message of IPv4.
    Icmp,
    /// Type above code of an ICMP message of IPv6.
    Icmp6,
    /// Name of the interface where the packet arrives, as a number: see [`interfaces`].
    Arrival,
    /// Name of the interface where the packet leaves, as a number.
    Departure,
    /// Place of the state in [`STATES`].
    State,
    /// 1 for a fragment other than the first, 0 for all else.
    Later,
    /// Bits of [`extensions`](weir_packet::flow::extensions).
    Extensions,
    /// Type of the first routing header, or [`NO_ROUTING`].
    Routing,
    /// Segment size that TCP announces, or [`NO_SEGMENT_SIZE`].
    SegmentSize,
    /// Second of the day in UTC.
    Hour,
    /// Addresses of the frame of Ethernet.
    EtherSrc,
    EtherDst,
}

const FIELDS: usize = Field::EtherDst as usize + 1;

/// All fields, each after the fields on which its values depend.
const FIELDS_IN_ORDER: [Field; FIELDS] = [
    Field::Family,
    Field::Protocol,
    Field::Src,
    Field::Dst,
    Field::Sport,
    Field::Dport,
    Field::Flags,
    Field::Icmp,
    Field::Icmp6,
    Field::Arrival,
    Field::Departure,
    Field::State,
    Field::Later,
    Field::Extensions,
    Field::Routing,
    Field::SegmentSize,
    Field::Hour,
    Field::EtherSrc,
    Field::EtherDst,
];

/// Number of a packet without a routing header.
pub(super) const NO_ROUTING: u128 = 256;
/// Number of a header of TCP without an option for the segment size.
pub(super) const NO_SEGMENT_SIZE: u128 = 1 << 16;
/// Largest address of Ethernet.
pub(super) const MOST_ETHER: u128 = (1 << 48) - 1;

/// States of connections that both firewalls know.
pub(super) const STATES: [&str; 5] = ["new", "established", "related", "invalid", "untracked"];
const NEW: u128 = 0;
const INVALID: u128 = 3;

pub(super) const ICMP: u8 = 1;
pub(super) const TCP: u8 = 6;
pub(super) const ICMP6: u8 = 58;
/// Authentication header. Weir looks for the protocol after it, nftables does not (`IP6_FH_F_AUTH`
/// in include/net/netfilter/nf_tables_ipv6.h).
pub(super) const AUTHENTICATION: u8 = 51;

/// Values that the fields of a packet may have; a field without a set may have any.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conditions {
    fields: [Option<Ranges>; FIELDS],
    /// Names of the address sets that equal the sets of source and destination.
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
        *place = Some(
            place
                .as_ref()
                .map_or_else(|| values.clone(), |before| before.and(values)),
        );
        if let Some(name) = self
            .names
            .get_mut((field as usize).wrapping_sub(Field::Src as usize))
        {
            *name = None;
        }
    }

    /// The conditions of packets that meet these and others.
    pub fn and(&self, others: &Self) -> Self {
        let mut both = self.clone();
        for field in FIELDS_IN_ORDER {
            if let Some(values) = others
                .get(field)
                .filter(|values| Some(*values) != self.get(field))
            {
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

    /// The parts of these conditions for which the narrower conditions `others` do not hold. No
    /// packet is in two parts. `None`: the values of a field are not known to their end.
    pub fn without(&self, others: &Self) -> Option<Vec<Self>> {
        let (mut parts, mut rest) = (Vec::new(), self.clone());
        for field in FIELDS_IN_ORDER {
            let Some(values) = others
                .get(field)
                .filter(|values| Some(*values) != self.get(field))
            else {
                continue;
            };
            let most = match field {
                Field::Family => 6,
                Field::Src | Field::Dst if rest.family() == Some(4) => u32::MAX.into(),
                Field::Src | Field::Dst if rest.family() == Some(6) => u128::MAX,
                Field::Protocol | Field::Flags => u8::MAX.into(),
                Field::Sport | Field::Dport | Field::Icmp | Field::Icmp6 => u16::MAX.into(),
                Field::Arrival | Field::Departure => interfaces::MOST,
                Field::State => STATES.len() as u128 - 1,
                Field::Later => 1,
                Field::Extensions => words::ALL_EXTENSIONS,
                Field::Routing => NO_ROUTING,
                Field::SegmentSize => NO_SEGMENT_SIZE,
                Field::Hour => u128::from(DAY_S) - 1,
                Field::EtherSrc | Field::EtherDst => MOST_ETHER,
                Field::Src | Field::Dst => return None,
            };
            let all = if field == Field::Family {
                Ranges::new(vec![(4, 4), (6, 6)])
            } else {
                Ranges::new(vec![(0, most)])
            };
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
        self.get(field)
            .is_none_or(|ranges| ranges.contains(number.into()))
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
        self.names
            .iter()
            .zip([Field::Src, Field::Dst])
            .filter_map(|(name, field)| Some((name.as_ref()?, field)))
    }

    /// One of these conditions and of others, if both differ in the values of one field alone.
    pub fn joined(&self, others: &Self) -> Option<Self> {
        let mut differing = FIELDS_IN_ORDER
            .into_iter()
            .filter(|field| self.get(*field) != others.get(*field));
        let (field, None) = (differing.next()?, differing.next()) else {
            return None;
        };
        let (values, more) = (self.get(field)?, others.get(field)?);
        let is_alike = self.names == others.names && self.has_bare_ports == others.has_bare_ports;
        let is_named = matches!(field, Field::Src | Field::Dst) && self.names != [None, None];
        let mut both = self.clone();
        both.fields[field as usize] = Some(Ranges::new(values.iter().chain(more.iter()).collect()));
        (is_alike && !is_named).then_some(both)
    }

    /// The lines of a rule list. **Errors**: the reason for which there are none.
    pub fn lines(&self, action: Action, rate: &str) -> Result<Vec<String>, String> {
        let protocol = self.get(Field::Protocol);
        if self.has_bare_ports
            && protocol.is_none_or(|protocol| !protocol.is_within(&PORT_PROTOCOLS))
        {
            return Err(
                "th: ports of protocols that need not have any, without meta l4proto in front"
                    .to_owned(),
            );
        }
        let mut of_packet = String::new();
        let mut add = |words: String| {
            of_packet.push(' ');
            of_packet.push_str(&words);
        };
        self.address_words().into_iter().for_each(&mut add);
        if let Some(protocol) = protocol {
            add(protocol_text(protocol));
        }
        for (field, name) in [(Field::Sport, "sport"), (Field::Dport, "dport")] {
            if let Some(ports) = self.get(field) {
                add(format!("{name} {}", listed(ports.iter().map(range_text))));
            }
        }
        let is_deny = matches!(action, Action::Drop | Action::Reject(_));
        if let Some(states) = self.get(Field::State) {
            add(state_words(states, is_deny)?);
        }
        let of_family = if self.family() == Some(6) {
            Field::Icmp6
        } else {
            Field::Icmp
        };
        if let Some(types) = self
            .get(of_family)
            .filter(|types| !types.others(u16::MAX.into()).is_empty())
        {
            add(format!("type {}", words::messages(types)));
        }
        self.header_words(is_deny)?.into_iter().for_each(&mut add);
        let of_frame = self.frame_words()?;
        let flags = self
            .get(Field::Flags)
            .map(|bytes| bytes.masks().into_iter().map(flags_text).collect());
        let flags: Vec<String> = flags.unwrap_or_else(|| vec![String::new()]);
        // A rule that names nothing of a packet but an expression would judge frames without IP.
        let is_for_all = of_frame.contains(" expr ") && of_packet.is_empty() && rate.is_empty();
        let families: &[&str] = if is_for_all {
            &[" src 0.0.0.0/0", " src ::/0"]
        } else {
            &[""]
        };
        if !rate.is_empty() && flags.len() > 1 {
            return Err("limit: one rate for a rule that becomes several lines".to_owned());
        }
        let with = match action {
            Action::Reject(answer) => answer
                .name()
                .map_or_else(String::new, |name| format!(" with {name}")),
            _ => String::new(),
        };
        let line = |family: &str, flags: &String| {
            format!(
                "{}{with}{family}{of_packet}{flags}{of_frame}{rate}",
                action.word()
            )
        };
        Ok(families
            .iter()
            .flat_map(|family| flags.iter().map(move |flags| line(family, flags)))
            .collect())
    }

    /// Words for the family and the addresses.
    fn address_words(&self) -> Vec<String> {
        let Some(family) = self.family() else {
            return Vec::new();
        };
        let words = |field, end: &str, name: &Option<String>| {
            let ranges = self.get(field)?;
            let list = || listed(ranges.iter().map(|range| address_text(family, range)));
            Some(format!(
                "{end} {}",
                name.as_ref().map_or_else(list, |name| format!("${name}"))
            ))
        };
        let ends = [
            words(Field::Src, "src", &self.names[0]),
            words(Field::Dst, "dst", &self.names[1]),
        ];
        let ends: Vec<String> = ends.into_iter().flatten().collect();
        let all = if family == 4 {
            "src 0.0.0.0/0"
        } else {
            "src ::/0"
        };
        if ends.is_empty() {
            vec![all.to_owned()]
        } else {
            ends
        }
    }

    /// Words for headers that few rules name. **Errors**: the reason for which there are none.
    fn header_words(&self, is_deny: bool) -> Result<Vec<String>, String> {
        let mut all = Vec::new();
        if let Some(later) = self
            .get(Field::Later)
            .filter(|later| !later.others(1).is_empty())
        {
            match later.contains(1) {
                true => all.push("fragment".to_owned()),
                false => {
                    return Err(
                        "ip frag-off: weir has no condition for all but later fragments".to_owned(),
                    );
                }
            }
        }
        if let Some(kinds) = self.get(Field::Extensions) {
            all.extend(words::extensions(kinds, is_deny)?);
        }
        if let Some(types) = self.get(Field::Routing) {
            if types.contains(NO_ROUTING) {
                return Err(
                    "rt type: weir has no condition for packets without a routing header"
                        .to_owned(),
                );
            }
            all.push(format!("routing {}", listed(types.iter().map(range_text))));
        }
        if let Some(sizes) = self.get(Field::SegmentSize) {
            if sizes.contains(NO_SEGMENT_SIZE) {
                return Err(
                    "tcp option maxseg: weir has no condition for headers without it".to_owned(),
                );
            }
            all.push(format!("mss {}", listed(sizes.iter().map(range_text))));
        }
        if let Some(hours) = self.get(Field::Hour) {
            all.push(format!("hour {}", listed(hours.iter().map(words::hours))));
        }
        Ok(all)
    }

    /// Words for interfaces and for the header of the frame. **Errors**: the reason for which there are none.
    fn frame_words(&self) -> Result<String, String> {
        let mut all = String::new();
        for (field, word) in [(Field::Arrival, "on"), (Field::Departure, "to")] {
            if let Some(names) = self.get(field) {
                let names = interfaces::words(names);
                let names = names
                    .ok_or("iifname, oifname: weir has no words for what is left of the names")?;
                all += &format!(" {word} {names}");
            }
        }
        let ends = [(Field::EtherSrc, "src"), (Field::EtherDst, "dst")];
        let ends = ends
            .into_iter()
            .filter_map(|(field, end)| Some(words::ethers(end, self.get(field)?)));
        let ends: Vec<String> = ends.collect::<Result<_, _>>()?;
        match &ends[..] {
            [] => {}
            [one] => all += &format!(" expr '{one}'"),
            both => all += &format!(" expr '({})'", both.join(") and (")),
        }
        Ok(all)
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

/// Words for the states of connections. **Errors**: the reason for which there are none.
fn state_words(states: &Ranges, is_deny: bool) -> Result<String, String> {
    // What netfilter takes up in the middle is new there, and invalid here: denied with the new ones, and passed with neither.
    let has = |state| match (state == INVALID, is_deny) {
        (true, true) => states.contains(INVALID) || states.contains(NEW),
        (true, false) => states.contains(INVALID) && states.contains(NEW),
        (false, _) => states.contains(state),
    };
    let names: Vec<String> = (0..)
        .zip(STATES)
        .filter(|(state, _)| has(*state))
        .map(|(_, name)| name.to_owned())
        .collect();
    match names.is_empty() {
        true => Err(
            "ct state invalid: what passes by it would be more here than in the kernel".to_owned(),
        ),
        false => Ok(format!("state {}", listed(names.into_iter()))),
    }
}

pub(super) fn listed(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(",")
}

pub(super) fn range_text((first, last): (u128, u128)) -> String {
    if first == last {
        first.to_string()
    } else {
        format!("{first}-{last}")
    }
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
        true => format!(
            "{}/{}",
            text(first),
            width - (u128::BITS - differ.leading_zeros())
        ),
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
    let all: Vec<String> = protocols
        .iter()
        .flat_map(|(first, last)| first..=last)
        .map(name)
        .collect();
    match &all[..] {
        [one] if !one.starts_with(|first: char| first.is_ascii_digit()) => one.clone(),
        all => format!("proto {}", all.join(",")),
    }
}

fn flags_text((set, mask): (u8, u8)) -> String {
    let letters = |bits: u8| {
        "FSRPAUEW"
            .chars()
            .enumerate()
            .filter(move |(bit, _)| bits >> bit & 1 == 1)
    };
    let letters = |bits: u8| letters(bits).map(|(_, letter)| letter).collect::<String>();
    if mask == 0 {
        String::new()
    } else {
        format!(" flags {}/{}", letters(set), letters(mask))
    }
}
