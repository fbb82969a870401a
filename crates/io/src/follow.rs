//! Files that are followed: one that grows, and those that take its name one after another, as `tail -F` follows them.

use crate::input::{Input, Opening};
use crate::stream::Stream;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often the end of a file, and its name, are looked at.
const PAUSE: Duration = Duration::from_millis(50);

/// Looks in a row that find no file of the name, until that is told: between two steps of a rotation there is none either.
const PATIENCE: u32 = 10;

/// What became of a followed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It is shorter than what was read of it. The next file is what is in it now.
    Truncated,
    /// Another file has its name. The old one was read to its end.
    Replaced,
    /// No file has its name.
    Removed,
    /// A file has its name again.
    Appeared,
}

/// Hears what becomes of a followed file.
pub type Tell = Arc<dyn Fn(Change) + Send + Sync>;

/// A name, and the files that have it one after another. Each file is a source of its own.
#[derive(Clone)]
pub struct Followed {
    name: OsString,
    tell: Tell,
    stop: Arc<AtomicBool>,
    /// The file that was opened last has been read to its end, and is not the one to be read on.
    over: Arc<AtomicBool>,
}

impl core::fmt::Debug for Followed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Followed").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Followed {
    /// Follows `name`, where `-` is the file that is standard input, until `stop` is set.
    pub fn new(name: impl AsRef<OsStr>, tell: Tell, stop: &Arc<AtomicBool>) -> Self {
        Self { name: name.as_ref().to_owned(), tell, stop: Arc::clone(stop), over: Arc::default() }
    }

    /// The bytes of `file` from its current position on, and what is appended to it.
    pub(crate) fn stream(&self, mut file: File) -> io::Result<Stream> {
        self.over.store(false, Ordering::Relaxed);
        let at = file.stream_position()?;
        let tail = Tail { file, at, missing: 0, followed: self.clone() };
        Ok(Stream::direct(tail, Arc::clone(&self.stop)))
    }

    /// The source that follows the one opened last, once there is a file of the name; `None` if that one ended for another reason
    /// than that the file was replaced or cut, or if `stop` is set. A name without a file is told like that of an open file.
    pub fn next(&self, opening: &Opening<'_>) -> Option<io::Result<Input>> {
        let mut missing = 0;
        while self.over.load(Ordering::Relaxed) && !self.stop.load(Ordering::Relaxed) {
            match Input::open(&self.name, opening, &self.stop) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    self.miss(&mut missing);
                    std::thread::sleep(PAUSE);
                }
                opened => {
                    if opened.is_ok() && missing >= PATIENCE {
                        (self.tell)(Change::Appeared);
                    }
                    return Some(opened);
                }
            }
        }
        None
    }

    /// Counts a look that found no file of the name, and tells it if there were [`PATIENCE`] of them in a row.
    fn miss(&self, missing: &mut u32) {
        *missing = missing.saturating_add(1);
        if *missing == PATIENCE {
            (self.tell)(Change::Removed);
        }
    }

    /// What the name stands for now; `None` if it is no name of a file, or if nothing has it.
    fn named(&self) -> Option<Metadata> {
        std::fs::metadata(&self.name).ok()
    }
}

/// A file that may grow.
struct Tail {
    file: File,
    /// Bytes of it that were read.
    at: u64,
    /// How often no file had the name, in a row.
    missing: u32,
    followed: Followed,
}

impl Tail {
    fn read_some(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = self.file.read(buf)?;
        self.at += n as u64;
        Ok(n)
    }

    fn end(&self, change: Change) {
        self.followed.over.store(true, Ordering::Relaxed);
        (self.followed.tell)(change);
    }

    /// What has become of the file, if it is not the one to be read on.
    fn look(&mut self) -> io::Result<Option<Change>> {
        let about = self.file.metadata()?;
        if about.len() < self.at {
            if self.followed.name == "-" {
                self.file.seek(SeekFrom::Start(0))?;
            }
            return Ok(Some(Change::Truncated));
        }
        if self.followed.name == "-" {
            return Ok(None);
        }
        let told = self.missing >= PATIENCE;
        match self.followed.named() {
            Some(named) if (named.dev(), named.ino()) == (about.dev(), about.ino()) => {
                self.missing = 0;
                Ok(None)
            }
            Some(_) => Ok(Some(if told { Change::Appeared } else { Change::Replaced })),
            None => {
                // Whoever has the old file open may still write to it.
                self.followed.miss(&mut self.missing);
                Ok(None)
            }
        }
    }
}

impl Read for Tail {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            let n = self.read_some(buf)?;
            if n > 0 || self.followed.stop.load(Ordering::Relaxed) || self.followed.over.load(Ordering::Relaxed) {
                return Ok(n);
            }
            match self.look()? {
                None => std::thread::sleep(PAUSE),
                Some(Change::Truncated) => {
                    self.end(Change::Truncated);
                    return Ok(0);
                }
                // What was written to the old file before its name was given away comes first.
                Some(change) => match self.read_some(buf)? {
                    0 => {
                        self.end(change);
                        return Ok(0);
                    }
                    n => return Ok(n),
                },
            }
        }
    }
}
