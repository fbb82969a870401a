use super::*;
use crate::Random;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;

/// Fault of a program that keeps records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    None,
    /// Files are never synced.
    NoSync,
    /// A record is acknowledged, then synced.
    Early,
    /// The directory is not synced after a rename.
    NoDirectory,
}

/// Number of records, a multiple of those in a file.
const RECORDS: usize = 24;
/// Number of records in a file.
const PER_FILE: usize = 4;

/// Bytes of record `number`.
fn record(number: usize) -> Vec<u8> {
    Random(number as u64).bytes(700 + 300 * (number % 9))
}

/// Path of the file with record `number`.
fn name(dir: &Path, number: usize) -> PathBuf {
    dir.join(format!("part-{}", number / PER_FILE))
}

/// Writes records, four to a file; the first of a file appears with it, by a rename. Returns a mark for each record.
fn keep_records(dir: &Path, fault: Fault, mark: impl Fn() -> usize) -> io::Result<Vec<usize>> {
    let mut marks = Vec::new();
    for number in 0..RECORDS {
        let path = name(dir, number);
        let new = number % PER_FILE == 0;
        let at = if new { dir.join("new") } else { path.clone() };
        let mut file = File::options().append(true).create(new).open(&at)?;
        file.write_all(&record(number))?;
        if fault == Fault::Early {
            marks.push(mark());
        }
        if fault != Fault::NoSync {
            file.sync_all()?;
        }
        if new {
            fs::rename(&at, &path)?;
            if fault != Fault::NoDirectory {
                File::open(dir)?.sync_all()?;
            }
        }
        if fault != Fault::Early {
            marks.push(mark());
        }
    }
    Ok(marks)
}

/// Number of whole records in the directory; a record that was acknowledged and is not there is an error.
fn records_in(dir: &Path, acknowledged: usize) -> Result<usize, String> {
    let mut whole = 0;
    for first in (0..RECORDS).step_by(PER_FILE) {
        let bytes = fs::read(name(dir, first)).unwrap_or_default();
        let mut rest = &bytes[..];
        for number in first..first + PER_FILE {
            let record = record(number);
            if let Some(behind) = rest.strip_prefix(&record[..]) {
                rest = behind;
                whole += 1;
            } else if number < acknowledged {
                return Err(format!(
                    "record {number} of {acknowledged} acknowledged ones is lost"
                ));
            } else {
                break;
            }
        }
    }
    Ok(whole)
}

/// Runs the program, and cuts the power `cuts` times; returns the numbers of records found and what the check says of cuts at
/// which it fails.
fn cut_often(power: &Power, fault: Fault, cuts: usize) -> (Vec<usize>, Vec<String>) {
    // Behind the writes of mounting: a file system whose own metadata were torn there may refuse to mount.
    let run = |dir: &Path| {
        (
            power.mark(),
            keep_records(dir, fault, || power.mark()).expect("there is room"),
        )
    };
    let (begin, marks) = power.mounted(run).expect("it was mounted before");
    let end = marks[RECORDS - 1] + 1;
    let (mut found, mut failures) = (Vec::new(), Vec::new());
    let mut random = Random(11);
    for seed in 0..cuts as u64 {
        let position = begin + random.below(end - begin + 1);
        let acknowledged = marks.iter().filter(|&&mark| mark <= position).count();
        let image = power.cut(seed, position);
        match image
            .mounted(|dir| records_in(dir, acknowledged))
            .and_then(|checked| checked)
        {
            Ok(whole) => found.push(whole),
            Err(failure) => failures.push(format!("seed {seed}, position {position}: {failure}")),
        }
    }
    (found, failures)
}

fn nothing_is_lost(test: &str, filesystem: Filesystem) {
    let Some(power) = Power::new(test, filesystem) else {
        return;
    };
    let (found, failures) = cut_often(&power, Fault::None, 60);
    assert_eq!(failures, [""; 0]);
    assert_eq!(found.len(), 60);
    let mut different = found.clone();
    different.sort_unstable();
    different.dedup();
    assert!(
        different.len() > RECORDS / 3,
        "the cuts fall at many places: {found:?}"
    );
}

#[test]
fn what_was_synced_survives_every_cut_on_ext4() {
    nothing_is_lost(
        "what_was_synced_survives_every_cut_on_ext4",
        Filesystem::Ext4,
    );
}

#[test]
fn what_was_synced_survives_every_cut_on_xfs() {
    nothing_is_lost("what_was_synced_survives_every_cut_on_xfs", Filesystem::Xfs);
}

#[test]
fn planted_faults_of_a_program_lose_records() {
    for fault in [Fault::NoSync, Fault::Early, Fault::NoDirectory] {
        for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
            let Some(power) = Power::new("planted_faults_of_a_program_lose_records", filesystem)
            else {
                return;
            };
            let (_, failures) = cut_often(&power, fault, 40);
            assert!(
                failures.iter().any(|failure| failure.ends_with("is lost")),
                "{fault:?} on {filesystem:?}: {failures:?}"
            );
        }
    }
}

#[test]
fn a_sync_of_a_new_file_makes_its_name_durable_too() {
    let test = "a_sync_of_a_new_file_makes_its_name_durable_too";
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        let Some(power) = Power::new(test, filesystem) else {
            return;
        };
        let marks = power.mounted(|dir| -> io::Result<Vec<usize>> {
            let mark_of = |number: usize| {
                let mut file = File::create(dir.join(number.to_string()))?;
                file.write_all(&record(number))?;
                file.sync_data()?;
                Ok(power.mark())
            };
            (0..RECORDS).map(mark_of).collect()
        });
        let marks = marks
            .expect("it was mounted before")
            .expect("there is room");
        for (number, &mark) in marks.iter().enumerate() {
            let image = power.cut(number as u64, mark);
            let there = image.mounted(|dir| {
                fs::read(dir.join(number.to_string())).is_ok_and(|bytes| bytes == record(number))
            });
            assert_eq!(there, Ok(true), "{filesystem:?}, file {number}");
        }
    }
}

#[test]
fn a_replay_that_drops_flushed_writes_is_caught() {
    let Some(power) = Power::new(
        "a_replay_that_drops_flushed_writes_is_caught",
        Filesystem::Ext4,
    ) else {
        return;
    };
    let marks = power
        .mounted(|dir| keep_records(dir, Fault::None, || power.mark()).expect("there is room"));
    let marks = marks.expect("it was mounted before");
    let position = marks[RECORDS - 1];
    let check = |flushed: usize, seed| {
        let log = power.disk().log()[..position].to_vec();
        let image = power.with(log::left(power.disk().base().clone(), &log, flushed, seed));
        image
            .mounted(|dir| records_in(dir, RECORDS))
            .and_then(|checked| checked)
    };
    for seed in 0..10 {
        assert_eq!(check(position, seed), Ok(RECORDS));
    }
    let caught = (0..10).filter(|&seed| check(0, seed).is_err()).count();
    assert!(caught >= 5, "{caught} of 10");
}

#[test]
fn a_flush_is_logged_for_each_sync_and_behind_the_bytes_that_it_covers() {
    let test = "a_flush_is_logged_for_each_sync_and_behind_the_bytes_that_it_covers";
    for filesystem in [Filesystem::Ext4, Filesystem::Xfs] {
        let Some(power) = Power::new(test, filesystem) else {
            return;
        };
        let done = power.mounted(|dir| -> io::Result<()> {
            for number in 0..5 {
                let bytes = Random(number).bytes(4096);
                let file = File::create(dir.join(number.to_string()))?;
                file.write_all_at(&bytes, 0)?;
                let (before, from) = (power.flushes(), power.mark());
                file.sync_data()?;
                assert!(power.flushes() > before, "{filesystem:?}: no flush");
                let disk = power.disk();
                let log = &disk.log()[from..];
                let last = log
                    .iter()
                    .rposition(|event| *event == Event::Flush)
                    .expect("there is a flush");
                let written = log[..last].iter().any(|event| match event {
                    Event::Write { bytes: written, .. } => {
                        written.chunks(4096).any(|page| page == bytes)
                    }
                    Event::Flush => false,
                });
                assert!(written, "{filesystem:?}: the bytes are behind the flush");
            }
            Ok(())
        });
        done.expect("it was mounted before").expect("there is room");
    }
}

/// Contents of the disk after two flushed writes of page 0 and two that were not flushed, of pages 0 and 1.
fn small_cut(seed: u64, position: usize) -> Vec<u8> {
    let mut disk = Disk::new(1 << 20, Pages::default());
    for (offset, byte, flush) in [(0, 1, false), (0, 2, true), (0, 3, false), (4096, 4, false)] {
        disk.write(offset, &[byte; 4096]).unwrap();
        if flush {
            disk.flush();
        }
    }
    disk.cut(seed, position).read(0, 8192)
}

#[test]
fn a_cut_keeps_the_flushed_and_any_sectors_of_the_rest() {
    let (mut none, mut all, mut torn, mut later_alone) = (0, 0, 0, 0);
    for seed in 0..400 {
        let bytes = small_cut(seed, 5);
        let sectors: Vec<&[u8]> = bytes.chunks(log::SECTOR).collect();
        assert!(
            sectors
                .iter()
                .all(|sector| sector.iter().all(|&byte| byte == sector[0])),
            "a sector is never torn"
        );
        let values: Vec<u8> = sectors.iter().map(|sector| sector[0]).collect();
        assert!(
            values[..8].iter().all(|value| [2, 3].contains(value)),
            "{values:?}"
        );
        assert!(
            values[8..].iter().all(|value| [0, 4].contains(value)),
            "{values:?}"
        );
        let whole = |at: usize| values[at..at + 8].iter().all(|&value| value == values[at]);
        none += usize::from(values == [[2; 8], [0; 8]].concat());
        all += usize::from(values == [[3; 8], [4; 8]].concat());
        torn += usize::from(!whole(0) || !whole(8));
        later_alone += usize::from(values == [[2; 8], [4; 8]].concat());
        assert_eq!(bytes, small_cut(seed, 5), "a seed replays");
    }
    assert!(
        [none, all, torn, later_alone]
            .iter()
            .all(|&count| count > 20),
        "{none} {all} {torn} {later_alone}"
    );
    // Behind the flush nothing is open; in front of it, everything.
    assert!((0..50).all(|seed| small_cut(seed, 3) == [[2; 4096], [0; 4096]].concat()));
    let before: Vec<_> = (0..50).map(|seed| small_cut(seed, 2)[0]).collect();
    assert!(
        [0, 1, 2].iter().all(|value| before.contains(value)),
        "{before:?}"
    );
}

#[test]
fn a_recovered_image_is_sound_for_the_checker_of_its_file_system() {
    let test = "a_recovered_image_is_sound_for_the_checker_of_its_file_system";
    for (filesystem, program, flags) in [
        (Filesystem::Ext4, "e2fsck", "-fn"),
        (Filesystem::Xfs, "xfs_repair", "-nf"),
    ] {
        if !have(test, &[program]) {
            continue;
        }
        let Some(power) = Power::new(test, filesystem) else {
            return;
        };
        let marks = power
            .mounted(|dir| keep_records(dir, Fault::None, || power.mark()).expect("there is room"));
        let end = marks.expect("it was mounted before")[RECORDS - 1];
        let mut refused = 0;
        for seed in 0..8 {
            let image = power.cut(seed, end / 8 * seed as usize);
            image.mounted(|_| ()).expect("a journal recovers");
            let done = Command::new(program)
                .arg(flags)
                .arg(image.file())
                .output()
                .expect("it is installed");
            assert!(
                done.status.success(),
                "{filesystem:?}: {}",
                String::from_utf8_lossy(&done.stdout)
            );
            // The power fails again while the journal is being recovered. A file system whose own metadata were torn then may refuse
            // to mount; what it mounts is whole.
            match image
                .cut(seed, image.mark() / 2)
                .mounted(|dir| records_in(dir, 0))
            {
                Ok(found) => assert!(found.is_ok(), "{filesystem:?}: {found:?}"),
                Err(_) => refused += 1,
            }
        }
        assert!(
            refused < 4,
            "{filesystem:?}: {refused} images of 8 are refused"
        );
    }
}

#[test]
fn a_panic_of_the_workload_leaves_neither_mount_nor_loop_device() {
    let test = "a_panic_of_the_workload_leaves_neither_mount_nor_loop_device";
    let Some(power) = Power::new(test, Filesystem::Ext4) else {
        return;
    };
    let folder = power.scratch.path().to_owned();
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(move || {
        power.mounted(|dir| {
            let _open = File::create(dir.join("a")).expect("there is room");
            panic!("the workload fails");
        })
    }));
    assert!(panicked.is_err());
    assert!(!folder.exists());
    let name = folder.to_str().expect("a readable name");
    assert!(
        !fs::read_to_string("/proc/thread-self/mountinfo")
            .expect("procfs")
            .contains(name)
    );
    let devices = Command::new("losetup")
        .args(["--list", "--output", "BACK-FILE"])
        .output()
        .expect("it is installed");
    assert!(!String::from_utf8_lossy(&devices.stdout).contains(name));
}
