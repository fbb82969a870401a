//! Sets of addresses by handles, against the same expressions with the members written out, and the lines of the command.

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;
use std::process::Command;
use std::ptr::{null, null_mut};
use weir::*;
use weir_testkit::savefile::mixed;
use weir_testkit::{Scratch, skipped};

const SECOND: u64 = 1_000_000_000;

const MEMBERS: &[u8] = b"10.0.0.1\n10.0.0.4-10.0.0.5 # two\n8000::/1\n";
const WRITTEN_OUT: &str = "(src host 10.0.0.1 or src net 10.0.0.4/31 or src net 8000::/1)";

/// The text of a handle, which is freed.
fn line(text: weir_text) -> String {
    let mut bytes = null::<c_char>();
    // SAFETY: the pointer leads to a variable, and the text ends with a 0.
    let line = unsafe {
        assert_eq!(weir_text_read(text, &mut bytes, null_mut()), WEIR_OK);
        CStr::from_ptr(bytes).to_str().unwrap().to_owned()
    };
    assert_eq!(weir_text_free(text), WEIR_OK);
    line
}

fn options() -> weir_options {
    // SAFETY: zeros are valid options.
    let zeros: weir_options = unsafe { MaybeUninit::zeroed().assume_init() };
    weir_options {
        size: size_of::<weir_options>() as u32,
        ..zeros
    }
}

type Refused = (weir_status, String);

/// What is opened.
#[derive(Clone, Copy, Debug)]
enum Opens {
    Source,
    Measurement,
    Recording,
}

/// Opens with a filter and sets.
fn open_as(what: Opens, names: [&str; 2], filter: &str, sets: &[&str]) -> Result<u64, Refused> {
    let [name, directory, filter] =
        [names[0], names[1], filter].map(|text| CString::new(text).unwrap());
    let sets: Vec<CString> = sets.iter().map(|set| CString::new(*set).unwrap()).collect();
    let sets: Vec<_> = sets.iter().map(|set| set.as_ptr()).collect();
    let of = weir_options {
        filter: filter.as_ptr(),
        sets: sets.as_ptr(),
        set_count: sets.len() as u32,
        ..options()
    };
    let (mut handle, mut error, name) = (0, 0, name.as_ptr());
    // SAFETY: zeros are valid options.
    let zeros: weir_record_options = unsafe { MaybeUninit::zeroed().assume_init() };
    let size = size_of::<weir_record_options>() as u32;
    let record = weir_record_options {
        size,
        ram: 16 << 20,
        disk: 64 << 20,
        reserve: 1,
        ..zeros
    };
    // SAFETY: all pointers lead to texts and variables, or are NULL.
    let status = unsafe {
        match what {
            Opens::Source => weir_open(&name, 1, &of, &mut handle, &mut error),
            Opens::Measurement => weir_measure_open(&name, 1, &of, null(), &mut handle, &mut error),
            Opens::Recording => weir_record_open(
                &name,
                1,
                directory.as_ptr(),
                &of,
                &record,
                &mut handle,
                &mut error,
            ),
        }
    };
    if status == WEIR_OK {
        Ok(handle)
    } else {
        Err((status, line(error)))
    }
}

/// Numbers of the packets that pass.
fn passing(name: &str, filter: &str, sets: &[&str]) -> Vec<u32> {
    let source = open_as(Opens::Source, [name, ""], filter, sets).unwrap();
    let (mut first, mut found) = (0, Vec::new());
    let mut batch = MaybeUninit::<weir_batch>::uninit();
    // SAFETY: all pointers lead to variables; the verdicts have a bit for each packet.
    unsafe {
        while weir_next(source, 20 * SECOND, batch.as_mut_ptr(), null_mut()) == WEIR_OK {
            let batch = batch.assume_init();
            let is_passed = |i: &u32| *batch.verdicts.add(*i as usize / 64) >> (i % 64) & 1 == 1;
            found.extend((0..batch.len).filter(is_passed).map(|i| first + i));
            first += batch.len;
            assert_eq!(weir_release(batch.lease), WEIR_OK);
        }
        assert_eq!(weir_close(source, null_mut()), WEIR_OK);
    }
    found
}

/// The summary of a measurement without the fields that depend on its seed.
fn measured(name: &str, filter: &str, sets: &[&str]) -> [u64; 3] {
    let measure = open_as(Opens::Measurement, [name, ""], filter, sets).unwrap();
    let mut text = 0;
    assert_eq!(
        // SAFETY: the pointer leads to a variable.
        unsafe { weir_measure_next(measure, 20 * SECOND, &mut text, null_mut(), null_mut()) },
        WEIR_OK
    );
    assert_eq!(weir_measure_close(measure), WEIR_OK);
    let answer: serde_json::Value = serde_json::from_str(&line(text)).unwrap();
    ["received", "passed", "bytes"].map(|name| answer[name].as_u64().unwrap())
}

#[test]
fn a_set_stands_for_its_members_written_out() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &mixed(20_000));
    let (banned, sets) = (
        scratch.file("banned.txt", MEMBERS),
        scratch.file("other.txt", b"10.0.0.2\n"),
    );
    let sets = [format!("banned={banned}"), format!("other={sets}")];
    let sets: Vec<&str> = sets.iter().map(String::as_str).collect();
    let both = format!("{WRITTEN_OUT} or src host 10.0.0.2 and udp");
    for (filter, members) in [
        ("src @banned", WRITTEN_OUT),
        ("src @banned or src @other and udp", &both),
    ] {
        let wanted = passing(&file, members, &[]);
        assert!(wanted.len() > 1000, "{filter}: {} packets", wanted.len());
        assert_eq!(passing(&file, filter, &sets), wanted, "{filter}");
        assert_eq!(
            measured(&file, filter, &sets),
            measured(&file, members, &[]),
            "{filter}"
        );
        let directory = scratch.at(&format!("record-{}", filter.len()));
        let recording = open_as(Opens::Recording, [&file, &directory], filter, &sets).unwrap();
        let mut text = 0;
        // SAFETY: the pointers lead to variables, or are NULL.
        unsafe {
            while weir_record_next(recording, 20 * SECOND, &mut text, null_mut()) != WEIR_END {}
            assert_eq!(
                weir_record_close(recording, null_mut(), null_mut()),
                WEIR_OK
            );
        }
        assert_eq!(passing(&directory, "", &[]).len(), wanted.len(), "{filter}");
        assert_eq!(
            passing(&directory, filter, &sets).len(),
            wanted.len(),
            "{filter}"
        );
    }
}

#[test]
fn sets_that_cannot_be_used_are_refused_with_the_lines_of_the_command() {
    let command = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .join("../weir");
    if !command.exists() {
        let test = "sets_that_cannot_be_used_are_refused_with_the_lines_of_the_command";
        return skipped(test, "there is no weir command beside the tests");
    }
    let scratch = Scratch::new();
    let (file, directory) = (scratch.file("a.pcap", &mixed(10)), scratch.at("record"));
    let good = format!("good={}", scratch.file("good.txt", b"10.0.0.1\n"));
    let bad = format!(
        "bad={}",
        scratch.file("bad.txt", b"10.0.0.1\n\nwww.example.com\n")
    );
    let missing = format!("missing={}", scratch.at("missing"));
    for (filter, sets) in [
        ("src @goof", &[&good[..]][..]),
        ("src @good", &[]),
        ("port @good", &[&good]),
        ("", &[&good]),
        ("udp", &[&good]),
        ("src @bad", &[&bad]),
        ("src @missing", &[&missing]),
        ("src @good", &[&good, &good]),
    ] {
        for what in [Opens::Source, Opens::Measurement, Opens::Recording] {
            let words = match what {
                Opens::Source => vec!["filter", filter, &file],
                Opens::Measurement => vec!["measure", &file, "--filter", filter],
                Opens::Recording => {
                    vec![
                        "record", &file, &directory, "--ram", "16M", "--disk", "64M", "--filter",
                        filter,
                    ]
                }
            };
            let flags = sets.iter().flat_map(|set| ["--set", set]);
            let done = Command::new(&command)
                .args(words)
                .args(flags)
                .output()
                .unwrap();
            let said = String::from_utf8_lossy(&done.stderr).into_owned();
            let (status, line) = open_as(what, [&file, &directory], filter, sets).unwrap_err();
            assert!(
                said.contains(&format!("weir: {line}\n")),
                "{what:?} {filter:?}: {line}\n{said}"
            );
            assert_eq!(
                (status, done.status.code()),
                (WEIR_REFUSED, Some(2)),
                "{what:?} {filter:?}: {line}"
            );
        }
    }
    // What is no set at all is refused by the command's parser of flags.
    for (set, why) in [
        (
            "good",
            "a set is a name and its file, as in banned=banned.txt",
        ),
        ("a b=x", "not a name of a set"),
    ] {
        let (status, line) = open_as(Opens::Source, [&file, ""], "src @good", &[set]).unwrap_err();
        assert!(status == WEIR_REFUSED && line.contains(why), "{line}");
    }
    let sets = weir_options {
        set_count: 1,
        ..options()
    };
    let (name, mut source, mut error) = (CString::new(file).unwrap(), 0, 0);
    assert_eq!(
        // SAFETY: all pointers lead to texts and variables.
        unsafe { weir_open(&name.as_ptr(), 1, &sets, &mut source, &mut error) },
        WEIR_NULL
    );
    assert_eq!(line(error), "weir_options.sets is NULL");
}
