//! Checks of conditions on the packets of the ring.

use super::arrival::Arrivals;
use super::firing::{Cause, Interfaces, nanoseconds};
use super::trigger::{Condition, Figure, Key, Threshold};
use core::net::IpAddr;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use weir_packet::flow::FlowKey;
use weir_store::ring::{Filters, Piece};

/// Largest number of keys, or of pairs of peers, that a condition counts in a window. Further ones are not counted.
const MOST_KEYS: usize = 1 << 18;

/// Cause of a trigger that fires at intervals.
pub(super) const SCHEDULE: &str = "the schedule";

/// Smallest number of packets of a window that has grown.
const GROWN: u64 = 100;

/// Check of a condition.
pub(super) enum Check {
    /// Nothing is checked.
    None,
    Matches(String, Option<Filters>),
    Exceeds(Box<Meter>),
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
    pub fn new(condition: &Condition, by_packets: bool) -> Self {
        match condition {
            Condition::Asked => Self::None,
            Condition::Matches(expression) => Self::Matches(expression.clone(), None),
            Condition::Exceeds(threshold) => Self::Exceeds(Box::new(Meter::new(*threshold))),
            Condition::Every(time) => Self::Every(Schedule {
                interval: nanoseconds(*time).max(1),
                next: None,
                by_packets,
            }),
        }
    }

    /// Whether packets are checked.
    pub fn reads_packets(&self) -> bool {
        match self {
            Self::None => false,
            Self::Matches(..) | Self::Exceeds(_) => true,
            Self::Every(schedule) => schedule.by_packets,
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

    /// Calls `met` for each packet of a piece that meets the condition.
    pub fn check(
        &mut self,
        piece: &Piece,
        arrivals: &Arrivals,
        interfaces: &Interfaces,
        found: &mut Vec<u32>,
        met: &mut dyn FnMut(Met<'_>),
    ) {
        let arrived = |index: usize| {
            Some(arrivals.arrival(piece.number(index), piece.record(index).time_ns?))
        };
        match self {
            Self::Matches(expression, filters) => {
                let Some(filters) = filters else { return };
                found.clear();
                filters.find(piece, found);
                for &index in &*found {
                    met(Met::matching(piece, index as usize, &|| {
                        format!("a packet matches '{expression}'")
                    }));
                }
            }
            Self::Exceeds(meter) => {
                for index in 0..piece.len() {
                    if let Some(time) = arrived(index) {
                        meter.count(piece, index, time, interfaces, met);
                    }
                }
            }
            Self::Every(schedule) => {
                for index in 0..piece.len() {
                    if arrived(index).is_some_and(|time| schedule.is_due(time)) {
                        met(Met {
                            piece,
                            index,
                            host: None,
                            kind: Kind::Time,
                            text: &|| SCHEDULE.to_owned(),
                        });
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

    /// The packet at `index` of a piece, which matches the expression of this check; `None` if there is no expression.
    pub fn matching<T>(
        &self,
        piece: &Piece,
        index: usize,
        each: impl FnOnce(Met<'_>) -> T,
    ) -> Option<T> {
        let Self::Matches(expression, _) = self else {
            return None;
        };
        Some(each(Met::matching(piece, index, &|| {
            format!("a packet matches '{expression}'")
        })))
    }
}

/// A packet that meets a condition.
pub(super) struct Met<'a> {
    piece: &'a Piece,
    index: usize,
    /// Address that is the cause.
    host: Option<IpAddr>,
    kind: Kind,
    text: &'a dyn Fn() -> String,
}

/// Kind of an event that meets a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The packet matches an expression, as any number of packets may.
    Match,
    /// With the packet a threshold is exceeded, once in a window.
    Threshold,
    /// The packet arrived when an interval had ended.
    Time,
}

impl<'a> Met<'a> {
    fn matching(piece: &'a Piece, index: usize, text: &'a dyn Fn() -> String) -> Self {
        Self {
            piece,
            index,
            host: None,
            kind: Kind::Match,
            text,
        }
    }

    /// Time of the packet, ns since 1970.
    pub fn time_ns(&self) -> Option<i64> {
        self.piece.record(self.index).time_ns
    }

    /// The same event at another packet of the piece.
    pub fn of(&self, index: usize) -> Met<'_> {
        Met { index, ..*self }
    }

    /// Number of the packet in the ring.
    pub fn number(&self) -> u64 {
        self.piece.number(self.index)
    }

    /// Index of the packet in its piece, if it matches an expression: then many packets may meet the condition.
    pub fn as_match(&self) -> Option<usize> {
        (self.kind == Kind::Match).then_some(self.index)
    }

    /// The cause, if the trigger fires. **Cost**: allocates.
    pub fn cause(&self, time_ns: i64, arrived: i64, interfaces: &Interfaces) -> Cause {
        let flow = interfaces.key(&self.piece.record(self.index));
        let host = self
            .host
            .or_else(|| flow.as_ref().and_then(FlowKey::source));
        let ends = flow.map_or(String::new(), |key| format!(" ({})", ends(&key)));
        let is_packet = self.kind != Kind::Time;
        let ends = if is_packet { ends } else { String::new() };
        let captured = self.piece.frame(self.index).data.len();
        let packet = is_packet.then(|| (self.number(), captured));
        Cause {
            text: format!("{}{ends}", (self.text)()),
            time_ns,
            arrived,
            packet,
            flow,
            host,
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

/// Key that a meter counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Counted {
    Total,
    Address(IpAddr),
    Flow(FlowKey),
}

/// Counts of a key in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    packets: u64,
    bits: u64,
    peers: u64,
    /// Whether the threshold was exceeded in this window before.
    told: bool,
}

/// Counts of the current window and of the one before, by key.
pub(super) struct Meter {
    threshold: Threshold,
    window_ns: i64,
    /// Number of the current window, by arrivals.
    window: Option<i64>,
    /// The first window, until the next window begins: time at its begin before the first packet,
    /// ns, and its packets.
    first: Option<(i64, i64)>,
    counts: HashMap<Counted, Counts>,
    before: HashMap<Counted, Counts>,
    peers: HashSet<(Counted, IpAddr)>,
}

impl Meter {
    fn new(threshold: Threshold) -> Self {
        let window_ns = nanoseconds(threshold.window).max(1);
        let (counts, before, peers) = (HashMap::new(), HashMap::new(), HashSet::new());
        Self {
            threshold,
            window_ns,
            window: None,
            first: None,
            counts,
            before,
            peers,
        }
    }

    /// Begins the window of a packet that arrived at `time`.
    ///
    /// Of the first window only a part was seen, so that steady traffic would seem to grow: it
    /// counts as the whole if its first packet arrived as soon as two packets follow each other, or
    /// as soon as the first packet of the next window.
    fn begin_window(&mut self, window: i64, time: i64) {
        let head_ns = time.rem_euclid(self.window_ns);
        if self.window.is_none() {
            self.first = Some((head_ns, 0));
        } else if let Some((first_ns, packets)) = self.first.take()
            && first_ns > head_ns.max((self.window_ns - first_ns) / packets.max(1) * 2)
        {
            self.counts.clear();
        }
        let next = self.window.is_some_and(|before| before + 1 == window);
        std::mem::swap(&mut self.counts, &mut self.before);
        self.counts.clear();
        if !next {
            self.before.clear();
        }
        self.peers.clear();
        self.window = Some(window);
    }

    /// Counts a packet that arrived at `time`, ns.
    fn count(
        &mut self,
        piece: &Piece,
        index: usize,
        time: i64,
        interfaces: &Interfaces,
        met: &mut dyn FnMut(Met<'_>),
    ) {
        let record = piece.record(index);
        let window = time.div_euclid(self.window_ns);
        // A packet that comes late counts in the window that is open.
        if self.window.is_none_or(|current| window > current) {
            self.begin_window(window, time);
        }
        if let Some((_, packets)) = &mut self.first {
            *packets += 1;
        }
        let flow = interfaces.key(&record);
        let ends = flow
            .as_ref()
            .map(|flow| (flow.source(), flow.destination()));
        let (counted, peer) = match (self.threshold.key, flow) {
            (Key::Total, _) => (Counted::Total, ends.and_then(|ends| ends.0)),
            (Key::Source, Some(_)) => match ends {
                Some((Some(source), destination)) => (Counted::Address(source), destination),
                _ => return,
            },
            (Key::Destination, Some(_)) => match ends {
                Some((source, Some(destination))) => (Counted::Address(destination), source),
                _ => return,
            },
            (Key::Conversation, Some(flow)) => (
                Counted::Flow(flow.canonical()),
                ends.and_then(|ends| ends.0),
            ),
            (_, None) => return,
        };
        let has_room = self.counts.len() < MOST_KEYS;
        let counts = match self.counts.entry(counted) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) if has_room => entry.insert(Counts::default()),
            Entry::Vacant(_) => return,
        };
        counts.packets += 1;
        counts.bits += u64::from(record.frame.wire_len) * 8;
        if self.threshold.figure == Figure::Peers
            && let Some(peer) = peer
            && self.peers.len() < MOST_KEYS
            && self.peers.insert((counted, peer))
        {
            counts.peers += 1;
        }
        let seconds = self.window_ns as f64 / 1e9;
        let value = match self.threshold.figure {
            Figure::Packets => counts.packets as f64 / seconds,
            Figure::Bits => counts.bits as f64 / seconds,
            Figure::Peers => counts.peers as f64,
            Figure::Growth => {
                let before = self.before.get(&counted).map_or(0, |before| before.packets);
                if counts.packets < GROWN || before == 0 {
                    0.0
                } else {
                    counts.packets as f64 / before as f64
                }
            }
        };
        if value <= self.threshold.above || counts.told {
            return;
        }
        counts.told = true;
        let host = if let Counted::Address(address) = counted {
            Some(address)
        } else {
            None
        };
        let Threshold {
            figure,
            above,
            window,
            ..
        } = self.threshold;
        let unit = match figure {
            Figure::Packets => "packets/s",
            Figure::Bits => "bit/s",
            Figure::Growth => "times the packets of the window before",
            Figure::Peers => "peers",
        };
        let who = match counted {
            Counted::Total => "all packets".to_owned(),
            Counted::Address(address) => address.to_string(),
            Counted::Flow(_) => "a conversation".to_owned(),
        };
        met(Met {
            piece,
            index,
            host,
            kind: Kind::Threshold,
            text: &|| format!("{who}: more than {above} {unit} in a window of {window:?}"),
        });
    }
}
