//! Both rule forms together.

use crate::permissions::{AddressChange, Full, PermissionTable, Permissions, log};
use crate::replicas::{Replicated, Shard, Shared, WORDS};
use crate::{Around, Classifier, Conditions, Content, Counters, DecidedBy, Fields, Found, Verdict};
use core::fmt::{self, Debug, Formatter};
use core::net::IpAddr;
use core::slice;
use std::sync::Arc;

/// A compiled rule list, and what its owner keeps next to it.
pub trait Rules: Debug + Send + Sync {
    /// Returns the rule list.
    fn classifier(&self) -> &Classifier;

    /// Returns the numbers of the rules that expired before the list came into force, in ascending order: rules that were in the list before
    /// it too.
    fn expired(&self) -> &[u32] {
        &[]
    }
}

/// A permission table, if there is one, and a rule list: a packet passes if both let it pass. The table is asked first.
pub struct Policy<R> {
    /// The permission table.
    pub permissions: Option<PermissionTable>,
    /// The rule list.
    pub rules: Arc<R>,
    /// Numbers of the rules that have expired, in ascending order.
    expired: Vec<u32>,
}

impl<R> Clone for Policy<R> {
    fn clone(&self) -> Self {
        let Self {
            permissions,
            rules,
            expired,
        } = self;
        Self {
            permissions: permissions.clone(),
            rules: Arc::clone(rules),
            expired: expired.clone(),
        }
    }
}

impl<R: Debug> Debug for Policy<R> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("rules", &self.rules)
            .finish_non_exhaustive()
    }
}

/// A change of a policy, which is one step.
#[derive(Debug)]
pub enum PolicyChange<R> {
    /// Permissions of an address, if there is a permission table.
    Address(AddressChange),
    /// Another rule list in place of the one before.
    Rules(Arc<R>),
    /// The rule of this number has expired.
    Expired(u32),
}

/// Bit of the last word that marks a change of IPv6 permissions.
const V6: u64 = 1 << 32;

/// Bit of the last word that marks the number of an expired rule.
const EXPIRED: u64 = 1 << 33;

impl<R: Rules> Policy<R> {
    /// Makes a policy of a table and a list.
    pub fn new(permissions: Option<PermissionTable>, rules: Arc<R>) -> Self {
        let expired = rules.expired().to_vec();
        Self {
            permissions,
            rules,
            expired,
        }
    }

    /// Returns the numbers of the rules that have expired, in ascending order.
    pub fn expired(&self) -> &[u32] {
        &self.expired
    }

    /// Finds for several packets what [`Self::judge`] needs; their waits for memory are one.
    pub fn look_up(&self, fields: &[Fields], found: &mut [Found]) {
        if let Some(table) = &self.permissions {
            fields.iter().for_each(|fields| table.prefetch(fields));
        }
        self.rules.classifier().look_up(fields, found);
    }

    /// Judges a frame whose rows were [found](Self::look_up), and counts it. The permission table
    /// judges the packets that rules judge: IP packets, and neighbor discovery if the rule list
    /// says so; of neighbor discovery that passes before the rules it denies what comes from a
    /// *persona non grata*. The policy knows which rules have expired; `around` does not.
    ///
    /// **Cost**: two searches in hash tables, and [`Classifier::judge`]. No allocation.
    pub fn judge(
        &self,
        found: Found,
        fields: &Fields,
        around: &Around<'_>,
        counters: &mut Counters,
    ) -> (Verdict, DecidedBy) {
        let rules = self.rules.classifier();
        let content = fields.content();
        let denied = match content {
            Content::Ip | Content::Neighbors => self
                .permissions
                .as_ref()
                .and_then(|table| table.denies(fields)),
            Content::NonIp | Content::Malformed => None,
        };
        // A destination that accepts few sources needs neighbors all the same; a source that is banned is none.
        let holds = |by: &DecidedBy| {
            content == Content::Ip
                || *by == DecidedBy::PersonaNonGrata
                || rules.list().neighbors_by_rules
        };
        match denied.filter(holds) {
            Some(by) => {
                counters.decide(Verdict::Drop, by, around.frame.wire_len);
                (Verdict::Drop, by)
            }
            None if self.expired.is_empty() => rules.judge_found(found, fields, around, counters),
            None => {
                let conditions = Conditions {
                    expired: &self.expired,
                    ..around.conditions
                };
                rules.judge_found(
                    found,
                    fields,
                    &Around {
                        conditions,
                        ..*around
                    },
                    counters,
                )
            }
        }
    }
}

impl<R: Rules> Shared<Policy<R>> {
    /// Returns the rules in force.
    pub fn rules(&self) -> Arc<R> {
        self.with(|policy| Arc::clone(&policy.rules))
    }

    /// Returns the numbers of the rules that have expired, in ascending order.
    pub fn expired(&self) -> Vec<u32> {
        self.with(|policy| policy.expired.clone())
    }

    /// Returns the banned addresses, in no order.
    pub fn banned(&self) -> Vec<IpAddr> {
        self.with(|policy| {
            policy
                .permissions
                .iter()
                .flat_map(PermissionTable::banned)
                .collect()
        })
    }
}

impl<R: Rules> Replicated for Policy<R> {
    type Change = PolicyChange<R>;
    type Large = R;

    fn has_room(&self, changes: &[PolicyChange<R>]) -> Result<(), Full> {
        let of_addresses = changes.iter().filter_map(|change| match change {
            PolicyChange::Address(change) => Some(change),
            PolicyChange::Rules(_) | PolicyChange::Expired(_) => None,
        });
        match &self.permissions {
            Some(table) => table.has_room(of_addresses),
            None if of_addresses.count() == 0 => Ok(()),
            None => Err(Full { most: 0 }),
        }
    }

    fn apply(&mut self, change: &PolicyChange<R>) -> Result<(), Full> {
        match change {
            PolicyChange::Address(change) => self
                .permissions
                .as_mut()
                .ok_or(Full { most: 0 })?
                .apply(change),
            PolicyChange::Rules(rules) => {
                self.rules = Arc::clone(rules);
                self.expired = rules.expired().to_vec();
                Ok(())
            }
            PolicyChange::Expired(rule) => {
                if let Err(place) = self.expired.binary_search(rule) {
                    self.expired.insert(place, *rule);
                }
                Ok(())
            }
        }
    }

    fn prefetch(&self, changes: &[PolicyChange<R>]) {
        let Some(table) = &self.permissions else {
            return;
        };
        for change in changes {
            match change {
                PolicyChange::Address(AddressChange::V4(change)) => {
                    Replicated::prefetch(&table.v4, slice::from_ref(change))
                }
                PolicyChange::Address(AddressChange::V6(change)) => {
                    Replicated::prefetch(&table.v6, slice::from_ref(change))
                }
                PolicyChange::Rules(_) | PolicyChange::Expired(_) => {}
            }
        }
    }

    fn encode(change: &PolicyChange<R>) -> ([u64; WORDS], Option<Arc<R>>) {
        match change {
            PolicyChange::Address(AddressChange::V4(change)) => (log::words(change), None),
            PolicyChange::Address(AddressChange::V6(change)) => {
                let mut words = log::words(change);
                words[WORDS - 1] |= V6;
                (words, None)
            }
            PolicyChange::Rules(rules) => ([0; WORDS], Some(Arc::clone(rules))),
            PolicyChange::Expired(rule) => {
                let mut words = [0; WORDS];
                (words[0], words[WORDS - 1]) = (u64::from(*rule), EXPIRED);
                (words, None)
            }
        }
    }

    fn decode(words: [u64; WORDS], large: Option<Arc<R>>) -> PolicyChange<R> {
        match large {
            Some(rules) => PolicyChange::Rules(rules),
            None if words[WORDS - 1] & EXPIRED != 0 => PolicyChange::Expired(words[0] as u32),
            None if words[WORDS - 1] & V6 != 0 => {
                PolicyChange::Address(AddressChange::V6(log::change(words)))
            }
            None => PolicyChange::Address(AddressChange::V4(log::change(words))),
        }
    }

    fn large(&self) -> Option<Arc<R>> {
        Some(Arc::clone(&self.rules))
    }

    fn keep(&mut self, shard: Shard) {
        if let Some(table) = &mut self.permissions {
            table.v4.keep(shard);
            table.v6.keep(shard);
        }
    }

    fn part(change: PolicyChange<R>, shard: Shard) -> PolicyChange<R> {
        match change {
            PolicyChange::Address(change) => PolicyChange::Address(match change {
                AddressChange::V4(change) => AddressChange::V4(Permissions::part(change, shard)),
                AddressChange::V6(change) => AddressChange::V6(Permissions::part(change, shard)),
            }),
            rules @ (PolicyChange::Rules(_) | PolicyChange::Expired(_)) => rules,
        }
    }
}
