//! Sequence numbers as the text of a file: a record for each key, which is written again in its
//! place.
//!
//! **Layout**: 32 bytes, so that no record lies on two pages: the number of the key in five digits, a blank, the sequence number in twenty
//! digits, five blanks, a line feed.

use std::collections::BTreeSet;

/// Bytes of a record.
pub const RECORD: usize = 32;

/// Returns the record of a key's sequence number.
pub fn record(id: u16, sequence: u64) -> [u8; RECORD] {
    let text = format!("{id:05} {sequence:020}     \n");
    text.as_bytes().try_into().expect("a record has 32 bytes")
}

/// A file that has no sequence numbers, or is damaged.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: no record of a sequence number that weir wrote")]
pub struct StateError {
    /// Number of the line, from 1 on.
    pub line: usize,
}

/// Reads records: number of the key, sequence number. **Errors**: the first that is damaged, or whose key has another one before it.
pub fn records(bytes: &[u8]) -> Result<Vec<(u16, u64)>, StateError> {
    let mut keys = BTreeSet::new();
    let read = |(at, bytes): (usize, &[u8])| {
        let text = core::str::from_utf8(bytes).ok();
        let found = text.and_then(|text| {
            let (id, sequence) = text.trim_end().split_once(' ')?;
            let found = (id.parse().ok()?, sequence.parse().ok()?);
            (record(found.0, found.1) == *bytes && keys.insert(found.0)).then_some(found)
        });
        found.ok_or(StateError { line: at + 1 })
    };
    bytes.chunks(RECORD).enumerate().map(read).collect()
}
