//! Names that the packets give one address, as rows: which names resolved to it, and when.

use super::said;
use crate::numbers::{grouped, packets};
use crate::outcome::io_words;
use std::collections::HashMap;
use std::io::{self, Write};
use std::net::IpAddr;
use weir_engine::sink::{End, Note, Sink, SinkReport};
use weir_engine::zone::Zone;
use weir_measure::names::{Reader, Teller, write_name};
use weir_messages::rows::{Form, RowWriter, heading};
use weir_packet::flow::{Parser, Tunnels};
use weir_packet::savefile::{Layout, Record};
use weir_packet::time::{Digits, Shape, Stamp};
use weir_packet::transport::Transport;

/// Most names of an address; messages with further ones are counted.
const MOST: usize = 1 << 14;

/// Columns with their widths.
const COLUMNS: [(&str, usize); 5] = [
    ("name", 40),
    ("by", 3),
    ("times", 7),
    ("first_seen", 26),
    ("last_seen", 26),
];

/// Sink that prints the names of an address after the last packet.
///
/// **Memory**: 16 384 names of at most 1 KiB.
#[derive(Debug)]
pub struct NamesOf {
    address: IpAddr,
    form: Form,
    zone: Zone,
    inner: Option<Tunnels>,
    reader: Reader,
    names: HashMap<(String, Teller), Seen>,
    /// Buffer for the text of a name.
    text: String,
    taken: u64,
    /// Names that found no room, once for each message.
    left_out: u64,
}

/// Messages with a name.
#[derive(Clone, Copy, Debug)]
struct Seen {
    times: u64,
    /// Times of the first and the last packet, ns since 1970, if the packets have times.
    span_ns: Option<(i64, i64)>,
}

impl Seen {
    const NONE: Self = Self {
        times: 0,
        span_ns: None,
    };

    fn again(&mut self, time_ns: Option<i64>) {
        self.times += 1;
        if let Some(ns) = time_ns {
            let (first, last) = self.span_ns.unwrap_or((ns, ns));
            self.span_ns = Some((first.min(ns), last.max(ns)));
        }
    }
}

impl NamesOf {
    /// Names of `address`, in a form. Times of a table are of `zone`. With `inner`, packets in tunnels tell names.
    pub fn new(address: IpAddr, form: Form, zone: Zone, inner: Option<Tunnels>) -> Self {
        Self {
            address,
            form,
            zone,
            inner,
            reader: Reader::default(),
            names: HashMap::new(),
            text: String::new(),
            taken: 0,
            left_out: 0,
        }
    }

    /// The rows, the name that was seen first first.
    fn rows(&mut self) -> String {
        let mut names: Vec<_> = self.names.iter().collect();
        names.sort_by(|a, b| (a.1.span_ns, a.0).cmp(&(b.1.span_ns, b.0)));
        let mut out = heading(self.form, COLUMNS);
        let begin = format!("\"type\":\"name\",\"address\":\"{}\"", self.address);
        let (form, zone) = (self.form, &mut self.zone);
        for ((name, by), seen) in names {
            let mut row = RowWriter::new(&mut out, form, &begin);
            let [name_of, by_of, times_of, seen_of @ ..] = COLUMNS;
            row.text(name_of.0, name_of.1, name);
            let by = match by {
                Teller::Dns => "dns",
                Teller::Tls => "tls",
            };
            row.word(by_of.0, by_of.1, format_args!("{by}"));
            row.number(times_of.0, times_of.1, format_args!("{}", seen.times));
            let times = seen.span_ns.map(|(first, last)| [first, last]);
            for (i, (column, width)) in seen_of.into_iter().enumerate() {
                let Some(ns) = times.map(|times| times[i]) else {
                    row.none(column, width);
                    continue;
                };
                let mut time = String::new();
                match form {
                    Form::Table => {
                        Stamp(ns).write(
                            &mut time,
                            Shape::DateClock,
                            Digits::Micro,
                            zone.east_s(ns),
                        );
                    }
                    _ => Stamp(ns).write(&mut time, Shape::Rfc3339, Digits::Nano, 0),
                }
                row.word(column, width, format_args!("{time}"));
            }
            row.end();
        }
        out
    }
}

/// Note on packets whose names could not be read.
pub(super) fn unread_note(unread: u64) -> Note {
    Note::Said(format!(
        "{} with names could not be read: cut, broken, or in several segments",
        packets(unread)
    ))
}

impl Sink for NamesOf {
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        self.taken += 1;
        let interface = &layout.interfaces[record.frame.interface as usize];
        let parser = Parser::inside(interface.link, self.inner);
        let packet = parser.and_then(|parser| Transport::of(&parser, &record.frame).ok());
        let Some(packet) = packet else {
            return Ok(());
        };
        let Self {
            address,
            names,
            text,
            left_out,
            ..
        } = self;
        self.reader.see(&packet, &mut |by, of, name| {
            if of != *address || !write_name(text, name) {
                return;
            }
            let key = (text.clone(), by);
            if names.len() >= MOST && !names.contains_key(&key) {
                *left_out += 1;
                return;
            }
            names.entry(key).or_insert(Seen::NONE).again(record.time_ns);
        });
        Ok(())
    }

    fn flush(&mut self) -> Result<(), End> {
        Ok(())
    }

    fn finish(&mut self, _: Option<&Layout>, _: bool) -> Result<(), End> {
        let rows = self.rows();
        let mut out = io::stdout().lock();
        let written = out.write_all(rows.as_bytes()).and_then(|()| out.flush());
        written.map_err(|error| match error.kind() {
            io::ErrorKind::BrokenPipe => End::ClosedPipe,
            _ => said(format!("standard output: {}", io_words(&error))),
        })
    }

    fn is_awaited(&self) -> bool {
        true
    }

    fn report(&self) -> SinkReport {
        let unread = self.reader.unread();
        let unread = (unread > 0).then(|| unread_note(unread));
        let left_out = (self.left_out > 0).then(|| {
            Note::Said(format!(
                "{} gave the address further names than {}, which are in no row",
                packets(self.left_out),
                grouped(MOST as u64)
            ))
        });
        SinkReport {
            taken: self.taken,
            notes: unread.into_iter().chain(left_out).collect(),
            ..SinkReport::default()
        }
    }
}
