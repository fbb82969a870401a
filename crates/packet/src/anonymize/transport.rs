//! Transports and tunnels.

use super::ip::Pseudo;
use super::{MOST_DEEP, Tail, Walk};
use crate::flow::{FlowKey, tunnel};

const ICMP: u8 = 1;
const IGMP: u8 = 2;
const TCP: u8 = 6;
const UDP: u8 = 17;
const DCCP: u8 = 33;
const GRE: u8 = 47;
const ESP: u8 = 50;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;
const UDP_LITE: u8 = 136;

/// Protocols whose packets are the begin of another packet.
const PACKETS: [u8; 3] = [4, 41, 137];

const GENEVE: u16 = 6081;
const GTP_U: u16 = 2152;

impl Walk<'_> {
    /// Walks from the header of a transport or a tunnel. A header that is captured in part is written as far as it is.
    pub(super) fn transport(&mut self, proto: u8, at: usize, end: usize, pseudo: Pseudo) -> Tail {
        let have = end - at;
        match proto {
            TCP => self.tcp(at, end, &pseudo),
            UDP | UDP_LITE => self.udp(proto, at, end, &pseudo),
            DCCP => {
                self.follow(at + 6, end, &pseudo);
                Tail::Never(at + have.min(12))
            }
            // The checksum is of all bytes, so that it cannot be right where some are not written.
            SCTP => Tail::Never(at + have.min(12)),
            ESP => Tail::Never(at + have.min(8)),
            ICMP => self.icmp(at, end),
            ICMPV6 => self.icmpv6(at, end, &pseudo),
            IGMP => self.igmp(at, end),
            GRE => self.gre(at, end),
            _ if PACKETS.contains(&proto) => self.inside(proto, 0, at, end),
            _ => Tail::Unknown(at),
        }
    }

    /// Has a checksum follow the addresses, if it is captured.
    fn follow(&mut self, checksum: usize, end: usize, pseudo: &Pseudo) {
        if checksum + 2 <= end {
            let changed = pseudo.change().applied(self.be16(checksum));
            self.set_be16(checksum, changed);
        }
    }

    /// RFC 9293, section 3.1.
    fn tcp(&mut self, at: usize, end: usize, pseudo: &Pseudo) -> Tail {
        if end - at < 20 {
            self.follow(at + 16, end, pseudo);
            return Tail::Payload(end, end);
        }
        let header = usize::from(self.byte(at + 12) >> 4).max(5) * 4;
        let behind = end.min(at + header);
        self.checked((at, behind), at + 16, pseudo.change(), |walk| {
            walk.tcp_options(at + 20, behind);
        });
        Tail::Payload(behind, end)
    }

    /// Makes padding of unknown options, and of options with an address.
    fn tcp_options(&mut self, mut at: usize, end: usize) {
        const PADDING: u8 = 1;
        /// Segment size, window scale, selective acknowledgements, timestamps, user timeout, fast open.
        const NUMBERS: [u8; 7] = [2, 3, 4, 5, 8, 28, 34];
        const MULTIPATH: u8 = 30;
        const ADD_ADDRESS: u8 = 3;
        while at < end {
            let kind = self.byte(at);
            match kind {
                0 => return self.zero(at, end),
                1 => {
                    at += 1;
                    continue;
                }
                _ => {}
            }
            let length = self.data[at..end].get(1).map(|&length| usize::from(length));
            let Some(length) = length.filter(|&length| length >= 2 && length <= end - at) else {
                return self.data[at..end].fill(PADDING);
            };
            let is_path =
                || kind == MULTIPATH && length > 2 && self.byte(at + 2) >> 4 != ADD_ADDRESS;
            if !NUMBERS.contains(&kind) && !is_path() {
                self.data[at..at + length].fill(PADDING);
            }
            at += length;
        }
    }

    /// RFC 768, RFC 3828, and tunnels by their destination port. A checksum of 0 is none.
    fn udp(&mut self, proto: u8, at: usize, end: usize, pseudo: &Pseudo) -> Tail {
        if end - at < 8 {
            return Tail::Payload(end, end);
        }
        let checksum = at + 6;
        let had = self.be16(checksum);
        let port = self.be16(at + 2);
        let is_tunnel = proto == UDP && tunnel::is_tunnel_port(port);
        // The bytes that a checksum of UDP-Lite covers are not all.
        let tail = match is_tunnel {
            true => self.checked((at, end), checksum, pseudo.change(), |walk| {
                walk.inside(UDP, port, at, end)
            }),
            false => {
                self.follow(checksum, end, pseudo);
                Tail::Payload(at + 8, end)
            }
        };
        match (had, self.be16(checksum)) {
            (0, _) => self.set_be16(checksum, 0),
            (_, 0) => self.set_be16(checksum, 0xffff),
            _ => {}
        }
        tail
    }

    /// RFC 2784, RFC 2890, RFC 2637. The checksum, if there is one, covers all bytes of the packet.
    fn gre(&mut self, at: usize, end: usize) -> Tail {
        const CHECKSUM: u8 = 0x80;
        if end - at < 4 {
            return Tail::Unknown(at);
        }
        let is_checked = self.byte(at) & CHECKSUM != 0 && self.byte(at + 1) & 7 == 0;
        match is_checked {
            true => self.checked((at, end), at + 4, Default::default(), |walk| {
                walk.inside(GRE, 0, at, end)
            }),
            false => self.inside(GRE, 0, at, end),
        }
    }

    /// Walks over the packet in a tunnel, whose transport header begins here.
    fn inside(&mut self, proto: u8, dport: u16, at: usize, end: usize) -> Tail {
        let key = FlowKey {
            proto,
            dport,
            ..FlowKey::NONE
        };
        let entered = tunnel::enter(&key, &self.data[at..end], &tunnel::Tunnels::default());
        let found = entered.map(|inside| (inside.layer, end - inside.bytes.len()));
        match found {
            Some((layer, inside)) if self.deep < MOST_DEEP => {
                match dport {
                    GENEVE => self.geneve_options(at + 16, inside),
                    GTP_U => self.gtp_extensions(at, inside),
                    _ => {}
                }
                self.link(layer, inside, end)
            }
            // Control messages of tunnels over UDP are payload.
            None if proto == UDP => Tail::Payload(at + 8, end),
            _ => Tail::Unknown(at + if proto == GRE { 4 } else { 0 }),
        }
    }

    /// Clears the values of options (RFC 8926, section 3.5).
    fn geneve_options(&mut self, mut at: usize, end: usize) {
        while at + 4 <= end {
            let next = at + 4 + 4 * usize::from(self.byte(at + 3) & 31);
            self.zero(at + 4, next.min(end));
            at = next;
        }
        self.zero(at, end);
    }

    /// Clears extension headers except numbers (3GPP TS 29.281, section 5.2): a port, a sequence number, a session container.
    fn gtp_extensions(&mut self, at: usize, end: usize) {
        const NUMBERS: [u8; 3] = [0x40, 0x85, 0xc0];
        let message = at + 8;
        if self.byte(message) & 4 == 0 {
            return;
        }
        let (mut kind, mut place) = (self.byte(message + 11), message + 12);
        while kind != 0 && place < end {
            let next = place + 4 * usize::from(self.byte(place));
            if next <= place || next > end {
                return self.zero(place, end);
            }
            if !NUMBERS.contains(&kind) {
                self.zero(place + 1, next - 1);
            }
            kind = self.byte(next - 1);
            place = next;
        }
    }
}
