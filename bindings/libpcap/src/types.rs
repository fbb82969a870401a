//! The types of pcap/pcap.h, laid out as there.

use core::ffi::{c_char, c_int, c_uchar, c_uint, c_ushort};

pub use weir_filter::Insn;

/// Handle of a capture (`pcap_t`): always one of the program's own libpcap, which alone knows what it holds.
#[repr(C)]
pub struct Pcap {
    _opaque: [u8; 0],
}

/// Output file (`pcap_dumper_t`). In every version of libpcap it is a stdio `FILE`.
#[repr(C)]
pub struct Dumper {
    _opaque: [u8; 0],
}

/// List of interfaces (`pcap_if_t`).
#[repr(C)]
pub struct Device {
    _opaque: [u8; 0],
}

/// Line of /etc/ethers (`struct pcap_etherent`).
#[repr(C)]
pub struct Addresses {
    _opaque: [u8; 0],
}

/// Header of a packet (`struct pcap_pkthdr`). The second number of `time` counts microseconds or nanoseconds.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Header {
    /// Time of the packet.
    pub time: libc::timeval,
    /// Captured length, bytes.
    pub captured: c_uint,
    /// Length on the wire, bytes.
    pub wire_len: c_uint,
}

impl Default for Header {
    fn default() -> Self {
        Self {
            time: libc::timeval {
                tv_sec: 0,
                tv_usec: 0,
            },
            captured: 0,
            wire_len: 0,
        }
    }
}

/// Filter program (`struct bpf_program`).
#[repr(C)]
pub struct Program {
    /// Number of instructions.
    pub len: c_uint,
    /// The instructions.
    pub insns: *mut Insn,
}

/// Counts of a capture (`struct pcap_stat`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Stats {
    /// Packets received.
    pub received: c_uint,
    /// Packets dropped because there was no room.
    pub dropped: c_uint,
    /// Packets dropped by the interface.
    pub dropped_by_interface: c_uint,
}

/// Name and number of an Ethernet protocol (`struct eproto`).
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Entry {
    /// Name; null after the last entry.
    pub name: *const c_char,
    /// EtherType.
    pub number: c_ushort,
}

/// Direction of packets (`pcap_direction_t`).
pub type Direction = c_uint;

/// Function of the program that takes a packet (`pcap_handler`). It may leave by an exception or by `longjmp`.
pub type Handler = unsafe extern "C-unwind" fn(*mut c_uchar, *const Header, *const c_uchar);

/// Result of a read that `pcap_breakloop` ended (`PCAP_ERROR_BREAK`); of `pcap_next_ex` also the end of a file.
pub const BREAK: c_int = -2;
