//! Work in the background: one thread writes a buffer while the recorder fills the next; another
//! makes the index of a closed segment.

use super::file::{self, DiskFile};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use weir_memory::{HUGE, advise_huge};

/// Largest number of writes that wait or are in progress. While one write is in progress, further
/// writes are waiting, so that the disk never waits for the recorder to wake up.
pub(super) const WRITES: usize = 3;

/// Bytes of a write, at an address that is a multiple of [`PAGE`](super::PAGE), as writes past the page cache need it.
#[derive(Debug)]
pub(super) struct Buffer {
    /// The bytes, after `start` bytes that only fill up to the address.
    pub(super) bytes: Vec<u8>,
    pub(super) start: usize,
}

impl Buffer {
    /// An empty buffer with room for `room` bytes, on huge pages if there are any. More would move it to another address.
    pub(super) fn new(room: usize) -> Self {
        // Zeroed memory comes untouched from the kernel, so that what lies in front of the first huge page costs nothing.
        let mut bytes = vec![0; room.next_multiple_of(HUGE) + HUGE];
        let start = bytes.as_ptr().align_offset(HUGE);
        bytes.truncate(start);
        advise_huge(bytes.spare_capacity_mut());
        Self { bytes, start }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(super) fn clear(&mut self) {
        self.bytes.truncate(self.start);
    }
}

/// A file that the recorder uses while no write to it is in progress.
#[derive(Clone, Debug)]
pub(super) struct SharedFile(Arc<Mutex<Shared>>);

#[derive(Debug)]
struct Shared {
    file: Box<dyn DiskFile>,
    /// Whether a write failed: nothing may be written after the gap.
    has_failed: bool,
}

impl SharedFile {
    pub(super) fn new(file: Box<dyn DiskFile>) -> Self {
        Self(Arc::new(Mutex::new(Shared {
            file,
            has_failed: false,
        })))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .file
            .sync()
    }

    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .file
            .set_len(len)
    }

    fn write(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let mut shared = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if shared.has_failed {
            return Err(io::Error::other("a write before this one failed"));
        }
        let written = file::write_all(shared.file.as_mut(), bytes, offset);
        shared.has_failed = written.is_err();
        written
    }
}

/// A file and bytes to write to it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: SharedFile,
    pub(super) buffer: Buffer,
    pub(super) offset: u64,
}

/// A job with its result.
pub(super) type Written = (Job, io::Result<()>);

/// Writes the bytes of a job.
pub(super) fn write(job: Job) -> Written {
    let written = job
        .file
        .write(&job.buffer.bytes[job.buffer.start..], job.offset);
    (job, written)
}

/// A thread that does work of one kind, in order. When it is dropped, the work in progress is awaited.
///
/// The thread starts with the first work: a process may open a directory before it gives up rights, which its threads would keep.
#[derive(Debug)]
pub(super) struct Background<T, R> {
    name: &'static str,
    work: fn(T) -> R,
    /// Largest amount of work that waits or is in progress.
    most: usize,
    running: Option<Running<T, R>>,
    /// Results of work that was done at once, because no thread could be obtained.
    done: VecDeque<R>,
}

#[derive(Debug)]
struct Running<T, R> {
    work: SyncSender<T>,
    done: Receiver<R>,
    thread: JoinHandle<()>,
}

impl<T: Send + 'static, R: Send + 'static> Running<T, R> {
    fn start(name: &'static str, run: fn(T) -> R, most: usize) -> io::Result<Self> {
        let (work, ahead) = sync_channel::<T>(most);
        let (report, done) = sync_channel(most);
        let run = move || {
            while let Ok(work) = ahead.recv() {
                if report.send(run(work)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name(name.into()).spawn(run)?;
        Ok(Self { work, done, thread })
    }
}

impl<T: Send + 'static, R: Send + 'static> Background<T, R> {
    /// A thread of this name that will do `work`, of which at most `most` waits or is in progress.
    pub(super) fn new(name: &'static str, work: fn(T) -> R, most: usize) -> Self {
        Self {
            name,
            work,
            most,
            running: None,
            done: VecDeque::new(),
        }
    }

    /// Begins with some work. The caller takes the results back with [`Self::finished`], in their order.
    pub(super) fn begin(&mut self, work: T) {
        if self.running.is_none() {
            self.running = Running::start(self.name, self.work, self.most).ok();
        }
        match &self.running {
            Some(running) => {
                let sent = running.work.send(work).is_ok();
                assert!(sent, "the thread ends when it is dropped");
            }
            None => self.done.push_back((self.work)(work)),
        }
    }

    /// Result of the oldest work that was begun; if `wait` is not set, `None` while it is in progress.
    pub(super) fn finished(&mut self, wait: bool) -> Option<R> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        let done = &self.running.as_ref()?.done;
        if wait {
            done.recv().ok()
        } else {
            done.try_recv().ok()
        }
    }
}

impl<T, R> Drop for Background<T, R> {
    fn drop(&mut self) {
        if let Some(Running { work, thread, .. }) = self.running.take() {
            drop(work);
            // A panic of a file's implementation ends here; the write counts as not done.
            let _ = thread.join();
        }
    }
}
