//! Sources and sinks of packets: capture files, mapped or read, compressed or growing; live captures; files to write.
//!
//! This crate attaches, opens and maps; `weir-packet` reads and writes the bytes of the formats.
#![deny(unsafe_code)]

// Under loom, only the slot table is compiled.
mod slots;

#[cfg(not(loom))]
pub mod compressed;
#[cfg(all(feature = "dpdk", not(loom)))]
pub mod dpdk;
#[cfg(not(loom))]
pub mod follow;
#[cfg(not(loom))]
pub mod input;
#[cfg(not(loom))]
pub mod live;
#[cfg(not(loom))]
pub mod login;
#[cfg(not(loom))]
pub mod netlink;
#[cfg(not(loom))]
pub mod network;
#[cfg(not(loom))]
pub mod output;
#[cfg(not(loom))]
pub mod reserve;
#[cfg(not(loom))]
pub mod sockets;
#[cfg(not(loom))]
pub mod state;
#[cfg(not(loom))]
pub mod stream;
#[cfg(not(loom))]
#[allow(unsafe_code)]
pub mod sys;
#[cfg(not(loom))]
pub mod temporary;
#[cfg(not(loom))]
pub mod view;

#[cfg(not(loom))]
pub use input::{Input, Kind};
#[cfg(not(loom))]
pub use view::Chunk;
