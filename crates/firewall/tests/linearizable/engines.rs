//! The engine as it is shipped, behind the trait of engines under test.

use super::history::{ADDRESSES, Engine, PROTOCOLS, Step, Wanted};
use std::sync::Arc;
use weir_firewall::permissions::{AddressChange, PermissionTable};
use weir_firewall::replicas::{self, Refused, Shard, Shared};
use weir_firewall::rules::RuleList;
use weir_firewall::{
    Around, Classifier, Conditions, Counters, Fields, Found, Policy, PolicyChange, Rules, Verdict,
};
use weir_packet::Frame;

#[derive(Debug)]
pub struct List(Classifier);

impl Rules for List {
    fn classifier(&self) -> &Classifier {
        &self.0
    }
}

/// Compiled lists, one for each protocol.
#[derive(Clone, Debug)]
pub struct RuleLists(Vec<Arc<List>>);

/// Number of the first protocol.
const FIRST: u8 = 200;

fn list(proto: u8) -> Arc<List> {
    let text = format!("drop proto {proto} for 1h\n");
    let list = RuleList::parse(&text, &mut |_| unreachable!("no sets")).unwrap();
    Arc::new(List(Classifier::new(list).unwrap()))
}

impl RuleLists {
    pub fn new() -> Self {
        Self((FIRST..FIRST + PROTOCOLS as u8).map(list).collect())
    }

    fn change(&self, step: &Step) -> PolicyChange<List> {
        match *step {
            Step::Address(change) => PolicyChange::Address(AddressChange::V4(change)),
            Step::Rules(Some(proto)) => {
                PolicyChange::Rules(Arc::clone(&self.0[usize::from(proto)]))
            }
            Step::Rules(None) => PolicyChange::Expired(0),
        }
    }
}

/// Table and rules with a replica for each worker.
pub struct Sharded {
    shared: Arc<Shared<Policy<List>>>,
    lists: RuleLists,
}

pub fn sharded(lists: &RuleLists, seed: u64) -> Sharded {
    let table = PermissionTable::new(ADDRESSES, true, seed);
    // At first no packet is dropped by rules.
    Sharded {
        shared: Shared::new(Policy::new(Some(table), list(99)), 64),
        lists: lists.clone(),
    }
}

pub struct ShardedWorker {
    worker: replicas::Worker<Policy<List>>,
    lists: RuleLists,
    counters: Counters,
}

fn room<T>(applied: Result<T, Refused>) -> Option<T> {
    match applied {
        Ok(number) => Some(number),
        Err(Refused::NoRoom { .. }) => None,
        Err(refused) => panic!("{refused}"),
    }
}

impl Engine for Sharded {
    const HAS_RULES: bool = true;
    type Worker = ShardedWorker;

    fn worker(&self, _: u32, shard: Shard) -> ShardedWorker {
        ShardedWorker {
            worker: self.shared.worker(shard),
            lists: self.lists.clone(),
            counters: Counters::new(1),
        }
    }

    fn try_apply(&self, step: &Step) -> Option<u64> {
        room(self.shared.apply(&self.lists.change(step)))
    }

    fn is_in_force(&self, number: u64) -> bool {
        self.shared.is_in_force(number)
    }

    fn begin(worker: &mut ShardedWorker, _: &[Wanted]) {
        worker.worker.begin();
    }

    fn passes(worker: &mut ShardedWorker, _: usize, (source, destination, proto): Wanted) -> bool {
        let (src, dst, proto) = (source.into(), destination.into(), Some(FIRST + proto));
        let fields = [Fields::of_addresses(false, src, dst, proto)];
        let (mut found, policy) = ([Found::default()], worker.worker.value());
        policy.look_up(&fields, &mut found);
        let frame = Frame {
            data: &[],
            wire_len: 0,
            interface: 0,
        };
        let conditions = Conditions::default();
        let around = Around {
            conditions,
            ..Around::of(frame)
        };
        policy
            .judge(found[0], &fields[0], &around, &mut worker.counters)
            .0
            == Verdict::Pass
    }

    fn change(worker: &mut ShardedWorker, step: &Step) -> Option<u64> {
        room(worker.worker.change(&worker.lists.change(step)))
    }

    fn end(worker: &mut ShardedWorker) {
        worker.worker.end();
    }
}
