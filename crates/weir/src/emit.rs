//! Output of packets as lines or JSON objects on standard output, and rules for output files.

mod columns;
mod names;

pub use columns::Columns;
pub use names::NamesOf;

use crate::numbers::{grouped, packets};
use crate::outcome::io_words;
use crate::terminal::printable;
use anyhow::bail;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal, Stdout, Write};
use weir_engine::sink::{End, Loss, Lost, Note, Sink, SinkFault, SinkReport};
use weir_engine::zone::Zone;
use weir_io::sys::packet_socket::name_of;
use weir_io::sys::standard;
use weir_io::sys::writer::Writer;
use weir_measure::Places;
use weir_messages::measured::BEYOND;
use weir_packet::LinkType;
use weir_packet::fields::Packet;
use weir_packet::flow::{Parser, Tunnels};
use weir_packet::line::{Conversations, Style, write_line};
use weir_packet::savefile::{Direction, Format, Layout, Record};
use weir_packet::time::{Digits, Shape, Stamp, write_span};
use weir_packet::transport::Transport;

/// Settings for packets as text.
#[derive(Debug)]
pub struct Text {
    /// Parts of a packet to print.
    pub style: Style,
    /// Time in front of each line.
    pub when: When,
    /// Digits of the time.
    pub digits: Digits,
    /// Whether each line begins with its number.
    pub number: bool,
    /// Time zone of printed times.
    pub zone: Zone,
    /// Bytes of a packet to keep before it is printed; 0 keeps all.
    pub snaplen: u32,
    /// Tunnels into which is looked, if columns of IP and above belong to the packet in the innermost one.
    pub inner: Option<Tunnels>,
    /// Columns of rows, instead of lines.
    pub columns: Option<Columns>,
    /// Places of addresses, for columns.
    pub places: Option<Places>,
    /// Names of addresses in the packets so far, for columns.
    pub seen: Option<weir_measure::names::Names>,
}

/// Time in front of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum When {
    /// Time of the packet.
    At(Shape),
    /// Time since the previous line.
    SincePrevious,
    /// Time since the first line.
    SinceFirst,
}

/// Sink that prints packets to standard output, as lines or JSON objects.
#[derive(Debug)]
pub struct Lines {
    text: Text,
    out: Writer<Stdout>,
    buffer: String,
    flush_each: bool,
    names: Names,
    /// End of each packet's text in `buffer`. If a write stops midway, the output is cut at one of them.
    ends: Vec<u32>,
    /// Packets handed to the buffer.
    given: u64,
    /// Packets written completely.
    written: u64,
    /// Packets that were lost with the failure of the output.
    lost: Option<Lost>,
    /// Packets whose printed time was clamped.
    clamped: u64,
    /// First sequence numbers of TCP conversations. Packets arrive here in the order of their source, with any number of workers.
    conversations: Conversations,
    /// Time of the previous or the first line, ns, if times are printed as distances.
    reference_ns: Option<i64>,
}

impl Lines {
    /// Bytes gathered before a write.
    const BUFFER: usize = 64 << 10;

    /// Makes a sink that prints with the settings `text`, and after each packet if `flush_each`.
    pub fn new(text: Text, flush_each: bool) -> Self {
        let (out, buffer) = (
            Writer::new(io::stdout()),
            String::with_capacity(2 * Self::BUFFER),
        );
        let buffer = match &text.columns {
            Some(columns) => columns.heading() + &buffer,
            None => buffer,
        };
        Self {
            text,
            out,
            buffer,
            flush_each,
            names: Names::default(),
            ends: Vec::new(),
            given: 0,
            written: 0,
            lost: None,
            clamped: 0,
            conversations: Conversations::new(),
            reference_ns: None,
        }
    }

    /// Appends the number of the line and the time, as far as they are wanted, each with the space after it.
    fn front(&mut self, time_ns: Option<i64>) {
        let Text {
            when,
            digits,
            number,
            ref mut zone,
            ..
        } = self.text;
        if number {
            let written = write!(self.buffer, "{:5}  ", self.given + 1);
            debug_assert!(written.is_ok(), "writing to a String cannot fail");
        }
        let ns = time_ns.unwrap_or(0);
        let shape = match when {
            When::At(Shape::None) => return,
            When::At(shape) => shape,
            When::SincePrevious | When::SinceFirst => {
                // Differences of printed times, as tcpdump has them.
                let ns = match digits {
                    Digits::Micro => ns.div_euclid(1000) * 1000,
                    Digits::Nano => ns,
                };
                let distance = ns.saturating_sub(*self.reference_ns.get_or_insert(ns));
                self.buffer.push_str(if distance < 0 { "" } else { " " });
                write_span(&mut self.buffer, distance, digits);
                self.buffer.push(' ');
                if when == When::SincePrevious {
                    self.reference_ns = Some(ns);
                }
                return;
            }
        };
        Stamp(ns).write(&mut self.buffer, shape, digits, zone.east_s(ns));
        self.buffer.push(' ');
    }
}

impl Sink for Lines {
    fn packet(&mut self, layout: &Layout, record: &Record<'_>) -> Result<(), End> {
        let place = record.frame.interface as usize;
        let interface = &layout.interfaces[place];
        // In a capture from all interfaces, the header holds an interface number of this machine.
        let any = if layout.format == Format::Ring {
            Cooked::of(interface.link, record.frame.data)
        } else {
            None
        };
        let Text {
            style,
            snaplen,
            inner,
            ref mut columns,
            ref mut places,
            ref mut seen,
            ref mut zone,
            ..
        } = self.text;
        let mut frame = record.frame;
        if snaplen != 0 {
            frame.data = &frame.data[..frame.data.len().min(snaplen as usize)];
        }
        // A dump needs up to 75 columns for 16 bytes, and a name up to four characters for a byte.
        let room = 4096 + 5 * frame.data.len();
        let had = self
            .buffer
            .try_reserve(room)
            .and_then(|()| self.ends.try_reserve(1));
        had.map_err(|_| said("standard output: out of memory".to_owned()))?;
        if let Some(columns) = columns {
            let direction = any
                .map(|any| any.direction())
                .or_else(|| layout.direction(place));
            let name = any.map(|any| self.names.of(any.interface));
            let mut packet = Packet::new(interface.link, frame, inner);
            packet.time_ns = record.time_ns;
            packet.interface = name.or(interface.name.as_deref());
            packet.direction = direction.map(word);
            if let Some((places, flow)) = places.as_mut().zip(packet.key().copied()) {
                packet.places = places.ends(&flow);
            }
            if let Some(seen) = seen {
                let parser = Parser::inside(interface.link, inner);
                let whole = parser.and_then(|parser| Transport::of(&parser, &record.frame).ok());
                if let Some(whole) = whole {
                    seen.see(&whole);
                    let ends = [whole.key.source(), whole.key.destination()];
                    packet.names = ends.map(|address| seen.of(address?));
                }
            }
            columns.write(
                &mut self.buffer,
                &packet,
                (&style, &mut self.conversations),
                zone,
            );
        } else {
            self.front(record.time_ns);
            let (buffer, conversations) = (&mut self.buffer, &mut self.conversations);
            match any {
                Some(any) => {
                    let start = buffer.len();
                    write_line(buffer, interface.link, &frame, &style, conversations);
                    // A line with link header begins with the direction, which the words inserted here already tell.
                    let said = if style.link_header {
                        start + Cooked::WAY
                    } else {
                        start
                    };
                    let words = any.words(&printable(self.names.of(any.interface)));
                    buffer.replace_range(start..said.min(buffer.len()), &words);
                }
                None => write_line(buffer, interface.link, &frame, &style, conversations),
            }
            self.buffer.push('\n');
        }
        self.ends.push(self.buffer.len() as u32);
        self.clamped += u64::from(record.time_ns.is_some_and(|ns| Stamp(ns).is_clamped()));
        if self.flush_each || self.buffer.len() >= Self::BUFFER {
            self.flush()?;
        }
        self.given += 1;
        Ok(())
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
        let end = if whole == 0 {
            0
        } else {
            self.ends[whole - 1] as usize
        };
        if done > end {
            // Best effort: a pipe or a terminal keeps the part of a line that it has taken.
            let _ = self.out.take_back((done - end) as u64);
        }
        self.buffer.clear();
        self.ends.clear();
        let Err(error) = result else {
            return Ok(());
        };
        let is_closed = error.kind() == io::ErrorKind::BrokenPipe;
        self.lost = Some(Lost {
            packets: self.given.saturating_sub(self.written),
            why: if is_closed {
                Loss::Closed
            } else {
                Loss::Failed
            },
        });
        Err(match is_closed {
            true => End::ClosedPipe,
            false => said(format!("standard output: {}", io_words(&error))),
        })
    }

    fn finish(&mut self, _: Option<&Layout>, ended: bool) -> Result<(), End> {
        if ended { Ok(()) } else { self.flush() }
    }

    fn is_awaited(&self) -> bool {
        true
    }

    fn report(&self) -> SinkReport {
        let clamped = (self.clamped > 0)
            .then(|| Note::Said(format!("{} with a time {BEYOND}", packets(self.clamped))));
        let evicted = self.conversations.evicted();
        let evicted = (evicted > 0).then(|| {
            let (places, most) = (grouped(evicted), grouped(Conversations::MOST as u64));
            Note::Said(format!(
                "relative sequence numbers began anew {places} times, because lines remember {most} TCP conversations (-S: absolute)"
            ))
        });
        let names = self.text.seen.as_ref();
        let nameless = names.filter(|names| names.lost() > 0).map(|names| {
            let (times, most) = (grouped(names.lost()), grouped(names.len() as u64));
            Note::Said(format!(
                "addresses lost their names {times} times, because names of about {most} addresses are remembered"
            ))
        });
        let unread = names.map_or(0, weir_measure::names::Names::unread);
        let unread = (unread > 0).then(|| names::unread_note(unread));
        let names = nameless.into_iter().chain(unread);
        SinkReport {
            taken: self.written,
            lost: self.lost.into_iter().collect(),
            notes: clamped.into_iter().chain(evicted).chain(names).collect(),
            ..SinkReport::default()
        }
    }
}

/// Failure of the sink with this message.
fn said(line: String) -> End {
    End::Failed(SinkFault::Said(line))
}

/// Names of this machine's interfaces by number. Each name is looked up once.
#[derive(Debug, Default)]
struct Names(BTreeMap<u32, String>);

impl Names {
    /// Most names kept. All are forgotten beyond this number, because interfaces come and go.
    const MOST: usize = 1024;

    /// Name of an interface; `?`, as in tcpdump, if the interface no longer exists.
    fn of(&mut self, number: u32) -> &str {
        if self.0.len() >= Self::MOST && !self.0.contains_key(&number) {
            self.0.clear();
        }
        self.0
            .entry(number)
            .or_insert_with(|| name_of(number).unwrap_or_else(|| "?".to_owned()))
    }
}

/// Fields of the LINUX_SLL2 header: the interface that saw a packet, and the packet type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cooked {
    interface: u32,
    /// A `PACKET_` value of linux/if_packet.h.
    kind: u8,
}

impl Cooked {
    /// Length of the direction at the start of a line, when the link header is printed; in bytes.
    const WAY: usize = 4;

    fn of(link: LinkType, data: &[u8]) -> Option<Self> {
        let header: &[u8; 20] = data
            .first_chunk()
            .filter(|_| link == LinkType::LINUX_SLL2)?;
        let [_, _, _, _, a, b, c, d, _, _, kind, ..] = *header;
        Some(Self {
            interface: u32::from_be_bytes([a, b, c, d]),
            kind,
        })
    }

    fn direction(self) -> Direction {
        if self.kind == 4 {
            Direction::Out
        } else {
            Direction::In
        }
    }

    /// Start of a line as in `tcpdump -i any`: interface and packet type.
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

/// Word on the direction of a packet.
fn word(direction: Direction) -> &'static str {
    match direction {
        Direction::Out => "out",
        Direction::In => "in",
    }
}

/// Refuses a terminal as standard output for a capture file. Binary data is unreadable, and may change the terminal's
/// behaviour.
pub fn refuse_terminal() -> anyhow::Result<()> {
    if io::stdout().is_terminal() {
        bail!(
            "a capture file is not text for a terminal: pipe standard output to a program or a file"
        );
    }
    Ok(())
}
