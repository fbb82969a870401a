//! The trigger thread: checks conditions, and moves packets from the ring into files.

use super::condition::{Check, Met, SCHEDULE};
use super::firing::{Begin, Cause, Firing, Interfaces, LATE_NS, nanoseconds};
use super::save::{SaveFile, Target};
use super::trigger::{Asked, Condition, Keep, NotFired, Saved, Span, Trigger};
use super::{Error, Loss, Request, Shared};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::Duration;
use weir_filter::Filter;
use weir_packet::LinkType;
use weir_store::ring::{Cursor, From};

/// Pause while nothing comes.
const PAUSE: Duration = Duration::from_millis(10);

/// Interval between two looks at the drops of the sources, ns.
const LOOK_NS: u64 = 1_000_000_000;

/// Longest wait for an answer about the drops of the sources.
const PATIENCE: Duration = Duration::from_millis(200);

/// Longest time for which a request waits for the first packet of files, which tells the time, ns.
const EARLY_NS: u64 = 1_000_000_000;

/// Number of looks at the drops that are remembered.
const LOSSES: usize = 4096;

/// Number of pauses at the end for packets that other readers keep from being read.
const PATIENT: u32 = 200;

/// Largest number of files under way.
const MOST: usize = 64;

/// A trigger with its check.
struct Watched {
    trigger: Trigger,
    check: Check,
    /// Time from which on the trigger can fire, ns since 1970.
    armed_ns: i64,
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
    /// Time of the last packet, ns since 1970.
    latest_ns: i64,
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
        resolve: bool,
        requests: Receiver<Request>,
        on_saved: Box<dyn FnMut(&Saved) + Send>,
        waits: bool,
    ) -> Result<Self, Error> {
        for trigger in &triggers {
            let keep = if let Keep::Matches(keep) = &trigger.keep { Some(keep) } else { None };
            let condition = if let Condition::Matches(condition) = &trigger.condition { Some(condition) } else { None };
            for expression in keep.into_iter().chain(condition) {
                // Interfaces are not known yet. An expression that makes no sense for Ethernet may make sense for another link.
                let links = [LinkType::ETHERNET, LinkType::LINUX_SLL2, LinkType::RAW, LinkType::IEEE802_11_RADIO];
                let mut refused = links.map(|link| Filter::compile(expression, link, resolve).err()).into_iter();
                if let Some(Some(why)) = refused.next()
                    && refused.all(|other| other.is_some())
                {
                    return Err(Error::Expression { name: trigger.name.clone(), why });
                }
            }
        }
        let watched = |trigger: Trigger| {
            let check = Check::new(&trigger.condition, waits);
            Watched { trigger, check, armed_ns: i64::MIN, files: 0 }
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
            interfaces: Interfaces::new(resolve),
            firings: Vec::new(),
            latest_ns: i64::MIN,
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
                if pauses > PATIENT || !self.starved && !self.firings.iter().any(Firing::is_starved) {
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
            self.shared.unchecked.store(self.cursor.missed() + waiting, Ordering::Relaxed);
        }
        self.complete(|_| true);
    }

    /// Tells which chunks of the ring are still read.
    fn tell_place(&self) {
        let firings = self.firings.iter().map(Firing::chunk);
        let place = firings.chain([self.cursor.chunk()]).min().unwrap_or(u64::MAX);
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
        let time_ns = self.time_ns();
        if time_ns == i64::MIN && self.shared.steady_ns() < until_ns {
            self.early.push((request, until_ns));
            return;
        }
        let Request::Fire { name, cause, span, answer } = request;
        let mut asked = Asked::default();
        for index in 0..self.watched.len() {
            if name.as_ref().is_none_or(|name| self.watched[index].trigger.name == *name) {
                self.met(index);
                let cause = Cause { text: cause.clone(), time_ns, flow: None, host: None };
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

    /// The time by which triggers fire that no packet fired, ns since 1970.
    fn time_ns(&self) -> i64 {
        if self.waits { self.latest_ns } else { self.shared.clock.now().wall_ns }
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
            self.shared.unchecked.store(self.cursor.missed(), Ordering::Relaxed);
            if self.interfaces.all.len() != self.shared.history.interface_count() {
                self.interfaces.refresh(&self.shared.history);
            }
            self.latest_ns = piece.record(piece.len() - 1).time_ns.unwrap_or(self.latest_ns);
            let mut found = std::mem::take(&mut self.found);
            for index in 0..self.watched.len() {
                let mut causes = Vec::new();
                let watched = &mut self.watched[index];
                if !watched.check.reads_packets() {
                    continue;
                }
                let misfit = watched.check.prepare(&self.interfaces);
                if let Some(why) = misfit {
                    self.shared.triggers()[index].misfit = Some(why.to_string());
                }
                let (latest_ns, interfaces) = (self.latest_ns, &self.interfaces);
                let (mut met, mut armed_ns) = (0, watched.armed_ns);
                let rest = watched.trigger.after.saturating_add(watched.trigger.cooldown);
                watched.check.check(&piece, interfaces, &mut found, &mut |packet: Met<'_>| {
                    met += 1;
                    let time_ns = packet.time_ns().unwrap_or(latest_ns);
                    if time_ns >= armed_ns {
                        armed_ns = time_ns.saturating_add(nanoseconds(rest)).saturating_add(1);
                        causes.push(packet.cause(time_ns, interfaces));
                    }
                });
                if met > 0 {
                    self.shared.triggers()[index].met += met;
                }
                for cause in causes {
                    // A trigger that is not armed does not fire: the counts say so.
                    let _ = self.fire(index, cause, None);
                }
            }
            self.found = found;
        }
        let time_ns = self.time_ns();
        for index in 0..self.watched.len() {
            if time_ns != i64::MIN && self.watched[index].check.is_due(time_ns) {
                self.met(index);
                let cause = Cause { text: SCHEDULE.to_owned(), time_ns, flow: None, host: None };
                let _ = self.fire(index, cause, None);
            }
        }
        for firing in &mut self.firings {
            busy |= firing.step(now, &self.interfaces);
        }
        if self.firings.iter().any(Firing::is_over) {
            self.complete(Firing::is_over);
        }
        busy
    }

    fn met(&self, index: usize) {
        self.shared.triggers()[index].met += 1;
    }

    /// Begins a file, if the trigger is armed. A given `span` stands for that of the trigger.
    fn fire(&mut self, index: usize, cause: Cause, span: Option<Span>) -> Result<(), NotFired> {
        let Watched { trigger, armed_ns, files, .. } = &mut self.watched[index];
        if cause.time_ns == i64::MIN {
            return Err(NotFired::Early);
        }
        if *files >= trigger.max_files {
            return Err(NotFired::Spent(*files));
        }
        if cause.time_ns < *armed_ns {
            let left = Duration::from_nanos(armed_ns.abs_diff(cause.time_ns));
            let is_saving = self.firings.iter().any(|firing| firing.trigger == index);
            return Err(if is_saving { NotFired::Saving(left) } else { NotFired::Resting(left) });
        }
        if self.firings.len() >= MOST {
            return Err(NotFired::Busy(MOST));
        }
        let Span { before, after } = span.unwrap_or(Span { before: trigger.before, after: trigger.after });
        let rest = after.saturating_add(trigger.cooldown);
        *armed_ns = cause.time_ns.saturating_add(nanoseconds(rest)).saturating_add(1);
        *files += 1;
        if self.interfaces.all.len() != self.shared.history.interface_count() {
            self.interfaces.refresh(&self.shared.history);
        }
        self.shared.triggers()[index].fired += 1;
        let comment = format!("trigger {}: {}", trigger.name, cause.text);
        match SaveFile::create(&self.target, &trigger.name, cause.time_ns, comment, trigger.max_bytes) {
            Ok(file) => {
                let wait = nanoseconds(after).saturating_add(LATE_NS) as u64;
                let deadline_ns = (!self.waits).then(|| self.shared.steady_ns().saturating_add(wait));
                let begin = Begin { trigger: index, cause, before, after, file, deadline_ns };
                self.firings.push(Firing::new(begin, &trigger.keep, &self.shared.history));
                self.shared.triggers()[index].active = true;
                Ok(())
            }
            Err(error) => {
                let why = NotFired::Failed(error.to_string());
                self.shared.triggers()[index].failed += 1;
                let (trigger, path) = (trigger.name.clone(), self.target.directory.clone());
                let saved =
                    Saved { trigger, cause: cause.text, path, packets: 0, remarks: Vec::new(), error: Some(error) };
                (self.on_saved)(&saved);
                Err(why)
            }
        }
    }

    /// Completes the files for which `is_over`.
    fn complete(&mut self, is_over: impl Fn(&Firing) -> bool) {
        let (over, left) = std::mem::take(&mut self.firings).into_iter().partition(is_over);
        self.firings = left;
        let over: Vec<Firing> = over;
        for firing in over {
            let dropped = self.dropped(firing.span_ns());
            let misfit = firing.misfit();
            let (index, cause, remarks, complete) = firing.finish(&self.interfaces, &self.shared.history, dropped);
            let active = self.firings.iter().any(|other| other.trigger == index);
            {
                let mut triggers = self.shared.triggers();
                let status = &mut triggers[index];
                status.active = active;
                status.packets += complete.packets;
                status.keep_misfit = misfit.or(status.keep_misfit.take());
                *(if complete.error.is_none() { &mut status.saved } else { &mut status.failed }) += 1;
            }
            let trigger = self.watched[index].trigger.name.clone();
            let (path, packets, error) = (complete.path, complete.packets, complete.error);
            (self.on_saved)(&Saved { trigger, cause: cause.text, path, packets, remarks, error });
        }
    }

    /// Notes once a second how many packets the sources have dropped.
    fn look_at_drops(&mut self, now: u64) {
        if self.waits || now < self.look_ns {
            return;
        }
        self.look_ns = now + LOOK_NS;
        let Some(snapshot) = self.shared.control.get().and_then(|control| control.snapshot(PATIENCE)) else { return };
        let refused = self.shared.no_room.load(Ordering::Relaxed) + self.shared.too_long.load(Ordering::Relaxed);
        let captures: u64 = snapshot.captures.iter().map(|(_, counts)| counts.dropped).sum();
        // A capture that has ended stands in the ledger too.
        let ledger = &snapshot.ledger.dropped;
        let dropped = captures.max(ledger.source) + ledger.output + refused;
        let mut losses = self.shared.losses.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if losses.len() >= LOSSES {
            losses.pop_front();
        }
        losses.push_back(Loss { wall_ns: self.shared.clock.now().wall_ns, dropped });
    }

    /// Packets that the sources dropped in a span, or up to a look around it; `None` if nobody looked.
    fn dropped(&mut self, (from_ns, until_ns): (i64, i64)) -> Option<u64> {
        self.look_ns = 0;
        self.look_at_drops(self.shared.steady_ns());
        let losses = self.shared.losses.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let last = losses.iter().find(|loss| loss.wall_ns >= until_ns).or(losses.back())?;
        let first = losses.iter().rev().find(|loss| loss.wall_ns <= from_ns).map_or(0, |loss| loss.dropped);
        Some(last.dropped.saturating_sub(first))
    }
}

/// Frees the run from waiting for this reader.
struct Left(Arc<Shared>);

impl Drop for Left {
    fn drop(&mut self) {
        self.0.triggers_at.store(u64::MAX, Ordering::Relaxed);
    }
}
