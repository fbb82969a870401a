//! Order of the packets of a reader, against a naive sort.

use super::super::testing::*;
use super::super::{PAGE, Settings};
use super::*;
use weir_testkit::{Random, Scratch};

/// The packets that the reader has to yield: those in the order of recording, sorted by time.
fn sorted(mut packets: Vec<Packet>) -> Vec<Packet> {
    packets.sort_by_key(|packet| packet.0);
    packets
}

fn tiny() -> Settings {
    Settings {
        segment_bytes: 256 << 10,
        ..small()
    }
}

/// Records packets in a session of its own.
fn session(dir: &Path, packets: &[Packet]) {
    let (mut recorder, _) = recorder(dir, tiny());
    write(&mut recorder, packets, 0);
    recorder.close().unwrap();
}

/// Packets of which each is up to `back_ns` earlier than in order.
fn shuffled(count: usize, seed: u64, back_ns: i64) -> Vec<Packet> {
    let mut random = Random(seed);
    let mut packets = packets(count, seed);
    for packet in &mut packets {
        packet.0 -= random.below(back_ns as usize + 1) as i64;
    }
    packets
}

#[test]
fn packets_come_in_the_order_of_their_times_across_blocks_segments_and_sessions() {
    for (seed, back_ms) in [(1, 0), (2, 3), (3, 200), (4, 5000)] {
        let scratch = Scratch::new();
        let dir = scratch.path();
        // The second session is of the time before the first one; the third one overlaps both, and its clock is set back.
        let mut all = shuffled(6000, seed, back_ms * 1_000_000);
        let late: Vec<Packet> = all.split_off(3000);
        let mut third = shuffled(4000, seed + 10, back_ms * 1_000_000);
        for packet in &mut third[2000..] {
            packet.0 -= 3_600_000_000_000;
        }
        session(dir, &late);
        session(dir, &all);
        session(dir, &third);
        assert!(files(dir, "pcapng").len() > 4, "several segments each");
        let expected = sorted([late, all, third].concat());
        let (found, counts) = read(dir, Selection::default(), None);
        assert!(found == expected, "back by {back_ms} ms");
        assert_eq!((counts.late, counts.passed), (0, expected.len() as u64));
        // A part of the time, without the indexes too.
        let selection = Selection {
            from_ns: Some(START_NS + 500_000_000),
            to_ns: Some(START_NS + 2_500_000_000),
            ..Selection::default()
        };
        let mut part = expected.clone();
        part.retain(|packet| selection.wants(packet.0));
        for _ in 0..2 {
            assert!(
                read(dir, selection.clone(), None).0 == part,
                "back by {back_ms} ms"
            );
            files(dir, "index")
                .iter()
                .for_each(|index| std::fs::remove_file(index).unwrap());
        }
    }
}

#[test]
fn packets_of_one_time_come_in_the_order_of_recording() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    let mut all = packets(5000, 7);
    all.iter_mut().for_each(|packet| packet.0 = START_NS + 5);
    session(dir, &all[..2500]);
    session(dir, &all[2500..]);
    assert!(read_all(dir) == all);
}

#[test]
fn what_overlaps_by_more_than_is_kept_comes_late_and_is_counted() {
    let scratch = Scratch::new();
    let dir = scratch.path();
    // In each block of 4 KiB a packet of the very beginning and one of the end.
    let mut all = packets(20_000, 8);
    for (number, packet) in all.iter_mut().enumerate() {
        packet.0 = if number % 2 == 0 {
            START_NS + number as i64
        } else {
            START_NS + 1_000_000_000_000 - number as i64
        };
    }
    session(dir, &all);
    let mut reader = Reader::open(dir, Selection::default(), None).unwrap();
    reader.order = Order::with_room(64 * PAGE);
    let mut bytes = Vec::new();
    while let Some(more) = reader.next_bytes().unwrap() {
        bytes.extend_from_slice(more);
    }
    let found = packets_in(&bytes);
    let (mut greatest, mut late) = (0, 0);
    for packet in &found {
        late += u64::from(packet.0 < greatest);
        greatest = greatest.max(packet.0);
    }
    assert!(
        late > 0 && reader.counts().late == late,
        "{late} and {}",
        reader.counts().late
    );
    assert!(sorted(found) == sorted(all));
}

/// Two segments whose files have changed names are what they say they are: each range of times is read, and nothing calls them damaged.
#[test]
fn segments_that_changed_names_are_read_as_what_they_say() {
    for with_indexes in [false, true] {
        let scratch = Scratch::new();
        let dir = scratch.path();
        let all = packets(6000, 5);
        session(dir, &all);
        let segments = files(dir, "pcapng");
        assert!(segments.len() > 3);
        let swap = |end: &str| {
            let [a, b] = [&segments[0], &segments[2]].map(|path| path.with_extension(end));
            let aside = dir.join("aside");
            std::fs::rename(&a, &aside).unwrap();
            std::fs::rename(&b, &a).unwrap();
            std::fs::rename(&aside, &b).unwrap();
        };
        swap("pcapng");
        if with_indexes {
            swap("index");
        }
        let is_right = || {
            let selection = Selection {
                from_ns: Some(all[100].0),
                to_ns: Some(all[200].0),
                ..Selection::default()
            };
            let mut part = all.clone();
            part.retain(|packet| selection.wants(packet.0));
            for (selection, right) in [(Selection::default(), &all), (selection, &part)] {
                let (found, counts) = read(dir, selection, None);
                assert!(found == *right, "{} of {}", found.len(), right.len());
                assert_eq!((counts.damaged, counts.unchecked, counts.late), (0, 0, 0));
                let lost = counts.lost;
                assert_eq!((lost.packets, lost.until_ns), (0, None));
                assert!(lost.gone.is_empty() && lost.killed.is_empty());
            }
        };
        is_right();
        super::super::reindex(dir, tiny(), at(0)).unwrap();
        is_right();
        assert!(
            read(dir, Selection::default(), None)
                .1
                .segments
                .iter()
                .all(|segment| segment.index == IndexUse::Used)
        );
        // A copy beside its segment is no second segment.
        let copy = segments[1].with_file_name("20990101T000000.000000000Z-000099.pcapng");
        std::fs::copy(&segments[1], copy).unwrap();
        assert!(read_all(dir) == all);
    }
}

/// A segment that somebody emptied is damage, and says nothing of its recorder, which has ended.
#[test]
fn an_emptied_segment_is_no_recorder_that_was_killed() {
    for which in [0, 1, 2] {
        let scratch = Scratch::new();
        let dir = scratch.path();
        session(dir, &packets(6000, 6));
        let segments = files(dir, "pcapng");
        let emptied = [0, 1, segments.len() - 1][which];
        std::fs::write(&segments[emptied], []).unwrap();
        let (_, counts) = read(dir, Selection::default(), None);
        assert!(counts.damaged > 0);
        assert_eq!(counts.lost.until_ns, None, "segment {emptied}");
        super::super::reindex(dir, tiny(), at(0)).unwrap();
        let (_, counts) = read(dir, Selection::default(), None);
        assert_eq!(
            counts.lost.until_ns, None,
            "segment {emptied} with indexes anew"
        );
    }
}
