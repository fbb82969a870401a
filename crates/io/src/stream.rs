//! Streams: bytes in order, from pipes, decoders and growing files.

use crate::view::Chunk;
use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::time::Duration;

/// Bytes that one read asks for.
const CHUNK: usize = 1 << 20;

/// Room in front of each chunk for the incomplete record at the end of the chunk before.
const HEADROOM: usize = 64 << 10;

/// Interval at which a wait for a decoder checks whether it should end.
const LOOK: Duration = Duration::from_millis(50);

/// Chunks in flight between a decoder's thread and the reader.
const IN_FLIGHT: usize = 4;

/// Source of successive chunks.
pub struct Stream {
    feed: Feed,
    stop: Arc<AtomicBool>,
    /// Offset of the next byte to read.
    offset: u64,
    ended: bool,
}

impl core::fmt::Debug for Stream {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Stream")
            .field("offset", &self.offset)
            .finish_non_exhaustive()
    }
}

enum Feed {
    Direct {
        source: Box<dyn Read + Send>,
    },
    Threaded {
        chunks: Receiver<Bytes>,
        spares: Sender<Vec<u8>>,
    },
}

/// Buffer with data from [`HEADROOM`] to the given end, or the error of the read.
type Bytes = io::Result<(Vec<u8>, usize)>;

impl Stream {
    /// Creates a stream that reads in the caller's thread, so that the latest bytes are seen at once. The stream ends early
    /// once `stop` is set.
    pub fn direct(source: impl Read + Send + 'static, stop: Arc<AtomicBool>) -> Self {
        Self {
            feed: Feed::Direct {
                source: Box::new(source),
            },
            stop,
            offset: 0,
            ended: false,
        }
    }

    /// Creates a stream that reads ahead in a thread of its own, so that a decoder runs at its own speed. The thread ends with
    /// the source, or when the stream is dropped. **Errors**: the thread cannot be started.
    pub fn threaded(source: Box<dyn Read + Send>, stop: Arc<AtomicBool>) -> io::Result<Self> {
        let (chunk_sender, chunks) = sync_channel(IN_FLIGHT);
        let (spares, spare_receiver) = channel();
        let decoder_stop = Arc::clone(&stop);
        let work = move || decode(source, &chunk_sender, &spare_receiver, &decoder_stop);
        std::thread::Builder::new()
            .name("decoder".to_owned())
            .spawn(work)
            .map_err(|error| {
                io::Error::new(
                    error.kind(),
                    format!("the decoder's thread cannot be started: {error}"),
                )
            })?;
        Ok(Self {
            feed: Feed::Threaded { chunks, spares },
            stop,
            offset: 0,
            ended: false,
        })
    }

    /// Returns whether the stream was stopped early; the last chunk may then end anywhere.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Returns the next bytes after `tail`; `tail` is the unused end of the chunk before.
    ///
    /// The chunk begins with `tail` and holds further bytes, unless the source has ended. `spent` is a buffer to reuse.
    /// **Cost**: copies `tail`, and the whole chunk if `tail` is longer than 64 KiB.
    pub fn next(&mut self, tail: &[u8], spent: Option<Vec<u8>>) -> io::Result<Chunk> {
        let start = self.offset - tail.len() as u64;
        let (mut buffer, mut end) = self.chunk(spent)?;
        if end == HEADROOM {
            self.ended = true;
        }
        self.offset += (end - HEADROOM) as u64;
        let mut begin = HEADROOM;
        if tail.len() <= HEADROOM {
            begin -= tail.len();
            buffer[begin..HEADROOM].copy_from_slice(tail);
        } else {
            let mut joined = Vec::new();
            joined.try_reserve_exact(tail.len() + end - HEADROOM)?;
            joined.extend_from_slice(tail);
            joined.extend_from_slice(&buffer[HEADROOM..end]);
            (begin, end) = (0, joined.len());
            buffer = joined;
        }
        Ok(Chunk::owned(start, self.ended, buffer, begin..end))
    }

    /// Returns `view` with more bytes appended, or marked as the end. **Cost**: copies the new bytes, and at the first call the
    /// whole chunk.
    pub fn more(&mut self, view: Chunk) -> io::Result<Chunk> {
        let (buffer, end) = self.chunk(None)?;
        self.ended = end == HEADROOM;
        self.offset += (end - HEADROOM) as u64;
        view.grown(&buffer[HEADROOM..end], self.ended)
    }

    /// Returns the next chunk; a chunk without data means the end.
    fn chunk(&mut self, spent: Option<Vec<u8>>) -> Bytes {
        if self.is_stopped() {
            return Ok((vec![0; HEADROOM], HEADROOM));
        }
        match &mut self.feed {
            Feed::Direct { source } => read_chunk(
                source.as_mut(),
                spent.unwrap_or_default(),
                false,
                &self.stop,
            ),
            Feed::Threaded { chunks, spares } => {
                if let Some(buffer) = spent {
                    // The thread may have ended already.
                    let _ = spares.send(buffer);
                }
                // The signal that sets `stop` interrupts a blocked read, but not a blocked receive.
                loop {
                    match chunks.recv_timeout(LOOK) {
                        Ok(chunk) => return chunk,
                        Err(RecvTimeoutError::Timeout) if !self.stop.load(Ordering::Relaxed) => {}
                        // The decoder reports the end of the source, so a closed channel without that report is an error.
                        Err(RecvTimeoutError::Disconnected) if !self.ended => {
                            return Err(io::Error::other(
                                "the decoder's thread ended with a panic: this is a mistake in weir",
                            ));
                        }
                        Err(_) => return Ok((vec![0; HEADROOM], HEADROOM)),
                    }
                }
            }
        }
    }
}

/// Fills `buffer` after the headroom: with one read, or, if `full`, until the buffer is full or the source ends.
fn read_chunk(source: &mut dyn Read, mut buffer: Vec<u8>, full: bool, stop: &AtomicBool) -> Bytes {
    if buffer.len() != HEADROOM + CHUNK {
        buffer.clear();
        buffer.try_reserve_exact(HEADROOM + CHUNK)?;
        buffer.resize(HEADROOM + CHUNK, 0);
    }
    let mut end = HEADROOM;
    while end < buffer.len() {
        match source.read(&mut buffer[end..]) {
            Ok(0) => break,
            Ok(n) => end += n,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                if stop.load(Ordering::Relaxed) {
                    break;
                }
                continue;
            }
            // Bytes decoded before the damage are delivered first; the next call meets the same error again.
            Err(_) if end > HEADROOM => break,
            Err(error) => return Err(error),
        }
        if !full {
            break;
        }
    }
    Ok((buffer, end))
}

fn decode(
    mut source: Box<dyn Read + Send>,
    chunks: &SyncSender<Bytes>,
    spares: &Receiver<Vec<u8>>,
    stop: &AtomicBool,
) {
    let mut failed = None;
    let mut remember = Remember {
        source: source.as_mut(),
        error: &mut failed,
    };
    loop {
        let chunk = read_chunk(
            &mut remember,
            spares.try_recv().unwrap_or_default(),
            true,
            stop,
        );
        let last = !matches!(&chunk, Ok((_, end)) if *end > HEADROOM);
        if chunks.send(chunk).is_err() || last {
            return;
        }
    }
}

/// Reader that repeats the first error for ever, because decoders need not repeat theirs.
struct Remember<'a> {
    source: &'a mut (dyn Read + Send),
    error: &'a mut Option<(io::ErrorKind, String)>,
}

impl Read for Remember<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if let Some((kind, text)) = self.error {
            return Err(io::Error::new(*kind, text.clone()));
        }
        let result = self.source.read(buf);
        if let Err(error) = &result
            && error.kind() != io::ErrorKind::Interrupted
        {
            *self.error = Some((error.kind(), error.to_string()));
        }
        result
    }
}
