//! The bytes under which distinct things are counted, so that counts made elsewhere can be merged with ours.
//!
//! An IPv4 address is its number as eight bytes, little-endian, as a `long` is hashed elsewhere; an IPv6 address its sixteen
//! bytes. A flow is source, destination, source port, destination port and protocol, all in network byte order: 13 bytes for
//! IPv4, 37 for IPv6.

use weir_packet::flow::FlowKey;

/// Canonical bytes.
pub(crate) struct Canonical {
    bytes: [u8; 37],
    len: usize,
}

impl Canonical {
    pub fn address(family: u8, address: &[u8; 16]) -> Self {
        let [a, b, c, d, ..] = *address;
        match family {
            4 => Self::of(&[&u64::from(u32::from_be_bytes([a, b, c, d])).to_le_bytes()]),
            _ => Self::of(&[address]),
        }
    }

    pub fn flow(flow: &FlowKey) -> Self {
        let width = if flow.family == 4 { 4 } else { 16 };
        let (sport, dport) = (flow.sport.to_be_bytes(), flow.dport.to_be_bytes());
        Self::of(&[&flow.src[..width], &flow.dst[..width], &sport, &dport, &[flow.proto]])
    }

    fn of(parts: &[&[u8]]) -> Self {
        let mut all = Self { bytes: [0; 37], len: 0 };
        for part in parts {
            all.bytes[all.len..all.len + part.len()].copy_from_slice(part);
            all.len += part.len();
        }
        all
    }
}

impl AsRef<[u8]> for Canonical {
    fn as_ref(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_as_the_text_says() {
        let mut flow = FlowKey { proto: 6, family: 4, sport: 0x1234, dport: 443, ..FlowKey::NONE };
        flow.src[..4].copy_from_slice(&[10, 1, 2, 3]);
        flow.dst[..4].copy_from_slice(&[192, 0, 2, 9]);
        assert_eq!(Canonical::flow(&flow).as_ref(), [10, 1, 2, 3, 192, 0, 2, 9, 0x12, 0x34, 1, 187, 6]);
        assert_eq!(Canonical::address(4, &flow.src).as_ref(), 0x0a01_0203_u64.to_le_bytes());
        let six = FlowKey { src: [7; 16], dst: [8; 16], family: 6, proto: 17, ..FlowKey::NONE };
        let expected = [[7; 16].as_slice(), &[8; 16], &[0; 4], &[17]].concat();
        assert_eq!(Canonical::flow(&six).as_ref(), expected);
        assert_eq!(Canonical::address(6, &six.src).as_ref(), [7; 16]);
    }
}
