//! ICMP, ICMPv6 with neighbor discovery, IGMP.

use super::checksum::Change;
use super::ip::Pseudo;
use super::{Tail, Walk};

/// Bytes in front of the variable part of a message.
const HEADER: usize = 8;

impl Walk<'_> {
    /// RFC 792, RFC 1256: errors with the packet that they are about, redirects, lists of routers.
    pub(super) fn icmp(&mut self, at: usize, end: usize) -> Tail {
        const REDIRECT: u8 = 5;
        const ROUTERS: u8 = 9;
        if end - at < HEADER {
            return Tail::Unknown(at);
        }
        let kind = self.byte(at);
        self.checked((at, end), at + 2, Change::default(), |walk| match kind {
            3 | 4 | 11 | 12 => walk.ipv4(at + HEADER, end),
            REDIRECT => {
                walk.ipv4_address(at + 4);
                walk.ipv4(at + HEADER, end)
            }
            ROUTERS => {
                let step = usize::from(walk.byte(at + 5)) * 4;
                let mut place = at + HEADER;
                while step >= 4 && place + step <= end {
                    walk.ipv4_address(place);
                    walk.zero(place + 8, place + step);
                    place += step;
                }
                Tail::Never(place)
            }
            // Echo, router solicitation, timestamp, mask.
            0 | 8 | 10 | 13 | 14 | 17 | 18 => Tail::Payload(at + HEADER, end),
            _ => {
                walk.zero(at + 4, at + HEADER);
                Tail::Unknown(at + HEADER)
            }
        })
    }

    /// RFC 4443, RFC 4861, RFC 2710, RFC 3810.
    pub(super) fn icmpv6(&mut self, at: usize, end: usize, pseudo: &Pseudo) -> Tail {
        if end - at < HEADER {
            return Tail::Unknown(at);
        }
        let kind = self.byte(at);
        self.checked((at, end), at + 2, pseudo.change(), |walk| {
            walk.icmpv6_message(kind, at, end)
        })
    }

    fn icmpv6_message(&mut self, kind: u8, at: usize, end: usize) -> Tail {
        const ADDRESS: usize = 16;
        let body = at + HEADER;
        // Addresses in front of the options, and bytes in front of the addresses.
        let (numbers, addresses) = match kind {
            1..=4 => return self.ipv6(body, end),
            128 | 129 => return Tail::Payload(body, end),
            133 => (0, 0),
            134 => (8, 0),
            135 | 136 => (0, 1),
            137 => (0, 2),
            130..=132 => return self.listener(at, end),
            143 => return self.reports(body, end, ADDRESS, self.be16(at + 6)),
            _ => {
                self.zero(at + 4, body);
                return Tail::Unknown(body);
            }
        };
        let options = body + numbers + ADDRESS * addresses;
        if options > end {
            return Tail::Unknown(at + 4);
        }
        for i in 0..addresses {
            self.ipv6_address(body + numbers + ADDRESS * i);
        }
        self.discovery_options(options, end);
        Tail::Payload(end, end)
    }

    /// Options of neighbor discovery (RFC 4861, section 4.6; RFC 4191; RFC 8106). Unknown ones are cleared.
    fn discovery_options(&mut self, mut at: usize, end: usize) {
        const SOURCE: u8 = 1;
        const TARGET: u8 = 2;
        const PREFIX: u8 = 3;
        const PACKET: u8 = 4;
        const ROUTE: u8 = 24;
        const SERVERS: u8 = 25;
        /// Largest packet, nonce.
        const NUMBERS: [u8; 2] = [5, 14];
        while at < end {
            let length = self.data[at..end]
                .get(1)
                .map_or(0, |&length| usize::from(length) * 8);
            if length == 0 || length > end - at {
                return self.zero(at, end);
            }
            let next = at + length;
            match self.byte(at) {
                SOURCE | TARGET if length == 8 => self.mac_address(at + 2),
                PREFIX if length == 32 => _ = self.ipv6_address(at + 16),
                PACKET => self.redirected(at + 8, next),
                ROUTE if length <= 24 => self.route_prefix(at + 8, next),
                SERVERS => {
                    let mut place = at + 8;
                    while place + 16 <= next {
                        self.ipv6_address(place);
                        place += 16;
                    }
                    self.zero(place, next);
                }
                kind if NUMBERS.contains(&kind) => {}
                _ => self.zero(at + 2, next),
            }
            at = next;
        }
    }

    /// The begin of a prefix, of up to 16 bytes; the rest is 0.
    fn route_prefix(&mut self, at: usize, end: usize) {
        let mut prefix = [0; 16];
        prefix[..end - at].copy_from_slice(&self.data[at..end]);
        let other = self.addresses.ipv6(prefix);
        self.data[at..end].copy_from_slice(&other[..end - at]);
    }

    /// A packet within an option: payload that is not wanted is cleared, since the message goes on after it.
    fn redirected(&mut self, at: usize, end: usize) {
        let deep = self.deep;
        let from = match self.ipv6(at, end) {
            Tail::Payload(begin, end) => end.min(begin.saturating_add(self.payload)),
            Tail::Never(begin) | Tail::Unknown(begin) => begin,
        };
        self.zero(from, end);
        self.deep = deep;
    }

    /// Queries and reports of RFC 2710: a group. Queries of RFC 3810 also have sources.
    fn listener(&mut self, at: usize, end: usize) -> Tail {
        let (group, sources) = (at + HEADER, at + 28);
        if group + 16 > end {
            return Tail::Unknown(at + 4);
        }
        self.ipv6_address(group);
        if sources > end {
            self.zero(group + 16, end);
            return Tail::Payload(end, end);
        }
        self.sources(sources, end, 16, self.be16(at + 26));
        Tail::Payload(end, end)
    }

    /// Replaces addresses of sources, and clears what follows.
    fn sources(&mut self, mut at: usize, end: usize, size: usize, count: u16) {
        for _ in 0..count {
            if at + size > end {
                break;
            }
            self.address(at, size);
            at += size;
        }
        self.zero(at, end);
    }

    fn address(&mut self, at: usize, size: usize) {
        match size {
            4 => _ = self.ipv4_address(at),
            _ => _ = self.ipv6_address(at),
        }
    }

    /// Records of RFC 3376 and RFC 3810: type, length of further data, number of sources, group, sources, further data.
    fn reports(&mut self, mut at: usize, end: usize, size: usize, count: u16) -> Tail {
        for _ in 0..count {
            if at + 4 + size > end {
                break;
            }
            let more = usize::from(self.byte(at + 1)) * 4;
            let sources = self.be16(at + 2);
            self.address(at + 4, size);
            at += 4 + size;
            for _ in 0..sources {
                if at + size > end {
                    break;
                }
                self.address(at, size);
                at += size;
            }
            let behind = end.min(at + more);
            self.zero(at, behind);
            at = behind;
        }
        self.zero(at, end);
        Tail::Payload(end, end)
    }

    /// RFC 1112, RFC 2236, RFC 3376.
    pub(super) fn igmp(&mut self, at: usize, end: usize) -> Tail {
        const REPORT_3: u8 = 0x22;
        const QUERY: u8 = 0x11;
        if end - at < HEADER {
            return Tail::Unknown(at);
        }
        let kind = self.byte(at);
        self.checked((at, end), at + 2, Change::default(), |walk| match kind {
            REPORT_3 => walk.reports(at + HEADER, end, 4, walk.be16(at + 6)),
            QUERY | 0x12 | 0x16 | 0x17 => {
                walk.ipv4_address(at + 4);
                let has_sources = kind == QUERY && end - at >= 12;
                let count = if has_sources { walk.be16(at + 10) } else { 0 };
                walk.sources(at + if has_sources { 12 } else { HEADER }, end, 4, count);
                Tail::Payload(end, end)
            }
            _ => {
                walk.zero(at + 4, at + HEADER);
                Tail::Unknown(at + HEADER)
            }
        })
    }
}
