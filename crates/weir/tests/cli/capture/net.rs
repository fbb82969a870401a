//! Two network namespaces with a cable between them, a sender that counts its frames, and a capture process.

use crate::support::*;
use std::io::{BufRead, BufReader, Read};
use std::os::unix::fs::MetadataExt;
use std::process::{Child, ChildStderr, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use weir_testkit::wait;

/// Script that sends the frames on its standard input, each after its length, and prints their number. After each `burst`
/// of frames it pauses.
const SENDER: &str = "
import socket, sys, time
interface, burst, rest = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
s.bind((interface, 0))
data, at, sent = sys.stdin.buffer.read(), 0, 0
while at < len(data):
    n = int.from_bytes(data[at:at + 4], 'little')
    assert s.send(data[at + 4:at + 4 + n]) == n
    at, sent = at + 4 + n, sent + 1
    if burst and sent % burst == 0:
        time.sleep(rest)
print(sent)
";

/// Namespaces `far` and `near`, joined by interfaces of these names. Dropping removes them with everything in them.
#[derive(Debug)]
pub struct Net {
    tag: String,
}

impl Net {
    /// Makes the namespaces and the cable. If that is impossible, prints why and returns `None`.
    pub fn new(test: &str) -> Option<Self> {
        if !have(test, &["ip", "python3", "kill"]) {
            return None;
        }
        if std::fs::metadata("/proc/self").map_or(1, |about| about.uid()) != 0 {
            skipped(test, "network namespaces need root");
            return None;
        }
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let tag = format!(
            "weir-test-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let net = Self { tag };
        for end in ["far", "near"] {
            let made = tool("ip", ["netns", "add", &net.name(end)]);
            if made.code != Some(0) {
                skipped(
                    test,
                    format_args!("no network namespaces here: {}", made.err.trim()),
                );
                return None;
            }
            // Packets of the kernel's own (IPv6) would be counted too.
            let quiet = "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done";
            net.inside(end, &["sh", "-c", quiet]);
        }
        let [far, near] = ["far", "near"].map(|end| net.name(end));
        tool(
            "ip",
            [
                "link", "add", "far", "netns", &far, "type", "veth", "peer", "name", "near",
                "netns", &near,
            ],
        )
        .ok();
        for end in ["far", "near"] {
            net.inside(end, &["ip", "link", "set", end, "up"]).ok();
        }
        Some(net)
    }

    /// Name of the namespace `end`.
    pub fn name(&self, end: &str) -> String {
        format!("{}-{end}", self.tag)
    }

    /// A command in the namespace `end`.
    pub fn command(&self, end: &str, command: &[&str]) -> Command {
        let mut inside = Command::new("ip");
        inside
            .args(["netns", "exec", &self.name(end)])
            .args(command)
            .env("TZ", "UTC")
            .stdin(Stdio::null());
        // What programs keep over their end is this test's own.
        inside.env("STATE_DIRECTORY", self.state());
        inside
    }

    /// Directory of what programs of this test keep over their end.
    pub fn state(&self) -> String {
        std::env::temp_dir()
            .join(format!("{}-state", self.tag))
            .to_string_lossy()
            .into_owned()
    }

    /// Runs a command in the namespace `end`.
    pub fn inside(&self, end: &str, command: &[&str]) -> Done {
        run(&mut self.command(end, command), &[])
    }

    /// Runs `weir` at the near end.
    pub fn weir(&self, arguments: &[&str]) -> Done {
        self.inside("near", &[&[env!("CARGO_BIN_EXE_weir")], arguments].concat())
    }

    /// Starts `weir` at the near end, and returns once it captures.
    pub fn capture(&self, arguments: &[&str]) -> Capture {
        let command = [&[env!("CARGO_BIN_EXE_weir")], arguments].concat();
        self.start(&command, "AF_PACKET")
    }

    /// Whether the kernel injects packets at the near end.
    pub fn injects(&self) -> bool {
        let words = [
            "generate",
            "inject:near",
            "--profile",
            "64",
            "--packets",
            "1",
        ];
        self.weir(&words).code == Some(0)
    }

    /// A second cable, from `one` to `two`, both at the near end.
    pub fn second_cable(&self) {
        self.inside(
            "near",
            &[
                "ip", "link", "add", "one", "type", "veth", "peer", "name", "two",
            ],
        )
        .ok();
        for end in ["one", "two"] {
            self.inside("near", &["ip", "link", "set", end, "up"]).ok();
        }
    }

    /// A third namespace `beyond`, with an interface of this name, behind the interface `out` of the near end.
    pub fn beyond(&self) {
        let (near, beyond) = (self.name("near"), self.name("beyond"));
        tool("ip", ["netns", "add", &beyond]).ok();
        self.inside(
            "beyond",
            &[
                "sh",
                "-c",
                "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done",
            ],
        );
        tool(
            "ip",
            [
                "link", "add", "out", "netns", &near, "type", "veth", "peer", "name", "beyond",
                "netns", &beyond,
            ],
        )
        .ok();
        self.inside("near", &["ip", "link", "set", "out", "up"])
            .ok();
        self.inside("beyond", &["ip", "link", "set", "beyond", "up"])
            .ok();
    }

    /// Frames that an interface has received, as the kernel counts them.
    pub fn received(&self, end: &str, interface: &str) -> u64 {
        let file = format!("/sys/class/net/{interface}/statistics/rx_packets");
        self.inside(end, &["cat", &file])
            .ok()
            .text()
            .trim()
            .parse()
            .expect("a number")
    }

    /// Replaces the cable from `far` to `near` by one with two queues at each end.
    pub fn two_queues(&self) {
        let far = self.name("far");
        let queues = ["numtxqueues", "2", "numrxqueues", "2"];
        self.inside("near", &["ip", "link", "del", "near"]).ok();
        let near = [
            &["ip", "link", "add", "near"],
            &queues[..],
            &["type", "veth", "peer", "name", "far"],
        ]
        .concat();
        self.inside("near", &[&near, &queues[..], &["netns", &far]].concat())
            .ok();
        for end in ["far", "near"] {
            self.inside(end, &["ip", "link", "set", end, "up"]).ok();
        }
    }

    /// Starts a program at the near end, and returns once it has printed `ready` on standard error.
    pub fn start(&self, command: &[&str], ready: &str) -> Capture {
        self.start_at("near", command, ready)
    }

    /// Starts a program in the namespace `end`, and returns once it has printed `ready` on standard error.
    pub fn start_at(&self, end: &str, command: &[&str], ready: &str) -> Capture {
        Capture::begin(&mut self.command(end, command), ready)
    }

    /// Starts tcpdump in the namespace `far`, which writes each packet to `file` at once.
    pub fn judge(&self, file: &str) -> Capture {
        let words = ["tcpdump", "--immediate-mode", "-s", "2000", "-B", "16384"];
        let more = ["-Z", "root", "-i", "far", "-U", "-w", file];
        self.start_at("far", &[&words[..], &more].concat(), "listening on")
    }

    /// Sends frames from the far end; returns their number.
    pub fn send(&self, frames: &[Vec<u8>], burst: usize) -> u64 {
        self.send_on("far", "far", frames, burst)
    }

    /// Sends frames by an interface of the namespace `end`.
    pub fn send_on(&self, end: &str, interface: &str, frames: &[Vec<u8>], burst: usize) -> u64 {
        let sent = run(
            self.command(
                end,
                &[
                    "python3",
                    "-c",
                    SENDER,
                    interface,
                    &burst.to_string(),
                    "0.005",
                ],
            )
            .stdin(Stdio::piped()),
            &framed(frames),
        );
        sent.ok().text().trim().parse().expect("it says how many")
    }

    /// Number of users that request promiscuous mode of `interface`.
    pub fn promiscuity(&self, interface: &str) -> String {
        let about = self
            .inside("near", &["ip", "-d", "link", "show", interface])
            .ok()
            .text();
        about
            .split("promiscuity ")
            .nth(1)
            .and_then(|rest| rest.split_whitespace().next())
            .unwrap_or("")
            .to_owned()
    }
}

fn framed(frames: &[Vec<u8>]) -> Vec<u8> {
    frames
        .iter()
        .flat_map(|frame| [&(frame.len() as u32).to_le_bytes(), &frame[..]].concat())
        .collect()
}

impl Drop for Net {
    fn drop(&mut self) {
        for end in ["far", "near", "beyond"] {
            tool("ip", ["netns", "del", &self.name(end)]);
        }
        let _ = std::fs::remove_dir_all(self.state());
    }
}

/// A capture process. Dropping the handle ends it.
#[derive(Debug)]
pub struct Capture {
    child: Child,
    err: BufReader<ChildStderr>,
    said: String,
}

impl Capture {
    /// Starts a program, and returns once it has printed `ready` on standard error.
    pub fn begin(command: &mut Command, ready: &str) -> Self {
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be run");
        let err = BufReader::new(child.stderr.take().expect("it is a pipe"));
        Self {
            child,
            err,
            said: String::new(),
        }
        .until(ready)
    }

    pub fn signal(&self, name: &str) {
        tool("kill", [name, &self.child.id().to_string()]).ok();
    }

    /// Waits until the process has printed these words on standard error.
    pub fn until(self, words: &str) -> Self {
        self.until_times(words, 1)
    }

    /// Waits until the process has printed these words so many times.
    pub fn until_times(mut self, words: &str, times: usize) -> Self {
        while self.said.matches(words).count() < times {
            assert!(
                self.err
                    .read_line(&mut self.said)
                    .expect("a pipe can be read")
                    > 0,
                "it ended: {}",
                self.said
            );
        }
        self
    }

    /// Asks for counters by SIGUSR1, and returns the next line on standard error that has these words.
    pub fn asked(&mut self, words: &str) -> &str {
        self.signal("-USR1");
        loop {
            let at = self.said.len();
            let read = self.err.read_line(&mut self.said);
            assert!(
                read.expect("a pipe can be read") > 0,
                "it ended: {}",
                self.said
            );
            if self.said[at..].contains(words) {
                return &self.said[at..];
            }
        }
    }

    /// Waits until an interface of the process has received this many packets and handed all of them on, by its counters. Each of its
    /// rings has a line.
    pub fn until_received(mut self, interface: &str, packets: u64) -> Self {
        let begin = format!("{interface}: ");
        wait::until_ok(|| {
            let before = self.said.len();
            self.asked(" received, ");
            wait::until_asleep(self.child.id(), |_| true);
            while !self.err.buffer().is_empty() || wait::unread(self.err.get_ref()) > 0 {
                let read = self.err.read_line(&mut self.said);
                read.expect("a pipe can be read");
            }
            let answer = &self.said[before..];
            let (mut received, mut known) = (0, 0);
            for line in answer.lines().filter_map(|line| line.strip_prefix(&begin)) {
                let words = line.split(", ").map(|part| part.split(' ').next());
                let mut counts = words.filter_map(|word| word?.parse::<u64>().ok());
                received += counts.next().unwrap_or(0);
                known += counts.sum::<u64>();
            }
            if [received, known] == [packets; 2] {
                Ok(())
            } else {
                Err(format!("{packets} of {answer}"))
            }
        });
        self
    }

    /// Whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        let ended = self.child.try_wait();
        ended.expect("a child can be waited for").is_some()
    }

    /// Next line on standard output.
    pub fn line(&mut self) -> String {
        let mut line = Vec::new();
        let out = self.child.stdout.as_mut().expect("it is a pipe");
        let mut byte = [0];
        while byte != *b"\n" && out.read(&mut byte).expect("a pipe can be read") == 1 {
            line.push(byte[0]);
        }
        String::from_utf8(line).expect("weir writes text")
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end of the process, at most a minute, and collects its output.
    pub fn done(mut self) -> Done {
        let (id, (ends, ended)) = (self.child.id(), channel::<()>());
        std::thread::spawn(move || {
            if ended.recv_timeout(Duration::from_secs(60)) == Err(RecvTimeoutError::Timeout) {
                tool("kill", ["-9", &id.to_string()]);
            }
        });
        let mut out = Vec::new();
        self.child
            .stdout
            .take()
            .expect("taken once")
            .read_to_end(&mut out)
            .expect("a pipe can be read");
        self.err
            .read_to_string(&mut self.said)
            .expect("a pipe can be read");
        drop(ends);
        let code = self.child.wait().expect("a child can be waited for").code();
        Done {
            code,
            out,
            err: std::mem::take(&mut self.said),
        }
    }

    /// Ends the process by a signal, and waits at most a minute for its end before its standard output is read. Packets
    /// sent before have arrived by then.
    pub fn stop_unread(mut self) -> Done {
        wait::until_handed_on();
        self.signal("-TERM");
        wait::until("the end that the signal asks for", || self.has_ended());
        self.done()
    }

    /// Interrupts the process, and waits for its end. Packets sent before have arrived by then; the kernel may take a
    /// moment.
    pub fn stop(self) -> Done {
        wait::until_handed_on();
        self.signal("-INT");
        self.done()
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // No signal after the wait: another process may have the number by then.
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}
