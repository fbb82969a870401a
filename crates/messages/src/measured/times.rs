//! Columns of the times of keys: when packets were seen, and how many within a millisecond.

use super::Answers;
use super::columns::{Cell, Chosen, Figures, RowOf};
use crate::measurement::Options;
use crate::numbers::asked_time;
use crate::{Refusal, refuse};
use weir_measure::{Table, Times, Weigh};

/// Milliseconds of a second.
const MS: u64 = 1000;

/// Columns of peaks.
pub(super) const PEAKS: [&str; 3] = ["peak", "packets_peak", "bits_peak"];

/// Whether a list of columns has times of keys.
pub fn has_times(list: &str) -> bool {
    let is_time = |column| matches!(column, "first_seen" | "last_seen");
    list.split(',').any(is_time) || has_peaks(list)
}

/// Whether a list of columns has peaks.
pub fn has_peaks(list: &str) -> bool {
    list.split(',').any(|column| PEAKS.contains(&column))
}

impl RowOf<'_> {
    fn times(&self) -> Option<Times> {
        let Figures::Weighed(row) = self.figures else {
            return None;
        };
        // Packets without a timestamp have no times.
        row.times.filter(|times| times.first_ns <= times.last_ns)
    }

    pub(super) fn first_seen(&self) -> Cell {
        let times = self.times();
        times.map_or(Cell::None, |times| Cell::Time(times.first_ns))
    }

    pub(super) fn last_seen(&self) -> Cell {
        let times = self.times();
        times.map_or(Cell::None, |times| Cell::Time(times.last_ns))
    }

    /// Most packets or bits of a millisecond, in a second.
    pub(super) fn peak(&self, weigh: Weigh) -> Cell {
        let times = self.times().filter(|_| self.kind.has_peaks());
        let unit = match weigh {
            Weigh::Packets => 1,
            Weigh::Bytes => 8,
        };
        times.map_or(Cell::None, |times| {
            Cell::Count(times.peak().by(weigh) * unit * MS)
        })
    }
}

impl Answers {
    /// Returns the number of packets of a table that are in no peak, if the answer has peaks.
    pub fn late(&self, table: &Table) -> u64 {
        let is_peak = |column: &Chosen| PEAKS.contains(&column.name());
        let has_peaks = self.columns.iter().flatten().any(is_peak);
        if has_peaks { table.late } else { 0 }
    }
}

impl Options {
    /// Whether a column has times of keys.
    pub fn has_times(&self) -> bool {
        self.columns.as_deref().is_some_and(has_times)
    }

    /// Whether a column has peaks.
    pub fn has_peaks(&self) -> bool {
        self.columns.as_deref().is_some_and(has_peaks)
    }

    /// Refuses times that tables cannot keep, and peaks that workers cannot know. `lives` is the number of captures.
    pub(crate) fn check_times(&self, lives: usize) -> Result<(), Refusal> {
        if self.has_times() && !self.sketch.can_keep_times() && !self.by.is_distinct() {
            refuse!(
                "--columns first_seen, last_seen and peak cannot be had with --sketch {}, which keeps no times: \
                 use --sketch heavy or exact",
                self.sketch.name()
            );
        }
        if !self.has_peaks() {
            return Ok(());
        }
        if self.workers > 1 {
            refuse!(
                "--columns peak cannot be had with --workers {}, because the packets of a millisecond go to several of them: \
                 use --workers 1",
                self.workers
            );
        }
        if lives > 1 {
            refuse!(
                "--columns peak cannot be had of several interfaces, because each has a worker of its own: name one"
            );
        }
        match self.window {
            Some(window) if !window.as_nanos().is_multiple_of(1_000_000) => refuse!(
                "--columns peak cannot be had with --window {}, which divides milliseconds: use whole ones",
                asked_time(window)
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use weir_measure::Sketch;

    #[test]
    fn times_are_refused_where_they_cannot_be_right() {
        let options = |columns: &str| Options {
            columns: Some(columns.to_owned()),
            workers: 1,
            ..Options::default()
        };
        let why =
            |options: &Options, lives| options.check_times(lives).err().map(|it| it.to_string());
        for fine in ["src,peak", "src,first_seen", "last_seen,bits_peak"] {
            assert_eq!(why(&options(fine), 1), None, "{fine}");
        }
        let several = Options {
            workers: 2,
            ..options("src,last_seen")
        };
        assert_eq!(
            why(&several, 2),
            None,
            "times are right with several workers"
        );
        let cases = [
            (
                Options {
                    workers: 2,
                    ..options("src,bits_peak")
                },
                0,
                "use --workers 1",
            ),
            (options("src,peak"), 2, "name one"),
            (
                Options {
                    window: Some(Duration::from_micros(1500)),
                    ..options("src,peak")
                },
                0,
                "use whole ones",
            ),
            (
                Options {
                    sketch: Sketch::Majority,
                    ..options("src,first_seen")
                },
                0,
                "use --sketch heavy or exact",
            ),
        ];
        for (options, lives, advice) in cases {
            let why = why(&options, lives).expect("a refusal");
            assert!(why.ends_with(advice), "{why}");
        }
    }
}
