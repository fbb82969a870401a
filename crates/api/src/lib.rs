//! weir for programs in Rust. The libraries for C, Java and Python are built on it.
//!
//! A [`Source`] reads capture files, record directories or an interface, and gives batches of packets in place. A [`Sink`] takes
//! packets of batches. A [`Measurement`] gives the answers of `weir measure`, and a [`Recorder`] keeps packets as `weir record` does. Errors
//! have the lines that the command prints.
//!
//! ```no_run
//! use std::time::Duration;
//! use weir_api::{Next, Options, Source};
//!
//! let options = Options { filter: "udp".to_owned(), ..Options::default() };
//! let source = Source::open(&["trace.pcap"], &options)?;
//! let mut bytes = 0;
//! loop {
//!     match source.next(Duration::from_secs(1))? {
//!         Next::Batch(batch) => bytes += batch.packets().map(|packet| u64::from(packet.frame.wire_len)).sum::<u64>(),
//!         Next::Nothing => {}
//!         Next::End => break,
//!     }
//! }
//! println!("{} packets, {bytes} bytes", source.close().passed);
//! # Ok::<(), weir_api::Error>(())
//! ```
#![forbid(unsafe_code)]

mod error;
mod heard;
mod measurement;
mod opening;
mod options;
mod queue;
mod reading;
mod recorder;
mod sink;
mod source;

pub use error::Error;
pub use measurement::{Answer, Measurement, NextAnswer, finding_json, read_geo};
pub use options::{MOST_WORKERS, Options};
pub use recorder::{NextSaved, Recorder};
pub use sink::{Sink, SinkCounts, SinkOptions};
pub use source::{Batch, Counts, FilterChange, Next, Source, block_of, has_slots, is_live};
pub use weir_engine::batches::MOST as MOST_BATCHES;
pub use weir_engine::capture::{Direction, Settings as CaptureSettings};
pub use weir_engine::columns::Column;
pub use weir_engine::dedup::Within;
pub use weir_engine::record::trigger::{Condition, Keep, Span, Trigger};
pub use weir_engine::session::Order;
pub use weir_io::sys::interrupt_waits_by;
pub use weir_measure::health::{self, Parts as HealthParts};
pub use weir_measure::{By, Geo, KeyKind, Sketch};
pub use weir_messages::measurement::Options as MeasureOptions;
pub use weir_messages::recording::{
    Options as RecordOptions, parse_keep, parse_threshold_trigger, parse_trigger,
};
pub use weir_packet::descriptor::Descriptor;
pub use weir_packet::time::{Digits, Shape, Stamp};
pub use weir_pipeline::measuring::Design;
pub use weir_view::{Finding, Kind as FindingKind, State as FindingState};
