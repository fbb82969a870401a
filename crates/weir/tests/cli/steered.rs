//! `weir ctl` of senders: orders are in force when they are answered. tcpdump at the other end sees what leaves, and when.

use crate::capture::frames;
use crate::capture::net::{Capture, Net};
use crate::schema;
use crate::support::*;
use serde_json::Value;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};
use weir_testkit::wait;

/// A sender at the near end, and its socket.
struct Sender {
    net: Net,
    temp: Temp,
    socket: String,
    run: Option<Capture>,
}

impl Sender {
    fn new(test: &str) -> Option<Self> {
        if !have(test, &["tcpdump"]) {
            return None;
        }
        let (net, temp) = (Net::new(test)?, Temp::new());
        let socket = temp.at("control");
        Some(Self {
            net,
            temp,
            socket,
            run: None,
        })
    }

    /// Starts tcpdump at the far end, and the sender.
    fn start(&mut self, words: &[&str]) -> Capture {
        let out = self.temp.at("out.pcap");
        let judge = self.net.judge(&out);
        let weir = [
            env!("CARGO_BIN_EXE_weir"),
            words[0],
            "--control",
            &self.socket,
        ];
        let command = [&weir[..], &words[1..]].concat();
        self.run = Some(self.net.start(&command, "control socket"));
        judge
    }

    fn ctl(&self, words: &[&str]) -> Done {
        weir([&["ctl", "--control", &self.socket], words].concat())
    }

    fn status(&self) -> Value {
        let done = self.ctl(&["status", "--json"]).ok();
        schema::check(&done.text());
        serde_json::from_str(done.text().trim()).expect("it is JSON")
    }

    fn sent(&self) -> u64 {
        self.status()["sent"].as_u64().expect("a number")
    }

    /// The packets that tcpdump has written, once it has all that were sent. The sender is stopped.
    fn arrived(&self) -> Vec<Record> {
        let status = self.status();
        let count = |name: &str| status[name].as_u64().expect("a number");
        let len = 24 + 16 * count("sent") + count("bytes");
        let file = self.temp.at("out.pcap");
        wait::until("all packets", || {
            std::fs::metadata(&file).is_ok_and(|about| about.len() == len)
        });
        records(&file)
    }
}

fn ttl(record: &Record) -> u8 {
    record.data[22]
}

#[test]
fn generated_packets_are_stopped_started_and_changed() {
    let test = "generated_packets_are_stopped_started_and_changed";
    let Some(mut sender) = Sender::new(test) else {
        return;
    };
    let words = [
        "generate",
        "af_packet:near",
        "--profile",
        "64",
        "--field",
        "ipv4.ttl=5",
    ];
    // The second packet would leave after 20 s.
    let judge = sender.start(
        &[
            &words[..],
            &["--rate", "0.05pps", "--gaps", "even", "--forever"],
        ]
        .concat(),
    );
    assert_eq!(sender.status()["rate"], "0.05pps");
    // The packet that waits is of the new kind.
    sender.ctl(&["set", "field", "ipv4.ttl=9"]).ok();
    sender.ctl(&["set", "rate", "2kpps"]).ok();
    wait::until("some packets", || sender.sent() >= 300);
    let answer = sender.ctl(&["stop"]).ok();
    assert_eq!(answer.text(), "in force: change 3\n");
    let before = sender.arrived();
    let ttls: Vec<u8> = before.iter().map(ttl).collect();
    assert_eq!((ttls[0], ttls[1], ttls[ttls.len() - 1]), (5, 9, 9));
    assert!((300..3000).contains(&before.len()), "{}", before.len());
    // Nothing leaves, and what is ordered in the meantime is in force with the start.
    sender.ctl(&["set", "sizes", "100"]).ok();
    sender.ctl(&["set", "rate", "max"]).ok();
    let all = before.len() as u64;
    wait::throughout(Duration::from_millis(60), "nothing leaves", || {
        sender.sent() == all
    });
    let status = sender.status();
    assert_eq!(
        (&status["stopped"], &status["rate"]),
        (&true.into(), &"max".into())
    );
    // As many as tcpdump can write.
    sender.ctl(&["set", "rate", "3kpps"]).ok();
    sender.ctl(&["start"]).ok();
    wait::until("more packets", || sender.sent() > all);
    let refused = sender.ctl(&["set", "field", "tcp.dst=9"]);
    assert_eq!(refused.code, Some(1));
    assert!(refused.err.contains("no tcp"), "{}", refused.err);
    sender.ctl(&["stop"]).ok();
    let after = sender.arrived();
    let done = sender.run.take().unwrap().stop();
    assert_eq!(done.code, Some(0), "{}", done.err);
    judge.stop();
    assert!(after.len() > before.len());
    let others = after[before.len()..]
        .iter()
        .filter(|it| it.data.len() != 100 || ttl(it) != 9);
    assert_eq!(others.count(), 0);
}

#[test]
fn a_replay_goes_on_at_another_speed_and_ends_with_its_holder() {
    let test = "a_replay_goes_on_at_another_speed_and_ends_with_its_holder";
    let Some(mut sender) = Sender::new(test) else {
        return;
    };
    let mut bytes = pcapng_start(1);
    for (i, frame) in frames(40).iter().enumerate() {
        // A gap of a minute after 20 packets.
        let ticks = 1_700_000_000_000_000 + i as u64 / 20 * 60_000_000;
        bytes.extend(pcapng_packet_at(ticks, frame.len() as u32, frame));
    }
    let file = sender.temp.file("in.pcapng", &bytes);
    let judge = sender.start(&["replay", &file, "--to", "near", "--loop", "1000"]);
    wait::until("the first packets", || sender.status()["sent"] == 20);
    let refused = sender.ctl(&["set", "sizes", "imix"]);
    assert!(
        refused.err.contains("of a replay cannot be set"),
        "{}",
        refused.err
    );
    sender.ctl(&["stop"]).ok();
    sender.ctl(&["set", "speed", "1000x"]).ok();
    assert_eq!(sender.status()["sent"], 20);
    sender.ctl(&["start"]).ok();
    wait::until("a further round", || {
        sender.status()["sent"]
            .as_u64()
            .is_some_and(|sent| sent >= 60)
    });
    // A peer that asks and never reads delays nothing.
    let mut deaf = UnixStream::connect(&sender.socket).expect("it listens");
    let _ = deaf.set_write_timeout(Some(Duration::from_millis(200)));
    while deaf
        .write_all(&b"{\"request\":\"status\"}\n".repeat(4096))
        .is_ok()
    {}
    sender.ctl(&["set", "rate", "1kpps"]).ok();
    // The connection that holds the replay is lost.
    let mut holder = UnixStream::connect(&sender.socket).expect("it listens");
    holder
        .write_all(b"{\"request\":\"hold\"}\n")
        .expect("it reads");
    let mut line = String::new();
    BufReader::new(&holder)
        .read_line(&mut line)
        .expect("it answers");
    assert!(line.starts_with("{\"ok\":"), "{line}");
    assert!(!sender.run.as_mut().unwrap().has_ended());
    let lost = Instant::now();
    drop(holder);
    let done = sender.run.take().unwrap().done();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert!(
        lost.elapsed() < Duration::from_secs(5),
        "{:?}",
        lost.elapsed()
    );
    assert!(
        done.err
            .contains("the connection that held the sender was lost"),
        "{}",
        done.err
    );
    judge.stop();
}

/// The kernel counts what arrives by each of two ports. The packets of a stopped one are left out, and the other goes on.
#[test]
fn a_port_of_two_is_stopped_and_started_alone() {
    let test = "a_port_of_two_is_stopped_and_started_alone";
    let Some(mut sender) = Sender::new(test) else {
        return;
    };
    sender.net.second_cable();
    // Every other packet is for the second port, from the first on.
    let file = sender.temp.file("in.pcap", &{
        let records = frames(100).into_iter().map(|it| pcap_record(1, &it));
        [pcap_header(65_535, 1)]
            .into_iter()
            .chain(records)
            .collect::<Vec<_>>()
            .concat()
    });
    let words = [
        "replay", &file, "--to", "near", "--to2", "one", "--loop", "--rate", "2kpps",
    ];
    let judge = sender.start(&[&words[..], &["--split-by", "udp port 53"]].concat());
    let port =
        |sender: &Sender, place: usize, what: &str| sender.status()["ports"][place][what].clone();
    let sent =
        |sender: &Sender, place: usize| port(sender, place, "sent").as_u64().expect("a number");
    let (first, second) = (
        |sender: &Sender| sender.net.received("far", "far"),
        |sender: &Sender| sender.net.received("near", "two"),
    );
    wait::until("packets", || sent(&sender, 1) > 20);
    assert_eq!(
        sender.ctl(&["stop", "one"]).ok().text(),
        "in force: change 1\n"
    );
    let before = sent(&sender, 1);
    wait::until("all of the port", || second(&sender) == before);
    let others = first(&sender);
    wait::until("packets of the other", || first(&sender) > others + 100);
    assert_eq!((second(&sender), sent(&sender, 1)), (before, before));
    assert_eq!(port(&sender, 1, "stopped"), true);
    assert_eq!(port(&sender, 0, "stopped"), false);
    assert!(port(&sender, 1, "left_out").as_u64() >= Some(100));
    for (words, part) in [
        (
            &["stop", "two"][..],
            "'two' is none of the ports: name af_packet:near, af_packet:one or a number",
        ),
        (
            &["set", "rate", "5kpps", "one"],
            "one global order, and so one rate",
        ),
    ] {
        let refused = sender.ctl(words);
        assert_eq!(refused.code, Some(1), "{}", refused.err);
        assert!(refused.err.contains(part), "{}", refused.err);
    }
    sender.ctl(&["start", "2"]).ok();
    wait::until("packets of both", || second(&sender) > before + 20);
    sender.ctl(&["stop"]).ok();
    let status = sender.ctl(&["status"]).ok().text();
    assert!(status.contains("\n  af_packet:one: "), "{status}");
    let left_out = port(&sender, 1, "left_out").as_u64().expect("a number");
    let sent = [sent(&sender, 0), sent(&sender, 1)];
    wait::until("all packets", || [first(&sender), second(&sender)] == sent);
    let done = sender.run.take().unwrap().stop();
    assert_eq!(done.code, Some(0), "{}", done.err);
    judge.stop();
    let more = (sent[1] + left_out) - sent[0];
    assert!(more <= 1, "{sent:?}, {left_out}");
    // Digits are in groups of three.
    let bare = |text: &str| text.replace(' ', "");
    let words = format!(", {left_out} packets of af_packet:one left out while it was stopped");
    assert!(bare(&done.err).contains(&bare(&words)), "{}", done.err);
}

#[test]
fn senders_without_orders_say_why() {
    let temp = Temp::new();
    let socket = temp.at("control");
    for (words, part) in [
        (
            &["generate", "x.pcap", "--control", &socket][..],
            "name a port that sends",
        ),
        (
            &[
                "generate",
                "null",
                "--profile",
                "64",
                "--workers",
                "2",
                "--rate",
                "max",
                "--control",
                &socket,
            ],
            "leave --workers out",
        ),
        (
            &["ctl", "--control", &socket, "set", "rate", "fast"],
            "is not a rate",
        ),
        (&["ctl", "--control", &socket, "set", "sizes", "3"], "SIZES"),
        (&["ctl", "--control", &socket, "set", "rate"], "name a rate"),
        (
            &["ctl", "--control", &socket, "hold"],
            "no run of weir listens there",
        ),
    ] {
        let done = weir(words);
        assert_eq!(done.code, Some(2), "{words:?}: {}", done.err);
        assert!(done.err.contains(part), "{words:?}: {}", done.err);
    }
}
