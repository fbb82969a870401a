//! Interface of an AF_XDP socket: queries and settings, by a packet socket that receives nothing.

use super::super::device;
use super::super::packet_socket::index_of;
use super::Error;
use crate::sys::option::set_option;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

/// Interface, with a socket in its network namespace.
#[derive(Debug)]
pub(super) struct Interface {
    socket: OwnedFd,
    pub(super) name: String,
    pub(super) index: u32,
}

/// State of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Up,
    Down,
    Gone,
}

impl Interface {
    /// Opens an Ethernet interface that is up.
    pub(super) fn open(name: &str) -> Result<Self, Error> {
        let index = index_of(name).ok_or(Error::NoInterface)?;
        let socket =
            device::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(|error| {
                match error.kind() {
                    io::ErrorKind::PermissionDenied => Error::NotPermitted("CAP_NET_RAW"),
                    _ => Error::System {
                        what: "a packet socket",
                        error,
                    },
                }
            })?;
        let interface = Self {
            socket,
            name: name.to_owned(),
            index,
        };
        match interface.hardware().map_err(|error| Error::System {
            what: "the kind of the interface",
            error,
        })? {
            libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK => {}
            other => return Err(Error::Hardware(other)),
        }
        match interface.state() {
            State::Up => Ok(interface),
            State::Down => Err(Error::Down),
            State::Gone => Err(Error::NoInterface),
        }
    }

    /// Runs a query on the interface by its present name. **Errors**: the interface is gone, or the query fails.
    fn ask(&self, command: libc::Ioctl) -> io::Result<libc::ifreq> {
        // SAFETY: integers, and a union of integers and addresses, for which zero is valid.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        request.ifr_ifru.ifru_ifindex = self.index as c_int;
        // SAFETY: the request is a live local; the first command writes the name into it, the second the answer, and neither
        // writes outside it.
        let done = unsafe {
            let fd = self.socket.as_raw_fd();
            libc::ioctl(fd, libc::SIOCGIFNAME, &raw mut request) == 0
                && libc::ioctl(fd, command, &raw mut request) == 0
        };
        if done {
            Ok(request)
        } else {
            Err(io::Error::last_os_error())
        }
    }

    pub(super) fn state(&self) -> State {
        // SAFETY: the command wrote the flags.
        let flags = |request: libc::ifreq| c_int::from(unsafe { request.ifr_ifru.ifru_flags });
        match self.ask(libc::SIOCGIFFLAGS) {
            Ok(request) if flags(request) & libc::IFF_UP != 0 => State::Up,
            Ok(_) => State::Down,
            Err(_) => State::Gone,
        }
    }

    /// Returns the hardware type, an ARPHRD_ value.
    fn hardware(&self) -> io::Result<u16> {
        let request = self.ask(libc::SIOCGIFHWADDR)?;
        // SAFETY: the command wrote the address, whose family is the hardware type.
        Ok(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
    }

    /// Returns the largest payload of a frame, in bytes.
    pub(super) fn mtu(&self) -> Result<usize, Error> {
        let request = self.ask(libc::SIOCGIFMTU).map_err(|error| Error::System {
            what: "the MTU",
            error,
        })?;
        // SAFETY: the command wrote the number.
        Ok(unsafe { request.ifr_ifru.ifru_mtu } as usize)
    }

    /// Makes the interface receive packets for other hosts too, as long as this value lives.
    pub(super) fn promiscuous(&self) -> Result<(), Error> {
        let wanted = libc::packet_mreq {
            mr_ifindex: self.index as c_int,
            mr_type: libc::PACKET_MR_PROMISC as u16,
            mr_alen: 0,
            mr_address: [0; 8],
        };
        set_option(
            &self.socket,
            libc::SOL_PACKET,
            libc::PACKET_ADD_MEMBERSHIP,
            &wanted,
        )
        .map_err(|error| Error::System {
            what: "promiscuous mode",
            error,
        })
    }

    /// Returns the number of receive queues.
    pub(super) fn queues(&self) -> u32 {
        queues_of(&self.name)
    }
}

/// Returns the number of receive queues of an interface; 1 if the number is unknown, or if there is no such interface.
pub fn queues_of(name: &str) -> u32 {
    // sysfs may show the interfaces of another namespace.
    let is_shown = || {
        let index = std::fs::read_to_string(format!("/sys/class/net/{name}/ifindex")).ok()?;
        (index.trim().parse().ok() == index_of(name)).then_some(())
    };
    let listed = || {
        is_shown()?;
        let queues = std::fs::read_dir(format!("/sys/class/net/{name}/queues")).ok()?;
        let names = queues.filter_map(|queue| queue.ok()?.file_name().into_string().ok());
        Some(names.filter(|name| name.starts_with("rx-")).count() as u32)
    };
    device::rx_queues(name)
        .ok()
        .or_else(listed)
        .unwrap_or(1)
        .max(1)
}
