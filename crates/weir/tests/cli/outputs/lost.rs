//! What outputs took and lost: JSON, the summary and `--stats` have the same numbers, which add up to what tcpdump finds.

use super::*;
use serde_json::{Value, json};

/// A number as the summary prints it: `12 345`.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(' ');
        }
        text.push(digit);
    }
    text
}

/// Runs shell words in which `$W` is weir.
fn shell(words: &str) -> Done {
    let mut command = Command::new("sh");
    command
        .args(["-c", words])
        .env("W", env!("CARGO_BIN_EXE_weir"))
        .env("TZ", "UTC")
        .stdin(Stdio::null());
    run(&mut command, &[])
}

/// A file-size limit stands for a full disk; the reader of a named pipe leaves after some bytes.
#[test]
fn what_an_output_lost_is_told_alike_in_json_the_summary_and_stats() {
    let test = "what_an_output_lost_is_told_alike_in_json_the_summary_and_stats";
    if !have(test, &["tcpdump", "mkfifo", "head"]) {
        return;
    }
    let temp = Temp::new();
    let (file, out, pipe, few) = (
        temp.at("in.pcap"),
        temp.at("out.pcap"),
        temp.at("pipe.pcap"),
        temp.at("few.pcap"),
    );
    weir(["generate", &file, "--packets", "8000", "--seed", "4"]).ok();
    tool("mkfifo", [&pipe]).ok();
    let count = |expression: &str| {
        tool("tcpdump", ["-r", &file, "--count", expression])
            .ok()
            .count()
    };
    let (all, dns) = (count(""), count("udp port 53"));
    assert!(all == 8000 && dns > 10);
    let disk = format!("trap '' XFSZ; ulimit -f 2000; exec $W COMMAND -w {out}");
    let closed = format!("head -c 500000 {pipe} >/dev/null & exec $W COMMAND -w {pipe}");
    for (words, output, why) in [(&disk, &out, "failed"), (&closed, &pipe, "closed")] {
        for command in [format!("filter '' {file}"), format!("measure {file}")] {
            let context = format!("{command}, {why}");
            let words = words.replace("COMMAND", &command);
            let done = shell(&format!(
                "{words} --split {few}='udp port 53' --json --stats"
            ));
            let text = done.text();
            let object: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
            assert_eq!(
                done.code,
                Some(i32::from(why == "failed")),
                "{context}: {}",
                done.err
            );
            let taken = object["taken"].as_u64().expect("what was written");
            let lost = all - taken;
            assert!(taken > 0 && lost > 0, "{context}: {object}");
            assert_eq!(object["lost"], json!({ why: lost }), "{context}");
            assert_eq!(
                object["files"],
                json!({ "taken": dns, "lost": {} }),
                "{context}"
            );
            if why == "failed" {
                assert_eq!(records(output).len() as u64, taken, "{context}");
            }
            let (taken, lost) = (grouped(taken), grouped(lost));
            for line in [
                format!("{taken} written to {output}, {lost} lost: {why}"),
                format!("output {output}: 8 000 matched, {taken} taken, {lost} lost ({why})"),
            ] {
                assert!(done.err.contains(&line), "{context}: {line}: {}", done.err);
            }
        }
    }
    // Outputs that lose nothing say so, and packets that are counted have no output.
    let whole = weir(["filter", "", &file, "-w", &out, "--json"]).ok();
    let object: Value = serde_json::from_str(&whole.text()).unwrap();
    assert_eq!(
        (&object["taken"], &object["lost"]),
        (&json!(all), &json!({}))
    );
    assert!(object.get("files").is_none());
    for more in [&["--count"][..], &["-c", "1"]] {
        let done = weir([&["filter", "", &file, "--json"][..], more].concat()).ok();
        assert!(!done.text().contains("\"taken\""), "{}", done.text());
    }
}
