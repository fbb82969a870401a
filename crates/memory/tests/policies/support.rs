//! Queries of the kernel, a pool of huge pages that can be borrowed, and child processes with fewer rights.

use std::ffi::OsStr;
use std::fs;
use std::process::Command;
use std::sync::{Mutex, MutexGuard};
use weir_testkit::skipped;

/// The lines of `/proc/self/smaps` for the mapping that holds `address`.
pub fn smaps_of(address: usize) -> String {
    let text = fs::read_to_string("/proc/self/smaps").unwrap();
    let mut found = String::new();
    let mut inside = false;
    for line in text.lines() {
        let first = line.split(' ').next().unwrap();
        if !first.ends_with(':') {
            let ends: Vec<usize> = first
                .split('-')
                .map(|end| usize::from_str_radix(end, 16).unwrap())
                .collect();
            inside = ends[0] <= address && address < ends[1];
        }
        if inside {
            found += line;
            found += "\n";
        }
    }
    found
}

/// A field of the lines of `smaps_of`, in bytes.
pub fn field(smaps: &str, name: &str) -> usize {
    let start = smaps
        .find(&format!("\n{name}:"))
        .unwrap_or_else(|| panic!("no {name} in {smaps}"));
    let line = smaps[start + 1..].lines().next().unwrap();
    let number: String = line.chars().filter(char::is_ascii_digit).collect();
    number.parse::<usize>().unwrap() * 1024
}

/// The physical frame of the page at `address`, read by seeking; `None` if the page is not populated or hidden.
pub fn frame(address: usize) -> Option<u64> {
    use std::io::{Read, Seek, SeekFrom};
    let mut file = fs::File::open("/proc/self/pagemap").ok()?;
    file.seek(SeekFrom::Start(address as u64 / 4096 * 8)).ok()?;
    let mut entry = [0; 8];
    file.read_exact(&mut entry).ok()?;
    let frame = u64::from_le_bytes(entry) & 0x7f_ffff_ffff_ffff;
    (frame != 0).then_some(frame)
}

/// Pages of the 2 MiB pool, held until dropped. Tests take turns, and the pool is restored afterwards.
pub struct Borrowed {
    before: usize,
    _turn: MutexGuard<'static, ()>,
}

static TURN: Mutex<()> = Mutex::new(());

pub const POOL: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB";

pub fn pool(file: &str) -> Option<usize> {
    fs::read_to_string(format!("{POOL}/{file}"))
        .ok()?
        .trim()
        .parse()
        .ok()
}

impl Borrowed {
    /// Borrows `pages` free pages, or prints why there are none.
    pub fn new(test: &str, pages: usize) -> Option<Self> {
        let turn = TURN.lock().unwrap_or_else(|broken| broken.into_inner());
        let (Some(before), Some(free)) = (pool("nr_hugepages"), pool("free_hugepages")) else {
            skipped(test, "the kernel has no pool of 2 MiB pages");
            return None;
        };
        let wanted = before + pages.saturating_sub(free);
        if wanted > before && fs::write(format!("{POOL}/nr_hugepages"), wanted.to_string()).is_err()
        {
            skipped(
                test,
                format_args!("{pages} free huge pages are needed, or root to make them"),
            );
            return None;
        }
        let borrowed = Self {
            before,
            _turn: turn,
        };
        if pool("free_hugepages") < Some(pages) {
            skipped(test, format_args!("the kernel finds no {pages} huge pages"));
            return None;
        }
        Some(borrowed)
    }
}

impl Drop for Borrowed {
    fn drop(&mut self) {
        if pool("nr_hugepages") != Some(self.before) {
            let _ = fs::write(format!("{POOL}/nr_hugepages"), self.before.to_string());
        }
    }
}

/// Waits for the turn of this test to use the pool.
pub fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(|broken| broken.into_inner())
}

/// Environment variable that marks a child process.
const CHILD: &str = "WEIR_MEMORY_TEST_CHILD";

/// Runs the test `name` of this file again in a child process, under `prefix`. Returns `true` in the child, which runs the
/// test's body.
pub fn in_child<S: AsRef<OsStr>>(name: &str, prefix: &[S]) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let exe = std::env::current_exe().unwrap();
    let mut words: Vec<&OsStr> = prefix.iter().map(AsRef::as_ref).collect();
    words.push(exe.as_os_str());
    let done = Command::new(words[0])
        .args(&words[1..])
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, "1")
        .output();
    match done {
        Err(error) => skipped(name, format_args!("no {:?} ({error})", words[0])),
        Ok(done) => {
            let err = String::from_utf8_lossy(&done.stderr);
            if err.contains("setpriv:") {
                skipped(name, err);
                return false;
            }
            let out = String::from_utf8_lossy(&done.stdout);
            assert!(
                done.status.success() && out.contains("1 passed"),
                "{out}{err}"
            );
        }
    }
    false
}
