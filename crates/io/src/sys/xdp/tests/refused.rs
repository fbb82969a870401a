//! Captures that cannot be had, and what they lack.

use super::*;

#[test]
fn what_cannot_be_had_is_said() {
    if !cable("what_cannot_be_had_is_said", 1, 1500) {
        return;
    }
    let settings = small(Mode::Native);
    let fails = |name: &str, queue, settings: &Settings| {
        open(name, queue, settings).unwrap_err().to_string()
    };
    assert_eq!(fails("nobody", 0, &settings), "no such network interface");
    assert_eq!(
        fails("near", 3, &settings),
        "near has 1 receive queues, there is no queue 3"
    );
    ip("link set lo down");
    assert_eq!(fails("lo", 0, &settings), "the interface is down");
    assert!(
        fails(
            "near",
            0,
            &Settings {
                chunk: 3000,
                ..settings
            }
        )
        .contains("2048 or 4096")
    );
    assert!(
        fails(
            "near",
            0,
            &Settings {
                memory: 4000,
                ..settings
            }
        )
        .contains("at least two chunks")
    );
    assert!(
        fails(
            "near",
            0,
            &Settings {
                memory: 1 << 32,
                ..settings
            }
        )
        .contains("below 4 GiB")
    );
    let forced = Settings {
        zero_copy: ZeroCopy::Force,
        ..settings
    };
    assert!(
        fails("near", 0, &forced).contains("zero copy"),
        "{}",
        fails("near", 0, &forced)
    );
    ip("link set lo up");
    assert_eq!(
        fails("lo", 0, &settings),
        "the driver has no native XDP mode"
    );
    assert!(
        open(
            "lo",
            0,
            &Settings {
                mode: None,
                ..settings
            }
        )
        .unwrap()
        .describe()
        .contains("generic")
    );
    ip("tuntap add dev tun0 mode tun");
    ip("link set tun0 up");
    assert!(fails("tun0", 0, &settings).contains("hardware type 65534"));

    let interface = Arc::new(Interface::open("near").unwrap());
    let redirect = Arc::new(begin(&interface, 1, &settings).unwrap());
    let _first = Socket::open(&interface, &redirect, 0, &settings, None).unwrap();
    let error = Socket::open(&interface, &redirect, 0, &settings, None).unwrap_err();
    assert_eq!(
        error.to_string(),
        "queue 0 of near is in use by another socket"
    );
    let mut sender = Sender::open("far", &SendSettings::default()).unwrap();
    for len in [0, 2049] {
        assert_eq!(
            sender.send(&vec![0; len]).unwrap_err().kind(),
            io::ErrorKind::InvalidInput
        );
    }
    assert_eq!(sender.finish().unwrap(), Sent::default());
}

#[test]
fn who_may_not_is_told_what_is_lacking() {
    if !cable("who_may_not_is_told_what_is_lacking", 1, 1500) {
        return;
    }
    // Numbers of linux/capability.h.
    const NET_ADMIN: u32 = 12;
    const NET_RAW: u32 = 13;
    const IPC_LOCK: u32 = 14;
    const SYS_ADMIN: u32 = 21;
    const BPF: u32 = 39;
    let without = |lacking: &[u32], memory: usize| {
        // `struct __user_cap_header_struct`, version 3, this thread; then effective, permitted, inheritable, twice.
        let (header, mut sets) = ([0x2008_0522u32, 0], [0u32; 6]);
        // SAFETY: both have the lengths of version 3. Only this thread changes.
        unsafe {
            assert_eq!(
                libc::syscall(libc::SYS_capget, &raw const header, &raw mut sets),
                0
            )
        };
        let before = sets;
        lacking.iter().for_each(|capability| {
            sets[*capability as usize / 32 * 3] &= !(1 << (capability % 32))
        });
        // SAFETY: as above.
        unsafe {
            assert_eq!(
                libc::syscall(libc::SYS_capset, &raw const header, &raw const sets),
                0
            )
        };
        let result = open(
            "near",
            0,
            &Settings {
                memory,
                ..small(Mode::Native)
            },
        );
        // SAFETY: as above.
        unsafe {
            assert_eq!(
                libc::syscall(libc::SYS_capset, &raw const header, &raw const before),
                0
            )
        };
        result.map_err(|error| error.to_string()).map(drop)
    };
    assert_eq!(without(&[], 1 << 20), Ok(()));
    assert_eq!(
        without(&[NET_RAW], 1 << 20),
        Err("AF_XDP needs CAP_NET_RAW".to_owned())
    );
    let error = without(&[BPF, SYS_ADMIN], 1 << 20).unwrap_err();
    assert_eq!(
        error,
        "a BPF map needs CAP_BPF and CAP_NET_ADMIN, or CAP_SYS_ADMIN"
    );
    assert!(
        without(&[NET_ADMIN, SYS_ADMIN], 1 << 20)
            .unwrap_err()
            .contains("CAP_NET_ADMIN")
    );
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live local.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &raw mut limit) };
    if limit.rlim_cur >= 60 << 20 {
        skipped(
            "who_may_not_is_told_what_is_lacking",
            "RLIMIT_MEMLOCK is large",
        );
        return;
    }
    let error = without(&[IPC_LOCK], 64 << 20).unwrap_err();
    assert!(error.contains("RLIMIT_MEMLOCK"), "{error}");
}
