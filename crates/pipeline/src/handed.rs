//! Copies of the records of a delivery, because another process may change or cut a mapped file meanwhile.

use crate::Consumer;
use crate::reader::Delivery;
use weir_packet::Frame;
use weir_packet::savefile::Record;

/// Counts of the records of a delivery that were handed on, and of the records that were gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// Number of records taken.
    pub packets: u64,
    /// Wire bytes of the records taken.
    pub bytes: u64,
    /// Records that are no longer in the file, if any.
    pub gone: Option<Gone>,
}

/// Packets that a reader delivered, but that were no longer in the file at the time of their use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Number of packets.
    pub packets: u64,
    /// Offset of the first packet's record in the source.
    pub offset: u64,
    /// Whether a page of the file could not be read.
    pub unreadable: bool,
}

impl Gone {
    /// Returns the sum of both, or the only one present.
    pub fn both(one: Option<Self>, other: Option<Self>) -> Option<Self> {
        match (one, other) {
            (Some(a), Some(b)) => Some(Self {
                packets: a.packets + b.packets,
                offset: a.offset.min(b.offset),
                unreadable: a.unreadable || b.unreadable,
            }),
            (a, b) => a.or(b),
        }
    }
}

impl<C: Consumer> Delivery<C> {
    /// Hands the records at `records` (offsets, in order) to `each` until `each` fails, or until a record is no longer in the file.
    ///
    /// A frame of a mapped file is first copied to `scratch`, and `each` gets the copy, which no process can change. The check
    /// that the file still holds the frame follows the copy. **Cost**: the copy of a mapped frame; nothing for other sources.
    pub fn hand_on<E>(
        &self,
        records: &[u32],
        scratch: &mut Vec<u8>,
        mut each: impl FnMut(&Record<'_>) -> Result<(), E>,
    ) -> (Handed, Result<(), E>) {
        let view = &self.view;
        let (mut handed, mut result, mut ended) = (Handed::default(), Ok(()), false);
        self.current.layout.records(view.content(), records, |_, record| {
            if ended {
                return;
            }
            let record = record.filter(|record| {
                !view.is_mapped() || {
                    scratch.clear();
                    scratch.extend_from_slice(record.frame.data);
                    scratch.extend_from_slice(record.options.bytes);
                    view.is_intact(end_of_record(view.bytes(), record))
                }
            });
            let Some(Record { time_ns, mut frame, mut options }) = record else {
                ended = true;
                return;
            };
            if view.is_mapped() {
                (frame.data, options.bytes) = scratch.split_at(frame.data.len());
            }
            let wire_len = frame.wire_len;
            result = each(&Record { time_ns, frame, options });
            ended = result.is_err();
            handed.packets += u64::from(!ended);
            handed.bytes += if ended { 0 } else { u64::from(wire_len) };
        });
        if result.is_ok() {
            handed.gone = self.gone(records, handed.packets as usize);
        }
        (handed, result)
    }

    /// Returns the missing packets of `records`, of which the first `sound` are present.
    pub(crate) fn gone(&self, records: &[u32], sound: usize) -> Option<Gone> {
        let &first = records.get(sound)?;
        let packets = (records.len() - sound) as u64;
        Some(Gone { packets, offset: self.view.offset + u64::from(first), unreadable: self.view.fault().is_some() })
    }
}

/// Returns the offset in `bytes` of the end of the frame, which lies in `bytes`.
pub(crate) fn end_of(bytes: &[u8], frame: &Frame<'_>) -> usize {
    frame.data.as_ptr_range().end as usize - bytes.as_ptr() as usize
}

/// Returns the offset in `bytes` of the end of the frame and of the packet's options, which lie in `bytes`.
fn end_of_record(bytes: &[u8], record: &Record<'_>) -> usize {
    let options = record.options.bytes;
    let last = if options.is_empty() { record.frame.data } else { options };
    last.as_ptr_range().end as usize - bytes.as_ptr() as usize
}
