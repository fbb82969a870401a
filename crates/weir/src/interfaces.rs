//! Network interfaces of this machine, as `-D` lists them.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::path::Path;
use weir_engine::name::Name;
use weir_io::sys::packet_socket;

/// One line per interface: number, name and state; then the name that means all interfaces.
pub fn list() -> io::Result<String> {
    let mut out = String::new();
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
        let state = if loopback {
            "loopback".to_owned()
        } else {
            state
        };
        out.push_str(&format!("{index}.{} [{state}]\n", Name::from(name)));
    }
    // Number 0 is the one to which a packet socket of all interfaces is bound.
    out.push_str(&format!("0.{} [all interfaces]\n", packet_socket::ANY));
    Ok(out)
}

fn read(interface: &OsStr, field: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/sys/class/net").join(interface).join(field)).ok()?;
    Some(text.trim().to_owned())
}
