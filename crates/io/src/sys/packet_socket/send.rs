//! Sending of complete frames.

use super::Error;
use super::options::{PACKET_QDISC_BYPASS, bind, index_of, open};
use crate::sys::option::{set_option, zeroed};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::time::{Duration, Instant};

/// Frames that go to the kernel in one call.
const BATCH: usize = 64;

/// Longest time without room in the kernel before sending fails.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whether [`Sender::send`] failed because the kernel had no room for some seconds.
pub fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOBUFS | libc::EAGAIN))
}

/// Socket that sends frames with their link headers.
///
/// **Platform**: as [`Ring`](super::Ring).
#[derive(Debug)]
pub struct Sender {
    socket: OwnedFd,
    sent: Sent,
    outlasts_down: bool,
    /// Length from which the other end takes no frame, as far as is known: a frame of this length was refused, and then a shorter one taken.
    limit: usize,
    /// Length of a frame that was left because there was no room for it. The next frame tells whether it was too long.
    left: Option<usize>,
}

/// Counts of frames by the result of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    /// Frames that the kernel accepted; the kernel does not report their further fate.
    pub frames: u64,
    /// Bytes of these frames.
    pub bytes: u64,
    /// Frames refused because they are longer than the interface takes.
    pub too_long: u64,
    /// Frames refused because they are shorter than a link header.
    pub too_short: u64,
    /// Frames left because there was no room for them, but for shorter ones: the other end of a virtual cable takes none so long.
    pub no_room: u64,
    /// Frames refused because the interface was down: see [`Sender::outlasting_down`].
    pub down: u64,
    /// Frames of calls that ended with an error, from the frame that caused it on.
    pub failed: u64,
    /// Number of attempts repeated because the kernel had no room.
    pub waits: u64,
}

impl Sender {
    /// Opens interface `name`. With `direct`, frames go to the driver past the queueing discipline (PACKET_QDISC_BYPASS).
    pub fn open(name: &str, direct: bool) -> Result<Self, Error> {
        let index = index_of(name).ok_or(Error::NoInterface)?;
        let socket = open()?;
        if direct {
            set_option(
                &socket,
                libc::SOL_PACKET,
                PACKET_QDISC_BYPASS,
                &(1 as c_int),
            )
            .map_err(|error| Error::System {
                what: "PACKET_QDISC_BYPASS",
                error,
            })?;
        }
        // With protocol 0, the socket receives nothing.
        bind(&socket, index, 0)?;
        Ok(Self {
            socket,
            sent: Sent::default(),
            outlasts_down: false,
            limit: usize::MAX,
            left: None,
        })
    }

    /// The same sender, which goes on while the interface is down: frames are counted and not sent until it is up again.
    pub fn outlasting_down(self) -> Self {
        Self {
            outlasts_down: true,
            ..self
        }
    }

    /// Returns the counts of all frames so far.
    pub fn sent(&self) -> Sent {
        self.sent
    }

    /// Sends frames in their order, 64 in a system call, and waits while the kernel has no room. A frame for which there is none for two
    /// seconds is left; if there is room for a shorter one then, later frames of that length are left at once.
    ///
    /// **Cost**: a system call for 64 frames, no allocation. **Errors**: errors of `sendmmsg`, such as `ENETDOWN`; `ENOBUFS` if
    /// there is no room for the next frame either. [`Self::sent`] then tells how many frames were sent before, and how many were not.
    pub fn send(&mut self, frames: &[&[u8]]) -> io::Result<()> {
        let mut rest = frames;
        let mut stuck: Option<Instant> = None;
        // The kernel tells an error with the next call only.
        let mut is_partial = false;
        while let [first, ..] = rest {
            match self.send_some(rest) {
                Ok(taken) => {
                    let (gone, left) = rest.split_at(taken);
                    self.learn(gone);
                    is_partial = taken < rest.len().min(BATCH);
                    self.sent.frames += taken as u64;
                    self.sent.bytes += gone.iter().map(|frame| frame.len() as u64).sum::<u64>();
                    rest = left;
                    stuck = None;
                }
                // The error concerns the first frame, because the kernel accepted all frames before it.
                Err(error) => match error.raw_os_error() {
                    Some(libc::EMSGSIZE) => {
                        self.sent.too_long += 1;
                        (rest, is_partial) = (&rest[1..], false);
                    }
                    Some(libc::EINVAL) if first.len() < super::ETHERNET as usize => {
                        self.sent.too_short += 1;
                        (rest, is_partial) = (&rest[1..], false);
                    }
                    Some(libc::EINTR) => {}
                    Some(libc::ENOBUFS | libc::EAGAIN) => {
                        self.sent.waits += 1 + u64::from(std::mem::take(&mut is_partial));
                        let since = *stuck.get_or_insert_with(Instant::now);
                        if first.len() < self.limit {
                            if since.elapsed() <= PATIENCE {
                                std::thread::sleep(Duration::from_micros(100));
                                continue;
                            }
                            if self.left.replace(first.len()).is_some() {
                                self.sent.failed += rest.len() as u64;
                                return Err(error);
                            }
                        }
                        self.sent.no_room += 1;
                        (rest, stuck) = (&rest[1..], None);
                    }
                    Some(libc::ENETDOWN) if self.outlasts_down => {
                        self.sent.down += rest.len() as u64;
                        return Ok(());
                    }
                    _ => {
                        self.sent.failed += rest.len() as u64;
                        return Err(error);
                    }
                },
            }
        }
        Ok(())
    }

    /// Learns from frames that were taken how long frames may be.
    fn learn(&mut self, taken: &[&[u8]]) {
        if self.left.is_none() && self.limit == usize::MAX {
            return;
        }
        let longest = taken.iter().map(|frame| frame.len()).max().unwrap_or(0);
        let limit = self.left.take().unwrap_or(self.limit);
        self.limit = match longest < limit {
            true => limit,
            false => usize::MAX,
        };
    }

    /// Sends a batch; returns the number of frames that the kernel accepted, at least one.
    fn send_some(&self, frames: &[&[u8]]) -> io::Result<usize> {
        let mut parts = [const {
            libc::iovec {
                iov_base: std::ptr::null_mut(),
                iov_len: 0,
            }
        }; BATCH];
        let mut messages = [zeroed::<libc::mmsghdr>(); BATCH];
        let count = frames.len().min(BATCH);
        for ((part, message), frame) in parts.iter_mut().zip(&mut messages).zip(frames) {
            *part = libc::iovec {
                iov_base: frame.as_ptr().cast_mut().cast(),
                iov_len: frame.len(),
            };
            message.msg_hdr.msg_iov = part;
            message.msg_hdr.msg_iovlen = 1;
        }
        // SAFETY: messages, parts and frames live through the call, which only reads what the parts point to; `count` of
        // each are filled in.
        let taken = unsafe {
            libc::sendmmsg(
                self.socket.as_raw_fd(),
                messages.as_mut_ptr(),
                count as u32,
                0,
            )
        };
        if taken < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(taken as usize)
        }
    }
}
