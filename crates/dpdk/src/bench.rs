//! What comparisons need: the loop that one would write in C, and a queue that receives frames which are known.

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

/// Receives at least so many packets and frees them, in C, as DPDK's examples do: bursts of 64. Says how many. It does not end
/// before.
pub fn plain_loop(queue: &mut Queue, packets: u64) -> u64 {
    let _held = queue.pool();
    // SAFETY: the queue is set up and runs while the port is held; `&mut` makes us its only reader.
    unsafe { weir_bench_loop(queue.port().number(), queue.number(), packets) }
}

/// Frames for a queue, one behind the other.
#[derive(Clone, Debug, Default)]
pub struct Table {
    bytes: Vec<u8>,
    frames: u64,
}

impl Table {
    /// Adds a frame. **Panics**: it is longer than any mbuf, 2048 bytes.
    pub fn push(&mut self, frame: &[u8]) {
        assert!(frame.len() <= 2048, "a frame of a table fits in an mbuf");
        self.bytes.extend_from_slice(&(frame.len() as u32).to_ne_bytes());
        self.bytes.extend_from_slice(frame);
        self.frames += 1;
    }

    /// Frames in it.
    pub fn len(&self) -> u64 {
        self.frames
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.frames == 0
    }

    /// Has `queue` receive these frames, each once, in the place of what its device brings, which must be an endless one; then
    /// nothing more. Ends when the result is dropped.
    pub fn feed(&'static self, queue: &mut Queue) -> Feed {
        let frames = Box::leak(Box::new(Frames { next: self.bytes.as_ptr(), left: self.frames }));
        let (port, number) = (queue.port().clone(), queue.number());
        // SAFETY: frames and table are never freed, and each length in the table is that of the frame behind it; the callback
        // is called by the queue's one reader.
        let callback = unsafe { weir_bench_fill(port.number(), number, frames) };
        assert!(!callback.is_null(), "DPDK was built with receive callbacks");
        Feed { port, number, callback }
    }
}

/// A queue is fed from a table while this is held.
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
        // A port that gets this one's number later would have the callback otherwise.
        // SAFETY: added to this port, which is held, and removed once; what it points to is never freed.
        unsafe { weir_bench_end_fill(self.port.number(), self.number, self.callback) };
    }
}
