//! All keys whose parts are in heavy entries of every row.
//!
//! Parts are chosen one after another from the sets of a heavy entry in the first row. For each row, the heavy entries that
//! have all chosen parts are kept; if a row has none, the search goes back. The hash of a whole key then tells whether its
//! entries are these.

use zerocopy::IntoBytes;

use super::{PARTS, Parts, ReversibleSets, SetKeys};
use crate::cms::Columns;
use crate::{Counts, Weigh};

/// Entries that a search may visit: about a second.
pub(super) const WORK: usize = 1 << 25;

struct Search<'a, P: Parts, H> {
    sketch: &'a ReversibleSets<P>,
    hash: H,
    /// Index of the heavy entry of the first row, among all entries.
    first: usize,
    work: usize,
    found: Vec<(P::Key, Counts)>,
}

/// Recovers as [`ReversibleSets::recover`], and visits at most `work` entries.
pub(super) fn recover<P: Parts, H: Fn(&P::Key) -> u64>(
    sketch: &ReversibleSets<P>,
    threshold: u64,
    weigh: Weigh,
    hash: H,
    work: usize,
) -> SetKeys<P::Key> {
    let width = sketch.shape.width();
    let heavy = |row: usize| -> Vec<usize> {
        let entries = sketch.row(row).iter().enumerate();
        let heavy = entries.filter(|(_, entry)| entry.counts().by(weigh) >= threshold);
        heavy.map(|(place, _)| row * width + place).collect()
    };
    let rows: Vec<Vec<usize>> = (0..sketch.shape.rows()).map(heavy).collect();
    let mut search = Search {
        sketch,
        hash,
        first: 0,
        work,
        found: Vec::new(),
    };
    let mut is_complete = true;
    for first in &rows[0] {
        search.first = *first;
        is_complete &= !sketch.entries[*first].is_overflowed();
        is_complete &= search.descend(&mut [0; PARTS], 0, &rows[1..]);
    }
    let mut found = search.found;
    found.sort_unstable_by(|(a, mine), (b, theirs)| {
        let by_weight = theirs.by(weigh).cmp(&mine.by(weigh));
        by_weight.then_with(|| a.as_bytes().cmp(b.as_bytes()))
    });
    SetKeys {
        heavy: found,
        is_complete,
    }
}

impl<P: Parts, H: Fn(&P::Key) -> u64> Search<'_, P, H> {
    /// Tries all values of the parts from `part` on; `false` if the work is used up.
    fn descend(&mut self, parts: &mut [u128; PARTS], part: usize, rows: &[Vec<usize>]) -> bool {
        if part == PARTS {
            self.check(parts, rows);
            return true;
        }
        let set = self.sketch.entries[self.first].sets[part];
        for value in set.values() {
            let visited = rows.iter().map(Vec::len).sum::<usize>() + 1;
            let Some(work) = self.work.checked_sub(visited) else {
                return false;
            };
            self.work = work;
            let fits = |at: &usize| self.sketch.entries[*at].sets[part].may_contain(*value);
            let fitting = |row: &Vec<usize>| row.iter().copied().filter(fits).collect();
            let fitting: Vec<Vec<usize>> = rows.iter().map(fitting).collect();
            parts[part] = *value;
            if !fitting.iter().any(Vec::is_empty) && !self.descend(parts, part + 1, &fitting) {
                return false;
            }
        }
        true
    }

    /// Keeps a key whose entries are the chosen entry of the first row and heavy entries of the others.
    fn check(&mut self, parts: &[u128; PARTS], rows: &[Vec<usize>]) {
        let Some(key) = P::join(parts).filter(|key| P::split(key) == *parts) else {
            return;
        };
        let hash = (self.hash)(&key);
        let mut columns = Columns::new(self.sketch.shape, hash);
        let is_first = columns.step() == self.first;
        if is_first && rows.iter().all(|row| row.contains(&columns.step())) {
            self.found.push((key, self.sketch.estimate(hash)));
        }
    }
}
