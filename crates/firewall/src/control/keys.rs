//! Keys of controllers.

use core::fmt::{self, Debug, Formatter};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Bytes of a key, at least.
const LEAST: usize = 16;

/// Key of a controller, with its number.
#[derive(Clone)]
pub struct Key {
    id: u16,
    mac: Hmac<Sha256>,
}

/// Shows the number alone.
impl Debug for Key {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl Key {
    /// Number of the key.
    pub fn id(&self) -> u16 {
        self.id
    }

    /// Returns the HMAC-SHA256 of bytes.
    pub(super) fn sign(&self, bytes: &[u8]) -> [u8; 32] {
        self.mac
            .clone()
            .chain_update(bytes)
            .finalize()
            .into_bytes()
            .into()
    }

    /// Whether the HMAC belongs to these bytes. **Cost**: the same time wherever the first wrong
    /// byte is; no allocation.
    pub(super) fn has_signed(&self, bytes: &[u8], mac: &[u8]) -> bool {
        self.mac
            .clone()
            .chain_update(bytes)
            .verify_slice(mac)
            .is_ok()
    }
}

/// A line of a key file that is refused. A part of a key is never repeated.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {why}")]
pub struct KeyError {
    /// Number of the line, from 1 on.
    pub line: usize,
    /// Reason.
    pub why: KeyWhy,
}

/// Reason for which a line of a key file is refused.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum KeyWhy {
    /// The line has other words than a number and a key.
    #[error("a line has the number of a key, and the key in hexadecimal")]
    NoKey,
    /// The number is none.
    #[error("the number of a key is from 0 to 65535")]
    Number,
    /// The key has other characters than pairs of hexadecimal digits.
    #[error("the key is not hexadecimal, two digits for a byte")]
    NotHex,
    /// The key is short.
    #[error("the key has {0} bytes, and {LEAST} are the least")]
    Short(usize),
    /// Another line has a key of this number.
    #[error("line {0} has a key of this number too")]
    Twice(usize),
    /// The file ends without a key.
    #[error("the file ends, and there is no key")]
    None,
}

/// Keys of all controllers, by number.
#[derive(Clone, Debug)]
pub struct Keys(Vec<Key>);

impl Keys {
    /// Reads a key file: lines `NUMBER KEY`, the key in hexadecimal; a text after # is a comment.
    /// **Errors**: the first line that is refused.
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let mut keys: Vec<(Key, usize)> = Vec::new();
        let mut last = 1;
        for (number, line) in text.lines().enumerate() {
            last = number + 1;
            let words: Vec<&str> = line
                .split('#')
                .next()
                .unwrap_or_default()
                .split_whitespace()
                .collect();
            if words.is_empty() {
                continue;
            }
            let refused = |why| KeyError {
                line: number + 1,
                why,
            };
            let key = key(&words).map_err(refused)?;
            if let Some((_, before)) = keys.iter().find(|(known, _)| known.id == key.id) {
                return Err(refused(KeyWhy::Twice(*before)));
            }
            keys.push((key, number + 1));
        }
        if keys.is_empty() {
            return Err(KeyError {
                line: last,
                why: KeyWhy::None,
            });
        }
        let mut keys: Vec<Key> = keys.into_iter().map(|(key, _)| key).collect();
        keys.sort_unstable_by_key(|key| key.id);
        Ok(Self(keys))
    }

    /// Returns the key of a number, and its place among all.
    pub fn find(&self, id: u16) -> Option<(usize, &Key)> {
        let place = self.0.binary_search_by_key(&id, |key| key.id).ok()?;
        Some((place, &self.0[place]))
    }

    /// Returns all keys, by number.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &Key> {
        self.0.iter()
    }
}

fn key(words: &[&str]) -> Result<Key, KeyWhy> {
    let [id, hex] = words else {
        return Err(KeyWhy::NoKey);
    };
    let id = id.parse().map_err(|_| KeyWhy::Number)?;
    let digits = hex
        .chars()
        .map(|digit| digit.to_digit(16))
        .collect::<Option<Vec<u32>>>()
        .ok_or(KeyWhy::NotHex)?;
    if digits.len() % 2 == 1 {
        return Err(KeyWhy::NotHex);
    }
    let bytes: Vec<u8> = digits
        .chunks(2)
        .map(|pair| (pair[0] << 4 | pair[1]) as u8)
        .collect();
    if bytes.len() < LEAST {
        return Err(KeyWhy::Short(bytes.len()));
    }
    Ok(Key {
        id,
        mac: Hmac::new_from_slice(&bytes).expect("a key of any length will do"),
    })
}
