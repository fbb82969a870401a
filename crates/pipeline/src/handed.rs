//! Copies of the records of a delivery, because another process may change or cut a mapped file meanwhile.

use crate::Consumer;
use crate::reader::Delivery;
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
        self.current
            .layout
            .records(view.content(), records, |_, record| {
                if ended {
                    return;
                }
                let Some(mut record) = record else {
                    ended = true;
                    return;
                };
                if view.is_mapped() {
                    scratch.clear();
                    scratch.extend_from_slice(record.frame.data);
                    let has_options = !record.options.bytes.is_empty();
                    let end = if has_options {
                        add_options(&record, scratch)
                    } else {
                        record.frame.data
                    };
                    if !view.is_intact(end_of(view.bytes(), end)) {
                        ended = true;
                        return;
                    }
                    let len = record.frame.data.len();
                    record.frame.data = scratch;
                    // Few packets have options: without them, nothing is split.
                    if has_options {
                        (record.frame.data, record.options.bytes) = scratch.split_at(len);
                    }
                }
                match each(&record) {
                    Ok(()) => {
                        handed.packets += 1;
                        handed.bytes += u64::from(record.frame.wire_len);
                    }
                    Err(error) => (ended, result) = (true, Err(error)),
                }
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
        Some(Gone {
            packets,
            offset: self.view.offset + u64::from(first),
            unreadable: self.view.fault().is_some(),
        })
    }
}

/// Returns the offset in `bytes` of the end of `part`, which lies in `bytes`.
pub(crate) fn end_of(bytes: &[u8], part: &[u8]) -> usize {
    part.as_ptr_range().end as usize - bytes.as_ptr() as usize
}

/// Copies the options of a packet behind its frame, and returns them.
#[cold]
fn add_options<'a>(record: &Record<'a>, scratch: &mut Vec<u8>) -> &'a [u8] {
    scratch.extend_from_slice(record.options.bytes);
    record.options.bytes
}
