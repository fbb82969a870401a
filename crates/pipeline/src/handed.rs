//! Hands the records of a delivery on as copies: another process may change or cut a mapped file meanwhile.

use crate::Consumer;
use crate::reader::Delivery;
use weir_packet::Frame;
use weir_packet::savefile::Record;

/// How many records of a delivery were handed on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Handed {
    /// Records that were taken.
    pub packets: u64,
    /// Their wire bytes.
    pub bytes: u64,
    /// Records that are not in the file any more, if there are any.
    pub gone: Option<Gone>,
}

/// Packets that a reader has delivered, and that were not in the file any more when they were to be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone {
    /// Their number.
    pub packets: u64,
    /// Offset of the first one's record in the source.
    pub offset: u64,
    /// A page of the file could not be read.
    pub unreadable: bool,
}

impl Gone {
    /// Both together, where there are any.
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
    /// Hands the records at `records` (offsets, in order) to `each` until it fails, or until one is not in the file any more.
    ///
    /// A frame of a mapped file is first copied to `scratch`. What `each` sees are the bytes of the copy, which nobody changes,
    /// and the file still held them after they were copied. **Cost**: that copy; nothing for other sources.
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
                    view.is_intact(end_of(view.bytes(), &record.frame))
                }
            });
            let Some(Record { time_ns, mut frame }) = record else {
                ended = true;
                return;
            };
            if view.is_mapped() {
                frame.data = scratch;
            }
            let wire_len = frame.wire_len;
            result = each(&Record { time_ns, frame });
            ended = result.is_err();
            handed.packets += u64::from(!ended);
            handed.bytes += if ended { 0 } else { u64::from(wire_len) };
        });
        if result.is_ok() {
            handed.gone = self.gone(records, handed.packets as usize);
        }
        (handed, result)
    }

    /// What is gone of `records`, of which the first `sound` are there.
    pub(crate) fn gone(&self, records: &[u32], sound: usize) -> Option<Gone> {
        let &first = records.get(sound)?;
        let packets = (records.len() - sound) as u64;
        Some(Gone { packets, offset: self.view.offset + u64::from(first), unreadable: self.view.fault().is_some() })
    }
}

/// Offset in `bytes` behind the frame, which lies in them.
pub(crate) fn end_of(bytes: &[u8], frame: &Frame<'_>) -> usize {
    frame.data.as_ptr_range().end as usize - bytes.as_ptr() as usize
}
