//! Making traffic with known answers does not allocate: the allocator counts its calls.

use weir_generator::known::{Connections, Dialogues, Flood, Plan, Scan, Storm, StormKind, Traffic};
use weir_generator::{FRAME_MAX, Profile};
use weir_testkit::allocations::{Counting, own_allocations};

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
    let before = own_allocations();
    while traffic.next(&mut buf).is_some() {}
    let after = own_allocations();
    assert_eq!(after - before, 0);
    assert!(traffic.known().frames > 5000);
}
