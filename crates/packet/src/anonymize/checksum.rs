//! Internet checksums that follow changes.
//!
//! **Source**: RFC 1071; RFC 1624, equation 3. The checksum is changed by the difference of the bytes before and after, so that a right one stays right and a
//! wrong one stays wrong by as much. Bytes that are not captured need not be known.

/// Sum of bytes in one's complement, folded. An odd number of bytes counts with a zero after it.
pub fn sum(bytes: &[u8]) -> u16 {
    let (pairs, rest) = bytes.as_chunks::<2>();
    let words = pairs
        .iter()
        .map(|pair| u64::from(u16::from_be_bytes(*pair)));
    let last = rest.first().map_or(0, |last| u64::from(*last) << 8);
    fold(words.sum::<u64>() + last)
}

fn fold(mut sum: u64) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

/// Sums of the same bytes before and after changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Change {
    /// Sum before.
    pub before: u16,
    /// Sum after.
    pub after: u16,
}

impl Change {
    /// The change of bytes to others.
    pub fn of(before: &[u8], after: &[u8]) -> Self {
        Self {
            before: sum(before),
            after: sum(after),
        }
    }

    /// Both changes.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        let both = |a: u16, b: u16| fold(u64::from(a) + u64::from(b));
        Self {
            before: both(self.before, other.before),
            after: both(self.after, other.after),
        }
    }

    /// Returns the checksum after the change.
    pub fn applied(self, checksum: u16) -> u16 {
        !fold(u64::from(!checksum) + u64::from(!self.before) + u64::from(self.after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Random;

    /// A checksum follows changes as if it was computed again, with its error.
    #[test]
    fn changed_checksums_are_those_of_the_bytes() {
        let mut random = Random(3);
        for _ in 0..2000 {
            let len = 20 + random.below(40);
            let mut bytes = random.bytes(len);
            let checksum = !sum(&bytes);
            let before = bytes.clone();
            for _ in 0..random.below(6) {
                let at = random.below(bytes.len());
                bytes[at] = random.next() as u8;
            }
            let change = Change::of(&before, &bytes);
            assert_eq!(change.applied(checksum), !sum(&bytes));
            let wrong = checksum.wrapping_add(1 + random.below(0xff00) as u16);
            let error =
                |checksum: u16, sum: u16| (u32::from(!sum) + 0xffff - u32::from(checksum)) % 0xffff;
            assert_eq!(
                error(change.applied(wrong), sum(&bytes)),
                error(wrong, sum(&before))
            );
        }
    }
}
