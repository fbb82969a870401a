//! `weir bench`: hands over to `weir-bench`, a binary of its own, so that weir carries none of its rivals.

use crate::cli::BenchArgs;
use crate::outcome::Outcome;
use anyhow::bail;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Runs `weir-bench` in the place of this process, so that its exit code and its signals are its own. Returns only if that fails.
pub fn run(arguments: &BenchArgs) -> anyhow::Result<Outcome> {
    let program = beside_us().unwrap_or_else(|| PathBuf::from("weir-bench"));
    let error = Command::new(&program).args(&arguments.arguments).exec();
    if error.kind() == io::ErrorKind::NotFound {
        bail!(
            "no weir-bench beside this program or in PATH: `make bench` builds it, or in a clone `cargo build --release \
             --manifest-path bench/Cargo.toml --target-dir target`"
        );
    }
    bail!("{}: {error}", program.display());
}

/// The one that was built with this program.
fn beside_us() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name("weir-bench");
    path.is_file().then_some(path)
}
