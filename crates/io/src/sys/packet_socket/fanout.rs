//! Several rings that share the packets of an interface.

use super::filter::Insn;
use super::{Error, Ring, Settings};
use crate::sys::option::{get_option, set_option};
use std::ffi::c_int;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

/// Which of the rings gets a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fanout {
    /// By the kernel's hash of addresses and ports, the same for both directions of a flow. Fragments of IP packets have no
    /// ports: all of a packet's are in one ring, which need not be that of its flow. They are not put together first
    /// (PACKET_FANOUT_FLAG_DEFRAG): a capture would show packets that were never on the wire.
    Hash,
    /// By the processor on which it is received.
    Cpu,
    /// By the queue of the card in which it arrived.
    Queue,
    /// By what this classic BPF program returns, modulo the number of rings.
    Program(Vec<Insn>),
}

// Of linux/if_packet.h.
const PACKET_FANOUT: c_int = 18;
const PACKET_FANOUT_DATA: c_int = 22;
const HASH: u32 = 0;
const CPU: u32 = 2;
const QUEUE: u32 = 5;
const PROGRAM: u32 = 6;
/// The kernel chooses a number that no other group has.
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
    /// Begins to capture from an interface into `rings` rings, each as `settings` say.
    ///
    /// Nothing is let in before all have joined, so no packet is where it would not be later. They are let in one ring after
    /// the other, and each ring ends by itself: what arrives in the moment in which some capture and others do not is
    /// captured by the former only. A ring that is dropped leaves its share to the others; packets for one that has ended and
    /// is not dropped yet are nobody's.
    ///
    /// **Errors**: those of [`Ring::open`]; [`Error::Stopped`] once `stop` is set, which is looked at before each ring; `EINVAL` of the kernel for no program, or one that it does not take.
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

    /// Joins the group, or makes one.
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
