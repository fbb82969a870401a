//! Figures of DNS transactions.

use core::ops::AddAssign;

/// Classes of times of an octave.
const STEPS: usize = 8;
/// The first class begins at this power of two, ns: 8 us. The last ends at 137 s.
const FIRST: u32 = 13;
const OCTAVES: usize = 24;

/// Times from queries to their answers, ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// Number of times.
    pub count: u64,
    /// Sum of the times, ns.
    pub sum_ns: i64,
    /// Longest time, ns.
    pub max_ns: i64,
    /// Numbers of times by class.
    classes: [u32; STEPS * OCTAVES],
}

impl Times {
    pub(super) fn add(&mut self, ns: i64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(ns);
        self.max_ns = self.max_ns.max(ns);
        let class = &mut self.classes[class_of(ns)];
        *class = class.saturating_add(1);
    }

    /// Returns the median, ns: exact of one time, else within 7 % between 8 us and 137 s, and at most [`Self::max_ns`]; `None`
    /// without a time.
    pub fn median_ns(&self) -> Option<i64> {
        if self.count == 1 {
            return Some(self.max_ns);
        }
        let half = self.count.div_ceil(2);
        let mut before = 0;
        let class = self.classes.iter().position(|count| {
            before += u64::from(*count);
            half > 0 && before >= half
        })?;
        let (from, to) = span_of(class);
        Some(((from + to) / 2).min(self.max_ns))
    }

    /// Returns the mean, ns; `None` without a time.
    pub fn mean_ns(&self) -> Option<i64> {
        let count = i64::try_from(self.count).ok().filter(|count| *count > 0)?;
        Some(self.sum_ns / count)
    }

    /// Number of classes.
    pub const CLASSES: usize = STEPS * OCTAVES;

    /// Numbers of times by class, the shortest times first; classes without times are left out.
    pub fn classes(&self) -> impl Iterator<Item = (usize, u32)> {
        let all = self.classes.iter().copied().enumerate();
        all.filter(|(_, count)| *count > 0)
    }

    /// Sets the number of times of a class; a class that there is not is left out.
    pub fn set_class(&mut self, class: usize, count: u32) {
        if let Some(known) = self.classes.get_mut(class) {
            *known = count;
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self {
            count: 0,
            sum_ns: 0,
            max_ns: 0,
            classes: [0; STEPS * OCTAVES],
        }
    }
}

/// Number of the class of a time.
fn class_of(ns: i64) -> usize {
    let ns = u64::try_from(ns).unwrap_or(0).max(1 << FIRST);
    let octave = ns.ilog2();
    // The bits below the highest.
    let step = (ns >> (octave - STEPS.ilog2())) as usize - STEPS;
    let class = (octave - FIRST) as usize * STEPS + step;
    class.min(STEPS * OCTAVES - 1)
}

/// Begin and end of a class, ns.
fn span_of(class: usize) -> (i64, i64) {
    let shift = FIRST - STEPS.ilog2() + (class / STEPS) as u32;
    let from = ((STEPS + class % STEPS) as i64) << shift;
    (from, from + (1 << shift))
}

/// Figures of transactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Queries that began a transaction.
    pub queries: u64,
    /// Queries sent again.
    pub retransmitted: u64,
    /// Answers to queries, by response code: 0 no error, 1 format error, 2 server failure, 3 no such name, 4 not implemented,
    /// 5 refused (RFC 1035, section 4.1.1).
    pub codes: [u64; 16],
    /// Answers after the first answer to a query.
    pub repeated: u64,
    /// Answers without a query.
    pub unasked: u64,
    /// Queries without an answer.
    pub unanswered: u64,
    /// Times from queries to their answers.
    pub times: Times,
}

impl Figures {
    /// Returns the number of answers with a code of failure.
    pub fn failed(&self) -> u64 {
        self.codes[1..].iter().sum()
    }

    /// Whether there are failures, or queries without an answer.
    pub(super) fn is_in_trouble(&self) -> bool {
        self.unanswered > 0 || self.failed() > 0
    }
}

impl AddAssign<&Figures> for Figures {
    fn add_assign(&mut self, other: &Self) {
        self.queries += other.queries;
        self.retransmitted += other.retransmitted;
        self.repeated += other.repeated;
        self.unasked += other.unasked;
        self.unanswered += other.unanswered;
        for (mine, theirs) in self.codes.iter_mut().zip(other.codes) {
            *mine += theirs;
        }
        let (mine, theirs) = (&mut self.times, &other.times);
        mine.count += theirs.count;
        mine.sum_ns = mine.sum_ns.saturating_add(theirs.sum_ns);
        mine.max_ns = mine.max_ns.max(theirs.max_ns);
        for (mine, theirs) in mine.classes.iter_mut().zip(theirs.classes) {
            *mine = mine.saturating_add(theirs);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_median_is_within_its_class() {
        for ns in (0..400).map(|i| (1.08f64.powi(i) * 8192.0) as i64) {
            let (from, to) = span_of(class_of(ns));
            let last = class_of(i64::MAX);
            assert!(
                class_of(ns) == last || (from..to).contains(&ns),
                "{ns}: {from}..{to}"
            );
        }
        assert_eq!(class_of(-1), 0);
        let mut times = Times::default();
        assert_eq!(times.median_ns(), None);
        for ms in [500, 20, 10] {
            times.add(ms * 1_000_000);
            assert!(times.count > 1 || times.median_ns() == Some(500_000_000));
        }
        let median = times.median_ns().expect("three times");
        assert!((18_600_000..21_400_000).contains(&median), "{median}");
        assert_eq!(
            (times.mean_ns(), times.max_ns),
            (Some(530_000_000 / 3), 500_000_000)
        );
    }
}
