//! Replay: packets leave a port, or two in one order, at the times of a capture.
//!
//! ```text
//! due      when a packet is to leave, since the first packet, by its time in the capture or by a rate
//! wait     until then, by one clock that began with the first packet: what is late once delays nothing after it
//! left     packets by which hosts, switches and routers configure each other, unless they are asked for
//! framed   packets without a link layer of Ethernet get one
//! shifted  in each round of a loop, packets get addresses of other hosts, if wanted
//! ```

mod control;
mod plan;
mod shift;
mod sides;

use crate::clock::{Behind, Clock, Lateness};
use crate::name::Name;
use crate::pairing::{Pairs, now_ns};
use crate::port::{Counts, Digest, Port, failed};
use crate::sink::{End, Kind, Lost, Needs, Note, Packets, Sink, SinkFault, SinkReport};
use crate::steering::{Order, PortProgress, Progress, Steering};
use hdrhistogram::Histogram;
use plan::Plan;
pub(crate) use shift::{correct, is_group};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use weir_filter::{Error, Filter, for_link};
use weir_io::sys;
use weir_packet::flow::Parser;
use weir_packet::savefile::{Layout, Record};
use weir_packet::{Frame, LinkType};

/// Longest sleep. The stop flag is checked after each.
const LOOK: Duration = Duration::from_millis(20);

/// Time before a packet is due in which a replay that spins reads the clock without pause.
const SPIN: Duration = Duration::from_micros(200);

/// Longest lateness that is recorded as such.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// Times at which packets leave.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rate {
    /// By their times in the capture, so many times as fast.
    Original(f64),
    /// So many a second, at even gaps.
    Packets(f64),
    /// So many bits a second, of frames without FCS.
    Bits(f64),
    /// As fast as the port takes them.
    Max,
}

impl fmt::Display for Rate {
    /// The rate as requests name it: `2x`, `100000pps`, `2000000000bit/s`, `max`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Original(speed) => write!(f, "{speed}x"),
            Self::Packets(per_s) => write!(f, "{per_s}pps"),
            Self::Bits(per_s) => write!(f, "{per_s}bit/s"),
            Self::Max => f.write_str("max"),
        }
    }
}

/// Addresses of the link layer that packets get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Addresses {
    /// Destination; `None` for the packet's own.
    pub destination: Option<[u8; 6]>,
    /// Source; `None` for the packet's own, or zeros if it has none.
    pub source: Option<[u8; 6]>,
}

/// Settings of a replay.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Times at which packets leave.
    pub rate: Rate,
    /// Longest gap between two packets, in packet time.
    pub longest_gap: Option<Duration>,
    /// Time after which no packet leaves.
    pub end: Option<Duration>,
    /// Whether to read the clock without pause before a packet is due: exact, for a processor.
    pub spins: bool,
    /// Whether packets by which hosts, switches and routers configure each other also leave.
    pub control: bool,
    /// Addresses of the link layer.
    pub addresses: Addresses,
    /// Packets that leave by the second port.
    pub second: Option<Second>,
    /// Number by which addresses are shifted: see `shift`. The caller raises it from round to round.
    pub shift: Arc<AtomicU16>,
    /// Ends the replay once it is set.
    pub stop: Arc<AtomicBool>,
    /// Orders from other threads.
    pub steering: Option<Arc<Steering>>,
    /// Pairs of departures and arrivals, by the bytes of the packets.
    pub pairs: Option<Arc<Mutex<Pairs>>>,
    /// Called in each spell in which packets do not leave at the rate, with the port of the latest.
    pub on_behind: fn(&Name, Behind),
}

/// Packets that leave by the second port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Second {
    /// Packets that match an expression.
    Matching(String),
    /// Packets of servers: of the end of a connection with the lower port, or else the lower address.
    Servers,
}

/// Choice of the port of a packet.
enum Chooser {
    Filter(Box<Filter>),
    Servers(Parser),
}

impl Chooser {
    fn is_second(&self, frame: &[Frame<'_>; 1]) -> bool {
        match self {
            Self::Filter(filter) => filter.matches(frame) & 1 == 1,
            Self::Servers(parser) => {
                let key = parser.key(frame[0].data);
                key.is_ok_and(|key| sides::is_from_server(&key))
            }
        }
    }
}

/// Course of a replay.
#[derive(Clone, Debug)]
pub struct Report {
    /// Packets that were due.
    pub packets: u64,
    /// Packets that were left out, because hosts, switches and routers configure each other by them.
    pub control: u64,
    /// Time from the first to the last packet, as planned and as measured.
    pub planned: Duration,
    /// See `planned`.
    pub took: Duration,
    /// Time between the due time and the hand-over to the port, ns.
    pub lateness: Histogram<u64>,
    /// Lateness of the last packet, and whether one was very late.
    pub late: Lateness,
    /// Time by which packets left later than they were due, because none could leave before, as while the process was stopped.
    pub halted: Duration,
    /// Counts of each port.
    pub ports: Vec<Counts>,
    /// Packets of each port that were left out while an order had stopped it.
    pub left_out: Vec<u64>,
    /// Digest of all frames, if the ports make one.
    pub digest: Option<Digest>,
}

impl Report {
    fn new() -> Self {
        let lateness = Histogram::new_with_bounds(1, LONGEST_NS, 3);
        Self {
            packets: 0,
            control: 0,
            planned: Duration::ZERO,
            took: Duration::ZERO,
            lateness: lateness.expect("the bounds are in order"),
            late: Lateness::default(),
            halted: Duration::ZERO,
            ports: Vec::new(),
            left_out: Vec::new(),
            digest: None,
        }
    }
}

/// The [course](Report) of a replay, which goes on.
#[derive(Clone, Debug)]
pub struct Course(Arc<Mutex<Report>>);

impl Course {
    /// Calls `look` with the course so far.
    pub fn with<T>(&self, look: impl FnOnce(&Report) -> T) -> T {
        look(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Report> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sink that sends packets when they are due.
pub struct ReplaySink {
    ports: Vec<Port>,
    /// State of each port, without the counts that the port has.
    states: Vec<PortProgress>,
    settings: Settings,
    /// Chooses the packets of the second port.
    second: Option<Chooser>,
    /// Port of the packet before.
    port: usize,
    plan: Plan,
    /// The clock, which begins with the first packet.
    clock: Option<Clock>,
    /// The same moment by CLOCK_MONOTONIC, ns.
    begun_ns: u64,
    /// Time at which an order stopped the replay, until it goes on.
    stopped: Option<Duration>,
    course: Course,
    lateness: Histogram<u64>,
    /// Parts of the next report: see [`Report`].
    planned: Duration,
    late: Lateness,
    left_out: u64,
    /// The end that came with a packet which its port has counted: no further packet is taken.
    end: Option<End>,
    frame: Vec<u8>,
    shifted: Vec<u8>,
}

impl ReplaySink {
    /// Makes a sink for a port, or for two. Call it in the thread that runs the outputs: its timers become exact.
    ///
    /// **Errors**: the expression for the second port.
    pub fn new(ports: Vec<Port>, settings: Settings) -> Result<Self, Error> {
        sys::exact_timers();
        let compile = |expression: &str| {
            let expression = for_link(expression, LinkType::ETHERNET, true);
            let filter = Filter::compile(&expression, LinkType::ETHERNET, false)?;
            filter.make_native();
            Ok(filter)
        };
        let report = Report::new();
        Ok(Self {
            states: vec![PortProgress::default(); ports.len()],
            ports,
            second: match &settings.second {
                None => None,
                Some(Second::Matching(expression)) => {
                    Some(Chooser::Filter(Box::new(compile(expression)?)))
                }
                Some(Second::Servers) => {
                    Parser::new(LinkType::ETHERNET, false).map(Chooser::Servers)
                }
            },
            port: 0,
            plan: Plan::new(settings.rate, settings.longest_gap),
            settings,
            clock: None,
            begun_ns: 0,
            stopped: None,
            lateness: report.lateness.clone(),
            course: Course(Arc::new(Mutex::new(report))),
            planned: Duration::ZERO,
            late: Lateness::default(),
            left_out: 0,
            end: None,
            frame: Vec::new(),
            shifted: Vec::new(),
        })
    }

    /// The course, which can be asked at any time.
    pub fn course(&self) -> Course {
        self.course.clone()
    }

    /// Sends a packet when it is due.
    fn send(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        self.take_end()?;
        let Frame {
            data,
            wire_len,
            interface,
        } = record.frame;
        let link = layout.interfaces[interface as usize].link;
        let is_cut = data.len() < wire_len as usize;
        let mut frame = std::mem::take(&mut self.frame);
        let framed = framed(data, link, &self.settings.addresses, &mut frame);
        let by = self.settings.shift.load(Ordering::Relaxed);
        let mut shifted = std::mem::take(&mut self.shifted);
        let framed = match framed {
            Some(ethernet) if by > 0 => {
                shifted.clear();
                shifted.extend_from_slice(ethernet);
                shift::shift(&mut shifted, by);
                Some(&shifted[..])
            }
            framed => framed,
        };
        let sent = match framed {
            Some(ethernet) => {
                if !self.settings.control && control::is_control(ethernet) {
                    // Its time passes all the same.
                    self.plan.pass(record.time_ns);
                    self.left_out += 1;
                    Ok(())
                } else {
                    let judged = [Frame {
                        data: ethernet,
                        wire_len: ethernet.len() as u32,
                        interface: 0,
                    }];
                    let second = self.second.as_ref();
                    let port = usize::from(second.is_some_and(|it| it.is_second(&judged)));
                    self.send_frame(ethernet, is_cut, record.time_ns, port)
                }
            }
            None if network_packet(data, link).is_some() && !self.ports[0].is_null() => {
                Err(End::Failed(SinkFault::Said(format!(
                    "{}: packets of link type {} have no Ethernet header: --dst-mac MAC, the station that is to get them, gives \
                     them one",
                    self.ports[0].name(),
                    link.name()
                        .map_or_else(|| link.0.to_string(), str::to_owned)
                ))))
            }
            // The port says which packets of other link types it takes.
            None => match self.ports[0].check(link) {
                Ok(()) => self.send_frame(data, is_cut, record.time_ns, 0),
                Err(fault) => Err(failed(fault)),
            },
        };
        (self.frame, self.shifted) = (frame, shifted);
        sent
    }

    fn send_frame(
        &mut self,
        data: &[u8],
        is_cut: bool,
        time_ns: Option<i64>,
        port: usize,
    ) -> Result<(), End> {
        let due = self.plan.due(time_ns, data.len());
        if self.clock.is_none() {
            for port in &mut self.ports {
                port.start().map_err(failed)?;
            }
            self.begun_ns = sys::monotonic_ns();
            self.clock = Some(Clock::begin());
        }
        let due = match self.is_asked() {
            true => self.obey()?,
            false => due,
        };
        let due = match due.map_or(Ok(None), |due| self.wait(due, port)) {
            // The port that failed counts the packet that waited, and those after it with it.
            Err(End::Failed(SinkFault::Port(fault))) => {
                let mut ports = self.ports.iter_mut();
                if let Some(port) = ports.find(|port| *port.name() == fault.name) {
                    let _ = port.take_at(data, is_cut, 0);
                }
                self.end = Some(failed(fault));
                return Ok(());
            }
            due => due?,
        };
        if due.is_none() && self.plan.packets().is_multiple_of(64) {
            self.clock().read();
            self.check_end()?;
        }
        if self.states[port].is_stopped {
            self.states[port].left_out += 1;
            return Ok(());
        }
        if let Some(due) = due {
            let clock = self.clock.get_or_insert_with(Clock::begin);
            if let Some(behind) = self.late.leaves(clock, due) {
                (self.settings.on_behind)(self.ports[port].name(), behind);
            }
            let late = self.late.last();
            if self.ports[port].lateness().is_none() {
                self.lateness.saturating_record(late.as_nanos() as u64);
            }
            self.states[port].late = late;
            self.planned = due;
        }
        // Packets that are late wait in their ports, and those of the other port leave first.
        if std::mem::replace(&mut self.port, port) != port {
            self.flush_ports()?;
        }
        if let Some(pairs) = &self.settings.pairs {
            let mut pairs = pairs.lock().unwrap_or_else(PoisonError::into_inner);
            pairs.departs(data, now_ns(), port);
        }
        let taken = match due {
            Some(due) => {
                let due = due + self.halted();
                let due_ns = u64::try_from(due.as_nanos()).unwrap_or(u64::MAX);
                self.ports[port].take_at(data, is_cut, self.begun_ns.saturating_add(due_ns))
            }
            None => self.ports[port].take(data, is_cut),
        };
        self.end = taken.err().map(failed);
        Ok(())
    }

    fn clock(&mut self) -> &mut Clock {
        self.clock.get_or_insert_with(Clock::begin)
    }

    /// The time, and the halts of the [clock](Clock).
    fn now(&self) -> Duration {
        self.clock.map_or(Duration::ZERO, |clock| clock.now())
    }

    fn halted(&self) -> Duration {
        self.clock.map_or(Duration::ZERO, |clock| clock.halted())
    }

    /// Returns the end that came with the packet before.
    fn take_end(&mut self) -> Result<(), End> {
        self.end.take().map_or(Ok(()), Err)
    }

    /// Waits until a packet is due. Packets that were due before leave first. Returns its time, which orders change: `None` for at once.
    fn wait(&mut self, mut due: Duration, port: usize) -> Result<Option<Duration>, End> {
        let lead = self.ports[port].lead();
        if due > self.now() && due > self.clock().read() {
            self.flush_ports()?;
        }
        loop {
            self.check_end()?;
            self.look_at_ports()?;
            if self.is_asked() {
                match self.obey()? {
                    Some(other) => due = other,
                    None => return Ok(None),
                }
            }
            let now = self.clock().read();
            let rest = due.saturating_sub(lead).checked_sub(now);
            let Some(rest) = rest.filter(|rest| !rest.is_zero()) else {
                return Ok(Some(due));
            };
            match rest.checked_sub(SPIN) {
                Some(sleep) if self.settings.spins => std::thread::sleep(sleep.min(LOOK)),
                None if self.settings.spins => std::hint::spin_loop(),
                _ => std::thread::sleep(rest.min(LOOK)),
            }
        }
    }

    #[inline]
    fn is_asked(&self) -> bool {
        self.settings
            .steering
            .as_ref()
            .is_some_and(|it| it.is_asked())
    }

    /// Obeys orders, and waits as long as the replay is stopped. Returns the time of the packet that leaves next, `None` for at once.
    fn obey(&mut self) -> Result<Option<Duration>, End> {
        let Some(steering) = self.settings.steering.clone() else {
            return Ok(self.plan.time());
        };
        loop {
            self.flush_ports()?;
            let orders = steering.take(self.progress());
            let now = self.clock().read();
            for order in orders {
                match order {
                    Order::Stop => self.stopped = self.stopped.or(Some(now)),
                    Order::Start => {
                        let since = self.stopped.take().unwrap_or(now);
                        self.plan.pause(now - since);
                    }
                    Order::Rate(rate) => {
                        let now = self.stopped.unwrap_or(now);
                        self.plan.change_rate(rate, now);
                    }
                    Order::Port { port, stops } => {
                        if let Some(state) = self.states.get_mut(port) {
                            state.is_stopped = stops;
                        }
                    }
                    // Packets of a capture are what they are.
                    Order::Traffic(_) => {}
                }
            }
            if self.stopped.is_none() {
                return Ok(self.plan.time());
            }
            while !self.is_asked() {
                self.check_end()?;
                self.look_at_ports()?;
                std::thread::sleep(LOOK);
                self.clock().read();
            }
        }
    }

    /// Progress of the replay.
    fn progress(&self) -> Progress {
        let mut progress = Progress {
            rate: Some(self.plan.rate()),
            late: self.late.last(),
            is_stopped: self.stopped.is_some(),
            ..Progress::default()
        };
        for (port, state) in self.ports.iter().zip(&self.states) {
            let counts = port.counts();
            progress.sent += counts.sent;
            progress.bytes += counts.bytes;
            progress.refused += counts.refused();
            progress.ports.push(PortProgress {
                sent: counts.sent,
                bytes: counts.bytes,
                refused: counts.refused(),
                ..*state
            });
        }
        progress
    }

    /// Returns the end once the stop flag is set, or the time is over.
    fn check_end(&self) -> Result<(), End> {
        let elapsed = self.clock.map_or(Duration::ZERO, |clock| clock.elapsed());
        let is_over = self.settings.end.is_some_and(|end| elapsed >= end);
        match is_over || self.settings.stop.load(Ordering::Relaxed) {
            true => Err(End::Complete),
            false => Ok(()),
        }
    }

    fn look_at_ports(&mut self) -> Result<(), End> {
        let mut ports = self.ports.iter_mut();
        ports.try_for_each(|port| port.look().map_err(failed))
    }

    fn flush_ports(&mut self) -> Result<(), End> {
        self.ports
            .iter_mut()
            .try_for_each(|port| port.flush().map_err(failed))
    }

    /// Makes the course so far known.
    fn tell(&mut self) {
        let took = self.clock.as_mut().map_or(Duration::ZERO, |clock| {
            clock.read();
            clock.elapsed()
        });
        let mut course = self.course.lock();
        course.packets = self.plan.packets();
        (course.planned, course.late) = (self.planned, self.late);
        course.control = self.left_out;
        (course.took, course.halted) = (took, self.halted());
        course.ports = self.ports.iter().map(Port::counts).collect();
        course.left_out = self.states.iter().map(|state| state.left_out).collect();
        let digests = self.ports.iter().filter_map(Port::digest);
        course.digest = digests.reduce(|mut sum, digest| {
            sum.merge(digest);
            sum
        });
    }
}

impl Sink for ReplaySink {
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        self.send(layout, record)?;
        self.take_end()
    }

    fn batch(&mut self, packets: &Packets<'_>) -> (u64, Result<(), End>) {
        if let Some(steering) = &self.settings.steering {
            steering.begin();
        }
        let done = packets.hand_on(|record| self.send(packets.layout(), record));
        // The next batch may come later than its packets are due.
        let flushed = self.flush_ports();
        self.tell();
        if let Some(steering) = &self.settings.steering {
            steering.rest(self.progress());
        }
        (done.0, done.1.and_then(|()| self.take_end()).and(flushed))
    }

    fn needs(&self) -> Needs {
        Needs {
            ends: true,
            ..Needs::default()
        }
    }

    fn new_source(&mut self) {
        self.plan.begin_source();
    }

    fn flush(&mut self) -> Result<(), End> {
        self.flush_ports()
    }

    fn finish(&mut self, _: Option<&Layout>, _: bool) -> Result<(), End> {
        let done = self
            .ports
            .iter_mut()
            .try_for_each(|port| port.finish().map_err(failed));
        for lateness in self.ports.iter().filter_map(Port::lateness) {
            self.late.arrived(Duration::from_nanos(lateness.max()));
            self.lateness
                .add(lateness)
                .expect("it has no larger values");
        }
        self.tell();
        if let Some(steering) = &self.settings.steering {
            steering.end(self.progress());
        }
        // It is large, and copied once.
        self.course.lock().lateness.clone_from(&self.lateness);
        done
    }

    fn is_awaited(&self) -> bool {
        true
    }

    fn report(&self) -> SinkReport {
        let mut report = SinkReport {
            kind: match self.ports.iter().all(Port::is_null) {
                true => Kind::Discarded,
                false => Kind::Sent,
            },
            ..SinkReport::default()
        };
        let mut cut = 0;
        for port in &self.ports {
            let counts = port.counts();
            report.taken += counts.sent;
            cut += counts.cut;
            report.lost.extend(port.lost());
            report.notes.extend(port.note());
        }
        // They were handed to the sink too, and left out on purpose.
        report.taken += self.left_out;
        report.taken += self.states.iter().map(|state| state.left_out).sum::<u64>();
        if cut > 0 && report.kind == Kind::Sent {
            report.notes.push(Note::Cut { packets: cut });
        }
        report.lost = added(report.lost);
        report
    }
}

/// Adds up losses with the same reason.
fn added(all: Vec<Lost>) -> Vec<Lost> {
    let mut counts = crate::sink::StageCounts::default();
    all.into_iter().for_each(|lost| counts.lose(lost));
    counts.lost
}

/// Bytes of the two addresses of Ethernet.
const ADDRESSES: usize = 12;

/// The packet as a frame of Ethernet; `None` for link types that cannot be one. Writes to `frame` if the packet changes.
fn framed<'a>(
    data: &'a [u8],
    link: LinkType,
    addresses: &Addresses,
    frame: &'a mut Vec<u8>,
) -> Option<&'a [u8]> {
    let Addresses {
        destination,
        source,
    } = *addresses;
    if link == LinkType::ETHERNET {
        if destination.is_none() && source.is_none() || data.len() < ADDRESSES {
            return Some(data);
        }
        frame.clear();
        frame.extend_from_slice(data);
        if let Some(address) = destination {
            frame[..6].copy_from_slice(&address);
        }
        if let Some(address) = source {
            frame[6..ADDRESSES].copy_from_slice(&address);
        }
        return Some(frame);
    }
    let (ethertype, packet) = network_packet(data, link)?;
    frame.clear();
    frame.extend_from_slice(&destination?);
    frame.extend_from_slice(&source.unwrap_or_default());
    frame.extend_from_slice(&ethertype.to_be_bytes());
    frame.extend_from_slice(packet);
    Some(frame)
}

pub(crate) const IPV4: u16 = 0x0800;
pub(crate) const IPV6: u16 = 0x86dd;

/// Types of VLAN tags: IEEE 802.1Q, IEEE 802.1ad, and types of older switches.
const TAGS: [u16; 5] = [0x8100, 0x88a8, 0x9100, 0x9200, 0x9300];

/// The EtherType of a frame of Ethernet after all VLAN tags, and the place after it; `None` if it is cut off.
pub(crate) fn after_tags(frame: &[u8]) -> Option<(u16, usize)> {
    let mut at = ADDRESSES;
    loop {
        match word(frame, at)? {
            tag if TAGS.contains(&tag) => at += 4,
            ethertype => return Some((ethertype, at + 2)),
        }
    }
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u16> {
    let bytes = bytes.get(at..)?.first_chunk()?;
    Some(u16::from_be_bytes(*bytes))
}

/// EtherType and bytes of the packet inside a frame of raw IP, of Linux cooked captures, or of BSD loopback; `None` for all other
/// link types. A packet that is too short for its link type stays as it is, with an EtherType of zero.
fn network_packet(data: &[u8], link: LinkType) -> Option<(u16, &[u8])> {
    let by_version = |packet: &[u8]| match packet.first().map_or(0, |byte| byte >> 4) {
        4 => IPV4,
        6 => IPV6,
        _ => 0,
    };
    let cooked = |at: usize, header: usize| {
        let kind = word(data, at).zip(data.get(header..));
        kind.unwrap_or((0, data))
    };
    Some(match link {
        LinkType::RAW | LinkType::RAW_BSD | LinkType::RAW_OPENBSD => (by_version(data), data),
        LinkType::IPV4 => (IPV4, data),
        LinkType::IPV6 => (IPV6, data),
        LinkType::NULL | LinkType::LOOP => {
            let packet = data.get(4..).unwrap_or_default();
            (by_version(packet), packet)
        }
        LinkType::LINUX_SLL => cooked(14, 16),
        LinkType::LINUX_SLL2 => cooked(0, 20),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_without_ethernet_get_a_header() {
        let to = Addresses {
            destination: Some([2; 6]),
            source: Some([4; 6]),
        };
        let mut scratch = Vec::new();
        let ip = [0x45, 1, 2, 3];
        let mut expected = [[2; 6], [4; 6]].concat();
        expected.extend([8, 0]);
        expected.extend(ip);
        let cooked = [&[0u8; 14][..], &[8, 0], &ip].concat();
        let cooked_2 = [&[8, 0][..], &[0; 18], &ip].concat();
        let loopback = [&[2, 0, 0, 0][..], &ip].concat();
        let own = [&[9u8; 12][..], &[8, 0], &ip].concat();
        for (link, data) in [
            (LinkType::RAW, &ip[..]),
            (LinkType::IPV4, &ip),
            (LinkType::NULL, &loopback),
            (LinkType::LINUX_SLL, &cooked),
            (LinkType::LINUX_SLL2, &cooked_2),
            (LinkType::ETHERNET, &own),
        ] {
            assert_eq!(
                framed(data, link, &to, &mut scratch),
                Some(&expected[..]),
                "{link:?}"
            );
            for end in 0..data.len() {
                let _ = framed(&data[..end], link, &to, &mut scratch);
            }
        }
        let none = Addresses::default();
        assert_eq!(
            framed(&own, LinkType::ETHERNET, &none, &mut scratch),
            Some(&own[..])
        );
        assert_eq!(framed(&ip, LinkType::RAW, &none, &mut scratch), None);
        assert_eq!(framed(&ip, LinkType::IEEE802_11, &to, &mut scratch), None);
    }
}
