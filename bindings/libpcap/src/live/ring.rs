//! Packets of AF_PACKET's ring.

use super::{Packet, Reader, attach, key};
use crate::judge::{LiveJudge, Origin};
use crate::settings::{Backend, Settings, say};
use core::sync::atomic::AtomicBool;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use weir_filter::Insn;
use weir_io::live::{Backend as _, Counts, Lease, Next};
use weir_io::sys::packet_socket::{self, Fanout, Ring};
use weir_packet::Frame;

/// Offsets in a record of the ring. **Source**: `struct tpacket3_hdr` and `struct sockaddr_ll` of linux/if_packet.h.
const NEXT: usize = 0;
const SECONDS: usize = 4;
const NANOSECONDS: usize = 8;
const CAPTURED: usize = 12;
const WIRE_LEN: usize = 16;
const FRAME: usize = 24;
const PACKET_TYPE: usize = 58;
const RECORD: usize = 68;

/// `PACKET_OUTGOING` of linux/if_packet.h.
const OUTGOING: u8 = 4;

/// Key of a time that no packet has.
const ALWAYS: u64 = u64::MAX;

/// Reader of a ring.
pub struct RingReader {
    ring: Ring,
    never: AtomicBool,
    lease: Option<Arc<dyn Lease>>,
    /// The records of the lease that were not taken.
    records: *const [u8],
    left: u64,
    /// Records that cannot be found any more, because the program has written into the ring.
    destroyed: u64,
    snaplen: u32,
    /// The filter, for received packets and for sent packets.
    judges: [LiveJudge; 2],
    interface: u32,
    /// Packets whose times have a key up to this one may have passed an earlier filter.
    checked_until: u64,
}

impl RingReader {
    /// Opens a ring of an interface, alone or in a fanout group.
    pub fn open(
        name: &str,
        settings: &Settings,
        retire: Duration,
        snaplen: u32,
    ) -> Result<Self, packet_socket::Error> {
        let ring = packet_socket::Settings {
            // libpcap's socket keeps the interface promiscuous.
            promiscuous: false,
            snaplen,
            ..packet_socket::Settings::of_latency(settings.ring, retire)
        };
        let ring = match settings.fanout {
            None => Ring::open(name, &ring)?,
            Some(group) => Ring::open_in_group(name, &ring, group, &Fanout::Hash)?,
        };
        Ok(Self {
            ring,
            never: AtomicBool::new(false),
            lease: None,
            records: &[],
            left: 0,
            destroyed: 0,
            snaplen,
            judges: [LiveJudge::default(), LiveJudge::default()],
            interface: packet_socket::index_of(name).unwrap_or(0),
            checked_until: 0,
        })
    }

    /// Gives up the rest of a block. A program that writes after the end of a packet, as `sipdump` does, changes the next record's header.
    #[cold]
    #[inline(never)]
    fn give_up(&mut self) -> bool {
        if self.left > 0 && self.destroyed == 0 {
            say(
                "the program writes into the memory of the capture: packets there are lost, and count as dropped",
            );
        }
        self.destroyed += self.left;
        self.left = 0;
        false
    }

    /// Judges a packet that an earlier filter may have let in, and takes another if it does not pass.
    #[cold]
    #[inline(never)]
    fn take_judged(&mut self, packet: &mut Packet) -> bool {
        let frame = Frame {
            // SAFETY: the lease holds the bytes.
            data: unsafe { packet.bytes() },
            wire_len: packet.wire_len,
            interface: 0,
        };
        let judge = &mut self.judges[usize::from(packet.is_outgoing)];
        judge.matches(&[frame]) & 1 != 0 || self.take(packet)
    }
}

impl Reader for RingReader {
    fn backend(&self) -> Backend {
        Backend::AfPacket
    }

    fn fd(&self) -> i32 {
        self.ring.as_fd().as_raw_fd()
    }

    fn set_filter(&mut self, insns: &[Insn]) {
        let passing = insns.iter().map(|insn| match insn {
            Insn {
                code: 6, k: 1.., ..
            } => Insn {
                k: self.snaplen,
                ..*insn
            },
            other => *other,
        });
        let everything = [Insn::statement(6, self.snaplen)];
        self.judges = [false, true].map(|is_outgoing| {
            let origin = Origin {
                is_outgoing,
                interface: self.interface,
            };
            LiveJudge::new(insns, origin)
        });
        self.checked_until = if attach(self.fd(), &passing.collect::<Vec<_>>()).is_ok() {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            // A packet that the earlier filter has just passed gets its time later.
            now.map_or(ALWAYS, |now| {
                key(now.as_secs() as u32 + 1, now.subsec_nanos())
            })
        } else {
            // The kernel refuses what it knows nothing of, or what is too long for it.
            let _ = attach(self.fd(), &everything);
            ALWAYS
        };
    }

    fn counts(&mut self) -> Counts {
        // The ring reads its counts where a wait ends.
        let _ = self.ring.wait(Duration::ZERO);
        let counts = self.ring.counts();
        Counts {
            // The program's filter in the kernel does not count.
            filtered: self.judges[0].is_empty().then_some(0),
            dropped: counts.dropped + self.destroyed,
            ..counts
        }
    }

    fn release(&mut self) {
        self.lease = None;
    }

    #[inline]
    fn take(&mut self, packet: &mut Packet) -> bool {
        // SAFETY: the lease holds the records, and nobody writes to them.
        let records = unsafe { &*self.records };
        let Some(head) = records.first_chunk::<RECORD>().filter(|_| self.left > 0) else {
            return self.give_up();
        };
        let frame = usize::from(u16::from_ne_bytes([head[FRAME], head[FRAME + 1]]));
        packet.captured = word(head, CAPTURED);
        if frame + packet.captured as usize > records.len() {
            // The record leads out of its block.
            return self.give_up();
        }
        packet.data = records[frame..].as_ptr();
        packet.seconds = word(head, SECONDS);
        packet.nanoseconds = word(head, NANOSECONDS);
        packet.wire_len = word(head, WIRE_LEN);
        packet.is_outgoing = head[PACKET_TYPE] == OUTGOING;
        let next = word(head, NEXT) as usize;
        match records.get(next..) {
            Some(rest) if next > 0 => (self.records, self.left) = (rest, self.left - 1),
            _ => {
                self.left -= 1;
                self.give_up();
            }
        }
        packet.is_last = self.left == 0;
        if packet.key() > self.checked_until {
            return true;
        }
        self.take_judged(packet)
    }

    fn advance(&mut self) -> io::Result<bool> {
        self.lease = None;
        // A panic would be a fault of this library.
        let next = catch_unwind(AssertUnwindSafe(|| self.ring.next(&self.never)));
        match next.unwrap_or_else(|_| Err(io::Error::other("a fault of weir")))? {
            Next::Records(lease, packets) => {
                let records: *const [u8] = lease.bytes().slice();
                (self.records, self.left, self.lease) = (records, packets, Some(lease));
                Ok(true)
            }
            Next::Nothing | Next::End => Ok(false),
        }
    }
}

#[inline]
fn word(head: &[u8; RECORD], at: usize) -> u32 {
    let bytes = [head[at], head[at + 1], head[at + 2], head[at + 3]];
    u32::from_ne_bytes(bytes)
}
