//! Bans that come back when a firewall between interfaces starts again: where their file lies, and what is read from it.

use super::control_socket::names_of;
use crate::cli::firewall::FirewallArgs;
use crate::numbers::{counted, grouped};
use crate::outcome::{io_words, say};
use crate::walls::Walls;
use anyhow::{Context, anyhow, bail};
use std::fs::DirBuilder;
use std::io;
use std::net::IpAddr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf, absolute};
use std::sync::Arc;
use std::time::Instant;
use weir_engine::firewall::ends::LiveEnds;
use weir_engine::firewall::kept::{self, Event, Keeper, KeptBan, Restored};
use weir_engine::firewall::{Change, SharedPolicy};
use weir_engine::name::Name;
use weir_firewall::kept::{BootId, Kept, MOST_BYTES};
use weir_firewall::permissions::AddressChange;
use weir_io::state::{StateError, StateFile};
use weir_io::sys::privilege;

/// Directory of the files of root.
const OF_ROOT: &str = "/var/lib/weir";

/// File that keeps bans, and what it had.
pub struct Bans {
    file: Option<StateFile>,
    boot: Option<BootId>,
    restored: Restored,
    /// A line about it.
    about: String,
}

/// Directory for the files of this user, if there is one.
fn own() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    let of_service = variable("STATE_DIRECTORY");
    // Several directories have colons between them: systemd.exec(5).
    let first = of_service
        .as_ref()
        .and_then(|all| all.as_bytes().split(|&byte| byte == b':').next());
    if let Some(directory) = first {
        return Some(PathBuf::from(std::ffi::OsStr::from_bytes(directory)));
    }
    match privilege::user_id() {
        0 => Some(PathBuf::from(OF_ROOT)),
        _ => match variable("XDG_STATE_HOME") {
            Some(state) => Some(Path::new(&state).join("weir")),
            None => variable("HOME").map(|home| Path::new(&home).join(".local/state/weir")),
        },
    }
}

/// Path of the file. A control socket of another name, as in another network namespace, also gives
/// the file another name.
fn place(arguments: &FirewallArgs, source: &Name, sink: &Name) -> Result<PathBuf, String> {
    let directory = own().ok_or("there is no HOME")?;
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o700)
        .create(&directory);
    made.map_err(|error| format!("{}: {}", directory.display(), io_words(&error)))?;
    let of_control = match &arguments.control {
        Some(control) => {
            let path = absolute(Path::new(control)).unwrap_or_else(|_| PathBuf::from(control));
            format!("-{:016x}", fnv(path.as_os_str().as_bytes()))
        }
        None => String::new(),
    };
    Ok(directory.join(format!("{}{of_control}.bans", names_of(source, sink))))
}

/// FNV-1a. **Source**: Fowler, Noll, Vo; RFC 9923.
fn fnv(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// Takes the file of bans, and reads it. **Errors**: others may change it, another firewall has it, or it is damaged.
pub fn open(
    arguments: &FirewallArgs,
    source: &Name,
    sink: &Name,
    walls: &mut Walls,
) -> anyhow::Result<Bans> {
    let boot = kept::boot_id();
    let nothing = |about| Bans {
        file: None,
        boot,
        restored: Restored::default(),
        about,
    };
    let path = match &arguments.state {
        Some(path) => PathBuf::from(path),
        None => match place(arguments, source, sink) {
            Ok(path) => path,
            // Nothing was kept there.
            Err(why) => {
                return Ok(nothing(format!(
                    "bans end with this process: {why}: --state FILE keeps them"
                )));
            }
        },
    };
    let user = walls.user().map(|(user, _)| user);
    let owners: Vec<u32> = [0, privilege::user_id()].into_iter().chain(user).collect();
    let taken = StateFile::take(&path, &owners);
    let is_missing = || {
        path.symlink_metadata()
            .is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    };
    if let Err(error @ StateError::Io { .. }) = &taken
        && arguments.state.is_none()
        && is_missing()
    {
        return Ok(nothing(format!(
            "bans end with this process: {}: --state FILE keeps them",
            words(error)
        )));
    }
    let file = taken.map_err(|error| match error {
        StateError::InUse(path) => {
            anyhow!(
                "{}: another weir firewall keeps its bans there: --state FILE places those of this one",
                path.display()
            )
        }
        error => anyhow!("{}: --state FILE places the bans elsewhere", words(&error)),
    })?;
    walls.keeps_state(&file);
    if arguments.no_restore {
        let old = file.set_aside().map_err(|error| anyhow!(words(&error)))?;
        let about = old.map_or_else(String::new, |old| {
            format!("; those before are in {}", old.display())
        });
        let about = format!("bans are kept in {}{about}", file.path().display());
        return Ok(Bans {
            file: Some(file),
            about,
            ..nothing(String::new())
        });
    }
    let restored = read(&file, boot)?;
    let mut about = format!("bans are kept in {}", file.path().display());
    if !restored.bans.is_empty() || restored.over > 0 {
        about.push_str(&format!(
            "; {} restored",
            counted(restored.bans.len() as u64, "ban")
        ));
    }
    if restored.over > 0 {
        about.push_str(&format!(
            ", {} ended meanwhile",
            grouped(restored.over as u64)
        ));
    }
    Ok(Bans {
        file: Some(file),
        boot,
        restored,
        about,
    })
}

fn read(file: &StateFile, boot: Option<BootId>) -> anyhow::Result<Restored> {
    const WITHOUT: &str = "--no-restore starts without the bans that were kept";
    let bytes = file
        .read(MOST_BYTES as u64)
        .map_err(|error| anyhow!("{}: {WITHOUT}", words(&error)))?;
    let Some(bytes) = bytes else {
        return Ok(Restored::default());
    };
    let kept = Kept::parse(&bytes)
        .map_err(|error| anyhow!("{}: {error}: {WITHOUT}", file.path().display()))?;
    Ok(Restored::new(&kept, &kept::now(boot), Instant::now()))
}

/// Words of an error without the number of the system.
fn words(error: &StateError) -> String {
    match error {
        StateError::Io { path, error } => format!("{}: {}", path.display(), io_words(error)),
        error => error.to_string(),
    }
}

impl Bans {
    /// Puts the bans into force, before the policy has workers. A ban of the policy's own table is for good, whatever was kept.
    pub fn restore(&mut self, policy: &SharedPolicy, ends: &LiveEnds) -> anyhow::Result<()> {
        let of_table: std::collections::HashSet<IpAddr> = policy.banned().into_iter().collect();
        let mut bans = std::mem::take(&mut self.restored.bans);
        bans.retain(|(address, ban)| ban.end.is_none() || !of_table.contains(address));
        let change = |(address, _): &(IpAddr, KeptBan)| {
            Change::Address(AddressChange::banning(*address, true))
        };
        let changes: Vec<Change> = bans.iter().map(change).collect();
        for step in changes.chunks(policy.room().div_ceil(2)) {
            policy.apply_all(step).map_err(|error| {
                let path = self
                    .file
                    .as_ref()
                    .map_or(Path::new("bans"), StateFile::path);
                anyhow!(
                    "{}: {error}: --no-restore starts without the bans that were kept",
                    path.display()
                )
            })?;
        }
        ends.restore_bans(bans);
        Ok(())
    }

    /// Returns a line about the file.
    pub fn about(&self) -> &str {
        &self.about
    }

    /// Begins to keep the bans.
    pub fn keep(self, ends: &Arc<LiveEnds>) -> anyhow::Result<Option<Keeper>> {
        let Some(file) = self.file else {
            return Ok(None);
        };
        let tell = |path: &Path, event: Event<'_>| match event {
            Event::Failed(error) => say(&failed_line(path, &io_words(error))),
            Event::Again => say(&format!("{}: bans are kept again", path.display())),
        };
        ends.keep(file, self.boot, tell)
            .map(Some)
            .context("a thread that keeps bans")
    }
}

fn failed_line(path: &Path, why: &str) -> String {
    format!(
        "{}: {why}; bans stay in force, but would not come back after a restart",
        path.display()
    )
}

/// Ends the keeping of bans. Returns an error if the last of them are not in the file.
pub fn finish(keeper: Option<Keeper>) -> Option<String> {
    let why = keeper?.finish().err()?;
    Some(format!("the last changes of bans are not kept: {why}"))
}

/// Refuses names that are none of a file.
pub fn check(arguments: &FirewallArgs) -> anyhow::Result<()> {
    match &arguments.state {
        Some(state) if Path::new(state).is_dir() => {
            bail!("{state} is a directory: --state names a file")
        }
        Some(state) if state.is_dash() => bail!("--state -: bans are kept in a file"),
        _ => Ok(()),
    }
}
