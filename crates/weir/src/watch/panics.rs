//! Panics of the screen and of the run: the terminal is as before, the run ends, and a file that is being written has whole packets.

use super::figures::Figures;
use super::{save, session, settings::Settings};
use std::collections::HashMap;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use weir_engine::name::Name;
use weir_engine::zone::Zone;
use weir_measure::Counts;
use weir_messages::viewing::Facts;
use weir_screen::Look;
use weir_testkit::savefile::Pcap;
use weir_testkit::{Scratch, have, wait};
use weir_view::{Ask, Snapshot, Totals};

/// Names of the variables that say which thread of the child panics, and in which directory it writes a file until then.
const WHO: &str = "WEIR_TEST_PANICS";
const WHERE: &str = "WEIR_TEST_PANICS_IN";

/// Time of all packets, ns since 1970.
const BEGIN_NS: i64 = 1_700_000_000_000_000_000;

/// Figures that panic once a file is being written, if the screen is to panic.
#[derive(Debug)]
struct Wrong {
    directory: PathBuf,
    panics: bool,
    windows: AtomicU64,
}

impl Wrong {
    /// The file that is being written, once it has packets.
    fn written(directory: &Path) -> Option<PathBuf> {
        let files = directory.read_dir().expect("it can be read");
        let mut paths = files.map(|file| file.expect("it can be read").path());
        paths.find(|path| {
            path.extension() == Some(OsStr::new("pcapng"))
                && path.metadata().is_ok_and(|about| about.len() > 100_000)
        })
    }
}

impl Figures for Wrong {
    fn facts(&self) -> Facts {
        let is_time = self.panics && Self::written(&self.directory).is_some();
        assert!(!is_time, "the screen panics");
        Facts {
            windows: self.windows.fetch_add(1, Ordering::Relaxed),
            ..Facts::default()
        }
    }

    fn snapshot(&self, ask: &Ask) -> Option<Snapshot> {
        Some(Snapshot {
            span: ask.span,
            from_ns: BEGIN_NS,
            to_ns: BEGIN_NS + 1_000_000_000,
            is_last: true,
            neighbours: [None; 2],
            restarts: 0,
            windows: 1,
            untimed: Counts::default(),
            totals: Totals::default(),
            tables: Vec::new(),
            points: Vec::new(),
            health: None,
            findings: Vec::new(),
        })
    }

    fn names(&self, _: Vec<IpAddr>) -> HashMap<IpAddr, String> {
        HashMap::new()
    }
}

/// Writes packets without an end, until nobody reads them.
fn packets_without_end(pipe: PathBuf) {
    let mut pipe = File::create(pipe).expect("it is a pipe");
    let mut file = Pcap::with(1, 65535, false, true);
    while pipe.write_all(&file.bytes).is_ok() {
        file.bytes.clear();
        file.stamped(BEGIN_NS, &[2; 600]);
    }
}

/// A process with a screen, in which a thread panics; in a test run by itself, it does nothing.
#[test]
fn child() {
    let Ok(who) = std::env::var(WHO) else { return };
    let directory = PathBuf::from(std::env::var_os(WHERE).expect("the parent names it"));
    let pipe = directory.join("pipe");
    let source = pipe.clone();
    std::thread::spawn(move || packets_without_end(pipe));
    let figures = Arc::new(Wrong {
        panics: who == "screen",
        directory: directory.clone(),
        windows: AtomicU64::new(0),
    });
    let start = session::Start {
        filter: String::new(),
        is_live: true,
        look: Look::default(),
        asks_background: false,
        settings: Settings::default(),
        at: None,
        notice: None,
        can_read_again: false,
        saves: save::Settings {
            directory: directory.clone(),
            origin: Ok(save::Origin {
                sources: vec![Name::from(source.as_path())],
                is_record: false,
                recorder: None,
            }),
            inner: None,
            utc: true,
        },
    };
    let opened = session::Opened {
        names: weir_filter::Names::default(),
        geo: None,
        zone: Zone::new(true),
        keyboard: File::open("/dev/tty").expect("there is a terminal"),
    };
    let stop = Arc::<AtomicBool>::default();
    let running = session::start(&start, opened, figures, (None, &stop));
    let running = running.expect("the screen begins");
    if who == "run" {
        wait::until("a file is written", || Wrong::written(&directory).is_some());
        panic!("the run panics");
    }
    wait::until("the run is stopped", || stop.load(Ordering::Relaxed));
    println!("the run was stopped");
    let _ = running.finish();
}

/// Reads a terminal until it shows some text.
fn read_until(from: &mut impl Read, all: &mut Vec<u8>, text: &str) {
    let mut bytes = [0; 4096];
    while !String::from_utf8_lossy(all).contains(text) {
        let read = from.read(&mut bytes).expect("the terminal can be read");
        let shown = String::from_utf8_lossy(all);
        assert!(read > 0, "{text} is not in {shown}");
        all.extend_from_slice(&bytes[..read]);
    }
}

#[test]
fn a_panic_gives_the_terminal_back_and_ends_the_run() {
    let test = "a_panic_gives_the_terminal_back_and_ends_the_run";
    if !have(test, &["script", "tcpdump", "mkfifo"]) {
        return;
    }
    let own = std::env::current_exe().expect("this test has a file");
    for who in ["screen", "run"] {
        let scratch = Scratch::new();
        let [before, after] = ["before", "after"].map(|name| scratch.path().join(name));
        let directory = scratch.path().join("saved");
        std::fs::create_dir(&directory).expect("it can be made");
        let made = Command::new("mkfifo").arg(directory.join("pipe")).status();
        assert!(made.expect("it is there").success());
        let line = format!(
            "stty rows 24 cols 80; stty -a >{}; {WHO}={who} {} --exact watch::panics::child --nocapture; echo code=$?; stty -a >{}",
            before.display(),
            own.display(),
            after.display(),
        );
        let mut child = Command::new("script")
            .args(["-qefc", &line, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm")
            .env(WHERE, &directory)
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script can be run");
        let mut keys = child.stdin.take().expect("it is piped");
        let mut text = Vec::new();
        let out = child.stdout.as_mut().expect("it is piped");
        for (shown, key) in [("\u{1b}[?1049h", "w"), ("all packets", "\r")] {
            read_until(out, &mut text, shown);
            keys.write_all(key.as_bytes())
                .expect("the terminal takes it");
        }
        out.read_to_end(&mut text)
            .expect("the terminal can be read");
        drop(keys);
        child.wait().expect("it has ended");
        let text = String::from_utf8_lossy(&text);
        assert!(text.contains(&format!("the {who} panics")), "{text}");
        assert!(text.contains("code=101"), "{text}");
        assert_eq!(text.contains("the run was stopped"), who == "screen");
        let (_, left) = text
            .rsplit_once("\u{1b}[?1049l")
            .expect("the screen is left");
        assert!(!left.contains("\u{1b}[?1049h"), "{text}");
        let [before, after] = [before, after].map(|path| std::fs::read_to_string(path).unwrap());
        assert_eq!(before, after, "{who}");
        let file = Wrong::written(&directory).expect("it is there");
        let read = Command::new("tcpdump")
            .args(["--count", "-r"])
            .arg(file)
            .output();
        let read = read.expect("tcpdump can be run");
        assert!(read.status.success(), "{who}: {read:?}");
    }
}
