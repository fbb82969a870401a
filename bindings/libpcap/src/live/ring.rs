//! Packets of AF_PACKET's ring.

use super::{Packet, Reader, attach};
use crate::judge::LiveJudge;
use crate::settings::{Backend, Settings};
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

/// Reader of a ring.
pub struct RingReader {
    ring: Ring,
    never: AtomicBool,
    lease: Option<Arc<dyn Lease>>,
    /// The records of the lease that were not taken.
    records: *const [u8],
    left: u64,
    snaplen: u32,
    judge: LiveJudge,
    /// Packets up to this time, ns since the epoch, may have passed an earlier filter.
    checked_until: i128,
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
            snaplen,
            judge: LiveJudge::default(),
            checked_until: 0,
        })
    }

    #[cold]
    fn passes(&mut self, packet: &Packet) -> bool {
        let frame = Frame {
            // SAFETY: the lease holds the bytes.
            data: unsafe { packet.bytes() },
            wire_len: packet.wire_len,
            interface: 0,
        };
        self.judge.matches(&[frame]) & 1 != 0
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
        self.judge = LiveJudge::new(insns);
        self.checked_until = if attach(self.fd(), &passing.collect::<Vec<_>>()).is_ok() {
            let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
            now.map_or(i128::MAX, |now| now.as_nanos() as i128)
        } else {
            // The kernel refuses what it knows nothing of, or what is too long for it.
            let _ = attach(self.fd(), &everything);
            i128::MAX
        };
    }

    fn counts(&mut self) -> Counts {
        // The ring reads its counts where a wait ends.
        let _ = self.ring.wait(Duration::ZERO);
        Counts {
            // The program's filter in the kernel does not count.
            filtered: self.judge.is_empty().then_some(0),
            ..self.ring.counts()
        }
    }

    fn release(&mut self, _: bool) {
        if self.left == 0 {
            self.lease = None;
        }
    }

    fn take(&mut self) -> Option<Packet> {
        while self.left > 0 {
            // SAFETY: the lease holds the records, and nobody writes to them.
            let records = unsafe { &*self.records };
            let Some(packet) = packet(records) else {
                self.left = 0;
                break;
            };
            self.left -= 1;
            let next = word(records, NEXT) as usize;
            match records.get(next..) {
                Some(rest) if next > 0 => self.records = rest,
                _ => self.left = 0,
            }
            if packet.time_ns() > self.checked_until || self.passes(&packet) {
                return Some(packet);
            }
        }
        None
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

fn word(record: &[u8], at: usize) -> u32 {
    record[at..at + 4].try_into().map_or(0, u32::from_ne_bytes)
}

/// The packet of the first record; `None` if the record leads out of its block.
#[inline]
fn packet(record: &[u8]) -> Option<Packet> {
    record.get(..RECORD)?;
    let frame = usize::from(u16::from_ne_bytes([record[FRAME], record[FRAME + 1]]));
    let captured = word(record, CAPTURED);
    let data = record.get(frame..frame + captured as usize)?;
    Some(Packet {
        seconds: word(record, SECONDS).into(),
        nanoseconds: word(record, NANOSECONDS),
        captured,
        wire_len: word(record, WIRE_LEN),
        is_outgoing: record[PACKET_TYPE] == OUTGOING,
        data: data.as_ptr(),
    })
}
