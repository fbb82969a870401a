//! Changes of a firewall's policy while it works: by requests, by a new rules file, and when a ban or a rule expires.

use super::changes::{GivenRules, NewRules};
use super::confirm::{Former, Unconfirmed};
use super::ends::LiveEnds;
use super::{Change, FirewallCounts, RuleSet, SharedPolicy};
use crate::control::{self, Control, Snapshot};
use crate::output_changes::OutputSlot;
use crate::sink::Sink;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_firewall::control::LONGEST;
use weir_firewall::kept::Origin;
use weir_firewall::permissions::AddressChange;
use weir_firewall::replicas::Refused;
use weir_pipeline::threads::spawn;

/// Longest wait until a change is in force on every worker, and for room in the log.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest wait for the state of a direction.
const SNAPSHOT: Duration = Duration::from_secs(1);

/// Pause while the log has no room.
const PAUSE: Duration = Duration::from_micros(50);

/// Function that reads the rules again, or the rules of a request. **Errors**: the reason as one line.
pub type ReadRules = Box<dyn Fn(Option<&GivenRules<'_>>) -> Result<NewRules, String> + Send + Sync>;

/// A direction of a firewall.
#[derive(Clone, Debug)]
pub struct Direction {
    /// Name of the source.
    pub source: String,
    /// Name of the sink.
    pub sink: String,
    /// Part of the system where packets without room are dropped: `kernel` or `device`.
    pub place: &'static str,
    /// Control of the run.
    pub control: Arc<Control>,
}

/// Controller of a firewall, for several threads. Changes of all callers have one order, and each is in force on every worker when its
/// call returns.
pub struct Controller {
    pub(super) policy: Arc<SharedPolicy>,
    read_rules: ReadRules,
    /// Held while rules are read, compiled and published, so that rules read earlier never replace rules read later. Other changes do not
    /// wait for it.
    pub(super) reloads: Mutex<()>,
    pub(super) unconfirmed: Mutex<Option<Unconfirmed>>,
    /// The last change that came by itself, since the file of the rules changed.
    noticed: Mutex<Option<Noticed>>,
    /// Rules of requests, with the numbers of their changes, that no line has told yet.
    set: Mutex<Vec<(u64, Arc<RuleSet>)>>,
    directions: Vec<Direction>,
    pub(super) ends: Arc<LiveEnds>,
    begun: Instant,
}

/// Rules that came into force because their file changed.
struct Noticed {
    at: Instant,
    rules: Arc<RuleSet>,
    before: Former,
}

impl core::fmt::Debug for Controller {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Controller")
            .field("directions", &self.directions)
            .finish_non_exhaustive()
    }
}

/// Reason for which a change is refused, or not yet in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The words make no sense.
    #[error("{0}")]
    Words(String),
    /// There is no room for a step of the request. Steps before it are in force.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Batches that began before the change are still under way. Later batches are judged by it.
    #[error("change {0} is made, and batches from before it are still under way")]
    UnderWay(u64),
    /// Nothing waits for a confirmation.
    #[error("nothing waits for a confirmation: it was confirmed, or undone")]
    NothingToConfirm,
    /// The rules cannot be read. The rules before stay in force.
    #[error("{0}; the rules stay as they are")]
    Rules(String),
}

/// A banned address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The address.
    pub address: IpAddr,
    /// Time until the ban ends; `None` if it does not end by itself.
    pub left: Option<Duration>,
    /// Program that asked for the ban; `None` for a permission table of the start.
    pub by: Option<Origin>,
    /// Whether the ban was there before this process began.
    pub restored: bool,
}

/// A change that is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Applied {
    /// Number of the last step; 0 if there was none.
    pub change: u64,
    /// Reason for which bans among it end with the process, because the file that keeps them does not have them.
    pub unkept: Option<String>,
}

/// State of a firewall.
#[derive(Debug)]
pub struct Standing {
    /// State of each direction that answers.
    pub directions: Vec<(Direction, Snapshot)>,
    /// Counts of all directions; `None` if none answers.
    pub counts: Option<FirewallCounts>,
    /// Time since the start.
    pub time: Duration,
}

impl Controller {
    /// Makes the controller of a policy that is at work in these directions. `ends` are those of its control port too.
    pub fn new(
        policy: Arc<SharedPolicy>,
        ends: Arc<LiveEnds>,
        directions: Vec<Direction>,
        read_rules: ReadRules,
    ) -> Arc<Self> {
        let begun = Instant::now();
        ends.follow(&policy.rules(), begun);
        Arc::new(Self {
            policy,
            read_rules,
            reloads: Mutex::default(),
            unconfirmed: Mutex::default(),
            noticed: Mutex::default(),
            set: Mutex::default(),
            directions,
            ends,
            begun,
        })
    }

    /// Returns the rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        self.policy.rules()
    }

    /// Applies the changes of lines of a permission table as one step, or as several without those of other callers between if they need more
    /// than half the log. Bans among them, for which `by` asks, end after `time`, if it is given. When the call returns the change is in force,
    /// as all before it, and its bans are on the disk, if they are kept in a file.
    pub fn apply<'a>(
        &self,
        lines: impl IntoIterator<Item = &'a str>,
        time: Option<Duration>,
        by: &Origin,
    ) -> Result<Applied, ChangeError> {
        if time.is_some_and(|time| time > LONGEST) {
            return Err(ChangeError::Words(
                "the time is longer than 100 years".to_owned(),
            ));
        }
        let mut changes = Vec::new();
        for line in lines {
            changes.extend(
                AddressChange::parse(line).map_err(|why| ChangeError::Words(why.to_string()))?,
            );
        }
        let order = self.ends.order();
        let mut last = 0;
        for step in changes.chunks(self.policy.room().div_ceil(2)) {
            last = publish(|| {
                self.ends
                    .apply(step, time, by, |changes| self.policy.apply_all(changes))
            })?;
        }
        let changes_bans = changes
            .iter()
            .any(|change| change.persona_non_grata().is_some());
        let kept = self.ends.kept().change();
        drop(order);
        let change = self.wait(last)?;
        let unkept = if changes_bans {
            self.ends.kept().wait(kept).err()
        } else {
            None
        };
        Ok(Applied { change, unkept })
    }

    pub(super) fn wait(&self, change: u64) -> Result<u64, ChangeError> {
        match self.policy.wait(change, PATIENCE) {
            true => Ok(change),
            false => Err(ChangeError::UnderWay(change)),
        }
    }

    /// Reads the rules again, compiles them beside those in force, and puts them in their place. Returns the number of the change and
    /// the rules, which are in force on every worker. **Errors**: the rules before stay in force, but for [`ChangeError::UnderWay`].
    pub fn reload(&self) -> Result<(u64, Arc<RuleSet>), ChangeError> {
        self.reload_for(None)
    }

    /// Does what [`Self::reload`] does, because the file of the rules changed. A request to read them again until they are confirmed may
    /// come a moment later, and then goes back to the rules before this change.
    pub fn reload_noticed(&self) -> Result<(u64, Arc<RuleSet>), ChangeError> {
        self.reload_as(None, |controller, rules, before| {
            let noticed = Noticed {
                at: Instant::now(),
                rules: Arc::clone(rules),
                before,
            };
            *controller
                .noticed
                .lock()
                .unwrap_or_else(PoisonError::into_inner) = Some(noticed);
        })
    }

    /// Does what [`Self::reload`] does; with a time, the rules before come back after it, unless [`Self::confirm`] is called.
    pub fn reload_for(
        &self,
        confirm: Option<Duration>,
    ) -> Result<(u64, Arc<RuleSet>), ChangeError> {
        self.reload_as(None, |controller, rules, before| {
            if let Some(time) = confirm {
                controller.note_former(controller.before_noticed(rules, before), time);
            }
        })
    }

    /// Replaces the sink of an output, as [`Control::set_output`] does; a firewall that writes a file has one direction.
    pub fn set_output(
        &self,
        slot: OutputSlot,
        name: &str,
        sink: Box<dyn Sink>,
    ) -> Result<u64, control::ChangeError> {
        let direction = self.directions.first().ok_or(control::ChangeError::Over)?;
        direction.control.set_output(slot, name, sink, PATIENCE)
    }

    /// Replaces the rules by the rules of a request, until the file of the rules is read again. Otherwise as [`Self::reload`].
    pub fn set_rules(&self, given: &GivenRules<'_>) -> Result<(u64, Arc<RuleSet>), ChangeError> {
        /// Largest number of changes without a line.
        const MOST_SET: usize = 1000;
        let (change, rules) = self.reload_as(Some(given), |_, _, _| {})?;
        let mut set = self.set.lock().unwrap_or_else(PoisonError::into_inner);
        if set.len() < MOST_SET {
            set.push((change, Arc::clone(&rules)));
        }
        Ok((change, rules))
    }

    /// Takes the rules of requests since the last call, with the numbers of their changes.
    pub fn take_set(&self) -> Vec<(u64, Arc<RuleSet>)> {
        std::mem::take(&mut *self.set.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The state before a change that is to be confirmed. If the change of the file was noticed a moment ago, its rules are in force
    /// already, and the state is that before them.
    fn before_noticed(&self, rules: &RuleSet, before: Former) -> Former {
        /// Longest time between a change of the file and the request.
        const MOMENT: Duration = Duration::from_secs(60);
        let noticed = self
            .noticed
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        let is_repeated = |noticed: &Noticed| {
            let in_force = matches!(&before, Former::Rules { rules, .. } if Arc::ptr_eq(rules, &noticed.rules));
            in_force && noticed.rules.list() == rules.list() && noticed.at.elapsed() < MOMENT
        };
        match noticed {
            Some(noticed) if is_repeated(&noticed) => noticed.before,
            _ => before,
        }
    }

    /// Reads the rules again, or the given rules, and puts them into force; `note` gets them and the state before.
    fn reload_as(
        &self,
        given: Option<&GivenRules<'_>>,
        note: impl FnOnce(&Self, &Arc<RuleSet>, Former),
    ) -> Result<(u64, Arc<RuleSet>), ChangeError> {
        let reloads = self.reloads.lock().unwrap_or_else(PoisonError::into_inner);
        let NewRules { classifier, called } =
            (self.read_rules)(given).map_err(ChangeError::Rules)?;
        // Holds off other changes of rules, so that the successor is that of the rules in force.
        let order = self.ends.order();
        let (before, expired) = (self.policy.rules(), self.policy.expired());
        let rules = before.successor(classifier, &expired);
        let wrong = |senseless| ChangeError::Rules(format!("{called}: {senseless}"));
        let rules = Arc::new(rules.map_err(wrong)?);
        let former = Former::Rules {
            rules: before,
            expired,
            ends: self.ends.of_rules(),
        };
        let change = self.publish_rules(&rules)?;
        self.ends.follow(&rules, Instant::now());
        note(self, &rules, former);
        drop((order, reloads));
        self.wait(change).map(|change| (change, rules))
    }

    pub(super) fn publish_rules(&self, rules: &Arc<RuleSet>) -> Result<u64, Refused> {
        publish(|| self.policy.apply_all(&[Change::Rules(Arc::clone(rules))]))
    }

    /// Returns the banned addresses, those of a permission table among them.
    pub fn bans(&self) -> Vec<Ban> {
        let now = Instant::now();
        let mut bans: Vec<Ban> = self.ends.with(|ends| {
            let of = |address: IpAddr| {
                let left = ends
                    .of(&address)
                    .map(|end| end.saturating_duration_since(now));
                let kept = self.ends.kept().of(&address);
                let restored = kept.as_ref().is_some_and(|kept| kept.restored);
                Ban {
                    address,
                    left,
                    by: kept.map(|kept| kept.by),
                    restored,
                }
            };
            self.policy.banned().into_iter().map(of).collect()
        });
        bans.sort_unstable_by_key(|ban| ban.address);
        bans
    }

    /// Returns the reason for which the latest bans would not come back after a restart, if they would not.
    pub fn unkept(&self) -> Option<String> {
        self.ends.kept().fault()
    }

    /// Returns the state of all directions, each at the end of a batch.
    pub fn standing(&self) -> Standing {
        let answers = |direction: &Direction| {
            Some((direction.clone(), direction.control.snapshot(SNAPSHOT)?))
        };
        let directions: Vec<_> = self.directions.iter().filter_map(answers).collect();
        let counts = directions
            .iter()
            .filter_map(|(_, snapshot)| snapshot.firewall.clone());
        let counts = counts.reduce(FirewallCounts::with);
        Standing {
            directions,
            counts,
            time: self.begun.elapsed(),
        }
    }

    /// Starts the thread that ends bans and rules. An end is a change like others: it comes into force for all workers at once.
    pub fn end_bans(self: &Arc<Self>) -> std::io::Result<Clock> {
        let (ends, policy) = (Arc::clone(&self.ends), Arc::clone(&self.policy));
        spawn("firewall clock", 0, move || {
            ends.work(|changes| policy.apply_all(changes))
        })?;
        Ok(Clock(Arc::clone(&self.ends)))
    }
}

/// Publishes a step, once there is room for it.
fn publish(publish: impl Fn() -> Result<u64, Refused>) -> Result<u64, Refused> {
    let begun = Instant::now();
    loop {
        match publish() {
            Err(Refused::NoRoom { .. }) if begun.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
            published => return published,
        }
    }
}

/// Thread that ends bans and rules. It ends when the value is dropped.
#[derive(Debug)]
pub struct Clock(Arc<LiveEnds>);

impl Drop for Clock {
    fn drop(&mut self) {
        self.0.end();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::firewall::{Policy, RuleSettings};
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::sync::mpsc::channel;
    use weir_firewall::Classifier;
    use weir_firewall::rules::RuleList;
    use weir_testkit::wait;

    fn classifier(port: u32) -> Classifier {
        let text = format!("drop udp dport {port}\n");
        let list = RuleList::parse(&text, &mut |_| unreachable!("no set is in a file")).unwrap();
        Classifier::new(list).unwrap()
    }

    /// Two ask for the rules at once, as a change of the file and `ctl reload` do; the first to read them takes its time to compile.
    #[test]
    fn rules_that_were_read_earlier_do_not_replace_those_read_later() {
        let settings = RuleSettings {
            inner: None,
            seed: 1,
            connections: 0,
        };
        let rules = RuleSet::new(classifier(1), settings).unwrap();
        let policy = SharedPolicy::new(Policy::new(None, Arc::new(rules)), 8);
        let reading = AtomicU32::new(2);
        let (begins, begun) = channel();
        let (asks, second) = channel();
        let second = Mutex::new(second);
        let read = move |_: Option<&GivenRules<'_>>| {
            let port = reading.fetch_add(1, Ordering::Relaxed);
            let _ = begins.send(());
            if port == 2 {
                let thread = second.lock().unwrap().recv().unwrap();
                wait::until_thread_sleeps(thread);
            }
            Ok(NewRules {
                classifier: classifier(port),
                called: String::new(),
            })
        };
        let controller =
            Controller::new(policy.clone(), Arc::default(), Vec::new(), Box::new(read));
        std::thread::scope(|scope| {
            scope.spawn(|| controller.reload().unwrap());
            begun.recv().unwrap();
            asks.send(wait::thread_id()).unwrap();
            controller.reload().unwrap();
            assert_eq!(*policy.rules().list().rules[0].text, *"drop udp dport 3");
        });
        assert_eq!(
            *policy.rules().list().rules[0].text,
            *"drop udp dport 3",
            "and it stays so"
        );
    }
}
