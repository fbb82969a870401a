//! Requests to sockets and interfaces: options, addresses, flags.

use super::{Error, Insn};
use crate::sys::option::{get_option, set_option, zeroed};
use std::ffi::{CStr, CString, c_int};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

// Of linux/if_packet.h; the libc crate does not name these constants.
pub(super) const PACKET_QDISC_BYPASS: c_int = 20;
pub(super) const PACKET_IGNORE_OUTGOING: c_int = 23;

/// `SIOCGIFMTU` of linux/sockios.h.
const SIOCGIFMTU: libc::Ioctl = 0x8921;

/// Returns the number of the interface of this name, in the network namespace of the caller.
pub fn index_of(name: &str) -> Option<u32> {
    // For a name with a colon, which is the label of an address, the kernel would look up the part before the colon.
    let name = CString::new(name).ok().filter(|_| !name.contains(':'))?;
    // SAFETY: the name ends with NUL and outlives the call.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

/// Returns the name of the interface of this number, in the network namespace of the caller.
pub fn name_of(index: u32) -> Option<String> {
    let mut name = [0 as libc::c_char; libc::IFNAMSIZ];
    // SAFETY: the buffer has the IFNAMSIZ bytes that the call may write, a NUL among them.
    let found = unsafe { libc::if_indextoname(index, name.as_mut_ptr()) };
    if found.is_null() {
        return None;
    }
    // SAFETY: the call succeeded, so the buffer holds a string that ends with NUL.
    Some(
        unsafe { CStr::from_ptr(name.as_ptr()) }
            .to_string_lossy()
            .into_owned(),
    )
}

/// Returns the name of the interface of this number, in the network namespace of a socket.
pub(super) fn name_on(index: u32, socket: &OwnedFd) -> Option<String> {
    let mut request = zeroed::<libc::ifreq>();
    request.ifr_ifru.ifru_ifindex = c_int::try_from(index).ok()?;
    // SAFETY: the request is a live local, into which the command writes the name.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCGIFNAME, &raw mut request) };
    let name = request.ifr_name.iter().map(|byte| *byte as u8);
    let name: Vec<u8> = name.take_while(|byte| *byte != 0).collect();
    (done == 0).then(|| String::from_utf8_lossy(&name).into_owned())
}

/// Returns the flags (IFF_) of an interface; `None` if there is no such interface.
pub(super) fn flags_of(name: &str, socket: &OwnedFd) -> Option<c_int> {
    let request = about(name, socket, libc::SIOCGIFFLAGS)?;
    // SAFETY: the command wrote the flags.
    Some(c_int::from(unsafe { request.ifr_ifru.ifru_flags }))
}

/// Returns the hardware type of an interface, an ARPHRD_ value of linux/if_arp.h; `None` if there is no such interface.
pub fn hardware_of(name: &str) -> Option<u16> {
    // Any socket serves for the request, and this kind needs no privilege.
    let socket = super::super::device::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).ok()?;
    let request = about(name, &socket, libc::SIOCGIFHWADDR)?;
    // SAFETY: the command wrote the address, whose family is the hardware type.
    Some(unsafe { request.ifr_ifru.ifru_hwaddr.sa_family })
}

/// Returns whether an interface exists and is up.
pub fn is_up(name: &str) -> bool {
    let socket = super::super::device::socket(libc::AF_INET, libc::SOCK_DGRAM, 0);
    socket
        .ok()
        .and_then(|socket| flags_of(name, &socket))
        .is_some_and(|flags| flags & libc::IFF_UP != 0)
}

/// State of the links of an interface, in the network namespace in which it was opened.
#[derive(Debug)]
pub struct Carrier {
    name: String,
    socket: OwnedFd,
}

impl Carrier {
    /// Opens the state of an interface. **Errors**: no socket can be opened.
    pub fn open(name: &str) -> io::Result<Self> {
        Ok(Self {
            name: name.to_owned(),
            socket: super::super::device::socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?,
        })
    }

    /// Returns whether the interface is up and its link works; `None` if there is no such interface. **Cost**: two system calls.
    pub fn is_up(&self) -> Option<bool> {
        self.state().map(|(is_up, has_link)| is_up && has_link)
    }

    /// Returns whether the interface is up without a link; `None` if there is no such interface. **Cost**: two system calls.
    pub fn lacks_link(&self) -> Option<bool> {
        self.state().map(|(is_up, has_link)| is_up && !has_link)
    }

    /// Whether the interface is up, and whether its link works.
    fn state(&self) -> Option<(bool, bool)> {
        let flags = flags_of(&self.name, &self.socket)?;
        // The flags follow the link by up to a second (net/core/link_watch.c); the driver knows it at once.
        let has_link = super::super::device::has_link(&self.name, &self.socket);
        let has_link = has_link.unwrap_or(flags & libc::IFF_RUNNING != 0);
        Some((flags & libc::IFF_UP != 0, has_link))
    }
}

/// Returns the MTU of an interface, in the network namespace of the caller: bytes of its largest packet, without the link header.
///
/// sysfs may show the interfaces of another namespace.
pub fn mtu(name: &str) -> Option<u32> {
    let socket = super::super::device::socket(libc::AF_INET, libc::SOCK_DGRAM, 0).ok()?;
    mtu_of(name, &socket)
}

/// Returns the MTU of an interface: bytes of its largest packet, without the link header.
pub(super) fn mtu_of(name: &str, socket: &OwnedFd) -> Option<u32> {
    let request = about(name, socket, SIOCGIFMTU)?;
    // SAFETY: the command wrote the MTU.
    u32::try_from(unsafe { request.ifr_ifru.ifru_mtu }).ok()
}

/// Returns the length in bytes of the longest frame that interface `name` may show, with link header and VLAN tags. The length
/// follows from the MTU, or from packets that are merged or not segmented yet. For all interfaces ([`ANY`](super::ANY)), only
/// the latter counts.
pub fn largest_frame(name: &str) -> u32 {
    /// Largest packet that the kernel merges, unless an interface is configured to merge more.
    const MERGED: u32 = 64 << 10;
    let mtu = mtu(name).unwrap_or(0);
    let merged = index_of(name)
        .and_then(|index| super::super::device::largest_merged(index).ok())
        .unwrap_or(MERGED);
    mtu.max(merged)
        .saturating_add(super::ETHERNET + super::TAGS)
}

/// Returns a request that names an interface.
pub(super) fn request_for(name: &str) -> libc::ifreq {
    let mut request = zeroed::<libc::ifreq>();
    for (to, byte) in request
        .ifr_name
        .iter_mut()
        .take(libc::IFNAMSIZ - 1)
        .zip(name.bytes())
    {
        *to = byte as libc::c_char;
    }
    request
}

fn about(name: &str, socket: &OwnedFd, command: libc::Ioctl) -> Option<libc::ifreq> {
    let mut request = request_for(name);
    // SAFETY: the request is a live local; the commands used here write numbers in it.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), command, &raw mut request) };
    (done == 0).then_some(request)
}

/// Opens a packet socket that receives nothing before it is bound.
pub(super) fn open() -> Result<OwnedFd, Error> {
    super::super::device::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map_err(|error| {
        match error.kind() {
            io::ErrorKind::PermissionDenied => Error::NotPermitted,
            _ => Error::System {
                what: "a packet socket",
                error,
            },
        }
    })
}

/// Binds to interface `index`, or to all interfaces for 0; with `protocol` ETH_P_ALL, packets arrive from here on. Returns the
/// ARPHRD_ type of the interface.
pub(super) fn bind(socket: &OwnedFd, index: u32, protocol: c_int) -> Result<u16, Error> {
    let system = |error| Error::System {
        what: "binding to the interface",
        error,
    };
    let mut address = zeroed::<libc::sockaddr_ll>();
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (protocol as u16).to_be();
    address.sll_ifindex = index as c_int;
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let fd = socket.as_raw_fd();
    // SAFETY: the address and its length are live locals that fit each other.
    let bound = unsafe { libc::bind(fd, (&raw const address).cast(), len) };
    if bound < 0 {
        return Err(match io::Error::last_os_error() {
            error if error.raw_os_error() == Some(libc::ENODEV) => Error::NoInterface,
            error => system(error),
        });
    }
    match get_option::<c_int>(socket, libc::SOL_SOCKET, libc::SO_ERROR).map_err(system)? {
        0 => {}
        libc::ENETDOWN => return Err(Error::Down),
        error => return Err(system(io::Error::from_raw_os_error(error))),
    }
    // SAFETY: as above; the kernel writes at most `len` bytes.
    let named = unsafe { libc::getsockname(fd, (&raw mut address).cast(), &raw mut len) };
    if named < 0 {
        Err(system(io::Error::last_os_error()))
    } else {
        Ok(address.sll_hatype)
    }
}

/// Makes `program` the socket's filter. **Errors**: `EINVAL` for a program that the kernel refuses.
pub(super) fn attach(socket: &OwnedFd, program: &[Insn]) -> io::Result<()> {
    let len =
        u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
    // The kernel copies the instructions and does not write to them; `Insn` has the kernel's layout.
    let program = libc::sock_fprog {
        len,
        filter: program.as_ptr().cast_mut().cast(),
    };
    set_option(socket, libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, &program)
}
