//! Capture from a port of DPDK.
//!
//! Each receive queue has a backend of its own. Packets stay where the device stored them, each in a slot of its own
//! ([`weir_packet::savefile::slots`]). The device does not signal arrivals, so the thread polls its queue. If the queue has
//! been empty for a while, the thread sleeps between polls, unless `busy` is set.
//!
//! **Times** come from software: the system's clock is read once for each burst of up to 256 packets. Times never decrease
//! within a queue.
//!
//! **Losses** are the device's counts (`imissed`, `ierrors`), the kernel's drops at the sockets of `net_af_packet`, and frames
//! dropped because no memory was left to join their segments. The queue that reads the device's counts first takes their
//! increase, so that only the sum over the queues is right. At the end, the packets handed over are compared with the counts of
//! the device and of the kernel.

use crate::live::{Backend, Counts, Lease, Next};
use crate::sys::privilege::Capability;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use weir_dpdk::{Burst, Opened, Port, Queue};
use weir_packet::LinkType;
use weir_packet::savefile::slots::Slots;
use weir_packet::savefile::{Bytes, Interface, Layout, MAX_SNAPLEN, Resolution};

pub use weir_dpdk::{BESIDE, Error, SendError, Sender};

/// Interval at which the device's counts are read.
const LOOK: Duration = Duration::from_millis(100);

/// Longest time that a stopped device may take to hand over the packets that it has counted.
const PATIENCE: Duration = Duration::from_secs(1);

/// Number of empty polls, a few microseconds, before the thread sleeps between polls.
const EMPTY: u32 = 256;

/// Shortest and longest of these sleeps. The kernel adds its timer slack, 50 us.
const NAPS: [Duration; 2] = [Duration::from_micros(10), Duration::from_micros(100)];

/// Largest number of packets that a stopped queue hands over, if its device keeps delivering and reports no count.
const AFTER_STOP: u64 = 1 << 12;

/// Settings of a capture.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Number of receive queues; each has a backend of its own.
    pub queues: u16,
    /// Number of packets of each queue that the memory holds.
    pub packets: u32,
    /// Whether the device also receives packets for other hosts, if it can.
    pub promiscuous: bool,
    /// Whether the threads never sleep; each queue then occupies a processor.
    pub busy: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let weir_dpdk::Settings {
            queues,
            mbufs,
            promiscuous,
            ..
        } = weir_dpdk::Settings::default();
        Self {
            queues,
            packets: mbufs,
            promiscuous,
            busy: false,
        }
    }
}

/// Starts the capture from a device, by its DPDK name (`net_af_packet0,iface=eth1`) or its PCI address, see
/// [`weir_dpdk::open`].
pub fn open(device: &str, settings: &Settings) -> Result<Vec<Capture>, Error> {
    let Settings {
        queues,
        packets,
        promiscuous,
        busy,
    } = *settings;
    let asked = weir_dpdk::Settings {
        queues: queues.max(1),
        senders: 0,
        mbufs: packets,
        promiscuous,
    };
    Ok(captures(weir_dpdk::open(device, &asked)?, busy))
}

/// Opens a device for sending, named as in [`open`]; nothing is received from it.
pub fn sender(device: &str) -> Result<Sender, Error> {
    let asked = weir_dpdk::Settings {
        queues: 0,
        senders: 1,
        promiscuous: false,
        ..weir_dpdk::Settings::default()
    };
    Ok(weir_dpdk::open(device, &asked)?.senders.remove(0))
}

/// Creates the captures for all receive queues of a port.
pub fn captures(opened: Opened, busy: bool) -> Vec<Capture> {
    let Opened { port, queues, .. } = opened;
    let whole = Whole {
        port,
        queues: queues.len(),
        taken: AtomicU64::new(0),
        over: AtomicUsize::new(0),
        losses: Mutex::new(Losses::default()),
    };
    let whole = Arc::new(whole);
    let capture = |queue: Queue| Capture {
        burst: queue.burst(),
        queue,
        whole: Arc::clone(&whole),
        busy,
        last_ns: i64::MIN,
        waiting: 0,
        empty: 0,
        asked: Instant::now(),
        counts: Counts::default(),
        state: State::Running,
    };
    queues.into_iter().map(capture).collect()
}

/// Capture from one receive queue.
#[derive(Debug)]
pub struct Capture {
    queue: Queue,
    burst: Burst,
    /// Number of packets in `burst` to hand over next.
    waiting: u64,
    whole: Arc<Whole>,
    busy: bool,
    /// Latest time given to a packet, in ns.
    last_ns: i64,
    /// Number of empty polls since the last packet.
    empty: u32,
    /// Time of the last read of the device's counts.
    asked: Instant,
    counts: Counts,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Running,
    /// Stopped; at most this number of packets may still come.
    Ending(u64),
    Over,
}

/// State that the queues of a port share.
#[derive(Debug)]
struct Whole {
    port: Port,
    queues: usize,
    /// Number of packets taken from all queues.
    taken: AtomicU64,
    /// Number of queues that have ended.
    over: AtomicUsize,
    losses: Mutex<Losses>,
}

/// Losses that the device and the kernel have counted so far.
#[derive(Debug, Default)]
struct Losses {
    /// Number of packets lost before they reached weir; `counted` of them are in the counts of some queue.
    lost: u64,
    counted: u64,
    /// Counts of the kernel at the driver's sockets; `None` if the driver has no such sockets.
    kernel: Option<weir_dpdk::Kernel>,
    /// Whether the driver's counts include the kernel's drops.
    by_driver: bool,
    end: Option<Ending>,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    since: Instant,
    /// Whether the sockets reject all new packets.
    rejecting: bool,
    /// Packets that the device had counted when the port was stopped.
    received: u64,
}

impl Whole {
    /// Updates `losses` and returns the device's counts; for a driver without counters, all counts are zero.
    fn ask(&self, losses: &mut Losses) -> weir_dpdk::Stats {
        let stats = self.port.stats().unwrap_or_default();
        if let Some(more) = self.port.kernel() {
            let kernel = losses.kernel.get_or_insert_default();
            kernel.packets += more.packets;
            kernel.dropped += more.dropped;
        }
        let dropped = losses.kernel.map_or(0, |kernel| kernel.dropped);
        losses.by_driver = stats.missed > 0;
        losses.lost = stats.missed + stats.errors + dropped;
        stats
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Losses> {
        self.losses.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the losses that no queue has counted yet, and marks them as counted.
    fn losses(&self) -> u64 {
        let mut losses = self.lock();
        self.ask(&mut losses);
        let new = losses.lost.saturating_sub(losses.counted);
        losses.counted += new;
        new
    }

    /// Stops the port at the first stopped queue; returns whether the port rejects all new packets.
    fn stop(&self) -> bool {
        let mut losses = self.lock();
        if losses.end.is_none() {
            let rejecting = self.port.reject();
            let received = self.ask(&mut losses).received;
            losses.end = Some(Ending {
                since: Instant::now(),
                rejecting,
                received,
            });
        }
        losses.end.is_some_and(|end| end.rejecting)
    }

    /// Returns the number of packets that the device or the kernel counted for this capture, and whether this number is exact.
    fn expected(&self, losses: &Losses) -> (u64, bool) {
        match (losses.end, losses.kernel) {
            (Some(end), Some(kernel)) if end.rejecting => {
                (kernel.packets - kernel.dropped, !losses.by_driver)
            }
            (Some(end), _) => (end.received, false),
            (None, _) => (0, false),
        }
    }

    /// Returns whether a queue that is stopped and was found empty has ended.
    fn is_drained(&self) -> bool {
        /// Time for packets that were in the kernel when the sockets began to reject.
        const UNDER_WAY: Duration = Duration::from_millis(5);
        let mut losses = self.lock();
        self.ask(&mut losses);
        let quiet = losses.end.map_or(Duration::ZERO, |end| end.since.elapsed());
        let (expected, _) = self.expected(&losses);
        let wait = if losses.end.is_some_and(|end| end.rejecting) {
            UNDER_WAY
        } else {
            Duration::ZERO
        };
        quiet >= wait && (self.taken.load(Ordering::Relaxed) >= expected || quiet > PATIENCE)
    }

    /// Compares, at the end of the last queue, the packets taken with the packets counted.
    fn end(&self) -> io::Result<()> {
        if self.over.fetch_add(1, Ordering::AcqRel) + 1 < self.queues {
            return Ok(());
        }
        let losses = self.lock();
        let (expected, exactly) = self.expected(&losses);
        let taken = self.taken.load(Ordering::Relaxed);
        if taken >= expected && !(exactly && taken > expected) {
            return Ok(());
        }
        let device = self.port.name();
        Err(io::Error::other(match losses.kernel {
            Some(kernel) => format!(
                "the kernel counted {} packets for {device}, dropped {}, and {taken} came of it",
                kernel.packets, kernel.dropped
            ),
            None => format!("{device} counted {expected} packets, and {taken} came of it"),
        }))
    }
}

/// Lease of one burst.
#[derive(Debug)]
struct Held {
    burst: Burst,
    time_ns: i64,
}

impl Lease for Held {
    fn bytes(&self) -> Bytes<'_> {
        Slots {
            frames: self.burst.frames(),
            time_ns: self.time_ns,
        }
        .into()
    }
}

impl Capture {
    /// Returns the port.
    pub fn port(&self) -> &Port {
        &self.whole.port
    }

    /// Gives the burst a time and turns it into a lease.
    fn lease(&mut self) -> Held {
        let burst = std::mem::replace(&mut self.burst, self.queue.burst());
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |time| time.as_nanos() as i64);
        self.last_ns = self.last_ns.max(now);
        Held {
            burst,
            time_ns: self.last_ns,
        }
    }

    /// Adds new losses to the counts of this queue.
    fn ask(&mut self) {
        let lost = self.whole.losses();
        self.counts.received += lost;
        self.counts.dropped += lost;
        self.asked = Instant::now();
    }

    /// Receives a burst, unless packets still wait; returns whether packets wait or arrived, lost packets included.
    fn receive(&mut self) -> bool {
        if self.waiting > 0 {
            return true;
        }
        let handed = self.queue.receive(&mut self.burst) as u64;
        let dropped = u64::from(self.burst.dropped());
        if handed + dropped == 0 {
            return false;
        }
        self.whole
            .taken
            .fetch_add(handed + dropped, Ordering::Relaxed);
        self.empty = 0;
        if let State::Ending(left) = &mut self.state {
            *left = left.saturating_sub(handed + dropped);
        }
        self.counts.received += handed + dropped;
        self.counts.dropped += dropped;
        self.waiting = handed;
        true
    }

    /// Spins or sleeps after an empty poll.
    fn idle(&mut self) {
        self.empty = self.empty.saturating_add(1);
        if self.busy || self.empty <= EMPTY {
            std::hint::spin_loop();
        } else {
            let [least, most] = NAPS;
            std::thread::sleep((least * (self.empty - EMPTY)).min(most));
        }
    }
}

impl Backend for Capture {
    fn next(&mut self, stop: &AtomicBool) -> io::Result<Next> {
        if self.asked.elapsed() >= LOOK {
            self.ask();
        }
        loop {
            match self.state {
                State::Running if stop.load(Ordering::Relaxed) => {
                    let dry = self.whole.stop();
                    self.state = State::Ending(if dry { u64::MAX } else { AFTER_STOP });
                }
                State::Running | State::Ending(1..) => {}
                State::Ending(0) if self.waiting == 0 => {
                    self.state = State::Over;
                    self.ask();
                    return self.whole.end().map(|()| Next::End);
                }
                State::Ending(0) => {}
                State::Over => return Ok(Next::End),
            }
            let came = self.receive();
            let packets = std::mem::take(&mut self.waiting);
            if packets > 0 {
                self.counts.handed_over += packets;
                return Ok(Next::Records(Arc::new(self.lease()), packets));
            }
            let ending = matches!(self.state, State::Ending(_));
            if !came && ending && !self.queue.is_waiting() && self.whole.is_drained() {
                self.state = State::Ending(0);
            } else if !came {
                return Ok(Next::Nothing);
            }
        }
    }

    /// Polls the queue until packets arrive, because a polling driver does not signal arrivals.
    fn wait(&mut self, most: Duration) -> io::Result<()> {
        let begun = Instant::now();
        while !self.receive() && begun.elapsed() < most {
            self.idle();
            if matches!(self.state, State::Ending(_)) {
                break;
            }
        }
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn layout(&self) -> Layout {
        let mut interface =
            Interface::plain(LinkType::ETHERNET, MAX_SNAPLEN, Resolution::NANOSECOND);
        interface.name = Some(self.whole.port.name().to_owned());
        Layout::slots(interface)
    }

    fn place(&self) -> &'static str {
        "device"
    }

    /// Returns the right to change BPF maps, because drivers over AF_XDP change their maps when they stop.
    fn keeps(&self) -> &'static [Capability] {
        &[Capability::Bpf]
    }

    fn describe(&self) -> String {
        let spread = match (self.whole.queues, self.whole.port.spreads()) {
            (1, _) => String::new(),
            (_, true) => format!(
                ", queue {} of {} by flow hash",
                self.queue.number(),
                self.whole.queues
            ),
            (_, false) => format!(
                ", queue {} of {} as the driver spreads",
                self.queue.number(),
                self.whole.queues
            ),
        };
        format!(
            "{}{spread}, times of software for each burst",
            self.whole.port.describe()
        )
    }
}
