//! A record directory that is removed, renamed or mounted over while packets come, and made anew under its name.

use crate::recording::*;
use crate::support::*;
use serde_json::Value;
use std::io::Write;
use std::path::Path;
use std::process::Child;
use weir_engine::socket::Client;

/// A recorder that is fed datagrams with numbers, a second apart.
struct Fed {
    child: Child,
    next: u32,
    /// Bytes of payload.
    bytes: usize,
}

impl Fed {
    fn start(out: &str, more: &[&str]) -> Self {
        let options = ["--disk", "1G", "--sync", "50ms", "--ram", "4M"];
        let mut child = start_recorder(out, &[&options[..], more].concat());
        child
            .stdin
            .as_mut()
            .unwrap()
            .write_all(&pcap_header(65_535, 1))
            .unwrap();
        connected(out);
        Self {
            child,
            next: 0,
            bytes: 100,
        }
    }

    /// Sends packets, and waits until the last one is durable in the directory.
    fn send(&mut self, out: &str, count: u32) {
        self.put(count);
        let (last, next) = (self.next - 1, u64::from(self.next));
        let socket = Path::new(out).join("control");
        wait::until_ok(|| match Client::connect(&socket) {
            Ok(mut client) => match status(&mut client)["disk"]["durable"]["number"].as_u64() {
                Some(durable) if durable == next => Ok(()),
                durable => Err(format!("{durable:?} of {next}")),
            },
            // A confined recorder makes no socket in another directory.
            Err(_) => match numbers(out) {
                found if found.last() == Some(&last) => Ok(()),
                found => Err(format!("{last} of {found:?}")),
            },
        });
    }

    /// Waits until the recorder has no segment of a directory open any more.
    fn until_left(&self, directory: &str) {
        let files = format!("/proc/{}/fd", self.child.id());
        wait::until(format_args!("{directory} to be left"), || {
            let open = std::fs::read_dir(&files).unwrap().flatten();
            !open
                .filter_map(|file| std::fs::read_link(file.path()).ok())
                .any(|path| {
                    path.starts_with(directory) && path.to_string_lossy().contains(".pcapng")
                })
        });
    }

    fn put(&mut self, count: u32) {
        let stdin = self.child.stdin.as_mut().unwrap();
        for number in self.next..self.next + count {
            stdin
                .write_all(&pcap_record(
                    1_700_000_000 + number,
                    &numbered(53, number, self.bytes),
                ))
                .unwrap();
        }
        stdin.flush().unwrap();
        self.next += count;
    }

    fn end(mut self) -> Done {
        drop(self.child.stdin.take());
        gather(self.child, &[])
    }
}

/// Makes a directory, and waits until the recorder has taken it up.
fn make(out: &str) {
    std::fs::create_dir(out).unwrap();
    let lock = Path::new(out).join("lock");
    wait::until_ok(|| {
        if lock.exists() {
            Ok(())
        } else {
            Err(format!("{out} is not taken up"))
        }
    });
}

/// Numbers of the packets in the segments of a directory.
fn numbers(directory: &str) -> Vec<u32> {
    let temp = Temp::new();
    let copy = temp.at("copy.pcap");
    let done = weir(["query", directory, "-w", &copy]);
    let Ok(bytes) = std::fs::read(copy) else {
        return Vec::new();
    };
    assert!(done.code.is_some());
    if bytes.len() < 24 {
        Vec::new()
    } else {
        parse_pcap(&bytes).1.iter().map(number).collect()
    }
}

fn end_of(done: &Done) -> Value {
    serde_json::from_str(done.text().lines().last().unwrap()).unwrap()
}

/// Lines of the recorder about the directory.
fn lines<'a>(done: &'a Done, out: &str) -> Vec<&'a str> {
    let prefix = format!("weir: {out}: ");
    done.err
        .lines()
        .filter_map(|line| line.strip_prefix(&prefix))
        .collect()
}

#[test]
fn a_directory_that_is_renamed_and_made_anew_is_taken_up() {
    let temp = Temp::new();
    let (out, moved) = (temp.at("out"), temp.at("moved"));
    let mut fed = Fed::start(&out, &["--reopen", "--json"]);
    fed.send(&out, 100);
    std::fs::rename(&out, &moved).unwrap();
    make(&out);
    fed.send(&out, 50);
    let done = fed.end();
    assert_eq!(done.code, Some(0), "{}", done.err);
    assert_eq!(
        (numbers(&moved), numbers(&out)),
        ((0..100).collect(), (100..150).collect()),
        "{}",
        done.err
    );
    let told = lines(&done, &out);
    let line = "the directory was renamed or mounted over; 100 packets on disk stay in it; there is another one now, and \
                packets are written to it";
    assert_eq!(
        told.iter().filter(|told| **told == line).count(),
        1,
        "{}",
        done.err
    );
    let disk = &end_of(&done)["disk"];
    assert_eq!(
        (
            &disk["durable"],
            &disk["elsewhere"],
            &disk["gone"],
            &disk["missed"]
        ),
        (&50.into(), &100.into(), &0.into(), &0.into())
    );
    // Neither lacks anything, and capinfos counts the same.
    for (directory, count) in [(&moved, 100), (&out, 50)] {
        assert!(
            !weir(["query", directory, "--count"])
                .err
                .contains("dropped when it was captured")
        );
        let counted: u64 = segments(directory)
            .iter()
            .map(|segment| records(segment).len() as u64)
            .sum();
        assert_eq!(counted, count);
    }
}

#[test]
fn a_directory_that_is_removed_and_made_anew_is_taken_up() {
    let temp = Temp::new();
    let out = temp.at("out");
    let mut fed = Fed::start(&out, &["--reopen", "--json"]);
    fed.send(&out, 100);
    std::fs::remove_dir_all(&out).unwrap();
    // While there is none, packets wait in memory.
    fed.put(20);
    fed.until_left(&out);
    make(&out);
    fed.send(&out, 30);
    let done = fed.end();
    // All that memory still held is written again.
    assert_eq!(numbers(&out), (0..150).collect::<Vec<_>>(), "{}", done.err);
    assert_eq!(done.code, Some(0), "{}", done.err);
    let told = lines(&done, &out);
    // Packets that came before the recorder looked went with it too.
    let is_removed = |line: &&&str| line.starts_with("the directory was removed, and 1");
    assert!(
        told.iter()
            .find(is_removed)
            .is_some_and(|line| line.contains(", which memory still has; ")),
        "{told:?}"
    );
    assert!(
        told.iter()
            .any(|line| line.ends_with(" and packets are written to it")),
        "{told:?}"
    );
    let disk = &end_of(&done)["disk"];
    assert_eq!(
        (&disk["durable"], &disk["gone"]),
        (&150.into(), &0.into()),
        "{disk}"
    );
}

#[test]
fn packets_that_went_with_a_directory_are_told() {
    let temp = Temp::new();
    let out = temp.at("out");
    let mut fed = Fed::start(&out, &["--reopen", "--json"]);
    // A ring of 4 MiB holds the last ones.
    fed.bytes = 60_000;
    fed.send(&out, 300);
    std::fs::remove_dir_all(&out).unwrap();
    make(&out);
    fed.send(&out, 10);
    let done = fed.end();
    let there = numbers(&out);
    let end = end_of(&done);
    // The oldest packets of memory may leave it before they are written again.
    let [gone, missed] = ["gone", "missed"].map(|name| end["disk"][name].as_u64().unwrap());
    assert_eq!(
        (done.code, gone + missed + there.len() as u64),
        (Some(1), 310),
        "{there:?} {}",
        done.err
    );
    assert!(
        gone > 0 && end["disk"]["durable"] == there.len() as u64,
        "{end}"
    );
    let told = lines(&done, &out).join("\n");
    assert!(told.contains("the record is not whole: "), "{told}");
    let which = format!("{gone} packets were in the directory when it was removed");
    assert!(told.contains(&which), "{told}");
}

/// The walls hold unless the user says otherwise: the recorder tells at once, and nothing counts as durable that is not.
#[test]
fn the_walls_keep_another_directory_closed_unless_told_otherwise() {
    let test = "the_walls_keep_another_directory_closed_unless_told_otherwise";
    let holds = weir(["doctor"]).text().to_lowercase().contains("landlock");
    if !holds {
        return skipped(test, "this kernel has no Landlock");
    }
    let temp = Temp::new();
    let (out, moved) = (temp.at("out"), temp.at("moved"));
    let mut fed = Fed::start(&out, &["--json"]);
    fed.send(&out, 100);
    std::fs::rename(&out, &moved).unwrap();
    std::fs::create_dir(&out).unwrap();
    fed.until_left(&moved);
    fed.put(50);
    let done = fed.end();
    assert_eq!(
        (done.code, numbers(&moved)),
        (Some(1), (0..100).collect()),
        "{}",
        done.err
    );
    let told = lines(&done, &out).join("\n");
    assert!(
        told.contains("the directory was renamed or mounted over; 100 packets on disk stay in it"),
        "{told}"
    );
    assert!(
        told.contains("the record is not whole: 50 packets were not on disk at the end"),
        "{told}"
    );
    assert!(done.err.contains("--reopen"), "{}", done.err);
    assert_eq!(end_of(&done)["disk"]["durable"], 0);
}
