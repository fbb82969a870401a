//! Figures of another process, over its view socket.

use super::figures::Figures;
use crate::outcome::io_words;
use anyhow::{anyhow, bail};
use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::Builder;
use std::time::{Duration, Instant};
use weir_engine::socket::{Client, Error};
use weir_messages::viewing::{Answer, Facts, Question};
use weir_view::{Ask, Snapshot};

/// Time between two questions without a key.
const REFRESH: Duration = Duration::from_millis(500);

/// Time for which a picture waits for the answer to its question.
const PATIENCE: Duration = Duration::from_millis(300);

/// Time without an answer after which the screen shows a warning.
const SILENCE: Duration = Duration::from_secs(3);

/// A connection to a run. **Threads**: one asks; the screen waits for it as long as [`PATIENCE`] says.
#[derive(Debug)]
pub struct Attached {
    socket: String,
    state: Mutex<State>,
    /// Signals another question, an answer and the end.
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    wanted: Question,
    /// The latest question that was answered, and its answer.
    asked: Question,
    answer: Answer,
    answered: Instant,
    /// Why there are no more answers.
    gone: Option<String>,
    /// Whether the screen has ended.
    is_over: bool,
}

impl Attached {
    /// Connects to the run, and asks it once. **Errors**: no run listens there; it refuses; it is of another version of weir.
    pub fn connect(socket: &Path) -> anyhow::Result<(Arc<Self>, Asker)> {
        let name = socket.display();
        let mut client = Client::connect(socket).map_err(|error| match error {
            Error::NotListening { .. } => {
                anyhow!("{name}: no run of weir shows its view there: begin it with --view {name}")
            }
            error => error.into(),
        })?;
        let question = Question {
            ask: Ask {
                rows: 1,
                changes: 0,
                points: 1,
                ..Ask::default()
            },
            addresses: Vec::new(),
            is_plain: false,
        };
        let answer = ask(&mut client, &question).map_err(|why| anyhow!("{name}: {why}"))?;
        let attached = Arc::new(Self {
            socket: name.to_string(),
            state: Mutex::new(State {
                wanted: question.clone(),
                asked: question,
                answer,
                answered: Instant::now(),
                gone: None,
                is_over: false,
            }),
            changed: Condvar::new(),
        });
        let asker = Asker {
            attached: Arc::clone(&attached),
            client,
        };
        Ok((attached, asker))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for another question, at most the time between two.
    fn next(&self) -> Option<Question> {
        let state = self.state();
        let is_known = |state: &mut State| state.wanted.ask == state.asked.ask && !state.is_over;
        let waited = self.changed.wait_timeout_while(state, REFRESH, is_known);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        (!state.is_over).then(|| state.wanted.clone())
    }
}

/// Asks a question. **Errors**: why there is no answer, in words.
fn ask(client: &mut Client, question: &Question) -> Result<Answer, String> {
    match client.ask(&question.to_json()) {
        Ok(value) => Answer::of_json(&value),
        Err(Error::Io { error, .. }) => Err(match error.kind() {
            std::io::ErrorKind::UnexpectedEof | std::io::ErrorKind::BrokenPipe => {
                "the run has ended, or has ended this view".to_owned()
            }
            _ => io_words(&error),
        }),
        Err(error) => Err(error.to_string()),
    }
}

/// The end that asks, before its thread begins.
#[derive(Debug)]
pub struct Asker {
    attached: Arc<Attached>,
    client: Client,
}

impl Asker {
    /// Begins to ask, until the value that is returned is dropped.
    pub fn start(self) -> anyhow::Result<Asking> {
        let Self {
            attached,
            mut client,
        } = self;
        let asking = Asking(Arc::clone(&attached));
        let work = move || {
            while let Some(question) = attached.next() {
                let answer = ask(&mut client, &question);
                let mut state = attached.state();
                match answer {
                    Ok(answer) => {
                        (state.asked, state.answer) = (question, answer);
                        state.answered = Instant::now();
                    }
                    Err(why) => state.gone = Some(why),
                }
                attached.changed.notify_all();
                if state.gone.is_some() {
                    return;
                }
            }
        };
        match Builder::new().name("asking".to_owned()).spawn(work) {
            Ok(_) => Ok(asking),
            Err(error) => bail!("a thread that asks: {}", io_words(&error)),
        }
    }
}

/// Questions that go on.
#[derive(Debug)]
pub struct Asking(Arc<Attached>);

impl Drop for Asking {
    fn drop(&mut self) {
        // An answer that does not come holds up its thread alone.
        self.0.state().is_over = true;
        self.0.changed.notify_all();
    }
}

impl Figures for Attached {
    fn facts(&self) -> Facts {
        self.state().answer.facts.clone()
    }

    fn snapshot(&self, ask: &Ask) -> Option<Snapshot> {
        let mut state = self.state();
        state.wanted.ask = *ask;
        self.changed.notify_all();
        let is_unknown = |state: &mut State| state.asked.ask != *ask && state.gone.is_none();
        let waited = self.changed.wait_timeout_while(state, PATIENCE, is_unknown);
        let (state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let is_answered = state.asked.ask == *ask;
        state.answer.snapshot.clone().filter(|_| is_answered)
    }

    fn names(&self, addresses: Vec<IpAddr>) -> HashMap<IpAddr, String> {
        let mut state = self.state();
        state.wanted.addresses = addresses;
        state.answer.names.clone()
    }

    fn gone(&self) -> Option<String> {
        let state = self.state();
        let silent = state.answered.elapsed();
        let is_silent = silent > SILENCE;
        let why = state.gone.clone();
        let why =
            why.or_else(|| is_silent.then(|| format!("no answer for {} s", silent.as_secs())));
        why.map(|why| format!("{}: {why}", self.socket))
    }
}
