//! Long runs of the engine, judged as one global order; see [`history`].

#[path = "linearizable/engines.rs"]
mod engines;
#[path = "linearizable/faults.rs"]
mod faults;
#[path = "linearizable/history.rs"]
mod history;

use engines::{RuleLists, sharded};
use history::{
    Applied, DISTRIBUTIONS, Distribution, Judge, Size, Step, Violation, forced,
    histories_have_one_global_order, of_mix, run, serial_histogram,
};
use weir_firewall::permissions::{Change, Permissions};
use weir_firewall::replicas::Shared;
use weir_generator::trains::{Data, MIXES};

#[test]
fn histories_of_the_sharded_engine_have_one_global_order() {
    let lists = RuleLists::new();
    histories_have_one_global_order("sharded", |seed| sharded(&lists, seed));
}

/// The judge finds faults that are planted into a sound history.
#[test]
fn the_judge_finds_planted_faults() {
    let size = Size {
        packets: 40_000,
        changes: 2_000,
        workers: 2,
        distribution: Distribution::Random,
        seed: 5,
    };
    let (changes, packets) = run(&sharded(&RuleLists::new(), 5), size);
    let sound = Judge::new(changes.clone(), true).unwrap();
    assert_eq!(sound.check(packets.clone()), Ok(()));
    // Two changes in the wrong order, and a change that is missing.
    let mut swapped = changes.clone();
    swapped.iter_mut().for_each(|applied| {
        applied.number = match applied.number {
            5 => 900,
            900 => 5,
            number => number,
        }
    });
    assert!(matches!(
        Judge::new(swapped, true),
        Err(Violation::ChangesOutOfOrder(_))
    ));
    let missing: Vec<Applied> = changes
        .iter()
        .filter(|applied| applied.number != 7)
        .copied()
        .collect();
    assert!(matches!(
        Judge::new(missing, true),
        Err(Violation::ChangesOutOfOrder(7 | 8))
    ));
    // Acknowledgements before the changes are in force. Threads share cores, so this takes more than a turn of a thread to show.
    const SHIFT_NS: u64 = 20_000_000;
    let mut early = changes.clone();
    early.iter_mut().for_each(|applied| {
        applied.begin_ns = applied.begin_ns.saturating_sub(SHIFT_NS);
        applied.made_ns = applied.made_ns.saturating_sub(SHIFT_NS);
        applied.end_ns = applied.end_ns.saturating_sub(SHIFT_NS);
    });
    assert!(matches!(
        Judge::new(early, true).unwrap().check(packets.clone()),
        Err(Violation::NoInstant(_))
    ));
    // Verdicts by a table that is late.
    let mut late = packets.clone();
    late.iter_mut().for_each(|packet| {
        packet.begin_ns += SHIFT_NS;
        packet.end_ns += SHIFT_NS;
    });
    assert!(matches!(sound.check(late), Err(Violation::NoInstant(_))));
    // One verdict turned, anywhere that its instant allows only one.
    let mut found = 0;
    for i in (0..packets.len()).step_by(packets.len().div_ceil(60)) {
        let mut turned = packets.clone();
        turned[i].passed = !turned[i].passed;
        found += u32::from(sound.check(turned).is_err());
    }
    assert!(found > 30, "{found} of 60 turned verdicts");
    // Flags that never come into force, with their ranges in time.
    let mut torn = changes.clone();
    torn.iter_mut().for_each(|applied| {
        if let Step::Address(change) = &mut applied.step {
            change.persona_non_grata = None;
        }
    });
    assert!(Judge::new(torn, true).unwrap().check(packets).is_err());
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
        let table = |seed| Permissions::<u32>::new(mix.addresses() as usize, true, seed);
        for (distribution, of) in DISTRIBUTIONS
            .into_iter()
            .flat_map(|it| [1, 2, 3].map(|of| (it, of)))
        {
            let shared = Shared::new(table(2), 128);
            let judge = |shard| {
                let mut worker = shared.worker(shard);
                move |number, data: Option<&Data>| {
                    worker.begin_at(number);
                    let passes = data
                        .is_some_and(|data| worker.value().passes(data.source, data.destination));
                    worker.end();
                    passes
                }
            };
            // A worker without packets does not take up changes: it is brought up when the log is full.
            let apply = |change: &Change<u32>, drain: &dyn Fn()| match shared.apply(change) {
                Ok(number) => number,
                Err(_) => {
                    drain();
                    shared.apply(change).unwrap()
                }
            };
            assert!(
                forced((&packets, distribution, of), judge, apply) == wanted,
                "sharded, {distribution:?}, {of} workers"
            );
        }
    }
}
