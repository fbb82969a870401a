//! Following of files: a file that grows, and then the files that take its name, as with `tail -F`.

use crate::input::{Input, Opening};
use crate::stream::Stream;
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Interval between two looks at the end of a file and at its name.
const PAUSE: Duration = Duration::from_millis(50);

/// Number of looks in a row without a file of the name before [`Change::Removed`] is reported. Between two steps of a rotation,
/// no file has the name for a short time.
const PATIENCE: u32 = 10;

/// Change of a followed file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// The file is shorter than the bytes read from it. Its present content is the next file.
    Truncated,
    /// Another file has the name. The old file was read to its end.
    Replaced,
    /// No file has the name.
    Removed,
    /// A file has the name again.
    Appeared,
}

/// Function that is called with each change of a followed file.
pub type Tell = Arc<dyn Fn(Change) + Send + Sync>;

/// Name that is followed, for the files that have it one after another. Each file is a source of its own.
#[derive(Clone)]
pub struct Followed {
    name: OsString,
    tell: Tell,
    stop: Arc<AtomicBool>,
    /// Whether the file that was opened last has been read to its end and was replaced or truncated.
    over: Arc<AtomicBool>,
}

impl core::fmt::Debug for Followed {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Followed")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Followed {
    /// Follows `name` until `stop` is set; `-` is standard input, if that is a file.
    pub fn new(name: impl AsRef<OsStr>, tell: Tell, stop: &Arc<AtomicBool>) -> Self {
        Self {
            name: name.as_ref().to_owned(),
            tell,
            stop: Arc::clone(stop),
            over: Arc::default(),
        }
    }

    /// Returns the bytes of `file` from its current position on, with all bytes that are appended later.
    pub(crate) fn stream(&self, mut file: File) -> io::Result<Stream> {
        self.over.store(false, Ordering::Relaxed);
        let at = file.stream_position()?;
        let tail = Tail {
            file,
            at,
            missing: 0,
            followed: self.clone(),
        };
        Ok(Stream::direct(tail, Arc::clone(&self.stop)))
    }

    /// Waits for a file of the name and opens it as the source that follows the last source. Returns `None` if `stop` is set,
    /// or if the last source ended although its file was neither replaced nor truncated. During the wait, a missing file is
    /// reported as for an open file.
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

    /// Counts a look that found no file of the name; after [`PATIENCE`] such looks in a row, reports [`Change::Removed`].
    fn miss(&self, missing: &mut u32) {
        *missing = missing.saturating_add(1);
        if *missing == PATIENCE {
            (self.tell)(Change::Removed);
        }
    }

    /// Returns the metadata of the file that has the name now; `None` if no file has it, or if its metadata cannot be read.
    fn named(&self) -> Option<Metadata> {
        std::fs::metadata(&self.name).ok()
    }
}

/// File that may grow.
struct Tail {
    file: File,
    /// Number of bytes read.
    at: u64,
    /// Number of looks in a row without a file of the name.
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

    /// Returns the change that ends this source, or `None` if the file is to be read on.
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
            Some(_) => Ok(Some(if told {
                Change::Appeared
            } else {
                Change::Replaced
            })),
            None => {
                // A program that has the old file open may still write to it.
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
            if n > 0
                || self.followed.stop.load(Ordering::Relaxed)
                || self.followed.over.load(Ordering::Relaxed)
            {
                return Ok(n);
            }
            match self.look()? {
                None => std::thread::sleep(PAUSE),
                Some(Change::Truncated) => {
                    self.end(Change::Truncated);
                    return Ok(0);
                }
                // Bytes written to the old file before it lost its name come first.
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
