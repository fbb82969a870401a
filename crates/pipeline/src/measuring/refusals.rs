//! Refusals: TCP resets, and ICMP messages of unreachable destinations.
//!
//! Only measurements that rank keys by numbers of peers or ports ask for them.

use weir_measure::Observation;
use weir_packet::LinkType;
use weir_packet::flow::{FlowKey, Parser};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const ICMP_V6: u8 = 58;
/// RFC 792, and RFC 4443, section 3.1: the type of *destination unreachable*.
const UNREACHABLE: u8 = 3;
const UNREACHABLE_V6: u8 = 1;
/// Bytes of an ICMP header, after which the refused packet is quoted.
const ICMP_HEADER: usize = 8;
/// RFC 9293, section 3.1: place of the flags in a TCP header, and the bit of a reset.
const FLAGS: usize = 13;
const RESET: u8 = 1 << 2;

/// Reader of refusals.
#[derive(Clone, Copy, Debug)]
pub(super) struct Refusals {
    /// Parser of quoted packets.
    quoted: Option<Parser>,
}

impl Refusals {
    pub fn new() -> Self {
        Self {
            quoted: Parser::new(LinkType::RAW, false),
        }
    }

    /// Marks the observation of a frame with a flow key, if the frame is a refusal. `parser` found the key.
    ///
    /// **Cost**: a few loads for TCP in plain frames, a walk over the headers for TCP in others and for ICMP, nothing for all else.
    #[inline]
    pub fn note(&self, parser: &Parser, data: &[u8], packet: &mut Observation) {
        let FlowKey { proto, flags, .. } = packet.flow;
        match proto {
            TCP if flags & FlowKey::HAS_PORTS != 0 && tcp_flags(parser, data) & RESET != 0 => {
                packet.refuse(None);
            }
            ICMP | ICMP_V6 => self.note_icmp(parser, data, packet),
            _ => {}
        }
    }

    #[cold]
    fn note_icmp(&self, parser: &Parser, data: &[u8], packet: &mut Observation) {
        let Ok(headers) = parser.headers(data) else {
            return;
        };
        let unreachable = match headers.key.proto {
            ICMP => UNREACHABLE,
            _ => UNREACHABLE_V6,
        };
        if headers.transport.first() != Some(&unreachable) {
            return;
        }
        let inside = headers.transport.get(ICMP_HEADER..);
        let quoted = self.quoted.zip(inside);
        let quoted = quoted.and_then(|(parser, inside)| parser.key(inside).ok());
        let port = quoted.and_then(|key| key.ports().map(|(_, dport)| (key.proto, dport)));
        packet.refuse(port);
    }
}

/// Returns the flags of a TCP header; 0 if they are not captured.
#[inline]
fn tcp_flags(parser: &Parser, data: &[u8]) -> u8 {
    if let Some(plain) = parser.plain_v4(data) {
        return plain.flags;
    }
    if let Some(plain) = parser.plain_v6(data) {
        return plain.flags;
    }
    let headers = parser.headers(data);
    let transport = headers.map_or(&[][..], |headers| headers.transport);
    transport.get(FLAGS).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_measure::Kind;

    /// An IPv4 packet of this protocol with these bytes in it.
    fn v4(proto: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![
            0x45,
            0,
            0,
            20 + payload.len() as u8,
            0,
            0,
            0,
            0,
            64,
            proto,
            0,
            0,
        ];
        packet.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        packet.extend(payload);
        packet
    }

    /// An IPv6 packet of this protocol with these bytes in it.
    fn v6(proto: u8, payload: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, payload.len() as u8, proto, 64];
        packet.extend([0x20; 16]);
        packet.extend([0x30; 16]);
        packet.extend(payload);
        packet
    }

    fn tcp(flags: u8) -> Vec<u8> {
        let mut header = vec![0, 80, 0x12, 0x34, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, flags];
        header.extend([0; 6]);
        header
    }

    /// An Ethernet frame around a packet, with a tag or without.
    fn frame(packet: &[u8], tag: &[u8]) -> Vec<u8> {
        let ethertype = match packet[0] >> 4 {
            4 => [8, 0],
            _ => [0x86, 0xdd],
        };
        [&[2; 12], tag, &ethertype, packet].concat()
    }

    fn noted(data: &[u8]) -> (bool, Option<(u8, u16)>) {
        let parser = Parser::new(LinkType::ETHERNET, false).expect("Ethernet has keys");
        let mut packet = Observation::mark(0);
        packet.arrived(Kind::Flow, 60, 0);
        packet.flow = parser.key(data).expect("a key");
        Refusals::new().note(&parser, data, &mut packet);
        assert_eq!(packet.kind(), Kind::Flow);
        (packet.refuses(), packet.quoted())
    }

    #[test]
    fn resets_are_refusals() {
        for tag in [&[][..], &[0x81, 0, 0, 7]] {
            for (flags, is_refusal) in [(0x04, true), (0x14, true), (0x12, false), (0x10, false)] {
                assert_eq!(noted(&frame(&v4(6, &tcp(flags)), tag)), (is_refusal, None));
                assert_eq!(noted(&frame(&v6(6, &tcp(flags)), tag)), (is_refusal, None));
            }
            // A UDP datagram with the bit at the same place, and headers that end before it.
            assert_eq!(noted(&frame(&v4(17, &tcp(4)), tag)), (false, None));
            assert_eq!(noted(&frame(&v4(6, &tcp(4)[..13]), tag)), (false, None));
        }
    }

    #[test]
    fn unreachable_destinations_are_refusals_with_the_port_they_quote() {
        let icmp = |kind: u8, inside: &[u8]| [&[kind, 3, 0, 0, 0, 0, 0, 0], inside].concat();
        let datagram = [0x30, 0x39, 0, 53, 0, 8, 0, 0];
        let (inside, inside_v6) = (v4(17, &datagram), v6(132, &datagram));
        let quoted = Some((17, 53));
        assert_eq!(
            noted(&frame(&v4(1, &icmp(3, &inside)), &[])),
            (true, quoted)
        );
        let quoted = Some((132, 53));
        assert_eq!(
            noted(&frame(&v6(58, &icmp(1, &inside_v6)), &[])),
            (true, quoted)
        );
        // Without ports: an echo request was refused, the quote is cut, or there is none.
        assert_eq!(
            noted(&frame(&v4(1, &icmp(3, &v4(1, &[8, 0]))), &[])),
            (true, None)
        );
        assert_eq!(
            noted(&frame(&v4(1, &icmp(3, &inside[..22])), &[])),
            (true, None)
        );
        assert_eq!(noted(&frame(&v4(1, &icmp(3, &[])), &[])), (true, None));
        // Other messages: an echo reply, a time that is exceeded, and types of the other version.
        for kind in [0, 1, 11] {
            assert_eq!(
                noted(&frame(&v4(1, &icmp(kind, &inside)), &[])),
                (false, None)
            );
        }
        for kind in [3, 129] {
            assert_eq!(
                noted(&frame(&v6(58, &icmp(kind, &inside)), &[])),
                (false, None)
            );
        }
    }
}
