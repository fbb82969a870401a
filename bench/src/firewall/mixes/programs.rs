//! The serial program, and the same work by a worker of either engine.

use weir_bench_striped::StripedWorker;
use weir_firewall::permissions::{Change, Permissions, Span};
use weir_firewall::replicas::{Refused, Worker};
use weir_generator::trains::{Config, Data, Mix, Packet, fingerprint, fingerprints};

/// Packets between the one whose memory is fetched and the one that is judged.
const AHEAD: usize = 8;

/// Histogram of fingerprints, of 65 536 values, and the number of accepted packets.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    histogram: Vec<u32>,
    pub accepted: u64,
}

impl Answer {
    pub fn new() -> Self {
        Self {
            histogram: vec![0; 1 << 16],
            accepted: 0,
        }
    }

    fn add(&mut self, fingerprint: u16) {
        self.histogram[usize::from(fingerprint)] += 1;
        self.accepted += 1;
    }

    pub fn checksum(&self) -> u64 {
        let bins = self.histogram.iter().zip(1u64..);
        bins.fold(0, |sum, (count, bin)| {
            sum.wrapping_add(u64::from(*count).wrapping_mul(bin.wrapping_mul(bin | 1)))
        })
    }
}

/// The serial program.
#[derive(Clone)]
pub struct Serial {
    addresses: usize,
    refused: Vec<u64>,
    personae_non_gratae: Vec<bool>,
}

impl Serial {
    pub fn new(mix: &Mix, accepts: bool) -> Self {
        let addresses = mix.addresses() as usize;
        let refused = if accepts { 0 } else { u64::MAX };
        Self {
            addresses,
            refused: vec![refused; addresses * addresses / 64],
            personae_non_gratae: vec![false; addresses],
        }
    }

    pub fn apply(&mut self, config: &Config) {
        self.personae_non_gratae[config.address as usize] = config.persona_non_grata;
        for source in config.begin..config.end {
            let bit = config.address as usize * self.addresses + source as usize;
            match config.accepting {
                true => self.refused[bit / 64] &= !(1 << (bit % 64)),
                false => self.refused[bit / 64] |= 1 << (bit % 64),
            }
        }
    }

    fn passes(&self, source: u32, destination: u32) -> bool {
        let bit = destination as usize * self.addresses + source as usize;
        !self.personae_non_gratae[source as usize] && self.refused[bit / 64] >> (bit % 64) & 1 == 0
    }

    /// Judges the packets; with `work` it executes their rounds, else the seed stands for the result.
    pub fn run(&mut self, packets: &[Packet], work: bool) -> Answer {
        let mut answer = Answer::new();
        for packet in packets {
            match packet {
                Packet::Config(config) => self.apply(config),
                Packet::Data(data) if self.passes(data.source, data.destination) => {
                    answer.add(if work {
                        fingerprint(data.iterations, data.seed)
                    } else {
                        data.seed as u16
                    });
                }
                Packet::Data(_) => {}
            }
        }
        answer
    }
}

/// The change of a control packet.
pub fn change(config: &Config) -> Change<u32> {
    let sources = Span::half_open(config.begin, Some(config.end));
    Change {
        address: config.address,
        persona_non_grata: Some(config.persona_non_grata),
        accepts: sources.map(|sources| (sources, config.accepting)),
    }
}

/// A worker of one of the engines.
pub enum Judge {
    /// Rows of its destinations, or of all, in a replica of its own.
    Sharded(Worker<Permissions<u32>>),
    /// One table for all workers, and a cache of verdicts.
    Striped(StripedWorker<u32>),
}

impl Judge {
    /// Judges the packets in batches, and applies the changes among them; with `work` it executes the rounds of accepted packets.
    pub fn run(&mut self, packets: &[Packet], batch: usize, work: bool) -> Answer {
        let mut tally = Tally::new(work);
        packets
            .chunks(batch)
            .for_each(|batch| self.judge(batch, &mut tally));
        tally.answer
    }

    /// Judges a batch.
    pub fn judge(&mut self, batch: &[Packet], tally: &mut Tally) {
        match self {
            Self::Sharded(worker) => sharded(worker, batch, tally),
            Self::Striped(worker) => striped(worker, batch, tally),
        }
    }

    /// Takes up the changes of others, so that the log has room.
    pub fn take_up(&mut self) {
        if let Self::Sharded(worker) = self {
            worker.take_up();
        }
    }

    /// Numbers of verdicts that were in the cache, and of all others.
    pub fn hits_and_misses(&self) -> (u64, u64) {
        match self {
            Self::Sharded(_) => (0, 0),
            Self::Striped(worker) => worker.hits_and_misses(),
        }
    }
}

/// The answer so far.
pub struct Tally {
    pub answer: Answer,
    /// Accepted packets of the batch, whose rounds are not executed yet.
    accepted: Vec<(u32, u32)>,
    /// Changes of the batch.
    changes: Vec<Change<u32>>,
    work: bool,
}

impl Tally {
    pub fn new(work: bool) -> Self {
        Self {
            answer: Answer::new(),
            accepted: Vec::new(),
            changes: Vec::new(),
            work,
        }
    }

    #[inline]
    fn accept(&mut self, data: &Data) {
        match self.work {
            true => self.accepted.push((data.iterations, data.seed)),
            false => self.answer.add(data.seed as u16),
        }
    }

    fn work_off(&mut self) {
        fingerprints(&mut self.accepted, |fingerprint| {
            self.answer.add(fingerprint)
        });
    }
}

fn sharded(worker: &mut Worker<Permissions<u32>>, batch: &[Packet], tally: &mut Tally) {
    tally.changes.clear();
    tally
        .changes
        .extend(batch.iter().filter_map(|packet| match packet {
            Packet::Config(config) => Some(change(config)),
            Packet::Data(_) => None,
        }));
    worker.begin();
    let (mut taken_up, mut published) = (0, 0);
    for (i, packet) in batch.iter().enumerate() {
        if let Some(Packet::Data(data)) = batch.get(i + AHEAD) {
            worker.value().prefetch(data.source, data.destination);
        }
        match packet {
            Packet::Config(_) => {
                while taken_up == published {
                    published += publish(worker, &tally.changes[taken_up..]);
                }
                worker.advance();
                taken_up += 1;
            }
            Packet::Data(data) if worker.value().passes(data.source, data.destination) => {
                tally.accept(data)
            }
            Packet::Data(_) => {}
        }
    }
    tally.work_off();
    worker.end();
}

/// Returns the number of changes that were published; 0 while another worker, which has its turn now, must take up some.
fn publish(worker: &mut Worker<Permissions<u32>>, changes: &[Change<u32>]) -> usize {
    match worker.publish(changes) {
        Ok(published) => published,
        Err(Refused::NoRoom { .. }) => {
            std::thread::yield_now();
            0
        }
        Err(Refused::Full(full)) => unreachable!("there is room for all addresses: {full}"),
    }
}

fn striped(worker: &mut StripedWorker<u32>, batch: &[Packet], tally: &mut Tally) {
    worker.begin();
    for packet in batch {
        match packet {
            Packet::Config(config) => {
                worker
                    .change(&change(config))
                    .expect("there is room for all addresses");
            }
            Packet::Data(data) if worker.denies(data.source, data.destination).is_none() => {
                tally.accept(data)
            }
            Packet::Data(_) => {}
        }
    }
    tally.work_off();
    worker.end();
}
