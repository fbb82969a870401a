#![doc = include_str!("../README.md")]
#![deny(unsafe_code)]

pub mod allocations;
mod attempt;
mod input;
pub mod lacking;
pub mod links;
pub mod mmdb;
pub mod net;
pub mod power;
mod python;
mod random;
pub mod savefile;
mod scratch;
pub mod wait;

pub use attempt::Attempt;
pub use input::Input;
pub use lacking::{capture, captures, captures_for_libpcap, have, output, skipped};
pub use python::Python;
pub use random::Random;
pub use scratch::{Scratch, ScratchFile, nameless};
