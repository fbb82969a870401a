//! Reading a record directory: the packets of a selection, as one pcapng stream.

use super::contents::Contents;
use super::index::{Entry, Header, Index, IndexDamage, orphan};
use super::losses::{Gone, Killed, Ledger, Lost, SegmentCounts, Total};
use super::name::{self, Segment};
use super::order::{Key, Order};
use super::scan;
use super::select::{Formula, Selection};
use super::{Damage, Error, PAGE, packets};
use std::collections::{BTreeSet, HashMap};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_packet::savefile::walk::Visit;
use weir_packet::savefile::write::Encoder;
use weir_packet::savefile::{Format, Layout, Statistics};
use weir_packet::{Frame, LinkType};

/// Bytes of a file of which no segment has as many: it has 4 GiB, and what is written when it is full.
const MOST: u64 = (4 << 30) + (64 << 20);

/// Largest number of bytes of adjoining blocks that are read at once.
const PIECE: usize = 1 << 20;

/// End of the packets that are read from disk: packets of this session from this number on are in
/// RAM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seam {
    /// Generation of the session.
    pub generation: u64,
    /// Number of the first packet that is left out.
    pub number: u64,
}

/// How the index of a segment was used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IndexUse {
    /// The index told which blocks to read.
    Used,
    /// There is none: the segment is being written, or its recorder died. Its marks told the times of its blocks.
    Missing,
    /// The index is damaged, and the marks were used.
    Damaged(String),
}

/// Use of a segment by a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SegmentUse {
    /// Path of the segment, or of its compressed file.
    pub path: PathBuf,
    /// Use of its index.
    pub index: IndexUse,
    /// Blocks with packets.
    pub blocks: u64,
    /// Blocks not read because of their times.
    pub skipped_by_time: u64,
    /// Blocks not read because the index shows no packet that matches.
    pub skipped_by_keys: u64,
    /// Times of its earliest and its latest packet, ns since 1970; `None` if no packet is known.
    pub times_ns: Option<(i64, i64)>,
}

impl SegmentUse {
    /// Notes the times of packets.
    fn covers(&mut self, (least, greatest): (i64, i64)) {
        if least <= greatest {
            let (first, last) = self.times_ns.unwrap_or((least, greatest));
            self.times_ns = Some((first.min(least), last.max(greatest)));
        }
    }
}

/// Counts of a reader.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Segments looked at, in the order of reading.
    pub segments: Vec<SegmentUse>,
    /// Segments that retention removed in the meantime.
    pub gone: u64,
    /// Blocks read.
    pub blocks: u64,
    /// Bytes read of segments.
    pub bytes: u64,
    /// Bytes read of indexes.
    pub index_bytes: u64,
    /// Bytes of the frames of compressed segments that were decompressed.
    pub decompressed: u64,
    /// Packets in the blocks that were read.
    pub packets: u64,
    /// Packets passed on: their times are in the range, and they lie in front of the seam.
    pub passed: u64,
    /// Packets of these that follow later packets, because too many overlap in time to wait for
    /// all.
    pub late: u64,
    /// Damaged blocks.
    pub damaged: u64,
    /// Packets of these, and of segments whose interfaces only a damaged block describes, that were passed on as they are: nothing tells
    /// whether they are those recorded.
    pub unchecked: u64,
    /// First damage: path, offset in the plain segment, reason.
    pub damage: Option<(PathBuf, u64, Damage)>,
    /// Segments that could not be read, or not to their end, and the reasons.
    pub failed: Vec<(PathBuf, String)>,
    /// Packets of the wanted times that the record lacks; complete at the end.
    pub lost: Lost,
}

impl Counts {
    fn add_damage(&mut self, path: &Path, offset: u64, why: Damage) {
        self.damaged += 1;
        self.damage
            .get_or_insert_with(|| (path.to_owned(), offset, why));
    }
}

/// Segment that is being read.
#[derive(Debug)]
struct Current {
    segment: Segment,
    file: Contents,
    layout: Layout,
    /// Whether checksums answer for the layout.
    is_described: bool,
    /// Id in the stream of each interface of the layout.
    ids: Vec<u32>,
    /// Blocks to read, and the next of them.
    plan: Vec<Entry>,
    next: usize,
}

impl Current {
    /// Place of the first packet that is not read, at the earliest; `None` at the end.
    fn key(&self, order: usize) -> Option<Key> {
        self.plan
            .get(self.next)
            .map(|entry| (entry.block.min_ns, order, entry.block.first))
    }
}

/// A segment of which packets are still to be read.
#[derive(Debug)]
struct Unread {
    /// Number of the segment in the order of recording.
    order: usize,
    /// Place of its next packet, at the earliest.
    key: Key,
    segment: State,
}

#[derive(Debug)]
enum State {
    Closed(Segment),
    Open(Box<Current>),
}

/// The packets of a selection in the order of their times, as bytes of a pcapng stream. Packets of one time come in the order of
/// recording; one without a time is of the time 0.
///
/// Blocks are read in the order of their least times, whatever segment they are in. A packet is
/// passed on once all unread blocks begin after it; what waits for that is bounded, and
/// [`Counts::late`] tells if it was not enough.
///
/// The reader covers the segments that exist when it is made; it reads the open segment as far as
/// it was written at the first read. Blocks are chosen by the index, packets by their time; the
/// expression has still to be applied. **Cost**: one read for each megabyte of adjoining blocks;
/// before the first packet, the header of each index. **Threads**: any; needs the right to read, no
/// other.
#[derive(Debug)]
pub struct Reader {
    selection: Selection,
    seam: Option<Seam>,
    /// All segments, before the first read.
    segments: Vec<Segment>,
    /// Segments that somebody removed, of which there is the index.
    orphans: Vec<Segment>,
    formulas: HashMap<LinkType, Formula>,
    unread: Vec<Unread>,
    order: Order,
    encoder: Encoder,
    piece: Vec<u8>,
    out: Vec<u8>,
    /// Bytes of `out` that were taken.
    taken: usize,
    counts: Counts,
    ledger: Ledger,
    /// Whether a recorder has used the directory, and may write to the last segment now.
    is_locked: bool,
    /// Whether the statistics at the end of the stream are encoded.
    is_told: bool,
    /// Whether the stream has interfaces.
    has_interfaces: bool,
    /// Function that says at the end of the stream what the record lacks.
    remarks: fn(&Counts) -> Vec<String>,
    stop: Option<Arc<AtomicBool>>,
}

impl Reader {
    /// A reader of the packets of `dir`; with a seam, of the packets before it. The seam must have
    /// been on disk before.
    pub fn open(dir: &Path, selection: Selection, seam: Option<Seam>) -> Result<Self, Error> {
        let listing = name::list(dir)?;
        let has_files = !(listing.segments.is_empty()
            && listing.strange.is_empty()
            && listing.orphans.is_empty());
        if !has_files && !listing.locked {
            return Err(Error::NoRecord {
                dir: dir.to_owned(),
                saved: listing.triggered.len(),
            });
        }
        let mut encoder = Encoder::new(Format::Pcapng, 0);
        let mut out = Vec::new();
        encoder.begin(&mut out);
        Ok(Self {
            selection,
            seam,
            segments: scan::by_marks(listing.segments),
            orphans: listing.orphans,
            formulas: HashMap::new(),
            unread: Vec::new(),
            order: Order::new(),
            encoder,
            piece: Vec::new(),
            out,
            taken: 0,
            counts: Counts {
                failed: listing.strange.into_iter().map(name::why_strange).collect(),
                ..Counts::default()
            },
            ledger: Ledger::default(),
            is_locked: listing.locked,
            is_told: false,
            has_interfaces: false,
            remarks: |_| Vec::new(),
            stop: None,
        })
    }

    /// Gives a function that says what the record lacks: comments of the statistics at the end of the stream.
    pub fn remark(&mut self, remarks: fn(&Counts) -> Vec<String>) {
        self.remarks = remarks;
    }

    /// Gives a flag that ends the stream: no segment is read to its end once it is set.
    pub fn stop_on(&mut self, stop: &Arc<AtomicBool>) {
        self.stop = Some(Arc::clone(stop));
    }

    fn is_stopped(&self) -> bool {
        self.stop
            .as_ref()
            .is_some_and(|stop| stop.load(Ordering::Relaxed))
    }

    /// Counts so far.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// The next bytes of the stream: whole pcapng blocks; `None` at the end.
    pub fn next_bytes(&mut self) -> Result<Option<&[u8]>, Error> {
        let segments = std::mem::take(&mut self.segments);
        if !segments.is_empty() {
            self.ledger.segments = segments.len();
            let times: Vec<_> = segments.iter().map(times).collect();
            self.look_beside(&segments, &times);
            for (order, (segment, times)) in segments.into_iter().zip(times).enumerate() {
                self.look_at(order, segment, times);
            }
        }
        while self.taken == self.out.len() {
            if self.is_stopped() {
                return Ok(None);
            }
            self.out.clear();
            self.taken = 0;
            match (0..self.unread.len()).min_by_key(|&at| self.unread[at].key) {
                Some(at) => self.read_from(at),
                None if self.order.is_empty() && self.is_told => return Ok(None),
                None if self.order.is_empty() => self.tell(),
                None => self.order.release(None, &mut self.out),
            }
            self.counts.late = self.order.late;
        }
        let from = std::mem::replace(&mut self.taken, self.out.len());
        Ok(Some(&self.out[from..]))
    }

    /// Notes when the packets of a segment begin. A segment that no index describes is opened for that.
    fn look_at(&mut self, order: usize, segment: Segment, times: Option<(i64, i64)>) {
        match times {
            Some((least, greatest)) if self.selection.overlaps(least, greatest) => {
                self.unread.push(Unread {
                    order,
                    key: (least, order, 0),
                    segment: State::Closed(segment),
                });
            }
            _ => self.open_segment(order, segment),
        }
    }

    /// Takes what segments next to the wanted times tell, because packets may be lost between two
    /// segments.
    fn look_beside(&mut self, segments: &[Segment], times: &[Option<(i64, i64)>]) {
        let mut beside = BTreeSet::new();
        for (at, pair) in times.windows(2).enumerate() {
            // Where a segment without an index ends is not known yet.
            let is_beside = match *pair {
                [Some((least, end)), Some((begin, greatest))] => {
                    // Counts may be older than the packets around them.
                    let overlaps =
                        |least: i64, greatest: i64| self.selection.overlaps(least, greatest);
                    overlaps(end.min(begin), end.max(begin))
                        || overlaps(least, end)
                        || overlaps(begin, greatest)
                }
                _ => true,
            };
            if is_beside {
                beside.extend([at, at + 1]);
            }
        }
        let has_no_packets =
            |at: usize| times[at].is_some_and(|(least, greatest)| least > greatest);
        beside.extend((0..times.len()).filter(|&at| has_no_packets(at)));
        let beside = beside.into_iter().filter(|&at| {
            times[at].is_some_and(|(least, greatest)| {
                !self.selection.overlaps(least, greatest) || least > greatest
            })
        });
        for at in beside.collect::<Vec<_>>() {
            let segment = &segments[at];
            let length = Contents::open(segment)
                .ok()
                .and_then(|contents| contents.len().ok());
            let index = length.and_then(|len| {
                Index::open(&segment.index(), segment.generation, segment.start_ns, len).ok()
            });
            let Some(index) = index else { continue };
            if let Some(layout) = packets::layout(&index.head) {
                let mut told = SegmentCounts::new(&index.blocks, has_no_packets(at));
                let ids = self.ids(&layout);
                packets::statistics(&layout, &index.head, |stats, _| told.take(&ids, &stats));
                self.ledger.told.insert(at, (segment.generation, told));
            }
        }
    }

    /// Ids in the stream of the interfaces of a segment.
    fn ids(&mut self, layout: &Layout) -> Vec<u32> {
        self.has_interfaces |= !layout.interfaces.is_empty();
        let id = |interface| {
            self.encoder
                .interface(interface)
                .expect("a pcapng file takes any interface")
        };
        layout.interfaces.iter().map(id).collect()
    }

    /// Ends the stream with what the capture lost, as interface statistics.
    fn tell(&mut self) {
        self.is_told = true;
        let wanted = (
            self.selection.from_ns.unwrap_or(i64::MIN),
            self.selection.to_ns.unwrap_or(i64::MAX),
        );
        let present = self.seam.map(|seam| seam.generation);
        let Total {
            lost,
            by_interface,
            unended,
        } = self.ledger.sum(wanted, present);
        for (id, killed) in unended.into_iter().zip(&lost.killed) {
            // Another start tells that the counts of one are not those of the other. The file may know no part of a second.
            let Killed { from_ns, to_ns } = *killed;
            let nothing = Statistics {
                dropped_by_system: Some(0),
                ..Statistics::default()
            };
            let start_ns = Some(from_ns.saturating_sub(1_000_000_000));
            let end = Statistics {
                time_ns: from_ns,
                start_ns,
                ..nothing
            };
            let begin = Statistics {
                time_ns: to_ns,
                start_ns: Some(to_ns),
                end_ns: Some(to_ns),
                ..nothing
            };
            self.encoder.statistics(&mut self.out, id, &end, &[]);
            self.encoder.statistics(&mut self.out, id, &begin, &[]);
        }
        self.counts.lost = lost;
        self.add_orphans();
        let mut remarks = (self.remarks)(&self.counts);
        if by_interface.is_empty() && !remarks.is_empty() && self.has_interfaces {
            self.encoder
                .statistics(&mut self.out, 0, &Statistics::default(), &remarks);
        }
        for (id, counts) in by_interface {
            if counts.is_unended() {
                // What follows counts from here on, also where no packet is in front of it.
                let zero = Statistics {
                    end_ns: None,
                    ..counts.since(&counts)
                };
                self.encoder.statistics(
                    &mut self.out,
                    id,
                    &Statistics {
                        start_ns: counts.start_ns,
                        ..zero
                    },
                    &[],
                );
            }
            self.encoder
                .statistics(&mut self.out, id, &counts, &remarks);
            remarks.clear();
        }
    }

    /// Counts segments that somebody removed, if their indexes tell packets of the wanted times, and if no gap between two others tells
    /// them.
    fn add_orphans(&mut self) {
        for segment in std::mem::take(&mut self.orphans) {
            let generation = segment.generation;
            let gone = &mut self.counts.lost.gone;
            let is_told = gone.iter().any(|gap| {
                (gap.generation..gap.generation.saturating_add(gap.segments)).contains(&generation)
            });
            let orphan =
                orphan(&segment.index(), generation, segment.start_ns).filter(|_| !is_told);
            if let Some(orphan) =
                orphan.filter(|orphan| self.selection.overlaps(orphan.times.0, orphan.times.1))
            {
                gone.push(Gone {
                    generation,
                    segments: 1,
                    at_most: orphan.packets,
                });
            }
        }
        self.counts.lost.gone.sort_by_key(|gone| gone.generation);
    }

    fn open_segment(&mut self, order: usize, segment: Segment) {
        let path = segment.path.clone();
        match self.begin(order, segment) {
            Err(_) if self.is_stopped() => {}
            Err(error) => self.counts.failed.push((path, error.to_string())),
            Ok(None) => {}
            Ok(Some(current)) => {
                if let Some(key) = current.key(order) {
                    self.unread.push(Unread {
                        order,
                        key,
                        segment: State::Open(Box::new(current)),
                    });
                }
            }
        }
    }

    /// Opens a segment, or reads blocks of an open one, and passes on the packets that need not wait any more.
    fn read_from(&mut self, at: usize) {
        let Unread { order, segment, .. } = self.unread.swap_remove(at);
        let mut current = match segment {
            State::Closed(segment) => return self.open_segment(order, segment),
            State::Open(current) => current,
        };
        let read = self.read_piece(order, &mut current);
        if self.is_stopped() {
            return;
        }
        if let Err(error) = read {
            self.counts
                .failed
                .push((current.file.path.clone(), error.to_string()));
        } else if let Some(key) = current.key(order) {
            self.unread.push(Unread {
                order,
                key,
                segment: State::Open(current),
            });
        }
        let limit = self.unread.iter().map(|unread| unread.key).min();
        self.order.release(limit, &mut self.out);
    }

    /// Opens a segment and plans which of its blocks are read; `None` if none are.
    fn begin(&mut self, order: usize, segment: Segment) -> Result<Option<Current>, Error> {
        let mut file = match Contents::open(&segment) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                self.counts.gone += 1;
                return Ok(None);
            }
            file => file.map_err(|error| Error::file("opening", &segment.path, error))?,
        };
        file.stop.clone_from(&self.stop);
        let mut len = file.len()?.min(MOST);
        if len == MOST {
            self.counts.add_damage(&file.path, MOST, Damage::Long);
        }
        let mut seen = SegmentUse {
            path: file.path.clone(),
            index: IndexUse::Used,
            blocks: 0,
            skipped_by_time: 0,
            skipped_by_keys: 0,
            times_ns: None,
        };
        let damaged = self.counts.damaged;
        let mut header = Header::open(&segment.index(), segment.generation, segment.start_ns, len);
        if let Err(IndexDamage::Other) = &header {
            // The segment may have been closed in between.
            len = file.len()?.min(MOST);
            header = Header::open(&segment.index(), segment.generation, segment.start_ns, len);
        }
        if header.as_ref().is_ok_and(|header| header.blocks == 0) {
            self.ledger.empty.insert(order, segment.generation);
        }
        if let Ok(header) = &header {
            seen.covers(header.times);
        }
        if let Ok(header) = &header
            && !self.selection.overlaps(header.times.0, header.times.1)
        {
            seen.blocks = header.blocks.into();
            seen.skipped_by_time = seen.blocks;
            self.counts.segments.push(seen);
            return Ok(None);
        }
        let mut is_short = false;
        let index = match header.and_then(Index::behind) {
            Ok(index) => Some(index),
            Err(IndexDamage::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                seen.index = IndexUse::Missing;
                None
            }
            Err(damage) => {
                is_short = matches!(damage, IndexDamage::Longer(_));
                seen.index = IndexUse::Damaged(damage.to_string());
                None
            }
        };
        let planned = match index {
            Some(index) => {
                self.plan_by_index(&mut file, (order, &segment), len, index, &mut seen)?
            }
            None => self.plan_by_marks(&mut file, (order, &segment), len, &mut seen)?,
        };
        if is_short && self.counts.damaged == damaged {
            self.counts.add_damage(&file.path, len, Damage::Short);
        }
        if let Some(offset) = file
            .torn()
            .filter(|_| seen.index != IndexUse::Used && self.counts.damaged == damaged)
        {
            self.counts.add_damage(&file.path, offset, Damage::Short);
        }
        self.counts.segments.push(seen);
        self.counts.decompressed += file.take_decompressed();
        let Some((layout, is_described, mut plan)) = planned else {
            return Ok(None);
        };
        plan.sort_by_key(|entry| entry.block.min_ns);
        let ids = self.ids(&layout);
        // In front of all packets, since these may change places.
        for _ in &ids {
            self.encoder.describe_next(&mut self.out);
        }
        Ok(Some(Current {
            segment,
            file,
            layout,
            is_described,
            ids,
            plan,
            next: 0,
        }))
    }

    /// Blocks that may hold wanted packets, by the index of a segment.
    fn plan_by_index(
        &mut self,
        file: &mut Contents,
        (order, segment): (usize, &Segment),
        len: u64,
        mut index: Index,
        seen: &mut SegmentUse,
    ) -> Result<Plan, Error> {
        let has_packets = |entry: &&Entry| entry.block.packets > 0;
        seen.blocks = index.blocks.iter().filter(has_packets).count() as u64;
        let mut plan = self.gaps(file, segment, len, &index.blocks)?;
        let Some(layout) = packets::layout(&index.head) else {
            // A segment without packets needs no interfaces.
            if seen.blocks > 0 {
                self.counts.add_damage(&seen.path, 0, Damage::Head);
            }
            return Ok(None);
        };
        let mut told = SegmentCounts::new(&index.blocks, true);
        let ids = self.ids(&layout);
        packets::statistics(&layout, &index.head, |stats, _| told.take(&ids, &stats));
        self.ledger.told.insert(order, (segment.generation, told));
        let may_match = self
            .blocks_of(&layout, &mut index)
            .unwrap_or_else(|damage| {
                seen.index = IndexUse::Damaged(damage.to_string());
                None
            });
        self.counts.index_bytes += index.read;
        for (number, entry) in index
            .blocks
            .iter()
            .enumerate()
            .filter(|(_, entry)| has_packets(entry))
        {
            if !self.wants(segment, entry) {
                seen.skipped_by_time += 1;
            } else if may_match
                .as_ref()
                .is_some_and(|blocks| !blocks.contains(number as u32))
            {
                seen.skipped_by_keys += 1;
            } else {
                plan.push(*entry);
            }
        }
        Ok(Some((layout, packets::is_checked(&index.head), plan)))
    }

    /// Counts the places that an index leaves out, if packets of the wanted times may have been there, and returns what can be read of
    /// them.
    fn gaps(
        &mut self,
        file: &mut Contents,
        segment: &Segment,
        len: u64,
        blocks: &[Entry],
    ) -> Result<Vec<Entry>, Error> {
        let (mut found, mut end, mut before) = (Vec::new(), 0, None);
        for behind in blocks.iter().copied().map(Some).chain([None]) {
            let until = behind.map_or(len, |entry: Entry| entry.offset);
            let times = (
                before.map_or(i64::MIN, |before: Entry| before.block.min_ns),
                behind.map_or(i64::MAX, |entry| entry.block.max_ns),
            );
            if until > end && self.selection.overlaps(times.0, times.1) {
                self.counts.add_damage(&file.path, end, Damage::LeftOut);
                found.extend(scan::between(
                    file,
                    segment,
                    (end, until),
                    (before, behind),
                )?);
            }
            end = until + behind.map_or(0, |entry| entry.len() as u64);
            before = behind;
        }
        Ok(found)
    }

    /// Blocks that may hold a packet that matches; `None` for all.
    fn blocks_of(
        &mut self,
        layout: &Layout,
        index: &mut Index,
    ) -> Result<Option<roaring::RoaringBitmap>, IndexDamage> {
        let mut found = index.unindexed.clone();
        for interface in layout.interfaces.iter() {
            let Selection {
                expression,
                behind_tags,
                sets,
                ..
            } = &self.selection;
            let expression = weir_filter::for_link(expression, interface.link, *behind_tags);
            let formula = self
                .formulas
                .entry(interface.link)
                .or_insert_with(|| Formula::of(&expression, interface.link, sets));
            if formula.is_all() {
                return Ok(None);
            }
            found |= formula.blocks(index)?;
        }
        Ok(Some(found))
    }

    /// Whether a block may hold wanted packets, by its times and numbers.
    fn wants(&self, segment: &Segment, entry: &Entry) -> bool {
        let block = &entry.block;
        self.selection.overlaps(block.min_ns, block.max_ns) && block.first < end(self.seam, segment)
    }

    /// Blocks that may hold wanted packets, by the marks of a segment.
    fn plan_by_marks(
        &mut self,
        file: &mut Contents,
        (order, segment): (usize, &Segment),
        len: u64,
        seen: &mut SegmentUse,
    ) -> Result<Plan, Error> {
        // All frames hold marks, and no write is in progress there.
        let scan = if file.is_compressed() {
            scan::forward(file, segment, len)
        } else {
            let is_last = order + 1 == self.ledger.segments;
            scan::backward(
                file,
                segment,
                len,
                self.is_locked && is_last && seen.index == IndexUse::Missing,
            )
        }?;
        if scan.damaged > 0 {
            self.counts.damaged += scan.damaged;
            if let (None, Some(damage)) = (&self.counts.damage, scan.damage) {
                self.counts.damage = Some((file.path.clone(), scan.good, damage));
            }
        }
        let (mut head, mut described, mut bytes) = (Vec::new(), 0, Vec::new());
        let mut plan = Vec::new();
        let mut told = SegmentCounts::new(&scan.blocks, true);
        // A segment that has an index was closed: somebody emptied it.
        if scan.blocks.is_empty() && seen.index == IndexUse::Missing {
            self.ledger.empty.insert(order, segment.generation);
        }
        let telling = telling(&scan.blocks);
        for entry in scan.blocks {
            if entry.block.packets > 0 {
                seen.covers((entry.block.min_ns, entry.block.max_ns));
            }
            if head.is_empty() || entry.interfaces > described {
                bytes.resize(entry.len(), 0);
                file.read(&mut bytes, entry.offset)?;
                let len = entry.block.bytes as usize;
                // A damaged block is counted when its turn comes.
                if scan::check(segment, &bytes, &entry).is_ok() {
                    packets::head(&bytes[..len], &entry, &mut head, &mut described);
                }
            }
            if entry.block.packets == 0 {
                continue;
            }
            seen.blocks += 1;
            if self.wants(segment, &entry) {
                plan.push(entry);
            } else {
                seen.skipped_by_time += 1;
            }
        }
        for hole in scan.holes {
            if head.is_empty() && hole.offset == 0 {
                bytes.resize(hole.len(), 0);
                file.read(&mut bytes, 0)?;
                packets::unchecked_head(&bytes, &mut head);
            }
            if self.wants(segment, &hole) {
                plan.push(hole);
            }
        }
        let layout = packets::layout(&head);
        if let Some(layout) = &layout {
            let ids = self.ids(layout);
            for entry in telling {
                bytes.resize(entry.len(), 0);
                file.read(&mut bytes, entry.offset)?;
                let len = entry.block.bytes as usize;
                if scan::check(segment, &bytes, &entry).is_ok() {
                    packets::statistics(layout, &bytes[..len], |stats, _| told.take(&ids, &stats));
                }
            }
            self.ledger.told.insert(order, (segment.generation, told));
        }
        if layout.is_none() && !plan.is_empty() {
            self.counts.add_damage(&file.path, 0, Damage::Head);
        }
        Ok(layout.map(|layout| (layout, packets::is_checked(&head), plan)))
    }

    /// Reads the next blocks that adjoin, and encodes their wanted packets.
    fn read_piece(&mut self, order: usize, current: &mut Current) -> Result<(), Error> {
        let first = current.plan[current.next];
        let mut len = 0;
        let adjoining = current.plan[current.next..].iter().take_while(|entry| {
            let adjoins = entry.offset == first.offset + len as u64
                && (len == 0 || len + entry.len() <= PIECE);
            len += if adjoins { entry.len() } else { 0 };
            adjoins
        });
        let run = current.next..current.next + adjoining.count();
        self.piece.resize(len, 0);
        current.file.read(&mut self.piece, first.offset)?;
        self.counts.decompressed += current.file.take_decompressed();
        self.counts.bytes += len as u64;
        current.next = run.end;
        let (current, mut rest) = (&*current, &self.piece[..]);
        let end = end(self.seam, &current.segment);
        for entry in &current.plan[run] {
            let (bytes, behind) = rest.split_at(entry.len());
            rest = behind;
            self.counts.blocks += 1;
            let len = entry.block.bytes as usize;
            let is_checked = match scan::check(&current.segment, bytes, entry) {
                Ok(()) => current.is_described,
                Err(damage) => {
                    // What lies between good blocks was counted when it was found.
                    if !scan::is_hole(entry) {
                        self.counts
                            .add_damage(&current.file.path, entry.offset, damage);
                    }
                    false
                }
            };
            self.counts.packets += u64::from(entry.block.packets);
            let mut copy = Copy {
                bytes: &bytes[..len],
                current,
                selection: &self.selection,
                encoder: &mut self.encoder,
                out: &mut self.order,
                order,
                number: entry.block.first,
                end,
                passed: 0,
            };
            packets::visit(&current.layout, &bytes[..len], &mut copy);
            let passed = copy.passed;
            self.counts.passed += passed;
            self.counts.unchecked += if is_checked { 0 } else { passed };
        }
        Ok(())
    }
}

/// Blocks with the first and the last statistics of each interface. Each write ends with statistics, and at the end of a page.
fn telling(blocks: &[Entry]) -> Vec<Entry> {
    let (mut described, mut awaits) = (0, true);
    let mut found = Vec::new();
    for (at, entry) in blocks.iter().enumerate() {
        awaits |= entry.interfaces > described;
        described = described.max(entry.interfaces);
        if at == 0 || awaits || at + 1 == blocks.len() {
            found.push(*entry);
        }
        awaits &= !(entry.offset + entry.len() as u64).is_multiple_of(PAGE as u64);
    }
    found
}

/// Number of the first packet of a segment that the seam leaves out.
fn end(seam: Option<Seam>, segment: &Segment) -> u64 {
    seam.filter(|seam| segment.generation >= seam.generation)
        .map_or(u64::MAX, |seam| seam.number)
}

/// Least and greatest time of a segment, if a good index tells them.
fn times(segment: &Segment) -> Option<(i64, i64)> {
    let len = Contents::open(segment).ok()?.len().ok()?;
    let header = Header::open(&segment.index(), segment.generation, segment.start_ns, len).ok()?;
    Some(header.times)
}

/// Layout of a segment, whether checksums answer for it, and blocks to read; `None` if no interface is described.
type Plan = Option<(Layout, bool, Vec<Entry>)>;

/// Copies the wanted packets of a block into the stream.
struct Copy<'a> {
    bytes: &'a [u8],
    current: &'a Current,
    selection: &'a Selection,
    encoder: &'a mut Encoder,
    out: &'a mut Order,
    /// Number of the segment in the order of recording.
    order: usize,
    /// Number of the next packet.
    number: u64,
    /// Number of the first packet that is left out.
    end: u64,
    passed: u64,
}

impl Visit for Copy<'_> {
    fn frames(&mut self, _: usize, records: &[u32], frames: &[Frame<'_>]) -> bool {
        let layout = &self.current.layout;
        layout.records(self.bytes, records, |at, record| {
            let time_ns = record.and_then(|record| record.time_ns);
            // Same clamping as in marks and indexes.
            let place_ns = time_ns.unwrap_or(0).max(0);
            if self.number < self.end && self.selection.wants(time_ns.unwrap_or(0)) {
                let (frame, from) = (&frames[at], self.out.bytes.len());
                let id = self.current.ids[frame.interface as usize];
                self.encoder.packet(&mut self.out.bytes, id, time_ns, frame);
                self.out.add((place_ns, self.order, self.number), from);
                self.passed += 1;
            }
            self.number += 1;
        });
        true
    }
}

impl Read for Reader {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        if self.taken == self.out.len() {
            let at_end = self.next_bytes().map_err(io::Error::other)?.is_none();
            if at_end {
                return Ok(0);
            }
            // All of it is still to be taken.
            self.taken = 0;
        }
        let len = buf.len().min(self.out.len() - self.taken);
        buf[..len].copy_from_slice(&self.out[self.taken..self.taken + len]);
        self.taken += len;
        Ok(len)
    }
}

#[cfg(test)]
mod tests;
