//! Figures of one direction of TCP conversations.

use core::ops::AddAssign;

/// Times between segments and their acknowledgements, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rtt {
    /// Number of times.
    pub count: u64,
    /// Sum of the times, ns.
    pub sum_ns: i64,
    /// Shortest time, ns. Negative if timestamps went back.
    pub min_ns: i64,
    /// Longest time, ns.
    pub max_ns: i64,
}

impl Rtt {
    /// No time.
    pub(crate) const NONE: Self = Self {
        count: 0,
        sum_ns: 0,
        min_ns: i64::MAX,
        max_ns: i64::MIN,
    };

    /// Returns the mean, ns; `None` without a time.
    pub fn mean_ns(&self) -> Option<i64> {
        let count = i64::try_from(self.count).ok().filter(|count| *count > 0)?;
        Some(self.sum_ns / count)
    }

    /// Returns the shortest and the longest time, ns; `None` without a time.
    pub fn range_ns(&self) -> Option<(i64, i64)> {
        (self.count > 0).then_some((self.min_ns, self.max_ns))
    }

    #[inline]
    pub(crate) fn add(&mut self, ns: i64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.min_ns = self.min_ns.min(ns);
        self.max_ns = self.max_ns.max(ns);
    }
}

impl Default for Rtt {
    fn default() -> Self {
        Self::NONE
    }
}

impl AddAssign for Rtt {
    fn add_assign(&mut self, other: Self) {
        self.count += other.count;
        self.sum_ns = self.sum_ns.saturating_add(other.sum_ns);
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// Figures of the segments that one end sent. The rules are Wireshark's (4.0, `tcp.analysis.*`), and are stated in
/// [`rules`](super::rules).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Segments.
    pub packets: u64,
    /// Payload of the segments, bytes.
    pub bytes: u64,
    /// Segments sent again, `fast` and `spurious` ones included.
    pub retransmitted: u64,
    /// Payload of the segments sent again, bytes.
    pub retransmitted_bytes: u64,
    /// Segments sent again within 20 ms after the second duplicate acknowledgement.
    pub fast: u64,
    /// Segments sent again although they were acknowledged.
    pub spurious: u64,
    /// Segments whose bytes were seen before, with no gap in front of them. Captured at the sender, these are all segments that its kernel
    /// sent again.
    pub repeated: u64,
    /// Segments that another one has overtaken.
    pub out_of_order: u64,
    /// Acknowledgements that repeat the one before.
    pub duplicate_acks: u64,
    /// Segments that close the window.
    pub zero_windows: u64,
    /// Segments that reset the connection.
    pub resets: u64,
    /// Segments in front of which others are missing: lost before the capture, or in it.
    pub gaps: u64,
    /// Segments whose acknowledgement cannot be timed, because there was no room to remember them.
    pub untimed: u64,
    /// Times from segments that this end sent to their acknowledgements.
    pub rtt: Rtt,
}

impl Figures {
    /// Returns the sum of the figures that no healthy connection has many of: it ranks conversations with as many retransmitted
    /// segments.
    pub fn troubles(&self) -> u64 {
        self.out_of_order + self.duplicate_acks + self.zero_windows + self.resets + self.gaps
    }
}

impl AddAssign for Figures {
    fn add_assign(&mut self, other: Self) {
        let Self {
            packets,
            bytes,
            retransmitted,
            retransmitted_bytes,
            fast,
            spurious,
            repeated,
            out_of_order,
            duplicate_acks,
            zero_windows,
            resets,
            gaps,
            untimed,
            rtt,
        } = other;
        self.packets += packets;
        self.bytes += bytes;
        self.retransmitted += retransmitted;
        self.retransmitted_bytes += retransmitted_bytes;
        self.fast += fast;
        self.spurious += spurious;
        self.repeated += repeated;
        self.out_of_order += out_of_order;
        self.duplicate_acks += duplicate_acks;
        self.zero_windows += zero_windows;
        self.resets += resets;
        self.gaps += gaps;
        self.untimed += untimed;
        self.rtt += rtt;
    }
}
