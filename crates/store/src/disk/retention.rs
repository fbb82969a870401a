//! Retention: the oldest segments are removed before a limit is reached or the disk is full.

use super::file::Disk;
use super::name::{self, Segment};
use super::{Error, FreeBytes};
use std::collections::VecDeque;
use std::fs;
use std::io;
use std::path::Path;
use std::time::UNIX_EPOCH;

/// Limits of what a record directory keeps. Ages count from the last change of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retention {
    /// Largest number of bytes of segments and indexes; `None`: no limit.
    pub bytes: Option<u64>,
    /// Greatest age of a segment, ns.
    pub age_ns: Option<i64>,
    /// Largest number of bytes of files that triggers saved.
    pub trigger_bytes: Option<u64>,
    /// Greatest age of a file that a trigger saved, ns.
    pub trigger_age_ns: Option<i64>,
    /// Bytes of the file system that stay free.
    pub reserve_bytes: u64,
}

/// Files that retention has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// Segments, each with its index.
    pub segments: u64,
    /// Files that triggers saved.
    pub triggered: u64,
    /// Bytes of all of them.
    pub bytes: u64,
}

/// A closed segment.
#[derive(Debug)]
struct Kept {
    segment: Segment,
    /// Bytes of its files.
    bytes: u64,
    /// Time of its last change, ns since 1970.
    changed: i64,
    /// Whether compression was not tried yet.
    untried: bool,
}

/// The closed segments of a directory, the oldest first.
#[derive(Debug, Default)]
pub(super) struct Keeper {
    segments: VecDeque<Kept>,
    bytes: u64,
    pub(super) removed: Removed,
}

/// Time of the last change of a file, ns since 1970; `None` if there is none.
fn changed(path: &Path) -> Option<i64> {
    let time = fs::metadata(path).and_then(|data| data.modified()).ok();
    time.and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .map(|since| since.as_nanos() as i64)
}

/// Removes a file; a missing file is not an error.
fn remove(disk: &dyn Disk, path: &Path) -> Result<(), Error> {
    match disk.remove(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::file("removing", path, error))
        }
        _ => Ok(()),
    }
}

impl Keeper {
    /// Takes a closed segment, whose age counts from `last_ns`, ns since 1970, or from the last change of its file.
    pub(super) fn add(&mut self, segment: Segment, last_ns: Option<i64>) {
        let bytes = segment.bytes();
        let plain = changed(&segment.path);
        // The index is as old as the plain file was, unless it was made again. It may be all that
        // is left.
        let other = || {
            [segment.compressed(), segment.index()]
                .iter()
                .filter_map(|path| changed(path))
                .min()
        };
        let (changed, untried) = (
            last_ns.or(plain).or_else(other).unwrap_or(0),
            plain.is_some(),
        );
        self.bytes += bytes;
        self.segments.push_back(Kept {
            segment,
            bytes,
            changed,
            untried,
        });
    }

    /// The oldest segment for which compression was not tried yet, and its bytes.
    pub(super) fn untried(&self) -> Option<(Segment, u64)> {
        let kept = self.segments.iter().find(|kept| kept.untried)?;
        Some((kept.segment.clone(), kept.bytes))
    }

    /// Notes that compression was tried.
    pub(super) fn tried(&mut self, segment: &Segment) {
        if let Some(kept) = self
            .segments
            .iter_mut()
            .find(|kept| kept.segment == *segment)
        {
            kept.untried = false;
        }
        self.measure(segment);
    }

    /// Takes the bytes of the files of a segment as they are now.
    pub(super) fn measure(&mut self, segment: &Segment) {
        if let Some(kept) = self
            .segments
            .iter_mut()
            .find(|kept| kept.segment == *segment)
        {
            let bytes = segment.bytes();
            self.bytes = self.bytes - kept.bytes + bytes;
            kept.bytes = bytes;
        }
    }

    /// Whether retention has not removed the segment.
    pub(super) fn has(&self, segment: &Segment) -> bool {
        self.segments.iter().any(|kept| kept.segment == *segment)
    }

    /// Number and bytes of the closed segments.
    pub(super) fn kept(&self) -> (usize, u64) {
        (self.segments.len(), self.bytes)
    }

    /// Removes the oldest segment: its index first, so that no index stays without a segment. Returns whether there was one.
    fn remove_oldest(&mut self, disk: &dyn Disk) -> Result<bool, Error> {
        let Some(Kept { segment, bytes, .. }) = self.segments.front() else {
            return Ok(false);
        };
        for path in [segment.index(), segment.path.clone(), segment.compressed()] {
            remove(disk, &path)?;
        }
        self.bytes -= bytes;
        self.removed.bytes += bytes;
        self.removed.segments += 1;
        self.segments.pop_front();
        Ok(true)
    }

    /// Removes what is too old, and files of triggers beyond their limits.
    pub(super) fn age(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        limits: &Retention,
        now_ns: i64,
    ) -> Result<(), Error> {
        if let Some(age_ns) = limits.age_ns {
            let too_old = |changed: i64| now_ns.saturating_sub(changed) > age_ns;
            while self
                .segments
                .front()
                .is_some_and(|kept| too_old(kept.changed))
            {
                self.remove_oldest(disk)?;
            }
        }
        if limits.trigger_bytes.is_none() && limits.trigger_age_ns.is_none() {
            return Ok(());
        }
        let triggered = name::list(dir)?.triggered;
        let mut total: u64 = triggered.iter().map(|(_, bytes, _)| bytes).sum();
        for (path, bytes, changed) in triggered {
            let too_old = limits
                .trigger_age_ns
                .is_some_and(|age_ns| now_ns.saturating_sub(changed) > age_ns);
            if too_old || limits.trigger_bytes.is_some_and(|most| total > most) {
                remove(disk, &path)?;
                total -= bytes;
                self.removed.triggered += 1;
                self.removed.bytes += bytes;
            }
        }
        Ok(())
    }

    /// Makes room for `more` bytes: removes the oldest segments until they fit the limit and the reserve stays free.
    ///
    /// **Errors**: [`Error::NoRoom`] if nothing is left to remove and fewer than `least` bytes beyond the reserve are free.
    pub(super) fn make_room(
        &mut self,
        disk: &dyn Disk,
        dir: &Path,
        limits: &Retention,
        free: Option<&FreeBytes>,
        (more, least): (u64, u64),
    ) -> Result<(), Error> {
        while limits.bytes.is_some_and(|most| self.bytes + more > most)
            && self.remove_oldest(disk)?
        {}
        let Some(free) = free else { return Ok(()) };
        loop {
            let available = (free.0)(dir)
                .map_err(|error| Error::file("reading the free space of", dir, error))?;
            if available >= limits.reserve_bytes.saturating_add(more) {
                return Ok(());
            }
            if !self.remove_oldest(disk)? {
                let enough = available >= limits.reserve_bytes.saturating_add(least);
                let no_room = Error::NoRoom {
                    dir: dir.to_owned(),
                    free: available,
                    reserve: limits.reserve_bytes,
                };
                return if enough { Ok(()) } else { Err(no_room) };
            }
        }
    }
}

#[cfg(test)]
mod tests;
