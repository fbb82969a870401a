//! Ends of a run: by interruption, without a reader, without room for output.

use super::*;
use crate::live::{signal, start, until_read};
use std::fs::OpenOptions;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

#[test]
fn a_followed_file_is_answered_window_by_window_until_it_is_interrupted() {
    let temp = Temp::new();
    for (name, more) in [
        ("-INT", &[][..]),
        ("-TERM", &["--workers", "1"]),
        ("-INT", &["--design", "sync"]),
    ] {
        let path = temp.file("growing.pcap", &small_pcap(5));
        let fixed = ["measure", &path, "--follow", "--window", "1s", "--json"];
        let mut child = start(&[&fixed[..], more].concat());
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = || {
            let mut line = String::new();
            output.read_line(&mut line).unwrap();
            serde_json::from_str::<Value>(&line).unwrap()
        };
        // Packets are a second apart. A window is printed when a packet comes a second after its end.
        (0..3).for_each(|_| assert_eq!(line()["passed"], 1));
        let mut writer = OpenOptions::new().append(true).open(&path).unwrap();
        writer
            .write_all(&pcap_record(BEGIN as u32 + 5, &udp(9, 0)))
            .unwrap();
        assert_eq!(
            line()["top"][0]["dport"],
            4,
            "told while the source goes on"
        );
        signal(&child, name);
        assert_eq!(
            [line(), line()].map(|window| window["passed"].clone()),
            [json!(1), json!(1)]
        );
        let summary = line();
        assert_eq!(
            (&summary["window"], &summary["passed"]),
            (&Value::Null, &json!(6))
        );
        let done = gather(child, &[]).ok();
        let last = done.err.lines().last().unwrap();
        assert!(
            last.starts_with("6 received, 6 measured, 0 filtered, 0 dropped, "),
            "{}",
            done.err
        );
        assert!(!last.contains("interrupted"), "that is how it ends: {last}");
    }
}

#[test]
fn an_interrupted_run_answers_for_what_it_read() {
    let temp = Temp::new();
    let file = temp.file("five.pcap", &small_pcap(5));
    for design in [&[][..], &["--workers", "1"], &["--design", "sync"]] {
        let follow = [&["measure", "--json", &file, "--follow"], design].concat();
        let pipe = [&["measure", "--json", "-"], design].concat();
        for (arguments, endless) in [(follow, true), (pipe, false)] {
            let mut child = start(&arguments);
            let mut input = child.stdin.take().unwrap();
            // With --follow, standard input is not read. Otherwise its packets would be counted twice.
            input.write_all(&small_pcap(5)).unwrap();
            if endless {
                until_read(&child, &file);
            } else {
                wait::until("the last byte", || wait::unread(&input) == 0);
            }
            wait::until_asleep(child.id(), |_| true);
            signal(&child, "-INT");
            let done = gather(child, &[]).ok();
            assert_eq!(objects(&done)[0]["passed"], 5, "{arguments:?}");
            assert_eq!(
                done.err.ends_with(", interrupted\n"),
                !endless,
                "{arguments:?}: {}",
                done.err
            );
            drop(input);
        }
    }
}

#[test]
fn a_duration_ends_a_follow() {
    let temp = Temp::new();
    let file = temp.file("ten.pcap", &small_pcap(10));
    assert_eq!(
        measure_one(&[&file, "--follow", "--duration", "1s"])["passed"],
        10
    );
}

#[test]
fn a_reader_that_goes_away_ends_it_quietly() {
    let temp = Temp::new();
    let file = temp.at("g.pcap");
    weir(["generate", &file, "--packets", "30000"]).ok();
    let weir = env!("CARGO_BIN_EXE_weir");
    for more in [
        "--top 100000",
        "--top 100000 --json",
        "--window 1ms",
        "--window 1ms --json --workers 1",
    ] {
        let script = format!(
            "{{ '{weir}' measure '{file}' {more} 2>/dev/null; echo \"code $?\" >&2; }} | head -1 | wc -l"
        );
        let done = run(
            Command::new("sh")
                .args(["-c", &script])
                .stdin(Stdio::null()),
            &[],
        );
        assert_eq!(
            (done.err.as_str(), done.text().trim()),
            ("code 0\n", "1"),
            "{more}"
        );
    }
}

#[test]
fn a_full_disk_is_a_failure_that_is_told() {
    let test = "a_full_disk_is_a_failure_that_is_told";
    let Ok(_) = OpenOptions::new().write(true).open("/dev/full") else {
        skipped(test, "no /dev/full");
        return;
    };
    let temp = Temp::new();
    let file = temp.file("ten.pcap", &small_pcap(10));
    for more in [
        &[][..],
        &["--json"],
        &["--window", "1s"],
        &["--window", "1s", "--json", "--design", "async"],
    ] {
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut command = weir_command();
        command
            .args([&["measure", file.as_str()], more].concat())
            .stdout(full)
            .stderr(Stdio::piped());
        let done = gather(command.spawn().unwrap(), &[]);
        assert_eq!(done.code, Some(1), "{more:?}: {}", done.err);
        let lines: Vec<&str> = done.err.lines().collect();
        let (told, summary) = (lines[lines.len() - 2], lines[lines.len() - 1]);
        assert_eq!(
            told, "weir: standard output: no space left on the device",
            "{more:?}"
        );
        assert!(
            summary.contains(" received, ")
                && summary.ends_with(", incomplete: see the fault above"),
            "{summary}"
        );
        assert!(!summary.contains("interrupted"), "nobody did: {summary}");
    }
}

#[test]
fn stats_account_for_every_packet() {
    let temp = Temp::new();
    let file = temp.file("ten.pcap", &small_pcap(10));
    for (design, words) in [
        ("rss", "design rss: 2 workers"),
        ("async", "design async: a distributor and 2 workers"),
        ("sync", "design sync: "),
    ] {
        let arguments = [
            "measure",
            &file,
            "--filter",
            "udp dst portrange 1-4",
            "--stats",
            "--workers",
            "2",
            "--design",
            design,
        ];
        let done = weir(arguments).ok();
        assert!(
            done.err
                .starts_with("10 received, 4 measured, 6 filtered, 0 dropped, "),
            "{}",
            done.err
        );
        assert!(
            done.err
                .contains("received 10 = passed 4 + filtered 6 + denied 0 + dropped 0"),
            "{}",
            done.err
        );
        for words in [
            words,
            "5tuple: heavy, room for ",
            "processing time of a packet: p50 ",
        ] {
            assert!(done.err.contains(words), "{words}: {}", done.err);
        }
    }
}

/// The file name contains words of the heading.
#[test]
fn a_heading_has_the_whole_name_of_the_file_and_what_was_lost() {
    let temp = Temp::new();
    let bytes = small_pcap(5);
    let name = "odd  no loss  name.pcap";
    let cut = temp.file(name, &bytes[..bytes.len() - 3]);
    for (more, title) in [
        (&[][..], "{}"),
        (&["--window", "100s"], "the only window of {}"),
        (&["--window", "1s"], "all 4 windows of {}"),
    ] {
        let done = weir([&["measure", &cut], more].concat());
        assert_eq!(done.code, Some(1), "{}", done.err);
        let heading = format!("{}  4 packets  248 B  ", title.replace("{}", &cut));
        let told = |line: &str| {
            line.strip_prefix(&heading)
                .is_some_and(|rest| rest.contains(" s  incomplete "))
        };
        assert!(done.text().lines().any(told), "{heading}: {}", done.text());
    }
    let whole = temp.file(name, &bytes);
    let text = weir(["measure", &whole]).ok().text();
    assert!(
        text.starts_with(&format!(
            "{whole}  5 packets  310 B  4.0 s  loss not recorded "
        )),
        "{text}"
    );
}
