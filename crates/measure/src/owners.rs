//! Processes whose sockets send and receive the packets.
//!
//! A table of processes counts 5-tuples. An answer looks up both ends of each, and adds up the rows of each process: the packets that its
//! sockets sent, and the packets that they received. An end without a known socket is another host's, or its socket was never listed.

use crate::KeyKind;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::RwLock;
use weir_packet::flow::FlowKey;

/// Most sockets that are kept, also closed ones: some 15 MB.
pub const MOST: usize = 1 << 16;

/// Flag of a key that stands for a process: its source holds the name, its destination the number. Of a container, both hold the name.
const OWNER: u8 = 1 << 5;

/// Own end of a socket; an end of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct End {
    /// IP protocol.
    pub proto: u8,
    /// Own address and port. An address of zeros stands for all own addresses of its family, for IPv6 also for all IPv4 addresses.
    pub local: (IpAddr, u16),
    /// Address and port of the other end; `None` if the socket takes packets of all.
    pub remote: Option<(IpAddr, u16)>,
}

/// A process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Process {
    /// Its number; 0 stands for no process.
    pub number: u32,
    /// Its name, filled up with zeros.
    pub name: [u8; 16],
    /// Name of its container or control group, filled up with zeros; zeros if there is none.
    pub container: [u8; 32],
}

impl Process {
    /// Key that stands for the process, or for its container.
    pub(crate) fn key(self, kind: KeyKind) -> FlowKey {
        if kind == KeyKind::Container {
            let mut key = FlowKey {
                flags: OWNER,
                ..FlowKey::NONE
            };
            // No process at all is another row than processes in the root of all groups.
            let none = u8::from(self.number == 0);
            key.proto = none;
            key.src.copy_from_slice(&self.container[..16]);
            key.dst.copy_from_slice(&self.container[16..]);
            return key;
        }

        let mut key = FlowKey {
            src: self.name,
            flags: OWNER,
            ..FlowKey::NONE
        };
        key.dst[..4].copy_from_slice(&self.number.to_be_bytes());
        key
    }

    /// Name of the container of a key of [`KeyKind::Container`]: `/` for the root of all groups; `None`: no known process.
    pub fn container_of(key: &FlowKey) -> Option<String> {
        let name = [key.src, key.dst].concat();
        let name = name.split(|byte| *byte == 0).next().unwrap_or(&[]);
        (key.proto == 0).then(|| match name {
            [] => "/".to_owned(),
            name => name.escape_ascii().to_string(),
        })
    }

    /// Returns the process of a key of [`KeyKind::Process`].
    pub fn of(key: &FlowKey) -> Self {
        let [a, b, c, d, ..] = key.dst;
        Self {
            number: u32::from_be_bytes([a, b, c, d]),
            name: key.src,
            container: [0; 32],
        }
    }

    /// Name as text; control characters and bytes that are not UTF-8 are escaped.
    pub fn text(&self) -> String {
        let name = self.name.split(|byte| *byte == 0).next().unwrap_or(&[]);
        name.escape_ascii().to_string()
    }
}

/// Processes of sockets. A thread that lists the sockets [teaches](Self::learn) them, and answers look them up.
#[derive(Debug, Default)]
pub struct Owners {
    known: RwLock<Known>,
}

#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Process of each socket, and the number of the latest list that had it.
    ends: HashMap<End, (Process, u64)>,
    addresses: HashSet<IpAddr>,
    lists: u64,
    counts: Counts,
}

/// Counts of the lists of sockets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Sockets that are known, also closed ones.
    pub sockets: u64,
    /// Sockets that were forgotten for lack of room.
    pub lost: u64,
    /// Processes whose sockets may not be seen, in the latest list.
    pub hidden: u64,
}

impl Owners {
    /// Takes a list of sockets, the own addresses, and the number of processes whose sockets may not be seen. Sockets of earlier lists
    /// that have closed are kept, because their packets were counted, until there are more than [`MOST`]: then they are forgotten.
    pub fn learn(
        &self,
        sockets: impl IntoIterator<Item = (End, Process)>,
        addresses: impl IntoIterator<Item = IpAddr>,
        hidden: u64,
    ) {
        let mut known = self.known.write().unwrap_or_else(|it| it.into_inner());
        let known = &mut *known;
        known.lists += 1;
        let list = known.lists;
        known.addresses = addresses.into_iter().collect();
        for (end, process) in sockets {
            let is_new = !known.ends.contains_key(&end);
            if is_new && known.ends.len() >= MOST {
                let before = known.ends.len();
                known.ends.retain(|_, (_, seen)| *seen == list);
                known.counts.lost += (before - known.ends.len()) as u64;
            }
            if is_new && known.ends.len() >= MOST {
                known.counts.lost += 1;
                continue;
            }
            known.ends.insert(end, (process, list));
        }
        known.counts.hidden = hidden;
        known.counts.sockets = known.ends.len() as u64;
    }

    /// Counts of the lists so far.
    pub fn counts(&self) -> Counts {
        self.with(|known| known.counts)
    }

    /// Calls `look` with the known sockets.
    pub(crate) fn with<T>(&self, look: impl FnOnce(&Known) -> T) -> T {
        look(&self.known.read().unwrap_or_else(|it| it.into_inner()))
    }
}

impl Known {
    /// Processes of the source and of the destination of a flow.
    pub(crate) fn of(&self, flow: &FlowKey) -> [Option<Process>; 2] {
        let ends = || {
            let (sport, dport) = flow.ports()?;
            Some([(flow.source()?, sport), (flow.destination()?, dport)])
        };
        match ends() {
            None => [None; 2],
            Some([src, dst]) => [
                self.process(flow.proto, src, dst),
                self.process(flow.proto, dst, src),
            ],
        }
    }

    /// Whether the source of a flow is an own address.
    pub(crate) fn is_sent(&self, flow: &FlowKey) -> bool {
        flow.source()
            .is_some_and(|address| self.addresses.contains(&address))
    }

    /// Process of the socket that is most like this: connected, of this address, of all addresses.
    fn process(&self, proto: u8, local: (IpAddr, u16), remote: (IpAddr, u16)) -> Option<Process> {
        let find = |local, remote| {
            let end = End {
                proto,
                local,
                remote,
            };
            self.ends.get(&end).map(|(process, _)| *process)
        };
        let (address, port) = local;
        let of_all = || {
            let is_own = self.addresses.contains(&address);
            let v6 = || find((Ipv6Addr::UNSPECIFIED.into(), port), None);
            let v4 = || find((Ipv4Addr::UNSPECIFIED.into(), port), None);
            match address {
                _ if !is_own => None,
                IpAddr::V4(_) => v4().or_else(v6),
                IpAddr::V6(_) => v6(),
            }
        };
        find(local, Some(remote))
            .or_else(|| find(local, None))
            .or_else(of_all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn process(number: u32, text: &str) -> Process {
        let mut name = [0; 16];
        name[..text.len()].copy_from_slice(text.as_bytes());
        Process {
            number,
            name,
            ..Process::default()
        }
    }

    fn end(proto: u8, local: &str, remote: Option<&str>) -> End {
        let pair = |text: &str| {
            let end: std::net::SocketAddr = text.parse().unwrap();
            (end.ip(), end.port())
        };
        End {
            proto,
            local: pair(local),
            remote: remote.map(pair),
        }
    }

    #[test]
    fn the_most_particular_socket_wins() {
        let owners = Owners::default();
        let sockets = [
            (end(6, "[::]:22", None), process(1, "listens")),
            (
                end(6, "10.0.0.1:22", Some("10.0.0.9:5000")),
                process(2, "serves"),
            ),
            (end(17, "0.0.0.0:53", None), process(3, "resolves")),
            (end(17, "10.0.0.1:53", None), process(4, "names")),
        ];
        let own = ["10.0.0.1", "10.0.0.2", "fd00::1"].map(|it| it.parse().unwrap());
        owners.learn(sockets, own, 5);
        assert_eq!(owners.counts().hidden, 5);
        let of = |proto, local: &str, remote: &str| {
            let wanted = end(proto, local, Some(remote));
            let found = owners.with(|known| {
                known.process(proto, wanted.local, wanted.remote.expect("it is given"))
            });
            found.map(|process| process.text())
        };
        let is = |name: &str| Some(name.to_owned());
        assert_eq!(of(6, "10.0.0.1:22", "10.0.0.9:5000"), is("serves"));
        assert_eq!(of(6, "10.0.0.1:22", "10.0.0.9:5001"), is("listens"));
        assert_eq!(of(6, "[fd00::1]:22", "[fd00::9]:5001"), is("listens"));
        assert_eq!(of(17, "10.0.0.1:53", "10.0.0.9:5001"), is("names"));
        assert_eq!(of(17, "10.0.0.2:53", "10.0.0.9:5001"), is("resolves"));
        // The resolver of another host, and a socket that is closed or of another protocol.
        assert_eq!(of(17, "10.0.0.9:53", "10.0.0.1:5001"), None);
        assert_eq!(of(17, "[fd00::1]:53", "[fd00::9]:5001"), None);
        assert_eq!(of(6, "10.0.0.1:53", "10.0.0.9:5001"), None);
    }

    #[test]
    fn closed_sockets_are_kept_until_there_are_too_many() {
        let owners = Owners::default();
        let socket = |number: usize| {
            let address = Ipv4Addr::from(number as u32);
            let local = (IpAddr::from(address), 1);
            let end = End {
                proto: 6,
                local,
                remote: None,
            };
            (end, process(1, "x"))
        };
        owners.learn((0..MOST).map(socket), [], 0);
        owners.learn((0..10).map(socket), [], 0);
        assert_eq!(owners.counts().sockets, MOST as u64);
        owners.learn((MOST - 5..MOST + 5).map(socket), [], 0);
        let counts = owners.counts();
        assert_eq!((counts.sockets, counts.lost), (10, MOST as u64 - 5));
        owners.learn((0..MOST + 7).map(socket), [], 0);
        let counts = owners.counts();
        assert_eq!(counts.sockets, MOST as u64);
        // The ten of the list before made room, and seven found none.
        assert_eq!(counts.lost, MOST as u64 - 5 + 17);
    }

    #[test]
    fn names_have_no_control_characters() {
        let escaped = process(7, "a\x1b[2J\u{202e}b");
        assert_eq!(Process::of(&escaped.key(KeyKind::Process)), escaped);
        let text = escaped.text();
        assert!(
            text.bytes().all(|byte| (b' '..0x7f).contains(&byte)),
            "{text}"
        );
    }
}
