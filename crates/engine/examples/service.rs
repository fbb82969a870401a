//! A filter service: `service SOURCE FILE` keeps what matches the latest line of its standard input; the source is an interface as
//! weir names it (eth0, af_xdp:eth0:1). A line `?` asks how it stands.

use std::io::{BufRead, stdin};
use std::sync::Arc;
use std::time::Duration;
use weir_engine::capture::{self, CaptureRequest};
use weir_engine::claims::Claims;
use weir_engine::event::Event;
use weir_engine::file::{FileSettings, FileSink};
use weir_engine::handle::{Handle, Sources};
use weir_engine::name::Name;
use weir_engine::run::{Run, Setup};

/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<Name> = std::env::args_os().skip(1).map(Name::from).collect();
    let [source, file] = &arguments[..] else { return Err("service SOURCE FILE".into()) };
    let sink = FileSink::new(file, FileSettings::default(), &Arc::new(Claims::of(&[])));
    let setup = Setup { main: (file.as_output(), Some(Box::new(sink))), ..Setup::default() };
    let request = CaptureRequest { replaces_filter: true, ..CaptureRequest::default() };
    let opened = capture::open(source, &request, &setup.stop, &mut |_| {})?;
    let hear = |event: Event<'_>| match event {
        Event::FilterReplaced { change, expression } => Some(format!("change {change}: {expression}")),
        Event::LiveFault { name, fault } => Some(format!("{name}: {}", fault.what)),
        Event::Sink(fault) => Some(fault.to_string()),
        _ => None,
    };
    let mut service = Handle::start(Run::new(setup), Sources::Captures(opened.inputs), 64, hear)?;
    for line in stdin().lock().lines() {
        let answer = match line?.as_str() {
            "?" => format!("{:?}", service.control().snapshot(PATIENCE)),
            expression => match service.control().set_filter(expression, PATIENCE) {
                Ok(change) => format!("change {change} is in place"),
                Err(error) => error.to_string(),
            },
        };
        println!("{answer}"); // tidy: allow(print): an example is a program
        service.events().try_iter().for_each(|event| println!("{event}")); // tidy: allow(print): an example is a program
    }
    service.control().stop();
    let (ended, _) = service.join(PATIENCE)??;
    println!("{:?}", ended.stages); // tidy: allow(print): an example is a program
    println!("adds up: {}", ended.imbalance.is_none()); // tidy: allow(print): an example is a program
    Ok(())
}
