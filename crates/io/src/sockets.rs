//! Sockets of TCP and UDP, and the processes that hold them.
//!
//! [`Tables`] lists the sockets of a network namespace, [`holders`] the sockets of all processes. Both name a socket by its inode, which
//! is one number for all namespaces. **Source**: proc_net(5) and proc_pid_fd(5); net/ipv4/tcp_ipv4.c of Linux (`get_tcp4_sock`).

use crate::network::Network;
use crate::sys::namespace::{self, Namespace};
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// Numbers of the protocols, and the files of their sockets.
const FILES: [(u8, &str); 4] = [(6, "tcp"), (6, "tcp6"), (17, "udp"), (17, "udp6")];

/// Most bytes read of a file: some 400 000 sockets.
const MOST: u64 = 64 << 20;

/// A socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Socket {
    /// IP protocol: 6 or 17.
    pub proto: u8,
    /// Own address and port. An address of zeros stands for all addresses of its family; for IPv6 usually also for all IPv4 addresses.
    pub local: (IpAddr, u16),
    /// Address and port of the other end; `None` if the socket is not connected.
    pub remote: Option<(IpAddr, u16)>,
    /// Inode number.
    pub inode: u64,
}

/// The open lists of sockets of a namespace. They can be read in any namespace, again and again.
#[derive(Debug)]
pub struct Tables {
    files: Vec<(u8, File)>,
    /// Addresses of the namespace when it was opened.
    pub addresses: Vec<IpAddr>,
}

impl Tables {
    /// Opens the lists of a namespace; `None` stands for this thread's. **Errors**: the namespace cannot be entered.
    pub fn open(namespace: Option<&Namespace>) -> Result<Self, namespace::Error> {
        let open = || {
            let file = |(proto, name)| {
                let file = File::open(Path::new("/proc/thread-self/net").join(name)).ok()?;
                Some((proto, file))
            };
            let addresses = Network::read().map(|network| network.addresses);
            Self {
                // A kernel without IPv6 lacks two of them.
                files: FILES.into_iter().filter_map(file).collect(),
                addresses: addresses
                    .unwrap_or_default()
                    .into_iter()
                    .map(|(address, _)| address)
                    .collect(),
            }
        };
        match namespace {
            None => Ok(open()),
            Some(namespace) => namespace.within(open),
        }
    }

    /// Lists the sockets that have an inode. **Cost**: about 1 us a socket. **Errors**: errors of the system.
    pub fn sockets(&mut self) -> io::Result<Vec<Socket>> {
        let (mut sockets, mut text) = (Vec::new(), String::new());
        for (proto, file) in &mut self.files {
            text.clear();
            file.rewind()?;
            file.take(MOST).read_to_string(&mut text)?;
            sockets.extend(text.lines().filter_map(|line| socket(*proto, line)));
        }
        Ok(sockets)
    }
}

/// Reads a line of such a list; `None` for the heading, and for sockets that no process holds.
fn socket(proto: u8, line: &str) -> Option<Socket> {
    let mut words = line.split_ascii_whitespace();
    let local = end(words.nth(1)?)?;
    let remote = end(words.next()?)?;
    let inode = words.nth(6)?.parse().ok()?;
    (inode != 0).then_some(Socket {
        proto,
        local,
        remote: (remote.1 != 0).then_some(remote),
        inode,
    })
}

/// Reads an address and a port: words of 32 bits in the byte order of the processor, and a number.
fn end(text: &str) -> Option<(IpAddr, u16)> {
    let (address, port) = text.split_once(':')?;
    let word = |at: usize| {
        let digits = address.get(at..at + 8)?;
        Some(u32::from_str_radix(digits, 16).ok()?.to_ne_bytes())
    };
    let address = match address.len() {
        8 => Ipv4Addr::from(word(0)?).into(),
        32 => {
            let mut bytes = [0; 16];
            for (at, part) in bytes.chunks_exact_mut(4).enumerate() {
                part.copy_from_slice(&word(at * 8)?);
            }
            Ipv6Addr::from(bytes).to_canonical()
        }
        _ => return None,
    };
    Some((address, u16::from_str_radix(port, 16).ok()?))
}

/// A process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Its number.
    pub number: u32,
    /// Its name, at most 15 bytes, any but zero.
    pub name: Vec<u8>,
    /// Name of its container or control group; empty if it is in the root of all groups, or cannot be read.
    pub container: String,
}

/// Processes that hold sockets.
#[derive(Clone, Debug, Default)]
pub struct Holders {
    /// The process of each socket, by inode. Of several processes the one with the largest number: usually it began last, and uses the
    /// socket that its parent handed on.
    pub processes: HashMap<u64, Process>,
    /// Number of processes whose sockets may not be seen.
    pub hidden: u64,
}

/// Lists the sockets of all processes. **Cost**: some microseconds for each open file of each process. **Errors**: there is no /proc.
pub fn holders() -> io::Result<Holders> {
    let mut holders = Holders::default();
    for entry in fs::read_dir("/proc")? {
        let name = entry?.file_name();
        let Some(number) = name.to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        let is_seen = holders.look(number);
        holders.hidden += u64::from(!is_seen);
    }
    Ok(holders)
}

impl Holders {
    /// Adds the sockets of a process. Returns `false` if they may not be seen; a process that has ended has none.
    fn look(&mut self, number: u32) -> bool {
        let directory = Path::new("/proc").join(number.to_string());
        let files = match fs::read_dir(directory.join("fd")) {
            Ok(files) => files,
            Err(error) => return error.kind() != io::ErrorKind::PermissionDenied,
        };
        let mut known: Option<Process> = None;
        for file in files.map_while(Result::ok) {
            let inode = match fs::read_link(file.path()) {
                Ok(link) => inode(&link),
                // The directory may be listed, and its links not be read.
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return false,
                Err(_) => None,
            };
            let Some(inode) = inode else { continue };
            let process = known.get_or_insert_with(|| Process {
                number,
                name: name_of(&directory),
                container: container_of(&directory),
            });
            let holder = self.processes.entry(inode).or_insert(process.clone());
            if holder.number < number {
                *holder = process.clone();
            }
        }
        true
    }
}

/// Name of a process, without its end of line.
fn name_of(directory: &Path) -> Vec<u8> {
    let mut name = fs::read(directory.join("comm")).unwrap_or_default();
    name.pop();
    name
}

/// Name of the container or control group of a process.
fn container_of(directory: &Path) -> String {
    let groups = fs::read_to_string(directory.join("cgroup")).unwrap_or_default();
    container(&groups).unwrap_or_default()
}

/// Name of the container or control group that the lines of `/proc/PID/cgroup` tell (cgroups(7)): of the last part of the path that names a
/// container, else the last part.
fn container(groups: &str) -> Option<String> {
    let paths = groups.lines().filter_map(|line| line.splitn(3, ':').nth(2));
    let path = paths
        .map(|path| path.trim_matches('/'))
        .find(|path| !path.is_empty())?;
    let named = path.rsplit('/').find_map(container_name);
    named.or_else(|| path.rsplit('/').next().map(str::to_owned))
}

/// Short name of a container: `docker-0123456789ab` for `docker-` and 64 digits, of which tools show 12; names of LXC and of machines of
/// systemd. `None` for other control groups.
fn container_name(part: &str) -> Option<String> {
    /// Digits of an identifier, and as many as tools show.
    const DIGITS: (usize, usize) = (64, 12);
    let part = part.strip_suffix(".scope").unwrap_or(part);
    if let Some(name) = part
        .strip_prefix("lxc.payload.")
        .or_else(|| part.strip_prefix("machine-"))
    {
        return Some(name.to_owned());
    }
    let (kind, digits) = part.split_at_checked(part.len().checked_sub(DIGITS.0)?)?;
    let is_identifier = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_identifier.then(|| format!("{kind}{}", &digits[..DIGITS.1]))
}

/// Inode of a link to a socket: `socket:[123]`.
fn inode(link: &Path) -> Option<u64> {
    let text = link.to_str()?.strip_prefix("socket:[")?;
    text.strip_suffix(']')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream, UdpSocket};

    #[test]
    fn containers_have_the_names_that_tools_show() {
        let id = "0123456789abcdef".repeat(4);
        let pod = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice";
        for (groups, name) in [
            (
                format!("0::/system.slice/docker-{id}.scope\n"),
                Some("docker-0123456789ab"),
            ),
            (
                format!("0::/{pod}/cri-containerd-{id}.scope"),
                Some("cri-containerd-0123456789ab"),
            ),
            // Its own services are within the container.
            (
                format!("0::/docker/{id}/system.slice/nginx.service"),
                Some("0123456789ab"),
            ),
            (
                "0::/system.slice/nginx.service\n".to_owned(),
                Some("nginx.service"),
            ),
            (
                "0::/user.slice/user-0.slice/session-3.scope".to_owned(),
                Some("session-3.scope"),
            ),
            ("0::/lxc.payload.web/init.scope".to_owned(), Some("web")),
            (
                "0::/machine.slice/machine-db.scope/payload".to_owned(),
                Some("db"),
            ),
            (
                "9:name=systemd:/\n4:memory:/a/b:c\n0::/\n".to_owned(),
                Some("b:c"),
            ),
            ("0::/\n".to_owned(), None),
            (String::new(), None),
        ] {
            assert_eq!(container(&groups).as_deref(), name, "{groups}");
        }
    }

    #[test]
    fn lines_are_read_as_the_kernel_writes_them() {
        let heading = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode";
        assert_eq!(socket(6, heading), None);
        let listening = "   0: 0100007F:0035 00000000:0000 0A 00000000:00000000 00:00000000 00000000   101        0 4242 1 0000000000000000 100 0 0 10 0";
        let expected = Socket {
            proto: 6,
            local: (Ipv4Addr::LOCALHOST.into(), 53),
            remote: None,
            inode: 4242,
        };
        if cfg!(target_endian = "little") {
            assert_eq!(socket(6, listening), Some(expected));
        }
        let ended = listening.replace("4242", "0");
        assert_eq!(socket(6, &ended), None);
        for length in 0..listening.len() {
            let _ = socket(6, &listening[..length]);
        }
    }

    /// Sockets of this process are listed with their ends, and as this process's.
    #[test]
    fn own_sockets_are_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mapped = UdpSocket::bind("[::ffff:127.0.0.1]:0");
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let mut tables = Tables::open(None).unwrap();
        assert!(tables.addresses.contains(&Ipv4Addr::LOCALHOST.into()));
        // The second reading is as new as the first.
        tables.sockets().unwrap();
        let late = UdpSocket::bind("127.0.0.1:0").unwrap();
        let sockets = tables.sockets().unwrap();
        let holders = holders().unwrap();
        let find = |proto, local: std::net::SocketAddr| {
            let is_it = |it: &&Socket| it.proto == proto && it.local == (local.ip(), local.port());
            *sockets.iter().find(is_it).expect("it is listed")
        };
        let own = |socket: Socket| holders.processes[&socket.inode].number == std::process::id();
        let found = find(6, near.local_addr().unwrap());
        let peer = near.peer_addr().unwrap();
        assert_eq!(found.remote, Some((peer.ip(), peer.port())));
        assert!(own(found));
        for socket in [&udp, &late] {
            let found = find(17, socket.local_addr().unwrap());
            assert_eq!(found.remote, None);
            assert!(own(found));
        }
        if let Ok(mapped) = mapped {
            let port = mapped.local_addr().unwrap().port();
            assert!(own(find(17, ([127, 0, 0, 1], port).into())));
        }
    }
}
