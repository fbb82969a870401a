//! Digest of frames, to compare two runs or both ends of a cable.

const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

/// Digest of a set of frames: the sum of a hash of each frame, so that neither their order nor the number of senders matters.
///
/// The hash of a frame begins with its length in bytes. Each 8 bytes, as a little-endian number, and the last of them with zeros
/// appended, are mixed into it by `h = (h ^ word) * 0x9e3779b97f4a7c15` and `h ^= h >> 32`, modulo 2^64.
///
/// **Cost**: some 4 instructions for 8 bytes. Deliberately not: proof against frames that somebody chose for their digest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Digest(u64);

impl Digest {
    /// Adds a frame.
    #[inline]
    pub fn add(&mut self, frame: &[u8]) {
        self.0 = self.0.wrapping_add(hash(frame));
    }

    /// Adds the frames of another digest.
    pub fn merge(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

/// Hash of a frame: see [`Digest`].
#[inline]
pub(crate) fn hash(frame: &[u8]) -> u64 {
    let (words, rest) = frame.as_chunks::<8>();
    let mut hash = frame.len() as u64;
    let mut mix = |word: u64| {
        hash = (hash ^ word).wrapping_mul(FACTOR);
        hash ^= hash >> 32;
    };
    words.iter().for_each(|&word| mix(u64::from_le_bytes(word)));
    if !rest.is_empty() {
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        mix(u64::from_le_bytes(last));
    }
    hash
}

impl std::fmt::Display for Digest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}
