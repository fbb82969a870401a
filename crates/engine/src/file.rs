//! A capture file as a sink, with rotation.

mod losses;

use self::losses::Losses;
use crate::claims::{Claimant, Claims};
use crate::name::Name;
use crate::provenance::Provenance;
use crate::sink::{End, Loss, Lost, Needs, Note, Packets, Sink, SinkFault, SinkReport, Wanted};
use crate::zone::Zone;
use std::ffi::{OsStr, OsString};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Instant, SystemTime};
use weir_io::output::{Finished, Naming, Output, OutputError, Rotation};
use weir_io::reserve::Reserve;
use weir_io::sys::{self, Access};
use weir_packet::savefile::carried::LeftOut;
use weir_packet::savefile::{Format, Interface, Layout, Record, Statistics};
use weir_pipeline::reader::Uncounted;

/// Begin of the name that files of this program give it.
const WEIR: &str = "weir ";

/// A capture file to write. The file is made at the first packet, or at the successful end of the work.
pub struct FileSink {
    name: Name,
    /// The files of the run.
    claims: Arc<Claims>,
    claimant: Option<Claimant>,
    settings: FileSettings,
    /// Called with each complete file; the output has it once it is made.
    finished: Option<Finished>,
    output: Option<Output>,
    /// Ids of the current source's interfaces in the output.
    ids: Vec<Option<u32>>,
    /// Numbers of the current source's blocks about packets, and of its notes, that the output knows.
    carried: usize,
    noted: usize,
    /// Number of these interfaces announced to a pcap file.
    announced: usize,
    /// Whether the system refused a write.
    broken: bool,
    /// Packets handed to the output.
    given: u64,
    /// Packets that were lost with the failure of the output.
    lost: Option<Lost>,
    /// Packets in the completed output.
    written: u64,
    /// Packets of the output in files that were emptied later.
    overwritten: u64,
    /// Notes on packets of the completed output.
    notes: Vec<Note>,
    /// Losses of the sources.
    losses: Losses,
    /// Comments of the sections of all sources.
    comments: Vec<String>,
    /// Other options of these sections.
    section_options: Vec<String>,
    /// Provenance of the packets, which the files tell.
    provenance: Provenance,
    /// The first interfaces that were announced, as their sources have them, and their numbers in the file.
    known: Vec<(Interface, u32)>,
}

/// Settings of a capture file to write.
#[derive(Clone, Copy, Debug)]
pub struct FileSettings {
    /// Format: pcap or pcapng.
    pub format: Format,
    /// Largest captured length, bytes: longer packets are cut. 0 means no limit.
    pub snaplen: u32,
    /// Whether each packet is written out at once.
    pub flush_each: bool,
    /// Conditions for a new file.
    pub rotation: Rotation,
    /// Whether times in file names are in UTC.
    pub utc: bool,
    /// Packets to write.
    pub wanted: Wanted,
    /// Disk space that stays free.
    pub reserve: Reserve,
}

/// Settings of one pcapng file of whole packets that match.
impl Default for FileSettings {
    fn default() -> Self {
        let rotation = Rotation::default();
        let wanted = Wanted::default();
        let reserve = Reserve::default();
        Self {
            format: Format::Pcapng,
            snaplen: 0,
            flush_each: false,
            rotation,
            utc: false,
            wanted,
            reserve,
        }
    }
}

impl FileSink {
    /// Makes a sink for the file `name`; `-` is standard output.
    pub fn new(name: &Name, settings: FileSettings, claims: &Arc<Claims>) -> Self {
        Self {
            name: name.clone(),
            claims: Arc::clone(claims),
            settings,
            finished: None,
            claimant: None,
            output: None,
            ids: Vec::new(),
            carried: 0,
            noted: 0,
            announced: 0,
            broken: false,
            given: 0,
            lost: None,
            written: 0,
            overwritten: 0,
            notes: Vec::new(),
            losses: Losses::default(),
            comments: Vec::new(),
            section_options: Vec::new(),
            provenance: Provenance::default(),
            known: Vec::new(),
        }
    }

    /// Has the files say this of their packets.
    #[must_use]
    pub fn telling(mut self, provenance: Provenance) -> Self {
        self.provenance = provenance;
        self
    }

    /// Has `finished` called with each file that is complete, in the thread of the run.
    pub fn on_finished(mut self, finished: Finished) -> Self {
        self.finished = Some(finished);
        self
    }

    /// Announces the interface `index` to the output. A pcap output gets all interfaces, because its header holds the largest snap
    /// length.
    #[cold]
    fn announce(&mut self, layout: &Layout, index: usize) -> Result<u32, OutputError> {
        let id = self.id(&layout.interfaces[index])?;
        self.ids.resize(self.ids.len().max(index + 1), None);
        self.ids[index] = Some(id);
        if self.settings.format == Format::Pcap {
            for interface in layout.interfaces.iter_from(self.announced) {
                // An interface of another link type is refused at its first packet.
                let _ = self.id(interface);
            }
            self.announced = layout.interfaces.len();
        }
        Ok(id)
    }

    /// Returns the number of an interface in the file, with what its packets were chosen by. A merge asks at each change of its source, so
    /// that the first few interfaces are described once.
    fn id(&mut self, interface: &Interface) -> Result<u32, OutputError> {
        const FEW: usize = 8;
        if let Some((_, id)) = self
            .known
            .iter()
            .find(|(known, _)| known.is_same(interface))
        {
            return Ok(*id);
        }
        let output = self.output.as_mut().expect("the caller opened it");
        let id = output.interface(&self.provenance.chosen.described(interface))?;
        if self.known.len() < FEW {
            self.known.push((interface.clone(), id));
        }
        Ok(id)
    }

    /// Hands the output what a copy needs of a source in addition to packets: comments of sections,
    /// secrets, names of addresses, custom blocks. The current file has the comments of the
    /// sections before its first packet only.
    #[cold]
    fn carry(&mut self, layout: &Layout) {
        let Some(output) = &mut self.output else {
            return;
        };
        for (name, text) in layout.notes.iter_from(self.noted) {
            let comment = match *name {
                "comment" => text.clone(),
                "application" if text.starts_with(WEIR) => continue,
                // The file is one of this program.
                "application" => format!("written before by {text}"),
                name => {
                    let is_new = !self.section_options.contains(text);
                    if is_new && !output.section_option(name, text) {
                        output.leave_out(&LeftOut {
                            section_options: 1,
                            ..LeftOut::default()
                        });
                    }
                    self.section_options.extend(is_new.then(|| text.clone()));
                    continue;
                }
            };
            let is_new = !self.comments.contains(&comment);
            if is_new && !(self.settings.format == Format::Pcapng && output.comment(&comment)) {
                output.leave_out(&LeftOut {
                    comments: 1,
                    ..LeftOut::default()
                });
            }
            self.comments.extend(is_new.then_some(comment));
        }
        self.noted = layout.notes.len();
        // Blocks of a source come in order: the last one is known only if all are.
        let last = layout
            .carried
            .len()
            .checked_sub(1)
            .and_then(|last| layout.carried.get(last));
        if last.is_some_and(|last| !output.has_carried(last)) {
            layout
                .carried
                .iter_from(self.carried)
                .for_each(|block| output.carry(block));
        }
        self.carried = layout.carried.len();
    }

    /// Opens the file before packets of a source with `layout`, and hands it what copies need next
    /// to them.
    #[inline]
    fn prepare(&mut self, layout: &Layout) -> Result<(), End> {
        self.open()?;
        if layout.carried.len() > self.carried || layout.notes.len() > self.noted {
            self.carry(layout);
        }
        Ok(())
    }

    /// Appends a packet to the file, which is open.
    #[inline]
    fn append(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        let index = record.frame.interface as usize;
        let result = match self.ids.get(index) {
            Some(Some(id)) => Ok(*id),
            _ => self.announce(layout, index),
        };
        let output = self.output.as_mut().expect("it was opened just now");
        let result = result.and_then(|id| output.record(id, record));
        match result {
            Ok(()) => self.given += 1,
            Err(error) => return Err(self.end(error)),
        }
        Ok(())
    }

    #[cold]
    fn make(&mut self) -> Result<(), End> {
        let FileSettings {
            format,
            snaplen,
            flush_each,
            rotation,
            utc,
            reserve,
            ..
        } = self.settings;
        let output = if self.name.is_dash() {
            Output::stdout(format, snaplen, flush_each)
        } else {
            let claimant = self.claims.output(&self.name);
            let naming = naming(&self.name, rotation, utc, claimant.clone(), &self.claims);
            self.claimant = Some(claimant);
            let checked = if rotation.seconds.is_some() {
                check_directory(Path::new(&self.name))
            } else {
                Ok(())
            };
            checked.and_then(|()| {
                Output::files(naming, format, snaplen, flush_each, rotation, reserve)
            })
        };
        let mut output = output.map_err(|error| self.end(error))?.keeping(reserve);
        if let Some(finished) = self.finished.take() {
            output.on_finished(finished);
        }
        self.provenance
            .comments
            .iter()
            .for_each(|comment| _ = output.comment(comment));
        self.comments
            .extend(self.provenance.comments.iter().cloned());
        self.output = Some(output);
        Ok(())
    }

    #[cold]
    fn end(&mut self, error: OutputError) -> End {
        self.broken = matches!(error, OutputError::Io { .. } | OutputError::Create { .. });
        if let OutputError::Io { packets, .. } = &error {
            let packets = *packets;
            // The packets that waited in the buffer are lost.
            let why = if is_closed_pipe(&error) {
                Loss::Closed
            } else {
                Loss::Failed
            };
            self.written = packets;
            self.lost = Some(Lost {
                packets: self.given.saturating_sub(packets),
                why,
            });
        }
        match error {
            error if is_closed_pipe(&error) => End::ClosedPipe,
            OutputError::LastFile => End::Complete,
            error => End::Failed(SinkFault::File {
                name: self.name.clone(),
                error,
            }),
        }
    }
}

impl Sink for FileSink {
    fn abandon(&mut self) {
        if let Some(claimant) = self.claimant.take() {
            self.claims.release(&claimant);
        }
    }

    /// A new source begins; interface indexes start over.
    fn new_source(&mut self) {
        self.ids.clear();
        (self.carried, self.noted) = (0, 0);
        self.announced = 0;
    }

    /// Appends a packet of a source with `layout`.
    #[inline]
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        self.prepare(layout)?;
        self.append(layout, record)
    }

    fn batch(&mut self, packets: &Packets<'_>) -> (u64, Result<(), End>) {
        let layout = packets.layout();
        // Once for all packets of the batch.
        let prepared = if packets.is_empty() {
            Ok(())
        } else {
            self.prepare(layout)
        };
        match prepared {
            Ok(()) => packets.hand_on(|record| self.append(layout, record)),
            Err(end) => (0, Err(end)),
        }
    }

    /// Writes out the buffered packets.
    fn flush(&mut self) -> Result<(), End> {
        match &mut self.output {
            Some(output) => output.flush().map_err(|error| self.end(error)),
            None => Ok(()),
        }
    }

    /// Announces a source with this layout.
    fn begin(&mut self, layout: &Layout) -> Result<(), End> {
        self.open()?;
        let output = self.output.as_mut().expect("it was opened just now");
        let chosen = &self.provenance.chosen;
        let announce =
            |interface: &Interface| output.interface(&chosen.described(interface)).map(drop);
        let announced = layout.interfaces.iter().try_for_each(announce);
        // A capture begins now, and so does its first slice of time.
        announced
            .and_then(|()| output.begin_slices(now_ns()))
            .map_err(|error| self.end(error))
    }

    /// Begins the next file of a capture once its slice of time is over.
    fn pass_time(&mut self, now: Instant) -> Result<(), End> {
        match &mut self.output {
            Some(output) => output.pass_time(now).map_err(|error| self.end(error)),
            None => Ok(()),
        }
    }

    fn next_file(&mut self) -> Result<(), End> {
        match &mut self.output {
            Some(output) => output.begin_next().map_err(|error| self.end(error)),
            None => Ok(()),
        }
    }

    /// Writes the file's header.
    fn start(&mut self) -> Result<(), End> {
        match &mut self.output {
            Some(output) => output.start().map_err(|error| self.end(error)),
            None => Ok(()),
        }
    }

    /// Takes the blocks after the last packet of a source.
    fn end_source(&mut self, layout: &Layout) {
        self.carry(layout);
        if let Some(output) = self
            .output
            .as_mut()
            .filter(|_| self.settings.format == Format::Pcap)
        {
            output.leave_out(&LeftOut::of_interfaces(layout.interfaces.iter()));
        }
    }

    fn statistics(&mut self, counts: &[(Interface, Statistics)]) {
        self.losses.add_statistics(counts);
    }

    fn remarks(&mut self, remarks: &[String]) {
        self.losses.add_remarks(remarks);
    }

    fn uncounted(&mut self, times: &[Uncounted]) {
        self.losses.add_uncounted(times);
    }

    /// Completes the file. A file without packets describes the interfaces of `layout`, so that it
    /// is also a capture file.
    fn finish(&mut self, layout: Option<&Layout>, _: bool) -> Result<(), End> {
        let Some(layout) = layout.filter(|_| !self.broken) else {
            return Ok(());
        };
        self.open()?;
        self.carry(layout);
        let mut output = self.output.take().expect("it was opened just now");
        let chosen = &self.provenance.chosen;
        if self.ids.is_empty() {
            for interface in layout.interfaces.iter() {
                // A pcap file takes the first link type only, and has no packet of another one.
                let _ = output.interface(&chosen.described(interface));
            }
        }
        if let Some(remarks) = &self.provenance.remarks {
            self.losses.add_remarks(&remarks());
        }
        let losses = std::mem::take(&mut self.losses);
        losses.write(&mut output, self.settings.format, chosen, layout, now_ns());
        // The last write may be the first one to a file of before.
        let flushed = output.flush();
        self.overwritten = output.overwritten();
        self.notes = notes(&output, self.settings.format);
        self.written = flushed
            .and_then(|()| output.finish())
            .map_err(|error| self.end(error))?;
        Ok(())
    }

    /// Makes the file unless it is open. Its name may be refused, so an early call shows the error before the work.
    #[inline]
    fn open(&mut self) -> Result<(), End> {
        if self.output.is_some() {
            Ok(())
        } else {
            self.make()
        }
    }

    fn needs(&self) -> Needs {
        Needs {
            wanted: self.settings.wanted,
            ends: self.settings.rotation.count.is_some(),
            has_files: !self.name.is_dash(),
        }
    }

    fn is_awaited(&self) -> bool {
        self.name.is_dash()
    }

    fn is_file(&self) -> bool {
        true
    }

    fn report(&self) -> SinkReport {
        let (written, overwritten, notes) = match &self.output {
            Some(output) => (
                output.packets(),
                output.overwritten(),
                notes(output, self.settings.format),
            ),
            None => (self.written, self.overwritten, self.notes.clone()),
        };
        SinkReport {
            taken: written,
            lost: self.lost.into_iter().collect(),
            overwritten,
            notes,
            ..SinkReport::default()
        }
    }
}

/// Notes on the packets that an output could not write unchanged, or that readers may not read
/// whole, and on earlier files that it kept.
fn notes(output: &Output, format: Format) -> Vec<Note> {
    let [clamped, unstamped, longer] = [output.clamped(), output.unstamped(), output.longer()];
    let notes = [
        (
            clamped,
            Note::Clamped {
                packets: clamped,
                format,
            },
        ),
        (unstamped, Note::Unstamped { packets: unstamped }),
        (longer, Note::Longer { packets: longer }),
    ];
    let left_out = Some(output.left_out())
        .filter(|left_out| !left_out.is_empty())
        .map(Note::LeftOut);
    let kept = output.taken().map(|(files, first)| Note::Kept {
        files,
        first: first.to_owned(),
    });
    notes
        .into_iter()
        .filter(|(packets, _)| *packets > 0)
        .map(|(_, note)| note)
        .chain(left_out)
        .chain(kept)
        .collect()
}

/// Whether the write ended because the reader of the pipe is gone, which is not a failure.
pub fn is_closed_pipe(error: &OutputError) -> bool {
    matches!(error, OutputError::Io { error, .. } if error.kind() == io::ErrorKind::BrokenPipe)
}

/// Refuses a missing directory, or a directory that this process may not write, before the first
/// packet gives the file its name. A directory with fields of time in its own name is not known
/// yet.
fn check_directory(name: &Path) -> Result<(), OutputError> {
    let folder = name
        .parent()
        .filter(|folder| !folder.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    if folder.as_os_str().as_encoded_bytes().contains(&b'%') {
        return Ok(());
    }
    let error = match folder.metadata() {
        Err(error) => error,
        Ok(about) if !about.is_dir() => io::ErrorKind::NotADirectory.into(),
        Ok(_) if !sys::may(folder, Access::Write) => io::ErrorKind::PermissionDenied.into(),
        Ok(_) => return Ok(()),
    };
    Err(OutputError::Create {
        path: name.to_owned(),
        error,
    })
}

/// Returns the time of day, ns since 1970.
fn now_ns() -> i64 {
    let since = SystemTime::now()
        .duration_since(SystemTime::UNIX_EPOCH)
        .unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}

/// Returns the naming of rotated files, as in tcpdump: strftime fields by `-G`, then a number by `-C`, padded to a common width
/// with `-W`.
///
/// If two slices in a row get the same name from the fields, tcpdump overwrites the first file; here the second gets a number.
/// So does a file whose name an earlier one has.
///
/// The name of a source or of another output of the run is refused.
fn naming(
    owner: &Name,
    rotation: Rotation,
    utc: bool,
    output: Claimant,
    claims: &Arc<Claims>,
) -> Naming {
    let claims = Arc::clone(claims);
    let name = OsStr::new(owner).to_owned();
    let zone = Zone::new(utc);
    let width = match (rotation.size, rotation.count) {
        (Some(_), Some(count)) => (count - 1).to_string().len(),
        _ => 0,
    };
    let (mut last, mut repeats) = (OsString::new(), 0);
    Box::new(move |number, ns| {
        let (mut path, mut number) = (name.clone(), number);
        if rotation.seconds.is_some() {
            path = zone.strftime(&name, ns);
            repeats = if path == last { repeats + 1 } else { 0 };
            number = repeats;
            last.clone_from(&path);
        }
        if number > 0 || width > 0 {
            path.push(format!("{number:0width$}"));
        }
        let path = PathBuf::from(path);
        match claims.take(&path, &output) {
            Ok(()) => Ok(path),
            Err(error) => Err(OutputError::Create { path, error }),
        }
    })
}
