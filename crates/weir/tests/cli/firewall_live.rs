//! `weir firewall` between interfaces: real connections cross it, the account equals that of sender and receiver, rules change meanwhile.

mod changes;

use crate::capture::net::{Capture, Net};
use crate::support::*;
use serde_json::Value;
use std::fs;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Script that serves the bytes of a file to each connection.
const SERVER: &str = "
import socket, sys
s = socket.socket()
s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
s.bind((sys.argv[1], 7000)); s.listen()
data = open(sys.argv[2], 'rb').read()
print('serves', file=sys.stderr, flush=True)
while True:
    c, _ = s.accept(); c.sendall(data); c.close()
";

/// Script that prints how many bytes it got and their checksum, or `nothing`.
const CLIENT: &str = "
import socket, sys, zlib
try:
    c = socket.create_connection((sys.argv[1], 7000), timeout=float(sys.argv[2]))
    data = b''
    while True:
        part = c.recv(1 << 20)
        if not part: break
        data += part
    print(len(data), zlib.crc32(data))
except OSError:
    print('nothing')
";

const CHECKSUM: &str =
    "import sys, zlib; data = open(sys.argv[1], 'rb').read(); print(len(data), zlib.crc32(data))";

/// A firewall between the interfaces `near` and `out`.
pub struct Wall {
    net: Net,
    temp: Temp,
    socket: String,
    pub rules: String,
}

impl Wall {
    pub fn new(test: &str, rules: &str) -> Option<Self> {
        let net = Net::new(test)?;
        net.beyond();
        let temp = Temp::new();
        let rules = temp.file("rules.txt", rules.as_bytes());
        Some(Self {
            socket: temp.at("control"),
            rules,
            net,
            temp,
        })
    }

    fn start(&self, source: &str, sink: &str, more: &[&str]) -> Capture {
        self.start_with("--rules", source, sink, more)
    }

    /// Starts the firewall, whose rules file is the value of this option.
    pub fn start_with(&self, option: &str, source: &str, sink: &str, more: &[&str]) -> Capture {
        let weir = env!("CARGO_BIN_EXE_weir");
        let command = [
            &[
                weir,
                "firewall",
                source,
                sink,
                option,
                &self.rules,
                "--control",
                &self.socket,
                "--json",
            ],
            more,
        ]
        .concat();
        self.net.start(&command, "control socket")
    }

    pub fn ctl(&self, arguments: &[&str]) -> Done {
        weir([&["firewall", "ctl", "--control", &self.socket], arguments].concat())
    }

    /// Waits until the firewall has received this many packets in all.
    fn until_received(&self, packets: u64) {
        wait::until_ok(|| match self.stats() {
            stats if stats["received"].as_u64() >= Some(packets) => Ok(()),
            stats => Err(stats),
        });
    }

    pub fn stats(&self) -> Value {
        serde_json::from_str(&self.ctl(&["stats", "--json"]).ok().text()).expect("an object")
    }

    /// Gives the ends addresses of one network.
    fn addresses(&self) {
        self.net
            .inside("far", &["ip", "addr", "add", "10.9.0.1/24", "dev", "far"])
            .ok();
        self.net
            .inside(
                "beyond",
                &["ip", "addr", "add", "10.9.0.2/24", "dev", "beyond"],
            )
            .ok();
    }

    /// Whether the ends ask for each other's addresses. Some 5 s after it used an old entry the kernel asks once more, which is a frame among
    /// those that a test counts if the machine is slow.
    fn arp(&self, state: &str) {
        for end in ["far", "beyond"] {
            self.net
                .inside(end, &["ip", "link", "set", "dev", end, "arp", state])
                .ok();
        }
    }

    fn client(&self, patience: &str) -> String {
        self.net
            .inside("far", &["python3", "-c", CLIENT, "10.9.0.2", patience])
            .ok()
            .text()
    }
}

/// The answer after a signal, whose account adds up.
fn answer(done: &Done) -> Value {
    let answer: Value =
        serde_json::from_str(&done.text()).unwrap_or_else(|_| panic!("no object: {}", done.err));
    let number = |name: &str| answer[name].as_u64().unwrap();
    let dropped: u64 = answer["dropped"]
        .as_object()
        .unwrap()
        .values()
        .map(|count| count.as_u64().unwrap())
        .sum();
    assert_eq!(
        number("received"),
        number("passed") + number("filtered") + number("denied") + dropped,
        "{answer}"
    );
    assert_eq!(answer["interrupted"], true, "{answer}");
    answer
}

/// An UDP frame from 10.0.0.`source`, port 4000, to a port of 10.0.0.2.
fn datagram(source: u8, port: u16) -> Vec<u8> {
    let mut frame = udp(port, 20);
    // The checksum of the IP header is not looked at on the way; that of UDP is 0, for none.
    frame[29] = source;
    frame
}

fn real_connections_cross(test: &str, source: &str, sink: &str) {
    let Some(wall) = Wall::new(test, "drop udp\npass tcp\n") else {
        return;
    };
    wall.addresses();
    let data = wall
        .temp
        .file("data", &weir_testkit::Random(1).bytes(6 << 20));
    let expected = tool("python3", ["-c", CHECKSUM, &data]).ok().text();
    let server = wall.net.start_at(
        "beyond",
        &["python3", "-c", SERVER, "10.9.0.2", &data],
        "serves",
    );
    let running = wall.start(source, sink, &["--bidirectional"]);
    assert_eq!(wall.client("10"), expected);
    // Rules, and permissions of others, change while a connection is under way.
    // Connections go on until there were changes enough: a disk may be slow to keep the bans.
    let turns = AtomicU32::new(0);
    std::thread::scope(|scope| {
        let client = scope.spawn(|| {
            let mut got = Vec::new();
            while got.len() < 3 || turns.load(Ordering::Relaxed) <= 3 && got.len() < 100 {
                got.push(wall.client("20"));
            }
            got
        });
        let mut turn = 0;
        while !client.is_finished() {
            turn += 1;
            turns.store(turn, Ordering::Relaxed);
            fs::write(&wall.rules, format!("drop udp dport {turn}\npass tcp\n")).unwrap();
            wall.ctl(&["reload"]).ok();
            let other = format!("192.0.2.{}", turn % 250);
            wall.ctl(&["block", &other]).ok();
            wall.ctl(&["accept", &other]).ok();
        }
        for got in client.join().unwrap() {
            assert_eq!(got, expected, "after {turn} changes");
        }
        assert!(turn > 3, "only {turn} changes");
    });
    // A ban holds both ways, and ends at once.
    wall.ctl(&["block", "10.9.0.1"]).ok();
    assert_eq!(wall.client("0.5"), "nothing\n");
    wall.ctl(&["accept", "10.9.0.1"]).ok();
    assert_eq!(wall.client("10"), expected);
    drop(server);
    let answer = answer(&running.stop().ok());
    assert!(
        answer["persona_non_grata"]["packets"].as_u64().unwrap() > 0,
        "{answer}"
    );
    assert_eq!(
        answer["directions"].as_array().unwrap().len(),
        2,
        "{answer}"
    );
}

#[test]
fn real_connections_cross_by_af_xdp() {
    real_connections_cross("real_connections_cross_by_af_xdp", "near", "out");
}

#[test]
fn real_connections_cross_by_af_packet() {
    real_connections_cross(
        "real_connections_cross_by_af_packet",
        "af_packet:near",
        "af_packet:out",
    );
}

/// Several workers in both directions: what one of them has sent, none captures again.
#[test]
fn several_workers_forward_each_packet_once() {
    let test = "several_workers_forward_each_packet_once";
    let Some(wall) = Wall::new(test, "drop udp dport 9\n") else {
        return;
    };
    if !have(test, &["ping"]) {
        return;
    }
    wall.addresses();
    for (source, sink, distribute) in [
        ("near", "out", "flow"),
        ("af_packet:near", "af_packet:out", "address"),
        ("near", "out", "random"),
    ] {
        wall.arp("on");
        let running = wall.start(
            source,
            sink,
            &[
                "--bidirectional",
                "--workers",
                "3",
                "--distribute",
                distribute,
            ],
        );
        // Without a deadline, ping waits for two round trips only; with one, until so many answers came.
        let pings = wall.net.inside(
            "far",
            &["ping", "-c", "5", "-i", "0.02", "-w", "20", "10.9.0.2"],
        );
        let text = pings.ok().text();
        assert!(
            text.contains("5 received") && !text.contains("duplicates"),
            "{distribute}: {text}"
        );
        let frames: Vec<Vec<u8>> = (0..1000)
            .map(|i| datagram((i % 50) as u8 + 3, (i % 10) as u16 + 1))
            .collect();
        wall.arp("off");
        let before = wall.net.received("beyond", "beyond");
        wall.net.send(&frames, 100);
        let done = running.stop().ok();
        let answer = answer(&done);
        let arrived = wall.net.received("beyond", "beyond") - before;
        assert_eq!(
            (arrived, &answer["rules"][0]["packets"]),
            (900, &100.into()),
            "{distribute}: {answer}"
        );
        // The ARP and the pings beside them; a storm would be thousands.
        let received = answer["received"].as_u64().unwrap();
        assert!((1010..1200).contains(&received), "{distribute}: {received}");
        assert_eq!(
            done.err.contains("another order"),
            distribute == "random",
            "{}",
            done.err
        );
    }
}

/// The kernel hands a block of the ring over each millisecond in which packets come, however few. Each burst comes in a time of its own,
/// so that it takes a block, or a few if this machine is busy, and the firewall reads none of them meanwhile: 60 bursts, and some 170 blocks.
/// The number that was sent is the truth.
#[test]
fn a_firewall_that_pauses_loses_nothing() {
    let test = "a_firewall_that_pauses_loses_nothing";
    let Some(wall) = Wall::new(test, "drop udp dport 9\n") else {
        return;
    };
    let frames: Vec<Vec<u8>> = (0..6_000)
        .map(|i| datagram((i % 50) as u8 + 3, 1000 + (i % 10) as u16))
        .collect();
    let running = wall.start("af_packet:near", "af_packet:out", &[]);
    let before = wall.net.received("beyond", "beyond");
    running.signal("-STOP");
    assert_eq!(wall.net.send(&frames, 100), 6_000);
    running.signal("-CONT");
    let done = running.stop().ok();
    let answer = answer(&done);
    assert_eq!(
        (&answer["received"], &answer["passed"]),
        (&6_000.into(), &6_000.into()),
        "{answer}"
    );
    assert_eq!(
        wall.net.received("beyond", "beyond") - before,
        6_000,
        "{answer}"
    );
}

#[test]
fn an_output_by_packet_socket_that_goes_down_is_waited_for() {
    let test = "an_output_by_packet_socket_that_goes_down_is_waited_for";
    let Some(wall) = Wall::new(test, "drop udp dport 9\n") else {
        return;
    };
    let running = wall.start("af_packet:near", "af_packet:out", &[]);
    let frames: Vec<Vec<u8>> = (0..300).map(|_| datagram(3, 7)).collect();
    let before = wall.net.received("beyond", "beyond");
    let mut sent = 0;
    for state in ["up", "down", "up"] {
        wall.net
            .inside("near", &["ip", "link", "set", "out", state])
            .ok();
        sent += 300;
        wall.net.send(&frames, 100);
        wall.until_received(sent);
    }
    let done = running.stop().ok();
    let answer = answer(&done);
    let arrived = wall.net.received("beyond", "beyond") - before;
    assert_eq!(
        (arrived, &answer["passed"], &answer["taken"]),
        (600, &900.into(), &600.into()),
        "{answer}"
    );
    assert_eq!(
        (&answer["lost"]["down"], &answer["fault"]),
        (&300.into(), &Value::Null),
        "{answer}"
    );
    assert!(
        done.err
            .contains("af_packet:out: 300 packets not sent: the interface was down"),
        "{}",
        done.err
    );
}

#[test]
fn each_frame_of_the_sender_is_at_the_receiver_or_counted() {
    let test = "each_frame_of_the_sender_is_at_the_receiver_or_counted";
    let rules = "drop udp dport 1-100\npass udp dport 101-200\ndrop src 10.0.0.7\n";
    let Some(wall) = Wall::new(test, rules) else {
        return;
    };
    if !have(test, &["tcpdump"]) {
        return;
    }
    for source in ["near", "af_packet:near"] {
        let denied_file = wall.temp.at("denied.pcapng");
        let files = ["-w", &denied_file, "--what", "denied"];
        // A file takes the packets of one queue.
        let source = if source == "near" {
            "af_xdp:near:0"
        } else {
            source
        };
        let running = wall.start(source, "out", &files);
        let frames: Vec<Vec<u8>> = (0..3000)
            .map(|i| datagram((i % 9) as u8 + 1, (i % 300) as u16 + 1))
            .collect();
        let before = wall.net.received("beyond", "beyond");
        let sent = wall.net.send(&frames, 100);
        let done = running.stop().ok();
        let answer = answer(&done);
        // Ports 1 to 100 of 300; of the ports from 201 on, every ninth source.
        let by_rule: Vec<u64> = (0..3)
            .map(|rule| {
                let is_of = |i: &u16| match rule {
                    0 => i % 300 < 100,
                    1 => (100..200).contains(&(i % 300)),
                    _ => i % 300 >= 200 && i % 9 == 6,
                };
                (0..3000).filter(is_of).count() as u64
            })
            .collect();
        for (rule, expected) in by_rule.iter().enumerate() {
            assert_eq!(
                answer["rules"][rule]["packets"], *expected,
                "{source}: {answer}"
            );
        }
        assert_eq!(
            (sent, &answer["received"]),
            (3000, &3000.into()),
            "{source}: {answer}"
        );
        assert_eq!(answer["denied"], by_rule[0] + by_rule[2], "{source}");
        let arrived = wall.net.received("beyond", "beyond") - before;
        assert_eq!(
            answer["passed"], arrived,
            "{source}: the receiver has another number"
        );
        let in_file = tool("tcpdump", ["-n", "-r", &denied_file])
            .ok()
            .text()
            .lines()
            .count() as u64;
        assert_eq!(
            in_file,
            by_rule[0] + by_rule[2],
            "{source}: the file of denied packets"
        );
    }
}

/// Script that prints what a TCP and an UDP socket are told, `refused` or another word, each within a second.
const ASKER: &str = "
import socket, sys
def told(kind, address):
    s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, kind)
    s.settimeout(1)
    try:
        s.connect((address, 7000))
        s.send(b'x')
        s.recv(10)
    except ConnectionRefusedError: return 'refused'
    except socket.timeout: return 'nothing'
    return 'answer'
print(*(told(kind, address) for address in sys.argv[1:] for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM)))
";

/// Script that sends a datagram to each of several ports.
const SENDER: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
for port in sys.argv[2:]: s.sendto(b'x', (sys.argv[1], int(port)))
";

#[test]
fn a_rule_knows_where_packets_leave_in_both_directions() {
    let rules = "drop udp dport 9 on near to out\ndrop udp dport 9 on out to near\ndrop udp dport 10 to out\n\
                 count udp dport 10 to n*\ndrop on near to near\nreject to eth9,lo*\n";
    let Some(wall) = Wall::new("a_rule_knows_where_packets_leave_in_both_directions", rules) else {
        return;
    };
    wall.addresses();
    let running = wall.start("near", "out", &["--bidirectional"]);
    let send = |from: &str, to: &str, ports: &[&str]| {
        wall.net
            .inside(from, &[&["python3", "-c", SENDER, to], ports].concat())
            .ok();
    };
    send("far", "10.9.0.2", &["9", "9", "9", "10", "10", "11"]);
    send("beyond", "10.9.0.1", &["9", "10", "10", "10", "10"]);
    let counts = || -> Vec<u64> {
        let stats = wall.stats();
        let rules = stats["rules"].as_array().expect("a list").iter();
        rules
            .map(|rule| rule["packets"].as_u64().expect("a number"))
            .collect()
    };
    let begun = Instant::now();
    while counts() != [3, 1, 2, 4, 0, 0] && begun.elapsed() < Duration::from_secs(5) {}
    assert_eq!(counts(), [3, 1, 2, 4, 0, 0]);
    let done = running.stop().ok();
    assert!(
        done.err
            .contains("line 6 matches nothing: packets leave at out and near, not at eth9,lo*"),
        "{}",
        done.err
    );
    assert!(!done.err.contains("line 5 matches nothing"), "{}", done.err);
    answer(&done);
}

/// The kernel is the judge: it believes only answers with right checksums and numbers.
#[test]
fn rejected_connections_are_refused_at_once() {
    let test = "rejected_connections_are_refused_at_once";
    let Some(wall) = Wall::new(test, "reject dport 7000\n") else {
        return;
    };
    wall.addresses();
    for (end, address) in [("far", "fd00::1/64"), ("beyond", "fd00::2/64")] {
        wall.net
            .inside(
                end,
                &[
                    "sh",
                    "-c",
                    &format!("echo 0 >/proc/sys/net/ipv6/conf/{end}/disable_ipv6"),
                ],
            )
            .ok();
        wall.net
            .inside(end, &["ip", "addr", "add", address, "dev", end, "nodad"])
            .ok();
    }
    let told = || {
        wall.net
            .inside("far", &["python3", "-c", ASKER, "10.9.0.2", "fd00::2"])
            .ok()
            .text()
    };
    let running = wall.start("near", "out", &["--bidirectional"]);
    assert_eq!(told(), "refused refused refused refused\n");
    fs::write(&wall.rules, "drop dport 7000\n").unwrap();
    wall.ctl(&["reload"]).ok();
    assert_eq!(told(), "nothing nothing nothing nothing\n");
    let done = running.stop().ok();
    let answer = answer(&done);
    assert!(answer["answers"]["sent"].as_u64().unwrap() >= 4, "{answer}");
    assert!(done.err.contains(" answered"), "{}", done.err);
}

/// The near end is a router: without the firewall it would pass the packets on a second time, and those that are denied too.
#[test]
fn the_host_behind_a_tap_gets_nothing_while_it_runs() {
    let test = "the_host_behind_a_tap_gets_nothing_while_it_runs";
    let Some(wall) = Wall::new(test, "drop udp dport 9\n") else {
        return;
    };
    let net = &wall.net;
    for command in [
        "ip addr add 10.0.0.254/24 dev near",
        "ip addr add 10.1.0.254/24 dev out",
        "ip neigh add 10.1.0.2 lladdr 02:00:00:00:00:99 dev out",
        "sysctl -q -w net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0",
    ] {
        net.inside("near", &["sh", "-c", command]).ok();
    }
    let address = net
        .inside("near", &["cat", "/sys/class/net/near/address"])
        .ok()
        .text();
    let mac: Vec<u8> = address
        .trim()
        .split(':')
        .map(|part| u8::from_str_radix(part, 16).unwrap())
        .collect();
    let frames: Vec<Vec<u8>> = (0..100)
        .map(|i| {
            let mut frame = datagram(1, if i % 2 == 0 { 9 } else { 10 });
            frame[..6].copy_from_slice(&mac);
            frame[30..34].copy_from_slice(&[10, 1, 0, 2]);
            frame[24..26].fill(0);
            let words = frame[14..34]
                .chunks(2)
                .map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
            let sum = words.sum::<u32>();
            let checksum = !((sum >> 16) + (sum & 0xffff)) as u16;
            frame[24..26].copy_from_slice(&checksum.to_be_bytes());
            frame
        })
        .collect();
    // Neither the router nor the firewall is at work any more once the expected ones have come, and all that was queued.
    let arrives = |sends: &dyn Fn(), expected: u64| {
        let before = net.received("beyond", "beyond");
        sends();
        wait::within(Duration::from_secs(10), || {
            wait::until_handed_on();
            net.received("beyond", "beyond") - before >= expected
        });
        wait::until_handed_on();
        net.received("beyond", "beyond") - before
    };
    let send = || assert_eq!(net.send(&frames, 10), 100);
    assert_eq!(arrives(&send, 100), 100, "the router alone");
    // By AF_PACKET, and as a tap: what passes, and what the router makes of all.
    for (source, more, expected) in [
        ("af_packet:near", &[][..], 50),
        ("near", &[], 50),
        ("near", &["--tap"], 150),
    ] {
        let running = wall.start(source, "af_packet:out", more);
        assert_eq!(arrives(&send, expected), expected, "{source} {more:?}");
        answer(&running.stop().ok());
        assert_eq!(
            arrives(&send, 100),
            100,
            "{source} {more:?}: the router alone again"
        );
    }
    // A process that is killed leaves nothing behind.
    let running = wall.start("af_packet:near", "af_packet:out", &[]);
    assert_eq!(arrives(&send, 50), 50);
    running.signal("-KILL");
    running.done();
    assert_eq!(arrives(&send, 100), 100, "after the firewall was killed");
}

/// Script that connects to 10.9.0.2 (or the address given) at port 7001 by UDP, and prints the answer.
const TALKER: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.settimeout(float(sys.argv[2]))
try:
    s.connect((sys.argv[1], 7001)); s.send(b'a'); print(s.recv(9).decode())
except ConnectionRefusedError: print('refused')
except OSError: print('nothing')
";

/// Script that answers each datagram.
const ANSWERER: &str = "
import socket, sys
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind((sys.argv[1], 7001)); s.settimeout(60)
print('answers', file=sys.stderr, flush=True)
while True:
    data, end = s.recvfrom(9); s.sendto(b'b', end)
";

#[test]
fn connections_are_made_from_one_side_only() {
    let test = "connections_are_made_from_one_side_only";
    let rules = "pass state established,related\npass src 10.9.0.1 state new\ndefault drop\n";
    let Some(wall) = Wall::new(test, rules) else {
        return;
    };
    wall.addresses();
    let data = wall
        .temp
        .file("data", &weir_testkit::Random(1).bytes(1 << 20));
    let expected = tool("python3", ["-c", CHECKSUM, &data]).ok().text();
    let mut servers = Vec::new();
    for (end, address) in [("beyond", "10.9.0.2"), ("far", "10.9.0.1")] {
        servers.push(
            wall.net
                .start_at(end, &["python3", "-c", SERVER, address, &data], "serves"),
        );
        servers.push(
            wall.net
                .start_at(end, &["python3", "-c", ANSWERER, address], "answers"),
        );
    }
    let running = wall.start("near", "out", &["--bidirectional"]);
    let tcp = |from: &str, to: &str| {
        wall.net
            .inside(from, &["python3", "-c", CLIENT, to, "1"])
            .ok()
            .text()
    };
    let udp = |from: &str, to: &str| {
        wall.net
            .inside(from, &["python3", "-c", TALKER, to, "1"])
            .ok()
            .text()
    };
    assert_eq!(
        (tcp("far", "10.9.0.2"), udp("far", "10.9.0.2")),
        (expected.clone(), "b\n".to_owned())
    );
    assert_eq!(
        (tcp("beyond", "10.9.0.1"), udp("beyond", "10.9.0.1")),
        ("nothing\n".to_owned(), "nothing\n".to_owned())
    );
    // An ICMP error about a datagram of its own reaches the sender: nobody is at port 7009.
    let asks = TALKER.replace("7001", "7009");
    let told = wall
        .net
        .inside("far", &["python3", "-c", &asks, "10.9.0.2", "2"])
        .ok()
        .text();
    assert_eq!(told, "refused\n");
    // Connections stay when the rules are read again.
    let recorded = || wall.stats()["connections"]["recorded"].as_u64().unwrap();
    let before = recorded();
    assert!(before >= 3, "{before}");
    fs::write(&wall.rules, format!("{rules}count udp\n")).unwrap();
    wall.ctl(&["reload"]).ok();
    assert_eq!(recorded(), before);
    assert_eq!(tcp("far", "10.9.0.2"), expected);
    drop(servers);
    let answer = answer(&running.stop().ok());
    assert_eq!(answer["connections"]["without_room"], 0, "{answer}");
}

/// Rules so slow that packets come faster than they are judged.
#[test]
fn an_overload_is_dropped_or_passes_unjudged_as_asked() {
    let test = "an_overload_is_dropped_or_passes_unjudged_as_asked";
    // As many as an answer that a pipe holds: it may be read late.
    let slow: String = (0..350)
        .map(|i| format!("count expr 'udp[{}]=7 and len>{i}'\n", 8 + i % 7))
        .collect();
    let Some(wall) = Wall::new(test, &format!("{slow}drop udp\n")) else {
        return;
    };
    let frames: Vec<Vec<u8>> = (0..60_000).map(|i| datagram(1, i as u16)).collect();
    for fail in ["closed", "open"] {
        let running = wall.start(
            "af_packet:near",
            "af_packet:out",
            &["--fail", fail, "--ring", "4M"],
        );
        let before = wall.net.received("beyond", "beyond");
        let sent = wall.net.send(&frames, 1000);
        let answer = answer(&running.stop().ok());
        let arrived = wall.net.received("beyond", "beyond") - before;
        let number = |name: &str| answer[name].as_u64().unwrap_or(0);
        assert_eq!(
            (sent, number("received")),
            (60_000, 60_000),
            "{fail}: {answer}"
        );
        assert_eq!(arrived, number("passed"), "{fail}: {answer}");
        if fail == "closed" {
            assert_eq!(number("passed"), 0, "{answer}");
            assert_eq!(number("unjudged"), 0, "{answer}");
        } else {
            assert_eq!(number("unjudged"), number("passed"), "{answer}");
            assert!(number("passed") > 0, "{answer}");
        }
    }
}

#[test]
fn what_makes_no_sense_is_refused_before_anything_is_opened() {
    let test = "what_makes_no_sense_is_refused_before_anything_is_opened";
    let temp = Temp::new();
    let none = weir(["firewall", "ctl", "--control", &temp.at("none"), "list"]);
    assert_eq!(none.code, Some(2));
    assert!(
        none.err.contains("no weir firewall runs there"),
        "{}",
        none.err
    );
    let Some(wall) = Wall::new(test, "default pass\n") else {
        return;
    };
    let (rules, socket) = (&wall.rules[..], &wall.socket[..]);
    let running = wall.start("near", "af_packet:out", &[]);
    let refused = |arguments: &[&str], words: &str| {
        let done = wall.net.weir(&[&["firewall"], arguments].concat());
        assert_eq!(
            (done.code, done.err.lines().count()),
            (Some(2), 1),
            "{arguments:?}: {}",
            done.err
        );
        assert!(done.err.contains(words), "{arguments:?}: {}", done.err);
    };
    refused(
        &["near", "out", "--rules", rules, "--control", socket],
        "near belongs to another firewall, process ",
    );
    wall.net.second_cable();
    refused(
        &["one", "two", "--rules", rules, "--control", socket],
        "another weir firewall runs there",
    );
    refused(
        &[
            "near",
            "near",
            "--rules",
            rules,
            "--control",
            &wall.temp.at("b"),
        ],
        "two interfaces",
    );
    refused(
        &["near", "x.pcap", "--rules", rules, "--bidirectional"],
        "--bidirectional forwards between two interfaces",
    );
    refused(
        &["any", "out", "--rules", rules],
        "packets are forwarded from one",
    );
    let stateful = wall
        .temp
        .file("stateful.txt", b"pass tcp\npass state established\n");
    let two = ["--workers", "2", "--distribute", "address"];
    refused(
        &[&["near", "out", "--rules", &stateful], &two[..]].concat(),
        "stateful.txt: line 2: rules by the state",
    );
    refused(
        &[&["af_xdp:near", "out", "--rules", rules], &two[..]].concat(),
        "--workers N af_packet:near",
    );
    refused(
        &["near", "out", "--rules", rules, "--distribute", "random"],
        "--workers N af_packet:near",
    );
    let keys = wall
        .temp
        .file("keys", b"7 00112233445566778899aabbccddeeff\n");
    let both = [
        "--fail",
        "open",
        "--control-port",
        "772",
        "--control-key",
        &keys,
    ];
    refused(
        &[&["near", "out", "--rules", rules], &both[..]].concat(),
        "leave out one of them",
    );
    refused(&["near", "out", "--rules", "-"], "give a file");
    refused(
        &["near", "out", "--rules", "/dev/null"],
        "not a regular file",
    );
    let capture = wall.temp.file("a.pcap", &pcap_header(65535, 1));
    refused(
        &[&capture, "out", "--rules", rules],
        "out is an interface: af_packet:out sends there",
    );
    refused(
        &["near", "out", "--rules", rules, "--duration", "0s"],
        "forwards nothing",
    );
    refused(
        &[
            "af_packet:nowhere",
            "two",
            "--rules",
            rules,
            "--control",
            &wall.temp.at("b"),
        ],
        "nowhere",
    );
    answer(&running.stop().ok());
}
