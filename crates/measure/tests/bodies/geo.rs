//! Body, with its oracle, that the fuzz target and the tests share.
#![allow(dead_code, reason = "each test and fuzz target uses its part")]

use maxminddb::{Reader, path};
use std::net::IpAddr;
use std::sync::Arc;
use weir_measure::{
    Aggregate, Config, Geo, KeyKind, Kind, Observation, Row, Spares, country_of, network_of,
    system_of,
};
use weir_packet::flow::FlowKey;
use weir_testkit::Input;
use weir_testkit::mmdb::{Mmdb, Value, country, flat, system};

/// Networks of a file, then damage of its bytes. A file that is accepted gives for each address the key that its own record has.
pub fn geo(data: &[u8]) {
    let mut input = Input(data);
    let version = [4, 6][input.below(2)];
    let mut file = Mmdb::new(version, [24, 28, 32][input.below(3)]);
    let mut addresses = Vec::new();
    for _ in 0..input.below(9) {
        let address = match version == 6 && input.below(2) == 1 {
            true => IpAddr::from([
                0x20,
                1,
                input.byte(),
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                0,
                input.byte(),
            ]),
            false => IpAddr::from([10, input.byte(), 0, input.byte()]),
        };
        let bits = 1 + input.below(if address.is_ipv4() { 32 } else { 128 }) as u8;
        let width = 1 + input.below(4);
        let number = input.number(width) as u32;
        let mut members = Vec::new();
        let code = ["DE", "BR", "x", "\u{fc}"][input.below(4)];
        let records = match input.below(4) {
            1 => vec![flat(number, "A name", code)],
            _ => vec![system(number, "A name"), country(code)],
        };
        for value in records {
            if let Value::Map(inner) = value {
                members.extend(inner);
            }
        }
        members.truncate(1 + input.below(3));
        file.add(address, bits, &Value::Map(members));
        addresses.push(address);
    }
    if input.below(4) == 1 {
        file = file.without_description();
    }
    let mut bytes = file.bytes();
    for _ in 0..input.below(6) {
        let at = input.number(2) % bytes.len();
        bytes[at] = input.byte();
    }
    if input.below(8) == 1 {
        bytes.truncate(input.number(2));
    }
    let mut geo = Geo::default();
    if geo.add(bytes.clone()).is_err() {
        return;
    }
    let geo = Arc::new(geo);
    let reader = Reader::from_source(bytes).expect("the file was accepted");
    addresses.push(IpAddr::from([10, 0, 0, input.byte()]));
    addresses.push(IpAddr::from([192, 0, 2, 1]));
    for address in addresses {
        same_as_record(&geo, &reader, address);
    }
}

/// Counts a packet from an address to itself, and compares its keys with the record of the address.
fn same_as_record(geo: &Arc<Geo>, reader: &Reader<Vec<u8>>, address: IpAddr) {
    let config = Arc::new(Config {
        keys: vec![KeyKind::Asn, KeyKind::Country, KeyKind::Network],
        geo: Some(Arc::clone(geo)),
        memory: 4096,
        ..Config::default()
    });
    let mut flow = FlowKey::NONE;
    match address {
        IpAddr::V4(address) => {
            flow.family = 4;
            flow.src[..4].copy_from_slice(&address.octets());
        }
        IpAddr::V6(address) => (flow.family, flow.src) = (6, address.octets()),
    }
    flow.dst = flow.src;
    let mut packet = Observation::mark(config.hasher().plain(&flow));
    packet.arrived(Kind::Flow, 60, 0);
    packet.flow = flow;
    let mut aggregate = Aggregate::new(config, Arc::<Spares>::default()).expect("enough memory");
    aggregate.take(&[packet], &[]).expect("enough memory");
    let (_, state) = aggregate
        .close(i64::MAX)
        .pop()
        .expect("a packet was counted");
    let row = |i| -> Row { state.table(i, 2).rows[0] };
    let found = reader.lookup(address).ok().filter(|found| found.has_data());
    let found = found.as_ref();
    // A number may be told in several widths.
    let number = found.and_then(|it| {
        let path = path!["autonomous_system_number"];
        let wide = it.decode_path::<u32>(&path).ok().flatten();
        let narrow = || it.decode_path::<u16>(&path).ok().flatten().map(u32::from);
        let flat = || {
            let text = it.decode_path::<&str>(&path!["asn"]).ok().flatten()?;
            text.strip_prefix("AS")?.parse::<u32>().ok()
        };
        wide.or_else(narrow).or_else(flat)
    });
    let number = number.filter(|number| *number != 0);
    assert_eq!(system_of(&row(0).key).map(|(number, _)| number), number);
    let code = found.and_then(|it| {
        let nested = it.decode_path::<&str>(&path!["country", "iso_code"]);
        let short = it.decode_path::<&str>(&path!["country_code"]);
        let plain = it.decode_path::<&str>(&path!["country"]);
        let codes = [nested, short, plain]
            .into_iter()
            .filter_map(|code| code.ok().flatten());
        let is_code =
            |code: &&str| code.len() == 2 && code.bytes().all(|byte| byte.is_ascii_alphanumeric());
        codes.into_iter().find(is_code)
    });
    assert_eq!(country_of(&row(1).key).as_deref(), code);
    let network = found.and_then(|it| it.network().ok());
    let network = network.filter(|network| network.is_ipv4() == address.is_ipv4());
    let network = network.map(|network| (network.network(), network.prefix()));
    assert_eq!(network_of(&row(2).key), network);
}
