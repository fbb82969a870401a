//! Recent flows: a repeated packet of a flow tells nothing new about pairs of addresses and ports.

use crate::Observation;

/// Hashes of flows, one in each place: the latest flow of the place.
#[derive(Debug)]
pub(crate) struct Recent(Box<[u64]>);

/// Number of places: a part of the second-level cache.
const PLACES: usize = 1 << 14;

impl Recent {
    pub fn new() -> Self {
        let mut recent = Self(vec![0; PLACES].into());
        recent.clear();
        recent
    }

    /// Forgets all flows.
    pub fn clear(&mut self) {
        // No hash of the place.
        (0..).zip(&mut self.0).for_each(|(at, place)| *place = !at);
    }

    /// Returns the mask of the packets, at most 64, that may tell something new. Each other packet repeats a packet of its flow, and
    /// neither of both is a refusal.
    ///
    /// **Error bound**: two flows with the same hash of 64 bits count as one.
    #[inline]
    pub fn fresh(&mut self, packets: &[Observation]) -> u64 {
        let mut fresh = 0;
        for (i, packet) in packets.iter().enumerate() {
            let place = &mut self.0[packet.hash as usize % PLACES];
            if packet.refuses() {
                fresh |= 1 << i;
            } else if *place != packet.hash {
                *place = packet.hash;
                fresh |= 1 << i;
            }
        }
        fresh
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Kind;

    fn packet(hash: u64) -> Observation {
        let mut packet = Observation::mark(hash);
        packet.arrived(Kind::Flow, 60, 0);
        packet
    }

    #[test]
    fn repeated_packets_are_not_fresh() {
        let mut recent = Recent::new();
        let (one, other) = (packet(7), packet(7 + PLACES as u64));
        assert_eq!(recent.fresh(&[one, one, packet(0), one, packet(0)]), 0b101);
        assert_eq!(recent.fresh(&[other, other, one]), 0b101, "of one place");
        let mut refusal = one;
        refusal.refuse(None);
        assert_eq!(recent.fresh(&[one, refusal, refusal, one]), 0b110);
        recent.clear();
        assert_eq!(recent.fresh(&[refusal, one, one]), 0b011);
        let all: Vec<_> = (0..64).map(|i| packet(!i)).collect();
        assert_eq!(recent.fresh(&all), u64::MAX);
    }
}
