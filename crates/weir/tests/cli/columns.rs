//! Answers as csv, tsv, JSON and tables, with chosen columns: the same figures in all of them, and tshark's in the columns that both have.

use crate::support::*;
use serde_json::Value;

/// Reads csv by RFC 4180: each row as the names of the heading with its cells.
pub fn csv(text: &str) -> Vec<Vec<(String, String)>> {
    let rows: Vec<Vec<String>> = text.split_terminator("\r\n").map(cells).collect();
    let (heading, rows) = rows.split_first().expect("a heading");
    rows.iter()
        .map(|row| {
            assert_eq!(row.len(), heading.len(), "{row:?}");
            heading.iter().cloned().zip(row.iter().cloned()).collect()
        })
        .collect()
}

fn cells(line: &str) -> Vec<String> {
    let (mut cells, mut cell, mut quoted) = (Vec::new(), String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => cell.extend(chars.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => cells.push(std::mem::take(&mut cell)),
            c => cell.push(c),
        }
    }
    assert!(!quoted, "{line}");
    cells.push(cell);
    cells
}

fn objects(text: &str) -> Vec<Value> {
    let object = |line| serde_json::from_str(line).expect("an object");
    text.lines().map(object).collect()
}

/// A value of JSON as a cell has it.
fn as_cell(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) if text == "-" => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// A member of a row, or a part of it: `bound_lower` is in `bound`.
fn member<'a>(row: &'a Value, name: &str) -> &'a Value {
    let part = || {
        let (name, part) = name.rsplit_once('_')?;
        row.get(name)?.get(part)
    };
    row.get(name).or_else(part).unwrap_or(&Value::Null)
}

#[test]
fn rows_have_the_same_figures_in_each_form() {
    let temp = Temp::new();
    let file = temp.at("in.pcap");
    weir([
        "generate",
        &file,
        "--packets",
        "3000",
        "--flows",
        "40",
        "--seed",
        "5",
        "--rate",
        "1000",
    ])
    .ok();
    for arguments in [
        "--key src --by bytes --top 7",
        "--top 100",
        "--key src --by ports --top 5",
        "--key dport --key conversation --top 4",
        "--key src --window 1s --top 3",
    ] {
        let words: Vec<&str> = arguments.split(' ').collect();
        let ask = |form: &str| {
            let fixed = [
                "measure",
                &file,
                "--seed",
                "1",
                "--workers",
                "1",
                "--format",
                form,
            ];
            weir([&fixed[..], &words].concat()).ok()
        };
        let json = objects(&ask("json").text());
        let windows: Vec<&Value> = match json.len() {
            1 => json.iter().collect(),
            // The last object is the sum of the windows.
            many => json[..many - 1].iter().collect(),
        };
        let mut expected = Vec::new();
        for window in windows {
            let tops = match window.get("tops") {
                Some(tops) => tops.as_object().unwrap().values().collect(),
                None => vec![&window["top"]],
            };
            for row in tops.iter().flat_map(|top| top.as_array().unwrap()) {
                expected.push((window, row));
            }
        }
        let comma = ask("csv");
        assert!(comma.err.contains(" measured"), "{}", comma.err);
        let rows = csv(&comma.text());
        assert_eq!(rows.len(), expected.len(), "{arguments}");
        for (row, (window, object)) in rows.iter().zip(&expected) {
            for (name, cell) in row {
                let value = match name.as_str() {
                    "start" | "end" => &window[name],
                    "revision" | "key" => continue,
                    name => member(object, name),
                };
                assert_eq!(*cell, as_cell(value), "{arguments}: {name} in {row:?}");
            }
        }
        let tab = ask("tsv").text();
        let cells = |line: &str| line.split('\t').map(str::to_owned).collect::<Vec<_>>();
        let tab: Vec<_> = tab.lines().skip(1).map(cells).collect();
        let comma = rows
            .iter()
            .map(|row| row.iter().map(|(_, cell)| cell.clone()).collect());
        assert_eq!(tab, comma.collect::<Vec<Vec<_>>>(), "{arguments}");
    }
}

/// Figures of a table for people are those of csv, rounded.
#[test]
fn a_table_has_the_chosen_columns() {
    let temp = Temp::new();
    let file = temp.at("in.pcap");
    weir([
        "generate",
        &file,
        "--packets",
        "900",
        "--flows",
        "10",
        "--seed",
        "5",
        "--rate",
        "100",
    ])
    .ok();
    let ask = |form: &str| {
        let columns = "src,packets,bytes_share,bits_per_s,bound";
        let fixed = [
            "measure", &file, "--seed", "1", "--key", "src", "--top", "5",
        ];
        weir([&fixed[..], &["--columns", columns, "--format", form]].concat())
            .ok()
            .text()
    };
    let rows = csv(&ask("csv"));
    let table = ask("table");
    let mut lines = table
        .lines()
        .skip_while(|line| !line.trim_start().starts_with("src "));
    assert_eq!(
        lines
            .next()
            .map(|line| line.split_whitespace().collect::<Vec<_>>()),
        Some(vec!["src", "packets", "bytes_share", "bits_per_s", "bound"])
    );
    assert_eq!(rows.len(), 5);
    for (row, line) in rows.iter().zip(lines) {
        let words: Vec<&str> = line.split_whitespace().collect();
        assert_eq!(words[..2], [&row[0].1, &row[1].1], "{line}");
        let share: f64 = row[2].1.parse().unwrap();
        assert_eq!(words[2], format!("{:.1}", share * 100.0), "{line}");
        assert_eq!(words.last(), Some(&"exact"));
    }
}

#[test]
fn columns_of_packets_are_tsharks() {
    let test = "columns_of_packets_are_tsharks";
    if !have(test, &["tshark"]) {
        return;
    }
    /// Columns, and fields of tshark for IPv4 and TCP.
    const BOTH: [(&str, &str); 22] = [
        ("epoch", "frame.time_epoch"),
        ("length", "frame.len"),
        ("captured", "frame.cap_len"),
        ("src_mac", "eth.src"),
        ("dst_mac", "eth.dst"),
        ("ethertype", "eth.type"),
        ("ip_version", "ip.version"),
        ("src", "ip.src"),
        ("dst", "ip.dst"),
        ("proto_number", "ip.proto"),
        ("ip_length", "ip.len"),
        ("ttl", "ip.ttl"),
        ("dscp", "ip.dsfield.dscp"),
        ("ecn", "ip.dsfield.ecn"),
        ("ip_id", "ip.id"),
        ("dont_fragment", "ip.flags.df"),
        ("more_fragments", "ip.flags.mf"),
        ("payload_length", "tcp.len"),
        ("tcp_flags_hex", "tcp.flags"),
        ("seq", "tcp.seq_raw"),
        ("ack", "tcp.ack_raw"),
        ("window", "tcp.window_size_value"),
    ];
    let Some(file) = capture(test, "zeek__tcp_option-sack.pcap") else {
        return;
    };
    let names: Vec<&str> = BOTH.iter().map(|(name, _)| *name).collect();
    let columns = names.join(",");
    let ours = weir([
        "filter",
        "tcp",
        s(&file),
        "--format",
        "tsv",
        "--columns",
        &columns,
    ])
    .ok();
    let mut arguments = vec![
        "-n",
        "-r",
        s(&file),
        "-Y",
        "tcp",
        "-T",
        "fields",
        "-E",
        "occurrence=f",
    ];
    arguments.extend(["-o", "tcp.desegment_tcp_streams:FALSE"]);
    arguments.extend(BOTH.iter().flat_map(|(_, field)| ["-e", *field]));
    let theirs = tool("tshark", arguments).ok().text();
    let ours = ours.text();
    let (heading, ours) = ours.split_once('\n').unwrap();
    assert_eq!(heading, names.join("\t"));
    assert!(theirs.lines().count() > 3, "{theirs}");
    assert_eq!(ours, theirs);
}

/// Names in a capture can end neither a cell nor a row, and begin no formula.
#[test]
fn hostile_names_stay_in_their_cells() {
    let name = b"=1+1,\"\r\n\t;@x";
    let mut option = vec![2, 0, name.len() as u8, 0];
    option.extend(name);
    option.resize(option.len().next_multiple_of(4), 0);
    option.extend([0; 4]);
    let start = pcapng_start(1);
    // The section header alone; the interface is described with a name.
    let section = &start[..start[4] as usize];
    let mut body = vec![1, 0, 0, 0, 0, 0, 0, 0];
    body.extend(option);
    let file = [section, &block(1, &body), &pcapng_packet(7, &udp(53, 4))].concat();
    let temp = Temp::new();
    let file = temp.file("in.pcapng", &file);
    let ask = |form: &str| {
        let fixed = ["filter", "", &file, "--columns", "interface,length,dport"];
        weir([&fixed[..], &["--format", form]].concat()).ok().text()
    };
    let rows = csv(&ask("csv"));
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0][0].1, "'=1+1,\"\\r\\n\\t;@x");
    let tab = ask("tsv");
    assert_eq!(
        tab.lines().nth(1).unwrap().split('\t').count(),
        3,
        "{tab:?}"
    );
    assert!(tab.contains("'=1+1,\"\\r\\n\\t;@x\t"), "{tab:?}");
    assert_eq!(ask("table").lines().count(), 2);
    let json = objects(&ask("json"));
    assert_eq!(json[0]["interface"], "=1+1,\"\r\n\t;@x");
    assert_eq!(json[0].as_object().unwrap().len(), 4, "{}", json[0]);
}

#[test]
fn forms_and_columns_that_do_not_fit_are_refused() {
    let temp = Temp::new();
    let file = temp.file("in.pcap", &small_pcap(2));
    for (arguments, why) in [
        (
            "filter udp IN --columns sorc",
            "unknown column 'sorc' (did you mean src?)",
        ),
        ("filter udp IN --columns src,src", "names src twice"),
        ("filter udp IN --format csv --count", "--count does not"),
        ("filter udp IN --columns src -w out.pcap", "-w does not"),
        (
            "filter udp IN --json --columns src --split a=tcp",
            "--split does not",
        ),
        (
            "filter udp IN --format tsv -x",
            "-x and -X print bytes below lines",
        ),
        (
            "filter udp IN --format csv -tttt",
            "time (RFC 3339, UTC) and epoch",
        ),
        ("filter udp IN --format xml", "table, json, csv, tsv"),
        ("filter udp IN --format csv --json", "--json"),
        ("measure IN --columns pakets", "(did you mean packets?)"),
        (
            "measure IN --key src --columns dport",
            "no row of --key src has the column dport",
        ),
        (
            "measure IN --columns ports",
            "no row of --by packets has the column ports",
        ),
        (
            "measure IN --format csv --window 1s --changers 2",
            "use --format json",
        ),
        (
            "measure IN --format csv --control control",
            "choose them with --columns",
        ),
    ] {
        let words = arguments.split(' ').map(|word| word.replace("IN", &file));
        let done = weir(words);
        assert_eq!(done.code, Some(2), "{arguments}: {}", done.err);
        assert!(done.err.contains(why), "{arguments}: {}", done.err);
        assert_eq!(done.err.lines().count(), 1, "{arguments}: {}", done.err);
        assert!(done.out.is_empty(), "{arguments}");
    }
    // No packet, and only a heading.
    let none = weir([
        "filter",
        "udp port 9",
        &file,
        "--format",
        "csv",
        "--columns",
        "src,dst",
    ]);
    assert_eq!(none.ok().text(), "src,dst\r\n");
}

/// Rows with a smaller share are outside, and the rest is told as for a shorter list.
#[test]
fn rows_below_a_share_are_outside() {
    let temp = Temp::new();
    let file = temp.at("in.pcap");
    weir([
        "generate",
        &file,
        "--packets",
        "2000",
        "--flows",
        "60",
        "--seed",
        "5",
    ])
    .ok();
    let ask = |more: &str| {
        let words: Vec<&str> = more.split(' ').collect();
        let fixed = [
            "measure",
            &file,
            "--seed",
            "1",
            "--workers",
            "1",
            "--key",
            "src",
            "--json",
        ];
        objects(&weir([&fixed[..], &words].concat()).ok().text()).remove(0)
    };
    for (by, whole) in [("packets", "passed"), ("bytes", "bytes")] {
        let all = ask(&format!("--by {by} --top 1000"));
        let least = all[whole].as_u64().unwrap() as f64 * 0.03;
        let is_enough = |row: &&Value| row[by].as_u64().unwrap() as f64 >= least;
        let rows = all["top"].as_array().unwrap();
        let expected = rows.iter().filter(is_enough).count();
        assert!((2..rows.len()).contains(&expected));
        let shorter = ask(&format!("--by {by} --top {expected}"));
        let above = ask(&format!("--by {by} --above 3%"));
        assert_eq!(above["top"], shorter["top"]);
        assert_eq!(above["missing"], shorter["missing"]);
        assert_eq!(
            ask(&format!("--by {by} --above 3% --top 1"))["top"][0],
            above["top"][0]
        );
    }
    let by_rate = ask("--by rate --top 2");
    let seconds = 8.0 * by_rate["top"][0]["bytes"].as_f64().unwrap();
    let rate = by_rate["top"][0]["bits_per_s"].as_f64().unwrap();
    let (start, end) = (
        by_rate["start"].as_str().unwrap(),
        by_rate["end"].as_str().unwrap(),
    );
    assert_eq!(start[..17], end[..17], "a minute");
    let second = |text: &str| text[17..text.len() - 1].parse::<f64>().unwrap();
    let covered = seconds / rate;
    assert!(
        (covered - (second(end) - second(start))).abs() < 1e-6,
        "{covered}"
    );
    for (arguments, why) in [
        ("--above 3", "write 1% or 0.1%"),
        ("--above 0%", "write 1% or 0.1%"),
        (
            "--by ports --above 3%",
            "--above is a share of all packets or bytes",
        ),
    ] {
        let words = ["measure", &file, "--key", "src"]
            .into_iter()
            .chain(arguments.split(' '));
        let done = weir(words);
        assert_eq!(done.code, Some(2), "{arguments}");
        assert!(done.err.contains(why), "{}", done.err);
    }
}

/// Directions are those of the addresses, behind tags too.
#[test]
fn local_networks_tell_the_directions_of_packets() {
    let temp = Temp::new();
    let file = temp.at("in.pcap");
    let made = [
        "generate",
        &file,
        "--packets",
        "2000",
        "--flows",
        "60",
        "--seed",
        "5",
    ];
    weir([&made[..], &["--rate", "1000"]].concat()).ok();
    let packets = [
        "filter",
        "",
        &file,
        "--format",
        "csv",
        "--columns",
        "src,dst,length",
    ];
    let packets = csv(&weir(packets).ok().text());
    let is_local = |address: &str| match address.parse::<std::net::Ipv4Addr>().map(|it| it.octets())
    {
        Ok([a, b, ..]) => a == 10 || a == 100 && (64..128).contains(&b),
        Err(_) => false,
    };
    let count = |inside: usize, outside: usize| {
        let ways = packets.iter().filter(|row| {
            let [inside, outside] = [&row[inside].1, &row[outside].1];
            is_local(inside) && !outside.is_empty() && !is_local(outside)
        });
        let lengths: Vec<u64> = ways.map(|row| row[2].1.parse().unwrap()).collect();
        serde_json::json!({ "packets": lengths.len(), "bytes": lengths.iter().sum::<u64>() })
    };
    let local = [
        "--local",
        "10.0.0.0/8",
        "--local",
        "100.64.0.0-100.127.255.255",
    ];
    let ask = |more: &[&str]| weir([&["measure", &file, "--seed", "1"], &local[..], more].concat());
    let measured = objects(&ask(&["--json", "--link", "1G"]).ok().text()).remove(0);
    for (name, inside, outside) in [("rx", 1, 0), ("tx", 0, 1)] {
        let way = &measured[name];
        assert!(way["packets"].as_u64() > Some(100), "{way}");
        assert_eq!(*way, count(inside, outside), "{name}");
        let share = measured["link"][format!("{name}_share")].as_f64().unwrap();
        let seconds = way["bytes"].as_f64().unwrap() * 8.0 / 1e9 / share;
        assert!((1.5..2.5).contains(&seconds), "{seconds} s");
    }
    let text = ask(&["--link", "1G"]).ok().text();
    assert!(text.contains("%), of 1.0 Gbit/s each, neither "), "{text}");
    // Packets between two local hosts have a figure of their own.
    let all = ask(&["--local", "0.0.0.0/0", "--json"]).ok().text();
    let all = objects(&all).remove(0);
    let v4 = packets.iter().filter(|row| row[0].1.contains('.'));
    let lengths: Vec<u64> = v4.map(|row| row[2].1.parse().unwrap()).collect();
    let inside =
        serde_json::json!({ "packets": lengths.len(), "bytes": lengths.iter().sum::<u64>() });
    assert_eq!((&all["local"], &all["rx"]["packets"]), (&inside, &0.into()));
    assert!(!ask(&[]).ok().text().contains("each\n"));
    let refused = weir(["measure", &file, "--link", "1G"]);
    assert_eq!(refused.code, Some(2));
    assert!(refused.err.contains("add --local NET"), "{}", refused.err);
    for wrong in [
        ["--link", "fast"],
        ["--link", "0G"],
        ["--local", "10.0.0.300"],
    ] {
        assert_eq!(
            weir([&["measure", &file][..], &wrong].concat()).code,
            Some(2)
        );
    }
}
