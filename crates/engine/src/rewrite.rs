//! Changes of packets on their way to a sink: times, addresses, payload.
//!
//! A [`Rewrite`] changes packets before any sink takes them, so that files, ports, lines and sinks of programs get the same
//! packets. The stages before it (filter, firewall, measurement) see unchanged packets.

use crate::sink::{End, Needs, Note, Sink, SinkReport};
use std::time::Instant;
use weir_packet::anonymize::Anonymizer;
use weir_packet::flow::headers_len;
use weir_packet::savefile::options::PacketOptions;
use weir_packet::savefile::{Interface, Layout, Record, Statistics};
use weir_packet::{Frame, LinkType};
use weir_pipeline::reader::Uncounted;

/// Changes of packets for a sink. The default changes nothing.
#[derive(Clone, Debug, Default)]
pub struct Rewrite {
    /// Time that is added to each timestamp, ns.
    pub shift_ns: i64,
    /// Writer of other addresses, if packets get some. Then the sink learns no text of the sources: no names and descriptions of
    /// interfaces, no comments, no names of addresses, no secrets.
    pub anonymizer: Option<Anonymizer>,
    /// Whether packets keep their headers only: up to the payload of the transport.
    pub headers: bool,
}

impl Rewrite {
    /// Whether nothing is changed.
    pub fn is_none(&self) -> bool {
        self.shift_ns == 0 && self.anonymizer.is_none() && !self.headers
    }

    /// Returns a sink that changes packets and hands them to `sink`; `sink` itself if there is nothing to change.
    pub fn before(&self, sink: Box<dyn Sink>) -> Box<dyn Sink> {
        match self.is_none() {
            true => sink,
            false => Box::new(Rewriting {
                sink,
                changes: Changes::new(self.clone()),
                plain: None,
            }),
        }
    }
}

/// Changes of packets, with memory for one.
#[derive(Debug)]
pub struct Changes {
    rewrite: Rewrite,
    bytes: Vec<u8>,
    /// Packets of which bytes were left out because they could not be taken apart.
    unknown: u64,
}

impl Changes {
    /// Begins to change packets.
    pub fn new(rewrite: Rewrite) -> Self {
        Self {
            rewrite,
            bytes: Vec::new(),
            unknown: 0,
        }
    }

    /// Returns a packet of an interface of this link type with its changes. **Cost**: a copy of its bytes, if it gets other addresses.
    pub fn packet<'a>(&'a mut self, link: LinkType, record: &Record<'a>) -> Record<'a> {
        let time_ns = record.time_ns.map(|ns| self.time(ns));
        let mut data = record.frame.data;
        if self.rewrite.headers {
            data = &data[..headers_len(link, data)];
        }
        let Some(anonymizer) = &mut self.rewrite.anonymizer else {
            let frame = Frame {
                data,
                ..record.frame
            };
            return Record {
                time_ns,
                frame,
                ..*record
            };
        };
        self.bytes.clear();
        self.bytes.extend_from_slice(data);
        let kept = anonymizer.rewrite(link, &mut self.bytes);
        self.unknown += u64::from(kept.unknown);
        Record {
            time_ns,
            frame: Frame {
                data: &self.bytes[..kept.len],
                ..record.frame
            },
            options: PacketOptions::default(),
        }
    }

    fn time(&self, ns: i64) -> i64 {
        ns.saturating_add(self.rewrite.shift_ns)
    }

    /// Returns the number of packets of which bytes were left out because they could not be taken apart.
    pub fn unknown(&self) -> u64 {
        self.unknown
    }
}

/// A sink that hands changed packets to another sink.
struct Rewriting {
    sink: Box<dyn Sink>,
    changes: Changes,
    /// The layout of the source without texts, if the sink learns none, and the size of the layout that it is of.
    plain: Option<([usize; 2], Layout)>,
}

impl Rewriting {
    /// Interface statistics with changed times.
    fn changed(&self, counts: &[(Interface, Statistics)]) -> Vec<(Interface, Statistics)> {
        let time = |ns: i64| self.changes.time(ns);
        let changed = |counts: &Statistics| Statistics {
            time_ns: time(counts.time_ns),
            start_ns: counts.start_ns.map(time),
            end_ns: counts.end_ns.map(time),
            ..*counts
        };
        let interface = |interface: &Interface| match self.is_anonymous() {
            true => interface.without_texts(),
            false => interface.clone(),
        };
        let each = counts.iter();
        each.map(|(of, counts)| (interface(of), changed(counts)))
            .collect()
    }

    fn is_anonymous(&self) -> bool {
        self.changes.rewrite.anonymizer.is_some()
    }

    /// Keeps the layout without texts, if the sink learns none. **Cost**: two comparisons if it is known.
    fn note(&mut self, layout: &Layout) {
        let size = [layout.interfaces.len(), layout.sections as usize];
        let is_known = self.plain.as_ref().is_some_and(|(known, _)| *known == size);
        if self.is_anonymous() && !is_known {
            self.plain = Some((size, layout.without_texts()));
        }
    }

    /// The layout for the sink.
    fn told<'a>(plain: &'a Option<([usize; 2], Layout)>, layout: &'a Layout) -> &'a Layout {
        plain.as_ref().map_or(layout, |(_, plain)| plain)
    }
}

impl Sink for Rewriting {
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        self.note(layout);
        let link = layout.interfaces[record.frame.interface as usize].link;
        let changed = self.changes.packet(link, record);
        self.sink.packet(Self::told(&self.plain, layout), &changed)
    }

    fn needs(&self) -> Needs {
        self.sink.needs()
    }

    fn open(&mut self) -> Result<(), End> {
        self.sink.open()
    }

    fn new_source(&mut self) {
        self.plain = None;
        self.sink.new_source();
    }

    fn abandon(&mut self) {
        self.sink.abandon();
    }

    fn begin(&mut self, layout: &Layout) -> Result<(), End> {
        // Captures are announced one after another.
        self.plain = None;
        self.note(layout);
        let begun = self.sink.begin(Self::told(&self.plain, layout));
        self.plain = None;
        begun
    }

    fn start(&mut self) -> Result<(), End> {
        self.sink.start()
    }

    fn flush(&mut self) -> Result<(), End> {
        self.sink.flush()
    }

    fn next_file(&mut self) -> Result<(), End> {
        self.sink.next_file()
    }

    fn pass_time(&mut self, now: Instant) -> Result<(), End> {
        self.sink.pass_time(now)
    }

    fn counted_so_far(&mut self, counts: &[(Interface, Statistics)]) {
        self.sink.counted_so_far(&self.changed(counts));
    }

    fn end_source(&mut self, layout: &Layout) {
        self.note(layout);
        self.sink.end_source(Self::told(&self.plain, layout));
    }

    fn statistics(&mut self, counts: &[(Interface, Statistics)]) {
        self.sink.statistics(&self.changed(counts));
    }

    fn remarks(&mut self, remarks: &[String]) {
        if !self.is_anonymous() {
            self.sink.remarks(remarks);
        }
    }

    fn uncounted(&mut self, times: &[Uncounted]) {
        let shifted = times.iter().map(|one| Uncounted {
            from_ns: self.changes.time(one.from_ns),
            to_ns: one.to_ns.map(|ns| self.changes.time(ns)),
        });
        self.sink.uncounted(&shifted.collect::<Vec<_>>());
    }

    fn finish(&mut self, layout: Option<&Layout>, ended: bool) -> Result<(), End> {
        layout.into_iter().for_each(|layout| self.note(layout));
        let told = layout.map(|layout| Self::told(&self.plain, layout));
        self.sink.finish(told, ended)
    }

    fn is_awaited(&self) -> bool {
        self.sink.is_awaited()
    }

    fn is_file(&self) -> bool {
        self.sink.is_file()
    }

    fn report(&self) -> SinkReport {
        let mut report = self.sink.report();
        let packets = self.changes.unknown();
        if packets > 0 {
            report.notes.push(Note::Unknown { packets });
        }
        report
    }
}
