//! Worker threads that process the windows of a file ahead of the reader.

use crate::reader::{AccessMode, Current, SourceError};
use crate::window::{Start, Window, process};
use crate::{Consumer, threads};
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use weir_io::Chunk;
use weir_io::input::PlainFile;

/// Returned buffers. If there is none, a worker makes one, so there are as many buffers as windows
/// in flight.
type Spares = Arc<Mutex<Vec<Vec<u8>>>>;

/// Number of windows per worker that are handed out ahead: one in work, one waiting.
const AHEAD: u64 = 2;

/// Result of a worker for one window.
pub(crate) struct Ready<C: Consumer> {
    pub current: Arc<Current<C::Plan>>,
    pub result: Result<(Chunk, Window<C::Part>), SourceError>,
}

impl<C: Consumer> Ready<C> {
    fn packets(&self) -> u64 {
        self.result
            .as_ref()
            .map_or(0, |(_, window)| window.received + window.reread)
    }
}

struct Task<P> {
    index: u64,
    current: Arc<Current<P>>,
}

/// The workers of one file. The workers end when the pool is dropped.
pub(crate) struct Pool<C: Consumer> {
    tasks: Sender<Task<C::Plan>>,
    ready: Receiver<(u64, Ready<C>)>,
    /// Results that arrived before their turn.
    early: BTreeMap<u64, Ready<C>>,
    /// Number of the next window to hand out.
    next: u64,
    /// Number of the first window whose result was not taken.
    untaken: u64,
    windows: u64,
    ahead: u64,
    /// Buffers for reuse.
    spares: Spares,
    /// Number of packets in results that were never taken.
    wasted: u64,
}

impl<C: Consumer> Pool<C> {
    /// Starts `workers` threads for the windows of `file` from `first` on. **Errors**: a thread cannot be started.
    pub fn start(
        consumer: &Arc<C>,
        file: &PlainFile,
        way: AccessMode,
        workers: usize,
        cpus: &[usize],
        first: u64,
    ) -> io::Result<Self> {
        let (tasks, queue) = channel::<Task<C::Plan>>();
        let queue = Arc::new(Mutex::new(queue));
        let (results, ready) = channel();
        let spares = Spares::default();
        for worker in 0..workers {
            let (consumer, file) = (Arc::clone(consumer), file.clone());
            let (queue, results, spares) =
                (Arc::clone(&queue), results.clone(), Arc::clone(&spares));
            threads::spawn_pinned("worker", worker, cpus, move || {
                loop {
                    let task = queue
                        .lock()
                        .expect("no worker panics with the lock held")
                        .recv();
                    let Ok(Task { index, current }) = task else {
                        return;
                    };
                    let buffer = spares
                        .lock()
                        .expect("no one panics with the lock held")
                        .pop()
                        .unwrap_or_default();
                    // Each task sends a result, even after a panic, because the reader waits for the result of this window.
                    let work = || {
                        work(consumer.as_ref(), &file, way, index, &current, buffer)
                            .map_err(SourceError::Io)
                    };
                    let result = threads::caught(work).unwrap_or(Err(SourceError::Panic {
                        thread: "worker",
                        number: worker,
                    }));
                    if results.send((index, Ready { current, result })).is_err() {
                        return;
                    }
                }
            })?;
        }
        let windows = file.len.div_ceil(way.window());
        let ahead = workers as u64 * AHEAD;
        Ok(Self {
            tasks,
            ready,
            early: BTreeMap::new(),
            next: first,
            untaken: first,
            windows,
            ahead,
            spares,
            wasted: 0,
        })
    }

    /// Takes a buffer back, unless there are already as many as windows that can be in flight.
    pub fn give_back(&mut self, buffer: Vec<u8>) {
        let mut spares = self
            .spares
            .lock()
            .expect("no one panics with the lock held");
        if (spares.len() as u64) < self.ahead {
            spares.push(buffer);
        }
    }

    /// Returns a buffer for reuse, if there is one.
    pub fn spare(&self) -> Option<Vec<u8>> {
        self.spares
            .lock()
            .expect("no one panics with the lock held")
            .pop()
    }

    /// Returns the number of packets in results that were dropped since the last call.
    pub fn wasted(&mut self) -> u64 {
        std::mem::take(&mut self.wasted)
    }

    /// Waits for the result of window `index`, and hands out the windows ahead of it under the layout `current`.
    ///
    /// Returns `None` if that result was taken already, or if the workers are gone. Results of windows before `index` are dropped.
    pub fn take(&mut self, index: u64, current: &Arc<Current<C::Plan>>) -> Option<Ready<C>> {
        if index < self.untaken {
            return None;
        }
        self.untaken = index + 1;
        self.next = self.next.max(index);
        while self.next < self.windows.min(index + self.ahead) {
            self.tasks
                .send(Task {
                    index: self.next,
                    current: Arc::clone(current),
                })
                .ok()?;
            self.next += 1;
        }
        loop {
            if let Some(ready) = self.early.remove(&index) {
                let later = self.early.split_off(&index);
                self.wasted += std::mem::replace(&mut self.early, later)
                    .values()
                    .map(Ready::packets)
                    .sum::<u64>();
                return Some(ready);
            }
            let (done, ready) = self.ready.recv().ok()?;
            if done >= index {
                self.early.insert(done, ready);
            } else {
                self.wasted += ready.packets();
            }
        }
    }
}

fn work<C: Consumer>(
    consumer: &C,
    file: &PlainFile,
    way: AccessMode,
    index: u64,
    current: &Current<C::Plan>,
    buffer: Vec<u8>,
) -> io::Result<(Chunk, Window<C::Part>)> {
    let offset = index * way.window();
    let view = way.view(file, offset, way.window() as usize + way.overhang(), buffer)?;
    let limit = view.bytes().len().min(way.window() as usize);
    let window = process(
        consumer,
        current,
        view.content(),
        view.eof,
        Start::Guess(0),
        limit,
        0,
    );
    Ok((view, window))
}
