//! A region: zeroed memory obtained for a request.

use crate::available::Available;
use crate::error::Error;
use crate::obtained::{self, Obtained};
use crate::policy::{Policy, Request};
use crate::pool::Pool;
use crate::sys::{self, Memory};
use crate::{GIGANTIC, HUGE};
use std::fs;
use std::io;
use std::path::Path;
use std::ptr::NonNull;

/// Size, bytes, below which `auto` takes memory from the allocator, because own pages cost system
/// calls and a page fault without any gain. Miri knows no page policies.
const OWN_PAGES: usize = if cfg!(miri) { usize::MAX } else { 64 << 10 };

/// Alignment of every region, bytes: a cache line.
const LINE: usize = 64;

/// Number of tries of `contiguous`.
const TRIES: usize = 8;

const THP_MODE: &str = "/sys/kernel/mm/transparent_hugepage/enabled";

/// The same for memory that a child process shares.
const SHARED_THP_MODE: &str = "/sys/kernel/mm/transparent_hugepage/shmem_enabled";

/// Zeroed memory in a mapping of its own, made of the requested pages, given back when dropped.
///
/// Two regions never share a mapping, so [`Region::obtained`] describes this region alone. If a region is made of pages, a write
/// beyond its end hits an inaccessible page (`hugetlb` excepted).
///
/// **Cost**: three to six system calls to make, plus population if requested. **Threads**: owned memory, may be sent.
#[derive(Debug)]
pub struct Region {
    memory: Memory,
    policy: Policy,
    stepped_down: Vec<(Policy, String)>,
}

impl Region {
    /// `len` zeroed bytes.
    ///
    /// `auto` takes `hugetlb` if three conditions hold: the region has at least 2 MiB, rounding up to pages wastes an eighth
    /// at most, and the pool has enough free pages. Otherwise it takes `thp`, with the end in small pages, and otherwise
    /// `virtual`. Below 2 MiB it takes ordinary pages. Below 64 KiB it takes memory from the allocator, unless node or lock
    /// are requested. A length of zero is never an error. Policies that were not available are listed in
    /// [`Obtained::stepped_down`].
    ///
    /// **Errors**: a forced policy, node or lock that is not available. **Platform**: Linux; `MADV_POPULATE_WRITE` (5.14) is
    /// used if the kernel has it.
    pub fn zeroed(len: usize, request: &Request) -> Result<Self, Error> {
        if !request.align.max(1).is_power_of_two() || request.align > HUGE {
            return Err(Error::Align(request.align));
        }
        if len > isize::MAX as usize - GIGANTIC {
            return Err(Error::NoMemory(len));
        }
        if let Some(node) = request.node {
            check_node(node)?;
        }
        if request.pages == Policy::Auto {
            return auto(len, request);
        }
        if len == 0 {
            return auto(len, request);
        }
        let memory = match request.pages {
            Policy::Hugetlb2M | Policy::Hugetlb1G => pool(len, request.pages, request)?,
            Policy::Thp => forced_thp(len, request)?,
            Policy::Contiguous => contiguous(len, request)?,
            Policy::Auto | Policy::Virtual => small_pages(len, request)?,
        };
        Ok(Self {
            memory,
            policy: request.pages,
            stepped_down: Vec::new(),
        })
    }

    /// The bytes of the region, as many as requested.
    pub fn bytes(&self) -> &[u8] {
        self.memory.bytes()
    }

    /// The bytes of the region, mutable.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        self.memory.bytes_mut()
    }

    /// Length of the region, bytes.
    pub fn len(&self) -> usize {
        self.memory.len()
    }

    /// Whether the region has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The first byte, for owners that keep typed values in the region.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.memory.base()
    }

    /// The memory that the region really has, read back now.
    ///
    /// **Cost**: reads `/proc/self/smaps` and 8 bytes of `/proc/self/pagemap` per page: about a millisecond. Not for hot paths.
    pub fn obtained(&self) -> Obtained {
        Obtained::read(&self.memory, self.policy, &self.stepped_down)
    }
}

fn auto(len: usize, request: &Request) -> Result<Region, Error> {
    let mut stepped_down = Vec::new();
    if len >= HUGE && !cfg!(miri) {
        match auto_pool(len, request) {
            Ok(memory) => {
                return Ok(Region {
                    memory,
                    policy: Policy::Hugetlb2M,
                    stepped_down,
                });
            }
            Err(why) => stepped_down.push((Policy::Hugetlb2M, why)),
        }
        match thp_mode(Policy::Thp, request.shared) {
            Ok(()) => {
                let memory = mapped(len, 1, HUGE, request)?;
                match memory.advise_huge(true) {
                    Ok(()) => {
                        finish_ordinary(&memory, request, request.populate)?;
                        return Ok(Region {
                            memory,
                            policy: Policy::Thp,
                            stepped_down,
                        });
                    }
                    Err(error) => stepped_down.push((Policy::Thp, error.to_string())),
                }
            }
            Err(error) => stepped_down.push((Policy::Thp, short(&error))),
        }
    }
    let memory = if len == 0
        || len < OWN_PAGES && request.node.is_none() && !request.lock && !request.shared
    {
        Memory::heap(len, request.align.max(LINE)).map_err(|_| Error::NoMemory(len))?
    } else {
        // No advice: if the administrator switched larger pages on for all programs, they are welcome.
        let memory = mapped(len, 1, request.align, request)?;
        finish_ordinary(&memory, request, request.populate)?;
        memory
    };
    Ok(Region {
        memory,
        policy: Policy::Virtual,
        stepped_down,
    })
}

/// `hugetlb` under the conditions of `auto`, or the reason why it is not taken.
fn auto_pool(len: usize, request: &Request) -> Result<Memory, String> {
    let waste = len.next_multiple_of(HUGE) - len;
    if waste > len / 8 {
        return Err(format!(
            "{} of its pages would be wasted",
            obtained::Size(waste)
        ));
    }
    let needed = len.div_ceil(HUGE);
    match Pool::read(Path::new("/"), HUGE, request.node) {
        Some(pool) if pool.free >= needed => {}
        Some(pool) => return Err(format!("{} of {needed} pages free", pool.free)),
        None => return Err("no pages of that size".to_owned()),
    }
    pool(len, Policy::Hugetlb2M, request).map_err(|error| short(&error))
}

/// Text of an error, without policy and remedy.
fn short(error: &Error) -> String {
    match error {
        Error::ThpOff { mode, .. } => format!("off ({mode})"),
        Error::Pool { needed, free, .. } => format!("{free} of {needed} pages free"),
        other => other.to_string(),
    }
}

fn small_pages(len: usize, request: &Request) -> Result<Memory, Error> {
    let memory = mapped(len, 1, request.align, request)?;
    match memory.advise_huge(false) {
        // A kernel without huge pages only has small ones.
        Err(error) if error.raw_os_error() != Some(libc::EINVAL) => {
            Err(failed("madvise", len, error))
        }
        _ => finish_ordinary(&memory, request, request.populate).map(|()| memory),
    }
}

fn forced_thp(len: usize, request: &Request) -> Result<Memory, Error> {
    let memory = populated_thp(len, Policy::Thp, request)?;
    let huge = obtained::huge_bytes(&memory)
        .map_err(|error| failed("reading /proc/self/smaps", len, error))?;
    if huge < memory.span() {
        return Err(Error::ThpMissing {
            policy: Policy::Thp,
            huge,
            wanted: memory.span(),
        });
    }
    Ok(memory)
}

fn populated_thp(len: usize, policy: Policy, request: &Request) -> Result<Memory, Error> {
    thp_mode(policy, request.shared)?;
    let memory = mapped(len, HUGE, HUGE, request)?;
    memory
        .advise_huge(true)
        .map_err(|error| failed("madvise", len, error))?;
    finish_ordinary(&memory, request, true)?;
    Ok(memory)
}

/// A region in one run of physical memory. Failed tries stay mapped until the end, so that the kernel has to offer other memory.
fn contiguous(len: usize, request: &Request) -> Result<Memory, Error> {
    let (mut failed, mut longest) = (Vec::new(), 0);
    while failed.len() < TRIES {
        let memory = match populated_thp(len, Policy::Contiguous, request) {
            // Memory taken by the previous tries is not an error of this request.
            Err(Error::NoMemory(_)) if !failed.is_empty() => break,
            other => other?,
        };
        match obtained::longest_run(&memory) {
            Ok(run) if run < len => longest = longest.max(run),
            // The run is long enough, or its length is unknown.
            _ => return Ok(memory),
        }
        failed.push(memory);
    }
    if let Ok(memory) = pool(len, Policy::Hugetlb1G, request) {
        match obtained::longest_run(&memory) {
            Ok(run) if run < len => longest = longest.max(run),
            _ => return Ok(memory),
        }
    }
    Err(Error::NotContiguous {
        longest,
        wanted: len,
        tries: failed.len(),
    })
}

/// Pages of the pool, populated at once: if the pool were empty at the first touch, SIGBUS would end the process.
fn pool(len: usize, policy: Policy, request: &Request) -> Result<Memory, Error> {
    let page_bytes = if policy == Policy::Hugetlb1G {
        GIGANTIC
    } else {
        HUGE
    };
    let needed = len.div_ceil(page_bytes);
    let too_few = || match Pool::read(Path::new("/"), page_bytes, request.node) {
        Some(Pool {
            free, total, path, ..
        }) => {
            // Reservations of the kernel itself may leave fewer pages than it shows.
            let mend = total + needed.saturating_sub(free).max(1);
            Error::Pool {
                policy,
                page_bytes,
                needed,
                free,
                total,
                mend,
                pool: path,
            }
        }
        None => Error::NoSuchPages { policy, page_bytes },
    };
    let memory = Memory::hugetlb(len, page_bytes, request.shared).map_err(|_| too_few())?;
    finish(&memory, request, true).map_err(|error| match error {
        Error::NoMemory(_) => too_few(),
        other => other,
    })?;
    Ok(memory)
}

/// A mapping without advice on its page size.
fn mapped(len: usize, unit: usize, align: usize, request: &Request) -> Result<Memory, Error> {
    Memory::mapped(len, unit, align, request.shared).map_err(|_| Error::NoMemory(len))
}

/// [`finish`] for ordinary pages. Populating more than there is would end other programs: the kernel does not refuse it.
fn finish_ordinary(memory: &Memory, request: &Request, populate: bool) -> Result<(), Error> {
    /// Regions below this size are populated without a look at the free memory.
    const LARGE: usize = 64 << 20;
    let len = memory.len();
    let fits = |free: Available| free.bytes >= len as u64;
    if populate && len >= LARGE && !Available::now().is_none_or(fits) {
        return Err(Error::NoMemory(len));
    }
    finish(memory, request, populate)
}

/// Applies node, population and lock, in this order, because a page stays on the node where it was populated.
fn finish(memory: &Memory, request: &Request, populate: bool) -> Result<(), Error> {
    let len = memory.len();
    if let Some(node) = request.node {
        match memory.bind(node) {
            // A kernel without NUMA has one node, and `check_node` has accepted only that node.
            Err(error) if error.raw_os_error() != Some(libc::ENOSYS) => {
                return Err(failed("mbind", len, error));
            }
            _ => {}
        }
    }
    if populate {
        memory
            .populate()
            .map_err(|error| match error.raw_os_error() {
                Some(libc::ENOMEM) => Error::NoMemory(len),
                _ => failed("populating", len, error),
            })?;
    }
    if request.lock {
        memory.lock().map_err(|source| {
            let limit = sys::lock_limit().map_or("unlimited".to_owned(), |bytes| {
                obtained::Size(bytes as usize).to_string()
            });
            Error::Lock {
                bytes: len,
                limit,
                source,
            }
        })?;
    }
    Ok(())
}

fn failed(what: &'static str, bytes: usize, source: io::Error) -> Error {
    Error::System {
        what,
        bytes,
        source,
    }
}

/// Checks that transparent huge pages are available by advice.
fn thp_mode(policy: Policy, is_shared: bool) -> Result<(), Error> {
    let (file, wanted) = match is_shared {
        false => (THP_MODE, "madvise"),
        true => (SHARED_THP_MODE, "advise"),
    };
    let off = |mode: &str| {
        Err(Error::ThpOff {
            policy,
            mode: mode.to_owned(),
            wanted,
            file,
        })
    };
    match fs::read_to_string(file) {
        Ok(modes) if modes.contains("[never]") => off("never"),
        Ok(modes) if modes.contains("[deny]") => off("deny"),
        Ok(_) if sys::thp_disabled() => off("disabled for this process by prctl"),
        Ok(_) => Ok(()),
        Err(_) => Err(Error::NoSuchPages {
            policy,
            page_bytes: HUGE,
        }),
    }
}

/// Checks that `node` is a node with memory; a kernel without NUMA has node 0.
fn check_node(node: u32) -> Result<(), Error> {
    let present = fs::read_to_string("/sys/devices/system/node/has_memory")
        .unwrap_or_else(|_| "0".to_owned());
    let present = present.trim();
    let listed = present.split(',').any(|part| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let inside = |first: u32, last: u32| (first..=last).contains(&node);
        first
            .parse()
            .is_ok_and(|first| last.parse().is_ok_and(|last| inside(first, last)))
    });
    if listed && node < sys::NODES {
        Ok(())
    } else {
        Err(Error::NoSuchNode {
            node,
            present: present.to_owned(),
        })
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    /// The kernel would begin to populate, and end programs on the way.
    #[test]
    fn more_than_is_free_is_refused_before_a_page_is_populated() {
        let Some(free) = Available::now() else {
            return weir_testkit::skipped(
                "more_than_is_free_is_refused_before_a_page_is_populated",
                "the free memory is unknown",
            );
        };
        let len = free.bytes as usize + free.huge as usize + (1 << 30);
        for pages in [Policy::Auto, Policy::Virtual] {
            let request = Request {
                pages,
                populate: true,
                ..Request::default()
            };
            let found = Region::zeroed(len, &request);
            assert!(matches!(found, Err(Error::NoMemory(_))), "{found:?}");
        }
    }
}
