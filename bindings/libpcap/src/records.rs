//! Records of a savefile, as far as libpcap would deliver them without a remark.
//!
//! Whatever is unusual (damage, a record that libpcap would cut, a block that describes an interface) is not judged here: it is
//! [`Scan::Odd`], and libpcap itself reads that record. So texts and results of unusual files are libpcap's own.

use weir_packet::savefile::{Format, Interface, Layout};

/// Largest number of packets of a scan, which a filter judges at once.
pub const BATCH: usize = 32;

/// Bytes of a block without a packet that is skipped here.
const LARGEST_SKIP: usize = 1 << 16;

/// A packet in the buffer.
#[derive(Clone, Copy, Debug, Default)]
pub struct Found {
    /// Offset of the frame in the buffer.
    pub data: u32,
    /// Captured length, bytes.
    pub captured: u32,
    /// Length on the wire, bytes.
    pub wire_len: u32,
    /// Offset of the next record.
    pub after: u32,
    /// Time: whole seconds, and the rest in the unit that the program asked for.
    pub seconds: i64,
    /// See `seconds`.
    pub fraction: i64,
}

/// Result of a scan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// The batch is full, or a record begins that is not whole in the buffer.
    Packets,
    /// The next record is for libpcap to read.
    Odd,
}

/// Times of an interface.
#[derive(Clone, Copy, Debug)]
struct Clock {
    per_second: u64,
    offset_s: i64,
    times: u64,
    divided: u64,
}

impl Clock {
    /// Times with a resolution that libpcap converts by one multiplication or division; `None` for others.
    fn new(per_second: u64, offset_s: i64, unit: u64) -> Option<Self> {
        let (times, divided) = if per_second <= unit {
            (unit.checked_rem(per_second)? == 0).then_some((unit / per_second, 1))?
        } else {
            per_second
                .is_multiple_of(unit)
                .then_some((1, per_second / unit))?
        };
        Some(Self {
            per_second,
            offset_s,
            times,
            divided,
        })
    }

    #[inline]
    fn convert(&self, fraction: u64) -> i64 {
        // Below one second in all but damaged pcap files, whose 32 bits stay below 2^63 too.
        let multiple = fraction * self.times;
        match self.divided {
            1 => multiple as i64,
            divided => (multiple / divided) as i64,
        }
    }
}

/// Format of a file, and the times of its interfaces.
#[derive(Debug)]
pub struct Records {
    layout: Layout,
    clocks: Vec<Option<Clock>>,
    /// Packets with more captured bytes are libpcap's to read.
    snaplen: u32,
    /// Units of a second that the program asked for: 10^6 or 10^9.
    unit: u64,
}

impl Records {
    /// Records of a file whose first bytes are `head`, up to libpcap's position after opening it. `None` for a file that
    /// libpcap reads whole: another byte order, an old version, a link type whose headers libpcap changes.
    pub fn open(head: &[u8], link: i32, snaplen: u32, unit: u64) -> Option<Self> {
        /// `DLT_USB_LINUX` and `DLT_USB_LINUX_MMAPPED`, of which libpcap corrects lengths.
        const USB: [i32; 2] = [189, 220];
        let (mut layout, mut at) = Layout::read(head, true).ok()?;
        let native = layout.big_endian == cfg!(target_endian = "big");
        if !native || USB.contains(&link) {
            return None;
        }
        match layout.format {
            // Version 2.4, and nothing after the header.
            Format::Pcap if at == head.len() && head.get(4..8)? == [2, 0, 4, 0] => {}
            Format::Pcapng => {
                while at < head.len() {
                    at = layout.apply(head, at, true).ok()?;
                }
            }
            _ => return None,
        }
        let mut records = Self {
            layout,
            clocks: Vec::new(),
            snaplen,
            unit,
        };
        records.set_clocks();
        Some(records)
    }

    fn set_clocks(&mut self) {
        let clock = |interface: &Interface| {
            let per_second = interface.resolution.per_second();
            Clock::new(per_second, interface.offset_s, self.unit)
        };
        self.clocks = self.layout.interfaces.iter().map(clock).collect();
    }

    /// Reads the descriptions of interfaces among the blocks in `from..to`, which libpcap has read; `false` if they are not understood,
    /// and libpcap reads all the rest.
    pub fn absorb(&mut self, buf: &[u8], from: usize, to: usize) -> bool {
        if self.layout.format == Format::Pcap {
            return true;
        }
        let mut at = from;
        while at < to {
            let Some([kind, length]) = pair(buf, at) else {
                return false;
            };
            if kind == SECTION || length < 12 {
                return false;
            }
            if kind == INTERFACE && self.layout.apply(buf, at, true).is_err() {
                return false;
            }
            at += length as usize;
        }
        self.set_clocks();
        at == to
    }

    /// Finds packets in `buf[*at..]`, and moves `at` after the last. `count` of `found` are filled.
    #[inline]
    pub fn scan(
        &self,
        buf: &[u8],
        at: &mut usize,
        found: &mut [Found; BATCH],
        count: &mut usize,
    ) -> Scan {
        match self.layout.format {
            Format::Pcap => self.scan_pcap(buf, at, found, count),
            _ => self.scan_pcapng(buf, at, found, count),
        }
    }

    fn scan_pcap(
        &self,
        buf: &[u8],
        at: &mut usize,
        found: &mut [Found; BATCH],
        count: &mut usize,
    ) -> Scan {
        let Some(Some(clock)) = self.clocks.first() else {
            return Scan::Odd;
        };
        *count = 0;
        for place in found.iter_mut() {
            let Some(header) = words::<4>(buf, *at) else {
                return Scan::Packets;
            };
            let [seconds, fraction, captured, wire_len] = header;
            // libpcap's numbers are signed.
            if captured > self.snaplen || (seconds | fraction) >> 31 != 0 {
                return Scan::Odd;
            }
            let data = *at + 16;
            let after = data + captured as usize;
            if after > buf.len() {
                return Scan::Packets;
            }
            *place = Found {
                data: data as u32,
                captured,
                wire_len,
                after: after as u32,
                seconds: i64::from(seconds),
                fraction: clock.convert(u64::from(fraction)),
            };
            *count += 1;
            *at = after;
        }
        Scan::Packets
    }

    fn scan_pcapng(
        &self,
        buf: &[u8],
        at: &mut usize,
        found: &mut [Found; BATCH],
        count: &mut usize,
    ) -> Scan {
        *count = 0;
        while *count < BATCH {
            let Some([kind, length]) = pair(buf, *at) else {
                return Scan::Packets;
            };
            let length = length as usize;
            let after = *at + length;
            let is_packet =
                kind == PACKET && (32..=self.snaplen as usize + LARGEST_SKIP).contains(&length);
            let is_skipped = !matches!(kind, PACKET | SECTION | INTERFACE | SIMPLE | OLD)
                && (12..=LARGEST_SKIP).contains(&length);
            if !(is_packet || is_skipped) || !length.is_multiple_of(4) {
                return Scan::Odd;
            }
            if after > buf.len() {
                return Scan::Packets;
            }
            if words::<1>(buf, after - 4) != Some([length as u32]) {
                return Scan::Odd;
            }
            if is_packet {
                let Some(packet) = self.packet(buf, *at, length) else {
                    return Scan::Odd;
                };
                found[*count] = packet;
                *count += 1;
            }
            *at = after;
        }
        Scan::Packets
    }

    /// The packet of the Enhanced Packet Block at `at`, which is whole.
    fn packet(&self, buf: &[u8], at: usize, length: usize) -> Option<Found> {
        let [interface, high, low, captured, wire_len] = words::<5>(buf, at + 8)?;
        let place = self.layout.interface_of(interface)?;
        let clock = self.clocks.get(place as usize)?.as_ref()?;
        if captured > self.snaplen || captured as usize > length - 32 {
            return None;
        }
        let ticks = u64::from(high) << 32 | u64::from(low);
        Some(Found {
            data: (at + 28) as u32,
            captured,
            wire_len,
            after: (at + length) as u32,
            seconds: ((ticks / clock.per_second) as i64).wrapping_add(clock.offset_s),
            fraction: clock.convert(ticks % clock.per_second),
        })
    }
}

/// Block types of pcapng.
const INTERFACE: u32 = 1;
const OLD: u32 = 2;
const SIMPLE: u32 = 3;
const PACKET: u32 = 6;
const SECTION: u32 = 0x0a0d_0d0a;

/// Words of the machine's byte order at `at`; `None` if the buffer ends before.
#[inline]
fn words<const N: usize>(buf: &[u8], at: usize) -> Option<[u32; N]> {
    let bytes = buf.get(at..at + N * 4)?;
    let mut words = [0; N];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(4)) {
        *word = u32::from_ne_bytes(bytes.try_into().ok()?);
    }
    Some(words)
}

#[inline]
fn pair(buf: &[u8], at: usize) -> Option<[u32; 2]> {
    words::<2>(buf, at)
}
