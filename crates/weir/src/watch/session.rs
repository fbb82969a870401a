//! The thread of the screen: keys in, pictures out.

use super::figures::Figures;
use super::messages::Messages;
use super::past::Part;
use super::save::{self, Saver};
use super::settings::Settings;
use crate::outcome::{io_words, say, show, slow_compilation};
use crate::terminal::printable;
use crate::times::Clock;
use anyhow::anyhow;
use jiff::Timestamp;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Write};
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use weir_engine::control::Control;
use weir_engine::zone::Zone;
use weir_filter::Names;
use weir_io::sys::terminal::{self, Raw, Waited};
use weir_io::sys::writer::Writer;
use weir_measure::{Geo, KeyKind, Setting};
use weir_messages::json::line;
use weir_messages::viewing::Facts;
use weir_pipeline::select;
use weir_pipeline::threads::unless_stopped;
use weir_screen::text::lines;
use weir_screen::{
    About, Buffer, Effect, Key, Keys, Look, Rect, Save, Scene, Status, Tab, Ui, ansi, draw, points,
};
use weir_view::{Ask, Snapshot};

/// Time between two pictures without a key.
pub(super) const REFRESH: Duration = Duration::from_millis(500);

/// Time after which a lone escape is a key.
const ESCAPE: Duration = Duration::from_millis(50);

/// Time for the rest of a longer sequence, also over a slow line.
const REST: Duration = Duration::from_millis(500);

/// Longest wait for a change of the run.
const PATIENCE: Duration = Duration::from_secs(2);

/// Time without a packet after which the link is idle, and after which a reader waits for more.
const IDLE: Duration = Duration::from_secs(3);

/// Answer to keys that would change the run of another process.
const READS_ONLY: &str =
    "a viewer changes nothing: weir ctl set filter does, where the run has --control";

/// Most rows of a table, and points of the history of a row.
const ROWS: usize = 200;
const HISTORY: usize = 10;

/// Most characters of a line, and most lines.
const MOST: (u16, u16) = (1000, 500);

/// Options of the screen from the command line.
#[derive(Clone, Debug)]
pub struct Start {
    pub filter: String,
    pub is_live: bool,
    pub look: Look,
    /// Whether to ask the terminal for its background.
    pub asks_background: bool,
    pub settings: Settings,
    pub at: Option<i64>,
    /// A message about the sources, at the begin.
    pub notice: Option<String>,
    /// Whether other parts of the past can be read.
    pub can_read_again: bool,
    /// Files that keys write.
    pub saves: save::Settings,
}

/// Names for expressions, databases of addresses, and the terminal, all of them open.
pub struct Opened {
    pub names: Names,
    pub geo: Option<Arc<Geo>>,
    pub zone: Zone,
    /// The terminal that gives the keys.
    pub keyboard: File,
}

/// A screen that is drawn.
#[derive(Debug)]
pub struct Running {
    stop: Arc<AtomicBool>,
    leaves: Arc<AtomicBool>,
    thread: Option<JoinHandle<io::Result<()>>>,
    parts: Receiver<Part>,
    messages: Option<Arc<std::sync::Mutex<Messages>>>,
}

/// Begins the screen. Without a control, another process has the figures, and a viewer cannot change its run.
pub fn start(
    start: &Start,
    opened: Opened,
    figures: Arc<dyn Figures>,
    (control, stop): (Option<&Arc<Control>>, &Arc<AtomicBool>),
) -> anyhow::Result<Running> {
    let failed = |error: io::Error| anyhow!("the terminal: {}", io_words(&error));
    // A standard error that goes elsewhere does not disturb the screen.
    let shares = io::IsTerminal::is_terminal(&io::stderr());
    let messages = shares.then(Messages::take).transpose().map_err(failed)?;
    let messages = messages.map(|messages| Arc::new(std::sync::Mutex::new(messages)));
    let leaves = Arc::<AtomicBool>::default();
    let (ask, parts) = channel();
    let mut ui = Ui::new(start.look);
    ui.go_to(start.at);
    if let Some(notice) = &start.notice {
        ui.say(notice.clone());
    }
    ui.begin_with(start.settings.key, start.settings.order.as_deref());
    let saver = Saver::start(&start.saves, &opened.names).map_err(failed)?;
    let session = Session {
        saver,
        area: Rect::ZERO,
        about: About {
            filter: start.filter.clone(),
            is_live: start.is_live,
            ..About::default()
        },
        is_live: start.is_live,
        parts: start.can_read_again.then_some(ask),
        asked: None,
        look: start.look,
        zone: opened.zone,
        names: opened.names,
        geo: opened.geo,
        has_processes: start.settings.key.is_some_and(KeyKind::needs_owners),
        ui,
        shown: None,
        begins_at: start.at,
        figures,
        control: control.cloned(),
        stop: Arc::clone(stop),
        leaves: Arc::clone(&leaves),
        messages: messages.clone(),
    };
    let terminal = Terminal::take(opened.keyboard, start.asks_background).map_err(failed)?;
    let thread = Builder::new().name("screen".to_owned()).spawn(move || {
        let _stops = Stops(Arc::clone(&session.stop));
        session.run(terminal)
    });
    Ok(Running {
        stop: Arc::clone(stop),
        leaves,
        thread: Some(thread.map_err(failed)?),
        parts,
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
    /// Waits for a part of the past that the user asks for; `None` once the screen has ended.
    pub fn next_part(&self) -> Option<Part> {
        self.parts.recv().ok()
    }

    /// Waits for the user to end the screen, unless the run was stopped. The terminal is as before then, and shows the messages of
    /// the meantime. **Errors**: the screen could not be drawn.
    pub fn finish(mut self) -> io::Result<()> {
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
pub(super) struct Terminal {
    keyboard: File,
    raw: Raw,
    out: Writer<io::Stdout>,
    /// The picture on it; `None`: unknown.
    picture: Option<Buffer>,
}

impl Terminal {
    pub(super) fn take(keyboard: File, asks_background: bool) -> io::Result<Self> {
        let mut terminal = Self {
            raw: Raw::take(&keyboard, ansi::LEAVE.as_bytes())?,
            keyboard,
            out: Writer::new(io::stdout()),
            picture: None,
        };
        terminal.out.write_all(ansi::ENTER.as_bytes())?;
        if asks_background {
            terminal.out.write_all(ansi::ASK_BACKGROUND.as_bytes())?;
        }
        Ok(terminal)
    }

    pub(super) fn area() -> Rect {
        let size = terminal_size::terminal_size_of(io::stdout());
        let (width, height) = size.map_or((80, 24), |(width, height)| (width.0, height.0));
        // A picture of a size that no screen has would take the memory of the host.
        Rect::new(0, 0, width.min(MOST.0), height.min(MOST.1))
    }

    /// Draws all cells of the next picture.
    pub(super) fn forget(&mut self) {
        self.picture = None;
    }

    /// Stops with the process, and takes the terminal again when the process goes on.
    pub(super) fn look_around(&mut self) -> io::Result<()> {
        if terminal::is_stopping() {
            self.suspend()?;
        }
        if terminal::is_continued() || !self.raw.is_applied() {
            self.again()?;
        }
        Ok(())
    }

    /// Waits for keys, for `most` unless a sequence has begun; `None` if the terminal is closed.
    pub(super) fn pressed(
        &mut self,
        keys: &mut Keys,
        most: Duration,
    ) -> io::Result<Option<Vec<Key>>> {
        let most = match keys.is_pending() {
            true if keys.is_escape() => ESCAPE,
            true => REST,
            false => most,
        };
        Ok(match terminal::wait(&self.keyboard, most)? {
            Waited::Over if keys.is_pending() => Some(keys.end().into_iter().collect()),
            Waited::Over => Some(Vec::new()),
            Waited::Ready => {
                let mut bytes = [0; 256];
                match self.keyboard.read(&mut bytes) {
                    Ok(0) => None,
                    Ok(count) => Some(keys.take(&bytes[..count])),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => Some(Vec::new()),
                    Err(_) => None,
                }
            }
        })
    }

    /// Shows a picture.
    pub(super) fn show(&mut self, picture: Buffer) -> io::Result<()> {
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
    pub(super) fn suspend(&mut self) -> io::Result<()> {
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
        if self.out.write_all(ansi::LEAVE.as_bytes()).is_err() {
            // The terminal has no room, and the run was stopped.
            self.raw.discard();
            let _ = self.out.write_all(ansi::LEAVE.as_bytes());
        }
        self.raw.restore();
    }
}

struct Session {
    about: About,
    saver: Saver,
    /// The terminal of the latest picture.
    area: Rect,
    is_live: bool,
    /// Requests for parts of the past, if parts can be read.
    parts: Option<Sender<Part>>,
    /// The latest request.
    asked: Option<Part>,
    look: Look,
    zone: Zone,
    names: Names,
    geo: Option<Arc<Geo>>,
    /// Whether the sockets of processes are listed.
    has_processes: bool,
    ui: Ui,
    /// The time of `--at`, until it is known whether there are packets.
    begins_at: Option<i64>,
    /// The snapshot of the latest picture, its question, and the facts at its time.
    shown: Option<(Snapshot, Ask, Facts)>,
    figures: Arc<dyn Figures>,
    /// Control of the run; `None` if it is another process, which shows its figures alone.
    control: Option<Arc<Control>>,
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
        while !self.is_over() {
            terminal.look_around()?;
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
            let most = REFRESH.saturating_sub(figures.elapsed());
            let Some(pressed) = terminal.pressed(&mut keys, most)? else {
                return Ok(());
            };
            for key in pressed {
                if let Key::Background { light } = key {
                    self.look.light = light;
                    continue;
                }
                let snapshot = self.shown.as_ref().map(|(snapshot, ..)| snapshot);
                let effect = self.ui.press(key, snapshot);
                match effect {
                    Effect::Quit => return Ok(()),
                    Effect::Suspend => terminal.suspend()?,
                    Effect::Redraw => terminal.forget(),
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
            Effect::CheckFilter(_) if self.control.is_none() => {
                self.ui.answer(Some(READS_ONLY.to_owned()));
            }
            Effect::CheckFilter(expression) => {
                let problem = self.problem_of(expression);
                self.ui.answer(problem);
            }
            Effect::SetFilter(expression) if self.parts.is_some() => {
                self.about.filter = expression;
                self.read_again();
            }
            Effect::SetFilter(expression) => self.set_filter(expression),
            Effect::SetKey(further) if self.control.is_none() => self.choose_key(further),
            Effect::SetKey(Some(key)) if self.lacks(key).is_some() => {
                self.ui.say(self.lacks(key).unwrap_or_default());
            }
            Effect::SetKey(further) if self.parts.is_some() => {
                self.ui.set_further(further);
                self.read_again();
            }
            Effect::SetKey(further) => self.set_key(further),
            Effect::Offer(save) => {
                if let Err(why) = self.offer(save) {
                    self.ui.say(why);
                }
            }
            Effect::Write => {
                let words = self.saver.write();
                self.ui.say(words);
            }
            Effect::Draw | Effect::Redraw | Effect::Quit | Effect::Suspend => {}
        }
    }

    /// Has the run capture by an expression.
    fn set_filter(&mut self, expression: String) {
        if self.figures.facts().is_over {
            self.ui
                .say("the capture has ended: no expression changes it");
            return;
        }
        let set = self.control.as_ref();
        let set = set.map(|control| control.set_filter(&expression, PATIENCE));
        self.ui.say(match &set {
            None => READS_ONLY.to_owned(),
            Some(Err(error)) => format!("capture: {error}"),
            Some(Ok(_)) if expression.is_empty() => "all packets are captured".to_owned(),
            Some(Ok(_)) => "the capture has changed".to_owned(),
        });
        if let Some(Ok(_)) = set {
            self.about.filter = expression;
        }
    }

    /// Has the run count by a further key.
    fn set_key(&mut self, further: Option<KeyKind>) {
        let kinds: Vec<KeyKind> = Tab::kinds().chain(further).collect();
        let set = self.control.as_ref();
        match set.map(|control| control.set_counting(Setting::Keys(kinds), PATIENCE)) {
            Some(Err(error)) => self.ui.say(format!("key: {error}")),
            _ => self.ui.set_further(further),
        }
    }

    /// Kinds of key that are counted in the shown step.
    fn counted(&self) -> Vec<KeyKind> {
        let tables = self.shown.iter().flat_map(|(shown, ..)| &shown.tables);
        tables.map(|table| table.kind).collect()
    }

    /// Shows another of the keys that another process counts.
    fn choose_key(&mut self, key: Option<KeyKind>) {
        let counted = self.counted();
        match key.filter(|key| !counted.contains(key)) {
            Some(key) if counted.is_empty() => self.ui.say(format!(
                "key {key}: the run has no figures yet, and a viewer changes nothing"
            )),
            Some(key) => {
                let counted: Vec<String> = counted.iter().map(ToString::to_string).collect();
                let counted = counted.join(", ");
                self.ui.say(format!(
                    "key {key}: the run counts {counted}, and a viewer changes nothing"
                ));
            }
            None => self.ui.set_further(key),
        }
    }

    /// Has the sixth table show a key that another process counts, and that no other table has.
    fn note_further(&mut self) {
        let counted = self.counted();
        let is_counted = self.ui.further().is_some_and(|key| counted.contains(&key));
        if self.control.is_none() && !is_counted && !counted.is_empty() {
            let has_table = |key: &KeyKind| Tab::kinds().any(|other| other == *key);
            let further = counted.into_iter().find(|key| !has_table(key));
            self.ui.note_further(further);
        }
    }

    /// Plans files, and asks the user about them.
    fn offer(&mut self, save: Save) -> Result<(), String> {
        let Some((shown, ask, _)) = &self.shown else {
            return Err("there are no figures yet".to_owned());
        };
        let steps = ask.span.steps();
        let has_packets = self.saver.settings.origin.is_ok();
        let is_longer = has_packets && matches!(save, Save::Packets { all: true });
        let longer = is_longer.then(|| {
            self.figures.snapshot(&Ask {
                history: steps,
                points: steps,
                ..*ask
            })
        });
        let subject = self.ui.subject();
        let texts = || [self.text(), self.rows(shown)];
        let about = (&subject, self.about.filter.as_str());
        let snapshot = longer.flatten();
        let snapshot = snapshot.as_ref().unwrap_or(shown);
        let settings = &self.saver.settings;
        let (plan, words) = settings.plan(save, about, snapshot, texts)?;
        self.saver.offered = Some(plan);
        self.ui.offer(save, &words);
        Ok(())
    }

    /// The screen as text.
    fn text(&self) -> String {
        let scene = Scene {
            snapshot: self.shown.as_ref().map(|(snapshot, ..)| snapshot),
            about: &self.about,
            ui: &self.ui,
            look: self.look,
        };
        lines(&draw(&scene, self.area))
    }

    /// The rows as a line of JSON.
    fn rows(&self, snapshot: &Snapshot) -> String {
        let facts = self.figures.facts();
        let place = self.is_live.then_some(facts.place.as_str());
        line("view", &weir_messages::view::json(snapshot, place))
    }

    /// Reason why the run cannot count by a key, and what to do; `None` if it can.
    fn lacks(&self, key: KeyKind) -> Option<&'static str> {
        match key {
            KeyKind::Process | KeyKind::Container if !self.is_live => {
                Some("key process: files do not say which process sent; watch an interface")
            }
            KeyKind::Process | KeyKind::Container if !self.has_processes => {
                Some("key process: begin with weir watch --key process, which lists sockets")
            }
            key if key.needs_geo() && !self.geo.as_ref().is_some_and(|geo| geo.has(key)) => Some(
                "keys asn, country and network: begin with weir watch --geo FILE.mmdb that has them",
            ),
            _ => None,
        }
    }

    /// Goes on over a gap without packets, in the direction of the last key.
    fn cross_gap(&mut self, facts: &Facts) {
        let ((_, Some(at)), Some((from, to)), Some(covered)) =
            (self.ui.asks(), facts.part, facts.covered)
        else {
            return;
        };
        let is_current = self.shown.as_ref().is_none_or(|(_, ask, then)| {
            ask.at == Some(at) && then.is_over && then.parts == facts.parts
        });
        if !facts.is_over || !is_current {
            return;
        }
        let shown = self.shown.as_ref().map(|(snapshot, ..)| snapshot);
        let next = match self.ui.heads() {
            -1 if shown.is_none_or(|shown| shown.from_ns > at) => {
                (from > covered.0).then_some(from - 1)
            }
            1 if shown.is_none_or(|shown| shown.to_ns <= at) => {
                let further = (to < covered.1).then_some(to + 1);
                shown.and_then(|shown| shown.neighbours[1]).or(further)
            }
            _ => None,
        };
        if next.is_some() {
            self.ui.go_to(next);
        }
    }

    /// Reads the shown time again, by another expression or key.
    fn read_again(&mut self) {
        let end = self.figures.facts().covered.map_or(0, |(_, last)| last);
        let (_, at) = self.ui.asks();
        self.read(at.unwrap_or(end));
    }

    /// Requests the part of the past around a time, unless it is the latest request.
    fn read(&mut self, at_ns: i64) {
        let part = Part {
            at_ns,
            span: self.ui.asks().0,
            filter: self.about.filter.clone(),
            further: self.ui.further(),
        };
        let Some(parts) = self
            .parts
            .as_ref()
            .filter(|_| self.asked.as_ref() != Some(&part))
        else {
            return;
        };
        if parts.send(part.clone()).is_ok() {
            self.asked = Some(part);
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

    /// Says that no packet is from the time of `--at`, once the sources are read.
    fn check_begin(&mut self, facts: &Facts) {
        let Some((first, last)) = facts.covered.filter(|_| facts.is_over) else {
            return;
        };
        if let Some(at) = self.begins_at.take()
            && !(first..=last).contains(&at)
        {
            let clock = Clock::new(self.saver.settings.utc);
            let words = format!(
                "--at: packets are from {} to {}",
                clock.text(first),
                clock.text(last)
            );
            self.ui.say(words);
        }
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

    /// Takes a snapshot if the question is another one, or figures are due; a complete past is asked once.
    fn look_at(&mut self, area: Rect, is_due: bool, facts: &Facts) {
        let ask = self.ask(area);
        let is_known = self.shown.as_ref().is_some_and(|(_, known, then)| {
            let is_same = (then.parts, then.is_over) == (facts.parts, facts.is_over);
            let is_growing = ask.at.is_none() || !self.is_live;
            let has_news = is_due && is_growing && then.windows != facts.windows;
            *known == ask && is_same && !has_news
        });
        if is_known {
            return;
        }
        match self.figures.snapshot(&ask) {
            Some(snapshot) => self.shown = Some((snapshot, ask, facts.clone())),
            // While another part is read, the picture stays.
            None if facts.is_over => self.shown = None,
            None => {}
        }
    }

    /// Requests the part of the past around the shown time, if it was not read.
    fn ask_for_part(&mut self, facts: &Facts) {
        let Some(covered) = facts.covered.filter(|_| facts.is_over) else {
            return;
        };
        let (span, at) = self.ui.asks();
        let (from, to) = facts.part.unwrap_or(covered);
        // Of what was read at once, a view keeps the end.
        let shown = self.shown.as_ref().map(|(snapshot, ..)| snapshot);
        let kept = shown.filter(|snapshot| snapshot.span == span);
        let kept = kept.map_or(from, |snapshot| snapshot.from_ns);
        let wanted = at.unwrap_or(covered.1).clamp(covered.0, covered.1);
        let is_there = wanted >= from && wanted <= to;
        let is_kept = wanted >= kept || at.is_none();
        let length = Part::length_ns(span) - 1;
        let is_long = facts.part.is_none_or(|(from, to)| to - from >= length);
        if !is_there || !is_kept || !is_long {
            self.read(wanted);
        }
    }

    fn arrange(&mut self, area: Rect) {
        let facts = self.figures.facts();
        self.look_at(area, false, &facts);
        let snapshot = self.shown.as_ref().map(|(snapshot, ..)| snapshot);
        self.ui.arrange(snapshot, points(area).0);
    }

    fn picture(&mut self, area: Rect, is_due: bool) -> Buffer {
        self.area = area;
        self.ui.fit(area);
        if let Some(words) = self.saver.done() {
            self.ui.say(words);
        }
        let facts = self.figures.facts();
        self.look_at(area, is_due, &facts);
        self.note_further();
        self.check_begin(&facts);
        self.cross_gap(&facts);
        self.ask_for_part(&facts);
        self.ui.set_more(self.parts.is_some() && has_more(&facts));
        let names = self.figures.names(self.ui.addresses().collect());
        self.ui.set_names(names);
        if self.control.is_none() {
            self.about.filter.clone_from(&facts.filter);
        }
        self.ui.set_filter(&self.about.filter);
        let snapshot = self.shown.as_ref().map(|(snapshot, ..)| snapshot);
        let about = &mut self.about;
        about.now_ns = match snapshot {
            Some(snapshot) if !self.is_live => snapshot.to_ns,
            _ => i64::try_from(Timestamp::now().as_nanosecond()).unwrap_or(i64::MAX),
        };
        about.east_s = self.zone.east_s(about.now_ns);
        about.up_s = self.is_live.then_some(facts.up_s);
        about.has_sides |= facts.has_sides;
        about.losses = vec![
            (facts.place.clone(), facts.dropped),
            ("late".to_owned(), facts.late),
            ("before".to_owned(), facts.lost_before),
        ];
        // What follows a fault in a file, nobody knows.
        let is_cut = !self.is_live && facts.fault.is_some();
        about.is_loss_unknown = facts.is_loss_unknown || is_cut;
        // The counters of a file are often at its end.
        about.is_loss_to_come = !facts.is_live && !facts.is_over;
        about.lacks_loss_counter = !facts.is_live && facts.without_counter > 0;
        about.holds_only.clone_from(&facts.holds_only);
        about.status = match self.figures.gone() {
            Some(why) => {
                // An earlier answer to a key does not hide the end.
                if !about.status.is_over() {
                    self.ui.say(format!("gone: {why}"));
                }
                Status::Gone(why)
            }
            None => status(&facts, self.is_live),
        };
        about.sources.clone_from(&facts.sources);
        (about.link_bits_per_s, about.lacks) = (facts.link_bits_per_s, facts.lacks);
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

/// Whether packets follow after the part that was read.
fn has_more(facts: &Facts) -> bool {
    let ends = facts.part.zip(facts.covered);
    ends.is_some_and(|((_, to), (_, last))| to < last)
}

fn status(facts: &Facts, is_live: bool) -> Status {
    if facts.is_over {
        return match &facts.fault {
            Some(fault) if is_live => Status::Gone(fault.clone()),
            Some(fault) => Status::Damaged(fault.clone()),
            None => Status::Ended,
        };
    }
    if !facts.down.is_empty() {
        return Status::LinkDown(facts.down.join(" "));
    }
    let quiet = Duration::from_millis(facts.quiet_ms);
    let is_quiet = quiet >= IDLE;
    match facts.windows {
        _ if is_quiet && !is_live && facts.parts <= 1 => Status::Waiting(quiet.as_secs()),
        0 => Status::Starting,
        _ if facts.parts > 1 => Status::Reading,
        _ if is_quiet => Status::Idle(quiet.as_secs()),
        _ => Status::Running,
    }
}
