//! Design `rss`: each worker reads, filters and counts its own pieces of the source.

use super::keys::KeyChange;
use super::worker::{Closed, Piece, Worker};
use super::{Ended, Event, Failure, Goodbye, WorkerPool};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use weir_io::Chunk;

/// Number of pieces that one worker may have at once: one in work, one waiting.
const AHEAD: usize = 2;

enum Task {
    Slice(Piece),
    Close(i64),
    Replace(Arc<KeyChange>),
}

/// Message of a worker.
enum Message {
    /// A piece is done; its chunk comes back.
    Slice(Option<Chunk>, Result<(), weir_measure::Error>),
    Closed(Closed),
    Ended(Ended),
    Failed(weir_measure::Error),
    Died,
}

/// The workers and their tasks.
pub(super) struct Slices {
    tasks: Vec<Option<Sender<Task>>>,
    waiting: Vec<usize>,
    words: Receiver<(usize, Message)>,
}

impl Slices {
    pub fn start(workers: Vec<Worker>, cpus: &[usize]) -> Result<Self, Failure> {
        let (say, words) = channel();
        let waiting = vec![0; workers.len()];
        let tasks = workers.into_iter().enumerate().map(|(id, worker)| {
            let (tasks, queue) = channel();
            let say = say.clone();
            super::spawn(cpus, id, move || serve(worker, &queue, id, &say))?;
            Ok(Some(tasks))
        });
        Ok(Self {
            tasks: tasks.collect::<Result<_, Failure>>()?,
            waiting,
            words,
        })
    }

    fn send(&mut self, worker: usize, task: Task) -> Result<(), Failure> {
        let tasks = self.tasks[worker].as_ref().ok_or(Failure::Worker)?;
        tasks.send(task).map_err(|_| Failure::Worker)
    }

    fn event(&mut self, (worker, word): (usize, Message)) -> Result<Event, Failure> {
        match word {
            Message::Slice(view, result) => {
                self.waiting[worker] -= 1;
                result?;
                Ok(Event::Piece(view))
            }
            Message::Closed(closed) => Ok(Event::Closed(worker, closed)),
            Message::Ended(ended) => Ok(Event::Ended(ended)),
            Message::Failed(error) => Err(Failure::Later(error)),
            Message::Died => Err(Failure::Panic(worker)),
        }
    }
}

impl WorkerPool for Slices {
    fn members(&self) -> usize {
        self.tasks.len()
    }

    fn take(&mut self, piece: Piece, events: &mut Vec<Event>) -> Result<(), Failure> {
        let least = loop {
            let least = (0..self.waiting.len())
                .min_by_key(|&worker| self.waiting[worker])
                .expect("there are workers");
            if self.waiting[least] < AHEAD {
                break least;
            }
            let word = self.words.recv().map_err(|_| Failure::Worker)?;
            events.push(self.event(word)?);
        };
        self.waiting[least] += 1;
        self.send(least, Task::Slice(piece))
    }

    fn close(&mut self, before: i64, _: &mut Vec<Event>) -> Result<(), Failure> {
        (0..self.tasks.len()).try_for_each(|worker| self.send(worker, Task::Close(before)))
    }

    fn replace(&mut self, change: &Arc<KeyChange>, _: &mut Vec<Event>) -> Result<(), Failure> {
        (0..self.tasks.len())
            .try_for_each(|worker| self.send(worker, Task::Replace(Arc::clone(change))))
    }

    fn events(&mut self, wait: bool, events: &mut Vec<Event>) -> Result<(), Failure> {
        if wait {
            let word = self.words.recv().map_err(|_| Failure::Worker)?;
            events.push(self.event(word)?);
        }
        while let Ok(word) = self.words.try_recv() {
            events.push(self.event(word)?);
        }
        Ok(())
    }

    fn end(&mut self) {
        self.tasks.iter_mut().for_each(|tasks| *tasks = None);
    }
}

fn serve(mut worker: Worker, tasks: &Receiver<Task>, id: usize, say: &Sender<(usize, Message)>) {
    let _goodbye = Goodbye(|| drop(say.send((id, Message::Died))));
    while let Ok(task) = tasks.recv() {
        let word = match task {
            Task::Slice(piece) => {
                let result = worker.slice(&piece);
                // A block returns to the kernel now, not only at the reader's next step.
                Message::Slice(piece.view().map(Chunk::release), result)
            }
            Task::Close(before) => Message::Closed(worker.close(before)),
            Task::Replace(change) => worker
                .replace(&change)
                .map_or_else(Message::Failed, Message::Closed),
        };
        if say.send((id, word)).is_err() {
            return;
        }
    }
    let Worker {
        aggregate, timing, ..
    } = worker;
    let _ = say.send((
        id,
        Message::Ended(Ended {
            processed: aggregate.taken(),
            timing,
            health: None,
        }),
    ));
}
