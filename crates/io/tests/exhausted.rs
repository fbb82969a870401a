//! Tests of the aborts that count as lack of memory: this program runs itself, and the child aborts.

use std::hint::black_box;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};
use weir_io::sys;
use weir_io::sys::exhausted::Allocator;

#[global_allocator]
static ALLOCATOR: Allocator = Allocator;

/// Environment variable that names the kind of abort in the child.
const WAY: &str = "WEIR_TEST_ABORT";

/// Bytes that no machine has.
const TOO_MUCH: usize = 1 << 60;

/// Body of the child process, not a test of its own.
#[test]
fn aborting() {
    let Some(way) = std::env::var_os(WAY) else {
        return;
    };
    sys::bear_signals();
    if way == "exhausted" {
        black_box(vec![1u8; TOO_MUCH]);
    }
    let other = || {
        black_box(Vec::<u8>::new())
            .try_reserve_exact(TOO_MUCH)
            .expect_err("nobody has as much")
    };
    std::thread::spawn(other).join().expect("it is dealt with");
    if way == "sent" {
        let me = std::process::id().to_string();
        Command::new("kill")
            .args(["-ABRT", &me])
            .status()
            .expect("kill can be run");
        // The process ends here, unless the signal is ignored.
        std::thread::park_timeout(std::time::Duration::from_secs(60));
    }
    std::process::abort();
}

fn ended(way: &str) -> Output {
    let mut command = Command::new(std::env::current_exe().expect("this program has a name"));
    command
        .args(["--exact", "aborting", "--nocapture"])
        .env(WAY, way)
        .stdin(Stdio::null());
    command.output().expect("this program can be run")
}

#[test]
fn an_abort_for_want_of_memory_is_a_line() {
    let output = ended("exhausted");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("weir: out of memory: "), "{said}");
}

#[test]
fn an_abort_of_a_thread_that_had_all_its_memory_stays_an_abort() {
    for way in ["aborted", "sent"] {
        let output = ended(way);
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.signal(), Some(6), "{way}: {said}");
        assert!(!said.contains("out of memory"), "{way}: {said}");
    }
}
