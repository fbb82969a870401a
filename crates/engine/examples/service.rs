//! A filter service: `service SOURCE FILE` keeps the packets that match the latest line of standard input. The source is an
//! interface as weir names it (eth0, af_xdp:eth0:1). A line `> FILE` switches to another file, and a line `?` shows a snapshot.

use std::io::{BufRead, stdin};
use std::sync::Arc;
use std::time::Duration;
use weir_engine::capture::CaptureRequest;
use weir_engine::claims::Claims;
use weir_engine::event::Event;
use weir_engine::file::{FileSettings, FileSink};
use weir_engine::handle::Handle;
use weir_engine::name::Name;
use weir_engine::output_changes::OutputSlot;
use weir_engine::run::{Run, Setup};
use weir_engine::session::Session;

/// Longest time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

fn in_place(change: u64) -> String {
    format!("change {change} is in place")
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<Name> = std::env::args_os().skip(1).map(Name::from).collect();
    let [source, file] = &arguments[..] else {
        return Err("service SOURCE FILE".into());
    };
    let claims = Arc::new(Claims::of(&[]));
    let sink = |file: &Name| Box::new(FileSink::new(file, FileSettings::default(), &claims));
    let setup = Setup {
        main: (file.as_output(), Some(sink(file))),
        ..Setup::default()
    };
    let request = CaptureRequest {
        replaces_filter: true,
        ..CaptureRequest::default()
    };
    let mut session = Session::new(vec![source.clone()]);
    session.open(&request, &setup.stop, &mut |_| {})?;
    let hear = |event: Event<'_>| {
        let line = match event {
            Event::FilterReplaced { change, expression } => {
                format!("change {change}: {expression}")
            }
            Event::OutputReplaced { name, report, .. } => {
                format!("{name} is complete: {} packets", report.taken)
            }
            Event::LiveFault { name, fault } => format!("{name}: {}", fault.what),
            Event::Sink(fault) => fault.to_string(),
            _ => return,
        };
        println!("{line}"); // tidy: allow(print): an example is a program
    };
    let mut service = Handle::start(Run::new(setup), session, hear)?;
    for line in stdin().lock().lines() {
        let (line, control) = (line?, service.control());
        let changed = match (
            line.as_str(),
            line.strip_prefix("> ")
                .map(|file| Name::from(file.to_owned())),
        ) {
            ("?", _) => Ok(format!("{:?}", control.snapshot(PATIENCE))),
            (_, Some(file)) => control
                .set_output(OutputSlot::Main, &file.as_output(), sink(&file), PATIENCE)
                .map(in_place),
            (expression, None) => control.set_filter(expression, PATIENCE).map(in_place),
        };
        println!("{}", changed.unwrap_or_else(|error| error.to_string())); // tidy: allow(print): an example is a program
    }
    service.control().stop();
    let (ended, _) = service.join(PATIENCE)??;
    println!("{:?}", ended.stages); // tidy: allow(print): an example is a program
    println!("adds up: {}", ended.imbalance.is_none()); // tidy: allow(print): an example is a program
    Ok(())
}
