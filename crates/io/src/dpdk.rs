//! Capturing from a port of DPDK.
//!
//! One backend for each receive queue. Packets stay where the device put them, each in a slot of its own
//! ([`weir_packet::savefile::slots`]). Nobody tells when something comes, so a queue is asked again and again; once it
//! was empty for a while the thread sleeps in between, unless it is told to be busy.
//!
//! **Times** are software's: the system's clock is read once for each burst of up to 256 packets, and never goes back
//! within a queue.
//!
//! **Losses** are the device's counts (`imissed`, `ierrors`), what the kernel dropped at the sockets of `net_af_packet`,
//! and frames that nobody had room to put together. Those of the device are told by the queue that asks first: the sum over
//! the queues is right. At the end what was handed over is held against the device's own counts, and the kernel's.

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

/// How often the device is asked for its counts.
const LOOK: Duration = Duration::from_millis(100);

/// How long a device may take at the end to hand over what it counted before.
const PATIENCE: Duration = Duration::from_secs(1);

/// Empty polls before the thread sleeps in between: a few microseconds.
const EMPTY: u32 = 256;

/// The first and the longest of these sleeps. The kernel adds its timer slack, 50 us.
const NAPS: [Duration; 2] = [Duration::from_micros(10), Duration::from_micros(100)];

/// Packets that a queue hands over at most once it was stopped, if its device never runs dry and does not say how many it has.
const AFTER_STOP: u64 = 1 << 12;

/// How to capture.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Receive queues: one backend each.
    pub queues: u16,
    /// Packets of each queue that there is memory for.
    pub packets: u32,
    /// Have the device receive what is for others too, where it can.
    pub promiscuous: bool,
    /// Never sleep: a processor for each queue.
    pub busy: bool,
}

impl Default for Settings {
    fn default() -> Self {
        let weir_dpdk::Settings { queues, mbufs, promiscuous, .. } = weir_dpdk::Settings::default();
        Self { queues, packets: mbufs, promiscuous, busy: false }
    }
}

/// Begins to capture from a device: its DPDK name (`net_af_packet0,iface=eth1`) or a PCI address, see [`weir_dpdk::open`].
pub fn open(device: &str, settings: &Settings) -> Result<Vec<Capture>, Error> {
    let Settings { queues, packets, promiscuous, busy } = *settings;
    let asked = weir_dpdk::Settings { queues: queues.max(1), senders: 0, mbufs: packets, promiscuous };
    Ok(captures(weir_dpdk::open(device, &asked)?, busy))
}

/// Begins to send by a device, named as in [`open`]. Nothing is received from it.
pub fn sender(device: &str) -> Result<Sender, Error> {
    let asked = weir_dpdk::Settings { queues: 0, senders: 1, promiscuous: false, ..weir_dpdk::Settings::default() };
    Ok(weir_dpdk::open(device, &asked)?.senders.remove(0))
}

/// Captures from all receive queues of a port.
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

/// A receive queue that is captured from.
#[derive(Debug)]
pub struct Capture {
    queue: Queue,
    burst: Burst,
    /// Packets in `burst` that are to be handed over next.
    waiting: u64,
    whole: Arc<Whole>,
    busy: bool,
    /// The latest time that a packet got, ns.
    last_ns: i64,
    /// Polls since something came.
    empty: u32,
    /// When the device was asked for its counts.
    asked: Instant,
    counts: Counts,
    state: State,
}

#[derive(Clone, Copy, Debug)]
enum State {
    Running,
    /// Stopped; so many packets may still come.
    Ending(u64),
    Over,
}

/// What the queues of a port share.
#[derive(Debug)]
struct Whole {
    port: Port,
    queues: usize,
    /// Packets that were taken from all queues.
    taken: AtomicU64,
    /// Queues that have ended.
    over: AtomicUsize,
    losses: Mutex<Losses>,
}

/// Losses that device and kernel have counted so far.
#[derive(Debug, Default)]
struct Losses {
    /// Packets lost on the way to us, and how many of them some queue has counted.
    lost: u64,
    counted: u64,
    /// What the kernel counted at the driver's sockets; `None` if it does not.
    kernel: Option<weir_dpdk::Kernel>,
    /// The driver tells what the kernel dropped.
    by_driver: bool,
    end: Option<Ending>,
}

#[derive(Clone, Copy, Debug)]
struct Ending {
    since: Instant,
    /// Nothing more is let in.
    rejecting: bool,
    /// Packets that the device had counted then.
    received: u64,
}

impl Whole {
    /// Brings `losses` up to date. A driver without counters has counted nothing.
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

    /// Losses that no queue has counted yet.
    fn losses(&self) -> u64 {
        let mut losses = self.lock();
        self.ask(&mut losses);
        let new = losses.lost.saturating_sub(losses.counted);
        losses.counted += new;
        new
    }

    /// The first queue that is stopped stops the port; says whether nothing more is let in.
    fn stop(&self) -> bool {
        let mut losses = self.lock();
        if losses.end.is_none() {
            let rejecting = self.port.reject();
            let received = self.ask(&mut losses).received;
            losses.end = Some(Ending { since: Instant::now(), rejecting, received });
        }
        losses.end.is_some_and(|end| end.rejecting)
    }

    /// Packets that device or kernel counted for us, and whether there can be no others.
    fn expected(&self, losses: &Losses) -> (u64, bool) {
        match (losses.end, losses.kernel) {
            (Some(end), Some(kernel)) if end.rejecting => (kernel.packets - kernel.dropped, !losses.by_driver),
            (Some(end), _) => (end.received, false),
            (None, _) => (0, false),
        }
    }

    /// Whether a queue that is stopped and was found empty is done.
    fn is_drained(&self) -> bool {
        /// A packet may be on its way through the kernel when nothing more is let in.
        const UNDER_WAY: Duration = Duration::from_millis(5);
        let mut losses = self.lock();
        self.ask(&mut losses);
        let quiet = losses.end.map_or(Duration::ZERO, |end| end.since.elapsed());
        let (expected, _) = self.expected(&losses);
        let wait = if losses.end.is_some_and(|end| end.rejecting) { UNDER_WAY } else { Duration::ZERO };
        quiet >= wait && (self.taken.load(Ordering::Relaxed) >= expected || quiet > PATIENCE)
    }

    /// The queue that ends last holds what was taken against what was counted.
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

/// A burst that is out.
#[derive(Debug)]
struct Held {
    burst: Burst,
    time_ns: i64,
}

impl Lease for Held {
    fn bytes(&self) -> Bytes<'_> {
        Slots { frames: self.burst.frames(), time_ns: self.time_ns }.into()
    }
}

impl Capture {
    /// The port.
    pub fn port(&self) -> &Port {
        &self.whole.port
    }

    /// Stamps the burst, and gives it away.
    fn lease(&mut self) -> Held {
        let burst = std::mem::replace(&mut self.burst, self.queue.burst());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_nanos() as i64);
        self.last_ns = self.last_ns.max(now);
        Held { burst, time_ns: self.last_ns }
    }

    /// Takes up what was lost on the way to us.
    fn ask(&mut self) {
        let lost = self.whole.losses();
        self.counts.received += lost;
        self.counts.dropped += lost;
        self.asked = Instant::now();
    }

    /// Takes what has come, unless something still waits: says whether something did, lost or not.
    fn receive(&mut self) -> bool {
        if self.waiting > 0 {
            return true;
        }
        let handed = self.queue.receive(&mut self.burst) as u64;
        let dropped = u64::from(self.burst.dropped());
        if handed + dropped == 0 {
            return false;
        }
        self.whole.taken.fetch_add(handed + dropped, Ordering::Relaxed);
        self.empty = 0;
        if let State::Ending(left) = &mut self.state {
            *left = left.saturating_sub(handed + dropped);
        }
        self.counts.received += handed + dropped;
        self.counts.dropped += dropped;
        self.waiting = handed;
        true
    }

    /// Lets time pass after a poll that found nothing.
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

    /// A driver that polls tells nothing: the queue is asked again and again.
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
        let mut interface = Interface::plain(LinkType::ETHERNET, MAX_SNAPLEN, Resolution::NANOSECOND);
        interface.name = Some(self.whole.port.name().to_owned());
        Layout::slots(interface)
    }

    fn place(&self) -> &'static str {
        "device"
    }

    /// Drivers over AF_XDP change their maps when they stop.
    fn keeps(&self) -> &'static [Capability] {
        &[Capability::Bpf]
    }

    fn describe(&self) -> String {
        let spread = match (self.whole.queues, self.whole.port.spreads()) {
            (1, _) => String::new(),
            (_, true) => format!(", queue {} of {} by flow hash", self.queue.number(), self.whole.queues),
            (_, false) => format!(", queue {} of {} as the driver spreads", self.queue.number(), self.whole.queues),
        };
        format!("{}{spread}, times of software for each burst", self.whole.port.describe())
    }
}
