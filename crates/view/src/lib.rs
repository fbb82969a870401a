#![doc = include_str!("../README.md")]
//!
//! # How it works
//!
//! A [`View`] takes the windows of a measurement in the order of their delivery, and nothing else: time comes with them. It keeps
//! steps of three lengths ([`Span`]): 1 s for 10 minutes, 10 s for 2 hours, 1 min for 24 hours. A step has totals, and for each kind of key
//! the largest rows and the rest of the table.
//!
//! ```text
//! window -> slice: the largest rows of each table, and the rest
//!   -> the step of each length that holds the begin of the window; complete steps are packed
//!   -> the keys seen: first and last time, peak
//! snapshot: a step unpacked, with the step before it, the keys seen and the points of a graph
//! ```
//!
//! **Invariants.** In each table of a step, the figures of the rows and of the rest add up to the whole table. Of each key, listed or not,
//! the true figure is within the bound that the step states. Rows, rest and whole are each added up; none is computed from the
//! others.
//!
//! **Memory**: at most [`View::most_memory`], whatever the traffic and the timestamps.
#![forbid(unsafe_code)]

mod findings;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz_body;
mod packed;
mod past_health;
mod seen;
mod snapshot;
mod step;
mod tier;
mod varint;
mod view;
mod wire;

pub use findings::{Finding, Findings, Kind, QUIET_NS, State};
pub use seen::Seen;
pub use snapshot::{Ask, Point, Row, Snapshot, Table};
pub use step::{Listed, Rest, Step, StepTable, Totals};
pub use tier::Span;
pub use view::{Settings, View};
pub use wire::LONGEST;
