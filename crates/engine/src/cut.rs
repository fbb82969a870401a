//! Ends of batches in front of a packet, for runs that end there.

use weir_pipeline::Delivery;
use weir_pipeline::bits::Bits;
use weir_pipeline::select::{Misfit, Selected, SplitSums};
use weir_pipeline::stages::Stages;

/// Packets that were taken out of a batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cut {
    /// Number of packets.
    pub packets: u64,
    /// Number of these packets with more bytes than on the wire.
    pub longer: u64,
}

/// Takes the packets from number `end` on out of a batch, and out of its sums.
#[cold]
pub(crate) fn cut(batch: &mut Delivery<Stages>, end: usize) -> Cut {
    let (part, layout) = (&mut batch.part, &batch.current.layout);
    let packets = part.records.len().saturating_sub(end);
    let behind = |mask: &Bits| mask.count_ones() - mask.count_before(end);
    let matched = if part.matched.is_empty() {
        &part.passed
    } else {
        &part.matched
    };
    let mut less = Selected {
        passed: behind(&part.passed),
        filtered: packets as u64 - behind(matched) - behind(&part.duplicates),
        controls: behind(&part.control),
        duplicates: behind(&part.duplicates),
        splits: vec![SplitSums::default(); part.splits.len()],
        ..Selected::default()
    };
    less.denied = behind(matched) - less.passed - less.controls;
    for (sums, mask) in less.splits.iter_mut().zip(&part.splits) {
        sums.passed = behind(mask);
    }
    let (misfits, mut longer) = (&mut part.selected.misfits, 0);
    layout.records(batch.view.content(), &part.records[end..], |i, record| {
        let (number, Some(record)) = (end + i, record) else {
            return;
        };
        let wire_len = record.frame.wire_len;
        longer += u64::from(record.frame.data.len() > wire_len as usize);
        if part.passed.has(number) {
            less.bytes += u64::from(wire_len);
        }
        for (sums, mask) in less.splits.iter_mut().zip(&part.splits) {
            sums.bytes += if mask.has(number) {
                u64::from(wire_len)
            } else {
                0
            };
        }
        let link = layout.interfaces[record.frame.interface as usize].link;
        // A split judges what the filter passes.
        let is_of = |misfit: &&mut Misfit| {
            misfit.link == link && (misfit.split.is_none() || matched.has(number))
        };
        misfits
            .iter_mut()
            .filter(is_of)
            .for_each(|misfit| misfit.packets = misfit.packets.saturating_sub(1));
    });
    misfits.retain(|misfit| misfit.packets > 0);
    part.selected.lessen(&less);
    part.records.truncate(end);
    let masks = [
        &mut part.passed,
        &mut part.matched,
        &mut part.control,
        &mut part.duplicates,
    ];
    masks
        .into_iter()
        .chain(&mut part.splits)
        .for_each(|mask| mask.truncate(end));
    Cut {
        packets: packets as u64,
        longer,
    }
}
