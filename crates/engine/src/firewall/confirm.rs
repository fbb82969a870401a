//! Changes that are undone unless they are confirmed in time: an operator whom they cut off cannot
//! confirm them.

use super::RuleSet;
use super::controller::{ChangeError, Controller};
use std::collections::BTreeMap;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_firewall::Classifier;

/// Longest time for a confirmation.
pub const LONGEST: Duration = Duration::from_secs(24 * 3600);

/// Time after which an undoing that found no room is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// State before a change that is not confirmed.
#[derive(Clone, Debug)]
pub(super) enum Former {
    /// No firewall.
    None,
    /// The earlier rules, which of them had expired, and the ends of the others.
    Rules {
        rules: Arc<RuleSet>,
        expired: Vec<u32>,
        ends: BTreeMap<u32, Instant>,
    },
}

/// A change that is not confirmed.
#[derive(Clone, Debug)]
pub(super) struct Unconfirmed {
    end: Instant,
    former: Former,
}

/// A change that waits for a confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Awaited {
    /// The start of the firewall.
    Start,
    /// A change of the rules.
    Rules,
}

/// A change that was undone.
#[derive(Clone, Debug)]
pub enum Undone {
    /// The start of the firewall: it has to end.
    Start,
    /// A change of the rules. Has the number of the change that undid it, and the rules in force.
    Rules(u64, Arc<RuleSet>),
}

impl Controller {
    fn unconfirmed(&self) -> MutexGuard<'_, Option<Unconfirmed>> {
        self.unconfirmed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the start undone after `time`, unless [`Self::confirm`] is called before.
    pub fn await_confirmation(&self, time: Duration) {
        self.note_former(Former::None, time);
    }

    /// Notes the state before a change. A change before it that is not confirmed keeps its own, and gets the time of this one.
    pub(super) fn note_former(&self, former: Former, time: Duration) {
        let mut unconfirmed = self.unconfirmed();
        let former = unconfirmed.take().map_or(former, |before| before.former);
        *unconfirmed = Some(Unconfirmed {
            end: Instant::now() + time,
            former,
        });
    }

    /// Confirms what is not confirmed. **Errors**: there is nothing, or nothing any more.
    pub fn confirm(&self) -> Result<(), ChangeError> {
        self.unconfirmed()
            .take()
            .map(drop)
            .ok_or(ChangeError::NothingToConfirm)
    }

    /// Returns what waits for a confirmation, and the time left, if there is something.
    pub fn awaited(&self) -> Option<(Awaited, Duration)> {
        let of = |unconfirmed: &Unconfirmed| {
            let what = if matches!(unconfirmed.former, Former::None) {
                Awaited::Start
            } else {
                Awaited::Rules
            };
            (
                what,
                unconfirmed.end.saturating_duration_since(Instant::now()),
            )
        };
        self.unconfirmed().as_ref().map(of)
    }

    /// Undoes a change whose time is over. To be called several times a second. **Errors**: as for [`Self::reload`]; another call tries
    /// again, a second later.
    pub fn undo_unconfirmed(&self) -> Result<Option<Undone>, ChangeError> {
        // A start is undone at once, whatever else is under way.
        let is_start = |change: &mut Unconfirmed| {
            matches!(change.former, Former::None) && change.end <= Instant::now()
        };
        if self.unconfirmed().take_if(is_start).is_some() {
            return Ok(Some(Undone::Start));
        }
        // A change of the rules that is under way comes first, and may bring a later end.
        let reloads = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        let mut unconfirmed = self.unconfirmed();
        let Some(change) = unconfirmed.take_if(|change| change.end <= Instant::now()) else {
            return Ok(None);
        };
        let (before, expired, ends) = match &change.former {
            Former::None => return Ok(Some(Undone::Start)),
            Former::Rules {
                rules,
                expired,
                ends,
            } => (rules, expired, ends),
        };
        let restored = self.restore(before, expired, ends);
        if restored.is_err() {
            *unconfirmed = Some(Unconfirmed {
                end: Instant::now() + AGAIN,
                ..change
            });
        }
        drop((unconfirmed, reloads));
        let (change, rules) = restored?;
        self.wait(change)
            .map(|change| Some(Undone::Rules(change, rules)))
    }

    /// Puts earlier rules into force again, with their times and connections as they were.
    fn restore(
        &self,
        before: &Arc<RuleSet>,
        expired: &[u32],
        ends: &BTreeMap<u32, Instant>,
    ) -> Result<(u64, Arc<RuleSet>), ChangeError> {
        let classifier = Classifier::new(before.list().clone())
            .map_err(|why| ChangeError::Rules(why.to_string()))?;
        let order = self.ends.order();
        let now = self.policy.rules();
        let rules = now.successor(classifier, &self.policy.expired());
        let mut rules = rules.map_err(|senseless| ChangeError::Rules(senseless.why))?;
        expired.clone_into(&mut rules.expired);
        if let (Some(known), None) = (&before.connections, &now.connections) {
            rules.connections = Some(Arc::clone(known));
        }
        let rules = Arc::new(rules);
        let change = self.publish_rules(&rules)?;
        self.ends.restore(ends.clone());
        drop(order);
        Ok((change, rules))
    }
}
