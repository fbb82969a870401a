//! Kinds of key: parts of the flow key and facts of the frame that a table counts.

mod fields;

pub use fields::{Field, Fields, Unpacked};

use crate::service;
use core::fmt;
use core::net::IpAddr;
use core::str::FromStr;
use weir_packet::flow::{Facts, FlowKey};
use weir_packet::suggestions::did_you_mean;

/// Part of a packet that is counted.
///
/// Keys with [sides](Self::has_sides) count a packet for both of its ends, or an end of the one with the other: their tables hold
/// each direction apart, and answers add both up. All other kinds are directional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Addresses, ports and protocol.
    FiveTuple,
    /// A 5-tuple and its reverse as one.
    Conversation,
    /// Source and destination address.
    Pair,
    /// A pair and its reverse as one.
    Hosts,
    /// Source address, cut to a prefix.
    Src(Prefix),
    /// Destination address, cut to a prefix.
    Dst(Prefix),
    /// Each of both addresses, cut to a prefix: a packet counts for its source and for its destination.
    Host(Prefix),
    /// Source port and protocol.
    Sport,
    /// Destination port and protocol.
    Dport,
    /// The port that is a service, with its protocol.
    Service,
    /// The registered name of the service, or the service if it has no name.
    App,
    /// IP protocol.
    Proto,
    /// Each of both MAC addresses.
    Mac,
    /// The name of each address, or the address if it has none. The table counts hosts, and answers add up the hosts of a name.
    Name,
    /// The process whose socket sends or receives. The table counts 5-tuples, and answers add up the 5-tuples of a process.
    Process,
    /// The container, or else the control group, of that process.
    Container,
    /// The autonomous system of each of both addresses, from a database.
    Asn,
    /// The country of each of both addresses, from a database.
    Country,
    /// The network of each of both addresses that a database holds.
    Network,
    /// Several fields, or one field that is not in the flow key.
    Fields(Fields),
}

/// Bits of the longest address.
const ALL_BITS: u8 = 128;

/// Numbers of leading bits that addresses are cut to; an address with fewer bits is kept whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Bits of IPv4.
    pub v4: u8,
    /// Bits of IPv6.
    pub v6: u8,
}

impl Prefix {
    /// Whole addresses.
    pub const ALL: Self = Self::of(ALL_BITS);

    /// The same number of bits for both families.
    pub const fn of(bits: u8) -> Self {
        Self { v4: bits, v6: bits }
    }

    /// Returns the number of bits for an address of `family`, not more than it has.
    pub fn bits(self, family: u8) -> u8 {
        match family {
            4 => self.v4.min(32),
            _ => self.v6.min(ALL_BITS),
        }
    }

    /// Returns whether all addresses are kept whole.
    pub fn is_all(self) -> bool {
        self.v4 >= 32 && self.v6 >= ALL_BITS
    }

    /// Cuts an address of `family`.
    #[inline(always)]
    pub(crate) fn cut(self, address: [u8; 16], family: u8) -> [u8; 16] {
        let bits = if family == 4 { self.v4 } else { self.v6 };
        if bits >= width(family) {
            return address;
        }
        let kept = u128::from_ne_bytes((!(u128::MAX >> bits)).to_be_bytes());
        (u128::from_ne_bytes(address) & kept).to_ne_bytes()
    }

    /// Writes the name of a key that has addresses cut to the prefix: `src`, `src/24`, `src/24/48`.
    fn write(self, name: &str, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            _ if self.is_all() => f.write_str(name),
            Self { v4, v6 } if v4 == v6 => write!(f, "{name}/{v4}"),
            Self { v4, v6 } => write!(f, "{name}/{v4}/{v6}"),
        }
    }

    /// Reads the numbers after the name of such a key: `24`, or `24/48`.
    fn read(text: &str) -> Option<Self> {
        let bits = |text: &str| {
            let digits = text.bytes().all(|byte| byte.is_ascii_digit());
            let bits: u8 = text.parse().ok()?;
            (digits && (1..=ALL_BITS).contains(&bits)).then_some(bits)
        };
        let prefix = match text.split_once('/') {
            None => Self::of(bits(text)?),
            Some((v4, v6)) => Self {
                v4: bits(v4).filter(|bits| *bits <= 32)?,
                v6: bits(v6)?,
            },
        };
        Some(if prefix.is_all() { Self::ALL } else { prefix })
    }
}

fn width(family: u8) -> u8 {
    if family == 4 { 32 } else { ALL_BITS }
}

/// Bit of the flags of a key with [sides](KeyKind::has_sides): the key is the receiving side.
pub(crate) const RECEIVES: u8 = 1 << 2;
/// Bit of the flags of an [application](KeyKind::App): the source port is the number of a name.
const NAMED: u8 = 1 << 3;

impl KeyKind {
    /// The whole source address.
    pub const SRC: Self = Self::Src(Prefix::ALL);
    /// The whole destination address.
    pub const DST: Self = Self::Dst(Prefix::ALL);
    /// Each whole address.
    pub const HOST: Self = Self::Host(Prefix::ALL);

    /// Kinds without a parameter, with their names.
    pub const NAMES: [(&'static str, Self); 19] = [
        ("5tuple", Self::FiveTuple),
        ("conversation", Self::Conversation),
        ("pair", Self::Pair),
        ("hosts", Self::Hosts),
        ("src", Self::SRC),
        ("dst", Self::DST),
        ("host", Self::HOST),
        ("sport", Self::Sport),
        ("dport", Self::Dport),
        ("service", Self::Service),
        ("app", Self::App),
        ("proto", Self::Proto),
        ("mac", Self::Mac),
        ("name", Self::Name),
        ("process", Self::Process),
        ("container", Self::Container),
        ("asn", Self::Asn),
        ("country", Self::Country),
        ("network", Self::Network),
    ];

    /// Names of the fields that are keys of their own, and that combined keys have.
    pub const FIELDS: [&'static str; 12] = [
        "smac",
        "dmac",
        "vlan",
        "mpls",
        "vni",
        "ethertype",
        "dscp",
        "ttl",
        "tcpflags",
        "size",
        "interface",
        "direction",
    ];

    /// Returns whether the table of the kind counts both directions apart, and answers add them up.
    pub fn has_sides(self) -> bool {
        matches!(
            self,
            Self::Conversation
                | Self::Hosts
                | Self::Host(_)
                | Self::Service
                | Self::App
                | Self::Mac
                | Self::Name
                | Self::Process
                | Self::Container
        ) || self.needs_geo()
    }

    /// Returns whether the keys come from the sockets of this host.
    pub fn needs_owners(self) -> bool {
        matches!(self, Self::Process | Self::Container)
    }

    /// Returns whether the keys come from a [database](crate::Geo).
    pub fn needs_geo(self) -> bool {
        matches!(self, Self::Asn | Self::Country | Self::Network)
    }

    /// Returns the key of which `key` is a side, and whether it is the receiving side.
    pub(crate) fn whole(self, key: &FlowKey) -> (FlowKey, bool) {
        match self {
            Self::Conversation | Self::Hosts | Self::Process | Self::Container => {
                (key.canonical(), key.is_reversed())
            }
            _ => {
                let flags = key.flags & !RECEIVES;
                (FlowKey { flags, ..*key }, key.flags & RECEIVES != 0)
            }
        }
    }

    /// Returns the receiving side of a [whole](Self::whole) key; it may be the same as the sending side.
    pub(crate) fn receiving(self, whole: &FlowKey) -> FlowKey {
        match self {
            Self::Conversation | Self::Hosts | Self::Process | Self::Container => whole.turned(),
            _ => FlowKey {
                flags: whole.flags | RECEIVES,
                ..*whole
            },
        }
    }

    /// Returns whether the keys need [facts](Facts) of the frame.
    pub fn needs_facts(self) -> bool {
        match self {
            Self::Fields(fields) => fields.needs_facts(),
            kind => kind == Self::Mac,
        }
    }

    /// Returns whether frames without a flow key also have such keys.
    pub fn is_of_frames(self) -> bool {
        match self {
            Self::Fields(fields) => fields.is_of_frames(),
            kind => kind == Self::Mac,
        }
    }

    /// Returns the counted part of `flow`; the rest is zero. Of a kind with two sides that both count, returns the sending side.
    ///
    /// Only whole flows keep all flags, because a fragment must count for its address. Keys of a port keep one flag, which
    /// separates packets without ports from packets of port 0.
    #[inline(always)]
    pub fn project(self, flow: &FlowKey) -> FlowKey {
        let FlowKey {
            src,
            dst,
            sport,
            dport,
            proto,
            family,
            ..
        } = *flow;
        let flags = flow.flags & FlowKey::HAS_PORTS;
        match self {
            Self::FiveTuple => *flow,
            Self::Conversation | Self::Process | Self::Container => flow.canonical(),
            Self::Hosts => Self::Pair.project(flow).canonical(),
            Self::Pair => FlowKey {
                src,
                dst,
                family,
                ..FlowKey::NONE
            },
            Self::Src(prefix) | Self::Host(prefix) => FlowKey {
                src: prefix.cut(src, family),
                family,
                ..FlowKey::NONE
            },
            Self::Dst(prefix) => FlowKey {
                dst: prefix.cut(dst, family),
                family,
                ..FlowKey::NONE
            },
            Self::Sport => FlowKey {
                sport,
                proto,
                flags,
                ..FlowKey::NONE
            },
            Self::Dport => FlowKey {
                dport,
                proto,
                flags,
                ..FlowKey::NONE
            },
            Self::Proto => FlowKey {
                proto,
                ..FlowKey::NONE
            },
            Self::Service => service_key(flow),
            Self::App => app_key(flow),
            Self::Mac | Self::Asn | Self::Country | Self::Network => FlowKey::NONE,
            Self::Name => Self::HOST.project(flow),
            Self::Fields(fields) => fields.pack(flow, &Facts::NONE, 0),
        }
    }

    /// Returns the counted part of a packet of `bytes` wire bytes with these facts, as [`project`](Self::project) does; `None` if
    /// the packet has no such part.
    pub(crate) fn sending(self, flow: &FlowKey, facts: &Facts, bytes: u32) -> Option<FlowKey> {
        match self {
            Self::Mac => facts.smac().map(mac_key),
            Self::Fields(fields) => Some(fields.pack(flow, facts, bytes)),
            kind => Some(kind.project(flow)),
        }
    }

    /// Returns the receiving side of a packet, for kinds that count each packet for both of its ends.
    pub(crate) fn other_end(self, flow: &FlowKey, facts: &Facts) -> Option<FlowKey> {
        match self {
            Self::Mac => facts
                .dmac()
                .map(|address| self.receiving(&mac_key(address))),
            Self::Host(prefix) => Some(host_receives(prefix, flow)),
            _ => None,
        }
    }

    /// Returns the keys of a packet of `bytes` wire bytes under which rows count it: of kinds that count each packet for both of its ends,
    /// one for each end, and else one. `flow` is `None` for a frame without a flow key.
    ///
    /// The packet alone tells no database, name or process: kinds of these give a key that no row has.
    #[inline]
    pub fn keys(self, flow: Option<&FlowKey>, facts: &Facts, bytes: u32) -> [Option<FlowKey>; 2] {
        let of_frame = self.is_of_frames().then_some(&FlowKey::NONE);
        let Some(flow) = flow.or(of_frame) else {
            return [None; 2];
        };
        let ends = [
            self.sending(flow, facts, bytes),
            self.other_end(flow, facts),
        ];
        ends.map(|key| key.map(|key| self.whole(&key).0))
    }

    /// Returns whether the peers of a key are sources: the key has the receiving end alone.
    pub(crate) fn peers_are_sources(self) -> bool {
        match self {
            Self::Dst(_) | Self::Sport => true,
            Self::Fields(fields) => {
                let [src, dst, sport, dport] =
                    [Field::Src, Field::Dst, Field::Sport, Field::Dport].map(|it| fields.has(it));
                !src && (dst || sport && !dport)
            }
            _ => false,
        }
    }

    /// Returns the kind of which a table holds the keys, if answers are made of two of them.
    pub(crate) fn stored(self) -> Self {
        match self {
            Self::Conversation | Self::Process | Self::Container => Self::FiveTuple,
            Self::Hosts => Self::Pair,
            Self::Name => Self::HOST,
            kind => kind,
        }
    }

    /// Returns whether a key has a peak: names and processes add up keys whose peaks are at other times.
    pub fn has_peaks(self) -> bool {
        !matches!(self, Self::Name | Self::Process | Self::Container)
    }

    /// Returns whether each packet counts for two keys.
    pub fn counts_twice(self) -> bool {
        matches!(self, Self::Host(_) | Self::Mac | Self::Name) || self.needs_geo()
    }

    /// Returns whether an end of the key is an address.
    pub fn has_address(self) -> [bool; 2] {
        match self {
            Self::FiveTuple | Self::Conversation | Self::Pair | Self::Hosts => [true; 2],
            Self::Src(prefix) | Self::Host(prefix) => [prefix.is_all(), false],
            Self::Dst(prefix) => [false, prefix.is_all()],
            Self::Fields(fields) => {
                let (src, dst) = fields.prefixes();
                [(Field::Src, src), (Field::Dst, dst)]
                    .map(|(field, prefix)| fields.has(field) && prefix.is_all())
            }
            _ => [false; 2],
        }
    }

    /// Returns the addresses of a key, where [it has any](Self::has_address).
    pub fn addresses(self, key: &FlowKey) -> [Option<IpAddr>; 2] {
        let [has_src, has_dst] = self.has_address();
        let flow = match self {
            Self::Fields(fields) => fields.unpack(key).flow,
            _ => *key,
        };
        [
            flow.source().filter(|_| has_src),
            flow.destination().filter(|_| has_dst),
        ]
    }

    /// Returns the prefix length of an address of `family`, or `None` if the kind is not a prefix.
    pub fn prefix_len(self, family: u8) -> Option<u8> {
        match self {
            Self::Src(prefix) | Self::Dst(prefix) | Self::Host(prefix) if !prefix.is_all() => {
                Some(prefix.bits(family))
            }
            _ => None,
        }
    }
}

/// Returns the receiving side of a packet under its host.
#[inline(always)]
pub(crate) fn host_receives(prefix: Prefix, flow: &FlowKey) -> FlowKey {
    FlowKey {
        src: prefix.cut(flow.dst, flow.family),
        family: flow.family,
        flags: RECEIVES,
        ..FlowKey::NONE
    }
}

/// Returns the key of a MAC address.
fn mac_key(address: [u8; 6]) -> FlowKey {
    let mut key = FlowKey::NONE;
    key.src[..6].copy_from_slice(&address);
    key
}

/// Returns the MAC address of a key of [`KeyKind::Mac`].
pub fn mac_of(key: &FlowKey) -> [u8; 6] {
    let [a, b, c, d, e, f, ..] = key.src;
    [a, b, c, d, e, f]
}

/// Returns the key of the service of a packet: its source port is the service. Packets to a service are the receiving side.
fn service_key(flow: &FlowKey) -> FlowKey {
    let none = FlowKey {
        proto: flow.proto,
        ..FlowKey::NONE
    };
    match service::service_of(flow) {
        None => none,
        Some((sport, is_source)) => FlowKey {
            sport,
            flags: FlowKey::HAS_PORTS | if is_source { 0 } else { RECEIVES },
            ..none
        },
    }
}

/// Returns the key of the application of a packet.
fn app_key(flow: &FlowKey) -> FlowKey {
    let service = service_key(flow);
    let named = service
        .ports()
        .and_then(|(port, _)| service::number_of(port, service.proto));
    match named {
        None => service,
        Some(sport) => FlowKey {
            sport,
            proto: 0,
            flags: service.flags | NAMED,
            ..service
        },
    }
}

/// Returns the registered name of a key of [`KeyKind::App`], or `None` if the key is a service without a name.
pub fn app_name(key: &FlowKey) -> Option<&'static str> {
    let number = (key.flags & NAMED != 0).then_some(key.sport)?;
    service::name_of(number)
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Src(prefix) => prefix.write("src", f),
            Self::Dst(prefix) => prefix.write("dst", f),
            Self::Host(prefix) => prefix.write("host", f),
            Self::Fields(fields) => fields.fmt(f),
            kind => {
                let known = Self::NAMES.iter().find(|(_, known)| known == kind);
                f.write_str(known.map_or("", |(name, _)| name))
            }
        }
    }
}

/// Error: the text does not name any kind of key.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoSuchKey {
    /// A word is not a key.
    #[error(
        "unknown key '{0}'{near}: {names}, a prefix such as src/24, host/24/48, or fields with commas such as src,dport",
        near = did_you_mean(.0, all_names()),
        names = all_names().collect::<Vec<_>>().join(", ")
    )]
    Unknown(String),
    /// A kind of key that is not a field is among fields.
    #[error(
        "the key {0} cannot be combined with others: src, dst, sport, dport, proto, {fields} can",
        fields = KeyKind::FIELDS.join(", ")
    )]
    Alone(String),
    /// A field is there twice.
    #[error("the key '{0}' names a field twice")]
    Twice(String),
    /// The fields have too many bytes.
    #[error("the key {key} has {bytes} bytes too many: leave out an address or another field")]
    TooLong {
        /// The fields.
        key: Fields,
        /// Bytes that are too many.
        bytes: usize,
    },
}

fn all_names() -> impl Iterator<Item = &'static str> {
    let kinds = KeyKind::NAMES.iter().map(|(name, _)| *name);
    kinds.chain(KeyKind::FIELDS)
}

/// Reads a single kind of key: a name without a parameter, or a prefix.
fn alone(text: &str) -> Option<KeyKind> {
    if let Some((_, kind)) = KeyKind::NAMES.iter().find(|(name, _)| *name == text) {
        return Some(*kind);
    }
    let (name, bits) = text.split_once('/')?;
    let kind: fn(Prefix) -> KeyKind = match name {
        "src" => KeyKind::Src,
        "dst" => KeyKind::Dst,
        "host" => KeyKind::Host,
        _ => return None,
    };
    Prefix::read(bits).map(kind)
}

/// Adds a word of a combined key to its fields.
fn combine(fields: &mut Fields, word: &str) -> Result<bool, NoSuchKey> {
    match alone(word) {
        Some(KeyKind::Src(prefix)) => return Ok(fields.add_prefix(Field::Src, prefix)),
        Some(KeyKind::Dst(prefix)) => return Ok(fields.add_prefix(Field::Dst, prefix)),
        Some(KeyKind::Pair) => return Ok(fields.add(Field::Src) & fields.add(Field::Dst)),
        Some(KeyKind::FiveTuple) => {
            let all = [Field::Src, Field::Dst, Field::Sport, Field::Dport];
            return Ok(all
                .into_iter()
                .fold(true, |new, field| new & fields.add(field)));
        }
        Some(KeyKind::Sport | KeyKind::Dport | KeyKind::Proto) | None => {}
        Some(_) => return Err(NoSuchKey::Alone(word.to_owned())),
    }
    let field = Field::named(word).ok_or_else(|| NoSuchKey::Unknown(word.to_owned()))?;
    Ok(fields.add(field))
}

impl FromStr for KeyKind {
    type Err = NoSuchKey;

    fn from_str(text: &str) -> Result<Self, NoSuchKey> {
        if let Some(kind) = alone(text) {
            return Ok(kind);
        }
        let mut fields = Fields::NONE;
        for word in text.split(',') {
            let had_proto = fields.has(Field::Proto);
            // A port brings its protocol, which may be named as well.
            let is_again = word == "proto" && had_proto;
            if !combine(&mut fields, word)? && !is_again {
                return Err(NoSuchKey::Twice(text.to_owned()));
            }
        }
        let whole = fields.prefixes() == (Prefix::ALL, Prefix::ALL);
        match fields.too_many() {
            0 if whole && fields.is(&[Field::Src, Field::Dst]) => Ok(Self::Pair),
            0 if fields.is(&[Field::Sport, Field::Proto]) => Ok(Self::Sport),
            0 if fields.is(&[Field::Dport, Field::Proto]) => Ok(Self::Dport),
            0 => Ok(Self::Fields(fields)),
            bytes => Err(NoSuchKey::TooLong { key: fields, bytes }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flow(src: &str, dst: &str) -> FlowKey {
        let bytes = |text: &str| match text.parse().expect("an address") {
            IpAddr::V4(address) => {
                let mut all = [0; 16];
                all[..4].copy_from_slice(&address.octets());
                (all, 4)
            }
            IpAddr::V6(address) => (address.octets(), 6),
        };
        let ((src, family), (dst, _)) = (bytes(src), bytes(dst));
        FlowKey {
            src,
            dst,
            sport: 1111,
            dport: 53,
            proto: 17,
            family,
            flags: FlowKey::HAS_PORTS,
            reserved: 0,
        }
    }

    #[test]
    fn prefixes_keep_leading_bits() {
        let v4 = flow("10.1.2.203", "192.0.2.77");
        let source = |bits| {
            KeyKind::Src(Prefix::of(bits))
                .project(&v4)
                .source()
                .expect("IPv4")
                .to_string()
        };
        assert_eq!(source(24), "10.1.2.0");
        assert_eq!(source(30), "10.1.2.200");
        assert_eq!(source(1), "0.0.0.0");
        assert_eq!(source(32), "10.1.2.203");
        assert_eq!(source(64), "10.1.2.203");
        let v6 = flow("2001:db8:1:2:3:4:5:6", "2001:db8:ffff:ffff::1");
        let dest = |bits| {
            KeyKind::Dst(Prefix::of(bits))
                .project(&v6)
                .destination()
                .expect("IPv6")
                .to_string()
        };
        assert_eq!(dest(48), "2001:db8:ffff::");
        assert_eq!(dest(33), "2001:db8:8000::");
        assert_eq!(dest(128), "2001:db8:ffff:ffff::1");
        assert_eq!(KeyKind::Dst(Prefix::of(48)).prefix_len(4), Some(32));
        assert_eq!(KeyKind::Dst(Prefix::of(48)).prefix_len(6), Some(48));
        assert_eq!(KeyKind::Dst(Prefix::of(128)).prefix_len(6), None);
    }

    #[test]
    fn a_projection_holds_nothing_but_its_part() {
        let one = flow("10.1.2.3", "192.0.2.7");
        let other = FlowKey {
            dst: flow("10.1.2.3", "192.0.2.8").dst,
            sport: 9,
            dport: 9,
            proto: 6,
            flags: 0,
            ..one
        };
        assert_eq!(
            KeyKind::Src(Prefix::of(128)).project(&one),
            KeyKind::Src(Prefix::of(128)).project(&other)
        );
        assert_ne!(KeyKind::Pair.project(&one), KeyKind::Pair.project(&other));
        assert_ne!(KeyKind::Proto.project(&one), KeyKind::Proto.project(&other));
        let reply = FlowKey {
            src: one.dst,
            dst: one.src,
            sport: one.dport,
            dport: one.sport,
            ..one
        };
        for kind in [KeyKind::Conversation, KeyKind::Hosts] {
            let sides = [&one, &reply].map(|flow| kind.whole(&kind.stored().project(flow)));
            assert_eq!(
                sides.map(|side| side.0),
                [&one, &reply].map(|flow| kind.project(flow))
            );
            assert_eq!(sides[0].0, sides[1].0, "{kind}");
            assert_ne!(sides[0].1, sides[1].1, "{kind}");
            assert_eq!(kind.receiving(&sides[0].0), sides[0].0.turned(), "{kind}");
        }
        assert_ne!(
            KeyKind::FiveTuple.project(&one),
            KeyKind::FiveTuple.project(&reply)
        );
    }

    #[test]
    fn names_are_read_and_written() {
        for text in [
            "5tuple",
            "conversation",
            "pair",
            "src",
            "dst",
            "sport",
            "dport",
            "proto",
            "src/24",
            "dst/48",
            "host",
            "host/24/48",
            "hosts",
            "src/24/48",
            "service",
            "app",
            "mac",
            "name",
            "vlan",
            "src,dport",
            "src/24/56,vlan,tcpflags",
            "src,dst,sport,dport,vlan",
            "interface,direction",
        ] {
            assert_eq!(text.parse::<KeyKind>().expect("a key").to_string(), text);
        }
        for (text, same) in [
            ("dst,src", "pair"),
            ("sport,proto", "sport"),
            ("dport,src", "src,dport"),
            ("src/32/128", "src"),
            ("5tuple,vlan", "src,dst,sport,dport,vlan"),
        ] {
            assert_eq!(text.parse::<KeyKind>().expect("a key").to_string(), same);
        }
        assert_eq!(
            "src/128".parse::<KeyKind>().expect("a key").to_string(),
            "src"
        );
        for text in [
            "",
            "SRC",
            "src/",
            "src/0",
            "src/129",
            "src/+4",
            "sport/8",
            "src/33/64",
            "src/24/",
            "src/24/48/9",
            "5-tuple",
            "src,",
            "src,src/8",
            "host,vlan",
            "name,vlan",
            "vlan,conversation",
            "5tuple,smac",
        ] {
            assert!(text.parse::<KeyKind>().is_err(), "{text}");
        }
    }
}
