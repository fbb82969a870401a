//! Keys of rows and of triggers: their parts, in JSON and as text.

use serde_json::{Map, Value};
use weir_measure::names::Names;
use weir_measure::owners::Process;
use weir_measure::{
    Field, Fields, KeyKind, Prefix, SIZE_CLASSES, app_name, country_of, mac_of, network_of,
    system_of,
};
use weir_packet::flow::FlowKey;
use weir_packet::savefile::Direction;

/// Name of an IP protocol, or its number.
pub fn proto_name(proto: u8) -> String {
    let name = match proto {
        1 => "icmp",
        2 => "igmp",
        4 => "ipip",
        6 => "tcp",
        17 => "udp",
        33 => "dccp",
        41 => "ipv6",
        47 => "gre",
        50 => "esp",
        51 => "ah",
        58 => "icmp6",
        89 => "ospf",
        103 => "pim",
        112 => "vrrp",
        132 => "sctp",
        136 => "udplite",
        _ => return proto.to_string(),
    };
    name.to_owned()
}

/// Address of one end of a flow, as `kind` keeps it.
pub fn address(kind: KeyKind, key: &FlowKey, source: bool) -> String {
    let address = if source {
        key.source()
    } else {
        key.destination()
    };
    let text = address.map_or(String::new(), |address| address.to_string());
    match kind.prefix_len(key.family) {
        Some(bits) => format!("{text}/{bits}"),
        None => text,
    }
}

/// Port of one end of a flow, if the flow has ports.
pub fn port_of(key: &FlowKey, source: bool) -> Option<u16> {
    key.ports()
        .map(|(sport, dport)| if source { sport } else { dport })
}

/// Port of one end in JSON: a number, or `"-"`.
fn port_json(key: &FlowKey, source: bool) -> Value {
    port_of(key, source).map_or("-".into(), Value::from)
}

/// The parts of a key in JSON. `names` has the texts of names.
pub fn key_json(kind: KeyKind, key: &FlowKey, names: Option<&Names>) -> Map<String, Value> {
    let mut object = Map::new();
    let mut put = |name: &str, value: Value| drop(object.insert(name.to_owned(), value));
    let (src, dst) = (
        || address(kind, key, true).into(),
        || address(kind, key, false).into(),
    );
    match kind {
        KeyKind::FiveTuple | KeyKind::Conversation => {
            put("src", src());
            put("dst", dst());
            put("sport", port_json(key, true));
            put("dport", port_json(key, false));
            put("proto", proto_name(key.proto).into());
            if key.flags & FlowKey::LATER_FRAGMENT != 0 {
                put("fragment", true.into());
            }
        }
        KeyKind::Pair | KeyKind::Hosts => {
            put("src", src());
            put("dst", dst());
        }
        KeyKind::Src(_) => put("src", src()),
        KeyKind::Dst(_) => put("dst", dst()),
        KeyKind::Sport => {
            put("sport", port_json(key, true));
            put("proto", proto_name(key.proto).into());
        }
        KeyKind::Dport => {
            put("dport", port_json(key, false));
            put("proto", proto_name(key.proto).into());
        }
        KeyKind::Proto => put("proto", proto_name(key.proto).into()),
        KeyKind::Host(_) => put("host", src()),
        _ => {
            for (name, value) in further_parts(kind, key, names) {
                put(name, value);
            }
        }
    }
    object
}

/// Names and values of the parts of a key, in their order, for kinds whose tables show the values of JSON.
/// `names` has the texts of names.
pub fn further_parts(
    kind: KeyKind,
    key: &FlowKey,
    names: Option<&Names>,
) -> Vec<(&'static str, Value)> {
    let none = || Value::from("-");
    match kind {
        KeyKind::Service => vec![
            ("service", port_json(key, true)),
            ("proto", proto_name(key.proto).into()),
        ],
        KeyKind::App => vec![("app", app_text(key).into())],
        KeyKind::Mac => vec![("mac", mac_text(mac_of(key)).into())],
        KeyKind::Name => {
            let name = names.and_then(|names| names.text(key));
            let text = name.map_or_else(|| address(kind, key, true), str::to_owned);
            vec![("name", text.into())]
        }
        KeyKind::Process => process_parts(Process::of(key)),
        KeyKind::Container => {
            let name = Process::container_of(key);
            vec![("container", name.map_or_else(none, Value::from))]
        }
        KeyKind::Asn => {
            let (number, name) = match system_of(key) {
                Some((number, name)) => (number.into(), name),
                None => (none(), String::new()),
            };
            let name = if name.is_empty() { none() } else { name.into() };
            vec![("asn", number), ("as_name", name)]
        }
        KeyKind::Country => vec![("country", country_of(key).map_or_else(none, Value::from))],
        KeyKind::Network => {
            let text = |(address, bits)| format!("{address}/{bits}").into();
            vec![("network", network_of(key).map_or_else(none, text))]
        }
        KeyKind::Fields(fields) => fields_parts(fields, key),
        _ => Vec::new(),
    }
}

/// Name and number of a process; packets without a known process have neither.
fn process_parts(process: Process) -> Vec<(&'static str, Value)> {
    let (name, number) = match process.number {
        0 => ("-".to_owned(), "-".into()),
        number => (process.text(), Value::from(number)),
    };
    vec![("process", name.into()), ("pid", number)]
}

/// The registered name of a service, or its protocol and port.
fn app_text(key: &FlowKey) -> String {
    let proto = proto_name(key.proto);
    match (app_name(key), key.ports()) {
        (Some(name), _) => name.to_owned(),
        (None, Some((port, _))) => format!("{proto}/{port}"),
        (None, None) => proto,
    }
}

fn mac_text([a, b, c, d, e, f]: [u8; 6]) -> String {
    format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{f:02x}")
}

fn fields_parts(fields: Fields, key: &FlowKey) -> Vec<(&'static str, Value)> {
    let unpacked = fields.unpack(key);
    let (flow, facts) = (&unpacked.flow, &unpacked.facts);
    let (src, dst) = fields.prefixes();
    let end = |kind: fn(Prefix) -> KeyKind, prefix, source| address(kind(prefix), flow, source);
    let none = || Value::from("-");
    let mut parts = Vec::new();
    for field in fields.iter() {
        let value = match field {
            Field::Src => end(KeyKind::Src, src, true).into(),
            Field::Dst => end(KeyKind::Dst, dst, false).into(),
            Field::Sport => port_json(flow, true),
            Field::Dport => port_json(flow, false),
            Field::Proto => proto_name(flow.proto).into(),
            Field::Smac => facts.smac().map_or_else(none, |mac| mac_text(mac).into()),
            Field::Dmac => facts.dmac().map_or_else(none, |mac| mac_text(mac).into()),
            Field::Vlan => facts.vlan().map_or_else(none, Value::from),
            Field::Mpls => facts.mpls().map_or_else(none, Value::from),
            Field::Vni => facts.vni().map_or_else(none, Value::from),
            Field::Ethertype => facts
                .ethertype()
                .map_or_else(none, |it| ethertype_name(it).into()),
            Field::Dscp => facts.dscp().map_or_else(none, Value::from),
            Field::Ttl => facts.ttl().map_or_else(none, Value::from),
            Field::TcpFlags => facts
                .tcp_flags()
                .map_or_else(none, |it| flags_text(it).into()),
            Field::Size => size_label(unpacked.size.into()).into(),
            Field::Interface => interface_text(&facts.interface).into(),
            Field::Direction => match facts.direction() {
                Some(Direction::In) => "in".into(),
                Some(Direction::Out) => "out".into(),
                None => none(),
            },
        };
        parts.push((field.name(), value));
        if matches!(field, Field::Sport | Field::Dport) && !parts.iter().any(|it| it.0 == "proto") {
            parts.push(("proto", proto_name(flow.proto).into()));
        }
    }
    parts
}

/// Name of an EtherType, or its number: `arp`, `0x88b5`. **Source**: IEEE 802 Numbers of IANA; linux/if_ether.h.
fn ethertype_name(value: u16) -> String {
    let name = match value {
        0x0800 => "ip",
        0x0806 => "arp",
        0x8035 => "rarp",
        0x809b => "appletalk",
        0x8137 => "ipx",
        0x86dd => "ip6",
        0x8808 => "pause",
        0x8809 => "lacp",
        0x8847 => "mpls",
        0x8848 => "mpls-multicast",
        0x8863 => "pppoe-discovery",
        0x8864 => "pppoe",
        0x8903 => "fabricpath",
        0x888e => "eapol",
        0x88a2 => "aoe",
        0x88cc => "lldp",
        0x88e5 => "macsec",
        0x88f7 => "ptp",
        0x8902 => "cfm",
        0x8906 => "fcoe",
        0x9000 => "loopback",
        _ => return format!("0x{value:04x}"),
    };
    name.to_owned()
}

/// TCP flags in the letters of tcpdump: `S`, `S.`, `F.`; `none` without any.
fn flags_text(flags: u16) -> String {
    /// Letters in the order in which tcpdump prints them.
    const LETTERS: [(u16, char); 9] = [
        (1 << 0, 'F'),
        (1 << 1, 'S'),
        (1 << 2, 'R'),
        (1 << 3, 'P'),
        (1 << 4, '.'),
        (1 << 5, 'U'),
        (1 << 6, 'E'),
        (1 << 7, 'W'),
        (1 << 8, 'e'),
    ];
    let set = LETTERS.iter().filter(|(bit, _)| flags & bit != 0);
    let text: String = set.map(|(_, letter)| *letter).collect();
    if text.is_empty() {
        "none".to_owned()
    } else {
        text
    }
}

/// Name of an interface, or `-` if the capture does not tell. Control characters and bytes outside UTF-8 are replaced.
fn interface_text(name: &[u8; 16]) -> String {
    let end = name
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(name.len());
    let text = String::from_utf8_lossy(&name[..end]);
    let shown = text.chars().map(|letter| match letter.is_control() {
        true => char::REPLACEMENT_CHARACTER,
        false => letter,
    });
    if end == 0 {
        "-".to_owned()
    } else {
        shown.collect()
    }
}

/// Name of a key in one line. **Cost**: allocates.
pub fn name(kind: KeyKind, key: &FlowKey) -> String {
    let both = |middle: &str| {
        let ends = [true, false].map(|source| endpoint(kind, key, source));
        let proto = match kind {
            KeyKind::FiveTuple | KeyKind::Conversation => format!(" {}", proto_name(key.proto)),
            _ => String::new(),
        };
        format!("{} {middle} {}{proto}", ends[0], ends[1])
    };
    match kind {
        KeyKind::Conversation | KeyKind::Hosts => both("<>"),
        KeyKind::FiveTuple | KeyKind::Pair => both(">"),
        KeyKind::Src(_) | KeyKind::Host(_) => address(kind, key, true),
        KeyKind::Dst(_) => address(kind, key, false),
        KeyKind::Proto => proto_name(key.proto),
        KeyKind::Sport => port_words(key, true),
        KeyKind::Dport => port_words(key, false),
        KeyKind::Service => match port_of(key, true) {
            Some(port) => match weir_measure::service_name(port, key.proto) {
                Some(name) => format!("{name} {}/{port}", proto_name(key.proto)),
                None => format!("{}/{port}", proto_name(key.proto)),
            },
            None => proto_name(key.proto),
        },
        kind => {
            let parts = further_parts(kind, key, None).into_iter();
            let words = parts.map(|(_, value)| match value.as_str() {
                Some(text) => text.to_owned(),
                None => value.to_string(),
            });
            words.collect::<Vec<_>>().join(" ")
        }
    }
}

fn port_words(key: &FlowKey, source: bool) -> String {
    let proto = proto_name(key.proto);
    port_of(key, source).map_or(proto.clone(), |port| format!("{proto}/{port}"))
}

/// Address and port of one end.
fn endpoint(kind: KeyKind, key: &FlowKey, source: bool) -> String {
    let text = address(kind, key, source);
    match port_of(key, source) {
        Some(port) if key.family == 6 => format!("[{text}]:{port}"),
        Some(port) => format!("{text}:{port}"),
        None => text,
    }
}

/// Name of a class of packet lengths, bytes: `65-127`.
pub fn size_label(class: usize) -> String {
    let from = if class == 0 {
        0
    } else {
        SIZE_CLASSES[class - 1] + 1
    };
    match SIZE_CLASSES.get(class) {
        Some(to) => format!("{from}-{to}"),
        None => format!("{from}-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_have_the_letters_and_the_order_of_tcpdump() {
        for (flags, text) in [
            (0x002, "S"),
            (0x012, "S."),
            (0x010, "."),
            (0x011, "F."),
            (0x004, "R"),
            (0x018, "P."),
            (0x0c2, "SEW"),
            (0x100, "e"),
            (0, "none"),
        ] {
            assert_eq!(flags_text(flags), text);
        }
    }

    #[test]
    fn names_of_interfaces_carry_no_control_characters() {
        let name = |text: &[u8]| {
            let mut name = [0; 16];
            name[..text.len()].copy_from_slice(text);
            interface_text(&name)
        };
        assert_eq!(name(b"eth0"), "eth0");
        assert_eq!(name(b""), "-");
        assert_eq!(name(b"0123456789abcdef"), "0123456789abcdef");
        assert_eq!(name(b"a\x1b[31m\xff"), "a\u{fffd}[31m\u{fffd}");
    }
}
