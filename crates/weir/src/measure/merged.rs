//! Measuring several files as one, by packet time.

use super::{Command, print};
use crate::cli::MeasureArgs;
use crate::name::Name;
use crate::outcome::{fault_line, misfit_lines, say};
use crate::{sorting, sources};
use anyhow::{anyhow, bail};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_io::Input;
use weir_io::input::Opening;
use weir_measure::Window;
use weir_pipeline::measuring::locate::Locate;
use weir_pipeline::measuring::{Failure, Measured, Run};
use weir_pipeline::reader::{Part, Trouble};
use weir_pipeline::sort::SortFault;
use weir_pipeline::{Options, PlanError, Reader, SourceFault};

/// Whether all files are read as one: if that was asked for, or if there are windows of time.
pub(super) fn combines(arguments: &MeasureArgs) -> bool {
    // One program may fill several named pipes one after another, and would wait for ever if all had to be open at once.
    let named_pipe = |source: &Name| {
        let path = Path::new(source);
        path.metadata().is_ok_and(|about| about.file_type().is_fifo()) && !path.starts_with("/dev/fd")
    };
    let by_windows = || arguments.window.is_some() && !arguments.no_merge && !arguments.sources.iter().any(named_pipe);
    arguments.sort || arguments.sources.len() > 1 && (arguments.merge || by_windows())
}

impl Command<'_> {
    /// Measures all sources as one. `Some` if the run cannot go on.
    pub(super) fn combined(&mut self, run: &mut Run) -> anyhow::Result<Option<Failure>> {
        let opening = Opening { zstd_window: self.arguments.zstd_window, ..Opening::default() };
        // The tables are made here: memory that cannot be had is a wrong command.
        run.start(true).map_err(|failure| self.no_tables(&failure))?;
        if !self.arguments.sort {
            let stop = Arc::clone(&self.stop);
            let instead = "--no-merge reads files one after another, --sort takes any number of them";
            let sources = &self.arguments.sources;
            let inputs = sources::open_together(sources, &opening, &stop, instead, &mut |line| self.fault(line))?;
            self.progress.begin(inputs.iter().map(Input::len_hint).sum());
            return self.read_as_one(run, |locate, options| Reader::merged(inputs, locate, options));
        }
        let mut sorter = sorting::sorter(&self.stop);
        for name in &self.arguments.sources {
            let input = match sources::open(name, &opening, &self.stop) {
                Ok(input) => input,
                Err(_) if self.stop.load(Ordering::Relaxed) => break,
                Err(line) => {
                    self.fault(line);
                    continue;
                }
            };
            self.progress.begin(input.len_hint());
            let progress = &mut self.progress;
            let taken = sorter.take(input, &mut |layout| run.check_layout(layout), &mut |offset| progress.show(offset));
            match taken {
                Err(PlanError::Stopped) => break,
                taken => taken.map_err(|refused| anyhow!("--filter: {refused}"))?,
            }
        }
        let mut unsorted: Option<SortFault> = None;
        let before = self.received;
        let outcome = self.read_as_one(run, |locate, options| {
            let (reader, fault) = sorter.sorted(locate, options);
            unsorted = fault;
            reader
        })?;
        if let Some(fault) = &unsorted {
            self.fault(sorting::fault_line(fault, self.received - before));
        }
        Ok(outcome)
    }

    /// Measures what the reader that `make` makes delivers.
    fn read_as_one(
        &mut self,
        run: &mut Run,
        make: impl FnOnce(Arc<Locate>, Options) -> Reader<Locate>,
    ) -> anyhow::Result<Option<Failure>> {
        let measured = {
            let Self { report, output, progress, stop, .. } = &mut *self;
            let mut each = |window: Window<'_>| print(report, output, stop, &window);
            run.combined(make, stop, &mut |offset| progress.show(offset), &mut each)
        };
        let (whole, parts) = match measured {
            Ok(measured) => measured,
            Err(failure) => return Ok(Some(failure)),
        };
        if let Some(SourceFault { what: Trouble::Plan(refused), packet: 1, .. }) = &whole.fault {
            bail!("--filter: {refused}");
        }
        let select = run.select();
        let layouts = parts.iter().filter_map(|part| part.layout.as_ref());
        let refusals: Vec<_> = layouts.map(|layout| select.refusal(layout)).collect();
        let refused = refusals.first().and_then(Option::as_ref).filter(|_| refusals.iter().all(Option::is_some));
        if let (Some(refused), false) = (refused, self.stop.load(Ordering::Relaxed)) {
            bail!("--filter: {refused}");
        }
        let misfits = select.take_misfits();
        misfit_lines("the merged sources", None, select, &misfits).iter().for_each(|line| say(line));
        for Part { name, mut report, way, .. } in parts {
            // What was measured is counted once, below: where a run is cut short that may be less than what was read.
            report.received = 0;
            self.close(&name, &Measured { report, way, layout: None }, select)?;
        }
        self.received += whole.received;
        if let Some(fault) = &whole.fault {
            self.fault(fault_line("the packets by time", fault));
        }
        Ok(None)
    }
}
