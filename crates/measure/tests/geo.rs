//! Keys from databases, compared with a list of networks.

#[path = "bodies/geo.rs"]
mod body;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;
use weir_measure::{
    Aggregate, Config, Geo, GeoError, KeyKind, Kind, Observation, Spares, Unfit, country_of,
    network_of, system_of,
};
use weir_packet::flow::FlowKey;
use weir_testkit::Random;
use weir_testkit::mmdb::{Mmdb, country, flat, system};

/// Networks with a number, the widest first.
type Networks = Vec<(IpAddr, u8, u32)>;

fn bits_of(address: IpAddr) -> (u128, u8) {
    match address {
        IpAddr::V4(address) => (u128::from(u32::from(address)) << 96, 32),
        IpAddr::V6(address) => (u128::from(address), 128),
    }
}

fn is_in(address: IpAddr, (network, bits): (IpAddr, u8)) -> bool {
    let ((a, width), (b, other)) = (bits_of(address), bits_of(network));
    width == other && (bits == 0 || (a ^ b) >> (128 - bits) == 0)
}

/// A network that an address is in.
fn around(random: &mut Random, address: IpAddr) -> (IpAddr, u8) {
    let bits = 1 + random.below(bits_of(address).1.into()) as u8;
    (cut(address, bits), bits)
}

fn address(random: &mut Random) -> IpAddr {
    // Few bits vary, so that networks lie inside of others.
    match random.below(2) {
        0 => IpAddr::from([
            10,
            random.below(4) as u8,
            random.below(256) as u8,
            random.below(4) as u8,
        ]),
        _ => IpAddr::from([
            0x2001,
            0xdb8,
            random.below(4) as u16,
            0,
            0,
            0,
            0,
            random.below(9) as u16,
        ]),
    }
}

fn flow(src: IpAddr, dst: IpAddr) -> FlowKey {
    let put = |address: IpAddr| {
        let mut bytes = [0; 16];
        match address {
            IpAddr::V4(address) => bytes[..4].copy_from_slice(&address.octets()),
            IpAddr::V6(address) => bytes = address.octets(),
        }
        bytes
    };
    FlowKey {
        src: put(src),
        dst: put(dst),
        family: if src.is_ipv4() { 4 } else { 6 },
        proto: 17,
        ..FlowKey::NONE
    }
}

/// The network around an address with as many bits.
fn cut(address: IpAddr, bits: u8) -> IpAddr {
    let (number, width) = bits_of(address);
    let kept = if bits == 0 {
        0
    } else {
        number >> (128 - bits) << (128 - bits)
    };
    match width {
        32 => IpAddr::from(((kept >> 96) as u32).to_be_bytes()),
        _ => IpAddr::from(kept.to_be_bytes()),
    }
}

/// The narrowest network of a list with an address: its number, and the bits of the part of it that the tree holds. Networks inside divide
/// it.
fn found(networks: &Networks, address: IpAddr) -> Option<(u8, u32)> {
    let mut all = networks.iter();
    let &(network, bits, number) =
        all.rfind(|(network, bits, _)| is_in(address, (*network, *bits)))?;
    let (own, width) = bits_of(address);
    let inside = networks
        .iter()
        .filter(|(other, more, _)| *more > bits && is_in(*other, (network, bits)));
    let split =
        inside.map(|(other, ..)| ((own ^ bits_of(*other).0).leading_zeros() as u8 + 1).min(width));
    Some((split.fold(bits, u8::max), number))
}

const CODES: [&str; 3] = ["DE", "BR", "TZ"];

/// Packets between random addresses: each autonomous system, country and network has the packets of its addresses.
#[test]
fn keys_are_those_of_the_narrowest_network() {
    for seed in 0..6 {
        let mut random = Random::behind(seed);
        let (mut systems, mut countries) = (Networks::new(), Networks::new());
        for list in [&mut systems, &mut countries] {
            for _ in 0..40 {
                let inside = address(&mut random);
                let (network, bits) = around(&mut random, inside);
                if !list
                    .iter()
                    .any(|known| (known.0, known.1) == (network, bits))
                {
                    list.push((network, bits, random.below(7) as u32));
                }
            }
            list.sort_by_key(|(_, bits, _)| *bits);
        }
        let record_bits = [24, 28, 32][seed as usize % 3];
        let mut geo = Geo::default();
        let mut file = Mmdb::new(6, record_bits);
        for (network, bits, number) in &systems {
            // Two records of one system: one name.
            file.add(
                *network,
                *bits,
                &system(65_532 + number, "Example Network of Many Words, Inc."),
            );
        }
        geo.add(file.bytes()).unwrap();
        let mut file = Mmdb::new(6, record_bits);
        for (network, bits, number) in &countries {
            file.add(*network, *bits, &country(CODES[*number as usize % 3]));
        }
        geo.add(file.bytes()).unwrap();
        let keys = vec![KeyKind::Asn, KeyKind::Country, KeyKind::Network];
        let config = Arc::new(Config {
            keys,
            geo: Some(Arc::new(geo)),
            ..Config::default()
        });
        let hasher = config.hasher();
        let mut packets = Vec::new();
        let mut truth = [const { BTreeMap::<String, [u64; 2]>::new() }; 3];
        while packets.len() < 4000 {
            let (src, dst) = (address(&mut random), address(&mut random));
            if src.is_ipv4() != dst.is_ipv4() {
                continue;
            }
            let flow = flow(src, dst);
            let mut packet = Observation::mark(hasher.plain(&flow));
            packet.arrived(Kind::Flow, 100, 0);
            packet.flow = flow;
            packets.push(packet);
            for (way, end) in [src, dst].into_iter().enumerate() {
                let (a, b) = (found(&systems, end), found(&countries, end));
                let network = a.into_iter().chain(b).map(|(bits, _)| bits).max();
                let texts = [
                    a.map_or("-".to_owned(), |(_, number)| (65_532 + number).to_string()),
                    b.map_or("-".to_owned(), |(_, number)| {
                        CODES[number as usize % 3].to_owned()
                    }),
                    network.map_or("-".to_owned(), |bits| format!("{}/{bits}", cut(end, bits))),
                ];
                for (table, text) in truth.iter_mut().zip(texts) {
                    table.entry(text).or_default()[way] += 1;
                }
            }
        }
        let mut aggregate = Aggregate::new(Arc::clone(&config), Arc::<Spares>::default()).unwrap();
        for packets in packets.chunks(100) {
            aggregate.take(packets, &[]).unwrap();
        }
        let (_, state) = aggregate.close(i64::MAX).pop().unwrap();
        for (i, truth) in truth.iter().enumerate() {
            let table = state.table(i, usize::MAX);
            let row = |row: &weir_measure::Row| {
                let text = match i {
                    0 => system_of(&row.key).map(|(number, name)| {
                        assert_eq!(name, "Example Network of Many Word");
                        number.to_string()
                    }),
                    1 => country_of(&row.key),
                    _ => network_of(&row.key).map(|(network, bits)| format!("{network}/{bits}")),
                };
                let sides = row.sides.unwrap();
                (
                    text.unwrap_or("-".to_owned()),
                    [sides.tx.packets, sides.rx.packets],
                )
            };
            let rows: BTreeMap<_, _> = table.rows.iter().map(row).collect();
            assert_eq!(&rows, truth, "table {i} of seed {seed}");
        }
    }
}

/// Damage is found when a file is added, wherever it is; no byte of it makes a look-up fail later.
#[test]
fn a_damaged_file_is_refused() {
    let mut file = Mmdb::new(4, 24);
    file.add(IpAddr::from([192, 0, 2, 0]), 24, &system(64500, "Example"));
    let bytes = file.bytes();
    assert!(Geo::default().add(bytes.clone()).is_ok());
    for length in 0..bytes.len() - 1 {
        assert!(
            Geo::default().add(bytes[..length].to_vec()).is_err(),
            "{length}"
        );
    }
    assert!(matches!(
        Geo::default().add(b"text".to_vec()),
        Err(GeoError::Damaged(_))
    ));
    let mut file = Mmdb::new(4, 24);
    file.add(IpAddr::from([192, 0, 2, 0]), 24, &system(0, "nobody"));
    assert!(matches!(
        Geo::default().add(file.bytes()),
        Err(GeoError::Empty)
    ));
    let key = KeyKind::Country;
    assert_eq!(Config::default().check_geo(key), Err(Unfit::Geo { key }));
    let mut geo = Geo::default();
    geo.add(bytes).unwrap();
    let config = Config {
        geo: Some(Arc::new(geo)),
        ..Config::default()
    };
    assert_eq!(config.check_geo(key), Err(Unfit::Geo { key }));
    assert_eq!(config.check_geo(KeyKind::Asn), Ok(()));
}

/// Flat records, and a file without a description.
#[test]
fn files_of_other_writers_are_read() {
    let net = IpAddr::from([192, 0, 2, 0]);
    for country_code in ["DE", ""] {
        let mut file = Mmdb::new(4, 28).without_description();
        file.add(net, 24, &flat(64500, "Example", country_code));
        let mut geo = Geo::default();
        geo.add(file.bytes()).unwrap();
        let key = |kind| geo.key(kind, IpAddr::from([192, 0, 2, 77]));
        let system = system_of(&key(KeyKind::Asn));
        assert_eq!(system, Some((64500, "Example".to_owned())));
        let expected = (!country_code.is_empty()).then(|| country_code.to_owned());
        assert_eq!(country_of(&key(KeyKind::Country)), expected);
        assert_eq!(network_of(&key(KeyKind::Network)), Some((net, 24)));
        assert_eq!(geo.has(KeyKind::Country), expected.is_some());
        let other = geo.key(KeyKind::Asn, IpAddr::from([192, 0, 3, 1]));
        assert_eq!(system_of(&other), None);
    }
}

/// Random files, whole and damaged.
#[test]
fn accepted_files_give_what_their_records_have() {
    for seed in 0..1500 {
        let mut random = Random::behind(seed);
        let len = random.below(120);
        body::geo(&random.bytes(len));
    }
}
