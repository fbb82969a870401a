//! Columns: one field of many packets, in arrays of the caller.

use crate::batches::Batch;
use weir_firewall::{Content, Fields, TcpFlags};
use weir_packet::flow::{Offsets, Parser};
use weir_packet::savefile::Record;

/// Number of packets whose fields are read before they are written to the columns.
const BLOCK: usize = 64;

/// An array for one field of packets, an element for each. Numbers are in native byte order;
/// addresses of IPv6 and mapped addresses in network order.
#[derive(Debug)]
pub enum Column<'a> {
    /// Time of capture, ns since 1970; `i64::MIN` without a timestamp.
    Time(&'a mut [i64]),
    /// Length on the wire, bytes.
    WireLength(&'a mut [u32]),
    /// Captured length, bytes.
    Captured(&'a mut [u32]),
    /// Index of the interface in its source.
    Interface(&'a mut [u32]),
    /// Version of IP: 4 or 6; 0 for all other frames.
    IpVersion(&'a mut [u8]),
    /// Source address of IPv4 as a number; 0 for all other frames.
    Source4(&'a mut [u32]),
    /// Destination address of IPv4 as a number; 0 for all other frames.
    Destination4(&'a mut [u32]),
    /// Source address: of IPv6, or of IPv4 as `::ffff:a.b.c.d`; zeros for all other frames.
    Source(&'a mut [[u8; 16]]),
    /// Destination address, like the source.
    Destination(&'a mut [[u8; 16]]),
    /// IP protocol of the transport; 255, which no protocol has, if it is unknown.
    Protocol(&'a mut [u8]),
    /// Source port; 0 without one.
    SourcePort(&'a mut [u16]),
    /// Destination port; 0 without one.
    DestinationPort(&'a mut [u16]),
    /// Flags of TCP; 0 for all other packets.
    TcpFlags(&'a mut [u8]),
    /// Identifier of the outermost VLAN tag; 65535 without one.
    Vlan(&'a mut [u16]),
    /// Offset of the IP header in the frame, bytes; -1 for frames without IP.
    NetworkOffset(&'a mut [i32]),
    /// Offset of the transport header in the frame, bytes; -1 if no byte of it was captured, and in fragments other than the first.
    TransportOffset(&'a mut [i32]),
    /// Offset of the payload of TCP, UDP, UDP-Lite, SCTP or DCCP in the frame, bytes; -1 if no byte of one was captured.
    PayloadOffset(&'a mut [i32]),
}

impl Column<'_> {
    /// Returns the number of elements.
    pub fn len(&self) -> usize {
        match self {
            Self::Time(to) => to.len(),
            Self::WireLength(to) | Self::Captured(to) | Self::Interface(to) => to.len(),
            Self::Source4(to) | Self::Destination4(to) => to.len(),
            Self::IpVersion(to) | Self::Protocol(to) | Self::TcpFlags(to) => to.len(),
            Self::Source(to) | Self::Destination(to) => to.len(),
            Self::SourcePort(to) | Self::DestinationPort(to) | Self::Vlan(to) => to.len(),
            Self::NetworkOffset(to) | Self::TransportOffset(to) | Self::PayloadOffset(to) => {
                to.len()
            }
        }
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the field is one of the headers, which have to be read for it.
    fn is_of_headers(&self) -> bool {
        let is_beside = matches!(
            self,
            Self::Time(_) | Self::WireLength(_) | Self::Captured(_) | Self::Interface(_)
        );
        !is_beside && !self.is_offset()
    }

    /// Whether the field is an offset of a header, which a walk has to find.
    fn is_offset(&self) -> bool {
        matches!(
            self,
            Self::NetworkOffset(_) | Self::TransportOffset(_) | Self::PayloadOffset(_)
        )
    }

    /// Writes the field of a block of packets from element `at` on.
    fn write(&mut self, at: usize, block: &Block) {
        fn put<T>(to: &mut [T], block: &Block, field: impl Fn(&About, &Fields) -> T) {
            for ((to, about), fields) in to.iter_mut().zip(&block.about).zip(&block.fields) {
                *to = field(about, fields);
            }
        }
        let to = at..at + block.len;
        match self {
            Self::Time(all) => put(&mut all[to], block, |about, _| about.time_ns),
            Self::WireLength(all) => put(&mut all[to], block, |about, _| about.wire_len),
            Self::Captured(all) => put(&mut all[to], block, |about, _| about.captured),
            Self::Interface(all) => put(&mut all[to], block, |about, _| about.interface),
            Self::IpVersion(all) => put(&mut all[to], block, |_, fields| version(fields)),
            Self::Source4(all) => put(&mut all[to], block, |_, fields| v4(fields, 0)),
            Self::Destination4(all) => put(&mut all[to], block, |_, fields| v4(fields, 1)),
            Self::Source(all) => put(&mut all[to], block, |_, fields| {
                mapped(fields, fields.src())
            }),
            Self::Destination(all) => put(&mut all[to], block, |_, fields| {
                mapped(fields, fields.dst())
            }),
            Self::Protocol(all) => {
                put(&mut all[to], block, |_, fields| {
                    if version(fields) == 0 {
                        255
                    } else {
                        fields.proto().unwrap_or(255)
                    }
                });
            }
            Self::SourcePort(all) => put(&mut all[to], block, |_, fields| {
                fields.ports().map_or(0, |ports| ports.0)
            }),
            Self::DestinationPort(all) => put(&mut all[to], block, |_, fields| {
                fields.ports().map_or(0, |ports| ports.1)
            }),
            Self::TcpFlags(all) => put(&mut all[to], block, |_, fields| match fields.flags() {
                TcpFlags::Known(flags) => flags,
                _ => 0,
            }),
            Self::Vlan(all) => put(&mut all[to], block, |_, fields| {
                fields.vlan().unwrap_or(u16::MAX)
            }),
            Self::NetworkOffset(all) => put_offsets(&mut all[to], block, |offsets| offsets.network),
            Self::TransportOffset(all) => {
                put_offsets(&mut all[to], block, |offsets| offsets.transport)
            }
            Self::PayloadOffset(all) => put_offsets(&mut all[to], block, |offsets| offsets.payload),
        }
    }
}

fn put_offsets(to: &mut [i32], block: &Block, which: impl Fn(&Offsets) -> i32) {
    for (to, offsets) in to.iter_mut().zip(&block.offsets) {
        *to = which(offsets);
    }
}

fn version(fields: &Fields) -> u8 {
    match fields.content() {
        Content::Ip | Content::Neighbors => 4 + 2 * u8::from(fields.is_v6()),
        _ => 0,
    }
}

fn v4(fields: &Fields, end: usize) -> u32 {
    if version(fields) == 4 {
        fields.v4()[end]
    } else {
        0
    }
}

fn mapped(fields: &Fields, address: u128) -> [u8; 16] {
    match version(fields) {
        4 => (address | 0xffff << 32).to_be_bytes(),
        6 => address.to_be_bytes(),
        _ => [0; 16],
    }
}

/// Figures of a record next to its frame.
#[derive(Clone, Copy, Debug)]
struct About {
    time_ns: i64,
    wire_len: u32,
    captured: u32,
    interface: u32,
}

/// Fields of some packets.
struct Block {
    len: usize,
    about: [About; BLOCK],
    fields: [Fields; BLOCK],
    offsets: [Offsets; BLOCK],
}

impl Batch {
    /// Writes fields of packets to `columns`: of the packets from number `first` on, or if
    /// `passed`, of those among them that passed the filter. Returns how many packets were written,
    /// as many as the shortest column holds, and the number of the packet after the last written
    /// packet.
    ///
    /// Fields are read from the outermost IP packet. A field that was not captured has the value
    /// that its [`Column`] names. **Cost**: each frame is read once for all columns of fields and
    /// once for all of offsets, and not at all for other columns. One allocation if only `passed`
    /// packets are wanted.
    pub fn fill(&self, first: usize, passed: bool, columns: &mut [Column<'_>]) -> (usize, usize) {
        let room = columns.iter().map(Column::len).min().unwrap_or(0);
        let all = self.records();
        let first = first.min(all.len());
        let (chosen, behind);
        let at = if passed {
            let mut numbers =
                (first..all.len()).filter(|&number| self.verdicts().get(number, 1) == 1);
            chosen = numbers
                .by_ref()
                .take(room)
                .map(|number| all[number])
                .collect::<Vec<u32>>();
            behind = numbers.next().unwrap_or(all.len());
            &chosen[..]
        } else {
            behind = all.len().min(first + room);
            &all[first..behind]
        };
        let reads = columns.iter().any(Column::is_of_headers);
        let links = self
            .layout()
            .interfaces
            .iter()
            .map(|interface| Parser::new(interface.link, false));
        let finds = columns.iter().any(Column::is_offset);
        let parsers: Vec<Option<Parser>> = if reads || finds {
            links.collect()
        } else {
            Vec::new()
        };
        let none = Fields::without_ip(Content::NonIp);
        let about = About {
            time_ns: i64::MIN,
            wire_len: 0,
            captured: 0,
            interface: 0,
        };
        let mut block = Block {
            len: 0,
            about: [about; BLOCK],
            fields: [none; BLOCK],
            offsets: [Offsets::NONE; BLOCK],
        };
        let mut written = 0;
        self.each_record(at, |record: Option<Record<'_>>| {
            let i = block.len;
            block.about[i] = record.as_ref().map_or(about, |record| About {
                time_ns: record.time_ns.unwrap_or(i64::MIN),
                wire_len: record.frame.wire_len,
                captured: record.frame.data.len() as u32,
                interface: record.frame.interface,
            });
            let parser = parsers
                .get(block.about[i].interface as usize)
                .and_then(Option::as_ref);
            let frame = record.map(|record| record.frame.data).zip(parser);
            if reads {
                match frame {
                    Some((frame, parser)) => block.fields[i].read(parser, frame),
                    None => block.fields[i] = none,
                }
            }
            if finds {
                block.offsets[i] =
                    frame.map_or(Offsets::NONE, |(frame, parser)| parser.offsets(frame));
            }
            block.len += 1;
            if block.len == BLOCK {
                columns
                    .iter_mut()
                    .for_each(|column| column.write(written, &block));
                written += block.len;
                block.len = 0;
            }
        });
        columns
            .iter_mut()
            .for_each(|column| column.write(written, &block));
        (written + block.len, behind)
    }
}
