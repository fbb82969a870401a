//! Locks of interfaces between which packets are forwarded: two firewalls on one interface would
//! both forward, and the more permissive firewall would win.
//!
//! A lock is a Unix socket with an abstract name that has the number of the interface. The kernel
//! keeps such names for each network namespace, as it does the numbers, whatever files a process
//! sees; it gives a name to one socket, and takes it back when the process ends, also by a kill.
//! **Limits**: any process may take a name; then the lock is refused, and its holder is named.
//!
//! **Source**: unix(7).

use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use weir_io::sys::local::{Holder, holder};
use weir_io::sys::packet_socket;

/// Reason for which an interface is not locked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// Another process has the lock.
    #[error("{interface} belongs to another firewall{}", .holder.map_or_else(String::new, |holder| format!(", process {}", holder.process)))]
    Held {
        /// Name of the interface.
        interface: String,
        /// The process, if the kernel tells.
        holder: Option<Holder>,
    },
    /// The system reported an error.
    #[error("the lock of {interface}: {error}")]
    System {
        /// Name of the interface.
        interface: String,
        /// The error.
        error: io::Error,
    },
}

/// Locks of a firewall, until they are dropped.
#[derive(Debug, Default)]
pub struct InterfaceLocks {
    held: Vec<(u32, UnixListener)>,
}

impl InterfaceLocks {
    /// Locks an interface of the network namespace of this thread. An interface that does not exist
    /// yet is left out, and an interface that is locked already stays so.
    pub fn add(&mut self, interface: &str) -> Result<(), LockError> {
        let Some(index) = packet_socket::index_of(interface) else {
            return Ok(());
        };
        if self.held.iter().any(|(held, _)| *held == index) {
            return Ok(());
        }
        let name = format!("weir firewall of interface {index}");
        let system = |error| LockError::System {
            interface: interface.to_owned(),
            error,
        };
        let address = SocketAddr::from_abstract_name(&name).map_err(system)?;
        match UnixListener::bind_addr(&address) {
            Ok(listener) => {
                self.held.push((index, listener));
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => Err(LockError::Held {
                interface: interface.to_owned(),
                holder: holder(name.as_bytes()),
            }),
            Err(error) => Err(system(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::channel;
    use weir_testkit::net::{alone, cable};

    #[test]
    fn an_interface_has_one_lock_in_each_namespace() {
        if !cable("an_interface_has_one_lock_in_each_namespace", "") {
            return;
        }
        let mut mine = InterfaceLocks::default();
        mine.add("near").unwrap();
        mine.add("near").unwrap();
        mine.add("nix").unwrap();
        let mut other = InterfaceLocks::default();
        match other.add("near") {
            Err(LockError::Held {
                holder: Some(holder),
                ..
            }) => assert_eq!(holder.process, std::process::id()),
            other => panic!("{other:?}"),
        }
        // However many ask, none waits.
        for _ in 0..300 {
            other.add("near").unwrap_err();
        }
        other.add("far").unwrap();
        mine.add("far").unwrap_err();
        drop(mine);
        other.add("near").unwrap();
        // The loopback has the same number everywhere.
        other.add("lo").unwrap();
        let (sends, got) = channel();
        std::thread::spawn(move || {
            let is_alone = alone("an_interface_has_one_lock_in_each_namespace");
            sends
                .send(is_alone.then(|| InterfaceLocks::default().add("lo").is_ok()))
                .unwrap();
        });
        assert_ne!(got.recv().unwrap(), Some(false));
    }
}
