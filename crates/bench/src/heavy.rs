//! The measurement that comparisons of backends put behind them: flow keys and `heavy`, by one thread.

use std::sync::Arc;
use weir_measure::{Config, Cut, KeyKind, Sketch, Weigh};
use weir_memory::Request;
use weir_packet::flow::Hasher;
use weir_pipeline::measuring::{Design, Distribute, Settings};
use weir_pipeline::select::Selection;

/// Memory of the sketch, bytes.
pub const MEMORY: usize = 4 << 20;

/// How to measure what passes the expression.
pub fn settings(expression: &str) -> Settings {
    let config = Config {
        keys: vec![KeyKind::FiveTuple],
        by: Weigh::Packets,
        sketch: Sketch::Heavy,
        shared: None,
        memory: MEMORY,
        request: Request::default(),
        cut: Cut { window_ns: None, late_ns: 0 },
        seed: 1,
        hasher: Hasher::new(1),
    };
    Settings {
        selection: Selection { expression: expression.to_owned(), ..Selection::default() },
        inner: false,
        config: Arc::new(config),
        design: Design::Rss,
        distribute: Distribute::Flow,
        workers: 1,
        cpus: Vec::new(),
        batch: 32,
        timing: false,
        way: None,
    }
}
