//! Opening a source by what it is: a file to map, or bytes that come one after another.

use crate::compressed;
use crate::follow::Followed;
use crate::live::{Backend, Live};
use crate::stream::Stream;
use crate::sys::{self, HUGE, Mapping};
use crate::view::Chunk;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use weir_packet::savefile::magic;

/// A source of packets.
#[derive(Debug)]
pub struct Input {
    /// What it is called in lines for people.
    pub name: String,
    /// What it is.
    pub kind: Kind,
}

/// The ways to read.
#[derive(Debug)]
pub enum Kind {
    /// A plain file: any piece of it at any time.
    File(PlainFile),
    /// Bytes in order: pipe, compressed file, growing file.
    Stream(Stream),
    /// What an interface receives and sends.
    Live(Box<Live>),
}

/// How to open a source.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// Read a file as it grows, and the files that have its name after it.
    pub follow: Option<&'a Followed>,
    /// The largest window of zstd data, bytes: as much memory is taken for it.
    pub zstd_window: u64,
}

impl Default for Opening<'_> {
    fn default() -> Self {
        Self { follow: None, zstd_window: compressed::ZSTD_WINDOW }
    }
}

impl Input {
    /// Opens `name`; `-` is standard input. Whatever comes in order ends early once `stop` is set.
    ///
    /// Compression is recognised by content. **Errors**: those of the system; a directory is `IsADirectory`.
    pub fn open(name: impl AsRef<OsStr>, opening: &Opening<'_>, stop: &Arc<AtomicBool>) -> io::Result<Self> {
        let name = name.as_ref();
        let file = if name == "-" {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            sys::open(Path::new(name))?
        };
        let kind = classify(file, opening, Arc::clone(stop))?;
        let name = if name == "-" { "standard input".into() } else { name.to_string_lossy() };
        Ok(Self { name: name.into_owned(), kind })
    }

    /// Captures by `backend`, until `stop` is set; `name` is what the user called it.
    pub fn live(name: &str, backend: Box<dyn Backend>, stop: &Arc<AtomicBool>) -> Self {
        let live = Live::new(backend, Arc::clone(stop));
        Self { name: name.to_owned(), kind: Kind::Live(Box::new(live)) }
    }

    /// Size in bytes of what will be delivered, where that is known.
    pub fn len_hint(&self) -> Option<u64> {
        match &self.kind {
            Kind::File(file) => Some(file.len),
            Kind::Stream(_) | Kind::Live(_) => None,
        }
    }
}

/// Whether the file of this name is read in order by its nature: a pipe, or compressed. Nothing is read of a pipe.
pub fn comes_in_order(name: impl AsRef<OsStr>) -> bool {
    let path = Path::new(name.as_ref());
    match path.metadata() {
        Ok(about) if about.is_file() => {
            let mut head = [0u8; magic::MAX_MAGIC];
            let got = File::open(path).and_then(|file| file.read_at(&mut head, 0));
            got.is_ok_and(|got| magic::compression(&head[..got]).is_some())
        }
        Ok(about) => !about.is_dir(),
        Err(_) => name.as_ref() == "-",
    }
}

fn classify(mut file: File, opening: &Opening<'_>, stop: Arc<AtomicBool>) -> io::Result<Kind> {
    let about = file.metadata()?;
    if about.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    // A pipe says by itself when it ends.
    if let Some(followed) = opening.follow.filter(|_| about.is_file()) {
        let mut head = [0u8; magic::MAX_MAGIC];
        let here = file.stream_position()?;
        let got = file.read_at(&mut head, here)?;
        if magic::compression(&head[..got]).is_some() {
            let why = "is compressed, and what is compressed cannot be followed: leave --follow out";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        return Ok(Kind::Stream(followed.stream(file)?));
    }
    // Standard input may be a file that someone has read a part of already.
    if about.is_file() && file.stream_position()? == 0 {
        let mut head = [0u8; magic::MAX_MAGIC];
        let got = file.read_at(&mut head, 0)?;
        return Ok(match magic::compression(&head[..got]) {
            Some(kind) => Kind::Stream(Stream::threaded(compressed::decoder(kind, file, opening.zstd_window)?, stop)?),
            None => Kind::File(PlainFile::new(file)?),
        });
    }
    let mut pipe = Pipe { file, stop: Arc::clone(&stop) };
    let head = first_bytes(&mut pipe, &stop)?;
    let compression = magic::compression(&head);
    let whole = io::Cursor::new(head).chain(pipe);
    Ok(Kind::Stream(match compression {
        Some(kind) => Stream::threaded(compressed::decoder(kind, whole, opening.zstd_window)?, stop)?,
        None => Stream::direct(whole, stop),
    }))
}

/// A pipe, or a device: bytes come when they come. The wait for them ends once `stop` is set, by a signal or by another thread.
struct Pipe {
    file: File,
    stop: Arc<AtomicBool>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        /// How often `stop` is looked at.
        const LOOK: Duration = Duration::from_millis(100);
        while !sys::wait_for_bytes(&self.file, LOOK)? {
            if self.stop.load(Ordering::Relaxed) {
                // As at the end of the pipe: a decoder would try again for ever.
                return Ok(0);
            }
        }
        self.file.read(buffer)
    }
}

/// The first bytes of a pipe, as many as tell a compression; fewer if it ends, or if `stop` is set.
fn first_bytes(file: &mut Pipe, stop: &AtomicBool) -> io::Result<Vec<u8>> {
    let mut head = [0u8; 4];
    let mut got = 0;
    while got < head.len() && !stop.load(Ordering::Relaxed) {
        match file.read(&mut head[got..]) {
            Ok(0) => break,
            Ok(n) => got += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(head[..got].to_vec())
}

/// A regular file with a size fixed at opening.
#[derive(Clone, Debug)]
pub struct PlainFile {
    file: Arc<File>,
    /// Size when it was opened, bytes.
    pub len: u64,
    /// The last page, mapped when it is asked for first; `None` if it could not be.
    last: Arc<OnceLock<Option<Mapping>>>,
}

impl PlainFile {
    /// Wraps an open file.
    pub fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self { file: Arc::new(file), len, last: Arc::default() })
    }

    /// Where the page begins that holds the last byte.
    fn last_page(&self) -> u64 {
        let page = sys::page_size() as u64;
        self.len.saturating_sub(1) / page * page
    }

    /// Whether the first `end` bytes end before the last page.
    pub(crate) fn is_before_last_page(&self, end: u64) -> bool {
        end <= self.last_page()
    }

    /// Whether the last page is not in the file any more, or that cannot be told so.
    pub(crate) fn last_is_gone(&self) -> bool {
        let map = || {
            let from = self.last_page();
            Mapping::new(&self.file, from, (self.len - from) as usize).ok()
        };
        self.last.get_or_init(map).as_ref().is_none_or(Mapping::last_is_gone)
    }

    /// Whether mapping this file is possible ([`guard_mappings`](sys::guard_mappings)), and cheaper than reading it: yes if the page
    /// cache holds it in huge folios.
    ///
    /// A file in small folios costs a page table entry for every 4 KiB, which is more than copying them (measured: 12-17
    /// against 6-8 ns per 60-byte packet). Three places are touched 1 MiB apart: in a huge folio only the first touch
    /// faults. **Cost**: six page faults.
    pub fn prefers_mapping(&self) -> bool {
        const PLACES: u64 = 3;
        let huge = HUGE as u64;
        if !sys::are_mappings_guarded() {
            return false;
        }
        if self.len < 2 * huge {
            return self.len > 0;
        }
        let last = self.len / huge - 1;
        let mut one_fault = 0;
        for place in 0..PLACES {
            let offset = last * place / (PLACES - 1) * huge;
            let Ok(mapping) = Mapping::new(&self.file, offset, HUGE) else { return false };
            let bytes = mapping.bytes();
            std::hint::black_box(bytes[0]);
            let before = sys::minor_faults();
            std::hint::black_box(bytes[HUGE / 2]);
            one_fault += u64::from(sys::minor_faults() == before);
        }
        one_fault * 2 > PLACES
    }

    /// Maps `len` bytes from `offset` on (a multiple of the page size), fewer where the file ends.
    pub fn map(&self, offset: u64, len: usize) -> io::Result<Chunk> {
        let left = self.len.saturating_sub(offset);
        let len = left.min(len as u64);
        if len == 0 {
            // Nothing cannot be mapped.
            return Ok(Chunk::owned(offset, true, Vec::new(), 0..0));
        }
        let mapping = Mapping::new(&self.file, offset, len as usize)?;
        Ok(Chunk::mapped(offset, len == left, mapping, self.clone()))
    }

    /// Reads `len` bytes from `offset` on into `buffer`, fewer where the file ends.
    pub fn read(&self, offset: u64, len: usize, mut buffer: Vec<u8>) -> io::Result<Chunk> {
        let left = self.len.saturating_sub(offset);
        let wanted = left.min(len as u64) as usize;
        if buffer.len() < wanted {
            buffer.try_reserve_exact(wanted - buffer.len())?;
            buffer.resize(wanted, 0);
        }
        let mut got = 0;
        while got < wanted {
            match self.file.read_at(&mut buffer[got..wanted], offset + got as u64) {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let eof = offset + got as u64 >= self.len;
        Ok(Chunk::owned(offset, eof || got < wanted, buffer, 0..got))
    }

    /// The file's size now.
    pub fn current_len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
