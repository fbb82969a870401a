//! Bans as the text of a file, from which a restarted firewall restores them.
//!
//! ```text
//! weir bans 1
//! at 1700000000000000000 boot 01234567-89ab-cdef-0123-456789abcdef 5000000000
//! 192.0.2.7 by ctl
//! 192.0.2.16-192.0.2.31 by key-7 until 1700000600000000000 of 600000000000
//! end 2 6d0cf9f6f0f3c5b1
//! ```
//!
//! **Layout**: lines, each with a line feed. `at` is the time of the text, ns since the Unix epoch;
//! after `boot` follow the kernel's name of its boot and the time since then in ns, or `-`. A line
//! has one address, or the first and the last of several; who asked for the ban; and if it ends,
//! when, and how long it lasts in all, ns. Addresses ascend, IPv4 first. `end` counts these lines,
//! and has the first eight bytes of the SHA-256 of all bytes before it.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::time::Duration;
use sha2::{Digest, Sha256};
use std::fmt::Write;
use std::sync::Arc;

/// Addresses of a text, at most.
pub const MOST: usize = 1 << 20;

/// Bytes of the longest line: two addresses of IPv6, who asked, and two numbers.
const LONGEST_LINE: usize = 256;

/// Bytes of a text, at most.
pub const MOST_BYTES: usize = (MOST + 3) * LONGEST_LINE;

const FIRST_LINE: &str = "weir bans 1";

/// Name of the program that asked for a ban: 1 to 32 letters, digits, dots, hyphens and underscores.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin(Arc<str>);

impl Origin {
    /// Longest name, bytes.
    pub const LONGEST: usize = 32;

    /// Takes a name; `None` if it is none.
    pub fn new(name: &str) -> Option<Self> {
        let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        ((1..=Self::LONGEST).contains(&name.len()) && name.bytes().all(is_part))
            .then(|| Self(name.into()))
    }

    /// The controller of this key, by a control packet.
    pub fn key(id: u16) -> Self {
        Self(format!("key-{id}").into())
    }

    /// Returns the name.
    pub fn name(&self) -> &str {
        &self.0
    }
}

/// A moment, by the clocks that a machine has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// Time of day, ns since the Unix epoch. The clock may be set back or forth.
    pub wall_ns: u64,
    /// Name of the kernel's boot, and time since then in ns, which nobody sets; `None` if unknown.
    pub boot: Option<(BootId, u64)>,
}

/// Name of a boot, as in `/proc/sys/kernel/random/boot_id`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct BootId([u8; 36]);

impl BootId {
    /// Takes a name: 36 hexadecimal digits (small letters) and hyphens.
    pub fn new(text: &str) -> Option<Self> {
        let is_part = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f' | b'-');
        text.as_bytes()
            .try_into()
            .ok()
            .filter(|bytes: &[u8; 36]| bytes.iter().copied().all(is_part))
            .map(Self)
    }
}

impl fmt::Display for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(core::str::from_utf8(&self.0).expect("its bytes are ASCII"))
    }
}

impl fmt::Debug for BootId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// End of a ban.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Time until the end, ns; above 0.
    pub left_ns: u64,
    /// Time that the ban lasts in all, ns.
    pub lasts_ns: u64,
}

/// Bans of neighboring addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bans {
    /// The first address.
    pub first: IpAddr,
    /// The last address, of the same family.
    pub last: IpAddr,
    /// Program that asked for them.
    pub by: Origin,
    /// The end, as at the moment of the text; `None` if they do not end by themselves.
    pub end: Option<End>,
}

impl Bans {
    /// Returns the addresses.
    pub fn addresses(&self) -> impl Iterator<Item = IpAddr> + use<> {
        let (first, last) = (bits(self.first), bits(self.last));
        let is_v4 = self.first.is_ipv4();
        (first..=last).map(move |bits| address(bits, is_v4))
    }

    fn count(&self) -> u128 {
        (bits(self.last) - bits(self.first)).saturating_add(1)
    }

    /// Whether the address after the last has the same ban.
    fn goes_on(&self, next: IpAddr, by: &Origin, end: Option<End>) -> bool {
        let follows = self.last.is_ipv4() == next.is_ipv4()
            && bits(self.last).checked_add(1) == Some(bits(next));
        follows && self.by == *by && self.end == end
    }
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(v4) => u128::from(v4.to_bits()),
        IpAddr::V6(v6) => v6.to_bits(),
    }
}

fn address(bits: u128, is_v4: bool) -> IpAddr {
    match is_v4 {
        true => Ipv4Addr::from_bits(bits as u32).into(),
        false => Ipv6Addr::from_bits(bits).into(),
    }
}

/// Bans of a text, and the moment when it was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The moment.
    pub at: Moment,
    /// The bans; addresses ascend.
    pub bans: Vec<Bans>,
}

/// A text that is damaged, or none of bans.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct Damaged {
    /// Number of the line, from 1 on.
    pub line: usize,
    /// Reason.
    pub why: Why,
}

/// Reason for which a text is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Why {
    /// The first line is another one.
    #[error("the file is none of bans that this weir wrote ({FIRST_LINE})")]
    Other,
    /// The words are not a line that weir writes.
    #[error("no line that weir wrote")]
    Words,
    /// Addresses come twice, or not in their order.
    #[error("the addresses do not come behind those of the line before")]
    Order,
    /// More addresses than a text has.
    #[error("more than {MOST} addresses")]
    Many,
    /// The text is cut: its last line is not there.
    #[error("the file is cut: its last line is missing")]
    Cut,
    /// The sum of the text differs from the sum in its last line.
    #[error("the file was changed or damaged: its sum is another one")]
    Sum,
}

impl Kept {
    /// Gathers bans whose addresses ascend.
    pub fn gather(
        at: Moment,
        bans: impl IntoIterator<Item = (IpAddr, Origin, Option<End>)>,
    ) -> Self {
        let mut all: Vec<Bans> = Vec::new();
        for (address, by, end) in bans {
            match all.last_mut() {
                Some(bans) if bans.goes_on(address, &by, end) => bans.last = address,
                _ => all.push(Bans {
                    first: address,
                    last: address,
                    by,
                    end,
                }),
            }
        }
        Self { at, bans: all }
    }

    /// Returns the text. **Cost**: a string of all lines, and its SHA-256.
    pub fn text(&self) -> String {
        let boot = self
            .at
            .boot
            .map_or_else(|| "-".to_owned(), |(id, ns)| format!("{id} {ns}"));
        let mut text = format!("{FIRST_LINE}\nat {} boot {boot}\n", self.at.wall_ns);
        for bans in &self.bans {
            line(&mut text, self.at.wall_ns, bans);
            text.push('\n');
        }
        let sum = sum(text.as_bytes());
        let _ = writeln!(text, "end {} {sum}", self.bans.len());
        text
    }

    /// Reads a text. **Errors**: its first line that is wrong; its sum is checked last.
    pub fn parse(bytes: &[u8]) -> Result<Self, Damaged> {
        let refused = |line: usize, why: Why| Err(Damaged { line, why });
        let mut lines = Lines {
            bytes,
            at: 0,
            number: 0,
        };
        if lines.next() != Some(FIRST_LINE) {
            return refused(1, Why::Other);
        }
        let Some(at) = lines.next().and_then(moment) else {
            return refused(2, lines.damage());
        };
        let (mut bans, mut count): (Vec<Bans>, u128) = (Vec::new(), 0);
        loop {
            let before = lines.at;
            let Some(text) = lines.next() else {
                return refused(lines.number, lines.damage());
            };
            if text.starts_with("end ") {
                let expected = format!("end {} {}", bans.len(), sum(&bytes[..before]));
                return match (text == expected, lines.is_over()) {
                    (true, true) => Ok(Self { at, bans }),
                    (true, false) => refused(lines.number + 1, Why::Words),
                    (false, _) => refused(lines.number, Why::Sum),
                };
            }
            let Some(next) = parse_line(text, at.wall_ns) else {
                return refused(lines.number, Why::Words);
            };
            count = count.saturating_add(next.count());
            if count > MOST as u128 {
                return refused(lines.number, Why::Many);
            }
            let is_behind = |bans: &Bans| {
                bans.last < next.first && !bans.goes_on(next.first, &next.by, next.end)
            };
            if !bans.last().is_none_or(is_behind) {
                return refused(lines.number, Why::Order);
            }
            bans.push(next);
        }
    }

    /// Returns the time since the text was made: by the time since the boot if that is the same,
    /// else by the time of day. A clock that was set back in the meantime counts as a clock that
    /// stopped.
    pub fn age(&self, now: &Moment) -> Duration {
        let by_boot = match (&self.at.boot, &now.boot) {
            (Some((before, then)), Some((id, now))) if before == id => now.checked_sub(*then),
            _ => None,
        };
        Duration::from_nanos(by_boot.unwrap_or_else(|| now.wall_ns.saturating_sub(self.at.wall_ns)))
    }
}

impl End {
    /// Returns the time that is left after another time, never more than the ban lasts in all; `None` if the ban is over.
    pub fn after(&self, age: Duration) -> Option<Duration> {
        let left = Duration::from_nanos(self.left_ns.min(self.lasts_ns)).checked_sub(age);
        left.filter(|left| !left.is_zero())
    }
}

/// First eight bytes of the SHA-256, in hexadecimal.
fn sum(bytes: &[u8]) -> String {
    Sha256::digest(bytes)
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

fn line(
    text: &mut String,
    wall_ns: u64,
    Bans {
        first,
        last,
        by,
        end,
    }: &Bans,
) {
    // A String takes all.
    let _ = match first == last {
        true => write!(text, "{first} by {}", by.name()),
        false => write!(text, "{first}-{last} by {}", by.name()),
    };
    if let Some(End { left_ns, lasts_ns }) = end {
        let _ = write!(
            text,
            " until {} of {lasts_ns}",
            u128::from(wall_ns) + u128::from(*left_ns)
        );
    }
}

/// Reads a line of bans, which is exactly as it is written.
fn parse_line(text: &str, wall_ns: u64) -> Option<Bans> {
    let mut words = text.split(' ');
    let addresses = words.next()?;
    let (first, last) = addresses.split_once('-').unwrap_or((addresses, addresses));
    let (first, last): (IpAddr, IpAddr) = (first.parse().ok()?, last.parse().ok()?);
    let by = words
        .next()
        .filter(|word| *word == "by")
        .and_then(|_| Origin::new(words.next()?))?;
    let end = match words.next() {
        None => None,
        Some(_) => {
            let until: u128 = words.next()?.parse().ok()?;
            let lasts_ns: u64 = words.nth(1)?.parse().ok()?;
            let left = until.checked_sub(u128::from(wall_ns))?;
            let left_ns = u64::try_from(left)
                .ok()
                .filter(|left| (1..=lasts_ns).contains(left))?;
            Some(End { left_ns, lasts_ns })
        }
    };
    let bans = Bans {
        first,
        last,
        by,
        end,
    };
    let is_span = first.is_ipv4() == last.is_ipv4() && first <= last;
    let mut again = String::new();
    line(&mut again, wall_ns, &bans);
    (is_span && again == text).then_some(bans)
}

fn moment(text: &str) -> Option<Moment> {
    let words: Vec<&str> = text.split(' ').collect();
    let moment = match words[..] {
        ["at", wall, "boot", "-"] => Moment {
            wall_ns: wall.parse().ok()?,
            boot: None,
        },
        ["at", wall, "boot", id, ns] => Moment {
            wall_ns: wall.parse().ok()?,
            boot: Some((BootId::new(id)?, ns.parse().ok()?)),
        },
        _ => return None,
    };
    let boot = moment
        .boot
        .map_or_else(|| "-".to_owned(), |(id, ns)| format!("{id} {ns}"));
    (format!("at {} boot {boot}", moment.wall_ns) == text).then_some(moment)
}

/// Lines of a text, with their numbers.
struct Lines<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Number of the last requested line, from 1 on.
    number: usize,
}

impl<'a> Lines<'a> {
    /// Returns the next line; `None` if it has no line feed, is too long or no text.
    fn next(&mut self) -> Option<&'a str> {
        self.number += 1;
        let rest = &self.bytes[self.at..];
        let len = rest
            .iter()
            .take(LONGEST_LINE)
            .position(|&byte| byte == b'\n')?;
        self.at += len + 1;
        core::str::from_utf8(&rest[..len]).ok()
    }

    fn is_over(&self) -> bool {
        self.at == self.bytes.len()
    }

    /// Reason for which there is no further line.
    fn damage(&self) -> Why {
        let rest = &self.bytes[self.at..];
        let is_cut = rest.len() < LONGEST_LINE && !rest.contains(&b'\n');
        if is_cut && self.number > 1 {
            Why::Cut
        } else {
            Why::Words
        }
    }
}
