//! Sets of addresses: ranges of both families, in order and apart from each other, and lists of addresses as text.

mod parse;

use core::net::IpAddr;

pub use parse::{AddressError, LineError, range};

/// A set of IPv4 and IPv6 addresses.
///
/// **Layout**: ranges `(first, last)`, both inclusive, in ascending order; ranges that touch are one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Addresses {
    v4: Vec<(u32, u32)>,
    v6: Vec<(u128, u128)>,
}

impl Addresses {
    /// Makes a set of ranges from the first address to the last, both of one family. **Cost**: the ranges are sorted.
    pub fn new(ranges: impl IntoIterator<Item = (IpAddr, IpAddr)>) -> Self {
        let mut set = Self::default();
        for range in ranges {
            match range {
                (IpAddr::V4(first), IpAddr::V4(last)) => {
                    set.v4.push((first.to_bits(), last.to_bits()))
                }
                (IpAddr::V6(first), IpAddr::V6(last)) => {
                    set.v6.push((first.to_bits(), last.to_bits()))
                }
                _ => debug_assert!(false, "the ends of a range are of one family"),
            }
        }
        join(&mut set.v4, |last| last.checked_add(1));
        join(&mut set.v6, |last| last.checked_add(1));
        set
    }

    /// Reads a list: one address, prefix or range a line; `#` begins a comment, and empty lines count for nothing.
    ///
    /// **Cost**: the lines are sorted. **Errors**: the first line that is none of these.
    pub fn parse(text: &str) -> Result<Self, LineError> {
        parse::lines(text).map(Self::new)
    }

    /// All addresses of both families.
    pub fn all() -> Self {
        Self {
            v4: vec![(0, u32::MAX)],
            v6: vec![(0, u128::MAX)],
        }
    }

    /// Adds the addresses of another set.
    pub fn add(&mut self, other: &Self) {
        self.v4.extend_from_slice(&other.v4);
        self.v6.extend_from_slice(&other.v6);
        join(&mut self.v4, |last| last.checked_add(1));
        join(&mut self.v6, |last| last.checked_add(1));
    }

    /// Returns the ranges of IPv4 addresses.
    pub fn v4(&self) -> &[(u32, u32)] {
        &self.v4
    }

    /// Returns the ranges of IPv6 addresses.
    pub fn v6(&self) -> &[(u128, u128)] {
        &self.v6
    }

    /// Whether the address is in the set. **Cost**: a binary search.
    pub fn has(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(address) => has(&self.v4, address.to_bits()),
            IpAddr::V6(address) => has(&self.v6, address.to_bits()),
        }
    }

    /// Whether there is no address.
    pub fn is_empty(&self) -> bool {
        self.v4.is_empty() && self.v6.is_empty()
    }

    /// Whether all addresses of `other` are in this set. **Cost**: a search for each range of `other`.
    pub fn contains(&self, other: &Self) -> bool {
        covers(&self.v4, &other.v4) && covers(&self.v6, &other.v6)
    }
}

/// Whether a value lies in one of the ranges.
fn has<T: Copy + Ord>(ranges: &[(T, T)], value: T) -> bool {
    let behind = ranges.partition_point(|range| range.0 <= value);
    behind > 0 && value <= ranges[behind - 1].1
}

/// Sorts ranges, and joins ranges that overlap or touch.
fn join<T: Copy + Ord>(ranges: &mut Vec<(T, T)>, next: impl Fn(T) -> Option<T>) {
    ranges.sort_unstable();
    let mut kept = 0;
    for i in 0..ranges.len() {
        let (first, last) = ranges[i];
        let touches = kept > 0 && next(ranges[kept - 1].1).is_none_or(|next| first <= next);
        if touches {
            ranges[kept - 1].1 = ranges[kept - 1].1.max(last);
        } else {
            ranges[kept] = (first, last);
            kept += 1;
        }
    }
    ranges.truncate(kept);
}

/// Whether each range of `inner` lies in a range of `outer`.
fn covers<T: Copy + Ord>(outer: &[(T, T)], inner: &[(T, T)]) -> bool {
    inner.iter().all(|&(first, last)| {
        let behind = outer.partition_point(|range| range.0 <= first);
        behind > 0 && last <= outer[behind - 1].1
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(ranges: &[(u8, u8)]) -> Addresses {
        Addresses::new(
            ranges
                .iter()
                .map(|&(a, b)| (IpAddr::from([0, 0, 0, a]), IpAddr::from([0, 0, 0, b]))),
        )
    }

    #[test]
    fn ranges_that_overlap_or_touch_are_one() {
        assert_eq!(
            set(&[(5, 9), (1, 3), (4, 4), (8, 20), (30, 31)]).v4(),
            [(1, 20), (30, 31)]
        );
        let ends = Addresses::new([
            (IpAddr::from([255; 4]), IpAddr::from([255; 4])),
            (IpAddr::from([0; 4]), IpAddr::from([255; 4])),
        ]);
        assert_eq!(ends.v4(), [(0, u32::MAX)]);
        let six = |bits: u128| IpAddr::from(bits.to_be_bytes());
        let ends = Addresses::new([
            (six(u128::MAX), six(u128::MAX)),
            (six(7), six(u128::MAX - 1)),
        ]);
        assert_eq!(ends.v6(), [(7, u128::MAX)]);
    }

    #[test]
    fn a_set_contains_another_if_it_has_each_address() {
        let outer = set(&[(1, 20), (30, 31)]);
        for (first, last) in (0..40u8).flat_map(|first| (first..40).map(move |last| (first, last)))
        {
            let mut members = (first..=last).map(|a| IpAddr::from([0, 0, 0, a]));
            assert_eq!(
                members.all(|address| outer.has(address)),
                outer.contains(&set(&[(first, last)]))
            );
            let naive = (first..=last).all(|a| (1..=20).contains(&a) || (30..=31).contains(&a));
            assert_eq!(
                outer.contains(&set(&[(first, last)])),
                naive,
                "{first}-{last}"
            );
        }
    }
}
