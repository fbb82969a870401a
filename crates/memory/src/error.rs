//! Errors of requests for memory, with their remedies.

use crate::obtained::{PageSize, Size};
use crate::policy::Policy;
use std::io;

/// Reason why a region cannot be made. If a command mends the cause, the text names it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The machine has not enough memory.
    #[error("no memory of {} to be had", Size(*.0))]
    NoMemory(usize),
    /// The size exceeds the address space.
    #[error("{len} values of {size} bytes are more than this machine can address")]
    TooLarge {
        /// Number of requested values.
        len: usize,
        /// Size of a value, bytes.
        size: usize,
    },
    /// The alignment is not a power of two, or above 2 MiB.
    #[error("alignment {0} is not a power of two up to 2 MiB")]
    Align(usize),
    /// The pool has too few free huge pages.
    #[error(
        "{policy}: pages of {} needed: {needed}, free: {free} of {total}: echo {mend} | sudo tee {pool}/nr_hugepages",
        PageSize(*.page_bytes)
    )]
    Pool {
        /// The policy, which names the pool.
        policy: Policy,
        /// Size of a page of the pool, bytes.
        page_bytes: usize,
        /// Number of pages that the region needs.
        needed: usize,
        /// Number of pages that are neither used nor reserved.
        free: usize,
        /// Number of pages of the pool.
        total: usize,
        /// Number of pages that the pool would need.
        mend: usize,
        /// The pool's directory.
        pool: String,
    },
    /// The machine has no pages of that size.
    #[error("{policy}: neither kernel nor processor offer pages of {}", PageSize(*.page_bytes))]
    NoSuchPages {
        /// The requested policy.
        policy: Policy,
        /// Size of such a page, bytes.
        page_bytes: usize,
    },
    /// Transparent huge pages are switched off.
    #[error("{policy}: transparent huge pages are off ({mode}): echo {wanted} | sudo tee {file}")]
    ThpOff {
        /// The requested policy.
        policy: Policy,
        /// The kernel's setting.
        mode: String,
        /// The setting that this needs.
        wanted: &'static str,
        /// File in which the setting is changed.
        file: &'static str,
    },
    /// The kernel gave fewer huge pages than requested.
    #[error(
        "{policy}: only {} of {} came in huge pages, memory is short or in pieces: \
         echo 1 | sudo tee /proc/sys/vm/compact_memory",
        Size(*.huge), Size(*.wanted)
    )]
    ThpMissing {
        /// The requested policy.
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
        /// Length of the longest run found, bytes.
        longest: usize,
        /// Requested bytes.
        wanted: usize,
        /// Number of regions tried.
        tries: usize,
    },
    /// The requested NUMA node does not exist, or has no memory.
    #[error("there is no NUMA node {node} with memory; there is {present}")]
    NoSuchNode {
        /// The requested node.
        node: u32,
        /// The nodes with memory, as the kernel lists them.
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
        /// The present limit.
        limit: String,
        /// The kernel's error.
        source: io::Error,
    },
    /// Another system call failed.
    #[error("{what} of {}: {source}", Size(*.bytes))]
    System {
        /// Name of the operation.
        what: &'static str,
        /// Size of the region, bytes.
        bytes: usize,
        /// The kernel's error.
        source: io::Error,
    },
}
