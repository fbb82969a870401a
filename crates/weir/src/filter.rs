//! `weir filter`: show, keep, count or convert what matches.

mod live;

use crate::capture;
use crate::cli::{DirectionArg, FilterArgs};
use crate::emit::{End, FileSettings, FileSink, Lines, PortSink, Sink, Text, Zone, format_for, refuse_terminal};
use crate::interfaces;
use crate::name::Name;
use crate::numbers::{bit_rate, duration, grouped, percent};
use crate::outcome::{Outcome, fault_line, io_words, print, say, say_lost_before, tell};
use crate::port::{self, Port};
use crate::progress::Progress;
use crate::sorting;
use crate::sources::{self, changed_line};
use crate::terminal;
use anyhow::{Context, bail};
use std::ffi::OsStr;
use std::io::{self, IsTerminal};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use weir_io::Input;
use weir_io::output::Rotation;
use weir_io::sys::{self, packet_socket};
use weir_packet::Frame;
use weir_packet::line::{Hex, Style};
use weir_packet::savefile::walk::{Cursor, Visit, walk};
use weir_packet::savefile::{Bytes, Layout, Record};
use weir_packet::time::Shape;
use weir_pipeline::merge::{self, Merge, Next};
use weir_pipeline::reader::Trouble;
use weir_pipeline::select::{Select, Selected, Selection, SplitPart};
use weir_pipeline::{Consumer, Delivery, Options, PlanError, Reader, Report, SourceFault, Way};

/// Runs the command.
pub fn run(mut arguments: FilterArgs) -> anyhow::Result<Outcome> {
    arguments.sources.append(&mut arguments.read);
    let named = arguments.interface.drain(..).map(|name| Name::from(format!("{}{name}", capture::AF_PACKET)));
    arguments.sources.extend(named);
    capture::name_awaited(&mut arguments.sources, &arguments.live);
    let arguments = &arguments;
    if arguments.list_interfaces {
        interfaces::list(&mut io::stdout().lock()).context("the list of interfaces")?;
        return Ok(Outcome::Done);
    }
    check(arguments)?;
    let stop = Arc::new(AtomicBool::new(false));
    sys::stop_on_signals(Arc::clone(&stop));
    if let Some(time) = arguments.duration {
        sys::stop_after(time);
    }
    let live = arguments.sources.iter().any(|source| capture::interface(source).is_some());
    let mut run = Run::new(arguments, stop, live)?;
    let ended = match (live, arguments.sort, arguments.merge) {
        (true, ..) => run.captured()?,
        (false, true, _) => run.sorted()?,
        (false, false, true) => run.merged()?,
        (false, false, false) => run.one_by_one()?,
    };
    run.finish(ended)
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
    let files: Vec<&Name> = outputs.iter().filter(|output| !port::is_port(output)).collect();
    let twice = |i: usize| outputs[..i].contains(&outputs[i]) && port::interface(&outputs[i]).is_some();
    if let Some(i) = (1..outputs.len()).find(|&i| twice(i)) {
        bail!("{} is the name of two outputs: packets would be sent twice", outputs[i]);
    }
    for (i, output) in files.iter().copied().enumerate() {
        if output.is_dash() {
            refuse_terminal()?;
        }
        for source in arguments.sources.iter().filter(|source| !source.is_dash()) {
            let onto = output.is_dash() && std::fs::File::open(source).is_ok_and(|file| is_open_on(&file, output));
            if onto || same_file(source, output) {
                bail!("{output} is both source and output: it would be emptied before it is read");
            }
            if arguments.rotate_size.is_some() && is_numbered(source, output) {
                bail!("-C may come to write {source}, which is a source: give -w another name");
            }
        }
        let same = |other: &&&Name| **other == output && output.utf8() != "/dev/null" || same_place(other, output);
        if files[..i].iter().any(|other| same(&other)) {
            bail!("{output} is the name of two outputs: each needs its own");
        }
        if output.text().is_empty() {
            bail!("the name of an output is empty: write -w FILE, or -w - for standard output");
        }
        if output.is_dash() && arguments.rotate_size.or(arguments.rotate_seconds).is_some() {
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

/// Whether `source` is named as `-C` names the files after `output`.
fn is_numbered(source: &Name, output: &Name) -> bool {
    let bytes = |name: &Name| OsStr::new(name).as_bytes().to_owned();
    bytes(source)
        .strip_prefix(&bytes(output)[..])
        .is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
}

/// A regular file's identity.
fn identity(about: &std::fs::Metadata) -> Option<(u64, u64)> {
    about.is_file().then(|| (about.dev(), about.ino()))
}

fn same_file(a: &Name, b: &Name) -> bool {
    let of = |name: &Name| Path::new(name).metadata().ok().as_ref().and_then(identity);
    of(a).is_some() && of(a) == of(b)
}

/// Whether two names lead to one file, which need not be there yet.
fn same_place(a: &Name, b: &Name) -> bool {
    let place = |name: &Name| {
        let mut path = Path::new(name).to_owned();
        // A link to nothing is followed too: writing would make its target.
        while let Ok(target) = path.read_link() {
            path = path.parent().unwrap_or(Path::new("")).join(target);
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        Some(folder.canonicalize().ok()?.join(path.file_name()?))
    };
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

/// Counts over all sources; each where it happens.
#[derive(Debug, Default)]
struct Totals {
    received: u64,
    passed: u64,
    filtered: u64,
    /// By the kernel.
    dropped: u64,
    bytes: u64,
    reread: u64,
    splits: Vec<(u64, u64)>,
    /// By ports, if there are any.
    sent: Option<u64>,
    thrown_away: Option<u64>,
}

impl Totals {
    fn add(&mut self, part: &Selected) {
        self.passed += part.passed;
        self.filtered += part.filtered;
        self.bytes += part.bytes;
        for (total, split) in self.splits.iter_mut().zip(&part.splits) {
            total.0 += split.passed;
            total.1 += split.bytes;
        }
    }
}

struct Run<'a> {
    arguments: &'a FilterArgs,
    select: Arc<Select>,
    options: Options,
    stop: Arc<AtomicBool>,
    main: Sink,
    splits: Vec<Sink>,
    /// A merge has passed on as many packets as were wanted.
    merged_enough: bool,
    totals: Totals,
    /// Lines about sources that failed, in order; printed at once, and repeated in JSON.
    faults: Vec<String>,
    /// Layout of the last source that was read.
    layout: Option<Layout>,
    progress: Progress,
    begun: Instant,
    /// The sources are interfaces.
    live: bool,
    /// Who drops what there is no room for.
    place: &'static str,
    /// The kernel rejected packets and did not count them.
    uncounted: bool,
    /// The output ended before the capture did.
    left: bool,
    /// How each source was read, for `--stats`.
    notes: Vec<String>,
}

impl<'a> Run<'a> {
    fn new(arguments: &'a FilterArgs, stop: Arc<AtomicBool>, live: bool) -> anyhow::Result<Self> {
        let main = main_sink(arguments)?;
        let splits =
            split_files(arguments).map(|name| named_sink(arguments, &name)).collect::<anyhow::Result<Vec<_>>>()?;
        // A merge has enough after N packets in the order of time, which is not the order of reading.
        let merged = arguments.merge && !arguments.sort || live && arguments.sources.len() > 1;
        let limit = arguments.stop_after.filter(|_| !merged);
        let remember = !matches!(main, Sink::Nowhere) || !splits.is_empty() || limit != arguments.stop_after;
        let select = Arc::new(Select::new(Selection {
            expression: arguments.expression.clone().unwrap_or_default(),
            invert: arguments.invert,
            inner: arguments.inner,
            splits: arguments.split.iter().map(|(_, expression)| expression.clone()).collect(),
            resolve: arguments.resolve,
            remember,
            limit,
            interpret: false,
            stop: Arc::clone(&stop),
        }));
        let workers = match arguments.workers {
            Some(n) => n.into(),
            None => std::thread::available_parallelism().map_or(1, usize::from),
        };
        let cpus = arguments.cpus.as_ref().map_or(Vec::new(), |cpus| cpus.0.clone());
        sources::check_cpus(&cpus)?;
        let totals = Totals { splits: vec![(0, 0); arguments.split.len()], ..Totals::default() };
        Ok(Self {
            arguments,
            select,
            options: Options { workers, cpus, ..Options::default() },
            stop,
            main,
            splits,
            merged_enough: false,
            totals,
            faults: Vec::new(),
            layout: None,
            progress: Progress::new(prints_lines(arguments) && io::stdout().is_terminal()),
            begun: Instant::now(),
            live,
            place: "kernel",
            uncounted: false,
            left: false,
            notes: Vec::new(),
        })
    }

    /// Opens a file to read it; one that cannot be opened is reported and passed over.
    fn open(&mut self, name: &Name) -> Option<(String, Reader<Select>)> {
        let input = self.open_input(name)?;
        Some((input.name.clone(), Reader::new(input, Arc::clone(&self.select), self.options.clone())))
    }

    fn open_input(&mut self, name: &Name) -> Option<Input> {
        match sources::open(name, self.arguments.follow, &self.stop) {
            Ok(input) => {
                self.progress.begin(input.len_hint());
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

    fn one_by_one(&mut self) -> anyhow::Result<Option<End>> {
        for name in &self.arguments.sources {
            let Some((name, mut reader)) = self.open(name) else { continue };
            self.new_source();
            let mut ended = None;
            while ended.is_none()
                && let Some(delivery) = reader.next()
            {
                ended = self.deliver(&delivery, reader.way()).err();
                reader.recycle(delivery.view);
                self.progress.show(reader.report().offset);
                if let Some(End::SourceChanged) = ended {
                    // If it lost bytes, the next step says so; other changes nobody else can tell of.
                    ended = None;
                    if reader.next().is_some() || reader.report().fault.is_none() {
                        self.fault(changed_line(&name));
                    }
                    break;
                }
                if ended.is_some() || self.has_enough() {
                    break;
                }
            }
            self.close(&name, reader.report().received, reader.report(), reader.layout(), reader.way())?;
            if ended.is_some() || self.has_enough() {
                return Ok(ended);
            }
        }
        Ok(None)
    }

    fn has_enough(&self) -> bool {
        self.select.has_enough() || self.merged_enough || self.stop.load(Ordering::Relaxed)
    }

    fn new_source(&mut self) {
        self.main.new_source();
        self.splits.iter_mut().for_each(Sink::new_source);
    }

    fn open_sinks(&mut self) -> Result<(), End> {
        self.main.open()?;
        self.splits.iter_mut().try_for_each(Sink::open)
    }

    /// Passes on what a piece of a source holds.
    fn deliver(&mut self, delivery: &Delivery<Select>, way: Way) -> Result<(), End> {
        let Delivery { current, view, part, .. } = delivery;
        self.totals.add(part);
        self.open_sinks()?;
        let bytes = view.content();
        self.main.packets(&current.layout, bytes, &part.records)?;
        for (sink, split) in self.splits.iter_mut().zip(&part.splits) {
            sink.packets(&current.layout, bytes, &split.records)?;
        }
        // The next packets may be long in coming.
        if way == Way::Stream { self.flush_awaited() } else { Ok(()) }
    }

    fn flush_awaited(&mut self) -> Result<(), End> {
        let mut sinks = std::iter::once(&mut self.main).chain(&mut self.splits);
        sinks.try_for_each(|sink| if sink.is_awaited() { sink.flush() } else { Ok(()) })
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
        say_lost_before(name, report);
        let Some(fault) = fault else { return Ok(()) };
        if let Trouble::Plan(refused) = &fault.what
            && self.totals.received == 0
        {
            match self.arguments.sources.len() {
                1 => bail!("{refused}"),
                _ => bail!("{name}: {refused}"),
            }
        }
        // After an output that ended, or enough packets, nobody asks for the rest.
        if way == Way::Live || !self.has_enough() {
            self.fault(fault_line(name, fault));
        }
        Ok(())
    }

    /// Reads all sources at once and passes their packets on by time. Equal times keep the order of the sources.
    fn merged(&mut self) -> anyhow::Result<Option<End>> {
        let arguments = self.arguments;
        let stop = Arc::clone(&self.stop);
        let inputs = sources::open_together(&arguments.sources, &stop, &mut |line| self.fault(line))?;
        self.progress.begin(inputs.iter().map(Input::len_hint).sum());
        let mut merge = Merge::new(inputs, &self.select, |part| &part.records, &self.options);
        merge.begin(&mut |part| self.totals.add(part));
        // Before anything is written; later it would be a fault of one source.
        for source in merge.sources() {
            if let Some(SourceFault { what: Trouble::Plan(refused), packet: 1, .. }) = &source.reader().report().fault {
                bail!("{refused}");
            }
        }
        let mut ended = if merge.sources().is_empty() { None } else { self.open_sinks().err() };
        let mut last = usize::MAX;
        let mut passed = 0u64;
        while ended.is_none() && !self.has_enough() {
            // The next packets may be long in coming.
            if merge.waits()
                && let Err(end) = self.flush_awaited()
            {
                ended = Some(end);
                break;
            }
            let Some(next) = merge.next(&mut |part| self.totals.add(part)) else { break };
            if next.source != last {
                self.new_source();
                last = next.source;
            }
            let Next { current, part, at, record, .. } = &next;
            ended = emit_record(&current.layout, record, part, *at, &mut self.main, &mut self.splits).err();
            merge.pass();
            passed += 1;
            self.merged_enough = self.arguments.stop_after == Some(passed);
            if passed.is_multiple_of(4096) {
                self.progress.show(merge.offset());
            }
        }
        for source in merge.sources() {
            let reader = source.reader();
            self.close(source.name(), reader.report().received, reader.report(), reader.layout(), reader.way())?;
            if source.is_changed() && reader.report().fault.is_none() {
                self.fault(changed_line(source.name()));
            }
            give_back(source, &mut self.totals);
        }
        Ok(ended)
    }

    /// Reads all sources, and passes their packets on in the order of time, whatever order they were in.
    fn sorted(&mut self) -> anyhow::Result<Option<End>> {
        let mut sorter = sorting::sorter(&self.stop);
        let select = Arc::clone(&self.select);
        for name in &self.arguments.sources {
            let Some(input) = self.open_input(name) else { continue };
            let mut check = |layout: &Layout| select.plan(layout).map(drop);
            let taken = sorter.take(input, &mut check, &mut |offset| self.progress.show(offset));
            match taken {
                Err(PlanError::Stopped) => break,
                taken => taken?,
            }
        }
        let (mut reader, sort_fault) = sorter.sorted(select, self.options.clone());
        self.new_source();
        let mut ended = None;
        while ended.is_none()
            && !self.has_enough()
            && let Some(delivery) = reader.next()
        {
            ended = self.deliver(&delivery, reader.way()).err();
            reader.recycle(delivery.view);
        }
        let (whole, parts) = reader.into_parts();
        self.totals.received += whole.received;
        for mut part in parts {
            // A packet behind the damage may have been the earliest of all: it is told even if there were enough.
            let fault = part.report.fault.take();
            self.close(&part.name, 0, &part.report, part.layout.as_ref(), part.way)?;
            if let Some(fault) = fault {
                self.fault(fault_line(&part.name, &fault));
            }
        }
        if let Some(fault) = &sort_fault {
            self.fault(sorting::fault_line(fault, whole.received));
        }
        if let Some(fault) = &whole.fault {
            self.fault(fault_line("the sorted packets", fault));
        }
        Ok(ended)
    }

    /// Completes the outputs, prints the summary, and says how it went.
    fn finish(mut self, ended: Option<End>) -> anyhow::Result<Outcome> {
        self.progress.clear();
        let Totals { received, passed, filtered, dropped, .. } = self.totals;
        // Each term was counted in its own place. That they agree is what makes the answer one.
        if self.live && !self.uncounted && received != passed + filtered + dropped {
            self.fault(format!(
                "the account does not add up: {received} received, {passed} passed, {filtered} filtered, {dropped} dropped"
            ));
        }
        let mut ends: Vec<End> = ended.into_iter().collect();
        self.finish_ports(&mut ends);
        let mut failed = !self.faults.is_empty();
        let nothing_read = self.layout.is_none();
        let layout = self.layout.take();
        // Without any source there is nothing to write a file about.
        if !nothing_read {
            let main = std::mem::replace(&mut self.main, Sink::Nowhere);
            for sink in std::iter::once(main).chain(std::mem::take(&mut self.splits)) {
                if ends.is_empty() || matches!(sink, Sink::File(_)) {
                    ends.extend(sink.finish(layout.as_ref()).err());
                }
            }
        }
        for end in &ends {
            if let End::Failed(line) = end {
                self.fault(line.clone());
                failed = true;
            }
        }
        let mut pipe_closed = ends.iter().any(|end| matches!(end, End::ClosedPipe));
        if let Err(error) = self.answer() {
            if error.kind() == io::ErrorKind::BrokenPipe {
                pipe_closed = true;
            } else {
                let line = format!("standard output: {}", io_words(&error));
                // Lines may have met it before.
                if !self.faults.contains(&line) {
                    self.fault(line);
                }
                failed = true;
            }
        }
        if !pipe_closed {
            self.summary();
        }
        Ok(if failed { Outcome::Failed } else { Outcome::Done })
    }

    /// Sends what is left, and says what was not sent as it was.
    fn finish_ports(&mut self, ends: &mut Vec<End>) {
        let (mut faults, mut notes) = (Vec::new(), Vec::new());
        for sink in std::iter::once(&mut self.main).chain(&mut self.splits) {
            let Sink::Port(sink) = sink else { continue };
            let port = &mut sink.port;
            ends.extend(port.finish().map_err(End::Failed).err());
            let total = if port.is_null() { &mut self.totals.thrown_away } else { &mut self.totals.sent };
            *total = Some(total.unwrap_or(0) + port.counts().sent);
            faults.extend(port.refusals());
            notes.extend(port.cut_line());
        }
        notes.iter().for_each(|line| say(line));
        faults.into_iter().for_each(|line| self.fault(line));
    }

    /// What `--count` and `--json` print on standard output.
    fn answer(&self) -> io::Result<()> {
        let mut out = String::new();
        let totals = &self.totals;
        if self.arguments.json {
            let mut object = serde_json::json!({
                "received": totals.received,
                "matched": totals.passed,
                "bytes": totals.bytes,
                "dropped": if self.live { serde_json::json!({ self.place: totals.dropped }) } else { serde_json::json!({}) },
                "fault": self.faults.first(),
            });
            if self.uncounted {
                object["filtered"] = serde_json::Value::Null;
            }
            if !self.arguments.split.is_empty() {
                let counts = self.arguments.split.iter().zip(&totals.splits);
                object["splits"] =
                    counts.map(|((name, _), (packets, _))| (name.text(), serde_json::Value::from(*packets))).collect();
            }
            out = format!("{}\n", terminal::json(&object));
        } else if self.arguments.count {
            out = format!("{}\n", totals.passed);
            for ((name, _), (packets, _)) in self.arguments.split.iter().zip(&totals.splits) {
                out.push_str(&format!("{packets} {name}\n"));
            }
        }
        print(&out)
    }

    fn summary(&self) {
        let totals = &self.totals;
        let time = self.begun.elapsed();
        let mut line = format!(
            "{} received, {} matched ({}), {} bytes, {}{}, {}",
            grouped(totals.received),
            grouped(totals.passed),
            percent(totals.passed, totals.received),
            grouped(totals.bytes),
            dropped_words(totals.dropped, self.place),
            [(totals.sent, "sent"), (totals.thrown_away, "thrown away")]
                .map(|(count, what)| count.map_or(String::new(), |count| format!(", {} {what}", grouped(count))))
                .concat(),
            duration(time),
        );
        // To end so is what --follow and --duration are for, and the way to end a capture.
        let endless = self.live || self.arguments.follow || self.arguments.duration.is_some();
        if self.stop.load(Ordering::Relaxed) && !endless {
            line.push_str(", interrupted");
        }
        if self.uncounted {
            line.push_str("; what the kernel rejected is not counted");
        }
        if !self.faults.is_empty() {
            line.push_str(", incomplete: see the fault above");
        }
        line.push('\n');
        if self.arguments.stats {
            self.stats(&mut line, time);
        }
        tell(&line);
    }

    fn stats(&self, out: &mut String, time: Duration) {
        let totals = &self.totals;
        for ((name, _), (packets, bytes)) in self.arguments.split.iter().zip(&totals.splits) {
            out.push_str(&format!("  {name}: {} packets, {} bytes\n", grouped(*packets), grouped(*bytes)));
        }
        for note in &self.notes {
            out.push_str(&format!("  {note}\n"));
        }
        let seconds = time.as_secs_f64().max(1e-9);
        let cpu = Duration::from_nanos(sys::process_cpu_ns());
        out.push_str(&format!(
            "  received {} = passed {} + filtered {} + denied 0 + dropped {}\n",
            grouped(totals.received),
            grouped(totals.passed),
            grouped(totals.filtered),
            grouped(totals.dropped),
        ));
        out.push_str(&format!("  read twice after a wrong guess: {} packets\n", grouped(totals.reread)));
        out.push_str(&format!(
            "  {:.2} Mpps; matched {} (frames without FCS); processor time {}\n",
            totals.received as f64 / seconds / 1e6,
            bit_rate(totals.bytes as f64 * 8.0 / seconds),
            duration(cpu),
        ));
    }
}

/// `0 dropped`, or how many and by whom.
fn dropped_words(dropped: u64, place: &str) -> String {
    let by = if dropped > 0 { format!(": {place}") } else { String::new() };
    format!("{} dropped{by}", grouped(dropped))
}

fn prints_lines(arguments: &FilterArgs) -> bool {
    !arguments.count && arguments.write.is_none() && arguments.split.is_empty()
}

/// The port or file of this name. A port is opened at once: one that cannot be had is told of before anything is read.
fn named_sink(arguments: &FilterArgs, name: &Name) -> anyhow::Result<Sink> {
    if port::is_port(name) {
        let FilterArgs { snaplen, unbuffered: flush_each, .. } = *arguments;
        return Ok(Sink::Port(Box::new(PortSink { port: Port::open(name)?, snaplen, flush_each })));
    }
    Ok(Sink::File(Box::new(FileSink::new(name, file_settings(arguments, name)?))))
}

fn main_sink(arguments: &FilterArgs) -> anyhow::Result<Sink> {
    if let Some(name) = &arguments.write {
        return named_sink(arguments, name);
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

/// Passes on the kept packet at `at`, to its splits too.
fn emit_one(
    layout: &Layout,
    bytes: Bytes<'_>,
    part: &Selected,
    at: u32,
    main: &mut Sink,
    splits: &mut [Sink],
) -> Result<(), End> {
    let record = layout.record(bytes, at as usize).ok_or(End::SourceChanged)?;
    emit_record(layout, &record, part, at, main, splits)
}

/// Passes on the kept packet `record`, found at `at`, to its splits too.
fn emit_record(
    layout: &Layout,
    record: &Record<'_>,
    part: &Selected,
    at: u32,
    main: &mut Sink,
    splits: &mut [Sink],
) -> Result<(), End> {
    main.packet(layout, record)?;
    let wants = |part: &SplitPart| part.records.binary_search(&at).is_ok();
    let mut sinks = splits.iter_mut().zip(&part.splits).filter(|(_, part)| wants(part));
    sinks.try_for_each(|(sink, _)| sink.packet(layout, record))
}

/// Takes what a source read ahead, and a merge did not pass on when it ended, out of the counts again.
fn give_back(source: &merge::Source<Select>, totals: &mut Totals) {
    struct Ahead(u64);
    impl Visit for Ahead {
        fn frames(&mut self, _: usize, records: &[u32], _: &[Frame<'_>]) -> bool {
            self.0 += records.len() as u64;
            true
        }
    }
    let Some((delivery, next)) = source.unfinished() else { return };
    let kept = &delivery.part.records[next..];
    let at = kept[0];
    let (layout, bytes) = (&delivery.current.layout, delivery.view.bytes());
    let wire = |records: &[u32]| -> u64 {
        records.iter().filter_map(|&at| layout.record(bytes, at as usize)).map(|r| u64::from(r.frame.wire_len)).sum()
    };
    let end = (source.reader().report().offset - delivery.view.offset) as usize;
    let mut ahead = Ahead(0);
    walk(layout, bytes, delivery.view.eof, &mut [Cursor::new(at as usize, end)], &mut ahead);
    // In a source that others changed there may be anything.
    let left = kept.len() as u64;
    let ahead = ahead.0.clamp(left, left + delivery.part.filtered);
    totals.received -= ahead;
    totals.passed -= left;
    totals.filtered -= ahead - left;
    totals.bytes -= wire(kept).min(totals.bytes);
    for (total, part) in totals.splits.iter_mut().zip(&delivery.part.splits) {
        let kept = &part.records[part.records.partition_point(|&record| record < at)..];
        total.0 -= kept.len() as u64;
        total.1 -= wire(kept).min(total.1);
    }
}
