//! The process that lists sockets and their processes, for tables of processes.
//!
//! Once the sandbox is in force, this process sees no other process's files. So another process of weir, which parses no packets, is
//! started before that. It opens the lists of sockets, keeps the two capabilities by which files of other processes are seen, and
//! gives up all else. It answers each byte on a socket with a list, until the socket ends.

use crate::outcome::{Outcome, io_words, say};
use crate::walls;
use anyhow::Context;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};
use weir_engine::sockets::{Lister, MOST_BYTES, Sockets};
use weir_io::sys;
use weir_measure::owners::Owners;

/// Name by which weir starts itself as the process that lists sockets.
pub const ROLE: &str = "list-sockets";

/// Shortest time between two lists.
const PAUSE: Duration = Duration::from_millis(250);

/// Time between two lists over the time that one takes: a fiftieth of a processor lists.
const REST: u32 = 50;

/// The process that lists sockets.
pub struct Processes {
    child: Child,
    /// The socket, until the thread that uses it takes it.
    socket: Option<UnixStream>,
    /// Ends the thread when it is dropped, after a last list.
    end: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    owners: Arc<Owners>,
}

impl Processes {
    /// Starts the process, for the namespaces of these interfaces, and waits for its first list.
    pub fn start<'a>(
        interfaces: impl Iterator<Item = &'a str>,
        owners: Arc<Owners>,
    ) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("the path of weir")?;
        let (mut socket, there) = UnixStream::pair()?;
        let mut command = Command::new(own);
        command
            .arg(ROLE)
            .args(interfaces)
            .stdin(OwnedFd::from(there))
            .stdout(Stdio::null())
            .process_group(0);
        let child = command.spawn().context("the process that lists sockets")?;
        drop(command);
        let first = ask(&mut socket);
        let started = Self {
            child,
            socket: Some(socket),
            end: None,
            thread: None,
            owners,
        };
        first
            .context("--key process: the sockets of this host cannot be listed")?
            .teach(&started.owners);
        Ok(started)
    }

    /// Begins the thread that asks for lists.
    pub fn begin(&mut self) -> io::Result<()> {
        let Some(socket) = self.socket.take() else {
            return Ok(());
        };
        let (end, ended) = channel();
        let owners = Arc::clone(&self.owners);
        self.end = Some(end);
        let thread = Builder::new()
            .name("weir-processes".to_owned())
            .spawn(move || keep(socket, &owners, &ended))?;
        self.thread = Some(thread);
        Ok(())
    }

    /// Waits for a last list, so that the answer knows all sockets that are still open.
    pub fn end(&mut self) {
        self.end = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Asks for lists until the end, and for a last one.
fn keep(mut socket: UnixStream, owners: &Owners, ended: &Receiver<()>) {
    let (mut pause, mut has_ended) = (PAUSE, false);
    while !has_ended {
        has_ended = ended.recv_timeout(pause) != Err(RecvTimeoutError::Timeout);
        let begun = Instant::now();
        match ask(&mut socket) {
            Ok(list) => list.teach(owners),
            Err(error) => {
                let words = io_words(&error);
                return say(&format!(
                    "--key process: {words}: sockets that are made from now on have no process"
                ));
            }
        }
        pause = PAUSE.max(begun.elapsed() * REST);
    }
}

impl Drop for Processes {
    fn drop(&mut self) {
        // The process ends with the socket.
        self.socket = None;
        self.end();
        let _ = self.child.wait();
    }
}

/// Asks for a list.
fn ask(socket: &mut UnixStream) -> io::Result<Sockets> {
    socket.write_all(&[0])?;
    let mut length = [0; 4];
    socket.read_exact(&mut length)?;
    let length = u32::from_le_bytes(length) as usize;
    let mut bytes = vec![0; length.min(MOST_BYTES)];
    socket.read_exact(&mut bytes)?;
    Ok(Sockets::of(&bytes))
}

/// Answers each byte on standard input, a socket, with a list, until the socket ends.
pub fn serve(interfaces: impl Iterator<Item = String>) -> Outcome {
    match lists(&interfaces.collect::<Vec<_>>()) {
        Ok(()) => Outcome::Done,
        Err(why) => {
            say(&format!("--key process: {why}"));
            Outcome::Failed
        }
    }
}

fn lists(interfaces: &[String]) -> Result<(), String> {
    sys::keep_child_status();
    let words = |error: io::Error| io_words(&error);
    let interfaces = interfaces.iter().map(String::as_str);
    let mut lister = Lister::open(interfaces).map_err(|error| error.to_string())?;
    walls::confine_lists()?;
    let socket = io::stdin().as_fd().try_clone_to_owned().map_err(words)?;
    let mut socket = UnixStream::from(socket);
    let mut asked = [0];
    while matches!(socket.read(&mut asked), Ok(1)) {
        let bytes = lister.list().map_err(words)?.to_bytes();
        let length = (bytes.len() as u32).to_le_bytes();
        // Who asks may have ended.
        if socket.write_all(&length).is_err() || socket.write_all(&bytes).is_err() {
            break;
        }
    }
    Ok(())
}
