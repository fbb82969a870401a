//! `weir watch --attach`: viewers of a run in another process, the figures that they show, and what they cost the run.

use crate::capture::net::Net;
use crate::support::*;
use crate::watch::{Terminal, assert_given_back, can_make_terminals, here, line};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use weir_testkit::wait;

/// Frames to one port.
fn frames(count: u32) -> Vec<Vec<u8>> {
    (0..count).map(|number| numbered(53, number, 40)).collect()
}

/// A connection to a view socket, made by hand.
struct Raw(BufReader<UnixStream>);

impl Raw {
    fn new(socket: &str) -> Self {
        let stream = UnixStream::connect(socket).expect("the run listens");
        let patience = Some(Duration::from_secs(10));
        stream.set_read_timeout(patience).expect("it is a socket");
        Self(BufReader::new(stream))
    }

    fn send(&mut self, line: &str) -> Value {
        let sent = self.0.get_mut().write_all(format!("{line}\n").as_bytes());
        sent.expect("the run reads");
        self.read()
    }

    fn read(&mut self) -> Value {
        let mut line = String::new();
        self.0.read_line(&mut line).expect("the run answers");
        serde_json::from_str(&line).unwrap_or_else(|_| panic!("no JSON: {line:?}"))
    }

    /// Packets and bytes of all steps, and of the rows of a table in the last minute.
    fn figures(&mut self, table: &str) -> [u64; 4] {
        let request = json!({ "request": "view", "step_s": 60, "points": 9 });
        let view = &self.send(&request.to_string())["ok"];
        let sum = |rows: &Value, member: &str| -> u64 {
            let rows = rows.as_array().into_iter().flatten();
            rows.map(|row| row[member].as_u64().unwrap()).sum()
        };
        let rows = &view["tables"][table]["rows"];
        let all = &view["points"];
        [
            sum(all, "packets"),
            sum(all, "bytes"),
            sum(rows, "packets"),
            sum(rows, "bytes"),
        ]
    }
}

fn mode(path: &str) -> u32 {
    let about = std::fs::metadata(path).expect("it is there");
    about.permissions().mode() & 0o7777
}

/// The processes of screens that look at a socket.
fn viewers(socket: &str) -> Vec<String> {
    let found = tool(
        "pgrep",
        ["-f", &format!("^[^ ]*weir watch --attach {socket}")],
    );
    found.text().lines().map(str::to_owned).collect()
}

#[test]
fn viewers_show_what_was_sent_and_cost_no_packet() {
    let test = "viewers_show_what_was_sent_and_cost_no_packet";
    if !can_make_terminals(test) || !have(test, &["pgrep", "getent"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temps = [Temp::new(), Temp::new()];
    let socket = temps[0].at("view");
    let words = [
        "measure", "near", "--key", "host", "--key", "dport", "--view", &socket,
    ];
    let run = net.capture(&words).until("view socket: ");
    let has_group = tool("getent", ["group", "weir"]).code == Some(0);
    assert_eq!(mode(&socket), if has_group { 0o660 } else { 0o600 });
    let attach = format!("--attach {socket}");
    let mut screens = temps
        .each_ref()
        .map(|temp| Terminal::run(&line(temp, &attach), here));
    screens.iter().for_each(|screen| screen.until("near"));
    assert_eq!(net.send(&frames(300), 300), 300);
    screens.iter().for_each(|screen| screen.until("10.0.0."));
    // Each has its own table, time and rows.
    let [first, second] = &mut screens;
    first.press("tt\t\t\t\t\t\x1b[B\r");
    second.press("t/10.0.\r\x1b[B");
    first.until("(300 packets");
    second.until("rows /10.0.");
    second.until("> 10.0.");
    first.press("\x1b3");
    first.until("not measured: the run counts host, dport, and no service (--key)");
    second.press("4");
    second.until("not measured: the run looks at no dns (--health)");
    second.until("findings are not looked for");
    second.press("f");
    second.press("u");
    second.until("a viewer changes nothing");
    second.press("\x1bw");
    second.until("a viewer sees no packets");
    // A viewer that stopped reads nothing; the sender's figures are those of the others and of the run.
    let stopped = viewers(&socket);
    assert_eq!(stopped.len(), 2);
    tool("kill", ["-STOP", &stopped[0]]).ok();
    let mut raw = Raw::new(&socket);
    assert_eq!(net.send(&frames(20_000), 500), 20_000);
    let bytes = 20_300 * frames(1)[0].len() as u64;
    let all = [20_300, bytes, 20_300, bytes];
    let are_all = wait::within(Duration::from_secs(8), || raw.figures("dport") == all);
    assert!(are_all, "{:?}, not {all:?}", raw.figures("dport"));
    assert_eq!(Raw::new(&socket).figures("dport"), all);
    tool("kill", ["-CONT", &stopped[0]]).ok();
    assert_eq!(net.received("near", "near"), 20_300);
    let done = run.stop();
    assert!(
        done.err.contains("20 300 received, 20 300 measured"),
        "{}",
        done.err
    );
    assert!(done.err.contains(" 0 dropped"), "{}", done.err);
    assert!(std::fs::metadata(&socket).is_err(), "the socket is left");
    for (mut screen, temp) in screens.into_iter().zip(&temps) {
        screen.until("gone: ");
        screen.until("the run has ended");
        screen.press("q");
        assert_given_back(temp, &screen, "q");
        assert!(screen.text().contains("code=0"), "{}", screen.text());
    }
}

#[test]
fn a_view_socket_is_for_looking_alone() {
    let test = "a_view_socket_is_for_looking_alone";
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let (socket, control) = (temp.at("view"), temp.at("control"));
    let words = ["measure", "near", "--view", &socket, "--control", &control];
    let run = net.capture(&words).until("view socket: ");
    let refused = |request: &str, why: &str| {
        let answer = Raw::new(&socket).send(request);
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(error.contains(why), "{request}: {answer}");
    };
    refused(
        r#"{"request":"set","what":"filter","value":"udp"}"#,
        "set is not for a view socket",
    );
    refused(r#"{"request":"query"}"#, "packets need the control socket");
    refused("\u{1b}]0;owned\u{7}", "a request is a JSON object");
    refused(r#"{"request":"view","rows":1000000}"#, "up to 200");
    // The first half of a request, and its end.
    let mut half = UnixStream::connect(&socket).expect("the run listens");
    half.write_all(b"{\"request\":").expect("the run reads");
    half.shutdown(std::net::Shutdown::Write)
        .expect("it is open");
    let mut half = Raw(BufReader::new(half));
    assert!(
        half.read()["error"]
            .as_str()
            .is_some_and(|why| why.contains("no line end"))
    );
    // As many viewers as there may be, and one more.
    let mut all: Vec<Raw> = Vec::new();
    let are_all = wait::within(Duration::from_secs(8), || {
        // The places of the connections before are free once the run has noticed their ends.
        let mut raw = Raw::new(&socket);
        if raw.send(r#"{"request":"version"}"#)["ok"].is_object() {
            all.push(raw);
        }
        all.len() == 16
    });
    assert!(are_all, "{} viewers", all.len());
    let error = Raw::new(&socket).read()["error"].clone();
    assert!(
        error
            .as_str()
            .is_some_and(|why| why.starts_with("16 connections")),
        "{error}"
    );
    drop(all);
    // The path of another socket, and of a file.
    let file = temp.file("file", b"text");
    for (path, why) in [
        (&socket, "another process listens"),
        (&file, "is not a socket"),
    ] {
        let words = ["measure", "near", "--view", path, "--duration", "1s"];
        let other = net.weir(&words);
        assert_eq!(other.code, Some(2), "{}", other.err);
        assert!(other.err.contains(why), "{}", other.err);
    }
    assert_eq!(std::fs::read(&file).expect("it is there"), b"text");
    run.stop();
    let pcap = temp.file("a.pcap", &small_pcap(3));
    let file = weir(["measure", &pcap, "--view", &socket]);
    assert_eq!(file.code, Some(2));
    assert!(file.err.contains("add --window 1s"), "{}", file.err);
    let same = weir([
        "measure",
        &pcap,
        "--window",
        "1s",
        "--view",
        &control,
        "--control",
        &control,
    ]);
    assert_eq!(same.code, Some(2));
    assert!(same.err.contains("is the control socket"), "{}", same.err);
}

#[test]
fn a_recording_and_a_firewall_have_viewers_too() {
    let test = "a_recording_and_a_firewall_have_viewers_too";
    let Some(net) = Net::new(test) else { return };
    net.beyond();
    let temp = Temp::new();
    let (socket, kept) = (temp.at("view"), temp.at("kept"));
    let words = [
        "record", "near", &kept, "--ram", "32M", "--disk", "64M", "--view", &socket,
    ];
    let recorder = net.capture(&words).until("view socket: ");
    assert_eq!(net.send(&frames(300), 300), 300);
    let bytes = 300 * frames(1)[0].len() as u64;
    let all = [300, bytes, 300, bytes];
    let mut raw = Raw::new(&socket);
    let are_all = wait::within(Duration::from_secs(8), || raw.figures("service") == all);
    assert!(are_all, "{:?}, not {all:?}", raw.figures("service"));
    let done = recorder.stop();
    assert!(
        done.err.contains("300 received, 300 recorded, 0 dropped"),
        "{}",
        done.err
    );
    weir(["query", &kept, "--count"]).ok();
    // Of a firewall, viewers see what passes.
    let rules = temp.file("rules.txt", b"drop udp dport 54\npass\n");
    let control = temp.at("control");
    let weir = env!("CARGO_BIN_EXE_weir");
    let words = [
        weir,
        "firewall",
        "af_packet:near",
        "af_packet:out",
        "--rules",
        &rules,
        "--control",
        &control,
        "--view",
        &socket,
        "--json",
    ];
    let firewall = net.start(&words, "control socket").until("view socket: ");
    let others: Vec<Vec<u8>> = (300..400).map(|number| numbered(54, number, 40)).collect();
    assert_eq!(net.send(&[frames(300), others].concat(), 400), 400);
    let mut raw = Raw::new(&socket);
    let are_all = wait::within(Duration::from_secs(8), || raw.figures("service") == all);
    assert!(are_all, "{:?}, not {all:?}", raw.figures("service"));
    let done = firewall.stop();
    let answer: Value = serde_json::from_slice(&done.out).expect("an object");
    assert_eq!(net.received("beyond", "beyond"), 300);
    assert_eq!(
        (&answer["passed"], &answer["denied"]),
        (&json!(300), &json!(100))
    );
    assert_eq!(answer["fault"], Value::Null);
    assert!(std::fs::metadata(&socket).is_err(), "the socket is left");
}
