//! The end of a capture, in a process of its own: what its maps of memory are is not mixed with those of other tests.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr::{null, null_mut};
use weir::*;
use weir_testkit::{net, skipped};

fn open(name: &CStr) -> Option<weir_source> {
    let mut source = 0;
    // SAFETY: all pointers lead to variables.
    let status = unsafe { weir_open(&name.as_ptr(), 1, null(), &mut source, null_mut()) };
    (status == WEIR_OK).then_some(source)
}

/// What the kernel keeps for a capture is gone with it: sockets, maps of memory, promiscuous mode.
#[test]
fn nothing_of_a_capture_stays() {
    let test = "nothing_of_a_capture_stays";
    if !net::cable(test, "") {
        return;
    }
    let state = || {
        let sockets = std::fs::read_to_string("/proc/thread-self/net/packet")
            .unwrap()
            .lines()
            .count();
        let maps = std::fs::read_to_string("/proc/self/maps")
            .unwrap()
            .lines()
            .filter(|line| line.contains("socket:"))
            .count();
        let flags = std::fs::read_to_string("/sys/class/net/near/flags").unwrap_or_default();
        (sockets, maps, flags)
    };
    let before = state();
    for _ in 0..3 {
        let Some(source) = open(c"af_packet:near") else {
            return skipped(test, "no capture can be opened here");
        };
        assert_ne!(state(), before);
        let mut batch = MaybeUninit::uninit();
        assert_eq!(
            // SAFETY: it leads to memory for a batch.
            unsafe { weir_next(source, 1000, batch.as_mut_ptr(), null_mut()) },
            WEIR_NOTHING
        );
        // SAFETY: NULL is allowed.
        assert_eq!(unsafe { weir_close(source, null_mut()) }, WEIR_OK);
        assert_eq!(state(), before);
    }
    assert!(open(c"af_packet:nowhere0").is_none());
    assert_eq!(state(), before);
}
