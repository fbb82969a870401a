//! Records in, capture file bytes out: little-endian pcap and plain pcapng.

use super::carried::{CarriedBlock, LeftOut};
use super::described::InterfaceOption;
use super::options::PacketOptions;
use super::{
    Format, Interface, MAX_SNAPLEN, Record, Resolution, Statistics, cut_length, pcap, pcapng,
};
use crate::time::Stamp;
use crate::{Frame, LinkType};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

/// Reason why a packet cannot be written to the file.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WriteError {
    /// A pcap file has one link type, and the packet has another.
    #[error(
        "a pcap file holds one link type, this one has {}, and a packet of {} came: write pcapng instead",
        have.name().unwrap_or("another"), came.name().unwrap_or("another")
    )]
    LinkType {
        /// Link type of the file.
        have: LinkType,
        /// Link type of the packet.
        came: LinkType,
    },
}

/// Number of interfaces that are compared one by one, which is faster than a table for so few.
const FEW: usize = 8;

/// Encodes one output, file after file if it is rotated.
///
/// pcap: nanosecond magic if the first interface is finer than a microsecond. pcapng: one section, with an interface block for
/// each distinct interface just before its first packet, which holds its texts, filter, resolution and options; times finer than
/// 1 ns are cut to ns. Options of packets are kept, and secrets, names of addresses and custom blocks that the caller [carries](Encoder::carry);
/// what a pcap file has no place for is counted. Statistics are kept if the caller passes them on. If the file cannot hold a time, the nearest possible time is written, and counted.
#[derive(Debug)]
pub struct Encoder {
    format: Format,
    /// Packets are cut to this many bytes; 0 cuts nothing.
    snaplen: u32,
    interfaces: Vec<Interface>,
    /// Ids of the interfaces after the first [`FEW`].
    ids: HashMap<Interface, u32>,
    /// Number of interface blocks (or, for pcap, file headers) that the current file already holds.
    described: usize,
    begun: bool,
    clamped: u64,
    /// Number of packets without a time.
    unstamped: u64,
    /// pcap: snap length in the header of the present file, bytes, and the number of packets that are longer.
    header_snaplen: u32,
    longer: u64,
    /// Comments of the section header.
    comments: Vec<String>,
    /// Hardware and operating system of the section header.
    hardware: Option<String>,
    os: Option<String>,
    /// Blocks about packets, and the number of them that the current file holds.
    carried: Vec<Arc<CarriedBlock>>,
    carried_done: usize,
    /// Addresses of these blocks.
    known: HashSet<usize>,
    /// Bytes of these blocks in the current file.
    carried_bytes: u64,
    left_out: LeftOut,
}

impl Encoder {
    /// An encoder that cuts packets to `snaplen` bytes (0: no limit). All formats that exist in memory only are written as
    /// pcapng.
    pub fn new(format: Format, snaplen: u32) -> Self {
        Self {
            format,
            snaplen,
            interfaces: Vec::new(),
            ids: HashMap::new(),
            described: 0,
            begun: false,
            clamped: 0,
            unstamped: 0,
            header_snaplen: 0,
            longer: 0,
            comments: Vec::new(),
            hardware: None,
            os: None,
            carried: Vec::new(),
            carried_done: 0,
            known: HashSet::new(),
            carried_bytes: 0,
            left_out: LeftOut::default(),
        }
    }

    /// Has each pcapng file from now on hold a block about packets, the current one before its next packet. A block that is
    /// known already is passed over.
    pub fn carry(&mut self, block: &Arc<CarriedBlock>) {
        if !self.known.insert(Arc::as_ptr(block) as usize) {
            return;
        }
        if self.format == Format::Pcap {
            self.left_out.add(block.kind);
        }
        self.carried.push(Arc::clone(block));
    }

    /// Whether a block was carried already.
    pub fn has_carried(&self, block: &Arc<CarriedBlock>) -> bool {
        self.known.contains(&(Arc::as_ptr(block) as usize))
    }

    /// Number of blocks and parts of packets that the format has no place for.
    pub fn left_out(&self) -> LeftOut {
        self.left_out
    }

    /// Counts parts that have no place in the files.
    pub fn leave_out(&mut self, more: &LeftOut) {
        self.left_out.join(more);
    }

    /// Writes the blocks that the current file does not hold yet.
    #[cold]
    pub fn write_carried(&mut self, out: &mut Vec<u8>) {
        let before = out.len();
        if self.format != Format::Pcap {
            self.carried[self.carried_done..]
                .iter()
                .for_each(|block| out.extend_from_slice(&block.bytes));
        }
        self.carried_done = self.carried.len();
        self.carried_bytes += (out.len() - before) as u64;
    }

    /// Bytes of blocks about packets that the current file holds so far.
    pub fn carried_bytes(&self) -> u64 {
        self.carried_bytes
    }

    /// Adds a comment to the section headers of the files that begin from now on; a pcap file has no place for it.
    pub fn comment(&mut self, text: String) {
        self.comments.push(text);
    }

    /// Has the section headers of the files that begin from now on tell the hardware or the operating system of the capture, by the name
    /// that [`Layout::notes`](super::Layout::notes) has for it. Returns whether they do: the first text of each is kept, and a pcap
    /// file has no place for any.
    pub fn section_option(&mut self, name: &str, text: &str) -> bool {
        let place = match name {
            "hardware" => &mut self.hardware,
            "os" => &mut self.os,
            _ => return false,
        };
        self.format != Format::Pcap && place.get_or_insert_with(|| text.to_owned()) == text
    }

    /// Announces an interface; equal interfaces share an id. **Cost**: a search, once per source interface, not per packet.
    pub fn interface(&mut self, interface: &Interface) -> Result<u32, WriteError> {
        let few = &self.interfaces[..self.interfaces.len().min(FEW)];
        if let Some(id) = few.iter().position(|known| known == interface) {
            return Ok(id as u32);
        }
        if let Some(&id) = self.ids.get(interface) {
            return Ok(id);
        }
        if self.format == Format::Pcap
            && let Some(first) = self.interfaces.first()
            && first.link != interface.link
        {
            return Err(WriteError::LinkType {
                have: first.link,
                came: interface.link,
            });
        }
        let id = self.interfaces.len() as u32;
        self.interfaces.push(interface.clone());
        if id as usize >= FEW {
            self.ids.insert(interface.clone(), id);
        }
        Ok(id)
    }

    /// Forgets the contents of the current file: the packets that follow go into a new file.
    pub fn restart(&mut self) {
        self.described = 0;
        (self.carried_done, self.carried_bytes) = (0, 0);
        self.begun = false;
    }

    /// Writes the file header, and the interfaces announced so far, if the current file has none yet.
    #[inline]
    pub fn begin(&mut self, out: &mut Vec<u8>) {
        if !self.begun {
            self.header(out);
        }
    }

    /// Writes the section header if the current pcapng file has none yet, and otherwise the next interface block that it does not
    /// hold yet, if there is one.
    #[cold]
    pub fn describe_next(&mut self, out: &mut Vec<u8>) {
        if self.format == Format::Pcap {
            self.begin(out);
        } else if self.begun {
            self.describe(out, self.interfaces.len().min(self.described + 1));
        } else {
            self.begun = true;
            self.section_header(out);
        }
    }

    #[cold]
    fn header(&mut self, out: &mut Vec<u8>) {
        self.begun = true;
        match self.format {
            Format::Pcap => self.pcap_header(out),
            Format::Pcapng | Format::Ring | Format::Slots | Format::Spool => {
                self.section_header(out);
                self.describe(out, self.interfaces.len());
                self.write_carried(out);
            }
        }
    }

    fn section_header(&self, out: &mut Vec<u8>) {
        block(out, pcapng::SECTION, |body| {
            word(body, pcapng::BYTE_ORDER_MARK);
            word(body, 1);
            body.extend_from_slice(&u64::MAX.to_le_bytes());
            for comment in &self.comments {
                option(body, 1, comment.as_bytes());
            }
            for (code, text) in [(2, &self.hardware), (3, &self.os)] {
                text.iter()
                    .for_each(|text| option(body, code, text.as_bytes()));
            }
            option(
                body,
                4,
                concat!("weir ", env!("CARGO_PKG_VERSION")).as_bytes(),
            );
            word(body, 0);
        });
    }

    /// Writes the interface blocks of the first `count` interfaces that the file does not hold yet.
    #[cold]
    fn describe(&mut self, out: &mut Vec<u8>, count: usize) {
        for interface in self.interfaces.iter().take(count).skip(self.described) {
            interface_block(out, interface, self.snaplen);
        }
        self.described = self.described.max(count);
    }

    /// Appends one packet of interface `id`. A missing time is written as 0, as libpcap does.
    #[inline]
    pub fn packet(&mut self, out: &mut Vec<u8>, id: u32, time_ns: Option<i64>, frame: &Frame<'_>) {
        self.record(
            out,
            id,
            &Record {
                time_ns,
                frame: *frame,
                options: PacketOptions::default(),
            },
        );
    }

    /// Appends one packet of interface `id` with its options, which a pcap file has no place for. Always inlined: a
    /// call in the loop of a file costs 15 instructions a packet.
    #[inline(always)]
    pub fn record(&mut self, out: &mut Vec<u8>, id: u32, record: &Record<'_>) {
        let Record {
            time_ns,
            ref frame,
            ref options,
        } = *record;
        self.begin(out);
        let data = match self.snaplen {
            0 => frame.data,
            n => &frame.data[..frame.data.len().min(n as usize)],
        };
        self.unstamped += u64::from(time_ns.is_none());
        let time_ns = time_ns.unwrap_or(0);
        match self.format {
            Format::Pcap => {
                let unit = self.pcap_resolution();
                let whole = time_ns.div_euclid(1_000_000_000);
                let seconds = whole.clamp(0, u32::MAX.into()) as u32;
                self.clamped += u64::from(whole != i64::from(seconds));
                let fraction = unit.from_ns(time_ns.rem_euclid(1_000_000_000)) as u32;
                let mut header = [0u8; pcap::RECORD_HEADER];
                header[0..4].copy_from_slice(&seconds.to_le_bytes());
                header[4..8].copy_from_slice(&fraction.to_le_bytes());
                header[8..12].copy_from_slice(&(data.len() as u32).to_le_bytes());
                header[12..16].copy_from_slice(&frame.wire_len.to_le_bytes());
                self.longer += u64::from(data.len() > self.header_snaplen as usize);
                out.extend_from_slice(&header);
                out.extend_from_slice(data);
                if !options.is_empty() {
                    self.left_out.add_options(options);
                }
            }
            Format::Pcapng | Format::Ring | Format::Slots | Format::Spool => {
                if self.described <= id as usize {
                    self.describe(out, id as usize + 1);
                }
                if self.carried_done < self.carried.len() {
                    self.write_carried(out);
                }
                let unit = writable(self.interfaces[id as usize].resolution);
                self.clamped += u64::from(time_ns < 0 || Stamp(time_ns).is_clamped());
                let start = out.len();
                enhanced_packet(out, id, unit.from_ns(time_ns), frame.wire_len, data);
                if !options.is_empty() {
                    append_options(out, start, options, data.len() < frame.data.len());
                }
            }
        }
    }

    /// Number of packets whose times the files could not hold: before 1970, after 2106 (pcap), or clamped when they were read.
    pub fn clamped(&self) -> u64 {
        self.clamped
    }

    /// Number of packets without a time, for which 0 was written.
    pub fn unstamped(&self) -> u64 {
        self.unstamped
    }

    /// Number of packets in pcap files that are longer than the snap length of the file's header, as in their source. They are
    /// written whole, but libpcap reads no more of them than that.
    pub fn longer(&self) -> u64 {
        self.longer
    }

    /// Appends the counts of interface `id`, with comments; a pcap file has no place for them, so nothing is written there.
    ///
    /// **Source**: Interface Statistics Block of the pcapng draft, section 4.6.
    pub fn statistics(
        &mut self,
        out: &mut Vec<u8>,
        id: u32,
        counts: &Statistics,
        comments: &[String],
    ) {
        if self.format == Format::Pcap {
            return;
        }
        self.begin(out);
        self.describe(out, id as usize + 1);
        let unit = writable(self.interfaces[id as usize].resolution);
        let ticks = unit.from_ns(counts.time_ns);
        block(out, pcapng::STATISTICS, |body| {
            for field in [id, (ticks >> 32) as u32, ticks as u32] {
                word(body, field);
            }
            for comment in comments {
                option(body, 1, comment.as_bytes());
            }
            // isb_starttime, isb_endtime: the high word first.
            for (code, time_ns) in [(2, counts.start_ns), (3, counts.end_ns)] {
                if let Some(time_ns) = time_ns {
                    let ticks = unit.from_ns(time_ns);
                    option(body, code, &ticks.rotate_left(32).to_le_bytes());
                }
            }
            // isb_ifrecv, isb_ifdrop, isb_osdrop, isb_usrdeliv
            let Statistics {
                received,
                dropped_by_interface,
                dropped_by_system,
                delivered,
                ..
            } = *counts;
            for (code, count) in [
                (4, received),
                (5, dropped_by_interface),
                (7, dropped_by_system),
                (8, delivered),
            ] {
                if let Some(count) = count {
                    option(body, code, &count.to_le_bytes());
                }
            }
            word(body, 0);
        });
    }

    /// Largest number of bytes that [`Self::packet`] appends for a packet with `captured` bytes, apart from file headers.
    pub fn record_len(&self, captured: usize) -> usize {
        let captured = if self.snaplen == 0 {
            captured
        } else {
            captured.min(self.snaplen as usize)
        };
        match self.format {
            Format::Pcap => pcap::RECORD_HEADER + captured,
            Format::Pcapng | Format::Ring | Format::Slots | Format::Spool => {
                32 + captured.next_multiple_of(4)
            }
        }
    }

    fn pcap_resolution(&self) -> Resolution {
        let fine = self
            .interfaces
            .first()
            .is_some_and(|first| first.resolution.is_fine());
        if fine {
            Resolution::NANOSECOND
        } else {
            Resolution::MICROSECOND
        }
    }

    fn pcap_header(&mut self, out: &mut Vec<u8>) {
        let magic = if self.pcap_resolution().is_fine() {
            0xa1b2_3c4du32
        } else {
            0xa1b2_c3d4
        };
        let first = self.interfaces.first();
        let link = first.map_or(LinkType::ETHERNET, |first| first.link);
        // libpcap cuts packets to this length, so the header holds the largest snap length of all; 0 means no limit.
        let unlimited = |snaplen| if snaplen == 0 { MAX_SNAPLEN } else { snaplen };
        let longest = self
            .interfaces
            .iter()
            .map(|interface| unlimited(interface.snaplen))
            .max();
        let snaplen = cut_length(longest.unwrap_or(MAX_SNAPLEN), self.snaplen);
        self.header_snaplen = snaplen;
        for word in [magic, 0x0004_0002, 0, 0, snaplen, link.0.into()] {
            out.extend_from_slice(&word.to_le_bytes());
        }
    }
}

/// The unit in which times of `resolution` are written: its own if it is decimal and not finer than 1 ns.
#[inline]
fn writable(resolution: Resolution) -> Resolution {
    if resolution.0 <= 9 {
        resolution
    } else {
        Resolution::NANOSECOND
    }
}

pub(super) fn word(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

pub(super) fn option(out: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX) - 3)];
    out.extend_from_slice(&code.to_le_bytes());
    out.extend_from_slice(&(value.len() as u16).to_le_bytes());
    out.extend_from_slice(value);
    out.resize(out.len().next_multiple_of(4), 0);
}

/// Writes the block `kind` around the bytes that `body` appends. `out` is 4-byte aligned from the block's start on.
pub(super) fn block(out: &mut Vec<u8>, kind: u32, body: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = Vec::with_capacity(128);
    body(&mut bytes);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    let total = bytes.len() as u32 + 12;
    word(out, kind);
    word(out, total);
    out.extend_from_slice(&bytes);
    word(out, total);
}

fn interface_block(out: &mut Vec<u8>, interface: &Interface, snaplen: u32) {
    block(out, pcapng::INTERFACE, |body| {
        word(body, interface.link.0.into());
        word(body, cut_length(interface.snaplen, snaplen));
        for comment in &interface.comments {
            option(body, 1, comment.as_bytes());
        }
        if let Some(name) = &interface.name {
            option(body, 2, name.as_bytes());
        }
        if let Some(description) = &interface.description {
            option(body, 3, description.as_bytes());
        }
        option(body, 9, &[writable(interface.resolution).0]);
        if let Some(filter) = &interface.filter {
            option(body, 11, &[&[0], filter.as_bytes()].concat());
        }
        for InterfaceOption { code, value } in &interface.options {
            option(body, *code, value);
        }
        word(body, 0);
    });
}

/// Puts options into the packet block from `start` to the end of `out`.
fn append_options(out: &mut Vec<u8>, start: usize, options: &PacketOptions<'_>, is_cut: bool) {
    out.truncate(out.len() - 4);
    options.append(out, is_cut);
    let total = (out.len() + 4 - start) as u32;
    out[start + 4..start + 8].copy_from_slice(&total.to_le_bytes());
    word(out, total);
}

/// Writes an enhanced packet block. Runs for every packet, so there is no body closure and no second buffer.
#[inline]
fn enhanced_packet(out: &mut Vec<u8>, id: u32, ticks: u64, wire_len: u32, data: &[u8]) {
    let padded = data.len().next_multiple_of(4);
    let total = padded as u32 + 32;
    let mut header = [0u8; 28];
    let fields = [
        pcapng::ENHANCED_PACKET,
        total,
        id,
        (ticks >> 32) as u32,
        ticks as u32,
        data.len() as u32,
        wire_len,
    ];
    for (place, field) in header.chunks_exact_mut(4).zip(fields) {
        place.copy_from_slice(&field.to_le_bytes());
    }
    out.extend_from_slice(&header);
    out.extend_from_slice(data);
    if padded != data.len() {
        out.extend_from_slice(&[0u8; 3][..padded - data.len()]);
    }
    out.extend_from_slice(&total.to_le_bytes());
}
