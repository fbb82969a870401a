//! Times of the packets of a key.

use zerocopy::FromZeros;

/// Nanoseconds of a millisecond.
const MS: i64 = 1_000_000;

/// First and last time of a key's packets, and the most packets and bytes within one millisecond.
///
/// A millisecond begins with a multiple of 1 000 000 ns since 1970. If the key already had packets of a later millisecond, a
/// packet is in no [`peak`](Self::peak).
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromZeros)]
#[repr(C, align(32))]
pub struct Times {
    /// Least time, ns since 1970.
    pub first_ns: i64,
    /// Largest time, ns since 1970; less than `first_ns` if there is no time.
    pub last_ns: i64,
    /// Packets and bytes in the millisecond of `last_ns`.
    now: [u32; 2],
    /// Most packets, and most bytes, within a millisecond. They end at the largest u32.
    peak: [u32; 2],
}

/// First and last ns of a millisecond.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Millisecond {
    first_ns: i64,
    last_ns: i64,
}

impl Millisecond {
    /// No millisecond.
    pub const NONE: Self = Self {
        first_ns: i64::MAX,
        last_ns: i64::MIN,
    };

    /// The millisecond of a time.
    #[inline(always)]
    fn of(time_ns: i64) -> Self {
        let after = time_ns.rem_euclid(MS);
        Self {
            first_ns: time_ns.saturating_sub(after),
            last_ns: time_ns.saturating_add(MS - 1 - after),
        }
    }
}

impl Times {
    /// Time of a packet without a timestamp.
    pub const NO_TIME: i64 = i64::MIN;

    /// Times of no packet.
    pub const NONE: Self = Self {
        first_ns: i64::MAX,
        last_ns: i64::MIN,
        now: [0; 2],
        peak: [0; 2],
    };

    /// Adds a packet, and returns whether its millisecond was over. `now` is the millisecond of any packet before, so that the next packet
    /// divides no time if it is of the same one. **Cost**: no branch but on the timestamp's absence, and on another millisecond.
    #[inline(always)]
    pub(crate) fn add(&mut self, time_ns: i64, bytes: u32, now: &mut Millisecond) -> bool {
        if time_ns == Self::NO_TIME {
            return false;
        }
        if !(now.first_ns..=now.last_ns).contains(&time_ns) {
            *now = Millisecond::of(time_ns);
        }
        let is_over = self.last_ns > now.last_ns;
        let is_new = self.last_ns < now.first_ns;
        let [packets, sum] = if is_new { [0; 2] } else { self.now };
        let now = [packets.saturating_add(1), sum.saturating_add(bytes)];
        self.now = if is_over { self.now } else { now };
        self.peak = [self.peak[0].max(self.now[0]), self.peak[1].max(self.now[1])];
        self.first_ns = self.first_ns.min(time_ns);
        self.last_ns = self.last_ns.max(time_ns);
        is_over
    }

    /// Times of both; the peak is the larger one, which is right if no millisecond has packets of both.
    pub fn and(self, other: Self) -> Self {
        let later = if self.last_ns < other.last_ns {
            other
        } else {
            self
        };
        Self {
            first_ns: self.first_ns.min(other.first_ns),
            peak: [
                self.peak[0].max(other.peak[0]),
                self.peak[1].max(other.peak[1]),
            ],
            ..later
        }
    }

    /// Most packets, and most bytes, within a millisecond: possibly of two different ones.
    pub fn peak(&self) -> crate::Counts {
        let [packets, bytes] = self.peak.map(u64::from);
        crate::Counts { packets, bytes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Exact, Heavy, Item, Packet, Weigh};
    use core::borrow::Borrow;
    use std::collections::HashMap;
    use weir_memory::{Policy, Request};

    /// An item with a time.
    struct Timed(Item<u64>, i64);

    impl Packet<u64> for Timed {
        fn hash(&self) -> u64 {
            self.0.hash
        }
        fn bytes(&self) -> u32 {
            self.0.bytes
        }
        fn key(&self) -> impl Borrow<u64> {
            &self.0.key
        }
        fn is_of(&self, key: &u64) -> bool {
            self.0.is_of(key)
        }
        fn time_ns(&self) -> i64 {
            self.1
        }
    }

    fn hash(key: u64) -> u64 {
        crate::mix(key)
    }

    /// Packets of about `keys` keys, some without a time, mostly in time order.
    fn stream(keys: u64, packets: u64) -> Vec<Timed> {
        let packet = |i: u64| {
            let random = crate::mix(i * 2 + 1);
            let key = (random % keys) >> (random >> 40 & 15);
            let back = if random.is_multiple_of(97) {
                3_000_000
            } else {
                0
            };
            let time = -2_000_000 + i as i64 * 7_919 - back;
            let time = if random.is_multiple_of(89) {
                Times::NO_TIME
            } else {
                time
            };
            let bytes = (random >> 8) as u32 % 1500;
            Timed(
                Item {
                    hash: hash(key),
                    bytes: 1 + bytes,
                    key,
                },
                time,
            )
        };
        (0..packets).map(packet).collect()
    }

    /// Times of a key by a map of all milliseconds, and the number of late packets.
    fn naive(packets: &[Timed], key: u64) -> (Times, u64) {
        let mut of_ms: HashMap<i64, [u32; 2]> = HashMap::new();
        let (mut times, mut late) = (Times::NONE, 0);
        for Timed(item, time) in packets.iter().filter(|it| it.0.key == key) {
            if *time == Times::NO_TIME {
                continue;
            }
            let ms = time.div_euclid(MS);
            if times.last_ns != i64::MIN && ms < times.last_ns.div_euclid(MS) {
                late += 1;
            } else {
                let sum = of_ms.entry(ms).or_default();
                *sum = [sum[0] + 1, sum[1] + item.bytes];
            }
            times.first_ns = times.first_ns.min(*time);
            times.last_ns = times.last_ns.max(*time);
        }
        times.peak = [0, 1].map(|at| of_ms.values().map(|sum| sum[at]).max().unwrap_or(0));
        (times, late)
    }

    fn shown(times: Times) -> (i64, i64, [u32; 2]) {
        (times.first_ns, times.last_ns, times.peak)
    }

    fn request() -> Request {
        Request {
            pages: Policy::Virtual,
            ..Request::default()
        }
    }

    #[test]
    fn tables_with_room_know_what_a_map_of_milliseconds_says() {
        let packets = stream(64, 20_000);
        let mut exact = Exact::with_times(64 << 10, 0, &request()).expect("enough memory");
        exact.update(&packets);
        let mut late = 0;
        for weigh in [Weigh::Packets, Weigh::Bytes] {
            let mut heavy =
                Heavy::with_times(64 << 10, weigh, 0, &request()).expect("enough memory");
            heavy.update(&packets);
            late = 0;
            for key in 0..64 {
                let (truth, of_key) = naive(&packets, key);
                late += of_key;
                for times in [heavy.times(&key, hash(key)), exact.times(&key, hash(key))] {
                    assert_eq!(times.map(shown), Some(shown(truth)), "{key}");
                }
            }
            assert_eq!(heavy.late(), late);
            assert_eq!(heavy.times(&99, hash(99)), Some(Times::NONE), "never seen");
        }
        assert_eq!(exact.late(), late);
        assert!(late > 0, "some packets are late");
        let plain = Exact::<u64>::new(64 << 10, 0, &request()).expect("enough memory");
        assert_eq!(plain.times(&1, hash(1)), None, "tables without times");
    }

    #[test]
    fn tables_without_room_know_the_times_of_keys_that_they_never_lost() {
        let packets = stream(4096, 50_000);
        let mut heavy =
            Heavy::with_times(8 << 10, Weigh::Packets, 0, &request()).expect("enough memory");
        let mut exact = Exact::with_times(8 << 10, 0, &request()).expect("enough memory");
        heavy.update(&packets);
        exact.update(&packets);
        let mut known = 0;
        for key in 0..4096 {
            let (truth, _) = naive(&packets, key);
            let is_counted = exact.get(&key, hash(key)).is_some();
            let expected = is_counted.then(|| shown(truth));
            assert_eq!(exact.times(&key, hash(key)).map(shown), expected, "{key}");
            if let Some(times) = heavy.times(&key, hash(key)) {
                known += 1;
                assert_eq!(shown(times), shown(truth), "{key}");
            }
        }
        assert!(known > 0, "some keys are never lost");
    }

    #[test]
    fn merged_tables_know_the_times_of_both() {
        let packets = stream(4096, 50_000);
        // No millisecond is in both parts.
        let begin = 200_000_000;
        let (later, earlier): (Vec<_>, Vec<_>) = packets
            .into_iter()
            .partition(|Timed(_, time)| *time >= begin);
        let all: Vec<Timed> = earlier
            .iter()
            .chain(&later)
            .map(|it| Timed(it.0, it.1))
            .collect();
        for memory in [16 << 10, 1 << 20] {
            let heavy = |packets: &[Timed]| {
                let mut heavy =
                    Heavy::with_times(memory, Weigh::Bytes, 0, &request()).expect("enough memory");
                heavy.update(packets);
                heavy
            };
            let exact = |packets: &[Timed]| {
                let mut exact = Exact::with_times(memory, 0, &request()).expect("enough memory");
                exact.update(packets);
                exact
            };
            for (first, second) in [(&earlier, &later), (&later, &earlier)] {
                let (mut of_heavy, mut of_exact) = (heavy(first), exact(first));
                of_heavy.merge(&heavy(second)).expect("tables of one form");
                of_exact
                    .merge(&exact(second), |key| hash(*key))
                    .expect("tables of one form");
                let mut known = 0;
                for key in 0..4096 {
                    let (mut truth, _) = naive(&all, key);
                    // Packets that came back over the border are late in the whole stream alone.
                    let parts = [&earlier, &later].map(|part| naive(part, key).0);
                    truth.peak = parts[0].and(parts[1]).peak;
                    for times in [
                        of_heavy.times(&key, hash(key)),
                        of_exact.times(&key, hash(key)),
                    ] {
                        known += usize::from(times.is_some());
                        assert!(
                            times.is_none_or(|it| shown(it) == shown(truth)),
                            "{key}: {times:?} {truth:?}"
                        );
                    }
                }
                assert!(
                    memory < 1 << 20 || known == 2 * 4096,
                    "{known} with room for all"
                );
            }
        }
    }
}
