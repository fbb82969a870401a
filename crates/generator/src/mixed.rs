//! A mix of the multithreaded packet filter as Ethernet frames, with the known fate of each packet.
//!
//! Data packets are UDP datagrams over IPv4 between addresses of 10.0.0.0/16, from and to port [`PORT`]. The payload has five numbers of four
//! bytes, big-endian: number in the train, packets of the train, tag, rounds of work, and their start. The permission table is that
//! behind the course's warm-up, and the changes among the data packets are left out.
//!
//! A serial program with a bit for each pair of addresses decides what happens to a packet, before its bytes are written.

use crate::draw::Clock;
use crate::frame::{checksum, sum_of};
use crate::random::Random;
use crate::trains::{Config, Data, Mix, Packet, Trains};
use crate::{FRAME_MAX, Generated};
use core::fmt::Write as _;
use core::net::Ipv4Addr;

/// UDP port of both ends.
pub const PORT: u16 = 6816;

/// Length of a frame, bytes: Ethernet, IPv4, UDP and five numbers.
const LEN: usize = 14 + 20 + 8 + 20;

/// Domain of the seed for times.
const TIMES: u64 = 18;

/// Fate of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Passes,
    /// The source is *persona non grata*.
    Banned,
    /// The destination does not accept the source.
    Refused,
}

/// Frames of a mix, with a count of each fate.
///
/// **Cost**: [`Self::new`] executes the warm-up, up to 16.8 million changes in some ten seconds, and needs a bit for each pair of addresses: 512 KiB
/// for mix 1, 512 MiB for mix 8. [`Self::next`] allocates nothing.
#[derive(Debug)]
pub struct MixFrames {
    trains: Trains,
    addresses: usize,
    left: u64,
    clock: Clock,
    random: Random,
    banned: Vec<bool>,
    /// Bit `destination * addresses + source`: the destination refuses the source.
    refused: Vec<u64>,
    fates: [u64; 3],
}

impl MixFrames {
    /// Makes the frames of `packets` data packets, whose times start at `start_ns`. Seed 1 gives the course's packets.
    pub fn new(mix: &Mix, seed: u64, packets: u64, start_ns: i64, rate_pps: u64) -> Self {
        let addresses = mix.addresses() as usize;
        let mut frames = Self {
            trains: Trains::with_seed(mix, seed),
            addresses,
            left: packets,
            clock: Clock::new(start_ns, rate_pps.max(1)),
            random: Random::new(seed, TIMES),
            banned: vec![false; addresses],
            refused: vec![0; addresses * addresses / 64],
            fates: [0; 3],
        };
        for _ in 0..mix.warm_up() {
            let config = frames.trains.config();
            frames.apply(&config);
        }
        frames
    }

    fn apply(&mut self, config: &Config) {
        let Config { address, persona_non_grata, accepting, begin, end } = *config;
        self.banned[address as usize] = persona_non_grata;
        for source in begin..end {
            let bit = address as usize * self.addresses + source as usize;
            match accepting {
                true => self.refused[bit / 64] &= !(1 << (bit % 64)),
                false => self.refused[bit / 64] |= 1 << (bit % 64),
            }
        }
    }

    fn refuses(&self, destination: usize, source: usize) -> bool {
        let bit = destination * self.addresses + source;
        self.refused[bit / 64] >> (bit % 64) & 1 == 1
    }

    fn fate(&self, data: &Data) -> Fate {
        match data.source as usize {
            source if self.banned[source] => Fate::Banned,
            source if self.refuses(data.destination as usize, source) => Fate::Refused,
            _ => Fate::Passes,
        }
    }

    /// Number of packets still to be made.
    pub fn remaining(&self) -> u64 {
        self.left
    }

    /// Writes the next frame to the start of `buf`; `None` if all packets have been made.
    pub fn next(&mut self, buf: &mut [u8; FRAME_MAX]) -> Option<Generated> {
        self.left = self.left.checked_sub(1)?;
        let data = loop {
            match self.trains.next()? {
                Packet::Data(data) => break data,
                Packet::Config(_) => {}
            }
        };
        self.fates[self.fate(&data) as usize] += 1;
        write(buf, &data);
        Some(Generated { time_ns: self.clock.tick(self.random.next()), len: LEN, flow: None })
    }

    /// Packets and bytes of each fate so far, and its name.
    pub fn rows(&self) -> impl Iterator<Item = (String, u64, u64)> {
        let names = ["passes", "denied: the source is banned", "denied: the destination refuses the source"];
        let rows = names.into_iter().zip(self.fates);
        rows.map(|(name, packets)| (name.to_owned(), packets, packets * LEN as u64))
    }

    /// Lines of the permission table that packets are judged by, as `weir firewall --table` reads them.
    pub fn table(&self) -> impl Iterator<Item = String> {
        let banned = (0..self.addresses).filter(|&address| self.banned[address]);
        let bans = banned.map(|address| format!("ban {}\n", mapped(address as u32)));
        let refusals = (0..self.addresses).filter_map(|destination| self.refusal(destination));
        std::iter::once("default accept\n".to_owned()).chain(bans).chain(refusals)
    }

    /// The line of a destination; `None` if it accepts all sources.
    fn refusal(&self, destination: usize) -> Option<String> {
        let mut line = String::new();
        let mut source = 0;
        while source < self.addresses {
            let first = source;
            while source < self.addresses && self.refuses(destination, source) {
                source += 1;
            }
            if source > first {
                let before = if line.is_empty() { "" } else { "," };
                let (first, last) = (mapped(first as u32), mapped(source as u32 - 1));
                let _ = write!(line, "{before}{first}-{last}");
            }
            source += 1;
        }
        (!line.is_empty()).then(|| format!("refuse {} from {line}\n", mapped(destination as u32)))
    }
}

/// The address of a number.
fn mapped(address: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 | address)
}

/// Writes the frame of a data packet.
fn write(buf: &mut [u8; FRAME_MAX], data: &Data) {
    let [source, destination] = [data.source, data.destination].map(|address| mapped(address).octets());
    buf[..14].copy_from_slice(&[2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0]);
    // RFC 791: no options, don't fragment, 64 hops, UDP.
    buf[14..26].copy_from_slice(&[0x45, 0, 0, (LEN - 14) as u8, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    buf[26..30].copy_from_slice(&source);
    buf[30..34].copy_from_slice(&destination);
    let sum = checksum(sum_of(&buf[14..34]));
    buf[24..26].copy_from_slice(&sum.to_be_bytes());
    let length = (LEN - 34) as u16;
    for (at, field) in [PORT, PORT, length, 0].into_iter().enumerate() {
        buf[34 + 2 * at..36 + 2 * at].copy_from_slice(&field.to_be_bytes());
    }
    let numbers = [data.sequence, data.train_size, data.tag, data.iterations, data.seed];
    for (at, number) in numbers.into_iter().enumerate() {
        buf[42 + 4 * at..46 + 4 * at].copy_from_slice(&number.to_be_bytes());
    }
    // RFC 768: the pseudo header has both addresses, the protocol and the length; a sum of zero is sent as all ones.
    let sum = checksum(sum_of(&buf[26..LEN]) + 17 + u32::from(length));
    let sum = if sum == 0 { 0xffff } else { sum };
    buf[40..42].copy_from_slice(&sum.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trains::MIXES;

    fn small() -> Mix {
        Mix { addresses_log: 6, persona_non_grata_share: 0.2, accepting_share: 0.6, ..MIXES[0] }
    }

    /// The frame, byte by byte.
    #[test]
    fn a_frame_is_a_datagram_with_five_numbers() {
        let data = Data {
            source: 0x0102,
            destination: 0xfffe,
            sequence: 3,
            train_size: 5,
            tag: 0x0102_0304,
            iterations: 0x0a0b,
            seed: 0x7fff_ffff,
        };
        let mut buf = [0xee; FRAME_MAX];
        write(&mut buf, &data);
        let expected = [
            2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 48, 0, 0, 0x40, 0, 64, 17, 0x25, 0xbd, 10, 0, 1, 2,
            10, 0, 0xff, 0xfe, 0x1a, 0xa0, 0x1a, 0xa0, 0, 28, 0x27, 0x5d, 0, 0, 0, 3, 0, 0, 0, 5, 1, 2, 3, 4, 0, 0,
            0x0a, 0x0b, 0x7f, 0xff, 0xff, 0xff,
        ];
        assert_eq!(buf[..LEN], expected);
        assert_eq!(buf[LEN], 0xee);
    }

    /// The table as text, read by its words, has the fates that were counted.
    #[test]
    fn the_table_denies_what_was_counted() {
        let mut frames = MixFrames::new(&small(), 7, 4000, 5, 1000);
        let lines: Vec<String> = frames.table().collect();
        assert_eq!(lines[0], "default accept\n");
        let number = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_bits() & 0xffff;
        let denied = |source: u32, destination: u32| {
            let is_banned =
                lines.iter().any(|line| line.strip_prefix("ban ").is_some_and(|a| number(a.trim()) == source));
            let refuses = lines.iter().filter_map(|line| line.strip_prefix("refuse ")?.trim().split_once(" from "));
            let mut ranges =
                refuses.filter(|(who, _)| number(who) == destination).flat_map(|(_, from)| from.split(','));
            let mut has = || {
                ranges
                    .any(|range| range.split_once('-').is_some_and(|(a, b)| (number(a)..=number(b)).contains(&source)))
            };
            if is_banned { 1 } else { 2 * usize::from(has()) }
        };
        let (mut buf, mut found, mut before) = ([0; FRAME_MAX], [0; 3], i64::MIN);
        while let Some(made) = frames.next(&mut buf) {
            let address = |at: usize| u32::from(u16::from_be_bytes([buf[at + 2], buf[at + 3]]));
            found[denied(address(26), address(30))] += 1;
            assert!(made.time_ns >= before && made.len == LEN);
            before = made.time_ns;
        }
        let counted: Vec<u64> = frames.rows().map(|(_, packets, _)| packets).collect();
        assert_eq!(counted, found);
        assert!(counted.iter().all(|packets| *packets > 300), "{counted:?}");
    }

    #[test]
    fn seeds_give_other_packets_and_seed_1_the_courses() {
        let first = |seed| Trains::with_seed(&small(), seed).take(50).collect::<Vec<_>>();
        assert_eq!(first(1), Trains::new(&small()).take(50).collect::<Vec<_>>());
        assert_ne!(first(2), first(1));
    }
}
