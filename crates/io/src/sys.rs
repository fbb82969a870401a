//! System calls: mapping a file and surviving its end, positioned reads, error counts, processor
//! affinity.
//!
//! If a mapped file shrinks or its disk fails, the thread that touches the lost page gets SIGBUS. One handler serves the
//! process; signals are global, so this is the documented exception to "no global state". The handler maps a page of zeros at
//! the touched address, records the place in the mapping's slot, and lets the reader continue. The reader checks
//! [`Mapping::fault`] before it relies on the bytes. A SIGBUS outside these mappings goes to the handler that was installed
//! before.

pub mod bpf;
pub mod device;
pub mod exhausted;
pub mod ingress;
pub mod inject;
pub mod local;
pub mod namespace;
mod option;
pub mod packet_socket;
pub mod privilege;
pub mod standard;
pub mod terminal;
pub mod writer;
pub mod xdp;

use crate::slots::Slot;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Size in bytes of a huge page of the page table's middle level; one entry can map a piece with this alignment.
pub const HUGE: usize = 2 << 20;

/// Largest number of mappings in the process; a reader has two for each of its workers, and a few more.
const SLOTS: usize = 2048;

static MAPPED: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];

static PREVIOUS: OnceLock<Previous> = OnceLock::new();

/// Disposition of SIGBUS before [`guard_mappings`].
struct Previous(libc::sigaction);
// SAFETY: the struct is plain data (an address, a mask, flags) and is never written after it was stored.
unsafe impl Send for Previous {}
// SAFETY: as above.
unsafe impl Sync for Previous {}

/// Read-only mapping of a piece of a file, at an address aligned to [`HUGE`].
///
/// **Cost**: three system calls to make, one to drop. **Platform**: Linux.
#[derive(Debug)]
pub struct Mapping {
    base: *mut u8,
    len: usize,
    slot: &'static Slot,
}

// SAFETY: the mapping is owned, read-only memory; nothing in it is tied to the thread that made it.
unsafe impl Send for Mapping {}
// SAFETY: shared access only reads.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Maps `len > 0` bytes of `file` from `offset` on; `offset` is a multiple of the page size.
    ///
    /// If another process writes the file, the bytes change while they are read: see [`Self::bytes`]. **Errors**: errors of
    /// `mmap`; `ENOMEM` if no slot is free; `Unsupported` before [`guard_mappings`].
    pub fn new(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        if !are_mappings_guarded() {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "no handler of SIGBUS guards mapped files",
            ));
        }
        let base = reserve_aligned(len)?;
        // SAFETY: `reserve_aligned` has just reserved `base..base+len`, and no other code knows the range, so MAP_FIXED
        // replaces only this reservation.
        let mapped = unsafe {
            libc::mmap(
                base.cast(),
                len,
                libc::PROT_READ,
                libc::MAP_SHARED | libc::MAP_FIXED,
                file.as_raw_fd(),
                offset as libc::off_t,
            )
        };
        if mapped == libc::MAP_FAILED {
            let error = io::Error::last_os_error();
            unmap(base, len);
            return Err(error);
        }
        if let Some(slot) = MAPPED.iter().find(|slot| slot.claim(base as usize, len)) {
            return Ok(Self { base, len, slot });
        }
        unmap(base, len);
        Err(io::Error::from_raw_os_error(libc::ENOMEM))
    }

    /// Returns the mapped bytes; each load sees the bytes of that moment.
    ///
    /// Rules for readers: read a length, an offset or a kind once, into a local; check an index against the slice, never
    /// against a byte read before; copy text before checking it, and a frame before keeping it.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `base..base+len` stays mapped and readable until drop; where the file has no bytes, the signal handler maps
        // zeros. It is *not* promised that the bytes stay unwritten. Another process may write the file, and the language calls
        // that a data race for any read through a slice. The code relies on two facts. The compiler makes plain loads of plain
        // bytes and assumes nothing about their values; every reader of a mapped file relies on this. Readers keep to the rules
        // above, so that changing bytes lead to a wrong answer, or to an index that is caught, and to no access outside the
        // mapping.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }

    /// Returns the lowest offset at which the file could not be read so far. Bytes read at or after this offset were not bytes
    /// of the file.
    pub fn fault(&self) -> Option<usize> {
        self.slot.fault()
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.slot.release();
        unmap(self.base, self.len);
    }
}

/// Reserves `len` bytes of address space at a multiple of [`HUGE`].
fn reserve_aligned(len: usize) -> io::Result<*mut u8> {
    let total = len
        .checked_add(HUGE)
        .ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
    // SAFETY: the kernel chooses the address of the anonymous mapping, so it touches no existing memory.
    let raw = unsafe {
        libc::mmap(
            ptr::null_mut(),
            total,
            libc::PROT_NONE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if raw == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    let raw = raw.cast::<u8>();
    let skip = raw.align_offset(HUGE);
    let base = raw.wrapping_add(skip);
    let used = len.next_multiple_of(page_size());
    if skip > 0 {
        unmap(raw, skip);
    }
    if HUGE - skip > used - len {
        unmap(
            base.wrapping_add(used),
            total.next_multiple_of(page_size()) - skip - used,
        );
    }
    Ok(base)
}

fn unmap(base: *mut u8, len: usize) {
    // SAFETY: callers pass only pieces of reservations made above, and no reference to these pieces exists any more.
    unsafe { libc::munmap(base.cast(), len) };
}

/// Waits until the kernel has done all packets that were in its programs at the call: it runs them in sections in which no
/// grace period ends. `false` if the kernel cannot wait for that.
///
/// **Cost**: some milliseconds. **Source**: membarrier(2), `MEMBARRIER_CMD_GLOBAL`.
pub(crate) fn grace_period() -> bool {
    /// `MEMBARRIER_CMD_GLOBAL` of linux/membarrier.h.
    const GLOBAL: libc::c_int = 1;
    // SAFETY: the call takes numbers only; no memory is involved.
    unsafe { libc::syscall(libc::SYS_membarrier, GLOBAL, 0, 0) == 0 }
}

/// Returns the size of a page, in bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Lets this process map files: from now on, a read of a page that the file has lost gives zeros,
/// and the mapping reports the error. Before this call, files are read and not mapped. The function
/// installs a handler of SIGBUS for the whole process; a SIGBUS of other memory goes on to the
/// former handler.
pub fn guard_mappings() {
    PREVIOUS.get_or_init(|| {
        let mut old = MaybeUninit::<libc::sigaction>::zeroed();
        // SAFETY: `sigaction` is plain data for which zero is valid; the handler is async-signal-safe (see there); both
        // pointers are to live locals. SIGBUS is a signal that can be handled, so the call cannot fail.
        unsafe {
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = on_sigbus as *const () as usize;
            action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGBUS, &action, old.as_mut_ptr());
            Previous(old.assume_init())
        }
    });
}

/// Returns whether [`guard_mappings`] was called.
pub fn are_mappings_guarded() -> bool {
    PREVIOUS.get().is_some()
}

/// Handles SIGBUS. The function is async-signal-safe: it uses only atomics, `mmap` and `sigaction`.
extern "C" fn on_sigbus(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    // SAFETY: the kernel passes a valid siginfo for SA_SIGINFO handlers.
    let address = unsafe { (*info).si_addr() } as usize;
    for slot in &MAPPED {
        let Some(offset) = slot.offset_of(address) else {
            continue;
        };
        let within = address & (page_size() - 1);
        // SAFETY: the page lies in a live `Mapping`; the interrupted thread is reading it, so no thread unmaps it.
        let zeros = unsafe {
            libc::mmap(
                (address - within) as *mut libc::c_void,
                page_size(),
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if zeros != libc::MAP_FAILED {
            slot.note(offset - within);
            return;
        }
    }
    forward(signal, info, context);
}

/// Passes a SIGBUS of other memory to the former handler; without one, the signal ends the process.
fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(Previous(old)) = PREVIOUS.get() else {
        return;
    };
    let handler = old.sa_sigaction;
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: the call restores the old disposition; after the return, the access faults again under that disposition.
        unsafe { libc::sigaction(signal, old, ptr::null_mut()) };
    } else if old.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: the code that installed this handler with SA_SIGINFO promised this signature.
        let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(handler) };
        call(signal, info, context);
    } else {
        // SAFETY: the code that installed this handler without SA_SIGINFO promised this signature.
        let call: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
        call(signal);
    }
}

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// Time of the first stop signal other than SIGALRM, in ns of the monotonic clock; 0 if none has
/// arrived.
static STOPPED_NS: AtomicU64 = AtomicU64::new(0);

/// Descriptor of an eventfd that becomes readable at the first stop signal; -1 if there is no eventfd. The descriptor is never
/// closed.
static STOP_EVENT: AtomicI32 = AtomicI32::new(-1);

/// Returns the descriptor, for `poll`, that becomes readable at the first stop signal; -1 without [`stop_on_signals`].
fn stop_event() -> libc::c_int {
    STOP_EVENT.load(Ordering::Relaxed)
}

/// Cause of a stop: see [`stop_on_signals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum StopCause {
    /// A signal of another process, or of the terminal.
    Signal = 1,
    /// The end of [`stop_after`].
    Time = 2,
}

/// The first [`StopCause`]; 0 if there is none.
static STOPPED_BY: AtomicU8 = AtomicU8::new(0);

fn stopped(by: StopCause) {
    let _ = STOPPED_BY.compare_exchange(0, by as u8, Ordering::Relaxed, Ordering::Relaxed);
}

/// Returns what has set the flag of [`stop_on_signals`] first; `None` if no signal has.
pub fn stopped_by() -> Option<StopCause> {
    [StopCause::Signal, StopCause::Time]
        .into_iter()
        .find(|cause| *cause as u8 == STOPPED_BY.load(Ordering::Relaxed))
}

/// Returns the time since the first stop signal; `None` if none has arrived.
fn since_stop() -> Option<Duration> {
    let then = STOPPED_NS.load(Ordering::Relaxed);
    (then > 0).then(|| Duration::from_nanos(monotonic_ns().saturating_sub(then)))
}

/// Function that tells whether a wait is interrupted.
static INTERRUPTION: OnceLock<fn() -> bool> = OnceLock::new();

/// From now on, threads that wait for the reader of a pipe call `is_interrupted` every 100 ms, and the wait fails if it returns true. This is
/// for a process whose signals an interpreter handles.
///
/// Only the first call in the process has an effect.
pub fn interrupt_waits_by(is_interrupted: fn() -> bool) {
    let _ = INTERRUPTION.set(is_interrupted);
}

/// Returns the function of [`interrupt_waits_by`].
fn interruption() -> Option<fn() -> bool> {
    INTERRUPTION.get().copied()
}

/// From now on, SIGINT, SIGTERM, SIGALRM, and SIGHUP unless it is ignored, set `flag` and interrupt a blocked read. If a
/// further signal comes a second or more after the first, it ends the process as usual. An earlier further signal counts as a
/// repetition of the first. After SIGALRM, the end of a requested duration, the process still waits for its outputs as before.
/// After the other signals, it waits only for a moment, see [`writer`].
///
/// Only the first call in the process has an effect.
pub fn stop_on_signals(flag: Arc<AtomicBool>) {
    extern "C" fn on_stop(signal: libc::c_int) {
        const PATIENCE_NS: u64 = 1_000_000_000;
        if let (libc::SIGALRM, Some(flag)) = (signal, STOP.get()) {
            stopped(StopCause::Time);
            flag.store(true, Ordering::Relaxed);
            return;
        }
        let now = monotonic_ns().max(1);
        let first = STOPPED_NS.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        match (first, STOP.get()) {
            (Ok(_), Some(flag)) => {
                stopped(StopCause::Signal);
                flag.store(true, Ordering::Relaxed);
                let one = 1u64.to_ne_bytes();
                // SAFETY: a handler may call `write`; the bytes are live, and the interrupted code finds its errno unchanged.
                unsafe {
                    let errno = *libc::__errno_location();
                    libc::write(stop_event(), one.as_ptr().cast(), one.len());
                    *libc::__errno_location() = errno;
                }
            }
            // Another thread may have handled the first signal, with a clock read later than this one.
            (Err(first), _) if now.saturating_sub(first) < PATIENCE_NS => {}
            // SAFETY: both calls may be made in a handler; the raised signal is delivered when this handler returns.
            _ => unsafe {
                terminal::give_back();
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            },
        }
    }
    if STOP.set(flag).is_err() {
        return;
    }
    // SAFETY: no preconditions. Without the eventfd, the process waits without limit for outputs that have no room.
    STOP_EVENT.store(
        unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) },
        Ordering::Relaxed,
    );
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGALRM, libc::SIGHUP] {
        // SAFETY: `sigaction` is plain data for which zero is valid. The handler only stores to atomics, reads a clock, and
        // makes calls that handlers may make. Without SA_RESTART, a blocked read returns.
        unsafe {
            let mut old: libc::sigaction = MaybeUninit::zeroed().assume_init();
            libc::sigaction(signal, ptr::null(), &mut old);
            // An ignored SIGHUP comes from nohup, whose user wants the process to stay.
            if signal == libc::SIGHUP && old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = on_stop as *const () as usize;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

/// Returns the time of CLOCK_MONOTONIC, ns: the clock of `Instant`, and of programs in the kernel. Signal handlers may call it.
pub fn monotonic_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Returns the time since the kernel began, the time of sleep included: a clock that nobody sets.
pub fn since_boot() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_BOOTTIME, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Ignores SIGUSR1 and SIGXFSZ, and handles SIGABRT (see [`exhausted`]). SIGUSR1 asks for a report, and must not end a process
/// that has none: see [`tell_on_signal`]. With SIGXFSZ ignored, a file that may not grow any more is an error of the write,
/// after which the file ends at a whole record.
pub fn bear_signals() {
    exhausted::bear();
    // SAFETY: ignoring a signal touches no memory of this process.
    unsafe {
        libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Lets this process wait for the processes that it starts. Its parent may ignore SIGCHLD; the
/// kernel then keeps no status.
pub fn keep_child_status() {
    // SAFETY: the default action of a signal touches no memory of this process.
    unsafe {
        libc::signal(libc::SIGCHLD, libc::SIG_DFL);
    }
}

static TELL: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on, SIGUSR1 sets `flag`. The thread that checks the flag next clears it and reports the state of the run.
pub fn tell_on_signal(flag: Arc<AtomicBool>) {
    extern "C" fn on_tell(_: libc::c_int) {
        set(&TELL);
    }
    handle_if_first(&TELL, flag, libc::SIGUSR1, on_tell);
}

static FIRE: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on, SIGUSR2 sets `flag`. The thread that checks the flag next clears it and fires the triggers of a recording.
pub fn fire_on_signal(flag: Arc<AtomicBool>) {
    extern "C" fn on_fire(_: libc::c_int) {
        set(&FIRE);
    }
    handle_if_first(&FIRE, flag, libc::SIGUSR2, on_fire);
}

fn set(flag: &OnceLock<Arc<AtomicBool>>) {
    if let Some(flag) = flag.get() {
        flag.store(true, Ordering::Relaxed);
    }
}

/// Keeps `flag` in `place`, and installs a handler that only [sets](set) it. Only the first call for a place has an effect.
fn handle_if_first(
    place: &OnceLock<Arc<AtomicBool>>,
    flag: Arc<AtomicBool>,
    signal: libc::c_int,
    handler: extern "C" fn(libc::c_int),
) {
    if place.set(flag).is_err() {
        return;
    }
    // SAFETY: as in `stop_on_signals`. With SA_RESTART, a blocked read continues.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &action, ptr::null_mut());
    }
}

/// Opens a directory. A pipe in its place is refused at once, and not waited for.
pub fn open_directory(path: &Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    File::options()
        .read(true)
        .custom_flags(libc::O_DIRECTORY)
        .open(path)
}

/// Returns the bytes of the file system of `path` that an ordinary user may still write.
/// **Errors**: as of `statvfs`.
pub fn free_bytes(path: &Path) -> io::Result<u64> {
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `statvfs` is plain data for which zero is valid; the path ends with NUL; both pointers are to live memory.
    let (done, about) = unsafe {
        let mut about: libc::statvfs = MaybeUninit::zeroed().assume_init();
        (libc::statvfs(path.as_ptr(), &mut about), about)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(about.f_bavail.saturating_mul(about.f_frsize))
}

/// Returns the bytes of the file system of an open file that an ordinary user may still write, and
/// its size. **Errors**: as of `fstatvfs`.
pub fn space_of(file: BorrowedFd<'_>) -> io::Result<(u64, u64)> {
    // SAFETY: `statvfs` is plain data for which zero is valid, and the pointer is to live memory.
    let (done, about) = unsafe {
        let mut about: libc::statvfs = MaybeUninit::zeroed().assume_init();
        (libc::fstatvfs(file.as_raw_fd(), &mut about), about)
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((
        about.f_bavail.saturating_mul(about.f_frsize),
        about.f_blocks.saturating_mul(about.f_frsize),
    ))
}

/// Receiver of SIGHUP, for processes that reread their settings at this signal and do not end.
#[derive(Debug)]
pub struct Hangups(&'static OwnedFd);

/// Descriptor that the handler of SIGHUP writes to, made by the first call of [`hangups`].
static HANGUPS: OnceLock<OwnedFd> = OnceLock::new();

/// Makes SIGHUP an event that can be [waited for](Hangups::wait), also under nohup. Call this function after
/// [`stop_on_signals`].
pub fn hangups() -> io::Result<Hangups> {
    extern "C" fn on_hangup(_: libc::c_int) {
        let Some(event) = HANGUPS.get() else { return };
        let one = 1u64.to_ne_bytes();
        // SAFETY: as in `stop_on_signals`.
        unsafe {
            let errno = *libc::__errno_location();
            libc::write(event.as_raw_fd(), one.as_ptr().cast(), one.len());
            *libc::__errno_location() = errno;
        }
    }
    // SAFETY: no preconditions.
    let event = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC) };
    if event < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has just made the descriptor, and no other code owns it.
    let event = unsafe { OwnedFd::from_raw_fd(event) };
    let event = HANGUPS.get_or_init(|| event);
    // SAFETY: as in `stop_on_signals`. With SA_RESTART, a blocked read continues.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = on_hangup as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGHUP, &action, ptr::null_mut());
    }
    Ok(Hangups(event))
}

impl Hangups {
    /// Waits for SIGHUP; returns at once if it has arrived since the last call.
    pub fn wait(&self) -> io::Result<()> {
        let mut times = [0u8; 8];
        loop {
            // SAFETY: the buffer is live and has the length given.
            let read =
                unsafe { libc::read(self.0.as_raw_fd(), times.as_mut_ptr().cast(), times.len()) };
            if read == times.len() as isize {
                return Ok(());
            }
            let error = io::Error::last_os_error();
            if error.kind() != io::ErrorKind::Interrupted {
                return Err(error);
            }
        }
    }
}

/// Waits until `file` has bytes to read or is at its end, at most for `most`; returns whether it is so. **Errors**:
/// `Interrupted` by a signal.
pub fn wait_for_bytes(file: &File, most: Duration) -> io::Result<bool> {
    let mut asked = libc::pollfd {
        fd: file.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let most = libc::c_int::try_from(most.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: one live entry.
    match unsafe { libc::poll(&raw mut asked, 1, most) } {
        -1 => Err(io::Error::last_os_error()),
        ready => Ok(ready > 0),
    }
}

/// Opens `path` for reading, without a wait for the writer of a FIFO; reads wait for the writer, see [`wait_for_bytes`].
pub fn open(path: &std::path::Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = match File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
    {
        // A file server holds a lease on the file, for which such a call does not wait (fcntl(2), F_SETLEASE).
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return File::open(path),
        opened => opened?,
    };
    // SAFETY: the descriptor is open, and the call takes numbers only. No other process shares the open file.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_RDONLY) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(file),
    }
}

/// Kind of access to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reading of the file.
    Read,
    /// Writing of the file, or its creation in its directory.
    Write,
}

/// Returns whether the rights of this process allow `access` to the file at `path`. If a file to write does not exist, its
/// directory is checked. Rules of Landlock are not checked. **Source**: faccessat(2), landlock(7).
pub fn may(path: &std::path::Path, access: Access) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let (path, mode) = match access {
        Access::Read => (path, libc::R_OK),
        Access::Write if path.exists() => (path, libc::W_OK),
        Access::Write => match path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => {
                (std::path::Path::new("."), libc::W_OK | libc::X_OK)
            }
            Some(folder) => (folder, libc::W_OK | libc::X_OK),
            None => return false,
        },
    };
    let Ok(name) = std::ffi::CString::new(path.as_os_str().as_bytes()) else {
        return false;
    };
    // SAFETY: the name ends with NUL and outlives the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), mode, libc::AT_EACCESS) == 0 }
}

/// A thread of this process, as signals name it.
#[derive(Clone, Copy, Debug)]
pub struct ThreadHandle(libc::pthread_t);

/// Returns the calling thread, and lets [`interrupt_thread`] end its system calls.
pub fn thread_handle() -> ThreadHandle {
    extern "C" fn nothing(_: libc::c_int) {}
    // SAFETY: `sigaction` is plain data for which zero is valid, and without SA_RESTART; the handler does nothing.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = nothing as *const () as usize;
        libc::sigaction(libc::SIGURG, &action, ptr::null_mut());
        ThreadHandle(libc::pthread_self())
    }
}

/// Ends the system call in which a thread is, by a signal (SIGURG) whose handler does nothing. The thread must not have been joined.
pub fn interrupt_thread(thread: ThreadHandle) {
    // SAFETY: the caller promises that the thread was not joined, so that its number is its own.
    unsafe { libc::pthread_kill(thread.0, libc::SIGURG) };
}

/// Makes the sleeps of this thread end as soon as the processor can, not up to 50 us later. **Source**: PR_SET_TIMERSLACK(2const).
pub fn exact_timers() {
    // SAFETY: takes numbers only.
    unsafe {
        libc::prctl(libc::PR_SET_TIMERSLACK, 1, 0, 0, 0);
    }
}

/// Makes the kernel send SIGALRM after `time`: see [`stop_on_signals`].
pub fn stop_after(time: std::time::Duration) {
    let micros = time.subsec_micros().max(u32::from(time.as_secs() == 0));
    let once = libc::itimerval {
        it_interval: libc::timeval {
            tv_sec: 0,
            tv_usec: 0,
        },
        it_value: libc::timeval {
            tv_sec: time.as_secs() as libc::time_t,
            tv_usec: micros.into(),
        },
    };
    // SAFETY: the pointer is to a live local; the null pointer asks for no old value.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &once, ptr::null_mut()) };
}

/// Returns the number of minor page faults of this thread so far.
pub fn minor_faults() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live local, and zero is a valid rusage should the call fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_minflt as u64
}

/// Returns the processor time of this process so far, user and system, in ns.
pub fn process_cpu_ns() -> u64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Raises this process's limit of open descriptors to `needed`, as far as the system allows; returns the limit.
pub fn allow_open_files(needed: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live local.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < needed {
        let raised = libc::rlimit {
            rlim_cur: needed.min(limit.rlim_max),
            ..limit
        };
        // SAFETY: the pointer is to a live local.
        if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raised) } == 0 {
            limit = raised;
        }
    }
    Ok(limit.rlim_cur)
}

/// Binds the calling thread to processor `cpu`.
pub fn pin(cpu: usize) -> io::Result<()> {
    if cpu >= libc::CPU_SETSIZE as usize {
        return Err(io::Error::from_raw_os_error(libc::EINVAL));
    }
    // SAFETY: `cpu_set_t` is plain data for which zero is valid; `cpu` is in range; the pointer is to a live local.
    let result = unsafe {
        let mut set: libc::cpu_set_t = MaybeUninit::zeroed().assume_init();
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::nameless;

    #[test]
    fn a_mapping_shows_the_file_at_an_aligned_address() {
        guard_mappings();
        let bytes: Vec<u8> = (0..3 * HUGE).map(|i| (i / 7) as u8).collect();
        let file = nameless(&bytes);
        for (offset, len) in [(0, 1), (0, bytes.len()), (4096, HUGE), (HUGE, HUGE + 5)] {
            let mapping = Mapping::new(&file, offset as u64, len).unwrap();
            assert_eq!(mapping.bytes().as_ptr().align_offset(HUGE), 0);
            assert!(mapping.bytes() == &bytes[offset..offset + len]);
            assert_eq!(mapping.fault(), None);
        }
    }

    #[test]
    fn a_file_that_shrinks_under_the_reader_is_noted_and_reads_as_zeros() {
        guard_mappings();
        let file = nameless(&vec![7u8; 1 << 20]);
        let mapping = Mapping::new(&file, 0, 1 << 20).unwrap();
        file.set_len(8192).unwrap();
        assert_eq!(mapping.bytes()[8191], 7);
        assert_eq!(mapping.fault(), None);
        assert_eq!(mapping.bytes()[500_000], 0);
        assert_eq!(mapping.bytes()[20_000], 0);
        let page = page_size();
        assert_eq!(mapping.fault(), Some(20_000 / page * page));
        let other = Mapping::new(&file, 0, 4096).unwrap();
        assert_eq!(other.bytes()[0], 7);
        assert_eq!(other.fault(), None);
    }
}
