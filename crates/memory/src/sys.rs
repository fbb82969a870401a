//! System calls on memory: mapping, advice, NUMA binding, locking. The only owner of mapped addresses.

use std::alloc::{self, Layout};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

/// `MADV_POPULATE_WRITE` of linux/mman.h, since Linux 5.14.
const MADV_POPULATE_WRITE: libc::c_int = 23;

/// `MPOL_BIND` of linux/mempolicy.h.
const MPOL_BIND: libc::c_int = 2;

/// Number of nodes in the mask given to `mbind`.
pub(crate) const NODES: u32 = 1024;

/// Zeroed, writable memory of this process alone, given back when dropped.
///
/// A mapping lies between inaccessible pages. Otherwise the kernel would join it with a neighbour of equal flags, and
/// `/proc/self/smaps` would describe both together.
#[derive(Debug)]
pub(crate) struct Memory {
    base: NonNull<u8>,
    /// Requested bytes.
    len: usize,
    /// Bytes up to the end of the last page.
    span: usize,
    owner: Owner,
}

#[derive(Debug)]
enum Owner {
    /// Memory from the global allocator.
    Heap(Layout),
    /// A mapping: the arguments of `munmap`.
    Map { base: NonNull<u8>, len: usize },
}

// SAFETY: the memory is owned by the value alone; none of it is tied to a thread.
unsafe impl Send for Memory {}
// SAFETY: through a shared reference, the memory is only read.
unsafe impl Sync for Memory {}

impl Memory {
    /// `len` zeroed bytes from the global allocator, at a multiple of `align`, a power of two.
    pub(crate) fn heap(len: usize, align: usize) -> io::Result<Self> {
        let layout = Layout::from_size_align(len, align).map_err(|_| no_memory())?;
        let base = if len == 0 {
            // SAFETY: an alignment is never zero. The pointer is never dereferenced, because there are no bytes.
            unsafe { NonNull::new_unchecked(ptr::without_provenance_mut(align)) }
        } else {
            // SAFETY: the layout's size is not zero.
            NonNull::new(unsafe { alloc::alloc_zeroed(layout) }).ok_or_else(no_memory)?
        };
        Ok(Self {
            base,
            len,
            span: len,
            owner: Owner::Heap(layout),
        })
    }

    /// A mapping of `len > 0` bytes, rounded up to whole units of `unit` bytes, at a multiple of `align`; both are powers of
    /// two. Pages are populated at first touch. If `shared`, a child process has the same pages.
    ///
    /// **Platform**: see mmap(2), mprotect(2).
    pub(crate) fn mapped(len: usize, unit: usize, align: usize, shared: bool) -> io::Result<Self> {
        let guard = page_bytes();
        let (span, align) = (len.next_multiple_of(unit.max(guard)), align.max(guard));
        let total = span.checked_add(align + guard).ok_or_else(no_memory)?;
        let reserved = map(total, libc::PROT_NONE, 0, shared)?;
        // The owner is made first, so that an error below gives the reservation back.
        let after_guard = reserved.as_ptr().wrapping_add(guard);
        let base = after_guard.wrapping_add(after_guard.align_offset(align));
        let base = NonNull::new(base).expect("it lies within a reservation, see below");
        let memory = Self {
            base,
            len,
            span,
            owner: Owner::Map {
                base: reserved,
                len: total,
            },
        };
        // SAFETY: aligning skips less than `align - guard` bytes (addresses are page-aligned), so
        // `base..base + span` and a guard page after it lie in the reservation, which is ours.
        // Unlike MAP_FIXED, a failure leaves it as it was.
        check(unsafe {
            libc::mprotect(
                base.as_ptr().cast(),
                span,
                libc::PROT_READ | libc::PROT_WRITE,
            )
        })?;
        Ok(memory)
    }

    /// A mapping of `len > 0` bytes, rounded up to whole pages, from the pool of huge pages of that size. The pages are
    /// reserved, but not populated.
    ///
    /// **Errors**: `ENOMEM` if the pool has too few pages. **Platform**: mmap(2), `MAP_HUGETLB`.
    pub(crate) fn hugetlb(len: usize, page_bytes: usize, shared: bool) -> io::Result<Self> {
        let size = (page_bytes.trailing_zeros() as libc::c_int) << libc::MAP_HUGE_SHIFT;
        let span = len.next_multiple_of(page_bytes);
        let base = map(
            span,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_HUGETLB | size,
            shared,
        )?;
        Ok(Self {
            base,
            len,
            span,
            owner: Owner::Map { base, len: span },
        })
    }

    /// The first byte.
    pub(crate) fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// Requested length, bytes.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Bytes up to the end of the last page: the real cost, and the length that some calls need.
    pub(crate) fn span(&self) -> usize {
        debug_assert!(
            self.is_mapped(),
            "the heap's pages are not ours to look at or change"
        );
        self.span
    }

    /// Whether the memory has pages of its own.
    pub(crate) fn is_mapped(&self) -> bool {
        matches!(self.owner, Owner::Map { .. })
    }

    /// The bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        // SAFETY: `len` bytes from `base` are ours, initialised (zeroed by the kernel or the allocator) and readable until drop.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    /// The bytes, mutable.
    pub(crate) fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `bytes`, and writable; `&mut self` excludes all other access.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }

    /// Asks the kernel for huge pages, or for none. **Errors**: `EINVAL` on a kernel without transparent huge pages.
    pub(crate) fn advise_huge(&self, huge: bool) -> io::Result<()> {
        self.advise(if huge {
            libc::MADV_HUGEPAGE
        } else {
            libc::MADV_NOHUGEPAGE
        })
    }

    /// Populates every page, zeroed as before. If a page cannot be obtained, this is an error here, never a signal later.
    ///
    /// **Platform**: `MADV_POPULATE_WRITE`, or a read of `/dev/zero` into each page on kernels without it.
    pub(crate) fn populate(&self) -> io::Result<()> {
        match self.advise(MADV_POPULATE_WRITE) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.populate_by_reading(),
            // The error in place of a SIGBUS.
            Err(error) if error.raw_os_error() == Some(libc::EFAULT) => Err(no_memory()),
            done => done,
        }
    }

    /// Has the kernel write one zero into each page. If the kernel cannot obtain a page, its own access gives `EFAULT`, not
    /// SIGBUS.
    fn populate_by_reading(&self) -> io::Result<()> {
        let zeros = File::open("/dev/zero")?;
        for at in (0..self.span()).step_by(page_bytes()) {
            let to = self.base.as_ptr().wrapping_add(at).cast();
            // SAFETY: `at` is below `span`: one byte of ours. The region is new, so it holds a zero already.
            let read = unsafe { libc::read(zeros.as_raw_fd(), to, 1) };
            if read != 1 {
                return Err(no_memory());
            }
        }
        Ok(())
    }

    /// Binds the whole memory to a NUMA node below [`NODES`]; pages must not be populated yet. **Platform**: mbind(2).
    pub(crate) fn bind(&self, node: u32) -> io::Result<()> {
        let mut mask = [0u64; NODES as usize / 64];
        mask[node as usize / 64] = 1 << (node % 64);
        let base = self.base.as_ptr();
        // SAFETY: the range is ours, and the mask has as many bits as stated (the call wants one more than the highest).
        let result = unsafe {
            libc::syscall(
                libc::SYS_mbind,
                base,
                self.span(),
                MPOL_BIND,
                mask.as_ptr(),
                u64::from(NODES) + 1,
                0,
            )
        };
        check(result as libc::c_int)
    }

    /// Locks the memory, so that it is never swapped out. **Platform**: mlock(2).
    pub(crate) fn lock(&self) -> io::Result<()> {
        // SAFETY: the range is ours.
        check(unsafe { libc::mlock(self.base.as_ptr().cast(), self.span()) })
    }

    fn advise(&self, advice: libc::c_int) -> io::Result<()> {
        loop {
            // SAFETY: the range is ours; none of the advice values used here changes its contents.
            let done =
                check(unsafe { libc::madvise(self.base.as_ptr().cast(), self.span(), advice) });
            if !matches!(&done, Err(error) if error.kind() == io::ErrorKind::Interrupted) {
                return done;
            }
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        match self.owner {
            Owner::Heap(layout) if layout.size() == 0 => {}
            // SAFETY: the memory came from the allocator with this layout, and no reference to it is left.
            Owner::Heap(layout) => unsafe { alloc::dealloc(self.base.as_ptr(), layout) },
            Owner::Map { base, len } => {
                // SAFETY: exactly the range that `map` returned, and no reference to it is left.
                unsafe { libc::munmap(base.as_ptr().cast(), len) };
            }
        }
    }
}

/// An anonymous mapping, private or shared with child processes, at an address of the kernel's choice.
fn map(
    len: usize,
    protection: libc::c_int,
    flags: libc::c_int,
    shared: bool,
) -> io::Result<NonNull<u8>> {
    let sharing = if shared {
        libc::MAP_SHARED
    } else {
        libc::MAP_PRIVATE
    };
    let flags = sharing | libc::MAP_ANONYMOUS | flags;
    // SAFETY: an anonymous mapping without MAP_FIXED changes no existing mapping.
    let base = unsafe { libc::mmap(ptr::null_mut(), len, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(no_memory)
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn no_memory() -> io::Error {
    io::Error::from_raw_os_error(libc::ENOMEM)
}

/// Size of an ordinary page, bytes.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: sysconf has no preconditions.
    unsafe { libc::sysconf(libc::_SC_PAGESIZE) as usize }
}

/// Whether transparent huge pages are disabled for this process. **Platform**: prctl(2), `PR_GET_THP_DISABLE`.
pub(crate) fn thp_disabled() -> bool {
    // SAFETY: the call reads a flag of the process; its other arguments must be zero.
    unsafe { libc::prctl(libc::PR_GET_THP_DISABLE, 0, 0, 0, 0) == 1 }
}

/// The limit of locked memory in bytes; `None` if there is no limit.
pub(crate) fn lock_limit() -> Option<u64> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live local; a failure leaves zero in it.
    unsafe { libc::getrlimit(libc::RLIMIT_MEMLOCK, &mut limit) };
    (limit.rlim_cur != libc::RLIM_INFINITY).then_some(limit.rlim_cur)
}

#[cfg(all(test, not(miri), not(loom)))]
mod tests {
    use super::*;
    use crate::obtained::resident_bytes;

    #[test]
    fn a_kernel_without_populate_gets_its_pages_by_reads() {
        let memory = Memory::mapped(1 << 20, 1, 1 << 16, false).unwrap();
        assert_eq!(memory.base().as_ptr().align_offset(1 << 16), 0);
        assert_eq!(resident_bytes(&memory).unwrap(), 0);
        memory.populate_by_reading().unwrap();
        assert_eq!(resident_bytes(&memory).unwrap(), 1 << 20);
        assert!(memory.bytes().iter().all(|&byte| byte == 0));
    }

    #[test]
    fn a_page_that_cannot_be_had_is_an_error_and_no_signal() {
        let memory = Memory::mapped(page_bytes(), 1, 1, false).unwrap();
        // SAFETY: the page is ours, and this process does not access it until it is mapped writable again, which never happens.
        check(unsafe {
            libc::mprotect(memory.base().as_ptr().cast(), page_bytes(), libc::PROT_READ)
        })
        .unwrap();
        assert_eq!(
            memory.populate_by_reading().unwrap_err().raw_os_error(),
            Some(libc::ENOMEM)
        );
        assert!(memory.populate().is_err());
    }
}

/// Bytes of the second-level cache that a processor has; `None` if the C library does not know.
pub fn second_level_cache() -> Option<usize> {
    #[cfg(target_env = "gnu")]
    {
        // SAFETY: the call takes a number and returns one.
        let bytes = unsafe { libc::sysconf(libc::_SC_LEVEL2_CACHE_SIZE) };
        usize::try_from(bytes).ok().filter(|bytes| *bytes > 0)
    }
    #[cfg(not(target_env = "gnu"))]
    None
}
