//! `weir exec`: runs a program of libpcap with weir's library in front of libpcap.

use crate::cli::exec::ExecArgs;
use crate::outcome::{Outcome, io_words};
use anyhow::{anyhow, bail};
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use weir_engine::name::Name;

/// Name of this command, as typed.
pub const NAME: &str = "exec";

/// The library that has libpcap's functions.
const LIBRARY: &str = "libweir_pcap.so";

/// Variable by which the loader puts libraries in front of all others. **Source**: ld.so(8).
const PRELOAD: &str = "LD_PRELOAD";

/// Replaces this process with the program, whose exit code and signals become the command's. Returns only if that fails.
pub fn run(arguments: &ExecArgs) -> anyhow::Result<Outcome> {
    let Some((program, rest)) = arguments.program.split_first() else {
        bail!("name a program: weir exec tcpdump -nr trace.pcap");
    };
    let library = library()?;
    let error = Command::new(program)
        .args(rest)
        .env(PRELOAD, in_front(library, std::env::var_os(PRELOAD)))
        .exec();
    let name = Name::from(program.clone());
    if error.kind() == io::ErrorKind::NotFound {
        bail!("{name}: no such program in PATH");
    }
    bail!("{name}: {}", io_words(&error));
}

/// The libraries to preload: ours, and then the others of the environment.
fn in_front(library: PathBuf, others: Option<OsString>) -> OsString {
    let mut list = library.into_os_string();
    if let Some(others) = others.filter(|others| !others.is_empty()) {
        list.push(":");
        list.push(others);
    }
    list
}

/// Path of the library: in `lib/weir` of weir's prefix; in a build tree in `deps`, which has the newest, or next to weir.
///
/// **Errors**: it is in neither place, or its path has a space or a colon, at which the loader cuts.
fn library() -> anyhow::Result<PathBuf> {
    let weir = std::env::current_exe().map_err(|error| anyhow!("{}", io_words(&error)))?;
    let directory = weir.parent().unwrap_or(Path::new("/"));
    let places = [
        directory.join("../lib/weir").join(LIBRARY),
        directory.join("deps").join(LIBRARY),
        directory.join(LIBRARY),
    ];
    let found = places.iter().find_map(|place| place.canonicalize().ok());
    let Some(found) = found else {
        bail!(
            "no {LIBRARY} in {} or beside weir: `make install` installs it, and in a clone `cargo build --release -p weir-pcap` builds it",
            Name::from(places[0].clone().into_os_string())
        );
    };
    if found.to_string_lossy().contains([' ', ':']) {
        bail!(
            "{}: {PRELOAD} separates paths by spaces and colons: install weir in a directory without them",
            Name::from(found.into_os_string())
        );
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_libraries_stay_behind_ours() {
        let ours = || PathBuf::from("/lib/a.so");
        assert_eq!(in_front(ours(), None), "/lib/a.so");
        assert_eq!(in_front(ours(), Some(OsString::new())), "/lib/a.so");
        assert_eq!(
            in_front(ours(), Some("b.so c.so".into())),
            "/lib/a.so:b.so c.so"
        );
    }
}
