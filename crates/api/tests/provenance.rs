//! Files that sinks of programs write say what their packets were chosen by.

use std::time::Duration;
use weir_api::{Next, Options, Sink, Source};
use weir_testkit::Scratch;
use weir_testkit::savefile::mixed;

const LONG: Duration = Duration::from_secs(20);

/// Filters and comments of the interfaces of a pcapng file of this byte order, read byte by byte.
fn interfaces(path: &str) -> Vec<(Option<String>, Vec<String>)> {
    let bytes = std::fs::read(path).unwrap();
    let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        if word(at) == 1 {
            found.push(options(&bytes[at + 16..at + word(at + 4) as usize - 4]));
        }
        at += word(at + 4) as usize;
    }
    found
}

fn options(mut rest: &[u8]) -> (Option<String>, Vec<String>) {
    let (mut filter, mut comments) = (None, Vec::new());
    while rest.len() >= 4 {
        let [code, len] =
            [0, 2].map(|at| usize::from(u16::from_le_bytes([rest[at], rest[at + 1]])));
        let text = |from: usize| String::from_utf8(rest[from..4 + len].to_vec()).unwrap();
        match code {
            1 => comments.push(text(4)),
            11 => filter = Some(text(5)),
            _ => {}
        }
        rest = &rest[4 + len.next_multiple_of(4)..];
    }
    (filter, comments)
}

/// Copies a source to a file; the program has marks of its own if `marks` says so.
fn copied(name: &str, options: &Options, copy: &str, marks: Option<fn(u64) -> u64>) -> u64 {
    let source = Source::open(&[name], options).unwrap();
    let mut sink = Sink::open(copy).unwrap();
    while let Next::Batch(batch) = source.next(LONG).unwrap() {
        let mask: Option<Vec<u64>> = marks.map(|marks| {
            batch
                .verdicts()
                .words()
                .iter()
                .map(|&word| marks(word))
                .collect()
        });
        sink.send(&batch, mask.as_deref()).unwrap();
    }
    let (counts, closed) = sink.close();
    closed.unwrap();
    source.close();
    counts.written
}

#[test]
fn a_file_of_a_sink_says_the_choice_of_its_source() {
    let scratch = Scratch::new();
    let (file, copy) = (
        scratch.file("a.pcap", &mixed(2_000)),
        scratch.at("copy.pcapng"),
    );
    let with = |filter: &str| Options {
        filter: filter.to_owned(),
        ..Options::default()
    };
    let only = |what: &str| format!("holds only {what}");

    assert_eq!(copied(&file, &with(""), &copy, None), 2_000);
    assert_eq!(interfaces(&copy), [(None, vec![])]);
    copied(&file, &with("udp"), &copy, None);
    assert_eq!(interfaces(&copy), [(Some("udp".to_owned()), vec![])]);
    copied(
        &file,
        &Options {
            invert: true,
            ..with("udp")
        },
        &copy,
        None,
    );
    assert_eq!(interfaces(&copy), [(Some("not (udp)".to_owned()), vec![])]);
    // A copy of the copy has both.
    let again = scratch.at("again.pcapng");
    copied(&copy, &with("ip"), &again, None);
    assert_eq!(
        interfaces(&again),
        [(Some("(not (udp)) and (ip)".to_owned()), vec![])]
    );

    let rules = Options {
        rules: Some("default pass".to_owned()),
        ..with("udp")
    };
    copied(&file, &rules, &copy, None);
    assert_eq!(
        interfaces(&copy),
        [(
            Some("udp".to_owned()),
            vec![only("packets that the firewall passed")]
        )]
    );

    // A part of what passed, and packets that did not pass.
    let program = only("packets that a program chose");
    copied(
        &file,
        &with("udp"),
        &copy,
        Some(|word| word & 0x5555_5555_5555_5555),
    );
    assert_eq!(
        interfaces(&copy),
        [(Some("udp".to_owned()), vec![program.clone()])]
    );
    copied(&file, &with("udp"), &copy, Some(|word| !word));
    assert_eq!(interfaces(&copy), [(None, vec![program])]);
}

/// A filter that changes: what the file says of a packet is what chose it.
#[test]
fn a_changed_filter_is_said_of_the_packets_behind_it() {
    let scratch = Scratch::new();
    let (file, copy) = (
        scratch.file("a.pcap", &mixed(400_000)),
        scratch.at("copy.pcapng"),
    );
    let options = Options {
        filter: "udp".to_owned(),
        batches: 2,
        ..Options::default()
    };
    let source = Source::open(&[&*file], &options).unwrap();
    let mut sink = Sink::open(&*copy).unwrap();
    let mut asked = false;
    let mut changes = std::collections::BTreeSet::new();
    while let Next::Batch(batch) = source.next(LONG).unwrap() {
        changes.insert(batch.change());
        sink.send(&batch, None).unwrap();
        drop(batch);
        if !std::mem::replace(&mut asked, true) {
            source.set_filter("tcp", Duration::from_millis(10)).unwrap();
        }
    }
    sink.close().1.unwrap();
    let filters: Vec<_> = interfaces(&copy)
        .into_iter()
        .map(|(filter, _)| filter.unwrap())
        .collect();
    assert_eq!(changes.len(), 2, "{changes:?}");
    assert_eq!(filters, ["udp", "tcp"]);
}
