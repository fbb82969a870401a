//! Columns of bits: which packets of a batch have a property.

/// A column of bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bits {
    words: Vec<u64>,
    len: usize,
}

impl Bits {
    /// Returns `len` bits that are all 1.
    pub fn ones(len: usize) -> Self {
        let mut bits = Self::default();
        (0..len)
            .step_by(64)
            .for_each(|at| bits.push(low(len - at), (len - at).min(64)));
        bits
    }

    /// Returns `len` bits that are all 0.
    pub fn zeros(len: usize) -> Self {
        Self {
            words: vec![0; len.div_ceil(64)],
            len,
        }
    }

    /// Returns the number of bits that are 1.
    pub fn count_ones(&self) -> u64 {
        self.words
            .iter()
            .map(|word| u64::from(word.count_ones()))
            .sum()
    }

    /// Returns the number of bits that are 1 before number `end`.
    pub fn count_before(&self, end: usize) -> u64 {
        let (word, bit) = (end / 64, end % 64);
        let whole: u64 = self
            .words
            .iter()
            .take(word)
            .map(|word| u64::from(word.count_ones()))
            .sum();
        let rest = self
            .words
            .get(word)
            .filter(|_| bit > 0)
            .map_or(0, |word| (word & low(bit)).count_ones());
        whole + u64::from(rest)
    }

    /// Returns the number of bits.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no bit.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the bits, 64 to a word: bit i is bit `i % 64`, counted from the lowest, of word
    /// `i / 64`. Bits after the last are 0.
    pub fn words(&self) -> &[u64] {
        &self.words
    }

    /// Appends the lowest `n` bits of `bits`, at most 64; the higher bits must be 0.
    #[inline]
    pub fn push(&mut self, bits: u64, n: usize) {
        debug_assert!(
            n == 64 || bits >> n == 0,
            "bits above the {n} that are appended"
        );
        let at = self.len % 64;
        if at == 0 {
            self.words.push(bits);
        } else if let Some(last) = self.words.last_mut() {
            *last |= bits << at;
            if at + n > 64 {
                self.words.push(bits >> (64 - at));
            }
        }
        self.len += n;
        self.words.truncate(self.len.div_ceil(64));
    }

    /// Appends all bits of `other`.
    pub fn append(&mut self, other: &Self) {
        for (i, &word) in other.words.iter().enumerate() {
            self.push(word, (other.len - i * 64).min(64));
        }
    }

    /// Returns the `n` bits, at most 64, from number `at` on: bit i is number `at + i`. Bits after
    /// the last are 0.
    #[inline]
    pub fn get(&self, at: usize, n: usize) -> u64 {
        let (word, shift) = (at / 64, at % 64);
        let head = self.words.get(word).map_or(0, |word| word >> shift);
        let tail = if shift == 0 {
            0
        } else {
            self.words
                .get(word + 1)
                .map_or(0, |word| word << (64 - shift))
        };
        (head | tail) & low(n.max(1))
    }

    /// Whether bit `number` is 1; not so after the last.
    #[inline]
    pub fn has(&self, number: usize) -> bool {
        self.words
            .get(number / 64)
            .is_some_and(|word| word >> (number % 64) & 1 == 1)
    }

    /// Makes bit `number` 0, and returns whether it was 1. Nothing happens after the last.
    #[inline]
    pub fn clear(&mut self, number: usize) -> bool {
        let Some(word) = self.words.get_mut(number / 64) else {
            return false;
        };
        let was = *word >> (number % 64) & 1 == 1;
        *word &= !(1 << (number % 64));
        was
    }

    /// Makes bit `number` 1. Nothing happens after the last.
    #[inline]
    pub fn set(&mut self, number: usize) {
        if number < self.len {
            self.words[number / 64] |= 1 << (number % 64);
        }
    }

    /// Removes the bits from number `len` on.
    pub fn truncate(&mut self, len: usize) {
        if len < self.len {
            self.len = len;
            self.words.truncate(len.div_ceil(64));
            if let Some(last) = self.words.last_mut() {
                *last &= low(len - (len - 1) / 64 * 64);
            }
        }
    }

    /// Returns the numbers of the bits that are 1, from number `from` on, in ascending order. **Cost**: a step for each of them and
    /// for each 64 bits.
    #[inline]
    pub fn numbers_from(&self, from: usize) -> Numbers<'_> {
        let at = from / 64;
        let word = self
            .words
            .get(at)
            .map_or(0, |word| word & !low_or_none(from % 64));
        Numbers {
            words: &self.words,
            at,
            word,
        }
    }

    /// Returns the numbers of all bits that are 1, as [`Self::numbers_from`].
    #[inline]
    pub fn numbers(&self) -> Numbers<'_> {
        self.numbers_from(0)
    }
}

/// Numbers of the bits that are 1: see [`Bits::numbers_from`].
#[derive(Clone, Debug)]
pub struct Numbers<'a> {
    words: &'a [u64],
    /// Number of the current word.
    at: usize,
    /// Bits of the current word that are still to come.
    word: u64,
}

impl Iterator for Numbers<'_> {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while self.word == 0 {
            self.at += 1;
            self.word = *self.words.get(self.at)?;
        }
        let bit = self.word.trailing_zeros() as usize;
        self.word &= self.word - 1;
        Some(self.at * 64 + bit)
    }
}

/// The lowest `n` bits, at least one; all if there are 64 or more.
#[inline]
fn low(n: usize) -> u64 {
    u64::MAX >> (64 - n.clamp(1, 64))
}

/// The lowest `n` bits, fewer than 64.
#[inline]
fn low_or_none(n: usize) -> u64 {
    (1 << n) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(bits: &[bool], step: usize) -> Bits {
        let mut column = Bits::default();
        for run in bits.chunks(step) {
            column.push(
                run.iter()
                    .rev()
                    .fold(0, |word, &bit| word << 1 | u64::from(bit)),
                run.len(),
            );
        }
        column
    }

    #[test]
    fn bits_come_out_as_they_went_in_wherever_pieces_meet() {
        let expected: Vec<bool> = (0..400u32)
            .map(|i| i.is_power_of_two() || i % 3 == 0)
            .collect();
        for step in [1, 7, 32, 63, 64] {
            for cut in [0, 1, 63, 64, 65, 200, 400] {
                let (head, tail) = expected.split_at(cut);
                let mut both = pack(head, step);
                both.append(&pack(tail, step));
                assert_eq!((both.len(), both.is_empty()), (400, false));
                let single: Vec<bool> = (0..400).map(|i| both.get(i, 1) == 1).collect();
                assert_eq!(single, expected, "step {step}, cut at {cut}");
                for at in 0..380 {
                    let word = both.get(at, 20);
                    assert!(
                        (0..20).all(|i| (word >> i & 1 == 1) == expected[at + i])
                            && word >> 20 == 0
                    );
                }
            }
        }
    }

    /// The oracle is a list of truth values.
    #[test]
    fn counts_numbers_and_changes_are_those_of_a_list() {
        for len in [0, 1, 63, 64, 65, 128, 200] {
            let mut list: Vec<bool> = (0..len).map(|i| i % 5 == 0 || i % 64 == 63).collect();
            let mut bits = pack(&list, 64);
            for number in [0, 3, 62, 63, 64, 127, 199, 500] {
                let was = list.get(number).copied().unwrap_or(false);
                assert_eq!(
                    (bits.has(number), bits.clear(number), bits.has(number)),
                    (was, was, false)
                );
                list.iter_mut()
                    .skip(number)
                    .take(1)
                    .for_each(|bit| *bit = false);
                bits.set(number + 1);
                list.iter_mut()
                    .skip(number + 1)
                    .take(1)
                    .for_each(|bit| *bit = true);
                assert_eq!(bits, pack(&list, 7), "{len} {number}");
            }
            for from in [0, 1, 63, 64, 65, 127, 128, 199, 200, 300] {
                let expected: Vec<usize> = (from..len).filter(|&i| list[i]).collect();
                assert_eq!(
                    bits.numbers_from(from).collect::<Vec<_>>(),
                    expected,
                    "{len} {from}"
                );
                let before = list.iter().take(from).filter(|bit| **bit).count() as u64;
                assert_eq!(bits.count_before(from), before, "{len} {from}");
            }
            assert_eq!(bits.count_ones() as usize, bits.numbers().count());
            assert_eq!(
                (Bits::ones(len), Bits::zeros(len)),
                (pack(&vec![true; len], 64), pack(&vec![false; len], 64))
            );
        }
    }
}
