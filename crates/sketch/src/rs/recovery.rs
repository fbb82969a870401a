//! Reverse hashing: all keys that fall into heavy buckets.
//!
//! The heavy buckets of a row are sorted by index. As the field of the first word is uppermost, the buckets that fit the
//! first words of a key are neighbours: a range, which each further word narrows.
//!
//! ```text
//! search(word, prefix, range of each row)
//!     if all words are chosen: report the prefix
//!     for each value of the word whose field is in the range of all rows but r:
//!         search(word + 1, prefix and value, ranges narrowed to the field)
//! ```
//!
//! **Deviation from the papers**: the values that fit all rows but r are found for 256 values together, with four words of
//! bits for each bucket. The papers build sets of buckets for each value and intersect them.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::hashing::{Hashing, VALUES};
use super::shape::MISSING;

/// Buckets that a search may visit: about a second.
pub(super) const WORK: usize = 1 << 28;
/// Candidates before the verification.
const MOST_CANDIDATES: usize = 1 << 16;

/// Values of a word, one bit each.
type Set = [u64; VALUES / 64];

/// Keys that fall into heavy buckets, mangled.
pub(super) struct Candidates {
    pub(super) mangled: Vec<u64>,
    /// Whether the search ended before its work was used up.
    pub(super) is_complete: bool,
}

struct Search<'a> {
    hashing: &'a Hashing,
    /// For each row: the heavy buckets in increasing order.
    rows: &'a [Vec<u32>],
    /// For each row, word and field: the values that have the field.
    values: Vec<Set>,
    /// Number of rows that may lack the key.
    missing: usize,
    work: usize,
    found: Vec<u64>,
}

/// All keys whose buckets are heavy in all rows but `missing`, at most [`MISSING`]. `rows` has the heavy buckets of each row, in
/// increasing order; `work` is the number of buckets that the search may visit.
pub(super) fn reverse(
    hashing: &Hashing,
    rows: &[Vec<u32>],
    missing: usize,
    work: usize,
) -> Candidates {
    assert!(missing <= MISSING, "the search counts no more missing rows");
    let mut search = Search {
        hashing,
        rows,
        values: values_of_fields(hashing),
        missing,
        work,
        found: Vec::new(),
    };
    let all: Vec<_> = rows.iter().map(|row| (0, row.len() as u32)).collect();
    let is_complete = search.descend(0, 0, &all);
    Candidates {
        mangled: search.found,
        is_complete,
    }
}

fn values_of_fields(hashing: &Hashing) -> Vec<Set> {
    let shape = hashing.shape;
    let mut values = vec![Set::default(); shape.rows() * shape.words() * VALUES];
    for row in 0..shape.rows() {
        for (word, table) in hashing.tables(row).iter().enumerate() {
            let first = (row * shape.words() + word) * VALUES;
            for (value, place) in table.iter().enumerate() {
                let field = place >> hashing.fields[word].shift;
                values[first + field as usize][value / 64] |= 1 << (value % 64);
            }
        }
    }
    values
}

impl Search<'_> {
    /// Searches all keys that begin with `prefix`, of `word` words; `false` if the work is used up.
    fn descend(&mut self, word: usize, prefix: u64, ranges: &[(u32, u32)]) -> bool {
        if word == self.hashing.shape.words() {
            self.found.push(prefix);
            return self.found.len() < MOST_CANDIDATES;
        }
        let buckets: usize = ranges.iter().map(|(from, to)| (to - from) as usize).sum();
        let Some(work) = self.work.checked_sub(buckets + ranges.len()) else {
            return false;
        };
        self.work = work;
        let mut narrowed = [(0, 0); super::MOST_ALL_ROWS];
        for (at, mut bits) in self.fitting(word, ranges).into_iter().enumerate() {
            while bits != 0 {
                let value = at * 64 + bits.trailing_zeros() as usize;
                bits &= bits - 1;
                for (row, (narrow, range)) in narrowed.iter_mut().zip(ranges).enumerate() {
                    *narrow = self.narrow(row, word, value, *range);
                }
                let prefix = prefix << 8 | value as u64;
                if !self.descend(word + 1, prefix, &narrowed[..ranges.len()]) {
                    return false;
                }
            }
        }
        true
    }

    /// The values of a word that fit a bucket of the range in all rows but the missing rows.
    fn fitting(&self, word: usize, ranges: &[(u32, u32)]) -> Set {
        let field = self.hashing.fields[word];
        // Values that fit in all rows so far, and in all but at most one.
        let (mut in_all, mut but_one) = ([u64::MAX; 4], [u64::MAX; 4]);
        for (row, (from, to)) in ranges.iter().enumerate() {
            let first = (row * self.hashing.shape.words() + word) * VALUES;
            let mut here = Set::default();
            for bucket in &self.rows[row][*from as usize..*to as usize] {
                let field = bucket >> field.shift & !(u32::MAX << field.bits);
                let values = &self.values[first + field as usize];
                (0..here.len()).for_each(|at| here[at] |= values[at]);
            }
            for at in 0..here.len() {
                but_one[at] = but_one[at] & here[at] | in_all[at];
                in_all[at] &= here[at];
            }
        }
        if self.missing == 0 { in_all } else { but_one }
    }

    /// The buckets of a range whose field of this word is the value's.
    fn narrow(&self, row: usize, word: usize, value: usize, (from, to): (u32, u32)) -> (u32, u32) {
        /// Ranges up to this length are read one by one.
        const SHORT: u32 = 8;
        let shift = self.hashing.fields[word].shift;
        let wanted = self.hashing.tables(row)[word][value] >> shift;
        let mask = !(u32::MAX << self.hashing.fields[word].bits);
        let buckets = &self.rows[row][from as usize..to as usize];
        let field = |bucket: &u32| bucket >> shift & mask;
        let (below, at_most) = if to - from <= SHORT {
            let count =
                |fits: &dyn Fn(u32) -> bool| buckets.iter().filter(|b| fits(field(b))).count();
            (
                count(&|field| field < wanted),
                count(&|field| field <= wanted),
            )
        } else {
            (
                buckets.partition_point(|bucket| field(bucket) < wanted),
                buckets.partition_point(|bucket| field(bucket) <= wanted),
            )
        };
        (from + below as u32, from + at_most as u32)
    }
}

/// The `most + 1`-th largest value, or 0 if there are fewer: at most `most` values are larger.
pub(super) fn above(values: impl Iterator<Item = u64>, most: usize) -> u64 {
    let mut largest = BinaryHeap::new();
    for value in values {
        if largest.len() <= most {
            largest.push(Reverse(value));
        } else if let Some(mut least) = largest.peek_mut()
            && value > least.0
        {
            *least = Reverse(value);
        }
    }
    match largest.peek() {
        Some(Reverse(least)) if largest.len() > most => *least,
        _ => 0,
    }
}
