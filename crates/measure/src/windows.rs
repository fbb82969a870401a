//! Windows of packet time, numbered from 1970 on.

use core::ops::Range;

/// How packet time is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Length of a window, ns; `None`: all of time is window 0.
    pub window_ns: Option<i64>,
    /// A window stays open until a packet arrives that is this much behind its end, ns.
    pub late_ns: i64,
}

impl Cut {
    /// The window of a time.
    #[inline]
    pub fn number(&self, time_ns: i64) -> i64 {
        self.window_ns.map_or(0, |window| time_ns.div_euclid(window))
    }

    /// The times of a window: from, to (exclusive).
    pub fn span(&self, number: i64) -> (i64, i64) {
        match self.window_ns {
            Some(window) => {
                let from = number.saturating_mul(window);
                (from, from.saturating_add(window))
            }
            None => (i64::MIN, i64::MAX),
        }
    }

    /// The first window that is still open once a packet of time `latest` has arrived.
    #[inline]
    pub fn first_open(&self, latest: i64) -> i64 {
        self.window_ns.map_or(i64::MIN, |window| latest.saturating_sub(self.late_ns).div_euclid(window))
    }

    /// Windows that can be open at once.
    pub fn most_open(&self) -> i64 {
        self.window_ns.map_or(1, |window| self.late_ns / window + 2)
    }
}

/// The open windows and what is known of each. There are few, and the newest is asked for most.
#[derive(Debug)]
pub struct Windows<T> {
    cut: Cut,
    /// By number, ascending.
    open: Vec<(i64, T)>,
    /// Place in `open` and times of the window asked for last.
    last: Option<(usize, i64, i64)>,
}

impl<T> Windows<T> {
    /// No window is open.
    pub fn new(cut: Cut) -> Self {
        Self { cut, open: Vec::new(), last: None }
    }

    /// What is known of the window at `time_ns`, and the times of it; `make` begins it.
    #[inline]
    pub fn at<E>(&mut self, time_ns: i64, make: impl FnOnce() -> Result<T, E>) -> Result<(&mut T, Range<i64>), E> {
        let (place, from, to) = match self.last {
            Some((place, from, to)) if (from..to).contains(&time_ns) => (place, from, to),
            _ => self.find(time_ns, make)?,
        };
        Ok((&mut self.open[place].1, from..to))
    }

    /// What is known of the window asked for last.
    #[inline]
    pub fn last(&self) -> Option<&T> {
        self.last.map(|(place, ..)| &self.open[place].1)
    }

    #[cold]
    fn find<E>(&mut self, time_ns: i64, make: impl FnOnce() -> Result<T, E>) -> Result<(usize, i64, i64), E> {
        let number = self.cut.number(time_ns);
        let place = match self.open.binary_search_by_key(&number, |(number, _)| *number) {
            Ok(place) => place,
            Err(place) => {
                self.open.insert(place, (number, make()?));
                place
            }
        };
        let (from, to) = self.cut.span(number);
        self.last = Some((place, from, to));
        Ok((place, from, to))
    }

    /// Takes out the windows before number `open`.
    pub fn close(&mut self, open: i64) -> Vec<(i64, T)> {
        let closed = self.open.partition_point(|(number, _)| *number < open);
        self.last = None;
        self.open.drain(..closed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const CUT: Cut = Cut { window_ns: Some(SECOND), late_ns: SECOND / 2 };

    #[test]
    fn each_time_has_one_window() {
        for time in [i64::MIN, -SECOND, -1, 0, 1, SECOND - 1, SECOND, i64::MAX] {
            let (from, to) = CUT.span(CUT.number(time));
            assert!(from <= time && (time < to || to == i64::MAX), "{time}: {from}..{to}");
        }
        assert_eq!((CUT.number(-1), CUT.number(0), CUT.number(SECOND)), (-1, 0, 1));
    }

    #[test]
    fn a_window_closes_when_a_packet_is_late_by_more_than_allowed() {
        assert_eq!(CUT.first_open(10 * SECOND), 9);
        assert_eq!(CUT.first_open(10 * SECOND + SECOND / 2 - 1), 9);
        assert_eq!(CUT.first_open(10 * SECOND + SECOND / 2), 10);
        assert_eq!(Cut { window_ns: None, late_ns: 0 }.first_open(i64::MAX), i64::MIN);
    }

    #[test]
    fn windows_are_found_again_and_leave_in_order() {
        let mut windows = Windows::new(CUT);
        let mut add = |time: i64| *windows.at(time, || Ok::<_, ()>(0)).expect("made").0 += 1;
        [5, 0, SECOND, 7, 3 * SECOND, -1, SECOND + 1].into_iter().for_each(&mut add);
        assert_eq!(windows.close(1), [(-1, 1), (0, 3)]);
        assert_eq!(windows.close(1), []);
        *windows.at(3 * SECOND, || Err("begun already")).expect("open").0 += 1;
        assert_eq!(windows.close(i64::MAX), [(1, 2), (3, 2)]);
    }
}
