//! What an interface receives and sends, as it comes, by one of several backends.

use crate::sys::packet_socket::Insn;
use crate::sys::privilege::Capability;
use crate::view::Chunk;
use core::fmt::Debug;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use weir_packet::savefile::{Bytes, Layout};

/// How long a wait lasts before the caller has its turn again.
pub const TURN: Duration = Duration::from_millis(20);

/// A way to capture. It ends when its `stop` is set, and hands over all that it has received before.
pub trait Backend: Send + Debug {
    /// What has come, without waiting for it. Once `stop` is set nothing more is let in, and what was received by then is
    /// handed over, up to [`Next::End`].
    ///
    /// **Errors**: the interface is gone, or the counts do not agree with what was handed over; all that was received came
    /// before.
    fn next(&mut self, stop: &AtomicBool) -> io::Result<Next>;

    /// Waits until [`Self::next`] may have something, for `most` at most. If nothing came in that time, [`Self::counts`] is
    /// brought up to date. The wait may be shorter.
    fn wait(&mut self, most: Duration) -> io::Result<()>;

    /// What comes next, within `most`.
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

    /// What was counted so far; complete once [`Self::next`] has returned [`Next::End`] or an error.
    fn counts(&self) -> Counts;

    /// What it noticed beside the packets.
    fn marks(&self) -> Marks {
        Marks::default()
    }

    /// How the records in its pieces are laid out.
    fn layout(&self) -> Layout;

    /// Where it drops what it has no room for: one word, `kernel` or `device`.
    fn place(&self) -> &'static str;

    /// The filter before packets are copied, if there is one; another thread may replace it while this one captures.
    fn pre_filter(&self) -> Option<Arc<dyn PreFilter>> {
        None
    }

    /// Whether a filter before packets are copied rejects some: they are in no piece.
    fn rejects_before(&self) -> bool {
        false
    }

    /// Rights that it needs for as long as it captures.
    fn keeps(&self) -> &'static [Capability] {
        &[]
    }

    /// What it does, in a line: memory, modes, directions.
    fn describe(&self) -> String;
}

/// The filter that the kernel runs before it copies packets: whoever gets them filters again.
pub trait PreFilter: Send + Sync + Debug {
    /// Passes what one of `programs` accepts from now on, and everything if there is none, or one that the kernel does not take.
    /// It holds at once for all packets that come, and what is rejected is counted on. **Cost**: some system calls.
    ///
    /// **Errors**: the system refuses; the program before stays.
    fn replace(&self, programs: &[Vec<Insn>]) -> io::Result<()>;
}

/// Memory of a backend with packets in it; dropping the last share of it gives it back, in any order and from any thread.
pub trait Lease: Send + Sync + Debug {
    /// What the records lie in: nothing that others may write to meanwhile. The first record is at offset 0.
    fn bytes(&self) -> Bytes<'_>;
}

/// What a backend found.
#[derive(Debug)]
pub enum Next {
    /// Records, and how many there are.
    Records(Arc<dyn Lease>, u64),
    /// Nothing has come.
    Nothing,
    /// The capture was stopped, and all that it received is handed over.
    End,
}

/// What was counted where it happened. None of these is computed from the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Packets that reached us, rejected and lost ones too.
    pub received: u64,
    /// Packets that a filter before us rejected; `None` if there is one that does not count.
    pub filtered: Option<u64>,
    /// Packets for which there was no room.
    pub dropped: u64,
    /// Packets that were handed over.
    pub handed_over: u64,
}

impl Default for Counts {
    fn default() -> Self {
        Self { received: 0, filtered: Some(0), dropped: 0, handed_over: 0 }
    }
}

/// What a backend noticed: why a capture may not look as the wire did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// How often the interface was down meanwhile.
    pub downs: u64,
    /// Packets whose checksum was not filled in yet: their sender is this host, and its card does it.
    pub unfinished_checksums: u64,
    /// Packets larger than the medium takes: the kernel or the card merged them, or did not cut them yet.
    pub large: u64,
    /// Packets of which the ring kept less than the snap length asks for, because its blocks hold no more.
    pub cut: u64,
}

/// A capture that runs.
#[derive(Debug)]
pub struct Live {
    backend: Box<dyn Backend>,
    layout: Layout,
    stop: Arc<AtomicBool>,
    /// Bytes, or packets of bursts, of the pieces so far.
    offset: u64,
}

/// What [`Live::next`] found.
#[derive(Debug)]
pub enum Piece {
    /// Records, and how many there are.
    Records(Chunk, u64),
    /// Nothing has come.
    Nothing,
    /// The capture was stopped, and all that it received is delivered.
    End,
}

impl Live {
    /// A capture by `backend`, until `stop` is set.
    pub fn new(backend: Box<dyn Backend>, stop: Arc<AtomicBool>) -> Self {
        Self { layout: backend.layout(), backend, stop, offset: 0 }
    }

    /// How the records are laid out.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The way it captures.
    pub fn backend(&self) -> &dyn Backend {
        self.backend.as_ref()
    }

    /// What has come, without waiting for it. **Errors**: those of [`Backend::next`].
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

    /// Waits until something may have come, for `most` at most. **Errors**: those of [`Backend::wait`].
    pub fn wait(&mut self, most: Duration) -> io::Result<()> {
        self.backend.wait(most)
    }
}
