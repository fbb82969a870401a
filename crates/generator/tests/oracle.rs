//! The generated traffic, compared with tcpdump and with the formulas of its profile.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_generator::{FRAME_MAX, Generator, Profile, Sizes};
use weir_testkit::output;
use weir_testkit::savefile::Pcap;

#[test]
fn truth_equals_what_tcpdump_counts() {
    let profiles = [
        (Sizes::Mwn, 200_000, 100_000),
        (Sizes::Uniform, 50_000, 1000),
        (Sizes::Fixed(60), 100_000, 5000),
        (Sizes::Fixed(1514), 20_000, 1),
    ];
    for (i, (sizes, packets, flows)) in profiles.into_iter().enumerate() {
        let profile = Profile {
            seed: 11 + i as u64,
            packets,
            sizes,
            flows,
            ..Profile::default()
        };
        let (generator, file) = save(&profile, &format!("truth-{sizes}"));
        if tcpdump(&file, &["--count"]).is_none() {
            return;
        }
        for (expression, packets, bytes) in generator.truth().rows() {
            let count = tcpdump(&file, &["--count", &expression]).expect("was there just now");
            let text = String::from_utf8_lossy(&count);
            let counted: u64 = text
                .split_whitespace()
                .next()
                .and_then(|word| word.parse().ok())
                .unwrap_or_else(|| panic!("no count for `{expression}`: {text}"));
            assert_eq!(packets, counted, "`{expression}` in {profile:?}");
            // A savefile has a header of 24 bytes, and 16 bytes in front of each packet.
            let matching = tcpdump(&file, &["-w", "-", &expression]).expect("was there just now");
            assert_eq!(
                24 + 16 * packets + bytes,
                matching.len() as u64,
                "`{expression}`"
            );
            if flows == 100_000 {
                assert!(packets > 0, "`{expression}` is never tested");
            }
        }
        fs::remove_file(file).expect("the test wrote it");
    }
}

#[test]
fn tcpdump_finds_no_wrong_checksum_or_length() {
    for sizes in [Sizes::Mwn, Sizes::Fixed(60)] {
        let profile = Profile {
            seed: 5,
            packets: 30_000,
            sizes,
            flows: 3000,
            ..Profile::default()
        };
        let (_, file) = save(&profile, &format!("checksum-{sizes}"));
        let Some(output) = tcpdump(&file, &["-vv"]) else {
            return;
        };
        let text = String::from_utf8_lossy(&output);
        assert!(text.contains("(correct)") && text.contains("udp sum ok"));
        for line in text.lines() {
            for fault in [
                "bad cksum",
                "bad udp cksum",
                "incorrect",
                "wrong",
                "truncated-ip",
                "bad length",
                "bad-len",
            ] {
                assert!(!line.contains(fault), "{line}");
            }
        }
        fs::remove_file(file).expect("the test wrote it");
    }
}

#[test]
fn frequencies_of_ranks_follow_zipf() {
    for (exponent, flows) in [(1.1, 100_000), (0.8, 1000), (0.0, 10)] {
        let profile = Profile {
            zipf: exponent,
            flows,
            sizes: Sizes::Fixed(60),
            ..Profile::default()
        };
        let mut generator = Generator::new(&profile).unwrap();
        let mut seen: HashMap<u32, u64> = HashMap::new();
        let mut buf = [0; FRAME_MAX];
        while let Some(made) = generator.next(&mut buf) {
            if let Some(rank) = made.flow {
                *seen.entry(rank).or_default() += 1;
            }
        }
        let total: u64 = seen.values().sum();
        let norm: f64 = (1..=flows).map(|k| (k as f64).powf(-exponent)).sum();
        for rank in 0..flows.min(100) {
            let share = ((rank + 1) as f64).powf(-exponent) / norm;
            let expected = share * total as f64;
            let count = seen.get(&(rank as u32)).copied().unwrap_or(0) as f64;
            let five_deviations = 5.0 * (expected * (1.0 - share)).sqrt();
            assert!(
                (count - expected).abs() < five_deviations,
                "rank {rank}: {count}, expected {expected}"
            );
        }
    }
}

#[test]
fn mix_of_packets_stays_near_the_shares_of_the_flows() {
    for seed in 0..5 {
        let profile = Profile {
            seed,
            packets: 200_000,
            ..Profile::default()
        };
        let mut generator = Generator::new(&profile).unwrap();
        let mut buf = [0; FRAME_MAX];
        while generator.next(&mut buf).is_some() {}
        let rows: HashMap<String, u64> =
            generator.truth().rows().map(|row| (row.0, row.1)).collect();
        let near = |expression: &str, low: f64, high: f64| {
            let share = rows[expression] as f64 / 200_000.0;
            assert!((low..high).contains(&share), "`{expression}` {share}");
        };
        near("tcp", 0.60, 0.75);
        near("udp", 0.20, 0.30);
        near("ip6", 0.05, 0.10);
        near("vlan", 0.03, 0.06);
        near("arp", 0.0017, 0.0023);
        near("ip[6:2] & 0x3fff != 0", 0.003, 0.0055);
    }
}

#[test]
fn top_flows_equal_those_of_a_plain_reader() {
    // Reads addresses, protocol and ports of untagged IPv4 back from the bytes.
    let profile = Profile {
        packets: 50_000,
        flows: 500,
        ..Profile::default()
    };
    let mut generator = Generator::new(&profile).unwrap();
    let mut buf = [0; FRAME_MAX];
    let mut seen: HashMap<Vec<u8>, (u64, u64)> = HashMap::new();
    while let Some(made) = generator.next(&mut buf) {
        let later_fragment = u16::from_be_bytes([buf[20], buf[21]]) & 0x1fff != 0;
        if buf[12..14] == [8, 0] && matches!(buf[23], 6 | 17) && !later_fragment {
            let count = seen
                .entry([&buf[23..24], &buf[26..38]].concat())
                .or_default();
            count.0 += 1;
            count.1 += made.len as u64;
        }
    }
    let top = generator.top(usize::MAX);
    assert!(top.is_sorted_by(|a, b| a.packets >= b.packets));
    let mut compared = 0;
    for flow in top {
        let (std::net::IpAddr::V4(source), std::net::IpAddr::V4(destination)) =
            (flow.source, flow.destination)
        else {
            continue;
        };
        if flow.vlan.is_some() || !matches!(flow.protocol, 6 | 17) {
            continue;
        }
        let key = [
            &[flow.protocol][..],
            &source.octets(),
            &destination.octets(),
            &flow.source_port.to_be_bytes(),
            &flow.destination_port.to_be_bytes(),
        ]
        .concat();
        assert_eq!(
            seen.remove(&key),
            Some((flow.packets, flow.bytes)),
            "{flow:?}"
        );
        compared += 1;
    }
    assert!(seen.is_empty() && compared > 100);
}

/// Makes all packets of the profile and saves them as a classic pcap file with ns times.
fn save(profile: &Profile, name: &str) -> (Generator, PathBuf) {
    let mut pcap = Pcap::with(1, 65_535, false, true);
    let mut generator = Generator::new(profile).unwrap();
    let mut buf = [0; FRAME_MAX];
    while let Some(made) = generator.next(&mut buf) {
        let (seconds, nanoseconds) = (made.time_ns / 1_000_000_000, made.time_ns % 1_000_000_000);
        pcap.header(
            seconds as u32,
            nanoseconds as u32,
            made.len as u32,
            made.len as u32,
        );
        pcap.bytes.extend(&buf[..made.len]);
    }
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}.pcap"));
    fs::write(&file, pcap.bytes).expect("the target directory can be written");
    (generator, file)
}

/// Standard output of tcpdump; `None` (with a message) if it is not installed.
fn tcpdump(file: &Path, arguments: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new("tcpdump");
    command.arg("-n").arg("-r").arg(file).args(arguments);
    output("truth_equals_what_tcpdump_counts", &mut command)
}
