//! The loop that sends packets, each at its time or as fast as possible, and obeys orders between two bursts.

use super::maker::Maker;
use super::pace::Pace;
use crate::port::{Port, PortFault};
use std::time::Duration;
use weir_engine::pairing::now_ns;
use weir_engine::replay;
use weir_engine::steering::{Order, Progress, Steering};
use weir_generator::Packets;
use weir_generator::streams::{Rate, Stamp};
use weir_io::sys::monotonic_ns;

/// Packets between two looks at the clock where packets do not wait for their times.
const BURST: usize = 64;

/// Sends packets.
pub struct Sender<'a> {
    pub port: &'a mut Port,
    pub maker: &'a mut Maker,
    pub pace: &'a mut Pace,
    /// Orders from other threads.
    pub steering: Option<&'a Steering>,
    /// Whether packets leave as fast as possible.
    is_hurried: bool,
    /// Whether each packet carries the time of its hand-over to the port.
    has_stamps: bool,
    rate: Option<replay::Rate>,
    /// Packet time of the first packet.
    first: Option<i64>,
    /// Time before a packet is due at which the port takes it, and the begin of the clock by CLOCK_MONOTONIC, ns.
    lead: Duration,
    begun_ns: u64,
    /// Time in which it was stopped so far; since when it is stopped.
    paused: Duration,
    stopped: Option<Duration>,
    /// A packet that waits, and the place of its timestamp.
    frame: Vec<u8>,
    stamp: Option<Stamp>,
    /// Whether the last packet that was made waits for its time.
    waits: bool,
}

impl<'a> Sender<'a> {
    /// A sender at this rate; `None` is as fast as possible. Packets have times of their own if `is_paced` is set without a rate.
    pub fn new(
        port: &'a mut Port,
        maker: &'a mut Maker,
        pace: &'a mut Pace,
        (rate, is_paced): (Option<Rate>, bool),
    ) -> Self {
        Self {
            lead: port.lead(),
            begun_ns: 0,
            port,
            maker,
            pace,
            steering: None,
            is_hurried: !is_paced,
            has_stamps: false,
            rate: match (rate, is_paced) {
                (_, false) => Some(replay::Rate::Max),
                (Some(Rate::Packets(per_s)), _) => Some(replay::Rate::Packets(per_s)),
                (Some(Rate::Bits(per_s)), _) => Some(replay::Rate::Bits(per_s)),
                (None, true) => None,
            },
            first: None,
            paused: Duration::ZERO,
            stopped: None,
            frame: Vec::new(),
            stamp: None,
            waits: false,
        }
    }

    /// The sender, with the time in each packet.
    pub fn stamping(self) -> Self {
        Self {
            has_stamps: true,
            ..self
        }
    }

    /// The sender, whose clock begins when a packet of `first_ns` is due, in packet time.
    pub fn beginning(self, first_ns: i64) -> Self {
        Self {
            first: Some(first_ns),
            ..self
        }
    }

    /// Sends until the packets, the time or the run ends.
    pub fn send(&mut self) -> Result<(), PortFault> {
        if let Some(steering) = self.steering {
            steering.begin();
        }
        let done = self.port.start().and_then(|()| self.send_all());
        if let Some(steering) = self.steering {
            steering.end(self.progress());
        }
        done.and_then(|()| self.port.finish())
    }

    fn send_all(&mut self) -> Result<(), PortFault> {
        // The clock of several workers has begun.
        if self.first.is_none() {
            self.pace.restart();
        }
        self.begun_ns = monotonic_ns().saturating_sub(self.pace.now().as_nanos() as u64);
        while !self.pace.is_over() {
            if self.is_asked() {
                self.obey(None)?;
                continue;
            }
            let more = match self.is_hurried {
                true => self.burst()?,
                false => self.one()?,
            };
            if !more {
                break;
            }
        }
        Ok(())
    }

    /// Sends some packets as fast as possible; returns whether there may be more.
    fn burst(&mut self) -> Result<bool, PortFault> {
        let mut count = 0;
        while count < BURST {
            let more = match self.has_stamps {
                true => self.one_with_its_time()?,
                false => {
                    let port = &mut *self.port;
                    self.maker.give(|frame| port.take(frame, false))?
                }
            };
            if more == 0 {
                return Ok(false);
            }
            count += more;
        }
        // The clock is read where it decides something.
        if self.pace.ends() {
            self.pace.now();
        }
        self.pace.show(self.maker.made);
        Ok(true)
    }

    fn one_with_its_time(&mut self) -> Result<usize, PortFault> {
        let Some((_, stamp)) = self.maker.copy_next(&mut self.frame) else {
            return Ok(0);
        };
        self.stamp = stamp;
        self.hand_over(0).map(|()| 1)
    }

    /// Sends the next packet when it is due; returns whether there may be more.
    fn one(&mut self) -> Result<bool, PortFault> {
        let time_ns = match self.has_stamps {
            true => {
                let Some((time_ns, stamp)) = self.maker.copy_next(&mut self.frame) else {
                    return Ok(false);
                };
                self.stamp = stamp;
                time_ns
            }
            false => {
                let Some((time_ns, frame)) = self.maker.next() else {
                    return Ok(false);
                };
                let since = time_ns - *self.first.get_or_insert(time_ns);
                let due = Duration::from_nanos(since.unsigned_abs()) + self.paused;
                if self.pace.is_due(due.saturating_sub(self.lead)) {
                    self.pace.leaves(due);
                    let at = due + self.pace.halted();
                    let at_ns = self.begun_ns.saturating_add(at.as_nanos() as u64);
                    self.port.take_at(frame, false, at_ns)?;
                    return Ok(self.has_sent());
                }
                self.frame.clear();
                self.frame.extend_from_slice(frame);
                time_ns
            }
        };
        let since = time_ns - *self.first.get_or_insert(time_ns);
        let mut due = Duration::from_nanos(since.unsigned_abs()) + self.paused;
        if !self.pace.is_due(due.saturating_sub(self.lead)) {
            // Frames in the port's buffer are due earlier.
            self.port.flush()?;
            self.waits = true;
            due = self.wait(due)?;
            if self.stopped.is_some() {
                // The run ended while an order had stopped it: nothing leaves.
                return Ok(false);
            }
            if !self.pace.is_due(due.saturating_sub(self.lead)) {
                // The run ended before the packet was due. It leaves at once if known answers count it already, else not at all.
                if !self.maker.has_answers {
                    self.maker.made -= 1;
                    return Ok(false);
                }
                due = self.pace.now();
            }
        }
        self.waits = false;
        self.pace.leaves(due);
        let at = due + self.pace.halted();
        self.hand_over(self.begun_ns.saturating_add(at.as_nanos() as u64))?;
        Ok(self.has_sent())
    }

    /// Looks around after a packet that had a time.
    fn has_sent(&mut self) -> bool {
        // A port that is slower than the rate never waits, and would not see the end.
        if self.maker.made.is_multiple_of(BURST as u64) {
            self.pace.now();
        }
        self.pace.show(self.maker.made);
        true
    }

    /// Hands the packet that waits over to the port, which may send it at this time of CLOCK_MONOTONIC, ns.
    fn hand_over(&mut self, at_ns: u64) -> Result<(), PortFault> {
        if let Some(stamp) = self.stamp {
            stamp.set_time(&mut self.frame, now_ns());
        }
        self.port.take_at(&self.frame, false, at_ns)
    }

    /// Waits until the packet is due, or the run is over; returns when it is due, which orders may change.
    fn wait(&mut self, mut due: Duration) -> Result<Duration, PortFault> {
        loop {
            if self.is_asked() {
                due = self.obey(Some(due))?;
            }
            let early = due.saturating_sub(self.lead);
            if self.pace.is_over() || self.pace.is_due(early) {
                return Ok(due);
            }
            self.port.look()?;
            self.pace.nap(early);
        }
    }

    #[inline]
    fn is_asked(&self) -> bool {
        self.steering.is_some_and(Steering::is_asked)
    }

    /// Obeys orders, and waits as long as the sender is stopped. Returns when the packet that waits is due, if one does.
    fn obey(&mut self, waiting: Option<Duration>) -> Result<Duration, PortFault> {
        let mut due = waiting.unwrap_or_default();
        let Some(steering) = self.steering else {
            return Ok(due);
        };
        loop {
            self.port.flush()?;
            for order in steering.take(self.progress()) {
                let now = self.pace.now();
                match order {
                    Order::Stop => self.stopped = self.stopped.or(Some(now)),
                    Order::Start => {
                        let pause = now - self.stopped.take().unwrap_or(now);
                        self.paused += pause;
                        due += pause;
                    }
                    Order::Rate(rate) => {
                        let due_before = waiting.map(|_| due);
                        due = self.set_rate(rate, due_before, self.stopped.unwrap_or(now));
                    }
                    // A sink is one port, and orders for it have no name.
                    Order::Port { .. } => {}
                    Order::Traffic(packets) => self.replace(*packets, waiting.is_some()),
                }
            }
            if self.stopped.is_none() {
                return Ok(due);
            }
            while !self.is_asked() {
                if self.pace.is_over() {
                    return Ok(due);
                }
                self.port.look()?;
                std::thread::sleep(Pace::LOOK);
                self.pace.now();
            }
        }
    }

    /// Sends at another rate from `now` on. A packet that waits leaves at most one gap later. Returns when.
    fn set_rate(
        &mut self,
        rate: replay::Rate,
        waiting: Option<Duration>,
        now: Duration,
    ) -> Duration {
        let (wanted, gap_s) = match rate {
            replay::Rate::Packets(per_s) => (Rate::Packets(per_s), 1.0 / per_s),
            replay::Rate::Bits(per_s) => (Rate::Bits(per_s), 8.0 * self.frame.len() as f64 / per_s),
            replay::Rate::Max | replay::Rate::Original(_) => {
                (self.is_hurried, self.rate) = (true, Some(rate));
                return now;
            }
        };
        (self.is_hurried, self.rate) = (false, Some(rate));
        let gap = Duration::try_from_secs_f64(gap_s).unwrap_or(Duration::MAX);
        let due = waiting.map_or(now, |due| due.min(now.saturating_add(gap)));
        let first = *self.first.get_or_insert(0);
        let since = i64::try_from(due.saturating_sub(self.paused).as_nanos()).unwrap_or(i64::MAX);
        let held = waiting.map(|_| self.frame.len());
        self.maker
            .set_rate(wanted, first.saturating_add(since), held);
        due
    }

    /// Goes on with other packets. A packet that waits is made again.
    fn replace(&mut self, packets: Packets, again: bool) {
        self.maker.replace(packets, again);
        if again && let Some((_, stamp)) = self.maker.copy_next(&mut self.frame) {
            self.stamp = stamp.filter(|_| self.has_stamps);
        }
    }

    /// Progress of the sender.
    fn progress(&self) -> Progress {
        let counts = self.port.counts();
        Progress {
            sent: counts.sent,
            bytes: counts.bytes,
            refused: counts.refused(),
            rate: self.rate,
            late: self.pace.late().last(),
            is_stopped: self.stopped.is_some(),
            streams: self.streams(),
            ports: Vec::new(),
        }
    }

    /// Packets of each stream that were handed to the port.
    pub fn streams(&self) -> Vec<u64> {
        let mut streams = self.maker.counts();
        if self.waits
            && let Some(count) = streams.get_mut(self.maker.stream())
        {
            *count -= 1;
        }
        streams
    }
}
