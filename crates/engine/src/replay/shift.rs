//! Frames with shifted addresses, so that each round of a replay is of other hosts.
//!
//! The last 16 bits of the IPv4 and IPv6 addresses of both ends grow by the number of the round. So an address stays in its network, and
//! both directions of a connection stay together. The checksums of IPv4, TCP, UDP and ICMPv6 change with the addresses (RFC 1624).
//! Addresses of groups, loopback and broadcast stay.

use super::{IPV4, IPV6, after_tags, word};

/// Shifts the addresses of a frame of Ethernet by `by`. A malformed or cut header stays as it is.
pub(super) fn shift(frame: &mut [u8], by: u16) {
    match after_tags(frame) {
        Some((IPV4, at)) => ipv4(frame, at, by),
        Some((IPV6, at)) => ipv6(frame, at, by),
        _ => {}
    }
}

/// Adds to a word, and returns the change of a sum that has it.
fn add(frame: &mut [u8], at: usize, by: u16) -> u32 {
    let Some(old) = word(frame, at) else { return 0 };
    let new = old.wrapping_add(by);
    frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
    u32::from(!old) + u32::from(new)
}

/// Whether an address is none of a single station: of a group, broadcast, loopback, or unspecified.
pub(crate) fn is_group(address: &[u8]) -> bool {
    match address.len() {
        4 => matches!(address[0], 0 | 127 | 224..),
        _ => address[0] == 0xff || address[..15] == [0; 15],
    }
}

/// Corrects a checksum by a change (RFC 1624): HC' = ~(~HC + ~m + m'). A checksum of UDP that is 0 is none (RFC 768).
pub(crate) fn correct(frame: &mut [u8], at: usize, change: u32, is_udp: bool) {
    let Some(old) = word(frame, at) else { return };
    if is_udp && old == 0 {
        return;
    }
    let mut sum = u32::from(!old) + change;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    let new = match !(sum as u16) {
        0 if is_udp => 0xffff,
        new => new,
    };
    frame[at..at + 2].copy_from_slice(&new.to_be_bytes());
}

fn ipv4(frame: &mut [u8], at: usize, by: u16) {
    let Some(header) = frame.get(at..at + 20) else {
        return;
    };
    let len = usize::from(header[0] & 15) * 4;
    if header[0] >> 4 != 4 || len < 20 {
        return;
    }
    let is_later_fragment = word(header, 6).is_some_and(|it| it & 0x1fff != 0);
    let protocol = header[9];
    let shifts = [12, 16].map(|address| !is_group(&header[address..address + 4]));
    let mut change = 0;
    for (address, is_shifted) in [12, 16].into_iter().zip(shifts) {
        if is_shifted {
            change += add(frame, at + address + 2, by);
        }
    }
    correct(frame, at + 10, change, false);
    if !is_later_fragment {
        transport(frame, at + len, protocol, change);
    }
}

fn ipv6(frame: &mut [u8], at: usize, by: u16) {
    let Some(header) = frame.get(at..at + 40) else {
        return;
    };
    if header[0] >> 4 != 6 {
        return;
    }
    let mut protocol = header[6];
    let shifts = [8, 24].map(|address| !is_group(&header[address..address + 16]));
    let mut change = 0;
    for (address, is_shifted) in [8, 24].into_iter().zip(shifts) {
        if is_shifted {
            change += add(frame, at + address + 14, by);
        }
    }
    let mut next = at + 40;
    // Hop-by-hop and destination options, routing headers, and fragments (RFC 8200 section 4).
    while let 0 | 43 | 44 | 60 = protocol {
        let Some(&[following, len]) = frame.get(next..).and_then(|rest| rest.first_chunk()) else {
            return;
        };
        let is_fragment = protocol == 44;
        if is_fragment && word(frame, next + 2).is_none_or(|it| it & !7 != 0) {
            return;
        }
        // The address at the end of a route is in the sum, and stays.
        if protocol == 43 {
            return;
        }
        protocol = following;
        next += if is_fragment {
            8
        } else {
            8 * (usize::from(len) + 1)
        };
    }
    transport(frame, next, protocol, change);
}

fn transport(frame: &mut [u8], at: usize, protocol: u8, change: u32) {
    match protocol {
        6 => correct(frame, at + 16, change, false),
        17 => correct(frame, at + 6, change, true),
        58 => correct(frame, at + 2, change, false),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_generator::streams::{Frames, Profile};

    /// Compares with a generator, which writes all headers for the other addresses.
    #[test]
    fn shifted_frames_are_those_of_other_hosts() {
        fn text(hosts: [&str; 4]) -> String {
            let [a, b, c, d] = hosts;
            format!(
                r#"
                packets = 3000
                [[stream]]
                layers = "eth/ipv4/udp"
                payload = "random"
                size = "60-200"
                ipv4.src = "{a}"
                ipv4.dst = "{b}"
                [[stream]]
                layers = "eth/vlan/vlan/ipv4/tcp"
                payload = "random"
                size = "70-300"
                ipv4.src = "{a}"
                ipv4.dst = "224.0.0.9"
                [[stream]]
                layers = "eth/ipv4/icmp"
                ipv4.dst = "{b}"
                ipv4.src = "{a}"
                [[stream]]
                layers = "eth/ipv6/tcp"
                payload = "random"
                size = "74-90"
                ipv6.src = "{c}"
                ipv6.dst = "{d}"
                [[stream]]
                layers = "eth/vlan/ipv6/udp"
                ipv6.src = "{c}"
                ipv6.dst = "ff02::1"
                [[stream]]
                layers = "eth/ipv6/icmp6"
                ipv6.src = "{c}"
                ipv6.dst = "{d}"
                [[stream]]
                layers = "eth/ipv4/udp"
                checksums = "none"
                ipv4.src = "127.0.0.1"
                ipv4.dst = "255.255.255.255"
                "#
            )
        }
        fn frames(hosts: [&str; 4]) -> Frames {
            Frames::new(&Profile::read(&text(hosts)).unwrap()).unwrap()
        }
        let mut before = frames([
            "10.0.255.250-10.0.255.255",
            "198.18.7.1",
            "2001:db8::1-2001:db8::9",
            "2001:2::fff8",
        ]);
        for by in [9, 300] {
            let low = |value: u32| value.wrapping_add(by);
            let v4 = |net: &str, last: u32| {
                format!("{net}.{}.{}", low(last) >> 8 & 255, low(last) & 255)
            };
            let first = [v4("10.0", 0xfffa), v4("10.0", 0xffff)].join("-");
            let source = if low(0xfffa) > 0xffff {
                first
            } else {
                unreachable!("the shift wraps")
            };
            let (b, c, d) = (
                v4("198.18", 0x0701),
                format!("2001:db8::{:x}-2001:db8::{:x}", low(1), low(9)),
                format!("2001:2::{:x}", low(0xfff8) & 0xffff),
            );
            let mut after = frames([&source, &b, &c, &d]);
            let mut unshifted = before.clone();
            while let (Some(from), Some(to)) = (unshifted.next(), after.next()) {
                // What does not change is without sums in one stream of these.
                let mut frame = from.frame.to_vec();
                shift(&mut frame, by as u16);
                if from.stream != 6 {
                    assert_eq!(frame, to.frame, "stream {}", from.stream);
                } else {
                    assert_eq!(frame, from.frame);
                }
            }
        }
        // Whatever is cut off, nothing is outside.
        while let Some(made) = before.next() {
            for end in 0..made.frame.len() {
                shift(&mut made.frame[..end].to_vec(), 77);
            }
        }
    }
}
