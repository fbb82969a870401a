//! Times of packets that options choose.

use crate::cli::TimeArgs;
use crate::outcome::say;
use anyhow::{anyhow, bail};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::time::Duration;
use weir_messages::moment::{Meaning, Moment};
use weir_pipeline::select::Span;

/// The present and the time zone, by which times of options are understood.
#[derive(Clone)]
pub struct Clock {
    now: Timestamp,
    zone: TimeZone,
}

/// A duration, ns.
pub fn ns(duration: Duration) -> i64 {
    i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)
}

impl Clock {
    /// The present; times are local, or in UTC.
    pub fn new(utc: bool) -> Self {
        Self {
            now: Timestamp::now(),
            zone: if utc {
                TimeZone::UTC
            } else {
                TimeZone::system()
            },
        }
    }

    /// The present, ns since 1970.
    pub fn now_ns(&self) -> i64 {
        i64::try_from(self.now.as_nanosecond()).unwrap_or(i64::MAX)
    }

    /// The time `ns` (ns since 1970) to the second, with its date.
    pub fn text(&self, ns: i64) -> String {
        let moment = Timestamp::from_nanosecond(ns.into()).unwrap_or_default();
        let moment = moment.to_zoned(self.zone.clone());
        moment.strftime("%Y-%m-%d %H:%M:%S").to_string()
    }

    /// Meaning of the value of an option. **Errors**: a time that clocks never showed.
    pub fn meaning(
        &self,
        option: &str,
        moment: Option<&Moment>,
    ) -> anyhow::Result<Option<Meaning>> {
        let meaning = moment
            .map(|moment| moment.ns(self.now, &self.zone))
            .transpose();
        meaning.map_err(|why| anyhow!("{option} {why}"))
    }

    /// Times of `--from` and `--to`, ns since 1970. A line reports each time that clocks showed twice. **Errors**: a time that clocks never
    /// showed; the first is later than the last.
    pub fn range(
        &self,
        first: Option<&Moment>,
        last: Option<&Moment>,
    ) -> anyhow::Result<(Option<i64>, Option<i64>)> {
        let from = self.meaning("--from", first)?.map(|from| from.first());
        let to = self.meaning("--to", last)?.map(|to| to.last());
        for (option, limit) in [("--from", &from), ("--to", &to)] {
            if let Some((_, Some(line))) = limit {
                say(&format!("{option} {line}"));
            }
        }
        let (from_ns, to_ns) = (from.map(|(ns, _)| ns), to.map(|(ns, _)| ns));
        match (from_ns, to_ns, first, last) {
            (Some(least), Some(greatest), Some(first), Some(last)) if least > greatest => {
                bail!(
                    "--from {} is later than --to {}: no packet can lie between them",
                    first.0,
                    last.0
                )
            }
            _ => Ok((from_ns, to_ns)),
        }
    }
}

/// A span of time in words. Both ends are given with their dates; the end has its own if it is another day.
pub fn between(begin: &str, end: &str) -> String {
    let day = |text: &str| text.split_once(' ').map(|(day, _)| day.to_owned());
    match end
        .split_once(' ')
        .filter(|(date, _)| day(begin).as_deref() == Some(date))
    {
        Some((_, clock)) => format!("{begin} - {clock}"),
        None => format!("{begin} - {end}"),
    }
}

/// Time after which a run ends: `--duration`, or the end of the span of a capture.
pub fn duration(asked: Option<Duration>, span: &Span, is_live: bool) -> Option<Duration> {
    let rest = span.to_ns.filter(|_| is_live).map(|to_ns| {
        let rest_ns = to_ns.saturating_sub(Clock::new(true).now_ns());
        Duration::from_nanos(u64::try_from(rest_ns).unwrap_or(0))
    });
    asked.into_iter().chain(rest).min()
}

impl TimeArgs {
    /// Times of the packets to keep, of files or of a capture. **Errors**: contradictory times; the last time of a capture.
    pub fn span(&self, utc: bool, is_live: bool) -> anyhow::Result<Span> {
        if self.last.is_some() && is_live {
            bail!(
                "--last counts back from the last packet of files, and a capture has none yet: --duration ends it after a time"
            );
        }
        let (from_ns, to_ns) = Clock::new(utc).range(self.from.as_ref(), self.to.as_ref())?;
        Ok(Span {
            from_ns,
            to_ns,
            last_ns: self.last.map(|last| ns(last).unsigned_abs()),
        })
    }
}
