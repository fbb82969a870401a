//! `weir firewall` between interfaces, with rules that change meanwhile.

use super::report::{self, Report};
use super::rules_file::RulesFile;
use super::{bans, called, control_packets, control_socket, guards};
use crate::capture::{self, CaptureRequest};
use crate::cli::firewall::{Fail, FirewallArgs};
use crate::cli::{DirectionArg, DistributeArg};
use crate::filter_file;
use crate::numbers::counted;
use crate::outcome::{Outcome, io_words, print, say, say_plain, stop_on_signals};
use crate::port;
use crate::show::Show;
use crate::summary::Ending;
use crate::walls::Walls;
use anyhow::{Context, anyhow, bail};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;
use std::time::{Duration, Instant};
use weir_engine::capture::{AF_PACKET, AF_XDP, Direction as Captured, FanoutBy, is_interface};
use weir_engine::firewall::confirm::{self, Awaited, Undone};
use weir_engine::firewall::control_port::{ControlPackets, Times};
use weir_engine::firewall::controller::{ChangeError, Controller, Direction};
use weir_engine::firewall::ends::LiveEnds;
use weir_engine::firewall::forward::{self, ForwardError};
use weir_engine::firewall::interface_lock::InterfaceLocks;
use weir_engine::firewall::reject::{AnswerCounts, Answers};
use weir_engine::firewall::watch::{FileChange, RulesWatch};
use weir_engine::firewall::{Firewall, RuleSet, remote};
use weir_engine::ledger::Ledger;
use weir_engine::name::Name;
use weir_engine::run::{Ended, Run, Setup};
use weir_engine::session::{End, Session};
use weir_engine::sink::StageCounts;
use weir_engine::socket;
use weir_filter::Names;
use weir_firewall::rules::{RuleList, Side};
use weir_io::sys::ingress::ClosedIngress;
use weir_io::sys::{self, bpf, packet_socket};
use weir_messages::captures;
use weir_packet::savefile::MAX_SNAPLEN;
use weir_pipeline::select::Selection;

/// Longest time that a packet waits for others in AF_PACKET's ring.
const RETIRE: Duration = Duration::from_millis(1);

/// A direction of forwarding, or a share of it.
struct Way {
    source: Name,
    sink: Name,
    session: Session,
    run: Run,
    show: Show,
}

/// Forwards between interfaces, or from an interface to a file.
pub fn run(arguments: &FirewallArgs, source: &Name, sink: &Name) -> anyhow::Result<Outcome> {
    let (end, sink) = (sink, &port_of(sink));
    let sink_name = sink.clone();
    check(arguments, source, sink)?;
    let file = arguments.rules_file();
    let rules = file.as_ref();
    let name = rules.map(|rules| &rules.name);
    let policy = super::policy_of(arguments, true)?;
    check_states(rules, arguments.distribute, policy.rules().list())?;
    let (control, ends) = (
        control_packets::port(arguments, true)?,
        Arc::<LiveEnds>::default(),
    );
    let mut pairs = vec![(source.clone(), sink.clone())];
    if arguments.bidirectional {
        pairs = vec![
            (source.clone(), sender(sink)),
            (end.clone(), sender(&port_of(source))),
        ];
    }
    // What is forwarded is kept from this host's own stack.
    let takes_away = !arguments.tap && port::is_port(sink);
    guards::check(arguments, &pairs, takes_away)?;
    let mut locks = InterfaceLocks::default();
    if port::is_port(sink) {
        guards::lock(&mut locks, &pairs)?;
    }
    let files: Vec<Name> = arguments
        .write
        .iter()
        .cloned()
        .chain((!port::is_port(sink)).then(|| sink.clone()))
        .collect();
    let socket = control_socket::place(arguments.control.as_ref(), source, sink)?;
    let mut walls =
        Walls::of_firewall_between(&arguments.judging.walls, &pairs, &files, name, &socket)?;
    let mut bans = bans::open(arguments, source, &sink_name, &mut walls)?;
    bans.restore(&policy, &ends)?;
    let (stop, look) = (stop_on_signals(), Arc::<AtomicBool>::default());
    sys::tell_on_signal(Arc::clone(&look));
    let hangups = sys::hangups().context("SIGHUP")?;
    arguments.duration.into_iter().for_each(sys::stop_after);
    let bound = control_socket::bind(&socket, "weir firewall", &walls)?;
    let sources: Vec<Name> = pairs.iter().map(|(source, _)| source.clone()).collect();
    Session::new(sources.clone())
        .check_memory(&capture::settings(&arguments.live))
        .map_err(captures::refusal)?;
    let (mut ways, mut kept, mut about) = (Vec::new(), Vec::new(), Vec::new());
    let mut closed = Vec::new();
    let mut place = "kernel";
    // Reasons for which no answers are sent to rejected packets.
    let mut silent = Vec::new();
    let all = pairs.clone();
    for (source, sink) in pairs {
        let opened = open(arguments, &source, takes_away, &stop, &mut about)?;
        let Opened {
            source,
            session,
            ingress,
        } = opened;
        closed.extend(ingress);
        about.extend(captures::about(&session));
        place = session.place();
        kept.extend(session.rights());
        let queues = session.inputs().len();
        if queues == 0 {
            return Ok(Outcome::Done);
        }
        if queues > 1 && !files.is_empty() {
            bail!(
                "{source} has {queues} queues, and a file takes the packets of one: name it, as in af_xdp:eth0:0"
            );
        }
        // Each queue has a worker, and each worker a sender of its own.
        for session in session.divided() {
            let mut outputs = super::outputs(arguments, &source, &sink)?.into_iter();
            let main = outputs.next().unwrap_or_default();
            let splits: Vec<_> = outputs.collect();
            let name = capture::interface(&source).unwrap_or_default().to_owned();
            let departure = departure_of(&sink).or_else(|| arguments.judging.to.clone());
            let mut firewall =
                Firewall::new(&policy, Some(interface_of(&source).to_owned())).leaving(departure);
            if let Some((port, _)) = &control {
                firewall =
                    firewall.controlled(ControlPackets::new(port, Times::Clock(Arc::clone(&ends))));
            }
            if arguments.fail == Fail::Open {
                firewall = firewall.failing_open();
            }
            // Rejected packets are answered where they came from, unless they are only looked at.
            if port::is_port(&sink) && !port::is_dpdk(&source) {
                let answers = Name::from(format!("{AF_PACKET}{name}"));
                // An interface whose packets are taken away is the firewall's.
                let taken = takes_away.then_some(name.clone());
                let named: Vec<String> = arguments.yes_send().into_iter().chain(taken).collect();
                match port::check_guard(&answers, &named) {
                    Ok(()) => {
                        let port = port::open(&answers, &named)?;
                        firewall = firewall.answering(Answers::new(port.outlasting_down()));
                    }
                    Err(why) => silent.push(why),
                }
            }
            let run = Run::new(Setup {
                selection: Selection {
                    splits: vec![String::new(); splits.len()],
                    ..Selection::default()
                },
                firewall: Some(firewall),
                main,
                splits,
                stop: Arc::clone(&stop),
                ..Setup::default()
            });
            let (source, sink, show) = (
                source.clone(),
                sink.clone(),
                Show::new(true, false, 1, !files.is_empty()),
            );
            ways.push(Way {
                source,
                sink,
                session,
                run,
                show,
            });
        }
    }
    guards::check_answers(rules, policy.rules().list(), &silent)?;
    if port::is_port(&sink_name) {
        // Those that were waited for.
        guards::lock(&mut locks, &all)?;
    }
    walls.raise(&kept)?;
    for way in &mut ways {
        let Way {
            session, run, show, ..
        } = way;
        if !session.begin(run, &mut |event| show.event(event))? {
            return Ok(Outcome::Done);
        }
    }
    walls.opened(&kept);
    files.iter().filter(|file| **file == sink_name).for_each(|file| {
        let words = if is_af_packet(source) { "this host gets them too" } else { "this host gets none of them" };
        about.push(format!(
            "{file}: packets that pass are written to this file, as there is no interface of this name; {words}"
        ));
    });
    if arguments.distribute == DistributeArg::Random {
        about.push("--distribute random: packets of a flow may leave in another order".to_owned());
    }
    about.extend(control.iter().map(|(_, about)| about.clone()));
    about.push(bans.about().to_owned());
    about.iter().for_each(|line| say_plain(line));
    let direction = |way: &Way| Direction {
        source: way.source.as_source(),
        sink: way.sink.as_output(),
        place: way.session.place(),
        control: Arc::clone(way.run.control()),
    };
    let (read_again, distribute) = (file.clone(), arguments.distribute);
    let ends_of_ways = Places {
        arrivals: sources
            .iter()
            .map(|source| interface_of(source).to_owned())
            .collect(),
        departures: all
            .iter()
            .filter_map(|(_, sink)| departure_of(sink).or(arguments.judging.to.clone()))
            .collect(),
    };
    ends_of_ways.say_strangers(rules, policy.rules().list());
    let keeper = bans.keep(&ends)?;
    let controller = Controller::new(
        policy,
        ends,
        ways.iter().map(direction).collect(),
        Box::new(move || {
            let classifier =
                super::classifier_again(read_again.as_ref()).map_err(|error| error.to_string())?;
            check_states(read_again.as_ref(), distribute, classifier.list())
                .map_err(|error| error.to_string())?;
            guards::check_answers(read_again.as_ref(), classifier.list(), &silent)
                .map_err(|error| error.to_string())?;
            ends_of_ways.say_strangers(read_again.as_ref(), classifier.list());
            Ok(classifier)
        }),
    );
    let _clock = controller.end_bans()?;
    let handler = Arc::clone(&controller);
    let server = bound.serve(socket::Settings::default(), move |request| {
        remote::request(&handler, &request)
    })?;
    say_plain(&format!("control socket: {}", socket.display()));
    reload_on_hangup(hangups, name, &controller)?;
    if let Some(time) = arguments.confirm {
        controller.await_confirmation(time);
        say_plain(&report::awaited_line(true, time));
    }
    let begun = Instant::now();
    let mut attendant = Attendant {
        controller: &controller,
        watch: name.map(|name| (name, RulesWatch::new(name, controller.rules().list()))),
        look: &look,
        stop: &stop,
        announced: controller.awaited(),
        undone: false,
    };
    let directions = ways.iter_mut().map(|way| -> forward::Direction<'_> {
        let Way {
            session, run, show, ..
        } = way;
        (session, run, Box::new(|event| show.event(event)))
    });
    let by =
        forward::forward(directions, &stop, &mut || attendant.look()).map_err(
            |error| match error {
                ForwardError::Thread(error) => {
                    anyhow!("a thread of a direction: {}", io_words(&error))
                }
                error => error.into(),
            },
        )?;
    let undone = attendant.undone;
    // The packets that arrive from now on are the host's again.
    drop((closed, locks));
    // No request comes between the last write and the end.
    drop(server);
    let unkept = bans::finish(keeper);
    let ending = Ending {
        by: if undone { End::default() } else { by },
        is_endless: true,
        has_duration: arguments.duration.is_some(),
    };
    let done = finish(arguments, ways, place, (begun, ending), unkept)?;
    Ok(if undone { Outcome::Failed } else { done })
}

/// Name of a sink as a port, if it is that of an interface and of no file.
fn port_of(name: &Name) -> Name {
    let is_bare = is_interface(name.utf8()) && !Path::new(name).exists();
    if is_bare {
        Name::from(format!("{AF_PACKET}{}", name.utf8()))
    } else {
        name.clone()
    }
}

/// Port that sends where `port` receives: an interface has one AF_XDP socket for a queue, so that AF_PACKET sends beside it.
fn sender(port: &Name) -> Name {
    let interface = port
        .utf8()
        .starts_with(AF_XDP)
        .then(|| port::interface(port))
        .flatten();
    interface.map_or_else(
        || port.clone(),
        |interface| Name::from(format!("{AF_PACKET}{interface}")),
    )
}

/// Refuses contradictory arguments before anything is opened.
fn check(arguments: &FirewallArgs, source: &Name, sink: &Name) -> anyhow::Result<()> {
    bans::check(arguments)?;
    let is_port = port::is_port(sink);
    if is_port {
        port::check_scheme(sink)?;
    }
    capture::check_queue(source)?;
    if source.utf8().ends_with(packet_socket::ANY)
        && capture::interface(source) == Some(packet_socket::ANY)
    {
        bail!("any stands for all interfaces, and packets are forwarded from one");
    }
    let index = |name: Option<&str>| name.and_then(packet_socket::index_of);
    let (of_sink, of_source) = (port::interface(sink), capture::interface(source));
    let is_same =
        of_sink == of_source || index(of_sink).is_some() && index(of_sink) == index(of_source);
    if is_port && of_sink.is_some() && is_same {
        bail!("{sink} is where the packets come from: IN and OUT are two interfaces");
    }
    if arguments.bidirectional
        && (!is_port || port::interface(sink).is_none() && !port::is_dpdk(sink))
    {
        bail!("--bidirectional forwards between two interfaces, and {sink} is none");
    }
    if arguments.bidirectional && arguments.write.is_some() {
        bail!(
            "-w takes the packets of one direction: leave --bidirectional out, or record with weir record"
        );
    }
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
        bail!("{rules} is no regular file: the rules are read again while the firewall runs");
    }
    if !is_port && is_interface(sink.utf8()) {
        bail!(
            "{sink} is an interface, and a file of this name is there: af_packet:{sink} sends, ./{sink} is the file"
        );
    }
    check_departure(arguments, sink)?;
    let is_by_flow = arguments.distribute == DistributeArg::Flow;
    if !is_by_flow
        && (arguments.judging.workers.is_none_or(|workers| workers < 2) || !is_af_packet(source))
    {
        bail!(
            "--distribute is about several workers of an AF_PACKET interface: --workers N af_packet:{}",
            interface_of(source)
        );
    }
    if arguments.fail == Fail::Open && arguments.control_port.is_some() {
        bail!(
            "--fail open passes packets unread, and with them requests to --control-port: leave out one of them"
        );
    }
    if arguments
        .confirm
        .is_some_and(|time| time.is_zero() || time > confirm::LONGEST)
    {
        bail!("--confirm: a time above 0, up to a day, is left for weir firewall ctl confirm");
    }
    if arguments.duration.is_some_and(|time| time.is_zero()) {
        bail!("--duration 0s: a firewall that ends at once forwards nothing");
    }
    Ok(())
}

/// Refuses another name for the interface where packets leave.
pub(super) fn check_departure(arguments: &FirewallArgs, sink: &Name) -> anyhow::Result<()> {
    if departure_of(sink).is_some() && arguments.judging.to.is_some() {
        bail!(
            "--to names the interface where packets of files would leave, and those that pass leave at {sink}"
        );
    }
    Ok(())
}

/// Name of the interface where a sink sends; `None` for a file.
pub(super) fn departure_of(sink: &Name) -> Option<String> {
    port::is_port(sink).then(|| port::interface(sink).unwrap_or(sink.utf8()).to_owned())
}

fn interface_of(name: &Name) -> &str {
    capture::interface(name).unwrap_or(name.utf8())
}

/// Whether the packets of a source come by AF_PACKET if there are several workers.
fn is_af_packet(source: &Name) -> bool {
    source.utf8().starts_with(AF_PACKET) || capture::interface(source) == Some(source.utf8())
}

/// Refuses rules that ask for connections if packets of a flow go to several workers, one of which may judge an answer before its question.
fn check_states(
    rules: Option<&RulesFile>,
    distribute: DistributeArg,
    list: &RuleList,
) -> anyhow::Result<()> {
    let is_by_flow = distribute == DistributeArg::Flow;
    match list.rules.iter().find(|rule| rule.states.is_some()) {
        Some(rule) if !is_by_flow => {
            bail!(
                "{}: line {}: rules by the state of connections need --distribute flow",
                called(rules),
                rule.line
            )
        }
        _ => Ok(()),
    }
}

/// Names of the interfaces between which packets are forwarded.
struct Places {
    arrivals: Vec<String>,
    departures: Vec<String>,
}

impl Places {
    /// Says which rules name interfaces at which no packets arrive or leave, so that they match none.
    fn say_strangers(&self, rules: Option<&RulesFile>, list: &RuleList) {
        for rule in &list.rules {
            for interfaces in [rule.on, rule.to]
                .into_iter()
                .flatten()
                .map(|number| &list.interfaces[number])
            {
                let (names, verb) = match interfaces.side {
                    Side::Arrival => (&self.arrivals, "arrive"),
                    Side::Departure => (&self.departures, "leave"),
                };
                if names.is_empty() || names.iter().any(|name| interfaces.holds(name)) {
                    continue;
                }
                say(&format!(
                    "{}: line {} matches nothing: packets {verb} at {}, not at {interfaces}",
                    called(rules),
                    rule.line,
                    names.join(" and ")
                ));
            }
        }
    }
}

fn request(arguments: &FirewallArgs) -> CaptureRequest<'_> {
    // What the interface sends was judged where it came in, or is the host's. A packet does not wait long for others.
    let fanout = match arguments.distribute {
        // Also --fanout, which excludes the other two.
        DistributeArg::Flow => capture::settings(&arguments.live).fanout,
        DistributeArg::Address => FanoutBy::Address,
        DistributeArg::Random => FanoutBy::Random,
    };
    let settings = weir_engine::capture::Settings {
        direction: Captured::In,
        fanout,
        retire: Some(RETIRE),
        ..capture::settings(&arguments.live)
    };
    let shares = arguments.judging.workers.map_or(1, usize::from);
    CaptureRequest {
        settings,
        expression: "",
        replaces_filter: false,
        names: &Names::NONE,
        snaplen: MAX_SNAPLEN,
        shares,
        yes_take: &arguments.live.taking.yes_take,
    }
}

/// An open source.
struct Opened {
    /// Name with the way of capturing.
    source: Name,
    /// A capture for each queue or share.
    session: Session,
    /// The interface's ingress, if it had to be closed.
    ingress: Option<ClosedIngress>,
}

/// Begins to capture from a source. If it `takes_away` the packets from this host, an interface without a prefix is captured by AF_XDP, which
/// hands packets over at once, and by AF_PACKET if that cannot be had.
fn open(
    arguments: &FirewallArgs,
    source: &Name,
    takes_away: bool,
    stop: &Arc<AtomicBool>,
    about: &mut Vec<String>,
) -> anyhow::Result<Opened> {
    let is_bare = capture::interface(source) == Some(source.utf8());
    let mut session = Session::default();
    if is_bare && takes_away && arguments.judging.workers.is_none() {
        let by_xdp = Name::from(format!("{AF_XDP}{}", source.utf8()));
        match session.add(&by_xdp, &request(arguments), stop, &mut capture::hear) {
            Ok(_) => {
                return Ok(Opened {
                    source: by_xdp,
                    session,
                    ingress: None,
                });
            }
            Err(error) => say(&format!(
                "{}; AF_PACKET instead, which hands packets over within a millisecond",
                captures::refusal(error)
            )),
        }
    }
    let source = &port_of(source);
    let tapped = source.utf8().strip_prefix(AF_PACKET).filter(|_| takes_away);
    if let Some(interface) =
        tapped.filter(|name| arguments.live.wait && packet_socket::index_of(name).is_none())
    {
        bail!(
            "{interface} is not there: --wait cannot keep its packets from this host's own stack, or see whether this host \
             needs them; start the firewall when it is there, or with --tap"
        );
    }
    // Closed before it is captured, so that no packet goes both ways. A missing interface is refused when it is opened.
    let ingress = tapped
        .and_then(packet_socket::index_of)
        .map(ClosedIngress::new)
        .transpose();
    let ingress = ingress.map_err(|error| match error {
        bpf::Error::NotPermitted(_) => {
            anyhow!("{source}: {error}: run it as root; --tap leaves the packets to this host too")
        }
        error => anyhow!(
            "{source}: {error}: it takes Linux 6.6; --tap leaves the packets to this host too"
        ),
    })?;
    if let (Some(interface), true) = (tapped, ingress.is_some()) {
        about
            .push(format!("{interface}: what arrives is kept from this host's own stack; --tap leaves it to that too"));
    }
    session
        .add(source, &request(arguments), stop, &mut capture::hear)
        .map_err(captures::refusal)?;
    Ok(Opened {
        source: source.clone(),
        session,
        ingress,
    })
}

/// Tasks beside the forwarding: requests by SIGUSR1, what waits for a confirmation, and the file of the rules.
struct Attendant<'a> {
    controller: &'a Arc<Controller>,
    /// The rules file, and its changes.
    watch: Option<(&'a Name, RulesWatch)>,
    /// Flag that SIGUSR1 sets.
    look: &'a AtomicBool,
    stop: &'a AtomicBool,
    /// Confirmation that was awaited at the last look, and the time that was left.
    announced: Option<(Awaited, Duration)>,
    /// Whether the start was undone because nobody confirmed it.
    undone: bool,
}

impl Attendant<'_> {
    fn look(&mut self) {
        if self.look.swap(false, Ordering::Relaxed) {
            self.say_standing();
        }
        let was_undone = self.undo();
        let now = self.controller.awaited();
        if let (Some((what, _)), None) = (self.announced, now)
            && !was_undone
            && !self.undone
        {
            say_plain(match what {
                Awaited::Start => "confirmed: forwarding goes on",
                Awaited::Rules => "confirmed: the rules stay",
            });
        }
        let awaited = std::mem::replace(&mut self.announced, now).is_some();
        let Some((rules, watch)) = &mut self.watch else {
            return;
        };
        let in_force = self.controller.rules();
        // The file as it was when rules were read until they are confirmed, or were undone, is no change.
        if now.is_some() != awaited && (now.is_some() || was_undone) {
            watch.take_as_seen(in_force.list());
        }
        if now.is_some() {
            return;
        }
        match watch.look(in_force.list()) {
            None => {}
            Some(FileChange::Emptied) => {
                say(&format!("{rules} is empty; the rules stay as they are"))
            }
            Some(FileChange::Written) => say_reloaded(rules, self.controller.reload_noticed()),
        }
    }

    fn say_standing(&self) {
        self.controller.standing().directions.iter().for_each(|(direction, snapshot)| {
            let Ledger { received, passed, filtered, denied, ref main, .. } = snapshot.ledger;
            let Direction { source, sink, .. } = direction;
            let controls = if filtered > 0 { format!(", {filtered} control packets") } else { String::new() };
            let lost = match main.as_ref().map_or(0, StageCounts::lost) {
                0 => String::new(),
                lost => format!(", {lost} lost at the output"),
            };
            say_plain(&format!(
                "{source} to {sink}: {received} delivered, {passed} passed, {denied} denied{controls}{lost}"
            ));
        });
    }

    /// Undoes what nobody confirmed in time. Returns whether rules from before are in force again.
    fn undo(&mut self) -> bool {
        match self.controller.undo_unconfirmed() {
            Ok(None) => false,
            Ok(Some(Undone::Start)) => {
                say(
                    "nobody confirmed the start: forwarding ends, and packets are this host's again",
                );
                self.undone = true;
                self.stop.store(true, Ordering::Relaxed);
                false
            }
            Ok(Some(Undone::Rules(change, rules))) => {
                let rules = counted(rules.list().rules.len() as u64, "rule");
                say(&format!(
                    "nobody confirmed the rules: those from before are in force, {rules} (change {change}), until the file changes"
                ));
                true
            }
            Err(error) => {
                say(&format!("rules that nobody confirmed: {error}"));
                false
            }
        }
    }
}

/// Reads the rules again, and says what came of it.
fn reload(rules: &Name, controller: &Controller) {
    say_reloaded(rules, controller.reload());
}

fn say_reloaded(rules: &Name, reloaded: Result<(u64, Arc<RuleSet>), ChangeError>) {
    match reloaded {
        Ok((change, new)) => {
            say(&format!(
                "{rules}: from now on {} (change {change})",
                counted(new.list().rules.len() as u64, "rule")
            ));
        }
        // The words name the file already.
        Err(error @ ChangeError::Rules(_)) => say(&error.to_string()),
        Err(error) => say(&format!("{rules}: {error}")),
    }
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
                reload(rules, &controller);
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
    ways: Vec<Way>,
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
    for Way {
        source,
        sink,
        run,
        mut show,
        ..
    } in ways
    {
        // Frames that were merged, or came without their checksum, were finished before they were sent.
        show.end_of_forwarding();
        let (ended, outputs) = run.finish(&mut |event| show.event(event));
        let lost = outputs
            .reports()
            .next()
            .and_then(|(_, report)| Some(report?.lost));
        for lost in lost.iter().flatten() {
            say(&port::lost_line(&sink.as_output(), lost));
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
        let (source, sink) = (source.as_source(), sink.as_output());
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
