//! The measurement after compared backends: flow keys and `heavy` in one thread.

use std::sync::Arc;
use weir_measure::Config;
use weir_pipeline::measuring::{Design, Settings};

/// Memory of the sketch, bytes.
pub const MEMORY: usize = 4 << 20;

/// Settings of the measurement.
pub fn settings() -> Settings {
    Settings {
        config: Arc::new(Config {
            memory: MEMORY,
            ..Config::default()
        }),
        design: Design::Rss,
        workers: 1,
        ..Settings::default()
    }
}
