//! Properties of a request for memory.

use std::fmt;
use std::str::FromStr;

/// Kind of pages of a region. The names that users type are those of [`Policy::ALL`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Policy {
    /// The first available of `hugetlb`, `thp`, `virtual`, for a region of at least one huge page; a smaller region gets
    /// `virtual`. Never an error because pages of some kind are missing.
    #[default]
    Auto,
    /// Pages of 2 MiB from the pool that the administrator set aside (`MAP_HUGETLB`). The size is rounded up to pages.
    Hugetlb2M,
    /// Pages of 1 GiB from the pool that the administrator set aside. The size is rounded up to pages.
    Hugetlb1G,
    /// Transparent huge pages of 2 MiB (`MADV_HUGEPAGE`). The size is rounded up to pages.
    Thp,
    /// A single run of physical memory. Transparent huge pages are tried until `/proc/self/pagemap` shows that they are
    /// contiguous, then pages of the 1 GiB pool if there are any. If the file cannot be read, the first region is returned,
    /// and reported as unverified. The kernel hands out runs of up to 4 MiB; longer runs need luck, or the pool.
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

    /// Name of the policy.
    pub fn name(self) -> &'static str {
        let found = Self::ALL.iter().find(|(policy, _)| *policy == self);
        found
            .map(|(_, name)| *name)
            .expect("ALL holds every policy")
    }
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A text that does not name any policy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is not a page policy; there are auto, hugetlb, hugetlb-1g, thp, contiguous, virtual"
)]
pub struct UnknownPolicy(pub String);

impl FromStr for Policy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        let found = Self::ALL.iter().find(|(_, name)| *name == text);
        found
            .map(|(policy, _)| *policy)
            .ok_or_else(|| UnknownPolicy(text.to_owned()))
    }
}

/// Requested properties of a region. The default suits tables: `auto`, any node, populated on demand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Pages of the region. Any policy but `auto` is forced: if its pages are not available, this is an error.
    pub pages: Policy,
    /// NUMA node for the whole region (`mbind` with `MPOL_BIND`).
    pub node: Option<u32>,
    /// Whether every page is populated at once instead of at its first touch. Off by default, because weir must start in
    /// milliseconds, and a short run touches little of its tables; figures in the README. Forced huge pages are always
    /// populated, because only populated pages are known to be huge. `hugetlb` is always populated, because its pool may be
    /// empty at the first touch.
    pub populate: bool,
    /// Whether the region is locked in memory (`mlock`), which also populates it.
    pub lock: bool,
    /// Alignment of the first byte, bytes: a power of two, up to 2 MiB. 0 and values below 64 mean 64, a cache line.
    pub align: usize,
    /// Whether a child process shares the region, so that what the kernel or a device writes there reaches the child. Off by default:
    /// huge pages of shared memory need `shmem_enabled`.
    pub shared: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_command_line_in_both_directions() {
        let expected = [
            "auto",
            "hugetlb",
            "hugetlb-1g",
            "thp",
            "contiguous",
            "virtual",
        ];
        assert_eq!(Policy::ALL.map(|(policy, _)| policy.to_string()), expected);
        assert_eq!("hugetlb-1g".parse(), Ok(Policy::Hugetlb1G));
        assert_eq!("hugetlb".parse(), Ok(Policy::Hugetlb2M));
        assert_eq!(format!("[{:>8}]", Policy::Thp), "[     thp]");
        let error = "Thp".parse::<Policy>().unwrap_err().to_string();
        assert!(
            error.contains("'Thp'") && expected.iter().all(|name| error.contains(name)),
            "{error}"
        );
    }
}
