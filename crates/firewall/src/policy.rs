//! Both rule forms together.

use crate::permissions::{AddressChange, Full, PermissionTable, Permissions, log};
use crate::replicas::{Replicated, Shard, WORDS};
use crate::{Around, Classifier, Content, Counters, DecidedBy, Fields, Found, Verdict};
use core::fmt::{self, Debug, Formatter};
use std::sync::Arc;

/// A compiled rule list, and what its owner keeps beside it.
pub trait Rules: Debug + Send + Sync {
    /// Returns the rule list.
    fn classifier(&self) -> &Classifier;
}

/// A permission table, if there is one, and a rule list: a packet passes if both let it pass. The table is asked first.
pub struct Policy<R> {
    /// The permission table.
    pub permissions: Option<PermissionTable>,
    /// The rule list.
    pub rules: Arc<R>,
}

impl<R> Clone for Policy<R> {
    fn clone(&self) -> Self {
        Self { permissions: self.permissions.clone(), rules: Arc::clone(&self.rules) }
    }
}

impl<R: Debug> Debug for Policy<R> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy").field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// A change of a policy, which is one step.
#[derive(Debug)]
pub enum PolicyChange<R> {
    /// Permissions of an address, if there is a permission table.
    Address(AddressChange),
    /// Another rule list in place of the one before.
    Rules(Arc<R>),
}

/// Bit of the last word that marks a change of IPv6 permissions.
const V6: u64 = 1 << 32;

impl<R: Rules> Policy<R> {
    /// Finds for several packets what [`Self::judge`] needs; their waits for memory are one.
    pub fn look_up(&self, fields: &[Fields], found: &mut [Found]) {
        if let Some(table) = &self.permissions {
            fields.iter().for_each(|fields| table.prefetch(fields));
        }
        self.rules.classifier().look_up(fields, found);
    }

    /// Judges a frame whose rows were [found](Self::look_up), and counts it. The permission table judges the packets that rules judge: IP
    /// packets, and neighbor discovery if the rule list says so.
    ///
    /// **Cost**: two searches in hash tables, and that of [`Classifier::judge`]. No allocation.
    pub fn judge(
        &self,
        found: Found,
        fields: &Fields,
        around: &Around<'_>,
        counters: &mut Counters,
    ) -> (Verdict, DecidedBy) {
        let rules = self.rules.classifier();
        let is_judged = match fields.content {
            Content::Ip => true,
            Content::Neighbors => rules.list().neighbors_by_rules,
            Content::NonIp | Content::Malformed => false,
        };
        let table = self.permissions.as_ref().filter(|_| is_judged);
        match table.and_then(|table| table.denies(fields)) {
            Some(by) => {
                counters.decide(Verdict::Drop, by, around.frame.wire_len);
                (Verdict::Drop, by)
            }
            None => rules.judge_found(found, fields, around, counters),
        }
    }
}

impl<R: Rules> Replicated for Policy<R> {
    type Change = PolicyChange<R>;
    type Large = R;

    fn apply(&mut self, change: &PolicyChange<R>) -> Result<(), Full> {
        match change {
            PolicyChange::Address(change) => self.permissions.as_mut().ok_or(Full { most: 0 })?.apply(change),
            PolicyChange::Rules(rules) => {
                self.rules = Arc::clone(rules);
                Ok(())
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
        }
    }

    fn decode(words: [u64; WORDS], large: Option<Arc<R>>) -> PolicyChange<R> {
        match large {
            Some(rules) => PolicyChange::Rules(rules),
            None if words[WORDS - 1] & V6 != 0 => PolicyChange::Address(AddressChange::V6(log::change(words))),
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
            rules @ PolicyChange::Rules(_) => rules,
        }
    }
}
