//! Writing to any descriptor, which a stop signal can end.
//!
//! A pipe without a reader, a terminal held with ^S, and a FIFO that no program opens would keep a
//! thread in `write` or `open` for ever. A signal just before such a call does not interrupt it.
//! This module therefore never waits in `write` or `open`. For room, it waits in `poll`, together
//! with the descriptor that the stop signals make readable (see
//! [`stop_on_signals`](super::stop_on_signals)). In a process that handles signals itself, it asks
//! at intervals whether to go on (see [`interrupt_waits_by`](super::interrupt_waits_by)).
//! O_NONBLOCK would have the same effect, but is a property of the open file, which an inherited
//! descriptor shares with other processes. The module sets it only on files that it opens itself:
//! a terminal is opened once more, because `poll` reports room on it for one byte, and a `write` of
//! more waits for the rest.

use crate::reserve::{Reserve, Watch};
use std::fs::File;
use std::io::{self, IsTerminal, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::OnceLock;
use std::time::Duration;

/// Longest wait, after the first stop signal, for an output that has no room.
const PATIENCE: Duration = Duration::from_millis(500);

/// Interval at which a wait asks whether it is interrupted.
const LOOK: Duration = Duration::from_millis(100);

/// Descriptor to write to.
///
/// **Errors** of writing, in addition to errors of the system: `TimedOut` if there is no room, and
/// a stop signal has arrived or the wait is interrupted. **Cost**: one system call per write, if
/// there is room.
#[derive(Debug)]
pub struct Writer<F> {
    fd: F,
    /// The same terminal, opened once more with O_NONBLOCK, if it is one.
    terminal: Option<&'static File>,
    /// Whether the descriptor is a file or a disk, which takes bytes without a reader and has no `poll`.
    storage: bool,
    /// Watch over the free space of the disk, for a regular file.
    watch: Option<Watch>,
    /// Whether the kernel can write as much as there is room for, without a wait (RWF_NOWAIT): pipes since Linux 6.4, sockets.
    nowait: bool,
    /// Contents of an earlier file, which the first write replaces.
    earlier: Option<Earlier>,
}

/// Contents of a file that is to be replaced.
#[derive(Clone, Copy, Debug)]
struct Earlier {
    /// Bytes that they take of the disk.
    bytes: u64,
    reserve: Reserve,
}

impl<F: AsFd> Writer<F> {
    /// Creates a writer to `fd`, whose flags stay unchanged.
    pub fn new(fd: F) -> Self {
        let kind = kind_of(fd.as_fd());
        let storage = matches!(kind, Some(libc::S_IFREG | libc::S_IFBLK));
        let watch = (kind == Some(libc::S_IFREG)).then(Watch::default);
        let terminal = (kind == Some(libc::S_IFCHR))
            .then(|| terminal(fd.as_fd()))
            .flatten();
        Self {
            fd,
            terminal,
            storage,
            watch,
            nowait: true,
            earlier: None,
        }
    }

    /// Sets the disk space that stays free. A regular file is written no further than that.
    #[must_use]
    pub fn keeping(mut self, reserve: Reserve) -> Self {
        self.watch = self.watch.map(|_| Watch::new(reserve));
        self.earlier = self.earlier.map(|earlier| Earlier { reserve, ..earlier });
        self
    }

    /// Whether the file has contents of before that no write has replaced yet.
    pub fn has_earlier(&self) -> bool {
        self.earlier.is_some()
    }

    /// Whether a first write of `bytes` would leave the reserve free.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.earlier.is_none_or(|earlier| {
            earlier
                .reserve
                .check(&self.fd, earlier.bytes, bytes)
                .is_ok()
        })
    }

    /// Removes the earlier contents, if `bytes` have room then. **Errors**: `StorageFull` if not; the file stays as it is.
    #[cold]
    fn replace(&mut self, earlier: Earlier, bytes: usize) -> io::Result<()> {
        earlier.reserve.check(&self.fd, earlier.bytes, bytes)?;
        File::from(self.fd.as_fd().try_clone_to_owned()?).set_len(0)?;
        self.earlier = None;
        Ok(())
    }

    /// Returns the descriptor.
    pub fn get_ref(&self) -> &F {
        &self.fd
    }

    /// Removes the last `bytes` written bytes from a file, unless another process has written after them.
    pub fn take_back(&self, bytes: u64) -> io::Result<()> {
        let mut file = File::from(self.fd.as_fd().try_clone_to_owned()?);
        let about = file.metadata()?;
        let end = if about.is_file() {
            file.stream_position()?
        } else {
            return Ok(());
        };
        if bytes == 0 || about.len() != end {
            return Ok(());
        }
        let whole = end.saturating_sub(bytes);
        file.set_len(whole)?;
        file.seek(SeekFrom::Start(whole)).map(drop)
    }
}

impl Writer<File> {
    /// Creates the file `path`; a FIFO or device is opened as by [`Self::create`]. **Errors**: `AlreadyExists` if a file or a
    /// link to one has the name.
    pub fn create_new(path: &Path) -> io::Result<Self> {
        let mut options = File::options();
        match options.write(true).create_new(true).mode(0o600).open(path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && !is_taken(path) => {
                Self::create(path, Reserve::Bytes(0))
            }
            result => result.map(Self::new),
        }
    }

    /// Cuts the file at this length; one of which nothing is written stays as it is.
    pub fn cut(&self, len: u64) -> io::Result<()> {
        if self.earlier.is_some() {
            Ok(())
        } else {
            self.fd.set_len(len)
        }
    }

    /// Creates the file `path`, or opens it: the first write replaces its contents. For the reader of a FIFO, the function waits until a stop signal comes or
    /// the wait is interrupted. **Errors**, also of the first write: `StorageFull` if a file is there, and without it too little would be
    /// free for another beyond the reserve; the file stays as it is.
    pub fn create(path: &Path, reserve: Reserve) -> io::Result<Self> {
        /// Interval between two attempts to open a FIFO.
        const TURN: Duration = Duration::from_millis(50);
        loop {
            let mut options = File::options();
            // Packets are private, so only the owner may read the file.
            options
                .write(true)
                .create(true)
                .mode(0o600)
                .custom_flags(libc::O_NONBLOCK);
            match options.open(path) {
                Err(error) if error.raw_os_error() == Some(libc::ENXIO) && is_fifo(path) => {}
                result => {
                    let file = result?;
                    let earlier = earlier(&file, reserve)?;
                    return Ok(Self {
                        earlier,
                        ..Self::new(file)
                    });
                }
            }
            let mut asked = [stop_event()];
            let stopped = poll(&mut asked, Some(TURN))? && asked[0].revents != 0;
            if stopped || super::interruption().is_some_and(|is_interrupted| is_interrupted()) {
                return Err(io::Error::new(
                    io::ErrorKind::TimedOut,
                    "no program has opened it for reading",
                ));
            }
        }
    }
}

impl<F: AsFd> Write for Writer<F> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(earlier) = self.earlier {
            self.replace(earlier, bytes.len())?;
        }
        let fd = self.terminal.map_or(self.fd.as_fd(), AsFd::as_fd);
        if let Some(watch) = &mut self.watch {
            watch.take(fd, bytes.len())?;
        }
        if self.storage {
            return plain(fd, bytes);
        }
        loop {
            let result = if self.nowait {
                at_once(fd, bytes)
            } else {
                // If `poll` reports room, there is room for this many bytes, unless another process takes it first.
                wait(fd)?;
                plain(fd, &bytes[..bytes.len().min(libc::PIPE_BUF)])
            };
            match result {
                Err(error) => match error.raw_os_error() {
                    Some(libc::EAGAIN) => wait(fd)?,
                    // The call waited after all, and a signal interrupted it; the next `wait` decides whether that ends the
                    // writing.
                    Some(libc::EINTR) => {}
                    Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EINVAL) if self.nowait => {
                        self.nowait = false
                    }
                    _ => return Err(error),
                },
                Ok(written) => return Ok(written),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The contents of a regular file. **Errors**: `StorageFull` if without them there were no room for new ones.
fn earlier(file: &File, reserve: Reserve) -> io::Result<Option<Earlier>> {
    let about = file.metadata()?;
    if !about.is_file() || about.len() == 0 {
        return Ok(None);
    }
    // Blocks of 512 bytes, whatever those of the file system are (stat(2)).
    let bytes = about.blocks().saturating_mul(512);
    reserve.check(file, bytes, 0)?;
    Ok(Some(Earlier { bytes, reserve }))
}

/// Returns the S_IF value of the open file.
fn kind_of(fd: BorrowedFd<'_>) -> Option<libc::mode_t> {
    let mut about = MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the pointer is to a live local, and zero is a valid stat.
    let (done, about) = unsafe {
        (
            libc::fstat(fd.as_raw_fd(), about.as_mut_ptr()),
            about.assume_init(),
        )
    };
    (done == 0).then_some(about.st_mode & libc::S_IFMT)
}

/// Returns whether a regular file, or a link that leads to no FIFO, device or directory, has this name.
pub fn is_taken(path: &Path) -> bool {
    path.symlink_metadata().is_ok() && path.metadata().map_or(true, |about| about.is_file())
}

/// Standard output and standard error, opened once more if they are terminals.
static TERMINALS: OnceLock<[Option<File>; 2]> = OnceLock::new();

/// Opens the terminals of standard output and standard error once more, so that no write to them waits. The process calls this before
/// it is confined; a terminal that it may not open is written as it is.
pub fn open_terminals() {
    TERMINALS.get_or_init(|| {
        [io::stdout().as_fd(), io::stderr().as_fd()].map(|fd| {
            let mut options = File::options();
            options
                .write(true)
                .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
            let path = format!("/proc/self/fd/{}", fd.as_raw_fd());
            fd.is_terminal().then(|| options.open(path).ok()).flatten()
        })
    });
}

/// A standard descriptor's terminal, opened once more.
fn terminal(fd: BorrowedFd<'_>) -> Option<&'static File> {
    let [out, err] = TERMINALS.get()?;
    match fd.as_raw_fd() {
        libc::STDOUT_FILENO => out.as_ref(),
        libc::STDERR_FILENO => err.as_ref(),
        _ => None,
    }
}

fn is_fifo(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|about| about.file_type().is_fifo())
}

fn plain(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    // SAFETY: the bytes live through the call.
    let written = unsafe { libc::write(fd.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// Writes as many bytes as there is room for. **Errors**: `EAGAIN` if there is no room; `EOPNOTSUPP` if the kernel does not
/// support the flag.
fn at_once(fd: BorrowedFd<'_>, bytes: &[u8]) -> io::Result<usize> {
    let part = libc::iovec {
        iov_base: bytes.as_ptr().cast_mut().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: one live vector of live bytes, which the call only reads. With offset -1, it writes at the file position, as
    // `write` does.
    let written =
        unsafe { libc::pwritev2(fd.as_raw_fd(), &raw const part, 1, -1, libc::RWF_NOWAIT) };
    usize::try_from(written).map_err(|_| io::Error::last_os_error())
}

/// Returns the `poll` entry of the descriptor that a stop signal makes readable.
fn stop_event() -> libc::pollfd {
    libc::pollfd {
        fd: super::stop_event(),
        events: libc::POLLIN,
        revents: 0,
    }
}

/// Waits until there is room, or an error that the next write will return.
fn wait(fd: BorrowedFd<'_>) -> io::Result<()> {
    let interruption = super::interruption();
    let room = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLOUT,
        revents: 0,
    };
    loop {
        let left = super::since_stop().map(|time| PATIENCE.saturating_sub(time));
        let mut asked = [room, stop_event()];
        if left.is_some() {
            // The descriptor stays readable from now on, so it is not polled any more.
            asked[1].fd = -1;
        }
        let ready = poll(&mut asked, left.or(interruption.map(|_| LOOK)))?;
        if asked[0].revents != 0 {
            return Ok(());
        }
        if !ready && left.is_some_and(|left| left.is_zero()) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "not read fast enough to take the rest within half a second of a signal",
            ));
        }
        if interruption.is_some_and(|is_interrupted| is_interrupted()) {
            return Err(io::Error::new(
                io::ErrorKind::TimedOut,
                "interrupted while its reader took nothing",
            ));
        }
    }
}

/// Polls; returns whether a descriptor became ready or a signal came within this time.
fn poll(asked: &mut [libc::pollfd], time: Option<Duration>) -> io::Result<bool> {
    // The time is rounded up, because a wait of zero would poll without a pause.
    let time = time.map_or(-1, |time| {
        time.as_micros().div_ceil(1000).min(60_000) as libc::c_int
    });
    // SAFETY: the entries are live, and their number is correct; `poll` ignores negative descriptors.
    let ready = unsafe { libc::poll(asked.as_mut_ptr(), asked.len() as libc::nfds_t, time) };
    if ready >= 0 {
        return Ok(ready > 0);
    }
    match io::Error::last_os_error() {
        error if error.kind() == io::ErrorKind::Interrupted => Ok(true),
        error => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::process::{Command, Stdio};
    use weir_testkit::ScratchFile;

    fn flags(fd: BorrowedFd<'_>) -> libc::c_int {
        // SAFETY: a command without an argument.
        unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_GETFL) }
    }

    #[test]
    fn all_bytes_arrive_however_they_are_read_and_flags_stay() {
        let bytes: Vec<u8> = (0..1_000_000).map(|i| (i / 3) as u8).collect();
        for nowait in [true, false] {
            let (mut pipe_in, pipe_out) = io::pipe().unwrap();
            let (mut socket_in, socket_out) = UnixStream::pair().unwrap();
            let before = (flags(pipe_out.as_fd()), flags(socket_out.as_fd()));
            let mut pipe = Writer {
                nowait,
                ..Writer::new(pipe_out)
            };
            let mut socket = Writer {
                nowait,
                ..Writer::new(socket_out)
            };
            std::thread::scope(|scope| {
                let read = |from: &mut dyn Read| {
                    let mut got = Vec::new();
                    from.read_to_end(&mut got).unwrap();
                    got
                };
                let (a, b) = (
                    scope.spawn(move || read(&mut pipe_in)),
                    scope.spawn(move || read(&mut socket_in)),
                );
                pipe.write_all(&bytes).unwrap();
                socket.write_all(&bytes).unwrap();
                assert_eq!(
                    (
                        flags(pipe.get_ref().as_fd()),
                        flags(socket.get_ref().as_fd())
                    ),
                    before
                );
                drop((pipe, socket));
                assert!(
                    a.join().unwrap() == bytes && b.join().unwrap() == bytes,
                    "nowait: {nowait}"
                );
            });
        }
    }

    #[test]
    fn a_reader_that_goes_away_is_a_broken_pipe() {
        for nowait in [true, false] {
            let (from, to) = io::pipe().unwrap();
            let mut writer = Writer {
                nowait,
                ..Writer::new(to)
            };
            writer.write_all(&[0; 4096]).unwrap();
            drop(from);
            assert_eq!(
                writer.write_all(&[0; 100]).unwrap_err().kind(),
                io::ErrorKind::BrokenPipe
            );
        }
    }

    #[test]
    fn files_are_made_emptied_and_written() {
        let scratch = ScratchFile::empty("writer");
        let path = &scratch.0;
        for text in ["first and longer", "second"] {
            Writer::create(path, Reserve::default())
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
            assert_eq!(std::fs::read_to_string(path).unwrap(), text);
        }
        assert_eq!(
            Writer::create(Path::new("/no/such/folder"), Reserve::default())
                .unwrap_err()
                .kind(),
            io::ErrorKind::NotFound
        );
        assert_eq!(
            Writer::create(&std::env::temp_dir(), Reserve::default())
                .unwrap_err()
                .kind(),
            io::ErrorKind::IsADirectory
        );
    }

    #[test]
    fn a_fifo_is_opened_once_it_is_read() {
        let scratch = ScratchFile::empty("fifo");
        let path = &scratch.0;
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
        std::thread::scope(|scope| {
            let writing = scope.spawn(|| {
                Writer::create(path, Reserve::default())
                    .unwrap()
                    .write_all(b"through a fifo")
                    .unwrap()
            });
            let read = Command::new("cat")
                .arg(path)
                .stdout(Stdio::piped())
                .output()
                .unwrap();
            writing.join().unwrap();
            assert_eq!(read.stdout, b"through a fifo");
        });
    }
}
