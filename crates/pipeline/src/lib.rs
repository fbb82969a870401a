//! The one place that knows all rooms: it reads sources with one worker or several, proves what provisional cursors
//! found, and hands the pieces on in order.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod fuzz_body;
pub mod handed;
mod interfaces;
pub mod measuring;
pub mod merge;
mod pool;
pub mod pump;
pub mod reader;
pub mod select;
pub mod sort;
pub mod stages;
pub mod steps;
pub mod survey;
pub mod threads;
mod window;

pub use reader::{AccessMode, Delivery, Options, Reader, Report, SourceFault};
pub use threads::{processors, unless_stopped};

use std::sync::Arc;
use weir_memory::changes::Changes;
use weir_packet::Frame;
use weir_packet::savefile::{Bytes, Layout};

/// What is done with the frames of a source.
///
/// Workers call it with pieces of the source in any order; the pieces are appended to each other in source order.
pub trait Consumer: Send + Sync + 'static {
    /// What is prepared once for each layout of the source.
    type Plan: Send + Sync + 'static;
    /// What is known of a piece of the source. Its default is the empty piece.
    type Part: Default + Send + Sync + 'static;

    /// Prepares for a layout; `before` is the plan of the layout that it grew from, whose interfaces are its first ones. An error
    /// ends the source. **Cost**: must not grow with the interfaces that `before` knows, or a file of many layouts takes for ever.
    fn plan(&self, layout: &Layout, before: Option<&Self::Plan>) -> Result<Self::Plan, PlanError>;

    /// The source is long: spend time now on what makes each packet cheaper; `aside`, in a thread of its own, if others work
    /// meanwhile. Called at most once per plan.
    fn warm_up(&self, plan: &Self::Plan, aside: bool) {
        let _ = (plan, aside);
    }

    /// The empty piece, of a source that says how many packets will come.
    fn piece(&self, packets: u64) -> Self::Part {
        let _ = packets;
        Self::Part::default()
    }

    /// Takes up to 32 frames of one piece. Returns how many it took: fewer than all end the source.
    fn frames(&self, with: &With<'_, Self::Plan>, frames: &[Frame<'_>], part: &mut Self::Part) -> usize;

    /// Appends `next`, which follows `part` in the source.
    fn append(&self, part: &mut Self::Part, next: Self::Part);

    /// Whether frames must come one after another, so that the consumer can say when it has enough.
    fn in_order(&self) -> bool {
        false
    }

    /// Changes of the consumer while it works, if there can be any. Behind one, a reader asks for a [plan](Self::plan) anew between
    /// two batches; `before` is then one that was made under an earlier change.
    fn changes(&self) -> Option<&Arc<Changes>> {
        None
    }
}

/// Where the frames of a call lie.
#[derive(Clone, Copy, Debug)]
pub struct With<'a, P> {
    /// How the source is laid out here.
    pub layout: &'a Layout,
    /// What the consumer prepared for it.
    pub plan: &'a P,
    /// What the records lie in.
    pub bytes: Bytes<'a>,
    /// Offset of each frame's record in `bytes`.
    pub records: &'a [u32],
}

/// Why a consumer cannot work on a source.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The consumer makes no sense of it.
    #[error("{0}")]
    Refused(String),
    /// The run was told to stop before the plan was made.
    #[error("told to stop before the expression was compiled")]
    Stopped,
}
