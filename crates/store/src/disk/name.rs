//! Names of the files of a record directory.
//!
//! ```text
//! 20261123T053614.123456789Z-000042.pcapng    segment 42; its first packet has this time (UTC)
//! 20261123T053614.123456789Z-000042.pcapng.zst  the same, compressed
//! 20261123T053614.123456789Z-000042.index     index of segment 42
//! trigger-NAME-TIME.pcapng                    packets that a trigger saved
//! lock                                        held by the one recorder
//! ```

use super::{Error, file};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use weir_packet::time::{Date, Stamp};

pub(super) const SEGMENT: &str = "pcapng";
pub(super) const INDEX: &str = "index";
/// Ending of a compressed segment, after the ending of a segment.
const COMPRESSED: &str = "zst";
pub(super) const LOCK: &str = "lock";
/// Ending of a file that is not whole yet.
pub(super) const NEW: &str = ".new";
const TRIGGER: &str = "trigger-";

/// Last second with a year of four digits: 9999-12-31T23:59:59Z. An `i64` of nanoseconds ends before it.
fn civil(time_ns: i64) -> (Date, i64, u32) {
    let (seconds, nanos) = Stamp(time_ns.max(0)).split();
    (
        Date::from_days(seconds.div_euclid(86_400)),
        seconds.rem_euclid(86_400),
        nanos,
    )
}

/// Name of a segment without its ending: the time of its first packet, and its generation.
pub(super) fn stem(start_ns: i64, generation: u64) -> String {
    let (date, second, nanos) = civil(start_ns);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    let Date { year, month, day } = date;
    format!(
        "{year:04}{month:02}{day:02}T{hour:02}{minute:02}{second:02}.{nanos:09}Z-{generation:06}"
    )
}

/// Time and generation of a name without its ending; `None` if it is not a name of a segment.
pub(super) fn parse(stem: &str) -> Option<(i64, u64)> {
    let bytes = stem.as_bytes();
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = stem.get(from..to)?;
        digits
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| digits.parse().ok())?
    };
    if bytes.get(8) != Some(&b'T')
        || bytes.get(15) != Some(&b'.')
        || bytes.get(25..27) != Some(b"Z-")
    {
        return None;
    }
    let date = Date {
        year: number(0, 4)?,
        month: number(4, 6)? as u8,
        day: number(6, 8)? as u8,
    };
    let seconds =
        date.to_days() * 86_400 + number(9, 11)? * 3600 + number(11, 13)? * 60 + number(13, 15)?;
    let generation = number(27, stem.len())?;
    let start_ns = Stamp::from_parts(seconds, number(16, 25)? as u32).0;
    let generation = u64::try_from(generation).ok()?;
    (self::stem(start_ns, generation) == stem).then_some((start_ns, generation))
}

/// Whether a file of this name in a record directory is a segment, plain or compressed, or an index.
pub fn is_segment_or_index(name: &str) -> bool {
    let (rest, end) = name.rsplit_once('.').unwrap_or((name, ""));
    let stem = match end {
        SEGMENT | INDEX => Some(rest),
        COMPRESSED => rest.strip_suffix(".pcapng"),
        _ => None,
    };
    stem.and_then(parse).is_some()
}

/// Whether a name without its ending is the name of a file that a trigger saved:
/// `trigger-NAME-TIME`, and maybe more after another dash.
fn is_saved(stem: &str) -> bool {
    let mut parts = stem
        .strip_prefix(TRIGGER)
        .into_iter()
        .flat_map(|rest| rest.split('-').skip(1));
    parts.any(|part| parse(&format!("{part}-000000")).is_some())
}

/// A segment in a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Generation: grows by one with each segment made in the directory.
    pub generation: u64,
    /// Time of the first packet, ns since 1970.
    pub start_ns: i64,
    /// Path of the segment, unless it is compressed.
    pub path: PathBuf,
}

impl Segment {
    pub(super) fn new(dir: &Path, start_ns: i64, generation: u64) -> Self {
        let path = dir.join(format!("{}.{SEGMENT}", stem(start_ns, generation)));
        Self {
            generation,
            start_ns,
            path,
        }
    }

    /// Path of the segment if it is compressed.
    pub(super) fn compressed(&self) -> PathBuf {
        self.path.with_extension(format!("{SEGMENT}.{COMPRESSED}"))
    }

    /// Path of the index of the segment.
    pub fn index(&self) -> PathBuf {
        self.path.with_extension(INDEX)
    }

    /// Bytes of the segment in its files, and of its index.
    pub(super) fn bytes(&self) -> u64 {
        let len = |path: &Path| fs::metadata(path).map_or(0, |data| data.len());
        len(&self.path) + len(&self.compressed()) + len(&self.index())
    }
}

/// Files of a record directory.
#[derive(Debug, Default)]
pub(super) struct Listing {
    /// Segments, by generation.
    pub(super) segments: Vec<Segment>,
    /// Files that triggers saved, the oldest name first, with bytes and time of the last change (ns since 1970).
    pub(super) triggered: Vec<(PathBuf, u64, i64)>,
    /// Links, pipes and the like with names of segments. A record holds its files itself.
    pub(super) strange: Vec<PathBuf>,
    /// Whether a recorder has used the directory.
    pub(super) locked: bool,
    /// Files that a crash left half-made.
    pub(super) leftover: Vec<PathBuf>,
    /// Segments that somebody removed, of which there is the index, by generation.
    pub(super) orphans: Vec<Segment>,
    /// Largest generation of any file.
    pub(super) generation: u64,
}

/// Whether a path leads to a regular file itself. Opening anything else may block, or lead
/// elsewhere.
fn is_file(path: &Path) -> bool {
    fs::symlink_metadata(path).is_ok_and(|data| data.is_file())
}

/// Reason for which a file with the name of a segment is not read.
pub(super) fn why_strange(path: PathBuf) -> (PathBuf, String) {
    let why = file::open_to_read(&path).err().map_or_else(
        || "is not a regular file".to_owned(),
        |error| error.to_string(),
    );
    (path, why)
}

/// Lists a record directory. Files of other names are left alone.
pub(super) fn list(dir: &Path) -> Result<Listing, Error> {
    let failed = |source: io::Error| Error::file("listing", dir, source);
    let mut listing = Listing::default();
    let mut indexes = Vec::new();
    for entry in fs::read_dir(dir).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let (path, name) = (entry.path(), entry.file_name());
        let Some(name) = name.to_str() else { continue };
        if name == LOCK {
            listing.locked = true;
            continue;
        }
        let (whole, is_new) = name
            .strip_suffix(NEW)
            .map_or((name, false), |whole| (whole, true));
        let (rest, end) = whole.rsplit_once('.').unwrap_or((whole, ""));
        let stem = if end == COMPRESSED {
            rest.strip_suffix(".pcapng")
        } else {
            Some(rest)
        };
        match (stem.and_then(parse), end) {
            (Some(_), INDEX | COMPRESSED) if is_new => listing.leftover.push(path),
            (Some(_), SEGMENT | COMPRESSED) if !is_new && !is_file(&path) => {
                listing.strange.push(path)
            }
            (Some((start_ns, generation)), SEGMENT | COMPRESSED | INDEX) if !is_new => {
                let segment = Segment::new(dir, start_ns, generation);
                if end == INDEX {
                    indexes.push(segment)
                } else {
                    listing.segments.push(segment)
                }
                listing.generation = listing.generation.max(generation);
            }
            (None, SEGMENT) if !is_new && is_saved(rest) => {
                let Ok(data) = entry.metadata() else { continue };
                let changed = data
                    .modified()
                    .ok()
                    .and_then(|time| time.duration_since(std::time::UNIX_EPOCH).ok());
                listing.triggered.push((
                    path,
                    data.len(),
                    changed.map_or(0, |since| since.as_nanos() as i64),
                ));
            }
            _ => {}
        }
    }
    let Listing {
        segments,
        triggered,
        strange,
        orphans,
        ..
    } = &mut listing;
    segments.sort_by_key(|segment| segment.generation);
    segments.dedup();
    // A segment that became a compressed one in the meantime may be listed as neither. Its index
    // stays.
    for segment in indexes {
        let known = segments.binary_search_by_key(&segment.generation, |known| known.generation);
        match known {
            Err(at) if is_file(&segment.path) || is_file(&segment.compressed()) => {
                segments.insert(at, segment)
            }
            // What the user put in the place of a segment may come back.
            Err(_)
                if strange.contains(&segment.path) || strange.contains(&segment.compressed()) => {}
            Err(_) => orphans.push(segment),
            Ok(_) => {}
        }
    }
    orphans.sort_by_key(|segment| segment.generation);
    triggered.sort_by(|a, b| (a.2, &a.0).cmp(&(b.2, &b.0)));
    Ok(listing)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_say_time_and_generation() {
        // date -u -d @1795412174
        assert_eq!(
            stem(1_795_412_174_123_456_789, 42),
            "20261123T053614.123456789Z-000042"
        );
        for (time_ns, generation) in [
            (0, 0),
            (-5, 1),
            (1_709_164_800_000_000_001, 1_000_000),
            (i64::MAX, 7),
        ] {
            assert_eq!(
                parse(&stem(time_ns, generation)),
                Some((time_ns.max(0), generation))
            );
        }
        for other in [
            "",
            "x",
            "20261123T053614.123456789Z-",
            "20261323T053614.123456789Z-000042",
            "trigger-a",
        ] {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
