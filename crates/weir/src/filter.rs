//! `weir filter`: show, keep, count or convert what matches.

mod account;
mod live;
mod outputs;

use crate::capture;
use crate::claims::{Claims, identity, place};
use crate::cli::{DirectionArg, FilterArgs};
use crate::emit::{FileSettings, FileSink, Lines, PortSink, Sink, Text, Zone, format_for, refuse_terminal};
use crate::interfaces;
use crate::name::Name;
use crate::numbers::grouped;
use crate::outcome::{
    LiveFaults, Outcome, answer, fault_line, io_words, misfit_lines, say, say_left_out, say_lost_before,
};
use crate::port::{self, Port};
use crate::progress::Progress;
use crate::sorting;
use crate::sources;
use account::Totals;
use anyhow::{Context, bail};
use outputs::{Given, Outputs, Place, Rest};
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use weir_io::Input;
use weir_io::input::Opening;
use weir_io::output::Rotation;
use weir_io::sys::{self, packet_socket};
use weir_packet::line::{Hex, Style};
use weir_packet::savefile::Layout;
use weir_packet::time::Shape;
use weir_pipeline::handed::Gone;
use weir_pipeline::merge::Merge;
use weir_pipeline::reader::Trouble;
use weir_pipeline::select::{Misfit, Select, Selected, Selection};
use weir_pipeline::{Consumer, Delivery, Options, PlanError, Reader, Report, SourceFault, Way};

/// Runs the command.
pub fn run(mut arguments: FilterArgs) -> anyhow::Result<Outcome> {
    arguments.sources.append(&mut arguments.read);
    let named = arguments.interface.drain(..).map(|name| Name::from(format!("{}{name}", capture::AF_PACKET)));
    arguments.sources.extend(named);
    capture::name_awaited(&mut arguments.sources, &arguments.live);
    let arguments = &arguments;
    if arguments.list_interfaces {
        return Ok(answer(&interfaces::list().context("the list of interfaces")?));
    }
    check(arguments)?;
    if let (Some(_), Some(_), Some(_)) = (arguments.rotate_size, arguments.rotate_seconds, arguments.rotate_count) {
        say("-W is ignored beside both -C and -G: it limits no files, and only widens the numbers in their names");
    }
    let stop = Arc::new(AtomicBool::new(false));
    sys::stop_on_signals(Arc::clone(&stop));
    if let Some(time) = arguments.duration {
        sys::stop_after(time);
    }
    sources::say_namesakes(&arguments.sources);
    let live = arguments.sources.iter().any(|source| capture::interface(source).is_some());
    let mut run = Run::new(arguments, stop, live)?;
    match (live, arguments.sort, arguments.merge) {
        (true, ..) => run.captured()?,
        (false, true, _) => run.sorted()?,
        (false, false, true) => run.merged()?,
        (false, false, false) => run.one_by_one()?,
    }
    run.finish()
}

/// Refuses what makes no sense before anything is opened.
fn check(arguments: &FilterArgs) -> anyhow::Result<()> {
    if arguments.count && arguments.rotate_size.or(arguments.rotate_seconds).is_some() {
        bail!("--count writes no files to rotate");
    }
    let expression = arguments.expression.as_deref().unwrap_or("");
    if expression.contains(['.', '/']) && Path::new(expression).is_file() {
        bail!(
            "{expression} is a file where the expression should be: weir filter EXPR SOURCE, and '' matches all packets"
        );
    }
    let shows = arguments.link_header || arguments.hex + arguments.hex_ascii > 0;
    if shows && (arguments.write.is_some() || !arguments.split.is_empty()) {
        bail!("-e, -x and -X print packets, and -w and --split write them to files instead: leave one of them out");
    }
    if arguments.follow && arguments.merge {
        bail!("--merge needs the end of each source, and --follow has none");
    }
    if arguments.rotate_count.is_some() && arguments.rotate_size.or(arguments.rotate_seconds).is_none() {
        bail!("-W counts the files of -C or -G: give one of them");
    }
    sources::check(&arguments.sources, arguments.follow)?;
    sources::check_sort(&arguments.sources, arguments.sort)?;
    let outputs: Vec<Name> = arguments.write.iter().cloned().chain(split_files(arguments)).collect();
    for output in outputs.iter().filter(|output| port::is_port(output)) {
        check_port(arguments, output)?;
    }
    sources::check_schemes(&arguments.sources)?;
    outputs.iter().try_for_each(port::check_scheme)?;
    let files: Vec<&Name> = outputs.iter().filter(|output| !port::is_port(output)).collect();
    let twice = |i: usize| outputs[..i].contains(&outputs[i]) && port::interface(&outputs[i]).is_some();
    if let Some(i) = (1..outputs.len()).find(|&i| twice(i)) {
        bail!("{} is the name of two outputs: packets would be sent twice", outputs[i]);
    }
    let rotates = arguments.rotate_size.or(arguments.rotate_seconds).is_some();
    for (i, output) in files.iter().copied().enumerate() {
        if output.is_dash() {
            refuse_terminal()?;
        }
        for source in arguments.sources.iter().filter(|source| !source.is_dash()) {
            let onto = output.is_dash() && std::fs::File::open(source).is_ok_and(|file| is_open_on(&file, output));
            if onto || same_file(source, output) {
                bail!("{output} is both source and output: it would be emptied before it is read");
            }
            if rotates && is_numbered(source, output) {
                bail!("-C or -G may come to write {source}, which is a source: give -w another name");
            }
        }
        let same = |other: &&&Name| **other == output && output.utf8() != "/dev/null" || same_place(other, output);
        if files[..i].iter().any(|other| same(&other)) {
            bail!("{output} is the name of two outputs: each needs its own");
        }
        let numbered = |other: &&&Name| is_numbered(other, output) || is_numbered(output, other);
        if let Some(other) = files[..i].iter().find(numbered).filter(|_| rotates) {
            bail!("{other} and {output}: -C and -G number the files of an output, so that both come to one name");
        }
        if output.text().is_empty() {
            bail!("the name of an output is empty: write -w FILE, or -w - for standard output");
        }
        if output.is_dash() && rotates {
            bail!("-C and -G make files, and standard output is none: give -w the name of a file");
        }
        if arguments.sources.iter().any(Name::is_dash) && is_open_on(&io::stdin(), output) {
            bail!("{output} is both standard input and output: it would be emptied before it is read");
        }
    }
    Ok(())
}

/// Refuses what cannot be done with a port.
fn check_port(arguments: &FilterArgs, port: &Name) -> anyhow::Result<()> {
    if arguments.rotate_size.or(arguments.rotate_seconds).is_some() && arguments.write.as_ref() == Some(port) {
        bail!("-C and -G make files, and {port} is none: give -w the name of a file");
    }
    // A packet socket sees what its interface sends, and on the loopback receives it too.
    let Some(interface) = port::interface(port) else { return Ok(()) };
    let harmless = arguments.live.direction == DirectionArg::In && interface != "lo";
    let sees = |source: &&Name| {
        let received_only = ["af_xdp:", "dpdk:"].iter().any(|way| source.utf8().starts_with(way));
        let named = capture::interface(source).filter(|_| !received_only);
        named.is_some_and(|named| named == interface || named == packet_socket::ANY)
    };
    if let Some(source) = arguments.sources.iter().find(sees).filter(|_| !harmless) {
        bail!("{source} captures what {port} sends, which would be sent again and again: add -Q in");
    }
    Ok(())
}

/// Whether `other` is named as rotation names the files after `output`.
fn is_numbered(other: &Name, output: &Name) -> bool {
    let bytes = |name: &Name| place(Path::new(name)).map(|place| place.into_os_string().into_vec());
    let (Some(other), Some(output)) = (bytes(other), bytes(output)) else { return false };
    other.strip_prefix(&output[..]).is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
}

fn same_file(a: &Name, b: &Name) -> bool {
    let of = |name: &Name| Path::new(name).metadata().ok().as_ref().and_then(identity);
    of(a).is_some() && of(a) == of(b)
}

/// Whether two names lead to one file, which need not be there yet.
fn same_place(a: &Name, b: &Name) -> bool {
    let place = |name: &Name| place(Path::new(name));
    same_file(a, b) || place(a).is_some_and(|a| Some(a) == place(b)) && !a.utf8().starts_with("/dev/")
}

/// Whether the regular file behind an open descriptor is the one that `output` names (or standard output is).
fn is_open_on(open: &impl AsFd, output: &Name) -> bool {
    let of = |fd: std::os::fd::BorrowedFd<'_>| {
        let file = std::fs::File::from(fd.try_clone_to_owned().ok()?);
        identity(&file.metadata().ok()?)
    };
    let written = match output.is_dash() {
        true => of(io::stdout().as_fd()),
        false => Path::new(output).metadata().ok().as_ref().and_then(identity),
    };
    written.is_some() && written == of(open.as_fd())
}

fn split_files(arguments: &FilterArgs) -> impl Iterator<Item = Name> {
    let names = if arguments.count { &[][..] } else { &arguments.split[..] };
    names.iter().map(|(name, _)| {
        let bare = Path::new(name).extension().is_none() && !name.is_dash() && !port::is_port(name);
        if bare { Name::from([OsStr::new(name), OsStr::new(".pcapng")].join(OsStr::new(""))) } else { name.clone() }
    })
}

struct Run<'a> {
    arguments: &'a FilterArgs,
    select: Arc<Select>,
    options: Options,
    stop: Arc<AtomicBool>,
    outputs: Outputs,
    /// Packets that were read behind the last that an output took.
    unwanted: u64,
    /// A source changed while it was read: packets that were counted are not there any more.
    changed: bool,
    /// Packets of the current source that expressions make no sense for.
    misfits: Vec<Misfit>,
    /// The expression makes sense for a source.
    fits: bool,
    /// A merge has passed on as many packets as were wanted.
    merged_enough: bool,
    totals: Totals,
    /// Lines about sources that failed, in order; printed at once, and repeated in JSON.
    faults: Vec<String>,
    /// Layout of the last source that was read.
    layout: Option<Layout>,
    /// A source could be opened.
    has_opened: bool,
    progress: Progress,
    begun: Instant,
    /// The sources are interfaces.
    live: bool,
    /// Who drops what there is no room for.
    place: &'static str,
    /// The kernel rejected packets and did not count them.
    uncounted: bool,
    /// Faults of captures that were not said yet.
    live_faults: LiveFaults,
    /// How each source was read, for `--stats`.
    notes: Vec<String>,
}

impl<'a> Run<'a> {
    fn new(arguments: &'a FilterArgs, stop: Arc<AtomicBool>, live: bool) -> anyhow::Result<Self> {
        let name = arguments.write.as_ref().map_or_else(|| Name::from("-").as_output(), Name::as_output);
        let claims = Arc::new(Claims::of(&arguments.sources));
        let main = (name, main_sink(arguments, &claims)?);
        let split = |name: Name| named_sink(arguments, &name, &claims).map(|sink| (name.as_output(), sink));
        let splits = split_files(arguments).map(split).collect::<anyhow::Result<Vec<_>>>()?;
        let outputs = Outputs::new(main, splits);
        // A merge has enough after N packets in the order of time, which is not the order of reading.
        let merged = arguments.merge && !arguments.sort || live && arguments.sources.len() > 1;
        let limit = arguments.stop_after.filter(|_| !merged);
        let remember = !outputs.are_none() || limit != arguments.stop_after;
        let select = Arc::new(Select::new(Selection {
            expression: arguments.expression.clone().unwrap_or_default(),
            invert: arguments.invert,
            inner: arguments.inner,
            splits: arguments.split.iter().map(|(_, expression)| expression.clone()).collect(),
            resolve: arguments.resolve,
            remember,
            limit,
            at_once: false,
            interpret: false,
            stop: Arc::clone(&stop),
        }));
        let workers = arguments.workers.map_or_else(weir_pipeline::processors, usize::from);
        let cpus = arguments.cpus.as_ref().map_or(Vec::new(), |cpus| cpus.0.clone());
        sources::check_cpus(&cpus)?;
        let totals = Totals { splits: vec![(0, 0); arguments.split.len()], ..Totals::default() };
        Ok(Self {
            arguments,
            select,
            options: Options { workers, cpus, ..Options::default() },
            stop,
            outputs,
            unwanted: 0,
            changed: false,
            misfits: Vec::new(),
            fits: false,
            merged_enough: false,
            totals,
            faults: Vec::new(),
            layout: None,
            has_opened: live,
            progress: Progress::new(prints_lines(arguments) && io::stdout().is_terminal()),
            begun: Instant::now(),
            live,
            place: "kernel",
            uncounted: false,
            live_faults: LiveFaults::default(),
            notes: Vec::new(),
        })
    }

    /// How sources are opened that are read to their end.
    fn opening(&self) -> Opening<'static> {
        Opening { zstd_window: self.arguments.zstd_window, ..Opening::default() }
    }

    /// A reader of an opened file.
    fn reader(&mut self, opened: Result<Input, String>) -> Option<(String, Reader<Select>)> {
        let input = self.opened(opened)?;
        Some((input.name.clone(), Reader::new(input, Arc::clone(&self.select), self.options.clone())))
    }

    /// A file that could be opened; one that could not is reported and passed over.
    fn opened(&mut self, opened: Result<Input, String>) -> Option<Input> {
        match opened {
            Ok(input) => {
                self.progress.begin(input.len_hint());
                self.has_opened = true;
                Some(input)
            }
            // Told to end while a pipe had no writer.
            Err(_) if self.stop.load(Ordering::Relaxed) => None,
            Err(line) => {
                self.fault(line);
                None
            }
        }
    }

    fn fault(&mut self, line: String) {
        self.progress.clear();
        say(&line);
        self.faults.push(line);
    }

    fn one_by_one(&mut self) -> anyhow::Result<()> {
        let FilterArgs { sources, follow, zstd_window, .. } = self.arguments;
        for name in sources {
            let followed = follow.then(|| sources::followed(name, &self.stop));
            let opening = Opening { follow: followed.as_ref(), zstd_window: *zstd_window };
            let mut opened = Some(sources::open(name, &opening, &self.stop));
            // Each of the files that have a followed name is a source of its own.
            while let Some((shown, reader)) = opened.take().and_then(|opened| self.reader(opened)) {
                self.read(&shown, reader)?;
                if self.has_enough() {
                    return Ok(());
                }
                opened = sources::next(name, &opening);
            }
        }
        Ok(())
    }

    /// Passes on what a source holds.
    fn read(&mut self, name: &str, mut reader: Reader<Select>) -> anyhow::Result<()> {
        self.outputs.new_source();
        while let Some(delivery) = reader.next() {
            let gone = self.deliver(&delivery, reader.way());
            reader.recycle(delivery.view);
            self.progress.show(reader.report().offset);
            if let Some(gone) = gone {
                reader.gone(gone);
            }
            if self.has_enough() {
                break;
            }
        }
        let received = reader.report().received.saturating_sub(std::mem::take(&mut self.unwanted));
        self.note_told(&reader);
        self.close(name, received, reader.report(), reader.layout(), reader.way())
    }

    fn has_enough(&self) -> bool {
        self.select.has_enough() || self.merged_enough || self.outputs.are_over() || self.stop.load(Ordering::Relaxed)
    }

    /// Passes on what a piece of a source holds, and counts what was there to be passed on. Tells of what was not.
    fn deliver(&mut self, delivery: &Delivery<Select>, way: Way) -> Option<Gone> {
        let Delivery { current, part, .. } = delivery;
        self.take_up(part);
        self.fits |= current.plan.fits();
        // Until the expression makes sense for a link type it may have to be refused, and nothing is written.
        if self.fits {
            self.outputs.open();
        }
        let (given, lost) = self.outputs.piece(delivery);
        // The next packets may be long in coming.
        if way == Way::Stream {
            self.outputs.flush_awaited();
        }
        self.say_output_faults();
        let gone = lost.map(|(gone, rest)| {
            self.totals.take_back(&rest);
            gone
        });
        if let Given::Until(place) = given {
            let rest = Rest::of(delivery, place);
            self.totals.take_back(&rest);
            self.unwanted += rest.received;
        }
        gone
    }

    /// Says which outputs have failed.
    fn say_output_faults(&mut self) {
        for line in self.outputs.take_faults() {
            self.fault(line);
        }
    }

    /// Notes what a source says of its capture, which holds for a copy of it too.
    fn note_told(&mut self, reader: &Reader<Select>) {
        let Some(layout) = reader.layout() else { return };
        let told = reader.report().told_by_interface().into_iter();
        let told = told.map(|(i, counts)| (layout.interfaces[i as usize].clone(), counts));
        self.outputs.statistics(&told.collect::<Vec<_>>());
    }

    /// Books a source that was read to its end, or as far as was wanted.
    fn close(
        &mut self,
        name: &str,
        received: u64,
        report: &Report,
        layout: Option<&Layout>,
        way: Way,
    ) -> anyhow::Result<()> {
        let Report { reread, offset, fault, .. } = report;
        self.totals.received += received;
        self.totals.reread += reread;
        if let Some(layout) = layout {
            self.layout = Some(layout.clone());
            if self.outputs.have_files() {
                self.progress.clear();
                say_left_out(name, layout);
            }
        }
        if self.arguments.stats {
            let way = sources::way_words(way);
            let code = if self.select.is_native() { "native code" } else { "interpreted" };
            self.notes.push(match &report.live {
                Some(counts) => format!("{}, {code}", capture::standing_line(name, counts)),
                None => format!("{name}: {} bytes, {way}, {code}", grouped(*offset)),
            });
        }
        self.progress.clear();
        let misfits = std::mem::take(&mut self.misfits);
        if let Some(layout) = layout {
            let refused = self.select.refusal(layout).filter(|_| !self.stop.load(Ordering::Relaxed));
            if let Some(refused) = refused {
                if !self.fits {
                    bail!("{refused}");
                }
                self.fault(format!("{name}: {refused}"));
                return Ok(());
            }
            say_lost_before(name, report);
            misfit_lines(name, Some(layout), &self.select, &misfits).iter().for_each(|line| say(line));
        }
        let Some(fault) = fault else { return Ok(()) };
        if let Trouble::Plan(refused) = &fault.what
            && self.totals.received == 0
        {
            match self.arguments.sources.len() {
                1 => bail!("{refused}"),
                _ => bail!("{name}: {refused}"),
            }
        }
        // After an output that ended, or enough packets, nobody asks for the rest; packets that were lost are another matter.
        let lost = matches!(fault.what, Trouble::Shrank { .. } | Trouble::Unreadable | Trouble::Changed);
        if way == Way::Live {
            self.live_faults.add(name, fault);
        } else if lost || !self.has_enough() {
            self.fault(fault_line(name, fault));
        }
        Ok(())
    }

    /// Reads all sources at once and passes their packets on by time. Equal times keep the order of the sources.
    fn merged(&mut self) -> anyhow::Result<()> {
        let arguments = self.arguments;
        let stop = Arc::clone(&self.stop);
        let (opening, instead) = (self.opening(), "--sort takes any number of files");
        let inputs =
            sources::open_together(&arguments.sources, &opening, &stop, instead, &mut |line| self.fault(line))?;
        self.progress.begin(inputs.iter().map(Input::len_hint).sum());
        self.has_opened = !inputs.is_empty();
        let select = Arc::clone(&self.select);
        let mut merge = Merge::new(inputs, &select, |part| &part.records);
        merge.begin(&mut |part| self.take_up(part));
        // Before anything is written; later it would be a fault of one source.
        for source in merge.sources() {
            if let Some(SourceFault { what: Trouble::Plan(refused), packet: 1, .. }) = &source.reader().report().fault {
                bail!("{refused}");
            }
        }
        let layouts = |merge: &Merge<Select>| -> Vec<Layout> {
            merge.sources().iter().filter_map(|source| source.reader().layout().cloned()).collect()
        };
        let refusals = |merge: &Merge<Select>| -> Vec<Option<PlanError>> {
            layouts(merge).iter().map(|layout| select.refusal(layout)).collect()
        };
        if refusals(&merge).iter().any(Option::is_none) {
            self.outputs.open();
        }
        // How far the current piece of each source was passed on.
        let mut places = vec![Place::default(); merge.sources().len()];
        let (mut last, mut passed) = (usize::MAX, 0u64);
        while !self.has_enough() {
            // The next packets may be long in coming.
            if merge.waits() {
                self.outputs.flush_awaited();
                if self.outputs.are_over() {
                    break;
                }
            }
            let Some(next) = merge.next(&mut |part| self.take_up(part)) else { break };
            if next.source != last {
                self.outputs.new_source();
                last = next.source;
            }
            let place = &mut places[next.source];
            if next.number == 0 {
                *place = Place::default();
            }
            // Behind the last file it is given back with all else that was read ahead.
            if let Given::Until(_) = self.outputs.packet(&next.current.layout, &next.record, next.part, place) {
                break;
            }
            merge.pass();
            passed += 1;
            self.merged_enough = self.arguments.stop_after == Some(passed);
            if passed.is_multiple_of(4096) {
                self.progress.show(merge.offset());
            }
        }
        self.say_output_faults();
        if !self.stop.load(Ordering::Relaxed) {
            let refusals = refusals(&merge);
            self.fits = refusals.iter().any(Option::is_none);
            if let (false, Some(Some(refused))) = (self.fits, refusals.first()) {
                bail!("{refused}");
            }
        }
        let misfits = std::mem::take(&mut self.misfits);
        let (name, layout) = match merge.sources() {
            [one] => (one.name(), one.reader().layout()),
            _ => ("the merged sources", None),
        };
        misfit_lines(name, layout, &self.select, &misfits).iter().for_each(|line| say(line));
        for (source, place) in merge.sources().iter().zip(places) {
            let rest = source.unfinished().map_or_else(Rest::default, |(delivery, next)| {
                Rest::of(delivery, if next == 0 { Place::default() } else { place })
            });
            self.totals.take_back(&rest);
            let reader = source.reader();
            let received = reader.report().received.saturating_sub(rest.received);
            self.note_told(reader);
            self.close(source.name(), received, reader.report(), reader.layout(), reader.way())?;
        }
        Ok(())
    }

    /// Reads all sources, and passes their packets on in the order of time, whatever order they were in.
    fn sorted(&mut self) -> anyhow::Result<()> {
        let mut sorter = sorting::sorter(&self.stop);
        let select = Arc::clone(&self.select);
        for name in &self.arguments.sources {
            let Some(input) = self.opened(sources::open(name, &self.opening(), &self.stop)) else { continue };
            let mut check = |layout: &Layout| select.plan(layout, None).map(drop);
            let taken = sorter.take(input, &mut check, &mut |offset| self.progress.show(offset));
            match taken {
                Err(PlanError::Stopped) => break,
                taken => taken?,
            }
        }
        let (mut reader, sort_fault) = sorter.sorted(select, self.options.clone());
        self.outputs.new_source();
        while !self.has_enough()
            && let Some(delivery) = reader.next()
        {
            let gone = self.deliver(&delivery, reader.way());
            reader.recycle(delivery.view);
            if let Some(gone) = gone {
                reader.gone(gone);
            }
        }
        let written = reader.layout().cloned();
        let (whole, parts) = reader.into_parts();
        self.totals.received += whole.received - std::mem::take(&mut self.unwanted);
        if !self.stop.load(Ordering::Relaxed) {
            let layouts = parts.iter().filter_map(|part| part.layout.as_ref());
            let refusals: Vec<Option<PlanError>> = layouts.map(|layout| self.select.refusal(layout)).collect();
            self.fits = refusals.iter().any(Option::is_none);
            if let (false, Some(Some(refused))) = (self.fits, refusals.first()) {
                bail!("{refused}");
            }
        }
        let misfits = std::mem::take(&mut self.misfits);
        let (name, layout) = match &parts[..] {
            [one] => (one.name.as_str(), one.layout.as_ref()),
            _ => ("the sorted sources", None),
        };
        misfit_lines(name, layout, &self.select, &misfits).iter().for_each(|line| say(line));
        for mut part in parts {
            // A packet behind the damage may have been the earliest of all: it is told even if there were enough.
            let fault = part.report.fault.take();
            self.outputs.statistics(&part.told);
            self.close(&part.name, 0, &part.report, part.layout.as_ref(), part.way)?;
            if let Some(fault) = fault {
                self.fault(fault_line(&part.name, &fault));
            }
        }
        if let Some(layout) = written.filter(|_| self.outputs.have_files()) {
            say_left_out("the sorted sources", &layout);
        }
        if let Some(fault) = &sort_fault {
            self.fault(sorting::fault_line(fault, whole.received));
        }
        if let Some(fault) = &whole.fault {
            self.fault(fault_line("the sorted packets", fault));
        }
        Ok(())
    }

    /// Counts what a piece of a source holds.
    fn take_up(&mut self, part: &Selected) {
        self.totals.add(part);
        part.misfits.iter().for_each(|misfit| Misfit::add(&mut self.misfits, *misfit));
    }

    /// Completes the outputs, prints the summary, and says how it went.
    fn finish(mut self) -> anyhow::Result<Outcome> {
        self.progress.clear();
        let Totals { received, passed, filtered, dropped, not_taken, .. } = self.totals;
        let dropped = dropped + not_taken;
        // Each term was counted in its own place. That they agree is what makes the answer one.
        if !self.uncounted && !self.changed && received != passed + filtered + dropped {
            self.fault(format!(
                "the account does not add up: {received} received, {passed} passed, {filtered} filtered, {dropped} dropped"
            ));
        }
        let layout = self.layout.take();
        self.outputs.finish(layout.as_ref());
        self.finish_ports();
        self.say_output_faults();
        self.outputs.time_lines().iter().for_each(|line| say(line));
        if !self.changed {
            let splits = self.totals.splits.iter().map(|split| split.0);
            for line in self.outputs.discrepancies(passed, splits) {
                self.fault(line);
            }
        }
        let mut closed = self.outputs.are_closed();
        // Behind a line that was cut an object would not be read as one.
        let answered = if self.outputs.have_cut_lines() { Ok(()) } else { self.answer() };
        if let Err(error) = answered {
            if error.kind() == io::ErrorKind::BrokenPipe {
                closed = true;
            } else {
                self.fault(format!("standard output: {}", io_words(&error)));
            }
        }
        if !closed {
            self.summary();
        }
        Ok(if self.faults.is_empty() { Outcome::Done } else { Outcome::Failed })
    }

    /// Says what ports did not send as it was.
    fn finish_ports(&mut self) {
        let (mut faults, mut notes) = (Vec::new(), Vec::new());
        for sink in self.outputs.sinks() {
            let Sink::Port(sink) = sink else { continue };
            let port = &sink.port;
            let total = if port.is_null() { &mut self.totals.thrown_away } else { &mut self.totals.sent };
            *total = Some(total.unwrap_or(0) + port.counts().sent);
            faults.extend(port.refusals());
            notes.extend(port.cut_line());
        }
        notes.iter().for_each(|line| say(line));
        faults.into_iter().for_each(|line| self.fault(line));
    }
}

fn prints_lines(arguments: &FilterArgs) -> bool {
    !arguments.count && arguments.write.is_none() && arguments.split.is_empty()
}

/// The port or file of this name. A port is opened at once: one that cannot be had is told of before anything is read.
fn named_sink(arguments: &FilterArgs, name: &Name, claims: &Arc<Claims>) -> anyhow::Result<Sink> {
    if port::is_port(name) {
        let FilterArgs { snaplen, unbuffered: flush_each, .. } = *arguments;
        return Ok(Sink::Port(Box::new(PortSink { port: Port::open(name)?, snaplen, flush_each })));
    }
    Ok(Sink::File(Box::new(FileSink::new(name, file_settings(arguments, name)?, claims))))
}

fn main_sink(arguments: &FilterArgs, claims: &Arc<Claims>) -> anyhow::Result<Sink> {
    if let Some(name) = &arguments.write {
        return named_sink(arguments, name, claims);
    }
    if arguments.count || !arguments.split.is_empty() {
        return Ok(Sink::Nowhere);
    }
    let hex = match (arguments.hex, arguments.hex_ascii) {
        (0, 0) => Hex::None,
        (1, _) => Hex::Hex,
        (2.., _) => Hex::FrameHex,
        (0, 1) => Hex::HexAscii,
        (0, _) => Hex::FrameHexAscii,
    };
    let shape = match arguments.time {
        0 => Shape::Clock,
        1 => Shape::None,
        2 => Shape::Epoch,
        4 => Shape::DateClock,
        _ => bail!("-t may be given 1, 2 or 4 times: -t none, -tt seconds since 1970, -tttt date and time"),
    };
    let text = Text {
        style: Style { link_header: arguments.link_header, hex },
        shape,
        zone: Zone::new(arguments.utc),
        snaplen: arguments.snaplen,
        json: arguments.json,
    };
    let flush_each = arguments.unbuffered || io::stdout().is_terminal();
    Ok(Sink::Lines(Lines::new(text, flush_each)))
}

fn file_settings(arguments: &FilterArgs, name: &Name) -> anyhow::Result<FileSettings> {
    Ok(FileSettings {
        format: format_for(name)?,
        snaplen: arguments.snaplen,
        flush_each: arguments.unbuffered,
        rotation: Rotation {
            size: arguments.rotate_size,
            seconds: arguments.rotate_seconds,
            count: arguments.rotate_count,
        },
        utc: arguments.utc,
    })
}
