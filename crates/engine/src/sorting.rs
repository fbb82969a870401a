//! The memory of a sort.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_memory::Available;
use weir_pipeline::sort::Sorter;

/// Bytes of packets that are held in memory, at most.
const MOST: u64 = 256 << 20;

/// Bytes of packets that are held in memory, however little is free.
const LEAST: u64 = 8 << 20;

/// A sorter that takes no more than a quarter of the memory that is free.
pub(crate) fn sorter(stop: &Arc<AtomicBool>) -> Sorter {
    let quarter = Available::now().map_or(MOST, |available| available.bytes / 4);
    Sorter::new(std::env::temp_dir(), quarter.clamp(LEAST, MOST) as usize, stop)
}
