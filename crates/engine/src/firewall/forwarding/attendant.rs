//! Work during the forwarding: undoing of unconfirmed changes, and reading of a rules file that has changed.

use crate::firewall::RuleSet;
use crate::firewall::confirm::{Awaited, Undone};
use crate::firewall::controller::{ChangeError, Controller};
use crate::firewall::watch::{FileChange, RulesWatch};
use crate::name::Name;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// An occurrence during the forwarding.
#[derive(Debug)]
#[non_exhaustive]
pub enum Occurrence {
    /// A start or a change of the rules was confirmed.
    Confirmed(Awaited),
    /// A start or a change of the rules was undone, because nobody confirmed it. After a start the forwarding ends.
    Undone(Undone),
    /// Rules that nobody confirmed are still in force.
    NotUndone(ChangeError),
    /// The file of the rules is empty, and the rules stay as they are.
    Emptied,
    /// The file of the rules changed, and was read again: number of the change and the rules.
    Reloaded(Result<(u64, Arc<RuleSet>), ChangeError>),
    /// A request set other rules: number of the change and the rules.
    Set(u64, Arc<RuleSet>),
}

/// Attendant of a forwarding, for a thread that [attends](Self::attend) several times a second.
#[derive(Debug)]
pub struct Attendant {
    controller: Arc<Controller>,
    watch: Option<RulesWatch>,
    stop: Arc<AtomicBool>,
    /// Confirmation that was awaited at the last look, and the time that was left.
    announced: Option<(Awaited, Duration)>,
    is_undone: bool,
}

impl Attendant {
    /// Makes the attendant of a controller, and of the file of the rules, if there is one. It sets `stop` if the start is undone.
    pub fn new(controller: &Arc<Controller>, rules: Option<&Name>, stop: &Arc<AtomicBool>) -> Self {
        let watch = |rules| RulesWatch::new(rules, controller.rules().list());
        Self {
            watch: rules.map(watch),
            announced: controller.awaited(),
            controller: Arc::clone(controller),
            stop: Arc::clone(stop),
            is_undone: false,
        }
    }

    /// Whether the start was undone because nobody confirmed it.
    pub fn is_undone(&self) -> bool {
        self.is_undone
    }

    /// Looks for work, and does it. `hear` gets each occurrence.
    pub fn attend(&mut self, hear: &mut dyn FnMut(Occurrence)) {
        for (change, rules) in self.controller.take_set() {
            hear(Occurrence::Set(change, rules));
        }
        let was_undone = self.undo(hear);
        let now = self.controller.awaited();
        if let (Some((what, _)), None) = (self.announced, now)
            && !was_undone
            && !self.is_undone
        {
            hear(Occurrence::Confirmed(what));
        }
        let awaited = std::mem::replace(&mut self.announced, now).is_some();
        let Some(watch) = &mut self.watch else {
            return;
        };
        let in_force = self.controller.rules();
        // The file as it was when rules were read until they are confirmed, or were undone, is not
        // a change.
        if now.is_some() != awaited && (now.is_some() || was_undone) {
            watch.take_as_seen(in_force.list());
        }
        if now.is_some() {
            return;
        }
        match watch.check(in_force.list()) {
            None => {}
            Some(FileChange::Emptied) => hear(Occurrence::Emptied),
            Some(FileChange::Written) => {
                hear(Occurrence::Reloaded(self.controller.reload_noticed()));
            }
        }
    }

    /// Undoes what nobody confirmed in time. Returns whether rules from before are in force again.
    fn undo(&mut self, hear: &mut dyn FnMut(Occurrence)) -> bool {
        match self.controller.undo_unconfirmed() {
            Ok(None) => false,
            Ok(Some(undone)) => {
                let is_start = matches!(undone, Undone::Start);
                if is_start {
                    self.is_undone = true;
                    self.stop.store(true, Ordering::Relaxed);
                }
                hear(Occurrence::Undone(undone));
                !is_start
            }
            Err(error) => {
                hear(Occurrence::NotUndone(error));
                false
            }
        }
    }
}
