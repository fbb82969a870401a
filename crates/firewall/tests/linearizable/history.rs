//! Long runs of workers and controllers, whose histories are judged afterwards as one global order.
//!
//! Each thread keeps its own log, with times taken before and behind each operation; there is no shared counter, which would order the
//! threads and hide missing barriers. The judge ([`Judge`]) knows only these logs: changes have the numbers that they were given, and for
//! each packet it looks for an instant between its times at which the tables give its verdict, such that no packet that begins after another
//! has ended comes before it in the order.
//!
//! Times are readings of the monotonic clock, which Linux takes from the time-stamp counter behind a serialising instruction; fences stand before
//! and behind it, so that no store is late. The counters of two cores may differ by [`CLOCK_ERROR_NS`]. The judge demands an order only of what
//! lies further apart: a violation within that time is not found, and no sound history is refused for it.
//!
//! `WEIR_PACKETS` is the number of packets that are judged in all, a million without it, and `WEIR_CHANGES` that of changes.

#[path = "../bodies/trains.rs"]
mod trains;

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use trains::change;
use weir_firewall::permissions::{Change, Permissions, Span};
use weir_firewall::replicas::Shard;
use weir_generator::trains::{Data, Mix, Packet, Trains, fingerprint};
use weir_testkit::Random;

/// A change under test.
#[derive(Clone, Copy, Debug)]
pub enum Step {
    /// Permissions of an address.
    Address(Change<u32>),
    /// A rule list that drops a protocol; `None`: the rule of the list in force expires.
    Rules(Option<u8>),
}

/// Source, destination and protocol of a packet.
pub type Wanted = (u32, u32, u8);

/// An engine under test.
pub trait Engine: Sync {
    /// Whether it judges by rules too.
    const HAS_RULES: bool = false;
    type Worker: Send;

    fn worker(&self, index: u32, shard: Shard) -> Self::Worker;
    /// Applies a change; `None` if there is no room yet.
    fn try_apply(&self, step: &Step) -> Option<u64>;
    fn is_in_force(&self, number: u64) -> bool;
    /// Tells that the ban of an address ends after a time, before it is made.
    fn note_end(&self, _address: u32, _after: Duration) {}
    fn begin(worker: &mut Self::Worker, batch: &[Wanted]);
    /// Judges the packet at a place of the batch.
    fn passes(worker: &mut Self::Worker, place: usize, packet: Wanted) -> bool;
    /// Applies a change that comes in the batch under way; `None` if there is no room yet.
    fn change(worker: &mut Self::Worker, step: &Step) -> Option<u64>;
    fn end(worker: &mut Self::Worker);
}

/// Largest difference between the clocks of two cores, ns: the kernel offers the time-stamp counter as a clock only if all cores agree within
/// less.
const CLOCK_ERROR_NS: u64 = 1_000;

/// A packet that was judged.
#[derive(Clone, Copy, Debug)]
pub struct Judged {
    pub begin_ns: u64,
    pub end_ns: u64,
    pub source: u32,
    pub destination: u32,
    pub proto: u8,
    pub passed: bool,
    /// Number of the latest change that came before it among the packets of its worker.
    pub behind: u64,
}

/// A change that was applied.
#[derive(Clone, Copy, Debug)]
pub struct Applied {
    pub begin_ns: u64,
    /// Time at which it has its number: packets that come later are judged by it.
    pub made_ns: u64,
    /// Time of the acknowledgement: no later verdict is without it. A change in the stream has none, which is `u64::MAX`.
    pub end_ns: u64,
    pub number: u64,
    pub step: Step,
}

/// What is wrong with a history.
#[derive(Debug, PartialEq, Eq)]
pub enum Violation {
    /// Changes whose numbers contradict their times, or that are missing.
    ChangesOutOfOrder(u64),
    /// A packet whose verdict no instant gives.
    NoInstant(String),
}

pub struct Judge {
    /// For each source, the numbers of changes of its flag, and the flag.
    flags: HashMap<u32, Vec<(u64, bool)>>,
    /// For each destination, the numbers of changes of its ranges.
    rows: HashMap<u32, Vec<(u64, Span<u32>, bool)>>,
    /// Numbers of changes of the rules, and the protocol that they drop from then on.
    rules: Vec<(u64, Option<u8>)>,
    default: bool,
    changes: Vec<Applied>,
}

impl Judge {
    pub fn new(mut changes: Vec<Applied>, default: bool) -> Result<Self, Violation> {
        changes.sort_by_key(|applied| applied.number);
        let (mut flags, mut rows) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        let (mut latest_begin, mut rules) = (0, Vec::new());
        for (i, applied) in changes.iter().enumerate() {
            // Numbers have no gaps, and a change that ended before another one began has the lower number.
            if applied.number != i as u64 + 1 || applied.made_ns + CLOCK_ERROR_NS < latest_begin {
                return Err(Violation::ChangesOutOfOrder(applied.number));
            }
            latest_begin = latest_begin.max(applied.begin_ns);
            let Change {
                address,
                persona_non_grata,
                accepts,
            } = match applied.step {
                Step::Address(change) => change,
                Step::Rules(drops) => {
                    rules.push((applied.number, drops));
                    continue;
                }
            };
            flags
                .entry(address)
                .or_default()
                .extend(persona_non_grata.map(|flag| (applied.number, flag)));
            rows.entry(address)
                .or_default()
                .extend(accepts.map(|(sources, yes)| (applied.number, sources, yes)));
        }
        Ok(Self {
            flags,
            rows,
            rules,
            default,
            changes,
        })
    }

    /// The first version from `from` to `to` at which the packet has its verdict.
    fn first_version(&self, packet: &Judged, from: u64, to: u64) -> Option<u64> {
        let flags = self
            .flags
            .get(&packet.source)
            .map_or(&[][..], Vec::as_slice);
        let rows = self
            .rows
            .get(&packet.destination)
            .map_or(&[][..], Vec::as_slice);
        let passes = |version: u64| {
            let behind = flags.partition_point(|change| change.0 <= version);
            let is_bad = behind > 0 && flags[behind - 1].1;
            let behind = rows.partition_point(|change| change.0 <= version);
            let says = rows[..behind]
                .iter()
                .rev()
                .find(|change| change.1.contains(packet.source));
            let behind = self.rules.partition_point(|change| change.0 <= version);
            let is_dropped = behind > 0 && self.rules[behind - 1].1 == Some(packet.proto);
            !is_bad && !is_dropped && says.map_or(self.default, |change| change.2)
        };
        // The verdict can only differ where one of its two addresses changes.
        let next = |version: u64| {
            let flag = flags
                .get(flags.partition_point(|change| change.0 <= version))
                .map(|change| change.0);
            let row = rows
                .get(rows.partition_point(|change| change.0 <= version))
                .map(|change| change.0);
            let rules = self
                .rules
                .get(self.rules.partition_point(|change| change.0 <= version))
                .map(|change| change.0);
            flag.into_iter().chain(row).chain(rules).min()
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
    pub fn check(&self, mut packets: Vec<Judged>) -> Result<(), Violation> {
        packets.sort_by_key(|packet| packet.begin_ns);
        // Versions that packets need, by the time at which they end; the highest of those that have ended binds all later ones.
        let mut ends: std::collections::BinaryHeap<std::cmp::Reverse<(u64, u64)>> =
            Default::default();
        let mut bound = 0;
        // Changes that were acknowledged before a time, and those that began before it.
        let mut by_end: Vec<(u64, u64)> = self
            .changes
            .iter()
            .map(|applied| (applied.end_ns, applied.number))
            .collect();
        let mut by_begin: Vec<(u64, u64)> = self
            .changes
            .iter()
            .map(|applied| (applied.begin_ns, applied.number))
            .collect();
        let mut by_made: Vec<(u64, u64)> = self
            .changes
            .iter()
            .map(|applied| (applied.made_ns, applied.number))
            .collect();
        by_made.sort_unstable();
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
        let (most_by_end, most_by_begin, most_by_made) =
            (highest(&by_end), highest(&by_begin), highest(&by_made));
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
            let acknowledged = before(
                &by_end,
                &most_by_end,
                packet.end_ns.saturating_sub(CLOCK_ERROR_NS),
            );
            let begun = before(&by_begin, &most_by_begin, packet.end_ns + CLOCK_ERROR_NS);
            // Nor on a packet that came after a change was made.
            let made = before(
                &by_made,
                &most_by_made,
                packet.begin_ns.saturating_sub(CLOCK_ERROR_NS),
            );
            let from = bound.max(acknowledged).max(made).max(packet.behind);
            // The least version that fits binds the others least.
            let Some(version) = self
                .first_version(packet, from, begun.max(from))
                .filter(|_| from <= begun)
            else {
                return Err(Violation::NoInstant(format!(
                    "{packet:?}, from version {from} to {begun}"
                )));
            };
            ends.push(std::cmp::Reverse((packet.end_ns, version)));
        }
        Ok(())
    }
}

/// Addresses of a run: so few that every change concerns many packets.
pub const ADDRESSES: usize = 16;

/// Number of protocols of packets, which rules name.
pub const PROTOCOLS: usize = 4;

/// Longest time of a run, after which it fails.
const DEADLINE: Duration = Duration::from_secs(300);

/// Which worker judges a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    Flow,
    Address,
    Random,
}

pub const DISTRIBUTIONS: [Distribution; 3] = [
    Distribution::Flow,
    Distribution::Address,
    Distribution::Random,
];

impl Distribution {
    /// The worker of a packet among `of`.
    pub fn worker(self, source: u32, destination: u32, of: u32, random: &mut Random) -> u32 {
        match self {
            Self::Flow => Shard::of(source ^ destination, of).index,
            Self::Address => Shard::of(destination, of).index,
            Self::Random => random.below(of as usize) as u32,
        }
    }

    /// Destinations that a worker has.
    pub fn shard(self, index: u32, of: u32) -> Shard {
        if self == Self::Address {
            Shard { index, of }
        } else {
            Shard::ALL
        }
    }
}

/// Size of a run.
#[derive(Clone, Copy, Debug)]
pub struct Size {
    /// Packets that are kept of all workers, at least.
    pub packets: usize,
    /// Changes of each of two controllers.
    pub changes: usize,
    pub workers: u32,
    pub distribution: Distribution,
    pub seed: u64,
}

/// Clock of a run, ns.
fn clock() -> impl Fn() -> u64 + Copy + Send + Sync {
    let start = Instant::now();
    move || {
        fence(Ordering::SeqCst);
        let elapsed = start.elapsed();
        fence(Ordering::SeqCst);
        assert!(elapsed < DEADLINE, "a run does not end");
        elapsed.as_nanos() as u64
    }
}

/// A change of an address, seldom of the rules if the engine has any.
fn step(random: &mut Random, has_rules: bool) -> Step {
    if has_rules && random.below(8) == 0 {
        // The last list has no rule that holds: its only one expires.
        return Step::Rules((random.below(4) > 0).then(|| random.below(PROTOCOLS) as u8));
    }
    let begin = random.below(ADDRESSES) as u32;
    let sources = Span::half_open(begin, (begin < 12).then_some(begin + 4)).unwrap();
    Step::Address(Change {
        address: random.below(ADDRESSES) as u32,
        persona_non_grata: Some(random.below(3) == 0),
        accepts: Some((sources, random.below(2) == 0)),
    })
}

/// Judges packets on each thread of a worker, in batches, of which some make changes, while two threads apply changes and wait for the
/// acknowledgement of each; a third of their bans ends soon, which is a change like others. Keeps at most twice the packets asked for, evenly over
/// the time: a part of a sound history is sound. All threads let others run now and then, so that they take turns often where cores are few.
pub fn run<E: Engine>(engine: &E, size: Size) -> (Vec<Applied>, Vec<Judged>) {
    let Size {
        workers,
        distribution,
        seed,
        changes,
        ..
    } = size;
    let packets = size.packets / workers as usize;
    let now = clock();
    let controlled = AtomicU32::new(0);
    let apply = |mut apply: Box<dyn FnMut() -> Option<u64> + '_>| loop {
        match apply() {
            Some(number) => return number,
            None => {
                now();
                std::thread::yield_now();
            }
        }
    };
    std::thread::scope(|scope| {
        let judge = |index: u32| {
            let mut worker = engine.worker(index, distribution.shard(index, workers));
            let (controlled, apply) = (&controlled, &apply);
            scope.spawn(move || {
                let (mut judged, mut applied) = (Vec::with_capacity(2 * packets), Vec::new());
                let mut random = Random(seed * 8 + u64::from(index));
                let (mut batches, mut stride, mut behind) = (0u64, 1, 0);
                while judged.len() < packets || controlled.load(Ordering::Relaxed) < 2 {
                    // The packets of a batch have come before it begins.
                    let begin_ns = now();
                    let wanted: Vec<(u32, u32, u8)> = (0..=random.below(8))
                        .map(|_| {
                            let mut below = |most| random.below(most) as u32;
                            (below(ADDRESSES), below(ADDRESSES), below(PROTOCOLS) as u8)
                        })
                        .collect();
                    E::begin(&mut worker, &wanted);
                    let batch = judged.len();
                    for (place, &(source, destination, proto)) in wanted.iter().enumerate() {
                        if distribution.worker(source, destination, workers, &mut random) == index {
                            let passed =
                                E::passes(&mut worker, place, (source, destination, proto));
                            judged.push(Judged {
                                begin_ns,
                                end_ns: 0,
                                source,
                                destination,
                                proto,
                                passed,
                                behind,
                            });
                        }
                        // Changes in the stream are as many as those of the controllers, at most.
                        if applied.len() < changes && random.below(24) == 0 {
                            let (step, begun) = (step(&mut random, E::HAS_RULES), now());
                            behind = apply(Box::new(|| E::change(&mut worker, &step)));
                            applied.push(Applied {
                                begin_ns: begun,
                                made_ns: now(),
                                end_ns: u64::MAX,
                                number: behind,
                                step,
                            });
                        }
                        if random.below(256) == 0 {
                            std::thread::yield_now();
                        }
                    }
                    let end_ns = now();
                    E::end(&mut worker);
                    judged[batch..]
                        .iter_mut()
                        .for_each(|packet| packet.end_ns = end_ns);
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
                (applied, judged)
            })
        };
        let judges: Vec<_> = (0..workers).map(judge).collect();
        let controllers: Vec<_> = (0..2)
            .map(|index| {
                let (controlled, apply) = (&controlled, &apply);
                scope.spawn(move || {
                    let (mut applied, mut random) = (Vec::new(), Random(seed ^ (index + 77)));
                    let mut ends: Vec<(u64, u32)> = Vec::new();
                    for _ in 0..changes {
                        let over = ends
                            .first()
                            .is_some_and(|(end, _)| *end <= now())
                            .then(|| ends.remove(0).1);
                        let step = match over {
                            Some(address) => Step::Address(Change {
                                address,
                                persona_non_grata: Some(false),
                                accepts: None,
                            }),
                            None => step(&mut random, E::HAS_RULES),
                        };
                        let begin_ns = now();
                        if let Step::Address(Change {
                            address,
                            persona_non_grata: Some(true),
                            ..
                        }) = step
                            && random.below(3) == 0
                        {
                            ends.push((begin_ns + 50_000, address));
                            engine.note_end(address, Duration::from_micros(50));
                        }
                        let number = apply(Box::new(|| engine.try_apply(&step)));
                        let made_ns = now();
                        while !engine.is_in_force(number) {
                            now();
                            std::thread::yield_now();
                        }
                        applied.push(Applied {
                            begin_ns,
                            made_ns,
                            end_ns: now(),
                            number,
                            step,
                        });
                    }
                    controlled.fetch_add(1, Ordering::Relaxed);
                    applied
                })
            })
            .collect();
        let (mut applied, mut judged) = (Vec::new(), Vec::new());
        for judge in judges {
            let (more, packets) = judge.join().unwrap();
            applied.extend(more);
            judged.extend(packets);
        }
        applied.extend(
            controllers
                .into_iter()
                .flat_map(|controller| controller.join().unwrap()),
        );
        (applied, judged)
    })
}

/// Judges a run, and returns its numbers of packets and changes.
pub fn judged<E: Engine>(engine: &E, size: Size) -> Result<(usize, usize), Violation> {
    let (changes, packets) = run(engine, size);
    let counts = (packets.len(), changes.len());
    Judge::new(changes, true)?.check(packets).map(|()| counts)
}

/// A number from the environment.
fn asked(name: &str, otherwise: usize) -> usize {
    std::env::var(name).map_or(otherwise, |number| number.parse().expect("a number"))
}

/// Each engine, distribution and number of workers has its share, in runs whose logs fit into memory.
pub fn histories_have_one_global_order<E: Engine>(name: &str, make: impl Fn(u64) -> E) {
    const SHARES: usize = 2 * 3 * 3;
    const RUN: usize = 400_000;
    let packets = asked("WEIR_PACKETS", 1_000_000).div_ceil(SHARES);
    let changes = asked("WEIR_CHANGES", 20_000).div_ceil(SHARES);
    let runs = packets.div_ceil(RUN);
    let mut all = (0, 0);
    for distribution in DISTRIBUTIONS {
        for workers in [1, 2, 3] {
            for seed in 0..runs as u64 {
                // The workers make changes too, at most as many as the controllers.
                let changes = changes.div_ceil(2 * runs);
                let size = Size {
                    packets: packets.div_ceil(runs),
                    changes,
                    workers,
                    distribution,
                    seed,
                };
                let counts = judged(&make(seed), size)
                    .unwrap_or_else(|why| panic!("{name}, {size:?}: {why:?}"));
                all = (all.0 + counts.0, all.1 + counts.1);
            }
        }
    }
    println!("{name}: {} packets among {} changes", all.0, all.1);
}

/// Packets of a mix in its order, with the changes.
pub fn of_mix(mix: &Mix, packets: usize) -> Vec<Packet> {
    Trains::new(mix).take(packets).collect()
}

/// Histogram of the fingerprints of packets that pass.
pub fn serial_histogram(mix: &Mix, packets: &[Packet]) -> Vec<u64> {
    let mut serial = Permissions::new(mix.addresses() as usize, true, 1);
    let mut histogram = vec![0; 1 << 16];
    for packet in packets {
        match packet {
            Packet::Config(config) => serial.apply(&change(config)).unwrap(),
            Packet::Data(data) if serial.passes(data.source, data.destination) => {
                histogram[place(data)] += 1
            }
            Packet::Data(_) => {}
        }
    }
    histogram
}

fn place(data: &Data) -> usize {
    usize::from(fingerprint(data.iterations % 64, data.seed))
}

/// Where the order is forced, verdicts are those of the serial program: one thread gives each packet its place among the changes. `worker` makes
/// the judge of a thread; `apply` makes a change behind the packets that were sent, of which `drain` waits for the verdicts.
pub fn forced<W: FnMut(u64, Option<&Data>) -> bool + Send>(
    (packets, distribution, of): (&[Packet], Distribution, u32),
    worker: impl Fn(Shard) -> W,
    mut apply: impl FnMut(&Change<u32>, &dyn Fn()) -> u64,
) -> Vec<u64> {
    std::thread::scope(|scope| {
        let (mut senders, mut threads) = (Vec::new(), Vec::new());
        let (drained, drains) = mpsc::channel();
        for index in 0..of {
            let (sender, receiver) = mpsc::sync_channel::<(u64, Vec<Data>)>(64);
            let (mut passes, drained) = (worker(distribution.shard(index, of)), drained.clone());
            senders.push(sender);
            threads.push(scope.spawn(move || {
                let mut histogram = vec![0u64; 1 << 16];
                for (number, packets) in receiver {
                    let passed = packets.iter().filter(|data| passes(number, Some(data)));
                    passed.for_each(|data| histogram[place(data)] += 1);
                    if packets.is_empty() {
                        passes(number, None);
                        drained.send(()).unwrap();
                    }
                }
                histogram
            }));
        }
        let (mut number, mut random) = (0, Random(9));
        let mut waiting: Vec<Vec<Data>> = vec![Vec::new(); of as usize];
        for packet in packets {
            match packet {
                Packet::Data(data) => {
                    let index = distribution.worker(data.source, data.destination, of, &mut random);
                    waiting[index as usize].push(*data);
                }
                Packet::Config(config) => {
                    send(&senders, &mut waiting, number);
                    let drain = || {
                        senders
                            .iter()
                            .for_each(|sender| sender.send((number, Vec::new())).unwrap());
                        senders
                            .iter()
                            .for_each(|_| drains.recv_timeout(DEADLINE).unwrap());
                    };
                    number = apply(&change(config), &drain);
                }
            }
        }
        send(&senders, &mut waiting, number);
        drop(senders);
        let mut found = vec![0u64; 1 << 16];
        for thread in threads {
            found
                .iter_mut()
                .zip(thread.join().unwrap())
                .for_each(|(sum, more)| *sum += more);
        }
        found
    })
}

fn send(senders: &[mpsc::SyncSender<(u64, Vec<Data>)>], waiting: &mut [Vec<Data>], number: u64) {
    for (sender, packets) in senders
        .iter()
        .zip(waiting)
        .filter(|(_, packets)| !packets.is_empty())
    {
        sender.send((number, std::mem::take(packets))).unwrap();
    }
}
