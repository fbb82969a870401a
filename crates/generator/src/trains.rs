//! The traffic of the multithreaded packet filter: trains of data packets, and packets that change permissions.
//!
//! [`Trains`] makes the packets of a [`Mix`], each in no more than a few arithmetic steps. The eight mixes of the course are in
//! [`MIXES`]. A data packet carries work: the rounds of [`fingerprint`].
//!
//! Addresses are numbers below 2^`addresses_log`. The addresses in use form a window that moves slowly, scattered over the space by a hash.
//! A communication is a pair of addresses and a number of trains; packets of many communications interleave.
//!
//! **Source**: the final problem set of the MIT course 6.816 (6.836), "Multicore Programming", whose generator several student projects
//! publish. Its constructor draws a pair before all others, and so does this one: accepted shares and rounds of work are those that an independent
//! re-statement of the course's program found, to three digits.

use crate::draw::ln;
use std::iter::repeat_with;

/// Parameters of the traffic: ten columns of the course's table.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mix {
    /// Number of addresses, as a power of two.
    pub addresses_log: u32,
    /// Number of communications at a time, as a power of two.
    pub trains_log: u32,
    /// Mean number of packets in a train.
    pub train_size: u32,
    /// Mean number of trains in a communication.
    pub trains_per_communication: u32,
    /// Mean distance of an address from the edge of the window.
    pub window: u32,
    /// Mean number of communications of an address.
    pub communications_per_address: u32,
    /// Mean number of rounds in a packet.
    pub work: u32,
    /// Share of packets that change permissions, before rounding.
    pub config_share: f64,
    /// Share of changes that make their address *persona non grata*.
    pub persona_non_grata_share: f64,
    /// Share of changes that add to the accepted sources.
    pub accepting_share: f64,
}

/// A row of the course's table.
const fn mix(whole: [u32; 7], shares: [f64; 3]) -> Mix {
    let [
        addresses_log,
        trains_log,
        train_size,
        trains_per_communication,
        window,
        communications_per_address,
        work,
    ] = whole;
    let [config_share, persona_non_grata_share, accepting_share] = shares;
    Mix {
        addresses_log,
        trains_log,
        train_size,
        trains_per_communication,
        window,
        communications_per_address,
        work,
        config_share,
        persona_non_grata_share,
        accepting_share,
    }
}

/// The eight mixes of the course.
pub const MIXES: [Mix; 8] = [
    mix([11, 12, 5, 1, 3, 3, 3822], [0.24, 0.04, 0.96]),
    mix([12, 10, 1, 3, 3, 1, 2644], [0.11, 0.09, 0.92]),
    mix([12, 10, 4, 3, 6, 2, 1304], [0.10, 0.03, 0.90]),
    mix([14, 10, 5, 5, 6, 2, 315], [0.08, 0.05, 0.90]),
    mix([15, 14, 9, 16, 7, 10, 4007], [0.02, 0.10, 0.84]),
    mix([15, 15, 9, 10, 9, 9, 7125], [0.01, 0.20, 0.77]),
    mix([15, 15, 10, 13, 8, 10, 5328], [0.04, 0.18, 0.80]),
    mix([16, 14, 15, 12, 9, 5, 8840], [0.04, 0.19, 0.76]),
];

impl Mix {
    /// Number of addresses.
    pub fn addresses(&self) -> u32 {
        1 << self.addresses_log
    }

    /// Number of changes that the course applies before the clock starts: addresses to the power of 1.5, rounded down.
    pub fn warm_up(&self) -> u64 {
        // The root of 2^3a is exact enough in integers: a is at most 31.
        (1u64 << (3 * self.addresses_log)).isqrt()
    }
}

/// A change of permissions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    /// Address whose permissions change.
    pub address: u32,
    /// Whether the address becomes *persona non grata*; if not, it is none any more.
    pub persona_non_grata: bool,
    /// Whether the range is added to the accepted sources; if not, it is taken away.
    pub accepting: bool,
    /// First source of the range.
    pub begin: u32,
    /// First source after the range.
    pub end: u32,
}

/// A data packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// Source address.
    pub source: u32,
    /// Destination address.
    pub destination: u32,
    /// Number of the packet in its train.
    pub sequence: u32,
    /// Number of packets in the train.
    pub train_size: u32,
    /// Random number of the communication.
    pub tag: u32,
    /// Rounds of [`fingerprint`].
    pub iterations: u32,
    /// Start of [`fingerprint`].
    pub seed: u32,
}

/// A packet of the mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packet {
    /// A change of permissions.
    Config(Config),
    /// A data packet.
    Data(Data),
}

/// The work of a data packet: a number of 16 bits.
///
/// **Cost**: one multiplication for each round, each waiting for the one before. The rounds are an affine map, which could be composed in
/// logarithmic time; benchmarks that compare with the course's execute them one by one, and so does this function.
/// **Source**: the linear congruential generator of `java.util.Random`.
#[inline]
pub fn fingerprint(iterations: u32, seed: u32) -> u16 {
    let constants = unknown();
    let last = (0..iterations).fold(u64::from(seed), |state, _| round(state, constants));
    (last >> 12) as u16
}

/// Number of packets whose rounds [`fingerprints`] executes side by side.
const LANES: usize = 8;

/// Calls `give` with the [`fingerprint`] of each packet, given by its iterations and seed, in any order. `work` is empty afterwards.
///
/// **Cost**: the rounds of eight packets side by side, since those of one wait for each other. All rounds are executed one by one.
pub fn fingerprints(work: &mut Vec<(u32, u32)>, mut give: impl FnMut(u16)) {
    // The longest first, so that none is left alone at the end.
    work.sort_unstable_by_key(|(iterations, _)| *iterations);
    let constants = unknown();
    let (mut states, mut left) = ([0u64; LANES], [u32::MAX; LANES]);
    let mut busy = 0;
    for (state, left) in states.iter_mut().zip(&mut left) {
        let Some((iterations, seed)) = work.pop() else {
            break;
        };
        (*state, *left) = (u64::from(seed), iterations);
        busy += 1;
    }
    while busy > 0 {
        let rounds = left.iter().copied().min().unwrap_or(0);
        for _ in 0..rounds {
            states = states.map(|state| round(state, constants));
        }
        for (state, left) in states.iter_mut().zip(&mut left) {
            // A lane without work has the most rounds left.
            *left -= if *left == u32::MAX { 0 } else { rounds };
            if *left == 0 {
                give((*state >> 12) as u16);
                match work.pop() {
                    Some((iterations, seed)) => (*state, *left) = (u64::from(seed), iterations),
                    None => (*left, busy) = (u32::MAX, busy - 1),
                }
            }
        }
    }
}

/// Factor and summand of a round.
const ROUND: [u64; 2] = [25_214_903_917, 11];

/// The constants of a round, which the compiler does not know: with known ones it composes several rounds to one.
fn unknown() -> [u64; 2] {
    std::hint::black_box(ROUND)
}

/// A round of [`fingerprint`]: 48 bits of state.
#[inline(always)]
fn round(state: u64, [factor, summand]: [u64; 2]) -> u64 {
    state.wrapping_mul(factor).wrapping_add(summand) & ((1 << 48) - 1)
}

/// Random numbers of the course: a register of 30 bits.
#[derive(Clone, Debug)]
struct Register(u32);

/// Feedback of the register, shifted out to the right.
const POLYNOMIAL: u32 = 0x38e7_4301;

/// Shifts a register by 31 places: the course's hash of addresses.
fn mangle(register: u32) -> u32 {
    (0..31).fold(register, |bits, _| {
        (bits >> 1) ^ if bits & 1 == 1 { POLYNOMIAL } else { 0 }
    })
}

impl Register {
    /// A generator that starts elsewhere for each seed. Every generator of the course starts as that of seed 1.
    fn with_seed(seed: u64) -> Self {
        let distance = seed.wrapping_sub(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 34;
        Self((59_009 + distance as u32) & ((1 << 30) - 1))
    }

    fn next(&mut self) -> u32 {
        self.0 = mangle(self.0) + 1;
        self.0
    }

    /// A number from `low` to below `high`.
    fn within(&mut self, low: u32, high: u32) -> u32 {
        self.next() % (high - low) + low
    }

    /// A number from 0 to below 1.
    fn unit(&mut self) -> f64 {
        f64::from(self.next() % (1 << 30)) / f64::from(1 << 30)
    }

    /// A number with an exponential distribution, rounded up.
    fn exponential(&mut self, mean: f64) -> u32 {
        // The logarithm of 2^30, as the course rounds it, keeps the result above 0.
        const LN_OF_ALL: f64 = 20.795;
        let left = f64::from((1 << 30) - self.next().min((1 << 30) - 1));
        (mean * (LN_OF_ALL - ln(left))).ceil() as u32
    }
}

/// Pairs of addresses: the source walks up, the destination down.
#[derive(Clone, Debug)]
struct Pairs {
    exponential: Register,
    uniform: Register,
    source: u32,
    destination: u32,
    /// Steps that each cursor still has to go.
    residues: [f64; 2],
}

impl Pairs {
    fn next(&mut self, mix: &Mix) -> (u32, u32) {
        let (speed, mask) = (
            2.0 / f64::from(mix.communications_per_address),
            mix.addresses() - 1,
        );
        for residue in &mut self.residues {
            *residue += speed * self.uniform.unit();
        }
        while self.residues[0] > 0.0 {
            self.residues[0] -= 1.0;
            self.source = self.source.wrapping_add(1) & mask;
        }
        while self.residues[1] > 0.0 {
            self.residues[1] -= 1.0;
            self.destination = self.destination.wrapping_sub(1) & mask;
        }
        let mut near = |cursor: u32| {
            mangle(1 + cursor + self.exponential.exponential(f64::from(mix.window))) & mask
        };
        (near(self.source), near(self.destination))
    }
}

/// A communication.
#[derive(Clone, Copy, Debug)]
struct Slot {
    source: u32,
    destination: u32,
    train_size: u32,
    trains: u32,
    work: u32,
    tag: u32,
    sequence: u32,
    /// Trains that are over.
    done: u32,
}

/// Generator of a mix. The same mix gives the same packets on every machine.
#[derive(Clone, Debug)]
pub struct Trains {
    mix: Mix,
    pairs: Pairs,
    exponential: Register,
    uniform: Register,
    slots: Vec<Slot>,
    /// Data packets before the next change.
    before_change: u32,
}

impl Trains {
    /// Makes the generator. The first packet is a change.
    pub fn new(mix: &Mix) -> Self {
        Self::with_seed(mix, 1)
    }

    /// Makes a generator of other packets for each seed; those of seed 1 are the course's.
    pub fn with_seed(mix: &Mix, seed: u64) -> Self {
        let new = || Register::with_seed(seed);
        let pairs = Pairs {
            exponential: new(),
            uniform: new(),
            source: 0,
            destination: 0,
            residues: [0.0; 2],
        };
        let mut trains = Self {
            mix: *mix,
            pairs,
            exponential: new(),
            uniform: new(),
            slots: Vec::new(),
            before_change: 0,
        };
        // The course's constructor draws the address of a last change, which its first change replaces.
        trains.pairs.next(mix);
        trains.slots = repeat_with(|| trains.communication())
            .take(1 << mix.trains_log)
            .collect();
        trains
    }

    fn communication(&mut self) -> Slot {
        let (source, destination) = self.pairs.next(&self.mix);
        let Self {
            mix,
            exponential,
            uniform,
            ..
        } = self;
        let mut draw = |mean: u32| exponential.exponential(f64::from(mean));
        let (train_size, trains) = (draw(mix.train_size), draw(mix.trains_per_communication));
        let (work, tag) = (draw(mix.work), uniform.next());
        Slot {
            source,
            destination,
            train_size,
            trains,
            work,
            tag,
            sequence: 0,
            done: 0,
        }
    }

    /// Makes a change of permissions, as for the warm-up.
    pub fn config(&mut self) -> Config {
        let (address, _) = self.pairs.next(&self.mix);
        let Self { mix, uniform, .. } = self;
        let longest = (1 << (mix.addresses_log / 2)) - 1;
        let begin = uniform.within(0, mix.addresses() - 1 - longest);
        let persona_non_grata = uniform.unit() < mix.persona_non_grata_share;
        let accepting = uniform.unit() < mix.accepting_share;
        Config {
            address,
            persona_non_grata,
            accepting,
            begin,
            end: uniform.within(begin + 1, begin + longest),
        }
    }

    fn data(&mut self) -> Data {
        let place = self.uniform.within(0, 1 << self.mix.trains_log) as usize;
        let slot = self.slots[place];
        let iterations = self.exponential.exponential(f64::from(slot.work));
        let seed = self.uniform.next();
        let Slot {
            source,
            destination,
            sequence,
            train_size,
            tag,
            ..
        } = slot;
        let next = &mut self.slots[place];
        next.sequence += 1;
        if next.sequence >= next.train_size {
            next.sequence = 0;
            next.done += 1;
            if next.done >= next.trains {
                self.slots[place] = self.communication();
            }
        }
        Data {
            source,
            destination,
            sequence,
            train_size,
            tag,
            iterations,
            seed,
        }
    }
}

/// Packets without end.
impl Iterator for Trains {
    type Item = Packet;

    fn next(&mut self) -> Option<Packet> {
        if self.before_change == 0 {
            self.before_change = self
                .exponential
                .exponential(1.0 / self.mix.config_share - 1.0);
            return Some(Packet::Config(self.config()));
        }
        self.before_change -= 1;
        Some(Packet::Data(self.data()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_is_that_of_javas_generator() {
        // java.util.Random starts at seed ^ 0x5deece66d; its next(32) is bits 16 to 47 of the state. Of seed 0 that is -1155484576.
        let state = round(0x5_deec_e66d, ROUND);
        assert_eq!((state >> 16) as u32 as i32, -1_155_484_576);
        let naive = (0..1000).fold(77u128, |state, _| (state * 25_214_903_917 + 11) % (1 << 48));
        assert_eq!(u128::from(fingerprint(1000, 77)), (naive >> 12) % (1 << 16));
        assert_eq!(fingerprint(0, 0xffff_ffff), 0xffff);
    }

    #[test]
    fn packets_side_by_side_have_the_fingerprints_that_each_has_alone() {
        for packets in [0, 1, 7, 8, 9, 200] {
            let work = (0..packets).map(|i: u32| {
                (
                    i.wrapping_mul(2_654_435_761) % 500 * u32::from(!i.is_multiple_of(11)),
                    i * i,
                )
            });
            let mut expected: Vec<u16> = work
                .clone()
                .map(|(iterations, seed)| fingerprint(iterations, seed))
                .collect();
            let (mut work, mut found) = (work.collect(), Vec::new());
            fingerprints(&mut work, |fingerprint| found.push(fingerprint));
            expected.sort_unstable();
            found.sort_unstable();
            assert_eq!((work.len(), found), (0, expected), "{packets} packets");
        }
    }

    /// The shares that the course's generator was found to have, which are below the nominal ones because of rounding up.
    #[test]
    fn shares_of_changes_are_those_of_the_course() {
        let found = [0.213, 0.105, 0.095, 0.077, 0.0198, 0.0099, 0.0392, 0.0390];
        for (mix, found) in MIXES.iter().zip(found) {
            let changes = Trains::new(mix)
                .take(1_000_000)
                .filter(|packet| matches!(packet, Packet::Config(_)))
                .count();
            let share = changes as f64 / 1e6;
            assert!((share / found - 1.0).abs() < 0.02, "{mix:?}: {share}");
        }
        let warm_up = [
            92_681, 262_144, 262_144, 2_097_152, 5_931_641, 5_931_641, 5_931_641, 16_777_216,
        ];
        assert_eq!(MIXES.map(|mix| mix.warm_up()), warm_up);
    }

    #[test]
    fn trains_are_whole_and_communications_end() {
        let mix = &MIXES[2];
        let mut trains: std::collections::HashMap<(u32, u32, u32), (u32, u32)> =
            std::collections::HashMap::new();
        let (mut packets, mut work) = (0, 0u64);
        for packet in Trains::new(mix).take(200_000) {
            let Packet::Data(data) = packet else { continue };
            assert!(
                data.source < mix.addresses()
                    && data.destination < mix.addresses()
                    && data.iterations > 0
            );
            let next = trains
                .entry((data.source, data.destination, data.tag))
                .or_insert((0, data.train_size));
            assert_eq!((data.sequence, data.train_size), *next);
            next.0 = (next.0 + 1) % data.train_size;
            packets += 1;
            work += u64::from(data.iterations);
        }
        // A communication has 4 packets in each of 3 trains in the mean, each number rounded up.
        let per_communication = f64::from(packets) / trains.len() as f64;
        assert!(
            (10.0..18.0).contains(&per_communication),
            "{per_communication}"
        );
        assert!(
            (work as f64 / f64::from(packets) / 1304.0 - 1.0).abs() < 0.1,
            "{}",
            work as f64 / f64::from(packets)
        );
    }

    /// The packets of a mix never change, or recorded benchmarks would be worth nothing.
    #[test]
    fn the_first_packets_are_as_ever() {
        let digest = |mix: &Mix| {
            Trains::new(mix)
                .take(10_000)
                .fold(0xcbf2_9ce4_8422_2325u64, |hash, packet| {
                    format!("{packet:?}").bytes().fold(hash, |hash, byte| {
                        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
                    })
                })
        };
        let found: Vec<String> = [MIXES[0], MIXES[7]]
            .iter()
            .map(|mix| format!("{:#018x}", digest(mix)))
            .collect();
        assert_eq!(found, ["0x846e54b81b879a41", "0xea100ca3d22817ad"]);
    }
}
