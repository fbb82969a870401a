//! Reading end of a queue.

use super::interface::{Interface, State};
use super::redirect::Redirect;
use super::rings::{Consumer, Producer, Which};
use super::socket::{Area, XDP_PACKET_HEADROOM, Xsk};
use super::{BusyPoll, Error, Mode, Settings, ZeroCopy};
use crate::live::{Backend, Counts, Lease, Next};
use crate::sys::grace_period;
use crate::sys::option::set_option;
use crate::sys::privilege::Capability;
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use weir_packet::LinkType;
use weir_packet::savefile::slots::Slots;
use weir_packet::savefile::{self, Bytes, Layout, MAX_SNAPLEN, Resolution};

/// Largest number of descriptors that are taken at once.
const BURST: u32 = 256;

/// Longest wait while bursts hold more than half of the memory, because returned chunks must reach the kernel soon.
const SHORT: Duration = Duration::from_millis(1);

/// Pause after packets, before a wait in the kernel. A wakeup for every few packets would cost the reader, and in generic mode
/// the sender, several times the cost of the packets.
const REST: Duration = Duration::from_micros(50);

/// Least number of chunks for this pause. With the slack of the kernel's timers, about 100 us pass: 1500 packets at 15 Mpps.
const MANY: usize = 4096;

/// Longest wait at the end for the kernel's counts to agree.
const PATIENCE: Duration = Duration::from_secs(1);

/// Interval between two reads of the kernel's counts while packets arrive.
const COUNTS: Duration = Duration::from_millis(10);

/// Bit that marks a place in the jumbo area among the places that a burst holds.
const JUMBO: u32 = 1 << 31;

/// Bytes of a frame in addition to the payload that the MTU limits: addresses, type, two VLAN tags.
const AROUND: usize = 14 + 8;

/// Bytes of a place for packets larger than the MTU, which a card or the kernel has merged; they are below 64 KiB.
const MERGED: usize = 64 << 10;

/// Layout of the memory: first chunks, of the kernel and of the process; then places, where packets of several chunks are
/// joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Plan {
    chunk: usize,
    pub(super) chunks: usize,
    /// Bytes of a place for a joined packet.
    place: usize,
    places: usize,
    /// Whether the interface's largest packets do not fit into a chunk.
    needs_places: bool,
}

impl Plan {
    pub(super) fn new(settings: &Settings, mtu: usize) -> Result<Self, Error> {
        let Settings { memory, chunk, .. } = *settings;
        if chunk != 2048 && chunk != 4096 {
            return Err(Error::Settings(
                "chunks of AF_XDP memory have 2048 or 4096 bytes",
            ));
        }
        if memory >= 1 << 32 {
            return Err(Error::Settings(
                "AF_XDP memory is below 4 GiB for each queue",
            ));
        }
        let needs_places = mtu + AROUND > chunk - XDP_PACKET_HEADROOM;
        let (place, share) = if needs_places {
            (mtu + AROUND, memory / 2)
        } else {
            (MERGED, memory / 8)
        };
        let place = place.next_multiple_of(64);
        let places = share / place;
        let chunks = (memory - places * place) / chunk;
        if chunks < 2 {
            return Err(Error::Settings(
                "AF_XDP memory of at least two chunks is needed",
            ));
        }
        Ok(Self {
            chunk,
            chunks,
            place,
            places,
            needs_places,
        })
    }

    /// Returns the number of bytes shared with the kernel; the places follow them.
    pub(super) fn shared(&self) -> usize {
        self.chunk * self.chunks
    }

    fn len(&self) -> usize {
        self.shared() + self.place * self.places
    }

    fn place_at(&self, place: u32) -> usize {
        self.shared() + self.place * place as usize
    }

    /// Returns the chunk of the packet at `address`, and the packet's offset; `None` if the packet does not lie within one
    /// chunk.
    pub(super) fn packet(&self, address: u64, len: u32) -> Option<(u32, usize)> {
        let (at, len) = (usize::try_from(address).ok()?, len as usize);
        let (chunk, within) = (at / self.chunk, at % self.chunk);
        (chunk < self.chunks && len <= self.chunk - within).then_some((chunk as u32, at))
    }
}

/// Record of the chunks that the kernel has, because a chunk that it hands over twice must not be leased twice.
#[derive(Debug)]
pub(super) struct Owners(Box<[bool]>);

impl Owners {
    /// Creates the record for `chunks` chunks, of which the kernel has none.
    pub(super) fn new(chunks: usize) -> Self {
        Self(vec![false; chunks].into())
    }

    /// Records that the kernel gets a chunk.
    pub(super) fn give(&mut self, chunk: u32) {
        self.0[chunk as usize] = true;
    }

    /// Records that the kernel hands a chunk over; `false` if it did not have the chunk, or if there is no such chunk.
    pub(super) fn take(&mut self, chunk: u32) -> bool {
        self.0.get_mut(chunk as usize).is_some_and(std::mem::take)
    }
}

/// Socket for the packets of one receive queue.
#[derive(Debug)]
pub struct Socket {
    // The order matters: first the rings' mappings and then the socket are dropped; after that, the kernel writes no more to
    // the memory.
    fill: Producer<u64>,
    receive: Consumer<libc::xdp_desc>,
    _completion: Consumer<u64>,
    xsk: Xsk,
    shared: Arc<Shared>,
    redirect: Arc<Redirect>,
    interface: Arc<Interface>,
    queue: u32,
    plan: Plan,
    busy_poll: bool,
    about: String,
    owners: Owners,
    /// Chunks owned neither by the kernel nor by a burst.
    free: Vec<u32>,
    free_places: Vec<u32>,
    /// Number of chunks and places that bursts hold.
    out: usize,
    /// Packet of several chunks whose last chunk has not come yet.
    partial: Option<Partial>,
    counts: Counts,
    /// Number of packets of several chunks that were dropped because there was no place.
    homeless: u64,
    counted_ns: i64,
    now_ns: i64,
    /// Whether no packet has arrived since the last pause.
    rested: bool,
    ending: Option<Ending>,
}

#[derive(Debug)]
struct Shared {
    area: Area,
    /// Chunks and places of dropped bursts; the capacity suffices for all chunks and places.
    returned: Mutex<Vec<u32>>,
}

#[derive(Clone, Copy, Debug)]
struct Partial {
    /// Place of the packet; `None` if no place was free, or the packet is too large.
    place: Option<u32>,
    len: usize,
}

#[derive(Debug)]
struct Ending {
    /// Time from which on no new packet arrives.
    quiet: Instant,
    /// Reason of the end, if it was not requested.
    why: Option<&'static str>,
}

/// Packets that were taken together. Dropping the burst gives their chunks and places back.
#[derive(Debug)]
struct Burst {
    shared: Arc<Shared>,
    /// Bytes of each packet, which lie in the chunks and places of `held`.
    frames: Vec<*const [u8]>,
    time_ns: i64,
    held: Vec<u32>,
}

// SAFETY: the chunks and places are memory that is tied to no thread, and a burst alone owns its chunks and places.
unsafe impl Send for Burst {}
// SAFETY: as above; a shared reference only reads them.
unsafe impl Sync for Burst {}

impl Lease for Burst {
    fn bytes(&self) -> Bytes<'_> {
        let (first, len) = (self.frames.as_ptr().cast::<&[u8]>(), self.frames.len());
        // SAFETY: a pointer and a reference to a slice have the same layout. Each frame lies in a chunk or place of this burst,
        // which `take` checked. The memory lives as long as the area, which the burst holds. Neither the kernel nor any other
        // code writes to it before the burst is dropped, and the references do not outlive the burst.
        let frames = unsafe { std::slice::from_raw_parts(first, len) };
        Slots {
            frames,
            time_ns: self.time_ns,
        }
        .into()
    }
}

impl Drop for Burst {
    fn drop(&mut self) {
        self.shared
            .returned
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend_from_slice(&self.held);
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        // The kernel removes the socket too, when it is closed.
        let _ = self.redirect.end(self.queue);
    }
}

impl Socket {
    /// Opens a socket; `entries` is the size of the receive ring, which by default has room for every chunk.
    pub(super) fn open(
        interface: &Arc<Interface>,
        redirect: &Arc<Redirect>,
        queue: u32,
        settings: &Settings,
        entries: Option<u32>,
    ) -> Result<Self, Error> {
        let mtu = interface.mtu()?;
        let plan = Plan::new(settings, mtu)?;
        let xsk = Xsk::new()?;
        let area = Area::new(
            plan.len(),
            settings.pages,
            settings.node,
            settings.survives_fork,
        )?;
        // SAFETY: `shared`, and with it the area, outlives the socket, see the order of the fields. A chunk is in a ring, or in
        // `free`, or in a burst, never in two of them, because only `take` and `fill_up` move it.
        unsafe { xsk.register(&area, plan.shared(), plan.chunk)? };
        let system = |what| move |error| Error::System { what, error };
        let all = (plan.chunks as u32).next_power_of_two();
        let fill = Producer::new(&xsk, Which::Fill, all).map_err(system("the fill ring"))?;
        let _completion =
            Consumer::new(&xsk, Which::Completion, 1).map_err(system("the completion ring"))?;
        let receive = Consumer::new(&xsk, Which::Receive, entries.unwrap_or(all))
            .map_err(system("the receive ring"))?;
        let flags = bind(
            &xsk,
            interface,
            queue,
            settings,
            redirect.mode,
            plan.needs_places.then_some(mtu),
        )?;
        let zero_copy = xsk.is_zero_copy().map_err(system("what was bound"))?;
        if let Some(busy) = &settings.busy_poll {
            prefer_busy_poll(&xsk, busy).map_err(system("busy polling"))?;
        }
        let returned = Mutex::new(Vec::with_capacity(plan.chunks + plan.places));
        let mut socket = Self {
            fill,
            receive,
            _completion,
            xsk,
            shared: Arc::new(Shared { area, returned }),
            redirect: Arc::clone(redirect),
            interface: Arc::clone(interface),
            queue,
            plan,
            busy_poll: settings.busy_poll.is_some(),
            about: String::new(),
            owners: Owners::new(plan.chunks),
            // The list is reversed, so that the first chunk is used first.
            free: (0..plan.chunks as u32).rev().collect(),
            free_places: (0..plan.places as u32).rev().collect(),
            out: 0,
            partial: None,
            counts: Counts::default(),
            homeless: 0,
            counted_ns: 0,
            now_ns: 0,
            rested: true,
            ending: None,
        };
        socket.about = socket.words(settings, zero_copy, flags & libc::XDP_USE_SG != 0);
        // All chunks go to the kernel before the first packet arrives.
        socket.fill_up().map_err(system("the fill ring"))?;
        redirect.begin(queue, socket.xsk.fd())?;
        Ok(socket)
    }

    /// Simulates a mistake of the program: a packet is taken from the ring and not handed over.
    #[cfg(test)]
    pub(super) fn lose_one(&mut self) {
        while self.receive.available() == 0 {
            std::thread::yield_now();
        }
        let chunk = (self.receive.peek(0).addr as usize / self.plan.chunk) as u32;
        assert!(self.owners.take(chunk));
        self.free.push(chunk);
        self.receive.release(1);
    }

    /// Waits until the program has counted `packets` packets, because a sender does not wait for the receiver.
    #[cfg(test)]
    pub(super) fn await_count(&self, packets: u64) {
        let start = Instant::now();
        while self.redirect.count(self.queue) < packets && start.elapsed() < Duration::from_secs(5)
        {
            std::thread::yield_now();
        }
    }

    /// Returns the kernel's counts.
    #[cfg(test)]
    pub(super) fn statistics(&self) -> libc::xdp_statistics {
        self.xsk
            .statistics()
            .expect("an AF_XDP socket has statistics")
    }

    /// Collects the chunks and places of dropped bursts, and gives the free chunks to the kernel.
    fn fill_up(&mut self) -> io::Result<()> {
        {
            let mut returned = self
                .shared
                .returned
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            self.out -= returned.len();
            for place in returned.drain(..) {
                if place & JUMBO == 0 {
                    self.free.push(place)
                } else {
                    self.free_places.push(place & !JUMBO)
                }
            }
        }
        let count = self.free.len();
        for chunk in self.free.drain(..).rev() {
            // The ring has room for every chunk.
            if !self.fill.put(u64::from(chunk) * self.plan.chunk as u64) {
                return Err(damaged());
            }
            self.owners.give(chunk);
        }
        if count > 0 {
            self.fill.publish();
            if self.fill.needs_wakeup() {
                self.xsk.kick_receive();
            }
        }
        Ok(())
    }

    /// Takes the packets that have arrived, up to [`BURST`] descriptors; returns them with their
    /// number.
    fn take(&mut self) -> io::Result<Option<(Burst, u64)>> {
        let count = self.receive.available().min(BURST);
        if count == 0 {
            return Ok(None);
        }
        self.now_ns = self.now_ns.max(realtime_ns());
        self.rested = self.plan.chunks < MANY;
        let shared = Arc::clone(&self.shared);
        let area = &shared.area;
        let mut frames = Vec::with_capacity(count as usize);
        let mut held = Vec::with_capacity(count as usize);
        let frame = |at, len| std::ptr::slice_from_raw_parts(area.part(at, len).cast_const(), len);
        for i in 0..count {
            let libc::xdp_desc { addr, len, options } = self.receive.peek(i);
            let Some((chunk, at)) = self
                .plan
                .packet(addr, len)
                .filter(|&(chunk, _)| self.owners.take(chunk))
            else {
                return Err(damaged());
            };
            let len = len as usize;
            let continues = options & libc::XDP_PKT_CONTD != 0;
            if self.partial.is_none() && !continues {
                held.push(chunk);
                frames.push(frame(at, len));
            } else {
                self.free.push(chunk);
                if let Some((place, len)) = self.piece(area, at, len, continues) {
                    held.push(place | JUMBO);
                    frames.push(frame(self.plan.place_at(place), len));
                }
            }
        }
        self.receive.release(count);
        let packets = frames.len() as u64;
        self.out += held.len();
        self.counts.handed_over += packets;
        let time_ns = self.now_ns;
        Ok((packets > 0).then(|| {
            (
                Burst {
                    shared,
                    frames,
                    time_ns,
                    held,
                },
                packets,
            )
        }))
    }

    /// Appends a piece of a packet to its earlier pieces; after the last piece, returns the place and length of the packet.
    fn piece(
        &mut self,
        area: &Area,
        at: usize,
        len: usize,
        continues: bool,
    ) -> Option<(u32, usize)> {
        let room = self.plan.place;
        let mut packet = match self.partial.take() {
            Some(packet) => packet,
            None => Partial {
                place: self.free_places.pop(),
                len: 0,
            },
        };
        if let Some(place) = packet.place {
            if len > room - packet.len {
                self.free_places.push(place);
                packet.place = None;
            } else {
                let to = self.plan.place_at(place) + packet.len;
                // SAFETY: both ranges lie in the area, which `part` checks. Neither the kernel nor a burst has the chunk or the
                // place. They cannot overlap, because the places follow all chunks.
                unsafe {
                    std::ptr::copy_nonoverlapping(area.part(at, len), area.part(to, len), len)
                };
                packet.len += len;
            }
        }
        if continues {
            self.partial = Some(packet);
            return None;
        }
        if packet.place.is_none() {
            self.homeless += 1;
        }
        packet.place.map(|place| (place, packet.len))
    }

    /// Describes the socket in one line.
    fn words(&self, settings: &Settings, zero_copy: bool, pieces: bool) -> String {
        let Plan {
            chunk,
            chunks,
            place,
            places,
            ..
        } = self.plan;
        let mode = match self.redirect.mode {
            Mode::Native => "native",
            Mode::Generic => "generic",
        };
        let copy = if zero_copy { "zero copy" } else { "copied" };
        let promiscuous = if settings.promiscuous {
            "promiscuous"
        } else {
            "not promiscuous"
        };
        let busy = if self.busy_poll { ", busy polling" } else { "" };
        let pieces = if pieces {
            format!(" and {places} places of {place}")
        } else {
            String::new()
        };
        let (queue, name, memory) = (
            self.queue,
            &self.interface.name,
            self.shared.area.obtained(),
        );
        format!(
            "AF_XDP, queue {queue} of {name}, {mode}, {copy}, received only, {promiscuous}{busy}, \
             {chunks} chunks of {chunk}{pieces} bytes: {memory}"
        )
    }

    /// Ends the capture: lets no more packets in.
    fn end(&mut self, why: Option<&'static str>) -> io::Result<()> {
        /// Time in which a running program ends, used if the kernel cannot report its end.
        const UNSURE: Duration = Duration::from_millis(50);
        self.redirect.end(self.queue)?;
        // A running program may have found the socket before its removal from the map. The kernel runs the program, and carries
        // out its verdict, in a section in which no grace period ends (local_bh_disable). After a grace period, all packets
        // that the program let in are in the ring and counted.
        let waited = grace_period();
        let quiet = if waited {
            Instant::now()
        } else {
            Instant::now() + UNSURE
        };
        self.ending = Some(Ending { quiet, why });
        Ok(())
    }

    /// Returns whether all received packets were handed over.
    fn is_over(&mut self) -> io::Result<bool> {
        let Some(ending) = &self.ending else {
            return Ok(false);
        };
        let now = Instant::now();
        if now < ending.quiet {
            return Ok(false);
        }
        let patience = ending.quiet + PATIENCE;
        self.read_counts()?;
        // Another check is necessary, because packets may have arrived between the first check and
        // the counts.
        Ok(self.receive.available() == 0 && (self.agrees() || now > patience))
    }

    fn agrees(&self) -> bool {
        let Counts {
            received,
            dropped,
            handed_over,
            ..
        } = self.counts;
        received == handed_over + dropped
    }

    fn over(&self) -> io::Result<Next> {
        let Counts {
            received,
            dropped,
            handed_over,
            ..
        } = self.counts;
        let why = self.ending.as_ref().and_then(|ending| ending.why);
        if !self.agrees() {
            let why = why.map_or(String::new(), |why| format!("{why}; "));
            return Err(io::Error::other(format!(
                "{why}the program counted {received} packets, dropped were {dropped} and handed over {handed_over}"
            )));
        }
        match why {
            Some(why) => Err(io::Error::other(why)),
            None => Ok(Next::End),
        }
    }

    /// Waits for packets, at most for `most`.
    fn pause(&mut self, most: Duration) -> io::Result<()> {
        if self.busy_poll {
            self.xsk.kick_receive();
            return Ok(());
        }
        if !std::mem::replace(&mut self.rested, true) {
            std::thread::sleep(REST);
            return Ok(());
        }
        let short = self.ending.is_some()
            || self.out > self.plan.chunks / 2
            || self.out > self.plan.places / 2;
        self.xsk.wait(if short { SHORT.min(most) } else { most })
    }

    fn read_counts(&mut self) -> io::Result<()> {
        self.counted_ns = self.now_ns;
        // Packets without a free chunk are counted in `rx_dropped`, and again in `rx_fill_ring_empty_descs`. Packets for which
        // the receive ring had no room are counted in `rx_ring_full` alone. An invalid address in the fill ring, counted in
        // `rx_invalid_descs`, costs a chunk and no packet.
        let told = self.xsk.statistics()?;
        self.counts.dropped = told.rx_dropped + told.rx_ring_full + self.homeless;
        self.counts.received = self.redirect.count(self.queue);
        Ok(())
    }

    fn look_at_interface(&mut self) -> io::Result<()> {
        match self.interface.state() {
            State::Up => Ok(()),
            State::Down => self.end(Some("the interface went down")),
            State::Gone => self.end(Some("the interface is gone")),
        }
    }
}

/// The socket, which is readable while packets wait in its ring.
impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.xsk.fd().as_fd()
    }
}

impl Backend for Socket {
    fn next(&mut self, stop: &AtomicBool) -> io::Result<Next> {
        if self.ending.is_none() && stop.load(Ordering::Relaxed) {
            self.end(None)?;
        }
        loop {
            self.fill_up()?;
            if let Some((burst, packets)) = self.take()? {
                if self.now_ns - self.counted_ns > COUNTS.as_nanos() as i64 {
                    self.read_counts()?;
                }
                return Ok(Next::Records(Arc::new(burst), packets));
            }
            if self.receive.available() == 0 {
                break;
            }
        }
        if self.is_over()? {
            self.over()
        } else {
            Ok(Next::Nothing)
        }
    }

    fn wait(&mut self, most: Duration) -> io::Result<()> {
        let begun = Instant::now();
        let mut left = most;
        while !left.is_zero() {
            self.pause(left)?;
            // The kernel may be waiting for chunks that were given back in the meantime.
            self.fill_up()?;
            if self.receive.available() > 0 || self.ending.is_some() {
                return Ok(());
            }
            left = most.saturating_sub(begun.elapsed());
        }
        self.read_counts()?;
        self.look_at_interface()
    }

    fn counts(&self) -> Counts {
        // The program counts packets until the end, so its count can be ahead of the last read.
        Counts {
            received: self.counts.received.max(self.redirect.count(self.queue)),
            ..self.counts
        }
    }

    fn layout(&self) -> Layout {
        let mut interface =
            savefile::Interface::plain(LinkType::ETHERNET, MAX_SNAPLEN, Resolution::NANOSECOND);
        interface.name = Some(self.interface.name.clone());
        Layout::slots(interface)
    }

    fn place(&self) -> &'static str {
        "kernel"
    }

    /// Returns the right to change BPF maps, because the socket is removed from the program's map at the end.
    fn keeps(&self) -> &'static [Capability] {
        &[Capability::Bpf]
    }

    fn describe(&self) -> String {
        self.about.clone()
    }
}

#[cold]
fn damaged() -> io::Error {
    io::Error::other(
        "the kernel's ring is damaged: a packet lies outside its memory, or where another one is",
    )
}

/// Binds with the best flags that the settings allow and the kernel accepts, and returns the flags. `mtu` is given if packets
/// of several chunks will come.
fn bind(
    xsk: &Xsk,
    interface: &Interface,
    queue: u32,
    settings: &Settings,
    mode: Mode,
    mtu: Option<usize>,
) -> Result<u16, Error> {
    let wakeup = if settings.need_wakeup {
        libc::XDP_USE_NEED_WAKEUP
    } else {
        0
    };
    let mut choices = Vec::with_capacity(4);
    let ways = match (settings.zero_copy, mode) {
        (ZeroCopy::Force, _) => &[libc::XDP_ZEROCOPY][..],
        (ZeroCopy::Never, _) | (ZeroCopy::Auto, Mode::Generic) => &[libc::XDP_COPY],
        (ZeroCopy::Auto, Mode::Native) => &[libc::XDP_ZEROCOPY, libc::XDP_COPY],
    };
    for way in ways {
        choices.push(way | wakeup | libc::XDP_USE_SG);
        if mtu.is_none() {
            choices.push(way | wakeup);
        }
    }
    xsk.bind(interface.index, queue, &choices)
        .map_err(|error| match (error.raw_os_error(), mtu) {
            (Some(libc::EBUSY), _) => Error::QueueInUse {
                interface: interface.name.clone(),
                queue,
            },
            (Some(libc::ENODEV), _) => Error::NoInterface,
            (Some(libc::ENETDOWN), _) => Error::Down,
            (Some(libc::EPERM), _) => Error::NotPermitted("CAP_NET_RAW"),
            (Some(libc::EOPNOTSUPP | libc::EINVAL), _) if settings.zero_copy == ZeroCopy::Force => {
                Error::NoZeroCopy(error)
            }
            (Some(libc::EOPNOTSUPP | libc::EINVAL), Some(mtu)) => Error::Mtu(mtu),
            _ => Error::System {
                what: "binding to the queue",
                error,
            },
        })
}

fn prefer_busy_poll(xsk: &Xsk, busy: &BusyPoll) -> io::Result<()> {
    let set = |option, value: c_int| set_option(xsk.fd(), libc::SOL_SOCKET, option, &value);
    set(libc::SO_PREFER_BUSY_POLL, 1)?;
    set(libc::SO_BUSY_POLL, busy.time.as_micros() as c_int)?;
    set(libc::SO_BUSY_POLL_BUDGET, busy.packets.into())
}

fn realtime_ns() -> i64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_REALTIME, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}
