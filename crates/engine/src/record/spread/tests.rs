//! Numbers of different elements in sliding panes against sets of all pairs.

mod ordinary;

use super::*;
use std::collections::{BTreeMap, BTreeSet};
use weir_generator::known::{Connections, Dialogues, Flood, Known, Plan, Scan, Traffic};
use weir_generator::{FRAME_MAX, Profile};
use weir_packet::LinkType;

const MS: i64 = 1_000_000;
const SECOND: i64 = 1000 * MS;

fn v4(number: u32) -> [u8; 16] {
    let mut address = [0; 16];
    address[..4].copy_from_slice(&number.to_be_bytes());
    address
}

fn flow(src: u32, dst: u32, dport: u16) -> FlowKey {
    FlowKey {
        src: v4(src),
        dst: v4(dst),
        sport: 40_000,
        dport,
        proto: 6,
        family: 4,
        flags: FlowKey::HAS_PORTS,
        reserved: 0,
    }
}

fn threshold(kind: KeyKind, figure: Figure, above: f64, seconds: u64) -> Spread {
    let threshold = Threshold {
        key: Key::Of(kind),
        figure,
        above,
        window: Duration::from_secs(seconds),
    };
    Spread::threshold(threshold, figure.elements().unwrap()).unwrap()
}

/// Texts and times of the offenders among packets.
fn offenders(spread: &mut dyn Spreading, packets: &[(i64, FlowKey)]) -> Vec<(i64, String)> {
    let mut all = Vec::new();
    let found = &mut |one: Offender| all.push((one.moment.arrived, one.text));
    for (time, flow) in packets {
        let moment = Moment {
            arrived: *time,
            time_ns: *time,
        };
        spread.count(flow, Content::default(), moment, found);
    }
    spread.finish(found);
    all
}

#[test]
fn peers_across_the_border_of_a_second_are_found() {
    for offset in (0..1000).step_by(83) {
        let begin = 1_700_000_000 * SECOND + offset * MS;
        let burst: Vec<_> = (0..150)
            .map(|i| (begin + i * 5 * MS, flow(7, i as u32, 80)))
            .collect();
        let mut spread = threshold(KeyKind::SRC, Figure::Peers, 100.0, 1);
        let found = offenders(&mut spread, &burst);
        let last = &found.last().expect("the burst is found").1;
        assert_eq!(last, "0.0.0.7: 150 peers in 1s, more than 100", "{offset}");
    }
}

#[test]
fn ports_of_one_host_are_found_and_contacts_of_a_prefix() {
    let ports: Vec<_> = (0..250)
        .map(|i| (i * MS, flow(7, 9, i as u16 + 1)))
        .collect();
    let of = |kind, figure| offenders(&mut threshold(kind, figure, 100.0, 10), &ports);
    for (kind, figure, text) in [
        (
            KeyKind::SRC,
            Figure::Ports,
            "0.0.0.7: 250 ports in 10s, more than 100",
        ),
        (
            KeyKind::DST,
            Figure::Ports,
            "0.0.0.9: 250 ports in 10s, more than 100",
        ),
        (
            KeyKind::Src(weir_measure::Prefix::of(24)),
            Figure::Contacts,
            "0.0.0.0/24: 250 contacts in 10s, more than 100",
        ),
    ] {
        assert_eq!(of(kind, figure).last().unwrap().1, text);
    }
    assert!(of(KeyKind::SRC, Figure::Peers).is_empty());
}

#[test]
fn elements_of_ports_protocols_and_several_fields_are_found() {
    // 120 clients of one port of 60 servers, in turn.
    let packets: Vec<_> = (0..120u32)
        .map(|i| (i64::from(i) * MS, flow(i, 1000 + i % 60, 443)))
        .collect();
    let of = |kind: &str, figure: Figure, above| {
        let threshold = Threshold {
            key: Key::Of(kind.parse().unwrap()),
            figure,
            above,
            window: Duration::from_secs(1),
        };
        let mut spread = Spread::<FlowKey>::threshold(threshold, figure.elements().unwrap());
        let found = offenders(spread.as_mut().unwrap(), &packets);
        found.into_iter().map(|(_, text)| text).collect::<Vec<_>>()
    };
    for (kind, figure, text) in [
        (
            "dport",
            Figure::Peers,
            "dport tcp/443: 60 peers in 1s, more than 50",
        ),
        (
            "sport",
            Figure::Peers,
            "sport tcp/40000: 120 peers in 1s, more than 50",
        ),
        (
            "proto",
            Figure::Contacts,
            "proto tcp: 60 contacts in 1s, more than 50",
        ),
        (
            "dst/24,dport",
            Figure::Peers,
            "dst/24,dport 0.0.3.0/24 443 tcp: 48 peers in 1s, more than 40",
        ),
    ] {
        let above = if kind == "dst/24,dport" { 40.0 } else { 50.0 };
        let found = of(kind, figure, above);
        assert!(found.iter().any(|it| it == text), "{found:?}");
    }
    assert!(of("pair", Figure::Ports, 1.0).is_empty());
}

#[test]
fn many_peers_of_all_packets_and_their_ports_are_found() {
    let of = |figure| {
        let all = Threshold {
            key: Key::Total,
            figure,
            above: 100.0,
            window: Duration::from_secs(1),
        };
        let mut spread = Spread::<Address>::threshold(all, figure.elements().unwrap());
        let packets: Vec<_> = (0..120)
            .map(|i| (i * MS, flow(i as u32, 9, i as u16)))
            .collect();
        offenders(spread.as_mut().unwrap(), &packets)
    };
    assert_eq!(
        of(Figure::Peers)[0].1,
        "all packets: 120 peers in 1s, more than 100"
    );
    assert_eq!(
        of(Figure::Ports)[0].1,
        "all packets: 120 ports in 1s, more than 100"
    );
}

/// A key that exceeds within nine panes of a window is found, and a key that exceeds in no window is not.
#[test]
fn peers_agree_with_sets_of_all_windows() {
    let mut random = 9u64;
    let mut next = |below: u64| {
        random = random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (random >> 33) % below
    };
    let (mut now, mut packets) = (3 * SECOND, Vec::new());
    for _ in 0..20_000 {
        now += if next(500) == 0 { 700 } else { 1 + next(3) } as i64 * MS;
        packets.push((now, flow(next(20) as u32, next(150) as u32, 80)));
    }
    // Sources 100 to 103 talk to 150 peers once, within 0.8 s.
    for source in 0..4 {
        let begin = packets[4000 * source].0 + 123 * MS;
        packets.extend(
            (0..150).map(|i| (begin + i * 5 * MS, flow(100 + source as u32, i as u32, 80))),
        );
    }
    packets.sort_by_key(|(time, _)| *time);
    let above = 60;
    let mut spread = threshold(KeyKind::SRC, Figure::Peers, f64::from(above), 1);
    let found: BTreeSet<u32> = offenders(&mut spread, &packets)
        .iter()
        .map(|(_, text)| text.split([':', '.']).nth(3).unwrap().parse().unwrap())
        .collect();
    // The largest number of peers of a source in a window of this length that ends at one of its packets.
    let most = |source: u32, span: i64| {
        let own: Vec<_> = packets
            .iter()
            .filter(|(_, flow)| flow.src == v4(source))
            .collect();
        let peers = |end: usize| {
            let within = own[..=end]
                .iter()
                .rev()
                .take_while(|(at, _)| own[end].0 - at < span);
            within
                .map(|(_, flow)| flow.dst)
                .collect::<BTreeSet<_>>()
                .len()
        };
        (0..own.len()).map(peers).max().unwrap_or(0)
    };
    for source in (0..20).chain(100..104) {
        let is_found = found.contains(&source);
        assert!(
            !is_found || most(source, SECOND) > above as usize,
            "{source}"
        );
        assert!(
            is_found || most(source, SECOND / 10 * 9) <= above as usize,
            "{source}"
        );
    }
    assert!(
        (100..104).all(|source| found.contains(&source)),
        "{found:?}"
    );
}

/// With more pairs than a sample holds, a key fires by its lower bound: keys with as many elements as the threshold, or 10 % fewer, do not.
#[test]
fn a_sample_that_is_full_raises_no_false_alarm() {
    let mut packets = Vec::new();
    for i in 0..400_000u32 {
        packets.push((i64::from(i) * 2000, flow((1 << 20) + i % 100_000, i, 80)));
        // Twenty keys with 4500 peers each, one with 20 000.
        if i % 4 == 0 {
            let (source, peer) = (i / 4 % 20, i / 80);
            packets.push((i64::from(i) * 2000, flow(source, peer.min(4499), 80)));
        }
        if i % 20 == 0 {
            packets.push((i64::from(i) * 2000, flow(99, i / 20, 80)));
        }
    }
    let mut spread = threshold(KeyKind::SRC, Figure::Peers, 5000.0, 1);
    let found = offenders(&mut spread, &packets);
    assert!(!found.is_empty());
    for (_, text) in found {
        assert!(text.starts_with("0.0.0.99: about "), "{text}");
    }
    assert_eq!(spread.doubt(), None);
}

/// Addresses that scan according to the rule, and the times of the first alarms.
struct Alarms {
    spread: Spread,
    first: BTreeMap<String, i64>,
}

impl Alarms {
    fn new() -> Self {
        Self {
            spread: Spread::<Address>::scan().unwrap(),
            first: BTreeMap::new(),
        }
    }

    fn take(&mut self, parser: &Parser, time_ns: i64, data: &[u8]) {
        let Self { spread, first } = self;
        let Ok(flow) = parser.key(data) else { return };
        let content = Content::of(&flow, parser, data);
        let moment = Moment {
            arrived: time_ns,
            time_ns,
        };
        spread.count(&flow, content, moment, &mut |one| {
            first
                .entry(one.text.split(':').next().unwrap().to_owned())
                .or_insert(time_ns);
        });
    }

    fn end(mut self) -> BTreeMap<String, i64> {
        let Self { spread, first } = &mut self;
        spread.finish(&mut |one| {
            let time = one.moment.arrived;
            first
                .entry(one.text.split(':').next().unwrap().to_owned())
                .or_insert(time);
        });
        self.first
    }
}

/// Alarms of the traffic of a plan, and its truth. `sees` chooses packets.
fn alarms(plan: &Plan, sees: impl Fn(&FlowKey) -> bool) -> (BTreeMap<String, i64>, Known) {
    let parser = Parser::new(LinkType::ETHERNET, false).unwrap();
    let mut alarms = Alarms::new();
    let (mut traffic, mut buf) = (Traffic::new(plan).unwrap(), [0; FRAME_MAX]);
    while let Some(made) = traffic.next(&mut buf) {
        let data = &buf[..made.len];
        if parser.key(data).is_ok_and(|key| sees(&key)) {
            alarms.take(&parser, made.time_ns, data);
        }
    }
    (alarms.end(), traffic.known().clone())
}

fn connections(seed: u64) -> Plan {
    Plan {
        seed,
        span_ns: 20 * SECOND,
        connections: Connections {
            count: 3000,
            retransmissions: 100,
            reordered: 100,
            zero_windows: 20,
            resets: 300,
        },
        dialogues: Dialogues {
            count: 3000,
            slow: 100,
            failing: 100,
            unanswered: 200,
            ..Dialogues::default()
        },
        ..Plan::default()
    }
}

#[test]
fn connections_and_dialogues_raise_no_alarm() {
    for seed in 0..10 {
        let (found, _) = alarms(&connections(seed), |_| true);
        assert_eq!(found, BTreeMap::new(), "seed {seed}");
    }
}

#[test]
fn mwn_traffic_raises_no_alarm() {
    for seed in 0..10 {
        let profile = Profile {
            seed,
            packets: 200_000,
            rate_pps: 10_000,
            ..Profile::default()
        };
        let plan = Plan {
            ordinary: Some(profile),
            ..connections(seed)
        };
        let (found, _) = alarms(&plan, |_| true);
        assert_eq!(found, BTreeMap::new(), "seed {seed}");
    }
}

/// Each planted scan is found within two windows after it has as many contacts as the rule asks for, and nothing else is.
#[test]
fn planted_scans_are_found_and_floods_are_not() {
    let scans = vec![
        // Vertical, horizontal, refused by most, slow, and distributed over five sources.
        Scan {
            ports: 1000,
            ..Scan::default()
        },
        Scan {
            peers: 254,
            begin_ns: 2 * SECOND,
            gap_ns: 20 * MS,
            ..Scan::default()
        },
        Scan {
            peers: 4,
            ports: 100,
            refusing: 900,
            begin_ns: 5 * SECOND,
            ..Scan::default()
        },
        Scan {
            peers: 200,
            gap_ns: SECOND,
            begin_ns: 7 * SECOND,
            ..Scan::default()
        },
        Scan {
            sources: 5,
            peers: 100,
            ports: 10,
            begin_ns: 9 * SECOND,
            gap_ns: 2 * MS,
            ..Scan::default()
        },
    ];
    let floods = [1, 5000].map(|sources| Flood {
        frames: 5000,
        sources,
        begin_ns: SECOND,
        gap_ns: MS,
    });
    for seed in 0..10 {
        let plan = Plan {
            scans: scans.clone(),
            floods: floods.to_vec(),
            ..connections(seed)
        };
        let (found, known) = alarms(&plan, |_| true);
        let sources: BTreeSet<String> = known
            .scanners
            .iter()
            .map(|scanner| std::net::Ipv4Addr::from(scanner.source).to_string())
            .collect();
        assert_eq!(sources, found.keys().cloned().collect(), "seed {seed}");
        for (scan, scanners) in scans.iter().zip([0..1, 1..2, 2..3, 3..4, 4..9]) {
            let is_slow = scan.gap_ns >= SECOND;
            let window = if is_slow { SLOW_NS } else { FAST_NS };
            let begin = plan.start_ns + scan.begin_ns;
            for scanner in &known.scanners[scanners] {
                let source = std::net::Ipv4Addr::from(scanner.source).to_string();
                assert!(
                    found[&source] <= begin + 2 * window,
                    "seed {seed}, {source}"
                );
            }
        }
    }
}

/// With the packets of one direction alone, nothing is known.
#[test]
fn a_capture_of_one_direction_raises_no_alarm_and_says_so() {
    let parser = Parser::new(LinkType::ETHERNET, false).unwrap();
    let plan = Plan {
        scans: vec![Scan {
            ports: 1000,
            ..Scan::default()
        }],
        ..connections(1)
    };
    let (mut traffic, mut buf) = (Traffic::new(&plan).unwrap(), [0; FRAME_MAX]);
    let mut alarms = Alarms::new();
    while let Some(made) = traffic.next(&mut buf) {
        let data = &buf[..made.len];
        // Clients and scanners have addresses of 10.144.0.0/12.
        if parser.key(data).is_ok_and(|key| key.src[0] == 10) {
            alarms.take(&parser, made.time_ns, data);
        }
    }
    let doubt = alarms.spread.doubt();
    assert!(
        doubt.is_some_and(|doubt| doubt.contains("one direction")),
        "{doubt:?}"
    );
    assert_eq!(alarms.end(), BTreeMap::new());
}

/// A resolver and a web server with 5 000 clients each, a tenth of whose queries are never answered.
#[test]
fn a_resolver_and_a_web_server_with_many_clients_raise_no_alarm() {
    const ACK: Content = Content {
        acknowledges: true,
        is_reset: false,
        is_error: false,
        quoted: None,
    };
    for seed in 0..10u32 {
        let mut packets = Vec::new();
        for client in 0..5000u32 {
            let at = i64::from(client * 3 + seed) * MS;
            let web = flow(client + 1000, 1, 443);
            for (delay, flow, content) in [
                (0, web, Content::default()),
                (30, web.turned(), ACK),
                (60, web, ACK),
                (90, web.turned(), ACK),
            ] {
                packets.push((at + delay * MS, flow, content));
            }
            let query = FlowKey {
                proto: 17,
                ..flow(client + 1000, 2, 53)
            };
            // The resolver asks one of 300 servers, of which 30 are dead.
            let server = 100_000 + client % 300;
            let further = FlowKey {
                proto: 17,
                sport: client as u16,
                ..flow(2, server, 53)
            };
            packets.push((at, query, Content::default()));
            packets.push((at + MS, further, Content::default()));
            if client % 10 != seed % 10 {
                packets.push((at + 40 * MS, further.turned(), Content::default()));
                packets.push((at + 41 * MS, query.turned(), Content::default()));
            }
        }
        packets.sort_by_key(|(time, ..)| *time);
        let (mut spread, mut found) = (Spread::<Address>::scan().unwrap(), Vec::new());
        let take = &mut |one: Offender| found.push(one.text);
        for (time, flow, content) in packets {
            let moment = Moment {
                arrived: time,
                time_ns: time,
            };
            spread.count(&flow, content, moment, take);
        }
        spread.finish(take);
        assert_eq!(found, Vec::<String>::new(), "seed {seed}");
    }
}

/// A host that refuses a flood, and one that acknowledges it, scan nobody.
#[test]
fn answers_to_a_flood_with_forged_sources_are_no_scan() {
    for content in [
        Content {
            is_reset: true,
            ..Content::default()
        },
        Content {
            acknowledges: true,
            ..Content::default()
        },
        Content {
            is_error: true,
            ..Content::default()
        },
    ] {
        let (mut spread, mut found) = (Spread::<Address>::scan().unwrap(), 0);
        let mut count = |time: i64, flow: FlowKey, content| {
            let moment = Moment {
                arrived: time,
                time_ns: time,
            };
            spread.count(&flow, content, moment, &mut |_| found += 1);
        };
        // Some pair of packets shows both directions.
        count(0, flow(1, 2, 80), Content::default());
        count(0, flow(1, 2, 80).turned(), Content::default());
        for i in 0..20_000 {
            // The flood itself takes another route.
            count(i * MS, flow(1000 + i as u32, 9, 80).turned(), content);
        }
        assert_eq!(found, 0, "{content:?}");
    }
}

/// The clock of the host may be far from the timestamps of an adapter, which begin at its start.
#[test]
fn the_clock_before_the_first_packet_ends_no_pane() {
    let mut spread = threshold(KeyKind::SRC, Figure::Peers, 100.0, 1);
    spread.pass(1_800_000_000 * SECOND, &mut |one| panic!("{}", one.text));
    // 60 peers in each of two windows that do not touch, and then 120 in one.
    let packets: Vec<_> = [(0, 60), (5, 60), (10, 120)]
        .into_iter()
        .flat_map(|(second, peers)| {
            let packet = move |i| {
                (
                    second * SECOND + i * MS,
                    flow(7, (second * 1000 + i) as u32, 80),
                )
            };
            (1..=peers).map(packet)
        })
        .collect();
    let found = offenders(&mut spread, &packets);
    let causes: Vec<_> = found.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(
        causes.last(),
        Some(&"0.0.0.7: 120 peers in 1s, more than 100")
    );
    assert!(found.iter().all(|(time, _)| *time >= 10 * SECOND));
}
