//! Link headers, ARP.

use super::{Tail, Walk};
use crate::flow::link::{Layer, step};

/// Largest number of tags, labels and shims that are walked.
const MOST_SHIMS: usize = 33;

/// Types of ARP and of reverse ARP.
const ARP: [u16; 2] = [0x0806, 0x8035];

impl Walk<'_> {
    /// Walks from a link header, or from a tag, a label or a type.
    pub(super) fn link(&mut self, mut layer: Layer, mut at: usize, end: usize) -> Tail {
        for _ in 0..=3 * MOST_SHIMS {
            match layer {
                Layer::V4 => return self.ipv4(at, end),
                Layer::V6 => return self.ipv6(at, end),
                Layer::Type(kind) if ARP.contains(&kind) => return self.arp(at, end),
                _ => {}
            }
            // The header after its addresses may not lead to one that is known.
            let known = self.link_addresses(layer, at, end);
            let Ok((next, header)) = step(layer, &self.data[at..end]) else {
                return Tail::Unknown(at + known);
            };
            if header > end - at {
                return Tail::Unknown(at + known);
            }
            (layer, at) = (next, at + header);
        }
        Tail::Unknown(at)
    }

    /// Replaces the addresses of a link header. Returns the number of its bytes that may be written although the next header is
    /// unknown; 0 if the next header decides where this one ends.
    fn link_addresses(&mut self, layer: Layer, at: usize, end: usize) -> usize {
        let have = end - at;
        match layer {
            Layer::Ethernet if have >= 14 => {
                self.mac_address(at);
                self.mac_address(at + 6);
                14
            }
            Layer::Fddi if have >= 13 => {
                self.mac_address(at + 1);
                self.mac_address(at + 7);
                13
            }
            Layer::Cooked if have >= 16 => {
                self.cooked_address(self.be16(at + 4).into(), at + 6);
                16
            }
            Layer::Cooked2 if have >= 20 => {
                self.cooked_address(self.byte(at + 11).into(), at + 12);
                20
            }
            Layer::Wlan { padded } => self.wlan_addresses(at, end, padded),
            Layer::IpoIb if have >= 44 => {
                // The global identifiers of the route header, which are IPv6 addresses.
                self.ipv6_address(at + 8);
                self.ipv6_address(at + 24);
                44
            }
            Layer::Nflog => self.nflog(at, end),
            Layer::Ppi if have >= 8 => {
                // Fields of per-packet information, such as the place of the antenna.
                let length =
                    usize::from(u16::from_le_bytes([self.byte(at + 2), self.byte(at + 3)]));
                self.zero(at + 8, at + length.clamp(8, have));
                8
            }
            _ => 0,
        }
    }

    /// Replaces the address of a cooked header, whose field has eight bytes. The address of a tunnel may be one of IPv4.
    fn cooked_address(&mut self, length: usize, at: usize) {
        match length {
            6 => self.mac_address(at),
            4 => _ = self.ipv4_address(at),
            _ => self.zero(at, at + 8),
        }
        if length < 8 {
            self.zero(at + length, at + 8);
        }
    }

    /// Replaces the addresses of an 802.11 header (IEEE 802.11-2020, section 9.3): three or four of a data frame, three of a
    /// management frame, one or two of a control frame. Elements of management frames have names and addresses.
    fn wlan_addresses(&mut self, at: usize, end: usize, padded: bool) -> usize {
        const CONTROL: u8 = 1;
        const DATA: u8 = 2;
        /// Control frames with the address of their transmitter: block acknowledgements, PS-Poll, RTS, CF-End.
        const TWO: [u8; 7] = [4, 8, 9, 10, 11, 14, 15];
        let have = end - at;
        if have < 10 {
            return 0;
        }
        let (kind, flags) = (self.byte(at), self.byte(at + 1));
        let (class, subtype) = (kind >> 2 & 3, kind >> 4);
        self.mac_address(at + 4);
        if class == CONTROL {
            if !TWO.contains(&subtype) || have < 16 {
                return 10;
            }
            self.mac_address(at + 10);
            return 16;
        }
        if have < 24 {
            return 0;
        }
        self.mac_address(at + 10);
        self.mac_address(at + 16);
        let mut header = 24;
        if class == DATA && flags & 3 == 3 {
            if have < 30 {
                return 24;
            }
            self.mac_address(at + 24);
            header = 30;
        }
        // The quality of service may announce an aggregate, whose first frame has two more addresses.
        if class == DATA && subtype & 8 != 0 && have >= header + 2 {
            let is_aggregate = self.byte(at + header) & 0x80 != 0;
            let mut inside = header + if flags & 0x80 != 0 { 6 } else { 2 };
            if padded {
                inside = inside.next_multiple_of(4);
            }
            if is_aggregate && have >= inside + 12 {
                self.mac_address(at + inside);
                self.mac_address(at + inside + 6);
            }
        }
        header
    }

    /// Clears the attributes of a netfilter log message except numbers and the packet. Hardware addresses and headers are among
    /// them.
    fn nflog(&mut self, at: usize, end: usize) -> usize {
        const PAYLOAD: u8 = 9;
        /// Packet header, mark, time, interfaces, and sizes and numbers.
        const KEPT: [u8; 10] = [1, 2, 3, 4, 5, 6, 7, 11, 12, 13];
        let mut place = at + 4;
        while place + 4 <= end {
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| self.byte(place + i));
            // No type exceeds 63: where it stands tells the byte order.
            let is_little = d & 0x3f == 0;
            let (length, kind) = match is_little {
                true => (u16::from_le_bytes([a, b]), c),
                false => (u16::from_be_bytes([a, b]), d & 0x3f),
            };
            let length = usize::from(length);
            if length < 4 || kind == PAYLOAD {
                break;
            }
            if !KEPT.contains(&kind) {
                self.zero(place + 4, (place + length).min(end));
            }
            place += length.next_multiple_of(4);
        }
        0
    }

    /// RFC 826, RFC 903: lengths of both kinds of addresses, sender, target. Hardware addresses of other lengths than six bytes are
    /// cleared.
    fn arp(&mut self, at: usize, end: usize) -> Tail {
        const IPV4: u16 = 0x0800;
        if end - at < 8 {
            return Tail::Unknown(at);
        }
        let (hardware, protocol) = (usize::from(self.byte(at + 4)), self.byte(at + 5));
        let whole = at + 8 + 2 * (hardware + 4);
        if self.be16(at + 2) != IPV4 || protocol != 4 || whole > end {
            return Tail::Unknown(at + 8);
        }
        for place in [at + 8, at + 12 + hardware] {
            match hardware {
                6 => self.mac_address(place),
                _ => self.zero(place, place + hardware),
            }
            self.ipv4_address(place + hardware);
        }
        self.zero(whole, end);
        Tail::Payload(whole, whole)
    }
}
