//! Damaged record directories: what a dying disk or an attacker leaves of segments, indexes and compressed segments.
//!
//! ```text
//! input  form  block  expression  from  to  count  packet * count  damage * n
//! form   bits 0..2: 0 open, 1 closed, 2 compressed   2: segments of at most 20 packets   3: one packet more after the damage   4: reindexed
//! packet bits 0..3: length   3: a VLAN tag   4: of another interface   5..7: host   7: written at once
//! damage kind, file, place (u16), length, value (u32); all little endian
//! ```
//! **Oracle**: the list of packets that were recorded, and naive readers of pcapng and of the seek table. Damage that changes checksums
//! too ("signed") can forge packets, so of that only the end and the number of bytes read are checked.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_packet::savefile::{Interface, Record, Resolution};
use weir_packet::{Frame, LinkType};
use weir_store::disk::{
    IndexUse, Now, PAGE, Reader, Recorder, Selection, Settings, System, reindex,
};
use weir_testkit::Input;

const START_NS: i64 = 1_700_000_000_000_000_000;
const STEP_NS: i64 = 1_000_000;
/// Packets of a segment, if segments end by time.
const PERIOD: i64 = 20;
const LENGTHS: [usize; 8] = [60, 61, 100, 333, 700, 1500, 9000, 60_000];
const BLOCKS: [usize; 4] = [64, 400, 4000, 64 << 10];
const NAMES: [&str; 3] = ["eth7", "any", "tap1"];
const LINKS: [LinkType; 3] = [LinkType::ETHERNET, LinkType::LINUX_SLL2, LinkType::ETHERNET];
const MARK: u32 = 0x8000_0bad;
/// The number of an interface that was not recorded: a damaged block may tell of one.
const DAMAGED: usize = usize::MAX;

/// A packet: time, number of its interface, bytes.
type Packet = (i64, usize, Vec<u8>);

type Matches = fn(&Packet) -> bool;

/// Expressions of tcpdump, each with a naive test.
const EXPRESSIONS: [(&str, Matches); 6] = [
    ("", |_| true),
    ("host 10.0.0.2", |packet| host(packet) == Some(2)),
    ("udp dst port 53", |packet| host(packet).is_some()),
    ("src host 10.0.0.3 and src port 1003", |packet| {
        host(packet) == Some(3)
    }),
    ("greater 600", |packet| packet.2.len() >= 600),
    ("udp src port 9", |_| false),
];

/// Host of a packet without a tag.
fn host(packet: &Packet) -> Option<u8> {
    let network = [14, 20, 14][packet.1];
    (packet.2[network] == 0x45).then(|| packet.2[network + 15])
}

fn bytes_of(number: usize, choice: u8) -> (usize, Vec<u8>) {
    let host = choice >> 5 & 3;
    let interface = if choice & 0x10 == 0 {
        0
    } else {
        1 + usize::from(host == 1)
    };
    let tagged = choice & 8 != 0 && interface != 1;
    let mut data = match (interface, tagged) {
        (0 | 2, false) => vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0],
        (0 | 2, true) => vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x81, 0, 0, 7, 8, 0],
        _ => vec![8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0],
    };
    data.extend([
        0x45, 0, 0, 40, 0, 0, 0, 0, 64, 17, 0, 0, 10, 0, 0, host, 10, 1, 0, 9,
    ]);
    data.extend([3, 0xe8 + host, 0, 53, 0, 20, 0, 0]);
    data.extend((number as u64).to_le_bytes());
    data.resize(LENGTHS[usize::from(choice & 7)], choice);
    (interface, data)
}

/// A record, before its files were damaged.
struct Original {
    packets: Vec<Packet>,
    /// Contents of all files but the lock.
    files: BTreeMap<PathBuf, Vec<u8>>,
    /// Plain bytes of each segment.
    plain: BTreeMap<PathBuf, Vec<u8>>,
}

fn contents(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let paths = fs::read_dir(dir)
        .expect("it can be listed")
        .map(|entry| entry.expect("it can be listed").path());
    paths
        .filter(|path| path.extension().is_some())
        .map(|path| (path.clone(), fs::read(path).unwrap()))
        .collect()
}

fn now(number: usize) -> Now {
    let steady_ns = number as u64 * STEP_NS as u64;
    Now {
        steady_ns,
        wall_ns: START_NS + steady_ns as i64,
    }
}

fn recorder(dir: &Path, settings: &Settings) -> Recorder {
    let opened = Recorder::open(
        Arc::new(System { cached: true }),
        dir,
        settings.clone(),
        now(0),
    );
    let (mut recorder, _) = opened.expect("any directory can be recovered");
    for (name, link) in NAMES.into_iter().zip(LINKS) {
        recorder.interface(&Interface {
            name: Some(name.into()),
            ..Interface::plain(link, 0, Resolution::NANOSECOND)
        });
    }
    recorder
}

fn put(recorder: &mut Recorder, number: u64, (time_ns, interface, data): &Packet) {
    let frame = Frame {
        data,
        wire_len: data.len() as u32,
        interface: *interface as u32,
    };
    recorder
        .packet(
            *interface as u32,
            number,
            &Record {
                time_ns: Some(*time_ns),
                frame,
                options: Default::default(),
            },
        )
        .expect("there is room");
}

fn record(dir: &Path, form: u8, settings: &Settings, input: &mut Input<'_>) -> Original {
    let mut recorder = recorder(dir, settings);
    let count = 1 + input.number(1) % 48;
    let mut packets = Vec::new();
    for number in 0..count {
        let choice = input.byte();
        let (interface, data) = bytes_of(number, choice);
        packets.push((START_NS + number as i64 * STEP_NS, interface, data));
        put(&mut recorder, number as u64, &packets[number]);
        if choice & 0x80 != 0 {
            recorder.flush().expect("there is room");
        }
    }
    if form & 3 == 0 {
        recorder.flush().expect("there is room");
        drop(recorder);
    } else {
        recorder.close().expect("there is room");
    }
    let mut plain = contents(dir);
    plain.retain(|path, _| path.extension().is_some_and(|end| end == "pcapng"));
    if form & 3 == 2 {
        let (mut recorder, _) = Recorder::open(
            Arc::new(System { cached: true }),
            dir,
            Settings {
                compress: Some(1),
                ..settings.clone()
            },
            now(0),
        )
        .expect("it can be opened");
        recorder.compress_all().expect("there is room");
        recorder.close().expect("there is room");
    }
    Original {
        packets,
        files: contents(dir),
        plain,
    }
}

fn word(bytes: &[u8], at: usize) -> usize {
    bytes.get(at..at + 4).map_or(0, |word| {
        u32::from_le_bytes(word.try_into().unwrap()) as usize
    })
}

/// Blocks of a pcapng file in little endian: offset, type, bytes.
fn walk(bytes: &[u8]) -> Vec<(usize, u32, &[u8])> {
    let (mut found, mut at) = (Vec::new(), 0);
    while at < bytes.len() {
        let len = word(bytes, at + 4);
        assert!(
            len >= 12 && len.is_multiple_of(4) && word(bytes, at + len - 4) == len,
            "lengths agree"
        );
        found.push((at, word(bytes, at) as u32, &bytes[at..at + len]));
        at += len;
    }
    found
}

/// Packets of a pcapng stream with times in nanoseconds; interfaces are known by name and link type.
fn packets_in(bytes: &[u8]) -> Vec<Packet> {
    let (mut found, mut interfaces) = (Vec::new(), Vec::new());
    for (_, kind, block) in walk(bytes) {
        match kind {
            1 => {
                let link = word(block, 8) & 0xffff;
                let known = (0..3).find(|&at| {
                    let name = NAMES[at].as_bytes();
                    let is_named = block.windows(name.len()).any(|part| part == name);
                    is_named
                        && link == LINKS[at].0 as usize
                        && block.windows(5).any(|part| part == [9, 0, 1, 0, 9])
                });
                interfaces.push(known);
            }
            6 => {
                let time_ns = ((word(block, 12) as u64) << 32 | word(block, 16) as u64) as i64;
                let interface = interfaces[word(block, 8)].unwrap_or(DAMAGED);
                found.push((time_ns, interface, block[28..28 + word(block, 20)].to_vec()));
            }
            _ => {}
        }
    }
    found
}

/// Marks of a plain segment: start of the block, place of the mark, end of the mark.
fn marks(plain: &[u8]) -> Vec<[usize; 3]> {
    let (mut found, mut start) = (Vec::new(), 0);
    for (at, kind, block) in walk(plain) {
        if kind == MARK {
            found.push([start, at, at + block.len()]);
            start = at + block.len();
        }
    }
    found
}

/// Makes the checksums of a file right again, as far as the file still has their places.
fn sign(path: &Path, bytes: &mut [u8], original: &[u8]) -> Option<()> {
    let put = |bytes: &mut [u8], at: usize, value: u32| {
        bytes
            .get_mut(at..at + 4)
            .map(|place| place.copy_from_slice(&value.to_le_bytes()))
    };
    match path.extension()?.to_str()? {
        "pcapng" => {
            for [start, at, _] in marks(original) {
                let checksum = crc32fast::hash(bytes.get(start..at + 88)?);
                put(bytes, at + 88, checksum)?;
            }
        }
        "index" => {
            let pages = 80 + 48 * word(original, 40);
            for page in (pages..pages + 32 * word(original, 44)).step_by(32) {
                let (offset, len) = (word(original, page + 8), word(original, page + 4));
                let checksum = crc32fast::hash(bytes.get(offset..offset + len - 4)?);
                put(bytes, offset + len - 4, checksum)?;
            }
            let checksum = crc32fast::hash(bytes.get(..72)?);
            put(bytes, 72, checksum)?;
            put(bytes, 76, 0)?;
            let checksum = crc32fast::hash(bytes.get(..word(original, 12))?);
            put(bytes, 76, checksum)?;
        }
        _ => {
            let check = frames_end(original);
            let checksum = crc32fast::hash(bytes.get(check + 12..)?);
            put(bytes, check + 8, checksum)?;
        }
    }
    Some(())
}

/// End of the frames of an undamaged compressed file: the seek table ends with the number of frames and five bytes.
fn frames_end(bytes: &[u8]) -> usize {
    bytes.len() - 9 - 8 * word(bytes, bytes.len() - 9) - 8 - 12
}

/// What was done to the files.
#[derive(Default)]
struct Damage {
    signed: bool,
    /// Number of damages that say nothing on purpose.
    count: usize,
    spliced: bool,
}

fn damage(original: &Original, input: &mut Input<'_>) -> (BTreeMap<PathBuf, Vec<u8>>, Damage) {
    let mut files = original.files.clone();
    let mut done = Damage::default();
    let paths: Vec<PathBuf> = files.keys().cloned().collect();
    while !input.0.is_empty() && done.count < 16 {
        let (kind, file) = (input.byte(), input.number(1));
        let (place, len, value) = (input.number(2), input.number(1), input.number(4) as u32);
        let path = &paths[file % paths.len()];
        let other = files
            .get(&paths[(file / paths.len()) % paths.len()])
            .cloned()
            .unwrap_or_default();
        let Some(bytes) = files.get_mut(path).filter(|bytes| !bytes.is_empty()) else {
            continue;
        };
        done.count += 1;
        // Places in front and, for the upper half of the kinds, from the end.
        let at = place % bytes.len();
        let at = if kind & 0x80 == 0 {
            at
        } else {
            bytes.len() - 1 - at
        };
        let end = (at + len).min(bytes.len());
        match kind & 7 {
            0 => bytes[at] ^= 1 << (value & 7),
            1 => bytes[at..end].fill(value as u8),
            2 => bytes.truncate(at),
            3 => {
                done.spliced = true;
                let from = (value as usize).min(other.len());
                let part = &other[from..other.len().min(from + len)];
                let replaced = if kind & 0x40 == 0 { end } else { at };
                bytes.splice(at..replaced, part.iter().copied());
            }
            4 => drop(files.remove(path)),
            5 => {
                done.spliced = true;
                *bytes = input.0.to_vec();
                input.0 = &[];
            }
            _ => {
                let is_segment = path.extension().is_some_and(|end| end == "pcapng");
                let found = if is_segment {
                    marks(&original.files[path])
                } else {
                    Vec::new()
                };
                // A field of a mark, of an index, or of a seek table.
                let at = match found.get(place % found.len().max(1)) {
                    Some([_, mark, _]) => mark + len % 88,
                    None if kind & 8 != 0 => at,
                    None if path.extension().is_some_and(|end| end == "zst") => {
                        frames_end(&original.files[path]) + len
                    }
                    None => len,
                };
                if let Some(field) = bytes.get_mut(at..at + 4) {
                    field.copy_from_slice(&value.to_le_bytes());
                }
                if kind & 7 == 7 {
                    // A file that was cut gets some of its checksums.
                    done.signed = true;
                    let _ = sign(path, bytes, &original.files[path]);
                } else {
                    done.spliced = true;
                }
            }
        }
    }
    (files, done)
}

/// What a reader yields, and what it read.
struct Answer {
    stream: Vec<u8>,
    /// Bytes read of segments.
    bytes: u64,
    indexes: Vec<IndexUse>,
    /// Packets of damaged blocks, which may be changed, moved or doubled.
    unchecked: u64,
}

fn query(dir: &Path, selection: Selection) -> Option<Answer> {
    let mut reader = Reader::open(dir, selection, None).ok()?;
    let mut stream = Vec::new();
    while let Some(more) = reader
        .next_bytes()
        .expect("a segment that cannot be read is left out")
    {
        stream.extend_from_slice(more);
        assert!(stream.len() < 64 << 20, "the answer is bounded");
    }
    let counts = reader.counts();
    let indexes = counts
        .segments
        .iter()
        .map(|segment| segment.index.clone())
        .collect();
    Some(Answer {
        stream,
        bytes: counts.bytes,
        indexes,
        unchecked: counts.unchecked,
    })
}

/// Numbers of the packets that have to be found, by the damage.
fn certain(original: &Original, files: &BTreeMap<PathBuf, Vec<u8>>, damage: &Damage) -> Vec<bool> {
    let mut certain = Vec::new();
    for (path, plain) in &original.plain {
        let zst = path.with_extension("pcapng.zst");
        let index = path.with_extension("index");
        let index_is_good = files
            .get(&index)
            .is_some_and(|now| original.files.get(&index) == Some(now));
        let compressed = original.files.get(&zst);
        let now = files.get(if compressed.is_some() { &zst } else { path });
        let is_same = |range: std::ops::Range<usize>| {
            now.is_some_and(|now| now.get(range.clone()) == Some(&plain[range]))
        };
        let all = match (compressed, now) {
            (_, None) => false,
            (Some(before), Some(now)) => now.starts_with(&before[..frames_end(before)]),
            (None, Some(now)) => now == plain,
        };
        let is_long = now.is_some_and(|now| now.len() == plain.len());
        let marks = marks(plain);
        // Without an index, the marks are read from the last write on that is there.
        let mut run = marks
            .iter()
            .take_while(|[start, _, end]| is_same(*start..*end))
            .map(|[.., end]| *end);
        let run = run
            .by_ref()
            .filter(|end| end % PAGE == 0)
            .last()
            .unwrap_or(0);
        for [start, mark, end] in marks {
            let by_index = compressed.is_none() && index_is_good && is_long && is_same(start..end);
            let by_marks =
                compressed.is_none() && damage.count == 1 && !damage.spliced && end <= run;
            let packets = walk(&plain[start..mark])
                .iter()
                .filter(|(_, kind, _)| *kind == 6)
                .count();
            certain.extend(std::iter::repeat_n(all || by_index || by_marks, packets));
        }
    }
    assert_eq!(
        certain.len(),
        original.packets.len(),
        "the segments hold all packets"
    );
    certain
}

/// The selection of a query: an expression, and times from those of two packets.
#[derive(Clone, Copy)]
struct Question(u8, usize, usize);

const ALL: Question = Question(0, 255, 255);

/// Length of the longest common subsequence.
fn longest_common(a: &[Packet], b: &[Packet]) -> usize {
    let mut row = vec![0; b.len() + 1];
    for one in a {
        let mut before = 0;
        for (at, other) in b.iter().enumerate() {
            let above = row[at + 1];
            row[at + 1] = if one == other {
                before + 1
            } else {
                above.max(row[at])
            };
            before = above;
        }
    }
    row[b.len()]
}

/// Checks the answer to a query against the list of packets, of which those that are `certain` must be found; without it, only that
/// no byte is read twice. Returns whether all indexes were used.
fn judge(
    dir: &Path,
    all: &[Packet],
    certain: Option<&[bool]>,
    Question(expression, from, to): Question,
) -> bool {
    let (text, matches) = EXPRESSIONS[usize::from(expression) % EXPRESSIONS.len()];
    let time = |number: usize| all[number % all.len()].0;
    let times = (from != 255).then(|| (time(from), time(to)));
    let selection = Selection {
        from_ns: times.map(|times| times.0),
        to_ns: times.map(|times| times.1),
        expression: text.to_owned(),
        ..Selection::default()
    };
    let is_within =
        |packet: &Packet| times.is_none_or(|(from, to)| (from..=to).contains(&packet.0));
    let Some(answer) = query(dir, selection) else {
        assert!(
            certain.is_none_or(|certain| !certain.contains(&true)),
            "the record can be read"
        );
        return false;
    };
    let Some(certain) = certain else {
        let now = contents(dir);
        let sizes = |end: &str| {
            let files = now
                .iter()
                .filter(|(path, _)| path.extension().is_some_and(|extension| extension == end));
            files.map(|(_, bytes)| bytes.len() as u64).sum::<u64>()
        };
        assert!(
            sizes("zst") > 0 || answer.bytes <= sizes("pcapng"),
            "a byte was read twice: {} of {}",
            answer.bytes,
            sizes("pcapng")
        );
        return false;
    };
    let packets = packets_in(&answer.stream);
    assert!(
        packets.iter().all(is_within),
        "a packet is outside of the times"
    );
    for (number, packet) in all.iter().enumerate() {
        let wanted = is_within(packet) && matches(packet);
        let is_certain = wanted && certain[number];
        assert!(
            !is_certain || packets.contains(packet),
            "packet {number} is not found: {text:?} {:?}",
            answer.indexes
        );
    }
    let recorded = longest_common(&packets, all);
    let others = (packets.len() - recorded) as u64;
    assert!(
        others <= answer.unchecked,
        "{others} packets are none that were recorded, or come out of order"
    );
    // A segment that was emptied stays as it is, with the index that it has: they are all that tells of its packets.
    let is_segment = |path: &Path| {
        path.extension()
            .is_some_and(|end| end == "pcapng" || end == "zst")
    };
    let has_emptied = contents(dir)
        .iter()
        .any(|(path, bytes)| is_segment(path) && bytes.is_empty());
    has_emptied || answer.indexes.iter().all(|index| *index == IndexUse::Used)
}

/// Records packets in the empty directory `dir`, damages the files as the input says, and reads them. See the module.
pub fn segment(data: &[u8], dir: &Path) {
    let input = &mut Input(data);
    let (form, block) = (input.byte(), input.number(1));
    let question = Question(input.byte(), input.number(1), input.number(1));
    let settings = Settings {
        block_bytes: BLOCKS[block % BLOCKS.len()],
        buffer_bytes: 128 << 10,
        segment_ns: (form & 4 != 0).then_some((PERIOD * STEP_NS) as u64),
        index_pairs: 64 << (block >> 4 & 7),
        ..Settings::default()
    };
    let original = record(dir, form, &settings, input);
    let (files, done) = damage(&original, input);
    for path in original.files.keys() {
        match files.get(path) {
            Some(bytes) if *bytes != original.files[path] => {
                fs::write(path, bytes).expect("there is room")
            }
            Some(_) => {}
            None => fs::remove_file(path).expect("it is there"),
        }
    }
    let mut packets = original.packets.clone();
    let mut certain = certain(&original, &files, &done);
    for question in [ALL, question] {
        judge(dir, &packets, (!done.signed).then_some(&certain), question);
    }
    if form & 0x10 != 0 {
        let opened = reindex(dir, settings.clone(), now(0));
        assert!(opened.is_ok(), "{opened:?}");
    }
    if form & 8 != 0 {
        let mut recorder = recorder(dir, &settings);
        let number = packets.len();
        packets.push((START_NS + number as i64 * STEP_NS, 0, bytes_of(number, 1).1));
        certain.push(true);
        put(&mut recorder, 0, &packets[number]);
        recorder.close().expect("there is room");
    }
    if form & 0x18 != 0 {
        let all_used = judge(dir, &packets, (!done.signed).then_some(&certain), question);
        assert!(all_used || done.signed, "recovery makes the indexes");
    }
}
