//! Layers of the frames of a stream, and the names of their fields.

use super::values::Kind;

/// A layer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layer {
    /// Ethernet (IEEE 802.3).
    Eth,
    /// A VLAN tag (IEEE 802.1Q).
    Vlan,
    /// IPv4 without options (RFC 791).
    Ipv4,
    /// IPv6 without extension headers (RFC 8200).
    Ipv6,
    /// UDP (RFC 768).
    Udp,
    /// TCP without options (RFC 9293).
    Tcp,
    /// ICMP echo (RFC 792).
    Icmp,
    /// ICMPv6 echo (RFC 4443).
    Icmp6,
    /// ARP for Ethernet and IPv4 (RFC 826).
    Arp,
    /// VXLAN (RFC 7348).
    Vxlan,
}

use Layer::*;

/// All layers with their names and the bytes of their headers.
const LAYERS: [(Layer, &str, usize); 10] = [
    (Eth, "eth", 14),
    (Vlan, "vlan", 4),
    (Ipv4, "ipv4", 20),
    (Ipv6, "ipv6", 40),
    (Udp, "udp", 8),
    (Tcp, "tcp", 20),
    (Icmp, "icmp", 8),
    (Icmp6, "icmp6", 8),
    (Arp, "arp", 28),
    (Vxlan, "vxlan", 8),
];

/// Place of a field: a container of whole bytes, and the bits of it that are the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First byte of the container, from the start of the frame.
    pub at: usize,
    /// Bytes of the container: 1, 2, 4, 6 or 16.
    pub width: usize,
    /// Bits of the container after the field.
    pub shift: u32,
    /// Kind of its values.
    pub kind: Kind,
}

/// Layer, name, first byte in the header, bytes of the container, bits after the field, kind.
type Row = (Layer, &'static str, usize, usize, u32, Kind);

const fn number(bits: u32) -> Kind {
    Kind::Number(bits)
}

/// The fields.
const FIELDS: [Row; 47] = [
    (Eth, "dst", 0, 6, 0, Kind::Mac),
    (Eth, "src", 6, 6, 0, Kind::Mac),
    (Eth, "type", 12, 2, 0, number(16)),
    (Vlan, "pcp", 0, 2, 13, number(3)),
    (Vlan, "dei", 0, 2, 12, number(1)),
    (Vlan, "id", 0, 2, 0, number(12)),
    (Vlan, "type", 2, 2, 0, number(16)),
    (Ipv4, "dscp", 1, 1, 2, number(6)),
    (Ipv4, "ecn", 1, 1, 0, number(2)),
    (Ipv4, "id", 4, 2, 0, number(16)),
    (Ipv4, "flags", 6, 2, 13, number(3)),
    (Ipv4, "fragment", 6, 2, 0, number(13)),
    (Ipv4, "ttl", 8, 1, 0, number(8)),
    (Ipv4, "proto", 9, 1, 0, number(8)),
    (Ipv4, "src", 12, 4, 0, Kind::Ipv4),
    (Ipv4, "dst", 16, 4, 0, Kind::Ipv4),
    (Ipv6, "class", 0, 4, 20, number(8)),
    (Ipv6, "flow", 0, 4, 0, number(20)),
    (Ipv6, "next", 6, 1, 0, number(8)),
    (Ipv6, "hops", 7, 1, 0, number(8)),
    (Ipv6, "src", 8, 16, 0, Kind::Ipv6),
    (Ipv6, "dst", 24, 16, 0, Kind::Ipv6),
    (Udp, "src", 0, 2, 0, number(16)),
    (Udp, "dst", 2, 2, 0, number(16)),
    (Tcp, "src", 0, 2, 0, number(16)),
    (Tcp, "dst", 2, 2, 0, number(16)),
    (Tcp, "seq", 4, 4, 0, number(32)),
    (Tcp, "ack", 8, 4, 0, number(32)),
    (Tcp, "flags", 13, 1, 0, Kind::Flags),
    (Tcp, "window", 14, 2, 0, number(16)),
    (Tcp, "urgent", 18, 2, 0, number(16)),
    (Icmp, "type", 0, 1, 0, number(8)),
    (Icmp, "code", 1, 1, 0, number(8)),
    (Icmp, "id", 4, 2, 0, number(16)),
    (Icmp, "seq", 6, 2, 0, number(16)),
    (Icmp6, "type", 0, 1, 0, number(8)),
    (Icmp6, "code", 1, 1, 0, number(8)),
    (Icmp6, "id", 4, 2, 0, number(16)),
    (Icmp6, "seq", 6, 2, 0, number(16)),
    (Arp, "op", 6, 2, 0, number(16)),
    (Arp, "sha", 8, 6, 0, Kind::Mac),
    (Arp, "spa", 14, 4, 0, Kind::Ipv4),
    (Arp, "tha", 18, 6, 0, Kind::Mac),
    (Arp, "tpa", 24, 4, 0, Kind::Ipv4),
    (Vxlan, "flags", 0, 1, 0, number(8)),
    (Vxlan, "vni", 4, 4, 8, number(24)),
    (Vxlan, "reserved", 4, 4, 0, number(8)),
];

/// Layers from the outside in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack(Vec<(Layer, usize)>);

impl Layer {
    /// Name of the layer in texts.
    pub fn name(self) -> &'static str {
        LAYERS[self as usize].1
    }

    /// Bytes of its header.
    pub fn header_len(self) -> usize {
        LAYERS[self as usize].2
    }

    /// Whether `next` may follow; `None`: whether the payload may.
    fn may_precede(self, next: Option<Layer>) -> bool {
        matches!(
            (self, next),
            (Eth | Vlan, Some(Vlan | Ipv4 | Ipv6 | Arp))
                | (Ipv4 | Ipv6, Some(Udp | Tcp))
                | (Ipv4, Some(Icmp))
                | (Ipv6, Some(Icmp6))
                | (Udp, Some(Vxlan))
                | (Vxlan, Some(Eth))
                | (Udp | Tcp | Icmp | Icmp6 | Arp, None)
        )
    }
}

impl Stack {
    /// Reads `eth/ipv4/udp`. **Errors**: what is wrong, and what would be right.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut layers: Vec<(Layer, usize)> = Vec::new();
        let mut at = 0;
        for name in text.split('/') {
            let name = name.trim();
            let found = LAYERS.iter().find(|row| row.1 == name);
            let &(layer, _, len) = found.ok_or_else(|| {
                let names: Vec<&str> = LAYERS.iter().map(|row| row.1).collect();
                format!(
                    "{text:?}: no layer {name:?}: want some of {}, as \"eth/ipv4/udp\"",
                    names.join(" ")
                )
            })?;
            layers.push((layer, at));
            at += len;
            if layers.len() > 12 {
                return Err(format!("{text:?}: too many layers"));
            }
        }
        let stack = Self(layers);
        stack.check().map_err(|why| format!("{text:?}: {why}"))?;
        Ok(stack)
    }

    fn check(&self) -> Result<(), String> {
        if self.0[0].0 != Eth {
            return Err("frames begin with eth".to_owned());
        }
        let count = |layer| self.0.iter().filter(|row| row.0 == layer).count();
        if count(Vxlan) > 1 || count(Vlan) > 2 {
            return Err("at most one vxlan and two vlan are possible".to_owned());
        }
        for (i, &(layer, _)) in self.0.iter().enumerate() {
            let next = self.0.get(i + 1).map(|row| row.0);
            // The sum of an outer datagram is 0 (RFC 7348 section 5), which IPv6 does not allow in general (RFC 6935).
            if next == Some(Vxlan) && i > 0 && self.0[i - 1].0 == Ipv6 {
                return Err("vxlan follows udp over ipv4".to_owned());
            }
            if !layer.may_precede(next) {
                return Err(match next {
                    Some(next) => format!("{} cannot follow {}", next.name(), layer.name()),
                    None => format!("{} cannot be the last layer", layer.name()),
                });
            }
        }
        Ok(())
    }

    /// The layers and the offsets of their headers.
    pub fn layers(&self) -> &[(Layer, usize)] {
        &self.0
    }

    /// Bytes of all headers.
    pub fn len(&self) -> usize {
        self.0
            .last()
            .map_or(0, |&(layer, at)| at + layer.header_len())
    }

    /// Whether it has no layer, which no stack is.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Finds a field: `ipv4.src` is in the innermost layer of the name, `outer.ipv4.src` in the outermost, `at.54.2` two
    /// bytes from byte 54 on. **Errors**: what is wrong, and what would be right.
    pub fn field(&self, name: &str) -> Result<Place, String> {
        if let Some(rest) = name.strip_prefix("at.") {
            return raw(rest).ok_or_else(|| {
                format!(
                    "no field {name}: want at.OFFSET or at.OFFSET.WIDTH, an offset below {} and a width of 1, 2 or 4 bytes",
                    super::SIZE_MAX
                )
            });
        }
        let (is_outer, short) = match name.strip_prefix("outer.") {
            Some(short) => (true, short),
            None => (false, name),
        };
        let row = FIELDS.iter().find(|row| {
            short
                .strip_prefix(row.0.name())
                .and_then(|rest| rest.strip_prefix('.'))
                == Some(row.1)
        });
        let &(layer, _, offset, width, shift, kind) =
            row.ok_or_else(|| format!("no field {name}: want one of {}", self.names()))?;
        let mut places = self.0.iter().filter(|place| place.0 == layer);
        let place = if is_outer {
            places.next()
        } else {
            places.next_back()
        };
        let &(_, at) = place.ok_or_else(|| {
            format!(
                "no {} in these layers: want one of {}",
                layer.name(),
                self.names()
            )
        })?;
        Ok(Place {
            at: at + offset,
            width,
            shift,
            kind,
        })
    }

    /// Names of the fields of these layers.
    fn names(&self) -> String {
        let has = |layer| self.0.iter().any(|place| place.0 == layer);
        let rows = FIELDS.iter().filter(|row| has(row.0));
        let names: Vec<String> = rows
            .map(|row| format!("{}.{}", row.0.name(), row.1))
            .chain(["at.OFFSET".to_owned()])
            .collect();
        names.join(" ")
    }

    /// The headers of a frame, with the usual values. Lengths and sums are 0.
    pub(crate) fn headers(&self) -> Vec<u8> {
        let [from, to] = crate::LINK_ADDRESSES;
        let mut bytes = Vec::new();
        for (i, &(layer, _)) in self.0.iter().enumerate() {
            let next = self.0.get(i + 1).map(|row| row.0);
            match layer {
                Eth => {
                    let to = if next == Some(Arp) { [0xff; 6] } else { to };
                    bytes.extend([to, from].concat());
                    bytes.extend(self.ethertype(i).to_be_bytes());
                }
                Vlan => {
                    bytes.extend(1_u16.to_be_bytes());
                    bytes.extend(self.ethertype(i).to_be_bytes());
                }
                Ipv4 => {
                    // Do not fragment, 64 hops.
                    bytes.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, protocol(next), 0, 0]);
                    bytes.extend([10, 0, 0, 1, 198, 18, 0, 1]);
                }
                Ipv6 => {
                    bytes.extend([0x60, 0, 0, 0, 0, 0, protocol(next), 64]);
                    bytes.extend(((0x2001_0db8_u128 << 96) | 1).to_be_bytes());
                    bytes.extend(((0x2001_0002_u128 << 96) | 1).to_be_bytes());
                }
                Udp => {
                    // The port of discard (RFC 863), or of VXLAN.
                    let ports = if next == Some(Vxlan) {
                        [49_152, 4789]
                    } else {
                        [1024, 9]
                    };
                    bytes.extend(ports.map(u16::to_be_bytes).concat());
                    bytes.extend([0; 4]);
                }
                Tcp => {
                    bytes.extend([1024, 80].map(u16::to_be_bytes).concat());
                    // ACK, the largest window without scaling.
                    bytes.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 0xff, 0xff, 0, 0, 0, 0]);
                }
                Icmp => bytes.extend([8, 0, 0, 0, 0, 1, 0, 1]),
                Icmp6 => bytes.extend([128, 0, 0, 0, 0, 1, 0, 1]),
                Arp => {
                    bytes.extend([0, 1, 8, 0, 6, 4, 0, 1]);
                    bytes.extend(from);
                    bytes.extend([10, 0, 0, 1, 0, 0, 0, 0, 0, 0, 10, 255, 255, 254]);
                }
                Vxlan => bytes.extend([8, 0, 0, 0, 0, 0, 1, 0]),
            }
        }
        bytes
    }

    fn ethertype(&self, i: usize) -> u16 {
        match self.0.get(i + 1).map(|row| row.0) {
            // The outer of two tags is a service tag (IEEE 802.1ad).
            Some(Vlan) if self.0.get(i + 2).map(|row| row.0) == Some(Vlan) => 0x88a8,
            Some(Vlan) => 0x8100,
            Some(Ipv6) => 0x86dd,
            Some(Arp) => 0x0806,
            _ => 0x0800,
        }
    }
}

fn protocol(next: Option<Layer>) -> u8 {
    match next {
        Some(Tcp) => 6,
        Some(Icmp) => 1,
        Some(Icmp6) => 58,
        _ => 17,
    }
}

fn raw(text: &str) -> Option<Place> {
    let (at, width) = text.split_once('.').unwrap_or((text, "1"));
    let at = at.parse().ok().filter(|&at: &usize| at < super::SIZE_MAX)?;
    let width = width
        .parse()
        .ok()
        .filter(|width| matches!(width, 1 | 2 | 4))?;
    Some(Place {
        at,
        width,
        shift: 0,
        kind: Kind::Number(8 * width as u32),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_stand_in_the_order_of_the_layers() {
        for (i, (layer, name, len)) in LAYERS.into_iter().enumerate() {
            assert_eq!(
                (layer as usize, layer.name(), layer.header_len()),
                (i, name, len)
            );
        }
    }

    #[test]
    fn headers_are_as_long_as_said() {
        for text in [
            "eth/arp",
            "eth/vlan/vlan/ipv6/icmp6",
            "eth/ipv4/udp/vxlan/eth/vlan/ipv4/tcp",
            "eth/ipv4/icmp",
        ] {
            let stack = Stack::read(text).unwrap();
            assert_eq!(stack.headers().len(), stack.len(), "{text}");
        }
    }

    #[test]
    fn impossible_layers_are_refused() {
        for (text, part) in [
            ("", "no layer"),
            ("ipv4/udp", "begin with eth"),
            ("eth/ipv4", "cannot be the last"),
            ("eth/udp", "udp cannot follow eth"),
            ("eth/ipv6/icmp", "icmp cannot follow ipv6"),
            ("eth/ipv6/udp/vxlan/eth/arp", "over ipv4"),
            ("eth/ip", "no layer \"ip\""),
            ("eth/vlan/vlan/vlan/arp", "two vlan"),
        ] {
            let error = Stack::read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }

    #[test]
    fn fields_are_those_of_the_inner_layer_unless_outer() {
        let stack = Stack::read("eth/ipv4/udp/vxlan/eth/ipv4/tcp").unwrap();
        let at = |name: &str| stack.field(name).map(|place| place.at);
        assert_eq!(
            (at("ipv4.src"), at("outer.ipv4.src"), at("at.54.2")),
            (Ok(76), Ok(26), Ok(54))
        );
        for (name, part) in [
            ("ipv6.src", "no ipv6"),
            ("ipv4.sorc", "ipv4.src"),
            ("at.9000", "below"),
            ("at.1.3", "1, 2 or 4"),
        ] {
            assert!(at(name).unwrap_err().contains(part), "{name}");
        }
    }
}
