//! What becomes of a kept packet: a line, a JSON object, a record in a file, a frame that is sent, or nothing.

use crate::claims::Claims;
use crate::name::Name;
use crate::numbers::packets;
use crate::outcome::{io_words, is_closed_pipe};
use crate::port::Port;
use crate::terminal::{self, printable};
use anyhow::bail;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Stdout, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_io::output::{Naming, Output, OutputError, Rotation};
use weir_io::sys::packet_socket::name_of;
use weir_io::sys::standard;
use weir_io::sys::writer::Writer;
use weir_packet::line::{Hex, Style, write_line};
use weir_packet::savefile::{Direction, Format, Interface, Layout, Record, Statistics};
use weir_packet::time::{Digits, Shape, Stamp};
use weir_packet::{Frame, LinkType};

/// Why emitting ended before the packets did.
#[derive(Debug)]
pub enum End {
    /// Nobody reads any more: a quiet end.
    ClosedPipe,
    /// All files that were asked for are written: a quiet end.
    Complete,
    /// One line about what went wrong.
    Failed(String),
}

/// Of times that cannot be told.
pub const BEYOND: &str = "before 1677 or after 2262: the nearest of these is shown";

/// Local time or UTC, for stamps.
#[derive(Debug)]
pub struct Zone {
    zone: TimeZone,
    /// The quarter of an hour last asked for and its offset: no zone changes within one.
    cached: Option<(i64, i32)>,
}

impl Zone {
    /// UTC, or this machine's zone.
    pub fn new(utc: bool) -> Self {
        Self { zone: if utc { TimeZone::UTC } else { TimeZone::system() }, cached: None }
    }

    /// Seconds east of UTC at `ns`.
    pub fn east_s(&mut self, ns: i64) -> i32 {
        let quarter = ns.div_euclid(900_000_000_000);
        match self.cached {
            Some((known, east)) if known == quarter => east,
            _ => {
                let moment = Timestamp::from_second(ns.div_euclid(1_000_000_000)).unwrap_or_default();
                let east = self.zone.to_offset(moment).seconds();
                self.cached = Some((quarter, east));
                east
            }
        }
    }

    /// `ns` by the strftime format `format`, in which bytes that are not UTF-8 stand for themselves.
    fn strftime(&self, format: &OsStr, ns: i64) -> OsString {
        let moment = Timestamp::from_second(ns.div_euclid(1_000_000_000)).unwrap_or_default();
        let moment = moment.to_zoned(self.zone.clone());
        let mut out = OsString::new();
        for chunk in format.as_bytes().utf8_chunks() {
            out.push(moment.strftime(chunk.valid()).to_string());
            out.push(OsStr::from_bytes(chunk.invalid()));
        }
        out
    }
}

/// How packets become text.
#[derive(Debug)]
pub struct Text {
    /// What to print of a packet.
    pub style: Style,
    /// How to print its time.
    pub shape: Shape,
    /// Where the reader lives.
    pub zone: Zone,
    /// Packets are cut to this many bytes first; 0 cuts nothing.
    pub snaplen: u32,
    /// One JSON object per packet instead of a line.
    pub json: bool,
}

/// Standard output for lines.
#[derive(Debug)]
pub struct Lines {
    text: Text,
    out: Writer<Stdout>,
    buffer: String,
    flush_each: bool,
    names: Names,
    /// Ends of the packets in `buffer`, so that a write that stops midway can be cut at a packet.
    ends: Vec<u32>,
    /// Packets that are whole in the output.
    written: u64,
    /// Packets whose time is not the one shown.
    clamped: u64,
}

impl Lines {
    /// Lines gathered before they are written.
    const BUFFER: usize = 64 << 10;

    /// Prints with `text` to standard output.
    pub fn new(text: Text, flush_each: bool) -> Self {
        let (out, buffer) = (Writer::new(io::stdout()), String::with_capacity(2 * Self::BUFFER));
        Self { text, out, buffer, flush_each, names: Names::default(), ends: Vec::new(), written: 0, clamped: 0 }
    }

    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        let place = record.frame.interface as usize;
        let interface = &layout.interfaces[place];
        // Of all interfaces at once, live: the number is one of this machine's.
        let any = if layout.format == Format::Ring { Cooked::of(interface.link, record.frame.data) } else { None };
        let Text { style, shape, zone, snaplen, json } = &mut self.text;
        let mut frame = record.frame;
        if *snaplen != 0 {
            frame.data = &frame.data[..frame.data.len().min(*snaplen as usize)];
        }
        // A line is short, whatever the packet is; a dump is not: 16 bytes take up to 75 columns.
        let room = if style.hex == Hex::None { 4096 } else { 4096 + 5 * frame.data.len() };
        let had = self.buffer.try_reserve(room).and_then(|()| self.ends.try_reserve(1));
        had.map_err(|_| End::Failed("standard output: out of memory".to_owned()))?;
        if *json {
            let direction = any.map(|any| any.direction()).or_else(|| layout.direction(place));
            let name = any.map(|any| self.names.of(any.interface));
            packet_json(&mut self.buffer, interface, name, direction, record.time_ns, &frame, style);
        } else {
            let digits = if interface.resolution.is_fine() { Digits::Nano } else { Digits::Micro };
            let ns = record.time_ns.unwrap_or(0);
            let length = self.buffer.len();
            Stamp(ns).write(&mut self.buffer, *shape, digits, zone.east_s(ns));
            if self.buffer.len() > length {
                self.buffer.push(' ');
            }
            match any {
                Some(any) => {
                    let start = self.buffer.len();
                    write_line(&mut self.buffer, interface.link, &frame, style);
                    // With its header a line begins with the way it went, which is said in another place here.
                    let said = if style.link_header { start + Cooked::WAY } else { start };
                    let words = any.words(&printable(self.names.of(any.interface)));
                    self.buffer.replace_range(start..said.min(self.buffer.len()), &words);
                }
                None => write_line(&mut self.buffer, interface.link, &frame, style),
            }
        }
        self.buffer.push('\n');
        self.ends.push(self.buffer.len() as u32);
        self.clamped += u64::from(record.time_ns.is_some_and(|ns| Stamp(ns).is_clamped()));
        if self.flush_each || self.buffer.len() >= Self::BUFFER { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), End> {
        let (mut done, bytes) = (0, self.buffer.as_bytes());
        let mut result = standard::check_output();
        while result.is_ok() && done < bytes.len() {
            match self.out.write(&bytes[done..]) {
                Ok(0) => result = Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => result = Err(error),
            }
        }
        let whole = self.ends.partition_point(|&end| end as usize <= done);
        self.written += whole as u64;
        let end = if whole == 0 { 0 } else { self.ends[whole - 1] as usize };
        if done > end {
            // Best effort: what is no file keeps the part of a line that it took.
            let _ = self.out.take_back((done - end) as u64);
        }
        self.buffer.clear();
        self.ends.clear();
        result.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => End::ClosedPipe,
            _ => End::Failed(format!("standard output: {}", io_words(&error))),
        })
    }
}

/// Names of this machine's interfaces by their numbers, each looked up once.
#[derive(Debug, Default)]
struct Names(BTreeMap<u32, String>);

impl Names {
    /// Interfaces come and go: more names than this are not kept.
    const MOST: usize = 1024;

    /// The name, or as tcpdump has it a question mark where there is none any more.
    fn of(&mut self, number: u32) -> &str {
        if self.0.len() >= Self::MOST && !self.0.contains_key(&number) {
            self.0.clear();
        }
        self.0.entry(number).or_insert_with(|| name_of(number).unwrap_or_else(|| "?".to_owned()))
    }
}

/// What the LINUX_SLL2 header of a packet says of the interface that it was seen at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cooked {
    interface: u32,
    /// A `PACKET_` value of linux/if_packet.h.
    kind: u8,
}

impl Cooked {
    /// Bytes of what a line of such a packet begins with where its header is printed.
    const WAY: usize = 4;

    fn of(link: LinkType, data: &[u8]) -> Option<Self> {
        let header: &[u8; 20] = data.first_chunk().filter(|_| link == LinkType::LINUX_SLL2)?;
        let [_, _, _, _, a, b, c, d, _, _, kind, ..] = *header;
        Some(Self { interface: u32::from_be_bytes([a, b, c, d]), kind })
    }

    fn direction(self) -> Direction {
        if self.kind == 4 { Direction::Out } else { Direction::In }
    }

    /// As `tcpdump -i any` begins its lines.
    fn words(self, name: &str) -> String {
        let way = match self.kind {
            0 => "In",
            1 => "B",
            2 => "M",
            3 => "P",
            4 => "Out",
            _ => "?",
        };
        format!("{name:<5} {way:<3} ")
    }
}

fn packet_json(
    out: &mut String,
    interface: &Interface,
    name: Option<&str>,
    direction: Option<Direction>,
    time_ns: Option<i64>,
    frame: &Frame<'_>,
    style: &Style,
) {
    let mut summary = String::new();
    write_line(&mut summary, interface.link, frame, style);
    let mut time = String::new();
    if let Some(ns) = time_ns {
        Stamp(ns).write(&mut time, Shape::Rfc3339, Digits::Nano, 0);
    }
    let link = interface.link.name().map_or_else(|| interface.link.0.to_string(), str::to_owned);
    let mut object = serde_json::json!({
        "time": time_ns.map(|_| time),
        "link": link,
        "interface": name.or(interface.name.as_deref()),
        "length": frame.wire_len,
        "captured": frame.data.len(),
        "summary": summary,
    });
    if let Some(direction) = direction {
        object["direction"] = if direction == Direction::Out { "out" } else { "in" }.into();
    }
    out.push_str(&terminal::json(&object));
}

/// A capture file to write, made when the first packet comes or the work ends well.
pub struct FileSink {
    name: Name,
    /// The files of the run.
    claims: Arc<Claims>,
    settings: FileSettings,
    output: Option<Output>,
    /// Ids of the current source's interfaces in the output.
    ids: Vec<Option<u32>>,
    /// How many of these a pcap file was told of.
    announced: usize,
    /// The system refuses to take more.
    broken: bool,
    /// Packets in the completed output.
    written: u64,
    /// Packets of it in files that were emptied later.
    overwritten: u64,
    /// Packets of it whose times it cannot hold, and packets without one.
    clamped: u64,
    unstamped: u64,
    /// What the sources say of their capture, for each of their interfaces.
    statistics: Vec<(Interface, Statistics)>,
}

/// How a capture file is written.
#[derive(Clone, Copy, Debug)]
pub struct FileSettings {
    /// pcap or pcapng.
    pub format: Format,
    /// Packets are cut to this many bytes; 0 cuts nothing.
    pub snaplen: u32,
    /// Write each packet out at once.
    pub flush_each: bool,
    /// When to begin a new file.
    pub rotation: Rotation,
    /// File names by time are in UTC.
    pub utc: bool,
}

impl FileSink {
    /// A sink for the file `name`; `-` is standard output.
    pub fn new(name: &Name, settings: FileSettings, claims: &Arc<Claims>) -> Self {
        Self {
            name: name.clone(),
            claims: Arc::clone(claims),
            settings,
            output: None,
            ids: Vec::new(),
            announced: 0,
            broken: false,
            written: 0,
            overwritten: 0,
            clamped: 0,
            unstamped: 0,
            statistics: Vec::new(),
        }
    }

    /// Another source follows: its interfaces are not those of the one before.
    pub fn new_source(&mut self) {
        self.ids.clear();
        self.announced = 0;
    }

    /// Appends a packet of a source with `layout`.
    #[inline]
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        self.open()?;
        let index = record.frame.interface as usize;
        let result = match self.ids.get(index) {
            Some(Some(id)) => Ok(*id),
            _ => self.announce(layout, index),
        };
        let output = self.output.as_mut().expect("it was opened just now");
        let result = result.and_then(|id| output.packet(id, record.time_ns, &record.frame));
        result.map_err(|error| self.end(&error))
    }

    /// Tells the output of the interface `index`; a pcap of all there are, since its header holds the largest snap length.
    #[cold]
    fn announce(&mut self, layout: &Layout, index: usize) -> Result<u32, OutputError> {
        let output = self.output.as_mut().expect("the caller opened it");
        let id = output.interface(&layout.interfaces[index])?;
        self.ids.resize(self.ids.len().max(index + 1), None);
        self.ids[index] = Some(id);
        if self.settings.format == Format::Pcap {
            for interface in layout.interfaces.iter_from(self.announced) {
                // One of another link type is refused when a packet of it comes.
                let _ = output.interface(interface);
            }
            self.announced = layout.interfaces.len();
        }
        Ok(id)
    }

    /// Writes out what is buffered.
    pub fn flush(&mut self) -> Result<(), End> {
        match &mut self.output {
            Some(output) => output.flush().map_err(|error| self.end(&error)),
            None => Ok(()),
        }
    }

    /// Announces a source with this layout.
    pub fn begin(&mut self, layout: &Layout) -> Result<(), End> {
        self.open()?;
        let output = self.output.as_mut().expect("it was opened just now");
        let announced = layout.interfaces.iter().try_for_each(|interface| output.interface(interface).map(drop));
        announced.map_err(|error| self.end(&error))
    }

    /// Writes the file's header.
    pub fn start(&mut self) -> Result<(), End> {
        match &mut self.output {
            Some(output) => output.start().map_err(|error| self.end(&error)),
            None => Ok(()),
        }
    }

    /// Notes what was counted at the interfaces of a source. What an equal interface of another source counted is added.
    pub fn statistics(&mut self, counts: &[(Interface, Statistics)]) {
        // Those of one source differ.
        let known = self.statistics.len();
        for (interface, counts) in counts {
            match self.statistics[..known].iter_mut().find(|(known, _)| known == interface) {
                Some((_, sum)) => sum.add(counts),
                None => self.statistics.push((interface.clone(), *counts)),
            }
        }
    }

    /// Completes the file. One without packets describes the interfaces of `layout`, so that it is a capture file too.
    pub fn finish(&mut self, layout: Option<&Layout>) -> Result<(), End> {
        if self.broken {
            return Ok(());
        }
        self.open()?;
        let mut output = self.output.take().expect("it was opened just now");
        if self.ids.is_empty()
            && let Some(layout) = layout
        {
            for interface in layout.interfaces.iter() {
                // A pcap file takes the first link type only, and has no packet of another.
                let _ = output.interface(interface);
            }
        }
        for (interface, counts) in &self.statistics {
            // A pcap file has no place for them, and takes the first link type only.
            if let Ok(id) = output.interface(interface) {
                output.statistics(id, counts);
            }
        }
        (self.overwritten, self.clamped, self.unstamped) = (output.overwritten(), output.clamped(), output.unstamped());
        self.written = output.finish().map_err(|error| self.end(&error))?;
        Ok(())
    }

    /// Packets that were written out.
    fn written(&self) -> u64 {
        self.output.as_ref().map_or(self.written, Output::packets)
    }

    /// Lines about packets whose times the output could not hold.
    fn time_lines(&self) -> Vec<String> {
        let range = match self.settings.format {
            Format::Pcap => "outside 1970 to 2106, all that a pcap file can hold",
            _ => "before 1970 or after 2262, which is not written",
        };
        let output = self.output.as_ref();
        let clamped = output.map_or(self.clamped, Output::clamped);
        let unstamped = output.map_or(self.unstamped, Output::unstamped);
        let name = self.name.as_output();
        let lines = [
            (clamped, format!("with a time {range}: the nearest stands there instead")),
            (unstamped, "without a time stamp: the beginning of 1970 stands there instead".to_owned()),
        ];
        let some = lines.into_iter().filter(|(count, _)| *count > 0);
        some.map(|(count, words)| format!("{name}: {} {words}", packets(count))).collect()
    }

    /// Packets that were written out into files that were emptied later.
    pub fn overwritten(&self) -> u64 {
        self.output.as_ref().map_or(self.overwritten, Output::overwritten)
    }

    /// Makes the file, unless it is there: its name may be refused, which is better known before the work than after it.
    #[inline]
    pub fn open(&mut self) -> Result<(), End> {
        if self.output.is_some() { Ok(()) } else { self.make() }
    }

    #[cold]
    fn make(&mut self) -> Result<(), End> {
        let FileSettings { format, snaplen, flush_each, rotation, utc } = self.settings;
        let output = if self.name.is_dash() {
            Output::stdout(format, snaplen, flush_each)
        } else {
            Output::files(naming(&self.name, rotation, utc, &self.claims), format, snaplen, flush_each, rotation)
        };
        self.output = Some(output.map_err(|error| self.end(&error))?);
        Ok(())
    }

    #[cold]
    fn end(&mut self, error: &OutputError) -> End {
        self.broken = matches!(error, OutputError::Io { .. } | OutputError::Create { .. });
        let name = self.name.as_output();
        match error {
            error if is_closed_pipe(error) => End::ClosedPipe,
            OutputError::LastFile => End::Complete,
            OutputError::Io { error, packets, path } => {
                let name = path.as_ref().map_or(name, |path| Name::from(path).text());
                let kept = match packets {
                    0 => "no packet was written".to_owned(),
                    1 => "1 packet was written before that".to_owned(),
                    n => format!("{n} packets were written before that"),
                };
                End::Failed(format!("{name}: {}; {kept}", io_words(error)))
            }
            OutputError::Create { path, error } => {
                End::Failed(format!("{}: {}", Name::from(path).text(), create_words(error)))
            }
            error => End::Failed(format!("{name}: {error}")),
        }
    }
}

/// Why a file cannot be made, in few words.
pub fn create_words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "cannot be created: its directory does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "cannot be created: permission denied".to_owned(),
        io::ErrorKind::IsADirectory => "cannot be written: it is a directory".to_owned(),
        _ => format!("cannot be created: {}", io_words(error)),
    }
}

/// Names as tcpdump makes them: strftime fields by `-G`, then a number by `-C` (padded to a common width with `-W`).
///
/// Where the fields of two windows in a row come out alike, tcpdump overwrites the first file; here the second gets a number.
///
/// A name that a source or another output of the run has is refused.
fn naming(owner: &Name, rotation: Rotation, utc: bool, claims: &Arc<Claims>) -> Naming {
    let (owner, claims) = (owner.clone(), Arc::clone(claims));
    let name = OsStr::new(&owner).to_owned();
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
        match claims.take(&path, &owner) {
            Ok(()) => Ok(path),
            Err(error) => Err(OutputError::Create { path, error }),
        }
    })
}

/// The format that a file name asks for.
pub fn format_for(name: &Name) -> anyhow::Result<Format> {
    let extension = Path::new(name).extension().and_then(|extension| extension.to_str()).unwrap_or("");
    match extension.to_ascii_lowercase().as_str() {
        "pcap" | "cap" | "dmp" => Ok(Format::Pcap),
        "gz" | "zst" | "lz4" | "xz" | "bz2" => {
            bail!(
                "{name}: captures are written uncompressed: write to - and pipe it, for instance `-w - | zstd >{name}`"
            )
        }
        _ => Ok(Format::Pcapng),
    }
}

/// A capture file on a terminal is of use to nobody, and may change how the terminal behaves.
pub fn refuse_terminal() -> anyhow::Result<()> {
    if io::stdout().is_terminal() {
        bail!("a capture file is no text for a terminal: pipe standard output to a program or a file");
    }
    Ok(())
}

/// A port that sends what is kept.
pub struct PortSink {
    /// The port.
    pub port: Port,
    /// Packets are cut to this many bytes; 0 cuts nothing.
    pub snaplen: u32,
    /// Send each packet at once.
    pub flush_each: bool,
}

impl PortSink {
    fn packet(&mut self, interface: &Interface, record: &Record<'_>) -> Result<(), End> {
        let Self { port, snaplen, flush_each } = self;
        let Frame { mut data, wire_len, .. } = record.frame;
        if *snaplen != 0 {
            data = &data[..data.len().min(*snaplen as usize)];
        }
        let cut = data.len() < wire_len as usize;
        let sent = port.check(interface.link).and_then(|()| port.take(data, cut));
        sent.and_then(|()| if *flush_each { port.flush() } else { Ok(()) }).map_err(End::Failed)
    }
}

/// Where the packets of one filter go.
pub enum Sink {
    /// They are only counted.
    Nowhere,
    /// Lines or JSON objects on standard output.
    Lines(Lines),
    /// A capture file.
    File(Box<FileSink>),
    /// An interface or a device.
    Port(Box<PortSink>),
}

impl Sink {
    /// Takes a packet of the source's interface `record.frame.interface`.
    #[inline]
    pub fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Lines(lines) => lines.packet(layout, record),
            Self::File(file) => file.packet(layout, record),
            Self::Port(port) => port.packet(&layout.interfaces[record.frame.interface as usize], record),
        }
    }

    /// Makes the file, if it is one, before its first packet.
    pub fn open(&mut self) -> Result<(), End> {
        match self {
            Self::Nowhere | Self::Lines(_) | Self::Port(_) => Ok(()),
            Self::File(file) => file.open(),
        }
    }

    /// Another source follows.
    pub fn new_source(&mut self) {
        if let Self::File(file) = self {
            file.new_source();
        }
    }

    /// Writes out what is buffered, as far as somebody waits for it.
    pub fn flush(&mut self) -> Result<(), End> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Lines(lines) => lines.flush(),
            Self::File(file) => file.flush(),
            Self::Port(sink) => sink.port.flush().map_err(End::Failed),
        }
    }

    /// Whether somebody waits for each packet: what is buffered goes out when no other packet waits.
    pub fn is_awaited(&self) -> bool {
        matches!(self, Self::Lines(_) | Self::Port(_))
    }

    /// Announces a source with this layout.
    pub fn begin(&mut self, layout: &Layout) -> Result<(), End> {
        if let Self::File(file) = self { file.begin(layout) } else { Ok(()) }
    }

    /// Writes the header of a file, once all sources are announced.
    pub fn start(&mut self) -> Result<(), End> {
        if let Self::File(file) = self { file.start() } else { Ok(()) }
    }

    /// Notes what was counted at the interfaces of a source.
    pub fn statistics(&mut self, counts: &[(Interface, Statistics)]) {
        if let Self::File(file) = self {
            file.statistics(counts);
        }
    }

    /// Lines about packets whose times are not told as they were.
    pub fn time_lines(&self) -> Vec<String> {
        match self {
            Self::Nowhere | Self::Port(_) | Self::Lines(Lines { clamped: 0, .. }) => Vec::new(),
            Self::Lines(lines) => vec![format!("{} with a time {BEYOND}", packets(lines.clamped))],
            Self::File(file) => file.time_lines(),
        }
    }

    /// Writes out, or sends, what is left.
    pub fn finish(&mut self) -> Result<(), End> {
        match self {
            Self::Nowhere => Ok(()),
            Self::Lines(lines) => lines.flush(),
            Self::File(file) => file.finish(None),
            Self::Port(sink) => sink.port.finish().map_err(End::Failed),
        }
    }

    /// Packets that the output itself counted as written, or as taken by a port; `None` if packets go nowhere.
    pub fn written(&self) -> Option<u64> {
        match self {
            Self::Nowhere => None,
            Self::Lines(lines) => Some(lines.written),
            Self::File(file) => Some(file.written()),
            Self::Port(sink) => {
                let counts = sink.port.counts();
                Some(counts.sent + counts.refused())
            }
        }
    }
}
