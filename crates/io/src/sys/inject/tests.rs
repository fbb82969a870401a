//! Tests that compare arrived copies with their fields, by the rules of the headers.

use super::*;
use crate::live::Counts;
use crate::sys::monotonic_ns;
use crate::sys::xdp;
use crate::sys::xdp::tests::net::{cable, packets, until_end};
use std::sync::atomic::AtomicBool;

/// Returns a frame with Ethernet, IPv4 and UDP, and room for numbers.
fn udp(payload: usize) -> Vec<u8> {
    let mut frame = vec![0xff; 6];
    frame.extend([2, 0, 0, 0, 0, 1, 8, 0, 0x45, 0]);
    frame.extend((28 + payload as u16).to_be_bytes());
    frame.extend([9, 9, 0x40, 0, 64, 17, 0xaa, 0xbb, 10, 1, 7, 7, 10, 2, 3, 4]);
    frame.extend([0, 1, 0x13, 0x88]);
    frame.extend((8 + payload as u16).to_be_bytes());
    frame.extend([0xcc, 0xdd]);
    frame.extend(vec![0x5a; payload]);
    frame
}

fn number<const N: usize>(frame: &[u8], at: usize) -> u64 {
    frame[at..at + N]
        .iter()
        .fold(0, |number, &byte| number << 8 | u64::from(byte))
}

#[test]
fn each_copy_has_its_number_its_time_and_its_flow() {
    if !cable("each_copy_has_its_number_its_time_and_its_flow", 1, 1500) {
        return;
    }
    let frame = udp(40);
    let mode = Mode::Pass;
    for (flows, stride) in [(1u64, 0u64), (1000, 1), (200_000, 0), (1 << 20, 648_055)] {
        let settings = xdp::Settings {
            mode: Some(xdp::Mode::Generic),
            ..xdp::Settings::of_size(1 << 20)
        };
        let mut capture = xdp::open("near", 0, &settings).unwrap();
        let fields = Fields {
            counter: Some(HEADERS),
            time: Some(HEADERS + 8),
            flows: flows as u32,
            stride: stride as u32,
            ..Fields::default()
        };
        let mut injector = Injector::open("near", &frame, &fields, mode).unwrap();
        let (mut expected, mut time) = (0, 0);
        for count in [3, 300, 100] {
            assert_eq!(injector.inject(count).unwrap(), count);
        }
        let (counts, _) = until_end(&mut capture, &AtomicBool::new(true), |burst| {
            for (_, copy) in packets(&*burst) {
                assert_eq!(number::<8>(copy, HEADERS), expected);
                assert!(number::<8>(copy, HEADERS + 8) > time);
                time = number::<8>(copy, HEADERS + 8);
                assert_eq!(
                    number::<2>(copy, 28) << 16 | number::<2>(copy, 34),
                    expected * stride.max(1) % flows
                );
                // RFC 1071: the sum over a header with its checksum is all ones.
                let sum: u64 = (14..34).step_by(2).map(|at| number::<2>(copy, at)).sum();
                assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{copy:02x?}");
                assert_eq!(number::<2>(copy, 40), 0);
                let rest = |frame: &[u8]| {
                    [
                        &frame[..18],
                        &frame[20..24],
                        &frame[26..28],
                        &frame[30..34],
                        &frame[36..40],
                        &frame[58..],
                    ]
                    .concat()
                };
                assert_eq!(rest(copy), rest(&frame));
                expected += 1;
            }
        })
        .unwrap();
        assert_eq!(
            counts,
            Counts {
                received: 403,
                filtered: Some(0),
                dropped: 0,
                handed_over: 403
            }
        );
    }
}

#[test]
fn a_pace_is_kept_and_does_not_make_up_for_pauses() {
    if !cable("a_pace_is_kept_and_does_not_make_up_for_pauses", 1, 1500) {
        return;
    }
    const INTERVAL: u64 = 10_000;
    let fields = Fields {
        paced: true,
        ..Fields::default()
    };
    let mut injector = Injector::open("near", &udp(40), &fields, Mode::Drop).unwrap();
    injector.at_once = 1 << 16;
    for _ in 0..2 {
        injector.pace(INTERVAL);
        assert_eq!(injector.times(), (0, 0));
        let injected = injector.inject(1 << 17).unwrap();
        let (first, latest) = injector.times();
        // The program may make up for what it is behind, and for no more.
        let most = (latest - first + LATE_NS as u64) / INTERVAL + 1;
        assert!((2..=most).contains(&injected), "{injected} of {most}");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    injector.pace(0);
    assert_eq!(injector.inject(1000).unwrap(), 1000);
}

/// The checksum holds for every flow, not only for the flows of a short run.
#[test]
fn the_checksum_does_not_depend_on_the_flow() {
    let mut frame = udp(0);
    prepare(&mut frame).unwrap();
    for high in 0..=0xffffu16 {
        frame[IDENTIFICATION..][..2].copy_from_slice(&(!high).to_be_bytes());
        frame[SOURCE_LOW..][..2].copy_from_slice(&high.to_be_bytes());
        let sum: u64 = (14..34).step_by(2).map(|at| number::<2>(&frame, at)).sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "{high}");
    }
}

#[test]
fn frames_and_fields_that_do_not_fit_are_errors() {
    if !cable("frames_and_fields_that_do_not_fit_are_errors", 1, 1500) {
        return;
    }
    let frame = udp(40);
    let open = |frame: &[u8], fields| Injector::open("near", frame, &fields, Mode::Drop);
    let counter = |at| Fields {
        counter: Some(at),
        ..Fields::default()
    };
    assert!(matches!(
        open(&frame, counter(frame.len() - 7)),
        Err(Error::Outside { at: 75, len: 82 })
    ));
    assert!(matches!(
        open(&frame, counter(usize::MAX)),
        Err(Error::Outside { .. })
    ));
    assert!(matches!(
        open(&frame[..13], Fields::default()),
        Err(Error::Length(13))
    ));
    assert!(matches!(
        open(&[0; LONGEST + 1], Fields::default()),
        Err(Error::Length(_))
    ));
    assert!(matches!(
        open(
            &[0; 60],
            Fields {
                flows: 1,
                ..Fields::default()
            }
        ),
        Err(Error::NoFlow)
    ));
    assert!(matches!(
        Injector::open("nobody", &frame, &Fields::default(), Mode::Drop),
        Err(Error::NoInterface)
    ));
    for frame in [&frame[..14], &[0; LONGEST]] {
        assert_eq!(
            open(frame, Fields::default())
                .unwrap()
                .inject(1000)
                .unwrap(),
            1000
        );
    }
}

/// How late each frame is, by the clock of this process before it is written and after it has left.
#[test]
fn a_ring_tells_the_lateness_of_frames_with_times() {
    if !cable("a_ring_tells_the_lateness_of_frames_with_times", 1, 1500) {
        return;
    }
    const LATE: u64 = 50_000_000;
    let mut ring = Ring::open("near", Mode::Drop, 64).unwrap();
    ring.start().unwrap();
    let begun = monotonic_ns();
    // They go round the ring several times; every third has no time.
    let all = 0..40_000;
    for number in all.clone() {
        let due = match number % 3 {
            0 => 0,
            _ => begun - LATE - number as u64,
        };
        ring.push(&vec![0; 60 + number % 200], due).unwrap();
    }
    ring.drain().unwrap();
    let took = monotonic_ns() - begun;
    let lateness = ring.lateness();
    assert_eq!(
        lateness.len(),
        all.filter(|number| number % 3 > 0).count() as u64
    );
    // Three digits are right.
    let most = (LATE + 40_000 + took) as f64;
    assert!(
        lateness.min() as f64 > 0.998 * LATE as f64,
        "{}",
        lateness.min()
    );
    assert!(
        (lateness.max() as f64) < 1.002 * most,
        "{} {most}",
        lateness.max()
    );
}
