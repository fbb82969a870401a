//! Lines that would be printed while the screen is drawn: they are kept for its line, and printed after it.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, PipeReader, Read};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use weir_io::sys::terminal::Diverted;

/// Most lines kept, and most bytes of a line.
const MOST: usize = 200;
const LONGEST: u64 = 4096;

/// Time for which a message is on the screen.
const SHOWN: Duration = Duration::from_secs(10);

/// The last lines.
#[derive(Debug, Default)]
pub struct Lines(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    lines: VecDeque<String>,
    left_out: u64,
    latest: Option<Instant>,
}

impl Lines {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a line. Of many, the first are left out.
    pub fn push(&self, line: String) {
        let mut kept = self.kept();
        kept.latest = Some(Instant::now());
        kept.lines.push_back(line);
        if kept.lines.len() > MOST {
            kept.lines.pop_front();
            kept.left_out += 1;
        }
    }

    /// The latest line, for some seconds.
    pub fn latest(&self) -> Option<String> {
        let kept = self.kept();
        kept.latest.filter(|latest| latest.elapsed() < SHOWN)?;
        kept.lines.back().cloned()
    }

    /// Takes the lines, and the number of those left out before them.
    pub fn take(&self) -> (u64, VecDeque<String>) {
        let kept = std::mem::take(&mut *self.kept());
        (kept.left_out, kept.lines)
    }
}

/// Standard error that goes to memory.
#[derive(Debug)]
pub struct Messages {
    kept: Arc<Lines>,
    diverted: Option<Diverted>,
    thread: Option<JoinHandle<()>>,
}

impl Messages {
    /// Takes standard error. **Errors**: there is no pipe, or no thread.
    pub fn take() -> io::Result<Self> {
        let (reader, writer) = io::pipe()?;
        let kept = Arc::<Lines>::default();
        let lines = Arc::clone(&kept);
        let thread = Builder::new()
            .name("messages".to_owned())
            .spawn(move || keep(reader, &lines))?;
        let diverted = Some(Diverted::to(&writer)?);
        Ok(Self {
            kept,
            diverted,
            thread: Some(thread),
        })
    }

    /// The latest message, for some seconds.
    pub fn latest(&self) -> Option<String> {
        self.kept.latest()
    }

    /// Gives standard error back, and returns what was printed.
    pub fn end(&mut self) -> Vec<String> {
        drop(self.diverted.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        let (left_out, lines) = self.kept.take();
        let before = (left_out > 0).then(|| format!("weir: {left_out} earlier messages"));
        before.into_iter().chain(lines).collect()
    }
}

/// Reads to the end of the pipe, so that nothing that prints ever waits.
fn keep(reader: PipeReader, kept: &Lines) {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LONGEST).read_until(b'\n', &mut line) {
            Ok(1..) => {}
            _ => return,
        }
        kept.push(String::from_utf8_lossy(&line).trim_end().to_owned());
    }
}
