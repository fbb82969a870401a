//! Receivers: whole processes that capture until interrupted, and print their counts.

use super::net::{Group, Net};
use crate::heavy;
use crate::language::Programs;
use crate::measured;
use crate::rivals::{children_cpu, path};
use anyhow::{Context, bail, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::io::{BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};
use weir_io::live::Backend;
use weir_io::sys::{packet_socket, stop_on_signals, xdp};
use weir_io::{Input, Kind};

/// First argument that makes this program a receiver.
pub const WORD: &str = "receive";

/// Memory of every receiver for waiting packets, KiB.
pub const RING_KIB: usize = 32 << 10;

/// A program that captures from interface `near`.
#[derive(Clone, Debug)]
pub struct Receiver {
    /// Name for the tables.
    pub name: String,
    words: Vec<String>,
    /// Text on standard error once the program captures.
    ready: &'static str,
    /// Words after the number of captured packets, and after that of lost ones.
    says: [&'static str; 2],
    /// Whether the program warms up, and enters its group after that.
    warms_up: bool,
    /// Longest time that packets may wait before the program gets them.
    linger: Duration,
    /// Output file of the program.
    pub file: Option<PathBuf>,
}

/// Result of a capture.
#[derive(Debug)]
pub struct Got {
    /// Packets that the program counted.
    pub packets: u64,
    /// Packets lost for lack of room, as the program reports.
    pub dropped: u64,
    /// Processor time of the program from start to end, s.
    pub cpu: f64,
    /// Standard output.
    pub out: String,
}

impl Receiver {
    fn weir(name: &str, binary: &Path, words: &[&str], says: &'static str) -> Self {
        let ring = format!("{RING_KIB}k");
        let words = [&[path(binary)], words, &["--ring", &ring]].concat();
        Self {
            name: name.to_owned(),
            words: words.into_iter().map(str::to_owned).collect(),
            ready: "AF_PACKET",
            says: [says, " dropped"],
            warms_up: false,
            linger: Duration::from_millis(100),
            file: None,
        }
    }

    /// `weir measure near --sketch heavy --workers 1`.
    pub fn measure(binary: &Path) -> Self {
        let words = [
            "measure",
            "near",
            "--sketch",
            "heavy",
            "--workers",
            "1",
            "--json",
        ];
        Self::weir("weir measure, heavy", binary, &words, " measured")
    }

    /// `weir filter '' near -w FILE`.
    pub fn filter(binary: &Path, file: &Path) -> Self {
        let name = if file == Path::new("/dev/null") {
            "weir filter '' -w /dev/null"
        } else {
            "weir filter '' -w FILE"
        };
        let mut weir = Self::weir(
            name,
            binary,
            &["filter", "", "near", "-w", path(file)],
            " matched",
        );
        weir.file = Some(file.to_owned());
        weir
    }

    /// The same from the source `from`.
    pub fn filter_from(binary: &Path, from: &str) -> Self {
        let mut weir = Self::weir(
            "weir filter",
            binary,
            &["filter", "", from, "-w", "/dev/null"],
            " matched",
        );
        weir.name = format!("weir filter '' {from} -w /dev/null");
        weir.ready = if from.starts_with("af_xdp:") {
            "AF_XDP"
        } else {
            weir.ready
        };
        weir
    }

    /// `Live.java`, which warms up and then counts packets of the source `from`.
    pub fn java(programs: &Programs, from: &str) -> Self {
        let mut java = programs.jvm(&["-Xmx128m", "-XX:+UseSerialGC"], "Live", &[]);
        java.arg(from).arg((RING_KIB << 10).to_string());
        let words = std::iter::once(java.get_program()).chain(java.get_args());
        Self {
            name: format!("Java, {from}"),
            words: words
                .map(|word| word.to_string_lossy().into_owned())
                .collect(),
            ready: "ready",
            says: [" matched", " dropped"],
            warms_up: true,
            linger: Duration::from_millis(100),
            file: None,
        }
    }

    /// `tcpdump -i near -w FILE`, with `snaplen` bytes of each packet if that is given.
    pub fn tcpdump(file: &Path, snaplen: Option<u32>) -> Self {
        let kib = RING_KIB.to_string();
        let mut words = [
            "tcpdump",
            "-Z",
            "root",
            "-n",
            "-i",
            "near",
            "-B",
            &kib,
            "-w",
            path(file),
        ]
        .map(str::to_owned)
        .to_vec();
        let target = if file == Path::new("/dev/null") {
            "/dev/null"
        } else {
            "FILE"
        };
        let mut name = format!("tcpdump -w {target}");
        if let Some(snaplen) = snaplen {
            words.extend(["-s".to_owned(), snaplen.to_string()]);
            name += &format!(" -s {snaplen}");
        }
        Self {
            name,
            words,
            ready: "listening on",
            says: [" packets captured", " packets dropped by kernel"],
            warms_up: false,
            // The kernel hands blocks over to tcpdump after a second.
            linger: Duration::from_millis(1100),
            file: Some(file.to_owned()),
        }
    }

    /// This program as a receiver, see [`serve`].
    pub fn ours(backend: &str) -> anyhow::Result<Self> {
        let us = std::env::current_exe()?;
        Ok(Self {
            name: backend.to_owned(),
            words: [path(&us), WORD, backend].map(str::to_owned).to_vec(),
            ready: "ready",
            says: [" measured", " dropped"],
            warms_up: false,
            linger: Duration::from_millis(100),
            file: None,
        })
    }

    /// Starts the program on processor `cpu`, and returns once it waits for packets.
    pub fn start(
        &self,
        net: &Net,
        cpu: usize,
        group: Option<&Group>,
    ) -> anyhow::Result<Running<'_>> {
        let before = children_cpu();
        let mut command = net.command("near", cpu, group.filter(|_| !self.warms_up), &self.words);
        let mut child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let err = BufReader::new(child.stderr.take().context("it is a pipe")?);
        let mut running = Running {
            receiver: self,
            child,
            err,
            said: String::new(),
            before,
        };
        while !running.said.contains(self.ready) {
            ensure!(
                running.err.read_line(&mut running.said)? > 0,
                "{} ended: {}",
                self.name,
                running.said
            );
        }
        if let Some(group) = group.filter(|_| self.warms_up) {
            group.enter(running.child.id())?;
        }
        running.settle()?;
        Ok(running)
    }
}

/// A receiver that runs. Dropping the handle ends it.
#[derive(Debug)]
pub struct Running<'a> {
    receiver: &'a Receiver,
    child: Child,
    err: BufReader<ChildStderr>,
    said: String,
    before: Duration,
}

impl Running<'_> {
    /// Processor time so far.
    fn cpu(&self) -> anyhow::Result<Duration> {
        let mut ns = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let text = std::fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            ns += text
                .split(' ')
                .next()
                .and_then(|word| word.parse::<u64>().ok())
                .unwrap_or(0);
        }
        Ok(Duration::from_nanos(ns))
    }

    /// Waits until the program is idle.
    fn settle(&self) -> anyhow::Result<()> {
        const LOOK: Duration = Duration::from_millis(100);
        const IDLE: Duration = Duration::from_millis(2);
        let (begun, mut last) = (Instant::now(), self.cpu()?);
        loop {
            std::thread::sleep(LOOK);
            let now = self.cpu()?;
            if now.saturating_sub(last) < IDLE {
                return Ok(());
            }
            ensure!(
                begun.elapsed() < Duration::from_secs(30),
                "{} does not come to rest",
                self.receiver.name
            );
            last = now;
        }
    }

    /// Waits until the program has processed the packets that arrived.
    pub fn work_off(&self) -> anyhow::Result<()> {
        std::thread::sleep(self.receiver.linger);
        self.settle()
    }

    /// Interrupts the program, and reads its counts.
    pub fn done(mut self) -> anyhow::Result<Got> {
        kill(Pid::from_raw(self.child.id() as i32), Signal::SIGINT)?;
        let mut out = String::new();
        self.child
            .stdout
            .take()
            .context("taken once")?
            .read_to_string(&mut out)?;
        self.err.read_to_string(&mut self.said)?;
        let status = self.child.wait()?;
        let cpu = (children_cpu() - self.before).as_secs_f64();
        ensure!(
            status.success(),
            "{} failed: {}",
            self.receiver.name,
            self.said
        );
        let [packets, dropped] = self
            .receiver
            .says
            .map(|word| number_before(&self.said, word));
        let told = || format!("{} said: {}", self.receiver.name, self.said);
        Ok(Got {
            packets: packets.with_context(told)?,
            dropped: dropped.with_context(told)?,
            cpu,
            out,
        })
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        if let Ok(None) = self.child.try_wait() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

/// The number before a word; blanks may group its digits.
fn number_before(text: &str, word: &str) -> Option<u64> {
    let before = &text[..text.find(word)?];
    let grouped = |c: char| c.is_ascii_digit() || c == ' ';
    let digits: String = before[before.trim_end_matches(grouped).len()..]
        .chars()
        .filter(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

/// The process of [`Receiver::ours`]: a backend, flow keys and `heavy`, until a signal comes.
pub fn serve(arguments: &[String]) -> anyhow::Result<()> {
    let memory = RING_KIB << 10;
    let backend: Box<dyn Backend> = match arguments {
        [name] if name == "AF_PACKET" => {
            let settings = packet_socket::Settings {
                snaplen: 512,
                ..packet_socket::Settings::of_size(memory)
            };
            Box::new(packet_socket::Ring::open("near", &settings)?)
        }
        [name] if name == "AF_XDP" => {
            Box::new(xdp::open("near", 0, &xdp::Settings::of_size(memory))?)
        }
        _ => bail!("{WORD} AF_PACKET|AF_XDP"),
    };
    let stop = Arc::new(AtomicBool::new(false));
    stop_on_signals(Arc::clone(&stop));
    let input = Input::live("near", backend, &stop);
    if let Kind::Live(live) = &input.kind {
        eprintln!("ready: {}", live.backend().describe());
    }
    let mut run = measured::run(heavy::settings(), "");
    let measured = measured::capture(&mut run, vec![input], &mut |_| {})?
        .remove(0)
        .report;
    if let Some(fault) = &measured.fault {
        bail!("{}", fault.what);
    }
    let finished = run.finish(&mut |_| {})?;
    eprintln!(
        "{} measured, {} dropped",
        finished.processed,
        measured.live.map_or(0, |counts| counts.dropped)
    );
    let first = finished
        .state
        .as_ref()
        .and_then(|state| state.table(0, 1).rows.first().copied());
    println!(
        "{}",
        serde_json::json!({"top": [{"packets": first.map_or(0, |row| row.counts.packets)}]})
    );
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::number_before;

    #[test]
    fn numbers_are_read_as_the_programs_print_them() {
        let weir = "near: AF_PACKET\n120 received, 8 099 measured, 0 filtered, 21 dropped, 3.1 s (0.0 Mpps)\n";
        assert_eq!(
            [" measured", " dropped", " matched"].map(|word| number_before(weir, word)),
            [Some(8099), Some(21), None]
        );
        let tcpdump =
            "17 packets captured\n20 packets received by filter\n3 packets dropped by kernel\n";
        assert_eq!(
            number_before(tcpdump, " packets dropped by kernel"),
            Some(3)
        );
    }
}
