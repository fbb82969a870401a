//! Joins the crates for input, filters and measurement.
//!
//! The pipeline reads sources with one or several workers, proves the findings of provisional cursors, and hands the pieces on in
//! order.
#![forbid(unsafe_code)]

pub mod bits;
pub mod by_time;
mod interfaces;
pub mod measuring;
pub mod merge;
mod pool;
pub mod pump;
pub mod reader;
pub mod select;
pub mod sort;
pub mod source;
pub mod stages;
pub mod steps;
pub mod survey;
pub mod threads;
mod window;

pub use reader::{AccessMode, Delivery, Options, Reader, Report, SourceFault};
pub use threads::{Slow, processors, unless_stopped};

use std::sync::Arc;
use weir_memory::changes::Changes;
use weir_packet::Frame;
use weir_packet::savefile::{Bytes, Layout};

/// Processing of the frames of a source.
///
/// Workers call a consumer with pieces of the source in any order. The results are appended to each other in source order.
pub trait Consumer: Send + Sync + 'static {
    /// State prepared once for each layout of the source.
    type Plan: Send + Sync + 'static;
    /// Result for a piece of the source. The default is the result for an empty piece.
    type Part: Default + Send + Sync + 'static;

    /// Prepares for a layout. `before` is the plan of the layout from which this one grew; the interfaces of that layout are the
    /// first ones of this layout. An error ends the source. **Cost**: must not grow with the interfaces that `before` knows, or a
    /// file of many layouts takes for ever.
    fn plan(&self, layout: &Layout, before: Option<&Self::Plan>) -> Result<Self::Plan, PlanError>;

    /// Spends time now to make each packet cheaper, because the source is long. If `aside`, the
    /// work is done in a thread of its own, because other threads work in the meantime. Called at
    /// most once per plan.
    fn warm_up(&self, plan: &Self::Plan, aside: bool) {
        let _ = (plan, aside);
    }

    /// Returns the result for an empty piece of a source that announces `packets` packets.
    fn piece(&self, packets: u64) -> Self::Part {
        let _ = packets;
        Self::Part::default()
    }

    /// Announces frames that follow the next frames, so that a consumer can prefetch their memory.
    #[inline]
    fn soon(&self, plan: &Self::Plan, frames: &[Frame<'_>]) {
        let _ = (plan, frames);
    }

    /// Whether the consumer needs no packet once [`Self::frames`] returns. Other programs may change the bytes of a mapped file, so
    /// the files of other consumers are read.
    fn only_counts(&self) -> bool {
        false
    }

    /// Takes up to 32 frames of one piece.
    fn frames(&self, with: &With<'_, Self::Plan>, frames: &[Frame<'_>], part: &mut Self::Part);

    /// Appends `next`, the result for the piece that follows the piece of `part` in the source.
    fn append(&self, part: &mut Self::Part, next: Self::Part);

    /// Changes of the consumer during its work, if it allows them. After a change, a reader asks for a new [plan](Self::plan)
    /// between two batches; `before` is then a plan made under an earlier change.
    fn changes(&self) -> Option<&Arc<Changes>> {
        None
    }
}

/// Surroundings of the frames of one call: layout, plan, bytes and records.
#[derive(Clone, Copy, Debug)]
pub struct With<'a, P> {
    /// Layout of the source at these frames.
    pub layout: &'a Layout,
    /// Plan of the consumer for the layout.
    pub plan: &'a P,
    /// Bytes that hold the records.
    pub bytes: Bytes<'a>,
    /// Offset of each frame's record in `bytes`.
    pub records: &'a [u32],
}

/// Reason for which a consumer cannot work on a source.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The consumer cannot work with this layout, for the reason given.
    #[error("{0}")]
    Refused(String),
    /// The run was stopped before the plan was made.
    #[error("told to stop before the expression was compiled")]
    Stopped,
}
