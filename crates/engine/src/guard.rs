//! The guard of this host: on which interfaces sending, or taking packets away, may cut it off or flood its network.
//!
//! An interface is guarded if it carries the default route or the login in which this process was
//! started, or is a port of a bridge. Interfaces that it carries also count: packets taken from
//! `eth0` are missing on `eth0.5` and on a bond of it, and packets sent by `eth0.5` fill the cable
//! of `eth0`. Every way to send or to take goes through [`check`], in each front end; a guarded
//! interface must be named by the caller.
//!
//! **Absent**: a route or an address that appears later; a tunnel that does not name any interface
//! below it.

use crate::capture::Live;
use crate::name::Name;
use std::collections::BTreeSet;
use std::io;
use std::net::IpAddr;
use std::path::Path;
use weir_io::login::{Login, logins};
use weir_io::network::{Interface, Network};
use weir_io::sys::device;

/// An act that is guarded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    /// Sending packets by an interface, or as if they arrived there.
    Send,
    /// Taking the packets that arrive at an interface away from this host.
    Take,
}

/// Reason for which an interface is guarded.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Why {
    /// Login in which this process was started, with its address at this host, or else the address
    /// of the other end.
    Login(IpAddr),
    /// A default route leads to it.
    DefaultRoute,
    /// Membership in this bridge, as a port.
    BridgePort(String),
}

/// Refusal of an act on an interface that the caller did not name.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Guarded {
    /// The interface is guarded.
    #[error("{carrier} is guarded: {why:?}")]
    Danger {
        /// The act.
        act: Act,
        /// Interface of the act.
        interface: String,
        /// Interface that the reason is about: the same, or one above or below.
        carrier: String,
        /// The reason.
        why: Why,
    },
    /// The kernel does not say what the interface carries.
    #[error("what {interface} carries cannot be found out: {error}")]
    Unknown {
        /// The act.
        act: Act,
        /// Interface of the act.
        interface: String,
        /// Error of the kernel.
        error: io::Error,
    },
}

/// Refuses an act on a guarded interface that is not among `named`. An interface that does not exist is none of the guard's.
///
/// **Cost**: some hundred system calls, to be made before an interface is opened. **Threads**: the answer is about the network
/// namespace of the calling thread.
pub fn check(act: Act, interface: &str, named: &[String]) -> Result<(), Guarded> {
    if named.iter().any(|name| name == interface) {
        return Ok(());
    }
    let network = Network::read().map_err(|error| Guarded::Unknown {
        act,
        interface: interface.to_owned(),
        error,
    })?;
    let Some(found) = network.named(interface) else {
        return Ok(());
    };
    if named.iter().any(|name| {
        network
            .named(name)
            .is_some_and(|named| named.index == found.index)
    }) {
        return Ok(());
    }
    let logins = interfaces_of(&logins(), &network);
    match danger(act, found, &network, &logins) {
        Some((carrier, why)) => Err(Guarded::Danger {
            act,
            interface: interface.to_owned(),
            carrier,
            why,
        }),
        None => Ok(()),
    }
}

/// Refuses an act on a guarded interface of a device of DPDK: a driver of DPDK uses the interface,
/// or the device keeps its driver in the kernel.
pub fn check_device(act: Act, device: &str, named: &[String]) -> Result<(), Guarded> {
    interfaces_of_device(device)
        .iter()
        .try_for_each(|interface| check(act, interface, named))
}

/// Refuses a source on a guarded interface that is not among `named`, and whose packets would be taken away from this host.
pub fn check_taking(source: &Name, named: &[String]) -> Result<(), Guarded> {
    match Live::of(source) {
        Some(Live::Dpdk(device)) => check_device(Act::Take, device, named),
        Some(live) => check(Act::Take, live.interface(), named),
        None => Ok(()),
    }
}

/// Interfaces of a device of DPDK, also of those within it: `net_af_packet0,iface=eth0`, `0000:03:00.0`,
/// `net_bonding0,mode=1,slave=0000:03:00.0`, `net_failsafe0,dev(net_tap0,remote=eth0)`.
pub fn interfaces_of_device(device: &str) -> Vec<String> {
    interfaces_in(device, Path::new("/sys/bus/pci/devices"))
}

/// Does so with the PCI devices of a directory.
///
/// The check does not know the arguments of drivers: a text that looks like an interface or a PCI
/// address counts in any place. **Source**: the guides of DPDK on its drivers af_packet, af_xdp,
/// bonding, failsafe, pcap, tap and vdev_netvsc.
fn interfaces_in(device: &str, pci: &Path) -> Vec<String> {
    const ARGUMENTS: [&str; 5] = ["iface", "rx_iface", "tx_iface", "remote", "rx_iface_in"];
    let mut interfaces: Vec<String> = Vec::new();
    for word in device.split([',', '(', ')', '[', ']', '{', '}', ';', ' ']) {
        let (key, value) = word.split_once('=').unwrap_or(("", word));
        if ARGUMENTS.contains(&key) {
            interfaces.push(value.to_owned());
        }
        let address = value
            .rsplit_once("pci:")
            .map_or(value, |(_, address)| address);
        let is_place = |text: &str| text.contains(':') && !text.contains('/');
        for address in [address.to_owned(), format!("0000:{address}")]
            .iter()
            .filter(|address| is_place(address))
        {
            let entries = std::fs::read_dir(pci.join(address).join("net"))
                .into_iter()
                .flatten();
            interfaces
                .extend(entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()));
        }
    }
    interfaces.sort();
    interfaces.dedup();
    interfaces.retain(|interface| !interface.is_empty());
    interfaces
}

/// Interfaces that carry logins, with an address of each. A login whose address is none of this network comes another way.
fn interfaces_of(logins: &BTreeSet<Login>, network: &Network) -> Vec<(u32, IpAddr)> {
    let mut found = Vec::new();
    for Login { here, peer } in logins {
        let of = |wanted: IpAddr| {
            network
                .addresses
                .iter()
                .filter(move |(address, _)| *address == wanted)
        };
        let mine: Vec<u32> = here
            .iter()
            .flat_map(|here| of(*here))
            .map(|(_, index)| *index)
            .collect();
        if here.is_some() && mine.is_empty() {
            continue;
        }
        found.extend(mine.iter().map(|index| (*index, here.unwrap_or(*peer))));
        // Answers may leave by another interface.
        found.extend(
            device::interface_to(*peer)
                .ok()
                .map(|index| (index, here.unwrap_or(*peer))),
        );
    }
    found
}

/// Returns the interface that the reason is about, and the reason.
fn danger(
    act: Act,
    target: &Interface,
    network: &Network,
    logins: &[(u32, IpAddr)],
) -> Option<(String, Why)> {
    // What is sent to itself reaches nobody else.
    if act == Act::Send && target.is_loopback {
        return None;
    }
    let (touched, ports) = match act {
        Act::Send => (network.beside(target.index), network.below(target.index)),
        Act::Take => (network.above(target.index), network.above(target.index)),
    };
    // The interface itself first, since that is the simplest reason.
    let ordered = |set: BTreeSet<u32>| {
        let others = set.into_iter().filter(|index| *index != target.index);
        std::iter::once(target.index)
            .chain(others)
            .filter_map(|index| network.numbered(index))
            .collect::<Vec<_>>()
    };
    let (touched, ports) = (ordered(touched), ordered(ports));
    let login = touched.iter().find_map(|interface| {
        let (_, address) = logins.iter().find(|(index, _)| *index == interface.index)?;
        Some((interface.name.clone(), Why::Login(*address)))
    });
    let route = || {
        let leads = |interface: &&&Interface| {
            network
                .defaults
                .iter()
                .any(|route| route.interface == interface.index)
        };
        touched
            .iter()
            .find(leads)
            .map(|interface| (interface.name.clone(), Why::DefaultRoute))
    };
    let port = || {
        let port = ports.iter().find(|interface| interface.is_bridge_port)?;
        let bridge = port.master.and_then(|master| network.numbered(master));
        Some((
            port.name.clone(),
            Why::BridgePort(bridge.map_or_else(String::new, |bridge| bridge.name.clone())),
        ))
    };
    login.or_else(route).or_else(port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Scratch;

    /// The forms are from the guides of DPDK.
    #[test]
    fn interfaces_of_devices_of_dpdk_are_found_wherever_they_stand() {
        let scratch = Scratch::new();
        for (address, interface) in [
            ("0000:03:00.0", "eth3"),
            ("0000:03:00.1", "eth4"),
            ("0001:03:00.0", "eth9"),
        ] {
            std::fs::create_dir_all(scratch.at(&format!("{address}/net/{interface}"))).unwrap();
        }
        std::fs::create_dir_all(scratch.at("0000:05:00.0")).unwrap();
        for (device, expected) in [
            ("net_null0", &[][..]),
            ("net_ring0", &[]),
            ("0000:03:00.0", &["eth3"]),
            ("03:00.0", &["eth3"]),
            ("pci:0000:03:00.0,txq_inline=128", &["eth3"]),
            ("0001:03:00.0", &["eth9"]),
            ("0000:05:00.0", &[]),
            ("0000:07:00.0", &[]),
            ("net_af_packet0,iface=eth0", &["eth0"]),
            ("eth_af_packet0,qpairs=2,iface=eth0,framecnt=512", &["eth0"]),
            ("net_af_xdp0,start_queue=1,iface=eth0", &["eth0"]),
            ("net_pcap0,iface=eth0", &["eth0"]),
            ("net_pcap0,rx_iface=eth0,tx_iface=eth1", &["eth0", "eth1"]),
            ("net_pcap0,rx_iface_in=eth0,tx_pcap=a.pcap", &["eth0"]),
            ("net_pcap0,rx_pcap=a.pcap,tx_pcap=b.pcap", &[]),
            (
                "net_tap0,iface=tap5,remote=eth0,mac=fixed",
                &["eth0", "tap5"],
            ),
            ("net_vdev_netvsc0,iface=eth0,force=1", &["eth0"]),
            (
                "net_bonding0,mode=1,slave=0000:03:00.0,slave=0000:03:00.1,primary=0000:03:00.1",
                &["eth3", "eth4"],
            ),
            (
                "net_bonding0,mode=2,member=03:00.1,mac=00:1e:67:1d:fd:1d",
                &["eth4"],
            ),
            ("net_bonding0,slave=net_af_packet0,iface=eth0", &["eth0"]),
            (
                "net_failsafe0,mac=de:ad:be:ef:01:02,dev(0000:03:00.0),dev(net_tap0,remote=eth0)",
                &["eth0", "eth3"],
            ),
            (
                "net_failsafe0,dev(net_ring0,nodeaction=r1:0:CREATE),dev(net_af_packet1,iface=eth1)",
                &["eth1"],
            ),
            ("class=eth,bus=pci,addr=0000:03:00.0", &["eth3"]),
            ("0000:03:00.0,representor=[0-3]", &["eth3"]),
            ("net_af_packet0,iface=", &[]),
            ("0000:03:00.0/../..", &[]),
        ] {
            let found = interfaces_in(device, Path::new(&scratch.at(".")));
            assert_eq!(found, expected, "{device}");
        }
    }
}
