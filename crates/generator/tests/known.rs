//! Traffic with known answers, judged by tshark and by sets of addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use weir_generator::known::{
    Connections, Dialogues, Flood, Known, Plan, Scan, Storm, StormKind, Traffic,
};
use weir_generator::{FRAME_MAX, Profile};
use weir_testkit::savefile::Pcap;
use weir_testkit::{ScratchFile, have};

const SECOND: i64 = 1_000_000_000;

/// Every kind of traffic, mixed.
fn plan(seed: u64) -> Plan {
    let slow = Scan {
        peers: 40,
        gap_ns: SECOND,
        ..Scan::default()
    };
    let vertical = Scan {
        ports: 1000,
        begin_ns: SECOND / 2,
        ..Scan::default()
    };
    let distributed = Scan {
        sources: 7,
        peers: 100,
        ports: 12,
        ..Scan::default()
    };
    let horizontal = Scan {
        peers: 300,
        accepting: 0,
        refusing: 0,
        ..Scan::default()
    };
    let flood = |sources| Flood {
        frames: 2500,
        sources,
        begin_ns: SECOND / 4,
        gap_ns: 100_000,
    };
    let storm = |kind, frames| Storm {
        kind,
        frames,
        begin_ns: SECOND / 3,
        gap_ns: 400_000,
    };
    Plan {
        seed,
        span_ns: 2 * SECOND,
        ordinary: Some(Profile {
            packets: 5000,
            rate_pps: 2500,
            ..Profile::default()
        }),
        connections: Connections {
            count: 400,
            retransmissions: 60,
            reordered: 90,
            zero_windows: 30,
            resets: 100,
        },
        dialogues: Dialogues {
            count: 500,
            slow: 20,
            failing: 31,
            unanswered: 17,
            ..Dialogues::default()
        },
        scans: vec![slow, vertical, distributed, horizontal],
        floods: vec![flood(1), flood(2000)],
        storms: vec![storm(StormKind::Arp, 700), storm(StormKind::Broadcast, 300)],
        ..Plan::default()
    }
}

/// Makes the traffic as a capture file.
fn made(plan: &Plan) -> (Pcap, Known) {
    let mut pcap = Pcap::with(1, FRAME_MAX as u32, false, true);
    let mut traffic = Traffic::new(plan).expect("the plan is valid");
    let (mut buf, mut before) = ([0xee; FRAME_MAX], i64::MIN);
    while let Some(made) = traffic.next(&mut buf) {
        assert!(made.time_ns >= before && (60..=FRAME_MAX).contains(&made.len));
        before = made.time_ns;
        pcap.stamped(made.time_ns, &buf[..made.len]);
    }
    let known = traffic.known().clone();
    assert_eq!(u64::from(pcap.count), known.frames);
    assert_eq!(
        pcap.bytes.len() as u64,
        24 + 16 * known.frames + known.bytes
    );
    (pcap, known)
}

#[test]
fn a_seed_gives_the_same_frames_and_another_seed_others() {
    let (first, known) = made(&plan(1));
    let (second, same) = made(&plan(1));
    assert!(first.bytes == second.bytes && known == same);
    assert!(made(&plan(2)).0.bytes != first.bytes);
    // The bytes of all versions. If this fails on purpose, tests and results of before are no longer comparable.
    let sum = first
        .bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |sum, byte| {
            (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
        });
    assert_eq!(sum, 0x52c3_bbc2_4819_3237, "{sum:#x}");
    assert_eq!(made(&Plan::default()).1, Known::default());
}

#[test]
fn the_facts_are_those_of_the_plan() {
    let (_, known) = made(&plan(3));
    let connections = known.connections;
    assert_eq!(
        (
            connections.established,
            connections.finished,
            connections.reset
        ),
        (400, 300, 100)
    );
    assert_eq!(
        (
            connections.retransmissions,
            connections.reordered,
            connections.zero_windows
        ),
        (60, 90, 30)
    );
    let dialogues = known.dialogues;
    assert_eq!(
        (dialogues.queries, dialogues.answers, dialogues.unanswered),
        (500, 483, 17)
    );
    assert_eq!((dialogues.slow, dialogues.failing), (20, 31));
    let spread = |number: usize| (known.scanners[number].peers, known.scanners[number].ports);
    assert_eq!(
        (spread(0), spread(1), spread(9)),
        ((40, 1), (1, 1000), (300, 1))
    );
    assert_eq!((spread(2), spread(8)), ((15, 12), (14, 12)));
    assert_eq!(known.scanners[9].unanswered(), 300);
    assert!(known.scanners[1].accepted > 20 && known.scanners[1].refused > 100);
    let sources: Vec<_> = known
        .floods
        .iter()
        .map(|flood| (flood.frames, flood.sources))
        .collect();
    assert_eq!(sources, [(2500, 1), (2500, 2000)]);
    assert_eq!(
        (known.arp, known.broadcasts, known.ordinary),
        (700, 300, 5000)
    );
}

/// Fields of a frame that tshark is asked for; absent ones are empty.
const FIELDS: [&str; 24] = [
    "ip.src",
    "ip.dst",
    "tcp.stream",
    "tcp.dstport",
    "tcp.flags.syn",
    "tcp.flags.ack",
    "tcp.flags.fin",
    "tcp.flags.reset",
    "tcp.analysis.retransmission",
    "tcp.analysis.out_of_order",
    "tcp.analysis.zero_window",
    "tcp.analysis.lost_segment",
    "tcp.analysis.ack_lost_segment",
    "tcp.analysis.spurious_retransmission",
    "tcp.analysis.fast_retransmission",
    "tcp.analysis.keep_alive",
    "dns.flags.response",
    "dns.response_in",
    "dns.flags.rcode",
    "dns.time",
    "arp.src.proto_ipv4",
    "ip.checksum.status",
    "tcp.checksum.status",
    "udp.checksum.status",
];

/// A frame as tshark sees it.
struct Row(Vec<String>);

impl Row {
    fn at(&self, field: &str) -> &str {
        let at = FIELDS.iter().position(|name| *name == field);
        &self.0[at.expect("a field that was asked for")]
    }

    fn has(&self, field: &str) -> bool {
        !matches!(self.at(field), "" | "0" | "False")
    }

    /// Whether an end is of 10.144.0.0/12.
    fn is_planted(&self) -> bool {
        (144..160).any(|second| self.is_of(&format!("10.{second}.")))
    }

    fn is_of(&self, prefix: &str) -> bool {
        ["ip.src", "ip.dst"]
            .iter()
            .any(|end| self.at(end).starts_with(prefix))
    }
}

fn tshark(file: &ScratchFile) -> Vec<Row> {
    let mut command = Command::new("tshark");
    command.args(["-n", "-2", "-r", file.path(), "-T", "fields"]);
    for protocol in ["ip", "tcp", "udp"] {
        command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
    }
    FIELDS.iter().for_each(|field| {
        command.args(["-e", field]);
    });
    let output = command.output().expect("tshark is installed");
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let text = String::from_utf8(output.stdout).expect("tshark writes text");
    text.lines()
        .map(|line| Row(line.split('\t').map(str::to_owned).collect()))
        .collect()
}

fn count(rows: &[Row], is_it: impl Fn(&Row) -> bool) -> u64 {
    rows.iter().filter(|row| is_it(row)).count() as u64
}

#[test]
fn tshark_finds_what_was_planted() {
    if !have("tshark_finds_what_was_planted", &["tshark"]) {
        return;
    }
    let (pcap, known) = made(&plan(4));
    let rows = tshark(&ScratchFile::new("known.pcap", &pcap.bytes));
    assert_eq!(rows.len() as u64, known.frames);
    let (ours, others): (Vec<Row>, Vec<Row>) = rows.into_iter().partition(Row::is_planted);
    let arp = count(&others, |row| {
        row.at("arp.src.proto_ipv4").starts_with("10.148.")
    });
    assert_eq!(
        (arp, others.len() as u64),
        (known.arp, known.ordinary + known.arp)
    );
    for checksum in [
        "ip.checksum.status",
        "tcp.checksum.status",
        "udp.checksum.status",
    ] {
        assert_eq!(count(&ours, |row| row.at(checksum) == "0"), 0, "{checksum}");
        assert!(
            count(&ours, |row| row.at(checksum) == "1") > 0,
            "{checksum}"
        );
    }
    assert_eq!(
        count(&ours, |row| row.at("ip.dst") == "255.255.255.255"),
        known.broadcasts
    );
    connections(&ours, &known);
    dialogues(&ours, &known);
    scanners(&ours, &known);
    for flood in &known.floods {
        let target = std::net::Ipv4Addr::from(flood.target).to_string();
        let flooding = ours.iter().filter(|row| row.at("ip.dst") == target);
        let sources: BTreeSet<_> = flooding.clone().map(|row| row.at("ip.src")).collect();
        let found = (flooding.count() as u64, sources.len() as u64);
        assert_eq!(found, (flood.frames, flood.sources));
    }
}

/// Each frame is of one of two networks, and tcpdump finds as many there as were made.
#[test]
fn planted_and_ordinary_traffic_have_networks_of_their_own() {
    if !have("planted_and_ordinary_traffic", &["tcpdump"]) {
        return;
    }
    let planted = "(net 10.144.0.0/12 and (net 198.19.0.0/16 or ip broadcast or arp))";
    let ordinary = "(ip6 or (arp and net 10.0.0.0/9) or \
        ((net 10.0.0.0/9 or net 100.64.0.0/10) and net 198.18.0.0/16) or vlan)";
    for seed in [5, 6] {
        let (pcap, known) = made(&plan(seed));
        let file = ScratchFile::new("networks.pcap", &pcap.bytes);
        let count = |expression: &str| {
            let output = Command::new("tcpdump")
                .args(["-n", "-t", "-r", file.path(), expression])
                .output()
                .expect("tcpdump is installed");
            assert!(output.status.success(), "{output:?}");
            output.stdout.split(|byte| *byte == b'\n').count() as u64 - 1
        };
        assert_eq!(count(ordinary), known.ordinary);
        let all = format!("{planted} and not {ordinary}");
        assert_eq!(count(&all), known.frames - known.ordinary);
    }
}

fn connections(rows: &[Row], known: &Known) {
    let facts = known.connections;
    let of = |fields: &[&str]| {
        count(rows, |row| {
            row.is_of("10.144.") && fields.iter().all(|field| row.has(field))
        })
    };
    for (field, truth) in [
        ("tcp.analysis.retransmission", facts.retransmissions),
        ("tcp.analysis.out_of_order", facts.reordered),
        ("tcp.analysis.zero_window", facts.zero_windows),
        // A segment that overtook another seems to follow a lost one.
        ("tcp.analysis.lost_segment", facts.reordered),
        ("tcp.analysis.ack_lost_segment", 0),
        ("tcp.analysis.spurious_retransmission", 0),
        ("tcp.analysis.fast_retransmission", 0),
        ("tcp.analysis.keep_alive", 0),
        ("tcp.flags.reset", facts.reset),
        ("tcp.flags.fin", 2 * facts.finished),
    ] {
        assert_eq!(of(&[field]), truth, "{field}");
    }
    assert_eq!(of(&["tcp.flags.syn", "tcp.flags.ack"]), facts.established);
    let streams = rows.iter().map(|row| row.at("tcp.stream"));
    let streams: BTreeSet<_> = streams.filter(|stream| !stream.is_empty()).collect();
    let asked: u64 = known.scanners.iter().map(|scanner| scanner.contacts).sum();
    let flooded: u64 = known.floods.iter().map(|flood| flood.frames).sum();
    assert_eq!(streams.len() as u64, facts.established + asked + flooded);
}

fn dialogues(rows: &[Row], known: &Known) {
    let facts = known.dialogues;
    let is = |row: &Row, field: &str| !row.at("dns.flags.response").is_empty() && row.has(field);
    let is_query = |row: &Row| matches!(row.at("dns.flags.response"), "0" | "False");
    assert_eq!(count(rows, is_query), facts.queries);
    let unanswered = count(rows, |row| is_query(row) && !row.has("dns.response_in"));
    assert_eq!(unanswered, facts.unanswered);
    assert_eq!(count(rows, |row| is(row, "dns.flags.rcode")), facts.failing);
    let times = rows.iter().filter(|row| is(row, "dns.time"));
    let times: Vec<f64> = times
        .map(|row| row.at("dns.time").parse().expect("a time"))
        .collect();
    assert_eq!(times.len() as u64, facts.answers);
    let slow = times.iter().filter(|time| **time >= 1.5 - 1e-6).count();
    assert_eq!(slow as u64, facts.slow);
    let waited = facts.waited_ns as f64 / 1e9;
    assert!((times.iter().sum::<f64>() - waited).abs() < 1e-6 * times.len() as f64);
}

fn scanners(rows: &[Row], known: &Known) {
    let mut contacts: BTreeMap<&str, BTreeSet<(&str, &str)>> = BTreeMap::new();
    let mut answers: BTreeMap<&str, [u64; 2]> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.is_of("10.146.")) {
        let (source, target) = (row.at("ip.src"), row.at("ip.dst"));
        match ["syn", "ack", "reset"].map(|flag| row.has(&format!("tcp.flags.{flag}"))) {
            [true, false, false] => {
                let contact = (target, row.at("tcp.dstport"));
                let is_new = contacts.entry(source).or_default().insert(contact);
                assert!(is_new, "{source} asks {contact:?} twice");
            }
            [true, true, false] => answers.entry(target).or_default()[0] += 1,
            [false, true, true] => answers.entry(target).or_default()[1] += 1,
            _ => {}
        }
    }
    assert_eq!(contacts.len(), known.scanners.len());
    for scanner in &known.scanners {
        let source = std::net::Ipv4Addr::from(scanner.source).to_string();
        let contacts = &contacts[&source[..]];
        let peers: BTreeSet<_> = contacts.iter().map(|(peer, _)| peer).collect();
        let ports: BTreeSet<_> = contacts.iter().map(|(_, port)| port).collect();
        let spread = [contacts.len(), peers.len(), ports.len()].map(|len| len as u64);
        assert_eq!(spread, [scanner.contacts, scanner.peers, scanner.ports]);
        let answers = answers.get(&source[..]).copied().unwrap_or_default();
        assert_eq!(answers, [scanner.accepted, scanner.refused], "{source}");
    }
}
