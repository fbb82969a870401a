//! Decides whether events fire a trigger, let a file grow, or do nothing.
//!
//! ```text
//! event of a key that did not fire yet           fires: a file
//! event within --after of the last one           the file grows, so that it has the time after this event too
//! later, in a window of the last firing          nothing: the window still holds what has fired
//! later, in the cooldown                         nothing
//! ```
//!
//! A key that fires while as many files are being written as may be is an error, once. It fires at its next event for which there is room.
//!
//! Each key is armed by itself, so that three scanners within a second are three files. A trigger with a cooldown lets no file grow.

use super::firing::nanoseconds;
use super::trigger::Trigger;
use std::collections::HashMap;
use weir_packet::flow::FlowKey;

/// Number of remembered keys from which on armed keys are forgotten.
const MANY: usize = 1024;

/// Key of an event; `None` if the trigger counts by no key.
pub(super) type Key = Option<FlowKey>;

/// Result of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The trigger fires.
    Fires,
    /// The file that is being written for the key has to reach further.
    Grows,
    /// Nothing happens.
    Nothing,
}

/// State of a key that has fired. Times are arrivals, ns.
#[derive(Clone, Copy, Debug)]
struct Rest {
    /// Last event that fired the trigger, or let its file grow.
    last: i64,
    /// End of the file.
    until: i64,
    /// Time from which on the trigger can fire.
    armed: i64,
    /// Whether the last event had no file, because too many were being written.
    is_refused: bool,
}

impl Rest {
    const NONE: Self = Self {
        last: i64::MIN,
        until: i64::MIN,
        armed: i64::MIN,
        is_refused: false,
    };
}

/// Keys of a trigger that have fired.
///
/// **Cost**: an event without a key costs some comparisons, an event with a key a search in a hash table. The table has a key for each
/// file that was begun within a rest or a window, so that its size is limited by the files of the trigger.
#[derive(Debug)]
pub(super) struct Arms {
    after_ns: i64,
    cooldown_ns: i64,
    whole: Rest,
    rests: HashMap<FlowKey, Rest>,
    /// Number of keys from which on old ones are forgotten.
    many: usize,
    /// Longest reach of an event so far, ns.
    reach_ns: i64,
    /// Number of times that the condition was met.
    pub met: u64,
}

impl Arms {
    pub fn new(trigger: &Trigger) -> Self {
        Self {
            after_ns: nanoseconds(trigger.after),
            cooldown_ns: nanoseconds(trigger.cooldown),
            whole: Rest::NONE,
            rests: HashMap::new(),
            many: MANY,
            reach_ns: 0,
            met: 0,
        }
    }

    /// Takes an event of a key that arrived at `arrived`. The condition looked at the packets of the last `reach_ns`.
    pub fn take(&mut self, key: Key, reach_ns: i64, arrived: i64) -> Verdict {
        let Self {
            after_ns,
            cooldown_ns,
            ..
        } = *self;
        self.reach_ns = self.reach_ns.max(reach_ns);
        let before = self.rest(key);
        let until = arrived.saturating_add(after_ns);
        let next = Rest {
            last: arrived,
            until,
            armed: until.saturating_add(cooldown_ns).saturating_add(1),
            is_refused: before.is_refused
                && arrived < before.last.saturating_add(reach_ns.max(after_ns)),
        };
        let is_new = before.last == i64::MIN || arrived >= before.last.saturating_add(reach_ns);
        self.met += u64::from(is_new);
        if (is_new || before.is_refused) && arrived >= before.armed {
            self.set(key, next);
            return Verdict::Fires;
        }
        // A file of a trigger with a cooldown ends after its first event.
        if cooldown_ns > 0 || arrived > before.until {
            return Verdict::Nothing;
        }
        if until > before.until {
            self.set(key, next);
        }
        Verdict::Grows
    }

    /// Time until a request can fire the trigger, if it arrives at `arrived`, ns; `None` if it can now.
    pub fn is_resting(&self, arrived: i64) -> Option<u64> {
        let armed = self.whole.armed;
        (arrived < armed).then(|| armed.abs_diff(arrived))
    }

    /// Notes a request that fired the trigger for this time after it.
    pub fn fired(&mut self, arrived: i64, after_ns: i64) {
        let until = arrived.saturating_add(after_ns);
        self.whole = Rest {
            last: arrived,
            until,
            armed: until.saturating_add(self.cooldown_ns).saturating_add(1),
            is_refused: false,
        };
    }

    /// Notes that as many files as may be are being written, so that none could be begun for an event. Returns whether that is news of
    /// the key: the last event of its window, or of the time after, had room.
    pub fn refuse(&mut self, key: Key) -> bool {
        let Rest {
            last, is_refused, ..
        } = self.rest(key);
        let rest = Rest {
            last,
            is_refused: true,
            ..Rest::NONE
        };
        self.set(key, rest);
        !is_refused
    }

    /// Notes that a file was begun for an event.
    pub fn begun(&mut self, key: Key) {
        let rest = self.rest(key);
        if rest.is_refused {
            let is_refused = false;
            self.set(key, Rest { is_refused, ..rest });
        }
    }

    /// Forgets an event, because no file could be begun, or the file ends at `until`: the next event fires.
    pub fn undo(&mut self, key: Key, until: Option<i64>) {
        let armed = until.map_or(i64::MIN, |until| until.saturating_add(1));
        let rest = Rest {
            armed,
            ..Rest::NONE
        };
        self.set(key, rest);
    }

    fn rest(&self, key: Key) -> Rest {
        match key {
            None => self.whole,
            Some(key) => self.rests.get(&key).copied().unwrap_or(Rest::NONE),
        }
    }

    fn set(&mut self, key: Key, rest: Rest) {
        let Some(key) = key else {
            self.whole = rest;
            return;
        };
        self.rests.insert(key, rest);
        if self.rests.len() > self.many {
            let (now, reach_ns) = (rest.last, self.reach_ns);
            self.rests
                .retain(|_, rest| now < rest.armed || now < rest.last.saturating_add(reach_ns));
            self.many = self.rests.len().saturating_mul(2).max(MANY);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Verdict::{Fires, Grows, Nothing};
    use super::*;
    use std::time::Duration;

    fn arms(after: u64, cooldown: u64) -> Arms {
        Arms::new(&Trigger {
            after: Duration::from_nanos(after),
            cooldown: Duration::from_nanos(cooldown),
            ..Trigger::default()
        })
    }

    fn key(number: u8) -> Key {
        Some(FlowKey {
            src: [number; 16],
            ..FlowKey::NONE
        })
    }

    #[test]
    fn each_key_fires_by_itself() {
        let mut arms = arms(5, 0);
        let fired = [1, 2, 3].map(|number| arms.take(key(number), 10, i64::from(number)));
        assert_eq!(fired, [Fires; 3]);
        assert_eq!(arms.take(key(1), 10, 4), Grows);
        assert_eq!(arms.met, 3);
    }

    #[test]
    fn a_window_fires_once_after_its_file_has_ended() {
        let mut arms = arms(5, 0);
        let at = |arms: &mut Arms, time| arms.take(key(1), 100, time);
        assert_eq!(at(&mut arms, 0), Fires);
        assert_eq!(at(&mut arms, 5), Grows);
        assert_eq!(at(&mut arms, 10), Grows);
        assert_eq!(at(&mut arms, 16), Nothing);
        assert_eq!(at(&mut arms, 109), Nothing);
        assert_eq!(at(&mut arms, 110), Fires);
        assert_eq!(arms.met, 2);
    }

    #[test]
    fn a_trigger_with_a_cooldown_rests() {
        let mut arms = arms(5, 20);
        let found = [0, 3, 25, 26, 30, 52].map(|time| arms.take(None, 0, time));
        assert_eq!(found, [Fires, Nothing, Nothing, Fires, Nothing, Fires]);
        assert_eq!(arms.met, 6);
        assert_eq!(arms.is_resting(53), Some(25));
    }

    #[test]
    fn an_event_without_a_file_is_none() {
        let mut arms = arms(5, 0);
        assert_eq!(arms.take(key(1), 100, 0), Fires);
        arms.undo(key(1), None);
        assert_eq!(arms.take(key(1), 100, 1), Fires);
        arms.undo(key(1), Some(3));
        assert_eq!(arms.take(key(1), 100, 3), Nothing);
        assert_eq!(arms.take(key(1), 100, 4), Fires);
    }

    #[test]
    fn an_event_without_room_is_told_once_in_its_window() {
        let mut arms = arms(5, 0);
        let mut told = Vec::new();
        for time in [0, 10, 90, 150, 260] {
            assert_eq!(arms.take(key(1), 100, time), Fires, "{time}");
            told.push(arms.refuse(key(1)));
        }
        assert_eq!(told, [true, false, false, false, true]);
        assert_eq!(arms.met, 2);
        // As soon as there is room, the key fires, and rests like any other.
        assert_eq!(arms.take(key(1), 100, 270), Fires);
        arms.begun(key(1));
        assert_eq!(arms.take(key(1), 100, 274), Grows);
        assert_eq!(arms.take(key(1), 100, 290), Nothing);
        assert_eq!(arms.met, 2);
    }

    #[test]
    fn keys_that_are_armed_again_are_forgotten() {
        let mut arms = arms(5, 0);
        for number in 0..100_000u32 {
            let mut key = FlowKey::NONE;
            key.src[..4].copy_from_slice(&number.to_be_bytes());
            assert_eq!(arms.take(Some(key), 10, i64::from(number)), Fires);
        }
        assert!(arms.rests.len() <= MANY + 1, "{}", arms.rests.len());
    }
}
