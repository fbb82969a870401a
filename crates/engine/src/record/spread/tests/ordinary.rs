//! Traffic that looks like scans and is none, and refusals that do not come from the contact's own transport.

use super::*;
use std::net::{Ipv4Addr, Ipv6Addr};

const ICMP: u8 = 1;
const UDP: u8 = 17;
const ICMP6: u8 = 58;

/// Time of the first packet, ns.
const BEGIN: i64 = 1_700_000_000 * SECOND;

/// IPv4 packet.
fn v4_packet(proto: u8, ends: [[u8; 4]; 2], payload: &[u8]) -> Vec<u8> {
    let length = (20 + payload.len() as u16).to_be_bytes();
    let head = [0x45, 0, length[0], length[1], 0, 0, 0, 0, 9, proto, 0, 0];
    [&head, &ends[0][..], &ends[1], payload].concat()
}

/// IPv6 packet.
fn v6_packet(proto: u8, ends: [Ipv6Addr; 2], payload: &[u8]) -> Vec<u8> {
    let head = [0x60, 0, 0, 0, 0, payload.len() as u8, proto, 255];
    let [from, to] = ends.map(|end| end.octets());
    [&head, &from[..], &to, payload].concat()
}

fn udp(ends: [[u8; 4]; 2], ports: [u16; 2]) -> Vec<u8> {
    let ports = ports.map(u16::to_be_bytes).concat();
    v4_packet(UDP, ends, &[&ports[..], &[0, 8, 0, 0]].concat())
}

/// ICMP message of this type and code, with the first 28 bytes of a packet (RFC 792).
fn icmp(ends: [[u8; 4]; 2], kind: [u8; 2], quoted: &[u8]) -> Vec<u8> {
    let quoted = &quoted[..quoted.len().min(28)];
    v4_packet(ICMP, ends, &[&kind, &[0; 6][..], quoted].concat())
}

/// Packets, with their times in ms.
type Packets = Vec<(i64, Vec<u8>)>;

/// 300 clients that a server answers.
fn answered() -> Packets {
    let mut packets = Packets::new();
    for client in 0..300u16 {
        let address = [10, 1, (client / 250) as u8, client as u8];
        let ends = [address, [10, 0, 0, 1]];
        let at = i64::from(client) * 10;
        packets.push((at, udp(ends, [5000 + client, 443])));
        packets.push((at + 1, udp([ends[1], ends[0]], [443, 5000 + client])));
    }
    packets
}

/// Texts of the last alarm of each source, without their windows, and the doubt.
fn judged(parts: &[Packets]) -> (BTreeMap<String, String>, Option<&'static str>) {
    let parser = Parser::new(LinkType::RAW, false).unwrap();
    let mut all = parts.concat();
    all.sort_by_key(|(ms, _)| *ms);
    let (mut spread, mut found) = (Spread::<Address>::scan().unwrap(), BTreeMap::new());
    let take = &mut |one: Offender| {
        let (name, text) = one.text.split_once(": ").unwrap();
        let text = text.replace(" in 10s", "").replace(" in 300s", "");
        found.insert(name.to_owned(), text);
    };
    for (ms, data) in all {
        let flow = parser.key(&data).unwrap();
        let content = Content::of(&flow, &parser, &data);
        let time = BEGIN + ms * MS;
        let moment = Moment {
            arrived: time,
            time_ns: time,
        };
        spread.count(&flow, content, moment, take);
    }
    spread.finish(take);
    let doubt = spread.doubt();
    (found, doubt)
}

const PROBER: [u8; 4] = [10, 0, 0, 77];

/// Three traceroutes within three minutes, of 16 hops with three probes each. `error` is the answer of each hop.
fn traceroutes(error: impl Fn(usize, &[u8]) -> Option<Vec<u8>>) -> Packets {
    let mut packets = Packets::new();
    for probe in 0..144 {
        let (target, port) = ([192, 0, 2, (probe / 48) as u8], 33_434 + probe as u16 % 48);
        let at = (probe / 48 * 60_000 + probe % 48 * 200) as i64;
        let sent = udp([PROBER, target], [40_000, port]);
        packets.extend(error(probe, &sent).map(|error| (at + 20, error)));
        packets.push((at, sent));
    }
    packets
}

/// Address of the router of a probe.
fn hop(probe: usize) -> [u8; 4] {
    [198, 51, 100, (probe % 48 / 3) as u8]
}

#[test]
fn hops_of_a_traceroute_answer_it() {
    let exceeded = |probe, sent: &[u8]| Some(icmp([hop(probe), PROBER], [11, 0], sent));
    let (found, doubt) = judged(&[answered(), traceroutes(exceeded)]);
    assert_eq!((found, doubt), (BTreeMap::new(), None));
    // Without answers, and with errors about somebody else's packets, it is a scan of 144 contacts.
    let forged = |probe, sent: &[u8]| Some(icmp([hop(probe), [10, 0, 0, 78]], [11, 0], sent));
    for packets in [traceroutes(|_, _| None), traceroutes(forged)] {
        let (found, _) = judged(&[answered(), packets]);
        let text = "144 contacts, 144 unanswered, 0 refused";
        assert_eq!(found.get("10.0.0.77").map(|text| &text[..]), Some(text));
    }
}

#[test]
fn icmp_errors_that_quote_a_contact_are_refusals() {
    const TARGET: [u8; 4] = [10, 0, 0, 9];
    let scan = |from, kind| {
        let mut packets = Packets::new();
        for port in 1..=300 {
            let sent = udp([PROBER, TARGET], [40_000, port]);
            packets.push((i64::from(port) * 10 + 5, icmp([from, PROBER], kind, &sent)));
            packets.push((i64::from(port) * 10, sent));
        }
        packets
    };
    let of = |packets: Packets| judged(&[answered(), packets]).0.remove("10.0.0.77");
    // Port unreachable of the target, host unreachable of a router: RFC 1812, section 5.2.7.1.
    for (from, kind) in [(TARGET, [3, 3]), ([10, 0, 0, 254], [3, 1])] {
        let text = of(scan(from, kind));
        let refused = "300 contacts, 0 unanswered, 300 refused";
        assert_eq!(text.as_deref(), Some(refused), "{kind:?}");
    }
    // A need of fragments says nothing about the target (RFC 1191).
    let text = of(scan([10, 0, 0, 254], [3, 4])).unwrap();
    assert_eq!(text, "300 contacts, 300 unanswered, 0 refused");
    // The errors alone show that the capture has both directions, if the target sends them.
    let (found, doubt) = judged(&[scan(TARGET, [3, 3])]);
    assert_eq!((found.len(), doubt), (1, None));
}

#[test]
fn groups_and_all_hosts_are_no_contacts() {
    let mut packets = Packets::new();
    for host in 0..200u8 {
        let at = i64::from(host) * 20;
        // RFC 4291, section 2.7.1: the group of a neighbour that is asked for.
        let last = u16::from(host) + 1;
        let ours = "fe80::1".parse().unwrap();
        let group = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 1, 0xff00, last);
        let theirs = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, last);
        packets.push((at, v6_packet(ICMP6, [ours, group], &[135; 24])));
        packets.push((at + 1, v6_packet(ICMP6, [theirs, ours], &[136; 24])));
        let member = [10, 0, 0, 8];
        packets.push((at, udp([member, [239, 1, 1, host]], [5004, 5004])));
        let all = Ipv4Addr::BROADCAST.octets();
        packets.push((at, udp([member, all], [5004, 6000 + u16::from(host)])));
    }
    let (found, doubt) = judged(&[answered(), packets]);
    assert_eq!((found, doubt), (BTreeMap::new(), None));
}

/// A LAND packet (CERT CA-1997-28) is no answer, so that the capture still has one direction.
#[test]
fn a_packet_from_an_address_to_itself_is_no_answer() {
    let own = [10, 0, 0, 5];
    let land = udp([own, own], [139, 139]);
    let mut packets = vec![(0, land.clone()), (1, land)];
    packets.extend((0..300).map(|i| {
        let target = [192, 0, 2, i as u8 % 250];
        (10 + i * 10, udp([PROBER, target], [40_000, i as u16 + 1]))
    }));
    let (found, doubt) = judged(&[packets]);
    assert_eq!(found, BTreeMap::new());
    assert!(doubt.is_some_and(|doubt| doubt.contains("one direction")));
}

/// Errors may be cut anywhere, and quote anything.
#[test]
fn damaged_quotes_are_errors_without_a_contact() {
    let parser = Parser::new(LinkType::RAW, false).unwrap();
    let sent = udp([PROBER, [10, 0, 0, 9]], [40_000, 53]);
    let whole = icmp([[10, 0, 0, 9], PROBER], [3, 3], &sent);
    let mut spread = Spread::<Address>::scan().unwrap();
    let mut take = |data: &[u8]| {
        if let Ok(flow) = parser.key(data) {
            let content = Content::of(&flow, &parser, data);
            let moment = Moment {
                arrived: BEGIN,
                time_ns: BEGIN,
            };
            spread.count(&flow, content, moment, &mut |one| panic!("{}", one.text));
        }
    };
    let mut random = 1u64;
    for at in 20..whole.len() {
        take(&whole[..at]);
        for _ in 0..200 {
            random = random.wrapping_mul(6_364_136_223_846_793_005) + 1;
            let mut data = whole.clone();
            data[at] = (random >> 40) as u8;
            data[20 + (random >> 50) as usize % (whole.len() - 20)] = (random >> 33) as u8;
            take(&data);
        }
    }
}

/// However many keys exceed, a key that is silent is no new event.
#[test]
fn silent_keys_are_told_no_more() {
    let mut packets = Vec::new();
    for source in 0..300u32 {
        let to = |peer: u32| flow(1000 + source, peer, 80);
        packets.extend((0..110).map(|peer| (BEGIN + i64::from(peer) * 5 * MS, to(peer))));
    }
    packets.sort_by_key(|(time, _)| *time);
    // Another host shows that the time goes on.
    packets.extend((1..200).map(|i| (BEGIN + i * 100 * MS + SECOND, flow(1, 2, 80))));
    let found = offenders(
        &mut threshold(KeyKind::SRC, Figure::Peers, 100.0, 10),
        &packets,
    );
    let names: BTreeSet<_> = found
        .iter()
        .map(|(_, text)| text.split(':').next())
        .collect();
    assert_eq!(names.len(), 300);
    for (time, text) in found {
        assert!(time < BEGIN + 2 * SECOND, "{text}, at {}", time - BEGIN);
    }
}
