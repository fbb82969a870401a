//! What can be asked for.

use std::fmt;
use std::str::FromStr;

/// Which pages a region is made of. Its names, as users type them, are those of [`Policy::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The first that works of `hugetlb`, `thp`, `virtual`, for a region of at least one huge page; a smaller one gets
    /// `virtual`. Never an error for want of pages of some kind.
    #[default]
    Auto,
    /// Pages of 2 MiB from the pool that the administrator set aside (`MAP_HUGETLB`). The size is rounded up to pages.
    Hugetlb2M,
    /// The same with pages of 1 GiB.
    Hugetlb1G,
    /// Transparent huge pages of 2 MiB (`MADV_HUGEPAGE`). The size is rounded up to pages.
    Thp,
    /// One run of physical memory: transparent huge pages, tried again until `/proc/self/pagemap` shows that they lie side by
    /// side, then pages of the 1 GiB pool if there are any. Where the file may not be read, the region is given as it comes
    /// and says so. The kernel hands out runs of up to 4 MiB; longer ones are luck, or the pool.
    Contiguous,
    /// Pages of 4 KiB only (`MADV_NOHUGEPAGE`).
    Virtual,
}

impl Policy {
    /// Every policy, with its name.
    pub const ALL: [(Policy, &'static str); 6] = [
        (Policy::Auto, "auto"),
        (Policy::Hugetlb2M, "hugetlb"),
        (Policy::Hugetlb1G, "hugetlb-1g"),
        (Policy::Thp, "thp"),
        (Policy::Contiguous, "contiguous"),
        (Policy::Virtual, "virtual"),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(policy, _)| *policy == self);
        found.map(|(_, name)| *name).expect("ALL holds every policy")
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A word that is no policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no page policy; there are auto, hugetlb, hugetlb-1g, thp, contiguous, virtual")]
pub struct UnknownPolicy(pub String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found.map(|(policy, _)| *policy).ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

/// What a region shall be like. The default is what tables want: `auto`, any node, filled on demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Its pages. Any policy but `auto` is forced: what cannot be had is an error.
    pub pages: Policy,
    /// The NUMA node all of it must lie on (`mbind` with `MPOL_BIND`).
    pub node: Option<u32>,
    /// Has every page there at once instead of at its first touch. Off by default: weir must start in milliseconds, and a
    /// short run touches little of its tables; figures in the README. Forced huge pages are always populated, since only
    /// pages that are there are known to be huge, and `hugetlb` always, since its pool may be empty at the first touch.
    pub populate: bool,
    /// Keeps it in memory (`mlock`), which populates it too.
    pub lock: bool,
    /// The first byte lies at a multiple of this power of two, up to 2 MiB; 0 and smaller ones mean 64, a cache line.
    pub align: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line_in_both_directions() {
        let expected = ["auto", "hugetlb", "hugetlb-1g", "thp", "contiguous", "virtual"];
        assert_eq!(Policy::ALL.map(|(policy, _)| policy.to_string()), expected);
        assert_eq!("hugetlb-1g".parse(), Ok(Policy::Hugetlb1G));
        assert_eq!("hugetlb".parse(), Ok(Policy::Hugetlb2M));
        assert_eq!(format!("[{:>8}]", Policy::Thp), "[     thp]");
        let error = "Thp".parse::<Policy>().unwrap_err().to_string();
        assert!(error.contains("'Thp'") && expected.iter().all(|name| error.contains(name)), "{error}");
    }
}
