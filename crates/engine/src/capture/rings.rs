//! Check of the memory for rings against the free memory, before weir requests it from the kernel.

use super::namespaced::namespace_of;
use super::{Live, Settings};
use crate::name::Name;
use weir_io::sys::xdp;
use weir_memory::{Available, HUGE, Policy};

/// Memory that DPDK takes in addition to the rings of its ports, bytes.
const BESIDE_DPDK: u64 = 64 << 20;

#[cfg(feature = "dpdk")]
const _: () = assert!(BESIDE_DPDK == weir_io::dpdk::BESIDE as u64);

/// Numbers of rings of a run, by kind of memory; each ring has `--ring` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rings {
    /// Rings in pages of the kernel's choice.
    ordinary: u64,
    /// Rings that lie in pages of 2 MiB, if the pool has enough for the ring.
    huge: u64,
    /// Rings of DPDK. All lie in huge pages of any size, if the pools have enough.
    dpdk: u64,
}

impl Rings {
    /// Returns the number of rings in ordinary pages, and the ordinary memory that DPDK takes in
    /// addition to its rings, bytes.
    fn in_ordinary_pages(self, ring: u64, available: &Available) -> (u64, u64) {
        let pages = ring.div_ceil(HUGE as u64).max(1);
        let in_pool = self.huge.min(available.huge / HUGE as u64 / pages);
        let left = available.huge - in_pool * pages * HUGE as u64 + available.other_huge;
        let dpdk = ring.saturating_mul(self.dpdk).saturating_add(BESIDE_DPDK);
        let rings = self.ordinary + self.huge - in_pool;
        if self.dpdk == 0 || dpdk <= left {
            (rings, 0)
        } else {
            (rings + self.dpdk, BESIDE_DPDK)
        }
    }
}

/// Rings that take more than half of the free memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "rings of {ring} bytes each take {wanted} bytes, and at most half of the {free} that are free"
)]
pub struct TooLarge {
    /// Size of each ring, bytes.
    pub ring: u64,
    /// Whether there are several rings.
    pub several: bool,
    /// Size of all rings, bytes.
    pub wanted: u64,
    /// Free memory, bytes.
    pub free: u64,
    /// Whether the free memory is a limit of this control group.
    pub grouped: bool,
    /// Largest size of each ring, bytes.
    pub most: u64,
}

/// Refuses rings that take more than half of the free memory, unless the settings force them.
pub fn check(sources: &[Name], settings: &Settings) -> Result<(), TooLarge> {
    if settings.ring_force {
        return Ok(());
    }
    let Some(available) = Available::now() else {
        return Ok(());
    };
    let mut rings = Rings::default();
    for source in sources {
        match Live::of(source) {
            Some(Live::AfPacket(_)) => rings.ordinary += 1,
            Some(Live::AfXdp(name, queue)) => {
                let queues = if queue.is_some() {
                    1
                } else {
                    u64::from(queues_of(name))
                };
                match settings.pages {
                    Policy::Auto => rings.huge += queues,
                    // These pages come from a pool that was filled beforehand, and that refuses any excess itself.
                    Policy::Hugetlb2M | Policy::Hugetlb1G => {}
                    Policy::Thp | Policy::Contiguous | Policy::Virtual => rings.ordinary += queues,
                }
            }
            Some(Live::Dpdk(_)) => rings.dpdk += 1,
            None => {}
        }
    }
    match refusal(settings.ring, rings, &available) {
        Some(why) => Err(why),
        None => Ok(()),
    }
}

/// Number of receive queues of an interface; 1 if its namespace cannot be entered, which ends the run later.
fn queues_of(name: &str) -> u32 {
    match namespace_of(name) {
        Ok(Some((namespace, bare))) => namespace.within(|| xdp::queues_of(bare)).unwrap_or(1),
        _ => xdp::queues_of(name),
    }
}

/// Returns the refusal with the largest possible size, if rings of `ring` bytes each are too large.
fn refusal(ring: u64, rings: Rings, available: &Available) -> Option<TooLarge> {
    let most = most(available);
    let (count, beside) = rings.in_ordinary_pages(ring, available);
    let wanted = ring.saturating_mul(count).saturating_add(beside);
    let each = || most.saturating_sub(beside) / count;
    let Available { bytes, grouped, .. } = *available;
    (wanted > most).then(|| TooLarge {
        ring,
        several: count > 1,
        wanted,
        free: bytes,
        grouped,
        most: each(),
    })
}

/// Returns the limit for all rings of a run, bytes.
pub fn most(available: &Available) -> u64 {
    available.bytes / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const NONE: Rings = Rings {
        ordinary: 0,
        huge: 0,
        dpdk: 0,
    };

    fn available(mib: u64, huge_mib: u64) -> Available {
        Available {
            bytes: mib * MIB,
            grouped: false,
            huge: huge_mib * MIB,
            other_huge: 0,
        }
    }

    #[test]
    fn half_of_what_is_free_is_the_limit() {
        let [one, three] = [1, 3].map(|ordinary| Rings { ordinary, ..NONE });
        assert_eq!(refusal(500 * MIB, one, &available(1000, 0)), None);
        let free = 1000 * MIB;
        let why = TooLarge {
            ring: 501 * MIB,
            several: false,
            wanted: 501 * MIB,
            free,
            grouped: false,
            most: 500 * MIB,
        };
        assert_eq!(refusal(501 * MIB, one, &available(1000, 0)), Some(why));
        assert_eq!(refusal(166 * MIB, three, &available(1000, 0)), None);
        let why = refusal(
            100 << 30,
            three,
            &Available {
                grouped: true,
                ..available(1000, 0)
            },
        )
        .unwrap();
        assert_eq!(
            (why.several, why.wanted, why.grouped, why.most),
            (true, 300 << 30, true, 500 * MIB / 3)
        );
        assert!(refusal(u64::MAX, three, &available(1000, 0)).is_some());
        assert_eq!(
            refusal(1 << 10, one, &available(0, 0)).map(|why| why.most),
            Some(0)
        );
    }

    #[test]
    fn huge_pages_are_apart() {
        let two = Rings { huge: 2, ..NONE };
        assert_eq!(refusal(500 * MIB, two, &available(100, 1000)), None);
        // If the pool has no room for one of the rings, that ring is ordinary memory.
        assert_eq!(
            refusal(501 * MIB, two, &available(100, 1000)).map(|why| why.wanted),
            Some(501 * MIB)
        );
        assert_eq!(
            refusal(501 * MIB, two, &available(100, 501)).map(|why| why.most),
            Some(25 * MIB)
        );
        // A packet socket's ring never lies in huge pages.
        let why = refusal(
            500 * MIB,
            Rings { ordinary: 1, ..two },
            &available(100, 1000),
        )
        .unwrap();
        assert_eq!(why.most, 50 * MIB);
    }

    /// A ring of AF_XDP never lies in pages of 1 GiB. If the pool of 2 MiB pages has no room, the ring is ordinary memory.
    #[test]
    fn pages_of_other_sizes_are_for_dpdk_alone() {
        let gigantic = Available {
            other_huge: 24 << 30,
            ..available(1000, 0)
        };
        let why = refusal(20 << 30, Rings { huge: 1, ..NONE }, &gigantic).unwrap();
        assert_eq!(
            (why.several, why.wanted, why.free),
            (false, 20 << 30, 1000 * MIB)
        );
        let dpdk = |dpdk| Rings { dpdk, ..NONE };
        assert_eq!(refusal(20 << 30, dpdk(1), &gigantic), None);
        // DPDK needs more memory in addition to its rings, in pages of the same kind.
        assert_eq!(
            refusal(12 << 30, dpdk(2), &gigantic).map(|why| why.several),
            Some(true)
        );
        assert_eq!(refusal((12 << 30) - 32 * MIB, dpdk(2), &gigantic), None);
        assert_eq!(
            refusal(436 * MIB, dpdk(1), &available(1000, 499)),
            None,
            "64 MiB more are half of what is free"
        );
        assert_eq!(
            refusal(437 * MIB, dpdk(1), &available(1000, 499)).map(|why| why.most),
            Some(436 * MIB)
        );
        // DPDK gets the huge pages left by the rings of AF_XDP.
        let both = Rings {
            huge: 1,
            dpdk: 1,
            ordinary: 0,
        };
        assert_eq!(refusal(100 * MIB, both, &available(0, 264)), None);
        assert!(refusal(100 * MIB, both, &available(0, 263)).is_some());
    }
}
