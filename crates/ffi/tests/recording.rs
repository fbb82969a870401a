//! Recordings by handles: packets known from how they were made, against what the command finds in the directory.

mod common;

use common::{SECOND, command, descriptors, line, options, run_alone, send, wait_for_the_end};
use serde_json::Value;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::Write;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::Command;
use std::ptr::{null, null_mut};
use std::sync::mpsc::channel;

use weir::*;
use weir_testkit::savefile::Pcap;
use weir_testkit::{Scratch, net, skipped, wait};

/// Time of the first packet, s since 1970.
const BEGIN: u32 = 1_700_000_000;

fn json(text: weir_text) -> Value {
    serde_json::from_str(&line(text)).unwrap()
}

/// Options with 16 MiB of memory and a disk that is never full.
fn record_options() -> weir_record_options {
    // SAFETY: zeros are valid options.
    let zeros: weir_record_options = unsafe { MaybeUninit::zeroed().assume_init() };
    let size = size_of::<weir_record_options>() as u32;
    weir_record_options {
        size,
        ram: 16 << 20,
        disk: 64 << 20,
        reserve: 1,
        ..zeros
    }
}

fn open_with(
    name: &str,
    directory: &str,
    triggers: &[&str],
    of: weir_options,
    record: weir_record_options,
) -> Result<weir_record, (weir_status, String)> {
    let texts: Vec<CString> = triggers
        .iter()
        .map(|text| CString::new(*text).unwrap())
        .collect();
    let triggers: Vec<_> = texts.iter().map(|text| text.as_ptr()).collect();
    let record = weir_record_options {
        triggers: triggers.as_ptr(),
        trigger_count: triggers.len() as u32,
        ..record
    };
    let [name, directory] = [name, directory].map(|text| CString::new(text).unwrap());
    let (mut handle, mut error) = (0, 0);
    // SAFETY: all pointers lead to texts and variables.
    let status = unsafe {
        weir_record_open(
            &name.as_ptr(),
            1,
            directory.as_ptr(),
            &of,
            &record,
            &mut handle,
            &mut error,
        )
    };
    if status == WEIR_OK {
        Ok(handle)
    } else {
        Err((status, line(error)))
    }
}

/// The next saved file, or the status.
fn next(record: weir_record, timeout_ns: u64) -> Result<Value, weir_status> {
    let mut text = 0;
    // SAFETY: the pointer leads to a variable.
    match unsafe { weir_record_next(record, timeout_ns, &mut text, null_mut()) } {
        WEIR_OK => Ok(json(text)),
        status => Err(status),
    }
}

fn status(record: weir_record) -> Value {
    let mut text = 0;
    // SAFETY: the pointer leads to a variable.
    assert_eq!(unsafe { weir_record_status(record, &mut text) }, WEIR_OK);
    json(text)
}

/// The account of a recording that is closed.
fn close(record: weir_record) -> Value {
    let mut text = 0;
    assert_eq!(
        // SAFETY: the pointer leads to a variable.
        unsafe { weir_record_close(record, &mut text, null_mut()) },
        WEIR_OK
    );
    json(text)
}

/// Fires a trigger.
fn fire(
    record: weir_record,
    name: &CStr,
    span: (u64, u64),
) -> Result<Value, (weir_status, String)> {
    let (mut text, mut error) = (0, 0);
    // SAFETY: all pointers lead to texts and variables.
    match unsafe {
        weir_record_trigger(record, name.as_ptr(), span.0, span.1, &mut text, &mut error)
    } {
        WEIR_OK => Ok(json(text)),
        status => Err((status, line(error))),
    }
}

/// A packet of UDP to port 53 or 54, in turn, whose last bytes number it.
fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![0; 12];
    frame.extend([
        8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 9, 8, 7,
    ]);
    frame.extend([0, 1, 0, 53 + (number % 2) as u8, 0, 26, 0, 0]);
    frame.resize(56, 0);
    frame.extend(number.to_be_bytes());
    frame
}

/// Packets of these numbers, a hundred in a second.
fn records(numbers: std::ops::Range<u32>) -> Vec<u8> {
    let mut pcap = Pcap::new(1, 65_535);
    let head = pcap.bytes.len();
    for number in numbers {
        pcap.header(BEGIN + number / 100, number % 100 * 10_000, 60, 60);
        pcap.bytes.extend(frame(number));
    }
    pcap.bytes.split_off(head)
}

fn capture(packets: u32) -> Vec<u8> {
    let mut bytes = Pcap::new(1, 65_535).bytes;
    bytes.extend(records(0..packets));
    bytes
}

/// Numbers of the packets of a file or a record directory.
fn numbers(name: &str) -> Vec<u32> {
    let (name, mut source, mut numbers) = (CString::new(name).unwrap(), 0, Vec::new());
    let mut batch = MaybeUninit::<weir_batch>::uninit();
    // SAFETY: all pointers lead to texts and variables; a descriptor names bytes of its batch's region.
    unsafe {
        assert_eq!(
            weir_open(&name.as_ptr(), 1, null(), &mut source, null_mut()),
            WEIR_OK
        );
        while weir_next(source, 20 * SECOND, batch.as_mut_ptr(), null_mut()) == WEIR_OK {
            let batch = batch.assume_init();
            for i in 0..batch.len as usize {
                let at = (*batch.packets.add(i)).offset as usize + 56;
                let bytes = std::slice::from_raw_parts(batch.region.add(at), 4);
                numbers.push(u32::from_be_bytes(bytes.try_into().unwrap()));
            }
            assert_eq!(weir_release(batch.lease), WEIR_OK);
        }
        assert_eq!(weir_close(source, null_mut()), WEIR_OK);
    }
    numbers
}

fn counted(command: &Path, directory: &str, expression: &str) -> u64 {
    let done = Command::new(command)
        .args(["query", directory, expression, "--count"])
        .output()
        .unwrap();
    String::from_utf8_lossy(&done.stdout)
        .trim()
        .parse()
        .unwrap_or_else(|_| panic!("{done:?}"))
}

#[test]
fn files_are_recorded_to_their_end_and_the_command_finds_their_packets() {
    let Some(command) =
        command("files_are_recorded_to_their_end_and_the_command_finds_their_packets")
    else {
        return;
    };
    let scratch = Scratch::new();
    let (file, directory) = (
        scratch.file("a.pcap", &capture(20_000)),
        scratch.at("record"),
    );
    let record = weir_record_options {
        before_ns: SECOND,
        after_ns: SECOND / 2,
        ..record_options()
    };
    let filter = weir_options {
        filter: c"udp".as_ptr(),
        ..options()
    };
    // The packet of number 10 000, and none besides.
    let trigger = "one=udp[22:4] = 10000";
    let recording = open_with(&file, &directory, &[trigger], filter, record).unwrap();
    let saved = next(recording, 20 * SECOND).unwrap();
    assert_eq!(
        (&saved["trigger"], &saved["fault"]),
        (&"one".into(), &Value::Null)
    );
    // A second before and half a second after, the ends included.
    assert!(
        numbers(saved["file"].as_str().unwrap())
            .into_iter()
            .eq(9900..=10_050)
    );
    assert_eq!(saved["packets"], 151);
    assert_eq!(next(recording, 20 * SECOND), Err(WEIR_END));
    assert_eq!(status(recording)["recorded"], 20_000);
    assert!(
        matches!(fire(recording, c"one", (0, 0)), Err((WEIR_REFUSED, line)) if line == "the recording has ended")
    );
    let account = close(recording);
    assert_eq!(
        (
            &account["received"],
            &account["recorded"],
            &account["fault"]
        ),
        (&20_000.into(), &20_000.into(), &Value::Null)
    );
    assert_eq!(
        (&account["dropped"]["kernel"], &account["dropped"]["ring"]),
        (&0.into(), &0.into())
    );
    assert_eq!(
        (
            &account["disk"]["durable"],
            &account["triggers"][0]["saved"]
        ),
        (&20_000.into(), &1.into())
    );
    for (expression, known) in [
        ("", 20_000),
        ("udp port 53", 10_000),
        ("udp[22:4] >= 19000", 1000),
        ("tcp", 0),
    ] {
        assert_eq!(
            counted(&command, &directory, expression),
            known,
            "{expression}"
        );
    }
    assert!(numbers(&directory).into_iter().eq(0..20_000));
}

#[test]
fn the_account_of_a_file_is_that_of_the_command() {
    let Some(command) = command("the_account_of_a_file_is_that_of_the_command") else {
        return;
    };
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &capture(5000));
    let flags = [
        "--json",
        "--ram",
        "16M",
        "--trigger",
        "t=udp[22:4] = 2500",
        "--before",
        "1s",
        "--after",
        "1s",
    ];
    let [theirs, ours] = ["theirs", "ours"].map(|name| scratch.at(name));
    let done = Command::new(command)
        .arg("record")
        .args(flags)
        .args([&file, &theirs])
        .output()
        .unwrap();
    let expected = String::from_utf8_lossy(&done.stdout).replace("/theirs/", "/ours/");
    let record = weir_record_options {
        disk: 0,
        before_ns: SECOND,
        after_ns: SECOND,
        ..record_options()
    };
    let recording = open_with(&file, &ours, &["t=udp[22:4] = 2500"], options(), record).unwrap();
    let mut lines = String::new();
    let (mut text, mut ended) = (0, WEIR_OK);
    while ended != WEIR_END {
        // SAFETY: the pointer leads to a variable.
        ended = unsafe { weir_record_next(recording, SECOND, &mut text, null_mut()) };
        if ended == WEIR_OK {
            lines.push_str(&line(text));
            lines.push('\n');
        }
    }
    assert_eq!(
        // SAFETY: the pointer leads to a variable.
        unsafe { weir_record_close(recording, &mut text, null_mut()) },
        WEIR_OK
    );
    assert_eq!(format!("{lines}{}\n", line(text)), expected);
}

/// A recording of a pipe that this test fills.
fn of_pipe(
    scratch: &Scratch,
    triggers: &[&str],
    record: weir_record_options,
) -> (File, weir_record, String) {
    let (pipe, directory) = (scratch.at("pipe"), scratch.at("record"));
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| File::options().write(true).open(&pipe).unwrap());
        let recording = open_with(&pipe, &directory, triggers, options(), record).unwrap();
        (writer.join().unwrap(), recording, directory.clone())
    })
}

fn wait_for(recording: weir_record, has_come: impl Fn(&Value) -> bool) {
    wait::until_ok(|| match status(recording) {
        status if has_come(&status) => Ok(()),
        status => Err(status),
    });
}

#[test]
fn a_request_saves_the_time_around_it() {
    let scratch = Scratch::new();
    // The second trigger tells that the trigger thread has read the last packet.
    let triggers = ["never=tcp", "last=udp[22:4] = 4999"];
    let (mut pipe, recording, directory) = of_pipe(&scratch, &triggers, record_options());
    let refused = |line: &str| Err((WEIR_REFUSED, line.to_owned()));
    let early = "trigger never does not fire: no packet has come yet";
    assert_eq!(fire(recording, c"never", (0, 0)), refused(early));
    pipe.write_all(&capture(5000)).unwrap();
    wait_for(recording, |status| status["triggers"][1]["met"] == 1);
    let fired = fire(recording, c"never", (3 * SECOND, 2 * SECOND)).unwrap();
    assert_eq!(
        fired.to_string(),
        r#"{"type":"trigger","fired":["never"],"refused":{},"version":1}"#
    );
    let (code, why) = fire(recording, c"never", (0, 0)).unwrap_err();
    assert!(
        code == WEIR_REFUSED
            && why.starts_with("trigger never does not fire: a file of it is being written"),
        "{why}"
    );
    assert_eq!(
        fire(recording, c"other", (0, 0)),
        refused("there is no trigger other")
    );
    assert_eq!(
        next(recording, SECOND / 100),
        Err(WEIR_NOTHING),
        "packets after the request are waited for"
    );
    pipe.write_all(&records(5000..6000)).unwrap();
    let mut saved = [(); 2].map(|()| next(recording, 20 * SECOND).unwrap());
    saved.sort_by_key(|saved| saved["trigger"] == "never");
    let [last, never] = &saved;
    assert_eq!(
        (&last["trigger"], &never["cause"]),
        (&"last".into(), &"a request of the program".into())
    );
    let kept = |saved: &Value| numbers(saved["file"].as_str().unwrap());
    assert!(
        kept(last).into_iter().eq(3999..=5499),
        "10 s before to 5 s after it, the ends included"
    );
    assert!(
        kept(never).into_iter().eq(4699..=5199),
        "3 s before to 2 s after it"
    );
    wait_for(recording, |status| status["recorded"] == 6000);
    assert_eq!(weir_record_stop(recording), WEIR_OK);
    drop(pipe);
    assert_eq!(next(recording, 20 * SECOND), Err(WEIR_END));
    let account = close(recording);
    let never = &account["triggers"][0];
    assert_eq!(
        (&account["recorded"], &never["met"], &never["fired"]),
        (&6000.into(), &3.into(), &1.into())
    );
    assert!(!Path::new(&directory).join("control").exists());
}

#[test]
fn a_request_before_the_first_packet_waits_for_it() {
    let scratch = Scratch::new();
    let (mut pipe, recording, _) = of_pipe(&scratch, &["a=tcp"], record_options());
    std::thread::scope(|scope| {
        let (tell, told) = channel();
        let asked = scope.spawn(move || {
            tell.send(wait::thread_id()).unwrap();
            fire(recording, c"a", (SECOND, SECOND))
        });
        wait::until_thread_sleeps(told.recv().unwrap());
        pipe.write_all(&capture(1000)).unwrap();
        assert_eq!(asked.join().unwrap().unwrap()["fired"][0], "a");
    });
    drop(pipe);
    let saved = next(recording, 20 * SECOND).unwrap();
    // Up to a second before and after one of them.
    let numbers = numbers(saved["file"].as_str().unwrap());
    let (first, last) = (numbers[0], numbers[numbers.len() - 1]);
    assert!(
        numbers.len() <= 201 && numbers.into_iter().eq(first..=last),
        "{first} to {last}"
    );
    assert_eq!(close(recording)["triggers"][0]["met"], 1);
}

#[test]
fn what_is_only_in_memory_is_found_while_the_recording_goes_on() {
    let Some(command) = command("what_is_only_in_memory_is_found_while_the_recording_goes_on")
    else {
        return;
    };
    let scratch = Scratch::new();
    let (mut pipe, recording, directory) = of_pipe(&scratch, &[], record_options());
    pipe.write_all(&capture(3000)).unwrap();
    wait_for(recording, |status| status["recorded"] == 3000);
    assert_eq!(counted(&command, &directory, "udp port 53"), 1500);
    assert!(numbers(&directory).into_iter().eq(0..3000));
    // A program that measures the directory gets all of it too, as does the command that asks for the state.
    let asked = Command::new(&command)
        .args(["record", "--status", &directory])
        .output()
        .unwrap();
    let asked: Value = serde_json::from_slice(&asked.stdout).unwrap();
    assert_eq!(asked["recorded"], status(recording)["recorded"]);
    let second = open_with(
        &scratch.at("pipe"),
        &directory,
        &[],
        options(),
        record_options(),
    )
    .unwrap_err();
    assert!(
        second.0 == WEIR_REFUSED && second.1.contains("another recorder"),
        "{second:?}"
    );
    let without_disk = weir_record_options {
        disk: 0,
        ..record_options()
    };
    let second = open_with(
        &scratch.at("pipe"),
        &directory,
        &[],
        options(),
        without_disk,
    )
    .unwrap_err();
    assert_eq!(
        second,
        (
            WEIR_REFUSED,
            format!("{directory}: another weir record runs on this directory")
        )
    );
    drop(pipe);
    assert_eq!(close(recording)["recorded"], 3000);
    assert_eq!(counted(&command, &directory, "udp port 53"), 1500);
}

#[test]
fn packets_of_a_cable_are_recorded_once() {
    let test = "packets_of_a_cable_are_recorded_once";
    let Some(command) = command(test) else { return };
    if !net::cable(test, "") {
        return;
    }
    let scratch = Scratch::new();
    let directory = scratch.at("record");
    let of = weir_options {
        latency_ns: SECOND / 100,
        filter: c"udp port 53".as_ptr(),
        ..options()
    };
    let recording = match open_with("af_packet:near", &directory, &[], of, record_options()) {
        Ok(recording) => recording,
        Err((_, line)) => return skipped(test, line),
    };
    send(&scratch.file("a.pcap", &capture(2000)));
    wait_for(recording, |status| status["recorded"] == 1000);
    assert_eq!(
        fire(recording, c"signal", (20 * SECOND, 1)).unwrap()["fired"][0],
        "signal"
    );
    let saved = next(recording, 20 * SECOND).unwrap();
    let even = || (0..1000).map(|number| number * 2);
    assert!(
        numbers(saved["file"].as_str().unwrap())
            .into_iter()
            .eq(even()),
        "{saved}"
    );
    let account = close(recording);
    let of = |name: &str| account[name].as_u64().unwrap();
    assert_eq!(
        (of("received"), of("filtered"), of("recorded")),
        (2000, 1000, 1000),
        "{account}"
    );
    assert_eq!(
        (&account["dropped"]["kernel"], &account["dropped"]["ring"]),
        (&0.into(), &0.into())
    );
    assert_eq!(
        (
            counted(&command, &directory, ""),
            counted(&command, &directory, "udp[22:4] < 1000")
        ),
        (1000, 500)
    );
    assert!(numbers(&directory).into_iter().eq(even()));
}

#[test]
fn wrong_settings_and_names_are_refused_with_the_lines_of_the_command() {
    let test = "wrong_settings_and_names_are_refused_with_the_lines_of_the_command";
    let Some(command) = command(test) else { return };
    let scratch = Scratch::new();
    let (file, new) = (scratch.file("a.pcap", &capture(10)), scratch.at("new"));
    let base = record_options();
    let huge = 1 << 60;
    let wrong = weir_options {
        filter: c"prot 53".as_ptr(),
        ..options()
    };
    let gone = scratch.at("gone.pcap");
    let no_filter = options();
    type Case<'a> = (
        &'a str,
        &'a str,
        &'a [&'a str],
        weir_options,
        weir_record_options,
        &'a [&'a str],
    );
    let cases: [Case<'_>; 7] = [
        (&file, &file, &[], no_filter, base, &[]),
        (
            &file,
            &new,
            &[],
            no_filter,
            weir_record_options { ram: 1000, ..base },
            &["--ram", "1000"],
        ),
        (
            &file,
            &new,
            &[],
            no_filter,
            weir_record_options { ram: huge, ..base },
            &["--ram", "1152921504606846976"],
        ),
        (
            &file,
            &new,
            &["a=udp prt 5"],
            no_filter,
            base,
            &["--trigger", "a=udp prt 5"],
        ),
        (
            &file,
            &new,
            &["a=udp", "a=tcp"],
            no_filter,
            base,
            &["--trigger", "a=udp", "--trigger", "a=tcp"],
        ),
        (&gone, &new, &[], no_filter, base, &[]),
        (&file, &new, &[], wrong, base, &["--filter", "prot 53"]),
    ];
    for (name, directory, triggers, of, record, flags) in cases {
        let done = Command::new(&command)
            .arg("record")
            .args(flags)
            .args([name, directory])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        let made_by_command = directory == new && Path::new(&new).exists();
        if made_by_command {
            std::fs::remove_dir_all(&new).unwrap();
        }
        let (status, line) = open_with(name, directory, triggers, of, record).unwrap_err();
        // What is free changes from one call to the next.
        let stable = line
            .split(" of memory are free")
            .next()
            .unwrap()
            .trim_end_matches(|c: char| !c.is_ascii_alphabetic());
        let stable = if line.contains("are free") {
            stable.split(": ").next().unwrap()
        } else {
            stable
        };
        assert!(said.contains(&format!("weir: {stable}")), "{line}\n{said}");
        assert_eq!(
            status,
            if done.status.code() == Some(2) {
                WEIR_REFUSED
            } else {
                WEIR_FAILED
            },
            "{line}"
        );
        assert!(
            !Path::new(&new).exists(),
            "a refused start leaves nothing: {line}"
        );
    }
    for (triggers, of, record, why) in [
        (
            &["x"][..],
            options(),
            base,
            "'x' is neither NAME=EXPR, such as dns='udp port 53', nor a ready rule: scan is the only one",
        ),
        (
            &[],
            options(),
            weir_record_options { disk: 1000, ..base },
            "'1000' is too little for a record: 8M is the least",
        ),
        (
            &[],
            options(),
            weir_record_options {
                segment: 1000,
                ..base
            },
            "'1000' is not a size of a segment: 1M to 4G are",
        ),
        (
            &[],
            options(),
            weir_record_options {
                compress: 20,
                ..base
            },
            "weir_record_options.compress is 20, and 19 is the most",
        ),
        (
            &[],
            options(),
            weir_record_options {
                mode: 0o777,
                ..base
            },
            "'777' is not a mode of a file: write 600, 640 or 644",
        ),
        (
            &[],
            weir_options {
                limit: 1,
                ..options()
            },
            base,
            "limit: a recording has none: leave it out",
        ),
        (
            &[],
            weir_options {
                flags: WEIR_MERGE,
                ..options()
            },
            base,
            "a recording has no inner packets, other orders, times and duplicates: leave them out",
        ),
    ] {
        assert_eq!(
            open_with(&file, &new, triggers, of, record).unwrap_err(),
            (WEIR_REFUSED, why.to_owned())
        );
    }
    let (status, line) = open_with(
        &file,
        &new,
        &[],
        options(),
        weir_record_options { size: 8, ..base },
    )
    .unwrap_err();
    assert!(
        status == WEIR_SIZE && line.starts_with("weir_record_options has 8 bytes"),
        "{line}"
    );
    assert!(!Path::new(&new).exists());
}

#[test]
fn pointers_and_handles_that_lead_nowhere_are_refused() {
    let scratch = Scratch::new();
    let [file, directory] = [scratch.file("a.pcap", &capture(10)), scratch.at("record")]
        .map(|text| CString::new(text).unwrap());
    let (mut record, mut text, mut error) = (0, 0, 0);
    let little = record_options();
    // SAFETY: all pointers lead to texts and variables, or are NULL.
    unsafe {
        let (name, directory) = (file.as_ptr(), directory.as_ptr());
        assert_eq!(
            weir_record_open(
                null(),
                1,
                directory,
                null(),
                &little,
                &mut record,
                &mut error
            ),
            WEIR_NULL
        );
        assert_eq!(line(error), "names is NULL");
        assert_eq!(
            weir_record_open(&name, 1, null(), null(), &little, &mut record, &mut error),
            WEIR_NULL
        );
        assert_eq!(line(error), "a name is NULL");
        assert_eq!(
            weir_record_open(&name, 1, directory, null(), &little, null_mut(), null_mut()),
            WEIR_NULL
        );
        assert_eq!(
            weir_record_open(
                &name,
                0,
                directory,
                null(),
                &little,
                &mut record,
                null_mut()
            ),
            WEIR_REFUSED
        );
        assert_eq!(record, 0);
        assert_eq!(
            weir_record_open(
                &name,
                1,
                directory,
                null(),
                &little,
                &mut record,
                null_mut()
            ),
            WEIR_OK
        );
        assert_eq!(weir_record_status(record, null_mut()), WEIR_NULL);
        assert_eq!(
            weir_record_next(record, 0, null_mut(), null_mut()),
            WEIR_NULL
        );
        assert_eq!(
            (weir_measure_stop(record), weir_stop(record)),
            (WEIR_CLOSED, WEIR_CLOSED)
        );
        let child = libc::fork();
        if child == 0 {
            let refused = weir_record_stop(record) == WEIR_FORKED
                && weir_record_close(record, null_mut(), null_mut()) == WEIR_FORKED;
            libc::_exit(i32::from(!refused));
        }
        let mut code = 0;
        assert_eq!((libc::waitpid(child, &mut code, 0), code), (child, 0));
        assert_eq!(weir_record_close(record, null_mut(), null_mut()), WEIR_OK);
        assert_eq!(
            weir_record_close(record, &mut text, &mut error),
            WEIR_CLOSED
        );
        assert_eq!(line(error), "the handle is closed, or none of this kind");
        assert_eq!(
            (
                weir_record_stop(record),
                weir_record_status(record, &mut text)
            ),
            (WEIR_CLOSED, WEIR_CLOSED)
        );
    }
}

/// Runs in a process of its own, since it looks at all threads and descriptors.
#[test]
#[ignore = "run by `a_close_midway_leaves_no_thread_and_no_socket`"]
fn close_midway() {
    let before = descriptors();
    for _ in 0..5 {
        let scratch = Scratch::new();
        let (mut pipe, recording, directory) =
            of_pipe(&scratch, &["a=udp port 53"], record_options());
        pipe.write_all(&capture(2000)).unwrap();
        assert!(Path::new(&directory).join("control").exists());
        let recorded = close(recording)["recorded"].as_u64().unwrap();
        assert!(recorded <= 2000);
        assert!(!Path::new(&directory).join("control").exists());
        drop(pipe);
        assert_eq!(numbers(&directory).len() as u64, recorded);
    }
    wait_for_the_end(before);
}

#[test]
fn a_close_midway_leaves_no_thread_and_no_socket() {
    run_alone("close_midway");
}
