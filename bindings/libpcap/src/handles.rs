//! The handles that this library reads for the program.
//!
//! A program's handle is always one of its own libpcap. If this library reads in its place, the handle is in a table, together with
//! what the reading needs. **Cost** of a look-up: a few comparisons, without a lock, so that a signal handler may do it.

use crate::live::{Asked, Live};
use crate::offline::Offline;
use crate::symbols;
use crate::types::Pcap;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, Once, PoisonError};

/// Handles that are read here at the same time; further ones are read by libpcap.
const MOST: usize = 1024;

/// Number of adjacent places that a handle may have; the first is given by its address.
const NEAR: usize = 16;

struct Slot {
    key: AtomicPtr<Pcap>,
    handle: AtomicPtr<Handle>,
}

/// The table, in one place, so that one address leads to all of it.
struct Table {
    /// Whether one ever had another place than its usual one.
    is_crowded: AtomicBool,
    slots: [Slot; MOST],
}

static TABLE: Table = Table {
    is_crowded: AtomicBool::new(false),
    slots: [const {
        Slot {
            key: AtomicPtr::new(null_mut()),
            handle: AtomicPtr::new(null_mut()),
        }
    }; MOST],
};

/// A handle that this library reads.
pub struct Handle {
    /// libpcap's handle, which is also the program's.
    pub pcap: *mut Pcap,
    /// Set by `pcap_breakloop`, from any thread or signal handler, until a read has ended with it.
    pub is_broken: AtomicBool,
    /// Whether libpcap itself reads at the moment, so that it needs to hear of `pcap_breakloop`.
    pub is_passed: AtomicBool,
    /// The reading.
    pub source: Source,
}

/// Source of a handle's packets.
pub enum Source {
    /// A savefile.
    File(Box<Offline>),
    /// An interface.
    Live(Box<Live>),
}

impl Handle {
    /// A handle that nothing was read from yet.
    pub fn new(pcap: *mut Pcap, source: Source) -> Self {
        Self {
            pcap,
            is_broken: AtomicBool::new(false),
            is_passed: AtomicBool::new(false),
            source,
        }
    }
}

/// Settings of captures that are not active yet, by the addresses of their handles.
static ASKED: Mutex<Vec<(usize, Asked)>> = Mutex::new(Vec::new());

/// Changes the settings of a capture that is not active yet.
pub fn ask(p: *mut Pcap, change: impl FnOnce(&mut Asked)) {
    let mut all = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    match all.iter_mut().find(|(key, _)| *key == p.addr()) {
        Some((_, asked)) => change(asked),
        None => {
            let mut asked = Asked::default();
            change(&mut asked);
            all.push((p.addr(), asked));
        }
    }
}

/// Takes the settings of a capture out of the list.
pub fn asked(p: *mut Pcap) -> Asked {
    let mut all = ASKED.lock().unwrap_or_else(PoisonError::into_inner);
    let at = all.iter().position(|(key, _)| *key == p.addr());
    at.map_or_else(Asked::default, |at| all.swap_remove(at).1)
}

/// Forks between the start of the program and this process, as far as [`follow_forks`] has been called.
static FORKS: AtomicU32 = AtomicU32::new(0);

/// Whether this process has children, as far as [`follow_forks`] has been called.
static HAS_FORKED: AtomicBool = AtomicBool::new(false);

/// Counts forks from now on, and returns their number.
pub fn follow_forks() -> u32 {
    unsafe extern "C" fn parent() {
        HAS_FORKED.store(true, Ordering::Relaxed);
    }
    unsafe extern "C" fn child() {
        FORKS.fetch_add(1, Ordering::Relaxed);
        HAS_FORKED.store(false, Ordering::Relaxed);
    }
    static ONCE: Once = Once::new();
    // SAFETY: the functions do what may be done between fork and exec.
    ONCE.call_once(|| unsafe {
        libc::pthread_atfork(None, Some(parent), Some(child));
    });
    forks()
}

/// Number of forks between the start of the program and this process.
pub fn forks() -> u32 {
    FORKS.load(Ordering::Relaxed)
}

/// Whether this process has children.
pub fn has_forked() -> bool {
    HAS_FORKED.load(Ordering::Relaxed)
}

/// Ends the records and counts of captures that the program leaves open.
///
/// # Safety
/// The program ends, and no thread reads a capture.
pub unsafe fn finish_all() {
    for slot in &TABLE.slots {
        let (p, handle) = (
            slot.key.load(Ordering::Acquire),
            slot.handle.load(Ordering::Acquire),
        );
        // SAFETY: the handle is in the table, and open.
        unsafe {
            if let Some(Source::Live(live)) = handle.as_mut().map(|handle| &mut handle.source) {
                live.finish(p);
            }
        }
    }
}

/// The usual place of a handle.
#[inline]
fn first_place(p: *mut Pcap) -> usize {
    // The allocator's addresses are multiples of 16; a multiplication spreads them.
    (p.addr() >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 54
}

/// All places that a handle may have.
fn places(p: *mut Pcap) -> impl Iterator<Item = &'static Slot> {
    let first = first_place(p);
    (first..first + NEAR).map(|place| &TABLE.slots[place % MOST])
}

/// Result of a short look-up.
pub enum Near {
    /// The handle.
    Ours(*mut Handle),
    /// libpcap reads the handle.
    None,
    /// The handle may have another place than its usual one.
    Elsewhere,
}

/// Looks for a handle at its usual place. **Cost**: a few instructions, and no call.
#[inline]
pub fn find_near(p: *mut Pcap) -> Near {
    let slot = &TABLE.slots[first_place(p)];
    if slot.key.load(Ordering::Acquire) == p {
        return Near::Ours(slot.handle.load(Ordering::Acquire));
    }
    match TABLE.is_crowded.load(Ordering::Acquire) {
        true => Near::Elsewhere,
        false => Near::None,
    }
}

/// The handle of `p`; null if libpcap reads it. The program uses a handle in one thread at a time, as libpcap demands.
#[inline]
pub fn find(p: *mut Pcap) -> *mut Handle {
    match find_near(p) {
        Near::Ours(handle) => handle,
        Near::None => null_mut(),
        Near::Elsewhere => find_anywhere(p),
    }
}

#[cold]
fn find_anywhere(p: *mut Pcap) -> *mut Handle {
    places(p)
        .find(|slot| slot.key.load(Ordering::Acquire) == p)
        .map_or(null_mut(), |slot| slot.handle.load(Ordering::Acquire))
}

/// Takes over the reading of a handle; `false` if there is no place.
pub fn insert(handle: Handle) -> bool {
    let p = handle.pcap;
    for (distance, slot) in places(p).enumerate() {
        let free = slot
            .key
            .compare_exchange(null_mut(), p, Ordering::AcqRel, Ordering::Relaxed);
        if free.is_ok() {
            slot.handle
                .store(Box::into_raw(Box::new(handle)), Ordering::Release);
            TABLE.is_crowded.fetch_or(distance > 0, Ordering::AcqRel);
            symbols::enter();
            return true;
        }
    }
    false
}

/// Ends the reading of a handle, which the program closes.
pub fn remove(p: *mut Pcap) {
    if let Some(slot) = places(p).find(|slot| slot.key.load(Ordering::Acquire) == p) {
        let handle = slot.handle.swap(null_mut(), Ordering::AcqRel);
        slot.key.store(null_mut(), Ordering::Release);
        if !handle.is_null() {
            // SAFETY: `insert` made the pointer, and the swap took it out of the table. A program that closes a handle uses it
            // nowhere else.
            drop(unsafe { Box::from_raw(handle) });
        }
    }
}
