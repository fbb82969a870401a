//! `--receive`: packets that carry their number and time are sent, and received at the same time.

use super::Sent;
use super::maker::{Maker, Wanted};
use super::pace::Pace;
use super::sender::Sender;
use super::steer::Steered;
use crate::cli::GenerateArgs;
use crate::ctl;
use crate::links::SenderLinks;
use crate::port::Port;
use crate::receive::{self, QUIET, Received, Receiver, wait_for_the_last};
use crate::walls::Walls;
use anyhow::{anyhow, bail};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_engine::pairing::Pairs;
use weir_engine::reflection::run_number;
use weir_generator::streams::Rate;

/// Checks that timestamps can be sent and received, and has all streams carry them.
pub fn check(arguments: &GenerateArgs, wanted: &mut Wanted) -> anyhow::Result<()> {
    let Some(name) = &arguments.receive else {
        return Ok(());
    };
    match arguments.round_trip {
        Some(_) => receive::check_there(name, &arguments.sink)?,
        None => receive::check(name, &arguments.sink)?,
    }
    if arguments.workers > 1 {
        bail!("--receive {name}: one sender notes the times of its packets: leave --workers out");
    }
    wanted
        .stamp(arguments.round_trip.as_deref().map(run_number))
        .map_err(|why| anyhow!("--receive {name}: {why}"))
}

/// Opens the other end, if there is to be one.
pub fn open(arguments: &GenerateArgs, streams: &[String]) -> anyhow::Result<Option<Receiver>> {
    let open = |name| {
        let pairs = match &arguments.round_trip {
            Some(run) => Pairs::of_trips(streams.len(), run_number(run)),
            None => Pairs::new(streams.len()),
        };
        let pairs = (pairs, streams);
        let (names, sinks) = (
            std::slice::from_ref(name),
            std::slice::from_ref(&arguments.sink),
        );
        Receiver::open(names, sinks, pairs, false)
    };
    arguments.receive.as_ref().map(open).transpose()
}

/// Sends packets, and receives them at the same time. Returns their fate, and the packets of each stream that were handed to the port.
pub fn exchange(
    (receiver, links): (Receiver, SenderLinks),
    walls: &Walls,
    (mut port, maker): (Port, &mut Maker),
    (rate, steered): ((Option<Rate>, bool), &Steered),
    (halt, end): (&Arc<AtomicBool>, Option<Duration>),
) -> anyhow::Result<(Sent, (Received, Vec<u64>), Pace)> {
    let name = port.name().clone();
    let sender_port = &mut port;
    let send = |pairs: &Mutex<Pairs>| {
        let mut pace = Pace::begin(&name, halt, end);
        let mut sender = Sender::new(sender_port, &mut *maker, &mut pace, rate).stamping();
        sender.steering = steered.steering();
        let done = sender.send();
        let streams = sender.streams();
        pace.ends_now();
        wait_for_the_last(pairs, halt, QUIET);
        (done, (maker.made, streams), pace)
    };
    let pairs = receiver.pairs();
    let begin = || Ok((steered.serve(halt, Some(pairs))?, links.watch()?));
    let ((done, (made, streams), pace), received) = receiver.meanwhile(walls, begin, send)?;
    ctl::tell_lost(&name, steered.steering());
    let sent = Sent {
        done,
        port,
        rows: Vec::new(),
        made,
    };
    Ok((sent, (received, streams), pace))
}
