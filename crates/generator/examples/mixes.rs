//! Outcome of the eight mixes of the multithreaded packet filter by a serial program, for comparisons with other implementations.
//!
//! For each mix and each default, of the first million packets behind the warm-up: the share of changes, the shares of data packets that are
//! accepted and that are refused for their source, the rounds of work for each packet, and the hash of the histogram of fingerprints of the
//! accepted packets: FNV-1a of 64 bits over its 65 536 counts, each as four bytes, little-endian.
//!
//! ```text
//! cargo run --release -p weir-generator --example mixes
//! ```
//!
//! The rounds of a packet are an affine map, which is composed here in logarithmic time.

use weir_generator::trains::{Config, MIXES, Mix, Packet, Trains};

const PACKETS: usize = 1_000_000;

fn main() {
    println!("mix  default  changes  accepted  banned  rounds/packet  histogram");
    for (number, mix) in (1..).zip(&MIXES) {
        for accepts in [true, false] {
            let Outcome {
                changes,
                data,
                banned,
                accepted,
                rounds,
                histogram,
            } = outcome(mix, accepts);
            let share = |packets: u64, of: u64| packets as f64 / of as f64;
            println!(
                "{number:3}  {:7}  {:.4}   {:.4}    {:.4}  {:13.0}  {:016x}",
                if accepts { "accept" } else { "refuse" },
                share(changes, PACKETS as u64),
                share(accepted, data),
                share(banned, data),
                share(rounds, PACKETS as u64),
                hash(&histogram),
            );
        }
    }
}

struct Outcome {
    changes: u64,
    data: u64,
    banned: u64,
    accepted: u64,
    rounds: u64,
    histogram: Vec<u32>,
}

/// The serial program: a bit for each pair of addresses, a flag for each address.
fn outcome(mix: &Mix, accepts: bool) -> Outcome {
    let addresses = mix.addresses() as usize;
    let mut pairs = vec![if accepts { u64::MAX } else { 0 }; addresses * addresses / 64];
    let mut flags = vec![false; addresses];
    let apply = |config: &Config, pairs: &mut Vec<u64>, flags: &mut Vec<bool>| {
        flags[config.address as usize] = config.persona_non_grata;
        for source in config.begin..config.end {
            let bit = config.address as usize * addresses + source as usize;
            match config.accepting {
                true => pairs[bit / 64] |= 1 << (bit % 64),
                false => pairs[bit / 64] &= !(1 << (bit % 64)),
            }
        }
    };
    let mut trains = Trains::new(mix);
    (0..mix.warm_up()).for_each(|_| apply(&trains.config(), &mut pairs, &mut flags));
    let mut all = Outcome {
        changes: 0,
        data: 0,
        banned: 0,
        accepted: 0,
        rounds: 0,
        histogram: vec![0; 1 << 16],
    };
    for packet in trains.take(PACKETS) {
        let data = match packet {
            Packet::Config(config) => {
                all.changes += 1;
                apply(&config, &mut pairs, &mut flags);
                continue;
            }
            Packet::Data(data) => data,
        };
        all.data += 1;
        let bit = data.destination as usize * addresses + data.source as usize;
        if flags[data.source as usize] {
            all.banned += 1;
        } else if pairs[bit / 64] >> (bit % 64) & 1 == 1 {
            all.accepted += 1;
            all.rounds += u64::from(data.iterations);
            all.histogram[usize::from(fingerprint(data.iterations, data.seed))] += 1;
        }
    }
    all
}

/// The fingerprint, by squaring the affine map of a round.
fn fingerprint(mut iterations: u32, seed: u32) -> u16 {
    let (mut factor, mut summand) = (25_214_903_917u64, 11u64);
    let mut state = u64::from(seed);
    while iterations > 0 {
        if iterations & 1 == 1 {
            state = state.wrapping_mul(factor).wrapping_add(summand);
        }
        summand = factor.wrapping_mul(summand).wrapping_add(summand);
        factor = factor.wrapping_mul(factor);
        iterations >>= 1;
    }
    (state >> 12) as u16
}

fn hash(histogram: &[u32]) -> u64 {
    let bytes = histogram.iter().flat_map(|count| count.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
