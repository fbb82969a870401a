//! A capture file for each source address, or for each conversation.
//!
//! Packets are gathered for each file, and a file is open only while they are written to it: so that few files are open however
//! many there are. Their number is bounded: packets of further keys have a file in common.

use crate::file::is_closed_pipe;
use crate::name::Name;
use crate::provenance::Provenance;
use crate::sink::{End, Loss, Lost, Note, Sink, SinkFault, SinkReport};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use weir_io::output::{Finished, OutputError};
use weir_io::reserve::{Reserve, Watch};
use weir_packet::flow::{FlowKey, Parser, Tunnels};
use weir_packet::savefile::carried::LeftOut;
use weir_packet::savefile::write::Encoder;
use weir_packet::savefile::{Format, Layout, Record};

/// Bytes gathered for all files together; half of them are written once there are so many.
const GATHERED: usize = 8 << 20;

/// Numbers that are tried after a name that a file has already.
const MOST_TAKEN: u32 = 1000;

/// Key that decides about the file of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// The source address.
    Source,
    /// The conversation: both addresses, both ports and the protocol, in either direction.
    Flow,
}

/// Settings of the files.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Key that decides about the file of a packet.
    pub by: By,
    /// Tunnels into which is looked, if the packets inside them decide.
    pub inner: Option<Tunnels>,
    /// Largest number of files with keys of their own.
    pub most: usize,
    /// Format of the files.
    pub format: Format,
    /// Largest captured length, bytes; 0 means no limit.
    pub snaplen: u32,
    /// Disk space that stays free.
    pub reserve: Reserve,
    /// Provenance of the packets, which the files tell.
    pub provenance: Provenance,
    /// Name of a protocol in the names of files.
    pub protocol: fn(u8) -> String,
}

/// File of a packet: of a key, of packets without one, or of further keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Place {
    Of(FlowKey),
    Other,
    Rest,
}

/// A file with the packets that are gathered for it.
struct Part {
    path: PathBuf,
    /// Device and number of the file, once it is made, and its length, bytes.
    made: Option<(u64, u64)>,
    len: u64,
    encoder: Encoder,
    /// Number of the source, and the ids of its interfaces in the file.
    source: u64,
    ids: Vec<Option<u32>>,
    buffer: Vec<u8>,
    waiting: u64,
}

/// Sink that writes a file for each key.
pub struct SplitBySink {
    /// Name as the user wrote it; the names of the files are made of its stem and its extension.
    name: Name,
    settings: Settings,
    finished: Option<Finished>,
    parsers: Vec<Option<Parser>>,
    source: u64,
    places: HashMap<Place, usize>,
    parts: Vec<Part>,
    watch: Watch,
    gathered: usize,
    written: u64,
    given: u64,
    /// Packets in the file of further keys.
    further: u64,
    /// Earlier files whose names were passed over, and the first of them.
    kept: Option<(u64, PathBuf)>,
    left_out: LeftOut,
    carried: usize,
    lost: Option<Lost>,
}

impl SplitBySink {
    /// Makes a sink for files with names like this one: for `out.pcapng`, `out-10.1.2.3.pcapng`. No file is made before it has a packet,
    /// and none that is there is emptied.
    pub fn new(name: &Name, settings: Settings, finished: Option<Finished>) -> Self {
        Self {
            name: name.clone(),
            watch: Watch::new(settings.reserve),
            settings,
            finished,
            parsers: Vec::new(),
            source: 0,
            places: HashMap::new(),
            parts: Vec::new(),
            gathered: 0,
            written: 0,
            given: 0,
            further: 0,
            kept: None,
            left_out: LeftOut::default(),
            carried: 0,
            lost: None,
        }
    }

    /// Returns the key of a packet that decides, or the file of packets without one.
    fn place(&mut self, layout: &Layout, record: &Record<'_>) -> Place {
        let index = record.frame.interface as usize;
        for interface in layout.interfaces.iter_from(self.parsers.len()) {
            self.parsers
                .push(Parser::inside(interface.link, self.settings.inner));
        }
        let parser = self.parsers[index].as_ref();
        let Some(key) = parser.and_then(|parser| parser.key(record.frame.data).ok()) else {
            return Place::Other;
        };
        let later = key.flags & FlowKey::LATER_FRAGMENT != 0;
        Place::Of(match self.settings.by {
            By::Source => FlowKey {
                src: key.src,
                family: key.family,
                ..FlowKey::NONE
            },
            By::Flow => FlowKey {
                // A later fragment has no ports, and is in the file of its addresses.
                flags: if later { 0 } else { key.flags },
                ..key.canonical()
            },
        })
    }

    /// Number of the file of a packet.
    fn part(&mut self, place: Place) -> usize {
        if let Some(&number) = self.places.get(&place) {
            return number;
        }
        let own = self.parts.len() < self.settings.most || !matches!(place, Place::Of(_));
        if !own {
            self.further += 1;
            return self.part(Place::Rest);
        }
        let number = self.parts.len();
        self.places.insert(place, number);
        let mut encoder = Encoder::new(self.settings.format, self.settings.snaplen);
        for comment in &self.settings.provenance.comments {
            encoder.comment(comment.clone());
        }
        self.parts.push(Part {
            path: self.path(place),
            made: None,
            len: 0,
            encoder,
            source: 0,
            ids: Vec::new(),
            buffer: Vec::new(),
            waiting: 0,
        });
        number
    }

    /// Name of a file. No byte of it is from a packet but digits of addresses and ports.
    fn path(&self, place: Place) -> PathBuf {
        let path = Path::new(&self.name);
        let mut name = path.file_stem().map_or(OsString::new(), OsStr::to_owned);
        name.push("-");
        name.push(match place {
            Place::Other => "other".to_owned(),
            Place::Rest => "rest".to_owned(),
            Place::Of(key) => self.words(&key),
        });
        if let Some(extension) = path.extension() {
            name.push(".");
            name.push(extension);
        }
        path.with_file_name(name)
    }

    fn words(&self, key: &FlowKey) -> String {
        // A colon means another machine to some programs.
        let address = |address: Option<IpAddr>| {
            address.map_or(String::new(), |address| {
                address.to_string().replace(':', "-")
            })
        };
        let [source, destination] = [key.source(), key.destination()].map(address);
        match (self.settings.by, key.ports()) {
            (By::Source, _) => source,
            (By::Flow, ports) => {
                let proto = (self.settings.protocol)(key.proto);
                let (from, to) = ports.map_or((String::new(), String::new()), |(from, to)| {
                    (format!(".{from}"), format!(".{to}"))
                });
                format!("{source}{from}-{destination}{to}-{proto}")
            }
        }
    }

    fn append(&mut self, number: usize, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        let index = record.frame.interface as usize;
        let part = &mut self.parts[number];
        if part.source != self.source {
            part.ids.clear();
            part.source = self.source;
        }
        part.ids.resize(part.ids.len().max(index + 1), None);
        let id = match part.ids[index] {
            Some(id) => id,
            None => {
                let chosen = &self.settings.provenance.chosen;
                let described = chosen.described(&layout.interfaces[index]);
                let id = part.encoder.interface(&described).map_err(|error| {
                    End::Failed(SinkFault::File {
                        name: Name::from(&*part.path),
                        error: OutputError::Format(error),
                    })
                })?;
                *part.ids[index].insert(id)
            }
        };
        let before = part.buffer.len();
        part.encoder.record(&mut part.buffer, id, record);
        part.waiting += 1;
        self.gathered += part.buffer.len() - before;
        self.given += 1;
        match self.gathered < GATHERED {
            true => Ok(()),
            false => self.write_largest(),
        }
    }

    /// Writes the files for which most bytes are gathered, until half of the bytes are left.
    #[cold]
    fn write_largest(&mut self) -> Result<(), End> {
        let mut numbers: Vec<usize> = (0..self.parts.len()).collect();
        numbers.sort_unstable_by_key(|&number| std::cmp::Reverse(self.parts[number].buffer.len()));
        for number in numbers {
            if self.gathered <= GATHERED / 2 {
                break;
            }
            self.write(number)?;
        }
        Ok(())
    }

    fn write_all(&mut self) -> Result<(), End> {
        (0..self.parts.len()).try_for_each(|number| self.write(number))
    }

    /// Writes what is gathered for a file. **Errors**: the file ends with its last whole packet of before.
    fn write(&mut self, number: usize) -> Result<(), End> {
        if self.parts[number].buffer.is_empty() {
            return Ok(());
        }
        let mut file = self
            .open(number)
            .map_err(|error| self.failed(number, error))?;
        let part = &mut self.parts[number];
        let taken = self.watch.take(&file, part.buffer.len());
        if let Err(error) = taken.and_then(|()| file.write_all(&part.buffer)) {
            let _ = file.set_len(part.len);
            return Err(self.failed(number, error));
        }
        part.len += part.buffer.len() as u64;
        self.gathered -= part.buffer.len();
        self.written += std::mem::take(&mut part.waiting);
        // Memory is for files that have packets to write.
        part.buffer = Vec::new();
        Ok(())
    }

    /// Opens a file, or makes it: under another name if a file has the name of the part.
    fn open(&mut self, number: usize) -> io::Result<File> {
        let part = &mut self.parts[number];
        if let Some(made) = part.made {
            let file = OpenOptions::new().append(true).open(&part.path)?;
            let about = file.metadata()?;
            if (about.dev(), about.ino()) != made {
                return Err(io::Error::other("another file has its name now"));
            }
            return Ok(file);
        }
        let wanted = part.path.clone();
        for again in 0..MOST_TAKEN {
            if again > 0 {
                let mut path = wanted.clone().into_os_string();
                path.push(again.to_string());
                part.path = PathBuf::from(path);
            }
            match OpenOptions::new()
                .append(true)
                .create_new(true)
                .open(&part.path)
            {
                Ok(file) => {
                    let about = file.metadata()?;
                    part.made = Some((about.dev(), about.ino()));
                    return Ok(file);
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                    let path = &part.path;
                    self.kept.get_or_insert_with(|| (0, path.clone())).0 += 1;
                }
                Err(error) => return Err(error),
            }
        }
        Err(io::Error::other("too many earlier files have its name"))
    }

    #[cold]
    fn failed(&mut self, number: usize, error: io::Error) -> End {
        let path = self.parts[number].path.clone();
        let error = match self.parts[number].made {
            None => OutputError::Create {
                path: path.clone(),
                error,
            },
            Some(_) => OutputError::Io {
                error,
                packets: self.written,
                path: Some(path.clone()),
            },
        };
        let why = match is_closed_pipe(&error) {
            true => Loss::Closed,
            false => Loss::Failed,
        };
        self.lost = Some(Lost {
            packets: self.given - self.written,
            why,
        });
        End::Failed(SinkFault::File {
            name: Name::from(&*path),
            error,
        })
    }
}

impl Sink for SplitBySink {
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        let place = self.place(layout, record);
        let number = self.part(place);
        self.append(number, layout, record)
    }

    fn new_source(&mut self) {
        self.source += 1;
        self.parsers.clear();
        self.carried = 0;
    }

    fn flush(&mut self) -> Result<(), End> {
        self.write_all()
    }

    /// Blocks about packets of all files are in no file of a part of them.
    fn end_source(&mut self, layout: &Layout) {
        for block in layout.carried.iter_from(self.carried) {
            self.left_out.add(block.kind);
        }
        self.carried = layout.carried.len();
    }

    fn finish(&mut self, _: Option<&Layout>, _: bool) -> Result<(), End> {
        if self.lost.is_some() {
            return Ok(());
        }
        self.write_all()?;
        if let Some(finished) = &mut self.finished {
            self.parts.iter().for_each(|part| finished(&part.path));
        }
        Ok(())
    }

    fn is_file(&self) -> bool {
        true
    }

    fn report(&self) -> SinkReport {
        let further = (self.further > 0).then_some(Note::Further {
            packets: self.further,
            files: self.settings.most as u64,
        });
        let left_out = Some(self.left_out)
            .filter(|left_out| !left_out.is_empty())
            .map(Note::LeftOut);
        let kept = self.kept.as_ref().map(|(files, first)| Note::Kept {
            files: *files,
            first: first.clone(),
        });
        let clamped: u64 = self.parts.iter().map(|part| part.encoder.clamped()).sum();
        let clamped = (clamped > 0).then_some(Note::Clamped {
            packets: clamped,
            format: self.settings.format,
        });
        SinkReport {
            taken: self.written,
            lost: self.lost.into_iter().collect(),
            notes: [further, left_out, kept, clamped]
                .into_iter()
                .flatten()
                .collect(),
            ..SinkReport::default()
        }
    }
}
