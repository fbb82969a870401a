//! Queries about network interfaces and about kinds of socket; the module changes no setting.

use crate::netlink::{self, attribute, malformed};
use crate::sys::option::zeroed;
use std::ffi::c_int;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// `SIOCETHTOOL` of linux/sockios.h.
const SIOCETHTOOL: libc::Ioctl = 0x8946;

/// `AF_XDP` of linux/socket.h.
const AF_XDP: c_int = 44;

// Commands of linux/ethtool.h; most answer with one number after the command.
const ETHTOOL_GDRVINFO: u32 = 0x03;
const ETHTOOL_GLINK: u32 = 0x0a;
const ETHTOOL_GTSO: u32 = 0x1e;
const ETHTOOL_GGSO: u32 = 0x23;
const ETHTOOL_GFLAGS: u32 = 0x25;
const ETHTOOL_GGRO: u32 = 0x2b;
const ETHTOOL_GCHANNELS: u32 = 0x3c;

/// `ETH_FLAG_LRO` and `ETH_FLAG_RXVLAN` of linux/ethtool.h.
const FLAG_LRO: u32 = 1 << 15;
const FLAG_RXVLAN: u32 = 1 << 8;

/// Offloads of an interface that make captured packets differ from the packets on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offloads {
    /// Whether the kernel merges received packets of a flow.
    pub gro: bool,
    /// Whether the card merges received packets of a flow.
    pub lro: bool,
    /// Whether the card cuts large TCP segments, after the capture.
    pub tso: bool,
    /// Whether the kernel cuts large packets late, after the capture.
    pub gso: bool,
    /// Whether the card removes the VLAN tag from received packets.
    pub rxvlan: bool,
}

/// Returns the offloads of an interface. **Errors**: errors of the ioctl; `ENODEV` for no such interface.
pub fn offloads(interface: &str) -> io::Result<Offloads> {
    let value = |command| ethtool::<1>(interface, command).map(|[value]| value);
    let flags = value(ETHTOOL_GFLAGS)?;
    Ok(Offloads {
        gro: value(ETHTOOL_GGRO)? != 0,
        lro: flags & FLAG_LRO != 0,
        tso: value(ETHTOOL_GTSO)? != 0,
        gso: value(ETHTOOL_GGSO)? != 0,
        rxvlan: flags & FLAG_RXVLAN != 0,
    })
}

/// Returns the name of an interface's driver. **Errors**: `EOPNOTSUPP` if there is none, as for `lo`.
pub fn driver(interface: &str) -> io::Result<String> {
    // struct ethtool_drvinfo: the command, then the name in 32 bytes; 196 bytes in all.
    let words: [u32; 48] = ethtool(interface, ETHTOOL_GDRVINFO)?;
    let bytes = words[..8].iter().flat_map(|word| word.to_ne_bytes());
    let name: Vec<u8> = bytes.take_while(|&byte| byte != 0).collect();
    Ok(weir_packet::text::from_bytes(&name))
}

/// Returns the largest number of receive queues that the driver supports. **Errors**: `EOPNOTSUPP` if the number cannot be
/// changed.
pub fn max_rx_queues(interface: &str) -> io::Result<u32> {
    // struct ethtool_channels: max_rx, max_tx, max_other, max_combined, then the four present numbers.
    let [rx, _, _, combined, ..]: [u32; 8] = ethtool(interface, ETHTOOL_GCHANNELS)?;
    Ok(rx + combined)
}

/// Returns the number of receive queues in use. **Errors**: `EOPNOTSUPP` if the driver does not report it.
pub fn rx_queues(interface: &str) -> io::Result<u32> {
    let [_, _, _, _, rx, _, _, combined]: [u32; 8] = ethtool(interface, ETHTOOL_GCHANNELS)?;
    Ok(rx + combined)
}

/// Returns whether an interface in the network namespace of a socket is up and has a link. **Errors**: `EOPNOTSUPP` if the driver does not say it.
pub(super) fn has_link(interface: &str, socket: &OwnedFd) -> io::Result<bool> {
    ethtool_at(interface, ETHTOOL_GLINK, socket).map(|[link]| link != 0)
}

fn ethtool<const N: usize>(interface: &str, command: u32) -> io::Result<[u32; N]> {
    ethtool_at(
        interface,
        command,
        &socket(libc::AF_INET, libc::SOCK_DGRAM, 0)?,
    )
}

/// Sends one query to a driver: the command, followed by room for an answer of `N` words.
fn ethtool_at<const N: usize>(
    interface: &str,
    command: u32,
    socket: &OwnedFd,
) -> io::Result<[u32; N]> {
    #[repr(C)]
    struct Question<const N: usize> {
        command: u32,
        answer: [u32; N],
    }
    let mut question = Question {
        command,
        answer: [0; N],
    };
    let mut name = [0; libc::IFNAMSIZ];
    if interface.len() >= name.len() {
        return Err(io::Error::from_raw_os_error(libc::ENODEV));
    }
    for (to, byte) in name.iter_mut().zip(interface.bytes()) {
        *to = byte as libc::c_char;
    }
    // All of it, because the kernel copies all of it.
    let mut request = zeroed::<libc::ifreq>();
    request.ifr_name = name;
    request.ifr_ifru.ifru_data = (&raw mut question).cast();
    // SAFETY: the request and the question that it points to are live locals. Each command used here writes at most the `N`
    // words after the command (see the structures named at the callers).
    let result = unsafe { libc::ioctl(socket.as_raw_fd(), SIOCETHTOOL, &raw mut request) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(question.answer)
    }
}

/// Checks that a packet socket can be opened, by opening a socket that receives nothing. **Errors**: `EPERM` without
/// CAP_NET_RAW.
pub fn try_af_packet() -> io::Result<()> {
    socket(libc::AF_PACKET, libc::SOCK_RAW, 0).map(drop)
}

/// Checks that an AF_XDP socket can be opened. **Errors**: `EPERM` without CAP_NET_RAW; `EAFNOSUPPORT` on a kernel without
/// AF_XDP.
pub fn try_af_xdp() -> io::Result<()> {
    socket(AF_XDP, libc::SOCK_RAW, 0).map(drop)
}

/// Features of XDP that a driver supports: `NETDEV_XDP_ACT_*` of linux/netdev.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures(pub u64);

impl XdpFeatures {
    /// Returns whether programs run in the driver.
    pub fn native(self) -> bool {
        self.0 & 1 != 0
    }

    /// Returns whether programs may redirect packets, as to an AF_XDP socket.
    pub fn redirect(self) -> bool {
        self.0 & 2 != 0
    }

    /// Returns whether AF_XDP sockets receive packets without a copy.
    pub fn zero_copy(self) -> bool {
        self.0 & 8 != 0
    }
}

/// Returns the XDP features of the driver of interface number `index`.
///
/// **Errors**: `ENOENT` on a kernel before 6.3, which does not report them. **Platform**: generic netlink, linux/netdev.h.
pub fn xdp_features(index: u32) -> io::Result<XdpFeatures> {
    const CTRL_VERSION: u8 = 2;
    const NETDEV_VERSION: u8 = 1;
    const NETDEV_CMD_DEV_GET: u8 = 1;
    const NETDEV_A_DEV_IFINDEX: u16 = 1;
    const NETDEV_A_DEV_XDP_FEATURES: u16 = 3;
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC)?;
    let family = netlink::generic(
        libc::GENL_ID_CTRL as u16,
        libc::CTRL_CMD_GETFAMILY as u8,
        CTRL_VERSION,
        libc::CTRL_ATTR_FAMILY_NAME as u16,
        b"netdev\0",
    );
    let answer = exchange(&socket, &family, netlink::GENERIC)?;
    let family = attribute(&answer, libc::CTRL_ATTR_FAMILY_ID as u16)?;
    let family = u16::from_ne_bytes(family.try_into().map_err(|_| malformed())?);
    let device = netlink::generic(
        family,
        NETDEV_CMD_DEV_GET,
        NETDEV_VERSION,
        NETDEV_A_DEV_IFINDEX,
        &index.to_ne_bytes(),
    );
    let answer = exchange(&socket, &device, netlink::GENERIC)?;
    let features = attribute(&answer, NETDEV_A_DEV_XDP_FEATURES)?;
    Ok(XdpFeatures(u64::from_ne_bytes(
        features.try_into().map_err(|_| malformed())?,
    )))
}

/// Returns the size in bytes of the largest packet that the kernel merges, or cuts late, at interface number `index`; at least
/// 64 KiB.
///
/// The interface's own offloads do not matter, because large segments of its peer also arrive
/// whole. **Platform**: the kernel reports the numbers since Linux 4.16, 5.19 and 6.3; a missing
/// number counts as 64 KiB.
pub fn largest_merged(index: u32) -> io::Result<u32> {
    const LEAST: u32 = 64 << 10;
    // IFLA_GSO_MAX_SIZE, IFLA_GRO_MAX_SIZE, IFLA_GSO_IPV4_MAX_SIZE and IFLA_GRO_IPV4_MAX_SIZE of linux/if_link.h.
    const SIZES: [u16; 4] = [41, 58, 63, 64];
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    let answer = exchange(&socket, &netlink::link(index), netlink::LINK)?;
    let size = |kind| {
        Some(u32::from_ne_bytes(
            attribute(&answer, kind).ok()?.try_into().ok()?,
        ))
    };
    Ok(SIZES.into_iter().filter_map(size).fold(LEAST, u32::max))
}

/// Returns the speed of an interface's link, Mbit/s; `None` if the driver does not tell one. **Source**: `struct ethtool_cmd` of
/// linux/ethtool.h.
pub fn speed_mbit(interface: &str) -> Option<u32> {
    const ETHTOOL_GSET: u32 = 0x01;
    // After the command: features (4 bytes), advertised ones, the lower half of the speed in the
    // third word, its upper half in the seventh.
    let words: [u32; 10] = ethtool(interface, ETHTOOL_GSET).ok()?;
    let [_, _, low, _, _, _, high, ..] = words.map(u32::to_ne_bytes);
    let [low, high] = [[low[0], low[1]], [high[0], high[1]]].map(u16::from_ne_bytes);
    let speed = u32::from(high) << 16 | u32::from(low);
    // `SPEED_UNKNOWN` is -1, and older drivers have its lower half alone.
    (!matches!(speed, 0 | 0xffff | u32::MAX)).then_some(speed)
}

/// Asks the kernel's routing family for all objects that `request` is about, and returns the
/// messages of the answer back to back, including the message that ends it.
pub fn dump(request: &[u8]) -> io::Result<Vec<u8>> {
    /// `NLMSG_ERROR` and `NLMSG_DONE` of linux/netlink.h.
    const ERROR: u16 = 2;
    const DONE: u16 = 3;
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    send(&socket, request)?;
    let mut all = Vec::new();
    loop {
        // The kernel fills at most 32 KiB at a time, for whoever has room for as much.
        let piece = receive(&socket, 64 << 10)?;
        all.extend_from_slice(&piece);
        for message in netlink::messages(&piece) {
            let message = message?;
            match message.kind {
                DONE => return Ok(all),
                ERROR => {
                    let error = netlink::number(message.body, 0).ok_or_else(malformed)? as i32;
                    return Err(io::Error::from_raw_os_error(error.wrapping_neg()));
                }
                _ => {}
            }
        }
    }
}

/// Returns the interface by which a packet to `destination` leaves. **Errors**: errors of the
/// kernel, such as no route.
pub fn interface_to(destination: IpAddr) -> io::Result<u32> {
    /// `RTA_OIF` of linux/rtnetlink.h.
    const RTA_OIF: u16 = 4;
    let socket = socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_ROUTE)?;
    let answer = exchange(&socket, &netlink::route_to(destination), netlink::ROUTE)?;
    netlink::number(attribute(&answer, RTA_OIF)?, 0).ok_or_else(malformed)
}

/// Sends a request and returns the attributes of the answer, which follow `headers` bytes.
fn exchange(socket: &OwnedFd, request: &[u8], headers: usize) -> io::Result<Vec<u8>> {
    send(socket, request)?;
    netlink::attributes(&receive(socket, 8192)?, headers).map(<[u8]>::to_vec)
}

/// Sends a request. An unconnected netlink socket sends to the kernel.
fn send(socket: &OwnedFd, request: &[u8]) -> io::Result<()> {
    // SAFETY: the buffer is live and has the length given.
    let sent = unsafe {
        libc::send(
            socket.as_raw_fd(),
            request.as_ptr().cast(),
            request.len(),
            0,
        )
    };
    if sent < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Receives a piece of an answer, of `room` bytes at most. The kernel has answered before `send` returned, so that a read that
/// would wait (MSG_DONTWAIT) is an error.
fn receive(socket: &OwnedFd, room: usize) -> io::Result<Vec<u8>> {
    let mut answer = vec![0u8; room];
    // SAFETY: the buffer is live and has the length given.
    let got = unsafe {
        libc::recv(
            socket.as_raw_fd(),
            answer.as_mut_ptr().cast(),
            answer.len(),
            libc::MSG_DONTWAIT,
        )
    };
    answer.truncate(usize::try_from(got).map_err(|_| io::Error::last_os_error())?);
    Ok(answer)
}

pub(super) fn socket(family: c_int, kind: c_int, protocol: c_int) -> io::Result<OwnedFd> {
    // SAFETY: socket has no preconditions.
    let fd = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has just made the descriptor, and no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loopback_answers_and_nobody_else() {
        let loopback = offloads("lo").unwrap();
        // The kernel's loopback driver starts with these settings, and they are seldom changed.
        assert!(loopback.gso && !loopback.lro, "{loopback:?}");
        assert_eq!(
            offloads("no-such-if").unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
        assert_eq!(
            offloads("a-name-that-is-too-long")
                .unwrap_err()
                .raw_os_error(),
            Some(libc::ENODEV)
        );
        assert_eq!(
            driver("no-such-if").unwrap_err().raw_os_error(),
            Some(libc::ENODEV)
        );
    }
}
