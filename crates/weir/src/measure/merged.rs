//! Measuring several files as one, by packet time.

use super::{Command, is_live, print};
use crate::cli::MeasureArgs;
use crate::outcome::{Outcome, fault_line};
use crate::sources;
use anyhow::bail;
use std::sync::Arc;
use weir_io::Input;
use weir_measure::Window;
use weir_pipeline::SourceFault;
use weir_pipeline::measuring::{Measured, Run};
use weir_pipeline::reader::{Part, Trouble};

/// Whether the sources are merged by time: if that was asked for, or if there are windows of time.
pub(super) fn merges(arguments: &MeasureArgs) -> bool {
    let wanted = arguments.merge || arguments.window.is_some() && !arguments.no_merge;
    wanted && arguments.sources.len() > 1 && !is_live(arguments)
}

impl Command<'_> {
    /// Measures all sources at once. `Some` if that failed in a way that leaves no answer.
    pub(super) fn merged(&mut self, run: &mut Run) -> anyhow::Result<Option<Outcome>> {
        let stop = Arc::clone(&self.stop);
        let inputs = sources::open_together(&self.arguments.sources, &stop, &mut |line| self.fault(line))?;
        // The tables are made here: memory that cannot be had is a wrong command.
        run.start(true).map_err(|failure| self.no_tables(&failure))?;
        self.progress.begin(inputs.iter().map(Input::len_hint).sum());
        let measured = {
            let Self { report, output, progress, stop, .. } = &mut *self;
            let mut each = |window: Window<'_>| print(report, output, stop, &window);
            run.merged(inputs, stop, &mut |offset| progress.show(offset), &mut each)
        };
        let (whole, parts) = match measured {
            Ok(measured) => measured,
            Err(failure) => {
                self.broken(&failure);
                return Ok(Some(Outcome::Failed));
            }
        };
        if let Some(SourceFault { what: Trouble::Plan(refused), packet: 1, .. }) = &whole.fault {
            bail!("--filter: {refused}");
        }
        for Part { name, report, way, changed, .. } in parts {
            self.close(&name, &Measured { report, way, changed })?;
        }
        if let Some(fault) = &whole.fault {
            self.fault(fault_line("the merged sources", fault));
        }
        Ok(None)
    }
}
