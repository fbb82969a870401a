//! AF_XDP: packets of a receive queue, taken before the kernel makes a packet of its own of them, and frames to send.
//!
//! A program on the interface sends the packets of a queue to the queue's [`Socket`], which hands them over in bursts: they
//! lie in memory that the kernel and we share, each in a slot of its own ([`weir_packet::savefile::slots`]). A burst gives
//! its slots back when it is dropped, by any thread, in any order; nothing else of that memory can be seen through it.
//!
//! - Only what is **received** is seen, and it is taken: the stack does not get it. Queues without a socket are left alone.
//! - **Time stamps**: AF_XDP has none. All packets of a burst have the time at which it was taken; times never go back.
//! - **Counts**: `received` is counted by the program, `dropped` by the kernel and, for large packets, by us. At the end
//!   they must agree exactly with what was handed over, or the end is an error.
//! - An interface that goes down ends the capture.
//!
//! **Platform**: Linux 5.9 (program attached by a link), 5.11 (busy polling), 6.6 (packets larger than a chunk); privilege:
//! CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, or CAP_SYS_ADMIN. **Source**: linux/if_xdp.h,
//! Documentation/networking/af_xdp.rst.

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

/// How to capture.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Where the program runs; `None` is native where that is to be had, else generic. In generic mode packets of a driver
    /// that does not note their queue, such as veth, are all of queue 0.
    pub mode: Option<Mode>,
    /// Whether the device may write into our memory itself.
    pub zero_copy: ZeroCopy,
    /// Bytes for packets, for each queue; up to half of them for packets larger than a chunk. Below 4 GiB.
    pub memory: usize,
    /// Bytes of a chunk, 2048 or 4096: of them 256 lie before the packet.
    pub chunk: usize,
    /// The pages that the memory is made of.
    pub pages: Policy,
    /// The NUMA node that the memory lies on.
    pub node: Option<u32>,
    /// Let the kernel tell when it must be woken, instead of having it look all the time; matters with zero copy.
    pub need_wakeup: bool,
    /// Fetch packets from the device on the reader's own processor.
    pub busy_poll: Option<BusyPoll>,
    /// Have the interface receive what is for others too.
    pub promiscuous: bool,
}

/// Whether the device may write into our memory itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ZeroCopy {
    /// It does if it can, in native mode; [`Socket`]'s description says what came of it.
    Auto,
    /// The kernel copies.
    Never,
    /// It does, or there is no capture.
    Force,
}

/// How to poll the device; see `SO_PREFER_BUSY_POLL`. The reader never sleeps then. It takes effect where the interface's
/// `napi_defer_hard_irqs` and `gro_flush_timeout` are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BusyPoll {
    /// For how long at a time.
    pub time: Duration,
    /// Packets at a time, at most.
    pub packets: u16,
}

impl Settings {
    /// With `memory` bytes for each queue.
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
        }
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self::of_size(32 << 20)
    }
}

/// Why an interface cannot be captured from, or sent to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is none of this name.
    #[error("no such network interface")]
    NoInterface,
    /// It has fewer queues.
    #[error("{interface} has {queues} receive queues, there is no queue {queue}")]
    NoQueue {
        /// The interface.
        interface: String,
        /// What was asked for; queues are numbered from 0.
        queue: u32,
        /// What there is.
        queues: u32,
    },
    /// The kernel keeps it to the privileged.
    #[error("AF_XDP needs {0}")]
    NotPermitted(&'static str),
    /// Another XDP program works on the interface.
    #[error("an XDP program is already attached; `ip link set dev {0} xdp off` removes one that no process holds")]
    Attached(String),
    /// Another socket has the queue.
    #[error("queue {queue} of {interface} is in use by another socket")]
    QueueInUse {
        /// The interface.
        interface: String,
        /// The queue.
        queue: u32,
    },
    /// It is down.
    #[error("the interface is down")]
    Down,
    /// Frames of a kind that is not read; the number is an ARPHRD_ value of linux/if_arp.h.
    #[error("frames of hardware type {0}, which AF_XDP does not capture: Ethernet is")]
    Hardware(u16),
    /// Packets do not fit, and neither driver nor kernel can give them in pieces.
    #[error("an MTU of {0} is too large here: chunks of 4096 bytes, generic mode or a smaller MTU may help")]
    Mtu(usize),
    /// Native mode was asked for.
    #[error("the driver has no native XDP mode")]
    NotNative,
    /// Zero copy was asked for.
    #[error("neither driver nor mode have zero copy: {0}")]
    NoZeroCopy(io::Error),
    /// More locked memory than allowed.
    #[error("{0} bytes of packet memory are more than may be locked: raise RLIMIT_MEMLOCK (`ulimit -l`)")]
    Locked(usize),
    /// A kernel without.
    #[error("this kernel has no AF_XDP sockets (CONFIG_XDP_SOCKETS)")]
    NoAfXdp,
    /// The start-up was told to end.
    #[error("told to end before it began")]
    Stopped,
    /// Settings that nothing can be done with.
    #[error("{0}")]
    Settings(&'static str),
    /// The memory cannot be had.
    #[error("packet memory: {0}")]
    Memory(#[from] weir_memory::Error),
    /// The program or its maps cannot be had.
    #[error(transparent)]
    Bpf(#[from] bpf::Error),
    /// The system refuses.
    #[error("{what}: {error}")]
    System {
        /// What was asked for.
        what: &'static str,
        /// What it says.
        error: io::Error,
    },
}

/// Begins to capture what receive queue `queue` of interface `name` receives.
pub fn open(name: &str, queue: u32, settings: &Settings) -> Result<Socket, Error> {
    let interface = Arc::new(Interface::open(name)?);
    let queues = interface.queues();
    if queue >= queues {
        return Err(Error::NoQueue { interface: name.to_owned(), queue, queues });
    }
    let redirect = Arc::new(begin(&interface, queues, settings)?);
    Socket::open(&interface, &redirect, queue, settings, None)
}

/// Begins to capture what all receive queues of interface `name` receive: one socket for each, in their order.
///
/// **Errors**: [`Error::Stopped`] once `stop` is set, which is looked at before each socket.
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
    // Without a socket the program passes everything on, so it may come first: what can be bound depends on its mode.
    let redirect = Redirect::attach(interface, queues, settings.mode)?;
    if settings.promiscuous {
        interface.promiscuous()?;
    }
    Ok(redirect)
}

#[cfg(test)]
pub(in crate::sys) mod tests;
