//! Time zones: offsets of timestamps, and file names by time.

use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Local time or UTC, for timestamps.
#[derive(Debug)]
pub struct Zone {
    zone: TimeZone,
    /// Latest quarter of an hour and its offset: no zone changes within a quarter of an hour.
    cached: Option<(i64, i32)>,
}

impl Zone {
    /// Returns UTC, or this machine's zone.
    pub fn new(utc: bool) -> Self {
        Self {
            zone: if utc {
                TimeZone::UTC
            } else {
                TimeZone::system()
            },
            cached: None,
        }
    }

    /// Returns the offset east of UTC at the time `ns` (ns since 1970), seconds.
    pub fn east_s(&mut self, ns: i64) -> i32 {
        let quarter = ns.div_euclid(900_000_000_000);
        match self.cached {
            Some((known, east)) if known == quarter => east,
            _ => {
                let moment =
                    Timestamp::from_second(ns.div_euclid(1_000_000_000)).unwrap_or_default();
                let east = self.zone.to_offset(moment).seconds();
                self.cached = Some((quarter, east));
                east
            }
        }
    }

    /// Formats the time `ns` (ns since 1970) by the strftime format `format`. Bytes of `format` that are not UTF-8 are copied.
    pub fn strftime(&self, format: &OsStr, ns: i64) -> OsString {
        let moment = Timestamp::from_second(ns.div_euclid(1_000_000_000)).unwrap_or_default();
        let moment = moment.to_zoned(self.zone.clone());
        let mut out = OsString::new();
        for chunk in format.as_bytes().utf8_chunks() {
            out.push(moment.strftime(chunk.valid()).to_string());
            out.push(OsStr::from_bytes(chunk.invalid()));
        }
        out
    }
}
