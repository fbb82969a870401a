//! Rights of a capture: those that are needed stay, the rest is given up.

use super::*;

/// Capabilities of all threads of a process, after it has given up those it does not need.
fn rights(process: u32) -> Vec<u64> {
    let status = |task: &str| {
        std::fs::read_to_string(format!("/proc/{process}/{task}status")).unwrap_or_default()
    };
    wait::until("no new privileges", || {
        status("").contains("NoNewPrivs:\t1")
    });
    let tasks = std::fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let numbers = tasks.filter_map(|task| task.ok()?.file_name().into_string().ok());
    let texts: Vec<String> = numbers
        .map(|number| status(&format!("task/{number}/")))
        .collect();
    let sets = texts.iter().flat_map(|text| {
        text.lines()
            .filter(|line| line.starts_with("CapPrm:") || line.starts_with("CapEff:"))
    });
    sets.map(|line| u64::from_str_radix(line[7..].trim(), 16).unwrap())
        .collect()
}

/// Waits until every thread of a process has exactly these capabilities.
fn keeps_rights(process: u32, kept: u64) {
    wait::until_ok(|| match rights(process) {
        rights if rights.len() >= 2 && rights.iter().all(|rights| *rights == kept) => Ok(()),
        rights => Err(format!("{process}: {rights:x?}, not {kept:x}")),
    });
}

#[test]
fn only_the_rights_that_are_needed_stay() {
    let Some(net) = Net::new("only_the_rights_that_are_needed_stay") else {
        return;
    };
    let temp = Temp::new();
    let out = temp.at("out.pcapng");
    let (override_files, bpf) = (1 << 1, 1 << 39);
    let cases: [(&[&str], &str, u64); 5] = [
        (
            &["filter", "udp port 53", "near", "-w", &out],
            "AF_PACKET",
            0,
        ),
        (
            &["filter", "udp port 53", "near", "-w", &out, "-C", "1M"],
            "AF_PACKET",
            override_files,
        ),
        (
            &["measure", "near", "--filter", "udp", "--json"],
            "AF_PACKET",
            0,
        ),
        (&["filter", "udp", "any", "--count"], "AF_PACKET", 0),
        (&["filter", "udp", "af_xdp:near", "--count"], "AF_XDP", bpf),
    ];
    for (arguments, ready, kept) in cases {
        let capture = net.start(&[&[env!("CARGO_BIN_EXE_weir")], arguments].concat(), ready);
        keeps_rights(capture.id(), kept);
        assert_eq!(net.send(&frames(100), 0), 100);
        // The run ends well with these capabilities: files are complete, programs are detached.
        capture.stop().ok();
    }
    let inject = bpf | 1 << 12;
    for (port, kept) in [
        ("af_packet:near", 0),
        ("af_xdp:near", 0),
        ("inject:near", inject),
    ] {
        let sending = net.start_at(
            "near",
            &[
                env!("CARGO_BIN_EXE_weir"),
                "generate",
                port,
                "--rate",
                "1000",
            ],
            "",
        );
        keeps_rights(sending.id(), kept);
        sending.signal("-INT");
        sending.done().ok();
    }
}
