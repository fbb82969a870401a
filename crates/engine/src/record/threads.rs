//! The trigger thread: checks conditions, and moves packets from the ring into files.

use super::arrival::Arrivals;
use super::condition::{Check, Met, SCHEDULE};
use super::firing::{Begin, Cause, Firing, Interfaces, LATE_NS, nanoseconds};
use super::save::{SaveFile, Target};
use super::trigger::{Asked, Condition, Keep, NotFired, Saved, Span, Trigger};
use super::{Error, Loss, Request, Shared};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use weir_filter::Names;
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
    /// Arrival from which on the trigger can fire, ns.
    armed: i64,
    /// Last event while a file is saved that may end too early for it: it fires once the trigger is armed again.
    pending: Option<Cause>,
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
        names: Names,
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
            let check = Check::new(&trigger.condition, waits);
            Watched {
                trigger,
                check,
                armed: i64::MIN,
                pending: None,
                files: 0,
            }
        };
        Ok(Self {
            cursor: shared.history.cursor(From::Number(0)),
            watched: triggers.into_iter().map(watched).collect(),
            shared,
            target,
            requests,
            early: Vec::new(),
            on_saved,
            waits,
            interfaces: Interfaces::new(names),
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
        loop {
            let ended = self.shared.has_ended();
            self.take_requests();
            let now = self.shared.steady_ns();
            let busy = self.step(now);
            self.tell_place();
            if busy {
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
                self.met(index);
                let cause = Cause {
                    text: cause.clone(),
                    time_ns,
                    arrived,
                    packet: None,
                    flow: None,
                    host: None,
                };
                let fired = self.fire(index, cause, span);
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
        self.fire_by_time(now);
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
            let Watched {
                trigger,
                check,
                armed,
                pending,
                ..
            } = &mut self.watched[index];
            if !check.reads_packets() {
                continue;
            }
            if let Some(why) = check.prepare(&self.interfaces) {
                self.shared.triggers()[index].misfit = Some(why.to_string());
            }
            let (arrivals, interfaces) = (&self.arrivals, &self.interfaces);
            let mut events = Events::new(trigger, *armed, pending.take());
            check.check(
                piece,
                arrivals,
                interfaces,
                &mut found,
                &mut |packet: Met<'_>| {
                    events.met(&packet, arrivals, interfaces);
                },
            );
            *pending = match events.pending {
                Some(Pending::Match(at)) => {
                    let cause = |packet: Met<'_>| cause(&packet, arrivals, interfaces);
                    check.matching(piece, at, cause)
                }
                Some(Pending::Cause(cause)) => Some(*cause),
                None => None,
            };
            if events.met > 0 {
                self.shared.triggers()[index].met += events.met;
            }
            for (cause, follows) in events.causes {
                if follows {
                    self.watched[index].armed = i64::MIN;
                }
                // A trigger that is not armed does not fire: the counts say so.
                let _ = self.fire(index, cause, None);
            }
        }
        self.found = found;
    }

    /// Fires triggers whose interval has ended, and triggers that wait for the end of their file.
    fn fire_by_time(&mut self, steady_ns: u64) {
        let Some((time_ns, arrived)) = self.now() else {
            return;
        };
        for index in 0..self.watched.len() {
            let watched = &mut self.watched[index];
            if arrived >= watched.armed
                && let Some(cause) = watched.pending.take()
            {
                watched.armed = i64::MIN;
                let _ = self.fire(index, cause, None);
            }
            if self.watched[index].check.is_due(steady_ns) {
                self.met(index);
                let text = SCHEDULE.to_owned();
                let _ = self.fire(
                    index,
                    Cause {
                        text,
                        time_ns,
                        arrived,
                        packet: None,
                        flow: None,
                        host: None,
                    },
                    None,
                );
            }
        }
    }

    fn met(&self, index: usize) {
        self.shared.triggers()[index].met += 1;
    }

    /// Begins a file, if the trigger is armed. A given `span` replaces the span of the trigger.
    fn fire(&mut self, index: usize, cause: Cause, span: Option<Span>) -> Result<(), NotFired> {
        let Watched {
            trigger,
            armed,
            files,
            ..
        } = &mut self.watched[index];
        if cause.arrived == i64::MIN {
            return Err(NotFired::Early);
        }
        if *files >= trigger.max_files {
            return Err(NotFired::Spent(*files));
        }
        if cause.arrived < *armed {
            let left = Duration::from_nanos(armed.abs_diff(cause.arrived));
            let is_saving = self.firings.iter().any(|firing| firing.trigger == index);
            return Err(if is_saving {
                NotFired::Saving(left)
            } else {
                NotFired::Resting(left)
            });
        }
        if self.firings.len() >= MOST {
            return Err(NotFired::Busy(MOST));
        }
        let Span { before, after } = span.unwrap_or(Span {
            before: trigger.before,
            after: trigger.after,
        });
        *armed = armed_after(cause.arrived, after.saturating_add(trigger.cooldown));
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
                self.shared.triggers()[index].failed += 1;
                let (trigger, path) = (trigger.name.clone(), self.target.directory.clone());
                let (packets, missed, remarks) = (0, 0, Vec::new());
                let saved = Saved {
                    trigger,
                    cause: cause.text,
                    path,
                    packets,
                    missed,
                    remarks,
                    error: Some(error),
                };
                (self.on_saved)(&saved);
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

/// Arrival from which on a trigger that fired at `arrived` can fire again, ns.
fn armed_after(arrived: i64, rest: Duration) -> i64 {
    arrived.saturating_add(nanoseconds(rest)).saturating_add(1)
}

/// The cause that a packet is.
fn cause(packet: &Met<'_>, arrivals: &Arrivals, interfaces: &Interfaces) -> Cause {
    // A packet without a timestamp arrived with those around it.
    let time_ns = packet.time_ns().or(arrivals.stamp()).unwrap_or(i64::MIN);
    packet.cause(time_ns, arrived(packet, arrivals), interfaces)
}

/// Arrival of a packet, ns.
fn arrived(packet: &Met<'_>, arrivals: &Arrivals) -> i64 {
    let stamped = packet
        .time_ns()
        .map(|stamp| arrivals.arrival(packet.number(), stamp));
    stamped.or(arrivals.now()).unwrap_or(i64::MIN)
}

/// The last event while a trigger rests.
enum Pending {
    /// A packet of the present piece that matches; so many may match that no cause is made of each.
    Match(usize),
    Cause(Box<Cause>),
}

/// Events of a trigger among the packets of a piece.
struct Events {
    /// Time for which the trigger rests after it fired.
    rest: Duration,
    /// Whether events while the trigger rests fire it later: a file must not end before the time after its last event.
    keeps: bool,
    armed: i64,
    pending: Option<Pending>,
    met: u64,
    /// Causes for which the trigger fires, and whether each of them waited for the end of a file.
    causes: Vec<(Cause, bool)>,
}

impl Events {
    fn new(trigger: &Trigger, armed: i64, pending: Option<Cause>) -> Self {
        let rest = trigger.after.saturating_add(trigger.cooldown);
        let pending = pending.map(|cause| Pending::Cause(Box::new(cause)));
        Self {
            rest,
            keeps: trigger.cooldown.is_zero(),
            armed,
            pending,
            met: 0,
            causes: Vec::new(),
        }
    }

    /// Takes a packet that meets the condition.
    fn met(&mut self, packet: &Met<'_>, arrivals: &Arrivals, interfaces: &Interfaces) {
        self.met += 1;
        let arrived = arrived(packet, arrivals);
        if arrived >= self.armed
            && let Some(pending) = self.pending.take()
        {
            let cause = match pending {
                Pending::Match(index) => cause(&packet.of(index), arrivals, interfaces),
                Pending::Cause(cause) => *cause,
            };
            self.armed = armed_after(cause.arrived, self.rest);
            self.causes.push((cause, true));
        }
        if arrived >= self.armed {
            self.armed = armed_after(arrived, self.rest);
            self.causes
                .push((cause(packet, arrivals, interfaces), false));
        } else if self.keeps {
            self.pending = Some(match packet.as_match() {
                Some(index) => Pending::Match(index),
                None => Pending::Cause(Box::new(cause(packet, arrivals, interfaces))),
            });
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
