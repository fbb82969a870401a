//! Writing in the background: a thread writes one buffer while the next one is filled.

use super::PAGE;
use super::file::{self, DiskFile};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

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

/// A file and bytes to write to it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: Box<dyn DiskFile>,
    pub(super) buffer: Buffer,
    pub(super) offset: u64,
}

/// A thread that writes. When it is dropped, the write in progress is awaited.
#[derive(Debug)]
pub(super) struct Background {
    jobs: Option<SyncSender<Job>>,
    done: Receiver<(Job, io::Result<()>)>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(super) fn start() -> io::Result<Self> {
        let (jobs, ahead) = sync_channel::<Job>(1);
        let (report, done) = sync_channel(1);
        let run = move || {
            while let Ok(mut job) = ahead.recv() {
                let written = file::write_all(job.file.as_mut(), &job.buffer.bytes[job.buffer.start..], job.offset);
                if report.send((job, written)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("weir-disk".into()).spawn(run)?;
        Ok(Self { jobs: Some(jobs), done, thread: Some(thread) })
    }

    /// Begins a write. The caller takes it back with [`Self::finished`] before it begins another one.
    pub(super) fn begin(&self, job: Job) {
        let sent = self.jobs.as_ref().map(|jobs| jobs.send(job).is_ok());
        assert!(sent == Some(true), "the thread ends when it is dropped");
    }

    /// The write that was begun, with its result; if `wait` is not set, `None` while it is in progress.
    pub(super) fn finished(&self, wait: bool) -> Option<(Job, io::Result<()>)> {
        if wait { self.done.recv().ok() } else { self.done.try_recv().ok() }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic of a file's implementation ends here; the write counts as not done.
            let _ = thread.join();
        }
    }
}
