//! Sets of addresses in expressions: all commands that take an expression, against tcpdump with the members written out; bad input.

use crate::counts::tcpdump_count;
use crate::recording::{record, saved};
use crate::support::*;
use serde_json::Value;

/// Members of the sets, which come from two files, and the same as a condition of tcpdump on a side.
const BANNED: &str = "# two hosts and a network\n192.0.2.1\n192.0.2.77   # the other one\n10.1.0.0/16\n2001:db8:1::/48\n";
const LAN: &str = "10.0.0.0/14\nfe80::1\n192.0.2.4-192.0.2.7\n";

fn banned(side: &str) -> String {
    format!(
        "({side} host 192.0.2.1 or {side} host 192.0.2.77 or {side} net 10.1.0.0/16 or {side} net 2001:db8:1::/48)"
    )
}

fn lan(side: &str) -> String {
    format!("({side} net 10.0.0.0/14 or {side} host fe80::1 or {side} net 192.0.2.4/30)")
}

/// Expressions with sets, and those for tcpdump.
fn expressions() -> Vec<(&'static str, String)> {
    vec![
        ("src @banned", banned("src")),
        ("host @lan", lan("")),
        ("net @lan and udp", format!("{} and udp", lan(""))),
        ("not dst @banned", format!("not {}", banned("dst"))),
        (
            "src @banned and dst @lan or udp port 7",
            format!("({} and {}) or udp port 7", banned("src"), lan("dst")),
        ),
        (
            "src @banned or dst @lan and greater 50",
            format!("({} or {}) and greater 50", banned("src"), lan("dst")),
        ),
        (
            "host (@lan or @banned) and not udp port 9",
            format!("({} or {}) and not udp port 9", lan(""), banned("")),
        ),
        ("ip6 src @banned", "ip6 src net 2001:db8:1::/48".to_owned()),
        (
            "arp host @lan",
            "arp net 192.0.2.4/30 or arp net 10.0.0.0/14".to_owned(),
        ),
        (
            "vlan and src @banned",
            format!("vlan and {}", banned("src")),
        ),
    ]
}

/// Datagrams between hosts of few networks, some of them behind a tag, and ARP.
fn packets() -> Vec<Vec<u8>> {
    let hosts: [[u8; 4]; 6] = [
        [192, 0, 2, 1],
        [192, 0, 2, 77],
        [10, 1, 2, 3],
        [10, 200, 0, 1],
        [192, 0, 2, 5],
        [8, 8, 8, 8],
    ];
    let mut all = Vec::new();
    for (number, (src, dst)) in hosts
        .iter()
        .flat_map(|src| hosts.iter().map(move |dst| (src, dst)))
        .enumerate()
    {
        let mut frame = udp([7, 9, 53][number % 3], number);
        frame[26..30].copy_from_slice(src);
        frame[30..34].copy_from_slice(dst);
        if number % 5 == 0 {
            frame.splice(12..12, [0x81, 0, 0, 7]);
        }
        let arp = [
            &frame[..12],
            &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 1],
            src,
            &[0; 6],
            dst,
        ]
        .concat();
        let six: [[u8; 16]; 3] = ["2001:db8:1::7", "2001:db8:2::7", "fe80::1"]
            .map(|address| address.parse::<std::net::Ipv6Addr>().unwrap().octets());
        let head = [0x60, 0, 0, 0, 0, 8, 17, 64];
        let body = [0x0f, 0xa0, 0, 53, 0, 8, 0, 0];
        let v6 = [
            &frame[..12],
            &[0x86, 0xdd],
            &head,
            &six[number % 3],
            &six[number / 3 % 3],
            &body,
        ]
        .concat();
        all.extend([frame, arp, v6]);
    }
    all
}

fn capture_file(temp: &Temp) -> String {
    let records = packets()
        .iter()
        .zip(0..)
        .flat_map(|(packet, second)| pcap_record(second, packet))
        .collect::<Vec<_>>();
    temp.file("in.pcap", &[pcap_header(65_535, 1), records].concat())
}

/// Flags that define both sets.
fn flags(temp: &Temp) -> Vec<String> {
    let (banned, lan) = (
        temp.file("banned.txt", BANNED.as_bytes()),
        temp.file("lan.txt", LAN.as_bytes()),
    );
    vec![
        "--set".into(),
        format!("banned={banned}"),
        "--set".into(),
        format!("lan={lan}"),
    ]
}

fn with(words: &[&str], flags: &[String]) -> Done {
    weir(
        words
            .iter()
            .map(|word| (*word).to_owned())
            .chain(flags.iter().cloned()),
    )
}

#[test]
fn each_command_counts_what_tcpdump_counts_with_the_members_written_out() {
    if !have(
        "each_command_counts_what_tcpdump_counts_with_the_members_written_out",
        &["tcpdump"],
    ) {
        return;
    }
    let temp = Temp::new();
    let (file, flags) = (capture_file(&temp), flags(&temp));
    let directory = temp.at("record");
    record(&directory, &records(&file));
    let rules = temp.at("rules.txt");
    for (expression, members) in expressions() {
        let wanted = tcpdump_count(&file, &members).unwrap();
        assert!(wanted > 0, "{expression} matches no packet");
        assert_eq!(
            with(&["filter", expression, &file, "--count"], &flags)
                .ok()
                .count(),
            wanted,
            "{expression}"
        );
        let inverted = with(
            &["filter", expression, &file, "--count", "--invert"],
            &flags,
        )
        .ok()
        .count();
        assert_eq!(inverted + wanted, packets().len() as u64, "{expression}");
        let measured = with(
            &["measure", &file, "--filter", expression, "--json"],
            &flags,
        )
        .ok();
        let answer: Value = serde_json::from_str(measured.text().lines().last().unwrap()).unwrap();
        assert_eq!(answer["passed"], wanted, "{expression}");
        assert_eq!(
            with(&["query", &directory, expression, "--count"], &flags)
                .ok()
                .count(),
            wanted,
            "{expression}"
        );
        let split = temp.at("split.pcapng");
        let split_by = format!("{split}={expression}");
        with(&["filter", "", &file, "--split", &split_by], &flags).ok();
        assert_eq!(records(&split).len() as u64, wanted, "{expression}");
        // The sets of a rule list have lines of their own, and rules name them in both ways.
        std::fs::write(
            &rules,
            format!(
                "set banned file banned.txt\nset $lan file lan.txt\ncount expr '{expression}'\n"
            ),
        )
        .unwrap();
        let checked = weir(["firewall", "check", &rules, &file, "--json"]).ok();
        let answer: Value = serde_json::from_str(&checked.text()).unwrap();
        assert_eq!(answer["rules"][0]["packets"], wanted, "{expression}");
    }
}

#[test]
fn triggers_and_recordings_take_sets() {
    let temp = Temp::new();
    let (file, flags) = (capture_file(&temp), flags(&temp));
    let directory = temp.at("record");
    let words = [
        "record",
        &file,
        &directory,
        "--ram",
        "16M",
        "--disk",
        "64M",
        "--filter",
        "host @lan",
    ];
    let trigger = [
        "--trigger",
        "seen=src @banned and udp port 53",
        "--before",
        "0s",
        "--after",
        "1ms",
    ];
    with(&[&words[..], &trigger].concat(), &flags).ok();
    assert!(!saved(&directory, "seen").is_empty());
    let kept = weir(["filter", "", &directory, "--count"]).ok().count();
    assert_eq!(
        kept,
        with(&["filter", "host @lan", &file, "--count"], &flags)
            .ok()
            .count()
    );
}

#[test]
fn sets_that_cannot_be_used_are_refused() {
    let temp = Temp::new();
    let (file, good) = (capture_file(&temp), temp.file("good.txt", b"10.0.0.1\n"));
    let (good, bad) = (
        format!("good={good}"),
        format!(
            "bad={}",
            temp.file("bad.txt", b"10.0.0.1\n\nwww.example.com\n")
        ),
    );
    let (missing, directory) = (
        format!("missing={}", temp.at("missing")),
        format!("dir={}", temp.at("")),
    );
    let empty = format!("empty={}", temp.file("empty.txt", b"# none yet\n"));
    let table: &[(&[&str], &str)] = &[
        (
            &["src @goof", "--set", &good],
            "there is no set \"@goof\": those given are @good\n",
        ),
        (
            &["src @good"],
            "there is no set \"@good\": no set is defined; --set NAME=FILE defines one",
        ),
        (
            &["port @good", "--set", &good],
            "\"@good\" stands for addresses, and this is a place for a port or a protocol\n",
        ),
        (
            &["", "--set", &good],
            "--set good: no expression names a set: write src @good, host @good or net @good\n",
        ),
        (
            &["udp", "--set", &good],
            "--set good: no expression names a set",
        ),
        (
            &["src @bad", "--set", &bad],
            "bad.txt: line 3: \"www.example.com\" is not an address, prefix or range of addresses\n",
        ),
        (
            &["src @missing", "--set", &missing],
            "missing: no such file\n",
        ),
        (
            &["src @dir", "--set", &directory],
            "it is a directory: name a file of addresses\n",
        ),
        (
            &["src @good", "--set", &good, "--set", &good],
            "--set good: two files have this name: name each set once\n",
        ),
        (
            &["src @good", "--set", "good"],
            "a set is a name and its file, as in banned=banned.txt",
        ),
        (
            &["src @good", "--set", "go od=x"],
            "\"go od\" is not a name of a set",
        ),
        (
            &["src @good", "--set", "good=-"],
            "standard input has packets",
        ),
    ];
    for (words, wanted) in table {
        let done = weir([&["filter"], *words, &[&file]].concat());
        assert_eq!(done.code, Some(2), "{words:?}: {}", done.err);
        assert!(done.err.contains(wanted), "{words:?}: {}", done.err);
        assert!(done.out.is_empty(), "{words:?}");
    }
    // A set may become empty, as a list of banned hosts does. One line tells.
    let done = weir(["filter", "src @empty", &file, "--count", "--set", &empty]).ok();
    assert_eq!(done.count(), 0);
    assert!(
        done.err
            .contains("has no address: no packet matches @empty\n"),
        "{}",
        done.err
    );
}
