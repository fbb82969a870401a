//! The counter at the end of the way: a program at the ingress of an interface, which counts frames, looks at their numbers and times, and
//! drops them.

use anyhow::Context;
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering;
use weir_io::sys::bpf::{
    self, Assembler, Helper, If, Kind, Map, Op, Program, Register::*, Size, Values,
};
use weir_io::sys::inject::HEADERS;
use weir_io::sys::packet_socket::index_of;

/// Offsets of the frame's number and of the time when it was sent, 8 bytes each in network byte order.
pub const NUMBER: usize = HEADERS;
pub const TIME: usize = HEADERS + 8;

/// UDP port to which the counted frames go.
pub const PORT: u16 = 5000;

/// Last bytes of the source addresses of probes, on which two rule lists differ: each list passes one kind.
pub const PROBES: [u8; 2] = [1, 2];

// Words of the map.
const FRAMES: usize = 0;
const OTHERS: usize = 8;
const LATEST: usize = 24;
const LONGEST_GAP: usize = 32;
const LONGEST_WAIT: usize = 40;
const DISORDER: usize = 48;
const LAST_NUMBER: usize = 56;
const KIND: usize = 64;
const PROBE: usize = 72;
const SEEN: usize = 80;
const SWITCHES: usize = 88;
const PROBE_TIME: usize = 96;
/// Changes from one kind of probe to the other, from here on.
const LOG: usize = 128;
const LOGGED: usize = 256;
/// Bytes of a change: its kind, the number of the probe before, its number, the number of probes before, and the time when the probe before
/// was sent.
const CHANGE: usize = 64;

/// `data` and `data_end` in `struct __sk_buff`.
const DATA: i16 = 76;
const DATA_END: i16 = 80;

/// `TCX_DROP`.
const DROP: i32 = 2;

/// Counts of a sink.
#[derive(Clone, Copy, Debug)]
pub struct Counts {
    /// Frames of the sender.
    pub frames: u64,
    /// Other frames.
    pub others: u64,
    /// Time of the latest frame, ns.
    pub latest_ns: u64,
    /// Frames whose number is not above that of the frame before.
    pub disorder: u64,
    /// Probes of both kinds.
    pub probes: u64,
}

/// Change from one kind of probe to the other.
#[derive(Clone, Copy, Debug)]
pub struct Switch {
    /// Kind of the first probe after it.
    pub kind: u64,
    /// Number of the last probe before it.
    pub before: u64,
    /// Number of the first probe after it.
    pub after: u64,
    /// Probes before it.
    pub probes: u64,
    /// Time when the last probe before it was sent, ns.
    pub before_ns: u64,
}

/// A sink at work.
#[derive(Debug)]
pub struct Sink {
    values: Values,
    _attachment: OwnedFd,
}

impl Sink {
    /// Opens a sink at an interface.
    pub fn open(interface: &str) -> anyhow::Result<Self> {
        let index = index_of(interface).context("no such interface")?;
        let map = Map::array(1, (LOG + LOGGED * CHANGE) as u32)?;
        let program = Program::load(Kind::TrafficControl, &assemble(&map), false)?;
        Ok(Self {
            values: map.memory()?,
            _attachment: bpf::attach_to_ingress(&program, index)?,
        })
    }

    fn word(&self, at: usize) -> u64 {
        self.values.word(0, at).load(Ordering::Relaxed)
    }

    /// Begins again. No frame may be under way.
    pub fn reset(&self) {
        for at in (0..LOG).step_by(8) {
            self.values.word(0, at).store(0, Ordering::Relaxed);
        }
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> Counts {
        let [frames, others, latest_ns, disorder, probes] =
            [FRAMES, OTHERS, LATEST, DISORDER, SEEN].map(|at| self.word(at));
        Counts {
            frames,
            others,
            latest_ns,
            disorder,
            probes,
        }
    }

    /// Returns the longest time between two frames, and the longest time that a frame was under way, since the last call; in ns.
    pub fn longest(&self) -> [u64; 2] {
        [LONGEST_GAP, LONGEST_WAIT].map(|at| self.values.word(0, at).swap(0, Ordering::Relaxed))
    }

    /// Returns the changes from one kind of probe to the other; the first of them leads to the first probe of all.
    pub fn switches(&self) -> Vec<Switch> {
        let count = (self.word(SWITCHES) as usize).min(LOGGED);
        let change = |number| {
            let word = |at| self.word(LOG + number * CHANGE + at);
            Switch {
                kind: word(0),
                before: word(8),
                after: word(16),
                probes: word(24),
                before_ns: word(32),
            }
        };
        (0..count).map(change).collect()
    }
}

/// ```text
/// if it is no frame of the sender: others++, drop
/// frames++, time, longest gap and wait
/// if number <= last number: disorder++
/// if it is a probe: if its kind is another than that of the probe before: note the change; seen++
/// drop
/// ```
fn assemble(map: &Map) -> Assembler<'_> {
    let at = |offset: usize| offset as i16;
    let mut a = Assembler::new();
    let [other, begin, timed, waited, ordered, probe, same, done] = [(); 8].map(|()| a.label());
    let count = |a: &mut Assembler<'_>, word: usize| {
        a.load(Size::Eight, R1, R9, at(word));
        a.alu(Op::Add, R1, 1);
        a.store(Size::Eight, R9, at(word), R1);
    };
    a.map_value(R9, map, 0);
    a.load(Size::Four, R6, R1, DATA);
    a.load(Size::Four, R2, R1, DATA_END);
    a.set(R3, R6);
    a.alu(Op::Add, R3, (TIME + 8) as i32);
    a.jump(If::Greater, R3, R2, other);
    a.load(Size::Two, R1, R6, at(12));
    a.jump(If::NotEqual, R1, i32::from(0x0800u16.to_be()), other);
    a.load(Size::Two, R1, R6, at(36));
    a.jump(If::NotEqual, R1, i32::from(PORT.to_be()), other);
    a.call(Helper::TIME);
    a.set(R8, R0);
    count(&mut a, FRAMES);

    a.load(Size::Eight, R1, R9, at(LATEST));
    a.jump(If::NotEqual, R1, 0, begin);
    a.set(R1, R8);
    a.place(begin);
    a.set(R2, R8);
    a.alu(Op::Sub, R2, R1);
    a.load(Size::Eight, R3, R9, at(LONGEST_GAP));
    a.jump(If::LessEqual, R2, R3, timed);
    a.store(Size::Eight, R9, at(LONGEST_GAP), R2);
    a.place(timed);
    a.store(Size::Eight, R9, at(LATEST), R8);

    a.load(Size::Eight, R1, R6, at(TIME));
    a.swap(R1, Size::Eight);
    a.set(R2, R8);
    a.alu(Op::Sub, R2, R1);
    a.load(Size::Eight, R3, R9, at(LONGEST_WAIT));
    a.jump(If::LessEqual, R2, R3, waited);
    a.store(Size::Eight, R9, at(LONGEST_WAIT), R2);
    a.place(waited);

    a.load(Size::Eight, R7, R6, at(NUMBER));
    a.swap(R7, Size::Eight);
    // Numbers begin with 0.
    a.alu(Op::Add, R7, 1);
    a.load(Size::Eight, R1, R9, at(LAST_NUMBER));
    a.jump(If::Greater, R7, R1, ordered);
    count(&mut a, DISORDER);
    a.place(ordered);
    a.store(Size::Eight, R9, at(LAST_NUMBER), R7);
    a.alu(Op::Sub, R7, 1);

    a.load(Size::One, R1, R6, at(14 + 15));
    for kind in PROBES {
        a.jump(If::Equal, R1, i32::from(kind), probe);
    }
    a.go(done);
    a.place(probe);
    a.load(Size::Eight, R2, R9, at(KIND));
    a.jump(If::Equal, R1, R2, same);
    a.store(Size::Eight, R9, at(KIND), R1);
    a.load(Size::Eight, R3, R9, at(SWITCHES));
    a.set(R5, R3);
    a.alu(Op::Add, R3, 1);
    a.store(Size::Eight, R9, at(SWITCHES), R3);
    a.alu(Op::And, R5, LOGGED as i32 - 1);
    a.alu(Op::Mul, R5, CHANGE as i32);
    a.alu(Op::Add, R5, R9);
    a.store(Size::Eight, R5, at(LOG), R1);
    a.load(Size::Eight, R2, R9, at(PROBE));
    a.store(Size::Eight, R5, at(LOG + 8), R2);
    a.store(Size::Eight, R5, at(LOG + 16), R7);
    a.load(Size::Eight, R2, R9, at(SEEN));
    a.store(Size::Eight, R5, at(LOG + 24), R2);
    a.load(Size::Eight, R2, R9, at(PROBE_TIME));
    a.store(Size::Eight, R5, at(LOG + 32), R2);
    a.place(same);
    a.store(Size::Eight, R9, at(PROBE), R7);
    a.load(Size::Eight, R1, R6, at(TIME));
    a.swap(R1, Size::Eight);
    a.store(Size::Eight, R9, at(PROBE_TIME), R1);
    count(&mut a, SEEN);
    a.place(done);
    a.result(DROP);

    a.place(other);
    count(&mut a, OTHERS);
    a.result(DROP);
    a
}
