//! The thread of the screen: keys in, pictures out.

use super::System;
use super::messages::Messages;
use super::shared::{Shared, SourceFacts};
use crate::outcome::{io_words, say, show, slow_compilation};
use crate::terminal::printable;
use anyhow::anyhow;
use jiff::Timestamp;
use std::fmt;
use std::io::{self, Read, Write};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use weir_engine::control::Control;
use weir_filter::Names;
use weir_io::sys::packet_socket::Carrier;
use weir_io::sys::terminal::{self, Raw, Waited};
use weir_io::sys::writer::Writer;
use weir_measure::{KeyKind, Setting};
use weir_pipeline::select;
use weir_pipeline::threads::unless_stopped;
use weir_screen::{
    About, Buffer, Effect, Keys, Look, Rect, Scene, Status, Tab, Ui, ansi, draw, points,
};
use weir_view::{Ask, Snapshot};

/// Time between two pictures without a key.
const REFRESH: Duration = Duration::from_millis(500);

/// Time after which a lone escape is a key.
const ESCAPE: Duration = Duration::from_millis(50);

/// Longest wait for a change of the run.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time without a packet after which the link is called idle.
const IDLE: Duration = Duration::from_secs(3);

/// Most rows of a table, and points of the history of a row.
const ROWS: usize = 200;
const HISTORY: usize = 10;

/// Options of the screen from the command line.
#[derive(Clone, Debug)]
pub struct Start {
    pub sources: String,
    pub filter: String,
    pub is_live: bool,
    pub has_sides: bool,
    pub look: Look,
    pub at: Option<i64>,
}

/// Facts about the open sources.
pub struct Facts {
    pub names: Names,
    pub link_bits_per_s: Option<f64>,
    pub system: System,
}

/// A screen that is drawn.
#[derive(Debug)]
pub struct Running {
    shared: Arc<Shared>,
    stop: Arc<AtomicBool>,
    leaves: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
    messages: Option<Arc<std::sync::Mutex<Messages>>>,
}

/// Begins the screen.
pub fn start(
    start: &Start,
    facts: Facts,
    shared: &Arc<Shared>,
    (control, stop): (&Arc<Control>, &Arc<AtomicBool>),
) -> anyhow::Result<Running> {
    let failed = |error: io::Error| anyhow!("the terminal: {}", io_words(&error));
    // A standard error that goes elsewhere does not disturb the screen.
    let shares = io::IsTerminal::is_terminal(&io::stderr());
    let messages = shares.then(Messages::take).transpose().map_err(failed)?;
    let messages = messages.map(|messages| Arc::new(std::sync::Mutex::new(messages)));
    let leaves = Arc::<AtomicBool>::default();
    let mut ui = Ui::new(start.look);
    ui.go_to(start.at);
    let session = Session {
        about: About {
            sources: start.sources.clone(),
            link_bits_per_s: facts.link_bits_per_s,
            has_sides: start.has_sides,
            filter: start.filter.clone(),
            ..About::default()
        },
        is_live: start.is_live,
        look: start.look,
        system: facts.system,
        names: facts.names,
        begun: Instant::now(),
        ui,
        shown: None,
        shared: Arc::clone(shared),
        control: Arc::clone(control),
        stop: Arc::clone(stop),
        leaves: Arc::clone(&leaves),
        messages: messages.clone(),
    };
    let terminal = Terminal::take().map_err(failed)?;
    let thread = Builder::new().name("screen".to_owned()).spawn(move || {
        let _stops = Stops(Arc::clone(&session.stop));
        session.run(terminal)
    });
    Ok(Running {
        shared: Arc::clone(shared),
        stop: Arc::clone(stop),
        leaves,
        thread: Some(thread.map_err(failed)?),
        messages,
    })
}

/// Ends the run when the screen ends, however it ends.
struct Stops(Arc<AtomicBool>);

impl Drop for Stops {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Running {
    /// Waits for the user to end the screen, unless the run was stopped. The terminal is as before then, and shows the messages of
    /// the meantime. **Errors**: the screen could not be drawn.
    pub fn finish(mut self) -> io::Result<()> {
        self.shared.end();
        self.end()
    }

    fn end(&mut self) -> io::Result<()> {
        let ended = self.thread.take().map(JoinHandle::join);
        if let Some(messages) = self.messages.take() {
            let mut messages = messages
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            for line in messages.end() {
                show(&format!("{}\n", printable(&line)));
            }
        }
        match ended {
            Some(Ok(drawn)) => drawn,
            // The message of the panic was printed.
            Some(Err(panic)) => resume_unwind(panic),
            None => Ok(()),
        }
    }
}

impl Drop for Running {
    /// Ends the screen at once: the run has failed.
    fn drop(&mut self) {
        if self.thread.is_some() {
            self.stop.store(true, Ordering::Relaxed);
            self.leaves.store(true, Ordering::Relaxed);
            if let Err(error) = self.end() {
                say(&format!("the screen: {}", io_words(&error)));
            }
        }
    }
}

/// The terminal while the screen is on it. Dropping it gives it back.
struct Terminal {
    raw: Raw,
    out: Writer<io::Stdout>,
    /// The picture on it; `None`: unknown.
    picture: Option<Buffer>,
}

impl Terminal {
    fn take() -> io::Result<Self> {
        let mut terminal = Self {
            raw: Raw::take(io::stdin(), ansi::LEAVE.as_bytes())?,
            out: Writer::new(io::stdout()),
            picture: None,
        };
        terminal.out.write_all(ansi::ENTER.as_bytes())?;
        Ok(terminal)
    }

    fn area() -> Rect {
        let size = terminal_size::terminal_size_of(io::stdout());
        let (width, height) = size.map_or((80, 24), |(width, height)| (width.0, height.0));
        Rect::new(0, 0, width, height)
    }

    /// Shows a picture.
    fn show(&mut self, picture: Buffer) -> io::Result<()> {
        let known = self.picture.take().filter(|old| old.area == picture.area);
        let (begin, before) = match known {
            Some(before) => ("", before),
            None => (ansi::CLEAR, Buffer::empty(picture.area)),
        };
        let changes = format!("{begin}{}", ansi::changes(&before, &picture));
        if !changes.is_empty() {
            self.out.write_all(changes.as_bytes())?;
        }
        self.picture = Some(picture);
        Ok(())
    }

    /// Gives the terminal back, stops the process, and takes the terminal again.
    fn suspend(&mut self) -> io::Result<()> {
        self.out.write_all(ansi::LEAVE.as_bytes())?;
        self.raw.restore();
        self.raw.suspend();
        self.again()
    }

    /// Takes the terminal again.
    fn again(&mut self) -> io::Result<()> {
        self.raw.apply()?;
        self.out.write_all(ansi::ENTER.as_bytes())?;
        self.picture = None;
        Ok(())
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        let _ = self.out.write_all(ansi::LEAVE.as_bytes());
        self.raw.restore();
    }
}

struct Session {
    about: About,
    is_live: bool,
    look: Look,
    system: System,
    names: Names,
    begun: Instant,
    ui: Ui,
    /// The snapshot of the latest picture, and the question and the number of windows of it.
    shown: Option<(Snapshot, Ask, u64)>,
    shared: Arc<Shared>,
    control: Arc<Control>,
    stop: Arc<AtomicBool>,
    leaves: Arc<AtomicBool>,
    messages: Option<Arc<std::sync::Mutex<Messages>>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("ui", &self.ui)
            .finish_non_exhaustive()
    }
}

impl Session {
    fn run(mut self, mut terminal: Terminal) -> io::Result<()> {
        let mut keys = Keys::default();
        let mut figures = Instant::now();
        let stdin = io::stdin();
        while !self.is_over() {
            if terminal::is_stopping() {
                terminal.suspend()?;
            }
            if terminal::is_continued() || !terminal.raw.is_applied() {
                terminal.again()?;
            }
            let area = Terminal::area();
            let is_due = figures.elapsed() >= REFRESH || self.shown.is_none();
            if is_due {
                figures = Instant::now();
            }
            let picture = self.picture(area, is_due);
            match terminal.show(picture) {
                // The run was stopped while the terminal took nothing.
                Err(error) if error.kind() == io::ErrorKind::TimedOut => return Ok(()),
                // The terminal is gone.
                Err(_) if self.is_over() => return Ok(()),
                shown => shown?,
            }
            let most = match keys.is_pending() {
                true => ESCAPE,
                false => REFRESH.saturating_sub(figures.elapsed()),
            };
            let pressed = match terminal::wait(&stdin, most)? {
                Waited::Over if keys.is_pending() => keys.end().into_iter().collect(),
                Waited::Over => Vec::new(),
                Waited::Ready => {
                    let mut bytes = [0; 256];
                    match stdin.lock().read(&mut bytes) {
                        // A closed terminal.
                        Ok(0) => return Ok(()),
                        Ok(count) => keys.take(&bytes[..count]),
                        Err(error) if error.kind() == io::ErrorKind::Interrupted => Vec::new(),
                        Err(_) => return Ok(()),
                    }
                }
            };
            for key in pressed {
                let snapshot = self.shown.as_ref().map(|(snapshot, ..)| snapshot);
                let effect = self.ui.press(key, snapshot);
                if self.ui.wants_filter() {
                    self.ui.offer_filter(&self.about.filter);
                }
                match effect {
                    Effect::Quit => return Ok(()),
                    Effect::Suspend => terminal.suspend()?,
                    Effect::Redraw => terminal.picture = None,
                    effect => self.act(effect),
                }
                // The next key is about the rows that this one leads to.
                self.arrange(area);
            }
        }
        Ok(())
    }

    /// Whether the screen has to end. The end of the sources does not end it.
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Relaxed) || self.leaves.load(Ordering::Relaxed)
    }

    /// Does what a key asks for.
    fn act(&mut self, effect: Effect) {
        match effect {
            Effect::CheckFilter(expression) => {
                let problem = self.problem_of(expression);
                self.ui.answer(problem);
            }
            Effect::SetFilter(expression) => match self.control.set_filter(&expression, PATIENCE) {
                Ok(_) => {
                    self.ui.say(match expression.is_empty() {
                        true => "all packets are captured".to_owned(),
                        false => "the capture has changed".to_owned(),
                    });
                    self.about.filter = expression;
                }
                Err(error) => self.ui.say(format!("capture: {error}")),
            },
            Effect::SetKey(further) => {
                let kinds: Vec<KeyKind> = Tab::kinds().chain(further).collect();
                match self.control.set_counting(Setting::Keys(kinds), PATIENCE) {
                    Ok(_) => self.ui.set_further(further),
                    Err(error) => self.ui.say(format!("key: {error}")),
                }
            }
            Effect::Draw | Effect::Redraw | Effect::Quit | Effect::Suspend => {}
        }
    }

    /// Why an expression is wrong; `None` if it is not.
    fn problem_of(&self, expression: String) -> Option<String> {
        let names = self.names.clone();
        let checked = unless_stopped(&self.stop, &slow_compilation(), move || {
            select::check(&expression, &names)
        });
        checked?.err().map(|error| error.to_string())
    }

    fn ask(&self, area: Rect) -> Ask {
        let (span, at) = self.ui.asks();
        let (_, points) = points(area);
        Ask {
            span,
            at,
            rows: ROWS,
            changes: 0,
            points,
            history: HISTORY,
        }
    }

    /// Takes a snapshot if the question is another one, or figures are due; the past is asked once.
    fn look_at(&mut self, area: Rect, is_due: bool, facts: &SourceFacts) {
        let ask = self.ask(area);
        let is_known = self.shown.as_ref().is_some_and(|(_, known, windows)| {
            let is_same = *known == ask;
            let has_news = is_due && ask.at.is_none() && *windows != facts.windows;
            is_same && !has_news
        });
        if !is_known && let Some(snapshot) = self.shared.snapshot(&ask) {
            self.shown = Some((snapshot, ask, facts.windows));
        }
    }

    fn arrange(&mut self, area: Rect) {
        let facts = self.shared.facts();
        self.look_at(area, false, &facts);
        let snapshot = self.shown.as_ref().map(|(snapshot, ..)| snapshot);
        self.ui.arrange(snapshot, points(area).0);
    }

    fn picture(&mut self, area: Rect, is_due: bool) -> Buffer {
        let facts = self.shared.facts();
        self.look_at(area, is_due, &facts);
        let snapshot = self.shown.as_ref().map(|(snapshot, ..)| snapshot);
        let about = &mut self.about;
        about.now_ns = match snapshot {
            Some(snapshot) if !self.is_live => snapshot.to_ns,
            _ => i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX),
        };
        about.east_s = self.system.zone.east_s(about.now_ns);
        about.up_s = self.is_live.then(|| self.begun.elapsed().as_secs());
        about.has_sides |= facts.has_sides;
        about.losses = vec![
            ("kernel".to_owned(), facts.dropped),
            ("late".to_owned(), facts.late),
        ];
        about.status = status(&facts, &self.system.carriers, self.is_live);
        let messages = self.messages.as_ref();
        about.message = messages.and_then(|messages| {
            let messages = messages
                .lock()
                .unwrap_or_else(std::sync::PoisonError::into_inner);
            messages.latest()
        });
        self.ui.arrange(snapshot, points(area).0);
        let scene = Scene {
            snapshot,
            about: &self.about,
            ui: &self.ui,
            look: self.look,
        };
        draw(&scene, area)
    }
}

fn status(facts: &SourceFacts, carriers: &[(String, Carrier)], is_live: bool) -> Status {
    if facts.is_over {
        return match &facts.fault {
            Some(fault) => Status::Gone(fault.clone()),
            None => Status::Ended,
        };
    }
    let is_down = |(name, carrier): &(String, Carrier)| {
        (carrier.is_up() == Some(false)).then(|| name.clone())
    };
    let down: Vec<String> = carriers.iter().filter_map(is_down).collect();
    if !down.is_empty() {
        return Status::LinkDown(down.join(" "));
    }
    let quiet = facts.last_packet.elapsed();
    match facts.windows {
        0 => Status::Starting,
        _ if is_live && quiet >= IDLE => Status::Idle(quiet.as_secs()),
        _ => Status::Running,
    }
}
