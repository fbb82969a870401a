//! The demonstration of `make run`.

use crate::support::*;
use std::process::Command;

/// The generator's own counts are the truth. The script compares the measured counts with them.
#[test]
fn the_demonstration_finds_every_large_flow_within_its_bound() {
    let test = "the_demonstration_finds_every_large_flow_within_its_bound";
    if !have(test, &["bash", "sed", "grep"]) {
        return;
    }
    let temp = Temp::new();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/demo");
    let demo = |more: &[(&str, &str)]| {
        let mut command = Command::new(script);
        command
            .env_remove("SOURCE")
            .env_remove("EXPR")
            .env("TZ", "UTC");
        command
            .env("WEIR", env!("CARGO_BIN_EXE_weir"))
            .env("DATA", temp.path())
            .env("PACKETS", "20000");
        run(command.envs(more.iter().copied()), &[]).ok()
    };
    // The second run reuses the capture that the first one made.
    for kept in [false, true] {
        let done = demo(&[]);
        let text = done.text();
        assert_eq!(text.contains("== weir generate "), !kept, "{text}");
        assert!(
            text.contains("\nAll 10 true values lie within weir's bounds.\nNext: make run "),
            "{text}{}",
            done.err
        );
        assert_eq!(
            text.lines().filter(|line| line.contains("  yes  ")).count(),
            10,
            "{text}"
        );
        assert_eq!(temp.names(), ["demo-20000.pcap", "demo-20000.talkers"]);
    }
    let own = temp.file("own.pcap", &small_pcap(7));
    let text = demo(&[("SOURCE", &own), ("EXPR", "udp port 3")]).text();
    assert!(
        text.starts_with("== weir measure ") && text.contains(" --filter udp port 3\n"),
        "{text}"
    );
}
