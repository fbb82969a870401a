//! Scenarios of the layer of handles over a simulated kernel: each sent packet is delivered, or counted as dropped.
//!
//! `WEIR_SCENARIOS` is the number of scenarios; a failure prints the seed of its scenario, which `WEIR_SEED` repeats alone.

use crate::handles::{self, Handle, Source};
use crate::judge::{LiveJudge, Origin};
use crate::live::{Live, Packet, Reader, Waited};
use crate::settings::Backend;
use crate::types::*;
use crate::{calls, real};
use core::ffi::{c_int, c_uchar};
use core::ptr::{null, null_mut};
use core::sync::atomic::Ordering;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::rc::Rc;
use weir_io::live::Counts;
use weir_packet::Frame;
use weir_testkit::{Random, links};

/// Scenarios of an ordinary run: two seconds of a processor.
const SCENARIOS: u64 = 20_000;

/// Ports of the frames, by which filters choose.
const PORTS: usize = 4;

/// A frame that the simulated kernel has.
#[derive(Clone, Debug)]
struct Sent {
    number: u32,
    bytes: Vec<u8>,
    is_outgoing: bool,
}

/// The kernel: a ring of frames, and counts of the others.
struct Kernel {
    random: Random,
    ring: VecDeque<Sent>,
    room: usize,
    filter: LiveJudge,
    sent: u32,
    rejected: u64,
    received: u64,
    dropped: u64,
    is_down: bool,
    /// Waits without a packet, one after the other.
    idle: u32,
    handle: *mut Handle,
    has_broken: bool,
}

impl Kernel {
    /// Time passes: frames come, a signal handler breaks a read, the interface goes.
    fn step(&mut self) -> Waited {
        let count = match self.random.below(4) {
            0 => self.random.below(40),
            1 => 1,
            _ => 0,
        };
        (0..count).for_each(|_| self.send());
        self.idle = if count > 0 { 0 } else { self.idle + 1 };
        if self.idle > 20 || self.random.below(30) == 0 {
            self.break_loop();
        }
        if self.random.below(200) == 0 {
            self.is_down = true;
        }
        match self.is_down {
            true => Waited::Down,
            false => Waited::Ready,
        }
    }

    fn break_loop(&mut self) {
        self.has_broken = true;
        // SAFETY: the handle is open as long as the kernel.
        unsafe { (*self.handle).is_broken.store(true, Ordering::SeqCst) };
    }

    fn send(&mut self) {
        let port = 7 + self.random.below(PORTS) as u16;
        let number = self.sent;
        self.sent += 1;
        let mut payload = number.to_be_bytes().to_vec();
        payload.resize(4 + self.random.below(200), 9);
        let bytes = [
            &[2; 12][..],
            &[8, 0],
            &links::ip4(17, &[], &links::udp(1000, port, &payload)),
        ]
        .concat();
        let frame = Frame {
            data: &bytes,
            wire_len: bytes.len() as u32,
            interface: 0,
        };
        if self.filter.matches(&[frame]) & 1 == 0 {
            self.rejected += 1;
            return;
        }
        self.received += 1;
        if self.ring.len() == self.room {
            self.dropped += 1;
            return;
        }
        self.ring.push_back(Sent {
            number,
            bytes,
            is_outgoing: self.random.below(4) == 0,
        });
    }
}

/// The reader of a simulated ring: a block of it at a time.
struct Simulated {
    kernel: Rc<RefCell<Kernel>>,
    block: VecDeque<Sent>,
    /// The frame that was taken last: its memory is the program's until the next call.
    shown: Option<Sent>,
}

impl Reader for Simulated {
    fn backend(&self) -> Backend {
        Backend::AfPacket
    }

    fn fd(&self) -> c_int {
        -1
    }

    fn set_filter(&mut self, insns: &[Insn]) {
        self.kernel.borrow_mut().filter = LiveJudge::new(insns, Origin::default());
    }

    fn counts(&mut self) -> Counts {
        let kernel = self.kernel.borrow();
        Counts {
            received: kernel.received,
            dropped: kernel.dropped,
            ..Counts::default()
        }
    }

    fn take(&mut self, packet: &mut Packet) -> bool {
        self.shown = self.block.pop_front();
        let Some(sent) = &self.shown else {
            return false;
        };
        *packet = Packet {
            seconds: sent.number,
            nanoseconds: 5000,
            captured: sent.bytes.len() as u32,
            wire_len: sent.bytes.len() as u32,
            is_outgoing: sent.is_outgoing,
            is_last: false,
            data: sent.bytes.as_ptr(),
        };
        true
    }

    fn advance(&mut self) -> io::Result<bool> {
        let mut kernel = self.kernel.borrow_mut();
        let most = 1 + kernel.random.below(10);
        let count = kernel.ring.len().min(most);
        self.block = kernel.ring.drain(..count).collect();
        Ok(count > 0)
    }

    fn release(&mut self) {}

    fn pause(&mut self) -> Option<Waited> {
        Some(self.kernel.borrow_mut().step())
    }
}

/// A program with one handle, and the numbers of its packets.
struct Reading {
    p: *mut Pcap,
    kernel: Rc<RefCell<Kernel>>,
    seen: Vec<u32>,
    skipped_directions: Direction,
    is_over: bool,
    act_at: usize,
    in_call: usize,
}

unsafe extern "C-unwind" fn take(user: *mut c_uchar, header: *const Header, data: *const c_uchar) {
    // SAFETY: the pointers are those of this call.
    unsafe { (*user.cast::<Reading>()).note(&*header, data) };
}

impl Reading {
    fn new(seed: u64) -> Self {
        // SAFETY: the call has no pointers.
        let p = unsafe { real::pcap_open_dead(1, 2000) };
        let kernel = Rc::new(RefCell::new(Kernel {
            random: Random(seed),
            ring: VecDeque::new(),
            room: 1 + Random(seed ^ 7).below(60),
            filter: LiveJudge::default(),
            sent: 0,
            rejected: 0,
            received: 0,
            dropped: 0,
            is_down: false,
            idle: 0,
            handle: null_mut(),
            has_broken: false,
        }));
        let reader = Simulated {
            kernel: Rc::clone(&kernel),
            block: VecDeque::new(),
            shown: None,
        };
        let wake = File::open("/dev/null").unwrap().into();
        let live = Live::new(Box::new(reader), wake, 2000);
        assert!(handles::insert(Handle::new(
            p,
            Source::Live(Box::new(live))
        )));
        kernel.borrow_mut().handle = handles::find(p);
        Self {
            p,
            kernel,
            seen: Vec::new(),
            skipped_directions: 0,
            is_over: false,
            act_at: usize::MAX,
            in_call: 0,
        }
    }

    fn live(&mut self) -> &mut Live {
        // SAFETY: the handle is in the table, and this is its only user.
        match unsafe { &mut (*handles::find(self.p)).source } {
            Source::Live(live) => live,
            Source::File(_) => unreachable!("it was made so"),
        }
    }

    fn note(&mut self, header: &Header, data: *const c_uchar) {
        // SAFETY: as many bytes are there as the header says.
        let data = unsafe { core::slice::from_raw_parts(data, header.captured as usize) };
        let number = u32::from_be_bytes(data[42..46].try_into().unwrap());
        assert_eq!(
            (header.time.tv_sec, header.time.tv_usec),
            (number.into(), 5)
        );
        assert!(data[46..].iter().all(|byte| *byte == 9));
        self.seen.push(number);
        self.in_call += 1;
        if self.in_call == self.act_at {
            // SAFETY: the handle is open.
            unsafe { calls::pcap_breakloop(self.p) };
            self.kernel.borrow_mut().has_broken = true;
        }
    }

    /// One call of the program, whose result has to be right.
    fn call(&mut self, random: &mut Random) {
        self.in_call = 0;
        self.act_at = match random.below(6) {
            0 => 1 + random.below(8),
            _ => usize::MAX,
        };
        let count = [-1, 0, 1, 1, 2, 7, 50][random.below(7)];
        let (p, user) = (self.p, (&raw mut *self).cast());
        let before = self.seen.len();
        // SAFETY: the handle is open, and the pointers lead to variables.
        unsafe {
            match random.below(12) {
                0..=3 => {
                    let done = calls::pcap_dispatch(p, count, take, user);
                    let seen = (self.seen.len() - before) as c_int;
                    assert!(count <= 0 || seen <= count);
                    self.ended(done, seen);
                }
                4 => {
                    // Without waits, libpcap's loop would read until something comes, too.
                    self.live().set_nonblocking(false);
                    let done = calls::pcap_loop(p, count, take, user);
                    let seen = (self.seen.len() - before) as c_int;
                    match done {
                        0 => assert_eq!(seen, count),
                        other => self.ended(other, 0),
                    }
                }
                5 | 6 => {
                    let (mut header, mut data) = (null_mut(), null());
                    let done = calls::pcap_next_ex(p, &raw mut header, &raw mut data);
                    if done == 1 {
                        self.note(&*header, data);
                    }
                    self.ended(done, c_int::from(done == 1));
                }
                7 => {
                    let mut header = Header::default();
                    let data = calls::pcap_next(p, &raw mut header);
                    if !data.is_null() {
                        self.note(&header, data);
                    }
                }
                8 => self.filter(random),
                9 => {
                    let is_nonblocking = random.below(2) == 0;
                    self.live().set_nonblocking(is_nonblocking);
                }
                10 => self.kernel.borrow_mut().break_loop(),
                // The program does something else.
                _ => (0..random.below(60)).for_each(|_| self.kernel.borrow_mut().send()),
            }
        }
        self.check();
    }

    /// Checks the result of a read after `seen` packets.
    fn ended(&mut self, done: c_int, seen: c_int) {
        let mut kernel = self.kernel.borrow_mut();
        match done {
            BREAK => assert!(std::mem::take(&mut kernel.has_broken)),
            -1 => {
                assert!(kernel.is_down);
                self.is_over = true;
            }
            done => assert_eq!(done, seen),
        }
    }

    fn filter(&mut self, random: &mut Random) {
        let expression = [
            "",
            "udp port 7",
            "udp dst port 8 or udp dst port 9",
            "not udp port 10",
        ];
        let text = CString::new(expression[random.below(4)]).unwrap();
        let mut program = Program {
            len: 0,
            insns: null_mut(),
        };
        // SAFETY: the handle is open, and the pointers lead to variables.
        let insns = unsafe {
            assert_eq!(
                real::pcap_compile(self.p, &raw mut program, text.as_ptr(), 1, 0),
                0
            );
            let insns = core::slice::from_raw_parts(program.insns, program.len as usize).to_vec();
            real::pcap_freecode(&raw mut program);
            insns
        };
        self.live().set_filter(&insns);
    }

    /// Compares the counts with the kernel's. The numbers of the frames rise.
    fn check(&mut self) {
        assert!(
            self.seen.windows(2).all(|pair| pair[0] < pair[1]),
            "{:?}",
            self.seen
        );
        let mut stats = Stats::default();
        self.live().stats(&mut stats);
        let kernel = self.kernel.borrow();
        assert_eq!(u64::from(stats.received), kernel.received);
        assert_eq!(u64::from(stats.dropped), kernel.dropped);
        assert_eq!(u64::from(kernel.sent), kernel.received + kernel.rejected);
    }

    /// Reads the rest: each packet is then delivered or dropped.
    fn drain(&mut self) {
        self.live().set_nonblocking(true);
        self.act_at = usize::MAX;
        let user = (&raw mut *self).cast();
        for _ in 0..100 {
            // SAFETY: the handle is open.
            let done = unsafe { calls::pcap_dispatch(self.p, -1, take, user) };
            let is_empty = self.kernel.borrow().ring.is_empty();
            if done == 0 && is_empty {
                break;
            }
        }
        let mut stats = Stats::default();
        self.live().stats(&mut stats);
        if self.skipped_directions == 0 {
            assert_eq!(
                u64::from(stats.received),
                self.seen.len() as u64 + u64::from(stats.dropped)
            );
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and not used any more.
        unsafe { calls::pcap_close(self.p) };
    }
}

/// Two handles, by turns.
fn scenario(seed: u64) {
    let mut random = Random(seed);
    let mut programs = [Reading::new(seed * 2), Reading::new(seed * 2 + 1)];
    for program in &mut programs {
        if random.below(5) == 0 {
            program.skipped_directions = 1 + random.below(2) as Direction;
            let direction = program.skipped_directions;
            program.live().set_direction(direction);
        }
    }
    for _ in 0..25 {
        let program = &mut programs[random.below(2)];
        if !program.is_over {
            program.call(&mut random);
        }
    }
    programs.iter_mut().for_each(Reading::drain);
}

#[test]
fn what_is_sent_is_delivered_or_dropped() {
    let number = |name| {
        std::env::var(name)
            .ok()
            .and_then(|text| text.parse::<u64>().ok())
    };
    if let Some(seed) = number("WEIR_SEED") {
        return scenario(seed);
    }
    for seed in 0..number("WEIR_SCENARIOS").unwrap_or(SCENARIOS) {
        let ended = std::panic::catch_unwind(|| scenario(seed));
        assert!(ended.is_ok(), "WEIR_SEED={seed} repeats it");
    }
}
