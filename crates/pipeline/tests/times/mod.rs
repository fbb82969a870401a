//! Packet time: stamps that jump, are late, or are missing, against a naive reader of all stamps of a source.

use super::reading::build::Pcapng;
use super::*;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_io::Kind;
use weir_io::live::{Backend, Counts, Lease, Live, Next};
use weir_packet::savefile::{Bytes, Interface, Layout, Record, Resolution, spool};
use weir_packet::{Frame, LinkType};

/// Time value of a packet without a time.
const NO_TIME: i64 = i64::MIN;
const HOUR: i64 = 3600 * SECOND;
const DAY: i64 = 24 * HOUR;

/// Decision on a packet's stamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    Believed(i64),
    /// The first stamp of a believed jump.
    Begins(i64),
    Jumped,
    Missing,
}

/// Reference for the windows: takes one packet after the other.
pub struct Serial {
    windowing: Windowing,
    /// Latest believed stamp, for decisions on stamps.
    base: Option<i64>,
    /// Latest believed stamp, for windows.
    latest: Option<i64>,
    first_open: i64,
    open: BTreeMap<i64, Expected>,
    reopened: Vec<i64>,
    given: HashMap<i64, u32>,
    results: Vec<Expected>,
}

impl Serial {
    pub fn new(windowing: Windowing) -> Self {
        Self {
            windowing,
            base: None,
            latest: None,
            first_open: i64::MIN,
            open: BTreeMap::new(),
            reopened: Vec::new(),
            given: HashMap::new(),
            results: Vec::new(),
        }
    }

    /// Returns the decisions on the stamps of a source: each stamp that jumps is compared with the 31 packets behind it.
    pub fn stamps(&mut self, packets: &[Made]) -> Vec<Stamp> {
        let reach = HOUR + self.windowing.late_ns;
        let mut stamps = Vec::new();
        for (i, packet) in packets.iter().enumerate() {
            let time = packet.time_ns;
            let near = |base: i64, time: i64| (time - base).abs() <= reach;
            let next = packets[i + 1..packets.len().min(i + 32)]
                .iter()
                .map(|packet| packet.time_ns);
            let next: Vec<i64> = next.filter(|&next| next != NO_TIME).collect();
            let agrees = |next: i64| next >= time - reach && next <= time + 30 * DAY;
            let agree = || next.iter().filter(|&&next| agrees(next)).count() * 2 >= next.len();
            stamps.push(match self.base {
                _ if time == NO_TIME => Stamp::Missing,
                _ if self.windowing.window_ns.is_none() => Stamp::Believed(time),
                None if next.first().is_none_or(|&next| near(time, next)) => Stamp::Believed(time),
                None if next.len() > 1 && near(next[0], next[1]) => Stamp::Jumped,
                None if agree() => Stamp::Believed(time),
                None => Stamp::Jumped,
                Some(base) if near(base, time) => Stamp::Believed(time),
                Some(base) => {
                    let alone = next.is_empty() && (time - base).abs() <= 30 * DAY;
                    let believed = if next.is_empty() { alone } else { agree() };
                    if believed && !next.iter().any(|&next| near(base, next)) {
                        Stamp::Begins(time)
                    } else {
                        Stamp::Jumped
                    }
                }
            });
            self.base = match *stamps.last().expect("just pushed") {
                Stamp::Believed(time) => self.base.max(Some(time)),
                Stamp::Begins(time) => Some(time),
                Stamp::Jumped | Stamp::Missing => self.base,
            };
        }
        stamps
    }

    fn number(&self, time: Option<i64>) -> i64 {
        match (self.windowing.window_ns, time) {
            (Some(window), Some(time)) => time.div_euclid(window),
            (Some(_), None) => Windowing::UNTIMED,
            (None, _) => 0,
        }
    }

    /// Returns the window of a packet.
    pub fn place(&mut self, stamp: Stamp) -> &mut Expected {
        let time = match stamp {
            Stamp::Begins(time) => {
                if Some(time) < self.latest {
                    self.close(i64::MAX);
                    self.first_open = self.first_open_at(time);
                }
                self.latest = Some(time);
                Some(time)
            }
            Stamp::Believed(time) => Some(time),
            Stamp::Jumped | Stamp::Missing => self.latest,
        };
        let number = self.number(time);
        if self.latest.is_some() && number < self.first_open && !self.reopened.contains(&number) {
            if self.reopened.len() == 8 {
                self.close(self.first_open);
            }
            self.reopened.push(number);
        }
        // A packet never closes its own window, because windows close first.
        if time > self.latest || matches!(stamp, Stamp::Begins(_)) {
            self.latest = time;
            let open = self.first_open_at(time.expect("a packet has a time"));
            if open > self.first_open {
                self.first_open = open;
                self.close(open);
            }
        }
        self.open.entry(number).or_insert_with(|| Expected {
            number,
            ..Expected::default()
        })
    }

    fn first_open_at(&self, time: i64) -> i64 {
        self.windowing.window_ns.map_or(i64::MIN, |window| {
            (time - self.windowing.late_ns).div_euclid(window)
        })
    }

    fn close(&mut self, before: i64) {
        self.reopened.clear();
        while let Some(entry) = self
            .open
            .first_entry()
            .filter(|entry| *entry.key() < before)
        {
            let mut result = entry.remove();
            if result.number == Windowing::UNTIMED {
                // This result waits for the first window that is given out.
                self.results.push(result);
                continue;
            }
            if let [.., last] = &self.results[..]
                && last.number == Windowing::UNTIMED
            {
                result.add(&self.results.pop().expect("seen"));
            }
            let given = self.given.entry(result.number).or_default();
            result.revision = *given;
            *given += 1;
            self.results.push(result);
        }
    }

    pub fn finish(mut self) -> Vec<Expected> {
        self.close(i64::MAX);
        self.results
    }
}

/// Returns the bytes of a pcapng file, for packets with and without stamps.
fn pcapng(packets: &[Made]) -> Vec<u8> {
    let mut file = Pcapng::new(false);
    file.interface(1, 65_535, 9);
    for packet in packets {
        let data = packet.frame();
        if packet.time_ns == NO_TIME {
            file.simple(data.len() as u32, &data);
            continue;
        }
        let ticks = packet.time_ns as u64;
        let words = [
            0,
            (ticks >> 32) as u32,
            ticks as u32,
            data.len() as u32,
            packet.bytes,
        ];
        let mut body: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        body.extend(&data);
        file.block(6, &body);
    }
    file.bytes
}

const WINDOWING: Windowing = Windowing {
    window_ns: Some(SECOND),
    late_ns: SECOND / 10,
};

/// A case with small tables, because every window has its own.
const SMALL: Case = Case {
    memory: 512 << 10,
    ..PLAIN
};

/// Checks every design, and ways to read that cut the source at different places.
fn every_way(packets: &[Made], windowing: Windowing) {
    let bytes = pcapng(packets);
    let scratch = Scratch::new("stamps.pcapng", &bytes);
    let bytes = Arc::new(bytes);
    for (design, workers) in [
        (Design::Rss, 1),
        (Design::Rss, 3),
        (Design::Async, 2),
        (Design::Sync, 2),
    ] {
        let case = Case {
            design,
            workers,
            windowing,
            ..SMALL
        };
        check(case, packets, [plain(&scratch)]);
        check(
            Case {
                filtering: true,
                ..case
            },
            packets,
            [plain(&scratch)],
        );
        check(case, packets, [piecewise(&bytes, 700)]);
    }
    check(
        Case {
            design: Design::Async,
            shared: true,
            windowing,
            ..SMALL
        },
        packets,
        [plain(&scratch)],
    );
}

/// Returns steady traffic, one packet per millisecond.
fn steady(packets: usize) -> Vec<Made> {
    let mut packets = traffic(packets, 0);
    for (i, packet) in packets.iter_mut().enumerate() {
        packet.time_ns = 1_700_000_000 * SECOND + i as i64 * SECOND / 1000;
    }
    packets
}

fn jumped(packets: &[Made]) -> u64 {
    serial(&[packets], WINDOWING, KeyKind::FiveTuple, |_| true)
        .iter()
        .map(|window| window.arrivals.jumped)
        .sum()
}

#[test]
fn one_damaged_stamp_moves_no_other_packet() {
    let whole = steady(3000);
    for stamp in [
        4_294_967_295 * SECOND,
        0,
        whole[0].time_ns + 2 * HOUR,
        whole[0].time_ns - 2 * HOUR,
    ] {
        for place in [0, 1, 2998] {
            let mut packets = whole.clone();
            packets[place].time_ns = stamp;
            assert_eq!(jumped(&packets), 1, "{stamp} at {place}");
            every_way(&packets, WINDOWING);
        }
    }
    // No packet behind the last one can contradict its stamp; two hours after the packet before are plausible.
    let last = |stamp: i64| {
        let mut packets = whole.clone();
        packets.last_mut().expect("there are packets").time_ns = stamp;
        every_way(&packets, WINDOWING);
        jumped(&packets)
    };
    assert_eq!(
        (
            last(4_294_967_295 * SECOND),
            last(whole[0].time_ns + 2 * HOUR)
        ),
        (1, 0)
    );
}

#[test]
fn a_damaged_first_stamp_and_others_like_it_do_not_make_the_good_ones_jump() {
    for offset in [-DAY, DAY, -2 * HOUR] {
        let mut packets = steady(2000);
        packets
            .iter_mut()
            .step_by(20)
            .for_each(|packet| packet.time_ns += offset);
        assert_eq!(jumped(&packets), 100, "{offset}");
        every_way(&packets, WINDOWING);
    }
}

#[test]
fn a_jump_that_many_packets_agree_on_is_believed_and_loses_none() {
    for step in [2 * HOUR, 400 * DAY, -2 * HOUR, -400 * DAY] {
        for behind in [1, 31, 32, 700] {
            let mut packets = steady(1000 + behind);
            packets[1000..]
                .iter_mut()
                .for_each(|packet| packet.time_ns += step);
            let expected = u64::from(behind == 1 && step.abs() > 30 * DAY);
            assert_eq!(jumped(&packets), expected, "{behind} packets {step} ns off");
            every_way(&packets, WINDOWING);
        }
    }
}

#[test]
fn two_clocks_in_one_source_are_no_reason_to_lose_packets() {
    let mut packets = steady(2000);
    packets
        .iter_mut()
        .step_by(2)
        .for_each(|packet| packet.time_ns -= 3 * HOUR);
    // No packet is behind the last one, and three hours are no damage.
    assert_eq!(jumped(&packets), 999);
    every_way(&packets, WINDOWING);
}

#[test]
fn a_thin_source_has_gaps_and_no_jumps() {
    let mut packets = steady(200);
    packets
        .iter_mut()
        .enumerate()
        .for_each(|(i, packet)| packet.time_ns += i as i64 * 5 * HOUR);
    assert_eq!(jumped(&packets), 0);
    every_way(&packets, WINDOWING);
}

#[test]
fn packets_without_a_stamp_belong_to_the_time_that_has_come() {
    let some = |missing: fn(usize) -> bool| {
        let mut packets = steady(3000);
        let gone = packets.iter_mut().enumerate().filter(|(i, _)| missing(*i));
        gone.for_each(|(_, packet)| (packet.time_ns, packet.bytes) = (NO_TIME, 60));
        packets
    };
    every_way(&some(|i| i < 100), WINDOWING);
    every_way(&some(|i| i % 3 == 0), WINDOWING);
    every_way(&some(|i| i >= 100), WINDOWING);
    // A later window does not begin with shared tables.
    let first = some(|i| i == 0);
    let windowing = Windowing {
        window_ns: Some(SECOND / 20),
        late_ns: 0,
    };
    let case = Case {
        design: Design::Async,
        shared: true,
        windowing,
        ..SMALL
    };
    check(case, &first, [piecewise(&Arc::new(pcapng(&first)), 3000)]);
    // Without any stamp, there is no window, but still the sum.
    let none = some(|_| true);
    assert!(
        serial(&[&none], WINDOWING, KeyKind::FiveTuple, |_| true)
            .iter()
            .all(|window| window.number == Windowing::UNTIMED)
    );
    every_way(&none, WINDOWING);
}

/// Returns packets with hostile stamps drawn from a seed: disorder, damage, steps, gaps, missing stamps.
fn hostile(seed: u64) -> Vec<Made> {
    let mut numbers = Random(seed);
    let mut packets = steady(1500);
    let mut offset = 0;
    let rate = 1 + numbers.below(200);
    for packet in &mut packets {
        match numbers.below(rate * 20) {
            0 => offset += numbers.below(4 * HOUR as usize) as i64 - 2 * HOUR,
            1 => offset += numbers.below(200 * DAY as usize) as i64 - 100 * DAY,
            2 => offset += numbers.below(5 * SECOND as usize) as i64,
            _ => {}
        }
        packet.time_ns += offset;
        match numbers.below(rate * 10) {
            0 => packet.time_ns = numbers.below(4_294_967_295) as i64 * SECOND,
            1 => packet.time_ns -= numbers.below(30 * SECOND as usize) as i64,
            2 => packet.time_ns += numbers.below(2 * HOUR as usize) as i64,
            3 => (packet.time_ns, packet.bytes) = (NO_TIME, 60),
            _ => {}
        }
    }
    packets
}

#[test]
fn hostile_stamps_give_the_serial_answer_in_every_design() {
    let mut seen = Arrivals::default();
    for seed in 1..=12 {
        let packets = hostile(seed * 0x9e37_79b9);
        for result in serial(&[&packets], WINDOWING, KeyKind::FiveTuple, |_| true) {
            seen += result.arrivals;
            seen.late += u64::from(result.revision > 0);
        }
        let windowing = if seed % 2 == 0 {
            WINDOWING
        } else {
            Windowing {
                window_ns: Some(20 * SECOND),
                late_ns: 0,
            }
        };
        every_way(&packets, windowing);
        // Held packets are decided at the end of their source.
        let (first, second) = packets.split_at(700);
        let scratches =
            [first, second].map(|packets| Scratch::new("part.pcapng", &pcapng(packets)));
        for (design, workers) in [(Design::Rss, 3), (Design::Async, 2)] {
            check_all(
                Case {
                    design,
                    workers,
                    windowing,
                    ..SMALL
                },
                &[first, second],
                scratches.iter().map(plain),
            );
        }
    }
    assert!(seen.jumped > 100 && seen.late > 20, "{seen:?}");
}

/// Returns packets with stamps described by `data`, three bytes for each step: gaps, steps back, damage, jumps, missing stamps.
fn described(data: &[u8]) -> Vec<Made> {
    const LATEST: i64 = i64::MAX - 100 * DAY;
    const UNITS: [i64; 8] = [
        1000,
        SECOND / 1000,
        SECOND / 10,
        SECOND,
        60 * SECOND,
        600 * SECOND,
        HOUR,
        10 * DAY,
    ];
    let mut clock = 1_700_000_000 * SECOND;
    let mut packets = Vec::new();
    for &[kind, low, high] in data.as_chunks::<3>().0 {
        let number = i64::from(u16::from_le_bytes([low, high]));
        let span = number.saturating_mul(UNITS[usize::from(kind >> 5)]);
        let mut times = 1;
        let mut stamp = None;
        match kind & 7 {
            0 => clock = clock.saturating_add(span),
            1 => clock = clock.saturating_sub(span),
            2 => stamp = Some(clock.saturating_sub(span)),
            3 => stamp = Some(clock.saturating_add(span)),
            4 => stamp = Some(number * (LATEST / 65_535)),
            5 => stamp = Some(NO_TIME),
            _ => times = 1 + number % 70,
        }
        clock = clock.clamp(0, LATEST);
        for _ in 0..times {
            if packets.len() == 1500 {
                return packets;
            }
            let time_ns = stamp.map_or(clock, |stamp| {
                if stamp == NO_TIME {
                    stamp
                } else {
                    stamp.clamp(0, LATEST)
                }
            });
            let bytes = 60 + packets.len() as u32 % 3 * 500;
            // A simple packet block has no captured length of its own.
            let bytes = if time_ns == NO_TIME { 60 } else { bytes };
            packets.push(Made {
                time_ns,
                flow: packets.len() as u32 % 40,
                bytes,
                arp: number % 64 == 1,
            });
            clock += if times > 1 { SECOND / 100 } else { 0 };
        }
    }
    packets
}

/// Checks that the results for any stamps, windows and ways to read are those of the reference.
pub(crate) fn any_stamps(data: &[u8]) {
    let Some((&[how, lengths], rest)) = data.split_first_chunk() else {
        return;
    };
    let window_ns = [SECOND / 10, SECOND, 60 * SECOND, HOUR][usize::from(lengths & 3)];
    let late_ns =
        [0, SECOND / 10, SECOND, 10 * SECOND, 700 * SECOND][usize::from(lengths >> 2) % 5];
    let windowing = Windowing {
        window_ns: Some(window_ns),
        late_ns,
    };
    let packets = described(rest);
    let (design, workers) = [
        (Design::Rss, 1),
        (Design::Rss, 2),
        (Design::Async, 2),
        (Design::Sync, 2),
    ][usize::from(how & 3)];
    let case = Case {
        design,
        workers,
        windowing,
        memory: 64 << 10,
        ..PLAIN
    };
    match how >> 2 & 3 {
        0 => {
            let packets: Vec<Made> = packets
                .into_iter()
                .filter(|packet| packet.time_ns != NO_TIME)
                .collect();
            compare_live(case, &packets, 1 + usize::from(how >> 4) * 9);
        }
        1 => {
            let (first, second) = packets.split_at(packets.len() / 2);
            let files = [first, second].map(|packets| Arc::new(pcapng(packets)));
            check_all(
                case,
                &[first, second],
                files.iter().map(|file| piecewise(file, 50_000)),
            );
        }
        _ => check(
            case,
            &packets,
            [piecewise(&Arc::new(pcapng(&packets)), 200 << (how >> 4))],
        ),
    }
}

#[test]
fn any_stamps_give_the_serial_answer() {
    let mut numbers = Random(0x0dd5_7a3b);
    for _ in 0..300 {
        let len = numbers.below(200);
        let data: Vec<u8> = (0..len).map(|_| numbers.below(256) as u8).collect();
        any_stamps(&data);
    }
}

/// Memory with packets, as handed over by a live source.
#[derive(Debug)]
struct Burst(Vec<u8>);

impl Lease for Burst {
    fn bytes(&self) -> Bytes<'_> {
        (&self.0).into()
    }
}

/// A live source with prepared packets.
#[derive(Debug)]
struct Prepared {
    bursts: VecDeque<Vec<Made>>,
    counts: Counts,
    /// Set once all packets were taken and counted.
    ended: Arc<AtomicBool>,
}

impl Backend for Prepared {
    fn next(&mut self, _: &AtomicBool) -> std::io::Result<Next> {
        let Some(packets) = self.bursts.pop_front() else {
            self.ended.store(true, Ordering::Release);
            return Ok(Next::End);
        };
        let mut bytes = Vec::new();
        for packet in &packets {
            let data = packet.frame();
            let frame = Frame {
                data: &data,
                wire_len: packet.bytes,
                interface: 0,
            };
            spool::append(
                &mut bytes,
                0,
                packet.time_ns,
                &Record {
                    time_ns: Some(packet.time_ns),
                    frame,
                    options: Default::default(),
                },
            );
        }
        let packets = packets.len() as u64;
        self.counts.received += packets;
        self.counts.handed_over += packets;
        Ok(Next::Records(Arc::new(Burst(bytes)), packets))
    }

    fn wait(&mut self, _: Duration) -> std::io::Result<()> {
        Ok(())
    }

    fn counts(&self) -> Counts {
        self.counts
    }

    fn layout(&self) -> Layout {
        Layout::spool(vec![Interface::plain(
            LinkType::ETHERNET,
            65_535,
            Resolution::NANOSECOND,
        )])
    }

    fn place(&self) -> &'static str {
        "kernel"
    }

    fn describe(&self) -> String {
        "packets made beforehand".to_owned()
    }
}

/// Returns a live source of these packets, in bursts of `most`.
fn live(packets: &[Made], most: usize) -> Input {
    live_until(packets, most, &Arc::default())
}

/// Returns a live source of these packets, in bursts of `most`, which sets `ended` at its end.
fn live_until(packets: &[Made], most: usize, ended: &Arc<AtomicBool>) -> Input {
    let bursts = packets.chunks(most).map(<[Made]>::to_vec).collect();
    let backend = Prepared {
        bursts,
        counts: Counts::default(),
        ended: Arc::clone(ended),
    };
    let live = Live::new(Box::new(backend), Arc::new(AtomicBool::new(false)));
    Input {
        name: "prepared".to_owned(),
        kind: Kind::Live(Box::new(live)),
    }
}

/// Reference for a live source, one packet after the other: window number, received, late and jumped packets of each result.
///
/// No packet is held: a stamp more than ten seconds off jumps, until 32 stamps that jumped one after the other agree.
fn serial_live(packets: &[Made], windowing: Windowing) -> Vec<(i64, Arrivals)> {
    let (reach, window) = (
        10 * SECOND + windowing.late_ns,
        windowing.window_ns.expect("there are windows"),
    );
    let (mut latest, mut first_open, mut run) = (None, i64::MIN, Vec::new());
    let (mut open, mut results) = (BTreeMap::<i64, Arrivals>::new(), Vec::new());
    let mut close = |open: &mut BTreeMap<i64, Arrivals>, before: i64| {
        while let Some(entry) = open.first_entry().filter(|entry| *entry.key() < before) {
            results.push(entry.remove_entry());
        }
    };
    for packet in packets {
        let time = packet.time_ns;
        let base = *latest.get_or_insert(time);
        if (time - base).abs() <= reach {
            run.clear();
            let late = time.div_euclid(window) < first_open;
            let at = open
                .entry(if late { base } else { time }.div_euclid(window))
                .or_default();
            at.received += 1;
            at.late += u64::from(late);
            latest = Some(base.max(time));
        } else {
            let at = open.entry(base.div_euclid(window)).or_default();
            at.received += 1;
            at.jumped += 1;
            run.push(time);
            if run.len() == 32 {
                let first = run.remove(0);
                let agree = run
                    .iter()
                    .filter(|&&next| next >= first - reach && next <= first + 30 * DAY)
                    .count();
                if agree * 2 >= run.len() {
                    let mut begins = first;
                    let mut others = Vec::new();
                    for &next in &run {
                        if (next - begins).abs() <= reach {
                            begins = begins.max(next);
                            others.clear();
                        } else {
                            others.push(next);
                        }
                    }
                    run = others;
                    if begins < base {
                        close(&mut open, i64::MAX);
                        first_open = (begins - windowing.late_ns).div_euclid(window);
                    }
                    latest = Some(begins);
                }
            }
        }
        let now = (latest.expect("a packet has come") - windowing.late_ns).div_euclid(window);
        if now > first_open {
            first_open = now;
            close(&mut open, now);
        }
    }
    close(&mut open, i64::MAX);
    results
}

/// Measures packets as a live source, `most` at a time, and compares the windows with the reference. Returns the sum of all.
///
/// Run-to-completion workers capture themselves; in the other designs, a distributor feeds workers.
fn compare_live(case: Case, packets: &[Made], most: usize) -> Arrivals {
    let expected = serial_live(packets, case.windowing);
    let mut whole = Arrivals::default();
    expected.iter().for_each(|(_, arrivals)| whole += *arrivals);
    let mut given = Vec::new();
    let mut each = |window: Window<'_>| {
        let start = window.span.expect("a window has times").0;
        // The windows between those with packets are judged by the simulator.
        if window.arrivals != Arrivals::default() {
            given.push((
                start.div_euclid(case.windowing.window_ns.expect("there are windows")),
                window.arrivals,
            ));
        }
    };
    let mut run = case.run();
    if case.design == Design::Rss {
        measured::capture(&mut run, vec![live(packets, most)], &mut each).expect("it works");
    } else {
        measured::source(
            &mut run,
            live(packets, most),
            &AtomicBool::new(false),
            &mut |_| {},
            &mut each,
        )
        .expect("it works");
    }
    let finished = run.finish(&mut each).expect("it works");
    assert_eq!(given, expected, "{case:?}, bursts of {most}");
    assert_eq!(finished.arrivals, whole);
    assert_eq!(whole.received, finished.processed + whole.late);
    whole
}

#[test]
fn hostile_stamps_of_live_sources_give_the_serial_answer_and_late_packets_are_counted() {
    let mut seen = Arrivals::default();
    for seed in 1..=12 {
        let mut packets = hostile(seed * 0x51ed_270b);
        packets.retain(|packet| packet.time_ns != NO_TIME);
        packets.iter_mut().for_each(|packet| packet.bytes = 60);
        for most in [1, 7, 500] {
            compare_live(
                Case {
                    windowing: WINDOWING,
                    ..SMALL
                },
                &packets,
                most,
            );
        }
        seen += compare_live(
            Case {
                windowing: WINDOWING,
                design: Design::Async,
                ..SMALL
            },
            &packets,
            100,
        );
    }
    assert!(seen.jumped > 100 && seen.late > 5, "{seen:?}");
}

/// No result is taken before the sources have ended. Windows with room are given out whole; the others are counted in the sum.
#[test]
fn windows_that_nobody_takes_in_time_are_left_out_and_their_packets_are_in_the_sum() {
    const WINDOWS: usize = 3000;
    let packets = steady(WINDOWS);
    let packets: Vec<Made> = packets
        .into_iter()
        .map(|packet| Made {
            bytes: 60,
            ..packet
        })
        .collect();
    let windowing = Windowing {
        window_ns: Some(SECOND / 1000),
        late_ns: 0,
    };
    let case = Case { windowing, ..PLAIN };
    for (sources, waits) in [(1, true), (2, true), (1, false), (3, false)] {
        let ends: Vec<Arc<AtomicBool>> = (0..sources).map(|_| Arc::default()).collect();
        let inputs = ends
            .iter()
            .map(|ended| live_until(&packets, 20, ended))
            .collect();
        let (mut given, mut left_out) = (0, 0);
        let mut each = |window: Window<'_>| {
            while waits && !ends.iter().all(|ended| ended.load(Ordering::Acquire)) {
                std::thread::yield_now();
            }
            given += 1;
            left_out += window.left_out;
            assert_eq!(
                window.arrivals.received, sources,
                "a window is whole or left out"
            );
            assert_eq!(
                window.state.map(|state| state.tally().passed),
                Some(sources)
            );
        };
        let mut run = case.run();
        measured::capture(&mut run, inputs, &mut each).expect("it works");
        let finished = run.finish(&mut each).expect("it works");
        assert_eq!(
            given + finished.left_out,
            WINDOWS as u64,
            "{sources} sources"
        );
        assert!(left_out <= finished.left_out);
        // 256 MiB for tables of 8 MiB, and the windows open at the end.
        assert!(!waits || given < 50, "{given} of {sources} sources");
        let mut whole = Expected::default();
        for _ in 0..sources {
            serial(&[&packets], windowing, KeyKind::FiveTuple, |_| true)
                .iter()
                .for_each(|window| whole.add(window));
        }
        compare(&case, &whole, finished.arrivals, finished.state.as_ref());
    }
}
