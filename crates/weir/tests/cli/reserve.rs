//! One reserve of disk space for everything that is written, each writer on a small file system of its own.

use crate::support::*;
use std::process::Command;

/// Bytes of the file system, and of its reserve.
const SIZE: u64 = 64 << 20;
const RESERVE: u64 = 40 << 20;

/// Runs shell words in a mount namespace of their own, where the directory is a file system of 64 MiB. `$W` is weir, `$D` the
/// directory. Returns what came, and the bytes that were free at the end; `None` where no file system can be mounted.
fn on_small_disk(directory: &str, words: &str) -> Option<(Done, u64)> {
    let script = format!(
        "mount -t tmpfs -o size={SIZE} tmpfs \"$D\" || exit 77\n{words}\ncode=$?\nsync\nstat -f -c 'free %a %S' \"$D\"\nexit $code"
    );
    let mut command = Command::new("unshare");
    command
        .args(["-m", "sh", "-c", &script])
        .env("D", directory)
        .env("W", env!("CARGO_BIN_EXE_weir"))
        .env("TZ", "UTC");
    let done = run(&mut command, &[]);
    if done.code == Some(77) {
        return None;
    }
    let text = done.text();
    let free: Vec<u64> = text
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("free "))?
        .split(' ')
        .map(|n| n.parse().unwrap())
        .collect();
    Some((done, free[0] * free[1]))
}

#[test]
fn no_writer_takes_the_reserve() {
    let test = "no_writer_takes_the_reserve";
    if !have(test, &["unshare", "stat", "sync"]) {
        return;
    }
    let temp = Temp::new();
    let (file, disk) = (temp.at("all.pcap"), temp.at("disk"));
    weir([
        "generate",
        &file,
        "--packets",
        "120000",
        "--rate",
        "10000",
        "--seed",
        "5",
    ])
    .ok();
    assert!(std::fs::metadata(&file).unwrap().len() > SIZE);
    std::fs::create_dir(&disk).unwrap();
    let record = temp.at("record");
    weir(["record", &file, &record, "--disk", "1G", "--reserve", "0"]).ok();
    let rules = temp.at("rules.txt");
    std::fs::write(&rules, "default pass\n").unwrap();
    // Words, and whether the writer ends with a failure.
    let writers = [
        ("$W filter '' FILE -w $D/a.pcap --reserve 40M", true),
        ("$W filter '' FILE -w $D/a.pcapng --reserve 40M", true),
        ("$W filter '' FILE -w - --reserve 40M > $D/a.pcapng", true),
        (
            "$W filter '' FILE --split $D/a=udp --split $D/b=tcp --reserve 40M",
            true,
        ),
        ("$W filter '' FILE -w $D/a.pcap -C 1M --reserve 40M", true),
        (
            "TMPDIR=$D $W filter '' FILE --sort -w /dev/null --reserve 40M",
            false,
        ),
        ("$W measure FILE -w $D/a.pcap --reserve 40M", true),
        ("$W query RECORD -w $D/a.pcapng --reserve 40M", true),
        (
            "$W firewall FILE $D/a.pcap --rules RULES --reserve 40M",
            true,
        ),
        ("$W generate $D/a.pcap --packets 1M --reserve 40M", true),
        // Packets on disk give way to later ones.
        (
            "$W record FILE $D/r --disk 1G --segment 1M --reserve 40M",
            false,
        ),
        // In RAM alone, files of triggers are all that is written.
        (
            "$W record FILE $D/r --trigger t=udp --before 100s --after 100s --reserve 40M",
            true,
        ),
    ];
    for (words, fails) in writers {
        let words = words
            .replace("FILE", &file)
            .replace("RECORD", &record)
            .replace("RULES", &rules);
        let Some((done, free)) = on_small_disk(&disk, &words) else {
            return skipped(
                test,
                "file systems cannot be mounted here: a privilege is lacking",
            );
        };
        assert!(
            free >= RESERVE,
            "{words}: {free} bytes are free: {}",
            done.err
        );
        if fails {
            assert_eq!(done.code, Some(1), "{words}: {}", done.err);
            assert!(
                done.err.contains("are to stay free (--reserve)"),
                "{words}: {}",
                done.err
            );
            // What there was room for was used.
            assert!(
                free < RESERVE + (12 << 20),
                "{words}: {free} bytes are free"
            );
        }
    }
    // By default a twentieth of the disk stays free.
    let words = format!("$W filter '' {file} -w $D/a.pcap");
    let (done, free) = on_small_disk(&disk, &words).unwrap();
    assert!(
        done.code == Some(1) && (SIZE / 20 - 4096..SIZE / 4).contains(&free),
        "{free}: {}",
        done.err
    );
}

/// Files of triggers leave the packets on disk alone: no segment is removed for them.
#[test]
fn saved_files_cost_no_history() {
    let test = "saved_files_cost_no_history";
    if !have(test, &["unshare", "stat", "sync"]) {
        return;
    }
    let temp = Temp::new();
    let (file, few, disk) = (temp.at("all.pcap"), temp.at("few.pcap"), temp.at("disk"));
    weir([
        "generate",
        &file,
        "--packets",
        "30000",
        "--rate",
        "10000",
        "--seed",
        "5",
    ])
    .ok();
    weir([
        "generate",
        &few,
        "--packets",
        "5000",
        "--rate",
        "10000",
        "--seed",
        "6",
    ])
    .ok();
    std::fs::create_dir(&disk).unwrap();
    let options = "--disk 1G --segment 1M --reserve 1M";
    let words = format!(
        "$W record {file} $D/r {options} && $W record {few} $D/r {options} --every 10ms --before 100s --after 0; code=$?; \
         $W query $D/r --count; (exit $code)"
    );
    let Some((done, free)) = on_small_disk(&disk, &words) else {
        return skipped(
            test,
            "file systems cannot be mounted here: a privilege is lacking",
        );
    };
    assert!(free >= 1 << 20, "{free}: {}", done.err);
    assert!(
        done.err.contains("are to stay free (--reserve)"),
        "{}",
        done.err
    );
    assert!(!done.err.contains("old segment"), "{}", done.err);
    assert_eq!(done.text().lines().next(), Some("35000"), "{}", done.err);
}

/// A file of the same name as an output that is refused for want of room keeps its contents; one that makes the room is replaced.
#[test]
fn an_output_without_room_leaves_the_earlier_file() {
    let test = "an_output_without_room_leaves_the_earlier_file";
    if !have(test, &["unshare", "stat", "sync"]) {
        return;
    }
    let temp = Temp::new();
    let (file, disk, record, rules) = (
        temp.at("few.pcap"),
        temp.at("disk"),
        temp.at("record"),
        temp.at("rules.txt"),
    );
    weir(["generate", &file, "--packets", "100", "--seed", "5"]).ok();
    std::fs::create_dir(&disk).unwrap();
    weir(["record", &file, &record, "--disk", "1G", "--reserve", "0"]).ok();
    let (many, recorded) = (temp.at("many.pcap"), temp.at("recorded"));
    weir(["generate", &many, "--packets", "5000", "--seed", "5"]).ok();
    weir(["record", &many, &recorded, "--disk", "1G", "--reserve", "0"]).ok();
    std::fs::write(&rules, "default pass\n").unwrap();
    let writers = [
        "$W filter '' FILE -w $D/a.pcap RESERVE",
        "$W filter '' FILE -w $D/a.pcap -C 1M --overwrite RESERVE",
        "$W filter '' FILE --split $D/a.pcap=udp RESERVE",
        "$W measure FILE -w $D/a.pcap RESERVE",
        "$W query RECORD -w $D/a.pcap RESERVE",
        "$W firewall FILE $D/a.pcap --rules RULES RESERVE",
        "$W generate $D/a.pcap --packets 100 RESERVE",
    ];
    for words in writers {
        let words = words
            .replace("FILE", &file)
            .replace("RECORD", &record)
            .replace("RULES", &rules);
        let refused = words.replace("RESERVE", "--reserve 1G");
        let script =
            format!("echo mine > $D/a.pcap; {refused}; code=$?; cat $D/a.pcap; (exit $code)");
        let Some((done, _)) = on_small_disk(&disk, &script) else {
            return skipped(
                test,
                "file systems cannot be mounted here: a privilege is lacking",
            );
        };
        assert_eq!(done.code, Some(1), "{words}: {}", done.err);
        assert!(
            done.err.contains("are to stay free (--reserve)"),
            "{words}: {}",
            done.err
        );
        assert!(
            done.text().contains("mine\nfree "),
            "{words}: {}",
            done.text()
        );
        // Room for a page, and none for the first block that is written.
        let large = words
            .replace(&file, &many)
            .replace(&record, &recorded)
            .replace("--packets 100 ", "--packets 50000 ");
        let refused = large.replace("RESERVE", &format!("--reserve {}", SIZE - (100 << 10)));
        let script =
            format!("echo mine > $D/a.pcap; {refused}; code=$?; cat $D/a.pcap; (exit $code)");
        let (done, _) = on_small_disk(&disk, &script).unwrap();
        assert_eq!(done.code, Some(1), "{words}: {}", done.err);
        assert!(
            done.err.contains("are to stay free (--reserve)"),
            "{words}: {}",
            done.err
        );
        assert!(
            done.text().contains("mine\nfree "),
            "{words}: {}",
            done.text()
        );
        // What the earlier file has counts as room.
        let fits = words.replace("RESERVE", "--reserve 40M");
        let script = format!(
            "head -c 30M /dev/zero > $D/a.pcap; {fits}; code=$?; stat -c %s $D/a.pcap; (exit $code)"
        );
        let (done, _) = on_small_disk(&disk, &script).unwrap();
        let text = done.text();
        let size = text.lines().rev().nth(1).unwrap();
        assert!(
            done.code == Some(0) && size.parse::<u64>().unwrap() < 1 << 20,
            "{words}: {size} {}",
            done.err
        );
    }
}
