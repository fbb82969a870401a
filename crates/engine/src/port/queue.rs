//! A send queue of AF_XDP as a port: limits of its frames, and counts of what became of them.

use super::{BATCH, Counts, ETHERNET, PortError, TAG, check_interface, mtu};
use std::collections::VecDeque;
use std::io;
use weir_io::sys::xdp;

/// Chunk sizes, bytes: a frame lies in at most a page.
const CHUNKS: [usize; 2] = [2048, 4096];

/// A send queue of AF_XDP.
pub(super) struct Queue {
    pub(super) sender: xdp::Sender,
    longest: usize,
    too_long: u64,
    /// Frames of other lengths that were to be sent.
    handed: u64,
    /// Lengths of frames not yet completed by the kernel, bytes, oldest first.
    under_way: VecDeque<usize>,
    /// Whether the kernel takes no more frames, so that those under way are not sent.
    has_failed: bool,
    /// Bytes of the completed frames. `done` is their number.
    bytes: u64,
    done: u64,
}

impl Queue {
    pub(super) fn open(text: &str) -> Result<Self, PortError> {
        let (interface, queue) = text.rsplit_once(':').unwrap_or((text, "0"));
        let queue = queue
            .parse()
            .map_err(|_| PortError::Queue(queue.to_owned()))?;
        check_interface(interface)?;
        let frame = mtu(interface).map_or(CHUNKS[0], |mtu| mtu + ETHERNET);
        let chunk = if frame + TAG > CHUNKS[0] {
            CHUNKS[1]
        } else {
            CHUNKS[0]
        };
        let settings = xdp::SendSettings {
            queue,
            chunk,
            ..xdp::SendSettings::default()
        };
        let sender = xdp::Sender::open(interface, &settings)?;
        let under_way = VecDeque::with_capacity(settings.frames as usize + BATCH);
        Ok(Self {
            sender,
            longest: frame.min(chunk),
            too_long: 0,
            handed: 0,
            under_way,
            has_failed: false,
            bytes: 0,
            done: 0,
        })
    }

    /// Whether a frame is longer than the interface's limit. AF_XDP does not check this, and such frames would be lost silently.
    fn is_too_long(&self, frame: &[u8]) -> bool {
        let tag = if frame[12..14] == [0x81, 0x00] {
            TAG
        } else {
            0
        };
        frame.len() > self.longest + tag
    }

    pub(super) fn send(&mut self, frames: &[&[u8]]) -> io::Result<()> {
        self.handed += frames.len() as u64;
        let done = frames.iter().try_for_each(|frame| {
            if self.is_too_long(frame) {
                self.too_long += 1;
                self.handed -= 1;
                return Ok(());
            }
            self.under_way.push_back(frame.len());
            self.sender.send(frame)
        });
        let done = done.and_then(|()| self.sender.flush());
        self.book();
        self.has_failed |= done.is_err();
        done
    }

    pub(super) fn finish(&mut self) -> io::Result<()> {
        let done = self.sender.finish();
        self.book();
        self.has_failed |= done.is_err();
        done.map(drop)
    }

    /// Counts the completed frames. Frames are completed in their order.
    fn book(&mut self) {
        let done = self.sender.counts().completed;
        let now = (done - self.done) as usize;
        self.bytes += self
            .under_way
            .drain(..now.min(self.under_way.len()))
            .map(|len| len as u64)
            .sum::<u64>();
        self.done = done;
    }

    pub(super) fn counts(&self) -> Counts {
        let sent = self.sender.counts();
        Counts {
            sent: sent.sent(),
            bytes: self.bytes.saturating_sub(sent.refused_bytes),
            too_long: self.too_long,
            no_room: sent.refused,
            failed: match self.has_failed {
                true => self.handed - sent.completed,
                false => 0,
            },
            ..Counts::default()
        }
    }
}
