//! Windows of packet time, numbered from 1970 on.

use crate::Observation;
use core::ops::Range;

/// Division of packet time into windows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Windowing {
    /// Length of a window, in ns; `None`: all of time is window 0.
    pub window_ns: Option<i64>,
    /// Allowed lateness, in ns. A window stays open until a packet arrives whose time is this much after the end of the window.
    pub late_ns: i64,
}

impl Windowing {
    /// Number of the window that holds packets from before the first timestamp. These packets
    /// belong to the first window with a time.
    pub const UNTIMED: i64 = i64::MIN;

    /// Returns the number of the window of a time.
    #[inline]
    pub fn number(&self, time_ns: i64) -> i64 {
        match self.window_ns {
            Some(_) if time_ns == Observation::NO_TIME => Self::UNTIMED,
            Some(window) => time_ns.div_euclid(window),
            None => 0,
        }
    }

    /// Returns the start and the end (exclusive) of a window.
    pub fn span(&self, number: i64) -> (i64, i64) {
        match self.window_ns {
            Some(_) if number == Self::UNTIMED => (Observation::NO_TIME, Observation::NO_TIME + 1),
            Some(window) => {
                let from = number.saturating_mul(window);
                (from, from.saturating_add(window))
            }
            None => (i64::MIN, i64::MAX),
        }
    }

    /// Returns the number of the first window that is still open after a packet of time `latest`.
    #[inline]
    pub fn first_open(&self, latest: i64) -> i64 {
        self.window_ns.map_or(i64::MIN, |window| {
            latest.saturating_sub(self.late_ns).div_euclid(window)
        })
    }

    /// Returns the largest number of windows that can be open at once.
    pub fn most_open(&self) -> i64 {
        self.window_ns.map_or(1, |window| self.late_ns / window + 2)
    }
}

/// Identity of one result of a window, among all results of a run. Workers agree on a slot only if they close windows at the
/// same places of the source. Workers of live sources do not agree, because each has a clock of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Slot {
    /// Number of the window.
    pub number: i64,
    /// Number of earlier calls that closed all windows.
    era: u64,
    /// Number of earlier calls that closed windows, if the packets arrived after their window was
    /// closed; else 0.
    late: u64,
}

impl Slot {
    /// Slot of all packets, if packet time is not divided into windows.
    pub const WHOLE: Self = Self {
        number: 0,
        era: 0,
        late: 0,
    };
    /// Slot that no window has.
    pub const NONE: Self = Self {
        number: 0,
        era: u64::MAX,
        late: u64::MAX,
    };
}

/// Open windows, each with its counters. Few windows are open, and the newest is used most.
#[derive(Debug)]
pub struct Windows<T> {
    windowing: Windowing,
    /// Number of the first window that was not closed since `era` began.
    closed: i64,
    /// Number of calls of [`Self::close`] so far; `era` is the number at the last call that closed all windows.
    closes: u64,
    era: u64,
    /// Open windows with their numbers, ascending.
    open: Vec<(i64, T)>,
    /// Window used last: its place in `open`, its start and its end.
    last: Option<(usize, i64, i64)>,
    /// Whether the newest open window stands for all times.
    folds: bool,
}

impl<T> Windows<T> {
    /// Creates the windows; none is open.
    pub fn new(windowing: Windowing) -> Self {
        Self {
            windowing,
            closed: i64::MIN,
            closes: 0,
            era: 0,
            open: Vec::new(),
            last: None,
            folds: false,
        }
    }

    /// Returns the counters of the window at `time_ns`, and its span. If the window is not open, `make` creates its counters.
    #[inline]
    pub fn at<E>(
        &mut self,
        time_ns: i64,
        make: impl FnOnce(Slot) -> Result<T, E>,
    ) -> Result<(&mut T, Range<i64>), E> {
        let (place, from, to) = match self.last {
            Some((place, from, to)) if (from..to).contains(&time_ns) => (place, from, to),
            _ => self.find(time_ns, make)?,
        };
        Ok((&mut self.open[place].1, from..to))
    }

    /// Returns the counters of the window used last.
    #[inline]
    pub fn last(&self) -> Option<&T> {
        self.last.map(|(place, ..)| &self.open[place].1)
    }

    /// Starts or ends folding. While windows are folded, the newest open window counts the packets of all times. The packets of
    /// several windows then have no result of their own, and only their sum is right.
    pub fn fold(&mut self, folds: bool) {
        (self.folds, self.last) = (folds, None);
    }

    /// Returns the numbers of the open windows, ascending.
    pub fn numbers(&self) -> impl ExactSizeIterator<Item = i64> {
        self.open.iter().map(|(number, _)| *number)
    }

    #[cold]
    fn find<E>(
        &mut self,
        time_ns: i64,
        make: impl FnOnce(Slot) -> Result<T, E>,
    ) -> Result<(usize, i64, i64), E> {
        if self.folds && !self.open.is_empty() {
            let newest = (self.open.len() - 1, i64::MIN, i64::MAX);
            self.last = Some(newest);
            return Ok(newest);
        }
        let number = self.windowing.number(time_ns);
        let place = match self
            .open
            .binary_search_by_key(&number, |(number, _)| *number)
        {
            Ok(place) => place,
            Err(place) => {
                let late = if number < self.closed { self.closes } else { 0 };
                self.open.insert(
                    place,
                    (
                        number,
                        make(Slot {
                            number,
                            era: self.era,
                            late,
                        })?,
                    ),
                );
                place
            }
        };
        let (from, to) = self.windowing.span(number);
        self.last = Some((place, from, to));
        Ok((place, from, to))
    }

    /// Removes and returns the windows before number `open`. `i64::MAX` removes all windows, and time may then start again.
    pub fn close(&mut self, open: i64) -> Vec<(i64, T)> {
        self.closes += 1;
        self.closed = open;
        if open == i64::MAX {
            (self.era, self.closed) = (self.closes, i64::MIN);
        }
        let closed = self.open.partition_point(|(number, _)| *number < open);
        self.last = None;
        self.open.drain(..closed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const WINDOWING: Windowing = Windowing {
        window_ns: Some(SECOND),
        late_ns: SECOND / 2,
    };

    #[test]
    fn each_time_has_one_window() {
        for time in [i64::MIN, -SECOND, -1, 0, 1, SECOND - 1, SECOND, i64::MAX] {
            let (from, to) = WINDOWING.span(WINDOWING.number(time));
            assert!(
                from <= time && (time < to || to == i64::MAX),
                "{time}: {from}..{to}"
            );
        }
        assert_eq!(
            (
                WINDOWING.number(-1),
                WINDOWING.number(0),
                WINDOWING.number(SECOND)
            ),
            (-1, 0, 1)
        );
    }

    #[test]
    fn a_window_closes_when_a_packet_is_late_by_more_than_allowed() {
        assert_eq!(WINDOWING.first_open(10 * SECOND), 9);
        assert_eq!(WINDOWING.first_open(10 * SECOND + SECOND / 2 - 1), 9);
        assert_eq!(WINDOWING.first_open(10 * SECOND + SECOND / 2), 10);
        assert_eq!(Windowing::default().first_open(i64::MAX), i64::MIN);
    }

    #[test]
    fn packets_without_a_time_have_a_window_of_their_own() {
        assert_eq!(WINDOWING.number(Observation::NO_TIME), Windowing::UNTIMED);
        let (from, to) = WINDOWING.span(Windowing::UNTIMED);
        assert!(
            (from..to).contains(&Observation::NO_TIME) && !(from..to).contains(&(i64::MIN + 1))
        );
        assert_eq!(Windowing::default().number(Observation::NO_TIME), 0);
    }

    #[test]
    fn each_result_of_a_window_has_a_slot_of_its_own() {
        let mut slots = Vec::new();
        let mut windows = Windows::new(WINDOWING);
        for close in [
            None,
            Some(5),
            Some(5),
            Some(i64::MAX),
            Some(3),
            Some(5),
            Some(6),
        ] {
            close.map(|open| windows.close(open));
            let made = |slot| {
                slots.push(slot);
                Ok::<_, ()>(())
            };
            windows.at(4 * SECOND, made).expect("made");
        }
        // At the end of the list, the window was still open, so no slot was made.
        assert_eq!(slots.len(), 6);
        slots.sort_unstable();
        slots.dedup();
        assert_eq!(slots.len(), 6);
    }

    #[test]
    fn windows_fold_into_the_newest_one() {
        let mut windows = Windows::new(WINDOWING);
        let add = |windows: &mut Windows<i32>, time: i64| {
            *windows.at(time, |_| Ok::<_, ()>(0)).expect("made").0 += 1
        };
        add(&mut windows, 0);
        add(&mut windows, SECOND);
        windows.fold(true);
        [0, 5 * SECOND, 9 * SECOND]
            .iter()
            .for_each(|&time| add(&mut windows, time));
        assert!(windows.numbers().eq([0, 1]));
        windows.fold(false);
        add(&mut windows, 9 * SECOND);
        assert_eq!(windows.close(i64::MAX), [(0, 1), (1, 4), (9, 1)]);
    }

    #[test]
    fn windows_are_found_again_and_leave_in_order() {
        let mut windows = Windows::new(WINDOWING);
        let mut add = |time: i64| *windows.at(time, |_| Ok::<_, ()>(0)).expect("made").0 += 1;
        [5, 0, SECOND, 7, 3 * SECOND, -1, SECOND + 1]
            .into_iter()
            .for_each(&mut add);
        assert_eq!(windows.close(1), [(-1, 1), (0, 3)]);
        assert_eq!(windows.close(1), []);
        *windows
            .at(3 * SECOND, |_| Err("begun already"))
            .expect("open")
            .0 += 1;
        assert_eq!(windows.close(i64::MAX), [(1, 2), (3, 2)]);
    }
}
