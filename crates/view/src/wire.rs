//! Snapshots as bytes, for viewers in other processes.
//!
//! ```text
//! snapshot  = format (1 byte), and its parts in the order of their declaration
//! number    = 7-bit groups, the lowest first; signed numbers as zigzag
//! list      = number of elements, elements
//! text      = number of bytes, UTF-8
//! row       = as in a complete step
//! ```
//!
//! Bytes of another process are claims: no length leads to more memory than [`LONGEST`] allows, and values that cannot be are refused.

use crate::findings::{Finding, Kind, State};
use crate::packed;
use crate::seen::Seen;
use crate::snapshot::{Point, Row, Snapshot, Table};
use crate::step::{Rest, Totals};
use crate::tier::Span;
use crate::varint::{self, Bytes};
use std::net::IpAddr;
use weir_measure::health::{self, dns, path, tcp};
use weir_measure::{Arrivals, BoundKind, Change, Counts, KeyKind, Keyless, Weigh};
use weir_packet::dns::Name;
use weir_packet::flow::FlowKey;

/// Number of this form; bytes of other forms are refused.
const FORMAT: u8 = 2;

/// Most bytes of a snapshot that is read.
pub const LONGEST: usize = 2 << 20;

/// Most elements of a list.
const MOST: u64 = 1 << 12;

impl Snapshot {
    /// Returns the snapshot as bytes. The names of its health are left out. **Cost**: of the rows, about 100 bytes each.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut out = vec![FORMAT];
        self.put(&mut out);
        out
    }

    /// Reads a snapshot from bytes; `None` if they are none of this form.
    pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
        if bytes.len() > LONGEST || bytes.first() != Some(&FORMAT) {
            return None;
        }
        let mut from = Bytes::new(&bytes[1..]);
        let snapshot = Self::take(&mut from);
        (!from.is_wrong && from.rest.is_empty()).then_some(snapshot)
    }
}

/// Returns a report of health in bytes, without its names.
pub(crate) fn health_bytes(report: &health::Report) -> Box<[u8]> {
    let mut out = Vec::new();
    report.put(&mut out);
    out.into_boxed_slice()
}

/// Reads a report of health from its bytes.
pub(crate) fn health_of(bytes: &[u8]) -> health::Report {
    health::Report::take(&mut Bytes::new(bytes))
}

/// A value with a form in bytes.
trait Wire: Sized {
    fn put(&self, out: &mut Vec<u8>);

    /// Takes a value; some value, if the bytes are wrong.
    fn take(from: &mut Bytes<'_>) -> Self;
}

/// Structures whose parts follow one another.
macro_rules! parts {
    ($($name:path { $($part:ident),* $(,)? })*) => {$(
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let Self { $($part),* } = self;
                $($part.put(out);)*
            }

            fn take(from: &mut Bytes<'_>) -> Self {
                Self { $($part: Wire::take(from)),* }
            }
        }
    )*};
}

parts! {
    Snapshot {
        span, from_ns, to_ns, is_last, neighbours, restarts, windows, untimed, totals, tables, points, health, findings,
    }
    Point { from_ns, to_ns, totals }
    Totals { arrivals, measured, keyless, left_out, covered_ns }
    Arrivals {
        received, filtered, denied, late, jumped, beyond, dropped, rx, tx, local, broadcast, multicast,
    }
    Counts { packets, bytes }
    Keyless { not_ip, truncated, malformed, link_type }
    Rest { counts, at_most, kind }
    Seen { first_ns, last_ns, peak_bits_per_s, peak_ns, turn }
    Change { key, before, after, lower, upper, kind }
    Finding { number, kind, host, begin_ns, last_ns, state, figure, most, row }
    tcp::Report { numbers, sum, rows, capacity }
    tcp::Numbers { conversations, midway, evicted, evicted_retransmitted, unjudged }
    tcp::Row { key, first_ns, latest_ns, begun, handshake_ns, directions }
    tcp::Figures {
        packets, bytes, retransmitted, retransmitted_bytes, fast, spurious, repeated, out_of_order, duplicate_acks,
        zero_windows, resets, gaps, untimed, rtt,
    }
    tcp::Rtt { count, sum_ns, min_ns, max_ns }
    dns::Report {
        sum, servers, slow, failing, unanswered, capacity, evicted_names, evicted_servers, evicted_queries, unread,
    }
    dns::ServerRow { server, figures }
    dns::NameRow { name, figures }
    dns::Figures { queries, retransmitted, codes, repeated, unasked, unanswered, times }
    path::Report { fragments, all_fragments, too_big, all_too_big }
    path::Fragments { source, destination, proto, fragments, packets, bytes }
    path::TooBig { router, destination, mtu, messages }
}

impl Wire for Table {
    fn put(&self, out: &mut Vec<u8>) {
        let Self {
            kind,
            by,
            covered_ns,
            rows,
            rest,
            whole,
            changes,
            forgotten,
        } = self;
        kind.put(out);
        by.put(out);
        covered_ns.put(out);
        varint::put(out, rows.len() as u64);
        for row in rows {
            packed::put_row(out, &row.listed, *by);
            row.seen.put(out);
            row.history.put(out);
        }
        rest.put(out);
        whole.put(out);
        changes.put(out);
        forgotten.put(out);
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        let (kind, by) = (Wire::take(from), Wire::take(from));
        Self {
            kind,
            by,
            covered_ns: Wire::take(from),
            rows: list(from, |from| Row {
                listed: packed::row(from, by),
                seen: Wire::take(from),
                history: Wire::take(from),
            }),
            rest: Wire::take(from),
            whole: Wire::take(from),
            changes: Wire::take(from),
            forgotten: Wire::take(from),
        }
    }
}

impl Wire for health::Report {
    fn put(&self, out: &mut Vec<u8>) {
        let Self {
            most,
            tcp,
            dns,
            path,
            names: _,
        } = self;
        (*most as u64).put(out);
        tcp.put(out);
        dns.put(out);
        path.put(out);
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        Self {
            most: usize::try_from(u64::take(from)).unwrap_or(usize::MAX),
            tcp: Wire::take(from),
            dns: Wire::take(from),
            path: Wire::take(from),
            names: None,
        }
    }
}

impl Wire for dns::Times {
    fn put(&self, out: &mut Vec<u8>) {
        self.count.put(out);
        self.sum_ns.put(out);
        self.max_ns.put(out);
        varint::put(out, self.classes().count() as u64);
        for (class, count) in self.classes() {
            (class as u64).put(out);
            count.put(out);
        }
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        let mut times = Self::default();
        times.count = Wire::take(from);
        times.sum_ns = Wire::take(from);
        times.max_ns = Wire::take(from);
        for (class, count) in list(from, |from| (u64::take(from), u32::take(from))) {
            from.is_wrong |= class >= Self::CLASSES as u64;
            times.set_class(class as usize, count);
        }
        times
    }
}

/// Takes a list, whose elements have one byte or more.
fn list<T>(from: &mut Bytes<'_>, mut take: impl FnMut(&mut Bytes<'_>) -> T) -> Vec<T> {
    let count = from.number();
    if count > MOST || count > from.rest.len() as u64 {
        from.is_wrong = true;
    }
    let mut all = Vec::new();
    for _ in 0..count {
        if from.is_wrong {
            break;
        }
        all.push(take(from));
    }
    all
}

impl<T: Wire> Wire for Vec<T> {
    fn put(&self, out: &mut Vec<u8>) {
        varint::put(out, self.len() as u64);
        self.iter().for_each(|one| one.put(out));
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        list(from, T::take)
    }
}

impl<T: Wire> Wire for Option<T> {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_some().put(out);
        if let Some(value) = self {
            value.put(out);
        }
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        bool::take(from).then(|| T::take(from))
    }
}

impl<T: Wire, const N: usize> Wire for [T; N] {
    fn put(&self, out: &mut Vec<u8>) {
        self.iter().for_each(|one| one.put(out));
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        std::array::from_fn(|_| T::take(from))
    }
}

impl Wire for u64 {
    fn put(&self, out: &mut Vec<u8>) {
        varint::put(out, *self);
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        from.number()
    }
}

/// Numbers that are written as longer ones.
macro_rules! narrow {
    ($($name:ty)*) => {$(
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                varint::put(out, u64::from(*self));
            }

            fn take(from: &mut Bytes<'_>) -> Self {
                Self::try_from(from.number()).unwrap_or_else(|_| {
                    from.is_wrong = true;
                    0
                })
            }
        }
    )*};
}

narrow!(u8 u32);

impl Wire for i64 {
    fn put(&self, out: &mut Vec<u8>) {
        varint::put(out, (self.wrapping_shl(1) ^ (self >> 63)) as u64);
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        let number = from.number();
        (number >> 1) as Self ^ -((number & 1) as Self)
    }
}

impl Wire for f64 {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.to_le_bytes());
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        Self::from_le_bytes(from.array())
    }
}

impl Wire for String {
    fn put(&self, out: &mut Vec<u8>) {
        varint::put(out, self.len() as u64);
        out.extend(self.as_bytes());
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        let count = from.number();
        let text = str::from_utf8(from.slice(count));
        from.is_wrong |= text.is_err();
        text.unwrap_or_default().to_owned()
    }
}

impl Wire for IpAddr {
    fn put(&self, out: &mut Vec<u8>) {
        self.is_ipv6().put(out);
        match self {
            Self::V4(address) => out.extend(address.octets()),
            Self::V6(address) => out.extend(address.octets()),
        }
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        match bool::take(from) {
            false => from.array::<4>().into(),
            true => from.array::<16>().into(),
        }
    }
}

impl Wire for FlowKey {
    fn put(&self, out: &mut Vec<u8>) {
        packed::put_key(out, self);
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        packed::key(from)
    }
}

impl Wire for Name {
    fn put(&self, out: &mut Vec<u8>) {
        let wire = self.as_wire();
        out.push(wire.len() as u8);
        out.extend(wire);
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        let count = from.byte();
        let wire = from.slice(count.into());
        let name = Self::read(wire, 0)
            .ok()
            .filter(|(name, _)| name.as_wire() == wire);
        from.is_wrong |= name.is_none();
        name.map_or(Self::ROOT, |(name, _)| name)
    }
}

impl Wire for KeyKind {
    fn put(&self, out: &mut Vec<u8>) {
        self.to_string().put(out);
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        String::take(from).parse().unwrap_or_else(|_| {
            from.is_wrong = true;
            Self::FiveTuple
        })
    }
}

impl Wire for BoundKind {
    fn put(&self, out: &mut Vec<u8>) {
        out.push(packed::number_of(*self));
        if let Self::Probabilistic { confidence } = self {
            confidence.put(out);
        }
    }

    fn take(from: &mut Bytes<'_>) -> Self {
        match from.byte() {
            0 => Self::Exact,
            1 => Self::Deterministic,
            2 => Self::Probabilistic {
                confidence: Wire::take(from),
            },
            number => {
                from.is_wrong |= number > 3;
                Self::None
            }
        }
    }
}

/// Choices that are written as their number in a list.
macro_rules! choices {
    ($($name:ty: [$($one:path),* $(,)?])*) => {$(
        impl Wire for $name {
            fn put(&self, out: &mut Vec<u8>) {
                let all = [$($one),*];
                let number = all.iter().position(|one| one == self);
                out.push(number.expect("the list has all choices") as u8);
            }

            fn take(from: &mut Bytes<'_>) -> Self {
                let all = [$($one),*];
                let number = usize::from(from.byte());
                from.is_wrong |= number >= all.len();
                all[number.min(all.len() - 1)]
            }
        }
    )*};
}

choices! {
    bool: [FALSE, TRUE]
    Span: [Span::Second, Span::TenSeconds, Span::Minute]
    Weigh: [Weigh::Packets, Weigh::Bytes]
    State: [State::Begun, State::Ended, State::Open]
    Kind: [Kind::Scan, Kind::Flood, Kind::Storm, Kind::SlowDns, Kind::Loss, Kind::NewHost]
}

const FALSE: bool = false;
const TRUE: bool = true;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzz_body;
    use crate::step::Listed;
    use weir_measure::{Bound, Sides};
    use weir_testkit::Random;

    fn counts(packets: u64) -> Counts {
        Counts {
            packets,
            bytes: packets * 100,
        }
    }

    fn row(number: u8) -> Row {
        let mut key = FlowKey {
            family: 4,
            ..FlowKey::NONE
        };
        key.src[..4].copy_from_slice(&[10, 0, 0, number]);
        Row {
            listed: Listed {
                key,
                counts: counts(7),
                bound: Bound {
                    kind: BoundKind::Probabilistic { confidence: 0.5 },
                    lower: 650,
                    upper: 720,
                },
                companion: Bound {
                    kind: BoundKind::None,
                    lower: 0,
                    upper: u64::MAX,
                },
                sides: Some(Sides {
                    tx: counts(3),
                    rx: counts(5),
                }),
                peak_bits_per_s: 80,
            },
            seen: Some(Seen {
                first_ns: -5,
                last_ns: i64::MAX,
                peak_bits_per_s: 90,
                peak_ns: i64::MIN,
                turn: 2,
            }),
            history: vec![None, Some(counts(4))],
        }
    }

    /// A snapshot with a value in each part.
    fn full() -> Snapshot {
        let arrivals = Arrivals {
            received: 1,
            filtered: 2,
            denied: 3,
            late: 4,
            jumped: 5,
            beyond: 6,
            dropped: 7,
            rx: counts(8),
            tx: counts(9),
            local: counts(21),
            broadcast: 10,
            multicast: 11,
        };
        let totals = Totals {
            arrivals,
            measured: counts(12),
            keyless: Keyless {
                not_ip: 13,
                truncated: 14,
                malformed: 15,
                link_type: 16,
            },
            left_out: 17,
            covered_ns: 18,
        };
        let mut times = dns::Times::default();
        (times.count, times.sum_ns, times.max_ns) = (2, 30, 20);
        times.set_class(0, 1);
        times.set_class(dns::Times::CLASSES - 1, 1);
        let of_dns = dns::Figures {
            queries: 5,
            codes: std::array::from_fn(|code| code as u64),
            times,
            ..dns::Figures::default()
        };
        let name = |text: &str| dns::NameRow {
            name: Name::of_text(text.as_bytes()).unwrap(),
            figures: of_dns,
        };
        let of_tcp = tcp::Figures {
            packets: 4,
            gaps: 1,
            ..tcp::Figures::default()
        };
        let address = |text: &str| text.parse().unwrap();
        Snapshot {
            span: Span::TenSeconds,
            from_ns: 1_700_000_000_000_000_000,
            to_ns: 1_700_000_010_000_000_000,
            is_last: true,
            neighbours: [Some(-1), None],
            restarts: 1,
            windows: 300,
            untimed: counts(1),
            totals,
            tables: vec![Table {
                kind: KeyKind::HOST,
                by: Weigh::Bytes,
                covered_ns: 19,
                rows: vec![row(1), row(2)],
                rest: Rest {
                    counts: counts(20),
                    at_most: 21,
                    kind: BoundKind::Deterministic,
                },
                whole: counts(22),
                changes: Some(vec![Change {
                    key: row(3).listed.key,
                    before: 1,
                    after: 2,
                    lower: -3,
                    upper: 4,
                    kind: BoundKind::Exact,
                }]),
                forgotten: 23,
            }],
            points: vec![Point {
                from_ns: 1,
                to_ns: 2,
                totals,
            }],
            health: Some(health::Report {
                most: 100,
                tcp: Some(tcp::Report {
                    numbers: tcp::Numbers {
                        conversations: 1,
                        ..tcp::Numbers::default()
                    },
                    sum: of_tcp,
                    rows: vec![tcp::Row {
                        key: row(4).listed.key,
                        first_ns: 1,
                        latest_ns: 2,
                        begun: true,
                        handshake_ns: Some(3),
                        directions: [of_tcp; 2],
                    }],
                    capacity: 64,
                }),
                dns: Some(dns::Report {
                    sum: of_dns,
                    servers: vec![dns::ServerRow {
                        server: address("fe80::1"),
                        figures: of_dns,
                    }],
                    slow: vec![name("a.example")],
                    failing: vec![name("b.example"), name("c")],
                    unanswered: Vec::new(),
                    capacity: 65,
                    evicted_names: 66,
                    evicted_servers: 67,
                    evicted_queries: 68,
                    unread: 69,
                }),
                path: Some(path::Report {
                    fragments: vec![path::Fragments {
                        source: address("10.0.0.1"),
                        destination: address("10.0.0.2"),
                        proto: 17,
                        fragments: 2,
                        packets: 1,
                        bytes: 3000,
                    }],
                    all_fragments: 2,
                    too_big: vec![path::TooBig {
                        router: address("10.0.0.3"),
                        destination: None,
                        mtu: Some(1400),
                        messages: 1,
                    }],
                    all_too_big: 1,
                }),
                names: None,
            }),
            findings: vec![Finding {
                number: 1,
                kind: Kind::SlowDns,
                host: Some(address("10.0.0.9")),
                begin_ns: 1,
                last_ns: 2,
                state: State::Ended,
                figure: 0.25,
                most: 0.5,
                row: "30 in \u{fc}".to_owned(),
            }],
        }
    }

    #[test]
    fn snapshots_return_as_they_were() {
        let snapshot = full();
        let bytes = snapshot.to_bytes();
        assert_eq!(Snapshot::of_bytes(&bytes), Some(snapshot));
        for end in 0..bytes.len() {
            assert_eq!(Snapshot::of_bytes(&bytes[..end]), None, "{end}");
        }
        assert_eq!(Snapshot::of_bytes(&vec![FORMAT; LONGEST + 1]), None);
    }

    #[test]
    fn a_small_snapshot_has_the_bytes_of_the_form() {
        let snapshot = Snapshot {
            span: Span::Minute,
            from_ns: -1,
            to_ns: 64,
            is_last: true,
            neighbours: [None, Some(1)],
            restarts: 0,
            windows: 300,
            untimed: Counts::default(),
            totals: Totals::default(),
            tables: Vec::new(),
            points: Vec::new(),
            health: None,
            findings: Vec::new(),
        };
        let mut golden = vec![2, 2, 1, 0x80, 1, 1, 0, 1, 2, 0, 0xac, 2, 0, 0];
        // Fifteen numbers of arrivals, two of packets, four without a key, two more; three lists and no health.
        golden.extend([0; 15 + 2 + 4 + 2 + 4]);
        assert_eq!(snapshot.to_bytes(), golden);
        assert_eq!(Snapshot::of_bytes(&golden), Some(snapshot));
    }

    /// Runs the body of the fuzz target over damaged snapshots.
    #[test]
    fn the_fuzz_body_holds_for_any_bytes() {
        let good = full().to_bytes();
        let mut random = Random(35);
        for _ in 0..3000 {
            let mut bytes = good.clone();
            for _ in 0..=random.below(3) {
                let at = random.below(bytes.len());
                match random.below(3) {
                    0 => bytes[at] = random.next() as u8,
                    1 => drop(bytes.remove(at)),
                    _ => bytes.insert(at, random.next() as u8),
                }
            }
            fuzz_body::snapshot(&bytes);
        }
        // A list that claims more elements than there are bytes.
        for count in [u64::MAX, 1 << 40, 5000] {
            let mut bytes = good[..2].to_vec();
            varint::put(&mut bytes, count);
            bytes.extend([0xff; 4000]);
            fuzz_body::snapshot(&bytes);
        }
    }
}
