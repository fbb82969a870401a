//! A naive reading of rulesets: each packet goes through the JSON of each rule, as Linux evaluates it. Nothing here comes from the translation.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use serde_json::Value;
use weir_testkit::Input;

/// A packet, and what is around it.
#[derive(Clone, Debug)]
pub struct Packet {
    pub src: IpAddr,
    pub dst: IpAddr,
    pub proto: u8,
    pub ports: [u16; 2],
    pub flags: u8,
    /// Type and code of an ICMP message.
    pub message: [u8; 2],
    pub segment_size: Option<u16>,
    /// Whether it is a fragment other than the first, of IPv4.
    pub is_later: bool,
    /// Type of its routing header, of IPv6.
    pub routing: Option<u8>,
    pub interfaces: [&'static str; 2],
    pub state: &'static str,
    /// Second of the day.
    pub second: u32,
    /// Last byte of the sender's address of Ethernet, behind 02:00:00:00:00.
    pub sender: u8,
}

fn one<T: Copy>(choices: &mut Input<'_>, of: &[T]) -> T {
    of[choices.below(of.len())]
}

impl Packet {
    pub fn of(choices: &mut Input<'_>) -> Self {
        let is_v6 = choices.below(2) == 0;
        let address = |choices: &mut Input<'_>| match is_v6 {
            true => one(choices, &["2001:db8::1", "2001:db8::2", "fd00::1"])
                .parse()
                .unwrap(),
            false => one(
                choices,
                &["10.0.0.1", "10.0.0.9", "10.0.200.1", "192.168.1.1"],
            )
            .parse()
            .unwrap(),
        };
        let (src, dst) = (address(choices), address(choices));
        let proto = one(choices, &[6, 6, 17, if is_v6 { 58 } else { 1 }, 47]);
        Self {
            src,
            dst,
            proto,
            ports: [
                one(choices, &[22, 80, 1024]),
                one(choices, &[22, 80, 40_000]),
            ],
            flags: one(choices, &[2, 0x12, 0x10, 0x29]),
            // No neighbor discovery.
            message: [one(choices, &[8, 0, 3, 128, 4]), one(choices, &[0, 1, 4])],
            segment_size: one(choices, &[None, None, Some(0), Some(80), Some(1460)]),
            is_later: !is_v6 && choices.below(6) == 0,
            routing: if is_v6 {
                one(choices, &[None, None, Some(0), Some(2)])
            } else {
                None
            },
            interfaces: [
                one(choices, &["eth0", "eth1", "wan0"]),
                one(choices, &["eth0", "wan0", "lo"]),
            ],
            state: one(choices, &["new", "established", "related", "untracked"]),
            second: one(
                choices,
                &[0, 10_799, 10_800, 79_200, 79_209, 79_210, 86_399],
            ),
            sender: one(choices, &[1, 2]),
        }
    }

    fn is_v6(&self) -> bool {
        self.src.is_ipv6()
    }

    /// The packet in a frame of Ethernet.
    pub fn frame(&self) -> Vec<u8> {
        let mut transport = match self.proto {
            1 | 58 => [&self.message[..], &[0; 6]].concat(),
            6 | 17 => self.ports.map(u16::to_be_bytes).concat(),
            _ => vec![0; 8],
        };
        match self.proto {
            6 => {
                transport.extend([0; 8]);
                let words = if self.segment_size.is_some() { 6 } else { 5 };
                transport.extend([words << 4, self.flags, 0, 0, 0, 0, 0, 0]);
                transport.extend(
                    self.segment_size
                        .iter()
                        .flat_map(|size| [&[2, 4][..], &size.to_be_bytes()].concat()),
                );
            }
            17 => transport.extend([0, 8, 0, 0]),
            _ => {}
        }
        let mut frame = vec![2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, self.sender];
        let (IpAddr::V4(src), IpAddr::V4(dst)) = (self.src, self.dst) else {
            let mut next = self.proto;
            if let Some(kind) = self.routing {
                transport = [&[next, 0, kind, 0, 0, 0, 0, 0][..], &transport].concat();
                next = 43;
            }
            frame.extend([
                0x86,
                0xdd,
                0x60,
                0,
                0,
                0,
                0,
                transport.len() as u8,
                next,
                64,
            ]);
            for address in [self.src, self.dst] {
                if let IpAddr::V6(address) = address {
                    frame.extend(address.octets());
                }
            }
            return [frame, transport].concat();
        };
        let offset = u8::from(self.is_later);
        let length = 20 + transport.len() as u8;
        frame.extend([
            8, 0, 0x45, 0, 0, length, 0, 0, 0, offset, 64, self.proto, 0, 0,
        ]);
        [
            frame,
            src.octets().to_vec(),
            dst.octets().to_vec(),
            transport,
        ]
        .concat()
    }

    /// Value of an expression, and the kind of its values; `None` if the packet has none, so that no match on it holds. **Errors**: the expression
    /// is not one that is read here.
    fn value(&self, expression: &Value) -> Result<Option<(u128, &'static str)>, Unread> {
        let text = |kind: &str, key: &str| {
            expression
                .get(kind)
                .and_then(|inside| inside.get(key)?.as_str())
        };
        let is = |proto: u8| self.proto == proto && !self.is_later;
        let number = |address: IpAddr| match address {
            IpAddr::V4(address) => u128::from(address.to_bits()),
            IpAddr::V6(address) => address.to_bits(),
        };
        let is_icmp = is(1) && !self.is_v6();
        let is_icmp6 = is(58) && self.is_v6();
        if let (Some(protocol), Some(field)) =
            (text("payload", "protocol"), text("payload", "field"))
        {
            return Ok(match (protocol, field) {
                ("ip", "saddr") => (!self.is_v6()).then(|| (number(self.src), "v4")),
                ("ip6", "daddr") => self.is_v6().then(|| (number(self.dst), "v6")),
                ("tcp", "dport") => is(6).then_some((self.ports[1].into(), "number")),
                ("th", "sport") => (is(6) || is(17)).then_some((self.ports[0].into(), "number")),
                ("tcp", "flags") => is(6).then_some((self.flags.into(), "flags")),
                ("icmp", "type") => is_icmp.then_some((self.message[0].into(), "icmp")),
                ("icmp", "code") => is_icmp.then_some((self.message[1].into(), "number")),
                ("icmpv6", "type") => is_icmp6.then_some((self.message[0].into(), "icmp6")),
                ("icmpv6", "code") => is_icmp6.then_some((self.message[1].into(), "number")),
                ("ether", "saddr") => Some((0x0200_0000_0000 | u128::from(self.sender), "ether")),
                _ => return Err(Unread),
            });
        }
        if let Some([inside, mask]) = expression
            .get("&")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
        {
            let field = |key: &str| {
                inside
                    .get("payload")
                    .and_then(|inside| inside.get(key)?.as_str())
            };
            return match (field("protocol"), field("field"), mask.as_u64()) {
                (Some("ip"), Some("frag-off"), Some(0x1fff)) => {
                    Ok((!self.is_v6()).then_some((self.is_later.into(), "number")))
                }
                (Some("tcp"), Some("flags"), _) => {
                    let mask = number_of("flags", mask).ok_or(Unread)?;
                    Ok(is(6).then_some((u128::from(self.flags) & mask, "masked")))
                }
                _ => Err(Unread),
            };
        }
        match (
            text("meta", "key"),
            text("exthdr", "name"),
            text("exthdr", "field"),
        ) {
            (Some("l4proto"), ..) => return Ok(Some((self.proto.into(), "protocol"))),
            (Some("nfproto"), ..) => return Ok(Some((if self.is_v6() { 6 } else { 4 }, "family"))),
            (Some("iifname" | "iif"), ..) => return Ok(Some((0, "interface"))),
            (Some("oifname" | "oif"), ..) => return Ok(Some((1, "interface"))),
            (Some("hour"), ..) => return Ok(Some((self.second.into(), "hour"))),
            (_, Some("frag"), None) => return Ok(self.is_v6().then_some((0, "number"))),
            (_, Some("rt"), Some("type")) => {
                return Ok(self.routing.map(|kind| (kind.into(), "number")));
            }
            _ => {}
        }
        match (
            text("ct", "key"),
            text("tcp option", "name"),
            text("tcp option", "field"),
        ) {
            (Some("state"), ..) => Ok(Some((0, "state"))),
            (Some("status"), ..) => Ok((self.state != "untracked").then_some((0, "status"))),
            (_, Some("maxseg"), Some("size")) => Ok(self
                .segment_size
                .filter(|_| is(6))
                .map(|size| (size.into(), "number"))),
            _ => Err(Unread),
        }
    }

    /// Whether a match holds.
    fn holds(&self, left: &Value, operator: &str, right: &Value) -> Result<bool, Unread> {
        if let Some(fields) = left.get("concat").and_then(Value::as_array) {
            let elements = right
                .get("set")
                .and_then(Value::as_array)
                .map_or(std::slice::from_ref(right), Vec::as_slice);
            let mut holds = false;
            for element in elements {
                let values = element
                    .get("concat")
                    .and_then(Value::as_array)
                    .ok_or(Unread)?;
                let mut all = true;
                for (field, value) in fields.iter().zip(values) {
                    all &= self.holds(field, "==", value)?;
                }
                holds |= all;
            }
            return if operator == "==" {
                Ok(holds)
            } else {
                Err(Unread)
            };
        }
        let Some((value, kind)) = self.value(left)? else {
            return Ok(false);
        };
        if let ("flags" | "state" | "status", "in" | "!") = (kind, operator) {
            let any = names(right).iter().any(|name| match kind {
                "state" => name.as_str() == Some(self.state),
                "status" => false,
                _ => number_of("flags", name).is_some_and(|bits| value & bits != 0),
            });
            return Ok(any == (operator == "in"));
        }
        let is_in = self.is_among(kind, value, right)?;
        let ordered = number_of(kind, right);
        match (operator, ordered) {
            ("==", _) => Ok(is_in),
            ("!=", _) => Ok(!is_in),
            ("<", Some(number)) => Ok(value < number),
            (">=", Some(number)) => Ok(value >= number),
            _ => Err(Unread),
        }
    }

    fn is_among(&self, kind: &str, value: u128, right: &Value) -> Result<bool, Unread> {
        if let Some(elements) = right.get("set").and_then(Value::as_array) {
            return elements
                .iter()
                .try_fold(false, |any, one| Ok(any | self.is_among(kind, value, one)?));
        }
        if let Some([first, last]) = right
            .get("range")
            .and_then(Value::as_array)
            .map(Vec::as_slice)
        {
            let (first, last) = number_of(kind, first)
                .zip(number_of(kind, last))
                .ok_or(Unread)?;
            return Ok(first <= value && value <= last);
        }
        if let Some(prefix) = right.get("prefix") {
            let len = prefix.get("len").and_then(Value::as_u64).ok_or(Unread)? as u32;
            let address = number_of(kind, prefix.get("addr").ok_or(Unread)?).ok_or(Unread)?;
            let width = if kind == "v4" { 32 } else { 128 };
            return Ok((0..len).all(|bit| (address ^ value) >> (width - 1 - bit) & 1 == 0));
        }
        match (kind, right.as_str()) {
            ("interface", Some(name)) => {
                let own = self.interfaces[value as usize];
                Ok(name
                    .strip_suffix('*')
                    .map_or(own == name, |start| own.starts_with(start)))
            }
            ("state", Some(name)) => Ok(name == self.state),
            ("status", _) => Ok(false),
            ("v4", Some("@s")) => Ok(value == 0x0a00_0001),
            // A list of flags is all of them together.
            ("flags" | "masked", _) => Ok(number_of("flags", right).ok_or(Unread)? == value),
            _ => Ok(number_of(kind, right).ok_or(Unread)? == value),
        }
    }
}

/// An expression or value that is not read here.
#[derive(Debug)]
pub struct Unread;

fn names(value: &Value) -> Vec<&Value> {
    match value.get("set").unwrap_or(value) {
        Value::Array(all) => all.iter().collect(),
        one => vec![one],
    }
}

fn number_of(kind: &str, value: &Value) -> Option<u128> {
    if let ("flags", Value::Array(all)) = (kind, value) {
        return all
            .iter()
            .try_fold(0, |bits, one| Some(bits | number_of(kind, one)?));
    }
    let name = value.as_str();
    let named = |names: &[(&str, u128)]| {
        names
            .iter()
            .find(|(known, _)| Some(*known) == name)
            .map(|(_, number)| *number)
    };
    match (kind, name) {
        ("v4", Some(text)) => text
            .parse::<Ipv4Addr>()
            .ok()
            .map(|address| address.to_bits().into()),
        ("v6", Some(text)) => text.parse::<Ipv6Addr>().ok().map(Ipv6Addr::to_bits),
        ("flags" | "masked", Some(_)) => named(&[("fin", 1), ("syn", 2), ("rst", 4), ("ack", 16)]),
        ("icmp", Some(_)) => named(&[("echo-request", 8)]),
        ("icmp6", Some(_)) => named(&[("echo-request", 128)]),
        ("protocol", Some(_)) => named(&[("tcp", 6), ("udp", 17)]),
        ("family", Some(_)) => named(&[("ipv6", 6), ("ip6", 6), ("ip", 4), ("ipv4", 4)]),
        ("hour", Some(text)) => {
            let parts: Vec<u128> = text
                .split(':')
                .map(|part| part.parse().ok())
                .collect::<Option<_>>()?;
            Some(
                parts
                    .iter()
                    .zip([3600, 60, 1])
                    .map(|(part, seconds)| part * seconds)
                    .sum(),
            )
        }
        ("ether", Some(text)) => text.split(':').try_fold(0, |bits, byte| {
            Some(bits << 8 | u128::from_str_radix(byte, 16).ok()?)
        }),
        (_, None) => value
            .as_bool()
            .map(u128::from)
            .or_else(|| value.as_u64().map(u128::from)),
        _ => None,
    }
}

/// Fate of a packet in a chain.
enum Fate {
    Decided(bool),
    /// The chain ends, or is left.
    Left,
}

/// Whether the chain `f` lets a packet pass whose verdicts are read from these rules; its policy is drop. **Errors**: a statement that is not read
/// here.
pub fn passes(rules: &[&Value], packet: &Packet) -> Result<bool, Unread> {
    match chain(rules, packet, "f", 0)? {
        Fate::Decided(passes) => Ok(passes),
        Fate::Left => Ok(false),
    }
}

fn chain(rules: &[&Value], packet: &Packet, name: &str, depth: usize) -> Result<Fate, Unread> {
    if depth > 16 {
        return Err(Unread);
    }
    for rule in rules
        .iter()
        .filter(|rule| rule.get("chain").and_then(Value::as_str) == Some(name))
    {
        let statements = rule.get("expr").and_then(Value::as_array).ok_or(Unread)?;
        for statement in statements {
            let (kind, value) = statement
                .as_object()
                .and_then(|object| object.iter().next())
                .ok_or(Unread)?;
            let verdict = match kind.as_str() {
                "match" => {
                    let part = |key: &str| value.get(key).unwrap_or(&Value::Null);
                    if !packet.holds(
                        part("left"),
                        part("op").as_str().unwrap_or_default(),
                        part("right"),
                    )? {
                        break;
                    }
                    continue;
                }
                "counter" => continue,
                "vmap" => {
                    let elements = value
                        .get("data")
                        .and_then(|data| data.get("set")?.as_array())
                        .ok_or(Unread)?;
                    let mut found = None;
                    for element in elements {
                        let (Some(right), Some(verdict)) = (element.get(0), element.get(1)) else {
                            return Err(Unread);
                        };
                        if packet.holds(value.get("key").ok_or(Unread)?, "==", right)?
                            && found.is_none()
                        {
                            found = Some(verdict);
                        }
                    }
                    match found {
                        Some(verdict) => verdict,
                        None => break,
                    }
                }
                _ => statement,
            };
            let (kind, value) = verdict
                .as_object()
                .and_then(|object| object.iter().next())
                .ok_or(Unread)?;
            let target = || value.get("target").and_then(Value::as_str).ok_or(Unread);
            match kind.as_str() {
                "accept" => return Ok(Fate::Decided(true)),
                "drop" | "reject" => return Ok(Fate::Decided(false)),
                "return" => return Ok(Fate::Left),
                "goto" => return chain(rules, packet, target()?, depth + 1),
                "jump" => match chain(rules, packet, target()?, depth + 1)? {
                    Fate::Left => {}
                    decided => return Ok(decided),
                },
                _ => return Err(Unread),
            }
            break;
        }
    }
    Ok(Fate::Left)
}
