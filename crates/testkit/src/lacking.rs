//! Requirements of tests that a machine may lack: programs, captures, root.
//!
//! Such a test prints a line about it and returns. `make test` repeats the line at its end, and counts the test as skipped. With
//! `WEIR_COMPLETE=1` the test fails instead, for machines that must lack nothing.

use std::fmt::Display;
use std::path::PathBuf;
use std::process::Command;

/// Prints that `test` is skipped, all or a part of it, and the missing requirement. **Panics** with `WEIR_COMPLETE`.
#[track_caller]
pub fn skipped(test: &str, lacking: impl Display) {
    // tidy: allow(print): `make test` finds the missing requirements in the output of tests.
    eprintln!("{test}: skipped, {lacking}");
    assert!(
        std::env::var_os("WEIR_COMPLETE").is_none(),
        "WEIR_COMPLETE is set, and {test} lacks something: {lacking}"
    );
}

/// Whether these programs are in PATH; if not, prints that `test` is skipped.
pub fn have(test: &str, programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found =
        |name: &&&str| std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    let missing: Vec<_> = programs.iter().filter(|name| !found(name)).collect();
    if !missing.is_empty() {
        skipped(test, format_args!("not installed: {missing:?}"));
    }
    missing.is_empty()
}

/// Standard output of a program that must succeed; `None` if it is not installed, and then prints that `test` is skipped.
#[track_caller]
pub fn output(test: &str, command: &mut Command) -> Option<Vec<u8>> {
    let done = match command.output() {
        Ok(done) => done,
        Err(error) => {
            skipped(test, format_args!("{command:?} cannot be started: {error}"));
            return None;
        }
    };
    let said = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{command:?}: {said}");
    Some(done.stdout)
}

/// Folder of the captures: `WEIR_CAPTURES`, or `../shared/captures` next to the workspace.
fn captures_directory() -> PathBuf {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures");
    std::env::var_os("WEIR_CAPTURES").map_or_else(|| PathBuf::from(beside), PathBuf::from)
}

/// All captures, sorted; if there is no such folder, prints a line about it and returns none.
pub fn captures(test: &str) -> Vec<PathBuf> {
    let directory = captures_directory();
    let Ok(entries) = std::fs::read_dir(&directory) else {
        skipped(
            test,
            format_args!("no captures in {} (set WEIR_CAPTURES)", directory.display()),
        );
        return Vec::new();
    };
    let mut paths: Vec<_> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    paths.retain(|path| {
        path.extension()
            .is_some_and(|ext| ext == "pcap" || ext == "pcapng" || ext == "cap")
    });
    paths.sort();
    assert!(
        !paths.is_empty(),
        "{} holds no captures",
        directory.display()
    );
    paths
}

/// The captures that libpcap reads whole. It cuts a pcap record at the snap length of the file's header, and weir does not: such
/// captures cannot be compared with its programs.
pub fn captures_for_libpcap(test: &str) -> Vec<PathBuf> {
    let mut paths = captures(test);
    paths.retain(|path| {
        let bytes =
            std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        !is_longer_than_its_snap_length(&bytes)
    });
    paths
}

/// Whether `bytes` is a pcap file with a record longer than the header's snap length; 0 is not a
/// snap length.
fn is_longer_than_its_snap_length(bytes: &[u8]) -> bool {
    let number = |at: usize, big_endian: bool| -> Option<u32> {
        let field = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if big_endian {
            u32::from_be_bytes(field)
        } else {
            u32::from_le_bytes(field)
        })
    };
    let big_endian = match number(0, true) {
        Some(0xa1b2_c3d4 | 0xa1b2_3c4d) => true,
        Some(0xd4c3_b2a1 | 0x4d3c_b2a1) => false,
        _ => return false,
    };
    let snap_length = number(16, big_endian).unwrap_or(0);
    let mut at = 24;
    while let Some(length) = number(at + 8, big_endian) {
        if snap_length > 0 && length > snap_length {
            return true;
        }
        at += 16 + length as usize;
    }
    false
}

/// The capture `name`; if it is absent, prints a line about it and returns `None`.
pub fn capture(test: &str, name: &str) -> Option<PathBuf> {
    let path = captures_directory().join(name);
    if !path.is_file() {
        skipped(test, format_args!("no capture {name} (set WEIR_CAPTURES)"));
        return None;
    }
    Some(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn records_beyond_the_snap_length_are_found() {
        let file = |snap_length: u32, lengths: [u32; 2]| {
            let mut bytes = 0xa1b2_c3d4_u32.to_le_bytes().to_vec();
            bytes.extend([0; 12]);
            bytes.extend(snap_length.to_le_bytes());
            bytes.extend(1_u32.to_le_bytes());
            for length in lengths {
                bytes.extend([0; 8]);
                bytes.extend([length.to_le_bytes(), length.to_le_bytes()].concat());
                bytes.extend(vec![0; length as usize]);
            }
            bytes
        };
        assert!(is_longer_than_its_snap_length(&file(60, [60, 61])));
        assert!(!is_longer_than_its_snap_length(&file(61, [60, 61])));
        assert!(!is_longer_than_its_snap_length(&file(0, [60, 61])));
    }

    #[test]
    #[ignore = "run by `what_lacks_something_says_so_and_fails_where_nothing_may_lack`"]
    fn lacking() {
        skipped("lacking", "a unicorn");
    }

    #[test]
    fn what_lacks_something_says_so_and_fails_where_nothing_may_lack() {
        for complete in [false, true] {
            let mut command = Command::new(std::env::current_exe().expect("it runs"));
            command
                .args([
                    "lacking::tests::lacking",
                    "--exact",
                    "--ignored",
                    "--nocapture",
                ])
                .env_remove("WEIR_COMPLETE");
            let done = command
                .envs(complete.then_some(("WEIR_COMPLETE", "1")))
                .output()
                .expect("it can be run");
            assert_eq!(done.status.success(), !complete);
            let err = String::from_utf8_lossy(&done.stderr);
            assert!(
                err.lines()
                    .any(|line| line == "lacking: skipped, a unicorn"),
                "{err}"
            );
        }
    }
}
