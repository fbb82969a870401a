//! A mix of the multithreaded packet filter as Ethernet frames, with the known fate of each packet.
//!
//! Data packets are UDP datagrams over IPv4 between addresses of 10.0.0.0/16, from and to port
//! [`PORT`]. The payload has five numbers of four bytes, big-endian: number in the train, packets
//! of the train, tag, rounds of work, and their start. The permission table is that after the
//! course's warm-up. The changes among the data packets are control packets to port
//! [`CONTROL_PORT`] if a [`Seal`] signs them, else they are left out.
//!
//! A serial program with a bit for each pair of addresses decides what happens to a packet, before its bytes are written.

use crate::draw::Clock;
use crate::frame::{checksum, sum_of};
use crate::random::Random;
use crate::trains::{Config, Data, Mix, Packet, Trains};
use crate::{FRAME_MAX, Generated, LINK_ADDRESSES};
use core::fmt::Write as _;
use core::net::Ipv4Addr;

/// UDP port of both ends.
pub const PORT: u16 = 6816;

/// UDP port of control packets.
pub const CONTROL_PORT: u16 = 6633;

/// Bytes of the headers: Ethernet, IPv4 and UDP.
const HEADERS: usize = 14 + 20 + 8;

/// Numbers of the controller and of the host that it writes to, after all addresses of a mix.
const CONTROLLERS: [u32; 2] = [0xff_fffe, 0xff_fffd];

/// Makes the payload of a control packet from its sequence number, its time in ns since the epoch, and its lines of a permission table.
pub type Seal = Box<dyn FnMut(u64, i64, &str) -> Vec<u8> + Send>;

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

/// Number of packets, and their bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Count {
    packets: u64,
    bytes: u64,
}

/// Frames of a mix, with a count of each fate.
///
/// **Cost**: [`Self::new`] executes the warm-up, up to 16.8 million changes in some ten seconds, and needs a bit for each pair of addresses: 512 KiB
/// for mix 1, 512 MiB for mix 8. [`Self::next`] allocates nothing.
pub struct MixFrames {
    trains: Trains,
    addresses: usize,
    left: u64,
    clock: Clock,
    random: Random,
    banned: Vec<bool>,
    /// Whether destinations accept all sources before the first change, or none.
    accepts: bool,
    /// Bit `destination * addresses + source`: the destination refuses the source.
    refused: Vec<u64>,
    fates: [Count; 3],
    changes: Count,
    seal: Option<Seal>,
}

impl MixFrames {
    /// Makes `packets` frames, whose times start at `start_ns`. Seed 1 gives the course's packets. Destinations accept all sources before the
    /// first change if `accepts`, else none: the course leaves it open, and its students chose either.
    pub fn new(
        mix: &Mix,
        seed: u64,
        packets: u64,
        start_ns: i64,
        rate_pps: u64,
        accepts: bool,
    ) -> Self {
        let addresses = mix.addresses() as usize;
        let refused = if accepts { 0 } else { u64::MAX };
        let mut frames = Self {
            trains: Trains::with_seed(mix, seed),
            addresses,
            left: packets,
            clock: Clock::new(start_ns, rate_pps.max(1)),
            random: Random::new(seed, TIMES),
            banned: vec![false; addresses],
            accepts,
            refused: vec![refused; addresses * addresses / 64],
            fates: [Count::default(); 3],
            changes: Count::default(),
            seal: None,
        };
        for _ in 0..mix.warm_up() {
            let config = frames.trains.config();
            frames.apply(&config);
        }
        frames
    }

    fn apply(&mut self, config: &Config) {
        let Config {
            address,
            persona_non_grata,
            accepting,
            begin,
            end,
        } = *config;
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

    /// Makes control packets of the changes from here on.
    pub fn sign(&mut self, seal: Seal) {
        self.seal = Some(seal);
    }

    /// Writes the next frame to the start of `buf`; `None` if all packets have been made.
    pub fn next(&mut self, buf: &mut [u8; FRAME_MAX]) -> Option<Generated> {
        self.left = self.left.checked_sub(1)?;
        let time_ns = self.clock.tick(self.random.next());
        let len = loop {
            match self.trains.next()? {
                Packet::Data(data) => break self.data(buf, &data),
                Packet::Config(config) => {
                    if let Some(len) = self.control(buf, &config, time_ns) {
                        break len;
                    }
                }
            }
        };
        Some(Generated {
            time_ns,
            len,
            flow: None,
        })
    }

    fn data(&mut self, buf: &mut [u8; FRAME_MAX], data: &Data) -> usize {
        for (place, number) in buf[HEADERS..].chunks_exact_mut(4).zip([
            data.sequence,
            data.train_size,
            data.tag,
            data.iterations,
            data.seed,
        ]) {
            place.copy_from_slice(&number.to_be_bytes());
        }
        let len = write(buf, [data.source, data.destination], PORT, 20);
        self.fates[self.fate(data) as usize].add(len);
        len
    }

    /// Makes a control packet, and applies its change; `None` if there is nobody to sign it.
    fn control(
        &mut self,
        buf: &mut [u8; FRAME_MAX],
        config: &Config,
        time_ns: i64,
    ) -> Option<usize> {
        let seal = self.seal.as_mut()?;
        let address = mapped(config.address);
        let (ban, accept) = (
            if config.persona_non_grata {
                "ban"
            } else {
                "unban"
            },
            if config.accepting { "accept" } else { "refuse" },
        );
        let (first, last) = (mapped(config.begin), mapped(config.end - 1));
        let lines = format!("{ban} {address}\n{accept} {address} from {first}-{last}");
        let payload = seal(self.changes.packets + 1, time_ns, &lines);
        buf[HEADERS..HEADERS + payload.len()].copy_from_slice(&payload);
        let len = write(buf, CONTROLLERS, CONTROL_PORT, payload.len());
        self.changes.add(len);
        self.apply(config);
        Some(len)
    }

    /// Packets and bytes of each fate so far, and its name.
    pub fn rows(&self) -> impl Iterator<Item = (String, u64, u64)> {
        let names = [
            "passes",
            "denied: the source is banned",
            "denied: the destination refuses the source",
        ];
        let changes = self.seal.as_ref().map(|_| ("control packet", self.changes));
        let rows = names.into_iter().zip(self.fates).chain(changes);
        rows.map(|(name, count)| (name.to_owned(), count.packets, count.bytes))
    }

    /// Lines of the permission table that packets are judged by, as `weir firewall --table` reads them.
    pub fn table(&self) -> impl Iterator<Item = String> {
        let banned = (0..self.addresses).filter(|&address| self.banned[address]);
        let bans = banned.map(|address| format!("ban {}\n", mapped(address as u32)));
        let others = (0..self.addresses).filter_map(|destination| self.line(destination));
        let default = if self.accepts {
            "default accept\n"
        } else {
            "default refuse\n"
        };
        std::iter::once(default.to_owned())
            .chain(bans)
            .chain(others)
    }

    /// The line of a destination, with the sources for which it differs from the default; `None` without such sources.
    fn line(&self, destination: usize) -> Option<String> {
        let mut line = String::new();
        let mut source = 0;
        while source < self.addresses {
            let first = source;
            while source < self.addresses && self.refuses(destination, source) == self.accepts {
                source += 1;
            }
            if source > first {
                let before = if line.is_empty() { "" } else { "," };
                let (first, last) = (mapped(first as u32), mapped(source as u32 - 1));
                let _ = write!(line, "{before}{first}-{last}");
            }
            source += 1;
        }
        let word = if self.accepts { "refuse" } else { "accept" };
        (!line.is_empty()).then(|| format!("{word} {} from {line}\n", mapped(destination as u32)))
    }
}

impl Count {
    fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }
}

/// The address of a number.
fn mapped(address: u32) -> Ipv4Addr {
    Ipv4Addr::from_bits(0x0a00_0000 | address)
}

/// Writes the headers of a datagram, from and to the same port, whose payload is in its place; returns the length of the frame.
fn write(buf: &mut [u8; FRAME_MAX], addresses: [u32; 2], port: u16, payload: usize) -> usize {
    let [source, destination] = addresses.map(|address| mapped(address).octets());
    let (len, length) = (HEADERS + payload, (8 + payload) as u16);
    let [from, to] = LINK_ADDRESSES;
    buf[..6].copy_from_slice(&to);
    buf[6..12].copy_from_slice(&from);
    buf[12..14].copy_from_slice(&[8, 0]);
    // RFC 791: no options, don't fragment, 64 hops, UDP.
    buf[14..26].copy_from_slice(&[0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0]);
    buf[16..18].copy_from_slice(&(20 + length).to_be_bytes());
    buf[26..30].copy_from_slice(&source);
    buf[30..34].copy_from_slice(&destination);
    let sum = checksum(sum_of(&buf[14..34]));
    buf[24..26].copy_from_slice(&sum.to_be_bytes());
    for (at, field) in [port, port, length, 0].into_iter().enumerate() {
        buf[34 + 2 * at..36 + 2 * at].copy_from_slice(&field.to_be_bytes());
    }
    // RFC 768: the pseudo header has both addresses, the protocol and the length; an odd byte is padded with 0, and a sum of zero is sent as
    // all ones.
    let odd = if payload % 2 == 1 {
        u32::from(buf[len - 1]) << 8
    } else {
        0
    };
    let sum = match checksum(sum_of(&buf[26..len]) + odd + 17 + u32::from(length)) {
        0 => 0xffff,
        sum => sum,
    };
    buf[40..42].copy_from_slice(&sum.to_be_bytes());
    len
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trains::MIXES;

    fn small() -> Mix {
        Mix {
            addresses_log: 6,
            persona_non_grata_share: 0.2,
            accepting_share: 0.6,
            ..MIXES[0]
        }
    }

    /// The frame, byte by byte.
    #[test]
    fn a_frame_is_a_datagram_with_five_numbers() {
        let data = Data {
            source: 0x02,
            destination: 0x3e,
            sequence: 3,
            train_size: 5,
            tag: 0x0102_0304,
            iterations: 0x0a0b,
            seed: 0x7fff_ffff,
        };
        let mut buf = [0xee; FRAME_MAX];
        let len = MixFrames::new(&small(), 1, 0, 0, 1, true).data(&mut buf, &data);
        let expected = [
            2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0, 0, 0x30, 0, 0, 0x40, 0, 0x40, 0x11,
            0x26, 0x7e, 0xa, 0, 0, 2, 0xa, 0, 0, 0x3e, 0x1a, 0xa0, 0x1a, 0xa0, 0, 0x1c, 0x28, 0x1e,
            0, 0, 0, 3, 0, 0, 0, 5, 1, 2, 3, 4, 0, 0, 0xa, 0xb, 0x7f, 0xff, 0xff, 0xff,
        ];
        assert_eq!(buf[..len], expected);
        assert_eq!(buf[len], 0xee);
    }

    /// The table as text, read by its words, has the fates that were counted, whatever the default.
    #[test]
    fn the_table_denies_what_was_counted() {
        for (accepts, default, other) in [
            (true, "default accept\n", "refuse "),
            (false, "default refuse\n", "accept "),
        ] {
            let mut frames = MixFrames::new(&small(), 7, 4000, 5, 1000, accepts);
            let lines: Vec<String> = frames.table().collect();
            assert_eq!(lines[0], default);
            let number = |text: &str| text.parse::<Ipv4Addr>().unwrap().to_bits() & 0xffff;
            let denied = |source: u32, destination: u32| {
                let is_banned = lines.iter().any(|line| {
                    line.strip_prefix("ban ")
                        .is_some_and(|a| number(a.trim()) == source)
                });
                let others = lines
                    .iter()
                    .filter_map(|line| line.strip_prefix(other)?.trim().split_once(" from "));
                let mut ranges = others
                    .filter(|(who, _)| number(who) == destination)
                    .flat_map(|(_, from)| from.split(','));
                let is_other = ranges.any(|range| {
                    range
                        .split_once('-')
                        .is_some_and(|(a, b)| (number(a)..=number(b)).contains(&source))
                });
                if is_banned {
                    1
                } else {
                    2 * usize::from(is_other == accepts)
                }
            };
            let (mut buf, mut found, mut before) = ([0; FRAME_MAX], [0; 3], i64::MIN);
            while let Some(made) = frames.next(&mut buf) {
                let address = |at: usize| u32::from(u16::from_be_bytes([buf[at + 2], buf[at + 3]]));
                found[denied(address(26), address(30))] += 1;
                assert!(made.time_ns >= before && made.len == 62);
                before = made.time_ns;
            }
            let counted: Vec<u64> = frames.rows().map(|(_, packets, _)| packets).collect();
            assert_eq!(counted, found);
            assert!(counted.iter().all(|packets| *packets > 300), "{counted:?}");
        }
    }

    /// Control packets carry their change as lines, with ascending numbers, and what follows is judged by it.
    #[test]
    fn signed_changes_are_packets_and_take_effect() {
        let mut frames = MixFrames::new(&small(), 3, 3000, 5, 1000, true);
        frames.sign(Box::new(|number, time_ns, lines| {
            format!("{number} {time_ns}\n{lines}").into_bytes()
        }));
        let (mut buf, mut changes, mut banned) =
            ([0; FRAME_MAX], 0, std::collections::HashMap::new());
        let mut denied = 0;
        while let Some(made) = frames.next(&mut buf) {
            let port = u16::from_be_bytes([buf[36], buf[37]]);
            if port == PORT {
                let now = frames.fates[Fate::Banned as usize].packets;
                // Sources without a change among these packets are as the warm-up left them.
                if let Some(is_banned) = banned.get(&buf[29]) {
                    assert_eq!(now > denied, *is_banned);
                }
                denied = now;
                continue;
            }
            assert_eq!(port, CONTROL_PORT);
            changes += 1;
            let text = std::str::from_utf8(&buf[HEADERS..made.len]).unwrap();
            let lines: Vec<&str> = text.lines().collect();
            assert_eq!(lines[0], format!("{changes} {}", made.time_ns));
            let (word, address) = lines[1].split_once(' ').unwrap();
            banned.insert(
                address.parse::<Ipv4Addr>().unwrap().octets()[3],
                word == "ban",
            );
            assert!(
                lines[2].contains(&format!(" {address} from 10.0.0.")),
                "{text}"
            );
        }
        let rows: Vec<u64> = frames.rows().map(|(_, packets, _)| packets).collect();
        assert_eq!(
            (rows.len(), rows[3], rows.iter().sum::<u64>()),
            (4, changes, 3000)
        );
        assert!(changes > 300);
        for (address, is_banned) in banned {
            assert_eq!(frames.banned[usize::from(address)], is_banned);
        }
    }

    #[test]
    fn seeds_give_other_packets_and_seed_1_the_courses() {
        let first = |seed| {
            Trains::with_seed(&small(), seed)
                .take(50)
                .collect::<Vec<_>>()
        };
        assert_eq!(first(1), Trains::new(&small()).take(50).collect::<Vec<_>>());
        assert_ne!(first(2), first(1));
    }
}
