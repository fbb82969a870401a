//! Matches: the expression on the left says which field, that on the right which values.

use super::conditions::{AUTHENTICATION, Conditions, Field, ICMP, ICMP6, MOST_ETHER, STATES, TCP};
use super::ranges::Ranges;
use super::{interfaces, words};
use crate::rules::{DAY_S, second_of_day};
use core::net::{Ipv4Addr, Ipv6Addr};
use serde_json::Value;
use std::cell::OnceCell;
use std::collections::{BTreeSet, HashMap};
use weir_packet::flow::extensions;

/// Meaning of the values of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    V4,
    V6,
    Port,
    Protocol,
    Family,
    Interface,
    State,
    Flags,
    IcmpType,
    Icmp6Type,
    IcmpCode,
    Icmp6Code,
    /// Offset of a fragment, of which only is asked whether it is 0.
    Offset,
    /// Whether an extension header of the kind of this bit is there.
    Extension(u8),
    Byte,
    Hour,
    Ether,
}

/// Field on the left of a match.
struct Left {
    field: Field,
    kind: Kind,
    /// Values of other fields without which there is no such field.
    implied: Vec<(Field, u8)>,
    is_bare_port: bool,
    /// Mask that is laid over the field.
    mask: Option<u8>,
}

const STATUS: &str =
    "# weir changes no addresses, so that no packet has the connection status snat or dnat.";
const HOURS: &str = "# Hours are UTC, as TZ=UTC nft -j list ruleset prints them.";

/// A named set.
pub(super) struct Set<'a> {
    value: &'a Value,
    /// Name in the rule list, if it can have one there.
    pub name: Option<String>,
    ranges: OnceCell<Ranges>,
}

impl<'a> Set<'a> {
    pub fn new(value: &'a Value, name: Option<String>) -> Self {
        Self {
            value,
            name,
            ranges: OnceCell::new(),
        }
    }
}

/// Names that matches refer to.
#[derive(Default)]
pub(super) struct Names<'a> {
    /// Named sets by family, table and name.
    pub sets: HashMap<(&'a str, &'a str, &'a str), Set<'a>>,
    /// Lines about what matches that were translated take for granted.
    pub notes: BTreeSet<&'static str>,
    /// Table of the rule: its family and name.
    pub table: (&'a str, &'a str),
    /// Whether a match in front in the same rule says which version of IP it is.
    pub is_family_known: bool,
}

/// Words for an expression that is not translated.
pub(super) fn called(expression: &Value) -> String {
    let Some((kind, value)) = expression
        .as_object()
        .and_then(|object| object.iter().next())
    else {
        return short(expression);
    };
    let text = |key: &str| value.get(key).and_then(Value::as_str);
    match (
        kind.as_str(),
        text("protocol"),
        text("name"),
        text("field"),
        text("key"),
    ) {
        ("payload", Some(protocol), _, Some(field), _) => format!("{protocol} {field}"),
        ("payload", ..) => "raw payload".to_owned(),
        ("concat", ..) => "concatenation".to_owned(),
        (kind @ ("exthdr" | "tcp option" | "ip option"), _, Some(name), ..) => {
            format!("{kind} {name}")
        }
        (kind, .., Some(key)) => format!("{kind} {key}"),
        ("&" | "|" | "^" | "<<" | ">>", ..) => {
            value.get(0).map_or_else(|| kind.clone(), called) + " under a mask"
        }
        (kind, ..) => kind.to_owned(),
    }
}

/// Whether elements of a set expire, or rules add some.
fn comes_and_goes(set: &Value) -> bool {
    let flags = set.get("flags").and_then(Value::as_array);
    let changes = |flag: &Value| matches!(flag.as_str(), Some("timeout" | "dynamic"));
    set.get("timeout").is_some() || flags.is_some_and(|flags| flags.iter().any(changes))
}

/// Text of a value, cut where it is long.
fn short(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text,
    }
}

fn left(expression: &Value) -> Option<Left> {
    let text = |kind: &str, key: &str| expression.get(kind)?.get(key)?.as_str();
    let plain = |field, kind, implied: &[(Field, u8)]| {
        Some(Left {
            field,
            kind,
            implied: implied.to_vec(),
            is_bare_port: false,
            mask: None,
        })
    };
    if let (Some(protocol), Some(field)) = (text("payload", "protocol"), text("payload", "field")) {
        let (v4, v6) = ([(Field::Family, 4)], [(Field::Family, 6)]);
        let icmp = [(Field::Family, 4), (Field::Protocol, ICMP)];
        let icmp6 = [(Field::Family, 6), (Field::Protocol, ICMP6)];
        let number = ["tcp", "udp", "sctp", "dccp", "udplite", "th"]
            .iter()
            .position(|name| *name == protocol);
        let number = number.and_then(|place| [TCP, 17, 132, 33, 136].get(place).copied());
        let ports: Vec<(Field, u8)> = number
            .map(|number| (Field::Protocol, number))
            .into_iter()
            .collect();
        let port = |field| {
            plain(field, Kind::Port, &ports).map(|left| Left {
                is_bare_port: number.is_none(),
                ..left
            })
        };
        return match (protocol, field) {
            ("ip", "saddr") => plain(Field::Src, Kind::V4, &v4),
            ("ip", "daddr") => plain(Field::Dst, Kind::V4, &v4),
            ("ip", "protocol") => plain(Field::Protocol, Kind::Protocol, &v4),
            ("ip6", "saddr") => plain(Field::Src, Kind::V6, &v6),
            ("ip6", "daddr") => plain(Field::Dst, Kind::V6, &v6),
            ("tcp", "flags") => plain(Field::Flags, Kind::Flags, &ports),
            ("icmp", "type") => plain(Field::Icmp, Kind::IcmpType, &icmp),
            ("icmp", "code") => plain(Field::Icmp, Kind::IcmpCode, &icmp),
            ("icmpv6", "type") => plain(Field::Icmp6, Kind::Icmp6Type, &icmp6),
            ("icmpv6", "code") => plain(Field::Icmp6, Kind::Icmp6Code, &icmp6),
            ("ether", "saddr") => plain(Field::EtherSrc, Kind::Ether, &[]),
            ("ether", "daddr") => plain(Field::EtherDst, Kind::Ether, &[]),
            ("tcp" | "udp" | "sctp" | "dccp" | "udplite" | "th", "sport") => port(Field::Sport),
            ("tcp" | "udp" | "sctp" | "dccp" | "udplite" | "th", "dport") => port(Field::Dport),
            _ => None,
        };
    }
    if let Some(name) = text("exthdr", "name") {
        let kind = match (name, text("exthdr", "field")) {
            ("rt", Some("type")) => {
                return plain(Field::Routing, Kind::Byte, &[(Field::Family, 6)]);
            }
            ("hbh", None) => extensions::HOP_BY_HOP,
            ("rt", None) => extensions::ROUTING,
            ("frag", None) => extensions::FRAGMENT,
            ("dst", None) => extensions::DESTINATION,
            _ => return None,
        };
        return plain(
            Field::Extensions,
            Kind::Extension(kind),
            &[(Field::Family, 6)],
        );
    }
    if (text("tcp option", "name"), text("tcp option", "field")) == (Some("maxseg"), Some("size")) {
        return plain(Field::SegmentSize, Kind::Port, &[(Field::Protocol, TCP)]);
    }
    match (text("meta", "key"), text("ct", "key")) {
        (Some("l4proto"), _) => plain(Field::Protocol, Kind::Protocol, &[]),
        (Some("nfproto" | "protocol"), _) => plain(Field::Family, Kind::Family, &[]),
        (Some("iifname" | "iif"), _) => plain(Field::Arrival, Kind::Interface, &[]),
        (Some("oifname" | "oif"), _) => plain(Field::Departure, Kind::Interface, &[]),
        (Some("hour"), _) => plain(Field::Hour, Kind::Hour, &[]),
        (_, Some("state")) if expression.get("ct")?.as_object()?.len() == 1 => {
            plain(Field::State, Kind::State, &[])
        }
        _ => {
            let [inside, mask] = &expression.get("&")?.as_array()?[..] else {
                return None;
            };
            if is_offset(inside) && mask.as_u64() == Some(0x1fff) {
                return plain(Field::Later, Kind::Offset, &[(Field::Family, 4)]);
            }
            let inside =
                left(inside).filter(|left| left.kind == Kind::Flags && left.mask.is_none())?;
            Some(Left {
                mask: Some(flags(mask)?),
                ..inside
            })
        }
    }
}

/// Whether the expression is the word of IPv4 with the offset of a fragment, in its 13 lower bits: RFC 791, section 3.1.
fn is_offset(expression: &Value) -> bool {
    let payload = |key: &str| expression.get("payload")?.get(key)?.as_str();
    payload("protocol") == Some("ip") && payload("field") == Some("frag-off")
}

/// Whether the expression is the status of the connection.
fn is_status(expression: &Value) -> bool {
    let ct = expression.get("ct").and_then(Value::as_object);
    ct.is_some_and(|ct| ct.len() == 1 && ct.get("key").and_then(Value::as_str) == Some("status"))
}

/// Reads a byte of TCP flags: a name, a number, or several of them.
fn flags(value: &Value) -> Option<u8> {
    const NAMES: [&str; 8] = ["fin", "syn", "rst", "psh", "ack", "urg", "ecn", "cwr"];
    match value {
        Value::String(name) => NAMES
            .iter()
            .position(|known| known == name)
            .map(|bit| 1 << bit),
        Value::Number(number) => u8::try_from(number.as_u64()?).ok(),
        Value::Array(all) => all.iter().try_fold(0, |bits, one| Some(bits | flags(one)?)),
        Value::Object(_) => flags(value.get("|").filter(|all| all.is_array())?),
        _ => None,
    }
}

const ICMP_TYPES: [(&str, u8); 15] = [
    ("echo-reply", 0),
    ("destination-unreachable", 3),
    ("source-quench", 4),
    ("redirect", 5),
    ("echo-request", 8),
    ("router-advertisement", 9),
    ("router-solicitation", 10),
    ("time-exceeded", 11),
    ("parameter-problem", 12),
    ("timestamp-request", 13),
    ("timestamp-reply", 14),
    ("info-request", 15),
    ("info-reply", 16),
    ("address-mask-request", 17),
    ("address-mask-reply", 18),
];

const ICMP6_TYPES: [(&str, u8); 20] = [
    ("destination-unreachable", 1),
    ("packet-too-big", 2),
    ("time-exceeded", 3),
    ("parameter-problem", 4),
    ("echo-request", 128),
    ("echo-reply", 129),
    ("mld-listener-query", 130),
    ("mld-listener-report", 131),
    ("mld-listener-done", 132),
    ("mld-listener-reduction", 132),
    ("nd-router-solicit", 133),
    ("nd-router-advert", 134),
    ("nd-neighbor-solicit", 135),
    ("nd-neighbor-advert", 136),
    ("nd-redirect", 137),
    ("router-renumbering", 138),
    ("ind-neighbor-solicit", 141),
    ("ind-neighbor-advert", 142),
    ("mld2-listener-report", 143),
    ("certification-path-solicitation", 148),
];

const ICMP_CODES: [(&str, u8); 8] = [
    ("net-unreachable", 0),
    ("host-unreachable", 1),
    ("prot-unreachable", 2),
    ("port-unreachable", 3),
    ("frag-needed", 4),
    ("net-prohibited", 9),
    ("host-prohibited", 10),
    ("admin-prohibited", 13),
];

const ICMP6_CODES: [(&str, u8); 6] = [
    ("no-route", 0),
    ("admin-prohibited", 1),
    ("addr-unreachable", 3),
    ("port-unreachable", 4),
    ("policy-fail", 5),
    ("reject-route", 6),
];

/// Reads an address of Ethernet.
fn ether(text: &str) -> Option<u128> {
    let bytes: Vec<&str> = text.split(':').collect();
    let byte = |text: &&str| {
        u8::from_str_radix(text, 16)
            .ok()
            .filter(|_| text.len() == 2 && !text.starts_with('+'))
    };
    let bytes: Vec<u8> = bytes.iter().map(byte).collect::<Option<_>>()?;
    (bytes.len() == 6).then(|| {
        bytes
            .iter()
            .fold(0, |bits, byte| bits << 8 | u128::from(*byte))
    })
}

/// Restricts conditions by a match on the status of the connection. Weir translates no addresses, so that no connection has the status snat or
/// dnat. Where there is no connection, Linux passes over the rule. **Errors**: another status.
fn restrict_by_status(
    conditions: &mut Conditions,
    operator: &str,
    right: &Value,
) -> Result<(), String> {
    let names = match right.get("set").unwrap_or(right) {
        Value::Array(names) => names.iter().map(Value::as_str).collect(),
        one => vec![one.as_str()],
    };
    let is_translation = !names.is_empty()
        && names
            .iter()
            .all(|name| matches!(name, Some("snat" | "dnat")));
    let none = Ranges::new(Vec::new());
    let with_connection = Ranges::new(vec![(0, 2)]);
    match operator {
        "in" | "==" if is_translation => conditions.restrict(Field::Family, &none),
        "!" | "!=" if is_translation => conditions.restrict(Field::State, &with_connection),
        _ => {
            return Err(
                "ct status: weir knows of snat and dnat alone, which no packet has".to_owned(),
            );
        }
    }
    Ok(())
}

/// Protocols by the names that /etc/protocols gives them.
const PROTOCOLS: [(&str, u8); 20] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipencap", 4),
    ("ipip", 4),
    ("tcp", TCP),
    ("egp", 8),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("ah", AUTHENTICATION),
    ("ipv6-icmp", 58),
    ("icmpv6", 58),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("l2tp", 115),
    ("sctp", 132),
    ("udplite", 136),
];

impl<'a> Names<'a> {
    /// Reads one value as a number.
    fn number(&mut self, kind: Kind, value: &Value) -> Option<u128> {
        let named = |table: &[(&str, u8)], name: &str| {
            table
                .iter()
                .find(|(known, _)| *known == name)
                .map(|(_, number)| u128::from(*number))
        };
        let number = |most: u64| {
            value
                .as_u64()
                .filter(|number| *number <= most)
                .map(u128::from)
        };
        let text = value.as_str();
        match (kind, text) {
            (Kind::Flags, _) => flags(value).map(u128::from),
            (Kind::V4, Some(text)) => text
                .parse::<Ipv4Addr>()
                .ok()
                .map(|address| u128::from(address.to_bits())),
            (Kind::V6, Some(text)) => text.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
            (Kind::Protocol, Some(name)) => named(&PROTOCOLS, name),
            (Kind::IcmpType, Some(name)) => named(&ICMP_TYPES, name),
            (Kind::Icmp6Type, Some(name)) => named(&ICMP6_TYPES, name),
            (Kind::IcmpCode, Some(name)) => named(&ICMP_CODES, name),
            (Kind::Icmp6Code, Some(name)) => named(&ICMP6_CODES, name),
            (Kind::Hour, Some(text)) => second_of_day(text).map(u128::from),
            (Kind::Ether, Some(text)) => ether(text),
            (Kind::Family, Some(name)) => {
                named(&[("ipv4", 4), ("ip", 4), ("ipv6", 6), ("ip6", 6)], name)
            }
            (Kind::State, Some(name)) => (0..)
                .zip(STATES)
                .find(|(_, known)| *known == name)
                .map(|(place, _)| place),
            (Kind::Port, None) => number(u16::MAX.into()),
            (Kind::Offset, None) => number(0),
            (Kind::Protocol | Kind::IcmpType | Kind::Icmp6Type, None) => number(u8::MAX.into()),
            (Kind::IcmpCode | Kind::Icmp6Code | Kind::Byte, None) => number(u8::MAX.into()),
            (Kind::Extension(_), None) => value.as_bool().map(u128::from),
            _ => None,
        }
    }

    /// Reads the values on the right side.
    fn values(&mut self, kind: Kind, value: &Value) -> Result<Ranges, String> {
        if let Some(name) = value.as_str().and_then(|text| text.strip_prefix('@')) {
            return self.set(kind, name);
        }
        let mut ranges = Vec::new();
        self.add_values(kind, value, &mut ranges)?;
        Ok(Ranges::new(ranges))
    }

    fn add_values(
        &mut self,
        kind: Kind,
        value: &Value,
        ranges: &mut Vec<(u128, u128)>,
    ) -> Result<(), String> {
        let strange = || format!("{} is not a value that weir knows here", short(value));
        let inside = |key: &str| value.get(key);
        let elements = value
            .as_array()
            .filter(|_| kind != Kind::Flags)
            .or_else(|| inside("set")?.as_array());
        if let Some(elements) = elements {
            return elements
                .iter()
                .try_for_each(|element| self.add_values(kind, element, ranges));
        }
        if let Some(element) = inside("elem") {
            if element.get("timeout").is_some() || element.get("expires").is_some() {
                return Err("an element that expires".to_owned());
            }
            return self.add_values(kind, element.get("val").ok_or_else(strange)?, ranges);
        }
        let width = if kind == Kind::V4 { 32 } else { 128 };
        let range = if let Some(prefix) =
            inside("prefix").filter(|_| matches!(kind, Kind::V4 | Kind::V6))
        {
            let address = prefix
                .get("addr")
                .and_then(|address| self.number(kind, address))
                .ok_or_else(strange)?;
            let len = prefix
                .get("len")
                .and_then(Value::as_u64)
                .filter(|len| *len <= width)
                .ok_or_else(strange)?;
            let behind = u128::MAX
                .checked_shr(128 - (width - len) as u32)
                .unwrap_or(0);
            Some((address & !behind, address | behind))
        } else if let Some([first, last]) =
            inside("range").and_then(Value::as_array).map(Vec::as_slice)
            && !matches!(
                kind,
                Kind::Interface | Kind::State | Kind::Flags | Kind::Extension(_)
            )
        {
            self.number(kind, first)
                .zip(self.number(kind, last))
                .filter(|(first, last)| first <= last)
        } else if kind == Kind::Interface {
            value.as_str().and_then(interfaces::numbers)
        } else {
            self.number(kind, value).map(|number| (number, number))
        };
        ranges.push(range.ok_or_else(strange)?);
        Ok(())
    }

    /// Reads a named set of the rule's table.
    fn set(&mut self, kind: Kind, name: &str) -> Result<Ranges, String> {
        let key = (self.table.0, self.table.1, name);
        let set = self
            .sets
            .get(&key)
            .ok_or_else(|| format!("no set @{name} in the table"))?;
        let value = set.value;
        if comes_and_goes(value) {
            return Err(format!("@{name} is a set whose elements come and go"));
        }
        let kind_in_list = match kind {
            Kind::V4 => "ipv4_addr",
            Kind::V6 => "ipv6_addr",
            Kind::Port => "inet_service",
            Kind::Protocol => "inet_proto",
            Kind::Interface => "ifname",
            Kind::Ether => "ether_addr",
            _ => {
                return Err(format!(
                    "@{name} is a set of values that weir takes from no set"
                ));
            }
        };
        if value.get("type").and_then(Value::as_str) != Some(kind_in_list) {
            return Err(format!(
                "@{name} is a set of another type than {kind_in_list}"
            ));
        }
        if let Some(ranges) = set.ranges.get() {
            return Ok(ranges.clone());
        }
        let ranges = match value.get("elem") {
            // nft prints elements; a name, perhaps its own, would be looked up for ever.
            Some(Value::String(text)) if text.starts_with('@') => {
                return Err(format!("@{name}: the elements are another set, {text}"));
            }
            Some(elements) => self
                .values(kind, elements)
                .map_err(|why| format!("@{name}: {why}"))?,
            None => Ranges::new(Vec::new()),
        };
        if let Some(set) = self.sets.get(&key) {
            let _ = set.ranges.set(ranges.clone());
        }
        Ok(ranges)
    }

    /// Returns what a match leaves of conditions, in one part for each element if it is about several fields together. **Errors**: its name, and
    /// the reason for which it is not translated.
    pub fn parts(
        &mut self,
        conditions: &Conditions,
        expression: &Value,
        operator: &str,
        right: &Value,
    ) -> Result<Vec<Conditions>, String> {
        let one = |names: &mut Self, expression: &Value, right: &Value| {
            let mut part = conditions.clone();
            names
                .restrict(&mut part, expression, operator, right)
                .map(|()| part)
        };
        if expression.get("concat").is_none() {
            return one(self, expression, right).map(|part| vec![part]);
        }
        if operator != "==" {
            return Err(format!(
                "concatenation: the comparison {operator} is not translated"
            ));
        }
        let elements = match right.as_str().and_then(|text| text.strip_prefix('@')) {
            Some(name) => self
                .elements(name)
                .map_err(|why| format!("concatenation: {why}"))?,
            None => right
                .get("set")
                .and_then(Value::as_array)
                .cloned()
                .unwrap_or_else(|| vec![right.clone()]),
        };
        let mut parts: Vec<Conditions> = Vec::new();
        for element in &elements {
            let part = one(self, expression, element)?;
            match parts
                .last_mut()
                .and_then(|last| Some((last.joined(&part)?, last)))
            {
                Some((both, last)) => *last = both,
                None => parts.push(part),
            }
        }
        Ok(parts)
    }

    /// Whether a match on this expression says which version of IP it is.
    pub fn says_family(expression: &Value) -> bool {
        match expression.get("concat").and_then(Value::as_array) {
            Some(fields) => fields.iter().any(Self::says_family),
            None => left(expression).is_some_and(|left| {
                left.field == Field::Family
                    || left
                        .implied
                        .iter()
                        .any(|(field, _)| *field == Field::Family)
            }),
        }
    }

    /// Elements of a named set of concatenations.
    fn elements(&self, name: &str) -> Result<Vec<Value>, String> {
        let (family, table) = self.table;
        let set = self
            .sets
            .get(&(family, table, name))
            .ok_or_else(|| format!("no set @{name} in the table"))?;
        if comes_and_goes(set.value) {
            return Err(format!("@{name} is a set whose elements come and go"));
        }
        Ok(set
            .value
            .get("elem")
            .and_then(Value::as_array)
            .cloned()
            .unwrap_or_default())
    }

    /// Restricts conditions by each field of a concatenation.
    fn restrict_each(
        &mut self,
        conditions: &mut Conditions,
        fields: &[Value],
        right: &Value,
    ) -> Result<(), String> {
        let right = right.get("elem").map_or(Ok(right), |element| {
            match element.get("timeout").or(element.get("expires")) {
                Some(_) => Err("concatenation: an element that expires".to_owned()),
                None => Ok(element.get("val").unwrap_or(right)),
            }
        })?;
        let values = right
            .get("concat")
            .and_then(Value::as_array)
            .filter(|values| values.len() == fields.len());
        let values = values.ok_or_else(|| {
            format!(
                "concatenation: {} is not a value that weir knows here",
                short(right)
            )
        })?;
        fields
            .iter()
            .zip(values)
            .try_for_each(|(field, value)| self.restrict(conditions, field, "==", value))
    }

    /// Restricts conditions by a match. **Errors**: its name, and the reason for which it is not translated.
    pub fn restrict(
        &mut self,
        conditions: &mut Conditions,
        expression: &Value,
        operator: &str,
        right: &Value,
    ) -> Result<(), String> {
        if let Some(fields) = expression.get("concat").and_then(Value::as_array) {
            return self.restrict_each(conditions, fields, right);
        }
        if is_status(expression) {
            self.notes.insert(STATUS);
            return restrict_by_status(conditions, operator, right);
        }
        let Some(left) = left(expression) else {
            return Err(format!(
                "{}: weir has no such condition",
                called(expression)
            ));
        };
        let named = |why: String| format!("{}: {why}", called(expression));
        let Left {
            field,
            kind,
            implied,
            is_bare_port,
            mask,
        } = left;
        if field == Field::Hour {
            self.notes.insert(HOURS);
        }
        let ranges = match kind {
            Kind::Flags => self.flag_bytes(operator, mask, right).map_err(named)?,
            Kind::IcmpType | Kind::Icmp6Type => {
                let types = self.compared(kind, operator, right).map_err(named)?;
                Ranges::new(
                    types
                        .iter()
                        .map(|(first, last)| (first << 8, last << 8 | 255))
                        .collect(),
                )
            }
            Kind::IcmpCode | Kind::Icmp6Code => {
                let codes = self.compared(kind, operator, right).map_err(named)?;
                let of_type = |kind: u128| {
                    codes
                        .iter()
                        .map(move |(first, last)| (kind << 8 | first, kind << 8 | last))
                };
                Ranges::new((0..=u128::from(u8::MAX)).flat_map(of_type).collect())
            }
            Kind::Extension(bit) => {
                let values = self.compared(kind, operator, right).map_err(named)?;
                let is_in = |byte: u8| values.contains(u128::from(byte & bit != 0));
                Ranges::of_bytes(is_in).and(&Ranges::new(vec![(0, words::ALL_EXTENSIONS)]))
            }
            _ => self.compared(kind, operator, right).map_err(named)?,
        };
        let is_named =
            field == Field::Protocol && operator != "!=" && ranges.contains(AUTHENTICATION.into());
        if is_named {
            return Err(named(
                "weir looks behind authentication headers (ah)".to_owned(),
            ));
        }
        // If the rule itself or its table says the version, nft asks for no other, and Linux reads
        // the numbers 1 after IPv6, and 58 after IPv4, as ICMP. Else nft asks for the version
        // first, and no packet of the other matches.
        let family = if field == Field::Icmp6 { 6 } else { 4 };
        let is_said = self.is_family_known || self.table.0 != "inet";
        if matches!(field, Field::Icmp | Field::Icmp6)
            && is_said
            && !conditions.may_be(Field::Family, family)
        {
            return Err(named(
                "a type of ICMP for the other version of IP".to_owned(),
            ));
        }
        for (field, value) in implied {
            conditions.restrict(field, &Ranges::of(value.into()));
        }
        if is_bare_port {
            conditions.name_bare_ports();
        }
        let set = right
            .as_str()
            .and_then(|text| text.strip_prefix('@'))
            .filter(|_| operator == "==");
        let set = set.and_then(|name| {
            self.sets
                .get(&(self.table.0, self.table.1, name))?
                .name
                .clone()
        });
        match set.filter(|_| matches!(field, Field::Src | Field::Dst) && !ranges.is_empty()) {
            Some(name) => conditions.restrict_to_set(field, &ranges, name),
            None => conditions.restrict(field, &ranges),
        }
        Ok(())
    }

    /// Values for which a comparison holds.
    fn compared(&mut self, kind: Kind, operator: &str, right: &Value) -> Result<Ranges, String> {
        let most = match kind {
            Kind::V4 => u32::MAX.into(),
            Kind::V6 => u128::MAX,
            Kind::Port => u16::MAX.into(),
            Kind::State => STATES.len() as u128 - 1,
            Kind::Interface => interfaces::MOST,
            Kind::Offset | Kind::Extension(_) => 1,
            Kind::Hour => u128::from(DAY_S) - 1,
            Kind::Ether => MOST_ETHER,
            _ => u8::MAX.into(),
        };
        let has_order = !matches!(
            kind,
            Kind::Family
                | Kind::Interface
                | Kind::State
                | Kind::Flags
                | Kind::Offset
                | Kind::Extension(_)
        );
        let values = self.values(kind, right)?;
        let number = values
            .iter()
            .next()
            .map(|(first, _)| first)
            .filter(|_| !right.is_array() && has_order);
        match (operator, number) {
            ("==", _) => Ok(values),
            ("in", _) if kind == Kind::State => Ok(values),
            ("!=", _) if kind != Kind::Flags => Ok(values.others(most)),
            ("<", Some(number)) => {
                Ok(Ranges::new(vec![(0, number)]).and(&Ranges::of(number).others(most)))
            }
            ("<=", Some(number)) => Ok(Ranges::new(vec![(0, number)])),
            (">", Some(number)) => Ok(Ranges::new(vec![(0, number)]).others(most)),
            (">=", Some(number)) => Ok(Ranges::new(vec![(number, most)])),
            _ => Err(format!("the comparison {operator} is not translated")),
        }
    }

    /// Bytes of TCP flags for which a comparison holds.
    fn flag_bytes(
        &mut self,
        operator: &str,
        mask: Option<u8>,
        right: &Value,
    ) -> Result<Ranges, String> {
        let values = self.values(Kind::Flags, right)?;
        let value = values.iter().next().map_or(0, |(first, _)| first as u8);
        let is_in = |byte: u8| values.contains((byte & mask.unwrap_or(u8::MAX)).into());
        match operator {
            "==" => Ok(Ranges::of_bytes(is_in)),
            "!=" => Ok(Ranges::of_bytes(|byte| !is_in(byte))),
            "in" if mask.is_none() && right.get("set").is_none() => {
                Ok(Ranges::of_bytes(|byte| byte & value != 0))
            }
            "!" if mask.is_none() && right.get("set").is_none() => {
                Ok(Ranges::of_bytes(|byte| byte & value == 0))
            }
            _ => Err(format!("the comparison {operator} is not translated")),
        }
    }
}
