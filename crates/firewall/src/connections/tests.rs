//! The table against a list of connections in plain words.

use super::*;
use core::net::IpAddr;
use std::collections::HashMap;
use weir_testkit::Random;

const SECOND: u64 = 1_000_000_000;

/// A packet of raw IP, by its fields.
#[derive(Clone, Debug)]
struct Packet {
    src: IpAddr,
    dst: IpAddr,
    proto: u8,
    transport: Vec<u8>,
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes = match (self.src, self.dst) {
            (IpAddr::V4(src), IpAddr::V4(dst)) => {
                let mut bytes = vec![0x45, 0];
                bytes.extend((20 + self.transport.len() as u16).to_be_bytes());
                bytes.extend([0, 0, 0, 0, 64, self.proto, 0, 0]);
                bytes.extend(src.octets().iter().chain(&dst.octets()));
                bytes
            }
            (IpAddr::V6(src), IpAddr::V6(dst)) => {
                let mut bytes = vec![0x60, 0, 0, 0];
                bytes.extend((self.transport.len() as u16).to_be_bytes());
                bytes.extend([self.proto, 64]);
                bytes.extend(src.octets().iter().chain(&dst.octets()));
                bytes
            }
            _ => unreachable!("both ends have one family"),
        };
        bytes.extend(&self.transport);
        bytes
    }
}

fn tcp(ports: (u16, u16), flags: u8) -> Vec<u8> {
    let mut bytes = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
    bytes.extend([0; 8]);
    bytes.extend([0x50, flags, 0, 0, 0, 0, 0, 0]);
    bytes
}

fn udp(ports: (u16, u16)) -> Vec<u8> {
    [
        &ports.0.to_be_bytes()[..],
        &ports.1.to_be_bytes(),
        &[0, 8, 0, 0],
    ]
    .concat()
}

fn icmp(kind: u8, id: u16, quote: &[u8]) -> Vec<u8> {
    [&[kind, 0, 0, 0][..], &id.to_be_bytes(), &[0, 0], quote].concat()
}

/// End of a connection: address, and port or number of a query.
type End = (IpAddr, u16);

/// Name of a connection: protocol, the end that opened it, the other end.
type Name = (u8, End, End);

/// Phase of a connection in words, or that of TCP, and the time in seconds until which it lasts.
#[derive(Clone, Debug)]
struct Known {
    phase: &'static str,
    tcp: Option<Tracked>,
    until: f64,
}

/// Twin of the table: the rules of the module's text, with a map of names and without bits.
#[derive(Default)]
struct Naive {
    known: HashMap<Name, Known>,
}

impl Naive {
    /// Finds a live connection, and whether the packet goes from its opener.
    fn find(&self, proto: u8, from: End, to: End, now: f64) -> Option<(Name, bool)> {
        let live = |name: &Name| self.known.get(name).is_some_and(|known| known.until > now);
        [((proto, from, to), true), ((proto, to, from), false)]
            .into_iter()
            .find(|(name, _)| live(name))
    }

    /// State of a packet; if it passes, the connection is changed.
    fn judge(&mut self, packet: &Packet, now: f64, passes: bool) -> &'static str {
        let is_v6 = packet.src.is_ipv6();
        let word = |at: usize| u16::from_be_bytes([packet.transport[at], packet.transport[at + 1]]);
        let (proto, ends) = match packet.proto {
            6 | 17 => (packet.proto, ((packet.src, word(0)), (packet.dst, word(2)))),
            1 | 58 => {
                let (kind, id) = (packet.transport[0], word(4));
                let (asks, answers) = if is_v6 { (128, 129) } else { (8, 0) };
                if kind == asks {
                    (packet.proto, ((packet.src, id), (packet.dst, u16::MAX)))
                } else if kind == answers {
                    (packet.proto, ((packet.src, u16::MAX), (packet.dst, id)))
                } else {
                    return self.error(packet, now);
                }
            }
            other => (other, ((packet.src, 0), (packet.dst, 0))),
        };
        let found = self.find(proto, ends.0, ends.1, now);
        if packet.proto == 6 {
            return self.segment(packet.transport[13], found, (ends, now, passes));
        }
        let phase = found.map(|(name, _)| self.known[&name].phase);
        let is_of_opener = found.is_none_or(|(_, is_of_opener)| is_of_opener);
        let (state, next): (_, Option<(&'static str, f64)>) = match packet.proto {
            1 | 58 if packet.transport[0] == if is_v6 { 129 } else { 0 } => match phase {
                None => ("invalid", None),
                Some(_) => ("established", Some(("open", 60.0))),
            },
            _ => {
                let (first, behind) = match packet.proto {
                    17 => (120.0, 300.0),
                    1 | 58 => (60.0, 60.0),
                    _ => (300.0, 300.0),
                };
                match phase {
                    None => ("new", Some(("opened", first))),
                    Some("opened") if is_of_opener => ("new", Some(("opened", first))),
                    Some(_) => ("established", Some(("open", behind))),
                }
            }
        };
        if let Some((phase, time)) = next.filter(|_| passes) {
            let name = found.map_or((proto, ends.0, ends.1), |(name, _)| name);
            self.put(
                name,
                Known {
                    phase,
                    tcp: None,
                    until: now + time,
                },
            );
        }
        state
    }

    /// Records a connection in place of one between the same ends that has expired.
    fn put(&mut self, name: Name, known: Known) {
        self.known.remove(&(name.0, name.2, name.1));
        self.known.insert(name, known);
    }

    fn segment(
        &mut self,
        flags: u8,
        found: Option<(Name, bool)>,
        (ends, now, passes): ((End, End), f64, bool),
    ) -> &'static str {
        let Some(kind) = segment(flags) else {
            return "invalid";
        };
        let anew = Known {
            phase: "tcp",
            tcp: Some(Tracked::NEW),
            until: now + 240.0,
        };
        let Some((name, is_of_opener)) = found else {
            if kind == "syn" && passes {
                self.put((6, ends.0, ends.1), anew);
            }
            return if kind == "syn" { "new" } else { "invalid" };
        };
        let mut known = self.known[&name].clone();
        let done = known.tcp.as_mut().unwrap().take(kind, is_of_opener);
        match done {
            Done::Invalid => return "invalid",
            _ if !passes => {}
            Done::Seen(_, time) => {
                known.until = time.map_or(known.until, |time| now + time);
                self.put(name, known);
            }
            Done::Gone(_) => drop(self.known.remove(&name)),
            Done::Reopened => {
                self.known.remove(&name);
                self.put((6, ends.0, ends.1), anew);
            }
        }
        match done {
            Done::Seen(state, _) | Done::Gone(state) => state,
            _ => "new",
        }
    }

    fn error(&self, packet: &Packet, now: f64) -> &'static str {
        let (kind, quote) = (packet.transport[0], &packet.transport[8..]);
        let is_v6 = packet.src.is_ipv6();
        let is_error = if is_v6 {
            kind < 128
        } else {
            [3, 4, 5, 11, 12].contains(&kind)
        };
        if !is_error {
            return if is_v6 && kind == 134 {
                "untracked"
            } else {
                "invalid"
            };
        }
        // The quotations of this test are whole headers of TCP and UDP.
        let (src, dst, proto, behind) = match packet.src {
            IpAddr::V4(_) => {
                let octets =
                    |at: usize| IpAddr::from(<[u8; 4]>::try_from(&quote[at..at + 4]).unwrap());
                (octets(12), octets(16), quote[9], &quote[20..])
            }
            IpAddr::V6(_) => {
                let octets =
                    |at: usize| IpAddr::from(<[u8; 16]>::try_from(&quote[at..at + 16]).unwrap());
                (octets(8), octets(24), quote[6], &quote[40..])
            }
        };
        let port = |at: usize| u16::from_be_bytes([behind[at], behind[at + 1]]);
        let is_known = self
            .find(proto, (src, port(0)), (dst, port(2)), now)
            .is_some();
        if src == packet.dst && is_known {
            "related"
        } else {
            "invalid"
        }
    }
}

/// A connection of TCP as Linux keeps it: a state of ten, and what was seen, in variables of their own. The table is that of
/// `tcp_conntracks` in `net/netfilter/nf_conntrack_proto_tcp.c`, written as the states' short names there: rows are segments, columns states.
#[derive(Clone, Debug)]
struct Tracked {
    state: &'static str,
    has_reply: bool,
    close_init: bool,
    /// Last segment, and whether the opener sent it.
    last: (&'static str, bool),
    challenge: bool,
    simultaneous: bool,
}

const COLUMNS: [&str; 9] = ["SS", "SR", "ES", "FW", "CW", "LA", "TW", "CL", "S2"];

const TABLE: [[(&str, [&str; 9]); 5]; 2] = [
    [
        (
            "syn",
            ["SS", "IG", "IG", "IG", "IG", "IG", "SS", "SS", "S2"],
        ),
        (
            "synack",
            ["IV", "SR", "IV", "IV", "IV", "IV", "IV", "IV", "SR"],
        ),
        (
            "fin",
            ["IV", "FW", "FW", "LA", "LA", "LA", "TW", "CL", "IV"],
        ),
        (
            "ack",
            ["IV", "ES", "ES", "CW", "CW", "TW", "TW", "CL", "IV"],
        ),
        (
            "rst",
            ["CL", "CL", "CL", "CL", "CL", "CL", "CL", "CL", "CL"],
        ),
    ],
    [
        (
            "syn",
            ["S2", "IV", "IV", "IV", "IV", "IV", "SS", "IV", "S2"],
        ),
        (
            "synack",
            ["SR", "IG", "IG", "IG", "IG", "IG", "IG", "IG", "SR"],
        ),
        (
            "fin",
            ["IV", "FW", "FW", "LA", "LA", "LA", "TW", "CL", "IV"],
        ),
        (
            "ack",
            ["IG", "SR", "ES", "CW", "CW", "TW", "TW", "CL", "IG"],
        ),
        (
            "rst",
            ["CL", "CL", "CL", "CL", "CL", "CL", "CL", "CL", "CL"],
        ),
    ],
];

fn segment(flags: u8) -> Option<&'static str> {
    // PSH, ECE and CWR are looked over.
    match flags & 0x37 {
        0x02 | 0x22 => Some("syn"),
        0x12 => Some("synack"),
        0x11 | 0x31 => Some("fin"),
        0x10 | 0x30 => Some("ack"),
        0x04 | 0x14 => Some("rst"),
        _ => None,
    }
}

/// Effect of a segment.
#[derive(Debug, PartialEq)]
enum Done {
    Invalid,
    /// The state of the packet, and the seconds for which the connection is kept; `None`: as long as before.
    Seen(&'static str, Option<f64>),
    /// The state of the packet; the connection is gone.
    Gone(&'static str),
    Reopened,
}

impl Tracked {
    const NEW: Self = Self {
        state: "SS",
        has_reply: false,
        close_init: false,
        last: ("syn", true),
        challenge: false,
        simultaneous: false,
    };

    fn take(&mut self, kind: &'static str, is_of_opener: bool) -> Done {
        let rows = &TABLE[usize::from(!is_of_opener)];
        let row = rows.iter().find(|(name, _)| *name == kind).unwrap().1;
        let old = self.state;
        let mut new = row[COLUMNS.iter().position(|name| *name == old).unwrap()];
        let seen = if is_of_opener && !self.has_reply {
            "new"
        } else {
            "established"
        };
        if new == "IV" {
            return Done::Invalid;
        }
        if new == "SS" && matches!(old, "TW" | "CL") {
            if self.close_init || self.last == ("rst", is_of_opener) {
                return Done::Reopened;
            }
            new = "IG";
        }
        let had_reply = self.has_reply;
        self.has_reply |= !is_of_opener;
        if new == "IG" {
            if kind == "synack" && self.last == ("syn", true) && !is_of_opener {
                (new, self.close_init) = ("SR", false);
            } else {
                self.last = (kind, is_of_opener);
                if kind == "syn" && is_of_opener {
                    (self.challenge, self.simultaneous) = (old == "LA", false);
                }
                return Done::Seen(seen, None);
            }
        } else if new == "TW"
            && old == "LA"
            && kind == "ack"
            && self.last == ("syn", !is_of_opener)
            && self.challenge
        {
            self.challenge = false;
            return Done::Seen(seen, None);
        } else if new == "S2" {
            self.simultaneous = true;
        } else if new == "SR" && !is_of_opener && kind == "ack" && self.simultaneous {
            new = "ES";
        }
        self.last = (kind, is_of_opener);
        self.close_init |= old != new && new == "FW";
        self.state = new;
        if kind == "rst" && !had_reply {
            return Done::Gone(seen);
        }
        Done::Seen(
            seen,
            Some(match new {
                "ES" => 7440.0,
                "CL" => 10.0,
                _ => 240.0,
            }),
        )
    }
}

fn word(state: Option<State>) -> &'static str {
    match state {
        Some(State::New) => "new",
        Some(State::Established) => "established",
        Some(State::Related) => "related",
        Some(State::Invalid) => "invalid",
        Some(State::Untracked) => "untracked",
        None => "absent",
    }
}

fn fields(parser: &Parser, bytes: &[u8]) -> Fields {
    Fields::of(parser, bytes)
}

#[test]
fn packets_have_the_states_that_a_list_of_connections_gives_them() {
    let parser = Parser::new(LinkType::RAW, false).unwrap();
    let mut counts: HashMap<&str, u32> = HashMap::new();
    for seed in 0..40 {
        let mut random = Random(seed);
        let (connections, mut naive) = (Connections::new(1 << 10, seed), Naive::default());
        // Steps of the table are 67 ms: the twin's times are far from their ends.
        let mut now = 1_700_000_000 * SECOND + random.next() % SECOND;
        for _ in 0..2000 {
            now += [SECOND / 10, SECOND, 7 * SECOND, 100 * SECOND, 5000 * SECOND][random.below(5)]
                * u64::from(random.below(8) == 0);
            let is_v6 = random.below(3) == 0;
            let mut end = || {
                let host = random.below(3) as u8 + 1;
                match is_v6 {
                    true => IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, u16::from(host)]),
                    false => IpAddr::from([10, 0, 0, host]),
                }
            };
            let (mut src, mut dst) = (end(), end());
            let mut port = || [80, 4000, 4001][random.below(3)];
            let mut ports = (port(), port());
            // Most packets are of few connections.
            if random.below(4) != 0 {
                let ends = if is_v6 {
                    [1, 2].map(|host| IpAddr::from([0x2001, 0xdb8, 0, 0, 0, 0, 0, host]))
                } else {
                    [1, 2].map(|host| IpAddr::from([10, 0, 0, host]))
                };
                let is_back = random.below(2);
                (src, dst, ports) = (
                    ends[is_back],
                    ends[1 - is_back],
                    [(4000, 80), (80, 4000)][is_back],
                );
            }
            let flags = [
                2, 2, 0x12, 0x12, 0x10, 0x10, 0x10, 0x11, 0x11, 0x04, 0x14, 0x18, 0x01, 0x00, 0x42,
                0x03, 0x29, 0x31,
            ][random.below(18)];
            let (asks, answers, proto) = if is_v6 { (128, 129, 58) } else { (8, 0, 1) };
            let (proto, transport) = match random.below(10) {
                0..5 => (6, tcp(ports, flags)),
                5 | 6 => (17, udp(ports)),
                7 => (
                    proto,
                    icmp(
                        [asks, answers][random.below(2)],
                        [7, 8, 128][usize::from(ports.0 % 3)],
                        &[],
                    ),
                ),
                8 => {
                    // An error, most often about a packet of the one to whom it goes.
                    let other = if random.below(4) == 0 { src } else { dst };
                    let inner = Packet {
                        src: other,
                        dst: src,
                        proto: 6,
                        transport: tcp((ports.1, ports.0), 2),
                    };
                    let kind = if is_v6 {
                        [1, 3, 134][random.below(3)]
                    } else {
                        [3, 11, 9][random.below(3)]
                    };
                    (proto, icmp(kind, 0, &inner.bytes()))
                }
                _ => (47, vec![0; 8]),
            };
            // Neighbor discovery is none of connections' affairs.
            let packet = Packet {
                src,
                dst,
                proto,
                transport,
            };
            let bytes = packet.bytes();
            let passes = random.below(8) != 0;
            let expected = naive.judge(&packet, now as f64 / 1e9, passes);
            let seen = connections.look(&parser, &fields(&parser, &bytes), &bytes, now);
            assert_eq!(word(seen.state), expected, "seed {seed}: {packet:?}");
            if passes {
                assert!(connections.pass(&seen, now), "there is room for all");
            }
            *counts.entry(expected).or_default() += 1;
        }
    }
    println!("{counts:?}");
    assert!(
        ["new", "established", "related", "invalid", "untracked"]
            .iter()
            .all(|state| counts[state] > 300),
        "{counts:?}"
    );
}

#[test]
fn a_packet_whose_ports_or_flags_are_not_there_has_no_state() {
    let parser = Parser::new(LinkType::RAW, false).unwrap();
    let connections = Connections::new(64, 1);
    let end = |host: u8| IpAddr::from([10, 0, 0, host]);
    let whole = Packet {
        src: end(1),
        dst: end(2),
        proto: 6,
        transport: tcp((1, 2), 2),
    }
    .bytes();
    let mut later = whole.clone();
    later[7] = 5;
    for bytes in [&whole[..22], &whole[..30], &later] {
        assert_eq!(
            connections
                .look(&parser, &fields(&parser, bytes), bytes, SECOND)
                .state,
            None
        );
    }
    assert_eq!(
        connections
            .look(&parser, &fields(&parser, &whole), &whole, SECOND)
            .state,
        Some(State::New)
    );
}

/// A flood of first segments, answered or not, fills the table, and closes none of the open connections.
#[test]
fn a_flood_of_first_segments_closes_no_open_connection() {
    let connections = Connections::new(1 << 12, 9);
    let now = 100_000;
    let opens = |hash: u64| {
        [
            (false, Segment::Syn),
            (true, Segment::SynAck),
            (false, Segment::Ack),
        ]
        .iter()
        .all(|&(is_reversed, segment)| {
            connections.advance(hash, is_reversed, Kind::Tcp(segment), now)
        })
    };
    let mut random = Random(2);
    let open: Vec<u64> = (0..1 << 11)
        .map(|_| random.next())
        .filter(|&hash| opens(hash))
        .collect();
    assert_eq!(open.len(), 1 << 11, "half of the table");
    let mut recorded = 0;
    for i in 0..100_000 {
        let hash = random.next();
        recorded +=
            u32::from(connections.advance(hash, false, Kind::Tcp(Segment::Syn), now + i / 1000));
        if i % 3 == 0 {
            connections.advance(hash, true, Kind::Tcp(Segment::SynAck), now + i / 1000);
        }
    }
    assert!(recorded > 99_000, "{recorded}");
    let is_open = |hash: &&u64| {
        connections
            .find(**hash, now + 100)
            .is_some_and(|(_, word)| word.phase() == Phase::Established)
    };
    assert_eq!(open.iter().filter(is_open).count(), open.len());
    assert!(connections.count(u64::from(now + 100) << STEP) > 1 << 11);
    // Open connections alone fill it: then there is no room, which is told.
    let full = (0..1 << 13).filter(|_| !opens(random.next())).count();
    assert!((1000..1 << 13).contains(&full), "{full}");
}
