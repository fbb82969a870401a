//! A recorder whose disk loses power: everything that it acknowledged is there afterwards, and every segment opens.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use weir_packet::savefile::walk::{Cursor, Visit, walk};
use weir_packet::savefile::{Interface, Layout, Record, Resolution, Stop};
use weir_packet::{Frame, LinkType};
use weir_store::disk::{Disk, DiskFile, Now, Reader, Recorder, Selection, Settings, System};
use weir_testkit::power::{Filesystem, Power};
use weir_testkit::{Random, have};

const START_NS: i64 = 1_700_000_000_000_000_000;
/// Sessions, one behind the other in the same directory, and packets of each.
const SESSIONS: usize = 2;
const PACKETS: u64 = 500;

/// Fault of the recorder's files, or of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// fdatasync does nothing.
    SkippedSync,
    /// What is written is acknowledged before the sync.
    Early,
    /// fsync of a directory does nothing.
    NoDirectory,
    /// fdatasync of a compressed segment does nothing.
    SkippedCompressed,
    /// A segment that is cut is replaced by a copy that is not synced.
    UnsyncedCopy,
}

/// The system's files with a fault. Notes when names were made, and when they became durable.
#[derive(Debug)]
struct Files {
    fault: Fault,
    system: System,
    power: Arc<Power>,
    root: PathBuf,
    names: Mutex<Vec<Name>>,
}

/// Name in a directory.
#[derive(Clone, Debug)]
struct Name {
    /// Path from the root directory on.
    path: PathBuf,
    /// Position of the log at which it was made.
    made: usize,
    /// Position at which its directory was synced.
    synced: Option<usize>,
}

impl Files {
    fn new(fault: Fault, system: System, power: &Arc<Power>, root: &Path) -> Self {
        Self {
            fault,
            system,
            power: power.clone(),
            root: root.to_owned(),
            names: Mutex::default(),
        }
    }

    fn made(&self, path: &Path) {
        let made = self.power.mark();
        self.names.lock().unwrap().push(Name {
            path: self.relative(path),
            made,
            synced: None,
        });
    }

    fn written(&self, path: &Path, file: Box<dyn DiskFile>) -> Box<dyn DiskFile> {
        Box::new(Written {
            file,
            path: path.to_owned(),
            fault: self.fault,
        })
    }

    fn relative(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.root)
            .expect("it lies in the root directory")
            .to_owned()
    }
}

impl Disk for Files {
    fn create(&self, path: &Path, mode: u32) -> io::Result<Box<dyn DiskFile>> {
        self.made(path);
        let compressed = path.extension().is_some_and(|end| end == "new");
        let fault = if self.fault == Fault::SkippedCompressed && compressed {
            Fault::SkippedSync
        } else {
            self.fault
        };
        Ok(Box::new(Written {
            file: self.system.create(path, mode)?,
            path: path.to_owned(),
            fault,
        }))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        Ok(self.written(path, self.system.open(path)?))
    }

    fn create_dir(&self, path: &Path, mode: u32) -> io::Result<bool> {
        let made = self.system.create_dir(path, mode)?;
        if made {
            self.made(path);
        }
        Ok(made)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.made(to);
        self.system.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.system.remove(path)
    }

    fn sync_dir(&self, path: &Path) -> io::Result<()> {
        if self.fault == Fault::NoDirectory {
            return Ok(());
        }
        self.system.sync_dir(path)?;
        let (mark, dir) = (self.power.mark(), self.relative(path));
        for name in self
            .names
            .lock()
            .unwrap()
            .iter_mut()
            .filter(|name| name.path.parent() == Some(&dir))
        {
            name.synced.get_or_insert(mark);
        }
        Ok(())
    }
}

#[derive(Debug)]
struct Written {
    file: Box<dyn DiskFile>,
    path: PathBuf,
    fault: Fault,
}

impl DiskFile for Written {
    fn write_at(&mut self, bytes: &[u8], offset: u64) -> io::Result<usize> {
        self.file.write_at(bytes, offset)
    }

    fn sync(&mut self) -> io::Result<()> {
        match self.fault {
            Fault::SkippedSync => Ok(()),
            Fault::UnsyncedCopy if self.path.extension().is_some_and(|end| end == "pcapng") => {
                Ok(())
            }
            _ => self.file.sync(),
        }
    }

    fn set_len(&mut self, len: u64) -> io::Result<()> {
        if self.fault != Fault::UnsyncedCopy {
            return self.file.set_len(len);
        }
        let copy = self.path.with_extension("copy");
        fs::write(&copy, &fs::read(&self.path)?[..len as usize])?;
        fs::remove_file(&self.path)?;
        fs::rename(&copy, &self.path)?;
        let system = System::default();
        system.sync_dir(self.path.parent().expect("it lies in a directory"))?;
        self.file = system.open(&self.path)?;
        Ok(())
    }
}

/// A packet with its time.
type Packet = (i64, Vec<u8>);

/// Packet `number` of a session: a UDP packet that holds both numbers, and bytes that are no other's.
fn packet(session: usize, number: u64) -> Packet {
    let id = session as u64 * PACKETS + number;
    let mut random = Random(id);
    let mut data = [0; 42].to_vec();
    data[12..15].copy_from_slice(&[8, 0, 0x45]);
    data[23] = 17;
    data[30..34].copy_from_slice(&[10, 0, 0, random.below(20) as u8]);
    let more = 18 + random.below(1400) * random.below(2);
    data.extend(random.bytes(more));
    data[42..50].copy_from_slice(&id.to_be_bytes());
    (START_NS + id as i64 * 1_000_000, data)
}

/// What a session acknowledged: positions of the log, and the number of packets that are durable from there on.
type Acknowledged = Vec<(usize, u64)>;

fn settings(compress: Option<i32>) -> Settings {
    // Segments end often, and blocks do not fill a page.
    Settings {
        block_bytes: 3000,
        buffer_bytes: 128 << 10,
        segment_bytes: 160 << 10,
        compress,
        ..Settings::default()
    }
}

/// Runs all sessions. Only the last one closes its segment; the others end as if they were killed.
fn sessions(dir: &Path, files: &Arc<Files>, compress: Option<i32>) -> Vec<Acknowledged> {
    let one = |session: usize| {
        let opened = Recorder::open(files.clone(), dir, settings(compress), Now::default());
        let (mut recorder, _) = opened.expect("there is room");
        recorder.interface(&Interface::plain(
            LinkType::ETHERNET,
            0,
            Resolution::NANOSECOND,
        ));
        let (mut random, mut acknowledged) = (Random(session as u64), Vec::new());
        for number in 0..PACKETS {
            let (time_ns, data) = packet(session, number);
            let frame = Frame {
                data: &data,
                wire_len: data.len() as u32,
                interface: 0,
            };
            recorder
                .packet(
                    0,
                    number,
                    &Record {
                        time_ns: Some(time_ns),
                        frame,
                        options: Default::default(),
                    },
                )
                .expect("there is room");
            match random.below(20) {
                0 => recorder.flush().expect("there is room"),
                1 | 2 => {
                    if files.fault == Fault::Early {
                        acknowledged.push((files.power.mark(), number + 1));
                    }
                    let durable = recorder.sync().expect("there is room").next;
                    assert_eq!(durable, number + 1);
                    acknowledged.push((files.power.mark(), durable));
                    // Segments are compressed between the writes.
                    let now = Now {
                        steady_ns: number * 1_000_000_000,
                        ..Now::default()
                    };
                    recorder.tick(now).expect("there is room");
                }
                _ => {}
            }
        }
        recorder.flush().expect("there is room");
        if session + 1 == SESSIONS {
            recorder.compress_all().expect("there is room");
            assert!(compress.is_none() || recorder.stats().compression.segments > 0);
            let durable = recorder.close().expect("there is room").durable.next;
            acknowledged.push((files.power.mark(), durable));
        }
        acknowledged
    };
    (0..SESSIONS).map(one).collect()
}

/// Packets of a walk.
#[derive(Default)]
struct Walked {
    frames: Vec<(u32, Vec<u8>)>,
}

impl Visit for Walked {
    fn frames(&mut self, _: usize, records: &[u32], frames: &[Frame<'_>]) -> bool {
        self.frames.extend(
            records
                .iter()
                .zip(frames)
                .map(|(&at, frame)| (at, frame.data.to_vec())),
        );
        true
    }
}

/// Packets of a whole capture file; anything that is not one is an error.
fn packets_in(bytes: &[u8]) -> Result<Vec<Packet>, String> {
    let (mut layout, mut at) = Layout::read(bytes, true).map_err(|stop| format!("{stop:?}"))?;
    let mut walked = Walked::default();
    loop {
        let mut cursor = [Cursor::new(at, bytes.len())];
        walk(&layout, bytes, true, &mut cursor, &mut walked);
        let [Cursor { pos, stop, .. }] = cursor;
        match stop {
            Some(Stop::Layout) => {
                at = layout
                    .apply(bytes, pos, true)
                    .map_err(|stop| format!("{stop:?}"))?
            }
            Some(Stop::End) => break,
            stop => return Err(format!("at offset {pos}: {stop:?}")),
        }
    }
    let time_ns = |at: u32| {
        layout
            .record(bytes, at as usize)
            .and_then(|record| record.time_ns)
            .unwrap_or(0)
    };
    Ok(walked
        .frames
        .into_iter()
        .map(|(at, data)| (time_ns(at), data))
        .collect())
}

/// Paths and contents of all segments in the order of their generations.
fn segments(dir: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let paths = fs::read_dir(dir)
        .into_iter()
        .flatten()
        .map(|entry| entry.expect("it can be listed").path());
    let mut read = BTreeMap::new();
    for path in paths {
        let bytes = || fs::read(&path).expect("it can be read");
        match path.extension().and_then(|end| end.to_str()) {
            Some("pcapng") => read.insert(path.clone(), bytes()),
            Some("zst") => read.insert(
                path.with_extension(""),
                zstd::decode_all(&bytes()[..]).unwrap_or_default(),
            ),
            _ => None,
        };
    }
    read.into_iter().collect()
}

/// Checks segments without recovery: all can be walked, and together they hold a prefix of each session with at least the
/// acknowledged packets, byte for byte. Returns the number of packets.
fn check_segments(dir: &Path, acknowledged: &[u64]) -> Result<Vec<Packet>, String> {
    let mut found = Vec::new();
    for (path, bytes) in segments(dir) {
        found.extend(packets_in(&bytes).map_err(|why| format!("{}: {why}", path.display()))?);
    }
    let mut rest = &found[..];
    for (session, &acknowledged) in acknowledged.iter().enumerate() {
        let good = rest
            .iter()
            .zip(0..PACKETS)
            .take_while(|(found, number)| **found == packet(session, *number))
            .count();
        if (good as u64) < acknowledged {
            return Err(format!(
                "session {session}: {good} packets of {acknowledged} acknowledged ones are there"
            ));
        }
        rest = &rest[good..];
    }
    if !rest.is_empty() {
        return Err(format!("{} packets are in the wrong place", rest.len()));
    }
    Ok(found)
}

/// Opens the directory as the next recorder does, then checks its segments, and that a reader yields the same.
fn check(dir: &Path, acknowledged: &[u64]) -> Result<usize, String> {
    let opened = Recorder::open(
        Arc::new(System::default()),
        dir,
        settings(None),
        Now::default(),
    );
    let (recorder, opened) = opened.map_err(|error| error.to_string())?;
    drop(recorder);
    let found = check_segments(dir, acknowledged)?;
    if opened.segments != segments(dir).len() {
        return Err(format!("{} segments opened", opened.segments));
    }
    let mut reader =
        Reader::open(dir, Selection::default(), None).map_err(|error| error.to_string())?;
    let mut bytes = Vec::new();
    while let Some(more) = reader.next_bytes().map_err(|error| error.to_string())? {
        bytes.extend_from_slice(more);
    }
    if reader.counts().damaged > 0 || packets_in(&bytes)? != found {
        return Err(format!(
            "a reader yields something else: {:?}",
            reader.counts()
        ));
    }
    Ok(found.len())
}

/// How the sessions write.
#[derive(Clone, Copy, Debug, Default)]
struct How {
    system: System,
    compress: Option<i32>,
}

/// A log of all sessions.
struct Run {
    power: Arc<Power>,
    begin: usize,
    acknowledged: Vec<Acknowledged>,
    names: Vec<Name>,
}

impl Run {
    fn new(test: &str, filesystem: Filesystem, how: How, fault: Fault) -> Option<Self> {
        let power = Arc::new(Power::new(test, filesystem)?);
        let done = power.mounted(|root| {
            // Behind the writes of mounting: a file system whose own metadata were torn there may refuse to mount.
            let begin = power.mark();
            let files = Arc::new(Files::new(fault, how.system, &power, root));
            let acknowledged = sessions(&root.join("record"), &files, how.compress);
            (begin, acknowledged, files.names.lock().unwrap().clone())
        });
        let (begin, acknowledged, names) = done.expect("it was mounted before");
        Some(Self {
            power,
            begin,
            acknowledged,
            names,
        })
    }

    /// Number of packets acknowledged in each session at a position.
    fn acknowledged(&self, position: usize) -> Vec<u64> {
        let at = |session: &Acknowledged| {
            let before = session.iter().filter(|(mark, _)| *mark <= position);
            before.map(|(_, count)| *count).max().unwrap_or(0)
        };
        self.acknowledged.iter().map(at).collect()
    }

    /// A disk whose power failed at some position while the sessions ran, and that position.
    fn image(&self, seed: u64, random: &mut Random) -> (usize, Power) {
        let last = self
            .acknowledged
            .iter()
            .flatten()
            .map(|(mark, _)| *mark)
            .max()
            .unwrap_or(0);
        let position = self.begin + random.below(last + 2 - self.begin);
        (position, self.power.cut(seed, position))
    }

    /// Cuts the power at `cuts` positions, and again while the next recorder, with `fault`, recovers each directory. Checks that another
    /// recovery then finds what the first one found. `look` gets each directory with the number of its packets, and the seed.
    fn cut_twice(
        &self,
        cuts: u64,
        fault: Fault,
        look: impl Fn(&Path, usize, u64) -> Result<(), String>,
    ) -> Vec<Result<usize, String>> {
        let mut random = Random(31);
        let one = |seed| {
            let (first, image) = self.image(seed, &mut random);
            let (acknowledged, power) = (self.acknowledged(first), Arc::new(image));
            // Most recoveries have something to cut.
            power.mounted(|root| seed % 4 != 0 && foul(&root.join("record"), seed))?;
            let recovered = power.mounted(|root| {
                let (dir, begin) = (root.join("record"), power.mark());
                let files = Arc::new(Files::new(fault, System::default(), &power, root));
                let opened = Recorder::open(files, &dir, settings(None), Now::default());
                let end = opened
                    .map(|_| power.mark())
                    .map_err(|error| error.to_string())?;
                check(&dir, &acknowledged).map(|found| (begin, end, found))
            });
            let (begin, end, expected) = recovered.and_then(|recovered| recovered)?;
            let second = begin + random.below(end + 2 - begin);
            let found = power.cut(seed, second).mounted(|root| {
                let dir = root.join("record");
                let found = check(&dir, &acknowledged)?;
                look(&dir, found, seed).map(|()| found)
            });
            let found = found.and_then(|found| found);
            let found =
                found.map_err(|why| format!("seed {seed}, positions {first}, {second}: {why}"))?;
            assert_eq!(
                found, expected,
                "packets, seed {seed}, positions {first}, {second} of {begin}..={end}"
            );
            Ok(found)
        };
        (0..cuts).map(one).collect()
    }

    /// Cuts the power at `cuts` positions, and runs `check` in each image, with its seed and what was acknowledged.
    ///
    /// If `strict`, each name whose directory was not synced may be gone too: fsync of a file need not keep its name (fsync(2)),
    /// though it does on ext4 and XFS.
    fn cut<T>(
        &self,
        cuts: u64,
        strict: bool,
        check: impl Fn(&Path, u64, &[u64]) -> Result<T, String>,
    ) -> Vec<Result<T, String>> {
        let mut random = Random(29);
        let one = |seed| {
            let (position, image) = self.image(seed, &mut random);
            let checked = image.mounted(|root| {
                if strict {
                    let mut random = Random(seed);
                    let synced = |name: &Name| name.synced.is_some_and(|synced| synced <= position);
                    for name in self
                        .names
                        .iter()
                        .filter(|name| name.made <= position && !synced(name))
                    {
                        let path = root.join(&name.path);
                        if random.below(2) == 0 {
                            let _ = fs::remove_file(&path);
                            let _ = fs::remove_dir_all(&path);
                        }
                    }
                }
                check(&root.join("record"), seed, &self.acknowledged(position))
            });
            checked
                .and_then(|checked| checked)
                .map_err(|why| format!("seed {seed}, position {position}: {why}"))
        };
        (0..cuts).map(one).collect()
    }
}

/// Checks that capinfos and tshark open each segment, and count as many packets.
fn tools_agree(dir: &Path, count: usize) -> Result<(), String> {
    let (mut capinfos, mut tshark) = (0, 0);
    for (path, _) in segments(dir) {
        capinfos += lines("capinfos", &["-T", "-r", "-c", "-M"], &path)?
            .split_whitespace()
            .last()
            .and_then(|count| count.parse::<usize>().ok())
            .unwrap_or(0);
        tshark += lines(
            "tshark",
            &["-T", "fields", "-e", "frame.number", "-r"],
            &path,
        )?
        .lines()
        .count();
    }
    if (capinfos, tshark) == (count, count) {
        Ok(())
    } else {
        Err(format!("{capinfos}, {tshark} and {count} packets"))
    }
}

/// Checks that all cuts went well, and fell at places with different numbers of packets.
fn all_are_good(what: &str, found: &[Result<usize, String>]) {
    let failures: Vec<_> = found
        .iter()
        .filter_map(|found| found.as_ref().err())
        .collect();
    assert!(
        failures.is_empty(),
        "{} of {}, {what}: {failures:#?}",
        failures.len(),
        found.len()
    );
    let different: BTreeSet<_> = found.iter().flatten().collect();
    assert!(
        different.len() > found.len() / 4,
        "the cuts fall at many places: {different:?}"
    );
}

fn nothing_is_lost(test: &str, filesystem: Filesystem, how: How, cuts: [u64; 2]) {
    let Some(run) = Run::new(test, filesystem, how, Fault::None) else {
        return;
    };
    let tools = how.compress.is_none() && have(test, &["capinfos", "tshark"]);
    for (strict, cuts) in [false, true].into_iter().zip(cuts) {
        let found = run.cut(cuts, strict, |dir, seed, acknowledged| {
            let count = check(dir, acknowledged)?;
            if tools && seed % 12 == 0 {
                tools_agree(dir, count)?;
            }
            Ok(count)
        });
        all_are_good(&format!("strict {strict}"), &found);
    }
}

fn nothing_is_lost_in_recovery(test: &str, filesystem: Filesystem) {
    let Some(run) = Run::new(test, filesystem, How::default(), Fault::None) else {
        return;
    };
    let tools = have(test, &["capinfos", "tshark"]);
    let cuts = if std::env::var_os("WEIR_THOROUGH").is_some() {
        300
    } else {
        16
    };
    let look = |dir: &Path, count, seed| {
        if tools && seed % 8 == 1 {
            tools_agree(dir, count)
        } else {
            Ok(())
        }
    };
    all_are_good("cut twice", &run.cut_twice(cuts, Fault::None, look));
}

/// Output of a program that opens a capture file without complaint.
fn lines(program: &str, arguments: &[&str], path: &Path) -> Result<String, String> {
    let done = Command::new(program)
        .args(arguments)
        .arg(path)
        .output()
        .map_err(|error| error.to_string())?;
    let complaint = String::from_utf8_lossy(&done.stderr);
    if !done.status.success() || complaint.contains("cut short") || complaint.contains("corrupt") {
        return Err(format!("{program} {}: {complaint}", path.display()));
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}

#[test]
fn acknowledged_packets_survive_every_power_cut_on_ext4() {
    nothing_is_lost(
        "acknowledged_packets_survive_every_power_cut_on_ext4",
        Filesystem::Ext4,
        How::default(),
        [24, 12],
    );
}

#[test]
fn acknowledged_packets_survive_every_power_cut_on_xfs() {
    nothing_is_lost(
        "acknowledged_packets_survive_every_power_cut_on_xfs",
        Filesystem::Xfs,
        How::default(),
        [24, 12],
    );
}

#[test]
fn packets_survive_every_power_cut_while_segments_are_compressed() {
    let test = "packets_survive_every_power_cut_while_segments_are_compressed";
    let how = How {
        compress: Some(1),
        ..How::default()
    };
    nothing_is_lost(test, Filesystem::Ext4, how, [24, 12]);
    nothing_is_lost(test, Filesystem::Xfs, how, [24, 12]);
}

#[test]
fn acknowledged_packets_survive_power_cuts_through_the_page_cache() {
    let test = "acknowledged_packets_survive_power_cuts_through_the_page_cache";
    let how = How {
        system: System { cached: true },
        compress: None,
    };
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        nothing_is_lost(test, filesystem, how, [12, 6]);
    }
}

#[test]
fn acknowledged_packets_survive_a_second_cut_while_a_recorder_recovers() {
    let test = "acknowledged_packets_survive_a_second_cut_while_a_recorder_recovers";
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        nothing_is_lost_in_recovery(test, filesystem);
    }
}

#[test]
fn a_recovery_that_replaces_a_segment_by_an_unsynced_copy_loses_packets() {
    let test = "a_recovery_that_replaces_a_segment_by_an_unsynced_copy_loses_packets";
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        let Some(run) = Run::new(test, filesystem, How::default(), Fault::None) else {
            return;
        };
        let found = run.cut_twice(16, Fault::UnsyncedCopy, |_, _, _| Ok(()));
        let lost = lost(&found);
        assert!(lost >= 2, "{filesystem:?}: {lost} of 16: {found:?}");
    }
}

/// Number of cuts that lost acknowledged packets.
fn lost<T>(found: &[Result<T, String>]) -> usize {
    let lost = |failure: &&String| failure.contains("acknowledged ones are there");
    found
        .iter()
        .filter_map(|found| found.as_ref().err())
        .filter(lost)
        .count()
}

#[test]
fn planted_faults_of_files_and_of_the_caller_lose_packets() {
    for (fault, compress) in [
        (Fault::SkippedSync, None),
        (Fault::Early, None),
        (Fault::NoDirectory, None),
        (Fault::SkippedCompressed, Some(1)),
    ] {
        for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
            let test = "planted_faults_of_files_and_of_the_caller_lose_packets";
            let Some(run) = Run::new(
                test,
                filesystem,
                How {
                    compress,
                    ..How::default()
                },
                fault,
            ) else {
                return;
            };
            let found = run.cut(20, fault == Fault::NoDirectory, |dir, _, acknowledged| {
                check(dir, acknowledged)
            });
            let lost = lost(&found);
            assert!(
                lost >= 3,
                "{fault:?} on {filesystem:?}: {lost} of 20: {found:?}"
            );
        }
    }
}

/// What a disk may leave behind the durable part of a segment: blocks of an older segment, or zeros.
fn foul(dir: &Path, seed: u64) -> bool {
    let segments = segments(dir);
    let (Some((last, bytes)), Some((_, old))) = (segments.last(), segments.first()) else {
        return false;
    };
    let tail: Vec<u8> = match seed % 2 {
        0 => old
            .iter()
            .cycle()
            .skip(bytes.len())
            .take(8 * 4096)
            .copied()
            .collect(),
        _ => vec![0; 8 * 4096],
    };
    let _ = fs::remove_file(last.with_extension("index"));
    let written = fs::File::options()
        .append(true)
        .open(last)
        .and_then(|mut file| {
            file.write_all(&tail)?;
            file.sync_all()
        });
    written.expect("there is room");
    segments.len() > 1
}

#[test]
fn old_blocks_and_zeros_behind_a_segment_are_cut_and_caught_if_they_stay() {
    let test = "old_blocks_and_zeros_behind_a_segment_are_cut_and_caught_if_they_stay";
    let Some(run) = Run::new(test, Filesystem::Ext4, How::default(), Fault::None) else {
        return;
    };
    let found = run.cut(40, false, |dir, seed, acknowledged| {
        if !dir.exists() || check(dir, acknowledged)? == 0 || !foul(dir, seed) {
            return Ok(false);
        }
        let stays = check_segments(dir, acknowledged);
        assert!(stays.is_err(), "seed {seed}: nobody sees the tail");
        check(dir, acknowledged).map(|_| true)
    });
    let failures: Vec<_> = found
        .iter()
        .filter_map(|found| found.as_ref().err())
        .collect();
    assert!(failures.is_empty(), "{failures:#?}");
    assert!(found.iter().flatten().filter(|fouled| **fouled).count() >= 20);
}
