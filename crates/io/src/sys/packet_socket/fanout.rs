//! Several rings that share the packets of an interface.

use super::filter::Insn;
use super::{Error, Ring, Settings};
use crate::sys::option::{get_option, set_option};
use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Rule that chooses the ring for a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// By the kernel's hash of addresses and ports, the same for both directions of a flow. Fragments of IP packets have no
    /// ports: all fragments of a packet go to one ring, possibly not the ring of their flow. Fragments are not reassembled
    /// first (PACKET_FANOUT_FLAG_DEFRAG), because a capture would then show packets that were never on the wire.
    Hash,
    /// By the processor that receives the packet.
    Cpu,
    /// By the queue of the card in which the packet arrived.
    Queue,
    /// By the result of this classic BPF program, modulo the number of rings.
    Program(Vec<Insn>),
}

// Of linux/if_packet.h.
const PACKET_FANOUT: c_int = 18;
const PACKET_FANOUT_DATA: c_int = 22;
const HASH: u32 = 0;
const CPU: u32 = 2;
const QUEUE: u32 = 5;
const PROGRAM: u32 = 6;
/// Flag that makes the kernel choose an unused group number.
const UNIQUE: u32 = 0x2000;

impl Fanout {
    fn mode(&self) -> u32 {
        match self {
            Self::Hash => HASH,
            Self::Cpu => CPU,
            Self::Queue => QUEUE,
            Self::Program(_) => PROGRAM,
        }
    }
}

impl Ring {
    /// Starts the capture from an interface into `rings` rings, each with `settings`.
    ///
    /// No packet is let in before all rings have joined, so each packet is in the ring that later packets of its flow go to.
    /// The rings let packets in one after another, and each ring ends by itself. While only some rings are capturing, packets
    /// of the other rings are lost. If a ring is dropped, the other rings take its share. If a ring has ended but is not
    /// dropped yet, its packets are lost.
    ///
    /// **Errors**: errors of [`Ring::open`]; [`Error::Stopped`] if `stop` is set, which is checked before each ring. `EINVAL`
    /// of the kernel for an empty program or a program that it refuses.
    pub fn open_fanout(
        name: &str,
        settings: &Settings,
        rings: usize,
        fanout: &Fanout,
        stop: &AtomicBool,
    ) -> Result<Vec<Self>, Error> {
        let mut group = None;
        let mut all = Vec::with_capacity(rings);
        for _ in 0..rings {
            if stop.load(Ordering::Relaxed) {
                return Err(Error::Stopped);
            }
            let ring = Self::start(name, settings, true)?;
            ring.join(&mut group, fanout).map_err(|error| Error::System { what: "PACKET_FANOUT", error })?;
            all.push(ring);
        }
        all.iter_mut().try_for_each(Self::release)?;
        Ok(all)
    }

    /// Joins the group, or creates it.
    fn join(&self, group: &mut Option<u32>, fanout: &Fanout) -> io::Result<()> {
        let socket = self.shared.socket();
        let id = group.unwrap_or(UNIQUE << 16);
        set_option(socket, libc::SOL_PACKET, PACKET_FANOUT, &(id | fanout.mode() << 16))?;
        if group.is_none() {
            let made = get_option::<c_int>(socket, libc::SOL_PACKET, PACKET_FANOUT)?;
            *group = Some(u32::from(made as u16));
            if let Fanout::Program(program) = fanout {
                let len = u16::try_from(program.len()).map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
                let program = libc::sock_fprog { len, filter: program.as_ptr().cast_mut().cast() };
                set_option(socket, libc::SOL_PACKET, PACKET_FANOUT_DATA, &program)?;
            }
        }
        Ok(())
    }
}
