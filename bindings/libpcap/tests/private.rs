//! The library in libpcap's place, in a directory of its own: the form for programs that ignore LD_PRELOAD.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
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
    // Two names of one file, as installed: a program that needs both gets one library.
    let first = format!("{directory}/libpcap.so.0.8");
    std::fs::copy(&library, &first).unwrap();
    std::fs::hard_link(&first, format!("{directory}/libpcap.so.1")).unwrap();
    directory
}

fn send(ports: impl Iterator<Item = u16>) {
    let mut sender = Sender::open("far", false).unwrap();
    for port in ports {
        let ip = links::ip4(17, &[], &links::udp(1000, port, &[7; 60]));
        let frame = [&[2; 12][..], &[8, 0], &ip].concat();
        sender.send(&[&frame]).unwrap();
    }
}

/// `calls.c`, linked to a libpcap of the name that most systems but Debian have, and to libraries of both names; then to the system's
/// alone. `None` if there is no compiler or no libpcap to compile with.
fn programs(test: &str, scratch: &Scratch) -> Option<[String; 3]> {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/calls.c");
    let text = include_str!("calls.c");
    let is_other = |c: char| !c.is_ascii_alphanumeric() && c != '_';
    let names: BTreeSet<_> = text
        .split_inclusive('(')
        .filter_map(|call| call.strip_suffix('(')?.rsplit(is_other).next())
        .filter(|name| name.starts_with("pcap_"))
        .collect();
    let stub: String = names
        .iter()
        .map(|name| format!("void {name}(void) {{}}\n"))
        .collect();
    let stub = scratch.file("stub.c", stub.as_bytes());
    let library = scratch.at("libother.so");
    let place = format!("-L{}", scratch.path().display());
    let cc = |words: &[&str]| {
        let done = Command::new("cc").args(words).output();
        done.is_ok_and(|done| done.status.success())
    };
    let all = [scratch.at("one"), scratch.at("both"), scratch.at("plain")];
    let [one, both, plain] = &all;
    let soname = "-Wl,-soname,libpcap.so.1";
    let needed = "-Wl,--no-as-needed";
    if cc(&["-shared", "-w", soname, "-o", &library, &stub])
        && cc(&["-o", one, source, &place, needed, "-lother"])
        && cc(&["-o", both, source, &place, needed, "-lother", "-lpcap"])
        && cc(&["-o", plain, source, "-lpcap"])
    {
        return Some(all);
    }
    skipped(test, "no C compiler, or no pcap.h");
    None
}

#[test]
fn programs_of_the_other_name_are_served_on_files_and_interfaces() {
    let test = "programs_of_the_other_name_are_served_on_files_and_interfaces";
    let scratch = Scratch::new();
    let Some(programs) = programs(test, &scratch).filter(|_| net::cable(test, "")) else {
        return;
    };
    let directory = private(&scratch);
    let stats = scratch.at("stats.json");
    let command = |program: &String| {
        let mut command = Command::new(program);
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        if !program.ends_with("plain") {
            command.env("LD_LIBRARY_PATH", &directory);
            command.env("WEIR_STATS", &stats);
        }
        command
    };
    for program in &programs[..2] {
        let mut asked = command(program);
        let loaded = asked.env("LD_TRACE_LOADED_OBJECTS", "1").output().unwrap();
        let loaded = String::from_utf8_lossy(&loaded.stdout).into_owned();
        let ours = format!("libpcap.so.1 => {directory}/libpcap.so.1");
        assert!(loaded.contains(&ours), "{loaded}");
    }
    let mut file = Pcap::new(1, 200);
    for port in 0..300 {
        let ip = links::ip4(17, &[], &links::udp(1000, port % 3, &[7; 60]));
        file.packet(&[&[2; 12][..], &[8, 0], &ip].concat());
    }
    let file = scratch.file("in.pcap", &file.bytes);
    for words in [
        &["all", &file][..],
        &["next_ex", &file, "udp dst port 1"],
        &["all", "/nonexistent"],
    ] {
        let [one, both, plain] = programs
            .each_ref()
            .map(|program| command(program).args(words).output().unwrap());
        assert_eq!((&one, &both), (&plain, &plain), "{words:?}");
    }
    let mut running = programs.each_ref().map(|program| {
        let words = ["all", "near", "udp dst port 1"];
        let mut child = command(program).args(words).spawn().unwrap();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        output.read_line(&mut line).unwrap();
        assert_eq!(line, "ready\n");
        (child, output)
    });
    send((0..300).map(|port| port % 3));
    for (child, _) in &mut running {
        child.stdin.take().unwrap().write_all(b"\n").unwrap();
    }
    let [one, both, plain] = running.map(|(mut child, mut output)| {
        let mut text = String::new();
        output.read_to_string(&mut text).unwrap();
        assert!(child.wait().unwrap().success(), "{text}");
        text
    });
    assert!(plain.starts_with("100 "), "{plain}");
    assert_eq!((&one, &both), (&plain, &plain));
    // Weir has captured for the two, and says so.
    let counts = std::fs::read_to_string(&stats).unwrap();
    let ends = counts.matches("\"delivered\":100,\"dropped\":{\"kernel\":0,");
    assert_eq!(ends.count(), 2, "{counts}");
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
    send((0..200).map(|port| 6 + port % 2));
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
