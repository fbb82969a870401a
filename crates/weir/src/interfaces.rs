//! The network interfaces of this machine, as `-D` lists them.

use crate::name::Name;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Write};
use std::path::Path;

/// Prints one line per interface: number, name, state.
pub fn list(out: &mut impl Write) -> io::Result<()> {
    let mut names: Vec<(u32, OsString)> = fs::read_dir("/sys/class/net")?
        .filter_map(|entry| {
            let name = entry.ok()?.file_name();
            let index = read(&name, "ifindex")?.parse().ok()?;
            Some((index, name))
        })
        .collect();
    names.sort();
    for (index, name) in names {
        let state = read(&name, "operstate").unwrap_or_default();
        let loopback = read(&name, "type").as_deref() == Some("772");
        let state = if loopback { "loopback".to_owned() } else { state };
        writeln!(out, "{index}.{} [{state}]", Name::from(name))?;
    }
    Ok(())
}

fn read(interface: &OsStr, field: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/sys/class/net").join(interface).join(field)).ok()?;
    Some(text.trim().to_owned())
}
