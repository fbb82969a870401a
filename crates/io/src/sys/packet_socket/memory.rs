//! Memory of the ring, which the kernel and the process share, and its leased blocks.

use super::record::{Finish, word};
use super::{Error, Settings};
use crate::live::{Lease, Marks};
use crate::sys::option::set_option;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use weir_packet::savefile::Bytes;

// `struct tpacket_block_desc`: version, offset of private data, then `tpacket_hdr_v1`.
const STATUS: usize = 8;
const PACKETS: usize = 12;
const FIRST: usize = 16;
const USED: usize = 20;
const NUMBER: usize = 24;
/// Bytes of this structure.
const BLOCK_HEADER: usize = 48;

/// State that the ring and its blocks share.
#[derive(Debug)]
pub(super) struct Shared {
    map: Map,
    block: usize,
    /// Whether each block is leased.
    out: Box<[AtomicBool]>,
    /// Number of the last block of whose packets the reader has done all, by the numbers that the kernel gives.
    done: AtomicU64,
    // The socket is declared after the mapping, so that it is closed after the mapping is removed.
    socket: OwnedFd,
}

/// Mapping of the ring.
#[derive(Debug)]
struct Map {
    base: *mut u8,
    len: usize,
}

// SAFETY: the mapping is owned memory, not tied to a thread. The status word of a block and `Shared::out`, both atomic, decide
// whether the kernel or the process may touch it.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: `Shared::new` mapped the memory with this length; only ring and blocks point into it, and they are dropped.
        unsafe { libc::munmap(self.base.cast(), self.len) };
    }
}

/// Block that the kernel filled. Dropping it hands the block back to the kernel.
#[derive(Debug)]
struct Block {
    shared: Arc<Shared>,
    index: usize,
}

impl Drop for Block {
    fn drop(&mut self) {
        // The order matters, and `is_ready` reads in the opposite order: a thread that sees `out` cleared also sees the new
        // status. The thread thus cannot mistake the old status for a block filled again.
        self.shared
            .status(self.index)
            .store(libc::TP_STATUS_KERNEL, Ordering::Release);
        self.shared.out[self.index].store(false, Ordering::Release);
    }
}

/// Bytes of records that are handed on at once: they fit into the second-level cache, where later stages find them; a whole
/// block would not fit.
pub(super) const PORTION: usize = 128 << 10;

/// Block that is handed on in portions.
#[derive(Debug)]
pub(super) struct Opened {
    block: Arc<Block>,
    /// Place of the records that were not handed on yet; `packets` is their number according to the kernel.
    rest: Range<usize>,
    packets: u32,
}

impl Opened {
    /// Returns the block, if it holds further records.
    pub(super) fn more(self) -> Option<Self> {
        (self.packets > 0).then_some(self)
    }

    /// Finishes the next records; returns them with the number of packets that the kernel counted there.
    pub(super) fn portion(&mut self, finish: &Finish, marks: &mut Marks) -> (Portion, u32) {
        let Block { shared, index } = &*self.block;
        // SAFETY: `Shared::take` checked that `rest` lies in the block, and `rest` only shrinks. The process owns the block
        // until the last of its portions is dropped, and no portion made so far reaches into `rest`.
        let records = unsafe {
            let base = shared.base(*index).add(self.rest.start);
            std::slice::from_raw_parts_mut(base, self.rest.len())
        };
        let (bytes, packets) = finish.records(records, self.packets, PORTION, marks);
        // If there are fewer packets than the kernel counted, the reader of the records notices it.
        let (bytes, packets) = if bytes < records.len() {
            (bytes, packets)
        } else {
            (bytes, self.packets)
        };
        let part = self.rest.start..self.rest.start + bytes;
        self.rest.start = part.end;
        self.packets -= packets;
        (
            Portion {
                block: Arc::clone(&self.block),
                part,
            },
            packets,
        )
    }
}

/// Part of a block's records.
#[derive(Debug)]
pub(super) struct Portion {
    block: Arc<Block>,
    part: Range<usize>,
}

impl Lease for Portion {
    fn bytes(&self) -> Bytes<'_> {
        let Block { shared, index } = &*self.block;
        // SAFETY: `part` lies in the block. Until the block is dropped, the process owns it, so the kernel does not write to
        // it. The process itself wrote to it only before the portion was made.
        let records = unsafe {
            std::slice::from_raw_parts(shared.base(*index).add(self.part.start), self.part.len())
        };
        records.into()
    }
}

/// Returns the place of the records in a block of `len` bytes, and their number, from its header from [`PACKETS`] on. Returns
/// `None` if the records would lie outside the block, or over its header, because the status there is written while records are
/// read.
pub(super) fn records_of(header: &[u8], len: usize) -> Option<(Range<usize>, u32)> {
    let [packets, first, used] = [PACKETS, FIRST, USED].map(|at| word(header, at - PACKETS));
    let (first, used) = (first as usize, used as usize);
    match packets {
        0 => Some((BLOCK_HEADER..BLOCK_HEADER, 0)),
        _ => (BLOCK_HEADER <= first && first <= used && used <= len)
            .then_some((first..used, packets)),
    }
}

impl Shared {
    /// Creates the socket's ring and maps it.
    pub(super) fn new(socket: OwnedFd, settings: &Settings) -> Result<Self, Error> {
        /// Size of a frame, which the kernel requires although TPACKET_V3 does not use it.
        const FRAME_SIZE: usize = 2048;
        let Settings {
            block,
            blocks,
            retire,
            ..
        } = *settings;
        let len = block * blocks;
        let request = libc::tpacket_req3 {
            tp_block_size: block as u32,
            tp_block_nr: blocks as u32,
            tp_frame_size: FRAME_SIZE as u32,
            tp_frame_nr: (len / FRAME_SIZE) as u32,
            // 0 would leave the time to the kernel, which keeps 16 bits of it.
            tp_retire_blk_tov: retire
                .as_nanos()
                .div_ceil(1_000_000)
                .clamp(1, u16::MAX.into()) as u32,
            tp_sizeof_priv: 0,
            tp_feature_req_word: 0,
        };
        let failed = |error| Error::System {
            what: "the ring",
            error,
        };
        set_option(&socket, libc::SOL_PACKET, libc::PACKET_RX_RING, &request).map_err(failed)?;
        // SAFETY: the kernel chooses the address of the mapping, so it touches no existing memory.
        let base = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(
                std::ptr::null_mut(),
                len,
                access,
                libc::MAP_SHARED,
                socket.as_raw_fd(),
                0,
            )
        };
        if base == libc::MAP_FAILED {
            return Err(failed(io::Error::last_os_error()));
        }
        let out = (0..blocks).map(|_| AtomicBool::new(false)).collect();
        Ok(Self {
            map: Map {
                base: base.cast(),
                len,
            },
            block,
            out,
            done: AtomicU64::new(0),
            socket,
        })
    }

    pub(super) fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    /// Number of the block that the kernel has begun to fill in this place, 1 for the first of all; 0 before the first round.
    pub(super) fn number(&self, index: usize) -> u64 {
        // SAFETY: the number lies in the mapping, 24 bytes after a page's start, so it is aligned. The kernel writes it when it
        // begins the block (`prb_open_block` of net/packet/af_packet.c), and the process never does.
        unsafe { AtomicU64::from_ptr(self.base(index).wrapping_add(NUMBER).cast()) }
            .load(Ordering::Acquire)
    }

    /// Number of the last block that holds packets, complete or not; 0 if no packet has arrived.
    pub(super) fn last_number(&self) -> u64 {
        let newest = (0..self.out.len())
            .map(|index| (self.number(index), index))
            .max();
        let Some((number, index)) = newest.filter(|(number, _)| *number > 0) else {
            return 0;
        };
        // SAFETY: as for the status word; the kernel counts the packets of a block while it fills it (`prb_fill_curr_block`).
        let packets = unsafe { AtomicU32::from_ptr(self.base(index).wrapping_add(PACKETS).cast()) };
        if packets.load(Ordering::Acquire) == 0 {
            number - 1
        } else {
            number
        }
    }

    /// Notes that the reader has done all packets up to the end of a block; `u64::MAX` if it takes no more.
    pub(super) fn note_done(&self, number: u64) {
        self.done.store(number, Ordering::Release);
    }

    /// Number of the last block of whose packets the reader has done all.
    pub(super) fn done(&self) -> u64 {
        self.done.load(Ordering::Acquire)
    }

    /// Returns the size of the ring, in bytes.
    pub(super) fn len(&self) -> usize {
        self.map.len
    }

    /// Returns the index of the block after this one.
    pub(super) fn behind(&self, index: usize) -> usize {
        (index + 1) % self.out.len()
    }

    fn base(&self, index: usize) -> *mut u8 {
        assert!(index < self.out.len());
        self.map.base.wrapping_add(index * self.block)
    }

    fn status(&self, index: usize) -> &AtomicU32 {
        // SAFETY: the word lies in the mapping, 8 bytes after a page's start, so it is aligned; the kernel and the process
        // access it as one word (Documentation/networking/packet_mmap.rst).
        unsafe { AtomicU32::from_ptr(self.base(index).wrapping_add(STATUS).cast()) }
    }

    pub(super) fn is_out(&self, index: usize) -> bool {
        self.out[index].load(Ordering::Acquire)
    }

    /// Returns whether the kernel has handed this block over and the block is not leased.
    pub(super) fn is_ready(&self, index: usize) -> bool {
        !self.is_out(index)
            && self.status(index).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0
    }

    /// Takes a block over from the kernel.
    ///
    /// **Panics**: the block is not ready.
    pub(super) fn take(self: &Arc<Self>, index: usize) -> io::Result<Opened> {
        let claimed = !self.out[index].swap(true, Ordering::AcqRel);
        assert!(
            claimed && self.status(index).load(Ordering::Acquire) & libc::TP_STATUS_USER != 0,
            "it is ready"
        );
        let block = Arc::new(Block {
            shared: Arc::clone(self),
            index,
        });
        // SAFETY: the process owns the block (its status was read with Acquire, and it was not leased before the swap above).
        // The block lies in the mapping and is longer than its header. After the status word, nothing is written to the header
        // before the block is handed back.
        let header = unsafe {
            std::slice::from_raw_parts(self.base(index).add(PACKETS), BLOCK_HEADER - PACKETS)
        };
        let (rest, packets) = records_of(header, self.block).ok_or_else(|| {
            io::Error::other("the kernel's ring is damaged: a block claims more than it holds")
        })?;
        Ok(Opened {
            block,
            rest,
            packets,
        })
    }
}
