//! Capture file formats: bytes in, records out; records in, bytes out.
//!
//! A [`Layout`] holds all that a reader must know to read a record: format, byte order, interfaces. [`walk`] steps from
//! record to record over a byte slice with one or several cursors. Nothing here opens a file.
//!
//! Sources: pcap <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-05.html>, pcapng
//! <https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-03.html>, libpcap's `sf-pcap.c` for the files that readers accept.

pub mod carried;
pub mod described;
pub mod magic;
pub mod options;
pub mod pcap;
pub mod pcapng;
pub mod slots;
pub mod spool;
pub mod walk;
pub mod write;

mod bytes;
mod resolution;
mod ring;

use crate::LinkType;
use crate::list::List;
use carried::{BlockKind, CarriedBlock};
use core::hash::BuildHasher;
use described::InterfaceOption;
use options::PacketOptions;
use pcap::Lengths;
pub use resolution::Resolution;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::{Arc, Mutex, PoisonError};

/// The largest snap length libpcap accepts for an ordinary link type, bytes (`MAXIMUM_SNAPLEN`).
pub const MAX_SNAPLEN: u32 = 262_144;

/// The largest snap length libpcap accepts for a link type, bytes (`max_snaplen_for_dlt`).
pub fn max_snaplen(link: LinkType) -> u32 {
    match link.0 {
        231 | 249 => 128 << 20, // DBUS, USBPCAP
        279 => 8 << 20,         // EBHSCR
        _ => MAX_SNAPLEN,
    }
}

/// The smaller of two snap lengths, where 0 means no limit.
pub fn cut_length(a: u32, b: u32) -> u32 {
    if a == 0 || b == 0 { a.max(b) } else { a.min(b) }
}

/// Begin of a comment that says what the packets of an interface or a section were chosen by.
pub const HOLDS_ONLY: &str = "holds only ";

/// Snap length from which on packets count as whole, bytes: older programs write it for them.
const WHOLE: u32 = 65_535;

/// Largest number of interfaces in one file. More are an error, so that a hostile file cannot cause
/// unbounded allocation.
pub const MAX_INTERFACES: usize = 8192;

/// Bytes of text (names, descriptions, comments) kept of one file's interfaces and section headers. Further texts are left out
/// and counted, so that a small compressed file cannot fill the memory.
pub const MAX_TEXT: usize = 1 << 20;

/// Formats of records: the two families of capture files, and formats that only exist in memory or in temporary files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// The classic format of libpcap.
    Pcap,
    /// The pcapng format, made of blocks.
    Pcapng,
    /// A block of a packet socket's ring in memory, as the kernel wrote it.
    Ring,
    /// A burst of packets in the [`slots`] of a memory area.
    Slots,
    /// Packets of several sources in one order, see [`spool`].
    Spool,
}

/// Direction of a packet at its interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The interface received it.
    In,
    /// The interface sent it.
    Out,
}

impl Direction {
    /// The other direction.
    pub fn opposite(self) -> Self {
        if self == Self::In {
            Self::Out
        } else {
            Self::In
        }
    }
}

/// Bytes of the records of a piece of a source.
#[derive(Clone, Copy, Debug)]
pub enum Bytes<'a> {
    /// Records back to back; their offsets are into the slice.
    Slice(&'a [u8]),
    /// Packets that each lie in a slot of their own, for [`Format::Slots`].
    Slots(slots::Slots<'a>),
}

impl<'a> Bytes<'a> {
    /// Upper limit of record offsets: the number of bytes of a slice, or of packets of a burst.
    pub fn len(self) -> usize {
        match self {
            Self::Slice(bytes) => bytes.len(),
            Self::Slots(slots) => slots.frames.len(),
        }
    }

    /// Whether there are no records.
    pub fn is_empty(self) -> bool {
        self.len() == 0
    }

    /// The slice of back-to-back records; empty for slots.
    #[inline]
    pub fn slice(self) -> &'a [u8] {
        match self {
            Self::Slice(bytes) => bytes,
            Self::Slots(_) => &[],
        }
    }
}

impl<'a> From<&'a [u8]> for Bytes<'a> {
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        Self::Slice(bytes)
    }
}

impl<'a> From<&'a Vec<u8>> for Bytes<'a> {
    fn from(bytes: &'a Vec<u8>) -> Self {
        Self::Slice(bytes)
    }
}

impl<'a, const N: usize> From<&'a [u8; N]> for Bytes<'a> {
    fn from(bytes: &'a [u8; N]) -> Self {
        Self::Slice(bytes)
    }
}

impl<'a> From<slots::Slots<'a>> for Bytes<'a> {
    fn from(slots: slots::Slots<'a>) -> Self {
        Self::Slots(slots)
    }
}

/// Description of the interface of a packet: the file header of a pcap, or an Interface Description Block.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Interface {
    /// Link type: the meaning of the first byte of a frame.
    pub link: LinkType,
    /// Snap length, bytes, as stored; 0 means no limit.
    pub snaplen: u32,
    /// Unit of the stored timestamps.
    pub resolution: Resolution,
    /// Seconds to add to every timestamp (`if_tsoffset`).
    pub offset_s: i64,
    /// Name of the interface (`if_name`).
    pub name: Option<String>,
    /// Description of the interface (`if_description`).
    pub description: Option<String>,
    /// Comments of the block (`opt_comment`).
    pub comments: Vec<String>,
    /// Expression of libpcap that the packets were chosen by (`if_filter`).
    pub filter: Option<String>,
    /// Further options, which copies keep.
    pub options: Vec<InterfaceOption>,
}

impl Interface {
    /// An interface with nothing but a link type, a snap length and a resolution, as a pcap file has.
    pub fn plain(link: LinkType, snaplen: u32, resolution: Resolution) -> Self {
        Self {
            link,
            snaplen,
            resolution,
            offset_s: 0,
            name: None,
            description: None,
            comments: Vec::new(),
            filter: None,
            options: Vec::new(),
        }
    }

    /// Whether two interfaces are equal; of those without texts and options, as pcap files have, only the numbers are compared.
    #[inline]
    pub fn is_same(&self, other: &Self) -> bool {
        let numbers = |it: &Self| (it.link, it.snaplen, it.resolution, it.offset_s);
        numbers(self) == numbers(other)
            && (self.has_only_numbers() && other.has_only_numbers() || self == other)
    }

    #[inline]
    fn has_only_numbers(&self) -> bool {
        let Self {
            name,
            description,
            comments,
            filter,
            options,
            ..
        } = self;
        name.is_none()
            && description.is_none()
            && filter.is_none()
            && comments.is_empty()
            && options.is_empty()
    }

    /// Returns the interface without its texts, and without options other than its speed and the length of the check sequence of its
    /// frames: all others may tell whose interface it is.
    #[must_use]
    pub fn without_texts(&self) -> Self {
        const NUMBERS: [u16; 4] = [8, 13, 16, 17];
        let numbers = self
            .options
            .iter()
            .filter(|option| NUMBERS.contains(&option.code));
        Self {
            options: numbers.cloned().collect(),
            offset_s: self.offset_s,
            ..Self::plain(self.link, self.snaplen, self.resolution)
        }
    }

    /// Bytes of all texts and options of the interface.
    fn text_len(&self) -> usize {
        let texts = self
            .name
            .iter()
            .chain(&self.description)
            .chain(&self.comments)
            .chain(&self.filter);
        texts.map(String::len).sum::<usize>()
            + self
                .options
                .iter()
                .map(|option| option.value.len())
                .sum::<usize>()
    }

    /// Drops the texts and options, and returns their number.
    fn drop_texts(&mut self) -> u64 {
        let texts = [&mut self.name, &mut self.description, &mut self.filter]
            .map(|text| text.take().iter().len());
        let lists = self.comments.len() + self.options.len();
        self.comments = Vec::new();
        self.options = Vec::new();
        (texts.iter().sum::<usize>() + lists) as u64
    }

    /// Returns the parts of the choice of the interface's packets, in words: the filter, a snap length if it cut packets, comments that
    /// begin with [`HOLDS_ONLY`].
    pub fn holds_only(&self, has_cut: bool) -> Vec<String> {
        let is_cut = has_cut && self.snaplen != 0 && self.snaplen < WHOLE;
        let cut = is_cut.then(|| format!("{} bytes of each packet", self.snaplen));
        let comments = self
            .comments
            .iter()
            .filter_map(|comment| comment.strip_prefix(HOLDS_ONLY));
        self.filter
            .iter()
            .cloned()
            .chain(cut)
            .chain(comments.map(str::to_owned))
            .collect()
    }

    /// Number of options in addition to the texts: a filter counts as one.
    pub fn option_count(&self) -> u64 {
        (self.filter.iter().len() + self.options.len()) as u64
    }

    /// Largest captured length of a record of this interface, bytes. The limit is the snap length (at most 128 MiB), but never
    /// less than libpcap's maximum, because some files have a wrong snap length.
    pub fn max_captured(&self) -> u32 {
        max_snaplen(self.link).max(self.snaplen.min(128 << 20))
    }
}

/// All that a reader must know to read the next record.
///
/// A pcap file has one layout; in a pcapng file each Section Header and each Interface Description Block makes a new one.
/// Equal interfaces of several sections share one place in [`Layout::interfaces`].
///
/// **Cost** of a clone: a few atomic updates, and four bytes for each interface of the current section. Texts and interfaces
/// are shared. A layout holds at most [`MAX_INTERFACES`] interfaces and [`MAX_TEXT`] bytes of text.
#[derive(Clone, Debug)]
pub struct Layout {
    /// Format of the records.
    pub format: Format,
    /// Byte order of the current section.
    pub big_endian: bool,
    /// All distinct interfaces read so far; `Frame::interface` indexes this table.
    pub interfaces: List<Interface>,
    /// Index into `interfaces` of each interface id of the current section.
    section: Vec<u32>,
    /// Sections begun so far (1 for pcap).
    pub sections: u32,
    /// Texts of the section headers: `(option name, text)`, the first 256.
    pub notes: List<(&'static str, String)>,
    /// Number of texts of interfaces and sections left out, because only [`MAX_TEXT`] bytes are kept.
    pub texts_left_out: u64,
    /// Blocks about packets that follow them; copies need them. At most 4096, of 32 MiB in
    /// all.
    pub carried: List<Arc<CarriedBlock>>,
    /// Bytes of these blocks.
    carried_bytes: usize,
    /// Blocks that copies would need, and that could not be kept.
    pub blocks_left_out: carried::LeftOut,
    /// Bytes of text kept.
    text: usize,
    places: Places,
    /// pcap: storage order of the two length fields (old versions).
    lengths: Lengths,
}

/// Index of each interface in [`Layout::interfaces`], by its hash; shared by all copies of a layout.
#[derive(Clone, Debug, Default)]
struct Places {
    hasher: RandomState,
    by_hash: Arc<Mutex<HashMap<u64, u32>>>,
}

/// Reason for a record, or a file header, that cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The input is empty.
    #[error("the file is empty")]
    Empty,
    /// The bytes end inside a header.
    #[error("the file ends inside {what}: {have} of {need} bytes are there")]
    ShortHeader {
        /// Name of the header.
        what: &'static str,
        /// Bytes left.
        have: u64,
        /// Bytes needed.
        need: u64,
    },
    /// The bytes end inside a packet or a block.
    #[error("the file ends inside {what}: it claims {claims} bytes, {have} are there")]
    ShortData {
        /// Name of the part.
        what: &'static str,
        /// Bytes claimed.
        claims: u64,
        /// Bytes left.
        have: u64,
    },
    /// A record claims more bytes than any reader accepts.
    #[error("record claims {claims} bytes, the file's snap length is {snaplen}")]
    AbsurdLength {
        /// Bytes claimed.
        claims: u32,
        /// The file's snap length.
        snaplen: u32,
    },
    /// The length of a pcapng block is impossible.
    #[error("block of type {kind:#010x} claims a total length of {claims} bytes, {why}")]
    BlockLength {
        /// Block type.
        kind: u32,
        /// Total length claimed.
        claims: u32,
        /// Reason.
        why: &'static str,
    },
    /// The two lengths of a pcapng block differ.
    #[error("block of type {kind:#010x} says {head} bytes at its start and {tail} at its end")]
    Trailer {
        /// Block type.
        kind: u32,
        /// Length at the start.
        head: u32,
        /// Length at the end.
        tail: u32,
    },
    /// A packet is larger than the block that holds it.
    #[error("packet claims {claims} bytes, its block has room for {room}")]
    PacketOverrun {
        /// Captured length claimed.
        claims: u32,
        /// Bytes in the block for it.
        room: u32,
    },
    /// A packet names an interface that no block described.
    #[error("packet names interface {id}, the section has described {count}")]
    UnknownInterface {
        /// Interface id.
        id: u32,
        /// Interfaces of the section.
        count: u32,
    },
    /// A Section Header Block without a byte order mark.
    #[error("section header with byte order mark {0:#010x}, which is neither byte order")]
    ByteOrder(u32),
    /// An undefined version of the format.
    #[error("{format} version {major}.{minor}, which is not supported (known: {known})")]
    Version {
        /// Name of the format.
        format: &'static str,
        /// Major version.
        major: u16,
        /// Minor version.
        minor: u16,
        /// The versions that are read.
        known: &'static str,
    },
    /// More interfaces than [`MAX_INTERFACES`].
    #[error("more than {MAX_INTERFACES} interfaces")]
    TooManyInterfaces,
    /// A link type that does not fit 16 bits.
    #[error("link type {0}, which no capture file may have")]
    LinkType(u32),
    /// The bytes are not a capture file.
    #[error("not a pcap or pcapng file (it begins with {})", beginning(*.0))]
    Magic([u8; 4]),
    /// A block of the kernel's ring is impossible.
    #[error("the kernel's ring is damaged: {0}")]
    Ring(&'static str),
    /// A known format that is not read.
    #[error("{0}")]
    Known(&'static str),
}

/// The first bytes of a file as text, if they are letters, else as numbers.
fn beginning(bytes: [u8; 4]) -> String {
    match std::str::from_utf8(&bytes) {
        Ok(text) if bytes.iter().all(|byte| (b' '..=b'~').contains(byte)) => format!("\"{text}\""),
        _ => {
            let [a, b, c, d] = bytes;
            format!("bytes {a:02x} {b:02x} {c:02x} {d:02x}")
        }
    }
}

/// Reason for a cursor to stop before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The cursor is at or after its end, on a record boundary.
    End,
    /// The visitor wants no more frames.
    Enough,
    /// The record at the cursor's position needs this many bytes from there, and the slice holds fewer.
    NeedMore(u64),
    /// A block that changes the layout is at the cursor's position: [`Layout::apply`] it.
    Layout,
    /// The record at the cursor's position cannot be read.
    Fault(Fault),
}

/// A record taken apart: the frame and its time.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Time of capture, ns since the Unix epoch; `None` for a Simple Packet Block.
    pub time_ns: Option<i64>,
    /// The frame.
    pub frame: crate::Frame<'a>,
    /// Options of the packet, for copies.
    pub options: PacketOptions<'a>,
}

/// Interface statistics of a capture file, about the capture that wrote the file. Later statistics for the same interface of
/// the same section replace earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceStats {
    /// Number of the section, from 1 on.
    pub section: u32,
    /// Number of the interface in its section, from 0 on.
    pub id: u32,
    /// Index among [`Layout::interfaces`], which equal interfaces of a section share.
    pub interface: u32,
    /// Counts of the interface.
    pub counts: Statistics,
}

/// Contents of a record in addition to packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Noted {
    /// Statistics of an interface.
    Statistics(InterfaceStats),
    /// Number of packets that were lost before a packet, by its options.
    Dropped(u64),
    /// A block that a copy does not keep.
    LeftOut(BlockKind),
}

/// Counts of a capture at an interface; `None` for counts that its file does not hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Time at which the counts were taken, ns since the Unix epoch.
    pub time_ns: i64,
    /// Packets that reached the interface.
    pub received: Option<u64>,
    /// Packets for which the interface had no room.
    pub dropped_by_interface: Option<u64>,
    /// Packets for which the system had no room.
    pub dropped_by_system: Option<u64>,
    /// Packets that were delivered to the capturing program.
    pub delivered: Option<u64>,
    /// Time from which on the packets were counted, ns since the Unix epoch.
    pub start_ns: Option<i64>,
    /// Time at which the counting ended; `None` while it goes on, or if nothing tells it.
    pub end_ns: Option<i64>,
}

impl Statistics {
    /// Packets for which the interface or the system had no room; sums saturate.
    pub fn dropped(&self) -> u64 {
        self.dropped_by_interface
            .unwrap_or(0)
            .saturating_add(self.dropped_by_system.unwrap_or(0))
    }

    /// Whether lost packets were counted.
    pub fn counts_losses(&self) -> bool {
        self.dropped_by_interface
            .or(self.dropped_by_system)
            .is_some()
    }

    /// Counts between earlier counts of the same capture and these.
    pub fn since(&self, earlier: &Self) -> Self {
        let behind = |now: Option<u64>, before: Option<u64>| {
            now.map(|now| now.saturating_sub(before.unwrap_or(0)))
        };
        Self {
            received: behind(self.received, earlier.received),
            dropped_by_interface: behind(self.dropped_by_interface, earlier.dropped_by_interface),
            dropped_by_system: behind(self.dropped_by_system, earlier.dropped_by_system),
            delivered: behind(self.delivered, earlier.delivered),
            start_ns: Some(earlier.time_ns),
            ..*self
        }
    }

    /// Whether a count so far is the last one that the capture left.
    pub fn is_unended(&self) -> bool {
        self.start_ns.is_some() && self.end_ns.is_none()
    }

    /// Adds the counts of another section or another queue. The later time is kept, and the longer time of counting; sums saturate.
    pub fn add(&mut self, other: &Self) {
        let sum = |a: Option<u64>, b: Option<u64>| match (a, b) {
            (Some(a), Some(b)) => Some(a.saturating_add(b)),
            (one, other) => one.or(other),
        };
        self.time_ns = self.time_ns.max(other.time_ns);
        self.start_ns = [self.start_ns, other.start_ns].into_iter().flatten().min();
        self.end_ns = self.end_ns.max(other.end_ns);
        self.received = sum(self.received, other.received);
        self.dropped_by_interface = sum(self.dropped_by_interface, other.dropped_by_interface);
        self.dropped_by_system = sum(self.dropped_by_system, other.dropped_by_system);
        self.delivered = sum(self.delivered, other.delivered);
    }
}

impl Layout {
    /// Reads a file's header: the first `buf.len()` bytes of the file, `eof` if there are no more.
    ///
    /// Returns the layout and the offset of the first record. `Err(Stop::NeedMore(n))` asks for the first n bytes.
    pub fn read(buf: &[u8], eof: bool) -> Result<(Self, usize), Stop> {
        if buf.is_empty() && eof {
            return Err(Stop::Fault(Fault::Empty));
        }
        let Some(head) = buf.first_chunk::<4>() else {
            return Err(short("the file header", buf, 0, 24, eof));
        };
        match magic::recognise(head, buf) {
            magic::Magic::Pcap {
                big_endian,
                resolution,
            } => pcap::read_header(buf, eof, big_endian, resolution),
            magic::Magic::Pcapng => {
                let mut layout = Self::empty(Format::Pcapng);
                let next = layout.apply(buf, 0, eof)?;
                Ok((layout, next))
            }
            magic::Magic::Known(name) => Err(Stop::Fault(Fault::Known(name))),
            // A pipe may deliver only a few bytes first, and some formats have longer magic numbers.
            magic::Magic::Unknown if buf.len() < magic::MAX_MAGIC && !eof => {
                Err(Stop::NeedMore(magic::MAX_MAGIC as u64))
            }
            magic::Magic::Unknown => Err(Stop::Fault(Fault::Magic(*head))),
        }
    }

    /// The layout of the blocks of a packet socket's ring (TPACKET_V3), all of one interface. The interface is in the table
    /// twice: once for received and once for sent packets. There is no header to read.
    pub fn ring(interface: Interface) -> Self {
        Self::in_memory(Format::Ring, vec![interface.clone(), interface])
    }

    /// Returns the layout without the texts of its interfaces and sections, and without blocks about packets.
    #[must_use]
    pub fn without_texts(&self) -> Self {
        Self {
            interfaces: self
                .interfaces
                .iter()
                .map(Interface::without_texts)
                .collect(),
            notes: List::default(),
            carried: List::default(),
            ..self.clone()
        }
    }

    /// Direction of the packets of the interface at this index of the table, if all packets of it have one direction.
    pub fn direction(&self, interface: usize) -> Option<Direction> {
        let link = self.interfaces.get(interface)?.link;
        match (self.format, interface) {
            // In a capture of all interfaces, the direction is in the link header.
            (Format::Ring, _) if link == LinkType::LINUX_SLL2 => None,
            (Format::Ring, ring::OUT) => Some(Direction::Out),
            (Format::Ring | Format::Slots, _) => Some(Direction::In),
            (Format::Pcap | Format::Pcapng | Format::Spool, _) => None,
        }
    }

    /// The layout of bursts of packets in the [`slots`] of a memory area, all of one interface. There is no header to read.
    pub fn slots(interface: Interface) -> Self {
        Self::in_memory(Format::Slots, vec![interface])
    }

    /// The layout of packets in [`spool`] form, of any of these interfaces. There is no header to read.
    pub fn spool(interfaces: Vec<Interface>) -> Self {
        Self::in_memory(Format::Spool, interfaces)
    }

    fn in_memory(format: Format, interfaces: Vec<Interface>) -> Self {
        Self::of(
            format,
            cfg!(target_endian = "big"),
            interfaces,
            Lengths::Normal,
        )
    }

    /// The layout of a source of one section with these interfaces.
    fn of(format: Format, big_endian: bool, interfaces: Vec<Interface>, lengths: Lengths) -> Self {
        let section = (0..interfaces.len() as u32).collect();
        let interfaces = interfaces.into_iter().collect();
        Self {
            big_endian,
            interfaces,
            section,
            sections: 1,
            lengths,
            ..Self::empty(format)
        }
    }

    /// The layout before a header has been read.
    fn empty(format: Format) -> Self {
        Self {
            format,
            big_endian: false,
            interfaces: List::default(),
            section: Vec::new(),
            sections: 0,
            notes: List::default(),
            texts_left_out: 0,
            carried: List::default(),
            carried_bytes: 0,
            blocks_left_out: carried::LeftOut::default(),
            text: 0,
            places: Places::default(),
            lengths: Lengths::Normal,
        }
    }

    /// The index of an equal interface, if there is one.
    fn place(&self, interface: &Interface) -> Option<u32> {
        let hash = self.places.hasher.hash_one(interface);
        let known = self
            .places
            .by_hash
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(&hash)
            .copied()?;
        // Another copy of the layout may have another interface at this index.
        (self.interfaces.get(known as usize) == Some(interface)).then_some(known)
    }

    /// Adds an interface to the table, unless an equal one is there, and returns its index.
    pub fn describe(&mut self, mut interface: Interface) -> Result<u32, Fault> {
        let mut place = self.place(&interface);
        if place.is_none() && self.text + interface.text_len() > MAX_TEXT {
            self.texts_left_out += interface.drop_texts();
            place = self.place(&interface);
        }
        if let Some(place) = place {
            return Ok(place);
        }
        if self.interfaces.len() >= MAX_INTERFACES {
            return Err(Fault::TooManyInterfaces);
        }
        let place = self.interfaces.len() as u32;
        let hash = self.places.hasher.hash_one(&interface);
        self.places
            .by_hash
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(hash, place);
        self.text += interface.text_len();
        self.interfaces.push(interface);
        Ok(place)
    }

    /// Keeps texts of sections and blocks of another layout that are not here yet, as far as there is room for them.
    pub fn carry(&mut self, other: &Self) {
        other
            .notes
            .iter()
            .for_each(|(name, text)| self.note(name, text.clone()));
        for block in other.carried.iter() {
            let is_known = self.carried.iter().any(|known| Arc::ptr_eq(known, block));
            if !is_known && self.has_room(block.bytes.len()) {
                self.keep(Arc::clone(block));
            }
        }
    }

    /// Whether there is room for a block of this many bytes.
    fn has_room(&self, len: usize) -> bool {
        self.carried.len() < carried::MOST
            && self.carried_bytes.saturating_add(len) <= carried::MOST_BYTES
    }

    fn keep(&mut self, block: Arc<CarriedBlock>) {
        self.carried_bytes += block.bytes.len();
        self.carried.push(block);
    }

    /// The statistics in the record at `pos`, which a walk has reported as a note. `None` if the record holds none.
    pub fn interface_stats(&self, buf: &[u8], pos: usize) -> Option<InterfaceStats> {
        match self.noted(buf, pos) {
            Some(Noted::Statistics(stats)) => Some(stats),
            _ => None,
        }
    }

    /// Returns the comments of the statistics at `pos`, which a walk has reported as a note.
    ///
    /// At most 16 of at most 4 KiB each, since a hostile file may have any number of them.
    pub fn statistics_comments(&self, buf: &[u8], pos: usize) -> Vec<String> {
        if self.format == Format::Pcapng {
            pcapng::statistics_comments(self, buf, pos)
        } else {
            Vec::new()
        }
    }

    /// Returns what the record at `pos` says in addition to packets, which a walk has reported as a
    /// note.
    pub fn noted(&self, buf: &[u8], pos: usize) -> Option<Noted> {
        if self.format == Format::Pcapng {
            pcapng::noted(self, buf, pos)
        } else {
            None
        }
    }

    /// Keeps a text of a section header.
    fn note(&mut self, name: &'static str, text: String) {
        /// Largest number of notes kept.
        const MOST: usize = 256;
        if self
            .notes
            .iter()
            .any(|known| known.0 == name && known.1 == text)
        {
            return;
        }
        if self.notes.len() >= MOST || self.text + text.len() > MAX_TEXT {
            self.texts_left_out += 1;
            return;
        }
        self.text += text.len();
        self.notes.push((name, text));
    }

    /// Applies the layout block at `pos` (where a cursor stopped with [`Stop::Layout`]) and returns
    /// the offset after the block.
    pub fn apply(&mut self, buf: &[u8], pos: usize, eof: bool) -> Result<usize, Stop> {
        pcapng::apply(self, buf, pos, eof)
    }

    /// Place in [`Layout::interfaces`] of the interface with this id in the current section.
    #[inline]
    pub fn interface_of(&self, id: u32) -> Option<u32> {
        self.section.get(id as usize).copied()
    }

    /// Whether a block that changes the layout begins at `pos`.
    pub fn is_layout_block(&self, buf: &[u8], pos: usize) -> bool {
        self.format == Format::Pcapng && pcapng::is_layout_block(self, buf, pos)
    }

    /// Takes apart the packet record at `pos`, which a cursor has already passed.
    pub fn record<'a>(&self, bytes: impl Into<Bytes<'a>>, pos: usize) -> Option<Record<'a>> {
        let mut found = None;
        self.records(bytes, &[pos as u32], |_, record| found = record);
        found
    }

    /// Whether timestamps of this layout may lie outside the representable range: those of pcapng
    /// have 64 bits, and a spool keeps any. The 32 bits of seconds of the other formats end in
    /// 2106.
    pub fn may_clamp(&self) -> bool {
        matches!(self.format, Format::Pcapng | Format::Spool)
    }

    /// Takes apart many records: calls `each` with the index of each offset in `at`, and its record.
    #[inline]
    pub fn records<'a>(
        &self,
        bytes: impl Into<Bytes<'a>>,
        at: &[u32],
        mut each: impl FnMut(usize, Option<Record<'a>>),
    ) {
        let bytes = bytes.into();
        let buf = bytes.slice();
        macro_rules! with {
            ($codec:expr) => {{
                let codec = $codec;
                at.iter()
                    .enumerate()
                    .for_each(|(i, &pos)| each(i, codec.record(buf, pos as usize)))
            }};
        }
        match (self.format, self.big_endian) {
            (Format::Pcap, false) => with!(pcap::Codec::<false>::new(self, false)),
            (Format::Pcap, true) => with!(pcap::Codec::<true>::new(self, false)),
            (Format::Pcapng, false) => with!(pcapng::Codec::<false>::new(self, false)),
            (Format::Pcapng, true) => with!(pcapng::Codec::<true>::new(self, false)),
            (Format::Ring, _) => with!(ring::Codec),
            (Format::Slots, _) => with!(slots::Codec::new(bytes)),
            (Format::Spool, _) => with!(spool::Codec::new(self, true)),
        }
    }
}

/// The stop for bytes that end too early: either more bytes are needed, or the file is cut.
#[inline(never)]
#[cold]
fn short(what: &'static str, buf: &[u8], pos: usize, need: u64, eof: bool) -> Stop {
    let have = buf.len().saturating_sub(pos) as u64;
    if eof {
        Stop::Fault(Fault::ShortHeader { what, have, need })
    } else {
        Stop::NeedMore(need)
    }
}
