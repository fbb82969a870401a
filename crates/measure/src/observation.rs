//! A packet on its way to the counters.

use core::borrow::Borrow;
use weir_packet::flow::FlowKey;
use weir_sketch::Packet;
use zerocopy::{FromZeros, Immutable, IntoBytes};

/// What is known of a packet once its headers were read: one cache line, so that a ring of them can carry packets between
/// threads. It also carries what must keep its place among the packets: see [`Kind`].
#[derive(Clone, Copy, Debug, FromZeros, IntoBytes, Immutable)]
#[repr(C, align(64))]
pub struct Observation {
    /// [Plain](weir_packet::flow::Hasher::plain) hash of the whole flow key; with [`Kind::Mark`] any number, with [`Kind::Close`] whether
    /// it [replaces](Self::replaces) counters.
    pub hash: u64,
    /// Time, ns since 1970; with [`Kind::Close`] the first window that stays open.
    pub time_ns: i64,
    /// The flow key, if there is one.
    pub flow: FlowKey,
    /// Bytes on the wire.
    pub bytes: u32,
    /// A [`Kind`].
    kind: u32,
}

/// What an [`Observation`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Kind {
    /// A packet with a flow key.
    Flow = 0,
    /// A packet without: not IP.
    NotIp,
    /// A packet without: cut too short.
    Truncated,
    /// A packet without: headers that contradict themselves.
    Malformed,
    /// A packet without: its link type is not read.
    LinkType,
    /// No packet: what lies before a window is complete.
    Close,
    /// No packet: the end of a batch.
    Mark,
}

impl Observation {
    /// The time of a packet that has none, before any that has one.
    pub const NO_TIME: i64 = i64::MIN;

    /// What it stands for.
    #[inline]
    pub fn kind(&self) -> Kind {
        match self.kind {
            0 => Kind::Flow,
            1 => Kind::NotIp,
            2 => Kind::Truncated,
            3 => Kind::Malformed,
            4 => Kind::LinkType,
            5 => Kind::Close,
            _ => Kind::Mark,
        }
    }

    /// A packet came: all but its key and its hash.
    #[inline]
    pub fn arrived(&mut self, kind: Kind, bytes: u32, time_ns: i64) {
        (self.kind, self.bytes, self.time_ns) = (kind as u32, bytes, time_ns);
    }

    /// Windows before number `open` are complete.
    pub fn close(open: i64) -> Self {
        Self { kind: Kind::Close as u32, time_ns: open, ..Self::new_zeroed() }
    }

    /// All windows are complete, and other counters take what comes.
    pub fn replace() -> Self {
        Self { hash: 1, ..Self::close(i64::MAX) }
    }

    /// Of [`Kind::Close`]: whether other counters take what comes.
    pub fn replaces(&self) -> bool {
        self.hash == 1
    }

    /// The end of a batch; `stamp` comes out where it is taken.
    pub fn mark(stamp: u64) -> Self {
        Self { kind: Kind::Mark as u32, hash: stamp, ..Self::new_zeroed() }
    }
}

/// What decides for many packets at once how they are counted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glance {
    /// The smallest time, which may be [`Observation::NO_TIME`].
    pub earliest: i64,
    /// The largest time.
    pub latest: i64,
    /// All are of [`Kind::Flow`].
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
        Self { earliest, latest, all_flows: kinds == Kind::Flow as u32 }
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
}
