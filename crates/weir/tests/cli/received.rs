//! `--receive` of `weir generate` and `weir replay`: the fate of packets, with faults that a program on the way plants.

use crate::capture::net::Net;
use crate::schema;
use crate::support::*;
use serde_json::Value;
use std::time::Duration;
use weir_testkit::wait;

/// Takes frames from one interface to another. Of ten numbered frames, it loses one, doubles one, exchanges two, and delays all.
pub const RELAY: &str = r#"
import collections, socket, sys, time
delay = float(sys.argv[1])
faults = sys.argv[2] == "faults"
# Packets a second, and in a burst, that come through.
limit, burst = (float(sys.argv[2]), 40) if sys.argv[2].isdigit() else (0, 0)
tokens, then = burst, time.time()
def opened(name):
    it = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    # SO_RCVBUFFORCE: all packets of a test find room while this program waits for a processor.
    it.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)
    it.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 24)
    it.bind((name, 0))
    return it
come, go = opened("far"), opened("out")
print("ready", file=sys.stderr, flush=True)
number, held, queue = 0, None, collections.deque()
while True:
    come.settimeout(max(queue[0][0] - time.time(), 0.00001) if queue else None)
    try:
        frame, about = come.recvfrom(9100)
        if about[2] != socket.PACKET_OUTGOING and b"weir" in frame:
            now = time.time()
            tokens, then = min(burst, tokens + (now - then) * limit), now
            if limit == 0 or tokens >= 1:
                tokens -= 1
                queue.append((now + delay, frame))
    except (TimeoutError, BlockingIOError):
        pass
    while queue and queue[0][0] <= time.time():
        frame = queue.popleft()[1]
        kind, number = number % 10 if faults else 0, number + 1
        if kind == 3:
            continue
        if kind == 7:
            held = frame
            continue
        go.send(frame)
        if kind == 5:
            go.send(frame)
        if kind == 8:
            go.send(held)
"#;

/// Sends 1000 packets through the relay, and returns the answer.
fn exchange(net: &Net, delay: &str, faults: &str) -> Value {
    let relay = net.start_at("far", &["python3", "-c", RELAY, delay, faults], "ready");
    let words = [
        "generate",
        "af_packet:near",
        "--profile",
        "64",
        "--packets",
        "1000",
        "--rate",
        "4kpps",
    ];
    let answer = received(net, &words);
    relay.stop();
    answer
}

/// The last line of the answer of a sender that receives by the cable behind the relay.
fn received(net: &Net, words: &[&str]) -> Value {
    let end = format!("netns:{}/end", net.name("far"));
    let done = net.weir(&[words, &["--receive", &end, "--json"]].concat());
    last_line(&done.ok())
}

/// The last object of an answer.
pub fn last_line(done: &Done) -> Value {
    let text = done.text();
    schema::check(&text);
    let last = text.lines().last().expect("there is an answer");
    serde_json::from_str(last).expect("it is JSON")
}

/// Packets of each fate.
pub fn counts(answer: &Value) -> [u64; 5] {
    let keys = ["sent", "received", "lost", "duplicated", "reordered"];
    keys.map(|key| answer[key].as_u64().unwrap())
}

/// Adds the cable behind the relay.
pub fn add_end(net: &Net) {
    let add = [
        "ip", "link", "add", "out", "type", "veth", "peer", "name", "end",
    ];
    net.inside("far", &add).ok();
    for name in ["out", "end"] {
        net.inside("far", &["ip", "link", "set", name, "up"]).ok();
    }
}

#[test]
fn loss_duplicates_reorder_and_delay_are_found_as_they_were_planted() {
    let test = "loss_duplicates_reorder_and_delay_are_found_as_they_were_planted";
    if !have(test, &["python3"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    add_end(&net);
    let by_itself = [
        "generate",
        "af_packet:near",
        "--profile",
        "64",
        "--receive",
        "near",
    ];
    let refused = net.weir(&by_itself);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    let plain = exchange(&net, "0.02", "none");
    assert_eq!(counts(&plain), [1000, 1000, 0, 0, 0], "{plain}");
    let p50 = plain["delay_ns"]["p50"].as_u64().unwrap();
    // The relay holds each packet for 20 ms, and longer on a busy machine.
    assert!((20_000_000..2_000_000_000).contains(&p50), "{plain}");
    let faulty = exchange(&net, "0", "faults");
    assert_eq!(counts(&faulty), [1000, 900, 100, 100, 100], "{faulty}");
    assert_eq!(
        (&faulty["extent"]["max"], &faulty["too_late"]),
        (&1.into(), &0.into())
    );
    // Of ten, one is lost and two are exchanged.
    assert_eq!(
        faulty["density"],
        serde_json::json!({"-1": 100, "0": 700, "1": 100})
    );
}

/// Replayed packets carry no number. Of ten, two equal packets begin each, and two more are equal to those of all other tens: the relay loses
/// one of them. The second round of the loop has other addresses, and all packets get another station.
#[test]
fn replayed_packets_are_found_by_their_bytes() {
    let test = "replayed_packets_are_found_by_their_bytes";
    if !have(test, &["python3"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    add_end(&net);
    let temp = Temp::new();
    let mut bytes = pcapng_start(1);
    for number in 0..500_u32 {
        let (port, text) = match number % 10 {
            0 | 1 => (53, number / 10),
            3 | 4 => (54, 0),
            _ => (55, number),
        };
        let mut frame = numbered(port, text, 8);
        frame.extend(b"weir");
        let ticks = 1_700_000_000_000_000 + u64::from(number) * 250;
        bytes.extend(pcapng_packet_at(ticks, frame.len() as u32, &frame));
    }
    let file = temp.file("in.pcapng", &bytes);
    let words = [
        "replay",
        &file,
        "--to",
        "near",
        "--loop",
        "2",
        "--shift-addresses",
        "--dst-mac",
        "02:00:00:00:00:77",
    ];
    let relay = net.start_at("far", &["python3", "-c", RELAY, "0.02", "none"], "ready");
    let plain = received(&net, &words);
    assert_eq!(counts(&plain), [1000, 1000, 0, 0, 0], "{plain}");
    let p50 = plain["delay_ns"]["p50"].as_u64().unwrap();
    // The relay holds each packet for 20 ms, and longer on a busy machine.
    assert!((20_000_000..2_000_000_000).contains(&p50), "{plain}");
    relay.stop();
    let relay = net.start_at("far", &["python3", "-c", RELAY, "0", "faults"], "ready");
    let faulty = received(&net, &words);
    relay.stop();
    assert_eq!(counts(&faulty), [1000, 900, 100, 100, 100], "{faulty}");
    assert_eq!(
        faulty["density"],
        serde_json::json!({"-1": 100, "0": 700, "1": 100})
    );
}

/// A bridge between `far` and `out`. Of ten frames from `far`, it loses one, doubles one, and exchanges two. Of those from `out` it loses each
/// fifth, and delays the others.
const BRIDGE: &str = r#"
import collections, select, socket, sys, time
def opened(name):
    it = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    # SO_RCVBUFFORCE: all packets of a test find room while this program waits for a processor.
    it.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)
    it.bind((name, 0))
    return it
far, out = opened("far"), opened("out")
print("ready", file=sys.stderr, flush=True)
numbers, held, late = [0, 0], None, collections.deque()
while True:
    ready = select.select([far, out], [], [], 0.001)[0]
    for it in ready:
        frame, about = it.recvfrom(9100)
        if about[2] == socket.PACKET_OUTGOING or b"weir" not in frame:
            continue
        side = int(it is out)
        kind = numbers[side] % (5 if side else 10)
        numbers[side] += 1
        if side and kind != 3:
            late.append((time.time() + 0.003, frame))
        if side or kind == 3:
            continue
        if kind == 7:
            held = frame
            continue
        out.send(frame)
        if kind == 5:
            out.send(frame)
        if kind == 8:
            out.send(held)
    while late and late[0][0] <= time.time():
        far.send(late.popleft()[1])
"#;

/// Arrivals at one end or both: packets of each port that arrived, again, and out of their own order; and those out of the order of all.
#[derive(Debug, Default, PartialEq)]
struct Arrived {
    ports: [[u64; 3]; 2],
    reordered: u64,
}

/// Counts captures of tcpdump, of frames that left in the order of their numbers, the odd ones by the second port.
fn counted(files: &[String]) -> Arrived {
    let read = |file: &String| parse_pcap(&std::fs::read(file).unwrap()).1;
    let mut all: Vec<Record> = files.iter().flat_map(read).collect();
    all.retain(|record| record.data.ends_with(b"weir"));
    all.sort_by_key(|record| record.time_ns);
    let mut arrived = Arrived::default();
    let mut before: Vec<u32> = Vec::new();
    for number in all.iter().map(number) {
        let port = number as usize % 2;
        let counts = &mut arrived.ports[port];
        if before.contains(&number) {
            counts[1] += 1;
            continue;
        }
        let mut later = before.iter().filter(|other| **other > number);
        arrived.reordered += u64::from(later.clone().next().is_some());
        counts[2] += u64::from(later.any(|other| *other as usize % 2 == port));
        counts[0] += 1;
        before.push(number);
    }
    arrived
}

/// Both directions of a device between two ports, which send and receive. tcpdump at both is the judge.
#[test]
fn packets_of_two_ports_have_one_order() {
    let test = "packets_of_two_ports_have_one_order";
    if !have(test, &["python3", "tcpdump"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    add_end(&net);
    let near = net.name("near");
    let moved = ["ip", "link", "set", "end", "netns", &near];
    net.inside("far", &moved).ok();
    net.inside("near", &["ip", "link", "set", "end", "up"]).ok();
    let temp = Temp::new();
    let mut bytes = pcapng_start(1);
    for number in 0..400_u32 {
        let mut frame = numbered(53 + number as u16 % 2, number, 20);
        frame.extend(b"weir");
        let ticks = 1_700_000_000_000_000 + u64::from(number) * 250;
        bytes.extend(pcapng_packet_at(ticks, frame.len() as u32, &frame));
    }
    let file = temp.file("in.pcapng", &bytes);
    let bridge = net.start_at("far", &["python3", "-c", BRIDGE], "ready");
    let files = ["near", "end"].map(|name| temp.at(&format!("{name}.pcap")));
    let judges = ["near", "end"].map(|name| {
        let file = temp.at(&format!("{name}.pcap"));
        // Else each packet takes the room of the largest one, and a burst finds none.
        let room = ["-s", "2000", "-B", "16384"];
        let words = ["tcpdump", "--immediate-mode", "--time-stamp-precision=nano"];
        let more = ["-Z", "root", "-Q", "in", "-U", "-i", name, "-w", &file];
        net.start(&[&words[..], &room, &more].concat(), "listening on")
    });
    let replay = |ports: [&str; 2], receivers: &[&str]| {
        let words = ["replay", &file, "--to", ports[0], "--to2", ports[1]];
        let more = ["--split-by", "dst port 54", "--as-is", "--json"];
        net.weir(&[&words[..], &more, receivers].concat())
    };
    let done = replay(["near", "end"], &["--receive", "end", "--receive2", "near"]);
    // tcpdump may be behind: records of 16 bytes and a frame, for what comes out of the bridge.
    for ((judge, file), arrived) in judges.into_iter().zip(&files).zip([160, 200]) {
        let len = 24 + arrived * (16 + 66);
        let written = || std::fs::metadata(file).map_or(0, |it| it.len());
        let is_whole = wait::within(Duration::from_secs(20), || written() >= len);
        let (written, judged) = (written(), judge.stop().err);
        let (out, err) = (done.text(), &done.err);
        assert!(is_whole, "{written} of {len} bytes; {judged}; {out} {err}");
    }
    bridge.stop();
    let answer = last_line(&done.ok());
    let expected = counted(&files);
    let of_port = |port: usize| {
        let port = &answer["streams"][port];
        ["received", "duplicated", "reordered"].map(|key| port[key].as_u64().unwrap())
    };
    let found = Arrived {
        ports: [0, 1].map(of_port),
        reordered: answer["reordered"].as_u64().unwrap(),
    };
    assert_eq!(found, expected, "{answer}");
    assert_eq!(expected.ports, [[180, 20, 20], [160, 0, 0]]);
    assert_eq!(counts(&answer)[..4], [400, 340, 60, 20], "{answer}");
    assert!(expected.reordered > 100, "{expected:?}");
    let across = expected.reordered - 20;
    assert_eq!(answer["reordered_across"], across, "{answer}");
    let ports = ["af_packet:near", "af_packet:end"];
    for (stream, name) in answer["streams"].as_array().unwrap().iter().zip(ports) {
        assert_eq!(
            (&stream["name"], &stream["sent"]),
            (&name.into(), &200.into())
        );
    }
    // One receiver for both.
    net.inside("near", &["ip", "link", "set", "lo", "up"]).ok();
    let answer = last_line(&replay(["lo", "lo"], &["--receive", "lo"]).ok());
    assert_eq!(counts(&answer), [400, 400, 0, 0, 0], "{answer}");
    for (receivers, why) in [
        (
            &["--receive", "near"][..],
            "packets leave by this interface",
        ),
        (
            &["--receive", "end", "--receive2", "end"],
            "packets leave by this",
        ),
    ] {
        let refused = replay(["near", "end"], receivers);
        assert_eq!(refused.code, Some(2), "{}", refused.err);
        assert!(refused.err.contains(why), "{}", refused.err);
    }
}

/// The relay lets 2000 packets/s through.
#[test]
fn the_highest_rate_is_found() {
    let test = "the_highest_rate_is_found";
    if !have(test, &["python3"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    add_end(&net);
    let relay = net.start_at("far", &["python3", "-c", RELAY, "0", "2000"], "ready");
    let end = format!("netns:{}/end", net.name("far"));
    let goal = "ndr,width=20%,initial=200ms,final=200ms,sum=200ms";
    let words = [
        "generate",
        "af_packet:near",
        "--profile",
        "64",
        "--rate",
        "6kpps",
    ];
    let more = ["--receive", &end, "--search", goal, "--json"];
    let done = net.weir(&[&words[..], &more].concat()).ok();
    relay.stop();
    schema::check(&done.text());
    let answer: Value = serde_json::from_str(done.text().trim()).expect("it is JSON");
    let found = &answer["goals"][0];
    let pps = |name: &str| found[name].as_f64().expect("it is known");
    let (lower, upper) = (pps("lower_pps"), pps("upper_pps"));
    // Another burst comes through in a trial; a busy relay loses some more.
    assert!((1000.0..2400.0).contains(&lower), "{answer}");
    assert!(lower < upper && upper <= lower / 0.79, "{answer}");
    assert_eq!(
        (&found["complete"], &found["name"]),
        (&true.into(), &goal.into())
    );
    let trials = answer["trials"].as_array().unwrap();
    assert!((3..12).contains(&trials.len()), "{answer}");
    let at_lower = trials
        .iter()
        .find(|trial| trial["pps"] == found["lower_pps"]);
    assert_eq!(at_lower.unwrap()["sent"], at_lower.unwrap()["received"]);
    assert_eq!(pps("throughput_pps"), lower);
}

#[test]
fn what_cannot_be_received_is_refused() {
    for (arguments, part) in [
        (
            &["null", "--profile", "64", "--receive", "lo"][..],
            "name a port that sends",
        ),
        (
            &["af_packet:lo", "--profile", "default", "--receive", "lo"],
            "has no streams",
        ),
        (
            &["af_packet:lo", "--profile", "64", "--receive", "nosuch"],
            "no such interface",
        ),
        (
            &["af_packet:lo", "--profile", "64", "--receive", "any"],
            "name the interface at which they arrive",
        ),
        (&["af_packet:lo", "--profile", "64", "--json"], "--receive"),
        (
            &[
                "af_packet:lo",
                "--profile",
                "64",
                "--receive",
                "lo",
                "--search",
                "fast",
            ],
            "is not a goal",
        ),
        (
            &[
                "af_packet:lo",
                "--profile",
                "64",
                "--receive",
                "lo",
                "--search",
                "ndr,width=0.5",
            ],
            "is not a share",
        ),
        (
            &[
                "af_packet:lo",
                "--profile",
                "64",
                "--receive",
                "lo",
                "--search",
                "--rate",
                "max",
            ],
            "name the highest one",
        ),
    ] {
        let done = weir([&["generate"], arguments].concat());
        assert_eq!(
            (done.code, done.text().as_str()),
            (Some(2), ""),
            "{arguments:?}: {}",
            done.err
        );
        assert!(done.err.contains(part), "{arguments:?}: {}", done.err);
    }
}

/// A link without a carrier takes each packet and drops it: the kernel's counter is the judge.
#[test]
fn what_a_sending_interface_drops_is_told() {
    let test = "what_a_sending_interface_drops_is_told";
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let file = temp.at("a.pcap");
    weir(["generate", &file, "--packets", "200", "--sizes", "100"]).ok();
    net.inside("far", &["ip", "link", "set", "far", "down"])
        .ok();
    let dropped = || sent_by_near(&net, "dropped");
    let port = "af_packet:near";
    let senders: [&[&str]; 3] = [
        &["generate", port, "--packets", "200", "--rate", "max"],
        &["replay", &file, "--to", "near", "--as-is", "--rate", "max"],
        &["filter", "", &file, "-w", port],
    ];
    for words in senders {
        let before = dropped();
        let done = net.weir(words).ok();
        let dropped = dropped() - before;
        assert_eq!(dropped, 200, "{words:?}: {}", done.err);
        let line = format!("the interface dropped {dropped} packets");
        assert!(done.err.contains(&line), "{words:?}: {}", done.err);
    }
}

/// What the kernel counts of packets that leave by `near`.
fn sent_by_near(net: &Net, what: &str) -> u64 {
    let told = net.inside("near", &["ip", "-s", "-j", "link", "show", "near"]);
    let told: Value = serde_json::from_slice(&told.ok().out).unwrap();
    told[0]["stats64"]["tx"][what].as_u64().unwrap()
}

#[test]
fn a_receiver_that_vanishes_is_told() {
    let test = "a_receiver_that_vanishes_is_told";
    let Some(net) = Net::new(test) else { return };
    add_end(&net);
    let end = format!("netns:{}/end", net.name("far"));
    let words = [
        "generate",
        "af_packet:near",
        "--profile",
        "64",
        "--rate",
        "1kpps",
        "--packets",
        "2000",
        "--receive",
        &end,
    ];
    let done = std::thread::scope(|scope| {
        let sender = scope.spawn(|| net.weir(&words));
        wait::until("100 packets to leave", || {
            sent_by_near(&net, "packets") > 100
        });
        net.inside("far", &["ip", "link", "del", "out"]).ok();
        sender.join().unwrap()
    });
    assert_eq!(done.code, Some(1), "{}", done.err);
    let line = "the capture ended before the sender";
    assert!(done.err.contains(line), "{}", done.err);
}

/// Nothing arrives, as there is no relay; the link of the other end is taken away, and given back.
#[test]
fn lost_packets_and_a_lost_link_are_told() {
    let test = "lost_packets_and_a_lost_link_are_told";
    let Some(net) = Net::new(test) else { return };
    add_end(&net);
    let (end, temp) = (format!("netns:{}/end", net.name("far")), Temp::new());
    let socket = temp.at("s.sock");
    let words = [
        env!("CARGO_BIN_EXE_weir"),
        "generate",
        "af_packet:near",
        "--profile",
        "imix",
        "--rate",
        "2kpps",
        "--packets",
        "100000",
        "--control",
        &socket,
        "--strict",
        "--json",
        "--receive",
        &end,
    ];
    let sender = net.start(&words, "packets leave by near");
    let set = |state| {
        net.inside("far", &["ip", "link", "set", "out", state]).ok();
    };
    set("down");
    let sender = sender.until(&format!("{end}: the link is down"));
    let ctl = |words: &[&str]| weir([&["ctl", "--control", &socket], words].concat()).ok();
    ctl(&["stop"]);
    let status: Value = serde_json::from_str(&ctl(&["status", "--json"]).text()).unwrap();
    let of_streams = |answer: &Value| {
        let streams = answer["streams"].as_array().unwrap().iter();
        streams.map(|it| it["sent"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(status["link_down"], true, "{status}");
    assert_eq!(status["sent"], of_streams(&status), "{status}");
    assert_eq!(status["under_way"], status["sent"], "{status}");
    set("up");
    let done = sender.until("the link is up again").stop();
    schema::check(&done.text());
    let answer: Value = serde_json::from_str(done.text().trim()).unwrap();
    let [sent, received, lost, ..] = counts(&answer);
    assert_eq!((received, lost), (0, sent), "{answer}");
    assert_eq!(of_streams(&answer), sent, "{answer}");
    assert_eq!(answer["link_down"]["times"], 1, "{answer}");
    assert_eq!(done.code, Some(1), "{}", done.err);
    for line in ["no packet arrived there", "--strict: "] {
        assert!(done.err.contains(line), "{line}: {}", done.err);
    }
}
