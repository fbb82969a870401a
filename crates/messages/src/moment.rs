//! Times as people write them in options.

use crate::numbers::parse_time;
use jiff::Timestamp;
use jiff::Zoned;
use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, Offset, TimeZone};

/// A time from an option, before the present and the time zone are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment(pub String);

/// Meaning of a [`Moment`] in a time zone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// The time, ns since 1970; of a time that clocks showed twice, the first.
    pub first_ns: i64,
    /// The second of a time that clocks showed twice, else the same.
    pub last_ns: i64,
    /// Line about a time that clocks showed twice, to be followed by what of it is taken.
    pub twice: Option<String>,
}

impl Moment {
    /// Returns what the text means. Times without a zone are in `zone`; times without a date are of
    /// today in `zone`.
    ///
    /// Forms: `2026-11-23T05:30:00Z`, `2026-11-23 05:30:00.5`, `2026-11-23 05:30+01:00`,
    /// `2026-11-23`, `05:30`, `1795412174.5` (seconds since 1970), `-5m`, `5m ago`, `now`. A date
    /// alone is where its day begins. **Errors**: another form, a time outside 1677 to 2262, or a
    /// time that the clocks of its zone never showed.
    pub fn ns(&self, now: Timestamp, zone: &TimeZone) -> Result<Meaning, String> {
        let text = self.0.trim();
        if let Some(moment) = relative(text, now).or_else(|| epoch(text)) {
            return exact(moment).ok_or_else(|| wrong_form(text));
        }
        let today = now.to_zoned(zone.clone()).date();
        let dated = if begins_with_a_clock(text) {
            format!("{today} {text}")
        } else {
            text.to_owned()
        };
        if let Some(moment) = with_zone(&dated) {
            return exact(moment).ok_or_else(|| wrong_form(text));
        }
        let (date, time) = local(&dated).ok_or_else(|| wrong_form(text))?;
        match time {
            Some(time) => by_clock(date.to_datetime(time), zone, text),
            None => beginning(date, zone)
                .and_then(exact)
                .ok_or_else(|| wrong_form(text)),
        }
    }
}

impl Meaning {
    /// Returns the first of the time, and a message if clocks showed it twice.
    pub fn first(&self) -> (i64, Option<String>) {
        (
            self.first_ns,
            self.twice
                .as_ref()
                .map(|twice| format!("{twice}: the first is meant")),
        )
    }

    /// Returns the last of the time, and a message if clocks showed it twice.
    pub fn last(&self) -> (i64, Option<String>) {
        (
            self.last_ns,
            self.twice
                .as_ref()
                .map(|twice| format!("{twice}: the second is meant")),
        )
    }
}

fn wrong_form(text: &str) -> String {
    format!(
        "'{text}' is not a time: write 2026-11-23T05:30:00Z, '2026-11-23 05:30', 05:30, 1795412174.5, -5m or '5m ago'"
    )
}

/// A time without doubt. `None` outside 1677 to 2262.
fn exact(moment: Timestamp) -> Option<Meaning> {
    let ns = i64::try_from(moment.as_nanosecond()).ok()?;
    Some(Meaning {
        first_ns: ns,
        last_ns: ns,
        twice: None,
    })
}

fn relative(text: &str, now: Timestamp) -> Option<Timestamp> {
    if text == "now" {
        return Some(now);
    }
    let ago = text
        .strip_prefix('-')
        .or_else(|| text.strip_suffix("ago"))?;
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

/// Whether a text begins as `05:30` does, and so has no date.
fn begins_with_a_clock(text: &str) -> bool {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    (1..=2).contains(&digits) && text.as_bytes().get(digits) == Some(&b':')
}

/// A date and time with its distance from UTC, or with the name of its zone in brackets.
fn with_zone(text: &str) -> Option<Timestamp> {
    text.parse()
        .ok()
        .or_else(|| text.parse::<Zoned>().ok().map(|zoned| zoned.timestamp()))
}

/// Date and time of a text without a zone. The parsers of jiff pass over a zone that they do not need, which would answer for
/// another time: so nothing but digits, colons and a point is let through to them.
fn local(text: &str) -> Option<(Date, Option<Time>)> {
    let (date, time) = text.split_at_checked("2026-11-23".len())?;
    let only = |text: &str, more: &[u8]| {
        text.bytes()
            .all(|byte| byte.is_ascii_digit() || more.contains(&byte))
    };
    let date = date.parse().ok().filter(|_| only(date, b"-"))?;
    if time.is_empty() {
        return Some((date, None));
    }
    let time = time.strip_prefix([' ', 'T', 't'])?.trim_start();
    Some((date, Some(time.parse().ok().filter(|_| only(time, b":."))?)))
}

/// The first moment of a day: in some zones clocks are set forward at midnight.
fn beginning(date: Date, zone: &TimeZone) -> Option<Timestamp> {
    Some(
        date.to_zoned(zone.clone())
            .ok()?
            .start_of_day()
            .ok()?
            .timestamp(),
    )
}

/// Times at which clocks in `zone` showed `time`. **Errors**: they never did, or outside 1677 to 2262.
fn by_clock(time: DateTime, zone: &TimeZone, text: &str) -> Result<Meaning, String> {
    let ns = |offset: Offset| {
        let moment = offset.to_timestamp(time).ok();
        moment
            .and_then(|moment| i64::try_from(moment.as_nanosecond()).ok())
            .ok_or_else(|| wrong_form(text))
    };
    let (first, last) = match zone.to_ambiguous_timestamp(time).offset() {
        AmbiguousOffset::Unambiguous { offset } => (offset, offset),
        AmbiguousOffset::Fold { before, after } => (before, after),
        AmbiguousOffset::Gap { before, after } => {
            return Err(format!(
                "'{text}' never was: clocks were set forward over it, from UTC{before} to UTC{after}; write {time}{before} \
                 or {time}{after}"
            ));
        }
    };
    let twice = (first != last).then(|| {
        format!(
            "'{text}' was twice, since clocks were set back: as {time}{first} and as {time}{last}"
        )
    });
    Ok(Meaning {
        first_ns: ns(first)?,
        last_ns: ns(last)?,
        twice,
    })
}

#[cfg(test)]
mod tests;
