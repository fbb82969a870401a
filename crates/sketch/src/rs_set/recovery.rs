//! All keys whose parts are in heavy entries of every row.
//!
//! Parts are chosen one after another from the sets of a heavy entry in the first row. For each row, the heavy entries that
//! have all chosen parts are kept; if a row has none, the search goes back. The hash of a whole key then tells whether its
//! entries are these.

use zerocopy::{Immutable, IntoBytes};

use super::{PARTS, Parts, ReversibleSets, SetKeys, SetRanking};
use crate::cms::Columns;
use crate::{Counts, Weigh};

/// Entries that a search may visit: about a second.
pub(super) const WORK: usize = 1 << 25;
/// Entries that the searches of a ranking may visit.
const RANKING_WORK: usize = 1 << 22;

struct Search<'a, P: Parts, H> {
    sketch: &'a ReversibleSets<P>,
    hash: H,
    /// Index of the heavy entry of the first row, among all entries.
    first: usize,
    work: usize,
    found: Vec<(P::Key, Counts)>,
    /// Whether the work sufficed.
    is_finished: bool,
    /// Whether no set was full from which parts were chosen.
    is_whole: bool,
}

/// Recovers as [`ReversibleSets::recover`], and visits at most `work` entries.
pub(super) fn recover<P: Parts, H: Fn(&P::Key) -> u64>(
    sketch: &ReversibleSets<P>,
    threshold: u64,
    weigh: Weigh,
    hash: H,
    work: usize,
) -> SetKeys<P::Key> {
    let search = searched(sketch, threshold, weigh, hash, work);
    let is_complete = search.is_finished && search.is_whole;
    let mut heavy = search.found;
    sort(&mut heavy, weigh);
    SetKeys { heavy, is_complete }
}

/// Ranks as [`ReversibleSets::ranking`]: recovers with lower and lower thresholds until there are enough keys.
pub(super) fn ranking<P: Parts, H: Fn(&P::Key) -> u64>(
    sketch: &ReversibleSets<P>,
    rows: usize,
    weigh: Weigh,
    hash: &H,
) -> SetRanking<P::Key> {
    let weights = sketch.row(0).iter().map(|entry| entry.counts().by(weigh));
    let mut threshold = weights.max().unwrap_or(0);
    // No key is heavier than the heaviest entry of a row.
    let mut at_most = threshold;
    let mut is_complete = true;
    let mut work = RANKING_WORK;
    let mut listed = Vec::new();
    while threshold > 0 && listed.len() < rows {
        let search = searched(sketch, threshold, weigh, hash, work);
        is_complete &= search.is_finished && search.is_whole;
        if is_complete {
            at_most = threshold - 1;
        }
        // An unfinished search may lack keys of the search before.
        listed.extend(search.found);
        sort(&mut listed, weigh);
        listed.dedup();
        if !search.is_finished {
            break;
        }
        work = search.work;
        threshold /= 2;
    }
    let unlisted = listed.get(rows).map_or(0, |(_, counts)| counts.by(weigh));
    listed.truncate(rows);
    SetRanking {
        listed,
        at_most: at_most.max(unlisted),
    }
}

/// Sorts keys, heaviest first.
fn sort<K: IntoBytes + Immutable>(found: &mut [(K, Counts)], weigh: Weigh) {
    found.sort_unstable_by(|(a, mine), (b, theirs)| {
        let by_weight = theirs.by(weigh).cmp(&mine.by(weigh));
        by_weight.then_with(|| a.as_bytes().cmp(b.as_bytes()))
    });
}

/// Searches all keys of heavy entries.
fn searched<P: Parts, H: Fn(&P::Key) -> u64>(
    sketch: &ReversibleSets<P>,
    threshold: u64,
    weigh: Weigh,
    hash: H,
    work: usize,
) -> Search<'_, P, H> {
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
        is_finished: true,
        is_whole: true,
    };
    for first in &rows[0] {
        search.first = *first;
        search.is_whole &= !sketch.entries[*first].is_overflowed();
        search.is_finished &= search.descend(&mut [0; PARTS], 0, &rows[1..]);
    }
    search
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
