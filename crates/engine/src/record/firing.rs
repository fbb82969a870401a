//! A trigger that fired: its packets go from the ring into a file.

use super::arms::Key;
use super::arrival::Arrivals;
use super::condition::ends;
use super::panes::Moment;
use super::save::{Complete, SaveFile};
use super::trigger::{self, Keep};
use crate::provenance::Chosen;
use core::fmt;
use core::net::IpAddr;
use std::time::Duration;
use weir_filter::Names;
use weir_measure::KeyKind;
use weir_packet::flow::{Facts, FlowKey, Parser, Tunnels};
use weir_packet::savefile::{Interface, Record, Statistics};
use weir_pipeline::select::Selection;
use weir_store::ring::{Cursor, Filters, From, History, Piece};

/// Time after the end of a span for which packets of the span may still come, ns.
pub(super) const LATE_NS: i64 = 1_000_000_000;

/// Longest time for which a file grows, ns.
const LONGEST_NS: i64 = 3600 * 1_000_000_000;

/// Number of packets that have to be after the end of a span.
const AGREEING: usize = 32;

/// Event that fired a trigger.
#[derive(Clone, Debug)]
pub(super) struct Cause {
    /// The event, as text.
    pub text: String,
    /// Time of the event by its packet's timestamp, ns since 1970: part of the name of the file.
    pub time_ns: i64,
    /// Time of the event by the arrivals of packets, ns.
    pub arrived: i64,
    /// Number and captured length of the packet that fired, if one did.
    pub packet: Option<(u64, usize)>,
    /// Flow key of the packet that fired, if one did.
    pub flow: Option<FlowKey>,
    /// Addresses that are the cause.
    pub hosts: Option<Hosts>,
}

impl Cause {
    /// A cause that no packet is.
    pub fn new(text: String, Moment { arrived, time_ns }: Moment) -> Self {
        Self {
            text,
            time_ns,
            arrived,
            packet: None,
            flow: None,
            hosts: None,
        }
    }
}

/// An address, or all addresses with the same leading bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Hosts {
    address: IpAddr,
    bits: u8,
}

impl Hosts {
    /// One address.
    pub fn one(address: IpAddr) -> Self {
        Self::of(KeyKind::SRC, address)
    }

    /// Addresses of a key of this kind.
    pub fn of(kind: KeyKind, address: IpAddr) -> Self {
        let (family, all) = match address {
            IpAddr::V4(_) => (4, 32),
            IpAddr::V6(_) => (6, 128),
        };
        let bits = kind.prefix_len(family).unwrap_or(all);
        Self { address, bits }
    }

    /// Whether this address is among them.
    fn contain(&self, other: IpAddr) -> bool {
        let differing = match (self.address, other) {
            (IpAddr::V4(own), IpAddr::V4(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            (IpAddr::V6(own), IpAddr::V6(other)) => {
                (own.to_bits() ^ other.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        differing >= u32::from(self.bits)
    }
}

impl fmt::Display for Hosts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { address, bits } = self;
        match (address, bits) {
            (IpAddr::V4(_), 32) | (IpAddr::V6(_), 128) => write!(f, "{address}"),
            _ => write!(f, "{address}/{bits}"),
        }
    }
}

/// Flow parsers and interfaces of the ring, per interface.
pub(super) struct Interfaces {
    pub all: Vec<Interface>,
    parsers: Vec<Option<Parser>>,
    /// Meaning of the names in expressions.
    names: Names,
    /// Tunnels into which is looked, if innermost packets are judged.
    inner: Option<Tunnels>,
}

impl Interfaces {
    pub fn new(names: Names, inner: Option<Tunnels>) -> Self {
        Self {
            all: Vec::new(),
            parsers: Vec::new(),
            names,
            inner,
        }
    }

    /// Compiles an expression for the interfaces that are known by now, if `filters` are not for all of them. Returns the reason if
    /// the expression makes sense for none.
    pub fn compile(
        &self,
        expression: &str,
        filters: &mut Option<Filters>,
    ) -> Option<weir_filter::Error> {
        if filters
            .as_ref()
            .is_some_and(|filters| filters.interfaces() == self.all.len())
        {
            return None;
        }
        let compiled = match self.inner {
            Some(tunnels) => Filters::compile_inside(expression, &self.all, &self.names, tunnels),
            None => Filters::compile(expression, &self.all, &self.names),
        };
        match compiled {
            Ok(compiled) => {
                *filters = Some(compiled);
                None
            }
            Err(error) => Some(error),
        }
    }

    /// Adopts interfaces that appeared since the last call. **Cost**: a lock.
    pub fn refresh(&mut self, history: &History) {
        self.all = history.interfaces();
        self.parsers = self
            .all
            .iter()
            .map(|interface| Parser::inside(interface.link, self.inner))
            .collect();
    }

    /// Flow key of a packet, if it has one.
    pub fn key(&self, record: &Record<'_>) -> Option<FlowKey> {
        self.parser(record)?.key(record.frame.data).ok()
    }

    /// Keys under which a threshold counts a packet.
    pub fn keys(&self, key: trigger::Key, record: &Record<'_>) -> [Option<FlowKey>; 2] {
        let trigger::Key::Of(kind) = key else {
            return [Some(FlowKey::NONE), None];
        };
        let facts = match kind.needs_facts() {
            true => self.facts(record),
            false => Facts::NONE,
        };
        kind.keys(self.key(record).as_ref(), &facts, record.frame.wire_len)
    }

    fn facts(&self, record: &Record<'_>) -> Facts {
        let parser = self.parser(record);
        let mut facts = parser.map_or(Facts::NONE, |parser| parser.facts(record.frame.data));
        let interface = self.all.get(record.frame.interface as usize);
        if let Some(name) = interface.and_then(|interface| interface.name.as_deref()) {
            facts.set_interface(name);
        }
        facts
    }

    /// Flow parser of a packet's interface, if its frames have flow keys.
    pub fn parser(&self, record: &Record<'_>) -> Option<&Parser> {
        self.parsers.get(record.frame.interface as usize)?.as_ref()
    }
}

/// Packets that a firing keeps.
enum Kept {
    All,
    Flow(FlowKey),
    Hosts(Hosts),
    /// The expression, its filters, and the reason for which it makes no sense for the interfaces.
    Matches(String, Option<Filters>, Option<weir_filter::Error>),
}

impl Kept {
    fn new(keep: &Keep, cause: &Cause) -> (Self, Option<String>) {
        let all = |what: &str| {
            (
                Self::All,
                Some(format!("nothing tells the {what}: all packets are kept")),
            )
        };
        match keep {
            Keep::All => (Self::All, None),
            Keep::Matches(expression) => (Self::Matches(expression.clone(), None, None), None),
            Keep::Flow => match cause.flow {
                Some(flow) => (Self::Flow(flow.canonical()), None),
                None => all("flow"),
            },
            Keep::Host => match cause.hosts {
                Some(hosts) => (Self::Hosts(hosts), None),
                None => all("host"),
            },
        }
    }

    /// Choice of the packets of the file of a trigger that `cause` fired.
    fn chosen(keep: &Keep, cause: &Cause) -> Chosen {
        match (keep, cause.flow, cause.hosts) {
            (Keep::Matches(expression), ..) => Chosen::by(&Selection {
                expression: expression.clone(),
                ..Selection::default()
            }),
            (Keep::Flow, Some(flow), _) => {
                Chosen::default().only(format!("packets of the conversation {}", ends(&flow)))
            }
            (Keep::Host, _, Some(hosts)) => {
                Chosen::default().only(format!("packets from and to {hosts}"))
            }
            _ => Chosen::default(),
        }
    }

    /// Indices of the packets of a piece to keep.
    fn find(&mut self, piece: &Piece, interfaces: &Interfaces, found: &mut Vec<u32>) {
        let all = 0..piece.len() as u32;
        let key = |index: u32| interfaces.key(&piece.record(index as usize));
        match self {
            Self::All => found.extend(all),
            Self::Flow(flow) => found
                .extend(all.filter(|&index| key(index).is_some_and(|key| is_of_flow(&key, flow)))),
            Self::Hosts(hosts) => {
                let is_end = |key: FlowKey| {
                    let mut ends = key.source().into_iter().chain(key.destination());
                    ends.any(|end| hosts.contain(end))
                };
                found.extend(all.filter(|&index| key(index).is_some_and(is_end)));
            }
            Self::Matches(expression, filters, misfit) => {
                // An expression that makes sense for none of the interfaces keeps nothing.
                *misfit = interfaces.compile(expression, filters);
                if let Some(filters) = filters {
                    filters.find(piece, found);
                }
            }
        }
    }
}

/// Whether a packet belongs to a flow in either direction. Later fragments have no ports, and belong to each flow of their hosts and
/// protocol.
fn is_of_flow(key: &FlowKey, flow: &FlowKey) -> bool {
    if key.flags & FlowKey::LATER_FRAGMENT == 0 {
        return key.canonical() == *flow;
    }
    let ends = |key: &FlowKey| {
        (
            key.src.min(key.dst),
            key.src.max(key.dst),
            key.proto,
            key.family,
        )
    };
    ends(key) == ends(flow)
}

/// A file under way, with the place in the ring from which its next packets arrive.
pub(super) struct Firing {
    /// Index of the trigger, and the key that fired it.
    pub trigger: usize,
    pub key: Key,
    pub cause: Cause,
    /// Time after an event up to which packets are saved.
    after: Duration,
    /// First and last arrival of the saved packets, ns.
    from: i64,
    until: i64,
    /// Steady time at which the wait for packets ends, ns; `None` if the source's packets tell the
    /// time.
    deadline_ns: Option<u64>,
    cursor: Cursor,
    kept: Kept,
    file: SaveFile,
    remarks: Vec<String>,
    /// Arrival of the last packet, for packets without a time.
    last: i64,
    over: bool,
    /// Time of the last event that let the file grow, ns, and its text if it tells other figures.
    grown: Option<(i64, Option<String>)>,
    /// Whether the last look failed, because other readers kept as many chunks as may be kept.
    starved: bool,
    found: Vec<u32>,
}

/// Span of a firing, with its file.
pub(super) struct Begin {
    pub trigger: usize,
    pub key: Key,
    pub cause: Cause,
    pub before: Duration,
    pub after: Duration,
    pub file: SaveFile,
    /// Steady time at which the wait for packets ends, ns.
    pub deadline_ns: Option<u64>,
}

impl Firing {
    pub fn new(begin: Begin, keep: &Keep, history: &History, arrivals: &Arrivals) -> Self {
        let Begin {
            trigger,
            key,
            cause,
            before,
            after,
            file,
            deadline_ns,
        } = begin;
        let (kept, remark) = Kept::new(keep, &cause);
        let file = file.holding(Kept::chosen(keep, &cause));
        let mut remarks: Vec<String> = remark.into_iter().collect();
        let from = cause.arrived.saturating_sub(nanoseconds(before));
        let oldest = history.next().saturating_sub(history.held().packets);
        let gone = if oldest > 0 {
            arrivals.since(oldest)
        } else {
            None
        };
        if let Some(oldest) = gone.filter(|&oldest| oldest > from) {
            let held = Duration::from_nanos(cause.arrived.saturating_sub(oldest).max(0) as u64);
            remarks.push(format!(
                "{before:?} before were asked for, and the ring held {held:.3?}"
            ));
        }
        let mut file = file;
        if let Some((_, captured)) = cause.packet {
            file.reserve(captured);
        }
        Self {
            trigger,
            key,
            after,
            grown: None,
            from,
            until: cause.arrived.saturating_add(nanoseconds(after)),
            cause,
            deadline_ns,
            // What is gone already is reported above, and does not count as missed.
            cursor: history.cursor(From::Number(arrivals.begin(from).max(oldest))),
            kept,
            file,
            remarks,
            last: i64::MIN,
            over: false,
            starved: false,
            found: Vec::new(),
        }
    }

    /// Time from which on and up to which packets are saved, ns since 1970, by the timestamp of
    /// what fired.
    pub fn span_ns(&self) -> (i64, i64) {
        let by_stamp = |arrival: i64| {
            arrival
                .saturating_sub(self.cause.arrived)
                .saturating_add(self.cause.time_ns)
        };
        (by_stamp(self.from), by_stamp(self.until))
    }

    /// End of the file, by arrivals, ns.
    pub fn until(&self) -> i64 {
        self.until
    }

    /// Has the file reach further, because its condition held again. Live sources wait for packets until the steady time `deadline_ns`.
    /// Returns whether it does: a file grows for an hour at most, and not if it is full.
    pub fn grow(&mut self, arrived: i64, text: Option<String>, steady_ns: Option<u64>) -> bool {
        let until = arrived.saturating_add(nanoseconds(self.after));
        let longest = self.cause.arrived.saturating_add(LONGEST_NS);
        if until > longest || self.over || self.file.left_out() > 0 {
            return false;
        }
        if until > self.until {
            self.until = until;
            let wait = nanoseconds(self.after).saturating_add(LATE_NS) as u64;
            self.deadline_ns = steady_ns.map(|steady_ns| steady_ns.saturating_add(wait));
            let text = text.or(self.grown.take().and_then(|(_, text)| text));
            self.grown = Some((arrived, text));
        }
        true
    }

    /// Chunk of the ring that is read next.
    pub fn chunk(&self) -> u64 {
        self.cursor.chunk()
    }

    /// Moves packets of one chunk into the file. Returns whether there were any.
    pub fn step(&mut self, now: u64, interfaces: &Interfaces, arrivals: &mut Arrivals) -> bool {
        let starved = self.cursor.starved();
        let piece = self.cursor.next(now);
        // So that many files under way need one pin.
        self.cursor.rest();
        self.starved = self.cursor.starved() > starved;
        let Some(piece) = piece else {
            // Readers of other threads keep a chunk for a moment.
            let grace = if self.starved { LATE_NS as u64 } else { 0 };
            self.over |= self
                .deadline_ns
                .is_some_and(|deadline| now >= deadline.saturating_add(grace));
            return false;
        };
        arrivals.see(&piece, now);
        let mut found = std::mem::take(&mut self.found);
        found.clear();
        self.kept.find(&piece, interfaces, &mut found);
        for &index in &found {
            let (number, record) = (piece.number(index as usize), piece.record(index as usize));
            self.last = record
                .time_ns
                .map_or(self.last, |stamp| arrivals.arrival(number, stamp));
            let fired = self
                .cause
                .packet
                .is_some_and(|(packet, _)| packet == number);
            if fired {
                self.file.release();
            }
            if fired || (self.from..=self.until).contains(&self.last) {
                self.file.packet(&interfaces.all, &record);
            }
        }
        self.found = found;
        // The last packets agree: a single damaged timestamp ends no file.
        let last = piece.len().saturating_sub(AGREEING)..piece.len();
        let end = self.until.saturating_add(LATE_NS);
        let arrival = |index: usize| {
            Some(arrivals.arrival(piece.number(index), piece.record(index).time_ns?))
        };
        self.over |= last
            .into_iter()
            .all(|index| arrival(index).is_some_and(|time| time > end));
        true
    }

    /// Whether the wait for packets of the span has ended.
    pub fn is_over(&self) -> bool {
        self.over
    }

    /// Reason for which the expression for kept packets makes no sense for the interfaces.
    pub fn misfit(&self) -> Option<String> {
        match &self.kept {
            Kept::Matches(_, _, Some(why)) => Some(why.to_string()),
            _ => None,
        }
    }

    /// Whether packets wait that could not be read.
    pub fn is_starved(&self) -> bool {
        self.starved
    }

    /// Completes the file. `dropped` are packets that the sources dropped in the span, if that is known.
    pub fn finish(
        mut self,
        interfaces: &Interfaces,
        history: &History,
        dropped: Option<u64>,
    ) -> (usize, Cause, (u64, Vec<String>), Complete) {
        if let Some(why) = self.misfit() {
            self.remarks.push(format!(
                "nothing is kept: its expression makes no sense for what is recorded: {why}"
            ));
        }
        if let Some((last, text)) = self.grown.take() {
            let later = Duration::from_nanos(last.saturating_sub(self.cause.arrived).max(0) as u64);
            let text = text.map_or(String::new(), |text| format!(": {text}"));
            self.remarks.push(format!(
                "the condition held again, for the last time {later:.3?} after the first{text}"
            ));
        }
        let missed = self.cursor.missed();
        let waiting = || {
            self.cursor
                .number()
                .map_or(history.held().packets, |number| history.next() - number)
        };
        let unread = if self.starved { waiting() } else { 0 };
        if unread > 0 {
            self.remarks.push(format!(
                "up to {unread} packets could not be read, because other readers used the ring"
            ));
        }
        if missed > 0 {
            self.remarks.push(format!(
                "{missed} packets left the ring before they could be saved"
            ));
        }
        match dropped {
            Some(0) if missed + unread > 0 => {}
            Some(0) => self.remarks.push("no packet of the span was dropped before the ring".to_owned()),
            Some(dropped) => self.remarks.push(format!(
                "{dropped} packets were dropped before the ring, in the span or up to a second around it"
            )),
            None => {}
        }
        if self.file.left_out() > 0 {
            self.remarks.push(format!(
                "{} packets were left out: the file is as large as it may be, or failed",
                self.file.left_out()
            ));
        }
        let lost = missed + unread;
        let dropped_by_system = dropped
            .map(|dropped| dropped + lost)
            .or((lost > 0).then_some(lost));
        let counts = Statistics {
            time_ns: self.span_ns().1,
            dropped_by_system,
            ..Statistics::default()
        };
        let complete = self.file.finish(&interfaces.all, &counts, &self.remarks);
        (self.trigger, self.cause, (lost, self.remarks), complete)
    }
}

pub(super) fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}
