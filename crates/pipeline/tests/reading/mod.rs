//! What the tests of reading share: files made by hand, a serial reader that knows nothing of weir, and the comparison of
//! every way to read with it.
#![allow(dead_code, reason = "each test file uses its part")]

pub mod build;
pub mod compare;
pub mod naive;

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

/// SplitMix64: enough for bytes that nobody chose, and its seed replays.
#[derive(Clone, Debug)]
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(len + 8);
        while bytes.len() < len {
            bytes.extend_from_slice(&self.next().to_le_bytes());
        }
        bytes.truncate(len);
        bytes
    }
}
