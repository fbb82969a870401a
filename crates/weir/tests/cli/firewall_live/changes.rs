//! Changes while packets cross: rules that are read again, bans and rules that end.

use super::*;

#[test]
fn a_set_whose_file_alone_changes_is_read_again() {
    let test = "a_set_whose_file_alone_changes_is_read_again";
    let Some(wall) = Wall::new(test, "set more file more.txt\ndrop src $more\n") else {
        return;
    };
    let more = wall.temp.file("more.txt", b"10.0.0.7\n");
    let running = wall.start("af_packet:near", "af_packet:out", &[]);
    let denied_of_three = || {
        let before = wall.stats();
        let count = |stats: &Value, name: &str| stats[name].as_u64().unwrap();
        wall.net
            .send(&[7, 8, 9].map(|source| datagram(source, 5)), 100);
        let begun = Instant::now();
        while count(&wall.stats(), "received") < count(&before, "received") + 3 {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{}",
                wall.stats()
            );
        }
        count(&wall.stats(), "denied") - count(&before, "denied")
    };
    assert_eq!(denied_of_three(), 1);
    for (text, denied) in [("10.0.0.7-10.0.0.9\n", 3), ("10.0.0.8/31\n", 2)] {
        fs::write(&more, text).unwrap();
        let begun = Instant::now();
        while denied_of_three() != denied {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "{}",
                wall.stats()
            );
        }
    }
    let done = running.stop().ok();
    assert_eq!(
        done.err.matches("from now on 1 rule").count(),
        2,
        "{}",
        done.err
    );
}

#[test]
fn rules_are_read_again_and_bad_ones_change_nothing() {
    let test = "rules_are_read_again_and_bad_ones_change_nothing";
    let Some(wall) = Wall::new(test, "drop udp dport 9\n") else {
        return;
    };
    let running = wall.start("near", "af_packet:out", &[]);
    let passes = |port: u16| {
        let count = |stats: &Value, name: &str| stats[name].as_u64().unwrap();
        let before = wall.stats();
        wall.net.send(&[datagram(1, port)], 0);
        wall.until_received(count(&before, "received") + 1);
        count(&wall.stats(), "passed") > count(&before, "passed")
    };
    assert_eq!((passes(9), passes(10)), (false, true));
    // By a request.
    fs::write(&wall.rules, "drop udp dport 10\n").unwrap();
    assert_eq!(wall.ctl(&["reload"]).ok().text(), "1 rule in force\n");
    assert_eq!((passes(9), passes(10)), (true, false));
    // A bad line leaves the rules as they are, and is named.
    fs::write(&wall.rules, "drop udp dport 9\ndrop udp dport 20-10\n").unwrap();
    let refused = wall.ctl(&["reload"]);
    assert_eq!(refused.code, Some(1));
    assert!(
        refused.err.contains("rules.txt: line 2: ")
            && refused.err.contains("the rules stay as they are"),
        "{}",
        refused.err
    );
    assert_eq!((passes(9), passes(10)), (true, false));
    // By SIGHUP, and because the file has changed.
    let running = running.until("line 2");
    fs::write(&wall.rules, "drop udp dport 9\npass udp\n").unwrap();
    let running = running.until("from now on 2 rules");
    assert_eq!((passes(9), passes(10)), (false, true));
    running.signal("-HUP");
    // The watch may have read the file of the first request too, so the number of the change is not certain.
    let running = running.until_times("from now on 2 rules", 2);
    // A file that is emptied would let all pass; one that ends inside a line may be half written.
    fs::write(&wall.rules, "").unwrap();
    let running = running.until("is empty; the rules stay as they are");
    let begun = Instant::now();
    fs::write(&wall.rules, "drop udp dport 9\npass udp dport 1").unwrap();
    let running = running.until_times("from now on 2 rules", 3);
    assert!(
        begun.elapsed() > Duration::from_millis(1900),
        "a line was read before its end"
    );
    let answer = answer(&running.stop().ok());
    assert_eq!(answer["rules"].as_array().unwrap().len(), 2, "{answer}");
}

/// A table for three workers: bans are in force at once when `ctl` returns, and end by themselves, whichever worker gets a packet.
#[test]
fn bans_are_in_force_for_all_workers_however_packets_are_distributed() {
    let test = "bans_are_in_force_for_all_workers_however_packets_are_distributed";
    let Some(wall) = Wall::new(test, "ban 10.0.0.9\n") else {
        return;
    };
    let weir = env!("CARGO_BIN_EXE_weir");
    for distribute in ["flow", "address", "random"] {
        let running = wall.net.start(
            &[
                &[
                    weir,
                    "firewall",
                    "near",
                    "out",
                    "--table",
                    &wall.rules,
                    "--control",
                    &wall.socket,
                    "--json",
                ][..],
                &["--workers", "3", "--distribute", distribute, "--no-restore"],
            ]
            .concat(),
            "control socket",
        );
        let frames: Vec<Vec<u8>> = (0..90)
            .map(|i| datagram((i % 9) as u8 + 1, i / 9))
            .collect();
        let passes = || {
            let before = wall.net.received("beyond", "beyond");
            let received = wall.stats()["received"].as_u64().unwrap();
            assert_eq!(wall.net.send(&frames, 30), 90);
            let begun = Instant::now();
            while wall.stats()["received"].as_u64().unwrap() < received + 90 {
                assert!(
                    begun.elapsed() < Duration::from_secs(10),
                    "the packets do not arrive"
                );
            }
            wall.net.received("beyond", "beyond") - before
        };
        assert_eq!(passes(), 80, "{distribute}: all but one source");
        wall.ctl(&["block", "10.0.0.1", "2001:db8::1"]).ok();
        wall.ctl(&["block", "10.0.0.2", "--for", "1s"]).ok();
        assert!(wall.ctl(&["list"]).ok().text().contains("2001:db8::1"));
        wall.ctl(&["accept", "10.0.0.9"]).ok();
        let begun = Instant::now();
        while wall.ctl(&["list"]).ok().text().contains("10.0.0.2 ") {
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "a ban of seconds does not end"
            );
        }
        assert_eq!(passes(), 80, "{distribute}: all but another source");
        wall.ctl(&["refuse", "10.0.0.2", "--from", "10.0.0.3-10.0.0.6"])
            .ok();
        assert_eq!(
            passes(),
            40,
            "{distribute}: a destination refuses four sources more"
        );
        let answer = answer(&running.stop().ok());
        assert_eq!(answer["denied"], 10 + 10 + 50, "{answer}");
        assert_eq!(answer["not_accepted"]["packets"], 40, "{answer}");
    }
}

#[test]
fn bans_end_when_they_were_told_to() {
    let test = "bans_end_when_they_were_told_to";
    let Some(wall) = Wall::new(test, "default pass\n") else {
        return;
    };
    let running = wall.start("near", "af_packet:out", &[]);
    assert_eq!(wall.ctl(&["list"]).ok().text(), "no address is banned\n");
    wall.ctl(&["block", "10.0.0.1", "2001:db8::1", "--for", "4s"])
        .ok();
    wall.ctl(&["block", "10.0.0.4/30"]).ok();
    let list: Value = serde_json::from_str(&wall.ctl(&["list", "--json"]).ok().text()).unwrap();
    let bans: Vec<&str> = list["bans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ban| ban["address"].as_str().unwrap())
        .collect();
    assert_eq!(
        bans,
        [
            "10.0.0.1",
            "10.0.0.4",
            "10.0.0.5",
            "10.0.0.6",
            "10.0.0.7",
            "2001:db8::1"
        ]
    );
    wall.net
        .send(&[datagram(1, 5), datagram(5, 5), datagram(8, 5)], 0);
    let begun = Instant::now();
    while wall.ctl(&["list"]).ok().text().contains("10.0.0.1 ") {
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "a ban of seconds does not end"
        );
    }
    wall.net
        .send(&[datagram(1, 5), datagram(5, 5), datagram(8, 5)], 0);
    let list = wall.ctl(&["list"]).ok().text();
    assert!(
        !list.contains("10.0.0.1 ") && list.contains("10.0.0.4"),
        "{list}"
    );
    // A destination that refuses a source.
    wall.ctl(&["refuse", "10.0.0.2", "--from", "10.0.0.8-10.0.0.9"])
        .ok();
    wall.net.send(&[datagram(8, 5), datagram(3, 5)], 0);
    wall.ctl(&["accept", "10.0.0.2", "--from", "10.0.0.8"]).ok();
    for wrong in ["10.0.0.9-10.0.0.1", "10.0.0.1/8", "::/0", "x", "300.0.0.1"] {
        let refused = wall.ctl(&["block", wrong]);
        assert_eq!(
            (refused.code, refused.err.lines().count()),
            (Some(1), 1),
            "{wrong}: {}",
            refused.err
        );
    }
    let answer = answer(&running.stop().ok());
    assert_eq!(answer["persona_non_grata"]["packets"], 3, "{answer}");
    assert_eq!(answer["not_accepted"]["packets"], 1, "{answer}");
    assert_eq!(answer["passed"], 4, "{answer}");
}

#[test]
fn rules_end_when_their_time_is_over_and_rates_outlive_a_reload() {
    let test = "rules_end_when_their_time_is_over_and_rates_outlive_a_reload";
    let Some(wall) = Wall::new(
        test,
        "drop udp dport 9 for 2s\ndrop udp dport 10 over 3/h\n",
    ) else {
        return;
    };
    let running = wall.start("near", "af_packet:out", &[]);
    let begun = Instant::now();
    let packets = |rule: usize| wall.stats()["rules"][rule]["packets"].as_u64().unwrap();
    let sends = |port: u16| {
        let before = wall.stats()["received"].as_u64().unwrap();
        wall.net.send(&[datagram(1, port)], 0);
        let begun = Instant::now();
        while wall.stats()["received"] == before && begun.elapsed() < Duration::from_secs(5) {}
    };
    (0..5).for_each(|_| sends(10));
    assert_eq!(packets(1), 2, "three of five are within the rate");
    // The list is another one; these two rules go on as they were.
    fs::write(
        &wall.rules,
        "drop udp dport 9 for 2s\ndrop udp dport 11\ndrop udp dport 10 over 3/h\n",
    )
    .unwrap();
    wall.ctl(&["reload"]).ok();
    sends(10);
    assert_eq!(packets(2), 3, "the rate began anew");
    // Until a packet comes that the rule does not apply to any more.
    let mut applied = 0;
    loop {
        sends(9);
        match packets(0) {
            now if now == applied => break,
            now => applied = now,
        }
        assert!(
            begun.elapsed() < Duration::from_secs(20),
            "the rule does not end"
        );
    }
    assert!(
        begun.elapsed() > Duration::from_millis(1900),
        "the rule ended early, after {applied} packets"
    );
    answer(&running.stop().ok());
}

#[test]
fn rules_of_a_request_are_in_force_until_the_file_is_read_again() {
    let test = "rules_of_a_request_are_in_force_until_the_file_is_read_again";
    let Some(wall) = Wall::new(test, "drop udp dport 9\n") else {
        return;
    };
    let running = wall.start("near", "af_packet:out", &[]);
    let passes = |port: u16| {
        let count = |stats: &Value, name: &str| stats[name].as_u64().unwrap();
        let before = wall.stats();
        wall.net.send(&[datagram(1, port)], 0);
        wall.until_received(count(&before, "received") + 1);
        count(&wall.stats(), "passed") > count(&before, "passed")
    };
    let elsewhere = Temp::new();
    let set = |text: &str| {
        let file = elsewhere.file("other.txt", text.as_bytes());
        weir(["ctl", "--control", &wall.socket, "set", "rules", &file])
    };
    assert_eq!((passes(9), passes(10)), (false, true));
    let done = set("drop udp dport 10\n").ok();
    assert!(done.text().starts_with("in force: change "), "{done:?}");
    assert_eq!((passes(9), passes(10)), (true, false));
    for (text, words) in [
        ("pass udp\ndrop udp dport 20-10\n", "other.txt: line 2: "),
        ("pass udp\ndrop expr 'udp prot 9'\n", "other.txt: line 2: "),
    ] {
        let done = set(text);
        assert_eq!(done.code, Some(1));
        assert!(
            done.err.contains(words) && done.err.contains("the rules stay as they are"),
            "{}",
            done.err
        );
    }
    let filter = weir(["ctl", "--control", &wall.socket, "set", "filter", "udp"]);
    assert!(
        filter.code == Some(1) && filter.err.contains("'filter' cannot be set"),
        "{filter:?}"
    );
    assert_eq!((passes(9), passes(10)), (true, false));
    wall.ctl(&["reload"]).ok();
    assert_eq!((passes(9), passes(10)), (false, true));
    let done = running.stop().ok();
    let told = done
        .err
        .matches("rules of a request: from now on 1 rule (change ");
    assert_eq!(told.count(), 1, "{}", done.err);
}

#[test]
fn denied_packets_go_on_in_another_file() {
    let test = "denied_packets_go_on_in_another_file";
    let Some(wall) = Wall::new(test, "drop udp dport 9\n") else {
        return;
    };
    let (a, b) = (wall.temp.at("a.pcap"), wall.temp.at("b.pcap"));
    let elsewhere = Temp::new();
    let closed = elsewhere.at("c.pcap");
    let set = |file: &str| weir(["ctl", "--control", &wall.socket, "set", "output", file]);
    let options = ["-w", &a, "--what", "denied"];
    let running = wall.start("near", "af_packet:out", &options);
    let send = |source: u8| {
        let before = wall.stats()["received"].as_u64().unwrap();
        let frames = [datagram(source, 9), datagram(source, 10)];
        wall.net.send(&frames, 0);
        wall.until_received(before + 2);
    };
    send(1);
    set(&b).ok();
    send(2);
    for (file, words) in [
        ("af_packet:near", "is not a file"),
        (&*a, "a.pcap"),
        (&wall.rules, "rules.txt"),
        (&closed, "new files may lie in"),
    ] {
        let done = set(file);
        assert!(
            done.code == Some(1) && done.err.contains(words),
            "{file}: {done:?}"
        );
    }
    send(3);
    let done = running.stop().ok();
    assert_eq!(answer(&done)["denied"], 3);
    let frames = |file: &str| -> Vec<Vec<u8>> {
        let records = records(file).into_iter();
        records.map(|record| record.data).collect()
    };
    assert_eq!(frames(&a), [datagram(1, 9)]);
    assert_eq!(frames(&b), [datagram(2, 9), datagram(3, 9)]);
    assert!(
        done.err
            .contains("a.pcap: complete with 1 packet, another file goes on"),
        "{}",
        done.err
    );
    let running = wall.start("near", "af_packet:out", &[]);
    let done = set(&b);
    assert!(
        done.code == Some(1)
            && done
                .err
                .contains("no file of this firewall can be replaced"),
        "{done:?}"
    );
    running.stop().ok();
}
