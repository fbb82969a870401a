//! Fetching of the memory of large sets ahead of the packets of a batch.
//!
//! A lookup in a large set waits for memory, and what comes behind it depends on the result. So before a batch is judged, the memory for the
//! addresses of all its packets is fetched. It is of no account if a packet has something else at an address's place, since a prefetch
//! changes nothing.

use std::sync::Arc;

use weir_packet::Frame;

use super::AddressSet;
use crate::Program;
use crate::program::{Address, Op};

/// Largest number of places of addresses that are fetched for: source and destination of both families.
const MOST: usize = 4;

/// Place of an address that a program looks up in a large set.
#[derive(Debug)]
pub(crate) struct Ahead {
    set: Arc<AddressSet>,
    offset: usize,
    is_v6: bool,
}

impl Ahead {
    /// The first places in a program at fixed offsets.
    pub(crate) fn of(program: &Program) -> Vec<Self> {
        let mut places: Vec<Self> = Vec::new();
        let (insns, ops) = (program.insns(), program.ops());
        for (at, op) in ops.iter().enumerate() {
            let Op::InSet(address) = op else { continue };
            let Some(test) = program.tests().get(insns[at].k as usize) else {
                continue;
            };
            let loaded = at
                .checked_sub(1)
                .filter(|&before| ops[before] == Op::LoadAbsolute(4));
            let (offset, is_v6, is_large) = match (address, loaded) {
                (Address::V4, Some(before)) => {
                    (insns[before].k as usize, false, test.set.is_large_v4())
                }
                (Address::V6, _) => (test.offset as usize, true, test.set.is_large_v6()),
                _ => continue,
            };
            let is_known = places.iter().any(|known| {
                (known.offset, known.is_v6) == (offset, is_v6) && Arc::ptr_eq(&known.set, &test.set)
            });
            if is_large && !is_known && places.len() < MOST {
                places.push(Self {
                    set: Arc::clone(&test.set),
                    offset,
                    is_v6,
                });
            }
        }
        places
    }

    /// Starts to fetch the memory for all frames.
    #[inline]
    pub(crate) fn fetch(&self, frames: &[Frame<'_>]) {
        let Self { set, offset, is_v6 } = self;
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
}
