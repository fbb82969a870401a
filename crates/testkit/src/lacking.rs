//! What a test needs and a machine may lack. Such a test says so in a line, which `make test` repeats at its end, and passes.

use std::fmt::Display;
use std::path::PathBuf;

/// Says that `test` is skipped, and what it lacks.
pub fn skipped(test: &str, lacking: impl Display) {
    // tidy: allow(print): the output of tests is where `make test` finds what was lacking.
    eprintln!("{test}: skipped, {lacking}");
}

/// Whether these programs are in PATH; else says that `test` is skipped.
pub fn have(test: &str, programs: &[&str]) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |name: &&&str| std::env::split_paths(&path).any(|directory| directory.join(name).is_file());
    let missing: Vec<_> = programs.iter().filter(|name| !found(name)).collect();
    if !missing.is_empty() {
        skipped(test, format_args!("not installed: {missing:?}"));
    }
    missing.is_empty()
}

/// `WEIR_CAPTURES`, or `../shared/captures` beside the workspace.
fn captures_directory() -> PathBuf {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures");
    std::env::var_os("WEIR_CAPTURES").map_or_else(|| PathBuf::from(beside), PathBuf::from)
}

/// All captures, sorted; none, with a line that says so, if there is no such folder.
pub fn captures(test: &str) -> Vec<PathBuf> {
    let directory = captures_directory();
    let Ok(entries) = std::fs::read_dir(&directory) else {
        skipped(test, format_args!("no captures in {} (set WEIR_CAPTURES)", directory.display()));
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "pcap" || ext == "pcapng" || ext == "cap"));
    paths.sort();
    assert!(!paths.is_empty(), "{} holds no captures", directory.display());
    paths
}

/// The capture `name`, or `None` with a line that says so.
pub fn capture(test: &str, name: &str) -> Option<PathBuf> {
    let path = captures_directory().join(name);
    if !path.is_file() {
        skipped(test, format_args!("no capture {name} (set WEIR_CAPTURES)"));
        return None;
    }
    Some(path)
}
