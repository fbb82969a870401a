//! Workers that share one permission table, each with its part of the packets.

use super::BATCH;
use super::programs::{Answer, Judge, Tally};
use std::sync::Barrier;
use std::time::Instant;
use weir_bench_striped::Striped;
use weir_firewall::permissions::{Change, Permissions};
use weir_firewall::replicas::{Shard, Shared};
use weir_generator::trains::Packet;

/// Changes that a worker need not have taken up yet.
const LOG: usize = 4096;

/// Stripes of the striped engine.
pub const STRIPES: usize = 256;

/// Permissions when packets begin: a table, and the changes that made it.
#[derive(Debug)]
pub struct Start {
    most: usize,
    accepts: bool,
    permissions: Permissions<u32>,
    changes: Vec<Change<u32>>,
}

impl Start {
    /// Makes a table for up to `most` addresses, which accept all sources or none.
    pub fn new(most: usize, accepts: bool) -> Self {
        let (permissions, changes) = (Permissions::new(most, accepts, 7), Vec::new());
        Self {
            most,
            accepts,
            permissions,
            changes,
        }
    }

    /// Applies a change.
    pub fn apply(&mut self, change: Change<u32>) {
        self.permissions
            .apply(&change)
            .expect("there is room for all addresses");
        self.changes.push(change);
    }
}

/// An engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// weir's: a replica for each worker, with the rows of its shard of destinations if packets
    /// arrive by address.
    Sharded,
    /// The parent's: one table in stripes, and a cache of this many verdicts for each worker.
    Striped(usize),
}

impl Engine {
    /// Name in the raw data.
    pub fn name(self) -> String {
        match self {
            Self::Sharded => "sharded".to_owned(),
            Self::Striped(room) => format!("striped {room}"),
        }
    }

    /// Makes workers that share the permissions.
    pub fn team(self, start: &Start, workers: u32, distribution: Distribution) -> Vec<Judge> {
        match self {
            Self::Sharded => {
                let shared = Shared::new(start.permissions.clone(), LOG);
                let shard = |index| match distribution {
                    Distribution::Address => Shard { index, of: workers },
                    Distribution::Flow | Distribution::Random => Shard::ALL,
                };
                (0..workers)
                    .map(|index| Judge::Sharded(shared.worker(shard(index))))
                    .collect()
            }
            Self::Striped(room) => {
                let striped = Striped::new(start.most, start.accepts, STRIPES, 1);
                for change in &start.changes {
                    striped
                        .apply(change)
                        .expect("a stripe has room for all addresses");
                }
                (0..workers)
                    .map(|_| Judge::Striped(striped.worker(room)))
                    .collect()
            }
        }
    }
}

/// Distribution of packets to workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// By the address that changes, and by the destination of data packets: the parent's.
    Address,
    /// By the address that changes, and by source and destination of data packets.
    Flow,
    /// By chance.
    Random,
}

impl Distribution {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Address, Self::Flow, Self::Random];

    /// Name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::Address => "address",
            Self::Flow => "flow",
            Self::Random => "random",
        }
    }

    /// Number of the worker that has a packet, which is the `number`th.
    fn worker(self, number: usize, packet: &Packet, workers: u32) -> usize {
        let shard = match (self, packet) {
            (Self::Random, _) => Shard::of(number as u32, workers),
            (_, Packet::Config(config)) => Shard::of(config.address, workers),
            (Self::Address, Packet::Data(data)) => Shard::of(data.destination, workers),
            (Self::Flow, Packet::Data(data)) => Shard::of(
                u128::from(data.source) << 32 | u128::from(data.destination),
                workers,
            ),
        };
        shard.index as usize
    }

    /// The packets of each worker, in their order.
    pub fn streams(self, packets: &[Packet], workers: u32) -> Vec<Vec<Packet>> {
        let mut streams = vec![Vec::new(); workers as usize];
        for (number, packet) in packets.iter().enumerate() {
            streams[self.worker(number, packet, workers)].push(*packet);
        }
        streams
    }
}

/// Judges the packets one by one in their order, each by its worker, on one thread: the answer is that of the serial program.
pub fn in_order(team: &mut [Judge], packets: &[Packet], distribution: Distribution) -> Answer {
    let mut tally = Tally::new(false);
    for (number, packet) in packets.iter().enumerate() {
        let worker = distribution.worker(number, packet, team.len() as u32);
        team[worker].judge(std::slice::from_ref(packet), &mut tally);
        if number % (LOG / 4) == 0 {
            team.iter_mut().for_each(Judge::take_up);
        }
    }
    tally.answer
}

/// Result of a team.
pub struct Run {
    /// Million packets a second, from the common start to the end of the last worker.
    pub mpps: f64,
    /// The same as the sum of what each worker did until its own end.
    pub own_pace_mpps: f64,
    /// Number of accepted packets.
    pub accepted: u64,
    /// Share of verdicts that were in a cache.
    pub hits: f64,
}

/// Runs each worker on a thread of its own. At most [`BATCH`] packets are in flight in all, as in the course, or for each worker.
pub fn run(team: Vec<Judge>, streams: &[Vec<Packet>], work: bool, each: bool) -> Run {
    let batch = if each { BATCH } else { BATCH / team.len() };
    let start = Barrier::new(team.len());
    let judge = |mut judge: Judge, packets: &[Packet]| {
        start.wait();
        let begun = Instant::now();
        let answer = judge.run(packets, batch, work);
        let ended = Instant::now();
        // A worker that has ended delays nobody.
        (
            begun,
            ended,
            std::hint::black_box(answer).accepted,
            judge.hits_and_misses(),
        )
    };
    let done: Vec<_> = std::thread::scope(|scope| {
        let judge = &judge;
        let threads = team
            .into_iter()
            .zip(streams)
            .map(|(worker, packets)| scope.spawn(move || judge(worker, packets)));
        let threads: Vec<_> = threads.collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a worker does not panic"))
            .collect()
    });
    let packets: usize = streams.iter().map(Vec::len).sum();
    let begun = done
        .iter()
        .map(|done| done.0)
        .min()
        .expect("there is a worker");
    let ended = done
        .iter()
        .map(|done| done.1)
        .max()
        .expect("there is a worker");
    let (hits, misses) = done
        .iter()
        .fold((0, 0), |sum, done| (sum.0 + done.3.0, sum.1 + done.3.1));
    let own = |((begun, ended, ..), packets): (&(Instant, Instant, u64, _), &Vec<Packet>)| {
        packets.len() as f64 / (*ended - *begun).as_secs_f64() / 1e6
    };
    Run {
        mpps: packets as f64 / (ended - begun).as_secs_f64() / 1e6,
        own_pace_mpps: done.iter().zip(streams).map(own).sum(),
        accepted: done.iter().map(|done| done.2).sum(),
        hits: hits as f64 / (hits + misses).max(1) as f64,
    }
}
