//! Measurements and recordings of programs in Rust.

use std::fs::File;
use std::io::Write;
use std::process::Command;
use std::time::Duration;
use weir_api::{
    Error, KeyKind, MeasureOptions, Measurement, NextAnswer, NextSaved, Options, RecordOptions,
    Recorder, Span, Trigger, Within, parse_trigger, read_geo,
};
use weir_testkit::Scratch;
use weir_testkit::mmdb::{Mmdb, country, system};
use weir_testkit::savefile::Pcap;

const LONG: Duration = Duration::from_secs(20);

/// UDP from 10.0.0.1, a hundred packets a second from second 1 700 000 000 on.
fn capture(packets: u32) -> Vec<u8> {
    let mut pcap = Pcap::new(1, 65_535);
    for i in 0..packets {
        let mut frame = vec![0; 12];
        frame.extend([
            8, 0, 0x45, 0, 0, 28, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 9, 8, 7, 0, 1, 0, 53,
            0, 8, 0, 0,
        ]);
        pcap.header(
            1_700_000_000 + i / 100,
            i % 100 * 10_000,
            frame.len() as u32,
            frame.len() as u32,
        );
        pcap.bytes.extend(frame);
    }
    pcap.bytes
}

/// All answers.
fn answers(measurement: &Measurement) -> Vec<String> {
    let mut all = Vec::new();
    loop {
        match measurement.next(LONG).unwrap() {
            NextAnswer::Answer(answer) => all.push(answer.json),
            NextAnswer::Nothing => panic!("nothing comes"),
            NextAnswer::End => return all,
        }
    }
}

fn has(answer: &str, member: &str) -> bool {
    answer.contains(&format!("{member},")) || answer.contains(&format!("{member}}}"))
}

#[test]
fn settings_without_sense_are_refused() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &capture(10));
    let window = |time| MeasureOptions {
        window: Some(time),
        ..MeasureOptions::default()
    };
    let no_keys = MeasureOptions {
        keys: Vec::new(),
        ..MeasureOptions::default()
    };
    let many = Options {
        workers: 5000,
        ..Options::default()
    };
    let splits = Options {
        splits: vec!["udp".to_owned()],
        ..Options::default()
    };
    let none: [&str; 0] = [];
    type Case<'a> = (&'a [&'a str], Options, MeasureOptions, &'a str);
    let cases: [Case<'_>; 6] = [
        (
            &[&file],
            Options::default(),
            window(Duration::ZERO),
            "--window 0 would never hold a packet: write --window 1s",
        ),
        (
            &[&file],
            Options::default(),
            window(Duration::MAX),
            "is too long",
        ),
        (
            &[&file],
            Options::default(),
            no_keys,
            "there is no key to count by",
        ),
        (
            &[&file],
            many,
            MeasureOptions::default(),
            "workers: 5000 are too many, and 1024 are the most",
        ),
        (
            &[&file],
            splits,
            MeasureOptions::default(),
            "splits: a measurement has none: leave it out",
        ),
        (
            &none,
            Options::default(),
            MeasureOptions::default(),
            "there is no name of a source",
        ),
    ];
    for (names, options, measure, why) in cases {
        match Measurement::open(names, &options, &measure) {
            Err(Error::Refused(line)) => assert!(line.ends_with(why), "{line}"),
            other => panic!("{why}: {other:?}"),
        }
    }
}

/// Databases give keys and columns, and repeated packets of two files are left out.
#[test]
fn programs_see_countries_and_leave_out_repeated_packets() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &capture(20));
    let mut places = Mmdb::new(4, 24);
    places.add([10, 0, 0, 0].into(), 24, &country("DE"));
    places.add([10, 9, 0, 0].into(), 16, &system(64500, "Example"));
    let places = scratch.file("places.mmdb", &places.bytes());
    let measure = MeasureOptions {
        keys: vec![KeyKind::Country, KeyKind::SRC],
        geo: read_geo(&[&places]).unwrap(),
        columns: Some("key,country,src,src_country,src_asn,packets".to_owned()),
        ..MeasureOptions::default()
    };
    let options = Options {
        // A packet at the same time as its repetition.
        dedup: Some(Within::Time(0)),
        ..Options::default()
    };
    let measurement = Measurement::open(&[&file, &file], &options, &measure).unwrap();
    let all = answers(&measurement);
    let [summary] = &all[..] else {
        panic!("{all:?}")
    };
    assert!(
        has(summary, "\"passed\":20") && has(summary, "\"duplicates\":20"),
        "{summary}"
    );
    for row in [
        "{\"key\":\"country\",\"country\":\"DE\",\"src\":null,\"src_country\":null,\"src_asn\":null,\"packets\":20}",
        "{\"key\":\"src\",\"country\":\"DE\",\"src\":\"10.0.0.1\",\"src_country\":\"DE\",\"src_asn\":\"-\",\"packets\":20}",
    ] {
        assert!(summary.contains(row), "{summary}");
    }
    assert!(matches!(read_geo(&[&file]), Err(Error::Refused(_))));
}

#[test]
fn a_stop_ends_the_wait_for_a_pipe_and_the_summary_says_so() {
    let scratch = Scratch::new();
    let pipe = scratch.at("pipe");
    assert!(
        Command::new("mkfifo")
            .arg(&pipe)
            .status()
            .unwrap()
            .success()
    );
    let measure = MeasureOptions {
        window: Some(Duration::from_secs(1)),
        ..MeasureOptions::default()
    };
    let (measurement, mut writer) = std::thread::scope(|scope| {
        let writer = scope.spawn(|| File::options().write(true).open(&pipe).unwrap());
        let measurement =
            Measurement::open(&[pipe.as_str()], &Options::default(), &measure).unwrap();
        (measurement, writer.join().unwrap())
    });
    writer.write_all(&capture(350)).unwrap();
    let NextAnswer::Answer(first) = measurement.next(LONG).unwrap() else {
        panic!("no window")
    };
    assert!(
        !first.is_summary && has(&first.json, "\"passed\":100"),
        "{first:?}"
    );
    let NextAnswer::Answer(second) = measurement.next(LONG).unwrap() else {
        panic!("no window")
    };
    assert_eq!(
        measurement.next(Duration::from_millis(20)),
        Ok(NextAnswer::Nothing),
        "the others wait for packets"
    );
    measurement.stop();
    let rest = answers(&measurement);
    assert_eq!((second.is_summary, rest.len()), (false, 3));
    assert!(
        has(&rest[2], "\"received\":350") && has(&rest[2], "\"interrupted\":true"),
        "{}",
        rest[2]
    );
    assert_eq!(measurement.next(LONG), Ok(NextAnswer::End));
    // A measurement that is dropped ends by itself.
    drop(measurement);
    drop(writer);
}

#[test]
fn a_record_that_a_program_made_is_measured_by_time() {
    let scratch = Scratch::new();
    let (file, directory) = (
        scratch.file("a.pcap", &capture(20_000)),
        scratch.at("record"),
    );
    let trigger = Trigger {
        before: Duration::from_secs(2),
        after: Duration::ZERO,
        ..Trigger::default()
    };
    let record = RecordOptions {
        ram: Some(16 << 20),
        disk: Some(64 << 20),
        reserve: 0,
        triggers: vec![parse_trigger("never=tcp").unwrap()],
        trigger,
        ..RecordOptions::default()
    };
    let recorder = Recorder::open(
        &[file.as_str()],
        directory.as_str(),
        &Options::default(),
        &record,
    )
    .unwrap();
    assert_eq!(recorder.next(LONG), NextSaved::End);
    let nothing = Span {
        before: Duration::ZERO,
        after: Duration::ZERO,
    };
    let refused = |line: &str| Err(Error::Refused(line.to_owned()));
    assert_eq!(
        recorder.trigger(None, Some(nothing)),
        refused("before 0 and after 0 would save nothing")
    );
    assert_eq!(
        recorder.trigger(None, None),
        refused("the recording has ended")
    );
    let (account, result) = recorder.close();
    assert!(
        result.is_ok() && has(&account, "\"recorded\":20000"),
        "{account}"
    );
    let at = |seconds: i64| Some((1_700_000_000 + seconds) * 1_000_000_000);
    for (times, known) in [
        ([None, None], 20_000),
        ([at(20), at(50)], 3001),
        ([at(199), None], 100),
    ] {
        let options = Options {
            times,
            ..Options::default()
        };
        let measurement =
            Measurement::open(&[directory.as_str()], &options, &MeasureOptions::default()).unwrap();
        let all = answers(&measurement);
        assert!(
            all.len() == 1 && has(&all[0], &format!("\"passed\":{known}")),
            "{all:?}"
        );
        measurement.close();
        assert_eq!(measurement.next(LONG), Ok(NextAnswer::End));
    }
}
