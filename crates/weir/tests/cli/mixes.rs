//! `weir generate --mix`: the firewall passes and denies what the serial program of the generator has counted.

use crate::support::*;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// Packets of each fate, as `--truth` tells them: passed, banned, refused.
fn truth(text: &str) -> [u64; 3] {
    let fates: Vec<u64> = text
        .lines()
        .filter_map(|line| line.split('\t').next()?.parse().ok())
        .collect();
    fates.try_into().unwrap_or_else(|_| panic!("{text}"))
}

#[test]
fn the_firewall_passes_what_the_serial_program_passes() {
    for (mix, seed) in [("1", "1"), ("2", "9")] {
        let temp = Temp::new();
        let [file, table, out] = ["mix.pcap", "mix.txt", "out.pcap"].map(|name| temp.at(name));
        let made = weir([
            "generate",
            &file,
            "--mix",
            mix,
            "--seed",
            seed,
            "--packets",
            "20000",
            "--table",
            &table,
            "--truth",
        ])
        .ok();
        let [passed, banned, refused] = truth(&made.text());
        assert_eq!(passed + banned + refused, 20_000);
        assert!(banned > 300 && refused > 200, "{}", made.text());
        let done = weir(["firewall", &file, &out, "--table", &table, "--json"]).ok();
        let answer: Value = serde_json::from_str(&done.text()).unwrap();
        assert_eq!(
            [&answer["received"], &answer["passed"], &answer["denied"]],
            [20_000, passed, banned + refused],
            "{answer}"
        );
        let by = |name: &str| answer[name]["packets"].as_u64();
        assert_eq!(
            [by("persona_non_grata"), by("not_accepted")],
            [Some(banned), Some(refused)],
            "{answer}"
        );
        // Other eyes find the same datagrams in the file.
        let kept = weir([
            "filter",
            "udp src port 6816 and udp dst port 6816 and len = 62",
            &out,
            "--count",
        ])
        .ok();
        assert_eq!(kept.text().trim(), passed.to_string());
    }
}

/// Changes among the data packets come as control packets, which the firewall obeys in their places.
#[test]
fn control_packets_of_a_mix_are_obeyed() {
    let temp = Temp::new();
    let [file, table, out] = ["mix.pcap", "mix.txt", "out.pcap"].map(|name| temp.at(name));
    let keys = temp.file("keys.txt", b"7 000102030405060708090a0b0c0d0e0f\n");
    fs::set_permissions(&keys, fs::Permissions::from_mode(0o600)).unwrap();
    let made = weir([
        "generate",
        &file,
        "--mix",
        "1",
        "--packets",
        "20000",
        "--table",
        &table,
        "--control-key",
        &keys,
        "--truth",
    ])
    .ok();
    let fates: Vec<u64> = made
        .text()
        .lines()
        .filter_map(|line| line.split('\t').next()?.parse().ok())
        .collect();
    let [passed, banned, refused, changes] = fates[..] else {
        panic!("{}", made.text())
    };
    // The course's share of changes: 0.213.
    assert!(
        (4100..4400).contains(&changes) && passed + banned + refused + changes == 20_000,
        "{}",
        made.text()
    );
    let done = weir([
        "firewall",
        &file,
        &out,
        "--table",
        &table,
        "--control-port",
        "6633",
        "--control-key",
        &keys,
        "--json",
    ])
    .ok();
    let answer: Value = serde_json::from_str(&done.text()).unwrap();
    let found = [
        &answer["passed"],
        &answer["control"]["accepted"]["packets"],
        &answer["persona_non_grata"]["packets"],
    ];
    assert_eq!(found, [passed, changes, banned], "{answer}");
    assert_eq!(answer["not_accepted"]["packets"], refused, "{answer}");
}

#[test]
fn options_that_a_mix_does_not_know_are_refused() {
    let temp = Temp::new();
    let (file, table) = (temp.at("mix.pcap"), temp.at("mix.txt"));
    for (arguments, words) in [
        (&["--mix", "9"][..], "--mix 9 is out of range: use 1 to 8"),
        (&["--mix", "1", "--sizes", "60"], "exclude each other"),
        (&["--table", &table], "--mix"),
        (&["--mix", "1", "--table", "-"], "name a file"),
    ] {
        let done = weir(["generate", &file].iter().chain(arguments));
        assert_eq!(done.code, Some(2), "{arguments:?}: {}", done.err);
        assert!(done.err.contains(words), "{arguments:?}: {}", done.err);
        assert!(!std::path::Path::new(&file).exists());
    }
    let done = weir([
        "generate",
        &file,
        "--mix",
        "1",
        "--packets",
        "10",
        "--table",
        "/nowhere/mix.txt",
    ]);
    assert_eq!(done.code, Some(1), "{}", done.err);
    assert!(done.err.contains("/nowhere/mix.txt: "), "{}", done.err);
}
