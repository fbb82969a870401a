//! AF_XDP socket and the memory of its packets.

use super::Error;
use crate::sys::option::{get_option, set_option};
use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;
use std::time::{Duration, Instant};
use weir_memory::{Policy, Region, Request};

/// Bytes that the kernel keeps free in front of each packet, in addition to the requested headroom.
pub(super) const XDP_PACKET_HEADROOM: usize = 256;

/// Longest wait for a busy queue, because the kernel removes a former socket some time after it was closed.
const BUSY: Duration = Duration::from_secs(2);

/// Memory for packets, accessed by raw pointers, because the kernel and several threads each have their own parts.
#[derive(Debug)]
pub(super) struct Area {
    base: NonNull<u8>,
    region: Region,
}

// SAFETY: the region owns the memory; nothing in it is tied to a thread. The rings and the holders of bursts determine which
// side may touch a part.
unsafe impl Send for Area {}
// SAFETY: as above.
unsafe impl Sync for Area {}

impl Area {
    /// Allocates `len` bytes, aligned to a page and populated.
    pub(super) fn new(
        len: usize,
        pages: Policy,
        node: Option<u32>,
        shared: bool,
    ) -> Result<Self, Error> {
        /// Least size of a region with pages of its own. A smaller region comes from the allocator, which might reuse its
        /// memory while the kernel still holds the pages.
        const OWN_PAGES: usize = 64 << 10;
        let request = Request {
            pages,
            node,
            populate: true,
            align: 4096,
            shared,
            ..Request::default()
        };
        let mut region = Region::zeroed(len.max(OWN_PAGES), &request)?;
        let base = NonNull::new(region.bytes_mut().as_mut_ptr()).expect("memory has an address");
        Ok(Self { base, region })
    }

    pub(super) fn len(&self) -> usize {
        self.region.len()
    }

    pub(super) fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Returns the address of `at..at + len`. **Panics** if the range does not lie in the area.
    pub(super) fn part(&self, at: usize, len: usize) -> *mut u8 {
        assert!(
            at <= self.len() && len <= self.len() - at,
            "a part of the packets' memory"
        );
        self.base().wrapping_add(at)
    }

    /// Describes the memory.
    pub(super) fn obtained(&self) -> String {
        self.region.obtained().to_string()
    }
}

/// AF_XDP socket.
#[derive(Debug)]
pub(super) struct Xsk(OwnedFd);

impl Xsk {
    pub(super) fn new() -> Result<Self, Error> {
        super::super::device::socket(libc::AF_XDP, libc::SOCK_RAW, 0)
            .map(Self)
            .map_err(|error| match error.raw_os_error() {
                Some(libc::EPERM | libc::EACCES) => Error::NotPermitted("CAP_NET_RAW"),
                Some(libc::EAFNOSUPPORT) => Error::NoAfXdp,
                _ => Error::System {
                    what: "an AF_XDP socket",
                    error,
                },
            })
    }

    pub(super) fn fd(&self) -> &OwnedFd {
        &self.0
    }

    /// Registers the first `len` bytes of the area with the kernel, in chunks.
    ///
    /// # Safety
    /// The area must outlive the socket, and only the kernel may touch a chunk while a ring has it.
    pub(super) unsafe fn register(
        &self,
        area: &Area,
        len: usize,
        chunk: usize,
    ) -> Result<(), Error> {
        let memory = libc::xdp_umem_reg {
            addr: area.part(0, len) as u64,
            len: len as u64,
            chunk_size: chunk as u32,
            headroom: 0,
            flags: 0,
            tx_metadata_len: 0,
        };
        set_option(&self.0, libc::SOL_XDP, libc::XDP_UMEM_REG, &memory).map_err(|error| match error
            .raw_os_error()
        {
            Some(libc::ENOBUFS) => Error::Locked(len),
            _ => Error::System {
                what: "registering the packets' memory",
                error,
            },
        })
    }

    /// Binds to a queue with the first of these flags that the kernel accepts, and returns them.
    ///
    /// If the queue is busy, the function repeats the attempt for a while.
    pub(super) fn bind(&self, interface: u32, queue: u32, choices: &[u16]) -> io::Result<u16> {
        const PAUSE: Duration = Duration::from_millis(5);
        let start = Instant::now();
        let mut last = io::Error::from(io::ErrorKind::Unsupported);
        for &flags in choices {
            loop {
                let address = libc::sockaddr_xdp {
                    sxdp_family: libc::AF_XDP as u16,
                    sxdp_flags: flags,
                    sxdp_ifindex: interface,
                    sxdp_queue_id: queue,
                    sxdp_shared_umem_fd: 0,
                };
                let len = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
                // SAFETY: the address is a live local with the length given.
                if unsafe { libc::bind(self.0.as_raw_fd(), (&raw const address).cast(), len) } == 0
                {
                    return Ok(flags);
                }
                last = io::Error::last_os_error();
                match last.raw_os_error() {
                    Some(libc::EBUSY) if start.elapsed() < BUSY => std::thread::sleep(PAUSE),
                    Some(libc::EBUSY | libc::ENODEV | libc::ENETDOWN | libc::EPERM) => {
                        return Err(last);
                    }
                    // Drivers report missing support by different errors.
                    _ => break,
                }
            }
        }
        Err(last)
    }

    pub(super) fn is_zero_copy(&self) -> io::Result<bool> {
        let options: libc::xdp_options = get_option(&self.0, libc::SOL_XDP, libc::XDP_OPTIONS)?;
        Ok(options.flags & libc::XDP_OPTIONS_ZEROCOPY != 0)
    }

    pub(super) fn statistics(&self) -> io::Result<libc::xdp_statistics> {
        get_option(&self.0, libc::SOL_XDP, libc::XDP_STATISTICS)
    }

    /// Makes the kernel read the fill ring, and poll the device if busy polling is on.
    pub(super) fn kick_receive(&self) {
        // SAFETY: no buffer. The errors (no packet, interface down) are detected elsewhere.
        unsafe {
            libc::recvfrom(
                self.0.as_raw_fd(),
                std::ptr::null_mut(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null_mut(),
                std::ptr::null_mut(),
            )
        };
    }

    /// Lets a wakeup send up to `frames` frames, 32 to the size of the transmit ring, which must exist. Returns whether the kernel does so:
    /// from Linux 6.17 on.
    pub(super) fn set_transmit_budget(&self, frames: u32) -> bool {
        /// `XDP_MAX_TX_SKB_BUDGET` of `<linux/if_xdp.h>`.
        const MAX_TX_SKB_BUDGET: libc::c_int = 9;
        set_option(&self.0, libc::SOL_XDP, MAX_TX_SKB_BUDGET, &frames).is_ok()
    }

    /// Makes the kernel read the transmit ring.
    pub(super) fn kick_transmit(&self) -> io::Result<()> {
        // SAFETY: no buffer and no address.
        let done = unsafe {
            libc::sendto(
                self.0.as_raw_fd(),
                std::ptr::null(),
                0,
                libc::MSG_DONTWAIT,
                std::ptr::null(),
                0,
            )
        };
        if done < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(())
        }
    }

    /// Waits until there are packets to receive, at most for `time`.
    pub(super) fn wait(&self, time: Duration) -> io::Result<()> {
        let mut asked = libc::pollfd {
            fd: self.0.as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        };
        // SAFETY: the pointer is to one live local.
        let ready = unsafe {
            libc::poll(
                &raw mut asked,
                1,
                time.as_nanos().div_ceil(1_000_000) as c_int,
            )
        };
        if ready < 0 {
            let error = io::Error::last_os_error();
            return if error.kind() == io::ErrorKind::Interrupted {
                Ok(())
            } else {
                Err(error)
            };
        }
        Ok(())
    }
}
