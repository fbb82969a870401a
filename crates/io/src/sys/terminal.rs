//! The terminal of a full-screen program: keys without lines and echo, the size, suspension, and the way back.
//!
//! A terminal belongs to the whole session, so what its settings were is state of the process: the handler of the stop signals gives it
//! back too, before a second signal ends the process.
//!
//! **Source**: termios(3), POSIX.1-2024 section 11 (general terminal interface), signal-safety(7).

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::Duration;

/// Settings of the terminal before [`Raw::take`], and the bytes that bring its screen back.
static BEFORE: OnceLock<(libc::termios, &'static [u8])> = OnceLock::new();

/// Descriptor of the terminal whose settings were changed; -1 if there is none.
static TAKEN: AtomicI32 = AtomicI32::new(-1);

/// Signals that end a process if nothing handles them, in the order of signal(7).
const DEADLY: [libc::c_int; 15] = [
    libc::SIGQUIT,
    libc::SIGILL,
    libc::SIGABRT,
    libc::SIGFPE,
    libc::SIGSEGV,
    libc::SIGTRAP,
    libc::SIGSYS,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGXCPU,
    libc::SIGXFSZ,
    libc::SIGIO,
    libc::SIGUSR1,
    libc::SIGUSR2,
];

/// Actions of the deadly signals before the terminal was taken; `None` for signals that something handles.
static DEATHS: OnceLock<[Option<libc::sigaction>; DEADLY.len()]> = OnceLock::new();

/// Whether SIGTSTP or SIGCONT came.
static STOPPING: AtomicBool = AtomicBool::new(false);
static CONTINUED: AtomicBool = AtomicBool::new(false);

/// A terminal that gives single keys. Dropping it gives the terminal back.
#[derive(Debug)]
pub struct Raw {
    fd: OwnedFd,
    settings: Settings,
}

/// Settings of a terminal.
#[derive(Clone, Copy)]
struct Settings(libc::termios);

impl std::fmt::Debug for Settings {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}

fn settings_of(fd: BorrowedFd<'_>) -> io::Result<libc::termios> {
    let mut settings = MaybeUninit::uninit();
    // SAFETY: the pointer is to a live local, which the call fills if it returns 0.
    match unsafe { libc::tcgetattr(fd.as_raw_fd(), settings.as_mut_ptr()) } {
        // SAFETY: the call has filled it.
        0 => Ok(unsafe { settings.assume_init() }),
        _ => Err(io::Error::last_os_error()),
    }
}

fn set(fd: BorrowedFd<'_>, settings: &libc::termios) -> io::Result<()> {
    // SAFETY: the pointer is to live settings.
    match unsafe { libc::tcsetattr(fd.as_raw_fd(), libc::TCSANOW, settings) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

impl Raw {
    /// Has the terminal give single keys, unechoed; Ctrl-C still sends its signal, and Ctrl-Z is a key. From now on, SIGTSTP is
    /// [noted](is_stopping) instead of stopping the process. `leave` are the bytes that bring the screen back.
    ///
    /// Only one terminal of the process is taken at a time. **Errors**: not a terminal.
    pub fn take(terminal: impl AsFd, leave: &'static [u8]) -> io::Result<Self> {
        let fd = terminal.as_fd().try_clone_to_owned()?;
        let before = settings_of(fd.as_fd())?;
        let mut raw = before;
        raw.c_lflag &= !(libc::ICANON | libc::ECHO | libc::IEXTEN);
        raw.c_iflag &= !(libc::IXON | libc::ICRNL | libc::INLCR);
        // `_POSIX_VDISABLE` of Linux.
        raw.c_cc[libc::VSUSP] = 0;
        raw.c_cc[libc::VMIN] = 1;
        raw.c_cc[libc::VTIME] = 0;
        let _ = BEFORE.set((before, leave));
        handle(libc::SIGCONT, on_continue as *const () as usize);
        DEATHS.get_or_init(|| DEADLY.map(give_back_before));
        let taken = Self {
            fd,
            settings: Settings(raw),
        };
        taken.apply()?;
        Ok(taken)
    }

    /// Sets the settings of single keys again.
    pub fn apply(&self) -> io::Result<()> {
        handle(libc::SIGTSTP, on_stop as *const () as usize);
        TAKEN.store(self.fd.as_raw_fd(), Ordering::Release);
        set(self.fd.as_fd(), &self.settings.0)
    }

    /// Whether the settings are unchanged: a shell sets its own while the process is stopped.
    pub fn is_applied(&self) -> bool {
        let wanted = self.settings.0;
        settings_of(self.fd.as_fd()).is_ok_and(|now| {
            (now.c_lflag, now.c_iflag, now.c_cc) == (wanted.c_lflag, wanted.c_iflag, wanted.c_cc)
        })
    }

    /// Gives the terminal its settings before back. The screen is the caller's.
    pub fn restore(&self) {
        TAKEN.store(-1, Ordering::Release);
        if let Some((before, _)) = BEFORE.get() {
            let _ = set(self.fd.as_fd(), before);
        }
    }

    /// Discards what the terminal has not taken yet, so that it has room again.
    pub fn discard(&self) {
        // SAFETY: the descriptor is open.
        unsafe { libc::tcflush(self.fd.as_raw_fd(), libc::TCOFLUSH) };
    }

    /// Stops the process as Ctrl-Z does, until it is continued.
    pub fn suspend(&self) {
        handle(libc::SIGTSTP, libc::SIG_DFL);
        // SAFETY: raising a signal touches no memory of this process.
        unsafe { libc::raise(libc::SIGTSTP) };
    }
}

impl Drop for Raw {
    fn drop(&mut self) {
        self.restore();
        handle(libc::SIGTSTP, libc::SIG_DFL);
        handle(libc::SIGCONT, libc::SIG_DFL);
    }
}

/// Gives the terminal back, if it is taken. A signal handler may call it.
pub(super) fn give_back() {
    let fd = TAKEN.swap(-1, Ordering::AcqRel);
    let Some((before, leave)) = BEFORE.get().filter(|_| fd >= 0) else {
        return;
    };
    // SAFETY: these calls may be made in a handler; the settings and the bytes are static.
    unsafe {
        // A terminal that nobody reads has no room, and the write would wait.
        libc::tcflush(fd, libc::TCOFLUSH);
        libc::write(fd, leave.as_ptr().cast(), leave.len());
        libc::tcsetattr(fd, libc::TCSANOW, before);
    }
}

/// Has a signal that would end the process give the terminal back before; returns its action until now. Signals that something handles
/// stay as they are, but for SIGSEGV, of which the standard library tells overflows of the stack.
fn give_back_before(signal: libc::c_int) -> Option<libc::sigaction> {
    // SAFETY: `sigaction` is plain data for which zero is valid, and the pointers are to live locals; the handler makes calls only that a
    // handler may make.
    unsafe {
        let mut earlier: libc::sigaction = MaybeUninit::zeroed().assume_init();
        if libc::sigaction(signal, std::ptr::null(), &mut earlier) != 0
            || earlier.sa_sigaction != libc::SIG_DFL && signal != libc::SIGSEGV
        {
            return None;
        }
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = on_death as *const () as usize;
        // An overflow of the stack leaves no room on it.
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        (libc::sigaction(signal, &action, std::ptr::null_mut()) == 0).then_some(earlier)
    }
}

/// Gives the terminal back, and leaves the signal to its action before.
extern "C" fn on_death(
    signal: libc::c_int,
    info: *mut libc::siginfo_t,
    _context: *mut libc::c_void,
) {
    give_back();
    let place = DEADLY.iter().position(|deadly| *deadly == signal);
    let earlier = DEATHS
        .get()
        .zip(place)
        .and_then(|(deaths, place)| deaths[place]);
    // SAFETY: the kernel gives a handler that asked for it live information; the other calls take numbers and a pointer to a live local.
    unsafe {
        match earlier {
            Some(earlier) => libc::sigaction(signal, &earlier, std::ptr::null_mut()),
            // The signal came while the actions were set.
            None => libc::signal(signal, libc::SIG_DFL) as libc::c_int,
        };
        // An instruction that failed fails again; a signal that was sent is sent again.
        let is_fault = matches!(signal, libc::SIGILL | libc::SIGFPE | libc::SIGSEGV);
        if !is_fault || (*info).si_code <= 0 {
            libc::raise(signal);
        }
    }
}

extern "C" fn on_stop(_: libc::c_int) {
    STOPPING.store(true, Ordering::Relaxed);
}

extern "C" fn on_continue(_: libc::c_int) {
    CONTINUED.store(true, Ordering::Relaxed);
}

fn handle(signal: libc::c_int, handler: libc::sighandler_t) {
    // SAFETY: `sigaction` is plain data for which zero is valid; the handlers only store to an atomic. With SA_RESTART, blocked calls
    // go on.
    unsafe {
        let mut action: libc::sigaction = MaybeUninit::zeroed().assume_init();
        action.sa_sigaction = handler;
        action.sa_flags = libc::SA_RESTART;
        libc::sigaction(signal, &action, std::ptr::null_mut());
    }
}

/// Returns whether SIGTSTP came since the last call.
pub fn is_stopping() -> bool {
    STOPPING.swap(false, Ordering::Relaxed)
}

/// Returns whether the process was continued since the last call.
pub fn is_continued() -> bool {
    CONTINUED.swap(false, Ordering::Relaxed)
}

/// End of a wait for keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waited {
    /// Bytes can be read, or the terminal is closed.
    Ready,
    /// The time is over, or a signal came.
    Over,
}

/// Waits for bytes of a terminal. **Errors**: errors of poll.
pub fn wait(terminal: impl AsFd, most: Duration) -> io::Result<Waited> {
    let mut entry = libc::pollfd {
        fd: terminal.as_fd().as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let ms = libc::c_int::try_from(most.as_millis()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the pointer is to one live entry.
    match unsafe { libc::poll(&mut entry, 1, ms) } {
        0 => Ok(Waited::Over),
        1.. => Ok(Waited::Ready),
        _ => match io::Error::last_os_error() {
            error if error.kind() == io::ErrorKind::Interrupted => Ok(Waited::Over),
            error => Err(error),
        },
    }
}

/// Standard error that goes elsewhere. Dropping it brings it back.
#[derive(Debug)]
pub struct Diverted {
    before: OwnedFd,
}

impl Diverted {
    /// Has standard error go to `to`. **Errors**: errors of dup.
    pub fn to(to: impl AsFd) -> io::Result<Self> {
        let before = io::stderr().as_fd().try_clone_to_owned()?;
        duplicate(to.as_fd())?;
        Ok(Self { before })
    }

    /// Returns standard error as it was.
    pub fn before(&self) -> io::Result<File> {
        self.before.try_clone().map(File::from)
    }
}

impl Drop for Diverted {
    fn drop(&mut self) {
        let _ = duplicate(self.before.as_fd());
    }
}

fn duplicate(to: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: both descriptors are open; standard error stays open at every moment.
    match unsafe { libc::dup2(to.as_raw_fd(), libc::STDERR_FILENO) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
