//! First and last times of keys, and their peaks: the judge is tshark.

use crate::support::*;
use serde_json::Value;
use std::collections::BTreeMap;

const MS: i64 = 1_000_000;
const SECOND: i64 = 1000 * MS;
const COLUMNS: &str = "first_seen,last_seen,packets_peak,bits_peak";

/// A frame as tshark tells it: time in ns, source, destination, length.
type Frame = (i64, String, String, u64);

fn frames(file: &str) -> Vec<Frame> {
    const FIELDS: [&str; 4] = ["frame.time_epoch", "ip.src", "ip.dst", "frame.len"];
    let fixed = [
        "-n",
        "-r",
        file,
        "-Y",
        "ip",
        "-T",
        "fields",
        "-E",
        "occurrence=f",
    ];
    let fields = FIELDS.iter().flat_map(|field| ["-e", *field]);
    let lines = tool("tshark", fixed.into_iter().chain(fields)).ok().text();
    let frame = |line: &str| {
        let values: Vec<&str> = line.split('\t').collect();
        let (seconds, fraction) = values[0].split_once('.').expect("a time with digits");
        let ns: i64 = format!("{seconds}{fraction:0<9}").parse().expect("digits");
        let len = values[3].parse().expect("a length");
        (ns, values[1].to_owned(), values[2].to_owned(), len)
    };
    lines.lines().map(frame).collect()
}

/// Times of packets in one direction, by millisecond.
#[derive(Default)]
struct Side {
    milliseconds: BTreeMap<i64, [u64; 2]>,
    times: Option<(i64, i64)>,
    late: u64,
}

impl Side {
    fn add(&mut self, time: i64, len: u64) {
        let (first, last) = self.times.unwrap_or((time, time));
        if time / MS < last / MS {
            self.late += 1;
        } else {
            let sum = self.milliseconds.entry(time / MS).or_default();
            *sum = [sum[0] + 1, sum[1] + len];
        }
        self.times = Some((first.min(time), last.max(time)));
    }

    fn most(&self, at: usize) -> u64 {
        self.milliseconds
            .values()
            .map(|sum| sum[at])
            .max()
            .unwrap_or(0)
    }
}

/// What a row says of a key: first and last time, packets and bits of its peaks.
type Figures = (i64, i64, u64, u64);

fn figures(sides: &[Side; 2]) -> Figures {
    let times = sides.iter().filter_map(|side| side.times);
    let (first, last) = times
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)))
        .expect("a packet");
    let most = |at| sides.iter().map(|side| side.most(at)).max().unwrap_or(0);
    (first, last, most(0) * 1000, most(1) * 8000)
}

/// The rows of an answer.
fn rows(answer: &Value, key: &str) -> BTreeMap<String, Figures> {
    let ns = |value: &Value| {
        let time: jiff::Timestamp = value.as_str().expect("a time").parse().expect("RFC 3339");
        time.as_nanosecond() as i64
    };
    let row = |row: &Value| {
        let [packets, bits] =
            ["packets_peak", "bits_peak"].map(|name| row[name].as_u64().expect("a peak"));
        let figures = (ns(&row["first_seen"]), ns(&row["last_seen"]), packets, bits);
        (row[key].as_str().expect("a key").to_owned(), figures)
    };
    answer["top"]
        .as_array()
        .expect("rows")
        .iter()
        .map(row)
        .collect()
}

fn answers(file: &str, arguments: &str) -> Vec<Value> {
    let words = arguments.split(' ');
    let fixed = [
        "measure", file, "--seed", "1", "--top", "100000", "--filter", "ip", "--json",
    ];
    let text = weir(fixed.into_iter().chain(words)).ok().text();
    let object = |line| serde_json::from_str(line).expect("an object");
    text.lines().map(object).collect()
}

/// What a naive count of the frames says of each source, and of each host.
fn naive(frames: &[&Frame]) -> [(BTreeMap<String, [Side; 2]>, u64); 2] {
    let (mut sources, mut hosts) = (
        BTreeMap::<_, [Side; 2]>::new(),
        BTreeMap::<_, [Side; 2]>::new(),
    );
    for (time, src, dst, len) in frames.iter().copied() {
        sources.entry(src.clone()).or_default()[0].add(*time, *len);
        hosts.entry(src.clone()).or_default()[0].add(*time, *len);
        hosts.entry(dst.clone()).or_default()[1].add(*time, *len);
    }
    [sources, hosts].map(|keys| {
        let late = keys.values().flatten().map(|side| side.late).sum();
        (keys, late)
    })
}

#[test]
fn times_and_peaks_are_those_of_tsharks_frames() {
    let test = "times_and_peaks_are_those_of_tsharks_frames";
    if !have(test, &["tshark"]) {
        return;
    }
    let Some(file) = capture(test, "pcapplusplus__example.pcap") else {
        return;
    };
    let file = s(&file);
    let frames = frames(file);
    let all: Vec<&Frame> = frames.iter().collect();
    assert!(all.len() > 4000, "{}", all.len());
    for (key, (truth, late)) in ["src", "host"].into_iter().zip(naive(&all)) {
        let truth: BTreeMap<_, _> = truth
            .iter()
            .map(|(key, sides)| (key.clone(), figures(sides)))
            .collect();
        for more in [
            "",
            " --by bytes",
            " --sketch exact",
            " --design async",
            " --memory 8M",
        ] {
            let answer = &answers(
                file,
                &format!("--key {key} --columns {key},{COLUMNS}{more}"),
            )[0];
            assert_eq!(rows(answer, key), truth, "{key}{more}");
            assert_eq!(
                answer["missing"]["late"].as_u64().unwrap_or(0),
                late,
                "{key}{more}"
            );
        }
        // Several workers, which know times and no peaks.
        for more in [
            "--workers 3",
            "--workers 3 --design async --distribute random",
            "--workers 2 --state shared --sketch exact --design sync",
        ] {
            let answer = &answers(
                file,
                &format!("--key {key} --columns {key},first_seen,last_seen {more}"),
            )[0];
            let times = |row: &Value| {
                [key, "first_seen", "last_seen"]
                    .map(|name| row[name].as_str().expect("a text").to_owned())
            };
            let times: Vec<_> = answer["top"]
                .as_array()
                .expect("rows")
                .iter()
                .map(times)
                .collect();
            let stamp = |ns: i64| jiff::Timestamp::from_nanosecond(ns.into()).expect("a time");
            assert_eq!(times.len(), truth.len());
            for [of, first, last] in times {
                let found =
                    [first, last].map(|text| text.parse::<jiff::Timestamp>().expect("RFC 3339"));
                let (first, last, ..) = truth[&of];
                assert_eq!(found, [stamp(first), stamp(last)], "{of} {more}");
            }
        }
    }
    // Each window has times of its own; the sum of all has those of all.
    let windows = answers(
        file,
        &format!("--key src --window 5s --columns src,{COLUMNS}"),
    );
    let (sum, windows) = windows.split_last().expect("the sum");
    for window in windows {
        let start: jiff::Timestamp = window["start"].as_str().unwrap().parse().unwrap();
        let start = start.as_nanosecond() as i64;
        let has = |frame: &&Frame| (start..start + 5 * SECOND).contains(&frame.0);
        let [(truth, _), _] = naive(&frames.iter().filter(has).collect::<Vec<_>>());
        let truth: BTreeMap<_, _> = truth
            .iter()
            .map(|(key, sides)| (key.clone(), figures(sides)))
            .collect();
        assert_eq!(rows(window, "src"), truth, "{start}");
    }
    assert!(windows.len() > 2);
    assert_eq!(
        rows(sum, "src"),
        rows(
            &answers(file, &format!("--key src --columns src,{COLUMNS}"))[0],
            "src"
        )
    );
}

/// Late packets are counted; tables show rates in the usual units; rows without a sure figure have no times.
#[test]
fn peaks_leave_out_what_came_late_and_say_so() {
    let temp = Temp::new();
    let mut file = pcapng_start(1);
    for ticks in [7_000_100, 7_000_200, 7_002_000, 7_000_300] {
        file.extend(pcapng_packet_at(ticks, 100, &udp(53, 4)));
    }
    let file = temp.file("in.pcapng", &file);
    let columns = [
        "--columns",
        "src,peak,bits_peak,first_seen,last_seen",
        "--utc",
    ];
    let ask = |more: &[&str]| {
        weir([&["measure", &file, "--key", "src"][..], &columns, more].concat())
            .ok()
            .text()
    };
    let table = ask(&[]);
    assert!(
        table.contains("  in no peak: 1 packet out of order"),
        "{table}"
    );
    let row = table
        .lines()
        .find(|line| line.contains("1.6 Mbit/s"))
        .expect("a row");
    let words: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(words[1..6], ["2", "000", "pps", "1.6", "Mbit/s"], "{row}");
    let sorted = ask(&["--sort"]);
    assert!(
        sorted.contains("3 000") && !sorted.contains("in no peak"),
        "{sorted}"
    );
    // Names have no peak of their own, but other rows do.
    let both = weir([
        "measure",
        &file,
        "--key",
        "name",
        "--key",
        "dst",
        "--columns",
        "key,peak",
        "--format",
        "csv",
    ]);
    assert_eq!(
        both.ok().text(),
        "key,peak\r\nname,\r\nname,\r\ndst,2000\r\n"
    );
}

#[test]
fn times_that_cannot_be_known_are_refused() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(2));
    for (arguments, why) in [
        ("--columns peak --workers 2", "use --workers 1"),
        (
            "--columns first_seen --sketch mv",
            "use --sketch heavy or exact",
        ),
        ("--columns peak --window 1500us", "use whole ones"),
        (
            "--key name --columns peak",
            "no row of --key name has the column peak",
        ),
        (
            "--key src --columns last_seen --by ports",
            "no row of --by ports has the column last_seen",
        ),
        ("--columns peaks", "(did you mean peak?)"),
    ] {
        let done = weir(["measure", &file].into_iter().chain(arguments.split(' ')));
        assert_eq!(done.code, Some(2), "{arguments}: {}", done.err);
        assert!(done.err.contains(why), "{arguments}: {}", done.err);
        assert_eq!(done.err.lines().count(), 1, "{arguments}: {}", done.err);
    }
}
