//! Control sockets: a Unix socket on which a process takes requests from other processes of its user.
//!
//! **Protocol.** A request is one JSON object on a line of at most [`LONGEST_REQUEST`] bytes. The
//! answer is one line, `{"ok":VALUE}` or `{"error":"TEXT"}`. Several requests of a connection are
//! answered one after another, in order. A change that was answered with `ok` is in force. Two
//! kinds of answer have a continuation after their line: a subscription sends further `ok` lines until the client closes the
//! connection, and a stream sends [frames](protocol) of bytes, whose end is marked; then the next request is read.
//!
//! **Rights.** The socket has mode 0600 from its first moment on. Requests come from processes of the same user and of root only. Of a
//! [shared](Bound::new_shared) socket, whose requests only look, the mode is 0660 for a group, and says alone who may ask.
//!
//! **Bounds.** Each connection has a thread. The numbers of connections and streams, the length of a request and the wait for a
//! client that does not read are [bounded](Settings).
//!
//! This module gives requests to a [`Handler`] and does not know what they mean.

mod client;
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz_body;
mod place;
pub mod protocol;
mod server;

pub use client::{Client, Lines, Streaming};
pub use protocol::{LONGEST_REQUEST, ReadFrames};
pub use server::{Bound, Handler, Reply, Server, Settings, WriteBytes};

use std::io;
use std::path::PathBuf;

/// Errors of control sockets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A process listens on the socket already.
    #[error("{}: another process listens on this socket", .path.display())]
    InUse {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The name of a new socket belongs to a file of another kind.
    #[error("{}: a file of this name is there, and is not a socket", .path.display())]
    NoSocket {
        /// Path of the file.
        path: PathBuf,
    },
    /// No process listens on the socket.
    #[error("{}: no process listens on this socket", .path.display())]
    NotListening {
        /// Path of the socket.
        path: PathBuf,
    },
    /// The system refuses an operation on the socket, or the answer did not come in time.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Path of the socket.
        path: PathBuf,
        /// Error of the system.
        error: io::Error,
    },
    /// The answer of the other process is `{"error":"TEXT"}`.
    #[error("{0}")]
    Refused(String),
    /// The answer is not a line of the protocol.
    #[error("{}: the answer is not understood: {why}", .path.display())]
    Malformed {
        /// Path of the socket.
        path: PathBuf,
        /// Reason.
        why: String,
    },
}
