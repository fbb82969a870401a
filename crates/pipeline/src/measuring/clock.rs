//! How far packet time has come in a source: which stamps are believed, which windows are complete, and where to cut pieces.

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

/// Nothing was delivered anywhere.
const UNKNOWN: i64 = i64::MIN;

/// Windows that one piece may close, each of which has tables of its own.
pub(super) const MANY: i64 = 4;

/// Windows that were closed already and can be open again for late packets of a file: then they are closed once more.
const REOPENED: usize = 8;

/// What is to be done next, in the order of the source.
#[derive(Debug)]
pub(super) enum Act {
    /// This is the first stamp of all, ns.
    Begun(i64),
    /// Measure packets.
    Measure(Piece),
    /// Close the windows before this number; with `i64::MAX` all of them, and time may begin anew.
    Close(i64),
    /// Close all windows, and count what comes by other keys.
    Replace(Arc<KeyChange>),
}

/// Where a packet lies: a delivery, and the number of its record there.
type Place = (Arc<Delivery<Stages>>, usize);

/// The time that a source has come to.
#[derive(Debug)]
pub(super) struct Clock {
    windowing: Windowing,
    /// The source is live: late packets are dropped, since their windows are not to wait.
    live: bool,
    /// Latest time so far, ns.
    latest: i64,
    /// Windows before this number are closed.
    open: i64,
    /// The first stamp of all, ns; of a live source, when the capture began.
    begun: Option<i64>,
    judge: Judge<Place>,
    /// The piece that grows.
    piece: Option<Piece>,
    /// Windows that late packets opened again since windows were closed last.
    reopened: Vec<i64>,
    /// Bytes of deliveries that no piece holds any more.
    freed: Vec<Chunk>,
    handed_ns: u64,
    /// What time it is; of a live source.
    now: Moment,
    /// Steady time since when nothing has come.
    quiet_since: Option<Duration>,
    pace: Pace,
    /// Memory to use again.
    stamps: Vec<i64>,
    decided: Vec<Decision<Place>>,
}

impl Clock {
    /// A clock for files and pipes. A stamp that is an hour off, apart from `late_ns`, is one that jumps.
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
            quiet_since: None,
            pace: Pace::new(Arc::default()),
            stamps: Vec::new(),
            decided: Vec::new(),
        }
    }

    /// A clock for a live source; `paces` is what it shares with the clocks of other sources. While nothing comes, time goes on
    /// all the same: so a stamp that is ten seconds off, apart from `late_ns`, is one that jumps.
    pub fn live(windowing: Windowing, paces: Arc<Paces>, now: Moment) -> Self {
        const REACH_NS: i64 = 10 * 1_000_000_000;
        Self {
            live: true,
            judge: Judge::new(windowing.late_ns.saturating_add(REACH_NS), false),
            begun: Some(now.wall_ns),
            now,
            pace: Pace::new(paces),
            ..Self::new(windowing)
        }
    }

    /// Says what time it is, for what comes next. What was delivered before was delivered by now.
    pub fn tick(&mut self, now: Moment) {
        self.now = now;
        self.pace.tick(now.steady);
    }

    /// The time that the source has come to; before its first packet, the time of day.
    pub fn time(&self) -> i64 {
        if self.latest == Observation::NO_TIME { self.now.wall_ns } else { self.latest }
    }

    /// The first time of all, as far as there is one.
    pub fn begun(&self) -> Option<i64> {
        self.begun
    }

    /// The time that a live source must have come to by now, if it is known; of a file, its latest stamp.
    pub fn ended(&self) -> Option<i64> {
        let known = self.latest != Observation::NO_TIME;
        known.then(|| if self.live { self.pace.time(self.now.steady).unwrap_or(self.latest) } else { self.latest })
    }

    /// Takes a delivery over: `act` is told what to do with its packets, and may be told to wait with the last ones.
    ///
    /// **Cost**: constant, unless a stamp jumps, packets are late, or many windows begin: then the stamps are looked at one by
    /// one.
    pub fn take<E>(
        &mut self,
        delivery: Arc<Delivery<Stages>>,
        handed_ns: u64,
        act: &mut dyn FnMut(Act) -> Result<(), E>,
    ) -> Result<(), E> {
        self.handed_ns = handed_ns;
        self.quiet_since = None;
        let before = self.latest;
        if self.flows(delivery.part.times) {
            if let Some(times) = delivery.part.times {
                self.note_begun(times.first, act)?;
            }
            let range = 0..delivery.part.records.len();
            let piece = Piece { delivery, range, latest: before, jumped: Vec::new(), live: self.live, handed_ns };
            act(Act::Measure(piece))?;
            self.go_on(act)?;
        } else {
            self.look(delivery, act)?;
        }
        if self.live && self.latest != before {
            self.pace.deliver(self.latest);
        }
        Ok(())
    }

    /// The source ends: packets that were held go on.
    pub fn end<E>(&mut self, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        let mut decided = std::mem::take(&mut self.decided);
        self.judge.end(&mut decided);
        decided.drain(..).try_for_each(|decision| self.heed(decision, act))?;
        self.decided = decided;
        self.flush(act)
    }

    /// What comes is counted by other keys. Packets of a file that were held go on before.
    pub fn replace<E>(&mut self, change: Arc<KeyChange>, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        if !self.live {
            self.end(act)?;
        }
        self.flush(act)?;
        self.reopened.clear();
        act(Act::Replace(change))
    }

    /// Bytes of deliveries whose packets went on before these were let go of here.
    pub fn freed(&mut self) -> std::vec::Drain<'_, Chunk> {
        self.freed.drain(..)
    }

    /// A live source has nothing: after a turn without anything time goes on all the same. Says until which steady time to wait.
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

    /// A live source had delivered nothing more at the steady time `asked`.
    fn pass<E>(&mut self, asked: Duration, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        /// What may still be on its way: the kernel hands a block over at the second turn of a timer of 50 ms, and a machine may be
        /// busy. A window that waits for late packets has that time anyway.
        const ON_ITS_WAY: Duration = Duration::from_millis(150);
        const LEAST: Duration = Duration::from_millis(50);
        let waits = Duration::from_nanos(self.windowing.late_ns.unsigned_abs());
        let slack = ON_ITS_WAY.saturating_sub(waits).max(LEAST);
        let Some(now) = asked.checked_sub(slack).and_then(|asked| self.pace.time(asked)) else { return Ok(()) };
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

    /// Whether the packets of a delivery can go on as they are: no stamp jumps, no packet of a file is late, and only a few
    /// windows begin. Then time goes on.
    fn flows(&mut self, times: Option<Times>) -> bool {
        if self.windowing.window_ns.is_none() {
            return true;
        }
        let Some(Times { earliest, latest, behind, .. }) = times else { return self.judge.is_clear() };
        let known = self.latest != Observation::NO_TIME;
        let behind = if known { behind.max(self.latest.saturating_sub(earliest)) } else { behind };
        let end = self.latest.max(latest);
        let first_open = if known { self.open } else { self.windowing.first_open(earliest) };
        let flows = (self.live || behind <= self.windowing.late_ns)
            && self.windowing.first_open(end).saturating_sub(first_open) <= MANY
            && self.judge.take_all(earliest, latest);
        if flows {
            self.latest = end;
        }
        flows
    }

    /// Looks at the stamps of a delivery one by one.
    fn look<E>(&mut self, delivery: Arc<Delivery<Stages>>, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        let (mut stamps, mut decided) = (std::mem::take(&mut self.stamps), std::mem::take(&mut self.decided));
        stamps.clear();
        let bytes = delivery.view.content();
        delivery.current.layout.records(bytes, &delivery.part.records, |_, record| {
            stamps.push(record.and_then(|record| record.time_ns).unwrap_or(Observation::NO_TIME));
        });
        for (i, &stamp) in stamps.iter().enumerate() {
            if self.judge.take(stamp) {
                self.packet(&delivery, i, stamp, false, act)?;
                continue;
            }
            self.judge.judge((Arc::clone(&delivery), i), stamp, &mut decided);
            decided.drain(..).try_for_each(|decision| self.heed(decision, act))?;
        }
        (self.stamps, self.decided) = (stamps, decided);
        self.flush(act)?;
        self.release(delivery);
        Ok(())
    }

    fn heed<E>(&mut self, decision: Decision<Place>, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
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

    /// A packet goes on.
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

    /// A packet of window `number` of a file is next. If that window was closed, it opens once more, as one of a few.
    fn reopen<E>(&mut self, number: i64, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        if number < self.open && !self.reopened.contains(&number) {
            if self.reopened.len() == REOPENED {
                self.close(self.open, act)?;
            }
            self.reopened.push(number);
        }
        Ok(())
    }

    fn note_begun<E>(&mut self, stamp: i64, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        if self.begun.is_some() {
            return Ok(());
        }
        self.begun = Some(stamp);
        act(Act::Begun(stamp))
    }

    /// Time begins anew.
    fn begin<E>(&mut self, time: i64, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        if time < self.latest {
            self.close(i64::MAX, act)?;
            self.open = self.windowing.first_open(time);
        }
        self.flush(act)?;
        self.latest = time;
        self.go_on(act)
    }

    /// Time has gone on, and with it windows are complete.
    fn go_on<E>(&mut self, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        let open = self.windowing.first_open(self.latest);
        if self.latest == Observation::NO_TIME || open <= self.open {
            return Ok(());
        }
        self.open = open;
        self.close(open, act)
    }

    fn close<E>(&mut self, before: i64, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        self.flush(act)?;
        self.reopened.clear();
        act(Act::Close(before))
    }

    /// The piece that grew goes on.
    fn flush<E>(&mut self, act: &mut dyn FnMut(Act) -> Result<(), E>) -> Result<(), E> {
        self.piece.take().map_or(Ok(()), |piece| act(Act::Measure(piece)))
    }

    /// Lets go of a delivery. Whoever is last gives its bytes back.
    fn release(&mut self, delivery: Arc<Delivery<Stages>>) {
        self.freed.extend(Arc::into_inner(delivery).map(|delivery| delivery.view));
    }
}

/// What the clocks of several live sources know of one another.
#[derive(Debug)]
pub(super) struct Paces {
    /// Packet time less steady time, ns, of the source that delivered last.
    offset: AtomicI64,
    /// How often time began anew in any of them.
    steps: AtomicU64,
}

impl Default for Paces {
    fn default() -> Self {
        Self { offset: AtomicI64::new(UNKNOWN), steps: AtomicU64::new(0) }
    }
}

/// How packet time goes on while no packet comes: as the system's steady clock does from the last delivery on. The clock that
/// stamps packets may be another one, of a network card.
#[derive(Debug)]
struct Pace {
    all: Arc<Paces>,
    /// Packet time less steady time, ns, at the last delivery.
    offset: Option<i64>,
    /// Steps of any source that are known here.
    steps: u64,
    /// The time up to which packets were delivered since the last tick, and whether it began anew in them.
    delivered: Option<i64>,
    began: bool,
}

impl Pace {
    fn new(all: Arc<Paces>) -> Self {
        Self { all, offset: None, steps: 0, delivered: None, began: false }
    }

    /// Packets of up to `latest` were delivered since the last tick.
    fn deliver(&mut self, latest: i64) {
        self.delivered = Some(latest);
    }

    /// Time began anew since the last tick.
    fn step(&mut self) {
        self.began = true;
    }

    /// It is `now`, and delivered packets are older. An earlier time here would make the offset too large: packet time would then run
    /// ahead of packets that are on their way.
    fn tick(&mut self, now: Duration) {
        if let Some(latest) = self.delivered.take() {
            let offset = latest.saturating_sub(ns(now));
            self.offset = Some(offset);
            self.all.offset.store(offset, Ordering::Relaxed);
        }
        // Whoever sees the step sees the offset behind it.
        if std::mem::take(&mut self.began) {
            self.steps = self.all.steps.fetch_add(1, Ordering::Release) + 1;
        }
    }

    /// Whether time began anew in another source; from now on that is known.
    fn stepped(&mut self) -> bool {
        let steps = self.all.steps.load(Ordering::Acquire);
        let stepped = std::mem::replace(&mut self.steps, steps) != steps;
        if stepped {
            self.offset = None;
        }
        stepped
    }

    /// Packet time at that steady time, if anything was ever delivered.
    fn time(&self, at: Duration) -> Option<i64> {
        let elsewhere = || Some(self.all.offset.load(Ordering::Relaxed)).filter(|&offset| offset != UNKNOWN);
        let known = if self.all.steps.load(Ordering::Acquire) == self.steps { self.offset } else { None };
        known.or_else(elsewhere).map(|offset| offset.saturating_add(ns(at)))
    }
}

fn ns(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

/// What a live source rejected or dropped before it delivered, as far as that is booked.
///
/// It does not say when it happened: what is new belongs to the window that the source has come to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Booked {
    dropped: u64,
    filtered: u64,
}

/// Packets that never reached us.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Before {
    pub dropped: u64,
    pub filtered: u64,
}

impl Booked {
    /// What is not booked yet; from now on it is.
    pub fn book(&mut self, counts: Option<Counts>) -> Option<Before> {
        let counts = counts?;
        let filtered = counts.filtered.unwrap_or(0);
        let new = Before { dropped: counts.dropped - self.dropped, filtered: filtered - self.filtered };
        *self = Self { dropped: counts.dropped, filtered };
        (new != Before::default()).then_some(new)
    }
}
