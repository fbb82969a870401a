//! Frames of known rare addresses with other addresses: no address may be left, and right checksums must stay right.
//!
//! The frames are built from the inside out by a builder of their own, which notes the place of each checksum. Of those that no
//! cut has reached, the checksums are computed anew.

use std::ops::Range;
use weir_packet::LinkType;
use weir_packet::anonymize::{Anonymizer, KEY};
use weir_testkit::Input;

/// A checksum: the bytes it covers, the addresses of its pseudo-header, and the sum of the rest of that.
struct Check {
    covers: Range<usize>,
    addresses: Vec<Range<usize>>,
    rest: u32,
}

/// A packet with the checksums in it.
#[derive(Default)]
struct Made {
    bytes: Vec<u8>,
    checks: Vec<Check>,
}

/// Addresses of which none is in any other byte sequence of the frames.
struct Rare {
    count: u8,
    used: Vec<Vec<u8>>,
}

impl Rare {
    fn address(&mut self, len: usize) -> Vec<u8> {
        self.count = self.count.wrapping_add(1);
        let mut address: Vec<u8> = (0..len as u8)
            .map(|i| 0xa1 ^ i.wrapping_mul(0x1d))
            .collect();
        let last = len - 1;
        address[last] = self.count;
        address[last - 1] ^= self.count.wrapping_mul(7);
        if len == 6 {
            // One of a card.
            address[0] = 0xa0;
        }
        self.used.push(address.clone());
        address
    }
}

fn sum(bytes: &[u8]) -> u32 {
    let words = bytes.chunks(2);
    words
        .map(|word| u32::from(word[0]) << 8 | word.get(1).map_or(0, |&low| u32::from(low)))
        .sum()
}

fn folded(mut sum: u32) -> u16 {
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    sum as u16
}

impl Check {
    fn sum(&self, bytes: &[u8]) -> u16 {
        let addresses: u32 = self
            .addresses
            .iter()
            .map(|at| sum(&bytes[at.clone()]))
            .sum();
        folded(sum(&bytes[self.covers.clone()]) + addresses + self.rest)
    }
}

impl Made {
    fn plain(bytes: Vec<u8>) -> Self {
        Self {
            bytes,
            checks: Vec::new(),
        }
    }

    /// The packet behind a header.
    fn behind(mut self, header: &[u8]) -> Self {
        self.bytes.splice(0..0, header.iter().copied());
        let by = header.len();
        let moved = |range: &Range<usize>| range.start + by..range.end + by;
        for check in &mut self.checks {
            check.covers = moved(&check.covers);
            check.addresses = check.addresses.iter().map(moved).collect();
        }
        self
    }

    /// Computes the checksum at `at` over all bytes, and notes it.
    fn checked(self, at: usize, addresses: Vec<Range<usize>>, rest: u32) -> Self {
        let covers = 0..self.bytes.len();
        self.checked_over(covers, at, addresses, rest)
    }

    fn checked_over(
        mut self,
        covers: Range<usize>,
        at: usize,
        addresses: Vec<Range<usize>>,
        rest: u32,
    ) -> Self {
        let check = Check {
            covers,
            addresses,
            rest,
        };
        let value = !check.sum(&self.bytes);
        self.bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
        self.checks.push(check);
        self
    }
}

/// Transport, its protocol, and the place of a checksum with a pseudo-header, which the IP header completes.
type Transport = (Made, u8, Option<usize>);

/// Builds a packet; `deep` are the tunnels that may be in it.
struct Build<'a, 'b> {
    input: &'a mut Input<'b>,
    rare: Rare,
}

impl Build<'_, '_> {
    fn payload(&mut self) -> Vec<u8> {
        vec![0x55; self.input.below(40)]
    }

    fn ip(&mut self, deep: usize) -> (Made, bool) {
        match self.input.below(2) {
            0 => (self.ipv4(deep), true),
            _ => (self.ipv6(deep), false),
        }
    }

    fn ipv4(&mut self, deep: usize) -> Made {
        let (inside, proto, checksum) = self.transport(deep, true);
        let options: Vec<u8> = match self.input.below(4) {
            0 => [
                &[7, 11, 12][..],
                &self.rare.address(4),
                &self.rare.address(4),
                &[0],
            ]
            .concat(),
            1 => [&[68, 12, 13, 1][..], &self.rare.address(4), &[0, 0, 1, 2]].concat(),
            2 => [&[0x99, 8, 1, 2][..], &self.rare.address(4)].concat(),
            _ => Vec::new(),
        };
        let header = 20 + options.len();
        let total = header + inside.bytes.len();
        let mut bytes = vec![
            0x40 | (header / 4) as u8,
            0,
            (total >> 8) as u8,
            total as u8,
        ];
        bytes.extend([0x12, 0x34, 0, 0, 64, proto, 0, 0]);
        bytes.extend(self.rare.address(4));
        bytes.extend(self.rare.address(4));
        bytes.extend(&options);
        let len = inside.bytes.len() as u32;
        let made = inside
            .behind(&bytes)
            .checked_over(0..header, 10, Vec::new(), 0);
        match checksum {
            Some(at) => made.checked_over(
                header..total,
                header + at,
                vec![12..16, 16..20],
                len + u32::from(proto),
            ),
            None => made,
        }
    }

    fn ipv6(&mut self, deep: usize) -> Made {
        let (inside, proto, checksum) = self.transport(deep, false);
        let (mut extensions, mut next) = (Vec::new(), proto);
        let (mut source, mut destination) = (8..24, 24..40);
        match self.input.below(4) {
            0 => {
                extensions = [
                    &[proto, 2, 1, 4, 0, 0, 0xc9, 16][..],
                    &self.rare.address(16),
                ]
                .concat();
                extensions[2..6].copy_from_slice(&[1, 2, 0, 0]);
                (next, source) = (60, 48..64);
            }
            1 => {
                let hops = [self.rare.address(16), self.rare.address(16)].concat();
                extensions = [&[proto, 4, 0, 1, 0, 0, 0, 0][..], &hops].concat();
                (next, destination) = (43, 64..80);
            }
            2 => {
                let hops = [self.rare.address(16), self.rare.address(16)].concat();
                extensions = [&[proto, 4, 4, 1, 1, 0, 0, 0][..], &hops].concat();
                (next, destination) = (43, 48..64);
            }
            _ => {}
        }
        let (len, header) = (inside.bytes.len(), 40 + extensions.len());
        let claimed = extensions.len() + len;
        let mut bytes = vec![0x60, 0, 0, 0, (claimed >> 8) as u8, claimed as u8, next, 64];
        bytes.extend(self.rare.address(16));
        bytes.extend(self.rare.address(16));
        bytes.extend(&extensions);
        let made = inside.behind(&bytes);
        match checksum {
            Some(at) => made.checked_over(
                header..header + len,
                header + at,
                vec![source, destination],
                len as u32 + u32::from(proto),
            ),
            None => made,
        }
    }

    fn transport(&mut self, deep: usize, is_v4: bool) -> Transport {
        let most = if deep > 0 { 10 } else { 5 };
        match self.input.below(most) {
            0 => self.tcp(),
            1 => {
                let payload = self.payload();
                self.udp(53, Made::plain(payload))
            }
            2 if is_v4 => (self.icmp(), 1, None),
            2 | 3 if !is_v4 => self.icmpv6(),
            3 => (self.igmp(), 2, None),
            4 => (
                Made::plain([&[1, 2, 3, 4][..], &self.rare.address(4)].concat()),
                89,
                None,
            ),
            5 => {
                let (made, is_v4) = self.ip(deep - 1);
                (made, if is_v4 { 4 } else { 41 }, None)
            }
            6 => self.gre(deep - 1),
            7 => {
                let frame = self.ethernet(deep - 1);
                self.udp(4789, frame.behind(&[8, 0, 0, 0, 0, 0, 7, 0]))
            }
            8 => {
                let frame = self.ethernet(deep - 1);
                let option = [
                    &[2, 0x65, 0x58, 0, 0, 7, 0, 0, 1, 0x80, 1][..],
                    &self.rare.address(4),
                ];
                let mut header = option.concat();
                header.insert(0, 2);
                header[0..4].copy_from_slice(&[2, 0, 0x65, 0x58]);
                header[4..12].copy_from_slice(&[0, 0, 7, 0, 0, 1, 0x80, 1]);
                self.udp(6081, frame.behind(&header))
            }
            _ => {
                let (made, _) = self.ip(deep - 1);
                let len = made.bytes.len();
                let header = [0x30, 255, (len >> 8) as u8, len as u8, 0, 0, 0, 9];
                self.udp(2152, made.behind(&header))
            }
        }
    }

    fn tcp(&mut self) -> Transport {
        let options: Vec<u8> = match self.input.below(3) {
            0 => vec![2, 4, 5, 180, 1, 1, 4, 2],
            1 => [&[30, 8, 0x30, 1][..], &self.rare.address(4)].concat(),
            _ => Vec::new(),
        };
        let mut bytes = vec![0x1f, 0x90, 0xc0, 1, 0, 0, 0, 1, 0, 0, 0, 2];
        bytes.extend([
            ((20 + options.len()) / 4 * 16) as u8,
            0x18,
            1,
            0,
            0,
            0,
            0,
            0,
        ]);
        bytes.extend(options);
        bytes.extend(self.payload());
        (Made::plain(bytes), 6, Some(16))
    }

    fn udp(&mut self, port: u16, inside: Made) -> Transport {
        let len = 8 + inside.bytes.len();
        let port = port.to_be_bytes();
        let header = [0xd0, 1, port[0], port[1], (len >> 8) as u8, len as u8, 0, 0];
        let is_checked = self.input.below(4) > 0;
        (inside.behind(&header), 17, is_checked.then_some(6))
    }

    fn icmp(&mut self) -> Made {
        match self.input.below(3) {
            0 => {
                let bytes = [&[8, 0, 0, 0, 0, 1, 0, 2][..], &self.payload()].concat();
                Made::plain(bytes).checked(2, Vec::new(), 0)
            }
            1 => {
                let quote = self.ipv4(0);
                quote
                    .behind(&[3, 3, 0, 0, 0, 0, 0, 0])
                    .checked(2, Vec::new(), 0)
            }
            _ => {
                let header = [&[5, 1, 0, 0][..], &self.rare.address(4)].concat();
                let quote = self.ipv4(0);
                quote.behind(&header).checked(2, Vec::new(), 0)
            }
        }
    }

    fn igmp(&mut self) -> Made {
        let group = self.rare.address(4);
        let bytes = match self.input.below(2) {
            0 => [&[0x16, 0, 0, 0][..], &group].concat(),
            _ => [
                &[0x22, 0, 0, 0, 0, 0, 0, 1, 4, 0, 0, 1][..],
                &group,
                &self.rare.address(4),
            ]
            .concat(),
        };
        Made::plain(bytes).checked(2, Vec::new(), 0)
    }

    fn icmpv6(&mut self) -> Transport {
        let made = match self.input.below(5) {
            0 => Made::plain([&[128, 0, 0, 0, 0, 1, 0, 2][..], &self.payload()].concat()),
            1 => self.ipv6(0).behind(&[1, 4, 0, 0, 0, 0, 0, 0]),
            2 => {
                let target = self.rare.address(16);
                let option = [&[1, 1][..], &self.rare.address(6)].concat();
                Made::plain([&[135, 0, 0, 0, 0, 0, 0, 0][..], &target, &option].concat())
            }
            3 => {
                let prefix = [
                    &[3, 4, 64, 0xc0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0, 0][..],
                    &self.rare.address(16),
                ];
                let servers = [&[25, 3, 0, 0, 0, 0, 0, 9][..], &self.rare.address(16)];
                let header = [134, 0, 0, 0, 64, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
                Made::plain([&header[..], &prefix.concat(), &servers.concat()].concat())
            }
            _ => {
                let record = [
                    &[4, 0, 0, 1][..],
                    &self.rare.address(16),
                    &self.rare.address(16),
                ];
                Made::plain([&[143, 0, 0, 0, 0, 0, 0, 1][..], &record.concat()].concat())
            }
        };
        (made, 58, Some(2))
    }

    fn gre(&mut self, deep: usize) -> Transport {
        let (inside, is_v4) = self.ip(deep);
        let kind: u16 = if is_v4 { 0x0800 } else { 0x86dd };
        let [a, b] = kind.to_be_bytes();
        let made = match self.input.below(2) {
            0 => inside
                .behind(&[0x80, 0, a, b, 0, 0, 0, 0])
                .checked(4, Vec::new(), 0),
            _ => inside.behind(&[0x20, 0, a, b, 0, 0, 0, 5]),
        };
        (made, 47, None)
    }

    fn ethernet(&mut self, deep: usize) -> Made {
        let mut header = [self.rare.address(6), self.rare.address(6)].concat();
        let tags: &[u8] = match self.input.below(4) {
            0 => &[0x81, 0, 0, 5],
            1 => &[0x88, 0xa8, 0, 5, 0x81, 0, 0, 6],
            _ => &[],
        };
        header.extend(tags);
        let made = match self.input.below(8) {
            0 => {
                header.extend([8, 6]);
                let arp = [
                    &[0, 1, 8, 0, 6, 4, 0, 1][..],
                    &self.rare.address(6),
                    &self.rare.address(4),
                    &self.rare.address(6),
                    &self.rare.address(4),
                ];
                Made::plain(arp.concat())
            }
            1 => {
                header.extend([0x88, 0xcc]);
                Made::plain(self.rare.address(6))
            }
            2 => {
                header.extend([0x88, 0x47, 0, 0, 0x11, 64, 0, 0, 0x21, 64]);
                // The last of two labels.
                let last = header.len() - 4;
                header[last + 2] |= 1;
                self.ip(deep).0
            }
            3 => {
                header.extend([0x88, 0x64, 0x11, 0, 0, 1, 0, 0]);
                let (made, is_v4) = self.ip(deep);
                header.extend([0, if is_v4 { 0x21 } else { 0x57 }]);
                made
            }
            _ => {
                let (made, is_v4) = self.ip(deep);
                header.extend(if is_v4 { [8, 0] } else { [0x86, 0xdd] });
                made
            }
        };
        let mut made = made.behind(&header);
        // What lies behind a packet may be of anything.
        if self.input.below(3) == 0 {
            let trailer = self.rare.address(4);
            made.bytes.extend(trailer);
        }
        made
    }
}

/// Builds a frame of these bytes, changes it, and looks for its addresses and its checksums. Returns the number of these checksums.
pub fn anonymize(data: &[u8]) -> usize {
    let mut input = Input(data);
    let payload = [0, 12, usize::MAX][input.below(3)];
    let cut = input.below(4) == 0;
    let wrong = input.below(4) == 0;
    let mut build = Build {
        input: &mut input,
        rare: Rare {
            count: 0,
            used: Vec::new(),
        },
    };
    let Made { mut bytes, checks } = build.ethernet(2);
    let addresses = build.rare.used;
    if cut {
        let len = input.number(2) % (bytes.len() + 1);
        bytes.truncate(len);
    }
    let mut anonymizer = Anonymizer::new(&[0x3c; KEY], payload);
    let mut changed = bytes.clone();
    let kept = anonymizer.rewrite(LinkType::ETHERNET, &mut changed);
    assert!(kept.len <= bytes.len());
    let written = &changed[..kept.len];
    for address in &addresses {
        let is_left = written.windows(address.len()).any(|part| part == address);
        assert!(
            !is_left,
            "{address:02x?} is left of {bytes:02x?} in {written:02x?}"
        );
    }
    let mut compared = 0;
    for check in &checks {
        if !cut && check.covers.end <= kept.len {
            assert_eq!(check.sum(&bytes), 0xffff, "{bytes:02x?}");
            assert_eq!(check.sum(written), 0xffff, "{bytes:02x?} {written:02x?}");
            compared += 1;
        }
    }
    if wrong {
        hostile(&mut anonymizer, bytes, &mut input);
    }
    compared
}

/// Any bytes in any link type: nothing panics.
fn hostile(anonymizer: &mut Anonymizer, mut bytes: Vec<u8>, input: &mut Input<'_>) {
    for _ in 0..4 {
        if !bytes.is_empty() {
            let at = input.number(2) % bytes.len();
            bytes[at] = input.byte();
        }
    }
    let len = bytes.len();
    for link in [
        1, 0, 9, 10, 50, 101, 105, 107, 113, 119, 127, 163, 192, 219, 226, 228, 229, 239, 242, 276,
    ] {
        let mut changed = bytes.clone();
        assert!(anonymizer.rewrite(LinkType(link), &mut changed).len <= len);
    }
}
