//! File names that are not plain text: any bytes are accepted, and printed in a form without effect on terminals.

use crate::support::{
    Done, Temp, block, pcapng_packet, run, small_pcap, tool, udp, weir, weir_command,
};
use serde_json::Value;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::slice::from_ref;

/// Characters that could forge a line, control a terminal, or reverse text.
const HOSTILE: &str = "a\nweir: forged\r\x1b[31m\u{9b}\u{85}\u{202e}\u{2028}b.pcap";

/// Asserts that the output consists of printable text in lines.
#[track_caller]
fn assert_harmless(done: &Done) {
    for text in [&done.text(), &done.err] {
        let steers = |c: char| c != '\n' && (c.is_control() || "\u{202e}\u{2028}".contains(c));
        assert!(!text.contains(steers), "{text:?}");
        assert!(
            !text.lines().any(|line| line.starts_with("weir: forged")),
            "{text:?}"
        );
    }
}

fn at(temp: &Temp, name: impl AsRef<OsStr>) -> PathBuf {
    temp.path().join(name.as_ref())
}

#[test]
fn a_hostile_name_is_escaped_wherever_it_is_printed() {
    let temp = Temp::new();
    let good = at(&temp, HOSTILE);
    std::fs::write(&good, small_pcap(3)).unwrap();
    let mut bytes = small_pcap(3);
    bytes.truncate(bytes.len() - 5);
    let cut = at(&temp, format!("cut{HOSTILE}"));
    std::fs::write(&cut, bytes).unwrap();
    let missing = at(&temp, format!("missing{HOSTILE}"));
    let out = at(&temp, format!("no/such{HOSTILE}"));
    let split = [OsStr::new("x"), OsStr::new(HOSTILE), OsStr::new("=udp")].join(OsStr::new(""));
    let (w, count, stats, json) = (
        OsStr::new("-w"),
        OsStr::new("--count"),
        OsStr::new("--stats"),
        OsStr::new("--json"),
    );
    for source in [&good, &cut, &missing] {
        let source = source.as_os_str();
        let filter = [OsStr::new("filter"), OsStr::new(""), source];
        for more in [
            &[][..],
            &[count, stats],
            &[w, out.as_os_str()],
            &[w, source],
            &[json],
            &[count, OsStr::new("--split"), &split, stats],
        ] {
            assert_harmless(&weir(filter.iter().chain(more)));
        }
        for command in ["measure", "info"] {
            assert_harmless(&weir([OsStr::new(command), source]));
            assert_harmless(&weir([OsStr::new(command), source, json]));
        }
        assert_harmless(&weir([OsStr::new("filter"), source, source]));
    }
    assert_harmless(&weir([OsStr::new("generate"), out.as_os_str()]));
    assert_harmless(&weir(["measure", "x", "--key", HOSTILE]));
    assert_harmless(&weir(["filter", "x", "y", &format!("--workers={HOSTILE}")]));
    assert_harmless(&weir(["filter", HOSTILE, "-"]));
    assert_harmless(&weir(["filter", "tcp", &format!("af_packet:{HOSTILE}")]));

    // The printed name is escaped, but complete.
    let done = weir([OsStr::new("measure"), good.as_os_str()]).ok();
    assert!(
        done.text()
            .contains(r"a\nweir: forged\r\x1b[31m\u009b\u0085\u202e\u2028b.pcap  3 packets"),
        "{done:?}"
    );
    // JSON has the name unchanged.
    let done = weir([OsStr::new("info"), good.as_os_str(), json]).ok();
    let object: Value = serde_json::from_slice(&done.out).unwrap();
    assert_eq!(object["file"].as_str(), good.to_str());
}

#[test]
fn text_in_a_file_is_escaped_in_text_and_exact_in_json() {
    let temp = Temp::new();
    // Section header and interface with hostile names: options 2 (if_name), 3 (if_description), 4 (shb_userappl), 1 (comment).
    let option = |code: u16| {
        let mut bytes = [code.to_le_bytes(), (HOSTILE.len() as u16).to_le_bytes()].concat();
        bytes.extend(HOSTILE.as_bytes());
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    };
    let mut section = 0x1a2b_3c4du32.to_le_bytes().to_vec();
    section.extend([1, 0, 0, 0]);
    section.extend([0xff; 8]);
    let mut interface = vec![1, 0, 0, 0, 0, 0, 0, 0];
    for code in [1, 2, 3, 4] {
        section.extend(option(code));
    }
    for code in [1, 2, 3] {
        interface.extend(option(code));
    }
    section.extend([0; 4]);
    interface.extend([0; 4]);
    let packet = pcapng_packet(1_700_000_000, &udp(1, 20));
    let bytes = [block(0x0a0d_0d0a, &section), block(1, &interface), packet].concat();
    let path = temp.file("hostile.pcapng", &bytes);
    let text = weir(["info", &path]).ok();
    assert_harmless(&text);
    let shown = r"a\nweir: forged\r\x1b[31m\u009b\u0085\u202e\u2028b.pcap";
    assert_eq!(text.text().matches(shown).count(), 7, "{}", text.text());
    let done = weir(["info", &path, "--json"]).ok();
    assert_harmless(&done);
    let object: Value = serde_json::from_slice(&done.out).unwrap();
    assert_eq!(object["interfaces"][0]["name"], HOSTILE);
    assert_eq!(object["interfaces"][0]["description"], HOSTILE);
    let done = weir(["filter", "", &path, "--json"]).ok();
    assert_harmless(&done);
    let first: Value = serde_json::from_str(done.text().lines().next().unwrap()).unwrap();
    assert_eq!(first["interface"], HOSTILE);
    for arguments in [
        &["filter", "", &path][..],
        &["measure", &path],
        &["measure", &path, "--json"],
    ] {
        assert_harmless(&weir(arguments).ok());
    }
}

#[test]
fn a_name_that_is_not_utf8_is_a_name() {
    let temp = Temp::new();
    let name = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
    let here =
        |arguments: &[OsString]| run(weir_command().current_dir(temp.path()).args(arguments), &[]);
    let words = |line: &[&str]| line.iter().map(OsString::from).collect::<Vec<_>>();
    let with = |line: &[&str], more: &[OsString]| here(&[&words(line)[..], more].concat());
    let source = name(b"s\xff\xfe.pcap");
    std::fs::write(at(&temp, &source), small_pcap(40)).unwrap();

    assert_eq!(
        with(&["filter", "", "--count"], from_ref(&source))
            .ok()
            .count(),
        40
    );
    let done = with(&["info"], from_ref(&source)).ok();
    assert!(done.text().contains(r"s\xff\xfe.pcap"), "{done:?}");
    let done = with(&["info", "--json"], from_ref(&source)).ok();
    assert_eq!(
        serde_json::from_slice::<Value>(&done.out).unwrap()["file"],
        r"s\xff\xfe.pcap"
    );
    let done = with(&["measure"], from_ref(&source)).ok();
    assert!(
        done.text().starts_with(r"s\xff\xfe.pcap  40 packets"),
        "{done:?}"
    );
    let done = with(&["filter", ""], &[name(b"gone\xff.pcap")]);
    assert_eq!(done.code, Some(1));
    assert!(
        done.err.contains(r"weir: gone\xff.pcap: no such file"),
        "{done:?}"
    );

    // Output files have exactly the given names.
    with(
        &["filter", "udp", "-w"],
        &[name(b"w\xff.pcap"), source.clone()],
    )
    .ok();
    let original = tool(
        "tcpdump",
        [OsStr::new("-nr"), at(&temp, &source).as_os_str()],
    );
    let copy = tool(
        "tcpdump",
        [
            OsStr::new("-nr"),
            at(&temp, name(b"w\xff.pcap")).as_os_str(),
        ],
    );
    assert_eq!(
        (original.text().lines().count(), original.text()),
        (40, copy.text())
    );
    with(
        &["filter", "", "--split"],
        &[name(b"p\xff=udp port 3"), source.clone()],
    )
    .ok();
    with(
        &["filter", "", "-G", "20", "-w"],
        &[name(b"g\xff%s.pcap"), source.clone()],
    )
    .ok();
    with(
        &["filter", "", "-C", "1k", "-w"],
        &[name(b"c\xff"), source.clone()],
    )
    .ok();
    with(&["generate", "--packets", "10"], &[name(b"made\xff.pcap")]).ok();
    for made in [
        &b"p\xff.pcapng"[..],
        b"g\xff1700000000.pcap",
        b"g\xff1700000020.pcap",
        b"c\xff",
        b"c\xff1",
        b"made\xff.pcap",
    ] {
        assert!(
            at(&temp, name(made)).is_file(),
            "{:?}: {:?}",
            name(made),
            std::fs::read_dir(temp.path()).unwrap().collect::<Vec<_>>()
        );
    }
    // Names that differ only in such a byte are different files. The same name as source and output is found.
    with(
        &["filter", "", "--split"],
        &[
            name(b"x\xfe.pcap=tcp"),
            name(b"--split"),
            name(b"x\xff.pcap=udp"),
            source.clone(),
        ],
    )
    .ok();
    let done = with(&["filter", "", "-w"], &[source.clone(), source]);
    assert_eq!(done.code, Some(2));
    assert!(
        done.err
            .contains(r"s\xff\xfe.pcap is both source and output"),
        "{done:?}"
    );
}

/// The loopback interface exists in every network namespace; `any` means all interfaces.
#[test]
fn a_file_that_is_named_like_an_interface_is_read_and_that_is_said() {
    let temp = Temp::new();
    let here =
        |arguments: &[&str]| run(weir_command().current_dir(temp.path()).args(arguments), &[]).ok();
    for name in ["lo", "any", "lo.pcap"] {
        temp.file(name, &small_pcap(7));
    }
    let said = |name, other| {
        format!(
            "weir: {name}: the file ./{name} is read; to capture from {other}, name af_packet:{name}"
        )
    };
    let (lo, any) = (said("lo", "the interface"), said("any", "all interfaces"));
    for (sources, lines) in [
        (&["lo"][..], &[lo.as_str()][..]),
        (&["any", "lo", "any"], &[&any, &lo]),
        (&["./any", "./lo", "lo.pcap"], &[]),
    ] {
        let packets = 7 * sources.len() as u64;
        let counted = here(&[&["filter", "udp", "--count"], sources].concat());
        let measured = here(&[&["measure", "--json"], sources].concat());
        assert_eq!(counted.count(), packets);
        assert_eq!(
            serde_json::from_slice::<Value>(&measured.out).unwrap()["passed"],
            packets
        );
        for done in [counted, measured] {
            let told: Vec<_> = done
                .err
                .lines()
                .filter(|line| line.starts_with("weir: "))
                .collect();
            assert_eq!(told, lines, "{sources:?}");
        }
    }
}

#[test]
fn an_empty_name_is_refused() {
    let temp = Temp::new();
    let source = temp.file("a.pcap", &small_pcap(1));
    let no_source =
        "weir: the name of a source is empty: name a capture file, or - for standard input\n";
    let no_interface =
        |name| format!("weir: {name} names no interface: weir filter -D lists those there are\n");
    for (arguments, line) in [
        (&["measure", ""][..], no_source),
        (&["measure", &source, ""], no_source),
        (&["filter", "", ""], no_source),
        (&["info", ""], no_source),
        (
            &["generate", ""],
            "weir: the name of the output is empty: name a file, or - for standard output\n",
        ),
        (&["filter", "", "af_packet:"], &no_interface("af_packet:")),
        (&["filter", "", "-i", ""], &no_interface("af_packet:")),
        (&["measure", "af_xdp::0"], &no_interface("af_xdp::0")),
        (
            &["filter", "", &source, "-w", "af_packet:"],
            &no_interface("af_packet:"),
        ),
        (&["generate", "af_xdp:"], &no_interface("af_xdp:")),
        (&["generate", "inject:"], &no_interface("inject:")),
    ] {
        let done = weir(arguments);
        assert_eq!(
            (done.code, done.err.as_str()),
            (Some(2), line),
            "{arguments:?}"
        );
        assert!(done.out.is_empty(), "{arguments:?}");
    }
}

/// In JSON the fault has the name unchanged, escaped once by the rules of JSON.
#[test]
fn faults_in_json_hold_the_very_names() {
    let temp = Temp::new();
    let good = at(&temp, "good.pcap");
    std::fs::write(&good, small_pcap(3)).unwrap();
    let cut = at(&temp, format!("cut{HOSTILE}"));
    std::fs::write(&cut, &small_pcap(3)[..200]).unwrap();
    let fault = |arguments: &[&OsStr]| {
        let done = weir(arguments);
        assert_eq!(done.code, Some(1), "{arguments:?}");
        assert_harmless(&done);
        let text = done.text();
        let object: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let fault = if object["faults"].is_array() {
            &object["faults"][0]
        } else {
            &object["fault"]
        };
        fault
            .as_str()
            .unwrap_or_else(|| panic!("{object}"))
            .to_owned()
    };
    let [filter, empty, count, json, split] =
        ["filter", "", "--count", "--json", "--split"].map(OsStr::new);
    let [info, measure, window, second] = ["info", "measure", "--window", "1s"].map(OsStr::new);
    let missing = at(&temp, format!("missing{HOSTILE}"));
    let (c, m, g) = (cut.as_os_str(), missing.as_os_str(), good.as_os_str());
    for (source, words) in [(c, ": packet 3, offset 180: "), (m, ": no such file")] {
        let begin = format!("{}{words}", source.to_str().unwrap());
        for arguments in [
            &[filter, empty, source, count, json][..],
            &[filter, empty, source, json],
            &[filter, empty, g, source, count, json, OsStr::new("--merge")],
            &[filter, empty, source, count, json, OsStr::new("--sort")],
            &[info, source, json],
            &[measure, source, json],
            &[measure, g, source, json, window, second],
        ] {
            let fault = fault(arguments);
            assert!(fault.starts_with(&begin), "{arguments:?}: {fault:?}");
        }
    }
    let to = format!("no/such{HOSTILE}");
    let argument = format!("{to}=udp");
    let fault_of_output = fault(&[filter, empty, g, json, split, OsStr::new(&argument)]);
    assert_eq!(
        fault_of_output,
        format!("{to}: cannot be created: its directory does not exist: mkdir -p no")
    );
    let bytes = OsStr::from_bytes(b"gone\xff.pcap");
    assert_eq!(
        fault(&[measure, bytes, json]),
        r"gone\xff.pcap: no such file: ls . shows what is there"
    );
}

#[test]
fn a_name_in_a_file_that_is_not_utf8_is_shown_with_its_bytes() {
    let temp = Temp::new();
    // if_name, eight bytes.
    let interface = [
        &[1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 8, 0][..],
        b"eth\xff\xc3\xa9\xfe0",
        &[0; 4],
    ]
    .concat();
    let section = [&0x1a2b_3c4du32.to_le_bytes()[..], &[1, 0, 0, 0], &[0xff; 8]].concat();
    let packet = pcapng_packet(1_700_000_000, &udp(1, 20));
    let path = temp.file(
        "bytes.pcapng",
        &[block(0x0a0d_0d0a, &section), block(1, &interface), packet].concat(),
    );
    let shown = r"eth\xffé\xfe0";
    assert!(
        weir(["info", &path])
            .ok()
            .text()
            .contains(&format!("\"{shown}\""))
    );
    let object: Value = serde_json::from_slice(&weir(["info", &path, "--json"]).ok().out).unwrap();
    assert_eq!(object["interfaces"][0]["name"], shown);
    let first = weir(["filter", "", &path, "--json"]).ok().text();
    assert_eq!(
        serde_json::from_str::<Value>(first.lines().next().unwrap()).unwrap()["interface"],
        shown
    );
}
