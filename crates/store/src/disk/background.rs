//! Writing in the background: a thread writes one buffer while the next one is filled.

use super::file::{self, DiskFile};
use super::{PAGE, mark};
use std::io;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};

/// Bytes of a write, at an address that is a multiple of [`PAGE`].
#[derive(Debug)]
pub(super) struct Buffer {
    /// The bytes, behind `start` bytes that only fill up to the address.
    pub(super) bytes: Vec<u8>,
    pub(super) start: usize,
    /// Begin of each block, and of the mark behind it.
    pub(super) blocks: Vec<(usize, usize)>,
}

impl Buffer {
    /// An empty buffer with room for `room` bytes. More would move it to another address.
    pub(super) fn new(room: usize) -> Self {
        let mut bytes: Vec<u8> = Vec::with_capacity(room + PAGE);
        let start = bytes.as_ptr().align_offset(PAGE);
        bytes.resize(start, 0);
        Self { bytes, start, blocks: Vec::new() }
    }

    #[inline]
    pub(super) fn len(&self) -> usize {
        self.bytes.len() - self.start
    }

    pub(super) fn clear(&mut self) {
        self.bytes.truncate(self.start);
        self.blocks.clear();
    }
}

/// A file and bytes to write to it.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) file: Box<dyn DiskFile>,
    pub(super) buffer: Buffer,
    pub(super) offset: u64,
}

/// A thread that writes, and computes the checksums in front of that. When it is dropped, the write in progress is awaited.
///
/// The thread starts with the first write: a process may open a directory before it gives up rights, which its threads would keep.
#[derive(Debug, Default)]
pub(super) struct Background {
    running: Option<Running>,
    /// A write that was done at once, because no thread could be had.
    done: Option<(Job, io::Result<()>)>,
}

#[derive(Debug)]
struct Running {
    jobs: SyncSender<Job>,
    done: Receiver<(Job, io::Result<()>)>,
    thread: JoinHandle<()>,
}

impl Running {
    fn start() -> io::Result<Self> {
        let (jobs, ahead) = sync_channel::<Job>(1);
        let (report, done) = sync_channel(1);
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

fn write(mut job: Job) -> (Job, io::Result<()>) {
    for &(block, mark) in &job.buffer.blocks {
        mark::seal(&mut job.buffer.bytes, block, mark);
    }
    let written = file::write_all(job.file.as_mut(), &job.buffer.bytes[job.buffer.start..], job.offset);
    (job, written)
}

impl Background {
    /// Begins a write. The caller takes it back with [`Self::finished`] before it begins another one.
    pub(super) fn begin(&mut self, job: Job) {
        if self.running.is_none() {
            self.running = Running::start().ok();
        }
        match &self.running {
            Some(running) => {
                let sent = running.jobs.send(job).is_ok();
                assert!(sent, "the thread ends when it is dropped");
            }
            None => self.done = Some(write(job)),
        }
    }

    /// The write that was begun, with its result; if `wait` is not set, `None` while it is in progress.
    pub(super) fn finished(&mut self, wait: bool) -> Option<(Job, io::Result<()>)> {
        if let Some(done) = self.done.take() {
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
