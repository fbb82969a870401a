//! Compares the changes that two measurements tell with exact counts, for tables with and without room for all keys.

#[path = "../../sketch/tests/support/mod.rs"]
mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use support::random;
use weir_measure::{
    Aggregate, By, Config, Contrast, KeyKind, Kind, Listed, Observation, Scale, Sketch, Spares,
    State, Status, compare,
};
use weir_packet::flow::FlowKey;

/// A packet: numbers of its source and destination, and its bytes.
type Packet = (u8, u8, u32);

const SECOND: u64 = 1_000_000_000;

fn flow(src: u8, dst: u8) -> FlowKey {
    let mut key = FlowKey {
        family: 4,
        proto: 17,
        sport: 1000,
        dport: u16::from(dst),
        flags: FlowKey::HAS_PORTS,
        ..FlowKey::NONE
    };
    (key.src[0], key.src[3]) = (10, src);
    (key.dst[0], key.dst[3]) = (10, dst);
    key
}

fn measured(config: &Arc<Config>, packets: &[Packet]) -> Option<State> {
    let hasher = config.hasher();
    let mut aggregate =
        Aggregate::new(Arc::clone(config), Arc::<Spares>::default()).expect("enough memory");
    let observed = |&(src, dst, bytes): &Packet| {
        let flow = flow(src, dst);
        let mut packet = Observation::mark(hasher.plain(&flow));
        packet.arrived(Kind::Flow, bytes, 0);
        packet.flow = flow;
        packet
    };
    let packets: Vec<Observation> = packets.iter().map(observed).collect();
    aggregate.take(&packets, &[]).expect("enough memory");
    aggregate.close(i64::MAX).pop().map(|(_, state)| state)
}

/// Figure of each host in both directions, or of each source.
fn truth(packets: &[Packet], kind: KeyKind, by: By) -> BTreeMap<u8, u64> {
    let mut truth = BTreeMap::new();
    for (src, dst, bytes) in packets {
        let weight = if by == By::Bytes {
            u64::from(*bytes)
        } else {
            1
        };
        *truth.entry(*src).or_default() += weight;
        if kind.has_sides() {
            *truth.entry(*dst).or_default() += weight;
        }
    }
    truth
}

fn packets(seed: u64, many: u64, hosts: u64) -> Vec<Packet> {
    let draw = |at: u64, many: u64| (random(seed, at) % many) as u8;
    let packet = |at| {
        let src = draw(at * 3, hosts).min(draw(at * 3 + 1, hosts));
        (src, 200 + draw(at * 3 + 2, 40), 60 + u32::from(src) * 7)
    };
    (0..many).map(packet).collect()
}

/// Checks one row against the truth, and returns the amount of the true change.
fn check(row: &Contrast, scale: Scale, before: u64, after: u64) -> f64 {
    let change = scale.after(after) - scale.before(before);
    let (lower, upper) = row.range(scale);
    let near = 1e-6 * (1.0 + change.abs());
    assert!(
        lower - near <= change && change <= upper + near,
        "{lower} <= {change} <= {upper}"
    );
    if row.is_exact() {
        assert_eq!((row.before.figure, row.after.figure), (before, after));
    }
    if row.is_sure(scale) {
        let is_right = match row.status(scale) {
            Status::New => before == 0 && after > 0,
            Status::Gone => before > 0 && after == 0,
            Status::Grown => change > 0.0,
            Status::Shrunk => change < 0.0,
        };
        assert!(is_right, "{:?} {before} {after}", row.status(scale));
    }
    change.abs()
}

#[test]
fn changes_are_those_of_exact_counts_or_within_their_bounds() {
    let lengths = Scale::PerSecond {
        before_ns: 30 * SECOND,
        after_ns: 7 * SECOND,
    };
    for seed in 0..24 {
        let by = [By::Packets, By::Bytes][seed as usize % 2];
        let kind = [KeyKind::SRC, KeyKind::HOST][seed as usize / 2 % 2];
        // Every third table has room for all hosts; the others do not.
        let memory = if seed % 3 == 0 { 64 << 10 } else { 2 << 10 };
        let scale = if seed % 5 == 0 {
            Scale::Counts
        } else {
            lengths
        };
        let config = Arc::new(Config {
            keys: vec![kind],
            by,
            sketch: if seed % 8 == 7 {
                Sketch::Exact
            } else {
                Sketch::Heavy
            },
            memory,
            rows: None,
            ..Config::default()
        });
        let (one, two) = (packets(seed, 3000, 150), packets(seed + 99, 900, 200));
        let (before, after) = (measured(&config, &one), measured(&config, &two));
        let listed = Listed {
            rows: 12,
            least: 0.0,
            scale,
        };
        let found = compare(before.as_ref(), after.as_ref(), 0, listed, None);
        let (then, now) = (truth(&one, kind, by), truth(&two, kind, by));
        let of = |truth: &BTreeMap<u8, u64>, host| truth.get(&host).copied().unwrap_or(0);
        let mut outside: Vec<u8> = then.keys().chain(now.keys()).copied().collect();
        let mut amounts = Vec::new();
        for row in &found.rows {
            let host = row.key.src[3];
            amounts.push(check(row, scale, of(&then, host), of(&now, host)));
            outside.retain(|other| *other != host);
        }
        for host in outside {
            let change = scale.after(of(&now, host)) - scale.before(of(&then, host));
            assert!(
                change.abs() <= found.at_most + 1e-6,
                "{host}: {change} {}",
                found.at_most
            );
        }
        if seed % 3 == 0 {
            assert!(found.rows.iter().all(Contrast::is_exact));
            assert!(amounts.is_sorted_by(|a, b| *a >= b - 1e-6), "{amounts:?}");
            let counts = |truth: &[Packet], host: u8| {
                let is_of =
                    |packet: &&Packet| packet.0 == host || kind.has_sides() && packet.1 == host;
                truth.iter().filter(is_of).count() as u64
            };
            for row in &found.rows {
                let host = row.key.src[3];
                assert_eq!(row.before.counts.packets, counts(&one, host));
                assert_eq!(row.after.counts.packets, counts(&two, host));
            }
        }
    }
}

#[test]
fn equal_rates_of_different_lengths_are_no_change() {
    let config = Arc::new(Config {
        keys: vec![KeyKind::SRC],
        ..Config::default()
    });
    let packet = |src| (src, 1, 100);
    let one: Vec<Packet> = [1, 1, 1, 1, 2, 3, 3].map(packet).to_vec();
    let two: Vec<Packet> = [1, 1, 3, 3, 4].map(packet).to_vec();
    let (before, after) = (measured(&config, &one), measured(&config, &two));
    let scale = Scale::of(Some(2 * SECOND), Some(SECOND));
    let statuses = |rows, least| {
        let listed = Listed { rows, least, scale };
        let found = compare(before.as_ref(), after.as_ref(), 0, listed, None);
        let status = |row: &Contrast| (row.key.src[3], row.status(scale), row.is_sure(scale));
        let listed: Vec<_> = found.rows.iter().map(status).collect();
        (listed, found.others, found.at_most)
    };
    let all = vec![
        (3, Status::Grown, true),
        (4, Status::New, true),
        (2, Status::Gone, true),
    ];
    assert_eq!(statuses(10, 0.0), (all.clone(), 0, 0.0));
    assert_eq!(statuses(2, 0.0), (all[..2].to_vec(), 1, 0.5));
    assert_eq!(statuses(10, 0.75), (all[..2].to_vec(), 1, 0.5));
    let listed = Listed {
        rows: 10,
        least: 0.0,
        scale,
    };
    let nothing = compare(None, None, 0, listed, None);
    assert_eq!((nothing.rows.len(), nothing.others), (0, 0));
    let gone = compare(before.as_ref(), None, 0, listed, None);
    assert!(
        gone.rows
            .iter()
            .all(|row| row.status(scale) == Status::Gone && row.is_sure(scale))
    );
    assert_eq!(Scale::of(Some(0), Some(1)), Scale::Counts);
}

#[test]
fn numbers_of_distinct_elements_are_compared_as_they_are() {
    let config = Arc::new(Config {
        keys: vec![KeyKind::SRC],
        by: By::Ports,
        ..Config::default()
    });
    let to = |src, ports: std::ops::Range<u8>| ports.map(move |dst| (src, dst, 60));
    let one: Vec<Packet> = to(1, 0..5).chain(to(2, 0..9)).collect();
    let two: Vec<Packet> = to(1, 0..90).chain(to(3, 0..2)).collect();
    let (before, after) = (measured(&config, &one), measured(&config, &two));
    let listed = Listed {
        rows: 10,
        least: 0.0,
        scale: Scale::Counts,
    };
    let found = compare(before.as_ref(), after.as_ref(), 0, listed, None);
    let row = |row: &Contrast| (row.key.src[3], row.before.figure, row.after.figure);
    let rows: Vec<_> = found.rows.iter().map(row).collect();
    assert_eq!(rows, [(1, 5, 90), (2, 9, 0), (3, 0, 2)]);
    assert!(found.rows.iter().all(Contrast::is_exact));
}
