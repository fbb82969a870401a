//! Runs over files and pipes: one after another, merged in time order, or sorted.

use super::{Booked, Error, Run};
use crate::event::{Event, On};
use crate::name::Name;
use crate::provenance::holds_only;
use crate::records::{self, Query};
use crate::sorting;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use weir_io::follow::Followed;
use weir_io::input::{self, Opening};
use weir_io::{Input, Kind, sys};
use weir_packet::savefile::{Interface, Layout, Statistics};
use weir_pipeline::by_time::{MergedFiles, Part};
use weir_pipeline::measuring::Design;
use weir_pipeline::reader::SourceError;
use weir_pipeline::sort::SortFault;
use weir_pipeline::source::Source;
use weir_pipeline::survey::Times;
use weir_pipeline::{Consumer, PlanError, Reader, Report, SourceFault};

/// File descriptors reserved for everything but sources.
const OTHERS: u64 = 64;

/// Largest number of compressed sources and pipes that are read at once: each has a thread and some megabytes of memory.
const MOST_STREAMS: usize = 64;

/// Files, pipes and standard input.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    /// Names as the user wrote them, in the order given.
    pub names: &'a [Name],
    /// Largest window memory of zstd data to decode, bytes.
    pub zstd_window: u64,
    /// Function to follow the files of a name, if wanted.
    pub follow: Option<&'a dyn Fn(&Name) -> Followed>,
    /// Question to the record directories among the names; `None` for all their packets.
    pub query: Option<&'a Arc<Query>>,
    /// Function that opens a source in place of the file of its name, if wanted.
    pub open: Option<Open<'a>>,
}

/// Function that opens a source of this name, which ends early once the flag is set.
pub type Open<'a> = &'a dyn Fn(&Name, &Arc<AtomicBool>) -> io::Result<Input>;

impl Files<'_> {
    /// Returns the opening options for sources that are read to their end.
    fn opening(&self) -> Opening<'static> {
        Opening {
            zstd_window: self.zstd_window,
            ..Opening::default()
        }
    }

    fn open(
        &self,
        name: &Name,
        opening: &Opening<'_>,
        stop: &Arc<AtomicBool>,
    ) -> io::Result<Input> {
        match self.open {
            Some(open) => open(name, stop),
            None => records::open(name, opening, self.query, stop),
        }
    }
}

impl Run {
    /// Reads files one after another.
    pub fn one_by_one(&mut self, files: &Files<'_>, on: On<'_>) -> Result<(), Error> {
        self.sources = files.names.len();
        self.find_begin(files)?;
        for name in files.names {
            let followed = files.follow.map(|follow| follow(name));
            let opening = Opening {
                follow: followed.as_ref(),
                ..files.opening()
            };
            let mut opened = Some(files.open(name, &opening, &self.stop));
            // Each file that has the followed name in turn is a source of its own.
            while let Some(input) = opened
                .take()
                .and_then(|opened| self.opened(name, opened, on))
            {
                self.one_file(input, on)?;
                if self.is_over(false) {
                    return Ok(());
                }
                opened = followed
                    .as_ref()
                    .and_then(|followed| followed.next(&opening));
            }
            if self.is_over(false) {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Finds the begin of a span that ends with the latest packet. **Cost**: reads all sources. A source that cannot be read to its
    /// end counts up to its error, which is reported when its packets are read.
    fn find_begin(&mut self, files: &Files<'_>) -> Result<(), Error> {
        let Some(last_ns) = self.first.span().last_ns else {
            return Ok(());
        };
        let times = self.times(files)?;
        let last_ns = i64::try_from(last_ns).unwrap_or(i64::MAX);
        let begin_ns = times.map_or(i64::MIN, |(_, latest)| latest.saturating_sub(last_ns));
        self.first.begin_at(begin_ns);
        Ok(())
    }

    /// Returns the earliest and the latest time of a packet of all files, ns since 1970. **Cost**: reads all files.
    ///
    /// **Errors**: a source that can be read only once.
    pub fn times(&self, files: &Files<'_>) -> Result<Option<(i64, i64)>, Error> {
        let consumer = Arc::new(Times);
        let mut times = None;
        for name in files.names {
            let is_read_once = || {
                Path::new(name)
                    .metadata()
                    .is_ok_and(|it| !it.is_file() && !it.is_dir())
            };
            if name.is_dash() || files.follow.is_some() || is_read_once() {
                return Err(Error::NoEnd {
                    name: name.as_source(),
                });
            }
            let Ok(input) = files.open(name, &files.opening(), &self.stop) else {
                continue;
            };
            let mut reader = Reader::new(input, Arc::clone(&consumer), self.options());
            while let Some(delivery) = reader.next().filter(|_| !self.is_stopped()) {
                consumer.append(&mut times, delivery.part);
                reader.recycle(delivery.view);
            }
        }
        Ok(times)
    }

    fn one_file(&mut self, input: Input, on: On<'_>) -> Result<(), Error> {
        let name = input.name.clone();
        let can_be_split = matches!(input.kind, Kind::File(_));
        let first = self.ledger.received == 0;
        if !can_be_split && first && self.asked(Design::Rss) {
            return Err(Error::CannotBeSplit { name });
        }
        self.start_measuring(can_be_split)?;
        let distributes = self
            .measure
            .as_ref()
            .is_some_and(|measure| measure.design() == Design::Async);
        if first && distributes && self.asked(Design::Auto) {
            on(Event::Distributed { name: &name });
        }
        let mut reader = self.reader(input);
        self.outputs.new_source();
        self.drive("", &mut reader, on);
        if self.failure.is_some() {
            self.note_failed_source(&reader);
            return Ok(());
        }
        let received = reader.report().received - std::mem::take(&mut self.unwanted);
        self.note_statistics(&reader);
        let (report, layout, way) = (reader.report(), reader.layout(), reader.way());
        self.close(
            received,
            Booked {
                name: &name,
                report,
                layout,
                way,
                is_judged: true,
            },
            on,
        )
    }

    /// Reads all files at once and passes their packets on by time. Equal times keep the order of the files.
    pub fn merged(&mut self, files: &Files<'_>, on: On<'_>) -> Result<(), Error> {
        self.sources = files.names.len();
        self.find_begin(files)?;
        self.start_measuring(true)?;
        let inputs = self.open_together(files, on)?;
        on(Event::Begun {
            bytes: inputs.iter().map(Input::len_hint).sum(),
        });
        self.has_opened = !inputs.is_empty();
        let stages = Arc::clone(&self.stages);
        let mut merged = MergedFiles::new(inputs, stages, self.rejected());
        // Checked before any output is written. Later, the refusal would be an error of one source.
        merged
            .begin()
            .map_err(|why| Error::Refused { name: None, why })?;
        let mut layouts = merged.layouts();
        if layouts.any(|layout| self.first.refusal(layout).is_none()) {
            self.outputs.open();
        }
        drop(layouts);
        self.as_one(merged, None, on)
    }

    /// Reads all files, in any order of packets, and passes their packets on in the order of time.
    pub fn sorted(&mut self, files: &Files<'_>, on: On<'_>) -> Result<(), Error> {
        self.sources = files.names.len();
        self.find_begin(files)?;
        self.start_measuring(true)?;
        let mut sorter = sorting::sorter(&self.stop).keeping(self.reserve);
        let stages = Arc::clone(&self.stages);
        for name in files.names {
            let opened = files.open(name, &files.opening(), &self.stop);
            let Some(input) = self.opened(name, opened, on) else {
                continue;
            };
            let mut check = |layout: &Layout| stages.plan(layout, None).map(drop);
            match sorter.take(input, &mut check, &mut |bytes| {
                on(Event::Progress { bytes })
            }) {
                Err(PlanError::Stopped) => break,
                taken => taken.map_err(|why| Error::Refused { name: None, why })?,
            }
        }
        let (sorted, fault) = sorter.sorted(stages, self.rejected());
        self.as_one(sorted, Some(fault), on)
    }

    /// Passes several sources on as one; `sorted` is the error of a sort, if it was one.
    fn as_one(
        &mut self,
        mut source: MergedFiles,
        sorted: Option<Option<SortFault>>,
        on: On<'_>,
    ) -> Result<(), Error> {
        self.outputs.new_source();
        self.drive("", &mut source, on);
        if self.failure.is_some() {
            self.note_failed_source(&source);
            return Ok(());
        }
        let written = source.layout().cloned();
        let (whole, parts) = source.into_parts();
        if let Some(SourceFault {
            what: SourceError::Plan(why),
            packet: 1,
            ..
        }) = &whole.fault
        {
            return Err(Error::Refused {
                name: None,
                why: why.clone(),
            });
        }
        self.ledger.received += whole.received - std::mem::take(&mut self.unwanted);
        let layouts: Vec<&Layout> = parts
            .iter()
            .filter_map(|part| part.layout.as_ref())
            .collect();
        self.refuse_misfits(&layouts)?;
        let (all, by_time) = if sorted.is_some() {
            ("the sorted sources", "the sorted packets")
        } else {
            ("the merged sources", "the packets by time")
        };
        self.tell_misfits_of_all(
            parts
                .iter()
                .map(|part| (part.name.as_str(), part.layout.as_ref())),
            all,
            on,
        );
        for mut part in parts {
            // A packet after the damage may have been the earliest of all, so the error is reported
            // even if the limit was reached.
            let fault = part.report.fault.take();
            let stats = match &part.layout {
                Some(layout) if sorted.is_none() => stats_of(layout, &part.report),
                _ => std::mem::take(&mut part.stats),
            };
            self.outputs.statistics(&stats);
            self.outputs.remarks(&part.report.remarks.all());
            self.outputs.uncounted(&part.report.counted.uncounted());
            // An output without packets describes the interfaces of the last source.
            if let Some(layout) = &part.layout {
                self.layout = Some(layout.clone());
            }
            let Part {
                name,
                mut report,
                layout,
                way,
                ..
            } = part;
            // If sources are measured as one, the expression needs to fit only one of them.
            let is_judged = self.measure.is_none();
            // Packets are counted once, above. If a run ends early, they may be fewer than the packets read.
            self.delivered += std::mem::take(&mut report.received);
            let source = Booked {
                name: &name,
                report: &report,
                layout: layout.as_ref(),
                way,
                is_judged,
            };
            self.close(0, source, on)?;
            if let Some(fault) = &fault {
                on(Event::Fault { name: &name, fault });
            }
        }
        if let Some(layout) = &written {
            on(Event::Copied { name: all, layout });
        }
        if let Some(fault) = sorted.flatten() {
            on(Event::Unsorted {
                fault: &fault,
                sorted: whole.received,
            });
        }
        if let Some(fault) = &whole.fault {
            on(Event::Fault {
                name: by_time,
                fault,
            });
        }
        Ok(())
    }

    /// Notes the choice of the packets of a record directory, for the summary.
    pub(super) fn note_choice(&mut self, name: &str, layout: Option<&Layout>, has_cut: bool) {
        let Some(layout) = layout.filter(|_| Path::new(name).is_dir()) else {
            return;
        };
        for part in holds_only(layout, has_cut) {
            if !self.holds_only.contains(&part) {
                self.holds_only.push(part);
            }
        }
    }

    /// Refuses an expression that makes no sense for any of these layouts.
    fn refuse_misfits(&mut self, layouts: &[&Layout]) -> Result<(), Error> {
        if self.is_stopped() {
            return Ok(());
        }
        let select = self.stages.select();
        let refusals: Vec<Option<PlanError>> = layouts
            .iter()
            .map(|layout| select.refusal(layout))
            .collect();
        self.fits = refusals.iter().any(Option::is_none);
        match refusals.into_iter().next() {
            Some(Some(why)) if !self.fits => Err(Error::Refused { name: None, why }),
            _ => Ok(()),
        }
    }

    /// Sends an event about packets of several sources, together named `all`, for which an expression makes no sense.
    fn tell_misfits_of_all<'a>(
        &mut self,
        sources: impl Iterator<Item = (&'a str, Option<&'a Layout>)>,
        all: &str,
        on: On<'_>,
    ) {
        let misfits = self.take_misfits();
        let sources: Vec<_> = sources.collect();
        let (name, layout) = match sources[..] {
            [one] => one,
            _ => (all, None),
        };
        on(Event::Misfits {
            name,
            layout,
            misfits: &misfits,
            select: &self.stages.select(),
        });
    }

    /// Opens sources that are read at the same time. **Errors**: more sources than can be open at once, before any is opened.
    fn open_together(&mut self, files: &Files<'_>, on: On<'_>) -> Result<Vec<Input>, Error> {
        let sources = files.names.len() as u64;
        let needed = sources + OTHERS;
        let limit = sys::allow_open_files(needed)?;
        if limit < needed {
            return Err(Error::TooManySources {
                sources,
                limit,
                needed,
            });
        }
        let streams = files
            .names
            .iter()
            .filter(|name| input::comes_in_order(name))
            .count();
        if streams > MOST_STREAMS {
            return Err(Error::TooManyStreams {
                streams: streams as u64,
                most: MOST_STREAMS as u64,
            });
        }
        let mut inputs = Vec::new();
        for name in files.names {
            match files.open(name, &files.opening(), &self.stop) {
                Ok(input) => inputs.push(Input {
                    name: name.as_source(),
                    ..input
                }),
                // The run was stopped while a pipe had no writer.
                Err(_) if self.is_stopped() => return Ok(Vec::new()),
                Err(error) => on(Event::Unopened {
                    name,
                    error: &error,
                }),
            }
        }
        Ok(inputs)
    }
}

/// Returns the interface statistics of a source.
pub(super) fn stats_of(layout: &Layout, report: &Report) -> Vec<(Interface, Statistics)> {
    let stats = report.stats_for_copies(layout).into_iter();
    stats
        .filter_map(|(i, counts)| Some((layout.interfaces.get(i as usize)?.clone(), counts)))
        .collect()
}
