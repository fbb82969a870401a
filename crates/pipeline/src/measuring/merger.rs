//! Puts together what the members of a worker pool know of each window.

use super::clock::Before;
use super::keys::KeyChange;
use super::room::Room;
use super::worker::Closed;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use weir_measure::{Arrivals, Config, Error, Slot, Spares, State, Window, Windowing};

/// Windows of which is remembered how many results were given out.
const REMEMBERED: usize = 1 << 16;

/// A place in packet time: a generation, a turn, and the number of a window.
///
/// Each change of keys begins a generation, whose windows are given out once every member has begun it.
/// Worker pools close windows at the same places of the source, and each call is a turn. A live source has a clock of its own, and its
/// turn ends when that begins anew.
type Place = (u64, u64, i64);

/// What is known of a window so far.
#[derive(Default)]
struct Part {
    arrivals: Arrivals,
    state: Option<State>,
    /// The change of keys that ended it early.
    change: Option<u64>,
}

/// A window is complete once every member is past it.
pub(super) struct Merger {
    config: Arc<Config>,
    spares: Arc<Spares>,
    /// All members close windows at the same places.
    in_step: bool,
    /// For each member, the first window of which it may still learn.
    reached: Vec<Place>,
    windows: BTreeMap<Place, Part>,
    /// The generation whose windows are given out, and the changes that begin those behind it.
    generation: u64,
    next: VecDeque<Arc<KeyChange>>,
    /// The generation that a worker pool was told to begin.
    begun: u64,
    /// What arrived, and packets that were counted, in the generations before.
    earlier: (Arrivals, u64),
    /// What never reached us, by the window that the source had come to.
    lost: BTreeMap<i64, Arrivals>,
    /// Packets before the first time stamp: they belong to the window that comes next.
    untimed: Option<(Arrivals, Option<State>)>,
    /// Results of windows given out.
    given: Given,
    /// The window given out last, for what changed since: its number and what is known of it.
    last: Option<(i64, Option<State>)>,
    total: (Arrivals, Option<State>),
    further: Further,
    /// Of live sources: where closed windows are counted.
    room: Option<Arc<Room>>,
    /// Windows that are left out, from and to (inclusive).
    left_out: Vec<(Place, Place)>,
    /// Those before the next window that is given out, and all of them.
    omitted: (u64, u64),
    /// The time that the sources cover: as far as it is known.
    pub covered: (Option<i64>, Option<i64>),
}

/// Further results of windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Further {
    /// Their number.
    pub results: u64,
    /// Packets that arrived in them.
    pub packets: u64,
}

/// All windows as one.
pub(super) struct Total {
    pub arrivals: Arrivals,
    /// What was counted since the last change of keys.
    pub state: Option<State>,
    /// Packets that were counted before it.
    pub counted_before: u64,
    /// What was given out as further results.
    pub further: Further,
    /// Windows that were left out.
    pub left_out: u64,
}

/// How many results of each window were given out.
#[derive(Debug, Default)]
struct Given {
    results: BTreeMap<i64, u32>,
    /// Of windows before this number it is not known, if they are not listed.
    forgotten: Option<i64>,
}

impl Given {
    /// One more result of window `number`. Gives the number of results before it.
    fn one_more(&mut self, number: i64) -> u32 {
        let first = u32::from(self.forgotten.is_some_and(|before| number < before));
        let results = self.results.entry(number).or_insert(first);
        let before = *results;
        *results = results.saturating_add(1);
        if self.results.len() > REMEMBERED
            && let Some((oldest, _)) = self.results.pop_first()
        {
            self.forgotten = self.forgotten.max(Some(oldest.saturating_add(1)));
        }
        before
    }
}

impl Merger {
    /// A merger for a worker pool, whose members close windows in step.
    pub fn new(members: usize, config: Arc<Config>, spares: Arc<Spares>) -> Self {
        Self {
            config,
            spares,
            in_step: true,
            reached: vec![(0, 0, i64::MIN); members],
            windows: BTreeMap::new(),
            generation: 0,
            next: VecDeque::new(),
            begun: 0,
            earlier: Default::default(),
            lost: BTreeMap::new(),
            untimed: None,
            given: Given::default(),
            last: None,
            total: Default::default(),
            further: Further::default(),
            room: None,
            left_out: Vec::new(),
            omitted: (0, 0),
            covered: (None, None),
        }
    }

    /// A merger for live sources, each of which has a clock of its own.
    pub fn live(members: usize, config: Arc<Config>, spares: Arc<Spares>, room: Arc<Room>) -> Self {
        Self { in_step: false, room: Some(room), ..Self::new(members, config, spares) }
    }

    /// Member `member` knows this; `each` gets the windows that are complete now, in order.
    pub fn take(&mut self, member: usize, closed: Closed, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Error> {
        let (generation, turn, _) = self.reached[member];
        let change = closed.replaces.as_ref().map(|change| change.number());
        // The first that begins this generation tells of it.
        if let Some(change) = &closed.replaces
            && generation == self.generation + self.next.len() as u64
        {
            self.next.push_back(Arc::clone(change));
        }
        let place = |number| (generation, turn, number);
        self.covered.1 = self.covered.1.max(closed.ended);
        let windows = closed.windows();
        if let Some((from, to)) = closed.left_out {
            self.leave_out(place(from), place(to));
        }
        if closed.left_out.is_some() && generation == self.generation {
            closed.arrivals.into_iter().try_for_each(|(_, arrivals)| self.add(arrivals, None))?;
            closed.states.into_iter().try_for_each(|(_, state)| self.omit(Arrivals::default(), Some(state)))?;
            self.give_back(windows);
        } else {
            let known = self.windows.len();
            // What is left out of a generation that is not summed up yet waits together.
            let place = |number| place(closed.left_out.map_or(number, |(_, last)| last));
            for (number, arrivals) in closed.arrivals {
                let part = self.windows.entry(place(number)).or_default();
                part.arrivals += arrivals;
                part.change = part.change.or(change);
            }
            let spares = match generation.checked_sub(self.generation + 1) {
                Some(ahead) => self.next[ahead as usize].spares(),
                None => &self.spares,
            };
            for (number, state) in closed.states {
                merge(&mut self.windows.entry(place(number)).or_default().state, state, spares)?;
            }
            // What was put to what was there needs no room of its own.
            self.give_back(windows.saturating_sub(self.windows.len() - known));
        }
        let ends = self.in_step || closed.before == i64::MAX;
        self.reached[member] = match change {
            // The clocks of live sources go on.
            Some(_) => (generation + 1, turn + u64::from(self.in_step), i64::MIN),
            None if ends => (generation, turn + 1, i64::MIN),
            None => (generation, turn, closed.before),
        };
        self.complete(each)
    }

    /// Member `member` is at its end: the windows of the others do not wait for it.
    pub fn end(&mut self, member: usize, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Error> {
        self.reached[member] = (u64::MAX, u64::MAX, i64::MAX);
        self.complete(each)
    }

    /// These packets never reached us, and by then the source had come to window `number`, which is open.
    pub fn lose(&mut self, number: i64, before: Before) {
        *self.lost.entry(number).or_default() += before.into();
    }

    /// Windows before number `before` are closed in turn `turn` of a worker pool.
    pub fn turn(&mut self, turn: u64, before: i64) {
        while let Some(entry) = self.lost.first_entry().filter(|entry| *entry.key() < before) {
            let (number, arrivals) = entry.remove_entry();
            self.windows.entry((self.begun, turn, number)).or_default().arrivals += arrivals;
        }
    }

    /// A worker pool was told to begin a generation, behind the turn that was told last.
    pub fn begin(&mut self) {
        self.begun += 1;
    }

    /// Turns that every member has ended.
    pub fn turns(&self) -> u64 {
        self.first_open().1
    }

    fn first_open(&self) -> Place {
        self.reached.iter().copied().min().unwrap_or((u64::MAX, u64::MAX, i64::MAX))
    }

    /// Gives out what every member is past.
    fn complete(&mut self, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Error> {
        let ready = self.first_open();
        while let Some(entry) = self.windows.first_entry().filter(|entry| *entry.key() < ready) {
            let (place, part) = entry.remove_entry();
            self.go_on(place.0, each)?;
            if self.left_out.iter().any(|(from, to)| (from..=to).contains(&&place)) {
                self.omit(part.arrivals, part.state)?;
            } else {
                self.count_omitted(place);
                self.one(place.2, part, each)?;
            }
            self.give_back(1);
        }
        self.go_on(ready.0, each)?;
        self.count_omitted(ready);
        Ok(())
    }

    /// All windows of the generations before this one are given out: their sums are too, and other keys are counted by.
    fn go_on(&mut self, generation: u64, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Error> {
        while self.generation < generation
            && let Some(change) = self.next.pop_front()
        {
            if let Some((arrivals, state)) = self.untimed.take() {
                self.add(arrivals, state.as_ref())?;
            }
            let (arrivals, state) = std::mem::take(&mut self.total);
            let (state, number) = (state.as_ref(), Some(change.number()));
            let sum = Window {
                span: None,
                covered: None,
                revision: 0,
                left_out: 0,
                arrivals,
                state,
                change: number,
                before: None,
            };
            each(sum);
            self.earlier.0 += arrivals;
            self.earlier.1 += state.map_or(0, |state| state.tally().passed);
            (self.config, self.spares) = (Arc::clone(change.config()), Arc::clone(change.spares()));
            self.last = None;
            self.generation += 1;
            change.done();
        }
        Ok(())
    }

    fn give_back(&self, parts: usize) {
        if let Some(room) = &self.room {
            room.give_back(parts);
        }
    }

    /// The windows from `from` to `to` are left out.
    fn leave_out(&mut self, from: Place, to: Place) {
        if from > to {
            return;
        }
        let (mut from, mut to) = (from, to);
        self.left_out.retain(|&(first, last)| {
            let apart = last < from || first > to;
            if !apart {
                (from, to) = (from.min(first), to.max(last));
            }
            apart
        });
        self.left_out.push((from, to));
    }

    /// Counts the windows left out that are before this place: nothing more will come of them.
    fn count_omitted(&mut self, before: Place) {
        let omitted = &mut self.omitted;
        self.left_out.retain(|&((.., first), (generation, turn, last))| {
            let past = (generation, turn, last) < before;
            if past {
                let windows = last.abs_diff(first).saturating_add(1);
                *omitted = (omitted.0.saturating_add(windows), omitted.1.saturating_add(windows));
            }
            !past
        });
    }

    /// Adds a window that is left out to the sum of all.
    fn omit(&mut self, arrivals: Arrivals, state: Option<State>) -> Result<(), Error> {
        let mut state = state;
        if let Some(state) = &mut state {
            state.settle(&self.config)?;
        }
        self.add(arrivals, state.as_ref())?;
        if let Some(old) = state {
            self.spares.keep(old);
        }
        Ok(())
    }

    fn one(&mut self, number: i64, part: Part, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Error> {
        let Part { mut arrivals, mut state, change } = part;
        if let Some(state) = &mut state {
            state.settle(&self.config)?;
        }
        if self.config.windowing.window_ns.is_none() {
            self.total = (arrivals, state);
            return Ok(());
        }
        if let Some((earlier, others)) = self.untimed.take() {
            arrivals += earlier;
            if let Some(others) = others {
                merge(&mut state, others, &self.spares)?;
            }
        }
        if number == Windowing::UNTIMED {
            self.untimed = Some((arrivals, state));
            return Ok(());
        }
        let revision = self.given.one_more(number);
        let span = self.config.windowing.span(number);
        // A window in which nothing arrived was not given out; it held no packet.
        let before = self.last.as_ref().filter(|(last, _)| *last < number && revision == 0);
        let before = before.map(|(last, state)| state.as_ref().filter(|_| *last + 1 == number));
        let covered = Some(self.covered_part(span));
        let left_out = std::mem::take(&mut self.omitted.0);
        let span = Some(span);
        each(Window { span, covered, revision, left_out, arrivals, state: state.as_ref(), change, before });
        self.add(arrivals, state.as_ref())?;
        let old = if revision > 0 {
            self.further.results += 1;
            self.further.packets += arrivals.received;
            state
        } else {
            self.last.replace((number, state)).and_then(|(_, old)| old)
        };
        if let Some(old) = old {
            self.spares.keep(old);
        }
        Ok(())
    }

    /// What of a window lies between the beginning and the end of the sources.
    fn covered_part(&self, (from, to): (i64, i64)) -> (i64, i64) {
        let begun = self.covered.0.filter(|begun| (from..to).contains(begun));
        let ended = self.covered.1.filter(|ended| (from..to).contains(ended));
        let from = begun.unwrap_or(from);
        (from, ended.unwrap_or(to).max(from))
    }

    /// Adds to what is known of all windows.
    fn add(&mut self, arrivals: Arrivals, state: Option<&State>) -> Result<(), Error> {
        self.total.0 += arrivals;
        let Some(state) = state else { return Ok(()) };
        if let Some(total) = &mut self.total.1 {
            return total.merge(state);
        }
        let mut total = State::new(&self.config, Slot::NONE)?;
        total.settle(&self.config)?;
        total.merge(state)?;
        self.total.1 = Some(total);
        Ok(())
    }

    /// What is left: see [`Total`].
    pub fn finish(mut self) -> Result<Total, Error> {
        if let Some((arrivals, state)) = self.untimed.take() {
            self.add(arrivals, state.as_ref())?;
        }
        let (mut arrivals, state) = self.total;
        let (earlier, counted_before) = self.earlier;
        arrivals += earlier;
        Ok(Total { arrivals, state, counted_before, further: self.further, left_out: self.omitted.1 })
    }
}

fn merge(into: &mut Option<State>, state: State, spares: &Spares) -> Result<(), Error> {
    match into {
        Some(known) => {
            known.merge(&state)?;
            spares.keep(state);
            Ok(())
        }
        none => {
            *none = Some(state);
            Ok(())
        }
    }
}
