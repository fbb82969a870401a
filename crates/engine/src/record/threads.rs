//! The trigger thread: checks conditions, and moves packets from the ring into files.

use super::arms::{Arms, Key, Verdict};
use super::arrival::Arrivals;
use super::condition::{Check, Event, SCHEDULE};
use super::firing::{Begin, Cause, Firing, Interfaces, LATE_NS, nanoseconds};
use super::panes::Moment;
use super::save::{SaveFile, Target};
use super::trigger::{Asked, Condition, Keep, NotFired, Saved, Span, Trigger};
use super::{Error, Loss, Request, Shared};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use weir_filter::Names;
use weir_packet::flow::Tunnels;
use weir_pipeline::select;
use weir_store::ring::{Cursor, From, Piece};

/// Pause while nothing comes.
const PAUSE: Duration = Duration::from_millis(10);

/// Interval between two looks at the drops of the sources, ns.
const LOOK_NS: u64 = 1_000_000_000;

/// Longest time for which a request waits for the first packet of files, which tells the time, ns.
const EARLY_NS: u64 = 1_000_000_000;

/// Number of looks at the drops that are remembered.
const LOSSES: usize = 4096;

/// Number of pauses at the end for packets that other readers keep from being read.
const PATIENT: u32 = 200;

/// Number of pieces after which arrivals of packets that left the ring are forgotten.
const FORGET_PIECES: u64 = 256;

/// Largest number of files under way.
const MOST: usize = 64;

/// A trigger with its check.
struct Watched {
    trigger: Trigger,
    check: Check,
    /// Keys that have fired.
    arms: Arms,
    /// Files begun so far.
    files: u64,
}

pub(super) struct Triggers {
    shared: Arc<Shared>,
    watched: Vec<Watched>,
    target: Target,
    requests: Receiver<Request>,
    /// Requests from before the first packet, with the steady times until which they wait for it, ns.
    early: Vec<(Request, u64)>,
    on_saved: Box<dyn FnMut(&Saved) + Send>,
    /// Whether the packets tell the time, because the sources are files.
    waits: bool,
    cursor: Cursor,
    interfaces: Interfaces,
    firings: Vec<Firing>,
    /// Arrivals of the packets so far, and number of the pieces that were checked.
    arrivals: Arrivals,
    pieces: u64,
    look_ns: u64,
    /// Whether the last look at the ring failed, because other readers kept as many chunks as may be kept.
    starved: bool,
    found: Vec<u32>,
}

impl Triggers {
    pub fn new(
        shared: Arc<Shared>,
        triggers: Vec<Trigger>,
        target: Target,
        (names, inner): (Names, Option<Tunnels>),
        requests: Receiver<Request>,
        on_saved: Box<dyn FnMut(&Saved) + Send>,
        waits: bool,
    ) -> Result<Self, Error> {
        for trigger in &triggers {
            let keep = if let Keep::Matches(keep) = &trigger.keep {
                Some(keep)
            } else {
                None
            };
            let condition = if let Condition::Matches(condition) = &trigger.condition {
                Some(condition)
            } else {
                None
            };
            for expression in keep.into_iter().chain(condition) {
                // Interfaces are not known yet. An expression that makes no sense for Ethernet may make sense for another link.
                select::check(expression, &names).map_err(|why| Error::Expression {
                    name: trigger.name.clone(),
                    why,
                })?;
            }
        }
        let watched = |trigger: Trigger| {
            let check = Check::new(&trigger.condition, waits).map_err(|why| Error::Sample {
                name: trigger.name.clone(),
                why,
            })?;
            Ok(Watched {
                arms: Arms::new(&trigger),
                trigger,
                check,
                files: 0,
            })
        };
        let watched = triggers
            .into_iter()
            .map(watched)
            .collect::<Result<Vec<_>, Error>>()?;
        for (status, watched) in shared.triggers().iter_mut().zip(&watched) {
            status.memory = watched.check.memory_bytes();
        }
        Ok(Self {
            cursor: shared.history.cursor(From::Number(0)),
            watched,
            shared,
            target,
            requests,
            early: Vec::new(),
            on_saved,
            waits,
            interfaces: Interfaces::new(names, inner),
            firings: Vec::new(),
            arrivals: Arrivals::default(),
            pieces: 0,
            look_ns: 0,
            starved: false,
            found: Vec::new(),
        })
    }

    /// Works until the sources are read to their end.
    pub fn run(mut self) {
        // A panic must not leave a run waiting for this reader.
        let _left = Left(Arc::clone(&self.shared));
        let mut pauses = 0;
        let mut is_checked = false;
        loop {
            let ended = self.shared.has_ended();
            self.take_requests();
            let now = self.shared.steady_ns();
            let busy = self.step(now);
            self.tell_place();
            if busy {
                continue;
            }
            if ended && !is_checked && !self.starved {
                // What fires now still finds its packets in the ring.
                is_checked = true;
                self.pass(None);
                continue;
            }
            if ended {
                pauses += 1;
                if pauses > PATIENT || !self.starved && !self.firings.iter().any(Firing::is_starved)
                {
                    break;
                }
            }
            match self.requests.recv_timeout(PAUSE) {
                Ok(request) => self.take(request),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(PAUSE),
            }
        }
        if self.starved {
            let waiting = self.shared.history.next() - self.cursor.number().unwrap_or(0);
            self.shared
                .unchecked
                .store(self.cursor.missed() + waiting, Ordering::Relaxed);
        }
        self.complete(|_| true);
    }

    /// Tells which chunks of the ring are still read.
    fn tell_place(&self) {
        let firings = self.firings.iter().map(Firing::chunk);
        let place = firings
            .chain([self.cursor.chunk()])
            .min()
            .unwrap_or(u64::MAX);
        self.shared.triggers_at.store(place, Ordering::Relaxed);
    }

    fn take_requests(&mut self) {
        while let Ok(request) = self.requests.try_recv() {
            self.take(request);
        }
        for (request, until_ns) in std::mem::take(&mut self.early) {
            self.take_until(request, until_ns);
        }
    }

    fn take(&mut self, request: Request) {
        self.take_until(request, self.shared.steady_ns().saturating_add(EARLY_NS));
    }

    /// Answers a request, later if no packet tells the time yet.
    fn take_until(&mut self, request: Request, until_ns: u64) {
        let now = self.now();
        if now.is_none() && self.shared.steady_ns() < until_ns {
            self.early.push((request, until_ns));
            return;
        }
        let (time_ns, arrived) = now.unwrap_or((i64::MIN, i64::MIN));
        let Request::Fire {
            name,
            cause,
            span,
            answer,
        } = request;
        let mut asked = Asked::default();
        for index in 0..self.watched.len() {
            if name
                .as_ref()
                .is_none_or(|name| self.watched[index].trigger.name == *name)
            {
                self.shared.triggers()[index].met += 1;
                let cause = Cause::new(cause.clone(), Moment { arrived, time_ns });
                let fired = self.ask(index, cause, span);
                let name = self.watched[index].trigger.name.clone();
                match fired {
                    Ok(()) => asked.fired.push(name),
                    Err(why) => asked.refused.push((name, why)),
                }
            }
        }
        // The client may have gone.
        let _ = answer.send(asked);
    }

    /// The time by which triggers fire that no packet fired, by timestamps and by arrivals, ns;
    /// `None` before the first packet of files.
    fn now(&self) -> Option<(i64, i64)> {
        if self.waits {
            return Some((self.arrivals.stamp()?, self.arrivals.now()?));
        }
        let wall_ns = self.shared.clock.now().wall_ns;
        Some((
            wall_ns,
            self.arrivals
                .at(self.shared.steady_ns(), wall_ns)
                .unwrap_or(wall_ns),
        ))
    }

    /// Checks packets of one chunk, and moves packets of one chunk into each file. Returns whether there was something to do.
    fn step(&mut self, now: u64) -> bool {
        self.look_at_drops(now);
        let mut busy = false;
        let starved = self.cursor.starved();
        let piece = self.cursor.next(now);
        self.starved = self.cursor.starved() > starved;
        if let Some(piece) = piece {
            busy = true;
            self.shared
                .unchecked
                .store(self.cursor.missed(), Ordering::Relaxed);
            if self.interfaces.all.len() != self.shared.history.interface_count() {
                self.interfaces.refresh(&self.shared.history);
            }
            self.arrivals.see(&piece, now);
            self.check(&piece);
            self.pieces += 1;
            if self.pieces.is_multiple_of(FORGET_PIECES) {
                let history = &self.shared.history;
                self.arrivals
                    .forget(history.next().saturating_sub(history.held().packets));
            }
        }
        self.fire_by_time(now, busy);
        for firing in &mut self.firings {
            busy |= firing.step(now, &self.interfaces, &mut self.arrivals);
        }
        if self.firings.iter().any(Firing::is_over) {
            self.complete(Firing::is_over);
        }
        busy
    }

    /// Checks the packets of a piece, which were seen.
    fn check(&mut self, piece: &Piece) {
        let mut found = std::mem::take(&mut self.found);
        for index in 0..self.watched.len() {
            let Watched { check, arms, .. } = &mut self.watched[index];
            if !check.reads_packets() {
                continue;
            }
            if let Some(why) = check.prepare(&self.interfaces) {
                self.shared.triggers()[index].misfit = Some(why.to_string());
            }
            let (arrivals, interfaces) = (&self.arrivals, &self.interfaces);
            let mut acts = Acts::new(interfaces);
            check.check(piece, arrivals, interfaces, &mut found, &mut |event| {
                acts.take(&event, arms);
            });
            let acts = acts.all;
            self.act(index, acts);
        }
        self.found = found;
    }

    /// Has the checks look at what they have counted, because all packets before `arrived` are there, or because no more come.
    fn pass(&mut self, arrived: Option<i64>) {
        for index in 0..self.watched.len() {
            let Watched { check, arms, .. } = &mut self.watched[index];
            let mut acts = Acts::new(&self.interfaces);
            check.pass(arrived, &mut |event| acts.take(&event, arms));
            let acts = acts.all;
            self.act(index, acts);
        }
    }

    /// Does what the events of a trigger ask for, and notes its counts.
    fn act(&mut self, index: usize, acts: Vec<Act>) {
        for act in acts {
            match act {
                Act::Fire(key, cause) => self.fire(index, key, *cause),
                Act::Grow(key, arrived, text) => self.grow(index, key, arrived, text),
            }
        }
        let Watched { arms, check, .. } = &mut self.watched[index];
        let (met, doubt) = (std::mem::take(&mut arms.met), check.doubt());
        let mut triggers = self.shared.triggers();
        triggers[index].met += met;
        triggers[index].doubt = doubt;
    }

    /// Begins a file because of an event, or tells the event if too many are being written.
    fn fire(&mut self, index: usize, key: Key, cause: Cause) {
        let text = cause.text.clone();
        let begun = self.begin(index, key, cause, None);
        let arms = &mut self.watched[index].arms;
        match begun {
            Ok(()) => arms.begun(key),
            Err(why @ NotFired::Busy(_)) => {
                if arms.refuse(key) {
                    self.fail(index, text, std::io::Error::other(why));
                }
            }
            // A trigger that is not armed does not fire: the counts say so.
            Err(_) => arms.undo(key, None),
        }
    }

    /// Tells and counts an event without a file.
    fn fail(&mut self, index: usize, cause: String, error: std::io::Error) {
        self.shared.triggers()[index].failed += 1;
        (self.on_saved)(&Saved {
            trigger: self.watched[index].trigger.name.clone(),
            cause,
            path: self.target.directory.clone(),
            packets: 0,
            missed: 0,
            remarks: Vec::new(),
            error: Some(error),
        });
    }

    /// Has the file of a key reach further.
    fn grow(&mut self, index: usize, key: Key, arrived: i64, text: Option<String>) {
        let steady_ns = (!self.waits).then(|| self.shared.steady_ns());
        let is_ours = |firing: &&mut Firing| firing.trigger == index && firing.key == key;
        let Some(firing) = self.firings.iter_mut().find(is_ours) else {
            return;
        };
        if !firing.grow(arrived, text, steady_ns) {
            let until = firing.until();
            self.watched[index].arms.undo(key, Some(until));
        }
    }

    /// Fires triggers whose interval has ended, and triggers whose packets are all there, if no other packets wait.
    fn fire_by_time(&mut self, steady_ns: u64, busy: bool) {
        let Some((time_ns, arrived)) = self.now() else {
            return;
        };
        for index in 0..self.watched.len() {
            let Watched { check, arms, .. } = &mut self.watched[index];
            if check.is_due(steady_ns) {
                let moment = Moment { arrived, time_ns };
                let mut acts = Acts::new(&self.interfaces);
                acts.take(&Event::at(moment, &|| SCHEDULE.to_owned()), arms);
                let acts = acts.all;
                self.act(index, acts);
            }
        }
        if !busy && !self.waits && !self.starved {
            self.pass(Some(arrived));
        }
    }

    /// Begins a file because of a request, if the trigger is armed. A given `span` replaces the span of the trigger.
    fn ask(&mut self, index: usize, cause: Cause, span: Option<Span>) -> Result<(), NotFired> {
        let arrived = cause.arrived;
        let Watched {
            trigger,
            arms,
            files,
            ..
        } = &self.watched[index];
        if arrived == i64::MIN {
            return Err(NotFired::Early);
        }
        if *files >= trigger.max_files {
            return Err(NotFired::Spent(*files));
        }
        if let Some(left_ns) = arms.is_resting(arrived) {
            let left = Duration::from_nanos(left_ns);
            let is_ours = |firing: &Firing| firing.trigger == index && firing.key.is_none();
            return Err(if self.firings.iter().any(is_ours) {
                NotFired::Saving(left)
            } else {
                NotFired::Resting(left)
            });
        }
        let after = span.map_or(trigger.after, |span| span.after);
        self.begin(index, None, cause, span)?;
        self.watched[index].arms.fired(arrived, nanoseconds(after));
        Ok(())
    }

    /// Begins a file. A given `span` replaces the span of the trigger.
    fn begin(
        &mut self,
        index: usize,
        key: Key,
        cause: Cause,
        span: Option<Span>,
    ) -> Result<(), NotFired> {
        let Watched { trigger, files, .. } = &mut self.watched[index];
        if cause.arrived == i64::MIN {
            return Err(NotFired::Early);
        }
        if *files >= trigger.max_files {
            return Err(NotFired::Spent(*files));
        }
        if self.firings.len() >= MOST {
            return Err(NotFired::Busy(MOST));
        }
        let Span { before, after } = span.unwrap_or(Span {
            before: trigger.before,
            after: trigger.after,
        });
        *files += 1;
        if self.interfaces.all.len() != self.shared.history.interface_count() {
            self.interfaces.refresh(&self.shared.history);
        }
        self.shared.triggers()[index].fired += 1;
        let comment = format!("trigger {}: {}", trigger.name, cause.text);
        match SaveFile::create(
            &self.target,
            &trigger.name,
            cause.time_ns,
            comment,
            trigger.max_bytes,
        ) {
            Ok(file) => {
                let wait = nanoseconds(after).saturating_add(LATE_NS) as u64;
                let deadline_ns =
                    (!self.waits).then(|| self.shared.steady_ns().saturating_add(wait));
                let begin = Begin {
                    trigger: index,
                    key,
                    cause,
                    before,
                    after,
                    file,
                    deadline_ns,
                };
                self.firings.push(Firing::new(
                    begin,
                    &trigger.keep,
                    &self.shared.history,
                    &self.arrivals,
                ));
                self.shared.triggers()[index].active = true;
                Ok(())
            }
            Err(error) => {
                let why = NotFired::Failed(error.to_string());
                self.fail(index, cause.text, error);
                Err(why)
            }
        }
    }

    /// Completes the files for which `is_over`.
    fn complete(&mut self, is_over: impl Fn(&Firing) -> bool) {
        let (over, left) = std::mem::take(&mut self.firings)
            .into_iter()
            .partition(is_over);
        self.firings = left;
        let over: Vec<Firing> = over;
        for firing in over {
            let dropped = self.dropped(firing.span_ns());
            let misfit = firing.misfit();
            let (index, cause, (missed, remarks), complete) =
                firing.finish(&self.interfaces, &self.shared.history, dropped);
            let active = self.firings.iter().any(|other| other.trigger == index);
            {
                let mut triggers = self.shared.triggers();
                let status = &mut triggers[index];
                status.active = active;
                status.packets += complete.packets;
                status.keep_misfit = misfit.or(status.keep_misfit.take());
                *(if complete.error.is_none() {
                    &mut status.saved
                } else {
                    &mut status.failed
                }) += 1;
            }
            let trigger = self.watched[index].trigger.name.clone();
            let (path, packets, error) = (complete.path, complete.packets, complete.error);
            (self.on_saved)(&Saved {
                trigger,
                cause: cause.text,
                path,
                packets,
                missed,
                remarks,
                error,
            });
        }
    }

    /// Notes once a second how many packets the sources have dropped.
    fn look_at_drops(&mut self, now: u64) {
        if self.waits || now < self.look_ns {
            return;
        }
        self.look_ns = now + LOOK_NS;
        let dropped = self.shared.dropped();
        let mut losses = self
            .shared
            .losses
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        if losses.len() >= LOSSES {
            losses.pop_front();
        }
        losses.push_back(Loss {
            wall_ns: self.shared.clock.now().wall_ns,
            dropped,
        });
    }

    /// Packets that the sources dropped in a span, or up to a look around it; `None` if nobody looked.
    fn dropped(&mut self, (from_ns, until_ns): (i64, i64)) -> Option<u64> {
        self.look_ns = 0;
        self.look_at_drops(self.shared.steady_ns());
        let losses = self
            .shared
            .losses
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner);
        let last = losses
            .iter()
            .find(|loss| loss.wall_ns >= until_ns)
            .or(losses.back())?;
        let first = losses
            .iter()
            .rev()
            .find(|loss| loss.wall_ns <= from_ns)
            .map_or(0, |loss| loss.dropped);
        Some(last.dropped.saturating_sub(first))
    }
}

/// Result of an event that changes something.
enum Act {
    /// A file begins.
    Fire(Key, Box<Cause>),
    /// The file of the key reaches further, because of an event that arrived at this time, ns. The text has its figures, if they differ
    /// from the figures of the file's cause.
    Grow(Key, i64, Option<String>),
}

/// Results of the events of a trigger, in their order.
struct Acts<'a> {
    interfaces: &'a Interfaces,
    all: Vec<Act>,
}

impl<'a> Acts<'a> {
    fn new(interfaces: &'a Interfaces) -> Self {
        Self {
            interfaces,
            all: Vec::new(),
        }
    }

    fn take(&mut self, event: &Event<'_>, arms: &mut Arms) {
        let arrived = event.moment.arrived;
        match arms.take(event.key, event.reach_ns, arrived) {
            Verdict::Fires => {
                let cause = Box::new(event.cause(self.interfaces));
                self.all.push(Act::Fire(event.key, cause));
            }
            Verdict::Grows => {
                let text = event.tells_more.then(|| event.text());
                match self.all.last_mut() {
                    // So many packets may match that no file grows for each of them.
                    Some(Act::Grow(key, last, words)) if *key == event.key => {
                        *last = arrived.max(*last);
                        *words = text.or(words.take());
                    }
                    _ => self.all.push(Act::Grow(event.key, arrived, text)),
                }
            }
            Verdict::Nothing => {}
        }
    }
}

/// Frees the run from waiting for this reader.
struct Left(Arc<Shared>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.triggers_at.store(u64::MAX, Ordering::Relaxed);
    }
}
