//! Sets of numbers as ranges.

use std::rc::Rc;

/// Set of numbers: ranges in ascending order with gaps between them, both ends inclusive. A copy shares the ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ranges(Rc<[(u128, u128)]>);

impl Ranges {
    pub fn new(mut ranges: Vec<(u128, u128)>) -> Self {
        ranges.retain(|(first, last)| first <= last);
        ranges.sort_unstable();
        let mut joined: Vec<(u128, u128)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last)
                }
                _ => joined.push((first, last)),
            }
        }
        Self(joined.into())
    }

    pub fn of(number: u128) -> Self {
        Self::new(vec![(number, number)])
    }

    /// The numbers of a byte for which `is_in` holds.
    pub fn of_bytes(is_in: impl Fn(u8) -> bool) -> Self {
        Self::new(
            (0..=u8::MAX)
                .filter(|byte| is_in(*byte))
                .map(|byte| (byte.into(), byte.into()))
                .collect(),
        )
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = (u128, u128)> {
        self.0.iter().copied()
    }

    pub fn contains(&self, number: u128) -> bool {
        let place = self.0.partition_point(|(first, _)| *first <= number);
        place > 0 && number <= self.0[place - 1].1
    }

    /// Whether all numbers are among `others`.
    pub fn is_within(&self, others: &[u8]) -> bool {
        let numbers = others
            .iter()
            .map(|number| (u128::from(*number), u128::from(*number)));
        self.and(&Self::new(numbers.collect())) == *self
    }

    pub fn and(&self, other: &Self) -> Self {
        let (mut both, mut a, mut b) = (Vec::new(), 0, 0);
        while let (Some(one), Some(another)) = (self.0.get(a), other.0.get(b)) {
            let range = (one.0.max(another.0), one.1.min(another.1));
            if range.0 <= range.1 {
                both.push(range);
            }
            *(if one.1 < another.1 { &mut a } else { &mut b }) += 1;
        }
        Self(both.into())
    }

    /// The numbers up to `most` that are not in the set.
    pub fn others(&self, most: u128) -> Self {
        let (mut gaps, mut next) = (Vec::new(), Some(0));
        for (first, last) in self.iter().take_while(|(first, _)| *first <= most) {
            if let Some(begin) = next.filter(|begin| *begin < first) {
                gaps.push((begin, first - 1));
            }
            next = last.checked_add(1);
        }
        gaps.extend(
            next.filter(|begin| *begin <= most)
                .map(|begin| (begin, most)),
        );
        Self(gaps.into())
    }

    /// Bytes of the set as disjoint pairs: the bits of a mask that are set, and the mask.
    pub fn masks(&self) -> Vec<(u8, u8)> {
        let mut pairs = Vec::new();
        let bytes = std::array::from_fn(|byte| self.contains(byte as u128));
        split(bytes, 7, (0, 0), &mut pairs);
        pairs
    }
}

/// Splits by the value of a bit, from the highest on; a bit on which nothing depends is in no mask.
fn split(bytes: [bool; 256], bit: u32, (set, mask): (u8, u8), pairs: &mut Vec<(u8, u8)>) {
    if bytes.iter().all(|is_in| !is_in) {
        return;
    }
    let with = |value: u8| -> [bool; 256] {
        std::array::from_fn(|byte| bytes[usize::from(byte as u8 & !(1 << bit) | value << bit)])
    };
    let (zero, one) = (with(0), with(1));
    let depends = zero != one;
    for (value, half) in [(0u8, zero), (1, one)]
        .into_iter()
        .take(if depends { 2 } else { 1 })
    {
        let pair = if depends {
            (set | value << bit, mask | 1 << bit)
        } else {
            (set, mask)
        };
        match bit {
            0 if half[0] => pairs.push(pair),
            0 => {}
            _ => split(half, bit - 1, pair, pairs),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Random;

    /// The twin: one flag for each number.
    fn flags(ranges: &Ranges) -> Vec<bool> {
        (0..256)
            .map(|number| {
                ranges
                    .iter()
                    .any(|(first, last)| (first..=last).contains(&number))
            })
            .collect()
    }

    #[test]
    fn sets_are_those_of_a_flag_for_each_number() {
        let mut random = Random(4);
        let mut any = || {
            let ranges = (0..random.below(5))
                .map(|_| (random.below(256) as u128, random.below(256) as u128));
            Ranges::new(ranges.collect())
        };
        for _ in 0..3000 {
            let (a, b) = (any(), any());
            let both: Vec<bool> = flags(&a)
                .iter()
                .zip(flags(&b))
                .map(|(a, b)| *a && b)
                .collect();
            assert_eq!(flags(&a.and(&b)), both);
            assert_eq!(
                flags(&a.others(255)),
                flags(&a).iter().map(|is_in| !is_in).collect::<Vec<_>>()
            );
            assert_eq!(
                (0..256)
                    .map(|number| a.contains(number))
                    .collect::<Vec<_>>(),
                flags(&a)
            );
            let masks = a.masks();
            for byte in 0..=255u8 {
                let found = masks
                    .iter()
                    .filter(|(set, mask)| byte & mask == *set)
                    .count();
                assert_eq!(
                    found,
                    usize::from(a.contains(byte.into())),
                    "{byte} in {masks:?}"
                );
            }
        }
        let all = Ranges::new(vec![(0, u128::MAX)]);
        assert!(
            all.others(u128::MAX).is_empty() && Ranges::new(Vec::new()).others(u128::MAX) == all
        );
    }

    #[test]
    fn a_comparison_under_a_mask_is_one_pair() {
        assert_eq!(
            Ranges::of_bytes(|byte| byte & 0x12 == 2).masks(),
            [(2, 0x12)]
        );
        assert_eq!(
            Ranges::of_bytes(|byte| byte & 3 != 0).masks(),
            [(1, 3), (2, 2)]
        );
        assert_eq!(Ranges::of_bytes(|_| true).masks(), [(0, 0)]);
    }
}
