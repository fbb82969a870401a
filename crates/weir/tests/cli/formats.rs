//! Bytes that earlier versions wrote, kept in `tests/formats`, are read by this one: the promise of docs/reference/formats.md.
//!
//! Numbers of packets are those that tcpdump found in the capture of which the records were made.

use crate::support::*;
use std::path::{Path, PathBuf};
use std::time::Duration;
use weir_firewall::control::{Keys, Refusal, Request, Sequences};
use weir_firewall::kept::Kept;
use weir_firewall::permissions::AddressChange;

/// Versions whose bytes are kept.
const VERSIONS: [&str; 1] = ["0.1"];

/// A copy of a kept record: a directory that only its owner may write, as weir makes it. A reader may add files to it.
fn record(temp: &Temp, version: &str, name: &str) -> String {
    let from = kept(version).join(name);
    let to = temp.at(&format!("{version}-{name}"));
    std::fs::create_dir(&to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let file = entry.unwrap().path();
        std::fs::copy(&file, Path::new(&to).join(file.file_name().unwrap())).unwrap();
    }
    to
}

fn kept(version: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/formats")
        .join(version)
}

#[test]
fn records_of_earlier_versions_are_read_with_their_indexes() {
    let temp = Temp::new();
    for version in VERSIONS {
        for name in ["record", "compressed"] {
            let directory = record(&temp, version, name);
            for (expression, packets) in [("", 200), ("udp port 53", 5), ("tcp port 443", 87)] {
                let done = weir(["query", &directory, expression, "--count"]).ok();
                assert_eq!(
                    done.count(),
                    packets,
                    "{version} {name} {expression}: {}",
                    done.err
                );
                let damage = ["index", "damaged", "missing", "torn"];
                assert!(
                    damage.iter().all(|word| !done.err.contains(word)),
                    "{}",
                    done.err
                );
            }
            // The index leads to the blocks: without one a rare port would cost a look at all of them.
            let done = weir(["query", &directory, "port 9", "--count", "--json"]).ok();
            assert!(
                done.text().contains("\"received\":0,"),
                "{version} {name}: {}",
                done.text()
            );
            let measured = weir(["measure", &directory, "--json"]).ok();
            assert!(
                measured.text().contains("\"received\":200,"),
                "{}",
                measured.text()
            );
        }
    }
}

#[test]
fn a_recorder_goes_on_in_a_record_of_an_earlier_version() {
    let temp = Temp::new();
    for version in VERSIONS {
        let directory = record(&temp, version, "record");
        let file = temp.at("again.pcap");
        weir(["generate", &file, "--packets", "10"]).ok();
        weir([
            "record",
            &file,
            &directory,
            "--disk",
            "64M",
            "--ram",
            "16M",
            "--reserve",
            "1",
        ])
        .ok();
        assert_eq!(
            weir(["query", &directory, "--count"]).ok().count(),
            210,
            "{version}"
        );
    }
}

#[test]
fn files_that_triggers_of_earlier_versions_saved_are_captures() {
    for version in VERSIONS {
        let directory = kept(version).join("record");
        let saved = std::fs::read_dir(directory)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let saved: Vec<_> = saved
            .filter(|path| s(path).contains("trigger-dns-"))
            .collect();
        assert_eq!(saved.len(), 1);
        assert_eq!(
            weir(["filter", "", s(&saved[0]), "--count"]).ok().count(),
            72,
            "{version}"
        );
        if have(
            "files_that_triggers_of_earlier_versions_saved_are_captures",
            &["tcpdump"],
        ) {
            let done = tool("tcpdump", ["-r", s(&saved[0]), "--count"]).ok();
            assert_eq!(done.count(), 72, "{version}");
        }
    }
}

#[test]
fn bans_of_earlier_versions_come_back() {
    for version in VERSIONS {
        let text = std::fs::read(kept(version).join("firewall.bans")).unwrap();
        let bans = Kept::parse(&text).unwrap();
        assert_eq!(bans.text().as_bytes(), text);
        let lasting: Vec<_> = bans
            .bans
            .iter()
            .map(|ban| ban.end.map(|end| end.lasts_ns))
            .collect();
        assert_eq!(lasting, [None, Some(600_000_000_000), None], "{version}");
        let addresses: usize = bans.bans.iter().map(|ban| ban.addresses().count()).sum();
        assert_eq!(addresses, 1 + 4 + 65536, "{version}");
    }
}

#[test]
fn control_packets_of_earlier_versions_are_obeyed_once() {
    const TIME_NS: u64 = 1_700_000_000_000_000_000;
    for version in VERSIONS {
        let packet = std::fs::read(kept(version).join("control.packet")).unwrap();
        let keys = std::fs::read_to_string(kept(version).join("control.keys")).unwrap();
        let keys = Keys::parse(&keys).unwrap();
        let sequences = Sequences::new([0]);
        let open = |packet: &[u8]| Request::open(packet, TIME_NS, &keys, &sequences);
        let request = open(&packet).unwrap();
        assert_eq!(request.sequence, 42);
        assert_eq!(request.lasts, Some(Duration::from_secs(600)));
        let lines = [
            "ban 2001:db8::7",
            "accept 10.0.0.5 from 10.1.0.0/16,10.3.0.0/16",
            "unban 192.0.2.7",
        ];
        let changes = lines.iter().map(|line| AddressChange::parse(line).unwrap());
        assert_eq!(request.changes, changes.flatten().collect::<Vec<_>>());
        // Another version is not guessed at, and a used number is refused.
        let mut other = packet.clone();
        other[4] = 2;
        assert_eq!(open(&other), Err(Refusal::Malformed));
        assert!(sequences.raise(request.key, request.sequence));
        assert_eq!(open(&packet), Err(Refusal::Replayed));
    }
}
