//! Merger of the parts of each window from all members of a worker pool.

use super::clock::Before;
use super::keys::KeyChange;
use super::room::Room;
use super::worker::Closed;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use weir_measure::health;
use weir_measure::names::Names;
use weir_measure::{Arrivals, Config, Error, Slot, Spares, State, Window, Windowing};

/// Number of windows whose count of results is remembered.
const REMEMBERED: usize = 1 << 16;

/// A place in packet time: a generation, a turn, and the number of a window.
///
/// Each change of keys begins a generation, whose windows are delivered once every member has begun
/// it. The members of a worker pool close windows at the same places of the source, and each close
/// is a turn. A live source has a clock of its own, and its turn ends when its time begins again.
type Position = (u64, u64, i64);

/// Contents of a window so far.
#[derive(Default)]
struct Part {
    arrivals: Arrivals,
    state: Option<State>,
    /// Number of the change of keys that ended the window early, if one did.
    change: Option<u64>,
}

/// Merges the members' parts of windows. A window is complete once every member is past it.
pub(super) struct Merger {
    config: Arc<Config>,
    spares: Arc<Spares>,
    /// Whether all members close windows at the same places.
    in_step: bool,
    /// For each member, the first window that may still change.
    reached: Vec<Position>,
    windows: BTreeMap<Position, Part>,
    /// Health of windows that were not given out.
    health: BTreeMap<Position, health::Report>,
    /// Names of the windows given out, and names of later windows, if the settings ask for names.
    names: Option<Names>,
    later_names: BTreeMap<Position, Names>,
    /// Generation whose windows are delivered. `next` has the changes that begin later generations.
    generation: u64,
    next: VecDeque<Arc<KeyChange>>,
    /// Latest generation begun in the worker pool.
    begun: u64,
    /// Arrivals and number of counted packets of the earlier generations.
    earlier: (Arrivals, u64),
    /// Packets lost before the reader, by the current window of the source at that time.
    lost: BTreeMap<i64, Arrivals>,
    /// Packets before the first timestamp, which belong to the next window.
    untimed: Option<(Arrivals, Option<State>)>,
    /// Number of results given out, by window.
    given: Results,
    /// Windows that a change of keys ended while they were open, and its generation. Their next results are not late.
    cut: BTreeMap<i64, u64>,
    /// For members in step: the first open window after each turn, until every member has ended the turn.
    closes: BTreeMap<u64, i64>,
    /// The latest of these first open windows.
    open: i64,
    /// Turn of the window given out last.
    turn: u64,
    /// The window given out last, for the changes since.
    last: Option<Last>,
    total: (Arrivals, Option<State>),
    further: Further,
    /// Count of closed windows, for live sources.
    room: Option<Arc<Room>>,
    /// Ranges of windows left out, first and last.
    left_out: Vec<(Position, Position)>,
    /// Number of windows left out since the last window given out, and in all.
    omitted: (u64, u64),
    /// Begin and end of the time that the sources cover, ns, as far as known.
    pub covered: (Option<i64>, Option<i64>),
    /// Begin of a capture, ns; `None`: the source is none.
    pub captured_from: Option<i64>,
    /// Number of the first window of a live source that the caller has not got. `None` while time begins again.
    next_number: Option<i64>,
    /// Whether the caller gets windows without packets as well.
    fills: bool,
}

/// Most windows without packets in a row that the caller gets. A longer gap means that somebody set a clock.
const MOST_EMPTY: i64 = 4096;

/// Further results of windows that were complete. The rest of a window that a change of keys cuts is not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Further {
    /// Number of further results.
    pub results: u64,
    /// Packets that arrived in these results.
    pub packets: u64,
}

/// The window with which the next window is compared.
struct Last {
    number: i64,
    state: Option<State>,
    /// Time at its begin that the sources do not cover, ns.
    head_ns: i64,
    /// Mean distance of its packets, ns.
    gap_ns: i64,
}

/// Sum of all windows.
pub(super) struct Total {
    pub arrivals: Arrivals,
    /// Begin and end of a capture whose keys were not changed, ns.
    pub covered: Option<(i64, i64)>,
    /// Counters since the last change of keys.
    pub state: Option<State>,
    /// Number of packets counted before that change.
    pub counted_before: u64,
    /// Further results given out.
    pub further: Further,
    /// Number of windows left out.
    pub left_out: u64,
    /// Names of addresses, if the settings ask for them.
    pub names: Option<Names>,
}

/// Number of results given out for each window.
#[derive(Debug, Default)]
struct Results {
    results: BTreeMap<i64, u32>,
    /// Windows before this number were forgotten, unless they are listed.
    forgotten: Option<i64>,
}

impl Results {
    /// Counts one more result of window `number`. Returns the number of results before it.
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
    /// Makes a merger for a worker pool, whose members close windows in step.
    pub fn new(members: usize, config: Arc<Config>, spares: Arc<Spares>) -> Self {
        Self {
            names: config.names.map(Names::new),
            later_names: BTreeMap::new(),
            config,
            spares,
            in_step: true,
            reached: vec![(0, 0, i64::MIN); members],
            windows: BTreeMap::new(),
            health: BTreeMap::new(),
            generation: 0,
            next: VecDeque::new(),
            begun: 0,
            earlier: Default::default(),
            lost: BTreeMap::new(),
            untimed: None,
            given: Results::default(),
            cut: BTreeMap::new(),
            closes: BTreeMap::new(),
            open: i64::MIN,
            turn: 0,
            last: None,
            total: Default::default(),
            further: Further::default(),
            room: None,
            left_out: Vec::new(),
            omitted: (0, 0),
            covered: (None, None),
            captured_from: None,
            next_number: None,
            fills: false,
        }
    }

    /// Gives out windows without packets as well, from `begun` on, the time of day at the start of a capture, ns.
    pub fn fill(&mut self, begun: i64) {
        if self.config.windowing.window_ns.is_some() {
            self.fills = true;
            self.next_number = Some(self.config.windowing.number(begun));
        }
    }

    /// Gives out the windows without packets before number `before`, which is complete.
    fn fill_to(
        &mut self,
        (generation, turn): (u64, u64),
        before: i64,
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<(), Error> {
        let Some(from) = self.next_number.filter(|_| self.fills) else {
            return Ok(());
        };
        if matches!(before, i64::MIN | i64::MAX) || before <= from {
            return Ok(());
        }
        self.next_number = Some(before);
        if before.saturating_sub(from) > MOST_EMPTY {
            return Ok(());
        }
        (from..before).try_for_each(|number| {
            let place = (generation, turn, number);
            // Windows that were left out are counted as such.
            let is_left_out =
                |(first, last): &(Position, Position)| (first..=last).contains(&&place);
            match self.left_out.iter().any(is_left_out) {
                true => Ok(()),
                false => self.one(place, Part::default(), each),
            }
        })
    }

    /// Makes a merger for live sources, each with a clock of its own.
    pub fn live(members: usize, config: Arc<Config>, spares: Arc<Spares>, room: Arc<Room>) -> Self {
        Self {
            in_step: false,
            room: Some(room),
            ..Self::new(members, config, spares)
        }
    }

    /// Takes the part of member `member`. `each` is called with the windows that are complete now, in order.
    pub fn take(
        &mut self,
        member: usize,
        mut closed: Closed,
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<(), Error> {
        let (generation, turn, _) = self.reached[member];
        let change = closed.replaces.as_ref().map(|change| change.number());
        // The first member that begins this generation brings its change.
        if let Some(change) = &closed.replaces
            && generation == self.generation + self.next.len() as u64
        {
            self.next.push_back(Arc::clone(change));
        }
        let place = |number| (generation, turn, number);
        for (number, report) in std::mem::take(&mut closed.health) {
            self.note_health(place(number), report);
        }
        self.covered.1 = self.covered.1.max(closed.ended);
        let windows = closed.windows();
        if let Some((from, to)) = closed.left_out {
            self.leave_out(place(from), place(to));
        }
        if closed.left_out.is_some() && generation == self.generation {
            closed
                .arrivals
                .into_iter()
                .try_for_each(|(_, arrivals)| self.add(arrivals, None))?;
            closed
                .states
                .into_iter()
                .try_for_each(|(_, state)| self.omit(Arrivals::default(), Some(state)))?;
            self.give_back(windows);
        } else {
            let known = self.windows.len();
            // Left-out windows of a later generation wait as one, until that generation is summed up.
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
                merge(
                    &mut self.windows.entry(place(number)).or_default().state,
                    state,
                    spares,
                )?;
            }
            // A part merged into an existing window needs no room of its own.
            self.give_back(windows.saturating_sub(self.windows.len() - known));
        }
        let ends = self.in_step || closed.before == i64::MAX;
        self.reached[member] = match change {
            // The turn of a live source continues, because its clock goes on.
            Some(_) => (generation + 1, turn + u64::from(self.in_step), i64::MIN),
            None if ends => (generation, turn + 1, i64::MIN),
            None => (generation, turn, closed.before),
        };
        self.complete(each)
    }

    /// Notes the end of member `member`: the windows of the other members do not wait for it.
    pub fn end(&mut self, member: usize, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Error> {
        self.reached[member] = (u64::MAX, u64::MAX, i64::MAX);
        self.complete(each)
    }

    /// Adds packets lost before the reader to the open window `number`, the current window of the source.
    pub fn lose(&mut self, number: i64, before: Before) {
        *self.lost.entry(number).or_default() += before.into();
    }

    /// Adds the health of windows that turn `turn` of a worker pool closes.
    pub fn add_health(&mut self, turn: u64, reports: BTreeMap<i64, health::Report>) {
        for (number, report) in reports {
            self.note_health((self.begun, turn, number), report);
        }
    }

    fn note_health(&mut self, place: Position, mut report: health::Report) {
        if let Some(names) = report.names.take() {
            match self.later_names.get_mut(&place) {
                Some(known) => known.merge(&names),
                None => drop(self.later_names.insert(place, names)),
            }
        }
        if !report.has_parts() {
            return;
        }
        match self.health.get_mut(&place) {
            Some(known) => known.merge(report),
            None => drop(self.health.insert(place, report)),
        }
    }

    /// Takes the names of the windows that `is_over` tells.
    fn learn(&mut self, is_over: impl Fn(&Position) -> bool) {
        while let Some(entry) = self
            .later_names
            .first_entry()
            .filter(|it| is_over(it.key()))
        {
            let names = entry.remove();
            if let Some(all) = &mut self.names {
                all.merge(&names);
            }
        }
    }

    /// Notes that the windows before number `before` are closed in turn `turn` of a worker pool.
    pub fn turn(&mut self, turn: u64, before: i64) {
        self.place_lost(turn, before);
        self.closes.insert(turn, before);
    }

    /// Notes that the worker pool begins a generation, and that all windows are closed in turn `turn`.
    pub fn begin(&mut self, turn: u64) {
        self.place_lost(turn, i64::MAX);
        self.begun += 1;
    }

    /// Adds the lost packets of the windows before number `before` to the parts of turn `turn`.
    fn place_lost(&mut self, turn: u64, before: i64) {
        while let Some(entry) = self
            .lost
            .first_entry()
            .filter(|entry| *entry.key() < before)
        {
            let (number, arrivals) = entry.remove_entry();
            self.windows
                .entry((self.begun, turn, number))
                .or_default()
                .arrivals += arrivals;
        }
    }

    /// Returns the number of turns that every member has ended.
    pub fn turns(&self) -> u64 {
        self.first_open().1
    }

    fn first_open(&self) -> Position {
        self.reached
            .iter()
            .copied()
            .min()
            .unwrap_or((u64::MAX, u64::MAX, i64::MAX))
    }

    /// Gives out the windows that every member is past.
    fn complete(&mut self, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Error> {
        let ready = self.first_open();
        while let Some(entry) = self
            .windows
            .first_entry()
            .filter(|entry| *entry.key() < ready)
        {
            let (place, part) = entry.remove_entry();
            self.go_on(place.0, each)?;
            self.pass(place.1, each)?;
            self.fill_to((place.0, place.1), place.2, each)?;
            if place.2 != Windowing::UNTIMED {
                self.next_number = self.next_number.max(Some(place.2.saturating_add(1)));
            }
            if self
                .left_out
                .iter()
                .any(|(from, to)| (from..=to).contains(&&place))
            {
                self.omit(part.arrivals, part.state)?;
            } else {
                self.count_omitted(place);
                self.one(place, part, each)?;
            }
            self.give_back(1);
        }
        self.go_on(ready.0, each)?;
        self.pass(ready.1, each)?;
        self.fill_to((ready.0, ready.1), ready.2, each)?;
        self.learn(|place| *place < ready);
        // Windows that were left out are in the total only.
        self.health = self.health.split_off(&ready);
        let (generation, _, before) = ready;
        self.cut
            .retain(|number, cut| *cut >= generation || *number >= before);
        self.count_omitted(ready);
        Ok(())
    }

    /// Takes the turns before `turn` as ended: the next results of windows that they closed are late.
    fn pass(&mut self, turn: u64, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Error> {
        while let Some(entry) = self
            .closes
            .first_entry()
            .filter(|entry| *entry.key() < turn)
        {
            let (turn, before) = entry.remove_entry();
            self.fill_to((self.generation, turn), before, each)?;
            self.cut = self.cut.split_off(&before);
            // Time begins again once all windows are closed.
            self.open = Some(before)
                .filter(|&before| before != i64::MAX)
                .unwrap_or(i64::MIN);
            if before == i64::MAX {
                self.next_number = None;
            }
        }
        // The time of a live source begins again with each turn.
        if !self.in_step && turn > self.turn {
            self.cut.clear();
            self.next_number = None;
        }
        self.turn = turn;
        Ok(())
    }

    /// Completes the generations before `generation`, whose windows are all given out: gives out
    /// their sums, and switches to the keys of the next generation.
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
                health: None,
                names: self.names.as_ref(),
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

    /// Marks the windows from `from` to `to` (inclusive) as left out.
    fn leave_out(&mut self, from: Position, to: Position) {
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

    /// Counts the left-out windows before the place `before`, which are final.
    fn count_omitted(&mut self, before: Position) {
        let omitted = &mut self.omitted;
        self.left_out
            .retain(|&((.., first), (generation, turn, last))| {
                let past = (generation, turn, last) < before;
                if past {
                    let windows = last.abs_diff(first).saturating_add(1);
                    *omitted = (
                        omitted.0.saturating_add(windows),
                        omitted.1.saturating_add(windows),
                    );
                }
                !past
            });
    }

    /// Adds a left-out window to the sum of all windows.
    fn omit(&mut self, arrivals: Arrivals, state: Option<State>) -> Result<(), Error> {
        let mut state = state;
        if let Some(state) = &mut state {
            state.finalize(&self.config)?;
        }
        self.add(arrivals, state.as_ref())?;
        if let Some(old) = state {
            self.spares.keep(old);
        }
        Ok(())
    }

    fn one(
        &mut self,
        place @ (generation, _, number): Position,
        part: Part,
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<(), Error> {
        let Part {
            mut arrivals,
            mut state,
            change,
        } = part;
        if let Some(state) = &mut state {
            state.finalize(&self.config)?;
        }
        self.learn(|other| *other <= place);
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
        let health = self.health.remove(&place);
        let span = self.config.windowing.span(number);
        // An empty window was not given out, and held no packet.
        let covered = self.covered_part(span);
        let gap_ns =
            (covered.1 - covered.0) / i64::try_from(arrivals.received.max(1)).unwrap_or(i64::MAX);
        let before = self
            .last
            .as_ref()
            .filter(|last| last.number < number && revision == 0);
        let before =
            before.filter(|last| self.compares(last, span, covered.1, gap_ns, state.as_ref()));
        let before = before.map(|last| last.state.as_ref().filter(|_| last.number + 1 == number));
        let left_out = std::mem::take(&mut self.omitted.0);
        let (head_ns, span) = (covered.0 - span.0, Some(span));
        let covered = Some(covered);
        each(Window {
            span,
            covered,
            revision,
            left_out,
            arrivals,
            state: state.as_ref(),
            change,
            before,
            health: health.as_ref(),
            names: self.names.as_ref(),
        });
        self.add(arrivals, state.as_ref())?;
        let is_rest = self.cut.contains_key(&number);
        if change.is_some() && number >= self.open {
            self.cut.insert(number, generation);
        }
        if revision > 0 && !is_rest {
            self.further.results += 1;
            self.further.packets += arrivals.received;
        }
        let old = if revision > 0 {
            state
        } else {
            self.last
                .replace(Last {
                    number,
                    state,
                    head_ns,
                    gap_ns,
                })
                .and_then(|last| last.state)
        };
        if let Some(old) = old {
            self.spares.keep(old);
        }
        Ok(())
    }

    /// Whether the differences between two windows are differences of the traffic. If the sources
    /// cover a part of one of them, the rest has no packets, and steady traffic would seem to grow
    /// or to shrink.
    ///
    /// Nothing says whether traffic paused there. So the part counts as the whole if the rest is no longer than two packets are
    /// apart, or than the silence at the same end of the other window.
    fn compares(
        &self,
        last: &Last,
        (from, to): (i64, i64),
        ended: i64,
        gap_ns: i64,
        state: Option<&State>,
    ) -> bool {
        let whole_ns = to - from;
        let times = |state: Option<&State>| state.and_then(|state| state.tally().times());
        let next_head_ns = times(state).map_or(whole_ns, |(first, _)| first.saturating_sub(from));
        let last_tail_ns =
            times(last.state.as_ref()).map_or(whole_ns, |(_, last)| from.saturating_sub(last));
        last.head_ns <= next_head_ns.max(last.gap_ns.saturating_mul(2))
            && to - ended <= last_tail_ns.max(gap_ns.saturating_mul(2))
    }

    /// Returns the part of a window between the beginning and the end of the sources, ns.
    fn covered_part(&self, (from, to): (i64, i64)) -> (i64, i64) {
        let begun = self.covered.0.filter(|begun| (from..to).contains(begun));
        let ended = self.covered.1.filter(|ended| (from..to).contains(ended));
        let from = begun.unwrap_or(from);
        (from, ended.unwrap_or(to).max(from))
    }

    /// Adds to the sum of all windows.
    fn add(&mut self, arrivals: Arrivals, state: Option<&State>) -> Result<(), Error> {
        self.total.0 += arrivals;
        let Some(state) = state else { return Ok(()) };
        if let Some(total) = &mut self.total.1 {
            return total.merge(state);
        }
        let mut total = State::new(&self.config, Slot::NONE)?;
        total.finalize(&self.config)?;
        total.merge(state)?;
        self.total.1 = Some(total);
        Ok(())
    }

    /// Returns the final sums.
    pub fn finish(mut self) -> Result<Total, Error> {
        if let Some((arrivals, state)) = self.untimed.take() {
            self.add(arrivals, state.as_ref())?;
        }
        let (mut arrivals, state) = self.total;
        let (earlier, counted_before) = self.earlier;
        arrivals += earlier;
        // Keys that were changed count from then on.
        let captured = self.captured_from.filter(|_| self.generation == 0);
        let covered = captured.zip(self.covered.1);
        Ok(Total {
            arrivals,
            covered: covered.filter(|(from, to)| from < to),
            state,
            counted_before,
            further: self.further,
            left_out: self.omitted.1,
            names: self.names,
        })
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
