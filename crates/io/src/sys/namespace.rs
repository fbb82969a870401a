//! Network namespaces: work with the interfaces and sockets of another one.
//!
//! A thread enters the namespace, does the work, and ends. A socket stays in the namespace in which it was made, and all other
//! threads stay in theirs. **Source**: setns(2), network_namespaces(7), ip-netns(8).

use std::fmt;
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::thread::{self, Builder};

/// Directory in which `ip netns` keeps namespaces by name.
const NAMED: &str = "/run/netns";

/// A network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Namespace {
    /// A namespace that `ip netns` lists.
    Named(String),
    /// The namespace of a process, by its number.
    Process(u32),
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => write!(f, "network namespace {name}"),
            Self::Process(number) => write!(f, "the network namespace of process {number}"),
        }
    }
}

/// Reason for which a namespace cannot be entered.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// No namespace has the name, or there is no such process.
    #[error("{}", missing(.0))]
    Missing(Namespace),
    /// The rights of this process do not suffice.
    #[error("entering {0} needs the capability CAP_SYS_ADMIN")]
    NotPermitted(Namespace),
    /// The system refused.
    #[error("{namespace}: {error}")]
    System {
        /// The namespace.
        namespace: Namespace,
        /// Error of the system.
        error: io::Error,
    },
}

fn missing(namespace: &Namespace) -> String {
    match namespace {
        Namespace::Named(name) => format!("there is no network namespace {name}"),
        Namespace::Process(number) => format!("there is no process {number}"),
    }
}

impl Namespace {
    /// Does `work` in the namespace, in a thread of its own.
    ///
    /// **Cost**: a thread. **Errors**: there is no such namespace, or it may not be entered; then nothing was done.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, Error> {
        let failed = |error: io::Error| self.failed(error);
        let file = File::open(self.path()).map_err(failed)?;
        let inside = || {
            // SAFETY: the descriptor is open, and the call changes nothing but the namespace of this thread.
            match unsafe { libc::setns(file.as_raw_fd(), libc::CLONE_NEWNET) } {
                0 => Ok(work()),
                _ => Err(io::Error::last_os_error()),
            }
        };
        thread::scope(|scope| {
            let thread = Builder::new()
                .name("namespace".to_owned())
                .spawn_scoped(scope, inside)?;
            thread
                .join()
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
        .map_err(failed)
    }

    fn path(&self) -> PathBuf {
        match self {
            Self::Named(name) => PathBuf::from(NAMED).join(name),
            Self::Process(number) => PathBuf::from(format!("/proc/{number}/ns/net")),
        }
    }

    fn failed(&self, error: io::Error) -> Error {
        let namespace = self.clone();
        match error.kind() {
            ErrorKind::NotFound => Error::Missing(namespace),
            ErrorKind::PermissionDenied => Error::NotPermitted(namespace),
            // A process that ends while it is asked.
            _ if error.raw_os_error() == Some(libc::ESRCH) => Error::Missing(namespace),
            _ => Error::System { namespace, error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The own namespace may be entered if any may, and the work is done once.
    #[test]
    fn work_is_done_within_or_not_at_all() {
        let own = Namespace::Process(std::process::id());
        let mut done = 0;
        match own.within(|| done += 1) {
            Ok(()) => assert_eq!(done, 1),
            Err(error) => assert!(
                done == 0 && matches!(error, Error::NotPermitted(_)),
                "{error}"
            ),
        }
        let none = Namespace::Named("weir-no-such-namespace".to_owned());
        let error = none.within(|| done += 1).unwrap_err();
        assert_eq!(
            error.to_string(),
            "there is no network namespace weir-no-such-namespace"
        );
        // Larger than any process number of Linux.
        let error = Namespace::Process(u32::MAX).within(|| ()).unwrap_err();
        assert_eq!(error.to_string(), "there is no process 4294967295");
    }
}
