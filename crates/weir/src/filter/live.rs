//! Filtering of packets captured from interfaces.

use super::{Command, refused};
use crate::capture::{self, CaptureRequest};
use crate::cli::FilterArgs;
use crate::filter_file;
use crate::outcome::say_plain;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_engine::run::Run;
use weir_io::{Kind, sys};
use weir_packet::savefile::MAX_SNAPLEN;

impl Command<'_> {
    /// Captures until stopped, or until enough packets have matched.
    pub(super) fn captured(
        &mut self,
        run: &mut Run,
        stop: &Arc<AtomicBool>,
        look: &Arc<AtomicBool>,
    ) -> anyhow::Result<()> {
        sys::tell_on_signal(Arc::clone(look));
        let arguments = self.arguments;
        let (mut inputs, mut kept, mut about) = (Vec::new(), Vec::new(), Vec::new());
        capture::check_memory(&arguments.sources, &arguments.live)?;
        for name in &arguments.sources {
            let opened = capture::open(name, &capture_request(arguments), stop, &mut about)?;
            if opened.is_empty() {
                // Stopped while waiting for the interface.
                return Ok(());
            }
            for input in opened {
                if let Kind::Live(live) = &input.kind {
                    self.place = live.backend().place();
                    kept.extend_from_slice(live.backend().keeps());
                }
                inputs.push(input);
            }
        }
        about.extend(capture::twice(&arguments.sources));
        if arguments.reloads() {
            kept.extend(filter_file::KEEPS);
        }
        self.walls.raise(&kept)?;
        let show = &mut self.show;
        if !run
            .begin_capture(&inputs, &mut |event| show.event(event))
            .map_err(refused)?
        {
            return Ok(());
        }
        self.walls.opened(&kept);
        if run.outputs().are_over() {
            return Ok(());
        }
        // The capture runs, and the output files have their headers.
        about.iter().for_each(|line| say_plain(line));
        self.reload_on_hangup(run)?;
        let show = &mut self.show;
        run.capture(inputs, &mut |event| show.event(event))
            .map_err(refused)?;
        show.end_of_capture();
        Ok(())
    }
}

fn capture_request(arguments: &FilterArgs) -> CaptureRequest<'_> {
    let replaces = arguments.reloads();
    // The kernel's filter sees the outer packet of a tunnel, and cannot be inverted.
    let here = arguments.invert || arguments.inner;
    let expression = if here {
        ""
    } else {
        arguments.expression.as_deref().unwrap_or("")
    };
    // Expressions are applied to whole packets. Without one, the bytes to be written suffice.
    let filters = replaces
        || arguments.judging.rules.is_some()
        || !arguments
            .expression
            .as_deref()
            .unwrap_or("")
            .trim()
            .is_empty()
        || !arguments.output.split.is_empty();
    let snaplen = if filters || arguments.output.snaplen == 0 {
        MAX_SNAPLEN
    } else {
        arguments.output.snaplen
    };
    CaptureRequest {
        settings: capture::settings(&arguments.live),
        expression,
        replaces_filter: replaces && !here,
        names: arguments.names.names(),
        snaplen,
        shares: 1,
        yes_take: &arguments.live.taking.yes_take,
    }
}
