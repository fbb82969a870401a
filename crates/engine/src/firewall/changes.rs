//! Other rules for a firewall that judges by the times of packets, and that no controller changes.
//!
//! A thread that controls the run compiles the rules, gives the change a number of the run's sequence, and leaves it here. The run's
//! thread takes it up between two batches, as it does a change of an output.

use super::RuleSet;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use weir_firewall::Classifier;

/// Rules that were read, to be put into force.
#[derive(Debug)]
pub struct NewRules {
    /// The rules.
    pub classifier: Classifier,
    /// Name of the rules in messages, which number lines.
    pub called: String,
}

/// Rules in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GivenRules<'a> {
    /// Text of the list, with the addresses of its sets.
    pub text: &'a str,
    /// Name of the rules in messages.
    pub called: &'a str,
}

/// Rules that the run has not taken up yet.
#[derive(Debug)]
pub(crate) struct RulesChange {
    /// Number of the change.
    pub change: u64,
    pub rules: Arc<RuleSet>,
    /// Channel to the caller: sends a message once the rules are in force. Dropped if they never will be.
    pub taken: Sender<()>,
}

/// Reason for which rules are not replaced.
#[derive(Debug)]
pub(crate) enum RulesKept {
    /// An expression is wrong: the reason as one line.
    Wrong(String),
    /// An earlier change waits.
    Waiting,
    /// The run is over.
    Over,
}

/// The rules of a run, and a waiting change of them.
#[derive(Debug)]
pub(crate) struct RulesChanges {
    /// Held while rules are compiled: one change at a time.
    changing: Mutex<()>,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    in_force: Arc<RuleSet>,
    waiting: Option<RulesChange>,
    is_over: bool,
}

impl RulesChanges {
    pub fn new(in_force: Arc<RuleSet>) -> Self {
        Self {
            changing: Mutex::default(),
            state: Mutex::new(State {
                in_force,
                waiting: None,
                is_over: false,
            }),
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Compiles rules, and leaves them to the run's thread. `number` gives the change its number while the state is locked, so that a batch
    /// of this number finds the rules here.
    pub fn replace(
        &self,
        new: NewRules,
        number: impl FnOnce() -> u64,
    ) -> Result<(u64, Receiver<()>), RulesKept> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let in_force = match &*self.state() {
            State { is_over: true, .. } => return Err(RulesKept::Over),
            State {
                waiting: Some(_), ..
            } => return Err(RulesKept::Waiting),
            State { in_force, .. } => Arc::clone(in_force),
        };
        let NewRules { classifier, called } = new;
        // Which rules have expired is known to the thread that takes them up.
        let rules = in_force
            .successor(classifier, &[])
            .map_err(|senseless| RulesKept::Wrong(format!("{called}: {senseless}")))?;
        let (taken, hears) = channel();
        let mut state = self.state();
        if state.is_over {
            return Err(RulesKept::Over);
        }
        let change = number();
        state.waiting = Some(RulesChange {
            change,
            rules: Arc::new(rules),
            taken,
        });
        Ok((change, hears))
    }

    /// Takes the rules that wait, if their number is `reached`.
    pub fn take(&self, reached: u64) -> Option<RulesChange> {
        let mut state = self.state();
        let taken = state.waiting.take_if(|waiting| waiting.change <= reached)?;
        state.in_force = Arc::clone(&taken.rules);
        Some(taken)
    }

    /// Ends the changes with the run.
    pub fn end(&self) {
        let mut state = self.state();
        state.is_over = true;
        state.waiting = None;
    }
}
