//! Steps of one length, in the order in which their first windows were delivered.

use crate::packed::{self, Packed};
use crate::snapshot::Point;
use crate::step::Step;
use std::collections::VecDeque;

/// Length of the steps, and the time for which they are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Span {
    /// 1 s, for 10 minutes.
    #[default]
    Second,
    /// 10 s, for 2 hours.
    TenSeconds,
    /// 1 minute, for 24 hours.
    Minute,
}

impl Span {
    /// All lengths, the shortest first.
    pub const ALL: [Self; 3] = [Self::Second, Self::TenSeconds, Self::Minute];

    /// Length of a step, s.
    pub fn seconds(self) -> i64 {
        match self {
            Self::Second => 1,
            Self::TenSeconds => 10,
            Self::Minute => 60,
        }
    }

    /// Number of steps that are kept.
    pub fn steps(self) -> usize {
        match self {
            Self::Second => 600,
            Self::TenSeconds => 720,
            Self::Minute => 1440,
        }
    }

    /// Length of a step, ns.
    pub(crate) fn ns(self) -> i64 {
        self.seconds() * 1_000_000_000
    }
}

/// Place of a step: the number of times that the clock went back before it, and its begin in units of its length.
type Place = (u64, i64);

/// Steps of one length.
#[derive(Debug)]
pub(crate) struct Tier {
    span: Span,
    /// Most rows of a complete table, and most tables.
    limits: (usize, usize),
    /// Complete steps, ascending.
    steps: VecDeque<(Place, Packed)>,
    /// The step that windows are added to.
    open: Option<(Place, Step)>,
    /// Bytes of the complete steps.
    memory: usize,
}

/// Rows of an open table, for each row of a complete one: keys that are large later are known from their begin on.
const OPEN_ROWS: usize = 4;

impl Tier {
    pub fn new(span: Span, limits: (usize, usize)) -> Self {
        Self {
            span,
            limits,
            steps: VecDeque::new(),
            open: None,
            memory: 0,
        }
    }

    /// Largest memory with these limits, bytes.
    pub fn most_memory(span: Span, (rows, kinds): (usize, usize)) -> usize {
        let listed = size_of::<crate::Listed>() + size_of::<Place>();
        // While a window is added, its rows stand beside the rows of the step, and a packed step beside its unpacked form.
        let open = kinds * (2 * OPEN_ROWS + 3) * rows * 2 * listed;
        span.steps() * (packed::most(kinds, rows) + size_of::<(Place, Packed)>()) + open
    }

    /// Adds a window that begins in `era`, the number of times that the clock went back before it. The time from `silent_ns` to
    /// its begin had no packet.
    pub fn add(&mut self, era: u64, window: &Step, silent_ns: Option<i64>) {
        let begin = window.span.0;
        let silent_ns = silent_ns.unwrap_or(begin);
        let place = (era, begin.div_euclid(self.span.ns()));
        if self.open.as_ref().is_none_or(|(open, _)| *open != place) {
            if let Some(((_, number), step)) = &mut self.open {
                let end = number.saturating_add(1).saturating_mul(self.span.ns());
                step.cover(end.min(begin).saturating_sub(silent_ns));
            }
            self.close();
            self.open = Some((place, self.taken(place, window.span)));
        }
        let (rows, kinds) = self.limits;
        if let Some((_, step)) = &mut self.open {
            step.add(window, (rows * OPEN_ROWS, kinds));
            let from = place.1.saturating_mul(self.span.ns()).max(silent_ns);
            step.cover(begin.saturating_sub(from));
        }
    }

    /// Takes a complete step out of the list, to add to it; an empty step if there is none.
    fn taken(&mut self, place: Place, span: (i64, i64)) -> Step {
        match self.find(place) {
            Ok(known) => self.steps.remove(known).map_or_else(
                || Step::empty(span),
                |(_, packed)| {
                    self.memory -= packed.memory();
                    packed.step()
                },
            ),
            Err(_) => Step::empty(span),
        }
    }

    fn find(&self, place: Place) -> Result<usize, usize> {
        self.steps.binary_search_by_key(&place, |(place, _)| *place)
    }

    /// Completes the open step.
    fn close(&mut self) {
        let Some((place, mut step)) = self.open.take() else {
            return;
        };
        let (rows, _) = self.limits;
        step.tables.iter_mut().for_each(|table| table.cut(rows));
        let packed = Packed::new(step);
        self.memory += packed.memory();
        let at = self.find(place).unwrap_or_else(|at| at);
        self.steps.insert(at, (place, packed));
        // With the open step, as many as are kept.
        while self.steps.len() >= self.span.steps() {
            if let Some((_, oldest)) = self.steps.pop_front() {
                self.memory -= oldest.memory();
            }
        }
    }

    /// Memory of the steps, bytes.
    pub fn memory(&self) -> usize {
        let open = self.open.iter().flat_map(|(_, step)| &step.tables);
        let open: usize = open.map(|table| table.rows.capacity()).sum();
        let places = self.steps.capacity() * size_of::<(Place, Packed)>();
        self.memory + places + open * size_of::<crate::Listed>()
    }

    /// Places and begins of all steps, ascending.
    fn begins(&self) -> impl DoubleEndedIterator<Item = (Place, (i64, i64))> {
        let mut all: Vec<_> = self
            .steps
            .iter()
            .map(|(place, packed)| (*place, packed.span))
            .collect();
        if let Some((place, step)) = &self.open {
            let at = all.partition_point(|(other, _)| other < place);
            all.insert(at, (*place, step.span));
        }
        all.into_iter()
    }

    /// Returns the place of the step with a time: the last step that begins at or before it, else the first. Without a time, the
    /// step of the window that was added last.
    pub fn place_of(&self, at: Option<i64>) -> Option<Place> {
        let Some(at) = at else {
            return self.open.as_ref().map(|(place, _)| *place);
        };
        let begins = || self.begins();
        let found = begins().rev().find(|(_, span)| span.0 <= at);
        found.or_else(|| begins().next()).map(|(place, _)| place)
    }

    /// Returns the step at a place, with at most the rows of a complete one.
    pub fn step(&self, place: Place) -> Option<Step> {
        if let Some((_, step)) = self.open.as_ref().filter(|(open, _)| *open == place) {
            let mut step = step.clone();
            let (rows, _) = self.limits;
            step.tables.iter_mut().for_each(|table| table.cut(rows));
            return Some(step);
        }
        let known = self.find(place).ok()?;
        self.steps.get(known).map(|(_, packed)| packed.step())
    }

    /// Returns the place of the step before another, if the clock did not go back between them.
    pub fn before(&self, place: Place) -> Option<Place> {
        let mut earlier = self.begins().rev().map(|(other, _)| other);
        earlier.find(|other| *other < place && other.0 == place.0)
    }

    /// Returns the begins of the steps before and after a place.
    pub fn neighbours(&self, place: Place) -> [Option<i64>; 2] {
        let begin = |(_, span): (Place, (i64, i64))| span.0;
        let mut earlier = self.begins().rev();
        let before = earlier.find(|(other, _)| *other < place).map(begin);
        let after = self.begins().find(|(other, _)| *other > place).map(begin);
        [before, after]
    }

    /// Returns up to `most` steps up to a place, ascending.
    pub fn last(&self, place: Place, most: usize) -> Vec<Step> {
        let places = self.begins().map(|(other, _)| other);
        let up_to: Vec<Place> = places.filter(|other| *other <= place).collect();
        let last = &up_to[up_to.len().saturating_sub(most)..];
        last.iter().filter_map(|place| self.step(*place)).collect()
    }

    /// Returns the totals of up to `most` steps up to a place, ascending.
    pub fn points(&self, place: Place, most: usize) -> Vec<Point> {
        let known = self.steps.iter();
        let known = known.map(|(place, packed)| (*place, packed.span, packed.totals));
        let open = self.open.iter();
        let open = open.map(|(place, step)| (*place, step.span, step.totals));
        let mut all: Vec<_> = known.chain(open).collect();
        all.retain(|(other, ..)| *other <= place);
        all.sort_unstable_by_key(|(place, ..)| *place);
        let last = all.drain(all.len().saturating_sub(most)..);
        let point = |(_, (from_ns, to_ns), totals)| Point {
            from_ns,
            to_ns,
            totals,
        };
        last.map(point).collect()
    }
}
