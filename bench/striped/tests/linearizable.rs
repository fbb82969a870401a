//! Long runs of the parent's engine, judged as one global order, as weir's own engine is.

#[path = "../../../crates/firewall/tests/linearizable/history.rs"]
mod history;

use history::{
    ADDRESSES, DISTRIBUTIONS, Engine, Step, Wanted, forced, histories_have_one_global_order,
    of_mix, serial_histogram,
};
use std::sync::Arc;
use weir_bench_striped::{Striped, StripedWorker};
use weir_firewall::permissions::Change;
use weir_firewall::replicas::Shard;
use weir_generator::trains::{Data, MIXES};

fn of_address(step: &Step) -> &Change<u32> {
    match step {
        Step::Address(change) => change,
        Step::Rules(_) => unreachable!("the engine has no rules"),
    }
}

impl Engine for Arc<Striped<u32>> {
    type Worker = StripedWorker<u32>;

    /// Any worker judges packets to any destination.
    fn worker(&self, _: u32, _: Shard) -> StripedWorker<u32> {
        Striped::worker(self, 64)
    }

    fn try_apply(&self, step: &Step) -> Option<u64> {
        Some(self.apply(of_address(step)).unwrap())
    }

    fn is_in_force(&self, number: u64) -> bool {
        Striped::is_in_force(self, number)
    }

    fn begin(worker: &mut StripedWorker<u32>, _: &[Wanted]) {
        worker.begin();
    }

    fn passes(worker: &mut StripedWorker<u32>, _: usize, (source, destination, _): Wanted) -> bool {
        worker.denies(source, destination).is_none()
    }

    fn change(worker: &mut StripedWorker<u32>, step: &Step) -> Option<u64> {
        Some(worker.change(of_address(step)).unwrap())
    }

    fn end(worker: &mut StripedWorker<u32>) {
        worker.end();
    }
}

#[test]
fn histories_have_one_order() {
    histories_have_one_global_order("striped", |seed| Striped::new(ADDRESSES, true, 8, seed));
}

#[test]
fn forced_order_gives_the_serial_histogram() {
    for mix in &MIXES {
        let packets = of_mix(mix, 3_000);
        let wanted = serial_histogram(mix, &packets);
        let accepted: u64 = wanted.iter().sum();
        assert!(
            accepted > 100 && accepted < packets.len() as u64,
            "{accepted} packets are accepted"
        );
        for (distribution, of) in DISTRIBUTIONS
            .into_iter()
            .flat_map(|it| [1, 2, 3].map(|of| (it, of)))
        {
            let striped = Striped::<u32>::new(mix.addresses() as usize, true, 32, 3);
            let judge = |_| {
                let mut worker = striped.worker(64);
                move |_, data: Option<&Data>| {
                    worker.begin();
                    let passes = data
                        .is_some_and(|data| worker.denies(data.source, data.destination).is_none());
                    worker.end();
                    passes
                }
            };
            // One table has one moment: the packets before a change are judged first.
            let apply = |change: &Change<u32>, drain: &dyn Fn()| {
                drain();
                striped.apply(change).unwrap()
            };
            assert!(
                forced((&packets, distribution, of), judge, apply) == wanted,
                "{distribution:?}, {of} workers"
            );
        }
    }
}
