//! `--sort`: the packets of all files in the order of time.

use crate::name::Name;
use crate::numbers::packets;
use crate::outcome::io_words;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_memory::Available;
use weir_pipeline::sort::{SortFault, Sorter};

/// Bytes of packets that are held in memory, at most.
const MOST: u64 = 256 << 20;

/// Bytes of packets that are held in memory, however little is free.
const LEAST: u64 = 8 << 20;

/// A sorter that takes no more than a quarter of the memory that is free.
pub fn sorter(stop: &Arc<AtomicBool>) -> Sorter {
    let quarter = Available::now().map_or(MOST, |available| available.bytes / 4);
    Sorter::new(std::env::temp_dir(), quarter.clamp(LEAST, MOST) as usize, stop)
}

/// The line about packets that could not be sorted; `sorted` are in the answer.
pub fn fault_line(fault: &SortFault, sorted: u64) -> String {
    let SortFault { directory, error } = fault;
    let words = io_words(error);
    let directory = Name::from(directory).text();
    format!(
        "--sort: temporary files in {directory} (TMPDIR): {words}; only {} are sorted and in the answer",
        packets(sorted)
    )
}
