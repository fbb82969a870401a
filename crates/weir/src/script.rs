//! `--script`: a Lua program steers a sender, by the requests that its control socket takes.
//!
//! The program runs in a thread of its own and never sees a packet. It has no way to files, to other programs or to the network.

#[cfg(feature = "lua")]
mod lua;

use crate::outcome::{io_words, say};
use crate::watch::messages::Lines;
use anyhow::bail;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use weir_engine::name::Name;
use weir_engine::steering::Remote;

/// Longest script, bytes.
const LONGEST: u64 = 1 << 20;

/// Longest wait for a script that begins. Instructions are bounded, so that it does not last so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Longest wait without a look at the stop flag.
const LOOK: Duration = Duration::from_millis(20);

/// Ways out of a script: its requests, and the lines that it prints while there is a screen.
type Ways = (Arc<Remote>, Option<Arc<Lines>>);

/// A script that was read.
#[derive(Clone, Debug)]
pub struct Script {
    name: String,
    #[cfg_attr(
        not(feature = "lua"),
        allow(dead_code, reason = "no script runs without Lua")
    )]
    text: String,
    has_failed: Arc<AtomicBool>,
}

impl Script {
    /// Reads a script. **Errors**: it cannot be read, has an error of syntax, or this weir has no Lua.
    pub fn read(name: &Name) -> anyhow::Result<Self> {
        if cfg!(not(feature = "lua")) {
            bail!(
                "--script {name}: this weir was built without Lua: make install builds it with the cargo feature lua"
            );
        }
        let mut text = String::new();
        let read = File::open(Path::new(name))
            .and_then(|file| file.take(LONGEST + 1).read_to_string(&mut text));
        match read {
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                bail!("--script {name}: no text")
            }
            Err(error) => bail!("--script {name}: {}", io_words(&error)),
            Ok(_) if text.len() as u64 > LONGEST => bail!("--script {name}: longer than 1 MiB"),
            Ok(_) => {}
        }
        let script = Self {
            name: name.text(),
            text,
            has_failed: Arc::default(),
        };
        #[cfg(feature = "lua")]
        lua::check(&script).map_err(anyhow::Error::msg)?;
        Ok(script)
    }

    /// Whether it ended with an error.
    pub fn has_failed(&self) -> bool {
        self.has_failed.load(Ordering::Relaxed)
    }

    /// Starts the script in a thread of its own, and returns when it waits for the first time, or has ended: orders until then are in force
    /// before the first packet. If it fails, the sender ends.
    /// What it prints goes to `printed`, if there is a screen.
    pub fn start(self, remote: Arc<Remote>, printed: Option<Arc<Lines>>) -> Running {
        let is_over = Arc::new(AtomicBool::new(false));
        let (waits, first_wait) = mpsc::channel();
        let over = Arc::clone(&is_over);
        let stop = Arc::clone(&remote.stop);
        let thread = std::thread::spawn(move || {
            let stop = Arc::clone(&remote.stop);
            // The sender begins when the last of them is dropped, and then it knows that it is to stop.
            let begins = waits.clone();
            if let Err(why) = self.run((remote, printed), over, waits) {
                say(&why);
                self.has_failed.store(true, Ordering::Relaxed);
                stop.store(true, Ordering::Relaxed);
            }
            drop(begins);
        });
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until
            && !stop.load(Ordering::Relaxed)
            && first_wait.recv_timeout(LOOK) == Err(RecvTimeoutError::Timeout)
        {}
        Running {
            is_over,
            thread: Some(thread),
        }
    }

    #[cfg(feature = "lua")]
    fn run(
        &self,
        ways: Ways,
        over: Arc<AtomicBool>,
        waits: mpsc::Sender<()>,
    ) -> Result<(), String> {
        lua::run(self, ways, over, waits)
    }

    #[cfg(not(feature = "lua"))]
    fn run(&self, _: Ways, _: Arc<AtomicBool>, _: mpsc::Sender<()>) -> Result<(), String> {
        Err(format!("{}: this weir was built without Lua", self.name))
    }
}

/// A script that runs. If the value is dropped, the script ends.
#[derive(Debug)]
pub struct Running {
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
