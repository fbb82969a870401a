//! Numbers of peers, ports and contacts against sets of the packets' fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_measure::{
    Aggregate, BoundKind, By, Config, KeyKind, Keys, Kind, Observation, Prefix, Setting, Sketch,
    Spares, State, Unfit, Window, Windowing,
};
use weir_memory::{Policy, Request};
use weir_packet::flow::FlowKey;
use weir_testkit::Random;

const SECOND: i64 = 1_000_000_000;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMP: u8 = 1;

/// A packet as the tests know it.
#[derive(Clone, Debug)]
struct Packet {
    time_ns: i64,
    flow: FlowKey,
    /// Whether the packet refuses something, and protocol and port that it quotes.
    refuses: bool,
    quoted: Option<(u8, u16)>,
}

fn host(number: usize, family: u8) -> [u8; 16] {
    let mut address = [0; 16];
    match family {
        4 => address[..4].copy_from_slice(&[10, (number >> 5) as u8, 0, number as u8]),
        _ => {
            address = [0x20; 16];
            address[15] = number as u8;
            address[5] = (number >> 5) as u8;
        }
    }
    address
}

/// Packets between a few hosts, most of them answered, with refusals of both kinds.
fn packets(seed: u64, count: usize) -> Vec<Packet> {
    let mut random = Random::behind(seed << 32);
    let mut packets = Vec::new();
    while packets.len() < count {
        let family = if random.below(4) == 0 { 6 } else { 4 };
        let proto = [TCP, TCP, UDP, 132, ICMP][random.below(5)];
        let has_ports = proto != ICMP;
        let port = |random: &mut Random, most: usize| match has_ports {
            true => random.below(most) as u16,
            false => 0,
        };
        let flow = FlowKey {
            src: host(random.below(40), family),
            dst: host(random.below(200), family),
            sport: port(&mut random, 9),
            dport: port(&mut random, 30),
            proto,
            family,
            flags: if has_ports { FlowKey::HAS_PORTS } else { 0 },
            reserved: 0,
        };
        let time_ns = packets.len() as i64 * SECOND / 300;
        let asked = Packet {
            time_ns,
            flow,
            refuses: false,
            quoted: None,
        };
        let answer = |flow: FlowKey, refuses, quoted| Packet {
            time_ns,
            flow,
            refuses,
            quoted,
        };
        let unreachable = FlowKey {
            sport: 0,
            dport: 0,
            proto: ICMP,
            flags: 0,
            ..flow.turned()
        };
        packets.push(asked);
        match random.below(8) {
            0..=2 => {}
            3..=4 => packets.push(answer(flow.turned(), false, None)),
            5 if proto == TCP => packets.push(answer(flow.turned(), true, None)),
            6 if has_ports => packets.push(answer(unreachable, true, Some((proto, flow.dport)))),
            _ => packets.push(answer(unreachable, true, None)),
        }
    }
    packets
}

/// Elements of a key, by what came back: nothing, refusals only, or something else.
#[derive(Clone, Debug, Default, PartialEq)]
struct Elements {
    all: BTreeSet<String>,
    unanswered: usize,
    refused: usize,
}

/// Key and element of a contact, as texts; `None` if the packet has none. The texts name the fields, as the documentation does.
fn contact(kind: KeyKind, by: By, flow: &FlowKey) -> Option<(String, String)> {
    let source = flow.source().expect("all have addresses").to_string();
    let destination = flow.destination().expect("all have addresses").to_string();
    let port = flow
        .ports()
        .map(|(_, dport)| format!("{dport}/{}", flow.proto));
    let own_port = |source: bool| {
        let ports = flow.ports();
        let port = ports.map(|(sport, dport)| if source { sport } else { dport });
        format!("{port:?}/{}", flow.proto)
    };
    let is_source = matches!(kind, KeyKind::Dst(_) | KeyKind::Sport);
    let peer = if is_source { &source } else { &destination };
    let element = match by {
        By::Peers => peer.clone(),
        By::Ports => port?,
        By::Contacts => format!("{peer} {}", port?),
        By::Packets | By::Bytes => unreachable!("these have no elements"),
    };
    let key = match kind {
        KeyKind::Pair => format!("{source} {destination}"),
        KeyKind::SRC => source,
        KeyKind::DST => destination,
        KeyKind::Sport => own_port(true),
        KeyKind::Dport => own_port(false),
        KeyKind::Proto => flow.proto.to_string(),
        KeyKind::Src(_) | KeyKind::Dst(_) => prefix(kind, flow),
        _ => unreachable!("they are refused"),
    };
    Some((key, element))
}

/// Prefix of 24 or 48 bits.
fn prefix(kind: KeyKind, flow: &FlowKey) -> String {
    let address = match kind {
        KeyKind::Src(_) => &flow.src,
        _ => &flow.dst,
    };
    let bits = match kind.prefix_len(flow.family) {
        Some(bits) => usize::from(bits),
        None => 128,
    };
    format!("{} {:?}", flow.family, &address[..(bits / 8).min(16)])
}

/// What a packet answers: the contact in the opposite direction, or the quoted one.
fn answered(packet: &Packet) -> FlowKey {
    let flow = packet.flow.turned();
    match packet.quoted {
        None => flow,
        Some((proto, dport)) => FlowKey {
            sport: 0,
            dport,
            proto,
            flags: FlowKey::HAS_PORTS,
            ..flow
        },
    }
}

fn truth(kind: KeyKind, by: By, packets: &[Packet]) -> BTreeMap<String, Elements> {
    let mut truth = BTreeMap::<String, Elements>::new();
    let mut answers = BTreeSet::new();
    for packet in packets {
        if let Some((key, element)) = contact(kind, by, &packet.flow) {
            truth.entry(key).or_default().all.insert(element);
        }
        let FlowKey {
            src,
            dst,
            sport,
            dport,
            ..
        } = packet.flow;
        let is_own = packet.quoted.is_none() && (src, sport) == (dst, dport);
        // The source port of a quoted packet is not known.
        let is_known = packet.quoted.is_none() || kind != KeyKind::Sport;
        if is_known && !is_own {
            answers.extend(contact(kind, by, &answered(packet)).map(|it| (it, packet.refuses)));
        }
    }
    for (key, elements) in &mut truth {
        let has = |element: &String, refuses| {
            answers.contains(&((key.clone(), element.clone()), refuses))
        };
        let all = || elements.all.iter().filter(|it| !has(it, false));
        let refused = all().filter(|it| has(it, true)).count();
        (elements.unanswered, elements.refused) = (all().count() - refused, refused);
    }
    truth
}

fn config(keys: Vec<KeyKind>, by: By, memory: usize) -> Arc<Config> {
    Arc::new(Config {
        keys,
        by,
        memory,
        request: Request {
            pages: Policy::Virtual,
            ..Request::default()
        },
        windowing: Windowing {
            window_ns: Some(10 * SECOND),
            late_ns: 0,
        },
        seed: 77,
        ..Config::default()
    })
}

fn observed(config: &Config, packets: &[Packet]) -> Vec<Observation> {
    let hasher = config.hasher();
    let observe = |packet: &Packet| {
        let mut seen = Observation::mark(0);
        seen.arrived(Kind::Flow, 60, packet.time_ns);
        (seen.flow, seen.hash) = (packet.flow, hasher.plain(&packet.flow));
        if packet.refuses {
            seen.refuse(packet.quoted);
        }
        assert_eq!(
            (seen.kind(), seen.refuses(), seen.quoted()),
            (Kind::Flow, packet.refuses, packet.quoted)
        );
        seen
    };
    packets.iter().map(observe).collect()
}

/// States of the windows, of workers that got packets in turn; merged from the last worker to the first.
fn windows(config: &Arc<Config>, packets: &[Packet], workers: usize) -> Vec<State> {
    let spares = Arc::new(Spares::default());
    let mut closed = BTreeMap::<i64, State>::new();
    for worker in (0..workers).rev() {
        let mut aggregate =
            Aggregate::new(Arc::clone(config), Arc::clone(&spares)).expect("enough memory");
        let mine: Vec<_> = packets
            .iter()
            .skip(worker)
            .step_by(workers)
            .cloned()
            .collect();
        for run in observed(config, &mine).chunks(100) {
            aggregate.take(run, &[]).expect("enough memory");
        }
        for (number, state) in aggregate.close(i64::MAX) {
            match closed.get_mut(&number) {
                Some(all) => all.merge(&state).expect("of one configuration"),
                None => drop(closed.insert(number, state)),
            }
        }
    }
    closed.into_values().collect()
}

/// A key of a row, as [`contact`] writes it.
fn key_text(kind: KeyKind, key: &FlowKey) -> String {
    let whole = FlowKey {
        family: key.family.max(4),
        ..*key
    };
    let key = contact(kind, By::Peers, &whole)
        .expect("every packet has a peer")
        .0;
    match kind {
        // Keys of ports have no family, which the text does not have either.
        KeyKind::Src(_) | KeyKind::Dst(_) | KeyKind::Pair => key,
        _ => key,
    }
}

const KINDS: [KeyKind; 8] = [
    KeyKind::SRC,
    KeyKind::DST,
    KeyKind::Src(Prefix::of(24)),
    KeyKind::Dst(Prefix::of(48)),
    KeyKind::Pair,
    KeyKind::Sport,
    KeyKind::Dport,
    KeyKind::Proto,
];
const FIGURES: [By; 3] = [By::Peers, By::Ports, By::Contacts];

#[test]
fn numbers_of_all_figures_and_keys_are_those_of_sets() {
    let packets = packets(5, 6000);
    let (first, second): (Vec<_>, Vec<_>) = packets
        .iter()
        .cloned()
        .partition(|packet| packet.time_ns < 10 * SECOND);
    for by in FIGURES {
        let kinds: Vec<_> = KINDS
            .into_iter()
            .filter(|it| by.check(*it).is_ok())
            .collect();
        let config = config(kinds.clone(), by, 8 << 20);
        for workers in [1, 3] {
            let states = windows(&config, &packets, workers);
            for (state, packets) in states.iter().zip([&first, &second]) {
                assert!(state.keys().eq(kinds.iter().copied()));
                for (i, kind) in kinds.iter().enumerate() {
                    check_exact(state, i, (*kind, by), packets);
                }
            }
            let mut all = windows(&config, &first, workers).remove(0);
            all.merge(&states[1]).expect("of one configuration");
            check_exact(&all, 0, (kinds[0], by), &packets);
        }
    }
}

fn check_exact(state: &State, i: usize, (kind, by): (KeyKind, By), packets: &[Packet]) {
    let truth = truth(kind, by, packets);
    let table = state.spread(i, usize::MAX);
    assert!(table.sample.is_exact && table.kind == BoundKind::Exact);
    let found = table.rows.iter().map(|row| {
        assert_eq!(
            (row.bound.lower, row.bound.upper),
            (row.elements, row.elements)
        );
        let known = |number: Option<u64>| number.expect("there are answers") as usize;
        let figures = [
            row.elements as usize,
            known(row.unanswered),
            known(row.refused),
        ];
        (key_text(kind, &row.key), figures)
    });
    let found: BTreeMap<String, [usize; 3]> = found.collect();
    let expected = truth.iter().map(|(key, it)| {
        let figures = [it.all.len(), it.unanswered, it.refused];
        (key.clone(), figures)
    });
    assert_eq!(found, expected.collect(), "{kind} by {by}");
    assert!(table.rows.is_sorted_by(|a, b| a.elements >= b.elements));
    // What is outside a shorter list.
    let short = state.spread(i, 2);
    let others = &table.rows[2.min(table.rows.len())..];
    assert_eq!(short.at_most, others.first().map_or(0, |row| row.elements));
    assert_eq!(
        short.elements,
        others.iter().map(|row| row.elements).sum::<u64>()
    );
    let Keys::About(keys) = short.keys else {
        panic!("all keys are known: {:?}", short.keys)
    };
    assert_eq!((keys.value, keys.plus_minus), (others.len() as u64, 0));
}

#[test]
fn workers_in_any_number_give_the_same_estimates() {
    let packets = packets(6, 12_000);
    let config = config(
        vec![KeyKind::SRC, KeyKind::Dst(Prefix::of(24))],
        By::Contacts,
        30_000,
    );
    let one = windows(&config, &packets, 1);
    for workers in [2, 8] {
        for (other, one) in windows(&config, &packets, workers).iter().zip(&one) {
            for i in 0..2 {
                assert_eq!(other.spread(i, 50), one.spread(i, 50));
            }
        }
    }
    let table = one[0].spread(0, 5);
    let truth = truth(KeyKind::SRC, By::Contacts, &packets[..packets.len() / 2]);
    assert!(!table.sample.is_exact && table.sample.share < 0.5 && !truth.is_empty());
    assert!(matches!(table.kind, BoundKind::Probabilistic { confidence } if confidence == 0.95));
}

/// Bounds hold as often as they say, and the bound of keys outside the list too.
#[test]
fn bounds_of_estimates_hold() {
    let (mut asked, mut broken) = (0, 0);
    for seed in 0..12 {
        let packets = packets(seed, 3000);
        let base = config(vec![KeyKind::SRC], By::Contacts, 20_000);
        let config = Arc::new(Config {
            seed,
            windowing: Windowing::default(),
            keys: base.keys.clone(),
            request: base.request,
            shared: None,
            local: None,
            owners: None,
            geo: None,
            ..*base
        });
        let truth = truth(KeyKind::SRC, By::Contacts, &packets);
        let state = windows(&config, &packets, 2).remove(0);
        let listed = state.spread(0, usize::MAX);
        assert!(!listed.sample.is_exact);
        let bounds = listed.rows.iter().map(|row| {
            let bound = row.bound.lower..=row.bound.upper;
            (key_text(KeyKind::SRC, &row.key), bound)
        });
        let bounds: BTreeMap<String, _> = bounds.collect();
        // Keys without a pair in the sample are outside even the whole list.
        let absent = 0..=listed.at_most;
        for (key, elements) in &truth {
            let bound = bounds.get(key).unwrap_or(&absent);
            asked += 1;
            broken += usize::from(!bound.contains(&(elements.all.len() as u64)));
        }
    }
    assert!(
        broken * 100 <= asked * 6,
        "{broken} of {asked} bounds do not hold"
    );
}

#[test]
fn changes_between_windows_are_those_of_sets() {
    let packets = packets(8, 5000);
    let (first, second): (Vec<_>, Vec<_>) = packets
        .iter()
        .cloned()
        .partition(|packet| packet.time_ns < 10 * SECOND);
    for memory in [8 << 20, 25_000] {
        let config = config(vec![KeyKind::SRC], By::Contacts, memory);
        let states = windows(&config, &packets, 2);
        let changes = window(Some(Some(&states[0])), Some(&states[1]));
        let [before, after] = [&first, &second].map(|part| truth(KeyKind::SRC, By::Contacts, part));
        let count = |truth: &BTreeMap<String, Elements>, key: &str| {
            truth.get(key).map_or(0, |it| it.all.len() as i64)
        };
        let mut broken = 0;
        for change in &changes {
            let key = key_text(KeyKind::SRC, &change.key);
            let right = count(&after, &key) - count(&before, &key);
            if memory > 1 << 20 {
                assert_eq!([change.delta(), change.lower, change.upper], [right; 3]);
                assert_eq!(change.kind, BoundKind::Exact);
            }
            broken += usize::from(!(change.lower..=change.upper).contains(&right));
        }
        assert!(broken * 10 < changes.len(), "{broken} of {}", changes.len());
        // A window without packets: every element of the other is a change.
        let gone = window(Some(Some(&states[0])), None);
        assert!(!gone.is_empty() && gone.iter().all(|change| change.after == 0));
    }
}

fn window(before: Option<Option<&State>>, state: Option<&State>) -> Vec<weir_measure::Change> {
    let window = Window {
        span: Some((0, SECOND)),
        covered: None,
        revision: 0,
        left_out: 0,
        arrivals: weir_measure::Arrivals::default(),
        state,
        change: None,
        before,
        health: None,
        names: None,
    };
    window.changers(0, 1000).expect("both windows are known")
}

#[test]
fn packets_of_one_direction_leave_answers_unknown() {
    let mut packets = packets(9, 2000);
    packets.retain(|packet| packet.flow.src[..] < packet.flow.dst[..] && !packet.refuses);
    // A packet from an address and port to itself (LAND, CERT CA-1997-28) is no answer.
    let mut land = packets[0].clone();
    (land.flow.src, land.flow.sport) = (land.flow.dst, land.flow.dport);
    packets.extend([land.clone(), land]);
    let config = config(vec![KeyKind::SRC], By::Peers, 1 << 20);
    let state = windows(&config, &packets, 1).remove(0);
    let table = state.spread(0, 5);
    assert_eq!(table.rows.len(), 5);
    for row in table.rows {
        assert_eq!((row.unanswered, row.refused), (None, None));
    }
}

/// Used states are cleared before they count again.
#[test]
fn states_are_used_again() {
    let packets = packets(10, 1500);
    let config = config(vec![KeyKind::SRC], By::Ports, 1 << 20);
    let spares = Arc::new(Spares::default());
    let mut aggregate = Aggregate::new(Arc::clone(&config), Arc::clone(&spares)).unwrap();
    let mut tables = Vec::new();
    for _ in 0..3 {
        aggregate.take(&observed(&config, &packets), &[]).unwrap();
        for (_, state) in aggregate.close(i64::MAX) {
            tables.push(state.spread(0, 100));
            spares.keep(state);
        }
    }
    assert!(tables.windows(2).all(|pair| pair[0] == pair[1]));
}

#[test]
fn settings_that_do_not_go_together_are_refused() {
    for by in FIGURES {
        for kind in [KeyKind::FiveTuple, KeyKind::Conversation] {
            assert!(matches!(by.check(kind), Err(Unfit::Key { .. })));
        }
        let base = config(vec![KeyKind::SRC], by, 1 << 20);
        let sketch = base.with(Setting::Sketch(Sketch::Exact));
        assert_eq!(sketch.unwrap_err(), Unfit::Sketch { by });
        let keys = vec![KeyKind::DST, KeyKind::FiveTuple];
        let why = base.with(Setting::Keys(keys)).unwrap_err().to_string();
        assert!(why.contains("the key 5tuple cannot be ranked by"), "{why}");
        assert_eq!(base.with(Setting::Memory(4096)).unwrap().memory, 4096);
        let keys = vec![KeyKind::Dst(Prefix::of(8))];
        assert_eq!(base.with(Setting::Keys(keys.clone())).unwrap().keys, keys);
    }
    let refused = [
        (By::Peers, KeyKind::Pair),
        (By::Contacts, KeyKind::Pair),
        (By::Ports, KeyKind::Dport),
        (By::Contacts, KeyKind::Sport),
    ];
    for (by, kind) in refused {
        assert!(by.check(kind).is_err(), "{kind} by {by}");
    }
    for kind in KINDS {
        assert!(By::Packets.check(kind).is_ok() && By::Bytes.check(kind).is_ok());
    }
    assert!(
        State::new(
            &config(vec![KeyKind::SRC], By::Peers, 100),
            weir_measure::Slot::WHOLE
        )
        .is_err()
    );
}
