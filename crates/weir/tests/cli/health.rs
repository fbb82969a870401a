//! `weir measure --health`: the judge is tshark, and every design answers as one worker does.

use crate::support::*;
use serde_json::Value;
use std::process::Command;

const SCRIPT: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../scripts/health-against-tshark"
);

#[test]
fn figures_are_those_of_tshark() {
    let test = "figures_are_those_of_tshark";
    let wanted = ["mptcp-aa-echo", "dns_over_tcp", "tls_1.2_unidirectional"];
    let mut files = captures(test);
    files.retain(|file| wanted.iter().any(|part| s(file).contains(part)));
    if files.is_empty() || !have(test, &["tshark", "python3"]) {
        return;
    }
    let mut command = Command::new("python3");
    command
        .arg(SCRIPT)
        .args(["--weir", env!("CARGO_BIN_EXE_weir"), "--all"])
        .args(files);
    let run = command.output().expect("python3 runs");
    let text = String::from_utf8_lossy(&run.stdout);
    assert!(
        run.status.success(),
        "{text}{}",
        String::from_utf8_lossy(&run.stderr)
    );
}

/// The health of each object.
fn health(arguments: &[&str]) -> Vec<Value> {
    let fixed = ["--health", "all", "--seed", "1", "--top", "20"];
    let run = weir(["measure", "--json"].iter().chain(arguments).chain(&fixed)).ok();
    let text = run.text();
    let objects = text
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    objects.map(|object| object["health"].clone()).collect()
}

#[test]
fn every_design_answers_as_one_worker_does() {
    let temp = Temp::new();
    let file = temp.path().join("g.pcap");
    let file = s(&file);
    weir(["generate", file, "--packets", "30000", "--flows", "300"]).ok();
    let one = health(&[file, "--workers", "1"]);
    assert!(
        one[0]["tcp"]["duplicate_acks"].as_u64() > Some(0),
        "{}",
        one[0]
    );
    assert!(one[0]["tcp"]["conversations"].as_u64() > Some(100));
    for design in ["rss", "async", "sync"] {
        assert_eq!(
            health(&[file, "--workers", "3", "--design", design]),
            one,
            "{design}"
        );
    }
    // A filter that passes all, which is judged before the proof, and a merge with nothing.
    assert_eq!(health(&[file, "--filter", "greater 1"]), one);
    let windows = health(&[file, "--window", "5ms", "--workers", "3"]);
    assert!(windows.len() > 3);
    assert_eq!(
        windows.last().map(|last| &last["tcp"]["top"]),
        Some(&one[0]["tcp"]["top"])
    );
    let sum = |member: &str| {
        let of = |window: &Value| window["tcp"][member].as_u64().expect("a number");
        windows[..windows.len() - 1].iter().map(of).sum::<u64>()
    };
    for member in ["packets", "payload", "duplicate_acks", "gaps", "untimed"] {
        assert_eq!(
            Some(sum(member)),
            one[0]["tcp"][member].as_u64(),
            "{member}"
        );
    }
}
