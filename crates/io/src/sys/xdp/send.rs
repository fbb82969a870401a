//! Sending of frames from a queue.

use super::interface::{Interface, State};
use super::receive::Owners;
use super::rings::{Consumer, Producer, Which};
use super::socket::{Area, Xsk};
use super::{Error, ZeroCopy};
use std::io;
use std::time::{Duration, Instant};
use weir_memory::Policy;

/// Longest wait of [`Sender::finish`] without a completed frame.
const PATIENCE: Duration = Duration::from_secs(2);

/// Number of frames after which the kernel is woken: as many as it takes at once (`TX_BATCH_SIZE` of net/xdp/xsk.c). From Linux 6.17
/// on a socket chooses that number.
const BATCH: u32 = 32;
const LARGE_BATCH: u32 = 256;

/// Settings of a sender.
#[derive(Clone, Copy, Debug)]
pub struct SendSettings {
    /// Number of the queue.
    pub queue: u32,
    /// Number of frames that can be under way at once, rounded up to a power of two.
    pub frames: u32,
    /// Bytes for each frame, 2048 or 4096; no frame is longer.
    pub chunk: usize,
    /// Whether the device may read the packet memory itself.
    pub zero_copy: ZeroCopy,
    /// Kind of pages of the memory.
    pub pages: Policy,
}

impl Default for SendSettings {
    fn default() -> Self {
        Self {
            queue: 0,
            frames: 2048,
            chunk: 2048,
            zero_copy: ZeroCopy::Auto,
            pages: Policy::Auto,
        }
    }
}

/// Counts of frames by the result of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that [`Sender::send`] accepted.
    pub taken: u64,
    /// Accepted frames that the kernel has completed, refused frames included.
    pub completed: u64,
    /// Accepted frames for which the kernel or the driver had no room.
    pub refused: u64,
    /// Bytes of the refused frames.
    pub refused_bytes: u64,
}

impl Sent {
    /// Returns the number of frames that went out.
    pub fn sent(&self) -> u64 {
        self.completed - self.refused
    }
}

/// Places for frames, each either free or held by the kernel.
#[derive(Debug)]
pub(super) struct Places {
    /// Bytes of each place.
    chunk: usize,
    owners: Owners,
    free: Vec<u32>,
}

impl Places {
    /// Creates `count` places, all free.
    pub(super) fn new(count: u32, chunk: usize) -> Self {
        Self {
            chunk,
            owners: Owners::new(count as usize),
            free: (0..count).rev().collect(),
        }
    }

    /// Returns the number of a free place, which belongs to the kernel from now on.
    pub(super) fn give(&mut self) -> Option<u32> {
        let place = self.free.pop()?;
        self.owners.give(place);
        Some(place)
    }

    /// Takes back the place at `address`, an entry of the completion ring; `false` if the kernel does not have such a place.
    #[must_use]
    pub(super) fn take_back(&mut self, address: u64) -> bool {
        let place = u32::try_from(address / self.chunk as u64).ok();
        let taken = place.filter(|&place| self.owners.take(place));
        self.free.extend(taken);
        taken.is_some()
    }
}

/// Result of a wakeup of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kick {
    /// The kernel has taken all frames, or its driver takes them by itself.
    Done,
    /// There may be frames left.
    Left,
}

/// Writing end of a queue.
///
/// **Threads**: one at a time; the sender may move between threads.
#[derive(Debug)]
pub struct Sender {
    // The order of the fields matters, as for `Socket`.
    transmit: Producer<libc::xdp_desc>,
    completion: Consumer<u64>,
    _fill: Producer<u64>,
    xsk: Xsk,
    area: Area,
    interface: Interface,
    chunk: usize,
    places: Places,
    /// Number of frames in the ring that are not published to the kernel yet; and the number of them after which it is woken.
    untold: u32,
    batch: u32,
    /// Lengths of the latest frames, by their number modulo the size of the ring; and the number of frames that the kernel took from the ring.
    lens: Vec<u32>,
    consumed: u64,
    sent: Sent,
}

impl Sender {
    /// Opens interface `name` for sending. No XDP program is needed, and no attached program is changed.
    pub fn open(name: &str, settings: &SendSettings) -> Result<Self, Error> {
        let SendSettings {
            queue,
            frames,
            chunk,
            ..
        } = *settings;
        if chunk != 2048 && chunk != 4096 {
            return Err(Error::Settings(
                "chunks of AF_XDP memory have 2048 or 4096 bytes",
            ));
        }
        let interface = Interface::open(name)?;
        let frames = frames.max(2).next_power_of_two();
        let xsk = Xsk::new()?;
        let area = Area::new(frames as usize * chunk, settings.pages, None, false)?;
        // SAFETY: the area outlives the socket, see the order of the fields. A chunk is in a ring or in `free`, never in both.
        unsafe { xsk.register(&area, frames as usize * chunk, chunk)? };
        let system = |what| move |error| Error::System { what, error };
        let _fill = Producer::new(&xsk, Which::Fill, 1).map_err(system("the fill ring"))?;
        let completion = Consumer::new(&xsk, Which::Completion, frames)
            .map_err(system("the completion ring"))?;
        let transmit =
            Producer::new(&xsk, Which::Transmit, frames).map_err(system("the transmit ring"))?;
        let most = LARGE_BATCH.min(frames);
        let batch = if xsk.set_transmit_budget(most) {
            most
        } else {
            BATCH
        };
        let ways = match settings.zero_copy {
            ZeroCopy::Force => &[libc::XDP_ZEROCOPY][..],
            ZeroCopy::Never => &[libc::XDP_COPY],
            ZeroCopy::Auto => &[libc::XDP_ZEROCOPY, libc::XDP_COPY],
        };
        let choices: Vec<u16> = ways
            .iter()
            .map(|way| way | libc::XDP_USE_NEED_WAKEUP)
            .collect();
        xsk.bind(interface.index, queue, &choices)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EBUSY) => Error::QueueInUse {
                    interface: name.to_owned(),
                    queue,
                },
                Some(libc::ENETDOWN) => Error::Down,
                Some(libc::EINVAL) if queue >= interface.queues() => Error::NoQueue {
                    interface: name.to_owned(),
                    queue,
                    queues: interface.queues(),
                },
                Some(libc::EOPNOTSUPP | libc::EINVAL) if settings.zero_copy == ZeroCopy::Force => {
                    Error::NoZeroCopy(error)
                }
                _ => Error::System {
                    what: "binding to the queue",
                    error,
                },
            })?;
        let (places, sent) = (Places::new(frames, chunk), Sent::default());
        Ok(Self {
            transmit,
            completion,
            _fill,
            xsk,
            area,
            interface,
            chunk,
            places,
            untold: 0,
            batch,
            lens: vec![0; frames as usize],
            consumed: 0,
            sent,
        })
    }

    /// Queues a frame, from its destination address on; it is sent at the latest by [`Self::flush`].
    ///
    /// **Cost**: a copy; a system call for every 32 frames, or 256 from Linux 6.17 on. If all places are under way, the function waits. **Errors**:
    /// `InvalidInput` for an empty frame or a frame longer than a chunk, which is not accepted; errors of the kernel, as for an
    /// interface that is down.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<()> {
        self.queue(frame)?;
        if self.untold >= self.batch {
            self.flush()
        } else {
            Ok(())
        }
    }

    /// Queues a frame, of which the kernel is not told.
    pub(super) fn queue(&mut self, frame: &[u8]) -> io::Result<()> {
        if frame.is_empty() || frame.len() > self.chunk {
            let why = format!(
                "a frame of {} bytes, AF_XDP sends 1 to {} here",
                frame.len(),
                self.chunk
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let chunk = match self.places.give() {
            Some(chunk) => chunk,
            None => self.wait_for_place()?,
        };
        let at = chunk as usize * self.chunk;
        // SAFETY: the chunk lies in the area, which `part` checks, and is long enough. `places` had it, so it is in no ring,
        // and no borrow of it can exist.
        unsafe {
            std::ptr::copy_nonoverlapping(
                frame.as_ptr(),
                self.area.part(at, frame.len()),
                frame.len(),
            );
        }
        // The ring has room for as many frames as there are chunks.
        if !self.transmit.put(libc::xdp_desc {
            addr: at as u64,
            len: frame.len() as u32,
            options: 0,
        }) {
            return Err(io::Error::other(
                "the kernel's ring is damaged: it has no room for a frame that it has completed",
            ));
        }
        let place = self.sent.taken as usize % self.lens.len();
        self.lens[place] = frame.len() as u32;
        self.sent.taken += 1;
        self.untold += 1;
        Ok(())
    }

    /// Makes the kernel take all queued frames. **Errors**: as for [`Self::send`]; `TimedOut` if none is completed for 2 s.
    pub fn flush(&mut self) -> io::Result<()> {
        self.transmit.publish();
        self.untold = 0;
        // The kernel copies a share of the frames for a call, and none while too many are on their way. What it leaves would stay in the ring
        // until the next call, which may come with the next packet, or never.
        if self.transmit.needs_wakeup() && self.kick()? == Kick::Left {
            self.wait_until(|sender| {
                !sender.transmit.needs_wakeup() || sender.transmit.waiting() == 0
            })?;
        }
        self.collect()
    }

    /// Waits until the kernel has completed all frames, as long as some are completed from time to time.
    ///
    /// **Errors**: `TimedOut` if no frame was completed for 2 s; errors of the kernel. [`Self::counts`] then gives the frames
    /// completed.
    pub fn finish(&mut self) -> io::Result<Sent> {
        self.flush()?;
        self.wait_until(|sender| sender.sent.completed == sender.sent.taken)?;
        Ok(self.sent)
    }

    /// Returns the counts of the frames so far.
    pub fn counts(&self) -> Sent {
        self.sent
    }

    /// Wakes the kernel once.
    fn kick(&mut self) -> io::Result<Kick> {
        let kicked = self
            .xsk
            .kick_transmit()
            .map_err(|error| (error.raw_os_error(), error));
        let is_dropped = matches!(kicked, Err((Some(libc::EBUSY), _)));
        // If the device drops the first frame of a call, the kernel has not told yet that it took it (`__xsk_generic_xmit`).
        let told = self.sent.taken - u64::from(self.transmit.waiting());
        self.consumed = told.max(self.consumed + u64::from(is_dropped));
        let Err((code, error)) = kicked else {
            return Ok(Kick::Done);
        };
        match code {
            // The device dropped one frame, the last that the kernel took; it is completed nevertheless.
            Some(libc::EBUSY) => {
                self.sent.refused += 1;
                let place = self.consumed.saturating_sub(1) as usize % self.lens.len();
                self.sent.refused_bytes += u64::from(self.lens[place]);
                Ok(Kick::Left)
            }
            // The kernel has taken its share of frames, or the device has no room now.
            Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR) => Ok(Kick::Left),
            Some(libc::ENETDOWN | libc::ENXIO) => {
                Err(io::Error::other(match self.interface.state() {
                    State::Gone => "the interface is gone",
                    State::Up | State::Down => "the interface went down",
                }))
            }
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

    fn wait_until(&mut self, done: impl Fn(&mut Self) -> bool) -> io::Result<()> {
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
                let Sent {
                    taken, completed, ..
                } = self.sent;
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
