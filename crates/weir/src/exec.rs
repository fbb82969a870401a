//! `weir exec`: runs a program of libpcap with weir's library in front of libpcap.

use crate::cli::exec::{BackendArg, ExecArgs};
use crate::outcome::{Outcome, io_words};
use anyhow::{anyhow, bail};
use std::ffi::OsString;
use std::io;
use std::ops::RangeInclusive;
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

/// Sizes of the ring, bytes.
const RING_SIZES: RangeInclusive<u64> = 1 << 20..=1 << 30;

/// Replaces this process with the program, whose exit code and signals become the command's. Returns only if that fails.
pub fn run(arguments: &ExecArgs) -> anyhow::Result<Outcome> {
    let Some((program, rest)) = arguments.program.split_first() else {
        bail!("name a program: weir exec tcpdump -nr trace.pcap");
    };
    let library = library()?;
    let error = Command::new(program)
        .args(rest)
        .env(PRELOAD, in_front(library, std::env::var_os(PRELOAD)))
        .envs(settings(arguments)?)
        .exec();
    let name = Name::from(program.clone());
    if error.kind() == io::ErrorKind::NotFound {
        bail!("{name}: no such program in PATH");
    }
    bail!("{name}: {}", io_words(&error));
}

/// The variables in which the library finds its settings.
///
/// **Errors**: the size of the ring is out of its range, a path is not absolute and cannot be made so.
fn settings(arguments: &ExecArgs) -> anyhow::Result<Vec<(&'static str, OsString)>> {
    let ExecArgs {
        backend,
        ring,
        pages,
        fanout,
        record,
        stats,
        taking,
        exact,
        program: _,
    } = arguments;
    if ring.is_some_and(|bytes| !RING_SIZES.contains(&bytes)) {
        bail!("--ring takes a size from 1M to 1G");
    }
    let backend = backend.map(|backend| match backend {
        BackendArg::AfPacket => "af_packet".into(),
        BackendArg::AfXdp => "af_xdp".into(),
    });
    // A program may go to another directory before it captures.
    let place = |path: &Option<PathBuf>| {
        let place = path.as_ref().map(std::path::absolute).transpose();
        place.map(|path| path.map(OsString::from))
    };
    let settings = [
        ("WEIR_BACKEND", backend),
        ("WEIR_RING", ring.map(|bytes| bytes.to_string().into())),
        ("WEIR_PAGES", pages.map(|pages| pages.name().into())),
        ("WEIR_FANOUT", fanout.map(|group| group.to_string().into())),
        ("WEIR_RECORD", place(record)?),
        ("WEIR_STATS", place(stats)?),
        (
            "WEIR_YES_TAKE",
            (!taking.yes_take.is_empty()).then(|| taking.yes_take.join(",").into()),
        ),
        ("WEIR_EXACT", exact.then(|| "1".into())),
    ];
    let set = settings
        .into_iter()
        .filter_map(|(name, value)| Some((name, value?)));
    Ok(set.collect())
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
    use crate::cli::{self, Cli};
    use clap::Parser;

    fn parsed(words: &[&str]) -> Result<ExecArgs, clap::Error> {
        let words = ["weir", "exec"].iter().chain(words);
        Ok(match Cli::try_parse_from(words)?.command {
            cli::Command::Exec(arguments) => arguments,
            other => panic!("{other:?}"),
        })
    }

    #[test]
    fn flags_become_variables() {
        let words = "--backend af_xdp --ring 2M --pages thp --fanout 7 --record /kept --stats /counts --yes-take a --yes-take b \
            --exact tcpdump -i a --ring 1";
        let words: Vec<_> = words.split_whitespace().collect();
        let arguments = parsed(&words).unwrap();
        assert_eq!(arguments.program, ["tcpdump", "-i", "a", "--ring", "1"]);
        let expected = [
            ("WEIR_BACKEND", "af_xdp"),
            ("WEIR_RING", "2097152"),
            ("WEIR_PAGES", "thp"),
            ("WEIR_FANOUT", "7"),
            ("WEIR_RECORD", "/kept"),
            ("WEIR_STATS", "/counts"),
            ("WEIR_YES_TAKE", "a,b"),
            ("WEIR_EXACT", "1"),
        ]
        .map(|(name, value)| (name, OsString::from(value)));
        assert_eq!(settings(&arguments).unwrap(), expected);
        assert!(settings(&parsed(&["tcpdump"]).unwrap()).unwrap().is_empty());
    }

    #[test]
    fn wrong_values_are_refused() {
        for wrong in ["--ring 1k", "--ring 2G"] {
            let words: Vec<_> = wrong.split(' ').chain(["true"]).collect();
            assert!(settings(&parsed(&words).unwrap()).is_err(), "{wrong}");
        }
        for wrong in [
            "--backend pf_ring",
            "--pages large",
            "--fanout 0",
            "--fanout 65536",
        ] {
            let words: Vec<_> = wrong.split(' ').chain(["true"]).collect();
            assert!(parsed(&words).is_err(), "{wrong}");
        }
    }

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
