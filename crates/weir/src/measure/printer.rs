//! A thread that prints the windows of a capture, so that a blocked standard output does not hold up the capture.

use crate::outcome::print;
use crate::progress::Screen;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::{Builder, JoinHandle};
use weir_messages::measured::MOST_WAITING;

/// A thread that prints texts in their order.
#[derive(Debug)]
pub struct Printer {
    texts: Sender<String>,
    /// Texts not printed yet.
    waiting: Arc<AtomicUsize>,
    thread: JoinHandle<io::Result<()>>,
}

impl Printer {
    /// Starts the thread, which takes a progress line off `screen` first. If standard output fails, the thread sets `stop` and ends. **Errors**: the thread cannot be
    /// started.
    pub fn start(stop: &Arc<AtomicBool>, screen: Screen) -> io::Result<Self> {
        let (texts, receiver) = channel::<String>();
        let waiting = Arc::<AtomicUsize>::default();
        let (printed, stop) = (Arc::clone(&waiting), Arc::clone(stop));
        let thread = Builder::new().name("printer".to_owned()).spawn(move || {
            for text in receiver {
                let done = screen.print(|| print(&text));
                done.inspect_err(|_| stop.store(true, Ordering::Relaxed))?;
                printed.fetch_sub(1, Ordering::Relaxed);
            }
            Ok(())
        })?;
        Ok(Self {
            texts,
            waiting,
            thread,
        })
    }

    /// Whether the queue of texts is full.
    pub fn is_full(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) >= MOST_WAITING
    }

    /// Adds a text to the queue. After a failed print the text is lost, and [`finish`](Self::finish) returns the error.
    pub fn add(&self, text: String) {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        drop(self.texts.send(text));
    }

    /// Waits until all texts are printed. **Errors**: the error of the first failed print, also if
    /// a stop signal ended a blocked print.
    pub fn finish(self) -> io::Result<()> {
        drop(self.texts);
        self.thread.join().unwrap_or_else(|_| {
            Err(io::Error::other(
                "the thread that prints ended with a panic",
            ))
        })
    }
}
