//! Recovery: what an earlier recorder left is cut after its last good block, and gets an index.

use super::contents::Contents;
use super::file::{self, Disk, System};
use super::index::{Builder, Index, IndexDamage};
use super::name::{self, Segment};
use super::scan::{self, Scan};
use super::{Damage, Error, packets};
use std::io;
use std::path::{Path, PathBuf};
use weir_packet::Frame;
use weir_packet::savefile::Statistics;
use weir_packet::savefile::walk::Visit;

/// A segment that was not closed, or whose index was missing or damaged.
#[derive(Debug)]
pub struct Recovered {
    /// The segment.
    pub segment: Segment,
    /// Path of the segment, or of its compressed file.
    pub path: PathBuf,
    /// Bytes of the segment now; 0 if nothing was good, and the file was removed.
    pub kept_bytes: u64,
    /// Packets in them.
    pub kept_packets: u64,
    /// Bytes cut from the end.
    pub cut_bytes: u64,
    /// Reason of the cut, or of the first damage; `None` if all is good.
    pub damage: Option<Damage>,
    /// Places with damage that stay in the segment.
    pub damaged: u64,
    /// Reason why the old index was not used; `None` if there was none, or if it was good.
    pub index: Option<IndexDamage>,
    /// Whether there was an index.
    pub had_index: bool,
    /// Time of its last count of dropped packets, ns since 1970, if its recorder counted no more
    /// after it: it was killed.
    pub unended_ns: Option<i64>,
}

/// Recovery of a segment: what is done with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// A recorder begins: a segment without an index gets one, and is cut if it was not closed.
    Start,
    /// A segment without an index gets one, and nothing is cut.
    Keep,
    /// Any segment gets an index, and nothing is cut.
    Anew,
}

/// Segment of an earlier recorder, with its recovery.
#[derive(Debug, Default)]
pub(super) struct Found {
    /// Recovery; `None` if the segment has a valid index.
    pub(super) recovered: Option<Recovered>,
    /// Time of its last count of dropped packets, as [`Recovered::unended_ns`].
    pub(super) unended_ns: Option<i64>,
}

/// Time of the latest statistics in the head of an index, if their recorder counted no more after
/// them.
fn unended_ns(index: &Index) -> Option<i64> {
    let layout = packets::layout(&index.head)?;
    let mut latest = None;
    packets::statistics(&layout, &index.head, |stats, _| {
        take_latest(&mut latest, stats.counts);
    });
    let unended = latest.filter(Statistics::is_unended);
    unended.map(|counts| counts.time_ns)
}

fn take_latest(latest: &mut Option<Statistics>, counts: Statistics) {
    if latest.is_none_or(|latest| counts.time_ns >= latest.time_ns) {
        *latest = Some(counts);
    }
}

/// Recovers a segment without a valid index, or any segment.
pub(super) fn recover(
    disk: &dyn Disk,
    segment: &Segment,
    builder: &mut Builder,
    mode: u32,
    how: How,
) -> Result<Found, Error> {
    let failed = |action| move |error| Error::file(action, &segment.path, error);
    remove_twin(disk, segment)?;
    let mut file = Contents::open(segment).map_err(failed("opening"))?;
    let len = file.len()?;
    if len == 0 && how != How::Start {
        // It tells readers that its recorder was killed.
        return Ok(Found::default());
    }
    let index = Index::open(&segment.index(), segment.generation, segment.start_ns, len);
    let checked = index.and_then(|mut index| index.check().map(|()| index));
    let had_index =
        !matches!(&checked, Err(IndexDamage::Io(error)) if error.kind() == io::ErrorKind::NotFound);
    // An index is made of a closed segment, whose last mark may be damaged since.
    let was_closed = checked.is_ok();
    // The descriptions of the interfaces may be lost in the segment itself.
    let (index, head) = match checked {
        Ok(index) if how == How::Start || how == How::Keep => {
            let unended_ns = unended_ns(&index);
            return Ok(Found {
                recovered: None,
                unended_ns,
            });
        }
        Ok(index) => (None, packets::without_statistics(&index.head)),
        Err(damage) => (had_index.then_some(damage), Vec::new()),
    };
    let complete = was_closed || file.is_compressed() || scan::has_end(&mut file, segment, len);
    let scan = scan::forward(&mut file, segment, len)?;
    let good = scan
        .blocks
        .last()
        .map_or(0, |entry| entry.offset + entry.len() as u64);
    // A crash tears what was not durable yet: the end, after the last good block. Damage in front
    // of it came otherwise, and stays. So does a file without any good block, if it is longer than
    // a first write and packets may be read from it.
    let complete = complete
        || how != How::Start
        || good == 0 && len > scan::PIECE as u64 && !scan.holes.is_empty();
    let kept = if complete { len } else { good };
    if had_index && (kept < len || kept == 0) {
        disk.remove(&segment.index())
            .map_err(failed("removing the index of"))?;
    }
    if kept < len {
        let cut = disk.open(&segment.path).and_then(|mut file| {
            file.set_len(kept)?;
            file.sync()
        });
        cut.map_err(failed("cutting"))?;
    }
    if kept == len && !complete {
        // Where writes go through the page cache, an index must not become durable before its segment.
        let synced = disk.open(&segment.path).and_then(|mut file| file.sync());
        synced.map_err(failed("syncing"))?;
    }
    let torn = file.torn().map(|_| Damage::Short);
    let packets = scan
        .blocks
        .iter()
        .map(|entry| u64::from(entry.block.packets))
        .sum();
    // The first block may be damaged, and the descriptions in it be whole.
    let head = match scan.holes.first() {
        Some(hole) if head.is_empty() && hole.offset == 0 && kept > 0 => {
            let mut bytes = vec![0; hole.len()];
            file.read(&mut bytes, 0)?;
            let mut head = Vec::new();
            packets::unchecked_head(&bytes, &mut head);
            head
        }
        _ => head,
    };
    let unended_ns = if kept == 0 {
        disk.remove(&file.path).map_err(failed("removing"))?;
        None
    } else {
        let latest = rebuild(
            disk,
            segment,
            &mut file,
            &scan,
            builder,
            (&head, kept),
            mode,
        )?;
        latest
            .filter(Statistics::is_unended)
            .map(|counts| counts.time_ns)
    };
    let recovered = Some(Recovered {
        segment: segment.clone(),
        path: file.path,
        kept_bytes: kept,
        kept_packets: packets,
        cut_bytes: len - kept,
        damage: scan.damage.or(torn),
        damaged: scan.damaged - u64::from(kept < len),
        index,
        had_index,
        unended_ns,
    });
    Ok(Found {
        recovered,
        unended_ns,
    })
}

/// Removes the plain file of a segment that also has a whole compressed file: a recorder died
/// between the two steps.
fn remove_twin(disk: &dyn Disk, segment: &Segment) -> Result<(), Error> {
    let failed = |action| move |error| Error::file(action, &segment.path, error);
    let Ok(plain) = std::fs::metadata(&segment.path) else {
        return Ok(());
    };
    let compressed = match Contents::open_compressed(segment) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        compressed => compressed.map_err(failed("opening the compressed file of"))?,
    };
    // A compressed file that another program made can be a part of the segment, or of another layout.
    if compressed.torn().is_none() && compressed.len()? == plain.len() {
        disk.remove(&segment.path).map_err(failed("removing"))?;
    }
    Ok(())
}

/// Makes the indexes of all segments of a directory again. No segment is changed: also what follows
/// damage stays.
///
/// **Errors**: [`Error::Locked`] if a recorder is writing to the directory.
pub fn reindex(
    dir: &Path,
    settings: super::Settings,
    now: super::Now,
) -> Result<super::Opened, Error> {
    let listing = name::list(dir)?;
    if !listing.locked && listing.segments.is_empty() {
        return Err(Error::NoRecord {
            dir: dir.to_owned(),
            saved: listing.triggered.len(),
        });
    }
    // The lock is held from here on.
    let (recorder, mut opened) = super::Recorder::open_as(
        std::sync::Arc::new(System::default()),
        dir,
        settings,
        now,
        How::Keep,
    )?;
    let mut builder = Builder::new(recorder.settings().index_pairs);
    for segment in scan::by_marks(name::list(dir)?.segments) {
        if opened
            .recovered
            .iter()
            .any(|found| found.segment == segment)
        {
            continue;
        }
        let mode = recorder.settings().file_mode;
        let found = recover(&System::default(), &segment, &mut builder, mode, How::Anew)?;
        opened.recovered.extend(found.recovered);
    }
    Ok(opened)
}

/// Feeds the packets of a block to the builder of an index.
struct Feed<'a> {
    builder: &'a mut Builder,
}

impl Visit for Feed<'_> {
    fn frames(&mut self, _: usize, _: &[u32], frames: &[Frame<'_>]) -> bool {
        frames
            .iter()
            .for_each(|frame| self.builder.packet(frame.interface, frame.data));
        true
    }
}

/// Builds the index of a segment of `len` bytes from its good blocks, and writes it. `head` are the section header and the interfaces of
/// the segment, as far as they are known already. Returns the latest statistics.
fn rebuild(
    disk: &dyn Disk,
    segment: &Segment,
    file: &mut Contents,
    scan: &Scan,
    builder: &mut Builder,
    (head, len): (&[u8], u64),
    mode: u32,
) -> Result<Option<Statistics>, Error> {
    let (mut bytes, mut latest) = (Vec::new(), None::<Statistics>);
    builder.clear();
    builder.head(head);
    let mut layout = packets::layout(head);
    let known = layout
        .iter()
        .flat_map(|layout| layout.interfaces.iter().enumerate());
    known.for_each(|(at, interface)| builder.interface(at as u32, interface.link));
    let mut described = layout
        .as_ref()
        .map_or(0, |layout| layout.interfaces.len() as u32);
    for entry in &scan.blocks {
        packets::read(file, entry, &mut bytes)?;
        if layout.is_none() || entry.interfaces > described {
            let mut head = Vec::new();
            packets::head(&bytes, entry, &mut head, &mut described);
            builder.head(&head);
            layout = packets::layout(builder.head_bytes());
            for (at, interface) in layout
                .iter()
                .flat_map(|layout| layout.interfaces.iter().enumerate())
            {
                builder.interface(at as u32, interface.link);
            }
        }
        if let Some(layout) = &layout {
            packets::visit(layout, &bytes, &mut Feed { builder });
            packets::statistics(layout, &bytes, |stats, block| {
                builder.statistics(stats.id, block);
                take_latest(&mut latest, stats.counts);
            });
        }
        builder.block(*entry);
    }
    let index = builder.finish(segment.generation, segment.start_ns, len);
    builder.clear();
    let path = segment.index();
    file::publish(disk, &path, mode, &index, true)
        .map_err(|error| Error::file("writing", &path, error))?;
    Ok(latest)
}
