//! The serialised form that all sketches share: little-endian, versioned, with a checksum.
//!
//! ```text
//!  0  8  magic "weirskch"
//!  8  2  version, 1
//! 10  1  kind: 1 exact, 2 heavy, 3 count-min, 4 spreaders, 5 simple hash table, 6 majority vote, 7 reversible,
//!        8 reversible sets
//! 11  1  byte order of numbers inside keys: 1 little-endian, 2 big-endian, 0 no keys
//! 12  4  bytes of a key
//! 16  8  seed of the keys' hashes
//! 24     body, see the kinds
//! -8  8  FNV-1a (64 bit) of all bytes before it
//! ```
//!
//! Keys are written as they lie in memory, because keys are compared by their bytes. If the keys of an image have the other byte
//! order, the image is refused.

use crate::{Counts, Error, Key, LIMIT};

const MAGIC: [u8; 8] = *b"weirskch";
const VERSION: u16 = 1;
const CHECKSUM: usize = 8;

/// Kind of the sketch in an image.
#[derive(Clone, Copy, PartialEq)]
#[repr(u8)]
pub(crate) enum Kind {
    Exact = 1,
    Heavy = 2,
    Cms = 3,
    Spreaders = 4,
    Simple = 5,
    Majority = 6,
    Reversible = 7,
    ReversibleSets = 8,
}

/// FNV-1a, 64 bit.
pub(crate) fn checksum(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// An image being written.
pub(crate) struct Writer(Vec<u8>);

impl Writer {
    /// An image of a sketch with keys of `key` bytes; 0 if it has no keys.
    pub(crate) fn new(kind: Kind, key: usize, seed: u64) -> Self {
        let mut writer = Self(MAGIC.to_vec());
        writer.0.extend(VERSION.to_le_bytes());
        writer.0.extend([kind as u8, order(key)]);
        writer.u32(key as u32);
        writer.u64(seed);
        writer
    }

    pub(crate) fn u8(&mut self, value: u8) {
        self.0.push(value);
    }

    pub(crate) fn u32(&mut self, value: u32) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, value: u64) {
        self.0.extend(value.to_le_bytes());
    }

    pub(crate) fn counts(&mut self, counts: Counts) {
        self.u64(counts.packets);
        self.u64(counts.bytes);
    }

    pub(crate) fn key<K: Key>(&mut self, key: &K) {
        self.0.extend(key.as_bytes());
    }

    pub(crate) fn finish(mut self) -> Vec<u8> {
        let sum = checksum(&self.0);
        self.u64(sum);
        self.0
    }
}

/// An image being read.
pub(crate) struct Reader<'a> {
    /// All bytes but the checksum.
    bytes: &'a [u8],
    at: usize,
    seed: u64,
}

impl<'a> Reader<'a> {
    /// Reads the header of an image of a sketch of this kind, with keys of `key` bytes.
    pub(crate) fn new(bytes: &'a [u8], kind: Kind, key: usize) -> Result<Self, Error> {
        let (body, sum) = bytes
            .split_last_chunk::<CHECKSUM>()
            .ok_or(fault(0, "an image is longer than this"))?;
        let mut reader = Self {
            bytes: body,
            at: 0,
            seed: 0,
        };
        if reader.array()? != MAGIC {
            return Err(fault(0, "not an image of a sketch"));
        }
        if u16::from_le_bytes(reader.array()?) != VERSION {
            return Err(fault(8, "a version that is not known here"));
        }
        if reader.u8()? != kind as u8 {
            return Err(fault(10, "an image of another kind of sketch"));
        }
        if reader.u8()? != order(key) {
            return Err(fault(11, "keys in another byte order"));
        }
        if reader.u32()? as usize != key {
            return Err(fault(12, "keys of another length"));
        }
        reader.seed = reader.u64()?;
        if u64::from_le_bytes(*sum) != checksum(body) {
            return Err(fault(
                body.len(),
                "the checksum is wrong, some byte was changed",
            ));
        }
        Ok(reader)
    }

    pub(crate) fn seed(&self) -> u64 {
        self.seed
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Error> {
        let left = &self.bytes[self.at..];
        let taken = left
            .get(..len)
            .ok_or(self.fault("the image ends before this does"))?;
        self.at += len;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Error> {
        let taken = self.take(N)?;
        Ok(taken.try_into().expect("as many were taken"))
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Error> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Error> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Error> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads two totals, neither above [`LIMIT`].
    pub(crate) fn counts(&mut self) -> Result<Counts, Error> {
        let at = self.at;
        let counts = Counts {
            packets: self.u64()?,
            bytes: self.u64()?,
        };
        if counts.packets.max(counts.bytes) > LIMIT {
            Err(fault(at, "a count above 2^63"))
        } else {
            Ok(counts)
        }
    }

    pub(crate) fn key<K: Key>(&mut self) -> Result<K, Error> {
        let at = self.at;
        K::try_read_from_bytes(self.take(size_of::<K>())?)
            .map_err(|_| fault(at, "bytes that are not a key"))
    }

    /// Number of bytes still to be read.
    pub(crate) fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// The error for an error at the next value.
    pub(crate) fn fault(&self, why: &'static str) -> Error {
        fault(self.at, why)
    }

    pub(crate) fn finish(self) -> Result<(), Error> {
        if self.left() == 0 {
            Ok(())
        } else {
            Err(self.fault("more bytes than the sketch has"))
        }
    }
}

/// Whether this many packets with sizes in this range can have this many bytes.
pub(crate) fn sizes_fit((smallest, largest): (u32, u32), total: Counts) -> bool {
    let packets = u128::from(total.packets);
    let range = packets * u128::from(smallest)..=packets * u128::from(largest);
    if packets == 0 {
        (smallest, largest, total.bytes) == (u32::MAX, 0, 0)
    } else {
        range.contains(&total.bytes.into())
    }
}

fn fault(offset: usize, why: &'static str) -> Error {
    Error::Image { offset, why }
}

/// Byte order of numbers inside keys on this machine.
fn order(key: usize) -> u8 {
    match (key, cfg!(target_endian = "little")) {
        (0, _) => 0,
        (_, true) => 1,
        (_, false) => 2,
    }
}
