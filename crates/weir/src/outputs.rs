//! Outputs of a run: checks of their names before anything is opened, and their sinks.

use crate::capture;
use crate::cli::names::NameArgs;
use crate::cli::{DirectionArg, OutputArgs, RewriteArgs, SplitByArg};
use crate::ctl;
use crate::emit::refuse_terminal;
use crate::firewall;
use crate::outcome::{say, say_plain};
use crate::port::{self, PortSink};
use crate::programs::{Flag, Programs};
use crate::sources;
use crate::walls::Walls;
use anyhow::bail;
use std::ffi::OsStr;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use weir_engine::claims::{Claims, identity, is_part_of, place, record_of};
use weir_engine::dedup::Within;
use weir_engine::file::{FileSettings, FileSink};
use weir_engine::name::Name;
use weir_engine::output_changes::OutputSlot;
use weir_engine::outputs::Target;
use weir_engine::provenance::{Chosen, Provenance};
use weir_engine::records::Query;
use weir_engine::rewrite::Rewrite;
use weir_engine::sink::Sink;
use weir_engine::split_by::{self, SplitBySink};
use weir_io::output::{Finished, Rotation};
use weir_io::reserve::Reserve;
use weir_io::sys::packet_socket;
use weir_messages::absent::directory_of;
use weir_messages::errors::quoted;
use weir_messages::measured::proto_name;
use weir_messages::records::{lost_words, query_comments};
use weir_messages::sources::format_for;
use weir_packet::flow::Tunnels;
use weir_packet::savefile::Direction;
use weir_pipeline::select::{Selection, seconds};

impl OutputArgs {
    /// Whether an output is a series of files.
    pub fn rotates(&self) -> bool {
        self.rotate_size.or(self.rotate_seconds).is_some()
    }

    /// Whether packets are written to any file or port.
    pub fn writes(&self) -> bool {
        self.write.is_some() || !self.split.is_empty()
    }

    /// Expressions of the splits.
    pub fn expressions(&self) -> Vec<String> {
        self.split
            .iter()
            .map(|(_, expression)| expression.clone())
            .collect()
    }

    /// Starts the process that runs the program of `-z`, if there is one, before the sandbox is in
    /// force.
    pub fn programs(&self, walls: &Walls) -> anyhow::Result<Option<Arc<Mutex<Programs>>>> {
        let start = |program| Programs::start(Flag::Finished, program, walls);
        Ok(self
            .program
            .as_ref()
            .map(start)
            .transpose()?
            .map(Mutex::new)
            .map(Arc::new))
    }

    /// Changes of the packets that are printed, written or sent. **Errors**: the key of other addresses cannot be read.
    pub fn rewrite(&self) -> anyhow::Result<Rewrite> {
        Ok(Rewrite {
            shift_ns: self.rewriting.shift.unwrap_or(0),
            anonymizer: self.rewriting.anonymize.anonymizer()?,
            headers: false,
        })
    }

    /// Refuses changes of packets if none are `written` or printed.
    pub fn check_rewriting(&self, written: bool) -> anyhow::Result<()> {
        let RewriteArgs { shift, anonymize } = &self.rewriting;
        let asked = [
            ("--shift", "times", shift.is_some()),
            ("--anonymize", "addresses", anonymize.key.is_some()),
        ];
        if let Some((flag, what, _)) = asked.iter().find(|(.., is_asked)| *is_asked && !written) {
            bail!(
                "{flag} changes {what} of packets that are written, and none are: give -w FILE, or leave it out"
            );
        }
        Ok(())
    }

    /// Refuses `-W` and `--overwrite` without `-C` or `-G`, and `-z` without a file.
    pub fn check_rotation(&self, written: bool) -> anyhow::Result<()> {
        if let (Some(_), Some(name)) = (self.split_by, &self.write)
            && (name.is_dash() || port::is_port(name))
        {
            bail!("--split-by makes files, and {name} is none: give -w the name of a file");
        }
        if self.overwrite && !self.rotates() {
            bail!(
                "--overwrite is for the files of -C and -G: a single file is always emptied first"
            );
        }
        let mut files = self.write.iter().cloned().chain(self.split_files(written));
        if self.program.is_some() && !files.any(|name| !port::is_port(&name) && !name.is_dash()) {
            bail!(
                "-z runs a program for each complete file, and no output is a file: give -w FILE"
            );
        }
        if self.rotate_count.is_some() && !self.rotates() {
            bail!("-W counts the files of -C or -G: give one of them");
        }
        Ok(())
    }

    /// The line about the first output whose directory does not exist, or that is a directory.
    pub fn absent_directory(&self, written: bool) -> Option<String> {
        let mut files = self.write.iter().cloned().chain(self.split_files(written));
        files.find_map(|name| absent_directory(&name))
    }

    /// Reports options that are ignored.
    pub fn say_ignored(&self) {
        if let (Some(_), Some(_), Some(_)) =
            (self.rotate_size, self.rotate_seconds, self.rotate_count)
        {
            say(
                "-W is ignored beside both -C and -G: it limits no files, and only widens the numbers in their names",
            );
        }
    }

    /// Refuses to write onto a file of rules, of an expression or of a set, and rules from standard
    /// input next to a capture.
    pub fn check_read(
        &self,
        written: bool,
        (sources, rules): (&[Name], Option<&Name>),
        filter_file: Option<&Name>,
        names: &NameArgs,
    ) -> anyhow::Result<()> {
        let sets = names.set.iter().map(|set| &set.file);
        let read = rules.into_iter().chain(filter_file).chain(sets);
        for output in self.write.iter().cloned().chain(self.split_files(written)) {
            if let Some(file) = read.clone().find(|file| same_file(file, &output)) {
                bail!("{file} is both an output and a file that is read: it would be emptied");
            }
        }
        firewall::check_input(rules, sources)
    }

    /// Refuses contradictory outputs, and outputs that would overwrite a source. Splits are
    /// `written`, or only counted.
    pub fn check(
        &self,
        sources: &[Name],
        direction: DirectionArg,
        written: bool,
    ) -> anyhow::Result<()> {
        let outputs: Vec<Name> = self
            .write
            .iter()
            .cloned()
            .chain(self.split_files(written))
            .collect();
        for output in outputs.iter().filter(|output| port::is_port(output)) {
            self.check_port(sources, direction, output)?;
        }
        sources::check_schemes(sources)?;
        outputs.iter().try_for_each(port::check_scheme)?;
        let files: Vec<&Name> = outputs
            .iter()
            .filter(|output| !port::is_port(output))
            .collect();
        let twice =
            |i: usize| outputs[..i].contains(&outputs[i]) && port::interface(&outputs[i]).is_some();
        if let Some(i) = (1..outputs.len()).find(|&i| twice(i)) {
            bail!(
                "{} is the name of two outputs: packets would be sent twice",
                outputs[i]
            );
        }
        let rotates = self.rotates();
        for (i, output) in files.iter().copied().enumerate() {
            if output.is_dash() {
                refuse_terminal()?;
            }
            for source in sources.iter().filter(|source| !source.is_dash()) {
                let onto = output.is_dash()
                    && std::fs::File::open(source).is_ok_and(|file| is_open_on(&file, output));
                if onto || same_file(source, output) {
                    bail!(
                        "{output} is both source and output: it would be emptied before it is read"
                    );
                }
                if !output.is_dash() && is_part_of(Path::new(source), Path::new(output)) {
                    bail!(
                        "{output} is part of {source}, a record that is read: write to another directory"
                    );
                }
                if rotates && is_numbered(source, output) {
                    bail!(
                        "-C or -G may come to write {source}, which is a source: give -w another name"
                    );
                }
            }
            if !output.is_dash() {
                check_file(output, rotates)?;
            }
            let same = |other: &&&Name| {
                **other == output && output.utf8() != "/dev/null" || same_place(other, output)
            };
            if files[..i].iter().any(|other| same(&other)) {
                bail!("{output} is the name of two outputs: each needs its own");
            }
            let numbered =
                |other: &&&Name| is_numbered(other, output) || is_numbered(output, other);
            if let Some(other) = files[..i].iter().find(numbered).filter(|_| rotates) {
                bail!(
                    "{other} and {output}: -C and -G number the files of an output, so that both come to one name"
                );
            }
            if output.text().is_empty() {
                bail!("the name of an output is empty: write -w FILE, or -w - for standard output");
            }
            if output.is_dash() && rotates {
                bail!(
                    "-C and -G make files, and standard output is none: give -w the name of a file"
                );
            }
            if sources.iter().any(Name::is_dash) && is_open_on(&io::stdin(), output) {
                bail!(
                    "{output} is both standard input and output: it would be emptied before it is read"
                );
            }
        }
        Ok(())
    }

    /// Refuses rotation to a port, and a port whose packets would be captured again.
    fn check_port(
        &self,
        sources: &[Name],
        direction: DirectionArg,
        port: &Name,
    ) -> anyhow::Result<()> {
        if self.rotates() && self.write.as_ref() == Some(port) {
            bail!("-C and -G make files, and {port} is none: give -w the name of a file");
        }
        // A packet socket sees what its interface sends. On the loopback interface it receives that too.
        let Some(interface) = port::interface(port) else {
            return Ok(());
        };
        let harmless = direction == DirectionArg::In && interface != "lo";
        let sees = |source: &&Name| {
            let received_only = ["af_xdp:", "dpdk:"]
                .iter()
                .any(|way| source.utf8().starts_with(way));
            let named = capture::interface(source).filter(|_| !received_only);
            named.is_some_and(|named| named == interface || named == packet_socket::ANY)
        };
        if let Some(source) = sources.iter().find(sees).filter(|_| !harmless) {
            bail!(
                "{source} captures what {port} sends, which would be sent again and again: add -Q in"
            );
        }
        Ok(())
    }

    /// Files and ports of the splits; none if they are not `written`.
    pub fn split_files(&self, written: bool) -> impl Iterator<Item = Name> {
        let names = if written { &self.split[..] } else { &[][..] };
        names.iter().map(|(name, _)| {
            let bare =
                Path::new(name).extension().is_none() && !name.is_dash() && !port::is_port(name);
            if bare {
                Name::from([OsStr::new(name), OsStr::new(".pcapng")].join(OsStr::new("")))
            } else {
                name.clone()
            }
        })
    }

    /// Disk space that stays free.
    pub fn reserve(&self) -> Reserve {
        self.reserve.map_or(Reserve::Usual, Reserve::Bytes)
    }

    /// Maker of the sinks of a run over these sources. Times in file names are in UTC if `utc`.
    ///
    /// `programs` runs the program of `-z`. Files have the provenance of their packets; the
    /// provenance of a split is `about` and its expression.
    pub fn maker(
        &self,
        (sources, direction): (&[Name], DirectionArg),
        utc: bool,
        programs: Option<&Arc<Mutex<Programs>>>,
        about: &About<'_>,
    ) -> anyhow::Result<Maker> {
        let splits = self.expressions().into_iter().map(|expression| {
            about.provenance.and(&Selection {
                expression,
                invert: false,
                ..about.selection.clone()
            })
        });
        Ok(Maker {
            rewrite: self.rewrite()?,
            inner: about.selection.inner,
            arguments: self.clone(),
            sources: sources.to_vec(),
            direction,
            utc,
            claims: Arc::new(Claims::of(sources)),
            programs: programs.cloned(),
            main: about.provenance.clone(),
            splits: splits.collect(),
        })
    }
}

/// Maker of the sinks of a run: at its start, and when a request names another file for an output.
pub struct Maker {
    arguments: OutputArgs,
    sources: Vec<Name>,
    direction: DirectionArg,
    utc: bool,
    claims: Arc<Claims>,
    programs: Option<Arc<Mutex<Programs>>>,
    /// Provenance of the packets of the main output, and of each split.
    main: Provenance,
    splits: Vec<Provenance>,
    rewrite: Rewrite,
    /// Tunnels into which is looked, if the packets inside them decide about files.
    inner: Option<Tunnels>,
}

impl Maker {
    /// The main output, if it is named, and the outputs of the splits, if they are `written`. Ports are opened at once, so
    /// that a failure is reported before anything is read.
    pub fn targets(&self, written: bool) -> anyhow::Result<(Option<Target>, Vec<Target>)> {
        let target = |name: &Name, provenance: &Provenance, is_main| -> anyhow::Result<Target> {
            Ok((
                name.as_output(),
                Some(self.sink(name, provenance, is_main)?),
            ))
        };
        let main = self.arguments.write.as_ref();
        let main = main
            .map(|name| target(name, &self.main, true))
            .transpose()?;
        let splits = self.arguments.split_files(written).zip(&self.splits);
        let splits = splits.map(|(name, provenance)| target(&name, provenance, false));
        Ok((main, splits.collect::<anyhow::Result<_>>()?))
    }

    /// Sink for another file of an output, while the run goes on.
    pub fn other(&self, slot: OutputSlot, name: &Name) -> anyhow::Result<Box<dyn Sink>> {
        if port::is_port(name) || name.is_dash() {
            bail!("{name} is not a file, and only a file takes the place of an output");
        }
        let alone = OutputArgs {
            write: Some(name.clone()),
            split: Vec::new(),
            ..self.arguments.clone()
        };
        alone.check(&self.sources, self.direction, true)?;
        let provenance = match slot {
            OutputSlot::Main => Some(&self.main),
            OutputSlot::Split(number) => self.splits.get(number),
        };
        self.sink(
            name,
            provenance.unwrap_or(&self.main),
            slot == OutputSlot::Main,
        )
    }

    /// Sink for the port or file of this name, which changes its packets first.
    fn sink(
        &self,
        name: &Name,
        provenance: &Provenance,
        is_main: bool,
    ) -> anyhow::Result<Box<dyn Sink>> {
        let sink = match self.arguments.split_by {
            Some(by) if is_main => self.split_by(by, name, provenance)?,
            _ => self.unchanged(name, provenance)?,
        };
        Ok(self.rewrite.before(sink))
    }

    /// Provenance that files tell. Expressions, names of records and of rules may have addresses.
    fn told(&self, provenance: &Provenance) -> Provenance {
        match self.rewrite.anonymizer {
            Some(_) => Provenance::default(),
            None => provenance.clone(),
        }
    }

    /// Sink for a file for each address or each flow.
    fn split_by(
        &self,
        by: SplitByArg,
        name: &Name,
        provenance: &Provenance,
    ) -> anyhow::Result<Box<dyn Sink>> {
        let settings = split_by::Settings {
            by: match by {
                SplitByArg::Flow => split_by::By::Flow,
                SplitByArg::Src => split_by::By::Source,
            },
            inner: self.inner,
            most: self.arguments.split_most as usize,
            format: format_for(name)?,
            snaplen: self.arguments.snaplen,
            reserve: self.arguments.reserve(),
            provenance: self.told(provenance),
            protocol: proto_name,
        };
        let finished = self.programs.as_ref();
        let finished = finished.map(|programs| run_for_files(Arc::clone(programs)));
        Ok(Box::new(SplitBySink::new(name, settings, finished)))
    }

    fn unchanged(&self, name: &Name, provenance: &Provenance) -> anyhow::Result<Box<dyn Sink>> {
        let OutputArgs {
            snaplen,
            unbuffered: flush_each,
            rotate_size: size,
            rotate_seconds: seconds,
            rotate_count: count,
            overwrite,
            ..
        } = self.arguments;
        if port::is_port(name) {
            let port = port::open(name, &self.arguments.sending.yes_send)?;
            port::forwarding_line(name, "until the source ends")
                .iter()
                .for_each(|line| say_plain(line));
            return Ok(Box::new(PortSink {
                port,
                snaplen,
                flush_each,
                finisher: None,
            }));
        }
        let settings = FileSettings {
            format: format_for(name)?,
            snaplen,
            flush_each,
            rotation: Rotation {
                size,
                seconds,
                count,
                overwrite,
                keep: false,
            },
            utc: self.utc,
            reserve: self.arguments.reserve(),
            ..FileSettings::default()
        };
        let sink = FileSink::new(name, settings, &self.claims).telling(self.told(provenance));
        Ok(Box::new(
            match self.programs.as_ref().filter(|_| !name.is_dash()) {
                Some(programs) => sink.on_finished(run_for_files(Arc::clone(programs))),
                None => sink,
            },
        ))
    }
}

/// Waits for the program of `-z`, if there is one, and returns whether it has succeeded for all files; a line tells if not.
pub fn end_programs(programs: Option<&Arc<Mutex<Programs>>>) -> bool {
    let Some(programs) = programs else {
        return true;
    };
    let mut programs = programs.lock().unwrap_or_else(PoisonError::into_inner);
    let ended = programs.end();
    if ended.0 > 0 {
        say(&programs.failed_line(ended));
    }
    ended.0 == 0
}

/// Provenance of the packets that the files of a run tell.
pub struct About<'a> {
    /// The selection of the run.
    pub selection: &'a Selection,
    /// The provenance of the packets of the main output.
    pub provenance: Provenance,
}

impl<'a> About<'a> {
    /// Provenance for a run with this selection and a firewall with these `rules`. An expression of a `file` may change while the run goes on,
    /// and so may that of a run that is `controlled`. A `query` is a question to the record in a directory.
    pub fn of(
        selection: &'a Selection,
        (file, controlled): (Option<&Name>, bool),
        rules: Option<&Name>,
        direction: DirectionArg,
        query: Option<(&Arc<Query>, &Name)>,
    ) -> Self {
        let chosen = match file {
            _ if controlled => ctl::chosen(),
            Some(file) => Chosen::default().only(format!(
                "packets that match the expression of {}",
                file.text()
            )),
            None => Chosen::by(selection),
        };
        let way = match direction {
            DirectionArg::Inout => None,
            DirectionArg::In => Some(Direction::In),
            DirectionArg::Out => Some(Direction::Out),
        };
        let mut provenance = Provenance {
            chosen: firewall::chosen(chosen, rules, controlled).one_way(way),
            ..Provenance::default()
        };
        if let Some((query, directory)) = query {
            provenance.comments = query_comments(directory, &query.selection);
            let query = Arc::clone(query);
            provenance.remarks = Some(Arc::new(move || {
                let seen = query.seen();
                seen.iter()
                    .filter_map(|(_, counts)| lost_words(counts))
                    .collect()
            }));
        }
        Self {
            selection,
            provenance,
        }
    }

    /// Adds that duplicates were left out, if they were.
    pub fn without_duplicates(&mut self, within: Option<Within>) {
        let within = match within {
            None => return,
            Some(Within::Packets(packets)) => format!("{packets} packets"),
            Some(Within::Time(ns)) => format!("{} s", seconds(ns)),
        };
        let chosen = std::mem::take(&mut self.provenance.chosen);
        self.provenance.chosen =
            chosen.only(format!("packets that are not duplicates within {within}"));
    }
}

/// Function that has the program run for a file. A file for which it does not run is reported at once.
fn run_for_files(programs: Arc<Mutex<Programs>>) -> Finished {
    Box::new(move |path| {
        let mut programs = programs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(why) = programs.run(path, "") {
            say(&why);
        }
    })
}

/// Refuses an output that is a file of a record: its recorder alone writes it.
pub fn refuse_record(output: &Name) -> anyhow::Result<()> {
    if let Some(record) = record_of(output.as_ref()) {
        let record = Name::from(&*record);
        bail!("{output} is part of {record}, a record: write to another directory");
    }
    Ok(())
}

/// Refuses an output that is a file of a record, and rotation of an output that is not a file.
fn check_file(output: &Name, rotates: bool) -> anyhow::Result<()> {
    refuse_record(output)?;
    refuse_bare_interface(output)?;
    let is_special = Path::new(output)
        .metadata()
        .is_ok_and(|about| !about.is_file() && !about.is_dir());
    if rotates && is_special {
        bail!("-C and -G make files, and {output} is none: give -w the name of a file");
    }
    Ok(())
}

/// The line about an output that cannot be made, because its directory does not exist or because it is a directory.
pub fn absent_directory(output: &Name) -> Option<String> {
    if output.is_dash() || port::is_port(output) {
        return None;
    }
    let (path, text) = (Path::new(output), output.text());
    if let Some(line) = absent_parent(output) {
        return Some(line);
    }
    path.is_dir().then(|| {
        let directory = quoted(text.trim_end_matches('/'));
        format!("{text}: cannot be written: it is a directory: name a file, as in {directory}/out.pcapng")
    })
}

/// The line about a file or directory that cannot be made, because the directory around it does not exist.
pub fn absent_parent(name: &Name) -> Option<String> {
    let directory = directory_of(Path::new(name));
    // Rotation puts dates into a name.
    let is_known = !directory.to_string_lossy().contains('%');
    (is_known && !directory.exists()).then(|| {
        let directory = quoted(&Name::from(directory).text());
        format!(
            "{}: cannot be created: its directory does not exist: mkdir -p {directory}",
            name.text()
        )
    })
}

/// Refuses a new file with the name of an interface: it would be read in the place of the interface from then on.
pub fn refuse_bare_interface(output: &Name) -> anyhow::Result<()> {
    let name = output.utf8();
    if packet_socket::index_of(name).is_some() && !Path::new(output).exists() {
        bail!("{output} is an interface: af_packet:{output} sends there, ./{output} is a file");
    }
    Ok(())
}

/// Whether rotation of `output` could produce the name `other`.
fn is_numbered(other: &Name, output: &Name) -> bool {
    let bytes = |name: &Name| place(Path::new(name)).map(|place| place.into_os_string().into_vec());
    let (Some(other), Some(output)) = (bytes(other), bytes(output)) else {
        return false;
    };
    other
        .strip_prefix(&output[..])
        .is_some_and(|rest| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit))
}

fn same_file(a: &Name, b: &Name) -> bool {
    let of = |name: &Name| Path::new(name).metadata().ok().as_ref().and_then(identity);
    of(a).is_some() && of(a) == of(b)
}

/// Whether two names lead to the same file, which need not exist yet.
fn same_place(a: &Name, b: &Name) -> bool {
    let place = |name: &Name| place(Path::new(name));
    same_file(a, b)
        || place(a).is_some_and(|a| Some(a) == place(b)) && !a.utf8().starts_with("/dev/")
}

/// Whether an open descriptor is on the regular file that `output` names, or on that after standard
/// output.
fn is_open_on(open: &impl AsFd, output: &Name) -> bool {
    let of = |fd: std::os::fd::BorrowedFd<'_>| {
        let file = std::fs::File::from(fd.try_clone_to_owned().ok()?);
        identity(&file.metadata().ok()?)
    };
    let written = match output.is_dash() {
        true => of(io::stdout().as_fd()),
        false => Path::new(output)
            .metadata()
            .ok()
            .as_ref()
            .and_then(identity),
    };
    written.is_some() && written == of(open.as_fd())
}
