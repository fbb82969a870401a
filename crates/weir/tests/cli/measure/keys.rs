//! Keys beside the flow key, keys of several fields, and keys with two directions: the oracle makes the frames, and knows what
//! they hold.

use super::*;

/// What the oracle knows of a frame.
struct Planted {
    data: Vec<u8>,
    tag: Option<u16>,
    /// Last bytes of the MAC addresses, source first.
    macs: [u8; 2],
    /// Last bytes of the addresses, ports, and TCP flags; `None` for ARP.
    ip: Option<([u8; 2], [u16; 2], u8)>,
}

const TTL: u8 = 61;

/// Frames of TCP and ARP, with and without tags, between few hosts: every field has several values.
fn frames() -> Vec<Planted> {
    let mut frames = Vec::new();
    for i in 0..240u16 {
        let tag = [None, Some(7), Some(42)][usize::from(i % 3)];
        let is_arp = i % 5 == 0;
        let macs = [
            1 + (i % 4) as u8,
            if is_arp { 0xff } else { 1 + (i % 7 / 2) as u8 },
        ];
        let mac = |last: u8| match last {
            0xff => [0xff; 6],
            last => [2, 0, 0, 0, 0, last],
        };
        let mut data = [mac(macs[1]), mac(macs[0])].concat();
        if let Some(tag) = tag {
            data.extend([0x81, 0, 0, tag as u8]);
        }
        let hosts = [1 + (i % 4) as u8, 1 + (i % 7 / 2) as u8];
        let ports = match i % 2 {
            0 => [40_000 + i % 3, 443],
            _ => [443, 40_000 + i % 3],
        };
        let flags = [0x02, 0x12, 0x10, 0x18][usize::from(i % 4)];
        let ip = (!is_arp).then_some((hosts, ports, flags));
        if is_arp {
            data.extend([0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1]);
            data.resize(60, 0);
        } else {
            let payload = usize::from(i % 11) * 20;
            let total = 40 + payload as u16;
            data.extend([0x08, 0x00, 0x45, 46 << 2]);
            data.extend(total.to_be_bytes());
            data.extend([
                0, 0, 0, 0, TTL, 6, 0, 0, 10, 0, 0, hosts[0], 10, 0, 0, hosts[1],
            ]);
            data.extend(ports[0].to_be_bytes());
            data.extend(ports[1].to_be_bytes());
            data.extend([0, 0, 0, 1, 0, 0, 0, 0, 0x50, flags, 1, 0, 0, 0, 0, 0]);
            data.resize(data.len() + payload, 0);
        }
        frames.push(Planted {
            data,
            tag,
            macs,
            ip,
        });
    }
    frames
}

/// Counts of all keys that `keys` gives a frame.
fn naive(frames: &[Planted], keys: impl Fn(&Planted) -> Vec<Value>) -> Counts {
    let mut counts = Counts::new();
    for frame in frames {
        for key in keys(frame) {
            let (packets, bytes) = counts.entry(key.to_string()).or_default();
            *packets += 1;
            *bytes += frame.data.len() as u64;
        }
    }
    counts
}

/// The rows of a table as counts. Figures of both directions add up to those of their row.
fn found(rows: &Value) -> Counts {
    let mut counts = Counts::new();
    for row in rows.as_array().expect("a list of rows") {
        let mut key = row.as_object().expect("an object").clone();
        let mut take = |name: &str| key.shift_remove(name).and_then(|value| value.as_u64());
        let (packets, bytes) = (take("packets").unwrap(), take("bytes").unwrap());
        if let Some(tx) = take("tx_packets") {
            assert_eq!(tx + take("rx_packets").unwrap(), packets, "{row}");
            let (tx, rx) = (take("tx_bytes").unwrap(), take("rx_bytes").unwrap());
            assert_eq!(tx + rx, bytes, "{row}");
        }
        for bound in ["bound", "bytes_bound", "packets_bound"] {
            key.shift_remove(bound);
        }
        counts.insert(Value::Object(key).to_string(), (packets, bytes));
    }
    counts
}

fn mac(last: u8) -> String {
    match last {
        0xff => "ff:ff:ff:ff:ff:ff".to_owned(),
        last => format!("02:00:00:00:00:{last:02x}"),
    }
}

/// Keys of a frame of TCP: of the frame, its hosts, ports and flags.
type OfIp<'a> = &'a dyn Fn(&Planted, [u8; 2], [u16; 2], u8) -> Vec<Value>;

/// Keys, each with the counts that the oracle expects.
fn expected(frames: &[Planted]) -> Vec<(&'static str, Counts)> {
    let tag = |frame: &Planted| frame.tag.map_or(json!("-"), Value::from);
    let address = |last: u8| format!("10.0.0.{last}");
    let ip = |key: OfIp<'_>| {
        naive(frames, |frame| {
            let found = frame.ip;
            found.map_or(Vec::new(), |(hosts, ports, flags)| {
                key(frame, hosts, ports, flags)
            })
        })
    };
    vec![
        (
            "vlan",
            naive(frames, |frame| vec![json!({ "vlan": tag(frame) })]),
        ),
        (
            "ethertype",
            naive(frames, |frame| {
                vec![json!({ "ethertype": if frame.ip.is_some() { "ip" } else { "arp" } })]
            }),
        ),
        (
            "mac",
            naive(frames, |frame| {
                frame.macs.map(|last| json!({ "mac": mac(last) })).to_vec()
            }),
        ),
        (
            "smac,vlan",
            naive(frames, |frame| {
                vec![json!({ "smac": mac(frame.macs[0]), "vlan": tag(frame) })]
            }),
        ),
        (
            "size",
            naive(frames, |frame| {
                let class = match frame.data.len() {
                    ..65 => "0-64",
                    65..128 => "65-127",
                    128..256 => "128-255",
                    _ => "256-511",
                };
                vec![json!({ "size": class })]
            }),
        ),
        (
            "src,dport",
            ip(&|_, hosts, ports, _| {
                vec![json!({ "src": address(hosts[0]), "dport": ports[1], "proto": "tcp" })]
            }),
        ),
        (
            "src,vlan,tcpflags",
            ip(&|frame, hosts, _, flags| {
                let flags = ["S", "S.", ".", "P."][[0x02, 0x12, 0x10, 0x18]
                    .iter()
                    .position(|it| *it == flags)
                    .unwrap()];
                vec![json!({ "src": address(hosts[0]), "vlan": tag(frame), "tcpflags": flags })]
            }),
        ),
        (
            "dscp,ttl",
            ip(&|_, _, _, _| vec![json!({ "dscp": 46, "ttl": TTL })]),
        ),
        (
            "host",
            ip(&|_, hosts, _, _| hosts.map(|last| json!({ "host": address(last) })).to_vec()),
        ),
        (
            "hosts",
            ip(&|_, hosts, _, _| {
                let (low, high) = (hosts[0].min(hosts[1]), hosts[0].max(hosts[1]));
                vec![json!({ "src": address(low), "dst": address(high) })]
            }),
        ),
        (
            "service",
            ip(&|_, _, _, _| vec![json!({ "service": 443, "proto": "tcp" })]),
        ),
        ("app", ip(&|_, _, _, _| vec![json!({ "app": "https" })])),
        (
            "src/24/48",
            ip(&|_, _, _, _| vec![json!({ "src": "10.0.0.0/24" })]),
        ),
    ]
}

fn file(temp: &Temp, frames: &[Planted]) -> String {
    let mut bytes = pcap_header(65_535, 1);
    for (i, frame) in frames.iter().enumerate() {
        bytes.extend(pcap_record(i as u32 / 60, &frame.data));
    }
    temp.file("keys.pcap", &bytes)
}

#[test]
fn every_key_counts_what_its_fields_say() {
    let (temp, frames) = (Temp::new(), frames());
    let file = file(&temp, &frames);
    let expected = expected(&frames);
    let keys: Vec<&str> = expected
        .iter()
        .flat_map(|(key, _)| ["--key", key])
        .collect();
    for more in [
        "--workers 1",
        "--workers 2 --design rss --by bytes",
        "--workers 2 --design async --batch 7",
        "--workers 2 --design sync --distribute random",
        "--workers 2 --design async --state shared --sketch exact",
        "--sketch mv",
        "--sketch cms",
        "--sketch sht",
    ] {
        let more: Vec<&str> = more.split(' ').collect();
        let shared = [
            &["measure", &file, "--json", "--top", "100", "--seed", "1"],
            &keys[..],
        ];
        let done = weir([&shared.concat()[..], &more[..]].concat()).ok();
        let summary: Value = serde_json::from_str(&done.text()).expect("an object");
        for (key, counts) in &expected {
            assert_eq!(&found(&summary["tops"][key]), counts, "{key} {more:?}");
        }
        let arp = frames.iter().filter(|frame| frame.ip.is_none()).count();
        assert_eq!(summary["broadcast"], arp, "{more:?}");
        assert_eq!(summary["multicast"], 0, "{more:?}");
    }
}

/// A threshold of a recording fires for the keys that have so many packets, and for no other one.
#[test]
fn thresholds_of_a_recording_count_by_every_key() {
    const MOST: u64 = 59;
    let (temp, frames) = (Temp::new(), frames());
    let (file, out) = (file(&temp, &frames), temp.at("out"));
    let expected = expected(&frames);
    // Packets of a window longer than the file.
    let threshold = |(i, (key, _)): (usize, &(&str, Counts))| {
        let value = (MOST as f64 + 0.5) / 1000.0;
        format!("k{i}={key}>{value} packets/s/1000s")
    };
    let thresholds: Vec<String> = expected.iter().enumerate().map(threshold).collect();
    let mut options = vec![
        "record", &file, &out, "--ram", "16M", "--json", "--after", "0s",
    ];
    for threshold in &thresholds {
        options.extend(["--threshold", threshold]);
    }
    let text = weir(&options).ok().text();
    let mut found = vec![BTreeSet::new(); expected.len()];
    for line in text.lines() {
        let saved: Value = serde_json::from_str(line).expect("an object");
        let (Some(trigger), Some(cause)) = (saved["trigger"].as_str(), saved["cause"].as_str())
        else {
            continue;
        };
        let of: usize = trigger[1..].parse().expect("a number");
        let (key, _) = cause.split_once(": more than").expect(cause);
        let kind = expected[of].0;
        let key = key.strip_prefix(&format!("{kind} ")).unwrap_or(key);
        assert!(saved["fault"].is_null(), "{saved}");
        assert!(
            found[of].insert(key.to_owned()),
            "{key} of {kind} fires twice"
        );
    }
    for ((kind, counts), found) in expected.iter().zip(found) {
        let many = counts.iter().filter(|(_, (packets, _))| *packets > MOST);
        let words = |(key, _): (&String, _)| -> String {
            let parts: Map<String, Value> = serde_json::from_str(key).expect("an object");
            let words = parts.values().map(|value| match value.as_str() {
                Some(text) => text.to_owned(),
                None => value.to_string(),
            });
            let words: Vec<String> = words.collect();
            match *kind {
                "hosts" => words.join(" <> "),
                "service" => format!("https {}/{}", words[1], words[0]),
                _ => words.join(" "),
            }
        };
        assert_eq!(found, many.map(words).collect::<BTreeSet<_>>(), "{kind}");
    }
}

/// Sums of windows are the counts of the whole, and changes of keys with two directions are those of their sums.
#[test]
fn windows_have_all_keys_too() {
    let (temp, frames) = (Temp::new(), frames());
    let file = file(&temp, &frames);
    let done = weir([
        "measure",
        &file,
        "--json",
        "--window",
        "1s",
        "--changers",
        "9",
        "--key",
        "host",
        "--key",
        "vlan",
        "--workers",
        "1",
        "--top",
        "100",
    ])
    .ok();
    let windows: Vec<Value> = done
        .text()
        .lines()
        .map(|line| serde_json::from_str(line).expect("an object"))
        .filter(|object: &Value| object["type"] == "window")
        .collect();
    assert_eq!(windows.len(), 4);
    for (key, counts) in expected(&frames)
        .iter()
        .filter(|(key, _)| ["host", "vlan"].contains(key))
    {
        let mut sum = Counts::new();
        for window in &windows {
            for (key, (packets, bytes)) in found(&window["tops"][key]) {
                let all = sum.entry(key).or_default();
                *all = (all.0 + packets, all.1 + bytes);
            }
        }
        assert_eq!(&sum, counts, "{key}");
    }
    let packets = |window: usize, host: &Value| {
        let rows = found(&windows[window]["tops"]["host"]);
        rows.get(&json!({ "host": host }).to_string())
            .map_or(0, |counts| counts.0)
    };
    for change in windows[2]["changers"]["host"].as_array().expect("changes") {
        assert_eq!(change["before"], packets(1, &change["host"]), "{change}");
        assert_eq!(change["after"], packets(2, &change["host"]), "{change}");
    }
}

#[test]
fn text_names_the_keys_that_rank_other_frames() {
    let (temp, frames) = (Temp::new(), frames());
    let arp: Vec<Planted> = frames
        .into_iter()
        .filter(|frame| frame.ip.is_none())
        .collect();
    let file = file(&temp, &arp);
    let text = |keys: &[&str]| weir([&["measure", &file][..], keys].concat()).ok().text();
    let plain = text(&[]);
    assert!(
        plain.contains("in no table: 48 not IP; --key ethertype ranks them"),
        "{plain}"
    );
    assert!(plain.contains("  broadcast 100.0 %\n"), "{plain}");
    // A table without a row is a line, in each form of the table.
    for more in [&[][..], &["--columns", "src,packets"], &["--by", "bytes"]] {
        let text = text(&[&["--key", "src"], more].concat());
        assert!(text.contains("\n  no packet has this key: src\n"), "{text}");
    }
    let text_by_peers = text(&["--key", "src", "--by", "peers"]);
    assert!(text_by_peers.contains("\n  no packet has this key: src\n"));
    // Raw IP has no MAC addresses.
    let raw = temp.file(
        "raw.pcap",
        &[pcap_header(65_535, 101), pcap_record(1, &udp(53, 10)[14..])].concat(),
    );
    let raw = weir(["measure", &raw, "--key", "mac"]).ok().text();
    assert!(
        raw.contains("\n  no packet has this key: mac; --key host ranks them\n"),
        "{raw}"
    );
    let ranked = text(&["--key", "ethertype"]);
    assert!(ranked.contains("without flow key: 48 not IP\n"), "{ranked}");
    assert!(ranked.contains("1  arp"), "{ranked}");
    let both = text(&["--key", "src", "--key", "smac"]);
    assert!(
        both.contains("only in the table by smac: 48 not IP"),
        "{both}"
    );
}
