//! Records and copies that say what they are a record of, as capinfos and tshark show it.

use crate::recording::*;
use crate::support::*;
use serde_json::Value;

/// The blocks of a pcapng file of our own byte order: type and body.
fn blocks(bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let len = word(at + 4) as usize;
        found.push((word(at), bytes[at + 8..at + len - 4].to_vec()));
        at += len;
    }
    found
}

/// Options of a block behind its fixed fields.
fn options(body: &[u8], fixed: usize) -> Vec<(u16, Vec<u8>)> {
    let (mut rest, mut found) = (&body[fixed..], Vec::new());
    while rest.len() >= 4 {
        let [code, len] = [0, 2].map(|at| u16::from_le_bytes([rest[at], rest[at + 1]]));
        if code == 0 {
            break;
        }
        found.push((code, rest[4..4 + usize::from(len)].to_vec()));
        rest = &rest[4 + usize::from(len).next_multiple_of(4)..];
    }
    found
}

/// Snap length and options of the first interface of a file.
fn interface(path: &str) -> (u32, Vec<(u16, Vec<u8>)>) {
    let all = blocks(&std::fs::read(path).unwrap());
    let (_, body) = all
        .iter()
        .find(|(kind, _)| *kind == 1)
        .expect("an interface");
    (
        u32::from_le_bytes(body[4..8].try_into().unwrap()),
        options(body, 8),
    )
}

fn filter(path: &str) -> Option<String> {
    let found = interface(path)
        .1
        .into_iter()
        .find(|(code, _)| *code == 11)?
        .1;
    assert_eq!(found[0], 0, "an expression of libpcap");
    Some(String::from_utf8(found[1..].to_vec()).unwrap())
}

/// What capinfos shows of interfaces and comments.
fn capinfos(path: &str) -> String {
    tool("capinfos", ["-I", "-k", path]).ok().text()
}

/// What tshark shows of the blocks of a file.
fn tshark(path: &str) -> String {
    tool(
        "tshark",
        ["-r", path, "-X", "read_format:MIME Files Format", "-V"],
    )
    .ok()
    .text()
}

fn info(path: &str) -> Value {
    serde_json::from_slice(&weir(["info", "--json", path]).ok().out).unwrap()
}

fn object(text: &str) -> Value {
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

const PART: &str = "udp portrange 1-300; 40 bytes of each packet; packets of the first 1000 bytes of each conversation";

/// Segments, what is copied from them, and what is copied from that say the choice in the fields that other programs read.
#[test]
fn a_record_says_what_it_was_told_to_keep() {
    let test = "a_record_says_what_it_was_told_to_keep";
    if !have(test, &["capinfos", "tshark"]) {
        return;
    }
    let temp = Temp::new();
    let (file, out, copy) = (
        temp.file("all.pcap", &small_pcap(600)),
        temp.at("out"),
        temp.at("copy.pcapng"),
    );
    let told = [
        "--filter",
        "udp portrange 1-300",
        "--cutoff",
        "1000",
        "-s",
        "40",
    ];
    let kept = ["--disk", "1G", "--trigger", "t=udp port 100", "--json"];
    let done = weir([&["record", &file, &out], &told[..], &kept].concat()).ok();
    let end = object(&done.text());
    let words: Vec<&str> = PART.split("; ").collect();
    assert_eq!(end["holds_only"], serde_json::json!(words));
    let [segment] = &segments(&out)[..] else {
        panic!("one segment")
    };
    for path in [segment, &saved(&out, "t")[0]] {
        let (snaplen, options) = interface(path);
        assert_eq!(
            (snaplen, filter(path).as_deref()),
            (40, Some("udp portrange 1-300"))
        );
        let comment = b"holds only packets of the first 1000 bytes of each conversation".to_vec();
        assert!(options.contains(&(1, comment)), "{options:?}");
        assert!(
            capinfos(path).contains("udp portrange 1-300"),
            "{}",
            capinfos(path)
        );
        assert!(
            tshark(path).contains("udp portrange 1-300"),
            "{}",
            tshark(path)
        );
        assert!(
            weir(["info", path])
                .ok()
                .text()
                .replace("\n               ", " ")
                .contains(PART)
        );
    }
    assert!(
        blocks(&std::fs::read(segment).unwrap())
            .iter()
            .filter(|(kind, _)| *kind == 6)
            .count()
            == 300
    );

    // Readers of the record say so in one line, and what they copy has both expressions.
    let line = format!("weir: {out}: this record holds only: {PART}\n");
    let said = |done: &Done| done.err.matches(&line).count();
    let check = || {
        for words in [
            &["query", &out, "--count"][..],
            &["measure", &out],
            &["filter", "udp", &out, "--count"],
        ] {
            let done = weir(words).ok();
            assert_eq!(said(&done), 1, "{words:?}: {}", done.err);
        }
        assert_eq!(info(&out)["holds_only"], serde_json::json!(words));
        for question in [
            &["query", &out, "--json"][..],
            &["query", &out, "--json", "--flows"],
            &["measure", "--json", &out],
            &["measure", "--json", "--sort", &out],
            &["filter", "udp", &out, "--json", "--count"],
            &["filter", "udp", &out, "--json", "--count", "--sort"],
        ] {
            let done = weir(question).ok();
            assert_eq!(
                object(&done.text())["holds_only"],
                serde_json::json!(words),
                "{question:?}: {}",
                done.err
            );
            assert_eq!(said(&done), 1, "{question:?}: {}", done.err);
        }
        weir(["query", &out, "udp port 7", "-w", &copy]).ok();
        assert_eq!(
            filter(&copy).as_deref(),
            Some("(udp portrange 1-300) and (udp port 7)")
        );
        assert_eq!((interface(&copy).0, records(&copy).len()), (40, 1));
    };
    check();
    // Also without an index, with one made anew, and with damage in front.
    let index = segment.replace(".pcapng", ".index");
    std::fs::remove_file(&index).unwrap();
    check();
    weir(["record", "--reindex", &out]).ok();
    check();
    // A later recording of the directory may hold something else.
    weir([
        "record",
        &file,
        &out,
        "--disk",
        "1G",
        "--filter",
        "udp port 500",
    ])
    .ok();
    let done = weir(["query", &out, "--count"]).ok();
    assert!(
        done.err
            .contains("udp portrange 1-300 (interface 0); 40 bytes"),
        "{}",
        done.err
    );

    // Copies of copies keep all of it, and add their own.
    let again = temp.at("again.pcapng");
    for more in [&[][..], &["--sort"], &["--merge"], &["--workers", "3"]] {
        weir([&["filter", "host 10.0.0.2", &copy, "-w", &again], more].concat()).ok();
        let expected = "((udp portrange 1-300) and (udp port 7)) and (host 10.0.0.2)";
        assert_eq!(filter(&again).as_deref(), Some(expected), "{more:?}");
        assert!(
            info(&again)["holds_only"]
                .as_array()
                .unwrap()
                .contains(&words[2].into()),
            "{more:?}"
        );
    }
    // A pcap file has no place for it, and that is said.
    let done = weir(["filter", "", &copy, "-w", &temp.at("copy.pcap")]).ok();
    let line = "copy.pcap: 2 comments of sections and interfaces, 1 option of an interface are left out, because";
    assert!(done.err.contains(line), "{}", done.err);
    // A record of everything says nothing.
    let all = temp.at("everything");
    weir(["record", &file, &all, "--disk", "1G"]).ok();
    assert!(
        !weir(["query", &all, "--count"])
            .ok()
            .err
            .contains("holds only")
    );
    assert_eq!(
        (filter(&segments(&all)[0]), &info(&all)["holds_only"]),
        (None, &serde_json::json!([]))
    );
}

/// A snap length left something out only if a packet was longer.
#[test]
fn a_snap_length_is_told_if_it_cut_a_packet() {
    let temp = Temp::new();
    let whole = [pcap_header(9000, 1), pcap_record(1, &udp(7, 100))].concat();
    let mut cut = whole.clone();
    // The length on the wire.
    cut[24 + 12] += 1;
    let part = serde_json::json!(["9000 bytes of each packet"]);
    for (name, bytes, parts) in [("whole", whole, serde_json::json!([])), ("cut", cut, part)] {
        let (file, out) = (temp.file(name, &bytes), temp.at(&format!("out-{name}")));
        assert_eq!(info(&file)["holds_only"], parts);
        weir(["record", &file, &out, "--disk", "1G"]).ok();
        let done = weir(["query", &out, "--count"]).ok();
        assert_eq!(
            done.err.contains("holds only"),
            name == "cut",
            "{}",
            done.err
        );
    }
}

/// Files of a query say their expression, times, place and losses, as capinfos and tshark show them.
#[test]
fn files_of_a_query_say_what_was_asked() {
    let test = "files_of_a_query_say_what_was_asked";
    if !have(test, &["capinfos", "tshark"]) {
        return;
    }
    let temp = Temp::new();
    let (out, copy) = (temp.at("out"), temp.at("copy.pcapng"));
    let (mut recorder, _) = recorder(&out);
    let second = 1_000_000_000;
    let packets: Vec<Record> = (0..100)
        .map(|at| Record {
            time_ns: 1_700_000_000 * second + at * second,
            wire_len: 62,
            data: udp(53, 20),
        })
        .collect();
    for (number, packet) in packets.iter().enumerate() {
        // Numbers that are left out are packets that never came to the disk.
        put(
            &mut recorder,
            number as u64 + if number > 50 { 7 } else { 0 },
            packet,
        );
    }
    recorder.close().unwrap();
    let asked = [
        "--from",
        "2023-11-14T22:13:30Z",
        "--to",
        "2023-11-14T22:14:30Z",
    ];
    let done = weir([&["query", &out, "udp port 53", "-w", &copy], &asked[..]].concat()).ok();
    let lost = "up to 7 packets were lost in the time asked for: segments that reach beyond it lost them between ";
    assert!(done.err.contains(lost), "{}", done.err);
    let directory = std::fs::canonicalize(&out).unwrap();
    let shown = format!("{}{}", capinfos(&copy), tshark(&copy));
    for text in [
        format!("weir query: packets of the record {}", directory.display()),
        "holds only packets from 2023-11-14T22:13:30.000000Z to 2023-11-14T22:14:30.000000Z"
            .to_owned(),
        "udp port 53".to_owned(),
        lost.to_owned(),
    ] {
        assert!(shown.contains(&text), "{text}: {shown}");
    }
    let about = info(&copy);
    assert_eq!(about["lost_before"], 7, "{about}");
    assert!(
        about["remarks"][0].as_str().unwrap().starts_with(lost),
        "{about}"
    );
    let part = "packets from 2023-11-14T22:13:30.000000Z to 2023-11-14T22:14:30.000000Z";
    assert_eq!(
        about["holds_only"],
        serde_json::json!(["udp port 53", part])
    );
    let text = weir(["info", &copy])
        .ok()
        .text()
        .replace("\n               ", " ");
    assert!(
        text.contains(lost) && text.contains(&format!("holds only   udp port 53; {part}")),
        "{text}"
    );
    // The remark stays in a copy of the copy.
    let again = temp.at("again.pcapng");
    weir(["filter", "", &copy, "-w", &again]).ok();
    assert_eq!(
        (&info(&again)["remarks"], &info(&again)["holds_only"]),
        (&about["remarks"], &about["holds_only"])
    );
}

/// The expression of a copy, and that of each split.
#[test]
fn copies_say_the_expression_that_chose_them() {
    let temp = Temp::new();
    let file = temp.file("all.pcap", &small_pcap(9));
    let (out, set) = (temp.at("out.pcapng"), temp.file("lan.txt", b"10.0.0.2\n"));
    let of = |words: &[&str]| {
        weir([words, &[&file, "-w", &out]].concat()).ok();
        let comments = interface(&out).1.into_iter().filter(|(code, _)| *code == 1);
        (
            filter(&out),
            comments
                .map(|(_, text)| String::from_utf8(text).unwrap())
                .collect::<Vec<_>>(),
        )
    };
    assert_eq!(of(&["filter", ""]), (None, vec![]));
    assert_eq!(of(&["filter", "udp"]), (Some("udp".to_owned()), vec![]));
    assert_eq!(
        of(&["filter", "--invert", "tcp"]),
        (Some("not (tcp)".to_owned()), vec![])
    );
    let named = format!("lan={set}");
    let sets = of(&["filter", "--set", &named, "dst @lan"]);
    assert_eq!(
        sets,
        (
            None,
            vec!["holds only packets that match: dst @lan".to_owned()]
        )
    );
    assert_eq!(
        of(&["measure", "--filter", "udp port 3"]).0.as_deref(),
        Some("udp port 3")
    );
    let words = temp.file("expression.txt", b"udp port 4\n");
    let read = of(&["filter", "--filter-file", &words]);
    assert_eq!(
        read,
        (
            None,
            vec![format!(
                "holds only packets that match the expression of {words}"
            )]
        )
    );
    let splits = ["--split", &format!("{}=udp port 5", temp.at("five"))].map(str::to_owned);
    let words = ["filter", "udp", &file].map(str::to_owned);
    weir(words.iter().chain(&splits)).ok();
    assert_eq!(
        filter(&temp.at("five.pcapng")).as_deref(),
        Some("(udp) and (udp port 5)")
    );
}

/// Files of a firewall say whose packets they have: those that it passed, or those that it denied, and by which rules.
#[test]
fn files_of_a_firewall_say_what_they_hold() {
    let temp = Temp::new();
    let (file, rules) = (
        temp.file("all.pcap", &small_pcap(9)),
        temp.file("rules.txt", b"drop udp dport 3\ndefault pass\n"),
    );
    let (out, denied) = (temp.at("out.pcapng"), temp.at("denied.pcapng"));
    weir([
        "firewall", &file, &out, "--rules", &rules, "-w", &denied, "--what", "denied",
    ])
    .ok();
    for (path, verb) in [(&out, "passed"), (&denied, "denied")] {
        let part = format!("packets that the firewall {verb}, by {rules}");
        assert_eq!(info(path)["holds_only"], serde_json::json!([part]));
        let comment = format!("holds only {part}").into_bytes();
        assert!(interface(path).1.contains(&(1, comment)), "{path}");
    }
    assert_eq!((records(&out).len(), records(&denied).len()), (8, 1));
}

/// An interface description block with options, and a section in front of it.
fn described(options: &[(u16, &[u8])]) -> Vec<u8> {
    let start = pcapng_start(1);
    let mut body = start[28 + 8..28 + 16].to_vec();
    for (code, value) in options {
        body.extend(code.to_le_bytes());
        body.extend((value.len() as u16).to_le_bytes());
        body.extend(*value);
        body.resize(body.len().next_multiple_of(4), 0);
    }
    body.extend([0; 4]);
    [&start[..28], &block(1, &body)].concat()
}

/// Options of interfaces are kept by copies and by records; what has no place is counted.
#[test]
fn options_of_interfaces_are_kept() {
    let temp = Temp::new();
    let speed = 1_000_000_000u64.to_le_bytes();
    let kept: [(u16, &[u8]); 7] = [
        (4, &[10, 0, 0, 1, 255, 0, 0, 0]),
        (6, &[2, 0, 0, 0, 0, 1]),
        (8, &speed),
        (12, b"Linux 6.1"),
        (13, &[4]),
        (15, b"a card"),
        (2988, b"\xd9\x7e\0\0text"),
    ];
    let more: [(u16, &[u8]); 2] = [(11, b"\0tcp or udp"), (19_372, b"\xd9\x7e\0\0mine")];
    let options_there: Vec<_> = kept.iter().chain(&more).copied().collect();
    let bytes = [described(&options_there), pcapng_packet(5, &udp(1, 5))].concat();
    let (file, copy, out) = (
        temp.file("in.pcapng", &bytes),
        temp.at("copy.pcapng"),
        temp.at("out"),
    );
    let done = weir(["filter", "", &file, "-w", &copy]).ok();
    assert!(
        done.err
            .contains("in.pcapng: 1 option of an interface is left out of copies"),
        "{}",
        done.err
    );
    let done = weir(["record", &file, &out, "--disk", "1G"]).ok();
    assert!(
        done.err
            .contains("in.pcapng: 1 option of an interface is left out of copies"),
        "{}",
        done.err
    );
    for path in [&copy, &segments(&out)[0]] {
        let options = interface(path).1;
        for (code, value) in kept.iter().chain(&more[..1]) {
            assert!(
                options.contains(&(*code, value.to_vec())),
                "{path} {code}: {options:?}"
            );
        }
        assert!(!options.iter().any(|(code, _)| *code == 19_372));
    }
    let about = &info(&file)["interfaces"][0];
    assert_eq!(
        (&about["os"], &about["hardware"]),
        (&"Linux 6.1".into(), &"a card".into())
    );
    assert_eq!(
        (&about["bits_per_second"], &about["filter"]),
        (&speed_value(), &"tcp or udp".into())
    );
    let text = weir(["info", &file])
        .ok()
        .text()
        .replace("\n               ", " ");
    assert!(
        text.contains("filter \"tcp or udp\", os \"Linux 6.1\"")
            || text.contains("os \"Linux 6.1\""),
        "{text}"
    );
    assert!(
        text.contains("1.00 Gbit/s") || text.contains("1.0 Gbit/s"),
        "{text}"
    );
}

/// A section header with these texts of hardware, operating system and application.
fn section(texts: [&str; 3]) -> Vec<u8> {
    let mut body = pcapng_start(1)[8..24].to_vec();
    for (code, text) in (2u16..).zip(texts) {
        body.extend(code.to_le_bytes());
        body.extend((text.len() as u16).to_le_bytes());
        body.extend(text.as_bytes());
        body.resize(body.len().next_multiple_of(4), 0);
    }
    body.extend([0; 4]);
    block(0x0a0d_0d0a, &body)
}

/// Options of section headers are kept by copies; what has no place is counted.
#[test]
fn options_of_sections_are_kept() {
    let temp = Temp::new();
    let packet = pcapng_packet(5, &udp(1, 5));
    let start = pcapng_start(1);
    let part = |texts| [section(texts), start[28..].to_vec(), packet.clone()].concat();
    let first = part(["a machine", "Linux 6.1", "Dumpcap 4.2"]);
    let (file, copy, again) = (
        temp.file("in.pcapng", &first),
        temp.at("copy.pcapng"),
        temp.at("again.pcapng"),
    );
    let done = weir(["filter", "", &file, "-w", &copy]).ok();
    assert!(!done.err.contains("left out"), "{}", done.err);
    weir(["filter", "", &copy, "-w", &again]).ok();
    for path in [&copy, &again] {
        let all = blocks(&std::fs::read(path).unwrap());
        let text = |wanted: u16| -> Vec<String> {
            let found = options(&all[0].1, 16)
                .into_iter()
                .filter(|(code, _)| *code == wanted);
            found
                .map(|(_, text)| String::from_utf8(text).unwrap())
                .collect()
        };
        assert_eq!(
            (text(2), text(3)),
            (vec!["a machine".to_owned()], vec!["Linux 6.1".to_owned()]),
            "{path}"
        );
        assert_eq!(text(1), ["written before by Dumpcap 4.2"], "{path}");
        assert!(
            text(4).len() == 1 && text(4)[0].starts_with("weir "),
            "{:?}",
            text(4)
        );
    }
    if have("options_of_sections_are_kept", &["capinfos"]) {
        let shown = tool("capinfos", ["-M", &again]).ok().text();
        assert!(
            shown.contains("a machine") && shown.contains("Linux 6.1"),
            "{shown}"
        );
    }
    // A file has one of each; further ones are counted, and so is all in files that have no place.
    let both = temp.file(
        "both.pcapng",
        &[first, part(["another", "Linux 6.1", "weir 9"])].concat(),
    );
    for more in [&[][..], &["--sort"], &["--merge"]] {
        let done = weir([&["filter", "", &both, "-w", &copy], more].concat()).ok();
        let line = "copy.pcapng: 1 option of a section is left out";
        assert!(done.err.contains(line), "{more:?}: {}", done.err);
    }
    let done = weir(["filter", "", &file, "-w", &temp.at("copy.pcap")]).ok();
    let line = "copy.pcap: 1 comment of a section or interface, 2 options of sections are left out";
    assert!(done.err.contains(line), "{}", done.err);
    let done = weir(["record", &file, &temp.at("out"), "--disk", "1G"]).ok();
    assert!(
        done.err
            .contains("3 options of sections are left out, because a record has no place"),
        "{}",
        done.err
    );
}

fn speed_value() -> Value {
    1_000_000_000u64.into()
}

/// What hostile files say is cut and escaped where it is shown.
#[test]
fn what_files_say_of_themselves_is_bounded() {
    let temp = Temp::new();
    let hostile = [b"\0tcp \x1b[31m\n".to_vec(), b"x".repeat(60_000)].concat();
    let comment = [b"holds only \x07".to_vec(), b"y".repeat(50_000)].concat();
    let bytes = [
        described(&[(11, &hostile), (1, &comment)]),
        pcapng_packet(5, &udp(1, 5)),
    ]
    .concat();
    let file = temp.file("in.pcapng", &bytes);
    let done = weir(["info", &file]).ok();
    let text = done.text();
    assert!(
        text.len() < 4000 && !text.contains(['\x1b', '\x07']),
        "{} bytes",
        text.len()
    );
    assert!(
        text.contains("\\x1b[31m\\n") && text.contains(" more)"),
        "{text}"
    );
    assert_eq!(
        info(&file)["interfaces"][0]["filter"]
            .as_str()
            .unwrap()
            .len(),
        hostile.len() - 1
    );
    // A record keeps no half of an expression as one.
    let out = temp.at("out");
    weir(["record", &file, &out, "--disk", "1G"]).ok();
    assert_eq!(filter(&segments(&out)[0]), None);
    let line = weir(["query", &out, "--count"]).ok().err;
    assert!(line.len() < 2000 && !line.contains('\x1b'), "{line}");
    assert!(
        line.contains("packets that match: tcp \\x1b[31m\\nxxx"),
        "{line}"
    );
}

/// Packets lost before a packet, by its options, are told of copies and records that lack the packet.
#[test]
fn losses_told_by_packets_are_told_on() {
    let temp = Temp::new();
    let with_drops = |port: u16, drops: u64| {
        let packet = pcapng_packet(u32::from(port), &udp(port, 6));
        let mut body = packet[8..packet.len() - 4].to_vec();
        body.extend([4, 0, 8, 0]);
        body.extend(drops.to_le_bytes());
        body.extend([0; 4]);
        block(6, &body)
    };
    let bytes = [
        pcapng_start(1),
        with_drops(1, 5),
        pcapng_packet(2, &udp(2, 6)),
        with_drops(3, 8),
    ]
    .concat();
    let (file, copy, out) = (
        temp.file("in.pcapng", &bytes),
        temp.at("copy.pcapng"),
        temp.at("out"),
    );
    let about = info(&file);
    assert_eq!(
        (&about["lost_between"], &about["lost_before"]),
        (&13.into(), &13.into())
    );
    let text = weir(["info", &file]).ok().text();
    assert!(
        text.contains("lost         13 packets when it was captured, it says"),
        "{text}"
    );
    assert!(
        text.contains("13 of them by the options of packets"),
        "{text}"
    );
    for expression in ["", "udp port 2"] {
        for more in [&[][..], &["--sort"], &["--merge"]] {
            weir([&["filter", expression, &file, "-w", &copy], more].concat()).ok();
            assert_eq!(info(&copy)["lost_before"], 13, "{expression} {more:?}");
        }
    }
    let done = weir([
        "record",
        &file,
        &out,
        "--disk",
        "1G",
        "--filter",
        "udp port 2",
    ])
    .ok();
    assert!(
        weir(["query", &out, "--count"])
            .ok()
            .err
            .contains("13 packets were dropped when"),
        "{}",
        done.err
    );
    let done = weir(["record", &file, &temp.at("all"), "--disk", "1G"]).ok();
    assert!(
        done.err
            .contains("2 packets' options are left out, because a record has no place"),
        "{}",
        done.err
    );
}

/// Files of triggers say which packets they keep, beside what the recording was told.
#[test]
fn files_of_triggers_say_what_they_keep() {
    let temp = Temp::new();
    let file = temp.file("all.pcap", &small_pcap(60));
    let kept = [
        ("all", &["udp"][..]),
        ("host", &["udp", "packets from and to 10.0.0.1"]),
        (
            "flow",
            &[
                "udp",
                "packets of the conversation 10.0.0.1.4000 > 10.0.0.2.30",
            ],
        ),
        ("udp port 29", &["(udp) and (udp port 29)"]),
    ];
    for (keep, words) in kept {
        let out = temp.at(&format!("out-{keep}"));
        let told = [
            "--filter",
            "udp",
            "--trigger",
            "t=udp port 30",
            "--keep",
            keep,
        ];
        weir([&["record", &file, &out], &told[..]].concat()).ok();
        let saved = saved(&out, "t");
        assert_eq!(
            info(&saved[0])["holds_only"],
            serde_json::json!(words),
            "{keep}"
        );
        assert!(!records(&saved[0]).is_empty());
    }
}
