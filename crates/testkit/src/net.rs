//! A network namespace for the thread of a test.

use crate::skipped;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::process::Command;

/// Moves this thread, and the programs that it starts, into a network namespace of its own. Its loopback is up, and nothing
/// is sent there unasked. The namespace vanishes with the thread. If that is impossible, prints the reason and returns
/// `false`.
#[allow(unsafe_code)]
pub fn alone(test: &str) -> bool {
    // SAFETY: the call only changes the network of this thread and its children.
    if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
        skipped(
            test,
            format_args!("no network namespace: {}", io::Error::last_os_error()),
        );
        return false;
    }
    done(
        test,
        "for f in /proc/sys/net/ipv6/conf/*/disable_ipv6; do echo 1 >$f; done; ip link set lo up",
    )
}

/// Does the same as [`alone`], and makes interfaces `far` and `near` at the ends of a cable; `options` are those of `ip link add`
/// for both.
pub fn cable(test: &str, options: &str) -> bool {
    let ends = format!("far {options} type veth peer name near {options}");
    alone(test)
        && done(
            test,
            &format!("ip link add {ends} && ip link set far up && ip link set near up"),
        )
}

fn done(test: &str, script: &str) -> bool {
    match Command::new("sh").args(["-c", script]).output() {
        Ok(done) if done.status.success() => return true,
        Ok(done) => skipped(
            test,
            format_args!("no veth: {}", String::from_utf8_lossy(&done.stderr).trim()),
        ),
        Err(error) => skipped(test, format_args!("no shell: {error}")),
    }
    false
}

/// Output of a program that must succeed; it runs in the network of this thread.
#[track_caller]
pub fn run(program: &str, words: &str) -> String {
    let done = Command::new(program)
        .args(words.split(' '))
        .output()
        .expect("it can be run");
    assert!(
        done.status.success(),
        "{program} {words}: {}",
        String::from_utf8_lossy(&done.stderr)
    );
    String::from_utf8_lossy(&done.stdout).into_owned()
}

/// Output of `ip`, which must succeed.
#[track_caller]
pub fn ip(words: &str) -> String {
    run("ip", words)
}

/// Makes an interface `name` in the network of this thread whose packets of IP the file holds: a read takes one that the kernel sends there, a
/// write gives the kernel one that arrives there. Neither waits. The interface vanishes with the file. **Source**:
/// Documentation/networking/tuntap.rst. **Errors**: no right to do so, or no such interfaces in the kernel.
pub fn tun(name: &str) -> io::Result<File> {
    device(name, libc::IFF_TUN)
}

/// The same with frames of Ethernet in place of packets of IP.
pub fn tap(name: &str) -> io::Result<File> {
    device(name, libc::IFF_TAP)
}

#[allow(unsafe_code)]
fn device(name: &str, kind: libc::c_int) -> io::Result<File> {
    let file = File::options()
        .read(true)
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open("/dev/net/tun")?;
    // struct ifreq: the name, then the flags.
    let mut request = [0u8; 40];
    let room = request
        .get_mut(..name.len())
        .filter(|_| name.len() < libc::IFNAMSIZ);
    room.ok_or(io::ErrorKind::InvalidInput)?
        .copy_from_slice(name.as_bytes());
    let flags = (kind | libc::IFF_NO_PI) as u16;
    request[libc::IFNAMSIZ..libc::IFNAMSIZ + 2].copy_from_slice(&flags.to_ne_bytes());
    // SAFETY: the kernel reads and writes the 40 bytes of the request, which live through the call.
    let done = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, request.as_mut_ptr()) };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(file)
    }
}
