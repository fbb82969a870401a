//! Packets of blocks that overlap in time, put in the order of their times.

/// Place of a packet among all: its time, ns since 1970, then its segment and its number there, which tell the order of recording.
pub(super) type Key = (i64, usize, u64);

/// Bytes of packets that wait for earlier ones, at most. A record of which more overlaps in time is one of several clocks.
const MOST: usize = 32 << 20;

#[derive(Clone, Copy, Debug)]
struct Note {
    key: Key,
    /// Place of the encoded packet in the bytes.
    from: usize,
    len: usize,
}

/// Encoded packets that wait for earlier ones.
#[derive(Debug)]
pub(super) struct Order {
    /// Packets, encoded after each other.
    pub(super) bytes: Vec<u8>,
    notes: Vec<Note>,
    /// Whether the notes are in the order of their keys.
    is_sorted: bool,
    /// Packets that stay, while others are passed on.
    kept: Vec<u8>,
    most: usize,
    /// Greatest time that was passed on.
    last_ns: i64,
    /// Packets that were passed on after later ones.
    pub(super) late: u64,
}

impl Order {
    pub(super) fn new() -> Self {
        let (bytes, notes, kept) = (Vec::new(), Vec::new(), Vec::new());
        Self {
            bytes,
            notes,
            is_sorted: true,
            kept,
            most: MOST,
            last_ns: i64::MIN,
            late: 0,
        }
    }

    /// The same with room for less (for tests).
    #[cfg(test)]
    pub(super) fn with_room(most: usize) -> Self {
        Self {
            most,
            ..Self::new()
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.notes.is_empty()
    }

    /// Notes the packet that was encoded at `from`, after all others.
    #[inline]
    pub(super) fn add(&mut self, key: Key, from: usize) {
        self.is_sorted &= self.notes.last().is_none_or(|last| last.key < key);
        self.notes.push(Note {
            key,
            from,
            len: self.bytes.len() - from,
        });
    }

    /// Appends the packets in front of `limit` to `out` in their order, without a limit all. If too many wait, the earliest half goes
    /// as well.
    ///
    /// **Cost**: nothing is copied if all packets are in order and `out` is empty.
    pub(super) fn release(&mut self, limit: Option<Key>, out: &mut Vec<u8>) {
        let as_encoded = self.is_sorted;
        if !self.is_sorted {
            self.notes.sort_unstable_by_key(|note| note.key);
            self.is_sorted = true;
        }
        let mut count = limit.map_or(self.notes.len(), |limit| {
            self.notes.partition_point(|note| note.key < limit)
        });
        if self.bytes.len() > self.most {
            count = count.max(self.notes.len() / 2);
        }
        let (gone, stay) = self.notes.split_at(count);
        let Some(last) = gone.last() else { return };
        self.late += gone
            .iter()
            .take_while(|note| note.key.0 < self.last_ns)
            .count() as u64;
        self.last_ns = self.last_ns.max(last.key.0);
        if as_encoded && stay.is_empty() && out.is_empty() {
            std::mem::swap(&mut self.bytes, out);
        } else {
            for note in gone {
                out.extend_from_slice(&self.bytes[note.from..note.from + note.len]);
            }
            self.kept.clear();
            for note in stay {
                self.kept
                    .extend_from_slice(&self.bytes[note.from..note.from + note.len]);
            }
            std::mem::swap(&mut self.bytes, &mut self.kept);
        }
        self.notes.drain(..count);
        if self.notes.is_empty() {
            self.bytes.clear();
        }
        let mut from = 0;
        for note in &mut self.notes {
            note.from = from;
            from += note.len;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Random;

    #[test]
    fn packets_come_as_a_sort_puts_them_and_stay_until_none_before_them_can_come() {
        let mut random = Random(5);
        for round in 0..300 {
            // Runs of packets, each with a least time for all runs after it.
            let mut order = Order::new();
            let (mut all, mut found, mut number) = (Vec::new(), Vec::new(), 0);
            let spread = [1, 5, 400][round % 3];
            for run in 0..20i64 {
                for _ in 0..random.below(30) {
                    let key = (
                        run * 10 + random.below(spread) as i64,
                        random.below(3),
                        number,
                    );
                    number += 1;
                    let from = order.bytes.len();
                    order
                        .bytes
                        .extend_from_slice(&vec![number as u8; random.below(5)]);
                    order.bytes.extend_from_slice(&(key.2 as u32).to_le_bytes());
                    all.push((key, order.bytes[from..].to_vec()));
                    order.add(key, from);
                }
                let limit = ((run + 1) * 10, 0, 0);
                let mut out = vec![0xee; random.below(2)];
                let before = out.len();
                order.release(Some(limit), &mut out);
                found.extend_from_slice(&out[before..]);
                let due: usize = all
                    .iter()
                    .filter(|(key, _)| *key < limit)
                    .map(|(_, bytes)| bytes.len())
                    .sum();
                assert_eq!(found.len(), due, "round {round}, run {run}");
            }
            order.release(None, &mut found);
            all.sort();
            let expected: Vec<u8> = all.into_iter().flat_map(|(_, bytes)| bytes).collect();
            assert!(
                found == expected && order.is_empty() && order.late == 0,
                "round {round}"
            );
        }
    }

    #[test]
    fn too_many_packets_are_not_kept_and_what_comes_late_is_counted() {
        let mut order = Order::with_room(100);
        let mut out = Vec::new();
        let times = [50, 60, 70, 10, 20, 80, 5, 90, 65, 100];
        let mut found = Vec::new();
        for (number, &time) in times.iter().enumerate() {
            let from = order.bytes.len();
            order.bytes.extend_from_slice(&[time as u8; 30]);
            order.add((time, 0, number as u64), from);
            out.clear();
            order.release(Some((0, 0, 0)), &mut out);
            found.extend(out.iter().step_by(30).copied());
            assert!(order.bytes.len() <= 100, "{}", order.bytes.len());
        }
        out.clear();
        order.release(None, &mut out);
        found.extend(out.iter().step_by(30).copied());
        let (mut greatest, mut late) = (0, 0);
        for &time in &found {
            late += u64::from(time < greatest);
            greatest = greatest.max(time);
        }
        assert_eq!((found.len(), order.late), (times.len(), late));
        assert!(late > 0);
        let mut sorted = found.clone();
        sorted.sort();
        let mut wanted = times.map(|time| time as u8);
        wanted.sort();
        assert_eq!(sorted, wanted);
    }
}
