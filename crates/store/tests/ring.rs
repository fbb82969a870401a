//! The ring of packets against a naive list of what was written, in one thread and between threads.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_filter::{Filter, Names, interpreter};
use weir_packet::savefile::{Interface, Record, Resolution};
use weir_packet::{Frame, LinkType};
use weir_store::record::{MAX_CAPTURED, Shape};
use weir_store::ring::{Cursor, Filters, From, Merged, Refused, Scan, Settings, ring};
use weir_testkit::Random;

fn interface(link: LinkType) -> Interface {
    Interface::plain(link, 0, Resolution::NANOSECOND)
}

/// A UDP packet over IPv4 whose last bytes are its number.
fn packet(number: u64, len: usize, port: u16) -> Vec<u8> {
    let mut data = vec![0; len.max(60)];
    data[12..14].copy_from_slice(&[8, 0]);
    data[14] = 0x45;
    data[23] = 17;
    data[30..34].copy_from_slice(&[10, 0, 0, (number % 5) as u8]);
    data[36..38].copy_from_slice(&port.to_be_bytes());
    let end = data.len();
    data[end - 8..].copy_from_slice(&number.to_le_bytes());
    data
}

fn number(frame: &Frame<'_>) -> u64 {
    u64::from_le_bytes(*frame.data.last_chunk().unwrap())
}

fn record(data: &[u8], interface: u32, time_ns: Option<i64>) -> Record<'_> {
    Record {
        time_ns,
        frame: Frame {
            data,
            wire_len: data.len() as u32 + 4,
            interface,
        },
        options: Default::default(),
    }
}

/// A packet as it was written: time, bytes, wire length, interface.
type Written = (Option<i64>, Vec<u8>, u32, u32);

fn written(record: &Record<'_>) -> Written {
    (
        record.time_ns,
        record.frame.data.to_vec(),
        record.frame.wire_len,
        record.frame.interface,
    )
}

fn settings(shape: Shape) -> Settings {
    Settings {
        bytes: 4 << 20,
        shape,
        ..Settings::default()
    }
}

fn shapes() -> Vec<Shape> {
    [
        (1, false),
        (8, false),
        (4, true),
        (64, false),
        (64, true),
        (128, false),
    ]
    .map(|(align, pad)| Shape::new(align, pad).unwrap())
    .into()
}

/// Several cursors, of which some stop for long, get every packet that is still there, in order, and count all others.
#[test]
fn cursors_get_what_is_there_and_count_what_is_gone() {
    for (seed, shape) in shapes().into_iter().enumerate() {
        let (mut writer, history) = ring(&settings(shape)).unwrap();
        let ids = [LinkType::ETHERNET, LinkType::LINUX_SLL2]
            .map(|link| writer.interface(&interface(link)).unwrap());
        assert_eq!(
            writer.interface(&interface(LinkType::ETHERNET)),
            Some(ids[0])
        );
        let mut choices = Random(seed as u64);
        let mut all: Vec<Written> = Vec::new();
        let mut cursors: Vec<(Cursor, u64, u64)> = [From::Oldest, From::Number(0), From::Time(0)]
            .map(|from| (history.cursor(from), 0, 0))
            .into();
        let (mut now, mut published) = (0, 0);
        for _ in 0..400 {
            now += choices.below(1_000_000_000) as u64;
            for _ in 0..choices.below(60) {
                let len = if choices.below(300) == 0 {
                    MAX_CAPTURED
                } else {
                    choices.below(3000)
                };
                let data = packet(all.len() as u64, len, 53);
                // Times go back now and then, some are far away, some are missing.
                let time_ns = match choices.below(50) {
                    0 => None,
                    1 => Some(i64::MIN),
                    2 => Some(i64::MAX),
                    _ => Some(
                        1_700_000_000_000_000_000 + (all.len() as i64 * 1000)
                            - choices.below(5000) as i64,
                    ),
                };
                let packet = record(&data, ids[choices.below(2)], time_ns);
                if writer.append(&packet, now) {
                    all.push(written(&packet));
                }
            }
            if choices.below(4) != 0 {
                writer.publish();
                published = all.len() as u64;
                assert_eq!(history.next(), published);
            }
            for (cursor, next, missed) in &mut cursors {
                // The cursor that is slow loses its pins meanwhile.
                if choices.below(3) == 0 || choices.below(40) != 0 && *missed % 2 == 1 {
                    continue;
                }
                while let Some(piece) = cursor.next(now) {
                    for index in 0..piece.len() {
                        let number = piece.number(index);
                        assert!(number >= *next, "each packet comes once, in order");
                        *missed += number - *next;
                        *next = number + 1;
                        assert!(
                            written(&piece.record(index)) == all[number as usize],
                            "packet {number}"
                        );
                    }
                    assert!(*next <= all.len() as u64);
                }
            }
        }
        writer.publish();
        for (cursor, next, missed) in &mut cursors {
            while let Some(piece) = cursor.next(now) {
                *missed += piece.number(0) - *next;
                *next = piece.number(piece.len() - 1) + 1;
            }
            assert_eq!(*next, all.len() as u64, "published: {published}");
            // Packets that were gone before its begin are not missed, unless it began at a number.
            assert!(cursor.missed() <= *missed && cursor.starved() == 0);
        }
        assert_eq!(cursors[1].0.missed(), cursors[1].2);
        assert_eq!(
            writer.refused(),
            Refused {
                no_room: 0,
                too_long: 0
            }
        );
        let held = history.held();
        assert!(
            held.packets > 100 && held.packets < all.len() as u64,
            "{held:?}"
        );
        let last = &all[all.len() - held.packets as usize..];
        let times = || last.iter().filter_map(|packet| packet.0);
        assert_eq!(
            held.times_ns,
            Some((times().min().unwrap(), times().max().unwrap()))
        );
    }
}

/// The slow cursor above loses some; this one loses all but the last chunks.
#[test]
fn a_cursor_that_was_away_counts_every_packet_it_missed() {
    let (mut writer, history) = ring(&settings(Shape::default())).unwrap();
    let id = writer.interface(&interface(LinkType::ETHERNET)).unwrap();
    let mut cursor = history.cursor(From::Number(0));
    let data = packet(0, 1500, 53);
    for round in 0..20_000u64 {
        assert!(writer.append(&record(&data, id, Some(round as i64)), 0));
        if round == 100 {
            writer.publish();
            assert_eq!(cursor.next(0).unwrap().len(), 101);
        }
    }
    writer.publish();
    // Its chunk is still pinned: its time has not passed. So the rest of that chunk is not missed.
    let rest = cursor.next(1_000_000_000).unwrap();
    assert_eq!((rest.number(0), cursor.missed()), (101, 0));
    drop(rest);
    let mut seen = 0;
    let mut last = 0;
    while let Some(piece) = cursor.next(1_000_000_000) {
        seen += piece.len() as u64;
        last = piece.number(piece.len() - 1);
    }
    assert_eq!(last, 19_999);
    let first_chunk = 64 * (1 << 20) / 64 / 1536;
    assert!(
        cursor.missed() > 10_000 && seen + cursor.missed() + first_chunk >= 19_000,
        "{seen} {}",
        cursor.missed()
    );
}

#[test]
fn a_ring_that_readers_use_up_drops_and_counts() {
    let (mut writer, history) = ring(&Settings {
        bytes: 2 << 20,
        max_pins: Some(2),
        ..Settings::default()
    })
    .unwrap();
    let id = writer.interface(&interface(LinkType::ETHERNET)).unwrap();
    let data = packet(7, 1500, 53);
    let mut cursors = [history.cursor(From::Oldest), history.cursor(From::Oldest)];
    let mut pieces = Vec::new();
    let (mut taken, mut tried) = (0, 0);
    for round in 0..3000 {
        tried += 1;
        taken += u64::from(writer.append(&record(&data, id, Some(round)), 0));
        writer.publish();
        if round == 0 || taken == 1200 && pieces.len() == 1 {
            // One chunk is held by each.
            pieces.extend(cursors[pieces.len()].next(0));
        }
        while pieces.len() == 2 && cursors[1].next(0).is_some() {}
    }
    assert!(taken < 3000);
    assert_eq!(
        (writer.refused().no_room, writer.next()),
        (tried - taken, taken)
    );
    assert_eq!(
        (number(&pieces[0].frame(0)), pieces[0].number(0)),
        (7, 0),
        "it is still there"
    );
    // A third reader may pin nothing.
    let mut third = history.cursor(From::Oldest);
    assert!(third.next(0).is_none());
    assert_eq!((third.starved(), history.pins()), (1, (2, 2)));
    drop((pieces, cursors));
    assert!(third.next(0).is_some());
    drop(third);
    assert!(
        (0..2000).all(|_| writer.append(&record(&data, id, None), 0)),
        "there is room again"
    );
    let long = vec![0; MAX_CAPTURED + 1];
    assert!(!writer.append(&record(&long, id, None), 0));
    assert_eq!(writer.refused().too_long, 1);
}

/// One thread reads with many cursors, in steps, while few chunks may be kept: each cursor gets each packet.
#[test]
fn cursors_that_rest_need_one_pin_together() {
    let (mut writer, history) = ring(&Settings {
        bytes: 4 << 20,
        max_pins: Some(1),
        ..Settings::default()
    })
    .unwrap();
    let id = writer.interface(&interface(LinkType::ETHERNET)).unwrap();
    let begins = [From::Oldest, From::Number(0), From::Time(0)];
    let mut cursors: Vec<_> = (0..12)
        .map(|index| (history.cursor(begins[index % 3]), 0))
        .collect();
    for number in 0..20_000u64 {
        let data = packet(number, 1400, 53);
        assert!(writer.append(&record(&data, id, Some(number as i64)), 0));
        if number % 97 != 0 && number != 19_999 {
            continue;
        }
        writer.publish();
        for (cursor, seen) in &mut cursors {
            while let Some(piece) = cursor.next(0) {
                assert_eq!(piece.number(0), *seen);
                *seen += piece.len() as u64;
            }
            cursor.rest();
            assert_eq!(
                (*seen, cursor.number(), cursor.starved()),
                (number + 1, Some(number + 1), 0)
            );
        }
        assert_eq!(history.pins().0, 0);
    }
    // What the writer takes while a cursor rests is missed, and counted.
    let (cursor, seen) = &mut cursors[2];
    for number in 20_000..30_000u64 {
        writer.append(
            &record(&packet(number, 1400, 53), id, Some(number as i64)),
            0,
        );
    }
    writer.publish();
    let mut got = 0;
    while let Some(piece) = cursor.next(0) {
        got += piece.len() as u64;
    }
    assert!(
        cursor.missed() > 0 && *seen + got + cursor.missed() == 30_000,
        "{got} {}",
        cursor.missed()
    );
}

#[test]
fn packets_leave_when_they_are_too_old() {
    let (mut writer, history) = ring(&settings(Shape::default())).unwrap();
    let id = writer.interface(&interface(LinkType::ETHERNET)).unwrap();
    let data = packet(0, 1500, 53);
    for second in 0..2000 {
        writer.arrive(second);
        writer.append(&record(&data, id, Some(second)), 0);
    }
    writer.publish();
    let before = history.held();
    assert_eq!(
        (before.packets, before.times_ns, before.span_ns()),
        (2000, Some((0, 1999)), 1999)
    );
    writer.expire(1000, 0);
    let held = history.held();
    let (earliest, latest) = held.times_ns.unwrap();
    // Chunks leave whole: the one that holds 1000 stays.
    assert!(
        earliest > 0
            && earliest <= 1000
            && latest == 1999
            && held.packets == 2000 - earliest as u64,
        "{held:?}"
    );
    // The chunk that is being filled leaves as well.
    writer.expire(5000, 0);
    assert_eq!(history.held(), weir_store::ring::Held::default());
    assert!(history.cursor(From::Oldest).next(0).is_none());
    let mut cursor = history.cursor(From::Number(0));
    assert!(writer.append(&record(&data, id, Some(6000)), 0));
    writer.publish();
    assert_eq!(cursor.next(0).unwrap().number(0), 2000);
    assert_eq!((cursor.missed(), history.held().packets), (2000, 1));
}

/// A stamp of 2106 keeps nothing, and one of 1970 lets nothing leave: packets are as old as their arrival.
#[test]
fn stamps_do_not_age_packets() {
    for stamp in [0, 1999, u32::MAX.into()] {
        let (mut writer, history) = ring(&settings(Shape::default())).unwrap();
        let id = writer.interface(&interface(LinkType::ETHERNET)).unwrap();
        let data = packet(0, 1500, 53);
        for second in 0..2000 {
            writer.arrive(second);
            writer.append(
                &record(
                    &data,
                    id,
                    Some(if second % 100 == 7 { stamp } else { 1000 }),
                ),
                0,
            );
        }
        writer.publish();
        writer.expire(0, 0);
        assert_eq!(history.held().packets, 2000);
        writer.expire(1000, 0);
        let held = history.held().packets;
        assert!((1000..1700).contains(&held), "{stamp}: {held}");
        writer.expire(2000, 0);
        assert_eq!(history.held().packets, 0, "{stamp}");
    }
}

#[test]
fn a_scan_behind_tags_finds_tagged_copies_of_what_it_finds_without() {
    let (mut writer, history) = ring(&settings(Shape::default())).unwrap();
    let id = writer.interface(&interface(LinkType::ETHERNET)).unwrap();
    for index in 0..300u64 {
        let mut data = packet(index, 100, 53 + (index % 3) as u16);
        // Without a tag, with one, two, three.
        (0..index / 3 % 4).for_each(|_| drop(data.splice(12..12, [0x81, 0, 0, 7])));
        writer.append(&record(&data, id, Some(index as i64)), 0);
    }
    writer.publish();
    let found = |filters: Filters| {
        let mut scan = Scan::new(&history, None, Some(Arc::new(filters)), i64::MIN..=i64::MAX);
        let mut found = Vec::new();
        while let Some(matches) = scan.next(0) {
            found.extend(
                matches
                    .found
                    .iter()
                    .map(|&index| matches.piece.number(index as usize)),
            );
        }
        found
    };
    let wanted = |tags| {
        (0..300)
            .filter(|index| index % 3 == 1 && index / 3 % 4 <= tags)
            .collect::<Vec<u64>>()
    };
    let interfaces = history.interfaces();
    assert_eq!(
        found(Filters::compile("udp dst port 54", &interfaces, &Names::NONE).unwrap()),
        wanted(0)
    );
    assert_eq!(
        found(Filters::compile_behind_tags("udp dst port 54", &interfaces, &Names::NONE).unwrap()),
        wanted(2)
    );
}

/// The scan against the interpreter over the naive list, with times and from a number on.
#[test]
fn a_scan_finds_what_the_interpreter_finds() {
    for shape in shapes() {
        let (mut writer, history) = ring(&settings(shape)).unwrap();
        let ids = [LinkType::ETHERNET, LinkType::RAW]
            .map(|link| writer.interface(&interface(link)).unwrap());
        let mut choices = Random(3);
        let mut all = Vec::new();
        for index in 0..1500i64 {
            let data = packet(
                index as u64,
                60 + choices.below(1400),
                53 + choices.below(3) as u16,
            );
            let id = choices.below(20) / 19;
            // On the link without headers the packet begins with its IP header.
            let data = if id == 1 { data[14..].to_vec() } else { data };
            let packet = record(&data, ids[id], (index % 100 != 0).then_some(index));
            writer.append(&packet, 0);
            all.push(written(&packet));
        }
        writer.publish();
        for expression in [
            "",
            "udp dst port 53",
            "host 10.0.0.3 and udp port 54",
            "ether proto 0x800",
            "tcp",
        ] {
            let filters = Arc::new(
                Filters::compile(expression, &history.interfaces(), &Names::NONE).unwrap(),
            );
            let programs = [LinkType::ETHERNET, LinkType::RAW]
                .map(|link| Filter::compile(expression, link, false).ok());
            for (from, times) in [
                (None, i64::MIN..=i64::MAX),
                (Some(700), i64::MIN..=i64::MAX),
                (None, 200..=1200),
                (Some(300), 0..=900),
            ] {
                let naive: Vec<u64> = (0..all.len() as u64)
                    .filter(|&index| {
                        let (time_ns, data, wire_len, interface) = &all[index as usize];
                        let matches =
                            programs[*interface as usize]
                                .as_ref()
                                .is_some_and(|filter| {
                                    interpreter::run(filter.program(), data, *wire_len) != 0
                                });
                        matches
                            && time_ns.is_none_or(|time| times.contains(&time))
                            && index >= from.unwrap_or(0)
                    })
                    .collect();
                let mut scan = Scan::new(&history, from, Some(Arc::clone(&filters)), times);
                let mut found = Vec::new();
                while let Some(matches) = scan.next(0) {
                    found.extend(
                        matches
                            .found
                            .iter()
                            .map(|&index| matches.piece.number(index as usize)),
                    );
                }
                assert_eq!(found, naive, "'{expression}' {shape}");
            }
        }
        assert!(Filters::compile("no such thing", &history.interfaces(), &Names::NONE).is_err());
    }
}

/// Times of the packets that a scan finds now, ns.
fn times(scan: &mut Scan) -> Vec<i64> {
    let mut found = Vec::new();
    while let Some(matches) = scan.next(0) {
        found.extend(matches.records().filter_map(|record| record.time_ns));
        scan.reuse(matches);
    }
    found
}

#[test]
fn a_scan_takes_up_interfaces_that_come_after_its_begin() {
    let (mut writer, history) = ring(&settings(Shape::PACKED)).unwrap();
    let ethernet = writer.interface(&interface(LinkType::ETHERNET)).unwrap();
    let filters =
        Arc::new(Filters::compile("udp dst port 53", &history.interfaces(), &Names::NONE).unwrap());
    let (ours, other) = (packet(0, 100, 53), packet(0, 100, 80));
    writer.append(&record(&ours, ethernet, Some(1)), 0);
    writer.publish();
    let scan = || {
        Scan::new(
            &history,
            None,
            Some(Arc::clone(&filters)),
            i64::MIN..=i64::MAX,
        )
    };
    let (mut ending, mut following) = (scan(), scan().following());
    let raw = writer.interface(&interface(LinkType::RAW)).unwrap();
    for (data, id, time_ns) in [
        (&other[14..], raw, 2),
        (&ours[14..], raw, 3),
        (&ours[..], ethernet, 4),
    ] {
        writer.append(&record(data, id, Some(time_ns)), 0);
    }
    writer.publish();
    assert_eq!(
        (times(&mut ending), times(&mut following)),
        (vec![1], vec![1, 3, 4])
    );
    writer.append(&record(&ours, ethernet, Some(5)), 0);
    writer.publish();
    assert_eq!(
        (times(&mut ending), times(&mut following)),
        (vec![], vec![5])
    );
}

#[test]
fn a_scan_misses_only_packets_that_are_part_of_it() {
    let (mut writer, history) = ring(&settings(Shape::PACKED)).unwrap();
    writer.interface(&interface(LinkType::ETHERNET)).unwrap();
    let data = packet(0, 1400, 53);
    let mut write = |packets: u64| {
        (0..packets).for_each(|_| assert!(writer.append(&record(&data, 0, Some(0)), 0)));
        writer.publish();
    };
    write(100);
    let [mut late, mut following] =
        [20, 30].map(|from| Scan::new(&history, Some(from), None, i64::MIN..=i64::MAX));
    following = following.following();
    // The ring goes around several times.
    write(20_000);
    assert_eq!((times(&mut late).len(), late.missed()), (0, 80));
    let seen = times(&mut following).len() as u64;
    assert_eq!(
        (following.missed() + seen, seen),
        (20_070, history.held().packets)
    );
}

/// A scan whose packets have all left does not say that it missed nothing.
#[test]
fn a_scan_misses_packets_behind_which_there_are_none() {
    let (mut writer, history) = ring(&settings(Shape::PACKED)).unwrap();
    writer.interface(&interface(LinkType::ETHERNET)).unwrap();
    let data = packet(0, 1400, 53);
    (0..100).for_each(|_| assert!(writer.append(&record(&data, 0, Some(0)), 0)));
    writer.publish();
    let mut scan = Scan::new(&history, Some(20), None, i64::MIN..=i64::MAX);
    // They arrived at 0.
    writer.expire(1, 0);
    assert_eq!((times(&mut scan).len(), scan.missed()), (0, 80));
    assert!(writer.append(&record(&data, 0, Some(2)), 0));
    writer.publish();
    assert_eq!((times(&mut scan).len(), scan.missed()), (0, 80));
}

#[test]
fn chunks_without_times_are_part_of_every_scan() {
    let (mut writer, history) = ring(&settings(Shape::PACKED)).unwrap();
    writer.interface(&interface(LinkType::ETHERNET)).unwrap();
    let data = packet(0, 1400, 53);
    // More than a chunk without times lies in front of those with times.
    for time_ns in (0..2000).map(|number| (number >= 1500).then_some(number)) {
        assert!(writer.append(&record(&data, 0, time_ns), 0));
    }
    writer.publish();
    let mut scan = Scan::new(&history, None, None, 1800..=i64::MAX);
    let mut found = 0;
    while let Some(matches) = scan.next(0) {
        found += matches.found.len();
    }
    assert_eq!(found, 1700);
}

#[test]
fn several_rings_are_merged_by_time() {
    let mut choices = Random(11);
    let (mut writers, mut histories): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| ring(&settings(Shape::PACKED)).unwrap())
        .unzip();
    let mut expected = Vec::new();
    for writer in &mut writers {
        writer.interface(&interface(LinkType::ETHERNET)).unwrap();
    }
    for time_ns in 0..3000 {
        let ring = choices.below(3);
        let data = packet(time_ns, 100, 53);
        writers[ring].append(&record(&data, 0, Some(time_ns as i64 / 2)), 0);
        expected.push((ring, time_ns));
    }
    writers
        .iter_mut()
        .for_each(weir_store::ring::Writer::publish);
    // Packets of one time come in the order of the rings.
    expected.sort_by_key(|&(ring, time)| (time / 2, ring));
    histories.rotate_left(0);
    let scans = histories
        .iter()
        .map(|history| Scan::new(history, None, None, i64::MIN..=i64::MAX));
    let mut merged = Merged::new(scans);
    let mut found = Vec::new();
    while let Some(next) = merged.next(0, |ring, _, record| (ring, number(&record.frame))) {
        found.push(next);
    }
    assert_eq!(found, expected);
    assert_eq!(merged.missed(), 0);
}

/// Cursors and scans in threads of their own, while the writer goes as fast as it can: whole packets only, in order, and what is not
/// seen is counted.
#[test]
fn threads_see_whole_packets_and_the_account_adds_up() {
    const PACKETS: u64 = 300_000;
    let (mut writer, history) = ring(&settings(Shape::default())).unwrap();
    writer.interface(&interface(LinkType::ETHERNET)).unwrap();
    let (done, clock) = (AtomicBool::new(false), std::time::Instant::now());
    let now = || clock.elapsed().as_nanos() as u64;
    std::thread::scope(|scope| {
        let (history, done) = (&history, &done);
        let follower = scope.spawn(move || {
            let mut cursor = history.cursor(From::Number(0));
            let (mut seen, mut next) = (0, 0);
            loop {
                let ended = done.load(Ordering::Acquire);
                let Some(piece) = cursor.next(now()) else {
                    if ended {
                        break;
                    }
                    std::thread::yield_now();
                    continue;
                };
                for index in 0..piece.len() {
                    assert!(piece.number(index) >= next);
                    next = piece.number(index) + 1;
                    assert_eq!(number(&piece.frame(index)), piece.number(index));
                    seen += 1;
                }
            }
            (seen, cursor.missed())
        });
        let scanner = scope.spawn(move || {
            let filters = Arc::new(
                Filters::compile("dst host 10.0.0.3", &history.interfaces(), &Names::NONE).unwrap(),
            );
            let mut scans = 0;
            while !done.load(Ordering::Relaxed) {
                let mut scan = Scan::new(
                    history,
                    None,
                    Some(Arc::clone(&filters)),
                    i64::MIN..=i64::MAX,
                );
                let mut before = None;
                while let Some(matches) = scan.next(now()) {
                    for &index in &matches.found {
                        let frame = matches.piece.frame(index as usize);
                        assert_eq!(number(&frame) % 5, 3);
                        assert!(before < Some(number(&frame)));
                        before = Some(number(&frame));
                    }
                }
                scans += 1;
            }
            scans
        });
        let mut queue: VecDeque<Vec<u8>> = (0..64)
            .map(|index| packet(index, 60 + 20 * index as usize, 53))
            .collect();
        for index in 0..PACKETS {
            let mut data = queue.pop_front().unwrap();
            let end = data.len();
            data[33] = (index % 5) as u8;
            data[end - 8..].copy_from_slice(&index.to_le_bytes());
            assert!(writer.append(&record(&data, 0, Some(index as i64)), now()));
            queue.push_back(data);
            if index % 32 == 31 {
                writer.publish();
            }
        }
        writer.publish();
        done.store(true, Ordering::Release);
        let (seen, missed) = follower.join().unwrap();
        assert_eq!(seen + missed, PACKETS);
        assert!(scanner.join().unwrap() > 0);
    });
    assert_eq!(history.pins().0, 0);
}
