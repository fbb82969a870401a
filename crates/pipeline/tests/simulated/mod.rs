//! A simulated machine: interfaces that follow a script, a ring of blocks for each, and two clocks that only the scheduler moves.
//!
//! Everything is drawn from a seed, and the same seed gives the same run. An interface counts the packets that reached it, were
//! rejected, or found no room, and keeps those handed over. A run is compared with these counts and packets.

pub mod driven;

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;
use weir_io::Input;
use weir_io::live::{Backend, Counts, Lease, Marks, Next};
use weir_packet::savefile::{Bytes, Interface as Described, Layout, Record, Resolution, spool};
use weir_packet::{Frame, LinkType};
use weir_pipeline::steps::Moment;
pub use weir_testkit::Random;

pub const MS: i64 = 1_000_000;
pub const SECOND: i64 = 1000 * MS;

/// Time of day at the start of each run, ns since 1970: a whole second.
pub const BEGUN_NS: i64 = 1_700_000_000 * SECOND;

pub fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// A made packet, which the tests recognize by its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    pub number: u32,
    pub flow: u16,
    /// Number of captured bytes, and length on the wire.
    pub kept: usize,
    pub bytes: u32,
    /// Time stamp, ns since 1970.
    pub stamp: Option<i64>,
}

impl Packet {
    /// Returns what is captured of a UDP frame in IPv4: the packet's number is in its first bytes, and its source port names the
    /// flow.
    pub fn frame(&self) -> Vec<u8> {
        let mut frame = vec![0; self.kept.max(60)];
        frame[..4].copy_from_slice(&self.number.to_be_bytes());
        frame[12..16].copy_from_slice(&[0x08, 0x00, 0x45, 0]);
        frame[16..18].copy_from_slice(&46u16.to_be_bytes());
        frame[22..24].copy_from_slice(&[64, 17]);
        frame[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        frame[34..36].copy_from_slice(&self.flow.to_be_bytes());
        frame.truncate(self.kept);
        frame
    }

    /// Returns the number of the packet in this frame.
    pub fn number_in(frame: &[u8]) -> u32 {
        u32::from_be_bytes(*frame.first_chunk().expect("this much is captured of all"))
    }
}

/// An event of an interface.
#[derive(Clone, Copy, Debug)]
pub enum Event {
    Packet(Packet),
    /// A packet that a filter in the kernel rejects.
    Rejected,
    Down,
    Up,
    Gone,
}

/// The interface's own account: each figure is counted at the place of the event.
#[derive(Clone, Debug, Default)]
pub struct Truth {
    pub reached: u64,
    pub rejected: u64,
    pub dropped: u64,
    pub downs: u64,
    /// Packets handed over, in this order.
    pub handed: Vec<Packet>,
    /// Number of blocks that came back although they were not out.
    pub twice: u64,
    /// Whether the interface was removed during the capture.
    pub gone: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Free,
    Ready,
    /// Handed over; the number counts the handovers.
    Out(u64),
}

#[derive(Debug)]
struct Block {
    state: State,
    packets: Vec<Packet>,
}

/// Settings of a ring.
#[derive(Clone, Copy, Debug)]
pub struct Ring {
    pub blocks: usize,
    /// Number of packets of a block. `portion` is that of the part of a block that is handed over at once.
    pub room: usize,
    pub portion: usize,
    /// Time from the first packet of a block to its handover; the actual time may be up to twice as long.
    pub retire: Duration,
}

/// An interface, and the ring between it and its reader.
#[derive(Debug)]
pub struct Interface {
    script: VecDeque<(Duration, Event)>,
    ring: Ring,
    blocks: Vec<Block>,
    /// Number of the block that the kernel fills. `retires` is its latest handover, `read` the block that the reader takes next.
    fill: usize,
    retires: Option<Duration>,
    read: usize,
    /// Packets of the block before `read` that are not handed over yet.
    opened: Option<(Arc<Out>, VecDeque<Packet>)>,
    handovers: u64,
    is_down: bool,
    /// Whether no more packets are let in.
    ends: bool,
    random: Random,
    truth: Truth,
}

/// A block that is out. Its memory goes back with the last portion.
#[derive(Debug)]
struct Out {
    interface: Shared,
    block: usize,
    handover: u64,
}

impl Drop for Out {
    fn drop(&mut self) {
        self.interface.lock().give_back(self.block, self.handover);
    }
}

/// Packets of a block.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    _block: Arc<Out>,
}

impl Lease for Held {
    fn bytes(&self) -> Bytes<'_> {
        (&self.bytes).into()
    }
}

impl Interface {
    /// Advances the time to `to`.
    fn advance(&mut self, to: Duration) {
        while let Some(&(at, event)) = self.script.front().filter(|(at, _)| *at <= to) {
            self.script.pop_front();
            self.retire(at);
            self.happen(at, event);
        }
        self.retire(to);
    }

    /// Hands the current block over if its time is up.
    fn retire(&mut self, now: Duration) {
        if self.retires.is_some_and(|until| until <= now) {
            self.close();
        }
    }

    fn close(&mut self) {
        self.retires = None;
        self.blocks[self.fill].state = State::Ready;
        self.fill = (self.fill + 1) % self.blocks.len();
    }

    fn happen(&mut self, at: Duration, event: Event) {
        if self.ends {
            return;
        }
        match event {
            Event::Packet(packet) if !self.is_down => {
                self.truth.reached += 1;
                self.receive(at, packet);
            }
            Event::Rejected if !self.is_down => {
                self.truth.reached += 1;
                self.truth.rejected += 1;
            }
            Event::Packet(_) | Event::Rejected => {}
            Event::Down => {
                self.truth.downs += u64::from(!self.is_down);
                self.is_down = true;
            }
            Event::Up => self.is_down = false,
            Event::Gone => (self.truth.gone, self.ends) = (true, true),
        }
    }

    fn receive(&mut self, at: Duration, packet: Packet) {
        let block = &mut self.blocks[self.fill];
        if block.state != State::Free {
            self.truth.dropped += 1;
            return;
        }
        block.packets.push(packet);
        if block.packets.len() == self.ring.room {
            self.close();
        } else if self.retires.is_none() {
            let longer = self.random.below(self.ring.retire.as_micros() as usize + 1);
            self.retires = Some(at + self.ring.retire + Duration::from_micros(longer as u64));
        }
    }

    fn give_back(&mut self, block: usize, handover: u64) {
        if self.blocks[block].state == State::Out(handover) {
            self.blocks[block].state = State::Free;
        } else {
            self.truth.twice += 1;
        }
    }

    /// Returns the time of the next event.
    fn next_change(&self) -> Option<Duration> {
        self.script
            .front()
            .map(|(at, _)| *at)
            .into_iter()
            .chain(self.retires)
            .min()
    }

    /// Whether a reader would find packets or the end.
    fn is_ready(&self) -> bool {
        self.opened.is_some() || self.blocks[self.read].state == State::Ready || self.is_over()
    }

    /// Whether no more packets come, and all are handed over.
    fn is_over(&self) -> bool {
        let left = self.blocks.iter().any(|block| block.state == State::Ready);
        self.ends && !left && self.opened.is_none() && self.retires.is_none()
    }

    fn counts(&self) -> Counts {
        Counts {
            received: self.truth.reached,
            filtered: Some(self.truth.rejected),
            dropped: self.truth.dropped,
            handed_over: self.truth.handed.len() as u64,
        }
    }
}

/// An interface, shared by script, reader and test.
#[derive(Clone, Debug)]
pub struct Shared(Arc<Mutex<Interface>>);

impl Shared {
    pub fn new(mut script: Vec<(Duration, Event)>, ring: Ring, seed: u64) -> Self {
        script.sort_by_key(|(at, _)| *at);
        let blocks = (0..ring.blocks)
            .map(|_| Block {
                state: State::Free,
                packets: Vec::new(),
            })
            .collect();
        Self(Arc::new(Mutex::new(Interface {
            script: script.into(),
            ring,
            blocks,
            fill: 0,
            retires: None,
            read: 0,
            opened: None,
            handovers: 0,
            is_down: false,
            ends: false,
            random: Random(seed),
            truth: Truth::default(),
        })))
    }

    fn lock(&self) -> MutexGuard<'_, Interface> {
        self.0.lock().expect("no test panics while it holds this")
    }

    /// Returns the interface as an input for a reader.
    pub fn input(&self, name: &str, stop: &Arc<AtomicBool>) -> Input {
        Input::live(name, Box::new(Reading(self.clone())), stop)
    }

    /// Returns the interface's account at the end of a run, and checks that it adds up and that each block came back once.
    pub fn truth(&self) -> Truth {
        let interface = self.lock();
        let truth = interface.truth.clone();
        let waiting = interface.blocks.iter().map(|block| block.packets.len());
        let opened = interface.opened.iter().map(|(_, rest)| rest.len());
        let waiting = waiting.chain(opened).sum::<usize>();
        assert_eq!(
            truth.reached,
            truth.rejected + truth.dropped + (truth.handed.len() + waiting) as u64,
            "the simulation's account"
        );
        assert!(waiting == 0 || !interface.is_over());
        assert_eq!(truth.twice, 0, "a block came back twice");
        let out = interface
            .blocks
            .iter()
            .filter(|block| matches!(block.state, State::Out(_)))
            .count();
        // A run with a limit may end in the middle of a block.
        let opened = usize::from(interface.opened.is_some());
        assert_eq!(out, opened, "blocks never came back");
        truth
    }

    pub fn counts(&self) -> Counts {
        self.lock().counts()
    }
}

/// The reader's end of an interface.
#[derive(Debug)]
struct Reading(Shared);

impl Backend for Reading {
    fn next(&mut self, stop: &AtomicBool) -> io::Result<Next> {
        let mut interface = self.0.lock();
        interface.ends |= stop.load(Ordering::Relaxed);
        if interface.opened.is_none() && interface.blocks[interface.read].state == State::Ready {
            let block = interface.read;
            interface.handovers += 1;
            let handover = interface.handovers;
            interface.blocks[block].state = State::Out(handover);
            let packets = std::mem::take(&mut interface.blocks[block].packets);
            interface.opened = Some((
                Arc::new(Out {
                    interface: self.0.clone(),
                    block,
                    handover,
                }),
                packets.into(),
            ));
            interface.read = (block + 1) % interface.blocks.len();
        }
        if let Some((block, mut rest)) = interface.opened.take() {
            let behind = rest.split_off(rest.len().min(interface.ring.portion));
            if !behind.is_empty() {
                interface.opened = Some((Arc::clone(&block), behind));
            }
            let mut bytes = Vec::new();
            for packet in &rest {
                let data = packet.frame();
                let frame = Frame {
                    data: &data,
                    wire_len: packet.bytes,
                    interface: 0,
                };
                spool::append(
                    &mut bytes,
                    0,
                    packet.stamp.unwrap_or(0),
                    &Record {
                        time_ns: packet.stamp,
                        frame,
                        options: Default::default(),
                    },
                );
            }
            let packets = rest.len() as u64;
            interface.truth.handed.extend(rest);
            return Ok(Next::Records(
                Arc::new(Held {
                    bytes,
                    _block: block,
                }),
                packets,
            ));
        }
        if !interface.is_over() {
            return Ok(Next::Nothing);
        }
        if interface.truth.gone {
            Err(io::Error::other("the interface is gone"))
        } else {
            Ok(Next::End)
        }
    }

    /// Never called: the driver of the run moves the clocks.
    fn wait(&mut self, _: Duration) -> io::Result<()> {
        unreachable!("a step does not wait")
    }

    fn counts(&self) -> Counts {
        self.0.counts()
    }

    fn marks(&self) -> Marks {
        Marks {
            downs: self.0.lock().truth.downs,
            ..Marks::default()
        }
    }

    fn layout(&self) -> Layout {
        Layout::spool(vec![Described::plain(
            LinkType::ETHERNET,
            65_535,
            Resolution::NANOSECOND,
        )])
    }

    fn place(&self) -> &'static str {
        "kernel"
    }

    fn describe(&self) -> String {
        "simulated".to_owned()
    }
}

#[test]
#[should_panic(expected = "a block came back twice")]
fn a_block_that_comes_back_twice_is_noticed() {
    let packet = Packet {
        number: 1,
        flow: 1,
        kept: 60,
        bytes: 60,
        stamp: None,
    };
    let script = vec![(ms(1), Event::Packet(packet))];
    let interface = Shared::new(
        script,
        Ring {
            blocks: 2,
            room: 1,
            portion: 1,
            retire: ms(50),
        },
        1,
    );
    interface.lock().advance(ms(1));
    let next = Reading(interface.clone()).next(&AtomicBool::new(false));
    assert!(matches!(next, Ok(Next::Records(_, 1))));
    drop(next);
    interface.lock().give_back(0, 1);
    interface.truth();
}

/// Kinds of events that the script of a run may hold.
#[derive(Clone, Copy, Debug, Default)]
pub struct Weather {
    /// Whether the wall clock is set back and forth, by up to an hour.
    pub steps: bool,
    /// Whether each interface stamps by its own clock.
    pub offsets: bool,
    /// Whether some stamps are far off, or missing.
    pub damaged: bool,
    /// Largest distance of a stamp behind the one before, ns.
    pub disorder_ns: i64,
    /// Whether interfaces go down, come up, and are removed.
    pub downs: bool,
    /// Whether some packets are rejected before they arrive.
    pub rejects: bool,
}

/// Settings of the wall clock: the time, and the difference, ns.
pub type WallSteps = Vec<(Duration, i64)>;

/// Returns the time of day, ns since 1970.
fn wall_ns(at: Duration, steps: &WallSteps) -> i64 {
    let set: i64 = steps
        .iter()
        .filter(|(step, _)| *step <= at)
        .map(|(_, by)| by)
        .sum();
    BEGUN_NS + at.as_nanos() as i64 + set
}

/// Events of an interface, with their times.
pub type Script = Vec<(Duration, Event)>;

/// Draws the scripts of `sources` interfaces, `length` long, and the settings of the wall clock.
pub fn scripts(
    random: &mut Random,
    sources: usize,
    length: Duration,
    weather: Weather,
) -> (Vec<Script>, WallSteps) {
    let length_ns = length.as_nanos() as u64;
    let steps: WallSteps = (0..if weather.steps {
        1 + random.below(3)
    } else {
        0
    })
        .map(|_| {
            let reach = [SECOND, 20 * SECOND, 3600 * SECOND][random.below(3)];
            (
                Duration::from_nanos(random.next() % length_ns),
                random.next() as i64 % reach,
            )
        })
        .collect();
    let mut number = 0;
    let one = |_| {
        let offset = if weather.offsets {
            random.next() as i64 % (2 * SECOND)
        } else {
            0
        };
        let (flows, mut script, mut at) = (1 + random.below(12), Vec::new(), 0u64);
        while at < length_ns && script.len() < 250 {
            // A burst, packets at a rate, or a rest.
            let (packets, gap) = match random.below(6) {
                0 => (random.below(80), 1 + random.next() % 20_000),
                1 => (0, 1),
                2 => (1, 1),
                _ => (random.below(20), 1 + random.next() % 15_000_000),
            };
            for _ in 0..packets {
                at += gap;
                let late = if random.below(4) == 0 {
                    random.next() as i64 % (weather.disorder_ns + 1)
                } else {
                    0
                };
                let true_ns = wall_ns(Duration::from_nanos(at), &steps) + offset;
                let stamp = match random.below(60) {
                    0 if weather.damaged => None,
                    1 if weather.damaged => Some(random.next() as i64 >> random.below(12)),
                    2 if weather.damaged => Some(true_ns + random.next() as i64 % (30 * SECOND)),
                    _ => Some(true_ns - late.abs()),
                };
                let event = if weather.rejects && random.below(5) == 0 {
                    Event::Rejected
                } else {
                    number += 1;
                    let (flow, bytes) =
                        (random.below(flows) as u16, 60 + random.below(1400) as u32);
                    Event::Packet(Packet {
                        number,
                        flow,
                        kept: 60,
                        bytes,
                        stamp,
                    })
                };
                script.push((Duration::from_nanos(at), event));
            }
            at += match random.below(8) {
                0 => random.next() % (2 * SECOND as u64),
                1..4 => random.next() % (300 * MS as u64),
                _ => random.next() % (20 * MS as u64),
            };
        }
        if weather.downs && random.below(2) == 0 {
            let down = random.next() % length_ns;
            let up = down + random.next() % (SECOND as u64);
            script.push((Duration::from_nanos(down), Event::Down));
            let end = if random.below(2) == 0 {
                Event::Gone
            } else {
                Event::Up
            };
            script.push((Duration::from_nanos(up), end));
        }
        script
    };
    ((0..sources).map(one).collect(), steps)
}

/// Draws a ring.
pub fn ring(random: &mut Random) -> Ring {
    let room = 1 + random.below(40);
    Ring {
        blocks: 2 + random.below(6),
        room,
        portion: 1 + random.below(room),
        retire: ms(50),
    }
}

/// The simulated machine, which chooses the member of the next step and its time. Members are numbered; the first ones read the
/// interfaces.
pub struct Scheduler {
    pub random: Random,
    pub interfaces: Vec<Shared>,
    now: Duration,
    /// Time until which each member has no work. `stalled` is the time until which it is kept from running.
    idle: Vec<Duration>,
    ended: Vec<bool>,
    stalled: Vec<Duration>,
    /// Number of steps, of 1000, after which a member is kept from running for a while.
    stalls: usize,
    /// Time at which the run is stopped.
    stops: Duration,
    stop: Arc<AtomicBool>,
    wall_steps: WallSteps,
    taken: u64,
}

impl Scheduler {
    pub fn new(
        random: Random,
        interfaces: Vec<Shared>,
        members: usize,
        stalls: usize,
        (stops, stop): (Duration, Arc<AtomicBool>),
        wall_steps: WallSteps,
    ) -> Self {
        let (idle, stalled) = (vec![Duration::ZERO; members], vec![Duration::ZERO; members]);
        let ended = vec![false; members];
        Self {
            random,
            interfaces,
            now: Duration::ZERO,
            idle,
            ended,
            stalled,
            stalls,
            stops,
            stop,
            wall_steps,
            taken: 0,
        }
    }

    pub fn now(&self) -> Moment {
        Moment {
            steady: self.now,
            wall_ns: wall_ns(self.now, &self.wall_steps),
        }
    }

    fn advance(&mut self, to: Duration) {
        self.now = self.now.max(to);
        self.interfaces
            .iter()
            .for_each(|interface| interface.lock().advance(self.now));
        if self.now >= self.stops {
            self.stop.store(true, Ordering::Relaxed);
            // A waiting member checks at once, or after a turn.
            self.stops = Duration::MAX;
            self.idle
                .iter_mut()
                .zip(&self.ended)
                .filter(|(_, ended)| !**ended)
                .for_each(|(idle, _)| *idle = Duration::ZERO);
        }
    }

    fn is_runnable(&self, member: usize) -> bool {
        let ready = self
            .interfaces
            .get(member)
            .is_some_and(|interface| interface.lock().is_ready());
        self.stalled[member] <= self.now
            && (self.idle[member] <= self.now || ready && self.idle[member] < Duration::MAX)
    }

    /// Returns the member of the next step and its time. Time advances in between.
    pub fn next(&mut self) -> (usize, Moment) {
        self.taken += 1;
        assert!(self.taken < 1_000_000, "the run does not end");
        loop {
            let runnable: Vec<usize> = (0..self.idle.len())
                .filter(|&member| self.is_runnable(member))
                .collect();
            if runnable.is_empty() {
                let changes = self
                    .interfaces
                    .iter()
                    .filter_map(|interface| interface.lock().next_change());
                let members = self
                    .idle
                    .iter()
                    .zip(&self.stalled)
                    .map(|(idle, stalled)| *idle.max(stalled));
                let stalled = self.stalled.iter().copied();
                let times = changes
                    .chain(members)
                    .chain(stalled)
                    .chain([self.stops])
                    .filter(|time| *time > self.now);
                let next = times
                    .min()
                    .filter(|time| *time < Duration::MAX)
                    .expect("somebody has something to do");
                self.advance(next);
                continue;
            }
            let member = runnable[self.random.below(runnable.len())];
            if self.random.below(1000) < self.stalls {
                let most = [2, 30, 400, 3000][self.random.below(4)];
                self.stalled[member] = self.now + ms(self.random.next() % most);
                continue;
            }
            let now = self.now();
            // The member reads its clock, and its step takes time.
            if self.random.below(3) == 0 {
                let more = Duration::from_micros(self.random.next() % 2000);
                self.advance(self.now + more);
            }
            return (member, now);
        }
    }

    /// Notes that a member has no work before `until`.
    pub fn idle(&mut self, member: usize, until: Duration) {
        self.idle[member] = until;
    }

    /// Keeps a member from running before `until`.
    pub fn stall(&mut self, member: usize, until: Duration) {
        self.stalled[member] = until;
    }

    /// Notes that a member has work again.
    pub fn wake(&mut self, member: usize) {
        self.idle[member] = Duration::ZERO;
    }

    /// Wakes a member that waited for room only.
    pub fn has_room(&mut self, member: usize) {
        if self.idle[member] == Duration::MAX && !self.ended[member] {
            self.idle[member] = Duration::ZERO;
        }
    }

    /// Notes the end of a member.
    pub fn end(&mut self, member: usize) {
        self.ended[member] = true;
        self.idle[member] = Duration::MAX;
    }
}

/// Runs a test for `runs` seeds, or for the seed in the environment variable `SEED`. Prints a failing seed.
pub fn each_seed(runs: u64, test: impl Fn(u64)) {
    struct Said(u64);
    impl Drop for Said {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("it failed with SEED={}", self.0);
            }
        }
    }
    let one = |seed| {
        let _said = Said(seed);
        test(seed);
    };
    match std::env::var("SEED") {
        Ok(seed) => one(seed.parse().expect("SEED is a number")),
        Err(_) => (0..runs).for_each(one),
    }
}
