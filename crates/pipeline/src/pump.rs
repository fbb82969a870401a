//! Several live sources at once, by packet time.
//!
//! Each source has a reading side, which takes steps ([`crate::steps`]) and has a thread of its own in a real capture. Which packet is
//! next is a function of what has come ([`pick`]).

use crate::reader::{SourceError, Step};
use crate::steps::{Moment, Progress, SystemClock};
use crate::{Consumer, Delivery, Reader, Report, SourceFault, threads};
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::time::Duration;
use weir_io::live::TURN;
use weir_packet::savefile::Layout;

/// Deliveries of a source that may wait. More stay in its own memory, where there is a place that drops and counts.
const WAITING: usize = 64;

/// Kind of the threads here, for names and faults.
const READER: &str = "reader";

/// What the reading side of a source says.
enum Message<C: Consumer> {
    /// Packets, and when they were read.
    Delivery(Arc<Delivery<C>>, Moment),
    /// Nothing came for a turn, as of this time and under this change.
    Quiet(Moment, u64),
    End(Box<Report>, Option<Layout>),
}

/// Hands what a source delivers to its merging side.
pub(crate) struct MergeSender<C: Consumer> {
    messages: SyncSender<Message<C>>,
    /// A message that is to be sent next.
    held: Option<Message<C>>,
    /// Steady time since when nothing has come.
    quiet_since: Option<Duration>,
    ended: bool,
}

impl<C: Consumer> MergeSender<C> {
    /// Packets came.
    pub(crate) fn deliver(&mut self, delivery: Arc<Delivery<C>>, now: Moment) {
        self.quiet_since = None;
        self.held = Some(Message::Delivery(delivery, now));
    }

    /// Nothing came, under change `change`. Gives the steady time until which that need not be told.
    pub(crate) fn quiet(&mut self, now: Moment, change: u64) -> Option<Duration> {
        let until = self.quiet_since.get_or_insert(now.steady).saturating_add(TURN);
        if now.steady < until {
            return Some(until);
        }
        self.quiet_since = Some(now.steady);
        self.held = Some(Message::Quiet(now, change));
        None
    }

    /// The source has ended.
    pub(crate) fn end(&mut self, report: Report, layout: Option<Layout>) {
        self.ended = true;
        self.held = Some(Message::End(Box::new(report), layout));
    }

    /// The end was told, or is about to be.
    pub(crate) fn has_ended(&self) -> bool {
        self.ended
    }

    /// Sends what is held, if there is room; `None` if nothing is held.
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

    /// Sends what is held, once there is room; says whether somebody listens.
    pub(crate) fn send(&mut self) -> bool {
        self.held.take().is_none_or(|message| self.messages.send(message).is_ok())
    }
}

/// The reading side of a source.
pub struct Reading<C: Consumer> {
    /// `None` once the source is closed.
    reader: Option<Reader<C>>,
    number: usize,
    sender: MergeSender<C>,
}

impl<C: Consumer> core::fmt::Debug for Reading<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Reading").field("number", &self.number).finish_non_exhaustive()
    }
}

impl<C: Consumer> Reading<C> {
    /// Takes what has come, or sends what was taken. While there is no room for that it idles, and the source's own memory fills.
    pub fn step(&mut self, now: Moment) -> Progress {
        self.sender.try_send().unwrap_or_else(|| self.take(now))
    }

    /// Takes what has come.
    fn take(&mut self, now: Moment) -> Progress {
        let Some(reader) = &mut self.reader else { return Progress::Ended };
        match reader.look() {
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

    /// Closes the source. That comes before its end is told, and may panic.
    fn close(&mut self) {
        let Some(mut reader) = self.reader.take() else { return };
        let (layout, mut report) = (reader.layout().cloned(), reader.take_report());
        if threads::caught(|| drop(reader)).is_none() && report.fault.is_none() {
            report.fail(SourceError::Panic { thread: READER, number: self.number });
        }
        self.sender.end(report, layout);
    }

    /// Reads up to the source's end or until nobody listens, and waits in between.
    fn run(mut self, system: SystemClock) {
        // What was delivered before stays counted; the interface is not read on, which is a fault.
        if threads::caught(|| self.deliver(system)).is_none() {
            if let Some(reader) = &mut self.reader {
                reader.fail(SourceError::Panic { thread: READER, number: self.number });
            }
            self.close();
            self.sender.send();
        }
    }

    fn deliver(&mut self, system: SystemClock) {
        loop {
            let now = system.now();
            match (self.take(now), &mut self.reader) {
                (Progress::Idle(until), Some(reader)) => reader.wait(until.saturating_sub(now.steady)),
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
    /// Records of the first that waits, of those that the consumer kept, that are passed on.
    next: usize,
    /// All packets of up to this time were delivered, ns.
    until: i64,
    /// Packet time less steady time, ns, when packets were delivered last.
    offset: Option<i64>,
    ended: Option<(Report, Option<Layout>)>,
    /// Number of the source.
    number: usize,
    /// What comes from now on is of this change or a later one.
    change: u64,
}

impl<C: Consumer> core::fmt::Debug for Pump<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pump").field("waiting", &self.waiting.len()).field("until", &self.until).finish_non_exhaustive()
    }
}

impl<C: Consumer> Pump<C> {
    /// Starts the thread that reads source `number`. **Errors**: the thread cannot be had.
    pub fn start(reader: Reader<C>, number: usize) -> io::Result<Self> {
        let (reading, pump) = Self::pair(reader, number);
        threads::spawn(READER, number, move || reading.run(SystemClock::default()))?;
        Ok(pump)
    }

    /// Both sides of source `number`, for callers who step the reading side themselves.
    pub fn pair(reader: Reader<C>, number: usize) -> (Reading<C>, Self) {
        let (sender, pump) = Self::channel(number);
        (Reading { reader: Some(reader), number, sender }, pump)
    }

    /// The merging side of source `number`, and what feeds it.
    pub(crate) fn channel(number: usize) -> (MergeSender<C>, Self) {
        let (send, messages) = sync_channel(WAITING);
        let waiting = VecDeque::with_capacity(WAITING);
        let pump = Self { messages, waiting, next: 0, until: i64::MIN, offset: None, ended: None, number, change: 0 };
        (MergeSender { messages: send, held: None, quiet_since: None, ended: false }, pump)
    }

    /// Takes up what was delivered meanwhile; `each` sees every delivery once.
    pub fn take_up(&mut self, each: &mut dyn FnMut(&Delivery<C>)) {
        while self.has_room() {
            match self.messages.try_recv() {
                Ok(message) => self.take(message, each),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.lose(),
            }
        }
    }

    /// The same, and waits for at most `time` if nothing was delivered.
    pub fn look(&mut self, time: Duration, each: &mut dyn FnMut(&Delivery<C>)) {
        if self.has_room() {
            match self.messages.recv_timeout(time) {
                Ok(message) => self.take(message, each),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => self.lose(),
            }
        }
        self.take_up(each);
    }

    fn has_room(&self) -> bool {
        self.ended.is_none() && self.waiting.len() < WAITING
    }

    fn take(&mut self, message: Message<C>, each: &mut dyn FnMut(&Delivery<C>)) {
        /// What may still be on its way, at most: the kernel hands a block over by a timer, which a busy machine keeps waiting.
        const SLACK_NS: i64 = 500_000_000;
        let ns = |time: Duration| i64::try_from(time.as_nanos()).unwrap_or(i64::MAX);
        match message {
            Message::Delivery(delivery, now) => {
                each(&delivery);
                let last = delivery.current.layout.record(delivery.view.content(), delivery.last);
                if let Some(time) = last.and_then(|record| record.time_ns) {
                    self.until = self.until.max(time);
                    self.offset = Some(time.saturating_sub(ns(now.steady)));
                }
                self.waiting.push_back(delivery);
            }
            // Packet time goes on as steady time does. Before the first packet it is taken for the time of day.
            Message::Quiet(now, change) => {
                self.change = change;
                let now = self.offset.map_or(now.wall_ns, |offset| offset.saturating_add(ns(now.steady)));
                self.until = self.until.max(now.saturating_sub(SLACK_NS));
            }
            Message::End(report, layout) => self.end(*report, layout),
        }
    }

    /// A thread that panics says how far it came; of one that says nothing no more is known than that it ended.
    fn lose(&mut self) {
        let what = SourceError::Panic { thread: READER, number: self.number };
        let fault = Some(SourceFault { packet: 1, offset: 0, what });
        self.end(Report { fault, ..Report::default() }, None);
    }

    fn end(&mut self, report: Report, layout: Option<Layout>) {
        self.ended = Some((report, layout));
        (self.until, self.change) = (i64::MAX, u64::MAX);
    }

    /// All packets of up to this time have come, ns.
    pub fn until(&self) -> i64 {
        self.until
    }

    /// While no delivery waits: what comes from now on is of this change or a later one.
    pub fn change(&self) -> u64 {
        self.change
    }

    /// What came of the source, once it has ended.
    pub fn ended(&self) -> Option<&(Report, Option<Layout>)> {
        self.ended.as_ref()
    }

    /// The delivery that the next packet is in, and which of the records that the consumer kept it is.
    pub fn next(&mut self, kept: impl Fn(&C::Part) -> usize) -> Option<(&Delivery<C>, usize)> {
        while self.next >= self.waiting.front().map(|delivery| kept(&delivery.part))? {
            // Its memory goes back to where it came from.
            self.waiting.pop_front();
            self.next = 0;
        }
        self.waiting.front().map(|delivery| (&**delivery, self.next))
    }

    /// That packet is passed on.
    pub fn pass(&mut self) {
        self.next += 1;
    }
}

/// How far a source has come, for [`pick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Time of its next packet, ns; `None` if none waits.
    pub next: Option<i64>,
    /// All its packets of up to this time have come, ns: see [`Pump::until`].
    pub until: i64,
    /// It has ended.
    pub ended: bool,
}

/// What [`pick`] comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// The next packet is one of this source.
    Packet(usize),
    /// An earlier one may still come of this source, or nothing waits.
    Wait(usize),
    /// All sources have ended, and all is passed on.
    End,
}

/// Says of which source the next packet is: the earliest that waits, of equal times that of the first source, once no other source
/// can have an earlier one. **Cost**: no allocation.
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
