//! Packets, a naive reader of pcapng, and faulty files, for the tests of this folder.

use super::*;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_packet::savefile::{Interface, Record, Resolution};
use weir_packet::{Frame, LinkType};
use weir_testkit::Random;

/// One of how many cases a test tries; all of them if WEIR_THOROUGH is set.
pub(super) fn sparse(one_of: usize) -> usize {
    if std::env::var_os("WEIR_THOROUGH").is_some() {
        1
    } else {
        one_of
    }
}

pub(super) const START_NS: i64 = 1_700_000_000_000_000_000;

pub(super) fn ethernet() -> Interface {
    Interface {
        name: Some("eth7".into()),
        ..Interface::plain(LinkType::ETHERNET, 0, Resolution::NANOSECOND)
    }
}

/// Settings with small blocks, buffers and segments.
pub(super) fn small() -> Settings {
    Settings {
        block_bytes: 4 << 10,
        buffer_bytes: 128 << 10,
        segment_bytes: 1 << 20,
        ..Settings::default()
    }
}

pub(super) fn at(seconds: u64) -> Now {
    let steady_ns = seconds * 1_000_000_000;
    Now {
        steady_ns,
        wall_ns: START_NS + steady_ns as i64,
    }
}

/// A packet with its time.
pub(super) type Packet = (i64, Vec<u8>);

/// UDP packets of few hosts, of many sizes, a millisecond apart; each begins its payload with its number.
pub(super) fn packets(count: usize, seed: u64) -> Vec<Packet> {
    let mut random = Random(seed);
    let one = |number: usize, random: &mut Random| {
        let len = 60 + random.below(200) * random.below(7);
        let mut data = vec![0u8; len];
        data[..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0]);
        data[14] = 0x45;
        data[16..18].copy_from_slice(&(len as u16 - 14).to_be_bytes());
        data[22..24].copy_from_slice(&[64, 17]);
        data[26..30].copy_from_slice(&[10, 0, 0, random.below(20) as u8]);
        data[30..34].copy_from_slice(&[10, 1, (number / 100) as u8, random.below(200) as u8]);
        data[34..36].copy_from_slice(&(1000 + random.below(50) as u16).to_be_bytes());
        data[36..38].copy_from_slice(&53u16.to_be_bytes());
        data[38..40].copy_from_slice(&(len as u16 - 34).to_be_bytes());
        data[42..50].copy_from_slice(&(number as u64).to_be_bytes());
        data
    };
    (0..count)
        .map(|number| {
            (
                START_NS + number as i64 * 1_000_000,
                one(number, &mut random),
            )
        })
        .collect()
}

pub(super) fn record((time_ns, data): &Packet) -> Record<'_> {
    Record {
        time_ns: Some(*time_ns),
        frame: Frame {
            data,
            wire_len: data.len() as u32,
            interface: 0,
        },
        options: Default::default(),
    }
}

/// A recorder on files that are not made durable.
pub(super) fn recorder(dir: &Path, settings: Settings) -> (Recorder, Opened) {
    let opened = Recorder::open(Arc::new(Faulty::new(0, 0)), dir, settings, at(0));
    let (mut recorder, opened) = opened.expect("the directory can be written");
    recorder.interface(&ethernet());
    (recorder, opened)
}

/// Records packets with the numbers from `first` on, and leaves the segment open, but written.
pub(super) fn write(recorder: &mut Recorder, packets: &[Packet], first: u64) {
    for (number, packet) in packets.iter().enumerate() {
        recorder
            .packet(0, first + number as u64, &record(packet))
            .expect("there is room");
    }
    recorder.flush().expect("there is room");
}

/// Blocks of a pcapng file in little endian, as `(type, body)`, read naively.
pub(super) fn blocks(mut bytes: &[u8]) -> Vec<(u32, &[u8])> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (kind, len) = (word(0), word(4) as usize);
        assert!(
            len >= 12 && len % 4 == 0 && word(len - 4) as usize == len,
            "lengths agree"
        );
        found.push((kind, &bytes[8..len - 4]));
        bytes = &bytes[len..];
    }
    found
}

/// Packets of a pcapng file with times in nanoseconds, read naively.
pub(super) fn packets_in(bytes: &[u8]) -> Vec<Packet> {
    let packet = |(kind, body): (u32, &[u8])| {
        let word = |at: usize| u32::from_le_bytes(body[at..at + 4].try_into().unwrap());
        let time_ns = (u64::from(word(4)) << 32 | u64::from(word(8))) as i64;
        (kind == 6).then(|| (time_ns, body[20..20 + word(12) as usize].to_vec()))
    };
    blocks(bytes).into_iter().filter_map(packet).collect()
}

/// Everything that a reader yields.
pub(super) fn read(dir: &Path, selection: Selection, seam: Option<Seam>) -> (Vec<Packet>, Counts) {
    let mut reader = Reader::open(dir, selection, seam).expect("it is a record");
    let mut bytes = Vec::new();
    while let Some(more) = reader.next_bytes().expect("it can be read") {
        bytes.extend_from_slice(more);
    }
    (packets_in(&bytes), reader.counts().clone())
}

pub(super) fn read_all(dir: &Path) -> Vec<Packet> {
    read(dir, Selection::default(), None).0
}

/// Files of a directory with this ending, in order.
pub(super) fn files(dir: &Path, end: &str) -> Vec<PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    found.retain(|path| path.extension().is_some_and(|extension| extension == end));
    found.sort();
    found
}

/// Files of which some operations fail, and a list of the operations. Nothing is made durable, since no test here loses power.
#[derive(Debug, Default)]
pub(super) struct Faulty {
    pub(super) files: System,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    done: AtomicU64,
    /// Number of the first operation that fails, and of later operations that also fail.
    fails: (u64, u64),
    log: Mutex<Vec<String>>,
}

impl Faulty {
    pub(super) fn new(first: u64, count: u64) -> Self {
        Self {
            files: System::default(),
            shared: Arc::new(Shared {
                fails: (first, count),
                ..Shared::default()
            }),
        }
    }

    pub(super) fn log(&self) -> Vec<String> {
        self.shared.log.lock().unwrap().clone()
    }

    /// Number of operations so far.
    pub(super) fn done(&self) -> u64 {
        self.shared.done.load(Ordering::Relaxed)
    }
}

impl Shared {
    fn step(&self, what: &str, path: &Path) -> io::Result<()> {
        let number = self.done.fetch_add(1, Ordering::Relaxed);
        let name = path
            .extension()
            .or(path.file_name())
            .unwrap_or_default()
            .to_string_lossy();
        self.log.lock().unwrap().push(format!("{what} {name}"));
        let (first, count) = self.fails;
        if (first..first + count).contains(&number) {
            return Err(io::Error::from_raw_os_error(libc::ENOSPC));
        }
        Ok(())
    }
}

#[derive(Debug)]
struct FaultyFile {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    shared: Arc<Shared>,
}

impl Disk for Faulty {
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        self.shared.step("create", path)?;
        let (path, shared) = (path.to_owned(), self.shared.clone());
        Ok(Box::new(FaultyFile {
            file: self.files.create(&path, mode)?,
            path,
            shared,
        }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.shared.step("open", path)?;
        let (path, shared) = (path.to_owned(), self.shared.clone());
        Ok(Box::new(FaultyFile {
            file: self.files.open(&path)?,
            path,
            shared,
        }))
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<bool> {
        self.files.create_dir(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.shared.step("rename", to)?;
        self.files.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.files.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        assert!(path.is_dir());
        self.shared.step("sync", Path::new("dir"))
    }
}

impl DiskFile for FaultyFile {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        if let Err(error) = self.shared.step("write", &self.path) {
            // A part is written all the same.
            let part = bytes.len() / 2 / PAGE * PAGE;
            if part > 0 {
                self.file.write_at(&bytes[..part], offset)?;
            }
            return Err(error);
        }
        self.file.write_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.shared.step("fdatasync", &self.path)
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
}
