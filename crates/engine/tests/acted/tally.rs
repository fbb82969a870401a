//! What occurred in the runs: features, faults, and pairs of them.

use super::play::Outcome;
use super::{Case, Happening, Kind};
use std::collections::BTreeMap;
use std::fmt::Write;
use weir_engine::run::Stage;
use weir_engine::sink::Wanted;

/// Sources: a run has those of one row. The first [`FILES`] are files and streams.
const SOURCES: [&str; 8] = [
    "file",
    "files in turn",
    "files merged",
    "files sorted",
    "stream",
    "capture",
    "queues",
    "interfaces",
];
const FILES: usize = 5;

/// Tags that only occur with another.
const NEEDS: [(&str, &str); 6] = [
    ("windows", "measurement"),
    ("late packets", "measurement"),
    ("held batches", "pull"),
    ("program that leaves", "pull"),
    ("new rules", "rules"),
    ("new output", "outputs"),
];

/// Tags that do not occur with some others, for the reason given.
const APART: [(&str, &[&str], &str); 4] = [
    (
        "new rules",
        &["queues", "interfaces"],
        "packets of several captures are judged in their order, later than they are read",
    ),
    (
        "packets without output",
        &["measurement"],
        "outputs end alone beside a measurement",
    ),
    (
        "source fault",
        &["file", "files in turn", "files merged", "files sorted"],
        "files have damage instead",
    ),
    ("duration", &["stop"], "a run is stopped once"),
];

/// Pairs that may be missing: a run that ends by itself seldom meets a fault of its source before.
const RARE: [(&str, &str); 4] = [
    ("new rules", "packets without output"),
    ("limit", "source fault"),
    ("packets without output", "source fault"),
    ("program that leaves", "source fault"),
];

/// Whether both tags never occur in one run.
fn are_apart(one: &str, other: &str) -> bool {
    let with_bases = |tag: &str| -> Vec<String> {
        let bases = NEEDS
            .iter()
            .filter(|(of, _)| *of == tag)
            .map(|(_, base)| *base);
        std::iter::once(tag)
            .chain(bases)
            .map(str::to_owned)
            .collect()
    };
    let is_of = |tags: &[&str], tag: &str| tags.contains(&tag);
    let files = |tag: &str| {
        is_of(&SOURCES[..FILES], tag) || is_of(&["damaged source", "losses before"], tag)
    };
    let live = |tag: &str| {
        is_of(&SOURCES[FILES..], tag) || is_of(&["drops", "duration", "late packets"], tag)
    };
    let apart = |one: &str, other: &str| {
        let apart = APART
            .iter()
            .any(|(a, with, _)| *a == one && with.contains(&other));
        let sources = is_of(&SOURCES, one) && is_of(&SOURCES, other);
        apart || sources || files(one) && live(other)
    };
    let others = with_bases(other);
    with_bases(one).iter().any(|one| {
        others
            .iter()
            .any(|other| apart(one, other) || apart(other, one))
    })
}

impl Case {
    /// Returns the features that the case asks for.
    fn asked(&self) -> Vec<&'static str> {
        let plans = self.plans();
        let any = |is: fn(&super::outlets::Plan) -> bool| plans.iter().flatten().any(is);
        let has_splits = !self.splits.is_empty();
        let kind = match self.kind {
            Kind::Files if self.contents.len() < 2 => "file",
            Kind::Files => "files in turn",
            Kind::Merged => "files merged",
            Kind::Sorted => "files sorted",
            Kind::Stream => "stream",
            Kind::Capture => "capture",
            Kind::Queues => "queues",
            Kind::Interfaces => "interfaces",
        };
        let windows = self
            .windowing
            .is_some_and(|windowing| windowing.window_ns.is_some());
        let tags = [
            (true, kind),
            (self.filter > 0, "filter"),
            (self.rules.is_some(), "rules"),
            (self.windowing.is_some(), "measurement"),
            (windows, "windows"),
            (self.main.is_some(), "outputs"),
            (has_splits, "splits"),
            (plans[1..].iter().any(Option::is_some), "outputs of splits"),
            (any(|plan| plan.wanted != Wanted::Matching), "other packets"),
            (any(|plan| plan.keeps.is_some()), "kept batches"),
            (self.pull.is_some(), "pull"),
            (self.limit.is_some(), "limit"),
            (self.nature.mixed, "mixed lengths"),
            (self.nature.truncated, "truncated packets"),
            (self.nature.jumps, "jumps of stamps"),
        ];
        of(&tags)
    }

    /// Returns the features and faults that occurred.
    fn occurred(&self, outcome: &Outcome) -> Vec<&'static str> {
        let ended = outcome.ended.as_ref().expect("it was not refused");
        let changed =
            |is: fn(&Happening) -> bool| outcome.changes.iter().any(|changed| is(&changed.what));
        let written = |output: usize| {
            let log = outcome.logs[output].as_ref();
            log.map(|log| log.lock().unwrap().packets.len())
        };
        let plans = self.plans();
        let stopped = plans.iter().enumerate().any(|(output, plan)| {
            let stops = plan.and_then(|plan| plan.stops);
            stops.is_some_and(|stops| written(output) > Some(stops))
        });
        let full = plans.iter().enumerate().any(|(output, plan)| {
            let most = plan.and_then(|plan| plan.most);
            most.is_some() && written(output) == most
        });
        let judged = ended.stages.iter().rev().find_map(|stage| match stage {
            Stage::Filter { passed, .. } | Stage::Firewall { passed, .. } => Some(*passed),
            _ => None,
        });
        let passed = judged.unwrap_or(ended.ledger.passed) + ended.ledger.dropped.output;
        let limited = self.limit.is_some_and(|limit| passed >= limit);
        let faulty = |content: &super::traffic::Content| content.is_faulty;
        let mut tags = self.asked();
        tags.retain(|tag| *tag != "limit" || limited);
        let stops = stopped
            || self
                .happenings
                .iter()
                .any(|(_, what)| *what == Happening::Stop)
                && outcome.stopped;
        tags.extend(of(&[
            (
                changed(|what| matches!(what, Happening::Filter(_))),
                "new filter",
            ),
            (
                changed(|what| matches!(what, Happening::Rules(_))),
                "new rules",
            ),
            (changed(|what| *what == Happening::Output), "new output"),
            (stops, "stop"),
            (self.kind.is_live() && outcome.stopped && !stops, "duration"),
            (outcome.left, "program that leaves"),
            (
                self.pull.is_some_and(|held| held > 0) && !outcome.pulled.is_empty(),
                "held batches",
            ),
            (outcome.sink_faults > 0, "failing output"),
            (full, "full output"),
            (
                self.contents.iter().any(faulty) && outcome.faults > 0,
                "damaged source",
            ),
            (
                (self.breaks || outcome.truths.iter().any(|truth| truth.gone))
                    && outcome.faults > 0,
                "source fault",
            ),
            (ended.ledger.dropped.source > 0, "drops"),
            (ended.ledger.dropped.late > 0, "late packets"),
            (ended.ledger.dropped.output > 0, "packets without output"),
            (ended.ledger.lost_before > 0, "losses before"),
        ]));
        tags
    }
}

fn of(tags: &[(bool, &'static str)]) -> Vec<&'static str> {
    let tags = tags.iter().filter(|(is, _)| *is);
    tags.map(|(_, tag)| *tag).collect()
}

/// Numbers of runs.
#[derive(Default)]
pub struct Tally {
    runs: u64,
    tags: BTreeMap<&'static str, u64>,
    pairs: BTreeMap<(&'static str, &'static str), u64>,
}

impl Tally {
    /// Adds a run. None is refused.
    pub fn add(&mut self, case: &Case, outcome: &Outcome) {
        self.runs += 1;
        assert!(outcome.refused.is_none(), "{:?}", outcome.refused);
        let mut tags = case.occurred(outcome);
        tags.sort_unstable();
        for (i, &one) in tags.iter().enumerate() {
            *self.tags.entry(one).or_default() += 1;
            for &other in &tags[i + 1..] {
                *self.pairs.entry((one, other)).or_default() += 1;
            }
        }
    }

    /// Checks that each feature, each fault and each pair occurred that can.
    pub fn check(&self) {
        let mut missing = String::new();
        let tags: Vec<_> = self.tags.keys().copied().collect();
        for (i, &one) in tags.iter().enumerate() {
            for &other in &tags[i + 1..] {
                let occurs = self.pairs.contains_key(&(one, other));
                if occurs == are_apart(one, other) && !RARE.contains(&(one, other)) {
                    let what = if occurs { "occurs" } else { "never occurs" };
                    writeln!(missing, "{one} with {other} {what}").unwrap();
                }
            }
        }
        assert!(missing.is_empty(), "{missing}");
    }
}

impl core::fmt::Display for Tally {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        writeln!(f, "{} runs", self.runs)?;
        for (tag, runs) in &self.tags {
            let pairs = self
                .pairs
                .iter()
                .filter(|((one, other), _)| one == tag || other == tag);
            let rarest = pairs.min_by_key(|(_, runs)| **runs);
            writeln!(f, "{tag:24} {runs:6}, rarest pair {rarest:?}")?;
        }
        Ok(())
    }
}
