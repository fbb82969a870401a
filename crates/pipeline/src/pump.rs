//! Several live sources at once, by packet time: each is read in a thread of its own.

use crate::reader::{Step, Trouble};
use crate::{Consumer, Delivery, Reader, Report, SourceFault, threads};
use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, SystemTime};
use weir_packet::savefile::Layout;

/// Deliveries of a source that may wait. More stay in its own memory, where there is a place that drops and counts.
const WAITING: usize = 64;

/// Kind of the threads here, for names and faults.
const READER: &str = "reader";

/// What the thread of a source says.
enum Word<C: Consumer> {
    Delivery(Delivery<C>),
    /// Nothing came for a while, as of this time, ns since 1970.
    Quiet(i64),
    End(Box<Report>, Option<Layout>),
}

/// A live source that is read in a thread of its own.
pub struct Pump<C: Consumer> {
    words: Receiver<Word<C>>,
    waiting: VecDeque<Delivery<C>>,
    /// Records of the first that waits, of those that the consumer kept, that are passed on.
    next: usize,
    /// All packets of up to this time were delivered, ns.
    until: i64,
    /// By how much packets were behind the system's clock when they were delivered last.
    behind: Option<i64>,
    ended: Option<(Report, Option<Layout>)>,
    /// Number of the thread.
    number: usize,
}

impl<C: Consumer> core::fmt::Debug for Pump<C> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Pump").field("waiting", &self.waiting.len()).field("until", &self.until).finish_non_exhaustive()
    }
}

impl<C: Consumer> Pump<C> {
    /// Starts the thread that reads source `number`. **Errors**: the thread cannot be had.
    pub fn start(reader: Reader<C>, number: usize) -> io::Result<Self> {
        let (say, words) = sync_channel(WAITING);
        threads::spawn(READER, number, move || pump(reader, number, &say))?;
        Ok(Self { words, waiting: VecDeque::new(), next: 0, until: i64::MIN, behind: None, ended: None, number })
    }

    /// Takes up what was delivered meanwhile; `each` sees every delivery once. Waits for at most `time`.
    pub fn look(&mut self, time: Duration, each: &mut dyn FnMut(&Delivery<C>)) {
        let mut time = time;
        while self.ended.is_none() && self.waiting.len() < WAITING {
            match self.words.recv_timeout(time) {
                Ok(word) => self.take(word, each),
                Err(RecvTimeoutError::Timeout) => break,
                // A thread that panics says how far it came; of one that says nothing no more is known than that it ended.
                Err(RecvTimeoutError::Disconnected) => {
                    let what = Trouble::Panic { thread: READER, number: self.number };
                    let fault = Some(SourceFault { packet: 1, offset: 0, what });
                    self.ended = Some((Report { fault, ..Report::default() }, None));
                }
            }
            time = Duration::ZERO;
        }
        if self.ended.is_some() {
            self.until = i64::MAX;
        }
    }

    fn take(&mut self, word: Word<C>, each: &mut dyn FnMut(&Delivery<C>)) {
        /// What may still be on its way, at most: the kernel hands a block over by a timer, which a busy machine keeps waiting.
        const SLACK_NS: i64 = 500_000_000;
        match word {
            Word::Delivery(delivery) => {
                each(&delivery);
                let last = delivery.current.layout.record(delivery.view.content(), delivery.last);
                if let Some(time) = last.and_then(|record| record.time_ns) {
                    self.until = self.until.max(time);
                    self.behind = Some(now_ns() - time);
                }
                self.waiting.push_back(delivery);
            }
            // Its clock may be another one; what came last tells how they differ.
            Word::Quiet(now) => self.until = self.until.max(now - self.behind.unwrap_or(0).max(0) - SLACK_NS),
            Word::End(report, layout) => self.ended = Some((*report, layout)),
        }
    }

    /// All packets of up to this time have come, ns.
    pub fn until(&self) -> i64 {
        self.until
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
        self.waiting.front().map(|delivery| (delivery, self.next))
    }

    /// That packet is passed on.
    pub fn pass(&mut self) {
        self.next += 1;
    }
}

fn pump<C: Consumer>(mut reader: Reader<C>, number: usize, say: &SyncSender<Word<C>>) {
    let panic = || Trouble::Panic { thread: READER, number };
    // What was delivered before stays counted; the interface is not read on, which is a fault.
    if threads::caught(|| deliver(&mut reader, say)).is_none() {
        reader.fail(panic());
    }
    let (layout, mut report) = (reader.layout().cloned(), reader.take_report());
    // The source is closed before its end is told, and may panic over that.
    if threads::caught(|| drop(reader)).is_none() && report.fault.is_none() {
        report.fail(panic());
    }
    // Nobody listens any more if the other end has enough.
    let _ = say.send(Word::End(Box::new(report), layout));
}

/// Sends what the reader delivers, up to its end or until nobody listens.
fn deliver<C: Consumer>(reader: &mut Reader<C>, say: &SyncSender<Word<C>>) {
    loop {
        let word = match reader.step() {
            Step::Delivery(delivery) => Word::Delivery(delivery),
            Step::Quiet => Word::Quiet(now_ns()),
            Step::End => return,
        };
        if say.send(word).is_err() {
            return;
        }
    }
}

fn now_ns() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
