//! Puts together what the members of a worker pool know of each window.

use super::clock::Before;
use super::room::Room;
use super::worker::Closed;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_measure::{Arrivals, Config, Error, Slot, Spares, State, Window, Windowing};

/// Windows of which is remembered how many results were given out.
const REMEMBERED: usize = 1 << 16;

/// A place in packet time: a turn, and the number of a window.
///
/// Worker pools close windows at the same places of the source, and each call is a turn. A live source has a clock of its own, and its
/// turn ends when that begins anew.
type Place = (u64, i64);

/// A window is complete once every member is past it.
pub(super) struct Merger {
    config: Arc<Config>,
    spares: Arc<Spares>,
    /// All members close windows at the same places.
    in_step: bool,
    /// For each member, the first window of which it may still learn.
    reached: Vec<Place>,
    windows: BTreeMap<Place, (Arrivals, Option<State>)>,
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
            reached: vec![(0, i64::MIN); members],
            windows: BTreeMap::new(),
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
        let turn = self.reached[member].0;
        self.covered.1 = self.covered.1.max(closed.ended);
        let windows = closed.windows();
        if let Some((from, to)) = closed.left_out {
            self.leave_out((turn, from), (turn, to));
            closed.arrivals.into_iter().try_for_each(|(_, arrivals)| self.add(arrivals, None))?;
            closed.states.into_iter().try_for_each(|(_, state)| self.omit(Arrivals::default(), Some(state)))?;
            self.give_back(windows);
        } else {
            let known = self.windows.len();
            for (number, arrivals) in closed.arrivals {
                self.windows.entry((turn, number)).or_default().0 += arrivals;
            }
            for (number, state) in closed.states {
                merge(&mut self.windows.entry((turn, number)).or_default().1, state, &self.spares)?;
            }
            // What was put to what was there needs no room of its own.
            self.give_back(windows.saturating_sub(self.windows.len() - known));
        }
        let ends = self.in_step || closed.before == i64::MAX;
        self.reached[member] = if ends { (turn + 1, i64::MIN) } else { (turn, closed.before) };
        self.complete(each)
    }

    /// Member `member` is at its end: the windows of the others do not wait for it.
    pub fn end(&mut self, member: usize, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Error> {
        self.reached[member] = (u64::MAX, i64::MAX);
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
            self.windows.entry((turn, number)).or_default().0 += arrivals;
        }
    }

    /// Turns that every member has ended.
    pub fn turns(&self) -> u64 {
        self.first_open().0
    }

    fn first_open(&self) -> Place {
        self.reached.iter().copied().min().unwrap_or((u64::MAX, i64::MAX))
    }

    /// Gives out what every member is past.
    fn complete(&mut self, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Error> {
        let ready = self.first_open();
        while let Some(entry) = self.windows.first_entry().filter(|entry| *entry.key() < ready) {
            let (place, (arrivals, state)) = entry.remove_entry();
            if self.left_out.iter().any(|(from, to)| (from..=to).contains(&&place)) {
                self.omit(arrivals, state)?;
            } else {
                self.count_omitted(place);
                self.one(place.1, arrivals, state, each)?;
            }
            self.give_back(1);
        }
        self.count_omitted(ready);
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
        self.left_out.retain(|&((_, first), (turn, last))| {
            let past = (turn, last) < before;
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

    fn one(
        &mut self,
        number: i64,
        arrivals: Arrivals,
        state: Option<State>,
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<(), Error> {
        let (mut arrivals, mut state) = (arrivals, state);
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
        each(Window { span: Some(span), covered, revision, left_out, arrivals, state: state.as_ref(), before });
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

    /// All windows as one, what of it was given out as further results, and how many windows were left out.
    pub fn finish(mut self) -> Result<(Arrivals, Option<State>, Further, u64), Error> {
        if let Some((arrivals, state)) = self.untimed.take() {
            self.add(arrivals, state.as_ref())?;
        }
        Ok((self.total.0, self.total.1, self.further, self.omitted.1))
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
