//! The flows: fixed five-tuples derived from the seed, most frequent first.

use crate::random::{hash, permute};
use crate::truth::Row;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Largest number of flows of one client address. A pool of at least as many servers keeps the address pairs distinct.
const FLOWS_PER_CLIENT: u64 = 8;
/// Base-2 logarithm of the number of networks of servers over IPv6.
const SERVER_BITS: u32 = 17;

// Domains of the seed, so that hashes for different purposes do not depend on each other.
const CLIENT: u64 = 1;
const SERVER: u64 = 2;
const FLOW: u64 = 3;

/// Network and transport protocol of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Tcp4,
    Udp4,
    Icmp4,
    Tcp6,
    Udp6,
    Icmp6,
}

impl Kind {
    #[inline]
    pub(crate) fn is_ipv6(self) -> bool {
        matches!(self, Kind::Tcp6 | Kind::Udp6 | Kind::Icmp6)
    }

    /// Number in the IPv4 protocol or IPv6 next-header field (IANA).
    #[inline]
    pub(crate) fn protocol(self) -> u8 {
        match self {
            Kind::Tcp4 | Kind::Tcp6 => 6,
            Kind::Udp4 | Kind::Udp6 => 17,
            Kind::Icmp4 => 1,
            Kind::Icmp6 => 58,
        }
    }

    /// Bytes of the transport header.
    #[inline]
    pub(crate) fn transport_len(self) -> usize {
        match self {
            Kind::Tcp4 | Kind::Tcp6 => 20,
            _ => 8,
        }
    }
}

/// A flow and the counts of its packets: 64 bytes, so that a packet costs one cache line.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// Source address; an IPv4 address fills the first four bytes.
    pub(crate) source: [u8; 16],
    pub(crate) destination: [u8; 16],
    /// Source port; for ICMP, the message type.
    pub(crate) source_port: u16,
    /// Destination port; for ICMP, the identifier.
    pub(crate) destination_port: u16,
    /// VLAN identifier in the low 12 bits (0: untagged), and [`FROM_SERVER`].
    tag: u16,
    pub(crate) kind: Kind,
    pub(crate) ttl: u8,
    /// Rows of the truth that each whole packet of this flow matches.
    pub(crate) rows: u32,
    /// Next sequence number of TCP or ICMP.
    pub(crate) sequence: u32,
    /// Number of packets that show the five-tuple: all but later fragments.
    pub(crate) packets: u64,
    /// Bytes of these packets, without FCS.
    pub(crate) bytes: u64,
}

const FROM_SERVER: u16 = 1 << 15;
const VLAN_MASK: u16 = 0x0fff;

impl Flow {
    /// VLAN identifier, 0 if untagged.
    #[inline]
    pub(crate) fn vlan(&self) -> u16 {
        self.tag & VLAN_MASK
    }

    /// Whether the server sends the packets of this flow.
    #[inline]
    pub(crate) fn sent_by_server(&self) -> bool {
        self.tag & FROM_SERVER != 0
    }

    /// Bytes of the link-layer header.
    #[inline]
    pub(crate) fn link_len(&self) -> usize {
        if self.vlan() == 0 { 14 } else { 18 }
    }

    /// Bytes of all headers.
    #[inline]
    pub(crate) fn header_len(&self) -> usize {
        let network = if self.kind.is_ipv6() { 40 } else { 20 };
        self.link_len() + network + self.kind.transport_len()
    }

    /// The five-tuple and the counts.
    pub(crate) fn to_count(&self) -> FlowCount {
        let address = |bytes: &[u8; 16]| {
            if self.kind.is_ipv6() {
                IpAddr::V6(Ipv6Addr::from(*bytes))
            } else {
                IpAddr::V4(ipv4(bytes))
            }
        };
        let has_ports = !matches!(self.kind, Kind::Icmp4 | Kind::Icmp6);
        let port = |port: u16| if has_ports { port } else { 0 };
        FlowCount {
            source: address(&self.source),
            destination: address(&self.destination),
            protocol: self.kind.protocol(),
            source_port: port(self.source_port),
            destination_port: port(self.destination_port),
            vlan: (self.vlan() != 0).then(|| self.vlan()),
            packets: self.packets,
            bytes: self.bytes,
        }
    }
}

/// A flow's five-tuple and its counts so far.
///
/// **Units**: packets, and bytes on the wire without FCS. Later fragments are not counted here, because no reader of single
/// frames can see their ports; the row `ip[6:2] & 0x1fff != 0` of the truth counts the untagged ones.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct FlowCount {
    /// Source address.
    pub source: IpAddr,
    /// Destination address.
    pub destination: IpAddr,
    /// IANA protocol number: 6, 17, 1 or 58.
    pub protocol: u8,
    /// Source port, 0 for ICMP.
    pub source_port: u16,
    /// Destination port, 0 for ICMP.
    pub destination_port: u16,
    /// VLAN identifier of a tagged flow.
    pub vlan: Option<u16>,
    /// Packets that carry this five-tuple.
    pub packets: u64,
    /// Bytes of these packets.
    pub bytes: u64,
}

/// Base-2 logarithms of the numbers of addresses from 10.0.0.0 and from 198.18.0.0 on that flows may have.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    clients: u32,
    servers: u32,
}

impl Room {
    /// The networks 10.0.0.0/8 and 198.18.0.0/15.
    pub(crate) const WHOLE: Self = Self {
        clients: 24,
        servers: 17,
    };
    /// Their lower halves; [`crate::known`] has the upper ones.
    pub(crate) const LOWER: Self = Self {
        clients: 23,
        servers: 16,
    };

    /// Address that clients resolve by ARP.
    pub(crate) fn gateway(self) -> [u8; 4] {
        (0x0a00_0000u32 | ((1 << self.clients) - 2)).to_be_bytes()
    }
}

/// Derives `count` flows from `seed`, the most frequent first, and fills in the rows they match.
pub(crate) fn plan(seed: u64, count: u64, room: Room) -> Vec<Flow> {
    let plan = Plan::new(seed, count, room);
    let mut flows: Vec<Flow> = (0..count).map(|rank| plan.flow(rank)).collect();
    let (host, port) = service(&flows[0]);
    for flow in &mut flows {
        flow.rows = rows(flow, host, port);
    }
    flows
}

/// Address and port of the server end of a TCP or UDP flow over IPv4.
pub(crate) fn service(flow: &Flow) -> (Ipv4Addr, u16) {
    if flow.sent_by_server() {
        (ipv4(&flow.source), flow.source_port)
    } else {
        (ipv4(&flow.destination), flow.destination_port)
    }
}

/// IPv4 address of a client, for ARP. `index` is a flow's rank.
pub(crate) fn client_address(seed: u64, flows: u64, room: Room, index: u64) -> [u8; 4] {
    let plan = Plan::new(seed, flows, room);
    plan.client_ipv4((index % plan.clients) as u32)
}

struct Plan {
    seed: u64,
    clients: u64,
    servers: u64,
    room: Room,
}

impl Plan {
    fn new(seed: u64, flows: u64, room: Room) -> Plan {
        let clients = flows.div_ceil(FLOWS_PER_CLIENT);
        Plan {
            seed,
            clients,
            servers: (clients / 4).clamp(FLOWS_PER_CLIENT, 1 << room.servers),
            room,
        }
    }

    fn flow(&self, rank: u64) -> Flow {
        let (client, slot) = ((rank % self.clients) as u32, rank / self.clients);
        // The flows of a client have consecutive servers, so that no pair of addresses, and no five-tuple, occurs twice.
        let server =
            (hash(self.seed, CLIENT, u64::from(client)) % self.servers + slot) % self.servers;
        let bits = hash(self.seed, FLOW, rank);
        let (kind, tagged) = class(rank);
        let (client_end, server_end) = if kind.is_ipv6() {
            (
                client_ipv6(self.seed, client),
                server_ipv6(self.seed, server as u32),
            )
        } else {
            (
                widen(self.client_ipv4(client)),
                widen(self.server_ipv4(server as u32)),
            )
        };
        let from_server = bits & 1 != 0;
        let ports = ports(kind, from_server, bits);
        let (source, destination) = ordered(client_end, server_end, from_server);
        let vlan = if tagged {
            100 + (bits >> 1 & 15) as u16
        } else {
            0
        };
        Flow {
            source,
            destination,
            source_port: ports.0,
            destination_port: ports.1,
            tag: vlan | if from_server { FROM_SERVER } else { 0 },
            kind,
            ttl: if bits >> 5 & 3 == 0 { 128 } else { 64 } - (bits >> 7 & 15) as u8,
            rows: 0,
            sequence: (bits >> 16) as u32,
            packets: 0,
            bytes: 0,
        }
    }

    /// Address of a client: half of the clients in 10.0.0.0/8 (RFC 1918), half in 100.64.0.0/10 (RFC 6598). No packet can reach a
    /// real host.
    fn client_ipv4(&self, client: u32) -> [u8; 4] {
        let seed = self.seed;
        if hash(seed, CLIENT, u64::from(client)) >> 63 == 0 {
            (0x0a00_0000 | permute(client, self.room.clients, seed)).to_be_bytes()
        } else {
            (0x6440_0000 | permute(client, 22, seed)).to_be_bytes()
        }
    }

    /// Address of a server, in 198.18.0.0/15, which is set aside for benchmarks (RFC 2544 appendix C.2.2).
    fn server_ipv4(&self, server: u32) -> [u8; 4] {
        (0xc612_0000 | permute(server, self.room.servers, self.seed)).to_be_bytes()
    }
}

/// Protocols and tag of the flow of a rank, the same for every seed: 5 % tagged, 8 % IPv6, 70 % TCP, 27 % UDP, 3 % ICMP.
///
/// The ranks walk through the shares in golden-ratio steps. With independent draws, the mix of packets would depend on the luck
/// of the heaviest few flows. With steps, it stays near the shares for every seed, and rank 0 is untagged TCP over IPv4.
fn class(rank: u64) -> (Kind, bool) {
    let mut place =
        u64::from(0x9999_9999_u32.wrapping_add((rank as u32).wrapping_mul(0x9e37_79b9)));
    let mut below = |per_mille: u64| {
        let limit = (per_mille << 32) / 1000;
        let inside = place < limit;
        place = if inside {
            (place << 32) / limit
        } else {
            ((place - limit) << 32) / ((1 << 32) - limit)
        };
        inside
    };
    let tagged = below(50);
    let ipv6 = below(80);
    let kind = match (ipv6, below(700), below(900)) {
        (false, true, _) => Kind::Tcp4,
        (false, _, true) => Kind::Udp4,
        (false, _, _) => Kind::Icmp4,
        (true, true, _) => Kind::Tcp6,
        (true, _, true) => Kind::Udp6,
        (true, _, _) => Kind::Icmp6,
    };
    (kind, tagged)
}

/// Source and destination port: an ephemeral port for the client, a service or a high port for the server.
fn ports(kind: Kind, from_server: bool, bits: u64) -> (u16, u16) {
    let high = 32_768 + (bits >> 24 & 0xffff) as u16 % 28_232;
    let other_high = 1024 + (bits >> 40 & 0xffff) as u16 % 31_744;
    let share = (bits >> 56) as u8;
    let service = match (kind, share) {
        (Kind::Tcp4 | Kind::Tcp6, 0..=140) => 443,
        (Kind::Tcp4 | Kind::Tcp6, 141..=191) => 80,
        (Kind::Tcp4 | Kind::Tcp6, 192..=204) => 22,
        (Kind::Tcp4 | Kind::Tcp6, 205..=209) => 25,
        (Kind::Udp4 | Kind::Udp6, 0..=101) => 443,
        (Kind::Udp4 | Kind::Udp6, 102..=165) => 53,
        (Kind::Udp4 | Kind::Udp6, 166..=178) => 123,
        // Echo requests to the server, or replies from it (RFC 792, RFC 4443 section 4).
        (Kind::Icmp4, _) => return (if from_server { 0 } else { 8 }, high),
        (Kind::Icmp6, _) => return (if from_server { 129 } else { 128 }, high),
        _ => other_high,
    };
    ordered(high, service, from_server)
}

fn ordered<T>(client: T, server: T, from_server: bool) -> (T, T) {
    if from_server {
        (server, client)
    } else {
        (client, server)
    }
}

/// Rows of the truth that a complete packet of the flow matches, derived from the decisions about the flow.
fn rows(flow: &Flow, host: Ipv4Addr, port: u16) -> u32 {
    let kind = flow.kind;
    let at_port = |port| flow.source_port == port || flow.destination_port == port;
    let is_tcp = matches!(kind, Kind::Tcp4 | Kind::Tcp6);
    let is_udp = matches!(kind, Kind::Udp4 | Kind::Udp6);
    let sum = |pairs: &[(Row, bool)]| {
        pairs
            .iter()
            .filter(|(_, matches)| *matches)
            .fold(0, |mask, (row, _)| mask | row.mask())
    };
    if flow.vlan() != 0 {
        return sum(&[
            (Row::Vlan, true),
            (Row::VlanAndTcp, is_tcp),
            (Row::VlanAndUdpPort443, is_udp && at_port(443)),
            (Row::VlanAndIp6, kind.is_ipv6()),
        ]);
    }
    let ip = !kind.is_ipv6();
    let (source, destination) = (ipv4(&flow.source), ipv4(&flow.destination));
    let at_host = ip && (source == host || destination == host);
    sum(&[
        (Row::Ip, ip),
        (Row::Ip6, !ip),
        (Row::Tcp, is_tcp),
        (Row::Udp, is_udp),
        (Row::Icmp, kind == Kind::Icmp4),
        (Row::Icmp6, kind == Kind::Icmp6),
        (Row::UdpPort53, is_udp && at_port(53)),
        (Row::TcpPort443, is_tcp && at_port(443)),
        (Row::Port80, (is_tcp || is_udp) && at_port(80)),
        (Row::SourceNet10, ip && source.octets()[0] == 10),
        (Row::DestinationNet198, ip && destination.octets()[0] == 198),
        (Row::HeavyHost, at_host),
        (
            Row::HeavyHostAndPort,
            at_host && (is_tcp || is_udp) && at_port(port),
        ),
    ])
}

/// Address of a client, in 2001:db8::/32, which is set aside for documentation (RFC 3849).
fn client_ipv6(seed: u64, client: u32) -> [u8; 16] {
    ipv6(
        0x2001_0db8,
        permute(client, 32, seed),
        hash(seed, CLIENT, u64::from(client)),
    )
}

/// Address of a server, in 2001:2:0::/48, which is set aside for benchmarks (RFC 5180 section 8).
fn server_ipv6(seed: u64, server: u32) -> [u8; 16] {
    ipv6(
        0x2001_0002,
        permute(server, SERVER_BITS, seed) & 0xffff,
        hash(seed, SERVER, u64::from(server)),
    )
}

fn ipv6(prefix: u32, subnet: u32, interface: u64) -> [u8; 16] {
    (u128::from(prefix) << 96 | u128::from(subnet) << 64 | u128::from(interface)).to_be_bytes()
}

fn ipv4(bytes: &[u8; 16]) -> Ipv4Addr {
    Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3])
}

fn widen(address: [u8; 4]) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..4].copy_from_slice(&address);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_pair_of_addresses_occurs_twice() {
        let counts = [1, 7, 8, 9, 63, 64, 65, 100_000];
        let rooms = [Room::WHOLE, Room::LOWER];
        for (count, room) in counts
            .into_iter()
            .flat_map(|count| rooms.map(|it| (count, it)))
        {
            let pairs: HashSet<_> = plan(3, count, room)
                .iter()
                .map(|flow| {
                    let FlowCount {
                        source,
                        destination,
                        ..
                    } = flow.to_count();
                    let mut pair = [source, destination];
                    pair.sort();
                    pair
                })
                .collect();
            assert_eq!(pairs.len() as u64, count);
        }
    }

    #[test]
    fn shares_of_the_flows_are_as_documented() {
        let flows = plan(5, 100_000, Room::WHOLE);
        let share = |test: &dyn Fn(&Flow) -> bool| {
            flows.iter().filter(|f| test(f)).count() as f64 / flows.len() as f64
        };
        let near = |value: f64, expected: f64| {
            assert!((value - expected).abs() < 0.005, "{value} {expected}")
        };
        near(share(&|f| f.vlan() != 0), 0.05);
        near(share(&|f| f.kind.is_ipv6()), 0.08);
        near(share(&|f| f.kind.protocol() == 6), 0.70);
        near(share(&|f| f.kind.protocol() == 17), 0.27);
        near(share(&|f| f.sent_by_server()), 0.5);
        near(
            share(&|f| f.kind == Kind::Tcp4 && service(f).1 == 443),
            0.70 * 0.92 * 141.0 / 256.0,
        );
    }

    #[test]
    fn a_flow_is_one_cache_line_long() {
        assert_eq!(size_of::<Flow>(), 64);
    }

    #[test]
    fn heaviest_flow_is_untagged_tcp_over_ipv4() {
        assert_eq!(class(0), (Kind::Tcp4, false));
    }
}
