//! The classes for Java, and the samples in Java: compiled and run with JDK 25, if it is there.

mod jdk;

use jdk::{Java, root, sources, text};
use std::process::{Command, Output};
use weir_testkit::savefile::{Pcap, mixed};
use weir_testkit::{Python, Random, Scratch, captures, have, links, net, skipped, wait};

#[test]
fn the_classes_for_java_keep_their_promises() {
    let scratch = Scratch::new();
    let Some(java) = Java::new("the_classes_for_java_keep_their_promises", &scratch) else {
        return;
    };
    let file = scratch.file("a.pcap", &mixed(200_000));
    let done = java.run(&[], "weir.Checks", &[&file, "200000"]);
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert!(
        done.status.success() && out.lines().count() == 15 && err.is_empty(),
        "{out}{err}"
    );
    // Without a collector and without the analysis that keeps objects off the heap.
    let flags = [
        "-XX:+UnlockExperimentalVMOptions",
        "-XX:+UseEpsilonGC",
        "-Xmx64m",
        "-XX:-DoEscapeAnalysis",
    ];
    let done = java.run(&flags, "CountByPort", &[&file]);
    assert!(
        done.status.success(),
        "{}{}",
        text(&done.stdout),
        text(&done.stderr)
    );
}

/// The columns are held against tshark's positions by the tests of `weir-packet`.
#[test]
fn packets_have_the_headers_of_their_columns() {
    let test = "packets_have_the_headers_of_their_columns";
    let scratch = Scratch::new();
    let Some(java) = Java::new(test, &scratch) else {
        return;
    };
    let made = [
        scratch.file("headers.pcapng", &links::headers(40_000)),
        scratch.file("ethernet.pcapng", &links::ethernet_headers(6)),
        scratch.file("a.pcap", &mixed(20_000)),
    ];
    let real: Vec<String> = captures(test)
        .iter()
        .map(|path| path.to_str().unwrap().to_owned())
        .collect();
    // Some of the captures are damaged: what can be read is compared.
    let files: Vec<&str> = made
        .iter()
        .map(|file| &file[..])
        .chain(real.iter().map(|path| &path[..]))
        .collect();
    let done = java.run(&[], "weir.HeaderChecks", &files);
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    let compared = out
        .strip_prefix("ok ")
        .and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
    assert!(
        done.status.success() && compared.is_some_and(|count| count > 180_000) && err.is_empty(),
        "{out}{err}"
    );
}

#[test]
fn marks_by_vectors_are_those_of_the_scalar_rules() {
    const TEST: &str = "marks_by_vectors_are_those_of_the_scalar_rules";
    const MODULE: [&str; 2] = ["--add-modules", "jdk.incubator.vector"];
    let scratch = Scratch::new();
    let Some(java) = Java::new(TEST, &scratch) else {
        return;
    };
    let modules = Command::new(java.home.join("bin/java"))
        .arg("--list-modules")
        .output()
        .unwrap();
    if !text(&modules.stdout).contains(MODULE[1]) {
        return skipped(TEST, "the JDK has no module jdk.incubator.vector");
    }
    let mut javac = Command::new(java.home.join("bin/javac"));
    javac
        .args(MODULE)
        .args(["-cp", &java.classes, "-d", &java.classes]);
    let done = javac
        .args(sources(&root().join("bindings/java/src/vector")))
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}{}",
        text(&done.stdout),
        text(&done.stderr)
    );
    let file = scratch.file("a.pcap", &mixed(20_000));
    // Interpreted, compiled, and with vectors of 32 bytes where there are longer ones.
    let ways: [&[&str]; 2] = [&[], &["-XX:UseAVX=2"]];
    for flags in &ways[..if cfg!(target_arch = "x86_64") { 2 } else { 1 }] {
        let done = java.run(
            &[&MODULE, *flags].concat(),
            "weir.vector.MarksChecks",
            &[&file],
        );
        let (out, err) = (text(&done.stdout), text(&done.stderr));
        assert!(
            done.status.success() && out.starts_with("ok 960000 compared, "),
            "{out}{err}"
        );
    }
}

/// UDP from 10.0.0.0 to .99, every seventh packet TCP, a thousand in a second.
fn in_time(packets: u32) -> Vec<u8> {
    let (mut pcap, mut random) = (Pcap::new(1, 65_535), Random::behind(7 << 32));
    for i in 0..packets {
        let length = 60 + random.below(900) as u16;
        let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
        frame.extend((length - 14).to_be_bytes());
        let hosts = 1 + random.below(100);
        let protocol = if i % 7 == 0 { 6 } else { 17 };
        frame.extend([
            0,
            0,
            0,
            0,
            64,
            protocol,
            0,
            0,
            10,
            0,
            0,
            random.below(hosts) as u8,
            192,
            0,
            2,
            1,
            0x9c,
            0x40,
        ]);
        frame.extend((1000 + random.below(20 + hosts) as u16).to_be_bytes());
        frame.resize(60, 0);
        pcap.header(1_700_000_000 + i / 1000, i % 1000 * 1000, 60, length.into());
        pcap.bytes.extend(frame);
    }
    pcap.bytes
}

#[test]
fn java_measures_and_records_as_the_command_does() {
    let test = "java_measures_and_records_as_the_command_does";
    let command = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .join("../weir");
    if !command.exists() {
        return skipped(test, "there is no weir command beside the tests");
    }
    let scratch = Scratch::new();
    let Some(java) = Java::new(test, &scratch) else {
        return;
    };
    let file = scratch.file("a.pcap", &in_time(20_000));
    let [ours, theirs] = ["ours", "theirs"].map(|name| scratch.at(name));
    let printed = |arguments: &[&str]| {
        let done = Command::new(&command).args(arguments).output().unwrap();
        assert!(done.status.success(), "{}", text(&done.stderr));
        text(&done.stdout)
    };
    let mut expected = String::new();
    let cases: [&[&str]; 5] = [
        &[],
        &["--key", "src", "--key", "dport", "--window", "1s"],
        &[
            "--key", "src/28", "--by", "bytes", "--top", "3", "--sketch", "exact",
        ],
        &[
            "--key",
            "src",
            "--window",
            "5s",
            "--late",
            "100ms",
            "--changers",
            "4",
            "--memory",
            "1M",
        ],
        &["--key", "proto", "--filter", "udp and src net 10.0.0.0/28"],
    ];
    for (i, flags) in cases.iter().enumerate() {
        let base = ["measure", &file, "--json", "--seed", "0", "--workers", "1"];
        expected.push_str(&format!(
            "measurement {i}\n{}",
            printed(&[&base, *flags].concat())
        ));
    }
    let flags = [
        "--json",
        "--ram",
        "16M",
        "--disk",
        "64M",
        "--reserve",
        "1",
        "--before",
        "1s",
        "--after",
        "500ms",
    ];
    let trigger = [
        "--trigger",
        "one=udp src port 40000 and greater 959",
        "--filter",
        "udp",
        &file,
        &theirs,
    ];
    let recorded = printed(&[&["record"], &flags[..], &trigger].concat()).replace(&theirs, &ours);
    expected.push_str(&format!("recording\n{recorded}"));
    let done = java.run(&[], "weir.TaskChecks", &[&file, &ours]);
    let (out, err) = (text(&done.stdout), text(&done.stderr));
    assert!(done.status.success() && err.is_empty(), "{out}{err}");
    // How often a segment is written, and so its size, depends on the time that the run takes.
    let without = |text: &str| text.split("\"segments\":").next().unwrap().to_owned();
    assert!(without(&out) == without(&expected), "{out}\n{expected}");
    // So few flows are counted, and not estimated over hashes with a drawn seed.
    let few = "tcp and src host 10.0.0.1";
    let by = [
        "measure", &file, "--json", "--key", "src", "--key", "dport", "--window", "1s", "--filter",
        few,
    ];
    assert_eq!(
        text(&java.run(&[], "TopTalkers", &[&file, few]).stdout),
        printed(&by)
    );
    for expression in ["", "src net 10.0.0.0/28", "tcp"] {
        let [ours, theirs] =
            [&ours, &theirs].map(|directory| printed(&["query", directory, expression, "--count"]));
        assert!(
            ours == theirs && (expression == "tcp") == (ours == "0\n"),
            "{expression}: {ours} {theirs}"
        );
    }
}

/// The same program in another language gives the same output; that in C is compared with tcpdump.
#[test]
fn samples_print_the_same_in_all_languages() {
    let test = "samples_print_the_same_in_all_languages";
    if !have(test, &["cc", "tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let libraries = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .to_owned();
    let (java, python) = (
        Java::new(test, &scratch),
        Python::new(test, &scratch, &["numpy"]),
    );
    // Cargo builds examples of a package with its tests.
    let examples = libraries.join("../examples");
    let has_rust = examples.join("count_by_port").exists();
    if !has_rust {
        skipped(
            test,
            "the samples in Rust are not built: cargo build -p weir-api --examples",
        );
    }
    let file = scratch.file("a.pcap", &mixed(20_000));
    let rules = scratch.file("rules", b"10.0.0.1 17\n10.0.0.4 6\n10.0.0.9 1\n");
    // A question on each link type, in one file.
    let asked = scratch.file("headers.pcapng", &links::headers(5000));
    let samples = [
        ("count_by_port", "CountByPort"),
        ("heavy_hitters", "HeavyHitters"),
        ("dns_names", "DnsNames"),
        ("capture_on_trigger", "CaptureOnTrigger"),
        ("firewall", "Firewall"),
        ("top_talkers", "TopTalkers"),
    ];
    let real: Vec<String> = captures(test)
        .iter()
        .map(|path| path.to_str().unwrap().to_owned())
        .collect();
    for (name, class) in samples {
        let program = scratch.at(name);
        let mut cc = Command::new("cc");
        cc.args(["-std=c11", "-o", &program, "-I"])
            .arg(root().join("crates/ffi/include"));
        cc.arg(root().join(format!("samples/c/{name}.c")))
            .arg(format!("-L{}", libraries.display()));
        assert!(
            cc.arg(format!("-Wl,-rpath,{}", libraries.display()))
                .arg("-lweir")
                .status()
                .unwrap()
                .success()
        );
        let writes = ["firewall", "capture_on_trigger"].contains(&name);
        let cases: Vec<Vec<&str>> = match name {
            "firewall" => vec![vec![&rules, &file]],
            "capture_on_trigger" => vec![
                vec![&file, "icmp and src 10.0.0.2"],
                vec![&file, "port port"],
            ],
            // Real questions are in some captures only.
            "dns_names" => [vec![&file[..]], vec![&asked[..]]]
                .into_iter()
                .chain(
                    real.iter()
                        .filter(|path| path.contains("dns"))
                        .map(|path| vec![&path[..]]),
                )
                .collect(),
            // So few flows are counted, and not estimated over hashes with a drawn seed.
            "top_talkers" => {
                vec![
                    vec![&file, "tcp and src host 10.0.0.1"],
                    vec![&file, "port port"],
                    vec!["nowhere.pcap"],
                ]
            }
            _ => vec![
                vec![&file],
                vec![&file, "udp"],
                vec![&file, "port port"],
                vec!["nowhere.pcap"],
            ],
        };
        for arguments in cases {
            let outs = ["c", "other"].map(|language| scratch.at(&format!("{language}.pcap")));
            let with = |out: usize| {
                let written = writes.then_some(&outs[out][..]);
                arguments
                    .iter()
                    .copied()
                    .chain(written)
                    .collect::<Vec<&str>>()
            };
            let of = |output: &Output| {
                (
                    output.status.code(),
                    text(&output.stdout),
                    text(&output.stderr),
                )
            };
            let expected = of(&Command::new(&program).args(with(0)).output().unwrap());
            let mut others = Vec::new();
            others.extend(java.as_ref().map(|java| java.command(&[], class, &with(1))));
            others.extend(python.as_ref().map(|python| {
                let script = root().join(format!("samples/python/{name}.py"));
                let mut command = python.command(&[script]);
                command.args(with(1));
                command
            }));
            others.extend(has_rust.then(|| {
                let mut command = Command::new(examples.join(name));
                command.args(with(1));
                command
            }));
            for mut other in others {
                assert_eq!(of(&other.output().unwrap()), expected, "{other:?}");
                if writes && expected.0 == Some(0) {
                    assert!(
                        std::fs::read(&outs[0]).unwrap() == std::fs::read(&outs[1]).unwrap(),
                        "{other:?}"
                    );
                    std::fs::remove_file(&outs[1]).unwrap();
                }
            }
        }
    }
}

/// The events of a recording are as many as the batches of the file, and hold its packets.
#[test]
fn batches_and_counts_are_in_a_flight_recording() {
    let scratch = Scratch::new();
    let Some(java) = Java::new("batches_and_counts_are_in_a_flight_recording", &scratch) else {
        return;
    };
    let (file, recording) = (scratch.file("a.pcap", &mixed(200_000)), scratch.at("a.jfr"));
    let flags = [
        format!("-XX:StartFlightRecording=filename={recording}"),
        "-Xlog:disable".to_owned(),
    ];
    let done = java.run(
        &flags.each_ref().map(String::as_str),
        "CountByPort",
        &[&file, "udp"],
    );
    assert!(done.status.success(), "{}", text(&done.stderr));
    let print = |event: &str| {
        let done = Command::new(java.home.join("bin/jfr"))
            .args(["print", "--events", event, &recording])
            .output()
            .unwrap();
        text(&done.stdout)
    };
    let sum = |printed: &str, field: &str| -> (usize, u64) {
        let values = printed.lines().filter_map(|line| {
            line.trim()
                .strip_prefix(field)?
                .trim()
                .strip_prefix("= ")?
                .parse::<u64>()
                .ok()
        });
        values.fold((0, 0), |(count, sum), value| (count + 1, sum + value))
    };
    let batches = print("weir.Batch");
    let (events, packets) = sum(&batches, "packets");
    assert!(
        events > 3 && packets == 200_000,
        "{events} events, {packets} packets: {batches}"
    );
    let counts = print("weir.Counts");
    let last = counts.rsplit("weir.Counts {").next().unwrap();
    assert_eq!(
        (sum(last, "received"), sum(last, "passed").1),
        ((1, 200_000), sum(&batches, "passed").1),
        "{counts}"
    );
}

/// Sockets of captures, and whether the interface takes packets for others, as `/proc` and `/sys` tell.
fn kernel_state() -> (usize, Option<bool>) {
    let sockets = std::fs::read_to_string("/proc/thread-self/net/packet")
        .unwrap()
        .lines()
        .count()
        - 1;
    let shown = Command::new("ip")
        .args(["-details", "link", "show", "near"])
        .output()
        .unwrap();
    let shown = text(&shown.stdout);
    let promiscuity = shown
        .split("promiscuity ")
        .nth(1)
        .and_then(|rest| rest.split(' ').next()?.parse::<u32>().ok());
    (sockets, promiscuity.map(|count| count > 0))
}

#[test]
fn a_java_program_that_is_killed_leaves_nothing_in_the_kernel() {
    let test = "a_java_program_that_is_killed_leaves_nothing_in_the_kernel";
    let scratch = Scratch::new();
    let Some(java) = Java::new(test, &scratch) else {
        return;
    };
    if !net::cable(test, "") {
        return;
    }
    let before = kernel_state();
    let mut child = java
        .command(&[], "CountByPort", &["af_packet:near"])
        .spawn()
        .unwrap();
    // The socket comes first, and the interface takes packets for others a moment later.
    wait::until("a capture", || {
        assert!(child.try_wait().unwrap().is_none(), "no capture");
        kernel_state() == (1, before.1.map(|_| true))
    });
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(kernel_state(), before);
}

#[test]
fn what_java_lacks_is_told() {
    let test = "what_java_lacks_is_told";
    let scratch = Scratch::new();
    let Some(java) = Java::new(test, &scratch) else {
        return;
    };
    let line = |flags: &[&str]| {
        let mut bare = Command::new(java.home.join("bin/java"));
        let done = bare
            .args(flags)
            .args(["-cp", &java.classes, "CountByPort", "a.pcap"])
            .output()
            .unwrap();
        assert_eq!(
            (done.status.code(), text(&done.stdout)),
            (Some(1), String::new())
        );
        text(&done.stderr)
    };
    let found = line(&[
        "--enable-native-access=ALL-UNNAMED",
        "-Dweir.library=/nowhere/libweir.so",
    ]);
    assert!(
        found.starts_with("weir: the library libweir.so cannot be loaded: "),
        "{found}"
    );
    let found = line(&[
        "--illegal-native-access=deny",
        "-Dweir.library=/nowhere/libweir.so",
    ]);
    assert_eq!(
        found,
        "weir: native access is not enabled: start java with --enable-native-access=ALL-UNNAMED\n"
    );
    let other = scratch.at("libother.so");
    let code = scratch.file("other.c", b"unsigned weir_abi(void) { return 99; }\n");
    if have(test, &["cc"])
        && Command::new("cc")
            .args(["-shared", "-fPIC", "-o", &other, &code])
            .status()
            .unwrap()
            .success()
    {
        let found = line(&[
            "--enable-native-access=ALL-UNNAMED",
            &format!("-Dweir.library={other}"),
        ]);
        assert_eq!(
            found,
            "weir: libweir.so has version 99 of its functions, and these classes know version 1\n"
        );
        let code = scratch.file("same.c", b"unsigned weir_abi(void) { return 1; }\n");
        assert!(
            Command::new("cc")
                .args(["-shared", "-fPIC", "-o", &other, &code])
                .status()
                .unwrap()
                .success()
        );
        let found = line(&[
            "--enable-native-access=ALL-UNNAMED",
            &format!("-Dweir.library={other}"),
        ]);
        assert!(
            found.starts_with(
                "weir: the library libweir.so cannot be used: it has no function weir_"
            ),
            "{found}"
        );
    }
}
