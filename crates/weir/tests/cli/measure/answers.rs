//! Printed figures, rows and bounds.

mod bounds;

use super::*;

const KEYS: [&str; 10] = [
    "5tuple",
    "src",
    "dst",
    "pair",
    "sport",
    "dport",
    "proto",
    "src/24",
    "dst/33",
    "conversation",
];

fn small() -> Profile {
    Profile {
        seed: 11,
        packets: 20_000,
        flows: 700,
        ..Profile::default()
    }
}

/// Number with its digits in groups: `8 000`.
fn grouped(n: u64) -> String {
    let text = n.to_string();
    let groups: Vec<_> = text
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap())
        .collect();
    groups.join(" ")
}

/// Bytes with at most three digits: `4.1 GB`.
fn scaled(n: u64) -> String {
    let power = (n.to_string().len() - 1) / 3;
    let value = n as f64 / 1000f64.powi(power as i32);
    let unit = ["B", "kB", "MB", "GB"][power];
    if power == 0 || value >= 99.95 {
        format!("{value:.0} {unit}")
    } else {
        format!("{value:.1} {unit}")
    }
}

fn end(address: IpAddr, port: u16) -> String {
    match address {
        IpAddr::V4(address) => format!("{address}:{port}"),
        IpAddr::V6(address) => format!("[{address}]:{port}"),
    }
}

/// Cells of a line. At least two blanks separate cells, and a cell may contain single blanks.
fn cells(line: &str) -> Vec<&str> {
    line.trim()
        .split("  ")
        .map(str::trim)
        .filter(|cell| !cell.is_empty())
        .collect()
}

#[test]
fn the_table_for_people_is_the_generators_truth() {
    let temp = Temp::new();
    let (file, seen, generator) = generated(&temp, "g.pcap", &small());
    let done = weir(["measure", &file, "--sketch", "exact"]).ok();
    let (text, truth) = (done.text(), generator.truth());
    let lines: Vec<&str> = text.lines().collect();

    let flows = counted("5tuple", &seen).len() as u64;
    let arp = seen.iter().filter(|seen| seen.flow.is_none()).count();
    let head = cells(lines[0]);
    let total = scaled(truth.bytes());
    assert_eq!(
        head[..3],
        [
            &file,
            &format!("{} packets", grouped(truth.packets())),
            &total
        ]
    );
    assert_eq!(
        head[4..],
        ["loss not recorded", &format!("{} flows", grouped(flows))]
    );
    assert!(
        text.contains(&format!(
            "\n  without flow key, in no table: {arp} not IP\n"
        )),
        "{text}"
    );

    let at = lines
        .iter()
        .position(|line| line.trim_start().starts_with('#'))
        .expect("a table");
    assert_eq!(
        cells(lines[at]),
        [
            "#",
            "source",
            "destination",
            "proto",
            "packets",
            "share",
            "bytes",
            "bound"
        ]
    );
    let top = generator.top(11);
    assert!(
        top.windows(2).all(|pair| pair[0].packets > pair[1].packets),
        "no two alike, so the order is known"
    );
    assert!(
        top[..10].iter().any(|flow| flow.source.is_ipv6()),
        "a long row too"
    );
    let listed = top[..10].iter().fold((0, 0), |sum, flow| {
        (sum.0 + flow.packets, sum.1 + flow.bytes)
    });
    let rest: Vec<_> = seen
        .iter()
        .filter(|seen| seen.flow.is_some())
        .map(|seen| seen.bytes)
        .collect();
    let outside = format!(
        "  outside: {} keys, {} packets ({}); none has more than {} packets",
        grouped(flows - 10),
        grouped(rest.len() as u64 - listed.0),
        scaled(rest.iter().sum::<u64>() - listed.1),
        grouped(top[10].packets),
    );
    assert_eq!(lines[at + 11..], [outside]);
    for (rank, (line, flow)) in lines[at + 1..].iter().zip(&top[..10]).enumerate() {
        let share = format!(
            "{:.1} %",
            flow.packets as f64 * 100.0 / truth.packets() as f64
        );
        let wanted = [
            (rank + 1).to_string(),
            end(flow.source, flow.source_port),
            end(flow.destination, flow.destination_port),
            proto_name(flow.protocol),
            grouped(flow.packets),
            share,
            scaled(flow.bytes),
            "exact".to_owned(),
        ];
        assert_eq!(cells(line), wanted);
    }
    assert_aligned(&lines[at..at + 11]);
    assert!(
        done.err
            .starts_with("20 000 received, 20 000 measured, 0 filtered, 0 dropped, "),
        "{}",
        done.err
    );
    assert_eq!(done.err.lines().count(), 1, "{}", done.err);
}

/// Asserts that columns begin or end where their titles do.
#[track_caller]
fn assert_aligned(lines: &[&str]) {
    for title in ["source", "destination", "proto"] {
        let Some(at) = lines[0].find(title) else {
            continue;
        };
        for line in lines {
            assert!(
                line.as_bytes()[at] != b' ' && line.as_bytes()[at - 1] == b' ',
                "{title}: {line}"
            );
        }
    }
    for title in ["packets", "share", "bytes"] {
        let at = lines[0].find(title).expect("a title") + title.len();
        for line in lines {
            assert!(
                line.as_bytes()[at - 1] != b' ' && line.as_bytes()[at] == b' ',
                "{title}: {line}"
            );
        }
    }
}

#[test]
fn json_has_the_promised_keys_in_their_order() {
    let temp = Temp::new();
    let (file, seen, generator) = generated(&temp, "g.pcapng", &small());
    for sketch in ["heavy", "exact", "cms", "cms-conservative", "mv"] {
        let object = measure_one(&[&file, "--sketch", sketch, "--top", "3"]);
        let keys: Vec<&str> = object
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        let promised = "type start end window received passed filtered denied dropped bytes broadcast multicast flows top";
        assert_eq!(keys[..14].join(" "), promised);
        assert_eq!(
            (&object["window"], &object["denied"], &object["dropped"]),
            (&Value::Null, &json!(0), &json!({}))
        );
        assert_eq!(object["received"], generator.truth().packets());
        assert_eq!(object["bytes"], generator.truth().bytes());
        let (first, last) = (seen[0].time_ns, seen[seen.len() - 1].time_ns);
        for (key, ns) in [("start", first), ("end", last)] {
            let rest = format!(
                ":{:02}.{:09}Z",
                20 + (ns - first) / 1_000_000_000,
                ns % 1_000_000_000
            );
            assert_eq!(object[key], format!("2023-11-14T22:13{rest}"), "{key}");
        }
        let flows = &object["flows"];
        match sketch {
            "exact" => {
                assert_eq!(
                    flows,
                    &json!({ "estimate": counted("5tuple", &seen).len(), "bound": { "kind": "exact" } })
                )
            }
            _ => {
                assert_eq!(flows["bound"]["kind"], "probabilistic");
                assert_eq!(flows["bound"]["confidence"], 0.95);
                assert!(
                    flows["estimate"].is_u64() && flows["bound"]["plus_minus"].is_u64(),
                    "{flows}"
                );
            }
        }
        let missing: Vec<&str> = object["missing"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(missing.join(" "), "at_most kind keys packets bytes");
        let top = object["top"].as_array().unwrap();
        assert_eq!(top.len(), 3);
        for row in top {
            let keys: Vec<&str> = row
                .as_object()
                .unwrap()
                .keys()
                .map(String::as_str)
                .collect();
            assert_eq!(
                keys.join(" "),
                "src dst sport dport proto packets bytes bound bytes_bound"
            );
            let bound = row["bound"].as_object().unwrap();
            let kind = match sketch {
                "heavy" | "mv" => "deterministic",
                "exact" => "exact",
                _ => "probabilistic",
            };
            assert_eq!(bound["kind"], kind);
            assert!(bound["lower"].is_u64() && bound["upper"].is_u64(), "{row}");
            assert_eq!(bound.contains_key("confidence"), kind == "probabilistic");
        }
    }
}

#[test]
fn every_key_counts_as_a_naive_table() {
    let temp = Temp::new();
    let (file, seen, _) = generated(&temp, "g.pcap", &small());
    let keys: Vec<&str> = KEYS.iter().flat_map(|key| ["--key", key]).collect();
    for by in ["packets", "bytes"] {
        let all = measure_one(&[&[file.as_str(), "--by", by][..], &EXACT, &keys].concat());
        assert_eq!(
            all["top"], all["tops"]["5tuple"],
            "the first key is the top"
        );
        let order: Vec<&str> = all["tops"]
            .as_object()
            .unwrap()
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(order, KEYS, "in the order that was asked for");
        for key in KEYS {
            let top = &all["tops"][key];
            assert_eq!(rows(key, top), counted(key, &seen), "{key} by {by}");
            let figures: Vec<u64> = top
                .as_array()
                .unwrap()
                .iter()
                .map(|row| row[by].as_u64().unwrap())
                .collect();
            assert!(
                figures.is_sorted_by(|a, b| a >= b),
                "{key} by {by}: largest first"
            );
        }
    }
}

/// Size classes end where their names say.
#[test]
fn sizes_are_counted_in_classes() {
    let temp = Temp::new();
    let (file, seen, _) = generated(&temp, "g.pcap", &small());
    let object = measure_one(&[&file]);
    let mut sum = 0;
    for (name, count) in object["sizes"].as_object().unwrap() {
        let (from, to) = name.split_once('-').unwrap();
        let (from, to): (u64, u64) = (from.parse().unwrap(), to.parse().unwrap_or(u64::MAX));
        let truth = seen
            .iter()
            .filter(|seen| (from..=to).contains(&seen.bytes))
            .count();
        assert_eq!(count, truth, "{name}");
        sum += truth;
    }
    assert_eq!(sum, seen.len());
}

#[test]
fn a_filter_measures_what_the_filter_counts() {
    let test = "a_filter_measures_what_the_filter_counts";
    let temp = Temp::new();
    let (file, _, generator) = generated(&temp, "g.pcap", &small());
    let tcpdump = have(test, &["tcpdump"]);
    for (expression, packets, bytes) in generator.truth().rows() {
        let object = measure_one(&[&file, "--filter", &expression]);
        assert_eq!(
            (&object["passed"], &object["bytes"]),
            (&json!(packets), &json!(bytes)),
            "{expression}"
        );
        assert_eq!(object["filtered"], 20_000 - packets, "{expression}");
        assert_eq!(
            weir(["filter", &expression, &file, "--count"]).ok().count(),
            packets,
            "{expression}"
        );
        if tcpdump {
            assert_eq!(
                tool("tcpdump", ["--count", "-r", &file, &expression])
                    .ok()
                    .count(),
                packets,
                "{expression}"
            );
        }
    }
}

/// Captures of IPv4 and IPv6 over Ethernet, loopback or no link layer, whose headers tshark and weir interpret alike.
pub(super) const PLAIN: [&str; 20] = [
    "pcapplusplus__example.pcap",
    "ndpi__tls_heur__trojan-tcp-tls.pcapng",
    "pcapplusplus__one_ipv6_http_stream.pcap",
    "ndpi__tls-rdn-extract.pcap",
    "zeek__http-qinq-0.pcap",
    "tcpdump__LLDP_and_CDP.pcap",
    "ndpi__tls_1.2_unidirectional_server_no_cert.pcapng",
    "tcpdump__resp_2_inline.pcap",
    "pcapplusplus__nanosecs_big_endian.pcap",
    "ndpi__tls_1.3_unidirectional_server.pcapng",
    "pcapplusplus__IcmpPackets.pcap",
    "ndpi__http2.pcapng",
    "pcapplusplus__dns_over_tcp.pcapng",
    "tcpdump__EIGRP_subnet_down.pcap",
    "pcapplusplus__BgpPackets.pcap",
    "libpcap__pim-packet-assortment.pcap",
    "pcapplusplus__WireGuard.pcap",
    "pcapplusplus__TwoHttpRequests.pcap",
    "pcapplusplus__Dns4.pcap",
    "ndpi__sctp.cap",
];

/// Packets of a file as tshark parses them, each frame by itself, and only the outermost IP header.
pub(super) fn tshark(file: &str) -> Vec<Seen> {
    let mut arguments = vec!["-n", "-r", file, "-T", "fields", "-E", "occurrence=f"];
    let preferences = [
        "ip.defragment:FALSE",
        "ipv6.defragment:FALSE",
        "tcp.desegment_tcp_streams:FALSE",
    ];
    let names = "frame.len frame.protocols ip.src ip.dst ip.proto ip.frag_offset ipv6.src ipv6.dst ipv6.nxt \
                 tcp.srcport tcp.dstport udp.srcport udp.dstport sctp.srcport sctp.dstport";
    let names: Vec<&str> = names.split_whitespace().collect();
    arguments.extend(preferences.iter().flat_map(|preference| ["-o", preference]));
    arguments.extend(names.iter().flat_map(|name| ["-e", name]));
    let read = |line: &str| {
        let cells: BTreeMap<&str, &str> = names.iter().copied().zip(line.split('\t')).collect();
        let protocols: Vec<&str> = cells["frame.protocols"].split(':').collect();
        let flow = protocols
            .iter()
            .position(|name| matches!(*name, "ip" | "ipv6"))
            .and_then(|at| {
                let behind = protocols.get(at + 1).copied().unwrap_or("");
                let (ip, number) = if protocols[at] == "ip" {
                    ("ip", "ip.proto")
                } else {
                    ("ipv6", "ipv6.nxt")
                };
                let port = |end: &str| {
                    cells
                        .get(format!("{behind}.{end}").as_str())
                        .and_then(|text| text.parse().ok())
                };
                Some(Flow {
                    src: cells[format!("{ip}.src").as_str()].parse().ok()?,
                    dst: cells[format!("{ip}.dst").as_str()].parse().ok()?,
                    ports: port("srcport").zip(port("dstport")),
                    proto: cells[number].parse().ok()?,
                    later: ip == "ip" && cells["ip.frag_offset"] != "0",
                })
            });
        Seen {
            time_ns: 0,
            bytes: cells["frame.len"].parse().expect("a length"),
            flow,
        }
    };
    tool("tshark", arguments)
        .ok()
        .text()
        .lines()
        .map(read)
        .collect()
}

#[test]
fn real_captures_count_as_tshark_counts() {
    let test = "real_captures_count_as_tshark_counts";
    if !have(test, &["tshark", "mergecap"]) {
        return;
    }
    let files: Vec<_> = PLAIN
        .iter()
        .filter_map(|name| capture(test, name))
        .collect();
    if files.is_empty() {
        return;
    }
    // One file, so that tshark starts once. mergecap makes it, independently of weir.
    let temp = Temp::new();
    let merged = temp.at("merged.pcapng");
    let names: Vec<&str> = files.iter().map(|file| s(file)).collect();
    tool("mergecap", ["-a", "-w", &merged].iter().chain(&names)).ok();
    let seen = tshark(&merged);
    let with_key = seen.iter().filter(|seen| seen.flow.is_some()).count();

    let keys = ["src", "dst", "dport", "5tuple", "proto"];
    let mut arguments = vec!["--sketch", "exact", "--memory", "64M", "--top", "100000"];
    arguments.extend(keys.iter().flat_map(|key| ["--key", key]));
    for sources in [&names[..], &[&merged]] {
        let object = measure_one(&[&arguments[..], sources].concat());
        assert_eq!(object["passed"], seen.len());
        assert_eq!(
            object["bytes"],
            seen.iter().map(|seen| seen.bytes).sum::<u64>()
        );
        for key in keys {
            let (ours, theirs) = (rows(key, &object["tops"][key]), counted(key, &seen));
            let differ = |one: &Counts, other: &Counts| -> Vec<_> {
                one.iter()
                    .filter(|row| other.get(row.0) != Some(row.1))
                    .map(|row| format!("{row:?}"))
                    .collect()
            };
            assert_eq!(
                ours,
                theirs,
                "{key}: ours {:#?}, tshark {:#?}",
                differ(&ours, &theirs),
                differ(&theirs, &ours)
            );
        }
    }
    eprintln!(
        "{test}: {} captures, {} packets, {with_key} with a flow key",
        files.len(),
        seen.len()
    );
}

/// ICMP, later fragments and long addresses: rows without ports, and rows that stay aligned.
#[test]
fn rows_without_ports_and_with_long_addresses() {
    let temp = Temp::new();
    let long = [
        "2001:db8:aaaa:bbbb:cccc:dddd:eeee:1111",
        "2001:db8:ffff:eeee:dddd:cccc:bbbb:2222",
    ];
    let echo = [8, 0, 0, 0, 0x12, 0x34, 0, 1];
    let frames = [
        ipv6(long[0], long[1], 17, &udp_header(50_000, 60_000)),
        ipv6(long[1], "::1", 58, &[128, 0, 0, 0, 0, 1, 0, 1]),
        ipv4([10, 0, 0, 1], [10, 0, 0, 2], 1, 0, &echo),
        ipv4(
            [10, 0, 0, 1],
            [10, 0, 0, 2],
            17,
            0x2000,
            &[udp_header(7, 9), vec![0; 16]].concat(),
        ),
        ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0x0003, &[1; 16]),
        ipv4([10, 0, 0, 3], [10, 0, 0, 2], 99, 0, &[]),
    ];
    // The first frame six times, the second five times, and so on.
    let packets = (0..6).flat_map(|row| vec![(0, frames[row].as_slice()); 6 - row]);
    let file = temp.file("rows.pcap", &timed_pcap(packets));
    let text = weir(["measure", &file, "--sketch", "exact"]).ok().text();
    let lines: Vec<&str> = text
        .lines()
        .skip_while(|line| !line.trim_start().starts_with('#'))
        .collect();
    let starts: Vec<String> = lines[1..]
        .iter()
        .map(|line| cells(line)[..5].join(" "))
        .collect();
    let wanted = [
        format!("1 [{}]:50000 [{}]:60000 udp 6", long[0], long[1]),
        format!("2 {} ::1 icmp6 5", long[1]),
        "3 10.0.0.1 10.0.0.2 icmp 4".to_owned(),
        "4 10.0.0.1:7 10.0.0.2:9 udp 3".to_owned(),
        "5 10.0.0.1 10.0.0.2 udp frag 2".to_owned(),
        "6 10.0.0.3 10.0.0.2 99 1".to_owned(),
    ];
    assert_eq!(starts, wanted);
    assert_aligned(&lines);

    let object = measure_one(&[&file, "--sketch", "exact"]);
    let without_figures: Vec<String> = object["top"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row_key("5tuple", row))
        .collect();
    let wanted = [
        json!({ "src": long[0], "dst": long[1], "sport": 50_000, "dport": 60_000, "proto": "udp" }),
        json!({ "src": long[1], "dst": "::1", "sport": "-", "dport": "-", "proto": "icmp6" }),
        json!({ "src": "10.0.0.1", "dst": "10.0.0.2", "sport": "-", "dport": "-", "proto": "icmp" }),
        json!({ "src": "10.0.0.1", "dst": "10.0.0.2", "sport": 7, "dport": 9, "proto": "udp" }),
        json!({ "src": "10.0.0.1", "dst": "10.0.0.2", "sport": "-", "dport": "-", "proto": "udp", "fragment": true }),
        json!({ "src": "10.0.0.3", "dst": "10.0.0.2", "sport": "-", "dport": "-", "proto": "99" }),
    ];
    assert_eq!(without_figures, wanted.map(|row| row.to_string()));

    // A missing port has the same sign in every table.
    for (key, title) in [("sport", "source port"), ("dport", "destination port")] {
        let text = weir(["measure", &file, "--sketch", "exact", "--key", key])
            .ok()
            .text();
        let rows = text
            .lines()
            .skip_while(|line| !line.contains(title))
            .skip(1);
        let without = rows
            .filter(|row| row.split_whitespace().nth(1) == Some("-"))
            .count();
        // icmp6, icmp, later fragments of udp, and protocol 99.
        assert_eq!(without, 4, "{text}");
    }

    // A fragment counts for its addresses and its protocol like any packet.
    let object = measure_one(&[
        &file, "--sketch", "exact", "--key", "pair", "--key", "proto",
    ]);
    assert_eq!(
        rows("pair", &object["top"])[r#"{"src":"10.0.0.1","dst":"10.0.0.2"}"#].0,
        4 + 3 + 2
    );
    assert_eq!(
        rows("proto", &object["tops"]["proto"])[r#"{"proto":"udp"}"#].0,
        6 + 3 + 2
    );
}

/// A tunnel contains another flow.
#[test]
fn inner_looks_into_tunnels() {
    let temp = Temp::new();
    let inside = &ipv4(
        [192, 168, 0, 1],
        [192, 168, 0, 2],
        17,
        0,
        &udp_header(1000, 53),
    )[14..];
    let tunnel = ipv4([10, 0, 0, 1], [10, 0, 0, 2], 4, 0, inside);
    let file = temp.file("ipip.pcap", &timed_pcap([(0, tunnel.as_slice())]));
    let row = |more: &[&str]| measure_one(&[&[file.as_str()], more].concat())["top"][0].clone();
    let outer = row(&[]);
    assert_eq!(
        (&outer["src"], &outer["proto"], &outer["sport"]),
        (&json!("10.0.0.1"), &json!("ipip"), &json!("-"))
    );
    let inner = row(&["--inner"]);
    assert_eq!(
        (&inner["src"], &inner["proto"], &inner["dport"]),
        (&json!("192.168.0.1"), &json!("udp"), &json!(53))
    );
    assert_eq!(inner["bytes"], tunnel.len(), "what the link carried");
}

/// On a terminal a long address continues in the next line; in a file each row is one line.
#[test]
fn tables_fit_the_terminal() {
    let test = "tables_fit_the_terminal";
    if !have(test, &["script", "stty"]) {
        return;
    }
    let temp = Temp::new();
    let long = [
        "2001:db8:aaaa:bbbb:cccc:dddd:eeee:1111",
        "2001:db8:ffff:eeee:dddd:cccc:bbbb:2222",
    ];
    let frames = [
        ipv6(long[0], long[1], 17, &udp_header(50_000, 60_000)),
        ipv4([10, 0, 0, 1], [10, 0, 0, 2], 17, 0, &udp_header(7, 9)),
    ];
    let packets = [&frames[0], &frames[0], &frames[1]].map(|frame| (0, frame.as_slice()));
    let file = temp.file("long.pcap", &timed_pcap(packets));
    let shown = |columns: usize| {
        let weir = env!("CARGO_BIN_EXE_weir");
        let command = format!("stty cols {columns} rows 24; '{weir}' measure '{file}' 2>/dev/null");
        let text = tool("script", ["-qc", &command, "/dev/null"])
            .ok()
            .text()
            .replace('\r', "");
        text.lines()
            .skip_while(|line| !line.trim_start().starts_with('#'))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    let (wide, narrow) = (shown(200), shown(100));
    assert_eq!((wide.len(), narrow.len()), (3, 4), "{narrow:#?}");
    assert!(narrow.iter().all(|line| line.len() <= 100), "{narrow:#?}");
    let (at, other) = (
        narrow[0].find("source").unwrap(),
        narrow[0].find("destination").unwrap(),
    );
    let piece = |line: usize, from: usize| narrow[line][from..].split("  ").next().unwrap();
    let joined = [at, other].map(|from| format!("{}{}", piece(1, from), piece(2, from)));
    assert_eq!(
        joined,
        [
            format!("[{}]:50000", long[0]),
            format!("[{}]:60000", long[1])
        ]
    );
    assert_eq!(piece(3, at), "10.0.0.1:7");
}
