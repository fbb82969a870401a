//! `--reflect`: packets of another host's run go back to it, with the times of this host in them.

use super::limit::Limit;
use crate::capture::{self, AF_PACKET, CaptureRequest};
use crate::cli::GenerateArgs;
use crate::numbers::{counted, grouped};
use crate::outcome::{Outcome, say_plain, stop_on_signals};
use crate::port;
use crate::show::Show;
use crate::walls::Walls;
use anyhow::bail;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use weir_engine::capture::{Direction, Settings};
use weir_engine::reflection::{ReflectSink, run_number};
use weir_engine::run::{Run, Setup};
use weir_engine::session::Session;
use weir_messages::guards::sending_line;
use weir_messages::refusals::{Terms, refused};

/// Returns packets of the run of this name, until the time is over.
pub fn run(arguments: &GenerateArgs, name: &str) -> anyhow::Result<Outcome> {
    let sink = &arguments.sink;
    if !sink.utf8().starts_with(AF_PACKET) {
        bail!(
            "--reflect: packets go back by the interface at which they arrive: name it as in {AF_PACKET}eth1"
        );
    }
    let limit = Limit::of(arguments, None)?;
    port::check_guard(sink, &arguments.sending.yes_send)?;
    let stop = stop_on_signals();
    let walls = Walls::of_generate(arguments)?;
    let port = port::open(sink, &arguments.sending.yes_send)?;
    let mut session = Session::new(vec![sink.clone()]);
    let request = CaptureRequest {
        settings: Settings {
            direction: Direction::In,
            ..Settings::default()
        },
        ..CaptureRequest::default()
    };
    for line in capture::open(&mut session, &request, &stop)? {
        say_plain(&line);
    }
    if let Some(sender) = port::sender(sink) {
        let frames = format!("frames of the run {name}, back to their senders");
        let line = sending_line(
            &sink.text(),
            &sender,
            &frames,
            "as they come",
            &limit.words(),
        );
        say_plain(&line);
    }
    let reflector = ReflectSink::new(port, run_number(name), (limit.time, limit.packets));
    let turned = reflector.turned();
    let mut run = Run::new(Setup {
        main: (sink.text(), Some(Box::new(reflector))),
        stop: Arc::clone(&stop),
        ..Setup::default()
    });
    let mut show = Show::new(true, false, 1, false);
    if walls.begin(&session, &mut run, &Terms::PACKETS, &mut |event| {
        show.event(event)
    })? {
        session
            .read(&mut run, &mut |event| show.event(event))
            .map_err(|error| refused(&error, &Terms::PACKETS))?;
    }
    let (ended, outputs) = run.finish(&mut |event| show.event(event));
    show.outputs(&outputs, &ended);
    let lost: u64 = outputs.counts().map(|counts| counts.lost()).sum();
    let of = |count: &std::sync::atomic::AtomicU64| count.load(Ordering::Relaxed);
    say_plain(&format!(
        "{} returned, {}, {} refused, {} dropped",
        grouped(of(&turned.returned).saturating_sub(lost)),
        counted(of(&turned.others), "other packet"),
        grouped(lost),
        grouped(ended.ledger.dropped.source)
    ));
    Ok(Outcome::of(show.faults.is_empty()))
}
