//! Cut-off: only the first bytes of each conversation are kept.
//!
//! Most bytes belong to few long conversations, and most of what an analyst asks is at the begin of
//! a conversation. **Source**: Kornexl, Paxson, Dreger, Feldmann, Sommer: Building a Time Machine
//! for Efficient Recording and Retrieval of High-Volume Network Traffic, 2005.

use weir_memory::{Error, Request, Table};

/// Entries of a set: a conversation can be in any of them.
const WAYS: usize = 4;

/// Time after which a silent conversation begins again, ns.
const SILENCE_NS: i64 = 600_000_000_000;

/// A conversation. 24 bytes; zeroed if free.
#[derive(Clone, Copy, Debug, Default, zerocopy::FromZeros)]
struct Entry {
    /// Hash of the conversation.
    hash: u64,
    /// Bytes kept so far.
    bytes: u64,
    /// Time of the last packet, ns since 1970.
    last_ns: i64,
}

/// Bytes kept so far of each conversation, in a table of fixed size.
///
/// If the table has no room for a conversation, the conversation of its set that was silent for
/// longest is forgotten, and begins again with its next packet: then more is kept than asked for,
/// never less.
#[derive(Debug)]
pub struct Cutoff {
    bytes: u64,
    entries: Table<Entry>,
    forgotten: u64,
}

impl Cutoff {
    /// Keeps the first `bytes` bytes of each conversation, of about `conversations` at a time (24 bytes each).
    ///
    /// **Errors**: as of [`weir_memory::Region::zeroed`].
    pub fn new(bytes: u64, conversations: usize) -> Result<Self, Error> {
        let entries = conversations.max(WAYS).next_power_of_two();
        Ok(Self {
            bytes,
            entries: Table::zeroed(entries, &Request::default())?,
            forgotten: 0,
        })
    }

    /// Whether a packet of `len` bytes is kept: it is if less than the first bytes of its conversation came before it. `hash` is
    /// that of the conversation, the same for both directions, with a seed that senders do not know. **Cost**: one or two cache lines.
    pub fn keeps(&mut self, hash: u64, len: u64, time_ns: i64) -> bool {
        // Free entries have the hash 0.
        let hash = hash.max(1);
        let sets = self.entries.len() / WAYS;
        let set = (hash >> 32) as usize & (sets - 1);
        let entries = &mut self.entries[set * WAYS..][..WAYS];
        let place = match entries.iter().position(|entry| entry.hash == hash) {
            Some(known) => known,
            None => {
                let order = |place: &usize| (entries[*place].hash != 0, entries[*place].last_ns);
                let oldest = (0..WAYS).min_by_key(order).expect("a set has entries");
                self.forgotten += u64::from(entries[oldest].hash != 0);
                entries[oldest] = Entry {
                    hash,
                    bytes: 0,
                    last_ns: time_ns,
                };
                oldest
            }
        };
        let entry = &mut entries[place];
        if time_ns.saturating_sub(entry.last_ns) > SILENCE_NS {
            entry.bytes = 0;
        }
        entry.last_ns = entry.last_ns.max(time_ns);
        let keeps = entry.bytes < self.bytes;
        entry.bytes = entry.bytes.saturating_add(len);
        keeps
    }

    /// Conversations that were forgotten because the table had no room.
    pub fn forgotten(&self) -> u64 {
        self.forgotten
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;
    use weir_testkit::Random;

    #[test]
    fn the_first_bytes_of_each_conversation_are_kept() {
        let mut cutoff = Cutoff::new(3000, 1 << 14).unwrap();
        let mut choices = Random(1);
        // Few enough conversations that no set is full.
        let hashes: Vec<u64> = (0..500)
            .map(|_| (choices.below(usize::MAX) as u64) | 1)
            .collect();
        let mut naive: HashMap<u64, u64> = HashMap::new();
        for step in 0..50_000 {
            let hash = hashes[choices.below(hashes.len())];
            let len = choices.below(1500) as u64;
            let before = naive.entry(hash).or_default();
            let expected = *before < 3000;
            *before += len;
            assert_eq!(cutoff.keeps(hash, len, step), expected);
        }
        assert_eq!(cutoff.forgotten(), 0);
    }

    #[test]
    fn a_full_table_keeps_more_and_never_less() {
        let mut cutoff = Cutoff::new(100, 8).unwrap();
        let mut kept = 0;
        for step in 0..1000 {
            for conversation in 1..=50u64 {
                let first = step == 0;
                let keeps = cutoff.keeps(conversation << 32 | conversation, 60, step);
                assert!(keeps || !first);
                kept += u64::from(keeps);
            }
        }
        assert!(kept > 100 && cutoff.forgotten() > 40);
    }

    #[test]
    fn a_silent_conversation_begins_anew() {
        let mut cutoff = Cutoff::new(100, 8).unwrap();
        let second = 1_000_000_000;
        assert!(cutoff.keeps(7, 100, 0) && !cutoff.keeps(7, 100, 599 * second));
        assert!(
            !cutoff.keeps(7, 100, 1100 * second),
            "it was silent for less than ten minutes"
        );
        assert!(cutoff.keeps(7, 100, 1701 * second));
        assert!(!cutoff.keeps(7, 100, 1701 * second));
    }
}
