//! Slices of time of a rotation (`-G`).

use std::time::{Duration, Instant, SystemTime};

/// Time after the end of a slice for which the next slice waits for a packet. Packets of the slice
/// may still lie in the memory of the capture; later packets go into the next file.
const GRACE: Duration = Duration::from_millis(300);

/// Slices of equal length.
///
/// Slices of a capture are counted from its start. A slice ends with the first packet of a later one, or [`GRACE`] after its
/// time is over by the steady clock: so it ends without packets too, and when the time of day is set back. Slices of other
/// sources begin at multiples of packet time, and end with the first packet of a later slice.
#[derive(Debug)]
pub(super) struct Slices {
    length_ns: i64,
    /// Start of slice 0, ns since 1970.
    origin_ns: i64,
    /// Number of the current slice.
    current: Option<i64>,
    /// Steady time at which the current slice of a capture began.
    began: Option<Instant>,
    /// Time in the names of the files of the current slice, ns since 1970.
    name_ns: i64,
}

impl Slices {
    /// Slices of this many seconds, at least one.
    pub fn new(seconds: u64) -> Self {
        let length_ns = i64::try_from(seconds.max(1))
            .unwrap_or(i64::MAX)
            .saturating_mul(1_000_000_000);
        Self {
            length_ns,
            origin_ns: 0,
            current: None,
            began: None,
            name_ns: 0,
        }
    }

    /// Returns the time in the names of the files of the current slice, ns since 1970.
    pub fn name_ns(&self) -> i64 {
        self.name_ns
    }

    /// Begins slice 0 of a capture, and returns the time in the names of its files. `None` if a slice has begun already.
    pub fn begin(&mut self, now_ns: i64, now: Instant) -> Option<i64> {
        if self.current.is_some() {
            return None;
        }
        (self.origin_ns, self.began) = (now_ns, Some(now));
        Some(self.enter(0, now_ns))
    }

    /// Takes a packet of this time. If it begins a slice, returns the time in the names of the slice's files. A packet without a
    /// time belongs to the current slice; if there is none, its file is named by the time of day.
    #[inline]
    pub fn take(&mut self, time_ns: Option<i64>) -> Option<i64> {
        let number = time_ns.map(|time_ns| {
            time_ns
                .saturating_sub(self.origin_ns)
                .div_euclid(self.length_ns)
        });
        match (self.current, number) {
            (Some(current), Some(number)) if number <= current => None,
            (Some(_), None) => None,
            _ => Some(self.turn(number, time_ns)),
        }
    }

    #[cold]
    fn turn(&mut self, number: Option<i64>, time_ns: Option<i64>) -> i64 {
        let (Some(number), Some(time_ns)) = (number, time_ns) else {
            // The first packet with a time begins another slice.
            return self.enter(i64::MIN, now_ns());
        };
        match self.began {
            None => self.enter(number, time_ns),
            Some(began) => {
                let follows = self
                    .current
                    .is_some_and(|current| current.checked_add(1) == Some(number));
                // If the time of day jumped, the slice ends a whole length after this packet.
                let next = began.checked_add(self.length()).filter(|_| follows);
                self.began = next.or_else(|| Some(Instant::now()));
                self.enter(number, self.start_ns(number))
            }
        }
    }

    /// Begins the next slice of a capture if the current one is over. Returns the time in the names of its files.
    pub fn pass_time(&mut self, now: Instant) -> Option<i64> {
        let (began, current) = (self.began?, self.current?);
        let end = began.checked_add(self.length())?;
        if now < end.checked_add(GRACE)? {
            return None;
        }
        let next = current.saturating_add(1);
        self.began = Some(end);
        Some(self.enter(next, self.start_ns(next)))
    }

    fn length(&self) -> Duration {
        Duration::from_nanos(self.length_ns.unsigned_abs())
    }

    /// Returns the start of slice `number` of a capture, ns since 1970.
    fn start_ns(&self, number: i64) -> i64 {
        number
            .saturating_mul(self.length_ns)
            .saturating_add(self.origin_ns)
    }

    fn enter(&mut self, number: i64, name_ns: i64) -> i64 {
        self.current = Some(number);
        self.name_ns = name_ns;
        name_ns
    }
}

/// Returns the time of day, ns since 1970.
fn now_ns() -> i64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    #[test]
    fn slices_of_a_capture_are_counted_from_its_start_with_packets_and_without() {
        let (start, origin) = (Instant::now(), 1_700_000_003 * SECOND + 7);
        let after = |ms: u64| start + Duration::from_millis(ms);
        let at = |seconds: i64| origin + seconds * SECOND;
        let mut slices = Slices::new(5);
        assert_eq!(slices.begin(origin, start), Some(origin));
        assert_eq!(slices.begin(origin, start), None);
        // A packet from before the start, and one in the last nanosecond of the slice.
        assert_eq!(
            (slices.take(Some(origin - 9)), slices.take(Some(at(5) - 1))),
            (None, None)
        );
        // A packet ends the first slice, and the clock those without packets: after 10 and 15 s, not 5 s after the packet.
        assert_eq!(slices.take(Some(at(6))), Some(at(5)));
        assert_eq!(
            (
                slices.pass_time(after(10_299)),
                slices.pass_time(after(10_300))
            ),
            (None, Some(at(10)))
        );
        assert_eq!(
            (
                slices.pass_time(after(15_299)),
                slices.pass_time(after(15_300))
            ),
            (None, Some(at(15)))
        );
        // A late packet goes into the current file, and so does one without a time.
        assert_eq!(
            (
                slices.take(Some(at(14))),
                slices.take(None),
                slices.name_ns()
            ),
            (None, None, at(15))
        );
        // A process that stood still makes the files of all slices.
        let late: Vec<_> = (0..4).map(|_| slices.pass_time(after(31_000))).collect();
        assert_eq!(late, [Some(at(20)), Some(at(25)), Some(at(30)), None]);
    }

    #[test]
    fn a_time_of_day_that_jumps_ends_one_slice_and_stops_none() {
        let (start, origin) = (Instant::now(), 1_700_000_000 * SECOND);
        let mut slices = Slices::new(10);
        slices.begin(origin, start);
        let jumped = origin + 3600 * SECOND;
        assert_eq!(slices.take(Some(jumped + SECOND)), Some(jumped));
        // Back again: no packet ends the slice, and the steady clock does.
        assert_eq!(slices.take(Some(origin + 11 * SECOND)), None);
        assert_eq!(
            slices.pass_time(Instant::now() + Duration::from_secs(11)),
            Some(jumped + 10 * SECOND)
        );
    }

    #[test]
    fn slices_of_a_file_begin_at_multiples_and_its_names_have_packet_times() {
        let mut slices = Slices::new(10);
        assert_eq!(
            slices.take(Some(1_700_000_013 * SECOND)),
            Some(1_700_000_013 * SECOND)
        );
        assert_eq!(slices.take(Some(1_700_000_019 * SECOND)), None);
        assert_eq!(
            slices.pass_time(Instant::now() + Duration::from_secs(1000)),
            None,
            "a file has no clock"
        );
        assert_eq!(
            slices.take(Some(1_700_000_020 * SECOND)),
            Some(1_700_000_020 * SECOND)
        );
        // Without any time, a file is not named after 1970.
        let named = Slices::new(10)
            .take(None)
            .expect("the first packet begins a slice");
        assert!(named > 1_600_000_000 * SECOND);
        assert_eq!(Slices::new(u64::MAX).take(Some(5)), Some(5));
    }
}
