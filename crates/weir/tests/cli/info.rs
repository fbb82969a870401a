//! `weir info`: contents of capture files, compared with capinfos.

use crate::support::*;
use serde_json::Value;

fn info(file: &str) -> (Done, Value) {
    let done = weir(["info", "--json", file]);
    let value = serde_json::from_slice(&done.out)
        .unwrap_or_else(|error| panic!("{file}: {error}: {done:?}"));
    (done, value)
}

/// Row of capinfos about a file: encapsulation, packet size limit, packets, data size, start, end.
fn capinfos(file: &str) -> Option<Vec<String>> {
    let done = tool(
        "capinfos",
        [
            "-T", "-r", "-Q", "-M", "-S", "-B", "-E", "-l", "-c", "-d", "-a", "-e", file,
        ],
    );
    if done.code != Some(0) {
        return None;
    }
    let text = done.text();
    let row = text.lines().next()?;
    Some(
        row.split('\t')
            .map(|field| field.trim_matches('"').to_owned())
            .collect(),
    )
}

/// Name of a link type in capinfos.
fn encapsulation(linktypes: &[&str]) -> String {
    let name = match linktypes {
        ["EN10MB"] => "ether",
        ["LINUX_SLL"] => "linux-sll",
        ["RAW"] => "rawip",
        ["NULL"] => "null",
        ["SLIP"] => "slip",
        ["PPP"] => "ppp",
        ["C_HDLC"] => "chdlc",
        ["FRELAY"] => "frelay",
        ["IPV6"] => "rawip6",
        ["IEEE802_11_RADIO"] => "ieee-802-11-radiotap",
        [_, _, ..] => "per-packet",
        [name] => name,
        [] => "unknown",
    };
    name.to_owned()
}

/// Compares a time like `2013-05-02T20:20:36.616804000Z` with capinfos' seconds, to the digits that capinfos prints.
fn seconds_match(ours: &Value, theirs: &str) -> bool {
    let Some(ours) = ours.as_str() else {
        return theirs == "n/a";
    };
    let stamp = tool("date", ["-u", "-d", ours, "+%s.%N"]).ok().text();
    stamp.trim().starts_with(theirs)
}

/// Files that capinfos reads and weir refuses.
const REFUSED: [(&str, &str); 1] = [(
    "libpcap__pcap-invalid-version-2.pcap",
    "pcap 2.5 is refused, as libpcap refuses it",
)];

#[test]
fn every_capture_reads_as_capinfos_reads_it() {
    let test = "every_capture_reads_as_capinfos_reads_it";
    if !have(test, &["capinfos", "date"]) {
        return;
    }
    let mut compared = 0;
    for file in captures(test) {
        let (done, ours) = info(s(&file));
        let Some(row) = capinfos(s(&file)) else {
            eprintln!(
                "{test}: capinfos does not read {}; weir: {}",
                file.display(),
                done.err.trim()
            );
            continue;
        };
        let name = file.file_name().unwrap().to_str().unwrap();
        if let Some((_, reason)) = REFUSED.iter().find(|(refused, _)| *refused == name) {
            assert_eq!(
                (done.code, &ours["packets"]),
                (Some(1), &Value::from(0)),
                "{name}: {reason}"
            );
            continue;
        }
        let [_, encapsulation_, _, _, _, packets, bytes, start, end] = &row[..] else {
            panic!("{row:?}")
        };
        assert_eq!(
            ours["packets"].to_string(),
            *packets,
            "{name}: {}",
            done.err
        );
        assert_eq!(ours["bytes"].to_string(), *bytes, "{name}");
        // If one packet has no time, capinfos prints no times at all.
        if start == "n/a" && ours["packets"] != 0 {
            let text = weir(["info", s(&file)]).ok().text();
            assert!(text.contains("without a time stamp"), "{name}: {text}");
        } else {
            assert!(
                seconds_match(&ours["start"], start),
                "{name}: {} {start}",
                ours["start"]
            );
            assert!(
                seconds_match(&ours["end"], end),
                "{name}: {} {end}",
                ours["end"]
            );
        }
        let links: Vec<&str> = ours["linktypes"]
            .as_array()
            .unwrap()
            .iter()
            .map(|link| link.as_str().unwrap())
            .collect();
        assert_eq!(encapsulation(&links), *encapsulation_, "{name}");
        assert_eq!(
            (done.code, ours["faults"].as_array().unwrap().len()),
            (Some(0), 0),
            "{name}"
        );
        compared += 1;
    }
    eprintln!("{test}: {compared} captures compared");
}

#[test]
fn an_object_has_the_promised_keys() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(3));
    let (done, value) = info(&file);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""));
    assert_eq!(value["file"], file.as_str());
    assert_eq!(value["format"], "pcap");
    assert_eq!(value["linktypes"], serde_json::json!(["EN10MB"]));
    assert_eq!(value["packets"], 3);
    assert_eq!(value["bytes"], 3 * 62);
    assert_eq!(value["captured_bytes"], 3 * 62);
    assert_eq!(value["start"], "2023-11-14T22:13:20.000000000Z");
    assert_eq!(value["end"], "2023-11-14T22:13:22.000000000Z");
    assert_eq!(value["faults"], serde_json::json!([]));
}

#[test]
fn several_files_have_a_block_each() {
    let temp = Temp::new();
    let a = temp.file("a.pcap", &small_pcap(3));
    let b = temp.file(
        "b.pcapng",
        &[
            pcapng_start(1),
            pcapng_packet(5, &udp(1, 5)),
            pcapng_packet(6, &udp(2, 5)),
        ]
        .concat(),
    );
    let missing = temp.at("missing.pcap");
    let done = weir(["info", "--utc", &a, &missing, &b]);
    assert_eq!(done.code, Some(1));
    let fault = format!(
        "{missing}: no such file: ls {} shows what is there",
        s(temp.path())
    );
    assert_eq!(done.err, format!("weir: {fault}\n"));
    let blocks: Vec<Vec<(String, String)>> = done
        .text()
        .split("\n\n")
        .map(|block| {
            block
                .lines()
                .map(|line| (line[..15].trim().to_owned(), line[15..].to_owned()))
                .collect()
        })
        .collect();
    let row = |block: usize, name: &str| {
        let found = blocks[block].iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    assert_eq!(blocks.len(), 2, "nothing is known of the missing file");
    assert_eq!(row(0, "file"), a);
    assert_eq!(row(0, "format"), "pcap, little-endian");
    assert_eq!(row(0, "packets"), "3");
    assert_eq!(row(0, "sizes"), "all 62 bytes");
    assert_eq!(
        row(0, "mean rate"),
        "1.5 packets/s, 744 bit/s (frames without FCS)"
    );
    assert_eq!(row(0, "order"), "packets are in order of time");
    assert_eq!(row(0, "first"), "2023-11-14 22:13:20.000000000");
    assert_eq!(row(0, "duration"), "2.000000 s");
    assert_eq!(row(1, "format"), "pcapng, little-endian");
    assert_eq!(row(1, "bytes"), "94 on the wire, 94 captured");
    assert_eq!(
        row(1, "interface 0"),
        "2 packets, EN10MB, no snap length, microsecond resolution"
    );

    let lines = weir(["info", "--json", &a, &missing, &b]);
    let objects: Vec<Value> = lines
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(objects.len(), 3);
    assert_eq!(objects[1]["faults"], serde_json::json!([fault]));
    assert_eq!(objects[2]["packets"], 2);
}

#[test]
fn a_pipe_is_as_good_as_a_file() {
    let temp = Temp::new();
    let file = temp.at("made.pcap");
    weir(["generate", &file, "--packets", "20000"]).ok();
    let bytes = std::fs::read(&file).unwrap();
    let (_, from_file) = info(&file);
    let piped = weir_fed(["info", "--json", "-"], &bytes).ok();
    let mut piped: Value = serde_json::from_slice(&piped.out).unwrap();
    assert_eq!(piped["file"], "standard input");
    assert_eq!(from_file["file_bytes"], bytes.len());
    assert!(piped["file_bytes"].is_null());
    piped["file"] = from_file["file"].clone();
    piped["file_bytes"] = from_file["file_bytes"].clone();
    assert_eq!(piped, from_file);
    let workers = weir(["info", "--json", "--workers", "4", &file]).ok();
    assert_eq!(
        serde_json::from_slice::<Value>(&workers.out).unwrap(),
        from_file
    );
}

#[test]
fn what_a_file_says_of_itself_is_harmless_on_a_terminal() {
    let temp = Temp::new();
    let mut section = 0x1a2b_3c4du32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    let comment = b"red \x1b[31m alert\r\nnew line";
    section.extend([1, 0, comment.len() as u8, 0]);
    section.extend(comment);
    section.resize(section.len().next_multiple_of(4), 0);
    section.extend([0; 4]);
    let mut bytes = block(0x0a0d_0d0a, &section);
    bytes.extend(&pcapng_start(1)[28..]);
    let file = temp.file("comment.pcapng", &bytes);
    let done = weir(["info", &file]).ok();
    assert!(done.text().contains("red "), "{}", done.text());
    assert!(
        !done.text().contains('\x1b') && !done.text().contains('\r'),
        "{:?}",
        done.text()
    );
}
