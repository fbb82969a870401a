//! Why there is no such region, and what would mend it.

use crate::obtained::{PageSize, Size};
use crate::policy::Policy;
use std::io;

/// Why there is no such region. The text names the command that mends it where one does.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is not that much memory.
    #[error("no memory of {} to be had", Size(*.0))]
    NoMemory(usize),
    /// More than can be addressed.
    #[error("{len} values of {size} bytes are more than this machine can address")]
    TooLarge {
        /// Values asked for.
        len: usize,
        /// Bytes of each.
        size: usize,
    },
    /// An alignment that is no power of two or above 2 MiB.
    #[error("alignment {0} is no power of two up to 2 MiB")]
    Align(usize),
    /// The pool of huge pages has too few.
    #[error(
        "{policy}: pages of {} needed: {needed}, free: {free} of {total}: echo {mend} | sudo tee {pool}/nr_hugepages",
        PageSize(*.page_bytes)
    )]
    Pool {
        /// Which pool.
        policy: Policy,
        /// Bytes of one of its pages.
        page_bytes: usize,
        /// Pages that the region takes.
        needed: usize,
        /// Pages that nobody has and nobody reserved.
        free: usize,
        /// Pages of the pool.
        total: usize,
        /// Pages that the pool would need.
        mend: usize,
        /// The pool's directory.
        pool: String,
    },
    /// The machine has no pages of that size.
    #[error("{policy}: neither kernel nor processor offer pages of {}", PageSize(*.page_bytes))]
    NoSuchPages {
        /// What was asked for.
        policy: Policy,
        /// Bytes of such a page.
        page_bytes: usize,
    },
    /// Transparent huge pages are switched off.
    #[error("{policy}: transparent huge pages are off ({mode}): echo madvise | sudo tee {file}")]
    ThpOff {
        /// What was asked for.
        policy: Policy,
        /// What the kernel says.
        mode: String,
        /// Where that is changed.
        file: &'static str,
    },
    /// The kernel gave fewer huge pages than asked for.
    #[error(
        "{policy}: only {} of {} came in huge pages, memory is short or in pieces: \
         echo 1 | sudo tee /proc/sys/vm/compact_memory",
        Size(*.huge), Size(*.wanted)
    )]
    ThpMissing {
        /// What was asked for.
        policy: Policy,
        /// Bytes in huge pages.
        huge: usize,
        /// Bytes wanted in huge pages.
        wanted: usize,
    },
    /// No run of physical memory is long enough.
    #[error(
        "contiguous: the longest of {tries} tries was {} of {}: echo 1 | sudo tee /proc/sys/vm/compact_memory, \
         or take hugetlb-1g, which is contiguous up to 1 GiB",
        Size(*.longest), Size(*.wanted)
    )]
    NotContiguous {
        /// Bytes of the longest run found.
        longest: usize,
        /// Bytes wanted.
        wanted: usize,
        /// Regions tried.
        tries: usize,
    },
    /// There is no such NUMA node.
    #[error("there is no NUMA node {node} with memory; there is {present}")]
    NoSuchNode {
        /// The one asked for.
        node: u32,
        /// Those with memory, as the kernel lists them.
        present: String,
    },
    /// The limit of locked memory is too low.
    #[error(
        "{} cannot be locked in memory ({source}); the limit is {limit}: ulimit -l {kib} as root, \
         or give the program CAP_IPC_LOCK",
        Size(*.bytes), kib = .bytes.div_ceil(1024)
    )]
    Lock {
        /// Bytes to be locked.
        bytes: usize,
        /// The limit now.
        limit: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// Another system call failed.
    #[error("{what} of {}: {source}", Size(*.bytes))]
    System {
        /// What was tried.
        what: &'static str,
        /// Bytes of the region.
        bytes: usize,
        /// What the kernel said.
        source: io::Error,
    },
}
