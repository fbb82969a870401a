//! Ports of DPDK: bursts of packets in the memory where the device put them, and send queues.
//!
//! `open` takes a device by its DPDK name, a virtual one (`net_af_packet0,iface=eth1`, `net_null0`, `net_ring0`) or a PCI
//! address, and returns its receive `Queue`s and `Sender`s. A queue has one owner, which may be any thread, and
//! fills a `Burst`; frames are not copied. A burst may be dropped by any thread, in any order.
//!
//! Without the feature `link` the crate is empty, and its build looks for nothing on the machine.
//!
//! **Absent**: the meaning of packets; DPDK's own threads (DPDK insists on one, which does nothing); its devices other
//! than network ports; its flow rules and offloads.
//! **Platform**: Linux, DPDK 22.11 or later. DPDK is initialised once in a process, with the first device.
#![deny(unsafe_code)]

#[cfg(feature = "bench")]
#[allow(unsafe_code)]
pub mod bench;
#[cfg(feature = "link")]
#[allow(unsafe_code)]
mod burst;
#[cfg(feature = "link")]
#[allow(unsafe_code)]
mod eal;
#[cfg(feature = "link")]
mod error;
#[cfg(feature = "link")]
#[allow(unsafe_code)]
mod pool;
#[cfg(feature = "link")]
#[allow(unsafe_code)]
mod port;
#[cfg(feature = "link")]
#[allow(unsafe_code)]
mod raw;
#[cfg(feature = "link")]
#[allow(unsafe_code)]
mod sender;
#[cfg(feature = "link")]
#[allow(unsafe_code)]
mod sockets;

#[cfg(feature = "link")]
pub use {
    burst::{Burst, MOST},
    eal::{BESIDE, Eal, Pages},
    error::Error,
    port::{Opened, Port, Queue, Settings, Stats, open},
    sender::{SendError, Sender},
    sockets::Kernel,
};
