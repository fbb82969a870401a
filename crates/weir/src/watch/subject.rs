//! Packets of a row, a finding or a host: their expression, and the figures that tell how many they are.

use crate::cli::query::between;
use std::net::IpAddr;
use weir_measure::{Counts, KeyKind, Prefix};
use weir_packet::flow::FlowKey;
use weir_screen::{Id, Subject};
use weir_view::{Finding, Row, Snapshot, State};

/// Protocols whose ports expressions know.
const WITH_PORTS: [u8; 3] = [6, 17, 132];

/// Expression of tcpdump for the packets of a subject; empty: all packets. **Errors**: expressions know no such packets.
pub fn expression(subject: &Subject, finding: Option<&Finding>) -> Result<String, String> {
    Ok(match subject {
        Subject::All => String::new(),
        Subject::Host(host) => format!("host {host}"),
        Subject::Service(port, proto) => format!("{} port {port}", protocol(*proto)),
        Subject::Finding(_) => {
            let host = finding.and_then(|finding| finding.host);
            host.map_or(String::new(), |host| format!("host {host}"))
        }
        Subject::Row(Id::Server(server)) => format!("host {server} and port 53"),
        Subject::Row(Id::Name(_)) => {
            return Err("expressions know no DNS names: choose the server of the name".to_owned());
        }
        Subject::Row(Id::Tcp(key)) => both_ways(key),
        Subject::Row(Id::Key(kind, key)) => of_key(*kind, key).ok_or_else(|| {
            format!(
                "expressions know no packets by {kind}: choose a host, a conversation or a service"
            )
        })?,
    })
}

fn of_key(kind: KeyKind, key: &FlowKey) -> Option<String> {
    let (source, destination) = (key.source(), key.destination());
    Some(match kind {
        KeyKind::Host(prefix) => place("", source?, prefix),
        KeyKind::Src(prefix) => place("src ", source?, prefix),
        KeyKind::Dst(prefix) => place("dst ", destination?, prefix),
        KeyKind::Hosts => format!("host {} and host {}", source?, destination?),
        KeyKind::Pair => format!("src host {} and dst host {}", source?, destination?),
        KeyKind::Conversation => both_ways(key),
        KeyKind::FiveTuple => one_way(key)?,
        KeyKind::Proto => protocol(key.proto),
        KeyKind::Sport => port(key, "src port")?,
        KeyKind::Dport => port(key, "dst port")?,
        KeyKind::Service => match key.ports() {
            Some(_) => port(key, "port")?,
            None => protocol(key.proto),
        },
        _ => return None,
    })
}

fn place(way: &str, address: IpAddr, prefix: Prefix) -> String {
    let (family, most) = if address.is_ipv4() { (4, 32) } else { (6, 128) };
    match prefix.bits(family) {
        bits if bits == most => format!("{way}host {address}"),
        bits => format!("{way}net {address}/{bits}"),
    }
}

fn protocol(number: u8) -> String {
    let name = match number {
        1 => "icmp",
        6 => "tcp",
        17 => "udp",
        58 => "icmp6",
        132 => "sctp",
        number => return format!("proto {number}"),
    };
    name.to_owned()
}

/// Ports of a key, if expressions know them.
fn ports(key: &FlowKey) -> Option<(u16, u16)> {
    key.ports().filter(|_| WITH_PORTS.contains(&key.proto))
}

/// The port of a key that has one, in its place for the source or the destination.
fn port(key: &FlowKey, words: &str) -> Option<String> {
    let (source, destination) = ports(key)?;
    let port = match words {
        "dst port" => destination,
        _ => source,
    };
    Some(format!("{} and {words} {port}", protocol(key.proto)))
}

fn both_ways(key: &FlowKey) -> String {
    let (Some(source), Some(destination)) = (key.source(), key.destination()) else {
        return protocol(key.proto);
    };
    let (from, to) = ports(key).unzip();
    between(
        (source, from),
        (destination, to),
        Some(&protocol(key.proto)),
    )
}

fn one_way(key: &FlowKey) -> Option<String> {
    let mut words = format!(
        "{} and src host {} and dst host {}",
        protocol(key.proto),
        key.source()?,
        key.destination()?
    );
    if let Some((from, to)) = ports(key) {
        words.push_str(&format!(" and src port {from} and dst port {to}"));
    }
    Some(words)
}

/// A short name of a subject, for the name of a file.
pub fn label(subject: &Subject, finding: Option<&Finding>) -> String {
    let words = match subject {
        Subject::Finding(_) => match finding.map(|finding| (finding.kind, finding.host)) {
            Some((kind, Some(host))) => format!("{} {host}", kind.name()),
            Some((kind, None)) => kind.name().to_owned(),
            None => String::new(),
        },
        Subject::Row(Id::Key(KeyKind::Conversation, key) | Id::Tcp(key)) => {
            let end = |address: Option<IpAddr>, port: Option<u16>| {
                let port = port.map_or(String::new(), |port| format!(" {port}"));
                format!(
                    "{}{port}",
                    address.map_or(String::new(), |it| it.to_string())
                )
            };
            let (from, to) = ports(key).unzip();
            format!("{} {}", end(key.source(), from), end(key.destination(), to))
        }
        other => match expression(other, None) {
            Ok(words) if words.is_empty() => "all".to_owned(),
            Ok(words) => words.replace(" and ", " ").replace("host ", ""),
            Err(_) => String::new(),
        },
    };
    let kept = |c: char| match c {
        c if c.is_ascii_alphanumeric() || c == '.' || c == '_' => c,
        _ => '-',
    };
    words.chars().map(kept).take(60).collect()
}

/// Finding of a subject that is one.
pub fn finding<'a>(subject: &Subject, snapshot: &'a Snapshot) -> Option<&'a Finding> {
    let Subject::Finding(number) = subject else {
        return None;
    };
    snapshot.findings.iter().find(|it| it.number == *number)
}

/// First and last time of the wanted packets, ns since 1970: of all points of the snapshot, or of its step; of a finding, its time.
pub fn times(finding: Option<&Finding>, snapshot: &Snapshot, all: bool) -> (i64, i64) {
    // A step ends before its end, except at the last time there is.
    let last = match snapshot.to_ns {
        i64::MAX => i64::MAX,
        to_ns => to_ns - 1,
    };
    match finding {
        Some(finding) if finding.state == State::Begun => {
            (finding.begin_ns, last.max(finding.last_ns))
        }
        Some(finding) => (finding.begin_ns, finding.last_ns - 1),
        None if all => {
            let first = snapshot.points.first().map(|point| point.from_ns);
            (first.unwrap_or(snapshot.from_ns), last)
        }
        None => (snapshot.from_ns, last),
    }
}

/// Packets and bytes of a subject in the step of a snapshot, or in `all` of its steps; `None` if no table counts them.
pub fn counts(subject: &Subject, snapshot: &Snapshot, all: bool) -> Option<Counts> {
    let sum = |counts: &mut dyn Iterator<Item = Counts>| {
        counts.fold(Counts::default(), |sum, next| Counts {
            packets: sum.packets + next.packets,
            bytes: sum.bytes + next.bytes,
        })
    };
    let of_row = |row: &Row| match all {
        true => sum(&mut row.history.iter().flatten().copied()),
        false => row.listed.counts,
    };
    let find = |kind: KeyKind, is_it: &dyn Fn(&FlowKey) -> bool| {
        let table = snapshot.tables.iter().find(|table| table.kind == kind)?;
        let row = table.rows.iter().find(|row| is_it(&row.listed.key));
        row.map(of_row)
    };
    match subject {
        Subject::All if all => Some(sum(&mut snapshot
            .points
            .iter()
            .map(|it| it.totals.measured))),
        Subject::All => Some(snapshot.totals.measured),
        Subject::Row(Id::Key(kind, key)) => find(*kind, &|other| other == key),
        Subject::Row(Id::Tcp(key)) => find(KeyKind::Conversation, &|other| {
            other.canonical() == key.canonical()
        }),
        Subject::Host(host) => find(KeyKind::HOST, &|key| key.source() == Some(*host)),
        Subject::Service(port, proto) => find(KeyKind::Service, &|key| {
            key.proto == *proto && key.ports().is_some_and(|(own, _)| own == *port)
        }),
        // The table of servers has no bytes, and findings are longer than a step.
        Subject::Row(Id::Server(_) | Id::Name(_)) | Subject::Finding(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_filter::Names;
    use weir_pipeline::select;

    fn key(proto: u8) -> FlowKey {
        let mut key = FlowKey {
            sport: 40000,
            dport: 443,
            proto,
            family: 4,
            flags: FlowKey::HAS_PORTS,
            ..FlowKey::NONE
        };
        let ends = [[10, 0, 0, 0], [11, 0, 0, 0]];
        key.src[..4].copy_from_slice(&ends[0]);
        key.dst[..4].copy_from_slice(&ends[1]);
        if key.source() != Some(IpAddr::from(ends[0])) {
            // Addresses of IPv4 lie at the end.
            (key.src, key.dst) = ([0; 16], [0; 16]);
            key.src[12..].copy_from_slice(&ends[0]);
            key.dst[12..].copy_from_slice(&ends[1]);
        }
        key
    }

    #[test]
    fn expressions_of_keys_make_sense_to_libpcap() {
        let kinds = "5tuple conversation pair hosts src dst host src/24 dst/16 host/8 sport dport service proto";
        for kind in kinds.split(' ') {
            let kind: KeyKind = kind.parse().unwrap_or_else(|_| panic!("{kind}"));
            for proto in [1, 6, 17, 33, 47, 58, 132] {
                let id = Id::Key(kind, key(proto));
                let has_none = matches!(kind, KeyKind::Sport | KeyKind::Dport | KeyKind::Service);
                match expression(&Subject::Row(id), None) {
                    Ok(words) => {
                        assert!(select::check(&words, &Names::default()).is_ok(), "{words}")
                    }
                    Err(why) => assert!(has_none && !WITH_PORTS.contains(&proto), "{why}"),
                }
            }
        }
        let of = |kind| of_key(kind, &key(6)).unwrap();
        assert_eq!(of(KeyKind::HOST), "host 10.0.0.0");
        assert_eq!(of(KeyKind::Dport), "tcp and dst port 443");
        assert_eq!(of(KeyKind::Src(Prefix::of(8))), "src net 10.0.0.0/8");
    }

    #[test]
    fn labels_are_names_of_files() {
        let conversation = Subject::Row(Id::Key(KeyKind::Conversation, key(6)));
        assert_eq!(label(&conversation, None), "10.0.0.0-40000-11.0.0.0-443");
        let host = Subject::Host("fe80::1".parse().unwrap());
        assert_eq!(label(&host, None), "fe80--1");
        assert_eq!(label(&Subject::All, None), "all");
        assert_eq!(label(&Subject::Service(53, 17), None), "udp-port-53");
    }
}
