//! Finds where the packets of a source lie, and leaves them there.
//!
//! What a provisional cursor finds may turn out wrong, and a sketch cannot forget. So packets are measured in a second
//! step, once the reader has proven where they are.

use crate::select::{Select, SelectPlan};
use crate::{Consumer, PlanError, With};
use std::sync::Arc;
use weir_packet::Frame;
use weir_packet::flow::Parser;
use weir_packet::savefile::Layout;

/// The consumer that locates.
#[derive(Debug)]
pub struct Locate {
    pub(super) select: Arc<Select>,
    /// Look into tunnels.
    pub inner: bool,
    /// Times matter: note the latest.
    pub timed: bool,
}

/// How to read the packets of a layout.
#[derive(Debug)]
pub struct LocatePlan {
    pub(super) filter: SelectPlan,
    /// For each interface; `None` where no flow key is looked for.
    pub(super) parsers: Vec<Option<Parser>>,
}

/// The packets of a piece of the source.
#[derive(Debug, Default)]
pub struct Located {
    /// Offset of each packet's record.
    pub records: Vec<u32>,
    /// The latest time among them, ns, if times matter.
    pub latest: Option<i64>,
}

impl Consumer for Locate {
    type Plan = LocatePlan;
    type Part = Located;

    fn plan(&self, layout: &Layout) -> Result<LocatePlan, PlanError> {
        let filter = self.select.plan(layout)?;
        let parsers = layout.interfaces.iter().map(|interface| Parser::new(interface.link, self.inner)).collect();
        Ok(LocatePlan { filter, parsers })
    }

    fn settle_in(&self, plan: &LocatePlan, aside: bool) {
        self.select.settle_in(&plan.filter, aside);
    }

    fn piece(&self, packets: u64) -> Located {
        Located { records: Vec::with_capacity(packets as usize), latest: None }
    }

    #[inline]
    fn frames(&self, with: &With<'_, LocatePlan>, frames: &[Frame<'_>], part: &mut Located) -> usize {
        part.records.extend_from_slice(with.records);
        if self.timed {
            with.layout.records(with.bytes, with.records, |_, record| {
                part.latest = part.latest.max(record.and_then(|record| record.time_ns));
            });
        }
        frames.len()
    }

    fn append(&self, part: &mut Located, next: Located) {
        part.records.extend_from_slice(&next.records);
        part.latest = part.latest.max(next.latest);
    }
}
