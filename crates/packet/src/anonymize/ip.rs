//! IP headers, with options and extension headers.

use super::checksum::Change;
use super::{MOST_DEEP, Tail, Walk};

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
const NOTHING: u8 = 59;
const DESTINATION: u8 = 60;

/// Largest number of extension headers that are walked.
const MOST_EXTENSIONS: usize = 16;

/// Where a packet really comes from and goes to, as the checksums of transports count it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pseudo {
    pub source: Change,
    pub destination: Change,
}

impl Pseudo {
    pub(super) fn change(&self) -> Change {
        self.source.and(self.destination)
    }
}

impl Walk<'_> {
    /// RFC 791, section 3.1.
    pub(super) fn ipv4(&mut self, at: usize, end: usize) -> Tail {
        if end - at < 20 || self.deep == MOST_DEEP {
            return Tail::Unknown(at);
        }
        let header = usize::from(self.byte(at) & 15) * 4;
        let total = usize::from(self.be16(at + 2));
        let is_whole = header >= 20 && header <= end - at && (total == 0 || total >= header);
        if self.byte(at) >> 4 != 4 || !is_whole {
            return Tail::Unknown(at);
        }
        let limit = if total == 0 { end } else { end.min(at + total) };
        self.zero(limit, end);
        let behind = at + header;
        let pseudo = self.checked((at, behind), at + 10, Change::default(), |walk| {
            let mut pseudo = Pseudo {
                source: walk.ipv4_address(at + 12),
                destination: walk.ipv4_address(at + 16),
            };
            if let Some(last) = walk.ipv4_options(at + 20, behind) {
                pseudo.destination = last;
            }
            pseudo
        });
        self.deep += 1;
        if self.be16(at + 6) & 0x1fff != 0 {
            return Tail::Never(behind);
        }
        let (mut proto, mut place) = (self.byte(at + 9), behind);
        for _ in 0..MOST_EXTENSIONS {
            if proto != AUTHENTICATION {
                break;
            }
            match self.authentication(place, limit) {
                Some((next, after)) => (proto, place) = (next, after),
                None => return Tail::Unknown(place),
            }
        }
        self.transport(proto, place, limit, pseudo)
    }

    /// Replaces addresses in options, and clears unknown options. Returns the change of the last address of a source route that the
    /// packet has still to go.
    fn ipv4_options(&mut self, mut at: usize, end: usize) -> Option<Change> {
        const RECORD: u8 = 7;
        const TIMESTAMP: u8 = 68;
        const LOOSE: u8 = 131;
        const STRICT: u8 = 137;
        /// Security and router alert: numbers.
        const NUMBERS: [u8; 2] = [130, 148];
        let mut route = None;
        while at < end {
            let kind = self.byte(at);
            if kind == 1 {
                at += 1;
                continue;
            }
            let length = match self.data[at..end].get(1) {
                Some(&length) if kind != 0 && length >= 2 => usize::from(length),
                _ => 0,
            };
            if length == 0 || length > end - at {
                self.zero(at, end);
                break;
            }
            let next = at + length;
            match kind {
                RECORD | LOOSE | STRICT if length >= 3 => {
                    let is_under_way = usize::from(self.byte(at + 2)) <= length;
                    let mut last = None;
                    let mut place = at + 3;
                    while place + 4 <= next {
                        last = Some(self.ipv4_address(place));
                        place += 4;
                    }
                    self.zero(place, next);
                    if kind != RECORD && is_under_way {
                        route = last.or(route);
                    }
                }
                TIMESTAMP if length >= 4 => self.ipv4_timestamps(at, next),
                _ if NUMBERS.contains(&kind) => {}
                _ => self.zero(at + 2, next),
            }
            at = next;
        }
        route
    }

    /// Internet timestamps: of flag 0 only times, else pairs of address and time.
    fn ipv4_timestamps(&mut self, at: usize, end: usize) {
        if self.byte(at + 3) & 15 == 0 {
            return;
        }
        let mut place = at + 4;
        while place + 8 <= end {
            self.ipv4_address(place);
            place += 8;
        }
        self.zero(place, end);
    }

    /// RFC 8200.
    pub(super) fn ipv6(&mut self, at: usize, end: usize) -> Tail {
        if end - at < 40 || self.deep == MOST_DEEP || self.byte(at) >> 4 != 6 {
            return Tail::Unknown(at);
        }
        let claimed = usize::from(self.be16(at + 4));
        let limit = if claimed == 0 {
            end
        } else {
            end.min(at + 40 + claimed)
        };
        self.zero(limit, end);
        let mut pseudo = Pseudo {
            source: self.ipv6_address(at + 8),
            destination: self.ipv6_address(at + 24),
        };
        self.deep += 1;
        let (mut proto, mut place) = (self.byte(at + 6), at + 40);
        for _ in 0..MOST_EXTENSIONS {
            let behind = match proto {
                HOP_BY_HOP | DESTINATION | ROUTING => {
                    let Some(next) = self.extension(place, limit) else {
                        return Tail::Unknown(place);
                    };
                    match proto {
                        ROUTING => self.routing(place, next, &mut pseudo),
                        _ => self.ipv6_options(place + 2, next, &mut pseudo),
                    }
                    next
                }
                AUTHENTICATION => match self.authentication(place, limit) {
                    Some((_, after)) => after,
                    None => return Tail::Unknown(place),
                },
                FRAGMENT => {
                    if limit - place < 8 {
                        return Tail::Unknown(place);
                    }
                    if self.be16(place + 2) >> 3 != 0 {
                        return Tail::Never(place + 8);
                    }
                    place + 8
                }
                NOTHING => return Tail::Never(place),
                _ => return self.transport(proto, place, limit, pseudo),
            };
            (proto, place) = (self.byte(place), behind);
        }
        Tail::Unknown(place)
    }

    /// End of an extension header; `None` if it is not captured in full.
    fn extension(&self, at: usize, limit: usize) -> Option<usize> {
        let &[_, length, ..] = &self.data[at..limit] else {
            return None;
        };
        let next = at + (usize::from(length) + 1) * 8;
        (next <= limit).then_some(next)
    }

    /// Protocol and place after an authentication header (RFC 4302).
    fn authentication(&self, at: usize, limit: usize) -> Option<(u8, usize)> {
        let &[next, length, ..] = &self.data[at..limit] else {
            return None;
        };
        let behind = at + (usize::from(length) + 2) * 4;
        (length > 0 && behind <= limit).then_some((next, behind))
    }

    /// Routing headers: types 0 and 2 (RFC 2460, RFC 6275), segment routing (RFC 8754). The body of other types is cleared.
    fn routing(&mut self, at: usize, end: usize, pseudo: &mut Pseudo) {
        let (kind, left) = (self.byte(at + 2), self.byte(at + 3));
        let count = match kind {
            0 | 2 => (end - at - 8) / 16,
            4 => (usize::from(self.byte(at + 4)) + 1).min((end - at - 8) / 16),
            _ => 0,
        };
        if kind != 4 {
            self.zero(at + 4, at + 8);
        }
        let mut final_place = None;
        for i in 0..count {
            let change = self.ipv6_address(at + 8 + 16 * i);
            let is_final = match kind {
                4 => i == 0,
                _ => i + 1 == count,
            };
            if is_final {
                final_place = Some(change);
            }
        }
        self.zero(at + 8 + 16 * count, end);
        // Of a route that is not known, the destination does not change the checksum, which no reader can verify.
        if left > 0 {
            pseudo.destination = final_place.unwrap_or_default();
        }
    }

    /// Options of hop-by-hop and destination headers: options of numbers stay, a home address becomes another, others are cleared.
    fn ipv6_options(&mut self, mut at: usize, end: usize, pseudo: &mut Pseudo) {
        const TUNNEL_LIMIT: u8 = 4;
        const ALERT: u8 = 5;
        const JUMBO: u8 = 0xc2;
        const HOME: u8 = 0xc9;
        while at < end {
            let kind = self.byte(at);
            if kind == 0 {
                at += 1;
                continue;
            }
            let length = self.data[at..end]
                .get(1)
                .map(|&length| usize::from(length) + 2);
            let Some(length) = length.filter(|&length| length <= end - at) else {
                return self.zero(at, end);
            };
            match (kind, length) {
                (HOME, 18) => pseudo.source = self.ipv6_address(at + 2),
                (TUNNEL_LIMIT, 3) | (ALERT, 4) | (JUMBO, 6) => {}
                _ => self.zero(at + 2, at + length),
            }
            at += length;
        }
    }
}
