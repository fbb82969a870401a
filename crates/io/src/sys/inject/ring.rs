//! Injection of any frames: a ring of them that a program copies into the kernel's live frames.
//!
//! ```text
//! process   writes length, due time and frame at place p % RING, then filled = p + their bytes
//! program   p = next; if p == filled, or too early: drop its live frame
//!           fit the live frame's end (bpf_xdp_adjust_tail), copy the frame into it (bpf_xdp_store_bytes)
//!           write its lateness beside its length, next = p + their bytes
//! process   reads the lateness before it writes there again
//! ```
//!
//! A frame that begins before the end of the ring may end after it, in room that no other frame uses. Slots of equal size would take a page
//! for each frame: more than the caches and the tables of pages hold.
//!
//! A system call of minutes runs in a thread, because between two calls nothing is received for 20 to 40 ms: each enters the program into
//! the kernel's dispatcher, and removes it, and both wait for all processors (bpf_dispatcher_change_prog). The program drops live frames
//! while it has none to copy, some 60 ns each, so that a processor is busy all the time. A signal to the thread ends a call; another
//! thread sends it if the interface is down or gone: the kernel removes it after the call.
//!
//! **Platform**: Linux 5.18; privilege: as for [`Injector`](super::Injector).

use super::super::bpf::{
    Assembler, Helper, If, Kind, Map, Op, Program, Register::*, Run, Size, Values, XDP_DROP,
};
use super::super::packet_socket::{index_of, is_up};
use super::{Error, LONGEST, Mode, verdict};
use crate::sys::{interrupt_thread, thread_handle};
use hdrhistogram::Histogram;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// Bytes of a ring, a power of two, and bytes after it.
const RING: usize = 1 << 20;
const BEHIND: usize = HEAD + LONGEST;

/// Bytes in front of a frame: its length (4), its lateness, ns (4), and the time at which it is due, ns of CLOCK_MONOTONIC (8).
const HEAD: usize = 16;
const LEN: usize = 0;
const LATE: usize = 4;
const DUE: usize = 8;

/// Places of frames are multiples of this, a cache line.
const PLACE: usize = 64;

// Words of the state: places of the end of the written frames and, in a cache line of the program, of the next frame; numbers of handled
// frames, and of those that the kernel did not take; whether the program has found the ring empty.
const FILLED: usize = 0;
const NEXT: usize = 64;
const COUNT: usize = 72;
const FAILED: usize = 80;
const RUNS: usize = 88;
const STATE: u32 = 128;

/// Bytes of a live frame before it gets its length, and of the shortest frame.
const BASE: usize = 60;
const SHORTEST: usize = 14;

/// Live frames of a system call: four minutes of them if the ring is empty.
const REPEAT: u32 = u32::MAX;

/// Pause between two looks for the interface.
const LOOK: Duration = Duration::from_millis(200);

/// Pause of the process while the ring is full, until half of it is free, and at the end while it is not empty.
const PAUSE: Duration = Duration::from_micros(200);

/// A ring of frames that an interface receives.
#[derive(Debug)]
pub struct Ring {
    frames: Values,
    state: Arc<State>,
    /// End of the written frames. The program sees [published](Self::publish) frames only.
    written: u64,
    /// Place of the next frame of the program, at the last look; place up to which the lateness was read.
    seen: u64,
    told: u64,
    lateness: Histogram<u64>,
    /// Whether a frame had a time.
    has_times: bool,
    /// The call, until it begins.
    ready: Option<Call>,
    /// Threads of the call and of the looks.
    threads: Vec<JoinHandle<()>>,
}

/// Arguments of a call.
#[derive(Debug)]
struct Call {
    program: Program,
    maps: [Map; 2],
    /// Interface, and its number.
    name: String,
    interface: u32,
    batch: u32,
}

/// State that the process, the program and the thread of the call share.
#[derive(Debug)]
struct State {
    words: Values,
    /// Whether the call is to end.
    over: AtomicBool,
    /// Error of the call; 0 for none.
    error: AtomicI32,
    /// Number of the thread, once it runs.
    thread: OnceLock<crate::sys::ThreadHandle>,
    ended: AtomicBool,
}

impl State {
    fn word(&self, at: usize) -> &AtomicU64 {
        self.words.word(0, at)
    }

    /// Ends the call, which may begin just after a signal.
    fn end(&self) {
        self.over.store(true, Ordering::Relaxed);
        while !self.ended.load(Ordering::Acquire) {
            if let Some(handle) = self.thread.get() {
                interrupt_thread(*handle);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

impl Ring {
    /// Prepares to inject into queue 0 of interface `name`; the call begins with the first frame. Frames under way at once are `batch`, up to 256: a frame waits for the end of
    /// its batch.
    ///
    /// **Errors**: [`NotPermitted`](crate::sys::bpf::Error::NotPermitted); no memory for the ring, 1 MiB; no such interface.
    pub fn open(name: &str, mode: Mode, batch: u32) -> Result<Self, Error> {
        let interface = index_of(name).ok_or(Error::NoInterface)?;
        let frames = Map::array(1, (RING + BEHIND) as u32)?;
        let words = Map::array(1, STATE)?;
        let program = Program::load(Kind::Xdp, &assemble(&frames, &words, mode), false)?;
        let state = Arc::new(State {
            words: words.memory()?,
            over: AtomicBool::new(false),
            error: AtomicI32::new(0),
            thread: OnceLock::new(),
            ended: AtomicBool::new(false),
        });
        Ok(Self {
            frames: frames.memory()?,
            state,
            written: 0,
            seen: 0,
            told: 0,
            lateness: Histogram::new_with_bounds(1, i32::MAX as u64, 3)
                .expect("the bounds are in order"),
            has_times: false,
            ready: Some(Call {
                program,
                maps: [frames, words],
                name: name.to_owned(),
                interface,
                batch,
            }),
            threads: Vec::new(),
        })
    }

    /// Begins the call, in a thread, which has the rights of the calling one.
    fn begin(&mut self) -> io::Result<()> {
        let Some(Call {
            program,
            maps,
            name,
            interface,
            batch,
        }) = self.ready.take()
        else {
            return Ok(());
        };
        let shared = Arc::clone(&self.state);
        let work = move || {
            let _ = shared.thread.set(thread_handle());
            let error = runs(&program, interface, batch, &shared);
            shared.error.store(error, Ordering::Relaxed);
            shared.ended.store(true, Ordering::Release);
            // The program refers to them.
            drop(maps);
        };
        let thread = std::thread::Builder::new().name("injector".to_owned());
        self.threads.push(thread.spawn(work)?);
        let shared = Arc::clone(&self.state);
        let look = move || {
            let is_there = || index_of(&name) == Some(interface) && is_up(&name);
            while !shared.over.load(Ordering::Relaxed) && is_there() {
                std::thread::park_timeout(LOOK);
            }
            shared.end();
        };
        let thread = std::thread::Builder::new().name("look".to_owned());
        self.threads.push(thread.spawn(look)?);
        Ok(())
    }

    /// Begins the call before the first frame, and waits until the kernel runs the program: 20 to 40 ms, by which the first frames would
    /// be late. **Errors**: as for [`Self::push`].
    pub fn start(&mut self) -> io::Result<()> {
        self.begin()?;
        while self.written == 0 && self.state.word(RUNS).load(Ordering::Relaxed) == 0 {
            self.check()?;
            std::thread::sleep(PAUSE);
        }
        Ok(())
    }

    /// Writes a frame into the ring, and waits while it is full. `due` is the time before which it is not received, ns of
    /// CLOCK_MONOTONIC; 0 is at once. Frames leave in their order.
    ///
    /// **Cost**: a copy. **Errors**: the call of the kernel has ended; a frame shorter than 14 bytes or longer than [`LONGEST`].
    pub fn push(&mut self, frame: &[u8], due_ns: u64) -> io::Result<()> {
        if !(SHORTEST..=LONGEST).contains(&frame.len()) {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.begin()?;
        self.check()?;
        let size = size_of(frame.len());
        let is_full = |ring: &Self| ring.written - ring.told > (RING - size) as u64;
        if is_full(self) {
            self.look();
        }
        if is_full(self) {
            self.publish();
            self.wait_for(self.written - RING as u64 / 2)?;
        }
        self.has_times |= due_ns > 0;
        let place = self.written as usize % RING;
        let (words, rest) = frame.as_chunks::<8>();
        let to = self
            .frames
            .words(0, place, HEAD / 8 + frame.len().div_ceil(8));
        let set = |at: usize, value: u64| to[at].store(value, Ordering::Relaxed);
        set(LEN / 8, frame.len() as u64);
        set(DUE / 8, due_ns);
        for (&word, to) in words.iter().zip(&to[HEAD / 8..]) {
            to.store(u64::from_ne_bytes(word), Ordering::Relaxed);
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            set(HEAD / 8 + words.len(), u64::from_ne_bytes(last));
        }
        self.written += size as u64;
        Ok(())
    }

    /// Reads the lateness of the frames up to the last look.
    fn read_lateness(&mut self) {
        while self.has_times && self.told < self.seen {
            let head = self.frames.words(0, self.told as usize % RING, HEAD / 8);
            let [lens, due] = [LEN, DUE].map(|at| head[at / 8].load(Ordering::Relaxed));
            if due > 0 {
                self.lateness.saturating_record(lens >> (8 * LATE));
            }
            self.told += size_of(lens as u32 as usize) as u64;
        }
        self.told = self.seen;
    }

    /// Times from when frames were due until the program received them, ns, at most 2^31 - 1: of frames that had a time, up to the
    /// last call of [`Self::drain`] or later.
    pub fn lateness(&self) -> &Histogram<u64> {
        &self.lateness
    }

    /// Shows the written frames to the program.
    pub fn publish(&mut self) {
        self.state
            .word(FILLED)
            .store(self.written, Ordering::Release);
    }

    /// Returns the error of the call if it has ended, as it has soon after the interface is gone. **Cost**: a load.
    #[inline]
    pub fn check(&self) -> io::Result<()> {
        match self.state.ended.load(Ordering::Acquire) {
            false => Ok(()),
            true => {
                let error = self.state.error.load(Ordering::Relaxed);
                Err(io::Error::from_raw_os_error(error))
            }
        }
    }

    /// Waits until all written frames have been received. **Errors**: the call of the kernel has ended.
    pub fn drain(&mut self) -> io::Result<()> {
        self.publish();
        self.wait_for(self.written)
    }

    /// Looks which frames the program has received.
    fn look(&mut self) {
        self.seen = self.state.word(NEXT).load(Ordering::Acquire);
        self.read_lateness();
    }

    /// Waits until the program has received the frames up to a place.
    fn wait_for(&mut self, place: u64) -> io::Result<()> {
        loop {
            self.look();
            if self.seen >= place {
                return Ok(());
            }
            self.check()?;
            std::thread::sleep(PAUSE);
        }
    }

    /// Number of received frames so far, and of frames that the kernel did not take.
    pub fn counts(&self) -> (u64, u64) {
        let failed = self.state.word(FAILED).load(Ordering::Relaxed);
        let all = self.state.word(COUNT).load(Ordering::Relaxed);
        (all.saturating_sub(failed), failed)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        if !self.threads.is_empty() {
            self.state.end();
        }
        // The look may signal the thread of the call, which is joined after it.
        for thread in self.threads.drain(..).rev() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

/// Bytes that a frame of so many bytes takes in the ring.
fn size_of(len: usize) -> usize {
    (HEAD + len).next_multiple_of(PLACE)
}

/// Runs the program until the end; returns the error of the call.
fn runs(program: &Program, interface: u32, batch: u32, state: &State) -> i32 {
    let frame = [0; BASE];
    let run = Run {
        frame: &frame,
        interface,
        queue: 0,
        repeat: REPEAT,
        batch,
    };
    while !state.over.load(Ordering::Relaxed) {
        match program.run(&run) {
            Ok(()) => {}
            Err(error) => match error.raw_os_error() {
                Some(libc::EINTR) => {}
                code => return code.unwrap_or(libc::EIO),
            },
        }
    }
    libc::ECANCELED
}

/// ```text
/// p = next; if p >= filled: runs = 1, drop
/// at = frames + p % RING; if at.due > now: drop
/// at.late = min(now - at.due, 2^31 - 1)
/// if adjust_tail(len - BASE) or store_bytes(0, at.frame, len) fails: failed += 1, drop
/// next = p + size; count += 1
/// ```
fn assemble<'a>(frames: &'a Map, words: &'a Map, mode: Mode) -> Assembler<'a> {
    let mut a = Assembler::new();
    let [idle, failed, filled, short] = [a.label(), a.label(), a.label(), a.label()];
    a.set(R6, R1);
    a.map_value(R9, words, 0);
    a.load(Size::Eight, R7, R9, NEXT as i16);
    a.load(Size::Eight, R1, R9, FILLED as i16);
    a.jump(If::Less, R7, R1, filled);
    a.store(Size::Eight, R9, RUNS as i16, 1);
    a.go(idle);
    a.place(filled);
    // What was written before `filled` is seen after a fully ordered access, which need not be to `filled`.
    a.set(R1, 0);
    a.atomic_fetch_add(Size::Eight, R9, FAILED as i16, R1);
    a.alu(Op::And, R7, RING as i32 - 1);
    a.map_value(R8, frames, 0);
    a.alu(Op::Add, R8, R7);
    a.call(Helper::TIME);
    a.load(Size::Eight, R1, R8, DUE as i16);
    a.jump(If::Greater, R1, R0, idle);
    a.alu(Op::Sub, R0, R1);
    a.jump(If::LessEqual, R0, i32::MAX, short);
    a.set(R0, i32::MAX);
    a.place(short);
    a.store(Size::Four, R8, LATE as i16, R0);
    a.load(Size::Four, R7, R8, LEN as i16);
    // The verifier does not know that all have such a length.
    a.jump(If::Less, R7, SHORTEST as i32, idle);
    a.jump(If::Greater, R7, LONGEST as i32, idle);
    a.set(R1, R6);
    a.set(R2, R7);
    a.alu(Op::Sub, R2, BASE as i32);
    a.call(Helper::ADJUST_TAIL);
    a.jump(If::NotEqual, R0, 0, failed);
    a.set(R1, R6);
    a.set(R2, 0);
    a.set(R3, R8);
    a.alu(Op::Add, R3, HEAD as i32);
    a.set(R4, R7);
    a.call(Helper::STORE_BYTES);
    a.jump(If::NotEqual, R0, 0, failed);
    next(&mut a);
    verdict(&mut a, mode);
    a.exit();
    a.place(failed);
    a.set(R1, 1);
    a.atomic_add(Size::Eight, R9, FAILED as i16, R1);
    next(&mut a);
    a.place(idle);
    a.result(XDP_DROP);
    a
}

/// Counts the frame, whose length is in R7, and gives its place back. The access is fully ordered after the reads of the frame.
fn next(a: &mut Assembler<'_>) {
    a.load(Size::Eight, R1, R9, COUNT as i16);
    a.alu(Op::Add, R1, 1);
    a.store(Size::Eight, R9, COUNT as i16, R1);
    a.alu(Op::Add, R7, (HEAD + PLACE - 1) as i32);
    a.alu(Op::And, R7, -(PLACE as i32));
    a.atomic_fetch_add(Size::Eight, R9, NEXT as i16, R7);
}
