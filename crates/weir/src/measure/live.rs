//! Measuring of packets captured from interfaces.

use super::Command;
use crate::capture::{self, CaptureRequest};
use crate::filter_file;
use crate::outcome::say_plain;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_engine::run::Run;
use weir_io::{Kind, sys};
use weir_messages::measurement::{check_queues, snaplen};

impl Command<'_> {
    /// Captures until stopped.
    pub(super) fn captured(
        &mut self,
        run: &mut Run,
        stop: &Arc<AtomicBool>,
        look: &Arc<AtomicBool>,
    ) -> anyhow::Result<()> {
        sys::tell_on_signal(Arc::clone(look));
        let arguments = self.arguments;
        let sources = &arguments.sources;
        let shares = self.options.shares(run, sources)?;
        let mut inputs = Vec::new();
        capture::check_memory(sources, &arguments.live)?;
        for name in sources {
            let mut about = Vec::new();
            let opened = capture::open(name, &self.capture_request(shares), stop, &mut about)?;
            about.iter().for_each(|line| say_plain(line));
            if opened.is_empty() {
                // Stopped while waiting for the interface.
                return Ok(());
            }
            inputs.extend(opened);
        }
        capture::twice(sources)
            .iter()
            .for_each(|line| say_plain(line));
        check_queues(run, &inputs)?;
        self.report.answers.captures(&inputs);
        let mut kept = Vec::new();
        for input in &inputs {
            if let Kind::Live(live) = &input.kind {
                kept.extend_from_slice(live.backend().keeps());
            }
        }
        if arguments.reloads() {
            kept.extend(filter_file::KEEPS);
        }
        self.walls.raise(&kept)?;
        let options = self.options;
        let refused = |error| options.refusal(error);
        if !run
            .begin_capture(&inputs, &mut |event| self.event(event, stop))
            .map_err(refused)?
        {
            return Ok(());
        }
        self.walls.opened(&kept);
        self.reload_on_hangup(run)?;
        run.capture(inputs, &mut |event| self.event(event, stop))
            .map_err(refused)?;
        self.show.end_of_capture();
        Ok(())
    }

    fn capture_request(&self, shares: usize) -> CaptureRequest<'_> {
        let arguments = self.arguments;
        // An expression may test any byte, and tunnels nest headers.
        let output = &arguments.output;
        let replaces = arguments.reloads();
        let filters = replaces
            || arguments.judging.rules.is_some()
            || !arguments.filter.trim().is_empty()
            || !output.split.is_empty();
        let writes_whole = output.writes() && output.snaplen == 0;
        let whole = filters || arguments.inner || writes_whole;
        CaptureRequest {
            settings: capture::settings(&arguments.live),
            expression: &arguments.filter,
            replaces_filter: replaces,
            names: arguments.names.names(),
            snaplen: snaplen(whole, output.snaplen),
            shares,
            yes_take: &arguments.live.taking.yes_take,
        }
    }
}
