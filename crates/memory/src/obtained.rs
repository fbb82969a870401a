//! Properties of a region's memory, read back from the kernel.

use crate::HUGE;
use crate::policy::Policy;
use crate::sys::{self, Memory};
use std::fmt;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// Properties of a region's memory at the time of the query. Its `Display` is one line, for instance
/// `64.0 MiB in 2 MiB pages (thp: 64.0 MiB huge), node 0`.
///
/// **Platform**: `/proc/self/smaps`, `numa_maps` and `pagemap`, see proc(5) and the kernel's admin-guide/mm/pagemap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Obtained {
    /// The policy that obtained the memory; never `auto`.
    pub policy: Policy,
    /// Requested bytes, before rounding up to pages.
    pub bytes: usize,
    /// Whether the pages also hold other values: a small region comes from the allocator, and the
    /// counts below that need pages of its own are zero.
    pub shared: bool,
    /// Size of the pages that make up most of the region, bytes: the real size in the kernel's page table, not the requested one.
    pub page_bytes: usize,
    /// Bytes in huge pages.
    pub huge_bytes: usize,
    /// Populated bytes; the others are populated at first touch. At most the bytes rounded up to
    /// pages.
    pub resident_bytes: usize,
    /// Bytes locked in memory.
    pub locked_bytes: usize,
    /// NUMA nodes of the pages; empty if they are not known, or if no page is populated yet.
    pub nodes: Vec<u32>,
    /// Whether the region is one piece of physical memory.
    pub contiguity: Contiguity,
    /// Policies that `auto` tried first, each with the reason why it was not available.
    pub stepped_down: Vec<(Policy, String)>,
    /// Reason why the kernel could not be queried; if present, the counts above are zero.
    pub unknown: Option<String>,
}

/// Whether a region is one piece of physical memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Contiguity {
    /// Verified page by page.
    Verified {
        /// Length of the longest run of pages whose order in physical memory is that in the region, bytes.
        longest_run: usize,
    },
    /// Not known, with the reason.
    Unverified(String),
}

impl Obtained {
    pub(crate) fn read(memory: &Memory, policy: Policy, stepped_down: &[(Policy, String)]) -> Self {
        let mut obtained = Self {
            policy,
            bytes: memory.len(),
            shared: !memory.is_mapped(),
            page_bytes: sys::page_bytes(),
            huge_bytes: 0,
            resident_bytes: 0,
            locked_bytes: 0,
            nodes: Vec::new(),
            contiguity: Contiguity::Unverified("it shares its pages".to_owned()),
            stepped_down: stepped_down.to_vec(),
            unknown: None,
        };
        if obtained.shared {
            return obtained;
        }
        match Pages::read(&place(memory)) {
            Ok(pages) => {
                obtained.page_bytes = pages.page_bytes();
                obtained.huge_bytes = pages.huge;
                obtained.resident_bytes = pages.resident;
                obtained.locked_bytes = pages.locked;
                obtained.nodes = nodes(memory).unwrap_or_default();
            }
            Err(error) => obtained.unknown = Some(format!("/proc/self/smaps: {error}")),
        }
        obtained.contiguity = match longest_run(memory) {
            Ok(longest_run) => Contiguity::Verified { longest_run },
            Err(why) => Contiguity::Unverified(why),
        };
        obtained
    }
}

impl fmt::Display for Obtained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Size(self.bytes))?;
        if let Some(why) = &self.unknown {
            return write!(f, " ({}; pages unknown: {why})", self.policy);
        }
        write!(
            f,
            " in {} pages ({}",
            PageSize(self.page_bytes),
            self.policy
        )?;
        if self.shared {
            return write!(f, ", beside other values)");
        }
        if self.huge_bytes > 0 {
            write!(f, ": {} huge", Size(self.huge_bytes))?;
        }
        f.write_str(")")?;
        if self.resident_bytes < self.bytes {
            write!(f, ", {} touched so far", Size(self.resident_bytes))?;
        }
        if self.locked_bytes > 0 {
            f.write_str(", locked")?;
        }
        for (place, node) in self.nodes.iter().enumerate() {
            write!(f, "{}{node}", if place == 0 { ", node " } else { " and " })?;
        }
        match &self.contiguity {
            _ if self.policy != Policy::Contiguous => {}
            Contiguity::Verified { longest_run } if *longest_run >= self.bytes => {
                f.write_str(", contiguous")?
            }
            Contiguity::Verified { longest_run } => {
                write!(f, ", longest physical run {}", Size(*longest_run))?
            }
            Contiguity::Unverified(why) => write!(f, ", contiguity unverified: {why}")?,
        }
        for (policy, why) in &self.stepped_down {
            write!(f, "; not {policy}: {why}")?;
        }
        Ok(())
    }
}

/// A number of bytes, printed in binary units.
pub(crate) struct Size(pub usize);

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
        match units.iter().find(|(shift, _)| self.0 >> shift > 0) {
            Some((shift, unit)) => {
                write!(f, "{:.1} {unit}", self.0 as f64 / (1u64 << shift) as f64)
            }
            None => write!(f, "{} bytes", self.0),
        }
    }
}

/// Size of a page, bytes: a power of two, so printed without decimals.
pub(crate) struct PageSize(pub usize);

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Size(self.0).to_string().replace(".0", ""))
    }
}

/// Populated bytes.
#[cfg(all(test, not(miri), not(loom)))]
pub(crate) fn resident_bytes(memory: &Memory) -> io::Result<usize> {
    Pages::read(&place(memory)).map(|pages| pages.resident)
}

/// Bytes in huge pages.
pub(crate) fn huge_bytes(memory: &Memory) -> io::Result<usize> {
    Pages::read(&place(memory)).map(|pages| pages.huge)
}

/// The range of addresses of a region.
fn place(memory: &Memory) -> Range<usize> {
    let base = memory.base().as_ptr().addr();
    base..base + memory.span()
}

/// Sums of `/proc/self/smaps` over a range of addresses.
#[derive(Debug, Default, PartialEq, Eq)]
struct Pages {
    kernel_page: usize,
    huge: usize,
    resident: usize,
    locked: usize,
}

impl Pages {
    fn read(place: &Range<usize>) -> io::Result<Self> {
        Ok(Self::parse(&fs::read_to_string("/proc/self/smaps")?, place))
    }

    /// Sums over the mappings that meet `place`. Regions do not share mappings, so no mapping is counted in part.
    fn parse(smaps: &str, place: &Range<usize>) -> Self {
        let mut pages = Self::default();
        let mut inside = false;
        for line in smaps.lines() {
            let mut words = line.split_ascii_whitespace();
            let Some(word) = words.next() else { continue };
            let Some(field) = word.strip_suffix(':') else {
                if let Some(range) = address_range(word) {
                    inside = range.start < place.end && place.start < range.end;
                }
                continue;
            };
            let kib = words.next().and_then(|number| number.parse::<usize>().ok());
            let Some(bytes) = kib.filter(|_| inside).map(|kib| kib << 10) else {
                continue;
            };
            match field {
                "KernelPageSize" => pages.kernel_page = bytes,
                "Rss" => pages.resident += bytes,
                "AnonHugePages" | "ShmemPmdMapped" => pages.huge += bytes,
                // Pages of the pool are included in no other count.
                "Private_Hugetlb" | "Shared_Hugetlb" => {
                    pages.resident += bytes;
                    pages.huge += bytes;
                }
                "Locked" => pages.locked += bytes,
                _ => {}
            }
        }
        pages
    }

    /// Size of the pages that make up most of the range. `KernelPageSize` does not show transparent huge pages.
    fn page_bytes(&self) -> usize {
        if self.kernel_page >= HUGE || self.huge * 2 <= self.resident {
            self.kernel_page
        } else {
            HUGE
        }
    }
}

/// Parses a range of addresses, `7f0000000000-7f0000200000`.
fn address_range(word: &str) -> Option<Range<usize>> {
    let (start, end) = word.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// The nodes of a region's pages: ` N0=512 N1=3` of its line in `/proc/self/numa_maps`.
fn nodes(memory: &Memory) -> Option<Vec<u32>> {
    let place = place(memory);
    let text = fs::read_to_string("/proc/self/numa_maps").ok()?;
    let line = text.lines().find(|line| {
        let start = line
            .split(' ')
            .next()
            .and_then(|word| usize::from_str_radix(word, 16).ok());
        start == Some(place.start)
    })?;
    let counts = line
        .split(' ')
        .filter_map(|word| word.strip_prefix('N')?.split_once('='));
    Some(counts.filter_map(|(node, _)| node.parse().ok()).collect())
}

/// Bytes of the longest run of neighbouring pages whose frames are also neighbours.
pub(crate) fn longest_run(memory: &Memory) -> Result<usize, String> {
    const PRESENT: u64 = 1 << 63;
    const FRAME: u64 = (1 << 55) - 1;
    let unreadable = |error: io::Error| format!("/proc/self/pagemap: {error}");
    let file = File::open("/proc/self/pagemap").map_err(unreadable)?;
    let page = sys::page_bytes();
    let place = place(memory);
    let (mut longest, mut run, mut previous) = (0, 0usize, None);
    let mut entries = [0u8; 8 * 4096];
    let mut at = place.start / page;
    let end = place.end.div_ceil(page);
    while at < end {
        let part = &mut entries[..8 * (end - at).min(4096)];
        file.read_exact_at(part, 8 * at as u64)
            .map_err(unreadable)?;
        for entry in part
            .as_chunks::<8>()
            .0
            .iter()
            .map(|bytes| u64::from_ne_bytes(*bytes))
        {
            let frame = (entry & PRESENT != 0).then_some(entry & FRAME);
            if frame == Some(0) {
                return Err(
                    "/proc/self/pagemap hides the frames, reading them needs CAP_SYS_ADMIN"
                        .to_owned(),
                );
            }
            let follows = frame.is_some() && frame == previous.map(|frame: u64| frame + 1);
            run = if follows {
                run + 1
            } else {
                usize::from(frame.is_some())
            };
            longest = longest.max(run);
            previous = frame;
        }
        at += part.len() / 8;
    }
    Ok((longest * page).min(memory.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
7f0000000000-7f0000400000 rw-p 00000000 00:00 0 
Size:               4096 kB
KernelPageSize:        4 kB
Rss:                3000 kB
AnonHugePages:      2048 kB
Locked:                4 kB
THPeligible:           1
VmFlags: rd wr mr mw me ac hg 
7f0000400000-7f0000600000 rw-p 00000000 00:0f 9  /anon_hugepage (deleted)
KernelPageSize:     2048 kB
Rss:                   0 kB
Private_Hugetlb:    2048 kB
";

    #[test]
    fn smaps_is_summed_over_the_region_and_no_further() {
        let first = Pages::parse(SMAPS, &(0x7f00_0000_0000..0x7f00_0040_0000));
        assert_eq!(
            first,
            Pages {
                kernel_page: 4096,
                huge: 2 << 20,
                resident: 3000 << 10,
                locked: 4096
            }
        );
        assert_eq!(first.page_bytes(), HUGE);
        let second = Pages::parse(SMAPS, &(0x7f00_0040_0000..0x7f00_0040_0001));
        assert_eq!(
            second,
            Pages {
                kernel_page: HUGE,
                huge: HUGE,
                resident: HUGE,
                locked: 0
            }
        );
        assert_eq!(
            Pages::parse(SMAPS, &(0x7f00_0060_0000..0x7f00_0070_0000)),
            Pages::default()
        );
        assert_eq!(
            Pages::parse(SMAPS, &(0x7f00_003f_f000..0x7f00_0040_1000)).huge,
            4 << 20
        );
    }

    #[test]
    fn one_line_says_it_all() {
        let huge = Obtained {
            policy: Policy::Thp,
            bytes: 64 << 20,
            shared: false,
            page_bytes: HUGE,
            huge_bytes: 64 << 20,
            resident_bytes: 64 << 20,
            locked_bytes: 0,
            nodes: vec![0],
            contiguity: Contiguity::Verified {
                longest_run: 4 << 20,
            },
            stepped_down: Vec::new(),
            unknown: None,
        };
        assert_eq!(
            huge.to_string(),
            "64.0 MiB in 2 MiB pages (thp: 64.0 MiB huge), node 0"
        );
        let part = Obtained {
            policy: Policy::Virtual,
            page_bytes: 4096,
            huge_bytes: 0,
            resident_bytes: 12 << 10,
            nodes: vec![0, 1],
            stepped_down: vec![(Policy::Thp, "off".to_owned())],
            ..huge.clone()
        };
        assert_eq!(
            part.to_string(),
            "64.0 MiB in 4 KiB pages (virtual), 12.0 KiB touched so far, node 0 and 1; not thp: off"
        );
        let run = Obtained {
            policy: Policy::Contiguous,
            ..huge.clone()
        };
        assert!(
            run.to_string()
                .ends_with(", node 0, longest physical run 4.0 MiB")
        );
        let small = Obtained {
            policy: Policy::Virtual,
            bytes: 500,
            page_bytes: 4096,
            shared: true,
            ..huge
        };
        assert_eq!(
            small.to_string(),
            "500 bytes in 4 KiB pages (virtual, beside other values)"
        );
    }
}
