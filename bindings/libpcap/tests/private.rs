//! The library in libpcap's place, in a directory of its own: the form for programs that ignore LD_PRELOAD.

use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};
use weir_io::sys::packet_socket::Sender;
use weir_testkit::savefile::Pcap;
use weir_testkit::{Scratch, have, links, net, skipped};

/// The directory, with the library under both names of libpcap.
fn private(scratch: &Scratch) -> String {
    let directory = scratch.at("libpcap");
    std::fs::create_dir(&directory).unwrap();
    let deps = std::env::current_exe().unwrap();
    let library = deps.with_file_name("libweir_pcap.so");
    for name in ["libpcap.so.0.8", "libpcap.so.1"] {
        std::fs::copy(&library, format!("{directory}/{name}")).unwrap();
    }
    directory
}

#[test]
fn libpcap_is_found_behind_the_library_in_its_place() {
    let test = "libpcap_is_found_behind_the_library_in_its_place";
    if !have(test, &["tcpdump"]) {
        return;
    }
    let scratch = Scratch::new();
    let mut file = Pcap::new(1, 200);
    for index in 0..3000 {
        file.packet(&links::ip4(17, &[], &links::udp(index, 53, &[7; 20])));
    }
    let file = scratch.file("in.pcap", &file.bytes);
    let directory = private(&scratch);
    for words in [
        &["-nr", file.as_str(), "udp dst port 53"][..],
        &["-r", &file, "no expression"],
        &["--version"],
        &["-i", "no-such-interface"],
    ] {
        let run = |form: Option<&str>| {
            let mut command = Command::new("tcpdump");
            command.args(words).stdin(Stdio::null());
            if let Some(form) = form {
                command.env("LD_LIBRARY_PATH", form);
            }
            command.output().unwrap()
        };
        assert_eq!(run(Some(&directory)), run(None), "{words:?}");
    }
}

/// A tcpdump with capabilities, started by an ordinary user. The loader's cache, and the file with settings, are those of a mount
/// namespace.
#[test]
fn a_hostile_environment_changes_nothing_in_a_program_with_capabilities() {
    let test = "a_hostile_environment_changes_nothing_in_a_program_with_capabilities";
    let programs = [
        "tcpdump", "setcap", "ldconfig", "unshare", "mount", "setpriv", "sh",
    ];
    if !have(test, &programs) || !net::cable(test, "") {
        return;
    }
    let scratch = Scratch::new();
    let directory = private(&scratch);
    let path = scratch.path().display().to_string();
    let open = |path: &Path, mode| {
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    open(scratch.path(), 0o755);
    std::fs::create_dir(scratch.at("out")).unwrap();
    open(&scratch.path().join("out"), 0o777);
    let before = format!(
        "set -e
         cp $(command -v tcpdump) {path}/tcpdump && setcap cap_net_raw,cap_net_admin=ep {path}/tcpdump
         mkdir {path}/etc && cd /etc
         cp -a passwd group nsswitch.conf services protocols ld.so.conf ld.so.conf.d {path}/etc
         echo {directory} >{path}/etc/ld.so.conf.d/00-weir.conf
         mkdir {path}/etc/weir
         printf 'WEIR_RING=4M\\nWEIR_STATS={path}/out/good.json\\n' >{path}/etc/weir/libpcap.conf
         mount --bind {path}/etc /etc
         ldconfig
         export LD_PRELOAD=/nonexistent.so LD_LIBRARY_PATH=/nonexistent WEIR_RECORD={path}/out/evil WEIR_STATS={path}/out/evil.json
         export WEIR_BACKEND=af_xdp WEIR_YES_TAKE=near WEIR_EXACT=2"
    );
    let captured = format!(
        "{before}
         exec setpriv --reuid=65534 --regid=65534 --clear-groups \\
             {path}/tcpdump -i near -c 100 -w {path}/out/file.pcap udp port 7"
    );
    let mut child = Command::new("unshare")
        .args(["-m", "sh", "-c", &captured])
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut output = BufReader::new(child.stderr.take().unwrap());
    let mut text = String::new();
    while !text.contains("listening on") {
        if output.read_line(&mut text).unwrap() == 0 {
            child.wait().unwrap();
            return skipped(test, format_args!("no namespace with capabilities: {text}"));
        }
    }
    let mut sender = Sender::open("far", false).unwrap();
    for port in 0..200 {
        let ip = links::ip4(17, &[], &links::udp(1000, 6 + port % 2, &[7; 60]));
        sender
            .send(&[&[&[2; 12][..], &[8, 0], &ip].concat()])
            .unwrap();
    }
    output.read_to_string(&mut text).unwrap();
    assert!(child.wait().unwrap().success(), "{text}");
    assert!(text.contains("100 packets captured"), "{text}");
    assert!(!text.contains("weir:"), "{text}");
    let mut made: Vec<_> = std::fs::read_dir(scratch.at("out"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    made.sort();
    assert_eq!(made, ["file.pcap", "good.json"]);
    let counts = std::fs::read_to_string(scratch.at("out/good.json")).unwrap();
    assert!(
        counts.contains("\"backend\":\"af_packet\",\"received\":100,"),
        "{counts}"
    );
}
