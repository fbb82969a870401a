//! Making traffic with known answers does not allocate: the allocator counts its calls.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use weir_generator::known::{Connections, Dialogues, Flood, Plan, Scan, Storm, StormKind, Traffic};
use weir_generator::{FRAME_MAX, Profile};

struct Counting;

thread_local! {
    /// Calls of the thread: the test harness has a thread of its own, which allocates now and then.
    static ALLOCATIONS: Cell<usize> = const { Cell::new(0) };
}

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches no memory but the counter.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends may allocate when the counter is gone.
        let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        // SAFETY: the caller promises a layout of non-zero size, which is all that `System` asks for.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: the caller promises memory that `alloc` above returned for this layout, and that came from `System`.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn frames_allocate_nothing() {
    let plan = Plan {
        ordinary: Some(Profile {
            packets: 2000,
            flows: 100,
            ..Profile::default()
        }),
        connections: Connections {
            count: 200,
            retransmissions: 20,
            reordered: 30,
            zero_windows: 20,
            resets: 40,
        },
        dialogues: Dialogues {
            count: 100,
            failing: 10,
            ..Dialogues::default()
        },
        scans: vec![Scan {
            peers: 500,
            ..Scan::default()
        }],
        floods: vec![Flood {
            frames: 500,
            sources: 300,
            begin_ns: 0,
            gap_ns: 1000,
        }],
        storms: vec![Storm {
            kind: StormKind::Arp,
            frames: 100,
            begin_ns: 0,
            gap_ns: 1000,
        }],
        ..Plan::default()
    };
    let mut traffic = Traffic::new(&plan).expect("the plan is valid");
    let mut buf = [0; FRAME_MAX];
    let before = ALLOCATIONS.get();
    while traffic.next(&mut buf).is_some() {}
    let after = ALLOCATIONS.get();
    assert_eq!(after - before, 0);
    assert!(traffic.known().frames > 5000);
}
