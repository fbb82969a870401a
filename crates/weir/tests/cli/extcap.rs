//! Interfaces of weir in Wireshark: tshark lists them, and reads what they capture.

use crate::support::*;
use std::process::{Child, Command, Stdio};
use weir_io::sys::packet_socket::Sender;
use weir_testkit::{Scratch, have, net, wait};

/// tshark, with weir in its directory of capture programs: root's tshark has that of the system alone, so it is another one in a mount
/// namespace.
fn tshark(directory: &str, words: &[&str]) -> Child {
    let folders = tool("tshark", ["-G", "folders"]).text();
    let place = folders
        .lines()
        .find_map(|line| line.strip_prefix("Extcap path:"))
        .expect("tshark names it")
        .trim();
    let script = "mount --bind \"$0\" \"$1\" && shift && exec tshark \"$@\"";
    Command::new("unshare")
        .args(["-m", "sh", "-c", script, directory, place])
        .args(words)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("unshare can be run")
}

#[test]
fn tshark_lists_and_reads_the_interfaces_of_weir() {
    let test = "tshark_lists_and_reads_the_interfaces_of_weir";
    if !have(test, &["tshark", "unshare", "mount"]) || !net::cable(test, "") {
        return;
    }
    let scratch = Scratch::new();
    let directory = scratch.at("extcap it's");
    let mut install = weir_command();
    install
        .args(["extcap", "--install"])
        .env("WIRESHARK_EXTCAP_DIR", &directory);
    assert_eq!(
        run(&mut install, b"").ok().text(),
        format!("{directory}/weir\n")
    );

    let list = gather(tshark(&directory, &["-D"]), b"").text();
    for interface in [
        "weir:near (weir on near)",
        "weir:any (weir on any)",
        "weir-record (record of weir)",
    ] {
        assert_eq!(list.matches(interface).count(), 1, "{list}");
    }

    let kept = scratch.at("kept");
    let small = scratch.file("small.pcap", &small_pcap(50));
    weir(["record", &small, &kept, "--ram", "16M", "--disk", "8M"]).ok();
    let setting = format!("extcap.weir_record.directory:{kept}");
    let words = [
        "-i",
        "weir-record",
        "-o",
        &setting,
        "-a",
        "duration:2",
        "-T",
        "fields",
        "-e",
        "frame.len",
    ];
    let read = gather(tshark(&directory, &words), b"").text();
    let plain = tool("tshark", ["-r", &small, "-T", "fields", "-e", "frame.len"]).text();
    assert_eq!(read, plain);

    let words = [
        "-i",
        "weir:near",
        "-f",
        "udp port 53",
        "-c",
        "20",
        "-T",
        "fields",
        "-e",
        "udp.dstport",
    ];
    let live = tshark(&directory, &words);
    wait::until("weir captures", || {
        let table = std::fs::read_to_string("/proc/thread-self/net/packet").unwrap_or_default();
        table
            .lines()
            .any(|line| line.split_whitespace().nth(5) == Some("1"))
    });
    let mut sender = Sender::open("far", false).unwrap();
    for port in 0..40 {
        sender.send(&[&udp(52 + port % 2, 10)]).unwrap();
    }
    assert_eq!(gather(live, b"").text(), "53\n".repeat(20));
}
