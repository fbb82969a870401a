//! Due times of packets, by the times of a capture or by a rate, which may change in between.

use super::Rate;
use std::time::Duration;

/// Due times of packets, since the first packet.
#[derive(Debug)]
pub(super) struct Plan {
    rate: Rate,
    longest_gap_ns: i64,
    /// Latest time of the packets before, ns; `None` at the begin.
    latest_ns: Option<i64>,
    /// A new source begins with the next packet.
    is_new_source: bool,
    /// Packet time since the first packet, ns.
    packet_ns: u64,
    /// Packets and bits so far, and the bits of the last packet.
    packets: u64,
    bits: u64,
    own_bits: u64,
    /// Time from which the rate counts, and packet time, packets and bits before it.
    base: Duration,
    from: (u64, u64, u64),
}

impl Plan {
    /// Longest gap between the last packet of a source and the first packet of the next source, and longest step back of a clock. A capture in
    /// several files goes on; other files have nothing to do with each other. Queues of a card swap neighbours; a longer step back is a clock
    /// that was set.
    const SOURCES_NS: i64 = 1_000_000_000;

    pub(super) fn new(rate: Rate, longest_gap: Option<Duration>) -> Self {
        let longest = longest_gap.map_or(i64::MAX, |gap| {
            i64::try_from(gap.as_nanos()).unwrap_or(i64::MAX)
        });
        Self {
            rate,
            longest_gap_ns: longest,
            latest_ns: None,
            is_new_source: false,
            packet_ns: 0,
            packets: 0,
            bits: 0,
            own_bits: 0,
            base: Duration::ZERO,
            from: (0, 0, 0),
        }
    }

    /// The rate.
    pub(super) fn rate(&self) -> Rate {
        self.rate
    }

    /// Number of packets so far.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    /// Notes that a new source begins with the next packet.
    pub(super) fn begin_source(&mut self) {
        self.is_new_source = true;
    }

    /// Notes the time of a packet.
    pub(super) fn pass(&mut self, time_ns: Option<i64>) {
        let Some(time) = time_ns else { return };
        let step = self
            .latest_ns
            .map_or(0, |latest| time.saturating_sub(latest));
        let is_new = std::mem::take(&mut self.is_new_source);
        let gap = match is_new {
            true if step > Self::SOURCES_NS => 0,
            _ => step.clamp(0, self.longest_gap_ns),
        };
        self.packet_ns = self.packet_ns.saturating_add(gap.unsigned_abs());
        if step >= 0 || is_new || step < -Self::SOURCES_NS {
            self.latest_ns = Some(time);
        }
    }

    /// Time after the first packet at which the next packet is due. Packets without a time, and packets that are earlier than the one
    /// before, leave at once.
    pub(super) fn due(&mut self, time_ns: Option<i64>, bytes: usize) -> Option<Duration> {
        self.pass(time_ns);
        self.packets += 1;
        self.own_bits = bytes as u64 * 8;
        self.bits += self.own_bits;
        self.time()
    }

    /// Time of the last packet, `None` for at once.
    pub(super) fn time(&self) -> Option<Duration> {
        let (packet_ns, packets, bits) = self.from;
        let since_s = match self.rate {
            Rate::Original(speed) => (self.packet_ns - packet_ns) as f64 / 1e9 / speed,
            Rate::Packets(per_s) => (self.packets - 1 - packets) as f64 / per_s,
            Rate::Bits(per_s) => (self.bits - self.own_bits - bits) as f64 / per_s,
            Rate::Max => return None,
        };
        let since = Duration::try_from_secs_f64(since_s).unwrap_or(Duration::MAX);
        Some(self.base.saturating_add(since))
    }

    /// Changes the rate at `now`. The last packet has not left yet: it leaves at the rest of its gap, which passes as fast as the new rate
    /// says; at a rate of packets or bits it waits for at most one gap.
    pub(super) fn change_rate(&mut self, rate: Rate, now: Duration) {
        let due = self.time().unwrap_or(now);
        let wait = due.saturating_sub(now);
        let left_ns = match self.rate {
            Rate::Original(speed) => (wait.as_nanos() as f64 * speed) as u64,
            _ => 0,
        };
        let gap_s = match rate {
            Rate::Packets(per_s) => 1.0 / per_s,
            Rate::Bits(per_s) => self.own_bits as f64 / per_s,
            Rate::Original(_) | Rate::Max => 0.0,
        };
        let gap = Duration::try_from_secs_f64(gap_s).unwrap_or(Duration::MAX);
        self.base = now + wait.min(gap);
        let left_ns = left_ns.min(self.packet_ns - self.from.0);
        self.from = (
            self.packet_ns - left_ns,
            self.packets - 1,
            self.bits - self.own_bits,
        );
        self.rate = rate;
    }

    /// Delays the last packet and all later packets.
    pub(super) fn pause(&mut self, time: Duration) {
        self.base = self.base.saturating_add(time);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn due_times_follow_the_capture_or_the_rate() {
        let times = [Some(1_000), Some(3_000), None, Some(2_500), Some(9_000)];
        let due = |rate, gap| {
            let mut plan = Plan::new(rate, gap);
            let due = times.map(|time| plan.due(time, 125).map(|due| due.as_nanos()));
            due.map(|due| due.unwrap_or(0))
        };
        assert_eq!(
            due(Rate::Original(1.0), None),
            [0, 2_000, 2_000, 2_000, 8_000]
        );
        assert_eq!(
            due(Rate::Original(2.0), None),
            [0, 1_000, 1_000, 1_000, 4_000]
        );
        let gap = Some(Duration::from_nanos(1_500));
        assert_eq!(
            due(Rate::Original(1.0), gap),
            [0, 1_500, 1_500, 1_500, 3_000]
        );
        assert_eq!(
            due(Rate::Packets(1e6), None),
            [0, 1_000, 2_000, 3_000, 4_000]
        );
        assert_eq!(due(Rate::Bits(1e9), None), [0, 1_000, 2_000, 3_000, 4_000]);
        assert_eq!(due(Rate::Max, None), [0; 5]);
    }

    /// A packet that is late by a little costs no time. A clock that was set back goes on from there.
    #[test]
    fn neighbours_in_the_wrong_order_keep_the_time() {
        let mut plan = Plan::new(Rate::Original(1.0), None);
        let mut due = |ms: i64| {
            let due = plan.due(Some(ms * 1_000_000), 60);
            due.map_or(0, |due| due.as_millis())
        };
        let swapped = [10_000, 11_000, 10_200, 10_400, 11_200].map(&mut due);
        assert_eq!(swapped, [0, 1_000, 1_000, 1_000, 1_200]);
        let set_back = [5_000, 5_300, 5_100, 5_400].map(&mut due);
        assert_eq!(set_back, [1_200, 1_500, 1_500, 1_600]);
    }

    /// Rotated files of a capture go on; captures of different days do not wait for each other.
    #[test]
    fn the_next_source_follows() {
        let mut plan = Plan::new(Rate::Original(1.0), None);
        let mut due = |time: i64, is_new| {
            plan.is_new_source |= is_new;
            plan.due(Some(time), 60).map_or(0, |due| due.as_nanos())
        };
        assert_eq!(due(5_000_000_000, true), 0);
        assert_eq!(due(5_400_000_000, true), 400_000_000);
        assert_eq!(due(90_000_000_000, true), 400_000_000);
        assert_eq!(due(90_000_000_001, false), 400_000_001);
        assert_eq!(due(1_000_000_000, true), 400_000_001);
        assert_eq!(due(1_000_000_002, false), 400_000_003);
    }

    /// A gap goes on at the new rate, and so do later gaps.
    #[test]
    fn another_rate_goes_on_from_the_moment_of_the_change() {
        let ms = Duration::from_millis;
        let changed = |rate, to, at| {
            let mut plan = Plan::new(rate, None);
            let due = |plan: &mut Plan, time_ms: i64| {
                plan.due(Some(time_ms * 1_000_000), 125)
                    .map(|due| due.as_millis())
            };
            due(&mut plan, 0);
            due(&mut plan, 1_000);
            plan.change_rate(to, ms(at));
            let now = plan.time().map(|due| due.as_millis());
            [now, due(&mut plan, 2_000), due(&mut plan, 3_000)].map(Option::unwrap_or_default)
        };
        let original = Rate::Original(1.0);
        assert_eq!(
            changed(original, Rate::Original(2.0), 400),
            [700, 1_200, 1_700]
        );
        assert_eq!(
            changed(original, Rate::Original(1.0), 400),
            [1_000, 2_000, 3_000]
        );
        assert_eq!(changed(original, Rate::Packets(10.0), 400), [500, 600, 700]);
        assert_eq!(
            changed(original, Rate::Packets(0.1), 400),
            [1_000, 11_000, 21_000]
        );
        assert_eq!(
            changed(original, Rate::Bits(10_000.0), 400),
            [500, 600, 700]
        );
        assert_eq!(changed(original, Rate::Max, 400), [0, 0, 0]);
        assert_eq!(
            changed(Rate::Packets(1.0), original, 400),
            [400, 1_400, 2_400]
        );
        assert_eq!(changed(Rate::Max, Rate::Packets(10.0), 50), [50, 150, 250]);
        // A sender that is behind does not make good what it missed.
        assert_eq!(
            changed(original, Rate::Packets(10.0), 5_000),
            [5_000, 5_100, 5_200]
        );
        let mut plan = Plan::new(original, None);
        plan.due(Some(0), 60);
        plan.due(Some(1_000_000_000), 60);
        plan.pause(ms(300));
        assert_eq!(plan.time(), Some(ms(1_300)));
    }
}
