//! Why a device cannot be used.

/// Why a device cannot be used. Each says what to do, and takes in what DPDK logged.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// DPDK does not start; it can be tried once in a process.
    #[error("DPDK does not start: {said}")]
    Start {
        /// What it says.
        said: String,
    },
    /// A PCI device was asked for after DPDK had started without PCI.
    #[error(
        "{device}: DPDK runs without PCI here, since the first device opened was a virtual one: open this one first"
    )]
    WithoutPci {
        /// The device.
        device: String,
    },
    /// The text names no device.
    #[error(
        "{0:?} names no DPDK device: a virtual one with its arguments (net_af_packet0,iface=eth1) or a PCI address (0000:01:00.0) does"
    )]
    Name(String),
    /// The driver works on an interface of the kernel's, and none is named.
    #[error("{0} works on an interface of the kernel's: {0},iface=NAME")]
    NoInterface(String),
    /// There is no such device, or its arguments are wrong, or its driver cannot have what it needs.
    #[error("DPDK does not find a port in {device}: {said}{}", hint(.said))]
    Device {
        /// The device and its arguments.
        device: String,
        /// What DPDK says.
        said: String,
    },
    /// It has fewer queues.
    #[error("{device} has {has} {what} queues, {asked} were asked for")]
    Queues {
        /// The device.
        device: String,
        /// `receive` or `send`.
        what: &'static str,
        /// How many it has.
        has: u16,
        /// How many were asked for.
        asked: u16,
    },
    /// Memory for packets cannot be had.
    #[error("{device}: no {} MiB for packets: {said}{}", .bytes >> 20, .pages.remedy(*.bytes))]
    Memory {
        /// The device.
        device: String,
        /// Bytes wanted.
        bytes: usize,
        /// The pages they come from.
        pages: crate::Pages,
        /// What DPDK says.
        said: String,
    },
    /// The device does not do what it is asked.
    #[error("{device}: {what}: {said}{}", hint(.said))]
    Setup {
        /// The device.
        device: String,
        /// What was asked.
        what: &'static str,
        /// What DPDK says.
        said: String,
    },
}

/// What helps where the system refused.
fn hint(said: &str) -> &'static str {
    let refused = ["Operation not permitted", "Permission denied", "EPERM", "EACCES"];
    if refused.iter().any(|word| said.contains(word)) {
        "; run as root, or give the program CAP_NET_RAW and CAP_NET_ADMIN (af_xdp: CAP_BPF too; a PCI device: access to /dev/vfio)"
    } else {
        ""
    }
}
