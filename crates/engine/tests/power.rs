//! Files that triggers save on a disk that loses power: a reported file is there, and no file is torn under its final name.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, mpsc};
use std::time::Duration;
use weir_engine::record::trigger::{Condition, Trigger};
use weir_engine::record::{Recording, Settings};
use weir_engine::sink::Sink;
use weir_packet::savefile::{Interface, Layout, Record, Resolution};
use weir_packet::{Frame, LinkType};
use weir_store::ring;
use weir_testkit::power::{Filesystem, Power, Sync, without};
use weir_testkit::{Random, have};

const START_NS: i64 = 1_700_000_000_000_000_000;
/// Recordings, one behind the other in the same directory. The trigger of each saves one file.
const FILES: u64 = 5;

/// A file that a trigger saved.
struct File {
    name: PathBuf,
    packets: u64,
    bytes: Vec<u8>,
    /// Position of the log when the recording reported the file.
    reported: usize,
}

/// Runs a recording whose trigger saves all its packets, and returns the file.
fn record(power: &Arc<Power>, dir: &Path, number: u64) -> File {
    let (say, said) = mpsc::channel();
    let watched = power.clone();
    let trigger = Trigger {
        condition: Condition::Matches("udp".to_owned()),
        after: Duration::from_secs(3600),
        ..Trigger::default()
    };
    let settings = Settings {
        directory: dir.to_owned(),
        ring: ring::Settings {
            bytes: 2 << 20,
            ..ring::Settings::default()
        },
        age: None,
        cutoff: None,
        chosen: Default::default(),
        disk: None,
        on_disk: Box::new(|_| {}),
        triggers: vec![trigger],
        waits: true,
        names: weir_filter::Names::NONE,
        inner: None,
        mode: 0o600,
        reserve: 0,
        rewrite: Default::default(),
        on_saved: Box::new(move |saved| {
            assert!(saved.error.is_none(), "{saved:?}");
            let _ = say.send((watched.mark(), saved.path.clone(), saved.packets));
        }),
    };
    let (recording, mut sink) = Recording::new(settings).expect("the settings are good");
    let recorder = recording.start().expect("threads begin");
    let layout = Layout::spool(vec![Interface::plain(
        LinkType::ETHERNET,
        65_535,
        Resolution::NANOSECOND,
    )]);
    let mut random = Random(number);
    // One file is longer than the buffer of the file.
    let packets = if number == 2 {
        1500
    } else {
        20 + random.below(200) as u64
    };
    for at in 0..packets {
        let mut data = [0; 42].to_vec();
        data[12..15].copy_from_slice(&[8, 0, 0x45]);
        data[23] = 17;
        data.extend(random.bytes(900));
        let frame = Frame {
            data: &data,
            wire_len: data.len() as u32,
            interface: 0,
        };
        let time_ns = START_NS + (number as i64) * 1_000_000_000 + at as i64 * 1000;
        sink.packet(
            &layout,
            &Record {
                time_ns: Some(time_ns),
                frame,
                options: Default::default(),
            },
        )
        .expect("the ring has room");
    }
    sink.finish(None, false).expect("the ring has room");
    let (status, ended) = recorder.finish();
    assert!(ended && status.triggers[0].saved == 1, "{status:?}");
    let (reported, path, saved) = said.recv().expect("the file was reported");
    assert_eq!(saved, packets);
    let bytes = fs::read(&path).expect("the file is there");
    File {
        name: path.file_name().expect("it has a name").into(),
        packets,
        bytes,
        reported,
    }
}

/// Capture files of a directory, under their final names.
fn named(dir: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(dir)
        .expect("the directory was synced")
        .map(|entry| entry.expect("it can be listed").path());
    let files = entries.filter(|path| path.extension().is_some_and(|end| end == "pcapng"));
    files
        .map(|path| {
            (
                path.file_name().expect("it has a name").into(),
                fs::read(&path).expect("it can be read"),
            )
        })
        .collect()
}

/// Number of packets, as capinfos counts them.
fn capinfos(path: &Path) -> Option<u64> {
    let done = Command::new("capinfos")
        .args(["-T", "-r", "-c", "-M"])
        .arg(path)
        .output()
        .ok()?;
    let good = done.status.success() && done.stderr.is_empty();
    String::from_utf8_lossy(&done.stdout)
        .split_whitespace()
        .last()?
        .parse()
        .ok()
        .filter(|_| good)
}

/// Checks a directory after a cut at `position`.
fn check(dir: &Path, files: &[File], position: usize, tools: bool) -> Result<usize, String> {
    let there = named(dir);
    for file in files {
        match there.get(&file.name) {
            None if file.reported <= position => {
                return Err(format!("{} is gone", file.name.display()));
            }
            Some(bytes) if *bytes != file.bytes => {
                return Err(format!(
                    "{}: {} of {} bytes",
                    file.name.display(),
                    bytes.len(),
                    file.bytes.len()
                ));
            }
            Some(_) if tools && capinfos(&dir.join(&file.name)) != Some(file.packets) => {
                return Err(format!(
                    "{}: capinfos counts other packets",
                    file.name.display()
                ));
            }
            _ => {}
        }
    }
    let known = there
        .keys()
        .all(|name| files.iter().any(|file| file.name == *name));
    if known {
        Ok(there.len())
    } else {
        Err(format!("other names: {:?}", there.keys()))
    }
}

/// Saves all files, with a call left out, then cuts the power at `cuts` positions: where a file was reported, and anywhere.
/// Returns the number of files behind each cut. `None`: the machine lacks something.
fn cut(
    test: &str,
    filesystem: Filesystem,
    left_out: Option<Sync>,
    cuts: u64,
) -> Option<Vec<Result<usize, String>>> {
    let power = Arc::new(Power::new(test, filesystem)?);
    let tools = have(test, &["capinfos"]);
    let saved = power.mounted(|root| {
        let dir = root.join("saved");
        let made = fs::create_dir(&dir).and_then(|()| fs::File::open(root)?.sync_all());
        made.and_then(|()| fs::File::open(&dir)?.sync_all())
            .expect("there is room");
        let begin = power.mark();
        let files = without(left_out, || {
            (0..FILES)
                .map(|number| record(&power, &dir, number))
                .collect()
        });
        (begin, files)
    });
    let (begin, files): (_, Vec<File>) = saved.expect("it was mounted before");
    let last = power.mark();
    let mut random = Random(37);
    let one = |seed| {
        let position = match seed % 2 {
            0 => files[random.below(files.len())].reported,
            _ => begin + random.below(last + 1 - begin),
        };
        let image = power.cut(seed, position);
        let checked = image.mounted(|root| {
            check(
                &root.join("saved"),
                &files,
                position,
                tools && seed % 4 == 0,
            )
        });
        checked
            .and_then(|checked| checked)
            .map_err(|why| format!("seed {seed}, position {position}: {why}"))
    };
    Some((0..cuts).map(one).collect())
}

#[test]
fn files_that_were_reported_survive_power_cuts_and_none_is_torn_under_its_name() {
    let test = "files_that_were_reported_survive_power_cuts_and_none_is_torn_under_its_name";
    let cuts = if std::env::var_os("WEIR_THOROUGH").is_some() {
        400
    } else {
        30
    };
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        let Some(found) = cut(test, filesystem, None, cuts) else {
            return;
        };
        let failures: Vec<_> = found
            .iter()
            .filter_map(|found| found.as_ref().err())
            .collect();
        assert!(
            failures.is_empty(),
            "{filesystem:?}: {} of {cuts}: {failures:#?}",
            failures.len()
        );
        let counts: std::collections::BTreeSet<_> = found.iter().flatten().collect();
        assert!(counts.len() > 3, "the cuts fall at many places: {counts:?}");
    }
}

#[test]
fn a_saved_file_without_fdatasync_is_torn_and_without_fsync_of_its_directory_is_gone() {
    let test = "a_saved_file_without_fdatasync_is_torn_and_without_fsync_of_its_directory_is_gone";
    for (left_out, symptom) in [(Sync::Fdatasync, "bytes"), (Sync::Fsync, "is gone")] {
        for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
            let Some(found) = cut(test, filesystem, Some(left_out), 20) else {
                return;
            };
            let caught = found
                .iter()
                .filter_map(|found| found.as_ref().err())
                .filter(|why| why.contains(symptom));
            let caught = caught.count();
            assert!(
                caught >= 3,
                "{left_out:?} on {filesystem:?}: {caught} of 20: {found:?}"
            );
        }
    }
}
