//! Measuring what interfaces receive and send.

use super::{Command, print};
use crate::capture::{self, Wish};
use crate::outcome::{LiveFaults, say, say_plain};
use anyhow::bail;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_io::live::{Counts, Marks};
use weir_io::{Input, Kind, sys};
use weir_measure::Window;
use weir_packet::savefile::MAX_SNAPLEN;
use weir_pipeline::PlanError;
use weir_pipeline::measuring::{Design, Failure, LiveCounters, Measured, Run};

/// Bytes of a packet that hold all headers a flow key is read from, but for those of tunnels in tunnels.
const HEADERS: u32 = 512;

impl Command<'_> {
    /// Captures until stopped. `Some` if the run cannot go on.
    pub(super) fn captured(&mut self, run: &mut Run) -> anyhow::Result<Option<Failure>> {
        let tell = Arc::new(AtomicBool::new(false));
        sys::tell_on_signal(Arc::clone(&tell));
        let (sources, workers) = (&self.arguments.sources, run.wanted_workers());
        let distributes = matches!(run.design(), Design::Async | Design::Sync);
        if distributes && sources.len() > 1 {
            bail!("--design async and sync have one distributor, for one interface: name one, or use rss");
        }
        // Each interface has one worker at least.
        let shares = if distributes { 1 } else { (workers / sources.len()).max(1) };
        let mut inputs = Vec::new();
        capture::rings::check(sources, &self.arguments.live)?;
        for name in sources {
            let mut about = Vec::new();
            let opened = capture::open(name, &self.wish(shares), &self.stop, &mut about)?;
            about.iter().for_each(|line| say_plain(line));
            if opened.is_empty() {
                // Told to end while it waited.
                return Ok(None);
            }
            inputs.extend(opened);
        }
        if distributes && inputs.len() > 1 {
            bail!(
                "--design async and sync have one distributor, for one queue: name one, as in af_xdp:eth0:0, or use rss"
            );
        }
        match run.check(&inputs) {
            Err(PlanError::Stopped) => return Ok(None),
            checked => checked.map_err(|refused| anyhow::anyhow!("--filter: {refused}"))?,
        }
        let mut kept = Vec::new();
        for input in &inputs {
            if let Kind::Live(live) = &input.kind {
                kept.extend_from_slice(live.backend().keeps());
                self.report.captures(live.backend().place(), live.backend().counts().filtered.is_some());
            }
        }
        capture::give_up_privileges(&kept);
        let names: Vec<String> = inputs.iter().map(|input| input.name.clone()).collect();
        self.progress.begin(None);
        let measured = if distributes {
            let only = inputs.remove(0);
            run.start(false).map_err(|failure| self.no_tables(&failure))?;
            self.distributed(run, only)
        } else {
            let Self { report, output, stop, .. } = self;
            let mut each = |window: Window<'_>| print(report, output, stop, &window);
            let mut look = |counters: &[Arc<LiveCounters>]| {
                if tell.swap(false, Ordering::Relaxed) {
                    names.iter().zip(counters).for_each(|(name, counters)| say_plain(&standing(name, counters)));
                }
            };
            run.capture(inputs, &mut look, &mut each)
        };
        match measured {
            Ok(measured) => {
                // Workers share an interface.
                let (mut marks, mut faults) = (BTreeMap::new(), LiveFaults::default());
                for (name, mut one) in names.iter().zip(measured) {
                    if let Some(fault) = one.report.fault.take() {
                        faults.add(name, &fault);
                    }
                    self.close(name, &one, run.select())?;
                    let marks = marks.entry(name).or_insert_with(Marks::default);
                    marks.downs = marks.downs.max(one.report.marks.downs);
                    marks.large += one.report.marks.large;
                    marks.cut += one.report.marks.cut;
                    marks.unfinished_checksums += one.report.marks.unfinished_checksums;
                }
                faults.lines().into_iter().for_each(|line| self.fault(line));
                for (name, marks) in &marks {
                    capture::marks_lines(name, marks).iter().for_each(|line| say(line));
                }
                Ok(None)
            }
            // Made before the first packet: memory that cannot be had is a wrong command.
            Err(failure @ Failure::Counters(_)) => Err(self.no_tables(&failure)),
            Err(failure) => Ok(Some(failure)),
        }
    }

    fn distributed(&mut self, run: &mut Run, input: Input) -> Result<Vec<Measured>, Failure> {
        let Self { report, output, stop, progress, .. } = self;
        let mut each = |window: Window<'_>| print(report, output, stop, &window);
        run.source(input, stop, &mut |offset| progress.show(offset), &mut each).map(|measured| vec![measured])
    }

    fn wish(&self, shares: usize) -> Wish<'_> {
        let arguments = self.arguments;
        // An expression may ask for any byte, and tunnels have headers in headers.
        let whole = !arguments.filter.trim().is_empty() || arguments.inner;
        Wish {
            live: &arguments.live,
            expression: &arguments.filter,
            resolve: arguments.resolve,
            snaplen: if whole { MAX_SNAPLEN } else { HEADERS },
            shares,
        }
    }
}

fn standing(name: &str, counters: &LiveCounters) -> String {
    let counts = Counts {
        received: counters.received.load(Ordering::Relaxed),
        filtered: Some(counters.filtered.load(Ordering::Relaxed)),
        dropped: counters.dropped.load(Ordering::Relaxed),
        handed_over: counters.delivered.load(Ordering::Relaxed),
    };
    capture::standing_line(name, &counts)
}
