//! `weir firewall`: forwards what the rules pass, and tells what each rule did.

mod bans;
mod control_packets;
pub mod control_socket;
mod ctl;
mod files;
mod live;
mod report;
mod rules_file;

use crate::capture;
use crate::cli::firewall::{
    CheckArgs, Fail, FirewallArgs, FirewallCommand, JudgingArgs, TranslateArgs,
};
use crate::cli::{DirectionArg, DistributeArg, OutputArgs};
use crate::numbers::grouped;
use crate::outcome::{self, Outcome, print, say};
use crate::port;
use crate::show::Show;
use crate::sources::{self, Takes};
use crate::summary::Ending;
use crate::walls::Walls;
use anyhow::{anyhow, bail};
pub use control_packets::keys;
use files::FileMaker;
use report::Report;
use rules_file::RulesFile;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;
use weir_engine::capture::is_interface;
use weir_engine::claims::place;
use weir_engine::control::remote::MakeRules;
use weir_engine::event::On;
use weir_engine::firewall::changes::{GivenRules, NewRules};
use weir_engine::firewall::control_port::{ControlPackets, ControlPort, Times};
use weir_engine::firewall::ends::Ends;
use weir_engine::firewall::forwarding::{self, departure, port_output};
use weir_engine::firewall::{Firewall, Policy, RuleSet, RuleSettings, SharedPolicy};
use weir_engine::name::Name;
use weir_engine::outputs::Target;
use weir_engine::provenance::Chosen;
use weir_engine::run::{Run, Setup};
use weir_engine::session::Session;
use weir_firewall::rules::{Rule, RuleList, Unit};
use weir_firewall::{CONNECTIONS, Classifier, Unreachable};
use weir_messages::forwarding::refused;
use weir_messages::refusals::Terms;
use weir_packet::flow::Tunnels;
use weir_pipeline::select::Selection;

/// Runs the command.
pub fn run(arguments: FirewallArgs) -> anyhow::Result<Outcome> {
    match arguments.command {
        Some(FirewallCommand::Check(check)) => run_check(&check),
        Some(FirewallCommand::Translate(arguments)) => run_translate(&arguments),
        Some(FirewallCommand::Ctl(arguments)) => ctl::run(&arguments),
        None => run_forward(&arguments),
    }
}

fn run_check(arguments: &CheckArgs) -> anyhow::Result<Outcome> {
    let CheckArgs {
        rules,
        sources,
        judging,
        from_nft,
    } = arguments;
    let mut names = sources.clone();
    let file = match from_nft {
        Some(ruleset) => {
            names.insert(0, rules.clone());
            RulesFile {
                name: ruleset.clone(),
                is_nft: true,
            }
        }
        None => RulesFile {
            name: rules.clone(),
            is_nft: false,
        },
    };
    let (names, rules) = (&names[..], Some(&file));
    if let Some(file) = rules.filter(|file| sources::is_capture(&file.name)) {
        bail!(
            "{} is a capture where the rules should be: weir firewall check RULES CAPTURE",
            file.name
        );
    }
    check_sources(names, rules)?;
    let policy = policy(rules, judging.table.as_ref(), settings_of(judging)?, false)?;
    let session = session(names, judging);
    let walls = Walls::of_firewall(&judging.walls, &session, &[])?;
    let (control, outputs, departure) = (None, Vec::new(), None);
    let work = Work {
        rules,
        session,
        judging,
        control,
        outputs,
        departure,
        is_check: true,
    };
    work.run(&policy, &walls)
}

fn run_translate(TranslateArgs { ruleset }: &TranslateArgs) -> anyhow::Result<Outcome> {
    let translation = rules_file::translation(ruleset)?;
    let printed = outcome::answer(&translation.text);
    let refused = &translation.refused;
    if refused.is_empty() {
        return Ok(printed);
    }
    refused.iter().for_each(|part| say(&part.to_string()));
    say(&format!(
        "{}: {} not translated",
        ruleset.as_source(),
        rules_file::counted_parts(refused.len())
    ));
    Ok(Outcome::Failed)
}

impl FirewallArgs {
    /// Interfaces that may send although they are guarded: what is taken from this host may be sent to as well.
    fn yes_send(&self) -> Vec<String> {
        self.sending
            .yes_send
            .iter()
            .chain(&self.live.taking.yes_take)
            .cloned()
            .collect()
    }

    /// The file of the rules, if they are in one.
    fn rules_file(&self) -> Option<RulesFile> {
        RulesFile::of(self.rules.as_ref(), self.from_nft.as_ref())
    }
}

fn run_forward(arguments: &FirewallArgs) -> anyhow::Result<Outcome> {
    let FirewallArgs {
        source: Some(source),
        sink: Some(sink),
        judging,
        ..
    } = arguments
    else {
        bail!("name IN, OUT and the rules: weir firewall IN OUT --rules FILE");
    };
    if capture::interface(source).is_some() {
        return live::run(arguments, source, sink);
    }
    let is_between_interfaces =
        arguments.bidirectional || arguments.tap || arguments.fail == Fail::Open;
    if is_between_interfaces
        || arguments.control.is_some()
        || arguments.duration.is_some()
        || arguments.confirm.is_some()
        || arguments.state.is_some()
        || arguments.no_restore
        || arguments.viewers.view.is_some()
    {
        bail!(
            "--bidirectional, --tap, --fail, --control, --state, --no-restore, --confirm, --view and --duration are about \
             interfaces, and {source} is a file"
        );
    }
    if arguments.distribute != DistributeArg::Flow {
        bail!(
            "--distribute and several workers that judge are about interfaces, and {source} is a file"
        );
    }
    let leaves = departure(sink);
    if leaves.is_some() && judging.to.is_some() {
        let sink = sink.clone();
        return Err(refused(forwarding::Error::Departure { sink }, "").into());
    }
    if let Some(line) = sources::absent_line(source) {
        bail!("{line}");
    }
    if is_interface(sink.utf8()) {
        bail!("{sink} is an interface: af_packet:{sink} sends there, ./{sink} is a file");
    }
    let file = arguments.rules_file();
    let rules = file.as_ref();
    let names = std::slice::from_ref(source);
    check_sources(names, rules)?;
    let outputs = outputs(arguments, source, sink)?;
    let control = control_packets::port(arguments, false)?.map(|(port, _)| port);
    let policy = policy_of(arguments, control.is_some())?;
    let written: Vec<Name> = std::iter::once(sink)
        .chain(&arguments.write)
        .cloned()
        .collect();
    let session = session(names, judging);
    let walls = Walls::of_firewall(&judging.walls, &session, &written)?;
    Work {
        rules,
        session,
        judging,
        control,
        outputs,
        departure: leaves,
        is_check: false,
    }
    .run(&policy, &walls)
}

/// Files that are read one after another.
fn session(names: &[Name], judging: &JudgingArgs) -> Session {
    let mut session = Session::new(names.to_vec());
    session.zstd_window = judging.zstd_window;
    session
}

/// Makes the outputs, the one for passed packets first. A port is opened here.
fn outputs(arguments: &FirewallArgs, source: &Name, sink: &Name) -> anyhow::Result<Vec<Target>> {
    let (file, further) = FileMaker::new(arguments, source, sink, false)?.outputs()?;
    let main = match file {
        Some(file) => file,
        None => {
            port::check_scheme(sink)?;
            port_output(sink, &arguments.yes_send()).map_err(|error| refused(error, ""))?
        }
    };
    Ok(std::iter::once(main).chain(further).collect())
}

/// Refuses sources that are not files.
fn check_sources(names: &[Name], rules: Option<&RulesFile>) -> anyhow::Result<()> {
    if let Some(name) = names.iter().find(|name| capture::interface(name).is_some()) {
        bail!("{name} is an interface: weir firewall check judges capture files");
    }
    sources::check(names, false)?;
    if rules.is_some_and(|rules| rules.name.is_dash()) && names.iter().any(Name::is_dash) {
        bail!("standard input cannot be both the rules and a capture");
    }
    Ok(())
}

/// Refuses outputs that would overwrite what is read, or each other.
fn check_outputs(written: &[Name], read: &[Name]) -> anyhow::Result<()> {
    for output in written {
        // The same is refused as for -w of other commands.
        let alone = OutputArgs {
            write: Some(output.clone()),
            ..OutputArgs::default()
        };
        alone.check(read, DirectionArg::Inout, true)?;
    }
    let place = |name: &Name| {
        if name.is_dash() {
            None
        } else {
            place(Path::new(name))
        }
    };
    match written {
        [one, other] if one == other || place(one).is_some() && place(one) == place(other) => {
            bail!("{other} is the name of two outputs: each needs its own")
        }
        _ => Ok(()),
    }
}

/// Bytes of the longest frame of an Ethernet with the usual MTU of 1500: header and a tag.
const LONG_FRAME: u64 = 1518;

/// Reads the rules, and says which of them can never match.
fn classifier(rules: Option<&RulesFile>) -> anyhow::Result<Classifier> {
    let list = rules.map_or_else(|| Ok(RuleList::default()), rules_file::read)?;
    compiled(&called(rules), list)
}

/// Does the same with rules that are read again, or that a request gave.
fn new_rules(
    rules: Option<&RulesFile>,
    given: Option<&GivenRules<'_>>,
) -> anyhow::Result<NewRules> {
    let (called, list) = match (given, rules) {
        (Some(given), _) => (given.called.to_owned(), rules_file::given(given)?),
        (None, Some(rules)) => (rules.called(), rules_file::read_again(rules)?),
        (None, None) => (called(None), RuleList::default()),
    };
    let classifier = compiled(&called, list)?;
    Ok(NewRules { classifier, called })
}

fn compiled(called: &str, list: RuleList) -> anyhow::Result<Classifier> {
    /// Most rules that are named.
    const NAMED: usize = 10;
    let classifier = Classifier::new(list).map_err(|error| anyhow!("{called}: {error}"))?;
    let unreachable = classifier.unreachable();
    for &Unreachable {
        rule,
        before,
        but_absent,
    } in unreachable.iter().take(NAMED)
    {
        let line = |rule: usize| classifier.list().rules[rule].line;
        let matches = if but_absent {
            "matches only packets that lack a field"
        } else {
            "can never match"
        };
        let rest = if but_absent {
            "all others"
        } else {
            "all its packets"
        };
        say(&format!(
            "{called}: line {} {matches}: line {} decides about {rest}",
            line(rule),
            line(before)
        ));
    }
    if unreachable.len() > NAMED {
        say(&format!(
            "{called}: the same is true of {} more rules",
            unreachable.len() - NAMED
        ));
    }
    let too_small = |rule: &&Rule| {
        rule.rate
            .is_some_and(|rate| rate.unit == Unit::Bytes && rate.burst < LONG_FRAME)
    };
    for rule in classifier.list().rules.iter().filter(too_small).take(NAMED) {
        let burst = rule.rate.map_or(0, |rate| rate.burst);
        say(&format!(
            "{called}: line {}: frames of more than {} bytes are beyond the rate after every pause: burst makes room",
            rule.line,
            grouped(burst),
        ));
    }
    Ok(classifier)
}

/// Changes that a worker need not have taken up yet. A batch of a worker that has all of them to take up takes a millisecond longer.
const LOG: usize = 8192;

/// Reads the rules and the permission table that the arguments name.
fn policy_of(arguments: &FirewallArgs, changes: bool) -> anyhow::Result<Arc<SharedPolicy>> {
    let (rules, judging) = (arguments.rules_file(), &arguments.judging);
    policy(
        rules.as_ref(),
        judging.table.as_ref(),
        settings_of(judging)?,
        changes,
    )
}

fn settings_of(judging: &JudgingArgs) -> anyhow::Result<RuleSettings> {
    Ok(RuleSettings {
        inner: judging.inside.tunnels()?,
        seed: rules_file::seed()?,
        connections: judging.connections as usize,
    })
}

/// Reads the rules and the permission table. A policy whose permissions change has a table in any case.
fn policy(
    rules: Option<&RulesFile>,
    table: Option<&Name>,
    settings: RuleSettings,
    changes: bool,
) -> anyhow::Result<Arc<SharedPolicy>> {
    let called = called(rules);
    let classifier = classifier(rules)?;
    let permissions = match table {
        Some(table) => Some(rules_file::table(table)?),
        None if changes => Some(rules_file::empty_table()?),
        None => None,
    };
    let rules =
        RuleSet::new(classifier, settings).map_err(|senseless| anyhow!("{called}: {senseless}"))?;
    Ok(SharedPolicy::new(
        Policy::new(permissions, Arc::new(rules)),
        LOG,
    ))
}

/// The firewall of `--rules`, one stage of a run of another command; `None` without such a file. With `inner`, rules judge the innermost
/// packet of a frame.
pub fn stage(rules: Option<&Name>, inner: Option<Tunnels>) -> anyhow::Result<Option<Firewall>> {
    let Some(rules) = RulesFile::of(rules, None) else {
        return Ok(None);
    };
    let settings = RuleSettings {
        inner,
        seed: rules_file::seed()?,
        connections: CONNECTIONS,
    };
    let policy = policy(Some(&rules), None, settings, false)?;
    check_departures(&rules.called(), policy.rules().list())?;
    Ok(Some(Firewall::new(&policy, None).by_packet_time()))
}

/// Refuses rules on the interfaces where packets leave.
fn check_departures(called: &str, list: &RuleList) -> anyhow::Result<()> {
    match list.rules.iter().find(|rule| rule.to.is_some()) {
        Some(rule) => bail!(
            "{called}: line {}: to names where packets leave, and those of this command leave nowhere",
            rule.line
        ),
        None => Ok(()),
    }
}

pub use rules_file::for_request as rules_for_request;

/// Function that reads rules of a request to a run with the [stage](stage) of `--rules`, if it has one.
pub fn rules_maker(rules: Option<&Name>) -> Option<MakeRules> {
    let read = |given: &GivenRules<'_>| {
        let new = new_rules(None, Some(given))?;
        check_departures(&new.called, new.classifier.list())?;
        anyhow::Ok(new)
    };
    rules?;
    Some(Box::new(move |given| {
        read(given).map_err(|error| error.to_string())
    }))
}

/// Refuses rules from standard input beside a capture from there.
pub fn check_input(rules: Option<&Name>, sources: &[Name]) -> anyhow::Result<()> {
    if rules.is_some_and(Name::is_dash) && sources.iter().any(Name::is_dash) {
        bail!("standard input cannot be both the rules and a capture");
    }
    Ok(())
}

/// Adds to a choice of packets that the firewall of `--rules` has passed them, by rules that requests may have `replaced`.
pub fn chosen(chosen: Chosen, rules: Option<&Name>, replaced: bool) -> Chosen {
    match RulesFile::of(rules, None) {
        Some(rules) => chosen.by_firewall(true, Some(&chosen_by(&rules.called(), replaced))),
        None => chosen,
    }
}

fn chosen_by(called: &str, replaced: bool) -> String {
    match replaced {
        true => format!("{called}, which requests may replace"),
        false => called.to_owned(),
    }
}

/// Lines on packets that the firewall of `--rules` could not judge in full, once a run has ended.
pub fn say_notes(rules: Option<&Name>, firewall: Option<&Firewall>) {
    let Some(firewall) = firewall else { return };
    let rules = RulesFile::of(rules, None);
    report::notes(
        &called(rules.as_ref()),
        &firewall.counts(),
        (firewall.nameless(), firewall.aimless()),
        "a pcapng file can name them",
    )
    .iter()
    .for_each(|line| say(line));
}

/// A run of the command.
struct Work<'a> {
    /// The rules, if they are in a file.
    rules: Option<&'a RulesFile>,
    session: Session,
    judging: &'a JudgingArgs,
    /// The control port, if there is one.
    control: Option<Arc<ControlPort>>,
    /// Outputs, the one for passed packets first; none for a check.
    outputs: Vec<Target>,
    /// Name of the interface where packets leave, if it is one.
    departure: Option<String>,
    is_check: bool,
}

impl Work<'_> {
    fn run(mut self, policy: &Arc<SharedPolicy>, walls: &Walls) -> anyhow::Result<Outcome> {
        let begun = Instant::now();
        let stop = outcome::stop_on_signals();
        sources::say_namesakes(self.session.names());
        let workers = self
            .judging
            .workers
            .map_or_else(weir_pipeline::processors, usize::from);
        let has_files = !self.outputs.is_empty();
        let mut outputs = std::mem::take(&mut self.outputs).into_iter();
        let main = outputs.next().unwrap_or_default();
        let splits: Vec<Target> = outputs.collect();
        let mut firewall = Firewall::new(policy, self.judging.interface.clone())
            .leaving(self.departure.or_else(|| self.judging.to.clone()))
            .by_packet_time();
        if let Some(port) = &self.control {
            firewall =
                firewall.controlled(ControlPackets::new(port, Times::Packets(Ends::default())));
        }
        let mut run = Run::new(Setup {
            // The further output takes all packets that the main one does, or all others.
            selection: Selection {
                splits: vec![String::new(); splits.len()],
                ..Selection::default()
            },
            firewall: Some(firewall),
            main,
            splits,
            workers,
            stop,
            ..Setup::default()
        });
        let mut show = Show::new(false, false, workers, has_files);
        let on: On<'_> = &mut |event| show.event(event);
        let (session, terms) = (&mut self.session, Terms::PACKETS);
        match sources::absent("weir firewall check", session.names(), Takes::Elsewhere)? {
            Some(line) => show.absent(line),
            None => walls.read(session, &mut run, &terms, on, |_| Ok(()))?,
        }
        show.progress.clear();
        let (ended, outputs) = run.finish(&mut |event| show.event(event));
        show.outputs(&outputs, &ended);
        let Some(firewall) = &ended.firewall else {
            bail!("the run lost its firewall")
        };
        let counts = firewall.counts();
        report::notes(
            &called(self.rules),
            &counts,
            (firewall.nameless(), firewall.aimless()),
            report::NAMES_THEM,
        )
        .iter()
        .for_each(|line| say(line));
        let report = Report {
            counts,
            ledger: ended.ledger.clone(),
            directions: Vec::new(),
            answers: None,
            place: None,
            all: self.judging.all,
            fault: show.faults.first().cloned(),
            holds_only: ended.holds_only.clone(),
            ending: Ending {
                by: ended.by,
                ..Ending::default()
            },
        };
        let answer = match (self.judging.json, self.is_check) {
            (true, _) => Some(report.json()),
            // A table of zeros would look like an answer.
            (false, true) if !show.is_unread() => Some(report.table()),
            (false, _) => None,
        };
        let printed = answer.map_or(Ok(()), |answer| print(&answer));
        let mut closed = outputs.are_closed();
        closed |= show.answered(&printed);
        if !closed && !show.is_unread() {
            report.summary(begun.elapsed(), !show.faults.is_empty());
        }
        Ok(Outcome::of(show.faults.is_empty()))
    }
}

/// Name of the rules in messages.
fn called(rules: Option<&RulesFile>) -> String {
    rules.map_or_else(|| "the rules".to_owned(), RulesFile::called)
}
