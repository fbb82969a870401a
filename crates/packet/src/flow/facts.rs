//! Fields of a frame that its flow key lacks: MAC addresses, tags, labels, and fields of the IP and TCP headers.

use super::link::{self, Layer, be16};
use super::{Parser, ip, tunnel};
use crate::savefile::Direction;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

const TCP: u8 = 6;

/// Fields of a frame that are not part of its flow key.
///
/// Link fields (MAC addresses, tag, label, EtherType) belong to the captured frame; of several headers, to the outermost. Fields of the IP and TCP headers belong to the packet whose flow key the parser gives.
///
/// **Layout**: 48 bytes without padding, so that a ring can carry them in the place of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Facts {
    mpls: u32,
    vni: u32,
    source: [u8; 6],
    destination: [u8; 6],
    vlan: u16,
    ethertype: u16,
    tcp_flags: u16,
    dscp: u8,
    ttl: u8,
    has: u8,
    direction: u8,
    reserved: [u8; 2],
    /// Name of the interface, cut to its first 16 bytes, padded with zeros; empty if it is unknown.
    pub interface: [u8; 16],
}

/// Bits of [`Facts::has`].
mod has {
    pub const VLAN: u8 = 1;
    pub const MPLS: u8 = 1 << 1;
    pub const VNI: u8 = 1 << 2;
    pub const SMAC: u8 = 1 << 3;
    pub const DMAC: u8 = 1 << 4;
    pub const IP: u8 = 1 << 5;
    pub const TCP: u8 = 1 << 6;
}

impl Facts {
    /// No field is known.
    pub const NONE: Self = Self {
        mpls: 0,
        vni: 0,
        source: [0; 6],
        destination: [0; 6],
        vlan: 0,
        ethertype: 0,
        tcp_flags: 0,
        dscp: 0,
        ttl: 0,
        has: 0,
        direction: 0,
        reserved: [0; 2],
        interface: [0; 16],
    };

    fn known<T>(&self, bit: u8, value: T) -> Option<T> {
        (self.has & bit != 0).then_some(value)
    }

    /// Identifier of the outermost VLAN tag, 0 to 4095.
    pub fn vlan(&self) -> Option<u16> {
        self.known(has::VLAN, self.vlan)
    }

    /// The outermost MPLS label, 20 bits.
    pub fn mpls(&self) -> Option<u32> {
        self.known(has::MPLS, self.mpls)
    }

    /// Network identifier of VXLAN or GENEVE, or the subnet of NVGRE, 24 bits.
    pub fn vni(&self) -> Option<u32> {
        self.known(has::VNI, self.vni)
    }

    /// Source MAC address: of Ethernet and Linux cooked frames.
    pub fn smac(&self) -> Option<[u8; 6]> {
        self.known(has::SMAC, self.source)
    }

    /// Destination MAC address: of Ethernet frames.
    pub fn dmac(&self) -> Option<[u8; 6]> {
        self.known(has::DMAC, self.destination)
    }

    /// The EtherType after all VLAN tags; `None` for a frame with a length in its place and no SNAP header.
    pub fn ethertype(&self) -> Option<u16> {
        (self.ethertype != 0).then_some(self.ethertype)
    }

    /// Differentiated services code point of IP, 0 to 63 (RFC 2474).
    pub fn dscp(&self) -> Option<u8> {
        self.known(has::IP, self.dscp)
    }

    /// Time to live of IPv4, or hop limit of IPv6.
    pub fn ttl(&self) -> Option<u8> {
        self.known(has::IP, self.ttl)
    }

    /// The nine flags of a TCP header, FIN in the lowest bit (RFC 9293, RFC 7560).
    pub fn tcp_flags(&self) -> Option<u16> {
        self.known(has::TCP, self.tcp_flags)
    }

    /// Direction of the frame at the capturing interface, if the capture tells.
    pub fn direction(&self) -> Option<Direction> {
        match self.direction {
            1 => Some(Direction::In),
            2 => Some(Direction::Out),
            _ => None,
        }
    }

    /// Sets the direction.
    pub fn set_direction(&mut self, direction: Direction) {
        self.direction = match direction {
            Direction::In => 1,
            Direction::Out => 2,
        };
    }

    /// Sets the name of the interface, and cuts it to its first 16 bytes.
    pub fn set_interface(&mut self, name: &str) {
        self.interface = [0; 16];
        let len = name.len().min(self.interface.len());
        self.interface[..len].copy_from_slice(&name.as_bytes()[..len]);
    }

    /// Sets the identifier of the VLAN tag.
    pub fn set_vlan(&mut self, vlan: u16) {
        self.vlan = vlan;
        self.has |= has::VLAN;
    }

    /// Sets the MPLS label.
    pub fn set_mpls(&mut self, label: u32) {
        self.mpls = label;
        self.has |= has::MPLS;
    }

    /// Sets the network identifier.
    pub fn set_vni(&mut self, vni: u32) {
        self.vni = vni;
        self.has |= has::VNI;
    }

    /// Sets the source MAC address.
    pub fn set_smac(&mut self, address: [u8; 6]) {
        self.source = address;
        self.has |= has::SMAC;
    }

    /// Sets the destination MAC address.
    pub fn set_dmac(&mut self, address: [u8; 6]) {
        self.destination = address;
        self.has |= has::DMAC;
    }

    /// Sets the EtherType.
    pub fn set_ethertype(&mut self, ethertype: u16) {
        self.ethertype = ethertype;
    }

    /// Sets the code point and the time to live of IP.
    pub fn set_ip(&mut self, dscp: u8, ttl: u8) {
        (self.dscp, self.ttl) = (dscp, ttl);
        self.has |= has::IP;
    }

    /// Sets the TCP flags.
    pub fn set_tcp_flags(&mut self, flags: u16) {
        self.tcp_flags = flags;
        self.has |= has::TCP;
    }

    /// Notes the fields of the header of `layer`, which begins with `data`, unless an outer header had them.
    fn note(&mut self, layer: Layer, data: &[u8]) {
        match layer {
            Layer::Ethernet => {
                if let (0, Some(&[a, b, c, d, e, f, g, h, i, j, k, l])) =
                    (self.has & has::DMAC, data.first_chunk())
                {
                    self.set_dmac([a, b, c, d, e, f]);
                    self.set_smac([g, h, i, j, k, l]);
                }
            }
            Layer::Cooked => self.note_cooked(data, be16(data, 0).ok(), be16(data, 4).ok(), 6),
            Layer::Cooked2 => {
                let byte = |at: usize| data.get(at).map(|byte| u16::from(*byte));
                self.note_cooked(data, byte(10), byte(11), 12);
            }
            Layer::Type(0x8100 | 0x88a8 | 0x9100) => {
                if let (0, Ok(tag)) = (self.has & has::VLAN, be16(data, 0)) {
                    self.set_vlan(tag & 0xfff);
                }
            }
            // Cooked frames have numbers below the EtherTypes.
            Layer::Type(kind @ 0x0600..) if self.ethertype == 0 => self.ethertype = kind,
            Layer::Mpls => {
                if let (0, Some(label)) = (self.has & has::MPLS, data.first_chunk()) {
                    self.set_mpls(u32::from_be_bytes(*label) >> 12);
                }
            }
            _ => {}
        }
    }

    /// Notes packet type and source address of a Linux cooked frame (linux/if_packet.h: `PACKET_OUTGOING` is 4).
    fn note_cooked(&mut self, data: &[u8], kind: Option<u16>, length: Option<u16>, at: usize) {
        match kind {
            Some(0..=3) => self.set_direction(Direction::In),
            Some(4) => self.set_direction(Direction::Out),
            _ => {}
        }
        let address = data.get(at..).and_then(|rest| rest.first_chunk());
        if let (Some(6), Some(address)) = (length, address) {
            self.set_smac(*address);
        }
    }

    /// Notes the fields of an IP header and of the TCP header after it. The flow key of the packet was read from the same bytes.
    fn note_ip(&mut self, header: &[u8], proto: u8, transport: &[u8]) {
        if let Some(&[a, b, _, _, _, _, _, hops, ttl]) = header.first_chunk() {
            match a >> 4 {
                4 => self.set_ip(b >> 2, ttl),
                _ => self.set_ip((a << 2 | b >> 6) & 0x3f, hops),
            }
        }
        if let (TCP, Some(&[_, _, _, _, _, _, _, _, _, _, _, _, high, low])) =
            (proto, transport.first_chunk())
        {
            self.set_tcp_flags(u16::from_be_bytes([high & 1, low]));
        }
    }
}

impl Parser {
    /// Fields of a frame that its flow key lacks. All fields that were captured are noted, even if the frame has no flow key.
    ///
    /// **Cost**: a walk over all headers.
    pub fn facts(&self, data: &[u8]) -> Facts {
        let mut facts = Facts::NONE;
        let packet = link::walk(self.start(), data, |layer, data| facts.note(layer, data));
        let Ok(packet) = packet else {
            return facts;
        };
        let header = packet.bytes();
        let Ok((key, transport, _)) = ip::key(packet) else {
            return facts;
        };
        let tunnel = tunnel::enter(&key, transport, self.tunnels());
        if let Some(vni) = tunnel.and_then(|inside| inside.vni) {
            facts.set_vni(vni);
        }
        match self.looks_inside().then(|| self.headers(data)) {
            Some(Ok(inner)) => facts.note_ip(inner.ip, inner.key.proto, inner.transport),
            _ => facts.note_ip(header, key.proto, transport),
        }
        facts
    }

    /// Whether frames begin with an Ethernet header.
    pub fn is_ethernet(&self) -> bool {
        self.start() == Layer::Ethernet
    }

    /// Whether the link layer addresses the frame to a group of stations: all ([`Group::Broadcast`]) or some. Ethernet and Linux
    /// cooked frames tell; other frames count as [`Group::One`].
    #[inline(always)]
    pub fn group(&self, data: &[u8]) -> Group {
        match (self.start(), data.first_chunk::<6>()) {
            // IEEE 802.3, clause 3.2.3: the lowest bit of the first byte is the group bit.
            (Layer::Ethernet, Some(&[first, ..])) if first & 1 == 0 => Group::One,
            (Layer::Ethernet, Some(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff])) => Group::Broadcast,
            (Layer::Ethernet, Some(_)) => Group::Multicast,
            (Layer::Cooked, _) => Group::of_cooked(be16(data, 0).ok()),
            (Layer::Cooked2, _) => Group::of_cooked(data.get(10).map(|kind| u16::from(*kind))),
            _ => Group::One,
        }
    }
}

/// Stations to which the link layer addresses a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// One station, or unknown.
    One,
    /// Some stations.
    Multicast,
    /// All stations.
    Broadcast,
}

impl Group {
    /// The group of a packet type of linux/if_packet.h.
    #[cold]
    fn of_cooked(kind: Option<u16>) -> Self {
        match kind {
            Some(1) => Self::Broadcast,
            Some(2) => Self::Multicast,
            _ => Self::One,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkType;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let digit = |byte: u8| char::from(byte).to_digit(16).expect("a digit") as u8;
        let pairs = digits.chunks(2);
        pairs
            .map(|pair| digit(pair[0]) << 4 | digit(pair[1]))
            .collect()
    }

    fn facts(link: LinkType, text: &str) -> Facts {
        let parser = Parser::new(link, false).expect("a link type with keys");
        parser.facts(&hex(text))
    }

    const MACS: &str = "02 00 00 00 00 02  02 00 00 00 00 01";
    const V4: &str = "45 b8 00 28 00 00 00 00 3f 06 00 00  0a 00 00 01  0a 00 00 02";
    const SYN: &str = "04 d2 00 50 00 00 00 01 00 00 00 00 51 02 ff ff 00 00 00 00";

    #[test]
    fn each_field_is_where_its_standard_says() {
        let tagged = format!("{MACS} 88a8 0064 8100 0007 0800 {V4} {SYN}");
        let tagged = facts(LinkType::ETHERNET, &tagged);
        assert_eq!(tagged.vlan(), Some(100));
        assert_eq!(tagged.ethertype(), Some(0x0800));
        assert_eq!(tagged.smac(), Some([2, 0, 0, 0, 0, 1]));
        assert_eq!(tagged.dmac(), Some([2, 0, 0, 0, 0, 2]));
        assert_eq!((tagged.dscp(), tagged.ttl()), (Some(46), Some(63)));
        assert_eq!(tagged.tcp_flags(), Some(0x102));
        assert_eq!((tagged.mpls(), tagged.vni()), (None, None));
        assert_eq!(tagged.direction(), None);

        let label = format!("{MACS} 8847 000640ff 000c81ff {V4} {SYN}");
        let label = facts(LinkType::ETHERNET, &label);
        assert_eq!((label.mpls(), label.ethertype()), (Some(100), Some(0x8847)));

        let v6 = "6b 80 00 00 00 00 3b 40".to_owned() + &" 00".repeat(32);
        let v6 = facts(LinkType::RAW, &v6);
        assert_eq!(
            (v6.dscp(), v6.ttl(), v6.tcp_flags()),
            (Some(46), Some(64), None)
        );
        assert_eq!((v6.smac(), v6.ethertype()), (None, None));

        let arp = facts(LinkType::ETHERNET, "ffffffffffff 020000000001 0806 0001");
        assert_eq!((arp.ethertype(), arp.dscp()), (Some(0x0806), None));

        let sent = format!("0004 0001 0006 020000000009 0000 0800 {V4} {SYN}");
        let sent = facts(LinkType::LINUX_SLL, &sent);
        assert_eq!(sent.direction(), Some(Direction::Out));
        assert_eq!((sent.smac(), sent.dmac()), (Some([2, 0, 0, 0, 0, 9]), None));
    }

    #[test]
    fn network_identifiers_come_from_the_outermost_tunnel() {
        let udp = |port: &str| {
            let v4 = "45 00 00 40 00 00 00 00 40 11 00 00 0a 00 00 01 0a 00 00 02";
            format!("{MACS} 0800 {v4} c000 {port} 002c 0000")
        };
        let vni = |text: &str| facts(LinkType::ETHERNET, text).vni();
        assert_eq!(
            vni(&format!("{} 08000000 00007b00", udp("12b5"))),
            Some(123)
        );
        assert_eq!(vni(&format!("{} 00000000 00007b00", udp("12b5"))), None);
        assert_eq!(vni(&format!("{} 00006558 00002a00", udp("17c1"))), Some(42));
        assert_eq!(vni(&format!("{} 08000000 00007b00", udp("0035"))), None);
        let gre = "45 00 00 40 00 00 00 00 40 2f 00 00 0a 00 00 01 0a 00 00 02";
        assert_eq!(
            vni(&format!("{MACS} 0800 {gre} 2000 6558 0000ff07")),
            Some(255)
        );
        assert_eq!(vni(&format!("{MACS} 0800 {gre} 2000 0800 0000ff07")), None);
    }

    #[test]
    fn group_frames_are_known_by_their_address_or_packet_type() {
        let group = |link, text: &str| {
            let parser = Parser::new(link, false).expect("a link type with keys");
            parser.group(&hex(text))
        };
        assert_eq!(group(LinkType::ETHERNET, "ffffffffffff"), Group::Broadcast);
        assert_eq!(group(LinkType::ETHERNET, "01005e000001"), Group::Multicast);
        assert_eq!(group(LinkType::ETHERNET, "020000000001"), Group::One);
        assert_eq!(group(LinkType::ETHERNET, "ffffffffff"), Group::One);
        assert_eq!(group(LinkType::LINUX_SLL, "0001 0001"), Group::Broadcast);
        assert_eq!(group(LinkType::LINUX_SLL, "0002 0001"), Group::Multicast);
        assert_eq!(group(LinkType::RAW, "ff"), Group::One);
    }

    /// Frames of any length have fields, and no prefix of a frame has a field that the whole frame lacks.
    #[test]
    fn cut_frames_have_the_fields_before_the_cut() {
        let whole = hex(&format!("{MACS} 8100 0007 8847 000641ff {V4} {SYN}"));
        let parser = Parser::new(LinkType::ETHERNET, true).expect("Ethernet has keys");
        let all = parser.facts(&whole);
        for length in 0..whole.len() {
            let facts = parser.facts(&whole[..length]);
            assert_eq!(facts.has & !all.has, 0, "{length}");
            for (cut, all) in [
                (facts.vlan(), all.vlan()),
                (facts.ethertype(), all.ethertype()),
            ] {
                assert!(cut.is_none() || cut == all, "{length}");
            }
        }
    }
}
