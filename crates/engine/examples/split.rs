//! Writes matching packets to one file, rotated every minute, and all others to another: `split FILE EXPRESSION COPY REST`.

use std::sync::Arc;
use weir_engine::claims::Claims;
use weir_engine::event::Event;
use weir_engine::file::{FileSettings, FileSink};
use weir_engine::name::Name;
use weir_engine::outputs::Target;
use weir_engine::run::{Run, Setup};
use weir_engine::session::Session;
use weir_engine::sink::Wanted;
use weir_io::output::Rotation;
use weir_pipeline::select::Selection;

fn main() {
    let arguments: Vec<Name> = std::env::args_os().skip(1).map(Name::from).collect();
    let [source, expression, copy, rest] = &arguments[..] else {
        eprintln!("split FILE EXPRESSION COPY REST"); // tidy: allow(print): an example is a program
        std::process::exit(2);
    };
    let sources = vec![source.clone()];
    let rotation = Rotation {
        seconds: Some(60),
        ..Rotation::default()
    };
    let settings = FileSettings {
        rotation,
        utc: true,
        ..FileSettings::default()
    };
    let claims = Arc::new(Claims::of(&sources));
    let output = |name: &Name, wanted| -> Target {
        let settings = FileSettings { wanted, ..settings };
        (
            name.as_output(),
            Some(Box::new(FileSink::new(name, settings, &claims))),
        )
    };
    // Every passed packet matches the empty expression of the split, so the rejected packets are those of the filter.
    let splits = vec![String::new()];
    let mut run = Run::new(Setup {
        selection: Selection {
            expression: expression.utf8().to_owned(),
            splits,
            ..Selection::default()
        },
        main: output(copy, Wanted::Matching),
        splits: vec![output(rest, Wanted::Rejected)],
        ..Setup::default()
    });
    let mut on = |event: Event<'_>| {
        if let Event::Fault { name, fault } = event {
            eprintln!("{name}: {}", fault.what); // tidy: allow(print): an example is a program
        }
    };
    if let Err(error) = Session::new(sources).read(&mut run, &mut on) {
        eprintln!("{error}"); // tidy: allow(print): an example is a program
        std::process::exit(2);
    }
    let (ended, _) = run.finish(&mut on);
    println!("{:?}", ended.stages); // tidy: allow(print): an example is a program
    println!("adds up: {}", ended.imbalance.is_none()); // tidy: allow(print): an example is a program
}
