//! The naive twin of a run: it judges the packets one by one by their fields, and says what the run must have done with each.

use super::outlets::Plan;
use super::play::{Changed, Counted, Outcome};
use super::traffic::{EXPRESSIONS, RULES};
use super::{Case, Happening, Kind};
use crate::simulated::Packet;
use std::collections::{BTreeMap, HashMap};
use weir_engine::ledger::Ledger;
use weir_engine::run::Stage;
use weir_engine::sink::Wanted;

/// A packet with its verdicts.
#[derive(Clone, Debug)]
pub struct Judged {
    pub packet: Packet,
    pub source: usize,
    /// Whether the filter passes it, and whether the firewall then denies it.
    pub matches: bool,
    pub denied: bool,
    pub splits: Vec<bool>,
}

impl Judged {
    pub fn passes(&self) -> bool {
        self.matches && !self.denied
    }

    /// Whether output `output` wants the packet, the main output being the first.
    fn is_for(&self, output: usize, wanted: Wanted) -> bool {
        let matches = self.passes() && (output == 0 || self.splits[output - 1]);
        match wanted {
            Wanted::Matching => matches,
            Wanted::Rejected => !matches,
            Wanted::All => true,
        }
    }
}

/// Where a run ends before its sources do.
#[derive(Clone, Copy, Debug, Default)]
pub struct Ends {
    /// Number of packets up to a limit, or to the completion of the main output.
    pub exact: Option<usize>,
    /// Number of packets after which the run may end with any batch.
    pub soft: Option<usize>,
}

/// Terms of an account.
#[derive(Debug, Default, PartialEq)]
pub struct Sums {
    passed: u64,
    filtered: u64,
    denied: u64,
    bytes: u64,
    splits: Vec<(u64, u64)>,
}

impl Sums {
    fn of<'a>(packets: impl IntoIterator<Item = &'a Judged>, splits: usize) -> Self {
        let mut sums = Self {
            splits: vec![(0, 0); splits],
            ..Self::default()
        };
        for judged in packets {
            let bytes = u64::from(judged.packet.bytes);
            sums.filtered += u64::from(!judged.matches);
            sums.denied += u64::from(judged.denied);
            if judged.passes() {
                sums.passed += 1;
                sums.bytes += bytes;
                for (sum, _) in sums
                    .splits
                    .iter_mut()
                    .zip(&judged.splits)
                    .filter(|(_, split)| **split)
                {
                    *sum = (sum.0 + 1, sum.1 + bytes);
                }
            }
        }
        sums
    }
}

/// The twin of a case, after the run.
pub struct Twin<'a> {
    case: &'a Case,
    outcome: &'a Outcome,
    /// Packets of each source, in its order.
    pub sources: Vec<Vec<Judged>>,
    /// All packets in the order in which the run passes them on, if it is known.
    pub order: Option<Vec<Judged>>,
    by_number: HashMap<u32, Packet>,
}

impl<'a> Twin<'a> {
    pub fn new(case: &'a Case, outcome: &'a Outcome) -> Self {
        let packets: Vec<Vec<Packet>> = match case.live {
            Some(_) => outcome
                .truths
                .iter()
                .map(|truth| truth.handed.clone())
                .collect(),
            None => case
                .contents
                .iter()
                .map(|content| content.packets.clone())
                .collect(),
        };
        let by_number = packets
            .iter()
            .flatten()
            .map(|packet| (packet.number, *packet))
            .collect();
        let mut twin = Self {
            case,
            outcome,
            sources: Vec::new(),
            order: None,
            by_number,
        };
        let mut before = 0;
        for (source, packets) in packets.into_iter().enumerate() {
            let judged = packets.iter().enumerate();
            let all = packets.len();
            let judged = judged.map(|(number, packet)| twin.judged(packet, source, number, before));
            twin.sources.push(judged.collect());
            before += if case.live.is_none() { all } else { 0 };
        }
        twin.order = twin.ordered();
        twin
    }

    /// Returns the changes of one kind that hold for packet `at` of a source.
    fn latest(&self, source: usize, at: usize, is: fn(&Happening) -> bool) -> Option<Happening> {
        let holds = |changed: &&Changed| {
            let before = changed.before[source.min(changed.before.len() - 1)];
            is(&changed.what) && before <= at
        };
        self.outcome
            .changes
            .iter()
            .rev()
            .find(holds)
            .map(|changed| changed.what)
    }

    fn judged(&self, packet: &Packet, source: usize, number: usize, before: usize) -> Judged {
        let at = before + number;
        let filter = self.latest(source, at, |what| matches!(what, Happening::Filter(_)));
        let filter = match filter {
            Some(Happening::Filter(number)) => number,
            _ => self.case.filter,
        };
        let rules = self.latest(source, at, |what| matches!(what, Happening::Rules(_)));
        let rules = match rules {
            Some(Happening::Rules(number)) => Some(number),
            _ => self.case.rules,
        };
        let matches = EXPRESSIONS[filter].1(packet);
        let denied = matches && rules.is_some_and(|rules| RULES[rules].1(packet));
        let splits = self.case.splits.iter();
        Judged {
            packet: *packet,
            source,
            matches,
            denied,
            splits: splits
                .map(|(split, _)| EXPRESSIONS[*split].1(packet))
                .collect(),
        }
    }

    /// Returns all packets in the order of the run.
    fn ordered(&self) -> Option<Vec<Judged>> {
        let all = || self.sources.iter().flatten().cloned();
        match self.case.kind {
            Kind::Files | Kind::Stream | Kind::Capture => Some(all().collect()),
            Kind::Sorted => {
                let mut all: Vec<Judged> = all().collect();
                all.sort_by_key(|judged| judged.packet.stamp);
                Some(all)
            }
            Kind::Merged if self.case.is_calm() && self.has_stages() => {
                let mut all: Vec<Judged> = all().collect();
                all.sort_by_key(|judged| (judged.packet.stamp, judged.source));
                Some(all)
            }
            Kind::Merged | Kind::Queues | Kind::Interfaces => None,
        }
    }

    /// Whether anything takes packets. Those that are only counted are in no order.
    fn has_stages(&self) -> bool {
        let Case {
            rules, pull, limit, ..
        } = self.case;
        let takes = rules.is_some() || pull.is_some() || limit.is_some() || self.measures();
        takes || self.case.plans().iter().any(Option::is_some)
    }

    /// Number of packets of each source, or of all, before the sink of the main output was replaced.
    fn replaced(&self) -> Option<&[usize]> {
        let replaced = |changed: &&Changed| changed.what == Happening::Output;
        let changed = self.outcome.changes.iter().find(replaced);
        changed.map(|changed| &changed.before[..])
    }

    /// Whether a program left that pulled, and nothing else took packets.
    fn leaves_alone(&self) -> bool {
        self.outcome.left && !self.measures() && self.case.plans().iter().all(Option::is_none)
    }

    fn measures(&self) -> bool {
        self.case.windowing.is_some()
    }

    /// Returns the end of an output in an order: the number of the packet that it refuses.
    fn end_of(&self, order: &[Judged], output: usize, plan: Plan) -> Option<usize> {
        let mut wanted = (0..order.len()).filter(|&i| order[i].is_for(output, plan.wanted));
        let end = wanted.nth(plan.most.or(plan.fails)?)?;
        let replaced = self.replaced().filter(|_| output == 0);
        Some(end).filter(|end| replaced.is_none_or(|before| *end < before[0]))
    }

    /// Returns where a run in this order ends early.
    pub fn ends(&self, order: &[Judged]) -> Ends {
        let mut ends = Ends::default();
        if self.measures() {
            // Outputs end alone.
        } else {
            let plans = self.case.plans();
            let real: Vec<_> = plans
                .iter()
                .enumerate()
                .filter_map(|(i, plan)| Some((i, (*plan)?)))
                .collect();
            let of_all: Option<Vec<usize>> = real
                .iter()
                .map(|(i, plan)| self.end_of(order, *i, *plan))
                .collect();
            let pulls = self.case.pull.is_some() && !self.outcome.left;
            ends.soft = of_all
                .and_then(|ends| ends.into_iter().max())
                .map(|end| end + 1)
                .filter(|_| !pulls);
            let main = self
                .case
                .main
                .filter(|main| main.wanted == Wanted::Matching && main.most.is_some());
            ends.exact = main.and_then(|main| self.end_of(order, 0, main));
        }
        let limit = self.case.limit.and_then(|limit| {
            let mut passing = (0..order.len()).filter(|&i| order[i].passes());
            passing.nth(limit as usize - 1).map(|i| i + 1)
        });
        ends.exact = [ends.exact, limit].into_iter().flatten().min();
        if !self.case.kind.is_live() && self.outcome.stopped || self.leaves_alone() {
            ends.soft = Some(0);
        }
        ends
    }

    /// Checks all that is known of the run.
    pub fn check(&self) {
        let ended = self.outcome.ended.as_ref().expect("it was not refused");
        assert_eq!(ended.imbalance, None);
        assert_eq!(ended.ledger.check(), Ok(()));
        assert_eq!(ended.discrepancies, []);
        assert_eq!(ended.failure.as_ref().map(ToString::to_string), None);
        match &self.order {
            Some(order) => self.check_in_order(order, &ended.ledger),
            None => self.check_by_source(&ended.ledger),
        }
        self.check_told();
        if self.measures() {
            self.check_measured();
        }
        for log in self.outcome.logs.iter().flatten() {
            assert_eq!(log.lock().unwrap().finished, 1);
        }
        for stage in &ended.stages {
            if let Stage::Output { name, counts } = stage
                && let Some(output) = name.strip_prefix("output ")
            {
                let output: usize = output.parse().unwrap();
                assert_eq!(counts.taken, self.written(output).len() as u64, "{name}");
                assert!(counts.add_up(), "{name}: {counts:?}");
            }
        }
    }

    fn written(&self, output: usize) -> Vec<u32> {
        let Some(log) = &self.outcome.logs[output] else {
            return Vec::new();
        };
        log.lock()
            .unwrap()
            .numbers(|number| self.by_number[&number])
    }

    /// Packets of all sources that were dropped in front of the run, and that were rejected there.
    fn before_the_run(&self) -> (u64, u64) {
        let truths = &self.outcome.truths;
        (
            truths.iter().map(|truth| truth.dropped).sum(),
            truths.iter().map(|truth| truth.rejected).sum(),
        )
    }

    fn check_in_order(&self, order: &[Judged], ledger: &Ledger) {
        let (dropped, rejected) = self.before_the_run();
        assert_eq!(ledger.dropped.source, dropped);
        let counted = (ledger.received - dropped - rejected) as usize;
        let ends = self.ends(order);
        let end = ends.exact.unwrap_or(order.len());
        let first = ends.soft.unwrap_or(end).min(end);
        let is_possible = match self.case.kind {
            Kind::Capture if first < end => counted == end || counted == order.len(),
            Kind::Capture => counted == end,
            _ => (first..=end).contains(&counted),
        };
        assert!(
            is_possible,
            "{counted} of {} are counted: {ends:?}",
            order.len()
        );
        let counted = &order[..counted];
        self.check_terms(counted, first, rejected, ledger);
        self.check_outputs(counted);
        self.check_pulled(counted, ledger);
    }

    /// Checks the terms of the account over these packets; the last ones of a capture may have been dropped behind the filter.
    fn check_terms(&self, counted: &[Judged], first: usize, rejected: u64, ledger: &Ledger) {
        let splits = self.case.splits.len();
        let terms = Sums {
            passed: ledger.passed + ledger.dropped.late,
            filtered: ledger.filtered - rejected,
            denied: ledger.denied,
            bytes: ledger.bytes,
            splits: ledger.splits.clone(),
        };
        let all = Sums::of(counted, splits);
        if self.measures() {
            let is_exact = (terms.passed, terms.filtered) == (all.passed, all.filtered);
            assert!(is_exact || ledger.dropped.late > 0, "{terms:?} of {all:?}");
            return;
        }
        if ledger.dropped.output == 0 {
            assert_eq!(terms, all);
            return;
        }
        assert!(
            self.case.kind.is_live() || self.outcome.left,
            "no output is dropped"
        );
        // Those that a program left unread were judged by the firewall, and those behind them were not.
        let possible = (first.min(counted.len())..=counted.len()).any(|taken| {
            let sums = Sums::of(&counted[..taken], splits);
            let denied = sums.denied..=if self.outcome.left {
                all.denied
            } else {
                sums.denied
            };
            denied.contains(&terms.denied)
                && terms
                    == Sums {
                        filtered: all.filtered,
                        denied: terms.denied,
                        ..sums
                    }
        });
        let dropped = ledger.dropped.output;
        assert!(possible, "{terms:?} and {dropped} dropped of {all:?}");
        assert_eq!(
            terms.passed + terms.denied + dropped,
            all.passed + all.denied
        );
    }

    /// Checks what each output was handed of these packets.
    fn check_outputs(&self, counted: &[Judged]) {
        for (output, plan) in self.case.plans().into_iter().enumerate() {
            let Some(plan) = plan else { continue };
            let replaced = self
                .replaced()
                .filter(|_| output == 0)
                .map(|before| before[0]);
            let before = replaced.unwrap_or(usize::MAX).min(counted.len());
            let numbers = |packets: &[Judged]| -> Vec<u32> {
                let wanted = packets
                    .iter()
                    .filter(|judged| judged.is_for(output, plan.wanted));
                wanted.map(|judged| judged.packet.number).collect()
            };
            let mut expected = numbers(&counted[..before]);
            expected.truncate(plan.most.or(plan.fails).unwrap_or(usize::MAX));
            assert_eq!(self.written(output), expected, "output {output}, {plan:?}");
            if let (0, Some(log)) = (output, self.outcome.replacements.first()) {
                let written = log
                    .lock()
                    .unwrap()
                    .numbers(|number| self.by_number[&number]);
                assert_eq!(written, numbers(&counted[before..]), "the new main output");
            }
        }
    }

    fn check_pulled(&self, counted: &[Judged], ledger: &Ledger) {
        if self.case.pull.is_none() {
            return;
        }
        let expected = counted
            .iter()
            .map(|judged| (judged.packet.number, judged.passes()));
        let pulled = &self.outcome.pulled;
        if self.outcome.left {
            let expected: Vec<_> = expected.take(pulled.len()).collect();
            assert_eq!(*pulled, expected);
            let passed = pulled.iter().filter(|(_, passes)| *passes).count() as u64;
            if self.leaves_alone() {
                assert_eq!(ledger.passed, passed, "the batches that were taken");
            }
        } else {
            assert_eq!(*pulled, expected.collect::<Vec<_>>());
        }
    }

    /// Checks that a program pulled the packets of each source in its order, from the first on.
    fn check_pulled_by_source(&self, is_whole: bool) {
        if self.case.pull.is_none() {
            return;
        }
        let mut of_sources = vec![Vec::new(); self.sources.len()];
        for &(number, passes) in &self.outcome.pulled {
            let has =
                |packets: &Vec<Judged>| packets.iter().any(|judged| judged.packet.number == number);
            let source = self.sources.iter().position(has);
            of_sources[source.expect("it was handed over")].push((number, passes));
        }
        for (packets, got) in self.sources.iter().zip(of_sources) {
            let all = packets
                .iter()
                .map(|judged| (judged.packet.number, judged.passes()));
            let end = match is_whole && !self.outcome.left {
                true => packets.len(),
                false => got.len(),
            };
            assert_eq!(got, all.take(end).collect::<Vec<_>>());
        }
    }

    /// Checks a run whose order of sources is not known: each source by itself.
    fn check_by_source(&self, ledger: &Ledger) {
        let plans = self.case.plans();
        let has_ends = plans
            .iter()
            .flatten()
            .any(|plan| plan.most.or(plan.fails).or(plan.stops).is_some());
        let is_stopped = !self.case.kind.is_live() && self.outcome.stopped;
        let is_cut = is_stopped
            || has_ends && !self.measures()
            || self.case.limit.is_some()
            || self.leaves_alone();
        let (dropped, rejected) = self.before_the_run();
        if !is_cut {
            let all: Vec<&Judged> = self.sources.iter().flatten().collect();
            let sums = Sums::of(all.iter().copied(), self.case.splits.len());
            assert_eq!(ledger.received, all.len() as u64 + dropped + rejected);
            assert_eq!(ledger.dropped.source, dropped);
            // Late packets are dropped before the filter.
            let late = ledger.dropped.late;
            assert!((ledger.passed..=ledger.passed + late).contains(&sums.passed));
            let filtered = ledger.filtered - rejected;
            assert!((filtered..=filtered + late).contains(&sums.filtered));
            assert_eq!(ledger.denied, sums.denied);
            if !self.measures() {
                assert_eq!((ledger.bytes, &ledger.splits), (sums.bytes, &sums.splits));
            }
        } else if let Some(limit) = self.case.limit {
            assert!(ledger.passed <= limit, "a limit ends exactly");
        }
        self.check_pulled_by_source(!is_cut);
        for (output, plan) in plans.iter().enumerate() {
            let Some(plan) = plan else { continue };
            let written = self.written(output);
            let ends = plan.most.or(plan.fails);
            assert!(ends.is_none_or(|end| written.len() <= end));
            let mut all = written.clone();
            if let (0, Some(log)) = (output, self.outcome.replacements.first()) {
                all.extend(
                    log.lock()
                        .unwrap()
                        .numbers(|number| self.by_number[&number]),
                );
            }
            let is_whole = !is_cut && ends.is_none();
            self.check_order_of_sources(output, *plan, &all, is_whole);
            self.check_replaced_by_source(output, *plan, &written, is_whole);
        }
    }

    /// Checks that an output was handed the packets of each source in its order, from the first on.
    fn check_order_of_sources(&self, output: usize, plan: Plan, all: &[u32], is_whole: bool) {
        let mut of_sources = BTreeMap::<usize, Vec<u32>>::new();
        let source_of = |number: u32| {
            let has =
                |packets: &Vec<Judged>| packets.iter().any(|judged| judged.packet.number == number);
            self.sources
                .iter()
                .position(has)
                .expect("it was handed over")
        };
        for &number in all {
            of_sources
                .entry(source_of(number))
                .or_default()
                .push(number);
        }
        for (source, packets) in self.sources.iter().enumerate() {
            let wanted = packets
                .iter()
                .filter(|judged| judged.is_for(output, plan.wanted));
            let wanted: Vec<u32> = wanted.map(|judged| judged.packet.number).collect();
            let got = of_sources.remove(&source).unwrap_or_default();
            let end = if is_whole || got.len() > wanted.len() {
                wanted.len()
            } else {
                got.len()
            };
            // A sink that ended before it was replaced leaves a gap.
            if is_whole || output > 0 || self.outcome.replacements.is_empty() {
                assert_eq!(got, wanted[..end], "output {output}, source {source}");
            }
        }
    }

    /// Checks that packets judged before the main output was replaced went to its first sink.
    fn check_replaced_by_source(&self, output: usize, plan: Plan, written: &[u32], is_whole: bool) {
        let Some(before) = self.replaced().filter(|_| output == 0 && is_whole) else {
            return;
        };
        for (packets, &before) in self.sources.iter().zip(before) {
            let before = before.min(packets.len());
            for judged in packets[..before]
                .iter()
                .filter(|judged| judged.is_for(output, plan.wanted))
            {
                assert!(
                    written.contains(&judged.packet.number),
                    "it went to the new sink"
                );
            }
        }
    }

    /// Checks that faults and losses were told.
    fn check_told(&self) {
        let ended = self.outcome.ended.as_ref().expect("it was not refused");
        let plans = self.case.plans();
        let failed = plans.iter().enumerate().filter(|(output, plan)| {
            let fails = plan.and_then(|plan| plan.fails);
            fails.is_some_and(|fails| {
                let order = self.order.as_deref().unwrap_or_default();
                let ends = self.end_of(order, *output, plan.expect("it fails"));
                self.written(*output).len() == fails && ends.is_some()
            })
        });
        if self.order.is_some()
            && !self.outcome.stopped
            && !self.outcome.left
            && self.case.limit.is_none()
            && self
                .case
                .plans()
                .iter()
                .flatten()
                .all(|plan| plan.most.is_none())
        {
            assert_eq!(
                self.outcome.sink_faults,
                failed.count(),
                "faults of outputs"
            );
        }
        let is_early = match &self.order {
            Some(order) => {
                let ends = self.ends(order);
                ends.exact.is_some() || ends.soft.is_some()
            }
            None => true,
        };
        if is_early {
            return;
        }
        let faulty = self
            .case
            .contents
            .iter()
            .filter(|content| content.is_faulty || self.case.breaks);
        let gone = self.outcome.truths.iter().filter(|truth| truth.gone);
        assert_eq!(
            self.outcome.faults,
            faulty.count() + gone.count(),
            "faults of sources"
        );
        let lost: u64 = self.case.contents.iter().map(|content| content.lost).sum();
        assert_eq!(ended.ledger.lost_before, lost, "losses before the sources");
    }

    /// Checks the tables and the windows.
    fn check_measured(&self) {
        let ended = self.outcome.ended.as_ref().expect("it was not refused");
        let ledger = &ended.ledger;
        assert_eq!(self.outcome.total.packets, ledger.passed);
        if self.case.is_calm() && self.case.kind.is_live() {
            assert_eq!(ledger.dropped.late, 0, "windows wait for their packets");
        }
        let windows = self
            .outcome
            .windows
            .iter()
            .map(|(_, counted)| counted.packets)
            .sum::<u64>();
        let is_windowed = self
            .case
            .windowing
            .is_some_and(|windowing| windowing.window_ns.is_some());
        // Packets without a time open no window.
        let mut all = self.sources.iter().flatten();
        let has_time = all.any(|judged| judged.packet.stamp.is_some());
        if is_windowed && self.outcome.left_out == 0 && has_time {
            assert_eq!(windows, ledger.passed, "packets of all windows");
        }
        let (dropped, rejected) = self.before_the_run();
        let counted = (ledger.received - dropped - rejected) as usize;
        let packets: Vec<&Judged> = match &self.order {
            Some(order) => order[..counted].iter().collect(),
            None => self.sources.iter().flatten().collect(),
        };
        if ledger.dropped.late > 0 || packets.len() != counted {
            return;
        }
        let mut total = Counted::default();
        let mut by_window = BTreeMap::<i64, Counted>::new();
        let windowing = self.case.windowing.expect("it measures");
        for judged in packets.iter().filter(|judged| judged.passes()) {
            total.add(&judged.packet);
            if let (Some(stamp), Some(window)) = (judged.packet.stamp, windowing.window_ns) {
                let start = stamp.div_euclid(window) * window;
                by_window.entry(start).or_default().add(&judged.packet);
            }
        }
        assert_eq!(self.outcome.total, total);
        if !is_windowed || !self.case.is_calm() || self.outcome.left_out > 0 {
            return;
        }
        let mut given = BTreeMap::<i64, Counted>::new();
        for (start, counted) in self
            .outcome
            .windows
            .iter()
            .filter(|(_, counted)| counted.packets > 0)
        {
            given.entry(*start).or_default().append(counted);
        }
        assert_eq!(given, by_window, "packets of each window");
    }
}
