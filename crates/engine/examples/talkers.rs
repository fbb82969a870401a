//! The largest flows of a capture, once per second of packet time: `talkers FILE`.

use std::sync::Arc;
use weir_engine::event::Event;
use weir_engine::name::Name;
use weir_engine::run::{Files, Run, Setup};
use weir_measure::{Config, Window, Windowing};
use weir_pipeline::measuring::Settings;
use weir_pipeline::select::Selection;

fn main() {
    let names: Vec<Name> = std::env::args_os().skip(1).map(Name::from).collect();
    let windowing = Windowing { window_ns: Some(1_000_000_000), late_ns: 1_000_000_000 };
    let config = Arc::new(Config { windowing, ..Config::default() });
    let mut run = Run::new(Setup {
        selection: Selection { at_once: true, ..Selection::default() },
        measure: Some(Settings { config, ..Settings::default() }),
        ..Setup::default()
    });
    let mut on = |event: Event<'_>| match event {
        Event::Window(window) => show(&window),
        Event::Fault { name, fault } => eprintln!("{name}: {}", fault.what), // tidy: allow(print): an example is a program
        _ => {}
    };
    let files = Files { names: &names, zstd_window: 128 << 20, follow: None };
    if let Err(error) = run.merged(&files, &mut on) {
        eprintln!("{error}"); // tidy: allow(print): an example is a program
        std::process::exit(2);
    }
    let (ended, _) = run.finish(&mut on);
    println!("{} received, {} measured", ended.ledger.received, ended.ledger.passed); // tidy: allow(print): an example is a program
}

fn show(window: &Window<'_>) {
    let Some(state) = window.state else { return };
    println!("-- {} packets", state.tally().passed); // tidy: allow(print): an example is a program
    for row in state.table(0, 5).rows {
        let flow = &row.key;
        println!("{:>10} packets  {flow:?}", row.counts.packets); // tidy: allow(print): an example is a program
    }
}
