//! Messages on why a run cannot begin, or cannot go on.

use crate::numbers::grouped;
use crate::{Refusal, refusal};
use weir_engine::run::Error;
use weir_memory::Policy;
use weir_pipeline::measuring::Failure;

/// Words of a front end in messages about its run.
#[derive(Clone, Copy, Debug)]
pub struct Terms {
    /// Advice if there are too many sources to merge.
    pub instead: &'static str,
    /// Flag of the expression, if messages name it: `--filter`.
    pub expression: Option<&'static str>,
    /// Memory of each table of a measurement, in bytes, and its pages.
    pub tables: (u64, Policy),
}

impl Terms {
    /// Words of commands that pass packets on.
    pub const PACKETS: Self = Self {
        instead: "--sort takes any number of files",
        expression: None,
        tables: (0, Policy::Auto),
    };

    /// Words of the libraries.
    pub const LIBRARY: Self = Self {
        instead: "sorting takes any number of files",
        ..Self::PACKETS
    };
}

/// Message on why a run cannot begin.
pub fn refused(error: &Error, terms: &Terms) -> Refusal {
    let Terms {
        instead,
        expression,
        tables: (memory, pages),
    } = terms;
    match error {
        Error::Refused { name, why } => match (expression, name) {
            (Some(name), _) => refusal!("{name}: {why}"),
            (None, Some(name)) => refusal!("{name}: {why}"),
            (None, None) => refusal!("{why}"),
        },
        Error::CannotBeSplit { name } => refusal!(
            "--design rss splits a source among the workers, and {name} cannot be split: use async or sync"
        ),
        Error::TooManySources {
            sources,
            limit,
            needed,
        } => refusal!(
            "{} sources are to be merged, and this process may have {} files open: allow {needed} with ulimit -n; {instead}",
            grouped(*sources),
            grouped(*limit),
        ),
        Error::NoEnd { name } => refusal!(
            "{name}: --last counts back from the last packet of all files, which are read twice for it, and this source can be \
             read once: give --from, or a file"
        ),
        Error::TooManyStreams { streams, most } => refusal!(
            "{} pipes and compressed files are to be merged, and {most} can be at once: {instead}",
            grouped(*streams)
        ),
        Error::Tables(Failure::Counters(weir_measure::Error::TooLittleMemory { given, least })) => {
            let enough = enough(*memory, *given, *least);
            refusal!(
                "--memory {memory} bytes is too small for a table: use --memory {enough} or more"
            )
        }
        Error::Tables(Failure::Thread(error)) => refusal!("{error}"),
        Error::Tables(failure) => {
            refusal!("--memory {memory} (bytes), --pages {pages}: {failure}")
        }
        error => refusal!("{error}"),
    }
}
/// Returns a size for `--memory` that suffices, where `given` bytes of `memory` were too few, and `least` are needed.
fn enough(memory: u64, given: usize, least: usize) -> String {
    /// Size that suffices for most tables.
    const USUAL: u64 = 16 << 10;
    let whole = (memory as f64 / given.max(1) as f64).max(1.0);
    let needed = ((least as f64 * whole) as u64)
        .max(USUAL)
        .next_power_of_two();
    match needed >> 20 {
        0 => format!("{}k", needed >> 10),
        mega => format!("{mega}M"),
    }
}
