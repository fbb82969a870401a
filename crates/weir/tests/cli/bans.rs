//! Bans of `weir firewall` come back after a restart: the judges are the packets that arrive, and what was acknowledged before a kill.

use crate::capture::net::{Capture, Net};
use crate::firewall_control::Wall;
use crate::support::*;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The banned addresses with their origins: `192.0.2.7 ctl restored`.
fn list(wall: &Wall) -> Vec<String> {
    let list: Value = serde_json::from_str(&wall.ctl(&["list", "--json"]).ok().text()).unwrap();
    let of = |ban: &Value| {
        let restored = if ban["restored"] == true {
            " restored"
        } else {
            ""
        };
        format!(
            "{} {}{restored}",
            ban["address"].as_str().unwrap(),
            ban["by"].as_str().unwrap()
        )
    };
    list["bans"].as_array().unwrap().iter().map(of).collect()
}

fn killed(running: Capture) {
    running.signal("-KILL");
    running.done();
}

/// The file of bans in the state directory of a test, which has one.
fn file_of(net: &Net) -> PathBuf {
    let is_file = |path: &PathBuf| {
        path.extension()
            .is_some_and(|extension| extension == "bans")
    };
    let found: Vec<PathBuf> = fs::read_dir(net.state())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(is_file)
        .collect();
    assert_eq!(found.len(), 1, "{found:?}");
    found[0].clone()
}

fn start(wall: &Wall, more: &[&str]) -> Capture {
    wall.start("af_packet:near", "af_packet:out", more)
}

#[test]
fn bans_come_back_with_their_times_and_origins_and_packets_meet_them() {
    let test = "bans_come_back_with_their_times_and_origins_and_packets_meet_them";
    let Some(wall) = Wall::new(test) else { return };
    let table = wall.temp.file("table", b"ban 10.0.0.8\nban 10.0.0.9\n");
    let table = ["--table", &table];
    let running = start(&wall, &table);
    wall.ctl(&["block", "10.0.0.1", "2001:db8::7"]).ok();
    wall.ctl(&["block", "10.0.0.2", "--for", "1h"]).ok();
    wall.ctl(&["block", "10.0.0.3", "10.0.0.9", "--for", "1s"])
        .ok();
    wall.ctl(&["block", "10.0.0.4-10.0.0.6"]).ok();
    wall.ctl(&["accept", "10.0.0.5", "10.0.0.8"]).ok();
    killed(running);
    let begun = Instant::now();
    let text = fs::read_to_string(file_of(&wall.net)).unwrap();
    assert!(text.starts_with("weir bans 1\nat "), "{text}");
    assert_eq!(
        fs::metadata(file_of(&wall.net)).unwrap().mode() & 0o777,
        0o600
    );
    wait::until("a second is over", || {
        begun.elapsed() > Duration::from_secs(1)
    });
    let running = start(&wall, &table);
    let restored = ["10.0.0.1", "10.0.0.2", "10.0.0.4", "10.0.0.6"]
        .map(|address| format!("{address} ctl restored"));
    // What the table bans is for good; what was taken back of it comes back with it.
    let expected: Vec<String> = restored
        .into_iter()
        .chain([
            "10.0.0.8 table".to_owned(),
            "10.0.0.9 table".to_owned(),
            "2001:db8::7 ctl restored".to_owned(),
        ])
        .collect();
    assert_eq!(list(&wall), expected);
    let shown = wall.ctl(&["list"]).ok().text();
    let line = |address: &str| {
        shown
            .lines()
            .map(str::trim)
            .find(|line| line.starts_with(address))
            .unwrap_or(&shown)
            .to_owned()
    };
    assert!(
        line("10.0.0.2").contains("3 5") || line("10.0.0.2").contains("1 h"),
        "{shown}"
    );
    assert!(
        line("10.0.0.1").contains("until it is accepted")
            && line("10.0.0.1").ends_with("ctl, restored"),
        "{shown}"
    );
    wall.send(
        "far",
        "far",
        &[
            "10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4", "10.0.0.5", "10.0.0.6", "10.0.0.7",
        ],
    );
    let stats = wall.stats(7);
    assert_eq!(
        (&stats["passed"], &stats["denied"]),
        (&3.into(), &4.into()),
        "{stats}"
    );
    assert_eq!(wall.net.received("beyond", "beyond"), 3);
    // What is taken back, or asked for again, is no longer of before.
    wall.ctl(&["accept", "10.0.0.1", "2001:db8::7", "10.0.0.4"])
        .ok();
    wall.ctl(&["block", "10.0.0.2", "--for", "1h"]).ok();
    let done = running.stop().ok();
    let words = format!(
        "bans are kept in {}; 5 bans restored, 2 ended meanwhile\n",
        file_of(&wall.net).display()
    );
    assert!(done.err.contains(&words), "{}", done.err);
    let running = start(&wall, &[]);
    assert_eq!(
        list(&wall),
        ["10.0.0.2 ctl restored", "10.0.0.6 ctl restored"]
    );
    running.stop().ok();
}

/// Four programs ban addresses one after another while the firewall is killed: each ban that was acknowledged comes back.
#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    let Some(wall) = Wall::new("what_was_acknowledged_is_there_after_a_kill") else {
        return;
    };
    let mut all: Vec<String> = Vec::new();
    for round in 0..4 {
        let running = start(&wall, &[]);
        let found: Vec<String> = list(&wall)
            .iter()
            .map(|line| line.split(' ').next().unwrap().to_owned())
            .collect();
        let lost: Vec<&String> = all
            .iter()
            .filter(|address| !found.contains(address))
            .collect();
        assert!(lost.is_empty(), "{round}: {lost:?}");
        let acknowledged = std::sync::Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for program in 0..4 {
                let (wall, acknowledged) = (&wall, &acknowledged);
                scope.spawn(move || {
                    for number in 0.. {
                        let address = format!("10.{round}.{program}.{number}");
                        if wall.ctl(&["block", &address]).code != Some(0) {
                            return;
                        }
                        acknowledged.lock().unwrap().push(address);
                    }
                });
            }
            wait::until("bans are acknowledged", || {
                acknowledged.lock().unwrap().len() > 10 + 7 * round
            });
            running.signal("-KILL");
        });
        running.done();
        all.extend(acknowledged.into_inner().unwrap());
    }
    start(&wall, &[]).stop().ok();
}

/// Nobody waits for the bans of control packets: they are kept within a second, and the origin is the key.
#[test]
fn bans_of_control_packets_are_kept_within_seconds() {
    let Some(wall) = Wall::new("bans_of_control_packets_are_kept_within_seconds") else {
        return;
    };
    let running = start(&wall, &[]);
    wall.send(
        "far",
        "far",
        &["7:1:0:0:ban 10.0.0.1", "300:2:0:0:ban 10.0.0.2"],
    );
    let sent = Instant::now();
    let has_both = || {
        let text = fs::read_dir(wall.net.state()).unwrap().find_map(|entry| {
            let path = entry.unwrap().path();
            path.extension()
                .is_some_and(|kind| kind == "bans")
                .then(|| fs::read_to_string(path).unwrap())
        });
        text.is_some_and(|text| text.contains("10.0.0.1 by key-7\n10.0.0.2 by key-300\n"))
    };
    wait::until("both are kept", has_both);
    assert!(
        sent.elapsed() < Duration::from_secs(10),
        "{:?}",
        sent.elapsed()
    );
    killed(running);
    let running = start(&wall, &[]);
    assert_eq!(
        list(&wall),
        ["10.0.0.1 key-7 restored", "10.0.0.2 key-300 restored"]
    );
    wall.send("far", "far", &["10.0.0.1", "10.0.0.3"]);
    assert_eq!(wall.stats(2)["denied"], 1);
    running.stop().ok();
}

#[test]
fn a_restored_ban_ends_at_its_time() {
    let Some(wall) = Wall::new("a_restored_ban_ends_at_its_time") else {
        return;
    };
    let running = start(&wall, &[]);
    let begun = Instant::now();
    wall.ctl(&["block", "10.0.0.1", "--for", "3s"]).ok();
    killed(running);
    let running = start(&wall, &[]);
    assert_eq!(list(&wall), ["10.0.0.1 ctl restored"]);
    wait::until("the ban ends", || list(&wall).is_empty());
    let took = begun.elapsed();
    assert!(
        took >= Duration::from_millis(2900) && took < Duration::from_secs(15),
        "{took:?}"
    );
    wall.send("far", "far", &["10.0.0.1"]);
    assert_eq!(wall.stats(1)["passed"], 1);
    running.stop().ok();
}

/// Refusals are one line and leave nothing behind; they name the way out.
#[test]
fn a_firewall_does_not_start_without_its_bans_unless_it_is_told_to() {
    let Some(wall) = Wall::new("a_firewall_does_not_start_without_its_bans_unless_it_is_told_to")
    else {
        return;
    };
    let running = start(&wall, &[]);
    wall.ctl(&["block", "10.0.0.1"]).ok();
    running.stop().ok();
    let (file, weir, socket) = (
        file_of(&wall.net),
        env!("CARGO_BIN_EXE_weir"),
        wall.temp.at("socket"),
    );
    let whole = fs::read_to_string(&file).unwrap();
    let rules = ["default drop\n", "default pass\n"]
        .map(|text| wall.temp.file(&text[8..12], text.as_bytes()));
    let refused = |words: &str, more: &[&str]| {
        for rules in &rules {
            let command = [
                weir,
                "firewall",
                "near",
                "out",
                "--rules",
                rules,
                "--control",
                &socket,
            ];
            let done = wall.net.inside("near", &[&command, more].concat());
            assert_eq!(
                (done.code, done.err.lines().count()),
                (Some(2), 1),
                "{words}: {}",
                done.err
            );
            assert!(done.err.contains(words), "{words}: {}", done.err);
            assert!(!Path::new(&socket).exists(), "{words}");
        }
    };
    let without = "--no-restore starts without the bans that were kept";
    for (text, words) in [
        (
            whole.replace("10.0.0.1", "10.0.0.2"),
            "line 4: the file was changed or damaged",
        ),
        (
            whole[..whole.len() - 9].to_owned(),
            "line 4: the file is cut",
        ),
        (String::new(), "line 1: the file is none of bans"),
        (
            "PK\u{3}\u{4}".repeat(1000),
            "line 1: the file is none of bans",
        ),
    ] {
        fs::write(&file, text).unwrap();
        refused(words, &[]);
        refused(without, &[]);
    }
    fs::write(&file, &whole).unwrap();
    for mode in [0o606, 0o666, 0o602] {
        fs::set_permissions(&file, fs::Permissions::from_mode(mode)).unwrap();
        refused("other users may write to it", &[]);
    }
    fs::rename(&file, wall.temp.at("elsewhere")).unwrap();
    symlink(wall.temp.at("elsewhere"), &file).unwrap();
    refused("no regular file (links are not followed)", &[]);
    fs::remove_file(&file).unwrap();
    fs::rename(wall.temp.at("elsewhere"), &file).unwrap();
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    fs::set_permissions(wall.net.state(), fs::Permissions::from_mode(0o777)).unwrap();
    refused("other users may write to it", &[]);
    fs::set_permissions(wall.net.state(), fs::Permissions::from_mode(0o700)).unwrap();
    refused(
        "is a directory: --state names a file",
        &["--state", s(wall.temp.path())],
    );
    refused(
        "no such file: --state FILE",
        &["--state", &wall.temp.at("no/bans")],
    );
    refused("--state -: bans are kept in a file", &["--state", "-"]);
    // It is told to: the bans of before stay where they can be looked at.
    fs::write(&file, "damaged").unwrap();
    let running = start(&wall, &["--no-restore"]);
    assert_eq!(list(&wall), Vec::<String>::new());
    wall.ctl(&["block", "10.0.0.3"]).ok();
    let done = running.stop().ok();
    let old = format!("{}.old", file.display());
    assert!(
        done.err.contains(&format!("; those before are in {old}\n")),
        "{}",
        done.err
    );
    assert_eq!(fs::read_to_string(old).unwrap(), "damaged");
    let running = start(&wall, &[]);
    assert_eq!(list(&wall), ["10.0.0.3 ctl restored"]);
    running.stop().ok();
}

/// Firewalls between other interfaces, and those with a control socket of another name, have other files.
#[test]
fn firewalls_do_not_mix_their_bans() {
    let Some(net) = Net::new("firewalls_do_not_mix_their_bans") else {
        return;
    };
    net.beyond();
    net.second_cable();
    let temp = Temp::new();
    let table = temp.file("table", b"default accept\n");
    let weir = env!("CARGO_BIN_EXE_weir");
    let start = |[source, sink, control]: [&str; 3], more: &[&str]| {
        let socket = temp.at(control);
        let command = [
            weir,
            "firewall",
            source,
            sink,
            "--table",
            &table,
            "--control",
            &socket,
        ];
        net.start(&[&command, more].concat(), "control socket")
    };
    let ctl = |control: &str, words: &[&str]| {
        crate::support::weir([&["firewall", "ctl", "--control", &temp.at(control)], words].concat())
            .ok()
            .text()
    };
    let one = start(["near", "out", "a"], &[]);
    let two = start(["one", "two", "b"], &[]);
    ctl("a", &["block", "10.0.0.1"]);
    ctl("b", &["block", "10.0.0.2"]);
    let bans = |control: &str| ctl(control, &["list"]);
    assert!(!bans("a").contains("10.0.0.2") && !bans("b").contains("10.0.0.1"));
    let taken = fs::read_dir(net.state())
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let taken = taken
        .filter(|path| path.extension().is_some_and(|kind| kind == "bans"))
        .collect::<Vec<_>>();
    assert_eq!(taken.len(), 2, "{taken:?}");
    one.stop().ok();
    let state = taken
        .iter()
        .find(|path| path.to_string_lossy().contains("one-two"))
        .unwrap();
    let done = net.weir(&[
        "firewall",
        "near",
        "out",
        "--table",
        &table,
        "--control",
        &temp.at("a"),
        "--state",
        s(state),
    ]);
    assert_eq!(done.code, Some(2));
    let words = "another weir firewall keeps its bans there: --state FILE places those";
    assert!(done.err.contains(words), "{}", done.err);
    two.stop().ok();
    let one = start(["near", "out", "a"], &[]);
    assert!(bans("a").contains("10.0.0.1") && !bans("a").contains("10.0.0.2"));
    one.stop().ok();
    let other = start(["near", "out", "c"], &[]);
    assert_eq!(bans("c"), "no address is banned\n");
    other.stop().ok();
    // The place is also that of a flag.
    let flag = ["--state", &temp.at("flag")];
    let named = start(["near", "out", "c"], &flag);
    ctl("c", &["block", "10.0.0.3"]);
    killed(named);
    let named = start(["near", "out", "d"], &flag);
    assert!(bans("d").contains("10.0.0.3"));
    named.stop().ok();
}

/// The disk of the state is full for a while. The firewall goes on, `ctl` says that the ban is not kept, and later it is.
#[test]
fn a_full_disk_is_told_and_does_not_end_the_firewall() {
    let Some(wall) = Wall::new("a_full_disk_is_told_and_does_not_end_the_firewall") else {
        return;
    };
    let (weir, socket, disk) = (
        env!("CARGO_BIN_EXE_weir"),
        wall.temp.at("socket"),
        wall.temp.at("disk"),
    );
    let table = wall.temp.file("table", b"default accept\n");
    fs::create_dir(&disk).unwrap();
    // The mount is that of the program's own namespace.
    let script = format!(
        "mount -t tmpfs -o size=32k,mode=700 none {disk} && exec {weir} firewall af_packet:near af_packet:out --table {table} \
         --control {socket} --state {disk}/bans"
    );
    let running = wall.net.start(&["sh", "-c", &script], "control socket");
    let inside = format!("/proc/{}/root{disk}", running.id());
    wall.ctl(&["block", "10.0.0.1"]).ok();
    let fill = format!("{inside}/fill");
    let _ = fs::write(&fill, vec![0; 64 << 10]);
    let full = wall.ctl(&["block", "10.0.0.2"]);
    assert_eq!(full.code, Some(1));
    assert_eq!(
        full.err,
        "weir: the latest bans are in force, but are not kept over a restart: no space left on device\n"
    );
    let answer = wall.ctl(&["block", "10.0.0.3", "--json"]);
    let answer: Value = serde_json::from_str(&answer.text()).unwrap();
    assert_eq!(
        (&answer["type"], &answer["unkept"]),
        (&"change".into(), &"no space left on device".into())
    );
    let shown = wall.ctl(&["list"]).ok();
    assert!(
        shown.err.contains("not kept over a restart"),
        "{}",
        shown.err
    );
    wall.send(
        "far",
        "far",
        &["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"],
    );
    let stats = wall.stats(4);
    assert_eq!(
        (&stats["passed"], &stats["denied"]),
        (&1.into(), &3.into()),
        "{stats}"
    );
    fs::remove_file(&fill).unwrap();
    wait::until("the file is written again", || {
        fs::read_to_string(format!("{inside}/bans"))
            .is_ok_and(|text| text.contains("10.0.0.1-10.0.0.3 by ctl"))
    });
    assert_eq!(wall.ctl(&["list"]).ok().err, "");
    let _ = fs::write(&fill, vec![0; 64 << 10]);
    wall.ctl(&["block", "10.0.0.9"]);
    let done = running.stop();
    assert_eq!(done.code, Some(1), "{}", done.err);
    let told = |words: &str| done.err.matches(words).count();
    assert_eq!(
        told("no space left on the device; bans stay in force"),
        2,
        "{}",
        done.err
    );
    assert_eq!(told("bans are kept again"), 1, "{}", done.err);
    assert_eq!(
        told("the last changes of bans are not kept: no space left on device"),
        1,
        "{}",
        done.err
    );
}

/// Another user than root, behind the walls: in a directory of root, and in one of its own.
#[test]
fn bans_are_kept_by_another_user_too() {
    let Some(wall) = Wall::new("bans_are_kept_by_another_user_too") else {
        return;
    };
    for round in 0..2 {
        let running = start(&wall, &["-Z", "nobody"]);
        let expected = if round == 0 {
            &[][..]
        } else {
            &["10.0.0.1 ctl restored"]
        };
        assert_eq!(list(&wall), expected);
        wall.ctl(&["block", "10.0.0.1"]).ok();
        let status = fs::read_to_string(format!("/proc/{}/status", running.id())).unwrap();
        assert!(!status.contains("Uid:\t0"), "{status}");
        killed(running);
    }
    // The directory is closed to all but root: whose the file is does not matter.
    let running = start(&wall, &[]);
    assert_eq!(list(&wall), ["10.0.0.1 ctl restored"]);
    running.stop().ok();
    // A directory that others may enter: the file has to be of this user, or of the one that runs.
    let file = file_of(&wall.net);
    std::os::unix::fs::chown(&file, Some(12345), None).unwrap();
    fs::set_permissions(wall.net.state(), fs::Permissions::from_mode(0o755)).unwrap();
    let weir = env!("CARGO_BIN_EXE_weir");
    let command = [
        weir,
        "firewall",
        "near",
        "out",
        "--table",
        "/dev/null",
        "--control",
        &wall.temp.at("socket"),
    ];
    let done = wall.net.inside("near", &command);
    assert!(
        done.code == Some(2) && done.err.contains("it belongs to user 12345"),
        "{}",
        done.err
    );
}
