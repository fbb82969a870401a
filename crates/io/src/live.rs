//! Live captures: packets that an interface receives and sends, by one of several backends.

use crate::sys::packet_socket::Insn;
use crate::sys::privilege::Capability;
use crate::view::Chunk;
use core::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use weir_packet::savefile::{Bytes, Layout};

/// Longest wait before control returns to the caller.
pub const TURN: Duration = Duration::from_millis(25);

/// Method of capture. After its `stop` is set, a backend hands over all packets received before, and then ends.
pub trait Backend: Send + Debug {
    /// Returns the packets that have arrived, without waiting. Once `stop` is set, the backend accepts no more packets and
    /// hands over all packets received by then, up to [`Next::End`].
    ///
    /// **Errors**: the interface is gone, or the counts do not agree with the packets handed over. All received packets were
    /// returned before the error.
    fn next(&mut self, stop: &AtomicBool) -> io::Result<Next>;

    /// Waits until [`Self::next`] may return packets, at most for `most`; the wait may be shorter. If no packet arrived, the
    /// function updates [`Self::counts`].
    fn wait(&mut self, most: Duration) -> io::Result<()>;

    /// Returns the next packets, and waits for them at most for `most`.
    fn next_within(&mut self, stop: &AtomicBool, most: Duration) -> io::Result<Next> {
        let begun = Instant::now();
        loop {
            let next = self.next(stop)?;
            let left = most.saturating_sub(begun.elapsed());
            if !matches!(next, Next::Nothing) || left.is_zero() {
                return Ok(next);
            }
            self.wait(left)?;
        }
    }

    /// Returns the counts so far; they are complete once [`Self::next`] has returned [`Next::End`] or an error.
    fn counts(&self) -> Counts;

    /// Returns observations about the capture, in addition to the packets.
    fn marks(&self) -> Marks {
        Marks::default()
    }

    /// Returns the layout of the records in the leases.
    fn layout(&self) -> Layout;

    /// Returns the place where packets without room are dropped, in one word: `kernel` or `device`.
    fn place(&self) -> &'static str;

    /// Returns the filter that runs before packets are copied, if there is one. Another thread may replace the filter's
    /// programs during the capture.
    fn pre_filter(&self) -> Option<Arc<dyn PreFilter>> {
        None
    }

    /// Returns whether a filter rejects packets before they are copied; rejected packets are in no lease.
    fn rejects_before(&self) -> bool {
        false
    }

    /// Returns the capabilities that the backend needs as long as it captures.
    fn keeps(&self) -> &'static [Capability] {
        &[]
    }

    /// Describes the capture in one line: memory, modes, directions.
    fn describe(&self) -> String;
}

/// Filter that the kernel runs before it copies packets. The receiver of the packets filters again.
pub trait PreFilter: Send + Sync + Debug {
    /// Replaces the programs: from now on, a packet passes if one of `programs` accepts it. If there is no program, or the
    /// kernel refuses one, every packet passes. The change holds at once for all new packets, and the count of rejected packets
    /// continues. **Cost**: some system calls.
    ///
    /// **Errors**: an error of the system; the previous program stays.
    fn replace(&self, programs: &[Vec<Insn>]) -> io::Result<()>;

    /// A position after all packets that were filtered by the programs before the last
    /// [`Self::replace`]: they wait in the memory of the capture, or were taken from it. **Cost**:
    /// a grace period of the kernel, some milliseconds.
    fn position(&self) -> u64;

    /// Whether the receiver has done all packets before a position. The end of the capture is past every position.
    fn is_past(&self, position: u64) -> bool;
}

/// Memory of a backend that holds packets. Dropping the last share gives the memory back, in any order and from any thread.
pub trait Lease: Send + Sync + Debug {
    /// Returns the content that holds the records; no other program or device writes to it in the
    /// meantime. The first record is at offset 0.
    fn bytes(&self) -> Bytes<'_>;
}

/// Result of [`Backend::next`].
#[derive(Debug)]
pub enum Next {
    /// Records, and their number.
    Records(Arc<dyn Lease>, u64),
    /// No packet has arrived.
    Nothing,
    /// The capture was stopped, and all received packets were handed over.
    End,
}

/// Counts of a capture, each counted where the event occurs. No count is computed from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Packets that reached the capture, with rejected and lost packets.
    pub received: u64,
    /// Packets that a filter before the capture rejected; `None` if such a filter does not count.
    pub filtered: Option<u64>,
    /// Packets dropped because there was no room.
    pub dropped: u64,
    /// Packets that were handed over.
    pub handed_over: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            received: 0,
            filtered: Some(0),
            dropped: 0,
            handed_over: 0,
        }
    }
}

/// Observations of a backend: reasons why captured packets may differ from the packets on the wire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// Number of times that the interface went down during the capture.
    pub downs: u64,
    /// Packets without a checksum yet: this host sent them, and its network card fills in the checksum later.
    pub unfinished_checksums: u64,
    /// Packets larger than the medium takes, because the kernel or the card merged them or has not segmented them yet.
    pub large: u64,
    /// Packets whose captured length is less than the snap length asks for, because the blocks of the ring hold no more.
    pub cut: u64,
}

/// Running capture.
#[derive(Debug)]
pub struct Live {
    backend: Box<dyn Backend>,
    layout: Layout,
    stop: Arc<AtomicBool>,
    /// Offset of the next chunk: sum of the bytes so far, or of the packets if chunks are bursts.
    offset: u64,
}

/// Result of [`Live::next`].
#[derive(Debug)]
pub enum Piece {
    /// Records, and their number.
    Records(Chunk, u64),
    /// No packet has arrived.
    Nothing,
    /// The capture was stopped, and all received packets were delivered.
    End,
}

impl Live {
    /// Starts a capture by `backend`, which ends when `stop` is set.
    pub fn new(backend: Box<dyn Backend>, stop: Arc<AtomicBool>) -> Self {
        Self {
            layout: backend.layout(),
            backend,
            stop,
            offset: 0,
        }
    }

    /// Returns the layout of the records.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Returns the backend.
    pub fn backend(&self) -> &dyn Backend {
        self.backend.as_ref()
    }

    /// Returns the packets that have arrived, without waiting. **Errors**: see [`Backend::next`].
    #[expect(clippy::should_implement_trait, reason = "a capture fails")]
    pub fn next(&mut self) -> io::Result<Piece> {
        Ok(match self.backend.next(&self.stop)? {
            Next::Records(lent, packets) => {
                let view = Chunk::leased(self.offset, lent);
                self.offset += view.content().len() as u64;
                Piece::Records(view, packets)
            }
            Next::Nothing => Piece::Nothing,
            Next::End => Piece::End,
        })
    }

    /// Waits until a packet may have arrived, at most for `most`. **Errors**: see [`Backend::wait`].
    pub fn wait(&mut self, most: Duration) -> io::Result<()> {
        self.backend.wait(most)
    }
}
