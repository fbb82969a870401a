//! The network of this process: its interfaces, how they are stacked, their addresses, and where default routes lead.
//!
//! [`Network::read`] asks the kernel by netlink; the rest of the module works on bytes. Nothing is changed, and no privilege is
//! needed. All answers are about the network namespace of the calling thread.
//!
//! **Source**: linux/if_link.h, linux/if_addr.h, linux/rtnetlink.h, linux/nexthop.h.

use crate::netlink::{self, AF_INET6, Message, RTM_GETLINK, RTM_GETROUTE, each_attribute, number};
use crate::sys::device;
use crate::sys::packet_socket::index_of;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::IpAddr;

/// Bytes of `struct ifinfomsg`, `struct ifaddrmsg`, `struct rtmsg` and `struct nhmsg`.
const LINK: usize = 16;
const ADDRESS: usize = 8;
const ROUTE: usize = 12;
const NEXT_HOP: usize = 8;

const RTM_GETADDR: u16 = 22;
const RTM_GETNEXTHOP: u16 = 106;

/// Kinds of interfaces of which `IFLA_LINK` names the other end of a cable, and no interface below.
const PAIRS: [&[u8]; 3] = [b"veth", b"netkit", b"vxcan"];

/// Kinds of interfaces whose ports hand frames on to each other.
const BRIDGES: [&[u8]; 3] = [b"bridge", b"openvswitch", b"batadv"];

/// An interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Number of the interface.
    pub index: u32,
    /// Name of the interface.
    pub name: String,
    /// Link-layer address, usually six bytes.
    pub address: Vec<u8>,
    /// Whether what is sent here comes back to this host.
    pub is_loopback: bool,
    /// Interface below, which carries the packets of a VLAN, a macvlan or a tunnel.
    pub below: Option<u32>,
    /// Interface above, of which this one is a port: a bridge, bond, team or VRF.
    pub master: Option<u32>,
    /// Whether the interface is a port of a bridge.
    pub is_bridge_port: bool,
    /// Whether the interface is an end of a virtual cable: a veth, for example.
    pub is_cable: bool,
    /// Whether an XDP program is attached.
    pub has_xdp: bool,
    /// Whether frames to send wait in a queueing discipline, whose drops are not in the counters of the interface.
    pub has_queue: bool,
}

/// A default route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct DefaultRoute {
    /// Interface to which it leads.
    pub interface: u32,
    /// Whether it is one of IPv6.
    pub is_ipv6: bool,
}

/// Interfaces, addresses and default routes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Network {
    /// All interfaces.
    pub interfaces: Vec<Interface>,
    /// Addresses of this host, and the interface of each.
    pub addresses: Vec<(IpAddr, u32)>,
    /// Default routes of all tables, and routes to half of all addresses, as VPNs have them.
    pub defaults: BTreeSet<DefaultRoute>,
}

impl Network {
    /// Asks the kernel. **Cost**: some system calls, and memory for all routes. **Errors**: errors
    /// of netlink.
    pub fn read() -> io::Result<Self> {
        let links = device::dump(&netlink::dump(RTM_GETLINK, LINK))?;
        let addresses = device::dump(&netlink::dump(RTM_GETADDR, ADDRESS))?;
        let routes = device::dump(&netlink::dump(RTM_GETROUTE, ROUTE))?;
        // Objects for next hops are there since Linux 5.3.
        let hops = device::dump(&netlink::dump(RTM_GETNEXTHOP, NEXT_HOP)).unwrap_or_default();
        Self::parse(&links, &addresses, &routes, &hops)
    }

    /// Reads the kernel's answers, each of messages back to back. **Errors**: bytes that are not a
    /// message.
    pub fn parse(links: &[u8], addresses: &[u8], routes: &[u8], hops: &[u8]) -> io::Result<Self> {
        let mut network = Self::default();
        for message in netlink::messages(links) {
            network.interfaces.extend(interface(&message?));
        }
        for message in netlink::messages(addresses) {
            network.addresses.extend(address(&message?));
        }
        let hops = next_hops(hops)?;
        for message in netlink::messages(routes) {
            network.defaults.extend(default_routes(&message?, &hops));
        }
        Ok(network)
    }

    /// Returns the interface of this name.
    /// The name may be an alternative one (`ip link property add dev eth0 altname enp1s0`), which the kernel is asked for.
    pub fn named(&self, name: &str) -> Option<&Interface> {
        let by_name = self
            .interfaces
            .iter()
            .find(|interface| interface.name == name);
        by_name.or_else(|| index_of(name).and_then(|index| self.numbered(index)))
    }

    /// Returns the interface of this number.
    pub fn numbered(&self, index: u32) -> Option<&Interface> {
        self.interfaces
            .iter()
            .find(|interface| interface.index == index)
    }

    /// Returns `start` and all interfaces that it carries: VLANs, macvlans and tunnels on it, the bridge or bond of which it is a
    /// port, and what lies on those.
    pub fn above(&self, start: u32) -> BTreeSet<u32> {
        self.reach(&[start], |network, index| {
            let masters = network
                .numbered(index)
                .and_then(|interface| interface.master);
            let on_it = network
                .interfaces
                .iter()
                .filter(move |interface| interface.below == Some(index));
            on_it
                .map(|interface| interface.index)
                .chain(masters)
                .collect()
        })
    }

    /// Returns `start` and all interfaces by which its packets leave: the interface below, the ports of a bridge or bond, and
    /// what lies below those.
    pub fn below(&self, start: u32) -> BTreeSet<u32> {
        self.reach(&[start], |network, index| {
            let below = network
                .numbered(index)
                .and_then(|interface| interface.below);
            let ports = network
                .interfaces
                .iter()
                .filter(move |interface| interface.master == Some(index));
            ports
                .map(|interface| interface.index)
                .chain(below)
                .collect()
        })
    }

    /// Returns all interfaces that share a cable with `start`.
    pub fn beside(&self, start: u32) -> BTreeSet<u32> {
        self.below(start)
            .into_iter()
            .flat_map(|index| self.above(index))
            .collect()
    }

    fn reach(&self, start: &[u32], next: impl Fn(&Self, u32) -> Vec<u32>) -> BTreeSet<u32> {
        let mut found: BTreeSet<u32> = start.iter().copied().collect();
        let mut waiting = start.to_vec();
        while let Some(index) = waiting.pop() {
            let new = next(self, index)
                .into_iter()
                .filter(|other| found.insert(*other))
                .collect::<Vec<_>>();
            waiting.extend(new);
        }
        found
    }
}

fn interface(message: &Message<'_>) -> Option<Interface> {
    const RTM_NEWLINK: u16 = 16;
    const IFF_LOOPBACK: u32 = 8;
    const IFLA_ADDRESS: u16 = 1;
    const IFLA_IFNAME: u16 = 3;
    const IFLA_LINK: u16 = 5;
    const IFLA_QDISC: u16 = 6;
    const IFLA_MASTER: u16 = 10;
    const IFLA_LINKINFO: u16 = 18;
    const IFLA_LINK_NETNSID: u16 = 37;
    const IFLA_XDP: u16 = 43;
    const IFLA_XDP_ATTACHED: u16 = 2;
    const IFLA_INFO_KIND: u16 = 1;
    const IFLA_INFO_DATA: u16 = 2;
    // The interface below a VXLAN tunnel is not in IFLA_LINK.
    const IFLA_VXLAN_LINK: u16 = 3;
    const IFLA_INFO_SLAVE_KIND: u16 = 4;
    let attributes = message
        .body
        .get(LINK..)
        .filter(|_| message.kind == RTM_NEWLINK)?;
    let (index, flags) = (number(message.body, 4)?, number(message.body, 8)?);
    let mut found = Interface {
        index,
        is_loopback: flags & IFF_LOOPBACK != 0,
        ..Interface::default()
    };
    let mut has_foreign_end = false;
    for (kind, value) in each_attribute(attributes) {
        match kind {
            IFLA_ADDRESS => found.address = value.to_vec(),
            IFLA_IFNAME => found.name = String::from_utf8_lossy(text(value)).into_owned(),
            IFLA_QDISC => found.has_queue = text(value) != b"noqueue",
            IFLA_LINK => found.below = number(value, 0).filter(|below| ![0, index].contains(below)),
            IFLA_MASTER => found.master = number(value, 0).filter(|master| *master != 0),
            // The other end is in another namespace, and so is its number.
            IFLA_LINK_NETNSID => has_foreign_end = true,
            IFLA_XDP => {
                let mut inside = each_attribute(value);
                found.has_xdp = inside
                    .any(|(kind, value)| kind == IFLA_XDP_ATTACHED && value.first() != Some(&0));
            }
            IFLA_LINKINFO => {
                let named = |wanted| {
                    each_attribute(value)
                        .find(|(kind, _)| *kind == wanted)
                        .map(|(_, value)| value)
                };
                let data = named(IFLA_INFO_DATA)
                    .filter(|_| named(IFLA_INFO_KIND).map(text) == Some(b"vxlan"));
                let carrier = data.and_then(|data| {
                    each_attribute(data).find(|(kind, _)| *kind == IFLA_VXLAN_LINK)
                });
                found.below = carrier
                    .and_then(|(_, value)| number(value, 0))
                    .or(found.below);
                for (kind, value) in each_attribute(value) {
                    found.is_cable |= kind == IFLA_INFO_KIND && PAIRS.contains(&text(value));
                    found.is_bridge_port |=
                        kind == IFLA_INFO_SLAVE_KIND && BRIDGES.contains(&text(value));
                }
            }
            _ => {}
        }
    }
    if has_foreign_end || found.is_cable {
        found.below = None;
    }
    Some(found)
}

/// The bytes before the first zero.
fn text(value: &[u8]) -> &[u8] {
    value.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn address(message: &Message<'_>) -> Option<(IpAddr, u32)> {
    const RTM_NEWADDR: u16 = 20;
    const IFA_ADDRESS: u16 = 1;
    const IFA_LOCAL: u16 = 2;
    let attributes = message
        .body
        .get(ADDRESS..)
        .filter(|_| message.kind == RTM_NEWADDR)?;
    let index = number(message.body, 4)?;
    // At a point-to-point interface IFA_ADDRESS is the other end.
    let of = |wanted| {
        each_attribute(attributes)
            .find(|(kind, _)| *kind == wanted)
            .and_then(|(_, value)| ip(value))
    };
    Some((of(IFA_LOCAL).or_else(|| of(IFA_ADDRESS))?, index))
}

fn ip(bytes: &[u8]) -> Option<IpAddr> {
    let four = <[u8; 4]>::try_from(bytes).ok().map(IpAddr::from);
    four.or_else(|| <[u8; 16]>::try_from(bytes).ok().map(IpAddr::from))
}

/// Interfaces of next-hop objects, by number; a group has the numbers of its members.
#[derive(Debug, Default)]
struct NextHops {
    interfaces: BTreeMap<u32, u32>,
    groups: BTreeMap<u32, Vec<u32>>,
}

impl NextHops {
    fn of(&self, id: u32) -> Vec<u32> {
        let members = self.groups.get(&id).cloned().unwrap_or_else(|| vec![id]);
        members
            .iter()
            .filter_map(|member| self.interfaces.get(member).copied())
            .collect()
    }
}

fn next_hops(bytes: &[u8]) -> io::Result<NextHops> {
    const RTM_NEWNEXTHOP: u16 = 104;
    const NHA_ID: u16 = 1;
    const NHA_GROUP: u16 = 2;
    const NHA_OIF: u16 = 5;
    /// Bytes of `struct nexthop_grp`: the number, then weights.
    const MEMBER: usize = 8;
    let mut hops = NextHops::default();
    for message in netlink::messages(bytes) {
        let message = message?;
        let Some(attributes) = message
            .body
            .get(NEXT_HOP..)
            .filter(|_| message.kind == RTM_NEWNEXTHOP)
        else {
            continue;
        };
        let of = |wanted| {
            each_attribute(attributes)
                .find(|(kind, _)| *kind == wanted)
                .map(|(_, value)| value)
        };
        let Some(id) = of(NHA_ID).and_then(|value| number(value, 0)) else {
            continue;
        };
        hops.interfaces.extend(
            of(NHA_OIF)
                .and_then(|value| number(value, 0))
                .map(|interface| (id, interface)),
        );
        if let Some(group) = of(NHA_GROUP) {
            hops.groups.insert(
                id,
                group
                    .chunks(MEMBER)
                    .filter_map(|member| number(member, 0))
                    .collect(),
            );
        }
    }
    Ok(hops)
}

/// The interfaces of a route to all addresses, to half of them, or to all global ones of IPv6.
fn default_routes(message: &Message<'_>, hops: &NextHops) -> Vec<DefaultRoute> {
    const RTM_NEWROUTE: u16 = 24;
    const RTN_UNICAST: u8 = 1;
    const RTM_F_CLONED: u32 = 0x200;
    const RTA_OIF: u16 = 4;
    const RTA_MULTIPATH: u16 = 9;
    const RTA_NH_ID: u16 = 30;
    let &[family, bits, _, _, _, _, _, kind, ..] = message.body else {
        return Vec::new();
    };
    let is_cached = number(message.body, 8).is_none_or(|flags| flags & RTM_F_CLONED != 0);
    // 2000::/3 holds all global addresses of IPv6 that are given out (RFC 4291, 2.4).
    let most = if i32::from(family) == libc::AF_INET6 {
        3
    } else {
        1
    };
    if message.kind != RTM_NEWROUTE || bits > most || kind != RTN_UNICAST || is_cached {
        return Vec::new();
    }
    let mut interfaces = Vec::new();
    for (kind, value) in each_attribute(message.body.get(ROUTE..).unwrap_or_default()) {
        match kind {
            RTA_OIF => interfaces.extend(number(value, 0)),
            RTA_MULTIPATH => interfaces.extend(paths(value)),
            RTA_NH_ID => {
                interfaces.extend(number(value, 0).map(|id| hops.of(id)).unwrap_or_default())
            }
            _ => {}
        }
    }
    interfaces
        .into_iter()
        .map(|interface| DefaultRoute {
            interface,
            is_ipv6: family == AF_INET6,
        })
        .collect()
}

/// The interfaces of `struct rtnexthop`, one after the other: length (two bytes), flags, hops,
/// interface, attributes.
fn paths(mut value: &[u8]) -> Vec<u32> {
    const LEAST: usize = 8;
    let mut interfaces = Vec::new();
    while let (&[a, b, ..], Some(interface)) = (value, number(value, 4)) {
        interfaces.push(interface);
        let len = usize::from(u16::from_ne_bytes([a, b])).max(LEAST);
        value = value.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    interfaces
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::netlink::fuzz_body;

    /// An attribute with its padding.
    fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
        let mut bytes = [(4 + value.len() as u16).to_ne_bytes(), kind.to_ne_bytes()].concat();
        bytes.extend(value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn message(kind: u16, header: &[u8], attributes: &[Vec<u8>]) -> Vec<u8> {
        let body = [header, &attributes.concat()].concat();
        let mut bytes = (16 + body.len() as u32).to_ne_bytes().to_vec();
        bytes.extend(kind.to_ne_bytes());
        bytes.extend([2, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend(body);
        bytes
    }

    fn link(index: u32, flags: u32, attributes: &[Vec<u8>]) -> Vec<u8> {
        message(
            16,
            &[
                &[0, 0, 1, 0],
                &index.to_ne_bytes()[..],
                &flags.to_ne_bytes(),
                &[0; 4],
            ]
            .concat(),
            attributes,
        )
    }

    /// Bytes as linux/if_link.h, linux/if_addr.h and linux/rtnetlink.h lay them out.
    #[test]
    fn each_field_is_where_the_header_files_have_it() {
        let kind = |name: &[u8], port: &[u8]| {
            attribute(
                18 | 0x8000,
                &[attribute(1, name), attribute(4, port)].concat(),
            )
        };
        let links = [
            link(1, 8, &[attribute(3, b"lo\0")]),
            link(
                2,
                0,
                &[
                    attribute(1, &[2, 0, 0, 0, 0, 7]),
                    attribute(3, b"eth0\0"),
                    attribute(6, b"fq_codel\0"),
                    attribute(10, &9u32.to_ne_bytes()),
                    kind(b"", b"bridge"),
                ],
            ),
            link(
                3,
                0,
                &[
                    attribute(3, b"eth0.5\0"),
                    attribute(5, &2u32.to_ne_bytes()),
                    kind(b"vlan\0", b""),
                ],
            ),
            link(
                4,
                0,
                &[
                    attribute(3, b"veth0\0"),
                    attribute(6, b"noqueue\0"),
                    attribute(5, &2u32.to_ne_bytes()),
                    kind(b"veth\0", b"bond\0"),
                ],
            ),
            link(
                5,
                0,
                &[
                    attribute(3, b"away\0"),
                    attribute(5, &2u32.to_ne_bytes()),
                    attribute(37, &[0; 4]),
                ],
            ),
        ]
        .concat();
        let address = |index: u32, attributes: &[Vec<u8>]| {
            message(
                20,
                &[&[2, 24, 0, 0], &index.to_ne_bytes()[..]].concat(),
                attributes,
            )
        };
        let addresses = [
            address(
                2,
                &[attribute(1, &[192, 0, 2, 9]), attribute(2, &[192, 0, 2, 1])],
            ),
            address(
                3,
                &[attribute(
                    1,
                    &[0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
                )],
            ),
        ]
        .concat();
        let route = |bits: u8, kind: u8, flags: u32, attributes: &[Vec<u8>]| {
            message(
                24,
                &[&[10, bits, 0, 0, 254, 0, 0, kind], &flags.to_ne_bytes()[..]].concat(),
                attributes,
            )
        };
        let path = |index: u32, more: &[u8]| {
            [
                &(8 + more.len() as u16).to_ne_bytes()[..],
                &[0, 0],
                &index.to_ne_bytes(),
                more,
            ]
            .concat()
        };
        let routes = [
            route(0, 1, 0, &[attribute(4, &2u32.to_ne_bytes())]),
            route(4, 1, 0, &[attribute(4, &3u32.to_ne_bytes())]),
            route(0, 7, 0, &[attribute(4, &3u32.to_ne_bytes())]),
            route(0, 1, 0x200, &[attribute(4, &3u32.to_ne_bytes())]),
            route(
                1,
                1,
                0,
                &[attribute(
                    9,
                    &[path(4, &attribute(5, &[1, 2, 3, 4])), path(5, &[])].concat(),
                )],
            ),
            route(0, 1, 0, &[attribute(30, &70u32.to_ne_bytes())]),
        ]
        .concat();
        let hop = |attributes: &[Vec<u8>]| message(104, &[0; 8], attributes);
        let hops = [
            hop(&[
                attribute(1, &70u32.to_ne_bytes()),
                attribute(2, &[71u32.to_ne_bytes(), [0; 4]].concat()),
            ]),
            hop(&[
                attribute(1, &71u32.to_ne_bytes()),
                attribute(5, &6u32.to_ne_bytes()),
            ]),
        ]
        .concat();
        let network = Network::parse(&links, &addresses, &routes, &hops).unwrap();
        let eth0 = network.named("eth0").unwrap();
        assert_eq!(
            (&eth0.address[..], eth0.master, eth0.is_bridge_port),
            (&[2, 0, 0, 0, 0, 7][..], Some(9), true)
        );
        assert!(network.named("lo").unwrap().is_loopback && !eth0.is_loopback);
        let below = |name: &str| network.named(name).unwrap().below;
        assert_eq!(
            (below("eth0.5"), below("veth0"), below("away")),
            (Some(2), None, None)
        );
        assert!(!network.named("veth0").unwrap().is_bridge_port);
        assert!(eth0.has_queue && !network.named("veth0").unwrap().has_queue);
        let found: Vec<String> = network
            .addresses
            .iter()
            .map(|(ip, index)| format!("{ip} {index}"))
            .collect();
        assert_eq!(found, ["192.0.2.1 2", "2001:db8::1 3"]);
        let defaults: Vec<u32> = network
            .defaults
            .iter()
            .map(|route| route.interface)
            .collect();
        assert_eq!(defaults, [2, 4, 5, 6]);
        assert!(network.defaults.iter().all(|route| route.is_ipv6));
        assert_eq!(
            (network.beside(3), network.below(3)),
            ([2, 3, 9].into(), [2, 3].into())
        );
        for bytes in [links, addresses, routes, hops] {
            (0..bytes.len()).for_each(|len| fuzz_body::network(&bytes[..len]));
            for at in 0..bytes.len() {
                for value in (0..=255).step_by(if cfg!(miri) { 85 } else { 5 }) {
                    let mut damaged = bytes.clone();
                    damaged[at] = value;
                    fuzz_body::network(&damaged);
                }
            }
        }
    }
}
