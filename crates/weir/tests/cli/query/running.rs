//! Queries of recorders that run: packets in memory and on disk, each once.

use super::*;

/// Packets as a pcapng stream.
fn pcapng(packets: &[Record]) -> Vec<u8> {
    let mut interface = vec![1, 0, 0, 0, 0, 0, 0, 0];
    interface.extend([9, 0, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0]);
    let mut bytes = pcapng_start(1);
    bytes.truncate(28);
    bytes.extend(block(1, &interface));
    for packet in packets {
        bytes.extend(pcapng_packet_at(
            packet.time_ns,
            packet.wire_len,
            &packet.data,
        ));
    }
    bytes
}

#[test]
fn packets_in_the_memory_of_a_recorder_follow_those_on_disk_without_gap_or_repetition() {
    let temp = Temp::new();
    let (packets, ..) = traffic(&temp);
    let directory = temp.at("cap");
    let (mut recorder, generation) = recorder(&directory);
    // The recorder has 20 000 packets on disk and more of them in memory too; the seam is somewhere before its end.
    packets[..20_000]
        .iter()
        .zip(0..)
        .for_each(|(packet, number)| put(&mut recorder, number, packet));
    recorder.flush().unwrap();
    let seam = 19_000;
    let (asked, memory) = (Arc::new(Mutex::new(Vec::new())), packets[seam..].to_vec());
    let seen = Arc::clone(&asked);
    let handler = move |request: Value| {
        seen.lock().unwrap().push(request);
        let bytes = pcapng(&memory);
        let first = json!({ "generation": generation, "number": seam });
        Reply::Stream {
            first,
            write: Box::new(move |to| to.write_all(&bytes)),
        }
    };
    let server = Server::bind(
        Path::new(&directory).join("control"),
        Settings::default(),
        handler,
    )
    .unwrap();
    assert!(answered(&temp, &[&directory]) == packets);
    let to = seconds(packets[25_000].time_ns);
    assert_eq!(
        weir([
            "query",
            &directory,
            "",
            "--count",
            "--flow",
            "10.0.0.1 10.0.0.2",
            "--to",
            &to
        ])
        .ok()
        .count(),
        0
    );
    let flow =
        "((src host 10.0.0.1 and dst host 10.0.0.2) or (src host 10.0.0.2 and dst host 10.0.0.1))";
    let requests = asked.lock().unwrap().clone();
    let request = |expression: &str, behind_tags: bool, to_ns: Option<u64>| {
        json!({
            "request": "query", "expression": expression, "behind_tags": behind_tags, "from_ns": null, "to_ns": to_ns, "follow": false,
        })
    };
    assert_eq!(
        requests,
        [
            request("", false, None),
            request(flow, true, Some(packets[25_000].time_ns))
        ]
    );
    drop(server);

    // A recorder that fails in the middle of its answer.
    let handler = move |_| {
        let write = |_: &mut dyn Write| Err(std::io::Error::other("the ring is gone"));
        Reply::Stream {
            first: json!({ "generation": generation, "number": seam }),
            write: Box::new(write),
        }
    };
    let server = Server::bind(
        Path::new(&directory).join("control"),
        Settings::default(),
        handler,
    )
    .unwrap();
    let done = weir(["query", &directory, "--count"]);
    assert_eq!((done.code, done.count()), (Some(1), seam as u64));
    assert!(done.err.contains("the ring is gone"), "{}", done.err);
    drop(server);

    // A recorder that refuses, and one that was killed.
    let refuse = |_| Reply::Refused("no such request".to_owned());
    let server = Server::bind(
        Path::new(&directory).join("control"),
        Settings::default(),
        refuse,
    )
    .unwrap();
    let done = weir(["query", &directory, "--count"]);
    assert_eq!((done.code, done.count()), (Some(1), 20_000));
    let line = format!(
        "weir: {directory}: the recorder: no such request; packets that are not on disk yet are left out"
    );
    assert!(done.err.starts_with(&line), "{}", done.err);
    let done = weir(["query", &directory, "--follow"]);
    assert_eq!((done.code, done.text().as_str()), (Some(2), ""));
    drop(server);
    drop(std::os::unix::net::UnixListener::bind(Path::new(&directory).join("control")).unwrap());
    assert_eq!(weir(["query", &directory, "--count"]).ok().count(), 20_000);
}

#[test]
fn a_running_recorder_answers_from_memory_and_can_be_followed() {
    let temp = Temp::new();
    let directory = temp.at("cap");
    let mut recorder = start_recorder(&directory, &["--ram", "4M"]);
    let mut to = recorder.stdin.take().unwrap();
    to.write_all(&small_pcap(10)).unwrap();
    let count = |arguments: &[&str]| {
        let done = weir([&["query", &directory, "--count"], arguments].concat());
        // Before the recorder has made the directory and its socket there is nothing to query.
        if done.code == Some(0) {
            done.count()
        } else {
            0
        }
    };
    while count(&[]) < 10 {}
    assert_eq!(count(&["udp port 3"]), 1);
    assert_eq!(count(&["--from", "1700000002", "--to", "1700000004"]), 3);
    let mut following = weir_command()
        .args([
            "query",
            &directory,
            "udp portrange 8-12",
            "--follow",
            "-c",
            "5",
            "-tt",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap());
    let mut line = || {
        let mut line = String::new();
        lines.read_line(&mut line).unwrap();
        line.split_once('.')
            .map_or(line.clone(), |(second, _)| second.to_owned())
    };
    assert_eq!(
        [line(), line(), line()],
        ["1700000007", "1700000008", "1700000009"]
    );
    for port in [11, 12] {
        to.write_all(&pcap_record(
            1_700_000_000 + u32::from(port),
            &udp(port, 20),
        ))
        .unwrap();
        assert_eq!(line(), (1_700_000_000 + u32::from(port)).to_string());
    }
    assert_eq!(gather(following, &[]).code, Some(0));
    drop(to);
    assert_eq!(gather(recorder, &[]).code, Some(0));
    assert_eq!(
        weir(["query", &directory, "--count"]).code,
        Some(1),
        "nothing was saved"
    );
}

#[test]
fn a_query_beside_a_recorder_has_each_packet_once_from_disk_or_memory() {
    let temp = Temp::new();
    let directory = temp.at("cap");
    let mut recorder = start_recorder(
        &directory,
        &["--ram", "64M", "--disk", "1G", "--segment", "1M"],
    );
    let mut to = recorder.stdin.take().unwrap();
    // Packet by packet a second later, so that its time is its number.
    let feeder = std::thread::spawn(move || {
        to.write_all(&pcap_header(65_535, 1)).unwrap();
        for thousand in 0..200u32 {
            let some =
                |number: u32| pcap_record(number, &udp(number as u16, number as usize % 300));
            let bytes: Vec<u8> = (thousand * 1000..(thousand + 1) * 1000)
                .flat_map(some)
                .collect();
            to.write_all(&bytes).unwrap();
        }
        to
    });
    let mut client = connected(&directory);
    let mut recorded = || status(&mut client)["recorded"].as_u64().unwrap();
    let (mut rounds, mut last) = (0, false);
    while !last {
        last = feeder.is_finished();
        let before = recorded();
        let found = answered(&temp, &[&directory]);
        let after = recorded();
        let numbers: Vec<u64> = found
            .iter()
            .map(|packet| packet.time_ns / 1_000_000_000)
            .collect();
        let wrong = numbers
            .iter()
            .zip(0..)
            .position(|(number, expected)| *number != expected);
        let about = wrong.map(|at| {
            (
                at,
                &numbers[at.saturating_sub(2)..numbers.len().min(at + 3)],
            )
        });
        assert_eq!(
            about,
            None,
            "round {rounds}: {} packets, status {before} to {after}",
            found.len()
        );
        assert!(
            (before..=after).contains(&(found.len() as u64)),
            "{before} to {after}, not {}",
            found.len()
        );
        rounds += 1;
    }
    assert!(rounds > 1);
    let to = feeder.join().unwrap();
    while recorded() < 200_000 {}
    let (from, to_second) = ("150000", "199999");
    let done = weir([
        "query",
        &directory,
        "udp",
        "--from",
        from,
        "--to",
        to_second,
        "--count",
        "--explain",
    ])
    .ok();
    assert_eq!(done.count(), 50_000, "{}", done.err);
    assert!(
        done.err
            .ends_with("the recorder added what it had only in memory\n"),
        "{}",
        done.err
    );
    drop(to);
    assert_eq!(gather(recorder, &[]).code, Some(0));
    let found = answered(&temp, &[&directory]);
    assert!(
        found
            .iter()
            .map(|packet| packet.time_ns / 1_000_000_000)
            .eq(0..200_000)
    );
}

#[test]
fn packets_that_leave_memory_before_a_slow_query_reads_them_are_counted() {
    let temp = Temp::new();
    let directory = temp.at("cap");
    let mut recorder = start_recorder(&directory, &["--ram", "16M"]);
    let mut to = recorder.stdin.take().unwrap();
    to.write_all(&pcap_header(65_535, 1)).unwrap();
    let mut feed = |range: std::ops::Range<u32>| {
        let bytes: Vec<u8> = range
            .flat_map(|number| pcap_record(number, &udp(number as u16, 400)))
            .collect();
        to.write_all(&bytes).unwrap();
    };
    feed(0..20_000);
    let mut client = connected(&directory);
    // Packets that the ring has no room for, while readers keep its chunks, have no number.
    let mut taken = || {
        let status = status(&mut client);
        let [recorded, dropped] =
            [&status["recorded"], &status["dropped"]["ring"]].map(|count| count.as_u64().unwrap());
        (recorded, recorded + dropped)
    };
    while taken().1 < 20_000 {}
    let asked = taken().0 as usize;
    let request = json!({ "request": "query", "expression": "" });
    let (_, mut stream) = connected(&directory).stream(&request).unwrap();
    // Nothing is read, until the ring has gone around several times.
    feed(20_000..100_000);
    while taken().1 < 100_000 {}
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    let answer = temp.file("answer.pcapng", &bytes);
    let times: Vec<u64> = records(&answer)
        .iter()
        .map(|packet| packet.time_ns / 1_000_000_000)
        .collect();
    assert!(
        times.iter().is_sorted() && times.len() < asked,
        "{} of {asked}, {:?}",
        times.len(),
        taken()
    );
    let about = weir(["filter", "", &answer, "--count"]).ok();
    let lost = asked - times.len();
    let line = format!("{} packets were dropped when it was captured", lost);
    assert!(
        about
            .err
            .replace("\u{a0}", " ")
            .replace(' ', "")
            .contains(&line.replace(' ', "")),
        "{line}: {}",
        about.err
    );
    drop(to);
    assert_eq!(gather(recorder, &[]).code, Some(0));
}
