//! Opening of sources by their nature: files to map, or bytes in order.

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
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_packet::savefile::magic;

/// Source of packets.
#[derive(Debug)]
pub struct Input {
    /// Name of the source in messages for users.
    pub name: String,
    /// Kind of the source.
    pub kind: Kind,
}

/// Kinds of source.
#[derive(Debug)]
pub enum Kind {
    /// Plain file: any piece can be read at any time.
    File(PlainFile),
    /// Bytes in order, from a pipe, a compressed file or a growing file.
    Stream(Stream),
    /// Capture of the packets that an interface receives and sends.
    Live(Box<Live>),
}

/// Settings for opening a source.
#[derive(Clone, Copy, Debug)]
pub struct Opening<'a> {
    /// Name to follow: the file is read as it grows, and then the later files of the same name.
    pub follow: Option<&'a Followed>,
    /// Largest window of zstd data, in bytes; decoding takes as much memory.
    pub zstd_window: u64,
}

impl Default for Opening<'_> {
    fn default() -> Self {
        Self {
            follow: None,
            zstd_window: compressed::ZSTD_WINDOW,
        }
    }
}

impl Input {
    /// Opens `name`; `-` is standard input. If `stop` is set, a source of bytes in order ends early.
    ///
    /// Compression is recognised by content. **Errors**: errors of the system; `IsADirectory` for a directory.
    pub fn open(
        name: impl AsRef<OsStr>,
        opening: &Opening<'_>,
        stop: &Arc<AtomicBool>,
    ) -> io::Result<Self> {
        let name = name.as_ref();
        let file = if name == "-" {
            File::from(io::stdin().as_fd().try_clone_to_owned()?)
        } else {
            sys::open(Path::new(name))?
        };
        let kind = classify(file, opening, Arc::clone(stop))?;
        let name = if name == "-" {
            "standard input".into()
        } else {
            name.to_string_lossy()
        };
        Ok(Self {
            name: name.into_owned(),
            kind,
        })
    }

    /// Creates a source that captures by `backend` until `stop` is set; `name` is the user's name of the source.
    pub fn live(name: &str, backend: Box<dyn Backend>, stop: &Arc<AtomicBool>) -> Self {
        let live = Live::new(backend, Arc::clone(stop));
        Self {
            name: name.to_owned(),
            kind: Kind::Live(Box::new(live)),
        }
    }

    /// Returns the number of bytes that the source will deliver, if it is known.
    pub fn len_hint(&self) -> Option<u64> {
        match &self.kind {
            Kind::File(file) => Some(file.len),
            Kind::Stream(_) | Kind::Live(_) => None,
        }
    }
}

/// Returns whether the file of this name can be read in order only: a pipe, or a compressed file. Nothing is read from a pipe.
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
    // Only regular files are followed: a pipe reports its end by itself.
    if let Some(followed) = opening.follow.filter(|_| about.is_file()) {
        let mut head = [0u8; magic::MAX_MAGIC];
        let here = file.stream_position()?;
        let got = file.read_at(&mut head, here)?;
        if magic::compression(&head[..got]).is_some() {
            let why =
                "is compressed, and what is compressed cannot be followed: leave --follow out";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        return Ok(Kind::Stream(followed.stream(file)?));
    }
    // Standard input may be a file that another program has read in part.
    if about.is_file() && file.stream_position()? == 0 {
        let mut head = [0u8; magic::MAX_MAGIC];
        let got = file.read_at(&mut head, 0)?;
        return Ok(match magic::compression(&head[..got]) {
            Some(kind) => Kind::Stream(Stream::threaded(
                compressed::decoder(kind, file, opening.zstd_window)?,
                stop,
            )?),
            None => Kind::File(PlainFile::new(file)?),
        });
    }
    let mut pipe = Pipe {
        file,
        stop: Arc::clone(&stop),
    };
    let head = first_bytes(&mut pipe, &stop)?;
    let compression = magic::compression(&head);
    let whole = io::Cursor::new(head).chain(pipe);
    Ok(Kind::Stream(match compression {
        Some(kind) => {
            Stream::threaded(compressed::decoder(kind, whole, opening.zstd_window)?, stop)?
        }
        None => Stream::direct(whole, stop),
    }))
}

/// Pipe or device, whose bytes arrive at any time. The wait for bytes ends once `stop` is set, by a signal or by another
/// thread.
struct Pipe {
    file: File,
    stop: Arc<AtomicBool>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        /// Interval between two looks at `stop`.
        const LOOK: Duration = Duration::from_millis(100);
        while !sys::wait_for_bytes(&self.file, LOOK)? {
            if self.stop.load(Ordering::Relaxed) {
                // The result is the same as at the end of the pipe, because a decoder would repeat an interrupted read for
                // ever.
                return Ok(0);
            }
        }
        self.file.read(buffer)
    }
}

/// Reads the first bytes of a pipe, enough to recognise a compression; fewer if the pipe ends or `stop` is set.
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

/// Regular file whose size is taken at opening.
#[derive(Clone, Debug)]
pub struct PlainFile {
    file: Arc<File>,
    /// Size at opening, in bytes.
    pub len: u64,
}

impl PlainFile {
    /// Wraps an open file.
    pub fn new(file: File) -> io::Result<Self> {
        let len = file.metadata()?.len();
        Ok(Self {
            file: Arc::new(file),
            len,
        })
    }

    /// Returns whether mapping this file is possible ([`guard_mappings`](sys::guard_mappings)) and cheaper than reading.
    /// Mapping is cheaper if the page cache holds the file in huge folios.
    ///
    /// A file in small folios costs a page table entry for every 4 KiB, which takes longer than copying (measured: 12-17
    /// against 6-8 ns per 60-byte packet). To find the size of the folios, the function touches three places twice, 1 MiB
    /// apart: in a huge folio, only the first touch faults. **Cost**: six page faults.
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
            let Ok(mapping) = Mapping::new(&self.file, offset, HUGE) else {
                return false;
            };
            let bytes = mapping.bytes();
            std::hint::black_box(bytes[0]);
            let before = sys::minor_faults();
            std::hint::black_box(bytes[HUGE / 2]);
            one_fault += u64::from(sys::minor_faults() == before);
        }
        one_fault * 2 > PLACES
    }

    /// Maps `len` bytes from `offset` on (a multiple of the page size), fewer at the end of the file.
    pub fn map(&self, offset: u64, len: usize) -> io::Result<Chunk> {
        let left = self.len.saturating_sub(offset);
        let len = left.min(len as u64);
        if len == 0 {
            // An empty range cannot be mapped.
            return Ok(Chunk::owned(offset, true, Vec::new(), 0..0));
        }
        let mapping = Mapping::new(&self.file, offset, len as usize)?;
        Ok(Chunk::mapped(offset, len == left, mapping))
    }

    /// Reads `len` bytes from `offset` on into `buffer`, fewer at the end of the file.
    pub fn read(&self, offset: u64, len: usize, mut buffer: Vec<u8>) -> io::Result<Chunk> {
        let left = self.len.saturating_sub(offset);
        let wanted = left.min(len as u64) as usize;
        if buffer.len() < wanted {
            buffer.try_reserve_exact(wanted - buffer.len())?;
            buffer.resize(wanted, 0);
        }
        let mut got = 0;
        while got < wanted {
            match self
                .file
                .read_at(&mut buffer[got..wanted], offset + got as u64)
            {
                Ok(0) => break,
                Ok(n) => got += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let eof = offset + got as u64 >= self.len;
        Ok(Chunk::owned(offset, eof || got < wanted, buffer, 0..got))
    }

    /// Returns the current size of the file, in bytes.
    pub fn current_len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}
