//! Ends of bans and rules: by the clock of this machine between interfaces; in files bans end by the time of the packets.

use super::kept::KeptBans;
use super::{Change, RuleSet};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_firewall::kept::Origin;
use weir_firewall::permissions::AddressChange;
use weir_firewall::replicas::Refused;

/// Ends of bans, by address; `T` is a time.
#[derive(Debug)]
pub struct Ends<T> {
    by_address: BTreeMap<IpAddr, T>,
    by_time: BTreeSet<(T, IpAddr)>,
}

impl<T> Default for Ends<T> {
    fn default() -> Self {
        Self {
            by_address: BTreeMap::new(),
            by_time: BTreeSet::new(),
        }
    }
}

impl<T: Copy + Ord> Ends<T> {
    /// Notes changes that are in force; bans among them end at `end`, or do not end by themselves.
    pub fn note(&mut self, changes: &[AddressChange], end: Option<T>) {
        for change in changes {
            let Some(is_ban) = change.persona_non_grata() else {
                continue;
            };
            self.set(change.address(), end.filter(|_| is_ban));
        }
    }

    /// Notes the end of the ban of an address, or that it has none.
    fn set(&mut self, address: IpAddr, end: Option<T>) {
        self.forget(address);
        if let Some(end) = end {
            self.by_address.insert(address, end);
            self.by_time.insert((end, address));
        }
    }

    fn forget(&mut self, address: IpAddr) {
        if let Some(end) = self.by_address.remove(&address) {
            self.by_time.remove(&(end, address));
        }
    }

    /// Returns the end of the ban of an address, if it has one.
    pub fn of(&self, address: &IpAddr) -> Option<T> {
        self.by_address.get(address).copied()
    }

    /// Returns the time of the next end.
    #[inline]
    pub fn next(&self) -> Option<T> {
        self.by_time.first().map(|(end, _)| *end)
    }

    /// Returns the changes by which bans end that are over at `now`, `most` of them at most.
    pub fn due(&self, now: T, most: usize) -> Vec<AddressChange> {
        let over = self
            .by_time
            .iter()
            .take_while(|(end, _)| *end <= now)
            .take(most);
        over.map(|(_, address)| AddressChange::banning(*address, false))
            .collect()
    }
}

/// Ends of bans and rules by the clock. Changes of controllers, of packets and of the clock itself have one order, by a lock that nobody holds
/// for long.
#[derive(Debug, Default)]
pub struct LiveEnds {
    /// Held by controllers from the first change of a request to the last, while they compile rules, and by the clock. Workers never wait for
    /// it.
    order: Mutex<()>,
    state: Mutex<State>,
    /// Signals that the next end, or `is_over`, has changed.
    changed: Condvar,
    /// Bans that are kept over a restart. Its lock is taken last.
    kept: KeptBans,
}

#[derive(Debug, Default)]
struct State {
    bans: Ends<Instant>,
    /// Ends of rules in force, by their numbers.
    rules: BTreeMap<u32, Instant>,
    is_over: bool,
}

impl State {
    /// Returns the earliest end.
    fn next(&self) -> Option<Instant> {
        self.bans
            .next()
            .into_iter()
            .chain(self.rules.values().copied())
            .min()
    }
}

/// Ends that are put into force together, at most.
const TOGETHER: usize = 256;

impl LiveEnds {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Holds off other controllers and the clock.
    pub(super) fn order(&self) -> MutexGuard<'_, ()> {
        self.order.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the bans that are kept over a restart.
    pub fn kept(&self) -> &KeptBans {
        &self.kept
    }

    /// Notes the ends of bans that are in force from the start on.
    pub(super) fn note_ends(&self, ends: impl IntoIterator<Item = (IpAddr, Option<Instant>)>) {
        let mut state = self.state();
        ends.into_iter()
            .for_each(|(address, end)| state.bans.set(address, end));
    }

    /// Puts changes into force by `publish`, as one step; bans among them, for which `by` asked, end after `time`, if it is given.
    ///
    /// **Errors**: as of `publish`, which does not wait; no end has changed then.
    pub fn apply(
        &self,
        changes: &[AddressChange],
        time: Option<Duration>,
        by: &Origin,
        publish: impl FnOnce(&[Change]) -> Result<u64, Refused>,
    ) -> Result<u64, Refused> {
        let step: Vec<Change> = changes.iter().copied().map(Change::Address).collect();
        let mut state = self.state();
        let number = publish(&step)?;
        let end = time.map(|time| (Instant::now() + time, time));
        state.bans.note(changes, end.map(|(end, _)| end));
        self.kept.note(changes, end, by);
        drop(state);
        self.changed.notify_all();
        Ok(number)
    }

    /// Goes over to other rules, which are in force: a rule that was in the list before keeps its end, or is over already.
    pub(super) fn follow(&self, rules: &RuleSet, now: Instant) {
        let mut state = self.state();
        let before = std::mem::take(&mut state.rules);
        let places = rules.carried().unwrap_or_default();
        let mut known: BTreeMap<u32, Option<Instant>> = BTreeMap::new();
        for (number, place) in (0..).zip(places) {
            known.extend(place.map(|place| (place, before.get(&number).copied())));
        }
        for (number, rule) in (0..).zip(&rules.list().rules) {
            let Some(lasts) = rule.lasts else { continue };
            let end = known.get(&number).copied().unwrap_or(Some(now + lasts));
            state.rules.extend(end.map(|end| (number, end)));
        }
        drop(state);
        self.changed.notify_all();
    }

    /// Returns the ends of rules in force, by their numbers.
    pub(super) fn of_rules(&self) -> BTreeMap<u32, Instant> {
        self.state().rules.clone()
    }

    /// Gives the rules in force these ends.
    pub(super) fn restore(&self, ends: BTreeMap<u32, Instant>) {
        self.state().rules = ends;
        self.changed.notify_all();
    }

    /// Calls `look` with the ends of bans.
    pub fn with<R>(&self, look: impl FnOnce(&Ends<Instant>) -> R) -> R {
        look(&self.state().bans)
    }

    /// Ends bans and rules by `publish` when they are over, until [`Self::end`] is called. If a
    /// worker is blocked, the next turn tries again.
    pub fn work(&self, publish: impl Fn(&[Change]) -> Result<u64, Refused>) {
        const LONGEST_WAIT: Duration = Duration::from_secs(3600);
        const SHORTEST_WAIT: Duration = Duration::from_millis(1);
        loop {
            let order = self.order();
            let mut state = self.state();
            if state.is_over {
                return;
            }
            let now = Instant::now();
            // Cannot run out of room: these addresses are in the table.
            let due = state.bans.due(now, TOGETHER);
            let step: Vec<Change> = due.iter().copied().map(Change::Address).collect();
            if !due.is_empty() && publish(&step).is_ok() {
                state.bans.note(&due, None);
                self.kept.forget(&due);
            }
            let due = state.rules.iter().filter(|(_, end)| **end <= now);
            let due: Vec<u32> = due.map(|(rule, _)| *rule).take(TOGETHER).collect();
            let step: Vec<Change> = due.iter().copied().map(Change::Expired).collect();
            if !due.is_empty() && publish(&step).is_ok() {
                state.rules.retain(|rule, _| !due.contains(rule));
            }
            let next = state
                .next()
                .map(|end| end.saturating_duration_since(Instant::now()));
            drop(order);
            let wait = next.map_or(LONGEST_WAIT, |next| next.clamp(SHORTEST_WAIT, LONGEST_WAIT));
            drop(
                self.changed
                    .wait_timeout(state, wait)
                    .unwrap_or_else(PoisonError::into_inner),
            );
        }
    }

    /// Ends [`Self::work`].
    pub fn end(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Random;

    /// A list of all that was noted, looked through from its end, is the oracle.
    #[test]
    fn ends_are_those_of_the_latest_change_of_each_address() {
        let (mut random, mut ends, mut noted) = (Random(8), Ends::default(), Vec::new());
        let mut over = 0;
        for now in 0..5000u64 {
            let lines = ["ban 10.0.0.", "unban 10.0.0.", "ban 2001:db8::"];
            let line = format!("{}{}", lines[random.below(3)], random.below(9));
            let changes = AddressChange::parse(&line).unwrap();
            let end = (random.below(3) > 0).then(|| now + random.below(20) as u64);
            ends.note(&changes, end);
            noted.push((
                changes[0].address(),
                line.starts_with("ban").then_some(end).flatten(),
            ));
            let of = |address: &IpAddr| {
                noted
                    .iter()
                    .rfind(|(noted, _)| noted == address)
                    .and_then(|(_, end)| *end)
            };
            let mut addresses: Vec<IpAddr> = noted.iter().map(|(address, _)| *address).collect();
            addresses.sort_unstable();
            addresses.dedup();
            assert!(
                addresses
                    .iter()
                    .all(|address| ends.of(address) == of(address)),
                "{now}: {noted:?}"
            );
            assert_eq!(ends.next(), addresses.iter().filter_map(of).min());
            let due = ends.due(now, 100);
            let expected = addresses
                .iter()
                .filter(|address| of(address).is_some_and(|end| end <= now))
                .count();
            assert_eq!(due.len(), expected);
            assert!(
                due.iter()
                    .all(|change| change.persona_non_grata() == Some(false))
            );
            ends.note(&due, None);
            noted.extend(due.iter().map(|change| (change.address(), None)));
            over += due.len();
        }
        assert!(over > 500, "{over}");
    }
}
