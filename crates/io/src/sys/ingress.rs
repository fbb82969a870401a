//! Closing an interface's ingress: what it receives is seen by packet sockets, and by nothing after
//! them.
//!
//! A packet socket is a tap: the host's own stack gets each packet too, answers it, and routes it
//! on if it is a router. A program of two instructions at the ingress hook of traffic control,
//! which lies after the taps, drops all packets there. The kernel takes it away with the descriptor
//! of its attachment, so also if the process is killed.
//!
//! **Platform**: Linux 6.6 (`BPF_TCX_INGRESS`); privilege: CAP_BPF with CAP_NET_ADMIN. **Source**: linux/bpf.h, net/core/dev.c.

use super::bpf::{self, Assembler, Error, Kind, Program};
use std::os::fd::OwnedFd;

/// `TCX_DROP` of `enum tcx_action_base`, which is `TC_ACT_SHOT` of linux/pkt_cls.h.
const DROP: i32 = 2;

/// A closed ingress; it is open again when the value is dropped.
#[derive(Debug)]
pub struct ClosedIngress {
    _attachment: OwnedFd,
}

impl ClosedIngress {
    /// Closes the ingress of interface number `interface`. **Errors**: missing privileges; `EINVAL` before Linux 6.6.
    pub fn new(interface: u32) -> Result<Self, Error> {
        let mut assembler = Assembler::new();
        assembler.result(DROP);
        let program = Program::load(Kind::TrafficControl, &assembler, false)?;
        Ok(Self {
            _attachment: bpf::attach_to_ingress(&program, interface)?,
        })
    }
}
