//! Confinement of a run before it parses packets, seen from outside: user, capabilities, and state of its threads.

use crate::capture::net::Net;
use crate::support::*;
use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::{Command, Stdio};

/// User and group number of `nobody` on this machine. If the tests do not run as root, prints that and returns `None`.
fn nobody(test: &str) -> Option<u32> {
    if fs::metadata("/proc/self").map_or(1, |about| about.uid()) != 0 {
        skipped(test, "only root can become another user");
        return None;
    }
    let text = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let entry = text.lines().find_map(|line| line.strip_prefix("nobody:"));
    let number = entry.and_then(|entry| entry.split(':').nth(1)?.parse().ok());
    if number.is_none() {
        skipped(test, "there is no user nobody");
    }
    number
}

/// A directory that only its owner may use.
fn directory_of(temp: &Temp, name: &str, user: u32) -> String {
    let path = temp.at(name);
    fs::create_dir(&path).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
    chown(&path, Some(user), Some(user)).unwrap();
    path
}

/// A file that only root may read.
fn secret(temp: &Temp, name: &str, bytes: &[u8]) -> String {
    let path = temp.file(name, bytes);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

fn owner(path: &str) -> (u32, u32) {
    let about = fs::metadata(path).unwrap_or_else(|error| panic!("{path}: {error}"));
    (about.uid(), about.mode() & 0o777)
}

/// Fields of each thread's status in /proc.
fn fields(process: u32, names: &[&str]) -> BTreeSet<Vec<String>> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let texts = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("status")).ok());
    let field = |text: &str, name: &str| {
        let found = text
            .lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        found
            .unwrap_or("")
            .split_whitespace()
            .collect::<Vec<_>>()
            .join(" ")
    };
    texts
        .map(|text| names.iter().map(|name| field(&text, name)).collect())
        .collect()
}

/// Waits until all threads of a process have these fields, because walls are raised shortly after a capture begins.
#[track_caller]
fn comes_to(process: u32, expected: &[(&str, &str)]) {
    let (names, values): (Vec<&str>, Vec<String>) = expected
        .iter()
        .map(|(name, value)| (*name, (*value).to_owned()))
        .unzip();
    wait::until_ok(|| match fields(process, &names) {
        found if found == BTreeSet::from([values.clone()]) => Ok(()),
        found => Err(format!("{names:?}: {found:?}, not {values:?}")),
    });
}

/// Frames to port 53.
fn frames(count: usize) -> Vec<Vec<u8>> {
    vec![udp(53, 18); count]
}

#[test]
fn an_unknown_user_is_refused_before_anything_is_opened() {
    let temp = Temp::new();
    let (source, out) = (temp.file("a.pcap", &small_pcap(3)), temp.at("out.pcap"));
    let commands: [&[&str]; 4] = [
        &["filter", "", &source, "-w", &out],
        &["measure", &source, "-w", &out],
        &["info", &source],
        &["generate", &out, "--packets", "3"],
    ];
    for command in commands {
        let done = weir([command, &["-Z", "nosuchuser"]].concat());
        assert_eq!(
            (done.code, &*done.err),
            (Some(2), "weir: -Z nosuchuser: there is no such user\n"),
            "{command:?}"
        );
        assert!(
            done.out.is_empty() && !fs::exists(&out).unwrap(),
            "{command:?}"
        );
    }
}

#[test]
fn files_of_root_are_read_and_outputs_belong_to_the_user() {
    let test = "files_of_root_are_read_and_outputs_belong_to_the_user";
    let Some(nobody) = nobody(test) else { return };
    let temp = Temp::new();
    let sources = [
        secret(&temp, "a.pcap", &small_pcap(3)),
        secret(&temp, "b.pcap", &small_pcap(5)),
    ];
    let [a, b] = [&*sources[0], &*sources[1]];
    let theirs = directory_of(&temp, "theirs", nobody);
    let at = |name: &str| format!("{theirs}/{name}");
    let (one, two, three, four) = (at("1.pcap"), at("2.pcap"), at("3.pcap"), at("4.pcap"));
    let commands: [&[&str]; 4] = [
        &["filter", "", a, b, "-w", &one],
        &["filter", "", a, b, "--sort", "-w", &two],
        &["measure", a, b, "-w", &three],
        &["generate", &four, "--packets", "8"],
    ];
    for (command, out) in commands.iter().zip([&one, &two, &three, &four]) {
        weir([command, &["-Z", "nobody"][..]].concat()).ok();
        assert_eq!(owner(out), (nobody, 0o600), "{command:?}");
        assert_eq!(
            parse_pcap(&fs::read(out).unwrap()).1.len(),
            8,
            "{command:?}"
        );
    }
    assert!(
        weir(["info", a, "-Z", "nobody"])
            .ok()
            .text()
            .contains("packets      3\n")
    );
    // Without the user's right to write a directory, no file is made.
    let own = directory_of(&temp, "own", 0);
    let out = format!("{own}/out.pcap");
    let done = weir(["filter", "", a, "-w", &out, "-Z", "nobody"]);
    assert_eq!(done.code, Some(1));
    assert!(
        done.err.contains(&format!(
            "weir: {out}: cannot be created: permission denied\n"
        )),
        "{}",
        done.err
    );
    weir(["filter", "", a, "-w", &out, "-Z", "root"]).ok();
    assert_eq!(owner(&out).0, 0);
}

#[test]
fn under_sudo_outputs_belong_to_the_user_who_called_it() {
    let test = "under_sudo_outputs_belong_to_the_user_who_called_it";
    let Some(nobody) = nobody(test) else { return };
    let temp = Temp::new();
    let source = secret(&temp, "a.pcap", &small_pcap(3));
    let theirs = directory_of(&temp, "theirs", nobody);
    let own = directory_of(&temp, "own", 0);
    let sudo = |arguments: &[&str]| {
        let number = nobody.to_string();
        run(
            weir_command()
                .env("SUDO_UID", &number)
                .env("SUDO_GID", &number)
                .args(arguments),
            &[],
        )
    };
    let out = format!("{theirs}/out.pcap");
    sudo(&["filter", "", &source, "-w", &out]).ok();
    assert_eq!(owner(&out), (nobody, 0o600));
    let out = format!("{own}/out.pcap");
    let done = sudo(&["filter", "", &source, "-w", &out]);
    assert_eq!(done.code, Some(1));
    assert!(
        done.err
            .contains("permission denied; under sudo files are written with the rights"),
        "{}",
        done.err
    );
    sudo(&["filter", "", &source, "-w", &out, "-Z", "root"]).ok();
    assert_eq!(owner(&out).0, 0);
}

#[test]
fn who_is_not_root_becomes_nobody_else() {
    let test = "who_is_not_root_becomes_nobody_else";
    let Some(number) = nobody(test).map(|number| number.to_string()) else {
        return;
    };
    if !have(test, &["setpriv"]) {
        return;
    }
    // A copy that every user may execute, wherever the build directory lies.
    let temp = Temp::new();
    let command = temp.at("weir");
    fs::copy(env!("CARGO_BIN_EXE_weir"), &command).unwrap();
    let source = temp.file("a.pcap", &small_pcap(3));
    let as_nobody = |user: &str| {
        let mut other = Command::new("setpriv");
        other.args([
            "--reuid",
            &number,
            "--regid",
            &number,
            "--clear-groups",
            &command,
        ]);
        run(
            other.args(["filter", "", &source, "--count", "-Z", user]),
            &[],
        )
    };
    let done = as_nobody("root");
    assert_eq!(
        (done.code, &*done.err),
        (
            Some(2),
            "weir: -Z root: only root can become another user\n"
        )
    );
    assert_eq!(as_nobody("nobody").ok().count(), 3);
}

#[test]
fn a_capture_has_no_rights_left_and_rotates_as_the_user() {
    let test = "a_capture_has_no_rights_left_and_rotates_as_the_user";
    let Some(nobody) = nobody(test) else { return };
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let theirs = directory_of(&temp, "theirs", nobody);
    let out = format!("{theirs}/out.pcap");
    let four = format!("{nobody} {nobody} {nobody} {nobody}");
    for command in [
        &["filter", "udp", "near"][..],
        &["measure", "near", "--filter", "udp"],
    ] {
        let capture = net.capture(&[command, &["-w", &out, "-C", "1k", "-Z", "nobody"]].concat());
        let none = "0000000000000000";
        let expected = [
            ("Uid", &*four),
            ("Gid", &four),
            ("CapPrm", none),
            ("CapEff", none),
            ("NoNewPrivs", "1"),
            ("Seccomp", "2"),
        ];
        comes_to(capture.id(), &expected);
        assert_eq!(net.send(&frames(100), 0), 100);
        capture.stop().ok();
        let mut packets = 0;
        let files = fs::read_dir(&theirs)
            .unwrap()
            .map(|entry| entry.unwrap().path());
        let files: Vec<_> = files.collect();
        assert!(files.len() > 3, "{files:?}");
        for file in files {
            assert_eq!(owner(s(&file)), (nobody, 0o600), "{file:?}");
            packets += parse_pcap(&fs::read(&file).unwrap()).1.len();
            fs::remove_file(file).unwrap();
        }
        assert_eq!(packets, 100, "{command:?}");
    }
}

/// The source is a pipe that has not ended, so that the threads of the run can be inspected.
#[test]
fn a_run_on_files_is_confined_in_all_its_threads() {
    let test = "a_run_on_files_is_confined_in_all_its_threads";
    if !have(test, &["mkfifo", "gzip"]) {
        return;
    }
    let temp = Temp::new();
    let fifo = temp.at("fifo");
    tool("mkfifo", [&fifo]).ok();
    let packed = tool_fed("gzip", ["-c"], &small_pcap(500)).ok().out;
    let commands: [&[&str]; 3] = [
        &["filter", "udp", &fifo],
        &["measure", &fifo, "--workers", "3"],
        &["info", &fifo],
    ];
    for command in commands {
        let running = weir_command()
            .args(command)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut source = File::options().write(true).open(&fifo).unwrap();
        source.write_all(&packed).unwrap();
        comes_to(running.id(), &[("NoNewPrivs", "1"), ("Seccomp", "2")]);
        wait::until(
            format_args!("{command:?}: a thread for the decoder"),
            || fields(running.id(), &["Pid"]).len() >= 2,
        );
        // Of root's capabilities, only the one to open the next file stays.
        let root = fs::metadata("/proc/self").unwrap().uid() == 0;
        let rights = if root {
            "0000000000000004"
        } else {
            "0000000000000000"
        };
        comes_to(
            running.id(),
            &[
                ("NoNewPrivs", "1"),
                ("Seccomp", "2"),
                ("CapPrm", rights),
                ("CapEff", rights),
            ],
        );
        drop(source);
        let done = gather(running, &[]).ok();
        assert!(!done.out.is_empty(), "{command:?}: {}", done.err);
    }
}

#[test]
fn another_user_replaces_the_filter_in_the_kernel() {
    let test = "another_user_replaces_the_filter_in_the_kernel";
    if nobody(test).is_none() {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let temp = Temp::new();
    let file = secret(&temp, "filter", b"udp port 80");
    let capture = net.capture(&["filter", "-F", &file, "near", "--count", "-Z", "nobody"]);
    // CAP_BPF, to load a program, and CAP_DAC_READ_SEARCH, to read a file of root.
    comes_to(
        capture.id(),
        &[
            ("CapPrm", "0000008000000004"),
            ("CapEff", "0000008000000004"),
            ("Seccomp", "2"),
        ],
    );
    assert_eq!(net.send(&frames(30), 0), 30);
    fs::write(&file, "udp port 53").unwrap();
    capture.signal("-HUP");
    let capture = capture.until("from now on the filter is 'udp port 53'");
    assert_eq!(net.send(&frames(50), 0), 50);
    let done = capture.stop().ok();
    assert_eq!(done.count(), 50, "{}", done.err);
    assert!(done.err.contains("80 received, 50 matched"), "{}", done.err);
}

#[test]
fn every_way_to_capture_and_to_send_works_as_another_user() {
    let test = "every_way_to_capture_and_to_send_works_as_another_user";
    if nobody(test).is_none() {
        return;
    }
    let Some(net) = Net::new(test) else { return };
    let (none, bpf) = ("0000000000000000", "0000008000000000");
    let ways: [(&[&str], &str, &str); 4] = [
        (
            &["filter", "udp", "near", "--count"],
            "near: AF_PACKET",
            none,
        ),
        (&["filter", "udp", "any", "--count"], "any: AF_PACKET", none),
        (
            &[
                "filter",
                "udp",
                "af_xdp:near",
                "--xdp-mode",
                "generic",
                "--count",
            ],
            "near: AF_XDP",
            bpf,
        ),
        (
            &["measure", "near", "--workers", "2", "--json"],
            "near: AF_PACKET",
            none,
        ),
    ];
    for (way, ready, kept) in ways {
        let command = [&[env!("CARGO_BIN_EXE_weir")], way, &["-Z", "nobody"]].concat();
        let capture = net.start(&command, ready);
        comes_to(
            capture.id(),
            &[
                ("CapPrm", kept),
                ("CapEff", kept),
                ("NoNewPrivs", "1"),
                ("Seccomp", "2"),
            ],
        );
        assert_eq!(net.send(&frames(100), 0), 100);
        let done = capture.stop().ok();
        assert!(
            done.err.contains("100 received, 100 "),
            "{way:?}: {}",
            done.err
        );
    }
    for port in ["af_packet:near", "af_xdp:near", "inject:near"] {
        let done = net.weir(&[
            "generate",
            port,
            "--packets",
            "200",
            "--rate",
            "max",
            "-Z",
            "nobody",
        ]);
        assert!(
            done.clone().ok().err.contains("\n200 "),
            "{port}: {}",
            done.err
        );
    }
    let done = net.weir(&["filter", "", "dpdk:net_null0", "-Z", "nobody"]);
    let refused = "weir: -Z nobody: the devices and threads of DPDK stay root's: leave -Z out\n";
    assert_eq!((done.code, &*done.err), (Some(2), refused));
}

/// A shell of root makes pipes for root alone, although sudo's variables may be set.
#[test]
fn pipes_of_root_are_written_by_the_user_who_called_sudo() {
    let test = "pipes_of_root_are_written_by_the_user_who_called_sudo";
    let Some(nobody) = nobody(test).filter(|_| have(test, &["mkfifo"])) else {
        return;
    };
    let temp = Temp::new();
    let source = temp.file("a.pcap", &small_pcap(5));
    let sudo = |arguments: &[&str]| {
        let mut command = weir_command();
        command
            .args(arguments)
            .env("SUDO_UID", nobody.to_string())
            .env("SUDO_GID", nobody.to_string());
        command
    };
    for name in ["/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        let done = run(&mut sudo(&["filter", "", &source, "-w", name]), &[]).ok();
        assert_eq!(
            records(&temp.file("out.pcapng", &done.out)).len(),
            5,
            "{name}: {}",
            done.err
        );
    }
    let fifo = temp.at("fifo.pcap");
    tool("mkfifo", ["-m", "600", &fifo]).ok();
    let reader = std::thread::spawn({
        let fifo = fifo.clone();
        move || fs::read(fifo).unwrap()
    });
    run(&mut sudo(&["filter", "", &source, "-w", &fifo]), &[]).ok();
    assert_eq!(parse_pcap(&reader.join().unwrap()).1.len(), 5);
}

/// A rotation of logs may replace the directory by a new one.
#[test]
fn a_followed_name_may_come_to_lie_in_another_directory() {
    let temp = Temp::new();
    let now = temp.at("all/now");
    fs::create_dir_all(&now).unwrap();
    let file = format!("{now}/a.pcap");
    fs::write(&file, small_pcap(2)).unwrap();
    let mut child = crate::live::start(&["filter", "", &file, "--follow", "-c", "5", "-t"]);
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(lines.by_ref().take(2).filter(Result::is_ok).count(), 2);
    fs::rename(&now, temp.at("all/old")).unwrap();
    fs::create_dir(&now).unwrap();
    fs::write(temp.at("new"), small_pcap(3)).unwrap();
    fs::rename(temp.at("new"), &file).unwrap();
    assert_eq!(lines.filter(Result::is_ok).count(), 3);
    assert!(
        gather(child, &[])
            .ok()
            .err
            .contains("another file has the name now")
    );
}

/// Under `perf record` weir lists its native code in a file outside the run's outputs.
#[test]
fn native_code_is_made_under_perf() {
    let temp = Temp::new();
    let source = temp.file("a.pcap", &small_pcap(50_000));
    let mut command = weir_command();
    command
        .args(["filter", "udp", &source, "--count", "--stats"])
        .env("PERF_BUILDID_DIR", temp.at("perf"));
    let mut child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let map = Path::new("/tmp").join(format!("perf-{}.map", child.id()));
    child.wait().unwrap();
    let done = gather(child, &[]).ok();
    assert_eq!(done.count(), 50_000);
    assert!(done.err.contains("native"), "{}", done.err);
    let listed = fs::read_to_string(&map).unwrap_or_default();
    let _ = fs::remove_file(&map);
    assert!(!listed.is_empty(), "{}", done.err);
}

#[test]
fn no_file_outside_a_record_is_given_away_through_a_link() {
    let test = "no_file_outside_a_record_is_given_away_through_a_link";
    let Some(nobody) = nobody(test) else { return };
    let temp = Temp::new();
    let source = temp.file("a.pcap", &small_pcap(5));
    let (own, dir) = (temp.file("own", b"of root"), temp.at("record"));
    fs::create_dir(&dir).unwrap();
    let stem = format!("{dir}/20261123T053614.123456789Z-000042");
    fs::write(format!("{stem}.pcapng"), []).unwrap();
    std::os::unix::fs::symlink(&own, format!("{stem}.index")).unwrap();
    chown(&dir, Some(nobody), Some(nobody)).unwrap();
    let mut command = weir_command();
    command
        .args(["record", &source, &dir])
        .env("SUDO_UID", nobody.to_string())
        .env("SUDO_GID", nobody.to_string());
    let done = run(&mut command, &[]);
    assert_eq!(fs::metadata(&own).unwrap().uid(), 0, "{}", done.err);
}
