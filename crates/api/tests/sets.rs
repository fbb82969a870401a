//! Sets of addresses for programs in Rust, against the same expressions with the members written out.

use std::time::Duration;
use weir_api::{
    Error, MeasureOptions, Measurement, Next, NextAnswer, NextSaved, Options, RecordOptions,
    Recorder, Source, parse_keep, parse_trigger,
};
use weir_testkit::Scratch;
use weir_testkit::savefile::mixed;

const LONG: Duration = Duration::from_secs(20);

/// Members of a set, and the same as a condition on a side.
const MEMBERS: &str = "10.0.0.1\n10.0.0.4-10.0.0.5 # two\n8000::/1\n";

fn written_out(side: &str) -> String {
    format!("({side} host 10.0.0.1 or {side} net 10.0.0.4/31 or {side} net 8000::/1)")
}

/// Expressions with the set, and without it.
fn expressions() -> Vec<(&'static str, String)> {
    vec![
        ("src @banned", written_out("src")),
        (
            "udp and not host @banned",
            format!("udp and not {}", written_out("")),
        ),
        (
            "vlan and net @banned",
            format!("vlan and {}", written_out("")),
        ),
    ]
}

fn with(filter: &str, sets: &[String]) -> Options {
    Options {
        filter: filter.to_owned(),
        sets: sets.to_vec(),
        ..Options::default()
    }
}

/// Numbers of the packets that pass, and of those that each split marks.
fn judged(name: &str, options: &Options) -> Vec<Vec<usize>> {
    let source = Source::open(&[name], options).unwrap();
    let mut found = vec![Vec::new(); 1 + options.splits.len()];
    let mut first = 0;
    loop {
        match source.next(LONG).unwrap() {
            Next::Batch(batch) => {
                let verdicts = [batch.verdicts()].into_iter().chain(batch.split_verdicts());
                for (found, bits) in found.iter_mut().zip(verdicts) {
                    found.extend(
                        (0..batch.len())
                            .filter(|i| bits.words()[i / 64] >> (i % 64) & 1 == 1)
                            .map(|i| first + i),
                    );
                }
                first += batch.len();
            }
            Next::Nothing => panic!("nothing comes"),
            Next::End => break,
        }
    }
    assert_eq!(source.close().passed, found[0].len() as u64);
    found
}

#[test]
fn a_source_judges_as_by_the_members_written_out() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &mixed(20_000));
    let sets = [format!(
        "banned={}",
        scratch.file("banned.txt", MEMBERS.as_bytes())
    )];
    for (expression, members) in expressions() {
        let wanted = judged(&file, &with(&members, &[]));
        assert!(
            wanted[0].len() > 100,
            "{expression}: {} packets",
            wanted[0].len()
        );
        assert_eq!(
            judged(&file, &with(expression, &sets)),
            wanted,
            "{expression}"
        );
        let split = |expression: &str, sets: &[String]| Options {
            splits: vec![expression.to_owned()],
            ..with("ip or ip6 or vlan", sets)
        };
        assert_eq!(
            judged(&file, &split(expression, &sets)),
            judged(&file, &split(&members, &[])),
            "{expression}"
        );
    }
}

#[test]
fn another_filter_of_a_source_may_name_its_sets() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &mixed(200_000));
    let sets = [format!(
        "banned={}",
        scratch.file("banned.txt", MEMBERS.as_bytes())
    )];
    let source = Source::open(
        &[&file],
        &Options {
            batches: 2,
            ..with("src @banned", &sets)
        },
    )
    .unwrap();
    let wanted = judged(&file, &with(&written_out("dst"), &[]));
    let why = source
        .set_filter("dst @baned", LONG)
        .unwrap_err()
        .to_string();
    assert!(
        why.ends_with("there is no set \"@baned\": those given are @banned"),
        "{why}"
    );
    let change = source.set_filter("dst @banned", LONG).unwrap();
    let (mut first, mut compared) = (0, 0);
    while let Next::Batch(batch) = source.next(LONG).unwrap() {
        if batch.change() == change.number {
            let passed = (0..batch.len())
                .filter(|i| batch.verdicts().words()[i / 64] >> (i % 64) & 1 == 1)
                .map(|i| first + i);
            let here = wanted[0]
                .iter()
                .filter(|number| (first..first + batch.len()).contains(number));
            assert!(passed.eq(here.copied()));
            compared += 1;
        }
        first += batch.len();
    }
    assert!(compared > 0, "no batch was judged by the second filter");
}

/// The summary with the seed 1, without what tells the expression.
fn measured(name: &str, options: &Options) -> String {
    let measure = MeasureOptions {
        seed: Some(1),
        ..MeasureOptions::default()
    };
    let measurement = Measurement::open(&[name], options, &measure).unwrap();
    let NextAnswer::Answer(answer) = measurement.next(LONG).unwrap() else {
        panic!("no answer")
    };
    answer.json
}

#[test]
fn measurements_and_recordings_take_sets() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &mixed(20_000));
    let sets = [format!(
        "banned={}",
        scratch.file("banned.txt", MEMBERS.as_bytes())
    )];
    for (number, (expression, members)) in expressions().into_iter().enumerate() {
        let wanted = measured(&file, &with(&members, &[]));
        assert_eq!(
            measured(&file, &with(expression, &sets)),
            wanted,
            "{expression}"
        );
        let kept = judged(&file, &with(&members, &[]))[0].len();
        let record = RecordOptions {
            ram: Some(16 << 20),
            disk: Some(64 << 20),
            reserve: 1,
            ..RecordOptions::default()
        };
        // The filter, a trigger or the packets that triggers save may be what names the set.
        let directory = scratch.at(&format!("record-{number}"));
        let recorder = Recorder::open(
            &[&file],
            directory.as_str(),
            &with(expression, &sets),
            &record,
        )
        .unwrap();
        while recorder.next(LONG) != NextSaved::End {}
        assert!(recorder.close().1.is_ok());
        assert_eq!(
            judged(&directory, &with("", &[]))[0].len(),
            kept,
            "{expression}"
        );
        // A set chooses from a record too.
        assert_eq!(
            judged(&directory, &with(expression, &sets))[0].len(),
            kept,
            "{expression}"
        );
        let mut triggered = RecordOptions {
            disk: None,
            ..record
        };
        triggered
            .triggers
            .push(parse_trigger(&format!("seen={expression}")).unwrap());
        triggered.trigger.keep = parse_keep(expression).unwrap();
        let directory = scratch.at(&format!("saved-{number}"));
        let recorder =
            Recorder::open(&[&file], directory.as_str(), &with("", &sets), &triggered).unwrap();
        let NextSaved::Saved(saved) = recorder.next(LONG) else {
            panic!("{expression} fired no trigger")
        };
        assert!(saved.contains("\"trigger\":\"seen\""), "{saved}");
        assert!(recorder.close().1.is_ok());
    }
}

#[test]
fn sets_that_cannot_be_used_are_refused() {
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &mixed(10));
    let good = format!("good={}", scratch.file("good.txt", b"10.0.0.1\n"));
    let bad = format!(
        "bad={}",
        scratch.file("bad.txt", b"10.0.0.1\n\nwww.example.com\n")
    );
    let missing = format!("missing={}", scratch.at("missing"));
    let unused = "--set good: no expression names a set: write src @good, host @good or net @good";
    for (filter, set, why) in [
        (
            "src @goof",
            &good[..],
            "there is no set \"@goof\": those given are @good",
        ),
        (
            "src @bad",
            &bad,
            "bad.txt: line 3: \"www.example.com\" is not an address, prefix or range of addresses",
        ),
        ("src @missing", &missing, "missing: no such file"),
        ("", &good, unused),
        ("udp", &good, unused),
        (
            "src @good",
            "good",
            "a set is a name and its file, as in banned=banned.txt",
        ),
    ] {
        let options = with(filter, &[set.to_owned()]);
        let directory = scratch.at("record");
        let small = RecordOptions {
            ram: Some(16 << 20),
            ..RecordOptions::default()
        };
        let errors = [
            Source::open(&[&file], &options).map(drop).unwrap_err(),
            Measurement::open(&[&file], &options, &MeasureOptions::default())
                .map(drop)
                .unwrap_err(),
            Recorder::open(&[&file], directory.as_str(), &options, &small)
                .map(drop)
                .unwrap_err(),
        ];
        for error in errors {
            assert!(
                matches!(&error, Error::Refused(line) if line.ends_with(why)),
                "{filter:?}: {error}"
            );
        }
        assert!(
            !std::path::Path::new(&directory).exists(),
            "{filter:?}: a refused start leaves a directory"
        );
    }
    // A set may become empty, as a list of banned hosts does. A remark tells.
    let options = with(
        "src @empty",
        &[format!(
            "empty={}",
            scratch.file("empty.txt", b"# none yet\n")
        )],
    );
    let source = Source::open(&[&file], &options).unwrap();
    assert!(source.remarks()[0].ends_with("has no address: no packet matches @empty"));
    assert_eq!(source.close().passed, 0);
}
