//! What the tests of reading share: files made by hand, a serial reader that knows nothing of weir, and the comparison of
//! every way to read with it.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

pub mod build;
pub mod compare;
pub mod naive;
#[path = "../../../memory/tests/random/mod.rs"]
mod random;

pub use random::Random;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// A file below the temporary directory that goes when this does.
#[derive(Debug)]
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn empty(name: &str) -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        Self(std::env::temp_dir().join(format!("weir-{}-{number}-{name}", std::process::id())))
    }

    pub fn new(name: &str, bytes: &[u8]) -> Self {
        let scratch = Self::empty(name);
        std::fs::write(&scratch.0, bytes).expect("the temporary directory can be written");
        scratch
    }

    pub fn path(&self) -> &str {
        self.0.to_str().expect("the temporary directory has a readable name")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// The captures to read: `WEIR_CAPTURES`, or `../shared/captures` beside the workspace. Says what is missing.
pub fn captures() -> Vec<PathBuf> {
    let beside = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/captures");
    let directory = std::env::var_os("WEIR_CAPTURES").map_or_else(|| PathBuf::from(beside), PathBuf::from);
    let Ok(entries) = std::fs::read_dir(&directory) else {
        eprintln!("skipped: no captures in {} (set WEIR_CAPTURES)", directory.display());
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.retain(|path| path.extension().is_some_and(|ext| ext == "pcap" || ext == "pcapng" || ext == "cap"));
    paths.sort();
    paths
}

pub fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Is the tool there? Says so if not.
pub fn have(tool: &str) -> bool {
    let found = Command::new(tool).arg("--version").output().is_ok();
    if !found {
        eprintln!("skipped: no {tool}");
    }
    found
}
