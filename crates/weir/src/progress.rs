//! Progress of long work.

use crate::numbers::{bytes, duration, grouped, percent, rate};
use crate::outcome::show;
use crate::terminal::width;
use std::io::{self, IsTerminal};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use weir_engine::control::{Control, Snapshot};

/// A progress line on standard error, if that is a terminal.
#[derive(Debug)]
pub struct Progress {
    enabled: bool,
    begun: Instant,
    shown: Option<Instant>,
    whole: Option<u64>,
    screen: Screen,
}

impl Progress {
    const FIRST: Duration = Duration::from_millis(700);
    const EVERY: Duration = Duration::from_millis(150);

    /// Shows nothing if `busy`, because the terminal shows the results of the work.
    pub fn new(busy: bool) -> Self {
        Self {
            enabled: io::stderr().is_terminal() && !busy,
            begun: Instant::now(),
            shown: None,
            whole: None,
            screen: Screen::default(),
        }
    }

    /// Returns the terminal's line, for a [`Ticker`].
    pub fn screen(&self) -> Screen {
        self.screen.clone()
    }

    /// Begins a source of `whole` bytes, if that size is known.
    pub fn begin(&mut self, whole: Option<u64>) {
        self.whole = whole;
    }

    /// Shows that `offset` bytes of the source are done, at most once in 150 ms.
    pub fn show(&mut self, offset: u64) {
        let now = Instant::now();
        let due = match self.shown {
            None => now - self.begun > Self::FIRST,
            Some(last) => now - last > Self::EVERY,
        };
        if !self.enabled || !due {
            return;
        }
        self.shown = Some(now);
        let share = self.whole.map_or(String::new(), |whole| {
            format!(" ({})", percent(offset, whole))
        });
        show(&format!("\r{} read{share}\x1b[K", bytes(offset)));
    }

    /// Clears the progress line.
    pub fn clear(&mut self) {
        self.screen.clear();
        if self.shown.take().is_some() {
            show("\r\x1b[K");
        }
    }
}

/// Content of the terminal's last line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LastLine {
    #[default]
    Free,
    /// A progress line.
    Progress,
    /// An answer that is being printed.
    Answer,
}

/// The last line of a terminal, shared by the threads that write to it. No lock is held while a terminal may block a write of
/// an answer.
#[derive(Clone, Debug, Default)]
pub struct Screen(Arc<Mutex<LastLine>>);

impl Screen {
    fn line(&self) -> MutexGuard<'_, LastLine> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Draws a progress line, unless an answer is being printed.
    fn draw(&self, text: &str) {
        let mut line = self.line();
        if *line != LastLine::Answer {
            show(&format!("\r{text}\x1b[K"));
            *line = LastLine::Progress;
        }
    }

    /// Takes a progress line off the terminal.
    pub fn clear(&self) {
        let mut line = self.line();
        if *line == LastLine::Progress {
            show("\r\x1b[K");
            *line = LastLine::Free;
        }
    }

    /// Clears the progress line, and prints an answer.
    pub fn print<T>(&self, print: impl FnOnce() -> T) -> T {
        self.clear();
        *self.line() = LastLine::Answer;
        let printed = print();
        *self.line() = LastLine::Free;
        printed
    }
}

/// Thread that shows each second, on a terminal, what a capture has received, and that Ctrl-C ends it.
#[derive(Debug)]
pub struct Ticker {
    ends: Sender<()>,
    thread: JoinHandle<()>,
    screen: Screen,
}

impl Ticker {
    const EVERY: Duration = Duration::from_secs(1);
    /// Longest wait for the counts. A run that waits for an output does not answer.
    const WAIT: Duration = Duration::from_millis(300);

    /// Starts the thread if standard error is a terminal.
    pub fn start(screen: Screen, control: &Arc<Control>) -> Option<Self> {
        if !io::stderr().is_terminal() {
            return None;
        }
        let (ends, ended) = channel();
        let (control, drawn) = (Arc::clone(control), screen.clone());
        let begun = Instant::now();
        let draw = move || {
            let mut before = (0, begun);
            while ended.recv_timeout(Self::EVERY) == Err(RecvTimeoutError::Timeout) {
                if let Some(snapshot) = control.snapshot(Self::WAIT) {
                    let now = (received(&snapshot), Instant::now());
                    let per_s = (now.0 - before.0) as f64 / (now.1 - before.1).as_secs_f64();
                    drawn.draw(&capture_words(&snapshot, per_s, now.1 - begun));
                    before = now;
                }
            }
        };
        // Without the thread the capture goes on all the same.
        let thread = Builder::new()
            .name("progress".to_owned())
            .spawn(draw)
            .ok()?;
        Some(Self {
            ends,
            thread,
            screen,
        })
    }

    /// Ends the thread, and takes its line off the terminal.
    pub fn end(self) {
        drop(self.ends);
        // A panic of the thread has been printed.
        let _ = self.thread.join();
        self.screen.clear();
    }
}

fn received(snapshot: &Snapshot) -> u64 {
    let counts = snapshot.captures.iter();
    counts.map(|(_, counts)| counts.received).sum()
}

/// The counts of captures so far, cut to the width of the terminal.
fn capture_words(snapshot: &Snapshot, per_s: f64, time: Duration) -> String {
    let dropped = snapshot.captures.iter().map(|(_, counts)| counts.dropped);
    let mut words = format!(
        "{} received, {} per s, {} dropped, {}; Ctrl-C ends the run",
        grouped(received(snapshot)),
        rate(per_s),
        grouped(dropped.sum()),
        duration(time),
    );
    words.truncate(width(io::stderr()).map_or(words.len(), |width| width.saturating_sub(1)));
    words
}
