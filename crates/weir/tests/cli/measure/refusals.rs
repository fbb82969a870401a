//! Contradictory arguments are refused by name, before any work is done.

use super::*;

/// Asserts exit code 2, an empty standard output, and a message with these words.
#[track_caller]
pub(super) fn assert_refused(arguments: &[&str], words: &[&str]) {
    let done = weir(["measure"].iter().chain(arguments));
    assert_eq!(
        (done.code, done.text().as_str()),
        (Some(2), ""),
        "{arguments:?}: {}",
        done.err
    );
    for word in words {
        assert!(
            done.err.contains(word),
            "{arguments:?}: {}\nwanted {word}",
            done.err
        );
    }
    assert!(
        !done.err.contains("received"),
        "{arguments:?}: {}",
        done.err
    );
    assert!(
        !done.err.contains("panicked"),
        "{arguments:?}: {}",
        done.err
    );
}

#[test]
fn combinations_that_make_no_sense_are_refused() {
    let temp = Temp::new();
    let file = temp.file("ten.pcap", &small_pcap(10));
    let cases: [(&[&str], &[&str]); 20] = [
        (
            &["--key", "5tuple,interface"],
            &["the key src,dst,sport,dport,interface has 14 bytes too many"],
        ),
        (&["--key", "src,src"], &["names a field twice"]),
        (
            &["--sketch", "rs", "--key", "host"],
            &["--sketch rs cannot have --key host"],
        ),
        (
            &["--sketch", "rs", "--key", "vlan"],
            &["--sketch rs cannot have --key vlan"],
        ),
        (
            &["--sketch", "rs-set", "--key", "mac"],
            &["--sketch rs-set cannot have --key mac"],
        ),
        (
            &["--by", "peers", "--key", "host"],
            &["--key host", "use the key src or dst"],
        ),
        (
            &["--by", "ports", "--key", "src,vlan"],
            &["--key src,vlan", "use the key src or dst"],
        ),
        (
            &["--state", "shared"],
            &[
                "weir: --state shared",
                "--sketch heavy",
                "use exact, cms, sht or rs",
            ],
        ),
        (
            &["--state", "shared", "--sketch", "heavy"],
            &["--state shared", "--sketch heavy"],
        ),
        (
            &["--distribute", "flow"],
            &["weir: --distribute", "--design async or sync"],
        ),
        (
            &["--distribute", "flow", "--design", "rss"],
            &["weir: --distribute", "--design rss", "async or sync"],
        ),
        (&["--window", "0"], &["weir: --window 0"]),
        (
            &["--window", "1ms", "--late", "10s"],
            &["weir: --late 10 s", "of 1 ms", "more than 64"],
        ),
        (
            &["--window", "100us", "--late", "63ms"],
            &["weir: --late 63 ms would keep 632 windows of 100 us open"],
        ),
        (&["--late", "1s"], &["--window"]),
        (&["--changers", "3"], &["--window"]),
        (
            &["--key", "nation"],
            &["unknown key 'nation'", "5tuple", "src/24"],
        ),
        (&["--key", "src/0"], &["unknown key 'src/0'"]),
        (&["--cpus", "4000"], &["weir: --cpus: processor 4000"]),
        (&["--pages", "large"], &["--pages", "large"]),
    ];
    for (more, words) in cases {
        assert_refused(&[&[file.as_str()], more].concat(), words);
    }
    let shared = [
        "af_packet:lo",
        "--state",
        "shared",
        "--sketch",
        "exact",
        "--window",
        "1s",
    ];
    assert_refused(
        &shared,
        &["weir: --state shared", "--window", "--design async"],
    );
    for (name, value) in [
        ("--sketch", "best"),
        ("--by", "flows"),
        ("--design", "best"),
        ("--top", "many"),
        ("--memory", "4X"),
        ("--window", "1 week"),
        ("--workers", "0"),
        ("--batch", "0"),
        ("--seed", "x"),
    ] {
        assert_refused(&[&file, name, value], &[name, value]);
    }
    assert_refused(&[], &["name a capture file or an interface"]);
}

#[test]
fn sources_that_cannot_be_read_as_asked_are_refused() {
    let temp = Temp::new();
    let file = temp.file("ten.pcap", &small_pcap(10));
    assert_refused(&["-", "-"], &["weir: standard input is named twice"]);
    assert_refused(
        &["-", "--design", "rss"],
        &["weir: --design rss", "standard input", "async or sync"],
    );
    assert_refused(
        &["--follow", &file, &file],
        &["weir: --follow", "name only one"],
    );
    if have(
        "sources_that_cannot_be_read_as_asked_are_refused",
        &["gzip"],
    ) {
        let packed = temp.file(
            "packed.gz",
            &tool_fed("gzip", ["-c"], &small_pcap(10)).ok().out,
        );
        assert_refused(
            &[&packed, "--design", "rss"],
            &["weir: --design rss", "packed.gz cannot be split"],
        );
    }
}

#[test]
fn an_expression_that_is_wrong_is_refused() {
    let temp = Temp::new();
    let file = temp.file("ten.pcap", &small_pcap(10));
    for design in [
        &[][..],
        &["--workers", "1"],
        &["--design", "async"],
        &["--design", "sync"],
    ] {
        let refused = |expression: &str, words: &[&str]| {
            assert_refused(
                &[&[file.as_str(), "--filter", expression], design].concat(),
                words,
            );
        };
        refused("udp prot 53", &["weir: --filter: expression 'udp prot 53'"]);
        refused("host www.example.com", &["weir: --filter: ", "--resolve"]);
    }
}

/// The message on too little memory names a size that suffices; too much memory is refused too.
#[test]
fn memory_that_is_too_little_or_too_much_is_refused() {
    let temp = Temp::new();
    let file = temp.file("ten.pcap", &small_pcap(10));
    for sketch in ["heavy", "exact", "cms", "cms-conservative", "sht", "mv"] {
        for memory in ["0", "1", "63"] {
            assert_refused(
                &[&file, "--sketch", sketch, "--memory", memory],
                &["weir: --memory", "too small for a table"],
            );
        }
        // The named size suffices.
        let object = measure_one(&[&file, "--sketch", sketch, "--memory", "16k", "--top", "2"]);
        assert_eq!(object["passed"], 10);
    }
    assert_refused(&[&file, "--memory", "100000G"], &["weir: ", "no memory of"]);
}
