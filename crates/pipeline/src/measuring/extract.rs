//! From bytes to observations: filter, flow key, hash, and the account of what arrived.

use super::clock::Before;
use super::worker::Piece;
use crate::handed::{Gone, end_of};
use crate::stages::StagesPlan;
use std::convert::Infallible;
use weir_measure::{Arrivals, Kind, Observation, Windowing, Windows};
use weir_packet::Frame;
use weir_packet::flow::{FlowKey, Hasher, NoKey, Parser, Usual};

/// Frames that are looked at together.
const CHUNK: usize = 32;

const EMPTY: Frame<'static> = Frame { data: &[], wire_len: 0, interface: 0 };

/// Makes observations of packets, in the order of the source.
#[derive(Debug)]
pub struct Extract {
    hasher: Hasher,
    windowing: Windowing,
    batch: usize,
    /// Time of the latest packet so far, ns.
    latest: i64,
    /// Packets of live sources before this time are late, ns.
    open_from: i64,
    /// Once a packet of this time arrives, the next window closes, ns.
    closes_at: i64,
    drops_late: bool,
    arrivals: Windows<Arrivals>,
    ready: Batch,
}

/// What is known of up to [`CHUNK`] packets before they are read; bit i is that of the packet i.
#[derive(Clone, Copy, Debug)]
struct Known {
    /// Their stamps are not believed.
    jumps: u64,
    /// The filter keeps them, if it has judged.
    judged: Option<u64>,
}

/// Observations that go on together.
#[derive(Debug, Default)]
pub struct Batch {
    /// Room for all of them: what is there of earlier batches is written over, and need not be cleared.
    packets: Vec<Observation>,
    len: usize,
}

impl Batch {
    pub(super) fn with_capacity(capacity: usize) -> Self {
        Self { packets: vec![Observation::mark(0); capacity], len: 0 }
    }

    /// No packet is in it any more.
    pub(super) fn clear(&mut self) {
        self.len = 0;
    }

    /// The packets that passed.
    pub fn packets(&self) -> &[Observation] {
        &self.packets[..self.len]
    }
}

/// Takes batches over, and may begin with packets before their batch is whole.
pub(super) trait Taker {
    /// Why no more is taken.
    type Error;

    /// A batch is whole. Another one may be left in its place.
    fn batch(&mut self, batch: &mut Batch) -> Result<(), Self::Error>;

    /// After how many packets it wants to be told of them.
    const FEW: usize = CHUNK;

    /// Packets that the next batch will hold.
    ///
    /// Memory takes as long to come as reading many headers does, and only some lines can be on their way at once: who asks for
    /// a few now and then has them when they are needed, and waits at no time.
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
    /// Hands on `batch` packets at once.
    pub fn new(hasher: Hasher, windowing: Windowing, batch: usize) -> Self {
        Self {
            hasher,
            windowing,
            batch,
            latest: i64::MIN,
            open_from: i64::MIN,
            closes_at: i64::MIN,
            drops_late: false,
            arrivals: Windows::new(windowing),
            ready: Batch::with_capacity(batch),
        }
    }

    /// Reads the packets of a piece, up to the first that is not in the file any more. `taker` gets the batches.
    pub(super) fn slice<T: Taker>(&mut self, piece: &Piece, taker: &mut T) -> Result<Option<Gone>, T::Error> {
        self.latest = piece.latest;
        self.note_latest();
        self.drops_late = piece.live;
        let records = &piece.delivery.part.records[piece.range.clone()];
        let mut jumped = &piece.jumped[..];
        let mut done = 0;
        while done < records.len() {
            let now = &records[done..];
            let now = &now[..now.len().min(CHUNK).min(self.batch - self.ready.len)];
            let mut jumps = 0;
            while let Some((&i, others)) = jumped.split_first().filter(|(i, _)| **i < done + now.len()) {
                jumps |= 1 << (i - done);
                jumped = others;
            }
            // The filter may have judged before the proof.
            let column = &piece.delivery.part.kept;
            let judged = (!column.is_empty()).then(|| column.get(piece.range.start + done, now.len()));
            let sound = self.chunk(piece, now, &Known { jumps, judged }, taker);
            done += sound;
            if self.ready.len >= self.batch {
                taker.batch(&mut self.ready)?;
                self.ready.clear();
            }
            if sound < now.len() {
                break;
            }
        }
        if self.ready.len > 0 {
            taker.batch(&mut self.ready)?;
            self.ready.clear();
        }
        Ok(piece.delivery.gone(records, done))
    }

    /// What arrived in the windows before number `open`, which are complete.
    pub fn close(&mut self, open: i64) -> Vec<(i64, Arrivals)> {
        self.arrivals.close(open)
    }

    /// See [`Windows::fold`].
    pub(super) fn fold(&mut self, folds: bool) {
        self.arrivals.fold(folds);
    }

    /// Numbers of the windows in which something arrived and that are open.
    pub(super) fn numbers(&self) -> impl ExactSizeIterator<Item = i64> {
        self.arrivals.numbers()
    }

    /// The window that time has come to.
    pub(super) fn number(&self) -> i64 {
        self.windowing.number(self.latest)
    }

    /// Counts packets that never reached us, in the window of this time.
    pub(super) fn lose(&mut self, time: i64, before: Before) {
        let Ok((at, _)) = self.arrivals.at(time, |_| Ok::<_, Infallible>(Arrivals::default()));
        *at += before.into();
    }

    /// Observes up to [`CHUNK`] packets, as many of the first ones as are still in the file, and says how many these are.
    fn chunk<T: Taker>(&mut self, piece: &Piece, records: &[u32], known: &Known, taker: &mut T) -> usize {
        let before = (self.latest, self.open_from, self.closes_at, self.ready.len);
        let mut sound = records.len();
        while sound > 0 {
            let found = self.observed(piece, &records[..sound], known, taker);
            if found == sound {
                return sound;
            }
            // Once more without those that turned out to be gone.
            sound = found;
            (self.latest, self.open_from, self.closes_at, self.ready.len) = before;
        }
        0
    }

    /// Observes and accounts for packets if all of them are in the file still; returns how many of the first ones are.
    #[inline(always)]
    fn observed<T: Taker>(&mut self, piece: &Piece, records: &[u32], known: &Known, taker: &mut T) -> usize {
        let &Known { jumps, judged } = known;
        let (current, view) = (&piece.delivery.current, &piece.delivery.view);
        let mut frames = [EMPTY; CHUNK];
        let mut times = [0; CHUNK];
        let mut late = 0u64;
        let mut missing = 0u64;
        current.layout.records(view.content(), records, |i, record| {
            (frames[i], times[i]) = match record {
                Some(record) => (record.frame, record.time_ns.unwrap_or(self.latest)),
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
                // It counts where time is, since its own window is gone.
                times[i] = self.latest;
            }
        });
        let frames = &frames[..records.len()];
        let all = u64::MAX >> (64 - records.len());
        let plan = &current.plan;
        let kept = match judged {
            // A late packet that the filter rejects is filtered, as the outputs beside count it.
            Some(judged) => {
                late &= judged;
                judged & all & !late
            }
            None if plan.keeps_all => all & !late,
            None => plan.select.kept(&plan.filter, frames) & !late,
        };
        for (i, (frames, times)) in frames.chunks(T::FEW).zip(times.chunks(T::FEW)).enumerate() {
            let first = self.ready.len;
            self.observe(plan, frames, times, kept >> (i * T::FEW));
            taker.ahead(&self.ready.packets()[first..]);
        }
        // All was read: what is counted now was in the file.
        let sound = (missing.trailing_zeros() as usize).min(records.len());
        let is_sound = |frame: &Frame<'_>| !view.is_mapped() || view.is_intact(end_of(view.bytes(), frame));
        match frames[..sound].last() {
            Some(last) if !is_sound(last) => {
                return frames[..sound - 1].iter().take_while(|frame| is_sound(frame)).count();
            }
            _ if sound < records.len() => return sound,
            _ => {}
        }
        self.account(&times[..records.len()], kept, late, jumps);
        sound
    }

    /// Time goes on to that of a packet. Says whether the packet is late.
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

    /// Counts what arrived.
    fn account(&mut self, times: &[i64], kept: u64, late: u64, jumped: u64) {
        // Nearly always all of them are of one window.
        let (earliest, latest) = if self.windowing.window_ns.is_some() { span(times) } else { (0, 0) };
        let mut first = 0;
        while let Some(&time) = times.get(first) {
            let Ok((at, window)) = self.arrivals.at(time, |_| Ok::<_, Infallible>(Arrivals::default()));
            let run = if window.contains(&earliest) && window.contains(&latest) {
                times.len() - first
            } else {
                times[first..].iter().take_while(|time| window.contains(time)).count().max(1)
            };
            let count = |bits: u64| u64::from((bits >> first & u64::MAX >> (64 - run)).count_ones());
            let received = run as u64;
            let (filtered, late, jumped) = (count(!kept & !late), count(late), count(jumped));
            *at += Arrivals { received, filtered, late, jumped, dropped: 0 };
            first += run;
        }
    }

    /// Makes observations of the frames in the mask `kept`. Those that take longer come last: a loop without a call keeps its
    /// variables in registers.
    fn observe(&mut self, plan: &StagesPlan, frames: &[Frame<'_>], times: &[i64], kept: u64) {
        let Self { ready: Batch { packets, len }, hasher, .. } = self;
        let Some(&Frame { interface, .. }) = frames.first() else { return };
        let most = Most { usual: plan.parsers[interface as usize].as_ref().and_then(Parser::usual), interface };
        let all = u64::MAX >> (64 - frames.len());
        let kept = kept & all;
        let room = &mut packets[*len..][..kept.count_ones() as usize];
        *len += room.len();
        let mut others = 0u64;
        let both = frames.iter().zip(times).enumerate();
        if kept == all {
            for ((i, (frame, &time)), packet) in both.zip(&mut *room) {
                others |= u64::from(!most.observe(frame, time, hasher, packet)) << i;
            }
        } else {
            for ((i, (frame, &time)), packet) in both.filter(|(i, _)| kept >> i & 1 == 1).zip(&mut *room) {
                others |= u64::from(!most.observe(frame, time, hasher, packet)) << i;
            }
        }
        while others != 0 {
            let i = others.trailing_zeros();
            others &= others - 1;
            let before = kept & !(u64::MAX << i);
            let (frame, packet) = (&frames[i as usize], &mut room[before.count_ones() as usize]);
            let parser = plan.parsers[frame.interface as usize].as_ref();
            let found = parser.map(|parser| parser.key_and_hash(frame.data, hasher, &mut packet.flow));
            if let Some(Ok(hash)) = found {
                packet.hash = hash;
                continue;
            }
            let kind = found.and_then(Result::err).map_or(Kind::LinkType, keyless);
            packet.arrived(kind, frame.wire_len, packet.time_ns);
            (packet.hash, packet.flow) = (0, FlowKey::NONE);
        }
    }
}

/// What most frames of a chunk are: of one interface, and read by a part of its parser.
struct Most {
    usual: Option<Usual>,
    interface: u32,
}

impl Most {
    /// Makes an observation of a frame; `false` if its key and what follows from it are to come.
    #[inline(always)]
    fn observe(&self, frame: &Frame<'_>, time: i64, hasher: &Hasher, packet: &mut Observation) -> bool {
        packet.arrived(Kind::Flow, frame.wire_len, time);
        let usual = self.usual.filter(|_| frame.interface == self.interface);
        let hash = usual.and_then(|usual| usual.key_and_hash(frame.data, hasher, &mut packet.flow));
        packet.hash = hash.unwrap_or(0);
        hash.is_some()
    }
}

/// The earliest and the latest of some times.
#[inline]
fn span(times: &[i64]) -> (i64, i64) {
    times.iter().fold((i64::MAX, i64::MIN), |(from, to), &time| (from.min(time), to.max(time)))
}

impl From<Before> for Arrivals {
    fn from(Before { dropped, filtered }: Before) -> Self {
        Self { received: dropped + filtered, dropped, filtered, ..Self::default() }
    }
}

fn keyless(why: NoKey) -> Kind {
    match why {
        NoKey::NotIp => Kind::NotIp,
        NoKey::Truncated => Kind::Truncated,
        NoKey::Malformed => Kind::Malformed,
    }
}
