//! Attempts to break out of a confined process: system calls that weir never makes.

use std::io;
use std::ptr;

/// An attempt. If nothing forbids it, it does no harm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// Runs another program in place of this one.
    Program,
    /// Starts a process.
    Process,
    /// Asks to be traced, as a debugger's first step.
    Trace,
    /// Reads another process's memory.
    Memory,
    /// Mounts a file system.
    Mount,
    /// Enters namespaces of its own, in which the process would be root.
    Namespace,
    /// Loads a program into the kernel.
    KernelProgram,
    /// Loads a module into the kernel.
    Module,
    /// Asks for a keyring.
    Keyring,
    /// Handles page faults of the kernel.
    PageFaults,
    /// Counts events of the processor.
    Counters,
    /// Makes calls that no filter sees.
    Uring,
    /// Types a command on the user's terminal.
    Type,
    /// Maps memory that is both writable and executable.
    WritableCode,
    /// Becomes root.
    Root,
    /// Sends a signal to the parent process.
    Signal,
    /// Changes a limit of the parent process.
    Limit,
    /// Captures packets.
    Capture,
    /// Makes a connection.
    Connection,
}

impl Attempt {
    /// All attempts.
    pub const ALL: [Self; 19] = [
        Self::Program,
        Self::Process,
        Self::Trace,
        Self::Memory,
        Self::Mount,
        Self::Namespace,
        Self::KernelProgram,
        Self::Module,
        Self::Keyring,
        Self::PageFaults,
        Self::Counters,
        Self::Uring,
        Self::Type,
        Self::WritableCode,
        Self::Root,
        Self::Signal,
        Self::Limit,
        Self::Capture,
        Self::Connection,
    ];

    /// Makes the attempt. **Errors**: the error of the refusal, unless the attempt ended the process.
    #[allow(unsafe_code)]
    pub fn make(self) -> io::Result<()> {
        let null = ptr::null_mut::<u8>();
        // SAFETY: pointers are to live texts, or null, which the kernel refuses where it needs them. The calls make a descriptor,
        // a mapping at an address of the kernel's choice, or a child that ends at once.
        let result = unsafe {
            let parent = libc::getppid();
            match self {
                Self::Program => libc::syscall(libc::SYS_execve, c"/bin/true".as_ptr(), null, null),
                Self::Process => {
                    let child = libc::fork();
                    if child == 0 {
                        libc::_exit(0);
                    }
                    child.into()
                }
                Self::Trace => libc::syscall(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, null, null),
                Self::Memory => {
                    libc::syscall(libc::SYS_process_vm_readv, parent, null, 0, null, 0, 0)
                }
                Self::Mount => libc::syscall(libc::SYS_mount, null, null, null, 0, null),
                Self::Namespace => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER),
                Self::KernelProgram => libc::syscall(libc::SYS_bpf, 5, null, 0),
                Self::Module => libc::syscall(libc::SYS_finit_module, -1, c"".as_ptr(), 0),
                Self::Keyring => libc::syscall(libc::SYS_keyctl, 0, -3, 0),
                Self::PageFaults => libc::syscall(libc::SYS_userfaultfd, 0),
                Self::Counters => libc::syscall(libc::SYS_perf_event_open, null, 0, -1, -1, 0),
                Self::Uring => libc::syscall(libc::SYS_io_uring_setup, 1, null),
                Self::Type => libc::ioctl(0, libc::TIOCSTI, c"\n".as_ptr()).into(),
                Self::WritableCode => {
                    let protection = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
                    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
                    libc::syscall(libc::SYS_mmap, null, 4096, protection, flags, -1, 0)
                }
                Self::Root => libc::syscall(libc::SYS_setuid, 0),
                Self::Signal => libc::kill(parent, 0).into(),
                Self::Limit => {
                    libc::syscall(libc::SYS_prlimit64, parent, libc::RLIMIT_CORE, null, null)
                }
                Self::Capture => libc::socket(libc::AF_PACKET, libc::SOCK_RAW, 0).into(),
                Self::Connection => libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0).into(),
            }
        };
        if result < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }
}
