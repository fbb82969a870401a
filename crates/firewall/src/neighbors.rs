//! Validity of messages of IPv6 neighbor discovery, as a host judges it before it reads one.
//!
//! A message is valid if all conditions of RFC 4861 hold that its bytes can show: section 6.1 for
//! solicitations and advertisements of routers, 7.1 for messages of neighbors, 8.1 for redirects.
//! They concern the hop limit, the checksum, the code, the length, the options, and the source,
//! destination and target. A message of which not all bytes are captured is not valid. **Absent**:
//! whether the sender of a redirect is the router of its destination, which only the redirected
//! host knows.

use weir_packet::flow::Headers;

const ICMP6: u8 = 58;

/// Bytes of an IPv6 header.
const IP6_HEADER: usize = 40;

const ROUTER_SOLICITATION: u8 = 133;
const ROUTER_ADVERTISEMENT: u8 = 134;
const NEIGHBOR_SOLICITATION: u8 = 135;
const NEIGHBOR_ADVERTISEMENT: u8 = 136;
const REDIRECT: u8 = 137;

/// Type of the option that holds the link-layer address of the sender: RFC 4861, section 4.6.1.
const SOURCE_LINK_LAYER_ADDRESS: u8 = 1;

/// Solicited flag of a neighbor advertisement, in its fifth byte: RFC 4861, section 4.4.
const SOLICITED: u8 = 0x40;

const MULTICAST: u8 = 0xff;

/// First bytes of the solicited-node multicast addresses, ff02::1:ff00:0/104: RFC 4291, section 2.7.1.
const SOLICITED_NODES: [u8; 13] = [MULTICAST, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff];

/// Whether the packet is a valid message of neighbor discovery.
///
/// **Cost**: a few comparisons for all packets of ICMPv6 but those messages; for these a sum over the bytes.
pub(crate) fn is_valid(headers: &Headers<'_>) -> bool {
    let Some((header, _)) = headers.ip.split_first_chunk::<IP6_HEADER>() else {
        return false;
    };
    let message = headers.transport;
    // Right after the header of a packet that no router forwarded, whole, and of code 0.
    let [kind @ ROUTER_SOLICITATION..=REDIRECT, 0, ..] = *message else {
        return false;
    };
    let length = usize::from(u16::from_be_bytes([header[4], header[5]]));
    if header[6] != ICMP6 || header[7] != 255 || length != message.len() {
        return false;
    }
    let (source, destination) = (&header[8..24], &header[24..40]);
    let least = match kind {
        ROUTER_SOLICITATION => 8,
        ROUTER_ADVERTISEMENT => 16,
        REDIRECT => 40,
        _ => 24,
    };
    if length < least {
        return false;
    }
    let is_unspecified = source == [0; 16];
    let is_right = match kind {
        ROUTER_SOLICITATION => true,
        ROUTER_ADVERTISEMENT => is_link_local(source),
        NEIGHBOR_SOLICITATION => {
            message[8] != MULTICAST
                && (!is_unspecified || destination.starts_with(&SOLICITED_NODES))
        }
        NEIGHBOR_ADVERTISEMENT => {
            message[8] != MULTICAST && (destination[0] != MULTICAST || message[4] & SOLICITED == 0)
        }
        _ => {
            let (target, redirected) = (&message[8..24], &message[24..40]);
            is_link_local(source)
                && redirected[0] != MULTICAST
                && (target == redirected || is_link_local(target))
        }
    };
    let is_solicitation = matches!(kind, ROUTER_SOLICITATION | NEIGHBOR_SOLICITATION);
    let forbidden = (is_unspecified && is_solicitation).then_some(SOURCE_LINK_LAYER_ADDRESS);
    is_right && are_options(&message[least..], forbidden) && is_sum_right(header, message)
}

/// fe80::/10: RFC 4291, section 2.5.6.
fn is_link_local(address: &[u8]) -> bool {
    address[0] == 0xfe && address[1] & 0xc0 == 0x80
}

/// Whether the bytes are whole options, each longer than nothing, and none of a forbidden type. A length counts eight bytes: RFC 4861,
/// section 4.6.
fn are_options(mut bytes: &[u8], forbidden: Option<u8>) -> bool {
    while let Some((&kind, behind)) = bytes.split_first() {
        let length = behind.first().map_or(0, |&length| usize::from(length) * 8);
        if length == 0 || length > bytes.len() || forbidden == Some(kind) {
            return false;
        }
        bytes = &bytes[length..];
    }
    true
}

/// Whether the checksum is right, which the sum over the pseudo-header and the message shows: RFC 4443, section 2.3.
fn is_sum_right(header: &[u8; IP6_HEADER], message: &[u8]) -> bool {
    // 64 KiB of words at most, so that the sum fits.
    let pseudo = words(&header[8..]) + message.len() as u32 + u32::from(ICMP6);
    let mut sum = pseudo + words(message);
    while sum >> 16 != 0 {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum == 0xffff
}

/// Sum of 16-bit words; a last odd byte is the upper half of a word.
fn words(bytes: &[u8]) -> u32 {
    bytes
        .chunks(2)
        .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low)))
        .sum()
}

#[cfg(test)]
mod tests {
    use crate::fields::{Content, Fields};
    use weir_packet::LinkType;
    use weir_packet::flow::Parser;

    const LINK_LOCAL: [u8; 16] = [0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    const GLOBAL: [u8; 16] = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2];
    const ALL_NODES: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    const SOLICITED_NODE: [u8; 16] = [0xff, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0xff, 0, 0, 2];
    const UNSPECIFIED: [u8; 16] = [0; 16];
    /// Link-layer address of the sender, and of the target.
    const FROM: [u8; 8] = [1, 1, 2, 0, 0, 0, 0, 9];
    const TO: [u8; 8] = [2, 1, 2, 0, 0, 0, 0, 9];

    /// A message with a right checksum in an Ethernet frame.
    fn frame(source: [u8; 16], destination: [u8; 16], message: &[&[u8]]) -> Vec<u8> {
        let mut message = message.concat();
        let pseudo = [
            &source[..],
            &destination,
            &(message.len() as u32).to_be_bytes(),
            &[0, 0, 0, 58],
            &message,
        ];
        // One's complement arithmetic in plain words: RFC 1071, with wrapping additions.
        let bytes = pseudo.concat();
        let mut sum = 0u16;
        for word in bytes.chunks(2) {
            let (next, is_over) =
                sum.overflowing_add(u16::from_be_bytes([word[0], *word.get(1).unwrap_or(&0)]));
            sum = next + u16::from(is_over);
        }
        message[2..4].copy_from_slice(&(!sum).to_be_bytes());
        let length = (message.len() as u16).to_be_bytes();
        let ip = [
            &[0x60, 0, 0, 0][..],
            &length,
            &[58, 255],
            &source,
            &destination,
        ]
        .concat();
        [&[2; 12], &[0x86, 0xdd][..], &ip, &message].concat()
    }

    fn is_discovery(frame: &[u8]) -> bool {
        let parser = Parser::new(LinkType::ETHERNET, false).unwrap();
        match Fields::of(&parser, frame).content() {
            Content::Neighbors => true,
            Content::Ip => false,
            other => panic!("{other:?}"),
        }
    }

    fn redirect(target: [u8; 16], redirected: [u8; 16]) -> Vec<u8> {
        [&[137, 0, 0, 0, 0, 0, 0, 0][..], &target, &redirected].concat()
    }

    /// A message: what it is, source, destination and bytes.
    type Case<'a> = (&'static str, [u8; 16], [u8; 16], Vec<&'a [u8]>);

    const RS: [u8; 8] = [133, 0, 0, 0, 0, 0, 0, 0];
    const RA: [u8; 16] = [134, 0, 0, 0, 64, 0, 7, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    const NS: [u8; 8] = [135, 0, 0, 0, 0, 0, 0, 0];
    const NA: [u8; 8] = [136, 0, 0, 0, 0x60, 0, 0, 0];
    const UNASKED: [u8; 8] = [136, 0, 0, 0, 0x20, 0, 0, 0];

    /// Messages as RFC 4861 has them, the five kinds with and without options.
    #[test]
    fn messages_of_neighbor_discovery_are_valid() {
        let (onward, direct) = (redirect(LINK_LOCAL, GLOBAL), redirect(GLOBAL, GLOBAL));
        // A redirect quotes the packet, eight bytes and 40 of it: section 4.6.3.
        let quoted = [&[4u8, 6, 0, 0, 0, 0, 0, 0][..], &[0x60; 40]].concat();
        let cases: Vec<Case<'_>> = vec![
            (
                "router solicitation",
                LINK_LOCAL,
                ALL_NODES,
                vec![&RS, &FROM],
            ),
            (
                "router solicitation of no address",
                UNSPECIFIED,
                ALL_NODES,
                vec![&RS],
            ),
            ("router advertisement", LINK_LOCAL, ALL_NODES, vec![&RA]),
            (
                "router advertisement with options",
                LINK_LOCAL,
                ALL_NODES,
                vec![&RA, &FROM, &[5, 1, 0, 0, 0, 0, 5, 220]],
            ),
            (
                "neighbor solicitation",
                GLOBAL,
                SOLICITED_NODE,
                vec![&NS, &GLOBAL, &FROM],
            ),
            ("of a known neighbor", GLOBAL, GLOBAL, vec![&NS, &GLOBAL]),
            (
                "detection of duplicates",
                UNSPECIFIED,
                SOLICITED_NODE,
                vec![&NS, &GLOBAL],
            ),
            (
                "with a nonce, RFC 7527",
                UNSPECIFIED,
                SOLICITED_NODE,
                vec![&NS, &GLOBAL, &[14, 1, 1, 2, 3, 4, 5, 6]],
            ),
            (
                "neighbor advertisement",
                GLOBAL,
                LINK_LOCAL,
                vec![&NA, &GLOBAL, &TO],
            ),
            (
                "neighbor advertisement to all",
                GLOBAL,
                ALL_NODES,
                vec![&UNASKED, &GLOBAL, &TO],
            ),
            (
                "redirect to a router",
                LINK_LOCAL,
                GLOBAL,
                vec![&onward, &TO, &quoted],
            ),
            ("redirect to a neighbor", LINK_LOCAL, GLOBAL, vec![&direct]),
        ];
        for (what, source, destination, message) in cases {
            let whole = frame(source, destination, &message);
            assert!(is_discovery(&whole), "{what}");
            // Padding of Ethernet is no part of it.
            assert!(is_discovery(&[&whole[..], &[0; 6]].concat()), "{what}");
            for cut in 55..whole.len() {
                assert!(!is_discovery(&whole[..cut]), "{what}, cut at {cut}");
            }
            // Each bit of the message is under the checksum, so are both addresses; the hop limit and the length stand alone.
            for bit in (18 * 8..20 * 8).chain(21 * 8..whole.len() * 8) {
                let mut other = whole.clone();
                other[bit / 8] ^= 1 << (bit % 8);
                assert!(!is_discovery(&other), "{what}, bit {bit}");
            }
        }
    }

    /// One condition of RFC 4861 broken each, with a right checksum.
    #[test]
    fn what_breaks_a_condition_is_not_valid() {
        let many = [1u8; 2048];
        let (to_many, elsewhere) = (
            redirect(LINK_LOCAL, ALL_NODES),
            redirect(GLOBAL, LINK_LOCAL),
        );
        let onward = redirect(LINK_LOCAL, GLOBAL);
        let cases: Vec<Case<'_>> = vec![
            (
                "6.1.1: code",
                LINK_LOCAL,
                ALL_NODES,
                vec![&[133, 1, 0, 0, 0, 0, 0, 0]],
            ),
            (
                "6.1.1: length",
                LINK_LOCAL,
                ALL_NODES,
                vec![&[133, 0, 0, 0]],
            ),
            (
                "6.1.1: option of length 0",
                LINK_LOCAL,
                ALL_NODES,
                vec![&RS, &[1, 0, 0, 0, 0, 0, 0, 0]],
            ),
            (
                "6.1.1: source option of no source",
                UNSPECIFIED,
                ALL_NODES,
                vec![&RS, &FROM],
            ),
            (
                "6.1.1: source option behind another",
                UNSPECIFIED,
                ALL_NODES,
                vec![&RS, &TO, &FROM],
            ),
            ("6.1.2: source", GLOBAL, ALL_NODES, vec![&RA]),
            ("6.1.2: no source", UNSPECIFIED, ALL_NODES, vec![&RA]),
            (
                "6.1.2: code",
                LINK_LOCAL,
                ALL_NODES,
                vec![&[134, 7], &RA[2..]],
            ),
            ("6.1.2: length", LINK_LOCAL, ALL_NODES, vec![&RA[..12]]),
            (
                "6.1.2: option of length 0",
                LINK_LOCAL,
                ALL_NODES,
                vec![&RA, &FROM, &[3, 0, 0, 0, 0, 0, 0, 0]],
            ),
            (
                "7.1.1: length",
                GLOBAL,
                SOLICITED_NODE,
                vec![&NS, &GLOBAL[..12]],
            ),
            (
                "7.1.1: target",
                GLOBAL,
                SOLICITED_NODE,
                vec![&NS, &ALL_NODES],
            ),
            (
                "7.1.1: code",
                GLOBAL,
                SOLICITED_NODE,
                vec![&[135, 3], &NS[2..], &GLOBAL],
            ),
            (
                "7.1.1: no source, to all",
                UNSPECIFIED,
                ALL_NODES,
                vec![&NS, &GLOBAL],
            ),
            (
                "7.1.1: no source, to one",
                UNSPECIFIED,
                GLOBAL,
                vec![&NS, &GLOBAL],
            ),
            (
                "7.1.1: source option of no source",
                UNSPECIFIED,
                SOLICITED_NODE,
                vec![&NS, &GLOBAL, &FROM],
            ),
            (
                "7.1.1: option beyond the end",
                GLOBAL,
                SOLICITED_NODE,
                vec![&NS, &GLOBAL, &[1, 2, 2, 0, 0, 0, 0, 9]],
            ),
            (
                "7.1.1: half an option",
                GLOBAL,
                SOLICITED_NODE,
                vec![&NS, &GLOBAL, &[1, 1, 2, 0]],
            ),
            (
                "7.1.1: a byte of an option",
                GLOBAL,
                SOLICITED_NODE,
                vec![&NS, &GLOBAL, &[1]],
            ),
            (
                "7.1.2: length",
                GLOBAL,
                LINK_LOCAL,
                vec![&NA, &GLOBAL[..15]],
            ),
            ("7.1.2: target", GLOBAL, LINK_LOCAL, vec![&NA, &ALL_NODES]),
            (
                "7.1.2: code",
                GLOBAL,
                LINK_LOCAL,
                vec![&[136, 1], &NA[2..], &GLOBAL],
            ),
            (
                "7.1.2: solicited by all",
                GLOBAL,
                ALL_NODES,
                vec![&NA, &GLOBAL],
            ),
            (
                "7.1.2: option of length 0",
                GLOBAL,
                LINK_LOCAL,
                vec![&NA, &GLOBAL, &[2, 0, 2, 0, 0, 0, 0, 9]],
            ),
            ("8.1: source", GLOBAL, GLOBAL, vec![&onward]),
            (
                "8.1: code",
                LINK_LOCAL,
                GLOBAL,
                vec![&[137, 1], &onward[2..]],
            ),
            ("8.1: length", LINK_LOCAL, GLOBAL, vec![&onward[..32]]),
            (
                "8.1: redirected multicast",
                LINK_LOCAL,
                GLOBAL,
                vec![&to_many],
            ),
            (
                "8.1: target of another network",
                LINK_LOCAL,
                GLOBAL,
                vec![&elsewhere],
            ),
            (
                "8.1: option of length 0",
                LINK_LOCAL,
                GLOBAL,
                vec![&onward, &[4, 0, 0, 0, 0, 0, 0, 0]],
            ),
            (
                "junk behind a message",
                GLOBAL,
                SOLICITED_NODE,
                vec![&NS, &GLOBAL, &[0; 1024]],
            ),
            (
                "another type",
                LINK_LOCAL,
                ALL_NODES,
                vec![&[138, 0], &RA[2..]],
            ),
            (
                "an echo request",
                LINK_LOCAL,
                ALL_NODES,
                vec![&[128, 0], &RA[2..]],
            ),
        ];
        for (what, source, destination, message) in cases {
            assert!(
                !is_discovery(&frame(source, destination, &message)),
                "{what}"
            );
        }
        let valid = frame(GLOBAL, SOLICITED_NODE, &[&NS, &GLOBAL]);
        let damaged = |at: usize, value: u8| {
            let mut other = valid.clone();
            other[at] = value;
            other
        };
        assert!(
            !is_discovery(&damaged(21, 254)),
            "7.1.1: a router forwarded it"
        );
        // Jumbograms have no length, and none of them is discovery.
        let without_length = [&damaged(19, 0)[..], &many].concat();
        assert!(!is_discovery(&without_length), "no length");
        // Extension headers in front: RFC 6980 forbids fragments, and hosts send no others.
        let behind_options = [
            &valid[..18],
            &[0, 32, 0, 255],
            &valid[22..54],
            &[58, 0, 1, 4, 0, 0, 0, 0],
            &valid[54..],
        ];
        assert!(!is_discovery(&behind_options.concat()), "behind options");
    }
}
