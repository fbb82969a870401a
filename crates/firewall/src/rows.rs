//! Rows of bits: for each class of values of a field, the rules whose condition on that field holds.
//!
//! A row of a list of thousands of rules is mostly empty. So it has a summary, one bit for each word of 64 rules, and only the words
//! that are not zero. Rows of several fields are combined summary first: a word is read only if no summary is zero there.
//! **Source**: Baboescu and Varghese, "Scalable packet classification", SIGCOMM 2001 (aggregated bit vectors).

use crate::address::mixed;
use std::collections::HashMap;
use weir_memory::{in_huge_pages, prefetch};

/// Rules in a word, and words in a word of the summary.
const BITS: usize = 64;

/// Memory of the rows of one field, bytes, after which no row is made.
pub(crate) const MOST_BYTES: usize = 128 << 20;

/// Set of rules, one bit each, while rows are made.
#[derive(Clone, Debug)]
pub(crate) struct RuleSet {
    words: Vec<u64>,
    /// Sum (XOR) of a random number for each member: equal sets have equal sums.
    sum: u64,
}

impl RuleSet {
    /// An empty set of up to `rules` rules.
    pub(crate) fn new(rules: usize) -> Self {
        Self {
            words: vec![0; rules.div_ceil(BITS)],
            sum: 0,
        }
    }

    /// The set of up to 64 rules.
    fn word(&self) -> u64 {
        self.words.first().copied().unwrap_or(0)
    }

    /// Adds the rule, or takes it out if it is there.
    pub(crate) fn toggle(&mut self, rule: usize) {
        self.words[rule / BITS] ^= 1 << (rule % BITS);
        // A sum that two sets share by chance is found when their words are compared.
        self.sum ^= mixed((rule as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

/// Rows of one field, each set once.
///
/// **Layout**: a row is its summary, and after it the place of its first word in `words`. Without a
/// summary it is its only word.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    /// Words of a summary; 0 for up to 64 rules.
    summary: usize,
    rows: Vec<u64>,
    words: Vec<u64>,
    /// Whether a row had no room.
    is_full: bool,
    /// Rows by the sum of their set, while rows are made.
    known: HashMap<u64, Vec<u32>>,
}

impl Rows {
    /// Makes rows for up to `rules` rules.
    pub(crate) fn new(rules: usize) -> Self {
        let summary = if rules <= BITS {
            0
        } else {
            rules.div_ceil(BITS).div_ceil(BITS)
        };
        Self {
            summary,
            rows: Vec::new(),
            words: Vec::new(),
            is_full: false,
            known: HashMap::new(),
        }
    }

    /// Returns the number of the row with this set, which is made if it is not there.
    pub(crate) fn row_of(&mut self, set: &RuleSet) -> u32 {
        let candidates = self.known.get(&set.sum).into_iter().flatten();
        if let Some(&row) = candidates.into_iter().find(|&&row| self.is_equal(row, set)) {
            return row;
        }
        if self.bytes() > MOST_BYTES {
            self.is_full = true;
            return 0;
        }
        let row = self.len() as u32;
        if self.summary == 0 {
            self.rows.push(set.word());
            self.known.entry(set.sum).or_default().push(row);
            return row;
        }
        for word in 0..self.summary {
            let part = set.words.iter().skip(word * BITS).take(BITS);
            self.rows.push(
                part.enumerate()
                    .fold(0, |bits, (i, word)| bits | u64::from(*word != 0) << i),
            );
        }
        self.rows.push(self.words.len() as u64);
        self.words
            .extend(set.words.iter().filter(|word| **word != 0));
        self.known.entry(set.sum).or_default().push(row);
        row
    }

    /// Whether there was no room for all rows.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Ends the making of rows, and frees what only that needed.
    pub(crate) fn complete(&mut self) {
        self.known = HashMap::new();
        self.rows = in_huge_pages(&self.rows);
        self.words = in_huge_pages(&self.words);
    }

    /// Returns the number of rows.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() / (self.summary + 1)
    }

    /// Returns the bytes of all rows.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.rows[..]) + size_of_val(&self.words[..])
    }

    /// Starts to fetch a row.
    #[inline]
    pub(crate) fn prefetch(&self, row: u32) {
        prefetch(&self.rows, row as usize * (self.summary + 1));
    }

    fn row(&self, row: u32) -> (&[u64], usize) {
        let at = row as usize * (self.summary + 1);
        (
            &self.rows[at..at + self.summary],
            self.rows[at + self.summary] as usize,
        )
    }

    fn is_equal(&self, row: u32, set: &RuleSet) -> bool {
        if self.summary == 0 {
            return self.rows[row as usize] == set.word();
        }
        let (summary, mut next) = self.row(row);
        set.words.iter().enumerate().all(|(i, &word)| {
            let is_there = summary[i / BITS] >> (i % BITS) & 1 == 1;
            let found = if is_there { self.words[next] } else { 0 };
            next += usize::from(is_there);
            found == word
        })
    }
}

/// Hands the rules that are in a row of each field to `each`, in ascending order, until `each` returns `false`.
///
/// **Cost**: a word of each field for up to 64 rules; the summaries for more, and for each word of rules that all of them have, a word
/// of each field.
#[inline]
pub(crate) fn in_all<const FIELDS: usize>(
    fields: [(&Rows, u32); FIELDS],
    mut each: impl FnMut(u32) -> bool,
) {
    if fields[0].0.summary == 0 {
        let mut word = fields
            .iter()
            .fold(u64::MAX, |all, (rows, row)| all & rows.rows[*row as usize]);
        while word != 0 {
            let rule = word.trailing_zeros();
            word &= word - 1;
            if !each(rule) {
                return;
            }
        }
        return;
    }
    let rows: [_; FIELDS] = core::array::from_fn(|field| {
        let (rows, row) = fields[field];
        (rows.row(row), &rows.words)
    });
    // Number of words of each row before the current word of its summary.
    let mut before: [_; FIELDS] = core::array::from_fn(|field| rows[field].0.1);
    let summaries = rows[0].0.0.len();
    for s in 0..summaries {
        let parts: [u64; FIELDS] = core::array::from_fn(|field| rows[field].0.0[s]);
        let mut common = parts.iter().fold(u64::MAX, |all, part| all & part);
        while common != 0 {
            let bit = common.trailing_zeros();
            common &= common - 1;
            let below = (1u64 << bit) - 1;
            let mut word = (0..FIELDS).fold(u64::MAX, |all, field| {
                all & rows[field].1[before[field] + (parts[field] & below).count_ones() as usize]
            });
            while word != 0 {
                let rule = (s * BITS + bit as usize) * BITS + word.trailing_zeros() as usize;
                word &= word - 1;
                if !each(rule as u32) {
                    return;
                }
            }
        }
        for field in 0..FIELDS {
            before[field] += parts[field].count_ones() as usize;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Random;

    #[test]
    fn rows_have_the_rules_of_all_their_sets_in_order() {
        let mut random = Random(7);
        for rules in [1, 63, 64, 65, 4096, 4097, 9000] {
            let mut rows = [Rows::new(rules), Rows::new(rules)];
            let mut naive: [Vec<Vec<bool>>; 2] = [Vec::new(), Vec::new()];
            let mut numbers: [Vec<u32>; 2] = [Vec::new(), Vec::new()];
            for field in 0..2 {
                for round in 0..20 {
                    // Dense, sparse, empty, full, and one that was there before by another way.
                    let share = [2, 200, usize::MAX, 1][round % 4];
                    let members: Vec<bool> = (0..rules).map(|_| random.below(share) == 0).collect();
                    let mut set = RuleSet::new(rules);
                    let mut order: Vec<usize> = (0..rules).filter(|&rule| members[rule]).collect();
                    order.reverse();
                    // Twice is not at all.
                    order.extend([0, 0]);
                    order.into_iter().for_each(|rule| set.toggle(rule));
                    let row = rows[field].row_of(&set);
                    assert_eq!(rows[field].row_of(&set), row);
                    let known = naive[field].iter().position(|other| *other == members);
                    assert_eq!(
                        known,
                        numbers[field].iter().position(|&number| number == row)
                    );
                    naive[field].push(members);
                    numbers[field].push(row);
                }
            }
            rows.iter_mut().for_each(Rows::complete);
            for (a, b) in (0..20).flat_map(|a| (0..20).map(move |b| (a, b))) {
                let wanted: Vec<u32> = (0..rules)
                    .filter(|&rule| naive[0][a][rule] && naive[1][b][rule])
                    .map(|rule| rule as u32)
                    .collect();
                let mut found = Vec::new();
                let fields = [(&rows[0], numbers[0][a]), (&rows[1], numbers[1][b])];
                in_all(fields, |rule| {
                    found.push(rule);
                    true
                });
                assert_eq!(found, wanted, "{rules} rules");
                let mut first = None;
                in_all(fields, |rule| {
                    assert!(first.is_none());
                    first = Some(rule);
                    false
                });
                assert_eq!(first, wanted.first().copied());
            }
        }
    }
}
