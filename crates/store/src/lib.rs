#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod cutoff;
pub mod disk;
pub mod record;
pub mod ring;
