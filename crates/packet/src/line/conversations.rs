//! Where the sequence numbers of TCP conversations begin, for relative numbers.

use super::upper::Address;

/// Slots that a conversation may take.
const WAYS: usize = 8;

/// First sequence numbers of both directions of TCP conversations, in bounded memory.
///
/// As tcpdump does: the first segment with the ACK flag, and each segment with SYN and ACK, tells where both directions begin;
/// later numbers are printed as distances from there. If a set of slots is full, the conversation that was quiet for longest is
/// forgotten, and its next segment counts as its first.
///
/// **Memory**: 3 MiB ([`Conversations::MOST`] slots of 48 bytes), touched as conversations come.
#[derive(Clone, Debug)]
pub struct Conversations {
    slots: Vec<Slot>,
    clock: u32,
    evicted: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    key: Key,
    /// First sequence number of the end with the lower port (or address), and of the other.
    starts: [u32; 2],
    /// Time of the last segment in segments; 0 for a free slot.
    used: u32,
}

/// Addresses and ports, the end with the lower port first; equal ports are ordered by address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Key {
    ends: [[u8; 16]; 2],
    ports: [u16; 2],
}

/// First sequence numbers of the sender and of the receiver of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Starts {
    pub seq: u32,
    pub ack: u32,
    /// Distances of selective acknowledgments: the receiver's start, also in the segment that tells it.
    pub sack: u32,
}

impl Default for Conversations {
    fn default() -> Self {
        Self::new()
    }
}

impl Conversations {
    /// Most conversations that are remembered.
    pub const MOST: usize = 1 << 16;

    /// An empty table.
    pub fn new() -> Self {
        Self {
            slots: Vec::new(),
            clock: 0,
            evicted: 0,
        }
    }

    /// Number of conversations that were forgotten because the table was full.
    pub const fn evicted(&self) -> u64 {
        self.evicted
    }

    /// Forgets all conversations.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.clock = 0;
    }

    /// Numbers to subtract from the numbers of a segment with ACK; zeros for the segment that begins a conversation.
    pub(super) fn starts(
        &mut self,
        [src, dst]: [Address; 2],
        [sport, dport]: [u16; 2],
        [seq, ack]: [u32; 2],
        begins: bool,
    ) -> Starts {
        if self.slots.is_empty() {
            self.slots.resize(Self::MOST, Slot::default());
        }
        let ends = [src.bytes(), dst.bytes()];
        let reversed = sport > dport || sport == dport && ends[0] > ends[1];
        let (mut key, mut starts) = (
            Key {
                ends,
                ports: [sport, dport],
            },
            [seq, ack.wrapping_sub(1)],
        );
        if reversed {
            key.ends.reverse();
            key.ports.reverse();
            starts.reverse();
        }
        let (slot, is_new) = self.slot(&key);
        let begins = begins || is_new;
        if begins {
            slot.starts = starts;
        }
        let [own, other] = if reversed {
            [slot.starts[1], slot.starts[0]]
        } else {
            slot.starts
        };
        match begins {
            true => Starts {
                seq: 0,
                ack: 0,
                sack: other,
            },
            false => Starts {
                seq: own,
                ack: other,
                sack: other,
            },
        }
    }

    /// The slot of a conversation, and whether it is new there.
    fn slot(&mut self, key: &Key) -> (&mut Slot, bool) {
        self.clock = self.clock.wrapping_add(1).max(1);
        let first = key.hash() as usize % (self.slots.len() / WAYS) * WAYS;
        let set = &mut self.slots[first..first + WAYS];
        let clock = self.clock;
        let found = set
            .iter()
            .position(|slot| slot.used != 0 && slot.key == *key);
        let age = |slot: &Slot| {
            if slot.used == 0 {
                u32::MAX
            } else {
                clock.wrapping_sub(slot.used)
            }
        };
        let place = found.unwrap_or_else(|| {
            (0..WAYS)
                .max_by_key(|&way| age(&set[way]))
                .expect("a set has slots")
        });
        let slot = &mut set[place];
        if found.is_none() {
            self.evicted += u64::from(slot.used != 0);
            slot.key = *key;
        }
        slot.used = clock;
        (slot, found.is_none())
    }
}

impl Key {
    /// A hash of all bytes. Chosen keys can share a set; that costs them relative numbers and nothing else.
    fn hash(&self) -> u64 {
        let mut hash = u64::from(self.ports[0]) << 16 | u64::from(self.ports[1]);
        let (words, _) = self.ends.as_flattened().as_chunks::<8>();
        for word in words {
            hash = (hash ^ u64::from_le_bytes(*word)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 29;
        }
        hash >> 16
    }
}
