//! Puts together what the members of a crew know of each window.

use super::clock::Before;
use super::worker::Closed;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_measure::{Arrivals, Config, Error, Spares, State, Window};

/// A window is complete once every member is past it.
pub(super) struct Merger {
    config: Arc<Config>,
    spares: Arc<Spares>,
    /// For each member, the first window of which it may still learn.
    open: Vec<i64>,
    windows: BTreeMap<i64, (Arrivals, Option<State>)>,
    /// The window given out last, for what changed since: its number and what is known of it.
    last: Option<(i64, Option<State>)>,
    total: (Arrivals, Option<State>),
}

impl Merger {
    pub fn new(members: usize, config: Arc<Config>, spares: Arc<Spares>) -> Self {
        Self {
            config,
            spares,
            open: vec![i64::MIN; members],
            windows: BTreeMap::new(),
            last: None,
            total: Default::default(),
        }
    }

    /// Member `member` knows this; `each` gets the windows that are complete now, in order.
    pub fn take(&mut self, member: usize, closed: Closed, each: &mut dyn FnMut(Window<'_>)) -> Result<(), Error> {
        for (number, arrivals) in closed.arrivals {
            self.windows.entry(number).or_default().0 += arrivals;
        }
        for (number, state) in closed.states {
            merge(&mut self.windows.entry(number).or_default().1, state, &self.spares)?;
        }
        self.open[member] = closed.before;
        let ready = self.open();
        while let Some(entry) = self.windows.first_entry().filter(|entry| *entry.key() < ready) {
            let (number, (arrivals, state)) = entry.remove_entry();
            self.complete(number, arrivals, state, each)?;
        }
        Ok(())
    }

    /// These packets never reached us, and by then the source had come to window `number`, which is open.
    pub fn lost(&mut self, number: i64, before: Before) {
        self.windows.entry(number).or_default().0 += before.into();
    }

    /// Windows before this number are complete.
    pub fn open(&self) -> i64 {
        self.open.iter().copied().min().unwrap_or(i64::MAX)
    }

    fn complete(
        &mut self,
        number: i64,
        arrivals: Arrivals,
        state: Option<State>,
        each: &mut dyn FnMut(Window<'_>),
    ) -> Result<(), Error> {
        let mut state = state;
        if let Some(state) = &mut state {
            state.settle(&self.config, number)?;
        }
        self.total.0 += arrivals;
        if self.config.cut.window_ns.is_none() {
            self.total.1 = state;
            return Ok(());
        }
        let span = self.config.cut.span(number);
        // A window in which nothing arrived was not given out; it held no packet.
        let before = self.last.as_ref().map(|(last, state)| state.as_ref().filter(|_| *last + 1 == number));
        each(Window { span: Some(span), arrivals, state: state.as_ref(), before });
        if let Some(state) = &state {
            match &mut self.total.1 {
                Some(total) => total.merge(state)?,
                none => {
                    let mut total = State::new(&self.config, number)?;
                    total.settle(&self.config, number)?;
                    total.merge(state)?;
                    *none = Some(total);
                }
            }
        }
        // What was shared is not what a new window begins with.
        if let Some((_, Some(old))) = self.last.replace((number, state)).filter(|_| self.config.shared.is_none()) {
            self.spares.keep(old);
        }
        Ok(())
    }

    /// All windows as one.
    pub fn finish(self) -> (Arrivals, Option<State>) {
        self.total
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
