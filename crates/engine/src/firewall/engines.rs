//! The two engines that judge packets while permissions change: `sharded` and `striped`.

use super::{Change, Policy, RuleSet, SharedPolicy};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use weir_firewall::permissions::{AddressChange, Full, PermissionTable};
use weir_firewall::replicas::{self, Refused, Shard};
use weir_firewall::striped::{StripedTable, StripedTableWorker};
use weir_firewall::{Around, Counters, DecidedBy, Fields, Found, Verdict};

/// Stripes of each family: many more than workers, so that two seldom want the same.
const STRIPES: usize = 1024;

/// Changes that may be one step of the striped engine, which has no log.
const STEP: usize = 8192;

/// Rules and permissions that all workers of a firewall judge by.
#[derive(Clone, Debug)]
pub enum Engine {
    /// A replica of table and rules for each worker.
    Sharded(Arc<SharedPolicy>),
    /// One permission table for all workers, and a cache of verdicts for each.
    Striped(Arc<Striped>),
}

/// The striped engine: it judges by the permission table alone.
#[derive(Debug)]
pub struct Striped {
    table: Arc<StripedTable>,
    /// The policy for what the table lets pass: no rules, and no table.
    rest: Policy,
    /// Verdicts in the cache of a worker, for each family.
    cache: usize,
}

impl Engine {
    /// Makes the striped engine. `rules` are an empty list; workers have caches of `cache` verdicts; `seed` decides where addresses lie.
    pub fn striped(table: PermissionTable, rules: Arc<RuleSet>, cache: usize, seed: u64) -> Self {
        let table = StripedTable::new(table, STRIPES, seed);
        Self::Striped(Arc::new(Striped {
            table,
            rest: Policy::new(None, rules),
            cache,
        }))
    }

    /// Returns the rules in force.
    pub fn rules(&self) -> Arc<RuleSet> {
        match self {
            Self::Sharded(policy) => policy.with(|policy| Arc::clone(&policy.rules)),
            Self::Striped(striped) => Arc::clone(&striped.rest.rules),
        }
    }

    /// Returns the numbers of the rules that have expired.
    pub fn expired(&self) -> Vec<u32> {
        match self {
            Self::Sharded(policy) => policy.with(|policy| policy.expired().to_vec()),
            Self::Striped(_) => Vec::new(),
        }
    }

    /// Returns the banned addresses, in no order.
    pub fn banned(&self) -> Vec<IpAddr> {
        let banned = |policy: &Policy| {
            policy
                .permissions
                .as_ref()
                .map(|table| table.banned().collect())
        };
        match self {
            Self::Sharded(policy) => policy.with(banned).unwrap_or_default(),
            Self::Striped(striped) => striped.table.banned(),
        }
    }

    /// Returns the number of changes that may be one step, at most.
    pub fn room(&self) -> usize {
        match self {
            Self::Sharded(policy) => policy.room(),
            Self::Striped(_) => STEP,
        }
    }

    /// Applies several changes as one step, and returns the number of the last. **Errors**: no room for all of them; nothing has changed then.
    pub fn apply_all(&self, changes: &[Change]) -> Result<u64, Refused> {
        match self {
            Self::Sharded(policy) => policy.apply_all(changes),
            Self::Striped(striped) => Ok(striped.table.apply_all(&of_addresses(changes)?)?),
        }
    }

    /// Waits until the change of this number is in force on every worker; `false` if a batch still runs after `timeout` that began before it.
    pub fn wait(&self, number: u64, timeout: Duration) -> bool {
        match self {
            Self::Sharded(policy) => policy.wait(number, timeout),
            Self::Striped(striped) => striped.table.wait(number, timeout),
        }
    }

    /// Makes a worker, which judges packets to any destination. **Cost**: a copy of the policy, or a cache.
    pub(super) fn worker(&self) -> Worker {
        match self {
            Self::Sharded(policy) => Worker::Sharded(policy.worker(Shard::ALL)),
            Self::Striped(striped) => Worker::Striped {
                table: striped.table.worker(striped.cache),
                rest: striped.rest.clone(),
            },
        }
    }
}

/// Returns the changes of addresses. **Errors**: there are others, for which the striped engine has no room.
fn of_addresses(changes: &[Change]) -> Result<Vec<AddressChange>, Full> {
    let of_address = |change: &Change| match change {
        Change::Address(change) => Ok(*change),
        Change::Rules(_) | Change::Expired(_) => Err(Full { most: 0 }),
    };
    changes.iter().map(of_address).collect()
}

/// A worker of an engine.
#[derive(Debug)]
pub(super) enum Worker {
    Sharded(replicas::Worker<Policy>),
    Striped {
        table: StripedTableWorker,
        rest: Policy,
    },
}

impl Worker {
    /// Begins a batch that was taken before.
    pub(super) fn begin(&mut self) {
        match self {
            Self::Sharded(worker) => drop(worker.begin()),
            Self::Striped { table, .. } => table.begin(),
        }
    }

    /// Ends the batch, once its packets have gone out.
    pub(super) fn end(&mut self) {
        match self {
            Self::Sharded(worker) => worker.end(),
            Self::Striped { table, .. } => table.end(),
        }
    }

    /// Takes up the changes so far, without a batch.
    pub(super) fn take_up(&mut self) {
        match self {
            Self::Sharded(worker) => worker.take_up(),
            // The table is that of all workers.
            Self::Striped { .. } => {}
        }
    }

    /// Applies several changes that came as one packet of the batch under way, as one step. **Errors**: no room; nothing has changed then.
    pub(super) fn change_all(&mut self, changes: &[Change]) -> Result<u64, Refused> {
        match self {
            Self::Sharded(worker) => worker.change_all(changes),
            Self::Striped { table, .. } => Ok(table.change_all(&of_addresses(changes)?)?),
        }
    }

    /// Returns the policy that the batch under way is judged by; that of a striped engine has no table.
    pub(super) fn value(&self) -> &Policy {
        match self {
            Self::Sharded(worker) => worker.value(),
            Self::Striped { rest, .. } => rest,
        }
    }

    /// Whether there is a permission table.
    pub(super) fn has_table(&self) -> bool {
        matches!(self, Self::Striped { .. }) || self.value().permissions.is_some()
    }

    /// Judges a frame of the batch under way, and counts it; see [`Policy::judge`].
    #[inline]
    pub(super) fn judge(
        &mut self,
        found: Found,
        fields: &Fields,
        around: &Around<'_>,
        counters: &mut Counters,
    ) -> (Verdict, DecidedBy) {
        match self {
            Self::Sharded(worker) => worker.value().judge(found, fields, around, counters),
            Self::Striped { table, rest } => rest.judge_by(
                |fields| table.denies(fields),
                found,
                fields,
                around,
                counters,
            ),
        }
    }
}
