//! Moments of time as options give them.

use crate::numbers::parse_time;
use jiff::Timestamp;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::TimeZone;

/// A moment from an option, before the present and the time zone are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment(pub String);

impl Moment {
    /// Returns the moment, ns since 1970. Moments without a zone are those of `zone`, and those without a date of today.
    ///
    /// Forms: `2026-11-23T05:30:00Z`, `2026-11-23 05:30:00.5`, `2026-11-23`, `05:30`, `1795412174.5` (seconds since 1970), `-5m`,
    /// `5m ago`, `now`. **Errors**: another form.
    pub fn ns(&self, now: Timestamp, zone: &TimeZone) -> Result<i64, String> {
        let text = self.0.trim();
        let found = relative(text, now).or_else(|| epoch(text)).or_else(|| absolute(text, now, zone));
        let ns = found.and_then(|moment| i64::try_from(moment.as_nanosecond()).ok());
        ns.ok_or_else(|| {
            format!(
                "'{text}' is no time: write 2026-11-23T05:30:00Z, '2026-11-23 05:30', 05:30, 1795412174.5, -5m or '5m ago'"
            )
        })
    }
}

fn relative(text: &str, now: Timestamp) -> Option<Timestamp> {
    if text == "now" {
        return Some(now);
    }
    let ago = text.strip_prefix('-').or_else(|| text.strip_suffix("ago"))?;
    now.checked_sub(parse_time(ago.trim()).ok()?).ok()
}

/// Seconds since 1970, with up to nine decimals, exactly.
fn epoch(text: &str) -> Option<Timestamp> {
    let (seconds, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(seconds) || !is_number(decimals) || decimals.len() > 9 {
        return None;
    }
    let ns = format!("{decimals:0<9}").parse().ok()?;
    Timestamp::new(seconds.parse().ok()?, ns).ok()
}

fn absolute(text: &str, now: Timestamp, zone: &TimeZone) -> Option<Timestamp> {
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Some(moment);
    }
    let civil = if let Ok(time) = text.parse::<Time>() {
        now.to_zoned(zone.clone()).date().to_datetime(time)
    } else if text.len() == "2026-11-23".len() {
        text.parse::<Date>().ok()?.to_datetime(Time::midnight())
    } else {
        text.parse::<DateTime>().ok()?
    };
    Some(civil.to_zoned(zone.clone()).ok()?.timestamp())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected numbers are those of `date -d TEXT +%s`, with TZ=Europe/Berlin where there is no zone.
    #[test]
    fn moments_read_as_people_write_them() {
        let now: Timestamp = "2026-11-23T05:36:14.123456789Z".parse().unwrap();
        let zone = TimeZone::get("Europe/Berlin").unwrap_or(TimeZone::fixed(jiff::tz::offset(1)));
        let ns = |text: &str| Moment(text.to_owned()).ns(now, &zone);
        for (text, seconds) in [
            ("2026-11-23T05:30:00Z", 1_795_411_800),
            ("2026-11-23T05:30:00+01:00", 1_795_408_200),
            ("2026-11-23 05:30:00", 1_795_408_200),
            ("2026-11-23T05:30", 1_795_408_200),
            ("2026-11-23", 1_795_388_400),
            ("05:30", 1_795_408_200),
            ("05:30:07", 1_795_408_207),
            ("1795412174", 1_795_412_174),
            ("0", 0),
        ] {
            assert_eq!(ns(text), Ok(seconds * 1_000_000_000), "{text}");
        }
        assert_eq!(ns("1795412174.000000001"), Ok(1_795_412_174_000_000_001));
        assert_eq!(ns("1795412174.5"), Ok(1_795_412_174_500_000_000));
        assert_eq!(ns("2026-11-23T05:30:00.25Z"), Ok(1_795_411_800_250_000_000));
        let present = 1_795_412_174_123_456_789;
        for (text, ago) in [("now", 0), ("-5m", 300), ("5m ago", 300), (" 90 ago", 90), ("-0", 0), ("2h ago", 7200)] {
            assert_eq!(ns(text), Ok(present - ago * 1_000_000_000), "{text}");
        }
        for text in ["", "-", "ago", "yesterday", "25:00", "2026-13-01", "2026-11-23T", "1.", ".5", "+5m", "9999-01-01"]
        {
            assert!(ns(text).is_err(), "{text}");
        }
    }
}
