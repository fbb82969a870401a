//! Chunks against a naive list of what was written, and between threads.
#![cfg(not(loom))]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_memory::chunks::{NotPinned, Pin, Place, chunks};
use weir_memory::{Policy, Request};
use weir_testkit::Random;

/// Sequence number of the chunk in each of its words, so that torn or foreign bytes are seen.
fn content(sequence: u64, words: usize) -> Vec<u8> {
    (0..words as u64)
        .flat_map(|word| (sequence << 16 | word).to_le_bytes())
        .collect()
}

#[test]
fn one_thread_sees_the_latest_chunks() {
    const COUNT: usize = 5;
    let (mut writer, chunks) = chunks(COUNT, 64, 4, &Request::default()).unwrap();
    let mut places = Vec::new();
    chunks.list(&mut places);
    assert!(places.is_empty() && writer.room().is_empty());
    let mut written: VecDeque<(u64, usize, usize)> = VecDeque::new();
    let mut choices = Random(7);
    for sequence in 0..200 {
        assert!(writer.take(0));
        assert_eq!(
            (writer.taken(), writer.room().len(), writer.published()),
            (sequence + 1, 64, (0, 0))
        );
        let (mut front, mut back) = (0, 0);
        for _ in 0..choices.below(4) {
            let room = writer.room();
            let more = (
                choices.below(room.len() / 2 + 1),
                choices.below(room.len() / 2 + 1),
            );
            room[..more.0].fill(sequence as u8);
            let len = room.len();
            room[len - more.1..].fill(!(sequence as u8));
            writer.publish(more.0, more.1);
            (front, back) = (front + more.0, back + more.1);
            assert_eq!(writer.room().len(), 64 - front - back);
        }
        written.push_back((sequence, front, back));
        if written.len() > COUNT {
            written.pop_front();
        }
        chunks.list(&mut places);
        assert!(
            places
                .iter()
                .map(|place| place.sequence)
                .eq(written.iter().map(|chunk| chunk.0))
        );
        for (place, chunk) in places.iter().zip(&written) {
            let hold = chunks.pin(*place, 0).unwrap().hold().unwrap();
            assert_eq!(
                hold.bytes(),
                (
                    &vec![chunk.0 as u8; chunk.1][..],
                    &vec![!(chunk.0 as u8); chunk.2][..]
                )
            );
        }
    }
}

#[test]
fn readers_keep_chunks_until_their_time_and_holds_keep_them_for_good() {
    let (mut writer, chunks) = chunks(3, 8, 3, &Request::default()).unwrap();
    let mut places = Vec::new();
    for _ in 0..3 {
        assert!(writer.take(0));
        let byte = writer.taken() as u8;
        writer.room().fill(byte);
        writer.publish(8, 0);
    }
    chunks.list(&mut places);
    let [first, second, third] = places[..] else {
        panic!("{places:?}")
    };
    let pins = [first, second].map(|place| chunks.pin(place, 10).unwrap());
    // The third chunk is the one being filled: the writer never takes that one.
    assert!(!writer.take(9), "all others are pinned");
    assert!(chunks.pin(third, 10).is_ok());
    let held = pins[0].hold().unwrap();
    assert!(writer.take(10), "the second pin's time is over");
    assert!(pins[1].hold().is_none(), "it was revoked");
    assert_eq!(held.bytes().0, [1; 8]);
    assert!(writer.take(10), "the third chunk is free");
    assert_eq!(chunks.pin(second, 20).unwrap_err(), NotPinned::Emptied);
    assert_eq!(held.bytes().0, [1; 8], "it was not emptied");
    drop(held);
    pins[0].extend(30);
    assert!(writer.take(20), "a chunk is free");
    assert!(pins[0].hold().is_some());
    let all: Vec<_> = (0..2).map(|_| chunks.pin(first, 30)).collect();
    assert_eq!(all[1].as_ref().unwrap_err(), &NotPinned::TooMany);
    drop((pins, all));
    assert_eq!(chunks.pins(), (0, 3));
}

#[test]
fn old_chunks_are_emptied_on_request() {
    let (mut writer, chunks) = chunks(4, 8, 4, &Request::default()).unwrap();
    for byte in 0..3 {
        assert!(writer.take(0));
        writer.room()[0] = byte;
        writer.publish(1, 0);
    }
    assert_eq!(writer.expire(0, |chunk| chunk < 2), 2);
    let mut places = Vec::new();
    let full = |places: &[Place]| {
        let held = |place: &Place| {
            chunks
                .pin(*place, 0)
                .unwrap()
                .hold()
                .unwrap()
                .bytes()
                .0
                .to_vec()
        };
        places
            .iter()
            .map(held)
            .filter(|front| !front.is_empty())
            .collect::<Vec<_>>()
    };
    chunks.list(&mut places);
    assert_eq!(full(&places), [[2]]);
    // The chunk being filled is not asked about.
    assert_eq!(writer.expire(0, |_| true), 0);
    assert!(writer.take(0));
    chunks.list(&mut places);
    let pin = chunks.pin(*places.last().unwrap(), 5).unwrap();
    let _hold: Option<_> = pin.hold();
    assert_eq!(writer.expire(0, |_| true), 1);
    chunks.list(&mut places);
    assert!(full(&places).is_empty());
}

/// Readers of several threads look at random chunks while the writer fills them as fast as it can.
#[test]
fn threads_see_whole_chunks() {
    let (rounds, words) = if cfg!(miri) { (200, 4) } else { (60_000, 256) };
    let request = Request {
        pages: if cfg!(miri) {
            Policy::Auto
        } else {
            Policy::Virtual
        },
        ..Request::default()
    };
    let (mut writer, chunks) = chunks(8, words * 8, 4, &request).unwrap();
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (chunks, done) = (&chunks, &done);
        let readers: Vec<_> = (0..3)
            .map(|seed| {
                scope.spawn(move || {
                    let (mut choices, mut places, mut seen) = (Random(seed), Vec::new(), 0);
                    let mut kept: Vec<Pin> = Vec::new();
                    while !done.load(Ordering::Relaxed) || seen == 0 {
                        chunks.list(&mut places);
                        let Some(&place) = places.get(choices.below(places.len().max(1))) else {
                            continue;
                        };
                        let Ok(pin) = chunks.pin(place, choices.below(rounds) as u64) else {
                            kept.clear();
                            continue;
                        };
                        if let Some(hold) = pin.hold() {
                            let (front, back) = hold.bytes();
                            let expected = content(place.sequence, words);
                            assert!(
                                expected.starts_with(front) && expected.ends_with(back),
                                "chunk {place:?}"
                            );
                            seen += 1;
                        }
                        kept.push(pin);
                        kept.truncate(choices.below(2));
                    }
                    seen
                })
            })
            .collect();
        let (mut choices, mut refused) = (Random(99), 0);
        for now in 0..rounds as u64 {
            if !writer.take(now) {
                refused += 1;
                continue;
            }
            let expected = content(writer.taken() - 1, words);
            let (mut front, mut back) = (0, expected.len());
            while front < back {
                let more = (choices.below(back - front) + 1).min(back - front);
                let behind = choices.below(back - front - more + 1);
                let room = writer.room();
                room[..more].copy_from_slice(&expected[front..front + more]);
                let len = room.len();
                room[len - behind..].copy_from_slice(&expected[back - behind..back]);
                writer.publish(more, behind);
                (front, back) = (front + more, back - behind);
            }
        }
        done.store(true, Ordering::Relaxed);
        let seen: usize = readers
            .into_iter()
            .map(|reader| reader.join().unwrap())
            .sum();
        assert!(seen > 0 && refused < rounds);
    });
    assert_eq!(chunks.pins().0, 0);
}
