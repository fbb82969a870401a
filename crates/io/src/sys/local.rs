//! Unix sockets: what the standard library does not offer.

use super::option::{get_option, set_option};
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

/// Connects to the socket at `path`, whose name has less than 108 bytes. If the queue of the listening process is full, the
/// function waits at most `patience`. **Errors**: `WouldBlock` after that time; `ConnectionRefused` if no process listens.
/// **Source**: unix(7).
pub fn connect(path: &Path, patience: Duration) -> io::Result<UnixStream> {
    // SAFETY: the call takes numbers only.
    let socket = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_STREAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call above has just made the descriptor, and no other code owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let time = libc::timeval {
        tv_sec: patience.as_secs() as libc::time_t,
        tv_usec: patience.subsec_micros() as libc::suseconds_t,
    };
    set_option(&socket, libc::SOL_SOCKET, libc::SO_SNDTIMEO, &time)?;
    let name = path.as_os_str().as_bytes();
    let mut address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as libc::sa_family_t,
        sun_path: [0; 108],
    };
    if name.len() >= address.sun_path.len() || name.contains(&0) {
        return Err(io::Error::from(io::ErrorKind::InvalidFilename));
    }
    for (to, &from) in address.sun_path.iter_mut().zip(name) {
        *to = from as libc::c_char;
    }
    let len = offset_of!(libc::sockaddr_un, sun_path) + name.len() + 1;
    loop {
        // SAFETY: the address is a live local, and the length lies within it, because the name was checked.
        match unsafe {
            libc::connect(
                socket.as_raw_fd(),
                (&raw const address).cast(),
                len as libc::socklen_t,
            )
        } {
            0 => break,
            _ => match io::Error::last_os_error() {
                // The connection was not begun, so that the call can be repeated.
                error if error.kind() == io::ErrorKind::Interrupted => {}
                error => return Err(error),
            },
        }
    }
    let stream = UnixStream::from(socket);
    stream.set_write_timeout(None)?;
    Ok(stream)
}

/// A process that listens at a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Number of the process, 0 for one of another PID namespace.
    pub process: u32,
    /// Number of its user.
    pub user: u32,
}

/// Returns the process that listens at the socket with this abstract name, of the network namespace of this thread. Never waits. **Source**:
/// unix(7), abstract names and `SO_PEERCRED`.
pub fn holder(name: &[u8]) -> Option<Holder> {
    // SAFETY: the call takes numbers only.
    let socket = unsafe {
        libc::socket(
            libc::AF_UNIX,
            libc::SOCK_STREAM | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK,
            0,
        )
    };
    if socket < 0 {
        return None;
    }
    // SAFETY: the call above has just made the descriptor, and no other code owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    let mut address = libc::sockaddr_un {
        sun_family: libc::AF_UNIX as libc::sa_family_t,
        sun_path: [0; 108],
    };
    // The first byte of an abstract name is 0, and no zero ends it.
    for (to, &from) in address
        .sun_path
        .get_mut(1..=name.len())?
        .iter_mut()
        .zip(name)
    {
        *to = from as libc::c_char;
    }
    let len = offset_of!(libc::sockaddr_un, sun_path) + 1 + name.len();
    // SAFETY: the address is a live local, and the length lies within it, because there was room for the name.
    if unsafe {
        libc::connect(
            socket.as_raw_fd(),
            (&raw const address).cast(),
            len as libc::socklen_t,
        )
    } < 0
    {
        return None;
    }
    let about = get_option::<libc::ucred>(
        &UnixStream::from(socket),
        libc::SOL_SOCKET,
        libc::SO_PEERCRED,
    )
    .ok()?;
    Some(Holder {
        process: about.pid.try_into().ok()?,
        user: about.uid,
    })
}

/// Returns the user that the process at the other end of a connection had when it connected or listened. **Source**: unix(7),
/// `SO_PEERCRED`.
pub fn peer_user(stream: &UnixStream) -> io::Result<u32> {
    get_option::<libc::ucred>(stream, libc::SOL_SOCKET, libc::SO_PEERCRED).map(|about| about.uid)
}

/// Returns whether the other end of a connection is closed for both directions.
pub fn has_hung_up(stream: &UnixStream) -> bool {
    let mut asked = libc::pollfd {
        fd: stream.as_raw_fd(),
        events: 0,
        revents: 0,
    };
    // SAFETY: one live entry.
    unsafe {
        libc::poll(&raw mut asked, 1, 0) > 0 && asked.revents & (libc::POLLHUP | libc::POLLERR) != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::privilege;
    use std::net::Shutdown;
    use std::os::unix::net::UnixListener;
    use weir_testkit::Scratch;

    #[test]
    fn connections_have_the_user_of_their_other_end() {
        let scratch = Scratch::new();
        let path = scratch.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let client = connect(&path, Duration::from_secs(10)).unwrap();
        let (server, _) = listener.accept().unwrap();
        assert_eq!(peer_user(&server).unwrap(), privilege::user_id());
        assert_eq!(peer_user(&client).unwrap(), privilege::user_id());
    }

    #[test]
    fn only_an_end_closed_for_both_directions_has_hung_up() {
        let (here, there) = UnixStream::pair().unwrap();
        assert!(!has_hung_up(&here));
        there.shutdown(Shutdown::Write).unwrap();
        assert!(!has_hung_up(&here));
        drop(there);
        assert!(has_hung_up(&here));
    }

    #[test]
    fn a_full_queue_and_a_closed_listener_are_told_apart() {
        let scratch = Scratch::new();
        let path = scratch.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        // SAFETY: the descriptor is open, and the call takes numbers only. It shortens the queue.
        assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
        let brief = Duration::from_millis(20);
        let _first = connect(&path, brief).unwrap();
        assert_eq!(
            connect(&path, brief).unwrap_err().kind(),
            io::ErrorKind::WouldBlock
        );
        drop(listener);
        assert_eq!(
            connect(&path, brief).unwrap_err().kind(),
            io::ErrorKind::ConnectionRefused
        );
        let long = scratch.path().join("n".repeat(108));
        assert_eq!(
            connect(&long, brief).unwrap_err().kind(),
            io::ErrorKind::InvalidFilename
        );
    }
}
