//! Frames of streams, compared with a naive twin, and with tcpdump and tshark.

#[path = "bodies/streams.rs"]
mod bodies;

use bodies::{compare, compare_text};
use std::collections::{HashMap, HashSet};
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_generator::streams::{Frames, Gaps, Profile, Rate, Traffic};
use weir_testkit::Random;
use weir_testkit::savefile::Pcap;

#[test]
fn frames_equal_those_of_a_naive_twin() {
    for name in Profile::names() {
        let profile = Profile::built_in(name).unwrap();
        if name != "mwn" && matches!(profile.traffic, Traffic::Streams(_)) {
            compare(&profile, 2000);
        }
    }
    compare_text(EVERYTHING, 3000);
}

/// Each layer, each kind of values, each payload.
const EVERYTHING: &str = r#"
seed = 77
[[stream]]
layers = "eth/vlan/vlan/ipv4/udp"
size = "60-9000"
payload = "random"
eth.src = "02:00:00:00:00:00/32:random"
eth.dst = "2:0:0:0:0:1,2:0:0:0:1:0:random"
outer.vlan.id = "100-199"
vlan.id = "1-4094:random"
vlan.pcp = 5
ipv4.src = "10.0.0.9/255.0.255.255:random"
ipv4.dscp = "0-63"
ipv4.proto = "17"
udp.dst = "53,67,123"
[[stream]]
weight = 3
layers = "eth/ipv6/tcp"
size = "100:3,175:1,333:2,1514:1"
payload = "text:GET / HTTP/1.1, and some more of it"
flows = 900
ipv6.src = "2001:db8::/32:random"
ipv6.dst = "2001:2::5-2001:2::9"
ipv6.flow = "0-1048575:random"
ipv6.hops = "1-255:random:packet"
tcp.flags = "S,SA,FA,PA:random"
tcp.seq = "0-4294967295:random:packet"
at.90 = "1-250:random"
[[stream]]
layers = "eth/ipv4/udp/vxlan/eth/vlan/ipv4/tcp"
size = "60-400"
payload = "random"
outer.ipv4.src = "198.18.0.0/24"
outer.udp.src = "49152-65535:random"
vxlan.vni = "0-16777215:random"
ipv4.src = "10.0.0.0/8:random"
tcp.src = "1-9"
[[stream]]
layers = "eth/ipv6/icmp6"
size = 90
payload = "stamp"
ipv6.next = "58,59:random"
icmp6.id = "7-7:random"
icmp6.seq = "0-65535"
[[stream]]
layers = "eth/ipv4/udp"
size = "90-120"
payload = "stamp"
ipv4.ttl = "3-200"
[[stream]]
layers = "eth/arp"
payload = "none"
arp.op = "1-2"
arp.tha = "2:0:0:0:0:0-2:0:0:0:0:ff:random"
arp.spa = "10.0.0.0/16:random"
[[stream]]
layers = "eth/ipv4/icmp"
checksums = "none"
size = "uniform"
at.24.2 = "0-65535:random"
at.36.2 = 0xbeef
[[stream]]
layers = "eth/ipv6/udp"
payload = "hex:ff00ff"
size = 61
udp.src = "0-65535"
ipv6.class = "0-255:random"
"#;

/// What fuzzing does, on the stable compiler.
#[test]
fn random_texts_make_frames_or_one_line() {
    let mut random = Random::behind(9);
    let lines: Vec<&str> = EVERYTHING.lines().collect();
    for _ in 0..300 {
        let mut text = String::from("[[stream]]\nlayers = \"eth/ipv4/udp\"\n");
        for _ in 0..random.below(14) {
            let line = lines[random.below(lines.len())];
            text += line;
            text += "\n";
        }
        match Profile::read(&text) {
            Ok(_) => compare_text(&text, 70),
            Err(why) => assert!(!why.contains('\n'), "{why}"),
        }
    }
}

/// Shares have the frames of the whole, each at its time there, whatever the rate, the gaps and the batches.
#[test]
fn two_workers_make_the_frames_of_one() {
    let rates = [None, Some(Rate::Packets(3e4)), Some(Rate::Bits(7e6))];
    let gaps = [Gaps::Even, Gaps::Exponential, Gaps::Bursts(5)];
    let cases = rates.into_iter().zip(gaps).zip(["zipf-1m", "64", "mwn"]);
    for ((rate, gaps), name) in cases {
        let mut profile = Profile::built_in(name).unwrap();
        (profile.packets, profile.rate, profile.gaps) = (Some(10_007), rate, gaps);
        let all = |frames: &mut Frames| {
            let mut all = Vec::new();
            while let Some(made) = frames.next() {
                all.push((made.time_ns, made.frame.to_vec()));
            }
            all
        };
        let mut one = all(&mut Frames::new(&profile).unwrap());
        let mut shared = Vec::new();
        for share in 0..3 {
            let mut frames = Frames::new(&profile).unwrap();
            frames.share(share, 3);
            frames.set_batch([32, 7, 1][share as usize]);
            shared.extend(all(&mut frames));
        }
        one.sort();
        shared.sort();
        assert!(one == shared, "{name}");
    }
}

#[test]
fn first_frames_of_a_seed_are_as_ever() {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for text in [Profile::text("mwn").unwrap(), EVERYTHING] {
        let mut frames = Frames::new(&Profile::read(text).unwrap()).unwrap();
        for _ in 0..5000 {
            let made = frames.next().unwrap();
            for &byte in made.time_ns.to_be_bytes().iter().chain(made.frame) {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
            }
        }
    }
    assert_eq!(hash, 0x4497_e15b_cb87_a51c, "made {hash:#018x}");
}

/// Frames are alike, whatever the size of the batches, and whatever was made before.
#[test]
fn batches_do_not_show() {
    let profile = Profile::read(EVERYTHING).unwrap();
    let (mut a, mut b) = (
        Frames::new(&profile).unwrap(),
        Frames::new(&profile).unwrap(),
    );
    b.set_batch(1);
    for n in 0..500 {
        let (a, b) = (a.next().unwrap(), b.next().unwrap());
        assert_eq!((a.time_ns, a.frame), (b.time_ns, b.frame), "{n}");
    }
}

#[test]
fn values_are_spread_evenly_and_independently() {
    let text = "[[stream]]\nlayers = \"eth/ipv4/udp\"\nflows = 65536\n\
        ipv4.src = \"10.0.0.0/24:random\"\nipv4.dst = \"198.18.0.0/24:random\"\nudp.src = \"0-65535:random\"\nipv4.ttl = \"0-255:random:packet\"";
    let mut frames = Frames::new(&Profile::read(text).unwrap()).unwrap();
    let packets = 262_144_u32;
    let (mut pairs, mut flows) = (vec![0_u32; 3 << 16], HashSet::new());
    for _ in 0..packets {
        let frame = frames.next().unwrap().frame;
        let pair = |a: u8, b: u8| usize::from(a) << 8 | usize::from(b);
        pairs[pair(frame[29], frame[22])] += 1;
        pairs[(1 << 16) + pair(frame[34], frame[22])] += 1;
        pairs[(2 << 16) + pair(frame[33], frame[22])] += 1;
        flows.insert(frame[26..36].to_vec());
    }
    // Each of 65 536 cells is expected 4 times; the chi-square sum has that many degrees of freedom, and flows are few: allow for both.
    for cells in pairs.chunks(1 << 16) {
        let sum: f64 = cells
            .iter()
            .map(|&count| (f64::from(count) - 4.0).powi(2) / 4.0)
            .sum();
        assert!((0.9..1.2).contains(&(sum / 65_536.0)), "{}", sum / 65_536.0);
    }
    // All flows but e^-4 of them occur, each with values of its own.
    let expected = 65_536.0 * (1.0 - (-4.0_f64).exp());
    assert!(
        (flows.len() as f64 - expected).abs() < 300.0,
        "{} {expected}",
        flows.len()
    );
}

#[test]
fn built_in_frames_stay_in_the_ranges_that_are_set_aside() {
    let ranges = [
        (Ipv4Addr::new(10, 0, 0, 0), 8),
        (Ipv4Addr::new(100, 64, 0, 0), 10),
        (Ipv4Addr::new(198, 18, 0, 0), 15),
    ];
    for name in Profile::names() {
        let profile = Profile::built_in(name).unwrap();
        if !matches!(profile.traffic, Traffic::Streams(_)) {
            continue;
        }
        let mut frames = Frames::new(&profile).unwrap();
        for _ in 0..3000 {
            let frame = frames.next().unwrap().frame;
            assert!(frame[6] & 2 == 2 && (frame[0] & 2 == 2), "{name}");
            let at = if frame[12..14] == [8, 0] {
                [26, 30]
            } else {
                [28, 38]
            };
            for at in at {
                let address = u32::from_be_bytes(frame[at..at + 4].try_into().unwrap());
                let is_inside = |&(net, bits): &(Ipv4Addr, u32)| {
                    address >> (32 - bits) == net.to_bits() >> (32 - bits)
                };
                assert!(
                    ranges.iter().any(is_inside),
                    "{name}: {}",
                    Ipv4Addr::from(address)
                );
            }
        }
    }
}

/// tcpdump counts what the streams say, and finds no wrong checksum or length; tshark neither.
#[test]
fn tcpdump_and_tshark_agree_with_every_profile() {
    let texts = Profile::names().map(|name| (name, Profile::text(name).unwrap()));
    for (name, text) in texts.chain([("everything", EVERYTHING)]) {
        let mut profile = Profile::read(text).unwrap();
        profile.packets = Some(4000);
        let Ok(mut frames) = Frames::new(&profile) else {
            continue;
        };
        let mut pcap = Pcap::with(1, 65_535, false, true);
        while let Some(made) = frames.next() {
            let (s, ns) = (made.time_ns / 1_000_000_000, made.time_ns % 1_000_000_000);
            pcap.header(
                s as u32,
                ns as u32,
                made.frame.len() as u32,
                made.frame.len() as u32,
            );
            pcap.bytes.extend(made.frame);
        }
        let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("streams-{name}.pcap"));
        fs::write(&file, pcap.bytes).expect("the target directory can be written");
        let mut expressions: HashMap<&str, (u64, u64)> = HashMap::new();
        for (stream, (packets, bytes)) in profile.streams().iter().zip(frames.counts()) {
            for expression in &stream.matches {
                let sums = expressions.entry(expression).or_default();
                *sums = (sums.0 + packets, sums.1 + bytes);
            }
        }
        for (expression, (packets, bytes)) in expressions {
            let Some(matching) = output("tcpdump", &file, &["-n", "-w", "-", "-r"], &[expression])
            else {
                return;
            };
            assert_eq!(
                24 + 16 * packets + bytes,
                matching.len() as u64,
                "{name}: {expression}"
            );
        }
        if name == "everything" {
            // Some checksums are left out on purpose.
            continue;
        }
        let Some(lines) = output("tcpdump", &file, &["-n", "-vv", "-r"], &[]) else {
            return;
        };
        let lines = String::from_utf8_lossy(&lines);
        for fault in [
            "bad cksum",
            "bad udp cksum",
            "incorrect",
            "wrong",
            "truncated-ip",
            "bad length",
            "bad-len",
        ] {
            assert!(!lines.contains(fault), "{name}: {fault}");
        }
        if name != "mwn" && name != "align-study" {
            continue;
        }
        let verdicts = [
            "-o",
            "ip.check_checksum:TRUE",
            "-o",
            "tcp.check_checksum:TRUE",
            "-o",
            "udp.check_checksum:TRUE",
        ];
        let filter = [
            "-Y",
            "ip.checksum.status == 0 || tcp.checksum.status == 0 || udp.checksum.status == 0 || icmp.checksum.status == 0",
        ];
        let Some(bad) = output(
            "tshark",
            &file,
            &["-n", "-r"],
            &[&verdicts[..], &filter[..]].concat(),
        ) else {
            return;
        };
        assert!(bad.is_empty(), "{name}: {}", String::from_utf8_lossy(&bad));
    }
}

/// Standard output of a program that reads the file; `None` if it is not installed.
fn output(program: &str, file: &PathBuf, before: &[&str], after: &[&str]) -> Option<Vec<u8>> {
    let mut command = Command::new(program);
    command.args(before).arg(file).args(after);
    weir_testkit::output("tcpdump_and_tshark_agree_with_every_profile", &mut command)
}

/// Other frames go on where those before ended: each is the one that its number has with the new fields, and the counts go on.
#[test]
fn other_frames_go_on_at_the_same_number() {
    let text = |ttl: u8| EVERYTHING.replace("ipv4.dscp = \"0-63\"", &format!("ipv4.ttl = {ttl}"));
    let profile = |ttl: u8| Profile::read(&text(ttl)).unwrap();
    let whole = |ttl: u8| {
        let mut frames = Frames::new(&profile(ttl)).unwrap();
        let mut all = Vec::new();
        while all.len() < 300
            && let Some(made) = frames.next()
        {
            all.push(made.frame.to_vec());
        }
        (all, frames.counts().collect::<Vec<_>>())
    };
    let ((old, _), (new, _)) = (whole(5), whole(9));
    assert_ne!(old, new);
    for (count, again) in [
        (0, false),
        (1, true),
        (31, false),
        (32, true),
        (100, true),
        (101, false),
    ] {
        let mut frames = Frames::new(&profile(5)).unwrap();
        let mut all: Vec<Vec<u8>> = Vec::new();
        for _ in 0..count {
            all.push(frames.next().unwrap().frame.to_vec());
        }
        let mut others = Frames::new(&profile(9)).unwrap();
        others.follow(&mut frames, again);
        if again {
            all.pop();
        }
        let from = all.len();
        while all.len() < 300 {
            all.push(others.next().unwrap().frame.to_vec());
        }
        assert_eq!(all[..from], old[..from], "{count}");
        assert_eq!(all[from..], new[from..], "{count}");
        let sum: (u64, u64) = others
            .counts()
            .fold((0, 0), |sum, row| (sum.0 + row.0, sum.1 + row.1));
        let bytes: usize = all.iter().map(Vec::len).sum();
        assert_eq!(sum, (300, bytes as u64), "{count}");
    }
}
