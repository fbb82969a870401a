//! `weir firewall`: forwards what the rules pass, and tells what each rule did.

mod report;
mod rules_file;

use crate::capture;
use crate::cli::firewall::{CheckArgs, FirewallArgs, FirewallCommand, JudgingArgs, What};
use crate::cli::{DirectionArg, OutputArgs};
use crate::outcome::{Outcome, io_words, print, say};
use crate::port;
use crate::show::Show;
use crate::sources;
use crate::walls::Walls;
use anyhow::{anyhow, bail};
use report::Report;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;
use weir_engine::claims::{Claims, place};
use weir_engine::event::Event;
use weir_engine::file::{FileSettings, FileSink};
use weir_engine::firewall::Firewall;
use weir_engine::name::Name;
use weir_engine::outputs::Target;
use weir_engine::run::{Error, Files, Run, Setup};
use weir_engine::sink::Wanted;
use weir_firewall::rules::{Rule, RuleList};
use weir_firewall::{Classifier, Policy, Unreachable};
use weir_io::sys;
use weir_pipeline::select::Selection;

/// Runs the command.
pub fn run(arguments: FirewallArgs) -> anyhow::Result<Outcome> {
    match arguments.command {
        Some(FirewallCommand::Check(check)) => run_check(&check),
        None => run_forward(&arguments),
    }
}

fn run_check(arguments: &CheckArgs) -> anyhow::Result<Outcome> {
    let CheckArgs { rules, sources: names, judging } = arguments;
    let rules = Some(rules);
    check_sources(names, rules)?;
    let firewall = firewall(rules, judging)?;
    let walls = Walls::of_firewall(&judging.walls, names, &[])?;
    let work = Work { rules, sources: names, judging, outputs: Vec::new(), is_check: true };
    work.run(firewall, &walls)
}

fn run_forward(arguments: &FirewallArgs) -> anyhow::Result<Outcome> {
    let FirewallArgs { source: Some(source), sink: Some(sink), rules, judging, .. } = arguments else {
        bail!("name IN, OUT and the rules: weir firewall IN OUT --rules FILE");
    };
    let rules = rules.as_ref();
    let names = std::slice::from_ref(source);
    check_sources(names, rules)?;
    let written: Vec<Name> = std::iter::once(sink).chain(&arguments.write).cloned().collect();
    if let Some(port) = written.iter().find(|name| port::is_port(name)) {
        bail!("{port} is a port: weir firewall forwards from file to file");
    }
    if judging.json && written.iter().any(Name::is_dash) {
        bail!("standard output has the answer of --json: give OUT and -w names of files");
    }
    let read: Vec<Name> =
        names.iter().chain(rules.filter(|name| !name.is_dash())).chain(&judging.table).cloned().collect();
    check_outputs(&written, &read)?;
    let firewall = firewall(rules, judging)?;
    let walls = Walls::of_firewall(&judging.walls, names, &written)?;
    let claims = Arc::new(Claims::of(names));
    let target = |name: &Name, wanted: Wanted| -> anyhow::Result<Target> {
        let settings = FileSettings { format: crate::emit::format_for(name)?, wanted, ..FileSettings::default() };
        Ok((name.as_output(), Some(Box::new(FileSink::new(name, settings, &claims)))))
    };
    let mut outputs = vec![target(sink, Wanted::Passed)?];
    if let (Some(name), Some(what)) = (&arguments.write, arguments.what) {
        outputs.push(target(name, if what == What::Denied { Wanted::Rejected } else { Wanted::Passed })?);
    }
    Work { rules, sources: names, judging, outputs, is_check: false }.run(firewall, &walls)
}

/// Refuses sources that are not files.
fn check_sources(names: &[Name], rules: Option<&Name>) -> anyhow::Result<()> {
    if let Some(name) = names.iter().find(|name| capture::interface(name).is_some()) {
        bail!("{name} is an interface: weir firewall judges capture files");
    }
    sources::check(names, false)?;
    if rules.is_some_and(Name::is_dash) && names.iter().any(Name::is_dash) {
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
            split: Vec::new(),
            unbuffered: false,
            rotate_size: None,
            rotate_seconds: None,
            rotate_count: None,
            snaplen: 0,
        };
        alone.check(read, DirectionArg::Inout, true)?;
    }
    let place = |name: &Name| if name.is_dash() { None } else { place(Path::new(name)) };
    match written {
        [one, other] if one == other || place(one).is_some() && place(one) == place(other) => {
            bail!("{other} is the name of two outputs: each needs its own")
        }
        _ => Ok(()),
    }
}

/// Reads the rules, says which of them can never match, and puts them to work.
fn firewall(rules: Option<&Name>, judging: &JudgingArgs) -> anyhow::Result<Firewall> {
    /// Most rules that are named.
    const NAMED: usize = 10;
    let called = called(rules);
    let list = rules.map_or_else(|| Ok(RuleList::default()), rules_file::read)?;
    let classifier = Classifier::new(list).map_err(|error| anyhow!("{called}: {error}"))?;
    let unreachable = classifier.unreachable();
    for &Unreachable { rule, before, but_absent } in unreachable.iter().take(NAMED) {
        let line = |rule: usize| classifier.list().rules[rule].line;
        let matches = if but_absent { "matches only packets that lack a field" } else { "can never match" };
        let rest = if but_absent { "all others" } else { "all its packets" };
        say(&format!("{called}: line {} {matches}: line {} decides about {rest}", line(rule), line(before)));
    }
    if unreachable.len() > NAMED {
        say(&format!("{called}: the same is true of {} more rules", unreachable.len() - NAMED));
    }
    let permissions = judging.table.as_ref().map(rules_file::table).transpose()?;
    let policy = Arc::new(Policy { permissions, rules: classifier });
    let firewall = Firewall::new(Arc::clone(&policy), judging.inner, judging.interface.clone());
    firewall.map_err(|senseless| {
        let list = policy.rules.list();
        let is_of =
            |rule: &&Rule| rule.expression.is_some_and(|number| list.expressions[number] == senseless.expression);
        let line = list.rules.iter().find(is_of).map_or(0, |rule| rule.line);
        anyhow!("{called}: line {line}: {}", senseless.why)
    })
}

/// A run of the command.
struct Work<'a> {
    /// The rules, if they are in a file.
    rules: Option<&'a Name>,
    sources: &'a [Name],
    judging: &'a JudgingArgs,
    /// Outputs, the one for passed packets first; none for a check.
    outputs: Vec<Target>,
    is_check: bool,
}

impl Work<'_> {
    fn run(mut self, firewall: Firewall, walls: &Walls) -> anyhow::Result<Outcome> {
        let begun = Instant::now();
        let stop = Arc::new(AtomicBool::new(false));
        sys::stop_on_signals(Arc::clone(&stop));
        sources::say_namesakes(self.sources);
        let workers = self.judging.workers.map_or_else(weir_pipeline::processors, usize::from);
        let has_files = !self.outputs.is_empty();
        let mut outputs = std::mem::take(&mut self.outputs).into_iter();
        let main = outputs.next().unwrap_or_default();
        let splits: Vec<Target> = outputs.collect();
        let mut run = Run::new(Setup {
            // The further output takes all packets that the main one does, or all others.
            selection: Selection { splits: vec![String::new(); splits.len()], ..Selection::default() },
            firewall: Some(firewall),
            main,
            splits,
            workers,
            stop,
            ..Setup::default()
        });
        let mut show = Show::new(false, false, workers, has_files);
        let files = Files { names: self.sources, zstd_window: self.judging.zstd_window, follow: None, query: None };
        walls.raise(&[])?;
        run.one_by_one(&files, &mut |event: Event<'_>| show.event(event)).map_err(|error| match error {
            Error::Refused { name: Some(name), why } => anyhow!("{name}: {why}"),
            error => error.into(),
        })?;
        show.progress.clear();
        let (has_opened, stopped) = (run.has_opened(), run.is_stopped());
        let (ended, outputs) = run.finish(&mut |event| show.event(event));
        show.outputs(&outputs, &ended);
        let Some(firewall) = &ended.firewall else { bail!("the run lost its firewall") };
        let called = called(self.rules);
        report::notes(&called, firewall).iter().for_each(|line| say(line));
        let report = Report { firewall, ended: &ended, all: self.judging.all, fault: show.faults.first().cloned() };
        let answer = match (self.judging.json, self.is_check) {
            (true, _) => Some(report.json()),
            // A table of zeros would look like an answer.
            (false, true) if has_opened => Some(report.table()),
            (false, _) => None,
        };
        let printed = answer.map_or(Ok(()), |answer| print(&answer));
        let mut closed = outputs.are_closed();
        if let Err(error) = printed {
            closed |= error.kind() == io::ErrorKind::BrokenPipe;
            if error.kind() != io::ErrorKind::BrokenPipe {
                show.fault(format!("standard output: {}", io_words(&error)));
            }
        }
        if !closed {
            report.summary(begun.elapsed(), stopped, !show.faults.is_empty());
        }
        Ok(if show.faults.is_empty() { Outcome::Done } else { Outcome::Failed })
    }
}

/// Name of the rules in messages.
fn called(rules: Option<&Name>) -> String {
    rules.map_or_else(|| "the rules".to_owned(), Name::as_source)
}

/// Directory of a rules file, to which the names of its sets are relative.
fn directory_of(rules: &Name) -> &Path {
    if rules.is_dash() { Path::new("") } else { Path::new(rules).parent().unwrap_or(Path::new("")) }
}
