//! Shared parts of the tests of readers: files made by hand, a naive reader without any code of weir, and a comparison with it
//! in every way to read.
#![allow(dead_code, unused_imports, reason = "each test file uses its part")]

pub mod compare;
pub mod naive;

use std::path::Path;
pub use weir_testkit::{Random, ScratchFile as Scratch, captures, have, savefile as build};

pub fn file_name(path: &Path) -> String {
    path.file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned()
}
