//! Netlink messages: requests to the kernel, and the attributes of its answers. The module works on bytes and opens no socket.
//!
//! **Layout**, native byte order: `struct nlmsghdr` (length u32, type u16, flags u16, sequence u32, port u32), then a header of
//! the family, then attributes. Each attribute has a length (u16, with these four bytes), a kind (u16), a value, and padding to
//! four bytes.
//! **Source**: linux/netlink.h, linux/genetlink.h, linux/rtnetlink.h.

use std::io;
use std::net::IpAddr;

/// Bytes of `struct nlmsghdr`.
const MESSAGE: usize = 16;

/// `NLM_F_REQUEST` of linux/netlink.h.
const REQUEST: u16 = 1;

/// Address families of linux/socket.h.
pub const AF_INET: u8 = 2;
/// Address family of IPv6.
pub const AF_INET6: u8 = 10;

/// Bytes in front of the attributes of a message about a route: `struct nlmsghdr` and `struct rtmsg`.
pub const ROUTE: usize = MESSAGE + 12;

/// `RTM_GETROUTE` of linux/rtnetlink.h.
pub const RTM_GETROUTE: u16 = 26;

/// Bytes in front of the attributes of a generic message: `struct nlmsghdr` and `struct genlmsghdr`.
pub const GENERIC: usize = MESSAGE + 4;

/// Bytes in front of the attributes of a message about an interface: `struct nlmsghdr` and `struct ifinfomsg`.
pub const LINK: usize = MESSAGE + 16;

/// `RTM_GETLINK` of linux/rtnetlink.h.
pub const RTM_GETLINK: u16 = 18;

/// Encodes a generic request with one attribute.
pub fn generic(family: u16, command: u8, version: u8, kind: u16, value: &[u8]) -> Vec<u8> {
    let attribute = 4 + value.len();
    let mut bytes = header(GENERIC + attribute.next_multiple_of(4), family);
    bytes.extend_from_slice(&[command, version, 0, 0]);
    bytes.extend_from_slice(&(attribute as u16).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

/// Encodes a request for all attributes of interface number `index`.
pub fn link(index: u32) -> Vec<u8> {
    let mut bytes = header(LINK, RTM_GETLINK);
    // `struct ifinfomsg`: family, padding, hardware type, index, flags and their mask.
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&index.to_ne_bytes());
    bytes.extend_from_slice(&[0; 8]);
    bytes
}

/// Encodes a request for all objects of a kind, as `RTM_GETADDR` asks for. All bytes of the family's header, which has `body`
/// bytes, are 0: that stands for all address families and tables.
pub fn dump(kind: u16, body: usize) -> Vec<u8> {
    /// `NLM_F_DUMP` of linux/netlink.h.
    const DUMP: u16 = 0x300;
    let mut bytes = header(MESSAGE + body, kind);
    bytes[6..8].copy_from_slice(&(REQUEST | DUMP).to_ne_bytes());
    bytes.resize(MESSAGE + body, 0);
    bytes
}

/// Encodes a request for the route that a packet to `destination` takes.
pub fn route_to(destination: IpAddr) -> Vec<u8> {
    /// `RTA_DST` of linux/rtnetlink.h.
    const RTA_DST: u16 = 1;
    let (family, address) = match destination {
        IpAddr::V4(address) => (AF_INET, address.octets().to_vec()),
        IpAddr::V6(address) => (AF_INET6, address.octets().to_vec()),
    };
    let mut bytes = header(ROUTE + 4 + address.len(), RTM_GETROUTE);
    // `struct rtmsg`: family, bits of the destination; the rest is 0.
    bytes.extend_from_slice(&[
        family,
        (address.len() * 8) as u8,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
        0,
    ]);
    bytes.extend_from_slice(&(4 + address.len() as u16).to_ne_bytes());
    bytes.extend_from_slice(&RTA_DST.to_ne_bytes());
    bytes.extend_from_slice(&address);
    bytes
}

/// A message of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message<'a> {
    /// Kind of the message, as `RTM_NEWADDR`.
    pub kind: u16,
    /// Flags of the message: `NLM_F_*` of linux/netlink.h.
    pub flags: u16,
    /// Bytes after `struct nlmsghdr`.
    pub body: &'a [u8],
}

/// Messages that lie back to back. The last item is an error if bytes are left that are not a
/// message.
pub fn messages(mut bytes: &[u8]) -> impl Iterator<Item = io::Result<Message<'_>>> {
    std::iter::from_fn(move || {
        if bytes.is_empty() {
            return None;
        }
        let message = first_message(bytes);
        let len = message
            .as_ref()
            .map_or(usize::MAX, |message| MESSAGE + message.body.len());
        bytes = bytes.get(len.saturating_add(3) & !3..).unwrap_or_default();
        Some(message)
    })
}

fn first_message(bytes: &[u8]) -> io::Result<Message<'_>> {
    let head: &[u8; MESSAGE] = bytes.first_chunk().ok_or_else(malformed)?;
    let &[a, b, c, d, e, f, g, h, ..] = head;
    let body = bytes
        .get(MESSAGE..u32::from_ne_bytes([a, b, c, d]) as usize)
        .ok_or_else(malformed)?;
    Ok(Message {
        kind: u16::from_ne_bytes([e, f]),
        flags: u16::from_ne_bytes([g, h]),
        body,
    })
}

/// Kinds and values of attributes, up to the first that is cut.
pub fn each_attribute(mut attributes: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    /// `NLA_F_NESTED` and `NLA_F_NET_BYTEORDER` of linux/netlink.h, which are not a part of the
    /// kind.
    const FLAGS: u16 = 0xc000;
    std::iter::from_fn(move || {
        let &[a, b, c, d, ..] = attributes else {
            return None;
        };
        let len = usize::from(u16::from_ne_bytes([a, b]));
        let value = attributes.get(4..len)?;
        attributes = attributes
            .get(len.next_multiple_of(4)..)
            .unwrap_or_default();
        Some((u16::from_ne_bytes([c, d]) & !FLAGS, value))
    })
}

/// Returns a number of four bytes at an offset.
pub fn number(bytes: &[u8], at: usize) -> Option<u32> {
    bytes
        .get(at..)?
        .first_chunk()
        .map(|bytes| u32::from_ne_bytes(*bytes))
}

/// Encodes `struct nlmsghdr` of a request of `len` bytes.
fn header(len: usize, kind: u16) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(len);
    bytes.extend_from_slice(&(len as u32).to_ne_bytes());
    bytes.extend_from_slice(&kind.to_ne_bytes());
    bytes.extend_from_slice(&REQUEST.to_ne_bytes());
    // Sequence number and port are zero: only one request is under way at a time, and the kernel fills in the port.
    bytes.extend_from_slice(&[0; 8]);
    bytes
}

/// Returns the attributes of a message, which follow `headers` bytes. **Errors**: the error that the message carries; an answer
/// shorter than its stated length.
pub fn attributes(answer: &[u8], headers: usize) -> io::Result<&[u8]> {
    /// `NLMSG_ERROR` of linux/netlink.h.
    const ERROR: u16 = 2;
    let word = |at: usize| {
        answer
            .get(at..at + 4)
            .and_then(|bytes| bytes.try_into().ok())
            .ok_or_else(malformed)
    };
    let len = u32::from_ne_bytes(word(0)?) as usize;
    let [a, b, ..] = word(4)?;
    if u16::from_ne_bytes([a, b]) == ERROR {
        return Err(io::Error::from_raw_os_error(
            i32::from_ne_bytes(word(MESSAGE)?).wrapping_neg(),
        ));
    }
    answer.get(headers..len).ok_or_else(malformed)
}

/// Returns the value of the first attribute of this kind.
pub fn attribute(mut attributes: &[u8], kind: u16) -> io::Result<&[u8]> {
    while let [a, b, c, d, ..] = *attributes {
        let (len, this) = (
            usize::from(u16::from_ne_bytes([a, b])),
            u16::from_ne_bytes([c, d]),
        );
        let value = attributes.get(4..len).ok_or_else(malformed)?;
        if this == kind {
            return Ok(value);
        }
        attributes = attributes
            .get(len.next_multiple_of(4)..)
            .unwrap_or_default();
    }
    Err(malformed())
}

/// Returns the error for an answer that cannot be read.
pub fn malformed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the kernel's answer is not understood",
    )
}

/// Body that the fuzz target and the tests share.
#[cfg(any(test, fuzzing))]
#[doc(hidden)]
pub mod fuzz_body {
    use super::{GENERIC, LINK, MESSAGE, attribute, attributes, each_attribute, messages};
    use crate::network::Network;

    /// Reads any bytes as a kernel's answer, and compares the attribute found with a list of all attributes. The first byte
    /// chooses the family's header; the next two bytes choose the attribute.
    pub fn answer(data: &[u8]) {
        let Some((&[family, low, high], answer)) = data.split_first_chunk() else {
            return;
        };
        let headers = if family & 1 == 0 { GENERIC } else { LINK };
        let number = |at: usize, len: usize| {
            let bytes = answer.get(at..at + len)?;
            let bytes = if cfg!(target_endian = "big") {
                bytes.to_vec()
            } else {
                bytes.iter().rev().copied().collect()
            };
            Some(
                bytes
                    .iter()
                    .fold(0usize, |number, &byte| number << 8 | usize::from(byte)),
            )
        };
        let whole = match (number(0, 4), number(4, 2)) {
            (Some(len), Some(kind)) if kind != 2 && answer.len() >= 8 => {
                (headers..=answer.len()).contains(&len).then_some(len)
            }
            _ => None,
        };
        let found = attributes(answer, headers);
        assert_eq!(
            found.as_ref().ok().map(|inside| inside.len()),
            whole.map(|len| len - headers)
        );
        let (Ok(inside), Some(end)) = (found, whole) else {
            return;
        };
        let wanted = u16::from_ne_bytes([low, high]);
        let mut at = headers;
        let mut expected = None;
        while at + 4 <= end {
            let (Some(len), Some(kind)) = (number(at, 2), number(at + 2, 2)) else {
                break;
            };
            if len < 4 || at + len > end {
                break;
            }
            if kind == usize::from(wanted) {
                expected = Some(&answer[at + 4..at + len]);
                break;
            }
            at += len.div_ceil(4) * 4;
        }
        assert_eq!(attribute(inside, wanted).ok(), expected);
        let of_iterator = each_attribute(inside).find(|(kind, _)| *kind == wanted);
        // The upper bits of a kind are flags.
        if wanted & 0xc000 == 0 && kinds_are_plain(inside) {
            assert_eq!(of_iterator.map(|(_, value)| value), expected);
        }
    }

    fn kinds_are_plain(attributes: &[u8]) -> bool {
        let mut at = 0;
        while let Some(&[a, b, c, d]) = attributes
            .get(at..at + 4)
            .and_then(|bytes| bytes.first_chunk())
        {
            let len = usize::from(u16::from_ne_bytes([a, b]));
            if len < 4 || u16::from_ne_bytes([c, d]) & 0xc000 != 0 {
                return len < 4;
            }
            at += len.next_multiple_of(4);
        }
        true
    }

    /// Reads any bytes as each of the kernel's answers about its network. The messages that are
    /// read lie one after the other.
    pub fn network(data: &[u8]) {
        let mut at = 0;
        for message in messages(data) {
            match message {
                Ok(message) => {
                    assert_eq!(
                        data[at + MESSAGE..at + MESSAGE + message.body.len()],
                        *message.body
                    );
                    at += (MESSAGE + message.body.len()).next_multiple_of(4);
                }
                Err(_) => at = data.len(),
            }
        }
        assert!(at >= data.len());
        let Ok(network) = Network::parse(data, data, data, data) else {
            return;
        };
        for interface in &network.interfaces {
            let (above, below) = (
                network.above(interface.index),
                network.below(interface.index),
            );
            let beside = network.beside(interface.index);
            assert!(
                above.is_subset(&beside)
                    && below.is_subset(&beside)
                    && beside.contains(&interface.index)
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares an encoded request with the layout of linux/netlink.h and linux/genetlink.h, and reads the same bytes as an
    /// answer.
    #[test]
    fn messages_are_as_the_kernel_has_them() {
        let request = generic(0x10, 3, 2, 2, b"netdev\0");
        let mut golden = Vec::new();
        golden.extend_from_slice(&32u32.to_ne_bytes());
        golden.extend_from_slice(&0x10u16.to_ne_bytes());
        golden.extend_from_slice(&1u16.to_ne_bytes());
        golden.extend_from_slice(&[0, 0, 0, 0, 0, 0, 0, 0, 3, 2, 0, 0]);
        golden.extend_from_slice(&11u16.to_ne_bytes());
        golden.extend_from_slice(&2u16.to_ne_bytes());
        golden.extend_from_slice(b"netdev\0\0");
        assert_eq!(request, golden);
        let inside = attributes(&golden, GENERIC).unwrap();
        assert_eq!(attribute(inside, 2).unwrap(), b"netdev\0");
        assert!(attribute(inside, 3).is_err());
        for len in 0..golden.len() {
            assert!(attributes(&golden[..len], GENERIC).is_err());
        }
        assert!(attribute(&[3, 0, 2, 0], 2).is_err());
        let mut error = vec![0; 36];
        error[..4].copy_from_slice(&36u32.to_ne_bytes());
        error[4..6].copy_from_slice(&2u16.to_ne_bytes());
        error[16..20].copy_from_slice(&(-2i32).to_ne_bytes());
        assert_eq!(
            attributes(&error, GENERIC).unwrap_err().raw_os_error(),
            Some(2)
        );
    }

    /// `ip link show` sends the same request, except for the sequence number and an attribute that filters the answer.
    #[test]
    fn a_question_about_an_interface_names_it() {
        let mut golden = Vec::new();
        golden.extend_from_slice(&32u32.to_ne_bytes());
        golden.extend_from_slice(&18u16.to_ne_bytes());
        golden.extend_from_slice(&1u16.to_ne_bytes());
        golden.extend_from_slice(&[0; 12]);
        golden.extend_from_slice(&7u32.to_ne_bytes());
        golden.extend_from_slice(&[0; 8]);
        assert_eq!(link(7), golden);
    }

    #[test]
    fn damaged_answers_are_read_as_the_header_file_says() {
        let mut good = generic(0x10, 3, 2, 7, b"netdev\0");
        for (kind, value) in [(1u16, &b"\0\x01"[..]), (3, b""), (41, &[0, 0, 1, 0])] {
            good.extend((4 + value.len() as u16).to_ne_bytes());
            good.extend(kind.to_ne_bytes());
            good.extend(value);
            good.resize(good.len().next_multiple_of(4), 0);
        }
        let len = good.len() as u32;
        good[..4].copy_from_slice(&len.to_ne_bytes());
        for kind in [1u16, 3, 7, 41, 99] {
            for family in [0, 1] {
                let [low, high] = kind.to_ne_bytes();
                let data = [&[family, low, high], &good[..]].concat();
                fuzz_body::answer(&data);
                (0..data.len()).for_each(|len| fuzz_body::answer(&data[..len]));
                for at in 3..data.len() {
                    for value in (0..=255).step_by(if cfg!(miri) { 85 } else { 1 }) {
                        let mut damaged = data.clone();
                        damaged[at] = value;
                        fuzz_body::answer(&damaged);
                    }
                }
            }
        }
    }
}
