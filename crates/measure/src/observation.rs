//! Observations: packets after their headers were read, before they are counted.

use core::borrow::Borrow;
use weir_packet::flow::{Facts, FlowKey};
use weir_sketch::{Packet, Times};
use zerocopy::{FromZeros, Immutable, IntoBytes, transmute};

/// Facts about a packet, taken from its headers. One observation fills one cache line, so that a
/// ring can carry observations between threads. Messages that must keep their place among the
/// packets are also observations: see [`Kind`].
#[derive(Clone, Copy, Debug, FromZeros, IntoBytes, Immutable)]
#[repr(C, align(64))]
pub struct Observation {
    /// [Plain](weir_packet::flow::Hasher::plain) hash of the whole flow key; with [`Kind::Mark`], a number chosen by the
    /// caller; with [`Kind::Close`], 1 if it [replaces](Self::replaces) counters.
    pub hash: u64,
    /// Time, in ns since 1970; with [`Kind::Close`], the number of the first window that stays open.
    pub time_ns: i64,
    /// Flow key, if the packet has one.
    pub flow: FlowKey,
    /// Wire length, in bytes.
    pub bytes: u32,
    /// [`Kind`] of the observation, as a number in the lowest byte. Above it, bits of a packet that refuses something: [`REFUSES`],
    /// the place of the quoted protocol in [`QUOTED`], counted from 1, and the quoted destination port.
    kind: u32,
}

/// Bits of `kind` that hold the [`Kind`].
const KIND: u32 = 0xff;
/// Bit of `kind`: the packet is a refusal.
const REFUSES: u32 = 1 << 8;
/// First of three bits of `kind` for the quoted protocol; 0 if none is quoted.
const PROTO: u32 = 9;
/// First of the 16 bits of `kind` for the quoted port.
const PORT: u32 = 16;
/// Protocols with ports: TCP, UDP, SCTP, DCCP and UDP-Lite.
const QUOTED: [u8; 5] = [6, 17, 132, 33, 136];

/// Meaning of an [`Observation`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// Packet with a flow key.
    Flow = 0,
    /// Packet without a flow key: not IP.
    NotIp,
    /// Packet without a flow key: cut too short.
    Truncated,
    /// Packet without a flow key: its headers contradict themselves.
    Malformed,
    /// Packet without a flow key: weir does not read its link type.
    LinkType,
    /// No packet: all windows before a given window are complete.
    Close,
    /// No packet: the end of a batch.
    Mark,
    /// No packet: the facts of the packet after it.
    Facts,
}

impl Observation {
    /// Time of a packet without a timestamp; less than every real time.
    pub const NO_TIME: i64 = Times::NO_TIME;

    /// Returns the meaning of the observation.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self.kind & KIND {
            0 => Kind::Flow,
            1 => Kind::NotIp,
            2 => Kind::Truncated,
            3 => Kind::Malformed,
            4 => Kind::LinkType,
            5 => Kind::Close,
            6 => Kind::Mark,
            _ => Kind::Facts,
        }
    }

    /// Sets the kind, the wire length and the time of a packet; its key and its hash stay as they are.
    #[inline]
    pub fn arrived(&mut self, kind: Kind, bytes: u32, time_ns: i64) {
        (self.kind, self.bytes, self.time_ns) = (kind as u32, bytes, time_ns);
    }

    /// Marks a packet as a refusal: a TCP reset, or an ICMP message of an unreachable destination. `quoted` has protocol and
    /// destination port of the refused packet, if the message quotes them.
    #[inline]
    pub fn refuse(&mut self, quoted: Option<(u8, u16)>) {
        let place = |proto| QUOTED.iter().position(|known| *known == proto);
        let quoted = quoted.and_then(|(proto, port)| Some((place(proto)? as u32 + 1, port)));
        let bits = quoted.map_or(0, |(place, port)| place << PROTO | u32::from(port) << PORT);
        self.kind = self.kind & KIND | REFUSES | bits;
    }

    /// Returns whether the packet [refuses](Self::refuse) something.
    #[inline(always)]
    pub fn refuses(&self) -> bool {
        self.kind & REFUSES != 0
    }

    /// Returns protocol and destination port of the packet that this one [refuses](Self::refuse), if it quotes them.
    #[inline(always)]
    pub fn quoted(&self) -> Option<(u8, u16)> {
        match self.kind >> PROTO & 7 {
            0 => None,
            place => {
                let proto = QUOTED.get(place as usize - 1)?;
                Some((*proto, (self.kind >> PORT) as u16))
            }
        }
    }

    /// Creates the message with the facts of the packet after it. Both flow key and hash hold their bytes.
    pub fn of_facts(facts: &Facts) -> Self {
        let words: [[u8; 8]; 6] = transmute!(*facts);
        let [first @ .., last] = words;
        Self {
            kind: Kind::Facts as u32,
            flow: transmute!(first),
            hash: u64::from_ne_bytes(last),
            ..Self::new_zeroed()
        }
    }

    /// Returns the facts of [`Self::of_facts`]; valid for [`Kind::Facts`] only.
    pub fn facts(&self) -> Facts {
        let [a, b, c, d, e]: [[u8; 8]; 5] = transmute!(self.flow);
        transmute!([a, b, c, d, e, self.hash.to_ne_bytes()])
    }

    /// Creates the control mark that closes all windows before number `open`.
    pub fn close(open: i64) -> Self {
        Self {
            kind: Kind::Close as u32,
            time_ns: open,
            ..Self::new_zeroed()
        }
    }

    /// Creates the control mark that closes all windows: later packets are counted with the new
    /// keys.
    pub fn replace() -> Self {
        Self {
            hash: 1,
            ..Self::close(i64::MAX)
        }
    }

    /// Returns whether other counters take all later packets; valid for [`Kind::Close`] only.
    pub fn replaces(&self) -> bool {
        self.hash == 1
    }

    /// Creates the mark of the end of a batch; the receiver reads `stamp` from the field `hash`.
    pub fn mark(stamp: u64) -> Self {
        Self {
            kind: Kind::Mark as u32,
            hash: stamp,
            ..Self::new_zeroed()
        }
    }
}

/// Summary of many packets that decides the path by which they are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glance {
    /// Smallest time, possibly [`Observation::NO_TIME`].
    pub earliest: i64,
    /// Largest time.
    pub latest: i64,
    /// Whether all packets are of [`Kind::Flow`].
    pub all_flows: bool,
}

impl Glance {
    #[inline]
    pub fn of(packets: &[Observation]) -> Self {
        let (mut earliest, mut latest, mut kinds) = (i64::MAX, i64::MIN, 0);
        for packet in packets {
            (earliest, latest) = (earliest.min(packet.time_ns), latest.max(packet.time_ns));
            kinds |= packet.kind;
        }
        Self {
            earliest,
            latest,
            all_flows: kinds & KIND == Kind::Flow as u32,
        }
    }
}

impl Packet<FlowKey> for Observation {
    #[inline(always)]
    fn hash(&self) -> u64 {
        self.hash
    }

    #[inline(always)]
    fn bytes(&self) -> u32 {
        self.bytes
    }

    #[inline(always)]
    fn key(&self) -> impl Borrow<FlowKey> {
        &self.flow
    }

    #[inline(always)]
    fn is_of(&self, key: &FlowKey) -> bool {
        self.flow == *key
    }

    #[inline(always)]
    fn time_ns(&self) -> i64 {
        self.time_ns
    }
}
