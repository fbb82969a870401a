//! Captures from interfaces, by weir's memory.
//!
//! libpcap activates the capture: it finds the link type, makes the interface promiscuous and gives all texts. Then its socket gets a
//! filter that rejects everything, and other sockets, with weir's memory, receive the packets. The calling thread steps them.

mod queues;
mod ring;

use crate::extras::{Extras, Totals};
use crate::handles::Handle;
use crate::real;
use crate::settings::{self, Backend, Settings, say};
use crate::types::*;
use core::ffi::{c_int, c_uchar, c_void};
use core::sync::atomic::Ordering;
use queues::Queues;
use ring::RingReader;
use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;
use weir_engine::guard::{self, Act};
use weir_io::live::Counts;

/// Settings of a capture that is not active yet.
#[derive(Clone, Copy, Debug, Default)]
pub struct Asked {
    /// Time for which packets may wait in the kernel, ms; 0 leaves it to the system.
    pub timeout_ms: c_int,
    /// Whether packets are delivered at once.
    pub is_immediate: bool,
    /// Whether libpcap captures, because of another clock than the kernel's.
    pub is_special: bool,
}

/// `PCAP_D_IN` and `PCAP_D_OUT` of pcap/pcap.h.
const ONLY_IN: Direction = 1;
const ONLY_OUT: Direction = 2;

/// A packet in the memory of a capture.
#[derive(Clone, Copy)]
pub struct Packet {
    /// Time, seconds since the epoch, and the rest in nanoseconds.
    pub seconds: u32,
    /// See `seconds`.
    pub nanoseconds: u32,
    /// Captured length, bytes.
    pub captured: u32,
    /// Length on the wire, bytes.
    pub wire_len: u32,
    /// Whether this host sent it.
    pub is_outgoing: bool,
    /// Whether no other packet of the memory passes.
    pub is_last: bool,
    /// The captured bytes.
    pub data: *const c_uchar,
}

/// Number that grows with the time.
#[inline]
pub fn key(seconds: u32, nanoseconds: u32) -> u64 {
    u64::from(seconds) << 32 | u64::from(nanoseconds)
}

impl Packet {
    /// No packet yet.
    pub const NONE: Self = Self {
        seconds: 0,
        nanoseconds: 0,
        captured: 0,
        wire_len: 0,
        is_outgoing: false,
        is_last: false,
        data: core::ptr::null(),
    };

    /// Number that grows with the time.
    #[inline]
    pub fn key(&self) -> u64 {
        key(self.seconds, self.nanoseconds)
    }

    /// Time, ns since the epoch.
    pub fn time_ns(&self) -> i128 {
        i128::from(self.seconds) * 1_000_000_000 + i128::from(self.nanoseconds)
    }

    /// The captured bytes.
    ///
    /// # Safety
    /// The lease of the packet is held as long as the bytes are used.
    pub unsafe fn bytes<'a>(&self) -> &'a [u8] {
        // SAFETY: the reader checked that the packet lies in the lease.
        unsafe { core::slice::from_raw_parts(self.data, self.captured as usize) }
    }
}

/// Memory of a capture, which the kernel fills.
pub trait Reader {
    /// Method of capture.
    fn backend(&self) -> Backend;

    /// Descriptor that is readable while packets wait.
    fn fd(&self) -> c_int;

    /// Replaces the filter, which libpcap has accepted.
    fn set_filter(&mut self, insns: &[Insn]);

    /// The counts so far, read now.
    fn counts(&mut self) -> Counts;

    /// Takes the next packet in the memory that passes the filter; `false` if there is none. It stays until the next call.
    fn take(&mut self, packet: &mut Packet) -> bool;

    /// Takes the next packets of the kernel; `false` if none have arrived.
    fn advance(&mut self) -> io::Result<bool>;

    /// Notes that the program waits by the descriptor, which then is readable while packets are left. Returns whether `release` is to
    /// be called after each packet for that.
    fn begin_polling(&mut self) -> bool {
        false
    }

    /// Gives memory back whose packets were all delivered; called after the last of them.
    fn release(&mut self);

    /// Pauses in place of a wait for the descriptor; `None` without a pause.
    fn pause(&mut self) -> Option<Waited> {
        None
    }
}

/// A capture.
pub struct Live {
    reader: Box<dyn Reader>,
    wake: OwnedFd,
    libpcap_fd: c_int,
    direction: Direction,
    is_nonblocking: bool,
    /// Descriptor that is readable while packets wait.
    fd: c_int,
    /// Whether the program waits by the descriptor.
    is_polled: bool,
    /// Whether the reader hears of each packet that was delivered.
    tells_each: bool,
    /// Nanoseconds in a unit of the program's times.
    unit: u32,
    /// Packets that were delivered to the program.
    delivered: u64,
    /// Packets of the other direction.
    undirected: u64,
    extras: Option<Box<Extras>>,
    /// Packet that `pcap_next` and `pcap_next_ex` show: by then its block is the kernel's again.
    pub copy: Vec<u8>,
    /// Header that `pcap_next_ex` shows.
    pub header: Header,
}

/// Result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Packets may have arrived.
    Ready,
    /// The interface is down.
    Down,
}

impl Live {
    /// Takes over a capture that libpcap has activated; `Ok(None)` if libpcap captures, because of its kind.
    ///
    /// # Safety
    /// `p` is an active handle of libpcap.
    ///
    /// **Errors**: the kernel refuses the memory.
    pub unsafe fn adopt(
        p: *mut Pcap,
        settings: &Settings,
        asked: Asked,
    ) -> Result<Option<Self>, String> {
        /// `DLT_EN10MB`.
        const ETHERNET: c_int = 1;
        // SAFETY: the handle is active.
        let (fd, link, snaplen, precision, is_nonblocking) = unsafe {
            (
                real::pcap_fileno(p),
                real::pcap_datalink(p),
                real::pcap_snapshot(p),
                real::pcap_get_tstamp_precision(p),
                real::pcap_getnonblock(p, [0; 256].as_mut_ptr()) == 1,
            )
        };
        let Some(name) = interface_of(fd).filter(|_| link == ETHERNET && !asked.is_special) else {
            return Ok(None);
        };
        let snaplen = u32::try_from(snaplen).unwrap_or(1 << 18).max(1);
        let reader = reader(&name, settings, retire(asked), snaplen)?;
        // SAFETY: the call has no pointers.
        let wake = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if wake < 0 {
            return Err(io::Error::last_os_error().to_string());
        }
        let extras = Extras::open(&name, reader.backend(), settings, snaplen).map(Box::new);
        // SAFETY: the descriptor is new.
        let wake = unsafe { OwnedFd::from_raw_fd(wake) };
        Ok(Some(Self {
            libpcap_fd: fd,
            is_nonblocking,
            unit: if precision == 1 { 1 } else { 1000 },
            extras,
            ..Self::new(reader, wake, snaplen)
        }))
    }

    /// A capture from this memory, which blocks and has no record.
    pub fn new(reader: Box<dyn Reader>, wake: OwnedFd, snaplen: u32) -> Self {
        Self {
            fd: reader.fd(),
            reader,
            wake,
            libpcap_fd: -1,
            direction: 0,
            is_nonblocking: false,
            is_polled: false,
            tells_each: false,
            unit: 1000,
            delivered: 0,
            undirected: 0,
            extras: None,
            copy: vec![0; snaplen as usize],
            header: Header::default(),
        }
    }

    /// The descriptor, if the program waits by it.
    #[inline]
    pub fn polled_fd(&self) -> Option<c_int> {
        self.is_polled.then_some(self.fd)
    }

    /// Descriptor that is readable while packets wait.
    pub fn fd(&mut self) -> c_int {
        self.is_polled = true;
        self.tells_each = self.reader.begin_polling();
        self.fd
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

    /// Replaces the filter, which libpcap has accepted.
    pub fn set_filter(&mut self, insns: &[Insn]) {
        self.reader.set_filter(insns);
    }

    /// Puts the counts of the capture into `stats`: packets that arrived and were not rejected by the filter, and lost ones.
    pub fn stats(&mut self, stats: &mut Stats) {
        let counts = self.reader.counts();
        let rejected = counts.filtered.unwrap_or(0);
        stats.received = counts.received.saturating_sub(rejected) as u32;
        stats.dropped = counts.dropped as u32;
    }

    /// All counts so far.
    ///
    /// # Safety
    /// `p` is the open handle of the capture.
    unsafe fn totals(&mut self, p: *mut Pcap) -> Totals {
        Totals {
            counts: self.reader.counts(),
            delivered: self.delivered,
            undirected: self.undirected,
            // SAFETY: the handle is open.
            by_interface: unsafe { dropped_by_interface(p) },
        }
    }

    /// Ends the record and the counts, if this process read the capture.
    ///
    /// # Safety
    /// `p` is the open handle of the capture.
    pub unsafe fn finish(&mut self, p: *mut Pcap) {
        if let Some(mut extras) = self.extras.take() {
            // SAFETY: the handle is open.
            extras.finish(&unsafe { self.totals(p) });
        }
    }

    /// Takes the next packet of the wanted direction in the memory; `false` if there is none.
    #[inline]
    fn take(&mut self, packet: &mut Packet) -> bool {
        loop {
            if !self.reader.take(packet) {
                return false;
            }
            let is_wanted = match self.direction {
                ONLY_IN => !packet.is_outgoing,
                ONLY_OUT => packet.is_outgoing,
                _ => true,
            };
            if is_wanted {
                return true;
            }
            self.undirected += 1;
        }
    }

    /// Counts a packet, and makes the header that the program sees.
    #[inline]
    fn deliver(&mut self, packet: &Packet) -> Header {
        self.delivered += 1;
        if let Some(extras) = &mut self.extras {
            extras.keep(packet);
        }
        Header {
            time: libc::timeval {
                tv_sec: packet.seconds.into(),
                tv_usec: (packet.nanoseconds / self.unit).into(),
            },
            captured: packet.captured,
            wire_len: packet.wire_len,
        }
    }

    /// Takes the next packets of the kernel; `false` if none have arrived.
    #[cold]
    fn advance(&mut self, p: *mut Pcap) -> io::Result<bool> {
        if self.extras.as_mut().is_some_and(|extras| extras.is_due()) {
            // SAFETY: the handle is open while it is read.
            let totals = unsafe { self.totals(p) };
            if let Some(extras) = &mut self.extras {
                extras.tick(&totals);
            }
        }
        self.reader.advance()
    }

    /// Waits for packets, a break, or a change of the interface; only looks for them if reads return at once.
    ///
    /// Once the interface went down, nothing may tell that it is gone: then libpcap looks every millisecond, and so does this.
    ///
    /// # Safety
    /// `p` is the active handle of libpcap.
    unsafe fn wait(&mut self, p: *mut Pcap) -> io::Result<Waited> {
        if !self.is_nonblocking
            && let Some(waited) = self.reader.pause()
        {
            return Ok(waited);
        }
        // SAFETY: the handle is active.
        let was_down = unsafe { !real::pcap_get_required_select_timeout(p).is_null() };
        let most_ms = match (self.is_nonblocking, was_down) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => self.extras.as_ref().map_or(-1, |extras| extras.due_ms()),
        };
        let ask = |fd, events| libc::pollfd {
            fd,
            events,
            revents: 0,
        };
        // libpcap's socket has the errors of the interface, as ours has, and no packets.
        let mut asked = [
            ask(self.fd, libc::POLLIN),
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
        if is_down {
            // Sockets of AF_XDP look at the interface, and end if it is down.
            self.reader.counts();
        }
        Ok(if is_down { Waited::Down } else { Waited::Ready })
    }
}

/// Longest time for which packets wait for others in the ring.
fn retire(asked: Asked) -> Duration {
    match asked.timeout_ms {
        // The shortest time that the kernel has.
        _ if asked.is_immediate => Duration::from_millis(1),
        // The kernel's own choice for fast links.
        ..=0 => Duration::from_millis(8),
        milliseconds => Duration::from_millis(milliseconds.unsigned_abs().into()),
    }
}

/// Opens sockets of the wanted backend, or else of AF_PACKET.
fn reader(
    name: &str,
    settings: &Settings,
    retire: Duration,
    snaplen: u32,
) -> Result<Box<dyn Reader>, String> {
    if settings.backend == Backend::AfXdp {
        match queues(name, settings, retire, snaplen) {
            Ok(queues) => return Ok(Box::new(queues)),
            Err(error) => say(&format!(
                "{}=af_xdp: {error}: AF_PACKET captures",
                settings::BACKEND
            )),
        }
    }
    if settings.pages.is_some() {
        say(&format!(
            "{}: the pages of AF_PACKET's ring are the kernel's",
            settings::PAGES
        ));
    }
    match RingReader::open(name, settings, retire, snaplen) {
        Ok(ring) => Ok(Box::new(ring)),
        Err(error) => Err(format!("{name}: {error}")),
    }
}

fn queues(
    name: &str,
    settings: &Settings,
    retire: Duration,
    snaplen: u32,
) -> Result<Queues, String> {
    if settings.fanout.is_some() {
        return Err(format!("{} is for AF_PACKET", settings::FANOUT));
    }
    guard::check(Act::Take, name, &settings.yes_take)
        .map_err(|guarded| weir_messages::guards::guarded(name, &guarded).to_string())?;
    let queues =
        Queues::open(name, settings, retire, snaplen).map_err(|error| error.to_string())?;
    if settings.pages.is_some() {
        queues.describe().for_each(|line| say(&line));
    }
    Ok(queues)
}

/// Packets that the interface has dropped since the start of the capture, as libpcap counts them.
///
/// # Safety
/// `p` is an active handle.
unsafe fn dropped_by_interface(p: *mut Pcap) -> u64 {
    let mut stats = Stats::default();
    // SAFETY: the handle is active, and libpcap fills the counts.
    let result = unsafe { real::pcap_stats(p, &raw mut stats) };
    if result == 0 {
        stats.dropped_by_interface.into()
    } else {
        0
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
    count: c_int,
    callback: Handler,
    user: *mut c_uchar,
    live: *mut Live,
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
            let mut packet = Packet::NONE;
            if (*live).take(&mut packet) {
                let header = (*live).deliver(&packet);
                callback(user, &raw const header, packet.data);
                done += 1;
                if packet.is_last || (*live).tells_each {
                    (*live).reader.release();
                }
            } else if let Some(result) = arrive(handle, live, done) {
                return result;
            }
        }
    }
    done
}

/// Takes the next packets of the kernel, after `done` packets, and waits for them if there are none. Returns the result of the read if it
/// ends.
///
/// # Safety
/// As of [`read`].
#[cold]
#[inline(never)]
unsafe fn arrive(handle: *mut Handle, live: *mut Live, done: c_int) -> Option<c_int> {
    // SAFETY: as in `read`.
    unsafe {
        let p = (*handle).pcap;
        match (*live).advance(p) {
            Ok(true) => return None,
            Ok(false) if done > 0 => return Some(done),
            Ok(false) => {}
            Err(error) => return Some(failed(p, &error)),
        }
        let is_nonblocking = (*live).is_nonblocking;
        match (*live).wait(p) {
            Ok(Waited::Ready) => {}
            Ok(Waited::Down) => {
                let result = look_after(p, is_nonblocking);
                if result < 0 {
                    return Some(result);
                }
            }
            Err(error) => return Some(failed(p, &error)),
        }
        is_nonblocking.then_some(done)
    }
}

/// Lets libpcap look at the interface, which is down or gone, and say so.
///
/// # Safety
/// `p` is an active handle.
unsafe fn look_after(p: *mut Pcap, is_nonblocking: bool) -> c_int {
    /// Takes a packet of libpcap's socket, which had the program's filter for a moment when that was set. The program gets the packet from
    /// the memory here.
    unsafe extern "C-unwind" fn discard(_: *mut c_uchar, _: *const Header, _: *const c_uchar) {}
    let mut error = [0; 256];
    // SAFETY: the handle is active, and the text has room. libpcap's socket has the same error.
    unsafe {
        real::pcap_setnonblock(p, 1, error.as_mut_ptr());
        let result = real::pcap_dispatch(p, -1, discard, core::ptr::null_mut());
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
