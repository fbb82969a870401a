//! XDP program that sends packets to sockets instead of the stack, and counts them.

use super::Error;
use super::interface::Interface;
use crate::sys::bpf::{
    self, Assembler, Helper, If, Kind, Link, Map, Mode, Op, Program, Register::*, Size, Values,
    XDP_PASS, XDP_REDIRECT,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

/// `rx_queue_index` in `struct xdp_md`.
const RX_QUEUE: i16 = 16;

/// Distance in bytes from one queue's count to the next: a cache line, because different processors write the counts.
const LINE: u32 = 64;

/// Program attached to an interface until the value is dropped. Packets of queues without a socket go on to the stack.
#[derive(Debug)]
pub(super) struct Redirect {
    // The order matters: the program is detached before the map of sockets is closed.
    _link: Link,
    sockets: Map,
    counts: Values,
    pub(super) mode: Mode,
}

impl Redirect {
    /// Attaches the program, in the mode requested, or else in native mode, or else in generic mode.
    pub(super) fn attach(
        interface: &Interface,
        queues: u32,
        mode: Option<Mode>,
    ) -> Result<Self, Error> {
        let sockets = Map::sockets(queues)?;
        let counts = Map::array(1, queues * LINE)?;
        let program = assemble(&sockets, &counts, queues);
        // A kernel before 5.18 does not support packets of several buffers.
        let program = Program::load(Kind::Xdp, &program, true)
            .or_else(|_| Program::load(Kind::Xdp, &program, false))?;
        let counts = counts.memory()?;
        let refused = |mode: Mode, error: bpf::Error| match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => Error::Attached(interface.name.clone()),
            Some(libc::ERANGE) => interface.mtu().map_or_else(|error| error, Error::Mtu),
            Some(libc::EOPNOTSUPP) if mode == Mode::Native => Error::NotNative,
            Some(libc::ENODEV) => Error::NoInterface,
            _ => error.into(),
        };
        let (link, mode) = match mode {
            Some(mode) => (
                Link::xdp(&program, interface.index, mode).map_err(|error| refused(mode, error))?,
                mode,
            ),
            None => match Link::xdp(&program, interface.index, Mode::Native)
                .map_err(|e| refused(Mode::Native, e))
            {
                Ok(link) => (link, Mode::Native),
                Err(
                    error @ (Error::Attached(_)
                    | Error::NoInterface
                    | Error::Bpf(bpf::Error::NotPermitted(_))),
                ) => {
                    return Err(error);
                }
                Err(_) => {
                    let link = Link::xdp(&program, interface.index, Mode::Generic);
                    (
                        link.map_err(|error| refused(Mode::Generic, error))?,
                        Mode::Generic,
                    )
                }
            },
        };
        Ok(Self {
            _link: link,
            sockets,
            counts,
            mode,
        })
    }

    /// Starts the redirection of packets of `queue` to the socket.
    pub(super) fn begin(&self, queue: u32, socket: &OwnedFd) -> Result<(), bpf::Error> {
        self.sockets.write(queue, &socket.as_raw_fd().to_ne_bytes())
    }

    /// Ends the redirection; the packets of `queue` go to the stack again. A packet may still be on its way to the socket.
    pub(super) fn end(&self, queue: u32) -> io::Result<()> {
        match self.sockets.remove(queue) {
            // The entry was removed before, or by the kernel when the interface was removed.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other.map_err(io::Error::other),
        }
    }

    /// Returns the number of packets sent to the socket of `queue`.
    pub(super) fn count(&self, queue: u32) -> u64 {
        self.counts
            .word(0, (queue * LINE) as usize)
            .load(Ordering::Relaxed)
    }
}

/// ```text
/// result = redirect to the socket of the packet's queue, or pass it if there is none
/// if result is "redirect": count[queue] += 1
/// ```
fn assemble<'a>(sockets: &'a Map, counts: &'a Map, queues: u32) -> Assembler<'a> {
    let mut a = Assembler::new();
    let end = a.label();
    a.load(Size::Four, R6, R1, RX_QUEUE);
    a.map(R1, sockets);
    a.set(R2, R6);
    a.set(R3, XDP_PASS);
    a.call(Helper::REDIRECT_MAP);
    a.jump(If::NotEqual, R0, XDP_REDIRECT, end);
    // This jump is never taken, because the map has a socket for the queue; the verifier requires the check.
    a.jump(If::GreaterEqual, R6, queues as i32, end);
    a.alu(Op::Mul, R6, LINE as i32);
    a.map_value(R1, counts, 0);
    a.alu(Op::Add, R1, R6);
    a.set(R2, 1);
    a.atomic_add(Size::Eight, R1, 0, R2);
    a.place(end);
    a.exit();
    a
}
