//! The stage that copies packets into the ring.

use super::Shared;
use super::arrival::Arrivals;
use crate::provenance::{Chosen, LONGEST, shorten_filter};
use crate::sink::{End, Note, Packets, Sink, SinkReport};
use std::borrow::Cow;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use weir_packet::LinkType;
use weir_packet::flow::{FlowKey, Hasher, Parser, Tunnels};
use weir_packet::savefile::carried::LeftOut;
use weir_packet::savefile::{Interface, Layout, Record, Statistics};
use weir_pipeline::reader::Uncounted;
use weir_store::cutoff::Cutoff;
use weir_store::ring::Writer;

/// Pause of a run that waits for the readers of the ring.
const PAUSE: Duration = Duration::from_millis(1);

/// Interval at which packets are checked for their age.
const LOOK_NS: u64 = 100_000_000;

/// Number of packets that readers see together when packets are taken singly, unless the run pauses
/// before.
const TOGETHER: u32 = 32;

/// Number of conversations of which the first bytes are kept at a time.
const CONVERSATIONS: usize = 1 << 20;

/// Bytes of each conversation so far.
pub(super) struct Conversations {
    table: Cutoff,
    hasher: Hasher,
    /// Flow parser of each interface of the ring.
    parsers: Vec<Option<Parser>>,
    /// Tunnels whose innermost packets make the conversations, if any.
    inner: Option<Tunnels>,
    /// Packets left out, and their wire bytes.
    cut_off: (u64, u64),
}

impl Conversations {
    pub fn new(bytes: u64, inner: Option<Tunnels>) -> Result<Self, weir_memory::Error> {
        let hasher = Hasher::new(RandomState::new().hash_one(bytes));
        Ok(Self {
            table: Cutoff::new(bytes, CONVERSATIONS)?,
            hasher,
            parsers: Vec::new(),
            inner,
            cut_off: (0, 0),
        })
    }

    /// Whether a packet is kept. A packet without addresses always is.
    fn keeps(&mut self, layout: &Layout, id: usize, record: &Record<'_>) -> bool {
        if self.parsers.len() <= id {
            self.parsers.resize(id + 1, None);
        }
        if self.parsers[id].is_none() {
            let link = layout
                .interfaces
                .get(record.frame.interface as usize)
                .map(|interface| interface.link);
            self.parsers[id] = link.and_then(|link| Parser::inside(link, self.inner));
        }
        let Some(parser) = &self.parsers[id] else {
            return true;
        };
        let mut key = FlowKey::NONE;
        if parser.key_into(record.frame.data, &mut key).is_err() {
            return true;
        }
        let hash = self.hasher.flow(&key).symmetric;
        let wire = u64::from(record.frame.wire_len);
        let keeps = self.table.keeps(hash, wire, record.time_ns.unwrap_or(0));
        if !keeps {
            self.cut_off = (self.cut_off.0 + 1, self.cut_off.1 + wire);
        }
        keeps
    }
}

/// The interface, as it describes the same bytes in files of this machine. BSD loopback frames
/// begin with a number in the byte order of the capturing machine; in network order they are
/// OpenBSD's.
///
/// It also has the settings of the recording that choose packets.
pub(super) fn as_kept<'a>(
    chosen: &Chosen,
    big_endian: bool,
    interface: &'a Interface,
) -> Cow<'a, Interface> {
    /// Longest option, bytes, and bytes of all of them: a record has the descriptions in each of its segments.
    const OPTION: (usize, usize) = (1024, 4096);
    let mut described = chosen.described(interface);
    if described
        .filter
        .as_ref()
        .is_some_and(|filter| filter.len() > LONGEST)
    {
        shorten_filter(described.to_mut());
    }
    let all: usize = interface
        .options
        .iter()
        .map(|option| option.value.len())
        .sum();
    if all > OPTION.1 {
        described
            .to_mut()
            .options
            .retain(|option| option.value.len() <= OPTION.0);
        described.to_mut().options.truncate(OPTION.1 / OPTION.0);
    }
    if big_endian && interface.link == LinkType::NULL {
        described.to_mut().link = LinkType::LOOP;
    }
    described
}

/// Sink that copies packets into the ring of a recording.
pub struct RecordSink {
    writer: Writer,
    shared: Arc<Shared>,
    age: Option<Duration>,
    cutoff: Option<Conversations>,
    waits: bool,
    /// Index in the ring of each interface of the current source; `None` if the ring has too many.
    ids: Vec<Option<Option<u32>>>,
    /// Number of packets that this sink was handed.
    handed: u64,
    /// Number of packets taken one by one since packets were last shown.
    unseen: u32,
    /// Packets of interfaces that the ring has no room to describe.
    undescribed: u64,
    /// Bytes of a packet that are kept, at most; 0 for all.
    snaplen: usize,
    /// Blocks and parts of packets of the sources that a record has no place for.
    left_out: LeftOut,
    /// Arrivals of the packets of files, if they age.
    arrivals: Arrivals,
    /// Steady time of the next check of the age, ns.
    look_ns: u64,
    now: u64,
}

impl RecordSink {
    pub(super) fn new(
        writer: Writer,
        shared: Arc<Shared>,
        age: Option<Duration>,
        cutoff: Option<Conversations>,
        waits: bool,
    ) -> Self {
        let snaplen = shared.chosen.snaplen() as usize;
        Self {
            writer,
            shared,
            age,
            cutoff,
            waits,
            ids: Vec::new(),
            handed: 0,
            unseen: 0,
            undescribed: 0,
            snaplen,
            left_out: LeftOut::default(),
            arrivals: Arrivals::default(),
            look_ns: 0,
            now: 0,
        }
    }

    /// Describes the interface `index` to the ring.
    #[cold]
    fn describe(&mut self, layout: &Layout, index: usize) -> Option<u32> {
        let id = layout.interfaces.get(index).and_then(|interface| {
            let kept = as_kept(&self.shared.chosen, layout.big_endian, interface);
            self.left_out.interface_options +=
                (interface.options.len() - kept.options.len()) as u64;
            self.writer.interface(&kept)
        });
        self.ids.resize(self.ids.len().max(index + 1), None);
        self.ids[index] = Some(id);
        id
    }

    #[inline]
    fn keep(&mut self, layout: &Layout, record: &Record<'_>) {
        self.handed += 1;
        if !record.options.is_empty() {
            self.left_out.add_options(&record.options);
        }
        let index = record.frame.interface as usize;
        let id = match self.ids.get(index) {
            Some(Some(id)) => *id,
            _ => self.describe(layout, index),
        };
        let Some(id) = id else {
            self.undescribed += 1;
            return;
        };
        if let Some(cutoff) = &mut self.cutoff
            && !cutoff.keeps(layout, id as usize, record)
        {
            return;
        }
        if self.age.is_some() {
            let arrival = self.arrival(record.time_ns);
            self.writer.arrive(arrival);
        }
        let data = match self.snaplen {
            0 => record.frame.data,
            most => &record.frame.data[..record.frame.data.len().min(most)],
        };
        let record = Record {
            frame: weir_packet::Frame {
                data,
                interface: id,
                ..record.frame
            },
            ..*record
        };
        self.writer.append(&record, self.now);
    }

    /// Time at which a packet arrives, ns: by the steady clock, and of files, which are read in no
    /// time, by timestamps.
    fn arrival(&mut self, stamp: Option<i64>) -> i64 {
        if !self.waits {
            return i64::try_from(self.now).unwrap_or(i64::MAX);
        }
        self.arrivals.take(self.handed, stamp, 0);
        self.arrivals.now().unwrap_or(i64::MIN)
    }

    /// Shows the packets and the counts to readers.
    fn show(&mut self) {
        self.unseen = 0;
        self.writer.publish();
        let refused = self.writer.refused();
        self.shared
            .no_room
            .store(refused.no_room + self.undescribed, Ordering::Relaxed);
        self.shared
            .too_long
            .store(refused.too_long, Ordering::Relaxed);
        if let Some(cutoff) = &self.cutoff {
            let (packets, bytes) = cutoff.cut_off;
            self.shared.cut_off[0].store(packets, Ordering::Relaxed);
            self.shared.cut_off[1].store(bytes, Ordering::Relaxed);
        }
    }

    /// Shows the packets to readers, and waits for slow ones if the source can wait.
    fn publish(&mut self) {
        self.show();
        self.expire();
        // Readers keep some chunks, and look back at others.
        let most = self.shared.history.chunks() as u64 / 2;
        let oldest = |shared: &Shared| {
            shared
                .triggers_at
                .load(Ordering::Relaxed)
                .min(shared.disk_at.load(Ordering::Relaxed))
        };
        while self.waits && self.writer.chunks_taken() > oldest(&self.shared).saturating_add(most) {
            std::thread::sleep(PAUSE);
        }
    }

    fn expire(&mut self) {
        let Some(age) = self.age else { return };
        if self.now >= self.look_ns {
            self.look_ns = self.now + LOOK_NS;
            let age_ns = i64::try_from(age.as_nanos()).unwrap_or(i64::MAX);
            let now_ns = if self.waits {
                self.arrivals.now()
            } else {
                i64::try_from(self.now).ok()
            };
            if let Some(now_ns) = now_ns {
                self.writer.expire(now_ns.saturating_sub(age_ns), self.now);
            }
        }
    }
}

impl Sink for RecordSink {
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        if self.unseen == 0 {
            self.now = self.shared.steady_ns();
        }
        self.keep(layout, record);
        self.unseen += 1;
        if self.unseen == TOGETHER {
            self.publish();
        }
        Ok(())
    }

    fn batch(&mut self, packets: &Packets<'_>) -> (u64, Result<(), End>) {
        self.now = self.shared.steady_ns();
        let layout = packets.layout();
        let done = packets.hand_on(|record| {
            self.keep(layout, record);
            Ok(())
        });
        self.publish();
        done
    }

    fn new_source(&mut self) {
        self.ids.clear();
    }

    fn begin(&mut self, layout: &Layout) -> Result<(), End> {
        // Readers find the interfaces before the first packet.
        for interface in layout.interfaces.iter() {
            self.writer
                .interface(&as_kept(&self.shared.chosen, layout.big_endian, interface));
        }
        Ok(())
    }

    fn counted_so_far(&mut self, counts: &[(Interface, Statistics)]) {
        self.shared.sources.so_far(counts);
    }

    fn statistics(&mut self, counts: &[(Interface, Statistics)]) {
        self.shared.sources.ended(counts);
    }

    fn remarks(&mut self, remarks: &[String]) {
        self.left_out.remarks += remarks.len() as u64;
    }

    fn uncounted(&mut self, times: &[Uncounted]) {
        self.left_out.uncounted += times.len() as u64;
    }

    fn flush(&mut self) -> Result<(), End> {
        self.now = self.shared.steady_ns();
        self.publish();
        Ok(())
    }

    fn end_source(&mut self, layout: &Layout) {
        layout
            .carried
            .iter()
            .for_each(|block| self.left_out.add(block.kind));
        for (name, text) in layout.notes.iter() {
            match *name {
                "comment" => self.left_out.comments += 1,
                "application" if text.starts_with("weir ") => {}
                _ => self.left_out.section_options += 1,
            }
        }
    }

    fn finish(&mut self, _: Option<&Layout>, _: bool) -> Result<(), End> {
        self.show();
        Ok(())
    }

    fn is_awaited(&self) -> bool {
        true
    }

    fn report(&self) -> SinkReport {
        let left_out = Some(self.left_out).filter(|left_out| !left_out.is_empty());
        let notes = left_out.map(Note::NotRecorded).into_iter().collect();
        SinkReport {
            taken: self.handed,
            notes,
            ..SinkReport::default()
        }
    }
}
