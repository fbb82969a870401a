//! Duplicates, which are left out: a committed stage after the filter.
//!
//! A packet is a duplicate if a packet shortly before it had the same captured bytes. Of each packet a keyed hash of 128 bits is
//! kept, so that two packets are taken for the same by mistake with a probability of 2^-128 for each pair.
//!
//! **Source**: `editcap -D` and `-w` of Wireshark, which compare MD5 sums in the same windows.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, BuildHasherDefault, Hasher, RandomState};
use weir_packet::savefile::Record;
use weir_pipeline::Delivery;
use weir_pipeline::bits::Bits;
use weir_pipeline::stages::{Columns, Stages};

/// Largest number of packets that are compared, this one included.
pub const MOST: u32 = 1_000_000;

/// Packets with the same bytes that are compared if their times are not in order.
const MOST_SAME: usize = 64;

/// The packets that a packet is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Within {
    /// So many packets that pass the filter, the packet itself included, at most [`MOST`].
    Packets(u32),
    /// Packets with times up to so many ns before the time of the packet, at most the last [`MOST`].
    Time(u64),
}

/// A packet of before.
#[derive(Clone, Copy, Debug)]
struct Seen {
    digest: u128,
    time_ns: Option<i64>,
    /// Number of the packet before it with the same digest; `u64::MAX` for none.
    same: u64,
}

/// Stage that leaves duplicates out. **Cost**: two hashes of the bytes of each packet, and a search; up to 120 bytes of memory for each
/// packet that later ones are compared with.
#[derive(Debug)]
pub struct Dedup {
    within: Within,
    keys: [RandomState; 2],
    /// The last packets, and the number of the first of them.
    seen: VecDeque<Seen>,
    first: u64,
    /// Number of the last packet of each digest.
    last: HashMap<u128, u64, BuildHasherDefault<Digest>>,
}

/// Hash of a digest, which is random already.
#[derive(Default)]
struct Digest(u64);

impl Hasher for Digest {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.0 ^= u64::from_ne_bytes(word);
        }
    }

    fn write_u128(&mut self, digest: u128) {
        self.0 = digest as u64;
    }
}

impl Dedup {
    /// Makes a stage that has seen no packet. The keys of the hash are random.
    pub fn new(within: Within) -> Self {
        Self {
            within,
            keys: [RandomState::new(), RandomState::new()],
            seen: VecDeque::new(),
            first: 0,
            last: HashMap::default(),
        }
    }

    /// Takes the duplicates among the passed packets of a batch out of it, and counts them.
    pub(crate) fn judge(&mut self, delivery: &mut Delivery<Stages>) {
        let Delivery {
            current,
            view,
            part,
            ..
        } = delivery;
        let numbers: Vec<usize> = part.passed.numbers().collect();
        let records: Vec<u32> = numbers.iter().map(|&number| part.records[number]).collect();
        let (layout, content) = (&current.layout, view.content());
        layout.records(content, &records, |i, record| {
            if let Some(record) = record
                && self.is_duplicate(&record)
            {
                leave_out(part, numbers[i], record.frame.wire_len);
            }
        });
    }

    /// Whether a packet is a duplicate. Later packets are compared with it in any case.
    fn is_duplicate(&mut self, record: &Record<'_>) -> bool {
        let [low, high] = &self.keys;
        let half = |keys: &RandomState| u128::from(keys.hash_one(record.frame.data));
        let digest = half(high) << 64 | half(low);
        let time_ns = record.time_ns;
        self.forget(time_ns);
        let number = self.first + self.seen.len() as u64;
        let same = self.last.insert(digest, number).unwrap_or(u64::MAX);
        let is_duplicate = match self.within {
            Within::Packets(_) => same != u64::MAX,
            Within::Time(within) => self.has_within(same, time_ns, within),
        };
        self.seen.push_back(Seen {
            digest,
            time_ns,
            same,
        });
        is_duplicate
    }

    /// Whether one of the packets with the same bytes, of which `same` is the last, is at most so much earlier.
    fn has_within(&self, mut same: u64, time_ns: Option<i64>, within: u64) -> bool {
        let Some(time_ns) = time_ns else { return false };
        for _ in 0..MOST_SAME {
            let place = same.checked_sub(self.first).filter(|_| same != u64::MAX);
            let Some(seen) = place.and_then(|place| self.seen.get(place as usize)) else {
                return false;
            };
            let earlier = seen.time_ns.and_then(|seen| time_ns.checked_sub(seen));
            match earlier.map(u64::try_from) {
                Some(Ok(earlier)) => return earlier <= within,
                // Later packets and those without a time are passed over.
                Some(Err(_)) | None => same = seen.same,
            }
        }
        false
    }

    /// Forgets packets that no later one is compared with.
    fn forget(&mut self, time_ns: Option<i64>) {
        let most = match self.within {
            Within::Packets(packets) => packets.saturating_sub(1) as usize,
            Within::Time(_) => MOST as usize - 1,
        };
        let is_old = |seen: &Seen| match (self.within, time_ns, seen.time_ns) {
            (Within::Time(within), Some(now), Some(then)) => now
                .checked_sub(then)
                .is_some_and(|since| u64::try_from(since).is_ok_and(|since| since > within)),
            _ => false,
        };
        while let Some(seen) = self.seen.front()
            && (self.seen.len() > most || is_old(seen))
        {
            if self.last.get(&seen.digest) == Some(&self.first) {
                self.last.remove(&seen.digest);
            }
            self.seen.pop_front();
            self.first += 1;
        }
    }
}

/// Takes a packet out of the passed packets, and out of their sums.
fn leave_out(part: &mut Columns, number: usize, wire_len: u32) {
    let Columns {
        passed,
        splits,
        selected,
        duplicates,
        ..
    } = part;
    if duplicates.is_empty() {
        *duplicates = Bits::zeros(passed.len());
    }
    duplicates.set(number);
    passed.clear(number);
    selected.duplicates += 1;
    selected.passed -= 1;
    selected.bytes -= u64::from(wire_len);
    for (mask, sums) in splits.iter_mut().zip(&mut selected.splits) {
        if mask.clear(number) {
            sums.passed -= 1;
            sums.bytes -= u64::from(wire_len);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_packet::Frame;
    use weir_testkit::Random;

    /// Verdicts on packets of one byte and a time.
    fn verdicts(within: Within, packets: &[(u8, i64)]) -> Vec<bool> {
        let mut dedup = Dedup::new(within);
        let each = packets.iter().map(|&(byte, time_ns)| {
            dedup.is_duplicate(&Record {
                time_ns: Some(time_ns),
                frame: Frame {
                    data: &[byte],
                    wire_len: 1,
                    interface: 0,
                },
                options: Default::default(),
            })
        });
        each.collect()
    }

    /// A naive look at all packets before.
    fn naive(within: Within, packets: &[(u8, i64)]) -> Vec<bool> {
        let each = packets.iter().enumerate().map(|(i, &(byte, time))| {
            let before = &packets[..i];
            match within {
                Within::Packets(most) => before
                    .iter()
                    .rev()
                    .take(most as usize - 1)
                    .any(|&(other, _)| other == byte),
                Within::Time(within) => before.iter().any(|&(other, then)| {
                    other == byte && then <= time && (time - then) as u64 <= within
                }),
            }
        });
        each.collect()
    }

    #[test]
    fn duplicates_are_those_of_a_look_at_all_packets() {
        let mut random = Random(5);
        for case in 0..300 {
            let mut time = 0;
            let packets: Vec<(u8, i64)> = (0..200)
                .map(|_| {
                    time += random.below(10) as i64;
                    (random.below(12) as u8, time)
                })
                .collect();
            for within in [
                Within::Packets(2 + case % 20),
                Within::Time(u64::from(case) % 60),
            ] {
                assert_eq!(
                    verdicts(within, &packets),
                    naive(within, &packets),
                    "{within:?}"
                );
            }
        }
    }

    #[test]
    fn packets_that_are_later_are_no_duplicates() {
        let packets = [(1, 10), (1, 5), (1, 7), (1, 100), (1, 99)];
        let expected = [false, false, true, false, false];
        assert_eq!(verdicts(Within::Time(3), &packets), expected);
    }
}
