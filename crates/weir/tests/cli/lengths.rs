//! Records whose lengths contradict their file's header or each other: read whole, copied whole, and told.

use crate::support::*;
use serde_json::Value;
use std::fs;

/// A pcap record with a wire length of its own.
fn record(seconds: u32, wire_len: u32, data: &[u8]) -> Vec<u8> {
    let header = [seconds, 0, data.len() as u32, wire_len];
    header
        .iter()
        .flat_map(|word| word.to_le_bytes())
        .chain(data.iter().copied())
        .collect()
}

/// Captured and wire lengths of a file, by tshark.
fn lengths(file: &str) -> String {
    let fields = ["-T", "fields", "-e", "frame.cap_len", "-e", "frame.len"];
    tool("tshark", [&["-n", "-r", file][..], &fields].concat())
        .ok()
        .text()
}

#[test]
fn a_record_longer_than_the_headers_snap_length_is_read_and_copied_whole() {
    if !have(
        "a_record_longer_than_the_headers_snap_length_is_read_and_copied_whole",
        &["tshark"],
    ) {
        return;
    }
    let temp = Temp::new();
    let (long, short) = (udp(80, 144), udp(80, 20));
    let bytes = [
        pcap_header(64, 1),
        pcap_record(1, &long),
        pcap_record(2, &short),
    ]
    .concat();
    let file = temp.file("long.pcap", &bytes);
    let theirs = lengths(&file);
    assert_eq!(theirs, "186\t186\n62\t62\n");
    for format in ["pcap", "pcapng"] {
        let copy = temp.at(&format!("copy.{format}"));
        let done = weir(["filter", "", &file, "-w", &copy]).ok();
        assert_eq!(lengths(&copy), theirs, "{format}");
        assert_eq!(records(&copy)[0].data, long, "{format}");
        // libpcap cuts it in a pcap file, whose header holds the same snap length as the source.
        assert_eq!(
            done.err.contains("1 packet is longer than the snap length"),
            format == "pcap",
            "{}",
            done.err
        );
    }
    assert_eq!(fs::read(temp.at("copy.pcap")).unwrap(), bytes);
    // Bytes behind the snap length are there for expressions too.
    assert_eq!(
        weir(["filter", "udp[100] = 92", &file, "--count"])
            .ok()
            .count(),
        1
    );
    let about = weir(["info", &file]).ok().text();
    assert!(
        about.contains("248 on the wire, 248 captured") && !about.contains("fewer bytes"),
        "{about}"
    );
    assert!(
        about.contains("1 packet longer than the snap length"),
        "{about}"
    );
    let object: Value = serde_json::from_str(&weir(["info", &file, "--json"]).ok().text()).unwrap();
    assert_eq!(
        (&object["captured_bytes"], &object["beyond_snaplen"]),
        (&248.into(), &1.into())
    );
}

/// Long enough for several cursors and workers, whose guesses look at the same lengths.
#[test]
fn long_records_are_found_by_many_cursors_and_workers() {
    let temp = Temp::new();
    let mut bytes = pcap_header(96, 1);
    let mut all = Vec::new();
    for i in 0..40_000u32 {
        let frame = numbered(80, i, 900 + i as usize % 600);
        bytes.extend(pcap_record(1_700_000_000 + i / 1000, &frame));
        all.push(frame);
    }
    let file = temp.file("many.pcap", &bytes);
    for workers in ["1", "4"] {
        let copy = temp.at("copy.pcapng");
        weir(["filter", "", &file, "-w", &copy, "--workers", workers]).ok();
        assert!(
            records(&copy).iter().map(|record| &record.data).eq(&all),
            "{workers}"
        );
        let _ = fs::remove_file(copy);
    }
    let (whole, piped) = (
        weir(["info", &file]).ok(),
        weir_fed(["info", "-"], &bytes).ok(),
    );
    for about in [whole.text(), piped.text()] {
        assert!(
            about.contains("40 000 packets longer than the snap length"),
            "{about}"
        );
    }
}

#[test]
fn a_wire_length_below_the_captured_length_is_told_by_every_command() {
    let temp = Temp::new();
    let mut bytes = pcap_header(65_535, 1);
    // 150 records of which 50 say that they were shorter on the wire, some of them in one batch.
    for i in 0..150u32 {
        let frame = udp(80, 100);
        bytes.extend(record(
            1_700_000_000 + i,
            if i % 3 == 0 { 10 } else { 142 },
            &frame,
        ));
    }
    let file = temp.file("short.pcap", &bytes);
    let line = format!(
        "weir: {file}: 50 packets have more bytes in it than on the wire, it says: its bytes on the wire count\n"
    );
    for command in [
        "filter||FILE|--count",
        "filter||FILE|-w|OUT",
        "measure|FILE",
        "filter||FILE|--sort|--count",
    ] {
        let out = temp.at("out.pcap");
        let words = command.split('|').map(|word| match word {
            "FILE" => &file,
            "OUT" => &out,
            word => word,
        });
        let done = weir(words).ok();
        assert!(done.err.contains(&line), "{command}: {}", done.err);
    }
    assert_eq!(fs::read(temp.at("out.pcap")).unwrap(), bytes);
    let few = weir(["filter", "", &file, "--count", "-c", "4"]).ok();
    assert!(
        few.err.contains(": 2 packets have more bytes"),
        "only what was taken: {}",
        few.err
    );
    let about = weir(["info", &file]).ok().text();
    assert!(
        about.contains("50 packets with more bytes in the file than on the wire"),
        "{about}"
    );
    let object: Value = serde_json::from_str(&weir(["info", &file, "--json"]).ok().text()).unwrap();
    assert_eq!(object["longer"], 50);
    let sound = temp.file("sound.pcap", &small_pcap(40));
    assert!(
        !weir(["filter", "", &sound, "--count"])
            .ok()
            .err
            .contains("more bytes")
    );
}
