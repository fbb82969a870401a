//! Requested properties are obtained, or the error names a remedy.

use crate::support::{Borrowed, field, frame, pool, smaps_of, turn};
use std::fs;
use weir_memory::{Contiguity, Error, HUGE, Policy, Region, Request, Table};
use weir_testkit::skipped;

const MIB: usize = 1 << 20;

fn request(pages: Policy) -> Request {
    Request {
        pages,
        ..Request::default()
    }
}

fn address(region: &Region) -> usize {
    region.bytes().as_ptr() as usize
}

/// Whether transparent huge pages are on; if not, prints a line about it.
fn thp(test: &str) -> bool {
    let modes =
        fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled").unwrap_or_default();
    let on = modes.contains("[always]") || modes.contains("[madvise]");
    if !on {
        skipped(test, "transparent huge pages are off");
    }
    on
}

/// Number of minor faults of this thread while it writes to every page.
fn faults_of_touching(region: &mut Region) -> i64 {
    let minor = || {
        // SAFETY: zero is a valid rusage, and the pointer is to a live local.
        unsafe {
            let mut usage: libc::rusage = std::mem::zeroed();
            libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
            usage.ru_minflt
        }
    };
    let before = minor();
    for byte in region.bytes_mut().iter_mut().step_by(4096) {
        *byte = 1;
    }
    minor() - before
}

#[test]
fn virtual_is_small_pages_at_first_touch() {
    let mut region = Region::zeroed(6 * MIB, &request(Policy::Virtual)).unwrap();
    let before = region.obtained();
    assert_eq!(
        (before.policy, before.page_bytes, before.resident_bytes),
        (Policy::Virtual, 4096, 0)
    );
    assert_eq!(field(&smaps_of(address(&region)), "Rss"), 0);
    assert!(faults_of_touching(&mut region) > 0);
    let after = region.obtained();
    let smaps = smaps_of(address(&region));
    assert_eq!(field(&smaps, "Size"), 6 * MIB);
    assert_eq!(
        (field(&smaps, "Rss"), field(&smaps, "AnonHugePages")),
        (6 * MIB, 0)
    );
    assert!(
        smaps
            .lines()
            .any(|line| line.starts_with("VmFlags") && line.contains(" nh")),
        "{smaps}"
    );
    assert_eq!(
        (after.resident_bytes, after.huge_bytes, after.bytes),
        (6 * MIB, 0, 6 * MIB)
    );
}

#[test]
fn populated_pages_need_no_fault() {
    for pages in [Policy::Virtual, Policy::Auto] {
        let mut region = Region::zeroed(
            4 * MIB,
            &Request {
                populate: true,
                ..request(pages)
            },
        )
        .unwrap();
        assert_eq!(field(&smaps_of(address(&region)), "Rss"), 4 * MIB);
        assert!(faults_of_touching(&mut region) < 8);
    }
}

#[test]
fn thp_is_huge_pages_and_says_so() {
    if !thp("thp_is_huge_pages_and_says_so") {
        return;
    }
    // A size that is no multiple of a huge page is rounded up to a multiple.
    for len in [1, 2 * MIB, 5 * MIB] {
        let region = match Region::zeroed(len, &request(Policy::Thp)) {
            Err(error @ Error::ThpMissing { .. }) => {
                skipped("thp_is_huge_pages_and_says_so", error);
                continue;
            }
            other => other.unwrap(),
        };
        let smaps = smaps_of(address(&region));
        let span = len.next_multiple_of(HUGE);
        assert_eq!(address(&region) % HUGE, 0);
        assert_eq!(
            (field(&smaps, "AnonHugePages"), field(&smaps, "Size")),
            (span, span)
        );
        let obtained = region.obtained();
        assert_eq!(
            (obtained.page_bytes, obtained.huge_bytes, obtained.bytes),
            (HUGE, span, len)
        );
        assert_eq!(region.bytes().len(), len);
        assert!(region.bytes().iter().all(|&byte| byte == 0));
    }
}

#[test]
fn hugetlb_comes_from_the_pool_and_goes_back() {
    let Some(_pages) = Borrowed::new("hugetlb_comes_from_the_pool_and_goes_back", 4) else {
        return;
    };
    let free = pool("free_hugepages").unwrap();
    let mut region = Region::zeroed(5 * MIB, &request(Policy::Hugetlb2M)).unwrap();
    assert_eq!(pool("free_hugepages").unwrap(), free - 3);
    let smaps = smaps_of(address(&region));
    assert_eq!(
        (
            field(&smaps, "KernelPageSize"),
            field(&smaps, "Private_Hugetlb")
        ),
        (HUGE, 6 * MIB)
    );
    assert_eq!(faults_of_touching(&mut region), 0);
    let obtained = region.obtained();
    assert_eq!(
        (obtained.page_bytes, obtained.huge_bytes, obtained.bytes),
        (HUGE, 6 * MIB, 5 * MIB)
    );
    assert!(
        obtained
            .to_string()
            .starts_with("5.0 MiB in 2 MiB pages (hugetlb: 6.0 MiB huge)"),
        "{obtained}"
    );
    drop(region);
    assert_eq!(pool("free_hugepages").unwrap(), free);
    // `auto` prefers the pool only if little is wasted.
    let good = Region::zeroed(4 * MIB, &Request::default())
        .unwrap()
        .obtained();
    assert_eq!(
        (good.policy, good.stepped_down.len()),
        (Policy::Hugetlb2M, 0)
    );
    let wasteful = Region::zeroed(3 * MIB, &Request::default())
        .unwrap()
        .obtained();
    assert_ne!(wasteful.policy, Policy::Hugetlb2M);
    assert_eq!(
        wasteful.stepped_down[0],
        (
            Policy::Hugetlb2M,
            "1.0 MiB of its pages would be wasted".to_owned()
        )
    );
    let small = Region::zeroed(MIB, &Request::default()).unwrap().obtained();
    assert_eq!((small.policy, small.page_bytes), (Policy::Virtual, 4096));
}

#[test]
fn hugetlb_on_a_node_takes_that_nodes_pages() {
    let Some(_pages) = Borrowed::new("hugetlb_on_a_node_takes_that_nodes_pages", 2) else {
        return;
    };
    match Region::zeroed(
        2 * HUGE,
        &Request {
            node: Some(0),
            ..request(Policy::Hugetlb2M)
        },
    ) {
        Ok(region) => assert_eq!(region.obtained().nodes, [0]),
        // The kernel may have put the borrowed pages on another node.
        Err(error) => assert!(error.to_string().contains("/node0/"), "{error}"),
    }
}

#[test]
fn a_pool_with_too_few_pages_names_the_command() {
    // With two pages in the pool, one of them taken, if they can be borrowed; otherwise with the pool as it is.
    let pages = Borrowed::new("a_pool_with_too_few_pages_names_the_command", 2);
    let _turn = pages.is_none().then(turn);
    let _taken = pages
        .is_some()
        .then(|| Region::zeroed(1, &request(Policy::Hugetlb2M)).unwrap());
    let (Some(total), Some(free)) = (pool("nr_hugepages"), pool("free_hugepages")) else {
        return skipped(
            "a_pool_with_too_few_pages_names_the_command",
            "the kernel has no pool",
        );
    };
    let error = Region::zeroed((free + 3) * HUGE, &request(Policy::Hugetlb2M))
        .unwrap_err()
        .to_string();
    let reserved = pool("resv_hugepages").unwrap();
    let command = format!(
        "echo {} | sudo tee /sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages",
        total + 3 + reserved.min(free)
    );
    assert!(error.ends_with(&command), "{error}, not {command}");
    assert!(
        error.starts_with(&format!(
            "hugetlb: pages of 2 MiB needed: {}, free: {free} of {total}: ",
            free + 3
        )),
        "{error}"
    );
}

#[test]
fn gigantic_pages_are_there_or_an_error_names_the_command() {
    match Region::zeroed(1, &request(Policy::Hugetlb1G)) {
        Ok(region) => assert_eq!(
            field(&smaps_of(address(&region)), "KernelPageSize"),
            1 << 30
        ),
        Err(error @ Error::NoSuchPages { .. }) => {
            skipped(
                "gigantic_pages_are_there_or_an_error_names_the_command",
                error,
            );
        }
        Err(error) => {
            let command = "sudo tee /sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages";
            assert!(error.to_string().ends_with(command), "{error}");
        }
    }
}

#[test]
fn contiguous_is_one_run_of_frames() {
    if !thp("contiguous_is_one_run_of_frames") {
        return;
    }
    for len in [64 << 10, 2 * MIB, 4 * MIB] {
        let region = match Region::zeroed(len, &request(Policy::Contiguous)) {
            Ok(region) => region,
            Err(error @ Error::NotContiguous { .. }) => {
                assert!(len > HUGE, "one huge page is contiguous: {error}");
                skipped(
                    "contiguous_is_one_run_of_frames",
                    format_args!("for {len} bytes, {error}"),
                );
                continue;
            }
            Err(error) => panic!("{error}"),
        };
        let Some(first) = frame(address(&region)) else {
            skipped(
                "contiguous_is_one_run_of_frames",
                "/proc/self/pagemap shows no frames",
            );
            assert!(matches!(
                region.obtained().contiguity,
                Contiguity::Unverified(_)
            ));
            continue;
        };
        for page in 0..len / 4096 {
            assert_eq!(
                frame(address(&region) + page * 4096),
                Some(first + page as u64),
                "page {page} of {len} bytes"
            );
        }
        assert_eq!(
            region.obtained().contiguity,
            Contiguity::Verified { longest_run: len }
        );
        assert!(region.obtained().to_string().ends_with(", contiguous"));
    }
}

/// The reported longest run equals the one found here by checking each page alone, also for memory that is not contiguous.
#[test]
fn runs_are_measured_where_there_are_gaps() {
    let mut region = Region::zeroed(2 * MIB, &request(Policy::Virtual)).unwrap();
    // Every fifth page stays untouched.
    for page in (0..512).filter(|page| page % 5 != 0) {
        region.bytes_mut()[page * 4096] = 1;
    }
    let Contiguity::Verified { longest_run } = region.obtained().contiguity else {
        return skipped(
            "runs_are_measured_where_there_are_gaps",
            "/proc/self/pagemap shows no frames",
        );
    };
    let frames: Vec<_> = (0..512)
        .map(|page| frame(address(&region) + page * 4096))
        .collect();
    let mut longest = 1;
    for start in 0..512 {
        let run = (start + 1..512)
            .take_while(|&at| frames[at].is_some() && frames[at] == frames[at - 1].map(|f| f + 1));
        longest = longest.max(1 + run.count());
    }
    assert!(longest <= 4);
    assert_eq!(longest_run, longest * 4096);
}

#[test]
fn nodes_are_those_that_exist() {
    let region = Region::zeroed(
        MIB,
        &Request {
            node: Some(0),
            populate: true,
            ..Request::default()
        },
    )
    .unwrap();
    let smaps = smaps_of(address(&region));
    assert_eq!(field(&smaps, "Rss"), MIB);
    let numa = fs::read_to_string("/proc/self/numa_maps").unwrap_or_default();
    let line = numa
        .lines()
        .find(|line| line.starts_with(&format!("{:x} ", address(&region))));
    if let Some(line) = line {
        assert!(
            line.contains("bind:0") && line.contains(" N0=256"),
            "{line}"
        );
        assert_eq!(region.obtained().nodes, [0]);
        assert!(
            region.obtained().to_string().ends_with(", node 0"),
            "{}",
            region.obtained()
        );
    } else {
        skipped(
            "nodes_are_those_that_exist",
            "in part, no /proc/self/numa_maps",
        );
    }
    for node in [1023, 1024, u32::MAX] {
        let error = Region::zeroed(
            MIB,
            &Request {
                node: Some(node),
                ..Request::default()
            },
        )
        .unwrap_err();
        assert!(matches!(error, Error::NoSuchNode { .. }), "{error}");
    }
}

#[test]
fn locked_memory_is_locked() {
    match Region::zeroed(
        MIB,
        &Request {
            lock: true,
            ..request(Policy::Virtual)
        },
    ) {
        Ok(region) => {
            let smaps = smaps_of(address(&region));
            assert_eq!((field(&smaps, "Locked"), field(&smaps, "Rss")), (MIB, MIB));
            assert_eq!(region.obtained().locked_bytes, MIB);
        }
        Err(error) => skipped("locked_memory_is_locked", error),
    }
}

#[test]
fn alignment_is_kept_and_bad_ones_are_refused() {
    for align in [0, 1, 64, 4096, 1 << 16, HUGE] {
        for (len, pages) in [
            (100, Policy::Auto),
            (100_000, Policy::Auto),
            (3 * MIB, Policy::Auto),
            (5, Policy::Virtual),
        ] {
            let region = Region::zeroed(
                len,
                &Request {
                    align,
                    ..request(pages)
                },
            )
            .unwrap();
            assert_eq!(address(&region) % align.max(64), 0);
        }
    }
    for align in [3, 65, 2 * HUGE, usize::MAX] {
        assert!(matches!(
            Region::zeroed(
                1,
                &Request {
                    align,
                    ..Request::default()
                }
            ),
            Err(Error::Align(_))
        ));
    }
}

#[test]
fn too_much_is_an_error() {
    for pages in [
        Policy::Auto,
        Policy::Virtual,
        Policy::Thp,
        Policy::Contiguous,
    ] {
        for len in [usize::MAX, isize::MAX as usize, 1 << 60, 1 << 47] {
            assert!(
                matches!(
                    Region::zeroed(len, &request(pages)),
                    Err(Error::NoMemory(_))
                ),
                "{pages} {len}"
            );
        }
    }
    assert!(matches!(
        Table::<u64>::zeroed(usize::MAX / 4, &Request::default()),
        Err(Error::TooLarge { .. })
    ));
}

#[test]
fn nothing_is_had_of_every_policy() {
    for (pages, _) in Policy::ALL {
        let region = Region::zeroed(0, &request(pages)).unwrap();
        assert!(region.is_empty() && region.bytes().is_empty());
        assert_eq!(region.obtained().bytes, 0);
        assert_eq!(
            Table::<[u64; 0]>::zeroed(1 << 40, &request(pages))
                .unwrap()
                .len(),
            1 << 40
        );
    }
}

#[test]
fn what_is_small_shares_its_pages() {
    let obtained = Region::zeroed(1000, &Request::default())
        .unwrap()
        .obtained();
    assert!(obtained.shared);
    assert_eq!(
        obtained.to_string(),
        "1000 bytes in 4 KiB pages (virtual, beside other values)"
    );
    assert!(
        !Region::zeroed(1000, &request(Policy::Virtual))
            .unwrap()
            .obtained()
            .shared
    );
}

/// Adjacent regions of one kind stay separate mappings in the kernel.
#[test]
fn regions_do_not_melt_together() {
    let regions: Vec<_> = (0..20)
        .map(|_| Region::zeroed(MIB, &request(Policy::Virtual)).unwrap())
        .collect();
    for region in &regions {
        assert_eq!(field(&smaps_of(address(region)), "Size"), MIB);
    }
}
