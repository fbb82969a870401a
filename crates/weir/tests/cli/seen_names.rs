//! Names of addresses that the packets tell: the judge is tshark, and every design answers as one worker does.

use crate::schema;
use crate::support::*;
use serde_json::Value;
use std::collections::BTreeMap;

/// Files of the captures in which addresses have names.
const NAMED: [&str; 5] = [
    "ndpi__fuzz-2006-06-26-2594.pcap",
    "ndpi__tls-rdn-extract.pcap",
    "ndpi__tls_heur__trojan-tcp-tls.pcapng",
    "pcapplusplus__Dns4.pcap",
    "pcapplusplus__example.pcap",
];

fn summary(arguments: &[&str]) -> Value {
    let fixed = ["measure", "--json", "--seed", "1", "--top", "100000"];
    let run = weir(fixed.iter().chain(arguments)).ok();
    let text = run.text();
    let last = text.lines().last().expect("a summary");
    serde_json::from_str(last).expect("an object")
}

/// Addresses with their last name, and whether they had another, from the fields of tshark.
fn names_of_tshark(file: &str) -> BTreeMap<String, (String, bool)> {
    let mut names: BTreeMap<String, (String, bool)> = BTreeMap::new();
    for Claim { address, name, .. } in claims_of_tshark(file) {
        let before = names.get(&address);
        let had_another = before.is_some_and(|(other, had)| *had || *other != name);
        names.insert(address, (name, had_another));
    }
    names
}

/// A name of an address in a packet.
struct Claim {
    address: String,
    name: String,
    by: &'static str,
    /// Seconds since 1970 with nine digits after the point.
    epoch: String,
}

/// Names of an address and who told them, with their numbers, first and last times.
type NamesOf = BTreeMap<(String, String), (u64, String, String)>;

/// Names of addresses in the order of the packets, from the fields of tshark.
fn claims_of_tshark(file: &str) -> Vec<Claim> {
    const FIELDS: [&str; 12] = [
        "frame.time_epoch",
        "ip.dst",
        "ipv6.dst",
        "tcp.dstport",
        "tls.handshake.extensions_server_name",
        "dns.flags.rcode",
        "dns.qry.name",
        "dns.resp.name",
        "dns.resp.type",
        "dns.a",
        "dns.aaaa",
        "dns.cname",
    ];
    let filter = "tls.handshake.extensions_server_name && tcp || dns.flags.response == 1 && (dns.a || dns.aaaa)";
    let fixed = ["-n", "-r", file, "-Y", filter, "-T", "fields"];
    let fields = FIELDS.iter().flat_map(|field| ["-e", *field]);
    let lines = tool("tshark", fixed.into_iter().chain(fields)).ok().text();
    let mut claims = Vec::new();
    for line in lines.lines() {
        let values: Vec<&str> = line.split('\t').collect();
        let of = |field: &str| {
            let place = FIELDS.iter().position(|it| *it == field).expect("a field");
            let values = values[place].split(',').filter(|value| !value.is_empty());
            values.collect::<Vec<_>>()
        };
        let first = |field: &str| of(field).first().copied();
        let mut learn = |address: &str, name: &str, by: &'static str| {
            claims.push(Claim {
                address: address.to_owned(),
                name: name.to_ascii_lowercase(),
                by,
                epoch: values[0].to_owned(),
            });
        };
        if let Some(name) = first("tls.handshake.extensions_server_name") {
            let server = first("ip.dst").or(first("ipv6.dst")).expect("an address");
            learn(server, name, "tls");
            continue;
        }
        let mut chain: Vec<&str> = first("dns.qry.name").into_iter().collect();
        let [mut v4, mut v6, mut aliases] =
            ["dns.a", "dns.aaaa", "dns.cname"].map(|field| of(field).into_iter());
        for (owner, kind) in of("dns.resp.name").into_iter().zip(of("dns.resp.type")) {
            let is_asked = chain.contains(&owner);
            let address = match kind {
                "5" if is_asked => {
                    chain.extend(aliases.next());
                    continue;
                }
                "1" => v4.next(),
                "28" => v6.next(),
                _ => continue,
            };
            let name = if is_asked { chain[0] } else { owner };
            learn(address.expect("an address"), name, "dns");
        }
    }
    claims
}

/// All names of the addresses that have the most, with their numbers and times; of files and of a record.
#[test]
fn the_names_of_an_address_are_those_that_tshark_reads() {
    let test = "the_names_of_an_address_are_those_that_tshark_reads";
    let mut files = captures(test);
    files.retain(|file| NAMED.iter().any(|name| file.ends_with(name)));
    if files.is_empty() || !have(test, &["tshark"]) {
        return;
    }
    let temp = Temp::new();
    for (i, file) in files.iter().enumerate() {
        // A name of a packet counts once for each record that tells it.
        let mut expected: BTreeMap<String, NamesOf> = BTreeMap::new();
        for claim in claims_of_tshark(s(file)) {
            let names = expected.entry(claim.address).or_default();
            let epoch = claim.epoch.clone();
            let seen = names.entry((claim.name, claim.by.to_owned()));
            let seen = seen.or_insert((0, epoch.clone(), epoch.clone()));
            seen.0 += 1;
            if epoch < seen.1 {
                seen.1 = epoch.clone();
            }
            if epoch > seen.2 {
                seen.2 = epoch;
            }
        }
        let record = temp.at(&format!("record-{i}"));
        weir(["record", s(file), &record, "--ram", "16M", "--disk", "16M"]).ok();
        let mut most: Vec<_> = expected.iter().collect();
        most.sort_by_key(|(_, names)| std::cmp::Reverse(names.len()));
        for (address, names) in most.into_iter().take(2) {
            for source in [&["filter", "", s(file)][..], &["query", &record]] {
                let fixed = ["--names-of", address, "--json"];
                let text = weir([source, &fixed].concat()).ok().text();
                schema::check(&text);
                let objects = text
                    .lines()
                    .map(|line| -> Value { serde_json::from_str(line).unwrap() });
                let rows: Vec<Value> = objects.filter(|object| object["type"] == "name").collect();
                let epoch = |time: &Value| epoch_of(time.as_str().expect("a time"));
                let found = rows.iter().map(|row| {
                    assert_eq!(row["address"], address.as_str());
                    let key = ["name", "by"].map(|it| row[it].as_str().unwrap().to_owned());
                    let times = [&row["first_seen"], &row["last_seen"]].map(epoch);
                    let [first, last] = times;
                    (key.into(), (row["times"].as_u64().unwrap(), first, last))
                });
                assert_eq!(
                    &found.collect::<BTreeMap<_, _>>(),
                    names,
                    "{address} {source:?}"
                );
                assert!(rows.is_sorted_by_key(|row| row["first_seen"].as_str().unwrap()));
            }
        }
    }
    let table = [
        "filter",
        "",
        s(&files[0]),
        "--names-of",
        "192.0.2.77",
        "--format",
        "csv",
    ];
    let none = weir(table).ok();
    assert_eq!(none.text(), "name,by,times,first_seen,last_seen\r\n");
}

/// Seconds since 1970 of a time in RFC 3339, as tshark prints them: with nine digits after the point.
fn epoch_of(text: &str) -> String {
    let ns = text
        .parse::<jiff::Timestamp>()
        .expect("a time")
        .as_nanosecond();
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

#[test]
fn names_are_those_that_tshark_reads() {
    let test = "names_are_those_that_tshark_reads";
    let mut files = captures(test);
    files.retain(|file| NAMED.iter().any(|name| file.ends_with(name)));
    if files.is_empty() || !have(test, &["tshark"]) {
        return;
    }
    let mut hosts = 0;
    for file in &files {
        let expected = names_of_tshark(s(file));
        let found = summary(&[s(file), "--key", "host", "--columns", "host,name"]);
        let rows = found["top"].as_array().expect("rows");
        for row in rows {
            let name = expected.get(row["host"].as_str().expect("an address"));
            hosts += usize::from(name.is_some());
            assert_eq!(
                row["name"].as_str(),
                name.map(|it| &*it.0),
                "{row} of {file:?}"
            );
        }
        let several = expected.values().filter(|it| it.1).count();
        let names = &found["names"];
        let counts = ["addresses", "several", "lost"].map(|name| names[name].as_u64().unwrap());
        assert_eq!(
            counts,
            [expected.len() as u64, several as u64, 0],
            "{file:?}"
        );
    }
    assert!(hosts > 20, "only {hosts} hosts had names");
}

#[test]
fn each_design_adds_up_the_hosts_of_a_name() {
    let test = "each_design_adds_up_the_hosts_of_a_name";
    let mut files = captures(test);
    files.retain(|file| file.ends_with("pcapplusplus__example.pcap"));
    let Some(file) = files.first().map(|file| s(file)) else {
        return;
    };
    // Rows by name from rows by host, added up here.
    let hosts = summary(&[
        file,
        "--key",
        "host",
        "--columns",
        "host,name,packets,bytes,tx_bytes",
    ]);
    let mut expected: BTreeMap<String, [u64; 3]> = BTreeMap::new();
    for row in hosts["top"].as_array().unwrap() {
        let key = row["name"].as_str().or(row["host"].as_str()).unwrap();
        let sums = expected.entry(key.to_owned()).or_default();
        for (sum, figure) in sums.iter_mut().zip(["packets", "bytes", "tx_bytes"]) {
            *sum += row[figure].as_u64().unwrap();
        }
    }
    assert!(expected.len() > 10);
    for arguments in [
        "--workers 1",
        "--workers 3 --design rss",
        "--workers 2 --design async",
        "--workers 2 --design sync --window 1h",
        "--workers 2 --state shared --sketch exact",
        "--workers 1 --sketch cms --window 1h",
    ] {
        let words: Vec<&str> = arguments.split(' ').collect();
        let found = summary(&[&[file, "--key", "name"][..], &words].concat());
        let rows = found["top"].as_array().unwrap().iter().map(|row| {
            let figures = ["packets", "bytes", "tx_bytes"].map(|it| row[it].as_u64().unwrap());
            (row["name"].as_str().unwrap().to_owned(), figures)
        });
        assert_eq!(rows.collect::<BTreeMap<_, _>>(), expected, "{arguments}");
        assert_eq!(found["names"]["addresses"], 71, "{arguments}");
    }
    // A window has the names that were seen by its end, and the last one has all.
    let run = weir([
        "measure",
        "--json",
        "--seed",
        "1",
        "--key",
        "name",
        "--window",
        "2s",
        "--changers",
        "3",
        file,
    ])
    .ok();
    let text = run.text();
    let objects: Vec<Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let counts: Vec<u64> = objects
        .iter()
        .map(|it| it["names"]["addresses"].as_u64().unwrap())
        .collect();
    assert!(
        counts.is_sorted() && counts[0] < 71 && counts[counts.len() - 1] == 71,
        "{counts:?}"
    );
    let rows = |object: &Value| {
        let rows = object["top"].as_array().unwrap().iter();
        rows.map(|row| row["packets"].as_u64().unwrap())
            .sum::<u64>()
            + object["missing"]["packets"].as_u64().unwrap()
    };
    // Each packet counts for both of its ends.
    for object in &objects {
        let packets = object["passed"].as_u64().unwrap();
        let keyless: u64 = object["keyless"]
            .as_object()
            .unwrap()
            .values()
            .filter_map(Value::as_u64)
            .sum();
        assert_eq!(rows(object), 2 * (packets - keyless), "{object}");
    }
}

/// A comparison adds up the hosts of a name on both sides, by the names of both.
#[test]
fn a_comparison_by_names_adds_up_their_hosts() {
    let test = "a_comparison_by_names_adds_up_their_hosts";
    let mut files = captures(test);
    files.retain(|file| file.ends_with("pcapplusplus__example.pcap"));
    if files.is_empty() || !have(test, &["tshark", "editcap"]) {
        return;
    }
    let (temp, file) = (Temp::new(), s(&files[0]));
    let sides = [temp.at("before.pcap"), temp.at("after.pcap")];
    tool("editcap", ["-r", file, &sides[0], "1-2000"]).ok();
    tool("editcap", ["-r", file, &sides[1], "2001-5000"]).ok();
    let names = names_of_tshark(file);
    let mut expected: BTreeMap<String, [u64; 2]> = BTreeMap::new();
    for (i, side) in sides.iter().enumerate() {
        for row in summary(&[side, "--key", "host"])["top"].as_array().unwrap() {
            let host = row["host"].as_str().unwrap();
            let name = names.get(host).map_or(host, |(name, _)| name);
            expected.entry(name.to_owned()).or_default()[i] += row["packets"].as_u64().unwrap();
        }
    }
    let fixed = [
        "diff", &sides[0], &sides[1], "--key", "name", "--by", "packets",
    ];
    let run = weir(fixed.iter().chain(&["--top", "1000", "--json"])).ok();
    let found: Value = serde_json::from_str(&run.text()).unwrap();
    let rows = found["changes"]["name"].as_array().unwrap();
    assert!(rows.len() > 20, "{}", rows.len());
    for row in rows {
        let name = row["name"].as_str().unwrap();
        let figures = ["before_packets", "after_packets"].map(|it| row[it].as_u64().unwrap());
        assert_eq!(Some(&figures), expected.get(name), "{row}");
        assert_eq!(row["bound"]["kind"], "exact", "{row}");
    }
    // All names whose packets are on one side alone are rows.
    let is_row = |name: &str| rows.iter().any(|row| row["name"] == name);
    for (name, _) in expected
        .iter()
        .filter(|(_, [before, after])| *before == 0 || *after == 0)
    {
        assert!(is_row(name), "{name}");
    }
    let table = weir(fixed).ok().text();
    let is_shrunk = |line: &str| line.contains(" 23tv.ynet.co.il ") && line.contains(" shrunk ");
    assert!(table.lines().any(is_shrunk), "{table}");
}

/// In a second reading of a file all names are known, and those that did not change are tshark's.
#[test]
fn packets_have_the_names_that_tshark_reads() {
    let test = "packets_have_the_names_that_tshark_reads";
    let mut files = captures(test);
    files.retain(|file| file.ends_with("pcapplusplus__example.pcap"));
    if files.is_empty() || !have(test, &["tshark"]) {
        return;
    }
    let file = s(&files[0]);
    let names = names_of_tshark(file);
    let columns = "src,src_name,dst,dst_name";
    let words = ["filter", "", file, file, "--columns", columns, "--format"];
    let text = weir(words.iter().chain(&["tsv"])).ok().text();
    let rows: Vec<Vec<&str>> = text
        .lines()
        .map(|line| line.split('\t').collect())
        .collect();
    let again = &rows[1 + rows.len() / 2..];
    let ends = again.iter().flat_map(|row| row.chunks(2));
    let mut named = 0;
    for end in ends.filter(|end| !end[0].is_empty()) {
        match names.get(end[0]) {
            None => assert_eq!(end[1], "", "{end:?}"),
            Some((_, true)) => assert_ne!(end[1], "", "{end:?}"),
            Some((name, false)) => {
                assert_eq!(end[1], name, "{end:?}");
                named += 1;
            }
        }
    }
    assert!(named > 300, "{named}");
    let text = weir(words.iter().chain(&["json"])).ok().text();
    assert_eq!(text.lines().count(), rows.len());
}

#[test]
fn names_in_other_forms_and_refusals() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(30));
    let ask = |arguments: &[&str]| weir(["measure", &file].iter().chain(arguments));
    let rows = ask(&["--key", "name", "--format", "csv"]).ok().text();
    assert!(rows.starts_with("name,packets,bytes,tx_packets,"), "{rows}");
    let table = ask(&["--columns", "src,src_name,name,packets"]).ok().text();
    assert!(table.contains("names: 0 addresses have one"), "{table}");
    for (arguments, why) in [
        (
            &["--key", "name", "--by", "peers"][..],
            "use the key src or dst",
        ),
        (
            &["--key", "name", "--sketch", "rs"],
            "--sketch rs cannot have --key name",
        ),
        (&["--key", "name,vlan"], "cannot be combined"),
        (
            &["--key", "dport", "--columns", "name"],
            "no row of --key dport has the column name",
        ),
        (
            &["--key", "dst", "--columns", "src_name"],
            "no row of --key dst has the column src_name",
        ),
    ] {
        let refused = ask(arguments);
        assert_eq!(refused.code, Some(2), "{arguments:?}");
        assert!(refused.err.contains(why), "{arguments:?}: {}", refused.err);
    }
}
