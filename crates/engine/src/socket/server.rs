//! The process that takes requests.

use super::Error;
use super::place::SocketFile;
use super::protocol::{
    LONGEST_REQUEST, Line, WriteFrames, check_members, error_line, ok_line, parse_request,
    read_line, take_version, version_value,
};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{self, BufReader, Write};
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_io::sys::{local, privilege};
use weir_pipeline::threads::{caught, spawn};

/// Interval at which a subscription looks for the end of its client and of the server.
const LOOK: Duration = Duration::from_millis(100);

/// Function that writes the bytes of a stream. A flush sends what was written, and fails once the client has gone, also if nothing
/// was written: a function that works long without output flushes from time to time.
pub type WriteBytes = Box<dyn FnOnce(&mut dyn Write) -> io::Result<()> + Send>;

/// Takes requests.
pub trait Handler: Send + Sync + 'static {
    /// Returns the reply to a request, which is a JSON object. The function is called in the thread of the connection, so that
    /// several calls run at the same time.
    fn request(&self, request: Value) -> Reply;
}

impl<F: Fn(Value) -> Reply + Send + Sync + 'static> Handler for F {
    fn request(&self, request: Value) -> Reply {
        self(request)
    }
}

/// Replies to a request.
#[non_exhaustive]
pub enum Reply {
    /// The request is in force: `{"ok":VALUE}`.
    Done(Value),
    /// The request is refused: `{"error":"TEXT"}`.
    Refused(String),
    /// The request subscribes: `{"ok":VALUE}`, then a further `ok` line for each value that `lines` gives. The connection ends when
    /// the sender of `lines` is dropped; `lines` is dropped when the client has gone.
    Subscribed {
        /// Value of the first line.
        first: Value,
        /// Values of the further lines.
        lines: Receiver<Value>,
    },
    /// The answer is a stream of bytes: `{"ok":VALUE}`, then frames. The connection ends with the stream.
    Stream {
        /// Value of the first line.
        first: Value,
        /// Writer of the bytes, called in the thread of the connection.
        write: WriteBytes,
    },
}

impl core::fmt::Debug for Reply {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Done(value) => f.debug_tuple("Done").field(value).finish(),
            Self::Refused(text) => f.debug_tuple("Refused").field(text).finish(),
            Self::Subscribed { first, .. } => f.debug_tuple("Subscribed").field(first).finish(),
            Self::Stream { first, .. } => f.debug_tuple("Stream").field(first).finish(),
        }
    }
}

/// Bounds of a server.
#[derive(Clone, Copy, Debug)]
pub struct Settings {
    /// Largest number of connections. At the limit, the connection that has waited longest for a
    /// request ends.
    pub connections: usize,
    /// Time that a connection may wait for a request before it can be ended for a new one.
    pub idle: Duration,
    /// Largest number of streams of bytes at a time; further requests for a stream are refused.
    pub streams: usize,
    /// Longest wait for a client that does not read an answer.
    pub patience: Duration,
    /// Longest wait for a client that does not read a stream.
    pub stream_patience: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            connections: 64,
            idle: Duration::from_secs(1),
            streams: 8,
            patience: Duration::from_secs(10),
            stream_patience: Duration::from_secs(600),
        }
    }
}

/// Control socket that takes requests. If the value is dropped, it [stops](Server::stop).
///
/// **Threads**: one accepts connections, and there is one for each connection.
#[derive(Debug)]
pub struct Server {
    shared: Arc<Shared>,
    /// The listening socket; `None` after the stop.
    listener: Option<UnixListener>,
    place: SocketFile,
}

/// State that the threads share.
struct Shared {
    handler: Box<dyn Handler>,
    settings: Settings,
    /// Whether requests of all users are taken.
    is_open: bool,
    /// Connections that were ended because their clients did not read.
    unread: AtomicU64,
    stopped: AtomicBool,
    /// Number of streams under way.
    streams: AtomicUsize,
    open: Mutex<Open>,
    /// Signals that a connection has ended.
    ended: Condvar,
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Shared")
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Open connections by number.
#[derive(Default)]
struct Open {
    connections: BTreeMap<u64, Connection>,
    /// Number of the next connection.
    next: u64,
}

struct Connection {
    stream: UnixStream,
    /// Time since which the connection waits for a request; `None` while it works on one.
    idle: Option<Instant>,
}

/// Control socket whose requests wait. If the value is dropped, the socket is removed.
#[derive(Debug)]
pub struct Bound {
    listener: UnixListener,
    place: SocketFile,
    path: PathBuf,
    /// Whether the mode of the file alone says who may connect.
    is_open: bool,
    is_shared: bool,
}

impl Bound {
    /// Makes the socket `path`. A socket that a dead process left is replaced.
    ///
    /// **Errors**: [`Error::InUse`] if a process listens there; [`Error::NoSocket`] if the file is none; errors of the system.
    pub fn new(path: impl AsRef<Path>) -> Result<Self, Error> {
        Self::make(path.as_ref(), None, false)
    }

    /// Makes the socket `path` for requests that only look, with mode 0660 for a group, if there is one; else with mode 0600. Users who may
    /// open the file may ask. **Errors**: as [`Self::new`].
    pub fn new_shared(path: impl AsRef<Path>, group: Option<u32>) -> Result<Self, Error> {
        Self::make(path.as_ref(), group, true)
    }

    fn make(path: &Path, group: Option<u32>, is_open: bool) -> Result<Self, Error> {
        let (listener, place, is_shared) = SocketFile::listen(path, group)?;
        Ok(Self {
            listener,
            place,
            path: path.to_owned(),
            is_open,
            is_shared,
        })
    }

    /// Whether the group may connect: this user is in it, or is root.
    pub fn is_shared(&self) -> bool {
        self.is_shared
    }

    /// Returns the path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Begins to take requests, in threads.
    pub fn serve(self, settings: Settings, handler: impl Handler) -> Result<Server, Error> {
        let Self {
            listener,
            place,
            path,
            is_open,
            is_shared: _,
        } = self;
        let failed = |error| Error::Io {
            path: path.clone(),
            error,
        };
        let shared = Arc::new(Shared {
            handler: Box::new(handler),
            settings,
            is_open,
            unread: AtomicU64::new(0),
            stopped: AtomicBool::new(false),
            streams: AtomicUsize::new(0),
            open: Mutex::default(),
            ended: Condvar::new(),
        });
        let accepting = listener.try_clone();
        let server = Server {
            shared: Arc::clone(&shared),
            listener: Some(listener),
            place,
        };
        let accepting = accepting.map_err(failed)?;
        spawn("control socket", 0, move || shared.accept(&accepting)).map_err(failed)?;
        Ok(server)
    }
}

impl Server {
    /// Makes the socket `path` and takes requests there: [`Bound::new`], and [`Bound::serve`] at once.
    pub fn bind(
        path: impl AsRef<Path>,
        settings: Settings,
        handler: impl Handler,
    ) -> Result<Self, Error> {
        Bound::new(path)?.serve(settings, handler)
    }

    /// Number of connections that were ended because their clients did not read an answer.
    pub fn unread(&self) -> u64 {
        self.shared.unread.load(Ordering::Relaxed)
    }

    /// Removes the socket, and ends all connections. Requests that are worked on have a second for their answers; streams are cut
    /// off after it, which their clients notice.
    pub fn stop(&mut self) {
        const GRACE: Duration = Duration::from_secs(1);
        let Some(listener) = self.listener.take() else {
            return;
        };
        self.shared.stopped.store(true, Ordering::Relaxed);
        self.place.remove();
        // A listening socket that is shut down wakes the thread that accepts. Shutting down is a matter of the descriptor, and the
        // standard library has it for connections only.
        let _ = UnixStream::from(OwnedFd::from(listener)).shutdown(Shutdown::Both);
        for how in [Shutdown::Read, Shutdown::Both] {
            let mut open = self.shared.open();
            for connection in open.connections.values() {
                // A connection whose client has gone cannot be shut down, and ends by itself.
                let _ = connection.stream.shutdown(how);
            }
            let until = Instant::now() + GRACE;
            while let (false, Some(left)) = (
                open.connections.is_empty(),
                until.checked_duration_since(Instant::now()),
            ) {
                open = self
                    .shared
                    .ended
                    .wait_timeout(open, left)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
            }
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Shared {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        loop {
            let accepted = listener.accept();
            if self.is_stopped() {
                return;
            }
            match accepted {
                Ok((stream, _)) => self.admit(stream),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // There are no descriptors left. Another connection may end in the meantime.
                Err(_) => std::thread::sleep(LOOK),
            }
        }
    }

    /// Starts the thread of a connection, or tells the client why there is none.
    fn admit(self: &Arc<Self>, stream: UnixStream) {
        if let Err(why) = self.start(&stream) {
            // The buffer of a new connection has room for the line; a client that has gone needs none.
            let _ = (&stream).write_all(&error_line(&why));
        }
    }

    fn start(self: &Arc<Self>, stream: &UnixStream) -> Result<(), String> {
        let said = |error: io::Error| error.to_string();
        let (peer, own) = (
            local::peer_user(stream).map_err(said)?,
            privilege::user_id(),
        );
        if peer != own && peer != 0 && !self.is_open {
            return Err(format!(
                "requests of user {peer} are not taken, only those of user {own} and of root"
            ));
        }
        stream
            .set_write_timeout(Some(self.settings.patience))
            .map_err(said)?;
        let (kept, stream) = (
            stream.try_clone().map_err(said)?,
            stream.try_clone().map_err(said)?,
        );
        let number = self.enter(kept)?;
        let shared = Arc::clone(self);
        let work = move || {
            // The message of a panic is on standard error, and the client finds the connection closed.
            let served = caught(|| shared.serve(number, &stream));
            let waited = |error: &io::Error| error.kind() == io::ErrorKind::WouldBlock;
            if served.is_some_and(|served| served.is_err_and(|error| waited(&error))) {
                shared.unread.fetch_add(1, Ordering::Relaxed);
            }
            shared.leave(number);
        };
        spawn("control connection", number as usize, work).map_err(|error| {
            self.leave(number);
            error.to_string()
        })
    }

    /// Enters a connection in the list, if need be in the place of a connection that only waits;
    /// returns its number.
    fn enter(&self, stream: UnixStream) -> Result<u64, String> {
        let most = self.settings.connections;
        let mut open = self.open();
        if open.connections.len() >= most {
            let waiting = open
                .connections
                .iter()
                .filter_map(|(number, connection)| Some((connection.idle?, *number)));
            let (_, number) = waiting
                .min()
                .filter(|(since, _)| since.elapsed() >= self.settings.idle)
                .ok_or_else(|| {
                    format!("{most} connections are open, and no more are taken: try again later")
                })?;
            if let Some(connection) = open.connections.remove(&number) {
                let _ = connection.stream.shutdown(Shutdown::Both);
            }
        }
        let number = open.next;
        open.next += 1;
        open.connections.insert(
            number,
            Connection {
                stream,
                idle: Some(Instant::now()),
            },
        );
        Ok(number)
    }

    fn leave(&self, number: u64) {
        self.open().connections.remove(&number);
        self.ended.notify_all();
    }

    /// Notes whether a connection waits for a request.
    fn mark(&self, number: u64, idle: bool) {
        if let Some(connection) = self.open().connections.get_mut(&number) {
            connection.idle = idle.then(Instant::now);
        }
    }

    /// Answers requests until the client has gone, the protocol is violated or a reply ends the connection.
    fn serve(&self, number: u64, stream: &UnixStream) -> io::Result<()> {
        let mut reader = BufReader::with_capacity(4096, stream);
        let mut line = Vec::new();
        loop {
            self.mark(number, true);
            let kind = read_line(&mut reader, LONGEST_REQUEST, &mut line)?;
            self.mark(number, false);
            if self.is_stopped() {
                return Ok(());
            }
            let mut to = stream;
            match kind {
                Line::Whole => match versioned(&line) {
                    Ok(request) if request["request"] == "version" => {
                        let reply =
                            check_members(&request, &[]).map(|()| ok_line(&version_value()));
                        to.write_all(&reply.unwrap_or_else(|why| error_line(&why)))?;
                    }
                    Ok(request) => {
                        if !self.reply(request, stream)? {
                            return Ok(());
                        }
                    }
                    Err(why) => to.write_all(&error_line(&why))?,
                },
                Line::End => return Ok(()),
                Line::Unended => {
                    return to.write_all(&error_line(
                        "the last line has no line end, and is not a request",
                    ));
                }
                Line::TooLong => {
                    let why = format!("a request has at most {LONGEST_REQUEST} bytes");
                    return to.write_all(&error_line(&why));
                }
            }
        }
    }

    /// Sends the reply to a request; returns whether further requests are read.
    fn reply(&self, request: Value, mut stream: &UnixStream) -> io::Result<bool> {
        let reply = caught(|| self.handler.request(request));
        match reply.unwrap_or_else(|| {
            Reply::Refused("the request ended with a panic: this is a mistake in weir".to_owned())
        }) {
            Reply::Done(value) => stream.write_all(&ok_line(&value)).map(|()| true),
            Reply::Refused(why) => stream.write_all(&error_line(&why)).map(|()| true),
            Reply::Subscribed { first, lines } => {
                stream.write_all(&ok_line(&first))?;
                self.push(&lines, stream).map(|()| false)
            }
            Reply::Stream { first, write } => {
                match Slot::take(&self.streams, self.settings.streams) {
                    Some(_slot) => {
                        stream.write_all(&ok_line(&first))?;
                        stream.set_write_timeout(Some(self.settings.stream_patience))?;
                        send(write, stream)?;
                        stream.set_write_timeout(Some(self.settings.patience))?;
                        Ok(true)
                    }
                    None => {
                        let why = format!(
                            "{} streams are open, and no more are: try again later",
                            self.settings.streams
                        );
                        stream.write_all(&error_line(&why)).map(|()| true)
                    }
                }
            }
        }
    }

    /// Sends the lines of a subscription.
    fn push(&self, lines: &Receiver<Value>, mut stream: &UnixStream) -> io::Result<()> {
        while !self.is_stopped() {
            match lines.recv_timeout(LOOK) {
                Ok(value) => stream.write_all(&ok_line(&value))?,
                Err(RecvTimeoutError::Timeout) if !local::has_hung_up(stream) => {}
                Err(_) => break,
            }
        }
        Ok(())
    }
}

/// Reads a request without its version. **Errors**: the reason of a refusal.
fn versioned(line: &[u8]) -> Result<Value, String> {
    let mut request = parse_request(line)?;
    take_version(&mut request).map(|()| request)
}

/// Sends the bytes of a stream, and the mark of its end.
fn send(write: WriteBytes, stream: &UnixStream) -> io::Result<()> {
    let mut frames = WriteFrames::new(Peer(stream));
    match caught(|| write(&mut frames)) {
        Some(Ok(())) => frames.finish(None),
        Some(Err(error)) => frames.finish(Some(&error.to_string())),
        None => frames.finish(Some(
            "the stream ended with a panic: this is a mistake in weir",
        )),
    }
}

/// Connection whose flush fails once the client has gone.
struct Peer<'a>(&'a UnixStream);

impl Write for Peer<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        match local::has_hung_up(self.0) {
            true => Err(io::Error::from(io::ErrorKind::BrokenPipe)),
            false => Ok(()),
        }
    }
}

/// One of a bounded number of places, free again when dropped.
struct Slot<'a>(&'a AtomicUsize);

impl<'a> Slot<'a> {
    fn take(taken: &'a AtomicUsize, most: usize) -> Option<Self> {
        let more = |taken| (taken < most).then_some(taken + 1);
        taken
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, more)
            .ok()
            .map(|_| Self(taken))
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}
