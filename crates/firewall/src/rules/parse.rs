//! From text to rules.

use super::values::{
    burst, elements, flags, hours, ports, protocols, range, rate, routing_types, segment_sizes,
    states, time, types, vlan,
};
use super::{Action, Answer, Interfaces, ReadSet, Rule, RuleError, RuleList, Side};
use crate::fields::PORT_PROTOCOLS;
use crate::{Addresses, Verdict};
use core::fmt;
use std::collections::HashMap;
use std::io;
use std::sync::Arc;
use weir_packet::addresses::{AddressError, LineError};
use weir_packet::flow::extensions;
use weir_packet::suggestions::did_you_mean;

/// Largest number of rules in a list. Address sets have no such limit.
pub const MOST_RULES: usize = 100_000;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const ICMP6: u8 = 58;

/// Protocols that may be named. **Source**: the protocol numbers of IANA.
pub(super) const PROTOCOLS: [(&str, u8); 16] = [
    ("icmp", 1),
    ("igmp", 2),
    ("ipip", 4),
    ("tcp", TCP),
    ("udp", 17),
    ("dccp", 33),
    ("ipv6", 41),
    ("gre", 47),
    ("esp", 50),
    ("icmp6", 58),
    ("eigrp", 88),
    ("ospf", 89),
    ("pim", 103),
    ("vrrp", 112),
    ("sctp", 132),
    ("udplite", 136),
];

/// Words that conditions begin with.
const CONDITIONS: [&str; 19] = [
    "src",
    "dst",
    "proto",
    "sport",
    "dport",
    "flags",
    "type",
    "mss",
    "fragment",
    "extension",
    "routing",
    "vlan",
    "on",
    "to",
    "expr",
    "state",
    "limit",
    "over",
    "hour",
];

/// Words that lines begin with.
const LINES: [&str; 9] = [
    "pass",
    "drop",
    "reject",
    "count",
    "set",
    "default",
    "non-ip",
    "neighbors",
    "malformed",
];

/// The condition that was meant, among them words of tcpdump and nftables.
fn near(word: &str) -> String {
    match word {
        "port" => " (did you mean sport or dport?)".to_owned(),
        "from" | "saddr" => " (did you mean src?)".to_owned(),
        "daddr" => " (did you mean dst?)".to_owned(),
        "iif" | "iifname" => " (did you mean on?)".to_owned(),
        "oif" | "oifname" => " (did you mean to?)".to_owned(),
        "accept" | "allow" | "drop" | "pass" | "reject" => {
            " (the action comes first: pass, drop or reject)".to_owned()
        }
        word => {
            let protocols = PROTOCOLS.iter().map(|(name, _)| *name);
            did_you_mean(word, CONDITIONS.into_iter().chain(protocols))
        }
    }
}

/// The begin of a line that was meant, among them words of other firewalls.
fn meant(word: &str) -> String {
    match word {
        "allow" | "accept" | "permit" | "ok" => " (did you mean pass?)".to_owned(),
        "deny" | "block" | "ban" | "discard" => " (did you mean drop?)".to_owned(),
        "counter" | "log" => " (did you mean count?)".to_owned(),
        "policy" => " (did you mean default?)".to_owned(),
        word if CONDITIONS.contains(&word) || PROTOCOLS.iter().any(|(name, _)| *name == word) => {
            " (the action comes first: pass, drop or reject)".to_owned()
        }
        word => did_you_mean(word, LINES),
    }
}

/// Reason for which a line is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// The first word begins no line.
    #[error(
        "unknown rule {0:?}{near}: a line begins with pass, drop, reject, count, set, default, non-ip, neighbors or malformed",
        near = meant(.0)
    )]
    NoLine(String),
    /// The word is not a condition.
    #[error(
        "unknown condition {0:?}{near}: src, dst, proto (or its name), sport, dport, flags, type, mss, fragment, extension, routing, vlan, on, to, expr, state, limit, over, hour, for",
        near = near(.0)
    )]
    NoCondition(String),
    /// A condition is twice in a rule.
    #[error("{0} stands twice in this rule: put both values into one list, as in {0} A,B")]
    Twice(String),
    /// The value of a word is missing.
    #[error("{0} needs a value{1}")]
    NoValue(String, &'static str),
    /// A value is not one of a few.
    #[error("{0} is {1}, not {2:?}")]
    NotOneOf(&'static str, &'static str, String),
    /// A line for the rest that is above already.
    #[error("{0} was said in line {1}, and is said once")]
    SecondSetting(&'static str, usize),
    /// Words after the end of a line.
    #[error("{0:?} is too much here")]
    TooMuch(String),
    /// A list has an empty element.
    #[error("a list has an empty element: it is written without blanks, as in 80,443")]
    EmptyElement,
    /// No address, prefix or range.
    #[error("{0:?} is not an address, prefix, range of addresses or $SET{hint}", hint = port_hint(.0))]
    NoAddress(String),
    /// A prefix or a range of addresses that is wrong, or a line of a set's file that is not an
    /// address.
    #[error(transparent)]
    Address(AddressError),
    /// The first end of a range of numbers is above the second.
    #[error("the range {0} is reversed")]
    Reversed(String),
    /// A set without a definition.
    #[error("no set {0:?} is defined above this line")]
    NoSet(String),
    /// A set without addresses.
    #[error("the set {0:?} has no address")]
    EmptySet(String),
    /// A file of a set cannot be read.
    #[error("{file}: {error}")]
    SetFile {
        /// Name of the file.
        file: String,
        /// Error of the system.
        error: io::Error,
    },
    /// No protocol.
    #[error("{0:?} is not a protocol: a number up to 255, or one of {names}", names = names())]
    NoProtocol(String),
    /// No port.
    #[error("{0:?} is not a port: a number up to 65535, or a range of two, as in 80-89")]
    NoPort(String),
    /// No VLAN identifier.
    #[error("{0:?} is not a VLAN identifier: a number up to 4094, a range of two, or none")]
    NoVlan(String),
    /// No interfaces.
    #[error(
        "{0:?} names no interfaces: a * stands at the end of a name, as in eth*, and a ! in front, as in !eth0"
    )]
    NoInterface(String),
    /// No type of messages.
    #[error(
        "{0:?} is not a type of ICMP messages: a number up to 255, or a range of two, as in 128-129; codes stand behind a stroke, as in 3/0-1"
    )]
    NoType(String),
    /// No segment size.
    #[error("{0:?} is not a segment size: a number up to 65535, or a range of two, as in 1-535")]
    NoSegmentSize(String),
    /// No type of routing headers.
    #[error(
        "{0:?} is not a type of routing headers: a number up to 255, or a range of two, as in 0-1"
    )]
    NoRoutingType(String),
    /// No time of day.
    #[error(
        "{0:?} is not a time of day in UTC, as in hour 8:00-17:59:59; behind midnight it goes on as in 22:00-5:59:59"
    )]
    NoHour(String),
    /// No TCP flags.
    #[error("{0:?} are not TCP flags: letters of FSRPAUEW, as in S or S/SA")]
    NoFlags(String),
    /// Flags that must be set, but are not looked at.
    #[error("{0}: the flags before the stroke are among those behind it")]
    FlagsOutsideMask(String),
    /// No rate.
    #[error(
        "{0:?} is not a rate: packets or bytes in a second, minute or hour, as in 100/s, 6/h or 64kB/s"
    )]
    NoRate(String),
    /// No burst.
    #[error("{0:?} is not a number of packets or bytes, as in burst 20")]
    NoBurst(String),
    /// A word about a rate without a rate.
    #[error("{0} stands behind a rate, as in limit 100/s burst 20 per src")]
    WithoutRate(String),
    /// No state.
    #[error("{0:?} is not a state: new, established, related, invalid or untracked")]
    NoState(String),
    /// No time.
    #[error("{0:?} is not a time, as in for 90s, 10m, 2h or 7d")]
    NoTime(String),
    /// Ports with a protocol that has none.
    #[error("ports with protocol {0}, which has none")]
    NoPortsThere(String),
    /// Types of messages without ICMP.
    #[error("type is that of ICMP messages: name icmp, icmp6 or both, as in icmp type 8")]
    TypesWithoutIcmp,
    /// Flags or a segment size with another protocol than TCP.
    #[error("{0} of TCP, but the rule names another protocol")]
    WithoutTcp(&'static str),
    /// Addresses of different families in one rule.
    #[error("no packet matches: the source is IPv{0} and the destination IPv{1}")]
    TwoFamilies(u8, u8),
    /// A quotation without its end.
    #[error("the quotation {0} has no end")]
    OpenQuotation(String),
    /// Too many rules.
    #[error("more than {MOST_RULES} rules: put addresses into a set, and the set into one rule")]
    TooManyRules,
}

fn names() -> String {
    PROTOCOLS.map(|(name, _)| name).join(" ")
}

/// Words of a line, and its comment.
pub(super) struct Words<'a> {
    pub(super) words: std::vec::IntoIter<&'a str>,
    text: &'a str,
    comment: &'a str,
}

impl<'a> Words<'a> {
    /// Splits a line at blanks; a quotation is one word, with its first quote; `#` at the begin of a word begins a comment.
    pub(super) fn of(line: &'a str) -> Result<Self, Why> {
        let (mut words, mut rest) = (Vec::new(), line.trim());
        let text = rest;
        loop {
            rest = rest.trim_start();
            let Some(first) = rest.chars().next() else {
                break;
            };
            match first {
                '#' => {
                    let (text, comment) = (&text[..text.len() - rest.len()], &rest[1..]);
                    return Ok(Self {
                        words: words.into_iter(),
                        text: text.trim_end(),
                        comment: comment.trim(),
                    });
                }
                '\'' | '"' => {
                    let end = rest[1..]
                        .find(first)
                        .ok_or_else(|| Why::OpenQuotation(rest.to_owned()))?;
                    words.push(&rest[..=end]);
                    rest = &rest[end + 2..];
                }
                _ => {
                    let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
                    words.push(&rest[..end]);
                    rest = &rest[end..];
                }
            }
        }
        Ok(Self {
            words: words.into_iter(),
            text,
            comment: "",
        })
    }

    fn value(&mut self, of: &str, such_as: &'static str) -> Result<&'a str, Why> {
        self.words
            .next()
            .ok_or_else(|| Why::NoValue(of.to_owned(), such_as))
    }

    fn end(&mut self) -> Result<(), Why> {
        self.words
            .next()
            .map_or(Ok(()), |word| Err(Why::TooMuch(word.to_owned())))
    }
}

pub(super) fn list(text: &str, read: &mut ReadSet<'_>) -> Result<RuleList, RuleError> {
    let mut parser = Parser {
        list: RuleList::default(),
        settings: Vec::new(),
        sets: HashMap::new(),
        read,
    };
    for (number, line) in text.lines().enumerate() {
        parser.line(line, number + 1)?;
    }
    parser.list.sets = parser.sets.into_iter().collect();
    parser.list.sets.sort_unstable_by(|(a, _), (b, _)| a.cmp(b));
    Ok(parser.list)
}

struct Parser<'a, 'b> {
    list: RuleList,
    /// Names and lines of the lines for the rest.
    settings: Vec<(&'static str, usize)>,
    sets: HashMap<String, Arc<Addresses>>,
    read: &'a mut ReadSet<'b>,
}

/// Words for users of tcpdump, where ports follow `dst port`.
fn port_hint(text: &str) -> &'static str {
    match text {
        "port" | "portrange" => "; ports are written dport 80, or sport 80",
        _ => "",
    }
}

impl Parser<'_, '_> {
    fn line(&mut self, line: &str, number: usize) -> Result<(), RuleError> {
        let refused = |why| RuleError {
            file: None,
            line: number,
            why,
        };
        let mut words = Words::of(line).map_err(refused)?;
        let Some(first) = words.words.next() else {
            return Ok(());
        };
        if first == "set" {
            return self.set(&mut words, number);
        }
        self.verdict_or_rule(first, words, number).map_err(refused)
    }

    fn verdict_or_rule(
        &mut self,
        first: &str,
        mut words: Words<'_>,
        number: usize,
    ) -> Result<(), Why> {
        if let Some(name) = ["default", "non-ip", "malformed", "neighbors"]
            .into_iter()
            .find(|name| *name == first)
        {
            match self.settings.iter().find(|(known, _)| *known == name) {
                Some((_, line)) => return Err(Why::SecondSetting(name, *line)),
                None => self.settings.push((name, number)),
            }
        }
        let verdicts = [
            ("pass", Verdict::Pass),
            ("drop", Verdict::Drop),
            ("reject", Verdict::Reject),
        ];
        let verdict = |word: &str| {
            verdicts
                .iter()
                .find(|(name, _)| *name == word)
                .map(|(_, verdict)| *verdict)
        };
        let action = match first {
            "default" => {
                let value = words.value(first, ": pass, drop or reject")?;
                self.list.default = verdict(value)
                    .ok_or_else(|| not_one_of("default", "pass, drop or reject", value))?;
                return words.end();
            }
            "non-ip" | "malformed" => {
                let value = words.value(first, ": pass or drop")?;
                // No sender waits for an answer.
                let verdict = verdict(value).filter(|verdict| *verdict != Verdict::Reject);
                let (place, name) = match first {
                    "non-ip" => (&mut self.list.non_ip, "non-ip"),
                    _ => (&mut self.list.malformed, "malformed"),
                };
                *place = verdict.ok_or_else(|| not_one_of(name, "pass or drop", value))?;
                return words.end();
            }
            "neighbors" => {
                let value = words.value(first, ": pass or rules")?;
                self.list.neighbors_by_rules = match value {
                    "pass" => false,
                    "rules" => true,
                    _ => return Err(not_one_of("neighbors", "pass or rules", value)),
                };
                return words.end();
            }
            "count" => Action::Count,
            _ => Action::Decide(verdict(first).ok_or_else(|| Why::NoLine(first.to_owned()))?),
        };
        if self.list.rules.len() == MOST_RULES {
            return Err(Why::TooManyRules);
        }
        let rule = self.rule(action, words, number)?;
        self.list.rules.push(rule);
        Ok(())
    }

    fn rule(&mut self, action: Action, mut words: Words<'_>, line: usize) -> Result<Rule, Why> {
        let mut rule = Rule {
            line,
            text: words.text.to_owned(),
            comment: words.comment.to_owned(),
            action,
            answer: Answer::Usual,
            src: None,
            dst: None,
            proto: None,
            sport: None,
            dport: None,
            flags: None,
            types: None,
            mss: None,
            fragment: false,
            extensions: None,
            routing: None,
            vlan: None,
            on: None,
            to: None,
            expression: None,
            rate: None,
            states: None,
            hours: None,
            lasts: None,
        };
        // Conditions seen so far, also those that always hold.
        let mut seen: Vec<&str> = Vec::new();
        while let Some(word) = words.words.next() {
            let bare = PROTOCOLS.iter().find(|(name, _)| *name == word);
            let condition = match word {
                _ if bare.is_some() => "proto",
                // A rule has one rate.
                "over" => "limit",
                word => word,
            };
            if seen.contains(&condition) {
                return Err(Why::Twice(condition.to_owned()));
            }
            seen.push(condition);
            match condition {
                "src" => rule.src = self.addresses(words.value(word, SUCH_ADDRESSES)?)?,
                "dst" => rule.dst = self.addresses(words.value(word, SUCH_ADDRESSES)?)?,
                "proto" => {
                    let value = if bare.is_some() {
                        word
                    } else {
                        words.value(word, ", as in proto tcp")?
                    };
                    rule.proto = Some(protocols(value)?);
                }
                "sport" => {
                    rule.sport = Some(ports(words.value(word, ", as in sport 1024-65535")?)?)
                }
                "dport" => rule.dport = Some(ports(words.value(word, ", as in dport 80,443")?)?),
                "flags" => rule.flags = Some(flags(words.value(word, ", as in flags S/SA")?)?),
                "type" => rule.types = Some(types(words.value(word, ", as in icmp type 8")?)?),
                "mss" => rule.mss = Some(segment_sizes(words.value(word, ", as in mss 1-535")?)?),
                "fragment" => rule.fragment = true,
                "extension" => {
                    rule.extensions = Some(extensions_of(
                        words.value(word, ", as in extension ah,hop")?,
                    )?)
                }
                "routing" => {
                    rule.routing = Some(routing_types(words.value(word, ", as in routing 0")?)?)
                }
                "vlan" => {
                    rule.vlan = Some(vlan(words.value(word, ", as in vlan 7, or vlan none")?)?)
                }
                "on" => {
                    rule.on =
                        Some(self.interfaces(Side::Arrival, words.value(word, ", as in on eth0")?)?)
                }
                "to" => {
                    rule.to = Some(
                        self.interfaces(Side::Departure, words.value(word, ", as in to eth0")?)?,
                    )
                }
                "expr" => {
                    let value = words.value(word, ", as in expr 'udp port 53'")?;
                    rule.expression = Some(place_of(
                        &mut self.list.expressions,
                        value.trim_start_matches(['\'', '"']),
                    ));
                }
                "limit" => {
                    rule.rate = Some(rate(
                        words.value(word, ", as in limit 100/s")?,
                        word == "over",
                    )?)
                }
                "burst" | "per" => {
                    let value = words.value(word, ", as in limit 100/s burst 20 per src")?;
                    let rate = rule
                        .rate
                        .as_mut()
                        .ok_or_else(|| Why::WithoutRate(word.to_owned()))?;
                    match word {
                        "burst" => rate.burst = burst(value, rate.unit)?,
                        _ if value == "src" => rate.is_per_source = true,
                        _ => return Err(not_one_of("per", "src", value)),
                    }
                }
                "state" => {
                    rule.states = Some(states(
                        words.value(word, ", as in state established,related")?,
                    )?)
                }
                "with" if action == Action::Decide(Verdict::Reject) => {
                    let value = words.value(word, ", as in reject with port-unreachable")?;
                    rule.answer = Answer::named(value)
                        .ok_or_else(|| not_one_of("with", Answer::WORDS, value))?;
                }
                "hour" => {
                    rule.hours = Some(hours(words.value(word, ", as in hour 8:00-17:59:59")?)?)
                }
                "for" => rule.lasts = Some(time(words.value(word, ", as in for 10m")?)?),
                _ => return Err(Why::NoCondition(word.to_owned())),
            }
        }
        complete(rule)
    }

    /// Returns the number of a condition on interfaces.
    fn interfaces(&mut self, side: Side, value: &str) -> Result<usize, Why> {
        let interfaces = Interfaces::parse(side, value)?;
        let all = &mut self.list.interfaces;
        Ok(all
            .iter()
            .position(|known| *known == interfaces)
            .unwrap_or_else(|| {
                all.push(interfaces);
                all.len() - 1
            }))
    }

    fn set(&mut self, words: &mut Words<'_>, line: usize) -> Result<(), RuleError> {
        let refused = |why| RuleError {
            file: None,
            line,
            why,
        };
        let name = words
            .value("set", ", as in set banned 192.0.2.0/24")
            .map_err(refused)?
            .trim_start_matches(SET);
        let first = words
            .value(name, ", as in set banned 192.0.2.0/24")
            .map_err(refused)?;
        let mut addresses = if first == "file" {
            let file = words
                .value(first, ", as in set banned file banned.txt")
                .map_err(refused)?;
            let file = file.trim_start_matches(['\'', '"']);
            words.end().map_err(refused)?;
            place_of(&mut self.list.files, file);
            set_of_file(file, line, self.read)?
        } else {
            let mut ranges = Vec::new();
            for word in std::iter::once(first).chain(&mut words.words) {
                for element in word.split(',').filter(|element| !element.is_empty()) {
                    ranges.push(range(element).map_err(refused)?);
                }
            }
            Addresses::new(ranges)
        };
        if let Some(before) = self.sets.get(name) {
            addresses.add(before);
        }
        self.sets.insert(name.to_owned(), Arc::new(addresses));
        Ok(())
    }

    /// Reads the value of `src` or `dst`; `None` for any address.
    fn addresses(&self, value: &str) -> Result<Option<Arc<Addresses>>, Why> {
        if value == "any" {
            return Ok(None);
        }
        let set = |name: &str| {
            let set = self
                .sets
                .get(name)
                .ok_or_else(|| Why::NoSet(name.to_owned()))?;
            if set.is_empty() {
                Err(Why::EmptySet(name.to_owned()))
            } else {
                Ok(set)
            }
        };
        // A set alone is shared by all its rules.
        if let Some(name) = value.strip_prefix(SET).filter(|name| !name.contains(',')) {
            return set(name).map(|set| Some(Arc::clone(set)));
        }
        let (mut ranges, mut sets) = (Vec::new(), Vec::new());
        for element in elements(value)? {
            match element.strip_prefix(SET) {
                Some(name) => sets.push(set(name)?),
                None => ranges.push(range(element)?),
            }
        }
        let mut addresses = Addresses::new(ranges);
        sets.into_iter().for_each(|set| addresses.add(set));
        Ok(Some(Arc::new(addresses)))
    }
}

/// Reads the file of a set, which line `line` names.
pub(super) fn set_of_file(
    file: &str,
    line: usize,
    read: &mut ReadSet<'_>,
) -> Result<Addresses, RuleError> {
    let text = read(file).map_err(|error| RuleError {
        file: None,
        line,
        why: Why::SetFile {
            file: file.to_owned(),
            error,
        },
    })?;
    Addresses::parse(&text).map_err(|error: LineError| RuleError {
        file: Some(file.to_owned()),
        line: error.line,
        why: Why::Address(error.why),
    })
}

/// Marks of a set's name: `$` as in other firewalls, `@` as in expressions.
const SET: [char; 2] = ['$', '@'];

/// Kinds of extension headers by name.
const EXTENSIONS: [(&str, u8); 6] = [
    ("hop", extensions::HOP_BY_HOP),
    ("routing", extensions::ROUTING),
    ("fragment", extensions::FRAGMENT),
    ("ah", extensions::AUTHENTICATION),
    ("destination", extensions::DESTINATION),
    ("any", u8::MAX),
];

fn extensions_of(value: &str) -> Result<u8, Why> {
    let bit = |name| {
        EXTENSIONS
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, bit)| *bit)
    };
    let names = "hop, routing, fragment, ah, destination or any";
    let kind = |name| bit(name).ok_or_else(|| not_one_of("extension", names, name));
    elements(value)?.try_fold(0, |kinds, name| Ok(kinds | kind(name)?))
}

const SUCH_ADDRESSES: &str = ": an address, a prefix, a range, $SET or any";

fn not_one_of(name: &'static str, values: &'static str, found: &str) -> Why {
    Why::NotOneOf(name, values, found.to_owned())
}

/// Returns the place of a text in a list, where it is put if it is not there.
fn place_of(list: &mut Vec<String>, text: &str) -> usize {
    list.iter()
        .position(|known| known == text)
        .unwrap_or_else(|| {
            list.push(text.to_owned());
            list.len() - 1
        })
}

/// Adds what conditions imply, and refuses rules that contradict themselves.
fn complete(mut rule: Rule) -> Result<Rule, Why> {
    let bit = |proto: u8| (usize::from(proto / 64), 1u64 << (proto % 64));
    let set_of = |protocols: &[u8]| {
        let mut set = [0; 4];
        for &proto in protocols {
            let (word, bit) = bit(proto);
            set[word] |= bit;
        }
        set
    };
    let of_tcp = match (rule.flags, &rule.mss) {
        (Some(_), _) => Some("flags are those"),
        (None, Some(_)) => Some("mss is the segment size"),
        _ => None,
    };
    if let Some(what) = of_tcp {
        let tcp = set_of(&[TCP]);
        if rule.proto.is_some_and(|proto| proto != tcp) {
            return Err(Why::WithoutTcp(what));
        }
        rule.proto = Some(tcp);
    }
    let of_messages = set_of(&[ICMP, ICMP6]);
    let is_of_messages = |proto: [u64; 4]| (0..4).all(|word| proto[word] & !of_messages[word] == 0);
    if rule.types.is_some() && !rule.proto.is_some_and(is_of_messages) {
        return Err(Why::TypesWithoutIcmp);
    }
    if rule.sport.is_some() || rule.dport.is_some() {
        let with_ports = set_of(&PORT_PROTOCOLS);
        let proto = *rule.proto.get_or_insert(with_ports);
        let without = (0..=255)
            .find(|&number| proto[bit(number).0] & !with_ports[bit(number).0] & bit(number).1 != 0);
        if let Some(number) = without {
            let name = PROTOCOLS.iter().find(|(_, known)| *known == number);
            return Err(Why::NoPortsThere(name.map_or_else(
                || number.to_string(),
                |(name, _)| (*name).to_owned(),
            )));
        }
    }
    let family =
        |addresses: &Addresses| match (addresses.v4().is_empty(), addresses.v6().is_empty()) {
            (false, true) => Some(4),
            (true, false) => Some(6),
            _ => None,
        };
    let families = (
        rule.src.as_deref().and_then(family),
        rule.dst.as_deref().and_then(family),
    );
    match families {
        (Some(src), Some(dst)) if src != dst => Err(Why::TwoFamilies(src, dst)),
        _ => Ok(rule),
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Decide(Verdict::Pass) => "pass",
            Self::Decide(Verdict::Drop) => "drop",
            Self::Decide(Verdict::Reject) => "reject",
            Self::Count => "count",
        })
    }
}
