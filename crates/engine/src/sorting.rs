//! Choice of the memory for a sort.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_memory::Available;
use weir_pipeline::sort::Sorter;

/// Upper limit of the memory for packets, bytes.
const MOST: u64 = 256 << 20;

/// Lower limit of the memory for packets, bytes, even if less is free.
const LEAST: u64 = 8 << 20;

/// Returns a sorter that takes a quarter of the free memory, between [`LEAST`] and [`MOST`] bytes.
pub(crate) fn sorter(stop: &Arc<AtomicBool>) -> Sorter {
    let quarter = Available::now().map_or(MOST, |available| available.bytes / 4);
    Sorter::new(
        std::env::temp_dir(),
        quarter.clamp(LEAST, MOST) as usize,
        stop,
    )
}
