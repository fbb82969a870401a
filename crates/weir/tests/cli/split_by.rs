//! `--split-by`: a file for each source address or conversation.

use crate::support::*;
use std::collections::BTreeMap;

/// Files of a directory, with the number of their packets.
fn files(temp: &Temp, directory: &str) -> BTreeMap<String, u64> {
    let names = std::fs::read_dir(temp.at(directory)).unwrap();
    let names = names.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names
        .map(|name| {
            let path = temp.at(&format!("{directory}/{name}"));
            (name, weir(["filter", "", &path, "--count"]).ok().count())
        })
        .collect()
}

/// Datagrams from these last bytes of the source address, to these ports, and an ARP request.
fn packets(temp: &Temp, ends: &[(u8, u16)]) -> String {
    let mut bytes = pcap_header(65_535, 1);
    for (i, &(end, port)) in ends.iter().enumerate() {
        let mut frame = udp(port, 3);
        frame[29] = end;
        bytes.extend(pcap_record(1_700_000_000 + i as u32, &frame));
    }
    let mut arp = vec![0; 42];
    arp[12..14].copy_from_slice(&[8, 6]);
    bytes.extend(pcap_record(1_700_000_100, &arp));
    temp.file("a.pcap", &bytes)
}

const ENDS: [(u8, u16); 7] = [(1, 7), (3, 7), (1, 8), (9, 7), (1, 7), (3, 7), (1, 7)];

fn split(temp: &Temp, more: &[&str]) -> Done {
    let file = packets(temp, &ENDS);
    std::fs::create_dir(temp.at("out")).unwrap();
    let out = temp.at("out/a.pcap");
    weir([&["filter", "", &file, "-w", &out][..], more].concat())
}

fn named(files: &[(&str, u64)]) -> BTreeMap<String, u64> {
    let each = files.iter();
    each.map(|(name, count)| ((*name).to_owned(), *count))
        .collect()
}

#[test]
fn each_source_has_a_file() {
    let temp = Temp::new();
    split(&temp, &["--split-by", "src"]).ok();
    let expected = [
        ("a-10.0.0.1.pcap", 4),
        ("a-10.0.0.3.pcap", 2),
        ("a-10.0.0.9.pcap", 1),
        ("a-other.pcap", 1),
    ];
    assert_eq!(files(&temp, "out"), named(&expected));
    // The packets are those of the expression, in their order.
    let ours = records(&temp.at("out/a-10.0.0.1.pcap"));
    let theirs = temp.at("theirs.pcap");
    weir([
        "filter",
        "src host 10.0.0.1",
        &temp.at("a.pcap"),
        "-w",
        &theirs,
    ])
    .ok();
    assert!(ours == records(&theirs));
    // A file of before is kept.
    let again = [
        "filter",
        "src host 10.0.0.9",
        &temp.at("a.pcap"),
        "--split-by",
        "src",
        "-w",
        &temp.at("out/a.pcap"),
    ];
    let done = weir(again).ok();
    assert!(done.err.contains("kept"), "{}", done.err);
    assert_eq!(files(&temp, "out")["a-10.0.0.9.pcap1"], 1);
}

#[test]
fn each_flow_has_a_file_up_to_a_number() {
    let temp = Temp::new();
    let done = split(&temp, &["--split-by", "flow", "--split-most", "2"]).ok();
    let expected = [
        ("a-10.0.0.1.4000-10.0.0.2.7-udp.pcap", 3),
        ("a-10.0.0.2.7-10.0.0.3.4000-udp.pcap", 2),
        ("a-rest.pcap", 2),
        ("a-other.pcap", 1),
    ];
    assert_eq!(files(&temp, "out"), named(&expected), "{}", done.err);
    assert!(
        done.err
            .contains("2 packets of further addresses or conversations"),
        "{}",
        done.err
    );
    assert!(
        done.err.contains("8 written") || done.err.contains("8 matched"),
        "{}",
        done.err
    );
}

#[test]
fn names_have_the_other_addresses() {
    let temp = Temp::new();
    let key = temp.file("key", &[3; 32]);
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    split(&temp, &["--split-by", "src", "--anonymize", &key]).ok();
    let files = files(&temp, "out");
    assert_eq!(files.len(), 4);
    assert!(
        !files.keys().any(|name| name.contains("10.0.0.")),
        "{files:?}"
    );
}

#[test]
fn files_are_asked_for() {
    let temp = Temp::new();
    let file = packets(&temp, &ENDS);
    for (arguments, line) in [
        (&["--split-by", "src"][..], "-w"),
        (
            &["--split-by", "src", "-w", "-"],
            "--split-by makes files, and - is none",
        ),
        (
            &["--split-by", "src", "-w", "x.pcap", "-C", "1"],
            "exclude each other",
        ),
    ] {
        let done = weir([&["filter", "", &file][..], arguments].concat());
        assert!(
            done.code == Some(2) && done.err.contains(line),
            "{}",
            done.err
        );
    }
}
