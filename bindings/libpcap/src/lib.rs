//! libpcap's functions on weir: a library that is preloaded into programs that were built for libpcap.
//!
//! - All functions that libpcap 1.10 exports are here. The table in `symbols` says which are ours. The others go on to the program's own
//!   libpcap, looked up after this library in the loader's order.
//! - A program's handle is always a handle of its own libpcap. This library reads the packets in libpcap's place; whatever is unusual is read
//!   by libpcap itself, so that results and texts of errors are libpcap's.
//! - No panic reaches the program, and nothing is allocated, locked or asked of the kernel for a packet.
//!
//! **Absent**: signal handlers, a parser of expressions (`pcap_compile` is libpcap's); unless the environment asks for them, threads
//! and files of its own.
#![deny(unsafe_code)]
#![allow(unsafe_code, reason = "functions that C programs call")]
#![cfg(target_os = "linux")]

pub mod activate;
pub mod calls;
pub mod data;
pub mod exact;
pub mod extras;
pub mod handles;
pub mod judge;
pub mod keep;
pub mod live;
pub mod offline;
pub mod outputs;
pub mod real;
pub mod records;
pub mod settings;
pub mod symbols;
pub mod types;

#[cfg(test)]
mod simulated;
#[cfg(test)]
mod tests;
