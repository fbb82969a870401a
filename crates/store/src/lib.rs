//! Packets kept for later: a ring in RAM, and segments on disk with an index.
//!
//! Nothing here opens a network interface or reads other programs' captures: packets come in as records, and go out as records.
#![forbid(unsafe_code)]

pub mod cutoff;
pub mod disk;
pub mod record;
pub mod ring;
