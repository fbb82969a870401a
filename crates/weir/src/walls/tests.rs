//! Attempts to break out. A test raises a wall in a separate process, and tries both what the wall forbids and what it must
//! allow.

use super::calls::{self, Needs};
use super::paths::{self, Paths};
use landlock::{RestrictionStatus, RulesetStatus};
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use weir_packet::LinkType;
use weir_testkit::{Attempt, Scratch, skipped};

/// Runs an ignored test of this file in a separate process.
#[track_caller]
fn alone(name: &str) {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.args([
        &format!("walls::tests::{name}"),
        "--exact",
        "--ignored",
        "--nocapture",
    ]);
    let done = command.output().expect("it can be run");
    let (out, err) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    err.lines()
        .filter(|line| line.contains(": skipped, "))
        .for_each(|line| eprintln!("{line}"));
    assert!(
        done.status.success() && out.contains("1 passed"),
        "{out}{err}"
    );
}

/// Runs an ignored test of this file in a separate process. Returns its exit status and output.
fn alone_with(name: &str, attempt: usize) -> (std::process::ExitStatus, String) {
    let mut command = Command::new(std::env::current_exe().expect("it runs"));
    command.args([
        &format!("walls::tests::{name}"),
        "--exact",
        "--ignored",
        "--nocapture",
    ]);
    let done = command
        .env(ATTEMPT, attempt.to_string())
        .output()
        .expect("it can be run");
    let said = [&done.stdout[..], &done.stderr].concat();
    (done.status, String::from_utf8_lossy(&said).into_owned())
}

/// Environment variable with the number of the attempt that a process makes.
const ATTEMPT: &str = "WEIR_TEST_ATTEMPT";

/// Asserts that a call was refused with EACCES or EPERM.
#[track_caller]
fn denied<T>(result: std::io::Result<T>) {
    assert_eq!(
        result.err().map(|error| error.kind()),
        Some(ErrorKind::PermissionDenied)
    );
}

#[test]
fn only_what_a_run_names_can_be_opened() {
    alone("behind_landlock");
}

#[test]
#[ignore = "run by `only_what_a_run_names_can_be_opened`"]
fn behind_landlock() {
    let scratch = Scratch::of(&[
        ("in/a.pcap", "a"),
        ("in/b.pcap", "b"),
        ("fixed.pcap", "old"),
        ("beside.pcap", "old"),
        ("logs/tail/live.pcap", ""),
        ("logs/other/x", "x"),
    ]);
    let at = |name: &str| scratch.path().join(name);
    ["out", "out/old", "%Y", "links", "links/a"]
        .iter()
        .for_each(|name| fs::create_dir(at(name)).unwrap());
    std::os::unix::fs::symlink("../../logs/tail/live.pcap", at("links/a/live.pcap")).unwrap();
    let (listener, name) = (
        TcpListener::bind("127.0.0.1:0").unwrap(),
        format!("weir-test-{}", std::process::id()),
    );
    let abstracted = SocketAddr::from_abstract_name(&name).unwrap();
    let _unix = UnixListener::bind_addr(&abstracted).unwrap();
    let before = File::open(at("in/b.pcap")).unwrap();

    let mut allowed = Paths::default();
    allowed.reads(&at("in/a.pcap"));
    allowed.reads_beside(&at("links/a/live.pcap"));
    allowed.writes(&at("fixed.pcap"));
    allowed.writes(&at("out/new.pcap"));
    allowed.writes(&at("out/later/1/new.pcap"));
    // Walls confine the thread that raises them, and the threads that this one starts later.
    let (go, gone) = (std::sync::mpsc::channel::<()>(), at(""));
    let outside = std::thread::spawn(move || {
        go.1.recv().unwrap();
        fs::rename(gone.join("links/a"), gone.join("links/old")).unwrap();
        ["links/a", "out/later", "out/later/1"]
            .iter()
            .for_each(|name| fs::create_dir(gone.join(name)).unwrap());
        fs::write(gone.join("links/a/live.pcap"), "new").unwrap();
    });
    let Ok(RestrictionStatus { ruleset, .. }) = paths::restrict(allowed.rules().unwrap()) else {
        panic!("no thread")
    };
    if ruleset != RulesetStatus::FullyEnforced {
        skipped(
            "only_what_a_run_names_can_be_opened",
            format_args!("Landlock is {ruleset:?} here"),
        );
        return;
    }
    // Access that the run needs.
    assert_eq!(fs::read(at("in/a.pcap")).unwrap(), b"a\n");
    assert_eq!(before.metadata().unwrap().len(), 2);
    File::create(at("fixed.pcap"))
        .unwrap()
        .write_all(b"new")
        .unwrap();
    File::create(at("out/new.pcap"))
        .unwrap()
        .write_all(b"new")
        .unwrap();
    assert!(fs::read_dir(at("logs/tail")).is_ok() && File::open(at("links/a/live.pcap")).is_ok());
    go.0.send(()).unwrap();
    outside.join().unwrap();
    assert_eq!(fs::read(at("links/a/live.pcap")).unwrap(), b"new");
    File::create(at("out/later/1/new.pcap")).unwrap();
    for file in [
        "/etc/services",
        "/proc/self/smaps",
        "/proc/meminfo",
        "/dev/null",
    ] {
        assert!(
            !Path::new(file).exists() || File::open(file).is_ok(),
            "{file}"
        );
    }
    // Access that the run does not need.
    for file in ["in/b.pcap", "beside.pcap", "fixed.pcap"] {
        denied(File::open(at(file)));
    }
    for file in [
        "in/a.pcap",
        "beside.pcap",
        "other.pcap",
        "logs/tail/new.pcap",
    ] {
        denied(File::create(at(file)));
    }
    for file in [
        "/etc/passwd",
        "/etc/shadow",
        "/proc/1/status",
        "/etc/gshadow",
    ] {
        assert!(File::open(file).is_err(), "{file}");
    }
    denied(fs::remove_file(at("in/a.pcap")));
    denied(fs::remove_file(at("out/new.pcap")));
    denied(fs::create_dir(at("out/more")));
    denied(std::os::unix::fs::symlink("/etc/passwd", at("out/link")));
    denied(fs::rename(at("out/new.pcap"), at("out/old/new.pcap")));
    denied(fs::read_dir(scratch.path()));
    denied(Command::new("/bin/true").status());
    denied(TcpStream::connect(listener.local_addr().unwrap()));
    denied(TcpListener::bind("127.0.0.1:0"));
    denied(UnixStream::connect_addr(&abstracted));
}

#[test]
fn rotated_outputs_and_temporary_files_have_their_directories() {
    alone("behind_landlock_with_rotation");
}

#[test]
#[ignore = "run by `rotated_outputs_and_temporary_files_have_their_directories`"]
fn behind_landlock_with_rotation() {
    let scratch = Scratch::of(&[("days/1/old.pcap", "old"), ("other/a", "a")]);
    let at = |name: &str| scratch.path().join(name);
    let mut allowed = Paths::default();
    std::os::unix::fs::symlink("../other/new", at("days/all1")).unwrap();
    allowed.writes_rotated(&at("days/%d/%H.pcap"));
    allowed.writes_rotated(&at("days/all"));
    allowed.makes_temporary_files();
    let status = paths::restrict(allowed.rules().unwrap()).unwrap();
    if status.ruleset != RulesetStatus::FullyEnforced {
        return;
    }
    for file in [
        "days/1/new.pcap",
        "days/1/old.pcap",
        "days/all",
        "days/all1",
    ] {
        File::create(at(file)).unwrap();
    }
    let mut file = weir_io::temporary::unnamed(&std::env::temp_dir()).unwrap();
    file.write_all(b"kept").unwrap();
    // The directory of this test lies in TMPDIR; nothing may be made outside of that.
    for folder in ["/etc", "/usr", "/var", "/"] {
        denied(File::create(Path::new(folder).join("weir-test")));
    }
    denied(File::open("/etc/passwd"));
}

/// Each attempt is made in a separate process, because most of them end it.
#[test]
fn calls_of_who_has_taken_over_end_the_process_or_fail() {
    const SIGSYS: i32 = 31;
    for (number, attempt) in Attempt::ALL.into_iter().enumerate() {
        let (status, said) = alone_with("behind_seccomp", number);
        if said.contains(": skipped, ") {
            eprint!("{said}");
            return;
        }
        assert!(said.contains("attempting"), "{attempt:?}: {said}");
        let denied = status.success() && said.contains("Err(Os { code: 1,");
        match attempt {
            Attempt::Process
            | Attempt::Root
            | Attempt::Signal
            | Attempt::Limit
            | Attempt::Capture
            | Attempt::Connection => assert!(denied, "{attempt:?}: {said}"),
            _ => assert_eq!(status.signal(), Some(SIGSYS), "{attempt:?}: {said}"),
        }
    }
}

#[test]
#[ignore = "run by `calls_of_who_has_taken_over_end_the_process_or_fail`"]
fn behind_seccomp() {
    let number: usize = std::env::var(ATTEMPT)
        .ok()
        .and_then(|number| number.parse().ok())
        .unwrap_or(0);
    let needs = Needs {
        native: true,
        packets: true,
        sends: true,
        ..Needs::default()
    };
    if let Err(error) = calls::restrict(needs) {
        skipped(
            "calls_of_who_has_taken_over_end_the_process_or_fail",
            format_args!("no seccomp: {error}"),
        );
        return;
    }
    // Access that a run needs.
    let sum = std::thread::spawn(|| (0..100).sum::<u32>()).join().unwrap();
    assert_eq!(
        (
            sum,
            fs::read("/proc/self/comm").is_ok(),
            UnixDatagram::unbound().is_ok()
        ),
        (4950, true, true)
    );
    println!("attempting");
    println!("{:?}", Attempt::ALL[number].make());
}

/// A run without expressions makes no native code, and a run without interfaces opens no sockets for them.
#[test]
fn calls_that_a_run_does_not_need_fail() {
    let (status, said) = alone_with("behind_seccomp_for_files", 0);
    assert!(status.success(), "{said}");
}

#[test]
#[ignore = "run by `calls_that_a_run_does_not_need_fail`"]
fn behind_seccomp_for_files() {
    if calls::restrict(Needs::default()).is_err() {
        return;
    }
    denied(UdpSocket::bind("127.0.0.1:0"));
    denied(UnixStream::pair());
    let filter = weir_filter::Filter::compile("udp", LinkType::ETHERNET, false).unwrap();
    filter.make_native();
    assert!(!filter.is_native(), "it would be code");
}
