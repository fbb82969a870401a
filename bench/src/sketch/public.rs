//! Public libraries, each with the fastest of its interfaces, and the memory of weir's sketch of the same kind.

use super::counter::{Counter, Entry, Kind};
use super::ours::{ROWS, WIDTH};
use super::stream::Key;
use asap_sketchlib::{CountMinSketch as AsapCms, DataInput, FastPath, RegularPath, Vector2D};
use datasketches::countmin::CountMinSketch as ApacheCms;
use datasketches::frequencies::FrequentItemsSketch;
use datasketches::hash::value::raw_bytes;
use heavykeeper::{BucketedTopK, CuckooTopK, TopK};
use probabilistic_collections::SipHasherBuilder;
use probabilistic_collections::count_min_sketch::{
    CountMinSketch as ProbabilisticCms, CountMinStrategy,
};
use std::hash::{Hash, Hasher};
use streaming_algorithms::CountMinSketch as StreamingCms;

/// A key that hashes as its 13 bytes, without the length that std writes before the bytes of an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tuple(pub Key);

impl Hash for Tuple {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(&self.0);
    }
}

/// Flows that heavykeeper keeps by name, and its decay: the values of its README for 5-tuples.
const TOP: usize = 1000;
const DECAY: f64 = 0.95;

/// Initial capacity of a hash map: all flows of the stream's universe, so that the map never grows.
const ROOM: usize = 1_000_000;

pub fn entries() -> Vec<Entry> {
    const INSIDE: &str = "key read, its own hash, update";
    let entry = |name, kind, make| Entry {
        name,
        kind,
        ours: false,
        inside: INSIDE,
        make,
    };
    vec![
        entry(
            "asap_sketchlib CMS i32 4 x 2^16, FastPath",
            Kind::CountMin,
            || {
                Box::new(AsapCms::<Vector2D<i32>, FastPath>::with_dimensions(
                    ROWS, WIDTH,
                ))
            },
        ),
        entry(
            "asap_sketchlib CMS i32 4 x 2^16, RegularPath",
            Kind::CountMin,
            || {
                Box::new(AsapCms::<Vector2D<i32>, RegularPath>::with_dimensions(
                    ROWS, WIDTH,
                ))
            },
        ),
        entry("datasketches CountMin i64 4 x 2^15", Kind::CountMin, || {
            Box::new(
                ApacheCms::<i64>::new(ROWS as u8, (WIDTH / 2) as u32).expect("a shape it takes"),
            )
        }),
        entry(
            "streaming_algorithms CMS u32 4 x 2^16, conservative",
            Kind::CountMin,
            || {
                // The library computes its rows from the probability, and its width from the tolerance.
                let (probability, tolerance) = (0.94, 2.0 / WIDTH as f64);
                Box::new(StreamingCms::<Tuple, u32>::new(probability, tolerance, ()))
            },
        ),
        entry(
            "probabilistic-collections CMS i64 4 x 2^15",
            Kind::CountMin,
            || {
                // The library's own hash, with fixed seeds, so that rounds can be compared.
                let hashers = [
                    SipHasherBuilder::from_seed(0, 0),
                    SipHasherBuilder::from_seed(1, 1),
                ];
                Box::new(ProbabilisticCms::<CountMinStrategy, Tuple>::with_hashers(
                    ROWS,
                    WIDTH / 2,
                    hashers,
                ))
            },
        ),
        entry("datasketches frequent items, map 2^15", Kind::Heavy, || {
            Box::new(FrequentItemsSketch::<Tuple>::new(1 << 15).expect("a size it takes"))
        }),
        entry("heavykeeper TopK, 2 x 2^14", Kind::Heavy, || {
            Box::new(TopK::<Tuple>::new(TOP, 1 << 14, 2, DECAY))
        }),
        entry("heavykeeper BucketedTopK, 2^13 x 4", Kind::Heavy, || {
            Box::new(BucketedTopK::<Tuple>::new(TOP, 1 << 13, 4, DECAY))
        }),
        entry(
            "heavykeeper CuckooTopK, 2^13 x (1 + 4)",
            Kind::Heavy,
            || Box::new(CuckooTopK::<Tuple>::new(TOP, 1 << 13, 4, DECAY)),
        ),
        entry("std HashMap (SipHash)", Kind::Exact, || {
            Box::new(std::collections::HashMap::<Tuple, u64>::with_capacity(ROOM))
        }),
        entry("hashbrown HashMap (foldhash)", Kind::Exact, || {
            Box::new(hashbrown::HashMap::<Tuple, u64>::with_capacity(ROOM))
        }),
    ]
}

/// Implements the counter for both update modes of the library, which share no trait.
macro_rules! asap {
    ($way:ty) => {
        impl Counter for AsapCms<Vector2D<i32>, $way> {
            fn feed(&mut self, stream: &[Key]) {
                for key in stream {
                    self.update(&DataInput::Bytes(key));
                }
            }

            fn estimate(&self, key: &Key) -> u64 {
                AsapCms::<Vector2D<i32>, $way>::estimate(self, &DataInput::Bytes(key)) as u64
            }

            fn bytes(&self) -> usize {
                self.memory_bytes()
            }
        }
    };
}

asap!(FastPath);
asap!(RegularPath);

impl Counter for ApacheCms<i64> {
    fn feed(&mut self, stream: &[Key]) {
        for key in stream {
            self.update(raw_bytes::from_slice(key));
        }
    }

    fn estimate(&self, key: &Key) -> u64 {
        ApacheCms::estimate(self, raw_bytes::from_slice(key)) as u64
    }

    fn bytes(&self) -> usize {
        self.estimated_size()
    }
}

impl Counter for StreamingCms<Tuple, u32> {
    fn feed(&mut self, stream: &[Key]) {
        for key in stream {
            self.push(&Tuple(*key), &1);
        }
    }

    fn estimate(&self, key: &Key) -> u64 {
        self.get(&Tuple(*key)).into()
    }

    fn bytes(&self) -> usize {
        // The library does not tell its memory; a table of this shape takes so much.
        ROWS * WIDTH * size_of::<u32>()
    }
}

impl Counter for ProbabilisticCms<CountMinStrategy, Tuple> {
    fn feed(&mut self, stream: &[Key]) {
        for key in stream {
            self.insert(&Tuple(*key), 1);
        }
    }

    fn estimate(&self, key: &Key) -> u64 {
        self.count(&Tuple(*key)) as u64
    }

    fn bytes(&self) -> usize {
        self.rows() * self.cols() * size_of::<i64>()
    }
}

impl Counter for FrequentItemsSketch<Tuple> {
    fn feed(&mut self, stream: &[Key]) {
        for key in stream {
            self.update(Tuple(*key));
        }
    }

    fn estimate(&self, key: &Key) -> u64 {
        self.lower_bound(&Tuple(*key))
    }

    fn bounds(&self, key: &Key) -> Option<(u64, u64)> {
        Some((
            self.lower_bound(&Tuple(*key)),
            self.upper_bound(&Tuple(*key)),
        ))
    }

    fn names(&self, key: &Key) -> bool {
        self.lower_bound(&Tuple(*key)) > 0
    }

    fn bytes(&self) -> usize {
        self.estimated_size()
    }
}

/// Implements the counter for the three sketches of the library, which share no trait.
macro_rules! heavykeeper {
    ($sketch:ty) => {
        impl Counter for $sketch {
            fn feed(&mut self, stream: &[Key]) {
                for key in stream {
                    self.add(&Tuple(*key), 1);
                }
            }

            fn estimate(&self, key: &Key) -> u64 {
                self.count(&Tuple(*key))
            }

            fn names(&self, key: &Key) -> bool {
                self.contains_top_k(&Tuple(*key))
            }

            fn bytes(&self) -> usize {
                self.mem_bytes(|_| 0)
            }
        }
    };
}

heavykeeper!(TopK<Tuple>);
heavykeeper!(BucketedTopK<Tuple>);
heavykeeper!(CuckooTopK<Tuple>);

impl Counter for std::collections::HashMap<Tuple, u64> {
    fn feed(&mut self, stream: &[Key]) {
        for key in stream {
            *self.entry(Tuple(*key)).or_insert(0) += 1;
        }
    }

    fn estimate(&self, key: &Key) -> u64 {
        self.get(&Tuple(*key)).copied().unwrap_or(0)
    }

    fn bytes(&self) -> usize {
        // Seven of eight places are capacity; each place has a control byte.
        self.capacity() / 7 * 8 * (size_of::<(Tuple, u64)>() + 1)
    }
}

impl Counter for hashbrown::HashMap<Tuple, u64> {
    fn feed(&mut self, stream: &[Key]) {
        for key in stream {
            *self.entry(Tuple(*key)).or_insert(0) += 1;
        }
    }

    fn estimate(&self, key: &Key) -> u64 {
        self.get(&Tuple(*key)).copied().unwrap_or(0)
    }

    fn bytes(&self) -> usize {
        self.allocation_size()
    }
}
