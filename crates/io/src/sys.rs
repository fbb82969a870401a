//! System calls: mapping a file and surviving its end, positioned reads, fault counts, processor affinity.
//!
//! A mapped file that shrinks, or whose disk fails, raises SIGBUS in whoever touches it. One handler for the process (the
//! documented exception to "no global state", since signals are global) puts a page of zeros under the touched address,
//! notes the place in the mapping's slot and lets the reader go on; the reader asks [`Mapping::fault`] before it believes
//! what it read. A SIGBUS outside our mappings goes to the handler that was there before.

pub mod bpf;
pub mod device;
pub mod exhausted;
pub mod inject;
mod option;
pub mod packet_socket;
pub mod privilege;
pub mod standard;
pub mod writer;
pub mod xdp;

use crate::slots::Slot;
use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Size of a huge page of the page table's middle level, bytes: a window aligned to it can be mapped by one entry.
pub const HUGE: usize = 2 << 20;

/// Mappings that can exist at once in the process: a reader has two for each of its workers, and a few more.
const SLOTS: usize = 2048;

static MAPPED: [Slot; SLOTS] = [const { Slot::new() }; SLOTS];

static PREVIOUS: OnceLock<Previous> = OnceLock::new();

/// The disposition of SIGBUS before ours.
struct Previous(libc::sigaction);
// SAFETY: the struct is plain data (an address, a mask, flags) and is never written after it was stored.
unsafe impl Send for Previous {}
// SAFETY: as above.
unsafe impl Sync for Previous {}

/// A read-only mapping of a piece of a file, at an address aligned to [`HUGE`].
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
    /// The bytes change under the reader if another process writes the file: see [`Self::bytes`]. **Errors**: those of `mmap`; out of
    /// slots is `ENOMEM`; `Unsupported` before [`guard_mappings`].
    pub fn new(file: &File, offset: u64, len: usize) -> io::Result<Self> {
        if !are_mappings_guarded() {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "no handler of SIGBUS guards mapped files"));
        }
        let base = reserve_aligned(len)?;
        // SAFETY: `base..base+len` was reserved by us just now and nobody else knows it, so MAP_FIXED replaces only our
        // own reservation.
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

    /// The mapped bytes, as they are at the moment of each load.
    ///
    /// Readers read a length, an offset or a kind once, into a local; they check an index against the slice, never against a byte
    /// read before; they copy text before they judge it, and a frame before it is kept.
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: `base..base+len` stays mapped readable until drop; where the file has no bytes the signal handler maps
        // zeros. That nobody writes the bytes is *not* promised: another process may write the file, which the language calls a
        // data race however it is read through a slice. What is relied on is that the compiler makes plain loads of plain bytes
        // and assumes nothing of their values, which any reader of a mapped file relies on; and that readers keep to the rules
        // above, so that changing bytes give a wrong answer, or an index that is caught, and no access outside the mapping.
        unsafe { std::slice::from_raw_parts(self.base, self.len) }
    }

    /// Whether the last page cannot be read any more, as if the file had been cut before it. **Cost**: two loads.
    pub fn last_is_gone(&self) -> bool {
        // SAFETY: the byte lies in the mapping, which stays readable until drop. It is read because reading faults, whatever it is.
        unsafe { self.base.add(self.len - 1).read_volatile() };
        self.slot.fault().is_some()
    }

    /// The lowest offset at which the file could not be read so far. What was read at or behind it was made up.
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
    let total = len.checked_add(HUGE).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOMEM))?;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing of ours.
    let raw =
        unsafe { libc::mmap(ptr::null_mut(), total, libc::PROT_NONE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0) };
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
        unmap(base.wrapping_add(used), total.next_multiple_of(page_size()) - skip - used);
    }
    Ok(base)
}

fn unmap(base: *mut u8, len: usize) {
    // SAFETY: called only with pieces of reservations made above that nobody refers to any more.
    unsafe { libc::munmap(base.cast(), len) };
}

/// Size of a page, bytes.
pub(crate) fn page_size() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Lets this process map files: from now on a read of a page that the file has lost gives zeros, and the mapping says so. Before that,
/// files are read and not mapped. It handles SIGBUS of the whole process, and passes those of other memory on to the handler before.
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

/// Whether [`guard_mappings`] was called.
pub fn are_mappings_guarded() -> bool {
    PREVIOUS.get().is_some()
}

/// Async-signal-safe: atomics, `mmap` and `sigaction` only.
extern "C" fn on_sigbus(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel passes a valid siginfo for SA_SIGINFO handlers.
    let address = unsafe { (*info).si_addr() } as usize;
    for slot in &MAPPED {
        let Some(offset) = slot.offset_of(address) else { continue };
        let within = address & (page_size() - 1);
        // SAFETY: the page lies in a mapping of ours that is being read this moment, so it is not being unmapped.
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

/// Gives a SIGBUS that is not ours to the handler before us, or dies of it.
fn forward(signal: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    let Some(Previous(old)) = PREVIOUS.get() else { return };
    let handler = old.sa_sigaction;
    if handler == libc::SIG_DFL || handler == libc::SIG_IGN {
        // SAFETY: restores the old disposition; on return the access faults again and is handled by it.
        unsafe { libc::sigaction(signal, old, ptr::null_mut()) };
    } else if old.sa_flags & libc::SA_SIGINFO != 0 {
        // SAFETY: whoever installed this handler with SA_SIGINFO promised this signature.
        let call: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) =
            unsafe { std::mem::transmute(handler) };
        call(signal, info, context);
    } else {
        // SAFETY: whoever installed this handler without SA_SIGINFO promised this signature.
        let call: extern "C" fn(libc::c_int) = unsafe { std::mem::transmute(handler) };
        call(signal);
    }
}

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// When the first of these signals but SIGALRM came, ns of the monotonic clock; 0 if none did.
static STOPPED_NS: AtomicU64 = AtomicU64::new(0);

/// An eventfd that is readable once one did; -1 if there is none. It is never closed.
static STOP_EVENT: AtomicI32 = AtomicI32::new(-1);

/// The descriptor that is readable once a stop signal came, for `poll`; -1 if signals do as they always do.
fn stop_event() -> libc::c_int {
    STOP_EVENT.load(Ordering::Relaxed)
}

/// Whether a stop signal came: see [`stop_on_signals`]. The end of [`stop_after`] is none.
pub fn is_interrupted() -> bool {
    since_stop().is_some()
}

/// The time since the first stop signal; `None` if none came.
fn since_stop() -> Option<Duration> {
    let then = STOPPED_NS.load(Ordering::Relaxed);
    (then > 0).then(|| Duration::from_nanos(monotonic_ns().saturating_sub(then)))
}

/// From now on SIGINT, SIGTERM, SIGALRM, and SIGHUP unless it is ignored, set `flag`, and interrupt a blocked read. One that comes a
/// second and more after the first ends the process as usual; before that it is taken for the same wish, said twice. After SIGALRM,
/// which is a duration that was asked for, outputs are waited for as before; after the others only for a moment, see [`writer`].
///
/// The first call of the process counts.
pub fn stop_on_signals(flag: Arc<AtomicBool>) {
    extern "C" fn on_stop(signal: libc::c_int) {
        const PATIENCE_NS: u64 = 1_000_000_000;
        if let (libc::SIGALRM, Some(flag)) = (signal, STOP.get()) {
            flag.store(true, Ordering::Relaxed);
            return;
        }
        let now = monotonic_ns().max(1);
        let first = STOPPED_NS.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        match (first, STOP.get()) {
            (Ok(_), Some(flag)) => {
                flag.store(true, Ordering::Relaxed);
                let one = 1u64.to_ne_bytes();
                // SAFETY: a handler may write; the bytes are live, and whoever was interrupted finds its errno as it was.
                unsafe {
                    let errno = *libc::__errno_location();
                    libc::write(stop_event(), one.as_ptr().cast(), one.len());
                    *libc::__errno_location() = errno;
                }
            }
            // Another thread may have taken the first with a clock read after ours.
            (Err(first), _) if now.saturating_sub(first) < PATIENCE_NS => {}
            // SAFETY: both calls may be made in a handler; the signal arrives when this one returns.
            _ => unsafe {
                libc::signal(signal, libc::SIG_DFL);
                libc::raise(signal);
            },
        }
    }
    if STOP.set(flag).is_err() {
        return;
    }
    // SAFETY: no preconditions. Without the event, outputs that have no room are waited for as long as that takes.
    STOP_EVENT.store(unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) }, Ordering::Relaxed);
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGALRM, libc::SIGHUP] {
        // SAFETY: `sigaction` is plain data for which zero is valid; the handler stores to atomics, reads a clock, and makes calls
        // that handlers may make. Without SA_RESTART a blocked read returns.
        unsafe {
            let mut old: libc::sigaction = MaybeUninit::zeroed().assume_init();
            libc::sigaction(signal, ptr::null(), &mut old);
            // Who starts us with nohup wants to keep us.
            if signal == libc::SIGHUP && old.sa_sigaction == libc::SIG_IGN {
                continue;
            }
            let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
            action.sa_sigaction = on_stop as *const () as usize;
            libc::sigaction(signal, &action, ptr::null_mut());
        }
    }
}

fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// SIGUSR1 asks how things stand, and must not end who has nothing to tell: see [`tell_on_signal`]. Nor must SIGXFSZ: a file that
/// may not grow any more is then an error of the write, after which the file ends at a whole record. For SIGABRT see [`exhausted`].
pub fn bear_signals() {
    exhausted::bear();
    // SAFETY: ignoring a signal touches no memory of ours.
    unsafe {
        libc::signal(libc::SIGUSR1, libc::SIG_IGN);
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

static TELL: OnceLock<Arc<AtomicBool>> = OnceLock::new();

/// From now on SIGUSR1 sets `flag`: whoever looks at it next tells how things stand, and clears it.
pub fn tell_on_signal(flag: Arc<AtomicBool>) {
    extern "C" fn on_tell(_: libc::c_int) {
        if let Some(flag) = TELL.get() {
            flag.store(true, Ordering::Relaxed);
        }
    }
    if TELL.set(flag).is_err() {
        return;
    }
    // SAFETY: as in `stop_on_signals`; with SA_RESTART a blocked read goes on.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = on_tell as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGUSR1, &action, ptr::null_mut());
    }
}

/// SIGHUP that ends nothing: it asks for something to be read again.
#[derive(Debug)]
pub struct Hangups(&'static OwnedFd);

/// The descriptor that the handler of SIGHUP writes to, of the first call of [`hangups`].
static HANGUPS: OnceLock<OwnedFd> = OnceLock::new();

/// From now on SIGHUP is [waited for](Hangups::wait), also by who was started with nohup. Call it behind [`stop_on_signals`].
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
    // SAFETY: the descriptor was just made, and is nobody else's.
    let event = unsafe { OwnedFd::from_raw_fd(event) };
    let event = HANGUPS.get_or_init(|| event);
    // SAFETY: as in `stop_on_signals`; with SA_RESTART a blocked read goes on.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = on_hangup as *const () as usize;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(libc::SIGHUP, &action, ptr::null_mut());
    }
    Ok(Hangups(event))
}

impl Hangups {
    /// Waits until SIGHUP has come since the last call.
    pub fn wait(&self) -> io::Result<()> {
        let mut times = [0u8; 8];
        loop {
            // SAFETY: the buffer is live and as long as said.
            let read = unsafe { libc::read(self.0.as_raw_fd(), times.as_mut_ptr().cast(), times.len()) };
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

/// Waits until `file` has bytes to read or is at its end, for `most` at most; says whether it is so. **Errors**: `Interrupted` by a signal.
pub fn wait_for_bytes(file: &File, most: Duration) -> io::Result<bool> {
    let mut asked = libc::pollfd { fd: file.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    let most = libc::c_int::try_from(most.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: one live entry.
    match unsafe { libc::poll(&raw mut asked, 1, most) } {
        -1 => Err(io::Error::last_os_error()),
        ready => Ok(ready > 0),
    }
}

/// Opens `path` for reading without waiting for the writer of a FIFO: reads wait for it, see [`wait_for_bytes`].
pub fn open(path: &std::path::Path) -> io::Result<File> {
    use std::os::unix::fs::OpenOptionsExt;
    let file = File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path)?;
    // SAFETY: the descriptor is open, and the call takes numbers only. The open file is this process's own.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, libc::O_RDONLY) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(file),
    }
}

/// What is to be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It is read.
    Read,
    /// It is written, or made in its directory.
    Write,
}

/// Whether the rights of this process allow `access` to the file at `path`; to its directory, if there is no such file to write.
/// Landlock is not asked. **Source**: faccessat(2), landlock(7).
pub fn may(path: &std::path::Path, access: Access) -> bool {
    use std::os::unix::ffi::OsStrExt;
    let (path, mode) = match access {
        Access::Read => (path, libc::R_OK),
        Access::Write if path.exists() => (path, libc::W_OK),
        Access::Write => match path.parent() {
            Some(folder) if folder.as_os_str().is_empty() => (std::path::Path::new("."), libc::W_OK | libc::X_OK),
            Some(folder) => (folder, libc::W_OK | libc::X_OK),
            None => return false,
        },
    };
    let Ok(name) = std::ffi::CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: the name ends with NUL and outlives the call.
    unsafe { libc::faccessat(libc::AT_FDCWD, name.as_ptr(), mode, libc::AT_EACCESS) == 0 }
}

/// Has the kernel send SIGALRM after `time`: see [`stop_on_signals`].
pub fn stop_after(time: std::time::Duration) {
    let micros = time.subsec_micros().max(u32::from(time.as_secs() == 0));
    let once = libc::itimerval {
        it_interval: libc::timeval { tv_sec: 0, tv_usec: 0 },
        it_value: libc::timeval { tv_sec: time.as_secs() as libc::time_t, tv_usec: micros.into() },
    };
    // SAFETY: the pointer is to a live local; no old value is asked for.
    unsafe { libc::setitimer(libc::ITIMER_REAL, &once, ptr::null_mut()) };
}

/// Minor page faults of this thread so far.
pub fn minor_faults() -> u64 {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a live local, and zero is a valid rusage should the call fail.
    let usage = unsafe {
        libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr());
        usage.assume_init()
    };
    usage.ru_minflt as u64
}

/// Processor time of this process so far, user and system, in ns.
pub fn process_cpu_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is to a live local.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Allows this process to have `needed` descriptors open, as far as the system lets it raise its own limit; gives the limit.
pub fn allow_open_files(needed: u64) -> io::Result<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: the pointer is to a live local.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) } != 0 {
        return Err(io::Error::last_os_error());
    }
    if limit.rlim_cur < needed {
        let raised = libc::rlimit { rlim_cur: needed.min(limit.rlim_max), ..limit };
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
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::nameless;

    #[test]
    fn a_mapping_shows_the_file_at_an_aligned_address() {
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
