//! Network interfaces of this machine, as `-D` lists them.

use std::fs;
use std::io;
use std::path::Path;
use weir_engine::name::Name;
use weir_io::sys::packet_socket;
use weir_messages::sources::interface_names;

/// One line per interface of this network namespace: number, name and state; then the name that means all interfaces.
pub fn list() -> io::Result<String> {
    let mut out = String::new();
    let mut names: Vec<(u32, String)> = interface_names()
        .into_iter()
        .filter_map(|name| Some((packet_socket::index_of(&name)?, name)))
        .collect();
    names.sort();
    for (index, name) in names {
        // Below /sys may be the interfaces of another namespace, some with the same names.
        let is_here = read(&name, "ifindex") == Some(index.to_string());
        let state = read(&name, "operstate").filter(|_| is_here && is_own_sys());
        let loopback = name == "lo" || read(&name, "type").as_deref() == Some("772");
        let state = if loopback {
            "loopback".to_owned()
        } else {
            state.unwrap_or_else(|| "unknown".to_owned())
        };
        out.push_str(&format!("{index}.{} [{state}]\n", Name::from(name)));
    }
    // Number 0 is the one to which a packet socket of all interfaces is bound.
    out.push_str(&format!("0.{} [all interfaces]\n", packet_socket::ANY));
    Ok(out)
}

/// Whether /sys has the interfaces of this namespace, and no others.
fn is_own_sys() -> bool {
    let Ok(entries) = fs::read_dir("/sys/class/net") else {
        return false;
    };
    let mut there: Vec<String> = entries
        .filter_map(|entry| {
            entry
                .ok()
                .filter(|entry| entry.path().join("ifindex").exists())
        })
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    let mut own = interface_names();
    there.sort();
    own.sort();
    there == own
}

fn read(interface: &str, field: &str) -> Option<String> {
    let text = fs::read_to_string(Path::new("/sys/class/net").join(interface).join(field)).ok()?;
    Some(text.trim().to_owned())
}
