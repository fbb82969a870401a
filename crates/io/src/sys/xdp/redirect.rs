//! The program that sends packets to sockets instead of the stack, and counts them.

use super::Error;
use super::interface::Interface;
use crate::sys::bpf::{
    self, Assembler, Helper, If, Kind, Link, Map, Mode, Op, Program, Register::*, Size, Values, XDP_PASS, XDP_REDIRECT,
};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;

/// `rx_queue_index` in `struct xdp_md`.
const RX_QUEUE: i16 = 16;

/// Bytes from a queue's count to the next: they are written by different processors.
const LINE: u32 = 64;

/// The program at work on an interface, until this is dropped. Queues without a socket are not its concern: their packets
/// go on to the stack.
#[derive(Debug)]
pub(super) struct Redirect {
    // In this order: nobody redirects any more when the sockets go.
    _link: Link,
    sockets: Map,
    counts: Values,
    pub(super) mode: Mode,
}

impl Redirect {
    /// Attaches the program, in the mode that is asked for, or else the first of native and generic that can be had.
    pub(super) fn attach(interface: &Interface, queues: u32, mode: Option<Mode>) -> Result<Self, Error> {
        let sockets = Map::sockets(queues)?;
        let counts = Map::array(1, queues * LINE)?;
        let program = assemble(&sockets, &counts, queues);
        // A kernel before 5.18 does not know packets of several buffers.
        let program =
            Program::load(Kind::Xdp, &program, true).or_else(|_| Program::load(Kind::Xdp, &program, false))?;
        let counts = counts.memory()?;
        let refused = |mode: Mode, error: bpf::Error| match error.raw_os_error() {
            Some(libc::EBUSY | libc::EEXIST) => Error::Attached(interface.name.clone()),
            Some(libc::ERANGE) => interface.mtu().map_or_else(|error| error, Error::Mtu),
            Some(libc::EOPNOTSUPP) if mode == Mode::Native => Error::NotNative,
            Some(libc::ENODEV) => Error::NoInterface,
            _ => error.into(),
        };
        let (link, mode) = match mode {
            Some(mode) => (Link::xdp(&program, interface.index, mode).map_err(|error| refused(mode, error))?, mode),
            None => match Link::xdp(&program, interface.index, Mode::Native).map_err(|e| refused(Mode::Native, e)) {
                Ok(link) => (link, Mode::Native),
                Err(error @ (Error::Attached(_) | Error::NoInterface | Error::Bpf(bpf::Error::NotPermitted(_)))) => {
                    return Err(error);
                }
                Err(_) => {
                    let link = Link::xdp(&program, interface.index, Mode::Generic);
                    (link.map_err(|error| refused(Mode::Generic, error))?, Mode::Generic)
                }
            },
        };
        Ok(Self { _link: link, sockets, counts, mode })
    }

    /// From here on the packets of `queue` go to the socket.
    pub(super) fn begin(&self, queue: u32, socket: &OwnedFd) -> Result<(), bpf::Error> {
        self.sockets.write(queue, &socket.as_raw_fd().to_ne_bytes())
    }

    /// From here on they go to the stack again; a packet may be on its way still.
    pub(super) fn end(&self, queue: u32) -> io::Result<()> {
        match self.sockets.remove(queue) {
            // Emptied before, or by the kernel when the interface went.
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(()),
            other => other.map_err(io::Error::other),
        }
    }

    /// Packets that were sent to the socket of `queue`.
    pub(super) fn count(&self, queue: u32) -> u64 {
        self.counts.word(0, (queue * LINE) as usize).load(Ordering::Relaxed)
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
    // Never, since the map has a socket for it: the verifier wants to see it.
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
