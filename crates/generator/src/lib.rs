//! Seeded synthetic traffic whose answers are known.
//!
//! A [`Generator`] makes Ethernet frames and departure times from a [`Profile`]: flows with Zipf-distributed popularity,
//! packet sizes of a real uplink, some VLAN tags, IPv6, ICMP, ARP and fragments. The generator also counts its own decisions, so
//! that filters can be compared with a [`Truth`], and measurements with [`Generator::top`].
//!
//! The generator is pure: no clock, no files, no sockets. The same profile gives the same bytes on every machine and in every
//! later version; a test pins them. Other crates wait for the departure times and write to a file or port.
//!
//! All addresses are from ranges set aside for private use, documentation and benchmarks ([`is_of_tests`]), and the MAC addresses
//! are locally administered: the traffic cannot reach a real host.
//!
//! Deliberately not done: TCP options, IPv6 extension headers, nested tags, meaningful payloads, all fragments of one datagram.
//! Connections of two directions, with an end and with troubles, DNS dialogues, scans, floods and storms: [`known`].
//!
//! ```
//! use weir_generator::{FRAME_MAX, Generator, Profile, Sizes};
//!
//! let profile = Profile { seed: 7, packets: 1000, sizes: Sizes::Fixed(60), ..Profile::default() };
//! let mut generator = Generator::new(&profile)?;
//! let mut buf = [0; FRAME_MAX];
//! let mut bytes = 0;
//! while let Some(made) = generator.next(&mut buf) {
//!     bytes += buf[..made.len].len() as u64;
//! }
//! assert_eq!(generator.truth().packets(), 1000);
//! assert_eq!(generator.truth().bytes(), bytes);
//! # Ok::<(), weir_generator::Error>(())
//! ```
#![forbid(unsafe_code)]

mod addresses;
mod draw;
mod flow;
mod frame;
pub mod known;
mod mixed;
mod packets;
mod profile;
mod random;
pub mod streams;
pub mod trains;
mod truth;

pub use addresses::is_of_tests;
pub use flow::FlowCount;
pub use mixed::{CONTROL_PORT, MixFrames, PORT, Seal};
pub use packets::Packets;
pub use profile::{Error, Profile, Sizes};
pub use truth::Truth;

use draw::{Alias, Clock};
use flow::{Flow, Kind, Room};
use frame::{Chance, FRAME_MIN, Fragment, Noise};
use profile::SizeDraw;
use random::Random;
use truth::{NEED_PORTS, Row};

/// Longest frame, bytes without FCS. Also the length of the buffer that [`Generator::next`] fills.
pub const FRAME_MAX: usize = 1514;

/// Link addresses between which all frames go, but for requests of ARP, which go to all. They are set aside for local use, and are
/// no card's.
pub const LINK_ADDRESSES: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2]];

/// Chance of an ARP frame, in 1/65536: 0.2 %.
const ARP_CHANCE: u64 = 131;
/// Chance that a packet of a TCP or UDP flow over IPv4 is a fragment, in 1/65536: 0.5 %.
const FRAGMENT_CHANCE: u64 = 328;
// Domains of the seed, different from those of the flows.
const STREAM: u64 = 16;
const NOISE: u64 = 17;

/// A packet that was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generated {
    /// Departure time, ns since the epoch; never before that of the previous packet.
    pub time_ns: i64,
    /// Length of the frame in the buffer, bytes without FCS.
    pub len: usize,
    /// Rank of the packet's flow, 0 for the heaviest; `None` for ARP.
    pub flow: Option<u32>,
}

/// Makes the packets of a profile, one after another, and counts them.
///
/// **Cost**: [`Generator::new`] allocates about 80 bytes per flow and computes two functions per flow (100,000 flows:
/// some 10 ms); [`Generator::next`] allocates nothing.
/// **Threads**: a plain value; each thread makes its own, with its own seed.
#[derive(Clone, Debug)]
pub struct Generator {
    seed: u64,
    room: Room,
    left: u64,
    random: Random,
    clock: Clock,
    sizes: SizeDraw,
    ranks: Alias,
    flows: Vec<Flow>,
    noise: Noise,
    truth: Truth,
}

impl Generator {
    /// Prepares the flows and tables of `profile`.
    ///
    /// **Errors**: a value outside its range, see [`Profile`].
    pub fn new(profile: &Profile) -> Result<Generator, Error> {
        Self::with_room(profile, Room::WHOLE)
    }

    /// As [`Self::new`], with addresses that none of [`known`] has.
    pub(crate) fn beside(profile: &Profile) -> Result<Generator, Error> {
        Self::with_room(profile, Room::LOWER)
    }

    fn with_room(profile: &Profile, room: Room) -> Result<Generator, Error> {
        profile.check()?;
        let flows = flow::plan(profile.seed, profile.flows, room);
        let (host, port) = flow::service(&flows[0]);
        Ok(Generator {
            seed: profile.seed,
            room,
            left: profile.packets,
            random: Random::new(profile.seed, STREAM),
            clock: Clock::new(profile.start_ns, profile.rate_pps),
            sizes: SizeDraw::new(profile.sizes),
            ranks: Alias::new(&draw::zipf_weights(flows.len(), profile.zipf)),
            flows,
            noise: Noise::new(Random::new(profile.seed, NOISE)),
            truth: Truth::new(host, port),
        })
    }

    /// Writes the next frame to the start of `buf`; `None` if all packets of the profile have been made.
    ///
    /// Bytes of `buf` after the frame are unchanged. **Cost**: no allocation; one flow's cache
    /// line, the headers and a copy of the payload.
    #[inline]
    pub fn next(&mut self, buf: &mut [u8; FRAME_MAX]) -> Option<Generated> {
        self.left = self.left.checked_sub(1)?;
        let time_ns = self.clock.tick(self.random.next());
        let dice = self.random.next();
        let (len, flow) = if dice & 0xffff < ARP_CHANCE {
            (self.arp(buf, dice), None)
        } else {
            let rank = self.ranks.pick(self.random.next());
            (self.packet(buf, rank, dice), Some(rank as u32))
        };
        Some(Generated { time_ns, len, flow })
    }

    /// Time of the next frame; `None` if all packets of the profile have been made.
    pub(crate) fn due(&self) -> Option<i64> {
        (self.left > 0).then(|| self.clock.now())
    }

    /// Number of packets still to be made.
    pub fn remaining(&self) -> u64 {
        self.left
    }

    /// Number of packets made so far that match each of the known expressions.
    pub fn truth(&self) -> &Truth {
        &self.truth
    }

    /// The `n` flows with the most packets so far, most first (equal ones: lower rank first), with exact counts.
    ///
    /// Flows without a packet are left out. **Cost**: sorts all flows; allocates.
    pub fn top(&self, n: usize) -> Vec<FlowCount> {
        let mut flows: Vec<&Flow> = self.flows.iter().filter(|f| f.packets > 0).collect();
        flows.sort_by_key(|flow| std::cmp::Reverse(flow.packets));
        flows.into_iter().take(n).map(Flow::to_count).collect()
    }

    /// Makes an ARP request or reply of a client that `dice` chooses.
    #[cold]
    fn arp(&mut self, buf: &mut [u8; FRAME_MAX], dice: u64) -> usize {
        let reply = dice >> 16 & 1 != 0;
        let (gateway, flows) = (self.room.gateway(), self.flows.len() as u64);
        let client = flow::client_address(self.seed, flows, self.room, dice >> 17);
        frame::write_arp(buf, client, gateway, reply);
        let sender = if reply { gateway } else { client };
        let inside = u32::from(sender[0] == 10) << Row::SourceNet10 as u32;
        self.truth.count(Row::Arp.mask() | inside, FRAME_MIN);
        FRAME_MIN
    }

    /// Makes a packet of the flow `rank`.
    #[inline]
    fn packet(&mut self, buf: &mut [u8; FRAME_MAX], rank: usize, dice: u64) -> usize {
        let size = self.sizes.draw(&mut self.random);
        let flow = &mut self.flows[rank];
        let len = size.max(flow.header_len());
        let chance = Chance {
            id: (dice >> 32) as u16,
            noise: (dice >> 48 & 0x3ff) as usize,
        };
        let mut rows = flow.rows;
        let mut shows_ports = true;
        // The first packet of a flow is whole, so that each TCP flow has its SYN.
        if dice >> 16 & 0xffff < FRAGMENT_CHANCE
            && flow.packets > 0
            && matches!(flow.kind, Kind::Tcp4 | Kind::Udp4)
        {
            let fragment = Fragment::choose(flow, len, (dice >> 58) as usize);
            frame::write_fragment(buf, len, flow, &self.noise, chance, fragment);
            let untagged = flow.vlan() == 0;
            shows_ports = fragment.offset == 0;
            rows |= u32::from(untagged) << Row::Fragment as u32;
            if !shows_ports {
                rows &= !NEED_PORTS;
                rows |= u32::from(untagged) << Row::LaterFragment as u32;
            }
        } else {
            let syn = frame::write_whole(buf, len, flow, &self.noise, chance);
            // libpcap tests TCP flags over IPv4 only.
            let counts = syn && flow.kind == Kind::Tcp4 && flow.vlan() == 0;
            rows |= u32::from(counts) << Row::Syn as u32;
        }
        if shows_ports {
            flow.packets += 1;
            flow.bytes += len as u64;
        }
        self.truth.count(rows, len);
        len
    }
}
