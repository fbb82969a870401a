//! Several simulated sources whose packets are passed on by time, as in `weir filter`.

use crate::simulated::*;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_packet::LinkType;
use weir_packet::savefile::{Interface, Layout, Record, Resolution};
use weir_pipeline::by_time::{MergedCaptures, Rejected};
use weir_pipeline::pump::{Pump, Reading};
use weir_pipeline::reader::{Delivery, Options, Reader, Step};
use weir_pipeline::select::{Select, Selection};
use weir_pipeline::source::Source;
use weir_pipeline::stages::Stages;
use weir_pipeline::steps::Progress;

/// A packet that was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Passed {
    source: usize,
    number: u32,
    time: Option<i64>,
}

fn record(delivery: &Delivery<Stages>, number: usize) -> Record<'_> {
    let at = delivery.part.records[number] as usize;
    delivery
        .current
        .layout
        .record(delivery.view.content(), at)
        .expect("it was kept")
}

fn reader(interface: &Shared, select: &Arc<Stages>, stop: &Arc<AtomicBool>) -> Reader<Stages> {
    Reader::new(
        interface.input("simulated", stop),
        Arc::clone(select),
        Options::default(),
    )
}

/// Returns a filter that keeps packets of even ports if `filters`, else all.
fn select(filters: bool) -> Arc<Stages> {
    let expression = if filters { "udp[0:2] & 1 = 0" } else { "" }.to_owned();
    let selection = Selection {
        expression,
        interpret: true,
        ..Selection::default()
    };
    Arc::new(Stages::noting(Arc::new(Select::new(selection))))
}

/// Draws sources, and passes their packets on.
fn run(seed: u64, weather: Weather) -> Vec<Passed> {
    let mut random = Random(seed);
    let (sources, filters) = (1 + random.below(4), random.below(4) == 0);
    let length = ms(100 + random.next() % 4000);
    let (scripts, steps) = scripts(&mut random, sources, length, weather);
    let interfaces: Vec<Shared> = scripts
        .into_iter()
        .map(|script| Shared::new(script, ring(&mut random), random.next()))
        .collect();
    let stop = Arc::<AtomicBool>::default();
    let stops = (
        if random.below(4) == 0 {
            length / 2
        } else {
            length + ms(300)
        },
        Arc::clone(&stop),
    );
    let stalls = [0, 5, 50][random.below(3)];
    let scheduler = Scheduler::new(
        Random(random.next()),
        interfaces,
        sources + 1,
        stalls,
        stops,
        steps,
    );
    let rejected = [Rejected::LeftOut, Rejected::Headers, Rejected::Whole];
    pass_on(scheduler, filters, rejected[random.below(3)], &stop)
}

/// A layout of one interface that tells the number of its source.
pub(crate) fn layout(source: usize) -> Layout {
    let plain = Interface::plain(LinkType::ETHERNET, 65_535, Resolution::NANOSECOND);
    Layout::spool(vec![Interface {
        name: Some(format!("eth{source}")),
        ..plain
    }])
}

/// Passes packets on until all sources have ended, and compares them with the packets handed over.
fn pass_on(
    mut scheduler: Scheduler,
    filters: bool,
    rejected: Rejected,
    stop: &Arc<AtomicBool>,
) -> Vec<Passed> {
    let select = select(filters);
    let start = |(i, interface)| Pump::pair(reader(interface, &select, stop), i);
    let (mut readings, pumps): (Vec<Reading<Stages>>, Vec<_>) =
        scheduler.interfaces.iter().enumerate().map(start).unzip();
    let pumps = pumps.into_iter().enumerate();
    let pumps = pumps.map(|(i, pump)| (i.to_string(), layout(i), pump));
    let mut captures = MergedCaptures::new(pumps, Arc::clone(&select), rejected);
    let (mut passed, mut kept, mut others, merging) = (Vec::new(), 0, 0, readings.len());
    let (mut steps, mut reached, mut in_batches) = (0u64, 0, 0);
    loop {
        let (member, now) = scheduler.next();
        steps += 1;
        if steps.is_multiple_of(50) {
            assert_eq!(select.mark(), steps / 50);
        }
        if member < merging {
            match readings[member].step(now) {
                Progress::Busy => {}
                Progress::Idle(until) => scheduler.idle(member, until),
                Progress::Ended => scheduler.end(member),
            }
            scheduler.wake(merging);
            continue;
        }
        let step = captures.poll();
        // There may be room for more.
        (0..merging).for_each(|i| scheduler.has_room(i));
        assert!(captures.change() >= reached);
        reached = captures.change();
        match step {
            Step::Delivery(batch) => {
                assert!(batch.current.plan.change() >= reached);
                kept += batch.part.selected.passed;
                others += batch.part.selected.filtered;
                in_batches += batch.part.records.len() as u64;
                for number in batch.part.passed.numbers() {
                    let record = record(&batch, number);
                    passed.push(Passed {
                        source: record.frame.interface as usize,
                        number: Packet::number_in(record.frame.data),
                        time: record.time_ns,
                    });
                }
                captures.recycle(batch.view);
            }
            Step::Quiet => scheduler.idle(member, now.steady + ms(50)),
            Step::End => break,
        }
    }
    let right = match rejected {
        Rejected::LeftOut => kept,
        Rejected::Headers | Rejected::Whole => kept + others,
    };
    assert_eq!(in_batches, right);
    assert!(captures.report().fault.is_none());
    let parts = captures.into_parts();
    assert_eq!(parts.len(), merging);
    for (part, interface) in parts.iter().zip(&scheduler.interfaces) {
        assert_eq!(part.report.live, Some(interface.counts()));
    }
    let truths: Vec<Truth> = scheduler.interfaces.iter().map(Shared::truth).collect();
    for (i, (truth, part)) in truths.iter().zip(parts).enumerate() {
        assert_eq!(part.report.received, truth.handed.len() as u64);
        // Each packet is passed on once, in the order of its source.
        let right = truth
            .handed
            .iter()
            .filter(|packet| !filters || packet.flow & 1 == 0);
        let right = right.map(|packet| Passed {
            source: i,
            number: packet.number,
            time: packet.stamp,
        });
        assert!(
            passed
                .iter()
                .copied()
                .filter(|packet| packet.source == i)
                .eq(right),
            "source {i}"
        );
    }
    let reached: u64 = truths.iter().map(|truth| truth.reached).sum();
    let before: u64 = truths
        .iter()
        .map(|truth| truth.rejected + truth.dropped)
        .sum();
    assert_eq!(
        (reached, kept),
        (passed.len() as u64 + others + before, passed.len() as u64)
    );
    passed
}

#[test]
fn packets_of_several_sources_are_passed_on_by_time_each_once_however_readers_are_scheduled() {
    each_seed(2000, |seed| {
        let weather = Weather {
            downs: seed % 3 == 0,
            rejects: seed % 4 == 0,
            ..Weather::default()
        };
        let passed = run(seed, weather);
        assert!(passed.is_sorted_by_key(|packet| packet.time), "{passed:?}");
    });
}

#[test]
fn no_packet_is_lost_or_passed_on_twice_whatever_clocks_stamps_and_interfaces_do() {
    each_seed(2000, |seed| {
        let mut random = Random(!seed);
        let mut one = |odds| random.below(odds) == 0;
        let (steps, offsets, damaged, downs, rejects) = (one(2), one(2), one(3), one(3), one(3));
        let disorder_ns = if one(2) { 2 * SECOND } else { 0 };
        run(
            seed,
            Weather {
                steps,
                offsets,
                damaged,
                disorder_ns,
                downs,
                rejects,
            },
        );
    });
}

#[test]
fn a_wall_clock_that_is_set_does_not_move_the_time_of_sources_that_stamp_by_another_one() {
    let every = |gap: u64, first: u32| -> Script {
        let packet = |n: u64| {
            let stamp = Some(BEGUN_NS + (1 + n * gap) as i64 * MS);
            (
                ms(1 + n * gap),
                Event::Packet(Packet {
                    number: first + n as u32,
                    flow: 0,
                    kept: 60,
                    bytes: 60,
                    stamp,
                }),
            )
        };
        (0..5000 / gap).map(packet).collect()
    };
    let ring = Ring {
        blocks: 8,
        room: 20,
        portion: 20,
        retire: ms(50),
    };
    for by in [3600 * SECOND, -3600 * SECOND] {
        let steps = vec![(ms(1000), by)];
        let interfaces = vec![
            Shared::new(every(20, 0), ring, 1),
            Shared::new(every(370, 1000), ring, 2),
        ];
        let stop = Arc::<AtomicBool>::default();
        let scheduler = Scheduler::new(
            Random(3),
            interfaces,
            3,
            0,
            (ms(6000), Arc::clone(&stop)),
            steps,
        );
        let passed = pass_on(scheduler, false, Rejected::LeftOut, &stop);
        assert_eq!(passed.len(), 250 + 13);
        assert!(passed.is_sorted_by_key(|packet| packet.time), "{passed:?}");
    }
}

#[test]
fn deliveries_of_a_live_source_may_be_given_back_in_any_order() {
    each_seed(300, |seed| {
        let mut random = Random(seed);
        let (mut scripts, steps) = scripts(&mut random, 1, ms(1500), Weather::default());
        let ring = Ring {
            blocks: 4 + random.below(5),
            ..ring(&mut random)
        };
        let interface = Shared::new(scripts.remove(0), ring, random.next());
        let stop = Arc::<AtomicBool>::default();
        let stops = (ms(1800), Arc::clone(&stop));
        let mut scheduler = Scheduler::new(
            Random(random.next()),
            vec![interface.clone()],
            1,
            20,
            stops,
            steps,
        );
        let mut reader = reader(&interface, &select(false), &stop);
        let (mut held, mut numbers, mut most) = (Vec::<Delivery<Stages>>::new(), Vec::new(), 0);
        loop {
            let (_, now) = scheduler.next();
            match reader.poll() {
                Step::Delivery(delivery) => {
                    held.push(delivery);
                    most = most.max(held.len());
                }
                Step::Quiet => scheduler.idle(0, now.steady + ms(20)),
                Step::End => break,
            }
            // Some batches are held for long.
            while !held.is_empty() && random.below(3) == 0 {
                let delivery = held.swap_remove(random.below(held.len()));
                let passed = delivery.part.passed.numbers();
                numbers.extend(
                    passed.map(|number| Packet::number_in(record(&delivery, number).frame.data)),
                );
            }
        }
        for delivery in held {
            let passed = delivery.part.passed.numbers();
            numbers.extend(
                passed.map(|number| Packet::number_in(record(&delivery, number).frame.data)),
            );
        }
        drop(reader);
        let truth = interface.truth();
        numbers.sort_unstable();
        assert!(
            numbers
                .iter()
                .copied()
                .eq(truth.handed.iter().map(|packet| packet.number)),
            "{most} were held at once"
        );
    });
}
