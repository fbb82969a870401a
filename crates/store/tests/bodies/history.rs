//! Any sequence of writes, looks and scans on a ring in RAM, in one thread.
//!
//! ```text
//! input  alignment  pad and largest number of pins  operation * n
//! ```
//! **Oracle**: [`Twin`], a list of the packets written, with the chunk that each went to. It computes places naively, and it learns from
//! [`Cursor::chunk`] and the number of pins which chunks the cursors keep. So it knows which packets are gone, and each look is compared
//! with it: packets come whole and in order, none that is there is left out, and those that are gone are counted.

use std::collections::VecDeque;
use std::sync::Arc;
use weir_filter::Names;
use weir_packet::savefile::{Interface, Record, Resolution};
use weir_packet::{Frame, LinkType};
use weir_store::record::{MAX_CAPTURED, Shape};
use weir_store::ring::{
    Cursor, Filters, From, History, Piece, Refused, Scan, Settings, Writer, ring,
};
use weir_testkit::Input;

const LINKS: [LinkType; 2] = [LinkType::ETHERNET, LinkType::LINUX_SLL2];
const LENGTHS: [usize; 8] = [
    0,
    15,
    64,
    1500,
    9000,
    100_000,
    MAX_CAPTURED - 3,
    MAX_CAPTURED,
];
const CHUNK: usize = 1 << 20;
const CHUNKS: usize = 3;
/// Time for which a look asks for a chunk, ns.
const KEEP_NS: u64 = 2_000_000_000;
const START_NS: i64 = 1_700_000_000_000_000_000;
const SECOND: i64 = 1_000_000_000;
/// Operations of a case.
const MOST: usize = 200;
/// Bytes of the packets of a case.
const MOST_BYTES: usize = 24 << 20;
/// Packets shorter than this do not match the expression.
const GREATER: u32 = 1000;

/// The filters of all scans; made once, because compiling is slow.
pub fn filters() -> Arc<Filters> {
    Arc::new(
        Filters::compile(
            &format!("greater {GREATER}"),
            &LINKS.map(interface),
            &Names::NONE,
        )
        .expect("it is an expression"),
    )
}

fn interface(link: LinkType) -> Interface {
    Interface::plain(link, 0, Resolution::NANOSECOND)
}

/// A packet as it was written.
#[derive(Clone, Debug)]
struct Packet {
    time_ns: Option<i64>,
    len: usize,
    /// First byte, which all others follow from.
    seed: u8,
    tagged: bool,
    interface: u32,
}

impl Packet {
    fn bytes(&self) -> Vec<u8> {
        let mut bytes: Vec<u8> = (0..self.len)
            .map(|at| self.seed.wrapping_add((at ^ at >> 8) as u8))
            .collect();
        if let Some(ethertype) = bytes.get_mut(12..16) {
            ethertype.copy_from_slice(if self.tagged {
                &[0x81, 0, 0xf0, 7]
            } else {
                &[8, 0, 0x45, 0]
            });
        }
        bytes
    }

    fn wire_len(&self) -> u32 {
        self.len as u32 + u32::from(self.seed)
    }

    fn vlan(&self) -> Option<u16> {
        (self.tagged && self.len >= 16 && self.interface == 0).then_some(7)
    }
}

/// A chunk in one filling.
#[derive(Clone, Debug, Default)]
struct Chunk {
    /// Place in the order of filling; `None` before the first one.
    sequence: Option<u64>,
    base_ns: i64,
    /// Numbers of the packets: the first, and the one behind the last published and the last written one.
    first: u64,
    published: u64,
    end: u64,
    front: usize,
    back: usize,
    /// Latest time of all packets, and of those that are published.
    latest: Option<i64>,
    /// Time at which the latest packet arrived, ns.
    arrived: Option<i64>,
    shown: Option<i64>,
    /// Whether the chunk was emptied for its age, or taken for that.
    empty: bool,
    /// Latest time until which a reader asked for the chunk.
    until: u64,
}

impl Chunk {
    /// Whether all packets are earlier, given the time of the latest one.
    fn is_before(&self, latest: Option<i64>, time_ns: i64) -> bool {
        // The least time stands for none.
        !self.empty && latest.is_some_and(|latest| latest != i64::MIN && latest < time_ns)
    }
}

/// A pin of a chunk, by a cursor and the pieces that it has given out.
#[derive(Clone, Debug)]
struct Pin {
    sequence: u64,
    by_cursor: bool,
    pieces: usize,
}

impl Pin {
    fn is_live(&self) -> bool {
        self.by_cursor || self.pieces > 0
    }
}

struct Twin {
    align: usize,
    pad: usize,
    packets: Vec<Packet>,
    published: u64,
    /// All chunks but the current one, the oldest first.
    order: VecDeque<Chunk>,
    current: Option<Chunk>,
    taken: u64,
    base_ns: i64,
    refused: Refused,
    pins: Vec<Pin>,
}

impl Twin {
    fn new(align: usize, pad: usize) -> Self {
        let empty = Chunk {
            empty: true,
            ..Chunk::default()
        };
        Self {
            align,
            pad,
            packets: Vec::new(),
            published: 0,
            order: vec![empty; CHUNKS].into(),
            current: None,
            taken: 0,
            base_ns: 0,
            refused: Refused::default(),
            pins: Vec::new(),
        }
    }

    /// Whether readers keep a chunk.
    fn is_used(&self, chunk: &Chunk, now: u64) -> bool {
        if chunk.empty {
            return false;
        }
        let is_here = |pin: &&Pin| Some(pin.sequence) == chunk.sequence && pin.is_live();
        let mut pins = self.pins.iter().filter(is_here).peekable();
        pins.peek().is_some() && (now < chunk.until || pins.any(|pin| pin.pieces > 0))
    }

    fn take(&mut self, now: u64, chunk: Chunk) -> bool {
        let Some(free) = self
            .order
            .iter()
            .position(|chunk| !self.is_used(chunk, now))
        else {
            return false;
        };
        self.order.remove(free);
        self.order.extend(self.current.replace(Chunk {
            sequence: Some(self.taken),
            ..chunk
        }));
        self.taken += 1;
        true
    }

    fn publish(&mut self) {
        self.published = self.packets.len() as u64;
        if let Some(chunk) = &mut self.current {
            (chunk.published, chunk.shown) = (chunk.end, chunk.latest);
        }
    }

    /// First place at or behind `at` at which a record may begin.
    fn place(&self, at: usize) -> usize {
        (at.max(self.pad)..)
            .find(|place| (place - self.pad).is_multiple_of(self.align))
            .expect("there is one")
    }

    fn append(&mut self, packet: &Packet, now: u64) -> bool {
        if packet.len > MAX_CAPTURED {
            self.refused.too_long += 1;
            return false;
        }
        let fits = |chunk: &Chunk| {
            !chunk.empty && self.place(chunk.front) + 16 + packet.len + 8 + 4 + chunk.back <= CHUNK
        };
        if !self.current.as_ref().is_some_and(fits) {
            self.publish();
            let (base_ns, first) = (
                packet.time_ns.unwrap_or(self.base_ns),
                self.packets.len() as u64,
            );
            let chunk = Chunk {
                base_ns,
                first,
                published: first,
                end: first,
                front: 16,
                ..Chunk::default()
            };
            if !self.take(now, chunk) {
                self.refused.no_room += 1;
                return false;
            }
            self.base_ns = base_ns;
        }
        let at = self.place(self.current.as_ref().expect("it was taken").front);
        let chunk = self.current.as_mut().expect("it was taken");
        let far = packet.time_ns.is_some_and(|time| {
            let delta = i128::from(time) - i128::from(chunk.base_ns);
            !(-(1 << 47)..1 << 47).contains(&delta)
        });
        chunk.front = at + 16 + packet.len + if far { 8 } else { 0 };
        chunk.back += 4;
        chunk.end += 1;
        chunk.latest = chunk.latest.max(packet.time_ns);
        chunk.arrived = Some(now as i64);
        self.packets.push(packet.clone());
        true
    }

    fn expire(&mut self, oldest_ns: i64, now: u64) {
        let is_old = |chunk: &Chunk| {
            !chunk.empty && chunk.arrived.is_some_and(|arrived| arrived < oldest_ns)
        };
        if self.current.as_ref().is_some_and(is_old) {
            self.publish();
            self.take(
                now,
                Chunk {
                    empty: true,
                    ..Chunk::default()
                },
            );
        }
        for at in 0..self.order.len() {
            if self.order[at].empty {
                continue;
            }
            if !is_old(&self.order[at]) || self.is_used(&self.order[at], now) {
                break;
            }
            self.order[at].empty = true;
        }
    }

    /// Chunks whose packets are there, the oldest first.
    fn chunks(&self) -> impl Iterator<Item = &Chunk> {
        self.order
            .iter()
            .chain(&self.current)
            .filter(|chunk| !chunk.empty)
    }

    /// First published packet at or behind `number` that is there, and the end of its chunk.
    fn next(&self, number: u64) -> Option<(u64, u64)> {
        let chunk = self
            .chunks()
            .find(|chunk| chunk.published > number.max(chunk.first))?;
        Some((chunk.first.max(number), chunk.published))
    }

    /// First published packet of a cursor without a number, and the end of its chunk. The cursor is at the chunk with this place, and has
    /// decided for it if `decided`.
    fn begin(&self, from: From, sequence: u64, decided: bool) -> Option<(u64, u64)> {
        let mut behind = self
            .chunks()
            .filter(|chunk| chunk.sequence >= Some(sequence));
        let is_early =
            |chunk: &Chunk| matches!(from, From::Time(time) if chunk.is_before(chunk.shown, time));
        // The newest chunk is taken whatever its times are.
        let is_newest = |chunk: &Chunk| {
            chunk
                .sequence
                .is_some_and(|sequence| sequence + 1 == self.taken)
        };
        let is_taken = |chunk: &Chunk| {
            decided && chunk.sequence == Some(sequence) && chunk.published > chunk.first
        };
        let chunk = behind.find(|chunk| is_taken(chunk) || !is_early(chunk) || is_newest(chunk))?;
        (chunk.published > chunk.first).then_some((chunk.first, chunk.published))
    }

    /// Takes note that a reader asked for these chunks.
    fn asked(&mut self, from: u64, to: u64, now: u64) {
        for chunk in self.order.iter_mut().chain(&mut self.current) {
            if chunk
                .sequence
                .is_some_and(|sequence| (from..=to).contains(&sequence))
            {
                chunk.until = chunk.until.max(now + KEEP_NS);
            }
        }
    }

    /// Number of pins.
    fn pinned(&self) -> usize {
        self.pins.iter().filter(|pin| pin.is_live()).count()
    }
}

/// A cursor, with what the twin knows of it.
struct Reader {
    cursor: Cursor,
    from: From,
    missed: u64,
    /// Index of its pin.
    pin: Option<usize>,
}

/// A ring and its twin.
struct World {
    writer: Writer,
    history: History,
    twin: Twin,
    max_pins: usize,
    readers: Vec<Reader>,
    /// Pieces that are kept, with the indices of their pins.
    pieces: VecDeque<(Piece, usize)>,
    now: u64,
}

impl World {
    fn new(align: usize, pad: bool, max_pins: usize) -> Self {
        let shape = Shape::new(align as u32, pad).expect("the caller keeps to the limits");
        let settings = Settings {
            bytes: CHUNKS * CHUNK,
            shape,
            max_pins: Some(max_pins),
            ..Settings::default()
        };
        let (mut writer, history) = ring(&settings).expect("there is memory");
        for (id, link) in LINKS.into_iter().enumerate() {
            assert_eq!(writer.interface(&interface(link)), Some(id as u32));
        }
        let twin = Twin::new(align, shape.pad());
        Self {
            writer,
            history,
            twin,
            max_pins,
            readers: Vec::new(),
            pieces: VecDeque::new(),
            now: 0,
        }
    }

    fn write(&mut self, packet: &Packet) {
        let data = packet.bytes();
        let frame = Frame {
            data: &data,
            wire_len: packet.wire_len(),
            interface: packet.interface,
        };
        self.writer.arrive(self.now as i64);
        let taken = self.writer.append(
            &Record {
                time_ns: packet.time_ns,
                frame,
                options: Default::default(),
            },
            self.now,
        );
        assert_eq!(
            taken,
            self.twin.append(packet, self.now),
            "packet {}",
            self.twin.packets.len()
        );
    }

    /// Compares the figures of the ring with those of the twin.
    fn account(&self) {
        let twin = &self.twin;
        assert_eq!(self.writer.refused(), twin.refused);
        assert_eq!(
            (self.writer.next(), self.history.next()),
            (twin.packets.len() as u64, twin.published)
        );
        assert_eq!(self.writer.chunks_taken(), twin.taken);
        assert_eq!(self.history.pins(), (twin.pinned(), self.max_pins));
        let held = self.history.held();
        let there: Vec<_> = twin
            .chunks()
            .flat_map(|chunk| chunk.first..chunk.published)
            .collect();
        assert_eq!(held.packets, there.len() as u64);
        let times = || {
            there
                .iter()
                .filter_map(|&number| twin.packets[number as usize].time_ns)
        };
        assert_eq!(held.times_ns, times().min().zip(times().max()));
    }

    /// Compares a packet of a piece with what was written.
    fn compare(&self, piece: &Piece, index: usize) {
        let number = piece.number(index);
        let (record, packet) = (piece.record(index), &self.twin.packets[number as usize]);
        let Frame {
            data,
            wire_len,
            interface,
        } = record.frame;
        assert_eq!(
            (record.time_ns, wire_len, interface),
            (packet.time_ns, packet.wire_len(), packet.interface)
        );
        assert!(data == packet.bytes(), "packet {number} is whole");
        assert_eq!(piece.vlan(index), packet.vlan());
        let place = data.as_ptr() as usize - 16 - self.twin.pad;
        assert!(
            place.is_multiple_of(self.twin.align),
            "packet {number} is aligned"
        );
    }

    /// Looks with a cursor, and keeps the piece if `keep`.
    fn look(&mut self, index: usize, keep: bool) {
        let (now, reader) = (self.now, &mut self.readers[index]);
        let (chunk, starved, number) = (
            reader.cursor.chunk(),
            reader.cursor.starved(),
            reader.cursor.number(),
        );
        let expected = match number {
            Some(number) => self.twin.next(number),
            None => self.twin.begin(reader.from, chunk, reader.pin.is_some()),
        };
        let piece = reader.cursor.next(now);
        let found = piece
            .as_ref()
            .map(|piece| (piece.number(0), piece.number(piece.len() - 1) + 1));
        let is_starved = reader.cursor.starved() > starved;
        if !is_starved {
            assert_eq!(
                found, expected,
                "the packets that are there, to the end of their chunk"
            );
        }
        // Where the cursor is now, all in front of it came or is gone.
        let reached = found.map(|found| found.0).or(reader.cursor.number());
        if let (Some(number), Some(reached)) = (number, reached) {
            assert!(
                reached >= number && self.twin.next(number).is_none_or(|next| next.0 >= reached)
            );
            reader.missed += reached - number;
        }
        assert_eq!(reader.cursor.missed(), reader.missed);
        assert_eq!(
            found.map(|found| found.1).or(reached),
            reader.cursor.number()
        );
        // The pin.
        let to = reader.cursor.chunk();
        let kept = reader.pin.filter(|&pin| self.twin.pins[pin].sequence == to);
        if kept.is_none()
            && let Some(pin) = reader.pin.take()
        {
            self.twin.pins[pin].by_cursor = false;
            // It was looked at, before it was left.
            self.twin.asked(chunk, chunk, now);
        }
        let held = self.history.pins().0 - self.twin.pinned();
        assert!(held <= usize::from(kept.is_none()), "a cursor has one pin");
        if is_starved {
            assert!(
                self.twin.pinned() == self.max_pins && found.is_none(),
                "there was a pin for this cursor"
            );
        }
        if held == 1 {
            reader.pin = Some(self.twin.pins.len());
            self.twin.pins.push(Pin {
                sequence: to,
                by_cursor: true,
                pieces: 0,
            });
        }
        if let Some(pin) = reader.pin {
            self.twin.asked(chunk, to, now);
            let Some(piece) = piece else { return };
            for index in 0..piece.len() {
                self.compare(&piece, index);
            }
            if keep {
                self.twin.pins[pin].pieces += 1;
                self.pieces.push_back((piece, pin));
            }
        } else {
            assert!(piece.is_none(), "a piece is pinned");
            if !is_starved && number.is_none_or(|number| number < self.twin.published) {
                // It asked for all chunks, and none was of use.
                self.twin.asked(chunk, u64::MAX, now);
            }
        }
    }

    /// Scans the ring.
    fn scan(&mut self, from: Option<u64>, times: (i64, i64), filters: Option<&Arc<Filters>>) {
        let is_filtered = filters.is_some();
        let mut scan = Scan::new(&self.history, from, filters.cloned(), times.0..=times.1);
        let begin = match from {
            Some(number) => self.twin.next(number),
            None => self.twin.begin(From::Time(times.0), 0, false),
        };
        let mut found = Vec::new();
        while let Some(matches) = scan.next(self.now) {
            for &index in &matches.found {
                self.compare(&matches.piece, index as usize);
                found.push(matches.piece.number(index as usize));
            }
            scan.reuse(matches);
        }
        if self.twin.pinned() == self.max_pins {
            return assert!(found.is_empty(), "no pin was left");
        }
        let is_wanted = |number: &u64| {
            let packet = &self.twin.packets[*number as usize];
            let is_within = packet
                .time_ns
                .is_none_or(|time| (times.0..=times.1).contains(&time));
            is_within && (!is_filtered || packet.wire_len() >= GREATER)
        };
        let there = self
            .twin
            .chunks()
            .flat_map(|chunk| chunk.first..chunk.published);
        let begin = begin.map_or(u64::MAX, |begin| begin.0);
        let expected: Vec<_> = there
            .filter(|&number| number >= begin)
            .filter(is_wanted)
            .collect();
        assert_eq!(found, expected);
        let published = self.twin.published;
        let gone = (from.unwrap_or(begin)..published).filter(|&number| {
            !self
                .twin
                .chunks()
                .any(|chunk| (chunk.first..chunk.published).contains(&number))
        });
        assert_eq!(scan.missed(), gone.count() as u64, "from {from:?}");
        // All chunks up to the last packet, unless there was nothing to look for.
        if from.is_none_or(|from| from < published) {
            let last = self
                .twin
                .chunks()
                .filter(|chunk| chunk.published > chunk.first && chunk.published > begin)
                .last();
            let last = last.and_then(|chunk| chunk.sequence).unwrap_or(u64::MAX);
            self.twin.asked(0, last, self.now);
        }
    }
}

/// Does with a ring what the input says. See the module.
pub fn history(data: &[u8], filters: &Arc<Filters>) {
    let input = &mut Input(data);
    let (shape, pins) = (input.byte(), input.byte());
    let align = 1 << (shape & 7);
    let mut world = World::new(
        align,
        shape & 8 != 0 && align >= 4,
        1 + usize::from(pins & 3),
    );
    let (mut room, mut turn) = (MOST_BYTES, 0);
    while !input.0.is_empty() && turn < MOST {
        turn += 1;
        let (operation, choice) = (input.byte(), input.byte());
        let time = |choice: u8, number: usize| match choice {
            0 => None,
            1 => Some(START_NS + 200_000 * SECOND),
            2 => Some(i64::MIN),
            3 => Some(i64::MAX),
            _ => Some(START_NS + number as i64 * SECOND / 4 - i64::from(choice) * 10_000_000),
        };
        match operation % 10 {
            0..=2 => {
                let (count, seed) = (1 + input.byte() % 32, input.byte());
                let len = LENGTHS[usize::from(choice & 7)];
                for number in 0..usize::from(count).min(1 + 3 * CHUNK / 2 / (len + 1)) {
                    if len > room {
                        break;
                    }
                    room -= len;
                    world.write(&Packet {
                        time_ns: time(seed & 15, world.twin.packets.len()),
                        len: if operation >= 250 {
                            MAX_CAPTURED + 1
                        } else {
                            len
                        },
                        seed: seed.wrapping_add(number as u8),
                        tagged: choice & 8 != 0,
                        interface: u32::from(choice >> 4 & 1),
                    });
                }
            }
            3 => {
                world.writer.publish();
                world.twin.publish();
            }
            4 | 5 if !world.readers.is_empty() => {
                let index = usize::from(choice & 15) % world.readers.len();
                world.look(index, choice & 0x30 == 0);
            }
            6 => {
                let number = u64::from(choice >> 2);
                let from = match choice & 3 {
                    0 => From::Oldest,
                    1 => From::Number(world.twin.packets.len() as u64 / 64 * number),
                    2 => From::Number(number),
                    _ => From::Time(time(choice >> 2 & 15, usize::from(choice)).unwrap_or(0)),
                };
                if world.readers.len() == 4
                    && let Some(pin) = world.readers.remove(0).pin
                {
                    world.twin.pins[pin].by_cursor = false;
                }
                let cursor = world.history.cursor(from);
                world.readers.push(Reader {
                    cursor,
                    from,
                    missed: 0,
                    pin: None,
                });
            }
            7 if choice & 1 == 0 => {
                if let Some((_, pin)) = world.pieces.pop_front() {
                    world.twin.pins[pin].pieces -= 1;
                }
            }
            7 => {
                let index = usize::from(choice >> 1);
                if let Some(reader) = world.readers.get_mut(index % 4) {
                    reader.cursor.rest();
                    if let Some(pin) = reader.pin.take() {
                        world.twin.pins[pin].by_cursor = false;
                    }
                }
            }
            8 => {
                let number = usize::from(choice >> 1);
                let begin = time(4, number).unwrap_or(0);
                let end = begin.saturating_add(i64::from(input.byte()) * SECOND);
                let times = if choice & 1 == 0 {
                    (i64::MIN, i64::MAX)
                } else {
                    (begin, end)
                };
                let from = (operation & 1 == 0 && choice & 2 == 0).then_some(number as u64);
                world.scan(from, times, (choice & 4 == 0).then_some(filters));
            }
            _ if choice & 1 == 0 => world.now += u64::from(choice) * 20_000_000,
            _ => {
                let oldest_ns = world.now as i64 - i64::from(choice >> 1) * 20_000_000;
                world.writer.expire(oldest_ns, world.now);
                world.twin.expire(oldest_ns, world.now);
            }
        }
        world.account();
    }
}
