//! Changes of a firewall's policy while it works: by requests, by a new rules file, and when a ban or a rule expires.

use super::{Change, FirewallCounts, Policy, RuleSet, SharedPolicy};
use crate::control::{Control, Snapshot};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_firewall::Classifier;
use weir_firewall::permissions::AddressChange;
use weir_firewall::replicas::Refused;
use weir_pipeline::threads::spawn;

/// Longest wait until a change is in force on every worker, and for room in the log.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest wait for the state of a direction.
const SNAPSHOT: Duration = Duration::from_secs(1);

/// Pause while the log has no room.
const PAUSE: Duration = Duration::from_micros(50);

/// Longest time of a ban.
const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Function that reads the rules again. **Errors**: the reason as one line.
pub type ReadRules = Box<dyn Fn() -> Result<Classifier, String> + Send + Sync>;

/// A direction of a firewall.
#[derive(Clone, Debug)]
pub struct Direction {
    /// Name of the source.
    pub source: String,
    /// Name of the sink.
    pub sink: String,
    /// Control of the run.
    pub control: Arc<Control>,
}

/// Controller of a firewall, for several threads. Changes of all callers have one order, and each is in force on every worker when its
/// call returns.
pub struct Controller {
    policy: Arc<SharedPolicy>,
    read_rules: ReadRules,
    directions: Vec<Direction>,
    /// Ends of bans, by address. The lock gives changes their order.
    ends: Mutex<Ends>,
    /// Signals that the next end, or `is_over`, has changed.
    changed: Condvar,
    begun: Instant,
}

#[derive(Debug, Default)]
struct Ends {
    by_address: BTreeMap<IpAddr, Instant>,
    /// Ends of rules in force, by their numbers.
    by_rule: BTreeMap<u32, Instant>,
    is_over: bool,
}

impl Ends {
    /// Returns the earliest end.
    fn next(&self) -> Option<Instant> {
        self.by_address.values().chain(self.by_rule.values()).min().copied()
    }

    /// Goes over to other rules: a rule that was in the list before keeps its end, or is over already.
    fn follow(&mut self, rules: &RuleSet, now: Instant) {
        let before = std::mem::take(&mut self.by_rule);
        let places = rules.carried().unwrap_or_default();
        let mut known: BTreeMap<u32, Option<Instant>> = BTreeMap::new();
        for (number, place) in (0..).zip(places) {
            known.extend(place.map(|place| (place, before.get(&number).copied())));
        }
        for (number, rule) in (0..).zip(&rules.list().rules) {
            let Some(lasts) = rule.lasts else { continue };
            let end = known.get(&number).copied().unwrap_or(Some(now + lasts));
            self.by_rule.extend(end.map(|end| (number, end)));
        }
    }
}

impl core::fmt::Debug for Controller {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Controller").field("directions", &self.directions).finish_non_exhaustive()
    }
}

/// Reason for which a change is refused, or not yet in force.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChangeError {
    /// The words make no sense.
    #[error("{0}")]
    Words(String),
    /// There is no room for the change. Changes before it are in force.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// Batches that began before the change are still under way. Later batches are judged by it.
    #[error("change {0} is made, and batches from before it are still under way")]
    UnderWay(u64),
    /// The rules cannot be read. The rules before stay in force.
    #[error("{0}; the rules stay as they are")]
    Rules(String),
}

/// A banned address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ban {
    /// The address.
    pub address: IpAddr,
    /// Time until the ban ends; `None` if it does not end by itself.
    pub left: Option<Duration>,
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
    /// Makes the controller of a policy that is at work in these directions.
    pub fn new(policy: Arc<SharedPolicy>, directions: Vec<Direction>, read_rules: ReadRules) -> Arc<Self> {
        let (mut ends, changed, begun) = (Ends::default(), Condvar::new(), Instant::now());
        policy.with(|policy| ends.follow(&policy.rules, begun));
        Arc::new(Self { policy, read_rules, directions, ends: Mutex::new(ends), changed, begun })
    }

    fn ends(&self) -> MutexGuard<'_, Ends> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the changes of lines of a permission table, as one order without others between; bans among them end after `time`, if it
    /// is given. Returns the number of the last change, which is in force as all before it; 0 if there was none.
    pub fn apply<'a>(
        &self,
        lines: impl IntoIterator<Item = &'a str>,
        time: Option<Duration>,
    ) -> Result<u64, ChangeError> {
        if time.is_some_and(|time| time > LONGEST) {
            return Err(ChangeError::Words("the time is longer than 100 years".to_owned()));
        }
        let mut changes = Vec::new();
        for line in lines {
            changes.extend(AddressChange::parse(line).map_err(|why| ChangeError::Words(why.to_string()))?);
        }
        let mut ends = self.ends();
        let mut last = 0;
        for change in changes {
            last = self.publish(&Change::Address(change))?;
            match (change.persona_non_grata(), time) {
                (Some(true), Some(time)) => drop(ends.by_address.insert(change.address(), Instant::now() + time)),
                (Some(_), _) => drop(ends.by_address.remove(&change.address())),
                (None, _) => {}
            }
        }
        drop(ends);
        self.changed.notify_all();
        self.wait(last)
    }

    /// Publishes a change, once there is room for it.
    fn publish(&self, change: &Change) -> Result<u64, Refused> {
        let begun = Instant::now();
        loop {
            match self.policy.apply(change) {
                Err(Refused::NoRoom { .. }) if begun.elapsed() < PATIENCE => std::thread::sleep(PAUSE),
                applied => return applied,
            }
        }
    }

    fn wait(&self, change: u64) -> Result<u64, ChangeError> {
        match self.policy.wait(change, PATIENCE) {
            true => Ok(change),
            false => Err(ChangeError::UnderWay(change)),
        }
    }

    /// Reads the rules again, compiles them beside those in force, and puts them in their place. Returns the number of the change and
    /// the rules, which are in force on every worker. **Errors**: the rules before stay in force, but for [`ChangeError::UnderWay`].
    pub fn reload(&self) -> Result<(u64, Arc<RuleSet>), ChangeError> {
        let classifier = (self.read_rules)().map_err(ChangeError::Rules)?;
        // Holds off other changes of rules, so that the successor is that of the rules in force.
        let mut ends = self.ends();
        let (before, expired) = self.policy.with(|policy| (Arc::clone(&policy.rules), policy.expired().to_vec()));
        let rules = before.successor(classifier, &expired);
        let rules = Arc::new(rules.map_err(|senseless| ChangeError::Rules(senseless.why))?);
        let change = self.publish(&Change::Rules(Arc::clone(&rules)))?;
        ends.follow(&rules, Instant::now());
        drop(ends);
        self.changed.notify_all();
        self.wait(change).map(|change| (change, rules))
    }

    /// Returns the banned addresses, those of a permission table among them.
    pub fn bans(&self) -> Vec<Ban> {
        let (ends, now) = (self.ends(), Instant::now());
        let banned = self.policy.with(|policy: &Policy| {
            policy.permissions.as_ref().map(|table| table.banned().collect::<Vec<_>>()).unwrap_or_default()
        });
        let left = |address: &IpAddr| ends.by_address.get(address).map(|end| end.saturating_duration_since(now));
        let mut bans: Vec<Ban> = banned.iter().map(|&address| Ban { address, left: left(&address) }).collect();
        bans.sort_unstable_by_key(|ban| ban.address);
        bans
    }

    /// Returns the state of all directions, each at the end of a batch.
    pub fn standing(&self) -> Standing {
        let answers = |direction: &Direction| Some((direction.clone(), direction.control.snapshot(SNAPSHOT)?));
        let directions: Vec<_> = self.directions.iter().filter_map(answers).collect();
        let counts = directions.iter().filter_map(|(_, snapshot)| snapshot.firewall.clone());
        let counts = counts.reduce(FirewallCounts::with);
        Standing { directions, counts, time: self.begun.elapsed() }
    }

    /// Starts the thread that ends bans and rules. An end is a change like others: it comes into force for all workers at once.
    pub fn end_bans(self: &Arc<Self>) -> std::io::Result<Clock> {
        let controller = Arc::clone(self);
        spawn("firewall clock", 0, move || controller.work())?;
        Ok(Clock(Arc::clone(self)))
    }

    fn work(&self) {
        let mut ends = self.ends();
        while !ends.is_over {
            let now = Instant::now();
            let due: Vec<IpAddr> = ends.by_address.iter().filter(|(_, end)| **end <= now).map(|(ip, _)| *ip).collect();
            for address in due {
                let change = AddressChange::banning(address, false);
                // The address has room already. If a worker stands still, the next turn tries again.
                if self.publish(&Change::Address(change)).is_ok() {
                    ends.by_address.remove(&address);
                }
            }
            let due: Vec<u32> = ends.by_rule.iter().filter(|(_, end)| **end <= now).map(|(rule, _)| *rule).collect();
            for rule in due {
                if self.publish(&Change::Expired(rule)).is_ok() {
                    ends.by_rule.remove(&rule);
                }
            }
            let next = ends.next().map(|end| end.saturating_duration_since(Instant::now()));
            let next = next.unwrap_or(Duration::from_secs(3600)).max(Duration::from_millis(1));
            ends = self.changed.wait_timeout(ends, next).unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Thread that ends bans and rules. It ends when the value is dropped.
#[derive(Debug)]
pub struct Clock(Arc<Controller>);

impl Drop for Clock {
    fn drop(&mut self) {
        self.0.ends().is_over = true;
        self.0.changed.notify_all();
    }
}
