//! Send queues.

use crate::pool::Pool;
use crate::port::Port;
use crate::raw;
use std::sync::Arc;

/// Largest number of frames in one call of the driver.
const AT_ONCE: usize = 64;

/// A send queue.
#[derive(Debug)]
pub struct Sender {
    port: Port,
    number: u16,
    pool: Arc<Pool>,
    sent: u64,
}

/// Reason why frames are not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// A frame is longer than an mbuf. Neither the frames of its call nor those after them were
    /// sent.
    #[error("a frame of {len} bytes does not fit: the device takes {room} at most")]
    TooLong {
        /// Length of the frame, bytes.
        len: usize,
        /// Bytes that fit in an mbuf.
        room: usize,
    },
}

impl Sender {
    pub(crate) fn new(port: Port, number: u16, pool: Arc<Pool>) -> Self {
        Self {
            port,
            number,
            pool,
            sent: 0,
        }
    }

    /// The port of the queue.
    pub fn port(&self) -> &Port {
        &self.port
    }

    /// Number of frames that the device has taken so far.
    pub fn sent(&self) -> u64 {
        self.sent
    }

    /// Passes copies of the frames to the device, in order, and returns the number of frames that it took: fewer than all if its
    /// queue is full. Does not wait, and does not try again.
    ///
    /// **Cost**: a copy of each frame, and one call of the driver for each 64.
    /// **Errors**: a frame is too long; the frames in front of it may have been sent, see [`Self::sent`].
    pub fn send(&mut self, frames: &[&[u8]]) -> Result<usize, SendError> {
        let room = self.pool.room();
        if let Some(long) = frames.iter().find(|frame| frame.len() > room) {
            return Err(SendError::TooLong {
                len: long.len(),
                room,
            });
        }
        let mut taken = 0;
        for frames in frames.chunks(AT_ONCE) {
            let mut starts = [std::ptr::null(); AT_ONCE];
            let mut lens = [0u32; AT_ONCE];
            for ((start, len), frame) in starts.iter_mut().zip(&mut lens).zip(frames) {
                (*start, *len) = (frame.as_ptr(), frame.len() as u32);
            }
            let (port, count) = (self.port.number(), frames.len() as u32);
            // SAFETY: the queue is set up and runs while the port is held; `&mut self` is its only writer. `starts` and
            // `lens` have `count` elements, of frames that live through the call and fit in an mbuf.
            let took = unsafe {
                raw::weir_send(
                    port,
                    self.number,
                    self.pool.raw(),
                    starts.as_ptr(),
                    lens.as_ptr(),
                    count,
                )
            };
            // If there are no mbufs, the device still has all of them to send: its queue is full.
            let took = usize::try_from(took).unwrap_or(0);
            taken += took;
            self.sent += took as u64;
            if took < frames.len() {
                break;
            }
        }
        Ok(taken)
    }
}
