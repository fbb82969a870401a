//! What matches an expression goes to a file that is rotated every minute, the rest is counted: `split FILE EXPRESSION COPY`.

use std::sync::Arc;
use weir_engine::claims::Claims;
use weir_engine::event::Event;
use weir_engine::file::{FileSettings, FileSink};
use weir_engine::name::Name;
use weir_engine::run::{Files, Run, Setup};
use weir_io::output::Rotation;
use weir_pipeline::select::Selection;

fn main() {
    let arguments: Vec<Name> = std::env::args_os().skip(1).map(Name::from).collect();
    let [source, expression, copy] = &arguments[..] else {
        eprintln!("split FILE EXPRESSION COPY"); // tidy: allow(print): an example is a program
        std::process::exit(2);
    };
    let sources = [source.clone()];
    let rotation = Rotation { seconds: Some(60), ..Rotation::default() };
    let settings = FileSettings { rotation, utc: true, ..FileSettings::default() };
    let sink = FileSink::new(copy, settings, &Arc::new(Claims::of(&sources)));
    let mut run = Run::new(Setup {
        selection: Selection { expression: expression.utf8().to_owned(), ..Selection::default() },
        main: (copy.as_output(), Some(Box::new(sink))),
        ..Setup::default()
    });
    let mut on = |event: Event<'_>| {
        if let Event::Fault { name, fault } = event {
            eprintln!("{name}: {}", fault.what); // tidy: allow(print): an example is a program
        }
    };
    let files = Files { names: &sources, zstd_window: 128 << 20, follow: None };
    if let Err(error) = run.one_by_one(&files, &mut on) {
        eprintln!("{error}"); // tidy: allow(print): an example is a program
        std::process::exit(2);
    }
    let (ended, _) = run.finish(&mut on);
    println!("{:?}", ended.stages); // tidy: allow(print): an example is a program
    println!("adds up: {}", ended.imbalance.is_none()); // tidy: allow(print): an example is a program
}
