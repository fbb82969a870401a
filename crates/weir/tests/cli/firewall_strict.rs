//! `weir firewall`: frames that are not what they say, which must not pass unasked, and connections that are apart.

use crate::support::*;
use serde_json::Value;

/// Judges frames by rules, and by a table if its text is not empty.
fn judged(rules: &str, table: &str, frames: &[Vec<u8>]) -> (Value, String) {
    let temp = Temp::new();
    let mut bytes = pcap_header(65_535, 1);
    frames
        .iter()
        .for_each(|frame| bytes.extend(pcap_record(5, frame)));
    let (file, rules) = (
        temp.file("frames.pcap", &bytes),
        temp.file("rules.txt", rules.as_bytes()),
    );
    let table = (!table.is_empty()).then(|| temp.file("table.txt", table.as_bytes()));
    let mut words = vec!["firewall", "check", &rules, &file, "--json"];
    words.extend(table.iter().flat_map(|table| ["--table", table.as_str()]));
    let done = weir(words).ok();
    (
        serde_json::from_str(&done.text()).expect("an object"),
        done.err,
    )
}

fn packets(answer: &Value, of: &str) -> u64 {
    answer[of]["packets"]
        .as_u64()
        .unwrap_or_else(|| panic!("{of}: {answer}"))
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter_map(|digit| (digit as char).to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| pair[0] << 4 | pair[1])
        .collect()
}

/// A neighbor solicitation of 2001:db8::7; tshark finds its checksum right.
fn solicitation() -> Vec<u8> {
    hex("3333ff000009 020000000007 86dd 60000000 0020 3a ff 20010db8000000000000000000000007 ff0200000000000000000001ff000009
         8700 1c0d 00000000 20010db8000000000000000000000009 0101020000000007")
}

#[test]
fn neighbor_discovery_passes_unasked_only_if_it_is_valid_and_its_source_is_not_banned() {
    let valid = solicitation();
    let damaged = |at: usize| {
        let mut other = valid.clone();
        other[at] ^= 1;
        other
    };
    // The checksum, the hop limit, the target, the length of the option; and a message that is cut.
    let invalid = [
        damaged(56),
        damaged(21),
        damaged(77),
        damaged(79),
        valid[..valid.len() - 1].to_vec(),
    ];
    let (answer, _) = judged(
        "default drop\n",
        "",
        &[vec![valid.clone()], invalid.to_vec()].concat(),
    );
    assert_eq!(
        (packets(&answer, "neighbors"), packets(&answer, "default")),
        (1, 5),
        "{answer}"
    );
    // A ban comes first; a destination that accepts few sources has neighbors all the same.
    let (answer, _) = judged(
        "default drop\n",
        "ban 2001:db8::7\n",
        std::slice::from_ref(&valid),
    );
    assert_eq!(
        (packets(&answer, "persona_non_grata"), &answer["passed"]),
        (1, &0.into()),
        "{answer}"
    );
    let (answer, _) = judged(
        "default drop\n",
        "default refuse\n",
        std::slice::from_ref(&valid),
    );
    assert_eq!(
        (packets(&answer, "neighbors"), &answer["passed"]),
        (1, &1.into()),
        "{answer}"
    );
    let (answer, _) = judged(
        "neighbors rules\ndefault drop\n",
        "default refuse\n",
        &[valid],
    );
    assert_eq!(
        (packets(&answer, "not_accepted"), &answer["passed"]),
        (1, &0.into()),
        "{answer}"
    );
}

#[test]
fn ipv4_headers_that_are_not_whole_are_malformed_for_all_who_read_them() {
    let head = "020000000009 020000000001 0800";
    // A header of 60 bytes of which 23 are there; a total length of 19, and one of 23 behind four bytes of options.
    let broken = [
        hex(&format!(
            "{head} 4f000064 00070000 40060000 0a000001 0a000002 000000"
        )),
        hex(&format!(
            "{head} 45000013 00070000 40110000 0a000001 0a000002 0035 0035 0008 0000"
        )),
        hex(&format!(
            "{head} 46000017 00070000 40110000 0a000001 0a000002 01010101 0035 0035 0008 0000"
        )),
    ];
    let (answer, _) = judged("default pass\n", "", &broken);
    assert_eq!(
        (packets(&answer, "malformed"), &answer["passed"]),
        (3, &0.into()),
        "{answer}"
    );
    let temp = Temp::new();
    let mut bytes = pcap_header(65_535, 1);
    broken
        .iter()
        .for_each(|frame| bytes.extend(pcap_record(5, frame)));
    let done = weir(["measure", &temp.file("frames.pcap", &bytes), "--json"]).ok();
    let answer: Value = serde_json::from_str(done.text().lines().last().unwrap()).unwrap();
    assert_eq!(
        answer["keyless"],
        serde_json::json!({ "malformed": 3 }),
        "{answer}"
    );
    // More tags than are walked hide what lies behind: the frame does not pass for one without IP.
    let tags = [
        hex(&head[..26]),
        [0x81, 0, 0, 1].repeat(40),
        hex("0800"),
        broken[1][14..].to_vec(),
    ]
    .concat();
    let (answer, _) = judged("default drop\n", "", &[tags]);
    assert_eq!(
        (packets(&answer, "malformed"), &answer["passed"]),
        (1, &0.into()),
        "{answer}"
    );
}

#[test]
fn extension_headers_are_those_of_ipv6() {
    // A later fragment of an authentication header in IPv4.
    let later = hex(
        "020000000009 020000000001 0800 4500002c 00070005 40330000 0a000001 0a000002 0000000000000000 0000000000000000",
    );
    for (rule, denied) in [
        ("routing", 0),
        ("hop,destination,fragment", 0),
        ("ah", 1),
        ("any", 1),
    ] {
        let (answer, _) = judged(
            &format!("drop extension {rule}\n"),
            "",
            std::slice::from_ref(&later),
        );
        assert_eq!(answer["denied"], Value::from(denied), "{rule}: {answer}");
    }
}

#[test]
fn a_rule_with_a_rate_or_a_time_judges_no_malformed_frame() {
    let malformed = hex("020000000009 020000000001 0800 4500");
    for (rule, passed) in [
        ("", 1),
        (" limit 10/s", 0),
        (" over 1/s", 0),
        (" for 10m", 0),
        (" state new", 0),
    ] {
        let rules = format!("pass expr 'greater 1'{rule}\n");
        let (answer, _) = judged(&rules, "", std::slice::from_ref(&malformed));
        assert_eq!(
            (&answer["passed"], packets(&answer, "malformed")),
            (&passed.into(), 1 - passed),
            "{rules}{answer}"
        );
    }
}

#[test]
fn a_frame_longer_than_a_burst_is_told() {
    let frames = [udp(53, 0), udp(53, 1200), udp(53, 1300)];
    let (answer, said) = judged("pass udp limit 1kB/s\ndefault drop\n", "", &frames);
    assert_eq!(
        (&answer["passed"], &answer["rules"][0]["longer_than_burst"]),
        (&1.into(), &2.into()),
        "{answer}"
    );
    assert!(
        said.contains(
            "line 1: frames of more than 1 024 bytes are beyond the rate after every pause"
        ),
        "{said}"
    );
    assert!(
        said.contains("line 1: 2 packets are longer than the 1 024 bytes that may come at once"),
        "{said}"
    );
    // k is binary: 64 KiB hold what 64 000 bytes do not.
    let many: Vec<Vec<u8>> = (0..65).map(|_| udp(53, 1000 - udp(53, 0).len())).collect();
    let (answer, said) = judged("pass udp limit 64kB/h\ndefault drop\n", "", &many);
    assert_eq!(
        (&answer["passed"], said.contains("burst")),
        (&65.into(), false),
        "{answer}"
    );
}

/// Connections of one VLAN are none of another; a priority tag is no VLAN.
#[test]
fn connections_are_apart_by_tag() {
    let segment = |tags: &str, is_answer: bool| {
        let (ends, flags) = if is_answer {
            ("0a000002 0a000001 0002 0001", "12")
        } else {
            ("0a000001 0a000002 0001 0002", "02")
        };
        hex(&format!(
            "020000000009 020000000001 {tags} 0800 45000028 00070000 40060000 {ends} 00000001 00000001 50{flags} 0064 0000 0000"
        ))
    };
    let rules = "pass state new,established\ndefault drop\n";
    for (first, answer, passed) in [
        ("", "", 2),
        ("8100 0005", "8100 0005", 2),
        ("8100 0005", "8100 0006", 1),
        ("8100 0005", "", 1),
        ("", "8100 0005", 1),
        ("", "8100 6000", 2),
        ("8100 2005", "8100 a005", 2),
        ("88a8 0005 8100 0007", "88a8 0005 8100 0007", 2),
        ("88a8 0005 8100 0007", "88a8 0005 8100 0008", 1),
        ("88a8 0005 8100 0007", "88a8 0007 8100 0005", 1),
    ] {
        let (found, _) = judged(rules, "", &[segment(first, false), segment(answer, true)]);
        assert_eq!(
            found["passed"],
            Value::from(passed),
            "{first}, {answer}: {found}"
        );
    }
}
