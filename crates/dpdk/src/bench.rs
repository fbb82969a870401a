//! Support for comparisons: a plain receive loop in C, a queue that receives known frames, and DPDK's classifiers.

pub mod classify;

use crate::port::{Port, Queue};
use std::ffi::{c_int, c_void};

/// `struct weir_frames`.
#[repr(C)]
struct Frames {
    next: *const u8,
    left: u64,
}

unsafe extern "C" {
    fn weir_bench_loop(port: u16, queue: u16, packets: u64) -> u64;
    fn weir_bench_fill(port: u16, queue: u16, frames: *mut Frames) -> *const c_void;
    fn weir_bench_end_fill(port: u16, queue: u16, callback: *const c_void) -> c_int;
}

/// Receives and frees packets in C until there are at least `packets`, in bursts of 64, as DPDK's examples do. Returns their
/// number. Does not return before.
pub fn plain_loop(queue: &mut Queue, packets: u64) -> u64 {
    let _held = queue.pool();
    // SAFETY: the queue is set up and runs while the port is held; `&mut` makes this its only reader.
    unsafe { weir_bench_loop(queue.port().number(), queue.number(), packets) }
}

/// Frames for a queue, stored one after another.
#[derive(Clone, Debug, Default)]
pub struct Table {
    bytes: Vec<u8>,
    frames: u64,
}

impl Table {
    /// Adds a frame. **Panics**: it is longer than any mbuf, 2048 bytes.
    pub fn push(&mut self, frame: &[u8]) {
        assert!(frame.len() <= 2048, "a frame of a table fits in an mbuf");
        self.bytes
            .extend_from_slice(&(frame.len() as u32).to_ne_bytes());
        self.bytes.extend_from_slice(frame);
        self.frames += 1;
    }

    /// Number of frames in the table.
    pub fn len(&self) -> u64 {
        self.frames
    }

    /// Whether the table has no frames.
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Makes `queue` receive these frames, each once, in place of its device's packets; then nothing more. The device must supply
    /// packets endlessly. Ends when the result is dropped.
    pub fn feed(&'static self, queue: &mut Queue) -> Feed {
        let frames = Box::leak(Box::new(Frames {
            next: self.bytes.as_ptr(),
            left: self.frames,
        }));
        let (port, number) = (queue.port().clone(), queue.number());
        // SAFETY: frames and table are never freed, and each length in the table is that of the
        // frame after it; the callback is called by the queue's one reader.
        let callback = unsafe { weir_bench_fill(port.number(), number, frames) };
        assert!(!callback.is_null(), "DPDK was built with receive callbacks");
        Feed {
            port,
            number,
            callback,
        }
    }
}

/// Feeds a queue from a table until dropped.
#[derive(Debug)]
pub struct Feed {
    port: Port,
    number: u16,
    callback: *const c_void,
}

// SAFETY: a callback is not tied to the thread that added it.
unsafe impl Send for Feed {}

impl Drop for Feed {
    fn drop(&mut self) {
        // Otherwise, a later port with the same number would have the callback.
        // SAFETY: added to this port, which is held, and removed once; its data is never freed.
        unsafe { weir_bench_end_fill(self.port.number(), self.number, self.callback) };
    }
}
