//! `weir firewall` between interfaces, with rules that change meanwhile.

use super::files::FileMaker;
use super::report::{self, Report};
use super::rules_file::RulesFile;
use super::{bans, called, control_packets, control_socket};
use crate::capture;
use crate::cli::firewall::{Fail, FirewallArgs};
use crate::cli::{DirectionArg, DistributeArg};
use crate::filter_file;
use crate::outcome::{Outcome, io_words, print, say, say_plain, stop_on_signals};
use crate::port;
use crate::show::Show;
use crate::summary::Ending;
use crate::walls::Walls;
use crate::watch::{self, Links, Shared, Waiting};
use anyhow::{Context, bail};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::Instant;
use weir_engine::capture::FanoutBy;
use weir_engine::event::Event;
use weir_engine::firewall::SharedPolicy;
use weir_engine::firewall::changes::GivenRules;
use weir_engine::firewall::confirm;
use weir_engine::firewall::control_port::ControlPort;
use weir_engine::firewall::controller::{Controller, ReadRules};
use weir_engine::firewall::ends::LiveEnds;
use weir_engine::firewall::forwarding::{
    Attendant, Error, Forwarding, Notice, RulesCheck, Settings, Way, Work, is_by_af_packet,
};
use weir_engine::firewall::kept::Keeper;
use weir_engine::firewall::reject::AnswerCounts;
use weir_engine::firewall::remote::{self, Output};
use weir_engine::ledger::Ledger;
use weir_engine::name::Name;
use weir_engine::outputs::Target;
use weir_engine::run::Ended;
use weir_engine::session::End;
use weir_engine::socket::{self, Bound};
use weir_firewall::rules::RuleList;
use weir_io::sys;
use weir_measure::health::Parts;
use weir_messages::captures;
use weir_messages::events::Line;
use weir_messages::forwarding::{
    closed_line, file_line, occurrence_line, refused, reloaded_line, rules_refused, standing_lines,
    stranger_line, without_xdp_line,
};
use weir_messages::measurement::Options;
use weir_messages::viewing::Lacks;
use weir_pipeline::measuring;

/// Forwards between interfaces, or from an interface to a file.
pub fn run(arguments: &FirewallArgs, source: &Name, sink: &Name) -> anyhow::Result<Outcome> {
    let file = arguments.rules_file();
    let rules = file.as_ref();
    let name = rules.map(|rules| &rules.name);
    let refusal = |error: Error| refused(error, &called(rules));
    check(arguments, source, sink)?;
    let mut forwarding = Forwarding::new(settings(arguments, source, sink)).map_err(refusal)?;
    let policy = super::policy_of(arguments, true)?;
    check_rules(
        forwarding.rules_check(),
        &called(rules),
        policy.rules().list(),
    )?;
    let control = control_packets::port(arguments, true)?;
    let ends = Arc::<LiveEnds>::default();
    forwarding.claim().map_err(refusal)?;
    let files = FileMaker::new(arguments, source, forwarding.sink(), true)?;
    let socket = control_socket::place(arguments.control.as_ref(), source, forwarding.sink())?;
    let mut walls = walls(arguments, &forwarding, name, &socket)?;
    let mut bans = bans::open(arguments, source, forwarding.sink(), &mut walls)?;
    bans.restore(&policy, &ends)?;
    let (stop, standing_asked) = (stop_on_signals(), Arc::<AtomicBool>::default());
    sys::tell_on_signal(Arc::clone(&standing_asked));
    let hangups = sys::hangups().context("SIGHUP")?;
    arguments.duration.into_iter().for_each(sys::stop_after);
    let bound = control_socket::bind(&socket, "weir firewall", &walls)?;
    let view = arguments.viewers.view.as_ref();
    let waiting = watch::bind(view, arguments.control.as_ref(), &walls)?;
    let shared = view.map(|_| shared(source, forwarding.sink()));
    let port = control.as_ref().map(|(port, _)| port);
    let measure = view.map(|_| measurement(source)).transpose()?;
    let work = work(&policy, &ends, port, (files.outputs()?, measure));
    let mut about = Vec::new();
    let opened = forwarding.open(work, &stop, &mut |notice| hear(notice, &mut about));
    if !opened.map_err(refusal)? {
        return Ok(Outcome::Done);
    }
    let kept = forwarding.rights();
    walls.raise(&kept)?;
    if let Some(shared) = &shared {
        let sources = [source.clone()];
        let speed = watch::link_speed(&sources);
        shared.open(Links::open(&sources), forwarding.place(), speed);
    }
    let has_files = !written_files(arguments, &forwarding).is_empty();
    let new_show = |_: &Way| Show::new(true, false, 1, has_files).telling_changes(has_files);
    let mut shows: Vec<Show> = forwarding.ways().iter().map(new_show).collect();
    let begun = forwarding.begin(&mut |number, event| shows[number].event(event));
    if !begun.map_err(refusal)? {
        return Ok(Outcome::Done);
    }
    walls.opened(&kept);
    about.extend(about_lines(arguments, source, forwarding.sink()));
    let further = control.map(|(_, about)| about);
    let lines = about.into_iter().chain(further);
    lines.for_each(|line| say_plain(&line));
    say_plain(bans.about());
    say_strangers(
        forwarding.rules_check(),
        &called(rules),
        policy.rules().list(),
    );
    let running = Running {
        arguments,
        rules,
        forwarding,
        shows,
        stop,
        standing_asked,
        shared,
    };
    // The sandbox opens the directories of the files for a socket that was asked for.
    let output = arguments.control.as_ref().and_then(|_| files.replaced());
    running.serve((bound, waiting), bans.keep(&ends)?, output, hangups)
}

/// A firewall whose captures have begun.
struct Running<'a> {
    arguments: &'a FirewallArgs,
    rules: Option<&'a RulesFile>,
    forwarding: Forwarding,
    /// Messages of each direction.
    shows: Vec<Show>,
    stop: Arc<AtomicBool>,
    /// Flag that a signal sets to ask for the state.
    standing_asked: Arc<AtomicBool>,
    /// The view for viewers.
    shared: Option<Arc<Shared>>,
}

/// The measurement that viewers of a firewall see: what passes, by the keys of a screen, in the threads that forward.
fn measurement(source: &Name) -> anyhow::Result<measuring::Settings> {
    let options = Options {
        health: Parts::default(),
        findings: false,
        reads_names: false,
        ..watch::measurement()
    };
    Ok(options.settings(std::slice::from_ref(source))?)
}

fn shared(source: &Name, sink: &Name) -> Arc<Shared> {
    let about = watch::About {
        sources: format!("{source} to {sink}"),
        filter: String::new(),
        is_live: true,
        local: None,
        lacks: Lacks {
            findings: true,
            tcp: true,
            dns: true,
        },
    };
    Arc::new(Shared::new(about, &watch::Past::default()))
}

impl Running<'_> {
    /// Takes requests and forwards packets, to the end.
    fn serve(
        mut self,
        (bound, waiting): (Bound, Option<Waiting>),
        keeper: Option<Keeper>,
        output: Option<Output>,
        hangups: filter_file::Hangups,
    ) -> anyhow::Result<Outcome> {
        let name = self.rules.map(|rules| &rules.name);
        let controller = self
            .forwarding
            .control(reader(&self.forwarding, self.rules))?;
        let socket = format!("control socket: {}", bound.path().display());
        let handler = Arc::clone(&controller);
        let server = bound.serve(socket::Settings::default(), move |request| {
            remote::request(&handler, output.as_ref(), &request)
        })?;
        say_plain(&socket);
        let serving = waiting.zip(self.shared.as_ref());
        let serving = serving.map(|(waiting, shared)| waiting.serve(shared));
        let serving = serving.transpose()?;
        reload_on_hangup(hangups, name, &controller)?;
        if let Some(time) = self.arguments.confirm {
            controller.await_confirmation(time);
            say_plain(&report::awaited_line(true, time));
        }
        let begun = Instant::now();
        let mut attendant = Attendant::new(&controller, name, &self.stop);
        let by =
            self.forwarding
                .forward(hears(&mut self.shows, self.shared.as_deref()), &mut || {
                    say_standing(&self.standing_asked, &controller);
                    attendant
                        .attend(&mut |occurrence| say_line(occurrence_line(&occurrence, name)));
                });
        let by = by.map_err(|error| refused(error, &called(self.rules)))?;
        let place = self.forwarding.place();
        // The packets that arrive from now on are the host's again.
        let ways = self.forwarding.end();
        // No request comes between the last write and the end.
        drop((server, serving));
        let unkept = bans::finish(keeper);
        let is_undone = attendant.is_undone();
        let ending = Ending {
            by: if is_undone { End::default() } else { by },
            is_endless: true,
            has_duration: self.arguments.duration.is_some(),
        };
        let ways = ways.into_iter().zip(self.shows);
        let done = finish(self.arguments, ways, place, (begun, ending), unkept)?;
        Ok(if is_undone { Outcome::Failed } else { done })
    }
}

/// Refuses arguments that contradict each other before anything is opened.
fn check(arguments: &FirewallArgs, source: &Name, sink: &Name) -> anyhow::Result<()> {
    bans::check(arguments)?;
    if port::is_port(sink) {
        port::check_scheme(sink)?;
    }
    capture::check_queue(source)?;
    if arguments.live.direction != DirectionArg::Inout {
        bail!("-Q: a firewall judges what an interface receives");
    }
    let rules = arguments.rules_file().map(|rules| rules.name);
    if rules.as_ref().is_some_and(Name::is_dash) {
        bail!("the rules are read again while the firewall runs: give a file, not standard input");
    }
    if let Some(rules) = rules
        && std::fs::metadata(&rules).is_ok_and(|about| !about.is_file())
    {
        bail!("{rules} is not a regular file: the rules are read again while the firewall runs");
    }
    let is_too_long = |time| time > confirm::LONGEST;
    if arguments
        .confirm
        .is_some_and(|time| time.is_zero() || is_too_long(time))
    {
        bail!("--confirm: a time above 0, up to a day, is left for weir firewall ctl confirm");
    }
    if arguments.duration.is_some_and(|time| time.is_zero()) {
        bail!("--duration 0s: a firewall that ends at once forwards nothing");
    }
    Ok(())
}

fn settings(arguments: &FirewallArgs, source: &Name, sink: &Name) -> Settings {
    let capture = capture::settings(&arguments.live);
    let fanout = match arguments.distribute {
        // Also --fanout, which excludes the other two.
        DistributeArg::Flow => capture.fanout,
        DistributeArg::Address => FanoutBy::Address,
        DistributeArg::Random => FanoutBy::Random,
    };
    Settings {
        source: source.clone(),
        sink: sink.clone(),
        bidirectional: arguments.bidirectional,
        tap: arguments.tap,
        fails_open: arguments.fail == Fail::Open,
        capture: weir_engine::capture::Settings { fanout, ..capture },
        workers: arguments.judging.workers.map(usize::from),
        departure: arguments.judging.to.clone(),
        writes: arguments.write.is_some(),
        obeys_packets: arguments.control_port.is_some(),
        yes_take: arguments.live.taking.yes_take.clone(),
        yes_send: arguments.yes_send(),
    }
}

fn work(
    policy: &Arc<SharedPolicy>,
    ends: &Arc<LiveEnds>,
    control: Option<&Arc<ControlPort>>,
    ((file, written), measure): (
        (Option<Target>, Option<Target>),
        Option<measuring::Settings>,
    ),
) -> Work {
    Work {
        policy: Arc::clone(policy),
        ends: Arc::clone(ends),
        control: control.map(Arc::clone),
        file,
        written,
        measure,
    }
}

/// Files that are written.
fn written_files(arguments: &FirewallArgs, forwarding: &Forwarding) -> Vec<Name> {
    let sink = Some(forwarding.sink()).filter(|sink| !port::is_port(sink));
    arguments.write.iter().chain(sink).cloned().collect()
}

fn walls(
    arguments: &FirewallArgs,
    forwarding: &Forwarding,
    rules: Option<&Name>,
    socket: &Path,
) -> anyhow::Result<Walls> {
    let files = written_files(arguments, forwarding);
    let (walls, replaces) = (&arguments.judging.walls, arguments.control.is_some());
    let needs = forwarding.needs();
    let mut made = Walls::of_firewall_between(walls, &needs, (&files, replaces), rules, socket)?;
    made.shows(arguments.viewers.view.as_ref());
    Ok(made)
}

/// Prints notices of the opening, and keeps lines on what is open for later.
fn hear(notice: Notice<'_>, about: &mut Vec<String>) {
    match notice {
        Notice::Capture(notice) => capture::hear(notice),
        Notice::WithoutXdp(error) => say(&without_xdp_line(error)),
        Notice::Opened { closed, session } => {
            about.extend(closed.map(closed_line));
            about.extend(captures::about(session));
        }
        _ => {}
    }
}

/// Lines on where packets go, and in which order.
fn about_lines(arguments: &FirewallArgs, source: &Name, sink: &Name) -> Vec<String> {
    let mut about = Vec::new();
    if !port::is_port(sink) {
        about.push(file_line(sink, is_by_af_packet(source)));
    }
    if arguments.distribute == DistributeArg::Random {
        about.push("--distribute random: packets of a flow may leave in another order".to_owned());
    }
    about
}

/// Prints the state of the directions, if a signal asked for it.
fn say_standing(asked: &AtomicBool, controller: &Controller) {
    if asked.swap(false, Ordering::Relaxed) {
        let lines = standing_lines(&controller.standing());
        lines.iter().for_each(|line| say_plain(line));
    }
}

fn say_line(line: Line) {
    match line {
        Line::Plain(line) => say_plain(&line),
        Line::Remark(line) | Line::Fault(line) => say(&line),
    }
}

/// Functions that hear the events of the directions.
fn hears<'a>(
    shows: &'a mut [Show],
    shared: Option<&'a Shared>,
) -> impl Iterator<Item = Box<dyn FnMut(Event<'_>) + Send + 'a>> {
    shows.iter_mut().enumerate().map(move |(number, show)| {
        let hear = move |event: Event<'_>| {
            if let Some(shared) = shared {
                shared.hear(&event, number > 0);
            }
            show.event(event);
        };
        Box::new(hear) as Box<dyn FnMut(Event<'_>) + Send + 'a>
    })
}

fn check_rules(check: &RulesCheck, called: &str, list: &RuleList) -> anyhow::Result<()> {
    let checked = check.check(list);
    Ok(checked.map_err(|error| rules_refused(&error, called))?)
}

fn say_strangers(check: &RulesCheck, called: &str, list: &RuleList) {
    let strangers = check.strangers(list);
    let lines = strangers
        .iter()
        .map(|stranger| stranger_line(stranger, called));
    lines.for_each(|line| say(&line));
}

/// Function that reads the rules again, or the rules of a request.
fn reader(forwarding: &Forwarding, rules: Option<&RulesFile>) -> ReadRules {
    let (check, rules) = (Arc::clone(forwarding.rules_check()), rules.cloned());
    let read = move |given: Option<&GivenRules<'_>>| {
        let new = super::new_rules(rules.as_ref(), given)?;
        check_rules(&check, &new.called, new.classifier.list())?;
        say_strangers(&check, &new.called, new.classifier.list());
        anyhow::Ok(new)
    };
    Box::new(move |given| read(given).map_err(|error| error.to_string()))
}

fn reload_on_hangup(
    hangups: filter_file::Hangups,
    rules: Option<&Name>,
    controller: &Arc<Controller>,
) -> anyhow::Result<()> {
    let (rules, controller) = (rules.cloned(), Arc::clone(controller));
    let work = move || {
        while hangups.wait().is_ok() {
            if let Some(rules) = &rules {
                say(&reloaded_line(&controller.reload(), Some(rules)));
            }
        }
    };
    Builder::new()
        .name("reload".to_owned())
        .spawn(work)
        .map(drop)
        .context("a thread that waits for SIGHUP")
}

/// Completes the outputs, and prints the answer.
fn finish(
    arguments: &FirewallArgs,
    ways: impl Iterator<Item = (Way, Show)>,
    place: &'static str,
    (begun, ending): (Instant, Ending),
    unkept: Option<String>,
) -> anyhow::Result<Outcome> {
    let (mut faults, mut counts) = (Vec::new(), None);
    if let Some(unkept) = unkept {
        say(&unkept);
        faults.push(unkept);
    }
    let mut directions: Vec<(String, String, Ledger)> = Vec::new();
    let called = called(arguments.rules_file().as_ref());
    let (mut nameless, mut aimless, mut answers) = (0, 0, AnswerCounts::default());
    for (way, mut show) in ways {
        let (source, sink) = (way.source.as_source(), way.sink.as_output());
        // Frames that were merged, or came without their checksum, were finished before they were sent.
        show.end_of_forwarding();
        let (ended, outputs) = way.finish(&mut |event| show.event(event));
        let lost = outputs
            .reports()
            .next()
            .and_then(|(_, report)| Some(report?.lost));
        for lost in lost.iter().flatten() {
            say(&port::lost_line(&sink, lost));
        }
        show.account(&ended);
        let Ended {
            ledger,
            firewall: Some(firewall),
            ..
        } = ended
        else {
            bail!("the run lost its firewall")
        };
        nameless += firewall.nameless();
        aimless += firewall.aimless();
        let (counts_of_answers, fault) = firewall.answers();
        if let Some(more) = counts_of_answers {
            answers = answers.with(more);
        }
        if let Some(fault) = fault {
            show.fault(port::fault_line(fault));
        }
        counts = Some(match counts.take() {
            None => firewall.counts(),
            Some(sum) => weir_engine::firewall::FirewallCounts::with(sum, firewall.counts()),
        });
        match directions
            .iter_mut()
            .find(|(from, to, _)| (from, to) == (&source, &sink))
        {
            Some((_, _, sum)) => *sum = std::mem::take(sum).with(&ledger),
            None => directions.push((source, sink, ledger)),
        }
        faults.append(&mut show.faults);
    }
    let Some(counts) = counts else {
        bail!("there is no direction")
    };
    report::notes(&called, &counts, (nameless, aimless), report::NAMES_THEM)
        .iter()
        .for_each(|line| say(line));
    let ledger = directions
        .iter()
        .fold(Ledger::default(), |sum, (_, _, ledger)| sum.with(ledger));
    let fault = faults.first().cloned();
    let report = Report {
        counts,
        ledger,
        directions,
        answers: Some(answers),
        place: Some(place),
        all: arguments.judging.all,
        fault,
        holds_only: Vec::new(),
        ending,
    };
    if arguments.judging.json
        && let Err(error) = print(&report.json())
        && error.kind() != io::ErrorKind::BrokenPipe
    {
        let fault = format!("standard output: {}", io_words(&error));
        say(&fault);
        faults.push(fault);
    }
    report.summary(begun.elapsed(), !faults.is_empty());
    Ok(Outcome::of(faults.is_empty()))
}
