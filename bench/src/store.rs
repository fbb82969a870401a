//! The packet store: writing and scanning the ring in memory, writing to disk, and queries.

mod disk;
mod query;
mod ring;

use crate::Size;
use crate::report::Report;
use std::path::Path;
use weir_generator::{FRAME_MAX, Generator, Profile, Sizes};
use weir_memory::advise_huge;
use weir_packet::savefile::{Interface, Record, Resolution};
use weir_packet::{Frame, LinkType};
use weir_store::record::HEADER;

/// Columns of the raw data.
pub const RAW: &str = "section,what,sizes,round,wall_s,cpu_s,packets,bytes";

/// Runs all parts; `bytes` of packets are recorded on disk.
pub fn run(
    binary: &Path,
    size: Size,
    rounds: usize,
    bytes: Option<u64>,
    data: &Path,
    report: &mut Report,
) -> anyhow::Result<()> {
    ring::run(size, rounds, report)?;
    disk::run(size, rounds, data, report)?;
    query::run(binary, size, rounds, bytes, data, report)?;
    report.bars();
    Ok(())
}

/// Records back to back in memory: for each packet a header of 16 bytes, which names its time and length, and the frame.
#[derive(Debug)]
struct Source {
    bytes: Vec<u8>,
    /// Place of each record.
    places: Vec<usize>,
}

impl Source {
    /// Generated packets, as many as have room in `bytes`.
    fn new(sizes: Sizes, bytes: usize) -> anyhow::Result<Self> {
        let mut generator = Generator::new(&Profile {
            sizes,
            packets: u64::MAX,
            flows: 1_000_000,
            ..Profile::default()
        })?;
        let mut source = Self {
            bytes: Vec::with_capacity(bytes),
            places: Vec::new(),
        };
        // As the buffers of the recorder: a disk reads huge pages faster.
        advise_huge(source.bytes.spare_capacity_mut());
        let mut frame = [0; FRAME_MAX];
        while let Some(made) = generator.next(&mut frame) {
            if source.bytes.len() + HEADER + made.len > bytes {
                break;
            }
            source.places.push(source.bytes.len());
            source.bytes.extend_from_slice(&made.time_ns.to_le_bytes());
            source
                .bytes
                .extend_from_slice(&(made.len as u64).to_le_bytes());
            source.bytes.extend_from_slice(&frame[..made.len]);
        }
        Ok(source)
    }

    fn len(&self) -> usize {
        self.places.len()
    }

    /// Header and frame of a packet.
    #[inline]
    fn record(&self, index: usize) -> &[u8] {
        let end = self
            .places
            .get(index + 1)
            .copied()
            .unwrap_or(self.bytes.len());
        &self.bytes[self.places[index]..end]
    }

    /// A packet, read from its record.
    #[inline]
    fn packet(&self, index: usize) -> Record<'_> {
        let (time, rest) = self
            .record(index)
            .split_first_chunk::<8>()
            .expect("a record has a header");
        let data = &rest[8..];
        let frame = Frame {
            data,
            wire_len: data.len() as u32,
            interface: 0,
        };
        Record {
            time_ns: Some(i64::from_le_bytes(*time)),
            frame,
            options: Default::default(),
        }
    }
}

/// The interface of all packets.
fn interface() -> Interface {
    Interface::plain(LinkType::ETHERNET, FRAME_MAX as u32, Resolution::NANOSECOND)
}

/// A number that depends on time, length and both ends of a packet. The sum over packets tells whether the same ones are there.
#[inline]
fn mark(record: &Record<'_>) -> u64 {
    let data = record.frame.data;
    let word = |bytes: Option<&[u8; 8]>| bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes));
    let ends = word(data.first_chunk()).rotate_left(17) ^ word(data.last_chunk());
    let time = record.time_ns.unwrap_or(0) as u64;
    (ends ^ time.rotate_left(32) ^ data.len() as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Median, least and greatest of ratios: `1.23x (1.10 .. 1.31)`.
fn ratios(values: &[f64]) -> (f64, String) {
    let middle = crate::rivals::median(values.iter().copied());
    let (low, high) = crate::clock::range(values);
    (middle, format!("{middle:.2}x ({low:.2} .. {high:.2})"))
}
