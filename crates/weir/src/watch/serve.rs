//! A view socket: a run that shows its figures to viewers in other processes.

use super::figures::Figures;
use super::shared::Shared;
use crate::outcome::{io_words, say, say_plain};
use crate::walls::Walls;
use anyhow::{anyhow, bail};
use serde_json::Value;
use std::os::unix::fs::lchown;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::sleep;
use std::time::{Duration, Instant};
use weir_engine::name::Name;
use weir_engine::socket::{self, Bound, Error, Reply, Server};
use weir_io::sys::privilege;
use weir_messages::viewing::{Question, answer_json, snapshot_json};
use weir_view::Ask;

/// Group whose users may look.
const GROUP: &str = "weir";

/// Most viewers, and the time after which a viewer that asks nothing yields to another.
const VIEWERS: usize = 16;
const IDLE: Duration = Duration::from_secs(10);

/// Pause after a snapshot, in times of the time that it took: viewers together take a tenth of a processor at most.
const PAUSE: u32 = 9;

/// A view socket on which nobody is answered yet.
#[derive(Debug)]
pub struct Waiting {
    bound: Bound,
}

/// Makes the view socket, if there is to be one. **Errors**: the path is in use, or is the control socket's.
pub fn bind(
    path: Option<&Name>,
    control: Option<&Name>,
    walls: &Walls,
) -> anyhow::Result<Option<Waiting>> {
    let Some(name) = path else { return Ok(None) };
    if control == Some(name) {
        bail!("{name} is the control socket: --view takes another path, since viewers only look");
    }
    let path = Path::new(name);
    let group = privilege::group_named(GROUP).unwrap_or_default();
    let bound = Bound::new_shared(path, group).map_err(|error| match error {
        Error::InUse { .. } => anyhow!("{name}: another process listens there: --view PATH"),
        error => error.into(),
    })?;
    if let Some((user, _)) = walls.user() {
        // The socket stays the group's.
        lchown(path, Some(user), None).map_err(|error| anyhow!("{name}: {}", io_words(&error)))?;
    }
    Ok(Some(Waiting { bound }))
}

impl Waiting {
    /// Begins to answer viewers.
    pub fn serve(self, shared: &Arc<Shared>) -> anyhow::Result<Serving> {
        let path = self.bound.path().display().to_string();
        let who = match self.bound.is_shared() {
            true => "group weir may look",
            false => "its user may look",
        };
        let settings = socket::Settings {
            connections: VIEWERS,
            idle: IDLE,
            ..socket::Settings::default()
        };
        let (shared, turn) = (Arc::clone(shared), Mutex::new(None));
        let server = self.bound.serve(settings, move |request: Value| {
            match Question::of_json(&request) {
                Ok(question) => Reply::Done(answer(&question, &shared, &turn)),
                Err(why) => Reply::Refused(why),
            }
        })?;
        say_plain(&format!("view socket: {path} ({who})"));
        Ok(Serving { server })
    }
}

/// The latest snapshot that was sent: its question, the windows and the part of the past at its time, and its form in an answer.
type Sent = Option<(Ask, (u64, u64), Value)>;

/// Answers viewers in turn: at most one at a time asks for the view, which the run adds to. Viewers with the same question share an answer
/// until the next window.
fn answer(question: &Question, shared: &Shared, turn: &Mutex<Sent>) -> Value {
    let facts = shared.facts();
    let names = shared.names(question.addresses.clone());
    let state = (facts.windows, facts.parts);
    let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
    let known = turn
        .as_ref()
        .filter(|(ask, then, _)| (ask, then) == (&question.ask, &state));
    if let (Some((.., sent)), false) = (known, question.is_plain) {
        return answer_json(&facts, sent.clone(), &names);
    }
    let begun = Instant::now();
    let snapshot = shared.snapshot(&question.ask);
    let value = match question.is_plain {
        true => snapshot.map_or(Value::Null, |snapshot| {
            let place = facts.is_live.then_some(facts.place.as_str());
            weir_messages::view::json(&snapshot, place)
        }),
        false => {
            let sent = snapshot_json(snapshot.as_ref());
            *turn = Some((question.ask, state, sent.clone()));
            answer_json(&facts, sent, &names)
        }
    };
    sleep(begun.elapsed() * PAUSE);
    value
}

/// A view socket that answers. Dropping it removes the socket, and ends the connections.
#[derive(Debug)]
pub struct Serving {
    server: Server,
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.server.stop();
        let unread = self.server.unread();
        if unread > 0 {
            say(&format!(
                "viewers that read no answer for 10 s, and were ended: {unread}"
            ));
        }
    }
}
