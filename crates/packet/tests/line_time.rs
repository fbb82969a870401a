//! Written stamps and link type names against tcpdump's.

mod line_support;

use std::process::Command;

use line_support::{Random, have_tcpdump, pcap, tcpdump};
use weir_packet::LinkType;
use weir_packet::time::{Digits, Shape, Stamp};
use weir_testkit::ScratchFile;

/// A pcap file of short packets at these moments (seconds, nanoseconds); `magic` chooses the resolution.
fn file(magic: u32, per_unit: u32, moments: &[(u32, u32)]) -> Vec<u8> {
    let mut out = pcap(LinkType::RAW, &[]);
    out[..4].copy_from_slice(&magic.to_ne_bytes());
    for (seconds, nanos) in moments {
        for word in [*seconds, nanos / per_unit, 1, 1] {
            out.extend(word.to_ne_bytes());
        }
        out.push(0);
    }
    out
}

#[test]
fn stamps_are_tcpdumps() {
    if !have_tcpdump("stamps_are_tcpdumps") {
        return;
    }
    let mut random = Random(0x57a3);
    let moments: Vec<(u32, u32)> = (0..400)
        .map(|_| {
            (
                (random.next() >> 33) as u32,
                random.below(1_000_000_000) as u32,
            )
        })
        .collect();
    let mut compared = 0;
    for (magic, per_unit, digits, precision) in [
        (
            0xa1b2_c3d4,
            1000,
            Digits::Micro,
            "--time-stamp-precision=micro",
        ),
        (0xa1b2_3c4d, 1, Digits::Nano, "--time-stamp-precision=nano"),
    ] {
        let input = file(magic, per_unit, &moments);
        for (flag, shape) in [("-tt", Shape::Epoch), ("-tttt", Shape::DateClock)] {
            let output = tcpdump(&["-n", precision, flag, "-r", "-"], &input);
            let output = String::from_utf8_lossy(&output);
            let lines: Vec<&str> = output
                .lines()
                .filter(|line| !line.starts_with('\t'))
                .collect();
            assert_eq!(lines.len(), moments.len());
            for (line, (seconds, nanos)) in lines.iter().zip(&moments) {
                let mut stamp = String::new();
                Stamp::from_parts(i64::from(*seconds), *nanos).write(&mut stamp, shape, digits, 0);
                assert!(line.starts_with(&format!("{stamp} ")), "{stamp}: {line}");
                compared += 1;
            }
        }
    }
    assert_eq!(compared, 1600);
}

#[test]
fn link_type_names_are_libpcaps() {
    if !have_tcpdump("link_type_names_are_libpcaps") {
        return;
    }
    let mut named = 0;
    let input = ScratchFile::empty("link.pcap");
    for link in (0..320).map(LinkType) {
        std::fs::write(&input.0, pcap(link, &[]))
            .expect("the temporary directory takes a file of 24 bytes");
        let output = Command::new("tcpdump")
            .arg("-n")
            .arg("-r")
            .arg(&input.0)
            .output()
            .expect("tcpdump was found before");
        let said = String::from_utf8_lossy(&output.stderr);
        if let (Some(name), Some(description)) = (link.name(), link.description()) {
            named += 1;
            // A newer or older libpcap may not know the number. If it does, name and description must be the same.
            let known = said.contains(&format!("link-type {name} ({description}), "));
            assert!(
                known || said.contains(&format!("link-type {}, ", link.0)),
                "{link:?}: {said}"
            );
        }
    }
    assert!(named > 150, "{named} names");
}
