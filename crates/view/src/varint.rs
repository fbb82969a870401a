//! Numbers in 7-bit groups, the lowest group first (LEB128), so that small numbers take one byte.

/// Most bytes of a number.
pub(crate) const MOST: usize = 10;

/// Appends a number.
pub(crate) fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Reader of bytes that [`put`] and plain copies wrote.
#[derive(Debug)]
pub(crate) struct Bytes<'a> {
    /// Bytes that were not read yet.
    pub rest: &'a [u8],
    /// Whether the bytes are not what this crate writes: they end too early, or a value is none.
    pub is_wrong: bool,
}

impl<'a> Bytes<'a> {
    /// Creates a reader.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self {
            rest: bytes,
            is_wrong: false,
        }
    }

    /// Takes one byte; 0 after the end.
    pub fn byte(&mut self) -> u8 {
        let [byte] = self.array();
        byte
    }

    /// Takes a number.
    pub fn number(&mut self) -> u64 {
        let mut number = 0;
        for group in 0..MOST as u32 {
            let byte = self.byte();
            number |= u64::from(byte & 0x7f) << (7 * group);
            if byte < 0x80 {
                break;
            }
        }
        number
    }

    /// Takes `N` bytes.
    pub fn array<const N: usize>(&mut self) -> [u8; N] {
        match self.rest.split_first_chunk() {
            Some((bytes, rest)) => {
                self.rest = rest;
                *bytes
            }
            None => {
                self.is_wrong = true;
                [0; N]
            }
        }
    }

    /// Takes `count` bytes; none if there are fewer.
    pub fn slice(&mut self, count: u64) -> &'a [u8] {
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        match self.rest.split_at_checked(count) {
            Some((bytes, rest)) => {
                self.rest = rest;
                bytes
            }
            None => {
                self.is_wrong = true;
                &[]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_return_as_they_were() {
        let mut numbers: Vec<u64> = (0..64).flat_map(|bit| [1 << bit, (1 << bit) - 1]).collect();
        numbers.push(u64::MAX);
        let mut out = Vec::new();
        numbers.iter().for_each(|&number| put(&mut out, number));
        let mut bytes = Bytes::new(&out);
        assert!(numbers.iter().all(|&number| bytes.number() == number));
        assert!(bytes.rest.is_empty() && !bytes.is_wrong);
        assert_eq!((bytes.number(), bytes.is_wrong), (0, true));
    }
}
