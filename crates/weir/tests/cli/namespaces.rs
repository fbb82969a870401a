//! Interfaces of other network namespaces, captured from outside. A sender inside counts its frames, and tcpdump inside judges.

use crate::capture::frames;
use crate::capture::net::{Capture, Net};
use crate::support::*;
use std::process::Command;

/// Starts `weir` outside of the namespaces of a test, and returns once it captures.
fn outside(net: &Net, arguments: &[&str]) -> Capture {
    let mut command = weir_command();
    command.args(arguments).env("STATE_DIRECTORY", net.state());
    Capture::begin(&mut command, "AF_PACKET")
}

/// A process at the near end, ended at the end of the test.
struct Sleeper(std::process::Child);

impl Sleeper {
    fn new(net: &Net) -> Self {
        let mut command: Command = net.command("near", &["sleep", "100"]);
        Self(command.spawn().expect("ip can be run"))
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn data(path: &str) -> Vec<Vec<u8>> {
    records(path)
        .into_iter()
        .map(|record| record.data)
        .collect()
}

#[test]
fn an_interface_of_another_namespace_is_captured_from_outside() {
    let test = "an_interface_of_another_namespace_is_captured_from_outside";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let sleeper = Sleeper::new(&net);
    let (named, by_process) = (
        format!("netns:{}/near", net.name("near")),
        format!("pid:{}/near", sleeper.0.id()),
    );
    let [theirs, ours, split] =
        ["theirs.pcap", "ours.pcap", "split.pcap"].map(|name| temp.at(name));
    let directory = temp.at("record");
    let judge = net.start(
        &[
            "tcpdump",
            "--immediate-mode",
            // Else each packet takes the room of the largest one, and a burst finds none.
            "-s",
            "4096",
            "-Z",
            "root",
            "-i",
            "near",
            "-U",
            "-w",
            &theirs,
        ],
        "listening on",
    );
    let filter = outside(
        &net,
        &["filter", "udp port 53", &named, "-w", &ours, "--stats"],
    );
    let split_to = format!("{split}=udp port 80");
    let measure = outside(
        &net,
        &[
            "measure",
            &by_process,
            "--json",
            "--window",
            "10s",
            "--split",
            &split_to,
        ],
    );
    let record = outside(
        &net,
        &[
            "record",
            &format!("af_packet:{named}"),
            &directory,
            "--disk",
            "8M",
            "--ram",
            "8M",
        ],
    );
    // The capture has begun: the process is needed no more.
    drop(sleeper);
    let sent = frames(100);
    assert_eq!(net.send(&sent, 0), 100);
    let [filter, measure, record] = [filter, measure, record].map(|run| run.stop().ok());
    // tcpdump drops what it has not yet written when it is stopped: a file header, then a header before each packet.
    let whole = 24
        + sent
            .iter()
            .map(|frame| 16 + frame.len() as u64)
            .sum::<u64>();
    weir_testkit::wait::until("tcpdump's file", || {
        std::fs::metadata(&theirs).is_ok_and(|file| file.len() >= whole)
    });
    judge.stop();
    assert_eq!(data(&theirs), sent);
    let of_port = |port: u16| {
        let frames = sent
            .iter()
            .filter(|frame| frame[36..38] == port.to_be_bytes());
        frames.cloned().collect::<Vec<_>>()
    };
    assert_eq!(data(&ours), of_port(53));
    assert_eq!(data(&split), of_port(80));
    assert!(
        filter.err.contains(&format!("{named}: AF_PACKET")),
        "{}",
        filter.err
    );
    assert!(
        measure.text().contains("\"received\":100,"),
        "{}",
        measure.text()
    );
    assert!(record.err.contains("100"), "{}", record.err);
    let kept = weir(["query", &directory, "--count"]).ok();
    assert_eq!(kept.count(), 100);
}

/// A frame outside of the namespace is none of the capture's, although the interface there has the same name.
#[test]
fn names_are_those_of_the_namespace() {
    let test = "names_are_those_of_the_namespace";
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let out = temp.at("out.pcapng");
    // `lo` is in each namespace, and here it has traffic of its own.
    let interface = format!("netns:{}/near", net.name("near"));
    let capture = outside(&net, &["filter", "", &interface, "-w", &out]);
    net.inside("near", &["ip", "link", "set", "near", "down"])
        .ok();
    net.inside("near", &["ip", "link", "set", "near", "up"])
        .ok();
    let sent = frames(10);
    weir_testkit::wait::until("the cable", || {
        let state = net
            .inside("far", &["cat", "/sys/class/net/far/carrier"])
            .text();
        state.trim() == "1"
    });
    assert_eq!(net.send(&sent, 0), 10);
    let done = capture.stop().ok();
    assert!(done.err.contains("10 received, 10 matched"), "{}", done.err);
    assert!(
        done.err
            .contains(&format!("weir: {interface}: it was down once meanwhile")),
        "{}",
        done.err
    );
    let bytes = std::fs::read(&out).unwrap();
    let has = |text: &[u8]| bytes.windows(text.len()).any(|part| part == text);
    assert!(
        has(b"near") && !has(b"netns:"),
        "the file has the name there"
    );
    // Waiting looks into the namespace too.
    net.inside("near", &["ip", "link", "set", "near", "down"])
        .ok();
    let refused = weir(["filter", "", &interface, "--count"]);
    let words = format!(
        "weir: {interface}: the interface is down: sudo ip netns exec {} ip link set near up; --wait waits for it\n",
        net.name("near")
    );
    assert_eq!((refused.code, refused.err), (Some(2), words));
    let mut command = weir_command();
    command.args(["filter", "", &interface, "--count", "--wait", "-c", "1"]);
    let waiting = Capture::begin(&mut command, "waiting until it is there and up");
    net.inside("near", &["ip", "link", "set", "near", "up"])
        .ok();
    let waiting = waiting.until("AF_PACKET");
    weir_testkit::wait::until("the cable", || {
        let state = net
            .inside("far", &["cat", "/sys/class/net/far/carrier"])
            .text();
        state.trim() == "1"
    });
    assert_eq!(net.send(&sent, 0), 10);
    assert_eq!(waiting.done().ok().count(), 1);
}

#[test]
fn what_cannot_be_entered_is_one_line() {
    let temp = Temp::new();
    let out = temp.at("out.pcap");
    let form =
        "an interface of another network namespace is netns:NAME/INTERFACE or pid:NUMBER/INTERFACE";
    for (source, why) in [
        (
            "netns:weir-none/eth0",
            "there is no network namespace weir-none: ip netns lists those there are",
        ),
        ("pid:4294967295/eth0", "there is no process 4294967295"),
        ("netns:weir-none", form),
        ("pid:one/eth0", form),
        ("af_xdp:netns:/eth0", form),
        (
            "pid:1/any",
            "name one interface of another network namespace: any has the names of this one",
        ),
    ] {
        for command in [
            &["filter", "", source, "--count"][..],
            &["measure", source],
            &["record", source, &out],
        ] {
            let refused = weir(command);
            assert_eq!(refused.code, Some(2), "{}", refused.err);
            let line = format!("weir: {source}: {why}\n");
            assert!(refused.err.ends_with(&line), "{}", refused.err);
        }
    }
    let rules = temp.file("rules.txt", b"default pass\n");
    let forwarded = weir(["firewall", "netns:weir-none/eth0", &out, "--rules", &rules]);
    assert_eq!(forwarded.code, Some(2));
    assert!(
        forwarded
            .err
            .contains("between interfaces of one network namespace"),
        "{}",
        forwarded.err
    );
}

/// Without the right to enter, weir names it.
#[test]
fn rights_are_named() {
    let test = "rights_are_named";
    if !have(test, &["setpriv"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let interface = format!("netns:{}/near", net.name("near"));
    let weir = env!("CARGO_BIN_EXE_weir");
    let words = [
        "--bounding-set",
        "-all,+net_raw",
        "--inh-caps",
        "-all",
        weir,
        "filter",
        "",
        &interface,
        "--count",
    ];
    let refused = tool("setpriv", words);
    if refused.err.starts_with("setpriv") {
        return skipped(test, refused.err.trim());
    }
    let line = format!(
        "weir: {interface}: entering network namespace {} needs the capability CAP_SYS_ADMIN: run weir as root\n",
        net.name("near")
    );
    assert_eq!((refused.code, refused.err), (Some(2), line));
}
