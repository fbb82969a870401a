//! Segments that are damaged or cut.

use super::*;

#[test]
fn every_cut_recovers_to_exactly_the_good_prefix() {
    let scratch = Scratch::new();
    let (path, bytes, packets, ends) = unclosed(&scratch);
    // Blocks of another segment, at the same places.
    let old = scratch.path().join("old");
    let (mut recorder, _) = recorder(
        &old,
        Settings {
            block_bytes: 150,
            ..small()
        },
    );
    let mut other = packets.clone();
    other.iter_mut().for_each(|(time, _)| *time += 1);
    write(&mut recorder, &other[..3], 0);
    write(&mut recorder, &other[3..], 3);
    let old = fs::read(&files(&old, "pcapng")[0]).unwrap();
    assert_eq!(old.len(), bytes.len());
    let (mut marks, mut offset) = (Vec::new(), 0);
    for (kind, body) in blocks(&bytes) {
        offset += body.len() + 12;
        marks.extend((kind == 0x8000_0bad).then_some(offset));
    }
    let mut random = Random(9);
    let step = sparse(17);
    for cut in (0..bytes.len()).step_by(step).chain([bytes.len()]) {
        // The zeros inside marks are many, and all alike.
        let filling = bytes[cut.saturating_sub(8)..(cut + 8).min(bytes.len())]
            .iter()
            .all(|&byte| byte == 0);
        if filling && cut % 256 != 0 {
            continue;
        }
        recovers(&scratch, &path, &bytes[..cut], cut, &packets, &ends);
        let mut zeros = bytes[..cut].to_vec();
        zeros.resize(bytes.len(), 0);
        let differs = |other: &[u8]| {
            bytes
                .iter()
                .zip(other)
                .position(|(a, b)| a != b)
                .unwrap_or(bytes.len())
        };
        recovers(&scratch, &path, &zeros, differs(&zeros), &packets, &ends);
        let torn = [&bytes[..cut], &old[cut..]].concat();
        recovers(&scratch, &path, &torn, differs(&torn), &packets, &ends);
        if cut < bytes.len() {
            let mut flipped = bytes.clone();
            flipped[cut] ^= 1 << random.below(8);
            recovers_around(&scratch, &path, &flipped, (cut, &marks), &packets, &ends);
        }
    }
}

#[test]
fn damage_in_a_closed_segment_is_skipped_and_the_rest_stays() {
    let scratch = Scratch::new();
    let packets = packets(500, 4);
    let (mut recorder, _) = recorder(scratch.path(), small());
    write(&mut recorder, &packets, 0);
    recorder.close().unwrap();
    let segment = files(scratch.path(), "pcapng").remove(0);
    let mut bytes = fs::read(&segment).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 4;
    fs::write(&segment, &bytes).unwrap();
    let one_block_less = |indexed: &str| {
        let (found, counts) = read(scratch.path(), Selection::default(), None);
        // Packets of the damaged block are given as they are.
        let changed = packets
            .iter()
            .filter(|packet| !found.contains(packet))
            .count();
        assert!(
            changed <= 1 && found.len() == packets.len(),
            "{indexed}: {changed}"
        );
        assert!(
            (1..40).contains(&counts.unchecked),
            "{indexed}: {}",
            counts.unchecked
        );
        assert_eq!(
            (counts.damaged, counts.damage.unwrap().2),
            (1, Damage::Checksum),
            "{indexed}"
        );
    };
    one_block_less("with an index");
    fs::remove_file(segment.with_extension("index")).unwrap();
    one_block_less("by marks");
    let opened = reindex(scratch.path(), small(), at(0)).unwrap();
    let [recovered] = &opened.recovered[..] else {
        panic!("its index was missing")
    };
    assert_eq!(
        (recovered.cut_bytes, recovered.damaged, recovered.damage),
        (0, 1, Some(Damage::Checksum))
    );
    assert_eq!(fs::read(&segment).unwrap(), bytes);
    let (found, counts) = read(scratch.path(), Selection::default(), None);
    assert!(found.len() > 450);
    // The new index names good blocks only: what it leaves out stays damage.
    assert_eq!(
        (counts.damaged, counts.damage.unwrap().2),
        (1, Damage::LeftOut)
    );
    // A question about another time is answered whole.
    let early = Selection {
        to_ns: Some(packets[20].0),
        ..Selection::default()
    };
    assert_eq!(read(scratch.path(), early, None).1.damaged, 0);
}

#[test]
fn a_segment_without_a_good_mark_is_kept_if_packets_can_be_read_from_it() {
    let scratch = Scratch::new();
    let mut packets = packets(4000, 4);
    packets
        .iter_mut()
        .for_each(|(_, data)| data.resize(1400, 7));
    let (mut recorder, _) = recorder(
        scratch.path(),
        Settings {
            segment_bytes: 64 << 20,
            ..small()
        },
    );
    write(&mut recorder, &packets, 0);
    drop(recorder);
    let segment = files(scratch.path(), "pcapng").remove(0);
    let mut bytes = fs::read(&segment).unwrap();
    let marks: Vec<_> = bytes
        .windows(8)
        .enumerate()
        .filter(|(_, window)| window == b"weirmark")
        .map(|(at, _)| at)
        .collect();
    marks.iter().for_each(|&at| bytes[at + 40] ^= 1);
    assert!(marks.len() > 2 && bytes.len() > 5 << 20);
    fs::write(&segment, &bytes).unwrap();
    let (next, opened) = self::recorder(scratch.path(), small());
    drop(next);
    let [recovered] = &opened.recovered[..] else {
        panic!("its index is missing")
    };
    assert_eq!(
        (recovered.kept_bytes as usize, recovered.cut_bytes),
        (bytes.len(), 0)
    );
    assert!(fs::read(&segment).unwrap() == bytes);
}

/// Each false mark claims the 2 MiB in front of it: checking them all takes minutes, and a query must not.
#[test]
fn false_marks_cost_a_bounded_number_of_checks() {
    let scratch = Scratch::new();
    let packets = packets(50, 4);
    let (mut recorder, _) = recorder(scratch.path(), small());
    write(&mut recorder, &packets, 0);
    drop(recorder);
    let segment = files(scratch.path(), "pcapng").remove(0);
    let mut bytes = fs::read(&segment).unwrap();
    let last = bytes
        .windows(8)
        .rposition(|window| window == b"weirmark")
        .expect("a mark ends the file")
        - 12;
    let mut mark = bytes[last..last + 96].to_vec();
    mark[56..60].copy_from_slice(&(2_u32 << 20).wrapping_sub(4096).to_le_bytes());
    mark[64..72].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    bytes.extend(vec![0x5a; 4 << 20]);
    bytes.extend(mark.repeat(100_000));
    fs::write(&segment, &bytes).unwrap();
    let (found, counts) = read(scratch.path(), Selection::default(), None);
    assert!(packets.iter().all(|packet| found.contains(packet)));
    assert!(counts.damaged >= 1);
}

#[test]
fn a_new_index_keeps_what_the_old_one_knew_of_a_lost_head() {
    let scratch = Scratch::new();
    let packets = packets(500, 4);
    let (mut recorder, _) = recorder(scratch.path(), small());
    write(&mut recorder, &packets, 0);
    recorder.close().unwrap();
    let segment = files(scratch.path(), "pcapng").remove(0);
    let mut bytes = fs::read(&segment).unwrap();
    bytes[..64].fill(0x5a);
    fs::write(&segment, &bytes).unwrap();
    let (before, counts) = read(scratch.path(), Selection::default(), None);
    assert!(before.len() > 450 && counts.damaged == 1);
    reindex(scratch.path(), small(), at(0)).unwrap();
    let (after, counts) = read(scratch.path(), Selection::default(), None);
    assert_eq!((after, counts.damaged), (before, 1));
    // Without any index nothing tells the link type: that is said.
    fs::remove_file(segment.with_extension("index")).unwrap();
    reindex(scratch.path(), small(), at(0)).unwrap();
    let (found, counts) = read(scratch.path(), Selection::default(), None);
    assert_eq!(
        (found.len(), counts.damage.unwrap().2, counts.damaged),
        (0, Damage::LeftOut, 2)
    );
}

#[test]
fn a_segment_that_lost_its_end_is_damaged_and_the_segments_behind_it_are_read() {
    let scratch = Scratch::new();
    let packets = packets(6000, 7);
    let (mut recorder, _) = recorder(scratch.path(), small());
    write(&mut recorder, &packets, 0);
    recorder.close().unwrap();
    let segments = files(scratch.path(), "pcapng");
    assert!(segments.len() > 2);
    let bytes = fs::read(&segments[1]).unwrap();
    for len in [bytes.len() / 2, 10, 0] {
        fs::write(&segments[1], &bytes[..len]).unwrap();
        let (found, counts) = read(scratch.path(), Selection::default(), None);
        assert!(
            counts.damaged > 0 && counts.damage.unwrap().0 == segments[1],
            "{len}"
        );
        assert!(
            found.len() < packets.len()
                && found.first() == packets.first()
                && found.last() == packets.last()
        );
    }
}

#[test]
fn a_segment_that_cannot_be_read_to_its_end_is_named_and_the_next_one_is_read() {
    let scratch = Scratch::new();
    let packets = packets(24_000, 7);
    let (mut recorder, _) = recorder(
        scratch.path(),
        Settings {
            segment_bytes: 3 << 20,
            ..small()
        },
    );
    write(&mut recorder, &packets, 0);
    recorder.close().unwrap();
    let segments = files(scratch.path(), "pcapng");
    assert!(segments.len() > 2);
    let mut reader = Reader::open(scratch.path(), Selection::default(), None).unwrap();
    let mut stream = Vec::new();
    while reader.counts().segments.len() < 2 {
        stream.extend_from_slice(reader.next_bytes().unwrap().unwrap());
    }
    // Its blocks are planned, and the first of them are read.
    fs::write(&segments[1], []).unwrap();
    while let Some(bytes) = reader.next_bytes().unwrap() {
        stream.extend_from_slice(bytes);
    }
    let found = packets_in(&stream);
    let [(path, why)] = &reader.counts().failed[..] else {
        panic!("{:?}", reader.counts().failed)
    };
    assert!(*path == segments[1] && why.contains("reading"), "{why}");
    assert!(found.len() < packets.len() && found.last() == packets.last());
    assert_eq!(found.len() as u64, reader.counts().passed);
}
