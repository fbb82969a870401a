//! seccomp: the system calls that a run may still make.
//!
//! A call that is not on the list fails with EPERM, so that an unexpected call of a library gives an error and not a dead
//! process. Calls that only an attacker would make end the process. Calls newer than this list fail as on an older kernel.
//! **Platform**: Linux 4.14, x86-64 and aarch64.

mod program;

use program::{Judged, Rule, Test, Verdict, Verdicts};
use seccompiler::apply_filter_all_threads;

/// Needs of a run in addition to reading files.
#[derive(Clone, Copy, Debug, Default)]
pub struct Needs {
    /// Whether native code is made.
    pub native: bool,
    /// Whether open sockets receive packets, and interfaces are queried.
    pub packets: bool,
    /// Whether packets are sent.
    pub sends: bool,
    /// Whether maps of programs in the kernel are changed, and programs run.
    pub bpf: bool,
    /// Whether programs are loaded into the kernel; only with `bpf`.
    pub loads: bool,
    /// Whether host names are looked up.
    pub resolves: bool,
    /// Whether files get other names.
    pub renames: bool,
    /// Whether a control socket takes requests.
    pub controls: bool,
    /// Whether another process runs programs for files.
    pub programs: bool,
}

/// Calls of any run: memory, threads, time, files by name, open files.
const COMMON: &[i64] = &[
    libc::SYS_brk,
    libc::SYS_capget,
    libc::SYS_capset,
    libc::SYS_clock_getres,
    libc::SYS_clock_gettime,
    libc::SYS_clock_nanosleep,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_copy_file_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_eventfd2,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_fallocate,
    libc::SYS_fcntl,
    libc::SYS_fdatasync,
    libc::SYS_flock,
    libc::SYS_fstat,
    libc::SYS_fstatfs,
    libc::SYS_fsync,
    libc::SYS_ftruncate,
    libc::SYS_futex,
    libc::SYS_futex_waitv,
    libc::SYS_get_mempolicy,
    libc::SYS_get_robust_list,
    libc::SYS_getcpu,
    libc::SYS_getcwd,
    libc::SYS_getdents64,
    libc::SYS_getegid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getitimer,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_getrandom,
    libc::SYS_getrusage,
    libc::SYS_gettid,
    libc::SYS_gettimeofday,
    libc::SYS_getuid,
    libc::SYS_ioctl,
    libc::SYS_lseek,
    libc::SYS_madvise,
    libc::SYS_mbind,
    libc::SYS_membarrier,
    libc::SYS_mincore,
    libc::SYS_mlock,
    libc::SYS_mlock2,
    libc::SYS_mremap,
    libc::SYS_msync,
    libc::SYS_munlock,
    libc::SYS_munmap,
    libc::SYS_nanosleep,
    libc::SYS_newfstatat,
    libc::SYS_openat,
    libc::SYS_pipe2,
    libc::SYS_ppoll,
    libc::SYS_pread64,
    libc::SYS_preadv,
    libc::SYS_preadv2,
    libc::SYS_pselect6,
    libc::SYS_pwrite64,
    libc::SYS_pwritev,
    libc::SYS_pwritev2,
    libc::SYS_read,
    libc::SYS_readahead,
    libc::SYS_readlinkat,
    libc::SYS_readv,
    libc::SYS_restart_syscall,
    libc::SYS_rseq,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_yield,
    libc::SYS_set_mempolicy,
    libc::SYS_set_robust_list,
    libc::SYS_set_tid_address,
    libc::SYS_setitimer,
    libc::SYS_sigaltstack,
    libc::SYS_splice,
    libc::SYS_statfs,
    libc::SYS_statx,
    libc::SYS_sysinfo,
    libc::SYS_times,
    libc::SYS_uname,
    libc::SYS_unlinkat,
    libc::SYS_write,
    libc::SYS_writev,
];

/// Older calls for the same purposes, and calls that crate `libc` knows for this processor only.
#[cfg(target_arch = "x86_64")]
const OLDER: &[i64] = &[
    libc::SYS_access,
    libc::SYS_alarm,
    libc::SYS_arch_prctl,
    libc::SYS_dup2,
    libc::SYS_epoll_wait,
    libc::SYS_fadvise64,
    libc::SYS_getdents,
    libc::SYS_getrlimit,
    libc::SYS_lstat,
    libc::SYS_open,
    libc::SYS_pause,
    libc::SYS_pipe,
    libc::SYS_poll,
    libc::SYS_readlink,
    libc::SYS_select,
    libc::SYS_sendfile,
    libc::SYS_setrlimit,
    libc::SYS_stat,
    libc::SYS_time,
    libc::SYS_unlink,
];
#[cfg(not(target_arch = "x86_64"))]
const OLDER: &[i64] = &[];

/// Calls on open sockets.
const PACKETS: &[i64] = &[
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_setsockopt,
];

/// Calls that give a file another name.
#[cfg(target_arch = "x86_64")]
const RENAMES: &[i64] = &[libc::SYS_rename, libc::SYS_renameat, libc::SYS_renameat2];
#[cfg(not(target_arch = "x86_64"))]
const RENAMES: &[i64] = &[libc::SYS_renameat, libc::SYS_renameat2];

/// Calls on a control socket that listens already, and on its connections.
const CONTROLS: &[i64] = &[
    libc::SYS_accept4,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_setsockopt,
    libc::SYS_shutdown,
];

/// Calls on the socket to the process that runs programs, and for its end.
const PROGRAMS: &[i64] = &[
    libc::SYS_recvfrom,
    libc::SYS_shutdown,
    libc::SYS_wait4,
    libc::SYS_waitid,
];

/// Calls by which a resolver uses the network.
const RESOLVER: &[i64] = &[
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_getpeername,
    libc::SYS_getsockname,
    libc::SYS_getsockopt,
    libc::SYS_recvfrom,
    libc::SYS_recvmmsg,
    libc::SYS_recvmsg,
    libc::SYS_sendmmsg,
    libc::SYS_sendmsg,
    libc::SYS_sendto,
    libc::SYS_setsockopt,
    libc::SYS_socket,
];

/// Calls that no library makes for a run.
const HOSTILE: &[i64] = &[
    libc::SYS_acct,
    libc::SYS_add_key,
    libc::SYS_chroot,
    libc::SYS_delete_module,
    libc::SYS_execve,
    libc::SYS_execveat,
    libc::SYS_finit_module,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fsopen,
    libc::SYS_fspick,
    libc::SYS_init_module,
    libc::SYS_io_uring_enter,
    libc::SYS_io_uring_register,
    libc::SYS_io_uring_setup,
    libc::SYS_kcmp,
    libc::SYS_kexec_load,
    libc::SYS_keyctl,
    libc::SYS_mount,
    libc::SYS_mount_setattr,
    libc::SYS_move_mount,
    libc::SYS_open_by_handle_at,
    libc::SYS_open_tree,
    libc::SYS_perf_event_open,
    libc::SYS_personality,
    libc::SYS_pidfd_getfd,
    libc::SYS_pivot_root,
    libc::SYS_process_madvise,
    libc::SYS_process_vm_readv,
    libc::SYS_process_vm_writev,
    libc::SYS_ptrace,
    libc::SYS_quotactl,
    libc::SYS_reboot,
    libc::SYS_request_key,
    libc::SYS_setns,
    libc::SYS_swapoff,
    libc::SYS_swapon,
    libc::SYS_syslog,
    libc::SYS_umount2,
    libc::SYS_unshare,
    libc::SYS_userfaultfd,
];

/// Bit in the numbers of calls for x32, `__X32_SYSCALL_BIT` of asm/unistd.h.
const X32: u32 = 1 << 30;

/// Numbers newer than all numbers known to this list, up to a number that no kernel has reached
/// yet.
const NEWER: std::ops::Range<i64> = 452..512;

/// Commands of bpf(2): look up, change and delete an element of a map; run a program.
const BPF_COMMANDS: [u32; 4] = [1, 2, 3, 10];

/// `BPF_PROG_LOAD` of linux/bpf.h.
const BPF_PROG_LOAD: u32 = 5;

/// `TIOCLINUX` of asm-generic/ioctls.h, which types into a console.
const TIOCLINUX: u32 = 0x541c;

/// `SOCK_TYPE_MASK` of linux/net.h.
const SOCKET_KIND: u32 = 0xf;

/// Name of this processor's system calls in the kernel: `AUDIT_ARCH_X86_64` and `AUDIT_ARCH_AARCH64` of linux/audit.h.
const KIND: Option<u32> = if cfg!(target_arch = "x86_64") {
    Some(0xc000_003e)
} else if cfg!(target_arch = "aarch64") {
    Some(0xc000_00b7)
} else {
    None
};

/// Verdicts for a run.
fn verdicts(needs: Needs) -> Verdicts {
    let mut verdicts = Verdicts::new(Verdict::Fail(libc::EPERM));
    let wanted = |wanted, calls: &'static [i64]| if wanted { calls } else { &[] };
    let (packets, resolver) = (
        wanted(needs.packets, PACKETS),
        wanted(needs.resolves, RESOLVER),
    );
    let (renames, controls) = (
        wanted(needs.renames, RENAMES),
        wanted(needs.controls, CONTROLS),
    );
    let programs = wanted(needs.programs, PROGRAMS);
    let allowed = [
        COMMON, OLDER, packets, resolver, renames, controls, programs,
    ];
    allowed
        .into_iter()
        .flatten()
        .for_each(|&call| verdicts.set(call, Verdict::Allow));
    HOSTILE
        .iter()
        .for_each(|&call| verdicts.set(call, Verdict::Kill));
    // Flags of clone can be judged, those of clone3 lie in memory. If clone3 is missing, glibc starts threads by clone.
    NEWER
        .chain([libc::SYS_clone3])
        .for_each(|call| verdicts.set(call, Verdict::Fail(libc::ENOSYS)));
    // Only threads of this process are started.
    verdicts.set(
        libc::SYS_clone,
        only([[Test::has(
            0,
            libc::CLONE_THREAD as u32,
            libc::CLONE_THREAD as u32,
        )]]),
    );
    verdicts.set(libc::SYS_tgkill, only([[Test::is(0, std::process::id())]]));
    verdicts.set(libc::SYS_prlimit64, only([[Test::is(0, 0)]]));
    let options = [
        libc::PR_SET_NAME,
        libc::PR_GET_NAME,
        libc::PR_SET_NO_NEW_PRIVS,
        libc::PR_SET_VMA,
    ];
    verdicts.set(
        libc::SYS_prctl,
        only(options.map(|option| [Test::is(0, option as u32)])),
    );
    // Characters typed into a terminal would run as commands of its user after the run.
    let typing = [libc::TIOCSTI as u32, TIOCLINUX]
        .map(|command| rule(&[Test::is(1, command)], Verdict::Kill));
    verdicts.set(
        libc::SYS_ioctl,
        Judged {
            rules: typing.into(),
            otherwise: Verdict::Allow,
        },
    );
    for call in [libc::SYS_mmap, libc::SYS_mprotect] {
        verdicts.set(call, mapping(needs.native));
    }
    if needs.sends {
        verdicts.set(libc::SYS_sendmmsg, Verdict::Allow);
    }
    if needs.bpf {
        let commands = BPF_COMMANDS
            .into_iter()
            .chain(needs.loads.then_some(BPF_PROG_LOAD));
        verdicts.set(
            libc::SYS_bpf,
            only(commands.map(|command| [Test::is(0, command)])),
        );
    } else {
        verdicts.set(libc::SYS_bpf, Verdict::Kill);
    }
    if !needs.resolves {
        // Sockets to query interfaces; they cannot be connected.
        let datagrams = |family: i32| {
            [
                Test::is(0, family as u32),
                Test::has(1, SOCKET_KIND, libc::SOCK_DGRAM as u32),
            ]
        };
        let families = if needs.packets {
            &[libc::AF_UNIX, libc::AF_INET][..]
        } else {
            &[libc::AF_UNIX]
        };
        verdicts.set(
            libc::SYS_socket,
            only(families.iter().map(|family| datagrams(*family))),
        );
        if needs.packets || needs.controls || needs.programs {
            // No address but that to which the socket is bound.
            verdicts.set(libc::SYS_sendto, only([Test::is_null(4)]));
        }
    }
    verdicts
}

/// Verdicts for programs that run for files. They are not known, so that all calls are allowed
/// except calls that only an administrator's programs make, and calls newer than this list. A
/// refused call fails, because a program may do without it.
fn verdicts_for_programs() -> Verdicts {
    let mut verdicts = Verdicts::new(Verdict::Allow);
    let own = [libc::SYS_execve, libc::SYS_execveat];
    let refused = HOSTILE
        .iter()
        .filter(|call| !own.contains(call))
        .chain(&[libc::SYS_bpf]);
    refused.for_each(|&call| verdicts.set(call, Verdict::Fail(libc::EPERM)));
    if cfg!(target_arch = "x86_64") {
        // The same calls have other numbers for x32, with this bit; many kernels have none of them.
        verdicts.set_from(X32, Verdict::Fail(libc::ENOSYS));
    }
    NEWER
        .chain([libc::SYS_clone3])
        .for_each(|call| verdicts.set(call, Verdict::Fail(libc::ENOSYS)));
    // A user namespace would give its first process all capabilities in it.
    let namespaces = (libc::CLONE_NEWUSER
        | libc::CLONE_NEWNS
        | libc::CLONE_NEWNET
        | libc::CLONE_NEWPID
        | libc::CLONE_NEWIPC
        | libc::CLONE_NEWUTS
        | libc::CLONE_NEWCGROUP) as u32;
    verdicts.set(libc::SYS_clone, only([[Test::has(0, namespaces, 0)]]));
    let typing = [libc::TIOCSTI as u32, TIOCLINUX];
    let typing = typing.map(|command| rule(&[Test::is(1, command)], Verdict::Fail(libc::EPERM)));
    verdicts.set(
        libc::SYS_ioctl,
        Judged {
            rules: typing.into(),
            otherwise: Verdict::Allow,
        },
    );
    verdicts
}

/// Applies the verdicts for programs to this process. **Errors**: as [`restrict`].
pub fn restrict_programs() -> Result<(), String> {
    let kind = KIND.ok_or("the calls of this processor are not known")?;
    apply_filter_all_threads(&verdicts_for_programs().program(kind))
        .map_err(|error| error.to_string())
}

/// Allows calls that pass one of these lists of tests, and no others.
fn only<const N: usize>(allowed: impl IntoIterator<Item = [Test; N]>) -> Judged {
    let rules = allowed
        .into_iter()
        .map(|tests| rule(&tests, Verdict::Allow))
        .collect();
    Judged {
        rules,
        otherwise: Verdict::Fail(libc::EPERM),
    }
}

fn rule(tests: &[Test], verdict: Verdict) -> Rule {
    Rule {
        tests: tests.into(),
        verdict,
    }
}

/// Allows executable memory if native code is made, but never memory that is also writable.
fn mapping(native: bool) -> Judged {
    let (code, writable_code) = (
        libc::PROT_EXEC as u32,
        (libc::PROT_WRITE | libc::PROT_EXEC) as u32,
    );
    let mut rules = vec![rule(
        &[Test::has(2, writable_code, writable_code)],
        Verdict::Kill,
    )];
    if !native {
        rules.push(rule(
            &[Test::has(2, code, code)],
            Verdict::Fail(libc::EPERM),
        ));
    }
    Judged {
        rules,
        otherwise: Verdict::Allow,
    }
}

/// Applies the verdicts to all threads of the process. **Errors**: a message on a processor whose calls are not known, or
/// that of the system.
pub fn restrict(needs: Needs) -> Result<(), String> {
    let kind = KIND.ok_or("the calls of this processor are not known")?;
    apply_filter_all_threads(&verdicts(needs).program(kind)).map_err(|error| error.to_string())
}
