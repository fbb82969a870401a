//! Body, with its oracle, that the fuzz target and the tests share.

use crate::Snapshot;

/// Reads any bytes as a snapshot. A snapshot that is read returns from its own bytes as it was, and neither a part of these bytes nor more
/// bytes are one.
pub fn snapshot(data: &[u8]) {
    let Some(read) = Snapshot::of_bytes(data) else {
        return;
    };
    let bytes = read.to_bytes();
    // Numbers may have been longer than needed.
    assert!(bytes.len() <= data.len());
    let again = Snapshot::of_bytes(&bytes).expect("it was written");
    // Bounds may have a confidence that is no number, which differs from itself.
    assert_eq!(format!("{read:?}"), format!("{again:?}"));
    assert!(again.to_bytes() == bytes);
    let last = bytes.len() - 1;
    assert!(Snapshot::of_bytes(&bytes[..last]).is_none());
    assert!(Snapshot::of_bytes(&[&bytes[..], &[0]].concat()).is_none());
}
