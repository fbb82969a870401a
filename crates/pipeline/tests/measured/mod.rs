//! Measurements of whole sources, by the calls that a run of the engine makes for its batches.
#![allow(dead_code, reason = "each test file uses its part")]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_io::{Input, Kind};
use weir_measure::Window;
use weir_pipeline::measuring::{Failure, Measured, Run, Settings};
use weir_pipeline::reader::Step;
use weir_pipeline::select::{Select, Selection};
use weir_pipeline::source::Source;
use weir_pipeline::steps::{Progress, SystemClock};
use weir_pipeline::{AccessMode, Reader};

/// Returns a measurement of the packets that match an expression, and of nothing beside.
pub fn run(settings: Settings, expression: &str) -> Run {
    let selection = Selection {
        expression: expression.to_owned(),
        ..Selection::default()
    };
    Run::new(settings, Arc::new(Select::new(selection)), false)
}

/// Measures a source. `each` is called with the complete windows, in order; `progress` with the number of bytes read.
pub fn source(
    run: &mut Run,
    input: Input,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
    each: &mut dyn FnMut(Window<'_>),
) -> Result<Measured, Failure> {
    run.start(matches!(input.kind, Kind::File(_)))?;
    let mut reader = Reader::new(input, Arc::clone(run.stages()), run.options());
    read(run, &mut reader, stop, progress, each)?;
    let layout = reader.layout().cloned();
    Ok(Measured {
        report: reader.into_report(),
        layout,
    })
}

fn read(
    run: &mut Run,
    reader: &mut dyn Source,
    stop: &AtomicBool,
    progress: &mut dyn FnMut(u64),
    each: &mut dyn FnMut(Window<'_>),
) -> Result<(), Failure> {
    let system = SystemClock::default();
    let mut reading = run.begin_source(reader, system.now());
    // A stopped capture still delivers the packets received so far, and ends by itself.
    let live = reader.way() == AccessMode::Live;
    let stopped = || stop.load(Ordering::Relaxed) && !live;
    loop {
        let now = system.now();
        let (step, change) = (reader.poll(), reader.change());
        let mut idle = None;
        match step {
            Step::Delivery(delivery) => {
                run.take(&mut reading, delivery, (now, change), &stopped, each)?
            }
            Step::Quiet => idle = Some(run.quiet(now, reader.change(), each)?),
            Step::End => break,
        }
        run.after_step(&mut reading, reader, each)?;
        progress(reader.progress());
        if stopped() {
            break;
        }
        if let Some(until) = idle {
            reader.wait(until.saturating_sub(now.steady));
        }
    }
    run.end_source(reading, reader, &stopped, each)
}

/// Measures live sources, each with a worker in a thread of its own, until they end.
pub fn capture(
    run: &mut Run,
    inputs: Vec<Input>,
    each: &mut dyn FnMut(Window<'_>),
) -> Result<Vec<Measured>, Failure> {
    let system = SystemClock::default();
    let mut capture = run.begin(inputs, system.now())?;
    capture.start(system)?;
    loop {
        match capture.merge(each)? {
            Progress::Busy => {}
            Progress::Idle(_) => capture.await_message(Duration::from_millis(100)),
            Progress::Ended => return Ok(capture.end()),
        }
    }
}
