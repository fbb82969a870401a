//! Programs that run for files: `--on-trigger` of a recording, `-z` of other outputs; and for findings: `--on-finding`.
//!
//! Once the sandbox is in force, this process can start no program. So another process of weir,
//! which parses no packets, is started before them. It gives up all capabilities and the system
//! calls that no program for a file needs (`walls::calls`), which its programs inherit. It reads
//! the arguments of each run from a socket, runs the program for one file after the other, and
//! answers each run with a byte. If the first process ends, the socket does. What a program prints
//! becomes lines of weir on standard error: standard output is for packets and answers.

use crate::numbers::counted;
use crate::outcome::{Outcome, io_words, say};
use crate::walls::{self, Walls};
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
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel,
};
use std::thread::Builder;
use std::time::Duration;
use weir_engine::name::Name;
use weir_io::sys;

/// Name by which weir starts itself as the process that runs programs.
pub const ROLE: &str = "run-for-files";

/// Flag of the command line that names a program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flag {
    /// `--on-trigger PROGRAM`: runs with a saved file and the cause.
    OnTrigger,
    /// `-z PROGRAM`: runs with a complete file.
    Finished,
    /// `--on-finding PROGRAM`: runs with the state of a finding, and the finding as JSON.
    OnFinding,
}

impl Flag {
    /// Flag as typed.
    pub fn text(self) -> &'static str {
        match self {
            Self::OnTrigger => "--on-trigger",
            Self::Finished => "-z",
            Self::OnFinding => "--on-finding",
        }
    }

    /// Number of arguments of the program.
    fn arguments(self) -> usize {
        match self {
            Self::OnTrigger | Self::OnFinding => 2,
            Self::Finished => 1,
        }
    }

    /// Word for the cause of a run.
    fn cause(self) -> &'static str {
        match self {
            Self::OnTrigger | Self::Finished => "file",
            Self::OnFinding => "finding",
        }
    }

    /// Flag with this text.
    pub fn of(text: &OsStr) -> Option<Self> {
        [Self::OnTrigger, Self::Finished, Self::OnFinding]
            .into_iter()
            .find(|flag| text == flag.text())
    }
}

/// End of an argument in the socket: none can hold this byte.
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

/// The process that runs a program for files.
pub struct Programs {
    child: Child,
    /// The socket, until the threads that use it take it.
    socket: Option<UnixStream>,
    /// The thread that writes to the socket, which may be full, and the end of the one that reads the answers; once there is a file.
    feeder: Option<(SyncSender<Vec<u8>>, Receiver<()>)>,
    /// Number of files for which the program runs, and of files for which it does not run.
    files: u64,
    refused: u64,
    /// Whether runs continue for which weir no longer waits.
    is_left: bool,
    runs: Arc<Runs>,
    flag: Flag,
    program: Name,
}

impl Programs {
    /// Starts the process, with the rights of the user whose files are written. **Errors**: there is no such program.
    pub fn start(flag: Flag, program: &Name, walls: &Walls) -> anyhow::Result<Self> {
        check(flag, program)?;
        let own = std::env::current_exe().context("the path of weir")?;
        let failed = |error: io::Error| anyhow!("{} {program}: {}", flag.text(), io_words(&error));
        let (socket, there) = UnixStream::pair().map_err(failed)?;
        let mut command = Command::new(own);
        // Ctrl-C on a terminal is for the first process; the programs for its last files still run.
        command
            .arg(ROLE)
            .arg(flag.text())
            .arg(program)
            .stdin(OwnedFd::from(there))
            .stdout(Stdio::null())
            .process_group(0);
        if let Some((user, group)) = walls.user() {
            command.uid(user).gid(group);
        }
        let child = command.spawn().map_err(failed)?;
        let program = program.clone();
        Ok(Self {
            child,
            socket: Some(socket),
            feeder: None,
            files: 0,
            refused: 0,
            is_left: false,
            runs: Arc::default(),
            flag,
            program,
        })
    }

    /// Counts of the runs.
    pub fn runs(&self) -> Arc<Runs> {
        Arc::clone(&self.runs)
    }

    /// Has the program run for a file, and does not wait; `cause` is the second argument of [`Flag::OnTrigger`]. **Errors**: a
    /// message, if the program is too slow or the process is gone.
    pub fn run(&mut self, path: &Path, cause: &str) -> Result<(), String> {
        let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
        let arguments = [path.as_os_str().as_bytes(), cause.as_bytes()];
        self.run_with(arguments, &Name::from(&*path).to_string())
    }

    /// Has the program run with these arguments, as many as its flag gives it, and does not wait. `about` names the cause in messages.
    /// **Errors**: a message, if the program is too slow or the process is gone.
    pub fn run_with(&mut self, arguments: [&[u8]; 2], about: &str) -> Result<(), String> {
        let (flag, program) = (self.flag.text(), &self.program);
        let failed = |why: &str| format!("{flag} {program}: {why}: it does not run for {about}");
        if let Some(socket) = self.socket.take() {
            self.feeder = Some(
                serve_socket(socket, Arc::clone(&self.runs))
                    .map_err(|error| failed(&io_words(&error)))?,
            );
        }
        let Some((sender, _)) = &self.feeder else {
            return Ok(());
        };
        let mut message = Vec::new();
        for argument in arguments.into_iter().take(self.flag.arguments()) {
            message.extend_from_slice(argument);
            message.push(END);
        }
        if let Err(error) = sender.try_send(message) {
            self.refused += 1;
            return Err(match error {
                TrySendError::Full(_) => failed("it is too slow"),
                TrySendError::Disconnected(_) => failed("the process that runs it is gone"),
            });
        }
        self.files += 1;
        Ok(())
    }
}

impl Programs {
    /// Waits for the programs of the last files, for some seconds. Returns the number of files for
    /// which the program failed or did not run, and that of all files. A run that has not ended by
    /// then is not a failure.
    pub fn end(&mut self) -> (u64, u64) {
        self.socket = None;
        if let Some((sender, answered)) = self.feeder.take() {
            drop(sender);
            if answered.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                let left = self
                    .files
                    .saturating_sub(self.runs.ran.load(Ordering::Relaxed));
                say(&format!(
                    "{} {}: not waited for any longer; runs that have not ended: {left}",
                    self.flag.text(),
                    self.program
                ));
                self.is_left = true;
            }
        }
        (
            self.runs.failed.load(Ordering::Relaxed) + self.refused,
            self.files + self.refused,
        )
    }

    /// Message on files for which the program has not run, or not with success.
    pub fn failed_line(&self, (failed, files): (u64, u64)) -> String {
        format!(
            "{} {}: it did not succeed for {failed} of {}",
            self.flag.text(),
            self.program,
            counted(files, self.flag.cause())
        )
    }
}

/// Begins the threads that write files to the socket, and count the answers. The receiver ends with the answers.
fn serve_socket(
    mut socket: UnixStream,
    runs: Arc<Runs>,
) -> io::Result<(SyncSender<Vec<u8>>, Receiver<()>)> {
    let (sender, files) = sync_channel::<Vec<u8>>(WAITING);
    let (answering, answered) = channel();
    let answers = socket.try_clone()?;
    Builder::new()
        .name("weir-programs".to_owned())
        .spawn(move || {
            files
                .into_iter()
                .try_for_each(|file| socket.write_all(&file))
                .unwrap_or(());
            let _ = socket.shutdown(Shutdown::Write);
        })?;
    Builder::new()
        .name("weir-programs".to_owned())
        .spawn(move || {
            let _answering = answering;
            for answer in BufReader::new(answers).bytes().map_while(Result::ok) {
                runs.ran.fetch_add(1, Ordering::Relaxed);
                runs.failed
                    .fetch_add(u64::from(answer != SUCCEEDED), Ordering::Relaxed);
            }
        })?;
    Ok((sender, answered))
}

/// Refuses what cannot be run.
fn check(flag: Flag, program: &Name) -> anyhow::Result<()> {
    let flag = flag.text();
    let is_program = |about: &Metadata| about.is_file() && about.permissions().mode() & 0o111 != 0;
    let path = Path::new(program);
    if path.as_os_str().as_bytes().contains(&b'/') {
        match path.metadata() {
            Ok(about) if is_program(&about) => Ok(()),
            Ok(_) => {
                bail!("{flag} {program}: it is not a file that can be run: chmod +x {program}")
            }
            Err(error) => bail!("{flag} {program}: {}", io_words(&error)),
        }
    } else {
        let directories = std::env::var_os("PATH").unwrap_or_default();
        let mut found = std::env::split_paths(&directories)
            .filter_map(|directory| directory.join(path).metadata().ok());
        if found.any(|about| is_program(&about)) {
            Ok(())
        } else {
            bail!("{flag} {program}: no such program")
        }
    }
}

impl Drop for Programs {
    /// Waits for the programs of the last files, for some seconds.
    fn drop(&mut self) {
        self.end();
        if !self.is_left {
            // The process ends at the end of its socket, and tells failures itself.
            let _ = self.child.wait();
        }
    }
}

/// Runs the program with the arguments on standard input, a socket, until its end, and answers there.
pub fn serve(flag: Flag, program: &OsStr) -> Outcome {
    sys::keep_child_status();
    let named = format!("{} {}", flag.text(), Name::from(program));
    if let Err(why) = walls::confine_programs() {
        say(&format!(
            "{named}: not run, because its rights cannot be limited: {why}"
        ));
        return Outcome::Failed;
    }
    let mut answers = io::stdin()
        .as_fd()
        .try_clone_to_owned()
        .map(UnixStream::from)
        .ok();
    let mut input = io::stdin().lock();
    let mut outcome = Outcome::Done;
    while let Some(arguments) = next(&mut input, flag.arguments()) {
        let failure = match run_once(&named, program, &arguments) {
            Ok(status) if status.success() => None,
            Ok(status) => Some(status.to_string()),
            Err(error) => Some(io_words(&error)),
        };
        let answer = [if failure.is_some() { FAILED } else { SUCCEEDED }];
        if let (Some(failure), Some(path)) = (failure, arguments.first()) {
            say(&format!("{named}: {failure}: {}", Name::from(&**path)));
            outcome = Outcome::Failed;
        }
        // A first process that has ended reads no answers; the program runs for the other files all the same.
        let _ = answers.as_mut().map(|answers| answers.write_all(&answer));
    }
    outcome
}

/// Runs the program once, and prints what it prints.
fn run_once(named: &str, program: &OsStr, arguments: &[OsString]) -> io::Result<ExitStatus> {
    /// Longest wait for the rest of the output of a program that has ended. Processes that it left behind may hold the pipe.
    const REST: Duration = Duration::from_millis(200);
    let (from, to) = io::pipe()?;
    let mut command = Command::new(program);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(to.try_clone()?)
        .stderr(to);
    let mut child = command.spawn()?;
    // The pipe ends once the program has closed it: this process must not hold it open.
    drop(command);
    let (printing, printed) = channel::<()>();
    let named = named.to_owned();
    Builder::new()
        .name("weir-programs".to_owned())
        .spawn(move || {
            let _printing = printing;
            print_lines(&named, BufReader::new(from));
        })?;
    let status = child.wait()?;
    let _ = printed.recv_timeout(REST);
    Ok(status)
}

/// Prints the lines of a program on standard error, each with the flag and the name of the program. Reads on when it prints
/// no more, so that the program goes on.
fn print_lines(named: &str, mut output: impl BufRead) {
    /// Largest number of lines printed of a run.
    const LINES: u64 = 100;
    /// Largest number of bytes printed of a line.
    const BYTES: u64 = 1000;
    let (mut lines, mut line) = (0u64, Vec::new());
    while output
        .by_ref()
        .take(BYTES)
        .read_until(b'\n', &mut line)
        .is_ok_and(|read| read > 0)
    {
        let text =
            String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(&line)).replace('\t', " ");
        if lines < LINES && !text.trim().is_empty() {
            say(&format!("{named}: {text}"));
        }
        lines += 1;
        line.clear();
    }
    if lines > LINES {
        say(&format!("{named}: printed {} lines more", lines - LINES));
    }
}

/// Reads the next `count` arguments; `None` at the end.
fn next(input: &mut impl BufRead, count: usize) -> Option<Vec<OsString>> {
    let mut part = || {
        let mut bytes = Vec::new();
        input.read_until(END, &mut bytes).ok()?;
        (bytes.pop() == Some(END)).then(|| OsStr::from_bytes(&bytes).to_owned())
    };
    (0..count).map(|_| part()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_come_in_groups() {
        let mut input = &b"/a b\0tcp\0/\xff\0\0/half\0wi"[..];
        assert_eq!(next(&mut input, 2), Some(vec!["/a b".into(), "tcp".into()]));
        assert_eq!(
            next(&mut input, 2),
            Some(vec![OsStr::from_bytes(b"/\xff").to_owned(), "".into()])
        );
        assert_eq!(next(&mut input, 2), None);
        assert_eq!(next(&mut &b"/a\0/b"[..], 1), Some(vec!["/a".into()]));
    }
}
