//! Writing in the background: a thread writes buffers while the next one is filled.

use super::PAGE;
use super::file::{self, DiskFile};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

/// Largest number of writes that wait or are in progress. While one is in progress, the next ones are there already, so that the disk
/// never waits for the recorder to wake up.
pub(super) const WRITES: usize = 3;

/// Bytes of a write, at an address that is a multiple of [`PAGE`].
#[derive(Debug)]
pub(super) struct Buffer {
    /// The bytes, behind `start` bytes that only fill up to the address.
    pub(super) bytes: Vec<u8>,
    pub(super) start: usize,
}

impl Buffer {
    /// An empty buffer with room for `room` bytes. More would move it to another address.
    pub(super) fn new(room: usize) -> Self {
        let mut bytes: Vec<u8> = Vec::with_capacity(room + PAGE);
        let start = bytes.as_ptr().align_offset(PAGE);
        bytes.resize(start, 0);
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
    /// Whether a write failed: nothing may be written behind the gap.
    has_failed: bool,
}

impl SharedFile {
    pub(super) fn new(file: Box<dyn DiskFile>) -> Self {
        Self(Arc::new(Mutex::new(Shared { file, has_failed: false })))
    }

    pub(super) fn sync(&self) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).file.sync()
    }

    pub(super) fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).file.set_len(len)
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

/// A thread that writes. When it is dropped, the writes in progress are awaited.
///
/// The thread starts with the first write: a process may open a directory before it gives up rights, which its threads would keep.
#[derive(Debug, Default)]
pub(super) struct Background {
    running: Option<Running>,
    /// Writes that were done at once, because no thread could be had.
    done: VecDeque<(Job, io::Result<()>)>,
}

#[derive(Debug)]
struct Running {
    jobs: SyncSender<Job>,
    done: Receiver<(Job, io::Result<()>)>,
    thread: JoinHandle<()>,
}

impl Running {
    fn start() -> io::Result<Self> {
        let (jobs, ahead) = sync_channel::<Job>(WRITES);
        let (report, done) = sync_channel(WRITES);
        let run = move || {
            while let Ok(job) = ahead.recv() {
                if report.send(write(job)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("weir-writes".into()).spawn(run)?;
        Ok(Self { jobs, done, thread })
    }
}

fn write(job: Job) -> (Job, io::Result<()>) {
    let written = job.file.write(&job.buffer.bytes[job.buffer.start..], job.offset);
    (job, written)
}

impl Background {
    /// Begins a write, of which at most [`WRITES`] are in progress. The caller takes them back with [`Self::finished`], in their order.
    pub(super) fn begin(&mut self, job: Job) {
        if self.running.is_none() {
            self.running = Running::start().ok();
        }
        match &self.running {
            Some(running) => {
                let sent = running.jobs.send(job).is_ok();
                assert!(sent, "the thread ends when it is dropped");
            }
            None => self.done.push_back(write(job)),
        }
    }

    /// The oldest write that was begun, with its result; if `wait` is not set, `None` while it is in progress.
    pub(super) fn finished(&mut self, wait: bool) -> Option<(Job, io::Result<()>)> {
        if let Some(done) = self.done.pop_front() {
            return Some(done);
        }
        let done = &self.running.as_ref()?.done;
        if wait { done.recv().ok() } else { done.try_recv().ok() }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        if let Some(Running { jobs, thread, .. }) = self.running.take() {
            drop(jobs);
            // A panic of a file's implementation ends here; the write counts as not done.
            let _ = thread.join();
        }
    }
}
