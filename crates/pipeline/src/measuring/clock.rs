//! Progress of packet time in a source: believed timestamps, complete windows, and the cuts between
//! pieces.

use super::jumps::{Decision, Judge};
use super::keys::KeyChange;
use super::worker::Piece;
use crate::Delivery;
use crate::stages::{Stages, Times};
use crate::steps::Moment;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;
use weir_io::Chunk;
use weir_io::live::{Counts, TURN};
use weir_measure::{Observation, Windowing};

/// Offset before the first delivery of any source.
const UNKNOWN: i64 = i64::MIN;

/// Number of windows that one piece may close; each has tables of its own.
pub(super) const MANY: i64 = 4;

/// Number of closed windows that late packets of a file may open again at once. Beyond it, the reopened windows are closed.
const REOPENED: usize = 8;

/// An action of the clock, in the order of the source.
#[derive(Debug)]
pub(super) enum Act {
    /// Note the first timestamp of all, ns.
    Begun(i64),
    /// Measure packets.
    Measure(Piece),
    /// Close the windows before this number. With `i64::MAX`, close all windows; time may then
    /// begin again.
    Close(i64),
    /// Close all windows, and count later packets by other keys.
    Replace(Arc<KeyChange>),
}

/// Position of a packet: a delivery, and the number of its record there.
type Position = (Arc<Delivery<Stages>>, usize);

/// Packet time of a source.
#[derive(Debug)]
pub(super) struct Clock {
    windowing: Windowing,
    /// Whether the source is live: late packets are dropped, because their windows must not wait.
    live: bool,
    /// Latest time so far, ns.
    latest: i64,
    /// Number of the first open window.
    open: i64,
    /// First timestamp of all, ns; for a live source, the time of day at the start of the capture.
    begun: Option<i64>,
    judge: Judge<Position>,
    /// Piece in the making.
    piece: Option<Piece>,
    /// Windows that late packets opened again since the last close.
    reopened: Vec<i64>,
    /// Chunks of deliveries that no piece holds any more.
    freed: Vec<Chunk>,
    handed_ns: u64,
    /// Current time, for a live source.
    now: Moment,
    /// Steady time at the start of the capture.
    started: Duration,
    /// Steady time at which the source became quiet.
    quiet_since: Option<Duration>,
    /// Longest time for which the source holds packets back.
    held_back: Duration,
    pace: Pace,
    /// Memory for reuse.
    stamps: Vec<i64>,
    decided: Vec<Decision<Position>>,
}

impl Clock {
    /// Makes a clock for files and pipes. A timestamp that is off by more than an hour and
    /// `late_ns` is a jump.
    pub fn new(windowing: Windowing) -> Self {
        const REACH_NS: i64 = 3600 * 1_000_000_000;
        Self {
            windowing,
            live: false,
            latest: Observation::NO_TIME,
            open: i64::MIN,
            begun: None,
            judge: Judge::new(windowing.late_ns.saturating_add(REACH_NS), true),
            piece: None,
            reopened: Vec::new(),
            freed: Vec::new(),
            handed_ns: 0,
            now: Moment::default(),
            started: Duration::ZERO,
            quiet_since: None,
            held_back: Duration::ZERO,
            pace: Pace::new(Arc::default()),
            stamps: Vec::new(),
            decided: Vec::new(),
        }
    }

    /// Makes a clock for a live source; `paces` is shared with the clocks of the other sources. A
    /// timestamp that is off by more than ten seconds and `late_ns` is a jump, because time goes on
    /// even if no packet arrives.
    pub fn live(windowing: Windowing, paces: Arc<Paces>, now: Moment) -> Self {
        const REACH_NS: i64 = 10 * 1_000_000_000;
        Self {
            live: true,
            judge: Judge::new(windowing.late_ns.saturating_add(REACH_NS), false),
            begun: Some(now.wall_ns),
            now,
            started: now.steady,
            pace: Pace::new(paces),
            ..Self::new(windowing)
        }
    }

    /// Waits longer for packets, because the source holds them back for at most `most`.
    #[must_use]
    pub fn held_back(self, most: Duration) -> Self {
        Self {
            held_back: most,
            ..self
        }
    }

    /// Sets the time for the next actions. All earlier deliveries were delivered by this time.
    pub fn tick(&mut self, now: Moment) {
        self.now = now;
        self.pace.tick(now.steady);
    }

    /// Returns the packet time of the source, ns; before its first packet, the time of day.
    pub fn time(&self) -> i64 {
        if self.latest == Observation::NO_TIME {
            self.now.wall_ns
        } else {
            self.latest
        }
    }

    /// Returns the first time of the source, ns, if known.
    pub fn begun(&self) -> Option<i64> {
        self.begun
    }

    /// Returns the packet time that a live source must have reached by now, ns, if known; for a
    /// file, its latest timestamp.
    pub fn ended(&self) -> Option<i64> {
        let known = self.latest != Observation::NO_TIME;
        known.then(|| {
            if self.live {
                self.pace.time(self.now.steady).unwrap_or(self.latest)
            } else {
                self.latest
            }
        })
    }

    /// Takes a delivery. `act` is called with the actions for its packets; the last packets may be held back.
    ///
    /// **Cost**: constant. If a timestamp jumps, packets are late, or many windows begin, linear:
    /// the timestamps are read one by one.
    pub fn take<E>(
        &mut self,
        delivery: Arc<Delivery<Stages>>,
        handed_ns: u64,
        act: &mut dyn FnMut(Act) -> Result<(), E>,
    ) -> Result<(), E> {
        self.handed_ns = handed_ns;
        self.quiet_since = None;
        self.first(delivery.part.times, act)?;
        let before = self.latest;
        if self.flows(delivery.part.times) {
            if let Some(times) = delivery.part.times {
                self.note_begun(times.first, act)?;
            }
            let range = 0..delivery.part.records.len();
            let piece = Piece {
                delivery,
                range,
                latest: before,
                jumped: Vec::new(),
                live: self.live,
                handed_ns,
            };
            act(Act::Measure(piece))?;
            self.go_on(act)?;
        } else {
            self.read_timestamps(delivery, act)?;
        }
        if self.live && self.latest != before {
            self.pace.deliver(self.latest);
        }
        Ok(())
    }

    /// Ends the source: passes on the held packets.
    pub fn end<E>(&mut self, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        let mut decided = std::mem::take(&mut self.decided);
        self.judge.end(&mut decided);
        decided
            .drain(..)
            .try_for_each(|decision| self.heed(decision, act))?;
        self.decided = decided;
        self.flush(act)
    }

    /// Switches to other keys for later packets. Held packets of a file are passed on first.
    pub fn replace<E>(
        &mut self,
        change: Arc<KeyChange>,
        act: &mut dyn FnMut(Act) -> Result<(), E>,
    ) -> Result<(), E> {
        if !self.live {
            self.end(act)?;
        }
        self.flush(act)?;
        self.reopened.clear();
        act(Act::Replace(change))
    }

    /// Returns the chunks of deliveries whose packets were all measured before the clock released the delivery.
    pub fn freed(&mut self) -> std::vec::Drain<'_, Chunk> {
        self.freed.drain(..)
    }

    /// Notes that a live source has no packet. After a turn without a packet, time goes on by the pace. Returns the steady time
    /// until which to wait.
    pub fn quiet<E>(&mut self, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<Duration, E> {
        let now = self.now.steady;
        let since = *self.quiet_since.get_or_insert(now);
        let until = since.saturating_add(TURN);
        if now < until {
            return Ok(until);
        }
        self.quiet_since = Some(now);
        self.pass(since, act)?;
        Ok(now.saturating_add(TURN))
    }

    /// Moves time on, because a live source had delivered nothing more at the steady time `asked`.
    fn pass<E>(
        &mut self,
        asked: Duration,
        act: &mut dyn FnMut(Act) -> Result<(), E>,
    ) -> Result<(), E> {
        /// Time that a packet may take to arrive. The kernel hands a block over at the second turn of a timer of 50 ms, and the
        /// machine may be busy. The time for which a window waits for late packets counts towards it.
        const ON_ITS_WAY: Duration = Duration::from_millis(150);
        const LEAST: Duration = Duration::from_millis(50);
        let waits = Duration::from_nanos(self.windowing.late_ns.unsigned_abs());
        let arrives = ON_ITS_WAY.saturating_add(self.held_back);
        let slack = arrives.saturating_sub(waits).max(LEAST);
        let Some(asked) = asked.checked_sub(slack) else {
            return Ok(());
        };
        let Some(now) = self.pace.time(asked) else {
            return self.pass_unseen(asked, act);
        };
        if self.pace.stepped() && now < self.latest && !self.judge.is_near(now) {
            self.begin(now, act)?;
            self.judge.pass(now);
        }
        if now > self.latest {
            self.latest = now;
            self.judge.pass(now);
            self.go_on(act)?;
        }
        Ok(())
    }

    /// Closes windows before the first packet of all sources: the time of day at the start of the capture goes on. Packets of
    /// another clock begin time again.
    fn pass_unseen<E>(
        &mut self,
        asked: Duration,
        act: &mut dyn FnMut(Act) -> Result<(), E>,
    ) -> Result<(), E> {
        let (Some(begun), Some(since)) = (self.begun, asked.checked_sub(self.started)) else {
            return Ok(());
        };
        let open = self.windowing.first_open(begun.saturating_add(ns(since)));
        if self.windowing.window_ns.is_none() || open <= self.open {
            return Ok(());
        }
        self.open = open;
        self.close(open, act)
    }

    /// Begins time again if the first packets of a live source are from before the windows that were closed without any.
    fn first<E>(
        &mut self,
        times: Option<Times>,
        act: &mut dyn FnMut(Act) -> Result<(), E>,
    ) -> Result<(), E> {
        let unseen = self.live && self.latest == Observation::NO_TIME && self.open != i64::MIN;
        let earliest = times.map(|times| self.windowing.number(times.earliest));
        if !unseen || earliest.is_none_or(|number| number >= self.open) {
            return Ok(());
        }
        self.open = i64::MIN;
        self.close(i64::MAX, act)
    }

    /// Returns whether the packets of a delivery can be measured as one piece. The conditions: no
    /// timestamp jumps, no packet of a file is late, and only a few windows begin. If so, time goes
    /// on.
    fn flows(&mut self, times: Option<Times>) -> bool {
        if self.windowing.window_ns.is_none() {
            return true;
        }
        let Some(Times {
            earliest,
            latest,
            behind,
            ..
        }) = times
        else {
            return self.judge.is_clear();
        };
        let known = self.latest != Observation::NO_TIME;
        let behind = if known {
            behind.max(self.latest.saturating_sub(earliest))
        } else {
            behind
        };
        let end = self.latest.max(latest);
        let first_open = if known {
            self.open
        } else {
            self.windowing.first_open(earliest)
        };
        let flows = (self.live || behind <= self.windowing.late_ns)
            && self.windowing.first_open(end).saturating_sub(first_open) <= MANY
            && self.judge.take_all(earliest, latest);
        if flows {
            self.latest = end;
        }
        flows
    }

    /// Reads the timestamps of a delivery one by one.
    fn read_timestamps<E>(
        &mut self,
        delivery: Arc<Delivery<Stages>>,
        act: &mut dyn FnMut(Act) -> Result<(), E>,
    ) -> Result<(), E> {
        let (mut stamps, mut decided) = (
            std::mem::take(&mut self.stamps),
            std::mem::take(&mut self.decided),
        );
        stamps.clear();
        let bytes = delivery.view.content();
        delivery
            .current
            .layout
            .records(bytes, &delivery.part.records, |_, record| {
                stamps.push(
                    record
                        .and_then(|record| record.time_ns)
                        .unwrap_or(Observation::NO_TIME),
                );
            });
        for (i, &stamp) in stamps.iter().enumerate() {
            if self.judge.take(stamp) {
                self.packet(&delivery, i, stamp, false, act)?;
                continue;
            }
            self.judge
                .judge((Arc::clone(&delivery), i), stamp, &mut decided);
            decided
                .drain(..)
                .try_for_each(|decision| self.heed(decision, act))?;
        }
        (self.stamps, self.decided) = (stamps, decided);
        self.flush(act)?;
        self.release(delivery);
        Ok(())
    }

    fn heed<E>(
        &mut self,
        decision: Decision<Position>,
        act: &mut dyn FnMut(Act) -> Result<(), E>,
    ) -> Result<(), E> {
        match decision {
            Decision::Begin(time) => {
                self.pace.step();
                self.begin(time, act)
            }
            Decision::Packet((delivery, i), stamp, jumped) => {
                self.packet(&delivery, i, stamp, jumped, act)?;
                self.release(delivery);
                Ok(())
            }
        }
    }

    /// Adds a packet to the piece in the making, or begins a new piece with it.
    fn packet<E>(
        &mut self,
        delivery: &Arc<Delivery<Stages>>,
        i: usize,
        stamp: i64,
        jumped: bool,
        act: &mut dyn FnMut(Act) -> Result<(), E>,
    ) -> Result<(), E> {
        let timed = stamp != Observation::NO_TIME && !jumped;
        if timed && !self.live {
            self.reopen(self.windowing.number(stamp), act)?;
        }
        let grows = |piece: &Piece| Arc::ptr_eq(&piece.delivery, delivery) && piece.range.end == i;
        if !self.piece.as_ref().is_some_and(grows) {
            self.flush(act)?;
        }
        let piece = self.piece.get_or_insert_with(|| Piece {
            delivery: Arc::clone(delivery),
            range: i..i,
            latest: self.latest,
            jumped: Vec::new(),
            live: self.live,
            handed_ns: self.handed_ns,
        });
        if jumped {
            piece.jumped.push(i - piece.range.start);
        }
        piece.range.end = i + 1;
        if timed && stamp > self.latest {
            self.note_begun(stamp, act)?;
            self.latest = stamp;
            self.go_on(act)?;
        }
        Ok(())
    }

    /// Reopens window `number` of a file if it was closed, because a late packet of it is next. Few windows are reopened at once.
    fn reopen<E>(
        &mut self,
        number: i64,
        act: &mut dyn FnMut(Act) -> Result<(), E>,
    ) -> Result<(), E> {
        if number < self.open && !self.reopened.contains(&number) {
            if self.reopened.len() == REOPENED {
                self.close(self.open, act)?;
            }
            self.reopened.push(number);
        }
        Ok(())
    }

    fn note_begun<E>(
        &mut self,
        stamp: i64,
        act: &mut dyn FnMut(Act) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.begun.is_some() {
            return Ok(());
        }
        self.begun = Some(stamp);
        act(Act::Begun(stamp))
    }

    /// Begins time again at `time`, ns.
    fn begin<E>(&mut self, time: i64, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        if time < self.latest {
            self.close(i64::MAX, act)?;
            self.open = self.windowing.first_open(time);
        }
        self.flush(act)?;
        self.latest = time;
        self.go_on(act)
    }

    /// Closes the windows that are complete at the latest time.
    fn go_on<E>(&mut self, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        let open = self.windowing.first_open(self.latest);
        if self.latest == Observation::NO_TIME || open <= self.open {
            return Ok(());
        }
        self.open = open;
        self.close(open, act)
    }

    fn close<E>(
        &mut self,
        before: i64,
        act: &mut dyn FnMut(Act) -> Result<(), E>,
    ) -> Result<(), E> {
        self.flush(act)?;
        self.reopened.clear();
        act(Act::Close(before))
    }

    /// Passes on the piece in the making.
    fn flush<E>(&mut self, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        self.piece
            .take()
            .map_or(Ok(()), |piece| act(Act::Measure(piece)))
    }

    /// Releases a delivery. The last holder of a delivery gives its bytes back.
    fn release(&mut self, delivery: Arc<Delivery<Stages>>) {
        self.freed
            .extend(Arc::into_inner(delivery).map(|delivery| delivery.view));
    }
}

/// State shared by the clocks of several live sources.
#[derive(Debug)]
pub(super) struct Paces {
    /// Packet time minus steady time, ns, of the source with the latest delivery.
    offset: AtomicI64,
    /// Number of times that time began again in any of the sources.
    steps: AtomicU64,
}

impl Default for Paces {
    fn default() -> Self {
        Self {
            offset: AtomicI64::new(UNKNOWN),
            steps: AtomicU64::new(0),
        }
    }
}

/// Pace of packet time between packets: from the last delivery on, packet time advances like the
/// system's steady clock. The packets may have timestamps of another clock, such as a network
/// card's.
#[derive(Debug)]
struct Pace {
    all: Arc<Paces>,
    /// Packet time minus steady time, ns, at the last delivery.
    offset: Option<i64>,
    /// Number of steps of any source known to this clock.
    steps: u64,
    /// Latest time of packets delivered since the last tick, ns. `began` is set if time began again
    /// among them.
    delivered: Option<i64>,
    began: bool,
}

impl Pace {
    fn new(all: Arc<Paces>) -> Self {
        Self {
            all,
            offset: None,
            steps: 0,
            delivered: None,
            began: false,
        }
    }

    /// Notes that packets up to the time `latest`, ns, were delivered since the last tick.
    fn deliver(&mut self, latest: i64) {
        self.delivered = Some(latest);
    }

    /// Notes that time began again since the last tick.
    fn step(&mut self) {
        self.began = true;
    }

    /// Sets the steady time to `now`, which is later than all delivered packets. An earlier time would make the offset too large:
    /// packet time would then run ahead of packets on their way.
    fn tick(&mut self, now: Duration) {
        if let Some(latest) = self.delivered.take() {
            let offset = latest.saturating_sub(ns(now));
            self.offset = Some(offset);
            self.all.offset.store(offset, Ordering::Relaxed);
        }
        // A thread that sees the new step count also sees the offset stored before it.
        if std::mem::take(&mut self.began) {
            self.steps = self.all.steps.fetch_add(1, Ordering::Release) + 1;
        }
    }

    /// Returns whether time began again in another source since the last call.
    fn stepped(&mut self) -> bool {
        let steps = self.all.steps.load(Ordering::Acquire);
        let stepped = std::mem::replace(&mut self.steps, steps) != steps;
        if stepped {
            self.offset = None;
        }
        stepped
    }

    /// Returns the packet time at the steady time `at`, ns; `None` before the first delivery of any source.
    fn time(&self, at: Duration) -> Option<i64> {
        let elsewhere =
            || Some(self.all.offset.load(Ordering::Relaxed)).filter(|&offset| offset != UNKNOWN);
        let known = if self.all.steps.load(Ordering::Acquire) == self.steps {
            self.offset
        } else {
            None
        };
        known
            .or_else(elsewhere)
            .map(|offset| offset.saturating_add(ns(at)))
    }
}

fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// Counts of packets filtered or dropped by a live source, as booked so far.
///
/// The source does not give the time of a loss, so new losses belong to the current window of the source.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Booked {
    dropped: u64,
    filtered: u64,
}

/// Packets dropped or filtered before the reader.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Before {
    pub dropped: u64,
    pub filtered: u64,
}

impl Booked {
    /// Books the difference to the counts so far, and returns it if it is not zero.
    pub fn book(&mut self, counts: Option<Counts>) -> Option<Before> {
        let counts = counts?;
        let filtered = counts.filtered.unwrap_or(0);
        let new = Before {
            dropped: counts.dropped - self.dropped,
            filtered: filtered - self.filtered,
        };
        *self = Self {
            dropped: counts.dropped,
            filtered,
        };
        (new != Before::default()).then_some(new)
    }
}
