//! Where packets come from and go to: capture files, mapped or read, compressed or growing, and the files we write.
//!
//! Attaching, opening, mapping live here; the bytes of the formats are `weir-packet`'s.
#![deny(unsafe_code)]

// Under loom there is the slot table and nothing else.
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
pub mod netlink;
#[cfg(not(loom))]
pub mod output;
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
