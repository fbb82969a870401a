//! Packets that a record lacks: each reader tells them, and the exit code of the recorder does.

mod damaged;

use crate::capture::net::Net;
use crate::recording::*;
use crate::support::*;
use serde_json::Value;
use std::path::Path;
use std::time::{Duration, Instant};

/// A library that makes each write and each fdatasync of the program that it is preloaded into slow.
const SLOW: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <unistd.h>
static void rest(void) { usleep(300000); }
ssize_t pwrite64(int file, const void *bytes, size_t count, off_t offset) {
    ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite64");
    if (count >= 4096) rest();
    return real(file, bytes, count, offset);
}
int fdatasync(int file) {
    int (*real)(int) = dlsym(RTLD_NEXT, "fdatasync");
    rest();
    return real(file);
}
"#;

/// Packets in the segments, as capinfos counts them.
fn counted_by_capinfos(directory: &str) -> u64 {
    let count = |segment: &String| {
        let text = tool("capinfos", ["-c", "-M", segment]).text();
        let words = text
            .lines()
            .find(|line| line.starts_with("Number of packets"))
            .expect("a count");
        words
            .split_whitespace()
            .last()
            .unwrap()
            .parse::<u64>()
            .unwrap()
    };
    segments(directory).iter().map(count).sum()
}

/// The last count of dropped packets in a segment, as tshark shows the file block by block.
fn dropped_by_tshark(segment: &str) -> u64 {
    let text = tool(
        "tshark",
        ["-r", segment, "-X", "read_format:MIME Files Format", "-V"],
    )
    .text();
    let mut counts = text.lines().filter_map(|line| {
        line.trim()
            .strip_prefix("Number of Dropped Packets by OS: ")
    });
    counts
        .next_back()
        .expect("there are statistics")
        .parse()
        .unwrap()
}

/// A disk too slow for the traffic: what is durable is counted, and what is missing is told by every reader, also after a kill.
#[test]
fn what_a_slow_disk_leaves_out_is_told_by_every_reader() {
    let test = "what_a_slow_disk_leaves_out_is_told_by_every_reader";
    if !have(test, &["cc", "capinfos", "tshark"]) {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let (source, library) = (temp.at("slow.c"), temp.at("slow.so"));
    std::fs::write(&source, SLOW).unwrap();
    tool("cc", ["-shared", "-fPIC", "-o", &library, &source, "-ldl"]).ok();
    let preload = format!("LD_PRELOAD={library}");
    let frames: Vec<_> = (0..20_000)
        .map(|number| numbered(53, number, 600))
        .collect();
    let record = |out: &str| {
        let words = [
            "env",
            &preload,
            env!("CARGO_BIN_EXE_weir"),
            "record",
            "near",
            out,
            "--disk",
            "1G",
            "--ram",
            "2M",
        ];
        net.start(
            &[&words[..], &["--segment", "1M", "--sync", "100ms"]].concat(),
            "AF_PACKET",
        )
    };

    let out = temp.at("out");
    let capture = record(&out);
    let sent = net.send(&frames, 200);
    let done = capture.stop();
    let present = counted_by_capinfos(&out);
    let lost = sent - present;
    assert!(
        lost > 1000 && present > 100,
        "{present} of {sent}: {}",
        done.err
    );
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(
        done.err
            .contains(&format!("weir: {out}: the record is not whole: ")),
        "{}",
        done.err
    );
    assert!(
        done.err
            .contains(&format!("disk: {} packets durable", spaced(present))),
        "{}",
        done.err
    );
    let missing = format!(
        "{out}: {} packets were dropped when it was captured, it says, and are not in it",
        spaced(lost)
    );
    let query = weir(["query", &out, "--count"]).ok();
    assert!(
        query.count() == present && query.err.contains(&missing),
        "{lost}: {}",
        query.err
    );
    for arguments in [
        ["measure", &out].as_slice(),
        &["filter", "", &out, "--count"],
    ] {
        let done = weir(arguments).ok();
        assert!(done.err.contains(&missing), "{}", done.err);
        let told = format!("{} lost before", spaced(lost));
        assert!(
            done.text().contains(&told) || done.err.contains(&told),
            "{}{}",
            done.text(),
            done.err
        );
    }
    let about: Value = serde_json::from_str(&weir(["info", "--json", &out]).ok().text()).unwrap();
    assert_eq!(about["interfaces"][0]["dropped"], lost, "{about}");
    // What is copied from it says so too, and so does each segment of its own part.
    let copy = temp.at("copy.pcapng");
    weir(["query", &out, "-w", &copy]).ok();
    let about: Value = serde_json::from_str(&weir(["info", "--json", &copy]).ok().text()).unwrap();
    assert_eq!(about["interfaces"][0]["dropped"], lost, "{about}");
    let all = segments(&out);
    assert_eq!(dropped_by_tshark(all.last().unwrap()), lost);

    // A kill leaves the last interval unsaid, and readers say that.
    let out = temp.at("killed");
    let capture = record(&out);
    net.send(&frames, 200);
    wait::until("two segments", || segments(&out).len() >= 2);
    capture.signal("-KILL");
    capture.done();
    let done = weir(["query", &out, "--count"]);
    assert!(
        done.err
            .contains("its last count of dropped packets is of "),
        "{}",
        done.err
    );
}

/// `12 345` for 12345.
fn spaced(number: u64) -> String {
    let digits = number.to_string();
    let groups = digits
        .as_bytes()
        .rchunks(3)
        .rev()
        .map(|group| std::str::from_utf8(group).unwrap());
    groups.collect::<Vec<_>>().join(" ")
}

/// A capture with one packet that says that it lacks 37.
pub fn lacking() -> Vec<u8> {
    let mut bytes = Vec::new();
    for block in [
        &[0x0a0d_0d0au32, 28, 0x1a2b_3c4d, 1, u32::MAX, u32::MAX, 28][..],
        &[1, 20, 1, 0, 20],
        &[6, 36, 0, 0x0006_0a24, 0x181e_4000, 4, 60, 0x0102_0304, 36],
        // isb_osdrop
        &[
            5,
            40,
            0,
            0x0006_0a24,
            0x181e_4000,
            8 << 16 | 7,
            37,
            0,
            0,
            40,
        ],
    ] {
        block
            .iter()
            .for_each(|word| bytes.extend(word.to_le_bytes()));
    }
    bytes
}

/// A capture that says what it lacks, recorded: the record says it too.
#[test]
fn what_a_recorded_file_lacks_the_record_tells() {
    let temp = Temp::new();
    let (file, out) = (temp.file("a.pcapng", &lacking()), temp.at("out"));
    weir(["record", &file, &out, "--disk", "100M"]).ok();
    let done = weir(["query", &out, "--count"]).ok();
    assert!(
        done.count() == 1
            && done
                .err
                .contains("37 packets were dropped when it was captured"),
        "{}",
        done.err
    );
    let about: Value =
        serde_json::from_str(&weir(["info", "--json", &segments(&out)[0]]).ok().text()).unwrap();
    assert_eq!(about["interfaces"][0]["dropped"], 37, "{about}");
    assert!(Path::new(&out).is_dir());
}

/// Links and pipes among the files of a record, and a directory in which others may write: nothing elsewhere is touched, nothing hangs.
#[test]
fn a_record_holds_its_files_itself() {
    use std::os::unix::fs::{PermissionsExt, symlink};
    let test = "a_record_holds_its_files_itself";
    if !have(test, &["mkfifo", "timeout", "truncate"]) {
        return;
    }
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let (file, elsewhere) = (temp.at("all.pcap"), temp.at("elsewhere"));
    std::fs::write(&elsewhere, b"not weir's").unwrap();
    let fresh = |name: &str| {
        let directory = temp.at(name);
        record(&directory, &packets[..2000]);
        directory
    };
    let untouched = || assert_eq!(std::fs::read(&elsewhere).unwrap(), b"not weir's");
    std::fs::write(&file, small_pcap(20)).unwrap();
    let recorded = |directory: &str| {
        weir([
            "record",
            &file,
            directory,
            "--disk",
            "100M",
            "--reserve",
            "0",
        ])
    };

    for name in [
        "lock",
        "20231114T221320.000000000Z-000009.pcapng",
        "20231114T221320.000000000Z-000009.pcapng.zst",
    ] {
        let directory = fresh(&format!("linked-{}", name.len()));
        let link = format!("{directory}/{name}");
        let _ = std::fs::remove_file(&link);
        symlink(&elsewhere, &link).unwrap();
        let done = recorded(&directory);
        let refused = done.code != Some(0)
            && done
                .err
                .contains("is a link, and a record holds its files itself");
        assert!(refused || name != "lock", "{}", done.err);
        untouched();
        let done = weir(["query", &directory, "--count"]);
        assert!(
            done.count() == 2000 || name != "lock",
            "{name}: {}",
            done.err
        );
        assert!(
            name == "lock" || done.code == Some(1) && done.err.contains("is a link"),
            "{name}: {}",
            done.err
        );
    }

    // A pipe that no program writes to, in the place of an index and of a segment.
    let directory = fresh("pipes");
    let index = segments(&directory)[0].replace(".pcapng", ".index");
    std::fs::remove_file(&index).unwrap();
    tool("mkfifo", [&index]).ok();
    let query = |directory: &str| {
        tool(
            "timeout",
            [
                "-k",
                "1",
                "20",
                env!("CARGO_BIN_EXE_weir"),
                "query",
                directory,
                "--count",
            ],
        )
    };
    let done = query(&directory);
    assert!(
        done.count() == 2000 && done.err.contains("not a regular file"),
        "{}",
        done.err
    );
    tool(
        "mkfifo",
        [&format!(
            "{directory}/20231114T221320.000000000Z-000009.pcapng"
        )],
    )
    .ok();
    let done = query(&directory);
    assert!(
        done.code == Some(1) && done.count() == 2000 && done.err.contains("not a regular file"),
        "{}",
        done.err
    );

    // A file of a terabyte of nothing, which a signal ends at once.
    let directory = fresh("sparse");
    tool(
        "truncate",
        [
            "-s",
            "1T",
            &format!("{directory}/20231114T221320.000000000Z-000009.pcapng"),
        ],
    )
    .ok();
    let begun = Instant::now();
    let done = tool(
        "timeout",
        [
            "-s",
            "INT",
            "-k",
            "5",
            "3",
            env!("CARGO_BIN_EXE_weir"),
            "query",
            &directory,
            "--count",
        ],
    );
    assert!(
        begun.elapsed() < Duration::from_secs(7) && done.code != Some(137),
        "{:?}: {done:?}",
        begun.elapsed()
    );

    // Holes are jumped over, wherever they are: behind the packets and amid them.
    let directory = fresh("holes");
    let segment = segments(&directory)[0].clone();
    let whole = std::fs::read(&segment).unwrap();
    let split = whole.len() / 2 / 4096 * 4096;
    let hole: u64 = 3 << 30;
    for (front, far) in [(whole.len(), hole), (split, hole)] {
        let file = std::fs::File::create(&segment).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &whole[..front], 0).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &whole[front..], front as u64 + far)
            .unwrap();
        file.set_len(whole.len() as u64 + far).unwrap();
        for reindexed in [false, true] {
            let begun = Instant::now();
            if reindexed {
                let done = weir(["record", "--reindex", &directory]).ok();
                assert!(
                    done.err.contains("a place is damaged and left out"),
                    "{}",
                    done.err
                );
            }
            let done = weir(["query", &directory, "--count"]);
            assert!(
                begun.elapsed() < Duration::from_secs(2),
                "{:?}",
                begun.elapsed()
            );
            let (count, is_told) = (
                done.count(),
                done.err.contains("damaged block") && done.code == Some(1),
            );
            assert!(
                is_told
                    && if front == split {
                        count > 800
                    } else {
                        count == 2000
                    },
                "{count} {}",
                done.err
            );
        }
    }

    // Others could put links there at any time.
    let directory = fresh("open");
    std::fs::set_permissions(&directory, std::fs::Permissions::from_mode(0o777)).unwrap();
    for done in [
        recorded(&directory),
        weir(["record", "--reindex", &directory]),
    ] {
        assert!(
            done.code == Some(2) && done.err.contains("other users may write in this directory"),
            "{}",
            done.err
        );
    }
}

/// A request with members of a wrong kind, or unknown ones, does nothing but say so.
#[test]
fn requests_with_wrong_members_are_refused() {
    let temp = Temp::new();
    let out = temp.at("out");
    let mut child = start_recorder(
        &out,
        &["--trigger", "a=udp", "--trigger", "b=tcp", "--ram", "8M"],
    );
    let mut client = connected(&out);
    let refused = [
        (
            serde_json::json!({"request": "trigger", "name": 5}),
            "\"name\" is a string, and not 5",
        ),
        (
            serde_json::json!({"request": "trigger", "name": ["a"]}),
            "\"name\" is a string",
        ),
        (
            serde_json::json!({"request": "trigger", "nam": "a"}),
            "the request trigger has no member \"nam\"; it has name",
        ),
        (
            serde_json::json!({"request": "status", "of": 1}),
            "the request status has no member \"of\"; it has none",
        ),
        (
            serde_json::json!({"request": "query", "expression": 7}),
            "\"expression\" is a string, and not 7",
        ),
        (
            serde_json::json!({"request": "query", "follow": "yes"}),
            "\"follow\" is true or false",
        ),
        (
            serde_json::json!({"request": "query", "behind_tags": 1}),
            "\"behind_tags\" is true or false",
        ),
        (
            serde_json::json!({"request": "query", "from_ns": "1"}),
            "from_ns is not a time",
        ),
        (serde_json::json!({"request": 5}), "a request has a member"),
    ];
    for (request, why) in refused {
        let error = client.ask(&request).unwrap_err().to_string();
        assert!(error.contains(why), "{request}: {error}");
    }
    let triggers = &status(&mut client)["triggers"];
    assert!(
        triggers[0]["fired"] == 0 && triggers[1]["fired"] == 0,
        "{triggers}"
    );
    drop(child.stdin.take());
    child.wait().unwrap();
}

/// Packets that the kernel drops are told while the recording goes on, as at its end.
#[test]
fn a_recording_under_way_tells_what_the_kernel_dropped() {
    let Some(net) = Net::new("a_recording_under_way_tells_what_the_kernel_dropped") else {
        return;
    };
    let temp = Temp::new();
    let out = temp.at("out");
    let words = [
        env!("CARGO_BIN_EXE_weir"),
        "record",
        "near",
        &out,
        "--ram",
        "8M",
        "--ring",
        "1M",
        "--json",
    ];
    let mut capture = net.start(&words, "AF_PACKET");
    capture.signal("-STOP");
    let frames: Vec<_> = (0..6000).map(|number| numbered(53, number, 900)).collect();
    net.send(&frames, 0);
    capture.signal("-CONT");
    let ask = || -> Value {
        serde_json::from_str(&weir(["record", "--status", &out]).ok().text()).unwrap()
    };
    let now = wait::until_ok(|| match ask() {
        now if now["dropped"]["kernel"] == 0 => Err(now),
        now => Ok(now),
    });
    let dropped = now["dropped"]["kernel"].as_u64().unwrap();
    assert!(dropped > 100, "{now}");
    let told = format!("{} dropped: kernel", spaced(dropped));
    capture.asked(&told);
    let done = capture.stop();
    let end: Value = serde_json::from_str(done.text().lines().last().unwrap()).unwrap();
    assert_eq!(end["dropped"]["kernel"], dropped, "{now} {end}");
    assert!(done.err.contains(&told), "{}", done.err);
    // All that the status has, the end has under the same names.
    let names = |value: &Value| {
        value
            .as_object()
            .unwrap()
            .keys()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert!(
        names(&now).iter().all(|name| names(&end).contains(name)),
        "{now} {end}"
    );
}

/// Time of the last interface statistics of a segment, ns since 1970, read byte by byte.
pub fn last_count(segment: &str) -> u64 {
    let bytes = std::fs::read(segment).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut last, mut at) = (0, 0);
    while at + 12 <= bytes.len() && word(at + 4) >= 12 {
        if word(at) == 5 {
            // In microseconds, as the source has it.
            last = (u64::from(word(at + 12)) << 32 | u64::from(word(at + 16))) * 1000;
        }
        at += word(at + 4) as usize;
    }
    last
}

/// A recorder that is killed, and another one that goes on in its directory: nobody counted what the first lost at its end. Each
/// reader of that time says so, and so do copies.
#[test]
fn the_end_of_a_killed_recording_is_told_when_another_goes_on() {
    use std::io::Write;
    let temp = Temp::new();
    let (file, out, copy) = (
        temp.file("all.pcap", &small_pcap(600)),
        temp.at("out"),
        temp.at("copy.pcapng"),
    );
    let mut child = start_recorder(&out, &["--disk", "1G", "--sync", "20ms", "--ram", "8M"]);
    let mut input = child.stdin.take().unwrap();
    input.write_all(&small_pcap(300)).unwrap();
    input.flush().unwrap();
    let mut client = connected(&out);
    until_durable(&mut client, 300);
    child.kill().unwrap();
    child.wait().unwrap();
    let from_ns = last_count(&segments(&out)[0]);

    // The next one says it when it begins, and in its state.
    let mut child = start_recorder(&out, &["--disk", "1G", "--sync", "20ms", "--ram", "8M"]);
    let mut client = connected(&out);
    assert_eq!(status(&mut client)["disk"]["unended_ns"], from_ns);
    drop(child.stdin.take());
    child.wait().unwrap();
    weir(["record", &file, &out, "--disk", "1G"]).ok();

    let line =
        format!("weir: {out}: a recording broke off: its last count of dropped packets is of ");
    let told = |done: &Done| done.err.matches(&line).count();
    for words in [
        &["query", &out, "--count"][..],
        &["measure", &out],
        &["filter", "udp", &out, "--count"],
    ] {
        let done = weir(words).ok();
        assert_eq!(told(&done), 1, "{words:?}: {}", done.err);
    }
    let object = |words: &[&str]| -> Value {
        serde_json::from_str(weir(words).ok().text().lines().last().unwrap()).unwrap()
    };
    let stamp = |ns: u64| jiff::Timestamp::from_nanosecond(i128::from(ns)).unwrap();
    for words in [
        &["query", &out, "--json"][..],
        &["measure", "--json", &out],
        &["filter", "udp", &out, "--json", "--count"],
        &["info", "--json", &out],
    ] {
        let unknown = &object(words)["loss_unknown"];
        let from: jiff::Timestamp = unknown[0]["from"].as_str().unwrap().parse().unwrap();
        // Packets of the pipe are of another time than the clock's.
        assert!(
            from <= stamp(from_ns) && unknown.as_array().unwrap().len() == 1,
            "{words:?}: {unknown}"
        );
        assert!(unknown[0]["to"].is_string(), "{unknown}");
    }
    let text = weir(["measure", &out]).ok().text();
    assert!(
        text.contains("loss unknown") && !text.contains("no loss"),
        "{text}"
    );
    let text = weir(["info", &out])
        .ok()
        .text()
        .replace("\n               ", " ");
    assert!(
        text.contains("not told     a recording broke off: its last count"),
        "{text}"
    );

    // Copies, and copies of these.
    for words in [
        &["query", &out][..],
        &["filter", "", &out],
        &["filter", "", &out, "--sort"],
        &["measure", &out],
    ] {
        weir([words, &["-w", &copy]].concat()).ok();
        let remarks = object(&["info", "--json", &copy])["remarks"].to_string();
        assert!(
            remarks.contains("a recording broke off: its last count of dropped packets is of"),
            "{words:?} {remarks}"
        );
        let again = temp.at("again.pcapng");
        weir(["filter", "", &copy, "-w", &again]).ok();
        assert_eq!(
            object(&["info", "--json", &again])["remarks"].to_string(),
            remarks
        );
    }
    // Segments as one file, as mergecap puts them together.
    if have(
        "the_end_of_a_killed_recording_is_told_when_another_goes_on",
        &["mergecap"],
    ) {
        let all: Vec<u8> = segments(&out)
            .iter()
            .flat_map(|path| std::fs::read(path).unwrap())
            .collect();
        let joined = temp.file("joined.pcapng", &all);
        assert!(
            weir(["filter", "", &joined, "--count"])
                .ok()
                .err
                .contains("a recording broke off")
        );
    }
}

/// A copy of a record that is not whole says so in its statistics: what is gone, and what is damaged.
#[test]
fn copies_of_a_record_that_is_not_whole_say_so() {
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    record(&directory, &packets);
    let files = segments(&directory);
    std::fs::remove_file(&files[2]).unwrap();
    let mut bytes = std::fs::read(&files[0]).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle..middle + 300].fill(0xee);
    std::fs::write(&files[0], &bytes).unwrap();
    let copy = temp.at("copy.pcapng");
    for words in [
        &["query", &directory][..],
        &["filter", "", &directory],
        &["filter", "", &directory, "--sort"],
        &["filter", "", &directory, "--merge"],
        &["measure", &directory],
    ] {
        assert_eq!(
            weir([words, &["-w", &copy]].concat()).code,
            Some(1),
            "{words:?}"
        );
        let about: Value =
            serde_json::from_str(&weir(["info", "--json", &copy]).ok().text()).unwrap();
        let remarks = about["remarks"].to_string();
        for part in [
            "the record was not whole: ",
            "damaged block",
            "segment 000003 is gone, with up to ",
        ] {
            assert!(remarks.contains(part), "{words:?} {part}: {remarks}");
        }
        let text = weir(["info", &copy])
            .ok()
            .text()
            .replace("\n               ", " ");
        assert!(
            text.contains("remark       the record was not whole"),
            "{text}"
        );
    }
    if have("copies_of_a_record_that_is_not_whole_say_so", &["tshark"]) {
        let shown = tool(
            "tshark",
            ["-r", &copy, "-X", "read_format:MIME Files Format", "-V"],
        )
        .ok()
        .text();
        assert!(shown.contains("the record was not whole: "), "{shown}");
    }
}

/// A capture with one packet and a count of lost packets, 0.
fn counted() -> Vec<u8> {
    let mut bytes = lacking();
    let at = bytes.len() - 16;
    assert_eq!(bytes[at..at + 4], 37u32.to_le_bytes());
    bytes[at] = 0;
    bytes
}

/// Whether a file or a record says that its losses were not recorded, by each reader alike.
fn says_not_recorded(source: &str) -> bool {
    let heading = weir(["measure", source]).ok().text();
    let says = heading.contains("  loss not recorded");
    assert_ne!(says, heading.contains("  no loss"), "{heading}");
    for words in [
        &["measure", "--json", source][..],
        &["filter", "", source, "--json", "--count"],
        &["info", "--json", source],
    ] {
        let text = weir(words).ok().text();
        let object: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let told = &object["loss_not_recorded"];
        assert_eq!(told.as_bool().unwrap_or(false), says, "{words:?}: {object}");
    }
    let info = weir(["info", source]).ok().text();
    assert_eq!(info.contains("lost         not recorded"), says, "{info}");
    says
}

#[test]
fn copies_and_records_claim_no_loss_only_if_all_their_sources_counted() {
    let temp = Temp::new();
    let zero = temp.file("counted.pcapng", &counted());
    let none = temp.file("none.pcapng", &counted()[..counted().len() - 40]);
    let pcap = temp.file("a.pcap", &small_pcap(3));
    let cases = [
        (&[&zero][..], false),
        (&[&none], true),
        (&[&pcap], true),
        (&[&zero, &pcap], true),
        (&[&pcap, &zero], true),
    ];
    for (number, (sources, says)) in cases.into_iter().enumerate() {
        let [out, copy] = ["out", "copy.pcapng"].map(|name| temp.at(&format!("{number}{name}")));
        let sources: Vec<&str> = sources.iter().map(|name| name.as_str()).collect();
        let orders = [&[][..], &["--merge"], &["--sort"]];
        for more in orders.iter().take(2 * sources.len() - 1) {
            let words = [&["filter", ""], &sources[..], more, &["-w", &copy]];
            weir(words.concat()).ok();
            assert_eq!(says_not_recorded(&copy), says, "{sources:?} {more:?}");
        }
        weir([&["record"], &sources[..], &[&out, "--disk", "1G"]].concat()).ok();
        assert_eq!(says_not_recorded(&out), says, "{sources:?}");
        let segment = &segments(&out)[0];
        assert_eq!(says_not_recorded(segment), says, "{sources:?}");
        weir(["query", &out, "-w", &copy]).ok();
        assert_eq!(says_not_recorded(&copy), says, "{sources:?}");
    }
}
