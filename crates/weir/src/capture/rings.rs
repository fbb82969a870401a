//! The memory of rings, held against what is free before the kernel is asked for it.

use super::{Named, queue_of};
use crate::cli::LiveArgs;
use anyhow::bail;
use weir_engine::name::Name;
use weir_io::sys::xdp;
use weir_memory::{Available, HUGE, Policy};

/// What DPDK takes beside the rings of its ports, bytes.
const BESIDE_DPDK: u64 = 64 << 20;

#[cfg(feature = "dpdk")]
const _: () = assert!(BESIDE_DPDK == weir_io::dpdk::BESIDE as u64);

/// Rings of a run, each of `--ring` bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Rings {
    /// In pages of the kernel's choice.
    ordinary: u64,
    /// Each in pages of 2 MiB if their pool has enough for it.
    huge: u64,
    /// Of DPDK: all in huge pages of any size if their pools have enough.
    dpdk: u64,
}

impl Rings {
    /// How many of them take ordinary pages, and what DPDK takes of these beside its rings, bytes.
    fn in_ordinary_pages(self, ring: u64, available: &Available) -> (u64, u64) {
        let pages = ring.div_ceil(HUGE as u64).max(1);
        let in_pool = self.huge.min(available.huge / HUGE as u64 / pages);
        let left = available.huge - in_pool * pages * HUGE as u64 + available.other_huge;
        let dpdk = ring.saturating_mul(self.dpdk).saturating_add(BESIDE_DPDK);
        let rings = self.ordinary + self.huge - in_pool;
        if self.dpdk == 0 || dpdk <= left { (rings, 0) } else { (rings + self.dpdk, BESIDE_DPDK) }
    }
}

/// Refuses rings that take more than half of the memory that is free, unless `--ring-force` asks for them.
pub fn check(sources: &[Name], live: &LiveArgs) -> anyhow::Result<()> {
    if live.ring_force {
        return Ok(());
    }
    let Some(available) = Available::now() else { return Ok(()) };
    let mut rings = Rings::default();
    for source in sources {
        match Named::of(source.utf8()) {
            Some(Named::AfPacket(_)) => rings.ordinary += 1,
            Some(Named::AfXdp(text)) => {
                let queues = match queue_of(text) {
                    (_, Some(_)) => 1,
                    (name, None) => u64::from(xdp::queues_of(name)),
                };
                match live.ring_pages {
                    Policy::Auto => rings.huge += queues,
                    // Of a pool that was filled beforehand, and refuses what it does not have.
                    Policy::Hugetlb2M | Policy::Hugetlb1G => {}
                    Policy::Thp | Policy::Contiguous | Policy::Virtual => rings.ordinary += queues,
                }
            }
            Some(Named::Dpdk(_)) => rings.dpdk += 1,
            None => {}
        }
    }
    match refusal(live.ring, rings, &available) {
        Some(why) => bail!(why),
        None => Ok(()),
    }
}

/// Why rings of `ring` bytes each are too much, and what would do.
fn refusal(ring: u64, rings: Rings, available: &Available) -> Option<String> {
    let most = most(available);
    let (count, beside) = rings.in_ordinary_pages(ring, available);
    let wanted = ring.saturating_mul(count).saturating_add(beside);
    if wanted <= most {
        return None;
    }
    let (rings, free) = (if count == 1 { "a ring takes" } else { "the rings together take" }, size(available.bytes));
    let place = if available.grouped { " to this control group" } else { "" };
    Some(format!(
        "--ring {}: {rings} {}, and at most half of the {free} that are free{place}: --ring {} would do, --ring-force takes \
         more",
        size(ring),
        size(wanted),
        size(most.saturating_sub(beside) / count)
    ))
}

/// Bytes that all rings of a run may take.
pub fn most(available: &Available) -> u64 {
    available.bytes / 2
}

/// A size as an option takes it, rounded down.
fn size(bytes: u64) -> String {
    match bytes {
        _ if bytes >= 1 << 30 && bytes.is_multiple_of(1 << 30) => format!("{}G", bytes >> 30),
        _ if bytes >= 1 << 20 => format!("{}M", bytes >> 20),
        _ => format!("{}k", bytes >> 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const NONE: Rings = Rings { ordinary: 0, huge: 0, dpdk: 0 };

    fn available(mib: u64, huge_mib: u64) -> Available {
        Available { bytes: mib * MIB, grouped: false, huge: huge_mib * MIB, other_huge: 0 }
    }

    #[test]
    fn half_of_what_is_free_is_the_limit() {
        let [one, three] = [1, 3].map(|ordinary| Rings { ordinary, ..NONE });
        assert_eq!(refusal(500 * MIB, one, &available(1000, 0)), None);
        assert_eq!(
            refusal(501 * MIB, one, &available(1000, 0)).as_deref(),
            Some(
                "--ring 501M: a ring takes 501M, and at most half of the 1000M that are free: --ring 500M would do, --ring-force takes more"
            )
        );
        assert_eq!(refusal(166 * MIB, three, &available(1000, 0)), None);
        let why = refusal(100 << 30, three, &Available { grouped: true, ..available(1000, 0) }).unwrap();
        assert!(why.starts_with("--ring 100G: the rings together take 300G, and at most half of the 1000M that are free to this control group: --ring 166M would do"), "{why}");
        assert!(refusal(u64::MAX, three, &available(1000, 0)).is_some());
        assert!(refusal(1 << 10, one, &available(0, 0)).unwrap().contains("--ring 0k would do"));
    }

    #[test]
    fn huge_pages_are_apart() {
        let two = Rings { huge: 2, ..NONE };
        assert_eq!(refusal(500 * MIB, two, &available(100, 1000)), None);
        // One of them finds no room in the pool; neither does.
        assert!(refusal(501 * MIB, two, &available(100, 1000)).unwrap().contains("a ring takes 501M"));
        assert!(refusal(501 * MIB, two, &available(100, 501)).unwrap().contains("--ring 25M would do"));
        // A packet socket's ring never lies in them.
        assert!(
            refusal(500 * MIB, Rings { ordinary: 1, ..two }, &available(100, 1000)).unwrap().contains("--ring 50M")
        );
    }

    /// A ring of AF_XDP never lies in pages of 1 GiB, and what it does not find in pages of 2 MiB is ordinary memory.
    #[test]
    fn pages_of_other_sizes_are_for_dpdk_alone() {
        let gigantic = Available { other_huge: 24 << 30, ..available(1000, 0) };
        let why = refusal(20 << 30, Rings { huge: 1, ..NONE }, &gigantic).unwrap();
        assert!(why.starts_with("--ring 20G: a ring takes 20G, and at most half of the 1000M"), "{why}");
        let dpdk = |dpdk| Rings { dpdk, ..NONE };
        assert_eq!(refusal(20 << 30, dpdk(1), &gigantic), None);
        // Beside its rings it needs some, in pages of whichever kind.
        assert_eq!(
            refusal(12 << 30, dpdk(2), &gigantic).map(|why| why.contains("the rings together take")),
            Some(true)
        );
        assert_eq!(refusal((12 << 30) - 32 * MIB, dpdk(2), &gigantic), None);
        assert_eq!(refusal(436 * MIB, dpdk(1), &available(1000, 499)), None, "64 MiB more are half of what is free");
        assert!(refusal(437 * MIB, dpdk(1), &available(1000, 499)).unwrap().contains("--ring 436M would do"));
        // What the rings of AF_XDP leave.
        let both = Rings { huge: 1, dpdk: 1, ordinary: 0 };
        assert_eq!(refusal(100 * MIB, both, &available(0, 264)), None);
        assert!(refusal(100 * MIB, both, &available(0, 263)).is_some());
    }
}
