//! Changes of permissions that arrive as packets: authentic requests in UDP datagrams among the
//! data packets.
//!
//! A request has lines of a permission table, which are one step. [`Request::open`] takes the bytes of a datagram, the keys, the time and the
//! sequence numbers so far, and returns the request or the reason for which it is refused. [`seal`] makes the bytes.
//!
//! **Layout**: numbers have their highest byte first.
//!
//! ```text
//! offset  bytes
//!      0      4  "WEIR": 57 45 49 52
//!      4      1  version: 1
//!      5      1  reserved: 0
//!      6      2  number of the key: each controller has its own key, and its own sequence
//!      8      8  sequence number: above that of each request of this key that was accepted before; from 1 on
//!     16      8  time of the request, ns since the Unix epoch
//!     24      8  time until the bans of this request end, ns, at most 100 years; 0: they do not end
//!     32      n  lines of a permission table, UTF-8, with a line feed (0a) between: 1 to 1168 bytes, 1024 changes of an address at most
//! 32 + n     32  HMAC-SHA256 (RFC 2104, FIPS 180-4) by the key of all bytes before
//! ```
//!
//! A datagram has 96 bytes of its own at most besides the lines, so that the whole packet fits the smallest MTU of IPv6 (RFC 8200, section 5).
//!
//! **Order of the checks**: form of the head, key, time, sequence number, authenticity, lines. The cheap ones come first, so that a flood of
//! bad requests costs one HMAC each at most. All of the head is covered by the HMAC; a reason before it says what the bytes claim.
//!
//! **Replay**: a sequence number is accepted once, by [`Sequences::raise`]. The time window of 30 s covers the loss of the sequence numbers.
//! **Absent**: secrecy (anybody on the way can read a request), and acknowledgements.

mod keys;
mod state;

pub use keys::{Key, KeyError, KeyWhy, Keys};
pub use state::{RECORD, StateError, record, records};

use crate::permissions::AddressChange;
use core::time::Duration;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_packet::flow::Headers;

/// Bytes before the lines.
const HEAD: usize = 32;

/// Bytes of the HMAC.
const MAC: usize = 32;

/// Bytes of a request, at most: the smallest MTU of IPv6 less the headers of IPv6 and UDP.
pub const MOST_BYTES: usize = 1280 - 48;

/// Bytes of the lines of a request, at most.
pub const MOST_LINES: usize = MOST_BYTES - HEAD - MAC;

/// Changes of an address in a request, at most. A worker makes them between two packets.
pub const MOST_CHANGES: usize = 1024;

/// Largest difference between the time of a request and its arrival, ns.
pub const WINDOW_NS: u64 = 30_000_000_000;

/// Longest time of a ban.
pub const LONGEST: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

const MAGIC_AND_VERSION: [u8; 6] = *b"WEIR\x01\x00";

/// Reason for which a packet to the control port is not obeyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The bytes are not a request, or are cut.
    Malformed,
    /// The packet is a fragment.
    Fragment,
    /// There is no key of this number.
    UnknownKey,
    /// The time of the request differs from its arrival by more than 30 s.
    OutsideWindow,
    /// A request of the same key with this sequence number or a higher one was accepted before.
    Replayed,
    /// The HMAC belongs to other bytes or to another key.
    NotAuthentic,
    /// The table or the log of changes has no room for the changes. The sequence number is used up.
    NoRoom,
    /// The sequence number cannot be saved, so that the request could be replayed after a restart.
    NotSaved,
}

impl Refusal {
    /// All reasons, each at the place of its number.
    pub const ALL: [Self; 8] = [
        Self::Malformed,
        Self::Fragment,
        Self::UnknownKey,
        Self::OutsideWindow,
        Self::Replayed,
        Self::NotAuthentic,
        Self::NoRoom,
        Self::NotSaved,
    ];

    /// Returns the reason in words.
    pub fn name(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Fragment => "fragment",
            Self::UnknownKey => "unknown key",
            Self::OutsideWindow => "outside window",
            Self::Replayed => "replayed",
            Self::NotAuthentic => "not authentic",
            Self::NoRoom => "no room",
            Self::NotSaved => "not saved",
        }
    }
}

/// An authentic request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Place of its key among the [`Keys`].
    pub key: usize,
    /// Sequence number.
    pub sequence: u64,
    /// Time until the bans among the changes end; `None` if they do not end by themselves.
    pub lasts: Option<Duration>,
    /// Changes, one step; at least one.
    pub changes: Vec<AddressChange>,
}

impl Request {
    /// Reads the request in the payload of a UDP datagram that arrived at `now_ns`, ns since the Unix epoch.
    ///
    /// The sequence number is compared, and not yet used up: see [`Sequences::raise`]. **Errors**:
    /// the first check that fails. **Cost**: one HMAC at most for bytes without a key; allocation
    /// after it only.
    pub fn open(
        payload: &[u8],
        now_ns: u64,
        keys: &Keys,
        sequences: &Sequences,
    ) -> Result<Self, Refusal> {
        if !(HEAD + MAC + 1..=MOST_BYTES).contains(&payload.len()) {
            return Err(Refusal::Malformed);
        }
        let (signed, mac) = payload.split_at(payload.len() - MAC);
        let (head, lines) = signed.split_at(HEAD);
        let number = |at: usize| {
            u64::from_be_bytes(*head[at..].first_chunk().expect("the head has 32 bytes"))
        };
        let (sequence, time, lasts) = (number(8), number(16), Duration::from_nanos(number(24)));
        if head[..6] != MAGIC_AND_VERSION || lasts > LONGEST {
            return Err(Refusal::Malformed);
        }
        let id = u16::from_be_bytes([head[6], head[7]]);
        let (place, key) = keys.find(id).ok_or(Refusal::UnknownKey)?;
        if time.abs_diff(now_ns) > WINDOW_NS {
            return Err(Refusal::OutsideWindow);
        }
        if !sequences.is_above(place, sequence) {
            return Err(Refusal::Replayed);
        }
        if !key.has_signed(signed, mac) {
            return Err(Refusal::NotAuthentic);
        }
        let lasts = (!lasts.is_zero()).then_some(lasts);
        Ok(Self {
            key: place,
            sequence,
            lasts,
            changes: changes(lines).ok_or(Refusal::Malformed)?,
        })
    }
}

/// Reads the changes of lines; `None` if one is wrong, or if they are too many.
fn changes(lines: &[u8]) -> Option<Vec<AddressChange>> {
    let mut changes = Vec::new();
    for line in core::str::from_utf8(lines).ok()?.lines() {
        changes.extend(AddressChange::parse(line).ok()?);
        if changes.len() > MOST_CHANGES {
            return None;
        }
    }
    (!changes.is_empty()).then_some(changes)
}

/// Reason for which lines are not a request.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// A line is none of a permission table.
    #[error("{0}")]
    Line(String),
    /// There is no line.
    #[error("there is no change")]
    Empty,
    /// The lines are longer than a packet.
    #[error("the changes take {0} bytes, and a packet has room for {MOST_LINES}")]
    Long(usize),
    /// The lines change too many addresses.
    #[error("{0} addresses change, and a packet changes {MOST_CHANGES} at most")]
    Many(usize),
    /// The time is too long.
    #[error("the time is longer than 100 years")]
    Time,
}

/// Makes the bytes of a request. **Errors**: the lines would be refused.
pub fn seal(
    key: &Key,
    sequence: u64,
    time_ns: u64,
    lasts: Option<Duration>,
    lines: &str,
) -> Result<Vec<u8>, SealError> {
    let mut count = 0;
    for line in lines.lines() {
        count += AddressChange::parse(line)
            .map_err(|why| SealError::Line(why.to_string()))?
            .len();
    }
    let lasts = lasts.unwrap_or_default();
    match (count, lines.len()) {
        (0, _) => return Err(SealError::Empty),
        (_, MOST_LINES..) if lines.len() > MOST_LINES => return Err(SealError::Long(lines.len())),
        _ if count > MOST_CHANGES => return Err(SealError::Many(count)),
        _ if lasts > LONGEST => return Err(SealError::Time),
        _ => {}
    }
    let mut bytes = MAGIC_AND_VERSION.to_vec();
    bytes.extend(key.id().to_be_bytes());
    bytes.extend(sequence.to_be_bytes());
    bytes.extend(time_ns.to_be_bytes());
    // At most LONGEST, which has room in 64 bits.
    bytes.extend((lasts.as_nanos() as u64).to_be_bytes());
    bytes.extend(lines.as_bytes());
    let mac = key.sign(&bytes);
    bytes.extend(mac);
    Ok(bytes)
}

/// Highest sequence number of each key that was accepted.
#[derive(Debug)]
pub struct Sequences(Box<[AtomicU64]>);

impl Sequences {
    /// Begins after these sequence numbers, one for each key; 0 if there was none.
    pub fn new(accepted: impl IntoIterator<Item = u64>) -> Self {
        Self(accepted.into_iter().map(AtomicU64::new).collect())
    }

    /// Whether a sequence number of the key at this place is above all accepted numbers.
    pub fn is_above(&self, key: usize, sequence: u64) -> bool {
        sequence > self.0[key].load(Ordering::Relaxed)
    }

    /// Accepts a sequence number, if it is above all earlier numbers. **Threads**: of several with
    /// the same number, one gets `true`.
    pub fn raise(&self, key: usize, sequence: u64) -> bool {
        self.0[key].fetch_max(sequence, Ordering::Relaxed) < sequence
    }
}

/// Returns the payload of a UDP packet. **Errors**: a fragment, even if it has the whole header; a
/// datagram that is cut, or whose length contradicts its packet.
pub fn payload<'a>(headers: &Headers<'a>) -> Result<&'a [u8], Refusal> {
    /// Bytes of the UDP header: RFC 768.
    const UDP: usize = 8;
    if is_fragment(headers) {
        return Err(Refusal::Fragment);
    }
    let transport = headers.transport;
    let head: &[u8; UDP] = transport.first_chunk().ok_or(Refusal::Malformed)?;
    transport
        .get(UDP..usize::from(u16::from_be_bytes([head[4], head[5]])))
        .ok_or(Refusal::Malformed)
}

/// Whether the packet is a part of another one: RFC 791, section 3.1; RFC 8200, section 4.5.
fn is_fragment(headers: &Headers<'_>) -> bool {
    const FRAGMENT: u8 = 44;
    const AUTHENTICATION: u8 = 51;
    let ip = headers.ip;
    if headers.key.family == 4 {
        // More fragments, or an offset.
        return ip
            .get(6..8)
            .is_some_and(|bytes| u16::from_be_bytes([bytes[0], bytes[1]]) & 0x3fff != 0);
    }
    let (mut next, mut at) = (ip.get(6).copied(), 40);
    // Extension headers end where the transport is.
    while let Some(header) = next.filter(|header| *header != headers.key.proto) {
        if header == FRAGMENT {
            return true;
        }
        let (unit, more) = if header == AUTHENTICATION {
            (4, 2)
        } else {
            (8, 1)
        };
        next = ip.get(at).copied();
        at += ip
            .get(at + 1)
            .map_or(ip.len(), |&length| (usize::from(length) + more) * unit);
    }
    false
}
