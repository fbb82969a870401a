//! Scans and other crowds: thresholds of different elements, and the ready rule, against a list of who scans.

use super::*;

/// TCP segment without payload: addresses end in these bytes of 10.0.0.0/16.
fn tcp(from: ([u8; 2], u16), to: ([u8; 2], u16), flags: u8) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    frame.extend([0x45, 0, 0, 40, 0, 0, 0x40, 0, 64, 6, 0, 0]);
    frame.extend([10, 0, from.0[0], from.0[1], 10, 0, to.0[0], to.0[1]]);
    frame.extend([from.1.to_be_bytes(), to.1.to_be_bytes()].concat());
    frame.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 4, 0, 0, 0, 0, 0]);
    frame
}

const SYN: u8 = 2;
const SYN_ACK: u8 = 18;
const RST_ACK: u8 = 20;

/// Server to which [`clients`] connect.
const SERVER: [u8; 2] = [0, 80];

/// Packets, with their times in ms after [`BEGIN`].
type Packets = Vec<(u64, Vec<u8>)>;

/// Ten connections a second to a server, which answers each, for this many seconds.
fn clients(seconds: u64) -> Packets {
    let mut packets = Packets::new();
    for i in 0..seconds * 10 {
        let client = ([1, i as u8 % 50], 30_000 + i as u16);
        packets.push((i * 100, tcp(client, (SERVER, 443), SYN)));
        packets.push((i * 100 + 10, tcp((SERVER, 443), client, SYN_ACK)));
    }
    packets
}

/// Connection requests of a host to other hosts, or to ports of the server if `is_vertical`; each tenth is refused.
fn scan(host: u8, begin: u64, count: u16, gap: u64, is_vertical: bool) -> Packets {
    let mut packets = Packets::new();
    for i in 0..count {
        let from = ([9, host], 40_000 + i);
        let to = match is_vertical {
            true => (SERVER, i + 1),
            false => ([20 + (i / 250) as u8, (i % 250) as u8], 22),
        };
        let time = begin + u64::from(i) * gap;
        packets.push((time, tcp(from, to, SYN)));
        if i % 10 == 0 {
            packets.push((time + 1, tcp(to, from, RST_ACK)));
        }
    }
    packets
}

fn pcap(parts: &[Packets]) -> Vec<u8> {
    let mut all = parts.concat();
    all.sort_by_key(|(ms, _)| *ms);
    let mut bytes = pcap_header(65_535, 1);
    for (ms, frame) in all {
        let mut record = pcap_record(BEGIN + (ms / 1000) as u32, &frame);
        record[4..8].copy_from_slice(&((ms % 1000 * 1000) as u32).to_le_bytes());
        bytes.extend(record);
    }
    bytes
}

/// Objects that a recording prints: its saved files, and the summary.
fn objects(temp: &Temp, name: &str, file: &str, options: &[&str]) -> (Vec<Value>, Value) {
    let out = temp.at(name);
    let begin = ["record", file, &out, "--ram", "16M", "--json"];
    let done = weir(begin.iter().chain(options)).ok();
    let text = done.text();
    let objects = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut objects: Vec<Value> = objects.collect();
    let end = objects.pop().unwrap();
    (objects, end)
}

#[test]
fn crowds_across_the_border_of_a_second_fire() {
    let temp = Temp::new();
    let sweep = scan(1, 20_700, 150, 5, false);
    let file = temp.file("sweep.pcap", &pcap(&[clients(40), sweep]));
    let (saved, _) = objects(
        &temp,
        "peers",
        &file,
        &["--threshold", "p=src>100 peers/1s"],
    );
    let [only] = &saved[..] else {
        panic!("{saved:?}")
    };
    let cause = only["cause"].as_str().unwrap();
    assert!(
        cause.starts_with("10.0.9.1: 1") && cause.ends_with("more than 100"),
        "{cause}"
    );
    let last = only["remarks"][0].as_str().unwrap();
    assert!(
        last.ends_with("10.0.9.1: 150 peers in 1s, more than 100"),
        "{last}"
    );

    let ports = scan(2, 20_700, 250, 2, true);
    let file = temp.file("ports.pcap", &pcap(&[clients(40), ports]));
    for (name, spec, key) in [
        ("ports", "p=src>200 ports/1s", "10.0.9.2: "),
        ("prefix", "p=src/24>200 contacts/10s", "10.0.9.0/24: "),
        ("target", "p=dst>200 ports/10s", "10.0.0.80: "),
    ] {
        let (saved, _) = objects(&temp, name, &file, &["--threshold", spec]);
        let causes: Vec<_> = saved
            .iter()
            .map(|file| file["cause"].as_str().unwrap())
            .collect();
        assert!(
            causes.len() == 1 && causes[0].starts_with(key),
            "{spec}: {causes:?}"
        );
    }
}

/// Three scanners within a second are three files, each with all packets of its scanner, as tcpdump finds them.
#[test]
fn each_scanner_has_a_file_of_its_own() {
    if !have("each_scanner_has_a_file_of_its_own", &["tcpdump"]) {
        return;
    }
    let temp = Temp::new();
    let scans = [
        clients(40),
        scan(1, 20_100, 150, 3, false),
        scan(2, 20_300, 250, 2, true),
        scan(3, 20_200, 2000, 5, false),
    ];
    let file = temp.file("three.pcap", &pcap(&scans));
    let (saved, end) = objects(
        &temp,
        "out",
        &file,
        &["--trigger", "scan", "--keep", "host"],
    );
    let mut found: Vec<_> = saved
        .iter()
        .map(|file| {
            let cause = file["cause"].as_str().unwrap();
            (
                cause.split_once(':').unwrap().0,
                file["file"].as_str().unwrap(),
            )
        })
        .collect();
    found.sort_unstable();
    let names: Vec<_> = found.iter().map(|(name, _)| *name).collect();
    assert_eq!(names, ["10.0.9.1", "10.0.9.2", "10.0.9.3"]);
    for (name, saved) in found {
        let all = tool("tcpdump", ["-ttnr", &file, &format!("host {name}")])
            .ok()
            .text();
        let kept = tool("tcpdump", ["-ttnr", saved]).ok().text();
        assert_eq!(kept, all, "{name}");
        assert!(comment(saved).starts_with(&format!("trigger scan: {name}: ")));
    }
    let state = &end["triggers"][0];
    assert_eq!(
        [&state["fired"], &state["doubt"]],
        [&Value::from(3), &Value::Null]
    );
    assert!(state["memory"].as_u64().unwrap() > 40 << 20);
}

/// At most 64 files are written at a time. Each key without a file is an error that names it, and the summary counts it.
#[test]
fn keys_beyond_the_files_at_a_time_are_told() {
    let temp = Temp::new();
    let mut parts = vec![clients(40)];
    parts.extend((0..100).map(|host| scan(host, 20_100 + u64::from(host), 110, 5, false)));
    let file = temp.file("many.pcap", &pcap(&parts));
    let out = temp.at("out");
    let spec = ["--threshold", "p=src>100 contacts/10s", "--keep", "host"];
    let begin = ["record", &file, &out, "--ram", "16M", "--json"];
    let done = weir(begin.iter().chain(&spec));
    assert_eq!(done.code, Some(1), "{}", done.err);
    let text = done.text();
    let objects = text.lines().map(|line| serde_json::from_str(line).unwrap());
    let mut objects: Vec<Value> = objects.collect();
    let end = objects.pop().unwrap();
    let name = |it: &Value| {
        let cause = it["cause"].as_str().unwrap();
        cause.split_once(": ").unwrap().0.to_owned()
    };
    let mut names: Vec<_> = objects.iter().map(name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!((names.len(), objects.len()), (100, 100));
    let is_told = |it: &&Value| {
        it["fault"]
            .as_str()
            .is_some_and(|it| it.contains("64 files"))
    };
    assert_eq!(objects.iter().filter(is_told).count(), 36);
    let state = &end["triggers"][0];
    let counts = ["met", "fired", "saved", "failed"].map(|field| state[field].as_u64().unwrap());
    assert_eq!(counts, [100, 64, 64, 36]);
    let done = weir(["record", &file, &out, "--ram", "16M"].iter().chain(&spec));
    let line = "    36 files could not be saved: see above\n";
    assert!(done.err.contains(line), "{}", done.err);
}

/// The same rule from a file of triggers; of one direction alone it knows nothing, and says so.
#[test]
fn the_rule_for_scans_says_what_it_cannot_know() {
    let temp = Temp::new();
    let both = [clients(40), scan(1, 20_100, 300, 3, true)];
    let one_way: Packets = both
        .concat()
        .into_iter()
        .filter(|(_, frame)| frame[47] == SYN)
        .collect();
    let rules = temp.file("rules.toml", b"[trigger.probes]\nrule = 'scan'\n");
    let both = temp.file("both.pcap", &pcap(&both));
    let (saved, _) = objects(&temp, "both", &both, &["--triggers", &rules]);
    assert_eq!(saved.len(), 1);
    assert_eq!(saved[0]["trigger"], "probes");
    let one_way = temp.file("one.pcap", &pcap(&[one_way]));
    let (saved, end) = objects(&temp, "one", &one_way, &["--triggers", &rules]);
    assert_eq!(saved, Vec::<Value>::new());
    let doubt = end["triggers"][0]["doubt"].as_str().unwrap();
    assert!(doubt.contains("one direction only"), "{doubt}");
}

/// Files of real traffic, joined in ten orders.
#[test]
fn captures_raise_no_alarm() {
    let captures = weir_testkit::captures("captures_raise_no_alarm");
    let temp = Temp::new();
    for seed in 0..10.min(captures.len()) {
        let mut files = captures.clone();
        files.rotate_left(seed * 7 % captures.len());
        let out = temp.at(&format!("out{seed}"));
        let files = files.iter().map(|file| file.to_str().unwrap());
        let options = [&out, "--ram", "16M", "--trigger", "scan"];
        // Some of the files are damaged, which is an error of the input.
        let done = weir(["record"].into_iter().chain(files).chain(options));
        assert!(
            done.err.contains("trigger scan: met 0 times"),
            "{}",
            done.err
        );
        assert_eq!(saved(&out, "scan"), Vec::<String>::new(), "{}", done.err);
    }
}

/// On an interface a scan is noticed although nothing comes after it.
#[test]
fn a_scan_of_an_interface_is_noticed_in_the_silence_after_it() {
    let Some(net) = Net::new("a_scan_of_an_interface_is_noticed_in_the_silence_after_it") else {
        return;
    };
    let temp = Temp::new();
    let out = temp.at("out");
    let options = [
        "--ram",
        "16M",
        "--after",
        "1s",
        "--keep",
        "host",
        "--trigger",
        "scan",
    ];
    let capture = net.capture(&[&["record", "near", &out][..], &options].concat());
    let packets = [clients(5), scan(7, 0, 300, 1, true)].concat();
    let frames: Vec<_> = packets.into_iter().map(|(_, frame)| frame).collect();
    assert_eq!(net.send(&frames, 50), frames.len() as u64);
    let done = capture.until("trigger scan: 10.0.9.7: ").stop().ok();
    let [only] = &saved(&out, "scan")[..] else {
        panic!("{}", done.err)
    };
    assert_eq!(records(only).len(), 330, "{}", done.err);
}
