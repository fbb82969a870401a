//! Panics of the screen and of the run: the terminal is as before, and the run ends.

use super::figures::Figures;
use super::{save, session, settings::Settings};
use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::net::IpAddr;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use weir_engine::zone::Zone;
use weir_messages::viewing::Facts;
use weir_screen::Look;
use weir_testkit::{Scratch, skipped, wait};
use weir_view::{Ask, Snapshot};

/// Name of the variable that says which thread of the child panics.
const WHO: &str = "WEIR_TEST_PANICS";

/// Figures that panic after some pictures, if the screen is to panic.
#[derive(Debug)]
struct Wrong {
    panics: bool,
    asked: AtomicU32,
}

impl Figures for Wrong {
    fn facts(&self) -> Facts {
        Facts::default()
    }

    fn snapshot(&self, _: &Ask) -> Option<Snapshot> {
        let asked = self.asked.fetch_add(1, Ordering::Relaxed);
        assert!(!self.panics || asked < 2, "the screen panics");
        None
    }

    fn names(&self, _: Vec<IpAddr>) -> HashMap<IpAddr, String> {
        HashMap::new()
    }
}

/// A process with a screen, in which a thread panics; in a test run by itself, it does nothing.
#[test]
fn child() {
    let Ok(who) = std::env::var(WHO) else { return };
    let figures = Arc::new(Wrong {
        panics: who == "screen",
        asked: AtomicU32::new(0),
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
            directory: ".".into(),
            origin: Err("there are none"),
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
    let shown = Arc::clone(&figures);
    let running = session::start(&start, opened, shown, (None, &stop));
    let running = running.expect("the screen begins");
    if who == "run" {
        wait::until("the screen is drawn", || {
            figures.asked.load(Ordering::Relaxed) > 0
        });
        panic!("the run panics");
    }
    wait::until("the run is stopped", || stop.load(Ordering::Relaxed));
    println!("the run was stopped");
    let _ = running.finish();
}

#[test]
fn a_panic_gives_the_terminal_back_and_ends_the_run() {
    let test = "a_panic_gives_the_terminal_back_and_ends_the_run";
    if Command::new("script").arg("--version").output().is_err() {
        return skipped(test, "script is not there");
    }
    let own = std::env::current_exe().expect("this test has a file");
    for who in ["screen", "run"] {
        let scratch = Scratch::new();
        let [before, after] = ["before", "after"].map(|name| scratch.path().join(name));
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
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("script can be run");
        let keys = child.stdin.take();
        let mut text = Vec::new();
        let out = child.stdout.as_mut().expect("it is piped");
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
    }
}
