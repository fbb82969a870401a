//! Packets of AF_XDP's sockets, one for each queue of an interface.

use super::{Packet, Reader, Waited};
use crate::judge::{LiveJudge, Origin};
use crate::settings::{Backend, Settings};
use core::sync::atomic::AtomicBool;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;
use weir_filter::{Insn, MAX_BATCH};
use weir_io::live::{Backend as _, Counts, Lease, Next};
use weir_io::sys::packet_socket;
use weir_io::sys::xdp::{self, Socket};
use weir_memory::prefetch;
use weir_packet::Frame;
use weir_packet::savefile::Bytes;

/// Nanoseconds of a second.
const NS: i64 = 1_000_000_000;

/// Bytes of a line of the cache.
const LINE: usize = 64;

/// Shortest pause after packets.
const REST: Duration = Duration::from_micros(50);

/// Longest pause after packets: in a sixteenth of the memory, a million of small packets a second have room for as long.
fn pause_of(memory: usize, retire: Duration) -> Duration {
    /// Memory of a small packet, bytes.
    const CHUNK: u64 = 2048;
    let longest = Duration::from_micros(memory as u64 / CHUNK / 16);
    // A program that wants packets at once has the shortest time there is.
    longest
        .min(retire / 16)
        .clamp(REST, Duration::from_millis(1))
}

/// Reader of the sockets of an interface.
pub struct Queues {
    sockets: Vec<Socket>,
    /// Next socket.
    at: usize,
    never: AtomicBool,
    /// Descriptor that is readable while one of `sockets`, or `rest`, is.
    all: OwnedFd,
    /// Descriptor that is readable while packets of a lease are left.
    rest: OwnedFd,
    is_rest: bool,
    lease: Option<Arc<dyn Lease>>,
    /// The packets of the lease, and their time, seconds since the epoch and nanoseconds.
    frames: *const [&'static [u8]],
    time: (u32, u32),
    /// Number of judged packets of the lease.
    judged: usize,
    /// First packet of the last judged batch, and a mask of its passing packets that were not taken.
    batch: usize,
    passing: u64,
    snaplen: u32,
    judge: LiveJudge,
    interface: u32,
    rejected: u64,
    /// Pause after packets.
    pause: Duration,
    /// Whether packets have arrived since the last wait.
    is_busy: bool,
    /// Whether the program waits by the descriptor.
    is_polled: bool,
}

impl Queues {
    /// Opens the sockets of all queues of an interface.
    pub fn open(
        name: &str,
        settings: &Settings,
        retire: Duration,
        snaplen: u32,
    ) -> Result<Self, xdp::Error> {
        let never = AtomicBool::new(false);
        let xdp = xdp::Settings {
            // libpcap's socket keeps the interface promiscuous.
            promiscuous: false,
            pages: settings.pages.unwrap_or_default(),
            survives_fork: true,
            ..xdp::Settings::of_size(settings.ring)
        };
        let sockets = xdp::open_all(name, &xdp, &never)?;
        let failed = |error| xdp::Error::System {
            what: "a descriptor for all queues",
            error,
        };
        // SAFETY: the calls have no pointers.
        let (all, rest) = unsafe {
            let all = owned(libc::epoll_create1(libc::EPOLL_CLOEXEC)).map_err(failed)?;
            let flags = libc::EFD_CLOEXEC | libc::EFD_NONBLOCK;
            (all, owned(libc::eventfd(0, flags)).map_err(failed)?)
        };
        let fds = sockets.iter().map(|socket| socket.as_fd().as_raw_fd());
        for fd in fds.chain([rest.as_raw_fd()]) {
            watch(&all, fd).map_err(failed)?;
        }
        Ok(Self {
            sockets,
            at: 0,
            never,
            all,
            rest,
            is_rest: false,
            lease: None,
            frames: &[],
            time: (0, 0),
            judged: 0,
            batch: 0,
            passing: 0,
            snaplen,
            judge: LiveJudge::default(),
            interface: packet_socket::index_of(name).unwrap_or(0),
            rejected: 0,
            pause: pause_of(settings.ring, retire),
            is_busy: false,
            is_polled: false,
        })
    }

    /// Descriptions of the sockets.
    pub fn describe(&self) -> impl Iterator<Item = String> {
        self.sockets.iter().map(Socket::describe)
    }

    /// Whether packets of the lease are left.
    fn has_more(&self) -> bool {
        self.passing != 0 || self.judged < self.frames.len()
    }

    fn judge_next(&mut self) {
        self.batch = self.judged;
        self.judged = self.frames.len().min(self.batch + MAX_BATCH);
        // Each packet lies in a page of its own, and the kernel wrote it on another processor.
        // SAFETY: the lease holds the frames.
        for frame in &unsafe { &*self.frames }[self.batch..self.judged] {
            prefetch(frame, 0);
            prefetch(frame, LINE);
        }
        let verdicts = self.verdicts();
        let count = self.judged - self.batch;
        self.passing = verdicts & (u64::MAX >> (MAX_BATCH - count));
        self.rejected += count as u64 - u64::from(self.passing.count_ones());
    }

    /// Judges the batch.
    fn verdicts(&mut self) -> u64 {
        let none = Frame {
            data: &[],
            wire_len: 0,
            interface: 0,
        };
        let mut frames = [none; MAX_BATCH];
        // SAFETY: the lease holds the frames.
        let all = unsafe { &*self.frames };
        let batch = &all[self.batch..self.judged];
        for (frame, data) in frames.iter_mut().zip(batch) {
            (frame.data, frame.wire_len) = (data, data.len() as u32);
        }
        self.judge.matches(&frames[..batch.len()])
    }

    fn open_lease(&mut self) -> bool {
        let Some(lease) = &self.lease else {
            return false;
        };
        let Bytes::Slots(slots) = lease.bytes() else {
            return false;
        };
        let (seconds, rest) = (slots.time_ns / NS, slots.time_ns % NS);
        self.time = (seconds as u32, rest as u32);
        // SAFETY: only the lifetime changes; the lease is kept as long as the frames.
        self.frames =
            unsafe { std::mem::transmute::<&[&[u8]], &'static [&'static [u8]]>(slots.frames) };
        self.is_busy = true;
        true
    }
}

impl Reader for Queues {
    fn backend(&self) -> Backend {
        Backend::AfXdp
    }

    fn fd(&self) -> i32 {
        self.all.as_raw_fd()
    }

    fn begin_polling(&mut self) -> bool {
        self.is_polled = true;
        true
    }

    fn set_filter(&mut self, insns: &[Insn]) {
        let origin = Origin {
            is_outgoing: false,
            interface: self.interface,
        };
        self.judge = LiveJudge::new(insns, origin);
        let kept = self.passing & self.verdicts();
        self.rejected += u64::from((self.passing & !kept).count_ones());
        self.passing = kept;
    }

    fn counts(&mut self) -> Counts {
        let mut sum = Counts {
            filtered: Some(self.rejected),
            ..Counts::default()
        };
        for socket in &mut self.sockets {
            // A socket reads its counts, and looks at its interface, where a wait ends.
            let _ = socket.wait(Duration::ZERO);
            let counts = socket.counts();
            sum.received += counts.received;
            sum.dropped += counts.dropped;
            sum.handed_over += counts.handed_over;
        }
        sum
    }

    fn release(&mut self) {
        if !self.is_polled || self.has_more() == self.is_rest {
            return;
        }
        self.is_rest = !self.is_rest;
        let mut count = 1u64;
        // SAFETY: eight bytes of a variable are written to an eventfd, or read from it.
        unsafe {
            match self.is_rest {
                true => libc::write(self.rest.as_raw_fd(), (&raw const count).cast(), 8),
                false => libc::read(self.rest.as_raw_fd(), (&raw mut count).cast(), 8),
            }
        };
    }

    /// Pauses after packets: a wakeup for every few packets would cost more than they do.
    fn pause(&mut self) -> Option<Waited> {
        let was_busy = std::mem::take(&mut self.is_busy);
        was_busy.then(|| {
            std::thread::sleep(self.pause);
            Waited::Ready
        })
    }

    fn take(&mut self, packet: &mut Packet) -> bool {
        while self.passing == 0 {
            if self.judged >= self.frames.len() {
                return false;
            }
            self.judge_next();
        }
        let index = self.batch + self.passing.trailing_zeros() as usize;
        self.passing &= self.passing - 1;
        // SAFETY: the lease holds the frames.
        let frame = unsafe { &*self.frames }[index];
        let wire_len = frame.len() as u32;
        *packet = Packet {
            seconds: self.time.0,
            nanoseconds: self.time.1,
            captured: wire_len.min(self.snaplen),
            wire_len,
            is_outgoing: false,
            is_last: !self.has_more(),
            data: frame.as_ptr(),
        };
        true
    }

    fn advance(&mut self) -> io::Result<bool> {
        (self.frames, self.judged, self.batch, self.lease) = (&[], 0, 0, None);
        for _ in 0..self.sockets.len() {
            let at = self.at;
            self.at = (at + 1) % self.sockets.len();
            let (socket, never) = (&mut self.sockets[at], &self.never);
            // A panic would be a fault of this library.
            let next = catch_unwind(AssertUnwindSafe(|| socket.next(never)));
            let next = next.unwrap_or_else(|_| Err(io::Error::other("a fault of weir")))?;
            if let Next::Records(lease, _) = next {
                self.lease = Some(lease);
                return Ok(self.open_lease());
            }
        }
        Ok(false)
    }
}

/// Takes a new descriptor.
///
/// # Safety
/// `fd` is a descriptor that nobody owns, or negative after an error.
unsafe fn owned(fd: i32) -> io::Result<OwnedFd> {
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: as promised.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn watch(all: &OwnedFd, fd: i32) -> io::Result<()> {
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 0,
    };
    // SAFETY: the kernel reads a variable.
    let done = unsafe { libc::epoll_ctl(all.as_raw_fd(), libc::EPOLL_CTL_ADD, fd, &raw mut event) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
