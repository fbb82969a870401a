//! The FUSE protocol (`include/uapi/linux/fuse.h`), as far as one file of fixed length needs it: `disk`, in the root directory.

use super::log::Disk;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;

/// Longest WRITE, bytes.
const MAX_WRITE: usize = 1 << 20;
/// Node ids.
const ROOT: u64 = 1;
const DISK: u64 = 2;
/// Time for which the kernel may remember names and attributes, s.
const REMEMBERED: u64 = 1 << 30;

/// Served file system, mounted at a directory until its value is dropped.
#[derive(Debug)]
pub(super) struct Served {
    dir: PathBuf,
    server: Option<JoinHandle<()>>,
}

impl Served {
    /// Mounts `disk` at `dir`, in the mount namespace of this thread. A thread of its own answers the kernel.
    ///
    /// Only that thread has the connection: it has a table of descriptors of its own. So a process that is killed ends the
    /// connection, even while another of its threads waits for the disk.
    pub(super) fn new(dir: &Path, disk: Arc<Mutex<Disk>>) -> io::Result<Self> {
        let (say, said) = mpsc::channel();
        let target = dir.to_owned();
        let server = std::thread::spawn(move || {
            let connected = super::sys::own_descriptors().and_then(|()| connect(&target));
            match connected {
                Ok(connection) => {
                    let _ = say.send(Ok(()));
                    serve(connection, &disk);
                }
                Err(error) => {
                    let _ = say.send(Err(error));
                }
            }
        });
        said.recv().map_err(io::Error::other)??;
        Ok(Self {
            dir: dir.to_owned(),
            server: Some(server),
        })
    }

    /// Directory that holds the file.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }
}

impl Drop for Served {
    /// Ends the connection: whoever still uses the file gets errors.
    fn drop(&mut self) {
        let ended = super::sys::unmount(&self.dir, true);
        if let (Ok(()), Some(server)) = (ended, self.server.take()) {
            let _ = server.join();
        }
    }
}

fn connect(dir: &Path) -> io::Result<File> {
    let connection = File::options().read(true).write(true).open("/dev/fuse")?;
    let options = format!(
        "fd={},rootmode=40000,user_id=0,group_id=0,allow_other",
        connection.as_raw_fd()
    );
    super::sys::mount(dir, "fuse", &options)?;
    Ok(connection)
}

/// Answers requests, one by one, until the file system is unmounted.
fn serve(mut connection: File, disk: &Mutex<Disk>) {
    let mut buffer = vec![0; MAX_WRITE + 4096];
    loop {
        let len = match connection.read(&mut buffer) {
            Ok(len) => len,
            // ENOENT: the request was withdrawn.
            Err(error)
                if matches!(
                    error.raw_os_error(),
                    Some(libc::EINTR | libc::ENOENT | libc::EAGAIN)
                ) =>
            {
                continue;
            }
            Err(_) => return,
        };
        let request = Request(&buffer[..len]);
        let reply = answer(&request, disk);
        let (error, body) = match &reply {
            Ok(Some(body)) => (0, &body[..]),
            Ok(None) => continue,
            Err(errno) => (-errno, &[][..]),
        };
        let mut out = Vec::with_capacity(16 + body.len());
        out.extend_from_slice(&(16 + body.len() as u32).to_ne_bytes());
        out.extend_from_slice(&error.to_ne_bytes());
        out.extend_from_slice(&request.wide(8).to_ne_bytes());
        out.extend_from_slice(body);
        // A request that was withdrawn, or a connection that ended: the next read says so.
        let _ = connection.write(&out);
    }
}

/// A request: `struct fuse_in_header`, 40 bytes, and its arguments.
struct Request<'a>(&'a [u8]);

impl Request<'_> {
    fn word(&self, at: usize) -> u32 {
        self.0[at..]
            .first_chunk()
            .map_or(0, |bytes| u32::from_ne_bytes(*bytes))
    }

    fn wide(&self, at: usize) -> u64 {
        self.0[at..]
            .first_chunk()
            .map_or(0, |bytes| u64::from_ne_bytes(*bytes))
    }
}

/// Reply to a request: its body, nothing, or an error number.
fn answer(request: &Request<'_>, disk: &Mutex<Disk>) -> Result<Option<Vec<u8>>, i32> {
    let mut disk = disk
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let (operation, node, arguments) = (request.word(4), request.wide(16), 40);
    // `fh` is the first argument of READ and WRITE, then offset and size follow.
    let (offset, len) = (arguments + 8, arguments + 16);
    let body = match operation {
        // LOOKUP: struct fuse_entry_out.
        1 if node == ROOT && request.0[arguments..] == *b"disk\0" => {
            let mut entry = wides(&[DISK, 0, REMEMBERED, REMEMBERED, 0]);
            entry.extend(attributes(DISK, disk.bytes()));
            entry
        }
        1 => return Err(libc::ENOENT),
        // FORGET, INTERRUPT, BATCH_FORGET have no reply.
        2 | 36 | 42 => return Ok(None),
        // GETATTR, SETATTR: struct fuse_attr_out. The length is fixed.
        3 | 4 => {
            let mut out = wides(&[REMEMBERED, 0]);
            out.extend(attributes(node, disk.bytes()));
            out
        }
        // OPEN with FOPEN_DIRECT_IO, so that the page cache keeps no second copy; OPENDIR.
        14 => wides(&[0, 1]),
        27 => wides(&[0, 0]),
        15 => disk.read(request.wide(offset), request.word(len) as usize),
        // WRITE: the bytes lie after struct fuse_write_in.
        16 => {
            let bytes = &request.0[arguments + 40..];
            disk.write(request.wide(offset), bytes)?;
            wides(&[bytes.len() as u64])
        }
        // STATFS: struct fuse_kstatfs.
        17 => wides(&[0, 0, 0, 2, 0, 4096 | 255 << 32, 4096, 0, 0, 0]),
        // FSYNC.
        20 => {
            disk.flush();
            Vec::new()
        }
        // INIT: version 7.31, FUSE_BIG_WRITES | FUSE_MAX_PAGES, limits of requests.
        26 => {
            let mut out = Vec::with_capacity(64);
            for word in [
                7,
                31,
                0,
                1 << 5 | 1 << 22,
                16 | 12 << 16,
                MAX_WRITE as u32,
                1,
                MAX_WRITE as u32 / 4096,
            ] {
                out.extend_from_slice(&word.to_ne_bytes());
            }
            out.resize(64, 0);
            out
        }
        // RELEASE, READDIR (empty), RELEASEDIR, DESTROY.
        18 | 28 | 29 | 38 => Vec::new(),
        _ => return Err(libc::ENOSYS),
    };
    Ok(Some(body))
}

fn wides(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_ne_bytes())
        .collect()
}

/// `struct fuse_attr` of a node.
fn attributes(node: u64, bytes: u64) -> Vec<u8> {
    let (mode, links, bytes) = match node {
        ROOT => (libc::S_IFDIR | 0o700, 2, 0),
        _ => (libc::S_IFREG | 0o600, 1, bytes),
    };
    // ino, size, blocks, three times; their nanoseconds; mode and links; uid and gid; rdev and block size; flags.
    let mut out = wides(&[node, bytes, bytes / 512, 0, 0, 0, 0]);
    for word in [0, mode, links, 0, 0, 0, 4096, 0] {
        out.extend_from_slice(&word.to_ne_bytes());
    }
    out
}
