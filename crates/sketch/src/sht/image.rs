//! The serialised form of a table.
//!
//! ```text
//! 24  8  slots
//! 32 16  total: packets, bytes
//! 48 16  evicted: packets, bytes
//! 64  8  keys
//! 72     for each key, in the order of the slots: slot (8), packets (8), bytes (8), the key
//! ```
//!
//! The slot of a key is `(hash * 0x9e3779b97f4a7c15 mod 2^64) * slots / 2^64`, rounded down.

use weir_memory::Request;

use super::{SimpleTable, Slot};
use crate::image::{Kind, Reader, Writer};
use crate::{Error, Key};

impl<K: Key> SimpleTable<K> {
    /// The table as bytes.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut image = Writer::new(Kind::Simple, size_of::<K>(), self.seed);
        image.u64(self.slots.len() as u64);
        image.counts(self.total);
        image.counts(self.evicted);
        image.u64(self.len as u64);
        let taken = self.slots.iter().enumerate();
        for (at, slot) in taken.filter(|(_, slot)| slot.packets != 0) {
            image.u64(at as u64);
            image.counts(slot.counts());
            image.key(&slot.key);
        }
        image.finish()
    }

    /// Reads the table from its serialised bytes. `hash` makes the hash of a key from the seed named in the image, and the
    /// key.
    ///
    /// **Errors**: the bytes are not a result of [`to_bytes`](Self::to_bytes), or the table takes
    /// more than `memory_bytes`.
    pub fn from_bytes(
        bytes: &[u8],
        memory_bytes: usize,
        request: &Request,
        mut hash: impl FnMut(u64, &K) -> u64,
    ) -> Result<Self, Error> {
        let mut image = Reader::new(bytes, Kind::Simple, size_of::<K>())?;
        let fault = image.fault("no slots, or a table that takes more memory than allowed");
        let memory = usize::try_from(image.u64()?)
            .ok()
            .and_then(|slots| slots.checked_mul(size_of::<Slot<K>>()))
            .filter(|memory| (1..=memory_bytes).contains(memory))
            .ok_or(fault)?;
        let mut table = Self::new(memory, image.seed(), request)?;
        (table.total, table.evicted) = (image.counts()?, image.counts()?);
        let keys = image.u64()?;
        let mut sum = table.evicted;
        let mut free_from = 0;
        for _ in 0..keys {
            let fault = image.fault("slots out of order, or a key in another slot than its own");
            let slot = image.u64()?;
            let fault_of_counts = image.fault("counts that do not fit the total");
            let counts = image.counts()?;
            sum = sum
                .plus(counts)
                .filter(|_| counts.packets > 0)
                .ok_or(fault_of_counts)?;
            let key: K = image.key()?;
            let home = table.home(hash(table.seed, &key));
            if home as u64 != slot || home < free_from {
                return Err(fault);
            }
            free_from = home + 1;
            table.slots[home] = Slot {
                packets: counts.packets,
                bytes: counts.bytes,
                key,
            };
            table.len += 1;
        }
        if sum != table.total {
            return Err(image.fault("counts that do not add up to the total"));
        }
        image.finish()?;
        Ok(table)
    }
}
