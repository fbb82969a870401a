//! The connections that control this process: the login in which it was started.
//!
//! `SSH_CONNECTION` and `SSH_CLIENT` tell it; where they are lost, as after sudo, the sockets of
//! the processes from which this one stems. A process of another user shows its sockets to root
//! alone.
//!
//! **Source**: ssh(1), proc(5), Documentation/networking/proc_net_tcp.rst.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// A connection that controls this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Login {
    /// Address at this host; `None` if only the other end is known.
    pub here: Option<IpAddr>,
    /// Address of the other end.
    pub peer: IpAddr,
}

/// Returns the connections that control this process, of the network namespace of this thread or of another one.
///
/// **Cost**: some hundred system calls. What may not be read is left out.
pub fn logins() -> BTreeSet<Login> {
    let text = |name| std::env::var(name).ok();
    let named = text("SSH_CONNECTION").and_then(|value| of_ssh(&value, true));
    let named = named.or_else(|| text("SSH_CLIENT").and_then(|value| of_ssh(&value, false)));
    let is_whole = named.is_some_and(|login| login.here.is_some());
    named.into_iter().chain(of_ancestors(is_whole)).collect()
}

/// Reads the variable of ssh: address and port of the client, and with `has_server` also of the
/// server.
fn of_ssh(value: &str, has_server: bool) -> Option<Login> {
    let mut words = value.split(' ');
    let peer = address(words.next()?)?;
    let here = words.nth(1).filter(|_| has_server).and_then(address);
    Some(Login { here, peer })
}

/// Reads an address, which may name an interface: `fe80::1%eth0`.
fn address(text: &str) -> Option<IpAddr> {
    text.split('%')
        .next()?
        .parse::<IpAddr>()
        .ok()
        .map(|address| address.to_canonical())
}

/// Connections of the processes from which this one stems, and of its own standard input, output and error. An ancestor that hides
/// its sockets may have any connection to this host, unless the login `is_known`.
fn of_ancestors(is_known: bool) -> Vec<Login> {
    let mut sockets: BTreeSet<u64> = (0..3)
        .filter_map(|fd| socket(Path::new(&format!("/proc/self/fd/{fd}"))))
        .collect();
    let mut hides_sockets = false;
    for ancestor in ancestors() {
        let Ok(entries) = fs::read_dir(format!("/proc/{}/fd", ancestor.number)) else {
            hides_sockets |= !is_known && ancestor.name.starts_with("sshd");
            continue;
        };
        sockets.extend(entries.filter_map(|entry| socket(&entry.ok()?.path())));
    }
    let tables = || {
        ["tcp", "tcp6"].map(|table| fs::read_to_string(format!("/proc/thread-self/net/{table}")))
    };
    match sockets.is_empty() && !hides_sockets {
        true => Vec::new(),
        false => connections(
            tables().iter().flatten().map(String::as_str),
            &sockets,
            hides_sockets,
        ),
    }
}

/// A process from which this one stems.
struct Ancestor {
    number: u32,
    name: String,
}

fn ancestors() -> impl Iterator<Item = Ancestor> {
    /// More than any chain of processes has; processes that end in the meantime could lead in a
    /// circle.
    const MOST: usize = 64;
    let mut number = std::os::unix::process::parent_id();
    std::iter::from_fn(move || {
        let (name, parent) = parse_stat(&fs::read_to_string(format!("/proc/{number}/stat")).ok()?)?;
        let found = Ancestor { number, name };
        number = parent;
        Some(found)
    })
    .take(MOST)
}

/// Name and parent in `/proc/PID/stat`: `1 (sshd: root@pts/0) S 0 ...`. The name may hold any character.
fn parse_stat(text: &str) -> Option<(String, u32)> {
    let (name, rest) = text.split_once('(')?.1.rsplit_once(')')?;
    Some((
        name.to_owned(),
        rest.split_ascii_whitespace().nth(1)?.parse().ok()?,
    ))
}

/// Number of the socket that a descriptor leads to: `socket:[1234]`.
fn socket(descriptor: &Path) -> Option<u64> {
    let target = fs::read_link(descriptor).ok()?;
    let name = OsStr::to_str(target.as_os_str())?;
    name.strip_prefix("socket:[")?
        .strip_suffix(']')?
        .parse()
        .ok()
}

/// A line of a table of TCP sockets.
struct Line {
    here: (IpAddr, u16),
    peer: IpAddr,
    state: u8,
    socket: u64,
}

/// Established connections of these sockets; with `hides_sockets` also all connections to a port at
/// which this host listens.
fn connections<'a>(
    tables: impl Iterator<Item = &'a str>,
    sockets: &BTreeSet<u64>,
    hides_sockets: bool,
) -> Vec<Login> {
    const ESTABLISHED: u8 = 1;
    const LISTEN: u8 = 10;
    let lines: Vec<Line> = tables
        .flat_map(|table| table.lines().skip(1))
        .filter_map(line)
        .collect();
    let listened: BTreeSet<u16> = lines
        .iter()
        .filter(|line| line.state == LISTEN && hides_sockets)
        .map(|line| line.here.1)
        .collect();
    let controls = |line: &&Line| sockets.contains(&line.socket) || listened.contains(&line.here.1);
    let established = lines
        .iter()
        .filter(|line| line.state == ESTABLISHED)
        .filter(controls);
    established
        .map(|line| Login {
            here: Some(line.here.0),
            peer: line.peer,
        })
        .collect()
}

fn line(text: &str) -> Option<Line> {
    let words: Vec<&str> = text.split_ascii_whitespace().collect();
    let end = |text: &str| {
        let (address, port) = text.split_once(':')?;
        Some((table_address(address)?, u16::from_str_radix(port, 16).ok()?))
    };
    let state = u8::from_str_radix(words.get(3)?, 16).ok()?;
    let socket = words.get(9)?.parse().ok()?;
    Some(Line {
        here: end(words.get(1)?)?,
        peer: end(words.get(2)?)?.0,
        state,
        socket,
    })
}

/// An address as the table has it: words of four bytes, each as a number of this processor.
fn table_address(text: &str) -> Option<IpAddr> {
    let words = text.as_bytes().chunks(8).map(|word| {
        let number = u32::from_str_radix(std::str::from_utf8(word).ok()?, 16).ok()?;
        Some(number.to_ne_bytes())
    });
    let bytes = words.collect::<Option<Vec<[u8; 4]>>>()?.concat();
    let four = <[u8; 4]>::try_from(&bytes[..])
        .ok()
        .map(|bytes| IpAddr::V4(Ipv4Addr::from(bytes)));
    let sixteen = <[u8; 16]>::try_from(&bytes[..])
        .ok()
        .map(|bytes| IpAddr::V6(Ipv6Addr::from(bytes)));
    four.or(sixteen).map(|address| address.to_canonical())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    #[test]
    fn variables_of_ssh_are_read_as_its_manual_says() {
        let login = |here: Option<&str>, peer| {
            Some(Login {
                here: here.map(ip),
                peer: ip(peer),
            })
        };
        assert_eq!(
            of_ssh("192.0.2.7 40000 192.0.2.1 22", true),
            login(Some("192.0.2.1"), "192.0.2.7")
        );
        assert_eq!(
            of_ssh("192.0.2.7 40000 22", false),
            login(None, "192.0.2.7")
        );
        assert_eq!(
            of_ssh("fe80::7%eth0 1 fe80::1%eth0 22", true),
            login(Some("fe80::1"), "fe80::7")
        );
        assert_eq!(
            of_ssh("::ffff:192.0.2.7 1 ::ffff:192.0.2.1 22", true),
            login(Some("192.0.2.1"), "192.0.2.7")
        );
        for text in ["", "UNKNOWN 65535 UNKNOWN 65535", "x", "%"] {
            assert_eq!(of_ssh(text, true), None, "{text}");
        }
    }

    #[test]
    fn names_of_processes_may_hold_anything() {
        assert_eq!(
            parse_stat("7 (sshd: a@pts/0) S 3 7 7 0"),
            Some(("sshd: a@pts/0".to_owned(), 3))
        );
        assert_eq!(
            parse_stat("7 (x) R 9) (y) S 4 7 7 0"),
            Some(("x) R 9) (y".to_owned(), 4))
        );
        for text in ["", "7", "7 (a", "7 (a)", "7 (a) S", "7 (a) S x"] {
            assert_eq!(parse_stat(text), None, "{text}");
        }
    }

    /// The standard library knows the ends of its own sockets.
    #[test]
    fn a_connection_is_found_by_its_socket_or_by_the_port_at_which_somebody_listens() {
        for place in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = TcpListener::bind(place) else {
                continue;
            };
            let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (server, _) = listener.accept().unwrap();
            let tables = ["tcp", "tcp6"]
                .map(|table| fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap());
            let number = std::os::fd::AsRawFd::as_raw_fd(&server);
            let socket = socket(Path::new(&format!("/proc/self/fd/{number}"))).unwrap();
            let found = connections(tables.iter().map(String::as_str), &[socket].into(), false);
            let expected = Login {
                here: Some(server.local_addr().unwrap().ip()),
                peer: client.local_addr().unwrap().ip(),
            };
            assert_eq!(found, [expected]);
            let listened = connections(tables.iter().map(String::as_str), &BTreeSet::new(), true);
            assert!(listened.contains(&expected));
            drop(listener);
        }
    }
}
