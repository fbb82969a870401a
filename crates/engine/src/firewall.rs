//! The firewall of a run: a committed stage behind the filter, which judges each packet once, in the order of its source.

pub mod changes;
pub mod confirm;
pub mod control_port;
pub mod controller;
pub mod ends;
pub mod forwarding;
pub mod interface_lock;
pub mod kept;
mod overload;
pub mod reject;
pub mod remote;
mod rule_set;
pub mod watch;

use crate::port::PortFault;
use control_port::ControlPackets;
use overload::Load;
use reject::{AnswerCounts, Answers};
use rule_set::Link;
pub use rule_set::{RuleSet, RuleSettings, Senseless};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;
use weir_firewall::replicas::{self, Shard};
use weir_firewall::rules::{Answer, Rule, RuleList, Side};
use weir_firewall::{
    Around, Conditions, Content, Counters, DecidedBy, Fields, Found, PolicyChange, Verdict,
};
use weir_memory::prefetch;
use weir_packet::savefile::{Interface, Record};
use weir_pipeline::Delivery;
use weir_pipeline::bits::Bits;
use weir_pipeline::reader::Current;
use weir_pipeline::select::Selected;
use weir_pipeline::stages::{Columns, Stages, StagesPlan};

/// The policy that all directions of a firewall share.
pub type Policy = weir_firewall::Policy<RuleSet>;

/// A change of the policy.
pub type Change = PolicyChange<RuleSet>;

/// The shared policy, with the log of its changes.
pub type SharedPolicy = replicas::Shared<Policy>;

/// The replica of the policy by which one direction judges.
type Worker = replicas::Worker<Policy>;

/// A policy at work in one run, with its counts.
#[derive(Debug)]
pub struct Firewall {
    worker: Worker,
    /// Name of an interface for which its source has none.
    unnamed: Option<String>,
    /// Name of the interface where packets leave.
    departure: Option<String>,
    /// The rules that `counters` belong to.
    rules: Arc<RuleSet>,
    counters: Counters,
    /// Interfaces whose packets came so far, with what belongs to them.
    arrivals: Vec<Arrival>,
    /// Interfaces of the current layout, filled when their first packets come.
    places: Vec<Option<Entry>>,
    current: Option<Arc<Current<StagesPlan>>>,
    /// Packets of interfaces without a name, if rules name interfaces where packets arrive.
    nameless: u64,
    /// Packets judged while rules named interfaces where packets leave, and the one where these leave had no name.
    aimless: u64,
    /// Answers to rejected packets; `None` if nobody is answered, or if the port has failed.
    answers: Option<Answers>,
    answer_fault: Option<PortFault>,
    /// Time of the latest packet, ns since the Unix epoch.
    time_ns: u64,
    /// Ends of rules by the packets' times; `None` if a controller ends them.
    ends: Option<RuleEnds>,
    /// The control port; `None` if there is none.
    control: Option<ControlPackets>,
    /// Load, if packets pass unjudged in an overload.
    load: Option<Load>,
    /// Buffer for the packets of a batch that are judged.
    chosen: ChosenPackets,
}

/// Ends of rules by packet time. The time of a rule begins with the first packet.
#[derive(Debug, Default)]
struct RuleEnds {
    /// Times and numbers of rules, the next one last; `None` before the first packet.
    at: Option<Vec<(u64, u32)>>,
    /// Numbers of the rules that are over.
    over: Vec<u32>,
}

impl RuleEnds {
    /// Returns a rule whose time is over, if there is one.
    fn due(&mut self, time_ns: u64, rules: &RuleList) -> Option<u32> {
        let at = self.at.get_or_insert_with(|| {
            let end = |(number, rule): (u32, &Rule)| {
                Some((
                    time_ns.saturating_add(rule.lasts?.as_nanos() as u64),
                    number,
                ))
            };
            let mut at: Vec<(u64, u32)> = (0..).zip(&rules.rules).filter_map(end).collect();
            at.sort_unstable_by(|a, b| b.cmp(a));
            at
        });
        let (_, rule) = at.pop_if(|(end, _)| *end <= time_ns)?;
        self.over.push(rule);
        Some(rule)
    }

    /// Goes over to other rules: a rule that was in the list before keeps its end, and is over if it was. The time of the others begins at
    /// `time_ns`.
    fn follow(&mut self, rules: &RuleSet, places: &[Option<u32>], time_ns: u64) {
        let Some(at) = &mut self.at else { return };
        let place = |rule: u32| places.get(rule as usize).copied().flatten();
        let is_over = |rule: u32| (place(rule), 0);
        let over = std::mem::take(&mut self.over).into_iter().map(is_over);
        let ends = at.drain(..).map(|(end, rule)| (place(rule), end));
        let known: HashMap<u32, u64> = over
            .chain(ends)
            .filter_map(|(place, end)| Some((place?, end)))
            .collect();
        for (number, rule) in (0..).zip(&rules.list().rules) {
            let Some(lasts) = rule.lasts else { continue };
            let end = time_ns.saturating_add(lasts.as_nanos() as u64);
            at.push((known.get(&number).copied().unwrap_or(end), number));
        }
        at.sort_unstable_by(|a, b| b.cmp(a));
    }
}

/// Packets that wait for memory together.
const TOGETHER: usize = 32;

/// Offset of the headers in a frame, as far as it is known before they are read: after the addresses of Ethernet.
const HEADERS: usize = 12;

/// Interface of a layout.
#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Number in `arrivals`.
    arrival: usize,
    /// Whether rules name interfaces where packets arrive or leave, and such a name is missing.
    lacks_names: bool,
}

/// Interface where packets arrive, with what belongs to it.
#[derive(Debug)]
struct Arrival {
    link: Arc<Link>,
    /// Conditions on interfaces that hold for its packets.
    holding: Box<[bool]>,
    /// Whether rules name interfaces where packets arrive, and this one has no name.
    is_nameless: bool,
    /// Whether rules name interfaces where packets leave, and those of this one leave at none with a name.
    is_aimless: bool,
}

/// Counts of a firewall, and the rules that they belong to.
#[derive(Clone, Debug)]
pub struct FirewallCounts {
    /// The rules.
    pub rules: Arc<RuleSet>,
    /// Whether there is a permission table.
    pub has_table: bool,
    /// Whether there is a control port.
    pub has_control: bool,
    /// The counts so far.
    pub counters: Counters,
    /// Time of the latest packet, ns since the Unix epoch.
    pub time_ns: u64,
}

impl FirewallCounts {
    /// Adds the counts of another direction. If the directions use different rule lists for a
    /// moment, rules with the same text are added up.
    #[must_use]
    pub fn with(mut self, other: Self) -> Self {
        let mut theirs = other.counters;
        if !Arc::ptr_eq(&self.rules, &other.rules) {
            self.rules.carry(&other.rules, &mut theirs);
        }
        self.counters.add_all(&theirs);
        self.time_ns = self.time_ns.max(other.time_ns);
        self
    }
}

impl Firewall {
    /// Puts a policy to work. An interface without a name in its source has the name `unnamed`.
    pub fn new(policy: &Arc<SharedPolicy>, unnamed: Option<String>) -> Self {
        let worker = policy.worker(Shard::ALL);
        let rules = Arc::clone(&worker.value().rules);
        let counters = Counters::new(rules.list().rules.len());
        let (arrivals, places) = (Vec::new(), Vec::new());
        let (answers, answer_fault) = (None, None);
        let (current, ends, control, load) = (None, None, None, None);
        Self {
            worker,
            unnamed,
            departure: None,
            rules,
            counters,
            arrivals,
            places,
            current,
            nameless: 0,
            aimless: 0,
            answers,
            answer_fault,
            time_ns: 0,
            ends,
            control,
            load,
            chosen: ChosenPackets::default(),
        }
    }

    /// Names the interface where packets leave, for rules with `to`. Without a name no such rule matches.
    #[must_use]
    pub fn leaving(mut self, departure: Option<String>) -> Self {
        self.departure = departure;
        self
    }

    /// Obeys the packets to a control port, and lets none of them pass.
    #[must_use]
    pub fn controlled(mut self, control: ControlPackets) -> Self {
        self.control = Some(control);
        self
    }

    /// Ends rules by the times of packets: for a policy that no controller changes.
    #[must_use]
    pub fn by_packet_time(mut self) -> Self {
        self.ends = Some(RuleEnds::default());
        self
    }

    /// Answers rejected packets.
    #[must_use]
    pub fn answering(mut self, answers: Answers) -> Self {
        self.answers = Some(answers);
        self
    }

    /// Passes packets unjudged while they come faster than they are judged. By default those without room are lost, and none passes unjudged.
    #[must_use]
    pub fn failing_open(mut self) -> Self {
        self.load = Some(Load::default());
        self
    }

    /// Returns the answers to rejected packets, and the fault that ended them.
    pub fn answers(&self) -> (Option<AnswerCounts>, Option<&PortFault>) {
        (
            self.answers.as_ref().map(Answers::counts),
            self.answer_fault.as_ref(),
        )
    }

    /// Returns the counts so far.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Returns a copy of the counts so far, with the rules.
    pub fn counts(&self) -> FirewallCounts {
        let (has_table, has_control) = (
            self.worker.value().permissions.is_some(),
            self.control.is_some(),
        );
        let (rules, counters) = (Arc::clone(&self.rules), self.counters.clone());
        FirewallCounts {
            rules,
            has_table,
            has_control,
            counters,
            time_ns: self.time_ns,
        }
    }

    /// Returns the number of packets from interfaces without a name, if rules name interfaces where packets arrive.
    pub fn nameless(&self) -> u64 {
        self.nameless
    }

    /// Returns the number of packets that leave at no interface with a name, if rules name interfaces where packets leave.
    pub fn aimless(&self) -> u64 {
        self.aimless
    }

    /// Takes up the changes of the policy so far. Called when no packets come.
    pub(crate) fn take_up(&mut self) {
        self.load.iter_mut().for_each(Load::rest);
        self.worker.take_up();
        self.follow_rules();
    }

    /// Returns the rules in force, if no controller changes them.
    pub(crate) fn own_rules(&self) -> Option<Arc<RuleSet>> {
        self.ends.as_ref().map(|_| Arc::clone(&self.rules))
    }

    /// Puts other rules into force between two batches, and returns whether there was room for the change: no other worker is behind.
    pub(crate) fn replace_rules(&mut self, rules: Arc<RuleSet>) -> bool {
        let has_room = self.worker.change_all(&[Change::Rules(rules)]).is_ok();
        self.follow_rules();
        has_room
    }

    /// Marks the end of a batch, whose packets have gone out.
    pub(crate) fn end(&mut self) {
        self.worker.end();
        if let (Some(answers), None) = (&mut self.answers, &self.answer_fault) {
            self.answer_fault = answers.flush().err();
        }
    }

    /// Judges the packets of a batch that the filter passed, and takes out denied packets and
    /// obeyed control packets. The whole batch is judged by one version of the policy, unless
    /// control packets in it change the policy. [`Self::end`] follows once the packets have gone
    /// out.
    ///
    /// The batch must not lie in a mapped file, which others may change.
    pub(crate) fn judge(&mut self, delivery: &mut Delivery<Stages>) {
        self.worker.begin();
        self.follow_rules();
        if self
            .load
            .as_mut()
            .is_some_and(|load| load.is_over(Instant::now()))
        {
            let Selected { passed, bytes, .. } = delivery.part.selected;
            self.counters.pass_unjudged(passed, bytes);
            return;
        }
        let is_same = self
            .current
            .as_ref()
            .is_some_and(|current| Arc::ptr_eq(current, &delivery.current));
        if !is_same {
            self.current = Some(Arc::clone(&delivery.current));
            self.places.clear();
            self.arrivals.clear();
        }
        let current = Arc::clone(&delivery.current);
        let part = &mut delivery.part;
        part.matched = part.passed.clone();
        let mut chosen = std::mem::take(&mut self.chosen);
        let all = std::mem::take(&mut part.records);
        let passed_all = part.passed.count_ones() == all.len() as u64;
        if !passed_all {
            chosen.of(&all, &part.passed);
        }
        let (records, numbers) = if passed_all {
            (&all, None)
        } else {
            (&chosen.records, Some(&chosen.numbers[..]))
        };
        let mut verdicts = Verdicts {
            part,
            numbers,
            first: 0,
        };
        let mut waiting = [const { None }; TOGETHER];
        current
            .layout
            .records(delivery.view.content(), records, |i, record| {
                // Each record was found before. One that is not found again does not pass, and is missing in the account, which says so.
                record
                    .iter()
                    .for_each(|record| prefetch(record.frame.data, HEADERS));
                waiting[i % TOGETHER] = record;
                if i % TOGETHER == TOGETHER - 1 {
                    self.judge_together(&mut waiting, TOGETHER, &current, &mut verdicts);
                    verdicts.first = i + 1;
                }
            });
        let rest = records.len() - verdicts.first;
        self.judge_together(&mut waiting, rest, &current, &mut verdicts);
        delivery.part.records = all;
        self.chosen = chosen;
    }

    #[cold]
    fn reject(&mut self, record: &Record<'_>, by: DecidedBy) {
        let rule = match by {
            DecidedBy::Rule(number) => self.rules.list().rules.get(number as usize),
            _ => None,
        };
        let how = rule.map_or(Answer::Usual, |rule| rule.answer);
        let place = self
            .places
            .get(record.frame.interface as usize)
            .copied()
            .flatten();
        let parser = place.and_then(|place| self.arrivals[place.arrival].link.parser.as_ref());
        let (Some(answers), Some(parser)) = (&mut self.answers, parser) else {
            return;
        };
        if self.answer_fault.is_none() {
            self.answer_fault = answers.answer(parser, record.frame.data, how).err();
        }
    }

    /// Prepares for another rule list, if there is one. **Cost**: a comparison if there is none.
    fn follow_rules(&mut self) {
        if !Arc::ptr_eq(&self.rules, &self.worker.value().rules) {
            let before = std::mem::replace(&mut self.rules, Arc::clone(&self.worker.value().rules));
            self.rules.carry(&before, &mut self.counters);
            self.arrivals.clear();
            self.places.clear();
            if let Some(ends) = &mut self.ends {
                ends.follow(&self.rules, self.rules.places_of(&before), self.time_ns);
            }
        }
    }

    /// Judges `count` packets that wait together for memory. On return, `waiting` is empty.
    fn judge_together(
        &mut self,
        waiting: &mut [Option<Record<'_>>; TOGETHER],
        count: usize,
        current: &Current<StagesPlan>,
        verdicts: &mut Verdicts<'_>,
    ) {
        let nothing = Fields::without_ip(Content::Malformed);
        let (mut fields, mut found) = ([nothing; TOGETHER], [Found::default(); TOGETHER]);
        let mut interfaces = [None; TOGETHER];
        for (i, record) in waiting[..count].iter().enumerate() {
            let Some(record) = record else {
                verdicts.clear(i, 0);
                continue;
            };
            let place = self.place_of(record, current);
            interfaces[i] = Some(place);
            if place.lacks_names {
                self.count_nameless(place);
            }
            // What a frame without a parser carries is unknown, so it does not pass as one without IP.
            if let Some(parser) = &self.arrivals[place.arrival].link.parser {
                fields[i].read(parser, record.frame.data);
            }
        }
        let mut next = 0;
        while next < count {
            // A change in the stream divides the packets: those before it are judged without it.
            let end = match &self.control {
                Some(control) => {
                    next + control.before_change(&waiting[next..count], &fields[next..count])
                }
                None => count,
            };
            self.worker
                .value()
                .look_up(&fields[next..end], &mut found[next..end]);
            for i in next..end {
                let (Some(record), Some(place)) = (waiting[i].take(), interfaces[i]) else {
                    continue;
                };
                self.judge_one(&record, place, &fields[i], found[i], (i, verdicts));
            }
            next = end;
            if end < count && self.change_at(&waiting[end], &fields[end], current, (end, verdicts))
            {
                waiting[end] = None;
                next += 1;
            }
            // With a change the rules may have become others, and the places are theirs.
            for i in next..count {
                interfaces[i] = waiting[i]
                    .as_ref()
                    .map(|record| self.place_of(record, current));
            }
        }
    }

    #[inline]
    fn judge_one(
        &mut self,
        record: &Record<'_>,
        place: Entry,
        fields: &Fields,
        found: Found,
        (i, verdicts): (usize, &mut Verdicts<'_>),
    ) {
        if let Some(time_ns) = record.time_ns {
            self.time_ns = time_ns.try_into().unwrap_or(0);
        }
        while let Some(rule) = self
            .ends
            .as_mut()
            .and_then(|ends| ends.due(self.time_ns, self.rules.list()))
        {
            // No other worker is behind: there is room.
            let _ = self.worker.change_all(&[Change::Expired(rule)]);
        }
        let Arrival { link, holding, .. } = &self.arrivals[place.arrival];
        let Link {
            expressions,
            parser,
            ..
        } = &**link;
        let (frame, time_ns) = (record.frame, self.time_ns);
        let seen =
            self.rules
                .connections
                .as_ref()
                .zip(parser.as_ref())
                .map(|(connections, parser)| {
                    (
                        connections,
                        connections.look(parser, fields, frame.data, time_ns),
                    )
                });
        let conditions = Conditions {
            rates: Some(&self.rules.rates),
            state: seen.as_ref().and_then(|(_, seen)| seen.state),
            ..Conditions::default()
        };
        let around = Around {
            frame,
            interfaces: holding,
            parser,
            expressions,
            time_ns,
            conditions,
        };
        let (verdict, by) = (self.worker.value()).judge(found, fields, &around, &mut self.counters);
        match verdict {
            Verdict::Pass => {
                if let Some((connections, seen)) = seen {
                    self.counters.unrecorded += u64::from(!connections.pass(&seen, time_ns));
                }
            }
            Verdict::Drop => verdicts.deny(i, frame.wire_len),
            Verdict::Reject => {
                verdicts.deny(i, frame.wire_len);
                self.reject(record, by);
            }
        }
    }

    /// Ends the bans that are over at a packet, and obeys the packet if it goes to the control port. Returns whether it does, so that nothing
    /// else judges it.
    #[cold]
    fn change_at(
        &mut self,
        record: &Option<Record<'_>>,
        fields: &Fields,
        current: &Current<StagesPlan>,
        (i, verdicts): (usize, &mut Verdicts<'_>),
    ) -> bool {
        let Some(record) = record else { return true };
        let place = self.place_of(record, current);
        let Some(control) = &mut self.control else {
            return false;
        };
        control.end_bans(record, &mut self.worker);
        let parser = self.arrivals[place.arrival]
            .link
            .parser
            .filter(|_| control.is_control(fields));
        if let Some(parser) = &parser {
            let obeyed = control.obey(record, parser, &mut self.worker);
            self.counters.control(obeyed, record.frame.wire_len);
            match obeyed {
                Ok(()) => verdicts.obeyed(i, record.frame.wire_len),
                Err(_) => verdicts.deny(i, record.frame.wire_len),
            }
        }
        // The worker has taken up the changes of others too.
        self.follow_rules();
        parser.is_some()
    }

    fn place_of(&mut self, record: &Record<'_>, current: &Current<StagesPlan>) -> Entry {
        let number = record.frame.interface as usize;
        match self.places.get(number) {
            Some(Some(place)) => *place,
            _ => self.place(number, &current.layout.interfaces[number]),
        }
    }

    #[cold]
    fn place(&mut self, number: usize, interface: &Interface) -> Entry {
        let list = self.rules.list();
        let arrival = interface.name.as_ref().or(self.unnamed.as_ref());
        let holding = list.holding(arrival.map(String::as_str), self.departure.as_deref());
        let is_nameless = arrival.is_none() && list.names_side(Side::Arrival);
        let is_aimless = self.departure.is_none() && list.names_side(Side::Departure);
        let place = Entry {
            arrival: self.arrivals.len(),
            lacks_names: is_nameless || is_aimless,
        };
        self.arrivals.push(Arrival {
            link: self.rules.link(interface.link),
            holding,
            is_nameless,
            is_aimless,
        });
        self.places.resize(self.places.len().max(number + 1), None);
        self.places[number] = Some(place);
        place
    }

    #[cold]
    fn count_nameless(&mut self, place: Entry) {
        let Arrival {
            is_nameless,
            is_aimless,
            ..
        } = self.arrivals[place.arrival];
        self.nameless += u64::from(is_nameless);
        self.aimless += u64::from(is_aimless);
    }
}

/// The packets of a batch that the filter passed, if these are not all.
#[derive(Debug, Default)]
struct ChosenPackets {
    /// Their numbers in the batch.
    numbers: Vec<u32>,
    /// Offsets of their records.
    records: Vec<u32>,
}

impl ChosenPackets {
    fn of(&mut self, all: &[u32], passed: &Bits) {
        self.numbers.clear();
        self.numbers
            .extend(passed.numbers().map(|number| number as u32));
        self.records.clear();
        self.records
            .extend(self.numbers.iter().map(|&number| all[number as usize]));
    }
}

/// Verdicts on the packets of a batch.
struct Verdicts<'a> {
    part: &'a mut Columns,
    /// Numbers in the batch of the packets that are judged, if these are not all.
    numbers: Option<&'a [u32]>,
    /// Number among the judged packets of the first one that waits now.
    first: usize,
}

impl Verdicts<'_> {
    /// Denies packet `i` of those that wait.
    fn deny(&mut self, i: usize, wire_len: u32) {
        self.part.selected.denied += 1;
        self.clear(i, wire_len);
    }

    /// Notes that packet `i` of those that wait is a control packet that was obeyed. It is for no output.
    fn obeyed(&mut self, i: usize, wire_len: u32) {
        self.part.selected.controls += 1;
        if self.part.control.is_empty() {
            self.part.control = Bits::zeros(self.part.passed.len());
        }
        self.part.control.set(self.number(i));
        self.clear(i, wire_len);
    }

    /// Returns the number in the batch of packet `i` of those that wait.
    #[inline]
    fn number(&self, i: usize) -> usize {
        self.numbers
            .map_or(self.first + i, |numbers| numbers[self.first + i] as usize)
    }

    /// Takes packet `i` of those that wait out of the packets that pass, and out of their sums.
    #[inline]
    fn clear(&mut self, i: usize, wire_len: u32) {
        let number = self.number(i);
        let Columns {
            passed,
            splits,
            selected,
            ..
        } = &mut *self.part;
        passed.clear(number);
        selected.passed -= 1;
        selected.bytes -= u64::from(wire_len);
        for (mask, sums) in splits.iter_mut().zip(&mut selected.splits) {
            if mask.clear(number) {
                sums.passed -= 1;
                sums.bytes -= u64::from(wire_len);
            }
        }
    }
}
