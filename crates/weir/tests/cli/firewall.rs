//! `weir firewall`: rules against tcpdump's expressions for the same packets, files of passed and denied packets, bad input.

mod refused;

use crate::counts::tcpdump_count;
use crate::support::*;
use serde_json::{Value, json};
use std::fs;

/// Rules that only count, and the tcpdump expression for the same packets without tags.
const COUNTED: [(&str, &str); 24] = [
    ("tcp", "tcp"),
    ("udp", "udp"),
    ("icmp", "icmp"),
    ("icmp6", "icmp6"),
    ("proto 47", "proto 47"),
    ("src 10.0.0.0/8", "(ip or ip6) and src net 10.0.0.0/8"),
    (
        "dst 192.168.0.0/16",
        "(ip or ip6) and dst net 192.168.0.0/16",
    ),
    (
        "src 192.168.1.1-192.168.1.200",
        "ip and ip[12:4] >= 0xc0a80101 and ip[12:4] <= 0xc0a801c8",
    ),
    ("dst 2000::/3", "ip6 and dst net 2000::/3"),
    (
        "src fe80::/10 dst ff00::/8",
        "ip6 and src net fe80::/10 and dst net ff00::/8",
    ),
    ("tcp dport 80,443", "tcp and (dst port 80 or dst port 443)"),
    ("udp sport 53", "udp src port 53"),
    (
        "udp sport 1024-65535 dport 53",
        "udp and src portrange 1024-65535 and dst port 53",
    ),
    ("dport 1024-65535", "dst portrange 1024-65535"),
    (
        "flags S/SA",
        "(ip and tcp[13] & 0x12 = 2) or (ip6 and ip6[6] = 6 and ip6[53] & 0x12 = 2)",
    ),
    (
        "flags F",
        "(ip and tcp[13] & 1 = 1) or (ip6 and ip6[6] = 6 and ip6[53] & 1 = 1)",
    ),
    ("fragment", "ip and ip[6:2] & 0x1fff != 0"),
    ("icmp type 0,8", "icmp[0] = 0 or icmp[0] = 8"),
    (
        "icmp6 type 128-136",
        "ip6[6] = 58 and ip6[40] >= 128 and ip6[40] <= 136",
    ),
    ("extension hop", "ip6 and ip6[6] = 0"),
    (
        "extension ah",
        "(ip and ip[9] = 51) or (ip6 and ip6[6] = 51)",
    ),
    ("vlan none", "(ip or ip6)"),
    ("vlan 0-4094", "vlan"),
    ("expr 'len > 200'", "len > 200"),
];

/// An expression for packets without tags, with one, or with two.
fn behind_tags(rule: &str, expression: &str) -> String {
    match rule {
        "vlan none" | "expr 'len > 200'" => expression.to_owned(),
        "vlan 0-4094" => "vlan and ((ip or ip6) or (vlan and (ip or ip6)))".to_owned(),
        _ => format!("({expression}) or (vlan and (({expression}) or (vlan and ({expression}))))"),
    }
}

/// The JSON answer of a check.
fn checked(rules: &str, file: &str) -> Value {
    let done = weir(["firewall", "check", rules, file, "--json"]).ok();
    let answer: Value = serde_json::from_str(&done.text()).expect("an object");
    let number = |name: &str| answer[name].as_u64().unwrap();
    assert_eq!(
        number("received"),
        number("passed") + number("denied"),
        "{answer}"
    );
    answer
}

#[test]
fn rules_count_the_packets_that_tcpdump_counts() {
    let test = "rules_count_the_packets_that_tcpdump_counts";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let temp = Temp::new();
    let text: String = COUNTED
        .iter()
        .map(|(rule, _)| format!("count {rule}\n"))
        .collect();
    let rules = temp.file("rules.txt", format!("neighbors rules\n{text}").as_bytes());
    let demo = temp.at("demo.pcap");
    weir(["generate", &demo, "--packets", "20000"]).ok();
    let mut files: Vec<String> = vec![demo];
    files.extend(captures(test).iter().map(|path| s(path).to_owned()));
    // Packets that tcpdump's expressions judge otherwise: lengths that contradict each other, PPPoE, FabricPath, IPv6 fragments.
    let others = [
        "fuzz-2006-06-26-2594",
        "PPPoESession",
        "cisco-fabric-path",
        "ppp-ipv6-tcp",
        "frag-22",
        "IPV6_invalid",
    ];
    files.retain(|file| !others.iter().any(|other| file.contains(other)));
    let (mut compared, mut matched) = (0, 0);
    for file in &files {
        // Damaged files are another test's.
        let done = weir(["firewall", "check", &rules, file, "--json"]);
        if done.code != Some(0) {
            continue;
        }
        let answer: Value = serde_json::from_str(&done.text()).unwrap();
        for ((rule, expression), found) in COUNTED.iter().zip(answer["rules"].as_array().unwrap()) {
            assert_eq!(found["rule"], format!("count {rule}"));
            let both = [&behind_tags(rule, expression), *expression]
                .map(|expression| tcpdump_count(file, expression));
            // Link types without tags refuse `vlan`.
            let ([Ok(expected), _] | [Err(_), Ok(expected)]) = both else {
                continue;
            };
            assert_eq!(
                found["packets"].as_u64(),
                Some(expected),
                "{rule} on {file}"
            );
            compared += 1;
            matched += u64::from(expected > 0);
        }
    }
    assert!(compared >= 20 && matched >= 10, "{compared} {matched}");
}

#[test]
fn the_first_rule_decides_and_the_files_hold_what_tcpdump_selects() {
    if !have(
        "the_first_rule_decides_and_the_files_hold_what_tcpdump_selects",
        &["tcpdump"],
    ) {
        return;
    }
    let temp = Temp::new();
    let (whole, demo) = (temp.at("whole.pcap"), temp.at("demo.pcap"));
    weir(["generate", &whole, "--packets", "20000"]).ok();
    // Packets whose transport tcpdump's expressions find: without tags, and right behind the IP header.
    let found = "(ip or arp or ip6) and (not ip6 or ip6[6] = 6 or ip6[6] = 17 or ip6[6] = 58)";
    tool("tcpdump", ["--nano", "-nr", &whole, "-w", &demo, found]).ok();
    // Each rule with its expression; fragments come first, so that no packet lacks a field.
    let first = "ip and ip[6:2] & 0x1fff != 0";
    let rules = [
        ("pass expr 'ip and ip[6:2] & 0x1fff != 0'", first, true),
        ("drop tcp dport 443", "tcp dst port 443", false),
        (
            "pass tcp src 198.18.0.0/16",
            "tcp and src net 198.18.0.0/16",
            true,
        ),
        ("reject tcp", "tcp", false),
        ("pass udp sport 53", "udp src port 53", true),
        ("drop dst 198.19.0.0/17", "dst net 198.19.0.0/17", false),
    ];
    let text: String = rules.iter().map(|(rule, ..)| format!("{rule}\n")).collect();
    let file = temp.file("rules.txt", format!("{text}\ndefault pass\n").as_bytes());
    let answer = checked(&file, &demo);
    let (mut before, mut denied) = (String::from("len < 0"), String::from("len < 0"));
    for ((_, expression, passes), found) in rules.iter().zip(answer["rules"].as_array().unwrap()) {
        let here = format!("({expression}) and not ({before})");
        assert_eq!(
            found["packets"].as_u64(),
            Some(tcpdump_count(&demo, &here).unwrap()),
            "{found}"
        );
        assert!(
            found["packets"].as_u64() > Some(0) && found["field_absent"] == 0,
            "{found}"
        );
        if !passes {
            denied = format!("{denied} or ({here})");
        }
        before = format!("{before} or ({expression})");
    }
    let (clean, rest) = (temp.at("clean.pcap"), temp.at("denied.pcap"));
    let done = weir([
        "firewall", &demo, &clean, "--rules", &file, "-w", &rest, "--what", "denied",
    ])
    .ok();
    let expected = |name: &str, expression: &str| {
        let copy = temp.at(name);
        tool("tcpdump", ["--nano", "-nr", &demo, "-w", &copy, expression]).ok();
        parse_pcap(&fs::read(copy).unwrap()).1
    };
    let (passed, denied) = (
        expected("a.pcap", &format!("not ({denied})")),
        expected("b.pcap", &denied),
    );
    assert_eq!(
        (records(&clean), records(&rest)),
        (passed.clone(), denied.clone())
    );
    let figures: String = done.err.split('(').next().unwrap().split(' ').collect();
    let all = passed.len() + denied.len();
    assert_eq!(
        figures,
        format!(
            "{all}received,{}passed,{}denied",
            passed.len(),
            denied.len()
        ),
        "{}",
        done.err
    );
    // The further file has the passed packets if asked for, and standard output is an output too.
    let again = temp.at("again.pcap");
    let done = weir([
        "firewall", &demo, "-", "--rules", &file, "-w", &again, "--what", "passed",
    ])
    .ok();
    assert_eq!(records(&again), passed);
    let piped = temp.file("piped.pcapng", &done.out);
    assert_eq!(records(&piped), passed);
    // From a pipe, compressed or not, the answer is the same.
    let done = weir_fed(
        ["firewall", "check", &file, "-", "--json"],
        &fs::read(&demo).unwrap(),
    )
    .ok();
    assert_eq!(serde_json::from_str::<Value>(&done.text()).unwrap(), answer);
}

#[test]
fn packets_that_lack_a_field_pass_no_rule_that_names_it() {
    let temp = Temp::new();
    let mut bytes = pcap_header(65_535, 1);
    let head = |fragment: [u8; 2], proto: u8| {
        let mut frame = vec![2; 12];
        frame.extend([
            8,
            0,
            0x45,
            0,
            0,
            60,
            0,
            0,
            fragment[0],
            fragment[1],
            64,
            proto,
            0,
            0,
            10,
            0,
            0,
            1,
            10,
            0,
            0,
            2,
        ]);
        frame
    };
    let whole = [head([0, 0], 6), vec![0, 80, 0, 80], vec![0; 36]].concat();
    let later = [head([0, 8], 6), vec![0; 40]].concat();
    // The capture ends behind the ports, and before them.
    let (short, shorter) = (
        [head([0, 0], 6), vec![0, 80, 0, 80]].concat(),
        [head([0, 0], 6), vec![0]].concat(),
    );
    let malformed = head([0, 0], 6)[..30].to_vec();
    for (second, frame) in [&whole, &later, &short, &shorter, &malformed]
        .into_iter()
        .enumerate()
    {
        bytes.extend(pcap_record(second as u32, frame));
    }
    let file = temp.file("frames.pcap", &bytes);
    let judged = |rules: &str| {
        let rules = temp.file("rules.txt", rules.as_bytes());
        let answer = checked(&rules, &file);
        let rule = &answer["rules"][0];
        let numbers = [
            &answer["passed"],
            &rule["packets"],
            &rule["field_absent"],
            &answer["malformed"]["packets"],
        ];
        numbers.map(|number| number.as_u64().unwrap())
    };
    // Passed; to which the rule applied; for want of a field; malformed.
    assert_eq!(judged("default drop\npass tcp dport 80\n"), [2, 2, 0, 1]);
    assert_eq!(judged("default pass\ndrop tcp dport 80\n"), [0, 4, 2, 1]);
    assert_eq!(judged("default pass\ndrop tcp dport 81\n"), [2, 2, 2, 1]);
    assert_eq!(judged("default pass\ndrop udp dport 81\n"), [4, 0, 0, 1]);
    assert_eq!(
        judged("default pass\nreject flags S\nmalformed pass\n"),
        [2, 3, 3, 1]
    );
    assert_eq!(
        judged("default drop\npass flags F/F\nmalformed pass\n"),
        [1, 0, 0, 1]
    );
}

#[test]
fn a_rule_names_the_interface_where_a_packet_arrived() {
    let temp = Temp::new();
    let packet = udp(53, 0);
    let mut bytes = pcapng_start(1);
    bytes.extend(pcapng_packet(1, &packet));
    let nameless = temp.file("nameless.pcapng", &bytes);
    let rules = temp.file("rules.txt", b"drop on eth0\npass on eth1\n");
    let done = weir(["firewall", "check", &rules, &nameless, "--json"]).ok();
    assert!(
        done.err
            .contains("1 packet came from interfaces without a name"),
        "{}",
        done.err
    );
    for (name, denied) in [("eth0", 1), ("eth1", 0), ("eth2", 0)] {
        let done = weir([
            "firewall",
            "check",
            &rules,
            &nameless,
            "--json",
            "--interface",
            name,
        ])
        .ok();
        let answer: Value = serde_json::from_str(&done.text()).unwrap();
        assert_eq!(
            (
                answer["denied"].as_u64(),
                done.err.contains("without a name")
            ),
            (Some(denied), false),
            "{name}"
        );
    }
}

#[test]
fn a_rule_names_the_interface_where_a_packet_leaves() {
    let temp = Temp::new();
    let file = temp.file("a.pcap", &small_pcap(10));
    let rules = temp.file("rules.txt", b"drop to wan*,!wan1 on !eth0\npass to wan1\n");
    let check = |more: &[&str]| {
        let done = weir(
            [
                &[
                    "firewall",
                    "check",
                    &rules,
                    &file,
                    "--json",
                    "--interface",
                    "eth1",
                ],
                more,
            ]
            .concat(),
        )
        .ok();
        let answer: Value = serde_json::from_str(&done.text()).unwrap();
        (
            answer["denied"].as_u64(),
            answer["rules"][1]["packets"].as_u64(),
            done.err,
        )
    };
    for (name, denied, passed) in [("wan0", 10, 0), ("wan1", 0, 10), ("eth1", 0, 0)] {
        let (found, by_rule, err) = check(&["--to", name]);
        assert_eq!(
            (found, by_rule, err.contains("'to'")),
            (Some(denied), Some(passed), false),
            "{name}: {err}"
        );
    }
    let (found, by_rule, err) = check(&[]);
    assert_eq!((found, by_rule), (Some(0), Some(0)));
    let words = "10 packets would leave at an interface without a name, so that no rule with 'to' matched them: --to NAME";
    assert!(err.contains(words), "{err}");
    let out = temp.at("out.pcap");
    let forwarded = [
        "firewall",
        &file,
        &out,
        "--rules",
        &rules,
        "--interface",
        "eth1",
        "--to",
    ];
    weir([&forwarded[..], &["wan0"]].concat()).ok();
    assert_eq!(records(&out).len(), 0);
    weir([&forwarded[..], &["wan1"]].concat()).ok();
    assert_eq!(records(&out).len(), 10);
}

#[test]
fn a_permission_table_denies_what_tcpdump_selects() {
    if !have(
        "a_permission_table_denies_what_tcpdump_selects",
        &["tcpdump"],
    ) {
        return;
    }
    let temp = Temp::new();
    let demo = temp.at("demo.pcap");
    weir(["generate", &demo, "--packets", "20000"]).ok();
    // The largest sources and destinations, so that every line of the table has packets.
    let top = |key: &str| -> Vec<String> {
        let done = weir([
            "measure",
            &demo,
            "--filter",
            "ip and not vlan",
            "--key",
            key,
            "--top",
            "4",
            "--json",
        ])
        .ok();
        let answer: Value = serde_json::from_str(&done.text()).unwrap();
        answer["top"]
            .as_array()
            .unwrap()
            .iter()
            .map(|row| row[key].as_str().unwrap().to_owned())
            .collect()
    };
    let (sources, destinations) = (top("src"), top("dst"));
    let text = format!(
        "ban {}\nban {}\nunban {}\nrefuse {} from any\naccept {} from 10.0.0.0/8\nrefuse {} from 10.64.0.0-10.127.255.255\n",
        sources[0], sources[1], sources[1], destinations[0], destinations[0], destinations[1]
    );
    let table = temp.file("table.txt", text.as_bytes());
    let rules = temp.file("rules.txt", b"drop udp\n");
    // Behind a tag the addresses are those of the IP packet too.
    let tagged = |expression: &str| behind_tags("", &format!("(ip or ip6) and ({expression})"));
    let banned = format!("src host {}", sources[0]);
    let refused = format!(
        "(dst host {} and not src net 10.0.0.0/8) or (dst host {} and src net 10.64.0.0/10)",
        destinations[0], destinations[1]
    );
    let refused = format!("({refused}) and not ({banned})");
    let count = |expression: &str| Some(tcpdump_count(&demo, &tagged(expression)).unwrap());
    let done = weir([
        "firewall",
        "check",
        "/dev/null",
        &demo,
        "--table",
        &table,
        "--json",
    ])
    .ok();
    let answer: Value = serde_json::from_str(&done.text()).unwrap();
    let found = |name: &str| answer[name]["packets"].as_u64();
    assert_eq!(
        (found("persona_non_grata"), found("not_accepted")),
        (count(&banned), count(&refused)),
        "{text}"
    );
    assert!(
        found("persona_non_grata") > Some(0) && found("not_accepted") > Some(0),
        "{answer}"
    );
    assert_eq!(
        answer["denied"].as_u64(),
        Some(found("persona_non_grata").unwrap() + found("not_accepted").unwrap())
    );
    // Rules judge what the table lets pass.
    let done = weir([
        "firewall", "check", &rules, &demo, "--table", &table, "--json",
    ])
    .ok();
    let both: Value = serde_json::from_str(&done.text()).unwrap();
    let by_rule = both["rules"][0]["packets"].as_u64();
    assert_eq!(both["persona_non_grata"], answer["persona_non_grata"]);
    assert_eq!(
        by_rule,
        count(&format!("udp and not ({banned}) and not ({refused})")),
        "{both}"
    );
    let done = weir(["firewall", "check", &rules, &demo, "--table", &table]).ok();
    assert!(
        done.text().contains("table: blocked source"),
        "{}",
        done.text()
    );
    // A table alone forwards too, and a wrong one does nothing.
    let out = temp.at("out.pcap");
    weir(["firewall", &demo, &out, "--table", &table]).ok();
    assert_eq!(
        records(&out).len() as u64,
        answer["passed"].as_u64().unwrap()
    );
    fs::remove_file(&out).unwrap();
    let wrong = temp.file(
        "wrong.txt",
        b"ban 10.0.0.1\nrefuse 10.0.0.1 from 10.0.0.9-10.0.0.1\n",
    );
    let done = weir(["firewall", &demo, &out, "--table", &wrong]);
    assert_eq!((done.code, fs::metadata(&out).is_err()), (Some(2), true));
    assert!(
        done.err
            .contains("wrong.txt: line 2: the range 10.0.0.9-10.0.0.1 is reversed"),
        "{}",
        done.err
    );
}

/// The times of the packets decide, not the time at which the file is judged.
#[test]
fn rates_and_times_of_rules_are_those_of_the_packets() {
    // Ten packets in each of twenty seconds, from two sources in turn.
    let mut bytes = pcap_header(65535, 1);
    for i in 0..200u32 {
        let mut frame = udp(5000 + (i % 10) as u16, 20);
        frame[29] = (i % 2) as u8;
        bytes.extend(pcap_record(1000 + i / 10, &frame));
    }
    let temp = Temp::new();
    let file = temp.file("a.pcap", &bytes);
    let packets = |rules: &str| -> Vec<u64> {
        checked(&temp.file("rules.txt", rules.as_bytes()), &file)["rules"]
            .as_array()
            .unwrap()
            .iter()
            .map(|rule| rule["packets"].as_u64().unwrap())
            .collect()
    };
    // Three of the ten in each second; of each source two.
    assert_eq!(packets("pass udp limit 3/s\n"), [60]);
    assert_eq!(packets("pass udp limit 2/s per src\n"), [80]);
    assert_eq!(packets("drop udp over 2/s per src\ncount udp\n"), [120, 80]);
    // A frame has 62 bytes: of ten in a second three fit into 186 bytes.
    assert_eq!(packets("pass limit 186B/s\n"), [60]);
    // The rule ends five seconds behind the first packet; then the rule behind it decides.
    assert_eq!(packets("drop udp for 5s\ncount udp\n"), [50, 150]);
    assert_eq!(
        packets("drop udp dport 5000 for 90s\ndrop udp limit 1/h burst 7 for 2s\ncount udp\n"),
        [20, 7, 173]
    );
}

#[test]
fn packets_that_a_file_did_not_take_are_lost_there() {
    let test = "packets_that_a_file_did_not_take_are_lost_there";
    if !have(test, &["tcpdump", "prlimit"]) {
        return;
    }
    let temp = Temp::new();
    let file = temp.at("in.pcap");
    weir([
        "generate",
        &file,
        "--packets",
        "2000",
        "--sizes",
        "400",
        "--seed",
        "3",
    ])
    .ok();
    let rules = temp.file("rules.txt", b"drop udp\n");
    let out = temp.at("out.pcap");
    let weir = env!("CARGO_BIN_EXE_weir");
    let done = tool(
        "prlimit",
        [
            "--fsize=200000",
            weir,
            "firewall",
            &file,
            &out,
            "--rules",
            &rules,
            "--json",
        ],
    );
    assert_eq!(done.code, Some(1), "{}", done.err);
    let answer: Value = serde_json::from_str(&done.text()).unwrap();
    let count = |file: &str, expression: &str| {
        tool("tcpdump", ["-n", "-r", file, expression])
            .ok()
            .text()
            .lines()
            .count() as u64
    };
    let whole = temp.at("whole.pcap");
    tool(weir, ["firewall", &file, &whole, "--rules", &rules]).ok();
    let (written, passed) = (count(&out, ""), count(&whole, ""));
    assert!(written < passed);
    assert_eq!(
        (&answer["passed"], &answer["taken"]),
        (&passed.into(), &written.into()),
        "{answer}"
    );
    assert_eq!(answer["lost"]["failed"], passed - written, "{answer}");

    // The file of -w beside a port that takes all.
    let kept = temp.at("kept.pcap");
    let arguments = [
        "--fsize=200000",
        weir,
        "firewall",
        &file,
        "null",
        "--rules",
        &rules,
        "-w",
        &kept,
        "--what",
        "passed",
        "--json",
    ];
    let done = tool("prlimit", arguments);
    assert_eq!(done.code, Some(1), "{}", done.err);
    let answer: Value = serde_json::from_str(&done.text()).unwrap();
    let written = count(&kept, "");
    assert_eq!(
        (&answer["taken"], &answer["files"]),
        (
            &passed.into(),
            &json!({ "taken": written, "lost": { "failed": passed - written } })
        ),
        "{answer}"
    );
}

#[test]
fn rules_of_nothing_are_refused_and_no_packet_is_judged_for_a_file_that_cannot_be_made() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(1000));
    let nothing = temp.file("nothing.txt", b"# no rule\nset a 10.0.0.1\n");
    let done = weir(["firewall", "check", &nothing, &file]);
    assert!(
        done.code == Some(2) && done.err.contains("neither a rule"),
        "{}",
        done.err
    );
    let marked = temp.file("marked.txt", "\u{feff}drop udp\r\n".as_bytes());
    assert_eq!(
        checked(&marked, &file)["denied"],
        1000,
        "a byte order mark and DOS line ends"
    );
    let (rules, out) = (temp.file("rules.txt", b"drop udp\n"), temp.at("out.pcap"));
    let nowhere = temp.at("nowhere/out.pcap");
    for outputs in [
        &[nowhere.as_str()][..],
        &[&out, "-w", &nowhere, "--what", "denied"],
    ] {
        let done = weir([&["firewall", &file, "--rules", &rules, "--json"], outputs].concat());
        assert_eq!(done.code, Some(1), "{}", done.err);
        assert!(
            done.err.contains("cannot be created") && !done.err.contains("add up"),
            "{}",
            done.err
        );
        let answer: Value = serde_json::from_str(&done.text()).unwrap();
        for name in ["received", "passed", "filtered", "denied"] {
            assert_eq!(answer[name], 0, "{answer}");
        }
    }
}

#[test]
fn a_total_length_below_the_header_is_malformed_and_long_rules_are_shown() {
    let temp = Temp::new();
    let mut bytes = pcap_header(65535, 1);
    // The total length stands behind the first two octets of the header; 0 is that of a packet which an interface would cut.
    for total in [0u16, 10, 19, 20, 46] {
        let mut frame = udp(53, 20);
        frame[16..18].copy_from_slice(&total.to_be_bytes());
        bytes.extend(pcap_record(1, &frame));
    }
    let file = temp.file("a.pcap", &bytes);
    let addresses: Vec<String> = (0..9000)
        .map(|i| format!("10.1.{}.{}", i / 250, i % 250))
        .collect();
    let rules = temp.file(
        "rules.txt",
        format!("drop src {}\n", addresses.join(",")).as_bytes(),
    );
    assert_eq!(checked(&rules, &file)["malformed"]["packets"], 2);
    let table = weir(["firewall", "check", &rules, &file]).ok().text();
    let row = table
        .lines()
        .find(|line| line.contains("drop src"))
        .unwrap();
    assert!(row.contains("...") && row.len() < 300, "{row}");
}
