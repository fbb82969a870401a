//! Memory by page policy, for tables, sketches and rings.
//!
//! A [`Region`] is zeroed memory made of the pages that a [`Request`] names. A [`Table`] is a slice of values in a region. A
//! [`ring`] passes values from one thread to another through a table. [`changes`] report when all threads use a changed
//! value. [`chunks`] keep what one thread writes for other threads that look back. The memory that was really obtained ([`Obtained`]) is read back from the kernel on request, never assumed. A
//! [`Pool`] lists the huge pages of the kernel, [`Available`] the free memory.
//!
//! Nothing here is an allocator: a region is made at the start and given back at the end.
#![deny(unsafe_code)]

#[allow(unsafe_code)]
mod advice;
mod available;
mod bitmap;
#[allow(unsafe_code)]
mod boxes;
pub mod changes;
#[allow(unsafe_code)]
pub mod chunks;
#[allow(unsafe_code)]
mod compiled;
#[allow(unsafe_code)]
mod equal;
mod error;
mod obtained;
mod policy;
mod pool;
#[allow(unsafe_code)]
mod prefetch;
mod region;
#[allow(unsafe_code)]
pub mod ring;
#[allow(unsafe_code)]
mod sys;
#[allow(unsafe_code)]
mod table;

pub use advice::{advise_huge, in_huge_pages};
pub use available::Available;
pub use bitmap::{AddressBitmap, Place};
pub use boxes::{Boxes, LANES, Point};
pub use compiled::{Work, compiled_for_newer};
pub use equal::equal;
pub use error::Error;
pub use obtained::{Contiguity, Obtained};
pub use policy::{Policy, Request, UnknownPolicy};
pub use pool::Pool;
pub use prefetch::{prefetch, prefetch_all};
pub use region::Region;
pub use sys::second_level_cache;
pub use table::Table;

/// Bytes of a huge page of the page table's middle level (x86-64, and aarch64 with base pages of 4 KiB).
pub const HUGE: usize = 2 << 20;

/// Bytes of a huge page of the page table's upper level.
pub const GIGANTIC: usize = 1 << 30;
