//! Round trips between two hosts: `weir generate --round-trip` and `--reflect`, each against a program that knows nothing of weir, and
//! against each other.

use crate::capture::net::Net;
use crate::received::{counts, last_line};
use serde_json::Value;

/// Places in frames of Ethernet, IPv4 and UDP, and the number of a run.
const COMMON: &str = r#"
import json, select, socket, struct, sys, time
def opened(name):
    it = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
    # SO_RCVBUFFORCE: all packets of a test find room while this program waits for a processor.
    it.setsockopt(socket.SOL_SOCKET, 33, 16 << 20)
    it.bind((name, 0))
    return it
def run_number(name):
    hash = 0xcbf29ce484222325
    for byte in name.encode():
        hash = (hash ^ byte) * 0x100000001b3 % (1 << 64)
    return hash
def sums_to_ones(frame):
    len = struct.unpack("!H", frame[38:40])[0]
    covered = frame[26:34] + struct.pack("!HH", 17, len) + frame[34:34 + len] + b"\0" * (len % 2)
    sum = 0
    for word in struct.unpack("!%dH" % (len_of(covered) // 2), covered):
        sum += word
    while sum > 0xffff:
        sum = (sum & 0xffff) + (sum >> 16)
    return sum == 0xffff
len_of = len
"#;

/// Returns frames, with a clock that is 5 s ahead, and set once if so asked. The way there takes 2 ms more than the cable, and back 6 ms. Of
/// ten frames, one is lost.
const REFLECTOR: &str = r#"
is_set = sys.argv[1] == "set"
far, number, queue = opened("far"), 0, []
print("ready", file=sys.stderr, flush=True)
while True:
    if select.select([far], [], [], 0.0005)[0]:
        frame, about = far.recvfrom(9100)
        now = time.time_ns()
        if about[2] == socket.PACKET_OUTGOING or frame[42:46] != b"weir":
            continue
        run, = struct.unpack("!Q", frame[66:74])
        assert run == run_number("lab") and sums_to_ones(frame)
        number += 1
        if number % 10 == 3:
            continue
        arrived = now + 2_000_000 + 5_000_000_000
        if is_set and number > 50:
            arrived += 1_000_000_000
        back = bytearray(frame)
        back[0:6], back[6:12], back[26:30], back[30:34] = frame[6:12], frame[0:6], frame[30:34], frame[26:30]
        back[34:36], back[36:38], back[40:42] = frame[36:38], frame[34:36], b"\0\0"
        back[42:46] = b"riew"
        back[74:90] = struct.pack("!qq", arrived, arrived + 1_000_000)
        queue.append((now + 9_000_000, bytes(back)))
    while queue and queue[0][0] <= time.time_ns():
        far.send(queue.pop(0)[1])
"#;

/// Sends frames that go back, and others. Prints those that came back as the numbers of what was sent.
const SENDER: &str = r#"
far = opened("far")
run = run_number("lab")
def frame(number, source=b"\x0a\0\0\1", to=b"\2\0\0\0\0\2", begin=b"weir", of=run, sum=True, fill=20):
    payload = begin + struct.pack("!IQqQqq", 0, number, time.time_ns(), of, 0, 0) + bytes(fill)
    udp = struct.pack("!HHHH", 4000, 9, 8 + len(payload), 0) + payload
    ip = struct.pack("!BBHHHBBH", 0x45, 0, 20 + len(udp), number, 0, 64, 17, 0) + source + b"\x0a\0\0\2"
    made = bytearray(to + b"\2\0\0\0\0\1\x08\0" + ip + udp)
    if sum:
        for high in range(256):
            for low in range(256):
                made[40:42] = bytes([high, low])
                if sums_to_ones(made):
                    return bytes(made)
    return bytes(made)
good = [frame(1), frame(2, sum=False), frame(3, fill=500), frame(4, fill=0)]
bad = [frame(11, source=b"\x08\x08\x08\x08", sum=False), frame(12, to=b"\3\0\0\0\0\2", sum=False), frame(13, begin=b"riew", sum=False),
    frame(14, of=run + 1, sum=False), frame(15, sum=False)[:80], frame(16, source=b"\xe0\0\0\1", sum=False)]
begin = time.time_ns()
for it in bad + good:
    far.send(it)
back = []
while len(back) < len(good):
    frame, about = far.recvfrom(9100)
    if about[2] != socket.PACKET_OUTGOING:
        back.append(frame)
end = time.time_ns()
for it in back:
    number, = struct.unpack("!H", it[18:20])
    sent = good[number - 1]
    arrived, left = struct.unpack("!qq", it[74:90])
    same = (it[0:6], it[6:12], it[26:30], it[30:34], it[34:36], it[36:38]) == (
        sent[6:12], sent[0:6], sent[30:34], sent[26:30], sent[36:38], sent[34:36])
    whole = (it[12:26], it[38:40], it[42:46], it[46:74], it[90:]) == (sent[12:26], sent[38:40], b"riew", sent[46:74], sent[90:])
    right = it[40:42] == b"\0\0" if number == 2 else sums_to_ones(it)
    print(number, same and whole and right and begin <= arrived <= left <= end)
"#;

fn script(text: &str) -> String {
    [COMMON, text].concat()
}

/// The answer of a run whose packets a reflector in Python returns.
fn answered_by(net: &Net, reflector: &str) -> Value {
    let words = ["python3", "-c", &script(REFLECTOR), reflector];
    let reflector = net.start_at("far", &words, "ready");
    let answer = round_trip(net);
    reflector.stop();
    assert_eq!(counts(&answer)[..3], [100, 90, 10], "{answer}");
    answer
}

/// Sends a hundred packets, and receives them.
fn round_trip(net: &Net) -> Value {
    let words = ["generate", "af_packet:near", "--profile", "64"];
    let more = ["--packets", "100", "--rate", "2kpps", "--receive", "near"];
    let done = net.weir(&[&words[..], &more, &["--round-trip", "lab", "--json"]].concat());
    last_line(&done.ok())
}

#[test]
fn the_clock_of_the_other_end_lies_within_its_error() {
    let Some(net) = Net::new("the_clock_of_the_other_end_lies_within_its_error") else {
        return;
    };
    let answer = answered_by(&net, "as-it-is");
    let number = |value: &Value| value.as_i64().unwrap();
    let (ways, offset) = (&answer["ways"], &answer["ways"]["offset_ns"]);
    let error = number(&ways["error_ns"]);
    // Half of the ways that are planted, at least.
    assert!(error >= 4_000_000, "{answer}");
    assert!(number(&offset["min"]) - error <= 5_000_000_000, "{answer}");
    assert!(number(&offset["max"]) + error >= 5_000_000_000, "{answer}");
    // What is told of the time without the 1 ms at the other end, to the thousandth.
    let p50 = |value: &Value| number(&value["p50"]);
    assert!(p50(&answer["delay_ns"]) >= 7_990_000, "{answer}");
    let sum = p50(&ways["there_ns"]) + p50(&ways["back_ns"]);
    assert!(sum >= 7_980_000, "{answer}");
    let answer = answered_by(&net, "set");
    assert!(answer["ways"].is_null(), "{answer}");
    assert!(p50(&answer["delay_ns"]) >= 7_990_000, "{answer}");
}

#[test]
fn only_frames_of_the_run_go_back_once() {
    let Some(net) = Net::new("only_frames_of_the_run_go_back_once") else {
        return;
    };
    // The run ends by a signal, or by its number of packets.
    for (most, told) in [
        ("5", "4 returned, 6 other packets, 0 refused, 0 dropped"),
        ("4", "4 returned, "),
    ] {
        let words = ["generate", "af_packet:near", "--reflect", "lab"];
        let weir = [
            &[env!("CARGO_BIN_EXE_weir")],
            &words[..],
            &["--packets", most],
        ]
        .concat();
        let said = format!("back to their senders, as they come, {most} packets");
        let reflector = net.start(&weir, &said);
        let sent = net.inside("far", &["python3", "-c", &script(SENDER)]).ok();
        let mut lines: Vec<String> = sent.text().lines().map(str::to_owned).collect();
        lines.sort();
        assert_eq!(lines, ["1 True", "2 True", "3 True", "4 True"]);
        let done = reflector.stop().ok();
        assert!(done.err.contains(told), "{}", done.err);
    }
    // The kernel is the judge of how many went back.
    assert_eq!(net.received("far", "far"), 8);
    let refused = net.weir(&[
        "generate",
        "af_packet:near",
        "--profile",
        "mwn",
        "--receive",
        "near",
        "--round-trip",
        "lab",
    ]);
    assert!(
        refused.code == Some(2) && refused.err.contains("has no UDP"),
        "{}",
        refused.err
    );
    let refused = net.weir(&["generate", "null", "--reflect", "lab"]);
    assert_eq!(refused.code, Some(2), "{}", refused.err);
}

#[test]
fn both_ends_of_a_round_trip_agree() {
    let Some(net) = Net::new("both_ends_of_a_round_trip_agree") else {
        return;
    };
    let words = ["generate", "af_packet:far", "--reflect", "lab"];
    let weir = [&[env!("CARGO_BIN_EXE_weir")], &words[..]].concat();
    let reflector = net.start_at(
        "far",
        &weir,
        "back to their senders, as they come, for 1 min",
    );
    let answer = round_trip(&net);
    let done = reflector.stop().ok();
    assert_eq!(counts(&answer), [100, 100, 0, 0, 0], "{answer}");
    assert!(
        done.err.contains("100 returned, 0 other packets"),
        "{}",
        done.err
    );
    let number = |value: &Value| value.as_i64().unwrap();
    let (offset, error) = (
        &answer["ways"]["offset_ns"],
        number(&answer["ways"]["error_ns"]),
    );
    // Both have one clock.
    assert!(number(&offset["min"]) <= error, "{answer}");
    assert!(number(&offset["max"]) >= -error, "{answer}");
}
