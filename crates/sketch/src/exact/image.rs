//! The serialised form of a table.
//!
//! ```text
//! 24  8  slots
//! 32 16  total: packets, bytes
//! 48 16  untracked: packets, bytes
//! 64 16  doubt: packets, bytes, neither above the untracked ones
//! 80  8  keys
//! 88     for each key, in the order of their bytes: the key, packets, bytes
//! ```
//!
//! Because keys are ordered, equal tables have equal images, whatever the order of their packets was.

use weir_memory::Request;

use super::{Exact, Slot};
use crate::image::{Kind, Reader, Writer};
use crate::{Error, Key};

impl<K: Key> Exact<K> {
    /// The table as bytes, without [times](Exact::with_times).
    ///
    /// **Cost**: sorts the keys.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut entries: Vec<_> = self.iter().collect();
        entries.sort_unstable_by(|(a, _), (b, _)| a.as_bytes().cmp(b.as_bytes()));
        let mut image = Writer::new(Kind::Exact, size_of::<K>(), self.seed);
        image.u64(self.slots.len() as u64);
        for counts in [self.total, self.untracked, self.doubt] {
            image.counts(counts);
        }
        image.u64(entries.len() as u64);
        for (key, counts) in entries {
            image.key(&key);
            image.counts(counts);
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
        let mut image = Reader::new(bytes, Kind::Exact, size_of::<K>())?;
        let fault = image.fault("a table that takes more memory than allowed");
        let memory = usize::try_from(image.u64()?)
            .ok()
            .and_then(|slots| slots.checked_mul(size_of::<Slot<K>>()));
        let memory = memory
            .filter(|memory| *memory <= memory_bytes)
            .ok_or(fault)?;
        let mut table = Self::new(memory, image.seed(), request)?;
        (table.total, table.untracked) = (image.counts()?, image.counts()?);
        let fault = image.fault("a doubt above what is untracked");
        table.doubt = image.counts()?;
        if table.doubt.packets > table.untracked.packets
            || table.doubt.bytes > table.untracked.bytes
        {
            return Err(fault);
        }
        let keys = image.u64()?;
        if keys > table.capacity as u64 {
            return Err(image.fault("more keys than the table has room for"));
        }
        let mut sum = table.untracked;
        let mut before: Option<K> = None;
        for _ in 0..keys {
            let fault = image.fault("keys out of order");
            let key: K = image.key()?;
            if before.is_some_and(|before| before.as_bytes() >= key.as_bytes()) {
                return Err(fault);
            }
            let fault = image.fault("counts that do not fit the total");
            let counts = image.counts()?;
            sum = sum
                .plus(counts)
                .filter(|_| counts.packets > 0)
                .ok_or(fault)?;
            table.add(table.home(hash(table.seed, &key)), &key, counts);
            before = Some(key);
        }
        if sum != table.total {
            return Err(image.fault("counts that do not add up to the total"));
        }
        image.finish()?;
        Ok(table)
    }
}
