//! Interfaces: those that go and come back, several at once, directions, and packets that several of them show.

use super::*;

#[test]
fn an_interface_that_is_removed_ends_the_capture() {
    let Some(net) = Net::new("an_interface_that_is_removed_ends_the_capture") else {
        return;
    };
    let temp = Temp::new();
    let (sent, out) = (frames(1000), temp.at("kept.pcap"));
    let capture = net.capture(&["filter", "", "near", "-w", &out, "--stats"]);
    let measure = net.capture(&["measure", "near", "--json", "--workers", "3"]);
    assert_eq!(net.send(&sent, 0), 1000);
    let capture = capture.until_received("near", 1000);
    let measure = measure.until_received("near", 1000);
    net.inside("near", &["ip", "link", "del", "near"]).ok();
    let done = capture.done();
    assert_eq!(done.code, Some(1));
    let line = "near: the interface is gone; 1000 packets before it were delivered";
    let told = |done: &Done| {
        done.err
            .lines()
            .filter(|line| line.starts_with("weir: "))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(told(&done), [format!("weir: {line}")]);
    assert_eq!(account(&done), [1000, 1000, 0, 0, 0]);
    assert!(written(&out) == sent);
    let done = measure.done();
    assert_eq!(done.code, Some(1));
    assert_eq!(objects(&done)[0]["passed"], 1000);
    assert_eq!(
        told(&done),
        [format!("weir: {line}")],
        "its workers share it"
    );
    assert_eq!(objects(&done)[0]["fault"], line);
}

#[test]
fn a_removed_interface_of_several_queues_is_told_of_once() {
    let xdp = ["--xdp-mode", "generic", "--ring", "1M"];
    for others in [&[][..], &["one"]] {
        let Some(net) = Net::new("a_removed_interface_of_several_queues_is_told_of_once") else {
            return;
        };
        net.two_queues();
        net.second_cable();
        let sources = [&["af_xdp:near"], others].concat();
        let start = |arguments: &[&str]| {
            let command = [&[env!("CARGO_BIN_EXE_weir")], arguments, &sources, &xdp].concat();
            let ready = if others.is_empty() {
                "does not get what is captured"
            } else {
                "one: AF_PACKET"
            };
            net.start(&command, ready)
        };
        let filter = start(&["filter", "", "--count", "--json"]);
        let queues = net
            .inside("near", &["ip", "-d", "link", "show", "near"])
            .ok()
            .text();
        assert!(queues.contains("numrxqueues 2"), "{queues}");
        net.inside("near", &["ip", "link", "del", "near"]).ok();
        let line = "near: the interface is gone; no packet was delivered";
        let mut lines = vec![format!("weir: {line}")];
        let filter = match others {
            [] => filter,
            _ => {
                lines.insert(
                    0,
                    "weir: near: the interface is gone; the others go on".to_owned(),
                );
                let filter = filter.until(&lines[0]);
                filter.signal("-INT");
                filter
            }
        };
        let done = filter.done();
        assert_eq!(done.code, Some(1), "{}", done.err);
        let told: Vec<_> = done
            .err
            .lines()
            .filter(|line| line.starts_with("weir: "))
            .collect();
        assert_eq!(told, lines);
        assert_eq!(objects(&done)[0]["fault"], line);
    }
}

#[test]
fn an_interface_that_goes_down_and_comes_back_is_survived() {
    let Some(net) = Net::new("an_interface_that_goes_down_and_comes_back_is_survived") else {
        return;
    };
    let temp = Temp::new();
    let (sent, out) = (frames(2000), temp.at("kept.pcap"));
    let capture = net.capture(&["filter", "", "near", "-w", &out, "--stats"]);
    let measure = net.capture(&["measure", "near", "--json"]);
    assert_eq!(net.send(&sent[..1000], 0), 1000);
    let capture = capture.until_received("near", 1000);
    let measure = measure.until_received("near", 1000);
    net.inside("near", &["ip", "link", "set", "near", "down"])
        .ok();
    let refused = net.weir(&["filter", "", "near", "--count"]);
    assert_eq!(refused.code, Some(2));
    let line = "weir: near: the interface is down: sudo ip link set near up; --wait waits for it\n";
    assert_eq!(refused.err, line);
    net.inside("near", &["ip", "link", "set", "near", "up"])
        .ok();
    wait::until("the cable", || {
        let state = net.inside("far", &["cat", "/sys/class/net/far/operstate"]);
        state.text().trim() == "up"
    });
    assert_eq!(net.send(&sent[1000..], 0), 1000);
    let done = capture.stop().ok();
    assert_eq!(account(&done), [2000, 2000, 0, 0, 0]);
    assert!(
        done.err.contains("near: it was down once meanwhile"),
        "{}",
        done.err
    );
    assert!(written(&out) == sent);
    assert_eq!(objects(&measure.stop().ok())[0]["passed"], 2000);
}

#[test]
fn what_is_waited_for_is_captured_once_it_is_there() {
    let Some(net) = Net::new("what_is_waited_for_is_captured_once_it_is_there") else {
        return;
    };
    let capture = net.start(
        &[
            env!("CARGO_BIN_EXE_weir"),
            "filter",
            "",
            "af_packet:two",
            "--wait",
            "--count",
        ],
        "waiting",
    );
    net.second_cable();
    let capture = capture.until("AF_PACKET");
    assert_eq!(net.send_on("near", "one", &frames(500), 0), 500);
    assert_eq!(capture.stop().ok().count(), 500);
    // An interrupt ends the wait too.
    let waits = net.start(
        &[
            env!("CARGO_BIN_EXE_weir"),
            "measure",
            "af_packet:three",
            "--wait",
        ],
        "waiting",
    );
    waits.stop().ok();
}

#[test]
fn several_interfaces_come_by_time() {
    let Some(net) = Net::new("several_interfaces_come_by_time") else {
        return;
    };
    net.second_cable();
    let temp = Temp::new();
    let (sent, out) = (frames(3000), temp.at("both.pcapng"));
    let capture = net
        .capture(&["filter", "", "near", "two", "-w", &out, "--stats"])
        .until("two: AF_PACKET");
    let measure = net.capture(&[
        "measure", "near", "two", "--json", "--window", "100ms", "--sketch", "exact",
    ]);
    let some = net
        .capture(&[
            "filter", "", "two", "near", "-c", "1500", "--count", "--stats",
        ])
        .until("near: AF_PACKET");
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(net.send_on("near", "one", &sent[..1500], 100), 1500));
        assert_eq!(net.send(&sent[1500..], 100), 1500);
    });
    let measured = measure.stop().ok();
    let done = capture.stop().ok();
    assert_eq!(account(&done), [3000, 3000, 0, 0, 0]);
    let all = records(&out);
    assert!(all.windows(2).all(|two| two[0].time_ns <= two[1].time_ns));
    let mut found: Vec<&[u8]> = all.iter().map(|record| &record.data[..]).collect();
    let mut expected: Vec<&[u8]> = sent.iter().map(|frame| &frame[..]).collect();
    found.sort_unstable();
    expected.sort_unstable();
    assert!(found == expected);
    let about = weir(["info", &out]).ok().text();
    assert!(about.contains("near") && about.contains("two"), "{about}");

    let objects = objects(&measured);
    let (total, windows) = objects.split_last().expect("a summary");
    assert_eq!(
        (&total["received"], &total["passed"]),
        (&3000.into(), &3000.into())
    );
    assert_eq!(
        windows
            .iter()
            .map(|window| window["passed"].as_u64().unwrap())
            .sum::<u64>(),
        3000
    );
    let done = some.done().ok();
    assert_eq!(done.count(), 1500);
    let [received, passed, filtered, ..] = account(&done);
    assert_eq!((received, passed, filtered), (1500, 1500, 0));
}

#[test]
fn directions_and_all_interfaces() {
    let Some(net) = Net::new("directions_and_all_interfaces") else {
        return;
    };
    let capture =
        |arguments: &[&str]| net.capture(&[&["filter", "", "--count"], arguments].concat());
    let counts = [
        capture(&["near", "-Q", "in"]),
        capture(&["near", "-Q", "out"]),
        capture(&["near"]),
        capture(&["any"]),
    ];
    assert_eq!(net.send(&frames(200), 0), 200);
    assert_eq!(net.send_on("near", "near", &frames(100), 0), 100);
    let counts = counts.map(|capture| capture.stop().ok().count());
    assert_eq!(counts, [200, 100, 300, 300]);
}

/// Compares live expressions about the direction of packets with tcpdump. tcpdump's `-Q` uses the kernel's packet type, as
/// weir does. Its `inbound` loses the first packets, which libpcap filters itself, without the packet type.
#[test]
fn inbound_and_outbound_are_as_tcpdump_has_them() {
    let test = "inbound_and_outbound_are_as_tcpdump_has_them";
    let Some(net) = Net::new(test) else { return };
    if !have(test, &["tcpdump"]) {
        return;
    }
    let temp = Temp::new();
    let theirs = |i: usize| temp.at(&format!("{i}.pcap"));
    let rival = |(i, [way, expression]): (usize, [&str; 2])| {
        let file = theirs(i);
        let command = [
            &["tcpdump", "-n", "-i", "near", "-w", &file, "-Q", way][..],
            &RIVAL,
            &[expression],
        ]
        .concat();
        net.start(&command, "listening on")
    };
    let rivals = [["in", "udp"], ["out", "udp"], ["out", "udp port 53"]];
    let rivals: Vec<_> = rivals.into_iter().enumerate().map(rival).collect();
    // Each expression, and the rivals that together capture the matching packets.
    let expressions: [(&str, &[usize]); 5] = [
        ("inbound", &[0]),
        ("outbound", &[1]),
        ("outbound and udp port 53", &[2]),
        ("not inbound", &[1]),
        ("inbound or udp port 53", &[0, 2]),
    ];
    let mut running = Vec::new();
    for (expression, seen_by) in expressions {
        let ways: [&[&str]; 3] = [&["near"], &["near", "--no-kernel-filter"], &["any"]];
        let ours = ways.map(|way| {
            net.capture(&[&["filter", expression, "--count", "--ring", "2M"], way].concat())
        });
        running.push((expression, seen_by, ours));
    }
    let measure = net.capture(&["measure", "near", "--filter", "outbound", "--json"]);
    let split = temp.at("out.pcap");
    let (main, part) = (temp.at("main.pcap"), format!("{split}=outbound"));
    let splitting = net.capture(&["filter", "udp", "near", "-w", &main, "--split", &part]);
    let tagged = |frame: Vec<u8>| [&frame[..12], &[0x81, 0, 0, 7], &frame[12..]].concat();
    let received: Vec<_> = frames(200)
        .into_iter()
        .chain(frames(10).into_iter().map(tagged))
        .collect();
    assert_eq!(net.send(&received, 0), 210);
    assert_eq!(net.send_on("near", "near", &frames(100), 0), 100);
    let counts: Vec<u64> = rivals
        .into_iter()
        .enumerate()
        .map(|(i, rival)| {
            rival.stop().ok();
            parse_pcap(&std::fs::read(theirs(i)).unwrap()).1.len() as u64
        })
        .collect();
    assert_eq!(counts, [210, 100, 50]);
    for (expression, seen_by, ours) in running {
        let expected = seen_by.iter().map(|&rival| counts[rival]).sum::<u64>();
        assert_eq!(
            ours.map(|capture| capture.stop().ok().count()),
            [expected; 3],
            "{expression}"
        );
    }
    assert_eq!(objects(&measure.stop().ok())[0]["passed"], 100);
    splitting.stop().ok();
    assert_eq!([written(&main).len(), written(&split).len()], [300, 100]);
    // A file does not store the direction of its packets.
    let file = temp.file("small.pcap", &small_pcap(2));
    let [ours, theirs] = [
        &[env!("CARGO_BIN_EXE_weir"), "filter", "inbound", &file][..],
        &["tcpdump", "-r", &file, "inbound"],
    ]
    .map(|command| net.inside("near", command));
    assert_eq!(ours.code, Some(2));
    let words = "inbound/outbound not supported on Ethernet when reading savefiles";
    assert!(
        ours.err.contains(words) && theirs.err.contains(words),
        "{} {}",
        ours.err,
        theirs.err
    );
}

#[test]
fn of_all_interfaces_each_packet_says_which_and_which_way() {
    let test = "of_all_interfaces_each_packet_says_which_and_which_way";
    let Some(net) = Net::new(test) else { return };
    if !have(test, &["tcpdump"]) {
        return;
    }
    net.second_cable();
    let rival = |link: &[&str]| {
        net.start(
            &[
                &["tcpdump", "-l", "-n", "-t", "-i", "any", "udp"],
                &RIVAL[..],
                link,
            ]
            .concat(),
            "listening on",
        )
    };
    let rivals = [rival(&[]), rival(&["-e"])];
    let lines = [
        net.capture(&["filter", "udp", "any", "-t", "--ring", "2M"]),
        net.capture(&["filter", "udp", "any", "-t", "-e", "--ring", "2M"]),
    ];
    let json = net.capture(&["filter", "udp", "any", "--json"]);
    let one = net.capture(&["filter", "udp", "near", "--json"]);
    assert_eq!(net.send(&frames(20), 0), 20);
    assert_eq!(net.send_on("near", "near", &frames(10), 0), 10);
    assert_eq!(net.send_on("near", "one", &frames(5), 0), 5);
    /// The first words of each line, sorted. The rest of the lines differs between the tools.
    fn begins(done: &Done, words: usize) -> Vec<String> {
        let text = done.text();
        // tcpdump ends with an empty line.
        let mut begins: Vec<String> = text
            .lines()
            .filter(|line| !line.is_empty())
            .map(|line| {
                let (name, rest) = line.split_at(line.find(' ').unwrap());
                let way = rest
                    .split_whitespace()
                    .take(words)
                    .collect::<Vec<_>>()
                    .join(" ");
                // Keeps the number of blanks.
                format!(
                    "{name}{}{way}",
                    " ".repeat(rest.len() - rest.trim_start().len())
                )
            })
            .collect();
        begins.sort();
        begins
    }
    let expected = rivals.map(|rival| rival.stop().ok());
    let lines = lines.map(|capture| capture.stop().ok());
    assert_eq!(begins(&lines[0], 1), begins(&expected[0], 1));
    // With -e, the number and the address of the interface follow.
    assert_eq!(begins(&lines[1], 4), begins(&expected[1], 4));
    assert_eq!(begins(&lines[0], 1).len(), 40);
    let of = |done: &Done| -> Vec<String> {
        let told = |object: Value| {
            format!(
                "{} {}",
                object["interface"].as_str().unwrap(),
                object["direction"].as_str().unwrap()
            )
        };
        let mut all: Vec<String> = objects(done)
            .into_iter()
            .filter(|object| object["summary"].is_string())
            .map(told)
            .collect();
        all.sort();
        all
    };
    let repeated = |text: &str, times: usize| vec![text.to_owned(); times];
    assert_eq!(
        of(&json.stop().ok()),
        [
            repeated("near in", 20),
            repeated("near out", 10),
            repeated("one out", 5),
            repeated("two in", 5)
        ]
        .concat()
    );
    assert_eq!(
        of(&one.stop().ok()),
        [repeated("near in", 20), repeated("near out", 10)].concat()
    );
}

#[test]
fn the_loopback_shows_each_packet_once() {
    let Some(net) = Net::new("the_loopback_shows_each_packet_once") else {
        return;
    };
    net.inside("near", &["ip", "link", "set", "lo", "up"]).ok();
    let capture = net.capture(&["filter", "udp dst port 4242", "lo", "--count"]);
    let script = "
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
r = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
r.bind(('127.0.0.1', 4242))
for i in range(100):
    s.sendto(b'x', ('127.0.0.1', 4242))
";
    net.inside("near", &["python3", "-c", script]).ok();
    assert_eq!(capture.stop().ok().count(), 100);
}

#[test]
fn both_directions_are_seen() {
    let Some(net) = Net::new("both_directions_are_seen") else {
        return;
    };
    let temp = Temp::new();
    let out = temp.at("both.pcap");
    net.inside(
        "near",
        &["ip", "address", "add", "10.9.0.1/24", "dev", "near"],
    )
    .ok();
    let capture = net.capture(&["filter", "arp", "near", "-w", &out]);
    // No host has the address, so that the kernel sends ARP requests, again and again.
    let script = "import socket; socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('10.9.0.2', 9))";
    net.inside("near", &["python3", "-c", script]).ok();
    let ask = |frame: &Vec<u8>| frame[..6] == [0xff; 6] && frame[38..42] == [10, 9, 0, 2];
    capture.stop().ok();
    assert!(written(&out).iter().any(ask));
}

#[test]
fn an_ip_tunnel_has_no_link_header() {
    let Some(net) = Net::new("an_ip_tunnel_has_no_link_header") else {
        return;
    };
    if !std::path::Path::new("/dev/net/tun").exists() {
        skipped("an_ip_tunnel_has_no_link_header", "no /dev/net/tun");
        return;
    }
    let temp = Temp::new();
    // The script makes the tunnel, prints `ready`, waits until a file exists, and lets packets come in.
    let script = "
import fcntl, os, struct, subprocess, sys
tun = os.open('/dev/net/tun', os.O_RDWR)
fcntl.ioctl(tun, 0x400454ca, struct.pack('16sH22x', b'tun7', 0x1001))
subprocess.check_call(['ip', 'link', 'set', 'tun7', 'up'])
print('ready', file=sys.stderr, flush=True)
while not os.path.exists(sys.argv[1]):
    pass
for i in range(50):
    os.write(tun, bytes.fromhex('450000207777000040110000c0000201c000020204d2162e000c0000') + struct.pack('>I', i))
print('sent', file=sys.stderr, flush=True)
while os.path.exists(sys.argv[1]):
    pass
";
    let (go, out) = (temp.at("go"), temp.at("tun.pcap"));
    let tunnel = net.start(&["python3", "-c", script, &go], "ready");
    let capture = net.capture(&["filter", "src 192.0.2.1 and udp", "tun7", "-w", &out]);
    std::fs::write(&go, "go").unwrap();
    let tunnel = tunnel.until("sent");
    let done = capture.stop().ok();
    std::fs::remove_file(&go).unwrap();
    tunnel.done().ok();
    assert!(done.err.contains("50 received, 50 matched"), "{}", done.err);
    let (link, found) = parse_pcap(&std::fs::read(&out).unwrap());
    assert_eq!((link, found.len()), (101, 50));
    assert!(
        found
            .iter()
            .enumerate()
            .all(|(i, record)| record.data[28..] == (i as u32).to_be_bytes())
    );
}

/// A frame that a bridge takes from its port is captured at both.
#[test]
fn packets_that_count_twice_are_told_of() {
    let Some(net) = Net::new("packets_that_count_twice_are_told_of") else {
        return;
    };
    net.inside("near", &["ip", "link", "add", "br0", "type", "bridge"])
        .ok();
    net.inside("near", &["ip", "link", "set", "near", "master", "br0"])
        .ok();
    net.inside("near", &["ip", "link", "set", "br0", "up"]).ok();
    let runs: [(&[&str], bool); 4] = [
        (&["near", "br0"], true),
        (&["any"], true),
        (&["near"], false),
        (&["br0"], false),
    ];
    for (sources, twice) in runs {
        // A --duration would count from the start of the process, and might be over before the capture begins.
        let done = net
            .capture(&[&["filter", "udp"], sources, &["--count"]].concat())
            .stop()
            .ok();
        let line = "are captured at both, and count twice: br0 and near\n";
        assert_eq!(
            done.err.replace("\n  ", " ").contains(line),
            twice,
            "{sources:?}: {}",
            done.err
        );
    }
}
