//! Frames out of a queue.

use super::interface::{Interface, State};
use super::receive::Owners;
use super::rings::{Consumer, Producer, Which};
use super::socket::{Area, Xsk};
use super::{Error, ZeroCopy};
use std::io;
use std::time::{Duration, Instant};
use weir_memory::Policy;

/// How long [`Sender::finish`] waits while nothing moves.
const PATIENCE: Duration = Duration::from_secs(2);

/// Frames after which the kernel is told: as many as it takes each time (`TX_BATCH_SIZE` of net/xdp/xsk.c).
const BATCH: u32 = 32;

/// How to send.
#[derive(Clone, Copy, Debug)]
pub struct SendSettings {
    /// The queue.
    pub queue: u32,
    /// Frames that can be under way at once; rounded up to a power of two.
    pub frames: u32,
    /// Bytes for each, 2048 or 4096: no frame is longer.
    pub chunk: usize,
    /// Whether the device may read our memory itself.
    pub zero_copy: ZeroCopy,
    /// The pages that the memory is made of.
    pub pages: Policy,
}

impl Default for SendSettings {
    fn default() -> Self {
        Self { queue: 0, frames: 2048, chunk: 2048, zero_copy: ZeroCopy::Auto, pages: Policy::Auto }
    }
}

/// What became of frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that were given to [`Sender::send`] and taken.
    pub taken: u64,
    /// Frames of these that the kernel is done with, those that it refused among them.
    pub completed: u64,
    /// Frames of these that the kernel or the driver had no room for.
    pub refused: u64,
}

impl Sent {
    /// Frames that went out.
    pub fn sent(&self) -> u64 {
        self.completed - self.refused
    }
}

/// The places for frames: which ones the kernel has, and which are free.
#[derive(Debug)]
pub(super) struct Places {
    /// Bytes of each.
    chunk: usize,
    owners: Owners,
    free: Vec<u32>,
}

impl Places {
    /// `count` of them, all free.
    pub(super) fn new(count: u32, chunk: usize) -> Self {
        Self { chunk, owners: Owners::new(count as usize), free: (0..count).rev().collect() }
    }

    /// The number of a free place, which is the kernel's from now on.
    pub(super) fn give(&mut self) -> Option<u32> {
        let place = self.free.pop()?;
        self.owners.give(place);
        Some(place)
    }

    /// Takes back the place at `address`, as the completion ring has it; `false` if the kernel does not have such a place.
    #[must_use]
    pub(super) fn take_back(&mut self, address: u64) -> bool {
        let place = u32::try_from(address / self.chunk as u64).ok();
        let taken = place.filter(|&place| self.owners.take(place));
        self.free.extend(taken);
        taken.is_some()
    }
}

/// The writing end of a queue.
///
/// **Threads**: one at a time; it may be sent.
#[derive(Debug)]
pub struct Sender {
    // In this order, as for `Socket`.
    transmit: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
    _fill: Producer<u64>,
    xsk: Xsk,
    area: Area,
    interface: Interface,
    chunk: usize,
    places: Places,
    /// Frames in the ring that the kernel was not told of.
    untold: u32,
    sent: Sent,
}

impl Sender {
    /// Begins to send out of interface `name`. No XDP program is needed, and none is touched.
    pub fn open(name: &str, settings: &SendSettings) -> Result<Self, Error> {
        let SendSettings { queue, frames, chunk, .. } = *settings;
        if chunk != 2048 && chunk != 4096 {
            return Err(Error::Settings("chunks of AF_XDP memory have 2048 or 4096 bytes"));
        }
        let interface = Interface::open(name)?;
        let frames = frames.max(2).next_power_of_two();
        let xsk = Xsk::new()?;
        let area = Area::new(frames as usize * chunk, settings.pages, None)?;
        // SAFETY: the area outlives the socket, see the order of the fields; a chunk is in a ring or in `free`.
        unsafe { xsk.register(&area, frames as usize * chunk, chunk)? };
        let system = |what| move |error| Error::System { what, error };
        let _fill = Producer::new(&xsk, Which::Fill, 1).map_err(system("the fill ring"))?;
        let completion = Consumer::new(&xsk, Which::Completion, frames).map_err(system("the completion ring"))?;
        let transmit = Producer::new(&xsk, Which::Transmit, frames).map_err(system("the transmit ring"))?;
        let ways = match settings.zero_copy {
            ZeroCopy::Force => &[libc::XDP_ZEROCOPY][..],
            ZeroCopy::Never => &[libc::XDP_COPY],
            ZeroCopy::Auto => &[libc::XDP_ZEROCOPY, libc::XDP_COPY],
        };
        let choices: Vec<u16> = ways.iter().map(|way| way | libc::XDP_USE_NEED_WAKEUP).collect();
        xsk.bind(interface.index, queue, &choices).map_err(|error| match error.raw_os_error() {
            Some(libc::EBUSY) => Error::QueueInUse { interface: name.to_owned(), queue },
            Some(libc::ENETDOWN) => Error::Down,
            Some(libc::EINVAL) if queue >= interface.queues() => {
                Error::NoQueue { interface: name.to_owned(), queue, queues: interface.queues() }
            }
            Some(libc::EOPNOTSUPP | libc::EINVAL) if settings.zero_copy == ZeroCopy::Force => Error::NoZeroCopy(error),
            _ => Error::System { what: "binding to the queue", error },
        })?;
        let (places, sent) = (Places::new(frames, chunk), Sent::default());
        Ok(Self { transmit, completion, _fill, xsk, area, interface, chunk, places, untold: 0, sent })
    }

    /// Sends a frame, from its destination address on, sooner or later: see [`Self::flush`].
    ///
    /// **Cost**: a copy; a system call for every 32 frames. Waits where all places are under way. **Errors**: `InvalidInput`
    /// for an empty frame or one longer than a chunk, which is not taken; those of the kernel, as for an interface that is
    /// down.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        if frame.is_empty() || frame.len() > self.chunk {
            let why = format!("a frame of {} bytes, AF_XDP sends 1 to {} here", frame.len(), self.chunk);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let chunk = match self.places.give() {
            Some(chunk) => chunk,
            None => self.wait_for_place()?,
        };
        let at = chunk as usize * self.chunk;
        // SAFETY: the chunk lies in the area, as `part` has it, is long enough and ours: `places` had it, so it is in no ring.
        // Nobody can have borrowed from it.
        unsafe {
            std::ptr::copy_nonoverlapping(frame.as_ptr(), self.area.part(at, frame.len()), frame.len());
        }
        // There is room for as many as there are chunks.
        if !self.transmit.put(libc::xdp_desc { addr: at as u64, len: frame.len() as u32, options: 0 }) {
            return Err(io::Error::other(
                "the kernel's ring is damaged: it has no room for a frame that it has completed",
            ));
        }
        self.sent.taken += 1;
        self.untold += 1;
        if self.untold >= BATCH { self.flush() } else { Ok(()) }
    }

    /// Has the kernel begin with all that was given. **Errors**: as for [`Self::send`].
    pub fn flush(&mut self) -> io::Result<()> {
        self.transmit.publish();
        self.untold = 0;
        if self.transmit.needs_wakeup() {
            self.kick()?;
        }
        self.collect()
    }

    /// Waits until the kernel is done with all frames, as long as some are completed from time to time.
    ///
    /// **Errors**: `TimedOut` if none was for 2 s; those of the kernel. [`Self::counts`] says how far it came.
    pub fn finish(&mut self) -> io::Result<Sent> {
        self.flush()?;
        self.wait_until(|sender| sender.sent.completed == sender.sent.taken)?;
        Ok(self.sent)
    }

    /// What became of the frames so far.
    pub fn counts(&self) -> Sent {
        self.sent
    }

    /// Tells the kernel once; it may leave something in the ring.
    fn kick(&mut self) -> io::Result<()> {
        let Err(error) = self.xsk.kick_transmit() else { return Ok(()) };
        match error.raw_os_error() {
            // One frame was thrown away by the device; it is completed nevertheless.
            Some(libc::EBUSY) => {
                self.sent.refused += 1;
                Ok(())
            }
            // Its turn is over, or the device has no room now.
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => Ok(()),
            Some(libc::ENETDOWN | libc::ENXIO) => Err(io::Error::other(match self.interface.state() {
                State::Gone => "the interface is gone",
                State::Up | State::Down => "the interface went down",
            })),
            _ => Err(error),
        }
    }

    /// Takes back the places of completed frames. **Errors**: the kernel names a frame that it does not have.
    fn collect(&mut self) -> io::Result<()> {
        loop {
            let count = self.completion.available();
            if count == 0 {
                return Ok(());
            }
            for i in 0..count {
                if !self.places.take_back(self.completion.peek(i)) {
                    return Err(io::Error::other(
                        "the kernel's ring is damaged: it has completed a frame that it was not given",
                    ));
                }
                self.sent.completed += 1;
            }
            self.completion.release(count);
        }
    }

    fn wait_for_place(&mut self) -> io::Result<u32> {
        self.flush()?;
        self.wait_until(|sender| !sender.places.free.is_empty())?;
        Ok(self.places.give().expect("waited for"))
    }

    fn wait_until(&mut self, done: impl Fn(&Self) -> bool) -> io::Result<()> {
        const PAUSE: Duration = Duration::from_micros(100);
        let (mut moved, mut completed) = (Instant::now(), self.sent.completed);
        loop {
            self.collect()?;
            if done(self) {
                return Ok(());
            }
            if self.sent.completed != completed {
                (moved, completed) = (Instant::now(), self.sent.completed);
            } else if moved.elapsed() > PATIENCE {
                let Sent { taken, completed, .. } = self.sent;
                let why = format!("{} of {taken} frames were not completed", taken - completed);
                return Err(io::Error::new(io::ErrorKind::TimedOut, why));
            }
            if self.transmit.waiting() > 0 {
                self.kick()?;
            } else {
                std::thread::sleep(PAUSE);
            }
        }
    }
}
