//! Places of control sockets.

use crate::outcome::io_words;
use crate::port;
use crate::walls::Walls;
use anyhow::{anyhow, bail};
use std::fs::DirBuilder;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use weir_engine::name::Name;
use weir_engine::socket::{Bound, Client, Error};
use weir_io::sys::privilege;

/// Directory of the sockets of root.
const OF_ROOT: &str = "/run/weir";

/// Directory for the sockets of this user, if there is one.
fn own() -> Option<PathBuf> {
    match privilege::user_id() {
        0 => Some(PathBuf::from(OF_ROOT)),
        _ => std::env::var_os("XDG_RUNTIME_DIR").map(|runtime| Path::new(&runtime).join("weir")),
    }
}

/// Path of a new socket, in a directory that is made if it is missing.
pub fn place(asked: Option<&Name>, source: &Name, sink: &Name) -> anyhow::Result<PathBuf> {
    if let Some(asked) = asked {
        return Ok(Path::new(asked).to_owned());
    }
    let Some(directory) = own() else {
        bail!("there is no XDG_RUNTIME_DIR for the control socket: --control PATH")
    };
    let made = DirBuilder::new()
        .recursive(true)
        .mode(0o755)
        .create(&directory);
    made.map_err(|error| {
        anyhow!(
            "{}: {}: --control PATH places the socket",
            directory.display(),
            io_words(&error)
        )
    })?;
    Ok(directory.join(format!("{}.sock", names_of(source, sink))))
}

/// Part of file names that stands for a firewall between these interfaces.
pub fn names_of(source: &Name, sink: &Name) -> String {
    let short = |name: &Name| match port::interface(name) {
        Some(interface) => interface.to_owned(),
        None => Path::new(name).file_name().map_or_else(
            || "-".to_owned(),
            |name| name.to_string_lossy().into_owned(),
        ),
    };
    format!("firewall-{}-{}", short(source), short(sink)).replace(['/', ':'], "_")
}

/// Makes a socket, for the user whose rights files are written with. **Errors**: another process, such as a `what`, listens there.
pub fn bind(path: &Path, what: &str, walls: &Walls) -> anyhow::Result<Bound> {
    let bound = Bound::new(path).map_err(|error| match error {
        Error::InUse { path } => anyhow!(
            "{}: another {what} runs there; --control PATH places this one's socket",
            path.display()
        ),
        error => error.into(),
    })?;
    walls
        .give_away(path)
        .map_err(|error| anyhow!("{}: {}", path.display(), io_words(&error)))?;
    Ok(bound)
}

/// Connects to the firewall that runs. **Errors**: none runs, or several do and none is named.
pub fn connect(asked: Option<&Name>) -> anyhow::Result<Client> {
    let connected = |path: &Path| {
        Client::connect(path).map_err(|error| match error {
            Error::NotListening { .. } => {
                anyhow!("{}: no weir firewall runs there", path.display())
            }
            error => error.into(),
        })
    };
    if let Some(asked) = asked {
        return connected(Path::new(asked));
    }
    let directories = std::iter::once(PathBuf::from(OF_ROOT))
        .chain(own().filter(|own| own != Path::new(OF_ROOT)));
    let entries = directories
        .flat_map(|directory| std::fs::read_dir(directory).into_iter().flatten().flatten());
    let is_socket = |path: &PathBuf| {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        name.starts_with("firewall-") && name.ends_with(".sock")
    };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.path()).filter(is_socket) {
        match Client::connect(&path) {
            // What a killed process left.
            Err(Error::NotListening { .. }) => {}
            client => found.push((path, client)),
        }
    }
    match found.len() {
        0 => bail!(
            "no weir firewall runs between interfaces: start one, or name its socket with --control PATH"
        ),
        1 => found.remove(0).1.map_err(Into::into),
        _ => {
            let names: Vec<String> = found
                .iter()
                .map(|(path, _)| path.display().to_string())
                .collect();
            bail!("several run: --control names one of {}", names.join(", "))
        }
    }
}
