//! Keys from databases of addresses: what mmdblookup finds for each address, and tshark's counts of packets.

use crate::diff::read_by_tshark;
use crate::schema;
use crate::support::*;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use weir_testkit::mmdb::{Mmdb, country, system};

/// A capture with packets of IPv4 and IPv6.
fn traffic(temp: &Temp) -> String {
    let file = temp.at("in.pcap");
    let fixed = ["generate", &file, "--packets", "3000", "--seed", "3"];
    weir([&fixed[..], &["--flows", "60"]].concat()).ok();
    file
}

/// Databases of systems and of countries.
fn databases(temp: &Temp) -> [String; 2] {
    let net = |text: &str| text.parse::<IpAddr>().unwrap();
    let mut systems = Mmdb::new(6, 28);
    systems.add(net("198.18.0.0"), 15, &system(64500, "Example One"));
    systems.add(
        net("198.18.128.0"),
        17,
        &system(4_200_000_001, "Ex\u{1b}[31mample \u{fc}"),
    );
    systems.add(net("10.0.0.0"), 8, &system(64501, ""));
    systems.add(net("2001:db8::"), 32, &system(64500, "Another name of it"));
    let mut countries = Mmdb::new(6, 24);
    countries.add(net("198.18.0.0"), 16, &country("DE"));
    countries.add(net("100.64.0.0"), 10, &country("BR"));
    countries.add(net("2001:2::"), 48, &country("TZ"));
    [
        temp.file("asn.mmdb", &systems.bytes()),
        temp.file("country.mmdb", &countries.bytes()),
    ]
}

/// The value that mmdblookup finds for an address, and the bits of the network in the tree of IPv6.
fn looked_up(file: &str, address: &str, path: &[&str]) -> Option<(String, u8)> {
    let fixed = ["--verbose", "--file", file, "--ip", address];
    let done = tool("mmdblookup", [&fixed[..], path].concat());
    let text = done.text();
    let bits = text.split("Record prefix length: ").nth(1)?;
    let bits = bits.split_whitespace().next()?.parse().ok()?;
    let value = text
        .lines()
        .rev()
        .find_map(|line| line.trim().rsplit_once(" <"))?
        .0;
    Some((value.trim_matches('"').to_owned(), bits))
}

/// Packets that each place sent and received.
type Counts = BTreeMap<String, [u64; 2]>;

#[test]
fn places_are_those_that_mmdblookup_finds() {
    let test = "places_are_those_that_mmdblookup_finds";
    if !have(test, &["mmdblookup", "tshark"]) {
        return;
    }
    let temp = Temp::new();
    let file = traffic(&temp);
    let [systems, countries] = databases(&temp);
    let packets = read_by_tshark(&file);
    let ends = packets.iter().flat_map(|packet| &packet.ends);
    let addresses: BTreeSet<&String> = ends.filter(|end| !end.is_empty()).collect();
    let place = |address: &String| {
        let system = looked_up(&systems, address, &["autonomous_system_number"]);
        let country = looked_up(&countries, address, &["country", "iso_code"]);
        let width = if address.contains(':') { 0 } else { 96 };
        let bits = [&system, &country].map(|it| it.as_ref().map(|(_, bits)| *bits));
        let network = bits.into_iter().max().flatten().map(|bits| bits - width);
        let [system, country] = [system, country].map(|it| it.map_or("-".to_owned(), |it| it.0));
        [
            system,
            country,
            network.map_or("-".to_owned(), |bits| bits.to_string()),
        ]
    };
    let places: BTreeMap<&String, [String; 3]> =
        addresses.iter().map(|it| (*it, place(it))).collect();
    for known in ["64500", "64501", "4200000001"] {
        assert!(places.values().any(|place| place[0] == known), "{known}");
    }
    let mut truth = [const { Counts::new() }; 3];
    for packet in &packets {
        for (way, end) in packet.ends.iter().enumerate() {
            let Some(place) = places.get(end) else {
                continue;
            };
            for (counts, text) in truth.iter_mut().zip(place) {
                counts.entry(text.clone()).or_default()[way] += 1;
            }
        }
    }
    for more in [
        &[][..],
        &["--workers", "2", "--design", "sync"],
        &["--sketch", "exact", "--state", "shared", "--workers", "2"],
    ] {
        let keys = [
            "--key", "asn", "--key", "country", "--key", "network", "--top", "100",
        ];
        let fixed = [
            "measure", &file, "--geo", &systems, "--geo", &countries, "--json",
        ];
        let text = weir([&fixed[..], &keys, more].concat()).ok().text();
        schema::check(&text);
        let object: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        for (name, truth) in ["asn", "country", "network"].iter().zip(&truth) {
            let mut counts = Counts::new();
            for row in object["tops"][name].as_array().unwrap() {
                let text = row[name]
                    .as_str()
                    .map_or_else(|| row[name].to_string(), str::to_owned);
                // Networks are compared by their length: mmdblookup prints no address.
                let text = text
                    .rsplit_once('/')
                    .map_or(text.clone(), |(_, bits)| bits.to_owned());
                let sides = ["tx_packets", "rx_packets"].map(|side| row[side].as_u64().unwrap());
                let sum = counts.entry(text).or_default();
                *sum = [sum[0] + sides[0], sum[1] + sides[1]];
            }
            assert_eq!(&counts, truth, "{name} {more:?}");
        }
    }
    for rows in columns_of_ends(&file, [&systems, &countries]) {
        for (address, cells) in rows {
            let none = ["-", "-", "-"].map(str::to_owned);
            assert_eq!(&cells, places.get(&address).unwrap_or(&none), "{address}");
        }
    }
    // Names are one a system, and carry no control characters.
    let fixed = ["measure", &file, "--geo", &systems, "--key", "asn"];
    let text = weir(fixed).ok().text();
    let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(
        words.contains(" 64500 Example One ") && words.contains(" 4200000001 Ex?[31mample \u{fc} "),
        "{text}"
    );
    assert!(!text.contains("Another"), "{text}");
    let rows = weir([&fixed[..], &["--format", "csv", "--columns", "asn,as_name"]].concat())
        .ok()
        .text();
    assert!(
        rows.starts_with("asn,as_name\r\n") && rows.contains("64501,\r\n"),
        "{rows}"
    );
}

/// Addresses with the number, the country and the bits of the network that columns have.
type Rows = Vec<(String, [String; 3])>;

/// Columns about addresses: of hosts, of both ends of conversations, and of both ends of packets, in each form.
fn columns_of_ends(file: &str, [systems, countries]: [&str; 2]) -> Vec<Rows> {
    let geo = ["--geo", systems, "--geo", countries];
    let both = "src,src_asn,src_country,src_network,dst,dst_asn,dst_country,dst_network";
    let hosts = [
        &[
            "measure",
            file,
            "--key",
            "host",
            "--top",
            "1000",
            "--columns",
        ][..],
        &["host,asn,country,network", "--format", "csv"],
    ];
    let pairs = [
        &[
            "measure",
            file,
            "--key",
            "conversation",
            "--top",
            "1000",
            "--columns",
            both,
        ][..],
        &["--format", "tsv"],
    ];
    let peers = [
        &[
            "measure",
            file,
            "--key",
            "dst",
            "--by",
            "peers",
            "--top",
            "1000",
            "--columns",
        ][..],
        &["dst,dst_asn,dst_country,dst_network", "--json"],
    ];
    // Against a file without packets, each key is new.
    let none = format!("{file}.none");
    std::fs::write(&none, pcap_header(65_535, 1)).unwrap();
    let changed = [
        &["diff", &none, file, "--key", "pair", "--top", "1000"][..],
        &["--columns", both, "--format", "csv"],
    ];
    let hosts_changed = [
        &["diff", file, &none, "--key", "host", "--top", "1000"][..],
        &["--columns", "host,asn,country,network", "--format", "tsv"],
    ];
    let packets = ["filter", "", file, "--columns", both];
    let forms = [&["--format", "csv"][..], &["--format", "tsv"], &["--json"]];
    let asked = [hosts.concat(), pairs.concat(), peers.concat()].into_iter();
    let asked = asked.chain([changed.concat(), hosts_changed.concat()]);
    let asked = asked.chain(forms.map(|form| [&packets[..], form].concat()));
    let rows = |words: Vec<&str>| -> Rows {
        let text = weir([&words[..], &geo].concat()).ok().text();
        let cells: Vec<Vec<String>> = match words.contains(&"--json") {
            true => {
                schema::check(&text);
                objects(&text)
            }
            false => {
                let split = |line: &str| line.split([',', '\t']).map(str::to_owned).collect();
                text.lines().skip(1).map(split).collect()
            }
        };
        assert!(cells.len() > 10, "{words:?}: {text}");
        let ends = cells.iter().flat_map(|row| row.chunks(4));
        let of_end = |end: &[String]| {
            let [address, asn, country, network] = end else {
                panic!("{words:?}: {end:?}");
            };
            let told = |text: &str| match text {
                "" => "-".to_owned(),
                text => text.to_owned(),
            };
            let bits = network.rsplit_once('/').map_or("", |(_, bits)| bits);
            (address.clone(), [told(asn), told(country), told(bits)])
        };
        ends.filter(|end| !end[0].is_empty()).map(of_end).collect()
    };
    asked.map(rows).collect()
}

/// The values of packets or of rows, in the order of their columns.
fn objects(text: &str) -> Vec<Vec<String>> {
    let plain = |value: &Value| match value {
        Value::Null => String::new(),
        Value::String(text) if text == "-" => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    };
    let mut rows = Vec::new();
    for line in text.lines() {
        let object: Value = serde_json::from_str(line).expect("an object");
        let tables = object["top"].as_array().into_iter().flatten();
        let packets = std::iter::once(&object).filter(|object| object["type"] == "packet");
        for row in tables.chain(packets) {
            let members = row.as_object().expect("an object").iter();
            let members = members.filter(|(name, _)| *name != "type");
            rows.push(members.map(|(_, value)| plain(value)).collect());
        }
    }
    rows
}

/// One line says what is wrong with a file, a key or the lack of them.
#[test]
fn wrong_databases_are_refused() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(3));
    let [systems, countries] = databases(&temp);
    let whole = std::fs::read(&systems).unwrap();
    let cut = temp.file("cut.mmdb", &whole[..whole.len() - 40]);
    let mut bytes = whole.clone();
    bytes[3] = 0xff;
    let flipped = temp.file("flipped.mmdb", &bytes);
    let folder = temp.path().to_str().unwrap();
    for (words, part) in [
        (
            vec!["--key", "asn"],
            "--key asn needs a database of addresses: add --geo FILE.mmdb",
        ),
        (
            vec!["--key", "asn", "--geo", &countries],
            "no file of --geo has AS numbers",
        ),
        (
            vec!["--key", "country", "--geo", &systems],
            "no file of --geo has countries",
        ),
        (
            vec!["--geo", &systems],
            "--geo is for the keys asn, country and network",
        ),
        (
            vec!["--columns", "src_country"],
            "--columns: src_country needs a database of addresses: add --geo FILE.mmdb",
        ),
        (
            vec!["--columns", "country,dst_asn", "--geo", &countries],
            "--columns: dst_asn: no file of --geo has AS numbers",
        ),
        (
            vec![
                "--key",
                "dport",
                "--columns",
                "country",
                "--geo",
                &countries,
            ],
            "no row of --key dport has the column country",
        ),
        (
            vec!["--key", "asn", "--geo", "nothing.mmdb"],
            "nothing.mmdb: no such file",
        ),
        (vec!["--key", "asn", "--geo", folder], "it is a directory"),
        (vec!["--key", "asn", "--geo", "-"], "--geo -: name a file"),
        (
            vec!["--key", "asn", "--geo", &file],
            "not a whole file in the MaxMind DB format",
        ),
        (
            vec!["--key", "asn", "--geo", &cut],
            "not a whole file in the MaxMind DB format",
        ),
        (
            vec!["--key", "asn", "--geo", &flipped],
            "not a whole file in the MaxMind DB format",
        ),
        (
            vec!["--key", "asn", "--by", "peers", "--geo", &systems],
            "cannot be ranked with --by peers",
        ),
        (
            vec!["--key", "asn", "--sketch", "rs", "--geo", &systems],
            "--sketch rs cannot have --key asn",
        ),
        (
            vec!["--key", "asn,dport", "--geo", &systems],
            "asn cannot be combined with others",
        ),
    ] {
        for command in [&["measure", &file][..], &["diff", &file, &file]] {
            if command[0] == "diff"
                && words
                    .iter()
                    .any(|it| ["--sketch", "--columns"].contains(it))
            {
                continue;
            }
            let done = weir([command, &words[..]].concat());
            assert_eq!(
                (done.code, done.text().as_str()),
                (Some(2), ""),
                "{words:?}: {}",
                done.err
            );
            assert_eq!(done.err.lines().count(), 1, "{words:?}: {}", done.err);
            assert!(done.err.contains(part), "{words:?}: {}", done.err);
        }
    }
}
