//! Reasons why a device cannot be used.

/// Reason why a device cannot be used. Each text names a remedy, and includes DPDK's log messages.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// DPDK does not start; a process can try only once.
    #[error("DPDK does not start: {said}")]
    Start {
        /// DPDK's message.
        said: String,
    },
    /// A PCI device was requested after DPDK had started without PCI.
    #[error(
        "{device}: DPDK runs without PCI here, since the first device opened was a virtual one: open this one first"
    )]
    WithoutPci {
        /// The device.
        device: String,
    },
    /// The text does not name any device.
    #[error(
        "{0:?} names no DPDK device: a virtual one with its arguments (net_af_packet0,iface=eth1) or a PCI address (0000:01:00.0) does"
    )]
    Name(String),
    /// The driver works on an interface of the kernel, and the text names none.
    #[error("{0} works on an interface of the kernel's: {0},iface=NAME")]
    NoInterface(String),
    /// The device does not exist, its arguments are wrong, or its driver cannot get the resources that it needs.
    #[error("DPDK does not find a port in {device}: {said}{}", hint(.said))]
    Device {
        /// The device and its arguments.
        device: String,
        /// DPDK's message.
        said: String,
    },
    /// The device has fewer queues than requested.
    #[error("{device} has {has} {what} queues, {asked} were asked for")]
    Queues {
        /// The device.
        device: String,
        /// `receive` or `send`.
        what: &'static str,
        /// Number of queues of the device.
        has: u16,
        /// Number of requested queues.
        asked: u16,
    },
    /// Memory for packets is not available.
    #[error("{device}: no {} MiB for packets: {said}{}", .bytes >> 20, .pages.remedy(*.bytes))]
    Memory {
        /// The device.
        device: String,
        /// Requested bytes.
        bytes: usize,
        /// Pages of the packets' memory.
        pages: crate::Pages,
        /// DPDK's message.
        said: String,
    },
    /// The device refuses a step of its setup.
    #[error("{device}: {what}: {said}{}", hint(.said))]
    Setup {
        /// The device.
        device: String,
        /// Name of the step.
        what: &'static str,
        /// DPDK's message.
        said: String,
    },
}

/// Advice for the case that the system refused permission.
fn hint(said: &str) -> &'static str {
    let refused = [
        "Operation not permitted",
        "Permission denied",
        "EPERM",
        "EACCES",
    ];
    if refused.iter().any(|word| said.contains(word)) {
        "; run as root, or give the program CAP_NET_RAW and CAP_NET_ADMIN (af_xdp: CAP_BPF too; a PCI device: access to /dev/vfio)"
    } else {
        ""
    }
}
