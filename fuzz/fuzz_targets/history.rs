//! Any sequence of writes, looks and scans on a ring in RAM: readers get and miss what a naive twin says.
#![no_main]
#[path = "../../crates/store/tests/bodies/history.rs"]
mod history;

// tidy: allow(global): compiling the expression takes longer than a case.
static FILTERS: std::sync::LazyLock<std::sync::Arc<weir_store::ring::Filters>> =
    std::sync::LazyLock::new(history::filters);

libfuzzer_sys::fuzz_target!(|data: &[u8]| history::history(data, &FILTERS));
