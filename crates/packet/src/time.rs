//! Timestamps: nanoseconds since the Unix epoch, and the ways to write them.
//!
//! The caller gives the reader's distance from UTC, because this crate has no time zone database and reads no clock. Civil dates
//! are computed with integer arithmetic only, so every `i64` has a text.

use core::fmt::{self, Write};

/// A moment, in nanoseconds since 1970-01-01 00:00:00 UTC, leap seconds not counted. Negative before that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Stamp(pub i64);

/// Number of digits written of a fraction of a second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Digits {
    /// Six digits. Finer digits are cut off, not rounded, as tcpdump does.
    #[default]
    Micro,
    /// Nine digits: for sources whose resolution is finer than a microsecond.
    Nano,
}

/// Format of a written timestamp, named by tcpdump's flag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Shape {
    /// `22:13:20.000001`, tcpdump's default.
    #[default]
    Clock,
    /// No text at all (`-t`).
    None,
    /// `1700000000.000001` (`-tt`).
    Epoch,
    /// `2023-11-14 22:13:20.000001` (`-tttt`).
    DateClock,
    /// `2023-11-14T22:13:20.000001Z` or `...+01:00` (RFC 3339).
    Rfc3339,
}

const NANOS_PER_S: i64 = 1_000_000_000;
const S_PER_DAY: i64 = 86_400;

/// A date of the proleptic Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// Astronomical year: 0 is 1 BC.
    pub year: i64,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
}

impl Date {
    /// The date `days` days after 1970-01-01.
    ///
    /// Years are counted from 1 March, so that the leap day is the last day of its year and months need no table. The 400-year
    /// cycle has 146 097 days, and month `m` after March starts at day `(153 m + 2) / 5`.
    /// **Source**: the method of Howard Hinnant, "chrono-compatible low-level date algorithms".
    pub const fn from_days(days: i64) -> Self {
        let z = days + 719_468; // 0000-03-01
        let era = z.div_euclid(146_097);
        let doe = z.rem_euclid(146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = (doy - (153 * mp + 2) / 5 + 1) as u8;
        let month = if mp < 10 { mp + 3 } else { mp - 9 } as u8;
        let year = yoe + era * 400 + (month <= 2) as i64;
        Self { year, month, day }
    }

    /// Days since 1970-01-01, the inverse of [`Date::from_days`].
    pub const fn to_days(self) -> i64 {
        let y = self.year - (self.month <= 2) as i64;
        let era = y.div_euclid(400);
        let yoe = y.rem_euclid(400);
        let mp = (self.month as i64 + 9) % 12;
        let doy = (153 * mp + 2) / 5 + self.day as i64 - 1;
        era * 146_097 + yoe * 365 + yoe / 4 - yoe / 100 + doy - 719_468
    }
}

impl Stamp {
    /// Whole seconds, rounded towards the past, and the nanoseconds above them (0 to 999 999 999).
    pub const fn split(self) -> (i64, u32) {
        (
            self.0.div_euclid(NANOS_PER_S),
            self.0.rem_euclid(NANOS_PER_S) as u32,
        )
    }

    /// The moment `seconds` and `nanos` after the epoch; saturates at the ends of `i64`.
    pub const fn from_parts(seconds: i64, nanos: u32) -> Self {
        Self(
            seconds
                .saturating_mul(NANOS_PER_S)
                .saturating_add(nanos as i64),
        )
    }

    /// Whether the time is one of the ends of the range. Times outside 1677 to 2262 are read as one of these.
    #[inline]
    pub const fn is_clamped(self) -> bool {
        matches!(self.0, i64::MIN | i64::MAX)
    }

    /// Appends the timestamp, without a space after it.
    ///
    /// `east_s` is the reader's distance from UTC in seconds, east positive. `Epoch` and `None` ignore it.
    /// **Cost**: no allocation beyond the growth of `out`.
    pub fn write(self, out: &mut String, shape: Shape, digits: Digits, east_s: i32) {
        let (seconds, nanos) = self.split();
        let local = seconds + i64::from(east_s);
        let done = match shape {
            Shape::None => Ok(()),
            Shape::Epoch => self.write_epoch(out, digits),
            Shape::Clock => write_clock(out, local, nanos, digits),
            Shape::DateClock => {
                write_date(out, local, ' ').and_then(|()| write_clock(out, local, nanos, digits))
            }
            Shape::Rfc3339 => write_date(out, local, 'T')
                .and_then(|()| write_clock(out, local, nanos, digits))
                .and_then(|()| write_offset(out, east_s)),
        };
        debug_assert!(done.is_ok(), "writing to a String cannot fail");
    }

    /// Appends seconds since the epoch as a decimal number: half a second before the epoch is `-0.500000`.
    fn write_epoch(self, out: &mut String, digits: Digits) -> fmt::Result {
        let all = self.0.unsigned_abs();
        if self.0 < 0 {
            out.push('-');
        }
        write!(out, "{}", all / NANOS_PER_S as u64)?;
        write_fraction(out, (all % NANOS_PER_S as u64) as u32, digits)
    }
}

/// Appends a span of time as `00:00:01.000250`, with `-` before a negative one (tcpdump's `-ttt` and `-ttttt`).
pub fn write_span(out: &mut String, nanos: i64, digits: Digits) {
    let all = nanos.unsigned_abs();
    let (seconds, fraction) = (all / NANOS_PER_S as u64, (all % NANOS_PER_S as u64) as u32);
    if nanos < 0 {
        out.push('-');
    }
    let done = write!(
        out,
        "{:02}:{:02}:{:02}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60
    )
    .and_then(|()| write_fraction(out, fraction, digits));
    debug_assert!(done.is_ok(), "writing to a String cannot fail");
}

fn write_clock(out: &mut String, local: i64, nanos: u32, digits: Digits) -> fmt::Result {
    let second = local.rem_euclid(S_PER_DAY) as u32;
    two(out, second / 3600);
    out.push(':');
    two(out, second / 60 % 60);
    out.push(':');
    two(out, second % 60);
    write_fraction(out, nanos, digits)
}

fn write_fraction(out: &mut String, nanos: u32, digits: Digits) -> fmt::Result {
    match digits {
        Digits::Micro => write!(out, ".{:06}", nanos / 1000),
        Digits::Nano => write!(out, ".{nanos:09}"),
    }
}

/// Appends a number below 100 as two digits.
fn two(out: &mut String, value: u32) {
    out.push(char::from(b'0' + (value / 10 % 10) as u8));
    out.push(char::from(b'0' + (value % 10) as u8));
}

fn write_date(out: &mut String, local: i64, then: char) -> fmt::Result {
    let Date { year, month, day } = Date::from_days(local.div_euclid(S_PER_DAY));
    write!(out, "{year:04}-{month:02}-{day:02}{then}")
}

/// Appends the distance from UTC, `Z` or `+hh:mm`. RFC 3339 has no seconds in an offset, so a stray half minute is cut off.
fn write_offset(out: &mut String, east_s: i32) -> fmt::Result {
    if east_s == 0 {
        out.push('Z');
        return Ok(());
    }
    let minutes = east_s.unsigned_abs() / 60;
    let sign = if east_s < 0 { '-' } else { '+' };
    write!(out, "{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(stamp: i64, shape: Shape, digits: Digits, east_s: i32) -> String {
        let mut out = String::new();
        Stamp(stamp).write(&mut out, shape, digits, east_s);
        out
    }

    const NOV: i64 = 1_700_000_000 * NANOS_PER_S + 1_234;

    #[test]
    fn every_shape_of_a_known_moment() {
        assert_eq!(text(NOV, Shape::Clock, Digits::Micro, 0), "22:13:20.000001");
        assert_eq!(
            text(NOV, Shape::Clock, Digits::Nano, 0),
            "22:13:20.000001234"
        );
        assert_eq!(
            text(NOV, Shape::Epoch, Digits::Micro, 7200),
            "1700000000.000001"
        );
        assert_eq!(text(NOV, Shape::None, Digits::Micro, 0), "");
        assert_eq!(
            text(NOV, Shape::DateClock, Digits::Micro, 0),
            "2023-11-14 22:13:20.000001"
        );
        assert_eq!(
            text(NOV, Shape::DateClock, Digits::Micro, 7200),
            "2023-11-15 00:13:20.000001"
        );
        assert_eq!(
            text(NOV, Shape::Rfc3339, Digits::Micro, 0),
            "2023-11-14T22:13:20.000001Z"
        );
        assert_eq!(
            text(NOV, Shape::Rfc3339, Digits::Nano, -12_600),
            "2023-11-14T18:43:20.000001234-03:30"
        );
    }

    #[test]
    fn times_before_the_epoch_count_backwards() {
        assert_eq!(
            text(-1, Shape::DateClock, Digits::Nano, 0),
            "1969-12-31 23:59:59.999999999"
        );
        assert_eq!(
            text(-500_000_000, Shape::Epoch, Digits::Micro, 0),
            "-0.500000"
        );
        assert_eq!(
            text(0, Shape::DateClock, Digits::Micro, -1),
            "1969-12-31 23:59:59.000000"
        );
        assert_eq!(
            text(i64::MIN, Shape::DateClock, Digits::Nano, 0),
            "1677-09-21 00:12:43.145224192"
        );
        assert_eq!(
            text(i64::MAX, Shape::Rfc3339, Digits::Nano, 0),
            "2262-04-11T23:47:16.854775807Z"
        );
    }

    #[test]
    fn known_days() {
        for (days, year, month, day) in [
            (0, 1970, 1, 1),
            (-1, 1969, 12, 31),
            (11_016, 2000, 2, 29),
            (11_017, 2000, 3, 1),
            (19_782, 2024, 2, 29),
            (47_540, 2100, 2, 28),
            (47_541, 2100, 3, 1),
            (-25_508, 1900, 3, 1),
            (-719_528, 0, 1, 1),
        ] {
            let date = Date { year, month, day };
            assert_eq!(Date::from_days(days), date);
            assert_eq!(date.to_days(), days);
        }
    }

    /// The naive twin: walks the calendar a day at a time by the plain leap year rule.
    #[test]
    fn four_centuries_day_by_day() {
        let leap = |y: i64| (y % 4 == 0 && y % 100 != 0) || y % 400 == 0;
        let (mut year, mut month, mut day) = (1799, 12, 31);
        let first = Date { year, month, day }.to_days();
        for days in first..first + 400 * 366 {
            assert_eq!(Date::from_days(days), Date { year, month, day });
            let last = match month {
                2 => 28 + u8::from(leap(year)),
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            (year, month, day) = match (month, day) {
                (12, 31) => (year + 1, 1, 1),
                (m, d) if d == last => (year, m + 1, 1),
                (m, d) => (year, m, d + 1),
            };
        }
    }

    #[test]
    fn spans() {
        let mut out = String::new();
        write_span(&mut out, 3_661_000_250_000, Digits::Micro);
        out.push(' ');
        write_span(&mut out, -1, Digits::Nano);
        assert_eq!(out, "01:01:01.000250 -00:00:00.000000001");
    }
}
