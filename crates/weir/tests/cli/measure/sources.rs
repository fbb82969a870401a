//! Kinds of sources, and sources that fail.

use super::*;

fn profile() -> Profile {
    Profile {
        seed: 31,
        packets: 6000,
        flows: 200,
        ..Profile::default()
    }
}

fn twice(counts: &Counts) -> Counts {
    counts
        .iter()
        .map(|(key, (packets, bytes))| (key.clone(), (2 * packets, 2 * bytes)))
        .collect()
}

#[test]
fn files_pipes_and_compressed_files_are_measured_alike() {
    let test = "files_pipes_and_compressed_files_are_measured_alike";
    let temp = Temp::new();
    let (file, seen, _) = generated(&temp, "g.pcap", &profile());
    let (pcapng, _, _) = generated(&temp, "g.pcapng", &profile());
    let bytes = std::fs::read(&file).unwrap();
    let truth = counted("5tuple", &seen);
    let table = |sources: &[&str]| rows("5tuple", &measure_one(&[sources, &EXACT].concat())["top"]);
    assert_eq!(table(&[&file]), truth);
    assert_eq!(table(&[&pcapng]), truth);
    assert_eq!(table(&[&file, &pcapng]), twice(&truth), "several files");
    assert_eq!(table(&[&file, &file]), twice(&truth), "one file twice");
    let fed = |arguments: &[&str], input: &[u8]| {
        let done = weir_fed(
            ["measure", "--json"].iter().chain(arguments).chain(&EXACT),
            input,
        )
        .ok();
        rows("5tuple", &objects(&done)[0]["top"])
    };
    assert_eq!(fed(&["-"], &bytes), truth, "a pipe");
    assert_eq!(
        fed(&[&file, "-"], &bytes),
        twice(&truth),
        "a file, then a pipe"
    );
    assert_eq!(
        fed(&["-", &file], &bytes),
        twice(&truth),
        "a pipe, then a file"
    );
    for program in ["gzip", "zstd", "lz4"] {
        if have(test, &[program]) {
            let packed = tool_fed(program, ["-c"], &bytes).ok().out;
            assert_eq!(fed(&["-"], &packed), truth, "{program}, a pipe");
            assert_eq!(table(&[&temp.file("packed", &packed)]), truth, "{program}");
        }
    }
}

#[test]
fn the_title_says_what_was_measured() {
    let temp = Temp::new();
    let file = temp.file("ten.pcap", &small_pcap(10));
    let title = |done: Done| done.ok().text().split("  ").next().unwrap().to_owned();
    assert_eq!(title(weir(["measure", &file])), file);
    assert_eq!(title(weir(["measure", &file, &file])), "2 sources");
    assert_eq!(
        title(weir_fed(["measure", "-"], &small_pcap(10))),
        "standard input"
    );
}

#[test]
fn a_run_with_a_missing_file_measures_nothing_and_says_so_once() {
    let temp = Temp::new();
    let file = temp.file("ten.pcap", &small_pcap(10));
    let missing = temp.at("missing.pcap");
    for order in [[&missing, &file], [&file, &missing]] {
        let done = weir(["measure", "--json", order[0], order[1]]);
        assert_eq!(done.code, Some(1), "{}", done.err);
        let object = &objects(&done)[0];
        assert_eq!(object["received"], 0, "no source was read");
        let fault = object["fault"].as_str().expect("the missing file");
        assert!(
            fault.starts_with(&format!("{missing}: no such file")),
            "{fault}"
        );
        assert_eq!(done.err, format!("weir: {fault}\n"));
    }
    let done = weir(["measure", "--json", &missing]);
    assert_eq!(
        (done.code, &objects(&done)[0]["received"]),
        (Some(1), &json!(0))
    );
}

#[test]
fn what_is_before_damage_is_measured() {
    let temp = Temp::new();
    let whole = small_pcap(10);
    let record = 16 + 62;
    let mut lying = whole.clone();
    lying[24 + 4 * record + 8..][..4].copy_from_slice(&u32::MAX.to_le_bytes());
    let ten = temp.file("ten.pcap", &whole);
    // Name, bytes, packets before the damage, offset of the damage, words of the message.
    let cases = [
        (
            "cut.pcap",
            whole[..24 + 6 * record + 30].to_vec(),
            6,
            24 + 6 * record,
            "the file ends inside a packet",
        ),
        (
            "lying.pcap",
            lying,
            4,
            24 + 4 * record,
            "record claims 4294967295 bytes",
        ),
        ("nothing.pcap", Vec::new(), 0, 0, "the file is empty"),
    ];
    for (name, bytes, good, offset, words) in cases {
        let file = temp.file(name, &bytes);
        for design in [
            &[][..],
            &["--workers", "1"],
            &["--design", "async"],
            &["--design", "sync"],
            &["--window", "2s"],
        ] {
            let done = weir([&["measure", "--json", &file], design].concat());
            assert_eq!(done.code, Some(1), "{name} {design:?}: {}", done.err);
            let summary = objects(&done).pop().expect("the summary still comes");
            assert_eq!(summary["passed"], good, "{name} {design:?}");
            let line = match offset {
                0 => format!("{file}: {words}"),
                _ => format!("{file}: packet {}, offset {offset}: {words}", good + 1),
            };
            assert!(
                done.err.starts_with(&format!("weir: {line}")),
                "{name} {design:?}: {}\nwanted {line}",
                done.err
            );
            assert!(
                summary["fault"].as_str().unwrap().starts_with(&line),
                "{name}: {summary}"
            );
            assert_eq!(
                done.err.ends_with(", incomplete: see the fault above\n"),
                offset > 0,
                "{name}: {}",
                done.err
            );
        }
        let done = weir(["measure", "--json", &file, &ten]);
        assert_eq!(
            (done.code, &objects(&done)[0]["passed"]),
            (Some(1), &json!(good + 10)),
            "{name}, and a whole one"
        );
        let done = weir_fed(["measure", "--json", "-"], &bytes);
        assert_eq!(
            (done.code, &objects(&done)[0]["passed"]),
            (Some(1), &json!(good)),
            "{name} from a pipe"
        );
        let place = match offset {
            0 => String::new(),
            _ => format!("packet {}, offset {offset}: ", good + 1),
        };
        let line = format!("weir: standard input: {place}{words}");
        assert!(done.err.contains(&line), "{}", done.err);
    }
}

#[test]
fn a_capture_without_packets_is_no_fault() {
    let temp = Temp::new();
    for (name, bytes) in [
        ("empty.pcap", pcap_header(65_535, 1)),
        ("empty.pcapng", pcapng_start(1)),
    ] {
        let file = temp.file(name, &bytes);
        let object = measure_one(&[&file]);
        assert_eq!(
            (&object["received"], &object["top"], &object["start"]),
            (&json!(0), &json!([]), &Value::Null)
        );
        assert_eq!(
            measure(&[&file, "--window", "1s"]).len(),
            1,
            "no window, and the summary"
        );
        let done = weir(["measure", &file]).ok();
        assert!(
            done.text().contains("no packet was measured"),
            "{}",
            done.text()
        );
    }
}

#[test]
fn packets_without_a_flow_key_are_counted_by_reason() {
    let temp = Temp::new();
    let mut arp = udp(1, 20);
    arp[12..14].copy_from_slice(&[8, 6]);
    let cut = udp(1, 20)[..20].to_vec();
    let mut broken = udp(1, 20);
    broken[14] = 0x41;
    let good = udp(7, 0);
    let packets = [&arp, &arp, &cut, &broken, &good].map(|frame| (0, frame.as_slice()));
    let file = temp.file("mixed.pcap", &timed_pcap(packets));
    let object = measure_one(&[&file]);
    assert_eq!(
        object["keyless"],
        json!({ "not_ip": 2, "truncated": 1, "malformed": 1 })
    );
    assert_eq!(
        (&object["passed"], &object["bytes"]),
        (&json!(5), &json!(3 * 62 + 20 + 42))
    );
    assert_eq!(object["top"].as_array().unwrap().len(), 1);

    // Bluetooth has frames, but no IP addresses.
    let mut bytes = pcap_header(65_535, 187);
    (0..3).for_each(|second| bytes.extend(pcap_record(second, &[1, 2, 3, 4])));
    let file = temp.file("bluetooth.pcap", &bytes);
    let object = measure_one(&[&file]);
    assert_eq!(
        (&object["keyless"], &object["passed"]),
        (&json!({ "link_type": 3 }), &json!(3))
    );
    assert_eq!(
        (&object["top"], &object["flows"]["estimate"]),
        (&json!([]), &json!(0))
    );
    let text = weir(["measure", &file]).ok().text();
    assert!(
        text.contains("without flow key, in no table: 3 of a link type without flow key"),
        "{text}"
    );
}

/// Each interface has its own link type.
#[test]
fn interfaces_of_a_pcapng_are_read_each_its_own_way() {
    let temp = Temp::new();
    let mut raw = 101u16.to_le_bytes().to_vec();
    raw.extend([0; 6]);
    let mut packet = pcapng_packet(5, &udp(7, 0)[14..]);
    packet[8] = 1;
    let bytes = [
        pcapng_start(1),
        block(1, &raw),
        pcapng_packet(4, &udp(7, 0)),
        packet,
    ]
    .concat();
    let file = temp.file("two.pcapng", &bytes);
    let object = measure_one(&[&file, "--sketch", "exact"]);
    let key = r#"{"src":"10.0.0.1","dst":"10.0.0.2","sport":4000,"dport":7,"proto":"udp"}"#;
    assert_eq!(
        rows("5tuple", &object["top"]),
        Counts::from([(key.to_owned(), (2, 42 + 28))])
    );
    let done = weir(["measure", "--json", &file, "--filter", "udp port 7"]).ok();
    assert_eq!(
        objects(&done)[0]["passed"],
        2,
        "the expression is compiled for either"
    );
}

/// Counted bytes are wire lengths, also in a capture cut to headers.
#[test]
fn bytes_are_those_on_the_wire() {
    let temp = Temp::new();
    let mut bytes = pcap_header(60, 1);
    let frame = &udp(7, 400)[..60];
    bytes.extend(
        [1u32, 0, 60, 442]
            .iter()
            .flat_map(|word| word.to_le_bytes()),
    );
    bytes.extend(frame);
    let object = measure_one(&[&temp.file("cut.pcap", &bytes)]);
    assert_eq!(
        (
            &object["bytes"],
            &object["top"][0]["bytes"],
            &object["top"][0]["dport"]
        ),
        (&json!(442), &json!(442), &json!(7))
    );
    assert_eq!(object["sizes"]["256-511"], 1);
}
