//! Losses while a record was made, as its segments tell them.

use super::index::Entry;
use std::collections::BTreeMap;
use weir_packet::savefile::{InterfaceStats, Statistics};

/// Packets that a record lacks, as its segments tell.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lost {
    /// Packets lost before they were on disk, between the times.
    pub packets: u64,
    /// Times of the first and the last count, ns since 1970; `None` if nothing was counted.
    pub between_ns: Option<(i64, i64)>,
    /// Whether some of the packets may have been lost outside the wanted times.
    pub at_most: bool,
    /// Time of the last count, ns since 1970, of a recording that counted no more after it: it was
    /// killed, or it still goes on.
    pub until_ns: Option<i64>,
    /// Earlier recordings that were killed, in the order of recording.
    pub killed: Vec<Killed>,
    /// Segments that are not there any more, between two that are.
    pub gone: Vec<Gone>,
}

/// A recording that was killed: packets that it lost between these times are not counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Killed {
    /// Time of its last count, ns since 1970.
    pub from_ns: i64,
    /// Time at which the next recording began, ns since 1970.
    pub to_ns: i64,
}

/// Segments that are not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Generation of the first missing segment.
    pub generation: u64,
    /// Number of segments.
    pub segments: u64,
    /// Packets in them, at most; `None` if the segments around them are of different recordings.
    pub at_most: Option<u64>,
}

/// Counts in one segment. Interfaces are named by their ids in the stream of the reader.
#[derive(Debug)]
pub(super) struct SegmentCounts {
    /// Least and greatest time of its packets; the least is greater without packets.
    times: (i64, i64),
    /// Number of its first packet, and the one after its last.
    numbers: (u64, u64),
    first: BTreeMap<u32, Statistics>,
    last: BTreeMap<u32, Statistics>,
    /// Whether the reader takes packets of it: it is within the wanted times, and not only next to
    /// them.
    is_wanted: bool,
}

impl SegmentCounts {
    /// Takes the blocks of a segment.
    pub(super) fn new(blocks: &[Entry], is_wanted: bool) -> Self {
        let with_packets = || {
            blocks
                .iter()
                .map(|entry| entry.block)
                .filter(|block| block.packets > 0)
        };
        let least = with_packets()
            .map(|block| block.min_ns)
            .min()
            .unwrap_or(i64::MAX);
        let greatest = with_packets()
            .map(|block| block.max_ns)
            .max()
            .unwrap_or(i64::MIN);
        let behind = |entry: &Entry| entry.block.first.saturating_add(entry.block.packets.into());
        let numbers = (
            blocks.first().map_or(0, |entry| entry.block.first),
            blocks.last().map_or(0, behind),
        );
        Self {
            times: (least, greatest),
            numbers,
            first: BTreeMap::new(),
            last: BTreeMap::new(),
            is_wanted,
        }
    }

    /// Takes the next statistics of the segment.
    pub(super) fn take(&mut self, ids: &[u32], stats: &InterfaceStats) {
        let Some(&id) = ids.get(stats.interface as usize) else {
            return;
        };
        self.first.entry(id).or_insert(stats.counts);
        self.last.insert(id, stats.counts);
    }

    /// Times of the packets; without packets, the times of the counts.
    fn around(&self) -> (i64, i64) {
        if self.times.0 <= self.times.1 {
            return self.times;
        }
        let times =
            |counts: &BTreeMap<u32, Statistics>| counts.values().map(|counts| counts.time_ns).max();
        (
            times(&self.first).unwrap_or(0),
            times(&self.last).unwrap_or(0),
        )
    }

    /// The latest count, by which the segment ends.
    fn latest(&self) -> Option<(u32, Statistics)> {
        let latest = self.last.iter().max_by_key(|(_, counts)| counts.time_ns);
        latest.map(|(&id, &counts)| (id, counts))
    }

    /// Start of the run that made the segment; `None` if it tells none.
    fn run(&self) -> Option<i64> {
        self.last.values().find_map(|counts| counts.start_ns)
    }
}

/// Counts in the segments, each with its generation, by their numbers in the order of recording.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) told: BTreeMap<usize, (u64, SegmentCounts)>,
    /// Number of segments.
    pub(super) segments: usize,
    /// Numbers of the empty segments, and their generations.
    pub(super) empty: BTreeMap<usize, u64>,
}

/// Result of [`Ledger::sum`].
#[derive(Debug, Default)]
pub(super) struct Total {
    pub(super) lost: Lost,
    /// Counts of each interface for the stream.
    pub(super) by_interface: BTreeMap<u32, Statistics>,
    /// An interface of each recording that was killed, in the order of [`Lost::killed`].
    pub(super) unended: Vec<u32>,
}

/// Sums of a range of times.
struct Sums {
    wanted: (i64, i64),
    lost: Lost,
    by_interface: BTreeMap<u32, Statistics>,
    unended: Vec<u32>,
}

impl Sums {
    /// Notes that the recording of a segment was killed, if the next segment is of another one.
    /// What it lost after its last count may be of any time until that one began.
    fn add_killed(&mut self, before: &SegmentCounts, told: &SegmentCounts) {
        let Some((id, counts)) = before.latest().filter(|(_, counts)| counts.is_unended()) else {
            return;
        };
        if before.run() == told.run() {
            return;
        }
        // Counts are of the clock, and packets of a file are of any time.
        let from_ns = counts.time_ns.min(before.around().1);
        let begin = told.around().0.max(from_ns);
        let to_ns = told
            .run()
            .filter(|start| (from_ns..=begin).contains(start))
            .unwrap_or(begin);
        if from_ns > self.wanted.1 || to_ns < self.wanted.0 {
            return;
        }
        self.lost.killed.push(Killed { from_ns, to_ns });
        self.unended.push(id);
    }

    /// Adds the difference of the counts of two consecutive segments, if they are of one run.
    fn add_between(&mut self, before: &SegmentCounts, told: &SegmentCounts) {
        if before.run().is_none() || before.run() != told.run() {
            return;
        }
        let (end, begin) = (before.around().1, told.around().0);
        for (&id, first) in &told.first {
            // An interface that is new has counted from the start of the run on.
            let zero = Statistics {
                time_ns: first.start_ns.unwrap_or(0),
                ..Statistics::default()
            };
            let from = before.last.get(&id).unwrap_or(&zero);
            self.add(id, from, first, (end.min(begin), end.max(begin)));
        }
    }

    /// Adds the difference of two counts, if it may concern packets of the wanted times. `around`
    /// are the times of the packets on both sides; the counts may be older.
    fn add(&mut self, id: u32, from: &Statistics, to: &Statistics, around: (i64, i64)) {
        let (first, last) = self.wanted;
        let mut counted = to.since(from);
        let around = match counted.dropped() {
            0 => around,
            _ => (around.0.min(from.time_ns), around.1.max(to.time_ns)),
        };
        if around.0 > last || around.1 < first {
            return;
        }
        // These are about packets that no reader gives.
        counted.delivered = None;
        let dropped = counted.dropped();
        self.lost.packets = self.lost.packets.saturating_add(dropped);
        self.lost.at_most |= dropped > 0 && (around.0 < first || around.1 > last);
        let (begin, end) = self.lost.between_ns.unwrap_or((from.time_ns, to.time_ns));
        self.lost.between_ns = Some((begin.min(from.time_ns), end.max(to.time_ns)));
        self.by_interface.entry(id).or_default().add(&counted);
    }
}

impl Ledger {
    /// Sums the losses in the wanted times, and the counts of each interface for the stream.
    /// Segments from generation `present` on are of a recording that goes on.
    pub(super) fn sum(&self, wanted: (i64, i64), present: Option<u64>) -> Total {
        let (lost, by_interface) = (Lost::default(), BTreeMap::new());
        let mut sums = Sums {
            wanted,
            lost,
            by_interface,
            unended: Vec::new(),
        };
        for (&order, (generation, told)) in &self.told {
            let before = order
                .checked_sub(1)
                .and_then(|before| self.told.get(&before));
            if let Some((earlier, before)) = before {
                sums.add_between(before, told);
                sums.add_killed(before, told);
                gone_between(&mut sums.lost.gone, (*earlier, before), (*generation, told));
            }
            let has_lost = |id: &u32, first: &Statistics| told.last[id].since(first).dropped() > 0;
            for (&id, first) in told
                .first
                .iter()
                .filter(|(id, first)| told.is_wanted || has_lost(id, first))
            {
                sums.add(id, first, &told.last[&id], told.around());
            }
        }
        sums.lost.until_ns = self.until(wanted.1, present);
        let Sums {
            lost,
            mut by_interface,
            unended,
            ..
        } = sums;
        for counts in by_interface.values_mut() {
            counts.end_ns = lost.until_ns.is_none().then_some(counts.time_ns);
            if lost.at_most {
                counts.received = None;
            }
        }
        Total {
            lost,
            by_interface,
            unended,
        }
    }

    /// Time of the last count of all, ns since 1970, if its recording counted no more after it, and
    /// packets until `to_ns` are wanted.
    fn until(&self, to_ns: i64, present: Option<u64>) -> Option<i64> {
        let goes_on = |generation: u64| present.is_some_and(|present| generation >= present);
        let (&order, (generation, told)) = self.told.last_key_value()?;
        let is_last = (order + 1..self.segments).all(|later| self.empty.contains_key(&later));
        let (_, last) = told.latest()?;
        if !is_last || goes_on(*generation) || last.time_ns.min(told.around().1) > to_ns {
            return None;
        }
        // A recorder that ends leaves no segment empty after its last count. What is empty in front
        // of it was emptied later.
        let mut behind = self.empty.range(order + 1..);
        let has_empty = behind.any(|(_, &generation)| !goes_on(generation));
        (last.is_unended() || has_empty).then_some(last.time_ns)
    }
}

/// Notes the segments between two others that are not there. A generation whose segment was given up has left no packet out.
fn gone_between(
    gone: &mut Vec<Gone>,
    (earlier, before): (u64, &SegmentCounts),
    (generation, told): (u64, &SegmentCounts),
) {
    // Directories that were put together hold segments of one generation.
    let segments = generation.saturating_sub(earlier).saturating_sub(1);
    if segments == 0 {
        return;
    }
    let known = |told: &SegmentCounts| told.run();
    let other_run = matches!((known(before), known(told)), (Some(a), Some(b)) if a != b);
    let at_most = told
        .numbers
        .0
        .checked_sub(before.numbers.1)
        .filter(|_| !other_run);
    let missed: u64 = told.first.iter().fold(0, |sum, (id, first)| {
        sum.saturating_add(
            before
                .last
                .get(id)
                .map_or(0, |last| first.since(last).dropped()),
        )
    });
    if at_most.is_none_or(|packets| packets > missed) {
        gone.push(Gone {
            generation: earlier + 1,
            segments,
            at_most,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::super::{Lost, Recorder, Selection, name};
    use super::*;
    use std::path::Path;
    use weir_packet::savefile::Interface;
    use weir_packet::savefile::walk::{Cursor, Visit, walk};
    use weir_packet::savefile::{Layout, Stop};
    use weir_testkit::{Random, Scratch};

    /// Statistics of a pcapng file in order, as the codec for any file reads them.
    fn statistics(bytes: &[u8]) -> Vec<Statistics> {
        #[derive(Default)]
        struct Found(Vec<usize>);
        impl Visit for Found {
            fn frames(&mut self, _: usize, _: &[u32], _: &[weir_packet::Frame<'_>]) -> bool {
                true
            }
            fn statistics(&mut self, _: usize, record: usize) {
                self.0.push(record);
            }
        }
        let (mut layout, mut at) = Layout::read(bytes, true).unwrap();
        let mut all = Vec::new();
        loop {
            let (mut cursor, mut found) = ([Cursor::new(at, bytes.len())], Found::default());
            walk(&layout, bytes, true, &mut cursor, &mut found);
            all.extend(
                found
                    .0
                    .iter()
                    .map(|&at| layout.interface_stats(bytes, at).unwrap().counts),
            );
            match cursor[0].stop {
                Some(Stop::Layout) => at = layout.apply(bytes, cursor[0].pos, true).unwrap(),
                stop => {
                    assert_eq!(stop, Some(Stop::End));
                    return all;
                }
            }
        }
    }

    fn lost(dir: &Path, from_ns: Option<i64>, to_ns: Option<i64>) -> (Lost, u64) {
        let selection = Selection {
            from_ns,
            to_ns,
            ..Selection::default()
        };
        let (_, counts) = read(dir, selection.clone(), None);
        // The stream says the same to any reader of pcapng.
        let mut reader = super::super::Reader::open(dir, selection, None).unwrap();
        let mut bytes = Vec::new();
        while let Some(more) = reader.next_bytes().unwrap() {
            bytes.extend_from_slice(more);
        }
        let told = statistics(&bytes).last().map_or(0, Statistics::dropped);
        assert_eq!(told, counts.lost.packets);
        (counts.lost, told)
    }

    /// Packets with numbers left out, and losses of the sources, whose times a list holds. Every
    /// range of times is reported at least what the list says, and exactly that if the answer is
    /// not called a bound.
    #[test]
    fn what_was_lost_is_told_for_any_range_of_times() {
        let mut random = Random(11);
        for round in 0..6 {
            let dir = Scratch::new();
            let settings = super::super::Settings {
                segment_bytes: 256 << 10,
                ..small()
            };
            let (mut recorder, _) = recorder(dir.path(), settings);
            let packets = packets(3000, round);
            let (mut losses, mut dropped) = (Vec::new(), 0);
            let (mut number, mut sleeping) = (0, 0);
            for (at, packet) in packets.iter().enumerate() {
                // A number after a gap shows it.
                let is_last = at + 1 == packets.len();
                if !is_last && random.below(if sleeping > 0 { 1 } else { 400 }) == 0 {
                    sleeping = if sleeping > 0 {
                        sleeping - 1
                    } else {
                        random.below(300)
                    };
                    losses.push(packet.0);
                    number += 1;
                    continue;
                }
                let now = super::super::Now {
                    steady_ns: at as u64 * 1_000_000,
                    wall_ns: packet.0,
                };
                recorder.tick(now).unwrap();
                if at % 97 == 0 {
                    // Packets of the sources that were lost since the last count.
                    let more = random.below(5) as u64;
                    losses.extend((0..more).map(|_| packet.0));
                    dropped += more;
                    let counts = Statistics {
                        dropped_by_system: Some(dropped),
                        ..Statistics::default()
                    };
                    recorder.count(&[(0, counts)], None).unwrap();
                }
                recorder.packet(0, number, &record(packet)).unwrap();
                number += 1;
            }
            let closed = recorder.close().unwrap();
            assert_eq!(
                closed.durable.packets + losses.len() as u64 - dropped,
                number
            );
            let (all, _) = lost(dir.path(), None, None);
            assert_eq!(
                (all.packets, all.at_most, all.until_ns),
                (losses.len() as u64, false, None)
            );
            assert!(all.gone.is_empty());
            for _ in 0..60 {
                let mut ends =
                    [0, 0].map(|_| START_NS + random.below(3_100) as i64 * 1_000_000 - 50_000_000);
                ends.sort();
                let within = losses
                    .iter()
                    .filter(|time| (ends[0]..=ends[1]).contains(*time))
                    .count() as u64;
                let (told, _) = lost(dir.path(), Some(ends[0]), Some(ends[1]));
                assert!(told.packets >= within, "{told:?} {within}");
                assert!(
                    told.at_most || told.packets == within,
                    "round {round}: {ends:?} {told:?} {within}"
                );
            }
            // Indexes made again tell the same.
            for index in files(dir.path(), "index") {
                std::fs::remove_file(index).unwrap();
            }
            assert_eq!(lost(dir.path(), None, None).0.packets, losses.len() as u64);
            super::super::reindex(dir.path(), small(), at(0)).unwrap();
            assert_eq!(lost(dir.path(), None, None).0.packets, losses.len() as u64);
            // A segment alone counts on from the segments before: any reader that subtracts has its own part.
            let own = files(dir.path(), "pcapng").into_iter().map(|path| {
                let all = statistics(&std::fs::read(path).unwrap());
                assert!(all[0].is_unended() && !all[all.len() - 1].is_unended());
                all[all.len() - 1].since(&all[0]).dropped()
            });
            assert!(own.sum::<u64>() <= losses.len() as u64);
        }
    }

    #[test]
    fn a_recording_that_was_killed_and_segments_that_are_gone_are_told() {
        let dir = Scratch::new();
        let (mut recorder, _) = recorder(
            dir.path(),
            super::super::Settings {
                segment_bytes: 256 << 10,
                ..small()
            },
        );
        let packets = packets(6000, 3);
        write(&mut recorder, &packets, 0);
        // Nothing is closed any more.
        std::mem::forget(recorder);
        let (all, _) = lost(dir.path(), None, None);
        assert_eq!((all.packets, all.until_ns), (0, Some(START_NS)));
        // A reader of an earlier time needs no end.
        assert_eq!(lost(dir.path(), None, Some(START_NS - 1)).0.until_ns, None);
        let segments = files(dir.path(), "pcapng");
        assert!(segments.len() > 4);
        let inside = packets_in(&std::fs::read(&segments[2]).unwrap()).len() as u64;
        std::fs::remove_file(&segments[2]).unwrap();
        let (all, _) = lost(dir.path(), None, None);
        assert_eq!(
            all.gone,
            [Gone {
                generation: 3,
                segments: 1,
                at_most: Some(inside)
            }]
        );
        // Retention removes the oldest ones, their indexes first.
        let _ = std::fs::remove_file(segments[0].with_extension("index"));
        std::fs::remove_file(&segments[0]).unwrap();
        assert_eq!(lost(dir.path(), None, None).0.gone.len(), 1);
    }

    /// A kill between the making of a segment and its first block leaves an empty file.
    #[test]
    fn an_empty_segment_of_a_recorder_that_was_killed_is_no_gap() {
        let dir = Scratch::new();
        // No recorder gives the number 0, but anybody can give a file this name.
        let none = name::Segment::new(dir.path(), START_NS, 0);
        std::fs::write(none.path, b"").unwrap();
        for written in packets(300, 3).chunks(100) {
            let (mut recorder, _) = recorder(dir.path(), small());
            write(&mut recorder, written, 0);
            drop(recorder);
            let next = name::list(dir.path()).unwrap().generation + 1;
            let empty = name::Segment::new(dir.path(), START_NS + 10_000_000_000, next);
            std::fs::write(empty.path, b"").unwrap();
        }
        drop(recorder(dir.path(), small()));
        assert_eq!(lost(dir.path(), None, None).0.gone, []);
        assert_eq!(read_all(dir.path()), packets(300, 3));
    }

    /// The first, the last, or the only segment is removed, and its index is left: that tells how many packets are gone, and for which
    /// times.
    #[test]
    fn a_segment_at_the_end_of_a_record_that_is_gone_is_told() {
        let settings = || super::super::Settings {
            segment_ns: Some(1_000_000_000),
            ..small()
        };
        let packets = packets(4000, 5);
        let make = || {
            let dir = Scratch::new();
            let (mut recorder, _) = recorder(dir.path(), settings());
            write(&mut recorder, &packets, 0);
            recorder.close().unwrap();
            dir
        };
        let gone = |dir: &Scratch, from_ns, to_ns| lost(dir.path(), from_ns, to_ns).0.gone;
        let second = |number: i64| Some(START_NS + number * 1_000_000_000);
        let of = |number: usize| Gone {
            generation: number as u64 + 1,
            segments: 1,
            at_most: Some(1000),
        };
        for number in [0, 3] {
            let dir = make();
            assert_eq!(
                (files(dir.path(), "pcapng").len(), gone(&dir, None, None)),
                (4, vec![])
            );
            std::fs::remove_file(&files(dir.path(), "pcapng")[number]).unwrap();
            assert_eq!(gone(&dir, None, None), [of(number)]);
            // Other times do not lack it.
            let begin = number as i64;
            assert_eq!(gone(&dir, second(begin), second(begin)), [of(number)]);
            assert_eq!(gone(&dir, second(1), second(2)), []);
            // A recorder that begins, and one that makes indexes again, leave the index where it
            // is.
            super::super::reindex(dir.path(), settings(), at(9)).unwrap();
            drop(recorder(dir.path(), settings()));
            assert_eq!(gone(&dir, None, None), [of(number)]);
            assert_eq!(files(dir.path(), "index").len(), 4);
        }
        let dir = make();
        for path in files(dir.path(), "pcapng") {
            std::fs::remove_file(path).unwrap();
        }
        assert_eq!(gone(&dir, None, None), [0, 1, 2, 3].map(of));
        assert_eq!(gone(&dir, second(2), second(2)), [of(2)]);
        std::fs::remove_file(dir.path().join("lock")).unwrap();
        assert_eq!(gone(&dir, None, None).len(), 4);
        // A damaged index tells that its segment is gone, and no more.
        let index = files(dir.path(), "index").remove(1);
        let mut bytes = std::fs::read(&index).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        bytes[90] ^= 1;
        std::fs::write(&index, bytes).unwrap();
        assert_eq!(
            gone(&dir, second(3), second(3)),
            [
                Gone {
                    at_most: None,
                    ..of(1)
                },
                of(3)
            ]
        );
        // Retention removes it like a segment.
        let retention = super::super::Retention {
            age_ns: Some(1),
            ..Default::default()
        };
        let (mut recorder, opened) = recorder(
            dir.path(),
            super::super::Settings {
                retention,
                ..settings()
            },
        );
        assert_eq!(opened.orphans.len(), 4);
        recorder
            .tick(super::super::Now {
                steady_ns: 2_000_000_000,
                wall_ns: i64::MAX,
            })
            .unwrap();
        assert_eq!(files(dir.path(), "index").len(), 0);
    }

    /// A recorder that was killed, and another one after it: the end of the first is reported for
    /// its times, and for no others.
    #[test]
    fn a_recording_that_was_killed_is_told_when_another_goes_on() {
        let (dir, second) = (Scratch::new(), 1_000_000_000);
        let packets = packets(6000, 3);
        let run = |range: std::ops::Range<usize>, now: u64, closes: bool| {
            let opened = Recorder::open(
                std::sync::Arc::new(Faulty::new(0, 0)),
                dir.path(),
                small(),
                at(now),
            );
            let mut recorder = opened.unwrap().0;
            recorder.interface(&ethernet());
            let first = range.start as u64;
            write(&mut recorder, &packets[range], first);
            if closes {
                recorder.close().unwrap();
            } else {
                // As if its process were killed.
                drop(recorder);
            }
        };
        run(0..1000, 0, true);
        run(1000..2000, 2, false);
        run(2000..3000, 8, false);
        run(3000..4000, 9, true);
        let first = Killed {
            from_ns: packets[1999].0,
            to_ns: packets[2000].0,
        };
        let killed = |from: Option<i64>, to: Option<i64>| lost(dir.path(), from, to).0.killed;
        let all = killed(None, None);
        assert_eq!(all.len(), 2, "{all:?}");
        assert_eq!(all[0], first);
        assert_eq!(lost(dir.path(), None, None).0.until_ns, None);
        assert_eq!(killed(None, Some(START_NS + second / 2)), []);
        assert_eq!(killed(Some(packets[3100].0), None), []);
        assert_eq!(
            killed(Some(packets[1500].0), Some(packets[2500].0)),
            [first]
        );
    }

    fn dropped(count: u64) -> Statistics {
        Statistics {
            dropped_by_system: Some(count),
            ..Statistics::default()
        }
    }

    #[test]
    fn the_first_losses_of_a_later_interface_are_told() {
        for closes in [true, false] {
            let dir = Scratch::new();
            let (mut recorder, _) = recorder(dir.path(), small());
            let second = recorder.interface(&Interface {
                name: Some("eth8".into()),
                ..ethernet()
            });
            write(&mut recorder, &packets(10, 1), 0);
            recorder
                .count(&[(0, dropped(0)), (second, dropped(50))], None)
                .unwrap();
            recorder.flush().unwrap();
            if closes {
                recorder.close().unwrap();
            } else {
                std::mem::forget(recorder);
            }
            assert_eq!(lost(dir.path(), None, None).0.packets, 50, "{closes}");
        }
    }

    /// The first segment of the run is given up, or a later write fails after a gap.
    #[test]
    fn a_failed_write_changes_no_count() {
        use std::sync::Arc;
        for (good, failing) in [(0, 1), (5, 2)] {
            let dir = Scratch::new();
            let opened = Recorder::open(
                Arc::new(Faulty::new(failing, 1)),
                dir.path(),
                small(),
                at(0),
            );
            let mut recorder = opened.unwrap().0;
            recorder.interface(&ethernet());
            let packets = packets(30, 1);
            write(&mut recorder, &packets[..good], 0);
            let tail = |recorder: &mut Recorder| {
                for number in (good..10).chain([20]) {
                    recorder
                        .packet(0, number as u64, &record(&packets[number]))
                        .unwrap();
                }
                recorder.count(&[(0, dropped(50))], None).unwrap();
                recorder.flush()
            };
            tail(&mut recorder).unwrap_err();
            assert_eq!(recorder.resume_from(), good as u64);
            tail(&mut recorder).unwrap();
            assert_eq!(recorder.stats().missed, 10);
            recorder.close().unwrap();
            assert_eq!(lost(dir.path(), None, None).0.packets, 60, "{good}");
        }
    }

    #[test]
    fn a_gap_in_front_of_the_segment_that_grows_is_told_for_its_times() {
        let dir = Scratch::new();
        let settings = super::super::Settings {
            segment_ns: Some(1_000_000_000),
            ..small()
        };
        let (mut recorder, _) = recorder(dir.path(), settings);
        let packets = packets(1600, 1);
        write(&mut recorder, &packets[..5], 0);
        write(&mut recorder, &packets[1500..], 15);
        weir_testkit::wait::until("an index", || {
            recorder.tick(at(0)).unwrap();
            !files(dir.path(), "index").is_empty()
        });
        assert_eq!(
            (
                files(dir.path(), "index").len(),
                files(dir.path(), "pcapng").len()
            ),
            (1, 2)
        );
        assert_eq!(
            lost(dir.path(), Some(START_NS + 1_200_000_000), None)
                .0
                .packets,
            10
        );
        // The count in front of the gap is of that time.
        let (before, _) = lost(dir.path(), None, Some(START_NS));
        assert!(before.at_most && before.packets == 10, "{before:?}");
        assert_eq!(lost(dir.path(), None, Some(START_NS - 1)).0.packets, 0);
    }

    /// Counts of the sources are read now and then: what one segment tells may have been lost in the time of another one.
    #[test]
    fn losses_that_are_counted_late_are_told_for_the_times_of_the_counts() {
        let dir = Scratch::new();
        let settings = super::super::Settings {
            segment_ns: Some(100_000_000),
            ..small()
        };
        let (mut recorder, _) = recorder(dir.path(), settings);
        let packets = packets(1000, 1);
        let counted = |time_ns: i64, count: u64| Statistics {
            time_ns,
            ..dropped(count)
        };
        let hundred = |number: usize| packets[number * 100].0;
        for number in 0..10 {
            let now = super::super::Now {
                steady_ns: 0,
                wall_ns: hundred(number),
            };
            recorder.tick(now).unwrap();
            // Read at the start of the fourth segment and of the eighth one.
            let at = if number < 4 {
                START_NS
            } else if number < 8 {
                hundred(4)
            } else {
                hundred(8)
            };
            recorder
                .count(&[(0, counted(at, if number < 8 { 0 } else { 70 }))], None)
                .unwrap();
            write(
                &mut recorder,
                &packets[number * 100..(number + 1) * 100],
                number as u64 * 100,
            );
        }
        recorder.close().unwrap();
        assert_eq!(lost(dir.path(), None, None).0.packets, 70);
        let (within, _) = lost(
            dir.path(),
            Some(hundred(7) + 10),
            Some(hundred(7) + 50_000_000),
        );
        assert!(within.at_most && within.packets == 70, "{within:?}");
        assert_eq!(
            lost(dir.path(), Some(hundred(1)), Some(hundred(2)))
                .0
                .packets,
            0
        );
    }

    #[test]
    fn a_segment_without_packets_tells_its_losses_for_its_times() {
        let dir = Scratch::new();
        let (mut recorder, _) = recorder(dir.path(), small());
        recorder.count(&[(0, dropped(50))], None).unwrap();
        recorder.close().unwrap();
        let second = 1_000_000_000;
        assert_eq!(
            lost(dir.path(), Some(START_NS - second), Some(START_NS + second))
                .0
                .packets,
            50
        );
        assert_eq!(lost(dir.path(), Some(START_NS + second), None).0.packets, 0);
    }

    #[test]
    fn directories_that_were_put_together_are_read() {
        let both = [Scratch::new(), Scratch::new()];
        for (dir, range) in both.iter().zip([0..10, 10..20]) {
            let (mut recorder, _) = recorder(dir.path(), small());
            write(&mut recorder, &packets(20, 1)[range], 0);
            recorder.close().unwrap();
        }
        for end in ["pcapng", "index"] {
            let path = files(both[1].path(), end).remove(0);
            std::fs::copy(&path, both[0].path().join(path.file_name().unwrap())).unwrap();
        }
        let (all, _) = lost(both[0].path(), None, None);
        assert!(all.packets == 0 && all.gone.is_empty(), "{all:?}");
        assert_eq!(read_all(both[0].path()), packets(20, 1));
    }
}
