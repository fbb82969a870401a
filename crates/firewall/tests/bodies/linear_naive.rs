//! The linear scan itself.

use super::*;
use core::cell::RefCell;
use std::collections::HashMap;

/// Fate of a packet by the text: verdict, line or number of the rule, and how often each rule applied and lacked a field.
pub(super) struct Naive<'a> {
    lines: &'a [String],
    pub(super) rules: Vec<&'a str>,
    /// Tokens of each rule's rate, or of each source's, in parts that one nanosecond fills, and the time of the count.
    buckets: HashMap<(usize, Option<IpAddr>), (u128, u64)>,
    /// Answers to questions about the members of sets: few addresses are asked for often.
    members: RefCell<HashMap<(IpAddr, &'a str), bool>>,
    /// Time of the first packet and of this one, ns.
    pub(super) begun: u64,
    pub(super) now: u64,
}

/// Every packet has this length on the wire.
pub(super) const WIRE_LEN: u32 = 100;

impl<'a> Naive<'a> {
    pub(super) fn new(lines: &'a [String]) -> Self {
        let rules = lines
            .iter()
            .map(String::as_str)
            .filter(|line| !is_setting(line))
            .collect();
        Self {
            lines,
            rules,
            buckets: HashMap::new(),
            members: RefCell::default(),
            begun: 0,
            now: 0,
        }
    }

    fn setting(&self, name: &str, usual: &'a str) -> &'a str {
        let line = self
            .lines
            .iter()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or(usual)
    }

    pub(super) fn judge(
        &mut self,
        packet: &Packet,
        interfaces: [&str; 2],
        counts: &mut [(u64, u64)],
    ) -> (Verdict, DecidedBy) {
        if packet.is_neighbor && self.setting("neighbors", "pass") == "pass" {
            return (Verdict::Pass, DecidedBy::Neighbors);
        }
        for (number, rule) in self.rules.clone().into_iter().enumerate() {
            let Some(is_absent) = self.applies(rule, packet, interfaces) else {
                continue;
            };
            if self.has_expired(rule) || !self.is_on_its_side_of_the_rate(number, packet) {
                continue;
            }
            counts[number].0 += 1;
            counts[number].1 += u64::from(is_absent);
            if let Some(verdict) = verdict(rule.split(' ').next().unwrap()) {
                return (verdict, DecidedBy::Rule(number as u32));
            }
        }
        let (name, usual, by) = match packet.version {
            0 => ("non-ip", "pass", DecidedBy::NonIp),
            1 => ("malformed", "drop", DecidedBy::Malformed),
            _ => ("default", "pass", DecidedBy::Default),
        };
        (verdict(self.setting(name, usual)).unwrap(), by)
    }

    pub(super) fn has_expired(&self, rule: &str) -> bool {
        let Some((_, time)) = rule.split_once(" for ") else {
            return false;
        };
        let lasts = match time.split(' ').next().unwrap() {
            "1500ms" => 1.5,
            "4s" => 4.0,
            "1m" => 60.0,
            _ => 2.0 * 86400.0,
        };
        (self.now - self.begun) as f64 >= lasts * 1e9
    }

    /// Takes tokens for the packet out of the bucket of the rule, if it has enough.
    fn is_on_its_side_of_the_rate(&mut self, number: usize, packet: &Packet) -> bool {
        let words: Vec<&str> = self.rules[number].split(' ').collect();
        let behind = |name: &str| {
            words
                .iter()
                .position(|word| *word == name)
                .map(|at| words[at + 1])
        };
        let (text, is_over) = match (behind("limit"), behind("over")) {
            (Some(text), _) => (text, false),
            (_, Some(text)) => (text, true),
            _ => return true,
        };
        let (count, period) = text.split_once('/').unwrap();
        let period = match period {
            "s" => 1,
            "m" => 60,
            _ => 3600,
        } * 1_000_000_000u128;
        let number_of = |text: &str| text.trim_end_matches('B').parse::<u128>().unwrap();
        let burst = behind("burst").map_or(number_of(count), number_of);
        let source = behind("per").and(packet.src);
        let full = burst * period;
        let (tokens, at) = self
            .buckets
            .get(&(number, source))
            .copied()
            .unwrap_or((full, self.now));
        let tokens = full.min(tokens + u128::from(self.now - at) * number_of(count));
        let needed = if count.ends_with('B') {
            u128::from(WIRE_LEN)
        } else {
            1
        } * period;
        let is_within = tokens >= needed;
        self.buckets.insert(
            (number, source),
            (tokens - if is_within { needed } else { 0 }, self.now),
        );
        is_within != is_over
    }

    /// Whether the rule applies, and whether it does for want of a field.
    fn applies(
        &self,
        rule: &'a str,
        packet: &Packet,
        [arrival, departure]: [&str; 2],
    ) -> Option<bool> {
        let mut words = rule.split(' ');
        let action = words.next().unwrap();
        let is_ip = packet.version > 1;
        let (mut is_absent, mut needs_ip, mut has_expression) = (false, false, false);
        let has_ports = packet
            .proto
            .map(|proto| [6, 17, 33, 132, 136].contains(&proto));
        while let Some(word) = words.next() {
            let holds = match word {
                "src" | "dst" => {
                    let address = if word == "src" {
                        packet.src
                    } else {
                        packet.dst
                    };
                    let value = words.next().unwrap();
                    needs_ip |= value != "any";
                    Some(
                        value == "any"
                            || address.is_some_and(|address| {
                                value.split(',').any(|one| self.is_in(address, one))
                            }),
                    )
                }
                "sport" | "dport" => {
                    needs_ip = true;
                    let port = if word == "sport" {
                        packet.ports.0
                    } else {
                        packet.ports.1
                    };
                    let value = words.next().unwrap();
                    match has_ports {
                        Some(false) => Some(false),
                        Some(true) if packet.transport >= 4 && !packet.is_later => {
                            Some(is_among(port, value))
                        }
                        _ => None,
                    }
                }
                "flags" => {
                    needs_ip = true;
                    let value = words.next().unwrap();
                    match packet.proto {
                        Some(6) if packet.transport >= 14 && !packet.is_later => {
                            Some(has_flags(packet.flags, value))
                        }
                        Some(6) | None => None,
                        Some(_) => Some(false),
                    }
                }
                "fragment" => {
                    needs_ip = true;
                    Some(packet.is_later)
                }
                "type" => {
                    let value = words.next().unwrap();
                    match packet.proto {
                        Some(1 | 58) if packet.transport >= 1 && !packet.is_later => has_type(
                            packet.first,
                            (packet.transport > 1).then_some(packet.second),
                            value,
                        ),
                        Some(1 | 58) | None => None,
                        Some(_) => Some(false),
                    }
                }
                "extension" => {
                    needs_ip = true;
                    let names = [
                        ("hop", 0),
                        ("routing", 43),
                        ("fragment", 44),
                        ("ah", 51),
                        ("destination", 60),
                    ];
                    let is_named = |number: u8, value: &str| {
                        value
                            .split(',')
                            .any(|one| one == "any" || names.contains(&(one, number)))
                    };
                    let value = words.next().unwrap();
                    match packet
                        .extensions
                        .iter()
                        .any(|&number| is_named(number, value))
                    {
                        true => Some(true),
                        // IPv4 has no other than that which its header announces.
                        false if packet.version == 4 => Some(false),
                        false => packet.proto.map(|_| false),
                    }
                }
                "vlan" => {
                    let value = words.next().unwrap();
                    Some(match packet.tags.first() {
                        None => value == "none",
                        Some(id) => value != "none" && is_among(*id, value),
                    })
                }
                "on" | "to" => {
                    let name = if word == "on" { arrival } else { departure };
                    let elements: Vec<&str> = words.next().unwrap().split(',').collect();
                    let is = |pattern: &str| {
                        name == pattern
                            || pattern
                                .strip_suffix('*')
                                .is_some_and(|prefix| name.starts_with(prefix))
                    };
                    let has_included = elements.iter().any(|element| !element.starts_with('!'));
                    let is_included = !has_included || elements.iter().any(|element| is(element));
                    Some(
                        is_included
                            && !elements
                                .iter()
                                .any(|element| element.strip_prefix('!').is_some_and(is)),
                    )
                }
                "mss" => {
                    needs_ip = true;
                    let value = words.next().unwrap();
                    match packet.proto {
                        Some(6)
                            if packet.transport >= 20 + OPTIONS[packet.options].0.len()
                                && !packet.is_later =>
                        {
                            Some(
                                OPTIONS[packet.options]
                                    .1
                                    .is_some_and(|mss| is_among(mss, value)),
                            )
                        }
                        Some(6) | None => None,
                        Some(_) => Some(false),
                    }
                }
                "routing" => {
                    needs_ip = true;
                    let value = words.next().unwrap();
                    packet
                        .routing
                        .map(|kind| kind.is_some_and(|kind| is_among(kind.into(), value)))
                }
                "hour" => {
                    needs_ip = true;
                    let second = (self.now / 1_000_000_000 % 86_400) as u32;
                    Some(is_at(second, words.next().unwrap()))
                }
                "limit" | "over" | "burst" | "for" => {
                    needs_ip = true;
                    words.next().map(|_| true)
                }
                "state" => {
                    needs_ip = true;
                    let value = words.next().unwrap();
                    packet.state.map(|state| {
                        value
                            .split(',')
                            .any(|one| one == format!("{state:?}").to_lowercase())
                    })
                }
                "per" => {
                    needs_ip = true;
                    words.next().map(|_| true)
                }
                "expr" => {
                    has_expression = true;
                    Some(words.next().unwrap().contains("odd") && packet.frame.len() % 2 == 1)
                }
                name => {
                    needs_ip = true;
                    let value = if name == "proto" {
                        words.next().unwrap()
                    } else {
                        name
                    };
                    packet.proto.map(|proto| {
                        value.split(',').any(|one| {
                            one == proto.to_string() || PROTOCOLS.contains(&(one, proto))
                        })
                    })
                }
            };
            match holds {
                Some(true) => {}
                Some(false) => return None,
                None => is_absent = true,
            }
        }
        if !is_ip && (needs_ip || !has_expression)
            || is_absent && !["drop", "reject"].contains(&action)
        {
            return None;
        }
        Some(is_absent)
    }

    fn is_in(&self, address: IpAddr, one: &'a str) -> bool {
        if let Some(name) = one.strip_prefix('$') {
            let known = self.members.borrow().get(&(address, name)).copied();
            return known.unwrap_or_else(|| {
                let head = format!("set {name} ");
                let is_in = self
                    .lines
                    .iter()
                    .filter_map(|line| line.strip_prefix(&head))
                    .flat_map(|line| line.split([' ', ',']))
                    .any(|one| self.is_in(address, one));
                self.members.borrow_mut().insert((address, name), is_in);
                is_in
            });
        }
        if let Some((network, bits)) = one.split_once('/') {
            let (network, bits): (IpAddr, usize) =
                (network.parse().unwrap(), bits.parse().unwrap());
            let (a, b) = (bytes_of(address), bytes_of(network));
            return a.len() == b.len()
                && (0..bits).all(|bit| (a[bit / 8] ^ b[bit / 8]) >> (7 - bit % 8) & 1 == 0);
        }
        let (first, last) = one.split_once('-').unwrap_or((one, one));
        let (first, last): (IpAddr, IpAddr) = (first.parse().unwrap(), last.parse().unwrap());
        first.is_ipv4() == address.is_ipv4() && first <= address && address <= last
    }
}

fn verdict(word: &str) -> Option<Verdict> {
    match word {
        "pass" => Some(Verdict::Pass),
        "drop" => Some(Verdict::Drop),
        "reject" => Some(Verdict::Reject),
        _ => None,
    }
}

fn is_among(number: u16, list: &str) -> bool {
    list.split(',').any(|one| {
        let (first, last) = one.split_once('-').unwrap_or((one, one));
        (first.parse().unwrap()..=last.parse().unwrap()).contains(&number)
    })
}

/// Whether a list holds the type with the code; `None` if that depends on a code that is absent.
fn has_type(kind: u8, code: Option<u8>, list: &str) -> Option<bool> {
    let holds = |code: u8| {
        list.split(',').any(|one| {
            let (types, codes) = one.split_once('/').unwrap_or((one, "0-255"));
            is_among(kind.into(), types) && is_among(code.into(), codes)
        })
    };
    match code {
        Some(code) => Some(holds(code)),
        None if (0..=255).all(holds) => Some(true),
        None if (0..=255).any(holds) => None,
        None => Some(false),
    }
}

/// Whether a second of the day is in one of several ranges, which may go on behind midnight.
fn is_at(second: u32, list: &str) -> bool {
    let number = |text: &str| {
        text.split(':')
            .chain(["0"])
            .take(3)
            .fold(0, |sum, part| sum * 60 + part.parse::<u32>().unwrap())
    };
    list.split(',').any(|one| {
        let (first, last) = one
            .split_once('-')
            .map(|(first, last)| (number(first), number(last)))
            .unwrap();
        if first <= last {
            first <= second && second <= last
        } else {
            second >= first || second <= last
        }
    })
}

fn has_flags(flags: u8, text: &str) -> bool {
    let (set, mask) = text.split_once('/').unwrap_or((text, text));
    // FIN, SYN, RST, PSH, ACK: RFC 9293, section 3.1.
    [('F', 1), ('S', 2), ('R', 4), ('P', 8), ('A', 16)]
        .iter()
        .all(|&(letter, bit)| !mask.contains(letter) || (flags & bit != 0) == set.contains(letter))
}
