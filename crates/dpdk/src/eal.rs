//! DPDK's environment, of which a process has one.

use crate::error::Error;
use crate::raw;
use std::ffi::{CStr, CString, c_int};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use weir_memory::{HUGE, Pool};

/// What DPDK needs beside the packets' memory, bytes.
pub const BESIDE: usize = 64 << 20;

/// Memory without huge pages at least, bytes; it is taken page by page as it is used.
const WITHOUT_HUGE: usize = 1 << 30;

/// The pages that packets lie in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Huge pages, of which this process takes as many as it needs.
    Huge,
    /// Pages of 4 KiB, this many bytes in all: no huge pages were free.
    Small(usize),
}

impl Pages {
    /// What to do if `bytes` cannot be had.
    pub(crate) fn remedy(self, bytes: usize) -> String {
        let pages = (bytes + BESIDE) >> 21;
        match self {
            Self::Huge => format!("; more huge pages: sudo sysctl vm.nr_hugepages={}", huge_total() + pages),
            Self::Small(all) => format!(
                "; DPDK was started with {} MiB of small pages, since too few huge pages were free: \
                 sudo sysctl vm.nr_hugepages={}",
                all >> 20,
                huge_total() + pages
            ),
        }
    }
}

/// DPDK, running in this process.
#[derive(Debug)]
pub struct Eal {
    pages: Pages,
    pci: bool,
    /// Held while devices come and go, so that what is logged belongs to one of them.
    control: Mutex<()>,
    /// Memory pools made so far. Each needs a name of its own, and bursts may keep one longer than its port lives.
    pools: AtomicU64,
}

// A process has one DPDK, which cannot be ended and begun again.
static EAL: OnceLock<Result<Eal, Error>> = OnceLock::new();

impl Eal {
    /// The process's DPDK, started if it does not run yet: with huge pages if as many as `bytes` need are free, and with the
    /// PCI device `pci` in sight if there is one.
    ///
    /// **Threads**: starts threads of DPDK's, which sleep. The caller is bound to no processor.
    /// **Errors**: that of the first time, each time.
    pub(crate) fn get(bytes: usize, pci: Option<&str>) -> Result<&'static Self, Error> {
        EAL.get_or_init(|| Self::start(bytes, pci)).as_ref().map_err(Clone::clone)
    }

    fn start(bytes: usize, pci: Option<&str>) -> Result<Self, Error> {
        let mut arguments = vec!["weir".to_owned(), "--no-telemetry".to_owned(), "--log-level=*:warning".to_owned()];
        // One thread of DPDK's, on any processor that this process may use.
        let cpus = allowed_cpus().unwrap_or_else(|| "0".to_owned());
        arguments.push(format!("--lcores=0@({cpus})"));
        match pci {
            Some(device) => arguments.extend(["-a".to_owned(), device.to_owned()]),
            // Virtual devices alone need no physical addresses.
            None => arguments.extend(["--no-pci", "--iova-mode=va"].map(str::to_owned)),
        }
        let pages = if huge_free() >= (bytes + BESIDE) as u64 {
            arguments.push("--in-memory".to_owned());
            Pages::Huge
        } else {
            let small = (bytes + BESIDE).max(WITHOUT_HUGE);
            let prefix = format!("--file-prefix=weir-{}", std::process::id());
            arguments.extend(["--no-huge".to_owned(), format!("-m{}", small >> 20), "--no-shconf".to_owned(), prefix]);
            Pages::Small(small)
        };
        // The thread that starts DPDK gets a role and a processor: one that ends.
        let thread = std::thread::Builder::new().spawn(move || init(arguments));
        let thread = thread.map_err(|error| Error::Start { said: format!("its thread cannot be started: {error}") })?;
        match thread.join() {
            Ok(0) => Ok(Self { pages, pci: pci.is_some(), control: Mutex::new(()), pools: AtomicU64::new(0) }),
            Ok(code) => Err(Error::Start { said: said(code) }),
            Err(_) => Err(Error::Start { said: "its thread ended early".to_owned() }),
        }
    }

    /// The pages that packets lie in.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Whether PCI devices can be had.
    pub(crate) fn has_pci(&self) -> bool {
        self.pci
    }

    /// A name that no memory pool has had.
    pub(crate) fn pool_name(&self) -> String {
        format!("weir-{}", self.pools.fetch_add(1, Ordering::Relaxed))
    }

    /// DPDK's version.
    pub fn version(&self) -> String {
        // SAFETY: a string that lives as long as the process.
        unsafe { CStr::from_ptr(raw::weir_version()) }.to_string_lossy().into_owned()
    }

    /// Keeps others from changing devices. What was logged before is forgotten.
    pub(crate) fn control(&self) -> MutexGuard<'_, ()> {
        let guard = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = logged();
        guard
    }
}

fn init(arguments: Vec<String>) -> c_int {
    let arguments: Vec<CString> =
        arguments.into_iter().map(|text| CString::new(text).expect("the texts above have no NUL in them")).collect();
    // DPDK keeps pointers into them, and exchanges them: they stay for good.
    let pointers: Vec<_> = arguments.into_iter().map(CString::into_raw).collect();
    let pointers = pointers.leak();
    // SAFETY: as many strings as said, ended with NUL, writable, never freed; called once in the process, by `EAL`.
    unsafe { raw::weir_init(pointers.len() as c_int, pointers.as_mut_ptr()) }
}

/// What DPDK logged since it was asked last, as one line; DPDK's names of functions and log types are left out.
fn logged() -> String {
    let mut bytes = vec![0u8; 8192];
    // SAFETY: the buffer is as long as said; called once DPDK has started, or failed to, which made the log.
    let len = unsafe { raw::weir_log_take(bytes.as_mut_ptr(), bytes.len()) };
    let text = String::from_utf8_lossy(&bytes[..len]).into_owned();
    let mut lines: Vec<&str> = Vec::new();
    for line in text.lines().map(|line| plain(line).trim()) {
        if !line.is_empty() && !lines.contains(&line) {
            lines.push(line);
        }
    }
    lines.join("; ")
}

/// `EAL: what` and `function(): what` as `what`.
fn plain(line: &str) -> &str {
    let is_name =
        |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_()-".contains(&b));
    let mut rest = line;
    while let Some((name, what)) = rest.split_once(':')
        && is_name(name.trim())
        && (name.trim().ends_with("()") || name.trim().bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
    {
        rest = what;
    }
    rest
}

/// What DPDK logged, or else what its error number means.
pub(crate) fn said(code: c_int) -> String {
    let logged = logged();
    let code = code.checked_abs().filter(|&code| code > 1).unwrap_or_else(|| {
        // SAFETY: reads a number of this thread.
        unsafe { raw::weir_error() }
    });
    let system = std::io::Error::from_raw_os_error(code).to_string();
    let system = system.split(" (os error").next().unwrap_or_default();
    match (logged.is_empty(), code) {
        (true, 0) => "it does not say why".to_owned(),
        (true, _) => system.to_owned(),
        (false, 0) => logged,
        (false, _) if logged.contains(system) => logged,
        (false, _) => format!("{logged} ({system})"),
    }
}

/// Processors of this process, as the kernel lists them.
fn allowed_cpus() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_owned())
}

/// Bytes in free huge pages of all sizes.
fn huge_free() -> u64 {
    Pool::all(Path::new("/")).iter().map(Pool::free_bytes).sum()
}

/// Huge pages of 2 MiB that the system has, free or not.
fn huge_total() -> usize {
    Pool::read(Path::new("/"), HUGE, None).map_or(0, |pool| pool.total)
}

#[cfg(test)]
mod tests {
    use super::plain;

    #[test]
    fn names_of_functions_go_and_messages_stay() {
        for (line, left) in [
            ("EAL: Cannot find device", " Cannot find device"),
            ("rte_pmd_init_internals(): net_af_packet0: I/F lookup failed", " net_af_packet0: I/F lookup failed"),
            ("ETHDEV: f(): x: y", " x: y"),
            ("net_null0: what", "net_null0: what"),
            ("no colon", "no colon"),
        ] {
            assert_eq!(plain(line), left, "{line}");
        }
    }
}
