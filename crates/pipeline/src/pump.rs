//! Several live sources at once, by packet time.
//!
//! Each source has a reading side, which runs in steps ([`crate::steps`]), in a thread of its own in a real capture. [`pick`]
//! chooses the next packet from the deliveries so far.

use crate::reader::{SourceError, Step};
use crate::steps::{Clock, Moment, Progress, SystemClock};
use crate::{Consumer, Delivery, Reader, Report, SourceFault, threads};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel,
};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use weir_io::live::{Counts, TURN};
use weir_packet::savefile::Layout;

/// Number of deliveries of a source that may wait. Further ones stay in the source's memory, which drops and counts packets.
const WAITING: usize = 64;

/// Longest time for which a packet may be on its way: the kernel hands a block over by a timer, which a busy machine delays.
pub(crate) const SLACK: Duration = Duration::from_millis(500);

/// Kind of the reading threads, for names and errors.
const READER: &str = "reader";

/// Message of the reading side of a source.
enum Message<C: Consumer> {
    /// Packets, and the time of reading.
    Delivery(Arc<Delivery<C>>, Moment),
    /// No packet arrived for a turn; the time, and the number of the current change.
    Quiet(Moment, u64),
    End(Box<(Report, Option<Layout>)>),
}

/// Sender of the deliveries of a source to its merging side.
pub(crate) struct MergeSender<C: Consumer> {
    messages: SyncSender<Message<C>>,
    /// The next message to send.
    held: Option<Message<C>>,
    /// Steady time at which the source became quiet.
    quiet_since: Option<Duration>,
    ended: bool,
}

impl<C: Consumer> MergeSender<C> {
    /// Holds a delivery to send next.
    pub(crate) fn deliver(&mut self, delivery: Arc<Delivery<C>>, now: Moment) {
        self.quiet_since = None;
        self.held = Some(Message::Delivery(delivery, now));
    }

    /// Notes that no packet arrived, under change `change`. Returns the steady time before which no message is needed; `None` if a
    /// message is now held.
    pub(crate) fn quiet(&mut self, now: Moment, change: u64) -> Option<Duration> {
        let until = self
            .quiet_since
            .get_or_insert(now.steady)
            .saturating_add(TURN);
        if now.steady < until {
            return Some(until);
        }
        self.quiet_since = Some(now.steady);
        self.held = Some(Message::Quiet(now, change));
        None
    }

    /// Holds the end of the source to send next.
    pub(crate) fn end(&mut self, report: Report, layout: Option<Layout>) {
        self.ended = true;
        self.held = Some(Message::End(Box::new((report, layout))));
    }

    /// Whether the end was sent or is held.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Sends the held message if there is room; `None` if no message is held.
    pub(crate) fn try_send(&mut self) -> Option<Progress> {
        Some(match self.messages.try_send(self.held.take()?) {
            Ok(()) => Progress::Busy,
            Err(TrySendError::Full(message)) => {
                self.held = Some(message);
                Progress::Idle(Duration::MAX)
            }
            Err(TrySendError::Disconnected(_)) => Progress::Ended,
        })
    }

    /// Sends the held message, and waits for room. Returns whether the merging side still exists.
    pub(crate) fn send(&mut self) -> bool {
        self.held
            .take()
            .is_none_or(|message| self.messages.send(message).is_ok())
    }
}

/// The reading side of a source.
pub struct Reading<C: Consumer> {
    /// `None` once the source is closed.
    reader: Option<Reader<C>>,
    number: usize,
    sender: MergeSender<C>,
    counts: Arc<Mutex<Option<Counts>>>,
}

impl<C: Consumer> core::fmt::Debug for Reading<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reading")
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

impl<C: Consumer> Reading<C> {
    /// Takes the next delivery, or sends the one taken before. If there is no room, the step idles, and the source's own memory
    /// fills.
    pub fn step(&mut self, now: Moment) -> Progress {
        self.sender.try_send().unwrap_or_else(|| self.take(now))
    }

    /// Takes the next delivery.
    fn take(&mut self, now: Moment) -> Progress {
        let Some(reader) = &mut self.reader else {
            return Progress::Ended;
        };
        let step = reader.poll();
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = reader.report().live;
        match step {
            Step::Delivery(delivery) => self.sender.deliver(Arc::new(delivery), now),
            Step::Quiet => {
                if let Some(until) = self.sender.quiet(now, reader.change()) {
                    return Progress::Idle(until);
                }
            }
            Step::End => self.close(),
        }
        Progress::Busy
    }

    /// Closes the source before its end is sent. The close may panic.
    fn close(&mut self) {
        let Some(mut reader) = self.reader.take() else {
            return;
        };
        let (layout, mut report) = (reader.layout().cloned(), reader.take_report());
        if threads::caught(|| drop(reader)).is_none() && report.fault.is_none() {
            report.fail(SourceError::Panic {
                thread: READER,
                number: self.number,
            });
        }
        self.sender.end(report, layout);
    }

    /// Reads up to the end of the source, or until the merging side is gone, and waits in between.
    fn run(mut self, system: SystemClock) {
        // Packets delivered before a panic stay counted. The interface is read no further, which is
        // an error.
        if threads::caught(|| self.deliver(system)).is_none() {
            if let Some(reader) = &mut self.reader {
                reader.fail(SourceError::Panic {
                    thread: READER,
                    number: self.number,
                });
            }
            self.close();
            self.sender.send();
        }
    }

    fn deliver(&mut self, system: SystemClock) {
        loop {
            let now = system.now();
            match (self.take(now), &mut self.reader) {
                (Progress::Idle(until), Some(reader)) => {
                    reader.wait(until.saturating_sub(now.steady))
                }
                (Progress::Busy, _) => {
                    if !self.sender.send() {
                        return;
                    }
                }
                (Progress::Idle(_) | Progress::Ended, _) => return,
            }
        }
    }
}

/// The merging side of a source.
pub struct Pump<C: Consumer> {
    messages: Receiver<Message<C>>,
    waiting: VecDeque<Arc<Delivery<C>>>,
    /// Number of packets of the first waiting delivery that are passed on or left out.
    done: usize,
    /// Time up to which all packets were delivered, ns.
    until: i64,
    /// Packet time minus steady time, ns, at the last delivery.
    offset: Option<i64>,
    ended: Option<(Report, Option<Layout>)>,
    /// Number of the source.
    number: usize,
    /// Number of a change: the next packets belong to it or to a later one.
    change: u64,
    counts: Arc<Mutex<Option<Counts>>>,
    /// Reading side, if it has no thread, and the clock of its steps.
    own: Option<(Reading<C>, Arc<dyn Clock>)>,
}

impl<C: Consumer> core::fmt::Debug for Pump<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pump")
            .field("waiting", &self.waiting.len())
            .field("until", &self.until)
            .finish_non_exhaustive()
    }
}

impl<C: Consumer> Pump<C> {
    /// Starts the thread that reads source `number`. **Errors**: the thread cannot be started.
    pub fn start(reader: Reader<C>, number: usize) -> io::Result<Self> {
        let (reading, pump) = Self::pair(reader, number);
        threads::spawn(READER, number, move || reading.run(SystemClock::default()))?;
        Ok(pump)
    }

    /// Makes the merging side of source `number`, which steps the reading side in the caller's thread whenever it takes messages.
    pub fn stepped(reader: Reader<C>, number: usize, clock: &Arc<dyn Clock>) -> Self {
        let (reading, pump) = Self::pair(reader, number);
        Self {
            own: Some((reading, Arc::clone(clock))),
            ..pump
        }
    }

    /// Makes both sides of source `number`, for a caller that steps the reading side itself.
    pub fn pair(reader: Reader<C>, number: usize) -> (Reading<C>, Self) {
        let (sender, pump) = Self::channel(number);
        let counts = Arc::clone(&pump.counts);
        (
            Reading {
                reader: Some(reader),
                number,
                sender,
                counts,
            },
            pump,
        )
    }

    /// Makes the merging side of source `number`, and its sender.
    pub(crate) fn channel(number: usize) -> (MergeSender<C>, Self) {
        let (send, messages) = sync_channel(WAITING);
        let waiting = VecDeque::with_capacity(WAITING);
        let pump = Self {
            messages,
            waiting,
            done: 0,
            until: i64::MIN,
            offset: None,
            ended: None,
            number,
            change: 0,
            counts: Arc::default(),
            own: None,
        };
        (
            MergeSender {
                messages: send,
                held: None,
                quiet_since: None,
                ended: false,
            },
            pump,
        )
    }

    /// Takes the messages so far.
    pub fn receive_ready(&mut self) {
        self.read_on();
        while self.has_room() {
            match self.messages.try_recv() {
                Ok(message) => self.take(message),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.lose(),
            }
        }
    }

    /// Takes the messages so far; if there is none, waits at most `time` for one.
    pub fn receive(&mut self, time: Duration) {
        if self.own.is_some() {
            self.wait(time);
        } else if self.has_room() {
            match self.messages.recv_timeout(time) {
                Ok(message) => self.take(message),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.lose(),
            }
        }
        self.receive_ready();
    }

    /// Steps a reading side without a thread as far as it gets. Returns the steady time until which it has no work.
    fn read_on(&mut self) -> Option<Duration> {
        let (reading, clock) = self.own.as_mut()?;
        loop {
            match reading.step(clock.now()) {
                Progress::Busy => {}
                Progress::Idle(until) => return Some(until),
                Progress::Ended => return None,
            }
        }
    }

    /// Steps a reading side without a thread, and waits at most `time` for its source if it has no work.
    fn wait(&mut self, time: Duration) {
        let until = self.read_on();
        if let (Some(until), Some((reading, clock))) = (until, &mut self.own)
            && let Some(reader) = &mut reading.reader
        {
            reader.wait(time.min(until.saturating_sub(clock.now().steady)));
        }
    }

    fn has_room(&self) -> bool {
        self.ended.is_none() && self.waiting.len() < WAITING
    }

    fn take(&mut self, message: Message<C>) {
        let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        match message {
            Message::Delivery(delivery, now) => {
                let last = delivery
                    .current
                    .layout
                    .record(delivery.view.content(), delivery.last);
                if let Some(time) = last.and_then(|record| record.time_ns) {
                    self.until = self.until.max(time);
                    self.offset = Some(time.saturating_sub(ns(now.steady)));
                }
                self.waiting.push_back(delivery);
            }
            // Packet time advances like steady time. Before the first packet, the time of day
            // replaces packet time.
            Message::Quiet(now, change) => {
                self.change = change;
                let now = self
                    .offset
                    .map_or(now.wall_ns, |offset| offset.saturating_add(ns(now.steady)));
                self.until = self.until.max(now.saturating_sub(ns(SLACK)));
            }
            Message::End(end) => {
                let (report, layout) = *end;
                self.end(report, layout);
            }
        }
    }

    /// Ends a source whose thread is gone without a report. (A thread that panics sends its progress before.)
    fn lose(&mut self) {
        let what = SourceError::Panic {
            thread: READER,
            number: self.number,
        };
        let fault = Some(SourceFault {
            packet: 1,
            offset: 0,
            what,
        });
        self.end(
            Report {
                fault,
                ..Report::default()
            },
            None,
        );
    }

    fn end(&mut self, report: Report, layout: Option<Layout>) {
        self.ended = Some((report, layout));
        (self.until, self.change) = (i64::MAX, u64::MAX);
    }

    /// Returns the time up to which all packets have arrived, ns.
    pub fn until(&self) -> i64 {
        self.until
    }

    /// Returns the number of a change. If no delivery waits, the next packets belong to this change or a later one.
    pub fn change(&self) -> u64 {
        self.change
    }

    /// Returns the counts of the capture so far, as of the last step of its reading side; `None` before the first.
    pub fn counts(&self) -> Option<Counts> {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the report and the layout of the source, once it has ended.
    pub fn ended(&self) -> Option<&(Report, Option<Layout>)> {
        self.ended.as_ref()
    }

    /// Takes the report and the layout of a source that has ended.
    pub fn take_end(&mut self) -> Option<(Report, Option<Layout>)> {
        self.ended.take()
    }

    /// Returns the first waiting delivery, and the number of its packets that are passed on or left out.
    pub fn first(&self) -> Option<(&Delivery<C>, usize)> {
        self.waiting
            .front()
            .map(|delivery| (&**delivery, self.done))
    }

    /// Passes the packets of the first waiting delivery before number `done` on, or leaves them out.
    pub fn pass(&mut self, done: usize) {
        self.done = done;
    }

    /// Passes no more packets of the first waiting delivery on. Its memory returns to its source.
    pub fn leave(&mut self) {
        self.waiting.pop_front();
        self.done = 0;
    }
}

/// State of a source, for [`pick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Time of the next packet of the source, ns; `None` if no packet waits.
    pub next: Option<i64>,
    /// Time up to which all packets of the source have arrived, ns: see [`Pump::until`].
    pub until: i64,
    /// Whether the source has ended.
    pub ended: bool,
}

/// Result of [`pick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The next packet belongs to this source.
    Packet(usize),
    /// This source may still deliver an earlier packet, or no packet waits.
    Wait(usize),
    /// All sources have ended, and all packets are passed on.
    End,
}

/// Chooses the source of the next packet: the earliest waiting packet, once no other source can have an earlier one. If times are
/// equal, the first source is chosen. **Cost**: no allocation.
pub fn pick(sources: impl IntoIterator<Item = Standing>) -> Pick {
    let (mut first, mut behind) = (None, None);
    for (i, Standing { next, until, ended }) in sources.into_iter().enumerate() {
        let (least, at) = match next {
            Some(time) => (&mut first, time),
            None if ended => continue,
            None => (&mut behind, until),
        };
        if least.is_none_or(|(least, _)| at < least) {
            *least = Some((at, i));
        }
    }
    match (first, behind) {
        (Some((time, _)), Some((until, i))) if until < time => Pick::Wait(i),
        (Some((_, i)), _) => Pick::Packet(i),
        (None, Some((_, i))) => Pick::Wait(i),
        (None, None) => Pick::End,
    }
}
