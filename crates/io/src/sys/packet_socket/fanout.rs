//! Several rings that share the packets of an interface.

use super::filter::{Insn, JA};
use super::options::PACKET_IGNORE_OUTGOING;
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
    /// By the destination address, of IPv4 or IPv6, after up to two VLAN tags. All other packets go
    /// to the first ring.
    Address,
    /// By a random number of the kernel.
    Random,
    /// By the result of this classic BPF program, modulo the number of rings.
    Program(Vec<Insn>),
}

// Of linux/if_packet.h.
const PACKET_FANOUT: c_int = 18;
const PACKET_FANOUT_DATA: c_int = 22;
const HASH: u32 = 0;
const CPU: u32 = 2;
const RANDOM: u32 = 4;
const QUEUE: u32 = 5;
const PROGRAM: u32 = 6;
/// Flag that makes the kernel choose an unused group number.
const UNIQUE: u32 = 0x2000;
/// Flag that leaves out packets that the interface sends. The sockets' own PACKET_IGNORE_OUTGOING has no effect in a group, so that a group that
/// forwards would capture what it has sent.
const IGNORE_OUTGOING: u32 = 0x4000;

impl Fanout {
    fn mode(&self) -> u32 {
        match self {
            Self::Hash => HASH,
            Self::Cpu => CPU,
            Self::Queue => QUEUE,
            Self::Random => RANDOM,
            Self::Address | Self::Program(_) => PROGRAM,
        }
    }

    fn program(&self) -> Option<Vec<Insn>> {
        match self {
            Self::Address => Some(by_address()),
            Self::Program(program) => Some(program.clone()),
            _ => None,
        }
    }
}

/// Program that returns a hash of the destination address; 0 if there is none.
///
/// The kernel hands over the packet from after its link header on. It has taken out the outermost
/// VLAN tag; of a second one the tag's last two octets and the type after them are the first of the
/// packet.
fn by_address() -> Vec<Insn> {
    const IPV4: u32 = 0x0800;
    const IPV6: u32 = 0x86dd;
    const TAGS: [u32; 2] = [0x8100, 0x88a8];
    /// Protocol of the packet, SKF_AD_PROTOCOL.
    const PROTOCOL: u32 = 0xffff_f000;
    /// Factor of a multiplicative hash: the golden ratio.
    const FACTOR: u32 = 0x9e37_79b1;
    const LD_W: u16 = 0x20;
    const LD_H: u16 = 0x28;
    const JEQ: u16 = 0x15;
    const TAX: u16 = 0x07;
    const XOR_X: u16 = 0xac;
    const MUL_K: u16 = 0x24;
    const RSH_K: u16 = 0x74;
    const RET_K: u16 = 0x06;
    const RET_A: u16 = 0x16;
    let insn = |code, k| Insn {
        code,
        jt: 0,
        jf: 0,
        k,
    };
    let hash = || [insn(MUL_K, FACTOR), insn(RSH_K, 16), insn(RET_A, 0)];
    // `skipped` octets are in front of the IP header. Not one of both types: to what follows.
    let ip = |skipped: u32| {
        let mut v4 = vec![insn(LD_W, skipped + 16)];
        v4.extend(hash());
        let mut v6 = vec![insn(LD_W, skipped + 24)];
        for at in [28, 32, 36] {
            v6.extend([insn(TAX, 0), insn(LD_W, skipped + at), insn(XOR_X, 0)]);
        }
        v6.extend(hash());
        let mut program = vec![Insn {
            code: JEQ,
            jt: 0,
            jf: v4.len() as u8,
            k: IPV4,
        }];
        program.extend(v4);
        program.push(Insn {
            code: JEQ,
            jt: 0,
            jf: v6.len() as u8,
            k: IPV6,
        });
        program.extend(v6);
        program
    };
    let mut program = vec![insn(LD_W, PROTOCOL)];
    program.extend(ip(0));
    program.push(Insn {
        code: JEQ,
        jt: 1,
        jf: 0,
        k: TAGS[0],
    });
    program.push(Insn {
        code: JEQ,
        jt: 0,
        jf: 1,
        k: TAGS[1],
    });
    program.push(insn(JA, 1));
    program.push(insn(RET_K, 0));
    program.push(insn(LD_H, 2));
    program.extend(ip(4));
    program.push(insn(RET_K, 0));
    program
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
            ring.join(&mut group, fanout)
                .map_err(|error| Error::System {
                    what: "PACKET_FANOUT",
                    error,
                })?;
            all.push(ring);
        }
        all.iter_mut().try_for_each(Self::release)?;
        Ok(all)
    }

    /// Starts the capture from an interface into one ring of the group with this number, which the kernel makes for the first
    /// ring. Any processes may have the other rings of the group. All rings of a group have the same interface and the same
    /// `fanout`, and a group has 256 rings at most.
    ///
    /// The group's packets that the kernel gives to this ring between its joining and its first packet, some microseconds later,
    /// are lost.
    ///
    /// **Errors**: errors of [`Ring::open`], and of the kernel: `EINVAL` if the group has another interface or another rule.
    pub fn open_in_group(
        name: &str,
        settings: &Settings,
        group: u16,
        fanout: &Fanout,
    ) -> Result<Self, Error> {
        let mut ring = Self::start(name, settings, true)?;
        ring.join(&mut Some(group.into()), fanout)
            .map_err(|error| Error::System {
                what: "PACKET_FANOUT",
                error,
            })?;
        ring.release()?;
        Ok(ring)
    }

    /// Joins the group, or creates it.
    fn join(&self, group: &mut Option<u32>, fanout: &Fanout) -> io::Result<()> {
        let socket = self.shared.socket();
        let id = group.unwrap_or(UNIQUE << 16);
        let ignores = get_option::<c_int>(socket, libc::SOL_PACKET, PACKET_IGNORE_OUTGOING)? != 0;
        let flags = if ignores { IGNORE_OUTGOING } else { 0 };
        set_option(
            socket,
            libc::SOL_PACKET,
            PACKET_FANOUT,
            &(id | (fanout.mode() | flags) << 16),
        )?;
        if group.is_none() {
            let made = get_option::<c_int>(socket, libc::SOL_PACKET, PACKET_FANOUT)?;
            *group = Some(u32::from(made as u16));
            if let Some(program) = fanout.program() {
                let len = u16::try_from(program.len())
                    .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))?;
                let program = libc::sock_fprog {
                    len,
                    filter: program.as_ptr().cast_mut().cast(),
                };
                set_option(socket, libc::SOL_PACKET, PACKET_FANOUT_DATA, &program)?;
            }
        }
        Ok(())
    }
}
