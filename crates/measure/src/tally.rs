//! Plain totals of a window of time.

use crate::{Kind, Observation};
use core::ops::AddAssign;

/// Upper ends (inclusive) of the size classes, wire bytes; one more class is open-ended.
pub const SIZE_CLASSES: [u32; 7] = [64, 127, 255, 511, 1023, 1518, 9018];

/// Packets in size classes.
pub type Sizes = [u64; SIZE_CLASSES.len() + 1];

/// The class of a wire length.
#[inline]
pub fn size_class(wire_len: u32) -> usize {
    // Counting is a handful of compares without branches; a search would guess wrong half of the time.
    SIZE_CLASSES.iter().map(|&end| usize::from(end < wire_len)).sum()
}

/// What arrived, and where it went before it was measured. Each is counted where it happens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Packets that arrived.
    pub received: u64,
    /// Packets that the expression rejected.
    pub filtered: u64,
    /// Packets of live sources whose window of time was closed already: they are dropped.
    pub late: u64,
    /// Packets whose time stamp jumped and was not believed: they passed or were filtered where they came.
    pub jumped: u64,
    /// Packets that the kernel had no room for.
    pub dropped: u64,
}

impl AddAssign for Arrivals {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.filtered += other.filtered;
        self.late += other.late;
        self.jumped += other.jumped;
        self.dropped += other.dropped;
    }
}

/// Totals of the packets that were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Packets.
    pub passed: u64,
    /// Their bytes on the wire; the largest u64 stands for as many or more.
    pub bytes: u64,
    /// Packets per size class.
    pub sizes: Sizes,
    /// Packets without a flow key: they count in the totals and in no table.
    pub keyless: Keyless,
    /// Earliest and latest time of a packet, ns since 1970; without one, the latest is before the earliest.
    first: i64,
    last: i64,
}

impl Default for Tally {
    fn default() -> Self {
        let (sizes, keyless) = Default::default();
        Self { passed: 0, bytes: 0, sizes, keyless, first: i64::MAX, last: i64::MIN }
    }
}

/// Packets without a flow key, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keyless {
    /// Not IP: ARP, LLDP and the like.
    pub not_ip: u64,
    /// Cut before the addresses.
    pub truncated: u64,
    /// Headers that contradict themselves.
    pub malformed: u64,
    /// Of a link type in which weir looks for no key.
    pub link_type: u64,
}

impl Keyless {
    /// All of them.
    pub fn sum(&self) -> u64 {
        self.not_ip + self.truncated + self.malformed + self.link_type
    }
}

impl Tally {
    /// Counts packets.
    #[inline]
    pub(crate) fn take(&mut self, packets: &[Observation]) {
        let Self { mut first, mut last, .. } = *self;
        let mut bytes = 0;
        for packet in packets {
            bytes += u64::from(packet.bytes);
            self.sizes[size_class(packet.bytes)] += 1;
            // One without time must not be the first; among the last it makes no difference.
            first = first.min(if packet.time_ns == Observation::NO_TIME { i64::MAX } else { packet.time_ns });
            last = last.max(packet.time_ns);
            match packet.kind() {
                Kind::Flow | Kind::Close | Kind::Mark => {}
                Kind::NotIp => self.keyless.not_ip += 1,
                Kind::Truncated => self.keyless.truncated += 1,
                Kind::Malformed => self.keyless.malformed += 1,
                Kind::LinkType => self.keyless.link_type += 1,
            }
        }
        (self.first, self.last, self.bytes) = (first, last, self.bytes.saturating_add(bytes));
        self.passed += packets.len() as u64;
    }

    /// Earliest and latest time of a packet, ns since 1970.
    pub fn times(&self) -> Option<(i64, i64)> {
        (self.first <= self.last).then_some((self.first, self.last))
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.bytes = self.bytes.saturating_add(other.bytes);
        for (class, more) in self.sizes.iter_mut().zip(other.sizes) {
            *class += more;
        }
        self.keyless.not_ip += other.keyless.not_ip;
        self.keyless.truncated += other.keyless.truncated;
        self.keyless.malformed += other.keyless.malformed;
        self.keyless.link_type += other.keyless.link_type;
        self.first = self.first.min(other.first);
        self.last = self.last.max(other.last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_end_where_the_table_says() {
        for len in 0..10_000 {
            let expected = SIZE_CLASSES.iter().position(|&end| len <= end).unwrap_or(SIZE_CLASSES.len());
            assert_eq!(size_class(len), expected, "{len}");
        }
    }
}
