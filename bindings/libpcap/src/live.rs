//! Captures from interfaces, by weir's ring.
//!
//! libpcap activates the capture: it finds the link type, makes the interface promiscuous and gives all texts. Then its socket gets a
//! filter that rejects everything, and another socket, with weir's ring, receives the packets. The calling thread steps the ring.

use crate::handles::Handle;
use crate::real;
use crate::types::*;
use core::ffi::{c_int, c_uchar, c_void};
use core::sync::atomic::{AtomicBool, Ordering};
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_filter::interpreter;
use weir_io::live::{Backend, Lease, Next};
use weir_io::sys::packet_socket::{Ring, Settings};

/// Settings of a capture that is not active yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Time for which packets may wait in the kernel, ms; 0 leaves it to the system.
    pub timeout_ms: c_int,
    /// Whether libpcap captures: immediate mode, or another clock than the kernel's.
    pub is_special: bool,
}

/// Offsets in a record of the ring. **Source**: `struct tpacket3_hdr` and `struct sockaddr_ll` of linux/if_packet.h.
const NEXT: usize = 0;
const SECONDS: usize = 4;
const NANOSECONDS: usize = 8;
const CAPTURED: usize = 12;
const WIRE_LEN: usize = 16;
const FRAME: usize = 24;
const PACKET_TYPE: usize = 58;
const RECORD: usize = 68;

/// `PACKET_OUTGOING` of linux/if_packet.h.
const OUTGOING: u8 = 4;

/// `PCAP_D_IN` and `PCAP_D_OUT` of pcap/pcap.h.
const ONLY_IN: Direction = 1;
const ONLY_OUT: Direction = 2;

/// A capture.
pub struct Live {
    ring: Ring,
    never: AtomicBool,
    wake: OwnedFd,
    libpcap_fd: c_int,
    lease: Option<Arc<dyn Lease>>,
    /// The records of the lease that were not taken.
    records: *const [u8],
    left: u64,
    snaplen: u32,
    insns: Vec<Insn>,
    /// Packets up to this time, ns since the epoch, may have passed an earlier filter.
    checked_until: i128,
    direction: Direction,
    is_nonblocking: bool,
    has_nanoseconds: bool,
    /// Packet that `pcap_next` and `pcap_next_ex` show: by then its block is the kernel's again.
    pub copy: Vec<u8>,
    /// Header that `pcap_next_ex` shows.
    pub header: Header,
}

/// Result of a wait.
enum Waited {
    Ready,
    Down,
}

impl Live {
    /// Takes over a capture that libpcap has activated; `Ok(None)` if libpcap captures, because of its kind.
    ///
    /// # Safety
    /// `p` is an active handle of libpcap.
    ///
    /// **Errors**: the kernel refuses the ring.
    pub unsafe fn adopt(p: *mut Pcap, bytes: usize, asked: Asked) -> Result<Option<Self>, String> {
        /// `DLT_EN10MB`.
        const ETHERNET: c_int = 1;
        // SAFETY: the handle is active.
        let (fd, link, snaplen, precision) = unsafe {
            (
                real::pcap_fileno(p),
                real::pcap_datalink(p),
                real::pcap_snapshot(p),
                real::pcap_get_tstamp_precision(p),
            )
        };
        let Some(name) = interface_of(fd).filter(|_| link == ETHERNET && !asked.is_special) else {
            return Ok(None);
        };
        let retire = match asked.timeout_ms {
            // The kernel's own choice for fast links.
            ..=0 => Duration::from_millis(8),
            milliseconds => Duration::from_millis(milliseconds.unsigned_abs().into()),
        };
        let snaplen = u32::try_from(snaplen).unwrap_or(1 << 18).max(1);
        let settings = Settings {
            // libpcap's socket keeps the interface promiscuous.
            promiscuous: false,
            snaplen,
            ..Settings::of_latency(bytes, retire)
        };
        let ring = Ring::open(&name, &settings).map_err(|error| format!("{name}: {error}"))?;
        // SAFETY: the call has no pointers.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(io::Error::last_os_error().to_string());
        }
        Ok(Some(Self {
            ring,
            never: AtomicBool::new(false),
            // SAFETY: the descriptor is new.
            wake: unsafe { OwnedFd::from_raw_fd(wake) },
            libpcap_fd: fd,
            lease: None,
            records: &[],
            left: 0,
            snaplen,
            insns: Vec::new(),
            checked_until: 0,
            direction: 0,
            is_nonblocking: false,
            has_nanoseconds: precision == 1,
            copy: vec![0; snaplen as usize],
            header: Header::default(),
        }))
    }

    /// Descriptor that is readable while packets wait.
    pub fn fd(&self) -> c_int {
        self.ring.as_fd().as_raw_fd()
    }

    /// Ends a wait. May be called from signal handlers and other threads.
    pub fn wake(&self) {
        let one = 1u64;
        // SAFETY: eight bytes of a variable are written to an eventfd. A full one wakes as well.
        unsafe { libc::write(self.wake.as_raw_fd(), (&raw const one).cast(), 8) };
    }

    /// Sets whether reads return at once.
    pub fn set_nonblocking(&mut self, is_nonblocking: bool) {
        self.is_nonblocking = is_nonblocking;
    }

    /// Sets the direction of packets that are delivered.
    pub fn set_direction(&mut self, direction: Direction) {
        self.direction = direction;
    }

    /// Replaces the filter, which libpcap has accepted: in the kernel, and for the packets that wait in the ring.
    pub fn set_filter(&mut self, insns: &[Insn]) {
        let passing = insns.iter().map(|insn| match insn {
            Insn {
                code: 6, k: 1.., ..
            } => Insn {
                k: self.snaplen,
                ..*insn
            },
            other => *other,
        });
        let everything = [Insn::statement(6, self.snaplen)];
        self.insns = insns.to_vec();
        self.checked_until = if attach(self.fd(), &passing.collect::<Vec<_>>()).is_ok() {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.map_or(i128::MAX, |now| now.as_nanos() as i128)
        } else {
            // The kernel refuses what it knows nothing of, or what is too long for it.
            let _ = attach(self.fd(), &everything);
            i128::MAX
        };
    }

    /// Puts the counts of the ring into `stats`.
    pub fn stats(&mut self, stats: &mut Stats) {
        // The ring reads its counts where a wait ends.
        let _ = self.ring.wait(Duration::ZERO);
        let counts = self.ring.counts();
        stats.received = counts.received as u32;
        stats.dropped = counts.dropped as u32;
    }

    /// The next packet that has arrived; `None` if there is none.
    fn take(&mut self) -> io::Result<Option<(Header, *const c_uchar)>> {
        loop {
            while self.left > 0 {
                // SAFETY: the lease holds the records, and nobody writes to them.
                let records = unsafe { &*self.records };
                let Some(packet) = packet(records, self.has_nanoseconds) else {
                    self.left = 0;
                    break;
                };
                self.left -= 1;
                let next = word(records, NEXT) as usize;
                match records.get(next..) {
                    Some(rest) if next > 0 => self.records = rest,
                    _ => self.left = 0,
                }
                if self.passes(records, &packet) {
                    return Ok(Some((packet.header, packet.data.as_ptr())));
                }
            }
            self.lease = None;
            // A panic would be a fault of this library.
            let next = catch_unwind(AssertUnwindSafe(|| self.ring.next(&self.never)));
            match next.unwrap_or_else(|_| Err(io::Error::other("a fault of weir")))? {
                Next::Records(lease, packets) => {
                    let records: *const [u8] = lease.bytes().slice();
                    (self.records, self.left, self.lease) = (records, packets, Some(lease));
                }
                Next::Nothing | Next::End => return Ok(None),
            }
        }
    }

    /// Gives a block back whose packets were all delivered, so that the descriptor is readable for new ones only.
    fn release(&mut self) {
        if self.left == 0 {
            self.lease = None;
        }
    }

    fn passes(&self, record: &[u8], packet: &Packet<'_>) -> bool {
        let is_outgoing = record[PACKET_TYPE] == OUTGOING;
        match self.direction {
            ONLY_IN if is_outgoing => return false,
            ONLY_OUT if !is_outgoing => return false,
            _ => {}
        }
        packet.time_ns > self.checked_until
            || judge(&self.insns, packet.data, packet.header.wire_len)
    }

    /// Waits for packets, a break, or a change of the interface; only looks for them if reads return at once.
    ///
    /// Once the interface went down, nothing may tell that it is gone: then libpcap looks every millisecond, and so does this.
    ///
    /// # Safety
    /// `p` is the active handle of libpcap.
    unsafe fn wait(&self, p: *mut Pcap) -> io::Result<Waited> {
        // SAFETY: the handle is active.
        let was_down = unsafe { !real::pcap_get_required_select_timeout(p).is_null() };
        let most_ms = match (self.is_nonblocking, was_down) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => -1,
        };
        let ask = |fd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        // Of libpcap's socket only an error is asked for: it has those of the interface, as ours has.
        let mut asked = [
            ask(self.fd(), libc::POLLIN),
            ask(self.wake.as_raw_fd(), libc::POLLIN),
            ask(self.libpcap_fd, 0),
        ];
        // SAFETY: the kernel writes to the three entries.
        if unsafe { libc::poll(asked.as_mut_ptr(), 3, most_ms) } < 0 {
            let error = io::Error::last_os_error();
            return match error.kind() {
                io::ErrorKind::Interrupted => Ok(Waited::Ready),
                _ => Err(error),
            };
        }
        if asked[1].revents != 0 {
            let mut count = 0u64;
            // SAFETY: the kernel writes eight bytes to a variable.
            unsafe { libc::read(asked[1].fd, (&raw mut count).cast(), 8) };
        }
        if asked[0].revents & libc::POLLERR != 0 {
            let mut error = 0 as c_int;
            let mut len = size_of::<c_int>() as libc::socklen_t;
            // SAFETY: the kernel writes as many bytes as the length says, and forgets the error.
            unsafe {
                libc::getsockopt(
                    asked[0].fd,
                    libc::SOL_SOCKET,
                    libc::SO_ERROR,
                    (&raw mut error).cast(),
                    &raw mut len,
                )
            };
        }
        let is_quiet = asked[0].revents & libc::POLLIN == 0;
        let is_down = asked[2].revents & libc::POLLERR != 0 || was_down && is_quiet;
        Ok(if is_down { Waited::Down } else { Waited::Ready })
    }
}

/// A packet of the ring.
struct Packet<'a> {
    header: Header,
    data: &'a [u8],
    time_ns: i128,
}

fn word(record: &[u8], at: usize) -> u32 {
    record[at..at + 4].try_into().map_or(0, u32::from_ne_bytes)
}

/// The packet of the first record; `None` if the record leads out of its block.
fn packet(record: &[u8], has_nanoseconds: bool) -> Option<Packet<'_>> {
    record.get(..RECORD)?;
    let frame = usize::from(u16::from_ne_bytes([record[FRAME], record[FRAME + 1]]));
    let captured = word(record, CAPTURED);
    let data = record.get(frame..frame + captured as usize)?;
    let (seconds, nanoseconds) = (word(record, SECONDS), word(record, NANOSECONDS));
    let unit = if has_nanoseconds { 1 } else { 1000 };
    Some(Packet {
        header: Header {
            time: libc::timeval {
                tv_sec: seconds.into(),
                tv_usec: (nanoseconds / unit).into(),
            },
            captured,
            wire_len: word(record, WIRE_LEN),
        },
        data,
        time_ns: i128::from(seconds) * 1_000_000_000 + i128::from(nanoseconds),
    })
}

/// Whether a program for live captures accepts a frame: its outermost VLAN tag is taken out, as the kernel and libpcap do it.
fn judge(insns: &[Insn], frame: &[u8], wire_len: u32) -> bool {
    /// Codes and offsets of the loads of the tag. **Source**: linux/filter.h.
    const TAG: u32 = -0x1000_i32 as u32 + 44;
    const TAG_PRESENT: u32 = -0x1000_i32 as u32 + 48;
    const TAGS: [[u8; 2]; 2] = [[0x81, 0x00], [0x88, 0xa8]];
    if insns.is_empty() {
        return true;
    }
    let tag = match frame {
        [_, _, _, _, _, _, _, _, _, _, _, _, a, b, c, d, ..] if TAGS.contains(&[*a, *b]) => {
            Some(u16::from_be_bytes([*c, *d]))
        }
        _ => None,
    };
    let constant = |insn: &Insn| match (insn.code, insn.k) {
        (0x20 | 0x28 | 0x30, TAG) => Insn::statement(0, tag.unwrap_or(0).into()),
        (0x20 | 0x28 | 0x30, TAG_PRESENT) => Insn::statement(0, tag.is_some().into()),
        _ => *insn,
    };
    let Ok(program) = weir_filter::Program::new(insns.iter().map(constant).collect()) else {
        return true;
    };
    match tag {
        None => interpreter::run(&program, frame, wire_len) != 0,
        Some(_) => {
            let untagged = [&frame[..12], &frame[16..]].concat();
            interpreter::run(&program, &untagged, wire_len.saturating_sub(4)) != 0
        }
    }
}

/// Name of the interface from which a packet socket receives whole frames of all protocols; `None` for other descriptors.
fn interface_of(fd: c_int) -> Option<String> {
    let mut address = core::mem::MaybeUninit::<libc::sockaddr_ll>::zeroed();
    let mut len = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    let (mut kind, mut kind_len) = (0 as c_int, size_of::<c_int>() as libc::socklen_t);
    let mut name = [0 as core::ffi::c_char; libc::IF_NAMESIZE];
    // SAFETY: the kernel writes as many bytes as each length says, and all zeros are a valid address.
    let address = unsafe {
        if libc::getsockname(fd, address.as_mut_ptr().cast(), &raw mut len) != 0
            || libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_TYPE,
                (&raw mut kind).cast(),
                &raw mut kind_len,
            ) != 0
        {
            return None;
        }
        address.assume_init()
    };
    let every = (libc::ETH_P_ALL as u16).to_be();
    if i32::from(address.sll_family) != libc::AF_PACKET
        || address.sll_protocol != every
        || address.sll_ifindex <= 0
        || kind != libc::SOCK_RAW
    {
        return None;
    }
    // SAFETY: the name has room, and ends with a 0.
    unsafe {
        let found = libc::if_indextoname(address.sll_ifindex.unsigned_abs(), name.as_mut_ptr());
        if found.is_null() {
            return None;
        }
        CStr::from_ptr(found).to_str().ok().map(str::to_owned)
    }
}

/// Makes a socket receive nothing more.
pub fn silence(fd: c_int) -> io::Result<()> {
    attach(fd, &[Insn::statement(6, 0)])
}

fn attach(fd: c_int, insns: &[Insn]) -> io::Result<()> {
    let program = libc::sock_fprog {
        len: u16::try_from(insns.len()).map_err(|_| io::ErrorKind::InvalidInput)?,
        filter: insns.as_ptr().cast_mut().cast(),
    };
    let size = size_of::<libc::sock_fprog>() as libc::socklen_t;
    // SAFETY: the kernel reads the program, whose instructions have the layout of `struct sock_filter`.
    let done = unsafe {
        libc::setsockopt(
            fd,
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast::<c_void>(),
            size,
        )
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Reads packets; the result is libpcap's of `pcap_dispatch`.
///
/// # Safety
/// `handle` is in the table, and `live` is its source; the callback is the program's. No reference to either lives while the callback
/// runs, because it may use the handle.
pub unsafe fn read(
    handle: *mut Handle,
    live: *mut Live,
    count: c_int,
    callback: Handler,
    user: *mut c_uchar,
) -> c_int {
    let most = if count <= 0 { c_int::MAX } else { count };
    let mut done = 0;
    // SAFETY: for the whole loop: the handle is open until the program closes it, and no other thread reads it.
    unsafe {
        while done < most {
            if (*handle).is_broken.load(Ordering::Relaxed) {
                if done > 0 {
                    return done;
                }
                (*handle).is_broken.store(false, Ordering::Relaxed);
                return BREAK;
            }
            match (*live).take() {
                Ok(Some((header, data))) => {
                    callback(user, &raw const header, data);
                    done += 1;
                    (*live).release();
                }
                Ok(None) if done > 0 => return done,
                Ok(None) => {
                    match (*live).wait((*handle).pcap) {
                        Ok(Waited::Ready) => {}
                        Ok(Waited::Down) => {
                            let is_nonblocking = (*live).is_nonblocking;
                            let result = look_after((*handle).pcap, is_nonblocking, callback, user);
                            if result < 0 {
                                return result;
                            }
                        }
                        Err(error) => return failed((*handle).pcap, &error),
                    }
                    if (*live).is_nonblocking {
                        return done;
                    }
                }
                Err(error) => return failed((*handle).pcap, &error),
            }
        }
    }
    done
}

/// Lets libpcap look at the interface, which is down or gone, and say so.
///
/// # Safety
/// `p` is an active handle, and the callback is the program's.
unsafe fn look_after(
    p: *mut Pcap,
    is_nonblocking: bool,
    callback: Handler,
    user: *mut c_uchar,
) -> c_int {
    let mut error = [0; 256];
    // SAFETY: the handle is active, and the text has room. libpcap's socket has the same error, and no packets.
    unsafe {
        real::pcap_setnonblock(p, 1, error.as_mut_ptr());
        let result = real::pcap_dispatch(p, 1, callback, user);
        real::pcap_setnonblock(p, is_nonblocking.into(), error.as_mut_ptr());
        result
    }
}

/// Puts a text where `pcap_geterr` finds it, and returns the code of an error.
///
/// # Safety
/// `p` is an open handle.
unsafe fn failed(p: *mut Pcap, error: &io::Error) -> c_int {
    let text = error.to_string();
    // SAFETY: libpcap's buffer has `PCAP_ERRBUF_SIZE` bytes, 256.
    unsafe {
        let to = real::pcap_geterr(p);
        let len = text.len().min(255);
        core::ptr::copy_nonoverlapping(text.as_ptr(), to.cast(), len);
        to.add(len).write(0);
    }
    -1
}
