//! Decision on the timestamps that are believed.
//!
//! One damaged timestamp must not move time, because all packets after it would be late. So a
//! timestamp far after or far before the latest believed timestamp is a jump, and is judged by the
//! packets after it:
//!
//! 1. If one of the next packets continues from the time before the jump, the timestamp is not
//!    believed: its packet *jumped*.
//! 2. If none of [`TOGETHER`] packets continues so, and at least half of them agree with the first,
//!    the jump is believed: time begins again with the first. A timestamp agrees if it lies before
//!    the first by at most the reach, or after it by at most [`FAR_NS`]. The latter is large
//!    because the timestamps of a thin source may all be far from one another.
//! 3. If the source ends, the remaining packets decide by the same rule. A last packet alone is believed up to [`FAR_NS`].
//!
//! The very first timestamp of a source has no earlier time to compare with. The timestamp is
//! believed if the next timestamp is within its reach, or if there is no other timestamp. If not,
//! and the next two timestamps are within reach of one another, its packet jumped; else rule 2
//! decides. Packets without a timestamp are ignored in all rules.
//!
//! A packet of a file or pipe is held until its timestamp is judged, so that no packet of a
//! believed jump is counted elsewhere. A packet of a live source is not held: the packets that lead
//! to a believed jump are counted as jumped.
//!
//! **Cost**: one comparison per packet while no timestamp jumps.

use weir_measure::Observation;

/// Number of packets that decide about a jump, the first included.
pub(super) const TOGETHER: usize = 32;

/// Largest distance at which a later timestamp still agrees with the first, ns: thirty days.
pub(super) const FAR_NS: i64 = 30 * 86_400 * 1_000_000_000;

/// Value of a missing timestamp.
const NONE: i64 = Observation::NO_TIME;

/// A decision, in the order of the source. `P` is a packet's place.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Decision<P> {
    /// A jump is believed: time goes on from this timestamp, ns.
    Begin(i64),
    /// A packet, its timestamp or [`Observation::NO_TIME`], and whether it jumped.
    Packet(P, i64, bool),
}

#[derive(Debug)]
struct Held<P> {
    stamp: i64,
    /// `None` if the packet was already passed on.
    place: Option<P>,
}

/// Judges the timestamps of a source, one after the other.
#[derive(Debug)]
pub(super) struct Judge<P> {
    /// Largest distance from the latest timestamp at which a timestamp is believed at once, ns.
    reach_ns: i64,
    /// Whether packets wait until their timestamps are judged.
    holds: bool,
    /// Latest believed timestamp, ns.
    latest: i64,
    /// Packets from a jump on, in the order of the source; the first has a timestamp.
    held: Vec<Held<P>>,
}

impl<P> Judge<P> {
    /// Makes a judge that has seen no timestamp.
    pub fn new(reach_ns: i64, holds: bool) -> Self {
        Self {
            reach_ns,
            holds,
            latest: NONE,
            held: Vec::new(),
        }
    }

    /// Takes timestamps from `earliest` to `latest`, in any order, if all are believed. Returns
    /// whether they are.
    pub fn take_all(&mut self, earliest: i64, latest: i64) -> bool {
        let end = self.latest.max(latest);
        let flows = self.held.is_empty()
            && !self.judges_first()
            && (self.latest == NONE || latest <= self.latest.saturating_add(self.reach_ns))
            && earliest >= end.saturating_sub(self.reach_ns);
        if flows {
            self.latest = end;
        }
        flows
    }

    /// Whether packets without a timestamp can go on.
    pub fn is_clear(&self) -> bool {
        self.held.is_empty()
    }

    /// Takes a timestamp if it is believed at once. Returns whether it is.
    #[inline]
    pub fn take(&mut self, stamp: i64) -> bool {
        let flows = self.held.is_empty() && (stamp == NONE || self.is_near(stamp));
        if flows {
            self.latest = self.latest.max(stamp);
        }
        flows
    }

    /// Sets the latest time, which has gone on without a timestamp.
    pub fn pass(&mut self, latest: i64) {
        self.latest = latest;
    }

    /// Takes a timestamp for which [`Self::take`] does not suffice.
    pub fn judge(&mut self, place: P, stamp: i64, decided: &mut Vec<Decision<P>>) {
        if stamp != NONE && self.is_near(stamp) {
            for Held { stamp, place } in self.held.drain(..) {
                decided.extend(place.map(|place| Decision::Packet(place, stamp, stamp != NONE)));
            }
            self.latest = self.latest.max(stamp);
            decided.push(Decision::Packet(place, stamp, false));
            return;
        }
        if self.holds {
            self.held.push(Held {
                stamp,
                place: Some(place),
            });
        } else {
            decided.push(Decision::Packet(place, stamp, stamp != NONE));
            if stamp != NONE {
                self.held.push(Held { stamp, place: None });
            }
        }
        while self.held.len() == TOGETHER || self.knows_first() {
            self.decide(decided);
        }
    }

    /// Whether the next timestamp is the first of all, and is not believed at once.
    fn judges_first(&self) -> bool {
        self.holds && self.latest == NONE
    }

    /// Whether the next two timestamps decide about the first of all.
    fn knows_first(&self) -> bool {
        let mut stamps = self
            .held
            .iter()
            .map(|held| held.stamp)
            .filter(|&stamp| stamp != NONE);
        let (true, Some(first)) = (self.judges_first(), stamps.next()) else {
            return false;
        };
        self.first_by_next(first, stamps).is_some()
    }

    /// Returns whether the first timestamp of all is believed; `None` if the next two do not
    /// decide.
    fn first_by_next(&self, first: i64, mut after: impl Iterator<Item = i64>) -> Option<bool> {
        let near = |a: i64, b: i64| a.abs_diff(b) <= self.reach_ns.unsigned_abs();
        let second = after.next()?;
        if near(first, second) {
            return Some(true);
        }
        after
            .next()
            .filter(|&third| near(second, third))
            .map(|_| false)
    }

    /// Decides about all held packets at the end of the source.
    pub fn end(&mut self, decided: &mut Vec<Decision<P>>) {
        if !self.holds {
            self.held.clear();
        }
        while !self.held.is_empty() {
            self.decide(decided);
        }
    }

    /// Whether a timestamp is believed at once.
    #[inline]
    pub fn is_near(&self, stamp: i64) -> bool {
        if self.latest == NONE {
            return !self.holds;
        }
        stamp <= self.latest.saturating_add(self.reach_ns)
            && stamp >= self.latest.saturating_sub(self.reach_ns)
    }

    /// Decides about the first held packet.
    fn decide(&mut self, decided: &mut Vec<Decision<P>>) {
        let mut held = std::mem::take(&mut self.held).into_iter();
        let Some(Held {
            stamp: first,
            place,
        }) = held.next()
        else {
            return;
        };
        let is_first = self.latest == NONE;
        if !self.is_believed(first, held.as_slice()) {
            decided.extend(place.map(|place| Decision::Packet(place, first, true)));
            self.held = held.collect();
            self.skip_unstamped(decided);
            return;
        }
        self.latest = first;
        if let Some(place) = place {
            decided.extend((!is_first).then_some(Decision::Begin(first)));
            decided.push(Decision::Packet(place, first, false));
        }
        for Held { stamp, place } in held {
            if self.take(stamp) {
                decided.extend(place.map(|place| Decision::Packet(place, stamp, false)));
            } else if let Some(place) = place {
                self.judge(place, stamp, decided);
            } else if self.is_near(stamp) {
                self.held.clear();
                self.latest = self.latest.max(stamp);
            } else {
                self.held.push(Held { stamp, place });
            }
        }
        if !self.holds {
            decided.push(Decision::Begin(self.latest));
        }
    }

    fn is_believed(&self, first: i64, after: &[Held<P>]) -> bool {
        let stamps = after
            .iter()
            .map(|held| held.stamp)
            .filter(|&stamp| stamp != NONE);
        if stamps.clone().next().is_none() {
            return self.latest == NONE || first.abs_diff(self.latest) <= FAR_NS as u64;
        }
        if let (true, Some(believed)) = (
            self.latest == NONE,
            self.first_by_next(first, stamps.clone()),
        ) {
            return believed;
        }
        let (reach_ns, count) = (self.reach_ns, stamps.clone().count());
        let agrees = |stamp: i64| {
            stamp >= first.saturating_sub(reach_ns) && stamp <= first.saturating_add(FAR_NS)
        };
        stamps.filter(|&stamp| agrees(stamp)).count() * 2 >= count
    }

    /// Passes on held packets up to the first with a timestamp.
    fn skip_unstamped(&mut self, decided: &mut Vec<Decision<P>>) {
        let stamped = self
            .held
            .iter()
            .position(|held| held.stamp != NONE)
            .unwrap_or(self.held.len());
        for Held { stamp, place } in self.held.drain(..stamped) {
            decided.extend(place.map(|place| Decision::Packet(place, stamp, false)));
        }
    }
}
