//! The library in front of a test's program.
//!
//! For checks of memory (`scripts/exec-memory`): `WEIR_TEST_UNDER` is a program with its words that runs the programs, such as
//! `valgrind -q`, and `WEIR_TEST_PRELOAD` has the place of the library, such as `libasan.so:libweir_pcap.so`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Command;

/// The library, which lies beside the tests.
pub fn library() -> PathBuf {
    let deps = std::env::current_exe().unwrap();
    let path = deps.with_file_name("libweir_pcap.so");
    assert!(path.exists(), "{} is built with the tests", path.display());
    path
}

/// A program with the library.
pub fn preloaded(program: &str) -> Command {
    let under = std::env::var("WEIR_TEST_UNDER").unwrap_or_default();
    let mut words = under.split_whitespace().chain([program]);
    let mut command = Command::new(words.next().unwrap());
    let libraries = std::env::var_os("WEIR_TEST_PRELOAD").filter(|text| !text.is_empty());
    let libraries = libraries.unwrap_or_else(|| OsString::from(library()));
    command.args(words).env("LD_PRELOAD", libraries);
    command
}
