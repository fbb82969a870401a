//! How much memory can be had without ending other programs.
//!
//! The memory of a packet socket's ring belongs to no process and no control group, so the kernel stops nobody who asks for too
//! much of it: its OOM killer ends other programs instead. Whoever asks for such memory looks here first.

use std::fs;
use std::path::Path;

/// Memory that is free, or can be made free at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Available {
    /// Bytes in ordinary pages: those of the machine, or what is left to one of this process's control groups if that is less.
    pub bytes: u64,
    /// A control group leaves less than the machine has.
    pub grouped: bool,
    /// Bytes in the pools of huge pages, which are set aside and not among `bytes`.
    pub huge: u64,
}

impl Available {
    /// What this machine has now; `None` if the kernel does not say.
    ///
    /// **Cost**: some ten small files are read. **Platform**: Linux 3.14; control groups of both versions.
    pub fn now() -> Option<Self> {
        Self::under(Path::new("/"))
    }

    /// The same for the machine whose `/proc` and `/sys` lie under `root`.
    pub fn under(root: &Path) -> Option<Self> {
        let machine =
            field(&fs::read_to_string(root.join("proc/meminfo")).ok()?, "MemAvailable:")?.checked_mul(1024)?;
        let group = headroom(root).unwrap_or(u64::MAX);
        Some(Self { bytes: machine.min(group), grouped: group < machine, huge: huge(root) })
    }
}

/// The number behind a name, in a file of lines.
fn field(text: &str, name: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix(name)?.split_ascii_whitespace().next()?.parse().ok())
}

/// Names of files and fields that differ between the versions of control groups.
struct Version {
    limit: &'static str,
    usage: &'static str,
    /// Pages of files, which the kernel gives up before it ends a program.
    files: [&'static str; 2],
}

const V1: Version = Version {
    limit: "memory.limit_in_bytes",
    usage: "memory.usage_in_bytes",
    files: ["total_inactive_file ", "total_active_file "],
};

const V2: Version = Version { limit: "memory.max", usage: "memory.current", files: ["inactive_file ", "active_file "] };

/// What the tightest of this process's control groups leaves; `None` if none has a limit.
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
        // In a container the path may be that of the host, of which the last parts, or none, are seen from here.
        let path = Path::new(path.trim_start_matches('/'));
        path.ancestors().filter_map(|path| left(&root.join(mount).join(path), &version)).min()
    };
    groups.lines().filter_map(group).min()
}

/// What a control group leaves.
fn left(group: &Path, version: &Version) -> Option<u64> {
    let number = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
    // "max" is no number, and no limit.
    let limit = number(version.limit)?;
    let stat = fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
    let files = version.files.iter().filter_map(|name| field(&stat, name)).fold(0, u64::saturating_add);
    Some(limit.saturating_sub(number(version.usage)?.saturating_sub(files)))
}

/// Free bytes of all pools of huge pages.
fn huge(root: &Path) -> u64 {
    let pools = fs::read_dir(root.join("sys/kernel/mm/hugepages")).into_iter().flatten().flatten();
    let free = |pool: fs::DirEntry| {
        let kib: u64 = pool.file_name().to_str()?.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
        let pages: u64 = fs::read_to_string(pool.path().join("free_hugepages")).ok()?.trim().parse().ok()?;
        kib.checked_mul(1024)?.checked_mul(pages)
    };
    pools.filter_map(free).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    /// A machine of these files, which vanishes.
    struct Machine(PathBuf);

    impl Machine {
        fn of(files: &[(&str, &str)]) -> Self {
            static MADE: AtomicU32 = AtomicU32::new(0);
            let number = MADE.fetch_add(1, Ordering::Relaxed);
            let root = std::env::temp_dir().join(format!("weir-available-{}-{number}", std::process::id()));
            fs::create_dir_all(&root).unwrap();
            for (path, text) in files {
                let path = root.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, format!("{text}\n")).unwrap();
            }
            Self(root)
        }
    }

    impl Drop for Machine {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:  9000 kB\nMemFree:  100 kB\nMemAvailable:    8000 kB");

    #[track_caller]
    fn found(files: &[(&str, &str)]) -> (u64, bool) {
        let machine = Machine::of(&[&[MEMINFO], files].concat());
        let Available { bytes, grouped, .. } = Available::under(&machine.0).unwrap();
        (bytes, grouped)
    }

    #[test]
    fn without_a_limit_it_is_what_the_machine_has() {
        assert_eq!(found(&[]), (8000 << 10, false));
        assert_eq!(
            found(&[("proc/self/cgroup", "0::/"), ("sys/fs/cgroup/memory.stat", "file 1")]),
            (8000 << 10, false)
        );
        let max = ("sys/fs/cgroup/a/memory.max", "max");
        let current = ("sys/fs/cgroup/a/memory.current", "5");
        assert_eq!(found(&[("proc/self/cgroup", "0::/a"), max, current]), (8000 << 10, false));
        // What the older version has for none.
        let limit = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
        let usage = ("sys/fs/cgroup/memory/memory.usage_in_bytes", "4096");
        assert_eq!(found(&[("proc/self/cgroup", "4:memory:/"), limit, usage]), (8000 << 10, false));
        assert_eq!(Available::under(&Machine::of(&[("proc/meminfo", "MemTotal: 1 kB")]).0), None);
        assert_eq!(Available::under(&Machine::of(&[]).0), None);
    }

    #[test]
    fn the_tightest_group_on_the_way_up_counts() {
        let files = [
            ("proc/self/cgroup", "0::/slice/unit"),
            ("sys/fs/cgroup/slice/memory.max", "1000000"),
            ("sys/fs/cgroup/slice/memory.current", "400000"),
            ("sys/fs/cgroup/slice/memory.stat", "anon 1\ninactive_file 100000\nactive_file 50000\nfile 250000"),
            ("sys/fs/cgroup/slice/unit/memory.max", "900000"),
            ("sys/fs/cgroup/slice/unit/memory.current", "100000"),
        ];
        assert_eq!(found(&files), (750_000, true));
        // Used up, or beyond.
        let full = [files[0], files[1], ("sys/fs/cgroup/slice/memory.current", "1000001")];
        assert_eq!(found(&full), (0, true));
    }

    #[test]
    fn the_older_version_is_read_alike() {
        let files = [
            ("proc/self/cgroup", "5:cpu,cpuacct:/x\n4:hugetlb,memory:/host/path/unit\n0::/"),
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "2000000"),
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "600000"),
            ("sys/fs/cgroup/memory/memory.stat", "inactive_file 1\ntotal_inactive_file 100000\ntotal_active_file 0"),
            ("sys/fs/cgroup/cpu/x/memory.limit_in_bytes", "1"),
        ];
        assert_eq!(found(&files), (1_500_000, true));
        let nearer = ("sys/fs/cgroup/memory/host/path/memory.limit_in_bytes", "700000");
        let used = ("sys/fs/cgroup/memory/host/path/memory.usage_in_bytes", "600000");
        assert_eq!(found(&[&files[..], &[nearer, used]].concat()), (100_000, true));
    }

    #[test]
    fn huge_pages_are_apart() {
        let machine = Machine::of(&[
            MEMINFO,
            ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "3"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", "1"),
        ]);
        let found = Available::under(&machine.0).unwrap();
        assert_eq!(found, Available { bytes: 8000 << 10, grouped: false, huge: (1 << 30) + (6 << 20) });
    }

    #[test]
    fn this_machine_has_some() {
        assert!(Available::now().unwrap().bytes > 1 << 20);
    }
}
