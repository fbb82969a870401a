//! The time at which packets arrived, told by timestamps that may jump: ns since 1970 up to the
//! first jump.
//!
//! Timestamps say when packets were captured. Files joined one after the other, a clock that is
//! set, or a damaged timestamp make them jump, so that the two seconds before a packet by its
//! timestamp need not be the two seconds before it. Arrivals go on:
//!
//! ```text
//! stamps     0.0 ... 9.99   5.0 ... 14.99    a file whose stamps step back
//! arrivals   0.0 ... 9.99  10.0 ... 19.99    arrival = stamp + offset; the offset changes where stamps jump
//! ```
//! 1. A timestamp within [`NEAR_NS`] of the time by the present offset is believed. Time never goes
//!    back.
//! 2. Any other one is a candidate: its packet arrived now. If the next packet goes on from it, the
//!    jump is believed: time has passed if it led forward, and the offset changes if it led back.
//!    If the next packet goes on from before, the timestamp was wrong. A jump forward by more than
//!    a day needs 32 packets.
//! 3. A jump forward by no more than the steady time since the last look is silence, and believed at once.
//!
//! Queries go by timestamps.

use std::collections::VecDeque;
use weir_store::ring::Piece;

/// Distance from the present time up to which a timestamp goes on with it, ns: packets of several
/// queues come out of order.
const NEAR_NS: i64 = 1_000_000_000;

/// Distance of a jump forward from which on it needs more packets that agree, ns, and their number:
/// a few damaged timestamps must not let years pass.
const FAR_NS: i64 = 86_400 * NEAR_NS;
const AGREEING: u32 = 32;

/// Largest number of changes of the offset that are remembered.
const SEGMENTS: usize = 4096;

/// Largest number of remembered places, and the least time between two of them, ns.
const PLACES: usize = 8192;
const APART_NS: i64 = 20_000_000;

/// A timestamp that is not believed yet.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    stamp: i64,
    /// Offset by which its packet arrived at the present time; offsets between any two times need more than 64 bits.
    offset: i128,
    is_forward: bool,
    /// Number of packets that go on from it, and the number that makes it believed.
    agree: u32,
    needs: u32,
}

/// Arrivals of the packets of a ring, seen in their order.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    /// Time of the latest arrival, ns; `None` before the first timestamp.
    now: Option<i64>,
    /// The believed offset, and the previous believed offset.
    offset: i128,
    before: Option<i128>,
    candidate: Option<Candidate>,
    /// Latest distance between two packets, ns.
    step_ns: i64,
    /// Number of the next packet to see.
    next: u64,
    /// Steady time of the last look, ns.
    looked_ns: u64,
    /// First number, and offset, of the packets from each change of the offset on.
    segments: VecDeque<(u64, i128)>,
    /// Numbers of packets, and the times at which they arrived, ns; at least `apart_ns` apart.
    places: VecDeque<(u64, i64)>,
    apart_ns: i64,
}

impl Arrivals {
    /// Takes the packets of a piece that were not seen before. `steady_ns` is the steady time now, ns.
    pub fn see(&mut self, piece: &Piece, steady_ns: u64) {
        let Some(last) = piece.len().checked_sub(1) else {
            return;
        };
        if piece.number(last) < self.next {
            return;
        }
        let silence_ns = match self.looked_ns {
            0 => 0,
            looked => i64::try_from(steady_ns.saturating_sub(looked)).unwrap_or(i64::MAX),
        };
        self.looked_ns = steady_ns;
        if self.now.is_none() {
            self.take(piece.number(0), piece.record(0).time_ns, 0);
            self.next = piece.number(0) + 1;
        }
        if self.passes(piece) {
            self.next = piece.number(last) + 1;
            return;
        }
        for index in 0..=last {
            let number = piece.number(index);
            if number >= self.next {
                self.next = number + 1;
                self.take(number, piece.record(index).time_ns, silence_ns);
            }
        }
    }

    /// Takes a piece whose timestamps all go on with the present time, as nearly all do, by the
    /// range of its timestamps alone. **Cost**: as for one packet. Returns whether they do: within
    /// [`NEAR_NS`] of each other and of the time, each of them is near the time at which it
    /// arrived.
    fn passes(&mut self, piece: &Piece) -> bool {
        let (Some(now), None) = (self.now, &self.candidate) else {
            return false;
        };
        let Some((earliest, latest)) = piece.times_ns() else {
            return true;
        };
        let offset = self.offset;
        let by = |stamp: i64| clamped(i128::from(stamp) + offset - i128::from(now));
        let goes_on = latest.saturating_sub(earliest) <= NEAR_NS
            && by(earliest) >= -NEAR_NS
            && by(latest) <= NEAR_NS;
        if goes_on {
            let number = piece.number(0).max(self.next);
            self.note_place(number, now);
            self.step_ns =
                latest.saturating_sub(earliest) / i64::try_from(piece.len()).unwrap_or(i64::MAX);
            // The range is that of later packets too.
            let last = piece.record(piece.len() - 1).time_ns.map_or(0, by);
            self.now = Some(now.max(now.saturating_add(last)));
        }
        goes_on
    }

    /// Takes the next packet. `silence_ns` is the longest silence before it that is possible, beyond [`NEAR_NS`].
    pub fn take(&mut self, number: u64, stamp: Option<i64>, silence_ns: i64) {
        let Some(stamp) = stamp else { return };
        self.go_on(number, stamp, silence_ns);
        if let Some(now) = self.now {
            self.note_place(number, now);
        }
    }

    fn go_on(&mut self, number: u64, stamp: i64, silence_ns: i64) {
        let Some(now) = self.now else {
            self.now = Some(stamp);
            self.segments.push_back((number, 0));
            return;
        };
        let by = |offset: i128| clamped(i128::from(stamp) + offset - i128::from(now));
        let is_near = |ahead: i64| (-NEAR_NS..=NEAR_NS.saturating_add(silence_ns)).contains(&ahead);
        let ahead = by(self.offset);
        if is_near(ahead) {
            if self.candidate.take().is_some() {
                self.change(number, self.offset);
            }
            self.step_ns = if ahead > 0 {
                ahead.min(NEAR_NS)
            } else {
                self.step_ns
            };
            self.now = Some(now.max(now.saturating_add(ahead)));
            return;
        }
        if let Some(before) = self.before.filter(|&before| is_near(by(before))) {
            // Two sources whose clocks differ take turns.
            self.before = Some(std::mem::replace(&mut self.offset, before));
            self.candidate = None;
            self.change(number, self.offset);
            self.now = Some(now.max(now.saturating_add(by(self.offset))));
            return;
        }
        let mut agree = 1;
        if let Some(candidate) = self.candidate.take() {
            let goes_on = is_near(by(candidate.offset));
            if goes_on || candidate.is_forward && stamp > candidate.stamp {
                agree += candidate.agree;
                if agree >= candidate.needs {
                    self.believe(candidate, now);
                    return self.go_on(number, stamp, silence_ns);
                }
            }
            if goes_on {
                self.now = Some(now.max(now.saturating_add(by(candidate.offset))));
                self.candidate = Some(Candidate { agree, ..candidate });
                return;
            }
        }
        let offset = i128::from(now) - i128::from(stamp);
        self.change(number, offset);
        let needs = if ahead > FAR_NS { AGREEING } else { 2 };
        self.candidate = Some(Candidate {
            stamp,
            offset,
            is_forward: ahead > 0,
            agree,
            needs,
        });
    }

    /// Believes the timestamp of the candidate, with which the last segment begins.
    fn believe(&mut self, candidate: Candidate, now: i64) {
        if candidate.is_forward {
            self.now = Some(clamped(i128::from(candidate.stamp) + self.offset).max(now));
        } else {
            // It came as long after the packet before it as that one did after its own.
            self.before = Some(std::mem::replace(
                &mut self.offset,
                candidate.offset + i128::from(self.step_ns),
            ));
            self.now = Some(now.saturating_add(self.step_ns));
        }
        if let Some(last) = self.segments.back_mut() {
            last.1 = self.offset;
        }
    }

    fn change(&mut self, number: u64, offset: i128) {
        if self.segments.len() >= SEGMENTS {
            self.segments.pop_front();
        }
        self.segments.push_back((number, offset));
    }

    fn note_place(&mut self, number: u64, now: i64) {
        let apart_ns = self.apart_ns.max(APART_NS);
        if self
            .places
            .back()
            .is_some_and(|&(_, last)| now.saturating_sub(last) < apart_ns)
        {
            return;
        }
        if self.places.len() >= PLACES {
            self.apart_ns = apart_ns.saturating_mul(2);
            let mut last = None;
            self.places.retain(|&(_, time)| {
                let stays = last.is_none_or(|last| time.saturating_sub(last) >= self.apart_ns);
                last = if stays { Some(time) } else { last };
                stays
            });
        }
        self.places.push_back((number, now));
    }

    /// Forgets places before the packet `oldest`, which have left the ring.
    pub fn forget(&mut self, oldest: u64) {
        while self
            .places
            .get(1)
            .is_some_and(|&(number, _)| number <= oldest)
        {
            self.places.pop_front();
        }
        while self
            .segments
            .get(1)
            .is_some_and(|&(number, _)| number <= oldest)
        {
            self.segments.pop_front();
        }
        if self.places.len() < PLACES / 4 {
            self.apart_ns = APART_NS;
        }
    }

    /// Time of the latest arrival, ns; `None` before the first timestamp.
    pub fn now(&self) -> Option<i64> {
        self.now
    }

    /// Timestamp of a packet that arrives now, ns since 1970; `None` before the first timestamp.
    pub fn stamp(&self) -> Option<i64> {
        self.now.map(|now| clamped(i128::from(now) - self.offset))
    }

    /// Time at `steady_ns`, ns, of sources that go on while nothing comes. `wall_ns` is the
    /// time of CLOCK_REALTIME.
    ///
    /// Packets are seen later than they were captured, so the steady time since the last packet is
    /// too short. Where timestamps follow CLOCK_REALTIME, it tells the time up to which packets
    /// may have been captured.
    pub fn at(&self, steady_ns: u64, wall_ns: i64) -> Option<i64> {
        let silence = if self.looked_ns == 0 {
            0
        } else {
            steady_ns.saturating_sub(self.looked_ns)
        };
        let at = self
            .now?
            .saturating_add(i64::try_from(silence).unwrap_or(i64::MAX));
        let by_wall = self.arrival(u64::MAX, wall_ns);
        let is_near = (at..=at.saturating_add(NEAR_NS)).contains(&by_wall);
        Some(if is_near { by_wall } else { at })
    }

    /// Arrival of a packet with a timestamp, ns. Of packets that were not seen yet, by the present
    /// offset.
    pub fn arrival(&self, number: u64, stamp: i64) -> i64 {
        let behind = self.segments.partition_point(|&(first, _)| first <= number);
        let offset = self
            .segments
            .get(behind.saturating_sub(1))
            .map_or(0, |&(_, offset)| offset);
        clamped(i128::from(stamp) + offset)
    }

    /// Latest time, among those remembered, at or before which the packet `number` arrived, ns.
    pub fn since(&self, number: u64) -> Option<i64> {
        let behind = self.places.partition_point(|&(first, _)| first <= number);
        self.places.get(behind.checked_sub(1)?).map(|&(_, now)| now)
    }

    /// Number of a packet before which none arrived at `time` or later, except packets out of order
    /// by less than [`NEAR_NS`].
    pub fn begin(&self, time: i64) -> u64 {
        let until = time.saturating_sub(NEAR_NS);
        let behind = self.places.partition_point(|&(_, now)| now < until);
        self.places
            .get(behind.saturating_sub(1))
            .map_or(0, |&(number, _)| number)
    }
}

/// The nearest time that 64 bits hold, ns.
fn clamped(time: i128) -> i64 {
    i64::try_from(time).unwrap_or(if time < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: i64 = 1_000_000;

    /// Arrivals of packets with these timestamps, in ms after the first.
    fn arrivals(stamps: &[i64]) -> Vec<i64> {
        let mut arrivals = Arrivals::default();
        for (stamp, number) in stamps.iter().zip(0..) {
            arrivals.take(number, Some(stamp.saturating_mul(MS)), 0);
        }
        let begin = stamps[0].saturating_mul(MS);
        let at = |(stamp, number): (&i64, u64)| {
            (arrivals.arrival(number, stamp.saturating_mul(MS)) - begin) / MS
        };
        stamps.iter().zip(0..).map(at).collect()
    }

    /// A packet is seen 10 ms after its timestamp, and 5 ms later somebody asks for the time.
    #[test]
    fn packets_on_their_way_are_not_after_a_request() {
        const MS: u64 = 1_000_000;
        let (begin, wall) = (1_700_000_000_000_000_000, |ms: u64| (ms * MS) as i64);
        let mut arrivals = Arrivals::default();
        arrivals.take(0, Some(begin), 0);
        arrivals.looked_ns = 100 * MS;
        assert_eq!(
            arrivals.at(105 * MS, begin + wall(15)),
            Some(begin + wall(15))
        );
        // Timestamps of another clock say nothing about the wall clock.
        let other = begin + wall(3_600_000);
        assert_eq!(arrivals.at(105 * MS, other), Some(begin + wall(5)));
        assert_eq!(
            arrivals.at(105 * MS, begin - wall(1)),
            Some(begin + wall(5))
        );
    }

    #[test]
    fn arrivals_go_on_where_stamps_jump() {
        let steady: Vec<i64> = (0..30).map(|i| i * 100).collect();
        assert_eq!(arrivals(&steady), steady);
        // Timestamps that step back by five seconds, twice.
        let back = steady
            .iter()
            .map(|ms| ms + 5000 - ms / 1000 * 5000)
            .collect::<Vec<_>>();
        assert_eq!(arrivals(&back), steady);
        // Out of order by less than a second.
        assert_eq!(arrivals(&[0, 500, 300, 600, 550]), [0, 500, 300, 600, 550]);
        // Silence is time that has passed, also several times in a row.
        assert_eq!(
            arrivals(&[0, 100, 60_000, 60_100, 200_000, 200_100]),
            [0, 100, 60_000, 60_100, 200_000, 200_100]
        );
        assert_eq!(
            arrivals(&[0, 5000, 10_000, 15_000, 15_100]),
            [0, 5000, 10_000, 15_000, 15_100]
        );
        let days: Vec<i64> = (0..100)
            .map(|i| i * 100 + if i < 50 { 0 } else { 1_000_000_000 })
            .collect();
        assert_eq!(arrivals(&days), days);
    }

    #[test]
    fn a_wrong_stamp_moves_no_other_packet() {
        let far = i64::MAX / MS;
        let years = 1_000_000_000_000;
        for wrong in [
            &[far][..],
            &[-far],
            &[-far, far],
            &[far, -far, 5_000_000],
            &[100_000],
            &[years, years + 9, years + 20],
        ] {
            let mut stamps = vec![0, 100, 200];
            stamps.extend(wrong);
            stamps.extend([300, 400, 500]);
            let found = arrivals(&stamps);
            let (before, rest) = found.split_at(3);
            let (wrong, after) = rest.split_at(wrong.len());
            assert_eq!(
                (before, after),
                (&[0, 100, 200][..], &[300, 400, 500][..]),
                "{stamps:?}"
            );
            assert!(
                wrong.iter().all(|ms| (200..=300).contains(ms)),
                "{stamps:?}: {found:?}"
            );
        }
    }

    /// Captures of two hosts, whose clocks differ by five seconds, take turns.
    #[test]
    fn clocks_that_take_turns_do_not_hurry() {
        let stamps: Vec<i64> = (0..200)
            .map(|i| i * 100 + if i / 10 % 2 == 1 { 5000 } else { 0 })
            .collect();
        let found = arrivals(&stamps);
        assert!(
            found.last().unwrap().abs_diff(199 * 100) <= 6000,
            "{found:?}"
        );
    }

    #[test]
    fn a_silence_by_the_steady_clock_is_believed_at_once() {
        let mut arrivals = Arrivals::default();
        arrivals.take(0, Some(0), 0);
        arrivals.take(1, Some(3_600_000 * MS), 3_600_000 * MS);
        assert_eq!(
            (arrivals.arrival(1, 3_600_000 * MS), arrivals.now()),
            (3_600_000 * MS, Some(3_600_000 * MS))
        );
    }

    #[test]
    fn the_place_before_a_time_is_found() {
        let mut arrivals = Arrivals::default();
        for number in 0..100_000u64 {
            arrivals.take(number, Some(number as i64 * 50 * MS), 0);
        }
        assert!(arrivals.places.len() <= PLACES);
        for second in [0, 1, 2, 100, 4000, 4999] {
            let begin = arrivals.begin(second * 1000 * MS);
            let wanted = (second as u64 * 20).saturating_sub(20);
            assert!(
                begin <= wanted && wanted - begin < 200,
                "{second} s: {begin}"
            );
        }
        assert_eq!(arrivals.begin(i64::MIN), 0);
        arrivals.forget(50_000);
        assert!(arrivals.places.len() < PLACES * 5 / 8 && arrivals.begin(0) <= 50_000);
        assert!((79_780..=79_980).contains(&arrivals.begin(4000 * 1000 * MS)));
    }
}
