//! Times of packets, in files and captures.

use super::*;
use weir_messages::moment::Moment;

/// Times of the packets to keep.
#[derive(Args, Clone, Debug, Default)]
pub struct TimeArgs {
    /// Leave out packets before this time.
    ///
    /// T is a time with date and zone (2026-11-23T05:30:00Z), a local one ('2026-11-23 05:30', or
    /// 05:30 for today), seconds since 1970, or a time before now (-5m): as weir query takes it.
    #[arg(hide_short_help = true, help_heading = TIME, long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub from: Option<Moment>,
    /// Leave out packets after this time
    #[arg(hide_short_help = true, help_heading = TIME, long, value_name = "T", value_parser = moment, allow_hyphen_values = true)]
    pub to: Option<Moment>,
    /// Keep this much time before the last packet: 500ms, 10s.
    ///
    /// The last packet of all files counts. They are read twice, so that a pipe is refused.
    #[arg(hide_short_help = true, help_heading = TIME, long, value_name = "TIME", value_parser = last, allow_hyphen_values = true, conflicts_with_all = ["from", "to", "follow"])]
    pub last: Option<Duration>,
}

pub(super) fn last(text: &str) -> Result<Duration, String> {
    match text.strip_prefix('-') {
        Some(time) => Err(format!(
            "'{text}' is before now already: write --last {time}, or --from {text}"
        )),
        None => {
            let rounded = parse_time(text)?;
            let exact = parse_shift(text).ok().and_then(|ns| u64::try_from(ns).ok());
            Ok(exact.map_or(rounded, Duration::from_nanos))
        }
    }
}

pub(super) fn moment(text: &str) -> Result<Moment, String> {
    let moment = Moment(text.to_owned());
    // The form is checked here, so that the message names the option, and so in UTC, whose clocks show each time once.
    moment.ns(
        jiff::Timestamp::UNIX_EPOCH + jiff::SignedDuration::from_hours(1_000_000),
        &jiff::tz::TimeZone::UTC,
    )?;
    Ok(moment)
}
