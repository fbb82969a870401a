//! Rules that are wrong or can never match, and engines that cannot obey them.

use super::*;

#[test]
fn wrong_rules_are_one_line_and_nothing_is_written() {
    let temp = Temp::new();
    let file = temp.file("a.pcap", &small_pcap(10));
    let out = temp.at("out.pcap");
    let refuse = |text: &[u8], words: &str| {
        let rules = temp.file("rules.txt", text);
        for arguments in [
            vec!["firewall", "check", &rules, &file],
            vec!["firewall", &file, &out, "--rules", &rules],
        ] {
            let done = weir(arguments);
            assert_eq!(
                (done.code, done.out.len(), done.err.lines().count()),
                (Some(2), 0, 1),
                "{}",
                done.err
            );
            assert!(
                done.err.contains(&format!("rules.txt: {words}")),
                "{}",
                done.err
            );
        }
        assert!(fs::metadata(&out).is_err());
    };
    refuse(
        b"pass tcp\ndrop src 10.0.0.9-10.0.0.1\n",
        "line 2: the range 10.0.0.9-10.0.0.1 is reversed",
    );
    refuse(b"drop expr 'udp prot 53'\n", "line 1: ");
    refuse(
        b"set s file nowhere.txt\n",
        "line 1: nowhere.txt: no such file",
    );
    refuse(b"pass \xff\n", "it is not text (UTF-8)");
    refuse(
        "drop on e\u{1b}[2Jth0 dport x".as_bytes(),
        "line 1: \"x\" is not a port",
    );
    let rules = temp.file("good.txt", b"pass tcp\n");
    let bare = temp.file("without-extension", &small_pcap(10));
    for (arguments, words) in [
        (
            vec!["firewall", "check", "/nonexistent", &file],
            "/nonexistent: no such file",
        ),
        (vec!["firewall", &file, &out], "--rules"),
        (
            vec!["firewall", "check", "-", "-"],
            "standard input cannot be both",
        ),
        (
            vec!["firewall", &file, &file, "--rules", &rules],
            "both source and output",
        ),
        (
            vec![
                "firewall", &file, &out, "--rules", &rules, "-w", &out, "--what", "denied",
            ],
            "two outputs",
        ),
        (
            vec![
                "firewall", &bare, &out, "--rules", &rules, "-w", &bare, "--what", "denied",
            ],
            "both source and output",
        ),
        (
            vec!["firewall", &file, &rules, "--rules", &rules],
            "both source and output",
        ),
        (
            vec![
                "firewall", &file, &out, "--table", &rules, "-w", &rules, "--what", "denied",
            ],
            "both source and output",
        ),
        (
            vec!["firewall", "check", &rules, "af_packet:lo"],
            "is an interface",
        ),
        (
            vec![
                "firewall", &file, &out, "--rules", &rules, "-w", "null", "--what", "denied",
            ],
            "-w writes a file",
        ),
        (
            vec![
                "firewall",
                &file,
                &out,
                "--rules",
                &rules,
                "--bidirectional",
            ],
            "is a file",
        ),
        (
            vec![
                "firewall",
                &file,
                &out,
                "--rules",
                &rules,
                "--duration",
                "1s",
            ],
            "is a file",
        ),
        (
            vec!["firewall", &file, "-", "--rules", &rules, "--json"],
            "standard output has the answer of --json",
        ),
        (
            vec!["firewall", &file, &out, "--rules", &rules, "-w", "x"],
            "--what",
        ),
    ] {
        let done = weir(&arguments);
        assert_eq!(done.code, Some(2), "{arguments:?}: {}", done.err);
        assert!(done.err.contains(words), "{arguments:?}: {}", done.err);
    }
    assert!(fs::metadata(&out).is_err());
    let done = weir(["firewall", &file, "null", "--rules", &rules, "--json"]).ok();
    let answer: Value = serde_json::from_str(&done.text()).unwrap();
    assert_eq!(answer["passed"], 10, "a port takes the packets of a file");
    let done = weir(["firewall", "check", &rules, "/nonexistent.pcap"]);
    assert_eq!((done.code, done.out.len()), (Some(1), 0), "{}", done.err);
    // Of a damaged capture what was good is judged.
    let mut damaged = small_pcap(10);
    damaged.truncate(damaged.len() - 5);
    let damaged = temp.file("damaged.pcap", &damaged);
    let done = weir(["firewall", "check", &rules, &damaged, "--json"]);
    let answer: Value = serde_json::from_str(&done.text()).unwrap();
    assert_eq!(
        (done.code, answer["received"].as_u64()),
        (Some(1), Some(9)),
        "{}",
        done.err
    );
    assert!(
        answer["fault"].as_str().unwrap().contains("packet 10"),
        "{answer}"
    );
}

#[test]
fn rules_that_can_never_match_are_named() {
    let temp = Temp::new();
    let file = temp.file("a.pcap", &small_pcap(10));
    let text = "drop src 10.0.0.0/8 tcp\ncount src 10.1.0.0/16 tcp dport 80\npass udp\ndrop udp dport 53\npass src 10.0.0.0/7\n";
    let rules = temp.file("rules.txt", text.as_bytes());
    let done = weir(["firewall", "check", &rules, &file]).ok();
    let lines: Vec<&str> = done
        .err
        .lines()
        .filter(|line| line.contains("rules.txt"))
        .collect();
    assert!(
        lines[0]
            .ends_with("rules.txt: line 2 can never match: line 1 decides about all its packets"),
        "{lines:?}"
    );
    let words = "line 4 matches only packets that lack a field: line 3 decides about all others";
    assert!(lines[1].ends_with(words) && lines.len() == 2, "{lines:?}");
    // The table names them all the same.
    let text = done.text();
    assert!(
        text.contains("count src 10.1.0.0/16 tcp dport 80") && text.contains("default pass"),
        "{text}"
    );
}

#[test]
fn packets_of_a_file_are_distributed_to_no_workers() {
    let temp = Temp::new();
    let (file, out) = (temp.file("in.pcap", b""), temp.at("out.pcap"));
    let table = temp.file("table.txt", b"ban 10.0.0.1\n");
    let done = weir([
        "firewall",
        &file,
        &out,
        "--table",
        &table,
        "--distribute",
        "address",
    ]);
    assert_eq!(
        (done.code, done.err.lines().count()),
        (Some(2), 1),
        "{}",
        done.err
    );
    assert!(done.err.contains("are about interfaces"), "{}", done.err);
    assert!(fs::metadata(&out).is_err());
}
