//! A program that runs for each saved file.
//!
//! Once the walls stand, this process can start no program. So another process of weir, which parses no packets, is started before
//! them. It reads paths and causes from a socket, runs the program for one after the other, and answers each run with a byte. If the
//! recorder ends, the socket does.

use crate::outcome::{Outcome, io_words, say};
use crate::walls::Walls;
use anyhow::{Context, anyhow, bail};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::thread::Builder;
use std::time::Duration;
use weir_engine::name::Name;

/// Name by which weir starts itself as the process that runs programs.
pub const ROLE: &str = "run-for-saved-files";

/// End of a path and of a cause in the socket: neither can hold this byte.
const END: u8 = 0;

/// Largest number of files for which the program has still to run.
const WAITING: usize = 1000;

/// Longest wait at the end for the programs of the last files.
const PATIENCE: Duration = Duration::from_secs(5);

/// Answers of the process to a run of the program.
const SUCCEEDED: u8 = 0;
const FAILED: u8 = 1;

/// Runs of the program that have ended.
#[derive(Debug, Default)]
pub struct Runs {
    /// Number of runs.
    pub ran: AtomicU64,
    /// Number of runs that failed.
    pub failed: AtomicU64,
}

/// The process that runs programs.
pub(super) struct Hook {
    child: Child,
    /// The socket, until the threads that use it take it.
    socket: Option<UnixStream>,
    /// The thread that writes to the socket, which may be full, and the end of the one that reads the answers; once there is a file.
    feeder: Option<(SyncSender<Vec<u8>>, Receiver<()>)>,
    /// Number of files that the program runs for.
    files: u64,
    runs: Arc<Runs>,
    program: Name,
}

impl Hook {
    /// Starts the process, with the rights of the user who records. **Errors**: there is no such program.
    pub fn start(program: &Name, walls: &Walls) -> anyhow::Result<Self> {
        check(program)?;
        let own = std::env::current_exe().context("the path of weir")?;
        let failed = |error: io::Error| anyhow!("--on-trigger {program}: {}", io_words(&error));
        let (socket, there) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(own);
        // Ctrl-C on a terminal is for the recorder; the programs for its last files still run.
        command.arg(ROLE).arg(program).stdin(OwnedFd::from(there)).process_group(0);
        if let Some((user, group)) = walls.user() {
            command.uid(user).gid(group);
        }
        let child = command.spawn().map_err(failed)?;
        let program = program.clone();
        Ok(Self { child, socket: Some(socket), feeder: None, files: 0, runs: Arc::default(), program })
    }

    /// Counts of the runs.
    pub fn runs(&self) -> Arc<Runs> {
        Arc::clone(&self.runs)
    }

    /// Has the program run for a file, and does not wait. **Errors**: a message, if the program is too slow or the process is gone.
    pub fn run(&mut self, path: &Path, cause: &str) -> Result<(), String> {
        let failed =
            |why: &str| format!("--on-trigger {}: {why}: it does not run for {}", self.program, Name::from(path));
        if let Some(socket) = self.socket.take() {
            self.feeder =
                Some(serve_socket(socket, Arc::clone(&self.runs)).map_err(|error| failed(&io_words(&error)))?);
        }
        let Some((sender, _)) = &self.feeder else { return Ok(()) };
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let parts = [path.as_os_str().as_bytes(), &[END], cause.as_bytes(), &[END]];
        sender.try_send(parts.concat()).map_err(|error| match error {
            TrySendError::Full(_) => failed("it is too slow"),
            TrySendError::Disconnected(_) => failed("the process that runs it is gone"),
        })?;
        self.files += 1;
        Ok(())
    }
}

/// Begins the threads that write files to the socket, and count the answers. The receiver ends with the answers.
fn serve_socket(mut socket: UnixStream, runs: Arc<Runs>) -> io::Result<(SyncSender<Vec<u8>>, Receiver<()>)> {
    let (sender, files) = sync_channel::<Vec<u8>>(WAITING);
    let (answering, answered) = channel();
    let answers = socket.try_clone()?;
    Builder::new().name("weir-hook".to_owned()).spawn(move || {
        files.into_iter().try_for_each(|file| socket.write_all(&file)).unwrap_or(());
        let _ = socket.shutdown(Shutdown::Write);
    })?;
    Builder::new().name("weir-hook".to_owned()).spawn(move || {
        let _answering = answering;
        for answer in BufReader::new(answers).bytes().map_while(Result::ok) {
            runs.ran.fetch_add(1, Ordering::Relaxed);
            runs.failed.fetch_add(u64::from(answer != SUCCEEDED), Ordering::Relaxed);
        }
    })?;
    Ok((sender, answered))
}

/// Refuses what cannot be run.
fn check(program: &Name) -> anyhow::Result<()> {
    let is_program = |about: &Metadata| about.is_file() && about.permissions().mode() & 0o111 != 0;
    let path = Path::new(program);
    if path.as_os_str().as_bytes().contains(&b'/') {
        match path.metadata() {
            Ok(about) if is_program(&about) => Ok(()),
            Ok(_) => bail!("--on-trigger {program}: it is no file that can be run"),
            Err(error) => bail!("--on-trigger {program}: {}", io_words(&error)),
        }
    } else {
        let directories = std::env::var_os("PATH").unwrap_or_default();
        let mut found =
            std::env::split_paths(&directories).filter_map(|directory| directory.join(path).metadata().ok());
        if found.any(|about| is_program(&about)) { Ok(()) } else { bail!("--on-trigger {program}: no such program") }
    }
}

impl Drop for Hook {
    /// Waits for the programs of the last files, for some seconds.
    fn drop(&mut self) {
        self.socket = None;
        if let Some((sender, answered)) = self.feeder.take() {
            drop(sender);
            if answered.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let left = self.files.saturating_sub(self.runs.ran.load(Ordering::Relaxed));
                say(&format!(
                    "--on-trigger {}: not waited for any longer; runs that have not ended: {left}",
                    self.program
                ));
                return;
            }
        }
        // The process ends at the end of its socket, and tells failures itself.
        let _ = self.child.wait();
    }
}

/// Runs the program for each path and cause on standard input, a socket, until its end, and answers there.
pub fn serve(program: &OsStr) -> Outcome {
    let mut answers = io::stdin().as_fd().try_clone_to_owned().map(UnixStream::from).ok();
    let mut input = io::stdin().lock();
    let mut outcome = Outcome::Done;
    while let Some([path, cause]) = next(&mut input) {
        let done = Command::new(program).arg(&path).arg(&cause).stdin(Stdio::null()).status();
        let failure = match done {
            Ok(status) if status.success() => None,
            Ok(status) => Some(status.to_string()),
            Err(error) => Some(io_words(&error)),
        };
        let answer = [if failure.is_some() { FAILED } else { SUCCEEDED }];
        if let Some(failure) = failure {
            say(&format!("--on-trigger {}: {failure}: {}", Name::from(program), Name::from(&*path)));
            outcome = Outcome::Failed;
        }
        // A recorder that has ended reads no answers; the program runs for the other files all the same.
        let _ = answers.as_mut().map(|answers| answers.write_all(&answer));
    }
    outcome
}

/// The next path and cause; `None` at the end.
fn next(input: &mut impl BufRead) -> Option<[OsString; 2]> {
    let mut part = || {
        let mut bytes = Vec::new();
        input.read_until(END, &mut bytes).ok()?;
        (bytes.pop() == Some(END)).then(|| OsStr::from_bytes(&bytes).to_owned())
    };
    Some([part()?, part()?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_and_causes_come_in_pairs() {
        let mut input = &b"/a b\0tcp\0/\xff\0\0/half\0wi"[..];
        assert_eq!(next(&mut input), Some(["/a b".into(), "tcp".into()]));
        assert_eq!(next(&mut input), Some([OsStr::from_bytes(b"/\xff").to_owned(), "".into()]));
        assert_eq!(next(&mut input), None);
    }
}
