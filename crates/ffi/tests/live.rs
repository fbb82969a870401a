//! Packets sent by a sink into one end of a cable, and captured at the other: each arrives once, and the account adds up.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::ptr::null_mut;
use std::time::{Duration, Instant};
use weir::*;
use weir_testkit::net;
use weir_testkit::savefile::Pcap;
use weir_testkit::{Scratch, skipped};

const SECOND: u64 = 1_000_000_000;
const PACKETS: u32 = 2000;

/// UDP to the ports 53 and 80, in turn; the last four bytes number the packets.
fn frame(number: u32) -> Vec<u8> {
    let mut frame = vec![
        2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0, 0, 46, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0,
        0, 1, 10, 0, 0, 2,
    ];
    frame.extend([
        4,
        0,
        0,
        if number.is_multiple_of(2) { 53 } else { 80 },
        0,
        26,
        0,
        0,
    ]);
    frame.extend([0; 14]);
    frame.extend(number.to_be_bytes());
    frame
}

fn open(name: &str, filter: &str) -> Result<weir_source, weir_status> {
    let (name, filter) = (CString::new(name).unwrap(), CString::new(filter).unwrap());
    // SAFETY: zeros are valid options.
    let zeros: weir_options = unsafe { MaybeUninit::zeroed().assume_init() };
    let options = weir_options {
        size: size_of::<weir_options>() as u32,
        filter: filter.as_ptr(),
        flags: WEIR_NO_KERNEL_FILTER,
        latency_ns: SECOND / 100,
        ..zeros
    };
    let mut source = 0;
    // SAFETY: all pointers lead to variables.
    match unsafe { weir_open(&name.as_ptr(), 1, &options, &mut source, null_mut()) } {
        WEIR_OK => Ok(source),
        status => Err(status),
    }
}

/// The next batch; `None` if none came in that time, or at the end.
fn next(source: weir_source, timeout_ns: u64) -> Option<weir_batch> {
    let mut batch = MaybeUninit::uninit();
    // SAFETY: it leads to memory for a batch, which is read only if it was written.
    unsafe {
        (weir_next(source, timeout_ns, batch.as_mut_ptr(), null_mut()) == WEIR_OK)
            .then(|| batch.assume_init())
    }
}

/// Frames of a batch with their verdicts.
fn frames(batch: &weir_batch) -> Vec<(Vec<u8>, bool)> {
    let one = |i: usize| {
        // SAFETY: the batch is held; a descriptor names bytes of its region, and there is a bit for each packet.
        unsafe {
            let packet = *batch.packets.add(i);
            let bytes = std::slice::from_raw_parts(
                batch.region.add(packet.offset as usize),
                packet.captured as usize,
            );
            (
                bytes.to_vec(),
                *batch.verdicts.add(i / 64) >> (i % 64) & 1 == 1,
            )
        }
    };
    (0..batch.len as usize).map(one).collect()
}

fn through_a_cable(test: &str, source: &str, sink: &str) {
    if !net::cable(test, "") {
        return;
    }
    let scratch = Scratch::new();
    let mut pcap = Pcap::new(1, 65_535);
    (0..PACKETS).for_each(|number| pcap.packet(&frame(number)));
    let file = open(&scratch.file("a.pcap", &pcap.bytes), "").unwrap();
    let Ok(source) = open(source, "udp port 53") else {
        return skipped(test, "the capture cannot be opened here");
    };
    let (mut port, name) = (0, CString::new(sink).unwrap());
    assert_eq!(
        // SAFETY: all pointers lead to variables.
        unsafe { weir_sink_open(name.as_ptr(), &mut port, null_mut()) },
        WEIR_OK
    );
    while let Some(batch) = next(file, SECOND) {
        // In portions for which the ring has room while nobody looks.
        let words = (batch.len as usize).div_ceil(64);
        for word in 0..words {
            let mut mask = vec![0; words];
            let left = batch.len as usize - word * 64;
            mask[word] = if left < 64 { (1 << left) - 1 } else { u64::MAX };
            assert_eq!(
                // SAFETY: the mask has a bit for each packet.
                unsafe { weir_send(port, batch.lease, mask.as_ptr(), null_mut()) },
                WEIR_OK
            );
        }
        assert_eq!(weir_release(batch.lease), WEIR_OK);
    }
    let mut sent = weir_sink_counts::default();
    assert_eq!(
        // SAFETY: it leads to counts.
        unsafe { weir_sink_close(port, &mut sent, null_mut()) },
        WEIR_OK
    );
    assert_eq!(
        (sent.given, sent.written, sent.refused),
        (PACKETS.into(), PACKETS.into(), 0)
    );
    let (mut numbers, mut held) = (Vec::new(), Vec::new());
    while numbers.len() < PACKETS as usize {
        let batch = next(source, 20 * SECOND).expect("packets were sent");
        for (bytes, passed) in frames(&batch) {
            let number = u32::from_be_bytes(bytes[56..].try_into().unwrap());
            assert_eq!((&bytes, passed), (&frame(number), number.is_multiple_of(2)));
            numbers.push(number);
        }
        held.push(batch.lease);
        if held.len() > 3 {
            assert_eq!(weir_release(held.remove(1)), WEIR_OK);
        }
    }
    assert!(
        numbers.into_iter().eq(0..PACKETS),
        "in the order in which they were sent"
    );
    let mut counts = weir_counts::default();
    // SAFETY: it leads to counts.
    assert_eq!(unsafe { weir_counts_of(source, &mut counts) }, WEIR_OK);
    assert_eq!((counts.held, counts.is_final), (held.len() as u64, 0));
    assert_eq!(weir_stop(source), WEIR_OK);
    while next(source, SECOND).is_some() {}
    held.into_iter()
        .for_each(|lease| assert_eq!(weir_release(lease), WEIR_OK));
    assert_eq!(
        // SAFETY: it leads to counts.
        unsafe {
            (
                weir_close(source, &mut counts),
                weir_close(file, null_mut()),
            )
        },
        (WEIR_OK, WEIR_OK)
    );
    let weir_counts {
        received,
        passed,
        filtered,
        denied,
        dropped_source,
        dropped_output,
        ..
    } = counts;
    assert_eq!((received, passed, filtered), (PACKETS.into(), 1000, 1000));
    assert_eq!(
        (denied, dropped_source, dropped_output, counts.is_final),
        (0, 0, 0, 1)
    );
}

/// The kernel fills the blocks of a ring in turn, so it stops at one that is held.
#[test]
fn drops_behind_a_held_block_are_counted_while_it_is_held() {
    let test = "drops_behind_a_held_block_are_counted_while_it_is_held";
    if !net::cable(test, "") {
        return;
    }
    let scratch = Scratch::new();
    let mut pcap = Pcap::new(1, 65_535);
    pcap.packet(&frame(0));
    let file = open(&scratch.file("a.pcap", &pcap.bytes), "").unwrap();
    let Ok(source) = open("af_packet:near", "") else {
        return skipped(test, "the capture cannot be opened here");
    };
    let (mut port, mut held) = (0, None);
    assert_eq!(
        // SAFETY: all pointers lead to variables.
        unsafe { weir_sink_open(c"af_packet:far".as_ptr(), &mut port, null_mut()) },
        WEIR_OK
    );
    let packet = next(file, SECOND).unwrap();
    let counts = || {
        let mut counts = weir_counts::default();
        // SAFETY: it leads to counts.
        assert_eq!(unsafe { weir_counts_of(source, &mut counts) }, WEIR_OK);
        counts
    };
    let (begun, mut sent, mut taken) = (Instant::now(), 0, 0);
    while counts().dropped_source == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{sent} sent, {taken} taken: {:?}",
            counts()
        );
        assert_eq!(
            // SAFETY: without a mask all packets are sent.
            unsafe { weir_send(port, packet.lease, null_mut(), null_mut()) },
            WEIR_OK
        );
        sent += 1;
        while let Some(batch) = next(source, SECOND / 50) {
            taken += u64::from(batch.len);
            if held.is_none() {
                held = Some(batch.lease);
            } else {
                assert_eq!(weir_release(batch.lease), WEIR_OK);
            }
        }
    }
    // All that was sent was taken, or is dropped now.
    while counts().dropped_source != sent - taken {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{sent} sent, {taken} taken: {:?}",
            counts()
        );
    }
    let weir_counts {
        received,
        passed,
        held: out,
        is_final,
        ..
    } = counts();
    assert_eq!((received, passed, out, is_final), (sent, taken, 1, 0));
    // Once it is released, packets come again.
    assert_eq!(weir_release(held.unwrap()), WEIR_OK);
    let before = taken;
    while taken == before {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "{sent} sent, {taken} taken"
        );
        assert_eq!(
            // SAFETY: as above.
            unsafe { weir_send(port, packet.lease, null_mut(), null_mut()) },
            WEIR_OK
        );
        sent += 1;
        while let Some(batch) = next(source, SECOND / 50) {
            taken += u64::from(batch.len);
            assert_eq!(weir_release(batch.lease), WEIR_OK);
        }
    }
    assert_eq!(
        (weir_stop(source), weir_release(packet.lease)),
        (WEIR_OK, WEIR_OK)
    );
    while let Some(batch) = next(source, SECOND) {
        taken += u64::from(batch.len);
        assert_eq!(weir_release(batch.lease), WEIR_OK);
    }
    let mut last = weir_counts::default();
    // SAFETY: they lead to counts, or are NULL.
    unsafe {
        assert_eq!(
            (weir_close(source, &mut last), weir_close(file, null_mut())),
            (WEIR_OK, WEIR_OK)
        );
        assert_eq!(weir_sink_close(port, null_mut(), null_mut()), WEIR_OK);
    }
    assert_eq!(
        (
            last.received,
            last.passed,
            last.passed + last.dropped_source
        ),
        (sent, taken, sent)
    );
}

#[test]
fn packets_go_through_a_cable_by_packet_sockets() {
    through_a_cable(
        "packets_go_through_a_cable_by_packet_sockets",
        "af_packet:near",
        "af_packet:far",
    );
}

#[test]
fn packets_go_through_a_cable_by_af_xdp() {
    through_a_cable(
        "packets_go_through_a_cable_by_af_xdp",
        "af_xdp:near:0",
        "af_packet:far",
    );
}
