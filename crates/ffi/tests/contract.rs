//! Wrong calls: each has a status and its line, and nothing else happens.

use std::ffi::{CStr, CString, c_char};
use std::ptr::{null, null_mut};
use std::sync::mpsc::channel;
use weir::*;
use weir_testkit::savefile::Pcap;
use weir_testkit::{Scratch, wait};

const SECOND: u64 = 1_000_000_000;

fn capture(packets: u32) -> Vec<u8> {
    let mut pcap = Pcap::new(1, 65_535);
    for i in 0..packets {
        let mut frame = vec![0; 64];
        frame[12] = 8;
        frame[60..].copy_from_slice(&i.to_be_bytes());
        pcap.packet(&frame);
    }
    pcap.bytes
}

/// The text of an error, which is freed.
fn line(error: weir_text) -> String {
    let (mut bytes, mut length) = (null::<c_char>(), 0);
    assert_eq!(
        // SAFETY: both lead to variables.
        unsafe { weir_text_read(error, &mut bytes, &mut length) },
        WEIR_OK
    );
    // SAFETY: the text ends with a 0.
    let text = unsafe { CStr::from_ptr(bytes) }
        .to_str()
        .unwrap()
        .to_owned();
    assert_eq!(
        (text.len(), weir_text_free(error), weir_text_free(error)),
        (length, WEIR_OK, WEIR_CLOSED)
    );
    text
}

fn options() -> weir_options {
    // SAFETY: zeros are valid options.
    let zeros: weir_options = unsafe { std::mem::zeroed() };
    weir_options {
        size: size_of::<weir_options>() as u32,
        ..zeros
    }
}

fn open(name: &str, options: &weir_options) -> Result<weir_source, (weir_status, String)> {
    let name = CString::new(name).unwrap();
    let (mut source, mut error) = (0, 0);
    // SAFETY: all pointers lead to variables.
    let status = unsafe { weir_open(&name.as_ptr(), 1, options, &mut source, &mut error) };
    if status == WEIR_OK {
        Ok(source)
    } else {
        Err((status, line(error)))
    }
}

fn next(source: weir_source, timeout_ns: u64) -> Result<weir_batch, weir_status> {
    let mut batch = std::mem::MaybeUninit::uninit();
    // SAFETY: it leads to memory for a batch.
    match unsafe { weir_next(source, timeout_ns, batch.as_mut_ptr(), null_mut()) } {
        // SAFETY: the batch was written.
        WEIR_OK => Ok(unsafe { batch.assume_init() }),
        status => Err(status),
    }
}

fn close(source: weir_source) -> Result<weir_counts, weir_status> {
    let mut counts = weir_counts::default();
    // SAFETY: it leads to counts.
    match unsafe { weir_close(source, &mut counts) } {
        WEIR_OK => Ok(counts),
        status => Err(status),
    }
}

#[test]
fn pointers_that_lead_nowhere_are_refused() {
    let (mut source, mut error) = (0, 0);
    // SAFETY: NULL is allowed and refused.
    unsafe {
        assert_eq!(
            weir_open(null(), 1, null(), &mut source, &mut error),
            WEIR_NULL
        );
        assert_eq!(line(error), "names is NULL");
        assert_eq!(
            weir_open(&null(), 1, null(), &mut source, &mut error),
            WEIR_NULL
        );
        assert_eq!(line(error), "a name is NULL");
        assert_eq!(
            weir_open(&c"a".as_ptr(), 1, null(), null_mut(), null_mut()),
            WEIR_NULL
        );
        assert_eq!(
            weir_open(&c"a".as_ptr(), 0, null(), &mut source, &mut error),
            WEIR_REFUSED
        );
        assert_eq!(line(error), "there is no name of a source");
        assert_eq!(weir_text_read(0, null_mut(), null_mut()), WEIR_CLOSED);
        assert_eq!(weir_sink_open(null(), &mut source, null_mut()), WEIR_NULL);
    }
    assert_eq!((source, weir_text_free(0)), (0, WEIR_OK));
}

#[test]
fn settings_of_another_version_or_without_sense_are_refused() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &capture(3));
    let (status, words) = open(
        &file,
        &weir_options {
            size: 8,
            ..options()
        },
    )
    .unwrap_err();
    assert_eq!(
        (status, &words[..24]),
        (WEIR_SIZE, "weir_options has 8 bytes")
    );
    let (status, words) = open(
        &file,
        &weir_options {
            flags: 1 << 30,
            ..options()
        },
    )
    .unwrap_err();
    assert_eq!(
        (status, &words[..]),
        (
            WEIR_REFUSED,
            "weir_options.flags has unknown bits: 0x40000000"
        )
    );
    let wrong = c"\xff";
    let (status, words) = open(
        &file,
        &weir_options {
            filter: wrong.as_ptr(),
            ..options()
        },
    )
    .unwrap_err();
    assert_eq!(
        (status, &words[..]),
        (WEIR_REFUSED, "weir_options.filter: it is not text (UTF-8)")
    );
    let (status, words) = open("", &options()).unwrap_err();
    assert_eq!(
        (status, &words[..]),
        (
            WEIR_REFUSED,
            "the name of a source is empty: name a capture file, or - for standard input"
        )
    );
}

#[test]
fn batches_are_released_once_and_in_any_order_and_keep_their_source_open() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &capture(100_000));
    let source = open(
        &file,
        &weir_options {
            batches: 3,
            ..options()
        },
    )
    .unwrap();
    let (mut number, mut held) = (0u32, Vec::new());
    loop {
        match next(source, SECOND) {
            Ok(batch) => {
                held.push((number, batch));
                number += batch.len;
            }
            Err(WEIR_END) => break,
            Err(status) => panic!("{status}"),
        }
        if held.len() == 3 {
            assert_eq!(
                next(source, 1000).err(),
                Some(WEIR_NOTHING),
                "no more than 3 are out"
            );
            assert_eq!(close(source), Err(WEIR_BUSY));
            for (number, batch) in [held.remove(0), held.remove(1), held.remove(0)] {
                // SAFETY: the batch is held.
                let packets =
                    unsafe { std::slice::from_raw_parts(batch.packets, batch.len as usize) };
                let place = packets[0].offset as usize + 60;
                // SAFETY: the descriptor names these bytes of the region.
                let bytes = unsafe { std::slice::from_raw_parts(batch.region.add(place), 4) };
                assert_eq!(
                    (u32::from_be_bytes(bytes.try_into().unwrap()), batch.passed),
                    (number, batch.len)
                );
                assert_eq!(
                    (weir_release(batch.lease), weir_release(batch.lease)),
                    (WEIR_OK, WEIR_CLOSED)
                );
            }
        }
    }
    for lease in held.iter().map(|(_, batch)| batch.lease) {
        assert_eq!(
            std::thread::spawn(move || weir_release(lease))
                .join()
                .unwrap(),
            WEIR_OK,
            "from any thread"
        );
    }
    let counts = close(source).unwrap();
    assert_eq!(
        (number, counts.received, counts.passed, counts.is_final),
        (100_000, 100_000, 100_000, 1)
    );
    assert_eq!(
        (close(source), next(source, 0).err(), weir_stop(source)),
        (Err(WEIR_CLOSED), Some(WEIR_CLOSED), WEIR_CLOSED)
    );
}

#[test]
fn a_handle_of_another_kind_is_refused() {
    let scratch = Scratch::new();
    let source = open(&scratch.file("a.pcap", &capture(3)), &options()).unwrap();
    let batch = next(source, SECOND).unwrap();
    assert_eq!(
        (
            weir_release(source),
            weir_text_free(source),
            weir_stop(batch.lease)
        ),
        (WEIR_CLOSED, WEIR_CLOSED, WEIR_CLOSED)
    );
    assert_eq!(
        (close(batch.lease), next(77, 0).err()),
        (Err(WEIR_CLOSED), Some(WEIR_CLOSED))
    );
    let mut written = 0;
    let column = weir_column {
        field: 99,
        capacity: 1,
        values: (&raw mut written).cast(),
    };
    let (mut next_packet, mut error) = (0, 0);
    // SAFETY: all pointers lead to variables.
    let status = unsafe {
        weir_fill(
            batch.lease,
            0,
            0,
            &column,
            1,
            &mut written,
            &mut next_packet,
            &mut error,
        )
    };
    assert_eq!(
        (status, &line(error)[..]),
        (WEIR_REFUSED, "there is no field of number 99")
    );
    assert_eq!(
        (weir_release(batch.lease), close(source).unwrap().received),
        (WEIR_OK, 3)
    );
}

/// Waits for a packet in one thread, and closes the source in another. Returns `false` if the close came before the wait.
fn close_during_a_wait(pipe: &str) -> bool {
    let held = std::sync::Mutex::new(None);
    let source = std::thread::scope(|scope| {
        scope.spawn(|| {
            *held.lock().unwrap() = Some(std::fs::File::options().write(true).open(pipe).unwrap())
        });
        open(pipe, &options()).unwrap()
    });
    let (tell, told) = channel();
    let waits = std::thread::spawn(move || {
        tell.send(wait::thread_id()).unwrap();
        next(source, 60 * SECOND).err()
    });
    wait::until_thread_sleeps(told.recv().unwrap());
    let is_busy = match close(source) {
        Ok(_) => false,
        Err(status) => {
            assert_eq!((status, weir_stop(source)), (WEIR_BUSY, WEIR_OK));
            true
        }
    };
    drop(held);
    let status = waits.join().unwrap();
    match is_busy {
        true => assert!(matches!(status, Some(WEIR_END | WEIR_FAILED)) && close(source).is_ok()),
        false => assert_eq!(status, Some(WEIR_CLOSED)),
    }
    is_busy
}

#[test]
fn a_close_during_a_wait_is_refused_and_a_stop_ends_the_wait() {
    let scratch = Scratch::new();
    let pipe = scratch.at("pipe");
    assert!(
        std::process::Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    assert!((0..100).any(|_| close_during_a_wait(&pipe)));
}

#[test]
fn a_child_of_a_fork_is_told_and_may_open_sources_of_its_own() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &capture(10));
    let source = open(&file, &options()).unwrap();
    let batch = next(source, SECOND).unwrap();
    // SAFETY: the child calls the library and leaves by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let refused = next(source, 0).err() == Some(WEIR_FORKED)
            && weir_release(batch.lease) == WEIR_FORKED
            && close(source) == Err(WEIR_FORKED);
        // SAFETY: nothing of the parent is ended.
        unsafe { libc::_exit(i32::from(!refused)) };
    }
    let mut status = 0;
    // SAFETY: it leads to a number.
    assert_eq!(unsafe { libc::waitpid(child, &mut status, 0) }, child);
    assert_eq!((status, weir_release(batch.lease)), (0, WEIR_OK));
    assert_eq!(close(source).unwrap().received, 10);
}

fn sink(name: &str) -> Result<weir_sink, (weir_status, String)> {
    let name = CString::new(name).unwrap();
    let (mut sink, mut error) = (0, 0);
    // SAFETY: all pointers lead to variables.
    match unsafe { weir_sink_open(name.as_ptr(), &mut sink, &mut error) } {
        WEIR_OK => Ok(sink),
        status => Err((status, line(error))),
    }
}

#[test]
fn a_sink_that_fails_says_so_and_counts_what_it_lost() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &capture(5000));
    let source = open(&file, &options()).unwrap();
    // The file is read, and a sink would empty it.
    let (status, words) = sink(&file).unwrap_err();
    assert!(status == WEIR_FAILED && words.contains("a.pcap"), "{words}");
    assert_eq!(std::fs::metadata(&file).unwrap().len(), 24 + 5000 * 80);
    let full = sink("/dev/full").unwrap();
    let (batch, mut error) = (next(source, SECOND).unwrap(), 0);
    // SAFETY: all pointers lead to variables, or are NULL where that is allowed.
    unsafe {
        assert_eq!(
            weir_send(full, batch.lease, null(), &mut error),
            WEIR_FAILED
        );
        let words = line(error);
        assert!(
            words.starts_with("/dev/full: no space left on the device"),
            "{words}"
        );
        assert_eq!(
            weir_send(full, batch.lease, null(), &mut error),
            WEIR_FAILED
        );
        assert_eq!(line(error), words);
        let mut counts = weir_sink_counts::default();
        assert_eq!(weir_sink_close(full, &mut counts, &mut error), WEIR_FAILED);
        assert_eq!(line(error), words);
        assert_eq!(
            (counts.given, counts.written + counts.refused + counts.lost),
            (10_000, 10_000)
        );
        assert!(counts.lost > 0);
        assert_eq!(weir_sink_close(full, &mut counts, null_mut()), WEIR_CLOSED);
    }
    assert_eq!(
        (weir_release(batch.lease), close(source).unwrap().received),
        (WEIR_OK, 5000)
    );
    assert!(sink(&file).is_ok(), "nobody reads it any more");
}

#[test]
fn calls_without_sense_are_refused() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &capture(10));
    for (of, why) in [
        (
            weir_options {
                batches: 5000,
                ..options()
            },
            "batches: 5000 are too many, and 4096 are the most",
        ),
        (
            weir_options {
                workers: 1 << 30,
                ..options()
            },
            "workers: 1073741824 are too many, and 1024 are the most",
        ),
        (
            weir_options {
                flags: WEIR_IN | WEIR_OUT,
                ..options()
            },
            "WEIR_IN and WEIR_OUT exclude each other: leave one out",
        ),
    ] {
        assert_eq!(
            open(&file, &of).unwrap_err(),
            (WEIR_REFUSED, why.to_owned())
        );
    }
    let source = open(&file, &options()).unwrap();
    let batch = next(source, SECOND).unwrap();
    let (mut lengths, mut written, mut behind, mut error) = ([0u32; 4], 0, 0, 0);
    let values = lengths.as_mut_ptr().cast();
    let column = |capacity| weir_column {
        field: WEIR_WIRE_LEN,
        capacity,
        values,
    };
    // SAFETY: all pointers lead to variables, or are NULL where that is allowed.
    unsafe {
        let mut fill = |first, column: weir_column, count| {
            let status = weir_fill(
                batch.lease,
                first,
                0,
                &column,
                count,
                &mut written,
                &mut behind,
                &mut error,
            );
            (
                status,
                if status < 0 {
                    line(error)
                } else {
                    String::new()
                },
            )
        };
        assert_eq!(
            fill(11, column(4), 1),
            (
                WEIR_REFUSED,
                "there is no packet 11 in a batch of 10".to_owned()
            )
        );
        assert_eq!(
            fill(0, column(0), 1),
            (
                WEIR_REFUSED,
                "there is no column with room for a packet".to_owned()
            )
        );
        assert_eq!(
            fill(0, column(4), 0),
            (
                WEIR_REFUSED,
                "there is no column with room for a packet".to_owned()
            )
        );
        assert_eq!(fill(10, column(4), 1).0, WEIR_OK);
        assert_eq!(weir_split(batch.lease, 0, null_mut()), WEIR_NULL);
        assert_eq!(
            weir_set_filter(source, null(), 0, null_mut(), null_mut()),
            WEIR_NULL
        );
        assert_eq!(weir_set_rules(source, null(), null_mut()), WEIR_NULL);
    }
    assert_eq!(
        (weir_release(batch.lease), close(source).unwrap().received),
        (WEIR_OK, 10)
    );
}

/// UDP from 10.0.0.0 to 10.0.0.4, in turn.
fn from_five() -> Vec<u8> {
    let mut pcap = Pcap::new(1, 65_535);
    for i in 0..60_000u32 {
        let mut frame = vec![0; 12];
        frame.extend([
            8,
            0,
            0x45,
            0,
            0,
            28,
            0,
            0,
            0,
            0,
            64,
            17,
            0,
            0,
            10,
            0,
            0,
            (i % 5) as u8,
            10,
            9,
            8,
            7,
        ]);
        frame.extend([0, 1, 0, 2, 0, 8, 0, 0]);
        pcap.packet(&frame);
    }
    pcap.bytes
}

#[test]
fn rules_deny_packets_of_a_source_and_are_replaced_between_batches() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &from_five());
    let filter = c"not src host 10.0.0.4";
    let of = weir_options {
        filter: filter.as_ptr(),
        rules: c"drop src 10.0.0.1".as_ptr(),
        batches: 1,
        workers: 1,
        ..options()
    };
    let source = open(&file, &of).unwrap();
    let (mut number, mut denied, mut is_replaced) = (0u32, [0u64; 2], false);
    while let Ok(batch) = next(source, SECOND) {
        for i in 0..batch.len {
            // SAFETY: there is a bit for each packet.
            let passed = unsafe { *batch.verdicts.add(i as usize / 64) >> (i % 64) & 1 == 1 };
            match (number + i) % 5 {
                4 => assert!(!passed),
                host @ (1 | 2) => denied[host as usize - 1] += u64::from(!passed),
                _ => assert!(passed),
            }
        }
        number += batch.len;
        let mut error = 0;
        // SAFETY: all pointers lead to texts and variables.
        unsafe {
            assert_eq!(
                weir_set_rules(source, c"drop sorce 10.0.0.1".as_ptr(), &mut error),
                WEIR_REFUSED
            );
            assert!(line(error).starts_with("the rules: line 1"));
            if !is_replaced {
                assert_eq!(
                    weir_set_rules(source, c"drop src 10.0.0.2".as_ptr(), null_mut()),
                    WEIR_OK
                );
                is_replaced = true;
            }
        }
        assert_eq!(weir_release(batch.lease), WEIR_OK);
    }
    let counts = close(source).unwrap();
    assert_eq!(
        (number, denied.iter().sum::<u64>(), counts.filtered),
        (60_000, counts.denied, 12_000)
    );
    assert!(
        denied.iter().all(|&of| of > 1000),
        "both lists judged: {denied:?}"
    );
    assert_eq!(
        counts.received,
        counts.passed + counts.filtered + counts.denied
    );
    let (status, words) = open(
        &file,
        &weir_options {
            rules: c"drop nothing".as_ptr(),
            ..options()
        },
    )
    .unwrap_err();
    assert!(
        status == WEIR_REFUSED && words.starts_with("the rules: line 1"),
        "{words}"
    );
    let plain = open(&file, &options()).unwrap();
    assert_eq!(
        // SAFETY: it leads to a text.
        unsafe { weir_set_rules(plain, c"default pass".as_ptr(), null_mut()) },
        WEIR_REFUSED
    );
    assert!(close(plain).is_ok());
}

#[test]
fn verdicts_splits_and_columns_agree() {
    let scratch = Scratch::new();
    let mut pcap = Pcap::new(1, 65_535);
    for i in 0..1000u32 {
        let mut frame = vec![0; 12];
        frame.extend([
            8,
            0,
            0x45,
            0,
            0,
            28,
            0,
            0,
            0,
            0,
            64,
            17,
            0,
            0,
            10,
            0,
            0,
            (i % 5) as u8,
            10,
            9,
            8,
            7,
        ]);
        frame.extend([(i >> 8) as u8, i as u8, 0, 53 + (i % 3) as u8, 0, 8, 0, 0]);
        pcap.packet(&frame);
    }
    let file = scratch.file("a.pcap", &pcap.bytes);
    let splits = [c"src host 10.0.0.1".as_ptr()];
    let of = weir_options {
        filter: c"dst port 53".as_ptr(),
        splits: splits.as_ptr(),
        split_count: 1,
        ..options()
    };
    let source = open(&file, &of).unwrap();
    let batch = next(source, SECOND).unwrap();
    assert_eq!((batch.len, batch.passed), (1000, 334));
    let (mut sources, mut ports, mut lengths) = ([0u32; 1024], [0u16; 1024], [0u32; 1024]);
    let columns = [
        weir_column {
            field: WEIR_SRC4,
            capacity: 1024,
            values: sources.as_mut_ptr().cast(),
        },
        weir_column {
            field: WEIR_SRC_PORT,
            capacity: 7,
            values: ports.as_mut_ptr().cast(),
        },
        weir_column {
            field: WEIR_WIRE_LEN,
            capacity: 1024,
            values: lengths.as_mut_ptr().cast(),
        },
    ];
    let mut mask = null();
    // SAFETY: it leads to a pointer.
    let found = unsafe {
        [
            weir_split(batch.lease, 0, &mut mask),
            weir_split(batch.lease, 1, &mut mask),
        ]
    };
    assert_eq!(found, [WEIR_OK, WEIR_REFUSED]);
    let (mut first, mut found) = (0, Vec::new());
    while first < 1000 {
        let (mut written, mut behind) = (0, 0);
        // SAFETY: all pointers lead to variables, and the columns to arrays of these sizes.
        let status = unsafe {
            weir_fill(
                batch.lease,
                first,
                1,
                columns.as_ptr(),
                3,
                &mut written,
                &mut behind,
                null_mut(),
            )
        };
        assert_eq!((status, written.min(1)), (WEIR_OK, 1));
        found.extend((0..written as usize).map(|i| (sources[i], ports[i], lengths[i])));
        first = behind;
    }
    let expected = (0..1000u16)
        .filter(|i| i % 3 == 0)
        .map(|i| (0x0a00_0000 + u32::from(i % 5), i, 42));
    assert!(found.into_iter().eq(expected));
    for i in 0..1000 {
        // SAFETY: both have a bit for each packet.
        let bits = unsafe {
            [
                *batch.verdicts.add(i / 64) >> (i % 64) & 1,
                *mask.add(i / 64) >> (i % 64) & 1,
            ]
        };
        assert_eq!(
            bits.map(|bit| bit == 1),
            [i % 3 == 0, i % 3 == 0 && i % 5 == 1],
            "{i}"
        );
    }
    assert_eq!(weir_release(batch.lease), WEIR_OK);
    assert!(close(source).is_ok());
}
