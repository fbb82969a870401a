//! Count-Min written a second time, slowly: u64 cells, one vector per row, packet by packet.

use super::ours::{ROWS, SEED, WIDTH};
use super::stream::{FoldHash, Key};

/// The naive twin of weir's `Cms`.
pub struct Twin {
    rows: Vec<Vec<u64>>,
    hash: FoldHash,
}

impl Twin {
    /// Counts the stream, by the plain or the conservative rule.
    pub fn of(stream: &[Key], conservative: bool) -> Self {
        let mut twin = Self {
            rows: vec![vec![0; WIDTH]; ROWS],
            hash: FoldHash::new(SEED),
        };
        for key in stream {
            let places = twin.places(key);
            let raised = twin.least(&places) + 1;
            for (row, place) in twin.rows.iter_mut().zip(places) {
                row[place] = if conservative {
                    row[place].max(raised)
                } else {
                    row[place] + 1
                };
            }
        }
        twin
    }

    /// Smallest cell of a key.
    pub fn estimate(&self, key: &Key) -> u64 {
        self.least(&self.places(key))
    }

    fn least(&self, places: &[usize; ROWS]) -> u64 {
        self.rows
            .iter()
            .zip(places)
            .map(|(row, place)| row[*place])
            .min()
            .expect("there are rows")
    }

    /// Row i uses the upper 16 bits of a + i b, computed in 128 bits and reduced afterwards.
    fn places(&self, key: &Key) -> [usize; ROWS] {
        let modulus = 1u128 << 64;
        let a = u128::from(self.hash.hash(key)) * 0x9e37_79b9_7f4a_7c15 % modulus;
        let exchanged = (a >> 32) + ((a % (1 << 32)) << 32);
        let b = exchanged | 1;
        std::array::from_fn(|row| {
            ((a + row as u128 * b) % modulus / (modulus / WIDTH as u128)) as usize
        })
    }
}
