//! The largest talkers of an interface or a file, once per second of packet time: `talkers SOURCE`. A line of standard input names
//! another key to count by: `src`, `dport`, `5tuple`, `src/24`.

use std::fmt::Write;
use std::io::{BufRead, stdin};
use std::sync::Arc;
use std::time::Duration;
use weir_engine::capture::CaptureRequest;
use weir_engine::event::Event;
use weir_engine::handle::Handle;
use weir_engine::name::Name;
use weir_engine::run::{Run, Setup};
use weir_engine::session::Session;
use weir_measure::{Config, Setting, Window, Windowing};
use weir_pipeline::measuring::Settings;

/// Longest time to wait for an answer.
const PATIENCE: Duration = Duration::from_secs(5);

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let source = Name::from(std::env::args_os().nth(1).ok_or("talkers SOURCE")?);
    let windowing = Windowing {
        window_ns: Some(1_000_000_000),
        late_ns: 0,
    };
    let config = Arc::new(Config {
        windowing,
        ..Config::default()
    });
    let setup = Setup {
        measure: Some(Settings {
            config,
            ..Settings::default()
        }),
        ..Setup::default()
    };
    let mut session = Session::new(vec![source]);
    session.open(&CaptureRequest::default(), &setup.stop, &mut |_| {})?;
    let hear = |event: Event<'_>| match event {
        // After a change of keys, a window without a span has the sum of the earlier counts.
        Event::Window(window) if window.span.is_some() => print!("{}", lines(&window)), // tidy: allow(print): an example is a program
        Event::Fault { name, fault } | Event::LiveFault { name, fault } => {
            println!("{name}: {}", fault.what); // tidy: allow(print): an example is a program
        }
        _ => {}
    };
    let mut talkers = Handle::start(Run::new(setup), session, hear)?;
    let control = Arc::clone(talkers.control());
    std::thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            match line
                .parse()
                .map(|key| control.set_counting(Setting::Keys(vec![key]), PATIENCE))
            {
                Ok(Ok(_)) => {}
                Ok(Err(error)) => println!("{error}"), // tidy: allow(print): an example is a program
                Err(error) => println!("{error}"), // tidy: allow(print): an example is a program
            }
        }
    });
    let (ended, _) = talkers.join(Duration::MAX)??;
    println!(
        "{} received, {} measured",
        ended.ledger.received, ended.ledger.passed
    ); // tidy: allow(print): an example is a program
    Ok(())
}

fn lines(window: &Window<'_>) -> String {
    let mut text = format!("-- {} packets\n", window.arrivals.received);
    for row in window
        .state
        .map_or_else(Vec::new, |state| state.table(0, 5).rows)
    {
        let _ = writeln!(text, "{:>10} packets  {:?}", row.counts.packets, row.key);
    }
    text
}
