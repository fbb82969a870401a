//! `weir replay`: sends the packets of captures again, each at its time.

use crate::cli::{self, replay::ReplayArgs};
use crate::ctl;
use crate::links::{Down, SenderLinks, Watch};
use crate::numbers::{bit_rate, bytes, counted, duration, grouped, rate};
use crate::outcome::{Outcome, answer, say, say_plain, stop_on_signals};
use crate::outputs::refuse_bare_interface;
use crate::port;
use crate::query::say_nothing_then;
use crate::rate::{say_behind, share_of_link, why_not_held};
use crate::receive::{self, QUIET, Receiver, wait_for_the_last};
use crate::script::Script;
use crate::show::Show;
use crate::sources::{self, Takes};
use crate::summary::Ending;
use crate::terminal;
use crate::times::Clock;
use crate::walls::Walls;
use crate::watch::sending::Screen;
use anyhow::{anyhow, bail};
use serde_json::{Value, json};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use weir_engine::event::On;
use weir_engine::name::Name;
use weir_engine::outputs::{Outputs, Target};
use weir_engine::pairing::Pairs;
use weir_engine::port::Counts;
use weir_engine::records::{self, Query};
use weir_engine::replay::{Addresses, Course, Rate, ReplaySink, Report, Second, Settings};
use weir_engine::run::{Ended, Run, Setup};
use weir_engine::session::{End, Session};
use weir_engine::sink::Note;
use weir_engine::steering::{Remote, Steering};
use weir_io::network::Network;
use weir_messages::guards::{injecting_line, sending_line};
use weir_messages::refusals::Terms;
use weir_pipeline::select::{Selection, Span};

/// Time of a replay without an end, if nobody says how long: a replay that was started by mistake ends by itself.
const ENDLESS: Duration = Duration::from_secs(60);

/// Runs the command.
pub fn run(arguments: ReplayArgs) -> anyhow::Result<Outcome> {
    let ports: Vec<Name> = [Some(&arguments.to), arguments.to2.as_ref()]
        .into_iter()
        .flatten()
        .map(port_name)
        .collect();
    for name in &ports {
        port::check_scheme(name)?;
        if !port::is_port(name) {
            bail!("--to {name}: name an interface, as in --to eth1, or null");
        }
        refuse_bare_interface(name)?;
        check_receiver(&arguments, name)?;
        port::check_guard(name, &arguments.sending.yes_send)?;
    }
    let receivers: Vec<Name> = [&arguments.receive, &arguments.receive2]
        .into_iter()
        .flatten()
        .cloned()
        .collect();
    match &receivers[..] {
        [] => {}
        [all] => ports
            .iter()
            .try_for_each(|port| receive::check(all, port))?,
        two => {
            for (name, port) in two.iter().zip(&ports) {
                receive::check(name, port)?;
            }
            receive::check_two(&two[0], &two[1])?;
        }
    }
    let rate = wanted_rate(&arguments, &ports[0])?;
    let stop = stop_on_signals();
    let (mut session, span) = session(&arguments)?;
    let takes = Takes::Flag(&arguments.filter, None);
    if let Some(line) = sources::absent("weir replay", &arguments.sources, takes)? {
        say(&line);
        return Ok(Outcome::Failed);
    }
    let walls = Walls::of_replay(&arguments, &session, &ports)?;
    let steer = &arguments.steer;
    let script = steer.script.as_ref().map(Script::read).transpose()?;
    let bound = ctl::bind(steer.control.as_ref(), &walls)?;
    let steering = steer.named().map(|_| Arc::<Steering>::default());
    let screen = steer.watch.then(|| {
        let sources: Vec<String> = arguments.sources.iter().map(Name::text).collect();
        let names = ("weir replay", ports[0].text(), sources.join(" "));
        Screen::new(names, arguments.sources.iter().any(Name::is_dash))
    });
    let screen = screen.transpose()?;
    let shift = Arc::new(AtomicU16::new(0));
    let mut settings = Settings {
        rate,
        longest_gap: arguments.gap_limit,
        end: end(&arguments),
        spins: arguments.spin,
        control: arguments.control_traffic,
        addresses: Addresses {
            destination: arguments.dst_mac,
            source: arguments.src_mac,
        },
        second: arguments.split_by.as_deref().map(|by| match by {
            "auto" => Second::Servers,
            expression => Second::Matching(expression.to_owned()),
        }),
        shift: Arc::clone(&shift),
        stop: Arc::clone(&stop),
        steering: steering.clone(),
        pairs: None,
        on_behind: say_behind,
    };
    let open = |name: &Name| {
        let yes_send = &arguments.sending.yes_send;
        let way = port::Injecting {
            to_stack: arguments.inject.to_stack,
            is_paced: rate != Rate::Max,
        };
        let port = port::open_or_inject(name, yes_send, way)?;
        if port.drops_injected() {
            say_plain(&port::dropping_line(name));
        }
        Ok::<_, anyhow::Error>(match arguments.digest {
            true => port.digesting(),
            false => port,
        })
    };
    let opened = ports.iter().map(open).collect::<Result<_, _>>()?;
    let of_ports: Vec<String> = match &ports[..] {
        [_] => Vec::new(),
        two => two.iter().map(Name::text).collect(),
    };
    let is_apart = receivers.len() > 1;
    let receiver = (!receivers.is_empty())
        .then(|| {
            let pairs = Pairs::of_bytes(ports.len(), is_apart);
            Receiver::open(&receivers, &ports, (pairs, &of_ports), arguments.utc)
        })
        .transpose()?;
    settings.pairs = receiver.as_ref().map(Receiver::pairs);
    let links = SenderLinks::open(&ports);
    let sink = ReplaySink::new(opened, settings).map_err(|why| anyhow!("--split-by: {why}"))?;
    let link = share_of_link(&ports[0], 1.0).ok();
    let remote = steering.clone().map(|steering| Remote {
        steering,
        stop: Arc::clone(&stop),
        rate: Box::new(move |text| ctl::read_rate(text, link, true)),
        traffic: None,
        making: Mutex::default(),
        pairs: receiver.as_ref().map(Receiver::pairs),
        streams: Vec::new(),
        ports: ports.clone(),
    });
    let course = sink.course();
    let target: Target = (ports[0].text(), Some(Box::new(sink)));
    let mut run = Run::new(Setup {
        selection: Selection {
            expression: arguments.filter.clone(),
            span,
            slow: crate::outcome::slow_compilation(),
            ..Selection::default()
        },
        main: target,
        limit: arguments.stop_after,
        stop: Arc::clone(&stop),
        ..Setup::default()
    });
    run.compile()
        .map_err(|error| weir_messages::refusals::refused(&error, &Terms::PACKETS))?;
    let words = (rate_words(&arguments, rate), end_words(&arguments));
    for name in &ports {
        tell_begin(&arguments, name, &words);
    }
    // The time of the replay says more than the part of the file that is read ahead.
    let mut show = Show::new(true, false, 1, false);
    let (mut fronts, mut watch) = (None, None);
    let fronts_of = (script.clone(), screen);
    let begin = || {
        if let Some(remote) = remote {
            fronts = Some(ctl::serve_sender(bound, fronts_of, remote)?);
        }
        watch = Some(links.watch()?);
        Ok(())
    };
    let replay = Replay {
        arguments: &arguments,
        stop: &stop,
        course: &course,
        shift: &shift,
    };
    let (ended, outputs, received) = match receiver {
        None => {
            let on: On<'_> = &mut |event| show.event(event);
            if walls.begin(&session, &mut run, &Terms::PACKETS, on)? {
                begin()?;
                replay.read(&mut session, &mut run, &mut show)?;
            }
            let (ended, outputs) = run.finish(&mut |event| show.event(event));
            (ended, outputs, None)
        }
        Some(receiver) => {
            let (session, show) = (&mut session, &mut show);
            let work = |pairs: &Mutex<Pairs>| {
                let read = replay.read(session, &mut run, show);
                let (ended, outputs) = run.finish(&mut |event| show.event(event));
                // Packets of two captures wait for each other, for up to half a second.
                let quiet = if is_apart { QUIET * 2 } else { QUIET };
                wait_for_the_last(pairs, &stop, quiet);
                read.map(|()| (ended, outputs))
            };
            let (done, received) = receiver.meanwhile(&walls, begin, work)?;
            let (ended, outputs) = done?;
            (ended, outputs, Some(received))
        }
    };
    drop(fronts);
    let down = watch.map_or_else(Down::default, Watch::end);
    ctl::tell_lost(&ports[0], steering.as_deref());
    show.outputs(&outputs, &ended);
    if let Some(query) = &session.query {
        say_nothing_then(query, arguments.utc);
    }
    let report = course.with(Report::clone);
    // Also the packets behind the failure of a port.
    let refused = outputs.counts().map(|counts| counts.lost()).sum();
    let done = finish(
        &arguments,
        &mut show,
        &ended,
        &Sent {
            report: report.clone(),
            refused,
            dropped: dropped(&outputs),
            down,
            is_received: !receivers.is_empty(),
            ports: of_ports,
        },
        stop.load(Ordering::Relaxed),
    );
    let told = received.map_or(Outcome::Done, |received| {
        let how = (arguments.json, arguments.strict);
        let ports = report.ports.iter();
        let ports: Vec<(u64, u64)> = ports.map(|it| (it.sent, it.refused())).collect();
        received.tell(how, (sent(&report).0, refused), &ports)
    });
    let has_failed = script.is_some_and(|script| script.has_failed());
    Ok(Outcome::of(
        done == Outcome::Done && told == Outcome::Done && !has_failed,
    ))
}

/// A replay that begins.
struct Replay<'a> {
    arguments: &'a ReplayArgs,
    stop: &'a AtomicBool,
    course: &'a Course,
    shift: &'a AtomicU16,
}

impl Replay<'_> {
    /// Reads the sources, which have begun, as often as wanted.
    fn read(&self, session: &mut Session, run: &mut Run, show: &mut Show) -> anyhow::Result<()> {
        let course = self.course;
        let times = match self.arguments.loops {
            None => 1,
            Some(0) => u64::MAX,
            Some(times) => times,
        };
        for round in 0..times {
            if self.arguments.shift_addresses {
                // After 65 536 rounds the addresses are those of the first one again.
                self.shift.store(round as u16, Ordering::Relaxed);
            }
            let before = course.with(|report| report.packets + report.control);
            if round > 0 && (self.stop.load(Ordering::Relaxed) || run.outputs().are_over()) {
                break;
            }
            session
                .read(run, &mut |event| show.event(event))
                .map_err(|error| weir_messages::refusals::refused(&error, &Terms::PACKETS))?;
            if course.with(|report| report.packets + report.control) == before {
                // Files without packets would be read for ever.
                break;
            }
        }
        Ok(())
    }
}

/// An interface as a port.
fn port_name(name: &Name) -> Name {
    match port::is_port(name) || name.utf8().contains(':') {
        true => name.clone(),
        false => Name::from(format!("af_packet:{}", name.text())),
    }
}

/// Refuses to send frames of a capture to unknown stations: by an interface that is not the end of a virtual cable.
fn check_receiver(arguments: &ReplayArgs, name: &Name) -> anyhow::Result<()> {
    let Some(interface) = port::interface(name) else {
        return Ok(());
    };
    let network = Network::read().unwrap_or_default();
    let found = network.named(interface);
    let is_cable = found.is_none_or(|it| it.is_cable);
    if is_cable || arguments.dst_mac.is_some() || arguments.as_is {
        return Ok(());
    }
    if found.is_some_and(|it| it.is_loopback) {
        bail!(
            "{interface} brings packets back to this host, which answers those that are for it: send them --as-is all the same, or by the \
             end of a virtual cable"
        );
    }
    bail!(
        "{interface} leads to other stations, and the frames have the addresses of the capture: name the station that is to get \
         them with --dst-mac MAC, or send them --as-is"
    )
}

/// The sources, and the times of their packets to send.
fn session(arguments: &ReplayArgs) -> anyhow::Result<(Session, Span)> {
    sources::check(&arguments.sources, false)?;
    let mut session = Session::new(arguments.sources.clone());
    if session.is_live() {
        bail!(
            "{} is an interface, and a replay sends what was captured: weir filter '' {} -w af_packet:IF sends on what comes",
            arguments.sources[0],
            arguments.sources[0]
        );
    }
    if arguments.loops.is_some() && arguments.sources.iter().any(Name::is_dash) {
        bail!("--loop reads its sources again, and standard input can be read once: name a file");
    }
    let clock = Clock::new(arguments.utc);
    let from = clock.meaning("--from", arguments.from.as_ref())?;
    let until = clock.meaning("--until", arguments.until.as_ref())?;
    let span = Span {
        from_ns: from.map(|time| time.first_ns),
        to_ns: until.map(|time| time.last_ns),
        last_ns: None,
    };
    if let (Some(from), Some(until)) = (span.from_ns, span.to_ns)
        && from > until
    {
        bail!("--from is later than --until: no packet can lie between them");
    }
    if arguments
        .sources
        .iter()
        .any(|name| Path::new(name).is_dir())
    {
        // The index says which parts of a record are read.
        session.query = Some(Arc::new(Query::new(records::Selection {
            from_ns: span.from_ns,
            to_ns: span.to_ns,
            ..records::Selection::default()
        })));
    }
    Ok((session, span))
}

/// The rate in the units of the engine.
fn wanted_rate(arguments: &ReplayArgs, port: &Name) -> anyhow::Result<Rate> {
    let &ReplayArgs {
        rate,
        speed,
        pps,
        mbps,
        topspeed,
        ..
    } = arguments;
    let rate = match (pps, mbps) {
        _ if topspeed => cli::Rate::Max,
        (Some(pps), _) if pps > 0.0 => cli::Rate::Packets(pps),
        (_, Some(mbps)) if mbps > 0.0 => cli::Rate::Bits(mbps * 1e6),
        (None, None) => rate,
        _ => bail!("-p and -M take a rate above 0"),
    };
    if speed.is_some() && rate != cli::Rate::Original {
        bail!(
            "--speed is about the times of the capture, and --rate replaces them: leave one of them out"
        );
    }
    Ok(match rate {
        cli::Rate::Original => Rate::Original(speed.unwrap_or(1.0)),
        cli::Rate::Max => Rate::Max,
        cli::Rate::Packets(per_s) => Rate::Packets(per_s),
        cli::Rate::Bits(per_s) => Rate::Bits(per_s),
        cli::Rate::Share(share) => Rate::Bits(share_of_link(port, share)?),
    })
}

/// Time after which no packet leaves.
fn end(arguments: &ReplayArgs) -> Option<Duration> {
    let is_endless = arguments.loops == Some(0) || arguments.sources.iter().any(Name::is_dash);
    let bounded = arguments.duration.is_some() || arguments.stop_after.is_some();
    match is_endless && !bounded {
        true => Some(ENDLESS),
        false => arguments.duration,
    }
}

fn rate_words(arguments: &ReplayArgs, wanted: Rate) -> String {
    match wanted {
        Rate::Original(_) => match arguments.speed {
            None => "at the times of the capture".to_owned(),
            Some(speed) => format!("{speed} times as fast as captured"),
        },
        Rate::Packets(per_s) => format!("{} packets/s", rate(per_s)),
        Rate::Bits(per_s) => bit_rate(per_s),
        Rate::Max => "as fast as it takes them".to_owned(),
    }
}

fn end_words(arguments: &ReplayArgs) -> String {
    match (end(arguments), arguments.loops) {
        (Some(time), _) => format!("for at most {}", duration(time)),
        (None, Some(times)) if times > 1 => format!("{times} times"),
        (None, _) => "until the source ends".to_owned(),
    }
}

/// A line before the first packet leaves an interface.
fn tell_begin(arguments: &ReplayArgs, name: &Name, (rate, end): &(String, String)) {
    let frames = match (arguments.dst_mac, arguments.src_mac) {
        (None, None) => "frames as they are",
        (Some(_), None) => "with another destination address",
        (None, Some(_)) => "with another source address",
        (Some(_), Some(_)) => "with other link addresses",
    };
    if let Some(sender) = port::sender(name) {
        let line = match port::injected(name) {
            Some(_) => injecting_line,
            None => sending_line,
        };
        say_plain(&line(&name.text(), &sender, frames, rate, end));
    }
}

/// Packets that left, and that did not.
struct Sent {
    report: Report,
    refused: u64,
    /// Packets that interfaces dropped after they had taken them, of all senders.
    dropped: u64,
    /// Times in which links were down.
    down: Down,
    /// Whether there is a receiver: then the packets that arrived tell what was lost.
    is_received: bool,
    /// Names of the ports, if there are two.
    ports: Vec<String>,
}

/// Prints the end, and returns the outcome.
fn finish(
    arguments: &ReplayArgs,
    show: &mut Show,
    ended: &Ended,
    result: &Sent,
    is_stopped: bool,
) -> Outcome {
    let report = &result.report;
    let is_held = report.late.is_held();
    if !is_held {
        let why = why_not_held(report.halted, report.late);
        show.say(&format!(
            "the rate was not held: {why}, {} at most; a lower --rate or --speed, or a faster port helps",
            time_words(report.lateness.max())
        ));
    }
    // A port that a signal, a key, a script or a lost connection stops takes no more packets.
    let ending = Ending {
        by: match ended.by {
            End::Output if is_stopped => End::Signal,
            by => by,
        },
        ..Ending::default()
    };
    let answered = match arguments.json {
        true => answer(&format!(
            "{}\n",
            terminal::json(
                "replay",
                &object(show, ended, result, ending.is_interrupted())
            )
        )),
        false => Outcome::Done,
    };
    if !show.is_unread() {
        say_plain(&summary(ended, result, ending.is_interrupted()));
    }
    let has_lost = !result.is_received && (result.dropped > 0 || result.down.times > 0);
    let failed = !show.faults.is_empty() || arguments.strict && (!is_held || has_lost);
    Outcome::of(!failed && answered == Outcome::Done)
}

/// Packets that interfaces dropped after they had taken them.
fn dropped(outputs: &Outputs) -> u64 {
    let reports = outputs.reports().filter_map(|(_, report)| report);
    let packets = |note| match note {
        Note::Dropped { packets, .. } => packets,
        _ => 0,
    };
    reports.flat_map(|it| it.notes).map(packets).sum()
}

/// Packets and bytes that left all ports.
fn sent(report: &Report) -> (u64, u64) {
    let ports = report.ports.iter();
    ports.fold((0, 0), |(packets, bytes), port| {
        (packets + port.sent, bytes + port.bytes)
    })
}

fn summary(ended: &Ended, result: &Sent, is_interrupted: bool) -> String {
    let Sent {
        report,
        refused,
        ports,
        down,
        ..
    } = result;
    let (packets, sent_bytes) = sent(report);
    let seconds = report.took.as_secs_f64().max(1e-9);
    let ledger = &ended.ledger;
    let mut parts = vec![
        format!("{} read", grouped(ledger.received)),
        format!("{} sent", grouped(packets)),
        bytes(sent_bytes),
        duration(report.took),
        format!("{} packets/s", rate(packets as f64 / seconds)),
        format!(
            "{} (frames without FCS)",
            bit_rate(sent_bytes as f64 * 8.0 / seconds)
        ),
    ];
    if ledger.filtered > 0 {
        parts.insert(1, format!("{} filtered", grouped(ledger.filtered)));
    }
    if report.control > 0 {
        parts.push(format!(
            "{} left out (--control-traffic)",
            counted(report.control, "control packet")
        ));
    }
    for (port, &left_out) in ports.iter().zip(&report.left_out) {
        if left_out > 0 {
            let packets = counted(left_out, "packet");
            parts.push(format!("{packets} of {port} left out while it was stopped"));
        }
    }
    parts.push(format!("{} refused", grouped(*refused)));
    if down.times > 0 {
        let (times, time) = (counted(down.times, "time"), duration(down.time));
        parts.push(format!("link down {times}, for {time} in all"));
    }
    if !report.lateness.is_empty() {
        let [half, most] = [0.5, 0.99].map(|share| report.lateness.value_at_quantile(share));
        parts.push(format!(
            "late p50 {}, p99 {}, max {}",
            time_words(half),
            time_words(most),
            time_words(report.lateness.max())
        ));
    }
    if let Some(digest) = report.digest {
        parts.push(format!("digest {digest}"));
    }
    if is_interrupted {
        parts.push("interrupted".to_owned());
    }
    parts.join(", ")
}

/// A time in a unit that suits it: `850 ns`, `3.7 us`, `12.4 ms`, `1.2 s`.
fn time_words(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        _ if ns < 1e3 => format!("{ns:.0} ns"),
        _ if ns < 1e6 => format!("{:.1} us", ns / 1e3),
        _ if ns < 1e9 => format!("{:.1} ms", ns / 1e6),
        _ => format!("{:.1} s", ns / 1e9),
    }
}

fn object(show: &Show, ended: &Ended, result: &Sent, is_interrupted: bool) -> Value {
    let Sent {
        report,
        refused,
        ports,
        ..
    } = result;
    let (packets, bytes) = sent(report);
    let ledger = &ended.ledger;
    let at = |share: f64| report.lateness.value_at_quantile(share);
    let mut object = json!({
        "received": ledger.received,
        "filtered": ledger.filtered,
        "control": report.control,
        "sent": packets,
        "bytes": bytes,
        "refused": refused,
        "planned_s": report.planned.as_secs_f64(),
        "took_s": report.took.as_secs_f64(),
        "dropped": result.dropped,
        "link_down": {
            "times": result.down.times,
            "ns": u64::try_from(result.down.time.as_nanos()).unwrap_or(u64::MAX),
        },
        "held": report.late.is_held(),
        "digest": report.digest.map(|digest| digest.to_string()),
        "late_ns": {
            "p50": at(0.5), "p99": at(0.99), "p999": at(0.999), "max": report.lateness.max(),
        },
        "fault": show.faults.first(),
    });
    if !ports.is_empty() {
        let all = ports.iter().zip(&report.ports).zip(&report.left_out);
        let port = |((name, counts), left_out): ((&String, &Counts), &u64)| {
            json!({
                "name": name, "sent": counts.sent, "bytes": counts.bytes, "refused": counts.refused(), "left_out": left_out,
            })
        };
        object["ports"] = all.map(port).collect();
    }
    if is_interrupted {
        object["interrupted"] = true.into();
    }
    object
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        let words = [850, 3_700, 12_400_000, 1_200_000_000].map(time_words);
        assert_eq!(words, ["850 ns", "3.7 us", "12.4 ms", "1.2 s"]);
    }
}
