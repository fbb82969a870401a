//! Reading of savefiles.
//!
//! libpcap opens the file, and this module reads it with a buffer and a position of its own. The position of libpcap's `FILE` follows
//! where it can be seen: before libpcap reads an odd record, when the program asks for the `FILE`, and at the end.

use crate::handles::Handle;
use crate::judge::Judge;
use crate::real;
use crate::records::{BATCH, Found, Records, Scan};
use crate::types::*;
use core::ffi::{c_int, c_uchar};
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering;
use libc::FILE;
use std::panic::{AssertUnwindSafe, catch_unwind};
use weir_packet::Frame;

/// Bytes of one read: they stay in the cache until they are judged.
const PORTION: usize = 1 << 20;

/// Size of the kernel's usual pages, bytes.
const PAGE: usize = 4096;

/// Largest header of a file that is read here, bytes.
const LARGEST_HEAD: u64 = 1 << 16;

/// A savefile.
pub struct Offline {
    file: *mut FILE,
    fd: c_int,
    records: Records,
    judge: Judge,
    buf: Vec<u8>,
    /// Bytes of `buf` that are filled.
    filled: usize,
    /// Offset of `buf` in the file, modulo 2^64: the first bytes of the file may lie further back in `buf`.
    base: u64,
    /// Offset in `buf` of the first record after the batch.
    at: usize,
    /// Offset in `buf` of the first record of the batch.
    begin: usize,
    batch: [Found; BATCH],
    count: usize,
    /// Bits of the packets of the batch that pass and were not delivered.
    left: u64,
    /// Index of the packet after the last delivered.
    next: usize,
    /// Whether libpcap reads all the rest.
    is_over: bool,
    /// Header that `pcap_next_ex` shows.
    pub header: Header,
}

/// A read of the next packet.
enum Taken {
    /// A packet in the buffer.
    Packet(Header, *const c_uchar),
    /// A record that libpcap reads.
    Odd,
}

impl Offline {
    /// Takes over a file that libpcap has opened by its name; `None` if libpcap reads it.
    ///
    /// # Safety
    /// `p` is a handle of libpcap for a savefile, which nothing has read yet.
    pub unsafe fn adopt(p: *mut Pcap) -> Option<Self> {
        // SAFETY: `p` is an open handle.
        let (file, link, snaplen, precision) = unsafe {
            (
                real::pcap_file(p),
                real::pcap_datalink(p),
                real::pcap_snapshot(p),
                real::pcap_get_tstamp_precision(p),
            )
        };
        if file.is_null() {
            return None;
        }
        // SAFETY: the file is open as long as the handle.
        let (fd, at) = unsafe { (libc::fileno(file), libc::ftello(file)) };
        let at = u64::try_from(at).ok().filter(|at| *at <= LARGEST_HEAD)?;
        let mut head = vec![0; at as usize];
        if read_at(fd, &mut head, 0) != Some(head.len()) {
            return None;
        }
        let unit = if precision == 1 {
            1_000_000_000
        } else {
            1_000_000
        };
        let snaplen = u32::try_from(snaplen).ok()?;
        let records = Records::open(&head, link, snaplen, unit)?;
        Some(Self {
            file,
            fd,
            records,
            judge: Judge::default(),
            buf: vec![0; snaplen.min(1 << 20) as usize + PORTION * 2],
            filled: 0,
            base: at,
            at: 0,
            begin: 0,
            batch: [Found::default(); BATCH],
            count: 0,
            left: 0,
            next: 0,
            is_over: false,
            header: Header::default(),
        })
    }

    /// Replaces the filter, also for packets that are in the buffer.
    pub fn set_filter(&mut self, judge: Option<Judge>) {
        match judge {
            Some(judge) => {
                self.judge = judge;
                let undelivered = u64::MAX.checked_shl(self.next as u32).unwrap_or(0);
                self.left = self.verdicts() & undelivered;
            }
            None => self.hand_over(),
        }
    }

    /// Offset in the file of the first record that was not delivered.
    fn position(&self) -> u64 {
        let at = match self.next {
            _ if self.count == 0 => self.at,
            0 => self.begin,
            next => self.batch[next - 1].after as usize,
        };
        self.base.wrapping_add(at as u64)
    }

    /// Moves libpcap's `FILE` to the position.
    fn seek(&mut self) {
        // SAFETY: the file is open as long as the handle.
        unsafe { libc::fseeko(self.file, self.position() as libc::off_t, libc::SEEK_SET) };
    }

    /// Lets libpcap read all the rest.
    pub fn hand_over(&mut self) {
        if !self.is_over {
            self.seek();
            self.is_over = true;
            self.left = 0;
        }
    }

    /// Whether libpcap reads all the rest.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    fn verdicts(&mut self) -> u64 {
        let all = u64::MAX.checked_shr(64 - self.count as u32).unwrap_or(0);
        if self.judge.is_empty() {
            return all;
        }
        let mut frames = [Frame {
            data: &[],
            wire_len: 0,
            interface: 0,
        }; BATCH];
        for (frame, found) in frames.iter_mut().zip(&self.batch[..self.count]) {
            let data = found.data as usize;
            frame.data = &self.buf[data..data + found.captured as usize];
            frame.wire_len = found.wire_len;
        }
        self.judge.matches(&frames[..self.count]) & all
    }

    /// Finds and judges the next packets; `false` if the next record is libpcap's to read.
    fn advance(&mut self) -> bool {
        loop {
            self.begin = self.at;
            self.next = 0;
            let buf = &self.buf[..self.filled];
            let scan = self
                .records
                .scan(buf, &mut self.at, &mut self.batch, &mut self.count);
            if self.count > 0 {
                self.left = self.verdicts();
                return true;
            }
            self.left = 0;
            if scan == Scan::Odd || !self.fill() {
                return false;
            }
        }
    }

    /// Reads more of the file; `false` at its end, after an error, and if the next record is too large for the buffer.
    ///
    /// Whole pages go to whole pages: the kernel copies them faster.
    fn fill(&mut self) -> bool {
        let left = self.filled - self.at;
        let from = self.base.wrapping_add(self.filled as u64);
        let in_page = from as usize % PAGE;
        let to = self.buf.as_ptr().align_offset(PAGE) + left.next_multiple_of(PAGE) + in_page;
        let end = self.buf.len().min(to + PORTION - in_page);
        if to >= end {
            return false;
        }
        self.buf.copy_within(self.at..self.filled, to - left);
        (self.at, self.filled) = (to - left, to);
        self.base = from.wrapping_sub(to as u64);
        match read_at(self.fd, &mut self.buf[to..end], from) {
            None | Some(0) => false,
            Some(read) => {
                self.filled += read;
                true
            }
        }
    }

    #[inline]
    fn take(&mut self) -> Taken {
        while self.left == 0 {
            // A panic here would be a fault of this library; libpcap then reads on.
            let advanced = catch_unwind(AssertUnwindSafe(|| self.advance()));
            match advanced {
                Ok(true) => {}
                Ok(false) => {
                    (self.next, self.count) = (0, 0);
                    return Taken::Odd;
                }
                Err(_) => {
                    self.hand_over();
                    return Taken::Odd;
                }
            }
        }
        let index = self.left.trailing_zeros() as usize;
        self.left &= self.left - 1;
        self.next = index + 1;
        let found = &self.batch[index];
        let header = Header {
            time: libc::timeval {
                tv_sec: found.seconds,
                tv_usec: found.fraction,
            },
            captured: found.captured,
            wire_len: found.wire_len,
        };
        // SAFETY: the scan found the frame within the buffer.
        let data = unsafe { self.buf.as_ptr().add(found.data as usize) };
        Taken::Packet(header, data)
    }

    /// Goes on after the records that libpcap has read.
    fn follow(&mut self) {
        // SAFETY: the file is open as long as the handle.
        let now = unsafe { libc::ftello(self.file) };
        let before = self.position();
        let Ok(now) = u64::try_from(now) else {
            self.is_over = true;
            return;
        };
        let mut read = vec![0; now.saturating_sub(before).min(LARGEST_HEAD) as usize];
        let is_whole = before + read.len() as u64 == now
            && read_at(self.fd, &mut read, before) == Some(read.len());
        (self.base, self.filled, self.at, self.next, self.count) = (now, 0, 0, 0, 0);
        if !is_whole || !self.records.absorb(&read, 0, read.len()) {
            self.is_over = true;
        }
    }
}

/// Reads at an offset of a file, without moving its position; `None` after an error.
fn read_at(fd: c_int, to: &mut [u8], from: u64) -> Option<usize> {
    // SAFETY: the kernel writes into the slice.
    let read = unsafe { libc::pread(fd, to.as_mut_ptr().cast(), to.len(), from as libc::off_t) };
    usize::try_from(read).ok()
}

/// Reads up to `count` packets; 0 or less stands for all. The result is libpcap's of `pcap_dispatch`.
///
/// # Safety
/// `handle` is in the table, and `file` is its source; the callback is the program's. No reference to either lives while the callback
/// runs, because it may use the handle.
pub unsafe fn read(
    handle: *mut Handle,
    count: c_int,
    callback: Handler,
    user: *mut c_uchar,
    file: *mut Offline,
) -> c_int {
    let most = if count <= 0 { c_int::MAX } else { count };
    let mut done = 0;
    // SAFETY: for the whole loop: `handle` is open until the program closes it, and no other thread reads it.
    unsafe {
        while done < most {
            if (*file).is_over {
                return read_rest(handle, most, done, callback, user);
            }
            if (*handle).is_broken.load(Ordering::Relaxed) {
                if done > 0 {
                    return done;
                }
                (*handle).is_broken.store(false, Ordering::Relaxed);
                return BREAK;
            }
            let taken = (*file).take();
            if let Taken::Packet(header, data) = taken {
                callback(user, &raw const header, data);
                done += 1;
                continue;
            }
            let (mut header, mut data) = (null_mut(), null());
            match read_odd(handle, file, &mut header, &mut data) {
                1 => {
                    callback(user, header, data);
                    done += 1;
                }
                BREAK => {}
                error => return error,
            }
        }
    }
    done
}

/// Lets libpcap read the next packet that passes, and returns the result of `pcap_next_ex`. At the end of the file and after damage,
/// libpcap has the last word, and all the rest.
///
/// # Safety
/// `handle` is in the table, and `file` is its source.
unsafe fn read_odd(
    handle: *mut Handle,
    file: *mut Offline,
    header: &mut *mut Header,
    data: &mut *const c_uchar,
) -> c_int {
    // SAFETY: as in `read`; libpcap has the same filter.
    unsafe {
        (*file).seek();
        (*handle).is_passed.store(true, Ordering::SeqCst);
        let result = real::pcap_next_ex((*handle).pcap, header, data);
        (*handle).is_passed.store(false, Ordering::SeqCst);
        if result == 1 {
            (*file).follow();
        } else if !(*handle).is_broken.load(Ordering::SeqCst) {
            (*file).is_over = true;
        }
        result
    }
}

/// Lets libpcap read all the rest, after `done` packets of `most`, and returns the result of `pcap_dispatch`.
///
/// # Safety
/// As of [`read`].
unsafe fn read_rest(
    handle: *mut Handle,
    most: c_int,
    done: c_int,
    callback: Handler,
    user: *mut c_uchar,
) -> c_int {
    // SAFETY: `handle` is open, and the arguments are the program's.
    unsafe {
        let p = (*handle).pcap;
        if (*handle).is_broken.swap(false, Ordering::SeqCst) {
            real::pcap_breakloop(p);
        }
        match real::pcap_dispatch(p, most - done, callback, user) {
            BREAK if done > 0 => {
                // The packets are told first, and the break by the next call.
                real::pcap_breakloop(p);
                done
            }
            more @ 0.. => done + more,
            error => error,
        }
    }
}
