//! The measurement behind compared backends: flow keys and `heavy` in one thread.

use std::sync::Arc;
use weir_measure::Config;
use weir_pipeline::measuring::{Design, Settings};
use weir_pipeline::select::Selection;

/// Memory of the sketch, bytes.
pub const MEMORY: usize = 4 << 20;

/// Settings to measure the packets that match the expression.
pub fn settings(expression: &str) -> Settings {
    Settings {
        selection: Selection {
            expression: expression.to_owned(),
            ..Selection::default()
        },
        config: Arc::new(Config {
            memory: MEMORY,
            ..Config::default()
        }),
        design: Design::Rss,
        workers: 1,
        ..Settings::default()
    }
}
