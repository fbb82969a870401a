//! Places of threads and memory: processors of a thread, and the NUMA node of a batch.

use crate::batch::{weir_lease, with};
use crate::call::{Failure, WEIR_FAILED, WEIR_OK, call, check, store, weir_status};
use core::ffi::c_void;
use core::mem::MaybeUninit;
use std::io;

/// Most processors that the kernel's set of this size names.
const PROCESSORS: usize = libc::CPU_SETSIZE as usize;

/// Binds the calling thread to one processor, numbered as in /proc/cpuinfo. Threads that it starts
/// later are also bound to that processor.
///
/// Threads that weir started before keep their processors. WEIR_REFUSED if there is no such processor, or this process may not use it.
/// **Cost**: a system call.
#[unsafe(no_mangle)]
pub extern "C" fn weir_pin_thread(cpu: u32) -> weir_status {
    call(|| {
        let pinned = weir_io::sys::pin(cpu as usize);
        pinned.map_err(|error| Failure::refused(format!("processor {cpu}: {error}")))?;
        Ok(WEIR_OK)
    })
}

/// Lists the processors that the calling thread may use, ascending. `count` gets their number, which may exceed `capacity`: then only
/// the first `capacity` are written.
///
/// # Safety
/// `cpus` leads to memory for `capacity` numbers, and may be NULL if that is 0; `count` leads to memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_cpus(cpus: *mut u32, capacity: u32, count: *mut u32) -> weir_status {
    call(|| {
        check(count, "count")?;
        if capacity > 0 {
            check(cpus, "cpus")?;
        }
        let mut set = MaybeUninit::<libc::cpu_set_t>::zeroed();
        // SAFETY: the kernel writes at most so many bytes, and zeros are a valid set.
        let set = unsafe {
            if libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), set.as_mut_ptr()) != 0 {
                return Err(Failure::new(
                    WEIR_FAILED,
                    io::Error::last_os_error().to_string(),
                ));
            }
            set.assume_init()
        };
        let mut found = 0;
        for cpu in 0..PROCESSORS {
            // SAFETY: `cpu` is below the size of the set.
            if unsafe { libc::CPU_ISSET(cpu, &set) } {
                if found < capacity {
                    // SAFETY: the caller promises memory for `capacity` numbers.
                    unsafe { cpus.add(found as usize).write(cpu as u32) };
                }
                found += 1;
            }
        }
        // SAFETY: the caller promises memory for a number.
        unsafe { store(count, found, "count")? };
        Ok(WEIR_OK)
    })
}

/// Finds the NUMA node on which the packets of a batch lie: the node of the page with the first
/// packet's first byte.
///
/// `node` gets 0 on a machine with one node, and for a batch without bytes. WEIR_FAILED if the kernel refuses to tell.
/// **Cost**: a system call; ask for one batch of a source, and not for each.
///
/// # Safety
/// `node` leads to memory for a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn weir_node_of(lease: weir_lease, node: *mut u32) -> weir_status {
    call(|| {
        check(node, "node")?;
        let found = with(lease, |lease| {
            let (region, packets) = (lease.batch.region(), lease.batch.descriptors());
            let Some(first) = packets.iter().find(|packet| packet.captured > 0) else {
                return Ok(0);
            };
            let first = region.cast::<u8>().wrapping_add(first.offset as usize);
            node_of(first).map_err(|error| Failure::new(WEIR_FAILED, error.to_string()))
        })?;
        // SAFETY: the caller promises memory for a number.
        unsafe { store(node, found, "node")? };
        Ok(WEIR_OK)
    })
}

/// The node of the page at an address. **Source**: get_mempolicy(2), `MPOL_F_NODE | MPOL_F_ADDR`.
fn node_of(address: *const u8) -> io::Result<u32> {
    const NODE: libc::c_ulong = 1 << 0;
    const ADDRESS: libc::c_ulong = 1 << 1;
    let mut node: libc::c_int = 0;
    let none = core::ptr::null_mut::<libc::c_ulong>();
    // SAFETY: the kernel writes the node into the local, and only looks the address up.
    let done = unsafe {
        libc::syscall(
            libc::SYS_get_mempolicy,
            &mut node,
            none,
            0usize,
            address.cast::<c_void>(),
            NODE | ADDRESS,
        )
    };
    if done == 0 {
        return Ok(node as u32);
    }
    let error = io::Error::last_os_error();
    // A kernel without NUMA has no such call, and a container may forbid it: neither matters where there is one node.
    let one_node = std::fs::read_to_string("/sys/devices/system/node/online")
        .map_or(true, |nodes| nodes.trim() == "0");
    if one_node { Ok(0) } else { Err(error) }
}
