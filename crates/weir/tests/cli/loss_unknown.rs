//! Times for which nothing tells what was lost, because a recorder was killed: records, copies of them, and copies of copies tell them.

use crate::losses::last_count;
use crate::recording::*;
use crate::support::*;
use serde_json::Value;
use std::io::Write;

/// Has a recorder make `packets` durable, and kills it.
pub fn killed_recorder(directory: &str, packets: u16) {
    let mut child = start_recorder(
        directory,
        &["--disk", "1G", "--sync", "20ms", "--ram", "8M"],
    );
    let mut input = child.stdin.take().unwrap();
    input.write_all(&small_pcap(packets)).unwrap();
    input.flush().unwrap();
    let mut client = connected(directory);
    until_durable(&mut client, packets.into());
    child.kill().unwrap();
    child.wait().unwrap();
}

/// The last object that a command prints.
pub fn object(words: &[&str]) -> Value {
    let text = weir(words).ok().text();
    serde_json::from_str(text.lines().last().unwrap()).unwrap()
}

/// Times of unknown loss that a reader tells.
fn unknown(words: &[&str]) -> Vec<(i128, Option<i128>)> {
    let ns = |time: &Value| {
        let time: jiff::Timestamp = time.as_str()?.parse().unwrap();
        Some(time.as_nanosecond())
    };
    let told = object(words)["loss_unknown"].clone();
    told.as_array()
        .unwrap_or(&Vec::new())
        .iter()
        .map(|one| (ns(&one["from"]).unwrap(), ns(&one["to"])))
        .collect()
}

/// Each reader of a file or a record tells these times, in its line and in its objects.
fn all_tell(file: &str, right: &[(i128, Option<i128>)]) {
    for words in [
        &["measure", "--json", file][..],
        &["filter", "udp", file, "--json", "--count"],
        &["info", "--json", file],
    ] {
        assert_eq!(unknown(words), right, "{words:?}");
    }
    for words in [&["measure", file][..], &["filter", "udp", file, "--count"]] {
        let done = weir(words).ok();
        assert!(
            done.err.contains("of dropped packets is of"),
            "{words:?}: {}",
            done.err
        );
    }
    let text = weir(["measure", file]).ok().text();
    assert!(
        text.contains("loss unknown") && !text.contains("no loss"),
        "{text}"
    );
    assert!(weir(["info", file]).ok().text().contains("  not told  "));
}

/// Two recorders were killed in one record, and a third one went on.
#[test]
fn copies_tell_each_recording_that_broke_off() {
    let temp = Temp::new();
    let (out, file) = (temp.at("out"), temp.file("all.pcap", &small_pcap(600)));
    killed_recorder(&out, 300);
    killed_recorder(&out, 200);
    weir(["record", &file, &out, "--disk", "1G"]).ok();
    let right = unknown(&["info", "--json", &out]);
    assert!(
        right.len() == 2 && right.iter().all(|(_, to)| to.is_some()),
        "{right:?}"
    );
    all_tell(&out, &right);
    let (copy, again, none) = (
        temp.at("copy.pcapng"),
        temp.at("again.pcapng"),
        temp.at("none.pcapng"),
    );
    for words in [
        &["query", &out][..],
        &["filter", "", &out],
        &["filter", "", &out, "--sort"],
        &["filter", "", &out, "--merge"],
        &["measure", &out],
    ] {
        weir([words, &["-w", &copy]].concat()).ok();
        all_tell(&copy, &right);
    }
    weir(["filter", "udp", &copy, "-w", &again]).ok();
    all_tell(&again, &right);
    // A copy without packets.
    weir(["filter", "tcp", &again, "-w", &none]).ok();
    all_tell(&none, &right);
    // A pcap file has no place for it, and a line counts that.
    for source in [&out, &copy] {
        let done = weir(["filter", "", source, "-w", &temp.at("copy.pcap")]).ok();
        assert!(
            done.err.contains(
                "2 times without a count of lost packets, 1 remark on what is missing are left out"
            ),
            "{}",
            done.err
        );
    }
}

/// No recorder went on behind one that was killed: the last count is of a time that the segment itself tells.
#[test]
fn copies_tell_that_the_last_recording_broke_off() {
    let temp = Temp::new();
    let (out, copy) = (temp.at("out"), temp.at("copy.pcapng"));
    killed_recorder(&out, 300);
    let right = [(i128::from(last_count(&segments(&out)[0])), None)];
    all_tell(&out, &right);
    weir(["query", &out, "-w", &copy]).ok();
    all_tell(&copy, &right);
    let (again, none) = (temp.at("again.pcapng"), temp.at("none.pcapng"));
    weir(["filter", "udp", &copy, "-w", &again]).ok();
    all_tell(&again, &right);
    weir(["filter", "tcp", &again, "-w", &none]).ok();
    all_tell(&none, &right);

    // Beside a file that is whole, and a record with another end.
    let (whole, other) = (temp.file("all.pcap", &small_pcap(60)), temp.at("other"));
    killed_recorder(&other, 100);
    let later = i128::from(last_count(&segments(&other)[0]));
    assert!(later > right[0].0);
    for how in ["--merge", "--sort"] {
        let both = temp.at("both.pcapng");
        weir(["filter", "", &other, &whole, &copy, how, "-w", &both]).ok();
        // All that is later is part of the first time.
        all_tell(&both, &right);
    }
}

/// The state of a recorder tells of the latest one that was killed, though others made its index anew since.
#[test]
fn the_state_of_a_recorder_tells_of_an_earlier_one_that_was_killed() {
    let temp = Temp::new();
    let (out, file) = (temp.at("out"), temp.file("all.pcap", &small_pcap(60)));
    killed_recorder(&out, 300);
    let right = last_count(&segments(&out)[0]);
    let is_told = || {
        let mut child = start_recorder(&out, &["--disk", "1G"]);
        let told = status(&mut connected(&out))["disk"]["unended_ns"].clone();
        drop(child.stdin.take());
        child.wait().unwrap();
        told == right
    };
    weir(["record", "--reindex", &out]).ok();
    assert!(is_told(), "after --reindex");
    weir(["record", &file, &out, "--disk", "1G"]).ok();
    assert!(is_told(), "after a recorder that ended");
    // An index that is lost is made anew by the recorder itself.
    std::fs::remove_file(segments(&out)[0].replace(".pcapng", ".index")).unwrap();
    assert!(is_told(), "without an index");
    killed_recorder(&out, 100);
    let later = last_count(segments(&out).last().unwrap());
    assert!(later > right);
    let mut child = start_recorder(&out, &["--disk", "1G"]);
    let told = status(&mut connected(&out))["disk"]["unended_ns"].clone();
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(told, later);
}

/// Segments of a record of a file: one that somebody emptied, and two that changed their names, are no recorder that was killed.
#[test]
fn what_happens_to_segments_afterwards_is_no_unknown_loss() {
    let temp = Temp::new();
    let (out, file) = (temp.at("out"), temp.file("all.pcap", &small_pcap(60_000)));
    weir(["record", &file, &out, "--disk", "1G", "--segment", "1M"]).ok();
    let paths = segments(&out);
    assert!(paths.len() > 3);
    let aside = temp.at("aside");
    std::fs::rename(&paths[0], &aside).unwrap();
    std::fs::rename(&paths[2], &paths[0]).unwrap();
    std::fs::rename(&aside, &paths[2]).unwrap();
    // All packets in their order, as in the file.
    let copy = temp.at("copy.pcapng");
    let done = weir(["query", &out, "-w", &copy]).ok();
    assert!(!done.err.contains("not told"), "{}", done.err);
    assert!(records(&copy) == records(&file));
    assert_eq!(unknown(&["info", "--json", &out]), []);
    std::fs::write(&paths[1], []).unwrap();
    let done = weir(["query", &out, "--count"]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(!done.err.contains("not told"), "{}", done.err);
    let about: Value = serde_json::from_str(&weir(["info", "--json", &out]).text()).unwrap();
    assert_eq!(about["loss_unknown"], serde_json::json!([]));
}

/// The summary of a firewall over a record, or over a copy, tells as much of its packets as those of other commands.
#[test]
fn a_firewall_tells_what_its_sources_lack() {
    let temp = Temp::new();
    let (out, copy) = (temp.at("out"), temp.at("copy.pcapng"));
    killed_recorder(&out, 300);
    let rules = temp.file("rules", b"pass udp\n");
    weir(["query", &out, "udp", "-w", &copy]).ok();
    for source in [&out, &copy] {
        let about = object(&["filter", "", source, "--json", "--count"]);
        let told = object(&["firewall", "check", &rules, source, "--json"]);
        assert!(about["loss_unknown"].is_array(), "{about}");
        for name in ["loss_unknown", "holds_only", "lost_before"] {
            assert_eq!(told[name], about[name], "{name} of {source}");
        }
    }
    let (file, part) = (temp.file("all.pcap", &small_pcap(60)), temp.at("part"));
    weir(["record", &file, &part, "--disk", "1G", "--filter", "udp"]).ok();
    let about = object(&["filter", "", &part, "--json", "--count"]);
    let told = object(&["firewall", "check", &rules, &part, "--json"]);
    assert!(about["holds_only"].is_array(), "{about}");
    assert_eq!(told["holds_only"], about["holds_only"]);
}
