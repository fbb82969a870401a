//! `weir bench`: runs `weir-bench`, a separate binary, so that `weir` itself does not depend on the rivals of its
//! benchmarks.

use crate::cli::BenchArgs;
use crate::outcome::Outcome;
use anyhow::bail;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

/// Replaces this process with `weir-bench`, whose exit code and signals become the command's.
/// Returns only if that fails.
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

/// Path of the `weir-bench` built with this program, in the same directory.
fn beside_us() -> Option<PathBuf> {
    let path = std::env::current_exe().ok()?.with_file_name("weir-bench");
    path.is_file().then_some(path)
}
