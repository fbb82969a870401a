//! Plain totals of a window of time.

use crate::observation::Glance;
use crate::{Kind, Observation};
use core::ops::AddAssign;
use weir_sketch::Counts;

/// Upper ends (inclusive) of the size classes, in wire bytes; one further class is open-ended.
pub const SIZE_CLASSES: [u32; 7] = [64, 127, 255, 511, 1023, 1518, 9018];

/// Numbers of packets in the size classes.
pub type Sizes = [u64; SIZE_CLASSES.len() + 1];

/// Returns the size class of a wire length.
#[inline]
pub fn size_class(wire_len: u32) -> usize {
    // Counting takes a few comparisons without branches; a binary search would mispredict half of its branches.
    SIZE_CLASSES
        .iter()
        .map(|&end| usize::from(end < wire_len))
        .sum()
}

/// Number of wire lengths that are classified together.
const LENS: usize = 32;

/// Counts the first `len` of these wire lengths in their classes; the other lengths must be zero. Lengths above the largest i32 count as
/// that.
///
/// For each class end, the function counts the longer lengths. Many lengths are compared at once, without a branch and without
/// a store on which the next comparison depends.
#[inline]
fn count_sizes(sizes: &mut Sizes, lens: &[i32; LENS], len: usize) {
    let mut at_least = len as u64;
    for (class, end) in sizes.iter_mut().zip(SIZE_CLASSES) {
        let longer = lens
            .iter()
            .map(|&len| i32::from(len > end as i32))
            .sum::<i32>() as u64;
        *class += at_least - longer;
        at_least = longer;
    }
    sizes[SIZE_CLASSES.len()] += at_least;
}

/// Returns the earliest time among packets with a time.
#[cold]
fn earliest(packets: &[Observation]) -> i64 {
    let times = packets.iter().map(|packet| packet.time_ns);
    times
        .filter(|&time| time != Observation::NO_TIME)
        .min()
        .unwrap_or(i64::MAX)
}

/// Packets that arrived, and packets that were lost or rejected before they were measured. Each stage counts its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arrivals {
    /// Packets that arrived.
    pub received: u64,
    /// Packets that the expression rejected.
    pub filtered: u64,
    /// Packets that a firewall rejected.
    pub denied: u64,
    /// Packets of live sources that were dropped because their window was closed already.
    pub late: u64,
    /// Packets whose timestamp jumped and was not believed. Such packets also count as passed or
    /// filtered, at their place among the other packets.
    pub jumped: u64,
    /// Packets with a timestamp before 1677 or after 2262, which the nearest of these replaces.
    /// They also count as passed, filtered or jumped.
    pub beyond: u64,
    /// Packets that the kernel dropped because it had no room.
    pub dropped: u64,
    /// Measured packets that an interface received, or with a destination in the local networks.
    pub rx: Counts,
    /// Measured packets that an interface sent, or with a source in the local networks.
    pub tx: Counts,
    /// Measured packets between two hosts of the local networks, which are in neither of the two.
    pub local: Counts,
    /// Measured packets that their link layer addressed to all stations.
    pub broadcast: u64,
    /// Measured packets that their link layer addressed to some stations.
    pub multicast: u64,
}

impl AddAssign for Arrivals {
    fn add_assign(&mut self, other: Self) {
        self.received += other.received;
        self.filtered += other.filtered;
        self.denied += other.denied;
        self.late += other.late;
        self.jumped += other.jumped;
        self.beyond += other.beyond;
        self.dropped += other.dropped;
        for (mine, theirs) in [
            (&mut self.rx, other.rx),
            (&mut self.tx, other.tx),
            (&mut self.local, other.local),
        ] {
            mine.packets += theirs.packets;
            mine.bytes = mine.bytes.saturating_add(theirs.bytes);
        }
        self.broadcast += other.broadcast;
        self.multicast += other.multicast;
    }
}

/// Totals of the packets that were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tally {
    /// Packets that were measured.
    pub passed: u64,
    /// Wire bytes of these packets; the sum saturates at the largest u64.
    pub bytes: u64,
    /// Packets per size class.
    pub sizes: Sizes,
    /// Packets without a flow key, which count in the totals and in no table.
    pub keyless: Keyless,
    /// Earliest and latest time of a packet, in ns since 1970; without a timed packet, the latest is before the earliest.
    first: i64,
    last: i64,
}

impl Default for Tally {
    fn default() -> Self {
        let (sizes, keyless) = Default::default();
        Self {
            passed: 0,
            bytes: 0,
            sizes,
            keyless,
            first: i64::MAX,
            last: i64::MIN,
        }
    }
}

/// Packets without a flow key, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Keyless {
    /// Packets other than IP, such as ARP and LLDP.
    pub not_ip: u64,
    /// Packets cut before the end of the addresses.
    pub truncated: u64,
    /// Packets with headers that contradict themselves.
    pub malformed: u64,
    /// Packets of a link type in which weir looks for no key.
    pub link_type: u64,
}

impl Keyless {
    /// Returns the number of all packets without a flow key.
    pub fn sum(&self) -> u64 {
        self.not_ip + self.truncated + self.malformed + self.link_type
    }
}

impl Tally {
    /// Counts packets; `glance` is the summary of the same packets. Most packets are of [`Kind::Flow`].
    #[inline]
    pub(crate) fn take(&mut self, packets: &[Observation], glance: &Glance) {
        let mut all = 0;
        for packets in packets.chunks(LENS) {
            let mut lens = [0; LENS];
            // SIMD instructions compare signed numbers; all class ends are below the largest signed number.
            for (len, packet) in lens.iter_mut().zip(packets) {
                *len = packet.bytes.min(i32::MAX as u32) as i32;
                all += u64::from(packet.bytes);
            }
            count_sizes(&mut self.sizes, &lens, packets.len());
        }
        self.bytes = self.bytes.saturating_add(all);
        self.passed += packets.len() as u64;
        // A packet without a time must not set the earliest time; its value never changes the latest time.
        let first = if glance.earliest == Observation::NO_TIME {
            earliest(packets)
        } else {
            glance.earliest
        };
        (self.first, self.last) = (self.first.min(first), self.last.max(glance.latest));
        if !glance.all_flows {
            self.count_keyless(packets);
        }
    }

    #[cold]
    fn count_keyless(&mut self, packets: &[Observation]) {
        for packet in packets {
            match packet.kind() {
                Kind::Flow | Kind::Close | Kind::Mark | Kind::Facts => {}
                Kind::NotIp => self.keyless.not_ip += 1,
                Kind::Truncated => self.keyless.truncated += 1,
                Kind::Malformed => self.keyless.malformed += 1,
                Kind::LinkType => self.keyless.link_type += 1,
            }
        }
    }

    /// Returns the earliest and the latest time of a packet, in ns since 1970.
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
            let expected = SIZE_CLASSES
                .iter()
                .position(|&end| len <= end)
                .unwrap_or(SIZE_CLASSES.len());
            assert_eq!(size_class(len), expected, "{len}");
        }
    }

    /// Counting in batches of all lengths gives the same totals as counting packet by packet.
    #[test]
    fn a_batch_counts_what_its_packets_do() {
        let ends = SIZE_CLASSES.iter().flat_map(|&end| [end - 1, end, end + 1]);
        let lens: Vec<u32> = ends
            .chain([0, 1, 60, i32::MAX as u32, 1 << 31, u32::MAX])
            .cycle()
            .take(300)
            .collect();
        let kinds = [
            Kind::Flow,
            Kind::Flow,
            Kind::NotIp,
            Kind::Truncated,
            Kind::Malformed,
            Kind::LinkType,
        ];
        let times = [7, Observation::NO_TIME, -3, i64::MAX, 9];
        for (n, variety) in (0..150)
            .chain([300])
            .zip([(1, 1), (6, 5), (2, 2), (6, 1), (1, 5)].into_iter().cycle())
        {
            let mut expected = Tally {
                passed: n as u64,
                ..Tally::default()
            };
            let mut packets = Vec::new();
            for (i, &len) in lens[..n].iter().enumerate() {
                let (kind, time) = (kinds[i % variety.0], times[i / 3 % variety.1]);
                let mut packet = Observation::mark(0);
                packet.arrived(kind, len, time);
                packets.push(packet);
                expected.bytes += u64::from(len);
                expected.sizes[size_class(len)] += 1;
                if time != Observation::NO_TIME {
                    expected.first = expected.first.min(time);
                }
                expected.last = expected.last.max(time);
                match kind {
                    Kind::NotIp => expected.keyless.not_ip += 1,
                    Kind::Truncated => expected.keyless.truncated += 1,
                    Kind::Malformed => expected.keyless.malformed += 1,
                    Kind::LinkType => expected.keyless.link_type += 1,
                    _ => {}
                }
            }
            let mut found = Tally::default();
            found.take(&packets, &Glance::of(&packets));
            assert_eq!(found, expected, "{n} packets");
        }
    }
}
