//! Record directories as sources: the packets of a span of time, compared with those that the command selects.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::process::Command;
use std::ptr::null_mut;
use weir::*;
use weir_testkit::savefile::Pcap;
use weir_testkit::{Scratch, skipped};

/// Packets that pass, and the counts of the source; or the status and the line of the error.
fn passed(
    name: &str,
    filter: &str,
    from_ns: i64,
    to_ns: i64,
) -> Result<u64, (weir_status, String)> {
    let (name, filter) = (CString::new(name).unwrap(), CString::new(filter).unwrap());
    // SAFETY: zeros are valid options.
    let zeros: weir_options = unsafe { MaybeUninit::zeroed().assume_init() };
    let options = weir_options {
        size: size_of::<weir_options>() as u32,
        filter: filter.as_ptr(),
        from_ns,
        to_ns,
        ..zeros
    };
    let (mut source, mut error, mut packets) = (0, 0, 0);
    // SAFETY: all pointers lead to variables.
    unsafe {
        let status = weir_open(&name.as_ptr(), 1, &options, &mut source, &mut error);
        if status != WEIR_OK {
            let mut bytes = std::ptr::null();
            assert_eq!(weir_text_read(error, &mut bytes, null_mut()), WEIR_OK);
            let line = std::ffi::CStr::from_ptr(bytes).to_str().unwrap().to_owned();
            weir_text_free(error);
            return Err((status, line));
        }
        let mut batch = MaybeUninit::<weir_batch>::uninit();
        while weir_next(source, 10_000_000_000, batch.as_mut_ptr(), null_mut()) == WEIR_OK {
            let batch = batch.assume_init();
            packets += u64::from(batch.passed);
            assert_eq!(weir_release(batch.lease), WEIR_OK);
        }
        let mut counts = weir_counts::default();
        assert_eq!(weir_close(source, &mut counts), WEIR_OK);
        assert_eq!(
            (counts.passed, counts.received),
            (packets, counts.passed + counts.filtered)
        );
    }
    Ok(packets)
}

#[test]
fn packets_of_a_span_of_time_are_those_that_the_command_selects() {
    let test = "packets_of_a_span_of_time_are_those_that_the_command_selects";
    let command = std::env::current_exe()
        .unwrap()
        .parent()
        .unwrap()
        .join("../weir");
    if !command.exists() {
        return skipped(test, "there is no weir command beside the tests");
    }
    let scratch = Scratch::new();
    let mut pcap = Pcap::new(1, 65_535);
    for i in 0..20_000u32 {
        let mut frame = vec![0; 12];
        frame.extend([
            8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 9, 8, 7,
        ]);
        frame.extend([0, 1, 0, 53 + (i % 2) as u8, 0, 8, 0, 0]);
        pcap.header(
            1_700_000_000 + i / 100,
            i % 100 * 10_000,
            frame.len() as u32,
            frame.len() as u32,
        );
        pcap.bytes.extend(frame);
    }
    let (file, record) = (scratch.file("a.pcap", &pcap.bytes), scratch.at("record"));
    let done = Command::new(&command)
        .args(["record", &file, &record, "--disk", "64M"])
        .output()
        .unwrap();
    if !done.status.success() {
        return skipped(test, String::from_utf8_lossy(&done.stderr));
    }
    let at = |seconds: i64| (1_700_000_000 + seconds) * 1_000_000_000;
    // A hundred packets a second, of which every second one is to port 53; both ends of a span belong to it.
    for (filter, from, to, known) in [
        ("", 0, 0, 20_000),
        ("udp port 53", 0, 0, 10_000),
        ("udp port 53", at(20), at(50), 1501),
        ("", at(199), 0, 100),
        ("", 0, at(7), 701),
    ] {
        let mut asked = Command::new(&command);
        asked.args(["query", &record, filter, "--count", "--utc"]);
        let time = |ns: i64| format!("{}", ns / 1_000_000_000);
        asked.args(if from > 0 {
            vec!["--from".to_owned(), time(from)]
        } else {
            Vec::new()
        });
        asked.args(if to > 0 {
            vec!["--to".to_owned(), time(to)]
        } else {
            Vec::new()
        });
        let output = asked.output().unwrap();
        let expected: u64 = String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse()
            .unwrap_or_else(|_| panic!("{output:?}"));
        assert_eq!(
            passed(&record, filter, from, to),
            Ok(expected),
            "{filter} {from} {to}"
        );
        assert_eq!(expected, known);
        assert_eq!(
            passed(&file, filter, from, to),
            Ok(known),
            "{filter} {from} {to}"
        );
    }
    let (status, line) = passed(scratch.path().to_str().unwrap(), "", 0, 0).unwrap_err();
    assert!(status == WEIR_FAILED && line.contains("record"), "{line}");
}
