//! Recordings whose packets come in bursts, at steady rates and with stamps that jump: what is saved goes by arrival.

use crate::recording::*;
use crate::support::*;
use serde_json::Value;

/// Second of the first packet.
const BEGIN: u32 = 1_700_000_000;

/// A hundred datagrams a second, with these stamps in ms after [`BEGIN`]; their numbers are in the payload.
fn hundred_a_second(stamps: impl Iterator<Item = u64>) -> Vec<u8> {
    let mut bytes = pcap_header(65_535, 1);
    for (ms, number) in stamps.zip(0..) {
        let mut record = pcap_record(BEGIN + (ms / 1000) as u32, &numbered(53, number, 20));
        record[4..8].copy_from_slice(&((ms % 1000 * 1000) as u32).to_le_bytes());
        bytes.extend(record);
    }
    bytes
}

fn numbers(file: &str) -> Vec<u32> {
    records(file).iter().map(number).collect()
}

#[test]
fn a_file_grows_when_its_trigger_fires_again() {
    let temp = Temp::new();
    let file = temp.file("two.pcap", &hundred_a_second((0..4000).map(|i| i * 10)));
    // At 10.0 and 14.9 s, and a crowd between.
    for (expression, last) in [
        ("udp[8:4] = 1000 or udp[8:4] = 1490", 1490),
        ("udp[8:4] >= 1000 and udp[8:4] <= 1490", 1490),
        // 1501 comes after the end that the file would have but for 1490.
        (
            "udp[8:4] = 1000 or udp[8:4] = 1490 or udp[8:4] = 1501",
            1501,
        ),
    ] {
        let out = temp.at(&format!("out{}", expression.len()));
        let trigger = format!("t={expression}");
        let options = ["--trigger", &trigger, "--before", "2s", "--after", "5s"];
        let done = weir([&["record", &file, &out], &options[..]].concat()).ok();
        let files: Vec<Vec<u32>> = saved(&out, "t").iter().map(|file| numbers(file)).collect();
        assert_eq!(
            files,
            [(800..=last + 500).collect::<Vec<_>>()],
            "{}",
            done.err
        );
        // With a cooldown, a file ends after its first event.
        let rests = temp.at(&format!("rests{}", expression.len()));
        weir([&["record", &file, &rests, "--cooldown", "1m"], &options[..]].concat()).ok();
        let [only] = &saved(&rests, "t")[..] else {
            panic!("{expression}")
        };
        assert_eq!(numbers(only), (800..=1500).collect::<Vec<_>>());
    }
}

/// What is saved came before and after by arrival, whatever the stamps say; a query goes by stamps.
#[test]
fn the_time_before_is_that_of_arrivals() {
    let temp = Temp::new();
    // Ten seconds, then the stamps step back by five seconds, twice.
    let back = hundred_a_second((0..3000).map(|i| i * 10 - i / 1000 * 5000));
    // A stamp of 1970 and one of 2106 amid the others.
    let wild = {
        let mut bytes = hundred_a_second((0..3000).map(|i| i * 10));
        for (number, stamp) in [(997usize, 0), (1150, u32::MAX), (1151, u32::MAX), (1900, 0)] {
            let at = 24 + number * (16 + 62);
            bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(stamp));
        }
        bytes
    };
    for (name, bytes) in [("back", back), ("wild", wild)] {
        let file = temp.file(&format!("{name}.pcap"), &bytes);
        for fires in [1005, 1995, 2003] {
            let out = temp.at(&format!("{name}{fires}"));
            let trigger = format!("t=udp[8:4] = {fires}");
            let options = [
                "--trigger",
                &trigger,
                "--before",
                "2s",
                "--after",
                "3s",
                "--age",
                "1h",
            ];
            let done = weir([&["record", &file, &out], &options[..]].concat()).ok();
            let [only] = &saved(&out, "t")[..] else {
                panic!("{name} {fires}: {}", done.err)
            };
            let found = numbers(only);
            let wanted: Vec<u32> = (fires - 200..=fires + 300).collect();
            assert_eq!(found, wanted, "{name} {fires}");
        }
        // Stamps that come twice name two files.
        let out = temp.at(&format!("{name}-all"));
        weir([
            "record",
            &file,
            &out,
            "--every",
            "5s",
            "--before",
            "5s",
            "--after",
            "5s",
            "--cooldown",
            "1ms",
        ])
        .ok();
        let mut all: Vec<u32> = saved(&out, "every")
            .iter()
            .flat_map(|file| numbers(file))
            .collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all, (0..3000).collect::<Vec<_>>(), "{name}");
    }
}

#[test]
fn a_wrong_stamp_stops_neither_intervals_nor_thresholds() {
    let temp = Temp::new();
    let mut bytes = hundred_a_second((0..6000).map(|i| i * 10));
    for (number, stamp) in [(500usize, 0), (1234, u32::MAX)] {
        let at = 24 + number * (16 + 62);
        bytes[at..at + 4].copy_from_slice(&u32::to_le_bytes(stamp));
    }
    let file = temp.file("wild.pcap", &bytes);
    let out = temp.at("out");
    let options = [
        "--every",
        "10s",
        "--threshold",
        "rate=total>99 packets/s/1s",
        "--after",
        "0s",
        "--before",
        "1s",
    ];
    let done = weir([&["record", &file, &out, "--json"], &options[..]].concat()).ok();
    let objects: Vec<Value> = done
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let of = |trigger: &str| {
        objects
            .iter()
            .filter(|object| object["trigger"] == trigger)
            .count()
    };
    assert_eq!(
        of("every"),
        5,
        "after 10, 20, 30, 40 and 50 s: {}",
        done.err
    );
    let fired = of("rate");
    assert!(
        (58..=60).contains(&fired),
        "{fired} of 60 seconds with 100 packets each"
    );
}

#[test]
fn steady_traffic_that_begins_within_a_window_does_not_grow() {
    let temp = Temp::new();
    let grows = |name: &str, stamps: &mut dyn Iterator<Item = u64>| {
        let (file, out) = (
            temp.file(&format!("{name}.pcap"), &hundred_a_second(stamps)),
            temp.at(name),
        );
        let options = ["--threshold", "g=total>3 times/1s", "--after", "0s"];
        weir([&["record", &file, &out], &options[..]].concat()).ok();
        saved(&out, "g").len()
    };
    // From 900 ms on a packet each millisecond.
    assert_eq!(grows("steady", &mut (900..3400)), 0);
    assert_eq!(grows("whole", &mut (0..3400)), 0);
    // Ten times as many from second 3 on; and 20 times as many in the second window, when the first one was whole.
    assert_eq!(
        grows("later", &mut (900..3000).step_by(10).chain(3000..5000)),
        1
    );
    assert_eq!(
        grows("second", &mut (0..1000).step_by(20).chain(1000..2000)),
        1
    );
}

#[test]
fn a_file_of_limited_size_holds_the_packet_that_fired() {
    let temp = Temp::new();
    let file = temp.file("all.pcap", &hundred_a_second((0..3000).map(|i| i * 10)));
    for (size, keep) in [("10k", "all"), ("4k", "all"), ("10k", "host")] {
        let out = temp.at(&format!("{size}{keep}"));
        let options = [
            "--before",
            "20s",
            "--after",
            "5s",
            "--max-size",
            size,
            "--keep",
            keep,
        ];
        let trigger = ["--trigger", "t=udp[8:4] = 2500"];
        let done = weir([&["record", &file, &out], &trigger[..], &options].concat()).ok();
        let [only] = &saved(&out, "t")[..] else {
            panic!("{}", done.err)
        };
        let found = numbers(only);
        assert_eq!(
            (found[0], found.last()),
            (500, Some(&2500)),
            "{size}, {keep}"
        );
        assert_eq!(
            found[..found.len() - 1],
            (500..500 + found.len() as u32 - 1).collect::<Vec<_>>()
        );
        let left_out = format!("{} packets were left out", 2500 - found.len());
        assert!(done.err.contains(&left_out), "{left_out}: {}", done.err);
    }
}
