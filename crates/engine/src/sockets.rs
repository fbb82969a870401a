//! Lists of the sockets of this host with their processes, for tables of processes.
//!
//! Who may see all processes often may not read packets of strangers at the same time: so a list has a form in bytes, in which another
//! process of more rights can hand it over.
//!
//! ```text
//! hidden 3                              processes whose sockets may not be seen
//! own 10.0.0.1                          an own address
//! 6 10.0.0.1 22 10.0.0.9 5000 712 ssh.service sshd
//!     protocol, own end, other end (- 0: none), number of the process, its container or control group (-: none), its name
//! ```

use std::fmt::Write as _;
use std::io;
use std::net::IpAddr;
use weir_io::sockets::{Holders, Socket, Tables, holders};
use weir_io::sys::namespace;
use weir_measure::owners::{End, Owners, Process};

/// Most sockets of a list; it leaves out others.
const MOST: usize = weir_measure::owners::MOST;

/// Most bytes of the form in bytes.
pub const MOST_BYTES: usize = MOST * 192;

/// Lister of the sockets of some interfaces' namespaces.
#[derive(Debug)]
pub struct Lister {
    tables: Vec<Tables>,
}

/// Sockets with their processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sockets {
    sockets: Vec<(End, Process)>,
    addresses: Vec<IpAddr>,
    hidden: u64,
}

impl Lister {
    /// Opens the lists of the namespaces of interfaces, which are named as captures name them. **Errors**: a namespace cannot be entered.
    pub fn open<'a>(
        interfaces: impl IntoIterator<Item = &'a str>,
    ) -> Result<Self, namespace::Error> {
        let mut places = Vec::new();
        for interface in interfaces {
            let place = crate::capture::namespaced::namespace_of(interface)
                .ok()
                .flatten()
                .map(|(namespace, _)| namespace);
            if !places.contains(&place) {
                places.push(place);
            }
        }
        let open = |place: &Option<_>| Tables::open(place.as_ref());
        Ok(Self {
            tables: places.iter().map(open).collect::<Result<_, _>>()?,
        })
    }

    /// Lists the sockets that processes hold. **Cost**: milliseconds; it looks at all open files of all processes. **Errors**: errors of
    /// the system.
    pub fn list(&mut self) -> io::Result<Sockets> {
        // Sockets first: one that is made in between has no inode here, and no process of it is looked for.
        let mut lists = Vec::new();
        for table in &mut self.tables {
            lists.extend(table.sockets()?);
        }
        let Holders { processes, hidden } = holders()?;
        let held = |socket: &Socket| {
            let process = processes.get(&socket.inode)?;
            let end = End {
                proto: socket.proto,
                local: socket.local,
                remote: socket.remote,
            };
            let container = process.container.as_bytes();
            Some((end, named(process.number, &process.name, container)))
        };
        let addresses = self.tables.iter().flat_map(|it| &it.addresses);
        Ok(Sockets {
            sockets: lists.iter().filter_map(held).take(MOST).collect(),
            addresses: addresses.copied().collect(),
            hidden,
        })
    }
}

fn named(number: u32, name: &[u8], container: &[u8]) -> Process {
    fn filled<const N: usize>(text: &[u8]) -> [u8; N] {
        let mut filled = [0; N];
        let length = text.len().min(N);
        filled[..length].copy_from_slice(&text[..length]);
        filled
    }
    Process {
        number,
        name: filled(name),
        container: filled(container),
    }
}

impl Sockets {
    /// Teaches tables of processes this list.
    pub fn teach(self, owners: &Owners) {
        owners.learn(self.sockets, self.addresses, self.hidden);
    }

    /// The form in bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("hidden {}\n", self.hidden);
        for address in &self.addresses {
            let _ = writeln!(text, "own {address}");
        }
        let mut bytes = text.into_bytes();
        for (end, process) in &self.sockets {
            let (address, port) = end.local;
            let mut line = format!("{} {address} {port} ", end.proto);
            let _ = match end.remote {
                Some((address, port)) => write!(line, "{address} {port} "),
                None => write!(line, "- 0 "),
            };
            let _ = write!(line, "{} ", process.number);
            bytes.extend_from_slice(line.as_bytes());
            let group = process.container.iter().take_while(|byte| **byte != 0);
            let group = group.map(|byte| {
                if byte.is_ascii_whitespace() {
                    b'_'
                } else {
                    *byte
                }
            });
            let before = bytes.len();
            bytes.extend(group);
            if bytes.len() == before {
                bytes.push(b'-');
            }
            bytes.push(b' ');
            let name = process.name.iter().take_while(|byte| **byte != 0);
            bytes.extend(name.map(|byte| if *byte == b'\n' { b' ' } else { *byte }));
            bytes.push(b'\n');
        }
        bytes
    }

    /// Reads the form in bytes; lines of another form are left out.
    pub fn of(bytes: &[u8]) -> Self {
        let mut list = Self::default();
        for line in bytes.split(|byte| *byte == b'\n') {
            let _ = list.line(line);
        }
        list
    }

    fn line(&mut self, line: &[u8]) -> Option<()> {
        fn word<'a>(
            rest: &mut std::slice::Split<'a, u8, impl FnMut(&u8) -> bool>,
        ) -> Option<&'a str> {
            std::str::from_utf8(rest.next()?).ok()
        }
        let mut words = line.split(|byte| *byte == b' ');
        match word(&mut words)? {
            "hidden" => self.hidden = word(&mut words)?.parse().ok()?,
            "own" => self.addresses.push(word(&mut words)?.parse().ok()?),
            proto => {
                let mut number = || word(&mut words);
                let [local, port, far, far_port, holder] =
                    [number()?, number()?, number()?, number()?, number()?];
                let remote = match far {
                    "-" => None,
                    address => Some((address.parse().ok()?, far_port.parse().ok()?)),
                };
                let group = words.next()?;
                let end = End {
                    proto: proto.parse().ok()?,
                    local: (local.parse().ok()?, port.parse().ok()?),
                    remote,
                };
                // A name may have spaces.
                let fields = [proto, local, port, far, far_port, holder];
                let at: usize = fields.iter().map(|field| field.len() + 1).sum();
                let name = line.get(at + group.len() + 1..)?;
                let group = Some(group).filter(|group| *group != b"-");
                let process = named(holder.parse().ok()?, name, group.unwrap_or_default());
                if self.sockets.len() < MOST {
                    self.sockets.push((end, process));
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_come_back_from_bytes() {
        let pair = |text: &str| {
            let end: std::net::SocketAddr = text.parse().unwrap();
            (end.ip(), end.port())
        };
        let socket = |local, remote: Option<&str>, number, name: &[u8], group: &[u8]| {
            let end = End {
                proto: 6,
                local: pair(local),
                remote: remote.map(pair),
            };
            (end, named(number, name, group))
        };
        let list = Sockets {
            sockets: vec![
                socket(
                    "10.0.0.1:22",
                    Some("10.0.0.9:5000"),
                    712,
                    b"sshd",
                    b"ssh.service",
                ),
                socket("[::]:80", None, 7, b"a name \xff of 15", b""),
                socket("0.0.0.0:1", None, 8, b"", b"docker-0123456789ab\xff"),
            ],
            addresses: vec!["10.0.0.1".parse().unwrap(), "fe80::1".parse().unwrap()],
            hidden: 3,
        };
        let bytes = list.to_bytes();
        assert_eq!(Sockets::of(&bytes), list);
        assert!(bytes.len() <= MOST_BYTES);
        // Half of it, and nonsense, are read as far as they go.
        for end in 0..bytes.len() {
            assert!(Sockets::of(&bytes[..end]).sockets.len() <= 3);
        }
        assert_eq!(
            Sockets::of(b"6 x\nhidden -\n\xff \xff\nown\n"),
            Sockets::default()
        );
    }

    #[test]
    fn own_sockets_are_listed() {
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let local = socket.local_addr().unwrap();
        let list = Lister::open(["lo"]).unwrap().list().unwrap();
        let own = |(end, process): &&(End, Process)| {
            end.local == (local.ip(), local.port()) && process.number == std::process::id()
        };
        assert!(list.sockets.iter().any(|it| own(&it)));
        let owners = Owners::default();
        list.teach(&owners);
        assert!(owners.counts().sockets > 0);
    }
}
