//! Health, findings, places, duplicates and other addresses by handles: the command's JSON and files over the same capture.

use super::*;
use std::ffi::{CStr, c_char};
use std::os::unix::fs::OpenOptionsExt;
use weir_testkit::have;
use weir_testkit::mmdb::{Mmdb, country};

/// A frame of Ethernet and IPv4 from 10.0.0.`ends[0]` to 10.0.0.`ends[1]`.
fn frame(ends: [u8; 2], protocol: u8, rest: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    frame.extend((20 + rest.len() as u16).to_be_bytes());
    frame.extend([
        0, 0, 0, 0, 64, protocol, 0, 0, 10, 0, 0, ends[0], 10, 0, 0, ends[1],
    ]);
    frame.extend(rest);
    frame
}

fn udp(ports: [u16; 2], payload: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
    out.extend((8 + payload.len() as u16).to_be_bytes());
    out.extend([0, 0]);
    out.extend(payload);
    out
}

fn tcp(ports: [u16; 2], numbers: [u32; 2], flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut out: Vec<u8> = ports.iter().flat_map(|port| port.to_be_bytes()).collect();
    out.extend(numbers.iter().flat_map(|number| number.to_be_bytes()));
    out.extend([0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    out.extend(payload);
    out
}

fn dns(id: u8, answers: u8, name: &str) -> Vec<u8> {
    let mut out = vec![0, id, answers * 0x80, answers * 3, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        out.push(label.len() as u8);
        out.extend(label.as_bytes());
    }
    out.extend([0, 0, 1, 0, 1]);
    out
}

/// A connection with a segment sent again, a name that does not exist, a query without an answer, and a flood of 4 s.
fn troubles() -> Vec<u8> {
    let (client, server) = ([40_000, 80], [80, 40_000]);
    let mut packets: Vec<(u32, Vec<u8>)> = vec![
        (0, frame([1, 2], 6, &tcp(client, [100, 0], 2, b""))),
        (5, frame([2, 1], 6, &tcp(server, [500, 101], 18, b""))),
        (6, frame([1, 2], 6, &tcp(client, [101, 501], 16, b""))),
        (7, frame([1, 2], 6, &tcp(client, [101, 501], 24, b"hello"))),
        (
            300,
            frame([1, 2], 6, &tcp(client, [101, 501], 24, b"hello")),
        ),
        (310, frame([2, 1], 6, &tcp(server, [501, 106], 16, b""))),
        (
            400,
            frame([1, 3], 17, &udp([5000, 53], &dns(1, 0, "no.example"))),
        ),
        (
            420,
            frame([3, 1], 17, &udp([53, 5000], &dns(1, 1, "no.example"))),
        ),
        (
            430,
            frame([1, 3], 17, &udp([5001, 53], &dns(2, 0, "gone.example"))),
        ),
    ];
    let flood = |i: u32| {
        (
            500 + i * 4000 / 6000,
            frame([4, 9], 17, &udp([9, 7], &i.to_be_bytes())),
        )
    };
    packets.extend((0..6000).map(flood));
    packets.push((20_000, frame([1, 2], 6, &tcp(client, [106, 501], 17, b""))));
    let mut pcap = Pcap::new(1, 65_535);
    for (time_ms, frame) in packets {
        let len = frame.len() as u32;
        pcap.header(
            1_700_000_000 + time_ms / 1000,
            time_ms % 1000 * 1000,
            len,
            len,
        );
        pcap.bytes.extend(frame);
    }
    pcap.bytes
}

/// A text of a structure; `null` for NULL.
fn text(text: *const c_char) -> Value {
    match text.is_null() {
        true => Value::Null,
        // SAFETY: it leads to a text, and the answer is open.
        false => unsafe { CStr::from_ptr(text) }.to_str().unwrap().into(),
    }
}

/// A structure that a call fills; `None` if it gives nothing.
fn given<T>(call: impl FnOnce(*mut T) -> weir_status) -> Option<T> {
    let mut found = MaybeUninit::uninit();
    match call(found.as_mut_ptr()) {
        // SAFETY: the call has filled it.
        WEIR_OK => Some(unsafe { found.assume_init() }),
        WEIR_NOTHING => None,
        status => panic!("status {status}"),
    }
}

fn number(value: &Value) -> u64 {
    value.as_u64().unwrap()
}

/// A time of JSON, seconds, in ns.
fn ns(seconds: &Value) -> i64 {
    seconds.as_f64().map_or(-1, |s| (s * 1e9).round() as i64)
}

fn same_tcp(json: &Value, found: &weir_tcp_figures) {
    let counts = [
        ("packets", found.packets),
        ("payload", found.payload),
        ("retransmitted", found.retransmitted),
        ("retransmitted_bytes", found.retransmitted_bytes),
        ("fast", found.fast),
        ("spurious", found.spurious),
        ("repeated", found.repeated),
        ("out_of_order", found.out_of_order),
        ("duplicate_acks", found.duplicate_acks),
        ("zero_windows", found.zero_windows),
        ("resets", found.resets),
        ("gaps", found.gaps),
        ("untimed", found.untimed),
    ];
    for (name, count) in counts {
        assert_eq!(number(&json[name]), count, "{name}");
    }
    let rtt = &json["rtt"];
    assert_eq!(
        (
            number(&rtt["count"]),
            ["min_s", "mean_s", "max_s"].map(|name| ns(&rtt[name]))
        ),
        (
            found.rtt_count,
            [found.rtt_min_ns, found.rtt_mean_ns, found.rtt_max_ns]
        )
    );
}

fn same_dns(json: &Value, found: &weir_dns_figures) {
    let name = json
        .get("server")
        .or(json.get("name"))
        .unwrap_or(&Value::Null);
    assert_eq!(*name, text(found.name));
    // SAFETY: they lie in the answer.
    let codes = unsafe { std::slice::from_raw_parts(found.codes, found.code_count as usize) };
    for (code, name) in [(0, "NOERROR"), (2, "SERVFAIL"), (3, "NXDOMAIN")] {
        assert_eq!(
            json["codes"].get(name).map_or(0, number),
            codes[code],
            "{name}"
        );
    }
    let counts =
        ["queries", "retransmitted", "repeated", "unanswered"].map(|name| number(&json[name]));
    assert_eq!(
        counts,
        [
            found.queries,
            found.retransmitted,
            found.repeated,
            found.unanswered
        ]
    );
    let times = &json["times"];
    assert_eq!(
        (
            number(&times["count"]),
            ["median_s", "mean_s", "max_s"].map(|name| ns(&times[name]))
        ),
        (
            found.time_count,
            [found.median_ns, found.mean_ns, found.max_ns]
        )
    );
}

/// Holds the structures of an answer against its JSON. Returns the numbers of conversations and of rows of DNS.
fn same_health(answer: weir_text, json: &Value) -> (usize, usize) {
    // SAFETY: all pointers lead to memory for their structures.
    unsafe {
        let mut sum = MaybeUninit::uninit();
        let tcp = given(|to| weir_answer_tcp(answer, to, sum.as_mut_ptr())).unwrap();
        let of = &json["health"]["tcp"];
        same_tcp(of, &sum.assume_init());
        let names = [
            "conversations",
            "midway",
            "capacity",
            "evicted",
            "evicted_retransmitted",
            "unjudged",
        ];
        let found = [
            tcp.conversations,
            tcp.midway,
            tcp.capacity,
            tcp.evicted,
            tcp.evicted_retransmitted,
            tcp.unjudged,
        ];
        assert_eq!(names.map(|name| number(&of[name])), found);
        let rows = of["top"].as_array().unwrap();
        assert_eq!(rows.len() as u64, tcp.rows);
        for (i, row) in rows.iter().enumerate() {
            let (mut sent, mut received) = (MaybeUninit::uninit(), MaybeUninit::uninit());
            let (to_sent, to_received) = (sent.as_mut_ptr(), received.as_mut_ptr());
            let found =
                given(|to| weir_answer_conversation(answer, i, to, to_sent, to_received)).unwrap();
            assert_eq!(
                [&row["src"], &row["dst"]],
                [&text(found.src), &text(found.dst)]
            );
            assert_eq!(
                [
                    number(&row["sport"]),
                    number(&row["dport"]),
                    row["begun"].as_bool().unwrap().into()
                ],
                [found.sport, found.dport, found.begun].map(u64::from)
            );
            assert_eq!(ns(&row["handshake_s"]), found.handshake_ns);
            same_tcp(&row["sent"], &sent.assume_init());
            same_tcp(&row["received"], &received.assume_init());
        }
        let beyond = |to| weir_answer_conversation(answer, rows.len(), to, null_mut(), null_mut());
        assert!(given(beyond).is_none());
        let of = &json["health"]["dns"];
        let mut sum = MaybeUninit::uninit();
        let dns = given(|to| weir_answer_dns(answer, to, sum.as_mut_ptr())).unwrap();
        same_dns(of, &sum.assume_init());
        assert_eq!(
            (number(&of["unasked"]), number(&of["unread"])),
            (dns.unasked, dns.unread)
        );
        let lists = [
            (WEIR_DNS_SERVERS, "servers", dns.servers),
            (WEIR_DNS_SLOW, "slow", dns.slow),
            (WEIR_DNS_FAILING, "failing", dns.failing),
            (WEIR_DNS_UNANSWERED, "unanswered_names", dns.unanswered),
        ];
        let mut all = 0;
        for (list, name, count) in lists {
            let rows = of[name].as_array().unwrap();
            assert_eq!(rows.len() as u64, count, "{name}");
            for (i, row) in rows.iter().enumerate() {
                same_dns(
                    row,
                    &given(|to| weir_answer_dns_row(answer, list, i, to)).unwrap(),
                );
            }
            assert!(given(|to| weir_answer_dns_row(answer, list, rows.len(), to)).is_none());
            all += rows.len();
        }
        (rows.len(), all)
    }
}

fn findings(answer: weir_text) -> Vec<Value> {
    let one = |i| {
        // SAFETY: the pointer leads to memory for a finding.
        let found = given(|to| unsafe { weir_answer_finding(answer, i, to) })?;
        Some(serde_json::json!([
            found.number,
            text(found.kind),
            text(found.state),
            text(found.host),
            found.figure,
            found.most,
            text(found.unit),
            text(found.row),
        ]))
    };
    (0..).map_while(one).collect()
}

#[test]
fn health_and_findings_are_structures_with_the_figures_of_the_json() {
    let Some(command) = command("health_and_findings_are_structures_with_the_figures_of_the_json")
    else {
        return;
    };
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &troubles());
    let flags = [
        "--key",
        "host",
        "--window",
        "1s",
        "--health",
        "tcp,dns",
        "--findings",
        "--workers",
        "1",
    ];
    let (lines, _, _) = printed(&command, &[&[&file[..]], &flags[..]].concat());
    let (found, mut wanted): (Vec<Value>, Vec<Value>) = lines
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .partition(|object: &Value| object["type"] == "finding");
    let names = [
        "number", "kind", "state", "host", "figure", "most", "unit", "row",
    ];
    let found: Vec<Value> = found
        .iter()
        .map(|it| names.map(|name| it[name].clone()).to_vec().into())
        .collect();
    assert!(found.len() >= 2, "{lines}");
    let of = weir_options {
        workers: 1,
        ..options()
    };
    let measure = weir_measure_options {
        flags: WEIR_SEED | WEIR_FINDINGS | WEIR_HEALTH_TCP | WEIR_HEALTH_DNS,
        window_ns: SECOND,
        ..measure_options()
    };
    let measure = open_with(&[&file], &["host"], of, measure).unwrap();
    let (mut ours, mut rows, mut answer) = (Vec::new(), (0, 0), 0);
    wanted.reverse();
    // SAFETY: the pointers lead to variables, or are NULL.
    while unsafe { weir_measure_next(measure, 20 * SECOND, &mut answer, null_mut(), null_mut()) }
        == WEIR_OK
    {
        rows = same_health(answer, &wanted.pop().unwrap());
        ours.extend(findings(answer));
        assert_eq!(weir_text_free(answer), WEIR_OK);
    }
    assert!(wanted.is_empty() && rows == (1, 4), "{rows:?}");
    assert_eq!(ours, found);
    assert_eq!(weir_measure_close(measure), WEIR_OK);
    // The texts of others have no figures.
    let plain = open_with(&[&file], &[], of, measure_options()).unwrap();
    // SAFETY: as before.
    unsafe {
        assert_eq!(
            weir_measure_next(plain, 20 * SECOND, &mut answer, null_mut(), null_mut()),
            WEIR_OK
        );
        assert!(given(|to| weir_answer_tcp(answer, to, null_mut())).is_none());
        assert!(given(|to| weir_answer_finding(answer, 0, to)).is_none());
        assert_eq!(
            weir_answer_tcp(answer + 1, null_mut(), null_mut()),
            WEIR_CLOSED
        );
    }
    assert_eq!(
        (weir_text_free(answer), weir_measure_close(plain)),
        (WEIR_OK, WEIR_OK)
    );
}

#[test]
fn places_and_duplicates_are_those_of_the_command() {
    let Some(command) = command("places_and_duplicates_are_those_of_the_command") else {
        return;
    };
    let scratch = Scratch::new();
    let file = scratch.file("a.pcap", &troubles());
    let mut places = Mmdb::new(4, 24);
    places.add([10, 0, 0, 0].into(), 29, &country("DE"));
    let places = scratch.file("places.mmdb", &places.bytes());
    let columns = "key,country,src,src_country,packets";
    let flags = [
        "--geo",
        &places,
        "--columns",
        columns,
        "--dedup=1s",
        "--workers",
        "1",
    ];
    let keys = ["--key", "country", "--key", "src"];
    let (wanted, _, _) = printed(&command, &[&[&file[..]], &keys[..], &flags].concat());
    let (place, columns) = (
        CString::new(&places[..]).unwrap(),
        CString::new(columns).unwrap(),
    );
    let list = [place.as_ptr()];
    let of = weir_options {
        workers: 1,
        dedup_ns: SECOND,
        ..options()
    };
    let by = weir_measure_options {
        geo: list.as_ptr(),
        geo_count: 1,
        columns: columns.as_ptr(),
        ..measure_options()
    };
    let (ours, failure) = answers(open_with(&[&file], &["country", "src"], of, by).unwrap());
    assert_eq!((&ours, failure), (&wanted, None));
    assert!(
        ours.contains("\"src_country\":\"DE\"") && ours.contains("\"duplicates\":1"),
        "{ours}"
    );
    if have(
        "places_and_duplicates_are_those_of_the_command",
        &["mmdblookup"],
    ) {
        let path = ["country", "iso_code"];
        let mut lookup = Command::new("mmdblookup");
        let done = lookup
            .args(["-f", &places, "-i", "10.0.0.1"])
            .args(path)
            .output()
            .unwrap();
        assert!(
            String::from_utf8_lossy(&done.stdout).contains("\"DE\""),
            "{done:?}"
        );
    }
    let (_, line) = open_with(&[&file], &["country"], of, measure_options()).unwrap_err();
    assert!(line.contains("needs a database of addresses"), "{line}");
    let both = weir_options { dedup: 5, ..of };
    let (status, line) = open_with(&[&file], &[], both, measure_options()).unwrap_err();
    assert!(
        status == WEIR_REFUSED && line.contains("exclude each other"),
        "{line}"
    );
    let one = weir_options {
        dedup: 1,
        ..options()
    };
    let (status, line) = open_with(&[&file], &[], one, measure_options()).unwrap_err();
    assert_eq!(
        (status, &line[..]),
        (
            WEIR_REFUSED,
            "dedup: 1 is no number of packets from 2 to 1000000"
        )
    );
}

#[test]
fn a_sink_with_a_key_writes_the_file_of_the_command() {
    let Some(command) = command("a_sink_with_a_key_writes_the_file_of_the_command") else {
        return;
    };
    let scratch = Scratch::new();
    let (file, key) = (scratch.file("a.pcap", &troubles()), scratch.at("key"));
    let mut options = std::fs::OpenOptions::new();
    let mut made = options
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&key)
        .unwrap();
    made.write_all(&[7; 32]).unwrap();
    let [wanted, ours] = ["wanted.pcap", "ours.pcap"].map(|name| scratch.at(name));
    let flags = ["--anonymize", &key, "--payload", "3", "--shift", "1.5s"];
    let done = Command::new(command)
        .args(["filter", "", &file, "-w", &wanted])
        .args(flags)
        .output()
        .unwrap();
    assert!(
        done.status.success(),
        "{}",
        String::from_utf8_lossy(&done.stderr)
    );
    let [source, target, key] = [&file, &ours, &key].map(|name| CString::new(&name[..]).unwrap());
    // SAFETY: zeros are valid options.
    let zeros: weir_sink_options = unsafe { MaybeUninit::zeroed().assume_init() };
    let size = size_of::<weir_sink_options>() as u32;
    let payload = weir_sink_options {
        size,
        payload: 3,
        ..zeros
    };
    let with_key = weir_sink_options {
        anonymize: key.as_ptr(),
        shift_ns: 1_500_000_000,
        ..payload
    };
    let (mut from, mut sink, mut error) = (0, 0, 0);
    let mut batch = MaybeUninit::<weir_batch>::uninit();
    // SAFETY: all pointers lead to texts and variables.
    unsafe {
        assert_eq!(
            weir_sink_open_with(target.as_ptr(), &payload, &mut sink, &mut error),
            WEIR_REFUSED
        );
        assert!(line(error).contains("weir_sink_options.anonymize"));
        assert_eq!(
            weir_open(&source.as_ptr(), 1, null(), &mut from, null_mut()),
            WEIR_OK
        );
        assert_eq!(
            weir_sink_open_with(target.as_ptr(), &with_key, &mut sink, null_mut()),
            WEIR_OK
        );
        while weir_next(from, 20 * SECOND, batch.as_mut_ptr(), null_mut()) == WEIR_OK {
            let lease = batch.assume_init().lease;
            assert_eq!(weir_send(sink, lease, null(), null_mut()), WEIR_OK);
            assert_eq!(weir_release(lease), WEIR_OK);
        }
        assert_eq!(weir_close(from, null_mut()), WEIR_OK);
        assert_eq!(weir_sink_close(sink, null_mut(), null_mut()), WEIR_OK);
    }
    assert!(std::fs::read(&ours).unwrap() == std::fs::read(&wanted).unwrap());
}
