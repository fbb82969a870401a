//! A program that runs for each saved file.
//!
//! Once the walls stand, this process can start no program. So another process of weir, which parses no packets, is started before
//! them. It reads paths and causes from a pipe, and runs the program for one after the other. If the recorder ends, the pipe does.

use crate::outcome::{Outcome, io_words, say};
use crate::walls::Walls;
use anyhow::{Context, anyhow};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufRead, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::thread::{Builder, JoinHandle};
use weir_engine::name::Name;

/// Name by which weir starts itself as the process that runs programs.
pub const ROLE: &str = "run-for-saved-files";

/// End of a path and of a cause in the pipe: neither can hold this byte.
const END: u8 = 0;

/// Largest number of files for which the program has still to run.
const WAITING: usize = 1000;

/// The process that runs programs.
pub(super) struct Hook {
    child: Child,
    /// The pipe, until the thread that writes to it takes it.
    pipe: Option<ChildStdin>,
    /// The thread that writes to the pipe, which may be full, once there is a file.
    feeder: Option<(SyncSender<Vec<u8>>, JoinHandle<()>)>,
    program: Name,
}

impl Hook {
    /// Starts the process, with the rights of the user who records.
    pub fn start(program: &Name, walls: &Walls) -> anyhow::Result<Self> {
        let own = std::env::current_exe().context("the path of weir")?;
        let mut command = Command::new(own);
        // Ctrl-C on a terminal is for the recorder; the programs for its last files still run.
        command.arg(ROLE).arg(program).stdin(Stdio::piped()).process_group(0);
        if let Some((user, group)) = walls.user() {
            command.uid(user).gid(group);
        }
        let mut child = command.spawn().map_err(|error| anyhow!("--on-trigger {program}: {}", io_words(&error)))?;
        let pipe = child.stdin.take();
        Ok(Self { child, pipe, feeder: None, program: program.clone() })
    }

    /// Has the program run for a file, and does not wait. **Errors**: a message, if the program is too slow or the process is gone.
    pub fn run(&mut self, path: &Path, cause: &str) -> Result<(), String> {
        let failed =
            |why: &str| format!("--on-trigger {}: {why}: it does not run for {}", self.program, Name::from(path));
        if let Some(mut pipe) = self.pipe.take() {
            let (sender, files) = sync_channel::<Vec<u8>>(WAITING);
            let feed = move || files.into_iter().try_for_each(|file| pipe.write_all(&file)).unwrap_or(());
            let thread = Builder::new().name("weir-hook".to_owned()).spawn(feed);
            self.feeder = Some((sender, thread.map_err(|error| failed(&io_words(&error)))?));
        }
        let Some((sender, _)) = &self.feeder else { return Ok(()) };
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let parts = [path.as_os_str().as_bytes(), &[END], cause.as_bytes(), &[END]];
        sender.try_send(parts.concat()).map_err(|error| match error {
            TrySendError::Full(_) => failed("it is too slow"),
            TrySendError::Disconnected(_) => failed("the process that runs it is gone"),
        })
    }
}

impl Drop for Hook {
    /// Waits for the programs of the last files.
    fn drop(&mut self) {
        self.pipe = None;
        if let Some((sender, thread)) = self.feeder.take() {
            drop(sender);
            let _ = thread.join();
        }
        // The process ends at the end of its pipe, and tells its failures itself.
        let _ = self.child.wait();
    }
}

/// Runs the program for each path and cause on standard input, until its end.
pub fn serve(program: &OsStr) -> Outcome {
    let mut input = io::stdin().lock();
    let mut outcome = Outcome::Done;
    while let Some([path, cause]) = next(&mut input) {
        let done = Command::new(program).arg(&path).arg(&cause).stdin(Stdio::null()).status();
        let failure = match done {
            Ok(status) if status.success() => continue,
            Ok(status) => status.to_string(),
            Err(error) => io_words(&error),
        };
        say(&format!("--on-trigger {}: {failure}", Name::from(program)));
        outcome = Outcome::Failed;
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
