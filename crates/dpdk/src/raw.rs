//! Declarations of the shim's functions (shim.h has the same in C), and of functions of DPDK itself.

use std::ffi::{c_char, c_int, c_uint};

/// `struct rte_mbuf`, which only the shim accesses.
#[repr(C)]
pub struct Mbuf {
    _opaque: [u8; 0],
}

/// `struct weir_pool`.
#[repr(C)]
#[derive(Debug)]
pub struct Pool {
    pub mempool: *mut u8,
    pub zone: *const u8,
    pub area: *mut u8,
    pub area_len: usize,
    pub slots_at: usize,
    pub slot_len: usize,
    pub room: u32,
}

/// `struct weir_place`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Place {
    pub at: u32,
    pub len: u32,
}

/// `struct weir_received`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Received {
    pub packets: u32,
    pub mbufs: u32,
    pub dropped: u32,
    unused: u32,
    pub slots: u64,
}

/// `struct weir_about`.
#[repr(C)]
#[derive(Debug)]
pub struct About {
    pub rx_queues: u16,
    pub tx_queues: u16,
    pub mtu: u16,
    unused: u16,
    pub if_index: u32,
    pub socket: c_int,
    pub driver: [u8; 64],
}

impl Default for About {
    fn default() -> Self {
        Self {
            rx_queues: 0,
            tx_queues: 0,
            mtu: 0,
            unused: 0,
            if_index: 0,
            socket: 0,
            driver: [0; 64],
        }
    }
}

/// `struct weir_stats`.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Stats {
    pub ipackets: u64,
    pub opackets: u64,
    pub ibytes: u64,
    pub obytes: u64,
    pub imissed: u64,
    pub ierrors: u64,
    pub oerrors: u64,
    pub rx_nombuf: u64,
}

/// `struct rte_eth_xstat`, of rte_ethdev.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Xstat {
    pub id: u64,
    pub value: u64,
}

/// `struct rte_eth_xstat_name`, of rte_ethdev.h.
pub type XstatName = [u8; 64];

unsafe extern "C" {
    pub fn weir_log_take(to: *mut u8, len: usize) -> usize;
    pub fn weir_init(argc: c_int, argv: *mut *mut c_char) -> c_int;
    pub fn weir_version() -> *const c_char;
    pub fn weir_error() -> c_int;
    pub fn weir_pool_create(
        name: *const c_char,
        count: c_uint,
        cache: c_uint,
        room: u32,
        slots: c_uint,
        slot_len: usize,
        socket: c_int,
        pool: *mut Pool,
    ) -> c_int;
    pub fn weir_pool_free(pool: *mut Pool);
    pub fn weir_port_about(port: u16, about: *mut About) -> c_int;
    pub fn weir_port_set_up(
        port: u16,
        receiving: u16,
        sending: u16,
        descriptors: *mut u16,
        pools: *const *const Pool,
        spread: *mut c_int,
    ) -> c_int;
    pub fn weir_port_close(port: u16);
    pub fn weir_port_stats(port: u16, to: *mut Stats) -> c_int;
    pub fn weir_receive(
        port: u16,
        queue: u16,
        pool: *const Pool,
        free_slots: u64,
        max: u32,
        large: *mut c_int,
        mbufs: *mut *mut Mbuf,
        places: *mut Place,
        found: *mut Received,
    );
    pub fn weir_give_back(pool: *const Pool, mbufs: *mut *mut Mbuf, count: u32);
    pub fn weir_send(
        port: u16,
        queue: u16,
        pool: *const Pool,
        frames: *const *const u8,
        lens: *const u32,
        count: u32,
    ) -> c_int;

    // Functions of DPDK itself.
    pub fn rte_dev_probe(devargs: *const c_char) -> c_int;
    pub fn rte_eth_dev_get_port_by_name(name: *const c_char, port: *mut u16) -> c_int;
    pub fn rte_eth_dev_start(port: u16) -> c_int;
    pub fn rte_eth_promiscuous_enable(port: u16) -> c_int;
    pub fn rte_eth_promiscuous_disable(port: u16) -> c_int;
    pub fn rte_eth_xstats_get_names(port: u16, names: *mut XstatName, size: c_uint) -> c_int;
    pub fn rte_eth_xstats_get(port: u16, values: *mut Xstat, size: c_uint) -> c_int;
}
