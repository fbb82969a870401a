//! Kinds of key: parts of the flow key that a table counts.

use core::fmt;
use core::str::FromStr;
use weir_packet::flow::FlowKey;
use weir_packet::suggestions::did_you_mean;

/// Part of a packet's flow key that is counted. Every kind but [`KeyKind::Conversation`] is directional.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyKind {
    /// Addresses, ports and protocol.
    FiveTuple,
    /// A 5-tuple and its reverse as one.
    Conversation,
    /// Source and destination address.
    Pair,
    /// Source address, cut to this number of leading bits; an address with fewer bits is kept whole.
    Src(u8),
    /// Destination address, cut in the same way.
    Dst(u8),
    /// Source port and protocol.
    Sport,
    /// Destination port and protocol.
    Dport,
    /// IP protocol.
    Proto,
}

/// Bits of the longest address.
const ALL_BITS: u8 = 128;

impl KeyKind {
    /// The whole source address.
    pub const SRC: Self = Self::Src(ALL_BITS);
    /// The whole destination address.
    pub const DST: Self = Self::Dst(ALL_BITS);

    /// Kinds without a parameter, with their names.
    pub const NAMES: [(&'static str, Self); 8] = [
        ("5tuple", Self::FiveTuple),
        ("conversation", Self::Conversation),
        ("pair", Self::Pair),
        ("src", Self::SRC),
        ("dst", Self::DST),
        ("sport", Self::Sport),
        ("dport", Self::Dport),
        ("proto", Self::Proto),
    ];

    /// Returns the counted part of `flow`; the rest is zero.
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
            Self::Conversation => flow.canonical(),
            Self::Pair => FlowKey {
                src,
                dst,
                family,
                ..FlowKey::NONE
            },
            Self::Src(bits) => FlowKey {
                src: prefix(src, family, bits),
                family,
                ..FlowKey::NONE
            },
            Self::Dst(bits) => FlowKey {
                dst: prefix(dst, family, bits),
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
        }
    }

    /// Returns the prefix length of an address of `family`, or `None` if the kind is not a prefix.
    pub fn prefix_len(self, family: u8) -> Option<u8> {
        match self {
            Self::Src(bits) | Self::Dst(bits) if bits < ALL_BITS => Some(bits.min(width(family))),
            _ => None,
        }
    }
}

fn width(family: u8) -> u8 {
    if family == 4 { 32 } else { ALL_BITS }
}

#[inline(always)]
fn prefix(address: [u8; 16], family: u8, bits: u8) -> [u8; 16] {
    if bits >= width(family) {
        return address;
    }
    let kept = u128::from_ne_bytes((!(u128::MAX >> bits)).to_be_bytes());
    (u128::from_ne_bytes(address) & kept).to_ne_bytes()
}

impl fmt::Display for KeyKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (Self::NAMES.iter().find(|(_, kind)| kind == self), self) {
            (Some((name, _)), _) => f.write_str(name),
            (None, Self::Src(bits)) => write!(f, "src/{bits}"),
            (None, Self::Dst(bits)) => write!(f, "dst/{bits}"),
            (None, _) => unreachable!("every other kind has a name"),
        }
    }
}

/// Error: the text does not name any kind of key.
#[derive(Clone, Debug, thiserror::Error)]
#[error(
    "unknown key '{0}'{near}: 5tuple, conversation, pair, src, dst, sport, dport, proto, or a prefix such as src/24, dst/48",
    near = meant(.0)
)]
pub struct NoSuchKey(String);

/// Words on the key that was most likely meant; empty if none is near.
fn meant(text: &str) -> String {
    match text.contains(',') {
        true => format!(
            " (give each its own flag: --key {})",
            text.replace(',', " --key ")
        ),
        false => did_you_mean(text, KeyKind::NAMES.iter().map(|(name, _)| *name)),
    }
}

impl FromStr for KeyKind {
    type Err = NoSuchKey;

    fn from_str(text: &str) -> Result<Self, NoSuchKey> {
        if let Some((_, kind)) = Self::NAMES.iter().find(|(name, _)| *name == text) {
            return Ok(*kind);
        }
        let no_such = || NoSuchKey(text.to_owned());
        let (name, bits) = text.split_once('/').ok_or_else(no_such)?;
        let digits = bits.bytes().all(|byte| byte.is_ascii_digit());
        let bits: u8 = bits
            .parse()
            .ok()
            .filter(|bits| digits && (1..=ALL_BITS).contains(bits))
            .ok_or_else(no_such)?;
        match name {
            "src" => Ok(Self::Src(bits)),
            "dst" => Ok(Self::Dst(bits)),
            _ => Err(no_such()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::IpAddr;

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
            KeyKind::Src(bits)
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
            KeyKind::Dst(bits)
                .project(&v6)
                .destination()
                .expect("IPv6")
                .to_string()
        };
        assert_eq!(dest(48), "2001:db8:ffff::");
        assert_eq!(dest(33), "2001:db8:8000::");
        assert_eq!(dest(128), "2001:db8:ffff:ffff::1");
        assert_eq!(KeyKind::Dst(48).prefix_len(4), Some(32));
        assert_eq!(KeyKind::Dst(48).prefix_len(6), Some(48));
        assert_eq!(KeyKind::Dst(128).prefix_len(6), None);
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
            KeyKind::Src(128).project(&one),
            KeyKind::Src(128).project(&other)
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
        assert_eq!(
            KeyKind::Conversation.project(&one),
            KeyKind::Conversation.project(&reply)
        );
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
        ] {
            assert_eq!(text.parse::<KeyKind>().expect("a key").to_string(), text);
        }
        assert_eq!(
            "src/128".parse::<KeyKind>().expect("a key").to_string(),
            "src"
        );
        for text in [
            "", "SRC", "src/", "src/0", "src/129", "src/+4", "sport/8", "src/24/8", "5-tuple",
        ] {
            assert!(text.parse::<KeyKind>().is_err(), "{text}");
        }
    }
}
