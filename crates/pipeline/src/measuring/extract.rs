//! From bytes to observations: filter, flow key, hash, and the counts of arrivals.

use super::clock::Before;
use super::refusals::Refusals;
use super::worker::Piece;
use crate::bits::Bits;
use crate::stages::StagesPlan;
use core::net::IpAddr;
use std::convert::Infallible;
use std::sync::Arc;
use weir_measure::{Arrivals, Config, Counts, Kind, Observation, Windowing, Windows};
use weir_packet::Frame;
use weir_packet::addresses::Addresses;
use weir_packet::flow::{Facts, FlowKey, Group, Hasher, NoKey, Parser, Usual};
use weir_packet::savefile::{Direction, Format, Layout};
use weir_packet::time::Stamp;

/// Number of frames processed together.
const CHUNK: usize = 32;

const EMPTY: Frame<'static> = Frame {
    data: &[],
    wire_len: 0,
    interface: 0,
};

/// Makes observations of packets, in the order of the source.
#[derive(Debug)]
pub struct Extract {
    hasher: Hasher,
    windowing: Windowing,
    /// Reader of refusals, if the figure that ranks needs them.
    refusals: Option<Refusals>,
    /// Addresses on this side of the link, which tell incoming from outgoing packets.
    local: Option<Arc<Addresses>>,
    /// Whether a kind of key needs the facts of packets.
    needs_facts: bool,
    batch: usize,
    /// Time of the latest packet so far, ns.
    latest: i64,
    /// Time before which packets of live sources are late, ns.
    open_from: i64,
    /// Packet time at which the next window closes, ns.
    closes_at: i64,
    drops_late: bool,
    arrivals: Windows<Arrivals>,
    ready: Batch,
}

/// Bit masks of up to [`CHUNK`] packets, known before they are read; bit i belongs to packet i.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Packets whose timestamps are not believed.
    jumps: u64,
    /// Packets that the stages before pass on, if they have judged already.
    judged: Option<u64>,
    /// Packets that a firewall has denied.
    denied: u64,
}

/// Bit masks of the fate of up to [`CHUNK`] packets; bit i belongs to packet i.
#[derive(Clone, Copy, Debug)]
struct Masks {
    /// Packets that are measured.
    kept: u64,
    /// Packets that are no longer in the memory of a capture, which count as dropped.
    missing: u64,
    /// Packets that a firewall has denied.
    denied: u64,
    /// Packets whose window is closed already.
    late: u64,
    /// Packets whose timestamps are not believed.
    jumped: u64,
    /// Packets with timestamps beyond the representable range.
    beyond: u64,
    /// Incoming and outgoing packets, of the measured ones.
    ways: [u64; 3],
    /// Measured packets to all stations.
    broadcast: u64,
    /// Measured packets to some stations.
    multicast: u64,
}

/// Observations that are handed on together.
#[derive(Debug, Default)]
pub struct Batch {
    /// Room for all observations. Observations of earlier batches are overwritten, and need no
    /// clearing.
    packets: Vec<Observation>,
    /// Facts of the same packets, if a kind of key needs them; else empty.
    facts: Vec<Facts>,
    len: usize,
}

impl Batch {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self {
            packets: vec![Observation::mark(0); capacity],
            facts: Vec::new(),
            len: 0,
        }
    }

    /// Empties the batch.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// Returns the packets that passed the filter.
    pub fn packets(&self) -> &[Observation] {
        &self.packets[..self.len]
    }

    /// Returns the facts of these packets; none if no kind of key needs them.
    pub fn facts(&self) -> &[Facts] {
        self.facts.get(..self.len).unwrap_or_default()
    }

    /// Makes room for facts if they are needed, else takes it away.
    #[cold]
    fn fit_facts(&mut self, needs: bool) {
        let len = if needs { self.packets.len() } else { 0 };
        self.facts.resize(len, Facts::NONE);
    }
}

/// Notes on the frames of a chunk that their bytes do not have.
struct Beside<'a> {
    layout: &'a Layout,
    /// Directions that the records tell.
    directions: [Option<Direction>; CHUNK],
}

impl<'a> Beside<'a> {
    /// Takes the records apart once more, so that measurements without facts pay nothing for them.
    fn of(piece: &'a Piece, records: &[u32]) -> Self {
        let (layout, view) = (&piece.delivery.current.layout, &piece.delivery.view);
        let mut directions = [None; CHUNK];
        layout.records(view.content(), records, |i, record| {
            let options = record.map(|record| record.options);
            let options = options.filter(|options| !options.is_empty());
            directions[i] = options.and_then(|options| options.direction());
        });
        Self { layout, directions }
    }

    /// Returns the facts of frame `i`.
    fn facts(&self, parser: Option<&Parser>, i: usize, frame: &Frame<'_>) -> Facts {
        let mut facts = parser.map_or(Facts::NONE, |parser| parser.facts(frame.data));
        let interface = frame.interface as usize;
        let told = self.directions[i].or_else(|| self.layout.direction(interface));
        if let Some(direction) = told {
            facts.set_direction(direction);
        }
        let about = self.layout.interfaces.get(interface);
        if let Some(name) = about.and_then(|about| about.name.as_deref()) {
            facts.set_interface(name);
        }
        facts
    }
}

/// Receiver of batches. May begin work on packets before their batch is whole.
pub(super) trait Taker {
    /// Reason for which no more batches are taken.
    type Error;

    /// Takes a whole batch. Another batch may be left in its place.
    fn batch(&mut self, batch: &mut Batch) -> Result<(), Self::Error>;

    /// Number of packets after which [`ahead`](Self::ahead) is called.
    const FEW: usize = CHUNK;

    /// Announces packets of the next batch, for prefetching.
    ///
    /// A load from memory takes as long as the reading of many headers, and only some lines can be loaded at once. If few lines are
    /// prefetched at a time, they are present when needed, and the processor never waits.
    #[inline(always)]
    fn ahead(&mut self, packets: &[Observation]) {
        let _ = packets;
    }
}

impl<E, F: FnMut(&mut Batch) -> Result<(), E>> Taker for F {
    type Error = E;

    fn batch(&mut self, batch: &mut Batch) -> Result<(), E> {
        self(batch)
    }
}

impl Extract {
    /// Makes an extractor with batches of `batch` packets.
    pub fn new(config: &Config, batch: usize) -> Self {
        let windowing = config.windowing;
        Self {
            hasher: config.hasher(),
            windowing,
            refusals: (config.by.is_distinct() || config.watch).then(Refusals::new),
            local: config.local.clone(),
            needs_facts: config.needs_facts(),
            batch,
            latest: i64::MIN,
            open_from: i64::MIN,
            closes_at: i64::MIN,
            drops_late: false,
            arrivals: Windows::new(windowing),
            ready: Batch::with_capacity(batch),
        }
    }

    /// Reads the packets of a piece. `taker` gets the batches.
    pub(super) fn slice<T: Taker>(&mut self, piece: &Piece, taker: &mut T) -> Result<(), T::Error> {
        self.latest = piece.latest;
        self.note_latest();
        self.drops_late = piece.live;
        let records = &piece.delivery.part.records[piece.range.clone()];
        let mut jumped = &piece.jumped[..];
        let mut done = 0;
        while done < records.len() {
            let now = &records[done..];
            let now = &now[..now.len().min(CHUNK).min(self.batch)];
            let mut jumps = 0;
            while let Some((&i, others)) =
                jumped.split_first().filter(|(i, _)| **i < done + now.len())
            {
                jumps |= 1 << (i - done);
                jumped = others;
            }
            // The filter may have judged the packets before their positions were proven, and a
            // firewall after it.
            let part = &piece.delivery.part;
            let of = |column: &Bits| column.get(piece.range.start + done, now.len());
            let judged = (!part.passed.is_empty()).then(|| of(&part.passed));
            let denied = match judged {
                Some(passed) if !part.matched.is_empty() => {
                    of(&part.matched) & !passed & !of(&part.control)
                }
                _ => 0,
            };
            let known = Known {
                jumps,
                judged,
                denied,
            };
            self.chunk(piece, now, &known, taker);
            done += now.len();
            // A batch ends before the next chunk could overflow it: chunks of the size of its last room would become ever smaller if few
            // packets pass.
            if self.batch - self.ready.len < CHUNK.min(self.batch) {
                taker.batch(&mut self.ready)?;
                self.ready.clear();
            }
        }
        if self.ready.len > 0 {
            taker.batch(&mut self.ready)?;
            self.ready.clear();
        }
        Ok(())
    }

    /// Closes the windows before number `open`, which are complete, and returns their arrivals.
    pub fn close(&mut self, open: i64) -> Vec<(i64, Arrivals)> {
        self.arrivals.close(open)
    }

    /// See [`Windows::fold`].
    pub(super) fn fold(&mut self, folds: bool) {
        self.arrivals.fold(folds);
    }

    /// Returns the numbers of the open windows with arrivals.
    pub(super) fn numbers(&self) -> impl ExactSizeIterator<Item = i64> {
        self.arrivals.numbers()
    }

    /// Reads what the keys of `config` need from later packets.
    pub(super) fn fit(&mut self, config: &Config) {
        self.needs_facts = config.needs_facts();
    }

    /// Returns the number of the current window.
    pub(super) fn number(&self) -> i64 {
        self.windowing.number(self.latest)
    }

    /// Counts packets lost before the reader, in the window of the time `time`, ns.
    pub(super) fn lose(&mut self, time: i64, before: Before) {
        let Ok((at, _)) = self
            .arrivals
            .at(time, |_| Ok::<_, Infallible>(Arrivals::default()));
        *at += before.into();
    }

    /// Observes up to [`CHUNK`] packets, and accounts for them.
    #[inline(always)]
    fn chunk<T: Taker>(&mut self, piece: &Piece, records: &[u32], known: &Known, taker: &mut T) {
        let &Known {
            jumps,
            judged,
            denied,
        } = known;
        let (current, view) = (&piece.delivery.current, &piece.delivery.view);
        let mut frames = [EMPTY; CHUNK];
        let mut times = [0; CHUNK];
        let mut late = 0u64;
        let mut missing = 0u64;
        current
            .layout
            .records(view.content(), records, |i, record| {
                (frames[i], times[i]) = match record {
                    Some(record) => (record.frame, record.time_ns.unwrap_or(self.latest)),
                    // Only if the memory of a capture changed after the walk.
                    None => {
                        missing |= 1 << i;
                        (EMPTY, self.latest)
                    }
                };
                if self.windowing.window_ns.is_none() {
                    return;
                }
                if jumps >> i & 1 == 1 {
                    times[i] = self.latest;
                } else if self.arrive(times[i]) && self.drops_late {
                    late |= 1 << i;
                    // A late packet counts in the current window, because its own window is closed.
                    times[i] = self.latest;
                }
            });
        let frames = &frames[..records.len()];
        let all = u64::MAX >> (64 - records.len()) & !missing;
        let plan = &current.plan;
        let kept = match judged {
            // A late packet that the filter rejects is filtered, as the outputs count it.
            Some(judged) => {
                late &= judged;
                judged & all & !late
            }
            None if plan.keeps_all => all & !late,
            None => plan.select.kept(&plan.filter, frames) & all & !late,
        };
        let begin = self.ready.len;
        let mut for_groups = 0;
        for (i, (frames, times)) in frames.chunks(T::FEW).zip(times.chunks(T::FEW)).enumerate() {
            let first = self.ready.len;
            for_groups |= self.observe(plan, frames, times, kept >> (i * T::FEW)) << (i * T::FEW);
            taker.ahead(&self.ready.packets()[first..]);
        }
        let ways = self.ways(&current.layout, frames, kept, begin);
        if self.needs_facts || !self.ready.facts.is_empty() {
            self.note_facts(&Beside::of(piece, records), plan, frames, kept, begin);
        }
        let (broadcast, multicast) = match for_groups {
            0 => (0, 0),
            some => groups(plan, frames, some),
        };
        let times = &times[..records.len()];
        // A time that is not the packet's own hides whether its timestamp is beyond the range.
        let hides = jumps | late != 0;
        let suspects = || {
            times
                .iter()
                .fold(hides, |found, ns| found | Stamp(*ns).is_clamped())
        };
        let beyond = match current.layout.may_clamp() && suspects() {
            true => beyond(piece, records),
            false => 0,
        };
        self.account(
            (frames, times),
            &Masks {
                kept,
                denied: denied & all,
                late,
                missing,
                jumped: jumps,
                beyond,
                ways,
                broadcast,
                multicast,
            },
        );
    }

    /// Masks of the incoming and of the outgoing packets in `kept`, and of those between local hosts. Their observations begin at place `begin`.
    fn ways(&self, layout: &Layout, frames: &[Frame<'_>], kept: u64, begin: usize) -> [u64; 3] {
        let mut ways = [0; 3];
        if let Some(local) = &self.local {
            let is_local = |address: Option<IpAddr>| address.is_some_and(|it| local.has(it));
            let places = (0..frames.len()).filter(|i| kept >> i & 1 == 1);
            for (i, packet) in places.zip(&self.ready.packets()[begin..]) {
                let flow = &packet.flow;
                let ends = [is_local(flow.source()), is_local(flow.destination())];
                let way = match ends {
                    _ if packet.kind() != Kind::Flow => continue,
                    [false, false] => continue,
                    [false, true] => 0,
                    [true, false] => 1,
                    [true, true] => 2,
                };
                ways[way] |= 1 << i;
            }
            return ways;
        }
        if !matches!(layout.format, Format::Ring | Format::Slots) {
            return ways;
        }
        for (i, frame) in frames.iter().enumerate() {
            let out = match layout.direction(frame.interface as usize) {
                Some(direction) => direction == Direction::Out,
                // The type of a LINUX_SLL2 frame: 4 for a packet that this host sent (linux/if_packet.h).
                None => frame.data.get(10) == Some(&4),
            };
            ways[usize::from(out)] |= (kept >> i & 1) << i;
        }
        ways
    }

    /// Notes the facts of the frames in the mask `kept`, whose observations begin at place `begin` of the batch.
    #[cold]
    fn note_facts(
        &mut self,
        beside: &Beside<'_>,
        plan: &StagesPlan,
        frames: &[Frame<'_>],
        kept: u64,
        begin: usize,
    ) {
        self.ready.fit_facts(self.needs_facts);
        let room = self.ready.facts.get_mut(begin..).unwrap_or_default();
        let kept = frames
            .iter()
            .enumerate()
            .filter(|(i, _)| kept >> i & 1 == 1);
        for ((i, frame), facts) in kept.zip(room) {
            let parser = plan.parsers[frame.interface as usize].as_ref();
            *facts = beside.facts(parser, i, frame);
        }
    }

    /// Moves time on to the time of a packet. Returns whether the packet is late.
    #[inline]
    fn arrive(&mut self, time: i64) -> bool {
        if time > self.latest {
            self.latest = time;
            if time >= self.closes_at {
                self.note_latest();
            }
        }
        time < self.open_from
    }

    #[cold]
    fn note_latest(&mut self) {
        if self.windowing.window_ns.is_some() && self.latest > i64::MIN {
            let open = self.windowing.first_open(self.latest);
            let (from, to) = self.windowing.span(open);
            self.open_from = from;
            self.closes_at = to.saturating_add(self.windowing.late_ns);
        }
    }

    /// Counts the arrivals.
    fn account(&mut self, (frames, times): (&[Frame<'_>], &[i64]), masks: &Masks) {
        let &Masks {
            kept,
            denied,
            late,
            missing,
            jumped,
            beyond,
            ways: [rx, tx, local],
            broadcast,
            multicast,
        } = masks;
        // Nearly always, all packets are of one window.
        let (earliest, latest) = if self.windowing.window_ns.is_some() {
            span(times)
        } else {
            (0, 0)
        };
        let mut first = 0;
        while let Some(&time) = times.get(first) {
            let Ok((at, window)) = self
                .arrivals
                .at(time, |_| Ok::<_, Infallible>(Arrivals::default()));
            let run = if window.contains(&earliest) && window.contains(&latest) {
                times.len() - first
            } else {
                times[first..]
                    .iter()
                    .take_while(|time| window.contains(time))
                    .count()
                    .max(1)
            };
            // Most masks are empty, and to count bits takes a dozen instructions.
            let count = |bits: u64| match bits {
                0 => 0,
                bits => u64::from((bits >> first & u64::MAX >> (64 - run)).count_ones()),
            };
            let received = run as u64;
            let weighed = |bits: u64| Counts {
                packets: count(bits),
                bytes: match bits {
                    0 => 0,
                    bits => {
                        let here = (first..first + run).filter(|i| bits >> i & 1 == 1);
                        here.map(|i| u64::from(frames[i].wire_len)).sum()
                    }
                },
            };
            *at += Arrivals {
                received,
                filtered: count(!kept & !late & !denied & !missing),
                denied: count(denied),
                late: count(late),
                jumped: count(jumped),
                beyond: count(beyond),
                dropped: count(missing),
                rx: weighed(rx),
                tx: weighed(tx),
                local: weighed(local),
                broadcast: count(broadcast),
                multicast: count(multicast),
            };
            first += run;
        }
    }

    /// Makes observations of the frames in the mask `kept`. Frames that need the whole parser come last, because a loop without a
    /// call keeps its variables in registers. Returns the mask of the observed frames that are for a group of stations.
    fn observe(
        &mut self,
        plan: &StagesPlan,
        frames: &[Frame<'_>],
        times: &[i64],
        kept: u64,
    ) -> u64 {
        let Self {
            ready: Batch { packets, len, .. },
            hasher,
            refusals,
            ..
        } = self;
        let Some(&Frame { interface, .. }) = frames.first() else {
            return 0;
        };
        let most = Most {
            usual: plan.parsers[interface as usize]
                .as_ref()
                .and_then(Parser::usual),
            interface,
        };
        let all = u64::MAX >> (64 - frames.len());
        let kept = kept & all;
        let room = &mut packets[*len..][..kept.count_ones() as usize];
        *len += room.len();
        // Frames that need the whole parser, and whether one of the others is for a group.
        let (mut others, mut any_group) = (0u64, false);
        let both = frames.iter().zip(times).enumerate();
        if kept == all {
            for ((i, (frame, &time)), packet) in both.zip(&mut *room) {
                match most.observe(frame, time, hasher, packet) {
                    Some(is_for_group) => any_group |= is_for_group,
                    None => others |= 1 << i,
                }
            }
        } else {
            for ((i, (frame, &time)), packet) in
                both.filter(|(i, _)| kept >> i & 1 == 1).zip(&mut *room)
            {
                match most.observe(frame, time, hasher, packet) {
                    Some(is_for_group) => any_group |= is_for_group,
                    None => others |= 1 << i,
                }
            }
        }
        let mut for_groups = match any_group {
            true => with_group_bit(frames) & kept & !others,
            false => 0,
        };
        while others != 0 {
            let i = others.trailing_zeros();
            others &= others - 1;
            let before = kept & !(u64::MAX << i);
            let (frame, packet) = (&frames[i as usize], &mut room[before.count_ones() as usize]);
            let parser = plan.parsers[frame.interface as usize].as_ref();
            let is_for_group = parser.is_some_and(|it| it.group(frame.data) != Group::One);
            for_groups |= u64::from(is_for_group) << i;
            let found =
                parser.map(|parser| parser.key_and_hash(frame.data, hasher, &mut packet.flow));
            if let Some(Ok(hash)) = found {
                packet.hash = hash;
                continue;
            }
            let kind = found.and_then(Result::err).map_or(Kind::LinkType, keyless);
            packet.arrived(kind, frame.wire_len, packet.time_ns);
            (packet.hash, packet.flow) = (0, FlowKey::NONE);
        }
        if let Some(refusals) = refusals {
            let kept = frames
                .iter()
                .enumerate()
                .filter(|(i, _)| kept >> i & 1 == 1);
            for ((_, frame), packet) in kept.zip(room) {
                let parser = plan.parsers[frame.interface as usize].as_ref();
                if let Some(parser) = parser.filter(|_| packet.kind() == Kind::Flow) {
                    refusals.note(parser, frame.data, packet);
                }
            }
        }
        for_groups
    }
}

/// Fast path for most frames of a chunk: frames of one interface, read by a part of its parser.
struct Most {
    usual: Option<Usual>,
    interface: u32,
}

impl Most {
    /// Makes an observation of a frame, and returns whether the frame is for a group of stations. `None` if flow key and hash are still
    /// missing.
    #[inline(always)]
    fn observe(
        &self,
        frame: &Frame<'_>,
        time: i64,
        hasher: &Hasher,
        packet: &mut Observation,
    ) -> Option<bool> {
        packet.arrived(Kind::Flow, frame.wire_len, time);
        let usual = self.usual.filter(|_| frame.interface == self.interface)?;
        let (hash, is_for_group) = usual.key_and_hash(frame.data, hasher, &mut packet.flow)?;
        packet.hash = hash;
        Some(is_for_group)
    }
}

/// Returns the mask of the Ethernet frames with the group bit of their destination.
#[cold]
fn with_group_bit(frames: &[Frame<'_>]) -> u64 {
    let bit = |frame: &Frame<'_>| u64::from(frame.data.first().is_some_and(|it| it & 1 == 1));
    let bits = frames.iter().enumerate();
    bits.fold(0, |mask, (i, frame)| mask | bit(frame) << i)
}

/// Returns the masks of the frames in `some` that are for all stations, and for some stations.
#[cold]
fn groups(plan: &StagesPlan, frames: &[Frame<'_>], some: u64) -> (u64, u64) {
    let (mut broadcast, mut multicast) = (0, 0);
    for (i, frame) in frames
        .iter()
        .enumerate()
        .filter(|(i, _)| some >> i & 1 == 1)
    {
        let parser = plan.parsers[frame.interface as usize].as_ref();
        match parser.map(|parser| parser.group(frame.data)) {
            Some(Group::Broadcast) => broadcast |= 1 << i,
            Some(Group::Multicast) => multicast |= 1 << i,
            Some(Group::One) | None => {}
        }
    }
    (broadcast, multicast)
}

/// Returns the mask of the packets whose timestamps are beyond the representable range. **Cost**:
/// it takes the records apart once more, so that chunks without such a timestamp, nearly all, cost
/// no more than a look at their times.
#[cold]
fn beyond(piece: &Piece, records: &[u32]) -> u64 {
    let (current, view) = (&piece.delivery.current, &piece.delivery.view);
    let mut beyond = 0;
    current
        .layout
        .records(view.content(), records, |i, record| {
            let time_ns = record.and_then(|record| record.time_ns);
            beyond |= u64::from(time_ns.is_some_and(|ns| Stamp(ns).is_clamped())) << i;
        });
    beyond
}

/// Returns the earliest and the latest of `times`.
#[inline]
fn span(times: &[i64]) -> (i64, i64) {
    times
        .iter()
        .fold((i64::MAX, i64::MIN), |(from, to), &time| {
            (from.min(time), to.max(time))
        })
}

impl From<Before> for Arrivals {
    fn from(Before { dropped, filtered }: Before) -> Self {
        Self {
            received: dropped + filtered,
            dropped,
            filtered,
            ..Self::default()
        }
    }
}

fn keyless(why: NoKey) -> Kind {
    match why {
        NoKey::NotIp => Kind::NotIp,
        NoKey::Truncated => Kind::Truncated,
        NoKey::Malformed => Kind::Malformed,
    }
}
