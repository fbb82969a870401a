//! The serialised form of a table.
//!
//! ```text
//! 24  8  buckets
//! 32  4  quantity that ranks: 0 packets, 1 bytes
//! 36  4  slots of a bucket: 13
//! 40 16  total: packets, bytes
//! 56  8  bytes of the smallest and of the largest packet, four each
//! 64     for each bucket: floor (8), keys (1), and for each key: tag (1), count (8), error (8), companion (8), the key
//! ```

use weir_memory::Request;

use super::Heavy;
use super::bucket::{Head, Slot, WAYS};
use crate::image::{Kind, Reader, Writer, sizes_fit};
use crate::{Error, Key, Weigh, same};

/// Bytes of a bucket without keys in the image.
const LEAST_BUCKET: usize = 9;

impl<K: Key> Heavy<K> {
    /// The table as bytes, without [times](Heavy::with_times).
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut image = Writer::new(Kind::Heavy, size_of::<K>(), self.seed);
        image.u64(self.heads.len() as u64);
        image.u32(self.weigh as u32);
        image.u32(WAYS as u32);
        image.counts(self.total);
        image.u32(self.sizes.0);
        image.u32(self.sizes.1);
        for (head, slots) in self.heads.iter().zip(self.slots.as_chunks::<WAYS>().0) {
            image.u64(head.floor());
            image.u8(head.len() as u8);
            for (index, slot) in slots[..head.len()].iter().enumerate() {
                image.u8(head.tag(index));
                image.u64(head.count(index));
                image.u64(slot.error);
                image.u64(slot.companion);
                image.key(&slot.key);
            }
        }
        image.finish()
    }

    /// Reads the table from its serialised bytes. The table takes as much memory as the written one: at most some hundred
    /// times the length of the image.
    ///
    /// **Errors**: the bytes are not a result of [`to_bytes`](Self::to_bytes). Whether each key is
    /// in its own bucket is not checked.
    pub fn from_bytes(bytes: &[u8], request: &Request) -> Result<Self, Error> {
        let mut image = Reader::new(bytes, Kind::Heavy, size_of::<K>())?;
        let fault = image.fault("more buckets than bytes for them, or none");
        let buckets = usize::try_from(image.u64()?).unwrap_or(usize::MAX);
        if buckets == 0 || buckets > (image.left() / LEAST_BUCKET).min(u32::MAX as usize) {
            return Err(fault);
        }
        let fault = image.fault("ranks neither by packets nor by bytes");
        let weigh = match image.u32()? {
            0 => Weigh::Packets,
            1 => Weigh::Bytes,
            _ => return Err(fault),
        };
        let fault = image.fault("buckets of another size");
        if image.u32()? != WAYS as u32 {
            return Err(fault);
        }
        let mut table = Self::of_buckets(buckets, weigh, image.seed(), request, false)?;
        table.total = image.counts()?;
        let fault = image.fault("packet sizes that do not fit the total");
        table.sizes = (image.u32()?, image.u32()?);
        if !sizes_fit(table.sizes, table.total) {
            return Err(fault);
        }
        let mut sums = Sums::default();
        for (head, slots) in table
            .heads
            .iter_mut()
            .zip(table.slots.as_chunks_mut::<WAYS>().0)
        {
            bucket(&mut image, head, slots, &mut sums)?;
        }
        let (weight, companion) = match weigh {
            Weigh::Packets => (table.total.packets, table.total.bytes),
            Weigh::Bytes => (table.total.bytes, table.total.packets),
        };
        if sums.potential > u128::from(weight) || sums.companion > u128::from(companion) {
            return Err(image.fault("counts that pass the total"));
        }
        image.finish()?;
        Ok(table)
    }
}

/// Sums over the buckets, to be compared with the totals.
#[derive(Default)]
struct Sums {
    /// Sum of P of the module's text, over all buckets.
    potential: u128,
    companion: u128,
}

fn bucket<K: Key>(
    image: &mut Reader,
    head: &mut Head,
    slots: &mut [Slot<K>; WAYS],
    sums: &mut Sums,
) -> Result<(), Error> {
    let floor = image.u64()?;
    *head = Head::with_floor(floor);
    sums.potential += u128::from(floor) * (WAYS as u128 + 1);
    let fault = image.fault("more keys than a bucket has slots");
    let keys = usize::from(image.u8()?);
    if keys > WAYS {
        return Err(fault);
    }
    for index in 0..keys {
        let fault = image.fault(
            "no such slot: a tag of zero, an error above its count or its floor, or a key twice",
        );
        let (tag, count, error, companion, key) = (
            image.u8()?,
            image.u64()?,
            image.u64()?,
            image.u64()?,
            image.key()?,
        );
        let twice = slots[..index].iter().any(|slot| same(&slot.key, &key));
        if tag == 0 || error > count || error > floor || twice {
            return Err(fault);
        }
        sums.potential += u128::from(count.saturating_sub(floor));
        sums.companion += u128::from(companion);
        head.put(
            slots,
            index,
            tag,
            count,
            Slot {
                companion,
                error,
                key,
            },
        );
    }
    let fault = image.fault("a floor above zero in a bucket with free slots");
    if keys < WAYS && floor > 0 {
        Err(fault)
    } else {
        Ok(())
    }
}
