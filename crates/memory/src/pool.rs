//! Pools of huge pages: the kernel's admin-guide/mm/hugetlbpage.

use std::fs;
use std::path::Path;

/// Pool of huge pages of one size, set aside by an administrator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Size of a page, bytes.
    pub page_bytes: usize,
    /// Number of pages that are free, and not reserved for a mapping that has not touched them yet.
    pub free: usize,
    /// Number of pages, free or not.
    pub total: usize,
    /// Folder of the pool's files in `/sys`.
    pub(crate) path: String,
}

impl Pool {
    /// The pool of pages of `page_bytes`, on one node or on all; `None` if there are no such pages. `/sys` lies under `root`.
    ///
    /// **Cost**: reads three small files.
    pub fn read(root: &Path, page_bytes: usize, node: Option<u32>) -> Option<Self> {
        let size = format!("hugepages/hugepages-{}kB", page_bytes >> 10);
        let whole = root.join("sys/kernel/mm").join(&size);
        let path = node.map_or(whole.clone(), |node| {
            root.join(format!("sys/devices/system/node/node{node}/{size}"))
        });
        let number = |path: &Path, file| {
            fs::read_to_string(path.join(file))
                .ok()?
                .trim()
                .parse::<usize>()
                .ok()
        };
        // The kernel counts reservations for all nodes together.
        let reserved = number(&whole, "resv_hugepages")?;
        let free = number(&path, "free_hugepages")?.saturating_sub(reserved);
        Some(Self {
            page_bytes,
            free,
            total: number(&path, "nr_hugepages")?,
            path: path.display().to_string(),
        })
    }

    /// The pools of all page sizes, each of all nodes. `/sys` lies under `root`.
    pub fn all(root: &Path) -> Vec<Self> {
        let folders = fs::read_dir(root.join("sys/kernel/mm/hugepages"))
            .into_iter()
            .flatten()
            .flatten();
        let pool = |folder: fs::DirEntry| {
            let name = folder.file_name();
            let kib: usize = name
                .to_str()?
                .strip_prefix("hugepages-")?
                .strip_suffix("kB")?
                .parse()
                .ok()?;
            Self::read(root, kib.checked_mul(1024)?, None)
        };
        folders.filter_map(pool).collect()
    }

    /// Bytes in the free pages.
    pub fn free_bytes(&self) -> u64 {
        (self.page_bytes as u64).saturating_mul(self.free as u64)
    }
}
