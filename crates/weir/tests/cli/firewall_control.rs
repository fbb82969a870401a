//! Control packets of `weir firewall`: the judge is a serial Python program with an HMAC of its own.

use crate::capture::net::{Capture, Net};
use crate::support::*;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

const KEYS: &str =
    "7 000102030405060708090a0b0c0d0e0f\n300 ffeeddccbbaa99887766554433221100aabb # the second\n";

/// Functions that make requests and frames. Layouts are those of the documentation.
const MAKES: &str = "
import hashlib, hmac, json, random, socket, struct, sys, time
KEYS = {7: bytes(range(16)), 300: bytes.fromhex('ffeeddccbbaa99887766554433221100aabb')}
PORT = 6633
def request(key, sequence, ns, lines, lasts=0, secret=None, version=1):
    b = b'WEIR' + struct.pack('>BBHQQQ', version, 0, key, sequence, ns, lasts) + lines.encode()
    return b + hmac.new(KEYS[7] if secret is None else secret, b, hashlib.sha256).digest()
def datagram(src, dst, payload, dport=PORT, fragment=0, claims=None):
    u = struct.pack('>HHHH', 4000, dport, 8 + len(payload) if claims is None else claims, 0) + payload
    if ':' in src:
        s, d = socket.inet_pton(socket.AF_INET6, src), socket.inet_pton(socket.AF_INET6, dst)
        return bytes([2] * 12) + b'\\x86\\xdd' + struct.pack('>IHBB', 6 << 28, len(u), 17, 64) + s + d + u
    s, d = socket.inet_aton(src), socket.inet_aton(dst)
    return bytes([2] * 12) + b'\\x08\\0' + struct.pack('>BBHHHBBH', 0x45, 0, 20 + len(u), 1, fragment, 64, 17, 0) + s + d + u
";

/// Makes `in.pcap` in a directory from a seed, with control packets of all kinds, and judges each packet by a table of its own: `passed.pcap`,
/// `denied.pcap`, and on standard output the counts. A second argument has the sequence numbers before.
const SERIAL: &str = "
seed, folder, last = int(sys.argv[1]), sys.argv[2], {int(k): v for k, v in json.loads(sys.argv[3]).items()}
rng, accepted_before = random.Random(seed), dict(last)
hosts = ['10.0.0.%d' % i for i in range(1, 9)]
six = ['2001:db8::%d' % i for i in range(1, 5)]
BASE = 1700000000 * 10**9
now, sequence = BASE, {7: 0, 300: 0, 8: 0}
bans, accepts = {}, {}
counts = {'accepted': 0}
passed, denied, all_packets = [], [], []
WINDOW = 30 * 10**9
def bits(a):
    return int.from_bytes(socket.inet_pton(socket.AF_INET6 if ':' in a else socket.AF_INET, a), 'big')
def span(text):
    if '-' in text:
        a, b = text.split('-')
        return bits(a), bits(b)
    if '/' in text:
        a, n = text.split('/')
        size = 1 << (32 - int(n))
        return bits(a), bits(a) + size - 1
    return bits(text), bits(text)
def apply(lines, lasts):
    for line in lines.split('\\n'):
        w = line.split()
        if w[0] in ('ban', 'unban'):
            family = 6 if ':' in w[1] else 4
            first, end = span(w[1])
            for a in range(first, end + 1):
                bans.pop((family, a), None)
                if w[0] == 'ban':
                    bans[family, a] = now + lasts if lasts else None
        else:
            accepts.setdefault(w[1], []).append((w[0] == 'accept', w[3]))
def passes(src, dst):
    if (6 if ':' in src else 4, bits(src)) in bans:
        return False
    verdict = True
    for accept, sources in accepts.get(dst, []):
        for one in sources.split(','):
            if one == 'any' or span(one)[0] <= bits(src) <= span(one)[1]:
                verdict = accept
    return verdict
def some_lines():
    def line():
        host = rng.choice(hosts)
        return rng.choice(['ban ' + host, 'ban ' + host, 'unban ' + host, 'unban ' + host, 'ban ' + rng.choice(six), 'unban 2001:db8::1-2001:db8::4',
            'ban 10.0.0.4-10.0.0.6', 'unban 10.0.0.0/28', 'refuse %s from %s' % (host, rng.choice(['any', '10.0.0.0/30', '10.0.0.2,10.0.0.7'])),
            'accept %s from %s' % (host, rng.choice(['any', 'any', '10.0.0.3-10.0.0.6']))])
    return '\\n'.join(line() for _ in range(rng.choice([1, 1, 2, 5])))
def refused(why):
    counts[why] = counts.get(why, 0) + 1
    return 'denied'
def control():
    'Makes a control packet and says what comes of it.'
    key = rng.choice([7, 7, 300])
    sequence[key] += rng.choice([1, 1, 5])
    lines, lasts = some_lines(), rng.choice([0, 0, 10**9, 50 * 10**6])
    src, dst = ('2001:db8::9', '2001:db8::a') if rng.random() < 0.2 else (rng.choice(hosts), '192.0.2.1')
    kind = rng.choice(['good'] * 12 + ['replay', 'old', 'early', 'edge', 'forged', 'other', 'unknown', 'words', 'version', 'short', 'fragment',
        'claims', 'empty', 'cut', 'long'])
    number, skew, secret, more = sequence[key], rng.randrange(-20, 20) * 10**9, KEYS[key], {}
    if kind == 'replay': number = last.get(key, 0)
    if kind == 'old': skew = -WINDOW - 1
    if kind == 'early': skew = WINDOW + 1
    if kind == 'edge': skew = rng.choice([-WINDOW, WINDOW])
    if kind == 'other': secret = KEYS[307 - key]
    if kind == 'unknown': key = 8
    if kind == 'words': lines += '\\nban nobody'
    if kind == 'fragment': more, src, dst = {'fragment': 0x2000}, '10.0.0.1', '192.0.2.1'
    if kind == 'long': lasts = 2**63
    payload = request(key, number, now + skew, lines, lasts, secret, 2 if kind == 'version' else 1)
    if kind == 'forged':
        place = rng.randrange(33, len(payload))
        payload = payload[:place] + bytes([payload[place] ^ 1]) + payload[place + 1:]
    if kind == 'short': payload = payload[:rng.randrange(64)]
    if kind == 'empty': payload = b''
    if kind == 'claims': more = {'claims': rng.choice([0, 7, len(payload) + 9])}
    frame = datagram(src, dst, payload, **more)
    wire = len(frame)
    if kind == 'cut': frame = frame[:-1]
    # The order of the checks, and their words.
    if kind == 'fragment': fate = refused('fragment')
    elif kind in ('version', 'short', 'empty', 'claims', 'cut', 'long'): fate = refused('malformed')
    elif kind == 'unknown': fate = refused('unknown_key')
    elif abs(skew) > WINDOW: fate = refused('outside_window')
    elif number <= last.get(key, 0): fate = refused('replayed')
    elif kind in ('forged', 'other'): fate = refused('not_authentic')
    elif kind == 'words': fate = refused('malformed')
    else:
        last[key] = number
        apply(lines, lasts)
        counts['accepted'] += 1
        fate = 'obeyed'
    return frame, wire, fate
for _ in range(4000):
    # Some stamps lie before the stamp of the packet before.
    now += rng.choice([0, 10**6, 3 * 10**6, 20 * 10**6, -5 * 10**6])
    for who in [who for who, end in bans.items() if end is not None and end <= now]:
        del bans[who]
    if rng.random() < 0.15:
        frame, wire, fate = control()
    else:
        if rng.random() < 0.2: src, dst = rng.choice(six), rng.choice(six)
        else: src, dst = rng.choice(hosts), rng.choice(hosts)
        frame = datagram(src, dst, bytes(20), rng.choice([53, PORT + 1, 6634, 80]))
        # A later fragment has no port, and is judged as others.
        if ':' not in src and rng.random() < 0.05: frame = datagram(src, dst, b'x' * 20, PORT, 0x0002)
        wire, fate = len(frame), 'passed' if passes(src, dst) else 'denied'
    record = struct.pack('<IIII', now // 10**9, now % 10**9, len(frame), wire) + frame
    all_packets.append(record)
    if fate == 'passed': passed.append(record)
    if fate == 'denied': denied.append(record)
head = struct.pack('<IHHiIII', 0xa1b23c4d, 2, 4, 0, 0, 65535, 1)
for name, records in [('in', all_packets), ('passed', passed), ('denied', denied)]:
    open(folder + '/' + name + '.pcap', 'wb').write(head + b''.join(records))
print(json.dumps({'last': last, 'counts': counts, 'passed': len(passed), 'denied': len(denied)}))
";

fn python(script: &str, arguments: &[&str]) -> Done {
    tool(
        "python3",
        [&["-c", &format!("{MAKES}{script}")], arguments].concat(),
    )
}

/// A key file that others cannot read.
fn key_file(temp: &Temp, text: &str) -> String {
    let file = temp.file("keys.txt", text.as_bytes());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    file
}

/// The answer at the end, whose account adds up.
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
    assert_eq!(answer["filtered"], answer["control"]["accepted"]["packets"]);
    answer
}

#[test]
fn verdicts_of_a_file_are_those_of_a_serial_program() {
    let test = "verdicts_of_a_file_are_those_of_a_serial_program";
    if !have(test, &["python3"]) {
        return;
    }
    let temp = Temp::new();
    let keys = key_file(&temp, KEYS);
    let at = |name: &str| temp.at(name);
    let mut last = "{}".to_owned();
    for (seed, keeps) in [(1, false), (2, false), (3, true), (3, true)] {
        let expected = python(SERIAL, &[&seed.to_string(), s(temp.path()), &last])
            .ok()
            .text();
        let expected: Value = serde_json::from_str(&expected).unwrap();
        let (input, out, denied, state) = (
            at("in.pcap"),
            at("out.pcap"),
            at("rest.pcap"),
            at("sequences"),
        );
        let mut command = vec![
            "firewall",
            &input,
            &out,
            "--control-port",
            "6633",
            "--control-key",
            &keys,
            "--json",
        ];
        command.extend(["-w", &denied, "--what", "denied"]);
        if keeps {
            command.extend(["--control-state", &state]);
            // The process that begins next knows the numbers of this one.
            last = expected["last"].to_string();
        }
        let done = weir(&command).ok();
        let answer = answer(&done);
        for name in ["passed", "denied"] {
            assert_eq!(
                answer[name], expected[name],
                "seed {seed}: {answer}\n{expected}"
            );
        }
        for (name, count) in answer["control"].as_object().unwrap() {
            let expected = expected["counts"][name].as_u64().unwrap_or(0);
            assert_eq!(
                count["packets"].as_u64(),
                Some(expected),
                "seed {seed}: {name}: {answer}"
            );
            // All that can come up in a file does.
            let is_rare = keeps || ["no_room", "not_saved"].contains(&name.as_str());
            assert!(expected > 0 || is_rare, "seed {seed}: {name}: {answer}");
        }
        assert_eq!(records(&out), records(&at("passed.pcap")), "seed {seed}");
        assert_eq!(records(&denied), records(&at("denied.pcap")), "seed {seed}");
        assert!(
            done.err.contains("control packets obeyed (refused: "),
            "{}",
            done.err
        );
    }
}

#[test]
fn wrong_keys_and_states_are_one_line() {
    let temp = Temp::new();
    let input = temp.file("in.pcap", &small_pcap(10));
    let (out, state) = (temp.at("out.pcap"), temp.at("state"));
    let refused = |keys: &str, more: &[&str], words: &str| {
        let command = [
            &[
                "firewall",
                &input,
                &out,
                "--control-port",
                "6633",
                "--control-key",
                keys,
            ],
            more,
        ]
        .concat();
        let done = weir(&command);
        assert_eq!(
            (done.code, done.err.lines().count()),
            (Some(2), 1),
            "{words}: {}",
            done.err
        );
        assert!(done.err.contains(words), "{words}: {}", done.err);
        assert!(fs::metadata(&out).is_err(), "{words}: something was done");
    };
    refused(&temp.at("nowhere"), &[], "nowhere: no such file");
    let keys = key_file(&temp, KEYS);
    for mode in [0o640, 0o604, 0o620, 0o601] {
        fs::set_permissions(&keys, fs::Permissions::from_mode(mode)).unwrap();
        refused(
            &keys,
            &[],
            &format!("keys.txt: others may use the keys (mode {mode:03o}): chmod 600"),
        );
    }
    for (text, words) in [
        (
            "7 0011\n",
            "keys.txt: line 1: the key has 2 bytes, and 16 are the least",
        ),
        (
            "# none\n",
            "keys.txt: line 1: the file ends, and there is no key",
        ),
        ("7\n", "keys.txt: line 1: a line has"),
        (
            &KEYS.replace("300", "7"),
            "keys.txt: line 2: line 1 has a key of this number too",
        ),
    ] {
        refused(&key_file(&temp, text), &[], words);
    }
    let keys = key_file(&temp, KEYS);
    fs::write(&state, "00007 00000000000000000007     \n00300 1\n").unwrap();
    refused(
        &keys,
        &["--control-state", &state],
        "state: line 2: no record of a sequence number",
    );
    refused(
        &keys,
        &["--control-state", &temp.at("no/where")],
        "no/where: no such file",
    );
    refused(
        &keys,
        &["--control-state", &out, "-w", &keys, "--what", "denied"],
        "both source and output",
    );
    for (arguments, words) in [
        (vec!["--control-port", "6633"], "--control-key"),
        (vec!["--control-key", &keys], "--control-port"),
        (
            vec!["--control-port", "0", "--control-key", &keys],
            "--control-port",
        ),
        (
            vec!["--control-port", "65536", "--control-key", &keys],
            "--control-port",
        ),
    ] {
        let done = weir([&["firewall", &input, &out], &arguments[..]].concat());
        assert_eq!(done.code, Some(2), "{arguments:?}");
        assert!(done.err.contains(words), "{arguments:?}: {}", done.err);
    }
}

#[test]
fn a_request_is_sent_as_one_datagram_and_what_makes_no_sense_is_not() {
    let test = "a_request_is_sent_as_one_datagram_and_what_makes_no_sense_is_not";
    if !have(test, &["python3"]) {
        return;
    }
    let temp = Temp::new();
    let keys = key_file(&temp, KEYS);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(20)))
        .unwrap();
    let to = socket.local_addr().unwrap().to_string();
    let sent = |more: &[&str]| {
        let ctl = [
            "firewall", "ctl", "--udp", &to, "--key", &keys, "--id", "300",
        ];
        let done = weir([&ctl, more].concat()).ok();
        assert!(done.err.contains("nothing acknowledges"), "{}", done.err);
        let mut bytes = [0; 2000];
        let len = socket.recv(&mut bytes).unwrap();
        bytes[..len].to_vec()
    };
    // Python makes the same bytes of the same number and time, which are near its own.
    let check = "
ours = bytes.fromhex(sys.argv[1])
sequence, ns = struct.unpack('>QQ', ours[8:24])
assert abs(ns - time.time_ns()) < 60 * 10**9, ns
assert ours == request(300, sequence, ns, sys.argv[2], int(sys.argv[3]), KEYS[300]), ours
print(sequence)
";
    let mut before = 0;
    for (command, lines, lasts) in [
        (
            &["block", "192.0.2.7", "2001:db8::7", "--for", "10m"][..],
            "ban 192.0.2.7\nban 2001:db8::7",
            "600000000000",
        ),
        (&["accept", "192.0.2.7"], "unban 192.0.2.7", "0"),
        (
            &["accept", "10.0.0.5", "--from", "10.1.0.0/16"],
            "accept 10.0.0.5 from 10.1.0.0/16",
            "0",
        ),
        (&["refuse", "10.0.0.5"], "refuse 10.0.0.5 from any", "0"),
    ] {
        let hex: String = sent(command)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let sequence: u64 = python(check, &[&hex, lines, lasts])
            .ok()
            .text()
            .trim()
            .parse()
            .unwrap();
        assert!(sequence > before, "sequence numbers rise");
        before = sequence;
    }
    let many: Vec<String> = (0..100).map(|i| format!("10.200.200.{i}")).collect();
    let many: Vec<&str> = std::iter::once("block")
        .chain(many.iter().map(String::as_str))
        .collect();
    for (to, more, words) in [
        (
            &to[..],
            &["--id", "8", "block", "192.0.2.7"][..],
            "there is no key 8",
        ),
        (&to, &["block", "192.0.2.7"], "has 2 keys: --id NUMBER"),
        (&to, &["--id", "7", "block", "nobody"], "nobody"),
        (
            &to,
            &["--id", "7", "block", "10.0.0.0/16"],
            "65536 addresses change",
        ),
        (
            &to,
            &[&["--id", "7"], &many[..]].concat(),
            "a packet has room for",
        ),
        (&to, &["--id", "7", "list"], "nothing would come back"),
        (
            "localhost:6633",
            &["--id", "7", "block", "192.0.2.7"],
            "names are not looked up",
        ),
        (
            "127.0.0.1",
            &["--id", "7", "block", "192.0.2.7"],
            "no address with a port",
        ),
    ] {
        let done = weir([&["firewall", "ctl", "--udp", to, "--key", &keys], more].concat());
        assert_eq!(
            (done.code, done.err.lines().count()),
            (Some(2), 1),
            "{more:?}: {}",
            done.err
        );
        assert!(done.err.contains(words), "{more:?}: {}", done.err);
    }
    socket.set_nonblocking(true).unwrap();
    assert!(socket.recv(&mut [0; 10]).is_err(), "something was sent");
}

/// Sends frames by an interface, in their order: data packets `SOURCE`, and requests `KEY:SEQUENCE:SECONDS:LASTS_NS:LINES`, whose time is
/// so far from now; `forged` has the HMAC of another key.
const SENDS: &str = "
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((sys.argv[1], 0))
for one in sys.argv[2:]:
    if one == 'forged':
        frame = datagram('10.0.0.9', '10.0.0.2', request(7, 2**63, time.time_ns(), 'ban 10.0.0.1', 0, KEYS[300]))
    elif ':' in one:
        key, sequence, skew, lasts, lines = one.split(':', 4)
        ns = time.time_ns() + int(skew) * 10**9
        frame = datagram('10.0.0.9', '10.0.0.2', request(int(key), int(sequence), ns, lines.replace(';', '\\n'), int(lasts), KEYS[int(key)]))
    else:
        frame = datagram(one, '10.0.0.2', bytes(30), 5)
    s.send(frame)
";

pub struct Wall {
    pub net: Net,
    pub temp: Temp,
    keys: String,
}

impl Wall {
    pub fn new(test: &str) -> Option<Self> {
        let net = Net::new(test)?;
        net.beyond();
        let temp = Temp::new();
        Some(Self {
            net,
            keys: key_file(&temp, KEYS),
            temp,
        })
    }

    pub fn start(&self, source: &str, sink: &str, more: &[&str]) -> Capture {
        let (weir, socket) = (env!("CARGO_BIN_EXE_weir"), self.temp.at("socket"));
        let command = [
            weir,
            "firewall",
            source,
            sink,
            "--control",
            &socket,
            "--json",
        ];
        let control = ["--control-port", "6633", "--control-key", &self.keys];
        self.net
            .start(&[&command, &control[..], more].concat(), "control socket")
    }

    pub fn send(&self, end: &str, interface: &str, packets: &[&str]) {
        let script = format!("{MAKES}{SENDS}");
        self.net
            .inside(
                end,
                &[&["python3", "-c", &script, interface], packets].concat(),
            )
            .ok();
    }

    pub fn ctl(&self, arguments: &[&str]) -> Done {
        weir(
            [
                &["firewall", "ctl", "--control", &self.temp.at("socket")],
                arguments,
            ]
            .concat(),
        )
    }

    /// Waits until the firewall has received so many packets in all, and returns its state.
    pub fn stats(&self, received: u64) -> Value {
        let begun = Instant::now();
        loop {
            let stats: Value =
                serde_json::from_str(&self.ctl(&["stats", "--json"]).ok().text()).unwrap();
            if stats["received"].as_u64() >= Some(received) {
                return stats;
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "{stats}");
        }
    }
}

fn control_packets_take_effect_in_their_place(test: &str, source: &str) {
    let Some(wall) = Wall::new(test) else { return };
    let arrived = || wall.net.received("beyond", "beyond");
    let before = arrived();
    let running = wall.start(source, "out", &["--bidirectional"]);
    // All of a burst may be one batch: the verdicts are those of the stream's order all the same.
    let data = ["10.0.0.1"; 5];
    let ban = ["7:1:0:0:ban 10.0.0.1;refuse 10.0.0.2 from 10.0.0.3"];
    let burst = [
        &data[..],
        &ban,
        &data,
        &["10.0.0.3", "10.0.0.4"],
        &["300:1:29:0:unban 10.0.0.1"],
        &data,
    ]
    .concat();
    wall.send("far", "far", &burst);
    let stats = wall.stats(19);
    let of = |stats: &Value, names: [&str; 4]| names.map(|name| stats[name].as_u64().unwrap());
    assert_eq!(
        of(&stats, ["received", "passed", "filtered", "denied"]),
        [19, 11, 2, 6],
        "{stats}"
    );
    // By cause, as of all commands.
    assert_eq!(
        stats["dropped"],
        serde_json::json!({ "kernel": 0 }),
        "{stats}"
    );
    // What is not obeyed, with its reason; none of it goes on.
    wall.send(
        "far",
        "far",
        &[
            "forged",
            "7:1:0:0:ban 10.0.0.1",
            "7:2:-31:0:ban 10.0.0.1",
            "7:2:0:0:ban x",
            "10.0.0.1",
        ],
    );
    let stats = wall.stats(24);
    let control = |stats: &Value, name: &str| stats["control"][name]["packets"].as_u64().unwrap();
    for name in ["not_authentic", "replayed", "outside_window", "malformed"] {
        assert_eq!(control(&stats, name), 1, "{name}: {stats}");
    }
    assert_eq!(
        of(&stats, ["received", "passed", "filtered", "denied"]),
        [24, 12, 2, 10],
        "{stats}"
    );
    assert!(
        wall.ctl(&["stats"])
            .ok()
            .text()
            .contains("control: not authentic")
    );
    // By the other direction, for both; the end is that of the clock.
    wall.send("beyond", "beyond", &["7:2:0:600000000000:ban 10.0.0.4"]);
    wall.stats(25);
    let list: Value = serde_json::from_str(&wall.ctl(&["list", "--json"]).ok().text()).unwrap();
    let left = list["bans"][0]["left_s"].as_f64().unwrap();
    assert!(left > 300.0 && left <= 600.0, "{list}");
    wall.send("far", "far", &["10.0.0.4", "10.0.0.1"]);
    assert_eq!(wall.stats(27)["denied"], 11);
    // A ban by the socket does not end because an earlier one of a packet would.
    wall.send(
        "beyond",
        "beyond",
        &["7:3:0:1000000000:ban 10.0.0.5;ban 10.0.0.6"],
    );
    wall.stats(28);
    wall.ctl(&["block", "10.0.0.5"]).ok();
    let begun = Instant::now();
    while wall.ctl(&["list"]).ok().text().contains("10.0.0.6") {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "a ban of a second does not end"
        );
    }
    assert!(wall.ctl(&["list"]).ok().text().contains("10.0.0.5"));
    wall.send("far", "far", &["10.0.0.6", "10.0.0.5"]);
    let stats = wall.stats(30);
    assert_eq!(
        of(&stats, ["received", "passed", "filtered", "denied"]),
        [30, 14, 4, 12],
        "{stats}"
    );
    let done = running.stop().ok();
    let answer = answer(&done);
    assert_eq!(control(&answer, "accepted"), 4, "{answer}");
    assert!(
        done.err
            .contains("4 control packets obeyed (refused: 1 malformed, 1 outside window"),
        "{}",
        done.err
    );
    assert_eq!(arrived() - before, 14, "the receiver has another number");
}

#[test]
fn control_packets_take_effect_in_their_place_by_af_packet() {
    let test = "control_packets_take_effect_in_their_place_by_af_packet";
    control_packets_take_effect_in_their_place(test, "af_packet:near");
}

#[test]
fn control_packets_take_effect_in_their_place_by_af_xdp() {
    control_packets_take_effect_in_their_place(
        "control_packets_take_effect_in_their_place_by_af_xdp",
        "near",
    );
}

#[test]
fn a_request_is_obeyed_once_though_the_process_was_killed() {
    let test = "a_request_is_obeyed_once_though_the_process_was_killed";
    let Some(wall) = Wall::new(test) else { return };
    let running = wall.start("af_packet:near", "af_packet:out", &[]);
    let second = wall.net.weir(
        &[
            &["firewall", "near", "out", "--control", &wall.temp.at("b")][..],
            &["--control-port", "6633"],
            &["--control-key", &wall.keys],
        ]
        .concat(),
    );
    assert_eq!(second.code, Some(2));
    assert!(
        second
            .err
            .contains("keys.txt.state: another weir firewall uses it"),
        "{}",
        second.err
    );
    wall.send("far", "far", &["7:5:0:0:ban 10.0.0.1", "10.0.0.1"]);
    assert_eq!(wall.stats(2)["denied"], 1);
    running.signal("-KILL");
    running.done();
    let state = fs::read_to_string(format!("{}.state", wall.keys)).unwrap();
    assert!(
        state.starts_with("00007 00000000000000000005     \n"),
        "{state}"
    );
    assert_eq!(
        fs::metadata(format!("{}.state", wall.keys))
            .unwrap()
            .permissions()
            .mode()
            & 0o777,
        0o600
    );
    let running = wall.start("af_packet:near", "af_packet:out", &["--no-restore"]);
    wall.send(
        "far",
        "far",
        &[
            "7:5:0:0:ban 10.0.0.1",
            "7:4:0:0:ban 10.0.0.1",
            "10.0.0.1",
            "7:6:0:0:ban 10.0.0.1",
            "10.0.0.1",
        ],
    );
    wall.stats(5);
    let answer = answer(&running.stop().ok());
    let control = |name: &str| answer["control"][name]["packets"].as_u64();
    assert_eq!(
        (control("replayed"), control("accepted")),
        (Some(2), Some(1)),
        "{answer}"
    );
    assert_eq!(
        (&answer["passed"], &answer["denied"]),
        (&1.into(), &3.into()),
        "{answer}"
    );
}

/// The flows of the sources meet both workers; the request meets one of them.
#[test]
fn all_workers_are_changed_by_the_packet_that_one_of_them_took() {
    let test = "all_workers_are_changed_by_the_packet_that_one_of_them_took";
    let Some(wall) = Wall::new(test) else { return };
    let running = wall.start("af_packet:near", "af_packet:out", &["--workers", "2"]);
    let sources: Vec<String> = (1..=20).map(|i| format!("10.0.0.{i}")).collect();
    let sources: Vec<&str> = sources.iter().map(String::as_str).collect();
    wall.send("far", "far", &sources);
    assert_eq!(wall.stats(20)["denied"], 0);
    wall.send(
        "far",
        "far",
        &["7:1:0:0:ban 10.0.0.1-10.0.0.10;refuse 10.0.0.2 from 10.0.0.11-10.0.0.20"],
    );
    assert_eq!(wall.stats(21)["filtered"], 1);
    wall.send("far", "far", &sources);
    assert_eq!(wall.stats(41)["denied"], 20);
    wall.send(
        "far",
        "far",
        &["300:1:0:0:unban 10.0.0.1-10.0.0.10;accept 10.0.0.2 from any"],
    );
    assert_eq!(wall.stats(42)["filtered"], 2);
    wall.send("far", "far", &sources);
    wall.stats(62);
    let answer = answer(&running.stop().ok());
    assert_eq!(
        (&answer["passed"], &answer["denied"]),
        (&40.into(), &20.into()),
        "{answer}"
    );
}

/// The sender is the command, and the network stack of the kernel.
#[test]
fn the_command_reaches_a_firewall_on_its_way() {
    let Some(wall) = Wall::new("the_command_reaches_a_firewall_on_its_way") else {
        return;
    };
    wall.net
        .inside("far", &["ip", "addr", "add", "10.9.0.1/24", "dev", "far"])
        .ok();
    wall.net
        .inside(
            "far",
            &[
                "ip",
                "neigh",
                "add",
                "10.9.0.2",
                "lladdr",
                "02:00:00:00:00:99",
                "dev",
                "far",
            ],
        )
        .ok();
    let running = wall.start("near", "out", &[]);
    let ctl = |command: &[&str]| {
        let weir = env!("CARGO_BIN_EXE_weir");
        let to = [
            weir,
            "firewall",
            "ctl",
            "--udp",
            "10.9.0.2:6633",
            "--key",
            &wall.keys,
            "--id",
            "300",
        ];
        wall.net.inside("far", &[&to, command].concat()).ok();
    };
    ctl(&["block", "10.0.0.1", "10.0.0.2", "--for", "10m"]);
    assert_eq!(wall.stats(1)["filtered"], 1);
    wall.send("far", "far", &["10.0.0.1", "10.0.0.3"]);
    assert_eq!(wall.stats(3)["denied"], 1);
    ctl(&["accept", "10.0.0.1"]);
    assert_eq!(wall.stats(4)["filtered"], 2);
    wall.send("far", "far", &["10.0.0.1", "10.0.0.2"]);
    wall.stats(6);
    let answer = answer(&running.stop().ok());
    assert_eq!(
        (&answer["passed"], &answer["denied"]),
        (&2.into(), &2.into()),
        "{answer}"
    );
}
