//! Long runs of workers and controllers, whose histories are judged afterwards as one global order.
//!
//! Each thread keeps its own log, with times taken before and behind each operation; there is no shared counter, which would order the
//! threads and hide missing barriers. The judge ([`Judge`]) knows only these logs: changes have the numbers that they were given, and for
//! each packet it looks for an instant between its times at which the tables give its verdict, such that no packet that begins after another
//! has ended comes before it in the order.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Instant;
use weir_firewall::permissions::{Change, Permissions, Span};
use weir_firewall::replicas::{Refused, Shard, Shared, Worker};
use weir_firewall::striped::{Striped, StripedWorker};
use weir_generator::trains::{Config, Data, MIXES, Mix, Packet, Trains, fingerprint};
use weir_testkit::Random;

/// Largest difference between the clocks of two cores, ns: the kernel offers the time-stamp counter as a clock only if all cores agree within
/// less.
const CLOCK_ERROR_NS: u64 = 1_000;

/// A packet that was judged.
#[derive(Clone, Copy, Debug)]
struct Judged {
    begin_ns: u64,
    end_ns: u64,
    source: u32,
    destination: u32,
    passed: bool,
}

/// A change that was applied.
#[derive(Clone, Copy, Debug)]
struct Applied {
    begin_ns: u64,
    /// Time of the acknowledgement.
    end_ns: u64,
    number: u64,
    change: Change<u32>,
}

/// What is wrong with a history.
#[derive(Debug, PartialEq, Eq)]
enum Violation {
    /// Changes whose numbers contradict their times, or that are missing.
    ChangesOutOfOrder(u64),
    /// A packet whose verdict no instant gives.
    NoInstant(String),
}

struct Judge {
    /// For each source, the numbers of changes of its flag, and the flag.
    flags: HashMap<u32, Vec<(u64, bool)>>,
    /// For each destination, the numbers of changes of its ranges.
    rows: HashMap<u32, Vec<(u64, Span<u32>, bool)>>,
    default: bool,
    changes: Vec<Applied>,
}

impl Judge {
    fn new(mut changes: Vec<Applied>, default: bool) -> Result<Self, Violation> {
        changes.sort_by_key(|applied| applied.number);
        let (mut flags, mut rows) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        let mut latest_begin = 0;
        for (i, applied) in changes.iter().enumerate() {
            // Numbers have no gaps, and a change that ended before another one began has the lower number.
            if applied.number != i as u64 + 1 || applied.end_ns + CLOCK_ERROR_NS < latest_begin {
                return Err(Violation::ChangesOutOfOrder(applied.number));
            }
            latest_begin = latest_begin.max(applied.begin_ns);
            let Change { address, persona_non_grata, accepts } = applied.change;
            flags.entry(address).or_default().extend(persona_non_grata.map(|flag| (applied.number, flag)));
            rows.entry(address).or_default().extend(accepts.map(|(sources, yes)| (applied.number, sources, yes)));
        }
        Ok(Self { flags, rows, default, changes })
    }

    /// The first version from `from` to `to` at which the packet has its verdict.
    fn first_version(&self, packet: &Judged, from: u64, to: u64) -> Option<u64> {
        let flags = self.flags.get(&packet.source).map_or(&[][..], Vec::as_slice);
        let rows = self.rows.get(&packet.destination).map_or(&[][..], Vec::as_slice);
        let passes = |version: u64| {
            let behind = flags.partition_point(|change| change.0 <= version);
            let is_bad = behind > 0 && flags[behind - 1].1;
            let behind = rows.partition_point(|change| change.0 <= version);
            let says = rows[..behind].iter().rev().find(|change| change.1.contains(packet.source));
            !is_bad && says.map_or(self.default, |change| change.2)
        };
        // The verdict can only differ where one of its two addresses changes.
        let next = |version: u64| {
            let flag = flags.get(flags.partition_point(|change| change.0 <= version)).map(|change| change.0);
            let row = rows.get(rows.partition_point(|change| change.0 <= version)).map(|change| change.0);
            flag.into_iter().chain(row).min()
        };
        let mut version = from;
        loop {
            if passes(version) == packet.passed {
                return Some(version);
            }
            version = next(version).filter(|next| *next <= to)?;
        }
    }

    /// Looks for a global order of all packets among the changes.
    fn check(&self, mut packets: Vec<Judged>) -> Result<(), Violation> {
        packets.sort_by_key(|packet| packet.begin_ns);
        // Versions that packets need, by the time at which they end; the highest of those that have ended binds all later ones.
        let mut ends: std::collections::BinaryHeap<std::cmp::Reverse<(u64, u64)>> = Default::default();
        let mut bound = 0;
        // Changes that were acknowledged before a time, and those that began before it.
        let mut by_end: Vec<(u64, u64)> = self.changes.iter().map(|applied| (applied.end_ns, applied.number)).collect();
        let mut by_begin: Vec<(u64, u64)> =
            self.changes.iter().map(|applied| (applied.begin_ns, applied.number)).collect();
        by_end.sort_unstable();
        by_begin.sort_unstable();
        let highest = |sorted: &[(u64, u64)]| -> Vec<u64> {
            let mut most = 0;
            let up_to = |(_, number): &(u64, u64)| {
                most = (*number).max(most);
                most
            };
            sorted.iter().map(up_to).collect()
        };
        let (most_by_end, most_by_begin) = (highest(&by_end), highest(&by_begin));
        let before = |sorted: &[(u64, u64)], most: &[u64], time: u64| {
            let behind = sorted.partition_point(|(at, _)| *at < time);
            behind.checked_sub(1).map_or(0, |last| most[last])
        };
        for packet in &packets {
            while let Some(&std::cmp::Reverse((end, version))) = ends.peek()
                && end + CLOCK_ERROR_NS < packet.begin_ns
            {
                bound = bound.max(version);
                ends.pop();
            }
            // No verdict by an older table is given once a change is acknowledged, also none on a packet that came before.
            let acknowledged = before(&by_end, &most_by_end, packet.end_ns.saturating_sub(CLOCK_ERROR_NS));
            let begun = before(&by_begin, &most_by_begin, packet.end_ns + CLOCK_ERROR_NS);
            let from = bound.max(acknowledged);
            // The least version that fits binds the others least.
            let Some(version) = self.first_version(packet, from, begun.max(from)).filter(|_| from <= begun) else {
                return Err(Violation::NoInstant(format!("{packet:?}, from version {from} to {begun}")));
            };
            ends.push(std::cmp::Reverse((packet.end_ns, version)));
        }
        Ok(())
    }
}

fn change(config: &Config) -> Change<u32> {
    let Config { address, persona_non_grata, accepting, begin, end } = *config;
    let accepts = Span::half_open(begin, Some(end)).map(|sources| (sources, accepting));
    Change { address, persona_non_grata: Some(persona_non_grata), accepts }
}

/// Few addresses, so that every change concerns many packets.
fn small() -> Mix {
    Mix {
        addresses_log: 4,
        trains_log: 4,
        config_share: 0.2,
        persona_non_grata_share: 0.3,
        accepting_share: 0.5,
        ..MIXES[0]
    }
}

/// An engine under test.
trait Engine: Sync {
    type Worker: Send;

    fn worker(&self, shard: Shard) -> Self::Worker;
    /// Applies a change; `None` if there is no room yet.
    fn try_apply(&self, change: &Change<u32>) -> Option<u64>;
    fn is_in_force(&self, number: u64) -> bool;
    fn begin(worker: &mut Self::Worker);
    fn passes(worker: &mut Self::Worker, source: u32, destination: u32) -> bool;
    fn end(worker: &mut Self::Worker);
}

impl Engine for Arc<Shared<Permissions<u32>>> {
    type Worker = Worker<Permissions<u32>>;

    fn worker(&self, shard: Shard) -> Self::Worker {
        Shared::worker(self, shard)
    }

    fn try_apply(&self, change: &Change<u32>) -> Option<u64> {
        match Shared::apply(self, change) {
            Ok(number) => Some(number),
            Err(Refused::NoRoom { .. }) => None,
            Err(refused) => panic!("{refused}"),
        }
    }

    fn is_in_force(&self, number: u64) -> bool {
        Shared::is_in_force(self, number)
    }

    fn begin(worker: &mut Self::Worker) {
        worker.begin();
    }

    fn passes(worker: &mut Self::Worker, source: u32, destination: u32) -> bool {
        worker.value().passes(source, destination)
    }

    fn end(worker: &mut Self::Worker) {
        worker.end();
    }
}

impl Engine for Arc<Striped<u32>> {
    type Worker = StripedWorker<u32>;

    /// Any worker judges packets to any destination.
    fn worker(&self, _: Shard) -> Self::Worker {
        Striped::worker(self, 64)
    }

    fn try_apply(&self, change: &Change<u32>) -> Option<u64> {
        Some(Striped::apply(self, change).unwrap())
    }

    fn is_in_force(&self, number: u64) -> bool {
        Striped::is_in_force(self, number)
    }

    fn begin(worker: &mut Self::Worker) {
        worker.begin();
    }

    fn passes(worker: &mut Self::Worker, source: u32, destination: u32) -> bool {
        worker.denies(source, destination).is_none()
    }

    fn end(worker: &mut Self::Worker) {
        worker.end();
    }
}

fn sharded(seed: u64) -> Arc<Shared<Permissions<u32>>> {
    Shared::new(Permissions::new(small().addresses() as usize, true, seed), 64)
}

fn striped(seed: u64) -> Arc<Striped<u32>> {
    Striped::new(Permissions::new(small().addresses() as usize, true, seed), 8, seed)
}

/// Judges packets on each of `workers` threads, in batches, while two threads apply `changes` changes each, and wait for the acknowledgement
/// of each. Keeps `packets` to twice as many packets of each worker, evenly over its time: a part of a sound history is sound. All threads let others run now and then, so that they take turns often where cores are few.
fn run<E: Engine>(
    engine: &E,
    packets: usize,
    changes: usize,
    workers: u32,
    shards: bool,
    seed: u64,
) -> (Vec<Applied>, Vec<Judged>) {
    let start = Instant::now();
    let now = move || start.elapsed().as_nanos() as u64;
    let controlled = AtomicU32::new(0);
    let of = if shards { workers } else { 1 };
    std::thread::scope(|scope| {
        let judges: Vec<_> = (0..workers)
            .map(|index| {
                let mut worker = engine.worker(if shards { Shard { index, of } } else { Shard::ALL });
                let controlled = &controlled;
                scope.spawn(move || {
                    let (mut judged, mut random) = (Vec::with_capacity(packets), Random(seed + u64::from(index)));
                    let (mut batches, mut stride) = (0u64, 1);
                    while judged.len() < packets || controlled.load(Ordering::Relaxed) < 2 {
                        let begin_ns = now();
                        E::begin(&mut worker);
                        let batch = judged.len();
                        for _ in 0..=random.below(8) {
                            let (source, destination) = (random.below(16) as u32, random.below(16) as u32);
                            if Shard::of(destination, of).index == if shards { index } else { 0 } {
                                let passed = E::passes(&mut worker, source, destination);
                                judged.push(Judged { begin_ns, end_ns: 0, source, destination, passed });
                            }
                        }
                        let end_ns = now();
                        E::end(&mut worker);
                        judged[batch..].iter_mut().for_each(|packet| packet.end_ns = end_ns);
                        batches += 1;
                        if batches % stride != 0 {
                            judged.truncate(batch);
                        }
                        if judged.len() >= 2 * packets {
                            let mut number = 0;
                            judged.retain(|_| {
                                number += 1;
                                number % 2 == 0
                            });
                            stride *= 2;
                        }
                        if random.below(16) == 0 {
                            std::thread::yield_now();
                        }
                    }
                    // Others may still wait for room in the log.
                    drop(worker);
                    judged
                })
            })
            .collect();
        let controllers: Vec<_> = (0..2)
            .map(|index| {
                let controlled = &controlled;
                scope.spawn(move || {
                    let (mut applied, mut random) = (Vec::new(), Random(seed ^ (index + 77)));
                    for _ in 0..changes {
                        let begin = random.below(16) as u32;
                        let sources = Span::half_open(begin, (begin < 12).then_some(begin + 4)).unwrap();
                        let change = Change {
                            address: random.below(16) as u32,
                            persona_non_grata: Some(random.below(3) == 0),
                            accepts: Some((sources, random.below(2) == 0)),
                        };
                        let begin_ns = now();
                        let number = loop {
                            match engine.try_apply(&change) {
                                Some(number) => break number,
                                None => std::thread::yield_now(),
                            }
                        };
                        while !engine.is_in_force(number) {
                            std::thread::yield_now();
                        }
                        applied.push(Applied { begin_ns, end_ns: now(), number, change });
                    }
                    controlled.fetch_add(1, Ordering::Relaxed);
                    applied
                })
            })
            .collect();
        let judged = judges.into_iter().flat_map(|judge| judge.join().unwrap()).collect();
        (controllers.into_iter().flat_map(|controller| controller.join().unwrap()).collect(), judged)
    })
}

#[test]
fn histories_of_the_striped_engine_have_one_global_order() {
    for workers in [1, 2, 3] {
        let (changes, packets) =
            run(&striped(3), 250_000 / workers as usize, 4_000, workers, false, u64::from(workers));
        assert!(packets.iter().filter(|packet| packet.passed).count() > 1000);
        let judge = Judge::new(changes, true).unwrap();
        assert_eq!(judge.check(packets), Ok(()));
    }
}

#[test]
fn histories_of_many_threads_have_one_global_order() {
    for (workers, shards) in [(1, false), (2, false), (2, true), (3, true)] {
        let (changes, packets) =
            run(&sharded(1), 250_000 / workers as usize, 4_000, workers, shards, u64::from(workers));
        println!("{workers} workers: {} changes, {} packets", changes.len(), packets.len());
        assert!(packets.iter().filter(|packet| packet.passed).count() > 1000);
        let judge = Judge::new(changes, true).unwrap();
        assert_eq!(judge.check(packets), Ok(()));
    }
}

/// The judge finds faults that are planted into a sound history.
#[test]
fn the_judge_finds_planted_faults() {
    let (changes, packets) = run(&sharded(5), 20_000, 2_000, 2, false, 5);
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
    assert!(matches!(Judge::new(swapped, true), Err(Violation::ChangesOutOfOrder(_))));
    let missing: Vec<Applied> = changes.iter().filter(|applied| applied.number != 7).copied().collect();
    assert!(matches!(Judge::new(missing, true), Err(Violation::ChangesOutOfOrder(7 | 8))));
    // Acknowledgements before the changes are in force. Threads share cores, so this takes more than a turn of a thread to show.
    const SHIFT_NS: u64 = 20_000_000;
    let mut early = changes.clone();
    early.iter_mut().for_each(|applied| {
        applied.begin_ns = applied.begin_ns.saturating_sub(SHIFT_NS);
        applied.end_ns = applied.end_ns.saturating_sub(SHIFT_NS);
    });
    assert!(matches!(Judge::new(early, true).unwrap().check(packets.clone()), Err(Violation::NoInstant(_))));
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
    torn.iter_mut().for_each(|applied| applied.change.persona_non_grata = None);
    assert!(Judge::new(torn, true).unwrap().check(packets).is_err());
}

/// Where the order is forced, verdicts are those of the serial program: one thread gives each packet its place among the changes.
#[test]
fn forced_order_gives_the_serial_histogram() {
    for (mix, packets) in [(small(), 60_000), (MIXES[0], 120_000), (MIXES[6], 120_000)] {
        let mut serial = Permissions::new(mix.addresses() as usize, true, 1);
        let mut wanted = vec![0u64; 1 << 16];
        for packet in Trains::new(&mix).take(packets) {
            match packet {
                Packet::Config(config) => serial.apply(&change(&config)).unwrap(),
                Packet::Data(data) if serial.passes(data.source, data.destination) => {
                    wanted[usize::from(fingerprint(data.iterations % 64, data.seed))] += 1;
                }
                Packet::Data(_) => {}
            }
        }
        for workers in [1, 2, 3] {
            let shared = Shared::new(Permissions::new(mix.addresses() as usize, true, 2), 128);
            let mut found = vec![0u64; 1 << 16];
            std::thread::scope(|scope| {
                let (mut senders, mut threads) = (Vec::new(), Vec::new());
                for index in 0..workers {
                    let (sender, receiver) = mpsc::sync_channel(256);
                    let mut worker = shared.worker(Shard { index, of: workers });
                    senders.push(sender);
                    threads.push(scope.spawn(move || {
                        let mut histogram = vec![0u64; 1 << 16];
                        for (number, packet) in receiver {
                            worker.begin_at(number);
                            let data: Option<Data> = packet;
                            if let Some(data) =
                                data.filter(|data| worker.value().denies(data.source, data.destination).is_none())
                            {
                                histogram[usize::from(fingerprint(data.iterations % 64, data.seed))] += 1;
                            }
                            worker.end();
                        }
                        histogram
                    }));
                }
                let mut number = 0;
                for packet in Trains::new(&mix).take(packets) {
                    match packet {
                        Packet::Config(config) => {
                            number = loop {
                                match shared.apply(&change(&config)) {
                                    Ok(number) => break number,
                                    // Every worker is brought up to the changes so far, in its place of the order.
                                    Err(_) => senders.iter().for_each(|sender| sender.send((number, None)).unwrap()),
                                }
                            };
                        }
                        Packet::Data(data) => {
                            let shard = Shard::of(data.destination, workers).index as usize;
                            senders[shard].send((number, Some(data))).unwrap();
                        }
                    }
                }
                drop(senders);
                for thread in threads {
                    found.iter_mut().zip(thread.join().unwrap()).for_each(|(sum, more)| *sum += more);
                }
            });
            assert!(found == wanted, "{workers} workers");
        }
    }
}
