//! Places of a table of fixed size: sets of [`WAYS`] places, found by a hash.

use weir_memory::prefetch;

/// Places of a set.
pub(super) const WAYS: usize = 16;

/// Places, each with the number of an entry that the caller keeps in a list.
#[derive(Debug)]
pub(super) struct Sets {
    /// Part of the hash of the entry in each place; 0 if the place is free.
    tags: Vec<u32>,
    /// Rank of the entry in each place: of a full set, the least goes first.
    ranks: Vec<u32>,
    /// Number of the entry in each place.
    numbers: Vec<u32>,
    len: u32,
}

/// Place for a new entry.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placed {
    pub place: usize,
    /// Number of the entry: the number of the entry that lost its place, or the length of the list.
    pub number: u32,
    /// Whether another entry lost its place.
    pub evicts: bool,
}

impl Sets {
    /// Bytes of a place.
    pub const PLACE: usize = 3 * size_of::<u32>();

    /// Makes the largest power of two of places that is at most `most`, but four sets at least.
    pub fn new(most: usize) -> Self {
        let places = 1 << most.clamp(4 * WAYS, 1 << 24).ilog2();
        Self {
            tags: vec![0; places],
            ranks: vec![0; places],
            numbers: vec![0; places],
            len: 0,
        }
    }

    /// Returns the number of places.
    pub fn places(&self) -> usize {
        self.tags.len()
    }

    /// Makes all places free.
    pub fn clear(&mut self) {
        if self.len > 0 {
            self.tags.fill(0);
            self.len = 0;
        }
    }

    /// Prefetches the set of a hash.
    #[inline]
    pub fn prefetch(&self, hash: u64) {
        let set = self.set(hash);
        prefetch(&self.tags, set);
        prefetch(&self.ranks, set);
    }

    /// Returns the places of a set with the tag of a hash: bit i is place i of the set.
    #[inline]
    fn tagged(&self, set: usize, hash: u64) -> u32 {
        let tags: &[u32; WAYS] = self.tags[set..]
            .first_chunk()
            .expect("a set has all its places");
        let tag = tag(hash);
        // Without a branch, so that all are compared at once.
        (0..).zip(tags).fold(0, |found, (place, other)| {
            found | u32::from(*other == tag) << place
        })
    }

    /// Returns the number of an entry that probably has this hash.
    #[inline]
    pub fn likely(&self, hash: u64) -> Option<usize> {
        let set = self.set(hash);
        let found = self.tagged(set, hash);
        (found != 0).then(|| self.numbers[set + found.trailing_zeros() as usize] as usize)
    }

    /// Returns place and number of the entry with this hash for which `is` holds.
    #[inline]
    pub fn find(&self, hash: u64, mut is: impl FnMut(usize) -> bool) -> Option<(usize, usize)> {
        let set = self.set(hash);
        let mut found = self.tagged(set, hash);
        while found != 0 {
            let place = set + found.trailing_zeros() as usize;
            let number = self.numbers[place] as usize;
            if is(number) {
                return Some((place, number));
            }
            found &= found - 1;
        }
        None
    }

    /// Puts a new entry into the set of a hash, in place of the least of the set if there is no room.
    pub fn put(&mut self, hash: u64) -> Placed {
        let set = self.set(hash);
        let places = set..set + WAYS;
        let placed = match places.clone().find(|place| self.tags[*place] == 0) {
            Some(place) => {
                self.numbers[place] = self.len;
                self.len += 1;
                Placed {
                    place,
                    number: self.len - 1,
                    evicts: false,
                }
            }
            None => {
                let least = places.min_by_key(|place| self.ranks[*place]);
                let place = least.expect("a set has places");
                Placed {
                    place,
                    number: self.numbers[place],
                    evicts: true,
                }
            }
        };
        self.tags[placed.place] = tag(hash);
        placed
    }

    /// Sets the rank of the entry in a place.
    #[inline]
    pub fn rank(&mut self, place: usize, rank: u32) {
        self.ranks[place] = rank;
    }

    /// First place of the set of a hash.
    #[inline]
    fn set(&self, hash: u64) -> usize {
        (hash as usize & (self.tags.len() / WAYS - 1)) * WAYS
    }
}

/// Part of a hash that is compared first; never 0.
fn tag(hash: u64) -> u32 {
    (hash >> 32) as u32 | 1
}
