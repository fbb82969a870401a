//! Facts about the traffic, known because the generator decided them.
//!
//! Nothing here reads a frame. A row's number grows where the packet's kind is chosen, so that an error in writing or in parsing
//! bytes shows up as a difference.

use std::net::Ipv4Addr;

/// The rows of the truth; a set of them is a mask of `1 << row`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Row {
    Ip,
    Ip6,
    Arp,
    Tcp,
    Udp,
    Icmp,
    Icmp6,
    UdpPort53,
    TcpPort443,
    Port80,
    Syn,
    Vlan,
    VlanAndTcp,
    VlanAndUdpPort443,
    VlanAndIp6,
    SourceNet10,
    DestinationNet198,
    HeavyHost,
    HeavyHostAndPort,
    Greater1000,
    Less100,
    Fragment,
    LaterFragment,
}

impl Row {
    pub(crate) const fn mask(self) -> u32 {
        1 << self as u32
    }
}

/// Rows that need the transport header, which is absent in the later fragments of a datagram.
pub(crate) const NEED_PORTS: u32 = Row::UdpPort53.mask()
    | Row::TcpPort443.mask()
    | Row::Port80.mask()
    | Row::Syn.mask()
    | Row::VlanAndUdpPort443.mask()
    | Row::HeavyHostAndPort.mask();

/// Number of matching packets so far, for a fixed list of tcpdump expressions.
///
/// **Units**: packets, and bytes on the wire without FCS.
///
/// The meaning is libpcap's for Ethernet files. `ip`, `tcp` and so on test the outer EtherType, so they do not match VLAN-tagged
/// frames; `vlan and tcp` does. `tcp` matches later fragments, `tcp port 443` does not. Addresses without a protocol name
/// (`src net`) also match ARP.
///
/// **Cost**: one addition per matching row and packet (about five); no allocation but in [`Truth::rows`].
#[derive(Clone, Debug)]
pub struct Truth {
    rows: Vec<(String, Count)>,
    total: Count,
}

#[derive(Clone, Copy, Debug, Default)]
struct Count {
    packets: u64,
    bytes: u64,
}

impl Truth {
    /// Makes the rows. `host` and `port` are the service end of the heaviest flow.
    pub(crate) fn new(host: Ipv4Addr, port: u16) -> Truth {
        // In the order of `Row`.
        let expressions = [
            "ip".to_owned(),
            "ip6".to_owned(),
            "arp".to_owned(),
            "tcp".to_owned(),
            "udp".to_owned(),
            "icmp".to_owned(),
            "icmp6".to_owned(),
            "udp port 53".to_owned(),
            "tcp port 443".to_owned(),
            "port 80".to_owned(),
            "tcp[tcpflags] & tcp-syn != 0".to_owned(),
            "vlan".to_owned(),
            "vlan and tcp".to_owned(),
            "vlan and udp port 443".to_owned(),
            "vlan and ip6".to_owned(),
            "src net 10.0.0.0/8".to_owned(),
            "dst net 198.18.0.0/15".to_owned(),
            format!("host {host}"),
            format!("host {host} and port {port}"),
            "greater 1000".to_owned(),
            "less 100".to_owned(),
            "ip[6:2] & 0x3fff != 0".to_owned(),
            "ip[6:2] & 0x1fff != 0".to_owned(),
        ];
        Truth {
            rows: expressions.map(|e| (e, Count::default())).into(),
            total: Count::default(),
        }
    }

    /// Counts one packet of `len` bytes in the rows of `mask` and in the rows that depend on `len`.
    #[inline]
    pub(crate) fn count(&mut self, mask: u32, len: usize) {
        let mut left = mask
            | (u32::from(len >= 1000) << Row::Greater1000 as u32)
            | (u32::from(len <= 100) << Row::Less100 as u32);
        self.total.add(len);
        while left != 0 {
            self.rows[left.trailing_zeros() as usize].1.add(len);
            left &= left - 1;
        }
    }

    /// Expression, packets and bytes of each row, in a fixed order.
    pub fn rows(&self) -> impl Iterator<Item = (String, u64, u64)> {
        self.rows
            .iter()
            .map(|(expression, count)| (expression.clone(), count.packets, count.bytes))
    }

    /// Number of packets made so far.
    pub fn packets(&self) -> u64 {
        self.total.packets
    }

    /// Bytes of all packets made so far, without FCS.
    pub fn bytes(&self) -> u64 {
        self.total.bytes
    }
}

impl Count {
    #[inline]
    fn add(&mut self, len: usize) {
        self.packets += 1;
        self.bytes += len as u64;
    }
}
