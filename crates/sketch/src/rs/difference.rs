//! The difference of two sketches, and the keys that changed most.
//!
//! The cells of a difference are signed. A row's estimate of a change is (D - S / K) / (1 - 1 / K), with the difference D of
//! the two cells and the difference S of the totals. Its variance is at most F / (K - 1), where F is the sum of the squares of
//! all changes, which a row itself estimates: F = (K * sum of D^2 - S^2) / (K - 1). By Chebyshev, the estimate is more than
//! x standard deviations off with probability 1 / x^2 at most. The median of R rows is so far off only if half the rows are:
//! with C(R, R / 2) x^-R at most, for even R. Each range takes the x for which this is 1 %, and the largest F of all rows.

use std::collections::HashMap;

use super::recovery::{self, Candidates};
use super::shape::MISSING;
use super::{Mean, Reversible, median};
use crate::{Cell, Error};

/// Probability that the change of a key is within its range.
const CONFIDENCE: f64 = 0.99;

/// Counts of one sketch less the counts of another: the changes from one window to the next.
///
/// **Cost**: takes no memory, because cells are subtracted when they are read; making it reads all cells once.
/// **Error bound**: [`estimate`](Self::estimate) states a range for each key, which has the true change with probability
/// [`confidence`](Self::confidence).
#[derive(Clone, Copy, Debug)]
pub struct Difference<'a, C> {
    before: Option<&'a Reversible<C>>,
    after: Option<&'a Reversible<C>>,
    mean: Mean,
    /// Half the width of a range.
    deviation: f64,
}

/// A key with its estimated change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Changed {
    /// The key.
    pub key: u64,
    /// Estimated change of the weight.
    pub change: i64,
    /// Lower end of the range.
    pub lower: i64,
    /// Upper end of the range.
    pub upper: i64,
}

/// Keys that changed most.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changes {
    /// Keys, largest change first; keys of equal changes in increasing order.
    pub changed: Vec<Changed>,
    /// Whether the search ended by itself, as in [`HeavyKeys`](super::HeavyKeys).
    pub is_complete: bool,
}

impl<'a, C: Cell> Difference<'a, C> {
    /// The changes from `before` to `after`; a window without packets may be `None`.
    ///
    /// **Errors**: the sketches differ in shape or seed.
    pub fn new(
        before: Option<&'a Reversible<C>>,
        after: Option<&'a Reversible<C>>,
    ) -> Result<Self, Error> {
        if let (Some(before), Some(after)) = (before, after) {
            after.alike(before)?;
        }
        let total = |sketch: Option<&Reversible<C>>| sketch.map_or(0, Reversible::total);
        let width = after.or(before).map_or(1, |sketch| sketch.shape().width());
        let mut difference = Self {
            before,
            after,
            mean: Mean::new(total(after) as f64 - total(before) as f64, width.max(2)),
            deviation: 0.0,
        };
        difference.deviation = difference.deviation_of_rows(width as f64);
        Ok(difference)
    }

    /// Half the width of a range, from the rows' own variance.
    fn deviation_of_rows(&self, width: f64) -> f64 {
        let Some(sketch) = self.after.or(self.before) else {
            return 0.0;
        };
        let rows = sketch.shape().all_rows();
        let sum = self.mean.mean * width;
        let moment = |row| {
            let squares: f64 = (0..sketch.shape().width())
                .map(|place| (self.cell(row, place) as f64).powi(2))
                .sum();
            (width * squares - sum * sum) / (width - 1.0)
        };
        let moment = (0..rows).map(moment).fold(0.0, f64::max);
        deviations(rows) * (moment / (width - 1.0)).sqrt()
    }

    /// The difference of two cells.
    fn cell(&self, row: usize, place: usize) -> i64 {
        let cell = |sketch: Option<&Reversible<C>>| {
            let cell: u64 = sketch.map_or(0, |sketch| sketch.row(row)[place].into());
            i64::try_from(cell).unwrap_or(i64::MAX)
        };
        cell(self.after) - cell(self.before)
    }

    /// Estimated change of a key, with its range.
    pub fn estimate(&self, key: u64) -> Changed {
        let Some(sketch) = self.after.or(self.before) else {
            return self.changed(key, &mut []);
        };
        let mangled = sketch.hashing.mangle(key);
        self.changed(key & sketch.key_mask(), &mut self.rows(sketch, mangled))
    }

    /// Estimates of a key's change by each row.
    fn rows(&self, sketch: &Reversible<C>, mangled: u64) -> Vec<f64> {
        let row = |row| {
            let place = sketch.hashing.place(row, mangled);
            self.mean.correct(self.cell(row, place) as f64)
        };
        (0..sketch.shape().all_rows()).map(row).collect()
    }

    fn changed(&self, key: u64, rows: &mut [f64]) -> Changed {
        let change = median(rows);
        Changed {
            key,
            change: change.round() as i64,
            lower: (change - self.deviation).floor() as i64,
            upper: (change + self.deviation).ceil() as i64,
        }
    }

    /// Keys whose weight changed by `threshold` or more, upwards or downwards, and keys whose range reaches that.
    ///
    /// A bucket is heavy if its estimate is at least the threshold less half the width of a range, but no less than half the
    /// threshold. A key may be missing in one row, because another change of the other sign can hide it there.
    ///
    /// **Cost**: as of [`Reversible::recover`], once for each sign. **Error bound**: a key that changed by the threshold is
    /// found, unless two rows hide it. That is rare while ranges are narrower than the threshold.
    pub fn recover(&self, threshold: u64) -> Changes {
        let threshold = threshold.max(1) as f64;
        let least = (threshold - self.deviation).max(threshold / 2.0);
        let mut changes = self.recover_above(least, recovery::WORK);
        let reaches = |key: &Changed| {
            let largest = key.upper.max(key.lower.saturating_neg());
            largest as f64 >= threshold
        };
        changes.changed.retain(reaches);
        changes
    }

    /// The `k` keys that changed most, of the keys that can be recovered, and whether the search was complete.
    ///
    /// **Cost**: as of [`recover`](Self::recover), for the lowest threshold that leaves a hundred or `2 k` heavy cells in each
    /// row.
    pub fn ranking(&self, k: usize) -> Changes {
        self.ranking_within(k, recovery::WORK)
    }

    /// [`ranking`](Self::ranking) with another bound on the number of visited buckets.
    pub(crate) fn ranking_within(&self, k: usize, mut work: usize) -> Changes {
        let Some(sketch) = self.after.or(self.before) else {
            return self.recover_above(1.0, work);
        };
        let shape = sketch.shape();
        let mut most = k.saturating_mul(2).max(128).min(shape.width());
        loop {
            work /= 2;
            let sizes = |row| {
                let row = (0..shape.width()).map(move |place| self.cell(row, place));
                row.map(|cell| self.mean.correct(cell as f64).abs().ceil() as u64)
            };
            let rows = (0..shape.rows()).map(|row| recovery::above(sizes(row), most));
            let mut changes = self.recover_above(rows.max().unwrap_or(0) as f64 + 1.0, work);
            if changes.is_complete || most == 0 {
                changes.changed.truncate(k);
                return changes;
            }
            most /= 2;
        }
    }

    /// Keys of which all rows but one show a change of at least `least`.
    fn recover_above(&self, least: f64, work: usize) -> Changes {
        let mut changes = Changes {
            changed: Vec::new(),
            is_complete: true,
        };
        let Some(sketch) = self.after.or(self.before) else {
            return changes;
        };
        for sign in [1.0, -1.0] {
            let is_heavy = |change: &f64| change * sign >= least;
            let Candidates {
                mangled,
                is_complete,
            } = self.candidates(sketch, is_heavy, work / 2);
            changes.is_complete &= is_complete;
            self.confirm(sketch, &mangled, is_heavy, &mut changes.changed);
        }
        let order = |key: &Changed| (core::cmp::Reverse(key.change.unsigned_abs()), key.key);
        changes.changed.sort_unstable_by_key(order);
        changes
    }

    /// Adds the candidates that the verifying rows confirm.
    ///
    /// A key may be missing in one row. But some wrong keys share all buckets of recovery with a right key, and lack one
    /// verifying row. So the changes of the keys that miss no row are subtracted first: of a right key, its own change is left.
    fn confirm(
        &self,
        sketch: &Reversible<C>,
        candidates: &[u64],
        is_heavy: impl Fn(&f64) -> bool,
        changed: &mut Vec<Changed>,
    ) {
        let missing = |rows: &[f64]| rows.iter().filter(|change| !is_heavy(change)).count();
        // For each row and bucket: the changes of the keys that miss no row.
        let mut known = HashMap::<(usize, usize), f64>::new();
        let mut others = Vec::new();
        for mangled in candidates {
            let mut rows = self.rows(sketch, *mangled);
            match missing(&rows) {
                0 => {
                    let key = self.changed(sketch.hashing.unmangle(*mangled), &mut rows);
                    for row in 0..rows.len() {
                        let place = sketch.hashing.place(row, *mangled);
                        *known.entry((row, place)).or_default() += key.change as f64;
                    }
                    changed.push(key);
                }
                1..=MISSING => others.push((*mangled, rows)),
                _ => {}
            }
        }
        for (mangled, mut rows) in others {
            let mut left = rows.clone();
            for (row, left) in left.iter_mut().enumerate() {
                let place = sketch.hashing.place(row, mangled);
                *left -= known.get(&(row, place)).copied().unwrap_or(0.0);
            }
            if missing(&left) <= MISSING {
                changed.push(self.changed(sketch.hashing.unmangle(mangled), &mut rows));
            }
        }
    }

    /// Keys, mangled, whose buckets are heavy in all rows but one.
    fn candidates(
        &self,
        sketch: &Reversible<C>,
        is_heavy: impl Fn(&f64) -> bool,
        work: usize,
    ) -> Candidates {
        let heavy = |row| {
            let places = 0..sketch.shape().width();
            let change = |place| self.mean.correct(self.cell(row, place) as f64);
            let heavy = places.filter(|place| is_heavy(&change(*place)));
            heavy.map(|place| place as u32).collect()
        };
        let rows: Vec<Vec<u32>> = (0..sketch.shape().rows()).map(heavy).collect();
        recovery::reverse(&sketch.hashing, &rows, MISSING, work)
    }

    /// Probability that the change of a key is within its range.
    pub fn confidence(&self) -> f64 {
        CONFIDENCE
    }
}

/// Number of standard deviations by which the median of so many rows is off with probability 1 - [`CONFIDENCE`] at most.
fn deviations(rows: usize) -> f64 {
    let half = rows.div_ceil(2);
    let ways: f64 = (0..half)
        .map(|i| (rows - i) as f64 / (i + 1) as f64)
        .product();
    (ways / (1.0 - CONFIDENCE)).powf(0.5 / half as f64)
}
