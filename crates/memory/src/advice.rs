//! Advice for memory of others: huge pages for a part of an allocation.

use crate::HUGE;
use std::mem::MaybeUninit;

/// Asks the kernel to back free room, say of a `Vec`, with pages of 2 MiB, where whole ones lie in it. Nothing is touched, and
/// a kernel without such pages changes nothing.
///
/// A device then reads or writes the bytes in one piece, where pages of 4 KiB are up to 512 pieces, which cost both sides time.
///
/// **Platform**: madvise(2), `MADV_HUGEPAGE`. **Cost**: a system call; later, the first touch of a page clears 2 MiB.
pub fn advise_huge<T>(room: &mut [MaybeUninit<T>]) {
    let start: *mut u8 = room.as_mut_ptr().cast();
    let skipped = start.align_offset(HUGE).min(size_of_val(room));
    let len = (size_of_val(room) - skipped) / HUGE * HUGE;
    if len > 0 && !cfg!(miri) {
        // SAFETY: the advice changes no contents, and the range lies within memory that the caller has for itself.
        unsafe { libc::madvise(start.add(skipped).cast(), len, libc::MADV_HUGEPAGE) };
    }
}

/// Returns a copy of a table in pages of 2 MiB, where whole ones lie in it: random reads of it miss the translation cache less often.
///
/// **Cost**: the copy, and what [`advise_huge`] costs.
pub fn in_huge_pages<T: Copy>(table: &[T]) -> Vec<T> {
    let mut copy = Vec::with_capacity(table.len());
    advise_huge(copy.spare_capacity_mut());
    copy.extend_from_slice(table);
    copy
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn free_room_of_a_vector_becomes_huge_pages_and_stays_its_own() {
        let mut bytes: Vec<u8> = vec![0; 6 * HUGE];
        bytes.truncate(100);
        advise_huge(bytes.spare_capacity_mut());
        bytes.resize(6 * HUGE, 7);
        assert!(
            bytes[..100].iter().all(|&byte| byte == 0)
                && bytes[100..].iter().all(|&byte| byte == 7)
        );
        let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled")
            .unwrap_or_default();
        if !enabled.contains("[madvise]") && !enabled.contains("[always]") {
            return weir_testkit::skipped(
                "free_room_of_a_vector_becomes_huge_pages",
                "no transparent huge pages here",
            );
        }
        // The kernel's word for it: the mapping that holds the vector.
        let address = bytes.as_ptr() as usize + 3 * HUGE;
        let maps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let mut inside = false;
        let mut huge_kb = 0;
        for line in maps.lines() {
            if let Some((from, to)) = line
                .split(' ')
                .next()
                .and_then(|range| range.split_once('-'))
                && let (Ok(from), Ok(to)) = (
                    usize::from_str_radix(from, 16),
                    usize::from_str_radix(to, 16),
                )
            {
                inside = (from..to).contains(&address);
            } else if inside && let Some(kb) = line.strip_prefix("AnonHugePages:") {
                huge_kb = kb.trim().trim_end_matches(" kB").parse().unwrap();
            }
        }
        let free = crate::Available::now().map_or(0, |free| free.bytes);
        assert!(
            huge_kb >= HUGE >> 10 || free < 1 << 30,
            "{huge_kb} kB of huge pages"
        );
    }

    #[test]
    fn room_without_a_whole_page_is_left_as_it_is() {
        let mut bytes: Vec<u8> = Vec::with_capacity(HUGE - 1);
        advise_huge(bytes.spare_capacity_mut());
        advise_huge::<u8>(&mut []);
        bytes.push(1);
        assert_eq!(bytes, [1]);
        let table: Vec<(u32, u64)> = (0..500_000).map(|i| (i, u64::from(i) << 20)).collect();
        assert_eq!(in_huge_pages(&table), table);
    }
}
