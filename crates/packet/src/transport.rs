//! The transport header of a packet, and lengths.
//!
//! [`Transport`] is for analyses that need more of a packet than its [flow key](crate::flow::FlowKey): sequence numbers,
//! messages, and lengths. Lengths come from the IP header, because captures cut packets short and Ethernet pads them.

use crate::Frame;
use crate::flow::{FlowKey, Headers, NoKey, Parser, extensions};

/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;
/// Protocol number of ICMPv6.
pub const ICMP6: u8 = 58;

/// Part that a fragment is of its packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Offset of its bytes in the packet's payload, bytes.
    pub offset: u32,
    /// Whether more fragments follow.
    pub more: bool,
}

/// Transport header and payload of a packet.
#[derive(Clone, Copy, Debug)]
pub struct Transport<'a> {
    /// Flow key of the packet.
    pub key: FlowKey,
    /// Captured bytes of the packet from the transport header on; empty in a fragment other than the first.
    pub captured: &'a [u8],
    /// Bytes from the transport header on, as the IP header says, but not more than were on the wire.
    pub len: u32,
    /// Bytes of the whole IP packet on the wire.
    pub packet_len: u32,
    /// Part that the packet is of a larger one; `None` if it is whole.
    pub fragment: Option<Fragment>,
}

impl<'a> Transport<'a> {
    /// Reads the headers of a frame. **Cost**: a few loads for most frames, else a walk over all headers; no allocation.
    ///
    /// **Errors**: the frame has no flow key.
    #[inline(always)]
    pub fn of(parser: &Parser, frame: &Frame<'a>) -> Result<Self, NoKey> {
        const LINK: usize = 14;
        let data = frame.data;
        let Some((key, header)) = parser.plain_key(data) else {
            return Self::walked(parser, frame);
        };
        let ip = &data[LINK..];
        let packet_len = packet_len(key.family, ip, frame.wire_len.saturating_sub(LINK as u32));
        let captured = ip.get(header..ip.len().min(packet_len as usize));
        Ok(Self {
            key,
            captured: captured.unwrap_or_default(),
            len: packet_len.saturating_sub(header as u32),
            packet_len,
            fragment: if key.family == 4 {
                fragment_v4(ip)
            } else {
                None
            },
        })
    }

    /// Walks all headers of a frame.
    #[inline(never)]
    fn walked(parser: &Parser, frame: &Frame<'a>) -> Result<Self, NoKey> {
        let headers = parser.headers(frame.data)?;
        Ok(Self::within(frame, &headers))
    }

    /// The transport of headers that were found in a frame.
    fn within(frame: &Frame<'a>, headers: &Headers<'a>) -> Self {
        let &Headers {
            key,
            ip,
            transport,
            extensions,
            ..
        } = headers;
        // The bytes are a part of the frame, and the rest of the frame is as long on the wire.
        let front = ip.as_ptr().addr() - frame.data.as_ptr().addr();
        let on_wire = frame
            .wire_len
            .saturating_sub(u32::try_from(front).unwrap_or(u32::MAX));
        let packet_len = packet_len(key.family, ip, on_wire);
        let fragment = match key.family {
            4 => fragment_v4(ip),
            _ if extensions & extensions::FRAGMENT != 0 => fragment_v6(ip),
            _ => None,
        };
        let header = match transport {
            [] => packet_len,
            _ => u32::try_from(transport.as_ptr().addr() - ip.as_ptr().addr()).unwrap_or(u32::MAX),
        };
        Self {
            key,
            captured: transport,
            len: packet_len.saturating_sub(header),
            packet_len,
            fragment,
        }
    }
}

/// Length of an IP packet: what its header says, but at most what was on the wire. A length of zero says nothing: hosts that leave
/// segmentation to the network card write it, and jumbograms have it.
fn packet_len(family: u8, ip: &[u8], on_wire: u32) -> u32 {
    let said = |at: usize| {
        ip.get(at..at + 2)
            .map_or(0, |at| u32::from(at[0]) << 8 | u32::from(at[1]))
    };
    let said = match family {
        4 => said(2),
        _ => match said(4) {
            0 => 0,
            payload => 40 + payload,
        },
    };
    if said == 0 {
        on_wire
    } else {
        said.min(on_wire)
    }
}

/// RFC 791, section 3.1.
fn fragment_v4(ip: &[u8]) -> Option<Fragment> {
    let field = u16::from_be_bytes([*ip.get(6)?, *ip.get(7)?]);
    (field & 0x3fff != 0).then_some(Fragment {
        offset: u32::from(field & 0x1fff) * 8,
        more: field & 0x2000 != 0,
    })
}

/// RFC 8200, section 4.5. An atomic fragment (RFC 6946) is a whole packet.
fn fragment_v6(ip: &[u8]) -> Option<Fragment> {
    /// More headers are walked for no key either.
    const MOST: usize = 16;
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    let (mut next, mut rest) = (*ip.get(6)?, ip.get(40..)?);
    for _ in 0..MOST {
        let &[then, length, ..] = rest else {
            return None;
        };
        if next == FRAGMENT {
            let field = u16::from_be_bytes([*rest.get(2)?, *rest.get(3)?]);
            return (field & 0xfff9 != 0).then_some(Fragment {
                offset: u32::from(field & 0xfff8),
                more: field & 1 != 0,
            });
        }
        let length = match next {
            AUTHENTICATION => (usize::from(length) + 2) * 4,
            _ => (usize::from(length) + 1) * 8,
        };
        (next, rest) = (then, rest.get(length..)?);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LinkType;

    fn frame(data: &[u8], wire_len: u32) -> Frame<'_> {
        Frame {
            data,
            wire_len,
            interface: 0,
        }
    }

    /// An Ethernet frame of an IPv4 TCP packet with 20 bytes of TCP header and 2 of payload, padded to 60 bytes.
    fn v4() -> Vec<u8> {
        let mut data = vec![0; 60];
        data[12..14].copy_from_slice(&[8, 0]);
        data[14] = 0x45;
        data[17] = 42;
        data[23] = TCP;
        data[26..34].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        data[34..38].copy_from_slice(&[0, 80, 0, 81]);
        data
    }

    #[test]
    fn padding_and_cut_bytes_do_not_change_the_length() {
        let parser = Parser::new(LinkType::ETHERNET, false).expect("Ethernet has keys");
        let inner = Parser::new(LinkType::ETHERNET, true).expect("Ethernet has keys");
        for parser in [parser, inner] {
            let mut data = v4();
            let of = |data: &[u8], wire| {
                let transport = Transport::of(&parser, &frame(data, wire)).expect("a key");
                (
                    transport.len,
                    transport.captured.len(),
                    transport.packet_len,
                    transport.fragment,
                )
            };
            assert_eq!(of(&data, 60), (22, 22, 42, None));
            assert_eq!(of(&data[..50], 60), (22, 16, 42, None));
            // A packet cannot be longer than its frame.
            assert_eq!(of(&data[..50], 54), (20, 16, 40, None));
            // The host left the segmentation to the card.
            data[17] = 0;
            assert_eq!(of(&data, 1514), (1480, 26, 1500, None));
            data[17] = 42;
            data[20] = 0x20;
            let first = Fragment {
                offset: 0,
                more: true,
            };
            assert_eq!(of(&data, 60), (22, 22, 42, Some(first)));
            data[20..22].copy_from_slice(&[0, 3]);
            let last = Fragment {
                offset: 24,
                more: false,
            };
            assert_eq!(of(&data, 60), (0, 0, 42, Some(last)));
        }
    }

    #[test]
    fn fragments_of_ipv6_are_found_behind_other_headers() {
        let parser = Parser::new(LinkType::RAW, false).expect("raw IP has keys");
        let mut data = vec![0; 40 + 8 + 8 + 12];
        data[0] = 0x60;
        data[5] = 28;
        data[6] = 60;
        data[40] = 44;
        data[48] = UDP;
        data[51] = 1;
        let of = |data: &[u8]| {
            let transport = Transport::of(&parser, &frame(data, data.len() as u32)).expect("a key");
            (transport.len, transport.captured.len(), transport.fragment)
        };
        let fragment = |offset, more| Some(Fragment { offset, more });
        assert_eq!(of(&data), (12, 12, fragment(0, true)));
        data[51] = 16;
        assert_eq!(of(&data), (0, 0, fragment(16, false)));
        // An atomic fragment.
        data[51] = 0;
        assert_eq!(of(&data), (12, 12, None));
    }
}
