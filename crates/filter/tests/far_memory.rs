//! Native code whose pieces are gigabytes apart, as with large tables in between. Only address space is reserved for that,
//! no memory.
#![allow(unsafe_code, reason = "the test reserves address space")]

use std::ptr::null_mut;
use weir_filter::{Filter, Native};
use weir_packet::{Frame, LinkType};
use weir_testkit::skipped;

const PAGE: usize = 4096;

/// A distance that does not fit in 32 bits, bytes.
const APART: usize = 3 << 30;

/// Largest number of pages that are left free above.
const MOST_ABOVE: usize = 4;

/// Reserves address space where the kernel puts it; `None` if there is none.
fn reserve(len: usize) -> Option<usize> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: an anonymous mapping at an address of the kernel's choice touches nothing that is in use.
    let at = unsafe { libc::mmap(null_mut(), len, libc::PROT_NONE, flags, -1, 0) };
    (at != libc::MAP_FAILED).then_some(at as usize)
}

fn release(at: usize, len: usize) {
    // SAFETY: called with parts of reservations to which no reference exists.
    unsafe { libc::munmap(at as *mut libc::c_void, len) };
}

/// Distance in bytes from the first to the last page that belongs to no file, and is readable but not writable: pieces of native
/// code and its constants.
fn reach_of_native_code() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("this process has mappings");
    let pieces: Vec<[usize; 2]> = maps
        .lines()
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        // Address, rights, offset, device, inode, and the name of the mapping, if it has one.
        .filter(|fields| fields.len() == 5 && fields[1].starts_with("r-"))
        .map(|fields| {
            let (start, end) = fields[0].split_once('-').expect("a range");
            [start, end]
                .map(|address| usize::from_str_radix(address, 16).expect("a hexadecimal number"))
        })
        .collect();
    let [first, last] =
        [pieces.first(), pieces.last()].map(|piece| piece.expect("native code was made"));
    last[1] - first[0]
}

/// The only test of this process, so that no other thread maps the places left free.
#[test]
fn pieces_of_native_code_may_lie_gigabytes_apart() {
    let filter = Filter::compile("udp port 53 and len >= 60", LinkType::ETHERNET, false).unwrap();
    let mut dns = vec![0; 64];
    dns[12..15].copy_from_slice(&[8, 0, 0x45]);
    dns[23] = 17;
    dns[36..38].copy_from_slice(&[0, 53]);
    let short = dns[..50].to_vec();
    let frames: Vec<Frame<'_>> = [&dns, &short, &dns, &short, &dns]
        .map(|data| Frame {
            data,
            wire_len: data.len() as u32,
            interface: 0,
        })
        .into_iter()
        .collect();
    let Some(between) = reserve(APART) else {
        return skipped(
            "pieces_of_native_code_may_lie_gigabytes_apart",
            "no address space",
        );
    };
    // From here on, the kernel puts new mappings below, except for holes above: holes of up to two pages are filled.
    let mut above = Vec::new();
    for pages in [2, 1] {
        while above.len() < 10_000
            && let Some(at) = reserve(pages * PAGE)
        {
            if at < between {
                release(at, pages * PAGE);
                break;
            }
            above.push(at);
        }
    }
    let mut apart = 0;
    // A few pages are left free above and receive the first pieces; the others are mapped below.
    for pages in 1..=MOST_ABOVE {
        let top = between + APART - pages * PAGE;
        release(top, pages * PAGE);
        let native = Native::compile(filter.program()).expect("native code can be had here");
        apart += usize::from(reach_of_native_code() > APART - MOST_ABOVE * PAGE);
        let mut verdicts = 0;
        native.matches(&frames, &mut verdicts);
        assert_eq!(verdicts, 0b10101, "{pages} pages above");
        assert_ne!(native.run(&frames[0]), 0);
    }
    if apart == 0 {
        skipped(
            "pieces_of_native_code_may_lie_gigabytes_apart",
            "the kernel put all pieces beside each other",
        );
    }
}
