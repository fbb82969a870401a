//! Memory that can be obtained without ending other programs.
//!
//! The memory of a packet socket's ring belongs to no process and no control group. If a program requests too much of it, the
//! kernel does not refuse; its OOM killer ends other programs instead. So callers check the available memory first.

use crate::HUGE;
use crate::pool::Pool;
use std::fs;
use std::path::Path;

/// Memory that is free, or can be made free at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// Bytes in ordinary pages: the machine's, or those left in one of this process's control groups if that is less.
    pub bytes: u64,
    /// Whether a control group leaves less than the machine has.
    pub grouped: bool,
    /// Bytes in free pages of 2 MiB, which are set aside and not included in `bytes`.
    pub huge: u64,
    /// Bytes in free huge pages of all other sizes, which are also set aside.
    pub other_huge: u64,
}

impl Available {
    /// Memory that is free on this machine now; `None` if the kernel does not report it.
    ///
    /// **Cost**: reads some ten small files. **Platform**: Linux 3.14; control groups of both versions.
    pub fn now() -> Option<Self> {
        Self::under(Path::new("/"))
    }

    /// Memory that is free on the machine whose `/proc` and `/sys` lie under `root`; `None` if these do not report it.
    pub fn under(root: &Path) -> Option<Self> {
        let machine = field(
            &fs::read_to_string(root.join("proc/meminfo")).ok()?,
            "MemAvailable:",
        )?
        .checked_mul(1024)?;
        let group = headroom(root).unwrap_or(u64::MAX);
        let (two_mib, others): (Vec<Pool>, _) = Pool::all(root)
            .into_iter()
            .partition(|pool| pool.page_bytes == HUGE);
        let free = |pools: Vec<Pool>| {
            pools
                .iter()
                .map(Pool::free_bytes)
                .fold(0, u64::saturating_add)
        };
        Some(Self {
            bytes: machine.min(group),
            grouped: group < machine,
            huge: free(two_mib),
            other_huge: free(others),
        })
    }
}

/// The number after a name, in a file of `name number` lines.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| {
        line.strip_prefix(name)?
            .split_ascii_whitespace()
            .next()?
            .parse()
            .ok()
    })
}

/// Names that differ between the two versions of control groups.
struct Version {
    limit: &'static str,
    usage: &'static str,
    /// Names of the counts of file pages, which the kernel gives up before it ends a program.
    files: [&'static str; 2],
}

const V1: Version = Version {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    files: ["total_inactive_file ", "total_active_file "],
};

const V2: Version = Version {
    limit: "memory.max",
    usage: "memory.current",
    files: ["inactive_file ", "active_file "],
};

/// Bytes left in the tightest of this process's control groups; `None` if none has a limit.
fn headroom(root: &Path) -> Option<u64> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    let group = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?);
        let (mount, version) = match controllers {
            "" => ("sys/fs/cgroup", V2),
            names if names.split(',').any(|name| name == "memory") => ("sys/fs/cgroup/memory", V1),
            _ => return None,
        };
        // In a container, the path may be that of the host, of which only the last parts, or none, are visible here.
        let path = Path::new(path.trim_start_matches('/'));
        path.ancestors()
            .filter_map(|path| left(&root.join(mount).join(path), &version))
            .min()
    };
    groups.lines().filter_map(group).min()
}

/// Bytes left in a control group.
fn left(group: &Path, version: &Version) -> Option<u64> {
    let number = |file: &str| {
        fs::read_to_string(group.join(file))
            .ok()?
            .trim()
            .parse::<u64>()
            .ok()
    };
    // "max" is not a number, and means no limit.
    let limit = number(version.limit)?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let files = version
        .files
        .iter()
        .filter_map(|name| field(&stat, name))
        .fold(0, u64::saturating_add);
    Some(limit.saturating_sub(number(version.usage)?.saturating_sub(files)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_testkit::Scratch;

    const MEMINFO: (&str, &str) = (
        "proc/meminfo",
        "MemTotal:  9000 kB\nMemFree:  100 kB\nMemAvailable:    8000 kB",
    );

    #[track_caller]
    fn found(files: &[(&str, &str)]) -> (u64, bool) {
        let machine = Scratch::of(&[&[MEMINFO], files].concat());
        let Available { bytes, grouped, .. } = Available::under(machine.path()).unwrap();
        (bytes, grouped)
    }

    #[test]
    fn without_a_limit_it_is_what_the_machine_has() {
        assert_eq!(found(&[]), (8000 << 10, false));
        assert_eq!(
            found(&[
                ("proc/self/cgroup", "0::/"),
                ("sys/fs/cgroup/memory.stat", "file 1")
            ]),
            (8000 << 10, false)
        );
        let max = ("sys/fs/cgroup/a/memory.max", "max");
        let current = ("sys/fs/cgroup/a/memory.current", "5");
        assert_eq!(
            found(&[("proc/self/cgroup", "0::/a"), max, current]),
            (8000 << 10, false)
        );
        // The older version's value for no limit.
        let limit = (
            "sys/fs/cgroup/memory/memory.limit_in_bytes",
            "9223372036854771712",
        );
        let usage = ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4096");
        assert_eq!(
            found(&[("proc/self/cgroup", "4:memory:/"), limit, usage]),
            (8000 << 10, false)
        );
        assert_eq!(
            Available::under(Scratch::of(&[("proc/meminfo", "MemTotal: 1 kB")]).path()),
            None
        );
        assert_eq!(Available::under(Scratch::of(&[]).path()), None);
    }

    #[test]
    fn the_tightest_group_on_the_way_up_counts() {
        let files = [
            ("proc/self/cgroup", "0::/slice/unit"),
            ("sys/fs/cgroup/slice/memory.max", "1000000"),
            ("sys/fs/cgroup/slice/memory.current", "400000"),
            (
                "sys/fs/cgroup/slice/memory.stat",
                "anon 1\ninactive_file 100000\nactive_file 50000\nfile 250000",
            ),
            ("sys/fs/cgroup/slice/unit/memory.max", "900000"),
            ("sys/fs/cgroup/slice/unit/memory.current", "100000"),
        ];
        assert_eq!(found(&files), (750_000, true));
        // Usage at or above the limit.
        let full = [
            files[0],
            files[1],
            ("sys/fs/cgroup/slice/memory.current", "1000001"),
        ];
        assert_eq!(found(&full), (0, true));
    }

    #[test]
    fn the_older_version_is_read_alike() {
        let files = [
            (
                "proc/self/cgroup",
                "5:cpu,cpuacct:/x\n4:hugetlb,memory:/host/path/unit\n0::/",
            ),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "600000"),
            (
                "sys/fs/cgroup/memory/memory.stat",
                "inactive_file 1\ntotal_inactive_file 100000\ntotal_active_file 0",
            ),
            ("sys/fs/cgroup/cpu/x/memory.limit_in_bytes", "1"),
        ];
        assert_eq!(found(&files), (1_500_000, true));
        let nearer = (
            "sys/fs/cgroup/memory/host/path/memory.limit_in_bytes",
            "700000",
        );
        let used = (
            "sys/fs/cgroup/memory/host/path/memory.usage_in_bytes",
            "600000",
        );
        assert_eq!(
            found(&[&files[..], &[nearer, used]].concat()),
            (100_000, true)
        );
    }

    /// Reserved pages are shown as free until they are touched.
    #[test]
    fn huge_pages_are_apart_by_size_and_without_those_that_are_reserved() {
        let pool = |folder: &str, [total, free, reserved]: [&str; 3]| {
            [
                ("nr_hugepages", total),
                ("free_hugepages", free),
                ("resv_hugepages", reserved),
            ]
            .map(|(file, number)| {
                (
                    format!("sys/kernel/mm/hugepages/{folder}/{file}"),
                    number.to_owned(),
                )
            })
        };
        let files = [
            pool("hugepages-2048kB", ["9", "7", "4"]),
            pool("hugepages-1048576kB", ["24", "24", "0"]),
            pool("hugepages-64kB", ["5", "1", "3"]),
        ];
        let files: Vec<_> = files
            .iter()
            .flatten()
            .map(|(path, text)| (path.as_str(), text.as_str()))
            .collect();
        let machine = Scratch::of(&[&[MEMINFO], &files[..]].concat());
        let found = Available::under(machine.path()).unwrap();
        assert_eq!(
            found,
            Available {
                bytes: 8000 << 10,
                grouped: false,
                huge: 6 << 20,
                other_huge: 24 << 30
            }
        );
        assert_eq!(
            Pool::read(machine.path(), 2 << 20, None).map(|pool| (pool.free, pool.total)),
            Some((3, 9))
        );
        assert_eq!(Pool::read(machine.path(), 16 << 20, None), None);
        assert_eq!(Pool::all(machine.path()).len(), 3);
    }

    #[test]
    fn this_machine_has_some() {
        assert!(Available::now().unwrap().bytes > 1 << 20);
    }
}
