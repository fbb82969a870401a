//! The other end of a sender: packets that arrive are paired with the packets that left, by the number and the time in their payload, or by
//! their bytes.
//!
//! ```text
//! received    packets of the sender, each counted once
//! duplicated  packets that had arrived before
//! reordered   packets after a higher number (RFC 4737 section 3.3); the extent is the distance to the highest number
//! delay       from the hand-over to the port until the kernel's timestamp, by one clock: of one host only
//! jitter      difference between the delays of two packets that arrive one after the other (RFC 3393)
//! ```
//!
//! Packets that left and did not arrive are lost. The caller knows which counter saw them.

mod density;
mod departures;

use crate::reflection::{Trips, Ways, times_there};
use crate::sink::{End, Kind, Sink, SinkReport};
use density::Density;
use departures::{Departures, Match};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_generator::streams::{MAGIC, RETURNED, STAMP, read_stamp};
use weir_packet::savefile::{Layout, Record};

/// Numbers of a stream in memory. A packet with an earlier number may be late or a duplicate.
const REMEMBERED: u64 = 1 << 20;

/// Longest delay that is recorded as such.
const LONGEST_NS: u64 = 60_000_000_000;

/// Bytes of a frame in which a timestamp may begin.
const HEADERS: usize = 256;

/// Counts of packets that arrived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Packets that arrived, each counted once.
    pub received: u64,
    /// Packets that had arrived before.
    pub duplicated: u64,
    /// Packets that arrived after a packet with a higher number.
    pub reordered: u64,
    /// Packets so late that it is not known whether they had arrived before; they are part of no other count.
    pub too_late: u64,
}

/// A distribution in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spread {
    /// Number of values.
    pub count: u64,
    /// Median.
    pub p50: u64,
    /// 99th percentile.
    pub p99: u64,
    /// 99.9th percentile.
    pub p999: u64,
    /// Maximum.
    pub max: u64,
}

impl Spread {
    /// Figures of a histogram. **Error bound**: a thousandth of each value.
    pub(crate) fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            count: histogram.len(),
            p50: histogram.value_at_quantile(0.5),
            p99: histogram.value_at_quantile(0.99),
            p999: histogram.value_at_quantile(0.999),
            max: histogram.max(),
        }
    }
}

/// Facts about the other end.
#[derive(Clone, Debug)]
pub struct Report {
    /// By stream.
    pub streams: Vec<Arrivals>,
    /// Other packets: without a timestamp, of another profile, or with bytes that did not leave.
    pub others: u64,
    /// Delay of packets, ns, duplicates left out; of a round trip, without the time at the other end.
    delay: Histogram<u64>,
    /// Packets that left after their arrival: the clock was set.
    pub negative: u64,
    /// Difference between delays of packets that arrive one after the other, ns.
    jitter: Histogram<u64>,
    /// Extents of reordered packets, numbers (RFC 4737 section 4.2.2).
    extent: Histogram<u64>,
    /// Packets that arrived after a later packet of the other port, and in order among the packets of their own port.
    pub across: u64,
    /// Times without a link.
    pub downs: Downs,
}

/// Times in which an interface that receives had no link, from its begin on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Downs {
    /// Number of these times.
    pub times: u64,
    /// Begin of the first time, ns since the epoch.
    pub first_ns: i64,
    /// Sum of their lengths, ns, without a time that goes on.
    sum_ns: i64,
    /// Begin of the time that goes on, ns since the epoch.
    since_ns: Option<i64>,
}

impl Downs {
    /// Notes whether there is a link at this time, ns since the epoch.
    fn note(&mut self, is_down: bool, now_ns: i64) {
        match (self.since_ns, is_down) {
            (None, true) => {
                if self.times == 0 {
                    self.first_ns = now_ns;
                }
                self.times += 1;
                self.since_ns = Some(now_ns);
            }
            (Some(since_ns), false) => {
                self.sum_ns += now_ns.saturating_sub(since_ns);
                self.since_ns = None;
            }
            _ => {}
        }
    }

    /// Whether there is no link now.
    pub fn is_down(&self) -> bool {
        self.since_ns.is_some()
    }

    /// Time without a link until this time, ns since the epoch; ns.
    pub fn length_ns(&self, now_ns: i64) -> i64 {
        let since = self
            .since_ns
            .map(|since_ns| now_ns.saturating_sub(since_ns));
        self.sum_ns + since.unwrap_or_default()
    }
}

/// A histogram of times up to a minute, ns, each to the thousandth.
pub(crate) fn times() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LONGEST_NS, 3).expect("the bounds are in order")
}

impl Report {
    fn new(streams: usize) -> Self {
        Self {
            streams: vec![Arrivals::default(); streams],
            others: 0,
            delay: times(),
            negative: 0,
            jitter: times(),
            extent: Histogram::new_with_bounds(1, REMEMBERED, 3).expect("the bounds are in order"),
            across: 0,
            downs: Downs::default(),
        }
    }

    /// Delays, ns.
    pub fn delay(&self) -> Spread {
        Spread::of(&self.delay)
    }

    /// Differences between the delays of two packets that arrive one after the other, ns.
    pub fn jitter(&self) -> Spread {
        Spread::of(&self.jitter)
    }

    /// Extents of reordered packets.
    pub fn extent(&self) -> Spread {
        Spread::of(&self.extent)
    }

    /// The sum of all streams. Packets of two ports have one order.
    pub fn all(&self) -> Arrivals {
        let mut all = Arrivals {
            reordered: self.across,
            ..Arrivals::default()
        };
        for stream in &self.streams {
            all.received += stream.received;
            all.duplicated += stream.duplicated;
            all.reordered += stream.reordered;
            all.too_late += stream.too_late;
        }
        all
    }
}

/// Numbers of a stream that arrived.
#[derive(Debug)]
struct Seen {
    /// One more than the highest number; 0 before the first.
    next: u64,
    /// A bit for each remembered number.
    bits: Box<[u64]>,
}

/// Kind of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arrival {
    InOrder,
    /// So many numbers after its place.
    Reordered(u64),
    Duplicate,
    TooLate,
}

impl Seen {
    fn new() -> Self {
        Self {
            next: 0,
            bits: vec![0; (REMEMBERED / 64) as usize].into(),
        }
    }

    /// Sets the bit of a number, and returns whether it was set.
    fn set(&mut self, number: u64) -> bool {
        let place = number % REMEMBERED;
        let (word, bit) = (&mut self.bits[(place / 64) as usize], 1 << (place % 64));
        let was = *word & bit != 0;
        *word |= bit;
        was
    }

    /// Whether a number has arrived, as far as it is remembered.
    fn has(&self, number: u64) -> bool {
        let place = number % REMEMBERED;
        let is_known = number < self.next && self.next - number <= REMEMBERED;
        is_known && self.bits[(place / 64) as usize] & (1 << (place % 64)) != 0
    }

    fn clear(&mut self, number: u64) {
        let place = number % REMEMBERED;
        self.bits[(place / 64) as usize] &= !(1 << (place % 64));
    }

    fn arrives(&mut self, number: u64) -> Arrival {
        if number >= self.next {
            // Numbers between that did not arrive yet take the places of remembered ones.
            let first = self.next.max(number.saturating_sub(REMEMBERED - 1));
            (first..=number).for_each(|between| self.clear(between));
            self.set(number);
            self.next = number.saturating_add(1);
            return Arrival::InOrder;
        }
        if self.next - number > REMEMBERED {
            return Arrival::TooLate;
        }
        match self.set(number) {
            true => Arrival::Duplicate,
            false => Arrival::Reordered(self.next - 1 - number),
        }
    }
}

/// Pairs of departures and arrivals.
#[derive(Debug)]
pub struct Pairs {
    /// Departures whose packets carry no number: one stream.
    departures: Option<Departures>,
    /// Times of packets that come back from another host.
    trips: Option<Trips>,
    /// By stream, or by port.
    seen: Vec<Seen>,
    /// The numbers of two ports together.
    order: Option<Seen>,
    /// Of each stream, or of the order of two ports.
    densities: Vec<Density>,
    report: Report,
    /// Delay of the packet before, ns.
    before: Option<u64>,
    /// Least departure time, ns since the epoch: earlier packets are others.
    since_ns: i64,
    /// Packets that arrived before [`Self::restart`].
    earlier: u64,
}

impl Pairs {
    /// For so many streams. **Cost**: 128 KiB for each.
    pub fn new(streams: usize) -> Self {
        Self {
            departures: None,
            trips: None,
            seen: (0..streams).map(|_| Seen::new()).collect(),
            order: None,
            densities: vec![Density::new(); streams],
            report: Report::new(streams),
            before: None,
            since_ns: i64::MIN,
            earlier: 0,
        }
    }

    /// For packets of so many streams that another host [returns](crate::reflection), of the run of this number.
    pub fn of_trips(streams: usize, run: u64) -> Self {
        Self {
            trips: Some(Trips::new(run)),
            ..Self::new(streams)
        }
    }

    /// Whether another host returns the packets.
    pub fn is_of_trips(&self) -> bool {
        self.trips.is_some()
    }

    /// The clock of the other end, and the ways there and back so far, if they are known.
    pub fn ways(&mut self) -> Option<Ways> {
        self.trips.as_mut()?.ways()
    }

    /// For packets of so many ports, one or two, that are matched by their bytes: the caller notes each [departure](Self::departs). Of equal
    /// packets, the first arrival is matched with the first departure. If `is_apart`, each port has a receiver of its own, at which alone its
    /// packets are expected. Departures of two ports have one order. An arrival is recognized among the last 1 048 576 departures.
    /// **Memory**: 56 bytes for each of these, so 56 MiB, as they are used.
    pub fn of_bytes(ports: usize, is_apart: bool) -> Self {
        Self {
            departures: Some(Departures::new(is_apart)),
            order: (ports > 1).then(Seen::new),
            ..Self::new(ports)
        }
    }

    /// The orders in which packets are numbered.
    fn orders(&self) -> &[Seen] {
        self.order.as_ref().map_or(&self.seen, std::slice::from_ref)
    }

    /// Whether packets are matched [by their bytes](Self::of_bytes).
    pub fn is_by_bytes(&self) -> bool {
        self.departures.is_some()
    }

    /// Notes that a packet leaves by a port at this time, ns since the epoch, if packets are matched [by their bytes](Self::of_bytes). **Cost**: a hash of
    /// the frame; no allocation.
    pub fn departs(&mut self, frame: &[u8], time_ns: i64, port: usize) {
        if let Some(departures) = &mut self.departures {
            departures.departs(frame, time_ns, port);
        }
    }

    /// Begins again with packets that leave from now on. Earlier packets count as others.
    pub fn restart(&mut self) {
        let streams = self.seen.len();
        let (earlier, downs) = (self.taken(), self.report.downs);
        *self = Self {
            since_ns: now_ns(),
            earlier,
            ..Self::new(streams)
        };
        self.report.downs = downs;
    }

    /// Notes whether an interface that receives is without a link.
    pub fn note_link(&mut self, is_down: bool) {
        self.report.downs.note(is_down, now_ns());
    }

    /// Number of packets after the latest arrival, of `handed` packets that were handed to the port: they may be under way.
    pub fn after_the_last(&self, handed: u64) -> u64 {
        let before: u64 = self
            .orders()
            .iter()
            .fold(0, |sum, seen| sum.saturating_add(seen.next));
        handed.saturating_sub(before)
    }

    /// Packets that arrived, of all kinds.
    fn taken(&self) -> u64 {
        let all = self.report.all();
        self.earlier + all.received + all.duplicated + all.too_late + self.report.others
    }

    /// Takes a frame that arrived at a receiver, 0 or 1, at this time, ns since the epoch. **Cost**: no allocation.
    pub fn arrives(&mut self, frame: &[u8], time_ns: Option<i64>, receiver: usize) {
        let mut times = None;
        let found = match &mut self.departures {
            Some(departures) => {
                let order = self.order.as_ref().filter(|_| !departures.is_apart());
                let highest = order.unwrap_or(&self.seen[receiver]).next;
                match departures.arrives(frame, time_ns, (highest, receiver)) {
                    Match::First(number, left_ns, port) => Some((port as u32, number, left_ns)),
                    Match::Again(port) => {
                        self.report.streams[port].duplicated += 1;
                        return;
                    }
                    Match::Unknown => None,
                }
            }
            None => {
                let begin = self.trips.as_ref().map_or(MAGIC, |_| RETURNED);
                let at = stamp(frame, begin);
                if let Some(trips) = &self.trips {
                    times = at.and_then(|at| times_there(&frame[at..], trips.run));
                }
                at.filter(|_| times.is_some() == self.trips.is_some())
                    .and_then(|at| read_stamp(&frame[at..]))
                    .filter(|it| (it.0 as usize) < self.seen.len() && it.2 >= self.since_ns)
            }
        };
        let Some((stream, number, left_ns)) = found else {
            self.report.others += 1;
            return;
        };
        let stream = stream as usize;
        let counts = &mut self.report.streams[stream];
        let arrival = self.seen[stream].arrives(number);
        let in_all = match &mut self.order {
            Some(order) => order.arrives(number),
            None => arrival,
        };
        if let Arrival::Reordered(extent) = in_all {
            self.report.extent.saturating_record(extent);
        }
        match arrival {
            Arrival::InOrder => {
                counts.received += 1;
                self.report.across += u64::from(matches!(in_all, Arrival::Reordered(_)));
            }
            Arrival::Reordered(_) => {
                counts.received += 1;
                counts.reordered += 1;
            }
            Arrival::Duplicate => {
                counts.duplicated += 1;
                return;
            }
            Arrival::TooLate => {
                counts.too_late += 1;
                return;
            }
        }
        let (density, seen) = match &self.order {
            Some(order) => (0, order),
            None => (stream, &self.seen[stream]),
        };
        self.densities[density].arrives(number, |other| seen.has(other));
        let Some(time_ns) = time_ns else { return };
        let there_ns = times.map_or(0, |(arrived, left)| left.saturating_sub(arrived));
        let delay = time_ns.saturating_sub(left_ns).saturating_sub(there_ns);
        let Ok(delay) = u64::try_from(delay) else {
            self.report.negative += 1;
            return;
        };
        if let (Some(trips), Some((arrived, left))) = (&mut self.trips, times) {
            trips.returns([left_ns, arrived, left, time_ns]);
        }
        self.report.delay.saturating_record(delay);
        if let Some(before) = self.before.replace(delay) {
            self.report.jitter.saturating_record(before.abs_diff(delay));
        }
    }

    /// Packets by their displacement: reorder density (RFC 5236), of all streams. **Cost**: some microseconds.
    pub fn density(&self) -> BTreeMap<i64, u64> {
        let mut sum = BTreeMap::new();
        for (density, seen) in self.densities.iter().zip(self.orders()) {
            density.add_to(&mut sum, |number| seen.has(number));
        }
        sum
    }

    /// The facts so far.
    pub fn report(&self) -> &Report {
        &self.report
    }
}

/// Place of the timestamp of a frame, wherever its headers end.
fn stamp(frame: &[u8], begin: [u8; 4]) -> Option<usize> {
    let last = frame.len().checked_sub(STAMP)?.min(HEADERS);
    // Headers have an even length.
    let mut places = (14..=last).step_by(2);
    places.find(|&at| frame[at..].starts_with(&begin))
}

/// Sink that pairs all packets.
pub struct PairSink {
    pairs: Arc<Mutex<Pairs>>,
    /// Name of the interface that is the second receiver.
    second: Option<String>,
}

impl PairSink {
    /// Makes a sink for these pairs, which can be asked at any time. `second` is the name of the interface that is the second receiver.
    pub fn new(pairs: &Arc<Mutex<Pairs>>, second: Option<String>) -> Self {
        Self {
            pairs: Arc::clone(pairs),
            second,
        }
    }

    fn pairs(&self) -> MutexGuard<'_, Pairs> {
        self.pairs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sink for PairSink {
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        let interface = &layout.interfaces[record.frame.interface as usize];
        let is_second = self.second.is_some() && interface.name == self.second;
        self.pairs()
            .arrives(record.frame.data, record.time_ns, usize::from(is_second));
        Ok(())
    }

    fn flush(&mut self) -> Result<(), End> {
        Ok(())
    }

    fn finish(&mut self, _: Option<&Layout>, _: bool) -> Result<(), End> {
        Ok(())
    }

    fn report(&self) -> SinkReport {
        SinkReport {
            kind: Kind::Discarded,
            taken: self.pairs().taken(),
            ..SinkReport::default()
        }
    }
}

/// Time since the epoch, ns, by the clock of timestamps.
pub fn now_ns() -> i64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    since.map_or(0, |since| {
        i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
    })
}

/// The wait for the last packets, once the sender has ended.
#[derive(Debug)]
pub struct Wait {
    /// Time without a packet after which nothing more is expected.
    quiet: Duration,
    begun: Instant,
    /// Packets that had arrived for the first time, and the moment at which their number changed.
    first: (u64, Instant),
    /// The same of all packets.
    any: (u64, Instant),
}

/// State of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rest {
    /// Packets may still arrive.
    Waits,
    /// No packet has arrived for the time.
    Quiet,
    /// Packets that had arrived before still arrive, and no other packet has for [ten times](Wait::PATIENCE) the time.
    Repeats,
    /// Packets still arrive after [twenty times](Wait::MOST) the time.
    Endless,
}

impl Wait {
    /// Times without a new packet after which duplicates are no longer awaited.
    pub const PATIENCE: u32 = 10;

    /// Times after which nothing is awaited.
    pub const MOST: u32 = 20;

    /// Begins to wait.
    pub fn begin(quiet: Duration) -> Self {
        let now = Instant::now();
        Self {
            quiet,
            begun: now,
            first: (0, now),
            any: (0, now),
        }
    }

    /// Looks at the packets that have arrived by now.
    pub fn look(&mut self, pairs: &Pairs, now: Instant) -> Rest {
        let all = pairs.report.all();
        for (last, count) in [
            (&mut self.first, all.received),
            (&mut self.any, all.received + all.duplicated + all.too_late),
        ] {
            if count != last.0 {
                *last = (count, now);
            }
        }
        let is_over = |since: Instant, time| now.duration_since(since) >= time;
        match () {
            () if is_over(self.any.1, self.quiet) => Rest::Quiet,
            () if is_over(self.first.1, self.quiet * Self::PATIENCE) => Rest::Repeats,
            () if is_over(self.begun, self.quiet * Self::MOST) => Rest::Endless,
            () => Rest::Waits,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, HashSet};
    use weir_generator::streams::{Frames, Profile};
    use weir_testkit::Random;

    /// Planted losses, duplicates and reorder, of two streams, against a list of all arrivals.
    #[test]
    fn what_was_planted_is_counted_exactly() {
        let text = "packets = 20000\n[[stream]]\nlayers = \"eth/ipv4/udp\"\npayload = \"stamp\"\nsize = 90\n\
            [[stream]]\nweight = 2\nlayers = \"eth/vlan/ipv6/tcp\"\npayload = \"stamp\"\nsize = \"120-300\"";
        for seed in 0..4 {
            let mut frames = Frames::new(&Profile::read(text).unwrap()).unwrap();
            let mut random = Random::behind(seed * 1000);
            let mut arriving: Vec<(i64, Vec<u8>)> = Vec::new();
            let (mut lost, mut delays) = (0, Vec::new());
            while let Some(made) = frames.next() {
                match random.below(10) {
                    0 => lost += 1,
                    1 => {
                        let later = made.time_ns + random.below(50_000) as i64;
                        arriving.push((later, made.frame.to_vec()));
                        arriving.push((later + 5, made.frame.to_vec()));
                    }
                    _ => arriving.push((made.time_ns + 10_000, made.frame.to_vec())),
                }
            }
            arriving.sort_by_key(|it| it.0);
            let mut pairs = Pairs::new(2);
            // The list: numbers that came, of each stream.
            let mut came: BTreeMap<u32, (HashSet<u64>, u64)> = BTreeMap::new();
            let (mut duplicated, mut reordered) = (0, 0);
            for (time, frame) in &arriving {
                let at = frame.windows(4).position(|it| it == MAGIC).unwrap();
                let (stream, number, left) = read_stamp(&frame[at..]).unwrap();
                let (all, highest) = came.entry(stream).or_default();
                if all.insert(number) {
                    reordered += u64::from(number < *highest);
                    *highest = number.max(*highest);
                    delays.push(time - left);
                } else {
                    duplicated += 1;
                }
                pairs.arrives(frame, Some(*time), 0);
            }
            pairs.arrives(&[0; 100], Some(0), 0);
            pairs.arrives(b"weir", None, 0);
            let (report, all) = (pairs.report(), pairs.report().all());
            assert_eq!((all.received, all.too_late), (20_000 - lost, 0));
            assert_eq!((all.duplicated, all.reordered), (duplicated, reordered));
            assert!(reordered > 100 && duplicated > 1000);
            assert_eq!((report.others, report.negative), (2, 0));
            delays.sort();
            let p50 = report.delay.value_at_quantile(0.5) as i64;
            assert!((p50 - delays[delays.len() / 2]).abs() <= p50 / 500, "{p50}");
            assert_eq!(report.delay.len(), delays.len() as u64);
            assert_eq!(report.jitter.len(), delays.len() as u64 - 1);
        }
    }

    /// Delays around a planted one, with a tail: the median is the planted one.
    #[test]
    fn a_planted_delay_is_the_median() {
        let text = "packets = 5000\n[[stream]]\nlayers = \"eth/ipv4/udp\"\npayload = \"stamp\"";
        for planted_ns in [1_000, 10_000, 100_000] {
            let mut frames = Frames::new(&Profile::read(text).unwrap()).unwrap();
            let stamp = frames.stamp(0).unwrap();
            let (mut pairs, mut random) = (Pairs::new(1), Random::behind(planted_ns as u64));
            let mut now = 1_700_000_000_000_000_000;
            while let Some(made) = frames.next() {
                let mut frame = made.frame.to_vec();
                now += 5_000;
                stamp.set_time(&mut frame, now);
                let around = random.below(planted_ns as usize / 5 + 1) as i64 - planted_ns / 10;
                let tail = if random.below(50) == 0 { 3_000_000 } else { 0 };
                pairs.arrives(&frame, Some(now + planted_ns + around + tail), 0);
            }
            let delay = pairs.report().delay();
            assert_eq!(delay.count, 5000);
            assert!((delay.p50 as i64 - planted_ns).abs() < 1_000, "{delay:?}");
            assert!(
                (delay.p99 as i64 - 3_000_000 - planted_ns).abs() < 20_000,
                "{delay:?}"
            );
        }
    }

    #[test]
    fn what_is_too_late_is_told_and_memory_is_bounded() {
        let mut seen = Seen::new();
        assert_eq!(seen.arrives(5), Arrival::InOrder);
        assert_eq!(seen.arrives(3), Arrival::Reordered(2));
        assert_eq!(seen.arrives(3), Arrival::Duplicate);
        assert_eq!(seen.arrives(REMEMBERED + 5), Arrival::InOrder);
        assert_eq!(seen.arrives(6), Arrival::Reordered(REMEMBERED - 1));
        assert_eq!(seen.arrives(5), Arrival::TooLate);
        assert_eq!(seen.arrives(u64::MAX - 1), Arrival::InOrder);
        assert_eq!(seen.arrives(u64::MAX - 2), Arrival::Reordered(1));
    }

    /// Duplicates prolong a wait, but not for ever.
    #[test]
    fn a_wait_ends_though_duplicates_arrive() {
        let quiet = Duration::from_millis(500);
        let (mut wait, mut pairs) = (Wait::begin(quiet), Pairs::new(1));
        let begin = Instant::now();
        let mut ended = Vec::new();
        for ms in (0..10_000).step_by(100) {
            let counts = &mut pairs.report.streams[0];
            match ms {
                ..=1000 => counts.received += 1,
                _ => counts.duplicated += 1,
            }
            let rest = wait.look(&pairs, begin + Duration::from_millis(ms));
            if rest != Rest::Waits {
                ended.push((ms, rest));
            }
        }
        assert_eq!(ended.first(), Some(&(6000, Rest::Repeats)));
        let now = begin + Duration::from_secs(10);
        assert_eq!(wait.look(&pairs, now + quiet), Rest::Quiet);
        // Nor do the packets of another sender, which are new.
        let mut wait = Wait::begin(quiet);
        let begin = Instant::now();
        let mut looks = (0..12_000).step_by(100).map(|ms| {
            pairs.report.streams[0].received += 1;
            (ms, wait.look(&pairs, begin + Duration::from_millis(ms)))
        });
        let ended = looks.find(|(_, rest)| *rest != Rest::Waits);
        assert_eq!(ended, Some((10_000, Rest::Endless)));
    }

    #[test]
    fn times_without_a_link_add_up() {
        let mut downs = Downs::default();
        for (at, is_down) in [(5, false), (7, true), (8, true), (10, false), (20, true)] {
            downs.note(is_down, at);
        }
        assert_eq!((downs.times, downs.first_ns), (2, 7));
        assert!(downs.is_down());
        assert_eq!(downs.length_ns(24), 7);
    }
}
