//! From the value of a field to its row.
//!
//! Values for which the conditions of the same rules hold are a class, and share a row. **Source**:
//! the equivalence classes of Gupta and McKeown, "Packet classification on multiple fields",
//! SIGCOMM 1999; the search in short sections of ranges is from Zec, Rizzo and Mikuc, "DXR: towards
//! a billion routing lookups per second in software", ACM CCR 2012.

use crate::Addresses;
use crate::address::Address;
use crate::fields::{ABSENT, NO_PORT};
use crate::rows::{Rows, RuleSet};
use std::collections::HashMap;
use std::sync::Arc;
use weir_memory::{in_huge_pages, prefetch};

/// Most bits of an address that choose its section: a table of 4 MiB.
const MOST_SECTION_BITS: u32 = 20;

/// Ranges that begin in a section, up to which all of them are compared.
const FEW: usize = 4;

/// Classes of the addresses of one family.
///
/// **Layout**: range `i` begins at `ranges[i].0`, ends before `ranges[i + 1].0`, and has the row
/// `ranges[i].1`. `root[h]` is the number of the range in which the first address with the high
/// bits `h` lies; their number grows with the number of ranges.
#[derive(Clone, Debug)]
pub(crate) struct Ranges<A> {
    bits: u32,
    root: Vec<u32>,
    ranges: Vec<(A, u32)>,
}

impl<A: Address> Ranges<A> {
    /// Makes the classes for the conditions of the rules on one address; `None` is a condition that always holds.
    ///
    /// **Cost**: the ranges of each set are sorted once, however many rules name the set.
    pub(crate) fn new(conditions: &[Option<Arc<Addresses>>], rows: &mut Rows) -> Self {
        let mut set = RuleSet::new(conditions.len());
        // The rules of each set. Sets that the parser shares have one address in memory.
        let mut owners: Vec<(&Addresses, Vec<usize>)> = Vec::new();
        let mut by_place: HashMap<*const Addresses, usize> = HashMap::new();
        for (rule, condition) in conditions.iter().enumerate() {
            let Some(addresses) = condition else {
                set.toggle(rule);
                continue;
            };
            let owner = *by_place
                .entry(Arc::as_ptr(addresses))
                .or_insert(owners.len());
            if owner == owners.len() {
                owners.push((addresses, Vec::new()));
            }
            owners[owner].1.push(rule);
        }
        let mut events: Vec<(A, u32)> = Vec::new();
        for (owner, (addresses, _)) in owners.iter().enumerate() {
            for &(first, last) in A::ranges_of(addresses) {
                events.push((first, owner as u32));
                // A range up to the highest address has no end.
                events.extend(last.next().map(|end| (end, owner as u32)));
            }
        }
        events.sort_unstable();
        let mut ranges = vec![(A::ZERO, rows.row_of(&set))];
        for at in events.chunk_by(|a, b| a.0 == b.0) {
            for &(_, owner) in at {
                owners[owner as usize]
                    .1
                    .iter()
                    .for_each(|&rule| set.toggle(rule));
            }
            let row = rows.row_of(&set);
            let start = at[0].0;
            let is_first = start == A::ZERO;
            if is_first {
                ranges[0].1 = row;
            } else if ranges.last().is_some_and(|last| last.1 != row) {
                ranges.push((start, row));
            }
        }
        // A table that is no larger than what it leads to: in a larger one each look is a cache miss.
        let bits = (ranges.len().ilog2() + 2).clamp(8, MOST_SECTION_BITS);
        let mut root = Vec::with_capacity((1 << bits) + 1);
        let mut range = 0;
        for high in 0..1usize << bits {
            // The last range that begins at or before the first address of this section.
            while range + 1 < ranges.len() && ranges[range + 1].0 <= A::first_of(high, bits) {
                range += 1;
            }
            root.push(range as u32);
        }
        root.push(ranges.len() as u32 - 1);
        Self {
            bits,
            root: in_huge_pages(&root),
            ranges: in_huge_pages(&ranges),
        }
    }

    /// Returns the row of an address. **Cost**: a search among the ranges that begin in its section.
    #[inline]
    pub(crate) fn row(&self, address: A) -> u32 {
        let high = address.section(self.bits);
        let (first, last) = (self.root[high] as usize, self.root[high + 1] as usize);
        let within = if last - first <= FEW {
            // Without a branch for each range: which way it goes is as random as the address.
            (1..=FEW)
                .map(|i| {
                    usize::from(
                        i <= last - first && self.ranges[(first + i).min(last)].0 <= address,
                    )
                })
                .sum()
        } else {
            self.ranges[first + 1..=last].partition_point(|range| range.0 <= address)
        };
        self.ranges[first + within].1
    }

    /// Starts to fetch what [`Self::prefetch_ranges`] needs.
    #[inline]
    pub(crate) fn prefetch_section(&self, address: A) {
        prefetch(&self.root, address.section(self.bits));
    }

    /// Starts to fetch what [`Self::row`] needs. **Cost**: a look into the section.
    #[inline]
    pub(crate) fn prefetch_ranges(&self, address: A) {
        let high = address.section(self.bits);
        prefetch(
            &self.ranges,
            (self.root[high] as usize + self.root[high + 1] as usize) / 2,
        );
    }

    /// Returns the bytes of the tables.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.root[..]) + size_of_val(&self.ranges[..])
    }
}

/// Rows of a field of few values: a table, whose last row stands for all values after it.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    rows: Vec<u32>,
}

impl Values {
    /// Makes the table of the values up to [`NO_PORT`] (ports) or [`ABSENT`] (protocols). `condition` gives the ranges of values for which
    /// the condition of a rule holds; `None` if it always holds. `absent` says whether it holds for an absent value.
    pub(crate) fn new<C: AsRef<[(u16, u16)]>>(
        conditions: &[Option<C>],
        absent: impl Fn(usize) -> bool,
        rows: &mut Rows,
    ) -> Self {
        let mut set = RuleSet::new(conditions.len());
        let mut events: Vec<(u32, usize)> = Vec::new();
        for (rule, condition) in conditions.iter().enumerate() {
            let Some(ranges) = condition else {
                set.toggle(rule);
                continue;
            };
            let mut ranges: Vec<(u16, u16)> = ranges.as_ref().to_vec();
            ranges.sort_unstable();
            // Ranges that overlap would toggle a rule twice.
            let mut end = 0u32;
            for (first, last) in ranges {
                let (first, behind) = (u32::from(first).max(end), u32::from(last) + 1);
                if first < behind {
                    events.extend([(first, rule), (behind, rule)]);
                    end = behind;
                }
            }
            if absent(rule) {
                events.extend([(ABSENT, rule), (NO_PORT, rule)]);
            }
        }
        events.sort_unstable();
        let (mut table, mut row) = (Vec::with_capacity(NO_PORT as usize + 1), rows.row_of(&set));
        for at in events.chunk_by(|a, b| a.0 == b.0) {
            table.resize(at[0].0 as usize, row);
            at.iter().for_each(|&(_, rule)| set.toggle(rule));
            row = rows.row_of(&set);
        }
        table.push(row);
        Self { rows: table }
    }

    /// Returns the row of a value.
    #[inline]
    pub(crate) fn row(&self, value: u32) -> u32 {
        self.rows[(value as usize).min(self.rows.len() - 1)]
    }

    /// Returns the bytes of the table.
    pub(crate) fn bytes(&self) -> usize {
        size_of_val(&self.rows[..])
    }
}
