//! Departures of packets that carry no number: arrivals are matched by the bytes of their frames.
//!
//! ```text
//! departs   a packet gets the next number; the last 1 048 576 numbers are in memory
//! arrives   of the departures with the same bytes that have not arrived: the first after the highest number that has arrived, if it left
//!           before, or else the last one before that number
//! again     all departures with these bytes have arrived
//! ```
//!
//! Equal packets are a group. All its departures before `ahead` have arrived or lie on a stack of passed numbers, so that the cost of an
//! arrival does not grow with the number of equal packets.
//!
//! If each of two ports has a receiver of its own, equal packets of two ports are of two groups.
//!
//! **Memory**: 56 bytes for each number in memory, so 56 MiB, of which pages are used as packets leave.

use crate::port::hash;

/// Departures in memory.
pub(super) const REMEMBERED: u64 = 1 << 20;

/// Places of the table of groups, twice the number of departures.
const PLACES: usize = 2 * REMEMBERED as usize;

/// Length to which network cards fill up frames with zeros.
const LEAST: usize = 60;

/// Difference between the groups of equal packets of two ports.
const OTHER: u64 = 0x9e37_79b9_7f4a_7c15;

/// No number.
const NONE: u64 = u64::MAX;

/// A packet that left, and the state of its group if it is the newest of it.
#[derive(Clone, Copy, Debug)]
struct Departure {
    hash: u64,
    left_ns: i64,
    /// Next departure of the group; once this one is passed, the passed one before it.
    link: u64,
    /// First departure of the group that is neither passed nor has arrived.
    ahead: u64,
    /// Last passed departure of the group that has not arrived. Earlier ones have lower numbers.
    passed: u64,
    /// Whether a departure of the group has arrived.
    has_arrived: bool,
    /// Port by which it left.
    port: u8,
}

/// A packet that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// The departure with this number and time, by this port.
    First(u64, i64, usize),
    /// All departures with these bytes have arrived before; the port of the last departure.
    Again(usize),
    /// No departure in memory has these bytes.
    Unknown,
}

/// Departures, by number and by bytes.
#[derive(Debug)]
pub(super) struct Departures {
    /// By number, modulo their most.
    all: Vec<Departure>,
    /// One more than the slot of the newest departure of each group, by the hash of its bytes, with linear probing; 0 for none.
    groups: Box<[u32]>,
    /// The next number.
    next: u64,
    is_apart: bool,
}

impl Departures {
    /// No departures. `is_apart`: each port has a receiver of its own.
    pub(super) fn new(is_apart: bool) -> Self {
        Self {
            is_apart,
            all: Vec::with_capacity(REMEMBERED as usize),
            groups: vec![0; PLACES].into(),
            next: 0,
        }
    }

    /// Whether each port has a receiver of its own.
    pub(super) fn is_apart(&self) -> bool {
        self.is_apart
    }

    /// The hash of a group.
    fn group(&self, frame: &[u8], port: usize) -> u64 {
        let apart = if self.is_apart { port as u64 } else { 0 };
        padded_hash(frame) ^ apart.wrapping_mul(OTHER)
    }

    fn at(&mut self, number: u64) -> &mut Departure {
        &mut self.all[(number % REMEMBERED) as usize]
    }

    /// The place of a group in the table, or the free place for it.
    fn find(&self, hash: u64) -> Result<usize, usize> {
        let mut place = home(hash);
        loop {
            match self.groups[place] {
                0 => return Err(place),
                slot if self.all[slot as usize - 1].hash == hash => return Ok(place),
                _ => place = (place + 1) % PLACES,
            }
        }
    }

    /// Notes that a packet leaves by a port. **Cost**: some memory accesses; no allocation.
    pub(super) fn departs(&mut self, frame: &[u8], left_ns: i64, port: usize) {
        let (number, hash) = (self.next, self.group(frame, port));
        if let Some(oldest) = number.checked_sub(REMEMBERED) {
            self.forget(oldest);
        }
        let slot = (number % REMEMBERED) as u32;
        let mut departure = Departure {
            hash,
            left_ns,
            link: NONE,
            ahead: number,
            passed: NONE,
            has_arrived: false,
            port: port as u8,
        };
        let place = match self.find(hash) {
            Ok(place) => {
                let newest = &mut self.all[self.groups[place] as usize - 1];
                departure.passed = newest.passed;
                departure.has_arrived = newest.has_arrived;
                if newest.ahead != NONE {
                    departure.ahead = newest.ahead;
                    newest.link = number;
                }
                place
            }
            Err(place) => place,
        };
        self.groups[place] = slot + 1;
        match self.all.get_mut(slot as usize) {
            Some(place) => *place = departure,
            None => self.all.push(departure),
        }
        self.next += 1;
    }

    /// Forgets the oldest departure.
    fn forget(&mut self, number: u64) {
        let Departure { hash, link, .. } = *self.at(number);
        let Ok(place) = self.find(hash) else { return };
        let slot = self.groups[place] as usize - 1;
        if slot as u64 == number % REMEMBERED {
            self.remove(place);
        } else if self.all[slot].ahead == number {
            self.all[slot].ahead = link;
        }
    }

    /// Removes a group, and moves later ones so that all are found.
    fn remove(&mut self, mut free: usize) {
        let mut place = free;
        loop {
            place = (place + 1) % PLACES;
            let slot = self.groups[place];
            if slot == 0 {
                break;
            }
            let home = home(self.all[slot as usize - 1].hash);
            let (from_home, from_free) = (place.wrapping_sub(home), place.wrapping_sub(free));
            if from_home % PLACES >= from_free % PLACES {
                self.groups[free] = slot;
                free = place;
            }
        }
        self.groups[free] = 0;
    }

    /// Finds the departure of a packet that arrives at this time at a receiver, if `highest` is one more than the highest number that has
    /// arrived.
    /// **Cost**: some memory accesses for each departure that is passed.
    pub(super) fn arrives(
        &mut self,
        frame: &[u8],
        time_ns: Option<i64>,
        (highest, receiver): (u64, usize),
    ) -> Match {
        let Ok(place) = self.find(self.group(frame, receiver)) else {
            return Match::Unknown;
        };
        let newest = self.groups[place] as usize - 1;
        let Departure {
            mut ahead,
            mut passed,
            has_arrived,
            port,
            ..
        } = self.all[newest];
        while ahead < highest {
            let next = std::mem::replace(&mut self.at(ahead).link, passed);
            (ahead, passed) = (next, ahead);
        }
        if passed < self.next.saturating_sub(REMEMBERED) {
            passed = NONE;
        }
        // By the clock, a packet cannot have arrived before it left, unless the clock was set.
        let is_early = ahead != NONE && time_ns.is_some_and(|it| it < self.at(ahead).left_ns);
        let number = match (ahead, passed) {
            (NONE, _) => passed,
            _ if !is_early => ahead,
            (_, NONE) if !has_arrived => ahead,
            _ => passed,
        };
        let found = if number == NONE {
            Match::Again(port.into())
        } else {
            let Departure {
                link,
                left_ns,
                port,
                ..
            } = *self.at(number);
            match number == ahead {
                true => ahead = link,
                false => passed = link,
            }
            Match::First(number, left_ns, port.into())
        };
        let group = &mut self.all[newest];
        (group.ahead, group.passed, group.has_arrived) = (ahead, passed, true);
        found
    }
}

/// Place of a group if no other is there.
fn home(hash: u64) -> usize {
    (hash >> (u64::BITS - PLACES.trailing_zeros())) as usize
}

/// Hash of a frame after a cable that fills it up.
fn padded_hash(frame: &[u8]) -> u64 {
    if frame.len() >= LEAST {
        return hash(frame);
    }
    let mut padded = [0; LEAST];
    padded[..frame.len()].copy_from_slice(frame);
    hash(&padded)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use weir_testkit::Random;

    /// A list of all departures, which is searched from its begin to its end.
    /// If each port has a receiver, that receives frames of its port alone.
    #[derive(Default)]
    struct Naive {
        left: Vec<(Vec<u8>, i64, bool, usize)>,
        arrived: HashMap<(usize, Vec<u8>), bool>,
        is_apart: bool,
    }

    impl Naive {
        fn arrives(
            &mut self,
            frame: &[u8],
            time_ns: i64,
            (highest, receiver): (u64, usize),
        ) -> Match {
            let all = self.left.iter().enumerate();
            let mut open = Vec::new();
            let mut latest = None;
            let is_apart = self.is_apart;
            let all = all.filter(|(_, it)| it.0 == frame && (!is_apart || it.3 == receiver));
            for (number, (_, left_ns, has_arrived, port)) in all {
                latest = Some(*port);
                if !has_arrived {
                    open.push((number as u64, *left_ns));
                }
            }
            let ahead = open.iter().find(|it| it.0 >= highest);
            let passed = open.iter().rfind(|it| it.0 < highest);
            let group = (if is_apart { receiver } else { 0 }, frame.to_vec());
            let before = self.arrived.insert(group.clone(), true);
            let found = match (ahead, passed) {
                (Some(&(number, left)), _) if left <= time_ns => Some((number, left)),
                (_, Some(&found)) => Some(found),
                (Some(&found), None) if before.is_none() => Some(found),
                _ => None,
            };
            match (found, latest) {
                (Some((number, left)), _) => {
                    let departure = &mut self.left[number as usize];
                    departure.2 = true;
                    Match::First(number, left, departure.3)
                }
                (None, Some(port)) => Match::Again(port),
                (None, None) => {
                    self.arrived.remove(&group);
                    Match::Unknown
                }
            }
        }
    }

    #[test]
    fn equal_packets_are_matched_as_in_a_list() {
        for seed in 0..20 {
            let mut random = Random::behind(seed);
            let kinds = 1 + random.below(40);
            let is_apart = seed % 3 == 0;
            let ports = if seed % 3 == 1 { 1 } else { 2 };
            let mut departures = Departures::new(is_apart);
            let mut naive = Naive {
                is_apart,
                ..Naive::default()
            };
            let mut highest = [0; 2];
            let mut again = 0;
            for now in 0..1000 {
                let kind = random.below(kinds);
                let mut frame = vec![7; 40 + kind];
                frame[0] = kind as u8;
                let port = random.below(ports);
                if random.below(2) == 0 {
                    departures.departs(&frame, now, port);
                    naive.left.push((frame, now, false, port));
                    continue;
                }
                let time = now - random.below(20) as i64;
                let order = if is_apart { port } else { 0 };
                let at = (highest[order], port);
                let found = departures.arrives(&frame, Some(time), at);
                assert_eq!(found, naive.arrives(&frame, time, at), "{seed}");
                match found {
                    Match::First(number, ..) => highest[order] = highest[order].max(number + 1),
                    Match::Again(_) => again += 1,
                    Match::Unknown => {}
                }
            }
            assert!(again > 5, "{seed}");
        }
    }

    /// More departures than fit, of few and of many kinds: the table holds the groups of the last departures alone.
    #[test]
    fn old_departures_are_forgotten() {
        let mut departures = Departures::new(false);
        let frame = |number: u64| [&number.to_le_bytes()[..], &[0; 60]].concat();
        let last = REMEMBERED + 50_000;
        for number in 0..last {
            let kind = if number % 3 == 0 { 1 } else { number };
            departures.departs(&frame(kind), number as i64, 0);
        }
        let filled = departures.groups.iter().filter(|it| **it > 0).count() as u64;
        let oldest = last - REMEMBERED;
        assert_eq!(
            filled,
            1 + (oldest..last).filter(|it| it % 3 > 0).count() as u64
        );
        let mut arrives = |kind| departures.arrives(&frame(kind), None, (0, 0));
        assert_eq!(arrives(oldest - 1), Match::Unknown);
        assert_eq!(arrives(4), Match::Unknown);
        for number in oldest..last {
            let (kind, expected) = match number % 3 {
                0 => (1, number),
                _ => (number, number),
            };
            assert_eq!(arrives(kind), Match::First(expected, expected as i64, 0));
        }
        assert_eq!(arrives(1), Match::Again(0));
        assert_eq!(arrives(last - 1), Match::Again(0));
    }

    /// A cable fills up short frames.
    #[test]
    fn short_frames_are_matched_after_they_were_filled_up() {
        let mut departures = Departures::new(false);
        departures.departs(&[1; 42], 5, 0);
        let mut padded = vec![1; 42];
        padded.resize(60, 0);
        assert_eq!(
            departures.arrives(&padded, Some(9), (0, 0)),
            Match::First(0, 5, 0)
        );
        assert_eq!(
            departures.arrives(&[1; 42], Some(9), (1, 0)),
            Match::Again(0)
        );
    }
}
