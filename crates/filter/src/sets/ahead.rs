//! Fetching of the memory of large sets ahead of the packets of a batch.
//!
//! A lookup in a large set waits for memory, and what comes after it depends on the result. So
//! before a batch is judged, the memory for the addresses of all its packets is fetched. It is of
//! no account if a packet has something else at an address's place, since a prefetch changes
//! nothing.

use std::sync::Arc;

use weir_packet::Frame;

use super::AddressSet;
use crate::program::{Address, Op};
use crate::{MAX_BATCH, Program};

/// Largest number of places of addresses that are fetched for: source and destination of both families.
const MOST: usize = 4;

/// The question whether a set has the address at a fixed place of a packet.
#[derive(Debug)]
pub(crate) struct Lookup {
    set: Arc<AddressSet>,
    offset: usize,
    is_v6: bool,
}

impl Lookup {
    pub(crate) fn new(set: &Arc<AddressSet>, address: Address, offset: u32) -> Self {
        Self {
            set: Arc::clone(set),
            offset: offset as usize,
            is_v6: address != Address::V4,
        }
    }

    /// The first lookups of a program in large sets at fixed places.
    pub(crate) fn of(program: &Program) -> Vec<Self> {
        let mut lookups: Vec<Self> = Vec::new();
        let (insns, ops) = (program.insns(), program.ops());
        for (at, op) in ops.iter().enumerate() {
            let Op::InSet(address) = *op else { continue };
            let Some(test) = program.tests().get(insns[at].k as usize) else {
                continue;
            };
            let loaded = at
                .checked_sub(1)
                .filter(|&before| ops[before] == Op::LoadAbsolute(4));
            let offset = match (address, loaded) {
                (Address::V4, Some(before)) => insns[before].k,
                (Address::V6, _) => test.offset,
                _ => continue,
            };
            let lookup = Self::new(&test.set, address, offset);
            let is_known = lookups.iter().any(|known| {
                (known.offset, known.is_v6) == (lookup.offset, lookup.is_v6)
                    && Arc::ptr_eq(&known.set, &lookup.set)
            });
            if lookup.is_large() && !is_known && lookups.len() < MOST {
                lookups.push(lookup);
            }
        }
        lookups
    }

    /// Whether lookups may wait for memory.
    fn is_large(&self) -> bool {
        if self.is_v6 {
            self.set.is_large_v6()
        } else {
            self.set.is_large_v4()
        }
    }

    /// Starts to fetch the memory for all frames.
    #[inline]
    pub(crate) fn fetch(&self, frames: &[Frame<'_>]) {
        let Self { set, offset, is_v6 } = self;
        if !self.is_large() {
            return;
        }
        if *is_v6 {
            let address = |frame: &Frame<'_>| frame.data.get(*offset..)?.first_chunk().copied();
            frames
                .iter()
                .filter_map(address)
                .for_each(|bytes| set.prefetch_v6(u128::from_be_bytes(bytes)));
            return;
        }
        let address = |frame: &Frame<'_>| {
            Some(u32::from_be_bytes(
                *frame.data.get(*offset..)?.first_chunk()?,
            ))
        };
        frames
            .iter()
            .filter_map(address)
            .for_each(|address| set.prefetch_v4(address));
        frames
            .iter()
            .filter_map(address)
            .for_each(|address| set.prefetch_rest_v4(address));
    }

    /// Bit `i` says whether the set has the address of frame `i`; if the frame ends before it or within it, the bit means nothing.
    ///
    /// All memory is fetched before the first address is looked for, and no branch depends on what was found. **Shape**: at most
    /// [`MAX_BATCH`] frames.
    #[inline]
    pub(crate) fn members(&self, frames: &[Frame<'_>]) -> u64 {
        if self.is_v6 {
            let addresses = self.read(frames, u128::from_be_bytes);
            return self.set.members_v6(&addresses[..frames.len()]);
        }
        let addresses = self.read(frames, u32::from_be_bytes);
        self.set.members_v4(&addresses[..frames.len()])
    }

    /// The addresses of the frames; zero for frames without one.
    #[inline]
    fn read<A: Copy + Default, const BYTES: usize>(
        &self,
        frames: &[Frame<'_>],
        number: impl Fn([u8; BYTES]) -> A,
    ) -> [A; MAX_BATCH] {
        let mut addresses = [A::default(); MAX_BATCH];
        for (address, frame) in addresses.iter_mut().zip(frames) {
            let bytes = frame.data.get(self.offset..);
            if let Some(bytes) = bytes.and_then(|data| data.first_chunk()) {
                *address = number(*bytes);
            }
        }
        addresses
    }
}
