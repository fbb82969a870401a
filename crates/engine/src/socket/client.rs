//! Requests to another process over its control socket.

use super::protocol::{
    LONGEST_ANSWER, Line, ReadFrames, line, parse_answer, read_line, with_version,
};
use super::{Error, place};
use serde_json::Value;
use std::fs::File;
use std::io::{self, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Longest wait for an answer, and for the other process to take a request. A request may make a disk write all it holds.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longest read that finds no bytes.
const LOOK: Duration = Duration::from_millis(100);

/// Connection to a control socket.
#[derive(Debug)]
pub struct Client {
    path: PathBuf,
    stream: BufReader<Patient>,
    answer: Vec<u8>,
}

impl Client {
    /// Connects to the socket at `path`. **Errors**: [`Error::NotListening`] if there is no socket, or no process that listens.
    pub fn connect(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref().to_owned();
        let timed = |stream: UnixStream| {
            stream.set_read_timeout(Some(LOOK))?;
            stream.set_write_timeout(Some(PATIENCE))?;
            Ok(Patient {
                file: File::from(OwnedFd::from(stream)),
                patience: PATIENCE,
                endless: false,
            })
        };
        match place::connect(&path).and_then(timed) {
            Ok(stream) => Ok(Self {
                path,
                stream: BufReader::new(stream),
                answer: Vec::new(),
            }),
            Err(error)
                if matches!(
                    error.kind(),
                    io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused
                ) =>
            {
                Err(Error::NotListening { path })
            }
            Err(error) => Err(Error::Io { path, error }),
        }
    }

    /// Sets the longest wait for an answer.
    pub fn patience(mut self, patience: Duration) -> Self {
        self.stream.get_mut().patience = patience;
        self
    }

    /// Sends a request, a JSON object, and returns the value of its answer. **Errors**: [`Error::Refused`] with the text of the
    /// other process; another error leaves the connection useless.
    pub fn ask(&mut self, request: &Value) -> Result<Value, Error> {
        // After a refusal the other process closes the connection, and the answer may lie here although the request was not taken.
        let sent = (&self.stream.get_ref().file).write_all(&line(&with_version(request)));
        match (self.answer(), sent) {
            (Err(Error::Io { .. } | Error::Malformed { .. }), Err(error)) => {
                Err(self.failed(error))
            }
            (answer, _) => answer,
        }
    }

    /// Sends a request whose answer is a stream of bytes; returns the value of the answer's line, and the bytes.
    ///
    /// The wait for bytes has no limit, but a read is `Interrupted` after a tenth of a second without bytes, so that a caller can
    /// look at its stop flag. **Errors**: as [`Self::ask`].
    pub fn stream(mut self, request: &Value) -> Result<(Value, ReadFrames<Streaming>), Error> {
        let value = self.ask(request)?;
        self.stream.get_mut().endless = true;
        Ok((value, ReadFrames::new(Streaming(self))))
    }

    /// Sends a request that subscribes; returns the value of the answer's line, and the lines that follow it.
    ///
    /// The wait for a line has no limit. **Errors**: as [`Self::ask`].
    pub fn subscribe(mut self, request: &Value) -> Result<(Value, Lines), Error> {
        let value = self.ask(request)?;
        self.stream.get_mut().endless = true;
        Ok((value, Lines(self)))
    }

    /// Reads the next line.
    fn answer(&mut self) -> Result<Value, Error> {
        let malformed = |path: &Path, why: &str| Error::Malformed {
            path: path.to_owned(),
            why: why.to_owned(),
        };
        match read_line(&mut self.stream, LONGEST_ANSWER, &mut self.answer) {
            Ok(Line::Whole) => match parse_answer(&self.answer) {
                Ok(answer) => answer.map_err(Error::Refused),
                Err(why) => Err(malformed(&self.path, &why)),
            },
            Ok(Line::TooLong) => Err(malformed(&self.path, "it is longer than allowed")),
            Ok(Line::End | Line::Unended) => Err(self.failed(closed())),
            Err(error) => Err(self.failed(match error.kind() {
                io::ErrorKind::WouldBlock => {
                    io::Error::new(io::ErrorKind::TimedOut, "the other process does not answer")
                }
                // A process that closes a connection with unread requests resets it.
                io::ErrorKind::ConnectionReset => closed(),
                _ => error,
            })),
        }
    }

    fn failed(&self, error: io::Error) -> Error {
        Error::Io {
            path: self.path.clone(),
            error,
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(
        io::ErrorKind::UnexpectedEof,
        "the other process closed the connection without an answer",
    )
}

/// Bytes of a stream on a connection.
#[derive(Debug)]
pub struct Streaming(Client);

impl Streaming {
    /// Takes the connection back for further requests, once the end of the stream was read.
    pub fn into_client(mut self) -> Client {
        self.0.stream.get_mut().endless = false;
        self.0
    }
}

impl Read for Streaming {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.stream.read(buffer)
    }
}

/// Reader and writer of a connection; if its wait is endless, a read without bytes is `Interrupted`.
#[derive(Debug)]
struct Patient {
    /// The connection as a file: a process whose sandbox is in force may read files, but not receive from sockets, nor set their
    /// time-outs.
    file: File,
    patience: Duration,
    endless: bool,
}

impl Read for Patient {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begun = Instant::now();
        loop {
            match self.file.read(buffer) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    if self.endless {
                        return Err(io::Error::from(io::ErrorKind::Interrupted));
                    }
                    if begun.elapsed() >= self.patience {
                        return Err(error);
                    }
                }
                read => return read,
            }
        }
    }
}

/// Lines of a subscription. The sequence ends when the other process closes the connection.
#[derive(Debug)]
pub struct Lines(Client);

impl Iterator for Lines {
    type Item = Result<Value, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.0.answer() {
            Err(Error::Io { error, .. }) if error.kind() == io::ErrorKind::UnexpectedEof => None,
            answer => Some(answer),
        }
    }
}
