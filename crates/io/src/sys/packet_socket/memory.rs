//! The ring's memory, which the kernel and we share, and the blocks of it that are out.

use super::record::{Finish, word};
use super::{Error, Settings};
use crate::live::{Lease, Marks};
use crate::sys::option::set_option;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use weir_packet::savefile::Bytes;

// `struct tpacket_block_desc`: version, offset of private data, then `tpacket_hdr_v1`.
const STATUS: usize = 8;
const PACKETS: usize = 12;
const FIRST: usize = 16;
const USED: usize = 20;
/// Bytes of it.
const BLOCK_HEADER: usize = 48;

/// What ring and blocks have in common.
#[derive(Debug)]
pub(super) struct Shared {
    map: Map,
    block: usize,
    /// For each block, whether it is out.
    out: Box<[AtomicBool]>,
    // Behind the mapping, so that it is closed after it.
    socket: OwnedFd,
}

/// The mapping.
#[derive(Debug)]
struct Map {
    base: *mut u8,
    len: usize,
}

// SAFETY: the mapping is owned memory, not tied to a thread. Who may touch which block is decided by its status word and
// `Shared::out`, both atomic.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: mapped by `Shared::new` with this length; ring and blocks, which alone point into it, are gone.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// A block that the kernel filled. Dropping it hands it back.
#[derive(Debug)]
struct Block {
    shared: Arc<Shared>,
    index: usize,
}

impl Drop for Block {
    fn drop(&mut self) {
        // In this order, and `is_ready` asks in the other: who sees that it is not out sees that it was handed back, and does
        // not take the kernel's old word for a new one.
        self.shared.status(self.index).store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.shared.out[self.index].store(false, Ordering::Release);
    }
}

/// Bytes of records that are handed on at once: what follows finds them in the second-level cache, where a whole block has
/// no room.
pub(super) const PORTION: usize = 128 << 10;

/// A block that is handed on in portions.
#[derive(Debug)]
pub(super) struct Opened {
    block: Arc<Block>,
    /// The records that were not handed on yet, and how many the kernel says they are.
    rest: Range<usize>,
    packets: u32,
}

impl Opened {
    /// Itself, if there is more of it.
    pub(super) fn more(self) -> Option<Self> {
        (self.packets > 0).then_some(self)
    }

    /// Finishes the next records, and says how many packets the kernel counted there.
    pub(super) fn portion(&mut self, finish: &Finish, marks: &mut Marks) -> (Portion, u32) {
        let Block { shared, index } = &*self.block;
        // SAFETY: `rest` was brought into the block's bounds by `Shared::take` and only shrinks; the block is ours until the
        // last of its portions is dropped, and no portion made so far reaches into `rest`.
        let records = unsafe {
            let base = shared.base(*index).add(self.rest.start);
            std::slice::from_raw_parts_mut(base, self.rest.len())
        };
        let (bytes, packets) = finish.records(records, self.packets, PORTION, marks);
        // Fewer packets than the kernel counted are noticed where they are read.
        let (bytes, packets) = if bytes < records.len() { (bytes, packets) } else { (bytes, self.packets) };
        let part = self.rest.start..self.rest.start + bytes;
        self.rest.start = part.end;
        self.packets -= packets;
        (Portion { block: Arc::clone(&self.block), part }, packets)
    }
}

/// Records of a block.
#[derive(Debug)]
pub(super) struct Portion {
    block: Arc<Block>,
    part: Range<usize>,
}

impl Lease for Portion {
    fn bytes(&self) -> Bytes<'_> {
        let Block { shared, index } = &*self.block;
        // SAFETY: `part` lies in the block; until the block is dropped it is ours, so the kernel does not write to it, and we
        // wrote to it only before the portion was made.
        let records = unsafe { std::slice::from_raw_parts(shared.base(*index).add(self.part.start), self.part.len()) };
        records.into()
    }
}

/// Where in a block of `len` bytes its records lie, and how many they are, by its header from [`PACKETS`] on; `None` if they
/// would lie behind the block, or over its header: the status there is written while records are read.
pub(super) fn records_of(header: &[u8], len: usize) -> Option<(Range<usize>, u32)> {
    let [packets, first, used] = [PACKETS, FIRST, USED].map(|at| word(header, at - PACKETS));
    let (first, used) = (first as usize, used as usize);
    match packets {
        0 => Some((BLOCK_HEADER..BLOCK_HEADER, 0)),
        _ => (BLOCK_HEADER <= first && first <= used && used <= len).then_some((first..used, packets)),
    }
}

impl Shared {
    /// Gives the socket a ring, and maps it.
    pub(super) fn new(socket: OwnedFd, settings: &Settings) -> Result<Self, Error> {
        /// The kernel wants it and TPACKET_V3 does not use it.
        const FRAME_SIZE: usize = 2048;
        let Settings { block, blocks, retire, .. } = *settings;
        let len = block * blocks;
        let request = libc::tpacket_req3 {
            tp_block_size: block as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: FRAME_SIZE as u32,
            tp_frame_nr: (len / FRAME_SIZE) as u32,
            tp_retire_blk_tov: retire.as_millis() as u32,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        let failed = |error| Error::System { what: "the ring", error };
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(failed)?;
        // SAFETY: a mapping at an address of the kernel's choice touches nothing of ours.
        let base = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), len, access, libc::MAP_SHARED, socket.as_raw_fd(), 0)
        };
        if base == libc::MAP_FAILED {
            return Err(failed(io::Error::last_os_error()));
        }
        let out = (0..blocks).map(|_| AtomicBool::new(false)).collect();
        Ok(Self { map: Map { base: base.cast(), len }, block, out, socket })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Bytes of the ring.
    pub(super) fn len(&self) -> usize {
        self.map.len
    }

    /// Number of the block behind this one.
    pub(super) fn behind(&self, index: usize) -> usize {
        (index + 1) % self.out.len()
    }

    fn base(&self, index: usize) -> *mut u8 {
        assert!(index < self.out.len());
        self.map.base.wrapping_add(index * self.block)
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: the word lies in the mapping, 8 bytes behind a page's start, so it is aligned; the kernel and we access it
        // as one word (Documentation/networking/packet_mmap.rst).
        unsafe { AtomicU32::from_ptr(self.base(index).wrapping_add(STATUS).cast()) }
    }

    pub(super) fn is_out(&self, index: usize) -> bool {
        self.out[index].load(Ordering::Acquire)
    }

    /// Whether the kernel has handed this block over and it is not out.
    pub(super) fn is_ready(&self, index: usize) -> bool {
        !self.is_out(index) && self.status(index).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Takes over a block.
    ///
    /// **Panics**: the block is not ready.
    pub(super) fn take(self: &Arc<Self>, index: usize) -> io::Result<Opened> {
        let claimed = !self.out[index].swap(true, Ordering::AcqRel);
        assert!(claimed && self.status(index).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0, "it is ready");
        let block = Arc::new(Block { shared: Arc::clone(self), index });
        // SAFETY: the block is ours (its status was read with Acquire, and it was not out until we said so), lies in the
        // mapping and is longer than its header; behind the status, nobody writes to the header before the block is handed back.
        let header = unsafe { std::slice::from_raw_parts(self.base(index).add(PACKETS), BLOCK_HEADER - PACKETS) };
        let (rest, packets) = records_of(header, self.block)
            .ok_or_else(|| io::Error::other("the kernel's ring is damaged: a block claims more than it holds"))?;
        Ok(Opened { block, rest, packets })
    }
}
