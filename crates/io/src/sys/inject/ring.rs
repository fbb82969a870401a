//! Injection of any frames: a ring of them that a program copies into the kernel's live frames.
//!
//! ```text
//! process   writes frame and due time into slot n % SLOTS, then filled = n + 1
//! program   n = next; if n == filled, or too early: drop its live frame
//!           fit the live frame's end (bpf_xdp_adjust_tail), copy the slot into it (bpf_xdp_store_bytes), next = n + 1
//! ```
//!
//! System calls of a second and more run in a thread as long as the ring is open, because each costs 20 to 40 ms. The program drops live
//! frames while it has none to copy, some 60 ns each, so that a processor is busy all the time. A signal to the thread ends a call.
//!
//! **Platform**: Linux 5.18; privilege: as for [`Injector`](super::Injector).

use super::super::bpf::{
    Assembler, Helper, If, Kind, Map, Op, Program, Register::*, Run, Size, Values, XDP_DROP,
};
use super::super::packet_socket::index_of;
use super::{Error, LONGEST, Mode, verdict};
use crate::sys::{interrupt_thread, thread_handle};
use std::io;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

/// Frames of a ring, a power of two.
const SLOTS: u32 = 4096;

/// Bytes of a slot in front of its frame: its length, and the time at which it is due, ns of CLOCK_MONOTONIC.
const HEAD: usize = 16;
const LEN: usize = 0;
const DUE: usize = 8;

// Words of the state: number of the next frame, of the frames that are filled in, and of frames that the kernel did not take.
const NEXT: usize = 0;
const FILLED: usize = 8;
const FAILED: usize = 16;
const STATE: u32 = 24;

/// Bytes of a live frame before it gets its length, and of the shortest frame.
const BASE: usize = 60;
const SHORTEST: usize = 14;

/// Live frames of a system call: a second of them if the ring is empty. An interface that is removed goes away between two calls.
const REPEAT: u32 = 1 << 24;

/// Pause of the process while the ring is full, or not empty at the end.
const PAUSE: Duration = Duration::from_micros(20);

/// A ring of frames that an interface receives.
#[derive(Debug)]
pub struct Ring {
    slots: Values,
    state: Arc<State>,
    /// Frames written so far. The program sees [published](Self::publish) frames only.
    written: u64,
    seen: u64,
    /// Arguments of the call, until it begins: program, maps, interface, and batch.
    ready: Option<(Program, [Map; 2], u32, u32)>,
    thread: Option<JoinHandle<()>>,
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
}

impl Ring {
    /// Prepares to inject into queue 0 of interface `name`; the call begins with the first frame. Frames under way at once are `batch`, up to 256: a frame waits for the end of
    /// its batch.
    ///
    /// **Errors**: [`NotPermitted`](crate::sys::bpf::Error::NotPermitted); no memory for the ring, 14 MB; no such interface.
    pub fn open(name: &str, mode: Mode, batch: u32) -> Result<Self, Error> {
        let interface = index_of(name).ok_or(Error::NoInterface)?;
        let slots = Map::array(SLOTS, (HEAD + LONGEST) as u32)?;
        let words = Map::array(1, STATE)?;
        let program = Program::load(Kind::Xdp, &assemble(&slots, &words, mode), false)?;
        let state = Arc::new(State {
            words: words.memory()?,
            over: AtomicBool::new(false),
            error: AtomicI32::new(0),
            thread: OnceLock::new(),
            ended: AtomicBool::new(false),
        });
        Ok(Self {
            slots: slots.memory()?,
            state,
            written: 0,
            seen: 0,
            ready: Some((program, [slots, words], interface, batch)),
            thread: None,
        })
    }

    /// Begins the call, in a thread, which has the rights of the calling one.
    fn begin(&mut self) -> io::Result<()> {
        let Some((program, maps, interface, batch)) = self.ready.take() else {
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
        self.thread = Some(thread.spawn(work)?);
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
        if self.written - self.seen >= u64::from(SLOTS) {
            self.publish();
            self.wait_for(self.written - u64::from(SLOTS) + 1)?;
        }
        let slot = (self.written % u64::from(SLOTS)) as u32;
        let set = |at: usize, value: u64| self.slots.word(slot, at).store(value, Ordering::Relaxed);
        let (words, rest) = frame.as_chunks::<8>();
        for (i, &word) in words.iter().enumerate() {
            set(HEAD + 8 * i, u64::from_ne_bytes(word));
        }
        if !rest.is_empty() {
            let mut last = [0; 8];
            last[..rest.len()].copy_from_slice(rest);
            set(HEAD + 8 * words.len(), u64::from_ne_bytes(last));
        }
        set(LEN, frame.len() as u64);
        set(DUE, due_ns);
        self.written += 1;
        Ok(())
    }

    /// Shows the written frames to the program.
    pub fn publish(&mut self) {
        self.state
            .word(FILLED)
            .store(self.written, Ordering::Release);
    }

    /// Waits until all written frames have been received. **Errors**: the call of the kernel has ended.
    pub fn drain(&mut self) -> io::Result<()> {
        self.publish();
        self.wait_for(self.written)
    }

    /// Waits until the program has received so many frames.
    fn wait_for(&mut self, count: u64) -> io::Result<()> {
        loop {
            self.seen = self.state.word(NEXT).load(Ordering::Acquire);
            if self.seen >= count {
                return Ok(());
            }
            if self.state.ended.load(Ordering::Acquire) {
                let error = self.state.error.load(Ordering::Relaxed);
                return Err(io::Error::from_raw_os_error(error));
            }
            std::thread::sleep(PAUSE);
        }
    }

    /// Number of received frames so far, and of frames that the kernel did not take.
    pub fn counts(&self) -> (u64, u64) {
        let failed = self.state.word(FAILED).load(Ordering::Relaxed);
        let next = self.state.word(NEXT).load(Ordering::Relaxed);
        (next.saturating_sub(failed), failed)
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.state.over.store(true, Ordering::Relaxed);
        let Some(thread) = self.thread.take() else {
            return;
        };
        // The call may begin just after a signal.
        while !self.state.ended.load(Ordering::Acquire) {
            if let Some(handle) = self.state.thread.get() {
                interrupt_thread(*handle);
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = thread.join();
    }
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
/// n = next; if n >= filled: drop
/// slot = slots[n % SLOTS]; if slot.due > now: drop
/// next = n + 1
/// if adjust_tail(len - BASE) or store_bytes(0, frame, len) fails: failed += 1, drop
/// ```
fn assemble<'a>(slots: &'a Map, words: &'a Map, mode: Mode) -> Assembler<'a> {
    let mut a = Assembler::new();
    let [idle, failed] = [a.label(), a.label()];
    a.set(R6, R1);
    a.map_value(R9, words, 0);
    a.load(Size::Eight, R7, R9, NEXT as i16);
    a.load(Size::Eight, R1, R9, FILLED as i16);
    a.jump(If::GreaterEqual, R7, R1, idle);
    // What was written before `filled` is seen after a fully ordered access to it.
    a.set(R1, 0);
    a.atomic_fetch_add(Size::Eight, R9, FILLED as i16, R1);
    a.alu(Op::And, R7, SLOTS as i32 - 1);
    a.store(Size::Four, R10, -4, R7);
    a.map(R1, slots);
    a.set(R2, R10);
    a.alu(Op::Add, R2, -4);
    a.call(Helper::MAP_LOOKUP);
    a.jump(If::Equal, R0, 0, idle);
    a.set(R8, R0);
    a.call(Helper::TIME);
    a.load(Size::Eight, R1, R8, DUE as i16);
    a.jump(If::Greater, R1, R0, idle);
    a.load(Size::Eight, R7, R8, LEN as i16);
    a.set(R1, 1);
    a.jump(If::Less, R7, SHORTEST as i32, failed);
    a.jump(If::Greater, R7, LONGEST as i32, failed);
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

/// Gives the slot back. The access is fully ordered after the reads of the slot.
fn next(a: &mut Assembler<'_>) {
    a.set(R1, 1);
    a.atomic_fetch_add(Size::Eight, R9, NEXT as i16, R1);
}
