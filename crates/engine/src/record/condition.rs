//! Checks of conditions on the packets of the ring.

use super::arms::Key;
use super::arrival::Arrivals;
use super::firing::{Cause, Hosts, Interfaces, nanoseconds};
use super::panes::Moment;
use super::rates::Rates;
use super::spread::{self, Content, Offender, Spreading};
use super::trigger::{self, Condition, Figure, Threshold};
use crate::keys;
use core::net::IpAddr;
use weir_measure::{Field, KeyKind};
use weir_packet::flow::FlowKey;
use weir_store::ring::{Filters, Piece};

/// Cause of a trigger that fires at intervals.
pub(super) const SCHEDULE: &str = "the schedule";

/// Check of a condition.
pub(super) enum Check {
    /// Nothing is checked.
    None,
    Matches(String, Option<Filters>),
    Exceeds(Box<Rates>, Threshold),
    Spreads(Box<dyn Spreading>),
    Every(Schedule),
}

/// Intervals that end one after the other, by arrivals or by the steady clock, ns.
pub(super) struct Schedule {
    interval: i64,
    /// End of the current interval.
    next: Option<i64>,
    /// Whether the packets tell the time, because the sources are files.
    by_packets: bool,
}

impl Schedule {
    /// Whether an interval ended at `time_ns`.
    fn is_due(&mut self, time_ns: i64) -> bool {
        let end = *self
            .next
            .get_or_insert(time_ns.saturating_add(self.interval));
        if time_ns < end {
            return false;
        }
        // Intervals that passed in the meantime are not made up for.
        let passed = (time_ns - end) / self.interval + 1;
        self.next = Some(end.saturating_add(passed.saturating_mul(self.interval)));
        true
    }
}

impl Check {
    /// A check; `by_packets` if the packets tell the time, because the sources are files.
    ///
    /// **Errors**: the memory of a sample cannot be obtained.
    pub fn new(condition: &Condition, by_packets: bool) -> Result<Self, weir_sketch::Error> {
        Ok(match condition {
            Condition::Asked => Self::None,
            Condition::Matches(expression) => Self::Matches(expression.clone(), None),
            Condition::Exceeds(threshold) => match threshold.figure.elements() {
                Some(figure) => Self::Spreads(spread::threshold(*threshold, figure)?),
                None => Self::Exceeds(Box::new(Rates::new(*threshold)), *threshold),
            },
            Condition::Scan => Self::Spreads(spread::scan()?),
            Condition::Every(time) => Self::Every(Schedule {
                interval: nanoseconds(*time).max(1),
                next: None,
                by_packets,
            }),
        })
    }

    /// Whether packets are checked.
    pub fn reads_packets(&self) -> bool {
        match self {
            Self::None => false,
            Self::Matches(..) | Self::Exceeds(..) | Self::Spreads(_) => true,
            Self::Every(schedule) => schedule.by_packets,
        }
    }

    /// Memory of the check, bytes; 0 if it needs none worth mentioning.
    pub fn memory_bytes(&self) -> u64 {
        match self {
            Self::Exceeds(rates, _) => rates.memory_bytes(),
            Self::Spreads(spread) => spread.memory_bytes(),
            _ => 0,
        }
    }

    /// Reason for which the check may miss events; `None` if there is none.
    pub fn doubt(&self) -> Option<String> {
        match self {
            Self::Exceeds(rates, _) if rates.forgotten > 0 => Some(format!(
                "more keys than there is room for: {} of them were forgotten within a window",
                rates.forgotten
            )),
            Self::Spreads(spread) => spread.doubt().map(str::to_owned),
            _ => None,
        }
    }

    /// Compiles an expression for the interfaces that are known by now. Returns the reason if it makes sense for none of them.
    pub fn prepare(&mut self, interfaces: &Interfaces) -> Option<weir_filter::Error> {
        if let Self::Matches(expression, filters) = self {
            interfaces.compile(expression, filters)
        } else {
            None
        }
    }

    /// Calls `met` for each event of the packets of a piece.
    pub fn check(
        &mut self,
        piece: &Piece,
        arrivals: &Arrivals,
        interfaces: &Interfaces,
        found: &mut Vec<u32>,
        met: &mut dyn FnMut(Event<'_>),
    ) {
        let moment = |index: usize| {
            let time_ns = piece.record(index).time_ns?;
            let arrived = arrivals.arrival(piece.number(index), time_ns);
            Some(Moment { arrived, time_ns })
        };
        match self {
            Self::Matches(expression, filters) => {
                let Some(filters) = filters else { return };
                found.clear();
                filters.find(piece, found);
                let text = || format!("a packet matches '{expression}'");
                for &index in &*found {
                    let index = index as usize;
                    // A packet without a timestamp arrived with those around it.
                    let moment = moment(index).unwrap_or_else(|| now(arrivals));
                    met(Event {
                        packet: Some((piece, index)),
                        ..Event::at(moment, &text)
                    });
                }
            }
            Self::Exceeds(rates, threshold) => {
                let reach_ns = rates.reach_ns();
                for index in 0..piece.len() {
                    let Some(moment) = moment(index) else {
                        continue;
                    };
                    let record = piece.record(index);
                    let keys = interfaces.keys(threshold.key, &record);
                    let bits = u64::from(record.frame.wire_len) * 8;
                    rates.count(keys, bits, moment.arrived, &mut |key| {
                        met(Event {
                            key: Some(key),
                            reach_ns,
                            packet: Some((piece, index)),
                            hosts: hosts(threshold.key, &key),
                            ..Event::at(moment, &|| rate_words(threshold, &key))
                        });
                    });
                }
            }
            Self::Spreads(spread) => {
                let reads_contents = spread.reads_contents();
                for index in 0..piece.len() {
                    let (Some(moment), record) = (moment(index), piece.record(index)) else {
                        continue;
                    };
                    let Some(flow) = interfaces.key(&record) else {
                        continue;
                    };
                    let content = match interfaces.parser(&record) {
                        Some(parser) if reads_contents => {
                            Content::of(&flow, parser, record.frame.data)
                        }
                        _ => Content::default(),
                    };
                    spread.count(&flow, content, moment, &mut |one| offender(&one, met));
                }
            }
            Self::Every(schedule) => {
                for index in 0..piece.len() {
                    if let Some(moment) = moment(index)
                        && schedule.is_due(moment.arrived)
                    {
                        met(Event::at(moment, &|| SCHEDULE.to_owned()));
                    }
                }
            }
            Self::None => {}
        }
    }

    /// Whether an interval ended at the steady time `steady_ns`, ns.
    pub fn is_due(&mut self, steady_ns: u64) -> bool {
        match self {
            Self::Every(schedule) => {
                !schedule.by_packets
                    && schedule.is_due(i64::try_from(steady_ns).unwrap_or(i64::MAX))
            }
            _ => false,
        }
    }

    /// Calls `met` for events of packets that were checked before, because all packets before `arrived` were, or because the sources
    /// have ended.
    pub fn pass(&mut self, arrived: Option<i64>, met: &mut dyn FnMut(Event<'_>)) {
        let Self::Spreads(spread) = self else { return };
        let found = &mut |one: Offender| offender(&one, met);
        match arrived {
            Some(arrived) => spread.pass(arrived, found),
            None => spread.finish(found),
        }
    }
}

fn offender(one: &Offender, met: &mut dyn FnMut(Event<'_>)) {
    met(Event {
        key: Some(one.key),
        reach_ns: one.reach_ns,
        hosts: one.hosts,
        tells_more: true,
        ..Event::at(one.moment, &|| one.text.clone())
    });
}

/// The time by the packets so far.
fn now(arrivals: &Arrivals) -> Moment {
    Moment {
        arrived: arrivals.now().unwrap_or(i64::MIN),
        time_ns: arrivals.stamp().unwrap_or(i64::MIN),
    }
}

/// Addresses of a key that a threshold counts: of a key with both ends, of its source. `None` for a key without a source and a destination.
pub(super) fn hosts(counted: trigger::Key, key: &FlowKey) -> Option<Hosts> {
    let trigger::Key::Of(kind) = counted else {
        return None;
    };
    match kind {
        KeyKind::Src(_) | KeyKind::Host(_) => Some(Hosts::of(kind, key.source()?)),
        KeyKind::Dst(_) => Some(Hosts::of(kind, key.destination()?)),
        KeyKind::Fields(fields) => {
            let (flow, (src, dst)) = (fields.unpack(key).flow, fields.prefixes());
            match fields.has(Field::Src) {
                true => Some(Hosts::of(KeyKind::Src(src), flow.source()?)),
                false => Some(Hosts::of(KeyKind::Dst(dst), flow.destination()?)),
            }
        }
        _ => None,
    }
}

/// A key that a threshold counts, as text.
pub(super) fn key_words(counted: trigger::Key, key: &FlowKey) -> String {
    match counted {
        trigger::Key::Total => "all packets".to_owned(),
        // The packet that fires names the ends.
        trigger::Key::Of(KeyKind::Conversation) => "a conversation".to_owned(),
        trigger::Key::Of(kind @ (KeyKind::Src(_) | KeyKind::Dst(_) | KeyKind::Host(_))) => {
            keys::name(kind, key)
        }
        trigger::Key::Of(kind) => format!("{kind} {}", keys::name(kind, key)),
    }
}

/// Cause of a rate that is exceeded.
fn rate_words(threshold: &Threshold, key: &FlowKey) -> String {
    let Threshold { above, window, .. } = threshold;
    let unit = match threshold.figure {
        Figure::Bits => "bit/s",
        Figure::Growth => "times the packets of the window before",
        _ => "packets/s",
    };
    let name = key_words(threshold.key, key);
    format!("{name}: more than {above} {unit} in a window of {window:?}")
}

/// An event that meets a condition.
pub(super) struct Event<'a> {
    /// Key that meets it; `None` if the condition counts by no key.
    pub key: Key,
    /// Time whose packets the condition looked at, ns.
    pub reach_ns: i64,
    pub moment: Moment,
    /// Packet that is the event, by its index in a piece.
    packet: Option<(&'a Piece, usize)>,
    /// Addresses that are the cause.
    hosts: Option<Hosts>,
    /// Whether a later event of the key has other figures, which a file may tell.
    pub tells_more: bool,
    text: &'a dyn Fn() -> String,
}

impl<'a> Event<'a> {
    /// An event at this time that neither a packet nor a key is.
    pub fn at(moment: Moment, text: &'a dyn Fn() -> String) -> Self {
        Self {
            key: None,
            reach_ns: 0,
            moment,
            packet: None,
            hosts: None,
            tells_more: false,
            text,
        }
    }

    /// The event as text. **Cost**: allocates.
    pub fn text(&self) -> String {
        (self.text)()
    }

    /// The cause, if the trigger fires. **Cost**: allocates.
    pub fn cause(&self, interfaces: &Interfaces) -> Cause {
        let Moment { arrived, time_ns } = self.moment;
        let flow = self
            .packet
            .and_then(|(piece, index)| interfaces.key(&piece.record(index)));
        let ends = flow.map_or(String::new(), |key| format!(" ({})", ends(&key)));
        let source = flow.as_ref().and_then(FlowKey::source);
        let packet = self
            .packet
            .map(|(piece, index)| (piece.number(index), piece.frame(index).data.len()));
        Cause {
            text: format!("{}{ends}", self.text()),
            time_ns,
            arrived,
            packet,
            flow,
            hosts: self.hosts.or(source.map(Hosts::one)),
        }
    }
}

/// Both ends of a flow, as a line of a packet shows them.
pub(super) fn ends(key: &FlowKey) -> String {
    let (source, destination) = (key.source(), key.destination());
    let name = |address: Option<IpAddr>, port: Option<u16>| {
        let address = address.map_or(String::new(), |address| address.to_string());
        port.map_or(address.clone(), |port| format!("{address}.{port}"))
    };
    let ports = key.ports();
    format!(
        "{} > {}",
        name(source, ports.map(|ports| ports.0)),
        name(destination, ports.map(|ports| ports.1))
    )
}
