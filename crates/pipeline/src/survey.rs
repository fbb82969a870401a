//! Survey of the contents of a capture file: counts, bytes, times, sizes.

use crate::{Consumer, PlanError, With};
use std::collections::BTreeMap;
use weir_measure::{Sizes, size_class};
use weir_packet::Frame;
use weir_packet::savefile::Layout;
use weir_packet::savefile::walk::is_longer;
use weir_packet::time::Stamp;

/// Consumer that makes a survey of a source.
#[derive(Clone, Copy, Debug, Default)]
pub struct Survey;

/// Findings in a piece of the source.
#[derive(Clone, Debug, Default)]
pub struct Surveyed {
    /// Number of packets.
    pub packets: u64,
    /// Wire bytes of the packets.
    pub bytes: u64,
    /// Captured bytes of the packets.
    pub captured_bytes: u64,
    /// Packets whose captured length is below their wire length.
    pub cut: u64,
    /// Packets whose captured length is above their wire length.
    pub longer: u64,
    /// Packets longer than the snap length of their interface.
    pub beyond_snaplen: u64,
    /// Smallest and largest wire length, bytes.
    pub sizes: Option<(u32, u32)>,
    /// Packets per size class.
    pub classes: Sizes,
    /// Time of the first and of the last packet in the file, ns.
    pub in_file: Option<(i64, i64)>,
    /// Earliest and latest time, ns.
    pub times: Option<(i64, i64)>,
    /// Packets whose time lies before the time of the previous packet.
    pub backwards: u64,
    /// Packets with a time outside the representable range; the nearest representable time is used instead.
    pub clamped: u64,
    /// Packets without a time (Simple Packet Blocks).
    pub untimed: u64,
    /// Packets of each interface that has packets.
    pub by_interface: BTreeMap<u32, u64>,
}

impl Surveyed {
    fn time(&mut self, ns: i64) {
        let (first, last) = self.in_file.unwrap_or((ns, ns));
        self.backwards += u64::from(ns < last);
        self.clamped += u64::from(Stamp(ns).is_clamped());
        self.in_file = Some((first, ns));
        let (earliest, latest) = self.times.unwrap_or((ns, ns));
        self.times = Some((earliest.min(ns), latest.max(ns)));
    }

    fn size(&mut self, wire_len: u32) {
        let (smallest, largest) = self.sizes.unwrap_or((wire_len, wire_len));
        self.sizes = Some((smallest.min(wire_len), largest.max(wire_len)));
        self.classes[size_class(wire_len)] += 1;
    }
}

impl Consumer for Survey {
    type Plan = ();
    type Part = Surveyed;

    fn plan(&self, _: &Layout, _: Option<&()>) -> Result<(), PlanError> {
        Ok(())
    }

    fn frames(&self, with: &With<'_, ()>, frames: &[Frame<'_>], part: &mut Surveyed) {
        for run in frames.chunk_by(|a, b| a.interface == b.interface) {
            *part.by_interface.entry(run[0].interface).or_default() += run.len() as u64;
            let snaplen = with.layout.interfaces[run[0].interface as usize].snaplen as usize;
            let beyond = |frame: &&Frame<'_>| snaplen != 0 && frame.data.len() > snaplen;
            part.beyond_snaplen += run.iter().filter(beyond).count() as u64;
        }
        for frame in frames {
            part.packets += 1;
            part.bytes += u64::from(frame.wire_len);
            part.captured_bytes += frame.data.len() as u64;
            part.cut += u64::from(frame.data.len() < frame.wire_len as usize);
            part.longer += u64::from(is_longer(frame));
            part.size(frame.wire_len);
        }
        with.layout.records(with.bytes, with.records, |_, record| {
            match record.and_then(|record| record.time_ns) {
                Some(ns) => part.time(ns),
                None => part.untimed += 1,
            }
        });
    }

    fn append(&self, part: &mut Surveyed, next: Surveyed) {
        part.packets += next.packets;
        part.bytes += next.bytes;
        part.captured_bytes += next.captured_bytes;
        part.cut += next.cut;
        part.longer += next.longer;
        part.beyond_snaplen += next.beyond_snaplen;
        part.backwards += next.backwards;
        part.clamped += next.clamped;
        part.untimed += next.untimed;
        for (class, more) in part.classes.iter_mut().zip(next.classes) {
            *class += more;
        }
        for (interface, more) in next.by_interface {
            *part.by_interface.entry(interface).or_default() += more;
        }
        if let (Some((_, last)), Some((first, _))) = (part.in_file, next.in_file) {
            part.backwards += u64::from(first < last);
        }
        part.in_file = ends(part.in_file, next.in_file);
        part.times = both(part.times, next.times, i64::min, i64::max);
        part.sizes = both(part.sizes, next.sizes, u32::min, u32::max);
    }
}

/// Consumer that finds the earliest and the latest time of a source, ns since 1970; `None` if no packet has a time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Times;

impl Consumer for Times {
    type Plan = ();
    type Part = Option<(i64, i64)>;

    fn plan(&self, _: &Layout, _: Option<&()>) -> Result<(), PlanError> {
        Ok(())
    }

    fn only_counts(&self) -> bool {
        true
    }

    fn frames(&self, with: &With<'_, ()>, _: &[Frame<'_>], part: &mut Option<(i64, i64)>) {
        with.layout.records(with.bytes, with.records, |_, record| {
            let time = record.and_then(|record| record.time_ns);
            *part = both(*part, time.map(|ns| (ns, ns)), i64::min, i64::max);
        });
    }

    fn append(&self, part: &mut Option<(i64, i64)>, next: Option<(i64, i64)>) {
        *part = both(*part, next, i64::min, i64::max);
    }
}

/// Returns the first time of `a` and the last time of `b`.
fn ends(a: Option<(i64, i64)>, b: Option<(i64, i64)>) -> Option<(i64, i64)> {
    match (a, b) {
        (Some((first, _)), Some((_, last))) => Some((first, last)),
        (one, other) => one.or(other),
    }
}

fn both<T: Copy>(
    a: Option<(T, T)>,
    b: Option<(T, T)>,
    low: fn(T, T) -> T,
    high: fn(T, T) -> T,
) -> Option<(T, T)> {
    match (a, b) {
        (Some(a), Some(b)) => Some((low(a.0, b.0), high(a.1, b.1))),
        (one, other) => one.or(other),
    }
}
