//! DPDK's environment abstraction layer (EAL), of which a process has one.

use crate::error::Error;
use crate::raw;
use std::ffi::{CStr, CString, c_int};
use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use weir_memory::{HUGE, Pool};

/// Memory that DPDK needs in addition to the packets' memory, bytes.
pub const BESIDE: usize = 64 << 20;

/// Smallest memory without huge pages, bytes; it is populated page by page as it is used.
const WITHOUT_HUGE: usize = 1 << 30;

/// Pages of the packets' memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    /// Huge pages; this process takes as many as it needs.
    Huge,
    /// Pages of 4 KiB, this many bytes in all, because no huge pages were free.
    Small(usize),
}

impl Pages {
    /// Remedy for the user, if `bytes` cannot be obtained.
    pub(crate) fn remedy(self, bytes: usize) -> String {
        let pages = (bytes + BESIDE) >> 21;
        match self {
            Self::Huge => format!(
                "; more huge pages: sudo sysctl vm.nr_hugepages={}",
                huge_total() + pages
            ),
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
    /// Held while devices are added and removed, so that log messages belong to one of them.
    control: Mutex<()>,
    /// Number of memory pools made so far. Each needs a unique name, and bursts may keep a pool alive longer than its port.
    pools: AtomicU64,
}

// A process has one DPDK, which cannot be stopped and started again.
static EAL: OnceLock<Result<Eal, Error>> = OnceLock::new();

impl Eal {
    /// The process's DPDK, started on the first call: with huge pages if enough for `bytes` are free, and with the
    /// PCI device `pci` visible if there is one.
    ///
    /// **Threads**: starts threads of DPDK, which sleep. The caller is not bound to a processor.
    /// **Errors**: the error of the first call, on each call.
    pub(crate) fn get(bytes: usize, pci: Option<&str>) -> Result<&'static Self, Error> {
        EAL.get_or_init(|| Self::start(bytes, pci))
            .as_ref()
            .map_err(Clone::clone)
    }

    fn start(bytes: usize, pci: Option<&str>) -> Result<Self, Error> {
        let mut arguments = vec![
            "weir".to_owned(),
            "--no-telemetry".to_owned(),
            "--log-level=*:warning".to_owned(),
        ];
        // One thread of DPDK, on any processor that this process may use.
        let cpus = allowed_cpus().unwrap_or_else(|| "0".to_owned());
        arguments.push(format!("--lcores=0@({cpus})"));
        match pci {
            Some(device) => arguments.extend(["-a".to_owned(), device.to_owned()]),
            // With virtual devices alone, no physical addresses are needed.
            None => arguments.extend(["--no-pci", "--iova-mode=va"].map(str::to_owned)),
        }
        let pages = if huge_free() >= (bytes + BESIDE) as u64 {
            arguments.push("--in-memory".to_owned());
            Pages::Huge
        } else {
            let small = (bytes + BESIDE).max(WITHOUT_HUGE);
            let prefix = format!("--file-prefix=weir-{}", std::process::id());
            arguments.extend([
                "--no-huge".to_owned(),
                format!("-m{}", small >> 20),
                "--no-shconf".to_owned(),
                prefix,
            ]);
            Pages::Small(small)
        };
        // DPDK gives the thread that starts it a role and a processor, so a short-lived thread does that.
        let thread = std::thread::Builder::new().spawn(move || init(arguments));
        let thread = thread.map_err(|error| Error::Start {
            said: format!("its thread cannot be started: {error}"),
        })?;
        match thread.join() {
            Ok(0) => Ok(Self {
                pages,
                pci: pci.is_some(),
                control: Mutex::new(()),
                pools: AtomicU64::new(0),
            }),
            Ok(code) => Err(Error::Start { said: said(code) }),
            Err(_) => Err(Error::Start {
                said: "its thread ended early".to_owned(),
            }),
        }
    }

    /// Pages of the packets' memory.
    pub fn pages(&self) -> Pages {
        self.pages
    }

    /// Whether PCI devices are available.
    pub(crate) fn has_pci(&self) -> bool {
        self.pci
    }

    /// A unique name for a memory pool.
    pub(crate) fn pool_name(&self) -> String {
        format!("weir-{}", self.pools.fetch_add(1, Ordering::Relaxed))
    }

    /// DPDK's version.
    pub fn version(&self) -> String {
        // SAFETY: the function returns a string that lives as long as the process.
        unsafe { CStr::from_ptr(raw::weir_version()) }
            .to_string_lossy()
            .into_owned()
    }

    /// Keeps other threads from changing devices. Earlier log messages are discarded.
    pub(crate) fn control(&self) -> MutexGuard<'_, ()> {
        let guard = self.control.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = logged();
        guard
    }
}

fn init(arguments: Vec<String>) -> c_int {
    let arguments: Vec<CString> = arguments
        .into_iter()
        .map(|text| CString::new(text).expect("the texts above have no NUL in them"))
        .collect();
    // DPDK keeps pointers into the arguments, and exchanges them: they are never freed.
    let pointers: Vec<_> = arguments.into_iter().map(CString::into_raw).collect();
    let pointers = pointers.leak();
    // SAFETY: as many strings as stated, ended with NUL, writable, never freed; called once in the process, by `EAL`.
    unsafe { raw::weir_init(pointers.len() as c_int, pointers.as_mut_ptr()) }
}

/// DPDK's log messages since the last call, as one line, without DPDK's names of functions and log types.
fn logged() -> String {
    let mut bytes = vec![0u8; 8192];
    // SAFETY: the buffer is as long as stated; called after DPDK has started or failed to start, which made the log.
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

/// A message without its origin: `EAL: what` and `function(): what` become `what`.
fn plain(line: &str) -> &str {
    let is_name = |text: &str| {
        !text.is_empty()
            && text
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"_()-".contains(&b))
    };
    let mut rest = line;
    while let Some((name, what)) = rest.split_once(':')
        && is_name(name.trim())
        && (name.trim().ends_with("()")
            || name
                .trim()
                .bytes()
                .all(|b| b.is_ascii_uppercase() || b == b'_'))
    {
        rest = what;
    }
    rest
}

/// DPDK's log messages, or if there are none, the meaning of its error number.
pub(crate) fn said(code: c_int) -> String {
    let logged = logged();
    let code = code
        .checked_abs()
        .filter(|&code| code > 1)
        .unwrap_or_else(|| {
            // SAFETY: reads an error number of this thread.
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

/// Processors that this process may use, as the kernel lists them.
fn allowed_cpus() -> Option<String> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(line.trim().to_owned())
}

/// Bytes in free huge pages of all sizes.
fn huge_free() -> u64 {
    Pool::all(Path::new("/")).iter().map(Pool::free_bytes).sum()
}

/// Number of huge pages of 2 MiB that the system has, free or not.
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
            (
                "rte_pmd_init_internals(): net_af_packet0: I/F lookup failed",
                " net_af_packet0: I/F lookup failed",
            ),
            ("ETHDEV: f(): x: y", " x: y"),
            ("net_null0: what", "net_null0: what"),
            ("no colon", "no colon"),
        ] {
            assert_eq!(plain(line), left, "{line}");
        }
    }
}
