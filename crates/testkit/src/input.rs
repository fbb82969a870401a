//! Choices of a test, drawn from bytes that a fuzzer or a seed gives.

/// Bytes that are read one by one; zeros after their end.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(pub &'a [u8]);

impl Input<'_> {
    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else {
            return 0;
        };
        self.0 = rest;
        first
    }

    /// The next `bytes` bytes as a number, the lowest byte first.
    pub fn number(&mut self, bytes: usize) -> usize {
        (0..bytes).fold(0, |number, at| {
            number | usize::from(self.byte()) << (8 * at)
        })
    }

    /// The next byte, reduced to below `bound`, which is 1 to 256.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::from(self.byte()) % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_come_in_their_order_and_then_zeros() {
        let mut input = Input(&[7, 1, 2, 250, 9]);
        assert_eq!(
            (input.byte(), input.number(2), input.below(100)),
            (7, 0x0201, 50)
        );
        assert_eq!(
            (input.number(3), input.byte(), input.0.is_empty()),
            (9, 0, true)
        );
    }
}
