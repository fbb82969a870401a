//! AF_XDP: packets of a receive queue, taken before the kernel allocates packet buffers for them, and frames to send.
//!
//! A program on the interface redirects the packets of a queue to the queue's [`Socket`], which hands them over in bursts. The
//! packets lie in memory shared with the kernel, each in a slot of its own ([`weir_packet::savefile::slots`]). A burst gives
//! its slots back when it is dropped, by any thread and in any order. No other part of that memory is visible through a burst.
//!
//! - The capture sees only **received** packets, and takes them: the stack does not get them. Queues without a socket are not
//!   affected.
//! - **Timestamps**: AF_XDP has none. All packets of a burst have the time at which the burst was
//!   taken; times never decrease.
//! - **Counts**: the program counts `received`; the kernel and, for large packets, the socket count `dropped`. If the counts do
//!   not agree exactly at the end with the packets handed over, the end is an error.
//! - An interface that goes down ends the capture.
//!
//! **Platform**: Linux 5.9 (program attached by a link), 5.11 (busy polling), 6.6 (packets larger than a chunk); privilege:
//! CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, or CAP_SYS_ADMIN. **Source**: linux/if_xdp.h,
//! Documentation/networking/af_xdp.rst.

#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz_body;
mod interface;
mod receive;
mod redirect;
mod rings;
mod send;
mod socket;

pub use super::bpf::Mode;
pub use interface::queues_of;
pub use receive::Socket;
pub use send::{SendSettings, Sender, Sent};

use super::bpf;
use interface::Interface;
use redirect::Redirect;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_memory::Policy;

/// Settings of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Mode of the program; `None` is native if possible, else generic. If a driver does not record queues, such as veth, all
    /// its packets belong to queue 0 in generic mode.
    pub mode: Option<Mode>,
    /// Whether the device may write to the packet memory itself.
    pub zero_copy: ZeroCopy,
    /// Bytes of packet memory for each queue, below 4 GiB; up to half of it is for packets larger than a chunk.
    pub memory: usize,
    /// Bytes of a chunk, 2048 or 4096, of which 256 lie before the packet.
    pub chunk: usize,
    /// Kind of pages of the memory.
    pub pages: Policy,
    /// NUMA node of the memory.
    pub node: Option<u32>,
    /// Whether the kernel reports when it must be woken, instead of checking its rings all the time; has an effect with zero
    /// copy.
    pub need_wakeup: bool,
    /// Polling of the device on the reader's own processor; `None`: interrupts.
    pub busy_poll: Option<BusyPoll>,
    /// Whether the interface also receives packets for other hosts.
    pub promiscuous: bool,
    /// Whether a child process may go on with the capture: the packet memory is then shared with it.
    pub survives_fork: bool,
}

/// Use of zero copy, with which the device writes to the packet memory itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroCopy {
    /// Zero copy if device and driver support it, in native mode; the description of [`Socket`] names the result.
    Auto,
    /// No zero copy: the kernel copies the packets.
    Never,
    /// Zero copy is required: without it, the capture fails.
    Force,
}

/// Settings of busy polling; see `SO_PREFER_BUSY_POLL`. With busy polling, the reader never sleeps. It takes effect only if the
/// interface's `napi_defer_hard_irqs` and `gro_flush_timeout` are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// Duration of one poll.
    pub time: Duration,
    /// Largest number of packets of one poll.
    pub packets: u16,
}

impl Settings {
    /// Returns the default settings with `memory` bytes for each queue.
    pub fn of_size(memory: usize) -> Self {
        Self {
            mode: None,
            zero_copy: ZeroCopy::Auto,
            memory,
            chunk: 2048,
            pages: Policy::Auto,
            node: None,
            need_wakeup: true,
            busy_poll: None,
            promiscuous: true,
            survives_fork: false,
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::of_size(32 << 20)
    }
}

/// Reason why capturing from an interface, or sending to it, is not possible.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No interface has this name.
    #[error("no such network interface")]
    NoInterface,
    /// The interface has fewer queues.
    #[error("{interface} has {queues} receive queues, there is no queue {queue}")]
    NoQueue {
        /// Name of the interface.
        interface: String,
        /// Queue requested; queues are numbered from 0.
        queue: u32,
        /// Number of queues.
        queues: u32,
    },
    /// The process lacks privileges.
    #[error("AF_XDP needs {0}")]
    NotPermitted(&'static str),
    /// Another XDP program is attached to the interface.
    #[error(
        "an XDP program is already attached; `ip link set dev {0} xdp off` removes one that no process holds"
    )]
    Attached(String),
    /// Another socket has the queue.
    #[error("queue {queue} of {interface} is in use by another socket")]
    QueueInUse {
        /// Name of the interface.
        interface: String,
        /// Number of the queue.
        queue: u32,
    },
    /// The interface is down.
    #[error("the interface is down")]
    Down,
    /// Frames of a kind that weir does not read; the number is an ARPHRD_ value of linux/if_arp.h.
    #[error("frames of hardware type {0}, which AF_XDP does not capture: Ethernet is")]
    Hardware(u16),
    /// Packets do not fit into a chunk, and neither driver nor kernel can split them into pieces.
    #[error(
        "an MTU of {0} is too large here: chunks of 4096 bytes, generic mode or a smaller MTU may help"
    )]
    Mtu(usize),
    /// Native mode was requested, but the driver does not support it.
    #[error("the driver has no native XDP mode")]
    NotNative,
    /// Zero copy was requested, but driver or mode do not support it.
    #[error("neither driver nor mode have zero copy: {0}")]
    NoZeroCopy(io::Error),
    /// The memory exceeds the limit of locked memory.
    #[error(
        "{0} bytes of packet memory are more than may be locked: raise RLIMIT_MEMLOCK (`ulimit -l`)"
    )]
    Locked(usize),
    /// The kernel has no AF_XDP.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS)")]
    NoAfXdp,
    /// The stop flag was set during the start.
    #[error("told to end before it began")]
    Stopped,
    /// Invalid settings.
    #[error("{0}")]
    Settings(&'static str),
    /// The packet memory cannot be allocated.
    #[error("packet memory: {0}")]
    Memory(#[from] weir_memory::Error),
    /// The program or its maps cannot be created.
    #[error(transparent)]
    Bpf(#[from] bpf::Error),
    /// Error of the system.
    #[error("{what}: {error}")]
    System {
        /// Operation that failed.
        what: &'static str,
        /// Error of the operation.
        error: io::Error,
    },
}

/// Starts the capture from receive queue `queue` of interface `name`.
pub fn open(name: &str, queue: u32, settings: &Settings) -> Result<Socket, Error> {
    let interface = Arc::new(Interface::open(name)?);
    let queues = interface.queues();
    if queue >= queues {
        return Err(Error::NoQueue {
            interface: name.to_owned(),
            queue,
            queues,
        });
    }
    let redirect = Arc::new(begin(&interface, queues, settings)?);
    Socket::open(&interface, &redirect, queue, settings, None)
}

/// Starts the capture from all receive queues of interface `name`: one socket for each, in their order.
///
/// **Errors**: [`Error::Stopped`] if `stop` is set, which is checked before each socket.
pub fn open_all(name: &str, settings: &Settings, stop: &AtomicBool) -> Result<Vec<Socket>, Error> {
    let interface = Arc::new(Interface::open(name)?);
    let queues = interface.queues();
    let redirect = Arc::new(begin(&interface, queues, settings)?);
    let socket = |queue| match stop.load(Ordering::Relaxed) {
        true => Err(Error::Stopped),
        false => Socket::open(&interface, &redirect, queue, settings, None),
    };
    (0..queues).map(socket).collect()
}

fn begin(interface: &Interface, queues: u32, settings: &Settings) -> Result<Redirect, Error> {
    // The program comes first, because the possible bindings depend on its mode; without sockets, it passes every packet on.
    let redirect = Redirect::attach(interface, queues, settings.mode)?;
    if settings.promiscuous {
        interface.promiscuous()?;
    }
    Ok(redirect)
}

#[cfg(test)]
pub(in crate::sys) mod tests;
