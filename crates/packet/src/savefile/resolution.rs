//! The unit of stored timestamps.

/// Ticks per second of a timestamp, in the one-byte form of pcapng's `if_tsresol`: the low seven
/// bits are a negative exponent, of 2 if the top bit is set, else of 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resolution(pub u8);

/// Nanoseconds of a tick, by exponent.
const UNITS: [u64; 10] = [
    1_000_000_000,
    100_000_000,
    10_000_000,
    1_000_000,
    100_000,
    10_000,
    1000,
    100,
    10,
    1,
];

impl Resolution {
    /// 10^-6 s, the default of pcapng.
    pub const MICROSECOND: Self = Self(6);
    /// 10^-9 s.
    pub const NANOSECOND: Self = Self(9);

    /// Ticks per second; saturates if the number does not fit.
    pub fn per_second(self) -> u64 {
        let exponent = u32::from(self.0 & 0x7f);
        if self.0 & 0x80 == 0 {
            10u64.checked_pow(exponent).unwrap_or(u64::MAX)
        } else {
            1u64.checked_shl(exponent).unwrap_or(u64::MAX)
        }
    }

    /// Nanoseconds of a tick, at most a second's; `None` if that is not a whole number.
    pub(super) fn unit_ns(self) -> Option<u32> {
        u32::try_from(*UNITS.get(usize::from(self.0))?).ok()
    }

    /// `ticks` after the Unix epoch plus `offset_s` seconds, in ns since the epoch. Fractions of a nanosecond are cut off; values
    /// outside an `i64` saturate.
    #[inline]
    pub fn to_ns(self, ticks: u64, offset_s: i64) -> i64 {
        // The values of ordinary files fit in 64 bits.
        let usual = || {
            let ns = i64::try_from(ticks.checked_mul(*UNITS.get(usize::from(self.0))?)?).ok()?;
            offset_s.checked_mul(1_000_000_000)?.checked_add(ns)
        };
        usual().unwrap_or_else(|| self.any_to_ns(ticks, offset_s))
    }

    #[cold]
    fn any_to_ns(self, ticks: u64, offset_s: i64) -> i64 {
        let exponent = u32::from(self.0 & 0x7f);
        let ns: u128 = if self.0 & 0x80 == 0 {
            match exponent {
                0..=9 => u128::from(ticks) * u128::from(10u64.pow(9 - exponent)),
                _ => 10u128
                    .checked_pow(exponent - 9)
                    .map_or(0, |unit| u128::from(ticks) / unit),
            }
        } else {
            (u128::from(ticks) * 1_000_000_000)
                .checked_shr(exponent)
                .unwrap_or(0)
        };
        let total = i128::from(offset_s) * 1_000_000_000 + ns as i128;
        total.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64
    }

    /// The inverse of [`Self::to_ns`] with no offset, for units of 1 ns and coarser; negative times become 0.
    #[inline]
    pub fn from_ns(self, ns: i64) -> u64 {
        let ns = ns.max(0) as u64;
        match self.0 {
            // The two resolutions of nearly all files, without a division.
            9 => ns,
            6 => ns / 1000,
            exponent @ 0..=9 => ns / 10u64.pow(9 - u32::from(exponent)),
            _ => ns,
        }
    }

    /// Whether the unit is finer than a microsecond: such times are printed with nine digits.
    pub fn is_fine(self) -> bool {
        self.per_second() > 1_000_000
    }
}

impl core::fmt::Display for Resolution {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match (self.0 & 0x80 != 0, self.0 & 0x7f) {
            (false, 0) => f.write_str("second"),
            (false, 3) => f.write_str("millisecond"),
            (false, 6) => f.write_str("microsecond"),
            (false, 9) => f.write_str("nanosecond"),
            (false, e) => write!(f, "10^-{e} s"),
            (true, e) => write!(f, "2^-{e} s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Resolution;

    #[test]
    fn ticks_become_nanoseconds() {
        let cases = [
            (6, 1_500_000, 0, 1_500_000_000),
            (9, 1_500_000, 10, 10_001_500_000),
            (0, 3, -1, 2_000_000_000),
            (12, 1_999, 0, 1),
            (0x80 | 10, 512, 0, 500_000_000),
            (0x80 | 32, 1 << 31, 0, 500_000_000),
            (127, u64::MAX, 0, 0),
            (0xff, u64::MAX, 0, 0),
            (0, u64::MAX, 0, i64::MAX),
        ];
        for (unit, ticks, offset, ns) in cases {
            assert_eq!(
                Resolution(unit).to_ns(ticks, offset),
                ns,
                "unit {unit:#x}, {ticks} ticks"
            );
            assert_eq!(
                Resolution(unit).any_to_ns(ticks, offset),
                ns,
                "unit {unit:#x}, {ticks} ticks"
            );
        }
    }
}
