//! Compression of closed segments, one at a time, the oldest first, on a thread of its own.
//!
//! The thread writes the compressed file under a temporary name and makes it durable. The recorder
//! then gives the file its name and removes the plain one, because it removes segments too: one
//! that retention has removed in the meantime does not come back.

use super::super::compressed;
use super::super::file::Disk;
use super::super::index::Index;
use super::super::name::{NEW, Segment};
use super::super::{Error, Recorder};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

/// A compressed segment has at most this many hundredths of the bytes of the plain one. Others stay plain.
const MOST_PERCENT: u64 = 95;

/// Segments that a session has compressed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compression {
    /// Number of segments.
    pub segments: u64,
    /// Bytes of them before.
    pub before: u64,
    /// Bytes of them now.
    pub after: u64,
    /// Segments that stay plain: compression saves less than 5 %, or they have no good index.
    pub plain: u64,
    /// Segments that stay plain after an error.
    pub failed: u64,
}

/// Bytes of a segment before and after; `None` if it stays plain.
type Sizes = Option<(u64, u64)>;

/// The thread that compresses. When it is dropped, the work in progress is given up and awaited.
///
/// The thread starts with the first work: a process may open a directory before it gives up rights, which its threads would keep.
#[derive(Debug)]
pub(super) struct Compressor {
    level: i32,
    stop: Arc<AtomicBool>,
    work: Option<(Segment, JoinHandle<Result<Sizes, Error>>)>,
    /// First error that was not taken yet.
    error: Option<Error>,
}

impl Compressor {
    pub(super) fn new(level: i32) -> Self {
        Self {
            level,
            stop: Arc::default(),
            work: None,
            error: None,
        }
    }

    fn begin(&mut self, disk: Arc<dyn Disk>, segment: Segment, mode: u32) -> Result<(), Error> {
        let (plain, level, stop) = (segment.clone(), self.level, Arc::clone(&self.stop));
        let run = move || {
            let new = temporary(&plain);
            let compressed = compress(disk.as_ref(), &plain, &new, level, mode, &stop);
            if !matches!(compressed, Ok(Some(_))) {
                // The first error counts; a file that stays is removed by the next recorder.
                let _ = disk.remove(&new);
            }
            compressed
        };
        let thread = thread::Builder::new()
            .name("weir-compress".into())
            .spawn(run);
        let thread = thread.map_err(|error| Error::file("compressing", &segment.path, error))?;
        self.work = Some((segment, thread));
        Ok(())
    }

    /// The segment that was compressed, with its sizes; if `wait` is not set, `None` while that is in progress.
    fn finished(&mut self, wait: bool) -> Option<(Segment, Result<Sizes, Error>)> {
        let (segment, thread) = self
            .work
            .take_if(|(_, thread)| wait || thread.is_finished())?;
        let panicked = |_| {
            Err(Error::file(
                "compressing",
                &segment.path,
                io::Error::other("the thread panicked"),
            ))
        };
        let sizes = thread.join().unwrap_or_else(panicked);
        Some((segment, sizes))
    }
}

impl Drop for Compressor {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.finished(true);
    }
}

fn temporary(segment: &Segment) -> PathBuf {
    let mut path = segment.compressed().into_os_string();
    path.push(NEW);
    path.into()
}

/// Compresses a segment into a new file, which is durable then.
fn compress(
    disk: &dyn Disk,
    segment: &Segment,
    new: &Path,
    level: i32,
    mode: u32,
    stop: &AtomicBool,
) -> Result<Sizes, Error> {
    let failed = |error| Error::file("compressing", &segment.path, error);
    let plain = File::open(&segment.path).map_err(failed)?;
    let before = plain.metadata().map_err(failed)?.len();
    // The next recorder makes an index that is missing.
    let Ok(index) = Index::open(
        &segment.index(),
        segment.generation,
        segment.start_ns,
        before,
    ) else {
        return Ok(None);
    };
    let blocks = index
        .blocks
        .iter()
        .map(|entry| entry.offset + entry.len() as u64);
    let written = (|| {
        let mut out = disk.create(new, mode)?;
        let most = before * MOST_PERCENT / 100;
        let after = compressed::compress(&plain, before, blocks, level, out.as_mut(), most, stop)?;
        if after.is_some() {
            out.sync()?;
        }
        Ok(after)
    })();
    let after = written.map_err(|error| Error::file("writing", new, error))?;
    Ok(after.map(|after| (before, after)))
}

impl Recorder {
    /// Takes back a segment that was compressed. Then, or if `look` is set, begins with the next
    /// segment. Returns whether a segment is being compressed.
    pub(super) fn compress(&mut self, look: bool) -> bool {
        let done = self.take_compressed(false);
        let Some(compressor) = &self.compressor else {
            return false;
        };
        if compressor.work.is_none() && (done || look) {
            self.begin_compression();
        }
        self.compressor
            .as_ref()
            .is_some_and(|compressor| compressor.work.is_some())
    }

    /// Ends the segment, and waits until all segments are compressed for which there is room.
    pub fn compress_all(&mut self) -> Result<(), Error> {
        self.end_segment(true)?;
        while self.compress(true) {
            self.take_compressed(true);
        }
        Ok(())
    }

    /// The first error of a compression since the last call. Its segment stays plain.
    pub fn take_compression_error(&mut self) -> Option<Error> {
        self.compressor.as_mut()?.error.take()
    }

    /// Gives up the segment that is being compressed, unless that is done.
    pub(super) fn end_compression(&mut self) {
        if let Some(compressor) = &self.compressor {
            compressor.stop.store(true, Ordering::Relaxed);
        }
        let finished = self
            .compressor
            .as_mut()
            .and_then(|compressor| compressor.finished(true));
        if let Some((segment, sizes)) = finished.filter(|(_, sizes)| !matches!(sizes, Ok(None))) {
            self.compressed(&segment, sizes);
        }
    }

    /// Bytes that stay free of the limit for a compressed file that is being written next to the
    /// plain one.
    pub(super) fn room_to_compress(&self) -> u64 {
        let quarter = self
            .settings
            .retention
            .bytes
            .map_or(u64::MAX, |most| most / 4);
        self.compressor
            .as_ref()
            .map_or(0, |_| self.with_index().min(quarter))
    }

    fn begin_compression(&mut self) {
        let Some((segment, bytes)) = self
            .keeper
            .untried()
            .filter(|(segment, _)| !self.closing.has(segment))
        else {
            return;
        };
        let (retention, more) = (&self.settings.retention, bytes + self.with_index());
        let fits = retention
            .bytes
            .is_none_or(|most| self.keeper.kept().1 + more <= most);
        let is_free = |free: u64| free >= retention.reserve_bytes.saturating_add(more);
        let has_room = |free: &super::FreeBytes| (free.0)(&self.dir).is_ok_and(is_free);
        if !fits || !self.settings.free_bytes.as_ref().is_none_or(has_room) {
            return;
        }
        let Some(compressor) = &mut self.compressor else {
            return;
        };
        if let Err(error) = compressor.begin(
            Arc::clone(&self.disk),
            segment.clone(),
            self.settings.file_mode,
        ) {
            self.compressed(&segment, Err(error));
        }
    }

    /// Takes back a segment that was compressed, if there is one. Returns whether there was.
    fn take_compressed(&mut self, wait: bool) -> bool {
        let Some((segment, sizes)) = self
            .compressor
            .as_mut()
            .and_then(|compressor| compressor.finished(wait))
        else {
            return false;
        };
        self.compressed(&segment, sizes);
        true
    }

    /// Puts a compressed file in the place of the plain one.
    fn compressed(&mut self, segment: &Segment, sizes: Result<Sizes, Error>) {
        let new = temporary(segment);
        if !self.keeper.has(segment) {
            // What cannot be removed now is removed by the next recorder.
            let _ = self.disk.remove(&new);
            return;
        }
        let failed = |error| Error::file("compressing", &segment.path, error);
        let replace = || {
            self.disk.rename(&new, &segment.compressed())?;
            self.disk.sync_dir(&self.dir)?;
            self.disk.remove(&segment.path)?;
            self.disk.sync_dir(&self.dir)
        };
        let counts = &mut self.stats.compression;
        match sizes.and_then(|sizes| {
            sizes
                .map(|sizes| replace().map(|()| sizes).map_err(failed))
                .transpose()
        }) {
            Ok(Some((before, after))) => {
                counts.segments += 1;
                counts.before += before;
                counts.after += after;
            }
            Ok(None) => counts.plain += 1,
            Err(error) => {
                counts.failed += 1;
                if let Some(compressor) = &mut self.compressor {
                    compressor.error.get_or_insert(error);
                }
            }
        }
        self.keeper.tried(segment);
    }
}

#[cfg(test)]
mod tests;
